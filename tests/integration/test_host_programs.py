"""K-03: programs of the host in containers of any image, with the real Slurm of the tests."""

import json
import re
import sys
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.host.elf import cached_libraries
from easybuild.easyblocks.generic.container.host.loader import Loader
from easybuild.easyblocks.generic.container.host.programs import OPENED_BY_GLIBC, HostPrograms
from parts import example_site
from support import CHECKOUT, printed, record_of

SESSION = CHECKOUT / "tests/kernel_session.py"
NAMES = ("srun", "sbatch", "squeue", "scancel", "sinfo")
# a glibc that is older than the host's, the same, and a newer one; in all images, and in those with Python
NEWER = pytest.param("python-3.13", marks=pytest.mark.nightly)
in_all_images = pytest.mark.parametrize("machine", ["python-3.9", "busybox", "example", NEWER], indirect=True)
in_python_images = pytest.mark.parametrize("machine", ["python-3.9", "example", NEWER], indirect=True)
INSTALL = "easyblock = 'ContainerInstall'\n"
SUBMIT = "import subprocess; print(subprocess.run(['sbatch', '-W', *%r], input=%r).returncode)"


def slurm_of(cluster, more=()):
    """Return the value of the parameter for the Slurm of this machine."""
    plugins = next(str(path) for path in Path("/usr/lib").glob("*/slurm*") if list(path.glob("auth_munge.so")))
    programs = [*NAMES, "sacct", "?no-such-program"]
    return {"programs": programs, "plugins": [plugins], "files": [str(cluster.place), *more]}


def easyconfig(site, value, init):
    """Write an easyconfig with programs of the host."""
    venv = "easyblock = 'ContainerVenv'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
    return site.easyconfig(
        f"{venv if init == 'conda-injected' else INSTALL}sources = ['example.sif']\ninit = {init!r}\n"
        f"host_programs = {value!r}\ncontainer_env = {{'APPEND_PATH': '/mine'}}"
    )


class Machine:
    """A module with the programs of this machine's Slurm."""

    def __init__(self, folder, image, cluster, tool="Lmod-Lua", init="image", more=()):
        self.site, self.cluster = example_site(folder, image, tool), cluster
        self.site.eb(easyconfig(self.site, slurm_of(cluster, more), init), **cluster.environment)

    def run(self, script, check=True, **environment):
        """Run a script after the module was loaded."""
        typed = f"module load Example/1.0 || exit\n{script}"
        return self.site.bash(typed, check, **self.cluster.environment, **environment)

    def inside(self, *command, check=False, **environment):
        """Run a command in the container."""
        words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in map(str, command))
        return self.run(f"singularity exec $SIF {words}", check, **environment)

    def output(self, text, *, inside=True):
        """Return the lines that a job prints, which was submitted in the container, or outside without the module."""
        script, output = self.site.work / "job.sh", self.site.work / "job.out"
        script.write_text(f"#!/bin/bash\n{text}\n")
        submit = ["sbatch", "--wait", "-n", 2, f"--output={output}", script]
        done = (
            self.inside(*submit) if inside else self.run(f"module unload Example; {' '.join(map(str, submit))}", False)
        )
        assert done.returncode == 0, done.stderr + (output.read_text() if output.exists() else "")
        return output.read_text().splitlines()


@pytest.fixture(scope="module")
def machine(request, tmp_path_factory, cluster, small_image, base_image):
    """A module of an image."""
    variant = request.param
    image = base_image if variant == "example" else small_image(variant)
    return Machine(
        tmp_path_factory.mktemp(variant),
        image,
        cluster,
        "EnvironmentModules-Tcl" if variant == "python-3.9" else "Lmod-Lua",
        {"busybox": "none", "example": "conda-injected"}.get(variant, "image"),
        # it has no accounts at all
        ["/etc/passwd", "/etc/group"] if variant == "busybox" else [],
    )


@in_all_images
def test_steps_and_their_status(machine):
    """K-03: in images with an older, the same, a newer and no glibc; exit status and signals are those of the step."""
    done = machine.inside("sh", "-c", "sinfo -h && squeue -h && srun -n 2 sh -c 'echo task $SLURM_PROCID'")
    assert done.returncode == 0, done.stderr
    assert {"task 0", "task 1"} <= set(done.stdout.splitlines())
    assert machine.inside("srun", "sh", "-c", "exit 7").returncode == 7
    wait = "srun sleep 100 & sleep 3; kill -TERM $!; wait $!"
    assert machine.inside("sh", "-c", wait).returncode == machine.run(wait, check=False).returncode > 128
    assert machine.inside("no-such-program").stderr.endswith(
        "no-such-program: this program of the host is not on this node\n"
    )
    # not on the PATH of people outside, and last in the container
    assert "/host-programs" not in machine.run("type -a srun").stdout
    path = machine.inside("sh", "-c", "echo $PATH").stdout.strip()
    assert path.endswith(":/host-programs/commands:/mine")


@in_all_images
def test_a_job_has_nothing_of_the_container(machine):
    """K-03: jobs that are submitted in the container are like others, start it again, and load its module."""
    names = "env | sed 's/=.*//'"
    others = set(machine.output(names)) - set(machine.output(names, inside=False))
    # what modules tools and EasyBuild have set remains, and loading the module sets it again
    remaining = r"(__(LMOD|MODULES)_|_ModuleTable|EB[A-Z]+EXAMPLE|EBSIF_ADDED_|JUPYTER_PATH)"
    assert [one for one in sorted(others) if not re.match(remaining, one)] == []
    lines = machine.output(
        "echo path=$PATH\n"
        f"{machine.site.tool.init}\nmodule load Example/1.0 || exit\n"
        "echo image=$SIF; srun -n 2 singularity exec $SIF sh -c 'srun --version; squeue -h -o %i'\n"
        "$CONTAINERROOT/bin/with-module sh -c 'echo step in $SLURM_JOB_ID'"
    )
    assert "/host-programs" not in lines[0]
    assert lines[1].endswith("/example.sif")
    assert len([line for line in lines if line.startswith("slurm")]) == 2, lines
    assert lines[-1].startswith("step in ")


@in_python_images
def test_python_and_workflows(machine):
    """K-03: sbatch and squeue of a Python in the container, which waits for its job."""
    output = machine.site.work / "python.out"
    code = SUBMIT % ([f"--output={output}"], b"#!/bin/sh\necho from Python; exit 3\n")
    assert machine.inside("python3", "-c", code).stdout.splitlines()[-1] == "3"
    assert output.read_text() == "from Python\n"


@pytest.mark.parametrize("machine", ["example"], indirect=True)
def test_a_kernel_submits(machine, own_software, tmp_path):
    """K-03: a notebook's kernel, which is started without the module, submits jobs and sees them."""
    own = {"EBSIF_USER_SOFTWARE": own_software, "JUPYTER_DATA_DIR": tmp_path / "jupyter"}
    command = ["ebsif", "kernel", "install", "Example/1.0", "--name", "mine"]
    machine.site.run(command, MODULEPATH=machine.site.modules, **own)
    output = tmp_path / "kernel.out"
    steps = [
        SUBMIT % ([f"--output={output}"], b"#!/bin/sh\necho from a kernel\n"),
        "print(subprocess.run(['squeue', '-h'], check=True).returncode)",
    ]
    done = machine.site.run([sys.executable, SESSION, "mine", *steps], **own, **machine.cluster.environment)
    # sbatch prints beside the session
    said = [json.loads(line)[0] for line in done.stdout.splitlines() if line.startswith("[")]
    assert [text.splitlines()[-1] for text in said] == ["0", "0"], done
    assert output.read_text() == "from a kernel\n"


@in_all_images
def test_what_is_recorded(machine):
    """K-03: in the record, in the help of the module, and what `ebsif show` says."""
    root = machine.site.root()
    record = record_of(root)["host_programs"]
    assert record["programs"]["srun"] == "/usr/bin/srun"
    assert "/usr/bin/srun:/host-programs/bin/srun:ro" in record["binds"]
    settings = (root / "share/ebsif/module.conf").read_text().splitlines()
    assert [f"bind ?{bind}" for bind in record["binds"]] == [one for one in settings if one.startswith("bind ?")]
    expected = "Programs of the host that work in the container, too: sacct, sbatch, "
    assert expected in machine.run("module help Example/1.0 2>&1").stdout
    # K-02: nothing was updated
    done = machine.site.run(["ebsif", "doctor", "--installed"], check=False, MODULEPATH=machine.site.modules)
    assert done.stderr.endswith("1 module checked: nothing is wrong\n"), done
    shown = machine.site.run(["ebsif", "show", "Example/1.0"], MODULEPATH=machine.site.modules).stdout
    assert re.search("of the host +sacct, sbatch, ", shown)


def test_what_stops_an_installation(tmp_path, cluster, small_image):
    """K-03: what is missing, and an account that the image doesn't know; all at once, before anything is copied."""
    site = example_site(tmp_path, small_image("busybox"))
    value = {**slurm_of(cluster), "programs": ["srun", "no-such-program", "/usr/bin/ldd"]}
    text = " ".join(site.eb(easyconfig(site, value, "none"), check=False).stdout.split())
    assert "'host_programs': nothing was copied" in text
    assert "no-such-program is not on this machine" in text
    assert "/usr/bin/ldd is not a program that a loader starts" in text
    configuration = tmp_path / "slurm.conf"
    configuration.write_text("# SlurmUser=root\n slurmuser = slurm # comment\n")
    value = {"programs": ["squeue"], "files": [str(configuration)]}
    text = " ".join(site.eb(easyconfig(site, value, "none"), check=False).stdout.split())
    assert f"doesn't know the account slurm, SlurmUser in {configuration}" in text
    assert not site.root().exists()
    # the remedy
    (tmp_path / "passwd").write_text("root:x:0:0:root:/:/bin/sh\nslurm:x:64030:64030:slurm:/:/bin/false\n")
    value["files"].append(f"{tmp_path}/passwd:/etc/passwd")
    site.eb(easyconfig(site, value, "none"))


def of_ldd(path):
    """Return the libraries that the loader of this machine finds."""
    output = printed(["ldd", path])
    return dict(re.findall(r"^\s*(\S+) => (\S+)", output, re.MULTILINE))


@pytest.mark.parametrize("name", [*NAMES, "sacct"])
def test_what_a_program_needs_is_what_the_loader_finds(name):
    """K-03: the same libraries as ldd says; the loader is bound by itself."""
    found = HostPrograms(Loader(), [name])
    assert found.problems == []
    expected = of_ldd(found.programs[name])
    # those that glibc opens by itself are not in the output of ldd
    assert {key: path for key, path in found.libraries.items() if "ld-linux" not in key and key in expected} == expected
    assert {*found.libraries} - {*expected} <= {*OPENED_BY_GLIBC, "ld-linux-x86-64.so.2"}


def test_a_cache_that_is_cut_is_no_cache(tmp_path):
    """K-03: the default directories are left then."""
    with open("/etc/ld.so.cache", "rb") as file:
        content = file.read()
    assert cached_libraries()["libc.so.6"]
    for length in (0, 30, len(content) // 2):
        (tmp_path / "cache").write_bytes(content[:length])
        assert cached_libraries(str(tmp_path / "cache")) == {}
