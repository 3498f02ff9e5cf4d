"""Read the requirements of users (requirements.txt, pyproject.toml or environment.yml), and turn them into stages."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.yamlerrors import DocumentError
from ebsif.catalogue.yamlfile import load
from ebsif.errors import EbsifError

try:
    import tomllib
except ImportError:  # Python 3.9 and 3.10
    import tomli as tomllib

# Conda packages that pip knows under another name; None: not a Python package.
PIP_NAMES = {"pytorch": "torch", "pytorch-cuda": None, "opencv": "opencv-python", "py-opencv": "opencv-python",
             "tensorflow-gpu": "tensorflow", "pillow-simd": "pillow", "cudatoolkit": None, "cudnn": None, "mpich": None,
             "openmpi": None, "gcc": None, "ffmpeg": None, "git": None, "matplotlib-base": "matplotlib",
             "python-graphviz": "graphviz"}

# A line that pip takes for a file or directory: because of its beginning, a slash, or its suffix.
LOCAL = re.compile(
    r"(?P<path>\.[^\s;\[]*|[^/\s;\[@:]+/[^\s;\[@:]*|[^\s;\[@:/]+\.(?:whl|zip|tar\.\w+))(?P<rest>[\[;\s].*)?")
# Options whose value may be a file or directory.
WITH_PATH = re.compile(r"(?P<option>-c|--constraint|-f|--find-links)(?:\s*=\s*|\s+|(?<=-[cf]))(?P<path>[^/\s]\S*)")

BUILD_TOOLS = ("ninja", "packaging", "setuptools", "wheel")


class RequirementsError(EbsifError):
    """A file with requirements can't be used; the message says why, where, and what to do."""


@dataclass
class Wanted:
    """The lines of a requirements.txt, and messages on those parts of a file that can't be expressed by them."""

    lines: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)


def read(path: Path, inside: Optional[dict[str, str]] = None) -> Wanted:
    """
    Return the requirements in a file.

    Parameters
    ----------
    path
        ``requirements.txt`` (and what it includes), ``pyproject.toml``, or Conda's ``environment.yml``.
    inside
        Known packages of the image: versions by normalized name.

    Raises
    ------
    RequirementsError
        If the file can't be read, or has no requirements.
    """
    try:
        if path.suffix == ".toml":
            wanted = read_pyproject(path)
        elif path.suffix in (".yml", ".yaml"):
            wanted = read_environment(path, inside or {})
        else:
            wanted = Wanted(lines_of(path, ()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, DocumentError) as error:
        raise RequirementsError(f"{path} can't be read: {error}") from None
    except RecursionError:
        raise RequirementsError(f"{path} can't be read: nested too deeply") from None
    if not wanted.lines:
        raise RequirementsError(f"{path} names no Python package that pip could install"
                                + "".join(f"\n  {text}" for text in wanted.impossible))
    return wanted


def lines_of(path: Path, outer: tuple[Path, ...]) -> list[str]:
    """Return the requirements in a requirements.txt, with those of the files that it includes."""
    if path.resolve() in outer:
        raise RequirementsError(f"{path} includes itself")
    lines = []
    for number, line in logical_lines(path.read_text(encoding="utf-8-sig")):
        lines += lines_for(line, f"{path}:{number}", path.parent, (*outer, path.resolve()))
    return lines


def logical_lines(text):
    """Yield (number, line) for the lines of a requirements.txt; a backslash at the end joins a line with the next."""
    begun, number = "", 1
    for index, line in enumerate(text.splitlines(), 1):
        if not begun:
            number = index
        begun += line.lstrip() if begun else line
        if line.endswith("\\"):
            begun = begun[:-1].rstrip() + " "
            continue
        yield number, begun
        begun = ""
    if begun:
        yield number, begun


def lines_for(line, where, folder, outer):
    """
    Return the requirements (list of str) that a line stands for, with absolute paths, so that they work anywhere.

    Parameters
    ----------
    line : str
        A line of a file.
    where : str
        File and line, for messages.
    folder : Path
        Directory that relative paths start from.
    outer : tuple of Path
        The files that are being read.

    Raises
    ------
    RequirementsError
        If a file is missing, or the module would depend on a directory that may disappear.
    """
    bare = re.sub(r"(^|\s)#.*", "", line).strip()
    if not bare:
        return []
    included = re.match(r"(?:-r|--requirement)[ =]*(\S+)", bare)
    if included:
        return lines_of(resolve(folder / included.group(1), where), outer)
    if re.match(r"(?:-e|--editable)[ =]+(?!\w+\+\w+://)", bare):
        raise RequirementsError(f"{where}: '{bare}' would break the module as soon as the directory is removed: "
                                "install a copy (without -e), or use make-venv during development")
    option, local = WITH_PATH.fullmatch(bare), LOCAL.fullmatch(bare)
    if option and "://" not in option.group("path"):
        return [f"{option.group('option')} {resolve(folder / option.group('path'), where)}"]
    if local and not option and not bare.startswith("-"):
        path = resolve(folder / local.group("path"), where)
        # a path in a requirement can't contain a blank
        return [(path.as_uri() if " " in str(path) else str(path)) + (local.group("rest") or "")]
    return [bare]


def resolve(path, where):
    """Return the absolute path (Path) of what a line names; raise RequirementsError if it does not exist."""
    if not path.exists():
        raise RequirementsError(f"{where}: {path} can't be read: it does not exist")
    return path.resolve()


def read_pyproject(path):
    """Return the requirements in a pyproject.toml (Wanted)."""
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    if not isinstance(project, dict):
        raise RequirementsError(f"{path}: project should be a table")
    if "dependencies" in texts(project.get("dynamic", []), path, "dynamic"):
        raise RequirementsError(f"{path}: its dependencies are dynamic (computed by the build): list them in a "
                                "requirements.txt")
    return Wanted(texts(project.get("dependencies", []), path, "dependencies"))


def read_environment(path, inside):
    """Return the pip part of an environment.yml (Wanted), with a message on each Conda package that is left out."""
    content = load(path)
    wanted = Wanted()
    dependencies = content.get("dependencies") if isinstance(content, dict) else None
    for item in texts(dependencies or [], path, "dependencies", more=dict):
        if isinstance(item, dict):
            for line in texts(item.get("pip") or [], path, "pip"):
                wanted.lines += lines_for(line, str(path), path.parent, ())
            continue
        match = re.match(r"(?:\S*::)?([A-Za-z0-9_.-]+)\s*(.*)", item)
        if not match:
            raise RequirementsError(f"{path}: '{item}' is not a valid Conda package")
        text = about_conda_package(*match.groups(), inside)
        if text:
            wanted.impossible.append(f"Conda package {item}: {text}")
    return wanted


def about_conda_package(name, versions, inside):
    """
    Return what the user should know about a Conda package that is left out (str), or None.

    Parameters
    ----------
    name, versions : str
        In Conda's notation: ``numpy`` and ``=1.26``, ``<2`` or nothing.
    inside : dict
        Known packages of the image.
    """
    name = normal_name(name)
    if name == "pip":
        return None
    pip_name = PIP_NAMES.get(name, name)
    found = inside.get(pip_name) or inside.get(name)
    if found:
        return None if is_match(found, versions) else f"using {pip_name} {found} of the image instead"
    if name == "python":
        return "using the Python of the image instead" if versions else None
    if not pip_name:
        return "ignored: pip can't install it, so the image must contain it"
    line = pip_name + pip_versions(versions)
    if pip_name != name:
        return f"ignored: unless the image contains it, add {line} to the pip section"
    return f"ignored: if it is a Python package that the image lacks, add {line} to the pip section"


def pip_versions(versions):
    """Convert a version specification from Conda's notation to pip's (str): =1.26 is ==1.26.*; a build is dropped."""
    exact = re.fullmatch(r"=?\s*([0-9][\w.]*)(?:[= ].*)?", versions)
    return f"=={exact.group(1).rstrip('.*')}.*" if exact else versions.replace(" ", "")


def is_match(version, versions):
    """Return whether a version matches a specification in Conda's notation."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(pip_versions(versions)).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def texts(value, path, name, more=str):
    """Return a value if it is a list of strings (or of `more`); raise RequirementsError otherwise."""
    if not isinstance(value, list) or not all(isinstance(one, (str, more)) for one in value):
        raise RequirementsError(f"{path}: {name} should be a list of requirements, each a string")
    return value


def split_into_stages(lines: list[str]) -> Union[list[str], list[dict]]:
    """
    Return requirements as stages, or unchanged if one stage is enough.

    Packages that are built against torch get their own stage, without build isolation, after the packages they need.
    """
    from easybuild.easyblocks.generic.container.lint import NEEDS_TORCH, package_name

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
        raise RequirementsError(f"the file {path} does not exist")
    return path
