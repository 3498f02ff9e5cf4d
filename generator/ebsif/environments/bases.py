"""What an extension can be made of that is not in the catalogue: an easyconfig, or an installation."""

import re
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.lockfile import InstalledImage
from easybuild.easyblocks.generic.container.requirements import lock_of, stages_of

from ebsif.catalogue.container import Container
from ebsif.catalogue.site import Site
from ebsif.eb import framework
from ebsif.errors import EbsifError
from ebsif.installed import lock
from ebsif.installed.places import Installation
from ebsif.migrate.easyconfigfile import run_parser

# Parameters that are written from fields, or that another module must not have.
OWN_FIELD = {
    "easyblock", "name", "version", "versionsuffix", "homepage", "description", "toolchain", "sources", "image",
    "requirements", "definition_files", "moduleclass", "aliases"}


class BaseError(EbsifError):
    """An easyconfig or installation can't be extended; the message says why and what to do."""


class EasyconfigContainer(Container):
    """A container as its easyconfig describes it; what has no field is in ``parameters``, as it is written there."""

    def fill(self, text: str) -> str:
        """Return the text: an easyconfig has no placeholders."""
        return text

    @property
    def root(self) -> Path:
        """The installation directory, if the easyconfig is the copy that EasyBuild keeps there."""
        return self.path.parent.parent

    @property
    def image_places(self) -> list[tuple[str, Path]]:
        """The image of the installation; EasyBuild knows the directories in the easyconfig."""
        image = InstalledImage(str(self.root)).path
        return [("stable", Path(image))] if image else []


def read(path: Path, site: Site) -> Container:
    """
    Return the container that an easyconfig describes.

    Parameters
    ----------
    path
        The easyconfig.
    site
        The site, which says how extensions share images; everything else is in the easyconfig.

    Raises
    ------
    EbsifError
        If the easyconfig can't be read, or is not that of a container.
    """
    written, read = run_parser(path), framework.read(path)
    names = framework.source_names(read["sources"])
    if read["easyblock"] not in ("ContainerInstall", "ContainerVenv") or len(names) != 1:
        raise BaseError(f"{path} is not the easyconfig of a container module, so it can't be extended")
    checksum = written.get("checksums") or []
    is_sha256 = len(checksum) == 1 and isinstance(checksum[0], str) and re.fullmatch("[0-9a-f]{64}", checksum[0])
    own = OWN_FIELD | ({"checksums"} if is_sha256 else set())
    values: dict[str, Any] = {
        "version": read["version"], "suffix": read["versionsuffix"], "homepage": read["homepage"],
        "description": read["description"], "file": names[0], "sha256": checksum[0] if is_sha256 else None,
        "image": read["image"], "venv": read["easyblock"] == "ContainerVenv", "moduleclass": read["moduleclass"],
        "requirements": requirements_of(path, read.get("requirements")),
        "definition_files": [definition_file(path, name) for name in read["definition_files"]],
        "parameters": {name: value for name, value in written.items() if name in read and name not in own}}
    neutral = Site(name=site.name, description=site.description, extension_image=site.extension_image)
    return EasyconfigContainer.of(read["name"], values, neutral, path)


def requirements_of(path, value):
    """Return the requirements in an easyconfig: stages or lines; for the lock of another installation, its stages."""
    if not lock_of(value):
        return value or None
    root = path.parent.parent
    if not (root / lockfile.RECORD).is_file():
        raise BaseError(f"{path} repeats an installation from its lock: install it, and extend the installation")
    return stages_of(lock.read(root).get(lockfile.STAGES))


def definition_file(path, name):
    """Return where the definition of the image is: in the installation if it's there, else beside the easyconfig."""
    kept = path.parent.parent / "share/docker-defs" / Path(name).name
    return str(kept) if kept.is_file() else name


def of_installation(installation: Installation, site: Site) -> Container:
    """
    Return the container that the easyconfig of an installation describes; see `read`.

    Raises
    ------
    EbsifError
        If there is none, or it can't be read.
    """
    if not installation.easyconfig:
        raise BaseError(installation.lack)
    container = read(installation.easyconfig, site)
    return container if is_as_installed(installation) else container.replace(
        requirements=stages_of(installation.record[lockfile.STAGES]))


def is_as_installed(installation: Installation) -> bool:
    """
    Return whether the requirements in the copy of the easyconfig are those in the record of the installation.

    eb copies the easyconfig after the last step: it may have been changed meanwhile.
    """
    from easybuild.easyblocks.generic.container.stages import Stage

    if not installation.easyconfig or lockfile.STAGES not in installation.record:
        return True
    value = framework.read(installation.easyconfig).get("requirements")
    return bool(lock_of(value)) or [one.record for one in Stage.from_parameter(value)] == installation.record[
        lockfile.STAGES]


def without_extension(container: Container, installation: Installation) -> Container:
    """Return the container of an extension with the version suffix of the one that it extends."""
    end = "-".join(["", *(installation.extension or ())])
    return container.replace(suffix=container.versionsuffix.removesuffix(end))
