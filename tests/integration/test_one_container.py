"""One container for the ranks of a node: what they see, how they end, and that nothing stays."""

import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from parts import Installed
from slurm import NODES
from support import CONTAINER_FILES, words_of_scripts

# Writes what a rank sees to a file; with an argument, waits until as many ranks have done so.
SEE = """
import json, os, resource, sys, time
seen = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid")}
seen["started"] = open("/proc/1/stat").read().rpartition(")")[2].split()[19]
seen["mounts"] = [line for line in open("/proc/self/mountinfo") if " /user-software " in line]
seen["rank"], seen["node"] = os.environ.get("SLURM_PROCID"), os.environ.get("SLURMD_NODENAME")
seen["environment"] = dict(os.environ)
seen["place"] = [os.getcwd(), os.umask(0), sorted(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_NOFILE)]
seen["files"] = [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)]
seen["number of files"] = len(os.listdir("/proc/self/fd"))
seen["signals"] = [line for line in open("/proc/self/status") if line.startswith(("SigIgn", "SigBlk"))]
name = f"{time.time_ns()}-{os.getpid()}"
with open(name, "w") as file:
    json.dump(seen, file)
os.rename(name, f"seen-{name}")
until = time.time() + 60
while len(sys.argv) > 1 and time.time() < until:
    if len([name for name in os.listdir() if name.startswith("seen-")]) >= int(sys.argv[1]):
        break
    time.sleep(0.05)
"""

# Says that it is there; saves on USR1, and ends with a status of its own.
WAIT = """
import os, signal, sys, time
rank = int(os.environ["SLURM_PROCID"])
def save(*_):
    open(f"saved-{rank}", "w").close()
    sys.exit(5 + rank)
signal.signal(signal.SIGUSR1, save)
open(f"pid-{rank}", "w").write(str(os.getpid()))
time.sleep(200)
"""

# e and key the runtime takes for itself
NAMES = set(words_of_scripts()) - {"e", "key"}

PYTHON = "start-shell -c 'exec python \"$@\"' python"


class Ranks:
    """Ranks of runs on this machine, started with the variables of a launcher or by Slurm."""

    def __init__(self, installed, folder):
        """Use a folder for the ranks' files, and a node-local directory that no other test uses."""
        self.installed, self.site, self.folder, self.local = installed, installed.site, folder, folder / "local"
        self.local.mkdir()
        self.processes = []
        for name, text in (("see.py", SEE), ("wait.py", WAIT)):
            (folder / name).write_text(text)

    def script(self, command, **environment):
        """Run a bash script with the module loaded, and with one container per node unless told otherwise."""
        return self.installed.load(
            self.installed.SQUASHED, f"cd {self.folder}; {command}", check=False,
            **{"EBSIF_ONE_CONTAINER_PER_NODE": "1", "EBSIF_NODE_LOCAL": self.local, **environment})

    def srun(self, options, command, **environment):
        """Run a command with Slurm's srun."""
        return self.script(f"exec timeout 100 srun {options} {PYTHON} {command}", **environment)

    def start(self, number, command, each=lambda rank: {}, size=None, module=Installed.SQUASHED, **environment):
        """Start ranks of a step as Slurm does; return their processes."""
        started = []
        for rank in range(number):
            variables = {
                "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": size or number,
                "SLURM_STEP_TASKS_PER_NODE": size or number, "SLURM_NODEID": 0, "SLURMD_NODENAME": "nid1",
                "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "EBSIF_ONE_CONTAINER_PER_NODE": 1,
                "EBSIF_NODE_LOCAL": self.local, **environment, **each(rank)}
            text = f"{self.site.tool.init}\nmodule load {module}\n" \
                f"cd {self.folder}\nexec {PYTHON} {command}"
            variables = {**self.site.environment, "MODULEPATH": str(self.site.modules), **{
                name: str(value) for name, value in variables.items() if value is not None}}
            started.append(subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-c", text], env=variables, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        self.processes += started
        return started

    def wait_for(self, *names, seconds=60):
        """Wait until ranks have written files."""
        until = time.monotonic() + seconds
        while not all((self.folder / name).is_file() for name in names):
            assert time.monotonic() < until, f"missing: {names}"
            time.sleep(0.05)

    def end(self):
        """Kill what is left of the ranks that this test has started."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def left(self):
        """Return what is left of shared containers: files, processes and mounts."""
        # beside the directory of caches
        found = [str(path) for path in self.local.glob("ebsif-*-*")]
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes()
                here = (folder / "cwd").readlink()
            except OSError:
                continue
            # the first process of a container has no path among its words, but the working directory of the ranks
            if here == self.folder or str(self.local).encode() in words or str(self.folder).encode() in words:
                found.append(words)
        return found

    def nothing_stays(self, seconds=60):
        """Return whether nothing is left, at the latest after some seconds."""
        until = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < until:
            time.sleep(0.1)
        return left == [] or left


@pytest.fixture
def ranks(installed_once, tmp_path):
    """Ranks; those still running at the end are killed, and nothing of them stays."""
    made = Ranks(installed_once, tmp_path)
    yield made
    made.end()
    assert made.nothing_stays() is True


def seen(ranks):
    """Return what the ranks that have just run have written."""
    files = list(ranks.folder.glob("seen-*"))
    found = [json.loads(path.read_text()) for path in files]
    for path in files:
        path.unlink()
    return found


def results(processes):
    """Return what processes have printed on both streams, and their statuses."""
    ended = [("".join(process.communicate(timeout=100)), process.returncode) for process in processes]
    return "".join(said for said, _ in ended), [status for _, status in ended]


def test_the_ranks_of_a_node_share_a_container_and_a_mount(ranks, cluster):
    """T-03: four ranks on each of two nodes: two containers, in each of them one mount of the SquashFS file."""
    result = ranks.srun("-N2 -n8 --ntasks-per-node=4", "see.py 8", **cluster.environment)
    assert (result.returncode, result.stderr) == (0, "")
    found = seen(ranks)
    assert sorted(one["rank"] for one in found) == [str(rank) for rank in range(8)]
    for node in NODES:
        here = [one for one in found if one["node"] == node]
        assert [len({str(one[name]) for one in here}) for name in ("mnt", "pid", "mounts")] == [1, 1, 1]
        assert len(here[0]["mounts"]) == 1
    assert len({one["mnt"] for one in found}) == 2
    assert ranks.nothing_stays() is True


def test_everything_is_as_in_an_own_container(ranks):
    """
    T-03: environment, working directory, umask, CPUs, limits, files and signals, and a user's variables.

    Also two that have other values for the runtime, those that don't pass through it, and those named like our own.
    """
    for_container = {"MINE": "a b", "SLURM_CHOSEN": "the container's", "SLURM_NONE": ""}
    environment = {**{f"{prefix}ENV_{name}": value for prefix in ("APPTAINER", "SINGULARITY")
                      for name, value in for_container.items()},
                   "TMOUT": "9", "POSIXLY_CORRECT": "y", "OTHER": "x\ny",
                   "SLURM_CHOSEN": "x", "SLURM_NONE": "x", "SLURM_EMPTY": "",
                   "CRAY_LONG": "x" * 100_000,
                   "SLURM_COMMENT": "it's\n\"$(id)\" `id` \\ '' $HOME *",
                   "APPTAINER_CONFIGDIR": str(ranks.folder / "a b"),
                   "each": lambda rank: {"GOGC": ["50 %", None][rank], **{name: f"of {name}" for name in NAMES}}}
    assert results(ranks.start(2, "see.py 2", **environment)) == ("", [0, 0])
    shared = seen(ranks)
    assert results(ranks.start(2, "see.py 2", EBSIF_ONE_CONTAINER_PER_NODE="", **environment))[1] == [0, 0]
    own = seen(ranks)
    shared, own = ({one["rank"]: one for one in found} for found in (shared, own))
    assert shared["0"]["mnt"] == shared["1"]["mnt"]
    assert own["0"]["mnt"] != own["1"]["mnt"]
    for rank in "01":
        for one in (shared, own):
            one[rank]["environment"].pop("EBSIF_ONE_CONTAINER_PER_NODE", None)
        for name in ("environment", "place", "number of files", "signals"):
            assert shared[rank][name] == own[rank][name]
        expected = {"MINE": "a b", "SLURM_CHOSEN": "the container's", "SLURM_NONE": "", "SLURM_EMPTY": ""}
        expected.update((name, f"of {name}") for name in NAMES)
        assert {name: own[rank]["environment"].get(name) for name in expected} == expected
        assert [name.partition(":")[0] for name in shared[rank]["files"]] == ["/dev/null", "pipe", "pipe"]


def test_a_killed_rank_leaves_the_others_alone(ranks, cluster):
    """T-04: kill -9 of the program of a rank, or of what Slurm has started: its program ends, the others go on."""
    ranks.script(f"{{ srun -N1 -n3 {PYTHON} wait.py; echo $? >status; }} >out 2>&1 & "
                 "while [[ ! -e pid-0 || ! -e pid-1 || ! -e pid-2 ]]; do sleep 0.1; done", **cluster.environment)
    processes = ranks_running(ranks)
    os.kill(processes["0"]["program"], signal.SIGKILL)
    os.kill(processes["1"]["task"], signal.SIGKILL)
    until = time.monotonic() + 60
    while set(ranks_running(ranks)) != {"2"} and time.monotonic() < until:
        time.sleep(0.1)
    (only,) = ranks_running(ranks).values()
    os.kill(only["task"], signal.SIGUSR1)
    ranks.wait_for("saved-2", "status")
    assert "Exited with exit code 137" in (ranks.folder / "out").read_text()
    assert ranks.nothing_stays() is True


def ranks_running(ranks):
    """Return the processes of the ranks that wait: by rank, that of the program, and the one that Slurm has started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            environment = (folder / "environ").read_bytes().split(b"\0")
            here = (folder / "cwd").readlink() == ranks.folder
        except OSError:
            continue
        rank = [word.partition(b"=")[2].decode() for word in environment if word.startswith(b"SLURM_PROCID=")]
        if here and rank and words[-2:] == [b"wait.py", b""] and words[0] == b"python":
            found.setdefault(rank[0], {})["program"] = int(folder.name)
        elif here and rank and words[-2:] == [b"wait.py", b""] and words[0] == b"/bin/bash":
            found.setdefault(rank[0], {})["task"] = int(folder.name)
    return {rank: pids for rank, pids in found.items() if "program" in pids}


@pytest.mark.parametrize("cancel", ["scancel {job}", "scancel --signal=KILL {job}"])
def test_nothing_stays_of_a_cancelled_step(ranks, cluster, cancel):
    """T-04: when the job is cancelled, or killed, no mount, process or file stays on either node."""
    result = ranks.script(f"""
        srun -N2 -n4 --job-name={ranks.folder.name} {PYTHON} wait.py >out 2>&1 &
        while [[ ! -e pid-0 || ! -e pid-1 || ! -e pid-2 || ! -e pid-3 ]]; do sleep 0.1; done
        job=$(squeue -h -o %A --name={ranks.folder.name})
        {cancel.format(job='$job')}
        wait $!""", **cluster.environment)
    assert result.returncode
    assert ranks.nothing_stays() is True


def test_signals_and_statuses_are_the_programs(ranks):
    """T-04, use D4: each rank gets its own signal and saves; statuses count, also 128 + N after a signal."""
    processes = ranks.start(3, "wait.py")
    ranks.wait_for("pid-0", "pid-1", "pid-2")
    processes[0].send_signal(signal.SIGUSR1)
    processes[1].send_signal(signal.SIGUSR1)
    ranks.wait_for("saved-0", "saved-1")
    assert not (ranks.folder / "saved-2").exists()
    processes[2].send_signal(signal.SIGTERM)
    assert results(processes) == ("", [5, 6, 143])
    assert ranks.nothing_stays() is True


def test_all_ranks_killed_at_once(ranks):
    """
    T-04: without a scheduler that would clean up, and also while the container is being started.

    Of a run that is killed before it has started a container, the next one removes the files.
    """
    processes = ranks.start(3, "wait.py")
    ranks.wait_for("pid-0", "pid-1", "pid-2")
    for process in processes:
        process.kill()
    assert ranks.nothing_stays() is True
    for delay in (0.1, 0.25, 0.4):
        processes = ranks.start(3, "wait.py")
        time.sleep(delay)
        for process in processes:
            process.kill()
        results(processes)
    (ranks.local / f"ebsif-{os.getuid()}-77.9-nid1-0").mkdir()
    (ranks.local / f"ebsif-{os.getuid()}-77.9-nid1-0/ranks").touch()
    assert results(ranks.start(2, "-c pass")) == ("", [0, 0])
    assert ranks.nothing_stays() is True


def test_another_rank_starts_the_container(ranks):
    """T-03, T-04: if the one that has begun to start it was killed, with all its processes, the next one does."""
    place = ranks.local / f"ebsif-{os.getuid()}-77.3-nid1-0"
    place.mkdir(mode=0o700)
    (place / "start-0").touch()
    assert results(ranks.start(3, "see.py 3")) == ("", [0, 0, 0])
    assert len({one["mnt"] for one in seen(ranks)}) == 1


def test_ranks_come_and_go(ranks):
    """T-03: a container ends with its last rank, and the next ones have a new one, again and again."""
    rounds = []
    for number in range(4):
        assert results(ranks.start(2, "see.py 2")) == ("", [0, 0])
        # the kernel may give the number of a namespace to the next one
        ((_, started),) = {(one["mnt"], one["started"]) for one in seen(ranks)}
        rounds.append(started)
        if number == 2:
            assert ranks.nothing_stays() is True
    assert len(set(rounds)) == len(rounds)


def test_variables_that_change_what_shells_do(ranks):
    """T-07: `read` of bash waits as long as TMOUT says, and redirections that fail end a shell in POSIX mode."""
    started = ranks.start(3, "wait.py", TMOUT=1, POSIXLY_CORRECT=1)
    ranks.wait_for("pid-0", "pid-1", "pid-2")
    time.sleep(2)
    for process in started:
        process.send_signal(signal.SIGUSR1)
    assert results(started) == ("", [5, 6, 7])


def test_a_signal_to_all_processes(ranks):
    """T-07: one that a scheduler sends to every process of a step, again and again, doesn't end the container."""
    started = ranks.start(2, "wait.py")
    ranks.wait_for("pid-0", "pid-1")
    stays = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
             if read(path) == b"sleep\0002147483647\0" and os.path.realpath(path.parent / "cwd") == str(ranks.folder)]
    (first,) = {int(read(Path(f"/proc/{process}/stat")).rpartition(b") ")[2].split()[1]) for process in stays}
    for process in (*stays, first, *stays, first):
        os.kill(process, signal.SIGUSR1)
        time.sleep(0.1)
    for process in started:
        process.send_signal(signal.SIGUSR1)
    assert results(started) == ("", [5, 6])


def read(path):
    """Return the content of a file of a process; nothing if that has just ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_same_step_again(ranks):
    """T-04: if all is killed, also what ends the container, the ranks of the next start of the job share one."""
    ranks.start(2, "wait.py")
    ranks.wait_for("pid-0", "pid-1")
    (place,) = ranks.local.glob("ebsif-*-77.3-*")
    session = re.search(r'"pid":(\d+),"ppid":(\d+)', next(place.glob("config/instances/app/*/*/*/*.json")).read_text())
    ended = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
             if str(place).encode() in read(path).split(b"\0")]
    for process in ended:
        os.kill(process, signal.SIGKILL)
    ranks.end()
    for process in map(int, session.groups()):
        os.kill(process, signal.SIGKILL)
    # it may remain as a zombie
    until = time.monotonic() + 60
    while any(read(Path(f"/proc/{process}/stat")).rpartition(b") ")[2][:1] not in (b"", b"Z")
              for process in session.groups()):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert (place / "state").read_text() == "ready\n"
    assert results(ranks.start(3, "see.py 3")) == ("", [0, 0, 0])
    assert len({one["mnt"] for one in seen(ranks)}) == 1


def test_ranks_take_turns(ranks):
    """T-03: all have given back their turns, two for each CPU; a rank also joins if killed ones have taken them all."""
    started = ranks.start(2, "wait.py", size=3)
    ranks.wait_for("pid-0", "pid-1")
    (place,) = ranks.local.glob("ebsif-*-77.3-*")
    turns = os.open(place / "turns", os.O_RDWR | os.O_NONBLOCK)
    try:
        last = re.split("[-,]", Path("/sys/devices/system/cpu/present").read_text())[-1]
        assert os.read(turns, 100_000).decode() == " " * 2 * (int(last) + 1)
    finally:
        os.close(turns)
    started += ranks.start(1, "wait.py", size=3, each=lambda _: {"SLURM_PROCID": 2, "SLURM_LOCALID": 2})
    ranks.wait_for("pid-2")
    for process in started:
        process.send_signal(signal.SIGUSR1)
    # a rank in a container of its own would say so
    assert results(started) == ("", [5, 6, 7])


def test_variables_that_the_site_unsets_stay_unset(ranks, tmp_path):
    """T-03: also those that don't pass through the runtime otherwise."""
    copied = ranks.installed.copy(tmp_path / "copy", ranks.installed.SQUASHED)
    root = copied.prefix / "eb/software" / ranks.installed.SQUASHED
    (root / "runscripts/distributed.conf").write_text("unset SLURM_GONE\n")
    script = CONTAINER_FILES / "share/ebsif/unset-variables.sh"
    ranks.site = copied
    assert results(ranks.start(2, "see.py 2", SLURM_GONE="x", SLURM_THERE="y", APPTAINER_BIND=(
        f"{script}:/.singularity.d/env/98-ebsif.sh"))) == ("", [0, 0])
    found = seen(ranks)
    for one in found:
        assert ("SLURM_GONE" in one["environment"], one["environment"]["SLURM_THERE"]) == (False, "y")
    assert len({one["mnt"] for one in found}) == 1


def test_a_rank_joins_no_other_container(ranks):
    """T-03: ranks of another job or step, with other binds, or in another directory have other containers."""
    (ranks.folder / "other").mkdir()
    different = [{}, {"SLURM_JOB_ID": 78}, {"SLURM_STEP_ID": 4}, {"APPTAINER_BIND": "/usr/share"},
                 {"module": Installed.WRITABLE}, {"SLURMD_NODENAME": "nid2"}]
    command = f"see.py {2 * len(different)}"
    said, statuses = results([process for one in different for process in ranks.start(2, command, **one)])
    assert statuses == [0] * 2 * len(different), said
    assert len({one["mnt"] for one in seen(ranks)}) == len(different)
    assert ranks.nothing_stays() is True


@pytest.mark.parametrize("problem", ["place", "taken", "runtime", "joining"])
def test_an_own_container_and_a_note_otherwise(ranks, problem, tmp_path):
    """T-03: if a container can't be shared, ranks have their own; one of each node says so and why."""
    environment = {}
    reason = "can't be used (EBSIF_NODE_LOCAL sets another place)"
    if problem == "place":
        environment["EBSIF_NODE_LOCAL"] = "/proc"
    elif problem == "taken":
        # by somebody else, who could read or replace what the ranks write there
        taken = ranks.local / f"ebsif-{os.getuid()}-77.3-nid1-0"
        taken.mkdir()
        os.chown(taken, 65534, 65534)
    else:
        # a runtime that can't start instances, or not join them
        programs = tmp_path / "programs"
        programs.mkdir()
        reason, failing = {"runtime": ("no instances here", "instance*"),
                           "joining": ("can't be joined", "*instance:*")}[problem]
        (programs / "apptainer").write_text(
            f"#!/bin/bash\n[[ \"$*\" != {failing} ]] || "
            f"{{ sleep {2 * (problem == 'joining')}; echo 'FATAL:   no instances here' >&2; exit 255; }}\n"
            "exec -a apptainer /usr/bin/apptainer \"$@\"\n")
        (programs / "apptainer").chmod(0o755)
        environment["PATH"] = f"{programs}:{ranks.installed.site.environment['PATH']}"
    said, statuses = results(ranks.start(3, "see.py 3", **environment))
    assert statuses == [0, 0, 0], said
    found = seen(ranks)
    assert len({one["mnt"] for one in found}) == 3
    notes = [line for line in said.splitlines() if "have a container each, instead of one for all: " in line]
    assert len(notes) == 1, said
    assert reason in notes[0]
    if problem == "joining":
        # no file is left open that would keep the shared container alive
        assert results(ranks.start(1, "see.py", size=1, **environment))[1] == [0]
        assert {one["number of files"] for one in found} == {one["number of files"] for one in seen(ranks)}
    if problem == "taken":
        taken.rmdir()


LAUNCHERS = {
    "PBS, PALS": lambda rank: {
        "PBS_JOBID": "123.server", "PALS_RANKID": rank, "PALS_SIZE": 2, "PALS_LOCAL_RANKID": rank, "PALS_LOCAL_SIZE": 2,
        "PALS_APID": "1111-2222"},
    "Flux": lambda rank: {
        "FLUX_JOB_ID": "f2Hk", "FLUX_TASK_RANK": rank, "FLUX_JOB_SIZE": 4, "FLUX_JOB_NNODES": 2,
        "FLUX_TASK_LOCAL_ID": rank},
    "Open MPI": lambda rank: {
        "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "PMIX_NAMESPACE": "prterun-1"},
}
NOT_SLURM = dict.fromkeys((
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID",
    "SLURMD_NODENAME", "SLURM_PROCID", "SLURM_LOCALID"))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_other_launchers_share_too(ranks, launcher):
    """T-03: with PBS, Flux and MPI, the run is named by their variables."""
    processes = ranks.start(2, "see.py 2", each=lambda rank: {**NOT_SLURM, **LAUNCHERS[launcher](rank)})
    assert results(processes) == ("", [0, 0])
    assert len({one["mnt"] for one in seen(ranks)}) == 1


def test_mpiexec_starts_ranks_that_share(ranks):
    """T-03: the real mpiexec, whose own connection to the ranks stays intact."""
    result = ranks.script(f"exec timeout 60 mpiexec -n 3 {PYTHON} see.py 3")
    assert (result.returncode, result.stderr) == (0, "")
    assert len({one["mnt"] for one in seen(ranks)}) == 1


def test_two_runs_of_a_launcher_without_ids(ranks):
    """T-03: each mpiexec has a container, also outside jobs, and where a shell is between it and the ranks."""
    (ranks.folder / "rank.sh").write_text(f"{PYTHON} see.py 4\ntrue\n")
    result = ranks.script(f"timeout 60 mpiexec -n 2 {PYTHON} see.py 4 & timeout 60 mpiexec -n 2 bash rank.sh; wait $!")
    assert (result.returncode, result.stderr) == (0, "")
    found = [one["mnt"] for one in seen(ranks)]
    assert sorted(found.count(one) for one in set(found)) == [2, 2]


def test_a_single_rank_has_its_own_container(ranks):
    """T-03: nothing is shared, or said, without a launcher, with one rank on the node, or if the variable is empty."""
    for environment in ({}, NOT_SLURM):
        said, statuses = results(ranks.start(1, "see.py", size=1, each=lambda rank, e=environment: e))
        assert (statuses, "instead of one" in said) == ([0], False)
    assert ranks.left() == []


# SingularityCE 4.1.1: its second program doesn't get SINGULARITY_CONFIGDIR, and describes the instance in the home
# directory of the account; the first one searches for it where the variable says.
SINGULARITYCE = """#!/bin/bash
export APPTAINER_CONFIGDIR={elsewhere} home=$(unset HOME && echo ~)
if [[ $1 == instance ]]; then
    (exec -a apptainer /usr/bin/apptainer "$@") || exit
    folder=$home/.singularity/instances/sing/$(uname -n)/$(id -un)
    mkdir -p "$folder"
    ln -s {elsewhere}/instances/app/"$(uname -n)/$(id -un)/${{@: -1}}" "$folder"
elif [[ "$*" == *instance:* && -n "${{SINGULARITY_CONFIGDIR:-}}" ]]; then
    echo "ERROR:   While setting image/instance: no instance found with name ${{2#*//}}" >&2
    exit 255
else
    exec -a apptainer /usr/bin/apptainer "$@"
fi
"""


def test_an_instance_that_is_described_in_the_home_directory(ranks, tmp_path):
    """T-03: with SingularityCE: the ranks share a container, and nothing stays of it."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apptainer").write_text(SINGULARITYCE.format(elsewhere=tmp_path / "elsewhere"))
    (programs / "apptainer").chmod(0o755)
    job = os.getpid()
    try:
        said, _ = results(ranks.start(
            2, "see.py 2", SLURM_JOB_ID=job, PATH=f"{programs}:{ranks.installed.site.environment['PATH']}",
            SINGULARITY_CONFIGDIR=str(tmp_path / "own")))
        assert said == ""
        assert len({one["mnt"] for one in seen(ranks)}) == 1
        assert ranks.nothing_stays() is True
    finally:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        for link in home.glob(f".singularity/instances/sing/*/*/ebsif-*-{job}.3-*"):
            link.unlink()
            with contextlib.suppress(OSError):  # there is something else
                os.removedirs(link.parent)


def test_the_instance_is_no_systemd_unit(ranks, tmp_path):
    """T-04: it stays in the control group of the scheduler's step: the runtime isn't told where systemd is."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apptainer").write_text(
        f"#!/bin/bash\n[[ $1 != instance ]] || env >{tmp_path}/variables\n"
        "exec -a apptainer /usr/bin/apptainer \"$@\"\n")
    (programs / "apptainer").chmod(0o755)
    said, _ = results(ranks.start(
        2, "see.py 2", PATH=f"{programs}:{ranks.installed.site.environment['PATH']}", XDG_RUNTIME_DIR="/run/user/1",
        DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/1/bus"))
    assert said == ""
    assert not re.search("^(XDG_RUNTIME_DIR|DBUS)", (tmp_path / "variables").read_text(), re.MULTILINE)
    assert {one["environment"]["XDG_RUNTIME_DIR"] for one in seen(ranks)} == {"/run/user/1"}
