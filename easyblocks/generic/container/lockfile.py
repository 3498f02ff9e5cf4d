##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Path and keys of an installation's lock file, for the easyblocks and for the commands that read it.

Doesn't import EasyBuild, because importing it takes longer than running those commands.
"""
import os

# Relative to the installation directory; only complete installations have one.
RECORD = os.path.join('share', 'ebsif', 'lock.json')

# What a copy of it has instead of the suffix of the easyconfig that repeats the installation, in the same directory.
COPY_SUFFIX = '.lock.json'

MODULE = 'module'  # name, version, versionsuffix
EASYCONFIG = 'easyconfig'  # path of the file that was installed
VERSIONS = 'versions'  # of the software that was used: EasyBuild, the runtime ...
# file, source (where it was fetched from, else where it was found), source_digest (of what was fetched), resolved,
# sha256; size and mtime_ns of the file that the module uses; kind (own, central, reference); origin: the module
# whose image it is, if that is another one; labels; signers: fingerprints of the keys that signed it, which nobody has
# verified; signature: state and details of the verification, if the easyconfig asks for that
IMAGE = 'image'
IMAGE_PACKAGES = 'image_packages'  # name==version of each Python package
SYSTEM = 'system'  # distribution and release
SYSTEM_PACKAGES = 'system_packages'  # like IMAGE_PACKAGES, by kind: deb, rpm, apk
CONDA_PACKAGES = 'conda_packages'  # like IMAGE_PACKAGES, by prefix of the environment
IMAGE_LIST = 'image_list'  # like IMAGE_PACKAGES, by kind: what the image itself lists in /.sbom.json
MASKS = 'masks'
LIBRARY_BINDS = 'library_binds'
OPTIONAL_BINDS = 'optional_binds'  # sources of those that existed
ENTRY_POINT_ENVIRONMENT = 'entry_point_environment'  # value by name of variable
WRAPPERS = 'wrappers'
SCRIPTS = 'scripts'  # fingerprints
USER_SOFTWARE = 'user_software'  # fingerprints
USER_SOFTWARE_FILE = 'user_software_file'  # size and mtime_ns of the SquashFS file

# With user software:
STAGES = 'stages'
VENV_PACKAGES = 'venv_packages'  # like IMAGE_PACKAGES
ARTIFACTS = 'artifacts'  # name and SHA256 of the files that pip installed, by normalized package name
LOCAL_FILES = 'local_files'  # SHA256 of local files that stages refer to, by path
VENV_ENVIRONMENT = 'venv_environment'
VENV_NAME = 'venv_name'
