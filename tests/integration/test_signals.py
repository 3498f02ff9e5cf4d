"""Signals that Slurm sends before the time limit reach programs, which save their state and go on."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from support import CHECKOUT, CONTAINER_FILES
from training import MODULE


def test_signals_reach_the_program_and_its_status_counts(training):
    """T-07: all ranks save on USR1 and exit with 0: the job succeeds. Ranks killed by TERM fail it."""
    script = f"""
        rm -f USR1* TERM*
        send() {{
            ebsif job {MODULE} --nodes 2 -o $1.sh -- checkpoint.py $1
            job=$(sbatch --parsable --output=$1.out $1.sh)
            until [[ -e $1-0 && -e $1-1 ]]; do [[ -n $(squeue -h -j $job) ]] && sleep 0.2 || break; done
            scancel --signal=$1 $job
            until state=$(scontrol show job $job); [[ $state =~ JobState=(COMPLETED|FAILED|TIMEOUT) ]]; do sleep 1; done
            echo $1 $(grep -oE '(JobState|ExitCode)=\\S+' <<<"$state")
        }}
        send USR1 & send TERM & wait
        cat USR1.out TERM.out
    """
    output = training.run(script).stdout
    assert "USR1 JobState=COMPLETED ExitCode=0:0\n" in output, output
    assert "TERM JobState=FAILED ExitCode=1:0\n" in output, output
    assert sorted(re.findall("^saved .", output, re.MULTILINE)) == ["saved 0", "saved 1"]


def test_the_signal_is_for_the_ranks_of_torchrun(training):
    """T-07, T-08: USR1 reaches the ranks that torchrun has started, and doesn't end torchrun: the job succeeds."""
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


@pytest.mark.parametrize("options", ["", "--launcher torchrun"])
def test_signals_for_the_first_process_of_each_task(training, cluster, options):
    """T-07: with proctrack/cgroup, Slurm signals only what slurmstepd has started: the program gets it."""
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


def wait_until(condition, log, seconds=900):
    """Wait until a condition is true, and return it; show the log of the job otherwise."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, log.read_text() if log.exists() else "the job has not started"
        time.sleep(0.2)
    return found


@pytest.mark.nightly
def test_the_training_of_the_documentation_goes_on(training):
    """T-07: docs/examples/checkpoint.py saves on USR1, its job returns to the queue, and it goes on."""
    folder = training.site.work
    (folder / "checkpoint_example.py").write_text((CHECKOUT / "docs/examples/checkpoint.py").read_text())
    script = f"""
        job=$(ebsif job {MODULE} --nodes 2 --name goes-on --signal 60 --requeue --submit -- \\
            checkpoint_example.py --pause 0.1 --steps 60 | grep -oE '[0-9]+')
        until grep -qs 'starting after step 0' goes-on-$job.out; do sleep 0.2; done
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
    assert re.findall(r"^ranks: 2, starting after step (\d+)$", output, re.MULTILINE) == ["0", stopped]
    assert "\nfinished step 60\n" in output


def test_signals_of_launchers_that_know_only_torchrun(tmp_path):
    """T-07: where only torchrun would get the signal, the ranks get it from it; its status is theirs."""
    (tmp_path / "starter.py").write_text(
        "import subprocess, sys\n"
        "program = 'import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7)); '"
        "'print(\"up\", flush=True); time.sleep(60)'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', program]).returncode)\n"
    )
    command = [sys.executable, CONTAINER_FILES / "runscripts/start-ranks.py", "starter"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout.readline() == "up\n"
        started.send_signal(signal.SIGUSR1)
        assert started.wait(300) == 7
