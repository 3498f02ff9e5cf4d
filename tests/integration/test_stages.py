"""Stages with the real pip in the real container: order, isolation, protection, checks, diagnosis."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import Installed, wheel_settings
from packaging.version import Version
from support import CHECKOUT, make_wheel

TEXT = Installed.TEXT

# a build backend that needs two packages while it builds: one of an earlier stage, and packaging, which the image has
BACKEND = """
import zipfile
import packaging
import {needs}

def build_wheel(folder, *_):
    name = "{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("{name}.py", "built_with = {needs!r}")
        wheel.writestr("{name}-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        wheel.writestr("{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n")
        wheel.writestr("{name}-1.0.dist-info/RECORD", "")
    return name
"""


def project_files(name, needs):
    """The files of a source distribution that imports `needs` while it's built."""
    return {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(name=name, needs=needs),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }


def make_sdist(folder, name, needs):
    """Write such a source distribution into a folder."""
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for file, text in project_files(name, needs).items():
            info = tarfile.TarInfo(f"{name}-1.0/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


@pytest.fixture
def packages(tmp_path):
    """A folder with packages for one test."""
    folder = tmp_path / "packages"
    folder.mkdir()
    make_wheel(folder, "faketorch")
    make_wheel(folder, "plain")
    make_sdist(folder, "kernels", needs="faketorch")
    return folder


@pytest.fixture
def install(site, packages):
    """A function that installs stages and returns the CompletedProcess of eb."""

    def run(stages, check=True, extra="", **environment):
        text = TEXT + extra + f"requirements = {stages!r}\n"
        return site.eb(site.easyconfig(text), check=check, **wheel_settings(packages), **environment)

    return run


def lock(site):
    """The record of the installation."""
    return json.loads((site.prefix / "eb/software/Example/1.0/share/ebsif/lock.json").read_text())


def message(result):
    """What eb printed, in one line."""
    return " ".join((result.stdout + result.stderr).split())


def failed(result, site):
    """Check that eb failed in its build step and left no module; return what it printed."""
    assert result.returncode == 16
    assert not list(site.modules.rglob("1.0.lua"))
    return message(result)


def test_a_later_stage_builds_against_an_earlier_one(site, install):
    """S000-01, S000-21, S003-06: no isolation, in a call of its own, after the earlier stage; the image is visible."""
    install([
        {"name": "first", "requirements": "faketorch"},
        {"name": "second", "requirements": "kernels", "no_build_isolation": True},
    ])
    assert {"faketorch==1.0", "kernels==1.0"} <= set(lock(site)["venv_packages"])
    log = next((site.prefix / "eb/software/Example/1.0/easybuild").glob("*.log")).read_text()
    calls = [line for line in log.splitlines() if "-m pip install" in line and "--no-build-isolation" in line]
    assert calls
    assert not [line for line in calls if "/stages/first/" in line]


def test_a_package_missing_at_build_time_is_explained(site, install):
    """S000-03: "No module named X" in build requirements: the error names stage, package and remedy."""
    text = failed(install([{"name": "kernel stage", "requirements": "kernels"}], check=False), site)
    assert "pip failed in stage 'kernel stage' (while it was busy with" in text
    assert "kernels" in text
    assert "'no_build_isolation': True" in text


def test_a_failing_stage_stops_the_later_ones(site, install):
    """S000-01: a stage starts only after every earlier one ended well; pip's own status decides (S004-19)."""
    result = install([
        {"name": "first", "requirements": "no-such-package"},
        {"name": "second", "requirements": "plain", "pre": ["echo second stage started"]},
    ], check=False)
    assert "pip failed in stage 'first'" in failed(result, site)
    assert "second" not in result.stdout


def test_variables_exist_in_their_stage_only(site, install):
    """S000-05: variables of a stage exist in the container for that stage only, for commands and for pip."""
    install([
        {"name": "one", "env": {"MAX_JOBS": "4 $HOME `id`"}, "verify": ['test "$MAX_JOBS" = \'4 $HOME `id`\'']},
        {"name": "two", "verify": ['test -z "${MAX_JOBS+set}"']},
    ])


def test_a_green_pip_is_not_enough(site, install):
    """S000-04: a package installs but does not do what is asked: the stage's verify fails the installation."""
    stages = [{"name": "ops", "requirements": "plain", "verify": ["python -c 'import plain; plain.missing_op'"]}]
    text = failed(install(stages, check=False), site)
    assert "Stage 'ops': the command of 'verify' failed with exit status 1" in text
    assert "missing_op" in text


def test_commands_after_pip_end_up_in_the_squashfs(site, install):
    """S000-13: commands run in the container after pip and before squashing; as text for bash and as words."""
    install([{
        "name": "tools", "requirements": "plain", "pre": [["mkdir", "/user-software/a b"]],
        "post": ["echo $VIRTUAL_ENV >'/user-software/a b/file'", ["python", "-c", "import plain"]],
    }])
    output = site.bash("module load Example/1.0 && singularity exec $SIF cat '/user-software/a b/file'").stdout
    assert output.strip() == "/user-software/venv/pytorch"


def test_the_output_of_a_failed_command_is_shown_and_logged(site, install):
    """S000-09: a command fails: the end of its output is in the error, all of it in the log."""
    command = "for i in $(seq 1 60); do echo line number $i >&2; done; exit 3"
    result = install([{"name": "noisy", "pre": [command]}], check=False)
    assert "line number 60" in result.stdout + result.stderr
    assert "line number 1\n" not in result.stdout + result.stderr
    log = result.stdout.split("log file(s) ")[1].split()[0]
    assert "line number 1\n" in Path(log).read_text()


def test_a_package_of_the_image_is_protected(site, install, packages):
    """S001-19: a requirement that would replace a package of the image: which, which stage, who asked, what to do."""
    make_wheel(packages, "numpy", version="99.0")
    make_wheel(packages, "wants", requires=["numpy >= 99"])
    text = failed(install([{"name": "mine", "requirements": "wants"}], check=False), site)
    assert "pip failed in stage 'mine'" in text
    assert "numpy==2" in text
    assert "wants 1.0 depends on numpy>=99" in text
    assert "'allow_replace': ['numpy']" in text


def test_the_same_version_again_is_no_way_around(site, install, packages):
    """S001-19: a copy of the image's package in user software would hide it: refused."""
    version = subprocess.run(
        ["apptainer", "exec", site.sources / "example.sif", "/opt/miniconda3/envs/pytorch/bin/python", "-c",
         "import numpy; print(numpy.__version__)"], capture_output=True, text=True, check=True,
    ).stdout.strip()
    make_wheel(packages, "numpy", version=version)
    stages = [{"name": "again", "requirements": "numpy", "options": ["--ignore-installed"]}]
    text = failed(install(stages, check=False), site)
    assert f"Stage 'again' installed numpy=={version}, which hides the one of the image" in text


def test_a_replacement_that_is_meant(site, install, packages):
    """A stage may replace a package of the image by name; later stages then work with that one."""
    make_wheel(packages, "numpy", version="99.0")
    make_wheel(packages, "wants", requires=["numpy >= 99"])
    install([
        {"name": "new numpy", "requirements": "numpy>=99", "allow_replace": ["NumPy"]},
        {"name": "after", "requirements": "wants"},
    ])
    assert {"numpy==99.0", "wants==1.0"} <= set(lock(site)["venv_packages"])


def test_only_some_packages_are_protected(site, install, packages):
    """protect: a list of names; the others may be replaced."""
    make_wheel(packages, "numpy", version="99.0")
    install([{"name": "new", "requirements": "numpy>=99"}], extra="protect = ['packaging']\n")
    assert "numpy==99.0" in lock(site)["venv_packages"]


def test_what_the_image_has_is_not_installed_again(site, install):
    """S001-20: a requirement that the image satisfies: nothing is built or installed."""
    install([{"name": "nothing new", "requirements": "numpy"}])
    assert not [line for line in lock(site)["venv_packages"] if line.startswith("numpy")]


def test_a_local_wheel_is_reachable_and_in_the_lock(site, install, tmp_path):
    """S003-09: a requirement is a local wheel: reachable in the container, its checksum is in the lock."""
    folder = tmp_path / "my wheels"
    folder.mkdir()
    wheel = make_wheel(folder, "local")
    link = tmp_path / "nice"
    link.symlink_to(folder)
    install([{"name": "local", "requirements": f"local @ file://{link}/{wheel.name}"}])
    assert lock(site)["local_files"] == {
        f"{link}/{wheel.name}": hashlib.sha256(wheel.read_bytes()).hexdigest()
    }
    assert "local==1.0" in lock(site)["venv_packages"]


def test_a_git_repository(site, install, tmp_path):
    """S000-08: a git URL builds if git is in the image; without git the error says so."""
    work = tmp_path / "work"
    work.mkdir()
    for file, text in project_files("fromgit", needs="json").items():
        (work / file).write_text(text)
    bare = tmp_path / "fromgit.git"
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    clone = ["clone", "-q", "--bare", ".", bare]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "x"], clone):
        subprocess.run(["git", *command], cwd=work, check=True)
    stages = [{"name": "git", "requirements": f"git+file://{bare}#egg=fromgit", "no_build_isolation": True}]
    stages[0]["env"] = {"PATH": "/user-software/venv/pytorch/bin"}
    assert "git is missing in the image" in failed(install(stages, check=False), site)
    del stages[0]["env"]
    install(stages)
    assert "fromgit==1.0" in lock(site)["venv_packages"]


def test_pip_is_upgraded_first(site, installed_once):
    """S003-15: upgrade_pip: the pip of the venv is upgraded before the stage."""
    binds = subprocess.run([CHECKOUT / "scripts/install-binds"], capture_output=True, text=True, check=True).stdout
    stages = [{"name": "pip", "upgrade_pip": True}]
    site.eb(site.easyconfig(TEXT + f"requirements = {stages!r}\n"), EBSIF_INSTALL_BIND=binds.strip())
    def pip_version(record):
        (line,) = [line for line in record["venv_packages"] if line.startswith("pip==")]
        return Version(line.split("==")[1])

    path = installed_once.root(installed_once.WRITABLE) / "share/ebsif/lock.json"
    assert pip_version(lock(site)) > pip_version(json.loads(path.read_text()))


def test_stages_are_in_the_lock(site, install):
    """S003-23, S000-18 (in part): every stage as given, pins included, and the packages of image and venv."""
    stages = [{"name": "pinned", "requirements": "plain==1.0\n", "env": {"A": "1"}}]
    install(stages)
    record = lock(site)
    assert record["stages"] == stages
    assert "plain==1.0" in record["venv_packages"]
    assert any(line.startswith("numpy==") for line in record["image_packages"])


def test_the_same_installation_gives_the_same_bytes(site, install, packages):
    """The same easyconfig, image and packages give the same SquashFS file; its bytecode is there, and is used."""
    stages = [
        {"name": "first", "requirements": "faketorch\nplain"},
        {"name": "second", "requirements": "kernels", "no_build_isolation": True},
    ]
    squashfs = site.prefix / "eb/software/Example/1.0/user-software.squashfs"
    digests = []
    for _ in range(2):
        install(stages, extra="keep_user_software = False\n")
        digests.append(hashlib.sha256(squashfs.read_bytes()).hexdigest())
        squashfs.unlink()
        (site.modules / "Example" / "1.0.lua").unlink()
    assert digests[0] == digests[1]

    install(stages)
    code = "import plain, importlib.util as u; print(plain.__cached__, u.cache_from_source(plain.__file__))"
    output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -v -c '{code}' 2>&1").stdout
    assert re.search(r"__pycache__/plain.cpython-\d+.pyc matches /user-software/.*/plain.py", output)
