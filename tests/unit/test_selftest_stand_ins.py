"""The self-test's steps with stand-ins for what they run: the scheduler, and an `ebsif doctor` that crashes."""

import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from ebsif import selftest
from ebsif.catalog import site
from ebsif.catalog.settings import Settings
from ebsif.commands import selftest as command
from ebsif.errors import EbsifError
from ebsif.processes import NoAnswerError
from support import write_program

# what the schedulers print for a job in the queue, and for one that runs
STATES = {"slurm": ("PENDING", "RUNNING"), "pbs": ("    job_state = Q", "    job_state = R"), "flux": ("SCHED", "RUN")}
SUBMITTED = {"slurm": "Submitted batch job 4711", "pbs": "4711.server", "flux": "4711"}


@pytest.fixture
def make_test(tmp_path, monkeypatch):
    """A function that returns a self-test for a scheduler, and a folder for stand-ins that is first on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for name, seconds in (("QUEUE", 0.3), ("GRACE", 0.3), ("PAUSE", 0.05)):
        monkeypatch.setattr(selftest, name, seconds)

    def make(kind="slurm"):
        folder = tmp_path / "sites/mine"
        folder.mkdir(parents=True)
        (folder / "site.yaml").write_text(f"name: mine\ndescription: x\nscheduler: {{kind: {kind}}}\n")
        (tmp_path / "image.sif").write_bytes(bytes(32) + b"SIF_MAGIC")
        settings = Settings("mine", (tmp_path / "sites", site.SITES), tmp_path / "out")
        made = selftest.SelfTest(tmp_path / "image.sif", tmp_path, settings, [])
        made.installed.append(selftest.MODULE)
        return made, programs

    return make


def stand_in(path, script):
    """Write a stand-in (Path), a script for bash."""
    write_program(path, f"#!/bin/bash\n{script}\n")


def with_job(made, programs, kind, ask):
    """Let a self-test submit a job, for whose state a script answers; return the file with what was cancelled."""
    scheduler, cancelled = made.scheduler, programs / "cancelled"
    stand_in(programs / scheduler.submit[0], "exit 1")
    note = f'echo "$*" >>{cancelled}'
    # it answers, until it is asked for the job
    if kind == "flux":
        stand_in(programs / "flux", f"case $*,$1 in jobs,*) ;; *,jobs) {ask} ;; *) {note} ;; esac")
    else:
        stand_in(programs / scheduler.answers[0], "")
        stand_in(programs / scheduler.state[0], f"[[ ${{1:-}} != -B ]] || exit 0\n{ask}")
        stand_in(programs / scheduler.cancel[0], note)
    made.ebsif = lambda *_: SUBMITTED[kind]
    return cancelled


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("runs", [False, True])
def test_a_job_that_does_not_go_on(make_test, kind, runs):
    """A-05: a job that stays in the queue, and one that hangs, which has no output yet with PBS, differ; both end."""
    made, programs = make_test(kind)
    cancelled = with_job(made, programs, kind, f"echo '{STATES[kind][runs]}'")
    error = EbsifError if runs else selftest.ImpossibleError
    with pytest.raises(error) as caught:
        made.start_ranks()
    wanted = (
        "the job has left the queue, but not started both ranks within 0.3 seconds; "
        if runs
        else "the job was still in the queue after 0.3 seconds; options of `ebsif job`"
    )
    assert str(caught.value).startswith(wanted)
    assert cancelled.read_text().split()[-1] == SUBMITTED[kind].split()[-1]
    # the next step does without the job
    assert made.job == ""


def test_a_scheduler_that_does_not_answer(make_test):
    """A-05: the step fails after a time limit, and the job is cancelled."""
    made, programs = make_test("pbs")
    cancelled = with_job(made, programs, "pbs", "sleep 60")
    with pytest.raises(NoAnswerError, match=r"^qstat -f 4711.server doesn't answer within 0.3 seconds"):
        made.start_ranks()
    assert cancelled.read_text() == "4711.server\n"


def test_a_machine_outside_of_the_cluster(make_test):
    """Commands of Slurm without a controller: no job is possible, which is no failure."""
    made, programs = make_test()
    for name in ("sbatch", "sinfo"):
        stand_in(programs / name, f"echo '{name}: error: Unable to contact slurm controller' >&2; exit 1")
    silent = "^the scheduler doesn't answer: sinfo"
    with pytest.raises(selftest.ImpossibleError, match=f"{silent} says: sinfo: error: Unable"):
        made.start_ranks()
    stand_in(programs / "sinfo", "sleep 60")
    with pytest.raises(selftest.ImpossibleError, match=f"{silent} doesn't answer within 0.3"):
        made.start_ranks()


def test_a_directory_that_is_twice_on_path(make_test, monkeypatch):
    """Modules tools leave out repeated entries of a list, so they aren't compared."""
    made, _ = make_test()
    made.before = {"PATH": "/a:/b:/a", "LIST": "/a:/b", "HOME": "/home/me"}

    def unloaded(**values):
        entries = "".join(f"{name}={value}\0" for name, value in {**made.before, **values}.items())
        monkeypatch.setattr(selftest.modulestool, "run", lambda *_, **__: CompletedProcess([], 0, entries, ""))
        return made.unload()

    assert unloaded(PATH="/a:/b") == "the environment is as before"
    for wrong in ({"PATH": "/b:/a"}, {"LIST": "/b"}, {"SIF": "/x.sif"}):
        with pytest.raises(EbsifError, match=f"^these variables are not as before: {next(iter(wrong))}"):
            unloaded(**wrong)


def test_a_job_that_ignores_the_signal(make_test):
    """A-05: the job has started and was cancelled, but its ranks have got no signal."""
    made, programs = make_test("pbs")
    with_job(made, programs, "pbs", "echo 'job_state = R'")
    for rank in (0, 1):
        (made.work / f"started-{rank}-of-2").touch()
    assert made.start_ranks() == "pbs: both ranks have started"
    with pytest.raises(EbsifError, match="^the job was cancelled, but no SIGTERM has reached both ranks"):
        made.end_ranks()


def test_an_interrupted_job(make_test, monkeypatch, tmp_path):
    """A-05: Ctrl-C while the job waits removes it from the queue."""
    made, programs = make_test("pbs")
    cancelled = with_job(made, programs, "pbs", f"kill -INT $PPID; echo '{STATES['pbs'][0]}'")
    monkeypatch.setattr(selftest.SelfTest, "steps", property(lambda self: {"two ranks": self.start_ranks}))
    monkeypatch.setattr(command.selftest, "SelfTest", lambda *_: made)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = ArgumentParser()
    command.configure(parser)
    options = parser.parse_args([str(tmp_path / "image.sif"), "--directory", str(tmp_path)])
    options.more = []
    try:
        with pytest.raises(KeyboardInterrupt):
            command.run(options)
    finally:
        signal.signal(signal.SIGINT, before)
    assert cancelled.read_text() == "4711.server\n"


def test_settings_of_the_account(make_test, monkeypatch):
    """A-05: the syntax of module files is that of the site; where the account installs doesn't matter."""
    for name, value in (("MODULE_SYNTAX", "Tcl"), ("INSTALLPATH", "/elsewhere"), ("ROBOT_PATHS", "/elsewhere")):
        monkeypatch.setenv(f"EASYBUILD_{name}", value)
    environment = make_test()[0].environment
    assert environment["EASYBUILD_MODULE_SYNTAX"] == "Tcl"
    assert "/elsewhere" not in environment.values()


def test_a_crash_of_the_doctor(make_test, monkeypatch, tmp_path):
    """A-05: a traceback in place of findings is a step that has failed, with the exception as text."""
    made, _ = make_test()
    crashing = tmp_path / "crashing.py"
    crashing.write_text("raise TypeError('nothing of ours')\n")
    monkeypatch.setattr(sys, "argv", [str(crashing)])
    monkeypatch.setattr(selftest.SelfTest, "steps", property(lambda self: {"machine": self.examine}))
    (outcome,) = made.run()
    assert (outcome.result, outcome.text) == (selftest.FAILED, "TypeError: nothing of ours")
    assert "Traceback" in Path(made.folder, "log").read_text()
