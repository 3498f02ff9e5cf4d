"""Installations with the real eb in the small example image."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.runtime import InstallContainer, Runtime
from easybuild.easyblocks.generic.container.sitevalues import CACHES
from easybuild.easyblocks.generic.container.usersoftware import UserSoftware
from parts import TOOLS, Installed, example_site, wheel_settings
from support import CONTAINER_FILES, EASYBLOCKS, Site, make_wheel, printed, record_of, write_program

TEXT = Installed.TEXT


def sha256(path):
    """Return the SHA256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def requirements(*lines):
    """Return the parameter `requirements` as a list."""
    return f"requirements = {list(lines)!r}\n"


def log_of(root):
    """Return EasyBuild's log of an installation."""
    return next((root / "easybuild").glob("*.log")).read_text()


def test_the_image_is_copied_and_the_original_unchanged(installed_once, base_image):
    """S002-01, S001-07: the SIF is copied to the installation; all additions are in a separate SquashFS file."""
    root = installed_once.root(installed_once.SQUASHED)
    image = root / "example.sif"
    assert image.is_file()
    assert not image.is_symlink()
    assert sha256(image) == sha256(base_image)
    assert (root / "user-software.squashfs").is_file()
    assert not list(root.glob("*.partial"))


def test_a_linked_image_is_followed_and_recorded(installed_once, base_image):
    """S001-01: the source is a symbolic link: its target is copied; resolved path and sha256 are recorded."""
    record = record_of(installed_once.root(installed_once.SQUASHED))["image"]
    assert record["source"] == str(installed_once.site.sources / "example.sif")
    assert record["resolved"] == str(base_image.resolve())
    assert record["sha256"] == sha256(base_image)
    assert record["size"] == base_image.stat().st_size
    # I-07: where it comes from, and who signed it
    assert record["signers"] == [] and "org.label-schema.build-date" in record["labels"]


def test_all_packages_of_the_image_are_recorded(installed_once):
    """I-07: the lock, and the bill of materials made from it, hold the packages of Python and of the system."""
    root = installed_once.root(installed_once.SQUASHED)
    record = record_of(root)
    assert record["system"] == {"distribution": "debian", "release": "12"}
    assert {line.split("==")[0] for line in record["system_packages"]["deb"]} >= {"libc6", "python3.11", "bash"}
    bill = json.loads(installed_once.site.run(["ebsif", "lock", root, "--format", "sbom"]).stdout)
    urls = {component.get("purl", "").split("@")[0] for component in bill["components"]}
    assert {"pkg:deb/debian/libc6", "pkg:pypi/numpy", "pkg:pypi/greeting"} <= urls


def test_an_installation_starts_the_container_rarely(installed_once):
    """
    E-01: each start takes as long as listing the packages, so the venv is made where the image is inspected.

    Where pip has run, packages are listed and bytecode is compiled. A third start tries what was asked for and the
    wrappers (F-10, F-12). Two more are not in the log of the steps: make-squashfs tests how it can compress, and the
    sanity check.
    """
    starts = re.findall(r"exec --home .*", log_of(installed_once.root(installed_once.SQUASHED)))
    assert len(starts) == 3, "\n".join(starts)


def test_an_installation_has_few_files(installed_once):
    """There are at most 60 files besides image and user software; the record has the version of ebsif."""
    root = installed_once.root(installed_once.SQUASHED)
    names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()]
    counted = [name for name in names if not name.startswith("user-software") and not name.endswith(".sif")]
    assert len(counted) <= 60, sorted(counted)
    assert record_of(root)["versions"]["ebsif"] == version("ebsif")


def test_requirements_are_installed_squashed_and_the_directory_is_gone(installed_once):
    """S002-46: with `requirements`, pip install, packing and removal of the directory happen at installation."""
    root = installed_once.root(installed_once.SQUASHED)
    assert not (root / "user-software").exists()
    listed = printed(["unsquashfs", "-l", root / "user-software.squashfs"])
    assert "/venv/pytorch/lib/python3.11/site-packages/greeting.py" in listed
    assert "numpy/__init__.py" not in listed  # the image's is used


def test_without_requirements_there_is_a_directory(installed_once):
    """The module without requirements has a writable user-software with the venv."""
    root = installed_once.root(installed_once.WRITABLE)
    assert (root / "user-software" / "venv" / "pytorch" / "pyvenv.cfg").is_file()
    assert not (root / "user-software.squashfs").exists()


def test_pip_is_the_one_of_the_venv(installed_once):
    """
    S000-14: pip is `python -m pip` of the venv, after a check of where it installs.

    The pip in use is the image's, not a copy, and so no package of the venv.
    """
    root = installed_once.root(installed_once.SQUASHED)
    log = log_of(root)
    install = log.index("/user-software/venv/pytorch/bin/python -m pip install")
    assert "'purelib': '/user-software/venv/pytorch/lib/python3.11/site-packages'" in log[:install]
    record = record_of(root)
    pip = f"pip=={record['versions']['pip']}"
    assert pip in record["image_packages"] and pip not in record["venv_packages"]
    said = installed_once.load(installed_once.SQUASHED, "singularity exec $SIF sh -c 'pip list; pip3 --version'").stdout
    assert "greeting" in said and "from /opt/" in said


@pytest.mark.nightly
def test_an_image_with_a_broken_pip(site, wheels):
    """If the image's pip is incomplete, ensurepip's is used, and works."""
    text = TEXT + "masked_paths = ['/opt/miniconda3/envs/pytorch/lib/python3.*/site-packages/pip-*.dist-info/RECORD']\n"
    site.eb(site.easyconfig(text + "requirements = ['greeting']\n"), **wheel_settings(wheels))
    record = site.record()
    own, image = ([pin for pin in record[f"{name}_packages"] if pin.startswith("pip==")] for name in ("venv", "image"))
    assert own and own != image
    site.bash("module load Example/1.0 && singularity exec $SIF python -c 'import greeting, numpy'")


def test_requirements_reach_pip_byte_for_byte(site, wheels, tmp_path):
    """
    S000-06: the requirements file contains options, a direct URL, quotes, $, backticks and % byte for byte.

    T-06: on Lustre (`lfs` and statfs(2) are stand-ins), image and user software get stripes before they are written.
    """
    stand_ins = {
        "lfs": f'echo "$*" >>"{tmp_path}/lfs.log"',
        "stat": f'[ "$1 $2" = "-f -c" ] && echo bd00bd0 || exec {shutil.which("stat")} "$@"',
    }
    for name, text in stand_ins.items():
        write_program(tmp_path / name, f"#!/bin/sh\n{text}\n")
    lines = [
        f"# `touch {site.work}/canary` $(touch {site.work}/canary) $HOME %s 100% \"quoted\" 'single' \\ EOF",
        "# EOF",
        '# apex --config-settings "--build-option=--cpp_ext" --global-option="--cuda_ext"',
        f"greeting @ file://{wheels}/greeting-1.0-py3-none-any.whl",
        "hello >= 1.0 ; python_version > '3.0'  # ${HOME}",
    ]
    said = site.eb(
        site.easyconfig(TEXT + "lustre_striping = ['-c', '2']\n" + requirements(*lines)),
        "--disable-cleanup-builddir",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        **wheel_settings(wheels),
    ).stdout
    # the trace of eb shows what runs, but not the programs around it, and not every file of ours
    assert "running command:\n\tpip install --no-compile -r requirements.txt -c constraints.txt" in said
    assert "apptainer" not in said and "status=" not in said
    assert len(re.findall("^  >> .*", said.partition("== sanity checking")[2].partition("\n==")[0], re.MULTILINE)) <= 7
    striped = [line.rpartition("/") for line in (tmp_path / "lfs.log").read_text().splitlines()]
    assert [name for _, _, name in striped] == ["example.sif.partial", "new"]
    assert all(words.startswith("setstripe -c 2 /") for words, _, _ in striped)
    given = next(site.prefix.glob("eb/build/**/requirements.txt")).read_bytes()
    assert given == "".join(line + "\n" for line in lines).encode()
    assert not (site.work / "canary").exists()
    assert site.record()["stages"][0]["requirements"].encode() == given


def test_the_easyblock_makes_the_binds_for_pip(site, tmp_path):
    """S002-48, S002-16: the easyblock binds everything while pip runs; a bind that is removed later fails the load."""
    folder = tmp_path / "bound,with:odd char$acters"
    folder.mkdir()
    make_wheel(folder, "frombind")
    bind = str(folder).replace(",", "\\,").replace(":", "\\:") + ":/bound"
    text = TEXT + f"binds = [{bind!r}, '?/does/not/exist', '?/dev/null:/opt/null']\n"
    text += requirements("--no-index", "--find-links /bound", "frombind")
    site.eb(site.easyconfig(text), PIP_FIND_LINKS="")
    output = site.bash("module load Example/1.0 && singularity exec $SIF ls /bound").stdout
    assert output.split() == ["frombind-1.0-py3-none-any.whl"]
    # I-04: with what was there, `ebsif doctor --installed` knows what is gone
    assert site.record()["optional_binds"] == ["/dev/null"]
    folder.rename(tmp_path / "elsewhere")
    result = site.bash("module load Example/1.0; echo ${SIF:-none}", check=False)
    assert f"This container needs {folder}, which doesn't exist on this node" in " ".join(result.stderr.split())
    assert result.stdout == "none\n"


def test_a_failing_command_in_the_container_fails_eb(site, wheels):
    """S002-49: EasyBuild fails at the step of the command, with the command's output."""
    result = site.eb(site.easyconfig(TEXT + requirements("no-such-package")), check=False, **wheel_settings(wheels))
    assert result.returncode == 16  # the build step, see easybuild.tools.build_log.EasyBuildExit
    assert "No matching distribution found for no-such-package" in result.stdout + result.stderr
    assert not list(site.modules.rglob("1.0.lua"))
    # what fills a home directory is gone, the output of pip stays
    folder = site.prefix / "eb/build/Example/1.0/system-system"
    assert {path.name for path in folder.iterdir()} <= {"stages", "image-databases"}
    assert "No matching distribution" in next(folder.glob("stages/*/pip.log")).read_text()
    said = " ".join(result.stdout.split())
    assert f"the user software of this attempt is removed; what pip has printed is in {folder}/stages" in said


def test_a_failed_squash_keeps_the_directory(site, wheels, tmp_path):
    """S002-50: the directory is kept, and the installation fails."""
    fake = tmp_path / "fake"
    fake.mkdir()
    write_program(fake / "mksquashfs", "#!/bin/sh\necho disk full >&2\nexit 1\n")
    environment = dict(wheel_settings(wheels), PATH=f"{fake}:{site.environment['PATH']}")
    result = site.eb(site.easyconfig(TEXT + requirements("greeting")), check=False, **environment)
    # the install step
    assert result.returncode == 18 and "mksquashfs failed" in result.stdout + result.stderr
    (kept,) = site.prefix.glob("eb/build/**/user-software/venv/pytorch/lib/python3.11/site-packages/greeting.py")
    assert f"it stays in {kept.parents[5]} until you remove it" in " ".join(result.stdout.split())


def test_nothing_of_the_installing_user(site, wheels, tmp_path):
    """
    The user's dot files and settings are neither changed nor used.

    S003-22, S000-19 (in part): installation and use change no dot file and write nothing to ~/.local. G-03: binds,
    injected variables, and the user's settings of Python and pip don't affect the installation. S002-47: requirements
    need no newline at their end.
    """
    for name in (".bashrc", ".profile", ".bash_profile", ".condarc"):
        (site.home / name).write_text(f"# {name} of the user\n")
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')\n")
    site.eb(
        site.easyconfig(TEXT + 'requirements = """greeting"""\n'),
        **wheel_settings(wheels),
        APPTAINER_BIND="/does/not/exist",
        SINGULARITY_BINDPATH="/does/not/exist",
        APPTAINERENV_PREPEND_PATH="/nowhere",
        PYTHONPATH=tmp_path,
        PYTHONUSERBASE=tmp_path / "base",
        VIRTUAL_ENV="/nowhere",
        CONDA_PREFIX="/nowhere",
        PIP_CONSTRAINT="/nowhere",
        UV_OVERRIDE="/nowhere",
    )
    assert {"greeting==1.0", "hello==1.0"} <= set(site.record()["venv_packages"])
    # S003-14: PYTHONPATH and PYTHONUSERBASE of the host
    script = "module load Example/1.0 && start-shell -c 'python -c \"import numpy, greeting\"' && list-packages"
    assert "greeting" in site.bash(script, PYTHONPATH=tmp_path, PYTHONUSERBASE=tmp_path / "base").stdout
    assert not (tmp_path / "base").exists()
    for name in (".bashrc", ".profile", ".bash_profile", ".condarc"):
        assert (site.home / name).read_text() == f"# {name} of the user\n"
    allowed = {".bashrc", ".profile", ".bash_profile", ".condarc", ".cache", ".apptainer", ".singularity"}
    assert {path.name for path in site.home.iterdir()} <= allowed


# --- options of eb


def test_dry_run(site, wheels):
    """`eb -x` lists the steps and installs nothing."""
    (site.sources / "example.sif").unlink()
    (site.sources / "example.sif").write_text("not read in a dry run")
    easyconfig = site.easyconfig(TEXT + f"checksums = ['{'0' * 64}']\n" + requirements("greeting"))
    output = site.eb(easyconfig, "-x", **wheel_settings(wheels)).stdout
    assert "Making the venv /user-software/venv/pytorch" in output
    assert "greeting" in output
    assert not list(site.prefix.glob("eb/software/Example"))


def spider(site, package):
    """Return whether `module spider` finds a package in the module."""
    said = site.bash(f"module spider {package} 2>&1 || true").stdout
    return f"{package}/" in said and "Example/1.0" in said


def test_module_only_and_sanity_check_only(site):
    """
    `--module-only` writes the same module again, `--sanity-check-only` checks the installation, `--rebuild` repairs it.

    S002-04, S002-02: without the installed SIF, --module-only and its sanity check use the central copy.
    E-08: it lists packages that were added by hand. T-12: `module spider` reads neither settings nor record.
    """
    easyconfig = site.easyconfig(
        TEXT + f"image_dirs = ['/does/not/exist', '{site.sources}']\nlisted_packages = 'all'\n"
    )
    site.eb(easyconfig)
    root, module = site.root(), site.modules / "Example" / "1.0.lua"
    text = module.read_text()
    module.unlink()
    site.eb(easyconfig, "--module-only")
    assert module.read_text() == text
    # also the settings that a module can't be loaded without
    settings = root / "share/ebsif/module.conf"
    settings.unlink()
    site.eb(easyconfig, "--module-only", "--force")
    # what scripts read follows the parameters, too
    contents, original = settings.read_text(), easyconfig.read_text()
    assert "CONDA_DEFAULT_ENV=pytorch" in contents
    nowhere = dict.fromkeys(CACHES)
    easyconfig.write_text(f"{original}container_env = {{'CONDA_DEFAULT_ENV': 'mine'}}\ncache_variables = {nowhere}\n")
    site.eb(easyconfig, "--module-only", "--force")
    assert "start CONDA_DEFAULT_ENV" not in settings.read_text()
    assert "\ncache " not in settings.read_text()
    easyconfig.write_text(original)
    site.eb(easyconfig, "--module-only", "--force")
    assert (module.read_text(), settings.read_text()) == (text, contents)
    site.eb(easyconfig, "--sanity-check-only")

    record = root / "share/ebsif/lock.json"
    for path in (record, settings):
        path.rename(root / path.name)
    assert spider(site, "numpy") and spider(site, "pip")
    for path in (record, settings):
        (root / path.name).rename(path)
    (folder,) = root.glob("user-software/venv/*/lib/python3.*/site-packages")
    (folder / "byhand-1.0.dist-info").mkdir()
    (folder / "byhand-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: ByHand\nVersion: 1.0\n")
    assert "ByHand==1.0" in UserSoftware(str(root)).pins()
    site.bash("module load Example/1.0 && make-squashfs && rm -r $CONTAINERROOT/user-software")
    (root / "example.sif").unlink()
    site.eb(next(root.glob("easybuild/*.eb")), "--module-only", "--rebuild")
    listed = [re.search(r'extensions\("(.*)"\)', one).group(1).split(",") for one in (text, module.read_text())]
    assert sorted(listed[1]) == sorted([*listed[0], "ByHand/1.0"])
    output = site.bash("module load Example/1.0 && echo $SIF $SIFEXAMPLE && singularity exec $SIF true").stdout
    assert output.split() == [f"{site.sources}/example.sif"] * 2

    (root / "bin/start-shell").unlink()
    failed = site.eb(easyconfig, "--sanity-check-only", check=False, one_stream=True)
    assert failed.returncode != 0
    assert f"The installation {root} lacks bin/start-shell: it is damaged, or" in " ".join(failed.stdout.split())
    (root / "bin/start-shell").write_text("damaged")
    site.eb(easyconfig, "--rebuild")
    assert (root / "bin/start-shell").read_text() == (CONTAINER_FILES / "bin/start-shell").read_text()


@pytest.mark.parametrize("tool", ["Lmod-Lua", pytest.param("EnvironmentModules-Tcl", marks=pytest.mark.nightly)])
def test_a_module_that_can_not_be_written_again(tmp_path, small_image, tool):
    """If `eb --module-only` fails, the module works as before; the next one that succeeds is complete."""
    site = example_site(tmp_path, small_image("busybox"), tool)
    text = "easyblock = 'ContainerInstall'\nsources = ['example.sif']\ninit = 'none'\n"
    site.eb(site.easyconfig(text))
    root = site.root()

    def files():
        # no copy stays, either, but EasyBuild's own
        folders = (root / "share/ebsif", site.modules / "Example")
        return {
            path: (path.read_bytes(), path.stat().st_mode)
            for folder in folders
            for path in folder.iterdir()
            if path.is_file() and ".bak_" not in path.name
        }

    before = files()
    for wrong in ("masked_paths = ['/etc/os-release']\n", "binds = ['/nowhere/x:/mnt']\nhidden = True\n"):
        said = site.eb(site.easyconfig(text + wrong), "--module-only", "--rebuild", check=False)
        assert said.returncode and "anity check failed" in said.stdout + said.stderr
        assert files() == before
    assert site.bash("module load Example/1.0 && start-shell -c 'echo works'").stdout == "works\n"
    # as a killed eb leaves it
    settings = root / "share/ebsif/module.conf"
    shutil.copy2(settings, settings.with_name(".module.conf.replaced"))
    settings.write_text("")
    site.eb(site.easyconfig(f"{text}container_env = {{'MINE': '1'}}\n"), "--module-only", "--rebuild")
    assert "MINE" in settings.read_text()
    assert files().keys() == before.keys()


@pytest.mark.usefixtures("configuration")
def test_the_home_directory_below_a_path_with_a_comma(small_image, tmp_path):
    """S002-48: commands of the installation write to their home directory."""
    command = ["sh", "-c", 'touch "$HOME/here"']
    InstallContainer(Runtime(), str(small_image("busybox")), str(tmp_path / "a,b")).run(command)
    assert (tmp_path / "a,b/home/here").exists()


@pytest.mark.parametrize("option", ["--rebuild", "--module-only"])
def test_the_version_that_was_an_alias(site, small_image, option):
    """L-11: an alias ends with the easyconfig that had it: else eb takes the version to be installed, and skips it."""
    (site.sources / "x.sif").symlink_to(small_image("busybox"))
    text = "easyblock = 'ContainerInstall'\nsources = ['x.sif']\ninit = 'none'\n"
    site.eb(site.easyconfig(f"{text}aliases = ['1.0-old', 'latest']\n", suffix="-new"))
    site.eb(site.easyconfig(f"{text}aliases = ['latest']\n", suffix="-new"), option, "--force")
    site.eb(site.easyconfig(text, suffix="-old"))
    for name, expected in (("1.0-old", "1.0-old"), ("latest", "1.0-new")):
        loaded = site.bash(f"module load Example/{name} && echo $CONTAINERROOT").stdout.strip()
        assert Path(loaded).name == expected


def test_whose_an_alias_is(site, small_image):
    """N-05: eb refuses that of another module, unless it replaces that; the newest of a name has it."""
    (site.sources / "x.sif").symlink_to(small_image("busybox"))
    text = "easyblock = 'ContainerInstall'\nsources = ['x.sif']\ninit = 'none'\naliases = {}\n"

    def loaded(alias):
        return Path(site.bash(f"module load Example/{alias} && echo $CONTAINERROOT").stdout.strip()).name

    mine = site.easyconfig(text.format(["1.0-mine"]), suffix="-mine-20261129")
    site.eb(site.easyconfig(text.format(["demo"]), suffix="-a"), mine)
    refused = site.eb(site.easyconfig(text.format(["demo"]), suffix="-b"), check=False)
    assert refused.returncode
    expected = "Example/demo is a name of Example/1.0-a, which is installed: remove 'demo' from 'aliases'"
    assert expected in " ".join((refused.stdout + refused.stderr).split())
    assert not site.root("Example/1.0-b").exists()
    assert loaded("demo") == "1.0-a"
    site.eb(site.easyconfig(text.format(["1.0-mine"]), suffix="-mine-20261128"))
    assert loaded("1.0-mine") == "1.0-mine-20261129"
    site.eb(site.easyconfig(text.format(["demo", "1.0-a"]), suffix="-b"))
    assert loaded("demo") == "1.0-b"


def test_others_may_use_what_is_installed_with_any_umask(site, small_image):
    """
    G-05, I-01: modules are as readable as installations; the umask decides who may enter a new prefix.

    Others can't write to a module, either.
    """
    (site.sources / "x.sif").symlink_to(small_image("busybox"))
    easyconfig = site.easyconfig(
        "easyblock = 'ContainerInstall'\nsources = ['x.sif']\ninit = 'none'\naliases = ['1']\n"
    )
    for path in (site.modules, site.prefix / "eb/software"):
        path.mkdir(parents=True)

    def install(*options, umask="077"):
        command = ["eb", *site.eb_options, *options, easyconfig]
        return site.run(["bash", "-c", f'umask {umask}; exec "$@"', "bash", *command])

    def modes(prefix, *names):
        return [oct((site.prefix / prefix / name).stat().st_mode & 0o777)[2:] for name in names]

    both = ["software/Example", "software/Example/1.0", "modules/all/Example", "modules/all/Example/1.0.lua"]
    install()
    assert modes("eb", *both, "modules/all/Example/.modulerc.lua") == ["755", "755", "755", "644", "644"]
    (site.modules / "Example/1.0.lua").unlink()
    install("--module-only")
    assert modes("eb", *both) == ["755", "755", "755", "644"]
    (site.modules / "Example/1.0.lua").unlink()
    install("--module-only", umask="000")
    assert modes("eb", both[3], "modules/all/Example/.modulerc.lua") == ["664", "644"]
    (site.modules / "Example/1.0.lua").chmod(0o644)
    # not 077: root's Lmod ignores modules that others can't read
    install("--rebuild", "--umask=072")
    # EasyBuild writes into the module file that is there, which keeps its mode
    assert modes("eb", *both) == ["755", "705", "755", "644"]
    install(f"--prefix={site.prefix}/new")
    assert modes("new", "software", "modules/all") == ["700", "700"]


def test_checksums_of_an_image_without_a_venv(site, base_image):
    """
    S001-03: a wrong checksum stops the installation; `--inject-checksums` writes the right one.

    With ContainerInstall: image, scripts and module, no user software.
    """
    text = "easyblock = 'ContainerInstall'\nsources = ['example.sif']\n"
    result = site.eb(site.easyconfig(text + f"checksums = ['{'0' * 64}']\n"), check=False)
    assert result.returncode != 0 and "hecksum" in result.stdout + result.stderr
    root = site.root()
    assert not list(root.glob("*"))
    assert not list(site.modules.rglob("1.0.lua"))

    easyconfig = site.easyconfig(text)
    site.eb(easyconfig, "--inject-checksums")
    assert sha256(base_image) in easyconfig.read_text()
    site.eb(easyconfig)
    names = {"start-shell", "with-module", "list-packages", "make-venv", "extend-venv-activate"}
    assert {path.name for path in (root / "bin").iterdir()} == names
    output = site.bash("module load Example/1.0 && start-shell -c 'echo $APPTAINER_NAME; type -P python3'").stdout
    assert output.split() == ["example.sif", "/usr/bin/python3"]


def test_from_a_plain_checkout(site, tmp_path):
    """With --include-easyblocks the easyblocks work whether the project is installed with pip or not."""
    venv = tmp_path / "venv"
    subprocess.run([site.venv / "bin" / "python", "-m", "venv", "--without-pip", venv], check=True)
    # EasyBuild's own files, without those that this project installs beside them
    packages = venv / "lib" / next((venv / "lib").iterdir()).name / "site-packages"
    installed = next((site.venv / "lib").glob("python*/site-packages"))
    copy = ["cp", "-r", *installed.glob("easybuild*"), packages]
    subprocess.run([str(word) for word in copy], check=True)
    generic = packages / "easybuild" / "easyblocks" / "generic"
    for name in ("containerinstall.py", "containervenv.py", "container"):
        subprocess.run(["rm", "-r", generic / name], check=True)
    program = write_program(
        site.work / "eb", f"#!{venv}/bin/python\nfrom easybuild.main import main_with_hooks\nmain_with_hooks()\n"
    )

    easyconfig = site.easyconfig(TEXT)
    command = [program, *site.eb_options, easyconfig]
    without = site.run(command, check=False)
    assert without.returncode != 0 and "ContainerVenv" in without.stdout + without.stderr
    include = f"--include-easyblocks={EASYBLOCKS}/generic/*.py"
    site.run([*command, include])
    assert "ok" in site.bash("module load Example/1.0 && start-shell -c 'echo ok'").stdout

    # the checkout takes precedence over an installed copy, the sub-package included
    copy = ["cp", "-r", *(EASYBLOCKS / "generic").glob("container*"), generic]
    subprocess.run([str(word) for word in copy], check=True)
    copied = [path for path in generic.rglob("container*/**/*.py") if "files" not in path.parts]
    assert generic / "container/spec.py" in copied
    for path in [*copied, *generic.glob("container*.py")]:
        path.write_text("raise RuntimeError('of the installed copy')\n")
    listed = site.run([program, *site.eb_options, "--list-easyblocks=detailed", include]).stdout
    pattern = r"^\|-- (Container\w*)|^\|   \|-- (ContainerVenv)"
    assert re.findall(pattern, listed, re.MULTILINE) == [("ContainerInstall", ""), ("", "ContainerVenv")]
    broken = site.run([program, *site.eb_options, "--list-easyblocks"], check=False)
    assert "of the installed copy" in broken.stdout + broken.stderr


# --- invalid input


def test_what_is_refused(site, base_image):
    """
    The error names parameter, value found and values allowed (tests/unit/test_parameters.py has the values).

    A module needs exactly one image, and an image that can be started.
    """
    (site.sources / "truncated.sif").write_bytes(base_image.read_bytes()[:100_000])
    refused = {
        "two": (TEXT.replace("['example.sif']", "['example.sif', 'other.sif']"), "exactly one image"),
        "truncated": (TEXT.replace("example.sif", "truncated.sif"), "truncated.sif"),
        "missing": (TEXT + "binds = ['/does/not/exist:/x']\n", "Required bind mounts don't exist on this machine"),
    }
    results = site.eb_each({name: text for name, (text, _) in refused.items()})
    for (_, expected), result in zip(refused.values(), results.values()):
        assert result.returncode == 1 and expected in " ".join(result.stdout.split()), result.stdout
    assert not list(site.modules.rglob("1.0.lua"))


# --- other kinds of images


def test_the_easyblocks_do_not_need_ebsif(tmp_path, base_image):
    """G-10: an eb with EasyBuild and the easyblocks only installs."""
    packages = next(Path(sys.prefix).glob("lib/python3*/site-packages"))
    programs, library = tmp_path / "layout/bin", tmp_path / "layout/lib"
    programs.mkdir(parents=True)
    library.mkdir()
    # a Python without either: it has only what PYTHONPATH names, as with modules
    (programs / "python").symlink_to(sys._base_executable)
    eb = (Path(sys.prefix) / "bin/eb").read_text().replace(sys.executable, str(programs / "python"))
    (library / "easybuild").symlink_to(packages / "easybuild")
    for name, text in (("eb", eb), ("ebsif", "#!/bin/sh\nexit 7\n")):
        write_program(programs / name, text)
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), tmp_path / "layout")
    (site.sources / "example.sif").symlink_to(base_image)
    warning = "ROCm 5.1 is too old for the driver"
    easyconfig = site.easyconfig(
        f"easyblock = 'ContainerInstall'\nsources = ['example.sif']\nwarnings = ['{warning}']\n"
    )
    # without the tests' venv
    rest = [folder for folder in site.environment["PATH"].split(":") if folder != f"{sys.prefix}/bin"]
    result = site.eb(easyconfig, PYTHONPATH=library, EB_PYTHON=programs / "python", PATH=":".join(rest))
    root = site.root()
    said = " ".join((result.stdout + result.stderr).split())
    record = record_of(root)
    assert record["image"]["file"] == "example.sif", said
    # I-07: also without user software
    assert "libc6" in {line.split("==")[0] for line in record["system_packages"]["deb"]}
    # S001-17, L-05, tests: the generator's warnings are shown at installation and in the help
    assert f"WARNING: {warning}" in said
    assert warning in site.bash("module load Example/1.0 && ls $SIF && module help Example/1.0 2>&1").stdout
