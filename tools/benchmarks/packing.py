"""make-squashfs with 20,000 files of Python packages, compared with gzip on one processor, as in use today."""

import itertools
import os
import shutil
import sysconfig
from pathlib import Path

from measuring import in_turn, rows, run
from support import CONTAINER_FILES

FILES = 20_000


def measure(folder):
    """Pack the same directory twice."""
    root = folder / "installation"
    shutil.copytree(CONTAINER_FILES, root)
    software = root / "user-software"
    fill(software)
    squashfs = root / "user-software.squashfs"
    theirs = folder / "theirs.squashfs"

    def ours():
        squashfs.unlink(missing_ok=True)
        run([root / "bin/make-squashfs"], env={**os.environ, "SIF": os.environ["EBSIF_TEST_BASE_IMAGE"]})

    def gzip():
        theirs.unlink(missing_ok=True)
        run(["mksquashfs", software, theirs, "-no-progress", "-processors", "1"])

    times = in_turn({"mksquashfs, one processor": gzip, "make-squashfs": ours}, runs=3)
    sizes = {"mksquashfs, one processor": theirs.stat().st_size, "make-squashfs": squashfs.stat().st_size}
    return rows(
        f"packing {FILES} files",
        times,
        "make-squashfs",
        {"mksquashfs, one processor": ("ratio", 0.08)},
        {name: f"{size / 1e6:.0f} MB" for name, size in sizes.items()},
    )


def fill(software):
    """Copy files of Python packages until there are enough."""
    packages = [path for path in Path(sysconfig.get_paths()["purelib"]).rglob("*") if path.is_file()]
    number = 0
    for turn in itertools.count():
        for path in packages:
            if number == FILES:
                return
            number += 1
            target = software / f"copy-{turn}" / path.relative_to(sysconfig.get_paths()["purelib"])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
