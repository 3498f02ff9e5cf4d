##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
How Python is activated in an image (parameter 'init'); this determines what the module has to add.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
INIT_IMAGE = 'image'
INIT_CONDA_INJECTED = 'conda-injected'
INIT_CONDA_MANUAL = 'conda-manual'
INIT_VENV_IN_IMAGE = 'venv-in-image'
INIT_NONE = 'none'
INIT_KINDS = (INIT_IMAGE, INIT_CONDA_INJECTED, INIT_CONDA_MANUAL, INIT_VENV_IN_IMAGE, INIT_NONE)
INIT_CONDA = (INIT_CONDA_INJECTED, INIT_CONDA_MANUAL)

# Prefix of the Conda installation in an image, unless the easyconfig names another.
CONDA_ROOT = '/opt/miniconda3'
