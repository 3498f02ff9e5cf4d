"""
The time a wrapper takes before the runtime starts, beside starting a program that does nothing.

Usage: python tests/benchmarks/wrapper.py [CALLS]

The runtime is replaced by a program that ends at once, so what is measured is the wrapper alone. Contenders take turns
in one run; medians and their difference are printed. Not part of `make test`.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTAINER_FILES = Path(__file__).resolve().parents[2] / "easyblocks" / "container_files"


def measure(command, environment):
    """Return the seconds one call takes."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True)
    return time.perf_counter() - start


def main(calls):
    """Print a line for each contender."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "installation"
        shutil.copytree(CONTAINER_FILES, root)
        shutil.copy(root / "share/ebsif/wrapper", root / "bin/python")
        tools = Path(folder) / "tools"
        tools.mkdir()
        (tools / "apptainer").symlink_to("/bin/true")
        (root / "image.sif").touch()
        environment = {
            "PATH": f"{root}/bin:{tools}:{os.environ['PATH']}", "SIF": str(root / "image.sif"),
            "CONTAINERROOT": str(root), "SINGULARITYENV_WITH_CONDA": "true", "CONTAINER_GPU": "rocm",
        }
        contenders = {"/bin/true": ["/bin/true"], "wrapper": [str(root / "bin/python"), "-V"]}
        times = {name: [] for name in contenders}
        for _ in range(calls):
            for name, command in contenders.items():
                times[name].append(measure(command, environment))
    medians = {name: statistics.median(values) * 1000 for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:10} {median:6.2f} ms")
    print(f"{'difference':10} {medians['wrapper'] - medians['/bin/true']:6.2f} ms (median of {calls})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
