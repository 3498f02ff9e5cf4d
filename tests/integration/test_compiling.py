"""Compiling on the nodes, with the caches of libraries there."""

import os
import re

import pytest

# Compiles a function, as each rank of a training does.
COMPILE = """
import os, sys
import torch, torch._inductor.config
torch._inductor.config.cpp_cache_precompile_headers = False

@torch.compile
def compiled(values):
    return torch.sin(values) + 2 * torch.cos(values)

total = compiled(torch.ones(4)).sum().item()
sys.stdout.write(f"{os.environ['SLURM_JOB_ID']} rank {os.environ['RANK']}: {total:.3f}\\n")
"""
# Ranks of each job; 2 start and compile as 8 do, in a quarter of the time.
COMPILING = int(os.environ.get("EBSIF_TEST_COMPILING_RANKS", "2"))


@pytest.mark.nightly
def test_two_jobs_compile_on_a_node(training):
    """T-01: torch.compile in all ranks of two jobs at once, with a read-only home directory; caches are on the node."""
    site = training.site
    before = {path.name for path in site.home.iterdir()}
    (site.work / "compile.py").write_text(COMPILE)
    # the image has no compiler; that of the machine, which has the same distribution, needs the headers of Python
    said = training.run(f"""
        export APPTAINER_BIND=/usr,$HOME:$HOME:ro CPATH=/usr/include/python3.11 TORCHINDUCTOR_COMPILE_THREADS=1
        # else each rank compiles three programs that try what its CPU can do
        export TORCHINDUCTOR_VEC_ISA_OK=1
        for job in 1 2; do
            srun -N1 -n{COMPILING} --nodelist=nid001001 \\
                singularity exec $SIF conda-python-distributed compile.py 2>>errors &
        done
        wait
        """, timeout=900).stdout
    found = [re.fullmatch(r"(\d+) rank (\d+): 7\.688", line).groups() for line in said.splitlines()]
    jobs = sorted({job for job, _ in found})
    assert sorted(found) == [(job, str(rank)) for job in jobs for rank in range(COMPILING)], said
    assert len(jobs) == 2
    for job in jobs:
        place = site.temporary / f"ebsif-{os.getuid()}/job-{job}/torchinductor"
        assert list(place.rglob("*.so"))
    # the runtime's own, from outside the container
    assert {path.name for path in site.home.iterdir()} <= before | {".apptainer"}
