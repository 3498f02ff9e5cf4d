"""Stages with the real pip in the real container: order, isolation, protection, checks, diagnosis."""

import base64
import hashlib
import http.server
import io
import json
import re
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version
from parts import Installed, example_site, wheel_settings
from support import CHECKOUT, CONTAINER_FILES, make_wheel

TEXT = Installed.TEXT
SECRETS = ["S3cr3tPw1", "S3cr3tPw2", "S3cr3tPw3"]

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
    make_archive(folder / f"{name}-1.0.tar.gz", f"{name}-1.0", project_files(name, needs))


def make_archive(path, top, files):
    """Write texts by file name into an archive, below one directory."""
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{top}/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


def make_packages(folder):
    """Write what most tests install."""
    folder.mkdir()
    make_wheel(folder, "faketorch")
    make_wheel(folder, "plain")
    make_sdist(folder, "kernels", needs="faketorch")
    return folder


@pytest.fixture
def packages(tmp_path):
    """A folder with packages for one test."""
    return make_packages(tmp_path / "packages")


@pytest.fixture
def install(site, packages):
    """A function that installs stages and returns the CompletedProcess of eb."""

    def run(stages, check=True, extra="", **environment):
        text = TEXT + extra + f"requirements = {stages!r}\n"
        return site.eb(site.easyconfig(text), check=check, **{**wheel_settings(packages), **environment})

    return run


def lock(site, suffix=""):
    """The record of an installation."""
    return json.loads((site.prefix / f"eb/software/Example/1.0{suffix}/share/ebsif/lock.json").read_text())


def message(result):
    """What eb printed, in one line."""
    return " ".join((result.stdout + result.stderr).split())


def failed(result, site, suffix=""):
    """Check that eb failed and left no module; return what it printed."""
    assert result.returncode != 0
    assert not list(site.modules.rglob(f"Example/1.0{suffix}.lua"))
    return message(result)


# --- one installation of many stages

CALLERS = dict.fromkeys((
    "CFLAGS", "CPATH", "MAKEFLAGS", "PKG_CONFIG_PATH", "LDFLAGS", "CMAKE_PREFIX_PATH", "RUSTFLAGS", "TMP",
    "MAX_JOBS", "CC", "CXX", "PYTHONPATH", "GIT_DIR", "WHATEVER"), "of-the-caller")
PASSED = {"https_proxy": "proxy:80", "SLURM_JOB_ID": "7", "LICENCE": "port@host", "HIP_VISIBLE_DEVICES": "3",
          "EBSIF_INSTALL_ENV": "LICENCE,ABSENT", "LC_TIME": "C"}
THERE = "import os, sys; sys.exit([name for name in sys.argv[1:] if name in os.environ] or 0)"


class Many:
    """An installation of many stages, for tests that only look at it."""

    def __init__(self, folder, image):
        self.site = example_site(folder, image)
        packages = make_packages(folder / "packages")
        make_wheel(packages, "apex")
        (folder / "my wheels").mkdir()
        self.wheel = make_wheel(folder / "my wheels", "local")
        self.link = folder / "nice"
        self.link.symlink_to(folder / "my wheels")
        self.cache = folder / "not there" / "cache"
        self.stages = [
            {"name": "first", "requirements": "faketorch\n"},
            {"name": "second", "requirements": "kernels\n", "no_build_isolation": True},
            {"name": "one", "env": {"MAX_JOBS": "4 $HOME `id`"}, "verify": ['test "$MAX_JOBS" = \'4 $HOME `id`\'']},
            {"name": "two", "requirements": "plain==1.0\n", "pre": [["mkdir", "/user-software/a b"]],
             "post": ["echo $VIRTUAL_ENV >'/user-software/a b/file'", ["python", "-c", "import plain"]],
             "verify": [["python", "-c", THERE, *CALLERS], *[
                 f'test "${name}" = {value}' for name, value in PASSED.items() if not name.startswith("EBSIF_")]]},
            {"name": "nothing new", "requirements": "numpy\n"},
            {"name": "local", "requirements": f"local @ file://{self.link}/{self.wheel.name}\n"},
            {"name": "kernels", "requirements": "apex\n"},
        ]
        easyconfig = self.site.easyconfig(TEXT + f"requirements = {self.stages!r}\n")
        self.result = self.site.eb(easyconfig, **wheel_settings(packages), **CALLERS, **PASSED,
                                   PIP_CACHE_DIR=self.cache)

    @property
    def root(self):
        """The installation."""
        return self.site.prefix / "eb/software/Example/1.0"


@pytest.fixture(scope="module")
def many(tmp_path_factory, base_image):
    """That installation."""
    return Many(tmp_path_factory.mktemp("many"), base_image)


def test_a_later_stage_builds_against_an_earlier_one(many):
    """S000-01, S000-21, S003-06: no isolation, in a call of its own, after the earlier stage; the image is visible."""
    assert {"faketorch==1.0", "kernels==1.0"} <= set(lock(many.site)["venv_packages"])
    log = next((many.root / "easybuild").glob("*.log")).read_text()
    calls = [line for line in log.splitlines() if "-m pip install" in line and "--no-build-isolation" in line]
    assert calls
    assert not [line for line in calls if "/stages/first/" in line]


def test_variables_exist_in_their_stage_only(many):
    """
    S000-05: variables of a stage exist in the container for that stage only, for commands and for pip.

    defects B12, easybuild D9: those of the caller and of EasyBuild's toolchain do not, unless they are asked for.
    """
    # the commands of 'verify' of these stages have looked, and an installation where one fails is none
    assert [stage["name"] for stage in lock(many.site)["stages"] if "verify" in stage] == ["one", "two"]


def test_commands_after_pip_end_up_in_the_squashfs(many):
    """S000-13: commands run in the container after pip and before squashing; as text for bash and as words."""
    command = "module load Example/1.0 && singularity exec $SIF cat '/user-software/a b/file'"
    assert many.site.bash(command).stdout.strip() == "/user-software/venv/pytorch"


def test_what_the_image_has_is_not_installed_again(many):
    """S001-20: a requirement that the image satisfies: nothing is built or installed."""
    assert not [line for line in lock(many.site)["venv_packages"] if line.startswith("numpy")]


def test_a_local_wheel_is_reachable_and_in_the_lock(many):
    """S003-09: a requirement is a local wheel: reachable in the container, its checksum is in the lock."""
    assert lock(many.site)["local_files"] == {
        f"{many.link}/{many.wheel.name}": hashlib.sha256(many.wheel.read_bytes()).hexdigest()
    }
    assert "local==1.0" in lock(many.site)["venv_packages"]


def test_stages_are_in_the_lock(many):
    """S003-23, S000-18 (in part): every stage as given, pins included, and the packages of image and venv."""
    record = lock(many.site)
    assert record["stages"] == many.stages
    assert "plain==1.0" in record["venv_packages"]
    assert any(line.startswith("numpy==") for line in record["image_packages"])


def test_pip_keeps_its_files_where_the_user_says(many):
    """S003-13: PIP_CACHE_DIR is where pip's cache is; without it, it's in the build directory and never in the home."""
    assert list(many.cache.rglob("kernels-1.0-py3-none-any.whl"))
    assert not (many.site.home / ".cache" / "pip").exists()


def test_what_took_part_is_in_the_lock(many):
    """S003-21, S000-18: versions of module and packages apart, of pip, runtime and ebsif; what pip installed from."""
    record = lock(many.site)
    assert record["module"] == {"name": "Example", "version": "1.0", "versionsuffix": ""}
    assert re.fullmatch(r"\d+\.\d+.*", record["versions"]["pip"])
    assert "version" in record["versions"]["runtime"]
    assert record["versions"]["ebsif"] == (CONTAINER_FILES / "VERSION").read_text().strip()
    assert record["artifacts"]["plain"]["file"] == "plain-1.0-py3-none-any.whl"
    bill = json.loads((many.root / "share/ebsif/sbom.cdx.json").read_text())
    assert "pkg:pypi/plain@1.0" in {component.get("purl") for component in bill["components"]}


def test_findings_are_printed_before_anything_is_installed(many):
    """S000-02: a package that needs torch in an isolated stage: a warning by name, before pip runs."""
    assert "stage 'kernels': apex is built against torch" in message(many.result)


# --- stages that fail


@pytest.fixture(scope="module")
def failing(tmp_path_factory, base_image):
    """A function: what eb printed when stages failed, by name, in one line; all were tried by one eb."""
    folder = tmp_path_factory.mktemp("failing")
    site = example_site(folder, base_image)
    packages = make_packages(folder / "packages")
    version = numpy_version(site)
    make_wheel(packages, "numpy", version="99.0")
    make_wheel(packages, "numpy", version=version)
    make_wheel(packages, "wants", requires=["numpy >= 99"])
    remove_pip = "rm -r $VIRTUAL_ENV/lib/python3.11/site-packages/pip*"
    noise = "(for i in $(seq 1 60); do echo line number $i >&2; done; exit 3) 2>&1 | tee $TMPDIR/log"
    stages = {
        "missing": [{"name": "kernel stage", "requirements": "kernels"}],
        "first": [{"name": "first", "requirements": "no-such-package"},
                  {"name": "second", "requirements": "plain", "pre": ["echo second stage started"]}],
        "pip": [{"requirements": "plain", "pre": [remove_pip]}],
        "verify": [{"name": "ops", "requirements": "plain", "verify": ["python -c 'import plain; plain.missing_op'"]}],
        "noise": [{"name": "noisy", "pre": [noise]}],
        "protected": [{"name": "mine", "requirements": "wants"}],
        "same": [{"name": "again", "requirements": "numpy", "options": ["--ignore-installed"]}],
    }
    texts = {name: TEXT + f"requirements = {value!r}\n" for name, value in stages.items()}
    results = site.eb_each(texts, **wheel_settings(packages))

    def get(name):
        return failed(results[name], site), results[name].stdout

    return get


def numpy_version(site):
    """Return the version of numpy in the image."""
    return subprocess.run(
        ["apptainer", "exec", site.sources / "example.sif", "/opt/miniconda3/envs/pytorch/bin/python", "-c",
         "import numpy; print(numpy.__version__)"], capture_output=True, text=True, check=True,
    ).stdout.strip()


def test_a_package_missing_at_build_time_is_explained(failing):
    """S000-03: "No module named X" in build requirements: the error names stage, package and remedy."""
    text, _ = failing("missing")
    assert "pip failed in stage 'kernel stage' (while processing" in text
    assert "kernels" in text
    assert "'no_build_isolation': True" in text


def test_a_failing_stage_stops_the_later_ones(failing):
    """S000-01: a stage starts only after every earlier one ended well; pip's own status decides (S004-19)."""
    text, output = failing("first")
    assert "pip failed in stage 'first'" in text
    assert "stage 'second'" not in output
    assert "second stage started" not in output


def test_a_stage_without_a_pip_of_its_own(failing):
    """S000-14: the pip of the venv is gone, that of the image would install elsewhere: refused before it runs."""
    assert "The pip of the venv is not in /user-software but here: /opt/" in failing("pip")[0]


def test_a_green_pip_is_not_enough(failing):
    """S000-04: a package installs but does not do what is asked: the stage's verify fails the installation."""
    text, _ = failing("verify")
    assert "Stage 'ops': the command of 'verify' failed with exit status 1" in text
    assert "missing_op" in text


def test_the_output_of_a_failed_command_is_shown_and_logged(failing):
    """S000-09: a command fails: the end of its output is in the error, all of it in the log; in a pipe, too."""
    text, output = failing("noise")
    assert "the command of 'pre' failed with exit status 3" in text
    assert "line number 60" in output
    assert "line number 1\n" not in output
    log = output.split("log file(s) ")[1].split()[0]
    assert "line number 1\n" in Path(log).read_text()


def test_a_package_of_the_image_is_protected(failing):
    """S001-19: a requirement that would replace a package of the image: which, which stage, who asked, what to do."""
    text, _ = failing("protected")
    assert "pip failed in stage 'mine'" in text
    assert "numpy==2" in text
    assert "wants 1.0 depends on numpy>=99" in text
    assert "'allow_replace': ['numpy']" in text


def test_the_same_version_again_is_no_way_around(failing):
    """S001-19: a copy of the image's package in user software would hide it: refused."""
    assert re.search(r"Stage 'again' installed numpy==2[0-9.]+, which hides the one of the image", failing("same")[0])


# --- packages of the image


def test_a_replacement_that_is_meant(site, packages):
    """
    A stage may replace a package of the image by name; later stages, and pip by hand (G-03), work with that one.

    protect: a list of names; the others may be replaced, by hand as well.
    """
    make_wheel(packages, "numpy", version="99.0")
    make_wheel(packages, "wants", requires=["numpy >= 99"])
    meant = [{"name": "new numpy", "requirements": "numpy>=99", "allow_replace": ["NumPy"]},
             {"name": "after", "requirements": "wants"}]
    some = "versionsuffix = '-some'\nprotect = ['packaging']\nrequirements = ['numpy>=99']\n"
    results = site.eb_each({"meant": TEXT + f"requirements = {meant!r}\n", "some": TEXT + some},
                           **wheel_settings(packages))
    assert [result.returncode for result in results.values()] == [0, 0], results
    assert {"numpy==99.0", "wants==1.0"} <= set(lock(site)["venv_packages"])
    assert "numpy" not in kept_by_hand(site)
    assert kept_by_hand(site, "-some") == {"packaging"}
    assert "numpy==99.0" in lock(site, "-some")["venv_packages"]


def kept_by_hand(site, suffix=""):
    """Names of the packages that pip by hand may not replace."""
    path = site.prefix / f"eb/software/Example/1.0{suffix}/runscripts/image-constraints.txt"
    return {line.split("==")[0] for line in path.read_text().splitlines()}


def test_a_git_repository(site, packages, tmp_path):
    """S000-08: a git URL with a submodule builds if git is in the image; without git the error says so."""
    files = project_files("fromgit", needs="json")
    # the build needs what is in the submodule, as that of PyTorch and apex does
    files["pyproject.toml"] = files["pyproject.toml"].replace('["."]', '["part"]')
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    # where the container sees it; pip binds what the requirement names
    part = packages / "part.git"
    bare = tmp_path / "fromgit.git"
    for repository, names in ((part, ["backend.py"]), (bare, ["pyproject.toml", "PKG-INFO"])):
        work = tmp_path / f"work-{repository.name}"
        work.mkdir()
        for file in names:
            (work / file).write_text(files[file])
        submodule = [["submodule", "--quiet", "add", part, "part"]] if repository == bare else []
        clone = ["clone", "-q", "--bare", ".", repository]
        for command in (["init", "-q"], ["add", "."], *submodule, ["commit", "-qm", "x"], clone):
            subprocess.run(["git", *author, *command], cwd=work, check=True)
    stage = {"name": "git", "requirements": f"git+file://{bare}#egg=fromgit", "no_build_isolation": True}
    # git takes submodules from files only if it's told to
    told = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    environments = {"without": {"PATH": "/user-software/venv/pytorch/bin"}, "with": told}
    texts = {name: TEXT + f"versionsuffix = '-{name}'\nrequirements = {[{**stage, 'env': env}]!r}\n"
             for name, env in environments.items()}
    results = site.eb_each(texts, **wheel_settings(packages))
    text = failed(results["without"], site, "-without")
    assert "Stage 'git' has a requirement from a git repository, but git is missing in the image" in text
    assert "-m pip install" not in results["without"].stdout
    assert "fromgit==1.0" in lock(site, "-with")["venv_packages"], results["with"].stdout


def test_pip_is_upgraded_first(site):
    """S003-15: upgrade_pip: the pip of the venv, here an old one on purpose, is upgraded before the stage."""
    binds = subprocess.run([CHECKOUT / "scripts/install-binds"], capture_output=True, text=True, check=True).stdout
    old = {"name": "old", "requirements": "pip==24.0", "allow_replace": ["pip"]}
    stages = [old, {"name": "pip", "upgrade_pip": True}]
    site.eb(site.easyconfig(TEXT + f"requirements = {stages!r}\n"), EBSIF_INSTALL_BIND=binds.strip())

    def pip_version(record):
        (line,) = [line for line in record["venv_packages"] if line.startswith("pip==")]
        return Version(line.split("==")[1])

    assert pip_version(lock(site)) > Version("24.0")


def test_the_same_installation_gives_the_same_bytes(site, packages):
    """The same easyconfig, image and packages give the same SquashFS file; its bytecode is there, and is used."""
    stages = [
        {"name": "first", "requirements": "faketorch\nplain"},
        {"name": "second", "requirements": "kernels", "no_build_isolation": True},
    ]
    suffixes = ("", "-again")
    site.eb(*[site.easyconfig(TEXT + f"requirements = {stages!r}\n", suffix=suffix) for suffix in suffixes],
            **wheel_settings(packages))
    first, second = ((site.prefix / f"eb/software/Example/1.0{suffix}/user-software.squashfs").read_bytes()
                     for suffix in suffixes)
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()

    code = "import plain, pip, importlib.util as u; print(plain.__cached__, u.cache_from_source(plain.__file__))"
    output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -v -c '{code}' 2>&1").stdout
    assert re.search(r"__pycache__/plain.cpython-\d+.pyc matches /user-software/.*/plain.py", output)
    # that of pip came with it from the image
    assert re.search(r"pip/__pycache__/__init__.cpython-\d+.pyc matches /user-software/.*/pip/__init__.py", output)


# --- compiled packages, patches, modules of the host

# the few lines of the C interface of Python 3.11 that a module needs, so that a compiler without headers is enough
EXTENSION = r"""
typedef struct { long refcount; void *type; void *init; long index; void *copy; } Base;
typedef struct { Base base; const char *name; const char *doc; long size; void *methods[5]; } Definition;
extern void *PyModule_Create2(Definition *, int);
extern int PyModule_AddIntConstant(void *, const char *, long);
static Definition definition = {{1}, "compiled", "", -1};
void *PyInit_compiled(void) {
    void *module = PyModule_Create2(&definition, 1013);
    PyModule_AddIntConstant(module, "answer", ANSWER);
    return module;
}
"""

COMPILING_BACKEND = """
import os
import subprocess
import zipfile

def build_wheel(folder, *_):
    command = [os.environ["CC"], "-shared", "-nostdlib", "-DANSWER=" + os.environ["ANSWER"], "-o", "compiled.so"]
    subprocess.run([*command, "compiled.c"], check=True)
    name = "compiled-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.write("compiled.so", "compiled.cpython-311-x86_64-linux-gnu.so")
        wheel.writestr("compiled-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: compiled\\nVersion: 1.0\\n")
        wheel.writestr("compiled-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: false\\n")
        wheel.writestr("compiled-1.0.dist-info/RECORD", "")
    return name
"""


def test_a_compiled_extension(site, packages):
    """S000-05, S003-12: a package is compiled in the container with the compiler and flags of its stage."""
    files = {**project_files("compiled", "json"), "backend.py": COMPILING_BACKEND, "compiled.c": EXTENSION}
    make_archive(packages / "compiled-1.0.tar.gz", "compiled-1.0", files)
    stage = {"name": "extension", "requirements": "compiled", "no_build_isolation": True}
    stages = [{**stage, "env": {"CC": "tcc", "ANSWER": "42"}},
              {"verify": ["python -c 'import compiled; assert compiled.answer == 42'"]}]
    results = site.eb_each({"without": TEXT + f"versionsuffix = '-without'\nrequirements = {[stage]!r}\n",
                            "with": TEXT + f"requirements = {stages!r}\n"}, **wheel_settings(packages))
    text = failed(results["without"], site, "-without")
    assert "pip failed in stage 'extension'" in text or "KeyError: 'CC'" in text
    assert results["with"].returncode == 0, results["with"].stdout
    code = "import compiled; print(compiled.answer, compiled.__file__)"
    output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout.split()
    assert output[0] == "42"
    assert output[1].startswith("/user-software/venv/pytorch/lib")


def patch(old, new):
    """The text of a patch for backend.py of a project, which changes its only line that says what it's built with."""
    return "--- a/marker.txt\n+++ b/marker.txt\n@@ -1 +1 @@\n-" + old + "\n+" + new + "\n"


def make_marked(folder, name):
    """Write a source distribution with a marker, which says what it is."""
    backend = BACKEND.format(name=name, needs="json").replace(
        '"built_with = \'json\'"', '"marker = " + repr(open("marker.txt").read().strip())')
    files = {**project_files(name, "json"), "backend.py": backend, "marker.txt": "original\n"}
    make_archive(folder / f"{name}-1.0.tar.gz", f"{name}-1.0", files)


def test_patches(site, packages, tmp_path):
    """
    S004-12: patches are applied to the source in name order; their checksums are in the lock.

    The requirement is a source tree of this machine: a copy of it is patched. A patch that does not fit stops the
    installation, naming it.
    """
    make_marked(packages, "marked")
    make_marked(tmp_path, "tree")
    subprocess.run(["tar", "-xf", tmp_path / "tree-1.0.tar.gz", "-C", tmp_path], check=True)
    for name, old, new in (("01-first", "original", "first"), ("02-second", "first", "second"),
                           ("02-other", "something else", "second")):
        (site.prefix / f"{name}.patch").write_text(patch(old, new))
    stage = {"requirements": "marked", "no_build_isolation": True, "patches": ["02-second.patch", "01-first.patch"]}
    stages = [stage, {**stage, "requirements": str(tmp_path / "tree-1.0")},
              {"verify": ["python -c 'import tree; assert tree.marker == \"second\"'"]}]
    wrong = {**stage, "patches": ["02-other.patch", "01-first.patch"]}
    results = site.eb_each({"wrong": TEXT + f"versionsuffix = '-wrong'\nrequirements = {[wrong]!r}\n",
                            "right": TEXT + f"requirements = {stages!r}\n"}, **wheel_settings(packages))
    assert "02-other.patch" in failed(results["wrong"], site, "-wrong")
    assert results["right"].returncode == 0, results["right"].stdout
    code = "import marked; print(marked.marker)"
    output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout
    assert output == "second\n"
    assert {Path(path).name for path in lock(site)["local_files"]} == {"01-first.patch", "02-second.patch"}
    assert (tmp_path / "tree-1.0" / "marker.txt").read_text() == "original\n"


def test_modules_of_the_host_are_loaded_for_a_stage(site, packages, tmp_path):
    """S003-11: modules of a stage are loaded for it, with what they add to PATH, and unloaded after; missing: named."""
    programs = tmp_path / "tools"
    programs.mkdir()
    for name in ("host-cc", "python"):
        (programs / name).write_text("#!/bin/sh\necho from the module\n")
        (programs / name).chmod(0o755)
    folder = site.modules / "Tools"
    folder.mkdir(parents=True)
    (folder / "1.0.lua").write_text(
        'setenv("TOOLS_FLAGS", "from the module")\nsetenv("PYTHONHOME", "/nowhere")\n'
        f'prepend_path("PATH", "{programs}")\nprepend_path("LD_LIBRARY_PATH", "{programs}")\n')
    path = "import os, shutil; print(shutil.which('host-cc'), os.environ['LD_LIBRARY_PATH'])"
    stages = [
        {"modules": ["Tools/1.0"], "pre": [
            'test "$TOOLS_FLAGS" = "from the module"', 'test "$(host-cc)" = "from the module"',
            'test "$(command -v python)" = $VIRTUAL_ENV/bin/python',
            f"[[ $LD_LIBRARY_PATH == *:{programs}* ]]",
            f"python -c \"{path}\" | grep '^{programs}/host-cc .*{programs}'"],
         "requirements": "plain"},
        {"pre": ['test -z "${TOOLS_FLAGS+set}"', "! command -v host-cc", f"[[ $LD_LIBRARY_PATH != *{programs}* ]]"]},
    ]
    missing = "versionsuffix = '-x'\nrequirements = [{'modules': ['NoTools/1.0'], 'pre': ['true']}]\n"
    results = site.eb_each({"missing": TEXT + missing, "there": TEXT + f"optional_binds = ['{programs}']\n"
                            f"requirements = {stages!r}\n"}, **wheel_settings(packages), MODULEPATH=site.modules)
    assert "NoTools/1.0" in failed(results["missing"], site, suffix="-x")
    assert results["there"].returncode == 0, results["there"].stdout


# --- what the machine and the index do


@pytest.fixture
def refusing_index():
    """An index that answers 403 to everything."""

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(403)

        def log_message(self, *_):
            """Nothing on the terminal."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def test_an_index_that_refuses(site, install, refusing_index):
    """An index answers 403: the error says that it refuses, and what to check."""
    settings = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "/nowhere", "PIP_INDEX_URL": refusing_index}
    text = failed(install([{"requirements": "nothing"}], check=False, **settings), site)
    assert "the index denies access (HTTP 403)" in text


@pytest.fixture
def closed_index(packages):
    """An index with packages that wants a name and a password; what is asked without gets 401."""
    files = {path.name: path.read_bytes() for path in packages.iterdir()}
    allowed = {base64.b64encode(f"bob:{word}".encode()).decode() for word in SECRETS}

    class Index(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.headers.get("Authorization", "").removeprefix("Basic ") not in allowed:
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic")
                self.end_headers()
                return
            name = self.path.rstrip("/").rsplit("/", 1)[-1]
            links = [f"<a href='/{file}'>{file}</a>" for file in files if file.startswith(f"{name}-")]
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if name in files else "text/html")
            self.end_headers()
            self.wfile.write(files.get(name) or "".join(links).encode())

        def log_message(self, *_):
            """Nothing on the terminal."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_no_credential_is_in_an_installation(site, install, closed_index, tmp_path):
    """G-09, use D11, defects A9: by netrc, by a variable of one's own, by one of pip: it works, and no file has it."""
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login bob password {SECRETS[0]}\n")
    settings = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "/nowhere"}
    anonymous, by_name = f"http://{closed_index}/", f"http://${{MY_USER}}:${{MY_WORD}}@{closed_index}/"
    stages = [{"name": "line", "requirements": ["--index-url " + by_name, "plain"]},
              {"name": "property", "requirements": "kernels", "index_url": by_name, "no_build_isolation": True,
               "pre": ["pip install faketorch"]}]
    own = {"MY_USER": "bob", "MY_WORD": SECRETS[1], "PIP_INDEX_URL": f"http://bob:{SECRETS[2]}@{closed_index}/"}
    printed = message(install(stages, **settings, **own))
    printed += message(install([{"requirements": "plain", "index_url": anonymous}], **settings, NETRC=netrc,
                               extra="versionsuffix = '-netrc'\n"))
    text = failed(install([{"requirements": "plain", "index_url": anonymous.replace("//", f"//bob:{SECRETS[0]}@")}],
                          check=False, extra="versionsuffix = '-written'\n"), site, suffix="-written")
    assert "A credential is written out in the easyconfig: http://bob:****" in text
    assert "plain==1.0" in lock(site)["venv_packages"]
    for path in (site.prefix / "eb").rglob("*"):
        for word in SECRETS:
            assert not path.is_file() or word.encode() not in path.read_bytes(), path
    assert not [word for word in SECRETS if word in printed + text]


def test_a_full_disk(site, packages, tmp_path):
    """No space where user software is made: the error says that the disk is full; nothing is installed."""
    make_wheel(packages, "big", module_text="data = '" + "x" * 40_000_000 + "'\n")
    build = tmp_path / "build"
    build.mkdir()
    eb = ["eb", *site.eb_options, f"--buildpath={build}", site.easyconfig(TEXT + "requirements = ['big']\n")]
    # a small file system in a mount namespace of its own: gone when the command ends
    script = 'mount -t tmpfs -o size=40m none "$0" && exec "$@"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, build, *eb]
    text = failed(site.run(command, check=False, **wheel_settings(packages)), site)
    assert "the disk is full" in text


# --- images that set PYTHONPATH; what is recorded


def test_an_image_that_sets_pythonpath(site, packages, tmp_path):
    """
    The image sets PYTHONPATH: what is there is seen and protected, and an upgrade that is allowed is used.

    defects B2, B13, G-11: packages there whose versions pip can't read, or that have none, are no obstacle.
    """
    folder = tmp_path / "modules"
    folder.mkdir()
    wheel = make_wheel(packages, "shipped")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for odd, version in [("gpg", "Version: 1.16.0-unknown"), ("devscripts", "Version: 2.22.1ubuntu1"), ("none", "")]:
        (folder / f"{odd}.dist-info").mkdir()
        (folder / f"{odd}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {odd}\n{version}\n")
    (folder / "broken-1.0.dist-info").mkdir()
    make_wheel(packages, "shipped", version="2.0")
    make_wheel(packages, "fresh", requires=["shipped"])
    # as the image would: a script among those that the runtime reads when a container starts
    script = tmp_path / "91-environment.sh"
    script.write_text("export PYTHONPATH=/opt/modules\n")
    script.chmod(0o755)
    binds = f"binds = ['{folder}:/opt/modules', '{script}:/.singularity.d/env/91-environment.sh']\n"

    stages = [{"requirements": "shipped>=2\nfresh", "allow_replace": ["shipped"]}]
    results = site.eb_each({"refused": TEXT + binds + "versionsuffix = '-x'\nrequirements = ['shipped>=2']\n",
                            "allowed": TEXT + binds + f"requirements = {stages!r}\n"}, **wheel_settings(packages))
    assert "allow_replace" in failed(results["refused"], site, "-x")
    assert results["allowed"].returncode == 0, results["allowed"].stdout
    record = lock(site)
    assert {"shipped==1.0", "gpg==1.16.0-unknown", "none==unknown"} <= set(record["image_packages"])
    assert {"shipped==2.0", "fresh==1.0"} <= set(record["venv_packages"])
    code = "import shipped, fresh; print(shipped.__version__)"
    for again in (False, True):
        if again:
            site.eb(site.prefix / "allowed.eb", "--module-only", "--force", **wheel_settings(packages))
        output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout
        assert output == "2.0\n"
    # without user software it's what the image says
    (site.prefix / "eb/software/Example/1.0/user-software.squashfs").unlink()
    code = "import shipped; print(shipped.__version__)"
    assert site.bash(f"module load Example/1.0 && singularity exec $SIF python3 -c '{code}'").stdout == "1.0\n"


def test_packages_are_added_later(installed_once):
    """S002-40, S004-15: what is in /user-software is packed and mounted; pip says how to go on."""
    root = installed_once.root(installed_once.SQUASHED)
    for command in ("pip", "python -m pip", "pip3"):
        result = installed_once.load(installed_once.SQUASHED, f"singularity exec $SIF {command} install byhand", False,
                                     **wheel_settings(installed_once.wheels), APPTAINER_BIND=installed_once.wheels)
        assert result.returncode != 0
        assert "Read-only file system" in result.stderr
        assert "hint:   unmake-squashfs       unpacks it, and tells you what to do next\n" in result.stderr
    for command in ("pip list", "pip install --help", "python -c 'import sys; sys.exit(0)'"):
        result = installed_once.load(installed_once.SQUASHED, f"singularity exec $SIF {command}")
        assert "unmake-squashfs" not in result.stderr
    assert not (installed_once.site.home / ".local").exists()
    assert (root / "user-software.squashfs").exists()


def test_nothing_depends_on_the_framework(site):
    """S002-51: another framework is packaged: nothing but data changes."""
    texts, names = [], ("PyTorch", "jax")
    site.eb(*[site.easyconfig(TEXT.replace("venv_name = 'pytorch'\n", ""), name=name) for name in names])
    for name in names:
        text = (site.modules / name / "1.0.lua").read_text().replace("envs/pytorch", "envs/E")
        text = text.replace('CONDA_DEFAULT_ENV", "pytorch"', 'CONDA_DEFAULT_ENV", "E"')
        texts.append(re.sub(name, "NAME", text, flags=re.IGNORECASE))
        output = site.bash(f"module load {name}/1.0 && singularity exec $SIF python -c 'import sys; print(sys.prefix)'")
        assert output.stdout.strip() == f"/user-software/venv/{name.lower()}"
    assert texts[0] == texts[1]
