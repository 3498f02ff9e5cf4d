"""What an extension can be made of: a container of the catalog, an easyconfig, an installation; and its image."""

import contextlib
import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.image.installed import InstalledImage
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.requirements import are_stages, lock_of

from ebsif.catalog.container import Container
from ebsif.catalog.site import Site
from ebsif.catalog.stages import stages_of
from ebsif.eb import framework, running
from ebsif.environments.extension import ExtendingError
from ebsif.errors import EbsifError
from ebsif.installed import places
from ebsif.installed.names import Found, Names, shown
from ebsif.installed.places import Installation
from ebsif.modulestool import directories_of_modules

# Parameters that are written from fields, or that another module must not have.
OWN_FIELD = {
    "easyblock",
    "name",
    "version",
    "versionsuffix",
    "homepage",
    "description",
    "toolchain",
    "sources",
    "image",
    "requirements",
    "system_packages",
    "definition_files",
    "moduleclass",
    "aliases",
}


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
        image = InstalledImage(str(self.root)).path()
        return [("stable", Path(image))] if image else []


def read(path: Path, site: Site, installation: Optional[Installation] = None) -> Container:
    """
    Return the container that an easyconfig, perhaps that of an installation, describes.

    Raise EbsifError if it is not that of a container module.
    """
    from easybuild.easyblocks.generic.container.parameters import FORMER

    written, read = framework.written_values(path), framework.read(path)
    names = framework.source_names(read["sources"])
    if read["easyblock"] not in ("ContainerInstall", "ContainerVenv") or len(names) != 1:
        raise EbsifError(f"{path} is not the easyconfig of a container module, so it can't be extended")
    former = next((name for name in FORMER if name in written), None)
    if former:
        raise EbsifError(
            f"{path} is of an earlier version of ebsif, and can't be extended: '{former}' was removed. Its owner has "
            f"to change and install it: {FORMER[former]}"
        )
    checksum = written.get("checksums") or []
    is_sha256 = len(checksum) == 1 and isinstance(checksum[0], str) and re.fullmatch("[0-9a-f]{64}", checksum[0])
    own = OWN_FIELD | ({"checksums"} if is_sha256 else set())
    values: dict[str, Any] = {
        "version": read["version"],
        "suffix": read["versionsuffix"],
        "homepage": read["homepage"],
        "description": read["description"],
        "file": names[0],
        "sha256": checksum[0] if is_sha256 else None,
        "image": read["image"],
        "venv": read["easyblock"] == "ContainerVenv",
        "moduleclass": read["moduleclass"],
        "system_packages": read.get("system_packages"),
        "definition_files": [definition_file(path, name) for name in read["definition_files"]],
        "requirements": requirements_of(path, read.get("requirements"), installation),
        "parameters": {name: value for name, value in written.items() if name in read and name not in own},
    }
    neutral = Site(name=site.name, description=site.description, extension_image=site.extension_image)
    return EasyconfigContainer.of(read["name"], values, neutral, path)


def requirements_of(path: Path, value: Any, installation: Optional[Installation]) -> Any:
    """Return the requirements in an easyconfig: stages or lines; for the lock of another installation, its stages."""
    if not lock_of(value):
        return stages_of(value) if are_stages(value) else value or None
    if not installation:
        raise EbsifError(f"{path} repeats an installation from its lock, so it can't be extended: {module_of(path)}")
    return stages_of(installation.record.stages)


def module_of(path: Path) -> str:
    """Return the command that extends the module of an easyconfig, which may have to be installed first."""
    place = framework.place_of(path, path.read_text(encoding="utf-8"))
    for one in places.known([place.use, *directories_of_modules()], place.module):
        return f"extend its module, which is installed: `ebsif extend {places.word(one)} ...`"
    return f"install it (`{running.command([path])}`), and then extend its module {place.module}"


def definition_file(path: Path, name: str) -> str:
    """Return where the definition of the image is: in the installation if it's there, else beside the easyconfig."""
    kept = path.parent.parent / "share/docker-defs" / Path(name).name
    return str(kept) if kept.is_file() else name


def of_installation(installation: Installation, site: Site) -> Container:
    """Return the container that the easyconfig of an installation describes; raise EbsifError if there is none."""
    if not installation.easyconfig:
        raise EbsifError(installation.lack)
    return read(installation.easyconfig, site, installation)


def base_of(installation: Installation, names: Names) -> Optional[Container]:
    """Return the container that an extension extends: of the catalog or installed; None if it's gone."""
    with contextlib.suppress(EbsifError):
        # not another module whose name begins with that of the base
        found = names.exact(installation.base) if installation.base else None
        return of_installation(found, names.site) if isinstance(found, Installation) else found
    return None


def without_extension(container: Container, installation: Installation) -> Container:
    """Return the container of an extension with the version suffix of the one that it extends, without requirements."""
    end = "-".join(["", *(installation.extension or ())])
    return container.replace(suffix=container.versionsuffix.removesuffix(end), requirements=None)


def whole(found: Found) -> Found:
    """Return the installation whose copy of the easyconfig was found; anything else as it is."""
    root = found.parent.parent if isinstance(found, Path) else None
    return places.of_directory(root) if root and (root / lockfile.RECORD).is_file() else found


def container_of(found: Found, names: Names) -> Container:
    """Return the container that was found: one of the catalog, else that of an installation or easyconfig."""
    found = whole(found)
    if isinstance(found, Container):
        return found
    if isinstance(found, Installation):
        return names.record_of(found) or of_installation(found, names.site)
    if found.suffix != ".eb":
        raise EbsifError(f"{found}: no easyconfig")
    return read(found, names.site)


# --- its image


def sources(container: Container, there: Iterable[Installation]) -> str:
    """Return eb's option for the directories that may have the image; see `source_folders`."""
    return f"--sourcepath={':'.join(source_folders(container, there))}"


def source_folders(container: Container, there: Iterable[Installation]) -> list[str]:
    """Return the directories that may have the image: EasyBuild's, the site's, those of the installations there."""
    stable = [path for stability, path in container.image_places if container.moving or stability != "moving"]
    loaded = [Path(os.environ["SIF"])] if os.environ.get("SIF") else []
    installed = [
        Path(path)
        for one in there
        if (one.recorded_name or shown(one)).startswith(f"{container.name}/")
        for path in [InstalledImage(str(one.root)).path()]
        if path
    ]
    # also of recipes that were written by hand
    installed += sorted((framework.prefix()[0] / container.name).glob(f"*/{glob.escape(container.file_name)}"))
    folders = [
        path.parent for path in (*stable, *loaded, *installed) if path.name == container.file_name and path.is_file()
    ]
    return list(dict.fromkeys(map(str, [*framework.source_paths(), *folders])))


def no_image(container: Container) -> ExtendingError:
    """Return the error that the image of a container isn't found."""
    folders = [str(path.parent) for _, path in container.image_places]
    return ExtendingError(
        f"the image of {container.module} is not found ({container.file_name} is neither in EasyBuild's source "
        f"paths nor in {', '.join(folders) or 'a directory of the site'}): give its path with --image FILE"
    )


def image_of(container: Container, there: Iterable[Installation]) -> Path:
    """Return the image of a container on this machine, perhaps of an installation; else raise ExtendingError."""
    own = [path for _, path in container.image_places]
    paths = [*own, *(Path(folder, container.file_name) for folder in source_folders(container, there))]
    found = next((path for path in paths if path.is_file()), None)
    if not found:
        raise no_image(container)
    return found
