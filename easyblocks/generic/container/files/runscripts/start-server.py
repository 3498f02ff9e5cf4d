"""
Start a server, such as vLLM, and a program that uses it; `ebsif job --server` writes scripts that do so.

Usage: conda-python-distributed start-server.py --ready URL [--within SECONDS] [--key-variable NAME]
           -- SERVER ARGUMENT... [-- ARGUMENT OF python...]

OPENAI_API_KEY is the secret of this job. In the command of the server, {socket} becomes a socket file in a directory
that only this account can read, and {port} a free port of the loop-back address. The program starts when URL answers
with success; a URL may be only its path. OPENAI_BASE_URL, which OpenAI's clients read, is a port of the loop-back
address: a relay listens there, and sends to the server what comes with the key. When the program ends, so does the
server, and the status is the program's; when the server ends, so does the program, and the status is the server's.

Without a program, the server stays, and USR1 ends it successfully: what saves no state can be started again.

EBSIF_SERVER_LOG has the output of the server. EBSIF_JOB is the ID of the job as `ebsif connect` asks for it; by that,
it finds the directory with the key and a second socket of the relay.
"""
import argparse
import asyncio
import collections
import contextlib
import hmac
import http.client
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse

# Python doesn't look there if PYTHONSAFEPATH is set, and nothing is written there
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from job_processes import (OF_THIS_RANK, TO_END, EndError, Service, exit_status, free_ports,  # noqa: E402
                           ignore_signals_for_the_program, keep, say)

HERE = '127.0.0.1'

# Seconds that an answer may take; that a server has to end; and in which a failure of the program may come from a
# server that is just ending.
MOMENT, END_LIMIT, SAME_TIME = 20, 10, 1

# In /proc/net/tcp, the state of a socket that waits for connections.
LISTENS = '0A'

# Connections that have not shown the key yet, and seconds that they have: everybody on the node can make some.
MOST_UNKNOWN, HEAD_LIMIT = 64, 5

# The longest head of a request, and the lines of the server's output that are shown when it fails.
LONGEST_HEAD, LAST_LINES = 65536, 20

# as OpenAI's server says it
PROBLEM = b'{"error": {"message": "the key of this server is missing or wrong", "code": "invalid_api_key"}}'
REFUSED = (b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Type: application/json\r\n'
           b'Connection: close\r\nContent-Length: %d\r\n\r\n%s' % (len(PROBLEM), PROBLEM))
SWITCHED = b'HTTP/1.1 101'
UNREACHABLE = b'HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'


class StrangerError(ConnectionError):
    """Another account listens where the server should, or another machine: it mustn't get the key."""


class Address:
    """Where the server listens: a socket file, or host and port."""

    def __init__(self, path='', host=HERE, port=0):
        self.path, self.host, self.port = path, host, port

    def connect(self):
        """Return a socket that is connected to the server."""
        if self.path:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(MOMENT)
            connection.connect(self.path)
            return connection
        connection = socket.create_connection((self.host, self.port), MOMENT)
        check_owner(connection)
        return connection

    async def open(self):
        """Return a reader and a writer that are connected to the server."""
        if self.path:
            return await asyncio.open_unix_connection(self.path)
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            check_owner(writer.get_extra_info('socket'))
        except OSError:
            writer.close()
            raise
        return reader, writer

    def answers(self, path, key):
        """Return whether a path answers with success; raise StrangerError if it isn't the server that would."""
        connection = http.client.HTTPConnection(self.host, self.port or None, timeout=MOMENT)
        try:
            connection.sock = self.connect()
            connection.request('GET', path, headers={'Authorization': 'Bearer %s' % key, 'Connection': 'close'})
            answer = connection.getresponse()
            answer.read()
            return 200 <= answer.status < 300
        except StrangerError:
            raise
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def check_owner(connection):
    """Raise StrangerError unless a process of this account has the other side of a TCP connection."""
    own, other = connection.getsockname(), connection.getpeername()
    ours, theirs = as_in_proc(*own[:2]), as_in_proc(*other[:2])
    anywhere = as_in_proc('0.0.0.0', other[1]) + as_in_proc('::', other[1])
    accepted, listening = set(), set()
    for path in ('/proc/net/tcp', '/proc/net/tcp6'):
        # a node may be without IPv6
        with contextlib.suppress(FileNotFoundError), open(path) as table:
            for line in table:
                _, local, remote, state, _, _, _, account, _, inode = line.split()[:10]
                if local in theirs and remote in ours and inode != '0':
                    accepted.add(account)
                elif state == LISTENS and local in theirs + anywhere:
                    listening.add(account)
    # until it is accepted, a connection has no owner, but waits for the one who listens
    if (accepted or listening) != {str(os.getuid())}:
        raise StrangerError('port %d of %s belongs to another account or machine' % (other[1], other[0]))


def as_in_proc(host, port):
    """Return how /proc/net/tcp and tcp6 show an address (list of str)."""
    hosts = [socket.inet_pton(socket.AF_INET6, host if ':' in host else '::ffff:' + host)]
    if ':' not in host:
        hosts.append(socket.inet_aton(host))
    # as words in the order of bytes of this machine
    return ['%s:%04X' % (''.join('%08X' % word for (word,) in struct.iter_unpack('=I', one)), port) for one in hosts]


# --- the relay

class Relay:
    """Lets requests through that have the key; listens on a socket file, and maybe on a port."""

    def __init__(self, key, path):
        self.key, self.address, self.listeners = key, None, []
        # which haven't shown the key yet, the oldest first
        self.unknown = collections.OrderedDict()
        self.listen(socket.AF_UNIX, path)

    def listen(self, family, place):
        """Listen at a place; return its name."""
        listener = socket.socket(family)
        listener.bind(place)
        listener.listen(128)
        self.listeners.append(listener)
        return listener.getsockname()

    def start(self, address):
        """Start it in a process of its own, for the server at an Address; return its number."""
        self.address, process = address, os.fork()
        if not process:
            # a scheduler may send them to all processes, and the program may still ask when it saves its state
            for number in TO_END:
                signal.signal(number, signal.SIG_IGN)
            ignore_signals_for_the_program()
            try:
                self.run()
            finally:
                os._exit(1)
        for listener in self.listeners:
            listener.close()
        return process

    def run(self):
        """Relay, until killed."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        # each request takes two
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for listener in self.listeners:
            listener.setblocking(False)
            start = asyncio.start_unix_server if listener.family == socket.AF_UNIX else asyncio.start_server
            loop.run_until_complete(start(self.relay, sock=listener, limit=LONGEST_HEAD))
        loop.run_forever()

    async def relay(self, reader, writer):
        """Relay one request, or another protocol that it asks for: each connection has to have the key."""
        self.unknown[writer] = None
        if len(self.unknown) > MOST_UNKNOWN:
            # rather than the new one, which may be ours: its head comes at once
            self.unknown.popitem(last=False)[0].transport.abort()
        try:
            head = await asyncio.wait_for(reader.readuntil(b'\r\n\r\n'), HEAD_LIMIT)
            if has_key(head, self.key):
                self.unknown.pop(writer, None)
                await self.pass_on(head, reader, writer)
            else:
                writer.write(REFUSED)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            # the client has gone, or isn't one
            pass
        finally:
            self.unknown.pop(writer, None)
            writer.close()

    async def pass_on(self, head, reader, writer):
        """Send a request to the server, and its answer back."""
        try:
            answer, server = await self.address.open()
        except OSError:
            writer.write(UNREACHABLE)
            await writer.drain()
            return
        server.write(with_connection(head, b'Upgrade' if asks_for_upgrade(head) else b'close'))
        # of what the client still sends, the server may want nothing
        request = asyncio.ensure_future(copy(reader, server))
        try:
            head = await answer.readuntil(b'\r\n\r\n')
            while head.startswith(b'HTTP/1.1 1') and not head.startswith(SWITCHED):
                # 100 Continue
                writer.write(head)
                head = await answer.readuntil(b'\r\n\r\n')
            writer.write(head if head.startswith(SWITCHED) else with_connection(head, b'close'))
            await copy(answer, writer)
        finally:
            request.cancel()
            server.close()


def headers_of(head):
    """Return the name (bytes, lowercase) and the line of each header in the head of a request or an answer."""
    return [(line.partition(b':')[0].strip().lower(), line) for line in head[:-4].split(b'\r\n')[1:]]


def has_key(head, key):
    """Return whether the head of a request has the key."""
    given = [line.partition(b':')[2].strip() for name, line in headers_of(head) if name == b'authorization']
    return len(given) == 1 and hmac.compare_digest(given[0], b'Bearer ' + key.encode())


def asks_for_upgrade(head):
    """Return whether the head of a request asks for another protocol, such as WebSocket."""
    return any(name == b'upgrade' for name, _ in headers_of(head))


def with_connection(head, value):
    """Return the head of a request or an answer, with another value of Connection."""
    others = [line for name, line in headers_of(head) if name not in (b'connection', b'keep-alive')]
    return b'\r\n'.join([head.partition(b'\r\n')[0], *others, b'Connection: ' + value, b'', b''])


async def copy(reader, writer):
    """Copy what comes, and its end: a server stops working on a request if its client has gone."""
    with contextlib.suppress(OSError):
        while True:
            data = await reader.read(65536)
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()


# --- the server and the program

class RunningServer(Service):
    """The server, the relay, and the program."""

    def __init__(self, options, key, folder):
        self.options, self.key, self.folder = options, key, folder
        self.server, self.relay, self.stays, self.log = None, None, False, os.environ.get('EBSIF_SERVER_LOG', '')
        super().__init__()

    def run(self):
        """Start the server, then the program; raise EndError when all is over."""
        for name in OF_THIS_RANK:
            os.environ.pop(name, None)
        self.describe('job', os.environ.get('EBSIF_JOB', ''))
        relay = Relay(self.key, os.path.join(self.folder, 'relay.sock'))
        # clients of OpenAI need a port
        port = relay.listen(socket.AF_INET, (HERE, 0))[1] if self.options.arguments else 0
        words, address, path = self.resolve()
        self.relay = relay.start(address)
        self.start_server(words)
        self.wait_for(address, path)
        self.describe('server.json', json.dumps({'key': self.key}))
        if self.options.arguments:
            self.set_environment(port)
            self.start_program(self.options.arguments)
        else:
            self.stays = True
            say('the server answers. To use it: ebsif connect %s' % shlex.quote(os.environ.get('EBSIF_JOB', 'JOB')))
        while not (self.program and self.program.poll() is not None):
            self.step()
        self.end_with_program()

    def resolve(self):
        """Return the words of the server's command, its Address, and the path to ask."""
        url = urllib.parse.urlsplit(self.options.ready)
        path = url.path + ('?%s' % url.query if url.query else '')
        places = {'{socket}': os.path.join(self.folder, 'server.sock'), '{port}': str(free_ports(HERE, 1)[0])}
        words = []
        for word in self.options.server:
            for name, value in places.items():
                word = word.replace(name, value)
            words.append(word)
        if url.hostname:
            return words, Address(host=url.hostname, port=url.port or 80), path
        if any('{socket}' in word for word in self.options.server):
            return words, Address(path=places['{socket}']), path
        return words, Address(port=int(places['{port}'])), path

    def start_server(self, words):
        """Start the server."""
        environment = dict(os.environ)
        if self.options.key_variable:
            environment[self.options.key_variable] = self.key
        try:
            # its output may have what the program has asked
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if self.log else None
        except OSError as error:
            raise EndError(1, "can't write the log of the server, %s: %s" % (self.log, error.strerror)) from None
        self.log_begins = os.fstat(log).st_size if self.log else 0
        try:
            self.server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                                           preexec_fn=ignore_signals_for_the_program)
        except OSError as error:
            module = os.environ.get('EBSIF_LOADED_MODULE', 'MODULE').replace('/.', '/')
            raise EndError(1, "the container can't start %s: %s (to add packages: ebsif extend %s)"
                           % (words[0], error.strerror, module)) from None
        finally:
            if log is not None:
                os.close(log)

    def wait_for(self, address, path):
        """Wait until the server answers."""
        begin = time.monotonic()
        while not self.answers(address, path):
            self.step()
            if time.monotonic() > begin + self.options.within:
                self.show_log()
                raise EndError(1, 'the server does not answer at %s within %d seconds (ebsif job --ready-within)'
                               % (self.options.ready, self.options.within))
            time.sleep(0.2)
        say('the server has answered after %d seconds' % (time.monotonic() - begin))

    def answers(self, address, path):
        """Return whether the server answers."""
        try:
            return address.answers(path, self.key)
        except StrangerError as error:
            # or has the server just ended?
            self.step()
            raise EndError(1, '%s: start the job again, or use another port' % error) from None

    def set_environment(self, port):
        """Set the variables of the program."""
        os.environ['OPENAI_BASE_URL'] = 'http://%s:%d/v1' % (HERE, port)
        for name in ('NO_PROXY', 'no_proxy'):
            # the proxy of the site can't reach this node
            os.environ[name] = ','.join(filter(None, [os.environ.get(name), HERE]))

    def describe(self, name, text):
        """Write down for `ebsif connect` which job has this server and, when that answers, how to reach it."""
        with open(os.open(os.path.join(self.folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'w') as file:
            file.write(text)

    def finish(self):
        """Remove the directory of the server."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def step(self):
        """Wait for a moment; end if something has ended that should not."""
        time.sleep(0.1)
        self.check_parent()
        # if the server was asked to end as well, the program may still save its state
        if self.server.poll() is not None and not (self.asked_to_end and self.program):
            self.end_with_server()
        if os.waitpid(self.relay, os.WNOHANG)[0]:
            raise EndError(1, 'the relay has ended')

    def end_without_program(self, number):
        """End after a signal: a server without a program has nothing to save."""
        if not self.stays:
            super().end_without_program(number)
        self.end_server()
        raise EndError(0 if number not in TO_END else 128 + number)

    def end_with_server(self):
        """End because the server has ended."""
        if self.program and self.program.poll() == 0:
            raise EndError(0)
        status = exit_status(self.server.returncode)
        self.show_log()
        # before the program has ended, no end of the server is a success
        raise EndError(status or int(not self.stays), 'the server has ended with status %d' % status)

    def end_with_program(self):
        """End because the program has ended."""
        if self.program.returncode and not self.asked_to_end:
            # has it failed because the server has just failed?
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.wait(SAME_TIME)
                self.end_with_server()
        self.end_server()
        raise EndError(exit_status(self.program.returncode))

    def end_server(self):
        """Ask the server to end; what doesn't is killed."""
        for number in TO_END:
            signal.signal(number, signal.SIG_IGN)
        self.server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.wait(END_LIMIT)

    def show_log(self):
        """Print the last lines of the server."""
        if not self.log:
            return
        with open(self.log, 'rb') as file:
            # of this start of the job
            file.seek(max(self.log_begins, os.fstat(file.fileno()).st_size - 10000))
            lines = file.read().decode(errors='replace').splitlines()[-LAST_LINES:]
        for line in lines:
            print('| %s' % line, file=sys.stderr)
        say('these were the last lines of the server; all are in %s' % self.log)


def split(arguments):
    """Return arguments with lists of words for the server and for the program, which -- separates."""
    parts = [[]]
    for word in arguments:
        if word == '--' and len(parts) < 3:
            parts.append([])
        else:
            parts[-1].append(word)
    own, server, program = (parts + [[], []])[:3]
    parser = argparse.ArgumentParser()
    parser.add_argument('--ready', required=True)
    parser.add_argument('--within', type=int, default=1800)
    parser.add_argument('--key-variable')
    options = parser.parse_args(own)
    options.server, options.arguments = server, program
    if not server:
        parser.error('the command of the server is missing after --')
    return options


def main():
    """Start the server and the program; return the exit status."""
    options, key = split(sys.argv[1:]), os.environ.get('OPENAI_API_KEY', '')
    if not key:
        EndError(1, "OPENAI_API_KEY, the secret of this job, doesn't reach this node").report()
        return 1
    # with mode 700; the path of a socket may have 107 characters
    folder = tempfile.mkdtemp(prefix='ebsif-server-', dir='/tmp')
    status = keep(lambda: RunningServer(options, key, folder))
    # if that process was killed
    shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == '__main__':
    sys.exit(main())
