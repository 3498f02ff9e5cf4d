"""The contents of pages about containers: short names, badges, packages, and changes since the previous container."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from easybuild.easyblocks.generic.container.record.lockfile import ImageRecord, Record
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog import selection
from ebsif.catalog.container import Container
from ebsif.catalog.packagenames import DEFAULT_BADGES
from ebsif.installed import lock

# The components with columns of their own: frameworks, software of the GPU, Python.
COLUMNS = (("torch", "tensorflow", "jax"), tuple(GPU_KINDS), ("python",))

# A date at the beginning of a container's date, which may have a time as well: 20250827, 20250827_134408.
DATE = re.compile(r"(20\d\d)(\d\d)(\d\d)(?!\d)")
# Parts of a template of version suffixes: a component with its name in front (-rocm-{rocm}), a placeholder, a word.
SUFFIX_PART = re.compile(r"-?(?P<pair>[\w.]+)-\{(?P=pair)(?:!dotless)?\}|-?\{(?P<field>\w+)[^}]*\}|-?(?P<word>[^-{}]+)")


@dataclass(frozen=True)
class Badge:
    """A component that decides which container to choose: its name, how it is written, and its version if known."""

    name: str
    label: str
    full_version: Optional[str]

    @property
    def version(self) -> str:
        """The version without what only identifies the build."""
        return public(self.full_version or "")


@dataclass(frozen=True)
class Page:
    """A container, with what the pages say about it."""

    container: Container
    before: Optional[Container]
    record: Optional[Record]
    changes: list[lock.LockDifference]
    short_name: str
    # whether its record recommends it
    is_recommended: bool = False

    @property
    def address(self) -> str:
        """Path of the page below the start page."""
        return f"{self.container.site.name}/{self.container.module}.html"

    @property
    def date(self) -> str:
        """The date of the container, as 2025-08-27 where it is one."""
        text = self.container.date or ""
        return as_day(text if not DATE.match(text) else text[:8]) or ""

    @cached_property
    def packages(self) -> dict[str, dict[str, str]]:
        """The packages in the record of the installation: versions by name, by kind."""
        return lock.packages_by_kind(self.record) if self.record else {}

    @cached_property
    def contents(self) -> dict[str, Optional[str]]:
        """Versions by normalized name: components, packages, and keywords, whose version is unknown."""
        found: dict[str, Optional[str]] = {}
        for kind in self.packages.values():
            found.update((normal_name(name), version) for name, version in kind.items())
        found.update(self.container.versions)
        for keyword in map(normal_name, self.container.keywords):
            named = [name for name, label in self.labels.items() if keyword in (name, normal_name(label))]
            for name in named or [keyword]:
                found.setdefault(name, None)
        return found

    @cached_property
    def labels(self) -> dict[str, str]:
        """How the components that get a badge are written, by normalized name."""
        of_site = self.container.site.badges
        labels = {**(DEFAULT_BADGES if of_site is None else of_site), **self.container.badges}
        return {normal_name(name): label for name, label in labels.items() if label}

    @property
    def alias(self) -> Optional[str]:
        """The normalized name of the software, if the version is that of a package of another name."""
        return alias(self.container)

    @property
    def components(self) -> dict[str, str]:
        """
        The components in the catalog that aren't listed among the packages.

        The software itself is in the heading, and a word such as full is no version.
        """
        listed = {normal_name(name) for kind in self.packages.values() for name in kind}
        return {
            name: version
            for name, version in self.container.versions.items()
            if name != normal_name(self.container.name) and name not in listed and re.search(r"\d", version)
        }

    @property
    def badges(self) -> list[Badge]:
        """The badges; a build of a certain day has this day in place of a version."""
        return [
            Badge(name, label, as_day(self.contents[name]))
            for name, label in self.labels.items()
            if name in self.contents
        ]

    @property
    def columns(self) -> list[list[Badge]]:
        """The badges of each column, and at last the others."""
        own = {name: number for number, names in enumerate(COLUMNS) for name in names}
        return [
            [one for one in self.badges if own.get(one.name, len(COLUMNS)) == number]
            for number in range(len(COLUMNS) + 1)
        ]

    @property
    def words(self) -> str:
        """What the free text of the filter searches, besides the contents."""
        container = self.container
        texts = [
            container.module,
            self.short_name,
            container.site.name,
            self.date,
            container.file_name,
            container.fill(container.description or ""),
            container.history or "",
            *container.keywords,
            *(badge.label for badge in self.badges),
        ]
        return " ".join(" ".join(texts).lower().split())

    @property
    def image(self) -> ImageRecord:
        """What the record of the installation says of the image; empty if it isn't installed."""
        return (self.record or Record()).image

    @property
    def license(self) -> Optional[str]:
        """The license, from the record of the container or from a label of its image; None if unknown."""
        return self.container.parameters.get("software_license") or self.label("licenses")

    @property
    def source(self) -> Optional[str]:
        """Where the image comes from; None if unknown. A path on the machine where it was installed doesn't count."""
        fetched = self.image.source if self.image.source_digest else None
        return self.container.source or fetched or self.label("source")

    @property
    def signature(self) -> Optional[str]:
        """What is known of the signature of the image; None if nothing is."""
        if self.image.verified:
            return f"The image is signed by {', '.join(self.image.verified)}."
        signers = self.image.signers
        if not self.image.has("signers"):
            return None
        return f"By the key {', '.join(map(str, signers))}, not verified." if signers else "The image is not signed."

    def label(self, name: str) -> Optional[str]:
        """Return a label of the image that the OCI defines; None if there is none."""
        return self.image.labels.get(f"org.opencontainers.image.{name}")


def as_day(text: Optional[str]) -> Optional[str]:
    """Return a date such as 20240918 as 2024-09-18, and any other text as it is."""
    found = DATE.fullmatch(text or "")
    return "-".join(found.groups()) if found else text


def alias(container: Container) -> Optional[str]:
    """Return the normalized name of a software whose version is that of a package of another name, else None."""
    name, package = (normal_name(one or "") for one in (container.name, container.package))
    return name if package and package != name else None


def public(version: str) -> str:
    """Return a version without what only identifies the build: 0.8.5+rocm624 becomes 0.8.5."""
    return version.partition("+")[0]


def pages(containers: Iterable[Container], records: Optional[Mapping[str, Record]] = None) -> list[Page]:
    """Return the pages of all containers."""
    records, known = records or {}, list(containers)
    earlier: dict[Container, Optional[Container]] = {}
    named: dict[str, list[Container]] = {}
    # history, whatever the versions
    for container in sorted(known, key=lambda one: (selection.day(one), selection.age(one))):
        before = named.setdefault(container.name, [])
        others = [one for one in reversed(before) if one.file_name != container.file_name]
        alike = [one for one in others if kind_of(one) == kind_of(container)]
        earlier[container] = next(iter(alike or others), None)
        before.append(container)
    short = {one: text for some in named.values() for one, text in short_names(some).items()}
    return [
        Page(
            one,
            earlier[one],
            records.get(one.module),
            changes(earlier[one], one, records),
            short[one],
            one.default and not one.archived,
        )
        for one in known
    ]


def changes(
    earlier: Optional[Container], container: Container, records: Mapping[str, Record]
) -> list[lock.LockDifference]:
    """Return the differences between two containers: of all packages if both are installed."""
    if not earlier:
        return []
    before, after = records.get(earlier.module), records.get(container.module)
    components = [
        one
        for one in lock.differences("component", earlier.versions, container.versions)
        if one.name != alias(container)
    ]
    if not (before and after):
        return components
    packages = lock.package_changes(before, after)
    listed = {normal_name(one.name) for one in packages}
    return [one for one in components if one.name not in listed] + packages


def short_names(containers: Iterable[Container]) -> dict[Container, str]:
    """Return name, version, and the parts of the suffix that others of the name lack, except versions and date."""
    parts = {one: suffix_parts(one) for one in containers}
    common = set.intersection(*map(set, parts.values()))
    return {
        one: " ".join([one.name, one.version, *(part for part in own if part not in common)])
        for one, own in parts.items()
    }


def kind_of(container: Container) -> list[str]:
    """Return the words of a version suffix, such as full, which tell apart what is updated separately."""
    return [part for part in suffix_parts(container) if not re.search(r"\d", part)]


def suffix_parts(container: Container) -> list[str]:
    """Return the parts of a version suffix, without date and components, whose versions have badges."""
    found = []
    for part in SUFFIX_PART.finditer(container.suffix_template):
        if part["word"]:
            found.append(part["word"])
        elif part["field"] and part["field"] not in ("date", "version", "name"):
            found.append(container.fill(part[0]).strip("-"))
    named = tuple(f"{name}-" for name in container.versions)
    return [part for part in found if part and not part.startswith(named)]
