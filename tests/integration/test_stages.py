"""Stages with the real pip in the real container: order, isolation, protection, checks, explanations."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version
from parts import Installed, example_site, wheel_settings
from support import (
    BACKEND,
    CHECKOUT,
    CONTAINER_FILES,
    make_archive,
    make_sdist,
    make_wheel,
    printed,
    project_files,
    write_program,
)

TEXT = Installed.TEXT
SECRETS = ["S3cr3tPw1", "S3cr3tPw2", "S3cr3tPw3"]


def make_packages(folder):
    """Write the packages that most tests install."""
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
    """Return a function that installs stages and returns eb's CompletedProcess."""

    def run(stages, check=True, extra="", **environment):
        text = TEXT + extra + f"requirements = {stages!r}\n"
        return site.eb(site.easyconfig(text), check=check, **{**wheel_settings(packages), **environment})

    return run


def message(result):
    """Return eb's output on one line."""
    return " ".join((result.stdout + result.stderr).split())


def failed(result, site, suffix=""):
    """Check that eb failed and left no module; return its output."""
    assert result.returncode != 0
    assert not list(site.modules.rglob(f"Example/1.0{suffix}.lua"))
    return message(result)


# --- one installation with many stages

NAMES = """
    CFLAGS CPATH MAKEFLAGS PKG_CONFIG_PATH LDFLAGS CMAKE_PREFIX_PATH RUSTFLAGS TMP MAX_JOBS CC CXX PYTHONPATH GIT_DIR
    WHATEVER
"""
CALLERS = dict.fromkeys(NAMES.split(), "of-the-caller")
PASSED = {
    "https_proxy": "proxy:80",
    "SLURM_JOB_ID": "7",
    "LICENCE": "port@host",
    "HIP_VISIBLE_DEVICES": "3",
    "EBSIF_INSTALL_ENV": "LICENCE,ABSENT",
    "LC_TIME": "C",
}
THERE = "import os, sys; sys.exit([name for name in sys.argv[1:] if name in os.environ] or 0)"


class Many:
    """An installation with many stages, for tests that only read it."""

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
            {"name": "one", "env": {"MAX_JOBS": "4 $HOME `id`"}, "verify": ["test \"$MAX_JOBS\" = '4 $HOME `id`'"]},
            {
                "name": "two",
                "requirements": "plain==1.0\n",
                "pre": [["mkdir", "/user-software/a b"]],
                "post": ["echo $VIRTUAL_ENV >'/user-software/a b/file'", ["python", "-c", "import plain"]],
                "verify": [
                    ["python", "-c", THERE, *CALLERS],
                    *[f'test "${name}" = {value}' for name, value in PASSED.items() if not name.startswith("EBSIF_")],
                ],
            },
            {"name": "nothing new", "requirements": "numpy\n"},
            {"name": "local", "requirements": f"local @ file://{self.link}/{self.wheel.name}\n"},
            {"name": "kernels", "requirements": "apex --config-settings=a=b\n"},
        ]
        easyconfig = self.site.easyconfig(TEXT + f"requirements = {self.stages!r}\n")
        own = {**CALLERS, **PASSED, "PIP_CACHE_DIR": self.cache}
        self.result = self.site.eb(easyconfig, **wheel_settings(packages), **own)


@pytest.fixture(scope="module")
def many(tmp_path_factory, base_image):
    """That installation."""
    return Many(tmp_path_factory.mktemp("many"), base_image)


def test_a_later_stage_builds_against_an_earlier_one(many):
    """S000-01, S000-21, S003-06: no isolation, a new pip, after the earlier stage; the image's packages are visible."""
    assert {"faketorch==1.0", "kernels==1.0"} <= set(many.site.record()["venv_packages"])
    log = next((many.site.root() / "easybuild").glob("*.log")).read_text()
    calls = [line for line in log.splitlines() if "-m pip install" in line and "--no-build-isolation" in line]
    assert calls
    assert not [line for line in calls if "/stages/first/" in line]


def test_variables_are_set_only_in_their_stage(many):
    """
    S000-05: a stage's variables are set in the container during that stage only, for commands and for pip.

    Variables of the caller and of EasyBuild's toolchain are not set unless requested.
    """
    # the stages' 'verify' commands check this; if one failed, there would be no installation
    assert [stage["name"] for stage in many.site.record()["stages"] if "verify" in stage] == ["one", "two"]


def test_results_of_later_commands_are_packed(many):
    """S000-13: commands run in the container after pip and before packing; as text for bash or as a list."""
    command = "module load Example/1.0 && singularity exec $SIF cat '/user-software/a b/file'"
    assert many.site.bash(command).stdout.strip() == "/user-software/venv/pytorch"


def test_packages_of_the_image_are_not_installed_again(many):
    """S001-20: a requirement that the image satisfies is neither built nor installed."""
    assert not [line for line in many.site.record()["venv_packages"] if line.startswith("numpy")]


def test_a_local_wheel_is_reachable_and_in_the_lock(many):
    """S003-09: a local wheel as a requirement is visible in the container; the lock file has its checksum."""
    expected = {f"{many.link}/{many.wheel.name}": hashlib.sha256(many.wheel.read_bytes()).hexdigest()}
    assert many.site.record()["local_files"] == expected
    assert "local==1.0" in many.site.record()["venv_packages"]


def test_stages_are_in_the_lock(many):
    """S003-23, S000-18 (in part): every stage as given, exact versions, and the packages of image and venv."""
    record = many.site.record()
    assert record["stages"] == many.stages
    assert "plain==1.0" in record["venv_packages"]
    assert any(line.startswith("numpy==") for line in record["image_packages"])


def test_pips_cache_is_where_the_user_says(many):
    """S003-13: pip's cache is in PIP_CACHE_DIR; otherwise in the build directory, never in the home directory."""
    assert list(many.cache.rglob("kernels-1.0-py3-none-any.whl"))
    assert not (many.site.home / ".cache" / "pip").exists()


def test_versions_and_sources_are_in_the_lock(many):
    """S003-21, S000-18: versions of module, packages, pip, runtime and ebsif; the files that pip installed from."""
    record = many.site.record()
    assert record["module"] == {"name": "Example", "version": "1.0", "versionsuffix": ""}
    assert re.fullmatch(r"\d+\.\d+.*", record["versions"]["pip"])
    assert "version" in record["versions"]["runtime"]
    assert record["versions"]["ebsif"] == (CONTAINER_FILES / "VERSION").read_text().strip()
    assert record["artifacts"]["plain"]["file"] == "plain-1.0-py3-none-any.whl"
    bill = json.loads(many.site.run(["ebsif", "lock", many.site.root(), "--format", "sbom"]).stdout)
    assert "pkg:pypi/plain@1.0" in {component.get("purl") for component in bill["components"]}


def test_findings_are_printed_before_anything_is_installed(many):
    """S000-02, S000-07: a package that needs torch in an isolated stage; an option that depends on pip."""
    said = message(many.result)
    assert "stage 'kernels': apex is built against torch" in said
    pip = many.site.record()["versions"]["pip"]
    assert f"'--config-settings' in requirement lines needs pip 23.1 or newer. The venv has pip {pip};" in said


# --- stages that fail, and some of those that do not


@pytest.fixture(scope="module")
def tried(tmp_path_factory, base_image):
    """A site, and what eb has done with each list of stages there, by name: one eb has tried all of them."""
    folder = tmp_path_factory.mktemp("tried")
    site = example_site(folder, base_image)
    packages = make_packages(folder / "packages")
    version = numpy_version(site)
    make_wheel(packages, "numpy", version="99.0")
    make_wheel(packages, "numpy", version=version)
    make_wheel(packages, "wants", requires=["numpy >= 99"])
    damage = "rm $VIRTUAL_ENV/pyvenv.cfg"
    noise = "(for i in $(seq 1 60); do echo line number $i >&2; done; exit 3) 2>&1 | tee $TMPDIR/log"
    stages = {
        "missing": [{"name": "kernel stage", "requirements": "kernels"}],
        "first": [
            {"name": "first", "requirements": f"plain==1.0 --hash=sha256:{'0' * 64}"},
            {"name": "second", "requirements": "plain", "pre": ["echo second stage started"]},
        ],
        "pip": [{"requirements": "plain", "pre": [damage]}],
        "verify": [{"name": "ops", "requirements": "plain", "verify": ["python -c 'import plain; plain.missing_op'"]}],
        "noise": [{"name": "noisy", "pre": [noise]}],
        "protected": [{"name": "mine", "requirements": "wants"}],
        "same": [{"name": "again", "requirements": "numpy", "options": ["--ignore-installed"]}],
        "meant": [
            {"name": "new numpy", "requirements": "numpy>=99", "allow_replace": ["NumPy"]},
            {"name": "after", "requirements": "wants"},
        ],
        "once": [
            {"name": "first", "requirements": "faketorch\nplain"},
            {"name": "second", "requirements": "kernels", "no_build_isolation": True},
        ],
    }
    stages["twice"] = stages["once"]
    texts = {name: TEXT + f"versionsuffix = '-{name}'\nrequirements = {value!r}\n" for name, value in stages.items()}
    return site, site.eb_each(texts, **wheel_settings(packages))


@pytest.fixture
def failing(tried):
    """A function that returns what eb has printed of a failing attempt, on one line and as it is."""
    site, results = tried
    return lambda name: (failed(results[name], site, f"-{name}"), results[name].stdout)


def numpy_version(site):
    """Return the image's version of numpy."""
    command = ["apptainer", "exec", site.sources / "example.sif", "/opt/miniconda3/envs/pytorch/bin/python"]
    return printed([*command, "-c", "import numpy; print(numpy.__version__)"]).strip()


def test_a_package_missing_at_build_time_is_explained(failing):
    """S000-03: "No module named X" during a build: the error names stage, package and remedy."""
    text, _ = failing("missing")
    assert "pip failed in stage 'kernel stage' (while processing" in text
    assert "kernels" in text
    assert "neither the image nor an earlier stage has. Install the package that has 'faketorch' first: in an " in text


def test_a_failing_stage_stops_the_later_ones(failing):
    """S000-01, E-12: a stage starts only after every earlier one succeeded (S004-19), here one with a wrong hash."""
    text, output = failing("first")
    assert re.search(
        r"pip failed in stage 'first'.*: pip got another file of plain==1.0 than the locked "
        r"file: its sha256 is [0-9a-f]{64}, not 0{64}\.",
        text,
    )
    assert "stage 'second'" not in output
    assert "second stage started" not in output


def test_a_pip_that_would_install_elsewhere(failing):
    """S000-14: in a damaged venv, pip would install into the image: refused before it runs."""
    assert "pip would not install into /user-software but here: /opt/" in failing("pip")[0]


def test_pips_success_is_not_enough(failing):
    """S000-04: a package that installs but doesn't work fails the installation through the stage's verify."""
    text, _ = failing("verify")
    assert "Stage 'ops': the command of 'verify' failed with exit status 1" in text
    assert "missing_op" in text


def test_the_output_of_a_failed_command_is_shown_and_logged(failing):
    """S000-09: the end of a failed command's output is in the error, all of it in the log, also in a pipe."""
    text, output = failing("noise")
    assert "the command of 'pre' failed with exit status 3" in text
    assert "line number 60" in output
    assert "line number 1\n" not in output
    log = output.split("log file(s) ")[1].split()[0]
    assert "line number 1\n" in Path(log).read_text()


def test_a_package_of_the_image_is_protected(failing):
    """S001-19: a requirement would replace an image package: the error names package, stage, requirement, remedy."""
    text, _ = failing("protected")
    assert "pip failed in stage 'mine'" in text
    assert "numpy==2" in text
    assert "wants 1.0 needs numpy>=99" in text
    assert "'allow_replace': ['numpy']" in text


def test_the_same_version_is_refused_as_well(failing):
    """S001-19: a copy of an image package in user software would hide the image's: refused."""
    assert re.search(r"Stage 'again' installed numpy==2[0-9.]+, which hides the image's", failing("same")[0])


# --- packages of the image


def test_an_intended_replacement(tried):
    """A stage may replace packages of the image by name; later stages, and pip by hand (G-03), keep the new version."""
    site, module = tried[0], "Example/1.0-meant"
    assert {"numpy==99.0", "wants==1.0"} <= set(site.record(module)["venv_packages"])
    path = site.root(module) / "runscripts/image-constraints.txt"
    kept_by_hand = {line.split("==")[0] for line in path.read_text().splitlines()}
    assert "numpy" not in kept_by_hand


def test_a_git_repository(site, packages, tmp_path):
    """S000-08: a git URL with a submodule builds if the image has git; otherwise the error says so."""
    files = project_files("fromgit", needs="json")
    # the build needs the submodule, as those of PyTorch and apex do
    files["pyproject.toml"] = files["pyproject.toml"].replace('["."]', '["part"]')
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    # where the container sees it; pip binds paths in requirements
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
    # git clones submodules from local paths only if allowed explicitly
    told = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    environments = {"without": {"PATH": "/user-software/venv/pytorch/bin"}, "with": told}
    texts = {
        name: TEXT + f"versionsuffix = '-{name}'\nrequirements = {[{**stage, 'env': env}]!r}\n"
        for name, env in environments.items()
    }
    results = site.eb_each(texts, **wheel_settings(packages))
    text = failed(results["without"], site, "-without")
    assert "Stage 'git' has a requirement from a git repository, but git is missing in the image" in text
    assert "-m pip install" not in results["without"].stdout
    assert "fromgit==1.0" in site.record("Example/1.0-with")["venv_packages"], results["with"].stdout


@pytest.mark.nightly
def test_pip_is_upgraded_first(site):
    """S003-15: upgrade_pip upgrades the venv's pip, deliberately an old one here, before the stage."""
    binds = printed([CHECKOUT / "scripts/install-binds"])
    old = {"name": "old", "requirements": "pip==24.0", "allow_replace": ["pip"]}
    stages = [old, {"name": "pip", "upgrade_pip": True}]
    site.eb(site.easyconfig(TEXT + f"requirements = {stages!r}\n"), EBSIF_INSTALL_BIND=binds.strip())

    def pip_version(record):
        (line,) = [line for line in record["venv_packages"] if line.startswith("pip==")]
        return Version(line.split("==")[1])

    assert pip_version(site.record()) > Version("24.0")


def test_the_same_installation_gives_the_same_bytes(tried):
    """The same easyconfig, image and packages give the same SquashFS file; it contains valid bytecode."""
    site, _ = tried
    first, second = (
        (site.root(f"Example/1.0-{name}") / "user-software.squashfs").read_bytes() for name in ("once", "twice")
    )
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()

    code = "import plain, importlib.util as u; print(plain.__cached__, u.cache_from_source(plain.__file__))"
    output = site.bash(f"module load Example/1.0-once && singularity exec $SIF python -v -c '{code}' 2>&1").stdout
    assert re.search(r"__pycache__/plain.cpython-\d+.pyc matches /user-software/.*/plain.py", output)


# --- compiled packages, patches, host modules

# the part of Python 3.11's C interface that the module needs, so that a compiler without headers suffices
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


def patch(old, new):
    """Return a patch for a project's backend.py that changes the line with the marker."""
    return "--- a/marker.txt\n+++ b/marker.txt\n@@ -1 +1 @@\n-" + old + "\n+" + new + "\n"


def make_marked(folder, name):
    """Write a source distribution with a marker that tells the source."""
    backend = BACKEND.format(name=name, needs="json").replace(
        "\"built_with = 'json'\"", '"marker = " + repr(open("marker.txt").read().strip())'
    )
    files = {**project_files(name, "json"), "backend.py": backend, "marker.txt": "original\n"}
    make_archive(folder / f"{name}-1.0.tar.gz", f"{name}-1.0", files)


class Built:
    """An installation with stages that build packages in every way, and failing ones; one eb has tried them all."""

    def __init__(self, folder, image):
        self.folder = folder
        self.site = example_site(folder, image)
        self.packages = make_packages(folder / "packages")
        stages, failing = [], {}
        for prepare in (self.compiling, self.patching, self.using_modules):
            more, name, wrong = prepare()
            stages += more
            failing[name] = TEXT + f"versionsuffix = '-{name}'\nrequirements = {wrong!r}\n"
        binds = f"binds = ['?{folder}/tools']\n"
        self.results = self.site.eb_each(
            {**failing, "right": TEXT + binds + f"requirements = {stages!r}\n"},
            **wheel_settings(self.packages),
            MODULEPATH=self.site.modules,
        )
        assert self.results["right"].returncode == 0, self.results["right"].stdout

    def compiling(self):
        """A compiler and its flags, as variables of a stage; without them."""
        files = {**project_files("compiled", "json"), "backend.py": COMPILING_BACKEND, "compiled.c": EXTENSION}
        make_archive(self.packages / "compiled-1.0.tar.gz", "compiled-1.0", files)
        stage = {"name": "extension", "requirements": "compiled", "no_build_isolation": True}
        right = [
            {**stage, "env": {"CC": "tcc", "ANSWER": "42"}},
            {"verify": ["python -c 'import compiled; assert compiled.answer == 42'"]},
        ]
        return right, "compiler", [stage]

    def patching(self):
        """Patches of a package from an index and of an archive; one that does not apply."""
        make_marked(self.packages, "marked")
        make_marked(self.folder, "tree")
        for name, old, new in (
            ("01-first", "original", "first"),
            ("02-second", "first", "second"),
            ("02-other", "something else", "second"),
        ):
            (self.site.prefix / f"{name}.patch").write_text(patch(old, new))
        stage = {"requirements": "marked", "no_build_isolation": True, "patches": ["02-second.patch", "01-first.patch"]}
        right = [
            stage,
            {**stage, "requirements": f"tree @ file://{self.folder}/tree-1.0.tar.gz"},
            {"verify": ["python -c 'import tree; assert tree.marker == \"second\"'"]},
        ]
        return right, "patch", [{**stage, "patches": ["02-other.patch", "01-first.patch"]}]

    def using_modules(self):
        """Modules of the host in one stage but not in the next; one that does not exist."""
        programs = self.folder / "tools"
        programs.mkdir()
        for name in ("host-cc", "python"):
            write_program(programs / name, "#!/bin/sh\necho from the module\n")
        folder = self.site.modules / "Tools"
        folder.mkdir(parents=True)
        (folder / "1.0.lua").write_text(
            'setenv("TOOLS_FLAGS", "from the module")\nsetenv("PYTHONHOME", "/nowhere")\n'
            f'prepend_path("PATH", "{programs}")\nprepend_path("LD_LIBRARY_PATH", "{programs}")\n'
        )
        path = "import os, shutil; print(shutil.which('host-cc'), os.environ['LD_LIBRARY_PATH'])"
        with_tools = [
            'test "$TOOLS_FLAGS" = "from the module"',
            'test "$(host-cc)" = "from the module"',
            'test "$(command -v python)" = $VIRTUAL_ENV/bin/python',
            f"[[ $LD_LIBRARY_PATH == *:{programs}* ]]",
            f"python -c \"{path}\" | grep '^{programs}/host-cc .*{programs}'",
            "test \"$FLAGS_HERE\" = 'from the module $ORIGIN'",
        ]
        later = ['test -z "${TOOLS_FLAGS+set}"', "! command -v host-cc", f"[[ $LD_LIBRARY_PATH != *{programs}* ]]"]
        flags = {"FLAGS_HERE": "${TOOLS_FLAGS} $ORIGIN"}
        right = [{"modules": ["Tools/1.0"], "env": flags, "pre": with_tools, "requirements": "plain"}, {"pre": later}]
        return right, "modules", [{"modules": ["NoTools/1.0"], "pre": ["true"]}]

    def failure(self, name):
        """Check that an installation failed; return eb's output."""
        return failed(self.results[name], self.site, f"-{name}")

    def python(self, code):
        """Return the words that Python prints with the module loaded."""
        return self.site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout.split()


@pytest.fixture(scope="module")
def built(tmp_path_factory, base_image):
    """That installation."""
    return Built(tmp_path_factory.mktemp("built"), base_image)


def test_a_compiled_extension(built):
    """S000-05, S003-12: a package is compiled in the container with its stage's compiler and flags."""
    text = built.failure("compiler")
    assert "pip failed in stage 'extension'" in text or "KeyError: 'CC'" in text
    answer, place = built.python("import compiled; print(compiled.answer, compiled.__file__)")
    assert answer == "42"
    assert place.startswith("/user-software/venv/pytorch/lib")


def test_patches(built):
    """
    S004-12: patches are applied to the source in order of their names; the lock file has their checksums.

    A patch that does not apply stops the installation and is named.
    """
    assert "02-other.patch" in built.failure("patch")
    assert built.python("import marked; print(marked.marker)") == ["second"]
    files = {Path(path).name for path in built.site.record()["local_files"]}
    assert files == {"01-first.patch", "02-second.patch", "tree-1.0.tar.gz"}


def test_host_modules_are_loaded_for_a_stage(built):
    """
    S003-11: a stage's modules, including their changes to PATH, apply to that stage only; missing ones are named.

    Values of `env` can refer to their variables.
    """
    assert "NoTools/1.0" in built.failure("modules")
    # the stages' 'pre' commands check the rest; if one failed, there would be no installation
    used, after = [stage for stage in built.site.record()["stages"] if "pre" in stage]
    assert used["modules"] == ["Tools/1.0"]
    assert "modules" not in after


# --- failures of machine and index


@pytest.fixture
def refusing_index():
    """An index that answers 403 to every request."""

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(403)

        def log_message(self, *_):
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def test_an_index_that_refuses(site, install, refusing_index):
    """An index answers 403: the error says that it refuses access, and what to check."""
    settings = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "/nowhere", "PIP_INDEX_URL": refusing_index}
    text = failed(install([{"requirements": "nothing"}], check=False, **settings), site)
    assert "the index denies access (HTTP 403)" in text


@pytest.fixture
def closed_index(packages):
    """An index that requires name and password; requests without them get 401."""
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
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def command_lines():
    """All arguments of processes of this machine, which other accounts see as well (a set that grows)."""
    found, ended = set(), threading.Event()

    def look():
        while not ended.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                # it may have ended
                with contextlib.suppress(OSError):
                    found.add(path.read_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    yield found
    ended.set()
    looking.join()


def test_no_credential_is_in_an_installation(site, install, closed_index, tmp_path, command_lines):
    """
    G-09: of netrc, the user, pip or the runtime: it works, and no file contains it.

    Nor do the arguments of a program, which other accounts see.
    """
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login bob password {SECRETS[0]}\n")
    settings = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "/nowhere"}
    anonymous, by_name = f"http://{closed_index}/", f"http://${{MY_USER}}:${{MY_WORD}}@{closed_index}/"
    stages = [
        {"name": "line", "requirements": ["--index-url " + by_name, "plain"]},
        {"name": "property", "requirements": "kernels", "index_url": by_name, "no_build_isolation": True},
    ]
    stages[1]["pre"] = ["pip install faketorch"]
    own = {
        "MY_USER": "bob",
        "MY_WORD": SECRETS[1],
        "PIP_INDEX_URL": f"http://bob:{SECRETS[2]}@{closed_index}/",
        "APPTAINER_DOCKER_PASSWORD": SECRETS[0],
    }
    printed = message(install(stages, **settings, **own))
    stages = [{"requirements": "plain", "index_url": anonymous}]
    printed += message(install(stages, **settings, NETRC=netrc, extra="versionsuffix = '-netrc'\n"))
    stages = [{"requirements": "plain", "index_url": anonymous.replace("//", f"//bob:{SECRETS[0]}@")}]
    text = failed(install(stages, check=False, extra="versionsuffix = '-written'\n"), site, suffix="-written")
    assert "A credential is written out in the easyconfig: http://bob:****" in text
    assert "plain==1.0" in site.record()["venv_packages"]
    for path in (site.prefix / "eb").rglob("*"):
        for word in SECRETS:
            assert not path.is_file() or word.encode() not in path.read_bytes(), path
    assert not [word for word in SECRETS if word in printed + text]
    assert [one for one in command_lines if b"\0install\0" in one]
    assert not [one for one in command_lines for word in SECRETS if word.encode() in one]


# --- images that set PYTHONPATH; records


def test_an_image_that_sets_pythonpath(site, packages, tmp_path):
    """
    The image sets PYTHONPATH: packages there are visible and protected, and permitted upgrades are used.

    G-11: packages there whose version is invalid or missing cause no error.
    """
    folder = tmp_path / "modules"
    folder.mkdir()
    wheel = make_wheel(packages, "shipped", more={"shipped_c.so": ""})
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for odd, version in [("gpg", "Version: 1.16.0-unknown"), ("devscripts", "Version: 2.22.1ubuntu1"), ("none", "")]:
        (folder / f"{odd}.dist-info").mkdir()
        (folder / f"{odd}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {odd}\n{version}\n")
    (folder / "broken-1.0.dist-info").mkdir()
    make_wheel(packages, "shipped", version="2.0")
    make_wheel(packages, "fresh", requires=["shipped"])
    # like in such images: a script that the runtime reads when a container starts
    script = write_program(tmp_path / "91-environment.sh", "export PYTHONPATH=/opt/modules\n")
    binds = f"binds = ['{folder}:/opt/modules', '{script}:/.singularity.d/env/91-environment.sh']\n"

    stages = [{"requirements": "shipped>=2\nfresh", "allow_replace": ["shipped"]}]
    results = site.eb_each(
        {
            "refused": TEXT + binds + "versionsuffix = '-x'\nrequirements = ['shipped>=2']\n",
            "allowed": TEXT + binds + f"requirements = {stages!r}\n",
        },
        **wheel_settings(packages),
    )
    assert "allow_replace" in failed(results["refused"], site, "-x")
    assert results["allowed"].returncode == 0, results["allowed"].stdout
    record = site.record()
    assert {"shipped==1.0", "gpg==1.16.0-unknown", "none==unknown"} <= set(record["image_packages"])
    assert {"shipped==2.0", "fresh==1.0"} <= set(record["venv_packages"])
    code = "import shipped, fresh; print(shipped.__version__)"
    for again in (False, True):
        if again:
            site.eb(site.prefix / "allowed.eb", "--module-only", "--force", **wheel_settings(packages))
        output = site.bash(f"module load Example/1.0 && singularity exec $SIF python -c '{code}'").stdout
        assert output == "2.0\n"
    # without user software the image's version is used
    (site.root() / "user-software.squashfs").unlink()
    code = "import shipped; print(shipped.__version__)"
    assert site.bash(f"module load Example/1.0 && singularity exec $SIF python3 -c '{code}'").stdout == "1.0\n"


def test_packages_can_be_added_later(installed_once):
    """S002-40, S004-15: where user software is read-only, pip fails and names unmake-squashfs; ~/.local stays empty."""
    root = installed_once.root(installed_once.SQUASHED)
    own = {**wheel_settings(installed_once.wheels), "APPTAINER_BIND": installed_once.wheels}
    for command in ("pip", "pip3"):
        script = f"singularity exec $SIF {command} install byhand"
        result = installed_once.load(installed_once.SQUASHED, script, False, **own)
        assert result.returncode != 0 and "Read-only file system" in result.stderr
        assert "hint:   unmake-squashfs       unpacks it, and tells you what to do next\n" in result.stderr
    for command in ("pip list", "pip install --help", "python -c 'import sys; sys.exit(0)'"):
        result = installed_once.load(installed_once.SQUASHED, f"singularity exec $SIF {command}")
        assert "unmake-squashfs" not in result.stderr
    assert not (installed_once.site.home / ".local").exists()
    assert (root / "user-software.squashfs").exists()
