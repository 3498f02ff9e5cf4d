"""Libraries of the host for an image, tried before anything is installed (K-01)."""

from pathlib import Path
from typing import Any, NamedTuple, Optional

from easybuild.easyblocks.generic.container.host.libraries import Decision, HostLibraries

from ebsif.catalog.site import Site
from ebsif.eb import framework
from ebsif.errors import EbsifError
from ebsif.images import inspection


class Trial(NamedTuple):
    """What a profile finds on this machine for an image, or without one; problems are those of an installation."""

    found: HostLibraries
    decision: Decision
    image: Optional[Path]

    @property
    def problems(self) -> list[str]:
        """What would stop an installation."""
        return [*self.found.problems, *self.decision.problems]

    @property
    def data(self) -> dict[str, Any]:
        """What an installation would record, and the problems, for JSON."""
        record = self.found.record(self.decision)
        return {"image": str(self.image) if self.image else None, **record.content, "problems": self.problems}


def attempt(profile: Site, image: Optional[Path]) -> Trial:
    """Find what a profile names, and what an image gets of it. Raise EbsifError if that can't be found out."""
    if not profile.host_libraries:
        raise EbsifError(
            f"the profile of {profile.name} has no 'host_libraries' (docs/host-libraries.md says how to add them)"
        )
    if image:
        inspection.check_file(image)
    found = HostLibraries(**profile.host_libraries.model_dump())
    return Trial(found, decide(found, profile, image) if image else found.closure(), image)


def decide(found: HostLibraries, profile: Site, image: Path) -> Decision:
    """Return what an image gets, which is started as in an installation."""
    from easybuild.easyblocks.generic.container.framework import plain_errors
    from easybuild.easyblocks.generic.container.host.image import read_libraries
    from easybuild.easyblocks.generic.container.runtime import InstallContainer, Runtime
    from easybuild.tools.build_log import EasyBuildError
    from easybuild.tools.run import RunShellCmdError

    framework.session()
    binds = [*profile.binds.required, *profile.binds.optional]
    # EasyBuild keeps output and environment of each program
    with framework.temporary_files() as folder:
        try:
            container = InstallContainer(Runtime(), str(image.resolve()), folder, optional_binds=binds)
            with plain_errors():
                return found.decide(read_libraries(container, found.needed_names()))
        except EasyBuildError as error:
            raise EbsifError(str(error).strip("'\"")) from None
        except RunShellCmdError:
            raise EbsifError(f"{image} can't be started as a container") from None
