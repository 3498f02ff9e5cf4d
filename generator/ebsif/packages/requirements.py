"""Read the requirements of users, in any of the formats that they bring, and turn them into stages."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container.requirements import NEEDS_TORCH, package_name

from ebsif.catalogue.yamlerrors import DocumentError
from ebsif.packages.formats import condafile, pylock, pyproject, requirementstxt, uvlock
from ebsif.packages.formats.wanted import Image, RequirementsError, Wanted

FORMATS = "requirements.txt, pyproject.toml, environment.yml, uv.lock or pylock.toml"
BUILD_TOOLS = ("ninja", "packaging", "setuptools", "wheel")


def read(path: Path, image: Optional[Image] = None, extras: Sequence[str] = (), groups: Sequence[str] = ()) -> Wanted:
    """
    Return the requirements in a file.

    Parameters
    ----------
    path
        ``requirements.txt`` (and what it includes), ``pyproject.toml``, Conda's ``environment.yml``, ``uv.lock``, or
        ``pylock.toml``.
    image
        What is known about the image.
    extras, groups
        Names of extras and dependency groups to install too.

    Raises
    ------
    RequirementsError
        If the file can't be read, has no requirements, or can't be used with the image.
    """
    try:
        wanted = read_format(path, image or Image(), extras, groups)
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        raise RequirementsError(f"{path} can't be read: {error}") from None
    except RecursionError:
        raise RequirementsError(f"{path} can't be read: nested too deeply") from None
    if not wanted.lines:
        raise RequirementsError(f"{path} names no Python package that pip could install"
                                + "".join(f"\n  {text}" for text in wanted.impossible))
    return wanted


def read_format(path, image, extras, groups):
    """Return the requirements in a file, whose name tells its format (Wanted)."""
    if pylock.is_pylock(path):
        return pylock.read(path, image, extras, groups)
    if path.suffix == ".toml":
        return pyproject.read(path, image, extras, groups)
    if path.name == "uv.lock":
        return uvlock.read(path, image, extras, groups)
    if path.suffix == ".lock" or path.name == "Pipfile":
        raise RequirementsError(
            f"{path} can't be read (only {FORMATS}): let the tool that wrote it export a requirements.txt with hashes, "
            "such as 'poetry export -o requirements.txt' or 'pipenv requirements --hash >requirements.txt'")
    if path.suffix == ".json":
        raise RequirementsError(f"{path} can't be read (only {FORMATS}): if `ebsif lock` wrote it, use --from-lock")
    if extras or groups:
        raise RequirementsError(f"{path} has no extras or dependency groups: --extra and --group are for "
                                "pyproject.toml, uv.lock and pylock.toml")
    if path.suffix in (".yml", ".yaml"):
        return condafile.read(path, image)
    return Wanted(requirementstxt.lines_of(path, ()))


def split_into_stages(lines: list[str]) -> Union[list[str], list[dict]]:
    """
    Return requirements as stages, or unchanged if one stage is enough.

    Packages that are built against torch get their own stage, without build isolation, after the packages they need.
    """
    options = [line for line in lines if line.startswith("-") and not re.match("-e|--editable", line)]
    asked = [line for line in lines if line not in options]
    needy = [line for line in asked if package_name(line) in NEEDS_TORCH]
    if not needy:
        return list(lines)
    others = [line for line in asked if line not in needy]
    names = {package_name(line) for line in others}
    tools = [name for name in BUILD_TOOLS if name not in names]
    first = [{"name": "requirements", "requirements": [*options, *others]}] if others else []
    return [
        *([{"name": "build tools", "requirements": tools}] if tools else []), *first,
        {"name": "built against torch", "requirements": [*options, *needy], "no_build_isolation": True},
    ]


def path_of(text: str) -> Path:
    """Return the path of an existing file."""
    path = Path(text)
    if not path.is_file():
        raise RequirementsError(f"{path} is not a file" if path.exists() else f"the file {path} does not exist")
    return path
