"""Options and arguments that several commands have, each under one name, and what the Tab key offers for them."""

import argparse
import contextlib
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from easybuild.easyblocks.generic.container.record import lockfile

from ebsif.catalog import selection
from ebsif.catalog.container import Container
from ebsif.catalog.settings import Settings, read_settings
from ebsif.errors import UsageError
from ebsif.parsing import Help, common_group
from ebsif.report import output

if TYPE_CHECKING:
    from ebsif.environments.request import Request
    from ebsif.installed.names import Names

Found = TypeVar("Found")

# Ways to name what is installed; the names and directories that `names.installations` takes.
INSTALLED = "an installed module, an installation directory, or a part of a name"
INSTALLATIONS = "installed modules, prefixes of EasyBuild or directories of modules (default: all that are found)"


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that all commands have."""
    group = common_group(parser)
    group.add_argument("-q", "--quiet", action="store_true", help="print results and errors only")
    group.add_argument(
        "-v", "--verbose", action="store_true", help="also print the commands that are run, and the output of eb"
    )
    group.add_argument(
        "-h", "--help", action=Help, nargs=0, help="-h: print a help that fits a screen; --help: print all of it"
    )


def add_settings(parser: argparse.ArgumentParser, easyconfigs: bool = False) -> None:
    """Add the options that override the configuration file; if wanted, also the directory of the easyconfigs."""
    group = common_group(parser)
    offer(
        complete_sites,
        group.add_argument("--site", help="name of the site (default: $EBSIF_SITE, else as configured, else local)"),
    )
    group.add_argument(
        "--catalog",
        metavar="DIRECTORY",
        type=Path,
        action="append",
        default=[],
        help="directory with your own sites: <site>/site.yaml and <site>/containers/*.yaml (repeatable)",
    )
    if easyconfigs:
        parser.add_argument(
            "-o",
            "--output",
            dest="easyconfigs",
            metavar="DIRECTORY",
            type=Path,
            help="directory of the easyconfigs; {site} stands for the name of the site (default: easyconfigs)",
        )


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings of a command, which may lack the options of `add_settings`."""
    return read_settings(*chosen(options), getattr(options, "easyconfigs", None))


def names_of(options: argparse.Namespace) -> "Names":
    """Return the names that a command understands; see `settings_of`."""
    from ebsif.installed.names import Names

    return Names(*chosen(options))


def in_catalog(
    options: argparse.Namespace, find: Callable[[list[Container], str], Found], containers: list[Container], name: str
) -> Found:
    """Return what a function finds in the catalog; the error if there is nothing says what else the name may mean."""
    try:
        return find(containers, name)
    except selection.UnknownNameError as error:
        # what is installed takes longer to read than the catalog
        raise names_of(options).explained(name, error) from None


def named(options: argparse.Namespace, containers: list[Container], names: Sequence[str]) -> list[Container]:
    """Return the containers that any of some names stands for, each once; see `in_catalog`."""
    found = (in_catalog(options, selection.find, containers, name) for name in names)
    return list(dict.fromkeys(one for some in found for one in some))


def chosen(options: argparse.Namespace) -> tuple[Optional[str], Sequence[Path]]:
    """Return the site and the catalogs that options name."""
    return getattr(options, "site", None), getattr(options, "catalog", ())


def add_name(
    parser: argparse.ArgumentParser,
    name: str,
    what: str,
    only_installed: bool = False,
    required: bool = False,
    metavar: str = "CONTAINER",
) -> None:
    """Add the argument for one container, by default the loaded one; `what` are the first words of its help."""
    ways = (
        INSTALLED
        if only_installed
        else "NAME/VERSION, an installed module, an easyconfig, an installation directory, or a part of a name"
    )
    offer(
        complete_installed if only_installed else complete,
        parser.add_argument(
            name,
            metavar=metavar,
            nargs=None if required else "?",
            help=f"{what}: {ways}" + ("" if required else " (default: the loaded module)"),
        ),
    )


def add_names(parser: argparse.ArgumentParser, default: str = "all") -> None:
    """Add the argument for any number of containers in the catalog."""
    offer(
        complete,
        parser.add_argument(
            "names", metavar="CONTAINER", nargs="*", help=f"NAME, NAME/VERSION or a part of a name (default: {default})"
        ),
    )


def add_installations(parser: argparse._ActionsContainer) -> None:
    """Add the argument for any number of installed modules, or directories with them."""
    offer(complete_installed, parser.add_argument("modules", metavar="CONTAINER", nargs="*", help=INSTALLATIONS))


def add_output(
    parser: argparse._ActionsContainer,
    what: str,
    metavar: str = "DIRECTORY",
    overwrite: bool = True,
    required: bool = False,
) -> None:
    """Add -o, --output for what a command writes, with --overwrite."""
    parser.add_argument("-o", "--output", metavar=metavar, type=Path, required=required, help=what)
    if overwrite:
        add_overwrite(parser)


def add_overwrite(parser: argparse._ActionsContainer, option: str = "-o") -> None:
    """Add --overwrite, for what is written with an option."""
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help=f"with {option}: replace files that it hasn't written, or that were changed since",
    )


def add_dry_run(parser: argparse._ActionsContainer, text: str) -> None:
    """Add -n, --dry-run with a help."""
    parser.add_argument("-n", "--dry-run", action="store_true", help=text)


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_strict(parser: argparse._ActionsContainer) -> None:
    """Add --strict."""
    parser.add_argument("--strict", action="store_true", help="exit status 1 also for warnings")


def add_all_sites(parser: argparse._ActionsContainer, text: str) -> None:
    """Add --all-sites with a help."""
    parser.add_argument("--all-sites", action="store_true", help=text)


def add_license(parser: argparse._ActionsContainer) -> None:
    """Add --license of what others get."""
    parser.add_argument(
        "--license",
        metavar="SPDX",
        help="license of the files, as in SPDX's list (default: the license in the image's labels)",
    )


def add_yes(parser: argparse._ActionsContainer) -> None:
    """Add --yes, for commands that ask."""
    parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")


class Gone(argparse.Action):
    """--install of earlier releases: what it asked for is done anyway."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Say what to type."""
        words = [word for word in parser.get_default("words") if word != "--install"]
        parser.error(
            f"--install is gone, because {parser.prog} installs the module without it: {shlex.join(['ebsif', *words])}"
        )


def add_outcome(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that make an extension: whether it is installed, and how."""
    parser.add_argument(
        "--date",
        help="date at the end of the version suffix (default: today, with a number if there is an extension of today)",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--check",
        action="store_true",
        help="only show what pip would install, without installing it; what it downloads is kept in TMPDIR for the "
        "installation, for a day at most",
    )
    ways.add_argument(
        "-o", "--output", metavar="DIRECTORY", type=Path, help="only write the easyconfig, to this directory"
    )
    add_dry_run(ways, "only print the easyconfig")
    parser.add_argument("--image", metavar="FILE", type=Path, help="image to use for --check, if eb does not find it")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, in one line")
    parser.add_argument("--install", action=Gone, nargs=0, help=argparse.SUPPRESS)
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="replace the module if it is there, and its easyconfig (the old one is kept as .old)",
    )


def request_of(options: argparse.Namespace) -> "Request":
    """Return what the options of `add_outcome` ask for."""
    # only the commands that need it import EasyBuild
    from ebsif.environments.request import Request

    if options.dry_run and options.json:
        raise UsageError("--dry-run prints an easyconfig, not JSON: leave out one of them, or use -o DIRECTORY")
    return Request(
        options.command,
        options.words,
        options.words if options.command == "extend" else (),
        date=options.date,
        output=options.output,
        image=options.image,
        dry_run=options.dry_run,
        check=options.check,
        writes=options.output is not None,
        rebuild=options.rebuild,
        yes=getattr(options, "yes", False),
        json=options.json,
        names=names_of(options),
        more=tuple(options.more),
    )


def extension_name(options: argparse.Namespace) -> Optional[str]:
    """Return the name of an extension that was typed, with _ in place of hyphens; say so."""
    name: Optional[str] = options.name
    if not name or "-" not in name:
        return name
    changed = name.replace("-", "_")
    output.note(f"the extension is called {changed}, because a hyphen separates the parts of a version")
    return changed


def offer(completer: Callable[..., list[str]], argument: Any) -> None:
    """Let the Tab key offer what a function returns for an argument (argparse.Action); argcomplete reads it there."""
    argument.completer = completer


# What the Tab key offers. Reading installations takes longer to import than some commands to run.


def beginning_with(prefix: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin with a text, ignoring case."""
    return sorted(name for name in set(names) if name.lower().startswith(prefix.lower()))


def complete_sites(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the names of sites that begin with a text."""
    return beginning_with(prefix, settings_of(parsed_args).site_names())


def complete(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the names of containers and installed modules that begin with a text."""
    settings = settings_of(parsed_args)
    known = [one.module_or_version for one in settings.containers(settings.site())]
    return sorted({*beginning_with(prefix, known), *complete_installed(prefix)})


def complete_components(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the names of components of containers that begin with a text."""

    settings = settings_of(parsed_args)
    containers = settings.containers(settings.site())
    return beginning_with(prefix, (name for one in containers for name in one.versions))


def complete_installed(prefix: str, **_: object) -> list[str]:
    """Return the names of installed modules that begin with a text."""
    from ebsif.installed import places
    from ebsif.installed.places import shown

    installations = places.known(places.directories_of_modules())
    # the name of an extension stands for its newest one
    return beginning_with(
        prefix, [*map(shown, installations), *(one.extension[0] for one in installations if one.extension)]
    )


def complete_packages(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the packages of the named or loaded module that begin with a text, those of the image included."""
    return beginning_with(
        prefix,
        (
            name
            for record in records_of(parsed_args.module)
            for name in lockfile.versions_in([*record.image_packages, *record.venv_packages])
        ),
    )


def records_of(text: Optional[str]) -> list[lockfile.Record]:
    """Return the records of the installed modules whose name contains a text; of the loaded one without it."""
    from ebsif.installed import places
    from ebsif.installed.lock import LockError
    from ebsif.installed.places import shown

    installations = (
        [one for one in places.known(places.directories_of_modules()) if text in shown(one)]
        if text
        else [places.loaded()]
    )
    records = []
    for installation in filter(None, installations):
        with contextlib.suppress(LockError):
            records.append(installation.record)
    return records
