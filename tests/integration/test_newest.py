"""An extension that is changed: its name without date goes on meaning the newest one, and programs are commands."""

import json
import re
import shlex

import pytest
from parts import Installed
from person import Person
from support import make_wheel, record_of

PROGRAM = """\
import os, sys

def main():
    print("board", __version__, sys.argv[1:], os.path.exists("/.singularity.d"))
__version__ = {!r}
"""
# the module without its date
MINE = f"{Installed.WRITABLE}-mine"


@pytest.fixture
def person(installations, tmp_path):
    """Somebody with Environment Modules (tests/paths has Lmod), and packages that have programs."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        make_wheel(wheels, "board", version, ["needed"], PROGRAM.format(version), {"board": "board:main"})
    make_wheel(wheels, "needed", scripts={"needed-too": "needed:main"})
    make_wheel(wheels, "ipykernel", scripts={"start-shell": "ipykernel:main"})
    return Person(installations("EnvironmentModules-Tcl").copy(tmp_path, Installed.WRITABLE), wheels)


@pytest.mark.nightly
def test_an_extension_that_is_changed(person):
    """
    V-06: programs of what was asked for are commands of the module, also after --add; no others, and none of ours.

    V-07, N-01: after a change, and without the earlier module, NAME/mine is the newest for load, job, kernel,
    interpreter and make-venv. Neither --check nor --name is needed.
    """
    root = person.site.prefix / "eb/software"
    first = person.run("ebsif", "extend", Installed.WRITABLE, "--add", "board<2", "ipykernel")
    assert re.search(r"^load it with: (module use /\S+ && )?module load Example/mine$", first.stderr, re.MULTILINE)
    (earlier,) = root.glob(f"{MINE}-*")
    assert record_of(earlier)["wrappers"] == ["board"]
    said = person.in_shell(f"""
        module load {MINE}
        board a 'b c'
        type needed-too >/dev/null 2>&1 || echo no others
        make-venv ~/env >&2
        module unload Example
        ebsif interpreter mine --write ~/bin/python-mine >&2
        ebsif kernel install mine --name mine >&2
    """)
    assert said.stdout.splitlines() == ["board 1.0 ['a', 'b c'] True", "no others"]
    person.run("ebsif", "extend", "mine", "--add", "board==2.0")
    (newest,) = set(root.glob(f"{MINE}-*")) - {earlier}
    kernel = json.loads((person.site.home / ".local/share/jupyter/kernels/mine/kernel.json").read_text())
    assert kernel["display_name"] == f"Example 1.0 ({MINE.partition('-')[2]})"
    person.run("ebsif", "remove", "mine", "--older", "--yes")
    said = person.in_shell(f"""
        shown() {{ "$@" -c 'import board; print(board.__version__)'; }}
        module load {MINE}; module unload Example; module load Example/mine; board; module unload Example
        shown ~/bin/python-mine
        shown {shlex.quote(kernel["argv"][0])}
        EBSIF_VENV=~/env shown ~/bin/python-mine
        source ~/env/bin/activate; shown python; deactivate; echo "${{SIF-none}}"
        module load Example/{newest.name}; source ~/env/bin/activate; shown python; deactivate
        [ -z "${{SIF:-}}" ] || echo still loaded
        ebsif job mine -- board | grep '^module load'
    """)
    expected = ["board 2.0 [] True", *["2.0"] * 4, "none", "2.0", "module load Example/mine"]
    assert said.stdout.splitlines() == expected, said.stderr


def test_two_terminals(person):
    """V-07: of two commands that change the same extension at the same time, one is told to start again."""
    person.run("ebsif", "extend", Installed.WRITABLE, "--add", "board==1.0", "--name", "race")
    (first,) = (person.site.prefix / "eb/software").glob("Example/*-race-*")
    said = person.in_shell("""
        cd
        for package in needed ipykernel; do
            { ebsif extend race --add $package >$package.out 2>&1; echo $? >$package.status; } &
        done
        wait
        head needed.status ipykernel.status
        tail -n 4 needed.out ipykernel.out
    """).stdout
    statuses = {name: (person.site.home / f"{name}.status").read_text().strip() for name in ("needed", "ipykernel")}
    assert sorted(statuses.values()) == ["0", "3"], said
    (refused,) = (name for name, status in statuses.items() if status == "3")
    text = " ".join((person.site.home / f"{refused}.out").read_text().split())
    said = ("Meanwhile, another command has installed", "eb is installing", "another command is installing it")
    assert any(one in text for one in said), text
    # nothing of it stays, and what it was told to do has both packages
    (second,) = set((person.site.prefix / "eb/software").glob("Example/*-race-*")) - {first}
    assert {path.name.partition("-race-")[2].removesuffix(".eb") for path in person.site.home.rglob("*-race-*.eb")} == {
        one.name.partition("-race-")[2] for one in (first, second)
    }
    planned = person.run("ebsif", "extend", "race", "--add", refused, "--dry-run").stdout
    assert all(f"'{package}" in planned for package in ("board", "needed", "ipykernel")), planned
