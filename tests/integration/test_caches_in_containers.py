"""Caches of libraries at every door: modules, commands, run scripts, environments, jobs."""

import os
import re
from pathlib import Path

import pytest

MODULE = "Example/1.0-writable"

# Prints one variable of each kind: on the node per job and per step, and on project storage.
SHOW = """
import os
print(*(os.environ.get(name) for name in ("TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "HF_HOME")))
"""

# A rank that keeps a file in each cache, and says where these are.
KEEP = """
import os, pathlib, sys, time
places = [pathlib.Path(os.environ[name]) for name in ("TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "HF_HOME")]
job = os.environ["SLURM_JOB_ID"]
for place in places:
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{job}.{os.environ['RANK']}").touch()
pathlib.Path(f"started-{job}").touch()
# both jobs run at the same time
while len(list(pathlib.Path().glob("started-*"))) < 2:
    time.sleep(0.05)
sys.stdout.write(f"{job}.{os.environ['RANK']} {' '.join(map(str, places))}\\n")
"""


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


@pytest.fixture(scope="module")
def module(installations, tmp_path_factory):
    """A copy of an installation whose site has project storage, for Lmod."""
    site = installations("Lmod-Lua").copy(tmp_path_factory.mktemp("caches"), MODULE)
    settings = site.root(MODULE) / "share/ebsif/module.conf"
    settings.write_text(
        settings.read_text().replace(
            "cache_node /tmp\n",
            (f"cache_node {site.temporary}\ncache_node /tmp\ncache_project {site.prefix}/project\n"),
        )
    )
    (site.work / "show.py").write_text(SHOW)
    return site


def on_node(site, *parts):
    """Return a directory of caches on the node."""
    return "/".join([f"{site.temporary}/ebsif-{os.getuid()}", *parts])


def test_every_door(module):
    """T-01: exec, shell, instance, commands, run scripts, an environment of make-venv, no module; also in jobs."""
    script = f"""
        module load {MODULE}
        instance=caches-{os.getpid()}
        singularity exec $SIF python show.py
        SLURM_JOB_ID=7 SLURM_STEP_ID=1 singularity exec $SIF python show.py
        SLURM_JOB_ID=7 singularity exec --cleanenv $SIF python show.py
        echo python show.py | SLURM_JOB_ID=7 singularity shell $SIF
        singularity instance start $SIF $instance >/dev/null 2>&1
        SLURM_JOB_ID=7 SLURM_STEP_ID=2 singularity exec instance://$instance python show.py
        singularity instance stop $instance >/dev/null 2>&1
        SLURM_JOB_ID=7 start-shell -c 'python show.py'
        SLURM_JOB_ID=7 singularity exec $SIF conda-python-simple show.py
        SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0 \\
            SLURM_STEP_TASKS_PER_NODE=1 SLURM_STEP_NODELIST=n1 singularity exec $SIF conda-python-distributed show.py
        make-venv venv >/dev/null
        source venv/bin/activate
        SLURM_JOB_ID=7 python show.py
        deactivate
        module unload {MODULE}
        SLURM_JOB_ID=7 {module.prefix}/eb/software/{MODULE}/interpreter/python show.py
        """
    result = module.bash(script)

    def places(job, step=""):
        at = on_node(module, job)
        return f"{at}/triton {at}{step}/torch_extensions {module.prefix}/project/huggingface"

    none, job = places("no-job"), places("job-7")
    first, second, third = (places("job-7", f"/step-{number}") for number in (1, 2, 3))
    assert result.stdout.splitlines() == [none, first, none, job, second, job, job, third, job, job]
    assert not (module.home / ".cache").exists()
    said = module.bash(f"module help {MODULE} 2>&1").stdout
    assert re.search(r"\n - for each job on the node, in \$EBSIF_NODE_LOCAL or /tmp: .*TRITON_CACHE_DIR", said)
    assert "\n - kept, in $XDG_CACHE_HOME: HF_HOME," in said


def test_values_of_the_person(module):
    """T-02: a value set before or after the module is loaded, for the container only or by option, or nothing."""
    result = module.bash(f"""
        export TRITON_CACHE_DIR=/before
        module load {MODULE}
        export TORCH_EXTENSIONS_DIR='/af ter'
        HF_HOME= singularity exec $SIF python show.py
        APPTAINERENV_HF_HOME=/inside singularity exec $SIF python show.py
        singularity exec --env HF_HOME=/option $SIF python show.py
        module unload {MODULE}
        echo "$TRITON_CACHE_DIR $TORCH_EXTENSIONS_DIR"
        """)
    expected = ["/before /af ter ", "/before /af ter /inside", "/before /af ter /option", "/before /af ter"]
    assert result.stdout.splitlines() == expected
    assert result.stderr == ""


def test_a_large_environment(module):
    """Caches are found although hundreds of modules, or CI jobs, have more variables than one string can hold."""
    result = module.bash(f"""
        module load {MODULE}
        singularity exec $SIF python show.py
        for number in {{1..300}}; do export BIG$number="HF_HOME $(printf '%1000s')"; done
        singularity exec $SIF python show.py
        export LAST=$'more\\nHF_HOME\\nlines' TRITON_CACHE_DIR=/mine
        singularity exec $SIF python show.py
        """)
    before, after, mine = result.stdout.splitlines()
    assert before == after
    assert mine == " ".join(["/mine", *before.split()[1:]])
    assert result.stderr == ""


def test_no_directory_for_caches(module):
    """T-01: programs run as they do without the module, and a message says what to set."""
    settings = module.prefix / "eb/software" / MODULE / "share/ebsif/module.conf"
    before = settings.read_text()
    settings.write_text(re.sub("(?m)^(cache_node|cache_project) .*$", r"\1 /proc/nowhere", before))
    result = module.bash(f"module load {MODULE}; EBSIF_NODE_LOCAL= singularity exec $SIF python show.py")
    settings.write_text(before)
    assert result.stdout.splitlines() == ["None None None"]
    assert result.stderr == (
        "ebsif: no directory for caches on this node: /proc/nowhere /proc/nowhere can't be used. Set EBSIF_NODE_LOCAL\n"
    )


def test_two_jobs_on_a_node(module, cluster):
    """T-01: 8 ranks of each job share its directories; at its end, those on the node are removed, downloads kept."""
    (module.prefix / "sites/two").mkdir(parents=True)
    (module.prefix / "sites/two/site.yaml").write_text("name: two\ndescription: x\ncaches: {remove: true}\n")
    (module.work / "keep.py").write_text(KEEP)
    script = f"""
        module load {MODULE}
        ebsif job {MODULE} --site two --catalog {module.prefix}/sites --tasks-per-node 8 -o job.sh -- keep.py
        for number in 1 2; do sbatch --wait --nodelist=nid001001 --output=%j.out job.sh & done
        wait
        cat *.out
        """
    said = module.bash(script, **cluster.environment).stdout
    found = dict(line.split(" ", 1) for line in said.splitlines() if re.match(r"\d+\.\d ", line))
    jobs = sorted({name.split(".")[0] for name in found})
    assert len(found) == 16, said
    assert found == {
        f"{job}.{rank}": " ".join(
            [
                on_node(module, f"job-{job}/triton"),
                on_node(module, f"job-{job}/step-0/torch_extensions"),
                f"{module.prefix}/project/huggingface",
            ]
        )
        for job in jobs
        for rank in range(8)
    }
    assert not any(Path(on_node(module, f"job-{job}")).exists() for job in jobs)
    assert {path.name for path in (module.prefix / "project/huggingface").iterdir()} == {*found}


@pytest.mark.nightly
def test_ranks_that_compile(training):
    """T-01: torch.compile in two ranks of a job, with a read-only home directory; what it makes is on the node."""
    site = training.site
    before = {path.name for path in site.home.iterdir()}
    (site.work / "compile.py").write_text(COMPILE)
    # the image has no compiler; that of the machine, which has the same distribution, needs the headers of Python
    said = training.run(
        """
        export APPTAINER_BIND=/usr,$HOME:$HOME:ro CPATH=/usr/include/python3.11 TORCHINDUCTOR_COMPILE_THREADS=1
        # else each rank compiles three programs that try what its CPU can do
        export TORCHINDUCTOR_VEC_ISA_OK=1
        srun -N1 -n2 singularity exec $SIF conda-python-distributed compile.py
        """,
        timeout=900,
    ).stdout
    found = sorted(re.fullmatch(r"(\d+) rank (\d): 7\.688", line).groups() for line in said.splitlines())
    job = found[0][0]
    assert found == [(job, "0"), (job, "1")]
    assert list(Path(on_node(site, f"job-{job}/torchinductor")).rglob("*.so"))
    # the runtime's own, from outside the container
    assert {path.name for path in site.home.iterdir()} <= before | {".apptainer"}
