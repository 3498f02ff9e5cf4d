"""Images that are refused, by what was found in them."""

import importlib.util
import sysconfig
import zipfile

import pytest
from easybuild.easyblocks.generic.container import probe as probing
from easybuild.easyblocks.generic.container.probe import ImageProbe
from easybuild.tools.build_log import EasyBuildError


def probe(version="3.11.2", missing=(), bash="/bin/bash", python3="/usr/bin/python3", runs=True):
    """Return what is known about an image."""
    environment = {"PYTHONPATH": ""}
    python = {"version": version, "missing": list(missing), "packages": [], "environment": environment, "purelib": "/x"}
    output = f"said by the image\nbash\t{bash}\npython3\t{python3}\n" + (f"{python!r}\n" if python3 and runs else "")
    return ImageProbe("x.sif", output, "" if runs else "one\ncan't load library\n")


@pytest.fixture
def wheel_folder(tmp_path, monkeypatch):
    """Use one folder only for wheels of pip."""
    monkeypatch.setattr(probing, "WHEEL_FOLDER", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: None)
    return tmp_path


def make_pip(folder, version, wanted):
    """Write what the probe needs of a wheel of pip."""
    with zipfile.ZipFile(folder / f"pip-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"pip-{version}.dist-info/METADATA", f"Name: pip\nRequires-Python: {wanted}\n")


def test_an_image_that_has_everything(wheel_folder):
    """Nothing is refused; the packages are those that Python listed."""
    assert probe().lacks(venv=True) == []
    assert probe(missing=["pip"]).lacks(venv=True) == []
    assert probe(missing=["json", "venv", "pip"]).lacks(venv=False) == []
    probe().check(venv=True)
    assert probe().packages == {}


def test_an_image_without_python_has_no_packages():
    """Admin D4: the record of an installation without Python has no packages, which is no error."""
    assert ImageProbe("x.sif", "bash\t/bin/bash\n").packages.pins == []


@pytest.mark.parametrize(
    ("found", "venv", "reasons", "remedy"),
    [
        ({"bash": ""}, False, ["it has no bash"], "init = 'none'"),
        ({"bash": ""}, True, ["it has no bash"], "init = 'none'"),
        ({"bash": "", "python3": ""}, True, ["it has no bash", "it has no python3 on PATH"], "init = 'none'"),
        ({"python3": ""}, False, ["it has no python3 on PATH"], "init = 'none'"),
        ({"runs": False}, True, ["its python3 doesn't work: can't load library"], "init = 'none'"),
        ({"version": "3.7.17"}, True, ["its Python 3.7.17 is too old, 3.8 or newer"], "without user software"),
        ({"missing": ["json", "venv", "pip"]}, True, ["is incomplete, the standard library lacks json, venv"],
         "without user software"),
        ({"missing": ["ensurepip", "pip"]}, True, ["no ensurepip (Debian has it in the package python3-venv)"],
         "without user software"),
    ],
)
def test_missing_parts_are_refused(wheel_folder, found, venv, reasons, remedy):
    """G-11, defects B6, admin D10: each missing part is named with a remedy."""
    with pytest.raises(EasyBuildError) as refused:
        probe(**found).check(venv)
    for text in ("x.sif", "Nothing was copied", remedy, *reasons):
        assert text in str(refused.value)
    assert len(probe(**found).lacks(venv)) == len(reasons)


def test_the_pip_of_this_machine(wheel_folder):
    """G-11: the newest wheel of pip that supports the image's Python; not one that doesn't."""
    assert probe().pip_wheel == ""
    for version, wanted in [("9.0.3", ">=2.6"), ("23.0.1", ">=3.7"), ("24.0", ">=3.7"), ("26.0", ">=3.10")]:
        make_pip(wheel_folder, version, wanted)
    (wheel_folder / "pip-99.0-py3-none-any.whl").write_text("no wheel")
    for python, expected in [("3.8.1", "24.0"), ("3.10.0", "26.0"), ("3.13.0", "26.0")]:
        assert probe(version=python).pip_wheel == f"{wheel_folder}/pip-{expected}-py3-none-any.whl"
    for version in ("24.0", "26.0"):
        (wheel_folder / f"pip-{version}-py3-none-any.whl").unlink()
    assert probe(version="3.11.2").pip_wheel.endswith("pip-23.0.1-py3-none-any.whl")
    # it needs modules that Python 3.12 no longer has
    assert probe(version="3.12.0").pip_wheel == ""
    assert probe(missing=["pip", "ensurepip"]).lacks(venv=True) == []
