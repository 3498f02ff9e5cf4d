"""Make a module from an environment that `ebsif push` has put into a registry or an OCI layout directory.

If the environment's image is here, in a module or in the catalog, the user software of the new module is identical to
the original. If not, the command writes the lock, and prints how to install the same versions on another image. The
login for the registry is the container runtime's (`apptainer registry login`).

This installs code that nobody has signed: pull only from people you trust, and give the digest. Commands, modules and
package indexes in its lock are shown, and you are asked before anything is installed (--yes: not asked).
"""

import functools
import shlex
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from easybuild.easyblocks.generic.container.record.lockfile import COPY_SUFFIX

from ebsif import files
from ebsif.catalog.stages import stages_of
from ebsif.commands import EB_OPTIONS
from ebsif.commands.options import add_outcome, add_settings, add_yes, extension_name, request_of
from ebsif.environments import artifact, making, repeating, trust, writing
from ebsif.environments.artifact import Artifact
from ebsif.environments.extension import Companion, check_names
from ebsif.environments.plan import Plan
from ebsif.environments.request import Request, require_places
from ebsif.errors import FOUND, EbsifError
from ebsif.images.registry.reference import open_repository
from ebsif.images.registry.repository import is_content
from ebsif.report import output
from ebsif.report.steps import working

EXAMPLES = """\
  # what is in it, and is its image here?
  ebsif pull oras://registry.example/group/mine:1 --check
  ebsif pull oras://registry.example/group/mine:1
  # a directory, where there is no network
  ebsif pull oci:environments:mine --name theirs
"""

MORE = EB_OPTIONS
SQUASHFS_SUFFIX = ".squashfs"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    parser.add_argument("reference", metavar="REF", help="oras://HOST/PATH:TAG or oci:DIRECTORY:TAG, also with @DIGEST")
    parser.add_argument("--name", help="name of the extension, part of the version suffix (default: the original name)")
    add_outcome(parser)
    add_yes(parser)


def run(options: Namespace) -> int:
    """Write the easyconfig, the lock and the user software, check or install them; return the exit status."""
    with working("reading what is there"):
        found = artifact.read(open_repository(options.reference))
    record, request = found.record, request_of(options)
    name = extension_name(options) or repeating.name_in(record)
    check_names(name)
    require_places(request)
    names = request.names
    try:
        container = repeating.base_of(record, names)
    except repeating.MissingImageError as error:
        raise EbsifError(f"{error.problem}, and {offer_lock(request, found, name)}") from None
    stages = stages_of(record.stages)
    if not trust.is_agreed(request, f"the lock in {found.name}", stages, request.installs):
        return FOUND
    output.note(f"{found.name} is {repeating.module_of(record)}, on the image of {container.module}")
    user_software = Companion(SQUASHFS_SUFFIX, functools.partial(fetch_user_software, found))
    extension = repeating.repetition(
        container, record, stages, name, found.text(artifact.LOCK), {"squashfs": user_software}
    )
    return making.make(request, extension, lambda _: planned(found))


def planned(found: Artifact) -> Plan:
    """Return the plan to take all packages from the user software, and what is wrong with it."""
    plan = repeating.recorded_plan(found.record)
    plan.problem = artifact.problem(found)
    return plan


def offer_lock(request: Request, found: Artifact, name: str) -> str:
    """Write the lock, unless the command only looks, and return how it can be used on another image."""
    text, module = found.text(artifact.LOCK), repeating.module_of(found.record).replace("/", "-")
    path = (request.output or Path()) / f"{module}{COPY_SUFFIX}"
    only_looks = request.dry_run or request.check
    if files.differs(path, text):
        refusal = files.refusal([path], "choose another directory for its lock with -o")
        return f"its user software fits no other image. {refusal}"
    if not only_looks:
        writing.write(path, text, False, "lock")
        if not request.fills_stdout:
            print(path)
    return (
        "its user software fits no other image. To install the packages of its lock on another one: "
        + ("`ebsif pull` without --check or --dry-run writes the lock, then " if only_looks else "")
        + f"ebsif extend CONTAINER --from-lock {shlex.quote(str(path))} --name {name}"
    )


def fetch_user_software(found: Artifact, path: Path, again: bool) -> None:
    """Write user software to a file, unless it is there; a different one is kept under another name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ebsif-pull-", dir=path.parent) as folder:
        file = Path(folder, path.name)
        with artifact.transferring("fetching user software", found.squashfs.size) as progress:
            if is_content(path, found.squashfs):
                return
            if path.exists() and not again:
                raise files.refusal([path], writing.REPLACING)
            artifact.download(found, file, progress)
        # another process may have been faster
        if path.exists() and not is_content(path, found.squashfs):
            writing.set_aside(path, "user software")
        file.replace(path)
