"""Exact repetition of an installation from its lock file, and installation from a wheelhouse without an index."""

import json
import re
import shutil

import pytest
from parts import Installed, example_site, wheel_settings
from support import make_wheel
from test_stages import make_sdist

TEXT = Installed.TEXT


def make_index(folder):
    """Create a folder that serves as an index."""
    folder.mkdir()
    make_wheel(folder, "library")
    make_wheel(folder, "application", requires=["library"])
    make_sdist(folder, "kernels", needs="library")
    return folder


STAGES = [
    {"name": "first", "requirements": "application"},
    {"name": "second", "requirements": "kernels", "no_build_isolation": True, "verify": ["python -c 'import kernels'"]},
]


def squashfs(site, suffix=""):
    """Return the bytes of user software."""
    return (site.root(f"Example/1.0{suffix}") / "user-software.squashfs").read_bytes()


@pytest.fixture(scope="module")
def original(tmp_path_factory, base_image):
    """An installation; its lock file is mine.json beside the easyconfigs, and the index is beside the site."""
    folder = tmp_path_factory.mktemp("original")
    site = example_site(folder, base_image)
    index = make_index(folder / "index")
    site.eb(site.easyconfig(TEXT + f"requirements = {STAGES!r}\n"), **wheel_settings(index))
    shutil.copy(site.root() / "share/ebsif/lock.json", site.prefix / "mine.json")
    return site


@pytest.fixture
def index(original, tmp_path):
    """A copy of its index."""
    return shutil.copytree(original.prefix.parent / "index", tmp_path / "index")


def test_an_exact_repeat(original, index):
    """S000-18, S003-23, E-07: if `requirements` is a lock file, versions and bytes are the same despite newer ones."""
    make_wheel(index, "library", version="2.0")
    make_wheel(index, "application", version="2.0", requires=["library>=2"])
    # E-07: the container follows from the image
    command = ["ebsif", "extend", "--from-lock", original.prefix / "mine.json", "--name", "again"]
    command += ["--date", "1", "--yes"]
    # E-11: a check says yes to what is installed then
    said = original.run([*command, "--check", "--", *original.eb_options], **wheel_settings(index)).stdout
    assert re.search(r"^\+ application 1\.0 .*asked for\n(\+ .*\n)*yes: Example/again can be installed: ", said)
    original.run([*command, "--", *original.eb_options], **wheel_settings(index))
    again = original.record("Example/1.0-again-1")
    for key in ("stages", "venv_packages", "image_packages", "user_software"):
        assert again[key] == original.record()[key], key
    assert squashfs(original, "-again-1") == squashfs(original)
    # to write the module again, nothing needs the lock that is repeated
    (kept,) = (original.root("Example/1.0-again-1") / "easybuild").glob("*.eb")
    damaged = original.sources / re.search(r"'lock': '([^']+)'", kept.read_text())[1]
    damaged.write_text("{}")
    original.eb("--module-only", "--force", kept)
    damaged.unlink()

    shutil.copy(original.prefix / "mine.json", original.prefix / "again.json")
    path = original.easyconfig(TEXT + "requirements = {'lock': 'again.json'}\n", suffix="-again")
    # eb changes a copy of the easyconfig in a temporary directory; the lock file is read
    # before anything is installed
    (original.prefix / "again.json").rename(original.sources / "again.json")
    tried = original.eb(path, "--try-amend=versionsuffix=-tried", "--stop=prepare", **wheel_settings(index))
    assert "Example/1.0-tried" in tried.stdout
    (original.sources / "again.json").unlink()
    # --fetch-all goes on without files that aren't there
    for option in ("--rebuild", "--fetch-all"):
        said = original.eb(path, option, check=False, one_stream=True, **wheel_settings(index)).stdout
        assert f"Couldn't find {original.prefix}/again.json, which 'requirements' names" in " ".join(said.split())


def test_differences_stop_the_repetition(original, index):
    """If a package's file differs or is gone, or the image differs, eb fails and names it."""
    make_wheel(index, "library", module_text="changed = True\n")
    record = json.loads((original.prefix / "mine.json").read_text())
    record["image_packages"] = [line.replace("numpy==", "numpy==0.") for line in record["image_packages"]]
    (original.prefix / "image.json").write_text(json.dumps(record))
    (original.prefix / "empty.json").write_text("{}")
    texts = {
        name: TEXT + f"versionsuffix = '-other'\nrequirements = {{'lock': '{name}.json'}}\n"
        for name in ("mine", "image", "empty")
    }
    results = original.eb_each(texts, **wheel_settings(index))
    assert "library-1.0-py3-none-any.whl has another SHA256" in results["mine"].stdout
    assert "its packages differ: missing: numpy==0." in " ".join(results["image"].stdout.split())
    assert "empty.json is not the lock of a container module" in results["empty"].stdout
    assert [result.returncode for result in results.values()] == [1, 1, 1]
    assert not list(original.modules.rglob("1.0-other.lua"))


def test_a_wheelhouse(site, tmp_path):
    """S003-10: wheels are built once, in the image; later installations need neither index nor compiler."""
    index = make_index(tmp_path / "index")
    # like mpi4py: the index has a wheel, but another one is wanted
    make_wheel(index, "kernels", module_text="built_with = 'nothing'\n")
    built = {
        "no_binary": ["kernels"],
        "options": ["--upgrade"],
        "verify": ["python -c 'import kernels; assert kernels.built_with == \"library\"'"],
    }
    text = f"requirements = {[STAGES[0], {**STAGES[1], **built}]!r}\n"
    easyconfig = site.easyconfig(TEXT + text)
    house = tmp_path / "wheel house"
    command = ["ebsif", "extend", easyconfig, "--wheelhouse", house, "--", *site.eb_options]
    result = site.run(command, **wheel_settings(index))
    names = {"application-1.0-py3-none-any.whl", "kernels-1.0-py3-none-any.whl", "library-1.0-py3-none-any.whl"}
    assert {path.name for path in house.iterdir()} == names
    assert len(result.stdout.splitlines()) == 3 and f"'{house}'" in result.stderr
    assert not (site.prefix / "eb/software/Example").exists()

    nothing = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    offline = {"find_links": [str(house)], "options": ["--no-index"]}
    stages = [{**STAGES[0], **offline}, {**STAGES[1], **offline, "verify": built["verify"]}]
    site.eb(site.easyconfig(TEXT + f"requirements = {stages!r}\n"), **nothing)
    assert {"application==1.0", "kernels==1.0", "library==1.0"} <= set(site.record()["venv_packages"])


def test_a_wheelhouse_without_an_easyconfig(site, tmp_path):
    """Without an easyconfig eb reports it; status 3."""
    command = ["ebsif", "extend", "nothing.eb", "--wheelhouse", tmp_path / "x", "--", *site.eb_options]
    result = site.run(command, check=False)
    assert result.returncode == 3
    assert re.search(r"ebsif: .*not found: nothing\.eb .*\nThe folder may contain some of the wheels", result.stderr)
