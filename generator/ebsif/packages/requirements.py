"""Requirements of users: read from any of the formats that they bring, and turned into stages."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container.requirements import (
    NEEDED_WITHOUT_ISOLATION,
    NEEDS_TORCH,
    is_editable,
    package_name,
)
from easybuild.easyblocks.generic.container.values import normal_name
from easybuild.easyblocks.generic.container.written import escape

from ebsif.catalog.stages import Stage
from ebsif.catalog.yamlerrors import DocumentError
from ebsif.catalog.yamlfile import load
from ebsif.packages.formats import condafile, lockfiles, pyproject, requirementstxt
from ebsif.packages.lines import is_exact, name_in, parsed
from ebsif.packages.wanted import Choice, KnownImage, RequirementsError, WantedPackages

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FORMATS = "requirements.txt, pyproject.toml, environment.yml, uv.lock or pylock.toml"
YAML = (".yml", ".yaml")
# The name of the stage with what builds without isolation need.
BUILD_TOOLS = "build tools"


def read_all(
    paths: Sequence[Path], image: Optional[KnownImage] = None, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> WantedPackages:
    """
    Return the requirements in several files together, as `pip install -r ONE -r OTHER` does, for an image.

    Extras and dependency groups are those of their projects. A lock file is complete: pip wants a hash for all packages
    or for none.
    """
    locks = [path for path in paths if is_lock(path)]
    if locks and len(paths) > 1:
        combined = f"{locks[0]} locks everything that is installed, so it can't be combined with other files"
        return WantedPackages(wrong=[f"{combined}: lock all of them together, or give it alone"])
    found: dict[Path, WantedPackages] = {}
    for path in paths:
        try:
            found[path] = read(path, image or KnownImage(), Choice(extras, groups))
        except RequirementsError as error:
            found[path] = WantedPackages(wrong=[str(error)])
    pins = different_pins(found)
    lines = [line for wanted in found.values() for line in wanted.lines if name_in(line) not in pins]
    impossible = [text for wanted in found.values() for text in wanted.impossible]
    wrong = [text for wanted in found.values() for text in wanted.wrong]
    return WantedPackages(list(dict.fromkeys(lines)), list(dict.fromkeys(impossible)), [*wrong, *pins.values()])


def different_pins(found: Mapping[Path, WantedPackages]) -> dict[str, str]:
    """Return messages on packages of which lines want different versions, which pip refuses, by normalized name."""
    pins: dict[str, tuple[Requirement, str, Path]] = {}
    messages = {}
    for path, line in [(path, line) for path, wanted in found.items() for line in wanted.lines]:
        wanted = parsed(line)
        if not wanted or wanted.marker or not is_exact(wanted):
            continue
        name = normal_name(wanted.name)
        other, earlier, where = pins.setdefault(name, (wanted, line, path))
        if other.specifier != wanted.specifier:
            messages[name] = f"{where} has '{earlier}', and {path} has '{line}': keep one of the lines"
    return messages


def is_lock(path: Path) -> bool:
    """Return whether a file, by its name, is a lock file: uv.lock, pylock.toml or pylock.NAME.toml."""
    from packaging.pylock import is_valid_pylock_path

    return path.name == "uv.lock" or is_valid_pylock_path(path)


def read(path: Path, image: KnownImage, choice: Choice) -> WantedPackages:
    """Return the requirements in a file of any format, with what is chosen of its project; all messages name it."""
    if path != requirementstxt.STANDARD_INPUT and not path.is_file():
        raise RequirementsError(f"{path} is not a file" if path.exists() else f"the file {path} does not exist")
    check_format(path, choice)
    has_lines = path.suffix not in (".toml", *YAML) and not is_lock(path)
    try:
        wanted = requirementstxt.read(path) if has_lines else read_content(path, image, choice)
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        raise RequirementsError(f"{path} can't be read: {error}") from None
    except RecursionError:
        raise RequirementsError(f"{path} can't be read: nested too deeply") from None
    # a line of pip's could follow a line break in the value of another format
    hidden = next((line for line in wanted.lines if not line.replace("\t", " ").isprintable()), None)
    if hidden is not None:
        raise RequirementsError(f"{path}: the requirement '{escape(hidden)}' has a control character")
    if not wanted.lines and not wanted.wrong:
        raise RequirementsError(
            f"{path} names no Python package that pip could install"
            + "".join(f"\n  {text}" for text in wanted.impossible)
        )
    return wanted


def check_format(path: Path, choice: Choice) -> None:
    """Raise RequirementsError if a file, by its name, can't be read, or has no extras and dependency groups."""
    if (path.suffix == ".lock" and not is_lock(path)) or path.name == "Pipfile":
        raise RequirementsError(
            f"{path} can't be read (only {FORMATS}): let the tool that wrote it export a requirements.txt with hashes, "
            "such as 'poetry export -o requirements.txt' or 'pipenv requirements --hash >requirements.txt'"
        )
    if path.suffix == ".json":
        raise RequirementsError(f"{path} can't be read (only {FORMATS}): if `ebsif lock` wrote it, use --from-lock")
    if (choice.extras or choice.groups) and path.suffix != ".toml" and not is_lock(path):
        raise RequirementsError(
            f"{path} has no extras or dependency groups: --extra and --group are for "
            "pyproject.toml, uv.lock and pylock.toml"
        )


def read_content(path: Path, image: KnownImage, choice: Choice) -> WantedPackages:
    """Return the requirements in a file that has more than lines; only here, its path is put before messages."""
    is_locked = is_lock(path)
    beside = path.with_name("pyproject.toml")
    project = toml_in(beside) if is_locked and beside.is_file() else {}
    content = toml_in(path) if path.suffix == ".toml" else load(path) if path.suffix in YAML else {}
    try:
        if path.suffix in YAML:
            wanted = condafile.wanted_by(content, path.parent, image)
        elif not is_locked:
            wanted = pyproject.wanted_by(content, image, choice)
        elif path.name == "uv.lock":
            wanted = lockfiles.read_uv(path.parent, project, image, choice)
        else:
            wanted = lockfiles.wanted_by(content, path.parent, project, image, choice)
    except RequirementsError as error:
        raise RequirementsError(f"{path}: {error}") from None
    impossible = [*wanted.impossible, *choice.left_out(wanted.offered)]
    return WantedPackages(
        wanted.lines, [f"{path}: {text}" for text in impossible], [f"{path}: {text}" for text in wanted.wrong]
    )


def toml_in(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise RequirementsError if it is not valid TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:  # also a number with too many digits
        raise RequirementsError(f"{path} can't be read: {error}") from None


def split_into_stages(lines: list[str]) -> list[Stage]:
    """Return requirements as one stage; as several if packages are built against torch, which get their own."""
    options = [line for line in lines if line.startswith("-") and not is_editable(line)]
    asked = [line for line in lines if line not in options]
    needy = [line for line in asked if package_name(line) in NEEDS_TORCH]
    if not needy:
        return [Stage(name="requirements", requirements=list(lines))] if lines else []
    others = [line for line in asked if line not in needy]
    names = {package_name(line) for line in others}
    tools = [name for name in NEEDED_WITHOUT_ISOLATION if name not in names]
    return [
        *([Stage(name=BUILD_TOOLS, requirements=tools)] if tools else []),
        *([Stage(name="requirements", requirements=[*options, *others])] if others else []),
        Stage(name="built against torch", requirements=[*options, *needy], no_build_isolation=True),
    ]
