"""An extension, packages of a user on top of a container: its stages, its names and dates, and those that are there."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import modulerc, newest
from easybuild.easyblocks.generic.container.values import system_names

from ebsif.catalog.container import Container
from ebsif.catalog.stages import COMMANDS, Stage, lines_of, simplest
from ebsif.eb import easyconfigtext
from ebsif.environments.earlier import TODAY, Earlier
from ebsif.errors import EbsifError
from ebsif.installed.places import Installation
from ebsif.packages.lines import names_in
from ebsif.render import easyconfig

# The first sentence of the description of an extension, after name and version, and how many packages it names.
ADDITION = r"\s+with\s.+?,\s+on\s+top\s+of\s+(?P<base>\S+)\.\s+"
MOST_NAMES = 4
LINE = 100  # of the description


class ExtendingError(EbsifError):
    """A container can't be extended; the message says why and what to do."""


@dataclass(frozen=True)
class Companion:
    """A file that an easyconfig names: the suffix that replaces `.eb`, and what writes it, perhaps over another one."""

    suffix: str
    write: Callable[[Path, bool], None]


@dataclass(frozen=True)
class Extension:
    """
    An extension to make: packages on top of a container, under a name.

    `stages` are what is installed, those of the base included, and `kept` constraints: packages of the extension that
    is changed, which keep their version. `inherited` are the stages of the base, if that container is without them. To
    repeat a lock, the easyconfig names files instead of stages: `companions`, by their key in the easyconfig parameter
    `requirements`; `is_same` then says whether an easyconfig repeats it. `problem` is why it can't be installed, if
    that is known already.

    `before` is the installation whose packages it starts with, `installed_base` that of the base, if there is one: it
    starts with its packages if they are the same as from scratch. If `is_change`, it is a later one of the same name,
    which has the date only to replace it; `earlier` are the extensions that were there before its packages were read,
    by default those that are there when it is made. `to_add` is the command that adds to an earlier one of that
    name, if the packages are not meant as all that it has; `keeps_all` says that none of an earlier one are lost.
    """

    base: Container
    name: str
    stages: Sequence[Stage] = ()
    inherited: Sequence[Stage] = ()
    kept: Sequence[str] = ()
    companions: Mapping[str, Companion] = field(default_factory=dict)
    is_same: Optional[Callable[[Path], bool]] = None
    problem: str = ""
    before: Optional[Installation] = None
    installed_base: Optional[Installation] = None
    is_change: bool = False
    date: Optional[str] = None
    earlier: Optional[Earlier] = None
    to_add: str = ""
    keeps_all: bool = False

    @property
    def package_names(self) -> set[str]:
        """The normalized names of all packages that it names, of the image's distribution, too."""
        return {*names_in(lines_of(self.stages)), *system_names(self.base.system.packages)}

    @property
    def variables(self) -> dict[str, str]:
        """The variables of eb to start with the packages of an installation, where that leads to the same result."""
        # imports EasyBuild
        from easybuild.easyblocks.generic.container.venv import BASE_VARIABLE, REUSE_VARIABLE

        start = {BASE_VARIABLE: str(self.installed_base.root)} if self.installed_base else {}
        return {REUSE_VARIABLE: str(self.before.root)} if self.before else start

    @property
    def undated(self) -> str:
        """The text of its easyconfig for any date: what a check has in common with the installation after it."""
        return DatedExtension(self, "0").body


@dataclass(frozen=True)
class DatedExtension:
    """An extension with its date: a module of its own, and the easyconfig of that."""

    extension: Extension
    date: str

    @property
    def module(self) -> str:
        """The name of the module."""
        return f"{self.extension.base.module}-{self.extension.name}-{self.date}"

    @property
    def file_name(self) -> str:
        """The name of the easyconfig."""
        return f"{self.module.replace('/', '-')}.eb"

    @cached_property
    def container(self) -> Container:
        """The extended container; see `extend`."""
        extended = extend(self.extension, self.date)
        path, companions = Path(self.file_name), self.extension.companions
        files = {key: path.with_suffix(companion.suffix).name for key, companion in companions.items()}
        return extended.replace(requirements=files) if files else extended

    @cached_property
    def body(self) -> str:
        """The text of the easyconfig below its first line."""
        return easyconfig.render(self.container, easyconfigtext.header("")).partition("\n")[2]

    def text(self, command: str) -> str:
        """Return the text of the easyconfig, as written by a command."""
        return f"{easyconfigtext.header(command)}\n{self.body}"

    def is_in(self, path: Path) -> bool:
        """Return whether an easyconfig is that of this extension, whichever command has written it."""
        if self.extension.is_same:
            return self.extension.is_same(path)
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        return easyconfigtext.is_written(first) and rest == self.body


def extend(extension: Extension, date: str) -> Container:
    """
    Return the base of an extension with its stages; its module can't replace that of the plain container.

    Name and date become part of the version suffix. Raise ExtendingError if the container can't be extended, or a name
    is not valid there.
    """
    container, stages, name = extension.base, extension.stages, extension.name
    if stages and not container.venv:
        has_commands_only = [stage.name for stage in stages] == [COMMANDS]
        what = "can't have --post or --verify" if has_commands_only else "can't be extended"
        raise ExtendingError(
            f"{container.module} {what}: it has no user software ('venv' in the catalog, the "
            "easyblock ContainerVenv in an easyconfig)"
        )
    check_names(name, date)
    # the name of the image does not change with that of the module, nor where it is if the site has it
    image = container.site.extension_image if container.image_kind != "central" else "central"
    # the user's module is new and visible, whatever has become of its base
    warnings = (
        [*container.warnings, f"its base {container.archive_message}"] if container.archived else container.warnings
    )
    return container.replace(
        file=container.file_name,
        image=image,
        suffix=f"{container.versionsuffix}-{name}-{date}",
        requirements=simplest(stages),
        description=describe(extension),
        aliases=[f"{container.full_version}-{name}", name],
        archived=None,
        warnings=warnings,
    )


def describe(extension: Extension) -> str:
    """Return the description of an extension: its purpose, then what the base says of itself."""
    container = extension.base
    text = container.fill(container.description or container.name).strip()
    # of a base that is an extension, too, the purpose is left out
    addition = re.compile(re.escape(f"{container.name} {container.version}") + ADDITION, re.DOTALL)
    earlier = addition.match(text)
    base = earlier["base"] if earlier and extension.is_change else name_of_base(container)
    return f"{purpose(extension, base)}\n{text[earlier.end() if earlier else 0 :]}"


def name_of_base(container: Container) -> str:
    """Return the name that a container has for good: the names of an extension without its date move to later ones."""
    lasting = [alias for alias in container.aliases if modulerc.date_in(container.full_version, alias) is None]
    return f"{container.name}/{lasting[0]}" if lasting else container.module


def purpose(extension: Extension, base: str) -> str:
    """Return the first sentence of the description of an extension: what was added, on a base of that name."""
    container = extension.base
    of_base = names_in(lines_of([*extension.inherited, *container.stages]))
    names = sorted(names_in(lines_of(extension.stages)) - of_base)
    names += system_names(container.system.packages)
    more = [f"{len(names) - MOST_NAMES} more packages"] if len(names) > MOST_NAMES + 1 else []
    listed = names[:MOST_NAMES] + more if more else names
    what = " and ".join(filter(None, [", ".join(listed[:-1]), *listed[-1:]])) or "packages of a user"
    start, end = f"{container.name} {container.version} with {what},", f"on top of {base}."
    return start + (" " if len(start) + len(end) < LINE else "\n") + end


def check_names(name: str, date: Optional[str] = None) -> None:
    """Raise ExtendingError unless the name and the date of an extension are valid in a version suffix."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]*", name):
        raise ExtendingError(f"--name '{name}': use only letters, digits, _ and .")
    if date is not None and not re.fullmatch(f"(?!_){newest.DATE}", date):
        raise ExtendingError(
            f"--date '{date}': use only letters, digits, _ and . before a number ({time.strftime(TODAY)}.2)"
        )
