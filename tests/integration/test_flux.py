"""Flux, the third scheduler: its batch scripts and ranks. The command `flux` is a stand-in, everything else is real."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import CONTAINER_FILES

EBSIF = Path(sys.prefix) / "bin" / "ebsif"
SITE = """name: mine
description: Mine
gpu: cuda
scheduler:
  kind: flux
  time: 1-02:03:04
  partitions:
    pbatch: {tasks: 2, cpus_per_task: 3, gpus: 2}
  default_partition: pbatch
"""
# Starts the tasks of `flux run` and prints the hosts of a batch job.
FLUX = """#!/bin/bash
case $1 in
    hostlist) echo 'node[3-4]' ;;
    run)
        shift
        while [[ $1 == -* ]]; do
            case $1 in
                --nodes=*) nodes=${1#*=} ;;
                --tasks-per-node=*) tasks=${1#*=} ;;
                -o) shift ;;
            esac
            shift
        done
        export FLUX_JOB_ID=fABC FLUX_JOB_SIZE=$((nodes * tasks)) FLUX_JOB_NNODES=$nodes
        for ((rank = 0; rank < FLUX_JOB_SIZE; rank++)); do
            FLUX_TASK_RANK=$rank FLUX_TASK_LOCAL_ID=$((rank % tasks)) "$@" || exit
        done ;;
    *) exit 64 ;;
esac
"""
SINGULARITY = '#!/bin/bash\nshift 2\nexec apptainer exec --bind "$RUNSCRIPTS:/runscripts" "$IMAGE" "/runscripts/$@"\n'
SHOW = "import os; print(*(os.environ.get(name, '-') for name in (" \
    "'RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')))\n"


@pytest.fixture
def job(tmp_path):
    """Return a function that runs `ebsif job` for a site with Flux."""
    (tmp_path / "sites/mine").mkdir(parents=True)
    (tmp_path / "sites/mine/site.yaml").write_text(SITE)

    def run(*arguments):
        return subprocess.run([EBSIF, "job", "--site", "mine", "--catalogue", tmp_path / "sites", *arguments],
                              capture_output=True, text=True, check=True, env={**os.environ, "EBSIF_QUIET": "1"}).stdout

    return run


def test_the_scripts(job):
    """House 2.6: Flux directives in one block, a time in Flux's format, one rank per GPU."""
    text = job("M/1", "--nodes", "2", "--account", "bank", "--", "train.py")
    # flux batch reads directives up to the first other line (RFC 36)
    (block,) = re.findall(r"(?:^#flux: .*\n)+", text, re.MULTILINE)
    assert block.split("\n")[:-1] == [f"#flux: --{option}" for option in (
        "job-name=train", "bank=bank", "queue=pbatch", "nodes=2", "nslots=2", "cores-per-slot=6", "gpus-per-slot=2",
        "time-limit=93784s", "output=train-{{id}}.out")]
    assert "flux run --nodes=2 --tasks-per-node=2 --exclusive -o exit-on-error" in text
    assert "SLURM" not in text
    assert "PBS" not in text
    assert "flux run --nodes=1 --tasks-per-node=1" in job("M/1", "--launcher", "torchrun", "--", "train.py")
    assert "#flux: --cores-per-slot=4\n" in job("--install", "mine.eb")
    subprocess.run(["shellcheck", "--exclude=SC1090,SC1091", "-"], input=text, text=True, check=True)


def test_the_ranks(job, tmp_path, base_image):
    """House 2.6: each rank knows its number and the master, which is the job's first host."""
    scripts = tmp_path / "runscripts"
    subprocess.run(["cp", "-r", CONTAINER_FILES / "runscripts", scripts], check=True)
    (scripts / "distributed.conf").write_text("scheduler flux\n")
    for name, text in (("flux", FLUX), ("singularity", SINGULARITY)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for path in scripts.iterdir():
        path.chmod(0o755)
    (tmp_path / "show.py").write_text(SHOW)
    text = job("M/1", "--nodes", "2", "--", "show.py")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "RUNSCRIPTS": str(scripts),
                   "IMAGE": str(base_image), "SIF": "x", "FLUX_ENCLOSING_ID": "fXYZ", "SLURM_JOB_ID": "1",
                   "SLURM_STEP_ID": "1", "SLURM_PROCID": "3", "BASH_FUNC_module%%": "() { :; }"}

    def run(script, **more):
        return subprocess.run(["bash", "-c", script], env={**environment, **more}, cwd=tmp_path, capture_output=True,
                              text=True, check=False, stdin=subprocess.DEVNULL)

    result = run(text)
    assert result.returncode == 0, result.stderr
    ranks = [line.split() for line in result.stdout.splitlines()]
    assert [rank[:5] for rank in ranks] == [
        [str(rank), "4", str(rank % 2), "2", "node3"] for rank in range(4)]
    assert len({rank[5] for rank in ranks}) == 1
    # unevenly filled nodes, without the variables of the batch script
    uneven = run("singularity exec x conda-python-distributed show.py", FLUX_TASK_RANK="0", FLUX_JOB_SIZE="3",
                 FLUX_JOB_NNODES="2", FLUX_TASK_LOCAL_ID="0")
    assert "3 tasks on 2 nodes: start the same number on each" in uneven.stderr
    lost = run("singularity exec x conda-python-distributed show.py", FLUX_TASK_RANK="0", FLUX_JOB_SIZE="2",
               FLUX_JOB_NNODES="2", FLUX_TASK_LOCAL_ID="0", FLUX_JOB_ID="fA")
    assert "Flux does not tell its tasks the nodes: set MASTER_ADDR in the batch script" in lost.stderr
