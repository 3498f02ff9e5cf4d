"""What a person wants to have installed: requirements.txt, pyproject.toml or environment.yml, as stages."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.yamlerrors import DocumentError
from ebsif.catalogue.yamlfile import load
from ebsif.errors import EbsifError

try:
    import tomllib
except ImportError:  # Python 3.9 and 3.10
    import tomli as tomllib

# Conda packages whose name with pip is another one; None: no Python package.
PIP_NAMES = {"pytorch": "torch", "pytorch-cuda": None, "opencv": "opencv-python", "py-opencv": "opencv-python",
             "tensorflow-gpu": "tensorflow", "pillow-simd": "pillow", "cudatoolkit": None, "cudnn": None, "mpich": None,
             "openmpi": None, "gcc": None, "ffmpeg": None, "git": None, "matplotlib-base": "matplotlib",
             "python-graphviz": "graphviz"}

# A line that pip takes for a file or directory: by how it begins, by a slash, or by the end of its name.
LOCAL = re.compile(
    r"(?P<path>\.[^\s;\[]*|[^/\s;\[@:]+/[^\s;\[@:]*|[^\s;\[@:/]+\.(?:whl|zip|tar\.\w+))(?P<rest>[\[;\s].*)?")
# Options of a line whose value may be a file or directory.
WITH_PATH = re.compile(r"(?P<option>-c|--constraint|-f|--find-links)(?:\s*=\s*|\s+|(?<=-[cf]))(?P<path>[^/\s]\S*)")

BUILD_TOOLS = ("ninja", "packaging", "setuptools", "wheel")


class RequirementsError(EbsifError):
    """A file with requirements can't be used; the message says where and what to do."""


@dataclass
class Wanted:
    """Lines of a requirements.txt, and what of a file is not among them (texts for a person)."""

    lines: list = field(default_factory=list)
    impossible: list = field(default_factory=list)


def read(path, inside=None):
    """
    Return what a file asks for (Wanted).

    Parameters
    ----------
    path : Path
        ``requirements.txt`` (and what it includes), ``pyproject.toml``, or ``environment.yml`` of Conda.
    inside : dict, optional
        What is in the image: versions by normal name, as far as it's known.

    Raises
    ------
    RequirementsError
        If it can't be read, or asks for nothing.
    """
    try:
        if path.suffix == ".toml":
            wanted = of_project(path)
        elif path.suffix in (".yml", ".yaml"):
            wanted = of_conda(path, inside or {})
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
    for number, line in logical_lines(path.read_text(encoding="utf-8-sig")):
        lines += lines_for(line, f"{path}:{number}", path.parent, (*outer, path.resolve()))
    return lines


def logical_lines(text):
    """Yield (number, line) for the lines of a requirements.txt; what is continued after a backslash is one line."""
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
    Return the lines (list of str) that take the place of a line, wherever they are read: paths are full ones.

    Parameters
    ----------
    line : str
        As it is in a file.
    where : str
        File and line, for messages.
    folder : Path
        What its paths are relative to.
    outer : tuple of Path
        The files that are being read.

    Raises
    ------
    RequirementsError
        If what it names is not there, or it would not work for good.
    """
    bare = re.sub(r"(^|\s)#.*", "", line).strip()
    if not bare:
        return []
    included = re.match(r"(?:-r|--requirement)[ =]*(\S+)", bare)
    if included:
        return lines_of(there(folder / included.group(1), where), outer)
    if re.match(r"(?:-e|--editable)[ =]+(?!\w+\+\w+://)", bare):
        raise RequirementsError(f"{where}: '{bare}' would leave the module without the package when the directory is "
                                "gone: install a copy (without -e), or use make-venv while you work on it")
    option, local = WITH_PATH.fullmatch(bare), LOCAL.fullmatch(bare)
    if option and "://" not in option.group("path"):
        return [f"{option.group('option')} {there(folder / option.group('path'), where)}"]
    if local and not option and not bare.startswith("-"):
        path = there(folder / local.group("path"), where)
        # a requirement line can't have a blank in a path
        return [(path.as_uri() if " " in str(path) else str(path)) + (local.group("rest") or "")]
    return [bare]


def there(path, where):
    """Return the full path of what a line of a file names (Path); raise RequirementsError if it's not there."""
    if not path.exists():
        raise RequirementsError(f"{where}: {path} can't be read: it is not there")
    return path.resolve()


def of_project(path):
    """Return what a pyproject.toml asks for."""
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    if not isinstance(project, dict):
        raise RequirementsError(f"{path}: project should be a table")
    if "dependencies" in texts(project.get("dynamic", []), path, "dynamic"):
        raise RequirementsError(f"{path}: the dependencies are made when the package is built: name them in a "
                                "requirements.txt")
    return Wanted(texts(project.get("dependencies", []), path, "dependencies"))


def of_conda(path, inside):
    """Return what an environment.yml asks for with pip; its Conda packages are named, with what pip calls them."""
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
            raise RequirementsError(f"{path}: '{item}' can't be the name of a Conda package")
        text = about_conda_package(*match.groups(), inside)
        if text:
            wanted.impossible.append(f"Conda package {item}: {text}")
    return wanted


def about_conda_package(name, versions, inside):
    """
    Return what becomes of a Conda package (str), None if nothing needs to be said.

    Parameters
    ----------
    name, versions : str
        As Conda writes them: ``numpy`` and ``=1.26``, ``<2`` or nothing.
    inside : dict
        What is in the image.
    """
    name = normal_name(name)
    if name == "pip":
        return None
    pip_name = PIP_NAMES.get(name, name)
    found = inside.get(pip_name) or inside.get(name)
    if found:
        return None if is_meant(found, versions) else f"the image has {pip_name} {found}, which is used"
    if name == "python":
        return "the Python of the image is used" if versions else None
    if not pip_name:
        return "not for pip: it has to be in the image"
    line = pip_name + pip_versions(versions)
    if pip_name != name:
        return f"not for pip: add {line} to the part for pip, unless the image has it"
    return f"not for pip: if it's a Python package that the image lacks, add {line} to the part for pip"


def pip_versions(versions):
    """Return versions as pip writes them (str) from how Conda does: =1.26 is ==1.26.*, and there may be a build."""
    exact = re.fullmatch(r"=?\s*([0-9][\w.]*)(?:[= ].*)?", versions)
    return f"=={exact.group(1).rstrip('.*')}.*" if exact else versions.replace(" ", "")


def is_meant(version, versions):
    """Tell whether a version is one of those that Conda's text means."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(pip_versions(versions)).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


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


def path_of(text):
    """Return the path of a file that is there (Path)."""
    path = Path(text)
    if not path.is_file():
        raise RequirementsError(f"there is no file {path}")
    return path
