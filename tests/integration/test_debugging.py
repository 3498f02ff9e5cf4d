"""Debugging jobs, as docs/debugging.md says: pdb at a terminal, one rank in an editor, crashes and hangs."""

import json

import pytest
from debugger import Debugger
from slurm import NODES
from support import at_terminal, blocks

pytestmark = pytest.mark.nightly
CAUGHT, RANKS, _, DEBUG_RANK, SIGNAL = blocks("docs/debugging.md")
BREAK, WAIT, DUMP = blocks("docs/debugging.md", "python")
(ATTACH,) = blocks("docs/debugging.md", "json")

# A distributed run without PyTorch, which takes seconds to start: the first rank waits for the number of the second.
TRAIN = """\
import os
import socket

import debug

rank = int(os.environ["RANK"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(address) as server:
        open("listening", "w").close()
        number = int(server.accept()[0].recv(100))
    print(f"got {number}", flush=True)
else:
    while not os.path.exists("listening"):
        pass
    number = rank * 20
    with socket.create_connection(address) as first:
        first.sendall(str(number).encode())
"""
HANG = """\
import time

import debug


def wait():
    time.sleep(300)


print("hanging", flush=True)
wait()
"""
LINE = TRAIN.splitlines().index("    with socket.create_connection(address) as first:") + 1


def write(workbench, name, debug):
    """Write the program into a directory of its own, with a part of the documentation; return the directory (Path)."""
    folder = workbench.folder / name
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "debug.py").write_text(f"import os\n\n{debug}")
    return folder


def test_a_breakpoint_of_pdb_in_the_first_rank(workbench):
    """`srun --pty` connects the terminal with the rank that has reached breakpoint()."""
    folder = write(workbench, "pdb", BREAK)
    command = workbench.script_file(folder, f"cd {folder}\n{RANKS}")
    status, shown = at_terminal(command, workbench.environment(), folder, ["p 'rank', os.environ['RANK']", "c"])
    assert "('rank', '0')" in shown
    assert "got 20" in shown
    assert status == 0


def test_an_exception_stops_in_pdb(workbench):
    """With -c continue, pdb stops where an exception isn't caught."""
    folder = workbench.folder / "exception"
    folder.mkdir()
    (folder / "train.py").write_text("def divide(number):\n    return 1 / number\n\n\ndivide(0)\n")
    command = workbench.script_file(folder, f"cd {folder}\n{CAUGHT}")
    _, shown = at_terminal(command, workbench.environment(), folder, ["p 'here', number", "q", "q"])
    assert "ZeroDivisionError" in shown
    assert "('here', 0)" in shown


def test_a_breakpoint_of_an_editor_in_one_rank(workbench):
    """J-09: the rank that waits prints how to reach it; the breakpoint holds there, through SSH; the other waits."""
    folder = write(workbench, "rank", WAIT)
    with workbench.running(f"cd {folder}\n{DEBUG_RANK}") as job:
        command = job.printed("^ssh -N .*$")[0]
        attach = {name: value for name, value in json.loads(ATTACH).items() if name == "justMyCode"}
        with workbench.forward(command) as (port,):
            debugger = Debugger(port, **attach)
            debugger.break_at(folder / "train.py", LINE)
            assert [debugger.evaluate(one) for one in ("rank", "number")] == ["1", "20"]
            assert debugger.evaluate("os.environ['SLURMD_NODENAME']") == f"'{NODES[1]}'"
            assert "got" not in job.output.read_text()
            debugger.ask("continue", threadId=debugger.thread)
            job.printed("^got 20$")
            debugger.socket.close()
        assert job.process.wait(timeout=300) == 0


def test_ranks_that_hang_or_crash_say_where(workbench):
    """At the signal of scancel each rank prints its stack, and goes on; so it does at a crash."""
    folder = write(workbench, "hang", DUMP)
    (folder / "train.py").write_text(HANG)
    with workbench.running(f"cd {folder}\n{RANKS.replace('--pty', '--job-name=hang')}") as job:
        job.printed("(?s)^hanging$.*^hanging$")
        number = workbench.cluster.slurm("squeue", "-h", "-o", "%i", "--name=hang").strip()
        workbench.load(SIGNAL.replace("JOB", number), load=False)
        place = 'File ".*/train.py", line \\d+ in wait'
        job.printed(f"(?s){place}.*{place}")
        assert job.process.poll() is None
    crash = "srun singularity exec $SIF python -c 'import ctypes; ctypes.string_at(0)'"
    failed = workbench.load(f"PYTHONFAULTHANDLER=1 {crash}", check=False)
    assert failed.returncode and "Fatal Python error: Segmentation fault" in failed.stderr
