"""Swap an installation with a new one, atomically or with three renames."""

import ctypes
import errno
import json
import logging
import os
import py_compile
import shutil
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import lockowner, reinstall, usersoftware
from easybuild.easyblocks.generic.container.reinstall import UNPROVEN, InstallDirSwap, Reinstall
from easybuild.easyblocks.generic.container.usersoftware import FILE_TIME, UserSoftware, remove_bytecode
from easybuild.framework.easyblock import EasyBlock
from easybuild.tools.build_log import EasyBuildError


@pytest.fixture(params=["at once", "with three renames"])
def swap(request, tmp_path, monkeypatch):
    """An installation and its replacement, on a system that can exchange them at once, or not."""
    if request.param == "with three renames":
        monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    for name in ("1.0", "1.0.replace"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    return InstallDirSwap(str(tmp_path / "1.0"))


def content(tmp_path):
    """What is where."""
    return {path.name: (path / "which").read_text() for path in tmp_path.iterdir()}


def test_exchange(swap, tmp_path):
    """Once: the replacement is in place; twice: everything is as it was."""
    swap.exchange()
    assert content(tmp_path) == {"1.0": "1.0.replace", "1.0.replace": "1.0"}
    swap.exchange()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def test_recover(swap, tmp_path):
    """Killed after the first of three renames: the installation is back; otherwise nothing is touched."""
    (tmp_path / "1.0").rename(swap.backup_dir)
    swap.recover()
    swap.recover()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def test_what_is_set_aside_overwrites_nothing(tmp_path):
    """Set aside twice in one second: both are kept."""
    software = UserSoftware(str(tmp_path / "1.0"))
    (tmp_path / "1.0").mkdir()
    paths = []
    for text in ("one", "two"):
        (tmp_path / "1.0" / "user-software.squashfs").write_text(text)
        paths += software.set_aside(["user-software.squashfs"], software)[0]
    assert [open(path).read() for path in paths] == ["one", "two"]  # noqa: PTH123, SIM115


def test_bytecode_that_stays(tmp_path):
    """Only that of source files with the time of all files; none is left of others, nor a directory without any."""
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
    """defects E2: without an exchange at once, any of the three renames fails: both are where they were."""
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
    """easybuild D8: the installation directory is a link to elsewhere: what it points to is swapped."""
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
    # killed now: the next attempt begins with the earlier one
    InstallDirSwap(str(tmp_path / "1.0")).recover()
    assert (tmp_path / "1.0/which").read_text() == "earlier"


def test_recover_from_each_point(tmp_path, monkeypatch):
    """A kill after any of the three renames, the new installation marked as not proven: the earlier one is back."""
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
            # by this the next attempt knows that the earlier module belongs back, also if it's killed before that
            assert (folder / "1.0.replace" / UNPROVEN).exists()
        assert sorted(path.name for path in folder.iterdir()) == ["1.0", "1.0.replace"]



def installation(root, scripts=(), record=True):
    """A directory with user software of one file, scripts, and the record of all that."""
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
    """defects A6: one byte of a file is edited: user software has changed; not so by modes, bytecode, directories."""
    software = installation(tmp_path / "1.0")
    module = tmp_path / "1.0/user-software/module.py"
    module.chmod(0o664)
    os.utime(module.parent)
    (module.parent / "__pycache__").mkdir()
    (module.parent / "__pycache__/module.pyc").write_text("")
    assert software.changed == []
    module.write_text("a = 2")
    assert software.changed == ["user-software"]


def test_what_counts_as_changed_without_a_record(tmp_path):
    """lumi 6: an installation of another recipe has no record: all counts, scripts as well."""
    software = installation(tmp_path / "1.0", ["runscripts/mine"], record=False)
    assert (software.changed, software.own_scripts) == (["user-software"], ["runscripts/mine"])


def test_what_counts_as_changed_since_another_recipe_ended(tmp_path):
    """L-08, lumi 6: EasyBuild's log has the time; what is newer is a user's, but for bytecode, whatever its mtime."""
    software = installation(tmp_path / "1.0", ["runscripts/theirs"], record=False)
    folder = tmp_path / "1.0/user-software"
    log = tmp_path / "1.0/easybuild/easybuild-Example-1.0-20250101.120000.log.bz2"
    log.parent.mkdir()
    log.write_text("")
    assert (software.changed, software.own_scripts) == ([], [])
    # another one, of eb --module-only
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


def test_the_command_that_puts_it_in_use(tmp_path):
    """lumi 6: the command that goes with what was set aside works, whatever the new installation has."""
    software = installation(tmp_path / "a place" / "1.0")
    (path,), command = software.set_aside(["user-software"], software)
    (tmp_path / "a place/1.0/user-software.squashfs").write_text("new")
    subprocess.run(["bash", "-c", command], check=True)
    assert software.present == ["user-software"]
    assert (tmp_path / "a place/1.0/user-software/module.py").exists()
    assert not os.path.exists(path)  # noqa: PTH110


def test_the_command_that_puts_both_in_use(tmp_path):
    """The directory and the file packed from it are set aside: one command, which loses neither of them."""
    software = installation(tmp_path / "1.0")
    (tmp_path / "1.0/user-software.squashfs").write_text("packed by hand")
    _, command = software.set_aside(software.present, software)
    assert software.present == []
    subprocess.run(["bash", "-c", command], check=True)
    assert software.present == ["user-software", "user-software.squashfs"]


def test_what_can_not_be_set_aside_stays(tmp_path, monkeypatch):
    """easybuild D4: the directory around the installation can't be written: a message, and nothing is lost."""
    software = installation(tmp_path / "1.0")

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "move", refuse)
    with pytest.raises(EasyBuildError, match="keep_user_software = False"):
        software.set_aside(["user-software"], software)
    assert software.changed == []


def test_the_group_of_directories(tmp_path):
    """G-12 (lumi B3): what is made in user software belongs to the group, where the installation is set-gid."""
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
def test_whose_lock_it_is(change, state, monkeypatch):
    """defects A8: a machine of the same name that has started at another time may be another machine."""
    monkeypatch.setattr(lockowner, "machine_id", lambda: "this")
    owner = {**lockowner.this_process(), **change}
    assert lockowner.owner_state(owner) == state


def test_a_machine_without_a_name_of_its_own(monkeypatch):
    """defects A8: where no machine has an id, a lock of another start is nobody's to judge."""
    monkeypatch.setattr(lockowner, "machine_id", lambda: "")
    assert lockowner.owner_state({**lockowner.this_process(), "boot": "x"}) == "unknown"


@pytest.fixture
def claim(tmp_path, monkeypatch):
    """The claim of this process on an installation directory."""
    made = lockowner.LockOwner.__new__(lockowner.LockOwner)
    made.lock = str(tmp_path / "a.lock")
    made.note = made.lock + ".owner"
    made.name = "a"
    monkeypatch.setattr(lockowner, "build_option", lambda name: False)

    # EasyBuild's own need its configuration
    def create_lock(_):
        try:
            os.mkdir(made.lock)  # noqa: PTH102
        except OSError as error:
            raise EasyBuildError(str(error)) from error

    monkeypatch.setattr(lockowner, "create_lock", create_lock)
    monkeypatch.setattr(lockowner, "remove_lock", lambda _: os.rmdir(made.lock))  # noqa: PTH106
    return made


def test_who_has_waited_for_a_lock_says_that_it_is_theirs(claim, tmp_path):
    """defects E6: eb --wait-on-lock: the note is the other's while that has the lock, then one's own."""
    other = {**lockowner.this_process(), "host": "elsewhere"}
    lock, note = tmp_path / "a.lock", tmp_path / "a.lock.owner"
    lock.mkdir()
    note.write_text(json.dumps(other))
    with claim.held():
        assert claim.owner == other
        # the other one ends, and EasyBuild makes the lock ours
        note.unlink()
        claim.confirm()
        assert claim.owner == lockowner.this_process()
    assert not note.exists()


def test_who_does_not_get_the_lock_leaves_the_note_of_who_has_it(claim, tmp_path):
    """defects E6: two begin at the same time; both write a note, one gets the lock, the other one ends."""
    other = {**lockowner.this_process(), "host": "elsewhere"}
    note = tmp_path / "a.lock.owner"
    with claim.held():
        assert claim.owner == lockowner.this_process()
        note.write_text(json.dumps(other))
    assert claim.owner == other
    with claim.held():
        # it was first, but the other one's note is over ours now
        note.write_text(json.dumps(other))
        claim.confirm()
        assert claim.owner == lockowner.this_process()


def test_two_find_the_lock_of_one_that_was_killed(claim, tmp_path, monkeypatch):
    """
    Both see that its owner is gone; the first removes it and takes its own before the second goes on.

    The second leaves lock and note of the first alone.
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


def test_the_lock_is_held_again(claim, tmp_path):
    """EasyBuild has given the lock back: who undoes an installation takes it again, unless another one has it."""
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
def test_user_software_is_there_while_it_is_taken_over(tmp_path, monkeypatch, earlier, now):
    """defects B5: who loads the module at any moment finds user software; in the end it is the earlier one."""
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
    # EasyBuild's own need its configuration
    for name, function in (("remove_dir", shutil.rmtree), ("remove_file", os.remove),
                           ("exchange", usersoftware.exchange)):
        monkeypatch.setattr(usersoftware, name, look(function))
    UserSoftware(str(tmp_path / "now")).take_over(UserSoftware(str(tmp_path / "before")))
    assert seen
    assert all(seen)
    assert sorted(path.name for path in (tmp_path / "now").iterdir()) == sorted(earlier)
    assert {path.read_text() for path in (tmp_path / "now").rglob("*") if path.is_file()} == {"before"}


@pytest.mark.parametrize(("stopped", "ours"), [(True, True), (True, False), (False, True)])
def test_what_a_stop_throws_away_is_said(monkeypatch, capsys, stopped, ours):
    """
    easybuild D10: --rebuild --stop=install is a success for EasyBuild, and the earlier installation comes back.

    Another eb has taken the lock since EasyBuild gave it back: that one undoes what is there, as after a kill.
    """
    monkeypatch.setattr(
        reinstall, "LockOwner", lambda _: SimpleNamespace(held=nullcontext, again=lambda: nullcontext(ours)))
    monkeypatch.setattr(EasyBlock, "run_all_steps", lambda *_: True)
    easyblock = object.__new__(type("Easyblock", (Reinstall, EasyBlock), {}))
    removed = []
    easyblock.installdir, easyblock.swap, easyblock.log = "", "a swap" if stopped else None, logging.getLogger()
    easyblock.roll_back = lambda: removed.append(easyblock.swap)
    assert easyblock.run_all_steps(False)
    assert bool(removed) == (stopped and ours)
    assert ("it is removed, and the earlier one stays" in capsys.readouterr().err) == stopped
