"""Read Conda's environment.yml: its pip section, and its Conda packages under the names that they have for pip."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.yamlfile import load
from ebsif.packages.formats import condanames
from ebsif.packages.formats.requirementstxt import lines_for
from ebsif.packages.formats.wanted import Image, RequirementsError, Wanted, texts

PACKAGE = re.compile(r"(?:\S*::)?(?P<name>[A-Za-z0-9_.-]+)\s*(?P<versions>.*)")
# one version, for all releases that begin with it or not, perhaps with a build
ONE_VERSION = re.compile(r"(?P<sign>={0,2})\s*(?P<version>[0-9][\w.!+]*?)(?P<any>\.?\*)?(?P<build>(?:\s*=\s*|\s+)\S+)?")


@dataclass
class Left:
    """Collects what is not installed, and why."""

    in_image: list[str] = field(default_factory=list)
    instead: list[str] = field(default_factory=list)
    no_python: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    no_versions: list[str] = field(default_factory=list)

    @property
    def messages(self) -> list[str]:
        """What the user should know, one message for each reason."""
        reasons = (
            ("the image has %s", self.in_image),
            ("the versions in the image are used: %s", self.instead),
            ("not Python packages, so only the image can provide them: %s", self.no_python),
            ("not in the table of Conda names; if pip knows them, add them to the pip section: %s", self.unknown),
            ("versions that pip can't express; add the packages to the pip section: %s", self.no_versions))
        return [text % ", ".join(names) for text, names in reasons if names]


def read(path: Path, image: Image) -> Wanted:
    """
    Return the requirements of a Conda environment, with messages on what is not installed.

    Parameters
    ----------
    path
        The file.
    image
        The image: its Python must fit; its packages are used in the version that they have.

    Raises
    ------
    RequirementsError
        If the file is invalid, or needs another Python.
    """
    content = load(path)
    if not isinstance(content, dict):
        raise RequirementsError(f"{path}: should be a mapping with 'dependencies'")
    left, conda, pip = Left(), [], []
    for item in texts(content.get("dependencies") or [], path, "dependencies", more=dict):
        if isinstance(item, dict):
            for line in texts(item.get("pip") or [], path, "pip"):
                pip += lines_for(line, str(path), path.parent, ())
            continue
        match = PACKAGE.fullmatch(item.strip())
        if not match:
            raise RequirementsError(f"{path}: '{item}' is not a valid Conda package")
        if match["name"].lower() == "python":
            check_python(path, item, match["versions"], image)
        else:
            conda += lines_of_package(item, match["name"], match["versions"], image, left)
    messages = [f"{path}: {text}" for text in left.messages]
    if content.get("variables"):
        messages.append(f"{path}: variables are not set: {', '.join(map(str, content['variables']))} (easyconfigs have "
                        "the parameter 'container_env')")
    return Wanted(conda + pip, messages)


def check_python(path, item, versions, image):
    """Raise RequirementsError if the image has another Python than an environment wants."""
    asked = [pip_versions(one) for one in versions.split("|")]
    if None in asked:
        raise RequirementsError(f"{path}: '{item}' is not a valid version of Python")
    if not any(map(image.has_python, asked)):
        raise RequirementsError(
            f"{path} asks for {item}, but the image has Python {image.python}: choose a container with that Python "
            f"(ebsif list --has 'python{asked[0]}'), or change or remove that line")


def lines_of_package(item, name, versions, image, left) -> list[str]:
    """
    Return the requirement for a Conda package (list of str), or note why there is none.

    Parameters
    ----------
    item : str
        The package as it is in the file.
    name, versions : str
        Its parts, in Conda's notation.
    image : Image
    left : Left
        Takes the reason.
    """
    name = name.lower()
    known, pip_name = condanames.find(name)
    if pip_name == "pip":
        return []
    asked = pip_versions(versions)
    found = next((one for one in (pip_name, normal_name(name)) if one in image.packages), None)
    if found:
        version = image.packages[found]
        text = f"{found} {version}" if found == name else f"{found} {version} ({name})"
        if asked is not None and is_match(version, asked):
            left.in_image.append(text)
        else:
            left.instead.append(f"{text}, not {item}")
    elif not known:
        left.unknown.append(item)
    elif not pip_name:
        left.no_python.append(name)
    elif asked is None:
        left.no_versions.append(item)
    else:
        return [pip_name + asked]
    return []


def pip_versions(versions: str) -> Optional[str]:
    """
    Return a version specification of Conda in pip's notation; None if pip has none.

    =1.26 is ==1.26.*; with a build (=1.26.4=py311_0), the version is exact and the build is left out.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = versions.strip()
    if text.startswith("["):
        inner = re.search(r"""\bversion\s*=\s*(?:'([^']*)'|"([^"]*)"|([^,\]]*))""", text)
        text = next(filter(None, inner.groups()), "") if inner else ""
    one = ONE_VERSION.fullmatch(text)
    if one:
        starts_with = one["any"] or one["sign"] == "=" and not one["build"]
        text = f"=={one['version']}{'.*' if starts_with else ''}"
    if re.fullmatch(r"={0,2}\s*\*", text):
        text = ""
    # Conda ignores .* where pip rejects it
    text = re.sub(r"([<>]=?\s*[0-9][\w.]*?)\.\*", r"\1", text).replace(" ", "")
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return None
    return text


def is_match(version, asked):
    """Return whether a version satisfies a specification of pip."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(asked).contains(version, prereleases=True)
