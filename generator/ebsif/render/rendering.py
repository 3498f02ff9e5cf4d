"""Write easyconfigs, but only changed ones."""

import os
import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.values import NAME_PART

from ebsif import files, filling
from ebsif.catalog.container import CatalogError, Container
from ebsif.catalog.selection import duplicates
from ebsif.catalog.site import Site
from ebsif.eb.easyconfigtext import site_of
from ebsif.errors import EbsifError
from ebsif.render import easyconfig

# The digests of the easyconfigs as they were written, in the directory of easyconfigs.
WRITTEN = ".ebsif-render"

# EasyBuild's directory of archived easyconfigs: eb finds them by path, or with --consider-archived-easyconfigs.
ARCHIVE = "__archive__"


@dataclass(frozen=True)
class Rendered:
    """A rendered easyconfig: container, path, text, the file's current text, and its file at an earlier place."""

    container: Container
    path: Path
    text: str
    # None: no file
    before: Optional[str]
    # since the record was archived, or is no longer
    moved_from: Optional[Path]

    @property
    def state(self) -> str:
        """'moved', 'new', 'changed' or 'unchanged'."""
        if self.moved_from:
            return "moved"
        return "new" if self.before is None else "changed" if self.before != self.text else "unchanged"

    @property
    def replaced(self) -> dict[Path, str]:
        """The files that writing it would replace or remove, with their texts."""
        texts = {}
        if self.before and self.before != self.text:
            texts[self.path] = self.before
        if self.moved_from:
            texts[self.moved_from] = read(self.moved_from) or ""
        return texts


@dataclass(frozen=True)
class Refusal:
    """A file that must not be replaced or removed unless somebody asks for it, the reason and the remedy."""

    path: Path
    reason: str
    remedy: str


def place(container: Container, output: Path) -> Path:
    """Return the path of an easyconfig below a directory in which EasyBuild searches; archived ones have their own."""
    folder = output / ARCHIVE if container.archived else output
    return folder / below_letter(container)


def other_place(container: Container, output: Path) -> Path:
    """Return the path that the easyconfig had, or will have, if the container is archived or brought back."""
    folder = output if container.archived else output / ARCHIVE
    return folder / below_letter(container)


def below_letter(container: Container) -> Path:
    """Return the path of an easyconfig below EasyBuild's folders of letters."""
    name = container.easyconfig_name
    # the catalog refuses such names, but no file must ever be written outside the directory
    if not re.fullmatch(NAME_PART, name):
        raise CatalogError(f"'{name}' is not a valid name for an easyconfig")
    return Path(container.name[0].lower(), container.name, name)


def for_eb(container: Container, output: Path) -> str:
    """Return an easyconfig as arguments of eb: the file if it was rendered there, else its name, to be searched."""
    path = place(container, output)
    if path.is_file():
        return shlex.quote(str(path))
    return f"--consider-archived-easyconfigs {path.name}" if container.archived else path.name


def read(path: Path) -> Optional[str]:
    """Return the text of a file, None without a file. A file with invalid bytes differs from all that is rendered."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def render(container: Container, output: Path) -> Rendered:
    """Return the rendered easyconfig of a container."""
    path, other = place(container, output), other_place(container, output)
    # a link between both places, or from __archive__ to all, lets eb find archived easyconfigs
    moved_from = other if other.is_file() and not (path.exists() and path.samefile(other)) else None
    return Rendered(container, path, easyconfig.render(container), read(path), moved_from)


def render_all(
    containers: Iterable[Container], output: Path, others: Iterable[Container]
) -> tuple[list[Rendered], list[str]]:
    """Render containers, of which `others` are all of the site; also return why some can't be, with file and line."""
    later = duplicates(others)
    same = {**{first: one for one, first in later.items()}, **later}
    done: list[Rendered] = []
    problems = []
    for container in containers:
        try:
            if container in same:
                raise CatalogError(
                    f"{container.module} is also the module of {same[container].place}: give one of them a 'label'"
                )
            done.append(render(container, output))
        except CatalogError as error:
            problems.append(f"{container.place}: {str(error).removeprefix(f'{container.place}: ')}")
    return done, problems


def refused(done: Iterable[Rendered], output: Path) -> dict[Path, Refusal]:
    """
    Return easyconfigs that must not be written unless somebody asks for it (C-04), each with the reason.

    They would replace what a person has written or edited, or easyconfigs of other sites.
    """
    changing = [(one, path, text) for one in done for path, text in one.replaced.items()]
    if not changing:
        return {}
    found = {}
    # not between a file and its digest, which another process writes
    with files.alone(output):
        written = filling.read_digests(output / WRITTEN)
        for one, path, text in changing:
            name, before, now = str(path.relative_to(output)), site_of(text), site_of(one.text)
            # without a digest (from a checkout) its first line says that a file was rendered
            if not before or (name in written and filling.is_changed(output, name, written)):
                found[one.path] = Refusal(path, "was written or edited by a person", "move the change to the catalog")
            elif now and before != now:
                found[one.path] = Refusal(
                    path,
                    f"is the easyconfig of the site {before}",
                    "choose another directory with -o, in which {site} stands for the site",
                )
    return found


def require_replaceable(one: Rendered, output: Path) -> None:
    """Raise EbsifError if an easyconfig must not be replaced; see `refused`."""
    for refusal in refused([one], output).values():
        raise EbsifError(
            f"{refusal.path} {refusal.reason}: rename or remove it, or choose another directory "
            "with -o, and run this command again"
        )


def write(done: Iterable[Rendered], output: Path, kept: Collection[Path] = ()) -> None:
    """Write the easyconfigs that changed, except those to keep; atomically, because eb may be reading them."""
    chosen = [one for one in done if one.path not in kept]
    if chosen:
        files.make_directory(output)
    with files.alone(output):
        write_easyconfigs(chosen, output)


def write_easyconfigs(chosen: Iterable[Rendered], output: Path) -> None:
    """Write easyconfigs and their digests; see `write`."""
    written = filling.read_digests(output / WRITTEN)
    digests = dict(written)
    for one in chosen:
        name = str(one.path.relative_to(output))
        if one.before != one.text:
            files.replace(one.path, one.text, shared=True)
        elif name not in written and not one.moved_from:
            # nothing to do, possibly in a directory that can't be written
            continue
        digests[name] = filling.digest(one.path)
        if one.moved_from:
            one.moved_from.unlink()
            digests.pop(str(one.moved_from.relative_to(output)), None)
    if digests != written:
        files.replace(output / WRITTEN, filling.list_of(digests), shared=True)


def left_over(wanted: Iterable[Path], output: Path, site: Site) -> list[Path]:
    """Return the easyconfigs that were rendered for a site but are not among the given paths."""
    wanted = set(wanted)
    there = set(map(os.path.realpath, wanted))
    paths = []
    folders = {path.parent for path in wanted} | {*output.glob("?/*"), *output.glob(f"{ARCHIVE}/?/*")}
    for folder in sorted(folders):
        for path in sorted(folder.glob("*.eb")):
            # links are for eb, and lead to what is wanted
            if os.path.realpath(path) not in there:
                with path.open(encoding="utf-8", errors="replace") as text:
                    if site_of(text.readline()) == site.name:
                        paths.append(path)
    return paths
