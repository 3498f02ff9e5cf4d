"""The names that Conda packages have for pip, of which one may be like a wrong name."""

import difflib
import gzip
import re
from functools import lru_cache
from importlib import resources
from typing import Optional

from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.packagenames import OTHER_NAMES, meant_by

# The names that Conda packages have for pip; the file says where they come from.
TABLE = "conda-names.txt.gz"

# What the table doesn't know, or where the packages on PyPI have another name than their metadata
EXCEPTIONS = {
    # wheels on PyPI
    "cmake": "cmake",
    "faiss": "faiss-cpu",
    "faiss-cpu": "faiss-cpu",
    "msgpack-python": "msgpack",
    "ninja": "ninja",
    # several packages of Conda for one of pip
    "py-opencv": "opencv-python",
    "pytorch-gpu": "torch",
    "ray-default": "ray",
    "tensorflow-gpu": "tensorflow",
    "pillow-simd": "pillow",
    # only for Conda's solver
    "pytorch-cuda": None,
    "pytorch-mutex": None,
    "cpuonly": None,
}


def pip_name_of(name: str) -> Optional[str]:
    """Return the name that pip has for a Conda package (in lower case); None if none is known."""
    if name in EXCEPTIONS or name in OTHER_NAMES:
        return EXCEPTIONS.get(name) or OTHER_NAMES.get(name)
    line = re.search(rf"^{re.escape(name)}(?: (\S+))?$", table(), re.MULTILINE)
    return (line[1] or normal_name(name)) if line and line[1] != "-" else None


def similar_to(name: str) -> Optional[str]:
    """Return the name for pip of the package that is meant by a wrong one, or most like it; None if it is known."""
    meant = meant_by(normal_name(name))
    if meant:
        return meant
    lines = (line.split() for line in table().splitlines() if not line.startswith("#") and not line.endswith(" -"))
    known = {words[0]: words[-1] for words in lines}
    if normal_name(name) in {*known, *map(normal_name, known.values())}:
        return None
    closest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
    return known[closest[0]] if closest else None


@lru_cache
def table() -> str:
    """Return the text of the table."""
    return gzip.decompress((resources.files("ebsif.packages") / TABLE).read_bytes()).decode()
