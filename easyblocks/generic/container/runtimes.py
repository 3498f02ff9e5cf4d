##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The container runtimes.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import shutil

# The programs; the first one that is found is used.
RUNTIMES = ('apptainer', 'singularity')

# SingularityCE reads only the first spelling. Apptainer reads both and warns if their values differ, so both are set to
# the same value.
RUNTIME_PREFIXES = ('SINGULARITY', 'APPTAINER')


def find_runtime():
    """Return the path of the runtime on PATH (str), None if there is none."""
    return next(filter(None, map(shutil.which, RUNTIMES)), None)
