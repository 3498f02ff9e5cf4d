"""The modules tool of this machine, Lmod or Environment Modules, run through the scripts in sh/."""

import os
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).parent / "sh"


def command(environment=os.environ):
    """Return the program of the modules tool (str), empty if there is none."""
    return environment.get("LMOD_CMD") or environment.get("MODULES_CMD") or ""


def run(script, *modules, environment=None):
    """Run a script with the modules tool and names of modules as arguments (subprocess.CompletedProcess of bytes)."""
    return subprocess.run(  # noqa: S603
        ["/bin/bash", "--noprofile", "--norc", str(SCRIPTS / script), command(environment or os.environ), *modules],
        env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL)


def entries(output):
    """Return the environment (dict) that a script printed, or a part of that."""
    return dict(entry.split("=", 1) for entry in os.fsdecode(output).split("\0") if "=" in entry)
