"""Run in the container by `ebsif doctor`: say which MPI library mpi4py opens, as JSON in the last line.

Usage: python -c TEXT [start]: with "start", it starts MPI, too, as one of the ranks of a launcher.
"""

import glob
import json
import os
import re
import signal
import sys

import mpi4py

mpi4py.rc.initialize = "start" in sys.argv


def opened():
    """Return the paths of the MPI libraries in this process."""
    with open("/proc/self/maps") as lines:
        paths = {line.split(None, 5)[5].strip() for line in lines if "/lib" in line}
    return sorted(path for path in paths if re.search(r"/libmpi(ch|_[^/.]*)?\.so[^/]*$", path))


def is_of_host(path):
    """Return whether a path is a library of the host, perhaps bound over one of the image."""
    return any(os.path.samefile(path, one) for one in glob.glob("/host-libraries/libmpi*"))


from mpi4py import MPI  # noqa: E402

paths = opened()
found = {
    "version": " ".join(MPI.Get_library_version().strip("\0 \n").split("\n")[0].split()),
    "opened": paths,
    "of host": bool(paths) and all(map(is_of_host, paths)),
}
if MPI.Is_initialized():
    found.update(rank=MPI.COMM_WORLD.rank, size=MPI.COMM_WORLD.size)
print(json.dumps(found), flush=True)
# MPICH 4.0 with UCX may wait for ever when it ends on a busy machine
signal.alarm(20)
