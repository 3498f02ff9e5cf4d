"""The image that an extension is made on: what is known of it, and what only it can say."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.container import Container
from ebsif.catalog.stages import Stage, lines_of
from ebsif.environments import bases
from ebsif.images import inspection
from ebsif.installed.names import Names
from ebsif.installed.places import Installation
from ebsif.packages.lines import parsed
from ebsif.packages.wanted import KnownImage
from ebsif.render.easyconfig import keep_packages

if TYPE_CHECKING:
    from easybuild.easyblocks.generic.container.packages import InstalledPackages
    from packaging.requirements import Requirement


@dataclass(frozen=True)
class BaseImage:
    """
    The image of a container that is extended.

    What is `known` is from the catalog or a record, and says whether the image has to be asked at all. `hidden` are the
    normalized names of packages in user software, which may hide those of the image. `given` is the image as it was
    typed, if eb doesn't find it; otherwise it may be that of an installation, which `names` know. What the image itself
    is asked for raises ExtendingError if it isn't on this machine, InspectionError if it can't be started.
    """

    container: Container
    known: KnownImage
    hidden: frozenset[str] = frozenset()
    given: Optional[Path] = None
    names: Names = field(default_factory=Names)

    @classmethod
    def of(
        cls,
        container: Container,
        installation: Optional[Installation] = None,
        hidden: Collection[str] = (),
        given: Optional[Path] = None,
        names: Optional[Names] = None,
    ) -> "BaseImage":
        """Return the image of a container: what the record of its installation says, else what the catalog says."""
        packages, digest = container.versions, container.sha256
        python = packages.pop("python", None)
        # the catalog may say just 3
        python = python if re.fullmatch(r"\d+(\.\d+)+", python or "") else None
        if installation and (installation.root / lockfile.RECORD).is_file():
            record = installation.record
            python, digest = record.versions.get("python", python), record.image.sha256 or digest
            # the software itself may have the name of another package
            others = {name: packages[name] for name in map(normal_name, container.components)}
            packages = {**others, **record.image_versions}
        return cls(container, KnownImage(python, packages, digest), frozenset(hidden), given, names or Names())

    @property
    def path(self) -> Path:
        """The image on this machine."""
        return self.given or bases.image_of(self.container, self.names.everything)

    @cached_property
    def packages(self) -> "InstalledPackages":
        """The packages of the image."""
        from easybuild.easyblocks.generic.container.packages import InstalledPackages

        return InstalledPackages.from_listing(inspection.python_of(self.path).listing)

    @property
    def bound(self) -> dict[str, str]:
        """Why some of its packages are kept, by normalized name."""
        named = [*keep_packages(self.container), *self.container.parameters.get("keep_packages", [])]
        return self.packages.bound(named)


@dataclass(frozen=True)
class AskedPackage:
    """
    What a stage asks an index for: the normalized name, and the requirement.

    Packages with the names in `free` may be other ones than the image has.
    """

    stage: Stage
    name: str
    wanted: "Requirement"
    free: frozenset[str]


@dataclass(frozen=True)
class WantedStages:
    """Stages that are wanted on an image."""

    image: BaseImage
    stages: Sequence[Stage]

    @cached_property
    def asked(self) -> list[AskedPackage]:
        """What they ask an index for: stages may replace some packages, and user software may hide some."""
        return [
            AskedPackage(stage, normal_name(wanted.name), wanted, free)
            for stage in self.stages
            for free in [self.image.hidden.union(map(normal_name, stage.allow_replace))]
            for wanted in filter(None, map(parsed, stage.lines))
            if not wanted.url and self.image.known.needs(wanted)
        ]

    @property
    def lines(self) -> list[str]:
        """Their lines that name a package."""
        return lines_of(self.stages)
