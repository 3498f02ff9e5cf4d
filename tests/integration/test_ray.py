"""Ray on the nodes of a Slurm job, with the Ray of the package index."""

import contextlib
import pwd
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from account import as_root
from slurm import NODES
from support import CHECKOUT
from training import MODULE

RAY = "ray[data,tune,serve,rllib]==2.60.0"

# Uses both nodes, then tries to join with another token, and ends with a status of its own.
TUNE = """
import os, subprocess, sys
import ray

ray.init(logging_level="error")
nodes = [one for one in ray.nodes() if one["Alive"]]
print("nodes", len(nodes), "CPUs", ray.cluster_resources()["CPU"], flush=True)

@ray.remote(num_cpus=2)
def node():
    import time
    time.sleep(1)
    return os.environ["SLURMD_NODENAME"], "RANK" in os.environ

found = ray.get([node.remote() for _ in nodes])
print("tasks", sorted(found), flush=True)
other = {**os.environ, "RAY_AUTH_TOKEN": "0" * 64}
del other["RAY_AUTH_TOKEN_PATH"]
join = [sys.executable, "-c", "import ray; ray.init(logging_level='error'); print('joined')"]
stranger = subprocess.run(join, env=other, capture_output=True, text=True, timeout=100)
print("stranger", stranger.returncode != 0 and "joined" not in stranger.stdout, flush=True)
sys.exit(5)
"""


def processes_of_ray():
    """Return the command lines of Ray's processes on this machine, but not of what stands in for them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return [one for one in found if b"session_dir" in one or b"session-dir" in one]


# Runs tasks on both nodes until a file says that it ends; USR1 ends it successfully, so that it can be started again.
STAY = """
import os, signal, sys, time
import ray

name, asked = sys.argv[1], []
# to exit while Ray waits for something would crash it
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
ray.init(logging_level="error")
with open(f"{name}-address", "w") as file:
    file.write(os.environ["RAY_ADDRESS"])

@ray.remote
def one():
    return 1

while not asked and not os.path.exists(f"{name}-ends"):
    assert len([one for one in ray.nodes() if one["Alive"]]) == 2
    assert ray.get([one.remote() for _ in range(4)]) == [1] * 4
    with open(f"{name}-runs", "w") as file:
        file.write(str(time.time()))
    time.sleep(0.2)
print("ended")
"""

# An application of Ray Serve, and what asks it by the address that OpenAI's clients read.
APP = """
from ray import serve

@serve.deployment(num_replicas=2)
class Answer:
    async def __call__(self, request):
        return "answers " + request.url.path

app = Answer.bind()
"""
ASK = """
import os, urllib.request
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/x")
request.add_header("Authorization", "Bearer " + os.environ["OPENAI_API_KEY"])
print("Serve", urllib.request.urlopen(request).read().decode())
"""

# What another account tries, with Ray's own programs, without a token and with another one.
JOIN = """
import os, subprocess, sys
import ray

address = sys.argv[1]
send = [sys.executable, "-c", "import ray; ray.init('%s', logging_level='error'); print('inside')" % address]
join = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", address, "--num-cpus=1"]
for what, words in (("send", send), ("join", join)):
    for token in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}):
        tried = subprocess.run(words, env={**os.environ, **token}, capture_output=True, text=True, timeout=200)
        said = tried.stdout + tried.stderr
        refused = tried.returncode and "inside" not in said
        print(what, token["RAY_AUTH_MODE"], "refused" if refused else "admitted", said[-2000:], flush=True)
"""

# Another account, which can start containers.
OTHER = "nobody"
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


@pytest.fixture(scope="module")
def with_ray(training):
    """The module with Ray and what its libraries need."""
    folder = training.site.work
    wheels = ["--only-binary=:all:", "--python-version=3.11", "--dest", folder / "ray-wheels"]
    training.site.run(["pip", "download", "--quiet", *wheels, RAY])
    training.run(f"singularity exec $SIF pip install -q --no-index -f ray-wheels '{RAY}'")
    for name, text in (("tune", TUNE), ("stay", STAY), ("join", JOIN), ("app", APP), ("ask_app", ASK)):
        (folder / f"{name}.py").write_text(text)
    for path in (CHECKOUT / "docs/examples").glob("ray_*.py"):
        (folder / path.name).write_text(path.read_text())
    return training


def script(training, *words, options="--nodes 2 --launcher ray"):
    """Return the script of a job with Ray."""
    return training.run(f"ebsif job {MODULE} --site bound --catalog sites {options} -- {' '.join(words)}").stdout


@pytest.mark.nightly
def test_ray_on_two_nodes(with_ray):
    """Y-01, Y-02: one node of Ray on each node, closed to others; the program's status counts, and nothing stays."""
    before = set(Path("/tmp").glob("ray.*"))
    status, output = with_ray.batch("ray", script(with_ray, "tune.py"))
    assert status == 5, output
    said = dict(re.findall("^(nodes|tasks|stranger) (.*)$", output, re.MULTILINE))
    assert said == {"nodes": "2 CPUs 4.0", "tasks": str([(name, False) for name in NODES[:2]]), "stranger": "True"}
    assert processes_of_ray() == []
    assert set(Path("/tmp").glob("ray.*")) <= before


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "options", "expected"),
    [
        (["ray_tune.py"], "--nodes 2 --launcher ray", "best rate: 0.3"),
        (["ray_data.py"], "--nodes 2 --launcher ray", "sum: 333328333350000 nodes: "),
        (["ray_learn.py"], "--nodes 2 --launcher ray", "step 9 return "),
        # Y-03: a real server
        (["ask_app.py"], "--nodes 2 --launcher ray --server 'serve run app:app'", "Serve answers /v1/x"),
    ],
)
def test_libraries_of_ray(with_ray, words, options, expected):
    """Y-01, Y-03: Tune, Data, RLlib and Serve on two nodes; nothing of them stays."""
    status, output = with_ray.batch("ray", script(with_ray, *words, options=options))
    assert (status, expected in output) == (0, True), output
    assert processes_of_ray() == []


def as_other(training, script, *words):
    """Run a script as another account with the module loaded; return what it printed, errors included."""
    site = training.site
    script = f"{site.tool.init}\nmodule use {site.modules}\nmodule load {MODULE}\n{script}"
    with as_root():
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", script, "bash", *map(str, words)],
            env={"HOME": "/tmp", "PATH": site.environment["PATH"]},
            cwd="/",
            user=OTHER,
            group=pwd.getpwnam(OTHER).pw_gid,
            extra_groups=[],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout


@pytest.mark.nightly
def test_two_jobs_beside_each_other(with_ray):
    """Y-01, Y-02: two jobs on the same nodes; the end of one, USR1 and a second start leave the other one alone."""
    folder, slurm = with_ray.site.work, with_ray.cluster.slurm

    def runs(name, since):
        end = time.monotonic() + 120
        while not ((path := folder / f"{name}-runs").exists() and float(path.read_text() or 0) > since):
            assert time.monotonic() < end, [path.read_text()[-3000:] for path in folder.glob("stay-*.out")]
            time.sleep(0.2)

    before = set(Path("/tmp").glob("ray.*"))
    jobs = {}
    for name in ("one", "two"):
        (folder / f"{name}.sh").write_text(
            script(
                with_ray, f"stay.py {name}", options="--nodes 2 --launcher ray --signal 60 --requeue --cpus-per-task 1"
            )
        )
        jobs[name] = with_ray.run(f"sbatch --parsable --output=stay-{name}.out {name}.sh").stdout.split()[-1]
    try:
        for name in jobs:
            runs(name, 0)
        folders = [*set(Path("/tmp").glob("ray.*")) - before]
        sockets = [path for one in folders for path in one.glob("ray/session_2*/sockets/*")]
        tokens = [path for one in folders for path in one.glob("token-*")]
        assert sockets and tokens
        for path in (*folders, *tokens, *sockets):
            assert "Permission denied" in as_other(with_ray, 'ls "$1"', path)
        for path in sockets:
            assert "Permission denied" in as_other(with_ray, f"{sys.executable} -c '{CONNECT}' \"$1\"", path)
        address = (folder / "one-address").read_text()
        said = as_other(with_ray, 'singularity exec -B "$1" $SIF python "$1" "$2"', folder / "join.py", address)
        tried = [f"{what} {mode} refused" for what in ("send", "join") for mode in ("disabled", "token")]
        assert re.findall("^(?:send|join) .*(?:refused|admitted)", said, re.MULTILINE) == tried, said
        # the first one is started again, and then ends
        slurm("scancel", "--batch", "--signal=USR1", jobs["one"])
        time.sleep(5)
        runs("one", time.time())
        (folder / "one-ends").touch()
        end = time.monotonic() + 120
        while "COMPLETED" not in slurm("scontrol", "show", "job", jobs["one"]):
            assert time.monotonic() < end, (folder / "stay-one.out").read_text()[-3000:]
            time.sleep(0.5)
        assert "Restarts=1" in slurm("scontrol", "show", "job", jobs["one"])
        runs("two", time.time())
    finally:
        slurm("scancel", *jobs.values())
    end = time.monotonic() + 60
    while processes_of_ray() or set(Path("/tmp").glob("ray.*")) - before:
        assert time.monotonic() < end
        time.sleep(0.5)
