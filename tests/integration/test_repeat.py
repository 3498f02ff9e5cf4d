"""An exact repeat of an installation from its lock, and installing without an index from a wheelhouse."""

import json
import shutil

import pytest
from parts import Installed, wheel_settings
from support import make_wheel
from test_stages import make_sdist

TEXT = Installed.TEXT


@pytest.fixture
def index(tmp_path):
    """A folder that takes the place of an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    make_wheel(folder, "library")
    make_wheel(folder, "application", requires=["library"])
    make_sdist(folder, "kernels", needs="library")
    return folder


STAGES = [
    {"name": "first", "requirements": "application"},
    {"name": "second", "requirements": "kernels", "no_build_isolation": True, "verify": ["python -c 'import kernels'"]},
]


def lock(site, suffix=""):
    """The record of an installation."""
    return json.loads((site.prefix / f"eb/software/Example/1.0{suffix}/share/ebsif/lock.json").read_text())


def squashfs(site, suffix=""):
    """The bytes of user software."""
    return (site.prefix / f"eb/software/Example/1.0{suffix}/user-software.squashfs").read_bytes()


def installed(site, index, text, check=True, suffix="", **environment):
    """Install and return the CompletedProcess."""
    return site.eb(
        site.easyconfig(TEXT + text, suffix=suffix), check=check, **{**wheel_settings(index), **environment}
    )


@pytest.fixture
def original(site, index):
    """An installation and its lock, kept beside the easyconfigs."""
    installed(site, index, f"requirements = {STAGES!r}\n")
    shutil.copy(site.prefix / "eb/software/Example/1.0/share/ebsif/lock.json", site.prefix / "mine.json")
    return site


def test_an_exact_repeat(original, index):
    """S000-18, S003-23: `requirements` is a lock: the same versions although newer ones are there, the same bytes."""
    make_wheel(index, "library", version="2.0")
    make_wheel(index, "application", version="2.0", requires=["library>=2"])
    installed(original, index, "requirements = {'lock': 'mine.json'}\n", suffix="-again")
    again = lock(original, "-again")
    for key in ("stages", "venv_packages", "image_packages", "user_software"):
        assert again[key] == lock(original)[key], key
    assert squashfs(original, "-again") == squashfs(original)

    # eb changes a copy of the easyconfig, in a temporary directory (defects E7)
    (original.prefix / "mine.json").rename(original.sources / "mine.json")
    path = original.easyconfig(TEXT + "requirements = {'lock': 'mine.json'}\n", suffix="-again")
    original.eb(path, "--try-amend=versionsuffix=-tried", **wheel_settings(index))
    assert squashfs(original, "-tried") == squashfs(original)
    (original.sources / "mine.json").unlink()
    result = original.eb(path, "--rebuild", check=False, **wheel_settings(index))
    assert f"{original.prefix}/mine.json" in result.stdout + result.stderr


def test_what_is_not_the_same_is_named(original, index, base_image):
    """A repeat that is none: a package is another file, is gone, or the image is another: eb fails and says which."""
    text = "requirements = {'lock': 'mine.json'}\n"
    make_wheel(index, "library", module_text="changed = True\n")
    result = installed(original, index, text, check=False, suffix="-other")
    assert "library-1.0-py3-none-any.whl has another SHA256" in result.stdout + result.stderr

    record = json.loads((original.prefix / "mine.json").read_text())
    record["image_packages"] = [line.replace("numpy==", "numpy==0.") for line in record["image_packages"]]
    (original.prefix / "mine.json").write_text(json.dumps(record))
    result = installed(original, index, text, check=False, suffix="-other")
    assert "its packages differ: missing: numpy==0." in " ".join((result.stdout + result.stderr).split())

    (original.prefix / "mine.json").write_text("{}")
    result = installed(original, index, text, check=False, suffix="-other")
    assert "mine.json is not the lock of a container module" in result.stdout + result.stderr
    assert not list(original.modules.rglob("1.0-other.lua"))


def test_a_wheelhouse(site, index, tmp_path):
    """S003-10: wheels are built once, in the image; later installations need neither index nor compiler."""
    # as mpi4py: the index has a wheel, and another one is wanted (defects B3)
    make_wheel(index, "kernels", module_text="built_with = 'nothing'\n")
    built = {"no_binary": ["kernels"], "options": ["--upgrade"],
             "verify": ["python -c 'import kernels; assert kernels.built_with == \"library\"'"]}
    text = f"requirements = {[STAGES[0], {**STAGES[1], **built}]!r}\n"
    easyconfig = site.easyconfig(TEXT + text)
    house = tmp_path / "wheel house"
    command = ["ebsif", "wheelhouse", easyconfig, "-o", house, "--", *site.eb_options]
    result = site.run(command, **wheel_settings(index))
    names = {"application-1.0-py3-none-any.whl", "kernels-1.0-py3-none-any.whl", "library-1.0-py3-none-any.whl"}
    assert {path.name for path in house.iterdir()} == names
    assert f"3 wheels in {house}" in result.stdout
    assert not (site.prefix / "eb/software/Example").exists()

    nothing = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    site.eb(site.easyconfig(TEXT + text + f"wheelhouse = '{house}'\n"), **nothing)
    assert {"application==1.0", "kernels==1.0", "library==1.0"} <= set(lock(site)["venv_packages"])
    first = squashfs(site)

    # a repeat of that, offline as well
    shutil.copy(site.prefix / "eb/software/Example/1.0/share/ebsif/lock.json", site.prefix / "mine.json")
    text = f"requirements = {{'lock': 'mine.json'}}\nwheelhouse = '{house}'\n"
    site.eb(site.easyconfig(TEXT + text, suffix="-again"), **nothing)
    assert squashfs(site, "-again") == first


def test_a_wheelhouse_that_is_not_there(site, tmp_path):
    """No such folder: named before anything is done. No easyconfig: eb says so, the status is 1."""
    text = f"requirements = 'x'\nwheelhouse = '{tmp_path}/nowhere'\n"
    result = site.eb(site.easyconfig(TEXT + text), check=False)
    assert f"there is no directory {tmp_path}/nowhere" in " ".join((result.stdout + result.stderr).split())
    result = site.run(["ebsif", "wheelhouse", "nothing.eb", "-o", tmp_path / "x", "--", *site.eb_options], check=False)
    assert result.returncode == 1
    assert "ebsif: eb failed" in result.stderr


def test_a_wrong_dictionary_is_named(site):
    """A dictionary has to name a lock."""
    result = site.eb(site.easyconfig(TEXT + "requirements = {'look': 'x'}\n"), check=False)
    assert "should be {'lock': FILE}" in " ".join((result.stdout + result.stderr).split())
