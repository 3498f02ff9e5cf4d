"""The scripts that easyconfigs write and ours replace; what theirs do beyond ours is listed command by command."""

import re
import shlex
from typing import Optional

from ebsif.catalog.site import Site

RUN = r"(exec )?(singularity|apptainer)( exec| shell| run)?( --nv| --rocm)?"
ACTIVATE = (
    r"(eval )?\$WITH_CONDA(_VENV)?",
    r"(source|\.) /runscripts/init-conda-venv",
    r"(source|\.) /\S+/bin/activate( [\w.+-]+)?",
)
PYTHON = (*ACTIVATE, r"(exec )?python3? \$@")
LIST_PACKAGES = (r"pip3? list", rf"{RUN} \$SIF pip3? list")

# Commands of each script that ours run in their own way, without quotes; those of get-master are Python.
OURS = {
    "bin/start-shell": (*ACTIVATE, r"exec bash( \$@)?", rf"{RUN} \$SIF( bash)?( \$@| -c .*exec bash)?"),
    "bin/container-exec": (r"(singularity|apptainer) exec \$SIF \$@",),
    "bin/container-run": (r"(singularity|apptainer) run \$SIF \$@",),
    "bin/container-runtime": (r"(singularity|apptainer) \$@",),
    "wrapper": (r"\w+=\$\(basename \$0\)", rf"{RUN} \$SIF (\$\w+|[\w.+-]+) \$@"),
    "bin/make-squashfs": (
        r"cd %\(installdir\)s",
        r"mksquashfs user-software user-software\.squashfs( -[a-z].*)?",
        r"grep -v \w+",
    ),
    "bin/unmake-squashfs": (r"cd %\(installdir\)s", r"unsquashfs -d (\./)?user-software user-software\.squashfs"),
    "bin/list-packages": LIST_PACKAGES,
    "runscripts/list-packages": LIST_PACKAGES,
    "runscripts/init-conda-venv": ACTIVATE,
    "runscripts/conda-python-simple": PYTHON,
    "runscripts/conda-python-distributed": (
        *PYTHON,
        r"rocm-smi|nvidia-smi",
        r"sleep [0-9]+",
        r"(rm -rf|mkdir -p) \$MIOPEN_USER_DB_PATH",
        r"export (MIOPEN_USER_DB_PATH|MIOPEN_CUSTOM_CACHE_DIR|MASTER_ADDR|MASTER_PORT|WORLD_SIZE)=.*",
        r"export (ROCR_VISIBLE_DEVICES|RANK|LOCAL_RANK)=\$SLURM_(LOCALID|PROCID)",
    ),
    "runscripts/get-master": (),
}
OLD_NAMES = {"runscripts/python-conda-simple": "runscripts/conda-python-simple"}

# Scripts with arbitrary names, known by the command that starts the container.
KINDS = {
    "bin/container-runtime": r'"\$@"',
    "bin/container-run": r'run "?\$SIF"? "\$@"',
    "bin/container-exec": r'exec "?\$SIF"? "\$@"',
    "bin/start-shell": r'(shell "?\$SIF"?|exec "?\$SIF"? bash)\b',
    "wrapper": r'exec "?\$SIF"? \S+ "\$@"',
}

# Tests and messages, which any script may have; words before a command.
HARMLESS = ("[", "[[", "echo", "printf", "set", "exit", "fi", "done", "esac", "true", ":")
KEYWORDS = ("if", "elif", "then", "else", "!", "do")


def in_place_of(name: str, text: str) -> Optional[str]:
    """Return the name of our script that replaces this one, 'wrapper', 'requirements', or None."""
    if name in OURS or name in OLD_NAMES:
        return OLD_NAMES.get(name, name)
    if re.search(r"requirements[\w.-]*\.txt\Z", name):
        return "requirements"
    if re.fullmatch(r"bin/[\w.+-]+", name):
        text = re.sub(r" --(nv|rocm)\b", "", image_named(text))
        return next(
            (kind for kind, call in KINDS.items() if re.search(rf"(?m)^[^#\n]*\b(singularity|apptainer) {call}", text)),
            None,
        )
    return None


def image_named(text: str) -> str:
    """Return a script with `$SIF` for every variable with the image's path."""
    return re.sub(r"\$\{?SIF[A-Z0-9_]*\}?", "$SIF", text)


def strange_commands(ours: str, text: str, site: Site) -> list[str]:
    """Return the commands of a script, without quotes, that have no equivalent in ours."""
    if ours == "runscripts/get-master":
        return []
    try:
        commands = commands_of(image_named(text))
    except ValueError as error:
        return [f"all of it, which can't be read: {error}"]
    return [
        command
        for command in commands
        if not any(re.fullmatch(known, command) for known in OURS[ours])
        and not (ours == "runscripts/conda-python-distributed" and is_of_network(command, site))
    ]


def commands_of(text: str) -> list[str]:
    """Return the commands of a shell script without quotes, tests and messages. Raise ValueError for an open quote."""
    text = re.sub(r"(?m)(^|\s)#.*$", r"\1", text.replace("\\\n", " "))
    text = re.sub(r"[12]?>&[12]|>2&|\|&", lambda match: "|" if match.group() == "|&" else " ", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&<>\n")
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "", " \t\r", True
    commands: list[list[str]] = [[]]
    for token in lexer:
        if token and not token.strip(";|&\n"):
            commands.append([])
        elif commands[-1] or token not in KEYWORDS:
            commands[-1].append(token)
    return [
        " ".join(words)
        for words in commands
        if words and (words[0] not in HARMLESS or any(not word.strip("<>") for word in words if word))
    ]


def is_of_network(command: str, site: Site) -> bool:
    """Return whether a command sets a network variable to the site's value."""
    name, _, value = command.removeprefix("export ").partition("=")
    wanted = site.network_env.get(name)
    # NCCL takes each name of an interface as a prefix
    return wanted is not None and all(part.startswith(wanted) for part in value.split(","))
