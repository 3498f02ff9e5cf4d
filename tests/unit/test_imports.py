"""The program that imports packages in a container, run by the Python of the tests."""

import ast
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container import missing
from easybuild.easyblocks.generic.container.smoketest import remedy
from support import CONTAINER_FILES, add_package, printed, until

PROGRAM = CONTAINER_FILES / "site-packages/ebsif_imports.py"


def imported(folder, program, **request):
    """Return what the program finds of packages in a folder."""
    command = [sys.executable, "-", json.dumps(request)]
    return json.loads(printed(command, input=program, env={"PYTHONPATH": str(folder)}))


@pytest.fixture
def tried(tmp_path):
    """A function that returns what the program finds of packages, given by name with the text of their module."""

    def run(packages, files=None, requires=(), **request):
        for name, text in packages.items():
            paths = (files or {}).get(name, [f"{name}.py"])
            add_package(tmp_path, name, files=dict.fromkeys(paths, text), needs=requires)
        return imported(tmp_path, PROGRAM.read_text(), names=list(packages), **request)

    return run


def test_a_process_that_is_left_behind(tried, tmp_path):
    """F-10: what a package starts when it is imported ends with the import, and nobody waits for it."""
    leave = """
        import os, time
        if not os.fork():
            %s
            open('%s.%%d' %% os.getpid(), 'w').close()
            time.sleep(600)
        """
    started = time.monotonic()
    # in the session of the import, or in its own
    found = tried(
        {
            "stays": textwrap.dedent(leave % ("pass", tmp_path / "started")),
            "daemon": textwrap.dedent(leave % ("os.setsid()", tmp_path / "daemon")),
            "ignores": "import signal, time\nsignal.alarm(0)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "time.sleep(600)",
        },
        limit=2,
    )
    assert time.monotonic() - started < 60
    assert (found["problems"], found["slow"]) == ([], ["ignores"])
    (daemon,) = [int(path.suffix[1:]) for path in tmp_path.glob("daemon.[0-9]*")]
    os.kill(daemon, signal.SIGKILL)
    for path in tmp_path.glob("started.[0-9]*"):
        # a busy machine ends it later
        until(lambda path=path: has_ended(path.suffix[1:]), 10)


def has_ended(process):
    """Return whether a process has ended; its parent may not have asked for its status yet."""
    try:
        return Path("/proc", process, "stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("name", "files", "module"),
    [
        ("PyYAML", ["_yaml/__init__.py", "yaml/__init__.py", "yaml/nodes.py"], "yaml"),
        ("protobuf", ["google/protobuf/__init__.py", "google/protobuf/pyext/__init__.py"], "google.protobuf"),
        ("lightning", ["lightning/__init__.py", "tests/__init__.py", "setup.py"], "lightning"),
        ("ipykernel", ["ipykernel/__init__.py", "ipykernel_launcher.py"], "ipykernel"),
        ("flash-attn", ["flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "flash_attn/__init__.py"], "flash_attn"),
        # nothing to import
        ("nvidia-nccl-cu12", ["nvidia/nccl/__init__.py"], None),
        ("data", ["share/data.txt"], None),
    ],
)
def test_which_module_is_imported(tried, name, files, module):
    """F-10: the module comes from the list of files, whatever the package is called."""
    found = tried({name: "raise ValueError('here')"}, {name: files})
    assert [one["modules"] for one in found["problems"]] == ([[module]] if module else [])


def test_how_imports_end(tried):
    """F-10: what crashes or ends Python is found, and the others are imported; one may only fail after another."""
    packages = {"first": "import sys; sys.taken = 1", "second": "import sys; assert not hasattr(sys, 'taken')"}
    packages.update(crashes="import os; os.abort()", leaves="import os; os._exit(0)", exits="raise SystemExit(3)")
    packages.update(prints="print('{}')", byhand="import nothing_like_it", last="1 / 0")
    found = tried(packages)
    assert {one["names"][0]: one["error"] for one in found["problems"]} == {
        "crashes": "Python crashes (signal 6)",
        "leaves": "Python ends with exit status 0",
        "exits": "SystemExit: 3",
        "last": "ZeroDivisionError: division by zero",
    }
    assert found["without"] == {"byhand": "nothing_like_it"}


def test_an_import_that_takes_too_long(tried):
    """F-10: what doesn't end within the limit is no problem, but named."""
    found = tried({"first": "", "slow": "import time; time.sleep(60)", "third": ""}, limit=1)
    assert (found["problems"], found["slow"]) == ([], ["slow", "third"])


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        ("ImportError('libcuda.so.1: cannot open shared object file')", ["cuda"]),
        ("RuntimeError('No HIP GPUs')", []),
        ("ImportError('libX.so.6: cannot open shared object file')", []),
        ("RuntimeError('No HIP GPUs are available')", ["rocm"]),
    ],
)
def test_the_hardware_of_this_machine(tried, error, kinds):
    """F-10: the absence of a GPU is recognized by the message; a library that the image lacks is named."""
    (problem,) = tried({"fast": f"raise {error}"})["problems"]
    assert problem["gpu"] == kinds
    assert problem["why"] == (f"the image has no {error.split(chr(39))[1].split(':')[0]}" if "lib" in error else "")


def test_a_library_of_the_system(tried):
    """V-04: where wheels leave a library to the system, its package is named; ImportError of opencv-python."""
    (problem,) = tried({"cv2": "raise ImportError('libGL.so.1: cannot open shared object file')"})["problems"]
    assert problem["why"] == "the image has no libGL.so.1"
    assert remedy(problem).endswith("\n    ebsif extend ... --apt libgl1")


def test_all_libraries_of_the_system_at_once(tried, tmp_path, monkeypatch):
    """V-04: what a compiled module lacks is named at once; not what the process has loaded."""

    def link(name, *options):
        command = ["gcc", "-shared", "-x", "c", "-", "-o", tmp_path / name, *options]
        subprocess.run(command, input="", text=True, check=True)

    names = ("libone.so.1", "libtwo-2.0.so.0", "libsame.so.3", "libunknown.so.7", "libthere.so.1")
    for name in names:
        link(name, f"-Wl,-soname,{name}")
    link("native.so", "-x", "none", "-Wl,--no-as-needed", *(tmp_path / name for name in names))
    loaded = tmp_path / "elsewhere/libthere.so.1"
    loaded.parent.mkdir()
    (tmp_path / loaded.name).rename(loaded)
    for path in tmp_path.glob("lib*"):
        path.unlink()
    text = f"import ctypes; ctypes.CDLL({str(loaded)!r}); import native\n"
    (problem,) = tried({"cv2": text})["problems"]
    assert sorted(problem["libraries"]) == ["libone.so.1", "libsame.so.3", "libtwo-2.0.so.0", "libunknown.so.7"]
    monkeypatch.setattr(missing, "LIBRARIES", {"libone.so.1": "one", "libtwo-2.0.so.0": "two", "libsame.so.3": "one"})
    said = remedy(problem)
    assert said.endswith("find out which of its packages has libunknown.so.7:\n    ebsif extend ... --apt one two")
    assert "another version" not in said


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("ImportError('failed to find libmagic.  Check your installation')", "--apt libmagic1"),
        ("OSError('PortAudio library not found')", "--apt libportaudio2"),
        ("ModuleNotFoundError(\"No module named 'pkg_resources'\", name='pkg_resources')", "--add 'setuptools<81'"),
        ("ImportError('libnobody.so.1: cannot open shared object file')", "another version of mine, or leave it out"),
    ],
)
def test_what_is_known_to_help(tried, error, expected):
    """V-04: a library that the package looks for itself, a module of another package."""
    (problem,) = tried({"mine": f"raise {error}"}, requires=["pkg_resources"])["problems"]
    said = remedy(problem)
    assert expected in said
    assert ("another version" in said) == ("another version" in expected)


INDEX = "--extra-index-url https://download.pytorch.org/whl/"


@pytest.mark.parametrize(
    ("torch", "version", "lines"),
    [
        ("2.8+cpu", "1.0", [f"{INDEX}cpu", "torchvision==1.0+cpu"]),
        ("2.8+rocm6.2.4", "1.0+cu128", [f"{INDEX}rocm6.2.4", "torchvision==1.0+rocm6.2.4"]),
        ("2.8+cu128", "1.0", [f"{INDEX}cu128", "torchvision==1.0+cu128"]),
        ("2.8+git1234", "1.0", []),
        ("2.8+cpu", "1.0+cpu", None),
        ("2.8", "1.0", None),
    ],
)
def test_builds_for_another_torch(torch, version, lines):
    """F-10: the index follows from the label of torch; not every label has one."""
    code = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})
        import ebsif_imports
        ebsif_imports.version_of = lambda name: {torch!r}
        class Vision:
            metadata, version, files = {{'Name': 'torchvision'}}, {version!r}, ['vision/_C.so']
            requires = ['torchdata', 'torch==2.8']
        print(ebsif_imports.for_other_torch(Vision))
    """)
    why, found = ast.literal_eval(printed([sys.executable, "-c", code]))
    assert found == (lines or [])
    assert bool(why) == (lines is not None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torchaudio", f"\n    ebsif extend ... --add '{INDEX}cpu' torchaudio==1.0+cpu"),
        ("torch-harmonics", "Ask for another version of torch-harmonics, or leave it out. Or build it here, if the"),
        ("torch-harmonics", "--add torch-harmonics==1.0 '--no-binary torch-harmonics' --no-build-isolation"),
    ],
)
def test_only_pytorch_publishes_builds_for_each_torch(tried, tmp_path, name, expected):
    """F-10: PyTorch's index is only named for PyTorch's own packages; others can be built."""
    add_package(tmp_path, "torch", "2.8+cpu")
    module = name.replace("-", "_")
    files = {name: [f"{module}/__init__.py", f"{module}/_C.so"]}
    (problem,) = tried({name: "1 / 0"}, files, ["torch==2.8"])["problems"]
    assert expected in remedy(problem)


COMPILED = ["torchvision/__init__.py", "torchvision/_C.so"]


@pytest.mark.parametrize(
    ("files", "requires", "is_tried"),
    [(COMPILED, "torch==2.13.0", True), (COMPILED[:1], "torch==2.13.0", False), (COMPILED, "torchdata", False)],
)
def test_what_is_built_for_torch_is_tried_too(tmp_path, files, requires, is_tried):
    """F-10: lightly imports torchvision late; that it can't be imported is found although nobody asked for it."""
    folder = tmp_path / "site-packages"
    wrong = dict.fromkeys(files, "raise RuntimeError('no nms')")
    add_package(folder, "torchvision", files=wrong, needs=[requires])
    add_package(folder, "lightly", files={"lightly.py": ""}, needs=[requires])
    program = PROGRAM.read_text().replace("'/user-software'", repr(str(tmp_path)))
    problems = imported(folder, program, names=["lightly"])["problems"]
    assert [one["names"] for one in problems] == ([["torchvision"]] if is_tried else [])
