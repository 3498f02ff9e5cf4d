"""Find out which version of a software is in an image: from labels, packages and the name of the file."""

import re

from easybuild.easyblocks.generic.container.texts import normal_name

# Python packages of software with another name.
PACKAGES = {"pytorch": ["torch"], "tensorflow": ["tensorflow", "tensorflow-rocm", "tensorflow-cpu"]}

# Labels of an image with the version of the software in it.
VERSION_LABELS = ("org.opencontainers.image.version", "org.label-schema.version", "version")

# In a file name, a version after one of these is not that of the software.
OTHER_SOFTWARE = re.compile(
    r"(?:py|python|cp|conda|rocm|cuda|cu|cudnn|ubuntu|debian|rocky|sles|sp|gcc|glibc|mpich|ompi|openmpi|libfabric)v?",
    re.IGNORECASE)

# A version: two numbers or more, and what may follow.
VERSION = r"\d+(?:\.\d+)+(?:\.?(?:a|b|rc|post|dev)\d+)?"

# A version in a label, where people write all kinds of things after it.
LABEL = re.compile(
    r"v?(\d+(?:\.\d+)+(?:[.-]?(?:a|b|alpha|beta|rc|post|dev)\.?\d+)?)(?:\+[\w.]+)?(?![\w.])(.*)", re.DOTALL)


def packages_of(found):
    """Return the versions of the Python packages of an image by normalized name (dict)."""
    return {normal_name(name): version for name, version in (found.python or {}).get("packages", {}).items()}


def packages_named(name, package=None):
    """Return the normalized names (list of str) that the Python package of a software may have."""
    name = normal_name(name)
    return [normal_name(package)] if package else PACKAGES.get(name, [name])


def guess_version(found, names, file_name, software):
    """
    Return the version of the software in an image, and what to review about it.

    Parameters
    ----------
    found : Inspection
        The image.
    names : list of str
        Names that its Python package may have.
    file_name, software : str
        Name of the image's file, and of the software.

    Returns
    -------
    tuple
        Version (str) and what to review (str); None for each that there is not.
    """
    packages = packages_of(found)
    said = versions_in_labels(found)
    said += [(f"the package {name}", packages[name].split("+")[0], None) for name in names if name in packages]
    said += [("the file name", version, None) for version in versions_in(file_name, software)]
    if not said:
        return None, None
    (source, version, doubt), *others = said
    other = [f"{one} says {text}" for one, text, _ in others if not is_same(text, version)]
    if other:
        return version, f"{source} says so, {', '.join(other)}"
    return version, doubt or ("from the file name" if source == "the file name" else None)


def versions_in_labels(found):
    """Return the versions in labels of an image (list of tuple): where it is, the version, what to review or None."""
    versions = []
    for name in VERSION_LABELS:
        match = LABEL.fullmatch(found.labels.get(name, "").strip())
        # an image without labels of its own has those of the system that it was made from
        if match and not re.search(rf"\b{re.escape(match.group(1))}\b", found.system):
            version, rest = match.groups()
            doubt = f"the label {name} says '{found.labels[name]}'" if rest else None
            versions.append((f"the label {name}", version, doubt))
    return versions


def versions_in(file_name, software):
    """Return what may be the version of a software in a file name (list of str), the likeliest first."""
    found, before = [], ""
    for word in re.split(r"[-_]", file_name.rsplit(".", 1)[0]):
        match = re.fullmatch(rf"([A-Za-z]*?)v?({VERSION})(?:\+.*)?", word)
        what = (match and match.group(1)) or before
        if match and not OTHER_SOFTWARE.fullmatch(what):
            found.append((not what or normal_name(what) not in normal_name(software), match.group(2)))
        before = "" if match else word
    return [version for _, version in sorted(found, key=lambda one: one[0])]


def is_same(one, other):
    """Return whether two versions may be the same, if one of them has more parts."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
