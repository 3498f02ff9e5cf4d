"""The batch scripts of `ebsif job` and their run script job.bash, with stand-ins for scheduler and container."""

import os
import shutil
import signal
import subprocess

import pytest
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from ebsif.catalog import site
from ebsif.jobs import job
from support import CONTAINER_FILES, until, write_program

# The schedulers start one rank, on this machine.
STARTER = """#!/bin/bash
while [[ $1 == -* ]]; do
    case $1 in -n | -ppn | --cpu-bind) shift ;; esac
    shift
done
exec "$@"
"""
# Runs the program with bash; says what of the record is written, and signals the job then if SIGNAL_AT is that.
SINGULARITY = """#!/bin/bash
case $3 in
    conda-python-distributed) exec bash "${@:4}" ;;
    /runscripts/conda-python-simple)
        touch "$5"
        case $6 in --status) echo "record ${*:6}" ;; *) echo "record $6" ;; esac
        [[ ${SIGNAL_AT:-} != "$6" ]] || kill -USR1 $PPID ;;
    *) echo "$3" ;;
esac
"""
# Says what it is asked to do; there is nothing to copy.
STAGE = """#!/bin/bash
case $1 in
    --plan) echo /nowhere ;;
    --use) exec "${@:2}" ;;
    *) echo "stage $*" ;;
esac
"""
# A program that ends with a status when it gets the signal.
WAITS = """trap "sleep 0.2; exit $1" USR1
touch up
for ((i = 0; i < 600; i++)); do sleep 0.05; done
exit 99
"""


class Batch:
    """A folder in which batch scripts run as in a job of any scheduler."""

    def __init__(self, folder):
        self.folder = folder
        programs, scripts = folder / "programs", folder / "runscripts"
        programs.mkdir()
        shutil.copytree(CONTAINER_FILES / "runscripts", scripts)
        for name, text in (
            ("srun", STARTER),
            ("mpiexec", STARTER),
            ("singularity", SINGULARITY),
            ("scontrol", '#!/bin/bash\necho "scontrol $*"\n'),
            ("flux", "#!/bin/bash\necho node1\n"),
        ):
            write_program(programs / name, text)
        (scripts / "stage-software").write_text(STAGE)
        for name in ("stage-software", "slurm-rank", "get-master"):
            (scripts / name).chmod(0o755)
        (folder / "share/ebsif").mkdir(parents=True)
        (folder / "share/ebsif/lock.json").touch()
        (folder / "nodes").write_text("node1\nnode1\nnode2\n")
        slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "3"}
        pbs = {"PBS_JOBID": "7.server", "PBS_NODEFILE": folder / "nodes", "PBS_O_WORKDIR": folder}
        module = {"RUNSCRIPTS": scripts, "CONTAINERROOT": folder, "SIF": "x", "BASH_FUNC_module%%": "() { :; }"}
        self.environment = {"PATH": f"{programs}:{os.environ['PATH']}", **slurm, **pbs, **module}

    def start(self, text, **environment):
        """Start a batch script; return its Popen."""
        ends = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**self.environment, **environment}
        return subprocess.Popen(["bash", "-c", text], cwd=self.folder, env=environment, text=True, **ends)

    def run(self, text, **environment):
        """Run a batch script; return its status, the lines of its output, and its errors."""
        started = self.start(text, **environment)
        said, errors = started.communicate(timeout=60)
        return started.returncode, said.splitlines(), errors

    def of(self, name, program, **request):
        """Return the script for a site that runs a program, a text for bash with its arguments."""
        (self.folder / "program").write_text(program)
        arguments = request.pop("arguments", ())
        wanted = job.JobRequest("M/1", ("program", *arguments), account="A", **request)
        return job.script(wanted, site.read(name))


@pytest.fixture
def batch(tmp_path):
    """A folder for batch scripts."""
    return Batch(tmp_path)


def can_requeue(name):
    """Return whether a job of a site can return to the queue."""
    return name != "derecho"


def at_end(name, status):
    """Return what the script of a site says at the end of a job."""
    return ["record --nodes", f"record --status {status}", *(["remove-caches"] if name == "lumi" else [])]


@pytest.mark.parametrize("name", site.names())
def test_the_job_has_the_status_of_the_program(name, batch):
    """T-11: the record begins before the ranks start and ends with their status, which is that of the job."""
    for status in (0, 7):
        text = batch.of(name, "echo runs; exit $1", arguments=[str(status)])
        begun, *rest = at_end(name, status)
        assert batch.run(text)[:2] == (status, [begun, "runs", *rest])
        # lines that a person adds run after the program, unless it has failed
        assert batch.run(f"{text}echo mine")[1][-1] == ("mine" if status == 0 else rest[-1])


@pytest.mark.parametrize("name", site.names())
@pytest.mark.parametrize("status", [0, 9])
def test_the_signal_decides_what_follows(name, status, batch):
    """T-07, without a scheduler: the program gets the signal, and the script ends with the program's status."""
    text = batch.of(name, WAITS, arguments=[str(status)], signal=60, requeue=can_requeue(name))
    with batch.start(text) as started:
        until(lambda: (batch.folder / "up").exists())
        started.send_signal(signal.SIGUSR1)
        said, errors = started.communicate(timeout=60)
    again = ["scontrol requeue 7"] if status == 0 and can_requeue(name) else []
    assert (started.returncode, said.splitlines()) == (status, [*at_end(name, status), *again]), errors


@pytest.mark.parametrize(
    ("request_", "status", "again"),
    [({}, 1, []), ({"segments": 2}, 0, []), ({"requeue": True}, 0, ["scontrol requeue 7"])],
)
@pytest.mark.parametrize(
    "moment", [{"SIGNAL_AT": "--nodes"}, {"BASH_FUNC_module%%": "() { [[ $1 != load ]] || kill -USR1 $$; }"}]
)
def test_a_signal_before_the_program_starts(request_, status, again, moment, batch):
    """T-07: it would end the program, which is left to the next job; it may come while the module is loaded."""
    text = batch.of("local", "touch up", signal=60, **request_)
    found, said, errors = batch.run(text, **moment)
    assert (found, said) == (status, [*at_end("local", status), *again]), errors
    assert "the signal came before the program had started" in errors
    assert not (batch.folder / "up").exists()


@pytest.mark.parametrize(("array", "again"), [("7", "7_3"), ("5", "7")])
def test_only_one_member_of_an_array_returns_to_the_queue(array, again, batch):
    """T-07: Slurm gives the ID of an array also to its last member; other members have an ID of their own."""
    text = batch.of("local", "touch up", signal=60, requeue=True)
    member = {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": "3"}
    said = batch.run(text, SIGNAL_AT="--nodes", **member)[1]
    assert said[-1] == f"scontrol requeue {again}"


@pytest.mark.parametrize("name", site.names())
@pytest.mark.parametrize("status", [0, 9])
def test_a_signal_after_the_program_has_ended(name, status, batch):
    """T-07: it changes nothing: the job has the program's status, and does not return to the queue."""
    text = batch.of(name, "exit $1", arguments=[str(status)], signal=60, requeue=can_requeue(name))
    found, said, errors = batch.run(text, SIGNAL_AT="--status")
    assert (found, [line for line in said if "scontrol" in line]) == (status, []), errors


def test_a_signal_that_is_overdue(batch):
    """T-07: a timer signals at once if there is no time left, as when user software takes long to be copied."""
    late = 'SECONDS=1790; source "$RUNSCRIPTS/job.bash" pbs x; job_signal end 60 1800'
    assert batch.run(f"{late}; until ((ebsif_signals)); do sleep 0.05; done")[0] == 0


def test_data_is_fetched_before_the_job(batch):
    """S002-70: if data is missing, the job stops before any rank starts and says where to fetch it."""
    path = batch.folder / "da ta"
    text = batch.of("local", "echo $APPTAINER_BIND", data=(job.Data(str(path), "/data"), job.Data("/")))
    status, said, errors = batch.run(text)
    assert (status, said) == (1, [])
    assert f"{path} is missing: download it on a login node" in errors
    path.touch()
    assert batch.run(text, SINGULARITY_BIND="/own")[1][1] == f"/own,{path}:/data"


@pytest.mark.parametrize(
    ("name", "steps"),
    [("local", ["--prepare", "--broadcast sbcast --preserve --send-libs=no", "--check"]), ("derecho", ["--copy"])],
)
def test_copies_are_made_and_removed(name, steps, batch):
    """T-05: nodes get copies before the ranks start, which use them, and the job removes them."""
    said = batch.run(batch.of(name, 'echo "runs with $EBSIF_STAGED"', stage="user_software"))[1]
    said = [line for line in said if not line.startswith("record")]
    assert said == [*(f"stage {step}" for step in steps), "runs with /nowhere", "stage --remove"]


@pytest.mark.parametrize("name", site.names())
def test_a_job_leaves_the_copies_of_others(name, batch):
    """T-05: the job that has submitted this one may still run with its copies, which its environment names."""
    said = batch.run(batch.of(name, 'echo "runs with $EBSIF_STAGED"'), EBSIF_STAGED="/elsewhere")[1]
    assert said[1:] == ["runs with ", *at_end(name, 0)[1:]]


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"PBS_JOBID": "31.server.example.org"}, "train-31"),
        ({"PBS_JOBID": "32[7].server", "PBS_ARRAY_INDEX": "7"}, "train-32_7"),
    ],
)
def test_a_pbs_job(batch, variables, name):
    """S004-03: no server or brackets in names of files; the ranks meet on the first node, at a port as elsewhere."""
    values = 'echo "$ebsif_run $MASTER_ADDR $ebsif_nodes ${ebsif_each_node[*]}"'
    number = "steps_per_job * {} + {}".format(*[*name.partition("-")[2].split("_"), 0][:2])
    port = f'(source "$RUNSCRIPTS/get-master"; port_of "$(({number}))"; echo "$((MASTER_PORT - port))")'
    _, said, _ = batch.run(f'source "$RUNSCRIPTS/job.bash" pbs train\n{values}\n{port}', **variables)
    assert said == [f"{name} node1 node1,node2 mpiexec -n 2 -ppn 1", "0"]


def test_an_unknown_scheduler(batch):
    """T-10: a script for a scheduler that this installation doesn't know ends before anything runs, and says why."""
    status, said, errors = batch.run('source "$RUNSCRIPTS/job.bash" lsf train; echo runs')
    assert (status, said) == (1, [])
    assert "schedulers/lsf.bash: the installation is incomplete, or the scheduler 'lsf' is unknown" in errors


@pytest.mark.parametrize(
    ("kind", "variables", "described", "known_as"),
    [
        # the members of an array, 12_3 and 12_4, are jobs of their own
        ("slurm", {"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12"}, "RUNNING me n7 13\nRUNNING me n7 14\n", "14"),
        ("pbs", {"PBS_JOBID": "12.pbs.example.org"}, "Job Id: 12.pbs.example.org\n  Job_Owner = me@n1\n", "12"),
        ("pbs", {"PBS_JOBID": "12[3].pbs", "PBS_ARRAY_INDEX": "3"}, "Job Id: 12[3].pbs\n  Job_Owner = me@n\n", "12[3]"),
        ("flux", {"FLUX_ENCLOSING_ID": "ƒ2xYz"}, "f2xYz RUN me n7\n", "f2xYz"),
        ("flux", {"FLUX_ENCLOSING_ID": "f2xYz"}, "f2xYz SCHED me\n", "f2xYz"),
    ],
)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_the_id_by_which_a_server_is_found(batch, kind, variables, described, known_as, locale):
    """Y-04, L-09: a job and its scheduler spell the ID alike, also of a member of an array, and of Flux."""
    text = f'source "$RUNSCRIPTS/job.bash" {kind} x; job_server; printf "%s\n" "$EBSIF_JOB"'
    status, said, errors = batch.run(text, LC_ALL=locale, **variables)
    assert (status, said) == (0, [known_as]), errors
    described = described.replace("\n  Job_Owner", "\n  Job_Name = x\n  Job_Owner") + "  job_state = R\n"
    assert known_as in [one.id for one in SCHEDULERS[kind].jobs(described)]


def test_the_other_name_of_the_runtime(batch, tmp_path):
    """Where the runtime is called apptainer only, the record is written and caches are removed, too."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for program in ("bash", "env", "mkdir", "touch", "rm"):
        (tools / program).symlink_to(shutil.which(program))
    (batch.folder / "programs/singularity").rename(batch.folder / "programs/apptainer")
    text = 'source "$RUNSCRIPTS/job.bash" slurm run\njob_describe a b true\njob_run --remove-caches true\n'
    done = batch.run(text, PATH=f"{batch.folder}/programs:{tools}")
    assert done[:2] == (0, ["record --nodes", "record --status 0", "remove-caches"])


@pytest.mark.parametrize(
    ("name", "variable", "command"), [("lumi", "SLURM_JOB_ID", "sbatch"), ("derecho", "PBS_JOBID", "qsub")]
)
def test_a_script_that_is_not_submitted(batch, name, variable, command):
    """T-10: bash starts no rank on a login node, and writes no record; the message says what to do."""
    del batch.environment[variable]
    with batch.start(batch.of(name, "echo started")) as started:
        said, errors = started.communicate(timeout=60)
    assert (said, started.returncode != 0) == ("", True)
    assert errors.endswith(f"{variable}: submit this script with {command}\n")


def test_srun_has_the_cpus_of_the_job(batch):
    """By itself, srun doesn't take them from the job."""
    assert batch.run(batch.of("archer2", "echo $SRUN_CPUS_PER_TASK"))[1][1] == "3"
