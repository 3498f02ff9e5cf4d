"""Add an image to the catalog: inspect it, write its record, render its easyconfig.

The image is a SIF file, or is in a registry, an OCI layout or on a server. In these cases, the record has
its source with the digest, and `eb` fetches it. With a directory, all SIF files below it are added, with SHA256 and
packages from NAME.md, NAME.sha256 and NAME.json beside them.

Without a site's catalog that you can write to (--catalog, or as configured), the record goes into your own,
~/.local/share/ebsif/catalog, where all commands find it. The module then uses the image where it is, unless record
or site set `image`, and `ebsif install` installs it.

The file name determines the family. At a terminal, you are asked for missing values. Guesses are marked with 'review'
in the record. If there is an error, nothing is written. If the image is in the catalog already, nothing changes; the
exit status is 1 if its SHA256 differs from the record.
"""

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.image.source import FORMS
from easybuild.easyblocks.generic.container.newest import natural

from ebsif.catalog import writing
from ebsif.catalog.container import Container
from ebsif.catalog.entry import complete
from ebsif.catalog.guess import adding
from ebsif.catalog.proposal import AddingError, OtherImageError
from ebsif.catalog.records import CatalogFile
from ebsif.catalog.settings import Settings
from ebsif.catalog.site import Site
from ebsif.catalog.yamltext import as_yaml
from ebsif.commands.options import add_dry_run, add_settings, settings_of
from ebsif.eb import framework, running
from ebsif.environments.request import own_folder
from ebsif.errors import FAILED, EbsifError, UsageError
from ebsif.files import IMAGES, is_there, message_of
from ebsif.images import inspection, remote
from ebsif.images.checksum import sha256 as sha256_of
from ebsif.images.registry.reference import parse_source
from ebsif.render import rendering
from ebsif.report import output
from ebsif.scan.comparison import inspected
from ebsif.scan.sourced import Sourced, fits, is_copy, same_image, sourced

EXAMPLES = """\
  ebsif add /appl/images/pytorch.sif && ebsif install PyTorch
  ebsif add /appl/images/                            # all images there
  ebsif add /appl/images/lumi-pytorch-rocm-6.4.4-....sif --site lumi \\
      --catalog ~/our-containers
  ebsif add julia.sif --name Julia --dry-run
  ebsif add oras://registry.example/ai/new:3         # also docker://, https://, oci:DIRECTORY
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser, easyconfigs=True)
    parser.add_argument(
        "image", metavar="IMAGE", help=f"a SIF file, a directory with SIF files, or where the image is: {FORMS}"
    )
    parser.add_argument(
        "--fetch",
        metavar="DIRECTORY",
        type=Path,
        help="fetch an image that is not here into this directory, and look into it (by default, it is "
        "fetched only if no family has such images, into EasyBuild's source path)",
    )
    parser.add_argument("--name", help="name of the software, for its first image")
    parser.add_argument("--family", help="name of a family in the catalog")
    parser.add_argument("--version", help="version of the software, if neither the file name nor the image has it")
    parser.add_argument("--moving", action="store_true", help="accept an image in a directory whose links move")
    add_dry_run(parser, "only show what would be written")


def run(options: Namespace) -> int:
    """Add an image, or all of a directory; return the exit status."""
    folder = Path(options.image)
    if not folder.is_dir():
        return add(options)
    if options.version or options.fetch:
        raise UsageError("--version and --fetch are for a single image")
    # links, such as latest.sif, are other names of images
    images = [path for path in folder.rglob("*") if path.name.endswith(IMAGES) and not path.is_symlink()]
    if not images:
        names = " or ".join(f"*{end}" for end in IMAGES)
        raise AddingError(f"there are no images below {folder}: only files named {names} count, not links")
    status = 0
    for image in sorted(images, key=lambda path: natural(str(path))):
        try:
            status = max(status, add(Namespace(**{**vars(options), "image": str(image)})))
        except (EbsifError, OSError) as error:
            output.error(f"{image}: {message_of(error)}")
            status = max(status, getattr(error, "status", FAILED))
    output.hint(
        f"{output.format_count(len(images), 'image')} checked, new ones added; to install all modules: "
        f"{install_command(settings_of(options), '--all')}"
    )
    return status


def add(options: Namespace) -> int:
    """Add an image; return the exit status."""
    settings = settings_of(options)
    profile = settings.site()
    documents, containers = settings.documents(profile), settings.containers(profile, strict=True)
    asked = {key: getattr(options, key) for key in ("name", "family", "version") if getattr(options, key)}
    image, name, version = Path(options.image), options.name, options.version
    new = from_source(options, documents) if remote.is_source(options.image) else None
    if not new:
        check_place(image, profile, options.moving)
    elif not fits(documents, new.found.file_name):
        name, version = name or new.name or None, version or new.version
    path = new.path if new else image
    file_name = new.found.file_name if new else Path(os.path.realpath(image)).name
    known = [one for one in containers if one.file_name == file_name]
    if known:
        check_known(known, new.found if new else identified(image, known))
        return render_known(meant(known, asked), path, options, settings)
    found = new.found if new else inspected(image)
    if not new and image.is_symlink():
        output.note(
            f"{image} is a link: the record is for {found.resolved} (SHA256 {found.sha256}); the link can change"
        )
    copy = is_copy(found, containers)
    if copy:
        output.note(f"{options.image} {copy}")
    programs = new.programs if new else partial(inspection.programs, found)
    own = {one.name for one in containers if one.is_own} if settings.is_for_account else None
    proposal = adding.propose(found, documents, name, options.family, version, programs, ask, own)
    if proposal.new_family is not None and not name:
        output.note(f"the software is called {proposal.name}, after the name of the file (another name: --name)")
    if options.moving:
        proposal.values["moving"] = True
    in_place = image.resolve() if not new and image.is_symlink() else path
    entry = complete(proposal, file_name, settings, profile, containers, programs, None if new else in_place)
    folder = place_for(settings)
    rendered = rendering.render(entry.container, folder)
    if options.dry_run:
        before, after = writing.with_records([proposal], entry.path, entry.extended)
        output.print_diff(entry.path, before, after)
        output.print_diff(rendered.path, rendered.before, rendered.text)
        return 0
    rendering.require_replaceable(rendered, folder)
    writing.write([proposal], entry.path, entry.extended, lambda: rendering.write([rendered], folder))
    print(f"{entry.path}:\n{entry.path.read_text(encoding='utf-8') if proposal.new_family else proposal.text}", end="")
    if proposal.in_place:
        output.hint(f"{proposal.in_place}: the module uses the image where it is; nothing is copied")
    return print_next_step(rendered, path, settings)


def place_for(settings: Settings) -> Path:
    """Return the directory for an easyconfig: who adds records for itself has one for that."""
    return own_folder() if settings.is_for_account and not settings.is_place_named else settings.output


def from_source(options: Namespace, documents: list[CatalogFile]) -> Sourced:
    """Return what is known of an image at a source."""
    source = parse_source(options.image)
    named = bool(options.name) or sys.stdin.isatty()
    new = sourced(source, documents, options.fetch, whole=bool(options.fetch), named=named)
    if source.digest is None:
        output.note(
            f"{options.image} is {new.source.digest} now; a tag or file can change, so the record has the digest"
        )
    return new


def identified(path: Path, known: list[Container]) -> inspection.Inspection:
    """Return an image file with what tells it from others; it is read if a record has a SHA256."""
    target = Path(os.path.realpath(path))
    sha256 = sha256_of(target) if any(one.sha256 for one in known) else None
    size = target.stat().st_size
    return inspection.Inspection(path=str(path), resolved=str(target), size=size, init="", sha256=sha256)


def check_known(known: list[Container], found: inspection.Inspection) -> None:
    """Say that an image is in the catalog already; raise OtherImageError if it isn't that of the records."""
    wrong = next((one for one in known if same_image(one, found) is False), None)
    if wrong:
        differs = "" if found.source else f" has the SHA256 {wrong.sha256}, this file has {found.sha256}"
        begin = "If" if found.source else "Give this one another name; or, if"
        fields = as_yaml(adding.identity_of(found), 4)
        raise OtherImageError(
            f"{wrong.file_name} is in the catalog already, and is another image there: {wrong.module} "
            f"in {wrong.place}{differs}. {begin} it replaces the earlier one, correct these "
            "fields of the record, run `ebsif render`, and install the module again",
            fields,
        )
    print(
        f"{known[0].file_name} is in the catalog already: {known[0].module}, in {known[0].place}"
        + (
            ""
            if found.source or any(one.sha256 for one in known)
            else "; the record has no sha256, so the content was not compared"
        )
    )


def meant(known: list[Container], asked: dict[str, str]) -> Container:
    """Return the record with a file name that has what the options ask for; raise AddingError if there is none."""
    found = next((one for one in known if all(getattr(one, key) == value for key, value in asked.items())), None)
    if not found:
        differs = [f"--{key} {value}" for key, value in asked.items() if getattr(known[0], key) != value]
        raise AddingError(
            f"the record of this image differs ({', '.join(differs)}), and was not changed: correct it "
            f"in {known[0].place}; for another module of the image, copy it and give the copy a 'label'"
        )
    return found


def render_known(container: Container, path: Optional[Path], options: Namespace, settings: Settings) -> int:
    """Render a record that is there, unless this is a dry run; return 0."""
    folder = place_for(settings)
    rendered = rendering.render(container, folder)
    if options.dry_run:
        output.print_diff(rendered.path, rendered.before, rendered.text)
        return 0
    if path:
        require_found(container, path)
    rendering.require_replaceable(rendered, folder)
    rendering.write([rendered], folder)
    return print_next_step(rendered, path, settings)


def require_found(container: Container, path: Path) -> None:
    """Raise AddingError if modules that use an image where it is don't find it, because it was moved to this path."""
    places = [place for _, place in container.image_places]
    if container.image_kind == "central" and not container.source and not any(map(is_there, places)):
        folders = ", ".join(str(place.parent) for place in places) or "no directory"
        raise AddingError(
            f"{path} isn't where the module looks for it ({folders}): move it back, or correct "
            f"the directory (`images`) in {container.place}, run this command again, and install the "
            f"module with --rebuild"
        )


def install_command(settings: Settings, what: str, *more: str) -> str:
    """Return the command that installs modules of the catalog, with more options of eb."""
    words = ["ebsif", "install", what, *settings.options_for(settings.site().name)]
    return shlex.join([*words, "--", *more] if more else words)


def print_next_step(rendered: rendering.Rendered, path: Optional[Path], settings: Settings) -> int:
    """Print how to install the container, and where its image is if it was fetched; return 0."""
    output.hint(f"{rendered.path}: {rendered.state}")
    sources = []
    # eb fetches what is not here
    if path:
        path = path.resolve()
        in_place = any(is_there(place) and place.samefile(path) for _, place in rendered.container.image_places)
        if not in_place and str(path.parent) not in map(os.path.realpath, framework.source_paths()):
            sources = [f"--sourcepath={path.parent}"]
        if rendered.container.source:
            output.hint(f"{path}: the image, where eb finds it")
    installing = (
        install_command(settings, rendered.container.module, *sources)
        if settings.is_for_account
        else running.command([rendered.path, *sources])
    )
    output.hint(f"install it with: {installing}")
    return 0


def ask(question: str, default: Optional[str]) -> Optional[str]:
    """Ask the user; return the answer, or the default for an empty one; None if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{output.escape(question)}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or default


def check_place(image: Path, profile: Site, meant: bool) -> None:
    """Report a link's target; raise AddingError for a link in a directory whose links move, unless it is intended."""
    moving = {
        Path(os.path.realpath(profile.images.current_root / one.path))
        for one in profile.images.directories
        if one.stability == "moving"
    }
    if Path(os.path.realpath(image.absolute().parent)) in moving and not meant:
        raise AddingError(
            f"{image} is in a directory whose links move, so it can change: "
            f"add its present target, {image.resolve()}, from a stable directory, or use --moving"
        )
