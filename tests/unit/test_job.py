"""Batch scripts that `ebsif job` writes for each site."""

import dataclasses
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from ebsif import cli
from ebsif.catalog import fieldtypes, site
from ebsif.errors import UsageError
from ebsif.jobs import job, launchers
from ebsif.servers import server_of
from ebsif_command import run_ebsif
from hypothesis import given, settings
from hypothesis import strategies as st
from prefixes import MINE
from support import CONTAINER_FILES, attempt, examples, heed_signals, write_program

ACCOUNTS = {"SBATCH_ACCOUNT": "project_465000001", "PBS_ACCOUNT": "NCAR0001"}


def run(*arguments, **environment):
    """Run the command without the caller's environment."""
    return run_ebsif(["job", *arguments], env={"PATH": "/usr/bin:/bin", **environment})


def script(name, *arguments, program=("train.py",)):
    """Return the script for a site."""
    result = run("PyTorch/2.7.1-x", "--site", name, *arguments, "--", *program, **ACCOUNTS)
    assert result.returncode == 0, result.stderr
    return result.stdout


def header(text):
    """Return the options in a script's header."""
    return re.findall(r"^#(?:SBATCH|PBS) (.*)$", text, re.MULTILINE)


def commands(text):
    """Return a script without comments."""
    return "".join(line + "\n" for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("launcher", launchers.LAUNCHERS)
@pytest.mark.parametrize("name", site.names())
def test_every_script_is_clean(name, launcher):
    """Scripts for all sites and launchers end in one newline and have no long lines and no template code."""
    text = script(name, "--nodes", 2, "--launcher", launcher, "--data", "a b")
    assert not text.endswith("\n\n")
    assert max(map(len, text.splitlines())) <= 160
    assert "{" not in re.sub(r"\$\{\w+[^}]*\}+", "", commands(text))


@pytest.mark.parametrize("launcher", ["native", "torchrun"])
@pytest.mark.parametrize("name", ["local", "derecho", "flux"])
def test_copies_on_the_nodes(name, launcher, tmp_path):
    """T-05: for each scheduler and launcher, nodes get copies before the ranks start, use them, and remove them."""
    if name == "flux":
        (tmp_path / "flux").mkdir()
        (tmp_path / "flux/site.yaml").write_text("name: flux\ndescription: x\nscheduler: {kind: flux}\nstage: all\n")
    options = ["--nodes", 2, "--launcher", launcher, "--signal", 60]
    text = script(name, *options, *(["--catalog", tmp_path] if name == "flux" else ["--stage", "user_software"]))
    copied = text.index(f"\njob_stage{' --image' if name == 'flux' else ''}\n")
    assert copied < text.index('"$RUNSCRIPTS/stage-software" --use singularity exec "$SIF" conda-python-distributed ')
    assert "stage-software" not in script(name if name != "flux" else "local", "--stage", "none")


def test_lumi():
    """S002-68, S001-16: whole nodes, CPU masks in rank order, GPUs that ranks on a node can reach."""
    text = script("lumi", "--nodes", 4)
    assert " ".join(header(text)[1:]) == (
        "--account=project_465000001 --partition=standard-g --nodes=4 --ntasks-per-node=8 --cpus-per-task=7 "
        "--gpus-per-node=8 --mem=480G --time=00:30:00 --output=%x-%j.out"
    )
    masks = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"
    assert f"srun --export=ALL --kill-on-bad-exit=1 \\\n    --cpu-bind=mask_cpu:{masks} \\\n" in text
    assert not re.search("gpus-per-task|gpu-bind", text)
    # no CPU masks on shared nodes
    assert "mask_cpu" not in script("lumi", "--partition", "small-g")
    # half the ranks: the masks for their GPUs
    assert "mask_cpu:0xfe000000000000,0xfe00000000000000 \\\n" in script("lumi", "--tasks-per-node", 2)


def test_archer2():
    """S003-01, S003-25: no GPU in the script; srun with its options; the environment is passed to ranks."""
    text = script("archer2", "--nodes", 2)
    assert " ".join(header(text)[1:]) == (
        "--account=project_465000001 --partition=standard --qos=standard --nodes=2 --ntasks-per-node=8 "
        "--cpus-per-task=16 --time=00:30:00 --output=%x-%j.out --export=none"
    )
    assert "srun --export=ALL --kill-on-bad-exit=1 --hint=nomultithread --distribution=block:block" in text
    assert not re.search("gpu|nccl|rocm|cuda", text, re.IGNORECASE)


def test_derecho():
    """S004-01, S004-02, S004-03, T-08: PBS directives, threads per rank, mpiexec; parts of a job on different nodes."""
    text = script("derecho", "--nodes", 2)
    assert " ".join(header(text)) == (
        f"-N train -A NCAR0001 -q main -j oe -W umask={job.umask()} "
        "-l select=2:ncpus=64:mpiprocs=4:ompthreads=16:ngpus=4 -l place=scatter -l walltime=00:30:00"
    )
    assert "mpiexec -n 8 -ppn 4 --cpu-bind numa \\\n" in text
    assert not re.search("SLURM|SBATCH|srun", text)
    torchrun = header(script("derecho", "--launcher", "torchrun"))
    assert "-l select=1:ncpus=64:mpiprocs=1:ompthreads=16:ngpus=4" in torchrun and "-l place=scatter" not in torchrun


def test_containers_see_the_list_of_nodes_of_pbs():
    """S004-16: without this directory, several ranks that nobody has started are not noticed in the container."""
    assert "/var/spool/pbs/aux" in site.read("derecho").binds.optional


def test_options_of_ones_own_win_with_pbs(tmp_path):
    """PBS takes the first value of a resource, and the last one of other options."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/site.yaml").write_text(
        "name: mine\ndescription: Mine\nscheduler:\n  kind: pbs\n  default_partition: q\n"
        "  options: [-l place=excl, -m n]\n  partitions: {q: {tasks: 1, cpus_per_task: 1}}\n"
    )
    own = ["--scheduler", "-l place=pack", "--scheduler", "-m b -M a", "--scheduler=-lwalltime=1"]
    options = header(script("mine", "--catalog", tmp_path, "--nodes", 2, *own))
    resources = [option[2:].strip() for option in options if option.startswith("-l")]
    assert next(one for one in resources if one.startswith("place=")) == "place=pack"
    assert next(one for one in resources if one.startswith("walltime=")) == "walltime=1"
    assert [option for option in options if option.startswith("-m")][-1] == "-m b -M a"


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_of_a_pbs_job_have_usual_permissions(umask):
    """Jobs of PBS have the umask 077 unless they ask for another: nobody else could read logs and new modules."""
    before = os.umask(umask)
    try:
        texts = [script("derecho"), run("--install", "mine.eb", "--site", "derecho", "--account", "A").stdout]
    finally:
        os.umask(before)
    assert [f"-W umask={umask:03o}" in header(text) for text in texts] == [True, True]


@pytest.mark.parametrize("name", site.names())
def test_nothing_of_one_site_in_anothers_script(name):
    """S001-21, S004-01: whatever only one site has is in no other site's script."""
    own = {
        "lumi": ["LUMI", "standard-g", "mask_cpu", "480G"],
        "archer2": ["ARCHER2", "nomultithread", "--qos"],
        "derecho": ["Derecho", "PBS", "mpiexec", "numa"],
        "local": [],
    }
    text = script(name, "--nodes", 2)
    for other, marks in own.items():
        for mark in marks:
            assert (mark in text) == (other == name), mark


def test_torchrun():
    """torchrun: one task per node with all CPUs, no masks because srun doesn't start the ranks."""
    text = script("lumi", "--nodes", 2, "--launcher", "torchrun", program=["-u", "train.py"])
    assert "--ntasks-per-node=1" in header(text)
    assert "--cpus-per-task=56" in header(text)
    assert "-m torch.distributed.run \\\n    --nproc-per-node=8 train.py" in text
    assert "mask_cpu" not in text
    result = run("M/1", "--launcher", "torchrun", "--", "-W", "error", "train.py")
    assert "torchrun takes a program, not options of python: -W error train.py" in result.stderr


@pytest.mark.parametrize(("name", "more"), [("lumi", " NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET"), ("archer2", "")])
def test_settings_for_a_closer_look(name, more):
    """S002-67, S002-71: reports of the ranks, and NCCL's log where there are GPUs, are a line without its #."""
    lines = re.findall(r"^# (export \w+=.*)$", script(name), re.MULTILINE)
    assert lines == [f"export EBSIF_REPORT=1 EBSIF_RANK_LOGS=$PWD/$ebsif_run{more}"]


@pytest.mark.parametrize("name", ["local", "lumi"])
@pytest.mark.parametrize(
    "options", ["", "--launcher torchrun", "--requeue --signal 300", "--data x.squashfs:/data", "--stage all"]
)
def test_a_script_can_be_read_in_a_minute(name, options, tmp_path):
    """User trial (docs, G): a script for one srun has at most 35 lines; the rest is in the run script job.bash."""
    data = f"{tmp_path}/x.squashfs:/data"
    text = script(name, "--nodes", 2, *(data if word.startswith("x.") else word for word in options.split()))
    assert len(text.splitlines()) <= 35
    assert text.count("srun ") == 1


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1), min_size=1))
def test_the_program_is_passed_unchanged(words):
    """Each argument reaches the program unchanged, and the shell executes nothing in it."""
    request = job.JobRequest(module="M/1", command=("train.py", *words))
    text = job.script(request, site.read("local"))
    line = text[text.index("conda-python-distributed train.py") :].rstrip("\n")
    result = subprocess.run(["bash", "-c", f"set -- {line}\nprintf '%s\\0' \"$@\""], capture_output=True, check=True)
    assert result.stdout.decode().split("\0")[:-1] == ["conda-python-distributed", "train.py", *words]


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        ("M/1 --site lumi -- a", 3, "jobs at the site lumi need an account: set it with --account or SB"),
        ("M/1 --site lumy -- a", 3, "--site or EBSIF_SITE); did you mean lumi?\n"),
        ("M/1 --site lumi --partition x -- a", 3, "unknown partition 'x' (known: standard-g, small"),
        ("M/1 --site archer2 --gpus-per-node 1 -- a", 3, "the site archer2 has no GPUs"),
        ("M/1 --site lumi --tasks-per-node 9 -- a", 3, "9 ranks on a node with 8 GPUs"),
        ("M/1 --site lumi --launcher torchrun --gpus-per-node 2 -- a.py", 3, "8 ranks on a node with 2 GPUs"),
        (
            "--install a.eb --gpus-per-node 1 --data x --requeue",
            2,
            "an installation runs on one node, without --gpus-per-node or --requeue or --data",
        ),
        ("M/1 --account 'a;b' -- a", 3, "'a;b' is not a valid account for a job"),
        ("M/1", 2, "give the program to run: ebsif job MODULE ... -- train.py"),
        ("-- a", 2, "no container given: load a container module first, or pass its name"),
        ("M/1 --install a.eb", 2, "name either a module or --install EASYCONFIG"),
        ("M/1 --nodes 0 -- a", 2, "'0' is not a positive number"),
        ("M/1 --time soon -- a", 2, "'soon' should be a duration: minutes, "),
        ("M/1 --time 00:00:00 -- a", 2, "'00:00:00' should be longer than 0, which Slurm takes for no"),
        ("M/1 --data /x:/y:ro -- a", 2, "--data /x:/y:ro: should be PATH or PATH:/TARGET, without"),
        ("M/1 --submit -- missing.py", 3, "missing.py does not exist in "),
        ("M/1 -- python", 3, "add what python should run: train.py, or -m MODULE"),
        ("M/1 -- srun a.py", 3, "the batch script starts the container, the ranks and python itself: give"),
        ("M/1 -- flux run a.py", 3, "give only the program, without 'flux'"),
        ("M/1 -- torchrun a.py", 3, "without 'torchrun'; to use torchrun, add --launcher torchrun"),
        ("--site lumi PyTorch/2.2.0 -- a", 3, "'PyTorch/2.2.0' is ambiguous; choose one of"),
        ("M/1 train.py", 2, "unrecognized arguments: train.py: put -- before arguments for the"),
        # as people type for schedulers
        ("M/1 --gpus 2 -- a", 2, "unrecognized arguments: --gpus 2: for --gpus, use --gpus-per-node (see"),
        ("M/1 -t10 -n 4 -- a", 2, "for -t, use --time; for -n, use --nodes and --tasks-per-node (see"),
        ("M/1 -a 0-9 --qos=x -- a", 2, "use --scheduler=--array=0-9; for --qos, use --scheduler=--qos=x"),
        # T-10
        (f"M/1 --submit -- {__file__}", 3, "there is no module M/1 on this machine; nothing was submitted"),
        (f"M/1 --submit --data gone:/data -- {__file__}", 3, "gone, which --data names, does not exist"),
        ("M/1 --data a:/ -- a", 2, "--data a:/: / can't be a directory in the container: write FILE:/data"),
        ("M/1 --data a://user-software/ -- a", 2, "/user-software belongs to the module: write FILE:"),
        ("M/1 --data a:/runscripts/x -- a", 2, "/runscripts/x belongs to the module: write FILE:"),
        ("M/1 --signal 1800 -- a", 3, "--signal 1800 is not before the end of a job of 00:30:00"),
        ("M/1 --signal 60 --time 0:02:00 -- a", 3, "--signal 60: sbatch may send it 60 seconds early, when a job of"),
        (
            "M/1 --signal 65536 --time 2-0 -- a",
            3,
            "--signal 65536: sbatch sends a signal at most 65535 seconds before the end of a job",
        ),
        (
            "M/1 --launcher accelerate -- --config_file fsdp.yaml train.py",
            3,
            "If it is the value, write --config_file=fsdp.yaml",
        ),
        ("M/1 --scheduler '#PBS -x' -- a", 3, "--scheduler '#PBS -x': give options of sbatch"),
        ("M/1 '--scheduler=--a\nid' -- a", 3, "give options of sbatch, in one line"),
        ("M/1 -- deepspeed a.py", 3, "without 'deepspeed'; to use deepspeed, add --launcher deepspeed"),
        (
            "M/1 --site derecho --account A --requeue -- a",
            3,
            "the site derecho can't fulfil --requeue: with PBS, only operators can put a running job back into the",
        ),
    ],
)
def test_errors_name_cause_and_remedy(words, status, expected):
    """Errors name the problem, the known values and the remedy; status 2 for wrong usage."""
    result = run(*shlex.split(words), PATH="/nowhere")
    assert (result.returncode, result.stdout) == (status, "")
    assert expected in result.stderr


@pytest.mark.parametrize("python", [["python"], ["/usr/bin/python3.12"], ["python3.14t"], []])
def test_python_as_the_program(python):
    """Y-03: `-- python train.py` runs train.py, and the job is called train; `python -m vllm` is a server of vLLM."""
    text = script("local", program=[*python, "train.py"])
    assert text.endswith("conda-python-distributed train.py\n")
    assert header(text)[0] == "--job-name=train"
    module = [*python, "-m"] if python else []
    assert server_of(shlex.join([*module, "vllm", "serve", "m"])).package == "vllm"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["__main__.py"], "main"),
        (["_train.py"], "train"),
        (["src/_x.py"], "x"),
        (["-m", "_package"], "package"),
        (["-c", "__import__('train').run()"], "import__--train"),
        (["___.py"], "job"),
        (["-c", f"_{'-' * 9}{'a' * 300}"], "a" * job.NAME_LENGTH),
        ([f"{'a' * 59}-bc.py"], "a" * 59),
    ],
)
def test_the_name_that_a_program_gives_a_job(words, name):
    """Any program gives a name that schedulers take, and that fits into the name of a file."""
    assert header(script("local", program=words))[0] == f"--job-name={name}"


def test_arguments_that_are_not_text(tmp_path, monkeypatch, capsysbinary):
    """Names of files that aren't UTF-8 reach the program as they were typed, however the script goes."""
    name = b"d\xe9.csv"
    words = ["job", "M/1", "--", "-m", "package", os.fsdecode(name)]
    assert cli.main(words) == 0
    printed = capsysbinary.readouterr().out
    assert printed.endswith(b" -m package '" + name + b"'\n")
    for _ in range(2):
        # the second time, it's there already
        assert cli.main([*words[:2], "-o", str(tmp_path / "job.sh"), *words[2:]]) == 0
    assert (tmp_path / "job.sh").read_bytes().endswith(printed.splitlines()[-1] + b"\n")
    write_program(tmp_path / "sbatch", f"#!/bin/bash\ncat >{tmp_path}/sent\necho 'Submitted batch job 41'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert job.submit(SCHEDULERS["slurm"], printed.decode(errors="surrogateescape")) == ["41"]
    assert (tmp_path / "sent").read_bytes() == printed


def test_the_result_for_programs(tmp_path, ebsif):
    """`--json` has the module, the script and the jobs; the script says how to submit it as it is called."""
    place = tmp_path / "a b.sh"
    for more, file, name in ([], None, "FILE"), (["-o", str(place)], str(place), f"'{place}'"):
        said = json.loads(ebsif("job", "M/1", "--json", *more, "--", "t.py").out)
        assert (said["module"], said["file"], said["jobs"]) == ("M/1", file, [])
        assert f"Submit with: sbatch {name}\n" in said["script"]
    assert place.read_text() == said["script"]
    # the name is part of a comment, which a line break would end
    assert cli.main(["job", "M/1", "-o", str(tmp_path / "x\ntouch y"), "--", "t.py"]) == 0
    (script,) = tmp_path.glob("x*")
    assert "Submit with: sbatch FILE\n" in script.read_text() and "touch y" not in script.read_text()


def test_a_catalog_that_is_named_twice(tmp_path, monkeypatch, ebsif):
    """A run that is repeated as its record says records the same line again."""
    (tmp_path / "config.yaml").write_text(f"catalogs: [{tmp_path}]\n")
    monkeypatch.setenv("EBSIF_CONFIG", str(tmp_path / "config.yaml"))
    texts = []
    for more in ([], ["--catalog", str(tmp_path)]):
        texts.append(ebsif("job", "M/1", *more, "--", "-m", "package").out)
    assert texts[0] == texts[1] and texts[0].count(f"--catalog {tmp_path}") == 1


def test_data_at_one_place(tmp_path):
    """H-03: the container would have one of two directories of data only."""
    said = run("M/1", "--data", f"{tmp_path}:/data", "--data", "/usr:/data/", "--", "-m", "package")
    assert (said.returncode, said.stdout) == (3, "")
    assert f"--data has {tmp_path} and /usr at /data: give each another target" in said.stderr


def test_containers_by_module_name():
    """NAME/VERSION of the catalog is its module; unknown names are reported and written unchanged."""
    arguments = ["--site", "lumi", "--account", "A"]
    result = run("PyTorch/2.7.0", *arguments, "--", __file__)
    assert "\nmodule load LUMI PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250527\n" in result.stdout
    assert result.stderr == ""
    result = run("PyTrch/nonsense", *arguments, "--", "missing.py")
    assert "\nmodule load LUMI PyTrch/nonsense\n" in result.stdout
    assert "there is no module PyTrch/nonsense on this machine: check that" in result.stderr
    assert "ebsif: missing.py does not exist in " in result.stderr
    result = run("PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250572", *arguments, "--submit", "--", __file__)
    assert result.returncode == 3
    assert "; did you mean PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250527" in result.stderr
    # no file
    assert "does not exist" not in run("M/1", "--", "-W", "error", "-m", "package").stderr


def test_a_mistyped_name_of_an_extension(eb_prefix, ebsif):
    """User trial, E-09: a part of a name that nothing has fails as in other commands: no job could load it."""
    eb_prefix.install(MINE)
    said = ebsif("job", "mien", "--", "-m", "package", status=3)
    assert said.out == ""
    assert said.err.startswith("ebsif: there is no container 'mien' (known: ")
    assert said.err.endswith("; did you mean mine?\n")


def test_a_module_of_an_older_version(eb_prefix, ebsif):
    """User trial (docs, G): for a module without the run script of batch scripts, the command that adds it is shown."""
    scripts = eb_prefix.install(MINE) / "runscripts"
    scripts.mkdir()
    said = ebsif("job", MINE, "--", "-m", "package", status=3)
    assert said.out == ""
    assert f"{MINE} lacks the run script job.bash, which the job needs: install the module again" in said.err
    assert "`eb --rebuild " in said.err
    (scripts / "job.bash").touch()
    assert cli.main(["job", MINE, "--", "-m", "package"]) == 0


@pytest.mark.parametrize(("packages", "missing"), [(["einops==0.8.1"], True), (["ray==2.60.0"], False)])
def test_a_module_without_the_launcher(eb_prefix, capsys, packages, missing):
    """Y-01, N-07: what the job would end with is said before it waits in the queue, with the command that helps."""
    eb_prefix.install(MINE, packages, files=["runscripts/start-ray.py"], system_packages={})
    status, said = cli.main(["job", MINE, "--launcher", "ray", "--", "-m", "package"]), capsys.readouterr().err
    assert status == 0, said
    assert bool(re.search(r"mine\S* has no ray; to add it: ebsif extend \S*mine\S* --add ray$", said, re.M)) == missing


SERVE = ["--server", "vllm serve '/scratch/my model'"]


@pytest.mark.parametrize("launcher", ["native", "ray"])
@pytest.mark.parametrize("name", site.names())
def test_a_server_and_its_client(name, launcher):
    """Y-03: one server per job, split once, with a key that no line of the script has; at most 40 lines."""
    more = ["--signal", 60, *(["--requeue"] if name != "derecho" else [])]
    text = script(name, "--nodes", 2 if launcher == "ray" else 1, "--launcher", launcher, *SERVE, *more)
    assert len(text.splitlines()) <= 40 and text.count("\njob_server\n") == 1
    *_, last = text.rstrip().splitlines()
    start = "start-server.py " if launcher == "native" else "-- /runscripts/start-server.py "
    words = "--ready=/health --within=1800 -- vllm serve '/scratch/my model' --uds '{socket}' -- train.py"
    assert (start.strip() in text if launcher == "native" else start in last) and last.endswith(words)
    assert f"ebsif job PyTorch/2.7.1-x --site {name} " in text
    # one process per node, which starts all else
    assert not re.search("ntasks-per-node=[^1]|mpiprocs=[^1]", text)


def test_a_server_alone():
    """Y-03: without a client, the job has the name of the server, and repeats its command; a credential is masked."""
    result = run("M/1", "--server", "vllm serve m --api-key abcdefgh12345678", "--ready-within", "90")
    assert result.returncode == 0, result.stderr
    assert "--job-name=vllm" in header(result.stdout)
    assert result.stdout.endswith(" --within=5400 -- vllm serve m --api-key abcdefgh12345678 --uds '{socket}'\n")
    described = re.search(r"ebsif job M/1 .*", result.stdout)[0]
    assert "--ready-within 01:30:00" in described and "abcdefgh" not in described and " -- " not in described
    assert "has a credential" in result.stderr


@pytest.mark.parametrize(
    ("server", "options", "expected"),
    [
        # open servers start on whole nodes, or if the person accepts it
        ("serve run a:b", ["--site", "lumi"], "--ready=http://127.0.0.1:8000/-/healthz --within=1800 -- serve run a:b"),
        ("/opt/x {port}", ["--ready=/up", "--insecure"], "--ready=/up --within=1800 -- /opt/x '{port}' -- train.py"),
        ("/opt/x --l={socket}", ["--ready=/up"], " -- /opt/x '--l={socket}' -- train.py"),
        ("python -m vllm.entrypoints.openai.api_server", [], "vllm.entrypoints.openai.api_server --uds '{socket}' -- "),
    ],
)
def test_where_a_server_listens(server, options, expected):
    """Y-02, Y-03: at a socket that others can't reach, else at what its command or the person says."""
    result = run("M/1", "--server", server, *options, "--", "train.py", **ACCOUNTS)
    assert result.returncode == 0, result.stderr
    assert expected in result.stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--server", "serve run a:b"], "Ray Serve has neither a socket file nor a key, so others on the nodes could"),
        (["--server", "/opt/x {port}", "--ready=/up"], "/opt/x listens on a port of the node, so others on the nodes"),
        (["--server", "/opt/x", "--ready=http://127.0.0.1:PORT/x"], "--ready http://127.0.0.1:PORT/x: give a path"),
        (["--server", "/opt/x", "--ready=http://127.0.0.1:99999/x"], "--ready http://127.0.0.1:99999/x: give a path"),
        (["--server", "/opt/x", "--ready=http://127.0.0.1:0/x"], "--ready http://127.0.0.1:0/x: give a path"),
        (["--server", "/opt/x", "--ready=http://:80/x"], "--ready http://:80/x: give a path"),
        (["--server", "/opt/x", "--ready=/up"], "where /opt/x listens is not known: write {socket}"),
        (["--server", "/opt/x {socket}"], "what says that /opt/x can be used is not known: add --ready PATH"),
        (["--server", "/opt/x {socket}", "--ready=up"], "--ready up: give a path of the server, such as /health"),
        (["--server", "x 'y"], "--server x 'y: No closing quotation"),
        (["--server", "x -- y"], "leave out the word --, which separates the server from its client"),
        (["--server", " "], "--server is empty"),
        ([*SERVE, "--launcher=torchrun"], "--launcher torchrun starts ranks: a server runs without it, or with ray"),
        ([*SERVE, "--nodes=2"], "for one that uses several nodes by Ray, add --launcher ray"),
        (["--ready=/up"], "--ready only has a meaning with --server"),
        (["--insecure"], "--insecure only has a meaning with --launcher ray or --server"),
    ],
)
def test_servers_that_are_refused(options, expected):
    """Y-02, Y-03: what can't be started, or would be open to others, is refused with what to do."""
    result = run("M/1", "--site", "local", *options, "--", "train.py")
    assert (result.returncode, result.stdout) == (3, ""), result.stdout
    assert expected in result.stderr


@pytest.mark.parametrize(
    ("packages", "options", "expected"),
    [
        (["vllm==0.9.1"], [], "vLLM before 0.10.2 has no socket file, and asks for its key only below /v1, so others"),
        (
            ["vllm==0.9.1"],
            ["--insecure"],
            "--key-variable=VLLM_API_KEY -- vllm serve m --host=127.0.0.1 '--port={port}'",
        ),
        (["vllm==0.10.2"], [], " -- vllm serve m --uds '{socket}'"),
        (["ray==2.51.2", "vllm==0.10.2"], ["--launcher=ray"], "Ray 2.51.2 has no tokens (2.52 has), so others on the"),
        (["einops==0.8.1"], [], " has no vllm; to add it: ebsif extend "),
    ],
)
def test_servers_of_an_installed_module(eb_prefix, capsys, packages, options, expected):
    """Y-03: the version in the module decides whether vLLM has a socket."""
    eb_prefix.install(MINE, packages, files=["runscripts/start-server.py"], system_packages={})
    cli.main(["job", MINE, "--server", "vllm serve m", *options])
    said = capsys.readouterr()
    assert expected in said.out + said.err


def test_time_limits_in_days(tmp_path):
    """A time limit in any of Slurm's forms, for PBS as well; a message names the written file."""
    for name, line in (("local", "--time=48:00:00"), ("derecho", "-l walltime=48:00:00")):
        assert line in header(script(name, "--time", "2-00:00:00"))
    durations = {"30": "00:30:00", "10:00": "00:10:00", "90:30": "01:30:30", "1:00:00": "01:00:00", "0-12": "12:00:00"}
    durations |= {"1-01:30": "25:30:00", "100:00:00": "100:00:00", "2-00:00:00": "48:00:00"}
    assert {text: fieldtypes.is_duration(text) for text in durations} == durations
    path = tmp_path / "job.sh"
    result = run("M/1", "-o", path, "--", __file__)
    assert f"ebsif: wrote {path}; submit it with: sbatch {path}" in result.stderr
    assert "wrote" not in run("M/1", "-q", "-o", path, "--", __file__).stderr


def test_the_account(monkeypatch):
    """S004-10: the option overrides the variable, and that the group; sites without accounts need none."""
    lumi = site.read("lumi")
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    monkeypatch.setattr(job.os, "getgroups", lambda: [1, 2, 3])
    groups = {1: "users", 2: "project_465000002", 3: "other"}
    monkeypatch.setattr(job, "group_name", groups.get)
    assert job.account(None, lumi) == "project_465000002"
    groups[3] = "project_465000003"
    with pytest.raises(job.JobError, match="need an account"):
        job.account(None, lumi)
    monkeypatch.setenv("SBATCH_ACCOUNT", "from_variable")
    assert job.account(None, lumi) == "from_variable"
    assert job.account("named", lumi) == "named"
    monkeypatch.delenv("SBATCH_ACCOUNT")
    assert job.account(None, site.read("local")) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "archer2",
            "--job-name=install-mine --account=A --partition=standard --qos=standard --nodes=1 --ntasks=1 "
            "--cpus-per-task=128 --time=01:00:00 --output=%x-%j.out --export=none",
        ),
        (
            "derecho",
            f"-N install-mine -A A -q main -j oe -W umask={job.umask()} -l select=1:ncpus=64 -l walltime=06:00:00",
        ),
    ],
)
def test_installing_on_a_compute_node(name, expected, tmp_path):
    """S003-02, S003-11, S004-17: one node, time, account, partition, qos, no exported environment, modules, eb."""
    path = tmp_path / "install.sh"
    result = run("--install", "mine.eb", "--site", name, "--account", "A", "-o", path, "--", "--robot", "a b")
    assert (result.returncode, result.stdout) == (0, "")
    text = path.read_text()
    assert " ".join(header(text)) == expected
    assert text.endswith("\neb mine.eb --robot 'a b'\n")
    modules = re.findall("^module load (.*)$", text, re.MULTILINE)
    assert " ".join(modules).split() == list(site.read(name).scheduler.install.modules)


def test_what_every_scheduler_can_do():
    """The script has options of the scheduler, and a timer that sends the signal where the scheduler doesn't."""
    own = ["--scheduler", "-J 0-9 -M a@b.org", "--scheduler", "-r y"]
    text = script("derecho", *own, "--time", "2-00:00:00", "--signal", 300)
    assert header(text)[-4:-2] == ["-J 0-9 -M a@b.org", "-r y"]
    assert "\njob_signal end 300 172800\n" in text
    own = "--qos=short --array=0-9"
    assert header(script("archer2", f"--scheduler={own}"))[-2:] == ["--export=none", own]
    assert "--signal=B:USR1@300" in header(script("local", "--signal", 300))


SLURM_RANK = CONTAINER_FILES / "runscripts/slurm-rank"

# Says what it has read and its signals; each is written down, also while something else is being written.
NOTES = """
import os, signal, sys, time
def note(number, _):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())
    if number == signal.SIGQUIT:
        sys.exit(7)
for number in map(int, sys.argv[1:]):
    signal.signal(number, note)
os.write(1, sys.stdin.readline().encode())
time.sleep(60)
"""


def rank(*command, shell=SLURM_RANK):
    """Start a program in the shell of a rank; return its Popen."""
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([shell, *command], text=True, start_new_session=True, preexec_fn=heed_signals, **ends)


def passes_on(shell):
    """Return whether a program in the shell of a rank reads what the shell is given."""
    shell.stdin.write("read\n")
    shell.stdin.flush()
    return shell.stdout.readline() == "read\n"


def test_the_shell_of_a_rank_passes_signals_on():
    """T-07: with proctrack/cgroup, Slurm signals only the shell: the program gets each signal; its status counts."""
    ways = [([*map(signal.Signals, (1, 2, 10, 12, 14, 24, 3))], 7), ([signal.SIGTERM], 1), ([signal.SIGUSR1], 138)]
    for signals, status in ways:
        handled = map(str, map(int, signals)) if len(signals) > 1 else ()
        with rank(sys.executable, "-c", NOTES, *handled) as shell:
            assert passes_on(shell)
            for number in signals:
                shell.send_signal(number)
                if len(signals) > 1:
                    assert shell.stdout.readline() == f"{number.name}\n"
            assert shell.wait(30) == status


def test_a_signal_before_the_shell_of_a_rank_knows_its_program(tmp_path):
    """T-07: the program runs already, and gets the signal, too; made likely by a shell that takes its time."""
    reading = 'read -r -u "$ebsif_answers" ebsif_process'
    text = SLURM_RANK.read_text()
    assert text.count(reading) == 1
    slow = write_program(tmp_path / "slurm-rank", text.replace(reading, f"sleep 1; {reading}"))
    with rank(sys.executable, "-c", NOTES, str(int(signal.SIGQUIT)), shell=slow) as shell:
        assert passes_on(shell)
        shell.send_signal(signal.SIGQUIT)
        assert (shell.wait(30), shell.stdout.read()) == (7, "SIGQUIT\n")


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("-W error train.py data", "train.py"),
        ("--config_file=fsdp.yaml train.py", "train.py"),
        ("--multi_gpu train.py", "train.py"),
        ("--no-python train", "train"),
        ("-m error", None),
        ("--module error", None),
        ("train", "train"),
        ("-um error", None),
        ("-merror train", None),
        ("-Ic error", None),
        ("-uW error train.py", "train.py"),
        ("-Xdev -OO train.py", "train.py"),
    ],
)
def test_the_program_in_the_record(words, program, tmp_path):
    """T-11: the file that python or a launcher runs is found once, and recorded with its digest."""
    words = words.split()
    assert job.program_file(words) == program
    for name in ("error", "train", "train.py", "fsdp.yaml"):
        (tmp_path / name).write_text(name)
    text = job.script(job.JobRequest("M/1", tuple(words)), site.read("local"))
    options, arguments = re.search(r"^job_describe (.*)\\\n    ebsif job (.*)$", text, re.MULTILINE).group(1, 2)
    found = recorded(CONTAINER_FILES / "runscripts", tmp_path, *shlex.split(options), "--", *shlex.split(arguments))
    assert shlex.split(found["command"]) == ["ebsif", "job", "M/1", "--site", "local", "--", *words]
    assert found["program"] == (program and {"path": program, "sha256": hashlib.sha256(program.encode()).hexdigest()})


def recorded(scripts, folder, *words, **environment):
    """Return the record of a run that the run scripts in a directory write."""
    command = [sys.executable, scripts / "record-run.py", "x.json", "--nodes", "n", *words]
    environment["SIF"] = "x"
    subprocess.run(command, cwd=folder, input='{"image": {}}', text=True, check=True, env=environment)
    return json.loads((folder / "x.json").read_text())


def test_the_environment_in_the_record(tmp_path):
    """T-11: what the site, we and an active environment set is recorded, not what all containers have."""
    scripts, settings = tmp_path / "runscripts", tmp_path / "share/ebsif/module.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        "start A=1\nstart_unset B\ncache C job/c D\nmodule M\nconflict\ndefault E a b\n"
        "default *ENV_F 1\ndefault G 1\nrank_unset H_VISIBLE_DEVICES\n"
    )
    shutil.copytree(CONTAINER_FILES / "runscripts", scripts)
    own = {"C": "c", "E": "e", "EBSIF_REPORT": "1", "OMP_NUM_THREADS": "2", "VIRTUAL_ENV": "/mine"}
    found = recorded(scripts, tmp_path, "--", D="d", **own)
    assert found["environment"] == {**own, "B": None, "H_VISIBLE_DEVICES": None}


def test_segments_follow_each_other(tmp_path, monkeypatch):
    """T-13: each job waits for the success of the one before; if one isn't submitted, those in the queue are named."""
    calls = tmp_path / "calls"
    write_program(
        tmp_path / "sbatch",
        f'#!/bin/bash\necho "$*" >>{calls}\ncat >/dev/null\nnumber=$(wc -l <{calls})\n'
        "((number <= 2)) || exit 1\necho Submitted batch job $((40 + number))\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    queued = "those before it are in the queue, to remove them: scancel 41 42"
    with pytest.raises(job.JobError, match=f"segment 3 of 4 was not submitted: sbatch ended with status 1; {queued}"):
        job.submit(SCHEDULERS["slurm"], "script", 4)
    first, *others = calls.read_text().splitlines()
    assert (first, others) == ("", [f"--dependency=afterok:{number} --kill-on-invalid-dep=yes" for number in (41, 42)])


def test_segments_that_are_not_submitted(tmp_path):
    """T-13: the scheduler's own command submits the first one only, and the training would stop after it."""
    for more in ([], ["-o", tmp_path / "job.sh"]):
        said = run("M/1", "--segments", "3", *more, "--", __file__).stderr
        assert "this is the script of each of the 3 jobs: ebsif job --submit submits them" in said
        assert "submit it with" not in said


@pytest.mark.parametrize(
    ("kind", "printed", "wanted"),
    [
        ("slurm", "Welcome to the machine\n\n--> Checking the queue...OK\nSubmitted batch job 41", ["", "afterok:41"]),
        ("slurm", "Welcome", "segment 1 of 2 may be in the queue, but sbatch has printed no ID of it"),
        ("pbs", "qsub: waiting for the server\n41.server", ["", "afterok:41.server"]),
    ],
)
def test_a_scheduler_that_says_more(tmp_path, monkeypatch, kind, printed, wanted):
    """T-13: some sites print lines of their own before the ID of the job."""
    scheduler = SCHEDULERS[kind]
    write_program(tmp_path / scheduler.submit[0], f"#!/bin/bash\necho $* >>{tmp_path}/calls\necho '{printed}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if isinstance(wanted, str):
        with pytest.raises(job.JobError, match=f"^{wanted}"):
            job.submit(scheduler, "script", 2)
        return
    job.submit(scheduler, "script", 2)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2 and all(after in call for after, call in zip(wanted, calls))


def test_a_script_that_can_not_be_written(tmp_path):
    """E-15, C-04: the message names the file; an earlier one stays, and is replaced only on request."""
    earlier = tmp_path / "earlier.sh"
    earlier.write_text("mine")
    for path in (tmp_path / "new.sh", earlier):
        words = ["job", "--site", "local", "M/1", "-o", path, "--overwrite", "--", __file__]
        result = run_ebsif(words, limits={resource.RLIMIT_FSIZE: 1000})
        assert (result.returncode, result.stderr.splitlines()[-1]) == (3, f"ebsif: {path}: File too large")
    result = run("M/1", "-o", earlier, "--", __file__)
    assert f"{earlier} exists already, with different content" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["earlier.sh"] and earlier.read_text() == "mine"


def test_launchers():
    """T-08 (user 4): accelerate knows machines and ranks; a person's choice wins; DeepSpeed sees all GPUs."""
    text = script("lumi", "--nodes", 2, "--launcher", "accelerate")
    assert "-m accelerate.commands.launch \\\n    --multi_gpu --num_machines=2 --num_processes=16 train.py\n" in text
    assert "export EBSIF_CPU_BIND=0xfe000000000000,0xfe00000000000000," in text
    own = script("lumi", "--launcher", "accelerate", program=("--config_file=fsdp.yaml", "train.py"))
    assert "\n    --num_machines=1 --num_processes=8 --config_file=fsdp.yaml train.py\n" in own
    single = script("lumi", "--launcher", "accelerate", "--tasks-per-node", 1)
    assert "\n    --num_machines=1 --num_processes=1 train.py\n" in single
    assert "EBSIF_CPU_BIND=numa\n" in script("derecho", "--launcher", "torchrun")
    deepspeed = script("lumi", "--launcher", "deepspeed")
    assert "export EBSIF_GPU_VISIBILITY=all\n" in deepspeed
    assert "--ntasks-per-node=8" in header(deepspeed)


@pytest.mark.parametrize(
    ("text", "source", "bind"),
    [
        ("/a/images.squashfs:/data", "/a/images.squashfs", "/a/images.squashfs:/data:ro,image-src="),
        ("/a:b,c/d:/data/", "/a:b,c/d", r"/a\:b\,c/d:/data"),
        (r"/a\b:/data", r"/a\b", r"/a\b:/data"),
        ("/a/b", "/a/b", None),
        ("host:file", "host:file", None),
    ],
)
def test_data(text, source, bind):
    """T-09: a path, or a path and where it is in the container; the runtime's special characters are escaped."""
    found = job.parse_data(text)
    assert (found.source, found.bind) == (source, bind)
    assert job.parse_data(str(found)) == found


def test_data_that_the_runtime_can_not_bind():
    """T-09: refused before the job is submitted, because the runtime would look for another path."""
    with pytest.raises(UsageError, match="--data /a, b:/data: .* loses the space"):
        job.parse_data("/a, b:/data")


REQUESTS = st.builds(
    job.JobRequest,
    st.just("M/1"),
    st.lists(st.text("a-b= 'c", min_size=1), min_size=1).map(lambda words: ("p", *words)),
    nodes=st.integers(1, 9),
    launcher=st.sampled_from(list(launchers.LAUNCHERS)),
    signal=st.none() | st.integers(1, 99),
    requeue=st.booleans(),
    time=st.none() | st.just("10:00:00"),
    scheduler=st.lists(st.sampled_from(["--a=b c", "-x y"])).map(tuple),
    data=st.lists(st.sampled_from([job.Data("/a b"), job.Data("/x.sqsh", "/d")])).map(tuple),
)


@settings(max_examples=examples(60), deadline=None)
@given(REQUESTS)
def test_a_record_repeats_a_request(request):
    """T-11: the arguments in a record make the same request again."""
    words = job.arguments(request, site.read("local"))
    end = words.index("--")
    options = cli.parser_of("job").parse_args(words[:end])
    assert (options.module, options.site) == ("M/1", "local")
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(job.JobRequest)[2:]}
    values.update(scheduler=tuple(options.scheduler), data=tuple(map(job.parse_data, options.data)))
    assert job.JobRequest("M/1", tuple(words[end + 1 :]), **values) == request


def test_a_rank_keeps_its_status_when_signals_arrive_as_it_ends(tmp_path):
    """T-07: ranks of Slurm get a signal from it and from their shell: bash's `wait` lost most of the statuses."""
    program = tmp_path / "program"
    # ends while its shell, which waits for it, handles the same signal
    text = "trap 'caught=1' USR1\nsleep 60 &\necho\nuntil [[ -n $caught ]]; do wait; done\nkill $!\nexit 7\n"
    program.write_text(text)
    for _ in range(20):
        with rank("bash", program) as started:
            assert started.stdout.readline() == "\n"
            while not catches(started.pid, signal.SIGUSR1):
                assert started.poll() is None
                time.sleep(0.001)
            os.killpg(started.pid, signal.SIGUSR1)
            assert started.wait(30) == 7


def test_a_rank_has_the_environment_of_its_job():
    """T-07: the shell of a rank changes no variable of the job, whatever its name."""
    environment = {
        **dict.fromkeys(("signal", "signals", "output", "process", "status"), "mine"),
        "PATH": "/usr/bin:/bin",
    }
    shown = attempt([SLURM_RANK, "env"], env=environment)
    assert set(shown.stdout.splitlines()) >= {f"{name}={value}" for name, value in environment.items()}
    assert (shown.returncode, shown.stderr) == (0, "")


def test_a_rank_takes_as_long_as_it_needs():
    """T-07: `read` of bash ends after TMOUT, which some sites export; a rank has the status of its program."""
    program = ["bash", "-c", "sleep 2; echo $TMOUT; exit 5"]
    shown = attempt([SLURM_RANK, *program], env={"PATH": "/usr/bin:/bin", "TMOUT": "1"})
    assert (shown.returncode, shown.stdout, shown.stderr) == (5, "1\n", "")


def catches(process, number):
    """Return whether a process has a handler for a signal."""
    mask = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)[1]
    return bool(int(mask, 16) >> number - 1 & 1)


def test_a_credential_among_the_arguments():
    """R-09, security: the record of the run, which is for others, lacks it; a message says who can read the script."""
    command = ["PyTorch/2.7.1-x", "--site", "lumi", "--", "train.py"]
    result = run(*command, "--token", "hf_oneverysecrettoken", **ACCOUNTS)
    assert result.returncode == 0 and "the batch script has a credential (" in result.stderr
    assert result.stdout.count("hf_oneverysecrettoken") == 1
    assert "train.py '****'" in result.stdout
    assert "credential" not in run(*command, "--epochs", "3", **ACCOUNTS).stderr
