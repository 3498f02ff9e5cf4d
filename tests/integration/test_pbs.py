"""Jobs with PBS and mpiexec of PALS."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from slurm import NODES
from training import MODULE, met


@pytest.fixture
def pals(training, tmp_path):
    """
    A directory with an mpiexec like that of PBS with PALS, and a node list.

    A real mpiexec starts the ranks for two host names of this machine; only the option for CPUs and the names of the
    variables with the ranks' numbers are those of PALS.
    """
    (tmp_path / "palsd").write_text(
        "#!/bin/bash\ntrap : USR1\nexport PALS_RANKID=$PMI_RANK PALS_LOCAL_RANKID=$MPI_LOCALRANKID\n"
        "export PALS_LOCAL_SIZE=$MPI_LOCALNRANKS PALS_APID=11111111-2222\n"
        'unset PMI_RANK MPI_LOCALRANKID MPI_LOCALNRANKS\n"$@"\nexit\n'
    )
    (tmp_path / "mpiexec").write_text(
        "#!/bin/bash\n[[ \"$1 $3\" == '-n -ppn' ]] || exit 64\nn=$2 ppn=$4\nshift 4\n"
        "[[ $1 != --cpu-bind ]] || shift 2\n"
        f'exec mpiexec.hydra -launcher fork -hosts {",".join(NODES)} -n $n -ppn $ppn {tmp_path}/palsd "$@"\n'
    )
    for name in ("palsd", "mpiexec"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text("".join(f"{node}\n" * 2 for node in NODES))
    return tmp_path


def in_pbs(training, pals, script, check=True):
    """Run a bash script as PBS would, with the module loaded."""
    of_pbs = {"PBS_JOBID": "4711.server", "PBS_NODEFILE": pals / "nodes", "PBS_O_WORKDIR": training.site.work}
    of_slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "1", "SLURM_PROCID": "0"}
    return training.run(f"export PATH={pals}:$PATH\n{script}", check, **of_pbs, **of_slurm)


@contextlib.contextmanager
def module_for_pbs(training):
    """Let the module's run script read variables of PBS only, as at a site with PBS."""
    data = Path(training.run("echo $CONTAINERROOT").stdout.strip()) / "share/ebsif/module.conf"
    before = data.read_text()
    data.write_text(before + "scheduler pbs\n")
    try:
        yield
    finally:
        data.write_text(before)


def test_four_ranks_meet_under_pbs(training, pals):
    """S004-16 (in part: ranks meet), S004-01, S004-03: the script for PBS, mpiexec and PALS; Slurm is not used."""
    script = training.run(
        f"ebsif job {MODULE} --nodes 2 --tasks-per-node 2 --site derecho --account A -- meet.py pbs"
    ).stdout
    assert "mpiexec -n 4 -ppn 2 --cpu-bind numa" in script
    with module_for_pbs(training):
        assert met(in_pbs(training, pals, script).stdout) == ["pbs-0 pbs-1 pbs-2 pbs-3"]
    record = json.loads((training.site.work / "meet-4711.json").read_text())
    assert (record["runs"][0]["nodes"], record["runs"][0]["status"]) == (",".join(NODES), 0)


@pytest.mark.nightly
def test_the_timer_of_a_pbs_job(training, pals):
    """T-07: PBS sends no signal before the time limit: the script does, mpiexec passes it on, and the ranks save."""
    script = training.run(
        f"ebsif job {MODULE} --tasks-per-node 2 --site derecho --account A --time 0:02:00 "
        "--signal 105 -- checkpoint.py timer"
    ).stdout
    with module_for_pbs(training):
        result = in_pbs(training, pals, script, check=False)
    assert sorted(re.findall("^saved .", result.stdout, re.MULTILINE)) == ["saved 0", "saved 1"], result.stderr
    assert result.returncode == 0, result.stderr
