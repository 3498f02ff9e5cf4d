"""Incomplete images: whatever can work does, the rest is refused with the reason before anything is copied."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ebsif.images import inspection
from parts import example_site, wheel_settings
from support import at_terminal


@pytest.fixture
def place(tmp_path, small_image):
    """Return a function that makes a site with one of the small images."""
    return lambda variant: example_site(tmp_path, small_image(variant))


def easyconfig(site, text, easyblock="ContainerInstall"):
    """Write an easyconfig for a site's image."""
    path = site.easyconfig("sources = ['example.sif']\n" + text)
    path.write_text(path.read_text().replace("ContainerVenv", easyblock))
    return path


def refused(site, path):
    """Install, expecting that eb fails before copying anything; return its output."""
    result = site.eb(path, check=False)
    said = result.stdout + result.stderr
    assert result.returncode and "Traceback" not in said
    assert "Nothing was copied" in said
    assert not list((site.prefix / "eb").glob("software/*/*/*")) + list((site.prefix / "eb").rglob("*.sif"))
    return said


def test_an_image_without_bash_and_python(place, tmp_path):
    """S001-12, G-11: only busybox: module, binds, wrappers and start-shell work; no venv is attempted."""
    site = place("busybox")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text").write_text("second\nfirst\n")
    text = f"init = 'none'\nwrappers = ['tac', 'sort']\nbinds = ['{tmp_path}/data:/mnt']\n"
    site.eb(easyconfig(site, text))
    root = site.root()
    assert {path.name for path in (root / "bin").iterdir()} == {"start-shell", "with-module", "sort", "tac"}
    # containers read their variables there; none is for users
    expected = {"find-caches", "get-master", "schedulers", "show-help", "stage-software"}
    assert {path.name for path in (root / "runscripts").iterdir()} == expected
    (tmp_path / "data" / "script").write_text('printf "<%s>" "$0" "$@"\n')
    script = """
        sort /mnt/text
        start-shell -c 'echo "$0 $1 $APPTAINER_NAME"; test -x /bin/busybox' name 'a  b'
        start-shell /mnt/script 'c  d' '$e'
        echo; echo 'echo typed $((1 + 1))' | start-shell
    """
    output = site.bash("module load Example/1.0\nset -e\n" + script).stdout
    assert output == "first\nsecond\nname a  b example.sif\n</mnt/script><c  d><$e>\ntyped 2\n"
    assert site.bash("module load Example/1.0; start-shell -c 'exit 7'", check=False).returncode == 7
    # its prompt names the module too
    loaded = site.bash("module load Example/1.0 && env -0").stdout.split("\0")[:-1]
    environment = dict(entry.split("=", 1) for entry in loaded)
    status, output = at_terminal(root / "bin/start-shell", environment, site.work, ["exit 7"])
    assert (status, re.search(r"\(Example/1\.0\) [#$] ", output) is not None) == (7, True), output


def test_an_image_without_a_shell(place, root_of_busybox, tmp_path):
    """Images of one static program run with the runtime alone; it is said before anything is copied."""
    site = place("busybox")
    (tmp_path / "root").mkdir()
    shutil.copy(root_of_busybox / "bin/busybox", tmp_path / "root/hello")
    (site.sources / "example.sif").unlink()
    subprocess.run(["apptainer", "--silent", "build", site.sources / "example.sif", tmp_path / "root"], check=True)
    said = refused(site, easyconfig(site, "init = 'none'\n"))
    assert "No shell (sh) can be started in the image" in said
    assert "Images without one run with the runtime alone: apptainer exec IMAGE PROGRAM" in said


@pytest.mark.parametrize(("easyblock", "text"), [("ContainerVenv", ""), ("ContainerInstall", "init = 'image'\n")])
def test_unsupported_features_without_bash_and_python(place, easyblock, text):
    """G-11: a venv and scripts for Python are refused, with both reasons and the remedy."""
    site = place("busybox")
    said = refused(site, easyconfig(site, text, easyblock))
    assert "example.sif can't be installed like this: it has no bash" in said
    assert "it has no python3 on PATH" in said
    assert "easyblock ContainerInstall with init = 'none'" in said


@pytest.mark.parametrize(
    ("easyblock", "environment", "missing"),
    [
        ("ContainerInstall", "conda_env = 'pytorhc'\n", "pytorhc"),
        ("ContainerVenv", "conda_env = 'pytorhc'\n", "pytorhc"),
        # the name of the software is the default
        ("ContainerVenv", "", "example"),
    ],
)
def test_a_conda_environment_that_the_image_lacks(site, easyblock, environment, missing):
    """H-05: the environment is refused, instead of a module with another Python; what is there is named."""
    text = f"init = 'conda-injected'\n{environment}image_packages = {{'python': '3.11'}}\n"
    said = " ".join(refused(site, easyconfig(site, text, easyblock)).split())
    assert f"no Conda environment /opt/miniconda3/envs/{missing} with Python, its python3 is /usr/bin/python3" in said
    assert "Set 'conda_env' to an environment that is there: pytorch." in said


def test_an_incomplete_python(place, small_image):
    """G-11: python3-minimal: no venv, for the reason given; its Python works as it is."""
    site = place("python-minimal")
    said = refused(site, easyconfig(site, "", "ContainerVenv"))
    assert "its Python is incomplete, the standard library lacks importlib.metadata, json, venv (Debian has" in said
    assert "without user software (easyblock ContainerInstall; 'venv: false'" in said
    said = refused(site, easyconfig(site, "masked_paths = ['/usr/bin/python3*']\n", "ContainerVenv"))
    assert "like this: it has no python3 on PATH" in said

    site.eb(easyconfig(site, "wrappers = ['python3']\n"))
    script = "module load Example/1.0\npython3 -c 'import sys; print(sys.prefix)'\nlist-packages; echo $?"
    result = site.bash(script)
    assert result.stdout == "/usr\n1\n"
    assert "the Python of this container can't list its packages" in result.stderr
    assert "Traceback" not in result.stderr

    image = small_image("python-minimal")
    shown = subprocess.check_output([Path(sys.prefix) / "bin/ebsif", "show", image], text=True)
    lines = [line.split(None, 1) for line in shown.splitlines()]
    assert ["without", "importlib.metadata, json, venv, ensurepip, pip"] in lines
    assert inspection.inspect(image, checksum=False).python.version.startswith("3.")


def test_a_python_without_pip(place):
    """G-11: no pip and no ensurepip: refused with user software; without, its packages are listed."""
    site = place("python-without-pip")
    said = refused(site, easyconfig(site, "requirements = ['byhand']\n", "ContainerVenv"))
    assert "its Python has no pip, and no ensurepip to install one (Debian has it in" in said
    assert "without user software (easyblock ContainerInstall; 'venv: false'" in said

    site.eb(easyconfig(site, "wrappers = ['python']\n"))
    listed = site.bash("module load Example/1.0 && list-packages").stdout.splitlines()
    expected = [["Package", "Version", "From"], ["-------", "-------", "-----"], ["shipped", "1.0", "image"]]
    assert [line.split() for line in listed] == expected
    result = site.bash("module load Example/1.0 && list-packages --outdated", check=False)
    assert result.returncode == 1
    assert "has no pip, so its options can't be used: leave out --outdated" in result.stderr


def test_an_image_like_cotainrs(place, wheels, small_image):
    """S001-09: Conda in /opt/conda, activated by the image itself, cotainr's labels: it works like any other image."""
    found = inspection.inspect(small_image("cotainr"), checksum=False)
    assert found.init == "image"
    assert found.labels["cotainr.version"] == "2025.3.0"
    assert found.python.prefix == "/opt/conda/envs/conda_container_env"
    site = place("cotainr")
    text = "requirements = ['byhand']\nvenv_name = 'mine'\nwrappers = ['python']\n"
    site.eb(easyconfig(site, text, "ContainerVenv"), **wheel_settings(wheels))
    code = "import byhand, setuptools, sys; print(sys.prefix, setuptools.__file__, byhand.__file__)"
    script = f"""
        python -c '{code}'
        singularity exec $SIF python -c '{code}'
        singularity exec $SIF conda-python-simple -c '{code}'
        start-shell -c "python -c '{code}'"
    """
    lines = site.bash("module load Example/1.0\nset -e\n" + script).stdout.splitlines()
    assert len(lines) == 4 and len(set(lines)) == 1
    prefix, setuptools, byhand = lines[0].split()
    assert prefix == "/user-software/venv/mine"
    assert setuptools.startswith("/opt/conda/envs/conda_container_env/lib/")
    assert byhand.startswith("/user-software/venv/mine/lib/")


ACTIVATION = r"""
WITH_CONDA='source {folder}/activate'
for options in '-eu -o pipefail' '+eu +o pipefail'; do
    unset VIRTUAL_ENV CONDA_PREFIX
    set $options
    before=$(set +o)$-
    source /runscripts/init-conda-venv
    [[ "$before" == "$(set +o)$-" ]] && echo "same $VIRTUAL_ENV"
done
"""


def test_activation_restores_shell_options(installed_once, tmp_path):
    """Options that activation changes are restored, without `local -`, which needs bash 4.4."""
    (tmp_path / "activate").write_text("false\n: $UNSET\nset -x +o pipefail\nreturn $STATUS\n")
    (tmp_path / "script").write_text(ACTIVATION.format(folder=tmp_path))
    run = f"singularity exec --bind {tmp_path} $SIF bash {tmp_path}/script"
    module = installed_once.SQUASHED
    status = {"APPTAINERENV_STATUS": "0", "SINGULARITYENV_STATUS": "0"}
    assert installed_once.output(module, run, **status) == "\n".join(["same /user-software/venv/pytorch"] * 2)
    failed = installed_once.load(module, run, check=False, **dict.fromkeys(status, "3"))
    assert (failed.returncode, failed.stdout) == (3, "")
    assert "\n    local -\n" not in (installed_once.root(module) / "runscripts/init-conda-venv").read_text()


def test_an_installation_in_part(place):
    """S002-44: eb --skip is refused with what to do instead, and the installation stays as it is."""
    site = place("busybox")
    path = easyconfig(site, "init = 'none'\n")
    site.eb(path)
    result = site.eb(path, "--rebuild", "--skip", check=False)
    said = result.stdout + result.stderr
    assert result.returncode and "Traceback" not in said
    assert "A container can't be installed in part, as with eb --skip" in " ".join(said.split())
    site.bash("module load Example/1.0 && singularity exec $SIF true")
