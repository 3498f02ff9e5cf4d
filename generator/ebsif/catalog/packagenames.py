"""The Python packages of software that people, file names, recipes and Conda call by another name."""

from typing import Optional

# By normalized name.
OTHER_NAMES = {
    "flash-attention": "flash-attn",
    "flashattention": "flash-attn",
    "opencv": "opencv-python",
    "pytorch": "torch",
    "ray-core": "ray",
}

# What people type who import it by that name.
OF_MODULES = {
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "pil": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}

# Packages that only fail with the name that is meant.
ONLY_SAY_SO = ("pytorch", "sklearn")

# Packages of which an image has only one, for a kind of hardware.
VARIANTS = {"tensorflow": ["tensorflow-rocm", "tensorflow-cpu"]}


def packages_of(software: str) -> list[str]:
    """Return the names that the Python package of a software (normalized name) may have, the most likely first."""
    package = OTHER_NAMES.get(software, software)
    return [package, *VARIANTS.get(package, [])]


def meant_by(name: str) -> Optional[str]:
    """Return the name of the Python package that somebody means by another normalized name; None if none is known."""
    return OTHER_NAMES.get(name) or OF_MODULES.get(name)
