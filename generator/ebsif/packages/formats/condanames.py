"""The names that Conda packages have for pip, from a table in conda-names.txt, which says where it comes from."""

import re
from functools import lru_cache
from importlib import resources
from typing import Optional

from easybuild.easyblocks.generic.container.texts import normal_name

TABLE = "conda-names.txt"

# What the table doesn't know, or where the packages on PyPI have another name than their metadata
EXCEPTIONS = {
    # wheels on PyPI
    "cmake": "cmake", "faiss": "faiss-cpu", "faiss-cpu": "faiss-cpu", "msgpack-python": "msgpack", "ninja": "ninja",
    # several packages of Conda for one of pip
    "opencv": "opencv-python", "py-opencv": "opencv-python", "pytorch-gpu": "torch", "ray-core": "ray",
    "ray-default": "ray", "tensorflow-gpu": "tensorflow", "pillow-simd": "pillow",
    # only for Conda's solver
    "pytorch-cuda": None, "pytorch-mutex": None, "cpuonly": None,
}


def find(name: str) -> tuple[bool, Optional[str]]:
    """Return whether a Conda package (in lower case) is known, and its name for pip; None if it has none."""
    if name in EXCEPTIONS:
        return True, EXCEPTIONS[name]
    line = re.search(rf"^{re.escape(name)}(?: (\S+))?$", table(), re.MULTILINE)
    other = (line[1] or normal_name(name)) if line else None
    return bool(line), None if other == "-" else other


@lru_cache
def table() -> str:
    """Return the text of the table."""
    return (resources.files("ebsif.packages.formats") / TABLE).read_text(encoding="utf-8")
