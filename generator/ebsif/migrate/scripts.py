"""The scripts that easyconfigs write and ours replace, by their names or by how they start the container."""

import re
from typing import Optional

from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS

OURS = (
    "bin/start-shell",
    "bin/container-exec",
    "bin/container-run",
    "bin/container-runtime",
    "bin/make-squashfs",
    "bin/unmake-squashfs",
    "bin/list-packages",
    "runscripts/list-packages",
    "runscripts/init-conda-venv",
    "runscripts/conda-python-simple",
    "runscripts/conda-python-distributed",
    "runscripts/get-master",
)
OLD_NAMES = {"runscripts/python-conda-simple": "runscripts/conda-python-simple"}

# Scripts with arbitrary names, known by the command that starts the container.
KINDS = {
    "bin/container-runtime": r'"\$@"',
    "bin/container-run": r'run "?\$SIF"? "\$@"',
    "bin/container-exec": r'exec "?\$SIF"? "\$@"',
    "bin/start-shell": r'(shell "?\$SIF"?|exec "?\$SIF"? bash)\b',
    "wrapper": r'exec "?\$SIF"? \S+ "\$@"',
}

# Options of the runtime for GPUs, which the module sets.
GPU_OPTIONS = re.compile(rf" ({'|'.join(re.escape(one.option) for one in GPU_KINDS.values())})\b")


def in_place_of(name: str, text: str) -> Optional[str]:
    """Return the name of our script that replaces this one, 'wrapper', 'requirements', or None."""
    if name in OURS or name in OLD_NAMES:
        return OLD_NAMES.get(name, name)
    if re.search(r"requirements[\w.-]*\.txt\Z", name):
        return "requirements"
    if re.fullmatch(r"bin/[\w.+-]+", name):
        # one name for every variable with the image's path
        text = re.sub(r"\$\{?SIF[A-Z0-9_]*\}?", "$SIF", GPU_OPTIONS.sub("", text))
        return next(
            (kind for kind, call in KINDS.items() if re.search(rf"(?m)^[^#\n]*\b(singularity|apptainer) {call}", text)),
            None,
        )
    return None
