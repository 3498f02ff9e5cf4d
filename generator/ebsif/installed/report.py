"""A report on installations: image, user software, disk space, place in the catalogue, and what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container.lockfile import (
    IMAGE_REFERENCE,
    IN_IMAGE,
    IN_USER_SOFTWARE,
)
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue import selection
from ebsif.errors import EbsifError
from ebsif.images.inspection import software_version
from ebsif.installed import imagestate, softwarestate, usage
from ebsif.installed.imagestate import ImageState
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.installed.softwarestate import SoftwareState
from ebsif.installed.versus import Catalogue
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding
from ebsif.report.steps import Now, Steps

if TYPE_CHECKING:
    from packaging.requirements import Requirement


@dataclass
class Report:
    """
    What is known of an installation, its size on disk in bytes, and the modules that use its image.

    Image and user software are None if the record is damaged, user software also if the module has none.
    """

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
            "module": self.module, "hidden": "/." in installation.module, "root": str(installation.root),
            "file": str(installation.file) if installation.file else None, "base": installation.base,
            "size": self.size,
            "image": {"kind": image.kind, "origin": image.origin, "path": str(image.path) if image.path else None,
                      "size": image.size, "state": image.state, "used_by": sorted(self.users)} if image else None,
            "user_software": {"state": software.state, "changed": software.is_changed} if software else None,
            "findings": [one.data for one in self.findings],
        }


# Name, place and version.
Package = tuple[str, str, str]


@dataclass(frozen=True)
class Match:
    """An installation with the packages that were searched."""

    installation: Installation
    packages: list[Package]


def reports(installations: Sequence[Installation], verify: bool = False,
            catalogue: Optional[Catalogue] = None) -> tuple[list[Report], int]:
    """
    Return a report on each installation, compared with a catalogue if one is given, and the bytes on disk of all.

    If `verify`, images and user software are read and their SHA256 compared.
    """
    made: list[Report] = []
    with Steps() as steps:
        steps.begin("examining installations", important=False,
                    watch=lambda: Now(f"{len(made)} of {len(installations)}", len(made), len(installations)))
        if verify:
            # it has a progress of its own
            steps.end()
        for one in installations:
            made.append(examine(one, verify))
            if catalogue and not one.damage:
                made[-1].findings += catalogue.compare(one)
        each, total = usage.sizes(one.root for one in installations)
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
    if state == softwarestate.GONE:
        report.findings.append(Finding(WARNING, module, "its user software is gone: install the module again with "
                                       f"`{installation.rebuild}`, unless all its users have their own "
                                       "(EBSIF_USER_SOFTWARE)"))
    elif state == softwarestate.BOTH:
        report.findings.append(Finding(NOTE, module, "it has both user-software.squashfs, which is used, and the "
                                       "directory user-software, which isn't: remove the directory, or remove the file "
                                       "and pack the directory with make-squashfs"))
    change = softwarestate.change(installation, report.software)
    report.findings += [change] if change else []
    return report


def add_users(made: Sequence[Report]) -> None:
    """Add to each report which other modules use the image in its directory."""
    owners = {str(one.installation.root.resolve()): one for one in made}
    for report in made:
        if report.image and report.image.path and report.image.kind == IMAGE_REFERENCE:
            owner = owners.get(str(report.image.path.resolve().parent))
            if owner and owner is not report:
                owner.users.append(report.module)


def having(installations: Sequence[Installation], wanted: Sequence["Requirement"]) -> tuple[list[Match], list[Finding]]:
    """Return the installations that satisfy all requirements, and findings on those whose packages are unknown."""
    matches: list[Match] = []
    findings: list[Finding] = []
    for one in installations:
        try:
            places = packages_of(one, findings)
        except EbsifError as error:
            findings.append(Finding(ERROR, one.module, f"its packages are unknown: {error}"))
            continue
        found = [satisfying(requirement, places) for requirement in wanted]
        if all(found):
            matches.append(Match(one, list(dict.fromkeys(package for some in found for package in some))))
    return matches, findings


def satisfying(requirement: "Requirement", packages: Sequence[Package]) -> list[Package]:
    """Return the packages that satisfy a requirement."""
    name = normal_name(requirement.name)
    return [one for one in packages if normal_name(one[0]) == name and selection.is_in(one[2], requirement)]


def packages_of(installation: Installation, findings: list[Finding]) -> list[Package]:
    """Return the packages of an installation; add a finding if some are unknown."""
    if not installation.record.is_complete:
        findings.append(Finding(WARNING, installation.module, "not all packages of its image are known, because an "
                                "earlier version of ebsif installed it: install it again with "
                                f"`{installation.rebuild}`"))
    in_image = [(package.name, place_of(package), software_version(package.kind, package.version))
                for package in installation.record.packages if package.place != IN_USER_SOFTWARE]
    own = softwarestate.packages(installation, softwarestate.examine(installation))
    return list(dict.fromkeys([*in_image, *((name, "user software", version) for name, version in own.items())]))


def place_of(package: Any) -> str:
    """Return where a package of an image is, in words."""
    if package.kind == "pypi":
        return "image"
    return f"image, {package.kind}" if package.place == IN_IMAGE else f"image, {package.place}"
