"""
Resolve the name of a container that a user types: to a container of the catalogue, an installation, or a file.

A name can be one in the catalogue, an installed module, an easyconfig, an installation directory, a file, or an
unambiguous part of a name. Without a name, the loaded module is used.
"""

import contextlib
import os
import re
from argparse import Namespace
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.texts import shown_module

from ebsif.catalogue import selection
from ebsif.catalogue.container import Container
from ebsif.catalogue.settings import read_settings
from ebsif.errors import EbsifError, UsageError
from ebsif.files import is_there
from ebsif.installed import imagestate, inventory, places
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.report.findings import Finding

# Suffixes of files that need no slash in their name to be recognized.
SUFFIXES = (".eb", ".sif", ".json")
DATE = re.compile(r"-(\d{8})((?:\.\d+)?)\Z")

# The possible results.
Found = Union[Container, Installation, Path]


class NamingError(EbsifError):
    """A name is unknown or ambiguous; the message lists the candidates."""


class Names:
    """
    The names that a command understands.

    Parameters
    ----------
    options
        The options of the command, with --site and --catalogue.
    """

    def __init__(self, options: Namespace):
        """Keep the options; catalogue and installations are read when needed."""
        self.options = options

    @cached_property
    def containers(self) -> list[Container]:
        """The catalogue of the chosen site."""
        settings = read_settings(self.options)
        return settings.containers(settings.site())

    @cached_property
    def installations(self) -> list[Installation]:
        """The installations on MODULEPATH and below the usual prefixes."""
        return places.known(places.directories_of_modules())

    def find(self, text: Optional[str], careful: bool = False, only_installed: bool = False) -> Found:
        """
        Return the container, installation or file with a name.

        Parameters
        ----------
        text
            The name as typed; None for the loaded module.
        careful
            Whether a name with a slash must be complete, and the newest of several dates isn't chosen.
        only_installed
            Whether to ignore the catalogue.

        Raises
        ------
        UsageError
            If there is neither a name nor a loaded module.
        NamingError, CatalogueError
            If the name is unknown or ambiguous; the message lists the candidates.
        """
        if not text:
            return loaded()
        unknown = None
        found = file_of(text)
        if not found and not only_installed:
            try:
                found = selection.find_one(self.containers, text, parts=False)
            except selection.UnknownName as error:
                unknown = error
        found = found or self.installed_as(text)
        if found:
            return found
        known = {} if only_installed else {one.module_or_version: one for one in self.containers}
        for one in self.installations:
            known.setdefault(shown(one), one)
        fitting = best_matches(known, text)
        if only_installed and (not fitting or careful):
            # asking EasyBuild takes longer
            known.update({shown(one): one for one in inventory.everything() if shown(one) not in known})
            fitting = best_matches(known, text)
        fitting = one_per_image(known, fitting)
        fitting = of_software(text, fitting) or extensions_of_name(text, fitting) or fitting
        if careful:
            fitting = [one for one in fitting if "/" not in text or one == shown_module(text)]
        else:
            fitting = newest_of(text, fitting)
        if len(fitting) > 1:
            raise NamingError(f"'{text}' is ambiguous; choose one of:" + "".join(f"\n  {one}" for one in fitting))
        if fitting:
            return known[fitting[0]]
        if unknown and text.endswith(SUFFIXES):
            raise selection.UnknownName(f"the file {text} does not exist, and {unknown}")
        own = [one.extension[0] for one in self.installations if one.extension]
        if unknown:
            also = "" if "did you mean" in str(unknown) else selection.did_you_mean(text, own)
            raise selection.UnknownName(f"{unknown}{also}")
        also = selection.did_you_mean(text, [*known, *own])
        raise NamingError(f"no container module '{text}' is installed here{also} (modules are searched on MODULEPATH "
                          "and below EasyBuild's prefix: `module use` adds a directory)")

    def find_all(self, text: Optional[str]) -> list[Found]:
        """Return everything with a name, such as all versions of a software; see `find`."""
        if text and not file_of(text):
            with contextlib.suppress(selection.UnknownName):
                return list(selection.find(self.containers, text, parts=False))
        return [self.find(text)]

    def installed_as(self, text):
        """Return the installation with this name of a module or easyconfig (Installation), or None."""
        if text.endswith(".eb"):
            name = text.removesuffix(".eb")
            return next((one for one in self.installations if shown(one).replace("/", "-", 1) == name), None)
        found = places.known(places.directories_of_modules(), text) if "/" in text else []
        return found[0] if found else None

    def installation(self, text: Optional[str], careful: bool = False) -> Installation:
        """
        Return the installation with a name; see `find`.

        Raises
        ------
        UsageError, NamingError
            If it is not an installation.
        """
        found = self.find(text, careful, only_installed=True)
        if isinstance(found, Path):
            raise NamingError(f"{found} is not the directory of an installation: name that, or an installed module")
        return found

    def container(self, text: Optional[str]) -> Container:
        """
        Return the container in the catalogue with a name; see `find`.

        Raises
        ------
        UsageError, NamingError, CatalogueError
            If the catalogue has no container with this name.
        """
        found = self.find(text)
        if isinstance(found, Installation):
            return selection.find_one(self.containers, shown(found), parts=False)
        if isinstance(found, Path):
            raise NamingError(f"{found} is a file: name a container in the catalogue (`ebsif list`)")
        return found

    def easyconfig(self, text: Optional[str]) -> Union[Path, str]:
        """
        Return an easyconfig: a file, the copy in an installation, or a name that eb finds.

        Raises
        ------
        UsageError, NamingError, CatalogueError
            If there is none.
        """
        found = self.find(text)
        if isinstance(found, Container):
            return found.easyconfig_name
        path = found.easyconfig if isinstance(found, Installation) else found
        if not path:
            raise NamingError(found.lack)
        if path.suffix != ".eb":
            raise NamingError(f"{text}: no easyconfig")
        return path

    def image(self, text: Optional[str]) -> Path:
        """
        Return the image of a container with this name.

        Raises
        ------
        UsageError, NamingError, CatalogueError
            If there is none.
        """
        if text and not is_there(Path(text, lockfile.RECORD)) and (text.endswith(".sif") or is_there(Path(text))):
            return Path(text)
        found = self.find(text)
        if isinstance(found, Path):
            return found
        if isinstance(found, Installation):
            path = imagestate.path_of(found)
            if not path:
                raise NamingError(f"the image of {shown(found)} is gone: install the module again with eb")
            return path
        images = [path for _, path in found.image_places]
        path = next((path for path in images if is_there(path)), None)
        if not path:
            raise NamingError(f"the image of {found.module} is not on this machine (searched: "
                              f"{', '.join(str(path.parent) for path in images) or 'no directory is known'}): name the "
                              "file")
        return path

    def module(self, text: Optional[str]) -> str:
        """
        Return the name of a module for `module load`; see `find`.

        Raises
        ------
        UsageError, NamingError, CatalogueError
            If there is no such module.
        """
        found = self.find(text)
        if isinstance(found, Path):
            raise NamingError(f"{found} is a file: name a module")
        return found.module


def installations(options: Namespace, texts: Sequence[str]) -> tuple[list[Installation], list[Finding]]:
    """
    Return installations by their names or directories, or all of them, and what can't be searched.

    Parameters
    ----------
    options
        As for `Names`.
    texts
        Names of installed modules, and directories as for `inventory.installations`; none for all installations.

    Raises
    ------
    UsageError, NamingError
        If a directory doesn't exist, or a name is unknown or ambiguous.
    """
    directories = list(filter(inventory.is_place, texts))
    named = [Names(options).installation(text) for text in texts if text not in directories]
    found, problems = inventory.installations(directories) if directories or not texts else ([], [])
    return list({os.path.realpath(one.root): one for one in (*named, *found)}.values()), problems


def loaded() -> Installation:
    """Return the loaded container module; raise UsageError if there is none."""
    found = places.loaded()
    if not found:
        raise UsageError("no container is named, and no container module is loaded: name one, or load its module")
    return found


def file_of(text: str) -> Union[Installation, Path, None]:
    """
    Return the installation or file at a path; None if the text doesn't look like a path.

    Raises
    ------
    NamingError
        If it looks like one, but neither exists.
    """
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # an unknown user
        path = Path(text)
    if is_there(path / lockfile.RECORD):
        return places.of_directory(path)
    if path.is_file() and ("/" in text or path.suffix in SUFFIXES):
        return path
    if text.startswith(("/", "./", "../", "~")):
        missing = path / lockfile.RECORD if path.is_dir() else path
        raise NamingError(f"{text}: not an installation of a container module ({missing} does not exist)")
    return None


def shown(installation: Installation) -> str:
    """Return the name of an installed module, without the dot of a hidden one."""
    return shown_module(installation.module)


def catalogue_name(installation: Installation) -> str:
    """Return how the catalogue calls a module, or the base of an extension; naming schemes may call it otherwise."""
    name = installation.recorded_name or shown(installation)
    return places.NAMED.sub("", name) if installation.extension else name


def one_per_image(known, modules):
    """Return modules (list of str) without archived ones and those with a label, unless only such are left."""
    current = [module for module in modules if not getattr(known[module], "archived", None)] or modules
    plain = [module for module in current if not getattr(known[module], "label", None)]
    return sorted(plain or current, key=selection.natural_key)


def best_matches(modules: Iterable[str], text: str) -> list[str]:
    """Return the modules that a part of a name fits best; a single letter only fits as the name of an extension."""
    return selection.best_matches(modules, text) or extensions_of_name(text, modules)


def of_software(text: str, modules: Iterable[str]) -> list[str]:
    """Return the modules of a software, whose name is spelled like that; the name of an extension may be the same."""
    return [one for one in modules if one.partition("/")[0] == text]


def extensions_of_name(text: str, modules: Iterable[str]) -> list[str]:
    """Return the extensions with a name, without those on top of them."""
    named = re.compile(rf"-{re.escape(text)}\Z", re.IGNORECASE)
    return [one for one in modules if DATE.search(one) and named.search(DATE.sub("", one))]


def newest_of(text: str, modules: Iterable[str]) -> list[str]:
    """Return the newest of modules whose names differ only in the date at the end; all others unchanged."""
    modules = list(modules)
    if len(modules) < 2 or len({DATE.sub("", module) for module in modules}) > 1 or not all(map(DATE.search, modules)):
        return modules
    # the date, then its number
    newest = max(modules, key=lambda one: (DATE.search(one).group(1), len(one), one))
    output.note(f"'{text}' is {newest}, the newest of {len(modules)}")
    return [newest]
