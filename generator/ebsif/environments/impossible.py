"""What can't be installed on an image, as far as it is known before pip starts, and the ways out (N-07)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from easybuild.easyblocks.generic.container import remedies as again
from easybuild.easyblocks.generic.container.packages import gpu_label
from easybuild.easyblocks.generic.container.remedies import containers_with
from easybuild.easyblocks.generic.container.requirements import NEEDS_GPU
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.stages import Stage
from ebsif.environments import indexes, pytorch
from ebsif.environments.baseimage import AskedPackage, BaseImage, WantedStages
from ebsif.environments.extension import ExtendingError
from ebsif.environments.request import Request
from ebsif.images import inspection
from ebsif.packages.lines import has_hash, is_exact
from ebsif.report import output

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# The newest releases of which it is known that they need exactly one release of torch.
NEWEST_KNOWN = {"torchvision": (0, 28), "torchaudio": (2, 9)}


def checked(request: Request, image: BaseImage, stages: Sequence[Stage]) -> tuple[Sequence[Stage], str]:
    """
    Return stages with why they can't be installed on an image, as far as it is known; notes are printed.

    The stages look for packages in PyTorch's index, too, if they have to, and the person has agreed.
    """
    if request.dry_run:
        # perhaps only an easyconfig is asked for, for another machine
        return stages, ""
    wanted = WantedStages(image, stages)
    notes, problems = [without_compiler(wanted)], [why_impossible(wanted)]
    if not request.writes:
        answer = indexes.ask(wanted, request.repeated)
        builds = [] if again.NEVERTHELESS[-1] in request.more else answer.builds
        with_builds = pytorch.settled(stages, builds, request.yes)
        stages = with_builds.stages
        notes.append(with_builds.note)
        problems += [answer.problem, with_builds.problem]
    for note in filter(None, notes):
        output.note(note)
    return stages, "\n".join(filter(None, problems))


def why_impossible(wanted: WantedStages) -> str:
    """
    Return what stages ask for that an image can't have, and what to do; empty if there is nothing.

    Those are other versions of what the image has and keeps, releases of torchvision and torchaudio for another torch,
    and what is only for GPUs. pip would find that too, but after downloading everything else. An image that isn't here
    can't be asked.
    """
    image, asked = wanted.image, wanted.asked
    if not conflicts(asked, image.known.packages) and not for_gpus(asked, image.known.packages):
        return ""
    try:
        bound, there = image.bound, image.packages
    except (ExtendingError, inspection.InspectionError):
        return ""
    kept = {name: there[name][1] for name in bound}
    found = conflicts(asked, kept)
    useless = for_gpus(asked, kept) if gpu_label(kept.get("torch", ""))[0] == "cpu" else []
    texts = [
        other_releases(found, kept, bound, is_locked=any(map(has_hash, wanted.lines))) if found else "",
        only_for_gpus(useless, kept["torch"]) if useless else "",
    ]
    return "\n".join(filter(None, texts))


def without_compiler(wanted: WantedStages) -> str:
    """
    Return that an image can't build what stages ask for that is only for GPUs; empty if it can.

    That is no reason to refuse it: there may be a wheel for the torch of the image. Nothing is said either if that
    torch isn't known, or commands and modules of a stage may bring a compiler.
    """
    image = wanted.image
    torch = image.known.packages.get("torch", "")
    kind = GPU_KINDS.get(gpu_label(torch)[0] or "")
    names = needing_gpus(wanted.asked, image.known.packages)
    if not names or not kind or any(stage.pre or stage.modules or stage.env for stage in wanted.stages):
        return ""
    try:
        is_there = inspection.programs_of(image.path, kind.compiler)
    except (ExtendingError, inspection.InspectionError):
        return ""
    if is_there:
        return ""
    return (
        f"the image has no {kind.compiler[0]} to build {', '.join(names)}: only wheels that were built for torch "
        f"{torch} can be installed (to find containers that have it: {containers_with(names)})"
    )


def conflicts(asked: Iterable[AskedPackage], versions: Mapping[str, str]) -> "dict[str, Requirement]":
    """Return what is asked for that versions of packages of an image don't satisfy, by normalized name."""
    found = {}
    for one in asked:
        is_kept = one.name in versions and one.name not in one.free
        fits = not is_kept or one.wanted.specifier.contains(versions[one.name], prereleases=True)
        if not fits or is_for_other_torch(one, versions):
            found[one.name] = one.wanted
    return found


def for_gpus(asked: Iterable[AskedPackage], versions: Mapping[str, str]) -> list[str]:
    """Return the names of packages that are asked for and only for GPUs, unless torch may be for these."""
    return [] if gpu_label(versions.get("torch", ""))[0] in GPU_KINDS else needing_gpus(asked, versions)


def needing_gpus(asked: Iterable[AskedPackage], versions: Mapping[str, str]) -> list[str]:
    """Return the names of packages that are asked for and only for GPUs, and not there."""
    found = [
        one.name
        for one in asked
        if one.name in NEEDS_GPU and one.name not in versions and one.free.isdisjoint((one.name, "torch"))
    ]
    return list(dict.fromkeys(found))


def other_releases(
    found: "Mapping[str, Requirement]", kept: Mapping[str, str], bound: Mapping[str, str], is_locked: bool
) -> str:
    """Return that other releases are asked for than packages allow that the image keeps, and what to do."""
    listed = "".join(
        f"\n  {one.name}{one.specifier}, but the image has "
        + (
            f"{kept[name]} ({bound[name]})"
            if name in kept
            else f"torch {kept['torch']}, and {one.name} of this version needs torch {torch_of(one)}"
        )
        for name, one in found.items()
    )
    return (
        f"what you ask for has other versions than packages that are built for this machine:{listed}\n"
        f"{ways_out(found, kept, is_locked)}"
    )


def only_for_gpus(names: Sequence[str], torch: str) -> str:
    """Return that packages are only for GPUs, and the image is for CPUs, and what to do."""
    return (
        f"the image has torch {torch}, which is for CPUs, but these packages are only for GPUs: {', '.join(names)}\n"
        f"Leave them out, or choose a container that has them:\n    {containers_with(names)}"
    )


def is_for_other_torch(asked: AskedPackage, versions: Mapping[str, str]) -> bool:
    """Return whether a release is asked for that is for another torch than the one that the image has and keeps."""
    needed, there = torch_of(asked.wanted), versions.get("torch", "").split(".")[:2]
    is_own = asked.name not in {*versions, *asked.free}
    return bool(needed) and is_own and len(there) > 1 and "torch" not in asked.free and needed.split(".") != there


def torch_of(wanted: "Requirement") -> str:
    """Return the release of torch (2.7) that a pinned release of torchvision or torchaudio needs; empty for others."""
    name = normal_name(wanted.name)
    pinned = re.fullmatch(r"==(\d+)\.(\d+)[\d.]*(\+\w+)?", str(wanted.specifier))
    if name not in NEWEST_KNOWN or not pinned or wanted.url:
        return ""
    major, minor = int(pinned[1]), int(pinned[2])
    if (major, minor) > NEWEST_KNOWN[name] or minor < 1:
        return ""
    if name == "torchaudio":
        return f"{major or 1}.{minor}"
    # 0.14 is for 1.13, 0.15 for 2.0
    return f"2.{minor - 15}" if minor >= 15 else f"1.{minor - 1}"


def ways_out(found: "Mapping[str, Requirement]", versions: Mapping[str, str], is_locked: bool) -> str:
    """Return what to do about conflicts, the safest first; hashes are of the locked versions only."""
    others = containers_with([f"{wanted.name}{wanted.specifier}" for wanted in found.values()])
    if is_locked:
        kept = dict.fromkeys(name if name in versions else "torch" for name in found)
        # indexes don't have the image's builds (+rocm), but those with the same version fit
        pins = ", ".join(f'"{name}=={versions[name].partition("+")[0]}"' for name in kept)
        return (
            "Lock it again with the versions of the image (with uv: constraint-dependencies = "
            f"[{pins}] in [tool.uv]), or choose a container that has the locked versions:\n    {others}"
        )
    exact = [
        f"{wanted.name}{wanted.specifier}"
        for wanted in found.values()
        if is_exact(wanted) and normal_name(wanted.name) in versions
    ]
    replaced = (
        f"\nTo replace them on purpose:{again.line('--replace', *exact, '--force')}" if len(exact) == len(found) else ""
    )
    return (
        f"To take the versions of the image:{again.line('--add', *(wanted.name for wanted in found.values()))}"
        f"{replaced}\nTo find containers that have what you ask for:\n    {others}"
    )
