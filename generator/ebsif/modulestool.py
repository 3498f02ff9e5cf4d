"""The modules tool of this machine, Lmod or Environment Modules, run through the scripts in sh/."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from ebsif import processes

LONGEST = 120  # seconds; without a cache, Lmod reads all module files
SCRIPTS = Path(__file__).parent / "sh"


def command(environment: Mapping[str, str] = os.environ) -> str:
    """Return the program of the modules tool; empty if there is none."""
    return environment.get("LMOD_CMD") or environment.get("MODULES_CMD") or ""


def run(script: str, *modules: str,
        environment: Optional[Mapping[str, str]] = None) -> subprocess.CompletedProcess[str]:
    """Run a script with the modules tool for modules; raise NoAnswer if that takes longer than LONGEST seconds."""
    program = command(environment or os.environ)
    return processes.run(["/bin/bash", "--noprofile", "--norc", SCRIPTS / script, program, *modules], LONGEST,
                         name=f"the modules tool ({program}, for {' '.join(modules)})", environment=environment)


def entries(output: str) -> dict[str, str]:
    """Return the environment variables that a script has printed."""
    return dict(entry.split("=", 1) for entry in output.split("\0") if "=" in entry)
