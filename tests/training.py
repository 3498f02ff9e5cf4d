"""A module with PyTorch, and programs whose ranks meet, for runs on the cluster."""

import json
import re
import sys
from pathlib import Path

import pytest
from parts import TOOLS
from support import CHECKOUT, Site

TRAIN = CHECKOUT / "docs/examples/train.py"
MODULE = "Training/1.0"

# Prints a rank's environment as JSON on one line, with one write because ranks share the output.
SHOW = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURMD_NODENAME",
         "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
         "CUDA_VISIBLE_DEVICES", "NCCL_NET", "NCCL_DEBUG", "PET_NNODES", "PET_NODE_RANK",
         "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST")
found = {name: os.environ[name] for name in names if name in os.environ}
found["cache"] = os.path.isdir(os.environ.get("MIOPEN_USER_DB_PATH", ""))
sys.stdout.write(json.dumps(found) + "\\n")
"""

# Ranks without PyTorch, which takes seconds to start: rank 0 listens on MASTER_PORT and prints who connected.
# Further names are those of other runs: it keeps the port until these have met as well.
MEET = """
import os, signal, socket, sys, time

signal.alarm(600)
rank, name, *others = int(os.environ["RANK"]), *sys.argv[1:]
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", port)) as server:
        came = [server.accept()[0] for _ in range(1, int(os.environ["WORLD_SIZE"]))]
        ranks = sorted([f"{name}-0", *(one.recv(100).decode() for one in came)])
        open(f"met-{name}", "w").close()
        while not all(os.path.exists(f"met-{other}") for other in others):
            time.sleep(0.05)
    sys.stdout.write(f"met: {' '.join(ranks)}\\n")
else:
    while True:
        try:
            with socket.create_connection((os.environ["MASTER_ADDR"], port)) as first:
                first.sendall(f"{name}-{rank}".encode())
                first.recv(1)  # until the first one leaves
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
"""

# The same with PyTorch and gloo.
ALL_REDUCE = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
# in one piece: ranks share the output
sys.stdout.write(f"sum {value.item()} of {dist.get_world_size()}\\n")
dist.destroy_process_group()
"""

# Prints that it has started, then waits; on USR1 it writes a checkpoint, which takes a while, and exits with success.
CHECKPOINT = """
import os, signal, sys, time

def save(*_):
    time.sleep(0.5)
    # one write, because ranks share the output
    os.write(1, f"saved {os.environ['RANK']}\\n".encode())
    sys.exit()

signal.signal(signal.SIGUSR1, save)
open(f"{sys.argv[1]}-{os.environ['RANK']}", "w").close()
time.sleep(300)
"""

# The second CPU is for the first rank of a node.
BOUND_SITE = """
name: bound
description: Bound
scheduler:
  default_partition: small
  partitions:
    small: {tasks: 2, exclusive: true, cpu_masks: ['0x2', '0x1']}
"""


class Training:
    """A module with PyTorch at a site, for runs on the cluster."""

    def __init__(self, site, cluster):
        self.site = site
        self.cluster = cluster

    def run(self, script, check=True, **environment):
        """Run a bash script with the module loaded."""
        # PATH lets the nodes find the runtime, but not the tests' programs
        script = f"module load {MODULE} || exit 99\n{script}"
        return self.site.bash(script, check, **self.cluster.environment, **environment)

    def batch(self, name, script, *options):
        """Submit a batch script, wait until it ends, return (exit status, output)."""
        path = self.site.work / f"{name}.sh"
        path.write_text(script)
        output = self.site.work / f"{name}.out"
        command = f"sbatch --wait --output={output} {' '.join(options)} {path}"
        result = self.site.bash(command, check=False, **self.cluster.environment)
        return result.returncode, output.read_text() if output.exists() else result.stderr


def install(site, image, wheels):
    """Install the module with eb from the image with PyTorch, which is not copied, and add a package by hand."""
    easyconfig = site.easyconfig(
        f"sources = ['{image}']\nimage = 'central'\nimage_dirs = ['{image.parent}']\ninit = 'conda-injected'\n"
        "conda_env = 'pytorch'\nwrappers = ['torchrun']\n",
        name="Training",
    )
    site.eb(easyconfig)
    (site.work / "train.py").write_text(TRAIN.read_text())
    (site.work / "sites/bound").mkdir(parents=True)
    (site.work / "sites/bound/site.yaml").write_text(BOUND_SITE)
    for name, text in (("show", SHOW), ("meet", MEET), ("all_reduce", ALL_REDUCE), ("checkpoint", CHECKPOINT)):
        (site.work / f"{name}.py").write_text(text)
    site.bash(f"module load {MODULE} && singularity exec -B {wheels} $SIF pip install -q --no-index -f {wheels} byhand")


@pytest.fixture(scope="session")
def training(prefix, cluster, wheels, pytorch_image, install_once):
    """The module, on the cluster."""
    site = Site(prefix / "training/site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    install_once("training", site, lambda: install(site, pytorch_image, wheels))
    return Training(site, cluster)


def with_reports(script):
    """Return a script of `ebsif job` whose ranks report their CPUs and GPU, into the output of the job."""
    return re.sub("^# export EBSIF_REPORT=1 .*", "export EBSIF_REPORT=1", script, flags=re.MULTILINE)


def trained(output, ranks):
    """Return whether the documentation's training script has succeeded."""
    return re.search(rf"^ranks: {ranks}, equal weights: True, loss [\d.]+ -> [\d.]+$", output, re.MULTILINE)


def met(output):
    """Return the ranks that have met in each run, in the order of runs."""
    return sorted(re.findall("^met: (.*)$", output, re.MULTILINE))


def shown(output):
    """Return what ranks have printed, by rank."""
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda one: int(one["RANK"]))
