"""Look at an image: what is in it, who makes Python ready, what it starts, what its labels say.

Signatures are named, not verified: `apptainer verify IMAGE` does that, with the keys that you trust.
"""

import json
import os
from pathlib import Path

from ebsif import output
from ebsif.image import inspection

EXAMPLES = """\
  ebsif inspect image.sif              for a person
  ebsif inspect image.sif --json       for a program, with all packages
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("image", metavar="IMAGE", type=Path, help="a SIF file")
    parser.add_argument("--no-checksum", action="store_true", help="do not read all of it for its SHA256")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options):
    """Print what was found; return 0."""
    found = inspection.inspect(options.image, checksum=not options.no_checksum)
    if options.json:
        print(json.dumps(found.data, indent=2))
        return 0
    for name, value in lines(found):
        print(f"{output.plain(name):15} {output.plain(value)}")
    return 0


def lines(found):
    """Yield (name, value) of each line."""
    yield "image", found.path
    if found.resolved != os.path.normpath(found.path):
        yield "  is a link to", found.resolved
    yield "size", output.size(found.size)
    if found.sha256:
        yield "sha256", found.sha256
    for fingerprint in found.signers:
        yield "signed by", f"{fingerprint or 'somebody whose key it does not name'}, not verified"
    yield "system", found.system or "not known"
    if not found.bash:
        yield "  without", "bash, which a module with Python needs"
    for name, version in found.components.items():
        yield name, version
    for path in found.libraries:
        yield "network library", path
    for path in found.plugins:
        yield "network plugin", path
    python = found.python
    if python:
        venv = ", a venv" if python["prefix"] != python["base_prefix"] else ""
        yield "python", f"{python['version']} in {python['prefix']}{venv}"
        if python["missing"]:
            yield "  without", ", ".join(python["missing"])
        yield "packages", f"{len(python['packages'])} (--json lists them)"
    else:
        yield "python", "none"
    for environment in found.conda:
        default = ", the default" if python and python["prefix"] == environment["prefix"] else ""
        version = f" with Python {environment['python']}" if environment["python"] else ""
        yield "conda", f"{environment['prefix']}{version}{default}"
    yield "activation", found.init
    for name in ("WITH_CONDA", "PYTHONPATH", "LD_PRELOAD"):
        if found.environment.get(name):
            yield name, found.environment[name]
    for name, text in found.labels.items():
        yield "label", f"{name}: {text}"
    for name in ("entrypoint", "cmd"):
        if found.entry_point.get(name):
            yield {"entrypoint": "entry point", "cmd": "  with"}[name], found.entry_point[name]
    # Apptainer writes one for who has none
    if found.runscript and not found.entry_point and "There is no runscript defined" not in found.runscript:
        yield "runscript", f"{number_of_lines(found.runscript)}, the last one: {found.runscript.splitlines()[-1]}"
    for name, text in found.apps.items():
        yield "app", f"{name}: {first_line(text)}" if text else name
    if found.help:
        yield "help", f"{number_of_lines(found.help)}: {first_line(found.help)}"
    yield "definition file", number_of_lines(found.definition) if found.definition else "none"


def number_of_lines(text):
    """Return how many lines a text has, for a person."""
    return output.counted(len(text.splitlines()), "line")


def first_line(text):
    """Return the first line of a text that has one (str)."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
