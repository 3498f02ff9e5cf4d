"""
The daily paths: what people type, as scripts that are run as they stand.

To add a line to a path, write it into its script; everything that it needs is in the person's site. Each script begins
in a new login shell, and so does what follows a line `# the next day`. A researcher's own modules are where EasyBuild
keeps them by default.
"""

import hashlib
import json
import re
import shutil
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from parts import TOOLS, Installed, example_site
from person import Person
from support import CHECKOUT, Site, make_wheel

# the other modules tool proves the same at night
TOOLS_BY_DAY = ["Lmod-Lua", pytest.param("EnvironmentModules-Tcl", marks=pytest.mark.nightly)]
BACKEND = """\
import os
import zipfile

NAME, INFO = "myproject-1.0-py3-none-any.whl", "myproject-1.0.dist-info"


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(wheel_directory, NAME), "w") as wheel:
        wheel.writestr("myproject.pth", os.getcwd())
        wheel.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\\nName: myproject\\nVersion: 1.0\\n")
        wheel.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{INFO}/RECORD", f"myproject.pth,,\\n{INFO}/METADATA,,\\n{INFO}/WHEEL,,\\n{INFO}/RECORD,,\\n")
    return NAME
"""


def check_steps(said, module):
    """E-10: in a pipe, each step is a line of text with its time; what takes long has details."""
    lines = [line for line in said.splitlines() if re.match("  [^ ]", line)]
    steps = {line[2:30].rstrip(): line[43:] for line in lines if re.fullmatch(r" +(\d+ min )?\d+ s", line[30:41])}
    assert steps["installing packages"] == "2 packages added"
    assert re.fullmatch(r"image not copied, \d+\.\d kB packed", steps["installing files"])
    assert {"testing the module", "writing the module"} <= set(steps)
    assert max(map(len, lines)) <= 80
    assert all(one.isprintable() or one == "\n" for one in said)
    assert f"\nebsif: installed mine ({module}) in " in said


def check_the_first_week(said, mine):
    """E-03, E-11, E-13: what --check says, the steps, the printed lines, the hidden Python."""
    check, install = said.split("install it with: ebsif extend ", 1)
    expected = ["+ greeting 1.0 asked for", "+ hello 1.0 asked for", "yes: Example/mine can be installed: 2 packages"]
    assert [" ".join(line.split()) for line in check.splitlines()[-3:]] == expected
    check_steps(install.partition("load it with: ")[0], mine)
    assert re.search(r"^with /user-software/\S+/greeting.py /opt/miniconda3/\S+$", said, re.MULTILINE)
    assert f"the commands of {mine} hide the machine's own: unload the module" in said
    assert "\nebsif: mine has these packages already" in said
    # N-02
    assert re.search(r"^nothing loaded /user-software/\S+/byhand.py$", said, re.MULTILINE)
    # N-01
    assert len(re.findall(r"^load it with: (?:module use /\S+ && )?module load Example/mine$", said, re.MULTILINE)) == 4
    assert re.search(r"^name +extends +size.*\nmine +Example/1.0-writable ", said, re.MULTILINE)
    # V-01
    assert re.search(r"packaging 25\.0 instead of the image's 26", said)
    assert f"install it with: module unload {mine}; eb {mine.replace('/', '-')}.2.eb\n" in said
    stays = f"the earlier module stays as it is: module load {mine}"
    assert f"{stays} (to keep only the newest: ebsif remove mine --older)" in said
    assert re.search(rf"^ +Example/byhand.*\n?|{mine}.2", said.split("module spider")[-1], re.MULTILINE)
    assert "/dev/lib/python3.11/site-packages/lightly.py" in said
    assert "\nnumpy stays\n" in said
    # J-02, J-08
    assert re.search(r"To add it: ebsif extend \S+ --add ipykernel\n(.*\n)*needs ipykernel\n", said)
    assert re.search(
        r"as the kernel (\S+-dev), in \S+\n\1  Example/\S+\n\s+with\s+\S+\n"
        r"removed the kernel \1 of Example/",
        said,
    )
    # J-04
    pattern = r"^/\S+/bin/mine-python\nchoose this file as interpreter\n(.*\n)*edited with /user-software/\S+$"
    assert re.search(pattern, said, re.MULTILINE)
    assert " 1 passed in " in said
    assert re.search(r"^with /\S+/project/myproject.py$", said, re.MULTILINE)
    assert len(re.findall(" 2 taken over, .* added$", said, re.MULTILINE)) == 1


def check_the_modules(person, mine):
    """
    E-03, C-04: an earlier module stays, others keep their versions, and the working directory stays clean.

    V-07: an environment is that of the newest extension.
    """
    site = person.site
    assert f"_EBSIF_MODULE={mine.rpartition('-')[0]} " in (site.home / "dev/bin/activate").read_text()
    assert [path.name for path in site.work.glob("*.eb*")] == [f"{mine.replace('/', '-')}.2.eb"]
    own = site.home / ".local/easybuild/software"
    records = [json.loads((own / f"{mine}{number}/share/ebsif/lock.json").read_text()) for number in ("", ".2", ".3")]
    assert [[line for line in one["venv_packages"] if not line.startswith("pip=")] for one in records] == [
        ["greeting==1.0", "hello==1.0"],
        ["byhand==1.0", "greeting==1.0", "hello==1.0"],
        ["byhand==1.0", "hello==1.0"],
    ]
    # E-12: in spite of the image's constraints, which have no hashes
    assert records[0]["stages"][0]["requirements"] == (site.work / "requirements.txt").read_text()
    # with the date, too, other packages don't replace those of a module
    (site.work / "other.txt").write_text("lightly\n")
    again = ["ebsif", "extend", "Example/1.0", "-r", "other.txt", "--name", "mine", "--date", mine[-8:]]
    assert "exists already, with different content: use --rebuild" in person.run(*again, check=False).stderr
    # user trial: nor do those that are added to the container
    again[3:5] = ["--add", "lightly"]
    expected = f"`mine` exists ({mine}.3); to add to it: ebsif extend mine --add lightly; "
    assert expected in person.run(*again, check=False).stderr


def check_the_third_month(person, said, mine):
    """E-06 to E-08, R-06, R-07: a colleague's module with the same files, a package by hand, and nothing of it left."""
    assert "\ncrate/ro-crate-metadata.json\n" in said
    assert re.search(r"^(oras://\S+/mine:1)@sha256:\S{64}\nothers install it with: ebsif pull \1$", said, re.MULTILINE)
    assert f" is {mine}.3, on the image of Example/1.0-writable\n" in said
    assert "\nthe same files\n" in said
    # V-07: the newest one, whenever the job runs
    assert "module load Example/mine\n" in said
    assert "--nodes=64" in said and "/images.squashfs:/data:ro,image-src=" in said
    assert "\n+ package greeting 1.0\nthey differ\n" in said
    assert said.count("+ package") == 1
    assert "greeting==1.0" in said.split("# Written by `ebsif lock`")[1]
    assert "yes: Example/mine can be installed: 2 packages" in said
    # EasyBuild's archive of what was ever installed stays
    assert not [
        one for one in person.site.prefix.rglob("*theirs*") if one.suffix != ".json" and "ebfiles_repo" not in one.parts
    ]
    own = json.loads(person.run("ebsif", "list", "--mine", "--json").stdout)
    expected = [(f"{mine}.3", "Example/1.0-writable", []), ("Example/1.0-writable", None, [])]
    assert [(row["module"], row["base"], row["state"]) for row in own] == expected


def wheel_of_installed(name, folder):
    """Write a wheel of a package of these tests to a folder."""
    package = distribution(name)
    with zipfile.ZipFile(folder / f"{name}-{package.version}-py3-none-any.whl", "w") as wheel:
        for file in package.files:
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in ("INSTALLER", "REQUESTED"):
                wheel.write(file.locate(), str(file))


def make_project(folder):
    """Write a project with a test, and a backend of its own, which needs no other package."""
    (folder / "tests").mkdir(parents=True)
    (folder / "myproject.py").write_text("answer = 42\n")
    (folder / "tests/test_it.py").write_text("import myproject\ndef test_it():\n    assert myproject.answer == 42\n")
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    (folder / "backend.py").write_text(BACKEND)


@pytest.mark.parametrize("tool", TOOLS_BY_DAY)
def test_a_researcher(tool, installations, tmp_path, registry):
    """S001-05, S002-52, E-13: first day, second week, third month: from requirements.txt to a loaded module."""
    installed = installations(tool)
    wheels = shutil.copytree(installed.wheels, tmp_path / "wheels")
    make_wheel(wheels, "lightly")
    make_wheel(wheels, "packaging", version="25.0")
    make_wheel(wheels, "ipykernel")
    for name in ("pytest", "iniconfig", "packaging", "pluggy", "pygments"):
        wheel_of_installed(name, wheels)
    person = Person(installed.copy(tmp_path, Installed.WRITABLE), wheels, installs_for_the_site=False)
    person.environment["REGISTRY"] = registry.host
    site = person.site
    make_project(site.work / "project")
    person.catalogs_example(wrappers="[python, python3]")
    digests = {
        name: hashlib.sha256((wheels / f"{name}-1.0-py3-none-any.whl").read_bytes()).hexdigest()
        for name in ("greeting", "hello")
    }
    (site.work / "requirements.txt").write_text(
        "".join(f"{name}==1.0 --hash=sha256:{digest}\n" for name, digest in digests.items())
    )
    for name in ("train.py", "images.squashfs"):
        (site.work / name).touch()
    # eb runs in an empty directory (S002-52)
    (site.prefix / "hooks.py").write_text(
        f"import os\ndef start_hook(*_):\n    open({str(site.prefix / 'seen')!r}, 'a').write(repr(os.listdir('.')))\n"
    )
    person.environment["EASYBUILD_HOOKS"] = site.prefix / "hooks.py"
    follow_a_researcher(person)


def follow_a_researcher(person):
    """Run the scripts, and check what they print and leave behind."""
    site = person.site
    said = person.types("first-day")
    assert "Example/1.0-writable  here       3.11    numpy 2.4.6\n" in said
    # N-02
    assert "\nnothing loaded 2.4.6\n" in said
    assert "with /opt/miniconda3/" in said
    said = person.types("second-week")
    mine = re.search(r"^ebsif: installed mine \((\S+)\) in", said, re.MULTILINE).group(1)
    check_the_first_week(said, mine)
    assert set((site.prefix / "seen").read_text().split("]")) == {"[", ""}
    check_the_modules(person, mine)
    make_wheel(person.wheels, "byhand", version="2.0")
    check_the_third_month(person, person.types("third-month"), mine)


def test_an_administrator(lumi, wheels, base_image, pytorch_image, small_image, registry):
    """S001-09, R-05, R-02, F-02, F-07: new images are added to the catalog and installed, with LUMI's EasyBuild."""
    site = lumi
    site.share_easyblocks()
    person = Person(site, wheels)
    person.environment = {"EDITOR": "true", "MODULEPATH": site.catalog_of_modules, "REGISTRY": registry.host}
    site.run(["apptainer", "push", "--no-https", small_image("busybox"), f"oras://{registry.host}/ai/new:3"])
    (site.work / "images").mkdir()
    (site.prefix / "sites/local").mkdir()
    (site.prefix / "sites/local/site.yaml").write_text(
        f"name: local\ndescription: x\nextends: local\nimages: {{directories: [{{path: {site.work}/images}}]}}\n"
    )
    (site.work / "images/pytorch-2.13.0-cpu-python-3.11.sif").symlink_to(pytorch_image)
    shutil.copy(base_image, site.work / "images/pytorch-2.14.0-cpu-python-3.11.sif")
    said = person.types("administrator")
    assert "with /opt/miniconda3/" in said
    records = (site.prefix / "sites/local/containers/PyTorch.yaml").read_text()
    # the project's records stay in the project's file; a second time, nothing changes
    assert records.partition("\n")[2].startswith("name: PyTorch\nextends: true\ncontainers:\n  - family: example\n")
    assert records.count("  - family:") == 1
    assert "1 new record; to write: ebsif scan --site local " in said
    assert re.search(r"^all there$", said, re.MULTILINE)
    assert re.search(rf"^    source: oras://{registry.host}/ai/new:3@sha256:[0-9a-f]{{64}}$", said, re.MULTILINE)
    assert (site.modules / "new/3.lua").is_file()
    assert "is in the catalog already: PyTorch/2.14.0" in said
    assert said.splitlines()[-2].endswith(": unchanged")
    assert (site.work / "pages/index.html").is_file()


@pytest.mark.parametrize("tool", TOOLS_BY_DAY)
def test_somebody_without_modules_of_ours(tool, tmp_path, small_image, wheels):
    """V-08: an image where it lies becomes a module: no configuration, nothing copied, and nothing done twice."""
    person = Person(
        Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix)), wheels, installs_for_the_site=False, has_catalog=False
    )
    site, image = person.site, tmp_path / "images/pytorch.sif"
    image.parent.mkdir()
    shutil.copy(small_image("laif"), image)
    person.environment["IMAGES"] = image.parent
    said = person.types("without-modules")
    assert f"{image}: the module uses the image where it is; nothing is copied\n" in said
    assert "\nwith /user-software/venv/pytorch\n" in said
    assert f"\nimage {image}\n" in said
    # the steps of `ebsif extend`, and a line for a new shell
    assert re.search(r"^  installing files +\d+ s  image not copied$", said, re.MULTILINE)
    modules = site.home / ".local/easybuild/modules/all"
    assert f"load it with: module use {modules} && module load PyTorch/2.10.0\n" in said
    assert (modules / f"PyTorch/2.10.0{'.lua' if tool.startswith('Lmod') else ''}").is_file()
    # C-04: nothing in the working directory, and no image anywhere
    assert [path.name for path in site.work.iterdir()] == ["printed"]
    assert not list(site.home.rglob("*.sif"))
    before, _, after = said.partition("container ")
    assert re.search(r"^PyTorch/2.10.0 +here ", after, re.MULTILINE)
    assert f"searched in   {image.parent} (stable): found\n" in after
    assert "PyTorch/2.10.0 is installed already" in after
    assert "testing the module" in before and "testing the module" not in after


@pytest.mark.parametrize("tool", TOOLS_BY_DAY)
def test_somebody_who_knows_easybuild(tool, tmp_path, wheels, base_image):
    """S002-53: an easyconfig of the project, written by `eb --copy-ec`, installs without changes."""
    site = example_site(tmp_path, base_image, tool)
    # the small image under the big one's name: only the easyconfig is tested here
    (site.sources / "pytorch-2.13.0-cpu-python-3.11.sif").symlink_to(base_image)
    said = Person(site, wheels).types("easybuild")
    assert "with /opt/miniconda3/" in said
    name = "PyTorch-2.13.0-cpu-python-3.11-singularity-20261121.eb"
    assert (site.work / "mine.eb").read_text() == (CHECKOUT / "easyconfigs/p/PyTorch" / name).read_text()
    assert "/mysite/site.yaml:8: warning: path: not reviewed yet: where are your images? (check it, then" in said
    assert "the site has no containers yet: add an image with ebsif add IMAGE.sif --site mysite" in said
