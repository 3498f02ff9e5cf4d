"""Write easyconfigs, but only changed ones."""

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ebsif import files
from ebsif.catalogue.container import CatalogueError, Container
from ebsif.catalogue.selection import duplicates
from ebsif.catalogue.site import Site
from ebsif.render import easyconfig

# The first line of a rendered easyconfig, which names the site.
RENDERED = re.compile(r"# Rendered by ebsif from the catalogue of the site (\S+):")

# The digests of the easyconfigs as they were written, in the directory of easyconfigs.
WRITTEN = ".ebsif-render"


@dataclass(frozen=True)
class Rendered:
    """A rendered easyconfig: container, path, text, and the file's current text (None: no file)."""

    container: Container
    path: Path
    text: str
    before: Optional[str]

    @property
    def state(self) -> str:
        """'new', 'changed' or 'unchanged'."""
        return "new" if self.before is None else "changed" if self.before != self.text else "unchanged"


def place(container: Container, output: Path) -> Path:
    """Return the path of an easyconfig below a directory in which EasyBuild searches."""
    name = container.easyconfig_name
    # the catalogue refuses such names, but no file must ever be written outside the directory
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise CatalogueError(f"'{name}' is not a valid name for an easyconfig")
    return output / container.name[0].lower() / container.name / name


def for_eb(container: Container, output: Path) -> str:
    """Return an easyconfig as an argument of eb: the file if it was rendered there, else its name, to be searched."""
    path = place(container, output)
    return shlex.quote(str(path)) if path.is_file() else container.easyconfig_name


def render(container: Container, output: Path) -> Rendered:
    """Return the rendered easyconfig of a container."""
    path = place(container, output)
    try:
        # a file with invalid bytes counts as changed
        before = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        before = None
    return Rendered(container, path, easyconfig.render(container), before)


def render_all(containers: Iterable[Container], output: Path,
               others: Iterable[Container]) -> tuple[list[Rendered], list[str]]:
    """Render containers, of which `others` are all of the site; also return why some can't be, with file and line."""
    later = duplicates(others)
    same = {**{first: one for one, first in later.items()}, **later}
    done: list[Rendered] = []
    problems = []
    for container in containers:
        try:
            if container in same:
                raise CatalogueError(f"{container.module} is also the module of {same[container].place}: give one of "
                                     "them a 'label'")
            done.append(render(container, output))
        except CatalogueError as error:
            problems.append(f"{container.place}: {str(error).removeprefix(f'{container.place}: ')}")
    return done, problems


def refused(done: Iterable[Rendered], output: Path) -> dict[Path, tuple[str, str]]:
    """
    Return easyconfigs that must not be replaced unless somebody asks for it (C-04), each with the reason and a remedy.

    They are what a person has written or edited, and easyconfigs of other sites.
    """
    written = files.read_digests(output / WRITTEN)
    found = {}
    for one in done:
        if not one.before or one.state != "changed":
            continue
        before, now = RENDERED.match(one.before), RENDERED.match(one.text)
        # without a digest (from a checkout) its first line says that a file was rendered
        if not before or written.get(str(one.path.relative_to(output))) not in (None, files.digest(one.path)):
            found[one.path] = "was written or edited by a person", "move the change to the catalogue"
        elif now and before[1] != now[1]:
            found[one.path] = (f"is the easyconfig of the site {before[1]}",
                               "choose another directory with -o, in which {site} stands for the site")
    return found


def require_replaceable(one: Rendered, output: Path) -> None:
    """Raise OverwriteError if an easyconfig must not be replaced; see `refused`."""
    for reason, _ in refused([one], output).values():
        raise files.OverwriteError(f"{one.path} {reason}: rename or remove it, or choose another directory with -o, "
                                   "and run this command again")


def write(done: Iterable[Rendered], output: Path, kept: Collection[Path] = ()) -> None:
    """Write the easyconfigs that changed, except those to keep; atomically, because eb may be reading them."""
    written = files.read_digests(output / WRITTEN)
    digests = dict(written)
    for one in done:
        if one.path in kept:
            continue
        name = str(one.path.relative_to(output))
        if one.state != "unchanged":
            files.replace(one.path, one.text, shared=True)
        elif name not in written:
            # nothing to do, possibly in a directory that can't be written
            continue
        digests[name] = files.digest(one.path)
    if digests != written:
        text = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
        files.replace(output / WRITTEN, text, shared=True)


def left_over(wanted: Iterable[Path], output: Path, site: Site) -> list[Path]:
    """Return the easyconfigs that were rendered for a site but are not among the given paths."""
    wanted = set(wanted)
    paths = []
    for folder in sorted({path.parent for path in wanted} | set(output.glob("?/*"))):
        for path in sorted(folder.glob("*.eb")):
            if path not in wanted:
                with path.open(encoding="utf-8", errors="replace") as text:
                    match = RENDERED.match(text.readline())
                if match and match.group(1) == site.name:
                    paths.append(path)
    return paths
