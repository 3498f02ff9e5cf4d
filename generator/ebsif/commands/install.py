"""Install containers of the catalog as modules, with EasyBuild, which needs no configuration for that.

The easyconfig is rendered from the record in the catalog of the site, or in your own (`ebsif add IMAGE`). The module
goes where EasyBuild is configured to install, by default ~/.local/easybuild; the last line of the output loads it. If
the module is there, there is nothing to do.

With --all, everything that has no module is installed, except what is archived: of the catalog of your site
(--catalog, or as configured) if you can write to it, else of your own. What can't be installed is reported, and the
others are installed.
"""

from argparse import ArgumentParser, Namespace

from ebsif.catalog import selection
from ebsif.catalog.container import Container
from ebsif.commands import EB_OPTIONS
from ebsif.commands.options import add_dry_run, add_output, add_settings, complete, in_catalog, offer, settings_of
from ebsif.eb import running
from ebsif.environments import cataloged
from ebsif.environments.request import Request, require_places
from ebsif.errors import FAILED, EbsifError, UsageError
from ebsif.files import IMAGES, expanded, is_there, message_of
from ebsif.report import output

EXAMPLES = """\
  ebsif install PyTorch                      # your own record of this name, else the default of the site
  ebsif install PyTorch/2.7.0 -- --prefix=$HOME/modules
  ebsif install --all                        # what has no module yet
  ebsif install --all --rebuild              # and what has changed in the catalog
"""

MORE = EB_OPTIONS


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    offer(
        complete,
        parser.add_argument("names", metavar="CONTAINER", nargs="*", help="NAME, NAME/VERSION or a part of a name"),
    )
    parser.add_argument("--all", action="store_true", help="install all containers that have no module yet")
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="install existing modules again (with --all, only those that have changed in the catalog since)",
    )
    add_output(parser, "directory for the easyconfigs (default: ~/.local/share/ebsif/easyconfigs)", overwrite=False)
    add_dry_run(parser, "only print the easyconfigs")
    parser.add_argument("--json", action="store_true", help="print the results as JSON, each module in one line")


def run(options: Namespace) -> int:
    """Install modules; return the exit status."""
    if bool(options.names) == options.all:
        raise UsageError("give the containers to install (`ebsif list`), or all of them with --all")
    request = Request(
        options.command,
        output=options.output,
        dry_run=options.dry_run,
        rebuild=options.rebuild,
        json=options.json,
        more=tuple(options.more),
    )
    require_places(request)
    settings = settings_of(options)
    containers = settings.containers(settings.site())
    if options.all:
        return install_all([one for one in containers if one.is_own or not settings.is_for_account], request)
    chosen = [find(containers, name, options) for name in options.names]
    return max(cataloged.install_container(cataloged.look(one, request), request) for one in dict.fromkeys(chosen))


def find(containers: list[Container], name: str, options: Namespace) -> Container:
    """Return the container with a name; the error if there is none says what else the name is."""
    try:
        return in_catalog(options, selection.find_one, containers, name)
    except selection.UnknownNameError as error:
        instead = ""
        is_file = is_there(expanded(name))
        # eb also searches for a name
        if name.endswith(".eb") and (is_file or "/" not in name):
            instead = f"; to install an easyconfig: `{running.command([name])}`"
        elif name.endswith(IMAGES) and is_file:
            instead = f"; to add an image to your catalog: `ebsif add {name}`"
        raise selection.UnknownNameError(f"{error}{instead}") from None


def install_all(containers: list[Container], request: Request) -> int:
    """Install what has no module, with --rebuild also what has changed; return the exit status."""
    status, done = 0, 0
    for container in containers:
        try:
            wanted = cataloged.look(container, request)
            if (container.archived and not wanted.there) or (wanted.there and not wanted.has_changed):
                continue
            status = max(status, cataloged.install_container(wanted, request))
            done += not (wanted.there and not request.again)
        except (EbsifError, OSError) as error:
            output.error(f"{container.module_or_version}: {message_of(error)}")
            status = FAILED
    output.hint(
        f"{output.format_count(len(containers), 'container')} in the catalog, {done} "
        f"{'would be installed' if request.dry_run else 'installed now'}"
    )
    return status
