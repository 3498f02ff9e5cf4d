"""Show the details of a container: its components, where its image is, and how to install it.

Of an installed module that is not in the catalogue: its packages as they are now, its image, and how to load it.
"""

import json
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile

from ebsif.catalogue.container import Container
from ebsif.catalogue.explain import explain
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.catalogue.summary import as_data, format_components
from ebsif.commands.options import add_json
from ebsif.files import is_there
from ebsif.installed import current, imagestate
from ebsif.installed.names import Names, NamingError, add_name_argument, shown
from ebsif.publish.pages.entry import DEFAULT_BADGES
from ebsif.render import easyconfig
from ebsif.render.rendering import for_eb
from ebsif.report.output import format_count
from ebsif.report.table import print_columns

EXAMPLES = """\
  ebsif show --site lumi PyTorch/2.7.0
  ebsif show --site lumi PyTorch/2.7.0 --explain   # which file and line each value comes from
  ebsif show --site lumi PyTorch/2.7.0 --json
"""


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    add_name_argument(parser, "name", "what to show")
    parser.add_argument("--explain", action="store_true",
                        help="show each value of a container of the catalogue, with the file and line it comes from")
    add_json(parser)


def run(options):
    """Print the details; return 0."""
    found = Names(options).find_all(options.name)
    for one in found:
        if isinstance(one, Path):
            raise NamingError(f"{one} is a file: `ebsif inspect` shows what is in an image, `ebsif diff` compares "
                              "easyconfigs")
    if options.explain:
        settings = read_settings(options)
        rows = [origin for one in found if isinstance(one, Container) for origin in explain(one, settings)]
        if options.json:
            print(json.dumps([origin._asdict() for origin in rows], indent=2))
        else:
            print_columns(["FIELD", "VALUE", "FROM"], [[*map(shorten, origin[:2]), origin.place] for origin in rows])
        return 0
    if options.json:
        print(json.dumps([complete(one) if isinstance(one, Container) else one.record for one in found], indent=2,
                         default=vars))
        return 0
    output = read_settings(options).output
    for number, one in enumerate(found):
        if number:
            print()
        for name, value in lines(one, output) if isinstance(one, Container) else lines_of_installation(one):
            print(f"{name:16}{value}".rstrip())
    return 0


def shorten(value):
    """Return the first line of a value, shortened to half a screen."""
    first, *others = value.split("\n")
    return f"{first[:40]} ..." if others or len(first) > 44 else first


def lines_of_installation(one):
    """Yield (name, value) for each line about an installed module."""
    record = current.record_of(one)
    packages = lockfile.versions_in(record.venv_packages)
    yield shown(one), ""
    if one.base:
        yield "extends", one.base
    yield "in the image", in_image(record)
    yield "added packages", ", ".join(f"{name} {version}" for name, version in packages.items()) or "none"
    image = record.image
    yield "image", imagestate.path_of(one) or f"{image.file}, which is gone: install the module again"
    if image.source_digest:
        yield "  fetched from", image.source
    if image.verified:
        yield "  signed by", ", ".join(image.verified)
    yield "installed", f"{one.date.isoformat()} in {one.root}"
    yield "load", one.load
    yield "run", "singularity exec $SIF COMMAND"


def in_image(record):
    """Return what is in the image of an installed module: the packages that decide, and how many there are."""
    versions = record.image_versions
    chosen = [f"{label} {versions[name]}" for name, label in DEFAULT_BADGES.items() if name in versions]
    return ", ".join(chosen + [format_count(len(versions), "Python package")])


def complete(container):
    """Return everything that is known about a container (dict)."""
    data = as_data(container)
    data["images"] = [{"path": str(path), "stability": stability, "is_there": is_there(path)}
                      for stability, path in container.image_places]
    data["parameters"] = easyconfig.parameters(container)
    return data


def lines(container, output):
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
    yield "install", f"eb {for_eb(container, output)}"
    yield "load", f"module load {container.module}"
