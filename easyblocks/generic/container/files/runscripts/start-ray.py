"""
Start Ray on the nodes of a job, and run a program with it; `ebsif job --launcher ray` writes scripts that do so.

Usage: conda-python-distributed start-ray.py --cpus N --gpus N [--without-tokens] -- ARGUMENT OF python...

Started once on each node. All have RAY_AUTH_TOKEN, the secret of this job. The first node listens at MASTER_ADDR and
MASTER_PORT; the others connect, and both sides prove that they know the secret. Then the first one starts Ray's head,
the others join it, and the program runs on the first one, with RAY_ADDRESS. Its exit status counts. When it ends, or a
node or a process of Ray is lost, all of this job ends on all nodes, and nothing of another job.

Your setting: EBSIF_RANK_LOGS=DIRECTORY keeps Ray's logs in this directory.
"""
import argparse
import contextlib
import ctypes
import glob
import hashlib
import hmac
import importlib.util
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

# The first release of Ray that has tokens. With an earlier one, whoever reaches its ports runs code in the job.
TOKENS = (2, 52)

# Seconds that the nodes have until all have started Ray, and for what should only take a moment.
START_LIMIT, MOMENT = 600, 20

# Below its directory, Ray makes Unix sockets with names of about 70 characters; they may have 107 altogether.
LONGEST_DIRECTORY = 36

# Processes of Ray that it can't do without.
ESSENTIAL = ('gcs_server', 'raylet')

# Variables of this rank, which libraries would take for theirs, and those of Ray, which this script sets.
OF_THIS_RANK = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'PET_NNODES',
                'PET_NODE_RANK', 'PET_MASTER_ADDR', 'PET_MASTER_PORT', 'RAY_ADDRESS', 'RAY_AUTH_TOKEN')

# Signals for the program; the second ones ask for its end.
FOR_THE_PROGRAM = (signal.SIGUSR1, signal.SIGUSR2)
TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EndError(Exception):
    """All of the job ends, with this exit status, and with a reason unless the program has ended."""

    def __init__(self, status, reason=''):
        super().__init__(status, reason)
        self.status, self.reason = status, reason


# --- processes

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


def keep(run):
    """
    Call a function in a process of its own, and return its exit status; whatever ends it, none of its processes stay.

    Those of Ray are daemons, which don't end with the process that has started them.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # when the runtime is killed; `run` notices that its parent has ended
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signals = FOR_THE_PROGRAM + TO_END
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    process = os.fork()
    if not process:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        run()
    for number in signals:
        signal.signal(number, lambda number, _: os.kill(process, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    _, result = os.waitpid(process, 0)
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    end_all()
    return os.WEXITSTATUS(result) if os.WIFEXITED(result) else 128 + os.WTERMSIG(result)


def prepare_daemons():
    """Let Ray survive signals that schedulers send to all processes, but that are for the program."""
    for number in FOR_THE_PROGRAM:
        signal.signal(number, signal.SIG_IGN)


def end_with_parent():
    """Let the program end if the process is killed that waits for it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def describe(process):
    """Return name and state of a process; the state Z means that it has ended."""
    try:
        with open('/proc/%d/stat' % process) as file:
            # the name may contain anything
            name, _, rest = file.read().partition('(')[2].rpartition(')')
            return name, rest.split()[0]
    except OSError:
        return '', 'Z'


# --- what the nodes say to each other

def receive(connection):
    """Return the next line of another node (bytes), b'' at its end."""
    line, end = b'', time.monotonic() + MOMENT
    while not line.endswith(b'\n'):
        one = connection.recv(1)
        if not one or len(line) > 1000 or time.monotonic() > end:
            return b''
        line += one
    return line[:-1]


def send(connection, line):
    """Send a line to another node (bytes)."""
    connection.sendall(line + b'\n')


def introduce(connection, secret, own, other):
    """Raise OSError unless both sides prove that they know the secret; `own` and `other` are what they are (bytes)."""
    def proof(who, challenge):
        return hmac.new(secret, who + b' ' + challenge, hashlib.sha256).hexdigest().encode()

    connection.settimeout(MOMENT)
    challenge = os.urandom(16).hex().encode()
    send(connection, challenge)
    send(connection, proof(own, receive(connection)))
    if not hmac.compare_digest(receive(connection), proof(other, challenge)):
        raise ConnectionError("another program, which doesn't know the secret of this job")


# --- the nodes

class Node:
    """What is the same on all nodes: Ray's processes on this node, the program, signals."""

    def __init__(self, options, secret, folder):
        self.options, self.secret, self.folder = options, secret, folder
        self.rank, self.size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
        self.host, self.port = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
        self.parent = os.getppid()
        self.connections, self.essential, self.program, self.asked_to_end = [], {}, None, False
        # where Ray's head is; the other nodes are told
        self.address = ''
        for number in FOR_THE_PROGRAM + TO_END:
            signal.signal(number, self.receive_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_PROGRAM + TO_END)

    def receive_signal(self, number, _):
        """Pass a signal on to the program; without one, there is nothing to save. Other nodes end with the first."""
        self.asked_to_end |= number in TO_END
        if self.program:
            self.program.send_signal(number)
        elif self.rank == 0 or not self.connections:
            raise EndError(128 + number, '%s came before the program had started' % signal.Signals(number).name)

    def set_environment(self):
        """Set the variables of Ray and of the program."""
        for name in OF_THIS_RANK:
            os.environ.pop(name, None)
        # compute nodes have no network, and Ray would wait for it
        os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
        if 'ROCR_VISIBLE_DEVICES' in os.environ:
            # Ray refuses the other name
            os.environ.setdefault('HIP_VISIBLE_DEVICES', os.environ['ROCR_VISIBLE_DEVICES'])
            del os.environ['ROCR_VISIBLE_DEVICES']
        if has_tokens():
            path = os.path.join(self.folder, 'token-%d' % self.rank)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'wb') as file:
                file.write(self.secret)
            os.environ.update(RAY_AUTH_MODE='token', RAY_AUTH_TOKEN_PATH=path)

    def start_ray(self, address, *options):
        """Start Ray on this node, which has this address; then it has joined the others."""
        self.set_environment()
        log = os.path.join(self.folder, 'start-%d.log' % self.rank)
        # random ports, because other jobs on this node have others
        words = [sys.executable, '-m', 'ray.scripts.scripts', 'start', *options, '--node-ip-address=%s' % address,
                 '--num-cpus=%d' % self.options.cpus, '--num-gpus=%d' % self.options.gpus,
                 '--temp-dir=%s' % os.path.join(self.folder, 'ray'),
                 '--min-worker-port=0', '--max-worker-port=0', '--dashboard-agent-listen-port=0']
        with open(log, 'wb') as output:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       preexec_fn=prepare_daemons)
        while process.poll() is None:
            self.step()
        if process.returncode:
            with open(log, errors='replace') as output:
                sys.stderr.write(output.read()[-5000:])
            raise EndError(1, 'Ray does not start')
        found = {process: describe(process)[0] for process in children()}
        self.essential = {process: name for process, name in found.items() if name in ESSENTIAL}

    def step(self):
        """Wait for a moment; listen to the other nodes, and end if something is lost."""
        for connection in select.select(self.connections, [], [], 0.1)[0]:
            self.read(connection)
        self.check_parent()
        for process, name in self.essential.items():
            # if Ray was asked to end as well, the program may still save its state
            if describe(process)[1] == 'Z' and not self.asked_to_end:
                raise EndError(1, 'the process %s of Ray has ended' % name)

    def until(self, condition, problem):
        """Wait until a condition is true."""
        end = time.monotonic() + START_LIMIT
        while not condition():
            if time.monotonic() > end:
                raise EndError(1, '%s within %d seconds' % (problem(), START_LIMIT))
            self.step()

    def check_parent(self):
        """End if the process has been killed that started this one."""
        if os.getppid() != self.parent:
            raise EndError(1, 'the container was killed')

    def read(self, connection):
        """Do what another node says."""
        raise NotImplementedError

    def keep_logs(self):
        """Copy Ray's logs to where the ranks of other jobs write theirs."""
        logs = os.path.join(self.folder, 'ray/session_latest/logs')
        if os.environ.get('EBSIF_RANK_LOGS') and os.path.isdir(logs):
            with contextlib.suppress(OSError):
                shutil.copytree(logs, os.path.join(os.environ['EBSIF_RANK_LOGS'], 'ray-%d' % self.rank))


class FirstNode(Node):
    """The first node has the head of Ray, and runs the program."""

    def run(self):
        """Start the head, then the program; raise EndError when all is over."""
        self.names, self.joined = {}, set()
        with self.listen() as self.listener:
            self.connections.append(self.listener)
            self.until(lambda: len(self.names) == self.size - 1,
                       lambda: 'only %d of %d nodes have come' % (1 + len(self.names), self.size))
            self.connections.remove(self.listener)
        # by which the others reach this node
        own = self.connections[0].getsockname()[0] if self.connections else socket.gethostbyname(self.host)
        port = free_port(own)
        options = ['--head', '--port=%d' % port, '--include-dashboard=false']
        if importlib.util.find_spec('grpc'):
            # a server for Ray Client would have a port that another job may have; without grpc, Ray has none
            options.append('--ray-client-server-port=0')
        self.start_ray(own, *options)
        self.address = os.environ['RAY_ADDRESS'] = '%s:%d' % (own, port)
        for connection in self.connections:
            send(connection, self.address.encode())
        self.until(lambda: len(self.joined) == self.size - 1,
                   lambda: 'only %d of %d nodes have joined Ray' % (1 + len(self.joined), self.size))
        self.program = subprocess.Popen([sys.executable, *self.options.arguments], preexec_fn=end_with_parent)
        while self.program.poll() is None:
            self.step()
        self.let_others_end()
        status = self.program.returncode
        raise EndError(128 - status if status < 0 else status)

    def listen(self):
        """Return the socket to which the other nodes connect."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(('', self.port))
        except OSError as error:
            raise EndError(1, 'port %d: %s (export MASTER_PORT with another one)'
                           % (self.port, error.strerror)) from None
        listener.listen(1024)
        return listener

    def read(self, connection):
        """Let another node in, or note that it has joined; end if it is lost."""
        if connection is self.listener:
            connection, (name, *_) = self.listener.accept()
            try:
                introduce(connection, self.secret, b'first', b'other')
            except OSError as error:
                connection.close()
                print('start-ray: refused a connection of %s: %s' % (name, error), file=sys.stderr)
            else:
                self.connections.append(connection)
                self.names[connection] = name
            return
        line = b''
        with contextlib.suppress(OSError):
            line = receive(connection)
        if line:
            self.joined.add(connection)
        elif self.asked_to_end:
            self.connections.remove(connection)
        else:
            raise EndError(1, 'the node %s is lost' % self.names[connection])

    def let_others_end(self):
        """Let the other nodes end successfully, before the head of Ray ends."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                send(connection, b'end')
        for connection in self.connections:
            with contextlib.suppress(OSError):
                receive(connection)


class OtherNode(Node):
    """Another node joins the head, and ends with the first one."""

    def run(self):
        """Join the head of Ray; raise EndError when all is over."""
        connection = self.connect()
        self.connections.append(connection)
        self.until(lambda: self.address, lambda: 'the head of Ray has not started on the first node')
        self.start_ray(connection.getsockname()[0], '--address=%s' % self.address)
        send(connection, b'joined')
        while True:
            self.step()

    def connect(self):
        """Return a connection to the first node, which may not listen yet."""
        end = time.monotonic() + START_LIMIT
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), MOMENT)
                introduce(connection, self.secret, b'other', b'first')
                return connection
            except OSError as error:
                if time.monotonic() > end:
                    raise EndError(1, "can't reach the first node at %s:%d: %s"
                                   % (self.host, self.port, error)) from None
                self.check_parent()
                time.sleep(0.2)

    def read(self, connection):
        """Note where the head is, or end as the first node says."""
        line = b''
        with contextlib.suppress(OSError):
            line = receive(connection)
        if line in (b'', b'end'):
            raise EndError(0) if line else EndError(1, 'the first node is lost')
        self.address = line.decode()


def free_port(address):
    """Return a port of this node on which nothing listens."""
    with socket.socket() as one:
        one.bind((address, 0))
        return one.getsockname()[1]


# --- may Ray start here?

def version():
    """Return the version of Ray, or '' if the container has none."""
    try:
        from importlib.metadata import version as version_of  # novermin: runs in the image, not with EasyBuild
        return version_of('ray')
    except ImportError:
        # Python before 3.8, or no such package
        return '0' if importlib.util.find_spec('ray') else ''


def has_tokens():
    """Return whether this Ray lets in only who has a token."""
    return tuple(int(number) for number in (version() + '.0').split('.')[:2]) >= TOKENS


def check(options, secret):
    """Raise EndError if Ray can't start, or if everybody could use it."""
    if not secret:
        raise EndError(1, "RAY_AUTH_TOKEN, the secret of this job, doesn't reach this node")
    if not version():
        raise EndError(1, "this container has no Ray. To add it: ebsif extend %s --name ray --add ray"
                       % os.environ.get('EBSIF_LOADED_MODULE', 'MODULE').replace('/.', '/'))
    if not has_tokens() and not options.without_tokens:
        raise EndError(1, 'Ray %s has no tokens (%d.%d has), so others who reach its ports could run code in this job. '
                       'Add a newer Ray with ebsif extend, or take whole nodes (--scheduler=--exclusive with Slurm); '
                       'ebsif job --insecure starts it anyway' % (version(), *TOKENS))


def make_directory(secret):
    """
    Make Ray's directory, which only this account can read; return it, and a function that removes it if it is ours.

    Its name follows from the secret: nobody else knows it, and older releases of Ray need the same one on all nodes.
    """
    parent = os.environ.get('EBSIF_NODE_LOCAL', '')
    name = 'ray.' + hmac.new(secret, b'directory', hashlib.sha256).hexdigest()[:10]
    if not os.path.isdir(parent) or len(parent) + 1 + len(name) > LONGEST_DIRECTORY:
        parent = '/tmp'
    folder, is_own = os.path.join(parent, name), True
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        # of another process of this job, where nodes share the directory
        is_own, found = False, os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise EndError(1, '%s belongs to others' % folder) from None

    def remove():
        if is_own:
            shutil.rmtree(folder, ignore_errors=True)

    return folder, remove


def run_node(options, secret, folder, remove):
    """Run what belongs to this node, and exit."""
    status = 1
    try:
        node = (OtherNode if int(os.environ['RANK']) else FirstNode)(options, secret, folder)
        try:
            node.run()
        finally:
            end_all()
            node.keep_logs()
            remove()
    except EndError as end:
        status = end.status
        report(end)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def report(end):
    """Print why the job ends, if there is a reason."""
    if end.reason:
        print('start-ray: %s: %s' % (socket.gethostname(), end.reason), file=sys.stderr)


def main():
    """Start Ray and the program; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--cpus', type=int, required=True)
    parser.add_argument('--gpus', type=int, required=True)
    parser.add_argument('--without-tokens', action='store_true')
    parser.add_argument('arguments', nargs='+')
    options = parser.parse_args()
    secret = os.environ.get('RAY_AUTH_TOKEN', '').encode()
    try:
        check(options, secret)
        folder, remove = make_directory(secret)
        status = keep(lambda: run_node(options, secret, folder, remove))
        # if that process was killed
        remove()
        return status
    except EndError as end:
        report(end)
        return end.status


if __name__ == '__main__':
    sys.exit(main())
