"""Replace packages of the image on purpose: what requires another version of them, and which can't be replaced."""

import contextlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container import remedies as again
from easybuild.easyblocks.generic.container.packages import gpu_label
from easybuild.easyblocks.generic.container.remedies import containers_with
from easybuild.easyblocks.generic.container.requirements import NEEDS_GPU
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.container import Container
from ebsif.catalog.stages import Stage, lines_of
from ebsif.environments import bases, change
from ebsif.environments.extension import ExtendingError
from ebsif.images import inspection
from ebsif.packages.formats.wanted import KnownImage
from ebsif.packages.lines import extras_in, name_in, names_in, parsed, with_extras
from ebsif.packages.venv import VenvPackage
from ebsif.render.easyconfig import keep_packages
from ebsif.report import output
from ebsif.report.table import print_table

if TYPE_CHECKING:
    from easybuild.easyblocks.generic.container.packages import Packages
    from packaging.requirements import Requirement

FITS, BREAKS = "fits", "breaks"
BUILT_WITH_IT = "what was built with it may fail or compute wrong results"
# The newest releases of which it is known that they need exactly one release of torch.
NEWEST_KNOWN = {"torchvision": (0, 28), "torchaudio": (2, 9)}


def parse(texts: Sequence[str]) -> list[str]:
    """Return the packages of --replace as requirement lines; raise ExtendingError unless each has an exact version."""
    lines = change.parse(texts, "--replace")
    for line in lines:
        version_in(line)
    return lines


def version_in(line: str) -> str:
    """Return the exact version in a requirement line; raise ExtendingError if it has none."""
    wanted = parsed(line)
    exact = [one.version for one in wanted.specifier if one.operator == "=="] if wanted else []
    if len(exact) != 1 or exact[0].endswith("*"):
        raise ExtendingError(
            f"--replace '{line}': add the version, to compare it with what other packages require: "
            f"'{name_in(line) or line}==VERSION'"
        )
    return exact[0]


def allows(text: str, version: str) -> bool:
    """Return whether a requirement allows a version."""
    wanted = parsed(text)
    return not wanted or wanted.specifier.contains(version, prereleases=True)


# --- what is asked for


def allow(stages: Sequence[Stage], lines: Sequence[str]) -> list[Stage]:
    """Return stages that may replace packages of the image by those in lines."""
    for line in lines:
        stages = [
            stage.replace(requirements=[now for one in stage.written for now in in_place_of(one, line)])
            for stage in stages
        ]
        if name_in(line) not in names_in(lines_of(stages)):
            stages = added(stages, line)
    names = list(map(name_in, lines))
    return [stage.replace(allow_replace=list(dict.fromkeys([*stage.allow_replace, *names]))) for stage in stages]


def added(stages: Sequence[Stage], line: str) -> list[Stage]:
    """Return stages with one more line, in the first one that may have it, else in a stage before them."""
    for number, stage in enumerate(stages):
        # with hashes, pip wants them for all packages of a stage
        if not stage.no_build_isolation and any(map(has_hash, stage.written)) == has_hash(line):
            return [*stages[:number], stage.replace(requirements=[*stage.written, line]), *stages[number + 1 :]]
    return [Stage(name="replacements", requirements=[line]), *stages]


def in_place_of(before: str, line: str) -> list[str]:
    """Return what becomes of a line; nothing if it's the replaced package, locked in another version."""
    if name_in(before) != name_in(line):
        return [before]
    if has_hash(before) and not has_hash(line):
        return [before] if "@" not in before and allows(before, version_in(line)) else []
    return [with_extras(line, extras_in(before))]


def has_hash(line: str) -> bool:
    """Return whether a requirement line names the files that pip accepts."""
    return "--hash" in line


# --- what can't be had


def why_impossible(
    container: Container,
    known: KnownImage,
    stages: Sequence[Stage],
    own: Collection[str],
    image: Optional[Path] = None,
) -> str:
    """
    Return what stages ask for that the image can't have, and what to do (N-07); empty if there is nothing.

    Those are other versions of what the image has and keeps, releases of torchvision and torchaudio for another torch,
    and what is only for GPUs. pip would find that too, but after downloading everything else. `own` are the normalized
    names of packages in user software, which may hide those of the image. An image that isn't here can't be asked.
    """
    if not conflicts(stages, known.packages, own, known) and not for_gpus(stages, known.packages, own, known):
        return ""
    try:
        there, bound = packages_of(container, image)
    except (ExtendingError, inspection.InspectionError):
        return ""
    kept = {name: there[name][1] for name in bound}
    found = conflicts(stages, kept, own, known)
    useless = for_gpus(stages, kept, own, known) if gpu_label(kept.get("torch", ""))[0] == "cpu" else []
    texts = [
        other_releases(stages, found, kept, bound) if found else "",
        only_for_gpus(useless, kept["torch"]) if useless else "",
    ]
    return "\n".join(filter(None, texts))


def other_releases(
    stages: Sequence[Stage], found: "Mapping[str, Requirement]", kept: Mapping[str, str], bound: Mapping[str, str]
) -> str:
    """Return that stages ask for other releases than packages allow that the image keeps, and what to do."""
    listed = "".join(
        f"\n  {one.name}{one.specifier}, but the image has "
        + (
            f"{kept[name]} ({bound[name]})"
            if name in kept
            else f"torch {kept['torch']}, and {one.name} of this version needs torch {torch_of(one)}"
        )
        for name, one in found.items()
    )
    is_locked = any(map(has_hash, lines_of(stages)))
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


def asked_for(
    stages: Sequence[Stage], own: Collection[str], image: KnownImage
) -> "Iterator[tuple[str, Requirement, set[str]]]":
    """
    Yield what stages ask an index for in an image: the normalized name, the requirement, and the names that are free.

    Free are packages that the stage may replace, or that user software may hide.
    """
    for stage in stages:
        free = {*own, *map(normal_name, stage.allow_replace)}
        for wanted in filter(None, map(parsed, stage.lines)):
            marker = wanted.marker
            if not wanted.url and (not marker or any(map(marker.evaluate, image.marker_environments))):
                yield normal_name(wanted.name), wanted, free


def conflicts(
    stages: Sequence[Stage], versions: Mapping[str, str], own: Collection[str], image: KnownImage
) -> "dict[str, Requirement]":
    """Return what stages ask for that versions of an image don't satisfy, by normalized name."""
    found = {}
    for name, wanted, free in asked_for(stages, own, image):
        is_kept = name in versions and name not in free
        if (is_kept and not wanted.specifier.contains(versions[name], prereleases=True)) or is_for_other_torch(
            wanted, versions, free
        ):
            found[name] = wanted
    return found


def for_gpus(
    stages: Sequence[Stage], versions: Mapping[str, str], own: Collection[str], image: KnownImage
) -> list[str]:
    """Return the names of packages that stages ask for which are only for GPUs, unless torch may be for these."""
    if gpu_label(versions.get("torch", ""))[0] in GPU_KINDS:
        return []
    return needing_gpus(stages, versions, own, image)


def needing_gpus(
    stages: Sequence[Stage], versions: Mapping[str, str], own: Collection[str], image: KnownImage
) -> list[str]:
    """Return the names of packages that stages ask for which are only for GPUs, and not there."""
    found = [
        name
        for name, _, free in asked_for(stages, own, image)
        if name in NEEDS_GPU and name not in versions and free.isdisjoint((name, "torch"))
    ]
    return list(dict.fromkeys(found))


def without_compiler(
    container: Container,
    known: KnownImage,
    stages: Sequence[Stage],
    own: Collection[str],
    image: Optional[Path] = None,
) -> str:
    """
    Return that the image can't build what stages ask for that is only for GPUs (N-07); empty if it can.

    That is no reason to refuse it: there may be a wheel for the torch of the image. Nothing is said either if that
    torch isn't known, or commands and modules of a stage may bring a compiler.
    """
    torch = known.packages.get("torch", "")
    kind = GPU_KINDS.get(gpu_label(torch)[0] or "")
    names = needing_gpus(stages, known.packages, own, known)
    if not names or not kind or any(stage.pre or stage.modules or stage.env for stage in stages):
        return ""
    try:
        is_there = inspection.programs_of(image or bases.image_of(container), kind.compiler)
    except (ExtendingError, inspection.InspectionError):
        return ""
    if is_there:
        return ""
    return (
        f"the image has no {kind.compiler[0]} to build {', '.join(names)}: only wheels that were built for torch "
        f"{torch} can be installed (to find containers that have it: {containers_with(names)})"
    )


def is_for_other_torch(wanted: "Requirement", versions: Mapping[str, str], free: Collection[str]) -> bool:
    """Return whether a requirement is of a release for another torch than the one that the image has and keeps."""
    needed, there = torch_of(wanted), versions.get("torch", "").split(".")[:2]
    is_own = normal_name(wanted.name) not in {*versions, *free}
    return bool(needed) and is_own and len(there) > 1 and "torch" not in free and needed.split(".") != there


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
        if re.fullmatch(r"==[^,*]+", str(wanted.specifier)) and normal_name(wanted.name) in versions
    ]
    replaced = (
        f"\nTo replace them on purpose:{again.line('--replace', *exact, '--force')}" if len(exact) == len(found) else ""
    )
    return (
        f"To take the versions of the image:{again.line('--add', *(wanted.name for wanted in found.values()))}"
        f"{replaced}\nTo find containers that have what you ask for:\n    {others}"
    )


def packages_of(container: Container, image: Optional[Path]) -> "tuple[Packages, dict[str, str]]":
    """Return the packages of an image, and why some are kept, by normalized name; raise an error if it isn't here."""
    from easybuild.easyblocks.generic.container.packages import Packages

    there = Packages.from_listing(inspection.python_of(image or bases.image_of(container)).listing)
    return there, there.bound([*keep_packages(container), *container.parameters.get("keep_packages", [])])


# --- what it means


def report(
    container: Container,
    own: Mapping[str, VenvPackage],
    lines: Sequence[str],
    force: bool = False,
    image: Optional[Path] = None,
    to_stderr: bool = False,
) -> None:
    """
    Print what in the image of a container, and in its own packages, requires packages that lines replace.

    Raise ExtendingError if one of them isn't in the image, or belongs to the machine; `force` replaces these, too.
    """
    there, bound = packages_of(container, image)
    rows, breaks = [], 0
    for line in lines:
        name, version = name_in(line), version_in(line)
        if name not in there:
            raise ExtendingError(
                f"{name} is not in the image of {container.module}, so it can only be added:{again.line('--add', line)}"
            )
        if name in bound and not force:
            raise ExtendingError(
                f"{name} {there[name][1]} can't be replaced: it is {bound[name]}, and {BUILT_WITH_IT} with another "
                f"one. If you mean it:{again.line('--replace', line, '--force')}"
            )
        for who, where, required in dependents(name, there, own, set(map(name_in, lines))):
            fits = allows(required, version)
            breaks += not fits
            rows.append([who, where, required, FITS if fits else BREAKS])
        output.note(
            f"{name} {version} instead of the image's {there[name][1]}"
            f"{f', which is {bound[name]}: {BUILT_WITH_IT}' if name in bound else ''}"
        )
    with contextlib.redirect_stdout(sys.stderr) if to_stderr else contextlib.nullcontext():
        if not rows:
            print("no package in image and extension requires replaced packages")
            return
        print_table(["PACKAGE", "WHERE", "REQUIRES", "VERDICT"], rows)
        verb = "requires" if len(rows) == 1 else "require"
        print(
            f"{output.format_count(len(rows), 'package')} in image and extension {verb} replaced packages; "
            f"{f'{breaks} would break' if breaks else 'none needs another version'}"
        )


def dependents(name: str, image: Any, own: Mapping[str, VenvPackage], changing: Collection[str]) -> list[list[str]]:
    """Return which packages, where, require what of a package, except those that change themselves."""
    rows = [
        [f"{need.name} {image[normal_name(need.name)][1]}", "image", f"{name}{need.versions}"]
        for need in image.needs
        if need.on == name and normal_name(need.name) not in {*changing, *own}
    ]
    for key, package in own.items():
        for text in package.requires:
            wanted = parsed(text)
            if (
                key not in changing
                and wanted
                and normal_name(wanted.name) == name
                and (not wanted.marker or wanted.marker.evaluate({"extra": ""}))
            ):
                rows.append([f"{package.name} {package.version}", "extension", f"{name}{wanted.specifier}"])
    return sorted(rows, key=lambda row: (row[1] != "image", row[0].lower()))
