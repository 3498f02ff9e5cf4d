"""What a person wants to have installed: requirements.txt, pyproject.toml or environment.yml, as stages."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ebsif.document import DocumentError, load
from ebsif.errors import EbsifError

try:
    import tomllib
except ImportError:  # Python 3.9 and 3.10
    import tomli as tomllib

# Conda packages whose name with pip is another one.
PIP_NAMES = {"pytorch": "torch", "pytorch-cuda": None, "opencv": "opencv-python", "py-opencv": "opencv-python",
             "tensorflow-gpu": "tensorflow", "pillow-simd": "pillow", "cudatoolkit": None, "cudnn": None, "mpich": None,
             "openmpi": None, "gcc": None, "cmake": "cmake", "matplotlib-base": "matplotlib",
             "python-graphviz": "graphviz"}

BUILD_TOOLS = ("ninja", "packaging", "setuptools", "wheel")


class RequirementsError(EbsifError):
    """A file with requirements can't be used; the message says where and what to do."""


@dataclass
class Wanted:
    """Lines of a requirements.txt, and what can't be had with pip (texts for a person)."""

    lines: list = field(default_factory=list)
    impossible: list = field(default_factory=list)


def read(path):
    """
    Return what a file asks for (Wanted).

    Parameters
    ----------
    path : Path
        ``requirements.txt`` (and what it includes), ``pyproject.toml``, or ``environment.yml`` of Conda.

    Raises
    ------
    RequirementsError
        If it can't be read, or asks for nothing.
    """
    try:
        if path.suffix == ".toml":
            wanted = of_project(path)
        elif path.suffix in (".yml", ".yaml"):
            wanted = of_conda(path)
        else:
            wanted = Wanted(lines_of(path, ()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, DocumentError) as error:
        raise RequirementsError(f"{path} can't be read: {error}") from None
    except RecursionError:
        raise RequirementsError(f"{path} can't be read: nested too deeply") from None
    if not wanted.lines:
        raise RequirementsError(f"{path} asks for no Python package that pip could install"
                                + "".join(f"\n  {text}" for text in wanted.impossible))
    return wanted


def lines_of(path, outer):
    """Return the lines of a requirements.txt that ask for something; files that it includes take its place."""
    if path.resolve() in outer:
        raise RequirementsError(f"{path} includes itself")
    lines = []
    text = re.sub(r"\s*\\\n\s*", " ", path.read_text(encoding="utf-8"))
    for line in text.splitlines():
        bare = re.sub(r"(^|\s)#.*", "", line).strip()
        if not bare:
            continue
        included = re.match(r"(?:-r|--requirement)[ =]*(\S+)", bare)
        if included:
            lines += lines_of(path.parent / included.group(1), (*outer, path.resolve()))
        elif re.match(r"(\./|\.\./|-e\s+\.)", bare):
            raise RequirementsError(f"{path}: '{bare}' is a path beside the file, which EasyBuild does not see: write "
                                    "the full path, or the address of a repository")
        else:
            lines.append(bare)
    return lines


def of_project(path):
    """Return what a pyproject.toml asks for."""
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    if not isinstance(project, dict):
        raise RequirementsError(f"{path}: project should be a table")
    if "dependencies" in texts(project.get("dynamic", []), path, "dynamic"):
        raise RequirementsError(f"{path}: the dependencies are made when the package is built: name them in a "
                                "requirements.txt")
    return Wanted(texts(project.get("dependencies", []), path, "dependencies"))


def of_conda(path):
    """Return what an environment.yml asks for with pip; its Conda packages are named, with what pip calls them."""
    content = load(path)
    wanted = Wanted()
    dependencies = content.get("dependencies") if isinstance(content, dict) else None
    for item in texts(dependencies or [], path, "dependencies", more=dict):
        if isinstance(item, dict):
            wanted.lines += texts(item.get("pip") or [], path, "pip")
            continue
        match = re.match(r"(?:\S*::)?([A-Za-z0-9_.-]+)", item)
        if not match:
            raise RequirementsError(f"{path}: '{item}' can't be the name of a Conda package")
        name = match.group(1)
        if name in ("python", "pip"):
            continue
        pip_name = PIP_NAMES.get(name, name)
        hint = f"; its name there is probably {pip_name}" if pip_name else ", it has to be in the image"
        wanted.impossible.append(f"Conda package {item}: not possible with pip{hint}")
    return wanted


def texts(value, path, name, more=str):
    """Return a list of texts (or of `more`); raise RequirementsError if it is none."""
    if not isinstance(value, list) or not all(isinstance(one, (str, more)) for one in value):
        raise RequirementsError(f"{path}: {name} should be a list of requirements, each of them text")
    return value


def stages(lines):
    """
    Return requirements as stages (list of dict), or as they are (list of str) if one stage is enough.

    Packages that are built against torch get a stage of their own, without isolation, after what they need.
    """
    from easybuild.easyblocks.generic.containerlint import NEEDS_TORCH, package_name

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


def path_of(text):
    """Return the path of a file that is there (Path)."""
    path = Path(text)
    if not path.is_file():
        raise RequirementsError(f"there is no file {path}")
    return path
