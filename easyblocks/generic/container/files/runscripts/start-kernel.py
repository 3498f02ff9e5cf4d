#!/usr/bin/env python3
"""
Start ipykernel in the container, so that Jupyter can treat it as a kernel that it has started itself.

Usage: start-kernel.py ARGUMENT OF ipykernel...

Between Jupyter and the kernel is the container runtime. It passes signals on, so a kernel in the same process group
would get each interrupt twice, and the second one hits ipykernel itself. ipykernel only notices the end of its parent,
which is the runtime. And a runtime that is killed leaves the processes behind that mount the image.
"""
import contextlib
import ctypes
import importlib.util
import os
import runpy
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
# seconds between looks at the other processes, and before a kernel is killed that doesn't end
INTERVAL, PATIENCE = 0.5, 5


def process(pid):
    """Return parent (int) and start time (str) of a process; (0, None) if it has ended."""
    try:
        with open('/proc/%d/stat' % pid) as status:
            # the name before it may contain anything
            fields = status.read().rpartition(')')[2].split()
    except (OSError, ValueError):
        return 0, None
    return (0, None) if fields[0] in 'ZX' else (int(fields[1]), fields[19])


def is_ancestor(pid):
    """Return whether a process is an ancestor of this one."""
    current = os.getppid()
    while current > 1 and current != pid:
        current = process(current)[0]
    return current == pid > 1


def send(number, pid):
    """Send a signal to a process, if it still exists."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


class Guard:
    """
    A second process, which ends the kernel with Jupyter or the runtime, even if a cell never returns to Python.

    Parameters
    ----------
    jupyter : int
        Number of Jupyter's process; 0 if it isn't known.
    """

    def __init__(self, jupyter):
        """Start the process."""
        self.kernel, self.runtime, self.jupyter = os.getpid(), os.getppid(), jupyter
        self.started = {pid: process(pid)[1] for pid in (self.kernel, self.runtime, self.jupyter) if pid}
        # closes when the kernel ends
        ends, kept = os.pipe()
        child = os.fork()
        if child:
            os.close(ends)
            os.waitpid(child, 0)
            return
        try:
            os.close(kept)
            os.setsid()
            # not the kernel's child, which os.wait() in a cell would wait for
            if not os.fork():
                self.prepare()
                self.watch(ends)
        finally:
            os._exit(0)

    @staticmethod
    def prepare():
        """Ignore interrupts, and let go of the files of Jupyter, which waits for their ends."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)

    def has_ended(self, pid):
        """Return whether one of the processes has ended."""
        return pid in self.started and process(pid)[1] != self.started[pid]

    def watch(self, ends):
        """Wait until one of them ends, then end what must not stay."""
        others = {int(name): process(int(name)) for name in os.listdir('/proc') if name.isdigit()}
        helpers = {pid: started for pid, (parent, started) in others.items()
                   if parent == self.runtime and pid != self.kernel}
        while not any(map(self.has_ended, self.started)):
            select.select([ends], [], [], INTERVAL)
        if self.has_ended(self.jupyter):
            # the runtime cleans up
            send(signal.SIGTERM, self.kernel)
            until = time.time() + PATIENCE
            while time.time() < until and not self.has_ended(self.kernel):
                select.select([ends], [], [], INTERVAL)
        if not self.has_ended(self.kernel):
            send(signal.SIGKILL, self.kernel)
        if self.has_ended(self.runtime):
            for pid, started in helpers.items():
                # another process may have its number by now
                if process(pid)[1] == started:
                    send(signal.SIGTERM, pid)


def end_with_runtime():
    """End this process at once if the runtime is killed: Jupyter starts the next kernel on the same ports."""
    runtime = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != runtime:
        sys.exit(1)


def main():
    """Start the kernel."""
    # ipykernel removes the working directory, too; Python doesn't add it if PYTHONSAFEPATH is set
    with contextlib.suppress(ValueError):
        sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    jupyter = int(os.environ.get('JPY_PARENT_PID') or 0)
    if os.getppid() == 1:
        # of another process namespace; ipykernel would take it for the end of its parent
        os.environ.pop('JPY_PARENT_PID', None)
    elif os.getppid() != jupyter:
        os.setpgid(0, 0)
        end_with_runtime()
        Guard(jupyter if is_ancestor(jupyter) else 0)
    if not importlib.util.find_spec('ipykernel'):
        sys.exit("%s: this container has no ipykernel. To add it: ebsif extend %s --add ipykernel --name jupyter "
                 "--install" % (os.path.basename(sys.argv[0]),
                                os.environ.get('EBSIF_LOADED_MODULE', 'MODULE').replace('/.', '/')))
    runpy.run_module('ipykernel_launcher', run_name='__main__', alter_sys=True)


if __name__ == '__main__':
    main()
