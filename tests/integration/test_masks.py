"""Masks and host libraries: the container sees another file system although the image is unchanged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from parts import TOOLS, Installed
from support import Site

# independent of user software
TEXT = "easyblock = 'ContainerInstall'\n" + Installed.TEXT.replace("venv_name = 'pytorch'\n", "")
LIBRARY = "/usr/lib/x86_64-linux-gnu"


def lock(site):
    """Return the installation's record."""
    return json.loads((site.prefix / "eb/software/Example/1.0/share/ebsif/lock.json").read_text())


def in_container(site, command, **environment):
    """Run a command in the loaded module's container; return the CompletedProcess."""
    return site.bash(f"module load Example/1.0 && singularity exec $SIF {command}", check=False, **environment)


def masked(site, value, extra=""):
    """Install with masks."""
    site.eb(site.easyconfig(TEXT + f"masked_paths = {value!r}\n" + extra), "--rebuild")


@pytest.mark.parametrize("tool", TOOLS)
def test_files_are_hidden_and_replaced(tool, tmp_path, base_image):
    """S000-10: named files are missing or replaced in the container; the SIF is unchanged; unloading undoes it."""
    site = Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    masked(site, {"/bin/to[ut]*": None, "/usr/bin/whoami": "/usr/bin/id"})
    result = in_container(site, "sh -c 'command -v touch; whoami -u; ls /usr/bin/tty; ls -ld /usr/bin /bin'")
    lines = result.stdout.splitlines()
    assert lines[0].isdigit(), result
    assert lines[1] == "/usr/bin/tty"
    assert [line.split()[0] for line in lines[2:]] == ["lrwxrwxrwx", "drwxr-xr-x"]
    assert not result.stderr
    image = site.prefix / "eb/software/Example/1.0/example.sif"
    assert image.read_bytes() == base_image.read_bytes()

    script = "module load Example/1.0; echo $APPTAINER_OVERLAY; module unload Example/1.0; env"
    output = site.bash(script, APPTAINER_OVERLAY="/a", SINGULARITY_OVERLAY="/a").stdout.splitlines()
    assert output[0].startswith("/a,/")
    assert output[0].endswith("/share/ebsif/masks.squashfs:ro")
    assert {"APPTAINER_OVERLAY=/a", "SINGULARITY_OVERLAY=/a"} <= set(output)


def test_an_overlay_of_the_users_own(site, tmp_path):
    """A user's overlay and the module's are both used."""
    masked(site, ["/usr/bin/touch"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/mine.txt").write_text("mine")
    mine = tmp_path / "mine.squashfs"
    subprocess.run(["mksquashfs", tmp_path / "mine", mine, "-no-progress"], check=True, capture_output=True)
    overlay = f"{mine}:ro"
    result = in_container(
        site, "sh -c 'cat /mine.txt; command -v touch || echo none'", APPTAINER_OVERLAY=overlay,
        SINGULARITY_OVERLAY=overlay,
    )
    assert result.stdout == "minenone\n"


def test_the_loader_finds_another_library(site):
    """S000-11: with a library masked, the loader uses the next directory's, as ldd and /proc/PID/maps show."""
    program = "ldd /usr/bin/git"
    site.eb(site.easyconfig(TEXT))
    before = in_container(site, program).stdout
    assert "libpcre2-8.so.0 => /lib/x86_64-linux-gnu/libpcre2-8.so.0" in before

    masked(site, [f"{LIBRARY}/libpcre2-8.so*"])
    assert "libpcre2-8.so.0 => not found" in in_container(site, program).stdout
    masked(site, {f"{LIBRARY}/libpcre2-8.so.0": f"{LIBRARY}/libexpat.so.1"})
    code = "import ctypes; ctypes.CDLL('libpcre2-8.so.0'); print(open('/proc/self/maps').read())"
    maps = in_container(site, f'python3 -c "{code}"').stdout
    assert "libexpat.so" in maps
    assert "libpcre2" not in maps


def test_a_masked_library_in_a_wheel(site, base_image, tmp_path):
    """S000-11, tests: a wheel's copy of a library, found by RPATH, is masked: the loader uses the system's."""
    packages = "/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages"
    script = f"ls {packages}/numpy.libs/libquadmath-*; ldd {packages}/numpy/_core/_multiarray_umath.*.so"
    plain = subprocess.run(["apptainer", "exec", base_image, "sh", "-c", script], capture_output=True, text=True,
                           check=True).stdout
    name = Path(plain.splitlines()[0]).name
    assert f"numpy/_core/../../numpy.libs/{name} (" in plain
    copy = subprocess.run(["apptainer", "exec", base_image, "cat", f"{packages}/numpy.libs/{name}"],
                          capture_output=True, check=True).stdout
    (tmp_path / name).write_bytes(copy)
    masked(site, [f"{packages}/numpy.libs/libquadmath-*"], f"optional_binds = ['{tmp_path / name}:{LIBRARY}/{name}']\n")
    linked = in_container(site, f"ldd {packages}/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so").stdout
    assert f"{name} => /lib/x86_64-linux-gnu/{name} (" in linked
    maps = in_container(site, "python3 -c 'import numpy; print(open(\"/proc/self/maps\").read())'").stdout
    assert {line.split()[-1] for line in maps.splitlines() if name in line} == {f"{LIBRARY}/{name}"}


def test_masks_are_in_help_and_lock(site):
    """S000-12: a mask is listed in the module's help and in the lock file, with the files it matched."""
    masked(site, {"/usr/bin/to[u]*": None, "/usr/bin/whoami": "/usr/bin/id"})
    # admin D4: an installation without a venv lists the image's packages, too, for comparisons, scanners and spider
    assert "numpy" in {line.split("==")[0] for line in lock(site)["image_packages"]}
    assert "numpy" in next((site.modules).rglob("1.0.lua")).read_text().partition("extensions(")[2]
    assert lock(site)["masks"] == {
        "/usr/bin/to[u]*": {"paths": ["/usr/bin/touch"]},
        "/usr/bin/whoami": {"paths": ["/usr/bin/whoami"], "replacement": "/usr/bin/id"},
    }
    result = site.bash("module help Example/1.0 2>&1")
    assert " - /usr/bin/to[u]* (hidden)\n - /usr/bin/whoami (replaced by /usr/bin/id)\n" in result.stdout
    # repeated from the installed files alone
    module = site.modules / "Example/1.0.lua"
    text = module.read_text()
    easyconfig = site.prefix / "Example-1.0.eb"
    site.eb(easyconfig, "--module-only", "--force")
    assert module.read_text() == text


def test_commands_at_installation_see_the_masks(site):
    """A stage's verification sees what users will see: masks apply at installation."""
    verify = "requirements = [{'verify': ['! command -v touch']}]\n"
    site.eb(site.easyconfig(Installed.TEXT + "masked_paths = ['/usr/bin/touch']\n" + verify))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["/opt/no/such/*.so"], "nothing in the image matches '/opt/no/such/*.so'"),
        (["usr/bin/touch"], "'usr/bin/touch' can't be used: it should be a full path"),
        (["/usr/../bin/touch"], "can't be used: it should be a full path"),
        (["/user-software/venv/x"], "'post' of a stage"),
        ("/usr/bin/touch", "should be a list of strings, or a dictionary that maps strings"),
        ({"/usr/bin/touch": 1}, "should be a list of strings, or a dictionary that maps strings"),
    ],
)
def test_wrong_masks_are_refused(site, value, expected):
    """Invalid masks, and masks without effect: the error names mask and reason."""
    result = site.eb(site.easyconfig(TEXT + f"masked_paths = {value!r}\n"), check=False)
    assert result.returncode != 0
    assert expected in " ".join((result.stdout + result.stderr).split())


def test_patterns_are_not_executed(site, tmp_path):
    """Nothing in a pattern is executed."""
    canary = tmp_path / "canary"
    pattern = f"/usr/bin/$(touch {canary})`touch {canary}`;"
    result = site.eb(site.easyconfig(TEXT + f"masked_paths = [{pattern!r}]\n"), check=False)
    assert "nothing in the image matches" in result.stdout + result.stderr
    assert not canary.exists()


# --- libraries of the host


def test_a_library_is_bound_only_if_missing(site, tmp_path):
    """S001-13, S002-15: if_missing: bound only if the image's loader finds none."""
    for name in ("libjansson.so.4", "libz.so.1"):
        (tmp_path / name).write_text("of the host")
    value = {
        f"{tmp_path}/libjansson.so.4:/usr/lib64/libjansson.so.4": "if_missing",
        f"{tmp_path}/libz.so.1:/usr/lib64/libz.so.1": "if_missing",
    }
    easyconfig = site.easyconfig(TEXT + f"library_binds = {value!r}\n")
    site.eb(easyconfig)
    assert in_container(site, "cat /usr/lib64/libjansson.so.4").stdout == "of the host"
    assert in_container(site, "cat /usr/lib64/libz.so.1").returncode != 0
    # repeated from the installed files alone, on a node without the library
    site.eb(easyconfig, "--module-only", "--force")
    assert in_container(site, "cat /usr/lib64/libjansson.so.4").stdout == "of the host"
    (tmp_path / "libjansson.so.4").unlink()
    assert in_container(site, "true").returncode == 0


def test_a_library_is_bound_only_if_newer(site, tmp_path):
    """S001-13: if_newer: bound only if the image's is older, according to the versions in the file names."""
    for name, version in (("libz.so.1", "1.99.0"), ("libexpat.so.1", "1.0.0")):
        (tmp_path / f"{name[:-2]}.{version}").write_text("of the host")
        (tmp_path / name).symlink_to(f"{name[:-2]}.{version}")
    value = {f"{tmp_path}/{name}:/mnt/{name}": "if_newer" for name in ("libz.so.1", "libexpat.so.1")}
    site.eb(site.easyconfig(TEXT + f"library_binds = {value!r}\n"))
    assert in_container(site, "cat /mnt/libz.so.1").stdout == "of the host"
    assert in_container(site, "cat /mnt/libexpat.so.1").returncode != 0


def test_a_wrong_condition_is_named(site):
    """The error lists the valid conditions."""
    result = site.eb(site.easyconfig(TEXT + "library_binds = {'/a': 'sometimes'}\n"), check=False)
    assert "'if_missing' or 'if_newer'" in " ".join((result.stdout + result.stderr).split())
