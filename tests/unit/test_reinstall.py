"""Replace an installation by renames, and keep what users have changed in it."""

import errno
import functools
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import venv
from collections import UserDict
from logging import getLogger
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from easybuild.easyblocks.generic.container import framework, reinstallation, usersoftware
from easybuild.easyblocks.generic.container.build import Build
from easybuild.easyblocks.generic.container.interruption import stopped_once
from easybuild.easyblocks.generic.container.recipes import scripts_of_recipe
from easybuild.easyblocks.generic.container.record.installation import InstallRecord
from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.reinstallation import Reinstallation
from easybuild.easyblocks.generic.container.settings import write_settings
from easybuild.easyblocks.generic.container.usersoftware import FILE_TIME, UserSoftware, has_new_files
from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from easybuild.framework.easyblock import POSTPROC_STEP, EasyBlock, StopException
from easybuild.tools.build_log import EasyBuildError
from support import CONTAINER_FILES

pytestmark = pytest.mark.usefixtures("configuration")
SOFTWARE, SQUASHFS = "user-software", "user-software.squashfs"
FULL = OSError(errno.ENOSPC, "No space left")
DENIED = PermissionError(errno.EACCES, "Permission denied")


def replacement(root, is_beside=False):
    """Return a complete installation that takes the place of an earlier one, or is still beside it (Reinstallation)."""
    new = Reinstallation(str(root), f"{root}.lua", True, getLogger())
    new.is_replacing, new.is_beside = True, is_beside
    return new


def easyblock_of(new, kind=ContainerInstall, **attributes):
    """Return an easyblock with an installation (Reinstallation), and without an easyconfig."""
    easyblock = object.__new__(kind)
    easyblock.reinstallation, easyblock.installdir, easyblock.mod_filepath = new, new.directory, new.module_file
    easyblock.builddir, easyblock.dry_run, easyblock.log = "", False, getLogger()
    easyblock.update_config_template_run_step = lambda: None
    vars(easyblock).update(attributes)
    return easyblock


def directories(tmp_path, *names):
    """Make directories that know their first names."""
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)


def content(tmp_path):
    """Return the first names of the directories."""
    return {path.name: (path / "which").read_text() for path in tmp_path.iterdir()}


def test_a_rename_that_fails(tmp_path, monkeypatch):
    """If the new installation can't take its place, the earlier one is where it was."""
    directories(tmp_path, "1.0", "1.0.replace")
    rename, calls = os.rename, []

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(errno.ESTALE, "Stale file handle")
        rename(*arguments)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="Stale"):
        replacement(tmp_path / "1.0", is_beside=True).activate()
    assert content(tmp_path) == {"1.0": "1.0", "1.0.replace": "1.0.replace"}


def stop_without_a_terminal(*_):
    """Stand for eb's handler of signals, which prints something first."""
    raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize("number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGHUP, BrokenPipeError)])
def test_a_second_signal(tmp_path, monkeypatch, number, error):
    """S002-44: after two signals, the earlier installation is back, and nothing else stays."""
    directories(tmp_path, "1.0", "1.0.replace")

    def interrupted(work, *arguments):
        os.kill(os.getpid(), number)
        work(*arguments)

    def step(*_):
        easyblock.activate_installation()
        os.kill(os.getpid(), number)

    monkeypatch.setattr(os, "rename", functools.partial(interrupted, os.rename))
    monkeypatch.setattr(reinstallation, "remove_dir", functools.partial(interrupted, shutil.rmtree))
    monkeypatch.setattr(ContainerInstall, "record_files", functools.partial(interrupted, Mock(side_effect=FULL)))
    monkeypatch.setattr(EasyBlock, "run_step", step)
    new = replacement(tmp_path / "1.0", is_beside=True)
    easyblock = easyblock_of(new)
    # a shell may have started the tests with Ctrl-C ignored
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: stop_without_a_terminal}
    handlers[signal.SIGHUP] = signal.SIG_DFL
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    try:
        for wanted in ({"1.0": "1.0"}, {}):
            with pytest.raises(error):
                easyblock.run_step(POSTPROC_STEP, [])
            assert content(tmp_path) == wanted
            # now without an earlier installation
            new.is_first = True
        assert {one: signal.getsignal(one) for one in handlers} == handlers
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_the_end_of_a_terminal(before):
    """C-02: it stops a step as SIGTERM does, unless nohup ignores it; nothing stays for the next easyconfig of eb."""
    handlers = [signal.signal(signal.SIGHUP, before), signal.signal(signal.SIGTERM, signal.default_int_handler)]
    try:
        with stopped_once():
            assert callable(signal.getsignal(signal.SIGHUP)) is (before == signal.SIG_DFL)
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, handlers[0])
        signal.signal(signal.SIGTERM, handlers[1])


def test_an_earlier_installation_that_can_not_be_removed(tmp_path, monkeypatch):
    """S002-44: a container has its files open on NFS: what is left of it never replaces the new installation."""
    (tmp_path / "software").mkdir()
    directories(tmp_path / "software", "1.0", "1.0.replace")
    busy = OSError(errno.EBUSY, "Device or resource busy")
    monkeypatch.setattr(reinstallation, "remove_dir", Mock(side_effect=busy))
    new = replacement(tmp_path / "software/1.0", is_beside=True)
    new.activate()
    new.complete(None, is_removed=True)
    assert content(tmp_path / "software") == {"1.0": "1.0.replace", "1.0.replace": "1.0"}
    monkeypatch.setattr(reinstallation, "remove_dir", shutil.rmtree)
    new.recover()
    assert content(tmp_path / "software") == {"1.0": "1.0.replace"}


def test_setting_aside_overwrites_nothing(tmp_path):
    """Two are set aside in the same second: both are kept."""
    software = UserSoftware(str(tmp_path / "1.0"))
    (tmp_path / "1.0").mkdir()
    paths = []
    for text in ("one", "two"):
        (tmp_path / "1.0" / "user-software.squashfs").write_text(text)
        paths += software.set_aside(["user-software.squashfs"], software)[0]
    assert [open(path).read() for path in paths] == ["one", "two"]  # noqa: SIM115


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
        command = [tmp_path / "venv/bin/python", "-I", "-", "2", str(FILE_TIME)]
        subprocess.run(command, input=program, text=True, check=False)
        assert not has_new_files(str(folder))
        files = folder.glob("__pycache__/*.pyc")
        return {path.name.partition(".")[0]: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    first = compiled(one="A = 1\n", two="A = 1\n", template="{{ no }} Python")
    assert set(first) == {"one", "two"}
    second = compiled(one="A = 2\n")
    assert second["one"][1] != first["one"][1]
    assert second["two"] == first["two"]


def installation(root, scripts=(), record=True, packages=()):
    """Return a directory with user software of one file, scripts, and their record with the packages of the image."""
    for folder in ("user-software", "runscripts", "share/ebsif"):
        (root / folder).mkdir(parents=True)
    (root / "user-software/module.py").write_text("a = 1")
    os.utime(root / "user-software/module.py", (FILE_TIME, FILE_TIME))
    for name in scripts:
        (root / name).write_text(name)
    software = UserSoftware(str(root))
    if record:
        known = {"image": {"file": "a.sif"}, "image_packages": list(packages)}
        text = json.dumps({**known, "scripts": software.scripts(), "user_software": software.fingerprints({})})
        (root / "share/ebsif/lock.json").write_text(text)
    return UserSoftware(str(root))


def test_a_change_that_keeps_the_size(tmp_path):
    """Editing one byte is a change of user software; modes, bytecode and directories are not."""
    software = installation(tmp_path / "1.0")
    module = tmp_path / "1.0/user-software/module.py"
    module.chmod(0o664)
    os.utime(module.parent)
    (module.parent / "__pycache__").mkdir()
    (module.parent / "__pycache__/module.pyc").write_text("")
    assert software.changed() == []
    module.write_text("a = 2")
    assert software.changed() == ["user-software"]


def test_changes_without_a_record(tmp_path):
    """Of other recipes, everything counts as changed, scripts included, and links, to directories as well."""
    software = installation(tmp_path / "1.0", ["runscripts/mine"], record=False)
    (tmp_path / "1.0/runscripts/library").symlink_to(tmp_path)
    (tmp_path / "1.0/runscripts/gone").symlink_to("nowhere")
    assert software.changed() == ["user-software"]
    assert list(software.own_files()) == ["runscripts/gone", "runscripts/library", "runscripts/mine"]


RECIPE = r'''
local_start_shell="""
#!/bin/bash -e
if [ -f {local_sif} ] ; then
    singularity exec $SIF bash -c "echo '{{}}' ; exec bash \"\$@\""
fi
""".replace( '$', '\\$' )
local_distributed="""
#!/bin/bash -e
sleep 2
export RANK=$SLURM_PROCID
python "$@"
"""
postinstallcmds = [
    f'cat >%(installdir)s/bin/start-shell <<EOF {local_start_shell}EOF',
    'ln -s ./start-shell %(installdir)s/bin/pip',
"""
cat >%(installdir)s/bin/make-squashfs <<EOF
#!/bin/bash
cd %(installdir)s
mksquashfs user-software user-software.squashfs
EOF
""", ]
'''


def test_scripts_of_a_recipe(tmp_path):
    """What the earlier easyconfig has written is no script of a person; what a person has changed is."""
    software = installation(tmp_path / "1.0", record=False)
    for folder in ("bin", "easybuild"):
        (tmp_path / "1.0" / folder).mkdir()
    (tmp_path / "1.0/easybuild/old.eb").write_text(RECIPE)
    (tmp_path / "1.0/a.sif").touch()
    theirs = {
        "bin/start-shell": "#!/bin/bash -e\nif [ -f a.sif ] ; then\n"
        '    singularity exec $SIF bash -c "echo \'{}\' ; exec bash \\"$@\\""\nfi\n',
        "runscripts/distributed": '\n#!/bin/bash -e\n\nsleep 2\nexport RANK=$SLURM_PROCID\npython "$@"\n',
        "bin/make-squashfs": f"#!/bin/bash\ncd {tmp_path}/1.0\nmksquashfs user-software user-software.squashfs\n",
    }
    mine = {
        "runscripts/shorter": '#!/bin/bash -e\nexport RANK=$SLURM_PROCID\npython "$@"\n',
        "runscripts/changed": theirs["runscripts/distributed"].replace("sleep 2", "sleep 9"),
        # in a line with a placeholder, a value, a command and an indentation of one's own
        "bin/own-value": theirs["bin/start-shell"].replace("a.sif", "b.sif"),
        "bin/own-command": theirs["bin/make-squashfs"].replace("/1.0", "/1.0; echo mine"),
        "bin/own-indentation": theirs["bin/start-shell"].replace("    singularity", "singularity"),
        "runscripts/end": 'python "$@"\n',
        "runscripts/longer": theirs["runscripts/distributed"] + "echo done\n",
    }
    for name, text in {**theirs, **mine}.items():
        (tmp_path / "1.0" / name).write_text(text)
    for name, target in (("bin/pip", "./start-shell"), ("bin/mine", "../runscripts/changed")):
        (tmp_path / "1.0" / name).symlink_to(target)
    # where it is while it is replaced
    new, names = replacement(tmp_path / "1.0"), list(software.own_files())
    before = UserSoftware(str((tmp_path / "1.0").rename(new.replaced)))
    assert sorted(scripts_of_recipe(before.root, names, [new.place])) == sorted([*theirs, "bin/pip"])
    new.set_files_aside(before, UserSoftware(new.place))
    (aside,) = tmp_path.glob("1.0.*.files")
    assert {str(path.relative_to(aside)) for path in aside.glob("*/*")} == {*mine, "bin/mine"}
    Path(before.root, "easybuild/old.eb").unlink()
    assert scripts_of_recipe(before.root, list(theirs), [new.place]) == []


def test_the_command_to_use_what_was_set_aside(tmp_path):
    """The given command works, whatever the new installation contains."""
    software = installation(tmp_path / "a place" / "1.0")
    (path,), command = software.set_aside(["user-software"], software)
    (tmp_path / "a place/1.0/user-software.squashfs").write_text("new")
    subprocess.run(["bash", "-c", command], check=True)
    assert software.present() == ["user-software"]
    assert (tmp_path / "a place/1.0/user-software/module.py").exists() and not os.path.exists(path)


def test_user_software_that_can_not_be_set_aside_stays(tmp_path, monkeypatch):
    """The parent directory is not writable: an error, and nothing is lost."""
    software = installation(tmp_path / "1.0")
    monkeypatch.setattr(shutil, "move", Mock(side_effect=DENIED))
    with pytest.raises(EasyBuildError, match="Move or remove it yourself"):
        software.set_aside(["user-software"], software)
    assert software.changed() == []


@pytest.mark.parametrize(
    ("group_writes", "set_gid", "mode"), [(True, True, 0o2775), (True, False, 0o775), (False, False, 0o755)]
)
def test_the_rights_of_files(tmp_path, group_writes, set_gid, mode):
    """G-12, P-04: new files belong to the group if directories are set-gid; no program is set-user-ID."""
    folder, program = tmp_path / "one/two", tmp_path / "one/program"
    folder.mkdir(parents=True)
    program.touch()
    program.chmod(0o4755)
    usersoftware.share_files(str(folder.parent), group_writes=group_writes, set_gid=set_gid)
    assert [path.stat().st_mode & 0o7777 for path in (folder.parent, folder)] == [mode, mode]
    assert program.stat().st_mode & 0o7777 == mode & 0o777


def test_packages_without_a_file(tmp_path):
    """P-03: nobody waits for a pipe that has the name of a package's metadata."""
    folder = tmp_path / "user-software/venv/a/lib/python3.11/site-packages"
    for name in ("good-1.0", "pipe-1.0"):
        (folder / f"{name}.dist-info").mkdir(parents=True)
    (folder / "good-1.0.dist-info/METADATA").write_text("Name: good\nVersion: 1.0\n")
    os.mkfifo(folder / "pipe-1.0.dist-info/METADATA")
    assert UserSoftware(str(tmp_path)).pins() == ["good==1.0"]


@pytest.mark.parametrize(
    "earlier, now",
    [
        ([SOFTWARE], [SOFTWARE]),
        ([SQUASHFS], [SQUASHFS]),
        ([SOFTWARE], [SQUASHFS]),
        ([SQUASHFS], [SOFTWARE]),
        ([SOFTWARE, SQUASHFS], [SQUASHFS]),
    ],
)
def test_user_software_is_taken_over(tmp_path, earlier, now):
    """The new installation has the earlier user software, and nothing of its own."""
    for folder, names in (("before", earlier), ("now", now)):
        (tmp_path / folder).mkdir()
        for name in names:
            path = tmp_path / folder / name
            if name == SOFTWARE:
                path.mkdir()
                path /= "which"
            path.write_text(folder)
    UserSoftware(str(tmp_path / "now")).take_over(UserSoftware(str(tmp_path / "before")))
    assert sorted(path.name for path in (tmp_path / "now").iterdir()) == earlier
    assert {path.read_text() for path in (tmp_path / "now").rglob("*") if path.is_file()} == {"before"}


def replacing_in(tmp_path, monkeypatch):
    """Return an easyblock that writes the module of an installation, to whose earlier one a package was added."""
    for name in ("1.0", "1.0.replace"):
        installation(tmp_path / "software" / name)
    (tmp_path / "software/1.0/user-software/mine").write_text("mine")
    module = tmp_path / "software/1.0.lua"
    module.write_text("earlier")
    monkeypatch.setattr(EasyBlock, "make_module_step", lambda *_, **__: module.write_text("new"))
    easyconfig = UserDict(cleanupoldinstall=True)
    easyconfig.path = str(tmp_path / "1.0.eb")
    return easyblock_of(replacement(tmp_path / "software/1.0", is_beside=True), cfg=easyconfig, build=Build())


@pytest.fixture
def replacing(tmp_path, monkeypatch):
    """An easyblock that writes the module of an installation, to whose earlier one a package was added by hand."""
    return replacing_in(tmp_path, monkeypatch)


def test_a_read_only_installation_is_replaced(tmp_path, replacing):
    """S002-44: user software of one made with --read-only-installdir is kept, and can be changed from now on."""
    mine = tmp_path / "software/1.0/user-software/mine"
    for path in (mine, mine.parent, mine.parent.parent):
        path.chmod(0o555)
    replacing.replace_module()
    assert sorted(path.name for path in (tmp_path / "software").iterdir()) == ["1.0", "1.0.lua"]
    assert mine.read_text() == "mine"
    mine.write_text("again")


def test_the_earlier_installation_is_kept(tmp_path, monkeypatch, replacing):
    """With cleanupoldinstall = False, the next eb after a killed one doesn't remove it as a leftover."""
    rename, targets = os.rename, []
    monkeypatch.setattr(os, "rename", lambda one, other: (targets.append(str(other)), rename(one, other)))
    replacing.cfg["cleanupoldinstall"] = False
    replacing.replace_module()
    (kept,) = (tmp_path / "software").glob("1.0.2*")
    assert (kept / "share/ebsif/lock.json").is_file()
    assert str(tmp_path / "software/1.0.replace") not in targets


class KilledError(BaseException):
    """Takes the place of SIGKILL."""


@pytest.fixture
def killed_at(monkeypatch):
    """Return a function that calls another one, killed before a change of the file system; whether it was."""
    state = {"left": -1}

    def before(change, *arguments, **options):
        state["left"] -= state["left"] > 0
        if not state["left"]:
            raise KilledError
        return change(*arguments, **options)

    for name in ("rename", "mkdir", "rmdir", "unlink", "remove"):
        monkeypatch.setattr(os, name, functools.partial(before, getattr(os, name)))

    def call(number, work):
        state["left"] = number
        try:
            work()
        except KilledError:
            return True
        finally:
            state["left"] = -1
        return False

    return call


@pytest.mark.parametrize("is_changed, is_removed", [(True, False), (False, True)])
def test_a_kill_while_changes_are_carried_over(tmp_path, monkeypatch, killed_at, is_changed, is_removed):
    """S002-44: whenever it is killed, the next eb finds one installation, complete and with its module."""
    for number in itertools.count(1):
        for again in itertools.count(1):
            folder = tmp_path / f"{number}-{again}"
            easyblock = replacing_in(folder, monkeypatch)
            easyblock.cfg["cleanupoldinstall"] = is_removed
            root, mine = folder / "software/1.0", folder / "software/1.0/user-software/mine"
            (root / "earlier").touch()
            if not is_changed:
                mine.unlink()
            was_killed = killed_at(number, easyblock.replace_module)
            recovers = replacement(root).recover
            was_killed_again = killed_at(again, recovers)
            recovers()
            module = folder / "software/1.0.lua"
            assert (root / "user-software/module.py").is_file(), (number, again)
            assert not list(root.glob(".*")), (number, again)
            assert (root / "share/ebsif/lock.json").is_file(), (number, again)
            assert module.read_text() == ("earlier" if (root / "earlier").exists() else "new"), (number, again)
            assert bool(list(folder.rglob("mine"))) is is_changed, (number, again)
            kept = [path.parent for path in folder.glob("software/1.0.*/earlier")]
            assert all((path / "user-software/module.py").is_file() for path in kept), (number, again)
            assert not list(folder.glob("software/1.0.[rk]e*")), (number, again)
            if not was_killed_again:
                break
        if not was_killed:
            break
    assert number > 5


@pytest.mark.parametrize("name", ["user-software", "user-software.squashfs"])
def test_user_software_that_is_a_link_to_nothing(tmp_path, capsys, replacing, name):
    """If the target of the link was removed, the new user software is used, and the link is kept."""
    earlier = tmp_path / "software/1.0"
    shutil.rmtree(earlier / "user-software")
    (earlier / name).symlink_to("/project/gone")
    replacing.replace_module()
    (link,) = (tmp_path / "software").glob("1.0.2*")
    assert str(link.readlink()) == "/project/gone"
    assert (earlier / "user-software/module.py").is_file() and not os.path.lexists(earlier / "user-software.squashfs")
    # eb breaks lines
    said = " ".join(capsys.readouterr().out.split())
    assert "was a link to /project/gone, which doesn't exist; it is kept at" in said


def test_user_software_that_can_not_be_kept(tmp_path, monkeypatch, replacing):
    """S002-44: if it can't be moved to the new installation, the earlier one and its module are put back."""
    monkeypatch.setattr(UserSoftware, "take_over", Mock(side_effect=DENIED))
    monkeypatch.setattr(EasyBlock, "run_step", lambda *_: replacing.replace_module())
    with pytest.raises((EasyBuildError, OSError), match="Permission denied"):
        replacing.run_step("module", [])
    assert sorted(path.name for path in (tmp_path / "software").iterdir()) == ["1.0", "1.0.lua"]
    assert (tmp_path / "software/1.0/user-software/mine").read_text() == "mine"
    assert (tmp_path / "software/1.0.lua").read_text() == "earlier"


@pytest.mark.parametrize("error", [KeyboardInterrupt, EasyBuildError("no"), FULL])
def test_settings_of_a_module_that_is_in_use(tmp_path, monkeypatch, error):
    """Settings are put back if a later step fails or is interrupted, and what was a link is one again."""
    shown, hidden, new = tmp_path / "1.0.lua", tmp_path / ".1.0.lua", tmp_path / "new"
    hidden.write_text("earlier")
    shown.symlink_to(hidden.name)
    kept = (installed := Reinstallation(str(tmp_path / "1.0"), "", True, getLogger())).kept
    easyblock = easyblock_of(installed)

    def change(*_):
        for path in (hidden, shown, new):
            kept.keep(str(path))
            path.unlink(missing_ok=True)
            path.write_text("new")

    monkeypatch.setattr(EasyBlock, "run_step", change)
    easyblock.run_step("prepare", [])
    monkeypatch.setattr(EasyBlock, "run_step", Mock(side_effect=error))
    with pytest.raises((KeyboardInterrupt, EasyBuildError)):
        easyblock.run_step("sanitycheck", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".1.0.lua", "1.0.lua"]
    assert (hidden.read_text(), shown.is_symlink()) == ("earlier", True)
    monkeypatch.setattr(EasyBlock, "run_step", change)
    easyblock.run_step("module", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".1.0.lua", "1.0.lua", "new"]
    with pytest.raises(OSError, match="No space"):
        monkeypatch.setattr(shutil, "copy2", Mock(side_effect=FULL))
        kept.keep(str(hidden))
    kept.put_back()
    assert hidden.read_text() == "new"


@pytest.mark.parametrize("easyblock_class", [ContainerInstall, ContainerVenv])
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("error", "step", "left"),
    [
        (KeyboardInterrupt, "build", {"stages"}),
        (EasyBuildError("no"), "test", {"stages"}),
        (FULL, "build", {"stages"}),
        (KeyboardInterrupt, "install", {"stages", "user-software"}),
        (StopException, "build", {"stages", "user-software", "pip-cache", "home", "tmp"}),
    ],
)
def test_what_an_attempt_leaves(tmp_path, monkeypatch, capsys, error, step, left, check, easyblock_class):
    """Builds don't fill up; nobody is sent to a directory that a check removes."""
    if check:
        monkeypatch.setenv("EBSIF_CHECK", "1")
    for name in ("user-software", "pip-cache", "home", "tmp", "stages"):
        (tmp_path / name / "more").mkdir(parents=True)
        (tmp_path / name / "more").chmod(0o555)
    monkeypatch.setattr(ContainerVenv, "stages", ["requirements"])
    monkeypatch.setattr(EasyBlock, "run_step", Mock(side_effect=error))
    new = Reinstallation(str(tmp_path / "1.0"), "", True, getLogger())
    easyblock = easyblock_of(new, easyblock_class, builddir=str(tmp_path))
    with pytest.raises((KeyboardInterrupt, EasyBuildError, OSError, StopException)):
        easyblock.run_step(step, [])
    assert {path.name for path in tmp_path.iterdir()} == left
    # EasyBuild breaks long paths
    said = "".join(capsys.readouterr().out.split())
    assert (f"whatpiphasprintedisin{tmp_path}/stages" in said) is (left == {"stages"} and not check)


@pytest.mark.parametrize("version", ["2.6", "2.7"])
def test_additions_that_were_built_for_another_image(tmp_path, version):
    """S002-44: they stay in use with the same packages of the image only, although the empty venv is the same."""
    installation(tmp_path / "1.0.replaced", packages=["torch==2.6"])
    installation(tmp_path / "1.0", packages=[f"torch=={version}"])
    (tmp_path / "1.0.replaced/user-software/mine").write_text("built for torch 2.6")
    replacement(tmp_path / "1.0").carry_changes_over(Build().adopt)
    (mine,) = tmp_path.glob("1.0*/**/mine")
    assert (mine.parent == tmp_path / "1.0/user-software") is (version == "2.6")


@pytest.mark.parametrize("is_complete", [True, False])
def test_what_users_have_renamed(tmp_path, capsys, is_complete):
    """S002-44: what they put aside, as unmake-squashfs advises, is kept, and the output says where."""
    for name in ("1.0", "1.0.replaced"):
        installation(tmp_path / name)
    (tmp_path / "1.0.replaced/user-software").rename(tmp_path / "1.0.replaced/user-software.old")
    (tmp_path / "1.0.replaced/user-software.squashfs.bak").write_text("mine")
    new = replacement(tmp_path / "1.0")
    if is_complete:
        new.carry_changes_over(Build().adopt)
        (place,), kept = tmp_path.glob("1.0"), "files that were added by hand are kept"
    else:
        new.set_changes_aside(new.replaced)
        (place,) = tmp_path.glob("1.0.*.files")
        kept = f"files of the earlier installation that were added or changed by hand are kept at {place}"
    assert (place / "user-software.old/module.py").read_text() == "a = 1"
    assert (place / "user-software.squashfs.bak").read_text() == "mine"
    said = "".join(capsys.readouterr().out.split())
    assert f"{kept} (user-software.old, user-software.squashfs.bak)".replace(" ", "") in said
    assert (tmp_path / "1.0/user-software/module.py").exists()


def test_files_that_can_not_be_kept(tmp_path):
    """A module file without room for its copy, and settings that can't be written, stay as they are."""
    kept, module = Reinstallation("", "", True, getLogger()).kept, tmp_path / "1.0.lua"
    settings = tmp_path / "share/ebsif/module.conf"
    settings.parent.mkdir(parents=True)
    for path in (settings, module):
        path.write_text("before")
    for folder in (tmp_path, settings.parent):
        folder.chmod(0o555)
    kept.keep(str(settings))
    assert write_settings(str(tmp_path), [("module", "A/1.0")]).startswith("Can't write")
    with pytest.raises(EasyBuildError, match="no copy of it can be kept beside it: Permission denied"):
        kept.keep(str(module), in_place=True)
    kept.put_back()
    assert settings.read_text() == module.read_text() == "before"


@pytest.fixture
def fetching(tmp_path):
    """An easyblock that is about to fetch an image, which has one source."""
    easyconfig = UserDict(sources=["a.sif"], checksums=[], download_instructions=None)
    easyconfig.get_ref = easyconfig.get
    spec = SimpleNamespace(central_directories=list, image_dirs=[], source=None, definition_files=[])
    return easyblock_of(
        Reinstallation(str(tmp_path / "1.0"), "", True, getLogger()),
        cfg=easyconfig,
        known_spec=spec,
        is_spec_current=True,
        known_image=SimpleNamespace(shared_path=lambda: None),
        robot_path=[],
        installdir_mod="",
    )


def test_directories_that_eb_does_not_need(monkeypatch, fetching):
    """E-13: eb --inject-checksums needs none, and works where this account can't create any."""
    called = []
    monkeypatch.setattr(EasyBlock, "fetch_step", lambda *_, **__: called.append("fetch"))
    monkeypatch.setattr(framework, "mkdir", lambda path, parents: called.append("create"))
    monkeypatch.setattr(framework, "install_path", str)
    for creates in (False, True):
        monkeypatch.setattr(framework, "build_option", {"pre_create_installdir": creates}.get)
        fetching.fetch_step()
    assert called == ["fetch", "create", "create", "fetch"]


def test_what_is_fetched(tmp_path, monkeypatch, fetching):
    """G-12: the umask decides who may read what was downloaded; that of installations is another matter."""
    monkeypatch.setattr(EasyBlock, "fetch_step", lambda *_, **__: (tmp_path / "source").touch())
    fetching.dry_run = True
    umask = os.umask(0o077)
    try:
        fetching.fetch_step()
    finally:
        os.umask(umask)
    assert (tmp_path / "source").stat().st_mode & 0o777 == 0o600


def test_user_software_is_read_once(tmp_path, monkeypatch):
    """E-01: a large file is read again only if a command has changed it."""
    monkeypatch.setattr(Record, "read", None)
    squashfs = tmp_path / "user-software.squashfs"
    (tmp_path / "share/ebsif").mkdir(parents=True)
    squashfs.write_bytes(b"first")
    record, status = InstallRecord(), squashfs.stat()
    record.write_installed(str(tmp_path))
    before = dict(record.user_software)
    squashfs.write_bytes(b"other")
    os.utime(squashfs, ns=(status.st_atime_ns, status.st_mtime_ns))
    record.write_installed(str(tmp_path))
    assert record.user_software == before
    os.utime(squashfs, ns=(status.st_atime_ns, status.st_mtime_ns + 1000))
    record.write_installed(str(tmp_path))
    assert record.user_software == {squashfs.name: hashlib.sha256(b"other").hexdigest()}
