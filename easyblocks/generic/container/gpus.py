##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Kinds of GPU: the rows of a file that scripts read as well.
"""
import os
from collections import namedtuple

# Next to the run scripts of an installation, so that it is visible in the container.
GPUS_FILE = os.path.join('runscripts', 'gpus.conf')

GpuKind = namedtuple('GpuKind', 'option device mpi_library')


def read_gpu_kinds():
    """Return the kinds of GPU by name (dict of GpuKind)."""
    with open(os.path.join(os.path.dirname(__file__), 'files', GPUS_FILE)) as text:
        rows = [line.split() for line in text if not line.startswith('#')]
    return {row[0]: GpuKind(*row[1:4]) for row in rows}


GPU_KINDS = read_gpu_kinds()
