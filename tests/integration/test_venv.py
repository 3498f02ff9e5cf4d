"""An environment of one's own on top of a module: make-venv and extend-venv-activate."""

import subprocess
import sys
from pathlib import Path

import pytest
from parts import TOOLS, Installed
from support import CONTAINER_FILES, Site, make_wheel

# everything of the shell that activation touches, in one line
SHOW = 'printf "%s|" "$PATH" "${PYTHONPATH-unset}" "${SIF-none}" "$LOADEDMODULES" "$(declare -f deactivate)"; echo'


@pytest.fixture(params=["Lmod-Lua", "EnvironmentModules-Tcl"])
def place(request, tmp_path, base_image):
    """A site with a container module, for each modules tool."""
    site = Site(tmp_path / "site", TOOLS[request.param](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    site.eb(site.easyconfig(Installed.TEXT))
    return site


def test_an_environment_on_top_of_the_module(place, tmp_path):
    """S003-16, S003-18: activation loads the module, its programs run in the container; deactivation undoes all."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "mine", module_text="def main():\n    print('in', __file__)\n", scripts={"mytool": "mine:main"})
    pip = f"pip install --no-index --find-links {wheels}"
    place.bash("module load Example/1.0 && cd /tmp && make-venv '" + str(tmp_path / "my env") + "'")
    script = f"""
        export PYTHONPATH=/somewhere
        {SHOW}
        source '{tmp_path}/my env/bin/activate'
        {pip} mine >/dev/null
        mytool
        python -c 'import sys, numpy, mine; print(sys.prefix, numpy.__file__)'
        deactivate
        {SHOW}
        source '{tmp_path}/my env/bin/activate'
        source '{tmp_path}/my env/bin/activate'
        mytool
        deactivate
        {SHOW}
        type mytool || true
    """
    # the wheels are below the directory of the tests, which is bound because /tmp is
    lines = place.bash(script).stdout.splitlines()
    before, tool, python, after, again, last = lines
    assert tool == again == f"in {tmp_path}/my env/lib/python3.11/site-packages/mine.py"
    assert python.startswith(f"{tmp_path}/my env /opt/miniconda3/")
    assert before == after == last


def plain_module(site, folder):
    """A module that is none of a container, with packages on PYTHONPATH, as ARCHER2 has it."""
    folder.mkdir()
    (folder / "shared.py").write_text("where = 'module'\n")
    directory = site.modules / "plain"
    directory.mkdir(parents=True)
    if site.tool.syntax == "Lua":
        (directory / "1.0.lua").write_text(f'prepend_path("PYTHONPATH", "{folder}")\n')
    else:
        (directory / "1.0").write_text(f"#%Module\nprepend-path PYTHONPATH {folder}\n")


@pytest.mark.parametrize("marker", ["# you cannot run it directly", "# You cannot run it directly", "# another text"])
@pytest.mark.parametrize("tool", ["Lmod-Lua", "EnvironmentModules-Tcl"])
def test_an_environment_on_top_of_a_plain_module(tool, marker, tmp_path):
    """S003-16, S003-17, S003-18, S003-19: any text of activate, twice, relative; PYTHONPATH is exactly what it was."""
    site = Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix))
    plain_module(site, tmp_path / "packages")
    venv = site.work / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    activate = venv / "bin/activate"
    activate.write_text(activate.read_text().replace("# you cannot run it directly", marker))
    assert marker in activate.read_text()
    extend = tmp_path / "tree" / "bin"
    subprocess.run(["cp", "-r", CONTAINER_FILES, tmp_path / "tree"], check=True)
    for _ in range(2):
        site.run([extend / "extend-venv-activate", "./env", "plain/1.0"])
    assert activate.read_text().count(">>> ebsif") == 2
    (next(venv.glob("lib/python3*/site-packages")) / "shared.py").write_text("where = 'environment'\n")
    for setting in ("unset PYTHONPATH", "export PYTHONPATH=/a", "export PYTHONPATH=", "module load plain/1.0"):
        script = f"""
            {setting}; cd /; {SHOW}
            source {activate}; echo "$PYTHONPATH $LOADEDMODULES"; python -c 'import shared; print(shared.where)'
            deactivate; {SHOW}
            source {activate}; source {activate}; deactivate; {SHOW}
        """
        before, inside, where, after, last = site.bash(script).stdout.splitlines()
        assert where == "environment"
        assert "plain/1.0" in inside
        assert "::" not in inside
        assert before == after == last, setting
        assert not inside.split()[0].endswith(":") or setting == "export PYTHONPATH="


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        ("extend-venv-activate", 64, "use: extend-venv-activate DIRECTORY [MODULE]"),
        ("extend-venv-activate /does/not/exist x", 1, "there is no directory /does/not/exist"),
        ("extend-venv-activate /tmp x", 1, "/tmp is no Python virtual environment"),
        ("extend-venv-activate /tmp", 1, "no container module is loaded"),
        ("make-venv", 64, "use: make-venv DIRECTORY"),
        ("make-venv /tmp/x", 1, "load the module of this container first"),
    ],
)
def test_wrong_use_is_named(command, status, expected):
    """S003-18: without argument, or with a wrong one: an error that says what is wanted; nothing is changed."""
    name, *arguments = command.split()
    result = subprocess.run(
        [CONTAINER_FILES / "bin" / name, *arguments], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert result.returncode == status
    assert expected in result.stderr


def test_an_environment_that_is_there_already(installed_once, tmp_path):
    """S004-09: it exists: nothing to do; it does not: it's made; the place is not writable: that is said."""
    for expected in ("made", "is there already"):
        result = installed_once.load(installed_once.WRITABLE, f"make-venv {tmp_path}/env")
        assert f"{expected}" in result.stderr
    result = installed_once.load(installed_once.WRITABLE, "make-venv /sys/env", check=False)
    assert result.returncode == 1
    assert "/sys/env" in result.stderr
    assert "could not be made" in result.stderr


def test_a_place_that_the_container_does_not_see(installed_once, tmp_path):
    """A directory that is not bound in the container: said, and nothing is left half-made; a full one is refused."""
    result = installed_once.load(installed_once.WRITABLE, "make-venv /srv/not-bound/env", check=False)
    assert result.returncode == 1
    assert "/srv/not-bound/env" in result.stderr
    assert not Path("/srv/not-bound").exists()
    (tmp_path / "file").write_text("mine")
    result = installed_once.load(installed_once.WRITABLE, f"make-venv {tmp_path}", check=False)
    assert result.returncode == 1
    assert "is not empty" in result.stderr
