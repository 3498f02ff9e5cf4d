"""
Files of other accounts, which only root can make: caches, notes on images, locks.
"""

import contextlib
import ctypes
import json
import multiprocessing
import os
import runpy
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.image import fetch as imagefetch
from easybuild.easyblocks.generic.container.image.fetch import fetch
from easybuild.easyblocks.generic.container.image.source import HTTPS, ImageSource
from easybuild.easyblocks.generic.container.permissions import write_whole
from easybuild.easyblocks.generic.container.record.lockfile import RECORD
from easybuild.easyblocks.generic.container.usersoftware import share_files
from easybuild.easyblocks.generic.container.venv import Venv
from easybuild.easyblocks.generic.container.written import UnfitError, read_written, write_seen
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.run import RunShellCmdError
from ebsif import files, filling
from ebsif.eb.easyconfigtext import WRITTEN
from ebsif.errors import EbsifError
from ebsif.installed import places, removal
from httpfiles import SIF, digest_of
from prefixes import MINE, Prefix
from support import CONTAINER_FILES, attempt

pytestmark = pytest.mark.usefixtures("root")

# Another account, which this machine need not know.
OTHER = 12345
# the account whose files OTHER is after
VICTIM = 12346
# a group of which this and other accounts are members
GROUP = 23456


def test_a_project_directory_of_somebody_else(node):
    """T-01: others of the project may have created the directory that the site names by user: it is not used."""
    for theirs in ("me", "me/caches"):
        (node.folder / "p/me/caches").mkdir(parents=True)
        (node.folder / "p/me/caches").chmod(0o777)
        os.chown(node.folder / "p" / theirs, OTHER, OTHER)
        found, said = node.run(PROJECT="p", USER="me")
        assert "HF_HOME" not in found
        assert said == (
            f"ebsif: caches can't be in {node.folder}/p/me/caches: another account owns it or can "
            "exchange it, or it is a link\n"
        )
        shutil.rmtree(node.folder / "p")
    (node.folder / "p/me").mkdir(parents=True)
    (node.folder / "p/me/caches").symlink_to(node.home)
    assert "HF_HOME" not in node.run(PROJECT="p", USER="me")[0]
    # a directory for all of the project
    node.write(project_caches=[f"{node.folder}/${{PROJECT}}/caches"])
    (node.folder / "p/caches").mkdir()
    os.chown(node.folder / "p/caches", OTHER, OTHER)
    assert node.run(PROJECT="p", USER="me")[0]["HF_HOME"] == f"{node.folder}/p/caches/huggingface"


@pytest.fixture
def folder():
    """A directory that other accounts can enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def give(path, account, mode):
    """Make a directory of an account, for a group."""
    path.mkdir(exist_ok=True)
    os.chown(path, account, GROUP)
    path.chmod(mode)
    return path


def staged(node, place):
    """Return the directory that the victim plans for copies of files on the nodes, where caches would be in a place."""
    (node.folder / "x.sif").touch()
    environment = {"PATH": os.environ["PATH"], "CONTAINERROOT": str(node.folder)}
    done = attempt(
        ["bash", node.scripts / "stage-software", "--plan", "--image"],
        user=VICTIM,
        group=VICTIM,
        extra_groups=[GROUP],
        env={**environment, "SIF": str(node.folder / "x.sif"), "EBSIF_NODE_LOCAL": str(place)},
    )
    return done.stdout.partition("\n")[0]


# the container has a user namespace if Apptainer isn't installed with set-user-ID: root and OTHER have the same number
NAMESPACES = [[], [shutil.which("unshare"), "--user", "--map-current-user", "--"]]


@pytest.mark.parametrize("namespace", NAMESPACES, ids=["host", "namespace"])
def test_directories_that_another_account_can_exchange(node, namespace):
    """P-01: each part of the path belongs to root or the caller, who are alone with it or it is sticky."""

    def is_used(place):
        assert staged(node, place).startswith(f"{place}/") == expected
        found, said = node.run(uid=VICTIM, groups=[GROUP], before=namespace, EBSIF_NODE_LOCAL=str(place))
        assert said.count("EBSIF_NODE_LOCAL should be") == (0 if expected else 1)
        return found["EBSIF_JOB_CACHES"].startswith(f"{place}/")

    place = node.folder / "place"
    for owner, mode, expected in (
        (0, 0o1777, True),
        (0, 0o3770, True),
        (0, 0o2770, False),
        (VICTIM, 0o700, True),
        (VICTIM, 0o2770, False),
        (OTHER, 0o777, False),
    ):
        assert is_used(give(place, owner, mode)) == expected, (owner, oct(mode))
        shutil.rmtree(place)
    # the owner of a sticky directory can exchange all that is in it
    shared, expected = give(node.folder / "shared", 0, 0o1777), False
    assert not is_used(give(shared / "theirs", OTHER, 0o1777))
    assert not is_used(give(give(shared / "theirs", OTHER, 0o755) / "mine", VICTIM, 0o700))
    shutil.rmtree(shared / "theirs")
    (shared / "theirs").symlink_to(give(node.folder / "closed", VICTIM, 0o777))
    os.chown(shared / "theirs", OTHER, OTHER, follow_symlinks=False)
    assert not is_used(shared / "theirs")


@pytest.mark.parametrize("namespace", NAMESPACES, ids=["host", "namespace"])
def test_project_storage(node, namespace):
    """P-01, T-01: members of the project are trusted, and nobody else; what they have made is not used."""

    def is_used():
        found, said = node.run(uid=VICTIM, groups=[GROUP], before=namespace, PROJECT="p", USER="me")
        used = found["HF_HOME"] == f"{node.folder}/p/me/caches/huggingface"
        assert said.count("another account owns it or can exchange it") == (0 if used else 1)
        return used

    project = node.folder / "p"
    for owner in (0, OTHER):
        for mode, expected in ((0o2770, True), (0o3770, True), (0o1777, True), (0o777, False)):
            give(project, owner, mode)
            assert is_used() == expected, (owner, oct(mode))
            shutil.rmtree(project)
        for theirs in (0o777, 0o1777, 0o2770):
            give(give(give(project, owner, 0o2770) / "me", OTHER, theirs) / "caches", VICTIM, 0o700)
            assert not is_used(), oct(theirs)
            shutil.rmtree(project)


def test_a_directory_of_somebody_else(node):
    """T-01, P-01: the name can be predicted, so somebody may have taken it: it isn't used, and nothing fails."""
    theirs = node.folder / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    taken = [lambda: node.caches().symlink_to(theirs), node.caches().touch]
    taken.append(lambda: shutil.copytree(theirs, node.caches()))
    # both directories were made by their owners
    found, _ = node.run(uid=OTHER)
    assert found["TRITON_CACHE_DIR"] == f"{node.caches(OTHER)}/no-job/triton"
    assert (node.caches(OTHER).stat().st_uid, node.caches(OTHER).stat().st_mode & 0o777) == (OTHER, 0o700)
    for take in taken:
        take()
        os.chown(node.caches(), OTHER, OTHER, follow_symlinks=False)
        node.check_that_it_is_refused(theirs)


def exchange_for_ever(first, second):
    """Exchange two files all the time, in one step each (renameat2)."""
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    here, exchange = -100, 2
    while True:
        rename(here, os.fsencode(first), here, os.fsencode(second), exchange)


@pytest.fixture
def exchanged(node):
    """A directory of another account at the place of a victim's caches, exchanged with a link to the victim's own."""
    own = node.folder / "own"
    own.mkdir(mode=0o700)
    os.chown(own, VICTIM, VICTIM)
    theirs, link = node.caches(VICTIM), node.local / "link"
    theirs.mkdir()
    theirs.chmod(0o777)
    link.symlink_to(own)
    for path in (theirs, link):
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    for path in (own / "x.sif", theirs / "x.sif"):
        path.write_text("theirs")
        os.chown(path, VICTIM, VICTIM)
    with attacking(exchange_for_ever, theirs, link):
        yield theirs


def test_a_directory_that_is_exchanged_all_the_time(node, exchanged):
    """P-01: one look decides, so nobody wins the race between two."""
    for _ in range(150):
        found, _ = node.run(uid=VICTIM)
        assert str(exchanged) not in "".join(found.values())


def test_copies_in_a_directory_of_somebody_else(node, exchanged):
    """P-01: a rank reads no copy from a directory that others may exchange, whoever owns the file in it."""
    command = ["bash", node.scripts / "stage-software", "--use", "printenv", "SIF"]
    environment = {"PATH": os.environ["PATH"], "SIF": "/shared/x.sif", "CONTAINERROOT": str(node.folder)}
    environment["EBSIF_STAGED"] = f"{exchanged}\n{'0' * 64} /shared/x.sif\n"
    for _ in range(50):
        done = attempt(command, env=environment, user=VICTIM, group=VICTIM, extra_groups=[])
        assert done.returncode == 0, done.stderr
        assert done.stdout == "/shared/x.sif\n"


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_program_that_still_runs_when_its_container_has_ended(tmp_path, is_directory):
    """P-03: while it exchanges a file, or its directory, with a link, no file of the account is read or opened."""
    work, private = tmp_path / "work", tmp_path / "private"
    for folder in (work / "made", private):
        folder.mkdir(parents=True)
        (folder / "log").write_text(folder.name)
        (folder / "log").chmod(0o600)
    file = work / "made/log"
    first = file.parent if is_directory else file
    (work / "link").symlink_to(private if is_directory else private / "log")
    program = multiprocessing.get_context("fork").Process(target=exchange_for_ever, args=(first, work / "link"))
    program.start()
    found = []
    looks = [lambda: found.append(read_written(str(file), str(work))), lambda: share_files(str(work), False)]
    # this ends the exchange of files
    writes = [lambda: write_seen(str(file), "made", str(work))]
    for use in looks * 300 + writes * 100:
        with contextlib.suppress(UnfitError, EasyBuildError, OSError):
            use()
    program.kill()
    program.join()
    assert set(found) == {"made"}
    assert ((private / "log").read_text(), (private / "log").stat().st_mode & 0o777) == ("private", 0o600)


def take_names(folder, link):
    """Exchange each directory of a fetch for one with links to a file, for ever."""
    os.umask(0)
    while True:
        for path in folder.glob(".x.sif.*"):
            aside = path.with_name(f"aside{path.name}")
            if not aside.exists():
                path.rename(aside)
                path.mkdir()
                for name in ("note", "x.sif"):
                    (path / name).symlink_to(link)


@pytest.mark.usefixtures("configuration")
def test_fetching_where_others_may_rename(monkeypatch, folder):
    """P-02: a member of the group exchanges the directory of a fetch; no file of the account is written."""

    def download(_source, made):
        time.sleep(0.5)
        Path(made).write_bytes(SIF)

    def use():
        fetch(ImageSource.parse(f"https://example.org/x.sif#{digest_of(SIF).replace(':', '=')}"), str(place / "x.sif"))

    monkeypatch.setitem(imagefetch.FETCHERS, HTTPS, download)
    place, mine = folder / "sources", folder / "mine"
    place.mkdir()
    os.chown(place, -1, GROUP)
    place.chmod(0o2775)
    mine.write_text("mine")
    mine.chmod(0o600)
    os.chown(mine, VICTIM, VICTIM)
    with attacking(take_names, place, mine, group=GROUP):
        as_another(VICTIM, use)
    assert list(place.glob("aside*"))
    assert ((place / "x.sif").read_bytes(), mine.read_text()) == (SIF, "mine")


def look_for_set_user_id(folder, found):
    """Note each file below a directory that gives its owner's rights to this account, for ever."""
    while True:
        for path in Path(folder).rglob("*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mode & stat.S_ISUID and os.access(path, os.X_OK):
                    found.put(str(path))


@pytest.mark.usefixtures("configuration")
def test_user_software_of_somebody_else(monkeypatch, folder):
    """P-04: while root unpacks what was pulled, nobody gets a program that makes them root, or a device."""
    # EasyBuild keeps output of programs there; root's directory would be in the way of other tests
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    found = multiprocessing.get_context("fork").SimpleQueue()
    software, squashfs, build = (folder / name for name in ("theirs", "theirs.squashfs", "build"))
    (software / "bin").mkdir(parents=True)
    tool = software / "bin/tool"
    tool.write_bytes(os.urandom(30_000_000))
    tool.chmod(0o6757)
    tool.parent.chmod(0o777)
    subprocess.run(["mksquashfs", software, squashfs, "-quiet"], check=True)
    (build / "user-software").mkdir(parents=True)
    container = SimpleNamespace(environment=lambda: dict(os.environ))
    venv = Venv(container, str(build / "user-software"), "/user-software/venv/x")
    with attacking(look_for_set_user_id, build, found):
        for _ in range(5):
            venv.unpack(str(squashfs))
    assert found.empty()
    unpacked = build / "user-software/bin"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (unpacked, unpacked / "tool")] == [0o775, 0o755]
    os.mknod(software / "memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
    squashfs.unlink()
    subprocess.run(["mksquashfs", software, squashfs, "-quiet"], check=True)
    with pytest.raises(RunShellCmdError):
        venv.unpack(str(squashfs))
    assert not list(build.rglob("memory"))


@contextlib.contextmanager
def attacking(function, *arguments, group=None):
    """Call a function, which doesn't return, as the other account meanwhile, perhaps a member of a group."""
    attacker = multiprocessing.get_context("fork").Process(
        target=as_account, args=(OTHER, function, *arguments), kwargs={"group": group}, daemon=True
    )
    attacker.start()
    try:
        yield
    finally:
        attacker.kill()
        attacker.join()


def as_account(account, function, *arguments, group=None):
    """Call a function as another account."""
    os.setgroups([group] if group else [])
    os.setgid(account)
    os.setuid(account)
    function(*arguments)


def as_another(account, function, *arguments):
    """Call a function as another account, a member of the group, in a process of its own; check that it returns."""

    def run():
        os.umask(0o077)
        as_account(account, function, *arguments, group=GROUP)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0


def lock(directory):
    """Lock a directory."""
    with files.locked(directory):
        pass


def check_that_the_easyconfig_is_closed(root, closed):
    """Check what is said of an installation whose easyconfig can't be read, because of a file or directory."""
    installation = places.of_directory(root)
    assert (installation.easyconfig, installation.extension) == (None, None)
    assert installation.lack == (
        f"the easyconfig in {root}/easybuild can't be read: ask root, who owns {closed}, for permission"
    )


def test_the_lock_of_another_member_of_the_group(folder):
    """R-10: each account that may write to a catalog may lock it, although new files there don't get its group."""
    place = folder / "catalog"
    place.mkdir()
    os.chown(place, -1, GROUP)
    place.chmod(0o775)
    for account in (OTHER, OTHER + 1):
        as_another(account, lock, place)
    assert (place / files.LOCK).stat().st_gid == GROUP


@pytest.mark.usefixtures("configuration")
def test_links_of_another_member_of_the_group(monkeypatch, folder):
    """P-02: where others may have put links, locking and writing change nothing of the file to which they lead."""
    record = runpy.run_path(str(CONTAINER_FILES / "runscripts/record-run.py"))["write"]
    monkeypatch.setattr(os, "getpid", lambda: 7)
    place, mine = folder / "shared", folder / "mine"
    place.mkdir()
    mine.write_text("mine")
    os.chown(place, -1, GROUP)
    place.chmod(0o2775)
    for path, account in ((place, GROUP), (mine, VICTIM)):
        os.chown(path, VICTIM, account)
    mine.chmod(0o600)
    names = (files.LOCK, "new", ".text.unfinished", "record.7.new")

    def attack():
        for name in names:
            (place / name).symlink_to(mine)

    def use():
        for write in (lambda: lock(place), lambda: record(str(place / "record"), {})):
            with pytest.raises(OSError, match="File exists|symbolic links"):
                write()
        files.set_access(place / "new", GROUP, 0o664)
        files.replace(place / "shown", "text", shared=True)
        write_whole(str(place / "text"), "text")

    as_another(OTHER, attack)
    as_another(VICTIM, use)
    assert [(place / name).read_text() for name in ("shown", "text")] == ["text"] * 2
    status = mine.stat()
    assert (mine.read_text(), status.st_mode & 0o777, status.st_gid) == ("mine", 0o600, VICTIM)


@pytest.fixture
def shared_place():
    """A directory of root that a group can write to, and one of the victim that is closed, both below another one."""
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        Path(folder).chmod(0o755)
        for name, account, mode in (("shared", 0, 0o2775), ("sticky", 0, 0o1777), ("mine", VICTIM, 0o700)):
            give(Path(folder, name), account, mode)
        (Path(folder) / "mine/there").write_text("mine")
        os.chown(Path(folder) / "mine/there", VICTIM, VICTIM)
        yield Path(folder)


def plant(links, targets):
    """Make links, as whoever runs this."""
    for link, target in zip(links, targets):
        link.symlink_to(target)


def refuse(function, *arguments, **named):
    """Check that a function follows no link of others."""
    with pytest.raises(EbsifError, match="is a link that others may have put there"):
        function(*arguments, **named)


def fill(directory):
    """Fill a directory with a file."""
    with filling.filled(directory, "docs", overwrite=True) as made:
        (made / "page").write_text("text")


@pytest.mark.parametrize("name", ["shared", "sticky"])
def test_planted_links_are_not_followed(shared_place, name):
    """P-08: nothing is written where a link of another account leads: new, there, or in a directory."""
    place, mine = shared_place / name, shared_place / "mine"
    links = [place / one for one in ("new", "there", "folder", "back")]
    as_another(OTHER, plant, links, [mine / "new", mine / "there", mine, "../mine/new"])

    def use():
        for path in (place / "new", place / "there", place / "folder/new", place / "folder/a/new", place / "back"):
            refuse(files.replace, path, "theirs")
            refuse(files.replace, path, "theirs", shared=True)
            refuse(files.write_new, {path: "theirs"}, overwrite=True)
        refuse(fill, place / "folder")
        refuse(files.make_executable, place / "there")
        give_own = place / "own"
        give_own.mkdir()
        (give_own / "link").symlink_to(mine)
        (place / "to-mine").symlink_to(mine)

    as_another(VICTIM, use)
    assert {one.name: one.read_text() for one in mine.iterdir()} == {"there": "mine"}
    assert (mine / "there").stat().st_mode & 0o111 == 0

    # the person's own links are followed where nobody else can put links
    def follow():
        os.umask(0o022)
        if name == "sticky":
            files.replace(place / "own/link/new", "own")
            files.replace(place / "to-mine/other", "own")
            return
        refuse(files.replace, place / "to-mine/other", "own")

    as_another(VICTIM, follow)
    assert sorted(one.name for one in mine.iterdir()) == (["new", "other", "there"] if name == "sticky" else ["there"])


def test_a_directory_that_is_exchanged_while_a_file_is_written(shared_place):
    """P-08: the directory that was found is the one that is written to."""
    place, mine = shared_place / "shared", shared_place / "mine"
    as_another(OTHER, plant, [place / "link"], [mine])
    as_another(OTHER, Path.mkdir, place / "folder", 0o777)
    give(place, OTHER, 0o2777)

    def use():
        for _ in range(300):
            with contextlib.suppress(EbsifError, OSError):
                files.replace(place / "folder/new", "text")

    with attacking(exchange_for_ever, place / "folder", place / "link"):
        as_another(VICTIM, use)
    assert [one.name for one in mine.iterdir()] == ["there"]


def test_removing_where_others_have_put_links(folder):
    """E-06, P-04: root removes links, and nothing of the directories to which they lead; an owner is named before."""
    root, mine = Prefix(folder).install(MINE), folder / "mine"
    mine.mkdir(mode=0o555)
    (mine / "work").touch()
    for path in (root, root.parent, mine, *root.rglob("*")):
        os.chown(path, VICTIM, GROUP)
        path.chmod(path.stat().st_mode | 0o020)

    def attack():
        for path in (root / "user-software/link", root / "share/ebsif/link", Path(f"{root}.replaced")):
            path.symlink_to(mine)

    def refuse():
        with pytest.raises(EbsifError, match=f"replaced belongs to account {OTHER}"):
            removal.plan(places.of_directory(root))

    as_another(OTHER, attack)
    as_another(VICTIM, refuse)
    removal.remove(removal.plan(places.of_directory(root)))
    assert not root.parent.exists()
    assert (mine / "work").exists() and mine.stat().st_mode & 0o777 == 0o575


def test_a_module_that_names_files_of_others(folder):
    """E-06, security: root removes neither the installation nor the easyconfig of another account for a module."""
    prefix = Prefix(folder)
    root = prefix.install(MINE)
    (copy,) = (root / "easybuild").iterdir()
    theirs = folder / "theirs.eb"
    theirs.write_text(WRITTEN + "extend`\n")
    copy.write_text(theirs.read_text())
    record = json.loads((root / RECORD).read_text())
    (root / RECORD).write_text(json.dumps({**record, "easyconfig": str(theirs)}))
    for path in (root, *root.rglob("*")):
        os.chown(path, OTHER, OTHER)
    os.chown(theirs, VICTIM, VICTIM)
    planned = removal.plan(places.of_directory(root))
    assert theirs not in planned.paths and planned.kept == [f"{theirs}: belongs to account {VICTIM}"]
    os.chown(theirs, OTHER, OTHER)
    assert theirs in removal.plan(places.of_directory(root)).paths
    installation = places.with_module_file(places.of_directory(root))
    os.chown(installation.file, VICTIM, VICTIM)
    with pytest.raises(EbsifError, match=f"belongs to account {VICTIM}, but .* to account {OTHER}"):
        removal.plan(installation)


def test_an_easyconfig_that_others_can_t_read(folder):
    """I-01: EasyBuild gives its copy the mode of the original, and its directory that of the umask."""
    root = Prefix(folder).install(MINE)
    assert places.of_directory(root).easyconfig
    (copy,) = (root / "easybuild").iterdir()
    copy.chmod(0o600)
    as_another(OTHER, check_that_the_easyconfig_is_closed, root, copy)
    (root / "easybuild").chmod(0o700)
    as_another(OTHER, check_that_the_easyconfig_is_closed, root, copy.parent)
