"""The modules tool of this machine, Lmod or Environment Modules, run through the scripts in sh/."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

SCRIPTS = Path(__file__).parent / "sh"


def command(environment: Mapping[str, str] = os.environ) -> str:
    """Return the program of the modules tool; empty if there is none."""
    return environment.get("LMOD_CMD") or environment.get("MODULES_CMD") or ""


def run(script: str, *modules: str,
        environment: Optional[Mapping[str, str]] = None) -> subprocess.CompletedProcess[bytes]:
    """Run a script with the modules tool, with names of modules as arguments."""
    return subprocess.run(  # noqa: S603
        ["/bin/bash", "--noprofile", "--norc", str(SCRIPTS / script), command(environment or os.environ), *modules],
        env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL)


def entries(output: bytes) -> dict[str, str]:
    """Return the environment variables that a script has printed."""
    return dict(entry.split("=", 1) for entry in os.fsdecode(output).split("\0") if "=" in entry)
