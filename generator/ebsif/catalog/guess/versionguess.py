"""Guess the version of the software in an image, from its labels, its packages and the file name."""

import re
from typing import Optional

from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog import packagenames
from ebsif.images.inspection import Inspection, versions_by_name

# Labels that may have the version of the software.
VERSION_LABELS = ("org.opencontainers.image.version", "org.label-schema.version", "version")

# In a file name, a version after one of these belongs to other software.
OTHER_SOFTWARE = re.compile(
    r"(?:py|python|cp|conda|rocm|cuda|cu|cudnn|ubuntu|debian|rocky|sles|sp|gcc|glibc|mpich|ompi|openmpi|libfabric)v?",
    re.IGNORECASE,
)

# A version: two or more numbers, and an optional suffix.
VERSION = r"\d+(?:\.\d+)+(?:\.?(?:a|b|rc|post|dev)\d+)?"

# A version in a label, which may be followed by anything.
LABEL = re.compile(
    r"v?(\d+(?:\.\d+)+(?:[.-]?(?:a|b|alpha|beta|rc|post|dev)\.?\d+)?)(?:\+[\w.]+)?(?![\w.])(.*)", re.DOTALL
)


def packages_of(found: Inspection) -> dict[str, str]:
    """Return the versions of the Python packages in an image by normalized name."""
    packages = found.python.packages if found.python else {}
    return {normal_name(name): version for name, version in packages.items()}


def packages_named(name: str, package: Optional[str] = None) -> list[str]:
    """Return the possible normalized names of the Python package of a software."""
    name = normal_name(name)
    return [normal_name(package)] if package else packagenames.packages_of(name)


def guess_version(
    found: Inspection, names: list[str], file_name: str, software: str
) -> tuple[Optional[str], Optional[str]]:
    """Return the likely version of the software in an image, and what to review about it."""
    if found.release:
        return found.release, None
    packages = {**versions_by_name({"pypi": found.listed.get("pypi", {})}), **packages_of(found)}
    said = versions_in_labels(found)
    said += [(f"the package {name}", packages[name].split("+")[0], None) for name in names if name in packages]
    said += [("the file name", version, None) for version in versions_in(file_name, software)]
    if not said:
        return None, None
    (source, version, doubt), *others = said
    other = [f"{text} in {one}" for one, text, _ in others if not is_same(text, version)]
    if other:
        return version, f"from {source}, but {', '.join(other)}"
    return version, doubt or ("from the file name" if source == "the file name" else None)


def versions_in_labels(found: Inspection) -> list[tuple[str, str, Optional[str]]]:
    """Return the versions in labels of an image: source, version, what to review or None."""
    versions = []
    for name in VERSION_LABELS:
        match = LABEL.fullmatch(found.labels.get(name, "").strip())
        # an image without labels of its own inherits those of its base image
        if match and not re.search(rf"\b{re.escape(match.group(1))}\b", found.system):
            version, rest = match.groups()
            doubt = f"the label {name} is '{found.labels[name]}'" if rest else None
            versions.append((f"the label {name}", version, doubt))
    return versions


def versions_in(file_name: str, software: str) -> list[str]:
    """Return possible versions of a software in a file name, the most likely first."""
    found, before = [], ""
    for word in re.split(r"[-_]", file_name.rsplit(".", 1)[0]):
        match = re.fullmatch(rf"([A-Za-z]*?)v?({VERSION})(?:\+.*)?", word)
        what = (match and match.group(1)) or before
        if match and not OTHER_SOFTWARE.fullmatch(what):
            found.append((not what or normal_name(what) not in normal_name(software), match.group(2)))
        before = "" if match else word
    return [version for _, version in sorted(found, key=lambda one: one[0])]


def is_same(one: str, other: str) -> bool:
    """Return whether two versions agree in the parts that both have."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
