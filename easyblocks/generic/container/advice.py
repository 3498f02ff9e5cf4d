##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Commands of ebsif that messages suggest. The easyblocks work without ebsif, which is installed separately.
"""

MAKE_EXTENSION = "`ebsif extend %s --add PACKAGE --name NAME --install`"
SUBMIT_INSTALLATION = "`ebsif job --install EASYCONFIG` with the settings of your site"
ADD_PACKAGE = "`ebsif extend ... --add '%s'` with the version that is needed"
