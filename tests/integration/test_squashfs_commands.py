"""make-squashfs and unmake-squashfs on real files with real programs."""

import filecmp
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from account import as_root, give
from support import CONTAINER_FILES, attempt, heed_signals, printed, words_of_scripts, write_program

MAKE, UNMAKE = "make-squashfs", "unmake-squashfs"


@pytest.fixture
def installation(tmp_path):
    """An installation with the scripts and a directory user-software with many kinds of files; its path has blanks."""
    root = tmp_path / "an installation, with $odd: characters"
    shutil.copytree(CONTAINER_FILES, root)
    software = root / "user-software"
    (software / "venv" / "pytorch" / "bin").mkdir(parents=True)
    write_program(software / "venv" / "pytorch" / "bin" / "tool", "#!/bin/sh\n")
    (software / "venv" / "pytorch" / "lib64").symlink_to("lib")
    (software / "venv" / "pytorch" / "dangling").symlink_to("/opt/nowhere/python")
    (software / "a file with blanks").write_bytes(os.urandom(100_000))
    (software / "with -> an arrow").symlink_to("some -> where")
    (software / "1 2026-01-01 00:00 squashfs-root").write_text("as unsquashfs writes")
    (software / "two\nlines").write_text("12")
    (software / os.fsdecode(b"not \xff UTF-8")).write_text("123")
    (software / "group").mkdir(mode=0o775)
    (software / "group").chmod(0o2775)
    (software / "secret").write_text("x")
    (software / "secret").chmod(0o640)
    return root


def run(installation, command, *arguments, path=None, program=None):
    """Run a command of the installation, if asked with another PATH."""
    environment = dict(os.environ, PATH=str(path) + ":" + os.environ["PATH"] if path else os.environ["PATH"])
    return attempt([program or installation / "bin" / command, *arguments], env=environment, timeout=300)


def pack(installation, *arguments):
    """Pack user software and remove the directory."""
    done = run(installation, MAKE, *arguments)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(installation / "user-software")


def check_both_ways(installation):
    """Check that user software is the same after it was packed, removed and unpacked."""
    before = listing(installation / "user-software")
    pack(installation)
    done = run(installation, UNMAKE)
    assert (done.returncode, listing(installation / "user-software")) == (0, before), done.stderr


def listing(root):
    """Return every file below root with its kind, mode and content or target."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (stat.filemode(status.st_mode), content)
    return found


def fake_program(folder, name, text):
    """Put a program of the same name before the real one on PATH."""
    folder.mkdir(exist_ok=True)
    write_program(folder / name, f"#!/bin/bash\n{text}\n")
    return folder


def test_files_of_others_are_not_to_be_removed(installation):
    """Users who may not remove the file are told its owner, and how to use a directory of their own."""
    squashfs = installation / "user-software.squashfs"
    squashfs.touch()
    for command, path in ((MAKE, squashfs), (UNMAKE, installation / "user-software")):
        own = run(installation, command)
        give(path, 2)
        others = run(installation, command)
        assert own.returncode == others.returncode == 3 and f"{path} exists: remove " in own.stderr
        assert f"{path} exists and belongs to bin; it was not touched; to get your own user software" in others.stderr
        assert "remove" not in others.stderr


def test_packing_and_unpacking(installation):
    """
    S002-26, S002-28, S002-30, S002-43 (in part): modes, links and bytes are the same.

    Each keeps what it was made from, and ends with how to reload the module.
    """
    software, squashfs = installation / "user-software", installation / "user-software.squashfs"
    before, count = listing(software), 1 + len(list(software.rglob("*")))
    packing = run(installation, MAKE)
    assert packing.returncode == 0 and f"{count} files and directories are now 1 file" in packing.stderr
    assert listing(software) == before
    subprocess.run(["unsquashfs", "-l", squashfs], check=True, capture_output=True)
    shutil.rmtree(software)
    unpacking = run(installation, UNMAKE)
    assert unpacking.returncode == 0 and squashfs.is_file(), unpacking.stderr
    assert listing(software) == before
    for done in (packing, unpacking):
        assert "reload the module" in done.stderr
        assert "to reload: module unload NAME; module load NAME" in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_both_work_without_standard_error(installation, closed):
    """S002-26: with standard error and others closed, messages go nowhere, and the status is as usual."""
    before = listing(installation / "user-software")
    for command in (MAKE, UNMAKE):
        done = subprocess.run(["bash", "-c", f'"$0" {closed}', installation / "bin" / command], check=False)
        assert done.returncode == 0, command
        if command == MAKE:
            shutil.rmtree(installation / "user-software")
    assert listing(installation / "user-software") == before


def test_make_squashfs_refuses(installation):
    """S002-27: without the directory (2) or with an existing SquashFS file (3) it refuses and changes nothing."""
    squashfs = installation / "user-software.squashfs"
    squashfs.write_text("the user's")
    before = listing(installation)
    assert run(installation, MAKE).returncode == 3
    assert listing(installation) == before

    # a link with that name counts as existing, whatever its target
    squashfs.unlink()
    squashfs.symlink_to("/nowhere/at/all")
    assert run(installation, MAKE).returncode == 3

    squashfs.unlink()
    shutil.rmtree(installation / "user-software")
    before = listing(installation)
    result = run(installation, MAKE)
    assert result.returncode == 2 and "no directory" in result.stderr
    assert listing(installation) == before


def test_unmake_squashfs_refuses(installation):
    """S002-29: without a SquashFS file (2) or with an existing directory (3) it refuses and changes nothing."""
    before = listing(installation)
    assert run(installation, UNMAKE).returncode == 2
    assert listing(installation) == before
    assert run(installation, MAKE).returncode == 0
    before = listing(installation)
    assert run(installation, UNMAKE).returncode == 3
    assert listing(installation) == before


# like the real mksquashfs, one that fails writes something first
PARTIAL = 'for last; do [[ $last == */new ]] && echo partial >"$last"; done; '


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PARTIAL + "exit 1", "nothing was changed"),
        (PARTIAL + "echo no space left on device >&2; exit 1", "nothing was changed"),
        (PARTIAL + "kill -9 $$", "nothing was changed"),
        # it succeeds, but writes an unreadable file, or too little
        ('echo rubbish >"$2"', "can't read the new file"),
        ('PATH=${PATH#*:} mksquashfs "$@"; truncate -s 1000 "$2"', "can't read the new file"),
    ],
)
def test_a_failing_mksquashfs_leaves_nothing(installation, tmp_path, text, said):
    """S002-31: if mksquashfs fails or is killed: non-zero status, no partial file, nothing deleted."""
    before = listing(installation)
    result = run(installation, MAKE, path=fake_program(tmp_path / "fake", "mksquashfs", text))
    assert result.returncode == 4 and said in result.stderr
    assert listing(installation) == before


@pytest.mark.parametrize(
    ("path", "mode"), [("secret", 0o600), ("group", 0o711), ("group", 0o744), ("a file with blanks", 0o200)]
)
def test_unreadable_files_are_an_error(installation, path, mode):
    """G-04: an unreadable file or directory of another account: status 4 with its name."""
    hidden = installation / "user-software" / path
    hidden.chmod(mode)
    give(hidden, 0, 0)
    with as_root():
        before = listing(installation)
    result = run(installation, MAKE, "--", "-comp", "gzip")
    assert result.returncode == 4, result.stderr
    assert f"can't read {hidden}: " in result.stderr
    assert "nothing was changed" in result.stderr
    with as_root():
        assert listing(installation) == before


@pytest.mark.parametrize("lost", ["an empty file", "no file", "another target"])
def test_files_that_were_not_packed_are_named(installation, tmp_path, lost):
    """G-04: mksquashfs continues after I/O errors (EIO, ESTALE), so its result is compared."""
    # imitates such an mksquashfs: packs a copy with a file missing
    change = {"an empty file": ': >"secret"', "no file": "rm secret", "another target": "ln -sfn x venv/pytorch/lib64"}
    text = (
        f'[[ $2 == */new ]] || exec {shutil.which("mksquashfs")} "$@"\n'
        f'rm -rf "{tmp_path}/lossy"; cp -a "$1" "{tmp_path}/lossy"; cd "{tmp_path}/lossy"; {change[lost]}; '
        f'exec {shutil.which("mksquashfs")} . "${{@:2}}"'
    )
    before = listing(installation)
    result = run(installation, MAKE, path=fake_program(tmp_path / "fake", "mksquashfs", text))
    assert result.returncode == 4
    assert ("venv/pytorch/lib64 -> lib" if lost == "another target" else "/secret") in result.stderr
    assert "nothing was changed" in result.stderr
    assert listing(installation) == before


def test_options_that_leave_files_out(installation):
    """G-04: the file must be complete: files left out because of the user's options are named, with the reason."""
    before = listing(installation)
    result = run(installation, MAKE, "--", "-comp", "gzip", "-e", "venv/pytorch/bin")
    assert result.returncode == 4 and "options exclude files (-comp gzip -e venv/pytorch/bin), or" in result.stderr
    assert "/venv/pytorch/bin, /venv/pytorch/bin/tool" in result.stderr
    assert listing(installation) == before


def test_files_that_were_not_unpacked_are_named(installation, tmp_path):
    """G-04: likewise for an unsquashfs that continues after an error."""
    pack(installation)
    before = listing(installation)
    real = shutil.which("unsquashfs")
    text = f'{real} "$@" || exit\nwhile (($# > 1)); do [[ $1 == -d ]] && : >"$2/a file with blanks"; shift; done'
    result = run(installation, UNMAKE, path=fake_program(tmp_path / "fake", "unsquashfs", text))
    assert result.returncode == 4 and "/a file with blanks" in result.stderr
    assert listing(installation) == before


@pytest.mark.parametrize(("command", "program"), [(MAKE, "mksquashfs"), (MAKE, "unsquashfs"), (UNMAKE, "unsquashfs")])
def test_a_missing_program_is_named(installation, tmp_path, command, program):
    """S002-31: without mksquashfs or unsquashfs: non-zero status with the name, nothing changed."""
    if command == UNMAKE:
        pack(installation)
    tools = tmp_path / "tools"
    tools.mkdir()
    needed = ["bash", "env", "readlink", "mktemp", "rm", "chmod", "find", "wc", "tail", "mkdir", "mv", "sed"]
    needed += ["sort", "comm"]
    for name in {"mksquashfs", "unsquashfs", *needed} - {program}:
        (tools / name).symlink_to(shutil.which(name))
    before = listing(installation)
    result = attempt([installation / "bin" / command], env={"PATH": str(tools)})
    assert result.returncode == 4 and f"{program} is not on PATH" in result.stderr
    assert listing(installation) == before


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_an_interrupted_make_squashfs_leaves_nothing(installation, tmp_path, name):
    """S002-31: the command is ended by a signal: non-zero status, no partial file, nothing deleted."""
    flag = tmp_path / "started"
    text = f'[[ $2 == */probe ]] && exit 0; echo partial >"$2"; touch "{flag}"; sleep 2'
    before = listing(installation)
    environment = dict(os.environ, PATH=f"{fake_program(tmp_path / 'fake', 'mksquashfs', text)}:{os.environ['PATH']}")
    command = [installation / "bin" / MAKE]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=heed_signals
    )
    wait_for(flag)
    os.killpg(process.pid, getattr(signal, name))
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert listing(installation) == before


def wait_for(path):
    """Wait until a file exists."""
    for _ in range(600):
        if Path(path).exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


def test_a_damaged_squashfs_is_not_unpacked(installation):
    """unsquashfs fails: status 4, no directory, the file unchanged."""
    pack(installation)
    squashfs = installation / "user-software.squashfs"
    squashfs.write_bytes(squashfs.read_bytes()[:4096])
    before = listing(installation)
    assert run(installation, UNMAKE).returncode == 4
    assert listing(installation) == before


def test_a_copied_installation_uses_its_own_files(installation, tmp_path):
    """Scripts find the installation by their own path, also through a link on PATH."""
    copy = tmp_path / "copy"
    shutil.copytree(installation, copy, symlinks=True)
    link = tmp_path / "link-to-make"
    link.symlink_to(copy / "bin" / MAKE)
    assert run(copy, MAKE, program=link).returncode == 0
    assert (copy / "user-software.squashfs").exists()
    assert not (installation / "user-software.squashfs").exists()


def test_options_choose_directory_and_processors(installation, tmp_path):
    """make-squashfs -d packs another directory; -p needs a number."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "only this").write_text("text")
    assert run(installation, MAKE, "-d", other, "-p", "1").returncode == 0
    unpacked = tmp_path / "unpacked"
    command = ["unsquashfs", "-d", unpacked, installation / "user-software.squashfs"]
    subprocess.run(command, check=True, capture_output=True)
    assert filecmp.dircmp(other, unpacked).common == ["only this"]


@pytest.mark.parametrize("arguments", [["-p", "many"], ["-x"], ["-d"], ["surplus"]])
def test_wrong_use_is_refused(installation, arguments):
    """Wrong options: status 64, nothing changed."""
    before = listing(installation)
    result = run(installation, MAKE, *arguments)
    assert result.returncode == 64
    assert result.stderr.startswith("make-squashfs: ")
    assert listing(installation) == before


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_the_description_of_the_command(option):
    """All commands print the comment at the top of the script, on the host too, and do nothing."""
    bin_commands = {MAKE, UNMAKE, "make-venv", "extend-venv-activate", "start-shell", "list-packages", "with-module"}
    assert bin_commands == {path.name for path in (CONTAINER_FILES / "bin").iterdir()} - {
        f"container-{name}" for name in ("exec", "run", "runtime")
    }
    run_scripts = ("conda-python-simple", "conda-python-distributed", "get-master", "list-packages")
    for path in [*(f"bin/{name}" for name in bin_commands), *(f"runscripts/{name}" for name in run_scripts)]:
        result = attempt(["bash", "-p", CONTAINER_FILES / path, option])
        assert (result.returncode, result.stderr) == (0, "")
        sentence, usage, *_, last = result.stdout.split("\n\n")
        assert sentence.endswith(".") and "\n" not in sentence, path
        assert usage.startswith(f"Usage: {Path(path).name}"), path
        assert "\n\nExamples:" in result.stdout, path
        assert last.startswith("Exit status: "), path
        assert "#" not in result.stdout


def compression(installation):
    """Return the compression of the SquashFS file."""
    shown = printed(["unsquashfs", "-s", installation / "user-software.squashfs"])
    return next(line.split()[1] for line in shown.splitlines() if line.startswith("Compression"))


def test_an_mksquashfs_without_zstd(installation, tmp_path):
    """mksquashfs 4.3 has no zstd: gzip is used without a message."""
    text = (
        '[[ " $* " != *" zstd "* ]] || { echo "FATAL ERROR: Compressor zstd is not supported!"; exit 1; }\n'
        f'exec {shutil.which("mksquashfs")} "$@"'
    )
    result = run(installation, MAKE, path=fake_program(tmp_path / "fake", "mksquashfs", text))
    assert result.returncode == 0, result.stderr
    assert compression(installation) == "gzip"
    assert "zstd" not in result.stderr


def test_zstd_is_used_if_it_can_be_mounted(installation, tmp_path):
    """zstd if the runtime can mount it, which is tried with the image; otherwise, or without a runtime, gzip."""
    # the runtime can't mount from the other path: blank after comma, colon after comma
    installation = installation.rename(tmp_path / "another:place,with odd characters")
    image = installation / "an image.sif"
    image.symlink_to(os.environ["EBSIF_TEST_BASE_IMAGE"])
    assert run(installation, MAKE).returncode == 0
    assert compression(installation) == "zstd"

    (installation / "user-software.squashfs").unlink()
    refuses = fake_program(tmp_path / "bin", "apptainer", "exit 255")
    assert run(installation, MAKE, path=refuses).returncode == 0
    assert compression(installation) == "gzip"

    (installation / "user-software.squashfs").unlink()
    image.unlink()
    assert run(installation, MAKE).returncode == 0
    assert compression(installation) == "gzip"


def test_the_compression_can_be_chosen(installation):
    """Options after -- are passed to mksquashfs; those that neither program knows are refused."""
    assert run(installation, MAKE, "-p", "1", "--", "-comp", "xz").returncode == 0
    assert compression(installation) == "xz"
    (installation / "user-software.squashfs").unlink()
    before = listing(installation)
    assert run(installation, MAKE, "xz").returncode == 64
    for option in ("-x", "--nope"):
        result = run(installation, MAKE, option)
        assert (result.returncode, f"unknown option or missing value: {option};" in result.stderr) == (64, True)
    assert run(installation, MAKE, "--", "-comp", "no-such").returncode == 4
    assert listing(installation) == before


def test_variables_that_scripts_have_too(installation, monkeypatch):
    """admin: lists of thousands of files are not in the environment of programs, whatever the person has exported."""
    for name in words_of_scripts():
        monkeypatch.setenv(name, "x")
    for number in range(4000):
        (installation / "user-software" / f"{number:060}").touch()
    check_both_ways(installation)


def test_the_same_bytes_for_every_user(installation):
    """With -r all files belong to root, so the same files give the same bytes."""
    digests = []
    environment = dict(os.environ, SOURCE_DATE_EPOCH="315532800")
    for owner in (os.getuid(), 12345):
        give(installation / "user-software" / "secret", owner, owner)
        with as_root():
            subprocess.run([installation / "bin" / MAKE, "-r"], check=True, capture_output=True, env=environment)
        digests.append((installation / "user-software.squashfs").read_bytes())
        (installation / "user-software.squashfs").unlink()
    assert digests[0] == digests[1]


def test_rights_of_other_accounts(installation):
    """P-04: set-ID bits, owners and the right of others to write don't come along, also as root."""
    tool, squashfs = installation / "user-software/venv/pytorch/bin/tool", installation / "user-software.squashfs"
    give(tool, 2, 2)
    with as_root():
        tool.chmod(0o6757)
        tool.parent.chmod(0o777)
        assert run(installation, MAKE).returncode == 0
        shown = subprocess.run(["unsquashfs", "-ll", squashfs], capture_output=True, check=True).stdout
        assert b"-rwxr-xr-x bin/bin" in shown
        assert not re.search(rb"^[d-].{7}w|^-(.{2}|.{5})s", shown, re.MULTILINE)
        squashfs.unlink()
        subprocess.run(["mksquashfs", installation / "user-software", squashfs], check=True, capture_output=True)
        shutil.rmtree(installation / "user-software")
        assert run(installation, UNMAKE).returncode == 0
        status = tool.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o755, 0)
        assert stat.S_IMODE(tool.parent.stat().st_mode) == 0o775


def test_devices_of_other_accounts(installation, tmp_path):
    """P-04: root, for whom a device would be created that everybody can read, refuses user software that has one."""
    software, squashfs, own = installation / "user-software", installation / "user-software.squashfs", tmp_path / "own"
    own.mkdir()
    with as_root():
        os.mknod(software / "memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
        subprocess.run(["mksquashfs", software, squashfs], check=True, capture_output=True)
        for origin in (squashfs, software):
            done = attempt([installation / "bin" / UNMAKE], env={**os.environ, "EBSIF_USER_SOFTWARE": own})
            assert (done.returncode, list(own.iterdir())) == (4, [])
            assert f"{origin} has a device, memory, which software doesn't need; nothing was changed" in done.stderr
            squashfs.unlink(missing_ok=True)


def test_names_like_lines_of_a_listing(installation, tmp_path):
    """P-04: a name with line breaks changes nothing of a directory of somebody else, to which a link leads."""
    software, squashfs, victim = installation / "user-software", installation / "user-software.squashfs", tmp_path / "x"
    victim.mkdir(mode=0o755)
    (software / "link").symlink_to(victim)
    (software / "x\ndrwxr-sr-x root/root 3 2026-01-01 00:00 squashfs-root/link").mkdir(parents=True)
    subprocess.run(["mksquashfs", software, squashfs], check=True, capture_output=True)
    listed = subprocess.run(["unsquashfs", "-ll", squashfs], capture_output=True, check=True).stdout
    assert b"\ndrwxr-sr-x root/root 3 2026-01-01 00:00 squashfs-root/link\n" in listed
    shutil.rmtree(software)
    assert run(installation, UNMAKE).returncode == 4
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


def test_a_group_can_use_the_files(installation):
    """S002-45: a group that shares the installation may read and write packed and unpacked files."""
    (installation / "user-software" / "secret").chmod(0o600)
    (installation / "user-software" / "group").chmod(0o700)
    installation.chmod(0o2775)
    before = os.umask(0o077)
    try:
        assert run(installation, MAKE).returncode == 0
    finally:
        os.umask(before)
    assert (installation / "user-software.squashfs").stat().st_mode & 0o060 == 0o060
    shutil.rmtree(installation / "user-software")
    assert run(installation, UNMAKE).returncode == 0
    for path in [installation / "user-software", *(installation / "user-software").rglob("*")]:
        if not path.is_symlink():
            wanted = 0o2070 if path.is_dir() else 0o060
            assert path.stat().st_mode & wanted == wanted, path


def test_advice_concerns_the_users_own_files(installation):
    """G-05: in an installation shared by a group, SquashFS file and directory belong to a colleague."""
    give(installation / "user-software", 65534)
    result = run(installation, MAKE)
    assert "is kept, it belongs to nobody" in result.stderr
    assert "remove" not in result.stderr
    give(installation / "user-software.squashfs", 65534)
    with as_root():
        shutil.rmtree(installation / "user-software")
    result = run(installation, UNMAKE)
    assert "still takes precedence, and it belongs to nobody: ask them before" in result.stderr
    assert "rm '" not in result.stderr


def lustre(folder, lfs):
    """Let everything look like Lustre: stand-ins for `lfs` and for what statfs(2) says, the only parts not real."""
    fake_program(folder, "stat", f'[[ "$1 $2" == "-f -c" ]] && echo bd00bd0 || exec {shutil.which("stat")} "$@"')
    return fake_program(folder, "lfs", lfs)


def test_stripes_before_packing(installation, tmp_path):
    """T-06: on Lustre, the file has stripes before mksquashfs writes into it, and other files don't."""
    settings = installation / "share/ebsif/module.conf"
    settings.write_text("striping -c\nstriping 8\nstriping -S\nstriping 4M\n")
    noted = f'exec >>"{tmp_path}/noted"; printf "%s\\n" "$@"; : >"${{@: -1}}"; exec stat -c %i "${{@: -1}}"'
    result = run(installation, MAKE, path=fake_program(tmp_path / "local", "lfs", noted))
    assert result.returncode == 0 and not (tmp_path / "noted").exists()
    squashfs = installation / "user-software.squashfs"
    squashfs.unlink()
    result = run(installation, MAKE, path=lustre(tmp_path / "lustre", noted))
    assert result.returncode == 0, result.stderr
    *options, path, inode = (tmp_path / "noted").read_text().splitlines()
    assert options == ["setstripe", "-c", "8", "-S", "4M"]
    assert Path(path).parent.parent == installation and int(inode) == squashfs.stat().st_ino
    assert stat.S_IMODE(squashfs.stat().st_mode) == 0o644


def test_stripes_that_fail(installation, tmp_path):
    """T-06: if the stripes can't be set, that is said, and user software is packed."""
    (installation / "share/ebsif/module.conf").write_text("striping -c\nstriping 8\n")
    result = run(installation, MAKE, path=lustre(tmp_path / "lustre", "echo no stripes here >&2; exit 1"))
    assert result.returncode == 0 and "is not striped over several servers of Lustre: no stripes here" in result.stderr
    assert (installation / "user-software.squashfs").exists()


def test_a_strict_umask(installation):
    """The file can be read by whoever can read the directory, whatever the umask."""
    done = attempt(["bash", "-c", 'umask 077; exec "$0"', installation / "bin" / MAKE])
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((installation / "user-software.squashfs").stat().st_mode) == 0o644


def test_posix_mode(installation, monkeypatch):
    """S002-31: variables of the user that change how programs read their options don't matter."""
    monkeypatch.setenv("POSIXLY_CORRECT", "1")
    check_both_ways(installation)
    assert not list(installation.glob(".*"))


def test_a_directory_that_its_owner_has_closed(installation):
    """S002-26, S002-32: a directory without write permission is packed, and unpacked so that it can be changed."""
    software = installation / "user-software"
    before = listing(software)
    software.chmod(0o555)
    assert run(installation, MAKE).returncode == 0
    software.chmod(0o755)
    shutil.rmtree(software)
    result = run(installation, UNMAKE)
    assert result.returncode == 0, result.stderr
    assert listing(software) == before
    (software / "mine").write_text("mine")


def test_a_directory_that_is_a_link(installation, tmp_path):
    """A directory that was moved for quota is packed like others; the link stays."""
    software = installation / "user-software"
    software.rename(tmp_path / "moved")
    software.symlink_to(tmp_path / "moved")
    before = listing(tmp_path / "moved")
    assert run(installation, MAKE).returncode == 0
    software.unlink()
    assert run(installation, UNMAKE).returncode == 0
    assert listing(software) == before


def test_a_killed_mksquashfs_is_explained(installation, tmp_path):
    """Memory is limited, as jobs and login nodes do; if it isn't enough, the message says so."""
    write_program(tmp_path / "mksquashfs", '#!/bin/sh\necho "$@" >>"${0%/*}/said"\nexit 137\n')
    done = run(installation, MAKE, path=tmp_path)
    assert done.returncode == 4 and "was killed (status 137), probably for lack of memory" in done.stderr
    assert "nothing was changed" in done.stderr
    assert " -mem 512M " in (tmp_path / "said").read_text()


def test_another_command_of_the_same_process_number(installation, tmp_path):
    """What a command of another machine or container is making isn't taken for a leftover."""
    # waits before it is done, as on a large directory
    write_program(
        tmp_path / "mksquashfs",
        f'#!/bin/sh\nuntil [ -e "${{0%/*}}/go" ]; do sleep 0.1; done\nexec {shutil.which("mksquashfs")} "$@"\n',
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": "login"}
    with subprocess.Popen(
        [installation / "bin" / MAKE], env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    ) as first:
        while not list(installation.glob(".make-squashfs.*")):
            assert first.poll() is None
            time.sleep(0.05)
        # process numbers of its own
        other = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--mount-proc", "bash"]
        other += ["-c", f'cd "$1" && PATH={os.environ["PATH"]} exec bin/{MAKE}', "bash", installation]
        second = attempt(other, env=environment, timeout=300)
        (tmp_path / "go").touch()
        said = first.communicate(timeout=300)[1]
    for command, text in ((second, second.stderr), (first, said)):
        assert (command.returncode, "make-squashfs: made " in text) == (0, True), text


def test_leftovers_of_others_are_not_touched(installation, tmp_path):
    """P-04: a link that somebody has put in the place of a leftover changes nothing of where it leads."""
    (tmp_path / "mine").mkdir(mode=0o500)
    host = Path("/proc/sys/kernel/hostname").read_text().strip()
    space = Path("/proc/self/ns/pid").stat().st_ino
    (installation / f".make-squashfs.{host}.{space}.4194304.x").symlink_to(tmp_path / "mine")
    assert run(installation, MAKE).returncode == 0
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o500
