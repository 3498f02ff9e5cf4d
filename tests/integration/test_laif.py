"""Images like those of the LUMI AI Factory: Python in a venv, a PYTHONPATH and an entry point."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from ebsif.catalog import reading, selection, site
from parts import TOOLS, wheel_settings
from slurm import NODES
from support import CHECKOUT, Site, make_wheel

# The modules and their torch. `ebsif extend` makes the first, whose runscript is like an OCI image's.
OCI, TORCH = "Laif/3.13-mine-20260101", "Laif/3.11"
VERSIONS = {OCI: "2.10.0+rocm7.0", TORCH: "2.13.0+cpu"}
VENV = "/user-software/venv/laif"
CATALOG = """\
name: Laif
families:
  multitorch:
    homepage: https://example.org/
    file: "{flavor}.sif"
    init: venv-in-image
    image: central
    venv: true
    entry_point: /opt/oci-entrypoint.sh
    gpu_visibility: all
    wrappers: [python, python3, pip, torchrun, conda-python-distributed]
    container_env: {MAP_HIP_TO_ROCR_VISIBLE_DEVICES: 0}
    variables: VARIABLES
    network_env: NETWORK
containers:
  - {family: multitorch, version: 3.13, components: {flavor: laif}}
  - {family: multitorch, version: 3.11, components: {flavor: laif-torch}, entry_point: /.singularity.d/runscript}
"""
# Settings of LUMI's profile and of a container of the AI Factory: that which the scripts of docs/lumi load.
LUMI = site.read("lumi")
LUMI_MODULE = "lumi-multitorch/2.10-rocm-7.0-full-20260807_115122"
RELEASE = selection.find_one(reading.read(LUMI, site.SITES / "lumi"), LUMI_MODULE)
NETWORK = RELEASE.network_env
TUNING = """
import sys, torch
def main():
    sys.stdout.write(" ".join([sys.prefix, torch.__version__, torch.__file__, __file__]) + "\\n")
"""
# All variables of a program, except those set by shells and the runtime.
SHOW = """
import json, os, re, sys
own = re.compile(r"(_|SHELL|SHLVL|PWD|OLDPWD|HOSTNAME|PS1|LINES|COLUMNS|(APPTAINER|SINGULARITY)_COMMAND|BASH_.*)$")
found = {name: value for name, value in os.environ.items() if not own.match(name)}
sys.stdout.write(json.dumps(found, sort_keys=True) + "\\n")
"""
# One line, which several ranks can print at once.
RANK = """
import json, os, sys
names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "FI_HMEM_DISABLE_P2P", "SLURM_PROCID")
sys.stdout.write(json.dumps({name: os.environ[name] for name in names if name in os.environ}) + "\\n")
"""
# Each line starts show.py in the container.
WAYS = {
    "singularity exec": "singularity exec $SIF python show.py",
    "singularity run": "singularity run $SIF python show.py",
    "singularity shell": "singularity shell $SIF <<<'python show.py'",
    "wrapper": "python show.py",
    "start-shell": "start-shell -c 'python show.py'",
    "conda-python-simple": "singularity exec $SIF conda-python-simple show.py",
}


class Place:
    """A site with both modules: user software is a SquashFS file in the first and a directory in the second."""

    def __init__(self, folder, small_image):
        self.site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        make_wheel(self.wheels, "tuning", requires=["torch"], module_text=TUNING, scripts={"tune": "tuning:main"})
        make_wheel(self.wheels, "byhand")
        make_wheel(self.wheels, "optuna")
        sites = folder / "sites"
        (sites / "local/containers").mkdir(parents=True)
        (sites / "local/site.yaml").write_text(
            f"name: local\ndescription: a machine of the tests.\ngpu: rocm\n"
            f"images:\n  directories: [{{path: {self.site.sources}}}]\n" + yaml.dump({"network_env": LUMI.network_env})
        )
        (sites / "local/containers/Laif.yaml").write_text(
            CATALOG.replace("NETWORK", json.dumps(NETWORK)).replace("VARIABLES", json.dumps(RELEASE.variables))
        )
        for variant in ("laif", "laif-torch"):
            (self.site.sources / f"{variant}.sif").symlink_to(small_image(variant))
        self.make_by_hand()
        command = ["ebsif", "extend", "Laif/3.13", "--from-venv", "tuning-env.sqsh", "--catalog", sites]
        self.site.run([*command, "--name", "mine", "--date", "20260101", "-o", "."], **wheel_settings(self.wheels))
        self.site.run(["ebsif", "render", "--catalog", sites, "--output", "."])
        self.site.eb(f"{OCI.replace('/', '-')}.eb", "l/Laif/Laif-3.11.eb", **wheel_settings(self.wheels))
        (self.site.work / "show.py").write_text(SHOW)
        (self.site.work / "rank.py").write_text(RANK)

    def make_by_hand(self):
        """Make a virtual environment by hand for the first module, as in the LUMI AI Guide."""
        script = f"""
            mkdir env
            image={self.site.sources}/laif.sif
            in_container() {{ singularity exec -B env:/user-software -B {self.wheels} $image "$@"; }}
            in_container python -m venv --system-site-packages --without-pip /user-software
            in_container python -m pip --python /user-software/bin/python install --no-deps tuning optuna
            mksquashfs env tuning-env.sqsh -processors 1 -no-xattrs -quiet -no-progress
        """
        self.site.run(["bash", "-euc", script], **wheel_settings(self.wheels))

    def output(self, module, script, check=True, **environment):
        """Run a script with a module loaded; return its output."""
        typed = f"module load {module} || exit 99\n{script}"
        return self.site.bash(
            typed, check, **wheel_settings(self.wheels), APPTAINER_BIND=self.wheels, **environment
        ).stdout.strip()

    def shown(self, module, script, **environment):
        """Return what show.py printed, by line."""
        lines = self.output(module, script, **environment).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_image):
    """Both modules, installed with one eb."""
    return Place(tmp_path_factory.mktemp("laif"), small_image)


@pytest.mark.parametrize("module", VERSIONS)
def test_the_image_is_one_of_the_ai_factory(place, module):
    """These images have the properties that the tests rely on."""
    version = module.split("/")[1][:4]
    script = f"""
        singularity exec $SIF cat /.sbom.json
        echo /// && singularity exec $SIF ls /usr/lib/python{version}/EXTERNALLY-MANAGED
        unset ${{!APPTAINER*}} ${{!SINGULARITY*}}
        singularity exec $SIF sh -c 'echo $PATH; echo $PYTHONPATH; echo $VIRTUAL_ENV; echo $MPIR_CVAR_ENABLE_GPU'
    """
    text = place.output(module, script)
    bill, rest = text.split("///\n")
    bill = json.loads(bill)
    assert {"name": "torch", "version": VERSIONS[module]} in bill["pip"]
    assert any(package["name"].startswith("libpython3") for package in bill["apt"])
    managed, path, python_path, venv, gpu = rest.splitlines()
    assert managed.endswith("EXTERNALLY-MANAGED")
    assert path.startswith("/opt/venv/bin:")
    assert (python_path, venv, gpu) == (f"/opt/venv/lib/python{version}/site-packages:", "", "1")


@pytest.mark.parametrize("module", VERSIONS)
def test_every_way_has_the_same_environment(place, module):
    """L-03: run, exec, shell, wrapper, start-shell, run script; in a job all but exec and shell."""
    script = "\n".join(WAYS.values())
    found = dict(zip(WAYS, place.shown(module, script)))
    wanted = found["singularity exec"]
    assert wanted["VIRTUAL_ENV"] == VENV
    assert {way: different(wanted, one) for way, one in found.items()} == {way: {} for way in WAYS}
    job = {"SLURM_NNODES": "1", "SLURM_LOCALID": "5"}
    job |= dict.fromkeys(("ROCR_USE_SLURM_LOCALID", "MAP_HIP_TO_ROCR_VISIBLE_DEVICES"), "1")
    for way, one in zip(WAYS, place.shown(module, script, **job)):
        by_rank = [one.get(name) for name in ("FI_HMEM_DISABLE_P2P", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")]
        # exec and shell don't know the rank
        assert by_rank == ([None] * 3 if way in ("singularity exec", "singularity shell") else ["1", "5", None]), way


def different(one, other):
    """Return the differences between two environments."""
    return {name: (one.get(name), other.get(name)) for name in {*one, *other} if one.get(name) != other.get(name)}


def test_programs_see_additions_and_the_image(place):
    """G-01: user software precedes the image's PYTHONPATH; programs of both use the venv."""
    wanted = (
        f"{VENV} {VERSIONS[OCI]} /opt/venv/lib/python3.13/site-packages/torch/__init__.py "
        f"{VENV}/lib/python3.13/site-packages/tuning.py"
    )
    script = """
        singularity exec $SIF tune
        singularity run $SIF tune
        start-shell -c tune
        singularity exec $SIF torchrun -c 'import tuning; tuning.main()'
        torchrun -c 'import tuning; tuning.main()'
    """
    output = place.output(OCI, script)
    assert output.splitlines() == [wanted] * 5


@pytest.mark.nightly
def test_packages_by_hand_packed_and_unpacked(place):
    """
    pip's wrapper, make-squashfs and unmake-squashfs work with the image that has torch.

    `pip install --user` fails, however pip is called and old as it is (23.0); the command says why.
    """
    script = f"""
        for way in pip 'singularity exec $SIF python -I -m pip'; do
            eval "$way install --quiet --user byhand" 2>hints && echo installed
            grep -c 'hint: leave out --user: in the container packages are installed in {VENV}' hints
        done
        ls -d ~/.local/lib 2>/dev/null
        pip install --quiet byhand
        make-squashfs && rm -r $CONTAINERROOT/user-software && module unload Laif && module load {TORCH}
        python -c 'import byhand; print(byhand.__file__)'
        unmake-squashfs && rm $CONTAINERROOT/user-software.squashfs && module unload Laif && module load {TORCH}
        pip uninstall --quiet --yes byhand && singularity run $SIF pip list | grep -c byhand
    """
    output = place.output(TORCH, script, check=False)
    lines = [line for line in output.splitlines() if not line.startswith("make-squashfs")]
    assert lines == ["1", "0", f"{VENV}/lib/python3.11/site-packages/byhand.py", "0"]


@pytest.mark.nightly
def test_an_environment_of_python_3_13(place, tmp_path):
    """make-venv copes with activation scripts as written since Python 3.12; deactivation undoes everything."""
    env = tmp_path / "my env"
    shown = "env -0 | grep -zvE '^(_|OLDPWD|__LMOD|_ModuleTable|BASH_FUNC|PS1)[^=]*=' | sort -z | md5sum"
    script = f"""
        make-venv '{env}' 2>/dev/null || exit
        module unload Laif
        {shown}
        source '{env}/bin/activate'
        pip install --user byhand 2>&1 | grep 'hint: leave out'
        pip install --quiet byhand
        for command in 'python' 'singularity exec $SIF python' 'singularity run $SIF python' "start-shell -c 'python -'"
        do
            eval "$command - <<<'import byhand, sys, tuning; print(sys.prefix, byhand.__file__, tuning.__file__)'"
        done
        tune
        torchrun -c 'import byhand, sys; print(sys.prefix)'
        deactivate
        {shown}
        ! declare -F deactivate
    """
    output = place.output(OCI, script)
    before, hint, *lines, after = output.splitlines()
    assert hint == f"hint: leave out --user: in the container packages are installed in {env}, never in ~/.local"
    library = f"{env}/lib/python3.13/site-packages"
    assert lines == [f"{env} {library}/byhand.py {VENV}/lib/python3.13/site-packages/tuning.py"] * 4 + [
        f"{env} {VERSIONS[OCI]} /opt/venv/lib/python3.13/site-packages/torch/__init__.py "
        f"{VENV}/lib/python3.13/site-packages/tuning.py",
        str(env),
    ]
    assert before == after


def test_ranks_are_consistent_however_they_are_started(place, cluster):
    """
    L-03, L-04, L-09: two nodes, four ranks: one device for each and no LOCAL_RANK, or all devices and LOCAL_RANK. The
    command python sets up ranks.
    """
    ways = {"wrapper": "python", "run": "singularity run $SIF python"}
    ways["script"] = "singularity exec $SIF conda-python-distributed"
    for chosen in ({}, {"ROCR_USE_SLURM_LOCALID": "1", "MAP_HIP_TO_ROCR_VISIBLE_DEVICES": "1"}):
        # without a rank's line, the error says why
        script = "\n".join(f"srun --nodes=2 --ntasks-per-node=2 {way} rank.py || exit" for way in ways.values())
        lines = place.shown(OCI, script, **cluster.environment, **chosen)
        assert len(lines) == 12, lines
        for way, ranks in zip(ways, (lines[:4], lines[4:8], lines[8:])):
            found = sorted(ranks, key=lambda one: int(one.pop("SLURM_PROCID")))
            # plain `singularity run` sets what the entry point sets, no more
            numbers = [{}] * 4 if way == "run" else [{"RANK": str(rank)} for rank in range(4)]
            if chosen:
                wanted = [{"ROCR_VISIBLE_DEVICES": local} for local in "0101"]
            else:
                wanted = [{} if way == "run" else {"LOCAL_RANK": local} for local in "0101"]
            assert found == [{**one, **number} for one, number in zip(wanted, numbers)], way


def test_python_is_a_rank_only_among_several(place, cluster):
    """
    L-09: `srun python` of one task, torchrun, what has a RANK already, and python in start-shell run as they are.

    python of an environment by make-venv is a rank.
    """
    several = "srun --nodes=2 --ntasks-per-node=1"
    ways = {
        "srun --nodes=1 --ntasks=1 python rank.py": [None],
        f"{several} torchrun rank.py": [None] * 2,
        f"RANK=7 {several} python rank.py": ["7"] * 2,
        f"EBSIF_PYTHON_RANKS= {several} python rank.py": [None] * 2,
        f"{several} start-shell -c 'python rank.py'": [None] * 2,
        f"{several} python3 rank.py": ["0", "1"],
        f"{several} --export=ALL,MINE=1 python rank.py": ["0", "1"],
        # without ALL nothing of the module is left
        f"{several} --export=PATH python rank.py 2>&1 | grep -c 'load the module of this container' >lost": [],
        f"make-venv ranks && source ranks/bin/activate && {several} python rank.py": ["0", "1"],
    }
    lines = place.shown(OCI, "\n".join(ways), **cluster.environment)
    for way, wanted in ways.items():
        found, lines = lines[: len(wanted)], lines[len(wanted) :]
        assert sorted((one.get("RANK") for one in found), key=str) == wanted, way
    assert (place.site.work / "lost").read_text() == "2\n"


def test_the_network_of_ranks_is_that_of_the_profile(place, cluster):
    """
    L-02, S002-60: on two nodes the environment of each rank is as site and family say, however it's started, also if an
    old script has set variables in the caller's environment.
    """
    (place.site.work / "network.py").write_text(
        "import json, os, sys\n"
        "found = {name: value for name, value in os.environ.items() if name.startswith(('NCCL_', 'FI_MR', 'RCCL_'))}\n"
        "sys.stdout.write(json.dumps(found) + '\\n')\n"
    )
    old = "export NCCL_NET_GDR_LEVEL=PHB NCCL_SOCKET_IFNAME=eth0"
    ways = ("python", *(f"singularity {way} $SIF python" for way in ("exec", "run")))
    ways += ("singularity exec $SIF conda-python-distributed",)
    script = "\n".join(f"{old}; srun -N2 -n2 {way} network.py" for way in ways)
    found = place.shown(TORCH, script, **cluster.environment)
    wanted = {name: value for name, value in {**LUMI.network_env, **NETWORK}.items() if value is not None}
    assert found == [wanted] * 2 * len(ways)
    assert wanted == {"FI_MR_CACHE_MONITOR": "userfaultfd"}


# --- the LUMI AI Guide with these modules: docs/lumi

GUIDE = CHECKOUT / "docs/lumi"
# LUMI_MODULE is here the one with torch. The page on SquashFS extends the image with the stand-in.
# Options for sbatch that a user would add: an account, and fewer tasks because this machine has two cores.
SUBMIT = "--account=project_1 --partition=small"
SMALL = "--ntasks-per-node=1 --gpus-per-node=1 --mem=1G"
SUBMITTED = {
    **dict.fromkeys(("01-quick-start", "02-environment", "02-squashfs"), ""),
    **dict.fromkeys(("03-file-formats", "05-srun", "05-torchrun"), SMALL),
    **dict.fromkeys(("07-tensorboard", "08-mlflow", "10-inference"), ""),
}
TENSORBOARD = ("tensorboard", "absl-py", "protobuf")
# Replacements for packages that are too large to install here, with the functions that the guide uses.
MLFLOW = """
import json, os
__version__ = "1.0"
state = {}
def set_tracking_uri(uri):
    state["folder"] = uri
def start_run(run_name):
    os.makedirs(state["folder"])
    state["file"] = open(os.path.join(state["folder"], run_name), "w")
def log_metric(key, value, step):
    state["file"].write(json.dumps([key, value, step]) + "\\n")
def end_run():
    state["file"].close()
"""
VLLM = """
import http.server, json, socketserver, sys
class Server(socketserver.UnixStreamServer):
    def get_request(self):
        return self.socket.accept()[0], ("", 0)
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, content):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.answer({"data": [{"id": sys.argv[2]}]})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = " ".join([asked["model"], asked["messages"][0]["content"], *sys.argv[3:-2]])
        self.answer({"choices": [{"message": {"content": text}}]})
def main():
    assert sys.argv[1] == "serve"
    Server(sys.argv[sys.argv.index("--uds") + 1], Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def guide(place, cluster, small_image):
    """The guide's files after all commands and jobs have run: exit status and output by script."""
    folder = place.site.work / "guide"
    shutil.copytree(GUIDE, folder)
    modules = place.site.modules
    (modules / "LUMI.lua").write_text("")
    (place.site.sources / RELEASE.file_name).symlink_to(small_image("laif"))
    # as modules of EasyBuild set them for users
    settings = {
        f"EASYBUILD_{option[2:].partition('=')[0].replace('-', '_').upper()}": option.partition("=")[2] or "1"
        for option in place.site.eb_options
    }
    # the stand-in has a newer Python than the image of the record
    settings |= {"APPTAINER_BIND": place.wheels, "EASYBUILD_IGNORE_TEST_FAILURE": "1"}
    make_wheel(place.wheels, "mlflow", module_text=MLFLOW)
    make_wheel(place.wheels, "vllm", module_text=VLLM, scripts={"vllm": "vllm:main"})
    place.site.run(["pip", "download", "--quiet", "--no-deps", "--dest", place.wheels, *TENSORBOARD])
    place.output(TORCH, f"pip install --quiet --no-deps mlflow vllm {' '.join(TENSORBOARD)}")
    for name in ("02-squashfs", "02-environment", "03-file-formats", "05-many-nodes", "10-inference"):
        commands = re.search(r"^```bash\n(.*?)^```", (folder / f"{name}.md").read_text(), re.MULTILINE | re.DOTALL)
        # all jobs are submitted together
        typed = commands.group(1).replace("sbatch ", "test -s ")
        place.site.bash(f"set -e\n{typed}", cwd=folder, **settings, **wheel_settings(place.wheels))
        if name == "02-squashfs":
            # the module of the image with torch, by the name that the guide has; what is installed would be extended
            (modules / f"{LUMI_MODULE}.lua").write_text(
                (modules / f"{TORCH}.lua").read_text().replace(f'"{TORCH}"', f'"{LUMI_MODULE}"')
            )
    jobs = [
        f"{{ sbatch --wait --output={name}.out {SUBMIT} {options} {name}.sh; echo $? >{name}.status; }} &"
        for name, options in SUBMITTED.items()
    ]
    place.site.bash("\n".join([*jobs, "wait"]), cwd=folder, timeout=1700, **cluster.environment)
    return folder


@pytest.mark.nightly
def test_the_scripts_of_the_guide(guide):
    """L-09: every job script of docs/lumi, unchanged, succeeds and does what its page says."""
    own = {path.stem for path in GUIDE.glob("*.sh")}
    # which its page writes
    assert {*SUBMITTED} == own | {"10-inference"}
    output = {name: (guide / f"{name}.out").read_text() for name in SUBMITTED}
    failed = {name: text for name, text in output.items() if (guide / f"{name}.status").read_text() != "0\n"}
    assert not failed
    for name, ranks, samples in (
        ("01-quick-start", 1, 256),
        ("03-file-formats", 2, 512),
        ("05-srun", 2, 256),
        ("05-torchrun", 2, 256),
        ("07-tensorboard", 1, 256),
        ("08-mlflow", 1, 256),
    ):
        # a rank whose loss has not decreased fails
        found = re.findall(r"^rank (.*), loss [\d.]+ -> [\d.]+$", output[name], re.MULTILINE)
        wanted = [f"{rank} of {ranks} on {NODES[rank]}: {samples} samples" for rank in range(ranks)]
        # the single rank may be on either node
        assert sorted(re.sub(*NODES[::-1], one) if ranks == 1 else one for one in found) == wanted, name
    # the user's packages, and the container's torch
    versions = {
        name: dict(line.rsplit(" ", 1) for line in output[name].splitlines() if line.endswith(".py"))
        for name in ("02-environment", "02-squashfs")
    }
    torch = {TORCH: "3.11", OCI: "3.13"}
    added = {"02-environment": guide / "optuna-env", "02-squashfs": "/user-software/venv/lumi-multitorch"}
    for (name, found), (module, python) in zip(versions.items(), torch.items()):
        assert found == {
            f"torch {VERSIONS[module]}": f"/opt/venv/lib/python{python}/site-packages/torch/__init__.py",
            "optuna 1.0": f"{added[name]}/lib/python{python}/site-packages/optuna.py",
        }
    # the directory is gone, so both nodes read the samples from the SquashFS file
    assert not (guide / "samples").exists()
    assert next((guide / "runs").glob("events.out.tfevents.*")).stat().st_size > 500
    logged = [json.loads(line) for path in (guide / "mlruns").iterdir() for line in path.read_text().splitlines()]
    assert [(name, step) for name, _, step in logged] == [("loss", step) for step in range(20)]
    # the job script that a page writes
    job = (guide / "job.sh").read_text()
    assert re.search(rf"^module load LUMI\nmodule use /\S+\nmodule load {re.escape(LUMI_MODULE)}$", job, re.MULTILINE)
    assert job.endswith(" conda-python-distributed train.py\n")
    assert "0xfe000000000000,0xfe00000000000000" in job
    answer = "/scratch/project_xxxxxxxxx/models/my-model What is a container? --tensor-parallel-size 2\n"
    assert answer in output["10-inference"]


def test_the_guides_job_scripts_set_nothing_by_hand():
    """L-09: our scripts contain none of the settings and image paths that those of the LUMI AI Guide contain."""
    for path in GUIDE.glob("*.sh"):
        by_hand = r"MASTER_|RANK|WORLD_SIZE|MIOPEN|NCCL|ENV_|_HOME|CACHE|\.sif|-B |--bind|module (use|purge)|conda"
        assert not re.search(by_hand, path.read_text()), path
        assert re.search(r"^srun (--[\w:=$-]+ )*python ", path.read_text(), re.MULTILINE), path


@pytest.mark.nightly
def test_advice_for_users_of_the_older_modules(place, tmp_path):
    """Statements in docs/lumi/README.md for users of the older modules are true."""
    (tmp_path / "mine.py").write_text("")
    (place.site.home / ".bashrc").write_text("export FROM_BASHRC=1\n")
    script = f"""
        export PYTHONPATH={tmp_path}
        python -c 'import mine' 2>/dev/null || echo wrapper
        APPTAINERENV_PYTHONPATH={tmp_path} python -c 'import mine; print("on purpose")'
        start-shell -c 'echo bashrc $FROM_BASHRC'
        $WITH_VENV && $WITH_CONDA && echo harmless
    """
    output = place.output(OCI, script)
    (place.site.home / ".bashrc").unlink()
    assert output.splitlines() == ["wrapper", "on purpose", "bashrc", "harmless"]
