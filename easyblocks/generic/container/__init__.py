##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Modules that implement the easyblocks ContainerInstall and ContainerVenv.

This package contains no easyblock: EasyBuild only searches the parent directory for easyblocks.
"""
