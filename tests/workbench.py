"""PyTorch with what people work with (JupyterLab, TensorBoard, MLflow, debugpy), jobs, and the way to them by SSH."""

import contextlib
import hashlib
import os
import re
import shlex
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from slurm import free_ports
from support import CHECKOUT, attempt, in_background, until, write_program
from user_software import kept

MODULE = "PyTorch/2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121"
PACKAGES = ("debugpy", "jupyter-server-proxy", "jupyterlab", "matplotlib", "mlflow", "tensorboard")
EXAMPLES = CHECKOUT / "docs/examples"


class Workbench:
    """The module of `make demo`, whose user software is a directory of the person's own."""

    def __init__(self, folder, cluster, ssh, image):
        """Have the packages, for an image (Path)."""
        self.folder, self.cluster, self.ssh = folder, cluster, ssh
        self.own = {
            name: str(folder / name.lower())
            for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
        }
        key = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8]
        self.software = None
        self.software = kept(f"workbench-{image.parent.name}-{key}", self.load, PACKAGES)
        for path in EXAMPLES.iterdir():
            text = re.sub(r"PyTorch/2\.13\S+", MODULE, path.read_text())
            (folder / path.name).write_text(text)

    def environment(self, **more):
        """Return the variables of a fresh shell of the person, and more."""
        own = {"EBSIF_USER_SOFTWARE": self.software} if self.software else {}
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": os.environ["HOME"],
            "LC_ALL": "C.UTF-8",
            **self.own,
            **self.cluster.environment,
            **{name: str(value) for name, value in {**own, **more}.items()},
        }

    def command(self, script, load=True):
        """Return the command (list) that runs a script, with the module loaded."""
        load = f"module load {MODULE} || exit 99\n" if load else ""
        return ["bash", "--noprofile", "--norc", "-c", f"source {CHECKOUT}/.demo/env.sh\n{load}{script}"]

    def script_file(self, folder, script):
        """Write a file into a directory (Path) that runs a script with the module loaded; return its path."""
        return write_program(folder / "typed.sh", f"#!/bin/bash\n{self.command(script)[-1]}")

    def load(self, script, check=True, load=True, **more):
        """Run a script, with the module loaded unless `load` is False; return the CompletedProcess."""
        result = attempt(self.command(script, load), env=self.environment(**more), cwd=self.folder, timeout=1700)
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result

    @contextlib.contextmanager
    def running(self, script, **more):
        """Run a script with the module loaded while a test does something else; end it in the end. Yields a Job."""
        output = self.folder / "running.out"
        with output.open("w") as out:
            process = in_background(self.command(script), out, env=self.environment(**more), cwd=self.folder)
        try:
            yield Job(output, process)
        finally:
            # srun ends its job
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=300)

    @contextlib.contextmanager
    def submitted(self, script, output):
        """Run a script that submits a job, whose output is in a file; cancel it in the end. Yields a Job."""
        said = self.load(script, load=False).stdout
        number = re.search(r"^Submitted batch job (\d+)$", said, re.MULTILINE)[1]
        try:
            yield Job(self.folder / output, number=number)
        finally:
            self.cluster.slurm("scancel", number)
            until(lambda: not self.cluster.slurm("squeue", "-h", "-j", number))

    @contextlib.contextmanager
    def forward(self, command):
        """Type a printed command of SSH on one's own computer; yields the ports there, in order, instead of its own."""
        wanted = re.findall(r"-L (\d+):", command)
        ports = free_ports(len(wanted))
        for before, port in zip(wanted, ports):
            command = command.replace(f"-L {before}:", f"-L {port}:")
        process = in_background(shlex.split(command), None, env={"PATH": f"{self.ssh.path}:/usr/bin:/bin"})
        try:
            for port in ports:
                until_it_works(lambda one=port: check_that_somebody_listens(one), process)
            yield ports
        finally:
            process.terminate()
            process.wait(timeout=300)


class Job:
    """A job, or the program that has started it."""

    def __init__(self, output, process=None, number=None):
        self.output, self.process, self.number = output, process, number

    def printed(self, pattern):
        """Wait until it has printed something; return the match."""

        def search():
            found = re.search(pattern, self.output.read_text(), re.MULTILINE)
            if not found:
                raise OSError(f"it hasn't printed {pattern}:\n{self.output.read_text()}")
            return found

        return until_it_works(search, self.process)


def until_it_works(function, process=None, seconds=600):
    """Return the result of a function once it raises no OSError; fail if that takes too long or a process ends."""
    end = time.monotonic() + seconds
    while True:
        ended = process and process.poll() is not None
        try:
            return function()
        except OSError as error:
            assert time.monotonic() < end and not ended, error
            time.sleep(0.1)


def check_that_somebody_listens(port):
    """Raise OSError if nobody listens at a port; without connecting, which the other end of a forward notices."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    if not any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines):
        raise OSError(f"nobody listens at port {port}")


def fetch(url):
    """Return the text at a URL, once its server is ready."""

    def read():
        with urllib.request.urlopen(url, timeout=300) as answer:
            return answer.read().decode()

    return until_it_works(read)


@pytest.fixture(scope="session")
def workbench(demo, tmp_path_factory, cluster, ssh):
    """The module, ready to work with."""
    image = Path(os.environ["EBSIF_TEST_PYTORCH_IMAGE"])
    return Workbench(tmp_path_factory.mktemp("workbench"), cluster, ssh, image)
