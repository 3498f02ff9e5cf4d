#!/usr/bin/env python3
"""
Start ipykernel in the container, so that Jupyter can treat it as a kernel that it has started itself.

Usage: start-kernel.py ARGUMENT OF ipykernel...

Between Jupyter and the kernel is the container runtime, which passes signals on, and unmounts the image when the kernel
has ended. If Jupyter has to kill the runtime, the processes that mount the image stay, as for any container. If Jupyter
itself is killed, the kernel stays (docs/jupyter.md).
"""
import contextlib
import ctypes
import importlib.util
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main():
    """Start the kernel."""
    # ipykernel removes the working directory, too; Python doesn't add it if PYTHONSAFEPATH is set
    with contextlib.suppress(ValueError):
        sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    jupyter, runtime = int(os.environ.get('JPY_PARENT_PID') or 0), os.getppid()
    if runtime == 1:
        # the container has process IDs of its own; ipykernel would take the 1 for the end of its parent
        os.environ.pop('JPY_PARENT_PID', None)
    elif runtime != jupyter:
        # in the runtime's process group it would get each interrupt twice, and the second one hits ipykernel itself
        os.setpgid(0, 0)
        # for a kernel that doesn't answer, Jupyter kills the runtime, and starts the next one on the same ports
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != runtime:
            sys.exit(1)
    if not importlib.util.find_spec('ipykernel'):
        sys.exit("%s: this container has no ipykernel. To add it: ebsif extend %s --name jupyter --add ipykernel"
                 % (os.path.basename(sys.argv[0]),
                    os.environ.get('EBSIF_LOADED_MODULE', 'MODULE').replace('/.', '/')))
    runpy.run_module('ipykernel_launcher', run_name='__main__', alter_sys=True)


if __name__ == '__main__':
    main()
