"""
The start of a distributed run, with four ranks on two nodes and a real Slurm: from srun to the first all-reduce, and
from the start of the batch script to the first step of a training.
"""

from measuring import in_turn, rows
from slurm import Cluster
from slurm_jobs import seconds_of_job, site_with_module

FIRST = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == 4
dist.destroy_process_group()
"""

STEP = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(16, 8)).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    print("stepped", time.time(), flush=True)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
"""

# The same without our script: each rank determines its number itself, in as few lines as possible.
BY_HAND = """
import os
os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"],
                  LOCAL_RANK=os.environ["SLURM_LOCALID"], MASTER_ADDR="nid001001", MASTER_PORT="29511")
"""

BATCH_SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2
{init}
module load Example/1.0
srun singularity exec $SIF python by_hand.py
"""


def measure(folder):
    """Measure both ways in turn on the same cluster."""
    site = site_with_module(folder)
    cluster = Cluster()
    try:
        cluster.start()
        return all_reduce(site, cluster) + first_step(site, cluster)
    finally:
        cluster.stop()


def all_reduce(site, cluster):
    """Measure from srun to the first all-reduce."""
    (site.work / "first.py").write_text(FIRST)
    (site.work / "by_hand.py").write_text(BY_HAND + FIRST)

    def srun(command):
        script = f"""
            module load Example/1.0
            start=$EPOCHREALTIME
            timeout 120 srun -N2 -n4 --ntasks-per-node=2 singularity exec $SIF {command} || exit 1
            end=$EPOCHREALTIME
            echo $((${{end/./}} - ${{start/./}}))"""
        return int(site.bash(script, **cluster.environment).stdout.split()[-1]) / 1e6

    times = in_turn(
        {
            "python, by hand": lambda: srun("python by_hand.py"),
            "conda-python-distributed": lambda: srun("conda-python-distributed first.py"),
        },
        runs=15,
    )
    return rows("4 ranks, srun to all-reduce", times, "conda-python-distributed", {"python, by hand": ("ratio", 1.05)})


def first_step(site, cluster):
    """Measure from the first command of the batch script to the first step of a training."""
    (site.work / "step.py").write_text(STEP)
    (site.work / "by_hand.py").write_text(BY_HAND + STEP)
    site.bash("ebsif job Example/1.0 --partition wide --nodes 2 --tasks-per-node 2 -o ours.sh -- step.py")
    (site.work / "theirs.sh").write_text(BATCH_SCRIPT.format(init=f"{site.tool.init}\nmodule use {site.modules}"))

    times = in_turn(
        {
            "python, by hand": lambda: seconds_of_job(site, cluster, "theirs.sh"),
            "ebsif job": lambda: seconds_of_job(site, cluster, "ours.sh"),
        },
        runs=7,
    )
    return rows("4 ranks, job start to first step", times, "ebsif job", {"python, by hand": None})
