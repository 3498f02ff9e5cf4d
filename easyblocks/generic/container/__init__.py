##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What the easyblocks ContainerInstall and ContainerVenv are made of.

There is no easyblock in this package: EasyBuild looks for easyblocks in the directory above only.
"""
