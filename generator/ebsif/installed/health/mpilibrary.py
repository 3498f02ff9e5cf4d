"""Which MPI library mpi4py opens in the container of a module: that of the host, or another one (K-01)."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from easybuild.easyblocks.generic.container.host.libraries import FOLDER
from easybuild.easyblocks.generic.container.values import USER_SOFTWARE

from ebsif.installed.health.subject import PROGRAMS, Subject
from ebsif.report.findings import Finding


def command(*arguments: str) -> list[str]:
    """Return the command line that says in the container which library mpi4py opens."""
    program = (PROGRAMS / "mpi.py").read_text(encoding="utf-8")
    return ["sh", "-c", 'exec "$(command -v python || command -v python3)" -c "$@"', "sh", program, *arguments]


def answers(text: str) -> list[dict[str, Any]]:
    """Return what the program has said, perhaps as several ranks."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            one = json.loads(line)
            found += [one] if isinstance(one, dict) and "opened" in one else []
    return found


def host_names(one: Subject) -> list[str]:
    """Return the names of MPI libraries that the module has of the host."""
    return sorted(name for name in one.record.host_libraries.libraries if name.startswith("libmpi"))


def examine(one: Subject) -> Iterator[Finding]:
    """Does mpi4py open the MPI of the host, if the module has that?"""
    if one.python.get("mpi") and host_names(one):
        for answer in answers(one.run(*command()).stdout):
            yield from wrong_library(one, answer)
            yield one.note(f"mpi4py has {described(answer)}")


def described(answer: dict[str, Any]) -> str:
    """Return which library it is, for a message."""
    return f"{', '.join(answer['opened']) or 'an MPI that is linked into it'} ({answer['version']})"


def wrong_library(one: Subject, answer: dict[str, Any]) -> Iterator[Finding]:
    """Yield an error if a library was opened that isn't the host's, though the module has that."""
    names, opened = host_names(one), answer["opened"]
    if not names or not opened or answer["of host"]:
        return
    path = next(path for path in opened if not path.startswith(f"{FOLDER}/"))
    source = one.record.host_libraries.libraries[names[0]]
    # a bind would cover the file of an image, but not of user software, which is mounted later
    change = (
        f"'MPI4PY_LIBMPI': '{FOLDER}/{names[0]}' to container_env"
        if path.startswith(f"{USER_SOFTWARE}/")
        else f"'{source}:{path}' to binds"
    )
    yield one.error(
        f"mpi4py opens {path}, not {source} of the host, because it looks there first (RPATH, or Python's own prefix): "
        f"add {change} in {one.easyconfig}, and install it with `eb --rebuild {one.easyconfig}`"
    )
