"""Compare the scripts that easyconfigs write with ours, line by line."""

import re
from typing import Optional

from ebsif.catalogue.site import Site

# Words without other commands and files; a quotation may go on in the next line.
WORDS = r"(\"[^\"]*\"|'[^']*'|[^;&|<>\"'])*(\"[^\"]*|'[^']*)?"
TO_STDERR = r"(>&2|1>&2|>2&)"

# Lines that any script may contain: tests and messages.
ANY = (
    r"then|else|fi|do|done|esac", r"exit( [0-9]+)?", r"set [-+][^;&|]*", r"'[^']*' *",
    rf"{TO_STDERR}? *(echo|printf)( {WORDS})?({TO_STDERR} *)?((;|&&) *exit( [0-9]+)?)?",
    r"(if|elif) *(! *)?\[\[? .* \]\]?( *(\|\||&&) *\[\[? .* \]\]?)*( *; *then)?", r"\w+=\$\(basename \"?\$0\"?\)")

RUN = r"(exec )?(singularity|apptainer) "
ACTIVATE = (r"(eval )?\"?\$WITH_CONDA(_VENV)?\"?", r"(source|\.) /runscripts/init-conda-venv",
            r"(source|\.) /\S+/bin/activate( [\w.+-]+)?")
PYTHON = (*ACTIVATE, r"(exec )?python3? \"\$@\"")

# Lines of scripts that ours implement differently.
LINES = {
    "bin/start-shell": (
        r"exec bash( \"\$@\")?", RUN + r"(exec \$SIF bash|shell \$SIF)( \"\$@\")?",
        RUN + r"exec \$SIF bash -c '.*exec bash'",
        r"\$WITH_CONDA ; exec bash( \"\$@\")?"),
    "bin/container-exec": (RUN + r"exec \$SIF \"\$@\"",),
    "bin/container-run": (RUN + r"run \$SIF \"\$@\"",),
    "bin/container-runtime": (RUN + r"\"\$@\"",),
    "wrapper": (RUN + r"exec \$SIF (\$\w+|\"\$\w+\"|[\w.+-]+) \"\$@\"",),
    "bin/make-squashfs": (
        r"cd \"?%\(installdir\)s\"?",
        r"mksquashfs user-software user-software\.squashfs( -processors [0-9]+| -no-\w+)*( \|& grep -v \w+)?"),
    "bin/unmake-squashfs": (r"cd \"?%\(installdir\)s\"?", r"unsquashfs -d (\./)?user-software user-software\.squashfs"),
    "bin/list-packages": (r"pip3? list", RUN + r"exec \$SIF pip3? list"),
    "runscripts/list-packages": (r"pip3? list", RUN + r"exec \$SIF pip3? list"),
    "runscripts/init-conda-venv": ACTIVATE,
    "runscripts/conda-python-simple": PYTHON,
    "runscripts/conda-python-distributed": (
        *PYTHON, r"rocm-smi|nvidia-smi", r"sleep [0-9]+", r"(rm -rf|mkdir -p) \"?\$MIOPEN_USER_DB_PATH\"?",
        r"export MIOPEN_(USER_DB_PATH|CUSTOM_CACHE_DIR)=.*", r"export ROCR_VISIBLE_DEVICES=\$SLURM_LOCALID",
        r"export MASTER_ADDR=\$\(/runscripts/get-master \"?\$SLURM_NODELIST\"?\)", r"export MASTER_PORT=[0-9]+",
        r"export WORLD_SIZE=\$SLURM_(NPROCS|NTASKS)", r"export RANK=\$SLURM_PROCID",
        r"export LOCAL_RANK=\$SLURM_LOCALID"),
    # the first node of Slurm's node list, in Python
    "runscripts/get-master": (
        r"import argparse", r"def get_parser\(\):", r"parser[ .].*", r"formatter_class=.*", r"return parser",
        r"if __name__ == .__main__.:", r"args = parser.*", r"(first_)?(node)?(list)? = .*nodelist.*",
        r"if '\[' in \w+:", r"a = .*split\('\['\)", r"first_node = .*", r"else:", r"print\(first_node\)"),
}
OLD_NAMES = {"runscripts/python-conda-simple": "runscripts/conda-python-simple"}

# Scripts with arbitrary names, recognized by their commands.
KINDS = ("bin/container-runtime", "bin/container-run", "bin/container-exec", "bin/start-shell", "wrapper")


def in_place_of(name: str, text: str) -> Optional[str]:
    """Return the name of our script that replaces this one, 'wrapper', 'requirements', or None."""
    if name in LINES:
        return name
    if name in OLD_NAMES:
        return OLD_NAMES[name]
    if re.search(r"requirements[\w.-]*\.txt\Z", name):
        return "requirements"
    if re.fullmatch(r"bin/[\w.+-]+", name):
        lines = lines_of(text)
        for kind in KINDS:
            if any(re.fullmatch(pattern, line) for pattern in LINES[kind] for line in lines):
                return kind
    return None


def lines_of(text):
    """
    Return the lines of a script that contain commands (list of str).

    Every variable with the image's path becomes `$SIF`; GPU options are removed, because they belong to the site.
    """
    found = []
    for line in text.replace("\\\n", "\n").splitlines():
        line = line.strip()
        # a comment after a command, unless it may be part of a string
        if "'" not in line.partition("#")[2]:
            line = re.sub(r"(\A|\s+)#.*", "", line)
        if line and not line.startswith("#"):
            line = re.sub(r"( exec| run| shell) --(nv|rocm)\b", r"\1", line)
            found.append(re.sub(r"(\"?)\$\{?SIF[A-Z0-9_]*\}?\1", "$SIF", line))
    return found


def strange_lines(ours: str, text: str, site: Site) -> list[str]:
    """
    Return the lines of a script that have no equivalent in ours.

    Parameters
    ----------
    ours
        Our script that replaces it.
    text
        The script.
    site
        The site, whose network variables may be in scripts for distributed runs.
    """
    known = (*ANY, *LINES[ours])
    return [line for line in lines_of(text) if not any(re.fullmatch(pattern, line) for pattern in known)
            and not (ours == "runscripts/conda-python-distributed" and is_of_network(line, site))]


def is_of_network(line, site):
    """Return whether a line sets a network variable to the site's value or an equivalent one."""
    setting = re.fullmatch(r"export (\w+)=[\"']?([^\"'$]*?)[\"']?", line)
    if not setting:
        return False
    name, value = setting.groups()
    wanted = site.network_env.get(name)
    if name == "NCCL_SOCKET_IFNAME" and wanted:
        # NCCL treats each name as a prefix
        return all(interface.startswith(wanted) for interface in value.split(","))
    same = {"PHB": "3"} if name == "NCCL_NET_GDR_LEVEL" else {}
    return wanted is not None and same.get(value, value) == same.get(wanted, wanted)
