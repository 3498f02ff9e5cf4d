"""Writing easyconfigs: only what changed."""

import re
from dataclasses import dataclass
from pathlib import Path

from ebsif import files
from ebsif.catalogue.container import CatalogueError
from ebsif.catalogue.selection import duplicates
from ebsif.render import easyconfig

# The first line of a rendered easyconfig says for which site it was.
RENDERED = re.compile(r"# Rendered by ebsif from the catalogue of the site (\S+):")


@dataclass(frozen=True)
class Rendered:
    """An easyconfig as it should be: container, path, text, and the text that is there (None: not there)."""

    container: object
    path: Path
    text: str
    before: object

    @property
    def state(self):
        """'new', 'changed' or 'unchanged'."""
        return "new" if self.before is None else "changed" if self.before != self.text else "unchanged"


def place(container, output):
    """Return the path of an easyconfig (Path) below a directory, where EasyBuild looks for it."""
    name = container.easyconfig_name
    # the catalogue has no such names; what is written must not depend on that
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise CatalogueError(f"'{name}' can't be the name of an easyconfig")
    return output / container.name[0].lower() / container.name / name


def render(containers, output):
    """Yield what each easyconfig should be (Rendered), one at a time: a large catalogue needs no more memory."""
    for container in containers:
        path = place(container, output)
        try:
            # one that somebody has spoilt is not as it should be, nothing else
            before = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            before = None
        yield Rendered(container, path, easyconfig.render(container), before)


def render_all(containers, output, others):
    """
    Render what can be rendered.

    Parameters
    ----------
    containers : list of Container
        What to render.
    output : Path
        Directory of the easyconfigs.
    others : list of Container
        All that there are: two of one module can't both be installed.

    Returns
    -------
    list of Rendered
        In the same order, without those that can't be.
    list of str
        Why not, each with file and line.
    """
    later = duplicates(others)
    same = {**{first: one for one, first in later.items()}, **later}
    done, problems = [], []
    for container in containers:
        try:
            if container in same:
                raise CatalogueError(f"{container.module} is the module of {same[container].place} as well: "
                                     "give one of them a 'label' of its own")
            done += render([container], output)
        except CatalogueError as error:
            problems.append(f"{container.place}: {str(error).removeprefix(f'{container.place}: ')}")
    return done, problems


def write(rendered):
    """Write an easyconfig if it is not as it should be: a new file and a rename, because eb may be reading it."""
    if rendered.state == "unchanged":
        return
    files.replace(rendered.path, rendered.text)


def left_over(wanted, output, site):
    """Return easyconfigs that were rendered for a site and are none of the wanted paths any more (list of Path)."""
    wanted = set(wanted)
    found = []
    for folder in sorted({path.parent for path in wanted} | set(output.glob("?/*"))):
        for path in sorted(folder.glob("*.eb")):
            if path not in wanted:
                with path.open(encoding="utf-8", errors="replace") as text:
                    match = RENDERED.match(text.readline())
                if match and match.group(1) == site.name:
                    found.append(path)
    return found
