"""A site with a module for jobs, and jobs whose programs say when they have come to what is measured."""

import os
import sys
import time
from pathlib import Path

from parts import TOOLS
from support import Site


def site_with_module(folder):
    """Return a site in a directory with the module Example/1.0 of the example's image with PyTorch, in its place."""
    image = Path(os.environ["EBSIF_TEST_PYTORCH_IMAGE"])
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    site.eb(
        site.easyconfig(
            f"sources = ['{image}']\nimage = 'central'\nimage_dirs = ['{image.parent}']\n"
            "init = 'conda-injected'\nconda_env = 'pytorch'\n"
        )
    )
    return site


def seconds_of_job(site, cluster, script):
    """Return the seconds from the first command of a batch script until its program prints "stepped" and the time."""
    lines = (site.work / script).read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    (site.work / "job.sh").write_text("".join([*lines[:first], "echo started $EPOCHREALTIME\n", *lines[first:]]))
    number = site.bash("sbatch --parsable --output=job.out job.sh", **cluster.environment).stdout.strip()
    # sbatch --wait asks up to half a minute after the end
    while cluster.slurm("squeue", "--noheader", f"--jobs={number}").strip():
        time.sleep(0.5)
    printed = (site.work / "job.out").read_text()
    times = dict(line.split() for line in printed.splitlines() if line.startswith(("started ", "stepped ")))
    if "stepped" not in times:
        raise SystemExit(f"{script} has failed:\n{printed[-3000:]}")
    return float(times["stepped"]) - float(times["started"])
