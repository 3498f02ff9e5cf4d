"""The Python packages of software that people, file names, recipes and Conda call by another name."""

# By normalized name.
OTHER_NAMES = {
    "flash-attention": "flash-attn",
    "flashattention": "flash-attn",
    "opencv": "opencv-python",
    "pytorch": "torch",
    "ray-core": "ray",
}

# Packages of which an image has only one, for a kind of hardware.
VARIANTS = {"tensorflow": ["tensorflow-rocm", "tensorflow-cpu"]}


def packages_of(software: str) -> list[str]:
    """Return the names that the Python package of a software (normalized name) may have, the most likely first."""
    package = OTHER_NAMES.get(software, software)
    return [package, *VARIANTS.get(package, [])]
