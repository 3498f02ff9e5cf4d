"""
Two ranks exchange a large array with MPICH: mpi_exchange.py NAME OF THE LIBRARY.

It runs in containers, whose Python has no mpi4py. The constants are MPICH's. Each rank prints what it has got, and the
path of the library that it has loaded.
"""

import ctypes
import signal
import sys

mpi = ctypes.CDLL(sys.argv[1])
mpi.MPI_Init(None, None)
world, integer, ignored, size = 0x44000000, 0x4C000405, ctypes.c_void_p(1), 10**6
rank = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
other = 1 - rank.value
sent, got = (ctypes.c_int * size)(*[rank.value] * size), (ctypes.c_int * size)()
mpi.MPI_Sendrecv(sent, size, integer, other, 0, got, size, integer, other, 0, world, ignored)
with open("/proc/self/maps") as maps:
    (path,) = {line.split()[-1] for line in maps if "/libmpi" in line}
print(f"rank {rank.value} has {got[size - 1]} with {path}", flush=True)
# MPICH 4.0 with UCX may wait there for ever on a busy machine
signal.alarm(5)
mpi.MPI_Finalize()
