"""Make the module of an environment that `ebsif push` has put into a registry or an OCI layout directory.

The image that it belongs to must be here, in a module or in the catalogue: the user software of the new module is then
the same as that of the original, byte for byte. With another image it can't be; the lock that is then written says what
to install. The login for the registry is that of the container runtime (`apptainer registry login`).

This installs code that nobody has signed: pull only from people you trust, and name the digest.
"""

import contextlib
import itertools
import shlex

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.texts import format_size

from ebsif.catalogue.settings import read_settings
from ebsif.commands.options import add_outcome, add_settings
from ebsif.eb import framework
from ebsif.environments import artefact, extending, repeating
from ebsif.environments.outcome import (
    check_name,
    choose_date,
    may_replace,
    nothing_to_do,
    removed_after_failure,
    require_place,
    require_replaceable,
    set_aside,
    show_plan,
    write,
    write_file,
)
from ebsif.errors import UsageError
from ebsif.images.registry.opening import open_repository
from ebsif.installed import lock, places
from ebsif.installed.names import Names
from ebsif.report import output
from ebsif.report.steps import Now, Steps, working

EXAMPLES = """\
  # what is in it, and is its image here?
  ebsif pull oras://registry.example/group/mine:1 --check
  ebsif pull oras://registry.example/group/mine:1 --install
  # a directory, where there is no network
  ebsif pull oci:environments:mine --name theirs --install
"""

MORE = "OPTION_OF_eb"
SQUASHFS_SUFFIX = ".squashfs"


def configure(parser):
    """Add the arguments."""
    add_settings(parser)
    parser.add_argument("reference", metavar="REF", help="oras://HOST/PATH:TAG or oci:DIRECTORY:TAG, also with @DIGEST")
    parser.add_argument("--name", help="name of the extension, part of the version suffix (default: that of the "
                                       "original)")
    add_outcome(parser)


def run(options):
    """Write the easyconfig, the lock and the user software, check or install them; return the exit status."""
    with working("reading what is there"):
        found = artefact.read(open_repository(options.reference))
    record = found.record
    options.name = options.name or name_in(record)
    extending.check_names(options.name)
    require_place(options)
    framework.session(tuple(options.more))
    site = read_settings(options).site()
    try:
        container = repeating.base_of(record, Names(options).containers, site)
    except repeating.MissingImageError as error:
        raise repeating.RepeatingError(f"{error.problem}, and {offer_lock(options, found)}") from None
    container = repeating.repeated(container, record)
    check_name(options, container, record[lockfile.STAGES])
    same = choose_date(options, container, options.name, lambda path, _: repeating.is_same(path, record))
    if same:
        return nothing_to_do(same)
    output.note(f"{found.name} is {repeating.module_of(record)}, on the image of {container.module}")
    if options.check:
        planned = repeating.recorded_plan(record, found.squashfs.size)
        planned.problem = artefact.problem(found)
        status = show_plan(options, extending.extend(container, {}, options.name, options.date), planned)
        if status is not None:
            return status
        options.check = False
    extended = extending.extend(container, {}, options.name, options.date)
    path = options.output / extended.easyconfig_name
    with removed_after_failure(path.with_suffix(lockfile.COPY_SUFFIX), path.with_suffix(SQUASHFS_SUFFIX)):
        return write(options, container, fetch(options, found, path, extended.module), options.name)


def name_in(record):
    """Return the name of the extension in a record (str)."""
    named = places.NAMED.search(lock.module_name(record) or "")
    if not named:
        raise UsageError(f"{repeating.module_of(record)} has no name of an extension: choose one with --name")
    return named.group("name")


def offer_lock(options, found):
    """Write the lock, unless the command only looks, and return how it can be used on another image (str)."""
    text, name = found.text(artefact.LOCK), repeating.module_of(found.record).replace("/", "-")
    path, numbers = options.output / f"{name}{lockfile.COPY_SUFFIX}", itertools.count(2)
    # another one of that name may belong to an easyconfig
    while path.exists() and path.read_bytes() != text.encode():
        path = options.output / f"{name}.{next(numbers)}{lockfile.COPY_SUFFIX}"
    only_looks = options.dry_run or (options.check and not (options.install or options.rebuild))
    if not only_looks:
        write_file(path, text, False, "lock")
    return ("its user software fits no other image. To install the packages of its lock on another one: " + (
        "`ebsif pull` without --check or --dry-run writes the lock, then " if only_looks else "") +
        f"ebsif extend CONTAINER --from-lock {shlex.quote(str(path))} --name {options.name} --install")


def fetch(options, found, path, module):
    """Write lock and user software beside the easyconfig of a module; return the parameter that names them (dict)."""
    locked, squashfs = path.with_suffix(lockfile.COPY_SUFFIX), path.with_suffix(SQUASHFS_SUFFIX)
    if not options.dry_run:
        again = may_replace(options, path, module)
        fetch_user_software(found, squashfs, again)
        write_file(locked, found.text(artefact.LOCK), again, "lock")
        print(squashfs)
    return {"lock": locked.name, "squashfs": squashfs.name}


def fetch_user_software(found, path, again):
    """
    Write user software to a file, unless it is there; a different one is kept under another name, as by `write_file`.

    Another process that does the same is waited for.
    """
    size, done = found.squashfs.size, 0

    def progress(number):
        nonlocal done
        done = number

    with contextlib.ExitStack() as stack:
        with Steps() as steps:
            steps.begin("fetching user software",
                        watch=lambda: Now(f"{format_size(done)} of {format_size(size)}", done, size))
            folder = stack.enter_context(artefact.downloading(found, path.parent))
            if artefact.is_downloaded(found, path):
                steps.detail("is there already")
                return
            if path.exists():
                require_replaceable(path, again)
            file = artefact.download(found, folder, progress)
            steps.detail(format_size(size))
        if path.exists():
            set_aside(path, "user software")
        file.replace(path)
