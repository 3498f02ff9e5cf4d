"""Looking at an image: its file, its labels, and what is in it."""

import ast
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Optional

from ebsif import output
from ebsif.errors import EbsifError
from ebsif.image import sif

PROBES = Path(__file__).parent / "probes"

BLOCK = 4 * 1024 * 1024  # bytes

# Activation as images with Conda have it, in WITH_CONDA.
CONDA = re.compile(r"(?:source|\.) (\S+)/bin/activate (\S+)\s*\Z")

# Labels that the build of an image sets by itself.
UNIMPORTANT_LABELS = re.compile(r"org\.label-schema\.(?!version$)|org\.opencontainers\.image\.ref")

# Where an image that was made of an OCI image says what that one starts.
ENTRY_POINT = re.compile(r"^OCI_(ENTRYPOINT|CMD)='(.+)'$", re.MULTILINE)


class InspectionError(EbsifError):
    """An image can't be looked at; the message says why and what to do."""


@dataclass
class Inspection:
    """What was found in an image."""

    path: str
    resolved: str
    size: int
    sha256: Optional[str] = None
    labels: dict = field(default_factory=dict)
    definition: str = ""
    help: str = ""
    runscript: str = ""
    entry_point: dict = field(default_factory=dict)
    apps: dict = field(default_factory=dict)
    signers: list = field(default_factory=list)
    system: str = ""
    bash: str = ""
    environment: dict = field(default_factory=dict)
    components: dict = field(default_factory=dict)
    plugins: list = field(default_factory=list)
    libraries: list = field(default_factory=list)
    python: Optional[dict] = None
    init: str = "none"
    conda_root: Optional[str] = None
    conda_env: Optional[str] = None
    conda: list = field(default_factory=list)

    @property
    def file_name(self):
        """File name of the image that was named (str)."""
        return Path(self.path).name

    @property
    def data(self):
        """For a program (dict)."""
        return asdict(self)


def inspect(path, checksum=True):
    """
    Look at an image.

    Parameters
    ----------
    path : Path
        The image; links are followed, and what they lead to is recorded.
    checksum : bool
        Whether to read all of it for its SHA256.

    Returns
    -------
    Inspection

    Raises
    ------
    InspectionError
        If there is no runtime, or the file is none that it can start.
    """
    if not path.is_file():
        raise InspectionError(f"{path} is no file" if path.exists() else f"there is no file {path}")
    runtime = shutil.which("apptainer") or shutil.which("singularity")
    if not runtime:
        raise InspectionError("neither apptainer nor singularity is on PATH: run this where one of them is")
    resolved = path.resolve()
    found = Inspection(path=str(path.absolute()), resolved=str(resolved), size=resolved.stat().st_size)
    read_labels(found, runtime)
    found.signers = sif.signers(resolved)
    read_system(found, runtime)
    read_python(found, runtime)
    if checksum:
        found.sha256 = sha256(resolved)
    return found


def run(runtime, image, command, text=None):
    """Run a command in an image, with nothing of the caller's environment; return the CompletedProcess."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    words = [runtime, "--silent", "exec", "--cleanenv", "--no-home", "--pwd", "/", image, *command]
    output.command(words)
    return subprocess.run(
        words, input=text or "",
        capture_output=True, text=True, errors="replace", env=environment, check=False)


def read_labels(found, runtime):
    """Read labels and definition file, as far as the image has them."""
    result = subprocess.run([runtime, "inspect", "--json", "--all", found.resolved], capture_output=True, text=True,
                            errors="replace", check=False, stdin=subprocess.DEVNULL)
    try:
        attributes = json.loads(result.stdout)["data"]["attributes"]
    except (ValueError, KeyError, TypeError):
        return
    labels = attributes.get("labels") or {}
    found.labels = {name: text for name, text in labels.items() if not UNIMPORTANT_LABELS.match(name)}
    found.definition = attributes.get("deffile") or ""
    found.help = attributes.get("helpfile") or ""
    found.runscript = attributes.get("runscript") or ""
    found.entry_point = {name.lower(): text for name, text in ENTRY_POINT.findall(found.runscript)}
    found.apps = {name: (app or {}).get("helpfile", "") for name, app in sorted((attributes.get("apps") or {}).items())}


def read_system(found, runtime):
    """Read what the image is without starting its Python."""
    result = run(runtime, found.resolved, ["sh", "-c", probe("image.sh")])
    lines = [line.split("\t", 1) for line in result.stdout.splitlines() if "\t" in line]
    if ["end", "yes"] not in lines:
        said = result.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise InspectionError(f"{found.path} can't be started as a container: {said[0]}")
    for name, value in lines:
        if name.startswith("environment."):
            found.environment[name[len("environment.") :]] = value
        elif name == "network-plugin":
            found.plugins.append(value)
        elif name == "network-library":
            found.libraries.append(value)
        elif name in ("system", "bash"):
            setattr(found, name, value)
        elif name == "conda":
            prefix, _, version = value.rpartition(" ")
            found.conda.append({"prefix": prefix, "python": version})
        elif name != "end":
            found.components[name] = value


def read_python(found, runtime):
    """Read what Python there is, and who makes it ready."""
    program, start = program_for_image("installed-packages.py"), probe("python.sh")
    own = python_in(run(runtime, found.resolved, ["sh", "-c", start], program))
    activation = found.environment.get("WITH_CONDA", "")
    conda = CONDA.match(activation)
    if conda:
        found.conda_root, found.conda_env = conda.groups()
        prefix = f"{found.conda_root}/envs/{found.conda_env}"
        if own and own["prefix"] == prefix:
            found.python, found.init = own, "image"
            return
        activated = python_in(run(runtime, found.resolved, ["bash", "-c", start, "bash", activation], program))
        if activated:
            found.python, found.init = activated, "conda-injected"
            return
    found.python = own
    if own:
        found.init = "image" if own["prefix"] == own["base_prefix"] else "venv-in-image"


def programs(found, names):
    """Return those of some names or paths (set of str) that are programs of an image (Inspection)."""
    runtime = shutil.which("apptainer") or shutil.which("singularity")
    folder = f"{found.python['prefix']}/bin" if found.python else "/bin"
    result = run(runtime, found.resolved, ["sh", "-c", probe("present-programs.sh"), "sh", folder, *names])
    return set(result.stdout.split("\n")) & set(names)


def python_in(result):
    """Return what the probe of Python printed (dict), its packages by name; None if it did not run."""
    try:
        python = ast.literal_eval(result.stdout)
    except (ValueError, SyntaxError):
        return None
    # the first on sys.path is the one that is imported
    python["packages"] = {name: version for name, version, _ in reversed(python["packages"])}
    return python


def program_for_image(name):
    """Return the text of a program of the easyblocks that runs in an image (str)."""
    wing = importlib.util.find_spec("easybuild.easyblocks.generic.container").origin
    folder = Path(wing).resolve().parent / "files" / "share" / "ebsif"
    return (folder / name).read_text(encoding="utf-8")


def probe(name):
    """Return the text of a program of ours that runs in an image (str)."""
    return (PROBES / name).read_text(encoding="utf-8")


def sha256(path):
    """Return the SHA256 of a file (str), with a bar for a person at a terminal and lines for a log."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as image, progress(size) as advance:
        for block in iter(lambda: image.read(BLOCK), b""):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


class progress:  # noqa: N801 used like a function
    """
    Tell how far the reading of a file is.

    Parameters
    ----------
    size : int
        Of the file, in bytes.
    """

    def __init__(self, size):
        """Begin at zero."""
        self.size, self.done, self.bar = size, 0, None
        self.started = self.told = time.monotonic()

    def __enter__(self):
        """Start; the value is called with the number of bytes that were read."""
        if sys.stderr.isatty() and self.size > 20 * BLOCK:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(TextColumn("SHA256"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
                                console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=self.size)
        return self.advance

    def advance(self, number):
        """So many bytes more."""
        self.done += number
        if self.bar:
            self.bar.update(self.task, completed=self.done)
        elif time.monotonic() - self.told > 10:
            self.told = time.monotonic()
            print(f"SHA256: {self.done / 1e9:.1f} of {self.size / 1e9:.1f} GB", file=sys.stderr)

    def __exit__(self, *_):
        """End."""
        if self.bar:
            self.bar.stop()
