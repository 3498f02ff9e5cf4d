"""What the package indexes that pip would use say of requirements before pip starts, and what to do about it (N-07)."""

import argparse
import configparser
import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Optional

from easybuild.easyblocks.generic.container import remedies
from easybuild.easyblocks.generic.container.requirements import package_lines

from ebsif.catalog.packagenames import ONLY_SAY_SO, meant_by
from ebsif.catalog.stages import Stage
from ebsif.environments import offers, pytorch
from ebsif.environments.baseimage import BaseImage, WantedStages
from ebsif.environments.extension import ExtendingError
from ebsif.environments.offers import Lookup, Pages, Place
from ebsif.environments.pytorch import TorchBuild
from ebsif.images import inspection
from ebsif.packages import condanames
from ebsif.packages.lines import has_hash, name_in
from ebsif.packages.wanted import KnownImage

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

# pip's names of settings, which are those of its options, too
INDEX, MORE, LINKS, NONE = "index-url", "extra-index-url", "find-links", "no-index"
# Properties of a stage with which pip may find packages elsewhere.
UNFORESEEABLE = ("pre", "modules", "env")
NAMED = 3  # versions of a package in a message


@dataclass(frozen=True)
class Sources:
    """Where pip looks for packages: indexes, and directories or pages with links to files."""

    indexes: tuple[str, ...]
    links: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """Each place."""
        return (*(Place(one, True) for one in self.indexes), *(Place(one, False) for one in self.links))


@dataclass(frozen=True)
class Answer:
    """
    What indexes say of stages: why something can't be had, and the builds for the torch of an image that they lack.

    `builds` are of PyTorch's own packages, which its index has.
    """

    problem: str = ""
    builds: tuple[TorchBuild, ...] = ()


class Options(argparse.ArgumentParser):
    """Reads those of pip's options that name places."""

    def __init__(self) -> None:
        """Define them."""
        super().__init__(add_help=False)
        self.add_argument("-i", f"--{INDEX}", "--pypi-url")
        self.add_argument(f"--{MORE}", action="append", default=[])
        self.add_argument("-f", f"--{LINKS}", action="append", default=[])
        self.add_argument(f"--{NONE}", action="store_true")
        # which can have the same options
        self.add_argument("-c", "--constraint", "-r", "--requirement")

    def error(self, message: str) -> NoReturn:
        """Raise ValueError: pip says what is wrong."""
        raise ValueError(message)


def ask(stages: WantedStages, typed: Sequence[str] = ()) -> Answer:
    """
    Return what the indexes that pip would use say of what stages ask for; `typed` are the words of the command.

    Only what all of them say counts: without a network, or with an index that can't be asked, nothing is said.
    """
    image, wanted = stages.image, list(wanted_by_stage(stages))
    misnamed = list(dict.fromkeys(one for _, some in wanted for one in some if one in ONLY_SAY_SO))
    try:
        asked = list(asked_in(image, wanted)) if wanted else []
        end = offers.deadline()
        pages = offers.ask(offers.questions(asked), end)
        missing = [one.name for one in asked if one.files(pages) == ()]
        there: Collection[str] = image.packages if missing else ()
    except (ExtendingError, inspection.InspectionError, ValueError, configparser.Error):
        # pip says later what is wrong
        return Answer(said([], [], misnamed, image.known, typed))
    others = [(one.wanted, found) for one in asked if (found := other_versions(one, pages, image.known))]
    missing = list(dict.fromkeys(one for one in missing if one not in there))
    problem = said(missing, others, misnamed, image.known, typed)
    return Answer(problem, tuple(pytorch.builds(asked, pages, image, end)))


def asked_in(image: BaseImage, wanted: "Sequence[tuple[Stage, Mapping[str, Requirement]]]") -> Iterator[Lookup]:
    """Yield what stages ask for, with the places where pip looks; raise an error if the image doesn't say these."""
    settings = parse(inspection.pip_settings(image.path))
    for stage, requirements in wanted:
        sources = sources_of(stage, settings)
        for name, one in requirements.items():
            if sources and name not in ONLY_SAY_SO:
                yield Lookup(name, one, sources.places)


def other_versions(asked: Lookup, pages: Pages, image: KnownImage) -> "list[Version]":
    """Return the versions that there are of a package, the newest first, if none of them is asked for."""
    files = asked.files(pages) or ()
    there = {one.version for one in files if one.version}
    if not there or any(asked.wanted.specifier.contains(one, prereleases=True) for one in there):
        return []
    return offers.versions_in(files, image) or sorted(there, reverse=True)


# --- what is said of it


def said(
    missing: Sequence[str],
    others: "Sequence[tuple[Requirement, Sequence[Version]]]",
    misnamed: Sequence[str],
    image: KnownImage,
    typed: Sequence[str],
) -> str:
    """Return that packages, or versions of them, exist nowhere, with those that are meant; empty if there are none."""
    similar = {name: meant_by(name) for name in misnamed}
    similar.update((name, condanames.similar_to(name)) for name in missing)
    lines = [wrong_name(name, image) for name in misnamed]
    if missing:
        named = ", ".join(f"{name} (did you mean {similar[name]}?)" if similar[name] else name for name in missing)
        lines.append(f"no package index has {named}")
    lines += [no_version(*one) for one in others]
    if similar:
        command = corrected(typed, similar)
        which = "that name" if len(similar) == 1 else "those names"
        lines.append(f"With {which}:\n    {command}" if command else f"Correct {which}.")
    if others:
        lines.append("To take versions that fit:" + remedies.line("--add", *(one.name for one, _ in others)))
    if missing or others:
        them = "it" if len(missing) + len(others) == 1 else "them"
        lines.append(f"If an index of yours has {them}:{remedies.line('--add', '--extra-index-url URL')}")
    return "\n".join(lines)


def wrong_name(name: str, image: KnownImage) -> str:
    """Return that a package has another name, and whether the image has it."""
    meant = meant_by(name) or ""
    there = f", and the image has it ({image.packages[meant]})" if meant in image.packages else ""
    return f"pip's name of {name} is {meant}{there}"


def no_version(wanted: "Requirement", there: "Sequence[Version]") -> str:
    """Return that no version of a package is asked for, and the newest ones that there are."""
    newest = ", ".join(map(str, there[:NAMED]))
    which = "the newest ones are" if len(there) > NAMED else "there are only" if there[1:] else "there is only"
    return f"no package index has {wanted.name}{wanted.specifier}: {which} {newest}"


def corrected(typed: Sequence[str], similar: Mapping[str, Optional[str]]) -> str:
    """Return a command with other names of packages; empty unless there is one for each, which is a word of its own."""
    meant = [(word, similar.get(name_in(word))) for word in typed]
    if not all(similar.values()) or len([name for _, name in meant if name]) < len(similar):
        return ""
    return shlex.join(["ebsif", *(re.sub(r"^[\w.-]+", name, word) if name else word for word, name in meant)])


def wanted_by_stage(stages: WantedStages) -> "Iterator[tuple[Stage, dict[str, Requirement]]]":
    """Yield stages with what they ask an index for, by normalized name, up to one that does what can't be foreseen."""
    elsewhere = {name_in(line) for line in stages.lines if "/" in line}
    elsewhere.update(stages.image.hidden, stages.image.known.packages)
    for stage in stages.stages:
        if any(getattr(stage, name) for name in UNFORESEEABLE):
            return
        asked = {one.name: one.wanted for one in stages.asked if one.stage is stage and one.name not in elsewhere}
        # the tool that has written hashes has seen the files
        if asked and not any(map(has_hash, stage.lines)):
            yield stage, asked
        if stage.post:
            return


# --- where pip looks


def parse(text: str) -> dict[str, str]:
    """Return pip's settings in the text of its configuration files, and of its variables in the section `:env:`."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    return {
        key.lower().replace("_", "-"): value
        for section in ("global", "install", ":env:")
        if parser.has_section(section)
        for key, value in parser.items(section)
    }


def sources_of(stage: Stage, settings: Mapping[str, str]) -> Optional[Sources]:
    """Return where pip looks for the packages of a stage; None if that isn't known. Raise ValueError for mistakes."""
    lines = [line for line in stage.written if line.startswith("-") and not package_lines([line])]
    words = [*(word for line in lines for word in shlex.split(line, comments=True)), *stage.options]
    options = vars(Options().parse_known_args(words)[0])
    if options["constraint"]:
        return None
    more = [*settings.get(MORE, "").split(), *stage.extra_index_url, *options["extra_index_url"]]
    links = [*settings.get(LINKS, "").split(), *stage.find_links, *options["find_links"]]
    first = options["index_url"] or stage.index_url or settings.get(INDEX) or default_index()
    no_index = options["no_index"] or settings.get(NONE, "").lower() not in ("", "0", "false", "no", "off")
    if not (first or no_index):
        return None
    return Sources(() if no_index else (first, *more), tuple(links))


def default_index() -> str:
    """Return where pip looks if nobody has said where; empty if there is no pip beside ebsif to ask."""
    # not here: pip changes the logging of the process that imports it, and EasyBuild's has other methods
    command = [sys.executable, "-I", "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=offers.SECONDS, check=True)
        return done.stdout.strip()
    return ""
