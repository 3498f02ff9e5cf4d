"""Names of packages: what people, file names, recipes and Conda call otherwise, and how texts write them."""

from typing import Optional

from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS

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

# How texts write them, by normalized name.
USUAL_NAMES = {
    **{kind: one.title for kind, one in GPU_KINDS.items()},
    "deepspeed": "DeepSpeed",
    "tensorflow": "TensorFlow",
    "vllm": "vLLM",
}

# What decides which container to choose, and how it is written, unless the site says it.
DEFAULT_BADGES = {
    **{name: USUAL_NAMES.get(name, name) for name in ("torch", "tensorflow", "jax", *GPU_KINDS)},
    "python": "Python",
    "vllm": USUAL_NAMES["vllm"],
    "flash-attn": "flash-attention",
}


def packages_of(software: str) -> list[str]:
    """Return the names that the Python package of a software (normalized name) may have, the most likely first."""
    package = OTHER_NAMES.get(software, software)
    return [package, *VARIANTS.get(package, [])]


def meant_by(name: str) -> Optional[str]:
    """Return the name of the Python package that somebody means by another normalized name; None if none is known."""
    return OTHER_NAMES.get(name) or OF_MODULES.get(name)
