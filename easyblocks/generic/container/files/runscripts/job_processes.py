"""
The processes that a job keeps together on a node, for start-ray.py and start-server.py, which import this.

Servers leave daemons behind, and their processes don't end with the one that has started them. So a process of its own
starts everything here; whatever ends it, none of the others stay.
"""
import contextlib
import ctypes
import glob
import os
import signal
import socket
import subprocess
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

# Variables of this rank, which libraries would take for theirs.
OF_THIS_RANK = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'PET_NNODES',
                'PET_NODE_RANK', 'PET_MASTER_ADDR', 'PET_MASTER_PORT')

# Signals for the program; the second ones ask for its end.
FOR_THE_PROGRAM = (signal.SIGUSR1, signal.SIGUSR2)
TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EndError(Exception):
    """All of the job ends, with this exit status, and with a reason unless the program has ended."""

    def __init__(self, status, reason=''):
        super().__init__(status, reason)
        self.status, self.reason = status, reason

    def report(self):
        """Print why the job ends, if there is a reason."""
        if self.reason:
            say('%s: %s' % (socket.gethostname(), self.reason))


class Service:
    """What runs on a node beside the program, if the program runs there; it gets the signals for the program."""

    def __init__(self):
        self.parent, self.program, self.asked_to_end = os.getppid(), None, False
        for number in FOR_THE_PROGRAM + TO_END:
            signal.signal(number, self.receive_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_PROGRAM + TO_END)

    def run(self):
        """Start all; raise EndError when all is over."""
        raise NotImplementedError

    def finish(self):
        """Clean up when no process is left."""

    def receive_signal(self, number, _):
        """Pass a signal on to the program."""
        self.asked_to_end |= number in TO_END
        if self.program:
            self.program.send_signal(number)
        else:
            self.end_without_program(number)

    def end_without_program(self, number):
        """End after a signal: without a program, there is nothing to save."""
        raise EndError(128 + number, '%s came before the program had started' % signal.Signals(number).name)

    def start_program(self, arguments):
        """Start the program, for these arguments of python."""
        self.program = subprocess.Popen([sys.executable, *arguments], preexec_fn=end_with_parent)

    def check_parent(self):
        """End if the process has been killed that started this one."""
        if os.getppid() != self.parent:
            raise EndError(1, 'the container was killed')


def say(text):
    """Print a message of the run script."""
    print('%s: %s' % (os.path.splitext(os.path.basename(sys.argv[0]))[0], text), file=sys.stderr, flush=True)


def keep(begin):
    """Run the Service that a function returns in a process of its own; return its exit status."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # when the runtime is killed; the service notices that its parent has ended
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signals = FOR_THE_PROGRAM + TO_END
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    process = os.fork()
    if not process:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        run_and_exit(begin)
    for number in signals:
        signal.signal(number, lambda number, _: os.kill(process, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    _, result = os.waitpid(process, 0)
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    end_all()
    return exit_status(os.WEXITSTATUS(result) if os.WIFEXITED(result) else -os.WTERMSIG(result))


def run_and_exit(begin):
    """Run a Service until it ends, and exit."""
    status = 1
    try:
        service = begin()
        try:
            service.run()
        finally:
            end_all()
            service.finish()
    except EndError as end:
        status = end.status
        end.report()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def exit_status(code):
    """Return the exit status that a shell would have for the return code of a Popen."""
    return 128 - code if code < 0 else code


def prctl(option, value):
    """Set an attribute of this process."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def children():
    """Return the numbers of this process's children (list of int)."""
    found = []
    for path in glob.glob('/proc/self/task/*/children'):
        with contextlib.suppress(OSError), open(path) as numbers:
            found += map(int, numbers.read().split())
    return found


def end_all():
    """Kill all processes that come from this one: what a process leaves behind becomes a child of this one."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for process in children():
                os.kill(process, signal.SIGKILL)
            os.waitpid(-1, 0)


def ignore_signals_for_the_program():
    """Let a server survive signals that schedulers send to all processes, but that are for the program."""
    for number in FOR_THE_PROGRAM:
        signal.signal(number, signal.SIG_IGN)


def end_with_parent():
    """Let the program end if the process is killed that waits for it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(address, number):
    """Return ports of this node on which nothing listens (list of int)."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind((address, 0))
        return [one.getsockname()[1] for one in sockets]
