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
from parts import Installed, wheel_settings
from support import CHECKOUT, EASYBLOCKS, make_wheel

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
        return site.eb(site.easyconfig(text), check=check, **{**wheel_settings(packages), **environment})

    return run


def lock(site):
    """The record of the installation."""
    return json.loads((site.prefix / "eb/software/Example/1.0/share/ebsif/lock.json").read_text())


def message(result):
    """What eb printed, in one line."""
    return " ".join((result.stdout + result.stderr).split())


def failed(result, site, suffix=""):
    """Check that eb failed and left no module; return what it printed."""
    assert result.returncode != 0
    assert not list(site.modules.rglob(f"Example/1.0{suffix}.lua"))
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


def test_a_stage_without_a_pip_of_its_own(site, install):
    """S000-14: the pip of the venv is gone, that of the image would install elsewhere: refused before it runs."""
    stages = [{"requirements": "plain", "pre": ["rm -r $VIRTUAL_ENV/lib/python3.11/site-packages/pip*"]}]
    assert "The pip of the venv is not in /user-software but here: /opt/" in failed(install(stages, check=False), site)


def test_variables_exist_in_their_stage_only(site, install):
    """
    S000-05: variables of a stage exist in the container for that stage only, for commands and for pip.

    defects B12, easybuild D9: those of the caller and of EasyBuild's toolchain do not, unless they are asked for.
    """
    callers = dict.fromkeys((
        "CFLAGS", "CPATH", "MAKEFLAGS", "PKG_CONFIG_PATH", "LDFLAGS", "CMAKE_PREFIX_PATH", "RUSTFLAGS", "TMP",
        "MAX_JOBS", "CC", "CXX", "PYTHONPATH", "GIT_DIR", "WHATEVER"), "of-the-caller")
    passed = {"https_proxy": "proxy:80", "SLURM_JOB_ID": "7", "LICENCE": "port@host", "HIP_VISIBLE_DEVICES": "3",
              "EBSIF_INSTALL_ENV": "LICENCE,ABSENT", "LC_TIME": "C"}
    there = "import os, sys; sys.exit([name for name in sys.argv[1:] if name in os.environ] or 0)"
    install([
        {"name": "one", "env": {"MAX_JOBS": "4 $HOME `id`"}, "verify": ['test "$MAX_JOBS" = \'4 $HOME `id`\'']},
        {"name": "two", "requirements": "plain", "verify": [
            ["python", "-c", there, *callers], *[f'test "${name}" = {value}' for name, value in passed.items()
                                                 if not name.startswith("EBSIF_")]]},
    ], **callers, **passed)


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
    """S000-09: a command fails: the end of its output is in the error, all of it in the log; in a pipe, too."""
    command = "(for i in $(seq 1 60); do echo line number $i >&2; done; exit 3) 2>&1 | tee $TMPDIR/log"
    result = install([{"name": "noisy", "pre": [command]}], check=False)
    assert "the command of 'pre' failed with exit status 3" in message(result)
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
    """A stage may replace a package of the image by name; later stages, and pip by hand (G-03), work with that one."""
    make_wheel(packages, "numpy", version="99.0")
    make_wheel(packages, "wants", requires=["numpy >= 99"])
    install([
        {"name": "new numpy", "requirements": "numpy>=99", "allow_replace": ["NumPy"]},
        {"name": "after", "requirements": "wants"},
    ])
    assert {"numpy==99.0", "wants==1.0"} <= set(lock(site)["venv_packages"])
    assert "numpy" not in kept_by_hand(site)


def kept_by_hand(site):
    """Names of the packages that pip by hand may not replace."""
    path = site.prefix / "eb/software/Example/1.0/runscripts/image-constraints.txt"
    return {line.split("==")[0] for line in path.read_text().splitlines()}


def test_only_some_packages_are_protected(site, install, packages):
    """protect: a list of names; the others may be replaced, by hand as well (G-03)."""
    make_wheel(packages, "numpy", version="99.0")
    install([{"name": "new", "requirements": "numpy>=99"}], extra="protect = ['packaging']\n")
    assert kept_by_hand(site) == {"packaging"}
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


def test_a_git_repository(site, install, packages, tmp_path):
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
    stages = [{"name": "git", "requirements": f"git+file://{bare}#egg=fromgit", "no_build_isolation": True}]
    stages[0]["env"] = {"PATH": "/user-software/venv/pytorch/bin"}
    result = install(stages, check=False)
    text = failed(result, site)
    assert "Stage 'git' has a requirement from a git repository, but git is missing in the image" in text
    assert "-m pip install" not in result.stdout
    # git takes submodules from files only if it's told to
    stages[0]["env"] = {
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    install(stages)
    assert "fromgit==1.0" in lock(site)["venv_packages"]


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


def test_a_compiled_extension(site, install, packages):
    """S000-05, S003-12: a package is compiled in the container with the compiler and flags of its stage."""
    files = {**project_files("compiled", "json"), "backend.py": COMPILING_BACKEND, "compiled.c": EXTENSION}
    make_archive(packages / "compiled-1.0.tar.gz", "compiled-1.0", files)
    stages = [{"name": "extension", "requirements": "compiled", "no_build_isolation": True}]
    text = failed(install(stages, check=False), site)
    assert "pip failed in stage 'extension'" in text or "KeyError: 'CC'" in text
    stages[0]["env"] = {"CC": "tcc", "ANSWER": "42"}
    install([*stages, {"verify": ["python -c 'import compiled; assert compiled.answer == 42'"]}])
    code = "import compiled; print(compiled.answer, compiled.__file__)"
    output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout.split()
    assert output[0] == "42"
    assert output[1].startswith("/user-software/venv/pytorch/lib")


def patch(old, new):
    """The text of a patch for backend.py of a project, which changes its only line that says what it's built with."""
    return "--- a/marker.txt\n+++ b/marker.txt\n@@ -1 +1 @@\n-" + old + "\n+" + new + "\n"


@pytest.fixture
def patched(packages, site):
    """A source distribution with a marker, and two patches for it that fit in the order of their names only."""
    backend = BACKEND.format(name="marked", needs="json").replace(
        '"built_with = \'json\'"', '"marker = " + repr(open("marker.txt").read().strip())')
    files = {**project_files("marked", "json"), "backend.py": backend, "marker.txt": "original\n"}
    make_archive(packages / "marked-1.0.tar.gz", "marked-1.0", files)
    (site.prefix / "01-first.patch").write_text(patch("original", "first"))
    (site.prefix / "02-second.patch").write_text(patch("first", "second"))
    return {"requirements": "marked", "no_build_isolation": True, "patches": ["02-second.patch", "01-first.patch"]}


def test_patches_are_applied_in_name_order(site, install, patched):
    """S004-12: patches are applied to the source in name order; their checksums are in the lock."""
    install([patched])
    code = "import marked; print(marked.marker)"
    output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout
    assert output == "second\n"
    assert {Path(path).name for path in lock(site)["local_files"]} == {"01-first.patch", "02-second.patch"}


def test_a_failing_patch_stops(site, install, patched):
    """S004-12: a patch that does not fit stops the installation, naming it."""
    (site.prefix / "02-second.patch").write_text(patch("something else", "second"))
    assert "02-second.patch" in failed(install([patched], check=False), site)


def test_a_source_tree_is_patched_as_a_copy(site, install, patched, packages, tmp_path):
    """S004-12: the requirement is a source tree of this machine: a copy of it is patched."""
    subprocess.run(["tar", "-xf", packages / "marked-1.0.tar.gz", "-C", tmp_path], check=True)
    patched["requirements"] = str(tmp_path / "marked-1.0")
    install([patched, {"verify": ["python -c 'import marked; assert marked.marker == \"second\"'"]}])
    assert (tmp_path / "marked-1.0" / "marker.txt").read_text() == "original\n"


def test_modules_of_the_host_are_loaded_for_a_stage(site, install, tmp_path):
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
    install([
        {"modules": ["Tools/1.0"], "pre": [
            'test "$TOOLS_FLAGS" = "from the module"', 'test "$(host-cc)" = "from the module"',
            'test "$(command -v python)" = $VIRTUAL_ENV/bin/python',
            f"[[ $LD_LIBRARY_PATH == *:{programs}* ]]",
            f"python -c \"{path}\" | grep '^{programs}/host-cc .*{programs}'"],
         "requirements": "plain"},
        {"pre": ['test -z "${TOOLS_FLAGS+set}"', "! command -v host-cc", f"[[ $LD_LIBRARY_PATH != *{programs}* ]]"]},
    ], MODULEPATH=site.modules, extra=f"optional_binds = ['{programs}']\n")
    result = install([{"modules": ["NoTools/1.0"], "pre": ["true"]}], check=False, extra="versionsuffix = '-x'\n")
    assert "NoTools/1.0" in failed(result, site, suffix="-x")


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
    assert "the index refuses (HTTP 403)" in text


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


def test_no_network(site, install):
    """Nothing answers at the address of the index: the error says there is no network, and what to do."""
    settings = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "/nowhere", "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
                "PIP_RETRIES": "0"}
    text = failed(install([{"requirements": "nothing"}], check=False, **settings), site)
    assert "there is no network here" in text


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


def test_the_settings_of_the_hosts_python_do_not_matter(site, install, tmp_path):
    """S003-14: PYTHONPATH and PYTHONUSERBASE of the host: neither installation nor commands are affected."""
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')\n")
    settings = {"PYTHONPATH": str(tmp_path), "PYTHONUSERBASE": str(tmp_path / "base")}
    install([{"requirements": "plain", "verify": ["python -c 'import numpy, plain'"]}], **settings)
    script = "module load Example/1.0 && start-shell -c 'python -c \"import numpy, plain\"' && list-packages"
    assert "plain" in site.bash(script, **settings).stdout
    assert not (tmp_path / "base").exists()


def test_pip_keeps_its_files_where_the_user_says(site, install, tmp_path):
    """S003-13: PIP_CACHE_DIR is where pip's cache is; without it, it's in the build directory and never in the home."""
    cache = tmp_path / "not there" / "cache"
    stages = [{"name": "a", "requirements": "faketorch"}, {"requirements": "kernels", "no_build_isolation": True}]
    install(stages, PIP_CACHE_DIR=cache)
    assert list(cache.rglob("kernels-1.0-py3-none-any.whl"))
    assert not (site.home / ".cache" / "pip").exists()


# --- images that set PYTHONPATH; what is recorded


def test_an_image_that_sets_pythonpath(site, install, packages, tmp_path):
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

    assert "allow_replace" in failed(install([{"requirements": "shipped>=2"}], check=False, extra=binds), site)
    install([{"requirements": "shipped>=2\nfresh", "allow_replace": ["shipped"]}], extra=binds)
    record = lock(site)
    assert {"shipped==1.0", "gpg==1.16.0-unknown", "none==unknown"} <= set(record["image_packages"])
    assert {"shipped==2.0", "fresh==1.0"} <= set(record["venv_packages"])
    code = "import shipped, fresh; print(shipped.__version__)"
    for options in ([], ["--module-only", "--force"]):
        site.eb(site.prefix / "Example-1.0.eb", *options, **wheel_settings(packages))
        output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout
        assert output == "2.0\n"
    # without user software it's what the image says
    (site.prefix / "eb/software/Example/1.0/user-software.squashfs").unlink()
    code = "import shipped; print(shipped.__version__)"
    assert site.bash(f"module load Example/1.0 && singularity exec $SIF python3 -c '{code}'").stdout == "1.0\n"


def test_what_took_part_is_in_the_lock(site, install):
    """S003-21, S000-18: versions of module and packages apart, of pip, runtime and ebsif; what pip installed from."""
    install(["plain"], extra="version = '1.0'\n")
    record = lock(site)
    assert record["module"] == {"name": "Example", "version": "1.0", "versionsuffix": ""}
    assert re.fullmatch(r"\d+\.\d+.*", record["versions"]["pip"])
    assert "version" in record["versions"]["runtime"]
    assert record["versions"]["ebsif"] == (EASYBLOCKS / "container_files/VERSION").read_text().strip()
    assert record["artifacts"]["plain"]["file"] == "plain-1.0-py3-none-any.whl"
    bill = json.loads((site.prefix / "eb/software/Example/1.0/share/ebsif/sbom.cdx.json").read_text())
    assert "pkg:pypi/plain@1.0" in {component.get("purl") for component in bill["components"]}


def test_findings_are_printed_before_anything_is_installed(site, install, packages):
    """S000-02: a package that needs torch in an isolated stage: a warning by name, before pip runs."""
    make_wheel(packages, "apex")
    result = install([{"name": "kernels", "requirements": "apex"}])
    output = result.stdout + result.stderr
    assert "stage 'kernels': apex is built against torch" in " ".join(output.split())


def test_packages_are_added_later(installed_once):
    """S002-40, S004-15: what is in /user-software is packed and mounted; pip says how to go on."""
    root = installed_once.root(installed_once.SQUASHED)
    for command in ("pip", "python -m pip", "pip3"):
        result = installed_once.load(installed_once.SQUASHED, f"singularity exec $SIF {command} install byhand", False,
                                     **wheel_settings(installed_once.wheels), APPTAINER_BIND=installed_once.wheels)
        assert result.returncode != 0
        assert "Read-only file system" in result.stderr
        assert "hint:   unmake-squashfs       unpacks it, and says what to do next\n" in result.stderr
    for command in ("pip list", "pip install --help", "python -c 'import sys; sys.exit(0)'"):
        result = installed_once.load(installed_once.SQUASHED, f"singularity exec $SIF {command}")
        assert "unmake-squashfs" not in result.stderr
    assert not (installed_once.site.home / ".local").exists()
    assert (root / "user-software.squashfs").exists()


def test_nothing_depends_on_the_framework(site):
    """S002-51: another framework is packaged: nothing but data changes."""
    texts = []
    for name in ("PyTorch", "jax"):
        site.eb(site.easyconfig(TEXT.replace("venv_name = 'pytorch'\n", ""), name=name))
        text = (site.modules / name / "1.0.lua").read_text().replace("envs/pytorch", "envs/E")
        text = text.replace('CONDA_DEFAULT_ENV", "pytorch"', 'CONDA_DEFAULT_ENV", "E"')
        texts.append(re.sub(name, "NAME", text, flags=re.IGNORECASE))
        output = site.bash(f"module load {name}/1.0 && singularity exec $SIF python -c 'import sys; print(sys.prefix)'")
        assert output.stdout.strip() == f"/user-software/venv/{name.lower()}"
    assert texts[0] == texts[1]
