"""`ebsif install`: what is installed, from which easyconfig, and when there is nothing to do."""

from argparse import Namespace

import pytest
from ebsif import cli
from ebsif.catalogue import reading, site
from ebsif.eb import framework
from ebsif.environments import outcome
from ebsif.installed import places
from ebsif.render import easyconfig

SITE = "name: mine\ndescription: x\n"
TOOL = """\
name: Tool
families:
  tool: {homepage: https://example.org/, file: "tool-{version}.sif", init: none}
containers:
  - {family: tool, version: 1.0}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project with one site and one record, and an account without configuration."""
    monkeypatch.chdir(tmp_path)
    for name, folder in (("HOME", "home"), ("XDG_DATA_HOME", "data"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("EBSIF_SITE", "mine")
    monkeypatch.setattr(site, "SITES", tmp_path / "project")
    (tmp_path / "project/mine/containers").mkdir(parents=True)
    (tmp_path / "project/mine/site.yaml").write_text(SITE)
    (tmp_path / "project/mine/containers/Tool.yaml").write_text(TOOL)
    return tmp_path


@pytest.fixture
def installer(place, monkeypatch):
    """What `ebsif install` gives to eb; modules are where the tests say."""
    runs, there = [], {}
    monkeypatch.setattr(framework, "session", lambda *_: None)
    monkeypatch.setattr(framework, "prefix", lambda: (place / "software", place / "modules"))
    monkeypatch.setattr(outcome.extending, "sources", lambda _: "--sourcepath=x")
    monkeypatch.setattr(places, "known", lambda _, name=None: there.get(name, []))

    def install(path, again, more, otherwise):
        runs.append((path.name, again, more))
        if "2.0" in path.name:
            raise outcome.ExtendingError("the image is damaged")
        return 0

    monkeypatch.setattr(outcome, "install", install)
    return Namespace(runs=runs, there=there)


def installation(place, version, text):
    """Return the installation of a version from an easyconfig with this text."""
    root = place / f"software/Tool/{version}"
    (root / "easybuild").mkdir(parents=True)
    (root / f"easybuild/Tool-{version}.eb").write_text(text)
    return places.Installation(root, f"Tool/{version}", place / "modules/Tool" / version, place / "modules")


def test_all_that_has_no_module(place, installer, capsys):
    """V-08: --all installs what is missing, with --rebuild also what has changed; a failure doesn't stop the others."""
    records = "".join(f"  - {{family: tool, version: {one}}}\n" for one in ("2.0", "3.0", "4.0"))
    (place / "site/mine/containers").mkdir(parents=True)
    (place / "site/mine/containers/Tool.yaml").write_text(
        f"{TOOL}{records}  - {{family: tool, version: 5.0, archived: true}}\n")
    (place / "modules").mkdir()
    # a person means the records of their own
    assert cli.main(["install", "--all"]) == 0
    assert "0 containers in the catalogue, 0 installed now\n" in capsys.readouterr().err
    everything = ["install", "--catalogue", "site", "--all"]
    same, *_ = reading.read(site.read("mine", [site.SITES]), place / "site/mine")
    installer.there["Tool/1.0"] = [installation(place, "1.0", easyconfig.render(same))]
    installer.there["Tool/4.0"] = [installation(place, "4.0", "other")]
    assert cli.main(everything) == 3
    assert [name for name, again, _ in installer.runs] == ["Tool-2.0.eb", "Tool-3.0.eb"]
    said = capsys.readouterr().err
    assert "ebsif: Tool/2.0: the image is damaged\n" in said
    assert "Tool/4.0 is installed already, though its record has changed since: nothing to do (--rebuild " in said
    assert "Tool/1.0" not in said and "5 containers in the catalogue, 1 installed now\n" in said
    # C-04: the easyconfig of the failed attempt is gone
    folder = place / "data/ebsif/easyconfigs/t/Tool"
    assert [path.name for path in folder.iterdir()] == ["Tool-3.0.eb"]
    installer.runs.clear()
    assert cli.main([*everything, "--rebuild", "--", "--debug"]) == 3
    assert installer.runs[-1] == ("Tool-4.0.eb", True, ["--debug", "--sourcepath=x"])
    assert len(installer.runs) == 3


def test_one_that_is_named(place, installer, capsys):
    """V-08: nothing to do if it is there; --dry-run writes nothing; an edited easyconfig stays."""
    (place / "modules").mkdir()
    assert cli.main(["install", "tool", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("# Rendered by ebsif from the catalogue of the site mine")
    assert not (place / "data").exists() and not installer.runs
    assert cli.main(["install", "tool"]) == 0
    path = place / "data/ebsif/easyconfigs/t/Tool/Tool-1.0.eb"
    path.write_text(path.read_text() + "# mine\n")
    assert cli.main(["install", "tool"]) == 3
    assert "Tool-1.0.eb was written or edited by a person" in capsys.readouterr().err
    assert cli.main(["install", "tool", "-o", "elsewhere"]) == 0
    installer.there["Tool/1.0"] = [installation(place, "1.0", (place / "elsewhere/t/Tool/Tool-1.0.eb").read_text())]
    installer.runs.clear()
    assert cli.main(["install", "tool"]) == 0
    assert not installer.runs
    said = capsys.readouterr().err
    assert "Tool/1.0 is installed already: nothing to do (--rebuild installs it again)\nload it with: module " in said
    assert cli.main(["install", "tool", "--rebuild", "-o", "elsewhere"]) == 0
    assert [again for _, again, _ in installer.runs] == [True]
    for arguments in ([], ["tool", "--all"]):
        assert cli.main(["install", *arguments]) == 2
    assert cli.main(["install", "nothing"]) == 3


def test_an_image_that_may_be_another_one_tomorrow(place, installer, capsys):
    """V-08, R-12: `ebsif install` refuses, as `ebsif render` does."""
    (place / "project/mine/site.yaml").write_text(
        f"{SITE}images: {{directories: [{{path: {place}/images, stability: moving}}]}}\n")
    (place / "images").mkdir()
    (place / "images/tool-1.0.sif").touch()
    assert cli.main(["install", "tool"]) == 3
    assert "Tool/1.0 can't be installed: " in capsys.readouterr().err
    assert not installer.runs
