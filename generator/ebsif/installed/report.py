"""A report on installations: image, user software, disk space, place in the catalogue, and what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.sharedimage import IMAGE_REFERENCE
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue import selection
from ebsif.errors import EbsifError
from ebsif.findings import ERROR, NOTE, WARNING, Finding
from ebsif.installed import imagestate, lock, softwarestate, usage
from ebsif.installed.imagestate import ImageState
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.installed.softwarestate import SoftwareState
from ebsif.installed.versus import Catalogue
from ebsif.steps import Now, Steps

# Where a package can be, in the order of the search.
IMAGE, USER_SOFTWARE = "image", "user software"


@dataclass
class Report:
    """
    What is known of an installation.

    Attributes
    ----------
    installation : Installation
    image : ImageState, optional
        None if the record is damaged.
    software : SoftwareState, optional
        None if the module has no user software, or if the record is damaged.
    size : int
        Bytes on disk in the installation directory.
    users : dict of bool
        The modules that use its image, and whether they need that very file.
    findings : list of Finding
    """

    installation: Installation
    image: Optional[ImageState] = None
    software: Optional[SoftwareState] = None
    size: int = 0
    users: dict[str, bool] = field(default_factory=dict)
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
                      "size": image.size, "state": image.state, "used_by": self.users} if image else None,
            "user_software": {"state": software.state, "changed": software.is_changed} if software else None,
            "findings": [one.data for one in self.findings],
        }


@dataclass(frozen=True)
class Match:
    """An installation with the packages that were searched: name, place (IMAGE, USER_SOFTWARE) and version."""

    installation: Installation
    packages: list[tuple[str, str, str]]


def reports(installations: Sequence[Installation], verify: bool = False,
            catalogue: Optional[Catalogue] = None) -> tuple[list[Report], int]:
    """
    Return a report on each installation, and the bytes on disk of all.

    Parameters
    ----------
    installations
        The installations.
    verify
        Whether to read images and user software, and compare their SHA256.
    catalogue
        The catalogue to compare them with.
    """
    made = []
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


def examine(installation, verify):
    """Return a report on an installation by itself (Report)."""
    report, module = Report(installation), installation.module
    if installation.damage:
        report.findings.append(Finding(ERROR, module, installation.damage))
        return report
    report.image = imagestate.examine(installation, verify)
    if report.image.problem:
        report.findings.append(Finding(ERROR if report.image.is_bad else WARNING, module, report.image.problem))
    report.software = softwarestate.examine(installation, verify)
    state = report.software and report.software.state
    if state == softwarestate.GONE:
        report.findings.append(Finding(WARNING, module, "its user software is gone: install the module again with `eb "
                                       "--rebuild`, unless people use their own (EBSIF_USER_SOFTWARE)"))
    elif state == softwarestate.BOTH:
        report.findings.append(Finding(NOTE, module, "it has both user-software.squashfs, which is used, and the "
                                       "directory user-software: pack that with make-squashfs, or remove it"))
    return report


def add_users(made):
    """Add to each report which other modules use the image in its directory."""
    owners = {}
    for report in made:
        path = report.image and report.image.path
        if path and path.parent == report.installation.root:
            status = path.stat()
            owners.setdefault((status.st_dev, status.st_ino), []).append(report)
    for report in made:
        if not (report.image and report.image.path):
            continue
        status = report.image.path.stat()
        for owner in owners.get((status.st_dev, status.st_ino), []):
            # of hard links, the first one is that of the module itself
            if owner is not report and (report.image.kind == IMAGE_REFERENCE or report.image.origin == owner.module):
                owner.users[report.module] = report.image.kind == IMAGE_REFERENCE


def having(installations: Sequence[Installation], wanted: Sequence) -> tuple[list[Match], list[Finding]]:
    """
    Return the installations that have packages, and findings on those whose packages are unknown.

    Parameters
    ----------
    installations
        The installations.
    wanted
        Requirements (packaging.requirements.Requirement), all of which have to be satisfied.
    """
    matches, findings = [], []
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


def satisfying(requirement, places):
    """Return the packages that satisfy a requirement: name, place and version (list of tuple)."""
    name = normal_name(requirement.name)
    return [(name, place, packages[name]) for place, packages in places.items()
            if selection.is_in(packages.get(name), requirement)]


def packages_of(one, findings):
    """Return the versions of the packages of an installation by place and normalized name; add unknown to findings."""
    record = one.record
    if lockfile.IMAGE_PACKAGES not in record:
        findings.append(Finding(WARNING, one.module, "the packages of its image are unknown, because an earlier "
                                "version of ebsif installed it: install it again with `eb --rebuild`"))
    image = lock.pins(record.get(lockfile.IMAGE_PACKAGES, []))
    return {IMAGE: {normal_name(name): version for name, version in image.items()},
            USER_SOFTWARE: softwarestate.packages(one, softwarestate.examine(one))}
