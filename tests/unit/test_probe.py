"""Images that are refused, by what was found in them."""

import subprocess
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.framework import plain_errors
from easybuild.easyblocks.generic.container.imageprograms import sh_command
from easybuild.easyblocks.generic.container.masks import Masks
from easybuild.easyblocks.generic.container.modulefile import listed_packages
from easybuild.easyblocks.generic.container.packages import InstalledPackages
from easybuild.easyblocks.generic.container.probe import ImageProbe
from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.runtime import STOPPED
from easybuild.easyblocks.generic.container.venv import Venv
from easybuild.easyblocks.generic.container.written import BLOCKS, MOST_WRITTEN, UnfitError
from easybuild.tools.build_log import EasyBuildError
from support import CONTAINER_FILES, attempt, description, write_program


def probe(version="3.11.2", missing=(), bash="/bin/bash", python3="/usr/bin/python3", runs=True):
    """Return what is known about an image."""
    python = description(version=version, missing=list(missing), purelib="/x")
    output = f"said by the image\nbash\t{bash}\npython3\t{python3}\n" + (f"{python!r}\n" if python3 and runs else "")
    return ImageProbe("x.sif", output, "" if runs else "one\ncan't load library\n")


def test_an_image_that_has_everything():
    """Nothing is refused; the packages are those that Python listed."""
    assert probe().lacks(venv=True) == []
    assert probe(missing=["pip"]).lacks(venv=True) == []
    assert probe(missing=["json", "venv", "pip"]).lacks(venv=False) == []
    probe().check(venv=True)
    assert probe().packages == {}


def test_an_image_without_python_has_no_packages():
    """The record of an installation without Python has no packages, which is no error."""
    assert ImageProbe("x.sif", "bash\t/bin/bash\n").packages.pins == []


@pytest.mark.parametrize(
    ("found", "venv", "reasons", "remedy"),
    [
        ({"bash": ""}, False, ["it has no bash"], "init = 'none'"),
        ({"bash": "", "python3": ""}, True, ["it has no bash", "it has no python3 on PATH"], "init = 'none'"),
        ({"runs": False}, True, ["its python3 doesn't work: can't load library"], "init = 'none'"),
        ({"version": "3.7.17"}, True, ["its Python 3.7.17 is too old, 3.8 or newer"], "without user software"),
        (
            {"missing": ["json", "venv", "pip"]},
            True,
            ["is incomplete, the standard library lacks json, venv"],
            "without user software",
        ),
        (
            {"missing": ["ensurepip", "pip"]},
            True,
            ["no ensurepip to install one (Debian has it"],
            "without user software",
        ),
    ],
)
def test_missing_parts_are_refused(found, venv, reasons, remedy):
    """G-11: each missing part is named with a remedy."""
    with pytest.raises(EasyBuildError) as refused:
        probe(**found).check(venv)
    for text in ("x.sif", "Nothing was copied", remedy, *reasons):
        assert text in str(refused.value)
    assert len(probe(**found).lacks(venv)) == len(reasons)


def test_the_conda_environments_of_an_image():
    """H-05: environments that can be written into 'conda_env' are named, and nothing else that an image has."""
    there = probe(python3="/opt/conda/envs/ai/bin/python3")
    there.check_environment("/opt/conda/envs/ai")
    there.environments = ["/opt/miniconda3/envs/one", "/opt/conda/envs/ai", "/opt/conda/envs/\x1b[2J", "/usr", ""]
    with pytest.raises(EasyBuildError, match="environment /opt/conda/envs/ia with .*: one, /opt/conda/envs/ai[.]$"):
        there.check_environment("/opt/conda/envs/ia")
    with pytest.raises(EasyBuildError, match="with Python[.] Nothing was copied[.] .* init = 'image'"):
        probe(python3="").check_environment("/opt/conda/envs/ai")
    there.inventory = {"conda_packages": {"/opt/conda/envs/r": ["r-base==4.5"]}}
    assert "envs/r in the image has no Python: commands" in there.check_environment("/opt/conda/envs/r", venv=False)
    for name, venv in (("r", True), ("ia", False)):
        with pytest.raises(EasyBuildError, match="no Conda environment"):
            there.check_environment(f"/opt/conda/envs/{name}", venv)


class Talking:
    """A container whose image prints something whenever it starts; programs are those of this machine."""

    def run(self, command, **_):
        """Run a command."""
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        return SimpleNamespace(output="Welcome to the image\n" + said)


@pytest.mark.usefixtures("configuration")
def test_an_image_that_prints_something(tmp_path):
    """S001-06: it is no program and no file that is masked."""
    write_program(tmp_path / "bin/tool", "")
    assert Venv(Talking(), str(tmp_path), str(tmp_path)).programs() == ["tool"]
    masks = Masks(["/etc/passw?"])
    masks.find(Talking())
    assert masks.found == {"/etc/passw?": ["/etc/passwd"]}


@pytest.mark.parametrize(
    "printed",
    [
        "{}",
        "5",
        "{'version': '3'}",
        "{'packages': [",
        "{" * 9000,
        repr(description([["x", "1", 5]])),
        # Python raises something else for each of these
        "{[]: 1}",
        pytest.param("-" * 10000 + "1", id="deep"),
        repr(description(needs=[["x"]])),
        repr(description(purelib="/a\nb")),
    ],
)
def test_an_image_whose_python_prints_something_else(printed):
    """Such an image is refused like one whose Python doesn't work; nothing crashes."""
    found = ImageProbe("x.sif", f"bash\t/bin/bash\npython3\t/usr/bin/python3\n{{}}\n{printed}\n")
    (lack,) = found.lacks(venv=True)
    assert "its python3 doesn't work" in lack
    assert found.packages == {}


def test_messages_of_an_image_that_control_terminals():
    """What the image's Python says is shown, and does nothing to a terminal."""
    found = ImageProbe("x.sif", "bash\t/bin/bash\npython3\t/usr/bin/python3\n", "ok \x1b]0;PWNED\x07 \x1b[2J\n")
    assert found.lacks(venv=True) == [r"its python3 doesn't work: ok \x1b]0;PWNED\x07 \x1b[2J"]


def test_packages_whose_names_are_code():
    """P-06: such packages are left out and named, and so is what they need; the others stay."""
    seen = [["numpy", "2.0", "/x"], ['a"); os.execute("id', "1", "/x"], ["b", "1[exec id]", "/x"], ["c", "1", "/x\n/y"]]
    needs = [["numpy", "c", ">=1,<2", True, True], ["numpy", "d]]", "", True, True], ["numpy", "e", "[id]", True, True]]
    found = InstalledPackages.from_listing(description(seen, needs=needs, compiled=["a\nb", "c"]))
    assert list(found) == ["numpy"]
    assert [need.on for need in found.needs] == ["c"] == found.compiled
    assert found.left_out == ['a"); os.execute("id 1', "b 1[exec id]", "c 1"]
    assert InstalledPackages.from_listing(description(seen[:1])).warning() == ""
    assert listed_packages("all", Record(image_packages=['a"==1', "numpy==2.0"])) == [("numpy", "2.0")]


@pytest.mark.usefixtures("configuration")
@pytest.mark.parametrize(
    "printed",
    [
        *(f"folder {line}" for line in ("755 0 0 /a", "x /a", "755 /../a", "755 a\x7f")),
        *(f"mask {line}" for line in ("7 /a", "x /a", "0 a", "0 /a/../b")),
    ],
)
def test_what_a_hostile_image_says_about_masks(printed):
    """P-06: nothing of it becomes another option, or another path, of mksquashfs."""
    container = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(output=f"mask 0 /x\nmask\n{printed}\n"))
    with pytest.raises((EasyBuildError, UnfitError), match=r"can't be|isn't in"):
        Masks(["/x"]).find(container)


def run_limited(seconds, *command):
    """Run a command with a time limit, and 1000 bytes of output."""
    return attempt(["bash", "-p", CONTAINER_FILES / "sh/run-limited.sh", str(seconds), "1000", *command], input="text")


def test_programs_of_an_image_that_do_not_end():
    """Endless output of an image's program doesn't fill the memory, and eb doesn't wait forever."""
    done = run_limited(60, "sh", "-c", "cat; echo message >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "text", "message\n")
    for command, status, output in ((("yes",), 141, 1000), (("sleep", "60"), 124, 0)):
        done = run_limited(1 if command[0] == "sleep" else 60, *command)
        assert (done.returncode, len(done.stdout)) == (status, output)
        assert done.stderr.startswith(STOPPED)
    assert len(run_limited(60, "sh", "-c", "yes >&2").stderr) < 1100


def test_files_that_are_written_while_an_image_is_inspected(tmp_path):
    """What an image writes doesn't fill the disk; the runtime may unpack it to larger files."""
    large = ["dd", "if=/dev/zero", "bs=1", "count=1", f"seek={MOST_WRITTEN}"]
    assert run_limited(60, *large, f"of={tmp_path}/unpacked").returncode == 0
    for number, status in ((MOST_WRITTEN - 1, "0"), (MOST_WRITTEN, "153")):
        command = sh_command("probe-image.sh", BLOCKS, str(tmp_path), str(tmp_path), "", *large[:-1], f"seek={number}")
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        assert (tmp_path / "status").read_text().strip() == status
        assert (tmp_path / "output").stat().st_size <= MOST_WRITTEN
        (tmp_path / "output").unlink()


@pytest.mark.usefixtures("configuration")
def test_errors_that_control_terminals():
    """Messages may have texts of images and packages; lines and columns stay."""
    with pytest.raises(EasyBuildError) as error, plain_errors():
        raise EasyBuildError("one\n\ttwo \x1b]0;PWNED\x07")
    assert error.value.msg == "one\n\ttwo \\x1b]0;PWNED\\x07"
    with pytest.raises(EasyBuildError, match="a pipe"), plain_errors():
        raise UnfitError("a pipe")
