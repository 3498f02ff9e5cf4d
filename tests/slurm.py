"""A Slurm cluster of four nodes on this machine: real daemons of root, private to one test process.

The nodes share all files but those in `Cluster.local`, where each has a file system of its own. Jobs are those of the
account that runs the tests.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from account import as_root
from support import attempt, in_background, printed, until

# those of the usual partitions, and all, those of the partition wide
NODES = ("nid001001", "nid001002")
ALL_NODES = (*NODES, "nid001003", "nid001004")

# more than this machine has, so that scripts for large sites are accepted; Slurm only counts them here
CPUS, MEMORY, GPUS = 128, 600000, 8

# Starts a daemon with a file system of its own in a directory.
WITH_LOCAL = 'mount -t tmpfs -o size=2g,mode=1777 tmpfs "$1" && shift && exec "$@"'

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}
SlurmctldAddr=127.0.0.1
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge/socket,cred_expire=10
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
FirstJobId={first_job}
# as by default: on a busy machine, a rank that is asked to end may take longer than a few seconds
KillWait=30
SlurmdParameters=config_overrides
# jobs that return to the queue start when Slurm looks there the next time
SchedulerParameters=sched_min_interval=2,batch_sched_delay=1,sched_interval=2
DefMemPerCPU=100
GresTypes=gpu
NodeName=DEFAULT CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus}
NodeName={all_nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_ports}
PartitionName=small Nodes={nodes} Default=YES State=UP
PartitionName=standard-g Nodes={nodes} State=UP
PartitionName=standard Nodes={nodes} State=UP
PartitionName=wide Nodes=ALL State=UP
"""


class Cluster:
    """Four nodes with Slurm, whose directory for state, logs and sockets all accounts can read."""

    def __init__(self):
        # whose jobs end with it
        self.person = pwd.getpwuid(os.geteuid()).pw_name
        with as_root():
            self.place = Path(tempfile.mkdtemp(prefix="ebsif-slurm-"))
            self.place.chmod(0o755)
        self.configuration = self.place / "slurm.conf"
        self.local = self.place / "local"
        self.processes = []
        self.nodes = {}

    @property
    def environment(self):
        """Variables for Slurm's commands; one thread per rank, because all ranks share the CPUs of this machine."""
        return {"SLURM_CONF": str(self.configuration), "OMP_NUM_THREADS": "1"}

    @as_root()
    def start(self):
        """Start the daemons and wait until all nodes accept jobs."""
        for name in ("state", "local", *(f"spool-{node}" for node in ALL_NODES)):
            (self.place / name).mkdir()
        self.start_munge()
        ports = free_ports(1 + len(ALL_NODES))
        nodes = {"nodes": ",".join(NODES), "all_nodes": ",".join(ALL_NODES)}
        nodes["node_ports"] = ",".join(map(str, ports[1:]))
        there = {"host": socket.gethostname(), "port": ports[0], "first_job": first_job(), "place": self.place}
        counts = {"cpus": CPUS, "memory": MEMORY, "gpus": GPUS}
        self.configuration.write_text(CONFIGURATION.format(**there, **counts, **nodes))
        for index in range(GPUS):
            (self.place / f"gpu{index}").touch()
        gpus = f"NodeName={','.join(ALL_NODES)} Name=gpu File={self.place}/gpu[0-{GPUS - 1}]\n"
        (self.place / "gres.conf").write_text(gpus)
        # Slurm uses no control groups here. By itself it chooses the plugin for version 2 where that is mounted, which
        # fails in a container without systemd.
        (self.place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.daemon("slurmctld", "-D", "-f", self.configuration)
        for node in ALL_NODES:
            self.start_node(node)
        self.wait_for(self.is_idle)

    @as_root()
    def start_node(self, name):
        """Start the daemon of a node."""
        own = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", WITH_LOCAL, "sh", self.local]
        self.nodes[name] = self.daemon(*own, "slurmd", "-D", "-f", self.configuration, "-N", name)

    @as_root()
    def on(self, name, *command):
        """Return the output of a command that sees the files of a node."""
        command = ["nsenter", f"--target={self.nodes[name].pid}", "--mount", *map(str, command)]
        return printed(command, stdin=subprocess.DEVNULL, timeout=300)

    @as_root()
    def kill_node(self, name, ranks):
        """Let a node die with the processes of ranks on it (list of int), and tell Slurm, as a health check would."""
        self.nodes[name].kill()
        doomed = set()
        for process in ranks:
            while command(process) and not command(process).startswith("slurmd"):
                doomed.add(process)
                process = parent(process)
                if command(process).startswith("slurmstepd"):
                    doomed.add(process)
                    break
        for process in sorted(doomed):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.slurm("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=killed")

    @as_root()
    def tasks(self, job):
        """Return the first processes of the tasks in the steps of a job (list of int)."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                if (
                    f"SLURM_JOB_ID={job}".encode() in variables
                    and any(variable.startswith(b"SLURM_STEP_ID=") for variable in variables)
                    and command(parent(folder.name)).startswith("slurmstepd")
                ):
                    found.append(int(folder.name))
        return found

    @as_root()
    def revive(self, name):
        """Start a node again that has died."""
        self.start_node(name)
        self.slurm("scontrol", "update", f"NodeName={name}", "State=RESUME")
        self.wait_for(self.is_idle)

    def is_idle(self):
        """Return whether all nodes are free."""
        return self.slurm("sinfo", "-h", "-t", "idle", "-o", "%D", "-p", "wide").strip() == str(len(ALL_NODES))

    def start_munge(self):
        """Start a private munged, which refuses to run as root."""
        place = self.place / "munge"
        place.mkdir()
        (place / "key").write_bytes(os.urandom(128))
        (place / "key").chmod(0o400)
        for path in (place, place / "key"):
            shutil.chown(path, "munge", "munge")
        # below a directory of the account that runs the tests, which it would refuse
        files = [f"--{name}-file={place}/{name}" for name in ("key", "pid", "log", "seed")]
        self.daemon("munged", "--force", "--foreground", f"--socket={place}/socket", *files, account="munge")
        self.wait_for((place / "socket").exists)

    def daemon(self, *command, account="root"):
        """Start a daemon in the foreground, so that it can be stopped as a child process."""
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        options = {"env": {"PATH": path}, "user": account, "group": account, "extra_groups": []}
        with (self.place / "daemons.log").open("a") as log:
            self.processes.append(in_background([str(word) for word in command], log, **options))
        return self.processes[-1]

    def wait_for(self, condition, seconds=300):
        """Wait until a condition is true."""
        log = self.place / "daemons.log"
        until(condition, seconds, lambda: f"Slurm does not come up:\n{log.read_text()[-3000:]}")

    def slurm(self, *command):
        """Return the output of a Slurm command."""
        return attempt([str(word) for word in command], env={**os.environ, **self.environment}, timeout=300).stdout

    @as_root()
    def stop(self):
        """Stop everything that was started, in reverse order."""
        self.slurm("scancel", f"--user={self.person}", "--signal=KILL")
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.place, ignore_errors=True)


def first_job():
    """
    Return the ID of a cluster's first job, far from those of the other test processes.

    The port where the ranks of a job meet follows from its ID, and all nodes of all clusters are this machine.
    """
    return 1 + 300 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def command(process):
    """Return the command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def parent(process):
    """Return the parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def free_ports(number):
    """Return ports on which nothing listens."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
