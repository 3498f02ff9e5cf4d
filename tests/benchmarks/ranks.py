"""
The start of 1, 4, 16 and 64 ranks on a node: a container for each, and one for all.

As an ordinary user, for whom the runtime mounts images with file systems in user space, as on most clusters.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from measuring import in_turn, rows
from parts import TOOLS, wheel_settings
from support import Site, make_wheel

ACCOUNT = "daemon"
NUMBERS = (1, 4, 16, 64)

# Notes the time, then waits until everything has been counted.
RANK = """
import os, time
now = time.time()
place, rank = os.environ["EBSIF_TEST_PLACE"], os.environ["SLURM_PROCID"]
with open(f"{place}/rank-{rank}.part", "w") as file:
    file.write(str(now))
os.rename(f"{place}/rank-{rank}.part", f"{place}/rank-{rank}")
while not os.path.exists(f"{place}/go"):
    time.sleep(0.1)
"""

START = """
module load Example/1.0
cd /tmp
for ((rank = 0; rank < SLURM_STEP_NUM_TASKS; rank++)); do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank start-shell -c 'exec python "$1"' python "$EBSIF_TEST_PLACE/rank.py" &
done
echo start
wait
"""


def measure(folder):
    """Measure both in turn, for each number of ranks."""
    place = Path(tempfile.mkdtemp(prefix="ebsif-ranks-"))
    try:
        site = Site(place / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
        make_wheel(place, "greeting")
        image = Path(os.environ["EBSIF_TEST_BASE_IMAGE"])
        shutil.copy(image, site.sources / "example.sif")
        site.eb(site.easyconfig(
            "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nrequirements = ['greeting']\n"),
            **wheel_settings(place))
        subprocess.run(["chmod", "-R", "a+rX", place], check=True)
        return [row for number in NUMBERS for row in compare(site, number)]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def compare(site, number):
    """Measure both for a number of ranks; return the rows."""
    notes = {}

    def contender(name, shared):
        result = start(site, number, shared)
        notes[name] = "{mounts} mounts, {processes} processes, {memory} MB".format(**result)
        return result["seconds"]

    variants = {"a container for each": "", "one for all": "1"}
    times = in_turn({name: partial(contender, name, shared) for name, shared in variants.items()}, runs=7)
    target = ("ratio", 0.5) if number == max(NUMBERS) else None
    return rows(f"{number} ranks, to the last first line", times, "one for all", {"a container for each": target},
                notes)


def start(site, number, shared):
    """Start ranks; return seconds until the last one runs, and what there is then: mounts, processes, memory in MB."""
    place = Path(tempfile.mkdtemp(prefix="ebsif-ranks-run-"))
    shutil.chown(place, ACCOUNT)
    (place / "rank.py").write_text(RANK)
    place.chmod(0o755)
    environment = {
        **site.environment, "MODULEPATH": str(site.modules), "HOME": str(place), "EBSIF_TEST_PLACE": str(place),
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(number),
        "SLURM_STEP_TASKS_PER_NODE": str(number), "SLURM_NODEID": "0", "SLURMD_NODENAME": "node",
        "EBSIF_ONE_CONTAINER_PER_NODE": shared, "EBSIF_NODE_LOCAL": str(place)}
    process = subprocess.Popen(
        ["runuser", "-u", ACCOUNT, "--", "bash", "--noprofile", "--norc", "-c", f"{site.tool.init}\n{START}"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline() == "start\n"
        began, until = time.time(), time.time() + 120
        while len(list(place.glob("rank-*[0-9]"))) < number and time.time() < until:
            time.sleep(0.1)
        last = max(float(path.read_text()) for path in place.glob("rank-*[0-9]"))
        result = {"seconds": last - began, **count()}
    finally:
        (place / "go").touch()
        process.wait()
        while count()["processes"]:
            time.sleep(0.1)
        shutil.rmtree(place, ignore_errors=True)
    return result


def count():
    """Return the mounts of user software, the processes of the account, and their memory (shared pages divided)."""
    mounts, processes, memory = {}, 0, 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.owner() != ACCOUNT or not (folder / "cmdline").read_bytes():
                continue
            memory += int((folder / "smaps_rollup").read_text().partition("\nPss:")[2].split()[0])
            lines = (folder / "mountinfo").read_text().splitlines()
            mounts[(folder / "ns/mnt").readlink()] = sum(" /user-software " in line for line in lines)
        except (OSError, IndexError, KeyError):
            continue
        processes += 1
    return {"mounts": sum(mounts.values()), "processes": processes, "memory": round(memory / 1024)}
