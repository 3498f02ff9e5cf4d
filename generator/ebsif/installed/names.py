"""
Resolve the name that a person types: to an installed module, a container of the catalog, or a file.

There is one list of names, and one rule for every command: the whole name; the name of an extension, which is its
newest one; the name of a software, which is its newest version that is not archived; NAME/VERSION; a part of a name.
What is installed comes before the catalog. Without a name, the loaded module is meant.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container import newest
from easybuild.easyblocks.generic.container.record import lockfile

from ebsif import files
from ebsif.catalog import selection
from ebsif.catalog.container import Container
from ebsif.catalog.selection import plain, spelled_alike
from ebsif.catalog.settings import Settings, read_settings
from ebsif.catalog.site import Site
from ebsif.errors import EbsifError, UsageError
from ebsif.files import expanded, is_there
from ebsif.installed import imagestate, places, search
from ebsif.installed.places import Installation, shown
from ebsif.report import output
from ebsif.report.findings import Finding
from ebsif.text import did_you_mean

# Suffixes of files that need no slash in their name to be recognized.
SUFFIXES = (".eb", ".json", *files.IMAGES)

# The possible results.
Found = Union[Container, Installation, Path]


class Names:
    """The names that a command understands; catalog and installations are read when they are needed."""

    def __init__(self, site_name: Optional[str] = None, catalogs: Iterable[Path] = ()):
        """Keep the site and the catalogs that a user has chosen; see `read_settings`."""
        self.chosen = (site_name, tuple(catalogs))
        self.said: set[str] = set()

    @cached_property
    def settings(self) -> Settings:
        """The settings for the chosen site."""
        return read_settings(*self.chosen)

    @cached_property
    def site(self) -> Site:
        """The chosen site."""
        return self.settings.site()

    @cached_property
    def containers(self) -> list[Container]:
        """The catalog of the chosen site."""
        return self.settings.containers(self.site)

    @cached_property
    def recorded(self) -> list[Container]:
        """The catalog; empty if it can't be read, for names of what is installed."""
        try:
            return self.containers
        except EbsifError:
            return []

    @cached_property
    def records_by_name(self) -> dict[str, Container]:
        """The containers of the catalog by the names of their modules; the first one, if there are several."""
        return {one.module_or_version: one for one in reversed(self.recorded)}

    @cached_property
    def installations(self) -> list[Installation]:
        """The installations on MODULEPATH and below the usual prefixes."""
        return places.known(places.directories_of_modules())

    @cached_property
    def everything(self) -> list[Installation]:
        """The installations below EasyBuild's prefix and on MODULEPATH, as they were when a command first asked."""
        return search.everything()

    def installed_as(self, text: str) -> Optional[Installation]:
        """
        Return the installation that the modules tool loads by exactly this name, which may be an alias (N-05).

        NAME/VERSION-mine is the newest extension (V-07). Upper or lower case only matters if there are both. Raise
        EbsifError if it could be several.
        """
        here = places.loaded_as(text)
        if here:
            return here
        found = spelled_alike(text, (([one.module], one) for one in self.installations))
        if "/" in text:
            found = found or spelled_alike(text, ((one.aliases, one) for one in self.installations))
            found = found or self.extensions(text)
        if len(set(map(shown, found))) > 1:
            raise ambiguous(text, found)
        return found[0] if found else None

    def extensions(self, text: str) -> list[Installation]:
        """
        Return the newest installed extension with a name, NAME/name or NAME/VERSION-name, of each software (N-01).

        Raise EbsifError if there are several names that differ from it, and from each other, in upper and lower case.
        """
        end = f"-{plain(text).rpartition('/')[2]}-"
        of_name = self.newest_first(
            one for one in self.installations if end in f"-{plain(one.module).replace('/', '-')}" and one.extension
        )
        found = spelled_alike(
            text,
            (
                ([name, f"{one.base}-{name}", beside(one, name)], one)
                for one in of_name
                for name, _ in [one.extension or ("", "")]
            ),
        )
        of_software: dict[tuple, list[Installation]] = {}
        for one in found:
            of_software.setdefault((beside(one, ""), (one.extension or ("",))[0]), []).append(one)
        newest_ones = [same[0] for same in of_software.values()]
        if len({name for _, name in of_software}) > 1:
            raise ambiguous(text, newest_ones)
        if len(of_software) == 1:
            bases = {one.base for one in found}
            if len(bases) > 1:
                self.say_once(f"'{text}' is {shown(found[0])}, on the newest of {len(bases)} containers that have one")
            elif len(found) > 1 and "/" not in text:
                output.detail(f"'{text}' is {shown(found[0])}, the newest of {len(found)}")
        return newest_ones

    def older(self, module: Installation) -> list[Installation]:
        """
        Return the earlier extensions with the name and the base of this one, the newest of them first.

        They are beside it and of the same account.
        """
        if not module.extension:
            raise EbsifError(f"{shown(module)} is no extension, so there are no earlier ones of it")
        found = [
            one
            for one in self.everything
            if one.base == module.base
            and one.extension
            and one.extension[0] == module.extension[0]
            and places.is_same(one.root.parent, module.root.parent)
            and one.root.stat().st_uid == module.root.stat().st_uid
            and self.age(one) < self.age(module)
        ]
        return sorted(found, key=self.age, reverse=True)

    def named(self, text: str) -> list[Union[Container, Installation]]:
        """Return what a name stands for, installed modules first; extensions not by the name of their base."""
        catalog = list(selection.named(self.recorded))
        for number, is_named in enumerate(selection.ways(text)):
            installed = self.newest_first(
                module
                for module in self.installations
                if any(map(is_named, typed(module.module)))
                and (number == 0 or not (module.base and any(map(is_named, typed(module.base)))))
            )
            containers = dict.fromkeys(one for name, one in catalog if is_named(plain(name)))
            if not number and not (installed or containers) and not self.is_software(text):
                installed = self.extensions(text)
            if installed or containers:
                return [*installed, *selection.newest_first(containers)]
        return []

    def newest_first(self, modules: Iterable[Installation]) -> list[Installation]:
        """Return installations by software, each with its newest version first."""
        return places.newest_first(modules, self.age)

    def age(self, module: Installation) -> tuple:
        """Return the sort key of an installation among those of its software; its record may know the date."""
        record = self.record_of(module)
        return places.age(module, record.date or "" if record else "")

    def is_software(self, text: str) -> bool:
        """Return whether a text is spelled like the name of a software, which an extension may have, too."""
        return text in {*(one.name for one in self.recorded), *(places.software(one) for one in self.installations)}

    def find(self, text: Optional[str]) -> Found:
        """Return what has a name, or the loaded module; raise an EbsifError, which lists the candidates."""
        here = self.here(text)
        if here:
            return here
        try:
            container = selection.find_one(self.containers, str(text))
        except selection.UnknownNameError as error:
            self.require_known_version(str(text))
            raise self.explained(str(text), error) from None
        if container.name.lower() == str(text).lower():
            number = sum(one.name == container.name and not one.archived for one in self.containers)
            self.say_once(
                f"'{text}' is {container.module_or_version} of the catalog"
                + (f", which has {number} versions (`ebsif list {container.name}`)" if number > 1 else "")
            )
        return container

    def explained(self, text: str, error: selection.UnknownNameError) -> selection.UnknownNameError:
        """Return the error about a name that the catalog lacks with what else it may mean: a path, or an extension."""
        own = {module.extension[0] for module in self.installations if module.extension}
        also = ""
        if text in own:
            also = f"; {text} is an extension, which `ebsif list --mine {text}` lists"
        elif own and "did you mean" not in str(error) and "\n" not in str(error):
            also = did_you_mean(text, own) or "; `ebsif list --mine` lists your own modules"
        return selection.UnknownNameError(f"{no_path(text)}{error}{also}")

    def require_known_version(self, text: str) -> None:
        """Raise UnknownNameError if a name is that of a software which is installed, but not in the catalog."""
        name, _, version = text.partition("/")
        there = [one for one in self.installations if places.software(one).lower() == name.lower()]
        if there and not any(one.name.lower() == name.lower() for one in self.containers):
            raise selection.UnknownNameError(
                selection.no_version(
                    version, name, (shown(one).rpartition("/")[2] for one in self.newest_first(there)), "installed"
                )
            )

    def say_once(self, text: str) -> None:
        """Say what a name stands for, which a command may ask for several times."""
        if text not in self.said:
            self.said.add(text)
            output.note(text)

    def here(self, text: Optional[str]) -> Union[Installation, Path, None]:
        """Return the installation or file with a name; None if there is none; without a name, the loaded module."""
        if not text:
            return loaded()
        exact = file_of(text) or self.installed_as(text)
        if exact:
            return exact
        installed = [one for one in self.named(selection.with_version(text)) if isinstance(one, Installation)]
        if not installed and "/" in text:
            # perhaps an alias, which only the catalog knows
            records = self.records_called(text)
            installed = list(filter(None, (self.installed_as(one.module_or_version) for one in records)))
        return self.one_of(text, installed) if installed else None

    def one_of(self, text: str, installed: list[Installation]) -> Installation:
        """Return the installed module that a name stands for: of a software, the newest that is not archived."""
        candidates = [module for module in installed if not self.is_archived(module)] or installed
        current = [module for module in candidates if not getattr(self.record_of(module), "label", None)] or candidates
        current = [module for module in current if places.software(module) == text] or current
        software = set(map(places.software, current))
        if len(software) == 1 and software.pop().lower() == text.lower():
            which = f"the newest of {len(current)} that are installed" if len(current) > 1 else "which is installed"
            self.say_once(f"'{text}' is {shown(current[0])}, {which}")
        # a module in two directories is one name: the modules tool loads the first
        elif len(set(map(shown, current))) > 1:
            raise ambiguous(text, candidates)
        return current[0]

    def is_archived(self, module: Installation) -> bool:
        """Return whether a module is archived: hidden, or archived in the catalog."""
        record = self.record_of(module)
        return module.is_hidden or bool(record and record.archived)

    def record_of(self, module: Installation) -> Optional[Container]:
        """Return the record of an installed module in the catalog; None if it has none, as extensions."""
        name = module.recorded_name or shown(module)
        return self.records_by_name.get(name)

    def records_called(self, text: str) -> list[Container]:
        """Return the containers of the catalog with exactly a name, which may be an alias."""
        return [one for name, one in selection.named(self.recorded) if plain(name) == plain(text)]

    def taken_by_other(self, text: str, extension: str) -> Optional[str]:
        """Return where there is another module than such an extension, 'installed' or 'of the catalog'; else None."""
        there = self.installed_as(text)
        if self.records_called(text):
            return "of the catalog"
        is_other = there and (there.extension or ("",))[0] != extension
        return "installed" if is_other else None

    def exact(self, module: Optional[str]) -> Union[Container, Installation, None]:
        """Return what is called exactly like a module, installed or in the catalog; None if there is nothing."""
        if not module:
            return None
        return self.installed_as(module) or self.records_by_name.get(module)

    def installed_or_file(self, text: Optional[str]) -> Union[Installation, Path]:
        """Return the installation or file with a name; see `find`. What only the catalog has is an error."""
        here = self.here(text)
        if not here:
            # asking EasyBuild takes longer
            self.installations = self.everything
            here = self.here(text)
        if here:
            return here
        wanted = str(text)
        records = self.named(selection.with_version(wanted))
        if records:
            raise EbsifError(
                f"{records[0].module} is in the catalog, but not installed here (to install it: "
                f"`ebsif install {records[0].module}`)"
            )
        if wanted.endswith(SUFFIXES) and not is_there(expanded(wanted)):
            raise EbsifError(f"{no_path(wanted)}no module of that name is installed here")
        own = [one.extension[0] for one in self.installations if one.extension]
        aliases = [alias for one in self.installations for alias in one.aliases]
        also = did_you_mean(wanted, [*map(shown, self.installations), *own, *aliases])
        raise EbsifError(
            f"{no_path(wanted)}no container module '{text}' is installed here{also} (modules are searched on "
            "MODULEPATH and below EasyBuild's prefix: `module use` adds a directory)"
        )

    def installation(self, text: Optional[str]) -> Installation:
        """Return the installation with a name; see `find`. Raise EbsifError if it is not installed, or a file."""
        module = self.installed_or_file(text)
        if isinstance(module, Path):
            raise EbsifError(f"{module} is not the directory of an installation: give that, or an installed module")
        return module

    def container(self, text: Optional[str]) -> Container:
        """Return the container in the catalog with a name; see `find`. Raise an EbsifError if it has none."""
        thing = self.find(text)
        if isinstance(thing, Installation):
            thing = self.record_of(thing) or selection.find_one(self.containers, shown(thing))
        if isinstance(thing, Path):
            raise EbsifError(f"{thing} is a file: give a container in the catalog (`ebsif list`)")
        return thing

    def easyconfig(self, text: Optional[str]) -> Union[Path, str]:
        """Return an easyconfig: a file, the copy in an installation, or a name that eb finds; see `find`."""
        thing = self.find(text)
        if isinstance(thing, Container):
            return thing.easyconfig_name
        path = thing.easyconfig if isinstance(thing, Installation) else thing
        if not path:
            raise EbsifError(thing.lack if isinstance(thing, Installation) else f"{text}: no easyconfig")
        if path.suffix != ".eb":
            raise EbsifError(f"{text}: no easyconfig")
        return path

    def image(self, text: Optional[str]) -> Path:
        """Return the image of the container with a name, or an image that is named itself; see `find`."""
        if text and not is_there(Path(text, lockfile.RECORD)) and (text.endswith(files.IMAGES) or is_there(Path(text))):
            return Path(text)
        thing = self.find(text)
        if isinstance(thing, Path):
            return thing
        if isinstance(thing, Installation):
            path = imagestate.path_of(thing)
            if not path:
                raise EbsifError(f"the image of {shown(thing)} is gone: install the module again with eb")
            return path
        images = [path for _, path in thing.image_places]
        image = next((path for path in images if is_there(path)), None)
        if not image:
            raise EbsifError(
                f"the image of {thing.module} is not on this machine (searched: "
                f"{', '.join(str(path.parent) for path in images) or 'no directory is known'}): give the "
                "path of the file"
            )
        return image

    def module(self, text: Optional[str]) -> str:
        """
        Return the shortest name for `module load` that means what a text means (N-01, V-07).

        A whole name, or a directory, means this very module; NAME/VERSION-mine the newest one on this base.
        """
        thing = self.find(text)
        if isinstance(thing, Path):
            raise EbsifError(f"{thing} is a file: give a module")
        if not isinstance(thing, Installation) or (text and is_exact(thing, text)):
            return thing.module
        of_base = places.undated(thing)
        return of_base if text and of_base and plain(text) in typed(of_base) else places.short(thing)


def ambiguous(text: str, modules: Sequence[Installation]) -> EbsifError:
    """Return the error about a name that could be any of several installed modules, by the names to type (N-01)."""
    return EbsifError(selection.ambiguous(text, [places.word(one) for one in modules]))


def typed(module: str) -> set[str]:
    """Return the names of a module as people type it: some naming schemes put a category before it (ai/PyTorch/2.7)."""
    return {plain(module), plain("/".join(module.split("/")[-2:]))}


def undated(installation: Installation, text: Optional[str]) -> Optional[str]:
    """Return the name for `module load` of an extension that is named without its date; None for others (V-07)."""
    return None if not text or is_exact(installation, text) else places.undated(installation)


def is_exact(installation: Installation, text: str) -> bool:
    """Return whether a text is the whole name, or the directory, of an installation."""
    return plain(text) in typed(installation.module) or ("/" in text and is_there(Path(text)))


def beside(installation: Installation, version: str) -> str:
    """Return the name of a module of the same software."""
    return f"{shown(installation).rpartition('/')[0]}/{version}"


def installations(names: Names, texts: Sequence[str]) -> tuple[list[Installation], list[Finding]]:
    """Return installations by names or directories (default: all), newest first, and what can't be searched."""
    directories = list(filter(search.is_place, texts))
    named = [names.installation(text) for text in texts if text not in directories]
    there, problems = search.installations(directories) if directories or not texts else ([], [])
    return places.once([*named, *names.newest_first(there)]), problems


def loaded() -> Installation:
    """Return the loaded container module; raise UsageError if there is none."""
    module = places.loaded()
    if not module:
        raise UsageError("no container given: load a container module first, or pass its name")
    return module


def no_path(text: str) -> str:
    """Return the beginning of the error about a name that may be meant as a path: why it isn't one."""
    path = expanded(text)
    if files.is_directory(path):
        return f"the directory {text} is not an installation, and "
    if is_there(path):
        return "" if text.endswith(SUFFIXES) else f"the file {text} is not an image, an easyconfig, or a lock, and "
    return f"the file {text} does not exist, and " if text.endswith(SUFFIXES) else ""


def file_of(text: str) -> Union[Installation, Path, None]:
    """Return the installation or file at a path, None for other texts; raise EbsifError if it doesn't exist."""
    path = expanded(text)
    if is_there(path / lockfile.RECORD):
        return places.of_directory(path)
    if path.is_file() and ("/" in text or path.suffix in SUFFIXES):
        return path
    if text.startswith(("/", "./", "../", "~")):
        missing = path / lockfile.RECORD if path.is_dir() else path
        raise EbsifError(
            f"{text}: not an installation of a container module ({missing} does not exist); give the directory of "
            "one, or the name of a module"
        )
    return None


def catalog_name(installation: Installation, containers: Collection[str] = ()) -> str:
    """
    Return how the catalog calls a module, or the base of an extension; naming schemes may call it otherwise.

    If an extension is on top of others, its base is the first below it among the `containers`, if one is there.
    """
    name = installation.recorded_name or shown(installation)
    if not installation.extension:
        return name
    base = below = newest.NAMED.sub("", name)
    while below not in containers and newest.NAMED.search(below):
        below = newest.NAMED.sub("", below)
    return below if below in containers else base
