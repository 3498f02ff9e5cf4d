"""OpenSSH's server, and a configuration of its client by which all host names are those of this machine."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from account import as_root
from parts import part
from slurm import free_ports
from support import in_background, write_program

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {place}/host
AuthorizedKeysFile {place}/person.pub
StrictModes no
UsePAM no
PidFile none
"""
CLIENT = """\
Host *
HostName 127.0.0.1
Port {port}
IdentityFile {place}/person
UserKnownHostsFile {place}/known_hosts
StrictHostKeyChecking accept-new
ExitOnForwardFailure yes
LogLevel ERROR
"""
# In a mount namespace of its own there are the account and the directory that the server needs to run as root.
START = """\
getent passwd sshd >/dev/null || {
    { cat /etc/passwd; echo 'sshd:x:74:65534::/run/sshd:/usr/sbin/nologin'; } >"$1/passwd"
    mount --bind "$1/passwd" /etc/passwd
}
mount -t tmpfs none /run
mkdir /run/sshd
exec "$2" -D -e -f "$1/sshd_config"
"""


class Ssh:
    """A running server."""

    def __init__(self, place, program):
        """Start the server (Path) with keys and configuration in a directory."""
        self.place, self.path = place, place / "bin"
        (port,) = free_ports(1)
        for name in ("host", "person"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
        for name, text in (("sshd_config", SERVER), ("config", CLIENT)):
            (place / name).write_text(text.format(port=port, place=place))
        self.path.mkdir()
        write_program(self.path / "ssh", f'#!/bin/sh\nexec /usr/bin/ssh -F {place}/config "$@"\n')
        # libraries beside it, if the program is unpacked and not installed
        libraries = ":".join(map(str, program.parents[2].glob("usr/lib/*-linux-*")))
        with (place / "log").open("w") as log, as_root():
            command = ["unshare", "--mount", "sh", "-ec", START, "sh", place, program]
            environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": libraries}
            self.process = in_background(command, log, env=environment)
        until = time.monotonic() + 300
        while "Server listening" not in (place / "log").read_text():
            assert self.process.poll() is None and time.monotonic() < until, (place / "log").read_text()
            time.sleep(0.05)

    def stop(self):
        """End it."""
        with as_root():
            self.process.terminate()
        self.process.wait(timeout=300)


@pytest.fixture(scope="session")
def ssh():
    """An SSH server on this machine."""
    program = Path(part("EBSIF_TEST_SSHD"))
    with tempfile.TemporaryDirectory(prefix="ebsif-ssh-") as place:
        started = Ssh(Path(place), program)
        yield started
        started.stop()
