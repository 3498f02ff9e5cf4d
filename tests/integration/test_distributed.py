"""Distributed runs with real launchers: the run script on a Slurm cluster of two nodes, and under mpiexec."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.caches import Caches
from ebsif.catalogue import site as profiles
from parts import TOOLS
from slurm import NODES
from support import CHECKOUT, CONTAINER_FILES, Site

TRAIN = CHECKOUT / "docs/examples/train.py"
MODULE = "Training/1.0"

# Prints a rank's environment as JSON on one line, with one write because ranks share the output.
SHOW = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURMD_NODENAME",
         "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
         "CUDA_VISIBLE_DEVICES", "NCCL_NET", "NCCL_DEBUG", "PET_NNODES", "PET_NODE_RANK",
         "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST")
found = {name: os.environ[name] for name in names if name in os.environ}
found["cache"] = os.path.isdir(os.environ.get("MIOPEN_USER_DB_PATH", ""))
sys.stdout.write(json.dumps(found) + "\\n")
"""

# Ranks without PyTorch, which takes seconds to start: rank 0 listens on MASTER_PORT and prints who connected.
# Further names are those of other runs: it keeps the port until these have met as well.
MEET = """
import os, signal, socket, sys, time

signal.alarm(120)
rank, name, *others = int(os.environ["RANK"]), *sys.argv[1:]
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", port)) as server:
        came = [server.accept()[0] for _ in range(1, int(os.environ["WORLD_SIZE"]))]
        ranks = sorted([f"{name}-0", *(one.recv(100).decode() for one in came)])
        open(f"met-{name}", "w").close()
        while not all(os.path.exists(f"met-{other}") for other in others):
            time.sleep(0.05)
    sys.stdout.write(f"met: {' '.join(ranks)}\\n")
else:
    while True:
        try:
            with socket.create_connection((os.environ["MASTER_ADDR"], port)) as first:
                first.sendall(f"{name}-{rank}".encode())
                first.recv(1)  # until the first one leaves
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
"""

# The same with PyTorch and gloo.
ALL_REDUCE = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
# in one piece: ranks share the output
sys.stdout.write(f"sum {value.item()} of {dist.get_world_size()}\\n")
dist.destroy_process_group()
"""


# The second CPU is for the first rank of a node.
BOUND_SITE = """
name: bound
description: Bound
scheduler:
  default_partition: small
  partitions:
    small: {tasks: 2, exclusive: true, cpu_masks: ['0x2', '0x1']}
"""


class Training:
    """A module with PyTorch at a site, for runs on the cluster."""

    def __init__(self, site, cluster):
        self.site = site
        self.cluster = cluster

    def run(self, script, check=True, **environment):
        """Run a bash script with the module loaded."""
        # PATH lets the nodes find the runtime, but not the tests' programs
        return self.site.bash(
            f"module load {MODULE} || exit 99\n{script}", check, **self.cluster.environment, **environment)

    def batch(self, name, script, *options):
        """Submit a batch script, wait until it ends, return (exit status, output)."""
        path = self.site.work / f"{name}.sh"
        path.write_text(script)
        output = self.site.work / f"{name}.out"
        result = self.site.bash(
            f"sbatch --wait --output={output} {' '.join(options)} {path}", check=False, **self.cluster.environment)
        return result.returncode, output.read_text() if output.exists() else result.stderr


@pytest.fixture(scope="module")
def training(tmp_path_factory, cluster, wheels, pytorch_image):
    """The module, installed with eb from the image with PyTorch, which is not copied."""
    image = pytorch_image
    site = Site(tmp_path_factory.mktemp("training"), TOOLS["Lmod-Lua"](), Path(sys.prefix))
    easyconfig = site.easyconfig(
        f"sources = ['{image}']\nimage = 'central'\nimage_dirs = ['{image.parent}']\ninit = 'conda-injected'\n"
        "conda_env = 'pytorch'\nwrappers = ['torchrun']\n", name="Training")
    site.eb(easyconfig)
    (site.work / "train.py").write_text(TRAIN.read_text())
    (site.work / "sites/bound").mkdir(parents=True)
    (site.work / "sites/bound/site.yaml").write_text(BOUND_SITE)
    for name, text in (("show", SHOW), ("meet", MEET), ("all_reduce", ALL_REDUCE)):
        (site.work / f"{name}.py").write_text(text)
    site.bash(f"module load {MODULE} && singularity exec -B {wheels} $SIF pip install -q --no-index -f {wheels} byhand")
    return Training(site, cluster)


def trained(output, ranks):
    """Return whether the documentation's training script has succeeded."""
    return re.search(rf"^{ranks} ranks, equal weights: True, loss [\d.]+ -> [\d.]+$", output, re.MULTILINE)


def met(output):
    """Return the ranks that have met in each run, in the order of runs."""
    return sorted(re.findall("^met: (.*)$", output, re.MULTILINE))


def shown(output):
    """Return what ranks have printed, by rank."""
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda one: int(one["RANK"]))


# --- Slurm


def test_four_ranks_on_two_nodes_train(training):
    """S002-69 (in part: gloo), S002-64: four ranks on two nodes; the loss decreases, and all have the same weights."""
    script = "srun -N2 -n4 --ntasks-per-node=2 singularity exec $SIF conda-python-distributed -u train.py"
    assert trained(training.run(script).stdout, 4)


def test_every_rank_knows_its_place(training):
    """S002-64, S002-62: rank, size, local rank and local size, also on unevenly filled nodes; one master for all."""
    script = "srun -N2 -n3 --distribution=block -m plane=2 singularity exec $SIF conda-python-distributed show.py"
    ranks = shown(training.run(script.replace("--distribution=block ", "")).stdout)
    assert [one["RANK"] for one in ranks] == ["0", "1", "2"]
    assert {one["WORLD_SIZE"] for one in ranks} == {"3"}
    for node in NODES:
        local = [one for one in ranks if one["SLURMD_NODENAME"] == node]
        assert [one["LOCAL_RANK"] for one in local] == [str(index) for index in range(len(local))]
        assert {one["LOCAL_WORLD_SIZE"] for one in local} == {str(len(local))}
    assert {one["MASTER_ADDR"] for one in ranks} == {ranks[0]["SLURMD_NODENAME"]}
    assert len({one["MASTER_PORT"] for one in ranks}) == 1


def test_the_master_belongs_to_the_step(training):
    """S002-62: a step on the second node only has its master there."""
    step = f"srun -N1 -n2 -w {NODES[1]} singularity exec $SIF conda-python-distributed show.py"
    script = f"salloc -Q -N2 --ntasks-per-node=2 {step}"
    assert {one["MASTER_ADDR"] for one in shown(training.run(script).stdout)} == {NODES[1]}


def test_two_jobs_on_one_node_both_finish(training):
    """S002-63: two half-node jobs at once on one node use different ports, and each one's ranks meet."""
    script = f"""
        for job in a b; do
            EBSIF_REPORT=1 srun -N1 -n2 -w {NODES[0]} --job-name=$job singularity exec $SIF conda-python-distributed \\
                meet.py job-$job job-a job-b > $job.out 2>&1 &
            jobs+=($!)
        done
        for job in "${{jobs[@]}}"; do wait $job || echo FAILED; done
        cat a.out b.out
    """
    output = training.run(script).stdout
    assert "FAILED" not in output, output
    assert met(output) == ["job-a-0 job-a-1", "job-b-0 job-b-1"]
    assert len(set(re.findall(rf"^rank .* master {NODES[0]}:(\d+)$", output, re.MULTILINE))) == 2


def test_two_steps_of_a_job_both_finish(training):
    """S002-63: two steps of one job at once on the same node."""
    script = f"""#!/bin/bash
        set -e
        source {training.site.tool.environment[0][1].rsplit('/libexec', 1)[0]}/init/bash
        module use {training.site.modules}
        module load {MODULE}
        for step in a b; do
            srun --exact -N1 -n2 singularity exec $SIF conda-python-distributed meet.py step-$step step-a step-b &
            steps+=($!)
        done
        for step in ${{steps[@]}}; do wait $step; done
        srun -N1 -n2 singularity exec $SIF conda-python-distributed show.py
    """
    status, output = training.batch("steps", script, "-N1", "-n4")
    assert status == 0, output
    assert met(output) == ["step-a-0 step-a-1", "step-b-0 step-b-1"]


def test_a_rank_that_dies_ends_the_job_with_its_status(training):
    """S003-25: the script of `ebsif job` starts with srun; a rank that dies ends the job with its status."""
    (training.site.work / "die.py").write_text(
        "import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(300)\n")
    written = training.run(f"ebsif job {MODULE} --nodes 2 --site local -- die.py")
    # use D12.4: module and program exist
    assert written.stderr == ""
    status, output = training.batch("die", written.stdout)
    assert status == 7, output


# Prints that it has started, then waits; on USR1 it writes a checkpoint, which takes a while, and exits with success.
CHECKPOINT = """
import os, signal, sys, time

def save(*_):
    time.sleep(0.5)
    # one write, because ranks share the output
    os.write(1, f"saved {os.environ['RANK']}\\n".encode())
    sys.exit()

signal.signal(signal.SIGUSR1, save)
open(f"{sys.argv[1]}-{os.environ['RANK']}", "w").close()
time.sleep(300)
"""


@pytest.mark.parametrize("options", ["--nodes 2", "--tasks-per-node 2 --shared-container"])
def test_signals_reach_the_program_and_its_status_counts(training, options):
    """use D4, T-07, T-04: all ranks save on USR1 and exit with 0: the job succeeds. Ranks killed by TERM fail it."""
    (training.site.work / "checkpoint.py").write_text(CHECKPOINT)
    script = f"""
        rm -f USR1* TERM*
        send() {{
            ebsif job {MODULE} {options} -o $1.sh -- checkpoint.py $1
            job=$(sbatch --parsable --output=$1.out $1.sh)
            until [[ -e $1-0 && -e $1-1 ]]; do [[ -n $(squeue -h -j $job) ]] && sleep 0.2 || break; done
            scancel --signal=$1 $job
            until state=$(scontrol show job $job); [[ $state =~ JobState=(COMPLETED|FAILED|TIMEOUT) ]]; do sleep 1; done
            echo $1 $(grep -oE '(JobState|ExitCode)=\\S+' <<<"$state")
        }}
        send USR1 & send TERM & wait
        cat USR1.out
    """
    output = training.run(script).stdout
    assert "USR1 JobState=COMPLETED ExitCode=0:0\n" in output, output
    assert "TERM JobState=FAILED ExitCode=1:0\n" in output, output
    assert sorted(re.findall("^saved .", output, re.MULTILINE)) == ["saved 0", "saved 1"]


def test_the_signal_is_for_the_ranks_of_torchrun(training):
    """T-07, T-08: USR1 reaches the ranks that torchrun has started, and doesn't end torchrun: the job succeeds."""
    (training.site.work / "checkpoint.py").write_text(CHECKPOINT)
    script = f"""
        job=$(ebsif job {MODULE} --name asked --tasks-per-node 2 --launcher torchrun --signal 60 --submit -- \\
            checkpoint.py asked | grep -oE '[0-9]+')
        until [[ -e asked-0 && -e asked-1 ]]; do [[ -n $(squeue -h -j $job) ]] && sleep 0.2 || break; done
        scancel --batch --signal=USR1 $job
        until state=$(scontrol show job $job); [[ $state =~ JobState=(COMPLETED|FAILED|TIMEOUT) ]]; do sleep 0.5; done
        grep -oE '(JobState|ExitCode)=\\S+' <<<"$state"
        cat asked-$job.out
    """
    output = training.run(script).stdout
    assert {"JobState=COMPLETED", "ExitCode=0:0"} <= set(output.splitlines()), output
    assert sorted(re.findall("^saved .", output, re.MULTILINE)) == ["saved 0", "saved 1"]


@pytest.mark.parametrize("options", ["", "--shared-container", "--launcher torchrun"])
def test_signals_for_the_first_process_of_each_task(training, cluster, options):
    """T-07: with proctrack/cgroup, Slurm signals only what slurmstepd has started: the program gets it."""
    (training.site.work / "checkpoint.py").write_text(CHECKPOINT)
    for old in training.site.work.glob("first-[01]"):
        old.unlink()
    said = training.run(f"ebsif job {MODULE} --name first --tasks-per-node 2 {options} --submit -- checkpoint.py first")
    job = said.stdout.split()[-1]
    log = training.site.work / f"first-{job}.out"
    wait_until(lambda: len(list(training.site.work.glob("first-[01]"))) == 2, log)
    tasks = cluster.tasks(job)
    assert len(tasks) == (1 if "torchrun" in options else 2)
    for process in tasks:
        os.kill(process, signal.SIGUSR1)
    state = re.compile(" JobState=(COMPLETED|FAILED|TIMEOUT) ")
    ended = wait_until(lambda: state.search(cluster.slurm("scontrol", "show", "job", job)), log)
    assert ended[1] == "COMPLETED", log.read_text()
    assert sorted(re.findall("^saved .", log.read_text(), re.MULTILINE)) == ["saved 0", "saved 1"]


def wait_until(condition, log, seconds=300):
    """Wait until a condition is true, and return it; show the log of the job otherwise."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, log.read_text() if log.exists() else "the job has not started"
        time.sleep(0.2)
    return found


# What ranks of the site "bound" report: rank, local rank, node, CPUs.
BOUND = [(str(rank), str(rank % 2), NODES[rank // 2], str(1 - rank % 2)) for rank in range(4)]


def reported(output):
    """Return rank, local rank, node and CPUs of all reports by four ranks of torchrun, two on each node."""
    return sorted(re.findall(r"^rank (\S+) of 4, local rank (\S+) of 2 on (\S+) \(torchrun\): CPUs (\S+), ", output,
                             re.MULTILINE))


def test_torchrun_starts_the_ranks_of_each_node(training):
    """
    use D12.6, S002-64, T-08, T-14: srun starts torchrun once per node, which starts the ranks there.

    Only the ranks report, each with its node and the CPUs to which it is bound.
    """
    script = training.run(f"ebsif job {MODULE} --site bound --catalogue sites --nodes 2 --launcher torchrun --report "
                          "-- all_reduce.py").stdout
    status, output = training.batch("torchrun", script)
    assert status == 0, output
    assert re.findall("^sum .*", output, re.MULTILINE) == ["sum 10.0 of 4"] * 4
    assert reported(output) == BOUND
    assert len(re.findall("^rank ", output, re.MULTILINE)) == 4


def test_the_training_of_the_documentation_goes_on(training):
    """T-07: docs/examples/checkpoint.py saves on USR1, its job returns to the queue, and it goes on."""
    folder = training.site.work
    (folder / "checkpoint_example.py").write_text((CHECKOUT / "docs/examples/checkpoint.py").read_text())
    script = f"""
        job=$(ebsif job {MODULE} --nodes 2 --name goes-on --signal 60 --requeue --submit -- \\
            checkpoint_example.py --pause 0.1 --steps 60 | grep -oE '[0-9]+')
        until grep -qs 'start after step 0' goes-on-$job.out; do sleep 0.2; done
        sleep 1
        scancel --batch --signal=USR1 $job
        until state=$(scontrol show job $job); [[ $state =~ JobState=(COMPLETED|FAILED|TIMEOUT) ]]; do sleep 0.5; done
        grep -oE '(JobState|ExitCode|Restarts)=\\S+' <<<"$state"
        cat goes-on-$job.out
    """
    output = training.run(script).stdout
    assert {"JobState=COMPLETED", "ExitCode=0:0", "Restarts=1"} <= set(output.splitlines()), output
    stopped = re.search(r"^stopped after step (\d+)$", output, re.MULTILINE)[1]
    assert 0 < int(stopped) < 60
    assert re.findall(r"^2 ranks start after step (\d+)$", output, re.MULTILINE) == ["0", stopped]
    assert "\nfinished step 60\n" in output


# accelerate and what it imports, as far as the image lacks it
ACCELERATE = ("accelerate==1.15.0", "psutil", "packaging", "pyyaml", "huggingface_hub<1", "safetensors", "requests",
              "tqdm", "urllib3", "idna", "charset-normalizer", "certifi")

# What accelerate has made of the ranks, and what each rank may run on.
ACCELERATED = """
import json, os, sys
from accelerate import Accelerator

state = Accelerator().state
found = [state.process_index, state.num_processes, state.local_process_index, state.device.type,
         sorted(os.sched_getaffinity(0)), os.environ["SLURMD_NODENAME"]]
sys.stdout.write(json.dumps(found) + "\\n")
"""


def test_accelerate_on_two_nodes(training):
    """T-08, T-14: accelerate starts the ranks of two nodes, each bound to its CPUs; the report names each of them."""
    folder = training.site.work
    (folder / "accelerated.py").write_text(ACCELERATED)
    training.site.run(["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11",
                       "--dest", folder / "accelerate-wheels", *ACCELERATE])
    training.run("singularity exec $SIF pip install -q --no-deps --no-index accelerate-wheels/*.whl")
    script = training.run(f"ebsif job {MODULE} --site bound --catalogue sites --nodes 2 --launcher accelerate --report "
                          "-- accelerated.py").stdout
    status, output = training.batch("accelerate", script)
    assert status == 0, output
    # warnings of PyTorch begin with a bracket, too
    found = sorted(json.loads(line) for line in re.findall(r"^\[\d.*\]$", output, re.MULTILINE))
    assert found == [[rank, 4, rank % 2, "cpu", [1 - rank % 2], NODES[rank // 2]] for rank in range(4)], output
    assert reported(output) == BOUND


def test_lumis_job_script_runs(training):
    """
    S002-67, S002-68, S001-16: Slurm accepts the script for LUMI with its CPU masks, and each rank reports.

    The module LUMI is a dummy, and this machine lacks the CPUs, so it's not tested that Slurm applies the masks.
    """
    (training.site.modules / "LUMI.lua").write_text("")
    script = training.run(
        f"ebsif job {MODULE} --nodes 2 --site lumi --report -- show.py", SBATCH_ACCOUNT="project_1").stdout
    status, output = training.batch("lumi", script)
    assert status == 0, output
    ranks = shown(output)
    assert len(ranks) == 16
    masks = [int(mask, 16) for mask in profiles.read("lumi").scheduler.partition("standard-g")[1].cpu_masks]
    for one in ranks:
        assert one["SLURM_CPU_BIND_TYPE"].startswith("mask_cpu")
        assert [int(mask, 16) for mask in one["SLURM_CPU_BIND_LIST"].split(",")] == masks
    reports = re.findall(r"^rank \d+ of 16, local rank \d of 8 on nid00100[12] \(Slurm\): CPUs ", output, re.MULTILINE)
    assert len(reports) == 16


def test_a_missing_srun_is_an_error(training):
    """S003-25: in a job with several tasks, python without srun is an error, unless a single rank is requested."""
    script = "salloc -Q -n4 singularity exec $SIF conda-python-distributed show.py"
    result = training.run(script, check=False)
    assert result.returncode == 1
    assert "this job has 4 tasks, but no launcher has started them: put srun before singularity" in result.stderr
    result = training.run(script.replace("singularity", "srun -n 1 singularity"))
    assert [one["WORLD_SIZE"] for one in shown(result.stdout)] == ["1"]


def test_a_failing_helper_stops_every_rank(training):
    """S002-65: a malformed node list: every rank reports it and stops; nothing runs with an empty MASTER_ADDR."""
    script = "srun -n 3 env SLURM_STEP_NODELIST='nid[1-' singularity exec $SIF conda-python-distributed show.py"
    result = training.run(script, check=False)
    assert result.returncode == 1
    assert not shown(result.stdout)
    lines = re.findall(r"^conda-python-distributed: rank (\d): can't determine the first host for MASTER_ADDR: this is "
                       r"not a node list", result.stderr, re.MULTILINE)
    assert sorted(lines) == ["0", "1", "2"]


# --- node lists

def ranges(random):
    """Return the text in brackets: numbers and ranges, with padding."""
    parts = []
    for _ in range(random.randint(1, 3)):
        number = random.randint(0, 130)
        first = str(number).zfill(random.randint(0, 4))
        last = str(number + random.randint(0, 20)).zfill(len(first))
        parts.append(random.choice([first, f"{first}-{last}"]))
    return f"[{','.join(parts)}]"


def node_list(random):
    """Return a legal node list: several names, several brackets in a name, hyphens, dots, text after a number."""
    names = []
    for _ in range(random.randint(1, 4)):
        name = random.choice(["nid", "n", "rack", "x1000c0s", "gpu-a", "a.b", "login"])
        for _ in range(random.randint(0, 2)):
            name += ranges(random) + random.choice(["", "b", "node", "-x", "n"])
        if "[" not in name:
            name += random.choice(["", "1", "007", "-ib", "3-ib"])
        # nothing may follow the last bracket
        names.append(name[: name.rindex("]") + 1] if "]" in name else name)
    return ",".join(names)


GET_MASTER = 'source "$1"; shift; for list; do first_host "$list" && echo "$host" || echo "refused"; done'
# One call for many lists, separated by a name that is in no list.
SCONTROL = """
for lists; do
    scontrol show hostnames "between,$lists" || echo refused
done
"""


def first_hosts(script, *arguments, **environment):
    """Return the output of a bash loop for each argument."""
    result = subprocess.run(["bash", "-c", script, "bash", *arguments], env={**os.environ, **environment},
                            capture_output=True, text=True, check=True, timeout=300)
    return result.stdout.splitlines()


def test_get_master_agrees_with_slurm(cluster):
    """S002-62: for thousands of legal lists, the first host is the one that `scontrol show hostnames` prints first."""
    # always the same lists, so that a failure can be reproduced
    random = Random(20261121)
    lists = sorted({node_list(random) for _ in range(2600)})
    assert len(lists) > 2000
    many = [",between,".join(lists[start:start + 100]) for start in range(0, len(lists), 100)]
    hosts = first_hosts(SCONTROL, *many, **cluster.environment)
    judge = [host for before, host in zip(hosts, hosts[1:]) if before == "between"]
    ours = first_hosts(GET_MASTER, str(CONTAINER_FILES / "runscripts/get-master"), *lists)
    differing = [(one, theirs, own) for one, theirs, own in zip(lists, judge, ours) if theirs != own]
    assert not differing
    assert len(judge) == len(ours) == len(lists)
    assert "refused" not in hosts


@pytest.mark.parametrize("wrong", [
    "", ",", "n[", "n[1", "n1]", "n[]", "n[1-]", "n[-1]", "n[5-3]", "n[1,,2]", "n[1,]", "n[a-b]", "n[[1-2]]",
    "n[1-2]-ib", "a,n[2-1]", "a b", "$(id)", "n[1-2-3]", "a;b", "n[1-2]]"])
def test_a_malformed_list_is_an_error(wrong):
    """S002-62, S002-65: empty or malformed lists: status 1, an error, and no host."""
    script = CONTAINER_FILES / "runscripts/get-master"
    result = subprocess.run([script, wrong], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("get-master: ")
    assert "empty" in result.stderr or wrong in result.stderr


def test_get_master_reads_a_host_file(tmp_path):
    """S002-62: the first host of $PBS_NODEFILE or of a host file; empty, malformed and missing files are errors."""
    script = CONTAINER_FILES / "runscripts/get-master"

    def get(text, *arguments, **variables):
        path = tmp_path / "hosts"
        path.write_text(text)
        result = subprocess.run([script, *arguments], env={"PATH": os.environ["PATH"], **variables}, text=True,
                                capture_output=True, check=False)
        return result.stdout.strip() or result.stderr.strip()

    file = str(tmp_path / "hosts")
    assert get("# nodes\n\n  dec0001.hsn slots=4\ndec0002\n", "--hostfile", file) == "dec0001.hsn"
    assert get("dec0003", PBS_NODEFILE=file) == "dec0003"
    assert f"the host file {file} has no hosts" in get("\n# x\n", "--hostfile", file)
    assert "is not a valid host name" in get("a;b\n", "--hostfile", file)
    assert "can't read the host file" in get("", "--hostfile", file + ".not")
    assert get("x", SLURM_STEP_NODELIST="n[7-9]", SLURM_JOB_NODELIST="n[1-9]") == "n7"
    assert "no scheduler tells which nodes" in get("x")
    assert "usage: get-master" in get("x", "a", "b", "c")


# --- mpiexec, and no launcher


@pytest.fixture
def pals(training, tmp_path):
    """
    A directory with an mpiexec like that of PBS with PALS, and a node list.

    A real mpiexec starts the ranks for two host names of this machine; only the option for CPUs and the names of the
    variables with the ranks' numbers are those of PALS.
    """
    (tmp_path / "rank").write_text(
        "#!/bin/bash\nexport PALS_RANKID=$PMI_RANK PALS_LOCAL_RANKID=$MPI_LOCALRANKID\n"
        "export PALS_LOCAL_SIZE=$MPI_LOCALNRANKS PALS_APID=11111111-2222\n"
        "unset PMI_RANK MPI_LOCALRANKID MPI_LOCALNRANKS\nexec \"$@\"\n")
    (tmp_path / "mpiexec").write_text(
        "#!/bin/bash\n[[ \"$1 $3\" == '-n -ppn' ]] || exit 64\nn=$2 ppn=$4\nshift 4\n"
        "[[ $1 != --cpu-bind ]] || shift 2\n"
        f"exec mpiexec.hydra -launcher fork -hosts {','.join(NODES)} -n $n -ppn $ppn {tmp_path}/rank \"$@\"\n")
    for name in ("rank", "mpiexec"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text("".join(f"{node}\n" * 2 for node in NODES))
    return tmp_path


def in_pbs(training, pals, script, check=True):
    """Run a bash script as PBS would, with the module loaded."""
    return training.run(
        f"export PATH={pals}:$PATH\n{script}", check, PBS_JOBID="4711.server", PBS_NODEFILE=pals / "nodes",
        PBS_O_WORKDIR=training.site.work, SLURM_JOB_ID="1", SLURM_STEP_ID="1", SLURM_PROCID="0")


@contextlib.contextmanager
def module_for_pbs(training):
    """Let the module's run script read variables of PBS only, as at a site with PBS."""
    data = Path(training.run("echo $RUNSCRIPTS").stdout.strip()) / "distributed.conf"
    before = data.read_text()
    data.write_text(before + "scheduler pbs\n")
    try:
        yield
    finally:
        data.write_text(before)


def test_four_ranks_meet_under_pbs(training, pals):
    """S004-16 (in part: ranks meet), S004-01, S004-03: the script for PBS, mpiexec and PALS; Slurm is not used."""
    script = training.run(
        f"ebsif job {MODULE} --nodes 2 --tasks-per-node 2 --site derecho --account A -- meet.py pbs").stdout
    assert "mpiexec -n 4 -ppn 2 --cpu-bind numa" in script
    with module_for_pbs(training):
        assert met(in_pbs(training, pals, script).stdout) == ["pbs-0 pbs-1 pbs-2 pbs-3"]
    record = json.loads((training.site.work / "meet-4711.json").read_text())
    assert (record["runs"][0]["nodes"], record["runs"][0]["status"]) == (",".join(NODES), 0)


def test_signals_of_launchers_that_know_only_torchrun(tmp_path):
    """T-07: where only torchrun would get the signal, the ranks get it from it; its status is theirs."""
    (tmp_path / "starter.py").write_text(
        "import subprocess, sys\n"
        "program = 'import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7)); '"
        "'print(\"up\", flush=True); time.sleep(60)'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', program]).returncode)\n")
    command = [sys.executable, CONTAINER_FILES / "runscripts/start-ranks.py", "starter"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout.readline() == "up\n"
        started.send_signal(signal.SIGUSR1)
        assert started.wait(30) == 7


def test_the_timer_of_a_pbs_job(training, pals):
    """T-07: PBS sends no signal before the time limit: the script does, mpiexec passes it on, and the ranks save."""
    (training.site.work / "checkpoint.py").write_text(CHECKPOINT)
    script = training.run(f"ebsif job {MODULE} --tasks-per-node 2 --site derecho --account A --time 0:02:00 "
                          "--signal 80 -- checkpoint.py timer").stdout
    with module_for_pbs(training):
        result = in_pbs(training, pals, script, check=False)
    assert sorted(re.findall("^saved .", result.stdout, re.MULTILINE)) == ["saved 0", "saved 1"], result.stderr
    assert result.returncode == 0, result.stderr


def test_mpiexec_alone_is_enough(training):
    """S002-64: a launcher without a scheduler: PMI; all ranks are on this machine."""
    script = "mpiexec.hydra -n 2 singularity exec $SIF conda-python-distributed meet.py mpi"
    assert met(training.run(script).stdout) == ["mpi-0 mpi-1"]


def test_a_single_rank(training):
    """Without scheduler and launcher there is a single rank, which test_documentation trains; two runs don't meet."""
    script = "singularity exec $SIF conda-python-distributed meet.py"
    assert met(training.run(f"{script} c d & {script} d c & wait").stdout) == ["c-0", "d-0"]


def test_torchrun_through_its_wrapper(training):
    """use D1, G-01: torchrun, a program of the image, starts its processes through the wrapper, with user software."""
    (training.site.work / "see.py").write_text(
        "import os, sys, byhand\nsys.stdout.write(f'rank {os.environ[\"RANK\"]}: {byhand.__file__}\\n')\n")
    output = training.run("torchrun --standalone --nproc-per-node 2 see.py").stdout
    assert sorted(output.splitlines()) == [
        f"rank {rank}: /user-software/venv/training/lib/python3.11/site-packages/byhand.py" for rank in range(2)]


# --- single ranks with a launcher's variables, without the launcher


# Cases run in one container, each with a rank's data and variables.
CASES = """
import json, os, subprocess, sys
results = []
for data, variables in json.load(open(sys.argv[1])):
    with open("/runscripts/distributed.conf", "w") as file:
        file.write(data)
    result = subprocess.run(["/runscripts/conda-python-distributed", sys.argv[2]], env={**os.environ, **variables},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    results.append([result.stdout, result.stderr])
json.dump(results, sys.stdout)
"""


class Ranks:
    """The run script in the image, without a launcher and without the installed module."""

    def __init__(self, image, folder):
        self.image = image
        self.folder = folder
        self.scripts = folder / "runscripts"
        self.scripts.mkdir()
        shutil.copytree(CONTAINER_FILES / "runscripts", self.scripts, dirs_exist_ok=True)
        (folder / "show.py").write_text(SHOW)
        (folder / "cases.py").write_text(CASES)

    def start(self, *command, binds=(), before=(), **variables):
        """Run a command in the image with variables set outside; return the CompletedProcess."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "APPTAINER_BIND": ",".join(
            [f"{self.scripts}:/runscripts", str(self.folder), *binds]), "EBSIF_NODE_LOCAL": str(self.folder),
            "APPTAINERENV_VIRTUAL_ENV": "", **variables}
        return subprocess.run([*before, "apptainer", "exec", self.image, *command], env=environment, text=True,
                              capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=60)

    def __call__(self, data="", **options):
        """Run the script with a data file and variables; return a rank's output and messages."""
        (self.scripts / "distributed.conf").write_text(data)
        result = self.start("/runscripts/conda-python-distributed", self.folder / "show.py", **options)
        return next(iter(shown(result.stdout)), None), result.stderr

    def each(self, cases):
        """Do this for each case (data, variables), one after the other in one container."""
        (self.folder / "cases.json").write_text(json.dumps(cases))
        result = self.start("/opt/miniconda3/envs/pytorch/bin/python3", self.folder / "cases.py",
                            self.folder / "cases.json", self.folder / "show.py")
        assert result.returncode == 0, result.stderr
        results = [(next(iter(shown(output)), None), errors) for output, errors in json.loads(result.stdout)]
        assert len(results) == len(cases)
        return results


@pytest.fixture
def rank(base_image, tmp_path):
    """The run script in the image."""
    return Ranks(base_image, tmp_path)


def slurm(rank=0, local=0, local_size=2, job=100, step=0, nodes="nid[1-2]", size=4):
    """Return the variables of one rank of a step."""
    return {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step), "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(local), "SLURM_STEP_NUM_TASKS": str(size), "SLURM_NODEID": "0",
            "SLURM_STEP_TASKS_PER_NODE": f"{local_size}(x2)", "SLURM_STEP_NODELIST": nodes}


UNDER_TORCHRUN = {**slurm(local_size=1, size=2), "TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "8",
                  "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "2000"}
ALL = "gpu rocm\ngpu_visibility all"
OWN = "gpu cuda\ngpu_visibility local_rank"


SEEN = [
    ("gpu rocm", {}, {"ROCR": "1"}),
    # assigned to the job by Slurm
    ("gpu rocm", {"ROCR_VISIBLE_DEVICES": "4,5,6,7"}, {"ROCR": "5"}),
    # assigned to the task by Slurm, or chosen by the image's entry point
    ("gpu rocm", {"ROCR_VISIBLE_DEVICES": "6"}, {"ROCR": "6"}),
    ("gpu rocm", {"ROCR_VISIBLE_DEVICES": "2,3", "SLURM_GPUS_PER_TASK": "2"}, {"ROCR": "2,3"}),
    (ALL, {"ROCR_VISIBLE_DEVICES": "6"}, {"ROCR": "6"}),
    (ALL, {"SLURM_GPUS_PER_TASK": "1"}, {}),
    (ALL, {"SLURM_GPU_BIND": "closest", "LOCAL_RANK": "1"}, {}),
    (ALL, {"SLURM_GPU_BIND": "none"}, {"LOCAL_RANK": "1"}),
    ("gpu rocm", {"EBSIF_GPU_VISIBILITY": "all"}, {"LOCAL_RANK": "1"}),
    (ALL, {}, {"LOCAL_RANK": "1"}),
    (ALL, {"ROCR_VISIBLE_DEVICES": "4,5"}, {"ROCR": "4,5", "LOCAL_RANK": "1"}),
    (ALL, {"EBSIF_GPU_VISIBILITY": "local_rank"}, {"ROCR": "1"}),
    # HIP counts only the devices that ROCR leaves visible
    ("gpu rocm", {"HIP_VISIBLE_DEVICES": "2,3"}, {"HIP": "3"}),
    ("gpu rocm", {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1,0"}, {"ROCR": "4,5", "HIP": "0"}),
    ("gpu rocm", {"ROCR_VISIBLE_DEVICES": "5", "HIP_VISIBLE_DEVICES": "5"}, {"ROCR": "5", "HIP": "0"}),
    (ALL, {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "4,5"},
     {"ROCR": "4,5", "HIP": "0,1", "LOCAL_RANK": "1"}),
    ("gpu cuda", {}, {"LOCAL_RANK": "1"}),
    ("gpu cuda", {"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA": "3"}),
    (OWN, {}, {"CUDA": "1"}),
    ("", {}, {"LOCAL_RANK": "1"}),
]


def test_each_rank_sees_its_gpu(rank):
    """
    lumi B12, L-04, S002-61, S004-18 (in part): the local rank selects the GPU, unless the scheduler restricted it.

    LOCAL_RANK is set only if it's an index among the GPUs that the rank sees.
    """
    names = {"LOCAL_RANK": "LOCAL_RANK", **{kind: f"{kind}_VISIBLE_DEVICES" for kind in ("ROCR", "HIP", "CUDA")}}
    ranks = rank.each([(data, {**slurm(rank=1, local=1), **variables}) for data, variables, _ in SEEN])
    for case, (found, errors) in zip(SEEN, ranks):
        assert found, (case, errors)
        assert {kind: found[name] for kind, name in names.items() if name in found} == case[-1], case
        assert found["LOCAL_WORLD_SIZE"] == "2", case


def test_a_hidden_device_is_an_error(rank):
    """lumi B12: HIP_VISIBLE_DEVICES names a device that ROCR_VISIBLE_DEVICES hides: an error, no run without GPU."""
    found, errors = rank("gpu rocm", ROCR_VISIBLE_DEVICES="3", HIP_VISIBLE_DEVICES="1", **slurm(rank=1, local=1))
    assert found is None
    assert "rank 1: HIP_VISIBLE_DEVICES=1 is not among the 1 devices that ROCR_VISIBLE_DEVICES=3 leaves" in errors


def test_one_rank_on_a_node_sees_all_gpus(rank):
    """S002-61: torchrun needs all GPUs of the node, and so does a single process; torchrun's ranks choose."""
    (found, _), (started, _) = rank.each([("gpu rocm", slurm(local_size=1, size=2)), ("gpu rocm", UNDER_TORCHRUN)])
    assert "ROCR_VISIBLE_DEVICES" not in found
    assert found["LOCAL_RANK"] == "0"
    assert (found["PET_NNODES"], found["PET_NODE_RANK"]) == ("2", "0")
    assert "ROCR_VISIBLE_DEVICES" not in started
    assert started["LOCAL_RANK"] == "1"


def test_ranks_of_torchrun_bind_themselves(rank, tmp_path):
    """T-08: to the CPUs of a mask for each local rank, or to NUMA domains, as far as the job has CPUs of them."""
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    for number, cpus in enumerate((f"{first},3000", "4000-4001", last)):
        (tmp_path / f"domains/node{number}").mkdir(parents=True)
        (tmp_path / f"domains/node{number}/cpulist").write_text(f"{cpus}\n")

    def bound(way, **variables):
        _, errors = rank(binds=[f"{tmp_path}/domains:/sys/devices/system/node"], EBSIF_REPORT="1", EBSIF_CPU_BIND=way,
                         **{**UNDER_TORCHRUN, "LOCAL_WORLD_SIZE": "2", **variables})
        return re.search("CPUs (.*), GPU", errors)[1] if "CPUs" in errors else errors

    everything = bound("")
    assert (bound("numa", LOCAL_RANK="0"), bound("numa")) == (str(first), str(last))
    # both domains are for the only rank
    assert bound("numa", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1") == f"{first}{'-' if last == first + 1 else ','}{last}"
    assert bound(f"0x1,{1 << last:#x}") == str(last)
    _, errors = rank(EBSIF_CPU_BIND="0x0,0x0", **UNDER_TORCHRUN)
    assert "rank 5: can't be bound to its CPUs (0x0), and runs on all of the job" in errors
    assert "EBSIF_CPU_BIND has only 1 masks: 0x1" in bound("0x1")
    # other ranks are bound by their launcher
    assert bound("0x1,0x1", TORCHELASTIC_RUN_ID="") == everything


def test_a_log_that_cannot_be_written(rank):
    """Issue 23, point 4: a rank whose log can't be written stops, and says which file."""
    found, errors = rank(EBSIF_RANK_LOGS="/proc/none", **slurm(rank=1, size=16))
    assert found is None
    assert "rank 1: can't write /proc/none/rank-01.log (set EBSIF_RANK_LOGS to another directory)" in errors


def test_the_gpu_state_is_shown_once_per_node(rank, tmp_path):
    """S002-57: only local rank 0 shows it; a failing or missing tool does not end the job."""
    tool = tmp_path / "rocm-smi"
    bind = f"{tool}:/usr/bin/rocm-smi"
    tool.write_text("#!/bin/sh\necho GPU is fine\nexit 3\n")
    tool.chmod(0o755)
    found, errors = rank("gpu rocm", binds=[bind], **slurm())
    assert found
    assert "GPU is fine" in errors
    assert "rocm-smi failed, continuing without it" in errors
    found, errors = rank("gpu rocm", binds=[bind], **slurm(rank=1, local=1))
    assert found
    assert "GPU is fine" not in errors
    assert rank("gpu rocm", **slurm())[0]


def test_miopens_cache_belongs_to_job_and_step(rank, tmp_path):
    """
    S002-58, S002-59, S002-66: on the node, created by whichever rank comes first, not shared between steps.

    Here the run script finds it itself; with the module, all containers do (test_caches).
    """
    spec = SimpleNamespace(node_caches=["/nowhere"], project_caches=[], cache_variables={}, gpu="rocm", init="image",
                           scheduler=None)
    (rank.scripts / "caches.conf").write_text(Caches(spec).text)
    steps = ((100, 0, 1), (100, 0, 0), (100, 1, 0), (101, 0, 0))
    *ranks, (mine, _) = rank.each([
        *(("gpu rocm", slurm(rank=local, local=local, job=job, step=step)) for job, step, local in steps),
        ("gpu rocm", {"MIOPEN_USER_DB_PATH": "/mine", **slurm()})])
    places = set()
    for found, errors in ranks:
        assert found, errors
        # the second local rank, alone: it did not wait for the first
        assert found["cache"]
        places.add(found["MIOPEN_USER_DB_PATH"])
        assert found["MIOPEN_CUSTOM_CACHE_DIR"] == found["MIOPEN_USER_DB_PATH"]
    assert places == {f"{tmp_path}/ebsif-{os.getuid()}/{place}/miopen"
                      for place in ("job-100/step-0", "job-100/step-1", "job-101/step-0")}
    assert mine["MIOPEN_USER_DB_PATH"] == "/mine"


def test_the_run_script_never_sleeps():
    """S002-66: The run script contains no waiting time."""
    text = (CONTAINER_FILES / "runscripts/conda-python-distributed").read_text()
    assert "sleep" not in text


def test_the_network_of_a_run(rank):
    """S002-60, S004-04 (in part), S002-71: variables from the site's data, blanks included; the user's value wins."""
    data = "set NCCL_NET AWS Libfabric\nset NCCL_DEBUG WARN\nunset CUDA_VISIBLE_DEVICES\n"
    found, _ = rank(data, CUDA_VISIBLE_DEVICES="0", **slurm())
    assert (found["NCCL_NET"], found["NCCL_DEBUG"]) == ("AWS Libfabric", "WARN")
    assert "CUDA_VISIBLE_DEVICES" not in found
    found, _ = rank(data, APPTAINERENV_NCCL_DEBUG="INFO", SINGULARITYENV_NCCL_DEBUG="INFO", **slurm())
    assert found["NCCL_DEBUG"] == "INFO"
    found, errors = rank("nonsense 1\n", **slurm())
    assert found is None
    assert "unknown word 'nonsense' in /runscripts/distributed.conf" in errors


def test_the_port_depends_on_job_and_step(rank):
    """S002-63: other jobs and steps have other ports, outside the range that Linux uses for connections."""
    steps = ((100, 0), (100, 1), (100, 15), (101, 0), (102, 15), (1522, 0))
    *ranks, (mine, _), (wrong, errors) = rank.each([
        *(("", slurm(rank=1, local=1, job=job, step=step)) for job, step in steps),
        ("", {"MASTER_PORT": "12345", "MASTER_ADDR": "here", **slurm()}), ("", {"MASTER_PORT": "70000", **slurm()})])
    ports = [int(found["MASTER_PORT"]) for found, _ in ranks]
    assert len(set(ports)) == len(steps)
    assert all(10000 <= port < 32768 for port in ports)
    assert (mine["MASTER_ADDR"], mine["MASTER_PORT"]) == ("here", "12345")
    assert wrong is None
    assert "MASTER_PORT is '70000', which is not a port" in errors


def test_the_port_does_not_depend_on_the_node(rank):
    """defects E5: a node with another range of ports for connections computes the same port, so the ranks meet."""
    here = rank("", **slurm(rank=1, local=1))[0]["MASTER_PORT"]
    # a network namespace has its own settings
    other = "mount -t proc proc /proc && echo 10500 20000 >/proc/sys/net/ipv4/ip_local_port_range && exec \"$@\""
    there = rank("", before=["unshare", "--mount", "--net", "sh", "-c", other, "sh"], **slurm(rank=1, local=1))[0]
    assert there["MASTER_PORT"] == here


def test_a_port_in_use_is_an_error(rank):
    """S002-63: if another program has the port, the first rank stops, because ranks would connect to that program."""
    port = int(rank("", **slurm(rank=1, local=1))[0]["MASTER_PORT"])
    code = f"import socket, sys; s = socket.create_server(('127.0.0.1', {port})); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        found, errors = rank("", **slurm())
        server.stdin.close()
    assert found is None
    assert f"port {port}, derived from job 100, step 0, is in use on this node: set MASTER_PORT" in errors


LAUNCHERS = [
    ({"PALS_RANKID": "3", "PMI_SIZE": "8", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "8"}, ("3", "8", "1", "8")),
    ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, ("1", "2", "1", "2")),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
      "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, ("0", "2", "0", "2")),
    # torchrun under srun: torchrun's variables apply
    (UNDER_TORCHRUN, ("5", "8", "1", "4")),
    ({}, ("0", "1", "0", "1")),
]


def test_the_rank_of_every_launcher(rank):
    """S002-64, S004-01: Slurm, PALS, PMI, Open MPI, torchrun, none: rank, size, local rank, local size."""
    for case, (found, errors) in zip(LAUNCHERS, rank.each([("", variables) for variables, _ in LAUNCHERS])):
        assert found, (case, errors)
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        assert tuple(found[name] for name in names) == case[-1], case


def test_only_the_launchers_own_variables_count(rank):
    """S002-64: inherited variables of other schedulers change neither the master nor the port."""
    inherited = {"PBS_NODEFILE": "/etc/hostname", "PBS_JOBID": "4711.server", "FLUX_URI": "local:///run/flux"}
    (alone, _), (beside, errors) = rank.each([("", slurm()), ("", {**slurm(), **inherited})])
    assert beside, errors
    assert alone["MASTER_ADDR"] == "nid1"
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        assert beside[name] == alone[name]


LEFT_OUT = [
    ({"SLURM_LOCALID": ""}, "started by Slurm, but SLURM_LOCALID has no valid local rank"),
    ({"SLURM_LOCALID": "x[$(id)]"}, "started by Slurm, but SLURM_LOCALID has no valid local rank"),
    ({"SLURM_STEP_TASKS_PER_NODE": ""}, "has no valid local size"),
    ({"SLURM_PROCID": "4"}, "the values of Slurm are inconsistent: rank 4 of 4"),
    ({"SLURM_STEP_NODELIST": ""}, "the list of nodes is empty"),
]


def test_missing_variables_of_a_launcher(rank):
    """S002-65: a missing or wrong variable stops the rank; nothing is guessed."""
    ranks = rank.each([("", {**slurm(), **variables}) for variables, _ in LEFT_OUT])
    for (variables, expected), (found, errors) in zip(LEFT_OUT, ranks):
        assert found is None, variables
        assert expected in errors, variables


def test_outside_a_container(training):
    """The script says where it must run."""
    result = training.run("$RUNSCRIPTS/conda-python-distributed train.py", check=False)
    assert result.returncode == 1
    assert "run this in the container: singularity exec $SIF conda-python-distributed" in result.stderr


# --- the module's settings


@pytest.mark.parametrize("tool", ["Lmod-Lua", "EnvironmentModules-Tcl"])
def test_the_network_variables_of_a_module(tool, tmp_path, base_image):
    """S004-06, S002-60, S001-15: set on load unless the user has set them; unset on unload; MPI knows of the GPU."""
    site = Site(tmp_path, TOOLS[tool](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    library = site.prefix / "libmpi_gtl_cuda.so"
    library.touch()
    easyconfig = site.easyconfig(
        f"sources = ['example.sif']\nimage = 'central'\nimage_dirs = ['{site.sources}']\n"
        "init = 'conda-injected'\nconda_env = 'pytorch'\ngpu = 'cuda'\nscheduler = 'pbs'\n"
        f"gpu_mpi_library = '{library}'\n"
        "network_env = {'NCCL_NET': 'AWS Libfabric', 'NCCL_DEBUG': 'WARN', 'CUDA_VISIBLE_DEVICES': None,\n"
        "               'NCCL_NET_GDR_LEVEL': None}\n"
        "container_env = {'PYTHONNOUSERSITE': None, 'WITH_CONDA': None}\n")
    easyconfig.write_text(easyconfig.read_text().replace("ContainerVenv", "ContainerInstall"))
    site.eb(easyconfig)
    names = "NCCL_NET NCCL_DEBUG MPICH_GPU_SUPPORT_ENABLED APPTAINERENV_LD_PRELOAD"
    script = f"export NCCL_DEBUG=INFO\nmodule load Example\nprintenv {names}\nmodule unload Example\nprintenv {names}"
    lines = site.bash(script, check=False).stdout.splitlines()
    assert lines == ["AWS Libfabric", "INFO", "1", str(library), "INFO"]
    data = (site.prefix / "eb/software/Example/1.0/runscripts/distributed.conf").read_text().splitlines()
    assert data[1:] == [
        "scheduler pbs", "gpu cuda", "unset CUDA_VISIBLE_DEVICES", "unset NCCL_NET_GDR_LEVEL", "unset PYTHONNOUSERSITE",
        "unset WITH_CONDA", "set NCCL_DEBUG WARN", "set NCCL_NET AWS Libfabric"]
    check_removed_variables(site)
    # MPI does not start if it should use GPUs but lacks the library for it
    library.unlink()
    lines = site.bash(f"module load Example\nprintenv {names}", check=False).stdout.splitlines()
    assert lines == ["AWS Libfabric", "WARN"]


def check_removed_variables(site):
    """
    L-02, S002-60: variables set to None are in no process of the container, however it's started, even if the image or
    the caller sets them; they aren't empty either. Variables for the container and others of the caller stay.
    """
    taken = ["NCCL_NET_GDR_LEVEL", "PYTHONNOUSERSITE", "WITH_CONDA"]
    show = "env | grep -E '^(NCCL_|WITH_CONDA=|PYTHONNOUSERSITE|OWN_|CUDA_VISIBLE)' | sort"
    doors = [f'singularity exec $SIF sh -c "{show}"', f'start-shell -c "{show}"', f'singularity shell $SIF <<<"{show}"',
             'singularity exec $SIF conda-python-distributed -c '
             '"import os, subprocess; subprocess.run(os.environ[\'SHOW\'], shell=True)"']
    inherited = "export NCCL_NET_GDR_LEVEL=PHB PYTHONNOUSERSITE=1 OWN_TEXT=$'two\nlines' OWN=NCCL_NET_GDR_LEVEL="
    for setting, more in ((inherited, ["OWN_TEXT=two"]), ("true", []),
                          ("export APPTAINERENV_NCCL_NET_GDR_LEVEL=3 SINGULARITYENV_NCCL_NET_GDR_LEVEL=3",
                           ["NCCL_NET_GDR_LEVEL=3"])):
        # an old script sets it after loading the module
        ways = [f"{door}; echo end of door" for door in doors]
        script = "\n".join([f"{setting}; module load Example", setting, *ways])
        *shown_by, rest = site.bash(script, SHOW=show).stdout.split("end of door\n")
        assert (len(shown_by), rest) == (len(doors), "")
        for door, text in zip(doors, shown_by):
            lines = text.splitlines()
            assert [line for line in lines if not line.startswith(("NCCL_NET=", "NCCL_DEBUG="))] == more, door
            assert "NCCL_NET=AWS Libfabric" in lines
            assert more == ["NCCL_NET_GDR_LEVEL=3"] or not any(name in "\n".join(lines) for name in taken), lines


def test_no_gpu_settings_without_a_gpu(installed_once):
    """S003-01: no bind, option or variable of ROCm or CUDA."""
    root = installed_once.root(installed_once.SQUASHED)
    texts = [(root / "runscripts/distributed.conf").read_text(),
             (installed_once.site.modules / f"{installed_once.SQUASHED}.lua").read_text()]
    for text in texts:
        # the module unsets the runtime's options of one that was loaded before it
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("forget(")]
        assert [line for line in lines if re.search(r"rocm|cuda|nvidia|NCCL|ROCR|HIP_|MIOPEN|GTL", line, re.I)] == []


# --- installing on a compute node


@pytest.fixture
def heavy(site):
    """An easyconfig with a heavy stage, which leaves a file."""
    return site.easyconfig(
        "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\n"
        "requirements = [{'post': ['mkdir /user-software/was-here'], 'heavy': True}]\n")


def test_a_heavy_stage_is_refused_on_a_login_node(site, cluster, heavy):
    """S003-02: where jobs can be submitted, eb outside a job stops before doing anything and says how to submit one."""
    result = site.eb(heavy, check=False, **cluster.environment)
    assert result.returncode != 0
    assert "is heavy, and this is not a batch job" in result.stdout + result.stderr
    assert "ebsif job --install" in result.stdout + result.stderr
    assert not list(site.prefix.glob("eb/software/Example/1.0/*"))
    # only up to the step that refused
    site.eb(heavy, "--stop=prepare", EBSIF_HEAVY_HERE="1", **cluster.environment)


def wait_for_jobs(site, cluster):
    """Wait until no job is left."""
    site.bash("while [[ -n $(squeue -h -u root -n Example-1.0,install-Example-1.0) ]]; do sleep 0.2; done",
              **cluster.environment)


def test_one_command_installs_on_a_compute_node(site, cluster, heavy):
    """S004-17, S003-02, S003-11: `ebsif job --install --submit`, with the site's modules loaded in the job."""
    command = ["ebsif", "job", "--install", heavy, "--submit", "--", *site.eb_options]
    result = site.run(command, **cluster.environment)
    assert "Submitted batch job" in result.stdout
    wait_for_jobs(site, cluster)
    output = "".join(path.read_text() for path in site.work.glob("install-*.out"))
    assert (site.prefix / "eb/modules/all/Example/1.0.lua").is_file(), output


def test_eb_job_installs_on_a_compute_node(site, cluster, heavy):
    """S004-17: EasyBuild's own `eb --job` with its backend for Slurm."""
    site.eb(heavy, "--job", "--job-backend=Slurm", "--job-cores=1", **cluster.environment)
    wait_for_jobs(site, cluster)
    output = "".join(path.read_text() for path in site.prefix.rglob("*.out"))
    assert (site.prefix / "eb/modules/all/Example/1.0.lua").is_file(), output


def test_every_sites_scheduler_is_tested():
    """No profile has another scheduler than Slurm or PBS."""
    assert {profiles.read(name).scheduler.kind for name in profiles.names()} == {"slurm", "pbs"}


# --- compiling

# Compiles a function, as each rank of a training does.
COMPILE = """
import os, sys
import torch, torch._inductor.config
torch._inductor.config.cpp_cache_precompile_headers = False

@torch.compile
def compiled(values):
    return torch.sin(values) + 2 * torch.cos(values)

total = compiled(torch.ones(4)).sum().item()
sys.stdout.write(f"{os.environ['SLURM_JOB_ID']} rank {os.environ['RANK']}: {total:.3f}\\n")
"""
# Ranks of each job; 2 start and compile as 8 do, in a quarter of the time.
COMPILING = int(os.environ.get("EBSIF_TEST_COMPILING_RANKS", "2"))


def test_two_jobs_compile_on_a_node(training):
    """T-01: torch.compile in all ranks of two jobs at once, with a read-only home directory; caches are on the node."""
    site = training.site
    before = {path.name for path in site.home.iterdir()}
    (site.work / "compile.py").write_text(COMPILE)
    # the image has no compiler; that of the machine, which has the same distribution, needs the headers of Python
    said = training.run(f"""
        export APPTAINER_BIND=/usr,$HOME:$HOME:ro CPATH=/usr/include/python3.11 TORCHINDUCTOR_COMPILE_THREADS=1
        for job in 1 2; do
            srun -N1 -n{COMPILING} --nodelist=nid001001 \\
                singularity exec $SIF conda-python-distributed compile.py 2>>errors &
        done
        wait
        """, timeout=900).stdout
    found = [re.fullmatch(r"(\d+) rank (\d+): 7\.688", line).groups() for line in said.splitlines()]
    jobs = sorted({job for job, _ in found})
    assert sorted(found) == [(job, str(rank)) for job in jobs for rank in range(COMPILING)], said
    assert len(jobs) == 2
    for job in jobs:
        place = site.temporary / f"ebsif-{os.getuid()}/job-{job}/torchinductor"
        assert list(place.rglob("*.so"))
    # the runtime's own, from outside the container
    assert {path.name for path in site.home.iterdir()} <= before | {".apptainer"}
