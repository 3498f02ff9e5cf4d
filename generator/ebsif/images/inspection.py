"""Inspect an image: its file, its labels, and its content."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container import sitevalues
from easybuild.easyblocks.generic.container.image import sif
from easybuild.easyblocks.generic.container.sitevalues import (
    INIT_CONDA_INJECTED,
    INIT_IMAGE,
    INIT_NONE,
    INIT_VENV_IN_IMAGE,
)
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif import processes
from ebsif.errors import EbsifError
from ebsif.images.checksum import sha256
from ebsif.report import output

if TYPE_CHECKING:
    from easybuild.easyblocks.generic.container.packages import Need

Done = subprocess.CompletedProcess[str]
PROBES = Path(__file__).parent / "probes"
# Time for a program in an image: mounting it and importing Python can take minutes on a busy file system.
SECONDS = 900

# The value of WITH_CONDA, the command that activates Conda in an image.
CONDA = re.compile(r"(?:source|\.) (\S+)/bin/activate (\S+)\s*\Z")

# Labels that every build sets.
UNIMPORTANT_LABELS = re.compile(r"org\.label-schema\.(?!version$)|org\.opencontainers\.image\.ref")

# The entry point of an OCI image, in the runscript of a SIF file that was made from it.
ENTRY_POINT = re.compile(r"^OCI_(ENTRYPOINT|CMD)='(.+)'$", re.MULTILINE)

# What the probe image.sh prints besides the environment and the versions of components.
NO_COMPONENTS = ("system", "bash", "release", "conda", "network-plugin", "network-library", "list", "end")

# Epoch, and what a distribution adds to the version of the software.
NOT_UPSTREAM = re.compile(r"\A\d+:|[-~+].*\Z")


class InspectionError(EbsifError):
    """An image can't be inspected; the message says why and what to do."""


@dataclass(frozen=True)
class Python:
    """
    The Python of an image, as the easyblocks' program installed-packages.py describes it.

    `packages` are versions by name, `missing` modules of the standard library, and `compiled` packages with binaries;
    `needs` are what packages require.
    """

    version: str
    prefix: str
    base_prefix: str
    packages: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    executable: str = ""
    purelib: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    compiled: list[str] = field(default_factory=list)
    needs: "list[Need]" = field(default_factory=list)

    @property
    def is_venv(self) -> bool:
        """Whether it is the Python of a virtual environment."""
        return self.prefix != self.base_prefix

    @property
    def listing(self) -> dict[str, Any]:
        """What the program prints, for the easyblocks."""
        return {**asdict(self), "packages": [[name, version, ""] for name, version in self.packages.items()]}


@dataclass(frozen=True)
class CondaEnvironment:
    """A Conda environment in an image, and the version of its Python; empty if it has none."""

    prefix: str
    python: str


@dataclass(frozen=True)
class Inspection:
    """
    What was found out about an image.

    `listed` are versions of packages by kind and name, as the image lists them itself, in `listed_in`. Of an image in a
    registry, `source` is where it is, with its digest, and `created` the day it was made (20261231). `release` is the
    version under which NVIDIA publishes an image (25.03), which none of its packages has.
    """

    path: str
    resolved: str
    size: int
    sha256: Optional[str] = None
    labels: Mapping[str, str] = field(default_factory=dict)
    entry_point: Mapping[str, str] = field(default_factory=dict)
    signers: Sequence[str] = ()
    system: str = ""
    bash: str = ""
    release: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    components: Mapping[str, str] = field(default_factory=dict)
    plugins: Sequence[str] = ()
    libraries: Sequence[str] = ()
    python: Optional[Python] = None
    init: str = INIT_NONE
    conda_root: Optional[str] = None
    conda_env: Optional[str] = None
    conda: Sequence[CondaEnvironment] = ()
    listed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    listed_in: str = ""
    source: Optional[str] = None
    created: Optional[str] = None

    @property
    def file_name(self) -> str:
        """File name of the image as the user named it, or for which it is fetched."""
        return Path(self.resolved if self.source else self.path).name

    @property
    def data(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


def inspect(path: Path, checksum: bool = True) -> Inspection:
    """
    Inspect an image, a file or a link to it; for its SHA256, the whole file is read.

    Raise InspectionError if there is no container runtime, or it can't start this image.
    """
    found = with_python(with_system(with_labels(of_file(path))))
    digest = sha256(Path(found.resolved)) if checksum else None
    return replace(found, signers=sif.signers(found.resolved), sha256=digest)


def of_file(path: Path) -> Inspection:
    """Return an image of which nothing but its file is known; raise InspectionError if it is none."""
    check_file(path)
    resolved = path.resolve()
    return Inspection(path=str(path.absolute()), resolved=str(resolved), size=resolved.stat().st_size)


def check_file(path: Path) -> None:
    """Raise InspectionError if the path is not a file."""
    if path.is_dir():
        raise InspectionError(
            f"{path} is a directory, not an image (a SIF file); if it is a sandbox, convert it with: "
            f"apptainer build image.sif {shlex.quote(str(path))}"
        )
    if not path.is_file():
        raise InspectionError(f"{path} is not a file" if path.exists() else f"the file {path} does not exist")


def find_runtime() -> str:
    """Return the path of the container runtime. Raise InspectionError if none is found."""
    runtime = sitevalues.find_runtime()
    if not runtime:
        raise InspectionError("neither apptainer nor singularity is on PATH: run this where one of them is")
    return runtime


def run_runtime(*arguments: str, text: str = "") -> Done:
    """Run the container runtime in the environment of installations, with a text as input."""
    from easybuild.easyblocks.generic.container.runtime import passed_variables

    words = [find_runtime(), *arguments]
    output.command(words)
    # programs of the image print what they like, for as long as they like
    done = processes.run(words, SECONDS, text, shlex.join(words[:4]), passed_variables(os.environ))
    return Done(done.args, done.returncode, *(readable(one) for one in (done.stdout, done.stderr)))


def readable(printed: str) -> str:
    """Return what a program has printed, with a sign in place of bytes that aren't UTF-8."""
    return os.fsencode(printed).decode("utf-8", "replace")


def run_in_image(found: Inspection, *command: str, text: str = "") -> Done:
    """Run a command in an image, without variables and files of the host."""
    return run_runtime("--silent", "exec", "--cleanenv", "--no-home", "--pwd", "/", found.resolved, *command, text=text)


def important(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those labels that not every build sets."""
    return {name: text for name, text in labels.items() if not UNIMPORTANT_LABELS.match(name)}


def with_labels(found: Inspection) -> Inspection:
    """Return an image with its metadata: labels, and the entry point in its runscript."""
    result = run_runtime("inspect", "--json", "--all", found.resolved)
    try:
        attributes = json.loads(result.stdout)["data"]["attributes"]
        labels, runscript = attributes.get("labels"), attributes.get("runscript")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return found
    # whoever made the image wrote them
    labels = labels if isinstance(labels, dict) else {}
    runscript = runscript if isinstance(runscript, str) else ""
    return replace(
        found,
        labels=important({name: text for name, text in labels.items() if isinstance(text, str)}),
        entry_point={name.lower(): text for name, text in ENTRY_POINT.findall(runscript)},
    )


def with_system(found: Inspection) -> Inspection:
    """Return an image with the content that can be found without its Python."""
    result = run_in_image(found, "sh", "-c", probe("image.sh"))
    lines = [(name, value) for name, tab, value in (line.partition("\t") for line in result.stdout.splitlines()) if tab]
    if ("end", "yes") not in lines:
        reason = result.stderr.strip().splitlines()[-1:] or ["no message from the container runtime"]
        # runtimes can start some other files, too
        what = f"can't be started as a container: {reason[0]}" if sif.is_sif(found.resolved) else "is not a SIF file"
        raise InspectionError(f"{found.path} {sif.damage(found.resolved, result.stderr) or what}")

    def all_of(name: str) -> list[str]:
        return [value for one, value in lines if one == name]

    last, listed = dict(lines), read_packages("\n".join(all_of("list")))
    variables = {name: value for name, value in lines if name.startswith("environment.")}
    return replace(
        found,
        system=last.get("system", ""),
        bash=last.get("bash", ""),
        release=last.get("release", ""),
        environment={name.removeprefix("environment."): value for name, value in variables.items()},
        components={name: value for name, value in lines if name not in (*NO_COMPONENTS, *variables)},
        plugins=all_of("network-plugin"),
        libraries=all_of("network-library"),
        conda=[
            CondaEnvironment(prefix, version) for prefix, _, version in (one.rpartition(" ") for one in all_of("conda"))
        ],
        listed=listed,
        listed_in="/.sbom.json" if listed else "",
    )


def with_python(found: Inspection) -> Inspection:
    """Return an image with the Python that it has, and how that is activated."""
    from easybuild.easyblocks.generic.container.imageprograms import read_program

    program, start = read_program("installed-packages.py"), probe("python.sh")
    own = python_in(run_in_image(found, "sh", "-c", start, text=program))
    activation = found.environment.get("WITH_CONDA", "")
    conda = CONDA.match(activation)
    if conda:
        root, name = conda.groups()
        found = replace(found, conda_root=root, conda_env=name)
        if own and own.prefix == f"{root}/envs/{name}":
            return replace(found, python=own, init=INIT_IMAGE)
        activated = python_in(run_in_image(found, "bash", "-c", start, "bash", activation, text=program))
        if activated:
            return replace(found, python=activated, init=INIT_CONDA_INJECTED)
    if not own:
        return found
    return replace(found, python=own, init=INIT_VENV_IN_IMAGE if own.is_venv else INIT_IMAGE)


def python_of(path: Path) -> Python:
    """
    Return the Python of an image.

    Raise InspectionError if the image can't be started, or has no Python.
    """
    found = content_of(path)
    if not found.python:
        raise InspectionError(f"no Python can be started in {path}")
    return found.python


def programs_of(path: Path, names: Collection[str]) -> set[str]:
    """Return those of the names or paths that are programs in an image; raise InspectionError if it can't start."""
    found = programs(content_of(path), [*names, "sh"])
    if "sh" not in found:
        raise InspectionError(f"{path} can't be started as a container")
    return found & set(names)


def content_of(path: Path) -> Inspection:
    """Return what an image says when it is started; raise InspectionError if it can't be."""
    return with_python(with_system(of_file(path)))


def programs(found: Inspection, names: Collection[str]) -> set[str]:
    """Return those of the names or paths that are programs in an image."""
    folder = f"{found.python.prefix}/bin" if found.python else "/bin"
    result = run_in_image(found, "sh", "-c", probe("present-programs.sh"), "sh", folder, *names)
    return set(result.stdout.split("\n")) & set(names)


def pip_settings(path: Path) -> str:
    """
    Return where pip looks for packages in an image during an installation, as the text of a configuration file.

    Raise InspectionError if the image can't be started.
    """
    from easybuild.easyblocks.generic.container.runtime import INSTALL_BIND_VARIABLE, escape_bind

    check_file(path)
    file = os.environ.get("PIP_CONFIG_FILE", "")
    binds = [escape_bind(file)] if Path(file).is_file() else []
    binds += filter(None, [os.environ.get(INSTALL_BIND_VARIABLE)])
    options = [word for bind in binds for word in ("--bind", bind)]
    # with the variables of whoever installs, but in no directory of theirs
    done = run_runtime(
        "--silent",
        "exec",
        "--no-home",
        "--pwd",
        "/",
        *options,
        str(path.resolve()),
        "sh",
        "-c",
        probe("pip-settings.sh"),
    )
    if done.returncode:
        raise InspectionError(f"{path} can't be started as a container: {done.stderr.strip()}")
    return done.stdout


def python_in(result: Done) -> Optional[Python]:
    """Return what the Python probe has printed; None if it did not run."""
    from easybuild.easyblocks.generic.container.packages import InstalledPackages
    from easybuild.easyblocks.generic.container.written import UnfitError

    try:
        printed, packages = InstalledPackages.read(result.stdout), InstalledPackages.from_output(result.stdout)
    except UnfitError:
        return None
    known = {one.name: printed[one.name] for one in fields(Python) if one.name in printed}
    versions = {name: version for name, version, _ in packages.values()}
    return Python(**{**known, "packages": versions, "needs": list(packages.needs)})


def probe(name: str) -> str:
    """Return the text of one of the probes that run in an image."""
    return (PROBES / name).read_text(encoding="utf-8")


def read_packages(text: str) -> dict[str, dict[str, str]]:
    """Return the versions of the packages in a bill of materials (JSON), by kind ('deb', 'pypi' ...) and name."""
    from easybuild.easyblocks.generic.container.probe import packages_in_sbom

    return {kind: dict(line.split("==", 1) for line in lines) for kind, lines in packages_in_sbom(text).items()}


def software_version(kind: str, version: str) -> str:
    """Return the version of the software in a package: that of a system's package has no epoch and revision."""
    return version if kind in ("pypi", "conda") else NOT_UPSTREAM.sub("", version)


def versions_by_name(listed: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the versions of the software in listed packages by normalized name; those of Python count most."""
    found: dict[str, str] = {}
    for kind in sorted(listed, key=lambda one: one == "pypi"):
        found.update((normal_name(name), software_version(kind, version)) for name, version in listed[kind].items())
    return found
