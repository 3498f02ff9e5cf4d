"""Add a module to the kernels that Jupyter offers, list such kernels, or remove one.

A kernel runs in the container of its module, which needn't be loaded. `install` takes a module, or the directory of an
environment created by make-venv; with EBSIF_USER_SOFTWARE set, the kernel has that user software.
"""

import json
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from ebsif.commands.options import INSTALLED, add_json, complete_installed, names_of, offer
from ebsif.environments import kernels
from ebsif.errors import UsageError
from ebsif.report import output

EXAMPLES = """\
  ebsif kernel install                     # the active environment, else the loaded module
  ebsif kernel install mine --name torch
  ebsif kernel install ~/mine              # an environment of make-venv
  ebsif kernel list
  ebsif kernel remove torch
"""
ACTIONS = ("install", "list", "remove")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=", ".join(ACTIONS))
    offer(
        complete,
        parser.add_argument(
            "what",
            metavar="CONTAINER|NAME",
            nargs="?",
            help=f"install: {INSTALLED}, or an environment of make-venv (default: the active one, else the loaded "
            "module); remove: the kernel",
        ),
    )
    parser.add_argument("--name", help="install: name of the kernel (default: derived from the name of the module)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--user", action="store_true", help="kernels of this account (default)")
    place.add_argument(
        "--prefix",
        metavar="DIRECTORY",
        type=Path,
        help="kernels in share/jupyter below a directory, such as the environment that has JupyterLab",
    )
    add_json(parser)


def complete(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """Return the names of modules or kernels that begin with a text, for Tab completion."""
    if parsed_args.action == "remove":
        known = kernels.installed(kernels.folder_of(parsed_args.prefix))
        return [one.folder.name for one in known if one.folder.name.startswith(prefix)]
    return complete_installed(prefix)


def run(options: Namespace) -> int:
    """Install, list or remove kernels; return 0, or 1 if a listed one can't start."""
    if options.name and options.action != "install":
        raise UsageError(f"--name is for install, not for {options.action}")
    if options.json and options.action != "list":
        raise UsageError(f"--json is for list, not for {options.action}")
    folder = kernels.folder_of(options.prefix)
    if options.action == "install":
        kernel = kernels.install(names_of(options), options.what, folder, options.name)
        output.hint(f"Jupyter offers {kernel.module} as the kernel {kernel.folder.name}, in {kernel.folder}")
        return 0
    if options.action == "remove":
        if not options.what:
            raise UsageError("remove needs the name of a kernel")
        kernel = kernels.remove(folder, options.what)
        output.hint(output.escape(f"removed the kernel {kernel.folder.name} of {kernel.module}"))
        return 0
    if options.what:
        raise UsageError("list takes no name")
    where = f" --prefix {shlex.quote(str(options.prefix))}" if options.prefix else ""
    return show(list(kernels.installed(folder)), folder, where, options.json)


def show(found: Sequence[kernels.Kernel], folder: Path, where: str, as_json: bool) -> int:
    """Print the kernels in a directory; return 1 if one can't start, else 0."""
    if as_json:
        print(json.dumps([kernel.data for kernel in found], indent=2))
    elif not found:
        output.hint(f"no kernel of a module in {folder}: `ebsif kernel install MODULE{where}` adds one")
    for kernel in [] if as_json else found:
        print(output.escape(f"{kernel.folder.name}  {kernel.module}"))
        if kernel.missing:
            output.print_wrapped(
                f"can't start: {kernel.missing} doesn't exist any more; `ebsif kernel remove "
                f"{kernel.folder.name}{where}` removes it",
                indent="    ",
            )
        for path in filter(None, (kernel.venv, kernel.own)):
            output.print_wrapped(f"with {path}", indent="    ")
    return int(any(kernel.missing for kernel in found))
