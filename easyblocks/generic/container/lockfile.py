##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The lock file of an installation: its path and its keys, for the easyblocks and for the commands that read it.

This module imports nothing of EasyBuild, which takes longer to load than those commands to run.
"""
import os

# Relative to the installation directory; only a complete installation has one.
RECORD = os.path.join('share', 'ebsif', 'lock.json')

MODULE = 'module'  # name, version, versionsuffix
VERSIONS = 'versions'  # of the software that took part
IMAGE = 'image'  # file, source, resolved, size, sha256
IMAGE_PACKAGES = 'image_packages'  # name==version of each Python package
MASKS = 'masks'
LIBRARY_BINDS = 'library_binds'
ENTRY_POINT_ENVIRONMENT = 'entry_point_environment'  # value by name of variable
WRAPPERS = 'wrappers'
SCRIPTS = 'scripts'  # fingerprints
USER_SOFTWARE = 'user_software'  # fingerprints

# With user software:
STAGES = 'stages'
VENV_PACKAGES = 'venv_packages'  # as IMAGE_PACKAGES
ARTIFACTS = 'artifacts'  # file and sha256 that pip installed from, by normal name of the package
LOCAL_FILES = 'local_files'  # SHA256 of the files of this machine that stages name
VENV_ENVIRONMENT = 'venv_environment'
