"""Show the details of a container: its components, where its image is, and how to install it.

For an installed module that is not in the catalogue: its packages as they are now, its image, and how to load it.

For an image (a file, or where it is: oras://, docker://, oci: ...): its components, how its Python is activated, its
entry point, its labels. Signatures are listed but not verified: use `apptainer verify IMAGE`, with the keys that you
trust.
"""

import json
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.texts import format_size, normal_name

from ebsif.catalogue.container import Container
from ebsif.catalogue.settings import read_settings
from ebsif.catalogue.summary import as_data, format_components
from ebsif.commands.options import add_json, add_name, add_settings
from ebsif.errors import UsageError
from ebsif.files import is_there
from ebsif.images import description, inspection, remote
from ebsif.images.registry.reference import parse_source
from ebsif.installed import current, imagestate, lock
from ebsif.installed.names import Names, NamingError, shown
from ebsif.publish.pages.entry import DEFAULT_BADGES
from ebsif.render import easyconfig
from ebsif.render.rendering import for_eb
from ebsif.report import output
from ebsif.report.output import format_count
from ebsif.update.sourced import sourced

EXAMPLES = """\
  ebsif show --site lumi PyTorch/2.7.0
  ebsif show --site lumi PyTorch/2.7.0 --json
  ebsif show image.sif
  ebsif show image.sif --json       # includes all Python packages
  ebsif show oras://registry.example/ai/new:3     # what the registry tells, without fetching it
"""
# files that are no images
OTHER_FILES = (".eb", ".json")


def configure(parser):
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "name", "an image or a container")
    image = parser.add_argument_group("for an image")
    image.add_argument("--no-checksum", action="store_true",
                       help="don't compute the SHA256, which reads the whole file")
    image.add_argument("--fetch", metavar="DIRECTORY", type=Path,
                       help="fetch an image that is not here into this directory, and look into it")
    add_json(parser)


def run(options):
    """Print the details; return 0."""
    if options.name and is_image(options.name):
        return show_image(options)
    found = Names(options).find_all(options.name)
    for one in found:
        if isinstance(one, Path):
            raise NamingError(f"{one} is no image: `ebsif diff` compares easyconfigs and locks")
    if options.json:
        print(json.dumps([complete(one) if isinstance(one, Container) else one.record for one in found], indent=2))
        return 0
    directory = read_settings(options).output
    for number, one in enumerate(found):
        if number:
            print()
        for name, value in lines(one, directory) if isinstance(one, Container) else lines_of_installation(one):
            print(f"{name:16}{value}".rstrip())
    return 0


def is_image(text):
    """Return whether a name is that of an image file, or says where an image is."""
    return remote.is_source(text) or text.endswith(".sif") or Path(text).is_file() and not text.endswith(OTHER_FILES)


def show_image(options):
    """Print what is in an image; return 0."""
    if remote.is_source(options.name):
        image = look(parse_source(options.name), options)
    else:
        image = inspection.inspect(Path(options.name), checksum=not options.no_checksum)
    if options.json:
        print(json.dumps(image.data, indent=2))
        return 0
    for name, value in description.lines(image):
        print(f"{output.escape(name):15} {output.escape(value)}")
    return 0


def look(source, options):
    """Return what is known of an image that is not here (Inspection), after fetching it if that is wanted."""
    if options.fetch:
        return sourced(source, [], options.fetch, whole=True).found
    if not remote.is_readable(source):
        raise UsageError(f"{source} tells nothing about the image before it is fetched: add --fetch DIRECTORY")
    known = remote.look(source)
    output.note(f"{options.name} is not fetched ({format_size(known.layers)}): its content is unknown (--fetch "
                "DIRECTORY)")
    if source.digest is None:
        output.note(f"{options.name} is {known.source.digest} today; the tag can change")
    return known.named(known.default)


def lines_of_installation(one):
    """Yield (name, value) for each line about an installed module."""
    record = current.record_of(one)
    packages = lock.pins(record.get(lockfile.VENV_PACKAGES, []))
    yield shown(one), ""
    if one.base:
        yield "extends", one.base
    yield "in the image", in_image(record)
    yield "added packages", ", ".join(f"{name} {version}" for name, version in packages.items()) or "none"
    image = record[lockfile.IMAGE]
    yield "image", imagestate.path_of(one) or f"{image['file']}, which is gone: install the module again"
    if image.get("source_digest"):
        yield "  fetched from", image["source"]
    if image.get("verified"):
        yield "  signed by", ", ".join(image["verified"])
    yield "installed", f"{one.date.isoformat()} in {one.root}"
    yield "load", one.load
    yield "run", "singularity exec $SIF COMMAND"


def in_image(record):
    """Return what is in the image of an installed module: the packages that decide, and how many there are."""
    pins = lock.pins(record.get(lockfile.IMAGE_PACKAGES, []))
    versions = {normal_name(name): version for name, version in pins.items()}
    chosen = [f"{label} {versions[name]}" for name, label in DEFAULT_BADGES.items() if name in versions]
    return ", ".join(chosen + [format_count(len(versions), "Python package")])


def complete(container):
    """Return everything that is known about a container (dict)."""
    data = as_data(container)
    data["images"] = [{"path": str(path), "stability": stability, "is_there": is_there(path)}
                      for stability, path in container.image_places]
    data["parameters"] = easyconfig.parameters(container)
    return data


def lines(container, directory):
    """Yield (name, value) for each line of the output, of a container whose easyconfig is in a directory."""
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
    if easyconfig.caches_of(container):
        yield "caches", "per job on the node in " + " or ".join(container.site.caches.node)
        yield "  kept in", " or ".join(container.site.caches.project) or "the home directory (the site names no other)"
    yield "user software", "yes, in a venv" if container.venv else "no"
    if container.wrappers:
        wrappers = easyconfig.wrappers(container)
        yield "wrappers", wrappers if isinstance(wrappers, str) else ", ".join(wrappers)
    if container.history:
        yield "history", container.history
    if container.archived:
        yield "archived", container.archive_message
    yield "install", f"eb {for_eb(container, directory)}"
    yield "load", f"module load {container.module}"
