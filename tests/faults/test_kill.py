"""kill -9 at every point of an installation, a reinstallation, make-squashfs and unmake-squashfs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from parts import Installed, wheel_settings
from support import CONTAINER_FILES, attempt, write_program

HERE = Path(__file__).parent
MODULE = Installed.SQUASHED
TEXT = Installed.TEXT + "versionsuffix = '-squashed'\n"
SOME = 5  # points in the loops over commands, without --every-point

# Points in the loops over installations, without --every-point: moments with partial results, in the order of an
# installation. Each attempt retries after the one before, so it gets further; the last one completes. Partial images
# and SquashFS files are the same in both loops, so each is in one of them.
FIRST = ["in .*/make-squashfs ", r"open .*/1\.0-squashed\.lua"]
AGAIN = [
    r"opened .*/1\.0-squashed\.replace/example\.sif\.partial",
    r"rename .*/1\.0-squashed\.replace .*/1\.0-squashed",
    r"open .*/1\.0-squashed\.lua",
]


def spread(number, every):
    """Return a loop's points: all, or some that are evenly spread, including first and last."""
    return range(1, number + 1) if every else sorted({1 + i * (number - 1) // (SOME - 1) for i in range(SOME)})


# --- make-squashfs and unmake-squashfs


def content(root):
    """Return all files below a directory with their content, except leftovers of work in progress."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.fixture
def installation(tmp_path):
    """An installation with a few files of user software."""
    root = tmp_path / "installation"
    shutil.copytree(CONTAINER_FILES, root)
    for number in range(20):
        path = root / f"user-software/venv/lib/module-{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(1000))
    return root


def run_killed(command, at, counter):
    """Run a command of an installation with kill -9 at a point; return the CompletedProcess."""
    environment = dict(os.environ, BASH_ENV=str(HERE / "points.bash"), KILL_AT=str(at), COUNT=str(counter))
    # through bash, because the script's first line makes it ignore BASH_ENV
    return attempt(["bash", command], env=environment, start_new_session=True, timeout=300)


def left(root):
    """Return the leftovers of work in progress."""
    return [path.name for path in root.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["make-squashfs", "unmake-squashfs"])
def test_squashfs_commands(installation, tmp_path, name, fault, request):
    """S002-31: file and directory are complete or absent, nothing is lost, a retry succeeds and cleans up."""
    command = installation / "bin" / name
    software, squashfs = installation / "user-software", installation / "user-software.squashfs"
    before = content(software)
    if name.startswith("un"):
        subprocess.run([installation / "bin/make-squashfs"], check=True, capture_output=True)
        shutil.rmtree(software)

    def killed_at(at):
        made = squashfs if name == "make-squashfs" else software
        if made.exists():
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        return made, run_killed(command, at, tmp_path / "count")

    assert killed_at(0)[1].returncode == 0
    number = int((tmp_path / "count").read_text())
    assert number > 40
    killed = 0
    for at in spread(number, request.config.getoption("--every-point")):
        case = fault(f"kill -9 in {name}", f"command {at} of {number}")
        made, result = killed_at(at)
        killed += result.returncode == -9
        whole = made.exists()
        if name == "make-squashfs":
            case.kept(content(software) == before, "the directory")
            case.kept(not whole or unpacked(squashfs, tmp_path) == before, "a part of a SquashFS file")
        else:
            case.kept(unpacked(squashfs, tmp_path) == before, "the SquashFS file")
            case.kept(not whole or content(software) == before, "a part of a directory")
        again = attempt([command], timeout=300)
        if whole:
            case.said(again.stderr, " exists: remove ")
        else:
            case.kept(again.returncode == 0, again.stderr)
            case.said(again.stderr, "unpacked " if name.startswith("un") else f"made {squashfs}")
            case.kept(left(installation) == [], left(installation))
        case.kept((unpacked(squashfs, tmp_path) if name == "make-squashfs" else content(software)) == before, "both")
    assert killed >= SOME - 2


def unpacked(squashfs, tmp_path):
    """Return the content of a SquashFS file, None if it can't be read."""
    target = tmp_path / "unpacked"
    result = subprocess.run(["unsquashfs", "-no-progress", "-d", target, squashfs], capture_output=True, check=False)
    found = content(target) if result.returncode == 0 else None
    shutil.rmtree(target, ignore_errors=True)
    return found


@pytest.mark.parametrize(("name", "program"), [("make-squashfs", "mksquashfs"), ("unmake-squashfs", "unsquashfs")])
def test_squashfs_commands_while_writing(installation, tmp_path, name, program, fault):
    """Killed while mksquashfs or unsquashfs writes: only the work directory has partial files; a retry removes it."""
    (installation / "user-software/big").write_bytes(os.urandom(60_000_000))
    if name.startswith("un"):
        subprocess.run([installation / "bin/make-squashfs"], check=True, capture_output=True)
        shutil.rmtree(installation / "user-software")
    case = fault(f"kill -9 in {name}", f"while {program} writes")
    shim = tmp_path / "shim"
    shim.mkdir()
    # kills the process group as soon as something is written
    write_program(
        shim / program,
        f'#!/bin/bash\nPATH=${{PATH#*:}}\nif [[ "$*" != */new* || $* == \'-l \'* ]]; then exec {program} "$@"; fi\n'
        f'{program} "$@" &\nuntil [[ $(du -s {installation}/.{name}.*/new | cut -f 1) -gt 1000 ]]; do\n'
        "    kill -0 $! || break\ndone\nkill -KILL 0\n",
    )
    environment = dict(os.environ, PATH=f"{shim}:{os.environ['PATH']}")
    result = attempt([installation / "bin" / name], timeout=300, start_new_session=True, env=environment)
    assert result.returncode == -9, result.stderr
    assert len(left(installation)) == 1
    made = installation / ("user-software" if name.startswith("un") else "user-software.squashfs")
    case.kept(not made.exists(), "a part is where the whole should be")
    again = attempt([installation / "bin" / name], timeout=300)
    case.kept(again.returncode == 0 and made.exists(), again.stderr)
    case.kept(left(installation) == [], left(installation))


# --- installations


def pytest_generate_tests(metafunc):
    """Split a loop over all points among several processes."""
    if "part" in metafunc.fixturenames:
        every = metafunc.config.getoption("--every-point")
        metafunc.parametrize("part", [(index, 4) for index in range(4)] if every else [None])


class Loop:
    """Installations of one module at a site, killed at successive points."""

    def __init__(self, site, wheels, tmp_path):
        self.site = site
        self.wheels = wheels
        self.points_file = tmp_path / "points"
        self.root = site.root(MODULE)
        self.requirement = "hello"

    @property
    def easyconfig(self):
        """The current easyconfig; the last command takes longer than the time after which eb is killed in a program."""
        return self.site.easyconfig(
            TEXT + f"requirements = [{self.requirement!r}]\n"
            "postinstallcmds = ['touch %(installdir)s/share/after; sleep 0.5']\n"
        )

    def eb(self, at=None, *options, check=False):
        """Run eb, with kill -9 at a point; as EasyBuild asks for, first remove the lock that a kill has left."""
        for lock in (self.site.prefix / "eb/software/.locks").glob("*.lock"):
            lock.rmdir()
        variables = wheel_settings(self.wheels)
        if at is not None:
            watched = (self.site.prefix / "eb/software", self.site.prefix / "eb/modules")
            variables.update(
                KILL_AT=at, POINTS=self.points_file, WATCH=":".join(map(str, watched)), PYTHONPATH=HERE / "killed"
            )
        # in its own process group, which is killed
        command = ["setsid", "--wait", "eb", *self.site.eb_options, self.easyconfig, *options]
        return self.site.run(command, check=check, **variables)

    def points(self, *options):
        """Return the points of an installation that is not killed (list of str)."""
        self.points_file.unlink(missing_ok=True)
        self.eb(0, *options, check=True)
        return self.points_file.read_text().splitlines()

    def killed_at(self, part, some, *options):
        """
        Yield points (str), each with the setting that kills there, and whether a retry has to follow and complete.

        `part` is which part of all points, and the number of parts; None for `some`, expressions that match points.
        """
        if not part:
            for point in some:
                yield point, point, point == some[-1]
            return
        points = list(enumerate(self.points(*options), 1))
        # a new installation and one of other packages start at least two containers, each with two points
        assert sum("apptainer" in point for _, point in points) >= 4
        # the last moment with a partial result
        assert any(re.search(some[-1], point) for _, point in points)
        for number, point in points[part[0] :: part[1]]:
            yield shortened(point, self.site), number, True

    def works(self):
        """Return whether the module loads and runs, and its output otherwise."""
        script = f"module load {MODULE} && singularity exec $SIF python -c 'import hello'"
        result = self.site.bash(script, check=False)
        return result.returncode == 0, result.stderr

    @property
    def module(self):
        """The module file."""
        return self.site.modules / f"{MODULE}.lua"

    @property
    def is_half_written(self):
        """Whether EasyBuild was killed while it wrote the module file, which the next eb --rebuild writes again."""
        return self.module.exists() and not self.module.read_text().endswith("\n")

    def remove(self):
        """Remove the installation."""
        shutil.rmtree(self.site.prefix / "eb/software", ignore_errors=True)
        shutil.rmtree(self.site.prefix / "eb/modules", ignore_errors=True)

    @property
    def beside(self):
        """Return the names beside the installation."""
        return sorted(path.name for path in self.root.parent.iterdir() if path != self.root)


@pytest.mark.timeout(7200)
def test_a_first_installation(site, wheels, tmp_path, fault, part):
    """There is no module, or a complete one; a retry succeeds."""
    loop = Loop(site, wheels, tmp_path)
    killed = 0
    for point, at, to_the_end in loop.killed_at(part, FIRST):
        case = fault("kill -9 in a first installation", point)
        if part:
            loop.remove()
        result = loop.eb(at)
        killed += result.returncode != 0
        # killed, not failed because of leftovers of the attempt before
        assert part or result.returncode == -9, result.stdout + result.stderr
        complete = loop.module.exists()
        if complete and not loop.is_half_written:
            works, said = loop.works()
            case.kept(works, f"a module that does not work: {said}")
        elif not complete:
            case.kept(loop.site.bash(f"module load {MODULE}", check=False).returncode != 0, "half a module")
        if not to_the_end:
            continue
        # if the module is complete, eb has nothing to do
        again = loop.eb(None, *(["--rebuild"] if complete else []))
        case.kept(again.returncode == 0, again.stdout[-1500:] + again.stderr)
        works, said = loop.works()
        case.kept(works, said)
        case.kept(loop.beside == [], loop.beside)
    assert killed


@pytest.mark.timeout(7200)
def test_a_reinstallation(installations, wheels, tmp_path, fault, part):
    """The earlier or the new installation works, except between two renames; additions are kept; a retry succeeds."""
    loop = Loop(installations("Lmod-Lua").copy(tmp_path, MODULE), wheels, tmp_path)
    for number, (point, at, to_the_end) in enumerate(loop.killed_at(part, AGAIN, "--rebuild")):
        case = fault("kill -9 in installing again", point)
        # other packages
        loop.requirement = ("greeting", "hello")[number % 2]
        mine = f"mine {number}"
        replaced = loop.root.with_name(f"{loop.root.name}.replaced")
        software = (replaced if replaced.exists() else loop.root) / "user-software"
        software.mkdir(exist_ok=True)
        (software / f"mine-{number}").write_text(mine)
        result = loop.eb(at, "--rebuild")
        assert part or result.returncode == -9, result.stdout + result.stderr
        works, said = loop.works()
        # between two renames, the earlier one is beside its place until the next eb
        between = not loop.root.exists() and replaced.exists()
        case.kept(works or between or loop.is_half_written, f"neither installation works: {said}")
        case.kept(holds(loop.root.parent, f"mine-{number}", mine), "what a person added")
        if not to_the_end:
            continue
        again = loop.eb(None, "--rebuild")
        case.kept(again.returncode == 0, again.stdout[-1500:] + again.stderr)
        works, said = loop.works()
        case.kept(works, said)
        for earlier in range(0 if part is None else number, number + 1):
            kept = holds(loop.root.parent, f"mine-{earlier}", f"mine {earlier}")
            case.kept(kept, f"what a person added before attempt {earlier}, by the second attempt")
        # user software that was set aside stays, nothing else is left
        case.kept([name for name in loop.beside if ".repl" in name] == [], loop.beside)
        for path in loop.root.parent.glob("*.*user-software"):
            shutil.rmtree(path)


def test_the_same_packages_again(installations, wheels, tmp_path, fault):
    """S002-44: killed when user software has moved to the new installation, and again when it's back: both have it."""
    loop = Loop(installations("Lmod-Lua").copy(tmp_path, MODULE), wheels, tmp_path)
    loop.requirement = "greeting"
    for point in (r"rename .*\.replaced .*\.replace$", AGAIN[0]):
        result = loop.eb(point, "--rebuild")
        assert result.returncode == -9, result.stdout + result.stderr
        works, said = loop.works()
        fault("kill -9 in installing the same packages again", point).kept(works, said)


def shortened(point, site):
    """Return a point in a readable form."""
    point = point.replace(str(site.prefix), "")
    return point if len(point) < 200 else f"{point[:60]} ... {point[-130:]}"


def holds(folder, name, text):
    """Return whether any file of that name below a folder has that text."""
    return any(path.read_text() == text for path in folder.rglob(name))
