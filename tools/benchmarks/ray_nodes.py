"""The start of Ray on two nodes of a real Slurm, from the first command of the batch script to a program on both."""

import shutil

from measuring import in_turn, rows
from slurm import Cluster
from slurm_jobs import seconds_of_job, site_with_module

RAY = "ray==2.60.0"

# Both ways count until a program can use both nodes.
PROGRAM = """
import time, ray
ray.init(logging_level="error")
while len([one for one in ray.nodes() if one["Alive"]]) < 2:
    time.sleep(0.05)
print("stepped", time.time(), flush=True)
"""

# As few lines as possible, without a secret; the second node waits for the first one, as people's scripts do.
BY_HAND = """#!/bin/bash
#SBATCH --partition=wide --nodes=2 --ntasks-per-node=1
{init}
module load Example/1.0
export RAY_USAGE_STATS_ENABLED=0 RAY_ADDRESS=$(hostname -i):6399
one="srun --overlap --nodes=1 --ntasks=1"
folder=$(mktemp -d /tmp/by-hand.XXXX)
$one --nodelist=nid001001 singularity exec $SIF \\
    ray start --head --block --port=6399 --num-cpus=1 --include-dashboard=false --temp-dir=$folder &
until (: <>/dev/tcp/${{RAY_ADDRESS/:/\\/}}) 2>/dev/null; do sleep 0.1; done
$one --nodelist=nid001002 singularity exec $SIF ray start --block --address=$RAY_ADDRESS --num-cpus=1 &
singularity exec $SIF python program.py
kill %2 %1
wait
rm -r $folder
"""


def measure(folder):
    """Measure both ways in turn on the same cluster."""
    site = site_with_module(folder)
    wheels = ["--only-binary=:all:", "--python-version=3.11", "--dest", site.work / "wheels"]
    site.run(["pip", "download", "--quiet", *wheels, RAY])
    site.bash(f"module load Example/1.0 && singularity exec $SIF pip install -q --no-index -f wheels {RAY}")
    shutil.rmtree(site.work / "wheels")
    (site.work / "program.py").write_text(PROGRAM)
    site.bash(
        "ebsif job Example/1.0 --partition wide --nodes 2 --cpus-per-task 1 --launcher ray -o ours.sh -- program.py"
    )
    (site.work / "theirs.sh").write_text(BY_HAND.format(init=f"{site.tool.init}\nmodule use {site.modules}"))
    cluster = Cluster()
    try:
        cluster.start()
        times = in_turn(
            {
                "ray start, by hand": lambda: seconds_of_job(site, cluster, "theirs.sh"),
                "ebsif job": lambda: seconds_of_job(site, cluster, "ours.sh"),
            },
            runs=5,
        )
    finally:
        cluster.stop()
    fastest = {name: f"fastest: {min(seconds):.1f} s" for name, seconds in times.items()}
    return rows(
        "Ray on 2 nodes, job start to program", times, "ebsif job", {"ray start, by hand": ("ratio", 1.2)}, fastest
    )
