"""Masks: the container sees another file system although the image is unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest
from parts import BOTH_TOOLS, TOOLS, Installed, example_site
from support import Site

# without user software
TEXT = "easyblock = 'ContainerInstall'\n" + Installed.TEXT.replace("venv_name = 'pytorch'\n", "")
LIBRARY = "/usr/lib/x86_64-linux-gnu"
PACKAGES = "/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages"
MASKS = {
    "/usr/bin/to[u]*": None,
    "/usr/bin/whoami": "/usr/bin/id",
    f"{LIBRARY}/libtic.so*": None,
    f"{LIBRARY}/libpanelw.so.6": f"{LIBRARY}/libexpat.so.1",
    f"{PACKAGES}/numpy.libs/libquadmath-*": None,
}


def in_container(site, command, **environment):
    """Run a command in the loaded module's container; return the CompletedProcess."""
    return site.bash(f"module load Example/1.0 && singularity exec $SIF {command}", check=False, **environment)


def plain(image, command):
    """Return the output of a command in the unmodified image."""
    return subprocess.run(["apptainer", "exec", image, *command], capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def host(tmp_path_factory, base_image):
    """A folder of the host; `wheel` in it has a copy of a library that is part of numpy's wheel."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "wheel").mkdir()
    name = Path(plain(base_image, ["sh", "-c", f"ls {PACKAGES}/numpy.libs/libquadmath-*"]).decode().strip()).name
    (folder / "wheel" / name).write_bytes(plain(base_image, ["cat", f"{PACKAGES}/numpy.libs/{name}"]))
    return folder


@pytest.fixture(scope="module")
def masked(tmp_path_factory, base_image, host):
    """A site whose module has all masks, and a library of the host; a stage verifies that masks are in force."""
    site = example_site(tmp_path_factory.mktemp("masked"), base_image)
    (wheel,) = (host / "wheel").iterdir()
    site.eb(
        site.easyconfig(
            f"{Installed.TEXT}masked_paths = {MASKS!r}\nbinds = ['?{wheel}:{LIBRARY}/{wheel.name}']\n"
            f"requirements = [{{'verify': ['! command -v touch']}}]\n"
        )
    )
    return site


@pytest.mark.parametrize("tool", BOTH_TOOLS)
def test_files_are_hidden_and_replaced(tool, tmp_path, base_image):
    """S000-10: named files are missing or replaced in the container; the SIF is unchanged; unloading undoes it."""
    site = Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    masks = {"/bin/to[ut]*": None, "/usr/bin/whoami": "/usr/bin/id"}
    site.eb(site.easyconfig(TEXT + f"masked_paths = {masks!r}\n"))
    result = in_container(site, "sh -c 'command -v touch; whoami -u; ls /usr/bin/tty; ls -ld /usr/bin /bin'")
    lines = result.stdout.splitlines()
    assert lines[0].isdigit(), result
    assert lines[1] == "/usr/bin/tty"
    assert [line.split()[0] for line in lines[2:]] == ["lrwxrwxrwx", "drwxr-xr-x"]
    assert not result.stderr
    image = site.root() / "example.sif"
    assert image.read_bytes() == base_image.read_bytes()

    script = "module load Example/1.0; echo $APPTAINER_OVERLAY; module unload Example/1.0; env"
    output = site.bash(script, APPTAINER_OVERLAY="/a", SINGULARITY_OVERLAY="/a").stdout.splitlines()
    assert output[0].startswith("/a,/")
    assert output[0].endswith("/share/ebsif/masks.squashfs:ro")
    assert {"APPTAINER_OVERLAY=/a", "SINGULARITY_OVERLAY=/a"} <= set(output)
    # an installation without a venv lists the image's packages, too, for comparisons, scanners and spider
    assert "numpy" in {line.split("==")[0] for line in site.record()["image_packages"]}
    # 0b of the field: `module avail` doesn't show them
    if site.tool.syntax == "Lua":
        assert "numpy" not in (site.modules / "Example/1.0.lua").read_text()


def test_an_overlay_of_the_users_own(masked, tmp_path):
    """A user's overlay and the module's are both used."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/mine.txt").write_text("mine")
    mine = tmp_path / "mine.squashfs"
    subprocess.run(["mksquashfs", tmp_path / "mine", mine, "-no-progress"], check=True, capture_output=True)
    own = dict.fromkeys(("APPTAINER_OVERLAY", "SINGULARITY_OVERLAY"), f"{mine}:ro")
    assert in_container(masked, "sh -c 'cat /mine.txt; command -v touch || echo none'", **own).stdout == "minenone\n"


def test_the_loader_finds_another_library(masked, base_image):
    """S000-11: with a library masked, the loader uses the next directory's, as ldd and /proc/PID/maps show."""
    program = ["ldd", "/usr/bin/tic"]
    assert b"libtic.so.6 => /lib/x86_64-linux-gnu/libtic.so.6" in plain(base_image, program)
    assert "libtic.so.6 => not found" in in_container(masked, " ".join(program)).stdout
    code = "import ctypes; ctypes.CDLL('libpanelw.so.6'); print(open('/proc/self/maps').read())"
    maps = in_container(masked, f'python3 -c "{code}"').stdout
    assert "libexpat.so" in maps
    assert "libpanelw" not in maps


def test_a_masked_library_in_a_wheel(masked, base_image, host):
    """S000-11, tests: a wheel's copy of a library, found by RPATH, is masked: the loader uses the system's."""
    (path,) = (host / "wheel").iterdir()
    name, program = path.name, f"ldd {PACKAGES}/numpy/_core/_multiarray_umath.*.so"
    assert f"numpy/_core/../../numpy.libs/{name} (" in plain(base_image, ["sh", "-c", program]).decode()
    linked = in_container(masked, f"sh -c '{program}'").stdout
    assert f"{name} => /lib/x86_64-linux-gnu/{name} (" in linked
    maps = in_container(masked, "python3 -c 'import numpy; print(open(\"/proc/self/maps\").read())'").stdout
    assert {line.split()[-1] for line in maps.splitlines() if name in line} == {f"{LIBRARY}/{name}"}


def test_masks_are_in_help_and_lock(masked):
    """S000-12: a mask is listed in the module's help and in the lock file, with the files it matched."""
    found = masked.record()["masks"]
    assert sorted(found) == sorted(MASKS)
    assert found["/usr/bin/to[u]*"] == {"paths": ["/usr/bin/touch"]}
    assert found["/usr/bin/whoami"] == {"paths": ["/usr/bin/whoami"], "replacement": "/usr/bin/id"}
    result = masked.bash("module help Example/1.0 2>&1")
    assert " - /usr/bin/to[u]* (hidden)\n - /usr/bin/whoami (replaced by /usr/bin/id)\n" in result.stdout
    # repeated from the installed files alone
    module = masked.modules / "Example/1.0.lua"
    text = module.read_text()
    masked.eb(masked.prefix / "Example-1.0.eb", "--module-only", "--force")
    assert module.read_text() == text


def test_commands_at_installation_see_the_masks(masked):
    """A stage's verification sees what users will see: masks apply at installation."""
    (stage,) = masked.record()["stages"]
    assert stage["verify"] == ["! command -v touch"]


def test_a_mask_that_matches_nothing_is_refused(site, tmp_path):
    """The error names the pattern, and nothing in it is executed. Other invalid masks are in tests/unit."""
    canary = tmp_path / "canary"
    patterns = {"missing": "/opt/no/such/*.so", "no program": f"/usr/bin/$(touch {canary})`touch {canary}`;"}
    texts = {name: TEXT + f"masked_paths = [{pattern!r}]\n" for name, pattern in patterns.items()}
    results = site.eb_each(texts)
    assert "nothing in the image matches '/opt/no/such/*.so'" in " ".join(results["missing"].stdout.split())
    assert "nothing in the image matches" in results["no program"].stdout
    assert [result.returncode for result in results.values()] == [1, 1]
    assert not canary.exists()
