"""What is in an image, as lines for people."""

import os
from collections.abc import Iterator

from easybuild.easyblocks.generic.container.values import format_size

from ebsif.images.inspection import Inspection


def lines(found: Inspection) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for each line about an image."""
    yield from lines_of_file(found)
    if found.init:
        yield from lines_of_system(found)
        yield from lines_of_python(found)
    yield from lines_of_bill(found)
    for name, text in found.labels.items():
        yield "label", f"{name}: {text}"
    for title, name in (("entry point", "entrypoint"), ("  with", "cmd")):
        if found.entry_point.get(name):
            yield title, found.entry_point[name]


def lines_of_file(found: Inspection) -> Iterator[tuple[str, str]]:
    """Yield the lines about the file of the image."""
    yield "image", found.path
    if found.source and found.source != found.path:
        yield "  fetched from", found.source
    if found.created:
        yield "created", found.created
    if not found.source and found.resolved != os.path.normpath(found.path):
        yield "  is a link to", f"{found.resolved}, which can change"
    if found.size:
        yield "size", format_size(found.size)
    if found.sha256:
        yield "sha256", found.sha256
    for fingerprint in found.signers:
        yield "signed by", f"{fingerprint or 'a key without a fingerprint'}, not verified"


def lines_of_system(found: Inspection) -> Iterator[tuple[str, str]]:
    """Yield the lines about system, components and libraries."""
    yield "system", found.system or "unknown"
    if not found.bash:
        yield "  without", "bash, which a module with Python needs"
    if found.release:
        yield "release", found.release
    yield from found.components.items()
    for path in found.libraries:
        yield "network library", path
    for path in found.plugins:
        yield "network plugin", path


def lines_of_python(found: Inspection) -> Iterator[tuple[str, str]]:
    """Yield the lines about Python and its activation."""
    python = found.python
    if python:
        yield "python", f"{python.version} in {python.prefix}{', a venv' if python.is_venv else ''}"
        if python.missing:
            yield "  without", ", ".join(python.missing)
        yield "packages", f"{len(python.packages)} (--json lists them)"
    else:
        yield "python", "none"
    for environment in found.conda:
        default = ", the default" if python and python.prefix == environment.prefix else ""
        version = f" with Python {environment.python}" if environment.python else ""
        yield "conda", f"{environment.prefix}{version}{default}"
    yield "activation", found.init
    for name in ("WITH_CONDA", "PYTHONPATH", "LD_PRELOAD"):
        if found.environment.get(name):
            yield name, found.environment[name]


def lines_of_bill(found: Inspection) -> Iterator[tuple[str, str]]:
    """Yield the line about the packages that the image lists itself."""
    if found.listed:
        counted = ", ".join(f"{len(packages)} {kind}" for kind, packages in found.listed.items())
        yield "bill", f"{found.listed_in} lists packages: {counted}"
