"""Stages and pip's messages, as text."""

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import pip
from easybuild.easyblocks.generic.container.diagnosis import Diagnosis
from easybuild.easyblocks.generic.container.packages import InstalledPackages, built_for, constraint_lines
from easybuild.easyblocks.generic.container.pip import Pip
from easybuild.easyblocks.generic.container.requirements import package_name
from easybuild.easyblocks.generic.container.scripts import commands_of_host
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.easyblocks.generic.container.venv import Venv
from easybuild.tools.build_log import EasyBuildError
from ebsif.catalog import reading, site
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version
from support import CHECKOUT, CONTAINER_FILES, description, heed_signals, installed_packages, write_program

pytestmark = pytest.mark.usefixtures("configuration")


def stage(**properties):
    """Return one stage."""
    (made,) = PipStage.from_parameter([properties])
    return made


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({"no_build_isolation": True}, "--no-build-isolation"),
        ({"no_deps": True}, "--no-deps"),
        ({"no_binary": ["mpi4py", "h5py"]}, "--no-binary mpi4py,h5py"),
        ({"index_url": "https://a/b"}, "--index-url https://a/b"),
        ({"extra_index_url": ["x", "y"]}, "--extra-index-url x --extra-index-url y"),
        ({"find_links": ["/a b"]}, "--find-links '/a b'"),
        ({"options": ["--pre", "--only-binary=:all:"]}, "--pre --only-binary=:all:"),
        ({}, ""),
    ],
)
def test_properties_become_options_of_pip(tmp_path, properties, options):
    """Each property becomes one option, its value one word."""
    made = stage(**properties)
    pip, _ = fake_pip(tmp_path)
    assert shlex.join(pip.build_options(made) + made.pip_options() + made.pip_index_options()) == options


class FakeContainer:
    """The part of a container that a stage needs: records commands and runs nothing; Python sees only pip."""

    search_path = ()
    seen = repr(description([("pip", "26.0", "/opt/lib")], purelib="/user-software/venv/x/lib"))

    def __init__(self, work_dir):
        self.work_dir = str(work_dir)
        self.calls = []

    def run(self, command, environment, **_):
        """Record a command; after pip has installed, the packages are listed in the same container."""
        self.calls.append((command, environment))
        if "--report" in command:
            Path(command[command.index("run-logged.sh") + 2], "packages.txt").write_text(self.seen)
        return types.SimpleNamespace(exit_code=0, output=self.seen)


def fake_pip(work_dir):
    """Return a pip that installs into a venv of such a container, and the venv."""
    venv = Venv(FakeContainer(work_dir), str(work_dir / "user-software"), "/user-software/venv/x")
    return Pip(venv, str(work_dir), InstalledPackages(), {}), venv


def test_the_log_of_a_stage(tmp_path):
    """
    E-10: the log has the output of all calls of pip, which may be any bytes; a call ends with pip's exit status.

    After success, bytecode is compiled by the same Python, which may fail, and meanwhile packages are listed. That
    takes long, so the log says it.
    """
    log, folder = tmp_path / "a log", tmp_path / "a folder"
    folder.mkdir()
    output, compiled = folder / "packages.txt", folder / "compiled"

    def run(text, status, *words):
        program = [sys.executable, "-c", f"import os; os.write(2, {text!r}); os._exit({status})"]
        command = ["sh", CONTAINER_FILES / "sh/run-logged.sh", log, *words, "0", *program]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=60)
        assert done.stdout == text
        return done.returncode

    (folder / "compile.py").write_text(f"import sys\nopen({str(compiled)!r}, 'w').write(sys.argv[1])\nsys.exit(1)\n")
    (folder / "list.py").write_text("print('listed')\n")
    assert run(b"\377one\n", 7, "", "") == run(b"\377one\n", 7, folder, "2") == 7
    assert not output.exists()
    assert run(b"two\n", 0, "", "") == run(b"two\n", 0, folder, "") == 0
    assert not compiled.exists()
    assert run(b"two\n", 0, folder, "2") == 0
    assert (output.read_text(), compiled.read_text()) == ("listed\n", "2")
    (folder / "list.py").write_text("raise SystemExit(5)\n")
    assert run(b"two\n", 0, folder, "2") == 5
    # both run at the same time: each waits until the other has opened the pipe
    os.mkfifo(folder / "pipe")
    (folder / "list.py").write_text(f"open({str(folder / 'pipe')!r}, 'w')\n")
    (folder / "compile.py").write_text(f"open({str(folder / 'pipe')!r})\n")
    assert run(b"two\n", 0, folder, "2") == 0
    pip, _ = fake_pip(tmp_path)
    assert pip.log_of(str(log), ["install"]) == "\ufffdone\n" * 2 + "two\n" * 2 + "two\ncompiling bytecode\n" * 3


def test_an_interrupted_stage(tmp_path):
    """Ctrl-C while bytecode is compiled leaves no process behind, which would use the CPUs of a login node."""
    (tmp_path / "list.py").touch()
    (tmp_path / "compile.py").write_text(
        # a signal that comes just before a sleep doesn't end it
        "import time\nprint('begun', flush=True)\nfor _ in range(6000):\n    time.sleep(0.1)\n"
    )
    logged = CONTAINER_FILES / "sh/run-logged.sh"
    command = ["sh", logged, tmp_path / "log", tmp_path, "2", "0", sys.executable, "-c", ""]
    ends = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, start_new_session=True, preexec_fn=heed_signals, **ends) as process:
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        # it ends when no process has it open any more
        assert process.communicate(timeout=60)[0] == ""


RECIPE = json.loads((CHECKOUT / "tests/data/archer2-recipe.json").read_text())


@pytest.mark.parametrize("expected", RECIPE, ids=[one["stage"] for one in RECIPE])
def test_pips_arguments_follow_the_sites_recipe(tmp_path, expected, monkeypatch):
    """S003-04, S003-05, S003-08, S003-11, S003-12, S003-23, tests: the shipped record and the site's recipe."""
    (record,) = reading.read(site.read("archer2"), site.SITES / "archer2")
    (properties,) = [one.properties for one in record.stages if one.name == expected["stage"]]
    pip, venv = fake_pip(tmp_path)
    monkeypatch.setenv("MKLROOT", "/opt/mkl")
    pip.install(stage(**{**properties, "verify": []}), venv.packages())
    command, environment = next(call for call in venv.container.calls if "install" in call[0])
    settings, _, words = expected["command"].partition("pip install ")
    for setting in settings.split():
        name, value = setting.split("=")
        assert (environment[f"APPTAINERENV_{name}"], environment[f"SINGULARITYENV_{name}"]) == (value, value)
    names = [word for word in words.split() if not re.match("-|https:", word)]
    asked = (tmp_path / "stages" / properties["name"].replace(" ", "_") / "requirements.txt").read_text().splitlines()
    assert [package_name(line) for line in asked] == [package_name(name) for name in names]
    assert not [name for name in names if "==" in name and name not in asked]
    options = [part for word in words.split() if word not in names for part in word.split("=")]
    assert not [option for option in options if option not in command], command
    assert properties.get("modules", []) == expected.get("modules", properties.get("modules", []))


def check_stage(site_name, stage_name, folder):
    """Run the checks of a stage of a site's record with the programs in a folder; return those that failed."""
    record = reading.read(site.read(site_name), site.SITES / site_name)[0]
    (properties,) = [one.properties for one in record.stages if one.name == stage_name]
    environment = {"PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(folder)}
    commands = stage(**properties).verify
    return [one for one in commands if subprocess.run([*pip.BASH, one], env=environment, check=False).returncode]


@pytest.mark.parametrize(
    ("pytorch", "controller", "operations", "failing"),
    [
        ("[X]", "[X]", "[X]", []),
        ("[ ]", "[X]", "[X]", ["[X] PyTorch"]),
        ("[X]", "[ ]", "[ ]", ["[X] MPI", "[ ] MPI"]),
        ("[X]", "[X]", "[ ]", ["[ ] MPI"]),
    ],
)
def test_horovod_without_mpi_is_refused(tmp_path, pytorch, controller, operations, failing):
    """S003-07: `horovodrun --check-build` must show [X] PyTorch and [X] MPI, as controller and for operations."""
    write_program(
        tmp_path / "horovodrun",
        f"""#!/bin/sh
test $1 = --check-build && cat <<'EOF'
Available Frameworks:
    {pytorch} PyTorch
Available Controllers:
    {controller} MPI
Available Tensor Operations:
    {operations} MPI
EOF
""",
    )
    failed = check_stage("archer2", "horovod", tmp_path)
    assert [re.search(r"\[.\] \w+", command)[0] for command in failed] == failing


@pytest.mark.parametrize("site_name", ["archer2", "derecho"])
@pytest.mark.parametrize("mpi", [True, False])
def test_torch_without_mpi_is_refused(tmp_path, site_name, mpi):
    """S003-03: `torch.distributed.is_mpi_available()` decides whether the stage that builds torch succeeds."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("")
    (tmp_path / "torch/distributed.py").write_text(
        f"def is_mpi_available():\n    return {mpi}\n\n\ndef is_nccl_available():\n    return True\n"
    )
    failed = check_stage(site_name, "torch", tmp_path)
    assert len(failed) == (0 if mpi else 1)
    assert all("is_mpi_available" in command for command in failed)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"requirement": "a"}], "stage 1: unknown property 'requirement', did you mean 'requirements'"),
        ([{}, {"env": {"A": 1}}], "stage 2: property 'env' should be a dictionary of strings"),
        ([{"env": {"A B": "1"}}], "'A B' can't be the name of an environment variable"),
        ([{"no_deps": "yes"}], "property 'no_deps' should be True or False"),
        ([{"options": "--pre"}], "property 'options' should be a list of strings"),
        ([{"verify": "true"}], "property 'verify' should be a list of commands"),
        ([{"name": "a"}, {"name": "a"}], "two stages are named 'a'"),
        ([{"name": "a"}, "b"], "should be a string or a list of strings"),
        (5, "should be a string or a list of strings"),
        ([{"patches": ["a.patch"], "requirements": "a\nb"}], "'patches' are for the source of one package, but there"),
        ([{"patches": ["a.patch"]}], "but there are 0 requirements"),
    ],
)
def test_wrong_stages_are_reported(value, expected):
    """The error names the problem, the stage and the allowed values."""
    with pytest.raises(EasyBuildError, match=re.escape(expected)):
        PipStage.from_parameter(value)


def test_local_files_are_found():
    """S003-09: paths in requirement lines and find_links must be visible in the container."""
    lines = ["/a/x.whl", "y @ file:///b/y.whl", "git+file:///c/z.git@main#egg=z", "-f /d/wheels", "q>=1 # /no/path"]
    made = stage(requirements=[*lines, "--find-links=file:///e"], find_links=["/f/g", "https://example.org/h"])
    assert made.local_paths() == ["/a/x.whl", "/b/y.whl", "/c/z.git", "/d/wheels", "/e", "/f/g"]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("   /a/x.whl", "/a/x.whl"),
        ("/home/user@realm/x.whl", "/home/user@realm/x.whl"),
        ("/a b/c d/x.whl", "/a b/c d/x.whl"),
        ("x @ file:///a%20b/x.whl#sha256=0", "/a b/x.whl"),
        ("/a/project[extra,more] ; python_version > '3'", "/a/project"),
        ("/a/x.whl --hash=sha256:00 # why", "/a/x.whl"),
        ("x @ \\\n  file:///a/x.whl", "/a/x.whl"),
        ("git+file:///home/user@realm/z.git@v1#egg=z", "/home/user@realm/z.git"),
        ("-e git+file:///c/z.git#egg=z", "/c/z.git"),
        ("-r '/a b/more.txt'", "/a b/more.txt"),
        ("https://example.org/a/x.whl", None),
        ("x @ https://example.org/a@b/x.whl", None),
        ("-i /x", None),
        ("--find-links", None),
        ("x>=1 ; y == '/a'", None),
        ("# /a/x.whl", None),
        ("-c /proc/self/mem", "/proc/self/mem"),
        ("--no-index -f /a", "/a"),
        ("-f/a --pre  # b", "/a"),
        ("-f ${WHEELS} --no-index", "/of/variable"),
        ("x @ file://${WHEELS}/x.whl", "/of/variable/x.whl"),
        ("-f ${WHEELS_}", None),
        ("-f 'a", None),
    ],
)
def test_paths_as_pip_reads_them(line, path, monkeypatch):
    """S003-09: indented, with @ and blanks, in options and variables: visible in the container."""
    monkeypatch.setenv("WHEELS", "/of/variable")
    assert stage(requirements=line).local_paths() == ([path] if path else [])


def test_paths_in_included_files(tmp_path):
    """Files of requirements may name files elsewhere, and each other; the included are relative to them."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep.txt").write_text("aaa @ file:///srv/a/aaa.whl\n-r deep/more.txt \\\n  # and\n")
    (tmp_path / "deep/more.txt").write_text(f"-f /srv/b --no-index\n-r {tmp_path}/deep.txt\n-c ../pins.txt\n-r lost\n")
    (tmp_path / "pins.txt").write_text("a==1\n")
    found = [str(tmp_path / name) for name in ("deep.txt", "deep/more.txt", "pins.txt", "deep/lost")]
    expected = [found[0], "/srv/a/aaa.whl", found[1], "/srv/b", *found[2:]]
    assert stage(requirements=f"-r {tmp_path}/deep.txt").local_paths() == expected


@pytest.mark.parametrize("line", ["-e /a/project", "  --editable=/a/b[c]", "-e file:///a", "-e ."])
def test_editable_directories_are_refused(line):
    """S003-09: an editable requirement would make the module depend on a directory elsewhere."""
    with pytest.raises(EasyBuildError, match="depend on a directory elsewhere.*install a copy"):
        stage(requirements=line)
    assert stage(requirements="-e git+https://example.org/x.git#egg=x").requirement_list


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("ERROR: Cannot find command 'git' - do you have 'git' installed and in your PATH?", "git is missing"),
        ("WARNING: Retrying ... NewConnectionError: Failed to establish a new connection: [Errno 111]", "no network"),
        (
            "fatal: unable to access 'https://x/': Could not resolve host: x\n  × git clone --quiet https://x did "
            "not run successfully.",
            "git can't reach https://x/: there is no network here, or no such host",
        ),
        (
            "  × git clone --filter=blob:none --quiet https://x/y /tmp/pip-req-build-1 did not run successfully.",
            "git can't fetch https://x/y. Check the URL",
        ),
        ("ERROR: HTTP error 403 while getting https://x\nERROR: 403 Client Error: Forbidden", "access (HTTP 403)"),
        ("2026-11-21T11:20:15,401 Could not fetch URL http://x/: 403 Client Error: Forbidden", "access (HTTP 403)"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota is exceeded"),
        # so pip calls a full disk
        (
            "error: incomplete-download\n\n× Download failed after 6 attempts because not enough bytes were received "
            "(9.2 MB/9.9 MB)\nnote: This is an issue with network connectivity, not pip.",
            "a download broke off. Look",
        ),
        ("ERROR: x-1.0-cp39-win32.whl is not a supported wheel on this platform.", "wheel x-1.0-cp39-win32.whl"),
        ("ERROR: No matching distribution found for nothing==1", "none of the searched indexes and directories"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate", "EBSIF_INSTALL_BIND"),
        (
            "    _preloaded_ssl_context.load_verify_locations(\n    ~~~~~^\n        extract_zipped_paths(PATH)\n"
            "FileNotFoundError: [Errno 2] No such file or directory\nTraceback (most recent call last):\n"
            "subprocess.CalledProcessError: Command '['python3']' returned non-zero exit status 1.",
            "the image lacks the file of certificates (ca-certificates)",
        ),
        (
            "ERROR: Could not install packages due to an OSError: Could not find a suitable TLS CA certificate bundle, "
            "invalid path: /etc/ssl/ca-bundle.pem",
            "/etc/ssl/ca-bundle.pem is not in the container: REQUESTS_CA_BUNDLE",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement torchvision==0.22.1+rocm6.2\n"
            "ERROR: No matching distribution found for torchvision==0.22.1+rocm6.2",
            "a build for specific GPU software",
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you ...\n"
            "    a==1 from https://x/a.whl (from -r x (line 3)):\n        Expected sha256 12ab\n"
            "        Expected     or 34\n             Got        56cd\n",
            "pip got another file of a==1 than the locked file: its sha256 is 56cd, not 12ab.",
        ),
        (
            "ERROR: In --require-hashes mode, all requirements must have their versions pinned with ==. These do not:\n"
            "    b<3 from https://x/b.whl (from a==1->-r x (line 10))\n",
            "with exact version and hash, and b<3 is not",
        ),
        (
            "      error: [Errno 2] No such file or directory: 'x86_64-linux-gnu-g++'",
            "a build needs the compiler x86_64-linux-gnu-g++, which the container doesn't have",
        ),
        ("    /bin/sh: 1: g++: not found", "a build needs the compiler g++, which"),
        ("    error: command 'gcc-12' failed: No such file or directory", "needs the compiler gcc-12, which"),
        ("    error: command '/usr/bin/gcc' failed with exit code 1", ""),
        ("OSError: CUDA_HOME environment variable is not set. Please set it", "CUDA_HOME doesn't name its directory"),
        ("No CMAKE_CXX_COMPILER could be found.", "a build needs a compiler, which the container doesn't have"),
        ("RuntimeError: Unsupported compiler -- at least C++11 support is needed!", "\n    ebsif extend ... --apt g++"),
        ("tcc: error: file 'crt1.o' not found", "can't link programs. Use a wheel of the package"),
        ("/usr/bin/ld: cannot find crt1.o: No such file", "\n    ebsif extend ... --apt g++"),
        ("error: can't find Rust compiler", "\n    ebsif extend ... --apt cargo"),
        (
            "Collecting pandas==1.1.5\n  Getting requirements to build wheel\n  error: subprocess-exited-with-error\n"
            "  ModuleNotFoundError: No module named 'pkg_resources'\n",
            "pandas==1.1.5 is built from source, because it "
            "has no wheel for the Python of the image, and it needs 'pkg_resources'. To take the newest version "
            "instead:\n    ebsif extend ... --add pandas\nOr install 'setuptools<81' first",
        ),
        (
            "WARNING: The repository located at pypi.local is not a trusted or secure host and is being ignored.\n"
            "ERROR: Could not find a version that satisfies the requirement rich (from versions: none)\n"
            "ERROR: No matching distribution found for rich\n",
            "the network between this machine and pypi.local:\n    ebsif extend ... --add '--trusted-host pypi.local'",
        ),
        ("something nobody has seen before", ""),
    ],
)
def test_pips_errors_are_explained(output, expected):
    """S000-08 (git), E-12 (hashes), V-05 (compilers); certificates, disk, quota, network, index, platform."""
    text = Diagnosis(output).text()
    assert expected in text if expected else text == ""


UNREACHABLE = """\
WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NameResolutionError("HTTPSConnection(\
host='index.example', port=443): Failed to resolve 'index.example' ([Errno -2] Name or service not known)")': /simple/x
ERROR: No matching distribution found for x==1+cpu
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", "there is no network here, or index.example can't be reached. Install on a node with network"),
        (
            "  Downloading lightly-1.0-py3-none-any.whl (1 kB)\n",
            "index.example can't be reached from here, although other hosts can. Leave out what needs it; or, "
            "download the files where it can be reached (pip download), and name their directory:\n    ebsif extend "
            "... --add '--find-links DIRECTORY'",
        ),
    ],
)
def test_the_host_that_can_not_be_reached(before, expected):
    """E-11: the host is named, and a mirror of the others isn't advised if these answer."""
    assert Diagnosis(before + UNREACHABLE).text().startswith(expected)


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("", "The package is for CUDA, and this image isn't: leave it out"),
        ("rocm", "this image isn't: leave it out"),
        ("cuda", "Use a wheel of the package, or an image that has the compiler"),
        (None, "Use a wheel of the package"),
    ],
)
def test_a_compiler_for_gpus(gpu, expected):
    """E-11: no package of the distribution has nvcc, and it doesn't help in an image without CUDA."""
    text = Diagnosis("OSError: CUDA_HOME environment variable is not set.", gpu=gpu).text()
    assert expected in text and "--apt" not in text


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("error: subprocess-exited-with-error\n\n  ModuleNotFoundError: No module named 'torch.utils'", "torch"),
        ("error: backend-unavailable\n╰─> ModuleNotFoundError: No module named 'packaging'", "packaging"),
        ("ModuleNotFoundError: No module named 'pip'", ""),
    ],
)
def test_what_a_build_can_not_import(output, name):
    """V-05: what pip says of a build, in the words of different versions; not what it says of itself."""
    assert Diagnosis(output).missing_module == name


def test_programs_of_what_was_asked_for(tmp_path):
    """V-06: of packages that pip marks, whatever their programs are made of; none that the host needs."""
    _, venv = fake_pip(tmp_path)
    packages = InstalledPackages.from_output(FakeContainer.seen)
    for name, mark, files in (
        ("board-1.0", "REQUESTED", ["../../../bin/board", "../../../bin/env", "board/bin/x", "../../../bin/-x"]),
        ("needed-1.0", "INSTALLER", ["../../../bin/needed"]),
        ("ninja-1.0", "REQUESTED", ["../../../bin/ninja"]),
    ):
        folder = tmp_path / f"user-software/venv/x/lib/{name}.dist-info"
        folder.mkdir(parents=True)
        (folder / mark).touch()
        (folder / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    assert venv.asked_programs(packages) == ["board"]


def test_programs_with_names_of_commands_of_the_host():
    """A package's ssh, sbatch or eb doesn't become a command unasked."""
    names = ["accelerate", "ls", "sbatch", "qsub", "flux", "eb", "ebsif", "tensorboard"]
    assert commands_of_host(names) == names[1:-1]


def test_programs_that_an_image_invents(tmp_path):
    """P-03: what an image prints as the name of a program is no path in which eb writes a wrapper."""
    _, venv = fake_pip(tmp_path)
    printed = "program python\nprogram ../../../home/x/.profile\nprogram a b\nprogram\nx\nprogram activate\n"
    venv.run = lambda *_, **__: SimpleNamespace(output=printed)
    assert venv.programs() == ["python"]


@pytest.mark.parametrize(
    ("error", "package"),
    [
        ("ERROR: something", "einops>=0.8"),
        ("ERROR: No matching distribution found for nothing", ""),
        ("    The user requested torch==2\n    The user requested (constraint) torch==2.13.0+cpu", ""),
    ],
)
def test_the_package_that_is_the_cause(error, package):
    """E-11: an explanation that names the cause isn't said to be about the last package that pip has read."""
    assert Diagnosis(f"Collecting einops>=0.8 (from -r requirements.txt)\n{error}\n").package() == package


def test_the_image_and_earlier_versions_are_told_apart():
    """E-03: packages of the image may be replaced on purpose, others get another version."""
    output = "    new 1.0 depends on hello>=2\n    The user requested (constraint) hello==1.0\n"
    # a requirement without versions is no cause, also before another one
    for text in (output, f"    The user requested hello\n{output}"):
        assert "hello==1.0 of the image can't be replaced, but: new 1.0 needs hello>=2." in Diagnosis(text).text()
    text = Diagnosis(output, pins={"hello"}).text()
    assert "hello==1.0 is installed now and keeps its version" in text and "ebsif extend ... --add 'hello>=2'" in text


def test_constraints_of_the_person_are_not_of_the_image():
    """What a file of constraints (-c) keeps isn't in the image, and can't be replaced there."""
    output = "    The user requested {0}==2\n    The user requested (constraint) {0}==1\n"
    text = Diagnosis(output.format("mine"), image={"numpy"}).text()
    assert text == "mine==1 is a constraint of the requirements (-c), but: you ask for mine==2. Change one of them"
    text = Diagnosis(output.format("hello"), image={"hello"}).text()
    assert "hello==1 of the image can't be replaced" in text


@pytest.mark.parametrize(
    ("library", "kind"), [("libcudart.so.12", "CUDA"), ("libamdhip64.so.6", "ROCm"), ("libz.so.1", None)]
)
def test_a_library_for_other_gpu_software_is_explained(library, kind):
    """A wheel for another version of ROCm or CUDA: the error at import is explained."""
    output = f"ImportError: {library}: cannot open shared object file: No such file or directory"
    text = Diagnosis(output).library()
    assert (f"a version of {kind} that the image doesn't have (it needs {library})" in text) if kind else text == ""


VERSIONS = [
    *("1", "1.16.0", "2026.1.1", "1!2.0", "v1.0", "1.0a1", "1.0.alpha-2", "1.0c1", "1.0rc", "1.0-1", "1.0.post2"),
    *("1.0-r3", "1.0.dev3", "1.0b2.post3.dev4+x.1", "2.7.1+rocm6.2.4.git1_2", "1.0+ubuntu-1"),
    # not those of other packagers
    *("1.16.0-unknown", "2.22.1ubuntu1", "1.0+", "1.0_", "1..0", "", "unknown", "1.0 beta", "1.0\n", "1.0;x"),
    *("1.0,<2", "1.*", "=1.0", "1.0+a..b", "1.0 "),
]
NAMES = ["a", "A-b.c_d", "1", "-a", "a-", "a b", "a[b]", "a\n", "\xe4"]


def test_constraints_are_valid_for_pip():
    """G-11: packages of the image whose name or version pip can't parse are left out, and only those."""

    def is_legal(name, version):
        try:
            return Requirement(name).name == name and str(Version(version)) and version == version.strip()
        except (InvalidRequirement, InvalidVersion):
            return False

    packages = [("a", version) for version in VERSIONS] + [(name, "1.0") for name in NAMES]
    expected = [f"{name}=={version}" for name, version in packages if is_legal(name, version)]
    assert constraint_lines([*packages, ("a", None)]) == expected
    image = InstalledPackages(gpg=("gpg", "1.16.0-unknown", "/usr"), torch=("torch", "2.7.1+cpu", "/opt"))
    assert image.constraints() == ["torch==2.7.1+cpu"]
    # the record lists all of them
    assert image.pins == ["gpg==1.16.0-unknown", "torch==2.7.1+cpu"]


@pytest.mark.parametrize(
    "python",
    [
        "",
        "m.PathDistribution.metadata = property(lambda self: self.read_text('METADATA') and old(self))",
        "m.PathDistribution.metadata = property(lambda self: self.read_text('METADATA') and old(self) or no())",
    ],
)
def test_directories_without_metadata(tmp_path, python):
    """Without METADATA Python 3.14 finds no metadata, and 3.15 raises an exception."""
    for name, content in (
        ("whole-1.0", b"Name: whole\nVersion: 1.0\n"),
        ("empty-1.0", None),
        ("odd-1.0", b"Name: odd\n"),
        ("nameless-1.0", b"Version: 1.0\n"),
        ("binary-1.0", b"Name: \xff\n"),
    ):
        (tmp_path / f"{name}.dist-info").mkdir()
        if content:
            (tmp_path / f"{name}.dist-info" / "METADATA").write_bytes(content)
    newer = "import importlib.metadata as m\ndef no(): raise FileNotFoundError()\n"
    newer += f"old = m.PathDistribution.metadata.fget\n{python}\n"
    said = installed_packages(tmp_path, newer)
    found = [package[:2] for package in ast.literal_eval(said)["packages"] if package[2] == str(tmp_path)]
    assert sorted(found) == [["odd", "unknown"], ["whole", "1.0"]]
    assert InstalledPackages.from_output(said).python_path == str(tmp_path)


@pytest.mark.parametrize(
    ("torch", "name", "version", "wrong"),
    [
        ("2.7.1+rocm6.2.4", "torchvision", "0.22.1+rocm6.2.4", False),
        ("2.7.1+rocm6.2.4", "torchvision", "0.22.1+rocm6.1", True),
        ("2.7.1+rocm6.2.4", "torchvision", "0.22.1+cu126", True),
        ("2.7.1+rocm6.2.4", "nvidia-cublas-cu12", "12.6.4.1", True),
        ("2.7.1+rocm6.2.4", "jax-cuda12-plugin", "0.7.2", True),
        ("2.7.1+cu124", "torchaudio", "2.7.1+cu126", True),
        ("2.7.1", "torchaudio", "2.7.1+cu126", False),
        ("2.7.1+cpu", "einops", "0.8", False),
    ],
)
def test_packages_for_other_gpu_software_are_reported(torch, name, version, wrong):
    """A package for another ROCm or CUDA than that of the image's torch is reported with both versions."""
    image = InstalledPackages({"torch": ("torch", torch, "/opt"), name: (name, version, "/user-software/x")})
    texts = image.select(lambda other: other == name).for_other_gpu(image)
    assert texts == ([f"{name} {version}, but the torch it is used with is {torch}"] if wrong else [])


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("cuda", "jax-cuda12-plugin nvidia-nccl-cu12 nvidia-cublas nvidia-cuda-runtime cudf-cu12 cuda-bindings"),
        ("rocm", "jax-rocm7-plugin cupy-rocm-5-0 pytorch-triton-rocm amdsmi"),
        # these work without CUDA
        (None, "nvidia-ml-py nvidia-modelopt cuda-checkpoint jax einops"),
    ],
)
def test_what_a_package_is_built_for(kind, names):
    """I-04, S002-19: the packages of CUDA and ROCm, by name; XGBoost needs NCCL on every machine, and works without."""
    for name in names.split():
        assert built_for(name, "1.0") == kind, name
        assert built_for(name, "1.0+cpu") == "cpu"
        assert built_for(name, "1.0", {"xgboost"}) == (None if name == "nvidia-nccl-cu12" else kind)
