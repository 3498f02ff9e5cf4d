"""Show the details of a container: its components, where its image is, and how to install it."""

import json

from ebsif.catalogue import selection
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.catalogue.summary import as_data, format_components
from ebsif.files import is_there
from ebsif.render import easyconfig

EXAMPLES = """\
  ebsif show --site lumi PyTorch/2.7.0
  ebsif show --site lumi PyTorch/2.7.0 --json
"""


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    parser.add_argument("name", metavar="NAME/VERSION", help="a container (ebsif list), or the name of its easyconfig")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options):
    """Print the details; return 0."""
    settings = read_settings(options)
    containers = selection.find(settings.containers(settings.site()), options.name)
    if options.json:
        print(json.dumps([complete(one) for one in containers], indent=2))
        return 0
    for number, one in enumerate(containers):
        if number:
            print()
        for name, value in lines(one):
            print(f"{name:16}{value}")
    return 0


def complete(container):
    """Return everything that is known about a container (dict)."""
    data = as_data(container)
    data["images"] = [{"path": str(path), "stability": stability, "is_there": is_there(path)}
                      for stability, path in container.image_places]
    data["parameters"] = easyconfig.parameters(container)
    return data


def lines(container):
    """Yield (name, value) for each line of the output."""
    binds = container.all_binds
    yield container.module, ""
    yield "in the image", format_components(container) or "not recorded"
    yield "python", container.python or "none"
    yield "image", container.file_name
    for stability, path in container.image_places:
        yield "  searched in", f"{path.parent} ({stability}): {'found' if is_there(path) else 'not found'}"
    if not container.image_places:
        yield "  searched in", "EasyBuild's source paths (the site has no image directories)"
    yield "binds", ", ".join([*binds.required, *(f"{bind} (optional)" for bind in binds.optional)]) or "none"
    yield "user software", "yes, in a venv" if container.venv else "no"
    if container.wrappers:
        wrappers = easyconfig.wrappers(container)
        yield "wrappers", wrappers if isinstance(wrappers, str) else ", ".join(wrappers)
    if container.history:
        yield "history", container.history
    if container.archived:
        yield "archived", container.archive_message
    yield "install", f"eb {container.easyconfig_name}"
    yield "load", f"module load {container.module}"
