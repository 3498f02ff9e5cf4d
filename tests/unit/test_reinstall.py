"""Swap an installation with a new one, atomically or with three renames."""

import ctypes
import errno
import hashlib
import json
import logging
import os
import py_compile
import shutil
import subprocess
import venv
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import lockowner, reinstall, usersoftware
from easybuild.easyblocks.generic.container.installdirswap import UNPROVEN, InstallDirSwap
from easybuild.easyblocks.generic.container.record import InstallRecord
from easybuild.easyblocks.generic.container.reinstall import Reinstall
from easybuild.easyblocks.generic.container.usersoftware import FILE_TIME, UserSoftware, has_new_files, remove_bytecode
from easybuild.framework.easyblock import EasyBlock
from easybuild.tools.build_log import EasyBuildError
from support import CONTAINER_FILES


@pytest.fixture(params=["at once", "with three renames"])
def swap(request, tmp_path, monkeypatch):
    """An installation and its replacement, on systems with and without an atomic exchange."""
    if request.param == "with three renames":
        monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    for name in ("1.0", "1.0.replace"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    return InstallDirSwap(str(tmp_path / "1.0"))


def content(tmp_path):
    """Return the files' content by path."""
    return {path.name: (path / "which").read_text() for path in tmp_path.iterdir()}


def test_exchange(swap, tmp_path):
    """After one exchange the replacement is in place, after two everything is as before."""
    swap.exchange()
    assert content(tmp_path) == {"1.0": "1.0.replace", "1.0.replace": "1.0"}
    swap.exchange()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def test_recover(swap, tmp_path):
    """Killed after the first of three renames: the installation is restored; otherwise nothing changes."""
    (tmp_path / "1.0").rename(swap.backup_dir)
    swap.recover()
    swap.recover()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def test_setting_aside_overwrites_nothing(tmp_path):
    """Two are set aside in the same second: both are kept."""
    software = UserSoftware(str(tmp_path / "1.0"))
    (tmp_path / "1.0").mkdir()
    paths = []
    for text in ("one", "two"):
        (tmp_path / "1.0" / "user-software.squashfs").write_text(text)
        paths += software.set_aside(["user-software.squashfs"], software)[0]
    assert [open(path).read() for path in paths] == ["one", "two"]  # noqa: PTH123, SIM115


def test_bytecode_is_of_the_file_as_it_is(tmp_path, monkeypatch):
    """
    E-07: bytecode contains the common time, whatever variables say, and files that have it aren't compiled twice.

    A file that was changed since is compiled again, also if it has the same size; others keep their bytecode.
    """
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    venv.create(tmp_path / "venv", symlinks=True)
    (folder,) = tmp_path.glob("venv/lib/python3*/site-packages")
    program = (CONTAINER_FILES / "share/ebsif/compile-bytecode.py").read_text()

    def compiled(**texts):
        """Change files, compile, and return the bytecode of all of them."""
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        assert has_new_files(str(folder))
        subprocess.run([tmp_path / "venv/bin/python", "-I", "-", "2"], input=program, text=True, check=True)
        assert not has_new_files(str(folder))
        remove_bytecode(str(folder))
        return {path.name.partition(".")[0]: (path.stat().st_mtime_ns, path.read_bytes())
                for path in folder.glob("__pycache__/*.pyc")}

    first = compiled(one="A = 1\n", two="A = 1\n", template="{{ no }} Python")
    assert set(first) == {"one", "two"}
    second = compiled(one="A = 2\n")
    assert second["one"][1] != first["one"][1]
    assert second["two"] == first["two"]


def test_bytecode_that_is_kept(tmp_path):
    """Only bytecode of source files with the common mtime is kept; emptied directories are removed."""
    for folder, time in (("kept", FILE_TIME), ("compiled", FILE_TIME + 1)):
        source = tmp_path / folder / "module.py"
        source.parent.mkdir()
        source.write_text("1")
        os.utime(source, (time, time))
        py_compile.compile(source, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    cache = next(tmp_path.glob("kept/__pycache__"))
    (cache / "damaged.pyc").write_bytes(b"")
    (cache / "nowhere.pyc").symlink_to("/does/not/exist")
    (cache / "hash.pyc").write_bytes(b"0123" + b"\1\0\0\0" + bytes(8))
    remove_bytecode(str(tmp_path))
    assert len(list(cache.iterdir())) == 1
    assert (tmp_path / "compiled" / "module.py").exists()
    assert not (tmp_path / "compiled" / "__pycache__").exists()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_exchange_that_fails_changes_nothing(tmp_path, monkeypatch, failing):
    """defects E2: without an atomic exchange, if any of three renames fails, both are where they were."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    for name in ("1.0", "1.0.replace"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    rename, calls = os.rename, []

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == failing:
            raise OSError(errno.ESTALE, "Stale file handle")
        rename(*arguments)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="Stale"):
        InstallDirSwap(str(tmp_path / "1.0")).exchange()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def test_a_link_stays_a_link(tmp_path):
    """easybuild D8: the installation directory is a link: its target is swapped."""
    there = tmp_path / "elsewhere"
    (there / "1.0").mkdir(parents=True)
    (there / "1.0/which").write_text("earlier")
    (tmp_path / "1.0").symlink_to(there / "1.0")
    swap = InstallDirSwap(str(tmp_path / "1.0"))
    assert swap.problem() is None
    os.makedirs(swap.staging_dir)  # noqa: PTH103
    swap.activate()
    assert (tmp_path / "1.0").is_symlink()
    assert (tmp_path / "1.0" / UNPROVEN).exists()
    assert sorted(path.name for path in there.iterdir()) == ["1.0", "1.0.replace"]
    # if killed now, the next attempt starts by restoring the earlier installation
    InstallDirSwap(str(tmp_path / "1.0")).recover()
    assert (tmp_path / "1.0/which").read_text() == "earlier"


def test_recover_from_each_point(tmp_path, monkeypatch):
    """Killed after any of three renames, with the new installation unconfirmed: the earlier one is restored."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    for killed in (1, 2, 3):
        folder = tmp_path / str(killed)
        swap = InstallDirSwap(str(folder / "1.0"))
        for name in ("1.0", "1.0.replace"):
            (folder / name).mkdir(parents=True)
        (folder / "1.0/which").write_text("earlier")
        (folder / "1.0.replace" / UNPROVEN).parent.mkdir(parents=True)
        (folder / "1.0.replace" / UNPROVEN).touch()
        steps = [(swap.installdir, swap.backup_dir), (swap.staging_dir, swap.installdir),
                 (swap.backup_dir, swap.staging_dir)]
        for old, new in steps[:killed]:
            os.rename(old, new)  # noqa: PTH104
        for _ in range(2):
            swap.recover()
            assert (folder / "1.0/which").read_text() == "earlier"
            # tells the next attempt to restore the earlier module, even if it was killed before that
            assert (folder / "1.0.replace" / UNPROVEN).exists()
        assert sorted(path.name for path in folder.iterdir()) == ["1.0", "1.0.replace"]



def installation(root, scripts=(), record=True):
    """Return a directory with user software of one file, scripts, and their record."""
    for folder in ("user-software", "runscripts", "share/ebsif"):
        (root / folder).mkdir(parents=True)
    (root / "user-software/module.py").write_text("a = 1")
    os.utime(root / "user-software/module.py", (FILE_TIME, FILE_TIME))
    for name in scripts:
        (root / name).write_text(name)
    software = UserSoftware(str(root))
    if record:
        text = json.dumps({"user_software": software.fingerprints, "scripts": software.scripts})
        (root / "share/ebsif/lock.json").write_text(text)
    return software


def test_a_change_that_keeps_the_size(tmp_path):
    """defects A6: editing one byte is a change of user software; modes, bytecode and directories are not."""
    software = installation(tmp_path / "1.0")
    module = tmp_path / "1.0/user-software/module.py"
    module.chmod(0o664)
    os.utime(module.parent)
    (module.parent / "__pycache__").mkdir()
    (module.parent / "__pycache__/module.pyc").write_text("")
    assert software.changed == []
    module.write_text("a = 2")
    assert software.changed == ["user-software"]


def test_changes_without_a_record(tmp_path):
    """lumi 6: installations of other recipes have no record: everything counts as changed, scripts included."""
    software = installation(tmp_path / "1.0", ["runscripts/mine"], record=False)
    assert (software.changed, software.own_scripts) == (["user-software"], ["runscripts/mine"])


def test_changes_since_another_recipe_ended(tmp_path):
    """L-08, lumi 6: files newer than EasyBuild's log are the user's, whatever their mtime, except bytecode."""
    software = installation(tmp_path / "1.0", ["runscripts/theirs"], record=False)
    folder = tmp_path / "1.0/user-software"
    log = tmp_path / "1.0/easybuild/easybuild-Example-1.0-20250101.120000.log.bz2"
    log.parent.mkdir()
    log.write_text("")
    assert (software.changed, software.own_scripts) == ([], [])
    # a second log, from eb --module-only
    later = log.with_name("easybuild-Example-1.0-20350101.120000.log")
    later.write_text("")
    os.utime(later, (2**31, 2**31))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/module.pyc").write_text("")
    assert software.changed == []
    added = folder / "package/added.py"
    added.parent.mkdir()
    for path in (added, tmp_path / "1.0/runscripts/mine"):
        path.write_text("")
        os.utime(path, (FILE_TIME, FILE_TIME))
    os.utime(added.parent, (FILE_TIME, FILE_TIME))
    assert (software.changed, software.own_scripts) == (["user-software"], ["runscripts/mine"])
    (tmp_path / "1.0/user-software.squashfs").write_text("packed")
    assert software.changed == ["user-software", "user-software.squashfs"]


def test_the_command_to_use_what_was_set_aside(tmp_path):
    """lumi 6: the given command works, whatever the new installation contains."""
    software = installation(tmp_path / "a place" / "1.0")
    (path,), command = software.set_aside(["user-software"], software)
    (tmp_path / "a place/1.0/user-software.squashfs").write_text("new")
    subprocess.run(["bash", "-c", command], check=True)
    assert software.present == ["user-software"]
    assert (tmp_path / "a place/1.0/user-software/module.py").exists()
    assert not os.path.exists(path)  # noqa: PTH110


def test_the_command_for_directory_and_squashfs(tmp_path):
    """If a directory and the file packed from it are set aside, one command restores both."""
    software = installation(tmp_path / "1.0")
    (tmp_path / "1.0/user-software.squashfs").write_text("packed by hand")
    _, command = software.set_aside(software.present, software)
    assert software.present == []
    subprocess.run(["bash", "-c", command], check=True)
    assert software.present == ["user-software", "user-software.squashfs"]


def test_user_software_that_can_not_be_set_aside_stays(tmp_path, monkeypatch):
    """easybuild D4: the parent directory is not writable: an error, and nothing is lost."""
    software = installation(tmp_path / "1.0")

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "move", refuse)
    with pytest.raises(EasyBuildError, match="keep_user_software = False"):
        software.set_aside(["user-software"], software)
    assert software.changed == []


def test_the_group_of_directories(tmp_path):
    """G-12 (lumi B3): files created in user software belong to the group if the installation is set-gid."""
    (tmp_path / "one/two").mkdir(parents=True)
    (tmp_path / "one/file").write_text("")
    for set_gid in (True, False):
        shutil.copytree(tmp_path / "one", tmp_path / str(set_gid))
        usersoftware.share_files(str(tmp_path / str(set_gid)), group_writes=True, set_gid=set_gid)
        folders = (tmp_path / str(set_gid), tmp_path / str(set_gid) / "two")
        modes = [oct(path.stat().st_mode & 0o7777) for path in folders]
        assert modes == ["0o2775" if set_gid else "0o775"] * 2


@pytest.mark.parametrize(("change", "state"), [
    ({}, "alive"), ({"pid": 2**22 + 1}, "gone"), ({"boot": "x"}, "gone"),
    ({"boot": "x", "machine": "another"}, "unknown"),
    ({"boot": "x", "machine": ""}, "unknown"), ({"host": "elsewhere"}, "unknown")])
def test_the_state_of_a_lock(change, state, monkeypatch):
    """defects A8: a machine of the same name with another boot may be another machine."""
    monkeypatch.setattr(lockowner, "machine_id", lambda: "this")
    owner = {**lockowner.this_process(), **change}
    assert lockowner.owner_state(owner) == state


def test_a_machine_without_an_id(monkeypatch):
    """defects A8: without machine ids, the state of a lock from another boot is unknown."""
    monkeypatch.setattr(lockowner, "machine_id", lambda: "")
    assert lockowner.owner_state({**lockowner.this_process(), "boot": "x"}) == "unknown"


@pytest.fixture
def claim(tmp_path, monkeypatch):
    """The ownership of an installation directory's lock by this process."""
    made = lockowner.LockOwner.__new__(lockowner.LockOwner)
    made.lock = str(tmp_path / "a.lock")
    made.note = made.lock + ".owner"
    made.name = "a"
    monkeypatch.setattr(lockowner, "build_option", lambda name: False)

    # EasyBuild's own functions need its configuration
    def create_lock(_):
        try:
            os.mkdir(made.lock)  # noqa: PTH102
        except OSError as error:
            raise EasyBuildError(str(error)) from error

    monkeypatch.setattr(lockowner, "create_lock", create_lock)
    monkeypatch.setattr(lockowner, "remove_lock", lambda _: os.rmdir(made.lock))  # noqa: PTH106
    return made


def test_after_waiting_for_a_lock_the_owner_is_updated(claim, tmp_path):
    """defects E6: eb --wait-on-lock: the file names the other process while it has the lock, then this one."""
    other = {**lockowner.this_process(), "host": "elsewhere"}
    lock, note = tmp_path / "a.lock", tmp_path / "a.lock.owner"
    lock.mkdir()
    note.write_text(json.dumps(other))
    with claim.held():
        assert claim.owner == other
        # the other process ends, and EasyBuild gets the lock for us
        note.unlink()
        claim.confirm()
        assert claim.owner == lockowner.this_process()
    assert not note.exists()


def test_without_the_lock_the_owners_file_stays(claim, tmp_path):
    """defects E6: two processes start together and both write the file; one gets the lock, the other stops."""
    other = {**lockowner.this_process(), "host": "elsewhere"}
    note = tmp_path / "a.lock.owner"
    with claim.held():
        assert claim.owner == lockowner.this_process()
        note.write_text(json.dumps(other))
    assert claim.owner == other
    with claim.held():
        # it was first, but the other process has overwritten the file
        note.write_text(json.dumps(other))
        claim.confirm()
        assert claim.owner == lockowner.this_process()


def test_two_processes_find_the_lock_of_a_killed_one(claim, tmp_path, monkeypatch):
    """
    Both see that its owner is gone; the first removes it and takes its own before the second continues.

    The second leaves the first one's lock and owner alone.
    """
    lock, note = tmp_path / "a.lock", tmp_path / "a.lock.owner"
    first = {**lockowner.this_process(), "host": "elsewhere"}
    lock.mkdir()
    note.write_text(json.dumps({**first, "pid": 1}))

    def state_while_the_first_goes_on(_):
        note.write_text(json.dumps(first))
        return lockowner.GONE

    monkeypatch.setattr(lockowner, "owner_state", state_while_the_first_goes_on)
    claim.recover()
    assert lock.is_dir()
    assert claim.owner == first
    assert sorted(path.name for path in tmp_path.iterdir()) == [lock.name, note.name]


def test_the_lock_is_taken_again(claim, tmp_path):
    """After EasyBuild released the lock, undoing an installation takes it again unless another process has it."""
    lock = tmp_path / "a.lock"
    with claim.held(), claim.again() as ours:
        assert ours
        assert lock.is_dir()
        assert claim.owner == lockowner.this_process()
    assert list(tmp_path.iterdir()) == []
    with claim.held():
        lock.mkdir()
        with claim.again() as ours:
            assert not ours
        assert lock.is_dir()


@pytest.mark.parametrize("earlier, now", [
    (("user-software",), ("user-software",)), (("user-software.squashfs",), ("user-software.squashfs",)),
    (("user-software",), ("user-software.squashfs",)), (("user-software.squashfs",), ("user-software",)),
    (("user-software", "user-software.squashfs"), ("user-software.squashfs",))])
def test_user_software_exists_while_it_is_taken_over(tmp_path, monkeypatch, earlier, now):
    """defects B5: a module loaded at any moment finds user software, in the end the earlier one."""
    for folder, names in (("before", earlier), ("now", now)):
        (tmp_path / folder).mkdir()
        for name in names:
            path = tmp_path / folder / name
            if name == "user-software":
                path.mkdir()
                path /= "which"
            path.write_text(folder)
    seen = []

    def look(function):
        def looking(*arguments):
            result = function(*arguments)
            seen.append(any((tmp_path / "now" / name).exists() for name in ("user-software", "user-software.squashfs")))
            return result
        return looking

    monkeypatch.setattr(os, "rename", look(os.rename))
    # EasyBuild's own functions need its configuration
    for name, function in (("remove_dir", shutil.rmtree), ("remove_file", os.remove),
                           ("exchange", usersoftware.exchange)):
        monkeypatch.setattr(usersoftware, name, look(function))
    UserSoftware(str(tmp_path / "now")).take_over(UserSoftware(str(tmp_path / "before")))
    assert seen
    assert all(seen)
    assert sorted(path.name for path in (tmp_path / "now").iterdir()) == sorted(earlier)
    assert {path.read_text() for path in (tmp_path / "now").rglob("*") if path.is_file()} == {"before"}


@pytest.mark.parametrize(("stopped", "ours"), [(True, True), (True, False), (False, True)])
def test_a_stop_reports_what_is_discarded(monkeypatch, capsys, stopped, ours):
    """
    easybuild D10: --rebuild --stop=install is a success for EasyBuild, and the earlier installation is restored.

    If another eb has taken the lock since EasyBuild released it, that process restores it, as after a kill.
    """
    monkeypatch.setattr(
        reinstall, "LockOwner", lambda _: SimpleNamespace(held=nullcontext, again=lambda: nullcontext(ours)))
    monkeypatch.setattr(EasyBlock, "run_all_steps", lambda *_: True)
    easyblock = object.__new__(type("Easyblock", (Reinstall, EasyBlock), {}))
    removed = []
    easyblock.installdir, easyblock.swap, easyblock.log = "", "a swap" if stopped else None, logging.getLogger()
    easyblock.roll_back = lambda: removed.append(easyblock.swap)
    easyblock.check_places = lambda: None
    assert easyblock.run_all_steps(False)
    assert bool(removed) == (stopped and ours)
    assert ("it is removed, and the earlier one stays" in capsys.readouterr().err) == stopped


@pytest.mark.parametrize("fails", [False, True])
def test_what_stays_of_a_first_installation(tmp_path, monkeypatch, fails):
    """E-09: nothing if it fails; after --stop what the steps have made, because somebody wants to see it."""
    def steps(easyblock, _):
        easyblock.is_first = True
        (tmp_path / "bin").touch()
        if fails:
            raise KeyboardInterrupt

    monkeypatch.setattr(
        reinstall, "LockOwner", lambda _: SimpleNamespace(held=nullcontext, again=lambda: nullcontext(True)))
    monkeypatch.setattr(EasyBlock, "run_all_steps", steps)
    monkeypatch.setattr(reinstall, "remove_dir", shutil.rmtree)
    easyblock = object.__new__(type("Easyblock", (Reinstall, EasyBlock), {}))
    easyblock.installdir, easyblock.swap, easyblock.mod_filepath = str(tmp_path), None, str(tmp_path / "module")
    easyblock.check_places = lambda: None
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        easyblock.run_all_steps(False)
    assert tmp_path.exists() != fails


@pytest.mark.usefixtures("configuration")
def test_directories_that_eb_does_not_need(monkeypatch):
    """E-13: eb --inject-checksums needs none, and works where this account can't create any."""
    called = []
    monkeypatch.setattr(EasyBlock, "fetch_step", lambda _: called.append("fetch"))
    monkeypatch.setattr(reinstall, "mkdir", lambda path, parents: called.append("create"))
    monkeypatch.setattr(reinstall, "install_path", str)
    easyblock = object.__new__(type("Easyblock", (Reinstall, EasyBlock), {}))
    easyblock.dry_run, easyblock.installdir_mod = False, ""
    for creates in (False, True):
        monkeypatch.setattr(reinstall, "build_option", {"pre_create_installdir": creates}.get)
        easyblock.fetch_step()
    assert called == ["fetch", "create", "create", "fetch"]


@pytest.mark.usefixtures("configuration")
def test_what_is_fetched(tmp_path, monkeypatch):
    """G-12: the umask decides who may read what was downloaded; that of installations is another matter."""
    monkeypatch.setattr(EasyBlock, "fetch_step", lambda _: (tmp_path / "source").touch())
    easyblock = object.__new__(type("Easyblock", (Reinstall, EasyBlock), {}))
    easyblock.dry_run = True
    umask = os.umask(0o077)
    try:
        easyblock.fetch_step()
    finally:
        os.umask(umask)
    assert (tmp_path / "source").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("configuration")
def test_user_software_is_read_once(tmp_path):
    """E-01: what an installation records of a large file is computed again only if a command has changed the file."""
    squashfs = tmp_path / "user-software.squashfs"
    (tmp_path / "share/ebsif").mkdir(parents=True)
    squashfs.write_bytes(b"first")
    record, status = InstallRecord(), squashfs.stat()
    record.write_installed(str(tmp_path))
    before = dict(record["user_software"])
    squashfs.write_bytes(b"other")
    os.utime(squashfs, ns=(status.st_atime_ns, status.st_mtime_ns))
    record.write_installed(str(tmp_path))
    assert record["user_software"] == before
    os.utime(squashfs, ns=(status.st_atime_ns, status.st_mtime_ns + 1000))
    record.write_installed(str(tmp_path))
    assert record["user_software"] == {squashfs.name: hashlib.sha256(b"other").hexdigest()}
