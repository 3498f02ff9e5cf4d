"""The command line of the runtime that does what a container module does, for those who do without the module."""

import os
import shlex
import subprocess

from ebsif.errors import EbsifError

# variables of the module that change what the runtime does, by the option that says the same
PREFIXES = ("APPTAINER", "SINGULARITY")


class ModuleError(EbsifError):
    """A module can't be looked at; the message says why and what to do."""


def of_module(module):
    """
    Return the command line.

    Parameters
    ----------
    module : str
        Name of a container module that the modules tool finds.

    Returns
    -------
    str
        ``singularity exec`` with options and image, quoted for a shell; the command to run goes behind it.

    Raises
    ------
    ModuleError
        If there is no modules tool, no such module, or it is none of a container.
    """
    before = dict(os.environ)
    after = environment_with(module)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if "SIF" not in changed:
        raise ModuleError(f"{module} is not the module of a container, or it is loaded already: unload it first")
    words = ["singularity", "exec"]
    binds = changed.get("APPTAINER_BINDPATH")
    if binds:
        words += ["-B", binds]
    overlays = changed.get("APPTAINER_OVERLAY")
    if overlays:
        words += ["--overlay", overlays]
    for option in ("NV", "ROCM"):
        if f"APPTAINER_{option}" in changed:
            words.append(f"--{option.lower()}")
    variables = [
        f"{prefix}ENV_{name}={shlex.quote(changed[f'{prefix}ENV_{name}'])}"
        for name in sorted(key[len("APPTAINERENV_") :] for key in changed if key.startswith("APPTAINERENV_"))
        for prefix in PREFIXES
    ]
    words.append(changed["SIF"])
    if "CONTAINER_ENTRY_POINT" in changed:
        words.append(changed["CONTAINER_ENTRY_POINT"])
    # variables as a prefix: the runtimes read them the same way there as from the module
    return " ".join(["env", *variables, *map(shlex.quote, words)])


def environment_with(module):
    """Return the environment (dict) that a shell has after loading a module."""
    if os.environ.get("LMOD_CMD"):
        command = '"$LMOD_CMD" bash load "$1"'
    elif os.environ.get("MODULES_CMD"):
        command = '"$MODULES_CMD" bash load "$1"'
    else:
        raise ModuleError("no modules tool found (neither LMOD_CMD nor MODULES_CMD is set): start a login shell, or "
                          "source the init script of Lmod or Environment Modules")
    # what the modules tool prints is for a shell to evaluate; the name of the module reaches it as an argument
    script = f'code=$({command}) || exit; eval "$code" || exit; env -0'
    result = subprocess.run(  # noqa: S603
        ["/bin/bash", "--noprofile", "--norc", "-c", script, "bash", module], capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL,
    )
    entries = [entry.split("=", 1) for entry in result.stdout.split("\0") if "=" in entry]
    environment = dict(entries)
    if result.returncode or "SIF" not in environment:
        said = result.stderr.strip() or "it sets no SIF"
        raise ModuleError(f"the module {module} can't be loaded: {said}")
    return environment
