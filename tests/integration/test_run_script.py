"""The run script in the image: single ranks with a launcher's variables, without the launcher."""

import json
import os
import re
import shutil

import pytest
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS
from support import CONTAINER_FILES, attempt, write_program
from training import SHOW, shown

# Cases run in one container, each with a rank's data and variables.
CASES = """
import json, os, subprocess, sys
results = []
for data, variables in json.load(open(sys.argv[1])):
    with open("/share/ebsif/module.conf", "w") as file:
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
        self.settings = folder / "module.conf"
        self.settings.touch()
        (folder / "show.py").write_text(SHOW)
        (folder / "cases.py").write_text(CASES)

    def start(self, *command, binds=(), before=(), **variables):
        """Run a command in the image with variables set outside; return the CompletedProcess."""
        binds = [f"{self.scripts}:/runscripts", f"{self.settings}:/share/ebsif/module.conf", self.folder, *binds]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "APPTAINERENV_VIRTUAL_ENV": ""}
        environment |= {"APPTAINER_BIND": ",".join(map(str, binds)), **variables}
        return attempt([*before, "apptainer", "exec", self.image, *command], env=environment, timeout=300)

    def __call__(self, data="", **options):
        """Run the script with lines of module.conf and variables; return a rank's output and messages."""
        self.settings.write_text(data)
        result = self.start("/runscripts/conda-python-distributed", self.folder / "show.py", **options)
        return next(iter(shown(result.stdout)), None), result.stderr

    def each(self, cases):
        """Do this for each case (data, variables), one after the other in one container."""
        (self.folder / "cases.json").write_text(json.dumps(cases))
        program = ("/opt/miniconda3/envs/pytorch/bin/python3", self.folder / "cases.py")
        result = self.start(*program, self.folder / "cases.json", self.folder / "show.py")
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
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": str(step),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": f"{local_size}(x2)",
        "SLURM_STEP_NODELIST": nodes,
    }


UNDER_TORCHRUN = {
    **slurm(local_size=1, size=2),
    **{"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"},
    **{"MASTER_ADDR": "a", "MASTER_PORT": "2000"},
}


def gpu(name, visibility=None):
    """Return the line of module.conf for a kind of GPU."""
    kind = GPU_KINDS[name]
    return f"rank_gpu {kind.tool} {visibility or kind.visibility} {kind.variable} {kind.among}".rstrip() + "\n"


ROCM, CUDA, ALL, OWN = gpu("rocm"), gpu("cuda"), gpu("rocm", "all"), gpu("cuda", "local_rank")


SEEN = [
    (ROCM, {}, {"ROCR": "1"}),
    # assigned to the job by Slurm
    (ROCM, {"ROCR_VISIBLE_DEVICES": "4,5,6,7"}, {"ROCR": "5"}),
    # assigned to the task by Slurm, or chosen by the image's entry point
    (ROCM, {"ROCR_VISIBLE_DEVICES": "6"}, {"ROCR": "6"}),
    (ROCM, {"ROCR_VISIBLE_DEVICES": "2,3", "SLURM_GPUS_PER_TASK": "2"}, {"ROCR": "2,3"}),
    (ALL, {"ROCR_VISIBLE_DEVICES": "6"}, {"ROCR": "6"}),
    (ALL, {"SLURM_GPUS_PER_TASK": "1"}, {}),
    (ALL, {"SLURM_GPU_BIND": "closest", "LOCAL_RANK": "1"}, {}),
    (ALL, {"SLURM_GPU_BIND": "none"}, {"LOCAL_RANK": "1"}),
    (ROCM, {"EBSIF_GPU_VISIBILITY": "all"}, {"LOCAL_RANK": "1"}),
    (ALL, {}, {"LOCAL_RANK": "1"}),
    (ALL, {"ROCR_VISIBLE_DEVICES": "4,5"}, {"ROCR": "4,5", "LOCAL_RANK": "1"}),
    (ALL, {"EBSIF_GPU_VISIBILITY": "local_rank"}, {"ROCR": "1"}),
    # HIP counts only the devices that ROCR leaves visible
    (ROCM, {"HIP_VISIBLE_DEVICES": "2,3"}, {"HIP": "3"}),
    (ROCM, {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1,0"}, {"ROCR": "4,5", "HIP": "0"}),
    (ROCM, {"ROCR_VISIBLE_DEVICES": "5", "HIP_VISIBLE_DEVICES": "5"}, {"ROCR": "5", "HIP": "0"}),
    (
        ALL,
        {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "4,5"},
        {"ROCR": "4,5", "HIP": "0,1", "LOCAL_RANK": "1"},
    ),
    (CUDA, {}, {"LOCAL_RANK": "1"}),
    (CUDA, {"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA": "3"}),
    (OWN, {}, {"CUDA": "1"}),
    ("", {}, {"LOCAL_RANK": "1"}),
]


def test_each_rank_sees_its_gpu(rank):
    """
    L-04, S002-61, S004-18 (in part): the local rank selects the GPU, unless the scheduler restricted it.

    LOCAL_RANK is set only if it's an index among the GPUs that the rank sees.
    """
    names = {"LOCAL_RANK": "LOCAL_RANK", **{kind: f"{kind}_VISIBLE_DEVICES" for kind in ("ROCR", "HIP", "CUDA")}}
    ranks = rank.each([(data, {**slurm(rank=1, local=1), **variables}) for data, variables, _ in SEEN])
    for case, (found, errors) in zip(SEEN, ranks):
        assert found, (case, errors)
        assert {kind: found[name] for kind, name in names.items() if name in found} == case[-1], case
        assert found["LOCAL_WORLD_SIZE"] == "2", case


def test_a_hidden_device_is_an_error(rank):
    """A device in HIP_VISIBLE_DEVICES that ROCR_VISIBLE_DEVICES hides is an error; nothing runs without a GPU."""
    found, errors = rank(ROCM, ROCR_VISIBLE_DEVICES="3", HIP_VISIBLE_DEVICES="1", **slurm(rank=1, local=1))
    assert found is None
    assert "rank 1: HIP_VISIBLE_DEVICES=1 is not among the 1 devices that ROCR_VISIBLE_DEVICES=3 leaves" in errors


def test_one_rank_on_a_node_sees_all_gpus(rank):
    """S002-61: torchrun needs all GPUs of the node, and so does a single process; torchrun's ranks choose."""
    (found, _), (started, _) = rank.each([(ROCM, slurm(local_size=1, size=2)), (ROCM, UNDER_TORCHRUN)])
    assert "ROCR_VISIBLE_DEVICES" not in found
    assert found["LOCAL_RANK"] == "0"
    assert (found["PET_NNODES"], found["PET_NODE_RANK"]) == ("2", "0")
    assert "ROCR_VISIBLE_DEVICES" not in started
    assert started["LOCAL_RANK"] == "1"


def test_ranks_of_torchrun_bind_themselves(rank, tmp_path):
    """T-08: to the CPUs of a mask for each local rank, or to NUMA domains, as far as the job has their CPUs."""
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    for number, cpus in enumerate((f"{first},3000", "4000-4001", last)):
        (tmp_path / f"domains/node{number}").mkdir(parents=True)
        (tmp_path / f"domains/node{number}/cpulist").write_text(f"{cpus}\n")

    def bound(way, **variables):
        _, errors = rank(
            binds=[f"{tmp_path}/domains:/sys/devices/system/node"],
            EBSIF_REPORT="1",
            EBSIF_CPU_BIND=way,
            **{**UNDER_TORCHRUN, "LOCAL_WORLD_SIZE": "2", **variables},
        )
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
    """A rank whose log can't be written stops, and says which file."""
    found, errors = rank(EBSIF_RANK_LOGS="/proc/none", **slurm(rank=1, size=16))
    assert found is None
    assert "rank 1: can't write /proc/none/rank-01.log (set EBSIF_RANK_LOGS to another directory)" in errors


def test_the_gpu_state_is_shown_once_per_node(rank, tmp_path):
    """S002-57: only local rank 0 shows it; a failing or missing tool does not end the job."""
    tool = tmp_path / "rocm-smi"
    bind = f"{tool}:/usr/bin/rocm-smi"
    write_program(tool, "#!/bin/sh\necho GPU is fine\nexit 3\n")
    found, errors = rank(ROCM, binds=[bind], **slurm())
    assert found
    assert "GPU is fine" in errors
    assert "rocm-smi failed, continuing without it" in errors
    found, errors = rank(ROCM, binds=[bind], **slurm(rank=1, local=1))
    assert found
    assert "GPU is fine" not in errors
    assert rank(ROCM, **slurm())[0]


def test_the_run_script_never_sleeps():
    """S002-66: The run script contains no waiting time."""
    text = (CONTAINER_FILES / "runscripts/conda-python-distributed").read_text()
    assert "sleep" not in text


def test_the_network_of_a_run(rank):
    """S002-60, S004-04 (in part), S002-71: variables from the site's data, blanks included; the user's value wins."""
    data = (
        "default NCCL_NET AWS Libfabric\ndefault NCCL_DEBUG WARN\nrank_unset CUDA_VISIBLE_DEVICES\n"
        "default *ENV_CUDA_VISIBLE_DEVICES 1\n"
    )
    found, _ = rank(data, CUDA_VISIBLE_DEVICES="0", **slurm())
    assert (found["NCCL_NET"], found["NCCL_DEBUG"]) == ("AWS Libfabric", "WARN")
    assert "CUDA_VISIBLE_DEVICES" not in found
    found, _ = rank(data, APPTAINERENV_NCCL_DEBUG="INFO", SINGULARITYENV_NCCL_DEBUG="INFO", **slurm())
    assert found["NCCL_DEBUG"] == "INFO"


def test_variables_of_the_person(rank):
    """G-01: exported variables reach the program, whatever their names are."""
    mine = dict.fromkeys(("rank", "size", "launcher", "variables", "starters", "name", "gpu", "kinds", "i"), "mine")
    code = "import json, os, sys; print(json.dumps({name: os.environ.get(name) for name in sys.argv[1:]}))"
    result = rank.start("/runscripts/conda-python-distributed", "-c", code, *mine, **mine, **slurm())
    assert json.loads(result.stdout) == mine


def test_the_port_depends_on_job_and_step(rank):
    """S002-63: other jobs and steps have other ports, outside the range that Linux uses for connections."""
    steps = ((100, 0), (100, 1), (100, 15), (101, 0), (102, 15), (1522, 0))
    *ranks, (mine, _) = rank.each(
        [
            *(("", slurm(rank=1, local=1, job=job, step=step)) for job, step in steps),
            ("", {"MASTER_PORT": "12345", "MASTER_ADDR": "here", **slurm()}),
        ]
    )
    ports = [int(found["MASTER_PORT"]) for found, _ in ranks]
    assert len(set(ports)) == len(steps)
    assert all(10000 <= port < 32768 for port in ports)
    assert (mine["MASTER_ADDR"], mine["MASTER_PORT"]) == ("here", "12345")


def test_the_port_does_not_depend_on_the_node(rank):
    """A node with another range of ports for connections computes the same port, so the ranks meet."""
    here = rank("", **slurm(rank=1, local=1))[0]["MASTER_PORT"]
    # a network namespace has its own settings
    other = 'echo 10500 20000 >/proc/sys/net/ipv4/ip_local_port_range && exec "$@"'
    before = ["unshare", "--map-root-user", "--net", "sh", "-c", other, "sh"]
    there = rank("", before=before, **slurm(rank=1, local=1))[0]
    assert there["MASTER_PORT"] == here


LAUNCHERS = [
    (
        {"PALS_RANKID": "3", "PMI_SIZE": "8", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "8", "PALS_APID": "1-2"},
        ("3", "8", "1", "8"),
    ),
    (
        {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "MASTER_PORT": "2000"},
        ("1", "2", "1", "2"),
    ),
    (
        {
            "OMPI_COMM_WORLD_RANK": "0",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": "12",
        },
        ("0", "2", "0", "2"),
    ),
    (
        {
            "MV2_COMM_WORLD_RANK": "1",
            "MV2_COMM_WORLD_SIZE": "2",
            "MV2_COMM_WORLD_LOCAL_RANK": "1",
            "MV2_COMM_WORLD_LOCAL_SIZE": "2",
            "MASTER_PORT": "2000",
        },
        ("1", "2", "1", "2"),
    ),
    # torchrun under srun: torchrun's variables apply
    (UNDER_TORCHRUN, ("5", "8", "1", "4")),
    ({}, ("0", "1", "0", "1")),
]


def test_the_rank_of_every_launcher(rank):
    """S002-64, S004-01: Slurm, PALS, PMI, Open MPI, MVAPICH, torchrun, none: rank, size, local rank, local size."""
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


BY_HAND = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "node7", "MASTER_PORT": "2000"}


def test_ranks_that_are_numbered_by_hand(rank):
    """RANK and WORLD_SIZE of a loop over nodes or Kubernetes count, or the rank says what is missing."""

    def seen(*names, **variables):
        found, errors = rank("", **variables)
        return tuple(found[name] for name in names) if found else errors

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "PET_NODE_RANK")
    assert seen(*names, **BY_HAND) == ("2", "4", "0", "1", "node7", "2")
    local = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert seen(*names[:5], **BY_HAND, **local) == ("2", "4", "1", "2", "node7")
    assert "the caller has no list of nodes: set MASTER_ADDR" in seen(*names, **{**BY_HAND, "MASTER_ADDR": ""})
    assert "set MASTER_PORT" in seen(*names, **{**BY_HAND, "MASTER_PORT": ""})
    assert "started by the caller, but RANK has no valid rank ('')" in seen(*names, **{**BY_HAND, "RANK": ""})
    assert "rank 4 of 4" in seen(*names, **{**BY_HAND, "RANK": "4"})
    assert "WORLD_SIZE has no valid size ('')" in seen(*names, **{**BY_HAND, "WORLD_SIZE": ""})
    assert "rank 2 of 1" in seen(*names, **{**BY_HAND, "WORLD_SIZE": "1"})
    # a launcher's numbers count
    assert seen("RANK", "WORLD_SIZE", **BY_HAND, **slurm(rank=1)) == ("1", "4")
    assert seen("RANK", "WORLD_SIZE", RANK="0", WORLD_SIZE="1") == ("0", "1")


def test_accelerate_on_another_number_of_nodes(rank):
    """accelerate fails when started on more or fewer nodes than it is told; no node trains alone."""

    def start(*options, **variables):
        launch = ("/runscripts/conda-python-distributed", "-m", "accelerate.commands.launch")
        return rank.start(*launch, *options, "a.py", "--num_machines=7", **variables).stderr

    two, one = slurm(local_size=1, size=2), slurm(local_size=1, size=1, nodes="nid1")
    starts = "No module named 'accelerate'"
    for options in (("--num_machines=1",), ("--multi_gpu", "--num-machines", "3", "--num_processes=6")):
        said = start(*options, **two)
        assert ", but Slurm has started it on 2: change --num_machines" in said and "`ebsif job --nodes 2`" in said
    assert "accelerate was given --num_machines=2, but Slurm has started it on 1: " in start("--num_machines=2", **one)
    assert starts in start("--num_machines=2", **two)
    assert starts in start(**two)
    # the program's own options
    assert starts in start("--num_machines=2", "--no_python", "./t", "--num_machines", "8", **two)
    assert starts in start("--num_machines=2", "./t", "--num_machines=8", **two)
    # a loop over nodes with ranks of its own
    assert starts in start("--num_machines=2", "--machine_rank=1")


def test_variables_of_the_step_in_which_a_job_was_submitted(rank, tmp_path):
    """The title of Slurm's process tells a step from a job script, and another job; Flux has two processes."""
    shutil.copy("/bin/bash", tmp_path / "slurmstepd")
    for name in ("flux-shell", "flux-broker-0", "launch"):
        write_program(tmp_path / name, '#!/bin/bash\n"$@"\nexit\n')

    def started(*by, **variables):
        result = rank.start(*by, "/runscripts/conda-python-distributed", tmp_path / "show.py", **variables)
        (found,) = shown(result.stdout) or [{}]
        return (found["RANK"], found["WORLD_SIZE"], found["MASTER_ADDR"]) if found else result.stderr

    def slurmstepd(title):
        title = f"slurmstepd: [{title}]"
        return "bash", "-c", f"exec -a '{title}' {tmp_path}/slurmstepd -c '\"$@\"; exit' bash \"$@\"", "bash"

    alone, lost = ("0", "1", "127.0.0.1"), "started by Slurm, but SLURM_PROCID has no valid rank"
    inherited = slurm(rank=1, job=100, step=0)
    assert started(*slurmstepd("100.0"), **inherited) == ("1", "4", "nid1")
    assert started(*slurmstepd("100.0+1"), **inherited) == ("1", "4", "nid1")
    # a component of a heterogeneous job
    assert started(*slurmstepd("101.0"), **inherited, SLURM_HET_SIZE="2") == ("1", "4", "nid1")
    for title in ("100.batch", "100.interactive", "100.extern", "99.0"):
        assert started(*slurmstepd(title), **inherited) == alone, title
    assert started(*slurmstepd("100.batch")) == alone
    assert lost in started(*slurmstepd("100.0"))
    assert "this job has 2 tasks, but" in started(*slurmstepd("100.batch"), **inherited, SLURM_NTASKS="2")
    # a job that a rank of torchrun has submitted
    stale = {name: value for name, value in UNDER_TORCHRUN.items() if name not in inherited}
    assert started(*slurmstepd("100.0"), **stale, **inherited) == ("1", "4", stale["MASTER_ADDR"])
    assert started(*slurmstepd("100.batch"), **stale) == ("0", "1", stale["MASTER_ADDR"])
    assert started(*slurmstepd("100.0"), tmp_path / "launch", **stale, **inherited)[:2] == ("5", "8")
    # FLUX_TASK_RANK is lost
    assert "started by Flux, but FLUX_TASK_RANK has no valid rank" in started(tmp_path / "flux-shell")
    assert started(tmp_path / "flux-shell", tmp_path / "flux-broker-0", FLUX_TASK_RANK="3") == alone


LEFT_OUT = [
    ({"SLURM_LOCALID": ""}, "started by Slurm, but SLURM_LOCALID has no valid local rank"),
    ({"SLURM_LOCALID": "x[$(id)]"}, "started by Slurm, but SLURM_LOCALID has no valid local rank"),
    ({"SLURM_STEP_TASKS_PER_NODE": ""}, "has no valid local size"),
    ({"SLURM_PROCID": "4"}, "the values of Slurm are inconsistent: rank 4 of 4"),
    ({"SLURM_STEP_NODELIST": ""}, "this is not a node list in Slurm's format: ''"),
    # F-08: these may be of a launcher that has started srun, or of one that srun has started
    (
        {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
        "two launchers have set variables (Slurm: rank 0 of 4; PMI: rank 1 of 2)",
    ),
    # F-08
    (
        {"SLURM_STEP_ID": "", "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
        "PMI does not tell the ranks what distinguishes this run from another one",
    ),
]


def test_missing_variables_of_a_launcher(rank):
    """S002-65: a missing or wrong variable stops the rank; nothing is guessed."""
    ranks = rank.each([("", {**slurm(), **variables}) for variables, _ in LEFT_OUT])
    for (variables, expected), (found, errors) in zip(LEFT_OUT, ranks):
        assert found is None, variables
        assert expected in errors, variables


def test_the_innermost_launcher_decides(rank, tmp_path):
    """F-08: mpirun in a job step; a step may have several runs, so its number does not distinguish them."""

    def start(process, prefix, **variables):
        names = ("COMM_WORLD_RANK", "COMM_WORLD_SIZE", "COMM_WORLD_LOCAL_RANK", "COMM_WORLD_LOCAL_SIZE")
        # the name of the process is that of the script
        write_program(tmp_path / process, '#!/bin/bash\n"$@"\nexit\n')
        words = (tmp_path / process, "/runscripts/conda-python-distributed", tmp_path / "show.py")
        told = dict(zip([f"{prefix}_{name}" for name in names], "0202"))
        return rank.start(*words, **slurm(), **told, **variables)

    said = "Open MPI does not tell the ranks what distinguishes this run from another one"
    assert said in start("mpirun", "OMPI").stderr
    runs = [shown(start("mpirun.openmpi", "OMPI", PMIX_NAMESPACE=name).stdout) for name in ("12", "13")]
    assert [(one["WORLD_SIZE"], one["MASTER_ADDR"]) for (one,) in runs] == [("2", "127.0.0.1")] * 2
    assert runs[0][0]["MASTER_PORT"] != runs[1][0]["MASTER_PORT"]
    (found,) = shown(start("mpispawn", "MV2").stdout)
    assert found["WORLD_SIZE"] == "2"
    # it starts mpispawn
    assert "two launchers have set variables (Slurm: " in start("mpirun_rsh", "MV2").stderr
