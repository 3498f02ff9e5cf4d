"""Launchers that start ranks themselves: torchrun, accelerate, mpiexec."""

import json
import re

import pytest
from slurm import NODES
from training import MODULE, met, shown, with_reports

# What ranks of the site "bound" report: rank, local rank, node, CPUs.
BOUND = [(str(rank), str(rank % 2), NODES[rank // 2], str(1 - rank % 2)) for rank in range(4)]


def reported(output):
    """Return rank, local rank, node and CPUs of all reports by four ranks of torchrun, two on each node."""
    pattern = r"^rank (\S+) of 4, local rank (\S+) of 2 on (\S+) \(torchrun\): CPUs (\S+), "
    return sorted(re.findall(pattern, output, re.MULTILINE))


# four ranks that import PyTorch take half a minute
@pytest.mark.parametrize("program", ["show.py", pytest.param("all_reduce.py", marks=pytest.mark.nightly)])
def test_torchrun_starts_the_ranks_of_each_node(training, program):
    """
    S002-64, T-08, T-14: srun starts torchrun once per node, which starts the ranks there.

    Only the ranks report, each with its node and the CPUs to which it is bound.
    """
    script = training.run(
        f"ebsif job {MODULE} --site bound --catalog sites --nodes 2 --launcher torchrun -- {program}"
    ).stdout
    script = with_reports(script)
    status, output = training.batch("torchrun", script)
    assert status == 0, output
    if program == "all_reduce.py":
        assert re.findall("^sum .*", output, re.MULTILINE) == ["sum 10.0 of 4"] * 4
    else:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURMD_NODENAME")
        assert [tuple(one[name] for name in names) for one in shown(output)] == [
            (str(rank), "4", str(rank % 2), "2", NODES[rank // 2]) for rank in range(4)
        ]
        assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in shown(output)}) == 1
    assert reported(output) == BOUND
    assert len(re.findall("^rank ", output, re.MULTILINE)) == 4


# accelerate and what it imports, as far as the image lacks it
ACCELERATE = """
    accelerate==1.15.0 psutil packaging pyyaml huggingface_hub<1 safetensors requests tqdm urllib3 idna
    charset-normalizer certifi
"""

# What accelerate has made of the ranks, and what each rank may run on.
ACCELERATED = """
import json, os, sys
from accelerate import Accelerator

state = Accelerator().state
found = [state.process_index, state.num_processes, state.local_process_index, state.device.type,
         sorted(os.sched_getaffinity(0)), os.environ["SLURMD_NODENAME"]]
sys.stdout.write(json.dumps(found) + "\\n")
"""


@pytest.mark.nightly
def test_accelerate_on_two_nodes(training):
    """T-08, T-14: accelerate starts the ranks of two nodes, each bound to its CPUs; the report names each of them."""
    folder = training.site.work
    (folder / "accelerated.py").write_text(ACCELERATED)
    command = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11"]
    training.site.run([*command, "--dest", folder / "accelerate-wheels", *ACCELERATE.split()])
    training.run("singularity exec $SIF pip install -q --no-deps --no-index accelerate-wheels/*.whl")
    script = training.run(
        f"ebsif job {MODULE} --site bound --catalog sites --nodes 2 --launcher accelerate -- accelerated.py"
    ).stdout
    status, output = training.batch("accelerate", with_reports(script))
    assert status == 0, output
    # warnings of PyTorch begin with a bracket, too
    found = sorted(json.loads(line) for line in re.findall(r"^\[\d.*\]$", output, re.MULTILINE))
    assert found == [[rank, 4, rank % 2, "cpu", [1 - rank % 2], NODES[rank // 2]] for rank in range(4)], output
    assert reported(output) == BOUND


def test_two_runs_of_mpiexec_without_a_scheduler(training):
    """S002-63, F-08: two runs of Hydra at once on this machine, outside jobs, use different ports."""
    start = "timeout 60 mpiexec.hydra -n 2 singularity exec $SIF conda-python-distributed meet.py"
    assert met(training.run(f"{start} one two & {start} two one && wait $!").stdout) == ["one-0 one-1", "two-0 two-1"]


IN_A_JOB = (
    "salloc -Q -N2 --ntasks-per-node=2 timeout 60 mpiexec.hydra -n 4 -ppn 2 "
    "singularity exec $SIF conda-python-distributed show.py"
)


def test_mpiexec_in_a_slurm_job(training):
    """F-08: Hydra starts its processes with srun, whose variables the ranks inherit: Hydra's numbers count."""
    ranks = shown(training.run(f"export MASTER_ADDR={NODES[0]}; {IN_A_JOB}").stdout)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "SLURMD_NODENAME")
    assert [tuple(one[name] for name in names) for one in ranks] == [
        (str(rank), "4", str(rank % 2), "2", NODES[0], NODES[rank // 2]) for rank in range(4)
    ]
    assert len({one["MASTER_PORT"] for one in ranks}) == 1


def test_what_mpiexec_does_not_tell_is_an_error(training):
    """F-08: every rank says what to set if the node of rank 0 or the launcher is unknown; nothing is guessed."""
    result = training.run(IN_A_JOB, check=False)
    assert result.returncode != 0
    said = r"rank (\d): can't determine the first host for MASTER_ADDR: PMI has no list of nodes: set"
    assert sorted(re.findall(said, result.stderr)) == ["0", "1", "2", "3"]
    result = training.run(IN_A_JOB.replace("singularity exec", "singularity exec --pid"), check=False)
    said = r"rank \d: two launchers have set variables \(Slurm: rank \d of 2; PMI: rank \d of 4\), and the process that"
    assert len(re.findall(said, result.stderr)) == 4


def test_srun_in_mpiexec(training):
    """F-08: srun inside of Hydra, whose variables are inherited: Slurm's numbers count."""
    output = training.run(
        "salloc -Q -N1 -n2 mpiexec.hydra -n 1 srun -n2 --overlap singularity exec $SIF conda-python-distributed show.py"
    ).stdout
    assert [(one["RANK"], one["WORLD_SIZE"]) for one in shown(output)] == [("0", "2"), ("1", "2")]


def test_torchrun_through_its_wrapper(training):
    """G-01: torchrun, a program of the image, starts its processes through the wrapper, with user software."""
    (training.site.work / "see.py").write_text(
        "import os, sys, byhand\nsys.stdout.write(f'rank {os.environ[\"RANK\"]}: {byhand.__file__}\\n')\n"
    )
    output = training.run("torchrun --standalone --nproc-per-node 2 see.py").stdout
    assert sorted(output.splitlines()) == [
        f"rank {rank}: /user-software/venv/training/lib/python3.11/site-packages/byhand.py" for rank in range(2)
    ]
