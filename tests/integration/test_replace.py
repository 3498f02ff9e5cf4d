"""Installing again: what works stays until the new installation is complete, and what people added is kept."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from parts import TOOLS, Installed, example_site, wheel_settings
from support import Site

TEXT = Installed.TEXT


def requirements(*lines):
    """The parameter `requirements` as a list."""
    return f"requirements = {list(lines)!r}\n"


def everything(site):
    """Every file of the installations and of the modules with what tells whether it was touched."""
    found = {}
    for path in sorted((site.prefix / "eb/software/Example").rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_size)
    found.update({str(path): path.read_bytes() for path in site.modules.rglob("*") if path.is_file()})
    return found


def add_by_hand(site, wheels):
    """Do what a user does to the module: add a package and pack it."""
    site.bash(f"""
        set -e
        module load Example/1.0
        test ! -e $CONTAINERROOT/user-software.squashfs || {{
            unmake-squashfs; rm $CONTAINERROOT/user-software.squashfs; module unload Example; module load Example/1.0
        }}
        singularity exec -B {wheels} $SIF pip install --no-index --find-links {wheels} byhand
        make-squashfs
        rm -r $CONTAINERROOT/user-software
    """)


def beside(site):
    """What is beside the installation."""
    return sorted(path.name for path in (site.prefix / "eb/software/Example").iterdir() if path.name != "1.0")


HOOKS = """
from easybuild.tools.build_log import EasyBuildError

def module_write_hook(self, filepath, text, *args, **kwargs):
    if filepath.startswith({modules!r}):
        raise EasyBuildError("no module today")
"""


FAILURES = [
    (requirements("no-such-package"), "no-such-package"),
    ("requirements = [{'requirements': 'greeting', 'verify': ['false']}]\n", "command of 'verify' failed"),
    (requirements("greeting") + "squashfs_options = ['-no-such-option']\n", "no-such-option"),
    (requirements("greeting") + "postinstallcmds = ['touch %(installdir)s/bin/made; exit 7']\n", "exit code 7"),
    (requirements("greeting") + "sanity_check_commands = ['false']\n", "anity check"),
    (requirements("greeting") + "# hook\n", "no module today"),
]


def test_a_failed_installation_changes_nothing(site, wheels):
    """S002-44, S002-49, S002-50: it fails in any step: image, module and user software are as they were."""
    site.eb(site.easyconfig(TEXT + requirements("hello")), **wheel_settings(wheels))
    hooks = site.prefix / "hooks.py"
    hooks.write_text(HOOKS.format(modules=str(site.modules)))
    before = everything(site)
    for text, expected in FAILURES:
        options = [f"--hooks={hooks}"] if "hook" in text else []
        result = site.eb(site.easyconfig(TEXT + text), "--rebuild", *options, check=False, **wheel_settings(wheels))
        assert result.returncode != 0
        assert expected in result.stdout + result.stderr
        assert everything(site) == before, expected
    site.bash("module load Example/1.0 && singularity exec $SIF python -c 'import hello'")


@pytest.mark.parametrize(("text", "work"), [
    (requirements("greeting"), "import numpy.fft, greeting, hello, json.tool"),
    # defects B5: Python starts itself again, as multiprocessing and torchrun do
    ("", "import numpy.fft, subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"),
])
def test_a_program_goes_on_while_its_module_is_installed_again(site, wheels, text, work):
    """A job runs from image and user software, packed or a directory, while both are replaced: it ends well."""
    easyconfig = site.easyconfig(TEXT + text)
    site.eb(easyconfig, **wheel_settings(wheels))
    script = "module load Example/1.0 && exec singularity exec $SIF python -c " \
        f'"import time; print(1, flush=True); input(); {work}; print(2)"'
    prelude = f"{site.tool.init}\nmodule use '{site.modules}'\n"
    with subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-c", prelude + script], env=site.environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as job:
        assert job.stdout.readline() == "1\n"
        site.eb(easyconfig, "--rebuild", **wheel_settings(wheels))
        output, errors = job.communicate("\n", timeout=60)
    assert (output, job.returncode) == ("2\n", 0), errors


def test_a_new_image_takes_the_place_of_another(site, wheels, base_image):
    """The new installation has an image of another name: after it the module uses that one, and the old one is gone."""
    site.eb(site.easyconfig(TEXT))
    (site.sources / "newer.sif").symlink_to(base_image)
    site.eb(site.easyconfig(TEXT.replace("example.sif", "newer.sif")), "--rebuild")
    output = site.bash("module load Example/1.0 && echo $SIF && singularity exec $SIF true").stdout
    assert output.strip() == f"{site.prefix}/eb/software/Example/1.0/newer.sif"
    assert not (site.prefix / "eb/software/Example/1.0/example.sif").exists()
    assert beside(site) == []


PATHS = """
def module_write_hook(self, filepath, text, *args, **kwargs):
    if filepath.startswith({modules!r}):
        with open({log!r}, 'a') as log:
            log.write('module %s in %s\\n' % (filepath, self.installdir))

def post_postproc_hook(self, *args, **kwargs):
    with open({log!r}, 'a') as log:
        log.write('postproc in %s\\n' % self.installdir)
"""


def test_paths_that_are_written_stay(site):
    """defects B4, C8 (easybuild D3, D5, D10): commands, hooks, the cache of modules see the paths that stay."""
    root, log, hooks = site.prefix / "eb/software/Example/1.0", site.prefix / "log", site.prefix / "hooks.py"
    hooks.write_text(PATHS.format(modules=str(site.modules), log=str(log)))
    commands = ["echo %(installdir)s >%(installdir)s/where", "ln -sf %(installdir)s/where %(installdir)s/link"]
    easyconfig = site.easyconfig(TEXT + f"postinstallcmds = {commands}\n")
    for options in (["--update-modules-tool-cache"], ["--rebuild"]):
        log.write_text("")
        result = site.eb(easyconfig, f"--hooks={hooks}", *options, MODULEPATH=site.modules)
        assert (root / "where").read_text() == f"{root}\n"
        assert (root / "link").readlink() == root / "where"
        expected = [f"postproc in {root}", f"module {site.modules}/Example/1.0.lua in {root}"]
        assert log.read_text().splitlines() == expected
        assert "unfinished" not in result.stdout
        if "--rebuild" not in options:
            cached = [path for path in site.home.rglob("*.lua") if "Example/1.0" in path.read_text()]
            assert cached, list(site.home.rglob("*"))
    assert beside(site) == []
    assert [path.name for path in (site.modules / "Example").iterdir()] == ["1.0.lua"]


APPEND = """
def pre_install_hook(self, *args, **kwargs):
    with open(self.source_image, 'ab') as image:
        image.write(b'x')
"""


def test_the_image_is_the_one_that_was_verified(site, base_image):
    """G-06 (defects A4, A11, lumi B8): it changes after its checksum was taken: refused, the earlier one stays."""
    image = site.sources / "own.sif"
    shutil.copy(base_image, image)
    image.chmod(0o750)
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    easyconfig = site.easyconfig(TEXT.replace("example.sif", "own.sif") + f"checksums = [{{'own.sif': '{digest}'}}]\n")
    site.eb(easyconfig)
    copy = site.prefix / "eb/software/Example/1.0/own.sif"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o750
    hooks = site.prefix / "hooks.py"
    hooks.write_text(APPEND)
    before = everything(site)
    result = site.eb(easyconfig, "--rebuild", f"--hooks={hooks}", check=False)
    assert result.returncode != 0
    assert "changed while it was installed" in result.stdout + result.stderr
    assert everything(site) == before


def test_where_directories_can_not_be_renamed(site):
    """easybuild D4, D8: a link stays one; a mount is emptied and filled, what was changed in it is kept beside."""
    easyconfig = site.easyconfig(TEXT)
    site.eb(easyconfig)
    root = site.prefix / "eb/software/Example/1.0"
    elsewhere = site.prefix / "elsewhere"
    elsewhere.mkdir()
    root.rename(elsewhere / "1.0")
    root.symlink_to(elsewhere / "1.0")
    site.eb(easyconfig, "--rebuild")
    assert root.is_symlink()
    assert [path.name for path in elsewhere.iterdir()] == ["1.0"]
    assert beside(site) == []
    site.bash("module load Example/1.0 && singularity exec $SIF true")

    root.unlink()
    (elsewhere / "1.0").rename(root)
    (root / "user-software/mine").write_text("mine")
    command = ["eb", *site.eb_options, easyconfig, "--rebuild"]
    result = site.run(["unshare", "--mount", "--map-root-user", "bash", "-c", 'mount --bind "$0" "$0"; exec "$@"', root,
                       *command])
    assert "it is emptied, and not available until" in result.stdout + result.stderr
    (kept,) = beside(site)
    assert (root.parent / kept / "mine").read_text() == "mine"
    site.bash("module load Example/1.0 && singularity exec $SIF true")


# --- what was added by hand


@pytest.mark.parametrize("text", ["", requirements("greeting")])
def test_additions_stay_in_use(site, wheels, text):
    """S002-44: the same is installed again: what a user added stays in place and in use, a message says so."""
    easyconfig = site.easyconfig(TEXT + text)
    site.eb(easyconfig, **wheel_settings(wheels))
    add_by_hand(site, wheels)
    squashfs = site.prefix / "eb/software/Example/1.0/user-software.squashfs"
    content = squashfs.read_bytes()
    mine = squashfs.parent / "runscripts/mine"
    mine.write_text("mine")
    for _ in range(2):
        result = site.eb(easyconfig, "--rebuild", **wheel_settings(wheels))
        assert "it is kept as it is (user-software.squashfs)" in result.stdout
        assert squashfs.read_bytes() == content
        assert not (squashfs.parent / "user-software").exists()
        # lumi 6
        assert mine.read_text() == "mine"
        assert "scripts that were added by hand are kept (runscripts/mine)" in result.stdout
    assert beside(site) == []
    site.bash("module load Example/1.0 && singularity exec $SIF python -c 'import byhand'")


def test_additions_that_do_not_fit_are_set_aside(site, wheels):
    """S002-44: other packages are installed now: what a user added is set aside, a message says where."""
    site.eb(site.easyconfig(TEXT))
    add_by_hand(site, wheels)
    root = site.prefix / "eb/software/Example/1.0"
    content = (root / "user-software.squashfs").read_bytes()
    result = site.eb(site.easyconfig(TEXT + requirements("greeting")), "--rebuild", **wheel_settings(wheels))
    (name,) = beside(site)
    path = site.prefix / "eb/software/Example" / name
    assert path.read_bytes() == content
    assert f"it is kept at {path}. To use it all the same: rm" in result.stdout
    assert (root / "user-software.squashfs").read_bytes() != content

    site.bash("module load Example/1.0 && unmake-squashfs")
    (root / "user-software/mine").write_text("mine")
    (root / "runscripts/get-master").write_text("mine")
    # defects A5: the new one has no user software at all, and no command would change that; lumi 6: scripts that were
    # changed
    easyconfig = site.easyconfig(TEXT.replace("venv_name = 'pytorch'\n", ""))
    easyconfig.write_text(easyconfig.read_text().replace("ContainerVenv", "ContainerInstall"))
    result = site.eb(easyconfig, "--rebuild")
    directory, scripts = sorted(set(beside(site)) - {name}, reverse=True)
    assert (root.parent / directory / "mine").read_text() == "mine"
    assert (root.parent / scripts / "runscripts/get-master").read_text() == "mine"
    assert (root / "runscripts/get-master").read_text() != "mine"
    (line,) = (line for line in result.stdout.splitlines() if directory in line)
    assert "see the easyblock ContainerVenv" in line
    assert "To use it" not in line


def test_nothing_is_kept_that_was_not_changed(site, wheels):
    """S002-44: what is as it was installed, loaded and used in between, is simply installed again."""
    easyconfig = site.easyconfig(TEXT)
    site.eb(easyconfig)
    site.bash("module load Example/1.0 && singularity exec $SIF python -c 'import pip._internal, venv'")
    site.eb(easyconfig, "--rebuild")
    easyconfig = site.easyconfig(TEXT + requirements("greeting"))
    site.eb(easyconfig, "--rebuild", **wheel_settings(wheels))
    result = site.eb(easyconfig, "--rebuild", **wheel_settings(wheels))
    assert beside(site) == []
    assert "changed by hand" not in result.stdout


def test_keeping_can_be_switched_off(site, wheels):
    """S002-44: keep_user_software = False is EasyBuild's behaviour."""
    easyconfig = site.easyconfig(TEXT + "keep_user_software = False\n")
    site.eb(easyconfig)
    add_by_hand(site, wheels)
    site.eb(easyconfig, "--rebuild")
    assert beside(site) == []
    assert not (site.prefix / "eb/software/Example/1.0/user-software.squashfs").exists()


def test_what_a_killed_attempt_left_is_no_obstacle(site, wheels):
    """After a kill: a half-made installation goes; of one that had been replaced, what a user changed is kept."""
    site.eb(site.easyconfig(TEXT))
    root = site.prefix / "eb/software/Example/1.0"
    for name, complete in ((".replace", False), (".replaced", True)):
        left = root.with_name("1.0" + name)
        subprocess.run(["cp", "-a", root, left], check=True)
        (left / "user-software/mine").write_text("mine")
        if not complete:
            (left / "share/ebsif/lock.json").unlink()
    result = site.eb(site.easyconfig(TEXT), "--rebuild")
    (name,) = beside(site)
    assert name in result.stdout
    assert (root.parent / name / "mine").read_text() == "mine"

    # killed between two renames
    root.rename(root.with_name("1.0.replaced"))
    assert site.eb(site.easyconfig(TEXT + requirements("no-such-package")), "--rebuild", check=False).returncode != 0
    site.eb(site.easyconfig(TEXT), "--rebuild")
    site.bash("module load Example/1.0 && singularity exec $SIF true")


def test_user_software_that_is_shared_by_a_group(tmp_path, base_image, wheels):
    """S002-45: a project group shares the installation: modes in directory and SquashFS allow the group."""
    # Environment Modules: Lmod shows root no modules that others can't read
    site = Site(tmp_path / "site", TOOLS["EnvironmentModules-Tcl"](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    options = ["--group-writable-installdir", "--set-gid-bit"]
    command = ["eb", *site.eb_options, *options]
    command += [site.easyconfig(TEXT, suffix="-dir"), site.easyconfig(TEXT + requirements("greeting"), suffix="-file")]
    site.run(["bash", "-c", 'umask 0027; exec "$@"', "bash", *command], **wheel_settings(wheels))
    for suffix in ("-dir", "-file"):
        root = site.prefix / f"eb/software/Example/1.0{suffix}"
        script = f"umask 0027; module load Example/1.0{suffix}; test -e $CONTAINERROOT/user-software || unmake-squashfs"
        site.bash(script)
        for path in (root / "user-software").rglob("*"):
            if not path.is_symlink():
                mode = path.stat().st_mode
                wanted = 0o2070 if path.is_dir() else 0o060
                assert mode & wanted == wanted, (path, oct(mode))
    site.bash("umask 0077; module load Example/1.0-dir; touch $CONTAINERROOT/user-software/late; make-squashfs")
    squashfs = site.prefix / "eb/software/Example/1.0-dir/user-software.squashfs"
    listing = subprocess.run(["unsquashfs", "-ll", squashfs], capture_output=True, text=True, check=True).stdout
    lines = [line for line in listing.splitlines() if "squashfs-root" in line and not line.startswith("l")]
    assert lines
    assert not [line for line in lines if line[4:6] != "rw"]



def test_all_of_it_belongs_to_the_group(tmp_path, base_image, wheels):
    """G-12 (lumi B3): a set-gid directory of a project: user software is set-gid, and the group's, with umask 077."""
    # Environment Modules: Lmod shows root no modules that others can't read
    site = example_site(tmp_path, base_image, "EnvironmentModules-Tcl")
    software = site.prefix / "eb/software"
    software.mkdir(parents=True)
    os.chown(software, -1, 1)
    software.chmod(0o2775)
    command = ["eb", *site.eb_options, "--group-writable-installdir", site.easyconfig(TEXT, suffix="-dir"),
               site.easyconfig(TEXT + requirements("greeting"), suffix="-file")]
    site.run(["bash", "-c", 'umask 077; exec "$@"', "bash", *command], **wheel_settings(wheels))
    for path in (software / "Example").rglob("*"):
        # EasyBuild's own log and copies come last
        if not path.is_symlink() and "easybuild" not in path.parts:
            status = path.lstat()
            wanted = 0o2070 if path.is_dir() else 0o060
            assert status.st_mode & wanted == wanted, (path, oct(status.st_mode))
            assert status.st_gid == 1, path
