"""Read Conda's environment.yml: its pip section, and its Conda packages under the names that they have for pip."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.packages.condanames import pip_name_of
from ebsif.packages.formats import requirementstxt
from ebsif.packages.wanted import KnownImage, RequirementsError, WantedPackages, texts

PACKAGE = re.compile(r"(?:\S*::)?(?P<name>[A-Za-z0-9_.-]+)\s*(?P<versions>.*)")
# one version, perhaps with a build: =1.26 is ==1.26.*, but =1.26.4=py311_0 and ==1.26 are exact
ONE_VERSION = re.compile(r"(?P<sign>={0,2})\s*(?P<version>\d[\w.!+]*?)(?P<any>\.?\*)?(?P<build>(?:\s*=\s*|\s+)\S+)?")

# Why packages are not installed, or not in the version of the file.
IN_IMAGE = "the versions in the image are used: %s"
NOT_FOR_PIP = (
    "not known as Python packages; if pip finds them, add them to the pip section, and if the image's "
    "distribution has them, add them with --apt: %s"
)
NO_VERSIONS = "versions that pip can't express; add the packages to the pip section: %s"


def wanted_by(content: Any, folder: Path, image: KnownImage) -> WantedPackages:
    """
    Return the requirements of a Conda environment that the image lacks, with messages on what is not installed.

    Relative paths in it start from `folder`.
    """
    if not isinstance(content, dict):
        raise RequirementsError("should be a mapping with 'dependencies'")
    left: dict[str, list[str]] = defaultdict(list)
    conda, pip = [], []
    for item in texts(content.get("dependencies") or [], "dependencies", more=dict):
        if isinstance(item, dict):
            pip += texts(item.get("pip") or [], "pip")
            continue
        package = PACKAGE.fullmatch(item.strip())
        if not package:
            raise RequirementsError(f"'{item}' is not a valid Conda package")
        name, versions = package["name"].lower(), pip_versions(package["versions"])
        if name == "python":
            check_python(item, versions, image)
        elif name != "pip":
            line, reason, text = as_requirement(item, name, versions, image)
            conda += [line] if line else []
            if reason:
                left[reason].append(text)
    wanted = requirementstxt.wanted_by([("pip", line) for line in pip], folder)
    wanted.lines[:0] = conda
    wanted.impossible += [
        reason % ", ".join(left[reason]) for reason in (IN_IMAGE, NOT_FOR_PIP, NO_VERSIONS) if reason in left
    ]
    if content.get("variables"):
        names = content["variables"] if isinstance(content["variables"], dict) else ["of another form"]
        wanted.impossible.append(
            f"variables are not set: {', '.join(map(str, names))} (easyconfigs have the parameter 'container_env')"
        )
    return wanted


def check_python(item: str, versions: Optional[str], image: KnownImage) -> None:
    """Raise RequirementsError if the image has another Python than an environment wants."""
    if versions is None:
        raise RequirementsError(f"'{item}' is not a valid version of Python for pip: write one version")
    if not image.has_python(versions):
        raise RequirementsError(
            f"asks for {item}, but the image has Python {image.python}: choose a container with that Python "
            f"(ebsif list --has 'python{versions}'), or change or remove that line"
        )


def as_requirement(item: str, name: str, versions: Optional[str], image: KnownImage) -> tuple[str, str, str]:
    """Return the requirement for a Conda package, or why there is none, with how the message names it."""
    from packaging.specifiers import SpecifierSet

    pip_name = pip_name_of(name)
    there = next((one for one in (pip_name, normal_name(name)) if one in image.packages), None)
    if there:
        same = versions is not None and SpecifierSet(versions).contains(image.packages[there], prereleases=True)
        return "", IN_IMAGE, f"{there} {image.packages[there]}" + ("" if same else f" (not {item})")
    if not pip_name:
        return "", NOT_FOR_PIP, item
    return ("", NO_VERSIONS, item) if versions is None else (pip_name + versions, "", "")


def pip_versions(versions: str) -> Optional[str]:
    """Return a version specification of Conda in pip's notation; None if pip has none."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = versions.strip()
    one = ONE_VERSION.fullmatch(text)
    if one:
        starts_with = one["any"] or (one["sign"] == "=" and not one["build"])
        text = f"=={one['version']}{'.*' if starts_with else ''}"
    elif text in ("*", "=*"):
        return ""
    # Conda ignores .* where pip rejects it
    text = re.sub(r"([<>]=?\s*[0-9][\w.]*?)\.\*", r"\1", text).replace(" ", "")
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return None
    return text
