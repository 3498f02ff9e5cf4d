"""
Run in the container by conda-python-distributed: run a module that starts the ranks of a node (torchrun, accelerate).

Usage: start-ranks.py MODULE ARGUMENT...

Schedulers send USR1 and USR2 for the ranks, but these would end torchrun, which doesn't handle them. The ranks get
them from here, because schedulers may signal only the processes that they have started.
"""
import contextlib
import os
import runpy
import signal
import sys


def children():
    """Yield the numbers of the processes that this one has started."""
    for name in os.listdir('/proc'):
        # a process may end meanwhile
        with contextlib.suppress(OSError, ValueError), open('/proc/%d/stat' % int(name)) as status:
            # the name before it may contain anything
            if int(status.read().rpartition(')')[2].split()[1]) == os.getpid():
                yield int(name)


def pass_on(number, _):
    """Send a signal to the ranks."""
    for process in list(children()):
        with contextlib.suppress(OSError):
            os.kill(process, number)


def main(module, *arguments):
    """Run the module."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, pass_on)
    # as `python -m` does; Python doesn't add this directory if PYTHONSAFEPATH is set
    if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        sys.path[0] = os.getcwd()
    sys.argv = [module] + list(arguments)
    runpy.run_module(module, run_name='__main__', alter_sys=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
