"""Programs that may hang: time limits, and what is left of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ebsif import processes
from ebsif.images import checksum
from support import attempt, heed_signals, until

# the program and what it starts write their numbers to a file
HANGS = 'echo $$ >>"$0"; sh -c \'echo $$ >>"$0"; exec sleep 300\' "$0" & wait; sleep 300'
INTERRUPTED = """\
import sys
from ebsif import processes
with processes.interruptible():
    processes.in_threads(lambda _: processes.run(["sh", "-c", *sys.argv[1:]], 300), range(4), 2)
"""
CUT = """\
import os, signal, sys, threading
from pathlib import Path
from ebsif import cli
from ebsif.commands import site
from ebsif.images.registry import repository

def content():
    yield b"some"
    os.kill(os.getpid(), int(sys.argv[1]))
    threading.Event().wait(60)

site.run = lambda options: repository.write(content(), Path("image.sif"))
sys.exit(cli.main(["site", "init", "mine"]))
"""


def numbers(path, count):
    """Return the process IDs in a file once there are so many."""
    until(lambda: path.exists() and len(path.read_text().split()) >= count, 60)
    return [int(number) for number in path.read_text().split()]


def is_gone(number):
    """Return whether a process has ended, perhaps still known to a parent that doesn't ask."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_limit(tmp_path, monkeypatch):
    """I-04: after its time limit, a program is ended with all that it has started, even if it ignores SIGTERM."""
    monkeypatch.setattr(processes, "GRACE", 1)
    with pytest.raises(processes.NoAnswerError, match=r"the program doesn't answer within 0.5 seconds"):
        processes.run(["sh", "-c", f"trap '' TERM; {HANGS}", tmp_path / "numbers"], 0.5, name="the program")
    assert all(is_gone(number) for number in numbers(tmp_path / "numbers", 2))


def test_output_without_end(monkeypatch):
    """P-06: a program that prints without end is ended, and doesn't fill the memory."""
    monkeypatch.setattr(processes, "MOST_WRITTEN", 10**6)
    for stream in (1, 2):
        with pytest.raises(processes.NoAnswerError, match="the program prints more than 1.0 MB"):
            processes.run(["sh", "-c", f"yes >&{stream}"], 60, name="the program")


def test_input_that_is_not_read():
    """I-04: a program that ends without reading all of its input has done its work."""
    assert processes.run(["true"], 60, "x" * 10**6).returncode == 0
    assert processes.run(["cat"], 60, "x" * 10**6).stdout == "x" * 10**6


def test_input_and_output():
    """I-04: a program has the input, the environment and the directory that it is given; bytes are kept."""
    command = ["sh", "-c", r"cat; pwd; printf '\377%s' $A >&2; exit 3"]
    done = processes.run(command, 60, "x\n", environment={"A": "b"}, cwd="/")
    assert (done.returncode, done.stdout, os.fsencode(done.stderr)) == (3, "x\n/\n", b"\xffb")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption(tmp_path, number):
    """I-04: Ctrl-C ends what runs in all threads, and starts nothing more; so do the signals of schedulers."""
    command = [sys.executable, "-c", INTERRUPTED, HANGS, tmp_path / "numbers"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=heed_signals) as process:
        found = numbers(tmp_path / "numbers", 4)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGINT else 128 + number)
    assert all(is_gone(one) for one in found)
    assert numbers(tmp_path / "numbers", 4) == found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_a_command_has_begun_to_write(tmp_path, number):
    """R-04: also the signals by which schedulers end jobs leave no half image, which may have many gigabytes."""
    done = attempt([sys.executable, "-c", CUT, str(int(number))], cwd=tmp_path, preexec_fn=heed_signals)
    assert done.returncode == 128 + number, done.stderr
    assert not list(tmp_path.iterdir())


def test_an_interruption_at_the_beginning(tmp_path):
    """I-04: Ctrl-C while further items are handed to the threads ends what runs already, before its time limit."""
    late = []

    def items():
        yield HANGS
        numbers(tmp_path / "numbers", 2)
        raise KeyboardInterrupt

    def start(script):
        try:
            processes.run(["sh", "-c", script, tmp_path / "numbers"], 10)
        except processes.NoAnswerError as error:
            late.append(error)

    with pytest.raises(KeyboardInterrupt):
        processes.in_threads(start, items(), 2)
    assert late == []
    assert all(is_gone(one) for one in numbers(tmp_path / "numbers", 2))


def test_threads():
    """I-04: results have the order of the items; an exception in a thread ends all, and programs can be run again."""
    assert processes.in_threads(lambda item: item * 2, [1, 2, 3], 2) == [2, 4, 6]
    with pytest.raises(ZeroDivisionError):
        processes.in_threads(lambda item: 1 / item, [1, 0], 2)
    assert processes.run(["echo", "again"], 60).stdout == "again\n"


def test_reading_an_image_ends(tmp_path, monkeypatch):
    """I-04: Ctrl-C ends the reading of images, too, which takes long."""
    (tmp_path / "image").write_bytes(b"x")
    assert len(checksum.sha256(tmp_path / "image")) == 64
    monkeypatch.setattr(processes, "_ending", True)
    with pytest.raises(KeyboardInterrupt):
        checksum.sha256(tmp_path / "image")


def test_signals_that_are_ignored():
    """I-04: what nohup has started goes on when the terminal is closed; the handlers are those of before at the end."""
    handlers = [signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)]
    try:
        with processes.interruptible():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == processes.interrupt
        assert signal.getsignal(signal.SIGTERM) == handlers[1]
    finally:
        signal.signal(signal.SIGHUP, handlers[0])
