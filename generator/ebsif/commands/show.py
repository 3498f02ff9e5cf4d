"""Show the details of a container: its components, its programs, where its image is, how to install and load it.

For an installed module, also the packages that were added, as they are now. The name of a software is its newest
version that is not archived; `ebsif list NAME` lists all of them.

For an image (a file, or where it is: oras://, docker://, oci: ...): its components, how its Python is activated, its
entry point, its labels. Signatures are listed but not verified: use `apptainer verify IMAGE`, with the keys that you
trust.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.image.source import ImageSource
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.values import format_size

from ebsif.catalog.container import Container
from ebsif.catalog.explain import explain
from ebsif.catalog.packagenames import DEFAULT_BADGES
from ebsif.catalog.summary import as_data, format_components
from ebsif.commands.options import add_json, add_name, add_settings, names_of, settings_of
from ebsif.errors import EbsifError, UsageError
from ebsif.files import IMAGES, is_there
from ebsif.images import description, inspection, remote
from ebsif.images.registry.reference import parse_source
from ebsif.installed import current, imagestate
from ebsif.installed.names import Names
from ebsif.installed.places import Installation, shown
from ebsif.render import easyconfig
from ebsif.render.rendering import for_eb
from ebsif.report import output
from ebsif.report.output import format_count
from ebsif.report.table import print_table
from ebsif.scan.sourced import sourced
from ebsif.text import without_end

# characters of half a screen
HALF = 44

EXAMPLES = """\
  ebsif show --site lumi PyTorch/2.7.0
  ebsif show --site lumi PyTorch/2.7.0 --explain   # which file and line each value comes from
  ebsif show --site lumi PyTorch/2.7.0 --json
  ebsif show image.sif
  ebsif show image.sif --json       # includes all Python packages
  ebsif show oras://registry.example/ai/new:3     # from the registry, without fetching it
"""
# files that are no images
OTHER_FILES = (".eb", ".json")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "name", "an image or a container")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show each value of a container of the catalog, with the file and line it comes from",
    )
    image = parser.add_argument_group("for an image")
    image.add_argument(
        "--no-checksum", action="store_true", help="don't compute the SHA256, which reads the whole file"
    )
    image.add_argument(
        "--fetch",
        metavar="DIRECTORY",
        type=Path,
        help="fetch an image that is not here into this directory, and look into it",
    )
    add_json(parser)


def run(options: Namespace) -> int:
    """Print the details; return 0."""
    if options.name and is_image(options.name):
        return show_image(options)
    names = names_of(options)
    container, installation = record_and_installation(names, options.name)
    if options.explain:
        return print_origins(container, options)
    if options.json:
        print(
            json.dumps(complete(container, installation) if container else installation.record, indent=2, default=vars)
        )
        return 0
    for name, value in (
        lines(container, installation, settings_of(options).output)
        if container
        else lines_of_installation(installation)
    ):
        output.print_field(name, value, 16)
    return 0


def is_image(text: str) -> bool:
    """Return whether a name is that of an image file, or says where an image is."""
    return remote.is_source(text) or text.endswith(IMAGES) or (Path(text).is_file() and not text.endswith(OTHER_FILES))


def show_image(options: Namespace) -> int:
    """Print what is in an image; return 0."""
    if remote.is_source(options.name):
        image = look(parse_source(options.name), options)
    else:
        image = inspection.inspect(Path(options.name), checksum=not options.no_checksum)
    if options.json:
        print(json.dumps(image.data, indent=2))
        return 0
    for name, value in description.lines(image):
        output.print_field(name, value, 16)
    return 0


def look(source: ImageSource, options: Namespace) -> inspection.Inspection:
    """Return what is known of an image that is not here (Inspection), after fetching it if that is wanted."""
    if options.fetch:
        return sourced(source, [], options.fetch, whole=True).found
    if not remote.is_readable(source):
        raise UsageError(f"{source} has no information about the image before it is fetched: add --fetch DIRECTORY")
    known = remote.look(source)
    output.note(
        f"{options.name} is not fetched ({format_size(known.layers)}): its content is unknown (--fetch DIRECTORY)"
    )
    if source.digest is None:
        output.note(f"{options.name} is {known.source.digest} today; the tag can change")
    return known.named(known.default)


def print_origins(container: Optional[Container], options: Namespace) -> int:
    """Print where each value of a container comes from; return 0. Raise EbsifError if no record has it."""
    if not container:
        raise EbsifError(
            f"the catalog has no {options.name or 'record of the loaded module'}, so there is nothing to explain"
        )
    rows = explain(container, settings_of(options))
    if options.json:
        print(json.dumps([origin._asdict() for origin in rows], indent=2))
    else:
        print_table(["FIELD", "VALUE", "FROM"], [[*map(shortened, origin[:2]), origin.place] for origin in rows])
    return 0


def shortened(value: str) -> str:
    """Return a value on one line, shortened to half a screen."""
    return without_end(" ".join(value.split("\n")), HALF)


def record_and_installation(names: Names, text: Optional[str]) -> tuple[Optional[Container], Any]:
    """Return the record in the catalog and the installation of a module, one of which may be None."""
    thing = names.find(text)
    if isinstance(thing, Path):
        raise EbsifError(f"{thing} is no image: `ebsif diff` compares easyconfigs and locks")
    if isinstance(thing, Installation):
        return names.record_of(thing), thing
    return thing, names.installed_as(thing.module)


def lines_of_installation(installation: Installation) -> Iterator[tuple[str, object]]:
    """Yield (name, value) for each line about an installed module that the catalog doesn't have."""
    record = current.record_of(installation)
    yield shown(installation), ""
    if installation.base:
        yield "extends", installation.base
    yield "in the image", in_image(record)
    image = record.image
    yield "image", imagestate.path_of(installation) or f"{image.file}, which is gone: install the module again"
    if image.source_digest:
        yield "  fetched from", image.source
    if image.verified:
        yield "  signed by", ", ".join(image.verified)
    yield from lines_of_use(installation, record)


def lines_of_use(installation: Installation, record: lockfile.Record) -> Iterator[tuple[str, object]]:
    """Yield (name, value) for each line about what was added to an installed module, and how to use it."""
    packages = lockfile.versions_in(record.venv_packages)
    if record.system_layer.requested:
        yield "system packages", record.system_layer.summary
    yield from lines_of_host(sorted(record.host_libraries.libraries), sorted(record.host_programs.programs))
    yield "added packages", ", ".join(f"{name} {version}" for name, version in packages.items()) or "none"
    for text in record.replacements:
        yield "replaced", text
    yield "installed", f"{installation.date.isoformat()} in {installation.root}"
    yield "load", installation.load
    programs = installation.programs
    if programs:
        yield "run", ", ".join(programs)
    yield "  in it" if programs else "run", "singularity exec $SIF COMMAND"


def lines_of_host(libraries: Sequence[str], programs: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield (name, value) for each line about what comes from the host."""
    if libraries:
        yield "of the host", f"{', '.join(libraries)} (libraries)"
    if programs:
        yield "of the host", f"{', '.join(programs)} (they start programs there)"


def in_image(record: lockfile.Record) -> str:
    """Return what is in the image of an installed module: the packages that decide, and how many there are."""
    versions = record.image_versions
    chosen = [f"{label} {versions[name]}" for name, label in DEFAULT_BADGES.items() if name in versions]
    return ", ".join(chosen + [format_count(len(versions), "Python package")])


def complete(container: Container, installation: Optional[Installation]) -> dict[str, Any]:
    """Return everything that is known about a container (dict)."""
    data = {**as_data(container), "installed": str(installation.root) if installation else None}
    data["images"] = [
        {"path": str(path), "stability": stability, "is_there": is_there(path)}
        for stability, path in container.image_places
    ]
    data["parameters"] = easyconfig.parameters(container)
    return data


def lines(container: Container, installation: Optional[Installation], directory: Path) -> Iterator[tuple[str, object]]:
    """Yield (name, value) for each line about a container: installed, or with an easyconfig in a directory."""
    binds = container.all_binds
    yield container.module, ""
    yield "in the image", format_components(container) or "not recorded"
    yield "python", container.python or "none"
    yield "image", container.file_name
    for stability, path in container.image_places:
        yield "  searched in", f"{path.parent} ({stability}): {'found' if is_there(path) else 'not found'}"
    if container.source:
        yield "  fetched from", container.source
    if not container.image_places and not container.source:
        yield "  searched in", "EasyBuild's source paths (the site has no image directories)"
    yield "binds", ", ".join([*binds.required, *(f"{bind} (optional)" for bind in binds.optional)]) or "none"
    if not installation:
        host = easyconfig.of_host(container)
        yield from lines_of_host(host["host_libraries"].get("libraries", []), host["host_programs"].get("programs", []))
    if easyconfig.caches_of(container):
        yield "caches", "per job on the node in " + " or ".join(container.site.caches.node)
        yield "  kept in", " or ".join(container.site.caches.project) or "the home directory (no other in the profile)"
    yield "user software", "yes, in a venv" if container.venv else "no"
    if container.system_packages and not installation:
        yield "system packages", ", ".join(container.system.packages)
    wrappers = easyconfig.wrappers(container)
    if wrappers and not installation:
        yield "programs", ", ".join(wrappers) if isinstance(wrappers, list) else "all of its environment"
    if container.history:
        yield "history", container.history
    if container.archived:
        yield "archived", container.archive_message
    if installation and installation.damage:
        yield "installed", f"in {installation.root}, but {installation.damage}"
        yield "  what to do", installation.repair
        return
    if installation:
        yield from lines_of_use(installation, current.record_of(installation))
        return
    yield "installed", "not here"
    yield "install", f"ebsif install {container.module}" if container.is_own else f"eb {for_eb(container, directory)}"
    yield "load", f"module load {container.module}"
