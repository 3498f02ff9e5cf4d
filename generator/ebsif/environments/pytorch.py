"""PyTorch's own packages, such as torchvision: whether an index has them for the torch of an image (N-07)."""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from easybuild.easyblocks.generic.container import remedies
from easybuild.easyblocks.generic.container.imageprograms import FILES, IMPORTS
from easybuild.easyblocks.generic.container.packages import gpu_label
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.stages import Stage
from ebsif.environments import offers
from ebsif.environments.baseimage import BaseImage
from ebsif.environments.offers import Lookup, PackageFile, Pages, Place, ask, questions
from ebsif.packages.lines import parsed
from ebsif.packages.wanted import KnownImage

# Those that other indexes have for CUDA only: with another torch, none of their operators can be found.
FOR_CUDA = ("fbgemm-gpu", "torchaudio", "torchvision")


@dataclass(frozen=True)
class TorchBuild:
    """A package of PyTorch's that an image needs from another index: who needs it, and whether that index answers."""

    name: str
    asked: str
    torch: str
    index: str
    answers: bool

    @property
    def is_needed(self) -> bool:
        """Whether the build that pip would take can't work."""
        return self.name in FOR_CUDA and gpu_label(self.torch)[0] != "cuda"

    @property
    def text(self) -> str:
        """What is wrong with the build that pip would take."""
        who = self.name if self.name == self.asked else f"{self.name} (needed by {self.asked})"
        return f"pip would take {who} for another torch than the image's, {self.torch}"


def builds(asked: Sequence[Lookup], pages: Pages, image: BaseImage, end: float) -> Iterator[TorchBuild]:
    """
    Yield the packages of PyTorch's that pip would take for another torch than the image's, if PyTorch's index has them.

    Those that are asked for, and those that the metadata of what is asked for requires.
    """
    known = image.known
    torch = known.packages.get("torch", "")
    index = rule().index_for(torch)
    if not index:
        return
    names = set(rule().OF_PYTORCH).difference(image.hidden, known.packages)
    more = {one.name: (one, who) for one, who in needed(asked, pages, known, end) if one.name in names}
    pages = {**pages, **ask(questions([one for one, _ in more.values()]), end)}
    found = {**more, **{one.name: (one, one.name) for one in asked if one.name in names}}
    lacking = {name: both for name, both in found.items() if lacks_build(both[0], pages, torch, known)}
    place = Place(index, is_index=True)
    theirs = ask([(name, place) for name in lacking], end)
    for name, (one, who) in lacking.items():
        files = theirs.get((name, place))
        if files is None or has_build(files, one, torch):
            yield TorchBuild(name, who, torch, index, answers=files is not None)


def needed(asked: Sequence[Lookup], pages: Pages, image: KnownImage, end: float) -> Iterator[tuple[Lookup, str]]:
    """Yield what the newest versions of what is asked for require, each with who requires it, as far as indexes say."""
    wheels = {one: offers.chosen(one.files(pages) or (), one.wanted.specifier, image) for one in asked}
    required = offers.answers(offers.requirements_of, [wheel for wheel in wheels.values() if wheel], end)
    for one, wheel in wheels.items():
        for wanted in map(parsed, (required.get(wheel) if wheel else None) or ()):
            if wanted and not wanted.url and image.needs(wanted, one.wanted.extras):
                yield Lookup(normal_name(wanted.name), wanted, one.places), one.wanted.name


def lacks_build(asked: Lookup, pages: Pages, torch: str, image: KnownImage) -> bool:
    """Return whether places have a package, but for another torch, compiled."""
    files = asked.files(pages)
    if not files or "+" in str(asked.wanted.specifier) or has_build(files, asked, torch):
        return False
    versions = [one for one in offers.versions_in(files, image) if asked.wanted.specifier.contains(one, True)]
    return not any(one.version == versions[0] and one.name.endswith("-any.whl") for one in files if versions)


def has_build(files: Sequence[PackageFile], asked: Lookup, torch: str) -> bool:
    """Return whether one of the files of a package is of a version that is asked for, with the label of a torch."""
    label = torch.partition("+")[2]
    return any(
        one.version.local == label and asked.wanted.specifier.contains(one.version, True)
        for one in files
        if one.version
    )


# --- what is done about it


class Settled(NamedTuple):
    """Stages with the builds that they take, why they can't be installed, and what there is to say besides."""

    stages: Sequence[Stage]
    problem: str = ""
    note: str = ""


def settled(stages: Sequence[Stage], found: Sequence[TorchBuild], agreed: bool) -> Settled:
    """Return stages that take builds from PyTorch's index if the person has agreed, else what to do if they have to."""
    if found and agreed and all(one.answers for one in found):
        note = f"pip looks in {found[0].index}, too: {'; '.join(one.text for one in found)}"
        return Settled(with_index(stages, found[0].index), note=note)
    text = offer(found)
    is_needed = any(one.is_needed for one in found)
    return Settled(stages, text if is_needed else "", "" if is_needed else text)


def with_index(stages: Sequence[Stage], index: str) -> list[Stage]:
    """Return stages that look for packages in one more index."""
    line = f"--extra-index-url {index}"
    return [stage.replace(requirements=[line, *stage.written]) if stage.lines else stage for stage in stages]


def offer(found: Sequence[TorchBuild]) -> str:
    """Return which builds PyTorch's index has, and the command that takes them; empty if there are none."""
    if not found:
        return ""
    index, them = found[0].index, "them" if found[1:] else "it"
    if all(one.answers for one in found):
        builds = "builds" if found[1:] else "the build"
        has = f"PyTorch's index has {builds} for that torch. To take {them} (--yes does, too):"
    else:
        has, index = f"PyTorch's index, {index}, doesn't answer here. If you have a copy of it:", "URL"
    texts = [*(one.text for one in found), has + remedies.line("--add", f"--extra-index-url {index}")]
    if any(one.is_needed for one in found):
        texts.append(remedies.nevertheless())
    return "\n".join(texts)


@lru_cache
def rule() -> Any:
    """Return the program that knows which packages are PyTorch's, and their index; it also runs in images."""
    spec = importlib.util.spec_from_file_location("ebsif_imports", Path(FILES, "site-packages", IMPORTS))
    assert spec and spec.loader
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
