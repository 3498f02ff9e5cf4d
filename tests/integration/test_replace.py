"""Reinstallation: the working installation stays until the new one is complete, and users' additions are kept."""

import hashlib
import inspect
import json
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest
from account import OWN_MOUNTS
from easybuild.easyblocks.generic.container.usersoftware import UserSoftware
from parts import Installed, example_site, wheel_settings
from person import Person
from support import write_program

TEXT = Installed.TEXT
SQUASHED = TEXT + "versionsuffix = '-squashed'\n"
WRITABLE = TEXT + "versionsuffix = '-writable'\n"


def requirements(*lines):
    """Return the parameter `requirements` as a list."""
    return f"requirements = {list(lines)!r}\n"


@pytest.fixture
def packed(installations, tmp_path):
    """A site with a module whose user software is a SquashFS file."""
    return installations("Lmod-Lua").copy(tmp_path, Installed.SQUASHED)


@pytest.fixture
def writable(installations, tmp_path):
    """A site with a module whose user software is a directory."""
    return installations("Lmod-Lua").copy(tmp_path, Installed.WRITABLE)


def everything(prefix):
    """Return all files of installations and modules with whatever shows that one was touched."""
    found = {}
    for path in sorted((Path(prefix) / "eb/software/Example").rglob("*")):
        status = path.lstat()
        found[str(path)] = [status.st_ino, status.st_mtime_ns, status.st_size]
    found.update({str(path): path.read_text() for path in (Path(prefix) / "eb/modules").rglob("*") if path.is_file()})
    return found


def add_by_hand(site, wheels):
    """Do what users do: add a package and pack it; return the directory of the installation."""
    (root,) = (site.prefix / "eb/software/Example").iterdir()
    module = f"Example/{root.name}"
    site.bash(f"""
        set -e
        module load {module}
        test ! -e $CONTAINERROOT/user-software.squashfs || {{
            unmake-squashfs; rm $CONTAINERROOT/user-software.squashfs; module unload Example; module load {module}
        }}
        singularity exec -B {wheels} $SIF pip install --no-index --find-links {wheels} byhand
        make-squashfs
        rm -r $CONTAINERROOT/user-software
    """)
    return root


def siblings(site):
    """Return the names beside the installation."""
    names = {path.name for path in (site.prefix / "eb/software/Example").iterdir()}
    return sorted(names - {"1.0", "1.0-squashed", "1.0-writable"})


HOOKS = """
import json
from pathlib import Path
from easybuild.tools.build_log import EasyBuildError

{everything}

def pre_fetch_hook(self):
    with open({log!r}, 'a') as log:
        log.write(json.dumps(everything({prefix!r})) + chr(10))

def pre_install_hook(self):
    if '# pack' in self.cfg.rawtxt:
        squash = self.build.venv.squash
        self.build.venv.squash = lambda command, target: squash([*command, '--', '-no-such-option'], target)

def module_write_hook(self, filepath, text, *args, **kwargs):
    if filepath.startswith({modules!r}) and '# hook' in self.cfg.rawtxt:
        raise EasyBuildError("no module today")
"""

# without pip, unless pip is what fails; in later steps without user software
PACKED = "requirements = [{'verify': ['true']}]\n"
PLAIN = "easyblock = 'ContainerInstall'\n" + SQUASHED.replace("venv_name = 'pytorch'\n", "")
FAILURES = [
    (SQUASHED + requirements("no-such-package"), "no-such-package"),
    (SQUASHED + "requirements = [{'verify': ['false']}]\n", "command of 'verify' failed"),
    (SQUASHED + PACKED + "# pack\n", "no-such-option"),
    (SQUASHED + PACKED + "sanity_check_commands = ['false']\n", "anity check"),
    (PLAIN + "postinstallcmds = ['touch %(installdir)s/bin/made; exit 7']\n", "exit code 7"),
    (PLAIN + "# hook\n", "no module today"),
]


def test_a_failed_installation_changes_nothing(packed, wheels):
    """S002-44, S002-49, S002-50: it fails in any step: image, module and user software are as before."""
    site = packed
    hooks, log = site.prefix / "hooks.py", site.prefix / "log"
    hooks.write_text(
        HOOKS.format(
            modules=str(site.modules), prefix=str(site.prefix), log=str(log), everything=inspect.getsource(everything)
        )
    )
    texts = {str(number): text for number, (text, _) in enumerate(FAILURES)}
    results = site.eb_each(texts, "--rebuild", f"--hooks={hooks}", **wheel_settings(wheels))
    before, *after = [json.loads(line) for line in log.read_text().splitlines()]
    after.append(json.loads(json.dumps(everything(site.prefix))))
    assert len(after) == len(FAILURES)
    for (_, expected), result, found in zip(FAILURES, results.values(), after):
        assert result.returncode != 0, expected
        assert expected in result.stdout
        assert found == before, expected
    site.bash(f"module load {Installed.SQUASHED} && singularity exec $SIF python -c 'import hello'")


PATHS = """
import time

def pre_fetch_hook(self, *args, **kwargs):
    from easybuild.easyblocks.generic.container.record.lockfile import Record
    read = Record.read.__func__

    def noted(cls, path):
        with open({log!r} + '.read', 'a') as log:
            log.write('%s %s\\n' % (self.current_step, path))
        return read(cls, path)

    Record.read = classmethod(noted)

def module_write_hook(self, filepath, text, *args, **kwargs):
    if filepath.startswith({modules!r}):
        with open({log!r}, 'a') as log:
            log.write('module %s in %s\\n' % (filepath, self.installdir))

def note(what, self):
    with open({log!r}, 'a') as log:
        log.write('%s in %s\\n' % (what, self.installdir))

def post_install_hook(self, *args, **kwargs):
    note('install', self)

def pre_postproc_hook(self, *args, **kwargs):
    note('before', self)

def post_postproc_hook(self, *args, **kwargs):
    note('after', self)
    with open(self.installdir + '/bin/late', 'w') as script:
        script.write(str(time.time()))
"""


def test_written_paths_are_final(site, base_image):
    """
    Commands, hooks and the module cache see the final paths.

    The new installation's image has another name: afterwards the module uses it, and the old one is gone.
    No step reads a record twice.
    """
    root, log, hooks = site.root(), site.prefix / "log", site.prefix / "hooks.py"
    hooks.write_text(PATHS.format(modules=str(site.modules), log=str(log)))
    commands = ["echo %(installdir)s >%(installdir)s/where", "ln -sf %(installdir)s/where %(installdir)s/link"]
    easyconfig = site.easyconfig(PLAIN.replace("-squashed", "") + f"postinstallcmds = {commands}\n")
    for options in (["--update-modules-tool-cache"], ["--rebuild"]):
        log.write_text("")
        if "--rebuild" in options:
            (site.sources / "newer.sif").symlink_to(base_image)
            easyconfig.write_text(easyconfig.read_text().replace("example.sif", "newer.sif"))
        result = site.eb(easyconfig, f"--hooks={hooks}", *options, MODULEPATH=site.modules)
        assert (root / "where").read_text() == f"{root}\n"
        assert (root / "link").readlink() == root / "where"
        steps = [f"{step} in {root}" for step in ("install", "before", "after")]
        assert log.read_text().splitlines() == [*steps, f"module {site.modules}/Example/1.0.lua in {root}"]
        reads = Path(f"{log}.read").read_text().splitlines()
        Path(f"{log}.read").unlink()
        assert reads
        assert [one for one in set(reads) if reads.count(one) > 1] == []
        assert "unfinished" not in result.stdout
        # files that hooks write are not a user's
        assert "files of the earlier installation" not in result.stdout
        if "--rebuild" not in options:
            cached = [path for path in site.home.rglob("*.lua") if "Example/1.0" in path.read_text()]
            assert cached, list(site.home.rglob("*"))
    assert siblings(site) == []
    assert [path.name for path in (site.modules / "Example").iterdir()] == ["1.0.lua"]
    output = site.bash("module load Example/1.0 && echo $SIF && singularity exec $SIF true").stdout
    assert output.strip() == f"{root}/newer.sif"
    assert not (root / "example.sif").exists()


APPEND = """
def pre_install_hook(self, *args, **kwargs):
    with open(self.build.image_file.path, 'ab') as image:
        image.write(b'x')
"""


def test_the_installed_image_is_the_verified_one(site, base_image):
    """G-06: an image that changes after its checksum was computed is refused, and the earlier one stays."""
    image = site.sources / "own.sif"
    shutil.copy(base_image, image)
    image.chmod(0o750)
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    easyconfig = site.easyconfig(
        f"easyblock = 'ContainerInstall'\nsources = ['own.sif']\nchecksums = [{{'own.sif': '{digest}'}}]\n"
    )
    site.eb(easyconfig)
    copy = site.root() / "own.sif"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o750
    hooks = site.prefix / "hooks.py"
    hooks.write_text(APPEND)
    before = everything(site.prefix)
    result = site.eb(easyconfig, "--rebuild", f"--hooks={hooks}", check=False)
    assert result.returncode != 0 and "changed during the installation" in result.stdout + result.stderr
    assert everything(site.prefix) == before


def test_where_directories_can_not_be_renamed(writable):
    """A link stays a link; a mount point is refused as long as it isn't empty."""
    site = writable
    easyconfig = site.easyconfig(WRITABLE)
    root = site.root(Installed.WRITABLE)
    elsewhere = site.prefix / "elsewhere"
    elsewhere.mkdir()
    root.rename(elsewhere / root.name)
    root.symlink_to(elsewhere / root.name)
    site.eb(easyconfig, "--rebuild")
    assert root.is_symlink()
    assert [path.name for path in elsewhere.iterdir()] == [root.name]
    assert siblings(site) == []
    site.bash(f"module load {Installed.WRITABLE} && singularity exec $SIF true")

    root.unlink()
    (elsewhere / root.name).rename(root)
    (root / "user-software/mine").write_text("mine")
    command = ["eb", *site.eb_options, easyconfig, "--rebuild"]
    before = everything(site.prefix)
    result = site.run([*OWN_MOUNTS, "bash", "-c", 'mount --bind "$0" "$0"; exec "$@"', root, *command], check=False)
    assert result.returncode != 0
    assert f"{root} can't be renamed (Device or resource busy)" in result.stdout + result.stderr
    assert everything(site.prefix) == before
    # before anything is built
    mount = 'mount --bind "$0" "$0"; exec "$@"'
    result = site.run([*OWN_MOUNTS, "bash", "-c", mount, root / "user-software", *command], check=False)
    assert result.returncode != 0
    said = " ".join((result.stdout + result.stderr).split())
    assert f"{root}/user-software can't be renamed (Device or resource busy)" in said
    assert "If it is a mount point, unmount it" in said and "creating the venv" not in said
    assert everything(site.prefix) == before
    # as the message says
    for path in root.iterdir():
        path.unlink() if path.is_file() else shutil.rmtree(path)
    site.run([*OWN_MOUNTS, "bash", "-c", 'mount --bind "$0" "$0"; exec "$@"', root, *command])
    site.bash(f"module load {Installed.WRITABLE} && singularity exec $SIF true")


# --- additions by hand


@pytest.mark.parametrize(
    ("name", "text", "times"),
    [("writable", WRITABLE, ["again", "and again"]), ("packed", SQUASHED + requirements("greeting"), ["again"])],
)
def test_additions_remain_in_use(request, wheels, name, text, times):
    """S002-44: after reinstalling the same, users' additions remain in place and in use, and a message says so."""
    site = request.getfixturevalue(name)
    root = add_by_hand(site, wheels)
    squashfs = root / "user-software.squashfs"
    content = squashfs.read_bytes()
    mine = root / "runscripts/mine"
    mine.write_text("mine")
    results = site.eb_each(dict.fromkeys(times, text), "--rebuild", **wheel_settings(wheels))
    assert squashfs.read_bytes() == content
    assert not (root / "user-software").exists()
    assert mine.read_text() == "mine"
    for result in results.values():
        assert result.returncode == 0, result.stdout
        assert "it is kept as it is (user-software.squashfs)" in result.stdout
        assert "files that were added by hand are kept (runscripts/mine)" in result.stdout
    assert siblings(site) == []
    site.bash(f"module load Example/{root.name} && singularity exec $SIF python -c 'import byhand'")


def test_additions_to_a_module_of_an_earlier_version(writable, wheels):
    """S002-44: additions remain in use if ebsif was upgraded since; its own files there are the new ones."""
    root = writable.root(Installed.WRITABLE)
    (hints,) = (root / "user-software").rglob("ebsif_pip_hints.py")
    now = hints.read_text()
    hints.write_text(now + "# of an earlier version\n")
    lock = root / "share/ebsif/lock.json"
    content = json.loads(lock.read_text())
    content["user_software"] = UserSoftware(str(root)).fingerprints({})
    lock.write_text(json.dumps(content))
    writable.bash(
        f"module load {Installed.WRITABLE} && "
        f"singularity exec -B {wheels} $SIF pip install --no-index --find-links {wheels} byhand"
    )
    said = writable.eb(writable.easyconfig(WRITABLE), "--rebuild", **wheel_settings(wheels)).stdout
    assert "user software of the earlier installation works with this one; it stays in use (user-software)" in said
    assert siblings(writable) == []
    assert hints.read_text() == now
    writable.bash(f"module load {Installed.WRITABLE} && singularity exec $SIF python -c 'import byhand'")


def test_unsuitable_additions_are_set_aside(writable, wheels):
    """S002-44: if other packages are installed now, users' additions are set aside, and a message says where."""
    site = writable
    root = add_by_hand(site, wheels)
    content = (root / "user-software.squashfs").read_bytes()
    result = site.eb(site.easyconfig(WRITABLE + requirements("greeting")), "--rebuild", **wheel_settings(wheels))
    (name,) = siblings(site)
    path = site.prefix / "eb/software/Example" / name
    assert path.read_bytes() == content
    assert f"it is kept at {path}. To use it anyway: rm" in result.stdout
    assert (root / "user-software.squashfs").read_bytes() != content

    site.bash(f"module load {Installed.WRITABLE} && unmake-squashfs")
    (root / "user-software/mine").write_text("mine")
    (root / "runscripts/get-master").write_text("mine")
    # the new one has no user software, so no command could restore it; the script was changed
    result = site.eb(site.easyconfig(PLAIN.replace("-squashed", "-writable")), "--rebuild")
    directory, scripts = sorted(set(siblings(site)) - {name}, reverse=True)
    assert (root.parent / directory / "mine").read_text() == "mine"
    assert (root.parent / scripts / "runscripts/get-master").read_text() == "mine"
    assert (root / "runscripts/get-master").read_text() != "mine"
    (line,) = (line for line in result.stdout.splitlines() if directory in line)
    assert "the easyblock ContainerVenv has" in line
    assert "To use it" not in line


def test_unchanged_files_are_not_kept(writable):
    """S002-44: user software in its original state, even if used since, is simply replaced."""
    site = writable
    site.bash(f"module load {Installed.WRITABLE} && singularity exec $SIF python -c 'import pip._internal, venv'")
    results = site.eb_each({"same": WRITABLE, "packed": WRITABLE + PACKED, "again": WRITABLE + PACKED}, "--rebuild")
    assert siblings(site) == []
    for name, result in results.items():
        assert result.returncode == 0, result.stdout
        assert "changed by hand" not in result.stdout, name


def test_what_a_killed_attempt_has_left(writable):
    """If eb is killed while it tests, the earlier installation is put back, and changes in the new one are kept."""
    root = writable.root(Installed.WRITABLE)
    subprocess.run(["cp", "-a", root, root.with_name(root.name + ".replaced")], check=True)
    (root / "user-software/mine").write_text("mine")
    said = writable.eb(writable.easyconfig(WRITABLE), "--rebuild").stdout
    (name,) = siblings(writable)
    assert name in said and (root.parent / name / "mine").read_text() == "mine"
    writable.bash(f"module load {Installed.WRITABLE} && singularity exec $SIF true")


# --- installations of recipes that were written by hand, as LUMI has them (easyblock MakeCp, scripts in here-documents)

HAND_WRITTEN_MODULE = """
local root = "{root}"
setenv("SIF", root .. "/example.sif")
setenv("CONTAINERROOT", root)
setenv("RUNSCRIPTS", root .. "/runscripts")
local user_software = root .. "/user-software.squashfs"
local bind = isFile(user_software) and user_software .. ":/user-software:image-src=/" or
    root .. "/user-software:/user-software"
setenv("SINGULARITY_BIND", "{data},{data}:{data}," .. root .. "/runscripts:/runscripts," .. bind)
setenv("SINGULARITYENV_PREPEND_PATH", "/runscripts:/user-software/venv/pytorch/bin:{conda}/bin")
setenv("SINGULARITYENV_WITH_CONDA", "source /opt/miniconda3/bin/activate pytorch")
prepend_path("PATH", root .. "/bin")
"""
HAND_WRITTEN_EASYCONFIG = """\
easyblock = 'MakeCp'
name = 'Example'
version = '1.0'
versionsuffix = '-old'
homepage, description, toolchain = 'https://example.org', 'An example', SYSTEM
sources = [{'filename': 'example.sif', 'extract_cmd': '/bin/cp -L %s .'}]
skipsteps, files_to_copy = ['build'], [(['example.sif'], '.')]
postinstallcmds = ['make-coffee', 'singularity exec %(installdir)s/example.sif bash -c \
"source /opt/miniconda3/bin/activate pytorch ; pip install byhand"']
"""
OLD_JOB = """\
#!/bin/bash
set -e
module load Example/1.0-packed
singularity exec $SIF bash -c '$WITH_CONDA && python -c "import byhand, numpy"'
singularity exec $SIF conda-python-distributed -c 'import byhand, os; print("rank", os.environ["RANK"])'
start-shell -c 'python -c "import byhand"'
echo "the old job is done"
"""
CONDA = "/opt/miniconda3/envs/pytorch"
# by version suffix: the venv's path, whether the user adds a package, and whether it's packed
HAND_WRITTEN = {
    "-packed": ("pytorch", True, True),
    "-directory": ("pytorch", True, False),
    "-other": ("torch", True, False),
    "-unchanged": ("pytorch", False, False),
}


@pytest.fixture(scope="module")
def replaced(tmp_path_factory, base_image, wheels):
    """The site, and eb's output when it replaced installations of hand-written recipes, by version suffix."""
    site = example_site(tmp_path_factory.mktemp("hand-written"), base_image)
    software, modules = site.prefix / "eb/software/Example", site.modules / "Example"
    modules.mkdir(parents=True)
    scripts = ("runscripts/conda-python-simple", "runscripts/theirs", "bin/start-shell", "bin/ls")
    folder, paths = site.prefix / "made/venv", []
    folder.mkdir(parents=True)
    command = ["apptainer", "exec", "--bind", f"{folder.parent}:/user-software", base_image, f"{CONDA}/bin/python"]
    site.run([*command, "-m", "venv", "--system-site-packages", "/user-software/venv/pytorch"])
    for suffix, (venv, added, packed) in HAND_WRITTEN.items():
        root = software / f"1.0{suffix}"
        for name in ("bin", "runscripts", "easybuild"):
            (root / name).mkdir(parents=True)
        for name in scripts:
            (root / name).write_text("the recipe's")
        shutil.copy(base_image, root / "example.sif")
        shutil.copytree(folder.parent, root / "user-software", symlinks=True)
        (root / "user-software/venv/pytorch").rename(root / "user-software/venv" / venv)
        if suffix != "-packed":
            # that one is elsewhere, or somebody has removed it first
            (modules / f"1.0{suffix}.lua").write_text(
                HAND_WRITTEN_MODULE.format(root=root, data=site.sources, conda=CONDA)
            )
        (root / "easybuild/easybuild-Example-1.0-20250101.120000.log").write_text("ended")
        if added:
            packages = root / f"user-software/venv/{venv}/lib/python3.11/site-packages"
            zipfile.ZipFile(wheels / "byhand-1.0-py3-none-any.whl").extractall(packages)
            (root / "runscripts/mine").write_text("mine")
            (root / "runscripts/conda-python-simple").write_text("mine")
        if packed:
            site.run(["mksquashfs", root / "user-software", root / "user-software.squashfs", "-processors", "1"])
            shutil.rmtree(root / "user-software")
        paths.append(site.easyconfig(TEXT + f"binds = ['{site.sources}']\n", suffix=suffix))
    site.bash("module load Example/1.0-directory && env -0 >old")
    person = Person(site, wheels)
    for path in paths:
        shutil.copy(path, site.work)
    (site.work / "old.eb").write_text(HAND_WRITTEN_EASYCONFIG)
    write_program(site.work / "old-job.sh", OLD_JOB)
    output = person.types("recipe")
    said = {"": output}
    for part in output.split("== processing EasyBuild easyconfig ")[1:]:
        path, text = part.split("\n", 1)
        said[Path(path).stem.removeprefix("Example-1.0")] = text
    assert sorted(said) == sorted(["", *HAND_WRITTEN])
    return site, said


def test_somebody_with_a_recipe(replaced):
    """S002-54, L-08: an easyconfig becomes records, and what can't is named; the old job runs unchanged."""
    site, said = replaced
    # standard output may come later
    assert "ebsif: left to you: old.eb:8: postinstallcmds: make-coffee\n" in said[""]
    assert "records.yaml\n" in said[""] and "\nsomething needs a look\n" in said[""]
    records = (site.work / "records.yaml").read_text()
    assert "requirements" in records and "byhand" in records
    assert said[""].endswith("the old job is done\n")


@pytest.mark.parametrize("suffix", ["-packed", "-directory"])
def test_additions_to_a_hand_written_installation_remain_in_use(replaced, suffix):
    """
    L-08: the venv has the same path and Python: the user's packages and scripts are used as before.

    Programs in its bin are set aside, because they would come before the host's.
    """
    site, said = replaced
    name = "user-software.squashfs" if suffix == "-packed" else "user-software"
    assert f"works with this one; it stays in use ({name})" in said[suffix]
    root = site.root(f"Example/1.0{suffix}")
    assert (root / "runscripts/mine").read_text() == "mine"
    assert "files that were added by hand are kept (runscripts/mine, runscripts/theirs)" in said[suffix]
    (aside,) = root.parent.glob(f"1.0{suffix}.*")
    expected = ["bin/ls", "bin/start-shell", "runscripts/conda-python-simple"]
    assert sorted(str(path.relative_to(aside)) for path in aside.rglob("*") if path.is_file()) == expected
    code = "import byhand, numpy, sys; print(sys.prefix)"
    output = site.bash(f"module load Example/1.0{suffix} && singularity exec $SIF python -c '{code}'").stdout
    assert output == "/user-software/venv/pytorch\n"
    if suffix == "-directory":
        # a program of the image sees them, too
        output = site.bash(f"module load Example/1.0{suffix} && singularity exec $SIF which f2py").stdout
        assert output == "/user-software/venv/pytorch/bin/f2py\n"


def test_unsuitable_additions_to_a_hand_written_installation(replaced):
    """L-08: the venv has another path: additions are set aside, and the command printed restores them."""
    site, said = replaced
    (line,) = (line for line in said["-other"].splitlines() if "To use it anyway: " in line)
    assert "may have been changed by hand (it has no record), and doesn't match this one" in line
    root = site.root("Example/1.0-other")
    # until then the new one is used
    site.bash("module load Example/1.0-other && ! singularity exec $SIF python -c 'import byhand' 2>/dev/null")
    site.run(["bash", "-c", line.split("To use it anyway: ")[1]])
    assert list((root / "user-software/venv/torch/lib/python3.11/site-packages").glob("byhand.py"))


def test_files_of_a_hand_written_installation_without_additions(replaced):
    """L-08: nothing tells them from a user's, so they are kept like additions."""
    site, said = replaced
    root = site.root("Example/1.0-unchanged")
    (aside,) = root.parent.glob("1.0-unchanged.*")
    assert (aside / "bin/start-shell").read_text() == "the recipe's"
    assert "works with this one; it stays in use (user-software)" in said["-unchanged"]
    site.bash("module load Example/1.0-unchanged && start-shell -c 'python -c \"import numpy\"'")


def test_a_shell_that_has_loaded_the_replaced_module(replaced):
    """L-08: commands ask to reload the module; after reloading or unloading none of its binds is left."""
    site, _ = replaced
    environment = dict(entry.split("=", 1) for entry in (site.work / "old").read_text().split("\0") if "=" in entry)
    result = site.bash("start-shell -c true", check=False, **environment)
    assert result.returncode == 1 and "reload it (module unload NAME; module load NAME)" in result.stderr
    # a job inherits everything and loads the module
    load = "module load Example/1.0-directory; echo ${SINGULARITY_BIND-none}; "
    result = site.bash(load + "singularity exec $SIF python -c 'import byhand'", **environment)
    assert result.stdout == "none\n"
    assert "WARNING" not in result.stderr
    assert site.bash("module unload Example; echo ${SINGULARITY_BIND-none}", **environment).stdout == "none\n"
