"""Requirements of users: read from any of the formats that they bring, and turned into stages."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from easybuild.easyblocks.generic.container.requirements import NEEDS_TORCH, package_name
from easybuild.easyblocks.generic.container.values import normal_name
from easybuild.easyblocks.generic.container.written import escape

from ebsif.catalog.stages import Stage
from ebsif.catalog.yamlerrors import DocumentError
from ebsif.packages.formats import condafile, lockfiles, pyproject, requirementstxt
from ebsif.packages.formats.wanted import KnownImage, RequirementsError, WantedPackages, WrongLinesError, collected
from ebsif.packages.lines import name_in, parsed

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FORMATS = "requirements.txt, pyproject.toml, environment.yml, uv.lock or pylock.toml"
BUILD_TOOLS = ("ninja", "packaging", "setuptools", "wheel")


def read_all(
    paths: Sequence[Path], image: Optional[KnownImage] = None, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> WantedPackages:
    """
    Return the requirements in several files together, as `pip install -r ONE -r OTHER` does; see `read`.

    A lock file is complete: pip wants a hash for all packages or for none.
    """
    for path in paths if len(paths) > 1 else ():
        if is_lock(path):
            raise RequirementsError(
                f"{path} locks everything that is installed, so it can't be combined with other "
                "files: lock all of them together, or give it alone"
            )
    impossible: list[str] = []
    pins: dict[str, tuple[Requirement, str, Path]] = {}

    def lines_in(path: Path) -> list[str]:
        wanted = read(path, image, extras, groups)
        impossible.extend(text for text in wanted.impossible if text not in impossible)
        check_pins(path, wanted.lines, pins)
        return wanted.lines

    return WantedPackages(list(dict.fromkeys(collected(paths, lines_in))), impossible)


def check_pins(path: Path, lines: Sequence[str], pins: dict[str, tuple["Requirement", str, Path]]) -> None:
    """
    Add the packages to `pins` of which lines of a file want one version, with the line and the file.

    Raise WrongLinesError with the other lines if two lines want different versions of a package, which pip refuses.
    """
    wrong: dict[str, str] = {}
    for line in lines:
        wanted = parsed(line)
        if not wanted or wanted.marker or not re.fullmatch(r"==[^*,]+", str(wanted.specifier)):
            continue
        name = normal_name(wanted.name)
        other, earlier, where = pins.setdefault(name, (wanted, line, path))
        if other.specifier != wanted.specifier:
            wrong[name] = f"{where} has '{earlier}', and {path} has '{line}': keep one of the lines"
    if wrong:
        raise WrongLinesError("\n".join(wrong.values()), [line for line in lines if name_in(line) not in wrong])


def is_lock(path: Path) -> bool:
    """Return whether a file is one of the lock files that `read_format` knows, by its name."""
    return path.name == "uv.lock" or lockfiles.is_pylock(path)


def read(
    path: Path, image: Optional[KnownImage] = None, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> WantedPackages:
    """Return the requirements in a file of any format, with extras and dependency groups of its project."""
    if path != requirementstxt.STANDARD_INPUT and not path.is_file():
        raise RequirementsError(f"{path} is not a file" if path.exists() else f"the file {path} does not exist")
    try:
        wanted = read_format(path, image or KnownImage(), extras, groups)
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        raise RequirementsError(f"{path} can't be read: {error}") from None
    except RecursionError:
        raise RequirementsError(f"{path} can't be read: nested too deeply") from None
    # a line of pip's could follow a line break in the value of another format
    wrong = next((line for line in wanted.lines if not line.replace("\t", " ").isprintable()), None)
    if wrong is not None:
        raise RequirementsError(f"{path}: the requirement '{escape(wrong)}' has a control character")
    if not wanted.lines:
        raise RequirementsError(
            f"{path} names no Python package that pip could install"
            + "".join(f"\n  {text}" for text in wanted.impossible)
        )
    return wanted


def read_format(path: Path, image: KnownImage, extras: Sequence[str], groups: Sequence[str]) -> WantedPackages:
    """Return the requirements in a file, whose name tells its format."""
    if lockfiles.is_pylock(path):
        return lockfiles.read_pylock(path, image, extras, groups)
    if path.suffix == ".toml":
        return pyproject.read(path, image, extras, groups)
    if path.name == "uv.lock":
        return lockfiles.read_uv(path, image, extras, groups)
    if path.suffix == ".lock" or path.name == "Pipfile":
        raise RequirementsError(
            f"{path} can't be read (only {FORMATS}): let the tool that wrote it export a requirements.txt with hashes, "
            "such as 'poetry export -o requirements.txt' or 'pipenv requirements --hash >requirements.txt'"
        )
    if path.suffix == ".json":
        raise RequirementsError(f"{path} can't be read (only {FORMATS}): if `ebsif lock` wrote it, use --from-lock")
    if extras or groups:
        raise RequirementsError(
            f"{path} has no extras or dependency groups: --extra and --group are for "
            "pyproject.toml, uv.lock and pylock.toml"
        )
    if path.suffix in (".yml", ".yaml"):
        return condafile.read(path, image)
    return WantedPackages(requirementstxt.lines_of(path, ()))


def split_into_stages(lines: list[str]) -> list[Stage]:
    """Return requirements as one stage; as several if packages are built against torch, which get their own."""
    options = [line for line in lines if line.startswith("-") and not re.match("-e|--editable", line)]
    asked = [line for line in lines if line not in options]
    needy = [line for line in asked if package_name(line) in NEEDS_TORCH]
    if not needy:
        return [Stage(name="requirements", requirements=list(lines))] if lines else []
    others = [line for line in asked if line not in needy]
    names = {package_name(line) for line in others}
    tools = [name for name in BUILD_TOOLS if name not in names]
    return [
        *([Stage(name="build tools", requirements=tools)] if tools else []),
        *([Stage(name="requirements", requirements=[*options, *others])] if others else []),
        Stage(name="built against torch", requirements=[*options, *needy], no_build_isolation=True),
    ]
