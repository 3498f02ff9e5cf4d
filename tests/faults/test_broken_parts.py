"""Missing or failing programs, images that are damaged, disappear or change, failures of pip, a wrong clock."""

import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest
from account import OWN_MOUNTS
from parts import Installed, wheel_settings
from support import attempt, heed_signals, write_program

# not like the one of other tests on this machine
SLEEP = f"sleep 57.{os.getpid()}"
MODULE = Installed.SQUASHED
TEXT = Installed.TEXT + "versionsuffix = '-squashed'\n"
WORKS = f"module load {MODULE} && singularity exec $SIF python -c 'import hello'"


@pytest.fixture(scope="module")
def before(tmp_path_factory, installations):
    """A site with a working installation, which must still work after each test that shares it."""
    return installations("Lmod-Lua").copy(tmp_path_factory.mktemp("before"), MODULE)


@pytest.fixture
def installed_before(before):
    """Return a function that tells whether the earlier installation works, and its output otherwise."""

    def works():
        result = before.bash(WORKS, check=False)
        beside = [path.name for path in (before.prefix / "eb/software/Example").iterdir()]
        return result.returncode == 0 and beside == ["1.0-squashed"], f"{result.stderr} {beside}"

    return works


def shim(folder, name, text):
    """Put a program before the real one, which it can call as `real`; return PATH."""
    folder.mkdir(exist_ok=True)
    real = shutil.which(name)
    write_program(folder / name, f"#!/bin/bash\nreal={real}\n{text}\n")
    return f"{folder}:{os.environ['PATH']}"


def without(folder, *names):
    """Return a PATH with all programs of this machine except some."""
    folder.mkdir()
    for directory in reversed(os.environ["PATH"].split(":")):
        for path in Path(directory).glob("*"):
            if path.name not in names:
                link = folder / path.name
                link.unlink(missing_ok=True)
                link.symlink_to(path)
    return str(folder)


BROKEN = {
    "runtime missing": (lambda folder: without(folder, "apptainer", "singularity"), "Neither 'apptainer' nor"),
    "runtime killed": (lambda folder: shim(folder, "apptainer", "kill -KILL $$"), "failed with exit code"),
    "mksquashfs failing": (
        lambda folder: shim(folder, "mksquashfs", "echo FATAL ERROR: no >&2; exit 1"),
        "mksquashfs failed (status 1)",
    ),
    "unsquashfs missing": (lambda folder: without(folder, "unsquashfs"), "unsquashfs not found on PATH"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_missing_or_failing_program(before, wheels, tmp_path, installed_before, fault, name):
    """Reinstalling stops with an error; the earlier installation works."""
    case = fault("broken programs", name)
    path, expected = BROKEN[name]
    environment = dict(wheel_settings(wheels), PATH=f"{before.venv}/bin:{path(tmp_path / 'programs')}")
    # a stage without pip, which none of these programs concerns
    text = TEXT + "requirements = [{'verify': ['true']}]\n"
    result = before.eb(before.easyconfig(text), "--rebuild", check=False, **environment)
    case.shown(result.returncode != 0, "eb said nothing of it")
    case.said(result.stdout + result.stderr, expected)
    case.kept(*installed_before())


# --- images


def truncated(image, path):
    """Without its last tenth."""
    size = image.stat().st_size
    with image.open("rb") as whole:
        path.write_bytes(whole.read(size - size // 10))


def encrypted(image, path):
    """Its SIF header calls the file system encrypted (type 5); there is no key."""
    data = bytearray(image.read_bytes())
    # descriptors of 585 bytes from 4096 on: data type 0x4004 is a partition, whose file system is in `extra`
    # (SIF 1.0 specification, as sif(1) of SingularityCE and Apptainer has it)
    for start in range(4096, 4096 + 585 * 48, 585):
        if struct.unpack_from("<i", data, start)[0] == 0x4004:
            extra = start + 585 - 384
            assert struct.unpack_from("<i", data, extra)[0] == 1
            struct.pack_into("<i", data, extra, 5)
    path.write_bytes(data)


IMAGES = {
    "truncated": truncated,
    "encrypted": encrypted,
    "empty": lambda image, path: path.write_bytes(b""),
    "a text": lambda image, path: path.write_text("<html>404 not found</html>\n" * 1000),
    "a directory": lambda image, path: path.mkdir(),
}


def test_an_invalid_image(before, wheels, base_image, installed_before, fault):
    """Reinstalling stops with an error that names the image; the earlier installation works."""
    for name, damage in IMAGES.items():
        damage(base_image, before.sources / f"{name}.sif")
    texts = {name: TEXT.replace("example.sif", f"{name}.sif") + "requirements = ['hello']\n" for name in IMAGES}
    for name, result in before.eb_each(texts, "--rebuild", **wheel_settings(wheels)).items():
        case = fault("damaged images", name)
        case.shown(result.returncode != 0, "eb said nothing of it")
        case.said(result.stdout, f"{name}.sif")
    fault("damaged images", "all of them").kept(*installed_before())


def test_an_image_that_disappears_while_a_job_runs(before, base_image, fault):
    """The job continues with its open files; the next load names the missing image; a restored copy is found."""
    site = before
    image = site.prefix / f"eb/software/{MODULE}/example.sif"
    for name in ("removed", "replaced by another", "overwritten by a rename"):
        case = fault("images that change while a job runs", name)
        with running(site, "import time; print(1, flush=True); input(); import hello, json.tool; print(2)") as job:
            kept = image.rename(image.with_name("kept"))
            if name == "replaced by another":
                shutil.copy(base_image, image)
            elif name != "removed":
                shutil.copy(base_image, image.with_name("new"))
                image.with_name("new").rename(image)
            output, errors = job.communicate("\n", timeout=300)
        case.kept((output, job.returncode) == ("2\n", 0), errors)
        if name == "removed":
            result = site.bash(WORKS, check=False)
            case.shown(result.returncode != 0 and "example.sif" in result.stderr, result.stderr)
        kept.rename(image)
        case.kept(site.bash(WORKS, check=False).returncode == 0, "the module after it")


def running(site, code):
    """Return a started job in the module's container; it continues after a line on standard input."""
    prelude = f"{site.tool.init}\nmodule use '{site.modules}'\nmodule load {MODULE}\n"
    command = ["bash", "--noprofile", "--norc", "-c", f'{prelude}exec singularity exec $SIF python -c "{code}"']
    job = subprocess.Popen(
        command, env=site.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert job.stdout.readline() == "1\n", job.communicate()
    return job


def test_user_software_that_changes_while_a_program_runs(before, fault):
    """make-squashfs while a program runs: it ends well, the next one sees the new content."""
    case = fault("user software that changes while a program runs", "a new SquashFS file")
    site = before
    with running(site, "print(1, flush=True); input(); import greeting, hello; print(2)") as job:
        site.bash(
            f"module load {MODULE}\nset -e\nunmake-squashfs\nrm $CONTAINERROOT/user-software.squashfs\n"
            "echo 'VALUE = 3' >$CONTAINERROOT/user-software/venv/pytorch/lib/python3.11/site-packages/more.py\n"
            "make-squashfs"
        )
        output, errors = job.communicate("\n", timeout=300)
    case.kept((output, job.returncode) == ("2\n", 0), errors)
    code = "import more, greeting; print(more.VALUE)"
    script = f"module load {MODULE}; singularity exec $SIF python -c '{code}'; rm -r $CONTAINERROOT/user-software"
    result = site.bash(script)
    case.kept(result.stdout == "3\n", result.stdout)


# --- pip, the network, the clock


def test_no_network(before, installed_before, fault):
    """The index doesn't answer: the error says so; the earlier installation works."""
    case = fault("no network", "the index can't be reached")
    settings = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": "/nowhere", "PIP_RETRIES": "0"}
    result = before.eb(before.easyconfig(TEXT + "requirements = ['nothing']\n"), "--rebuild", check=False, **settings)
    case.said(result.stdout + result.stderr, "there is no network here")
    case.kept(*installed_before())


@pytest.mark.nightly
def test_a_clock_in_the_past(site, fault):
    """The clock is earlier than the date of any file: installing, reinstalling and packing work."""
    case = fault("clock in the past", "1975")
    easyconfig = site.easyconfig(Installed.TEXT)
    again = shutil.copy(easyconfig, site.prefix / "again.eb")
    eb = ["faketime", "1975-06-01 00:00:00", "eb", *site.eb_options, easyconfig, again, "--rebuild"]
    result = site.run(eb, check=False)
    case.kept(result.returncode == 0, result.stdout[-1500:] + result.stderr)
    case.kept(result.stdout.count("COMPLETED: Installation ended successfully") == 2, result.stdout)
    pack = "module load Example/1.0; faketime '1975-06-01 00:00:00' make-squashfs && singularity exec $SIF python -c 1"
    case.kept(site.bash(pack, check=False).returncode == 0, "make-squashfs")


def test_a_read_only_installation(installed_once, wheels, fault):
    """Commands and pip report that they can't write there; the module still works."""
    site, root = installed_once.site, installed_once.root(installed_once.WRITABLE)
    script = f"""
        mount --bind {root} {root}
        mount -o remount,bind,ro {root}
        {site.tool.init}
        module use {site.modules}
        module load {installed_once.WRITABLE}
        make-squashfs; echo make-squashfs $?
        singularity exec -B {wheels} $SIF pip install --no-index --find-links {wheels} byhand 2>&1; echo pip $?
        singularity exec $SIF python -c 'import numpy'; echo works $?
    """
    result = site.run([*OWN_MOUNTS, "bash", "--noprofile", "--norc", "-c", script])
    case = fault("read-only installation", "make-squashfs")
    case.said(result.stdout, "make-squashfs 4")
    case.said(result.stderr, f"can't write to {root}: it is read-only, or you don't have permission")
    case = fault("read-only installation", "pip")
    case.shown("pip 0" not in result.stdout and "ead-only" in result.stdout, result.stdout)
    case = fault("read-only installation", "use")
    case.kept("works 0" in result.stdout, result.stdout)


def test_an_interrupted_installation(before, installed_before, fault):
    """Ctrl-C in a stage: eb ends, no process and no partial file is left, the earlier installation works."""
    case = fault("signals", "INT in a stage")
    stages = [{"post": [["sh", "-c", f"echo in the middle; exec {SLEEP}"]]}]
    status = interrupted(before, before.easyconfig(TEXT + f"requirements = {stages!r}\n"), times=1)
    case.shown(status != 0, "status 0")
    case.kept(sleeping() == [], "a process is left")
    case.kept(*installed_before())


def test_an_interrupted_first_installation(site, fault):
    """Ctrl-C, twice, in the sanity check, when everything is installed but the module: nothing is left of it."""
    case = fault("signals", "INT in the sanity check of a first installation")
    commands = f"sanity_check_commands = ['exec {SLEEP}']\n"
    status = interrupted(site, site.easyconfig(TEXT + commands), times=2)
    case.shown(status != 0, "status 0")
    case.kept(sleeping() == [], "a process is left")
    software = site.prefix / "eb/software"
    left = [*(software / "Example").glob("*"), *(software / ".locks").glob("*"), *site.modules.glob("Example/*")]
    case.kept(left == [], left)


def test_a_terminal_that_is_closed(before, installed_before, fault):
    """Signals after the new installation has taken its place bring the earlier one back, and no lock is left."""
    case = fault("signals", "HUP in a command after the installation, twice, and nobody reads what eb prints")
    text = f"{TEXT}postinstallcmds = ['exec {SLEEP}']\n"
    status = interrupted(before, before.easyconfig(text), times=2, number=signal.SIGHUP)
    case.shown(status != 0, "status 0")
    case.kept(sleeping() == [], "a process is left")
    case.kept(*installed_before())
    case.kept(list((before.prefix / "eb/software/.locks").iterdir()) == [], "a lock is left")


def interrupted(site, easyconfig, times, number=signal.SIGINT):
    """Install with eb, and send it a signal several times while it sleeps; return its exit status."""
    command = ["eb", *site.eb_options, easyconfig, "--rebuild"]
    with subprocess.Popen(
        [str(word) for word in command],
        env=site.environment,
        cwd=site.work,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=heed_signals,
    ) as job:
        while sleeping() == []:
            assert job.poll() is None, job.communicate()
        if number == signal.SIGHUP:
            job.stdout.close()
            job.stdout = None
        for _ in range(times):
            os.killpg(job.pid, number)
        job.communicate(timeout=300)
    return job.returncode


def sleeping():
    """Return the processes of the tests above."""
    found = attempt(["pgrep", "-f", f"^{SLEEP}$"]).stdout
    return found.split()
