"""Replace packages of the image on purpose: what requires another version of them, and which can't be replaced."""

import contextlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from easybuild.easyblocks.generic.container import remedies as again
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.stages import Stage, lines_of
from ebsif.environments.baseimage import BaseImage
from ebsif.environments.extension import ExtendingError
from ebsif.environments.request import Request
from ebsif.packages import typed
from ebsif.packages.lines import allows, extras_in, has_hash, name_in, names_in, parsed, with_extras
from ebsif.packages.venv import VenvPackage
from ebsif.packages.wanted import WantedPackages
from ebsif.report import output
from ebsif.report.asking import confirmed
from ebsif.report.table import print_table

FITS, BREAKS = "fits", "breaks"
BUILT_WITH_IT = "what was built with it may fail or compute wrong results"


class Replacement(NamedTuple):
    """A package of --replace: the normalized name, the exact version, and the requirement line."""

    name: str
    version: str
    line: str


def parse(texts: Sequence[str]) -> list[Replacement]:
    """Return the packages of --replace; raise ExtendingError unless each has an exact version."""
    wanted = typed.parse(texts, "--replace") if texts else WantedPackages()
    if wanted.wrong:
        raise ExtendingError("\n".join(wanted.wrong))
    return [Replacement(name_in(line), exact_version_in(line), line) for line in wanted.lines]


def exact_version_in(line: str) -> str:
    """Return the exact version in a requirement line; raise ExtendingError if it has none."""
    wanted = parsed(line)
    exact = [one.version for one in wanted.specifier if one.operator == "=="] if wanted else []
    if len(exact) != 1 or exact[0].endswith("*"):
        raise ExtendingError(
            f"--replace '{line}': add the version, to compare it with what other packages require: "
            f"'{name_in(line) or line}==VERSION'"
        )
    return exact[0]


# --- what is asked for


def allow(stages: Sequence[Stage], replacements: Sequence[Replacement]) -> list[Stage]:
    """Return stages that may replace packages of the image."""
    for one in replacements:
        stages = [
            stage.replace(requirements=[now for line in stage.written for now in in_place_of(line, one)])
            for stage in stages
        ]
        if one.name not in names_in(lines_of(stages)):
            stages = added(stages, one.line)
    names = [one.name for one in replacements]
    return [stage.replace(allow_replace=list(dict.fromkeys([*stage.allow_replace, *names]))) for stage in stages]


def added(stages: Sequence[Stage], line: str) -> list[Stage]:
    """Return stages with one more line, in the first one that may have it, else in a stage before them."""
    for number, stage in enumerate(stages):
        # with hashes, pip wants them for all packages of a stage; commands stay when the package is removed
        if stage.lines and not stage.no_build_isolation and any(map(has_hash, stage.lines)) == has_hash(line):
            return [*stages[:number], stage.replace(requirements=[*stage.written, line]), *stages[number + 1 :]]
    return [Stage(name="replacements", requirements=[line]), *stages]


def in_place_of(before: str, replacement: Replacement) -> list[str]:
    """Return what becomes of a line; nothing if it's the replaced package, locked in another version."""
    if name_in(before) != replacement.name:
        return [before]
    if has_hash(before) and not has_hash(replacement.line):
        return [before] if "@" not in before and allows(before, replacement.version) else []
    return [with_extras(replacement.line, extras_in(before))]


# --- what it means


def is_accepted(
    request: Request,
    image: BaseImage,
    own: Mapping[str, VenvPackage],
    replacements: Sequence[Replacement],
    force: bool,
) -> bool:
    """
    Show what replacements break, in an image and in user software; return whether the person goes on.

    See `report` for errors and `force`.
    """
    if not replacements:
        return True
    report(image, own, replacements, force, request.fills_stdout)
    if not request.installs or request.check or request.yes:
        return True
    if confirmed(
        "Install it?",
        ExtendingError(
            f"nothing was installed, because there is no terminal to ask on: to go on, {request.command_with('--yes')}"
        ),
    ):
        return True
    output.note("nothing was installed")
    return False


def report(
    image: BaseImage,
    own: Mapping[str, VenvPackage],
    replacements: Sequence[Replacement],
    force: bool,
    to_stderr: bool,
) -> None:
    """
    Print what in an image, and in user software on it, requires packages that are replaced.

    Raise ExtendingError if one of them isn't in the image, or belongs to the machine; `force` replaces these, too.
    """
    there, bound = image.packages, image.bound
    rows, breaks = [], 0
    changing = {one.name for one in replacements}
    for name, version, line in replacements:
        if name not in there:
            raise ExtendingError(
                f"{name} is not in the image of {image.container.module}, so it can only be added:"
                f"{again.line('--add', line)}"
            )
        if name in bound and not force:
            raise ExtendingError(
                f"{name} {there[name][1]} can't be replaced: it is {bound[name]}, and {BUILT_WITH_IT} with another "
                f"one. If you mean it:{again.line('--replace', line, '--force')}"
            )
        for who, where, required in dependents(name, image, own, changing):
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


def dependents(
    name: str, image: BaseImage, own: Mapping[str, VenvPackage], changing: Collection[str]
) -> list[list[str]]:
    """Return which packages, where, require what of a package, except those that change themselves."""
    rows = [
        [f"{need.name} {image.packages[normal_name(need.name)][1]}", "image", f"{name}{need.versions}"]
        for need in image.packages.needs
        if need.on == name and normal_name(need.name) not in {*changing, *own}
    ]
    for key, package in own.items():
        for text in package.requires:
            wanted = parsed(text)
            if key not in changing and wanted and normal_name(wanted.name) == name and image.known.needs(wanted):
                rows.append([f"{package.name} {package.version}", "extension", f"{name}{wanted.specifier}"])
    return sorted(rows, key=lambda row: (row[1] != "image", row[0].lower()))
