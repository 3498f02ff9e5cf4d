#!/usr/bin/env python3
"""
Start ipykernel in the container, so that Jupyter can treat it as a kernel that it has started itself.

Usage: start-kernel.py ARGUMENT OF ipykernel...

Between Jupyter and the kernel is the container runtime, which passes signals on, and unmounts the image when the kernel
has ended. If Jupyter has to kill the runtime, the processes that mount the image stay, as for any container.
"""
import contextlib
import ctypes
import importlib.util
import os
import runpy
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1


def is_running(pid):
    """Return whether a process runs; the number of one that has ended stays until its parent asks for the status."""
    try:
        with open('/proc/%d/stat' % pid) as status:
            # the name before the state may contain anything
            return status.read().rpartition(')')[2].split()[0] not in 'ZX'
    except OSError:
        return False


def end_with(jupyter):
    """End the kernel when Jupyter has ended, which ipykernel only notices of its parent: here, that is the runtime."""
    while is_running(jupyter):
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


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
        # Jupyter starts the next kernel on the same ports when it has killed the runtime
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != runtime:
            sys.exit(1)
        if is_running(jupyter):
            threading.Thread(target=end_with, args=[jupyter], daemon=True).start()
    if not importlib.util.find_spec('ipykernel'):
        sys.exit("%s: this container has no ipykernel. To add it: ebsif extend %s --name jupyter --add ipykernel "
                 "--install" % (os.path.basename(sys.argv[0]),
                                os.environ.get('EBSIF_LOADED_MODULE', 'MODULE').replace('/.', '/')))
    runpy.run_module('ipykernel_launcher', run_name='__main__', alter_sys=True)


if __name__ == '__main__':
    main()
