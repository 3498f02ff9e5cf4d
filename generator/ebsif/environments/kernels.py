"""Jupyter kernels that start in the container of a module, in a person's own list or below a prefix."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.kernel import (
    INTERPRETER,
    LOGO,
    SUBSTITUTED,
    kernel_name,
    kernel_spec,
    kernel_title,
)
from easybuild.easyblocks.generic.container.values import DIRECTORY, SQUASHFS, USER_SOFTWARE_VARIABLE, VENV_VARIABLE

from ebsif import files
from ebsif.environments.writing import set_aside
from ebsif.errors import EbsifError
from ebsif.installed import current, interpreter, places
from ebsif.installed.names import Names, undated
from ebsif.installed.places import Installation, shown
from ebsif.packages.venv import packages
from ebsif.report import output

PACKAGE = "ipykernel"
# what Jupyter accepts as the name of a kernel, without . and ..
NAME = re.compile(r"[a-z0-9_-][a-z0-9._-]*")
# the line that extend-venv-activate writes
MODULE = re.compile(r"^ *(_EBSIF_MODULE=.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """
    A kernel in a list of Jupyter: its directory, which has its name, the module, the interpreter that starts it.

    The module is None for kernels of others. `venv` is its environment (make-venv), `own` its user software
    (EBSIF_USER_SOFTWARE). If it starts the newest extension of a name, `newest` is their path without the date (V-07).
    """

    folder: Path
    module: Optional[str]
    program: Path
    venv: Optional[Path] = None
    own: Optional[Path] = None
    newest: Optional[Path] = None

    @property
    def roots(self) -> list[Path]:
        """The installations in which it can start: it starts in the last one."""
        return interpreter.extensions(self.newest) if self.newest else [self.program.parent.parent]

    @property
    def where(self) -> Optional[Path]:
        """What tells it from others of its module: its environment or its user software."""
        return self.venv or self.own

    @property
    def missing(self) -> Optional[Path]:
        """The first path that it needs and that doesn't exist."""
        needed = (self.program, None if self.roots else self.newest, self.venv, self.own)
        return next((path for path in needed if path and not files.is_there(path)), None)

    @property
    def data(self) -> dict[str, Optional[str]]:
        """The fields, for JSON."""
        paths = {
            "folder": self.folder,
            "program": self.program,
            "environment": self.venv,
            "user_software": self.own,
            "missing": self.missing,
        }
        return {
            "name": self.folder.name,
            "module": self.module,
            **{key: str(path) if path else None for key, path in paths.items()},
        }


def user_folder() -> Path:
    """Return the directory with the kernels of this account, as Jupyter finds it."""
    data = os.environ.get("XDG_DATA_HOME") or files.home() / ".local/share"
    return Path(os.environ.get("JUPYTER_DATA_DIR") or Path(data, "jupyter"), "kernels").absolute()


def folder_of(prefix: Optional[Path]) -> Path:
    """Return the directory with the kernels below a prefix, or those of this account."""
    return prefix.absolute() / "share/jupyter/kernels" if prefix else user_folder()


def read(folder: Path) -> Optional[Kernel]:
    """Return the kernel in a directory; None if there is none that can be read."""
    try:
        spec = json.loads((folder / "kernel.json").read_text(encoding="utf-8"))
        about = spec.get("metadata", {}).get("ebsif", {})
        # as Jupyter does: the kernel of an installation may be linked here
        program = spec["argv"][0].replace("{resource_dir}", str(folder))
        variables = spec.get("env", {})
        paths = variables.get(VENV_VARIABLE), variables.get(USER_SOFTWARE_VARIABLE), about.get("newest")
        return Kernel(folder, about.get("module"), Path(program), *(Path(path) if path else None for path in paths))
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return None


def installed(folder: Path) -> Iterator[Kernel]:
    """Yield the kernels of modules in a directory, by name."""
    for path in sorted(folder.glob("*/kernel.json")):
        kernel = read(path.parent)
        if kernel and kernel.module:
            yield kernel


def of_installation(root: Path, going: Iterable[Path]) -> list[Path]:
    """Return the directories of this account's kernels that start in an installation, and in none that isn't going."""
    gone = set(map(os.path.realpath, going))
    return [
        kernel.folder
        for kernel in installed(user_folder())
        if any(places.is_same(one, root) for one in kernel.roots[-1:])
        and gone.issuperset(map(os.path.realpath, kernel.roots))
    ]


def subject(names: Names, text: Optional[str]) -> tuple[Installation, Optional[Path], str]:
    """
    Return the installation with a name, or that of an environment of make-venv, the environment, and its module.

    The module of an extension that is named without its date has none either.
    """
    installation = None if text else names.installation(None)
    text = text or (interpreter.environment_on(installation) if installation else None)
    venv = files.expanded(text).absolute() if text else None
    if not venv or not files.is_there(venv / "host-bin"):
        installation = installation or names.installation(text)
        return installation, None, undated(installation, text) or shown(installation)
    line = MODULE.search((venv / "bin/activate").read_text(encoding="utf-8", errors="replace"))
    remedy = f"extend-venv-activate {shlex.quote(str(venv))} MODULE"
    if not line:
        raise EbsifError(f"{venv}/bin/activate names no module; to add one: {remedy}")
    module = shlex.split(line.group(1))[0].partition("=")[2]
    # another one with a similar name would not start in this environment
    thing = names.exact(module) or next((one for one in names.everything if shown(one) == module), None)
    if not isinstance(thing, Installation):
        raise EbsifError(
            f"{venv} is an environment of the module {module}: no container module '{module}' is "
            f"installed here. To correct the name: {remedy}"
        )
    return thing, venv, undated(thing, module) or shown(thing)


def install(names: Names, text: Optional[str], folder: Path, name: Optional[str]) -> Kernel:
    """
    Install a kernel of a module or an environment of make-venv in a directory with kernels; see `subject`.

    Its default name follows from module, environment or user software. Raise EbsifError if the module can't run
    kernels, has no ipykernel, or the name belongs to another kernel.
    """
    installation, venv, module = subject(names, text)
    software = os.environ.get(USER_SOFTWARE_VARIABLE)
    own = Path(software).absolute() if software else None
    where = venv or own
    # Jupyter only knows lower case
    name = name.lower() if name else kernel_name(f"{module}-{where.name}" if where else module)
    if not NAME.fullmatch(name):
        raise EbsifError(f"'{name}' can't be the name of a kernel: letters, digits and _ . - only, no . at the start")
    program = Path(os.path.abspath(installation.root)) / INTERPRETER
    if not files.is_there(program):
        raise EbsifError(
            f"{module} can't run kernels: its image has no Python, or it was installed by an earlier "
            f"version of ebsif (install it again: {installation.rebuild})"
        )
    check_package(installation, venv, own)
    newest = None
    if module != shown(installation):
        # nothing has to change when it starts another one
        program, newest = folder / name / "python", interpreter.without_date(installation.root)
    replaced = next((path for path in (venv, own) if path and "$" in str(path)), None)
    if replaced or SUBSTITUTED.search(str(program)):
        part = "$" if replaced else "name in braces"
        raise EbsifError(
            f"Jupyter may replace the {part} in {replaced or program}, and then the kernel can't start: "
            "use a path without it, such as a link"
        )
    kernel = Kernel(folder / name, module, program, venv, own, newest)
    make_room_for(kernel)
    kernel.folder.mkdir(parents=True, exist_ok=True)
    files.replace(kernel.folder / Path(LOGO).name, Path(LOGO).read_bytes())
    write(kernel, module)
    return kernel


def write(kernel: Kernel, module: str) -> None:
    """Write the files of a kernel, which has a directory; a kernel.json that a person has edited is kept aside."""
    if kernel.newest:
        text = interpreter.script(module, interpreter.starting_newest(kernel.newest))
        interpreter.write(kernel.program, text, overwrite=True)
    path, earlier = kernel.folder / "kernel.json", read(kernel.folder)
    if earlier and earlier.module and path.read_text(encoding="utf-8") != text_of(earlier, earlier.module):
        set_aside(path, "kernel.json")
    files.replace(path, text_of(kernel, module))


def text_of(kernel: Kernel, module: str) -> str:
    """Return the kernel.json of a kernel."""
    title = kernel_title(module) + (f", {kernel.where.name}" if kernel.where else "")
    return kernel_spec(
        str(kernel.program), title, module, str(kernel.venv or ""), str(kernel.own or ""), str(kernel.newest or "")
    )


def follow(root: Path, module: str, folders: Iterable[Path]) -> None:
    """Let kernels in these directories start in the installation of a module (V-07)."""
    program = Path(os.path.abspath(root)) / INTERPRETER
    for kernel in filter(None, map(read, folders)):
        if files.is_there(program) and kernel.program != program and not kernel.folder.is_symlink():
            write(replace(kernel, program=program), module)
            output.note(f"the kernel {kernel.folder.name} starts {module} now")


def make_room_for(kernel: Kernel) -> None:
    """Say that a kernel replaces another one of ours; raise EbsifError if it would replace that of another program."""
    earlier = read(kernel.folder)
    if earlier and earlier.module:
        if (earlier.module, earlier.venv, earlier.own) != (kernel.module, kernel.venv, kernel.own):
            whose = earlier.where or earlier.module
            output.note(f"this replaces the kernel {kernel.folder.name} of {output.escape(whose)}")
    elif files.is_there(kernel.folder / "kernel.json"):
        raise EbsifError(f"{kernel.folder} is a kernel of another program: choose another name with --name")
    if kernel.folder.is_symlink():
        # otherwise the files of an installation would be replaced
        kernel.folder.unlink()


def check_package(installation: Installation, venv: Optional[Path], own: Optional[Path]) -> None:
    """Raise EbsifError with the command that adds ipykernel, unless image, user software or environment have it."""
    record = installation.record if own else current.record_of(installation)
    names = {*record.image_versions, *(() if own else record.venv_versions)}
    if own:
        place = next((own / name for name in (SQUASHFS, DIRECTORY) if files.is_there(own / name)), None)
        names |= set(packages(place) if place else ())
    if PACKAGE in names or (venv and any(venv.glob(f"lib/python3*/site-packages/{PACKAGE}-*.dist-info"))):
        return
    where, remedy = places.word(installation), places.adding(installation, PACKAGE)
    if venv:
        where, remedy = str(venv), f"source {shlex.quote(str(venv / 'bin/activate'))}; pip install {PACKAGE}"
    elif own:
        where, remedy = str(own), adding(installation, own)
    raise EbsifError(f"{where} has no {PACKAGE}, which kernels need. To add it: {remedy}")


def adding(installation: Installation, own: Path) -> str:
    """Return the commands that add ipykernel to user software in a directory, with an installed module."""
    module, unpack = shown(installation), ""
    if files.is_there(own / SQUASHFS) or not files.is_there(own / DIRECTORY):
        # as long as the file is there, the module uses it
        unpack = (
            f"unmake-squashfs && rm -f {shlex.quote(str(own / SQUASHFS))}; module unload {module}; "
            f"module load {module}; "
        )
    return f"{installation.load}; {unpack}start-shell -c 'pip install {PACKAGE}'"


def remove(folder: Path, name: str) -> Kernel:
    """Remove a kernel of a module from a directory; raise EbsifError if there is none with this name."""
    kernel = read(folder / name.lower()) if NAME.fullmatch(name.lower()) else None
    if not kernel or not kernel.module:
        known = ", ".join(other.folder.name for other in installed(folder)) or "none"
        raise EbsifError(f"{folder} has no kernel '{name}' of a module (there: {known})")
    if kernel.folder.is_symlink():
        kernel.folder.unlink()
    else:
        shutil.rmtree(kernel.folder)
    return kernel
