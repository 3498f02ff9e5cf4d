"""Move an extension to a newer container: write an easyconfig with the same packages on top of that container."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile

from ebsif.catalogue.records import system_of
from ebsif.commands.options import add_name, add_outcome, add_settings, names_of, request_of, settings_of
from ebsif.eb import framework
from ebsif.environments import bases, change, extending, system
from ebsif.environments.outcome import Extension, make
from ebsif.installed import compare, places
from ebsif.report import output

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif upgrade PyTorch-2.6.0-...-mine-20250501.eb PyTorch/2.7.0 --check
  # write the easyconfig and install it
  ebsif upgrade mine PyTorch/2.7.0 --install
"""

MORE = ("EB_OPTION", "options of eb")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "easyconfig", "the extension", required=True)
    add_name(parser, "module", "the newer container", required=True)
    add_outcome(parser)


def run(options: Namespace) -> int:
    """Write the easyconfig of the upgraded extension; return the exit status."""
    framework.session(tuple(options.more))
    names = names_of(options)
    path = names.easyconfig(options.easyconfig)
    if not isinstance(path, Path):
        raise extending.ExtendingError(f"{options.easyconfig} is a container in the catalogue, not an extension: use "
                                       "`ebsif extend` on the newer one")
    stages, name, _ = compare.extension_of(path, options.module)
    container = system.joined(bases.chosen(names, options.module, settings_of(options).site()),
                              system_of(compare.parameters_of(path).get("system_packages")))
    request, root = request_of(options), path.parent.parent
    status = make(request, Extension(container, name, stages))
    if (root / lockfile.RECORD).is_file():
        before = places.of_directory(root)
        change.report_left_behind(before, f"{container.module}-{name}", stages)
        if request.installs and status == 0 and before.base != container.module:
            output.hint(f"`{name}` is ambiguous now: use {container.module}-{name}, or remove the earlier module "
                        f"(ebsif remove {before.module})")
    return status
