"""Show what is in an image: its components, how its Python is activated, its entry point, its labels.

Signatures are listed but not verified: use `apptainer verify IMAGE`, with the keys that you trust.
"""

import json
import os
from pathlib import Path

from easybuild.easyblocks.generic.container.texts import format_size

from ebsif.catalogue.settings import add_settings_arguments
from ebsif.commands.options import add_json
from ebsif.errors import UsageError
from ebsif.images import inspection, remote
from ebsif.images.registry.reference import parse_source
from ebsif.installed.names import Names, add_name_argument
from ebsif.report import output
from ebsif.update.sourced import sourced

EXAMPLES = """\
  ebsif inspect image.sif
  ebsif inspect image.sif --json       # includes all Python packages
  ebsif inspect oras://registry.example/ai/new:3     # what the registry tells, without fetching it
"""


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    add_name_argument(parser, "image", "a SIF file, the source of an image (oras://, docker://, oci: ...), or the "
                      "name of a container", metavar="IMAGE")
    parser.add_argument("--no-checksum", action="store_true",
                        help="don't compute the SHA256, which reads the whole file")
    parser.add_argument("--fetch", metavar="DIRECTORY", type=Path,
                        help="fetch an image that is not here into this directory, and look into it")
    add_json(parser)


def run(options):
    """Print what is in the image; return 0."""
    source = parse_source(options.image) if options.image and remote.is_source(options.image) else None
    found = look(source, options) if source else inspection.inspect(
        Names(options).image(options.image), checksum=not options.no_checksum)
    if options.json:
        print(json.dumps(found.data, indent=2))
        return 0
    for name, value in lines(found):
        print(f"{output.escape(name):15} {output.escape(value)}")
    return 0


def look(source, options):
    """Return what is known of an image that is not here (Inspection), after fetching it if that is wanted."""
    if options.fetch:
        return sourced(source, [], options.fetch, whole=True).found
    if not remote.is_readable(source):
        raise UsageError(f"{source} tells nothing about the image before it is fetched: add --fetch DIRECTORY")
    known = remote.look(source)
    output.note(f"{options.image} is not fetched ({format_size(known.layers)}): its content is unknown (--fetch "
                "DIRECTORY)")
    if source.digest is None:
        output.note(f"{options.image} is {known.source.digest} today, and may be another image tomorrow")
    return known.named(known.default)


def lines(found):
    """Yield (name, value) of each line."""
    yield from lines_of_file(found)
    if found.init:
        yield from lines_of_system(found)
        yield from lines_of_python(found)
    yield from lines_of_bill(found)
    for name, text in found.labels.items():
        yield "label", f"{name}: {text}"
    yield from lines_of_programs(found)
    if found.init:
        yield "definition file", number_of_lines(found.definition) if found.definition else "none"


def lines_of_file(found):
    """Yield the lines about the file of the image."""
    yield "image", found.path
    if found.source and found.source != found.path:
        yield "  fetched from", found.source
    if found.created:
        yield "created", found.created
    if not found.source and found.resolved != os.path.normpath(found.path):
        yield "  is a link to", f"{found.resolved}, and may stand for another image tomorrow"
    if found.size:
        yield "size", format_size(found.size)
    if found.sha256:
        yield "sha256", found.sha256
    for fingerprint in found.signers:
        yield "signed by", f"{fingerprint or 'a key without a fingerprint'}, not verified"


def lines_of_system(found):
    """Yield the lines about system, components and libraries."""
    yield "system", found.system or "unknown"
    if not found.bash:
        yield "  without", "bash, which a module with Python needs"
    yield from found.components.items()
    for path in found.libraries:
        yield "network library", path
    for path in found.plugins:
        yield "network plugin", path


def lines_of_python(found):
    """Yield the lines about Python and its activation."""
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


def lines_of_bill(found):
    """Yield the line about the packages that the image lists itself."""
    if found.listed:
        counted = ", ".join(f"{len(packages)} {kind}" for kind, packages in found.listed.items())
        yield "bill", f"{found.listed_in} lists packages: {counted}"


def lines_of_programs(found):
    """Yield the lines about the image's programs and its help."""
    for name in ("entrypoint", "cmd"):
        if found.entry_point.get(name):
            yield {"entrypoint": "entry point", "cmd": "  with"}[name], found.entry_point[name]
    # Apptainer adds one to images that have none
    if found.runscript and not found.entry_point and "There is no runscript defined" not in found.runscript:
        yield "runscript", f"{number_of_lines(found.runscript)}, the last one: {found.runscript.splitlines()[-1]}"
    for name, text in found.apps.items():
        yield "app", f"{name}: {first_line(text)}" if text else name
    if found.help:
        yield "help", f"{number_of_lines(found.help)}: {first_line(found.help)}"


def number_of_lines(text):
    """Return how many lines a text has (str): 1 line, 2 lines."""
    return output.format_count(len(text.splitlines()), "line")


def first_line(text):
    """Return the first line of a text that is not blank (str)."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
