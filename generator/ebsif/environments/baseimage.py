"""The image that an extension is made on: what is known of it, and what only it can say."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from ebsif.catalog.container import Container
from ebsif.environments import bases
from ebsif.images import inspection
from ebsif.packages.formats.wanted import KnownImage
from ebsif.render.easyconfig import keep_packages

if TYPE_CHECKING:
    from easybuild.easyblocks.generic.container.packages import Packages


@dataclass(frozen=True)
class BaseImage:
    """
    The image of a container that is extended.

    What is `known` is from the catalog or a record, and says whether the image has to be asked at all. `hidden` are the
    normalized names of packages in user software, which may hide those of the image. `given` is the image as it was
    typed, if eb doesn't find it. What the image itself is asked for raises ExtendingError if it isn't on this machine,
    InspectionError if it can't be started.
    """

    container: Container
    known: KnownImage
    hidden: frozenset[str] = frozenset()
    given: Optional[Path] = None

    @property
    def path(self) -> Path:
        """The image on this machine."""
        return self.given or bases.image_of(self.container)

    @cached_property
    def packages(self) -> "Packages":
        """The packages of the image."""
        from easybuild.easyblocks.generic.container.packages import Packages

        return Packages.from_listing(inspection.python_of(self.path).listing)

    @property
    def bound(self) -> dict[str, str]:
        """Why some of its packages are kept, by normalized name."""
        named = [*keep_packages(self.container), *self.container.parameters.get("keep_packages", [])]
        return self.packages.bound(named)
