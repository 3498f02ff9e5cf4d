"""The modules tool of this machine, Lmod or Environment Modules, run through the scripts in sh/."""

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import modulerc, newest

from ebsif import files, processes

LONGEST = 120  # seconds; without a cache, Lmod reads all module files
SCRIPTS = Path(__file__).parent / "sh"
# Where EasyBuild installs by default, below the home directory, and the directory of all modules there.
DEFAULT_PREFIX = ".local/easybuild"
MODULES = "modules/all"


def command(environment: Mapping[str, str] = os.environ) -> str:
    """Return the program of the modules tool; empty if there is none."""
    return environment.get("LMOD_CMD") or environment.get("MODULES_CMD") or ""


def run(
    script: str, *modules: str, environment: Optional[Mapping[str, str]] = None
) -> subprocess.CompletedProcess[str]:
    """Run a script with the modules tool for modules; raise NoAnswerError if that takes longer than LONGEST seconds."""
    program = command(environment or os.environ)
    return processes.run(
        ["/bin/bash", "--noprofile", "--norc", SCRIPTS / script, program, *modules],
        LONGEST,
        name=f"the modules tool ({program}, for {' '.join(modules)})",
        environment=environment,
    )


def entries(output: str) -> dict[str, str]:
    """Return the environment variables that a script has printed."""
    return dict(entry.split("=", 1) for entry in output.split("\0") if "=" in entry)


def directories_of_modules() -> list[Path]:
    """
    Return the module directories known without EasyBuild: those on MODULEPATH and below the usual prefixes.

    Those in a directory that is closed to this account are included, so that searches can report them.
    """
    named = [part for part in os.environ.get("MODULEPATH", "").split(":") if part]
    prefixes = [os.environ[name] for name in ("EASYBUILD_INSTALLPATH", "EASYBUILD_PREFIX") if os.environ.get(name)]
    if os.environ.get("EASYBUILD_INSTALLPATH_MODULES"):
        named.append(f"{os.environ['EASYBUILD_INSTALLPATH_MODULES']}/all")
    places = [*named, *(f"{prefix}/{MODULES}" for prefix in (*prefixes, files.home() / DEFAULT_PREFIX))]
    return [Path(place) for place in dict.fromkeys(map(os.path.realpath, places)) if may_be_there(place)]


def may_be_there(path: str) -> bool:
    """Return whether a path is a directory, or in a directory that is closed to this account."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        return isinstance(error, PermissionError)


def has_own_extension() -> bool:
    """Return whether this account's module directories have an extension, which has a name of its own, too (N-01)."""
    own = []
    for path in directories_of_modules():
        # it may be closed, as a home directory on a file system that has gone is
        with contextlib.suppress(OSError):
            own += [path] if path.stat().st_uid == os.getuid() else []
    folders = {
        file.parent for directory in own for depth in ("*", "*/*") for file in directory.glob(f"{depth}/.modulerc*")
    }
    named = (item for folder in folders for item in modulerc.aliases_in(str(folder)).items())
    return any((found := newest.NAMED.search(module)) and found["name"] == alias for alias, module in named)


def have_module_files(modules: Iterable[str]) -> set[str]:
    """Return which of these modules have a file in the module directories that are known, hidden ones included."""
    names: dict[str, list[str]] = {}
    for module in modules:
        names.setdefault(module.rpartition("/")[0], []).append(module)
    there: set[str] = set()
    for directory in directories_of_modules():
        for software, wanted in names.items():
            try:
                names_there = os.listdir(directory / software)
            except OSError:
                continue
            present = {modulerc.without_dot(modulerc.version_of(name)) for name in names_there}
            there.update(module for module in wanted if module.rpartition("/")[2] in present)
    return there
