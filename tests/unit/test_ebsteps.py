"""What is said while eb works: steps, progress, warnings, errors."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container import messages
from ebsif.eb import running
from ebsif.report import output, steps
from ebsif.report.steps import Now, Steps, format_time
from support import heed_signals, write_program

# what eb 5.3 printed; FOLDER is the build directory
RECORDED = """\
== Temporary log file in case of crash /tmp/eb-fzc5fc41/easybuild-2m57lxc0.log
== processing EasyBuild easyconfig /home/me/Base-1.0-mine.eb
== building and installing Base/1.0-mine...
  >> installation prefix: /home/me/eb/software/Base/1.0-mine
== fetching files and verifying checksums...
  >> sources:
  >> /sources/example.sif
== ... (took < 1 sec)
== creating build dir, resetting environment...
  >> build dir: FOLDER
== ... (took < 1 sec)
== configuring [skipped]
== building...
  >> creating the venv /user-software/venv/base in the container
  >> the venv sees all 5 packages of the image
  >> stage 'my packages'
  >> installing 3 requirement lines with pip 26.3
  >> running command:
\t/usr/bin/apptainer exec --home /home/me/eb/build/home image.sif bash -c two
lines of a command
\t[started at: 2026-11-22 17:12:58]
  >> command completed: exit 0, ran in 00h00m07s
  >> packages added: 1
  >> packages added: by a command of somebody else
  >> stage 'more packages'
  >> packages added: 9
PAUSE
== ... (took 12 secs)
== testing...
  >> importing einops, rich
== ... (took < 1 sec)
== user software was changed by hand since it was installed; it is kept as it is (user-software)
== installing...
  >> copying FOLDER/source.sif to FOLDER/example.sif (99.2 MB)
  >> SHA256 a627c5c26876cfb803973fd2f9df94522a8f7cc95195c3f224fa4b99eec6f87f
  >> compiling bytecode
  >> packing user software into FOLDER/user-software.squashfs
  >> user software is 16.9 MB in one file
== ... (took 6 secs)
== sanity checking...
  >> file 'bin/start-shell' found: OK
== ... (took < 1 sec)
"""
SUCCESS = """\
== creating module...
== ... (took < 1 sec)
== COMPLETED: Installation ended successfully (took 20 secs)
== Results of the build can be found in the log file(s) /home/me/eb/software/Base/1.0-mine/easybuild/easybuild-Base.log
== Build succeeded for 1 out of 1 (total: 20 secs)
== Summary:
   * [SUCCESS] Base/1.0-mine
"""
SHOWN = """\
  installing packages                 0 s  10 packages added
user software was changed by hand since it was installed; it is kept as it is (user-software)
  importing packages                  0 s  2 packages
  installing files                    0 s  16.9 MB packed
  testing the module                  0 s
"""
# of pip 26.3
PIP_LOG = """\
Collecting optuna (from -r requirements.txt (line 1))
  Using cached optuna-4.6.0-py3-none-any.whl.metadata (17 kB)
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (4.0 MB)
"""


@pytest.fixture
def easybuild(tmp_path, monkeypatch):
    """A function that puts an eb on PATH which says something, and ends with a status."""

    def make(said, errors="", status=0):
        (tmp_path / "source.sif").write_bytes(b"x" * 12_000_000)
        for name, text in (("said", said), ("errors", errors)):
            (tmp_path / name).write_text(text.replace("FOLDER", str(tmp_path)))
        program = write_program(
            tmp_path / "bin/eb",
            "#!/bin/bash\nwhile IFS= read -r line; do\n"
            "    [[ $line != PAUSE ]] && printf '%s\\n' \"$line\" || sleep ${PAUSE:-0}\n"
            f"done <{tmp_path}/said\ncat {tmp_path}/errors >&2\nexit {status}\n",
        )
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return tmp_path

    return make


def test_steps_in_a_file(easybuild, capsys, monkeypatch):
    """E-10: a line of text for each step, with its time and details; other messages as they are, and nothing else."""
    easybuild(RECORDED + SUCCESS)
    result = running.install([])
    assert (result.status, result.error, result.skipped) == (0, "", False)
    said = capsys.readouterr()
    assert said.err == SHOWN + "  writing the module                  0 s\n"
    assert said.out == ""
    monkeypatch.setattr(output, "_level", output.QUIET)
    running.install([])
    assert "".join(capsys.readouterr()) == ""
    monkeypatch.setattr(output, "_level", output.VERBOSE)
    running.install([])
    said = capsys.readouterr()
    # standard output is for the result, such as JSON
    assert "lines of a command\n" in said.err and not said.out
    assert "installing packages" not in said.err


def test_a_long_step_in_a_file(capsys, monkeypatch):
    """E-10, N-04: lines say what is being done, and how far it is; ever fewer, and each with something new."""
    assert steps.IN_FILE <= 4.5
    monkeypatch.setattr(steps, "IN_FILE", 0.01)
    noted = threading.Event()
    calls = []

    def watch():
        calls.append(1)
        if len(calls) > 4:
            noted.set()
        return Now("\x1b[2Jtorch" if len(calls) < 4 else "numpy " * 20, 1, 2)

    with Steps() as shown:
        shown.begin(name := "installing what has a long name here", watch=watch)
        assert noted.wait(60)
        shown.detail("1 package added")
    *noted, last = re.sub(r"\d s", "0 s", capsys.readouterr().err).rstrip("\n").split("\n")
    assert noted == [f"  {name}        0 s  {text} (50 %) ..." for text in ("\\x1b[2Jtorch", "numpy " * 20)]
    assert last == f"  {name}        0 s  1 package added"


def test_warnings_of_what_is_installed(easybuild, capsys):
    """E-10: they are shown among the steps, and the last line can refer to them; not those of EasyBuild."""
    easybuild(SUCCESS, "\nWARNING: Using EasyBuild as root is NOT recommended\n\n")
    assert not running.install([]).warned
    easybuild(SUCCESS, "\nWARNING: stage 'mine': torchvision 0.28.0 was compiled against torch 2.13.0\n\n")
    assert running.install([]).warned
    assert "WARNING: stage 'mine': torchvision" in capsys.readouterr().err


def test_output_that_nobody_reads(easybuild):
    """E-10: with --verbose and `|& head`, eb still comes to its end, and there is no traceback."""
    folder = easybuild("== a line of eb\n" * 20_000 + "== the end\n")
    (folder / "bin/eb").write_text(f"#!/bin/bash\ncat {folder}/said && touch {folder}/done\n")
    program = (
        "import os, sys; from ebsif.eb import running; from ebsif.report import output\n"
        "output.set_level(output.VERBOSE)\n"
        "try:\n    running.install([])\nexcept BrokenPipeError:\n    os.dup2(1, 2)\n    sys.exit(7)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        command, line = process.stderr.readline(), process.stderr.readline()
        assert (command[:2], line) == (b"+ ", b"== a line of eb\n")
        process.stderr.close()
        try:
            assert process.wait(timeout=60) == 7
            assert b"Traceback" not in process.stdout.read()
        finally:
            process.kill()
    assert (folder / "done").exists()


def test_impatience(easybuild):
    """E-10: with many Ctrl-C, too, at any time after the first, eb is waited for, which cleans up."""
    folder = easybuild("")
    (folder / "bin/eb").write_text(f"""#!/bin/bash
        cd {folder}
        trap "touch interrupted" INT
        touch ready
        until [ -e interrupted ]; do sleep 0.02; done
        trap "" INT
        touch cleaning
        sleep 0.5
        touch done
    """)
    program = "from ebsif.eb import running; running.install([])"
    with subprocess.Popen(
        [sys.executable, "-c", program], start_new_session=True, stderr=subprocess.PIPE, preexec_fn=heed_signals
    ) as process:
        try:
            for name in ("ready", "cleaning"):
                while not (folder / name).exists():
                    assert process.poll() is None
                os.killpg(process.pid, signal.SIGINT)
            while not (folder / "done").exists() and process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            assert process.wait(timeout=60) != 0
            said = process.stderr.read().decode()
        finally:
            process.kill()
    assert (folder / "done").exists(), said


def test_impatience_at_the_start(easybuild, monkeypatch):
    """E-10: a Ctrl-C that comes while eb is being started interrupts when it runs: eb is waited for."""
    folder = easybuild("")
    (folder / "bin/eb").write_text(f"#!/bin/bash\nsleep 0.5\ntouch {folder}/done\n")
    start = subprocess.Popen

    def interrupted(*words, **options):
        process = start(*words, **options)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    # programs that nobody can interrupt ignore it
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            running.install([])
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert (folder / "done").exists()


def test_a_failure_in_a_file(easybuild, capsys):
    """E-10: the step that failed, warnings as they come, the message of the error, and where the log is."""
    easybuild(
        RECORDED + "== FAILED: Installation ended unsuccessfully: no module (took 26 secs)\n"
        "== Results of the build can be found in the log file(s) /tmp/eb-x/easybuild-Base.log\n",
        "\nWARNING: the image is old,\nand has \x1b[31mno pip\n\n  \x1b[1;31mtorch:\x1b[0m not found\n\n\n"
        "ERROR: Installation of Base-1.0-mine.eb failed: the module can't be loaded\n",
        status=2,
    )
    result = running.install([])
    said = capsys.readouterr().err
    assert re.search(r"^  testing the module +0 s  failed$", said, re.MULTILINE)
    assert "WARNING: the image is old,\nand has \\x1b[31mno pip\n" in said
    assert result.status == 2
    assert result.message == "the module can't be loaded\nThe log is /tmp/eb-x/easybuild-Base.log"
    result.print_program()
    assert capsys.readouterr().err == "  torch: not found\n"


def test_how_eb_ended():
    """
    E-10: without a message of eb, its status tells, which is negative after a signal.

    EasyBuild may quote a message, and its step; the command at its end keeps the quotation marks.
    """
    advice = "pip failed: to go on:\n    ebsif extend ... --add '--trusted-host HOST'"
    for quoted in (advice, f'"{advice}"', f'"An error was raised during test step: {advice}"'):
        assert running.Result(1, f"Installation of x.eb failed: {quoted}").message == advice
    assert running.Result(3).message == "eb failed with exit status 3"
    assert running.Result(-15).message == "eb was ended by signal 15"
    assert running.Result(-9).message == "eb was ended by signal 9, often because memory ran out"


def test_a_crash_of_eb(easybuild, capsys):
    """user 6d: no traceback, and not an empty message: the error with which eb ended, in words."""
    crash = 'Traceback (most recent call last):\n  File "x.py", line 1\nOSError: [Errno 28] No space left on device\n'
    easybuild("== building...\n", f"Looking in links\n{crash}", status=1)
    result = running.install([])
    capsys.readouterr()
    assert result.message.startswith("eb crashed: the disk is full")
    result.print_program()
    assert capsys.readouterr().err == ""


def test_steps_at_a_terminal(easybuild):
    """E-10: at a terminal of 80 columns the time passes, and what pip prints last is shown in one line."""
    folder = easybuild(RECORDED + SUCCESS)
    log = folder / "stages/my_packages/pip.log"
    log.parent.mkdir(parents=True)
    log.write_text(PIP_LOG)
    os.utime(log, (2e10, 2e10))  # after the last message of eb
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(PAUSE="2", TERM="xterm", LC_ALL="C.UTF-8")
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
        os.execv(sys.executable, [sys.executable, "-c", "from ebsif.eb import running; running.install([])"])
    said = b""
    try:
        while block := os.read(terminal, 4096):
            said += block
    except OSError:  # what Linux says at its end
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    # however it ends, nothing has to be undone
    assert set(re.findall(rb"\x1b\[[0-9;?]*[A-Za-z]", said)) == {b"\x1b[K"}
    lines = re.split(r"[\r\n]+", said.decode().replace("\x1b[K", ""))
    assert max(map(len, lines)) < 80 or max(lines, key=len).startswith("user software was changed")
    moving = [line for line in lines if re.match(r"  installing packages +[01] s  Down.* MB\) \.\.\.$", line)]
    assert len({line.split()[2] for line in moving}) > 1, lines
    assert [line for line in lines if re.match(r"  installing packages +\d s  10 packages added$", line)]


def test_what_eb_does(tmp_path):
    """E-10: the part of the image that is copied, while it grows, the last line of pip, or the last message of eb."""
    reader = running.OutputReader(Steps())
    assert reader.now() == Now()
    source, target = tmp_path / "a.sif", tmp_path / "b.sif"
    source.write_bytes(b"x" * 200)
    reader.output(f"  >> copying {source} to {target} (0.2 kB)")
    assert reader.now() == Now("copying the image", 0, 200)
    Path(f"{target}.partial").write_bytes(b"x" * 50)
    assert reader.now() == Now("copying the image", 50, 200)
    reader.output(f"  >> build dir: {tmp_path}")
    reader.output("  >> stage 'my packages'")
    assert reader.now() == Now("stage 'my packages'")
    log = tmp_path / "stages/my_packages/pip.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"{'x' * 5000}\n{PIP_LOG}\n")
    os.utime(log, (2e10, 2e10))
    assert reader.now() == Now(PIP_LOG.splitlines()[-1].strip())
    log.write_text("Requirement already satisfied: jinja2>=3 in /opt/lib (from torch->-r a.txt (line 1)) (3.1)\n")
    os.utime(log, (2e10, 2e10))
    assert reader.now() == Now("Requirement already satisfied: jinja2>=3")
    reader.output("== installing...")
    assert reader.message == ""
    # a name may read like the rest of the message
    reader.output("  >> copying /my to /images/a.sif to /installation/a.sif (1.0 GB)")
    assert reader.steps.step.current_line(80).endswith(" ...")


def test_an_interrupted_step(capsys):
    """E-10: the line of the step says so, other than that of one that failed; durations are readable."""
    with pytest.raises(KeyboardInterrupt), Steps() as steps:
        steps.begin("a name that is much too long for its column")
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "  a name that is much too long for its column        0 s  interrupted\n"
    with pytest.raises(ValueError, match="wrong"), Steps() as steps:
        steps.begin("pushing")
        raise ValueError("wrong")
    assert capsys.readouterr().err.endswith(" 0 s  failed\n")
    with pytest.raises(ValueError, match="wrong"), Steps() as steps:
        steps.begin("reading", important=False)
        raise ValueError("wrong")
    assert capsys.readouterr().err == ""
    assert [format_time(seconds) for seconds in (0.4, 59.9, 61, 7200)] == ["0 s", "59 s", "1 min 01 s", "120 min 00 s"]


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (messages.COPYING, ("/a b/x.sif", "/c/x.sif", "2.1 GB")),
        (messages.NOT_COPIED, ("/a b/x.sif",)),
        (messages.STAYING, ("Tool/1.0-mine-20261122", "12")),
        (messages.NOT_ISOLATED, ("flash-attn",)),
        (messages.IMPORTING, ("rich, einops",)),
        (messages.PIP_FAILED, ("requirements (mine)",)),
    ],
)
def test_what_the_easyblocks_say_is_read(message, values):
    """What a message is about is found in it, whatever follows; another message isn't taken for it."""
    more = "" if message.endswith("%s") else " and more"
    assert messages.values_in(message % values + more, message) == values
    assert messages.values_in("stage 'a': " + message % values, message) is None
