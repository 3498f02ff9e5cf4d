"""Whole trainings with `ebsif job` on a Slurm cluster: signals, requeueing, segments, data, records."""

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from account import as_root
from serving import CLIENT, SERVER, Job, ask
from slurm import ALL_NODES, NODES
from support import record_of, write_program

# A training without PyTorch: each rank counts steps, saves the last one every fifth step and when it is asked to, and
# goes on from there when it is started again. The file `finish` ends it.
STEPS = """
import os, signal, sys, time
from pathlib import Path

rank, node = os.environ["RANK"], os.environ["SLURMD_NODENAME"]
saved = Path(f"saved-{rank}")
step = int(saved.read_text()) if saved.exists() else 0
asked = False

def ask(*_):
    global asked
    asked = True
    # the runtime passes the signal on a second time, perhaps while Python exits
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)

def save():
    Path(f"new-{rank}").write_text(str(step))
    os.replace(f"new-{rank}", saved)

for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, ask)
print("starts at", step, flush=True)
Path(f"up-{os.environ.get('SLURM_RESTART_COUNT', 0)}-{rank}").write_text(f"{node} {os.getpid()}")
while not asked and not Path("finish").exists():
    time.sleep(0.3)
    step += 1
    print("step", step, flush=True)
    if step % 5 == 0:
        save()
save()
print("saved" if asked else "finished", step, flush=True)
"""

# A program that reads files of the container for the first time when it saves its state; with a state, it has finished.
SAVES = """
import signal, sys, time
from pathlib import Path

saved, up, asked = Path(sys.argv[1]), Path(sys.argv[1] + "-up"), []
numbers = (signal.SIGUSR1, signal.SIGTERM)
for number in numbers:
    signal.signal(number, lambda *_: asked.append([signal.signal(number, signal.SIG_IGN) for number in numbers]))
up.touch()
while not asked and not saved.exists():
    time.sleep(0.2)
if asked:
    import sqlite3, unittest, xmlrpc.server
    saved.write_text(unittest.__file__)
"""

# States of a job that can go on; SIGNALING is that of one which is just sent a signal.
UNFINISHED = ("PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "COMPLETING", "REQUEUED")


class Jobs:
    """Jobs of a person in a folder, with a module on the cluster."""

    def __init__(self, installed, cluster, folder):
        self.installed, self.cluster, self.folder = installed, cluster, folder
        self.module = installed.WRITABLE
        self.names = []

    def bash(self, script, check=True, **environment):
        """Run a bash script in the folder; return the CompletedProcess."""
        return self.installed.site.bash(script, check, cwd=self.folder, **self.cluster.environment, **environment)

    def ebsif(self, options, program, **environment):
        """Run `ebsif job` with the module."""
        return self.bash(f"ebsif job {self.module} --partition wide {options} -- {program}", **environment)

    def submit(self, options, program, **environment):
        """Submit jobs; return their IDs."""
        said = self.ebsif(f"{options} --submit", program, **environment).stdout
        self.names += (found := re.findall(r"^Submitted batch job (\d+)$", said, re.MULTILINE))
        return found

    def show(self, job):
        """Return what Slurm knows about a job (dict)."""
        return dict(
            word.split("=", 1) for word in self.cluster.slurm("scontrol", "show", "job", job).split() if "=" in word
        )

    def wait(self, what, seconds=900):
        """Wait until a condition is true."""
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, self.said()
            time.sleep(0.2)
        return found

    def ended(self, job):
        """Wait until a job has ended; return what Slurm knows about it."""

        def state():
            found = self.show(job)
            return found if found["JobState"] not in UNFINISHED else None

        return self.wait(state)

    def started(self, ranks, restart=0):
        """Wait until all ranks of a start of the last job count; return node and process of each."""

        def all_up():
            assert self.show(self.names[-1])["JobState"] in UNFINISHED, self.said()
            found = [self.folder / f"up-{restart}-{rank}" for rank in range(ranks)]
            texts = [path.read_text() for path in found if path.exists()]
            return [text.split() for text in texts] if len([text for text in texts if text]) == ranks else None

        return self.wait(all_up)

    def processes(self, *jobs):
        """Return the processes of jobs (dict of name by number), also those that mount the image, which hide whose."""
        image, found = self.installed.root(self.module) / "example.sif", {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                if any(f"SLURM_JOB_ID={job}".encode() in variables for job in jobs) or any(
                    path.readlink() == image for path in (folder / "fd").iterdir()
                ):
                    found[folder.name] = (folder / "comm").read_text().strip()
        return found

    def said(self):
        """Return all output of jobs in the folder, and their states."""
        logs = [f"{path.name}:\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.out")]
        return "\n".join([*logs, self.cluster.slurm("squeue", "-a", "-o", "%i %T %r %N")])

    def log(self, job, name="steps"):
        """Return the log of a job."""
        return (self.folder / f"{name}-{job}.out").read_text()

    def record(self, job, name="steps"):
        """Return the record of a job."""
        return json.loads((self.folder / f"{name}-{job}.json").read_text())

    @property
    def rank_logs(self):
        """The environment in which each rank writes a log of its own."""
        return {"EBSIF_RANK_LOGS": self.folder / "ranks"}

    def ranks(self, number):
        """Return the lines that each rank has written to its own log."""
        paths = sorted((self.folder / "ranks").iterdir())
        assert [path.name for path in paths] == [f"rank-{rank:0{len(str(number - 1))}}.log" for rank in range(number)]
        return [path.read_text().splitlines() for path in paths]


@pytest.fixture
def jobs(installed_once, cluster, tmp_path):
    """A person with a folder for jobs, which end with the test."""
    person = Jobs(installed_once, cluster, tmp_path)
    (tmp_path / "steps.py").write_text(STEPS)
    yield person
    if person.names:
        person.cluster.slurm("scancel", "--signal=KILL", "--full", *person.names)
        person.cluster.slurm("scancel", *person.names)


def check_continued(lines, killed=False):
    """Check that a rank has gone on, each time it was started, at the step that it had saved."""
    starts = [number for number, line in enumerate(lines) if line.startswith("starts at ")]
    for before, start in zip(starts, starts[1:]):
        last = lines[start - 1]
        found = int(lines[start].split()[-1])
        if last.startswith("saved "):
            assert found == int(last.split()[1]) > 0
        else:
            # killed: what was saved before
            assert killed and found == max(int(last.split()[-1]) // 5 * 5, int(lines[before].split()[-1]))
    assert lines[-1].startswith("finished ")
    return len(starts)


def test_it_goes_on_where_it_was(jobs, request):
    """
    T-07: two nodes with four ranks each go on at the right step after the signal, and after a node has died.

    The signal is what Slurm sends before the time limit. The status is that of the program.
    """
    (job,) = jobs.submit(
        "--nodes 2 --tasks-per-node 4 --time 1:00:00 --signal 60 --requeue", "steps.py", **jobs.rank_logs
    )
    places = jobs.started(8)
    first = {node for node, _ in places}
    assert len(first) == 2
    jobs.cluster.slurm("scancel", "--batch", "--signal=USR1", job)
    places = jobs.started(8, restart=1)
    batch_host = jobs.show(job)["BatchHost"]
    lost = next(node for node, _ in places if node != batch_host)
    request.addfinalizer(lambda: jobs.cluster.revive(lost))
    jobs.cluster.kill_node(lost, [int(process) for node, process in places if node == lost])
    places = jobs.started(8, restart=2)
    assert lost not in {node for node, _ in places}
    (jobs.folder / "finish").touch()
    found = jobs.ended(job)
    assert (found["JobState"], found["ExitCode"], found["Restarts"]) == ("COMPLETED", "0:0", "2"), jobs.said()
    for lines in jobs.ranks(8):
        assert check_continued(lines, killed=True) == 3
    # the log is continued, the record has every start
    runs = jobs.record(job)["runs"]
    assert [run["status"] for run in runs] == [0, None, 0]
    assert all(len(run["nodes"]) > 3 and run["started"] for run in runs)


@pytest.mark.nightly
def test_four_nodes_are_put_back_into_the_queue(jobs):
    """T-07: after `scontrol requeue`, 32 ranks on four nodes go on at the right step; the status is the program's."""
    (job,) = jobs.submit("--nodes 4 --tasks-per-node 8 --requeue", "steps.py", **jobs.rank_logs)
    assert {node for node, _ in jobs.started(32)} == set(ALL_NODES)
    jobs.cluster.slurm("scontrol", "requeue", job)
    jobs.started(32, restart=1)
    (jobs.folder / "finish").touch()
    assert jobs.ended(job)["JobState"] == "COMPLETED", jobs.said()
    for lines in jobs.ranks(32):
        assert check_continued(lines) == 2


@pytest.mark.nightly
def test_slurm_sends_the_signal(jobs):
    """T-07: before the time limit the program saves and exits with 0; the next segment goes on from there."""
    first, second = jobs.submit("--time 0:03:00 --signal 60 --segments 2 --name steps", "steps.py")
    assert jobs.ended(first)["JobState"] == "COMPLETED", jobs.said()
    assert re.search(r"^saved \d+$", jobs.log(first), re.MULTILINE)
    (jobs.folder / "finish").touch()
    assert jobs.ended(second)["JobState"] == "COMPLETED", jobs.said()
    assert int(re.search(r"^starts at (\d+)$", jobs.log(second), re.MULTILINE)[1]) == int(
        re.search(r"^saved (\d+)$", jobs.log(first), re.MULTILINE)[1]
    )


def test_a_program_without_a_handler(jobs):
    """T-07: a program that the signal ends fails its job with its status, and isn't put back into the queue."""
    (jobs.folder / "deaf.py").write_text("import time\nopen('up', 'w').close()\ntime.sleep(300)\n")
    (job,) = jobs.submit("--signal 60 --requeue", "deaf.py")
    jobs.wait((jobs.folder / "up").exists)
    jobs.cluster.slurm("scancel", "--batch", "--signal=USR1", job)
    found = jobs.ended(job)
    assert (found["JobState"], found["ExitCode"], found["Restarts"]) == ("FAILED", "138:0", "0"), jobs.said()


@pytest.mark.parametrize("number", ["USR1", pytest.param("TERM", marks=pytest.mark.nightly)])
def test_a_signal_to_all_processes(jobs, number):
    """F-01 (T-07): what mounts images survives it, so each program saves its state; afterwards nothing of it stays."""
    (jobs.folder / "save.py").write_text(SAVES)
    found = jobs.submit("--signal 60 --requeue --name steps", "save.py job")
    for name, start in (
        ("wrapper", "start-shell -c 'exec python save.py wrapper'"),
        ("plain", "singularity exec $SIF python save.py plain"),
    ):
        lines = f"#!/bin/bash\nmodule load {jobs.module}\nsrun -n 1 {start} || exit\n"
        (jobs.folder / f"{name}.sh").write_text(lines)
        found += [jobs.bash(f"sbatch --parsable -o '%x-%j.out' {name}.sh").stdout.strip()]
        jobs.names.append(found[-1])
    names = ("job", "wrapper", "plain")
    for name in names:
        jobs.wait((jobs.folder / f"{name}-up").exists, 60)
    assert "squashfuse_ll" in jobs.processes(*found).values()
    if number == "TERM":
        jobs.cluster.slurm("scancel", *found)
    else:
        # the job script passes it on to the step
        jobs.cluster.slurm("scancel", "--batch", "--signal=USR1", found[0])
        jobs.cluster.slurm("scancel", "--signal=USR1", *found[1:])
    ends = [jobs.ended(job) for job in found]
    expected = ("CANCELLED", "0") if number == "TERM" else ("COMPLETED", "0")
    assert [(one["JobState"], one["ExitCode"].split(":")[0]) for one in ends] == [expected] * 3, jobs.said()
    assert ends[0]["Restarts"] == ("0" if number == "TERM" else "1"), jobs.said()
    for name in names:
        assert (jobs.folder / name).read_text().endswith("unittest/__init__.py"), jobs.said()
    jobs.wait(lambda: not jobs.processes(*found), 30)


def test_a_rank_that_is_killed(jobs):
    """T-04: the other rank of its node goes on; after the job none of its processes stays, also of those that mount."""
    (jobs.folder / "steps.sh").write_text(
        f"#!/bin/bash\nmodule load {jobs.module}\nsrun -n 2 singularity exec $SIF conda-python-distributed steps.py\n"
    )
    job = jobs.bash("sbatch --parsable -n 2 -o '%x-%j.out' -J steps steps.sh").stdout.strip()
    jobs.names.append(job)
    _, (_, killed) = jobs.started(2)
    assert [name for name in jobs.processes(job).values() if "fuse" in name] == ["squashfuse_ll"] * 2
    os.kill(int(killed), signal.SIGKILL)
    jobs.wait(lambda: not Path(f"/proc/{killed}").exists())
    steps = jobs.log(job).count("step ")
    jobs.wait(lambda: jobs.log(job).count("step ") > steps + 3, 60)
    (jobs.folder / "finish").touch()
    found = jobs.ended(job)
    assert (found["JobState"], found["ExitCode"]) == ("FAILED", "137:0"), jobs.said()
    assert len(re.findall("^finished ", jobs.log(job), re.MULTILINE)) == 1
    jobs.wait(lambda: not jobs.processes(job), 30)


def test_segments_stop_at_the_first_failure(jobs):
    """T-13: each segment starts after the success of the one before; after a failure the rest leave the queue."""
    (jobs.folder / "part.py").write_text(
        "import os, sys\nprint('part', file=open('parts', 'a'))\n"
        "sys.exit(4 if len(open('parts').readlines()) == 2 else 0)\n"
    )
    chain = jobs.submit("--segments 4", "part.py")
    assert len(chain) == 4
    states = [(found["JobState"], found["ExitCode"]) for found in map(jobs.ended, chain)]
    assert states == [("COMPLETED", "0:0"), ("FAILED", "4:0"), *[("CANCELLED", "0:0")] * 2], jobs.said()
    assert (jobs.folder / "parts").read_text() == "part\n" * 2


def test_data_in_every_rank(jobs):
    """
    T-09: a SquashFS file and a directory are in all ranks where --data says, beside the person's own binds.

    Also the person's own variables, whatever words the job script has for its own.
    """
    for name in ("images", "more,data"):
        (jobs.folder / name).mkdir()
        (jobs.folder / name / "file").write_text(f"of {name}")
    jobs.bash("mksquashfs images 'all images.squashfs' -quiet -no-progress")
    (jobs.folder / "read.py").write_text(
        "import os, sys\n"
        "texts = [open(path).read() for path in ('/data/file', '/more/file', '/own/file')]\n"
        "changed = [name for name in os.environ['NAMES'].split() if os.environ.get(name) != 'of ' + name]\n"
        'sys.stdout.write(f\'{os.environ["RANK"]} {os.access("/data", os.W_OK)} {texts} {changed}\\n\')\n'
    )
    for variable in ("SINGULARITY_BIND", "APPTAINER_BIND"):
        script = jobs.ebsif(
            "--nodes 2 --tasks-per-node 2 --data 'all images.squashfs:/data' --data 'more,data:/more' "
            "--data images --signal 60",
            "read.py",
        ).stdout
        (jobs.folder / "read.sh").write_text(script)
        # the runtime takes two for itself
        names = set(re.findall(r"(?<![\w$-])[a-z]\w*", re.sub("(?m)^#.*", "", script))) - {"e", "key"}
        names = " ".join(sorted(name for name in names if not name.startswith(("ebsif_", "job_"))))
        submit = 'for NAME in $NAMES; do export "$NAME=of $NAME"; done; sbatch --parsable read.sh'
        job = jobs.bash(submit, NAMES=names, **{variable: f"{jobs.folder}/images:/own"}).stdout.strip()
        said = jobs.ended(job)["JobState"]
        lines = jobs.log(job, "read").splitlines()
        assert sorted(line for line in lines if line[0].isdigit()) == [
            f"{rank} False ['of images', 'of more,data', 'of images'] []" for rank in range(4)
        ], (said, lines)
        assert not [line for line in lines if "WARNING" in line or "INFO" in line]


def test_nothing_is_submitted_without_module_or_program(jobs):
    """T-10: a module, a program or data that do not exist are named, and nothing is in the queue."""
    cases = {
        "--submit -- missing.py": "missing.py does not exist in",
        "--submit --data gone.squashfs:/data -- steps.py": "gone.squashfs, which --data names, does not exist",
    }
    said = [jobs.bash(f"ebsif job {jobs.module} --name never {words}", check=False) for words in cases]
    said.append(jobs.bash("ebsif job No/such --name never --submit -- steps.py", check=False))
    for result, expected in zip(said, [*cases.values(), "there is no module No/such on this machine"]):
        assert (result.returncode, result.stdout) == (3, "")
        assert expected in result.stderr and "nothing was submitted" in result.stderr
    assert jobs.cluster.slurm("squeue", "-h", "-a", "-n", "never") == ""


def test_in_a_new_shell(jobs):
    """F-06: without `module use`, environments and jobs find a module below EasyBuild's default prefix."""
    site, home = jobs.installed.site, jobs.folder / "home"
    (home / ".local").mkdir(parents=True)
    (home / ".local/easybuild").symlink_to(site.modules.parent.parent)
    (jobs.folder / "which.py").write_text("import sys\nsys.stdout.write(sys.prefix)\n")
    jobs.bash(f"module load {jobs.module} && make-venv mine")
    environment = {**jobs.cluster.environment, "HOME": home}
    script = f"""
        {site.tool.init}
        unset MODULEPATH
        before=$(declare -p PATH ${{!APPTAINER*}})
        source mine/bin/activate && python which.py || exit
        deactivate
        [[ -z ${{MODULEPATH:-}} && $before == "$(declare -p PATH ${{!APPTAINER*}})" ]] || exit
        ebsif job writable --partition wide --submit -- which.py || exit
        ebsif job writable --partition wide -o which.sh -- which.py || exit
        unset LMOD_PKG
        sbatch which.sh"""
    said = site.run(["bash", "--noprofile", "--norc", "-c", script], cwd=jobs.folder, **environment)
    assert said.stdout.startswith(f"{jobs.folder}/mine"), said.stderr
    assert "no module" not in said.stderr
    jobs.names += (found := re.findall(r"Submitted batch job (\d+)", said.stdout))
    assert len(found) == 2
    for job in found:
        assert jobs.ended(job)["JobState"] == "COMPLETED", jobs.said()
        assert "/user-software/venv/" in jobs.log(job, "which")


def test_options_of_the_scheduler(jobs):
    """Slurm gets arrays, mail and other options; each member has its log, record and status."""
    (jobs.folder / "member.py").write_text(
        "import os, sys\nprint('member', os.environ['SLURM_ARRAY_TASK_ID'])\n"
        "sys.exit(int(os.environ['SLURM_ARRAY_TASK_ID']) // 2)\n"
    )
    (job,) = jobs.submit(
        "--scheduler='--array=1,3 --mail-type=END --mail-user=me@example.org --comment=\"for me\"' "
        "--scheduler=--nice=5",
        "member.py",
    )
    found = jobs.show(job)
    assert (found["MailUser"], found["Nice"]) == ("me@example.org", "5")
    for member, state in ((1, "COMPLETED"), (3, "FAILED")):
        ended = jobs.ended(f"{job}_{member}")
        assert ended["JobState"] == state
        assert f"member {member}\n" in jobs.log(ended["JobId"], "member")
        assert jobs.record(ended["JobId"], "member")["runs"][0]["status"] == member // 2


def test_a_run_is_repeated_from_its_record(jobs):
    """T-11: the record has module, digest, packages, program, environment, nodes, status and the command for it."""
    # rank 0 ends last: srun would kill a rank that has not ended, with a status of its own
    (jobs.folder / "again.py").write_text(
        "import os, sys, time\nprint('got', sys.argv[1:])\nended = 'ended-' + os.environ['SLURM_JOB_ID']\n"
        "if os.environ['RANK'] != '0':\n    sys.exit(open(ended, 'w').close())\n"
        "while not os.path.exists(ended):\n    time.sleep(0.1)\ntime.sleep(1)\nsys.exit(3)\n"
    )
    (job,) = jobs.submit("--nodes 2 --name again --scheduler='--comment=\"a b\"'", "again.py --epochs '3 $x'")
    jobs.ended(job)
    record = jobs.record(job, "again")
    lock = record_of(jobs.installed.root(jobs.module))
    assert record["module"] == jobs.module
    assert record["image"]["sha256"] == lock["image"]["sha256"]
    assert record["lock"] == lock
    assert record["directory"] == str(jobs.folder)
    assert record["program"]["path"] == "again.py"
    assert record["environment"]["OMP_NUM_THREADS"] == "1"
    assert record["environment"]["TORCHINDUCTOR_CACHE_DIR"].endswith(f"/job-{job}/torchinductor")
    (start,) = record["runs"]
    assert start["nodes"] == "nid[001001-001002]" and start["status"] == 3 and start["started"] <= start["ended"]
    again = jobs.bash(record["command"].replace(" -- ", " --submit -- "))
    assert again.stderr == ""
    (other,) = re.findall(r"Submitted batch job (\d+)", again.stdout)
    jobs.ended(other)
    assert "got ['--epochs', '3 $x']" in jobs.log(other, "again")
    second = jobs.record(other, "again")
    assert {**second, "runs": 0, "environment": 0} == {**record, "runs": 0, "environment": 0}


# Each rank says its node, its image, and the file system of the image; its user software has to be there.
WHERE = """
import os, sys
file = os.environ["SIF"]
assert os.path.isdir("/user-software/venv") and os.environ["APPTAINER_CONTAINER"] == file
sys.stdout.write(f"rank {os.environ['SLURMD_NODENAME']} {os.path.dirname(file)} {os.stat(file).st_dev}\\n")
"""


class Staging:
    """Jobs that copy to the nodes, each of which has a file system of its own."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.environment = {"EBSIF_NODE_LOCAL": str(jobs.cluster.local), "APPTAINER_BIND": str(jobs.cluster.local)}
        (jobs.folder / "where.py").write_text(WHERE)
        jobs.module = jobs.installed.SQUASHED

    def run(self, options, change=lambda text: text, **environment):
        """Run a job with a changed script; return its ranks' (node, directory of the image, device) and its notes."""
        script = change(self.jobs.ebsif(f"--nodes 2 --tasks-per-node 2 {options}", "where.py").stdout)
        (self.jobs.folder / "where.sh").write_text(script)
        job = self.jobs.bash("sbatch --parsable where.sh", **self.environment, **environment).stdout.strip()
        self.jobs.names.append(job)
        ended, said = self.jobs.ended(job), self.jobs.log(job, "where")
        assert ended["JobState"] == "COMPLETED", said
        lines = said.splitlines()
        ranks = [tuple(line.split()[1:]) for line in lines if line.startswith("rank ")]
        assert len(ranks) == 4, said
        assert not [node for node in NODES if "staged" in self.jobs.cluster.on(node, "ls", self.jobs.cluster.local)]
        return sorted(ranks), [line for line in lines if "stage-software" in line]


@pytest.fixture
def staging(jobs):
    """Jobs that copy to their nodes."""
    return Staging(jobs)


def test_each_node_reads_its_own_copy(staging):
    """T-05: sbcast copies user software and the image; the ranks of each node read its copy, which is then removed."""
    own = staging.jobs.folder / "mine"
    own.mkdir()
    shared = staging.jobs.installed.root(staging.jobs.module) / "user-software.squashfs"
    shutil.copyfile(shared, own / shared.name)
    ranks, notes = staging.run(
        "--stage all",
        lambda text: text.replace("\njob_run ", '\nrm "$EBSIF_MOUNTED_USER_SOFTWARE"\njob_run '),
        EBSIF_USER_SOFTWARE=str(own),
    )
    assert notes == [] and not (own / shared.name).exists(), staging.jobs.said()
    assert [node for node, _, _ in ranks] == ["nid001001", "nid001001", "nid001002", "nid001002"]
    (place,) = {directory for _, directory, _ in ranks}
    assert place.startswith(f"{staging.jobs.cluster.local}/ebsif-")
    assert ranks[0][2] == ranks[1][2] != ranks[2][2] == ranks[3][2]


def test_a_node_without_a_good_copy_reads_the_shared_file(staging):
    """T-05: a copy whose digest is wrong is named, and not used by ranks of that node."""
    damage = 'srun -w nid001002 -N 1 -n 1 sh -c \'for f in "$EBSIF_NODE_LOCAL"/*/*.new; do echo >>"$f"; done\' && '
    # the nodes check their copies last
    check = (
        "ebsif_stage() { [[ $1 != --check ]] || "
        + damage
        + '"${ebsif_each_node[@]}" "$RUNSCRIPTS/stage-software" "$@"; }\n'
    )
    ranks, notes = staging.run("--stage all", lambda text: text.replace("job_stage", f"{check}job_stage"))
    shared = str(staging.jobs.installed.root(staging.jobs.module))
    assert [directory == shared for _, directory, _ in ranks] == [False, False, True, True], staging.jobs.said()
    assert len(notes) == 2 and all("has another SHA256" in note for note in notes)


def test_a_node_without_room(staging):
    """T-05: if a node has no room, that is said, and ranks read from the shared file system."""
    cluster = staging.jobs.cluster
    cluster.on("nid001002", "mount", "-o", "remount,size=1m", cluster.local)
    try:
        ranks, notes = staging.run("--stage all")
    finally:
        cluster.on("nid001002", "mount", "-o", "remount,size=2g", cluster.local)
    assert {directory for _, directory, _ in ranks} == {str(staging.jobs.installed.root(staging.jobs.module))}
    assert len(notes) == 1 and "sbcast failed: ranks read " in notes[0]


# An account that this machine need not know.
OTHER = 12345

# Answers whatever it is asked, and notes it.
STRANGER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            print(connection.recv(1000), flush=True)
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
"""


@pytest.fixture
def serving(jobs):
    """The person, with a stand-in for vLLM and a program that asks it."""
    write_program(jobs.folder / "vllm", f"#!/usr/bin/env python3\n{SERVER}")
    (jobs.folder / "client.py").write_text(CLIENT)
    return jobs


@pytest.mark.parametrize(
    ("client", "environment", "state"),
    [
        # the client's status, and the server's
        ("client.py 3", {}, ("FAILED", "3:0")),
        ("client.py 0", {"FAILS": 6, "SAYS": "no GPU"}, ("FAILED", "6:0")),
    ],
)
def test_a_server_and_its_client(serving, client, environment, state):
    """Y-03: the job ends with the status of what ends first, and nothing of it stays."""
    options = "--name steps --server './vllm serve model'"
    (job,) = serving.submit(options, client, STAND_IN=serving.folder, **environment)
    found = serving.ended(job)
    assert (found["JobState"], found["ExitCode"]) == state, serving.said()
    assert ("no GPU" in serving.log(job)) == bool(environment)
    serving.wait(lambda: serving.processes(job) == {})
    if not environment:
        assert not Path(json.loads((serving.folder / "told.json").read_text())["words"][-1]).parent.exists()
        asked = json.loads((serving.folder / "said.json").read_text())
        assert (asked["models"], asked["none"][0], asked["post"]) == ([200, "/v1/models"], 401, True)
        assert " --server './vllm serve model' " in serving.record(job)["command"]


def test_another_account_at_the_port_of_a_server(tmp_path):
    """Y-02: the key isn't sent to who listens where the server should."""
    with as_root():
        words = [sys.executable, "-c", STRANGER]
        stranger = subprocess.Popen(words, user=OTHER, group=OTHER, extra_groups=[], stdout=subprocess.PIPE, text=True)
    port = int(stranger.stdout.readline())
    try:
        job = Job(tmp_path)
        # the server itself listens elsewhere
        job.start("0", where="{port}", options=[f"--ready=http://127.0.0.1:{port}/health"])
        status, said = job.ended()
    finally:
        with as_root():
            stranger.kill()
        heard = stranger.communicate()[0]
    assert status == 1 and job.KEY not in heard, (said, heard)
    assert f"port {port} of 127.0.0.1 belongs to another account or machine: start the job again, or use anoth" in said


def test_a_server_and_other_accounts(serving):
    """Y-02, Y-03, Y-04: a server alone stays; another account reads nothing of it, and without the key gets 401."""
    (job,) = serving.submit(
        "--name steps --signal 60 --requeue --server './vllm serve model'", "", STAND_IN=serving.folder
    )
    serving.wait(lambda: (serving.folder / f"steps-{job}.out").exists() and "ebsif connect" in serving.log(job), 120)
    told = json.loads((serving.folder / "told.json").read_text())
    folder = Path(told["words"][-1]).parent
    where = json.loads((folder / "server.json").read_text())
    log = serving.folder / f"steps-{job}-server.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    seen = [path.read_text() for path in serving.folder.glob("steps-*")]
    with as_root():

        def other(*words):
            return subprocess.run(words, user=OTHER, group=OTHER, extra_groups=[], capture_output=True, text=True)

        for path in (folder, folder / "server.json", log, f"/proc/{told['process']}/environ"):
            denied = other("cat" if path != folder else "ls", str(path))
            assert denied.returncode and "Permission denied" in denied.stderr
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        for path in (told["words"][-1], folder / "relay.sock"):
            assert "Permission denied" in other(sys.executable, "-c", connect, str(path)).stderr
        seen.append(other("ps", "-eo", "args").stdout)
    assert where["key"] not in "".join(seen)
    # Y-04: from the login node, through the scheduler
    connecting = int(serving.bash(f"ebsif connect {job} >connect.out 2>&1 </dev/null & echo $!").stdout)
    try:
        serving.wait(lambda: "Ctrl-C" in (serving.folder / "connect.out").read_text(), 60)
        place = re.search("8000:([^ ]+)", (serving.folder / "connect.out").read_text())[1]
        assert [ask(place, key)[0] for key in (where["key"], "other")] == [200, 401]
        with as_root():
            assert "Permission denied" in other(sys.executable, "-c", connect, place).stderr
    finally:
        os.kill(connecting, signal.SIGTERM)
    serving.wait(lambda: not Path(place).parent.exists(), 60)
    # before the time limit, the server ends successfully, and the job starts again
    serving.cluster.slurm("scancel", "--batch", "--signal=USR1", job)
    serving.wait(lambda: serving.log(job).count("ebsif connect") == 2, 240)
    serving.cluster.slurm("scancel", job)
    assert serving.ended(job)["JobState"] == "CANCELLED"
    serving.wait(lambda: serving.processes(job) == {})
    assert not folder.exists()
