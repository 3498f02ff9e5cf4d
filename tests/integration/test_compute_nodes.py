"""Installing on a compute node: what is heavy, jobs of ebsif and of eb."""

import pytest


@pytest.fixture
def heavy(site):
    """An easyconfig with a heavy stage, which leaves a file."""
    return site.easyconfig(
        "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\n"
        "requirements = [{'post': ['mkdir /user-software/was-here'], 'heavy': True}]\n"
    )


def test_a_heavy_stage_is_refused_on_a_login_node(site, cluster, heavy):
    """S003-02: where jobs can be submitted, eb outside a job stops before doing anything and says how to submit one."""
    result = site.eb(heavy, check=False, **cluster.environment)
    assert result.returncode != 0 and "is heavy, and this is not a batch job" in result.stdout + result.stderr
    assert "ebsif job --install" in result.stdout + result.stderr
    assert not list(site.prefix.glob("eb/software/Example/1.0/*"))
    # only up to the step that refused; the other variable is that of scripts of `flux batch`
    for variable in ("EBSIF_HEAVY_HERE", "FLUX_ENCLOSING_ID"):
        site.eb(heavy, "--stop=prepare", **{variable: "ƒ2Hk"}, **cluster.environment)


def wait_for_jobs(site, cluster):
    """Wait until no job is left."""
    script = "while [[ -n $(squeue -h --me -n Example-1.0,install-Example-1.0) ]]; do sleep 0.2; done"
    site.bash(script, **cluster.environment)


def test_one_command_installs_on_a_compute_node(site, cluster, heavy):
    """S004-17, S003-02, S003-11: `ebsif job --install --submit`, with the site's modules loaded in the job."""
    command = ["ebsif", "job", "--install", heavy, "--submit", "--", *site.eb_options]
    result = site.run(command, **cluster.environment)
    assert "Submitted batch job" in result.stdout
    wait_for_jobs(site, cluster)
    output = "".join(path.read_text() for path in site.work.glob("install-*.out"))
    assert (site.prefix / "eb/modules/all/Example/1.0.lua").is_file(), output


@pytest.mark.nightly
def test_eb_job_installs_on_a_compute_node(site, cluster, heavy):
    """S004-17: EasyBuild's own `eb --job` with its backend for Slurm."""
    site.eb(heavy, "--job", "--job-backend=Slurm", "--job-cores=1", **cluster.environment)
    wait_for_jobs(site, cluster)
    output = "".join(path.read_text() for path in site.prefix.rglob("*.out"))
    assert (site.prefix / "eb/modules/all/Example/1.0.lua").is_file(), output
