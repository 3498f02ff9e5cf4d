"""Look at an image: file, labels, Python and packages, ROCm or CUDA, MPI, network plugin, who makes Python ready."""

import json
import os
from pathlib import Path

from ebsif import inspection, output

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
    yield "size", f"{found.size / 1e9:.2f} GB"
    if found.sha256:
        yield "sha256", found.sha256
    yield "system", found.system or "not known"
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
    yield "made ready by", found.init
    for name in ("WITH_CONDA", "PYTHONPATH", "LD_PRELOAD"):
        if found.environment.get(name):
            yield name, found.environment[name]
    for name, text in found.labels.items():
        yield f"label {name}", text
    yield "definition file", f"{len(found.definition.splitlines())} lines" if found.definition else "none"
