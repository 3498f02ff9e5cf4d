"""The container that ranks on a node share: what a rank starts in it, and its end with the files of each runtime."""

import os
import shutil
import subprocess

import pytest
from support import CONTAINER_FILES


def end(place):
    """End the container as the last rank does; return what is said."""
    return subprocess.run([CONTAINER_FILES / "share/ebsif/end-container", "--now", place], check=True, timeout=30,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True).stderr


@pytest.fixture
def place(tmp_path):
    """The directory in which the ranks have met, of a container that has started."""
    made = tmp_path / f"ebsif-{os.getuid()}-1.0-n-0"
    made.mkdir()
    (made / "state").write_text("ready\n")
    (made / "ranks").touch()
    return made


@pytest.mark.parametrize(("layout", "program"), [("app", "appinit"), ("sing", "sinit")])
def test_the_instance_of_each_runtime_ends(tmp_path, place, layout, program):
    """T-04: Apptainer and SingularityCE keep them in different places; those of other runs and nodes go on."""
    shutil.copy("/bin/sleep", tmp_path / program)
    instances = place / "config/instances" / layout
    if layout == "sing":
        # in the home directory
        (tmp_path / "home").mkdir()
        instances.parent.mkdir(parents=True)
        instances.symlink_to(tmp_path / "home")
    here = os.uname().nodename
    started = []
    try:
        for node, name in (("another", place.name), (here, "ebsif-2.0"), (here, place.name)):
            started.append(subprocess.Popen([tmp_path / program, "60"], start_new_session=True))
            described = instances / node / "user" / name / f"{name}.json"
            described.parent.mkdir(parents=True)
            described.write_text(f'{{"pid":{started[-1].pid},"ppid":{started[-1].pid},"name":"{name}"}}')
        assert end(place) == ""
        assert started[-1].wait(timeout=5) == -9
        assert [one.poll() for one in started] == [None, None, -9]
        assert list(tmp_path.glob("ebsif-*")) == []
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_an_instance_that_is_not_found_stays_known(tmp_path, place):
    """T-04: of a runtime that keeps it elsewhere: the files stay, also when others end, and a message says so."""
    assert "may still run" in end(place)
    (kept,) = tmp_path.glob("ebsif-*")
    place.mkdir()
    (place / "config/instances/app").mkdir(parents=True)
    (place / "state").write_text("ready\n")
    # this one has ended by itself
    assert end(place) == ""
    assert list(tmp_path.glob("ebsif-*")) == [kept]


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"]])
def test_variables_that_have_not_passed_through_the_runtime(shell):
    """T-03: they are set like others: a value of the image wins, and an empty one of the image unsets the caller's."""
    handed = "".join(f"give {name} '{value}'\n" for name, value in {
        "SLURM_A": "it'\\''s\n$(id) `id` \\ \"", "SLURM_EMPTY": "", "OF_IMAGE": "caller's".replace("'", "'\\''"),
        "NONE_OF_IMAGE": "x", "GOGC": "50 %"}.items())
    handed = f'[ "${{GOGC:-}}" != off ] || unset GOGC\n{handed}'
    script = CONTAINER_FILES / "runscripts/joined-rank.sh"
    command = [*shell, script, "9", "8", "7", "env", "-0"]
    result = subprocess.run(
        ["bash", "-c", 'exec 9</dev/null 8>/dev/null 7>&2; exec "$@"', "bash", *command],
        env={"PATH": os.environ["PATH"], "OF_IMAGE": "the image's", "NONE_OF_IMAGE": "", "GOGC": "off", "in": "1",
             "program": "2", "EBSIF_PAST_RUNTIME": handed}, capture_output=True, text=True, timeout=30, check=False)
    found = dict(line.split("=", 1) for line in result.stdout.split("\0") if line)
    for name in ("PATH", "PWD", "OLDPWD", "SHLVL", "_"):
        found.pop(name, None)
    assert found == {"SLURM_A": "it's\n$(id) `id` \\ \"", "SLURM_EMPTY": "", "OF_IMAGE": "the image's", "GOGC": "50 %",
                     "in": "1", "program": "2"}
