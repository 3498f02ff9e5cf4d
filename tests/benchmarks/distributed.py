"""The start of a distributed run: four ranks on two nodes with a real Slurm, from srun to the first all-reduce."""

import os
import sys
from pathlib import Path

from measuring import in_turn, rows
from parts import TOOLS
from slurm import Cluster
from support import Site

FIRST = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == 4
dist.destroy_process_group()
"""

# The same without our script: each rank determines its number itself, in as few lines as possible.
BY_HAND = """
import os
os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"],
                  LOCAL_RANK=os.environ["SLURM_LOCALID"], MASTER_ADDR="nid001001", MASTER_PORT="29511")
""" + FIRST


def measure(folder):
    """Measure both in turn on the same cluster."""
    image = Path(os.environ["EBSIF_TEST_PYTORCH_IMAGE"])
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    site.eb(site.easyconfig(f"sources = ['{image}']\nimage = 'central'\nimage_dirs = ['{image.parent}']\n"
                            "init = 'conda-injected'\nconda_env = 'pytorch'\n"))
    (site.work / "first.py").write_text(FIRST)
    (site.work / "by_hand.py").write_text(BY_HAND)
    cluster = Cluster()
    try:
        cluster.start()

        def srun(command):
            script = f"""
                module load Example/1.0
                start=$EPOCHREALTIME
                timeout 120 srun -N2 -n4 --ntasks-per-node=2 singularity exec $SIF {command} || exit 1
                end=$EPOCHREALTIME
                echo $((${{end/./}} - ${{start/./}}))"""
            return int(site.bash(script, **cluster.environment).stdout.split()[-1]) / 1e6

        times = in_turn({"python, by hand": lambda: srun("python by_hand.py"),
                         "conda-python-distributed": lambda: srun("conda-python-distributed first.py")}, runs=15)
    finally:
        cluster.stop()
    return rows("4 ranks, srun to all-reduce", times, "conda-python-distributed", {"python, by hand": ("ratio", 1.05)})
