"""K-01: MPICH of the host for mpi4py in an image that has another MPICH, both from the package index."""

import json
import subprocess
import sys
import zipfile

import pytest
from parts import example_site

pytestmark = pytest.mark.nightly

PREFIX = "/opt/miniconda3/envs/pytorch"
HOST = "/lib/x86_64-linux-gnu/libmpich.so.12"
EXCHANGE = """
from mpi4py import MPI
world = MPI.COMM_WORLD
got = world.sendrecv([world.rank] * 10**6, 1 - world.rank, source=1 - world.rank)
paths = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line}
print("rank", world.rank, "has", got[-1], "with", *paths, MPI.Get_library_version().split()[2], flush=True)
"""
LAUNCHERS = ("mpiexec.hydra -n 2", "srun --mpi=pmi2 -n 2")


@pytest.fixture(scope="module")
def image(tmp_path_factory, base_image):
    """An image whose mpi4py finds MPICH by ldconfig, or else, with `conda`, in the prefix of its Python."""
    place = tmp_path_factory.mktemp("image")
    wheels, root = place / "wheels", place / "root"
    packages = ["mpi4py==4.1.2", "mpich==5.0.2"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--python-version=3.11"]
    subprocess.run([*pip, "--only-binary=:all:", f"--dest={wheels}", *packages], check=True, timeout=300)
    subprocess.run(["apptainer", "--silent", "build", "--sandbox", root, base_image], check=True, timeout=300)
    for wheel in wheels.iterdir():
        target = root / PREFIX.lstrip("/") / "lib/python3.11/site-packages"
        zipfile.ZipFile(wheel).extractall(target if wheel.name.startswith("mpi4py") else place)
    (place / "mpich-5.0.2.data/data/lib").rename(root / "opt/mpich")
    (root / "etc/ld.so.conf.d/mpich.conf").write_text("/opt/mpich\n")

    def get(name, script):
        subprocess.run(["apptainer", "--silent", "exec", "--writable", root, "sh", "-c", script], check=True)
        subprocess.run(["apptainer", "--silent", "build", place / name, root], check=True, timeout=300)
        return place / name

    yield {
        "system": get("system.sif", "rm /opt/mpich/libmpi.so; ldconfig"),
        "conda": get("conda.sif", f"rm /etc/ld.so.cache; mv /opt/mpich/* {PREFIX}/lib"),
    }
    subprocess.run(["chmod", "-R", "u+w", root], check=True)


def easyconfig(site, **more):
    """Write an easyconfig with the MPICH of the host."""
    text = "easyblock = 'ContainerInstall'\nsources = ['example.sif']\nconda_env = 'pytorch'\ninit = 'conda-injected'\n"
    values = {"host_libraries": {"libraries": ["libmpich.so.12 as libmpi.so.12"]}, **more}
    return site.easyconfig(text + "".join(f"{name} = {value!r}\n" for name, value in values.items()))


@pytest.mark.parametrize("kind", ["system", "conda"])
def test_another_mpich(kind, image, tmp_path, cluster):
    """K-01: two ranks open the host's; where Python's own prefix comes first, doctor says what to do, and it helps."""
    site = example_site(tmp_path, image[kind])
    site.eb(easyconfig(site))

    def ranks(launcher):
        run = f"timeout -s KILL 100 {launcher} singularity exec $SIF python -c '{EXCHANGE}'"
        done = site.bash(f"module load Example/1.0 && {run}", check=False, **cluster.environment)
        lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
        assert lines, done
        return lines

    def doctor(*words):
        command = [*words, "ebsif", "doctor", "--installed", "--json"]
        done = site.run(command, check=False, MODULEPATH=site.modules, **cluster.environment, SLURM_MPI_TYPE="pmi2")
        return [(one["level"], one["text"]) for one in json.loads(done.stdout)]

    own = f"{PREFIX}/lib/libmpi.so.12"
    if kind == "conda":
        (error,) = [text for level, text in doctor() if level == "error"]
        assert error.startswith(f"mpi4py opens {own}, not {HOST} of the host, because it looks there first")
        assert f"add '{HOST}:{own}' to binds" in error
        site.eb(easyconfig(site, binds=[f"{HOST}:{own}"]), "--rebuild")
    path = {"system": "/host-libraries/libmpi.so.12", "conda": own}[kind]
    for launcher in LAUNCHERS:
        assert ranks(launcher) == [f"rank {rank} has {1 - rank} with {path} 4.0.2" for rank in (0, 1)]
    found = doctor("salloc", "--quiet", "--nodes=1")
    assert not [text for level, text in found if level == "error"]
    (said,) = [text for _, text in found if "rank 0 of 2" in text]
    assert said == (
        f"Example/1.0: rank 0 of 2 has {path} (MPICH Version: 4.0.2); rank 1 of 2 has {path} (MPICH Version: 4.0.2)"
    )
