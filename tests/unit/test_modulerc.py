"""Whose an alias is: what .modulerc files say, which module keeps an alias, and which installation is refused."""

from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container import modulerc
from easybuild.easyblocks.generic.container.aliases import HIDE, update_modulerc
from ebsif.installed import removal, report
from ebsif.installed.places import Installation

STATEMENTS = {
    "Lua": 'module_version("{modname}", "{sym_version}")',
    "Tcl": "#%Module\nmodule-version {modname} {sym_version}",
}


class Software:
    """The modules of a software, with easyconfigs that have aliases."""

    def __init__(self, folder, syntax):
        self.folder, self.syntax = folder / "modules/all/P", syntax
        self.roots = folder / "software/P"
        self.folder.mkdir(parents=True)
        self.end = ".lua" if syntax == "Lua" else ""

    @property
    def SYNTAX(self):  # noqa: N802 (name given by EasyBuild)
        return self.syntax

    @property
    def DOT_MODULERC(self):  # noqa: N802
        return f".modulerc{self.end}"

    def modulerc(self, version):
        return STATEMENTS[self.syntax].format_map(version)

    def det_installdir(self, path):
        return modulerc.root_of(path)

    def install(self, version, *aliases, earlier=()):
        """Install a version, or install it again; return the aliases that there are."""
        root = self.roots / version.lstrip(".")
        path = self.folder / f"{version}{self.end}"
        path.write_text(f'local root = "{root}"\n' if self.end else f"#%Module\nset root {root}\n")
        update_modulerc(self, str(path), f"P/{version}", list(aliases), str(root), earlier)
        # as eb does, after the module was written
        (root / "easybuild").mkdir(parents=True, exist_ok=True)
        (root / f"easybuild/P-{root.name}.eb").write_text(f"name = 'P'\naliases = {list(aliases)}\n")
        return self.aliases

    @property
    def aliases(self):
        return modulerc.aliases_in(str(self.folder))


@pytest.fixture(params=["Lua", "Tcl"])
def software(request, tmp_path, configuration):
    return Software(tmp_path, request.param)


def test_the_name_without_a_date_means_the_newest(software):
    """V-07: not what was installed last: an earlier one that is installed again leaves the name to the newest."""
    assert software.install("1.0-mine-20261128", "1.0-mine") == {"1.0-mine": "P/1.0-mine-20261128"}
    for version in ("1.0-mine-20261128.2", "1.0-mine-20261128.10"):
        assert software.install(version, "1.0-mine") == {"1.0-mine": f"P/{version}"}
    # in any order, as `eb --rebuild *.eb` takes them; also what has an alias of its own, or is on top of it
    for version in ("1.0-mine-20261128.10", "1.0-mine-20261128.2", "1.0-mine-20261128", "1.0-mine-20200101"):
        assert software.install(version, "1.0-mine") == {"1.0-mine": "P/1.0-mine-20261128.10"}
    software.install("1.0-mine-20261128-more-20270101", "1.0-mine-20261128-more")
    software.install("1.0-mine-zzz")
    assert software.install("1.0-mine-20261128.2", "1.0-mine")["1.0-mine"] == "P/1.0-mine-20261128.10"
    # an alias that an earlier one has taken from the newest, as before
    path = software.folder / software.DOT_MODULERC
    path.write_text(path.read_text().replace("20261128.10", "20261128"))
    assert software.aliases["1.0-mine"] == "P/1.0-mine-20261128"
    assert software.install("1.0-mine-20261128.2", "1.0-mine")["1.0-mine"] == "P/1.0-mine-20261128.10"
    # one that is gone
    (software.folder / f"1.0-mine-20261128.10{software.end}").unlink()
    assert software.install("1.0-mine-20261128", "1.0-mine")["1.0-mine"] == "P/1.0-mine-20261128.2"


def test_the_name_alone_means_the_newest_on_any_base(software):
    """N-01: the newest base comes first, then the date; another extension made meanwhile is on the same base."""
    assert software.install("1.10-mine-20261128", "1.10-mine", "mine")["mine"] == "P/1.10-mine-20261128"
    for version, newest in (
        ("1.9-mine-20261129", "1.10-mine-20261128"),
        ("1.10-mine-20261128.2",) * 2,
        ("1.10-mine-20261128", "1.10-mine-20261128.2"),
        ("1.11-mine-20261101",) * 2,
        ("1.11-other-20261130", "1.11-mine-20261101"),
    ):
        stem, name, _ = version.split("-")
        assert software.install(version, f"{stem}-{name}", name)["mine"] == f"P/{newest}"
    assert software.aliases["1.10-mine"] == "P/1.10-mine-20261128.2" and software.aliases["other"]
    assert modulerc.installed_meanwhile(str(software.folder), ["1.9-mine", "mine"], {}, "1.9-mine-20261129") is None
    # not a name that is there
    software.install("mine2")
    others = modulerc.names_of_others(str(software.folder), "P/1.9-mine2-20261129", ["1.9-mine2", "mine2"])
    assert list(others) == [("mine2", "P/mine2")]
    software.install("2.0", "demo")
    others = modulerc.names_of_others(str(software.folder), "P/1.9-demo-20261129", ["1.9-demo", "demo"])
    assert list(others) == [("demo", "P/2.0")]


def test_one_that_was_written_just_now(software):
    """The alias exists although eb copies the easyconfig only after it has written the module."""
    software.install("1.0-mine-20261129", "1.0-mine")
    (software.roots / "1.0-mine-20261129/easybuild/P-1.0-mine-20261129.eb").unlink()
    assert software.install("1.0-mine-20261128", "1.0-mine") == {"1.0-mine": "P/1.0-mine-20261129"}


def test_an_alias_that_ends_while_the_module_is_hidden_or_shown(software):
    """The alias doesn't stay under the other name of the module."""
    software.install("1.0", "y", "z")
    assert software.install(".1.0", "z", earlier=["y", "z"]) == {"z": "P/.1.0"}
    assert software.install("1.0", earlier=["z"]) == {}
    # no empty file stays
    assert not (software.folder / software.DOT_MODULERC).exists()


def test_an_alias_in_the_other_syntax(software, tmp_path):
    """After the syntax of modules was changed, no alias stays in the file that Lmod reads, too."""
    other = Software(tmp_path / "other", {"Lua": "Tcl", "Tcl": "Lua"}[software.syntax])
    other.folder, other.roots = software.folder, software.roots
    other.install("2.0", "kept")
    other.install(".1.0", "x", "y")
    for path in other.folder.glob("*1.0*"):
        path.unlink()
    software.install("1.0", "x", earlier=["x", "y"])
    assert software.aliases == {"kept": "P/2.0", "x": "P/1.0"}
    assert "1.0" not in (other.folder / other.DOT_MODULERC).read_text()
    software.install("2.0", earlier=["kept"])
    assert not (other.folder / other.DOT_MODULERC).exists()
    # a module that was hidden
    (other.folder / other.DOT_MODULERC).write_text(HIDE[other.syntax] % {"module": "P/1.0"} + "\n")
    software.install(".1.0")
    software.install("1.0")
    assert not (other.folder / other.DOT_MODULERC).exists()


WRITTEN_BY_HAND = {
    "Lua": [
        'module_version("P/1.0","x")',
        "module_version('P/1.0', 'x')",
        '  module_version( "P/1.0" , "x" ); -- mine',
        'module_version("P/1.0", "y", "x")',
        'module_version("/1.0", "x")',
    ],
    "Tcl": [
        'module-version "P/1.0" "x"',
        "module-version {P/1.0} x ;# mine",
        "\tmodule-version  P/1.0\ty x",
        "module-version /1.0 x",
    ],
}


def test_an_alias_that_a_person_has_written(software):
    """A person's alias counts in each spelling that the modules tool reads; others are left alone."""
    for line in WRITTEN_BY_HAND[software.syntax]:
        path = software.folder / software.DOT_MODULERC
        before = f"#%Module\n# module-version P/3.0 x\n{line}\n" if software.syntax == "Tcl" else f"--é\n{line}\n"
        software.install("1.0")
        path.write_text(before)
        assert software.aliases["x"] == "P/1.0"
        assert software.install("1.0")["x"] == "P/1.0"
        assert path.read_text() == before
        assert list(modulerc.names_of_others(str(software.folder), "P/2.0", ["x"])) == [("x", "P/1.0")]
        assert removal.text_without(path, "P/1.0", {"x": "P/2.0"}) == before.replace(
            line, STATEMENTS[software.syntax].rpartition("\n")[2].format(modname="P/2.0", sym_version="x")
        )
        (software.folder / f"1.0{software.end}").unlink()
        assert software.install("2.0", "x")["x"] == "P/2.0"
        assert software.aliases.get("y") == ("P/1.0" if "y" in line else None)
        assert software.install("2.0", earlier=["x"]).get("x") is None
        path.unlink()


@pytest.mark.parametrize(
    ("aliases", "expected"),
    [
        (["demo"], [("demo", "P/1.0-a")]),
        (["other"], []),
        (["demo", "1.0-a"], []),
        (["1.0-a"], []),
        (["gone"], []),
        (["2.0"], [("2.0", "P/2.0")]),
        (["latest"], [("latest", "P/1.0-b")]),
        (["latest", "1.0-b"], []),
    ],
)
def test_an_alias_of_another_module(software, aliases, expected):
    """N-05: the alias belongs to the other module, unless that isn't installed, or this one has its version, too."""
    software.install("1.0-a", "demo")
    software.install(".1.0-b", "latest")
    software.install("1.0-c", "gone")
    (software.folder / f"1.0-c{software.end}").unlink()
    software.install("2.0")
    assert list(modulerc.names_of_others(str(software.folder), "P/2.0-20261128", aliases)) == expected
    # its own ones
    assert not list(modulerc.names_of_others(str(software.folder), "P/1.0-a", ["demo"]))
    assert not list(modulerc.names_of_others(str(software.folder), "P/1.0-b", ["latest"]))


def test_aliases_that_lead_elsewhere(software):
    """N-05: `installed` and `doctor --installed` say so, and the command that helps."""

    def said(version):
        file = software.folder / f"{version}{software.end}"
        one = Installation(software.roots / version, f"P/{version}", file, software.folder.parent)
        return [finding.text for finding in report.misplaced_aliases(one)]

    software.install("1.0-a", "demo")
    software.install("1.0-mine-20261128", "1.0-mine")
    software.install("1.0-mine-20261129", "1.0-mine")
    for version in ("1.0-a", "1.0-mine-20261128", "1.0-mine-20261129"):
        assert said(version) == []
    path = software.folder / software.DOT_MODULERC
    right = path.read_text()
    path.write_text(right.replace("mine-20261129", "mine-20261128").replace("P/1.0-a", "P/1.0-gone"))
    assert said("1.0-mine-20261128") == []
    root = software.roots / "1.0-mine-20261129"
    assert said("1.0-mine-20261129") == [
        "its easyconfig has the alias 1.0-mine, but the modules tool loads P/1.0-mine-20261128 by P/1.0-mine: run "
        f"`eb --module-only --force {root}/easybuild/P-{root.name}.eb`"
    ]
    assert said("1.0-a")[0].startswith("its easyconfig has the alias demo, but the modules tool loads P/1.0-gone by")
    path.write_text("")
    assert "loads nothing by P/demo: run `eb" in said("1.0-a")[0]
    # another one has it
    software.install("2.0", "demo")
    assert "loads P/2.0 by P/demo: install that without this alias, and run `eb --module-only" in said("1.0-a")[0]
    # that replaces it
    software.install("2.0", "demo", "1.0-a")
    assert said("1.0-a") == []


def test_extensions_that_appear_meanwhile(software):
    """Extensions made since then are found, except the module itself and those of another name."""

    def unknown(but=""):
        return modulerc.installed_meanwhile(str(software.folder), ["1.0-mine"], known, but)

    known = {}
    assert unknown() is None
    for version, alias in (("1.0-mine-20261128", "1.0-mine"), ("1.0-mine2-20261128", "1.0-mine2")):
        software.install(version, alias)
        record = software.roots / version / modulerc.RECORD
        record.parent.mkdir(parents=True)
        record.write_text("{}")
    assert unknown() == "1.0-mine-20261128"
    assert unknown("1.0-mine-20261128") is None
    root = str(software.roots / "1.0-mine-20261128")
    known[root] = modulerc.time_of(root)
    assert unknown() is None
    (Path(root) / modulerc.RECORD).unlink()
    assert unknown() == "1.0-mine-20261128"
