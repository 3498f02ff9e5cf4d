"""Ranks on a Slurm cluster of two nodes: how they are numbered, where they meet, and what ends them."""

import re

from ebsif.catalog import site as profiles
from slurm import NODES
from training import MODULE, met, shown, trained, with_reports


def test_four_ranks_on_two_nodes_train(training):
    """S002-69 (in part: gloo), S002-64: four ranks on two nodes; the loss decreases, and all have the same weights."""
    script = "srun -N2 -n4 --ntasks-per-node=2 singularity exec $SIF conda-python-distributed -u train.py"
    assert trained(training.run(script).stdout, 4)


def test_every_rank_knows_its_place(training):
    """S002-64, S002-62: rank, size, local rank and local size, also on unevenly filled nodes; one master for all."""
    script = "srun -N2 -n3 --distribution=block -m plane=2 singularity exec $SIF conda-python-distributed show.py"
    ranks = shown(training.run(script.replace("--distribution=block ", "")).stdout)
    assert [one["RANK"] for one in ranks] == ["0", "1", "2"]
    assert {one["WORLD_SIZE"] for one in ranks} == {"3"}
    for node in NODES:
        local = [one for one in ranks if one["SLURMD_NODENAME"] == node]
        assert [one["LOCAL_RANK"] for one in local] == [str(index) for index in range(len(local))]
        assert {one["LOCAL_WORLD_SIZE"] for one in local} == {str(len(local))}
    assert {one["MASTER_ADDR"] for one in ranks} == {ranks[0]["SLURMD_NODENAME"]}
    assert len({one["MASTER_PORT"] for one in ranks}) == 1


def test_the_master_belongs_to_the_step(training):
    """S002-62: a step on the second node only has its master there."""
    step = f"srun -N1 -n2 -w {NODES[1]} singularity exec $SIF conda-python-distributed show.py"
    script = f"salloc -Q -N2 --ntasks-per-node=2 {step}"
    assert {one["MASTER_ADDR"] for one in shown(training.run(script).stdout)} == {NODES[1]}


def test_the_master_of_an_arbitrary_distribution(training):
    """F-08: with -m arbitrary, rank 0 may be on any node: every rank says what to set, and that is right."""
    hosts = training.site.work / "hosts"
    hosts.write_text("".join(f"{node}\n" for node in reversed(NODES)))
    step = "srun -N2 -n2 -m arbitrary singularity exec $SIF conda-python-distributed meet.py arbitrary"
    result = training.run(step, check=False, SLURM_HOSTFILE=hosts)
    advice = "export MASTER_ADDR=$(head -n 1 $SLURM_HOSTFILE)"
    assert sorted(re.findall(f"rank (.): .*{re.escape(advice)} before srun", result.stderr)) == ["0", "1"]
    assert met(training.run(f"{advice}\n{step}", SLURM_HOSTFILE=hosts).stdout) == ["arbitrary-0 arbitrary-1"]


def test_two_jobs_on_one_node_both_finish(training):
    """S002-63: two half-node jobs at once on one node use different ports, and each one's ranks meet."""
    script = f"""
        for job in a b; do
            EBSIF_REPORT=1 srun -N1 -n2 -w {NODES[0]} --job-name=$job singularity exec $SIF conda-python-distributed \\
                meet.py job-$job job-a job-b > $job.out 2>&1 &
            jobs+=($!)
        done
        for job in "${{jobs[@]}}"; do wait $job || echo FAILED; done
        cat a.out b.out
    """
    output = training.run(script).stdout
    assert "FAILED" not in output, output
    assert met(output) == ["job-a-0 job-a-1", "job-b-0 job-b-1"]
    assert len(set(re.findall(rf"^rank .* master {NODES[0]}:(\d+)$", output, re.MULTILINE))) == 2


def test_two_steps_of_a_job_both_finish(training):
    """S002-63: two steps of one job at once on the same node."""
    script = f"""#!/bin/bash
        set -e
        source {training.site.tool.environment[0][1].rsplit("/libexec", 1)[0]}/init/bash
        module use {training.site.modules}
        module load {MODULE}
        for step in a b; do
            srun --exact -N1 -n2 singularity exec $SIF conda-python-distributed meet.py step-$step step-a step-b &
            steps+=($!)
        done
        for step in ${{steps[@]}}; do wait $step; done
        srun -N1 -n2 singularity exec $SIF conda-python-distributed show.py
    """
    status, output = training.batch("steps", script, "-N1", "-n4")
    assert status == 0, output
    assert met(output) == ["step-a-0 step-a-1", "step-b-0 step-b-1"]


def test_a_rank_that_dies_ends_the_job_with_its_status(training):
    """S003-25: the script of `ebsif job` starts with srun; a rank that dies ends the job with its status."""
    # srun ends with the highest status of its tasks; Slurm kills the other one, whose status may be 137
    (training.site.work / "die.py").write_text(
        "import os, sys, time\nsys.exit(200) if os.environ['RANK'] == '1' else time.sleep(300)\n"
    )
    written = training.run(f"ebsif job {MODULE} --nodes 2 --site local -- die.py")
    # module and program exist
    assert written.stderr == ""
    status, output = training.batch("die", written.stdout)
    assert status == 200, output


def test_lumis_job_script_runs(training):
    """
    S002-67, S002-68, S001-16: Slurm accepts the script for LUMI with its CPU masks, and each rank reports.

    The module LUMI is a dummy, and this machine lacks the CPUs, so it's not tested that Slurm applies the masks.
    """
    (training.site.modules / "LUMI.lua").write_text("")
    script = training.run(f"ebsif job {MODULE} --nodes 2 --site lumi -- show.py", SBATCH_ACCOUNT="project_1").stdout
    status, output = training.batch("lumi", with_reports(script))
    assert status == 0, output
    ranks = shown(output)
    assert len(ranks) == 16
    masks = [int(mask, 16) for mask in profiles.read("lumi").scheduler.partition("standard-g")[1].cpu_masks]
    for one in ranks:
        assert one["SLURM_CPU_BIND_TYPE"].startswith("mask_cpu")
        assert [int(mask, 16) for mask in one["SLURM_CPU_BIND_LIST"].split(",")] == masks
    reports = re.findall(r"^rank \d+ of 16, local rank \d of 8 on nid00100[12] \(Slurm\): CPUs ", output, re.MULTILINE)
    assert len(reports) == 16


def test_a_missing_srun_is_an_error(training):
    """S003-25: in a job with several tasks, python without srun is an error, unless a single rank is requested."""
    script = "salloc -Q -n4 singularity exec $SIF conda-python-distributed show.py"
    result = training.run(script, check=False)
    assert result.returncode == 1
    assert "this job has 4 tasks, but no launcher has started them: put srun before singularity" in result.stderr
    result = training.run(script.replace("singularity", "srun -n 1 singularity"))
    assert [one["WORLD_SIZE"] for one in shown(result.stdout)] == ["1"]


def test_a_job_that_is_submitted_in_a_step(training):
    """sbatch passes the variables of the step in which it is typed on to the job script: they don't count there."""
    inner = training.site.work / "inner.sh"
    inner.write_text(f"""#!/bin/bash
        [[ $SLURM_STEP_NODELIST == {NODES[0]} ]] && echo "first $($RUNSCRIPTS/get-master)"
        singularity exec $SIF conda-python-distributed show.py
        srun -n 1 singularity exec $SIF conda-python-distributed show.py
        srun -n 1 "$RUNSCRIPTS/get-master"
    """)
    submitted = f"sbatch --wait --output=inner.out -w {NODES[1]} -N1 -n1 inner.sh"
    training.run(f"srun -N1 -n1 -w {NODES[0]} {submitted}")
    said = (training.site.work / "inner.out").read_text()
    assert [(one["RANK"], one["WORLD_SIZE"]) for one in shown(said)] == [("0", "1")] * 2
    assert {one["MASTER_ADDR"] for one in shown(said)} == {"127.0.0.1", NODES[1]}
    assert said.startswith(f"first {NODES[1]}\n") and said.endswith(f"\n{NODES[1]}\n")
    training.run(f"srun -N1 -n1 -w {NODES[0]} {submitted.replace('-n1', '-n2')}")
    said = (training.site.work / "inner.out").read_text()
    assert "this job has 2 tasks, but no launcher" in said


def test_a_job_that_a_rank_of_torchrun_has_submitted(training):
    """The variables of the rank that submitted a job don't count there; Slurm's do, and torchrun's in the step."""
    stale = {"TORCHELASTIC_RUN_ID": "none", "RANK": 3, "WORLD_SIZE": 8, "LOCAL_RANK": 3, "LOCAL_WORLD_SIZE": 4}
    start = "srun -N2 -n2 --ntasks-per-node=1 singularity exec $SIF conda-python-distributed"
    ranks = shown(training.run(f"{start} show.py", **stale).stdout)
    expected = [("0", "2", "1"), ("1", "2", "1")]
    assert [(one["RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) for one in ranks] == expected
    # the report lets torchrun start the run script for each rank
    ranks = shown(
        training.run(f"{start} -m torch.distributed.run --nproc-per-node=2 show.py", EBSIF_REPORT=1, **stale).stdout
    )
    assert [(one["RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) for one in ranks] == [
        (str(rank), "4", "2") for rank in range(4)
    ]


def test_ranks_without_their_variables(training):
    """With --cleanenv, ranks don't know their numbers: an error of each, not as many runs of one rank."""
    script = "srun -n 2 singularity exec --cleanenv $SIF conda-python-distributed show.py"
    result = training.run(script, check=False)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.count("SLURM_PROCID has no valid rank (''): Slurm must set it, and it must reach the") == 2


def test_a_failing_helper_stops_every_rank(training):
    """S002-65: a malformed node list: every rank reports it and stops; nothing runs with an empty MASTER_ADDR."""
    script = "srun -n 3 env SLURM_STEP_NODELIST='nid[1-' singularity exec $SIF conda-python-distributed show.py"
    result = training.run(script, check=False)
    assert result.returncode == 1
    assert not shown(result.stdout)
    lines = re.findall(
        r"^conda-python-distributed: rank (\d): can't determine the first host for MASTER_ADDR: this is "
        r"not a node list",
        result.stderr,
        re.MULTILINE,
    )
    assert sorted(lines) == ["0", "1", "2"]


def test_a_single_rank(training):
    """Without scheduler and launcher there is a single rank, which test_documentation trains; two runs don't meet."""
    script = "singularity exec $SIF conda-python-distributed meet.py"
    assert met(training.run(f"{script} c d & {script} d c & wait").stdout) == ["c-0", "d-0"]


def test_outside_a_container(training):
    """The script says where it must run."""
    result = training.run("$RUNSCRIPTS/conda-python-distributed train.py", check=False)
    assert result.returncode == 1
    assert "run this in the container: singularity exec $SIF conda-python-distributed" in result.stderr


def test_every_sites_scheduler_is_tested():
    """No profile has another scheduler than Slurm or PBS."""
    assert {profiles.read(name).scheduler.kind for name in profiles.names()} == {"slurm", "pbs"}
