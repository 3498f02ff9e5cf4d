"""Jupyter kernels of modules: on the host, without the module loaded, and in the container."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from account import as_root
from support import CHECKOUT, attempt, make_wheel

SESSION = CHECKOUT / "tests/kernel_session.py"
MODULE = "Example/1.0-squashed"


@pytest.fixture
def jupyter(installed_once, tmp_path):
    """A function that runs ebsif or the session with a list of kernels of its own, without a modules tool."""
    site = installed_once.site

    def run(*arguments, check=True, cwd=None, **environment):
        known = {name: value for name, value in site.environment.items() if name in ("PATH", "HOME", "LC_ALL")}
        own = {
            "MODULEPATH": site.modules,
            "JUPYTER_DATA_DIR": tmp_path / "jupyter",
            "TMPDIR": tmp_path,
            "EBSIF_NODE_LOCAL": tmp_path,
        }
        # a kernel that stays would keep its output open
        variables = {**known, **{name: str(value) for name, value in {**own, **environment}.items()}}
        result = attempt([str(one) for one in arguments], timeout=300, cwd=cwd or tmp_path, env=variables)
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result

    return run


def outputs(result):
    """Return the texts and the types of messages that a session printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def session(jupyter, name, *steps, **more):
    """Run steps in a kernel."""
    return jupyter(sys.executable, SESSION, name, *steps, **more)


def test_life_of_a_kernel(installed_once, own_software, jupyter, tmp_path):
    """
    J-01, J-02, J-03, J-05, J-10, T-01: with the user's software, in the notebook's directory, with the job's variables
    and caches, without those of another module; interrupted, restarted and ended.
    """
    own = {"EBSIF_USER_SOFTWARE": own_software}
    said = jupyter("ebsif", "kernel", "install", MODULE, "--name", "mine", **own).stderr
    assert said == f"Jupyter offers {MODULE} as the kernel mine, in {tmp_path}/jupyter/kernels/mine\n"
    assert f"mine  {MODULE}\n    with {own_software}\n" == jupyter("ebsif", "kernel", "list").stdout

    notebooks = tmp_path / "note books"
    notebooks.mkdir()
    # what another container module leaves in the environment of a hub
    loaded = installed_once.load(installed_once.WRITABLE, "env -0").stdout
    ours = "SIF CONTAINER APPTAINER SINGULARITY RUNSCRIPTS EBSIF __EBSIF LOADEDMODULES"
    variables = [one.partition("=")[::2] for one in loaded.split("\0")]
    hub = {name: value for name, value in variables if name.startswith(tuple(ours.split()))}
    about = (
        "import os, greeting, sys; print(os.getcwd(), os.environ['SLURM_JOB_ID'], os.environ['CONTAINERROOT'], "
        "os.environ['EBSIF_MOUNTED_USER_SOFTWARE'], sys.prefix, os.environ['TRITON_CACHE_DIR'], os.getpid(), "
        "os.getppid(), sep='\\n')"
    )
    # what the kernel has started; nothing that has ended is left either
    children = """
import os

def parent(number):
    try:
        return open(f'/proc/{number}/stat').read().rpartition(')')[2].split()[1]
    except OSError:
        return None

try:
    print(os.wait())
except ChildProcessError:
    print('none', *[one for one in os.listdir('/proc') if one.isdigit() and parent(one) == str(os.getpid())])
"""
    sleep = "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('interrupted')"
    comm = "import comm; comm.create_comm(target_name='test').send({'a': 1}); print('x' * 3_000_000)"
    steps = (about, children, "interrupt", sleep, "interrupt", sleep, comm, "restart", "greeting", about)
    job = {"SLURM_JOB_ID": "42", "VIRTUAL_ENV": "/of/the/host"}
    result = session(jupyter, "mine", *steps, cwd=notebooks, **job, **hub)
    (first, _), (waited, _), *interrupted, (large, kinds), (gone, _), (second, _) = outputs(result)
    known, pids = [], []
    for text in (first, second):
        *lines, pid, parent = text.splitlines()
        known.append(lines)
        pids += [int(pid), int(parent)]
    assert known == 2 * [
        [
            str(notebooks),
            "42",
            str(installed_once.root(MODULE)),
            f"{own_software}/user-software.squashfs",
            "/user-software/venv/pytorch",
            f"{hub['EBSIF_NODE_LOCAL']}/ebsif-{os.getuid()}/job-42/triton",
        ]
    ]
    assert waited == "none"
    assert [text for text, _ in interrupted] == 2 * ["interrupted"]
    assert len(large) == 3_000_000
    assert {"comm_open", "comm_msg"} <= set(kinds)
    assert gone == "NameError"
    # neither the kernel nor the runtime, which unmounts the image at its end, is left
    until = time.time() + 300
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.time() < until:
        time.sleep(0.1)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], result.stderr
    assert str(own_software) not in Path("/proc/mounts").read_text()

    assert jupyter("ebsif", "kernel", "remove", "mine").stderr == f"removed the kernel mine of {MODULE}\n"
    assert not (tmp_path / "jupyter/kernels/mine").exists()


# Waits until another process has moved it into a control group, then becomes a command.
BECOME = 'echo $$ >pid.new; mv pid.new pid; until grep -q "$0" "/proc/$$/cgroup"; do sleep 0.1; done; exec "$@"'
MOVE = 'until [ -e pid ]; do sleep 0.1; done; cat pid >"$0/cgroup.procs"'


@pytest.fixture
def job(tmp_path):
    """
    A control group with 400 MB of memory, as Slurm makes one for a job; at the end nothing may be left in it.

    Root, as in a job, moves a process there that writes its number into the file `pid`.
    """
    name = f"ebsif-{uuid.uuid4().hex[:8]}"
    older = Path("/sys/fs/cgroup/memory")
    folder = (older if older.is_dir() else older.parent) / name
    with as_root():
        make_group(folder, older.is_dir())
        mover = subprocess.Popen(["sh", "-c", MOVE, folder], cwd=tmp_path)
    yield folder
    with as_root():
        mover.kill()
        mover.wait()
        left = (folder / "cgroup.procs").read_text().split()
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        until = time.time() + 300
        while (folder / "cgroup.procs").read_text() and time.time() < until:
            time.sleep(0.1)
        folder.rmdir()


def make_group(folder, older):
    """Make a control group (Path) of the newer version or the older one."""
    try:
        if not older:
            Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+memory")
        folder.mkdir()
    except OSError as error:
        pytest.fail(f"this test needs a control group for memory: {error}")
    (folder / ("memory.limit_in_bytes" if older else "memory.max")).write_text(str(400 * 1024**2))
    for limit in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
        if (folder / limit).exists():
            (folder / limit).write_text("0" if limit.endswith("max") else str(400 * 1024**2))


@pytest.mark.nightly
def test_a_kernel_that_needs_too_much_memory(own_software, jupyter, job):
    """J-03: the kernel that the memory limit of a job ends is restarted by Jupyter; no process and no mount is left."""
    own = {"EBSIF_USER_SOFTWARE": own_software}
    jupyter("ebsif", "kernel", "install", MODULE, "--name", "mine", **own)
    about, much = "import os; print(os.getpid(), os.getppid())", "text = b'x' * 10 ** 9; print(len(text))"
    result = jupyter("sh", "-c", BECOME, job.name, sys.executable, SESSION, "mine", about, "ends", much, about)
    (first, _), (second, _) = outputs(result)
    assert not {*first.split()} & {*second.split()}
    until = time.time() + 300
    while (job / "cgroup.procs").read_text() and time.time() < until:
        time.sleep(0.1)
    # mounts are in namespaces of these processes, and end with them
    assert not (job / "cgroup.procs").read_text()


def test_a_kernel_in_jupyter_of_the_container(installed_once, own_software, jupyter):
    """J-06: Jupyter in the container offers the same kernel, which the module adds to JUPYTER_PATH."""
    code = "import greeting, numpy, sys; print(sys.prefix, greeting.__file__, numpy.__file__)"
    root = installed_once.root(MODULE)
    name = "example-1.0-squashed"
    outside = session(jupyter, name, code, JUPYTER_PATH=root / "share/jupyter", EBSIF_USER_SOFTWARE=own_software)
    command = f"start-shell -c \"python '{SESSION}' {name} '{code}'\""
    inside = installed_once.load(
        MODULE, command, EBSIF_USER_SOFTWARE=own_software, APPTAINER_BIND=f"{SESSION.parent},{own_software}"
    )
    assert outputs(inside) == outputs(outside)
    assert outputs(inside)[0][0].startswith("/user-software/venv/pytorch /user-software/")


def test_a_kernel_of_an_environment(installed_once, own_software, jupyter, tmp_path):
    """J-05: a kernel of an environment of make-venv has its packages beside those of the module."""
    own, venv, wheels = {"EBSIF_USER_SOFTWARE": own_software}, tmp_path / "my venv", installed_once.wheels
    script = f"""
        set -e
        make-venv '{venv}'
        source '{venv}/bin/activate'
        pip install --quiet --no-index --find-links '{wheels}' byhand
    """
    installed_once.load(MODULE, script, APPTAINER_BIND=wheels, **own)
    said = jupyter("ebsif", "kernel", "install", venv, **own).stderr
    assert "as the kernel example-1.0-squashed-my-venv, in" in said
    # the commands of the documentation; there, `mine` is a module, and an environment
    _, commands, *_, start = re.findall(r"^```bash\n(.*?)^```", (CHECKOUT / "docs/jupyter.md").read_text(), re.M | re.S)
    (tmp_path / "mine").symlink_to(venv)
    commands = commands.replace("install mine", f"install {MODULE}") + start.replace(
        "INSTALLATION", str(installed_once.root(MODULE))
    )
    said = jupyter("bash", "-ec", commands, HOME=tmp_path, **own)
    assert f"removed the kernel torch of {MODULE}\n" in said.stderr
    assert re.search(r"\n\d+\.\d+\.\d+\n", said.stdout)
    assert len(list((tmp_path / "lab/share/jupyter/kernels").glob("*/logo-64x64.png"))) == 1
    code = "import byhand, greeting, sys; print(sys.prefix, greeting.__file__)"
    ((text, _),) = outputs(session(jupyter, "example-1.0-squashed-my-venv", code))
    assert text == f"{venv} /user-software/venv/pytorch/lib/python3.11/site-packages/greeting.py"
    shutil.rmtree(venv)
    result = jupyter("ebsif", "kernel", "list", check=False)
    assert result.returncode == 1 and "can't start" in result.stdout
    spec = json.loads((tmp_path / "jupyter/kernels/example-1.0-squashed-my-venv/kernel.json").read_text())
    result = jupyter(*spec["argv"], check=False, **spec["env"])
    assert result.returncode == 1 and "doesn't exist any more" in result.stderr


def test_without_ipykernel(installed_once, jupyter, tmp_path):
    """J-08: installing a kernel and starting one say which command adds ipykernel; mistakes have messages."""
    command = f"ebsif extend {MODULE} --name jupyter --add ipykernel"
    result = jupyter("ebsif", "kernel", "install", MODULE, check=False)
    assert (result.returncode, command in result.stderr) == (3, True), result.stderr
    root = installed_once.root(MODULE)
    result = jupyter(root / "interpreter/python", "-m", "ipykernel_launcher", "-f", tmp_path / "x.json", check=False)
    assert (result.returncode, command in result.stderr) == (1, True), result.stderr
    # the command for user software works as it is printed
    own = {"EBSIF_USER_SOFTWARE": tmp_path / "own"}
    own["EBSIF_USER_SOFTWARE"].mkdir()
    result = jupyter("ebsif", "kernel", "install", MODULE, check=False, **own)
    printed = result.stderr.partition("To add it: ")[2]
    make_wheel(tmp_path, "ipykernel")
    script = f"set -e\n{printed}"
    installed_once.site.bash(script, **own, APPTAINERENV_PIP_NO_INDEX="1", APPTAINERENV_PIP_FIND_LINKS=tmp_path)
    jupyter("ebsif", "kernel", "install", MODULE, "--name", "own", **own)
    jupyter("ebsif", "kernel", "remove", "own")
    folder = tmp_path / "lab"
    (folder / "share/jupyter/kernels/other").mkdir(parents=True)
    for arguments, status, said in (
        (("remove", "nothing"), 3, "has no kernel 'nothing' of a module (there: none)"),
        (("remove", "../x"), 3, "has no kernel"),
        (("remove",), 2, "needs the name of a kernel"),
        (("install", MODULE, "--name", "a b"), 3, "can't be the name of a kernel"),
        (("list", "--name", "x"), 2, "--name is for install"),
    ):
        result = jupyter("ebsif", "kernel", *arguments, check=False)
        assert (result.returncode, said in result.stderr) == (status, True), result.stderr
    assert "no kernel of a module" in jupyter("ebsif", "kernel", "list", "--prefix", folder).stderr
