"""A Slurm cluster of two nodes on this machine: real daemons, private to one test process."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

NODES = ("nid001001", "nid001002")

# more than this machine has, so that scripts for large sites are accepted; Slurm only counts them here
CPUS, MEMORY, GPUS = 128, 600000, 8

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}
SlurmctldAddr=127.0.0.1
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge/socket
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
KillWait=5
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=2,batch_sched_delay=1
DefMemPerCPU=100
GresTypes=gpu
NodeName=DEFAULT CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus}
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]}
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]}
PartitionName=small Nodes=ALL Default=YES State=UP
PartitionName=standard-g Nodes=ALL State=UP
PartitionName=standard Nodes=ALL State=UP
"""


class Cluster:
    """
    Two nodes with Slurm.

    Parameters
    ----------
    place : Path
        Directory for state, logs and sockets, readable by all because munged runs as another account.
    """

    def __init__(self, place):
        self.place = Path(place)
        self.configuration = self.place / "slurm.conf"
        self.processes = []

    @property
    def environment(self):
        """Variables for Slurm's commands; one thread per rank, because all ranks share the CPUs of this machine."""
        return {"SLURM_CONF": str(self.configuration), "OMP_NUM_THREADS": "1"}

    def start(self):
        """Start the daemons and wait until both nodes accept jobs."""
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.place / name).mkdir()
        self.start_munge()
        self.configuration.write_text(CONFIGURATION.format(
            host=socket.gethostname(), ports=free_ports(3), place=self.place, nodes=NODES, cpus=CPUS, memory=MEMORY,
            gpus=GPUS))
        for index in range(GPUS):
            (self.place / f"gpu{index}").touch()
        gpus = f"NodeName={','.join(NODES)} Name=gpu File={self.place}/gpu[0-{GPUS - 1}]\n"
        (self.place / "gres.conf").write_text(gpus)
        self.daemon("slurmctld", "-D", "-f", self.configuration)
        for node in NODES:
            self.daemon("slurmd", "-D", "-f", self.configuration, "-N", node)
        self.wait_for(lambda: self.slurm("sinfo", "-h", "-t", "idle", "-o", "%D", "-p", "small").strip() == "2")

    def start_munge(self):
        """Start a private munged, which refuses to run as root."""
        place = self.place / "munge"
        place.mkdir()
        (place / "key").write_bytes(os.urandom(128))
        (place / "key").chmod(0o400)
        for path in (place, place / "key"):
            shutil.chown(path, "munge", "munge")
        self.daemon(
            "munged", "--foreground", f"--socket={place}/socket", f"--key-file={place}/key", f"--pid-file={place}/pid",
            f"--log-file={place}/log", f"--seed-file={place}/seed", account="munge")
        self.wait_for((place / "socket").exists)

    def daemon(self, *command, account="root"):
        """Start a daemon in the foreground, so that it can be stopped as a child process."""
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        with (self.place / "daemons.log").open("a") as log:
            self.processes.append(subprocess.Popen(
                [str(word) for word in command], env={"PATH": path}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, user=account, group=account, extra_groups=[]))

    def wait_for(self, condition, seconds=60):
        """Wait until a condition is true."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"Slurm does not come up:\n{(self.place / 'daemons.log').read_text()[-3000:]}")
            time.sleep(0.1)

    def slurm(self, *command):
        """Return the output of a Slurm command."""
        return subprocess.run(
            [str(word) for word in command], env={**os.environ, **self.environment}, capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL, timeout=60).stdout

    def stop(self):
        """Stop everything that was started, in reverse order."""
        subprocess.run(["scancel", "--user=root", "--signal=KILL"], env={**os.environ, **self.environment}, check=False,
                       timeout=60)
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.place, ignore_errors=True)


def free_ports(number):
    """Return ports on which nothing listens."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
