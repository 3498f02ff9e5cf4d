"""Move an extension to a newer container: install a module with the same packages on top of that container."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from easybuild.easyblocks.generic.container.record import lockfile

from ebsif import remedies
from ebsif.catalog.container import Container
from ebsif.catalog.records import system_of
from ebsif.catalog.stages import Stage
from ebsif.commands import EB_OPTIONS
from ebsif.commands.options import add_name, add_outcome, add_settings, request_of
from ebsif.environments import bases, change, making, system
from ebsif.environments.extension import ExtendingError, Extension
from ebsif.environments.request import require_places
from ebsif.installed import compare, places
from ebsif.packages import requirements
from ebsif.report import output

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif upgrade PyTorch-2.6.0-...-mine-20250501.eb PyTorch/2.7.0 --check
  # install it
  ebsif upgrade mine PyTorch/2.7.0
"""

MORE = EB_OPTIONS


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "easyconfig", "the extension", required=True, metavar="EXTENSION")
    add_name(parser, "module", "the newer container", required=True)
    add_outcome(parser)


def extending_words(options: Namespace, container: Container, name: str, stages: list[Stage]) -> list[str]:
    """
    Return the command of `ebsif extend`, without the name of the program, that makes the same extension.

    Empty if the extension has more than packages, which only its easyconfig says.
    """
    lines = [line for stage in stages for line in stage.written]
    if [stage.replace(requirements=stage.written) for stage in stages] != requirements.split_into_stages(lines):
        return []
    system_packages = container.system.packages
    given = [
        ("--site", options.site),
        ("--date", options.date),
        ("--output", options.output),
        ("--image", options.image),
        *(("--catalog", one) for one in options.catalog),
    ]
    chosen = [word for option, value in given if value for word in (option, str(value))]
    return [
        "extend",
        container.module,
        "--name",
        name,
        *(["--add", *lines] if lines else []),
        *(["--apt", *system_packages] if system_packages else []),
        *chosen,
        *(["--check"] if options.check else []),
        *(["--", *options.more] if options.more else []),
    ]


def run(options: Namespace) -> int:
    """Make the upgraded extension; return the exit status."""
    request = request_of(options)
    require_places(request)
    names = request.names
    path = names.easyconfig(options.easyconfig)
    if not isinstance(path, Path):
        raise ExtendingError(
            f"{options.easyconfig} is a container in the catalog, not an extension: use `ebsif extend` on the newer one"
        )
    stages, name, _ = compare.extension_of(path, options.module)
    container = system.joined(
        bases.container_of(names.find(options.module), names),
        system_of(compare.parameters_of(path).get("system_packages")),
    )
    root = path.parent.parent
    request = replace(request, repeated=extending_words(options, container, name, stages))
    with remedies.whole(request.repeated):
        status = making.make(request, Extension(container, name, stages, keeps_all=True))
    if (root / lockfile.RECORD).is_file():
        before = places.of_directory(root)
        change.report_left_behind(before, f"{container.module}-{name}", stages)
        if request.installs and status == 0 and before.base != container.module:
            output.hint(
                f"`{name}` means the one on the newest container; the earlier module stays: {before.load} "
                f"(to remove it: ebsif remove {before.module})"
            )
    return status
