"""Ray on the nodes of a Slurm job, with the Ray of the package index."""

import contextlib
import re
from pathlib import Path

import pytest
from slurm import NODES
from training import MODULE

# Ray, and what it imports, as far as the image lacks it.
RAY = (
    "ray==2.60.0",
    "attrs",
    "click",
    "jsonschema",
    "jsonschema-specifications",
    "msgpack",
    "packaging",
    "protobuf",
    "pyyaml",
    "referencing",
    "requests",
    "rpds-py",
    "urllib3",
    "idna",
    "charset-normalizer",
    "certifi",
)

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


@pytest.mark.nightly
def test_ray_on_two_nodes(training):
    """Y-01, Y-02: one node of Ray on each node, closed to others; the program's status counts, and nothing stays."""
    folder, before = training.site.work, set(Path("/tmp").glob("ray.*"))
    (folder / "tune.py").write_text(TUNE)
    wheels = ["--only-binary=:all:", "--python-version=3.11", "--dest", folder / "ray-wheels"]
    training.site.run(["pip", "download", "--quiet", "--no-deps", *wheels, *RAY])
    training.run("singularity exec $SIF pip install -q --no-deps --no-index ray-wheels/*.whl")
    job = f"ebsif job {MODULE} --site bound --catalog sites --nodes 2 --launcher ray -- tune.py"
    status, output = training.batch("ray", training.run(job).stdout)
    assert status == 5, output
    said = dict(re.findall("^(nodes|tasks|stranger) (.*)$", output, re.MULTILINE))
    assert said == {"nodes": "2 CPUs 4.0", "tasks": str([(name, False) for name in NODES[:2]]), "stranger": "True"}
    assert processes_of_ray() == []
    assert set(Path("/tmp").glob("ray.*")) <= before
