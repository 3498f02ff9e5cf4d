"""Build the command line of the container runtime that is equivalent to a module, for use without the module."""

import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS

from ebsif import modulestool
from ebsif.errors import EbsifError
from ebsif.files import is_there
from ebsif.installed.places import Installation

# the module's variables that change what the runtime does, with the equivalent option
PREFIXES = ("APPTAINER", "SINGULARITY")


class ModuleError(EbsifError):
    """A module can't be examined; the message says why and what to do."""


def command_line(module: str, directory: Optional[Path] = None) -> str:
    """Return ``singularity exec`` with the options and the image of a module, quoted for a shell."""
    before, after = environments(module, directory)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if "SIF" not in changed:
        raise ModuleError(f"{module} is not the module of a container")
    words = ["singularity", "exec"]
    for option, variable in (("-B", "APPTAINER_BINDPATH"), ("--overlay", "APPTAINER_OVERLAY")):
        if changed.get(variable):
            words += [option, changed[variable]]
    words += [one.option for one in GPU_KINDS.values() if f"APPTAINER_{one.option.lstrip('-').upper()}" in changed]
    variables = [
        f"{prefix}ENV_{name}={shlex.quote(after[f'{prefix}ENV_{name}'])}"
        for name in sorted(key[len("APPTAINERENV_") :] for key in changed if key.startswith("APPTAINERENV_"))
        for prefix in PREFIXES
    ]
    words.append(changed["SIF"])
    if "EBSIF_ENTRY_POINT" in changed:
        words.append(changed["EBSIF_ENTRY_POINT"])
    # as variables before the command, because the runtimes then read them as they do with the module
    return " ".join(["env", *variables, *map(shlex.quote, words)])


def inside(installation: Installation, command: Sequence[str]) -> list[str]:
    """Return the words that run a command in the container of an installation, as if its module were loaded here."""
    start, runs = installation.root / "bin/with-module", installation.root / "share/ebsif/run.bash"
    if not (is_there(start) and is_there(runs)):
        raise ModuleError(
            f"{installation.module} was installed by an earlier version of ebsif: install it again with "
            f"`{installation.rebuild}`"
        )
    # not a `bash` of the module, which runs in the container
    return [str(start), "/bin/bash", "-p", str(runs), *command]


def is_available(module: str, *loaded: str) -> Optional[bool]:
    """Return whether the modules tool finds a module after others are loaded, or None without a modules tool."""
    return modulestool.run("is-available.bash", module, *loaded).returncode == 0 if modulestool.command() else None


def check_modules_tool() -> None:
    """Raise ModuleError if there is no modules tool."""
    if not modulestool.command():
        raise ModuleError(
            "no modules tool found (neither LMOD_CMD nor MODULES_CMD is set): start a login shell, or "
            "source the init script of Lmod or Environment Modules"
        )


def environments(
    module: str, directory: Optional[Path], without: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return the environments of a shell without (even if it is loaded here) and with a module.

    Variables with the names in `without` are unset in both. The user's own settings for the runtime are unset first,
    because modules merge these with their own.
    """
    check_modules_tool()
    paths = [path for path in os.environ.get("MODULEPATH", "").split(":") if path]
    if directory:
        # first, because another directory may have a module of the same name
        paths = [str(directory), *(path for path in paths if path != str(directory))]
    environment = {name: text for name, text in os.environ.items() if name not in without}
    result = modulestool.run("environments.bash", module, environment={**environment, "MODULEPATH": ":".join(paths)})
    unloaded, _, loaded = result.stdout.partition("\0\0")
    before, after = modulestool.entries(unloaded), modulestool.entries(loaded)
    if result.returncode or "SIF" not in after:
        raise ModuleError(f"the module {module} can't be loaded: {result.stderr.strip() or 'it sets no SIF'}")
    return before, after
