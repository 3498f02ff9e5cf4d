"""What is known of installations: image, user software, disk space, place in the catalog, and what is wrong."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container import modulerc
from easybuild.easyblocks.generic.container.literals import literals
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.values import DIRECTORY, SQUASHFS, normal_name

from ebsif.catalog import selection
from ebsif.catalog.container import CatalogError, Container
from ebsif.eb.easyconfigtext import site_of
from ebsif.errors import EbsifError
from ebsif.images.inspection import software_version
from ebsif.installed import imagestate, lock, places, search, softwarestate
from ebsif.installed.imagestate import ImageState
from ebsif.installed.names import catalog_name
from ebsif.installed.places import Installation, shown
from ebsif.installed.softwarestate import SoftwareState
from ebsif.render import easyconfig
from ebsif.render.rendering import for_eb
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding
from ebsif.report.steps import Now, Steps, working

if TYPE_CHECKING:
    from packaging.requirements import Requirement


@dataclass
class Report:
    """What is known of an installation, its bytes on disk, and the modules that use its image."""

    installation: Installation
    image: Optional[ImageState] = None
    software: Optional[SoftwareState] = None
    size: int = 0
    users: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def module(self) -> str:
        """The name of the module, without the dot of a hidden one."""
        return shown(self.installation)

    @property
    def data(self) -> dict[str, Any]:
        """The fields, for JSON."""
        image, software, installation = self.image, self.software, self.installation
        return {
            "module": self.module,
            "hidden": installation.is_hidden,
            "root": str(installation.root),
            "file": str(installation.file) if installation.file else None,
            "base": installation.base,
            "size": self.size,
            "image": {
                "kind": image.kind,
                "origin": image.origin,
                "path": str(image.path) if image.path else None,
                "size": image.size,
                "state": image.state,
                "used_by": sorted(self.users),
            }
            if image
            else None,
            "user_software": {"state": software.state, "changed": software.is_changed} if software else None,
            "findings": [one.data for one in self.findings],
        }


# Name, place and version.
FoundPackage = tuple[str, str, str]


@dataclass(frozen=True)
class Match:
    """An installation with the packages that were searched."""

    installation: Installation
    packages: list[FoundPackage]


def reports(
    installations: Sequence[Installation], verify: bool = False, catalog: "Optional[Catalog]" = None
) -> tuple[list[Report], int]:
    """Return a report on each installation, compared with a catalog if one is given, and the bytes on disk of all."""
    made: list[Report] = []
    with Steps() as steps:
        steps.begin(
            "examining installations",
            important=False,
            watch=lambda: Now(f"{len(made)} of {len(installations)}", len(made), len(installations)),
        )
        if verify:
            # it has a progress of its own
            steps.end()
        for one in installations:
            made.append(examine(one, verify))
            if catalog and not one.damage:
                made[-1].findings += catalog.compare(one)
        each, total = sizes(one.root for one in installations)
        for report, size in zip(made, each):
            report.size = size
    add_users(made)
    return made, total


def examine(installation: Installation, verify: bool) -> Report:
    """Return a report on an installation by itself."""
    report, module = Report(installation), installation.module
    if installation.damage:
        report.findings.append(Finding(ERROR, module, f"{installation.damage}: {installation.repair}"))
        return report
    report.image = imagestate.examine(installation, verify)
    if report.image.problem:
        report.findings.append(Finding(ERROR if report.image.is_bad else WARNING, module, report.image.problem))
    report.software = softwarestate.examine(installation, verify)
    state = report.software and report.software.state
    was_packed = SQUASHFS in installation.record.user_software
    pack = f"`{installation.load} && make-squashfs && rm -r {shlex.quote(str(installation.root / DIRECTORY))}`"
    if state == softwarestate.GONE:
        report.findings.append(
            Finding(
                ERROR,
                module,
                "its user software is gone: install the module again with "
                f"`{installation.rebuild}`, unless all its users have their own "
                "(EBSIF_USER_SOFTWARE)",
            )
        )
    elif state == softwarestate.BOTH:
        report.findings.append(
            Finding(
                WARNING,
                module,
                f"it uses {installation.root / SQUASHFS}, so "
                f"changes in the directory {DIRECTORY} beside it have no effect: remove the "
                f"directory, or remove the file and pack the directory with {pack}",
            )
        )
    elif state == softwarestate.UNPACKED and was_packed:
        report.findings.append(
            Finding(
                WARNING,
                module,
                "its user software was packed in one file, and is a directory "
                f"now, which is slow on a shared file system: pack it with {pack}",
            )
        )
    report.findings += filter(
        None, (softwarestate.layer(installation, verify), softwarestate.change(installation, report.software))
    )
    report.findings += misplaced_aliases(installation)
    return report


def misplaced_aliases(installation: Installation) -> Iterator[Finding]:
    """Yield findings on aliases in an easyconfig by which the modules tool loads another module, or none (N-05)."""
    if not installation.file or installation.file.is_symlink():
        return
    folder = str(installation.file.parent)
    software, _, version = installation.module.rpartition("/")
    there = modulerc.aliases_in(folder)
    again = f"`{installation.rewrite_module}`"
    for alias in modulerc.aliases_of(str(installation.root)):
        owner = there.get(alias, "")
        other = modulerc.file_of(folder, owner) if owner else None
        # of extensions with a name, the newest one has it
        if owner == installation.module or modulerc.version_meant(folder, version, alias) != version:
            continue
        text = (
            f"its easyconfig has the alias {alias}, but the modules tool loads {owner or 'nothing'} by "
            f"{software}/{alias}: "
        )
        if not other or modulerc.date_in(modulerc.without_dot(owner), alias):
            yield Finding(WARNING, installation.module, f"{text}run {again}")
        elif modulerc.without_dot(version) not in modulerc.aliases_of(modulerc.root_of(other) or ""):
            # the other one doesn't replace it
            yield Finding(WARNING, installation.module, f"{text}install that without this alias, and run {again}")


def add_users(made: Sequence[Report]) -> None:
    """Add to each report which other modules use the image in its directory."""
    owners = {str(one.installation.root.resolve()): one for one in made}
    for report in made:
        if report.image and report.image.path and report.image.kind == lockfile.IMAGE_REFERENCE:
            owner = owners.get(str(report.image.path.resolve().parent))
            if owner and owner is not report:
                owner.users.append(report.module)


def having(installations: Sequence[Installation], wanted: Sequence["Requirement"]) -> tuple[list[Match], list[Finding]]:
    """Return the installations that satisfy all requirements, and findings on those whose packages are unknown."""
    matches: list[Match] = []
    findings: list[Finding] = []
    for one in installations:
        try:
            packages = packages_of(one, findings)
        except EbsifError as error:
            findings.append(Finding(ERROR, one.module, f"its packages are unknown: {error}"))
            continue
        found = [satisfying(requirement, packages) for requirement in wanted]
        if all(found):
            matches.append(Match(one, list(dict.fromkeys(package for some in found for package in some))))
    return matches, findings


def satisfying(requirement: "Requirement", packages: Sequence[FoundPackage]) -> list[FoundPackage]:
    """Return the packages that satisfy a requirement."""
    name = normal_name(requirement.name)
    return [one for one in packages if normal_name(one[0]) == name and selection.is_in(one[2], requirement)]


def packages_of(installation: Installation, findings: list[Finding]) -> list[FoundPackage]:
    """Return the packages of an installation; add a finding if some are unknown."""
    if not installation.record.is_complete:
        findings.append(
            Finding(
                WARNING,
                installation.module,
                "not all packages of its image are known, because an "
                "earlier version of ebsif installed it: install it again with "
                f"`{installation.rebuild}`",
            )
        )
    in_image = [
        (package.name, place_of(package), software_version(package.kind, package.version))
        for package in installation.record.packages
        if package.place != lockfile.IN_USER_SOFTWARE
    ]
    own = softwarestate.packages(installation, softwarestate.examine(installation))
    return list(dict.fromkeys([*in_image, *((name, "user software", version) for name, version in own.items())]))


def place_of(package: Any) -> str:
    """Return where a package of an image is, in words."""
    if package.kind == "pypi":
        return "image"
    if package.place == lockfile.IN_LAYER:
        return f"{lockfile.IN_LAYER}, {package.kind}"
    return f"image, {package.kind}" if package.place == lockfile.IN_IMAGE else f"image, {package.place}"


# --- disk space, in which files that installations share by hard links count once


def sizes(roots: Iterable[Path]) -> tuple[list[int], int]:
    """Return the bytes on disk in each directory, and in all of them together."""
    everything: dict[tuple[int, int], int] = {}
    each = []
    for root in roots:
        inside = files_in(root)
        each.append(sum(inside.values()))
        everything.update(inside)
    return each, sum(everything.values())


def size_of(root: Path) -> int:
    """Return the number of bytes that removing a directory frees; files with hard links elsewhere don't count."""
    names: dict[tuple[int, int], list[int]] = {}
    for folder, _, entries in os.walk(root):
        for entry in entries:
            try:
                status = os.lstat(os.path.join(folder, entry))
            except OSError:  # removed in this moment
                continue
            count = names.setdefault((status.st_dev, status.st_ino), [status.st_nlink, status.st_blocks * 512])
            count[0] -= 1
    return sum(size for left, size in names.values() if left == 0)


def files_in(root: Path) -> dict[tuple[int, int], int]:
    """Return the bytes on disk of the files in a directory, by inode."""
    inside: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(root):
        for name in [".", *names]:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:  # removed in this moment
                continue
            inside[status.st_dev, status.st_ino] = status.st_blocks * 512
    return inside


# --- comparison with the catalog

# Parameters that are only for the module file: to change them, eb writes that again.
IN_MODULE_FILE = frozenset(
    ("aliases", "description", "hidden", "homepage", "listed_packages", "modloadmsg", "moduleclass", "support_level")
    + ("usage", "warnings")
)


class Catalog:
    """The catalog of a site, for comparing installations with it."""

    def __init__(self, site: str, containers: Sequence[Container], output: Path, options: Sequence[str] = ()):
        """
        Index the containers of a site by module.

        `output` is the directory of its easyconfigs; `options` are those of `ebsif` that name site, catalog and
        directory.
        """
        self.site = site
        self.output = output
        self.options = options
        self.containers = {one.module_or_version: one for one in containers}

    def compare(self, installation: Installation) -> Iterator[Finding]:
        """Yield findings on the place of an installation in the catalog."""
        name, module = catalog_name(installation, self.containers), installation.module
        base = name if installation.extension else None
        container, what = self.containers.get(name), f"its base {base}" if base else "it"
        if not container:
            gone = not base and rendered_for(installation) == self.site
            yield Finding(
                WARNING if gone else NOTE,
                module,
                (
                    f"the catalog of {self.site} has no valid record of it anymore: put the record back or correct it "
                    "(`ebsif check`), or remove the module"
                    if gone
                    else f"{what} is not in the catalog of {self.site}"
                ),
            )
            return
        if container.archive_message:
            yield Finding(
                NOTE, module, f"{what} is archived: {container.archive_message}" if base else container.archive_message
            )
        if not base and rendered_for(installation) == self.site:
            yield from self.check_easyconfig(installation, container)

    def check_easyconfig(self, installation: Installation, container: Container) -> Iterator[Finding]:
        """Yield a finding if an installation was made from another easyconfig than the catalog has now."""
        try:
            wanted = literals(easyconfig.render(container))
        except CatalogError as error:
            yield Finding(WARNING, installation.module, f"its record can't be rendered: {error}")
            return
        path = installation.easyconfig
        found = literals(path.read_text(encoding="utf-8", errors="replace")) if path else {}
        differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        if differing:
            options = places.ONLY_MODULE if IN_MODULE_FILE.issuperset(differing) else "--rebuild"
            yield Finding(
                WARNING,
                installation.module,
                f"its easyconfig is out of date: it differs from the catalog in {', '.join(differing)}; "
                f"run `{shlex.join(['ebsif', 'render', *self.options])}`, then `eb {options} "
                f"{for_eb(container, self.output)}`",
            )

    def never_installed(self, installations: Iterable[Installation]) -> list[str]:
        """Return the modules in the catalog that are not installed, without archived ones."""
        there = {catalog_name(one) for one in installations if not one.extension}
        return [module for module, one in self.containers.items() if module not in there and not one.archived]


def rendered_for(installation: Installation) -> Optional[str]:
    """Return the site for whose catalog the easyconfig of an installation was rendered, else None."""
    path = installation.easyconfig
    if not path:
        return None
    with path.open(encoding="utf-8", errors="replace") as text:
        return site_of(text.readline())


# --- one's own modules


@dataclass(frozen=True)
class Row:
    """
    An installed module, what people type for it, the bytes that removing it would free, and the command that loads it.

    `base` is what it extends, and `extends` what people type for that.
    """

    module: str
    name: str
    base: Optional[str]
    extends: Optional[str]
    size: int
    date: str
    state: list[str]
    root: str
    load: str


def mine(containers: Sequence[Container], names: Sequence[str] = ()) -> list[Row]:
    """Return the container modules of this account, installed last first; with parts of names, only matching ones."""
    there = search.everything()
    words = {shown(one): places.word(one, there) for one in there}
    mine = sorted(
        (one for one in there if one.root.stat().st_uid == os.getuid()),
        key=lambda one: (one.root / lockfile.RECORD).stat().st_mtime,
        reverse=True,
    )
    catalog = {container.module_or_version: container for container in containers}
    with working("adding up sizes"):
        return [
            Row(
                shown(one),
                words[shown(one)],
                one.base,
                words.get(one.base or "", one.base),
                size_of(one.root),
                one.date.isoformat(),
                state_of(one, catalog),
                str(one.root),
                one.load,
            )
            for one in mine
            if not names or any(selection.matching(name, [(one.module, one)]) for name in names)
        ]


def state_of(installation: Installation, catalog: dict[str, Container]) -> list[str]:
    """Return noteworthy facts about an installation, each in a few words."""
    state = ["loaded"] if installation.is_loaded else []
    if not installation.file:
        state.append("no module file")
    try:
        if not imagestate.path_of(installation):
            state.append("image gone")
    except lock.LockError:
        state.append("record damaged")
    container = catalog.get(catalog_name(installation, catalog))
    if container and container.archived:
        instead = getattr(container.archived, "replacement", None)
        what = "base archived" if installation.base else "archived"
        state.append(what + (f" (use {instead})" if instead else ""))
    return state
