"""
Start Ray on the nodes of a job, and run a program with it; `ebsif job --launcher ray` writes scripts that do so.

Usage: conda-python-distributed start-ray.py --cpus N --gpus N --tokens-since VERSION [--without-tokens]
           -- ARGUMENT OF python...

Started once on each node. All have RAY_AUTH_TOKEN, the secret of this job. The first node listens at MASTER_ADDR and
MASTER_PORT; the others connect, and both sides prove that they know the secret. Then the first one starts Ray's head,
the others join it, and the program runs on the first one, with RAY_ADDRESS. Its exit status counts. When it ends, or a
node or a process of Ray is lost, all of this job ends on all nodes, and nothing of another job.

Your setting: EBSIF_RANK_LOGS=DIRECTORY keeps Ray's logs in this directory.
"""
import argparse
import contextlib
import hashlib
import hmac
import importlib.util
import os
import re
import select
import shutil
import socket
import stat
import subprocess
import sys
import time

# Python doesn't look there if PYTHONSAFEPATH is set, and nothing is written there
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from job_processes import (OF_THIS_RANK, EndError, Service, children, exit_status, free_ports,  # noqa: E402
                           ignore_signals_for_the_program, keep, say)

# Seconds that the nodes have until all have started Ray, and for what should only take a moment.
START_LIMIT, MOMENT = 600, 20

# Below its directory, Ray makes Unix sockets with names of about 70 characters; they may have 107 altogether.
LONGEST_DIRECTORY = 36

# Processes of Ray that it can't do without.
ESSENTIAL = ('gcs_server', 'raylet')


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


class Introduction:
    """
    A connection whose other side isn't known yet: each side proves that it knows the secret.

    `own` and `other` are what the sides are (bytes). Nothing here waits: somebody else may connect and say nothing.
    """

    def __init__(self, connection, secret, own, other):
        self.connection, self.secret, self.own, self.other = connection, secret, own, other
        self.challenge, self.heard, self.end = os.urandom(16).hex().encode(), b'', time.monotonic() + MOMENT
        connection.settimeout(MOMENT)
        send(connection, self.challenge)

    def proof(self, who, challenge):
        """Return what proves that a side knows the secret."""
        return hmac.new(self.secret, who + b' ' + challenge, hashlib.sha256).hexdigest().encode()

    def read(self):
        """Read what has come; return whether the other side has proved itself, and raise OSError if it can't."""
        more = self.connection.recv(1000)
        before, self.heard = self.heard.count(b'\n'), self.heard + more
        lines = self.heard.split(b'\n')
        if not before and len(lines) > 1:
            send(self.connection, self.proof(self.own, lines[0]))
        if len(lines) < 3 and more and len(self.heard) < 1000:
            return False
        if len(lines) != 3 or not hmac.compare_digest(lines[1], self.proof(self.other, self.challenge)):
            raise ConnectionError("another program, which doesn't know the secret of this job")
        return True


def introduce(connection, secret):
    """Introduce another node to the first one; raise OSError if that isn't it."""
    introduction = Introduction(connection, secret, b'other', b'first')
    while not introduction.read():
        if time.monotonic() > introduction.end:
            raise ConnectionError('no answer')


# --- the nodes

class Node(Service):
    """What is the same on all nodes: Ray's processes on this node, the program, signals."""

    def __init__(self, options, secret, folder, remove):
        self.options, self.secret, self.folder, self.remove = options, secret, folder, remove
        self.rank, self.size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
        self.host, self.port = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
        self.connections, self.essential = [], {}
        # where Ray's head is; the other nodes are told
        self.address = ''
        super().__init__()

    def end_without_program(self, number):
        """End after a signal, but other nodes end with the first."""
        if self.rank == 0 or not self.connections:
            super().end_without_program(number)

    def set_environment(self):
        """Set the variables of Ray and of the program."""
        for name in (*OF_THIS_RANK, 'RAY_ADDRESS', 'RAY_AUTH_TOKEN'):
            os.environ.pop(name, None)
        # compute nodes have no network, and Ray would wait for it
        os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
        if 'ROCR_VISIBLE_DEVICES' in os.environ:
            # Ray refuses the other name
            os.environ.setdefault('HIP_VISIBLE_DEVICES', os.environ['ROCR_VISIBLE_DEVICES'])
            del os.environ['ROCR_VISIBLE_DEVICES']
        if has_tokens(self.options.tokens_since):
            path = os.path.join(self.folder, 'token-%d' % self.rank)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'wb') as file:
                file.write(self.secret)
            os.environ.update(RAY_AUTH_MODE='token', RAY_AUTH_TOKEN_PATH=path)

    def start_ray(self, address, *options):
        """Start Ray on this node, which has this address; then it has joined the others."""
        self.set_environment()
        # vLLM on several nodes looks for the address by which Ray knows each
        os.environ['VLLM_HOST_IP'] = address
        log = os.path.join(self.folder, 'start-%d.log' % self.rank)
        # random ports, because other jobs on this node have others
        words = [sys.executable, '-m', 'ray.scripts.scripts', 'start', *options, '--node-ip-address=%s' % address,
                 '--num-cpus=%d' % self.options.cpus, '--num-gpus=%d' % self.options.gpus,
                 '--temp-dir=%s' % os.path.join(self.folder, 'ray'),
                 '--min-worker-port=0', '--max-worker-port=0', '--dashboard-agent-listen-port=0']
        with open(log, 'wb') as output:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       preexec_fn=ignore_signals_for_the_program)
        while process.poll() is None:
            self.step()
            self.while_ray_starts()
        if process.returncode:
            with open(log, errors='replace') as output:
                sys.stderr.write(output.read()[-5000:])
            raise EndError(1, 'Ray does not start')
        found = {process: describe(process)[0] for process in children()}
        self.essential = {process: name for process, name in found.items() if name in ESSENTIAL}

    def while_ray_starts(self):
        """Do what needn't wait until Ray has started on this node."""

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

    def read(self, connection):
        """Do what another node says."""
        raise NotImplementedError

    def finish(self):
        """Copy Ray's logs to where the ranks of other jobs write theirs, and remove its directory."""
        logs = os.path.join(self.folder, 'ray/session_latest/logs')
        if os.environ.get('EBSIF_RANK_LOGS') and os.path.isdir(logs):
            with contextlib.suppress(OSError):
                shutil.copytree(logs, os.path.join(os.environ['EBSIF_RANK_LOGS'], 'ray-%d' % self.rank))
        self.remove()


class FirstNode(Node):
    """The first node has the head of Ray, and runs the program."""

    def run(self):
        """Start the head, then the program; raise EndError when all is over."""
        self.names, self.joined, self.introductions = {}, set(), {}
        with self.listen() as self.listener:
            self.connections.append(self.listener)
            self.until(lambda: len(self.names) == self.size - 1,
                       lambda: 'only %d of %d nodes have come' % (1 + len(self.names), self.size))
        for connection in (self.listener, *self.introductions):
            connection.close()
            self.connections.remove(connection)
        # by which the others reach this node
        own = self.connections[0].getsockname()[0] if self.connections else socket.gethostbyname(self.host)
        port, client_port = free_ports(own, 2)
        options = ['--head', '--port=%d' % port, '--include-dashboard=false']
        if importlib.util.find_spec('grpc'):
            # then Ray starts a server for Ray Client, whose default port another job may have
            options.append('--ray-client-server-port=%d' % client_port)
        self.head = own, port
        self.start_ray(own, *options)
        self.tell_others()
        os.environ['RAY_ADDRESS'] = self.address
        self.until(lambda: len(self.joined) == self.size - 1,
                   lambda: 'only %d of %d nodes have joined Ray' % (1 + len(self.joined), self.size))
        self.start_program(self.options.arguments)
        while self.program.poll() is None:
            self.step()
        self.let_others_end()
        raise EndError(exit_status(self.program.returncode))

    def while_ray_starts(self):
        """Let the others start as soon as Ray's head answers: its start isn't over by then."""
        if not self.address:
            with contextlib.suppress(OSError), socket.create_connection(self.head, MOMENT):
                self.tell_others()

    def tell_others(self):
        """Tell the other nodes, once, where the head of Ray is."""
        if not self.address:
            self.address = '%s:%d' % self.head
            for connection in self.connections:
                send(connection, self.address.encode())

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
            with contextlib.suppress(OSError):
                self.introductions[connection] = name, Introduction(connection, self.secret, b'first', b'other')
                self.connections.append(connection)
            return
        if connection in self.introductions:
            self.listen_to(connection)
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

    def listen_to(self, connection):
        """Let another node in when it has proved itself, and nobody else."""
        name, introduction = self.introductions[connection]
        try:
            if introduction.read():
                del self.introductions[connection]
                self.names[connection] = name
        except OSError as error:
            say('refused a connection of %s: %s' % (name, error))
            del self.introductions[connection]
            self.connections.remove(connection)
            connection.close()

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
                introduce(connection, self.secret)
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


# --- may Ray start here?

def version():
    """Return the version of Ray, or '' if the container has none."""
    try:
        from importlib.metadata import version as version_of  # novermin: runs in the image, not with EasyBuild
        return version_of('ray')
    except ImportError:
        # Python before 3.8, or no such package
        return '0' if importlib.util.find_spec('ray') else ''


def has_tokens(since):
    """Return whether this Ray lets in only who has a token, which Ray can do since a version (a string)."""
    # 2.52rc1 counts as 2.52
    found, needed = [[int(re.match('[0-9]*', part).group() or 0) for part in (one + '.0').split('.')[:2]]
                     for one in (version(), since)]
    return found >= needed


def check(options, secret):
    """Raise EndError if Ray can't start, or if everybody could use it."""
    if not secret:
        raise EndError(1, "RAY_AUTH_TOKEN, the secret of this job, doesn't reach this node")
    if not version():
        raise EndError(1, "this container has no Ray. To add it: ebsif extend %s --name ray --add ray"
                       % os.environ.get('EBSIF_LOADED_MODULE', 'MODULE').replace('/.', '/'))
    if not has_tokens(options.tokens_since) and not options.without_tokens:
        raise EndError(1, 'Ray %s has no tokens (%s has), so others who reach its ports could run code in this job. '
                       'Add a newer Ray with ebsif extend, or take whole nodes (--scheduler=--exclusive with Slurm); '
                       'ebsif job --insecure starts it anyway' % (version(), options.tokens_since))


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


def main():
    """Start Ray and the program; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--cpus', type=int, required=True)
    parser.add_argument('--gpus', type=int, required=True)
    parser.add_argument('--tokens-since', required=True)
    parser.add_argument('--without-tokens', action='store_true')
    parser.add_argument('arguments', nargs='+')
    options = parser.parse_args()
    secret = os.environ.get('RAY_AUTH_TOKEN', '').encode()
    try:
        check(options, secret)
        folder, remove = make_directory(secret)
        kind = OtherNode if int(os.environ['RANK']) else FirstNode
        status = keep(lambda: kind(options, secret, folder, remove))
        # if that process was killed
        remove()
        return status
    except EndError as end:
        end.report()
        return end.status


if __name__ == '__main__':
    sys.exit(main())
