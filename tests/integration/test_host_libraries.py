"""K-01: libraries of the host for programs of images, with real MPI."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from parts import EXCHANGE, example_site
from support import blocks, record_of, write_program

SYSTEM = "/lib/x86_64-linux-gnu"
TEXT = "easyblock = {!r}\nsources = ['example.sif']\nconda_env = 'pytorch'\ninit = {!r}\nhost_libraries = {!r}\n"


def easyconfig(site, value, init="conda-injected", easyblock="ContainerInstall"):
    """Write an easyconfig with libraries of the host."""
    return site.easyconfig(TEXT.format(easyblock, init, value))


@pytest.fixture(scope="module")
def machine(tmp_path_factory, base_image):
    """A module with MPICH of this machine, as the image's programs know it."""
    site = example_site(tmp_path_factory.mktemp("mpich"), base_image)
    site.eb(easyconfig(site, {"libraries": ["libmpich.so.12 as libmpi.so.12", "?libnone.so.1"]}))
    return site


def compiled(library, text="int own(void) {return 1;}", *options):
    """Make a library from a text, and return its path."""
    code = library.with_suffix(".c")
    code.write_text(text)
    names = ["-nostdlib", "-Wl,--build-id", f"-Wl,-soname,{library.name}", "-Wl,--no-as-needed"]
    subprocess.run(["gcc", "-shared", "-fPIC", *names, "-o", library, code, *options], check=True)
    return library


@pytest.mark.parametrize("launcher", ["mpiexec.hydra -n 2", "srun --mpi=pmi2 -n 2"])
def test_two_ranks_with_the_mpi_of_the_host(machine, cluster, launcher):
    """K-01, K-05: what the library needs comes along; the rank says which library it has."""
    run = f"singularity exec --bind {EXCHANGE} $SIF python3 {EXCHANGE} libmpi.so.12"
    script = f"module load Example/1.0 && timeout -s KILL 100 {launcher} {run}"
    done = machine.bash(script, check=False, **cluster.environment)
    path = "/host-libraries/libmpi.so.12"
    lines = [line for line in done.stdout.splitlines() if line.startswith("rank")]
    assert sorted(lines) == [f"rank 0 has 1 with {path}", f"rank 1 has 0 with {path}"], done


def test_what_the_module_has(machine):
    """K-01: record, help and `ebsif show` list what is bound and why; the image's own libraries and glibc stay."""
    root = machine.root()
    record = record_of(root)["host_libraries"]
    assert record["libraries"]["libmpi.so.12"] == f"{SYSTEM}/libmpich.so.12"
    assert record["why"]["libucp.so.0"] == "the image lacks it"
    assert not [name for name in record["libraries"] if name.startswith(("libc.", "libm.", "ld-"))]
    assert set(record["served"]) & {"libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "libudev.so.1"}
    settings = (root / "share/ebsif/module.conf").read_text()
    assert "\nstart_libraries /host-libraries\n" in settings
    assert f"\nbind ?{SYSTEM}/libmpich.so.12:/host-libraries/libmpi.so.12:ro\n" in settings
    # K-02: nothing was updated
    done = machine.run(["ebsif", "doctor", "--installed"], check=False, MODULEPATH=machine.modules)
    assert done.stderr.endswith("1 module checked: nothing is wrong\n"), done
    shown = machine.run(["ebsif", "show", "Example/1.0"], MODULEPATH=machine.modules).stdout
    assert "libmpi.so.12" in shown
    done = machine.bash("module help Example/1.0 2>&1; module load Example/1.0; singularity exec $SIF sh -c 'env; id'")
    assert "Libraries of the host that programs in the container use: " in done.stdout
    assert "\nLD_LIBRARY_PATH=/host-libraries:" in done.stdout
    # written again from the record
    machine.eb(machine.prefix / "Example-1.0.eb", "--module-only", "--force")
    assert (root / "share/ebsif/module.conf").read_text() == settings


def test_after_an_update_of_the_system(tmp_path, base_image):
    """K-02: another build is said once for all modules; the image's loader tells what it can't load any more."""

    def doctor():
        return site.run(["ebsif", "doctor", "--installed"], check=False, MODULEPATH=site.modules).stdout

    site = example_site(tmp_path, base_image)
    path, libc = compiled(tmp_path / "libown.so.1"), tmp_path / "new/libc.so.6"
    site.eb(easyconfig(site, {"libraries": [str(path)]}))
    compiled(path, "int own(void) {return 2;}")
    assert f"{path} has another build than when Example/1.0 was installed" in doctor()
    libc.parent.mkdir()
    (libc.parent / "map").write_text("GLIBC_2.99 {global: next;};")
    compiled(libc, "int next(void) {return 2;}", f"-Wl,--version-script={libc.parent}/map")
    compiled(path, "int next(void); int own(void) {return next();}", str(libc))
    assert "version `GLIBC_2.99' not found (required by /host-libraries/libown.so.1)" in doctor()


@pytest.mark.parametrize(
    ("variant", "init", "expected"),
    [
        ("python-3.9", "image", "and the image has up to GLIBC_2.30: use a newer image"),
        ("busybox", "none", "the image has no glibc, which libraries of the host need"),
    ],
)
def test_what_can_not_work_in_an_image(tmp_path, small_image, variant, init, expected):
    """K-01: a newer glibc is needed than the image has, or it has none: said before anything is copied."""
    site = example_site(tmp_path, small_image(variant))
    done = site.eb(easyconfig(site, {"libraries": ["libmpich.so.12"]}, init), check=False)
    text = " ".join(done.stdout.split())
    assert "'host_libraries': nothing was copied, because" in text
    assert expected in text
    assert not site.root().exists()


def test_what_an_image_would_get(machine, tmp_path, base_image, small_image):
    """K-01: `ebsif site libraries` finds what an installation records, and what stops one; without image, all of it."""
    (tmp_path / "mine").mkdir()
    profile = "name: mine\ndescription: one\nhost_libraries: {libraries: [libmpich.so.12 as libmpi.so.12]}\n"
    (tmp_path / "mine/site.yaml").write_text(profile)
    chosen = ["--site", "mine", "--catalog", tmp_path]
    (tmp_path / "temporary").mkdir()
    found = machine.run(["ebsif", "site", "libraries", base_image, *chosen, "--json"], TMPDIR=tmp_path / "temporary")
    assert not list((tmp_path / "temporary").iterdir())
    recorded = machine.record()
    assert json.loads(found.stdout) == {"image": str(base_image), **recorded["host_libraries"], "problems": []}
    # the commands of the page
    (tmp_path / "pytorch.sif").symlink_to(base_image)
    (tmp_path / "config.yaml").write_text(f"site: mine\ncatalogs: [{tmp_path}]\n")
    script = f"cd {tmp_path}\n{''.join(blocks('docs/host-libraries.md'))}"
    lines = machine.bash(script, EBSIF_CONFIG=tmp_path / "config.yaml").stdout.splitlines()
    rows = [line.split(maxsplit=2) for line in lines]
    assert rows.count(["libmpi.so.12", f"{SYSTEM}/libmpich.so.12", "named"]) == 2
    reasons = [why for name, _, why in rows if name == "libucp.so.0"]
    assert reasons == ["libmpich.so.12 needs it", "the image lacks it"]
    assert [path for name, path, why in rows if why == "of the image, which is new enough"] == list(
        recorded["host_libraries"]["served"].values()
    )
    done = machine.run(["ebsif", "site", "libraries", small_image("python-3.9"), *chosen], check=False)
    assert done.returncode == 1 and "error: /lib/x86_64-linux-gnu/" in done.stdout
    assert "and the image has up to GLIBC_2.30: use a newer image" in done.stdout
    damaged = tmp_path / "damaged.sif"
    damaged.write_bytes(base_image.read_bytes()[:100000])
    for arguments in ([damaged, *chosen], ["--site", "local"]):
        done = machine.run(["ebsif", "site", "libraries", *arguments], check=False)
        assert (done.returncode, done.stdout) == (3, ""), done


def test_a_stage_with_modules_of_the_host(tmp_path, base_image):
    """K-01: a module that adds to LD_LIBRARY_PATH takes nothing away from the library path of the container."""
    site = example_site(tmp_path, base_image)
    write_program(site.modules / "adds.lua", 'prepend_path("LD_LIBRARY_PATH", "/added")\n')
    stage = {"modules": ["adds"], "verify": ["echo $LD_LIBRARY_PATH | grep '^/host-libraries:.*/added'"]}
    value = {"libraries": ["libmpich.so.12"]}
    text = TEXT.format("ContainerVenv", "conda-injected", value)
    site.eb(site.easyconfig(f"{text}requirements = [{stage!r}]\n"))


def test_a_library_with_less_than_the_image(tmp_path, base_image):
    """K-01: an older libexpat would break the image's Python; nothing of this host is missed silently, either."""
    site = example_site(tmp_path, base_image)
    library = compiled(tmp_path / "libexpat.so.1")
    value = {"libraries": [str(library), "libnone.so.1"]}
    text = " ".join(site.eb(easyconfig(site, value), check=False).stdout.split())
    assert "libnone.so.1 is not on this machine" in text
    value = {"libraries": [str(library)]}
    text = " ".join(site.eb(easyconfig(site, value), check=False).stdout.split())
    assert f"{library} would replace /lib/x86_64-linux-gnu/libexpat.so.1 of the image, which has more" in text


def test_memory_that_killed_ranks_leave():
    """K-05: the command of the page removes one's own files of UCX that no process has any more."""
    in_use, left, young = (Path(f"/dev/shm/ucx_shm_posix_{name}{os.getpid()}") for name in ("a", "b", "c"))
    try:
        for path in (in_use, left, young):
            path.write_bytes(b"x")
        for path in (in_use, left):
            os.utime(path, (0, 0))
        # a process of its own, because those that have changed their account can't be looked into
        code = (
            "import mmap, sys; file = open(sys.argv[1], 'r+b'); there = mmap.mmap(file.fileno(), 0); print(flush=True)"
        )
        rank = [sys.executable, "-c", f"{code}; input()", in_use]
        with subprocess.Popen(rank, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            (command,) = blocks("docs/ranks.md")
            subprocess.run(["bash", "-c", command], check=False)
            process.communicate(b"\n")
        assert [path.exists() for path in (in_use, left, young)] == [True, False, True]
    finally:
        for path in (in_use, left, young):
            path.unlink(missing_ok=True)
