"""Flux, the third scheduler: its batch scripts and ranks. The command `flux` is a stand-in, everything else is real."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import CONTAINER_FILES, attempt, write_program

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
# What Flux 0.88 does in a batch job: each task is a process group. If a `flux run` ends by exit-on-error or
# exit-timeout (30 seconds after the first task has finished; here at once if there is a file `waits`), its last output
# is lost. It is not if `flux job raise` ends it. Here, `flux job timeleft` waits until a task has finished.
FLUX = """#!/bin/bash
lose() {
    kill -KILL "${tasks[@]/#/-}"
    echo "flux-shell[0]: FATAL: task-exit: $1" >&2
    exit "$2"
}
case "$1 ${2:-}" in
    'hostlist local') echo 'node[3-4]' ;;
    'hostlist --count') echo 2 ;;
    'job timeleft') until [[ -e ended ]]; do sleep 0.1; done; echo 60 ;;
    'job last') echo 'ƒ9Tj' ;;
    'job kill') [[ $* == 'job kill --signal=USR1 ƒ9Tj' ]] && kill -USR1 $(<tasks) 2>/dev/null ;;
    'job raise')
        [[ $* == 'job raise --severity=0 --type=exec ƒ9Tj '* ]] && kill -TERM $(<tasks) 2>/dev/null
        echo "0.838s: job.exception ƒ9Tj type=exec severity=0 $6" >exceptions ;;
    'run '*)
        shift
        timeout=30s on_error=''
        while [[ $1 == -* ]]; do
            case $1 in
                --nodes=*) nodes=${1#*=} ;;
                --tasks-per-node=*) local=${1#*=} ;;
                -o)
                    case $2 in
                        exit-timeout=*) timeout=${2#*=} ;;
                        exit-on-error) on_error=1 ;;
                    esac
                    shift ;;
            esac
            shift
        done
        export FLUX_JOB_ID=ƒ9Tj FLUX_JOB_SIZE=$((nodes * local)) FLUX_JOB_NNODES=$nodes
        set -m
        for ((rank = 0; rank < FLUX_JOB_SIZE; rank++)); do
            FLUX_TASK_RANK=$rank FLUX_TASK_LOCAL_ID=$((rank % local)) "$@" >"output-$rank" 2>&1 &
            tasks+=("$!")
        done
        echo "${tasks[@]/#/-}" >tasks
        highest=0
        for ((ended = 1; ended <= FLUX_JOB_SIZE; ended++)); do
            status=0
            wait -n || status=$?
            touch ended
            ((status == 0)) || [[ -z $on_error ]] || lose 'exit-on-error is set' "$status"
            ((highest > status)) || highest=$status
            [[ $timeout == none || ! -e waits ]] || lose 'exit-timeout has expired' 1
        done
        cat output-*
        [[ ! -e exceptions ]] || cat exceptions >&2
        exit "$highest" ;;
    *) exit 64 ;;
esac
"""
SINGULARITY = """#!/bin/bash
shift 2
exec apptainer exec --bind "$RUNSCRIPTS:/runscripts,$RUNSCRIPTS/../module.conf:/share/ebsif/module.conf" "$IMAGE" \\
    "/runscripts/$@"
"""
SHOW = (
    "import os; print(*(os.environ.get(name, '-') for name in ("
    "'RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')))\n"
)


@pytest.fixture
def job(tmp_path):
    """Return a function that runs `ebsif job` for a site with Flux."""
    (tmp_path / "sites/mine").mkdir(parents=True)
    (tmp_path / "sites/mine/site.yaml").write_text(SITE)

    def run(*arguments, check=True):
        command = [EBSIF, "job", "--site", "mine", "--catalog", tmp_path / "sites", *arguments]
        environment = {**os.environ, "EBSIF_QUIET": "1"}
        result = subprocess.run(command, capture_output=True, text=True, check=check, env=environment)
        return result.stdout or result.stderr

    return run


def test_the_scripts(job):
    """The script has Flux directives in one block, a time in Flux's format, and one rank per GPU."""
    text = job("M/1", "--nodes", "2", "--account", "bank", "--", "train.py")
    # flux batch reads directives up to the first other line (RFC 36)
    (block,) = re.findall(r"(?:^#flux: .*\n)+", text, re.MULTILINE)
    options = "job-name=train bank=bank queue=pbatch nodes=2 nslots=2 cores-per-slot=6 gpus-per-slot=2"
    options += " time-limit=93784s output=train-{{id}}.out"
    assert block.split("\n")[:-1] == [f"#flux: --{option}" for option in options.split()]
    assert "flux run --nodes=2 --tasks-per-node=2 --exclusive -o exit-timeout=none -o cpu-affinity=per-task" in text
    # else the ranks would see the GPUs that the job has on its first node
    assert "gpu-affinity=off" not in text
    assert "SLURM" not in text
    assert "PBS" not in text
    assert "flux run --nodes=1 --tasks-per-node=1" in job("M/1", "--launcher", "torchrun", "--", "train.py")
    assert "#flux: --cores-per-slot=4\n" in job("--install", "mine.eb")
    subprocess.run(["shellcheck", "--exclude=SC1090,SC1091", "-"], input=text, text=True, check=True)


@pytest.mark.parametrize("option", ["--memory=4G", "--requeue"])
def test_what_flux_lacks(job, option):
    """An option that would have no effect is an error."""
    assert f"the site mine can't fulfil {option.split('=')[0]}: " in job(option, "M/1", "--", "a", check=False)


@pytest.fixture
def run(tmp_path, base_image):
    """Return a function that runs a batch script as Flux does, on two nodes."""
    scripts = tmp_path / "runscripts"
    subprocess.run(["cp", "-r", CONTAINER_FILES / "runscripts", scripts], check=True)
    (tmp_path / "module.conf").write_text("scheduler flux\n")
    for name, text in (("flux", FLUX), ("singularity", SINGULARITY)):
        write_program(tmp_path / name, text)
    for path in scripts.iterdir():
        path.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "RUNSCRIPTS": str(scripts)}
    environment |= {"IMAGE": str(base_image), "SIF": "x", "BASH_FUNC_module%%": "() { :; }"}
    environment |= {"FLUX_ENCLOSING_ID": "ƒXYZ", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "1", "SLURM_PROCID": "3"}

    def run(script, **more):
        return attempt(["bash", "-c", script], env={**environment, **more}, cwd=tmp_path)

    return run


@pytest.mark.nightly
def test_the_ranks(job, run, tmp_path):
    """Each rank knows its number and the master, which is the job's first host."""
    (tmp_path / "show.py").write_text(SHOW)
    text = job("M/1", "--nodes", "2", "--", "show.py")
    result = run(text)
    assert result.returncode == 0, result.stderr
    ranks = [line.split() for line in result.stdout.splitlines()]
    assert [rank[:5] for rank in ranks] == [[str(rank), "4", str(rank % 2), "2", "node3"] for rank in range(4)]
    assert len({rank[5] for rank in ranks}) == 1
    # unevenly filled nodes, without the variables of the batch script
    start = "singularity exec x conda-python-distributed show.py"
    of_task = {"FLUX_TASK_RANK": "0", "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": "0"}
    uneven = run(start, **of_task, FLUX_JOB_SIZE="3")
    assert "3 tasks on 2 nodes: start the same number on each" in uneven.stderr
    lost = run(start, **of_task, FLUX_JOB_SIZE="2", FLUX_JOB_ID="fA")
    assert "Flux does not tell its tasks the nodes: set MASTER_ADDR in the batch script" in lost.stderr


# Rank 0 has nothing left to do, rank 1 fails, the others wait for it.
FAILS = """
import os, signal, sys, time
from pathlib import Path

def ask(number, _):
    # the container's runtime passes on what it gets itself
    signal.signal(number, signal.SIG_IGN)
    print("rank", rank, "got", signal.Signals(number).name, flush=True)
    sys.exit()

rank = int(os.environ["RANK"])
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, ask)
Path(f"up-{rank}").touch()
while not all(Path(f"up-{other}").exists() for other in range(4)):
    time.sleep(0.05)
if rank == 0:
    sys.exit()
if rank == 1 and "fails" in sys.argv:
    # what the stand-in for Flux writes when rank 0 has finished
    while not Path("ended").exists():
        time.sleep(0.05)
    print("the reason", flush=True)
    sys.exit(7)
time.sleep(30)
"""


@pytest.mark.nightly
def test_a_rank_that_fails(job, run, tmp_path):
    """The log has what it has written, the others are asked to end, and the job ends with its status."""
    (tmp_path / "steps.py").write_text(FAILS)
    result = run(job("M/1", "--nodes", "2", "--", "steps.py", "fails"))
    assert result.returncode == 7, result.stderr
    assert sorted(result.stdout.splitlines()) == ["rank 2 got SIGTERM", "rank 3 got SIGTERM", "the reason"]
    assert "task 1 failed with status 7" in result.stderr


@pytest.mark.nightly
def test_a_rank_that_finishes_early(job, run, tmp_path):
    """Flux doesn't end the others after 30 seconds. The signal comes when Flux says, and it reaches the program."""
    (tmp_path / "steps.py").write_text(FAILS)
    (tmp_path / "waits").touch()
    result = run(job("M/1", "--nodes", "2", "--signal", "60", "--", "steps.py"))
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} got SIGUSR1" for rank in (1, 2, 3)]
