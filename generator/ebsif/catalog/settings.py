"""The settings of a user or a site: the configuration file, overridden by options."""

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Optional

from pydantic import Field

from ebsif import files
from ebsif.catalog import reading, site
from ebsif.catalog.container import Container
from ebsif.catalog.fieldtypes import SingleLine
from ebsif.catalog.records import CatalogFile
from ebsif.catalog.site import Site
from ebsif.catalog.yamlerrors import DocumentError, Problem
from ebsif.catalog.yamlfile import Model, load, validate
from ebsif.errors import EbsifError
from ebsif.report import output

CONFIGURATION_VARIABLE = "EBSIF_CONFIG"


class Configuration(Model):
    """The configuration file."""

    site: Optional[SingleLine] = Field(
        None, description="name of the site, unless EBSIF_SITE or --site names another one"
    )
    catalogs: list[SingleLine] = Field(
        [], description="directories with your own sites, searched before the sites of ebsif"
    )
    output: Optional[SingleLine] = Field(
        None, description="directory for rendered easyconfigs; {site} stands for the name of the site"
    )


@dataclass(frozen=True)
class Settings:
    """
    The chosen site, the directories of sites (in search order), and where easyconfigs are written ({site}).

    `configured` are the site, the directories and the place that are the same in a command without these options.
    """

    site_name: Optional[str]
    directories: tuple[Path, ...]
    place: Path
    is_place_named: bool = True
    configured: tuple[Optional[str], tuple[Path, ...], Optional[Path]] = (None, (), None)

    @property
    def output(self) -> Path:
        """The directory for the easyconfigs of the chosen site."""
        return self.output_of(self.site_name or site.DEFAULT_SITE)

    def output_of(self, name: str) -> Path:
        """Return the directory for the easyconfigs of a site."""
        return Path(str(self.place).replace("{site}", name))

    def site(self, name: Optional[str] = None) -> Site:
        """Return the profile of a site; by default of the chosen one."""
        return site.read(name or self.site_name, self.directories)

    def containers(self, profile: Site, strict: bool = False) -> list[Container]:
        """Return the containers of a site; say that invalid ones are left out, or if `strict`, raise DocumentError."""
        problems: Optional[list[Problem]] = None if strict else []
        containers = reading.read(profile, *self.directories_of(profile), problems=problems)
        if problems:
            more = f", and {output.format_count(len(problems) - 1, 'more problem')}" if problems[1:] else ""
            say_once(f"{problems[0]}{more}: records with mistakes are left out (see `ebsif check`)")
        return containers

    def documents(self, profile: Site) -> list[CatalogFile]:
        """Return the files of a site's catalog, each with the files that it extends."""
        return reading.documents(*self.directories_of(profile))

    def directories_of(self, profile: Site) -> list[Path]:
        """Return the directories of a site in all catalogs, with ``containers/``."""
        return site.directories_of(profile.name, self.directories)

    def containers_of(self, names: Iterable[Optional[str]]) -> list[Container]:
        """Return all containers of sites; None stands for the chosen site, whose profile must be valid."""
        containers = []
        for name in names:
            try:
                containers += self.containers(self.site(name))
            except DocumentError as error:
                if name is None:
                    raise
                say_once(f"{error.problems[0]}: the site {name} is left out (see `ebsif check`)")
        return containers

    def site_names(self) -> list[str]:
        """Return the names of all sites."""
        return site.names(self.directories)

    @property
    def own_directories(self) -> list[Path]:
        """The catalogs that were named or configured: without that of the project, and that of this account."""
        return [directory for directory in self.directories if directory not in (site.SITES, site.own_catalog())]

    @property
    def catalog(self) -> Path:
        """The catalog for new records: the first one that is named, or configured and open; else this account's."""
        own = self.own_directories
        # those of options come first
        is_named = len(own) > len(self.configured[1])
        return (
            own[0] if is_named else next((one for one in own if os.access(one, os.W_OK | os.X_OK)), site.own_catalog())
        )

    @property
    def is_chosen(self) -> bool:
        """Whether the user, or the configuration, has chosen a site or catalogs."""
        return bool(self.site_name or self.own_directories)

    def options_for(self, name: str, output: bool = False) -> list[str]:
        """Return the options for these settings in another command, with the `output` directory if it needs that."""
        site_name, directories, place = self.configured
        # with catalogs of one's own, `ebsif check` has another default
        usual = site_name or (None if self.own_directories else site.DEFAULT_SITE)
        words = [] if name == usual else ["--site", name]
        known = {os.path.realpath(one) for one in (*directories, place) if one}
        words += [
            word
            for one in self.own_directories
            if os.path.realpath(one) not in known
            for word in ("--catalog", str(one))
        ]
        is_needed = output and self.is_place_named and os.path.realpath(self.place) not in known
        return words + (["-o", str(self.place)] if is_needed else [])

    @property
    def is_for_account(self) -> bool:
        """Whether new records are for this account alone."""
        return self.catalog == site.own_catalog()

    def own_site_names(self) -> list[str]:
        """Return the names of the sites in the user's own catalogs, or of all sites without any."""
        if not self.own_directories:
            return self.site_names()
        return sorted(
            {
                path.parent.name
                for directory in self.own_directories
                for pattern in ("*/site.yaml", "*/containers")
                for path in directory.glob(pattern)
            }
        )


def configuration_path() -> Path:
    """Return the path of the configuration file, which may be missing."""
    named = os.environ.get(CONFIGURATION_VARIABLE)
    home = os.environ.get("XDG_CONFIG_HOME") or files.home() / ".config"
    return Path(named) if named else Path(home) / "ebsif" / "config.yaml"


def read_settings(
    site_name: Optional[str] = None,
    catalogs: Iterable[Path] = (),
    easyconfigs: Optional[Path] = None,
    complete: bool = True,
) -> Settings:
    """
    Return the settings, of which the arguments override those in the configuration file.

    Raise DocumentError for an invalid file, EbsifError for a missing one, or (if `complete`) for a missing catalog.
    """
    path = configuration_path()
    if os.environ.get(CONFIGURATION_VARIABLE) and (path.is_dir() or not os.access(path, os.R_OK)):
        reason = (
            f"can't be read: {files.how_to_get_access(path)}"
            if files.is_there(path) and not path.is_dir()
            else "is not a file: correct or unset the variable"
        )
        raise EbsifError(f"{path}, which {CONFIGURATION_VARIABLE} names, {reason}")
    configured = read_configuration(path)
    # relative paths start from the directory of the file
    more = [beside(path, name) for name in configured.catalogs]
    directories = [*catalogs, *more]
    for directory in directories:
        if complete and not directory.is_dir():
            quoted = shlex.quote(str(directory))
            raise EbsifError(
                f"the catalog {directory} "
                + (
                    "is not a directory"
                    if files.is_there(directory)
                    else (
                        f"does not exist: create it with `mkdir {quoted}` or `ebsif site init NAME --catalog {quoted}`"
                    )
                )
            )
    usual_place = beside(path, configured.output) if configured.output else None
    place = easyconfigs or usual_place
    usual = os.environ.get(site.SITE_VARIABLE) or configured.site
    # first, because its files may extend those of the others
    own = [one for one in [site.own_catalog()] if files.is_directory(one) and one not in directories]
    earlier = site.own_catalog().with_name("catalogue")
    if not own and files.is_directory(earlier):
        say_once(f"your catalog has another name since 0.4.0: `mv {shlex.quote(str(earlier))} {site.own_catalog()}`")
    return Settings(
        site_name or usual,
        (*own, *directories, site.SITES),
        place or Path("easyconfigs"),
        bool(place),
        (usual, tuple(more), usual_place),
    )


@lru_cache
def say_once(text: str) -> None:
    """Say something about a file that a command reads several times."""
    output.note(text)


def read_configuration(path: Path) -> Configuration:
    """Return the content of the configuration file, which may be missing, closed or empty."""
    # in a directory that this account can't search, no file seems to be there
    is_closed = (
        not os.access(path, os.R_OK)
        if files.is_there(path)
        else files.is_there(path.parent) and not os.access(path.parent, os.X_OK)
    )
    if is_closed:
        say_once(f"{path} can't be read, so its settings are not used: {files.how_to_get_access(path)}")
    elif files.is_there(path) and path.is_file() and (content := load(path)) is not None:
        return validate(Configuration, content, path)
    return Configuration.model_construct()


def beside(path: Path, name: str) -> Path:
    """Return a path from a configuration file: relative to the file, with ~ expanded."""
    try:
        return path.parent / Path(name).expanduser()
    except RuntimeError as error:
        raise EbsifError(f"{path}: {name}: {error}") from None
