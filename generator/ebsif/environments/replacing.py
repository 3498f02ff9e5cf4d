"""Replace packages of the image on purpose: what requires another version of them, and which can't be replaced."""

import contextlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from easybuild.easyblocks.generic.container import remedies as again
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.stages import Stage, lines_of
from ebsif.environments.baseimage import BaseImage
from ebsif.environments.extension import ExtendingError
from ebsif.environments.request import Request
from ebsif.packages import typed
from ebsif.packages.lines import extras_in, has_hash, name_in, names_in, parsed, with_extras
from ebsif.packages.venv import VenvPackage
from ebsif.report import output
from ebsif.report.asking import confirmed
from ebsif.report.table import print_table

if TYPE_CHECKING:
    from easybuild.easyblocks.generic.container.packages import Packages

FITS, BREAKS = "fits", "breaks"
BUILT_WITH_IT = "what was built with it may fail or compute wrong results"


def parse(texts: Sequence[str]) -> list[str]:
    """Return the packages of --replace as requirement lines; raise ExtendingError unless each has an exact version."""
    lines = typed.parse(texts, "--replace") if texts else []
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


# --- what it means


def is_accepted(
    request: Request, image: BaseImage, own: Mapping[str, VenvPackage], lines: Sequence[str], force: bool
) -> bool:
    """
    Show what packages break that lines replace, in an image and in user software; return whether the person goes on.

    See `report` for errors and `force`.
    """
    if not lines:
        return True
    report(image, own, lines, force, request.dry_run)
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
    image: BaseImage, own: Mapping[str, VenvPackage], lines: Sequence[str], force: bool, to_stderr: bool
) -> None:
    """
    Print what in an image, and in user software on it, requires packages that lines replace.

    Raise ExtendingError if one of them isn't in the image, or belongs to the machine; `force` replaces these, too.
    """
    there, bound = image.packages, image.bound
    rows, breaks = [], 0
    for line in lines:
        name, version = name_in(line), version_in(line)
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


def dependents(
    name: str, image: "Packages", own: Mapping[str, VenvPackage], changing: Collection[str]
) -> list[list[str]]:
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
