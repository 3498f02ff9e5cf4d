"""Caches of libraries: places by variable, and the script that finds and creates them. No image is needed."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from cache_node import SCRIPTS, parts
from easybuild.easyblocks.generic.container.sitevalues import CACHES
from ebsif.catalog import site as profiles
from support import CHECKOUT, write_program


def test_one_program_is_started_for_each_place(node):
    """T-01: this runs at each start of a container, where each program takes time: ls, for node and project."""
    variables = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "PROJECT": "p", "USER": "me"}
    first, _ = node.run(**variables)
    script, programs, count = node.scripts / "find-caches", node.folder / "bin", node.folder / "count"
    programs.mkdir()
    write_program(programs / "ls", f'#!/bin/sh\necho >>{count}\nexec /bin/ls "$@"\n')
    text = script.read_text()
    script.write_text(text.replace("PATH=/usr/local/bin:/usr/bin:/bin", f"PATH={programs}"))
    assert script.read_text() != text
    assert node.run(**variables) == (first, "")
    assert count.read_text() == "\n\n"
    assert "can't be used" in node.run(**{**variables, "SLURM_JOB_ID": "8"})[1]


def test_a_directory_of_the_person_that_others_can_write_to(node):
    """P-01: whoever can write to a directory can exchange what is in it, unless it is sticky."""
    mine = node.folder / "mine"
    mine.mkdir()
    for mode, is_used in ((0o755, True), (0o757, False), (0o777, False), (0o1777, True), (0o1757, True)):
        mine.chmod(mode)
        found, said = node.run(EBSIF_NODE_LOCAL=str(mine))
        assert found["EBSIF_JOB_CACHES"].startswith(f"{mine}/" if is_used else f"{node.local}/"), oct(mode)
        assert ("EBSIF_NODE_LOCAL should be" in said) != is_used
    # also further up
    (mine / "a/b").mkdir(parents=True)
    mine.chmod(0o777)
    assert node.run(EBSIF_NODE_LOCAL=f"{mine}/a/b")[0]["EBSIF_JOB_CACHES"].startswith(f"{node.local}/")
    # links of the person, or of the site
    mine.chmod(0o755)
    (node.folder / "link").symlink_to(mine / "a")
    assert node.run(EBSIF_NODE_LOCAL=f"{node.folder}/link/b")[0]["EBSIF_JOB_CACHES"].startswith(f"{mine}/a/b/")


def test_values_with_special_characters(node):
    """T-01: blanks, patterns and quotes in the caller's values; what the account and the shell set themselves."""
    place = node.folder / "a *'~ b"
    place.mkdir()
    found, said = node.run(EBSIF_NODE_LOCAL=str(place), HF_HOME="", SLURM_JOB_ID="7")
    assert found["TRITON_CACHE_DIR"] == f"{place}/ebsif-{os.getuid()}/job-7/triton"
    assert "HF_HOME" not in found
    node.write(node_caches=[f"{node.local}/${{UID}}"])
    (node.local / str(os.getuid())).mkdir()
    assert node.run(UID="0")[0]["EBSIF_JOB_CACHES"].startswith(f"{node.local}/{os.getuid()}/")
    assert said == ""


def test_the_places(node):
    """T-01, S002-58: compiled code on the node, per job or, where a lock decides, step; downloads on project disks."""
    found, said = node.run(SLURM_JOB_ID="7", SLURM_STEP_ID="2", PROJECT="p", USER="me")
    job, project = node.caches() / "job-7", node.folder / "p/me/caches"
    assert said == ""
    of_job = {"AMD_COMGR_CACHE_DIR": "comgr", "CUPY_CACHE_DIR": "cupy", "MPLCONFIGDIR": "matplotlib"}
    of_job.update(NUMBA_CACHE_DIR="numba", TORCHINDUCTOR_CACHE_DIR="torchinductor", TRITON_CACHE_DIR="triton")
    assert found == {
        **{variable: f"{job}/{name}" for variable, name in of_job.items()},
        "EBSIF_JOB_CACHES": str(job),
        "MIOPEN_CUSTOM_CACHE_DIR": f"{job}/step-2/miopen",
        "MIOPEN_USER_DB_PATH": f"{job}/step-2/miopen",
        "TORCH_EXTENSIONS_DIR": f"{job}/step-2/torch_extensions",
        "HF_HOME": f"{project}/huggingface",
        "TORCH_HOME": f"{project}/torch",
        "VLLM_CACHE_ROOT": f"{project}/vllm",
        "WANDB_CACHE_DIR": f"{project}/wandb",
        "WANDB_DATA_DIR": f"{project}/wandb-data",
        "XDG_CACHE_HOME": str(project),
    }
    assert list(node.home.iterdir()) == []
    # some libraries don't create it
    assert Path(found["MIOPEN_USER_DB_PATH"]).is_dir()
    assert [path.stat().st_mode & 0o777 for path in (node.caches(), project)] == [0o700, 0o700]


def test_jobs_and_steps_have_their_own(node):
    """T-01, S002-59: two jobs on a node, arrays, steps, other schedulers, and no job at all."""

    def place(**variables):
        return node.run(**variables)[0]["MIOPEN_USER_DB_PATH"].removeprefix(f"{node.caches()}/")

    assert place(SLURM_JOB_ID="7", SLURM_STEP_ID="0") == "job-7/step-0/miopen"
    assert place(SLURM_JOB_ID="8", SLURM_STEP_ID="0") == "job-8/step-0/miopen"
    assert place(SLURM_JOB_ID="8") == "job-8/miopen"
    assert place(PBS_JOBID="12[3].server", PALS_APID="a-b") == "job-12[3].server/step-a-b/miopen"
    assert place(FLUX_ENCLOSING_ID="fA", FLUX_JOB_ID="fB") == "job-fA/step-fB/miopen"
    assert place(FLUX_JOB_ID="fB") == "job-fB/step-fB/miopen"
    assert place() == "no-job/miopen"
    # not a name of a directory
    assert place(SLURM_JOB_ID="../../x") == "no-job/miopen"
    # the site's own scheduler counts
    node.write(scheduler="pbs")
    assert place(SLURM_JOB_ID="7", PBS_JOBID="9") == "job-9/miopen"


def test_values_of_the_person_stay(node):
    """T-02: a variable that is set stays, even to nothing, and so does one that decides the same."""
    mine = {"HF_HOME": "/mine", "TORCHINDUCTOR_CACHE_DIR": "", "TRITON_HOME": "/mine", "NUMBA_CACHE_DIR": "/mine"}
    found, _ = node.run(PROJECT="p", USER="me", **mine)
    assert not {"HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR"} & {*found}
    assert "TORCH_HOME" in found
    # the directory of all caches, whose names in it are those of the libraries
    mine = node.folder / "mine"
    found, _ = node.run(PROJECT="p", USER="me", XDG_CACHE_HOME=str(mine), EBSIF_NODE_LOCAL=str(node.folder))
    assert found["HF_HOME"] == f"{mine}/huggingface"
    assert found["TRITON_CACHE_DIR"] == f"{node.folder}/ebsif-{os.getuid()}/no-job/triton"
    assert "XDG_CACHE_HOME" not in found


def test_the_home_directory(node):
    """T-01: where no project is known, downloads go to the home directory if it can be written to, else to the node."""
    found, said = node.run()
    assert not {"HF_HOME", "XDG_CACHE_HOME"} & {*found}
    assert "TRITON_CACHE_DIR" in found
    found, more = node.run(home="/nowhere", SLURM_JOB_ID="7")
    job = f"{node.caches()}/job-7"
    assert (found["HF_HOME"], found["XDG_CACHE_HOME"]) == (f"{job}/huggingface", job)
    assert said == more == ""


def test_the_first_directory_that_can_be_used(node):
    """T-01: directories that are missing here are skipped; a message if there is none, or the person's is no good."""
    good = node.folder / "disk 1"
    good.mkdir()
    node.write(node_caches=["${SCRATCH}/x", "/proc/no", "${DISK}"], project_caches=["/proc/no", "${DISK}/p/q"])
    found, said = node.run(DISK=str(good))
    assert found["TRITON_CACHE_DIR"] == f"{good}/ebsif-{os.getuid()}/no-job/triton"
    assert (found["HF_HOME"], said) == (f"{good}/p/q/huggingface", "")
    found, said = node.run(DISK=str(good), EBSIF_NODE_LOCAL="/proc/mine")
    assert found["TRITON_CACHE_DIR"].startswith(f"{good}/")
    assert said.startswith("ebsif: caches can't be in /proc/mine: EBSIF_NODE_LOCAL should be a directory on the node ")
    found, said = node.run()
    assert found == {"EBSIF_JOB_CACHES": ""}
    assert said.startswith("ebsif: no directory for caches on this node: ${SCRATCH}/x /proc/no ${DISK} can't be used. ")
    # a relative path would be another directory after `cd`
    assert node.run(DISK="relative")[0] == {"EBSIF_JOB_CACHES": ""}


def test_a_name_that_is_taken(node):
    """T-01, P-01: a link or a file with the name of the directory isn't used, and nothing fails."""
    theirs = node.folder / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    for take in (lambda: node.caches().symlink_to(theirs), node.caches().touch):
        take()
        node.check_that_it_is_refused(theirs)


def test_ranks_start_together(node):
    """T-01: 16 ranks of a node create the directories at the same time, and have the same."""
    command = [*node.shell, node.scripts / "find-caches", str(os.getuid()), node.table]
    environment = {"HOME": str(node.home), "ebsif_caller": "SLURM_JOB_ID=7\nSLURM_STEP_ID=0"}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ranks = [subprocess.Popen(command, env=environment, text=True, **both) for _ in range(16)]
    assert len({rank.communicate() for rank in ranks}) == 1
    assert [path.name for path in node.local.iterdir()] == [node.caches().name]


def test_the_table():
    """T-01: what the site, family or easyconfig adds; only the own kind of GPU; no cache where there is no Python."""

    def places(**parameters):
        return parts(**parameters).caches.places

    known = places(cache_variables={"X": "job/x", "HF_HOME": None, "TORCH_HOME": "job/torch"})
    assert (known["X"], known["TORCH_HOME"], known["TRITON_CACHE_DIR"]) == ("job/x", "job/torch", "job/triton")
    assert not {"HF_HOME", "MIOPEN_USER_DB_PATH", "CUDA_CACHE_PATH"} & {*known}
    assert "CUDA_CACHE_PATH" in places(gpu="cuda")
    assert places(init="none") == {}
    assert places(init="none", cache_variables={"X": "step/x"}) == {"X": "step/x"}


def test_what_is_removed_at_the_end(tmp_path):
    """T-01: the caches of the job, and nothing else; outside a job, other processes may use them."""

    def remove(path):
        path.mkdir(parents=True)
        subprocess.run([SCRIPTS / "remove-caches"], check=True, env={"EBSIF_JOB_CACHES": str(path), "PATH": "/bin"})
        return not path.exists()

    assert remove(tmp_path / "ebsif-0/job-7")
    assert not remove(tmp_path / "ebsif-0/no-job")
    assert not remove(tmp_path / "data")
    subprocess.run([SCRIPTS / "remove-caches"], check=True, env={"PATH": "/bin"})


def test_the_profile_of_a_site(tmp_path):
    """T-01: mistakes are reported with line and reason; a site that extends another one adds to its variables."""
    base, own = tmp_path / "base/site.yaml", tmp_path / "own/site.yaml"
    for path in (base, own):
        path.parent.mkdir()
    base.write_text('name: base\ndescription: x\ncaches:\n  node: ["${DISK}"]\n  variables: {A: job/a, B: job/b}\n')
    own.write_text("name: own\ndescription: x\nextends: base\ncaches:\n  remove: true\n  variables: {B: null}\n")
    found = profiles.read("own", [tmp_path]).caches
    assert (found.node, found.remove, found.variables) == (["${DISK}"], True, {"A": "job/a", "B": None})
    own.write_text("name: own\ndescription: x\ncaches:\n  node: [tmp, /a b]\n  variables: {A: tmp/x, B-C: job/x}\n")
    with pytest.raises(Exception) as error:
        profiles.read("own", [tmp_path])
    for text in (
        *(f"caches.node, entry {number}: should be a full path (letters" for number in (1, 2)),
        *("caches.variables.A: should be job/NAME, step/NAME or project/NAME", "B-C: can't be the name"),
    ):
        assert text in str(error.value)


def test_the_documentation(tmp_path):
    """T-01: the profile in docs/caches.md is valid, and its table has the places of all variables."""
    text = (CHECKOUT / "docs/caches.md").read_text()
    (profile,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/site.yaml").write_text(f"name: mine\ndescription: x\n{profile}")
    variables = {"TILELANG_CACHE_DIR": "job/tilelang", "NUMBA_CACHE_DIR": None}
    assert profiles.read("mine", [tmp_path]).caches.variables == variables
    rows = re.findall(r"^\| (.*`[A-Z_]+`.*) \| `(\w+)` \|$", text, re.MULTILINE)
    found = {}
    for part, place in [(part, place) for names, place in rows for part in names.split("; with ")]:
        found.update(dict.fromkeys(re.findall(r"`([A-Z_]+)`", part), place))
    del found["TRITON_HOME"]
    assert found == {name: cache.place.split("/")[0] for name, cache in CACHES.items()}
