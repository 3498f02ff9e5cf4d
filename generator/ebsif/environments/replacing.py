"""Replace packages of the image on purpose: what requires another version of them, and which can't be replaced."""

import contextlib
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.requirements import requirement_text, stages_of
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.container import Container
from ebsif.environments import change, extending
from ebsif.environments.extending import ExtendingError
from ebsif.images import inspection
from ebsif.packages.requirements import extras_in, name_in, parsed, with_extras
from ebsif.packages.venv import Package
from ebsif.render.easyconfig import keep_packages
from ebsif.report import output
from ebsif.report.table import print_table

FITS, BREAKS = "fits", "breaks"


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
        raise ExtendingError(f"--replace '{line}': add the version, to compare it with what other packages require: "
                             f"'{name_in(line) or line}==VERSION'")
    return exact[0]


def allows(text: str, version: str) -> bool:
    """Return whether a requirement allows a version."""
    wanted = parsed(text)
    return not wanted or wanted.specifier.contains(version, prereleases=True)


# --- what is asked for


def allow(wanted: Sequence[Any], lines: Sequence[str]) -> list[dict]:
    """Return stages, made of stages or lines, that may replace packages of the image by those in lines."""
    stages = [{**stage, "requirements": requirement_text(stage.get("requirements")).splitlines()}
              for stage in stages_of(wanted)]
    for line in lines:
        for stage in stages:
            stage["requirements"] = [now for one in stage["requirements"] for now in in_place_of(one, line)]
        if not any(name_in(line) == name_in(one) for stage in stages for one in stage["requirements"]):
            # with hashes, pip wants them for all packages of a stage
            others = [stage for stage in stages if not stage.get("no_build_isolation")
                      and any(map(has_hash, stage["requirements"])) == has_hash(line)]
            if not others:
                others = [{"name": "replacements", "requirements": []}]
                stages = others + stages
            others[0]["requirements"].append(line)
    names = list(map(name_in, lines))
    for stage in stages:
        stage["allow_replace"] = list(dict.fromkeys([*stage.get("allow_replace", []), *names]))
    return stages


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


# --- what it means


def report(container: Container, own: Mapping[str, Package], lines: Sequence[str], force: bool = False,
           image: Optional[Path] = None, to_stderr: bool = False) -> None:
    """
    Print what in the image of a container, and in its own packages, requires packages that lines replace.

    Raise ExtendingError if one of them isn't in the image, or belongs to the machine; `force` replaces these, too.
    """
    from easybuild.easyblocks.generic.container.packages import Packages

    python = inspection.python_of(image or image_of(container))
    there = Packages.from_listing(python)
    bound = there.bound([*keep_packages(container), *container.parameters.get("keep_packages", [])])
    rows, breaks = [], 0
    for line in lines:
        name, version = name_in(line), version_in(line)
        if name not in there:
            raise ExtendingError(f"{name} is not in the image of {container.module}: use --add '{line}'")
        if name in bound and not force:
            raise ExtendingError(
                f"{name} {there[name][1]} can't be replaced: it is {bound[name]}, and what was built with it may fail "
                f"or compute wrong results with another one. If you mean it: --replace '{line}' --force")
        for who, where, required in dependents(name, there, own, set(map(name_in, lines))):
            fits = allows(required, version)
            breaks += not fits
            rows.append([who, where, required, FITS if fits else BREAKS])
        output.note(f"{name} {version} instead of the image's {there[name][1]}"
                    f"{f', which is {bound[name]}' if name in bound else ''}")
    with contextlib.redirect_stdout(sys.stderr) if to_stderr else contextlib.nullcontext():
        if rows:
            print_table(["PACKAGE", "WHERE", "REQUIRES", "VERDICT"], rows)
        verb = "requires" if len(rows) == 1 else "require"
        print(f"{output.format_count(len(rows), 'package')} in image and extension {verb} replaced packages; "
              f"{breaks or 'none'} would break")


def dependents(name: str, image: Any, own: Mapping[str, Package], changing: Collection[str]) -> list[list[str]]:
    """Return which packages, where, require what of a package, except those that change themselves."""
    rows = [[f"{need.name} {image[normal_name(need.name)][1]}", "image", f"{name}{need.versions}"]
            for need in image.needs if need.on == name and normal_name(need.name) not in {*changing, *own}]
    for key, package in own.items():
        for text in package.requires:
            wanted = parsed(text)
            if key not in changing and wanted and normal_name(wanted.name) == name and (
                    not wanted.marker or wanted.marker.evaluate({"extra": ""})):
                rows.append([f"{package.name} {package.version}", "extension", f"{name}{wanted.specifier}"])
    return sorted(rows, key=lambda row: (row[1] != "image", row[0].lower()))


def image_of(container: Container) -> Path:
    """Return the image of a container on this machine; raise ExtendingError if it isn't found."""
    folders = extending.sources(container).partition("=")[2].split(":")
    places = [*(path for _, path in container.image_places), *(Path(one, container.file_name) for one in folders)]
    found = next((path for path in places if path.is_file()), None)
    if not found:
        raise extending.no_image(container)
    return found
