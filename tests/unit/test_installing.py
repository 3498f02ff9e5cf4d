"""`ebsif install`: what is installed, from which easyconfig, and when there is nothing to do."""

import json
import re
from argparse import Namespace
from pathlib import Path

import pytest
from ebsif import cli
from ebsif.catalog import reading, site
from ebsif.eb import framework, running
from ebsif.environments import bases, installing
from ebsif.environments.request import Request
from ebsif.installed import places
from ebsif.render import easyconfig
from prefixes import SITE, TOOL


@pytest.fixture
def installer(tool_site, monkeypatch):
    """What `ebsif install` gives to eb; modules are where the tests say."""
    runs, there = [], {}
    monkeypatch.setattr(framework, "session", lambda *_: None)
    monkeypatch.setattr(framework, "prefix", lambda: (tool_site / "software", tool_site / "modules"))
    monkeypatch.setattr(bases, "sources", lambda *_: "--sourcepath=x")
    monkeypatch.setattr(places, "known", lambda _, name=None: there.get(name, []))

    def install(place, request, sources, **_):
        runs.append((place.easyconfig.name, request.rebuild, [*request.more, sources]))
        if "2.0" in place.easyconfig.name:
            raise installing.ExtendingError("the image is damaged")
        return 0

    monkeypatch.setattr(installing, "install", install)
    monkeypatch.setattr(framework, "place_of", lambda path, _: Namespace(easyconfig=path))
    return Namespace(runs=runs, there=there)


def installation(tool_site, version, text):
    """Return the installation of a version from an easyconfig with this text."""
    root = tool_site / f"software/Tool/{version}"
    (root / "easybuild").mkdir(parents=True)
    (root / f"easybuild/Tool-{version}.eb").write_text(text)
    return places.Installation(root, f"Tool/{version}", tool_site / "modules/Tool" / version, tool_site / "modules")


def test_all_that_has_no_module(tool_site, installer, capsys, ebsif):
    """V-08: --all installs what is missing, with --rebuild also what has changed; a failure doesn't stop the others."""
    records = "".join(f"  - {{family: tool, version: {one}}}\n" for one in ("2.0", "3.0", "4.0"))
    (tool_site / "site/mine/containers").mkdir(parents=True)
    records += "  - {family: tool, version: 5.0, archived: true}\n"
    (tool_site / "site/mine/containers/Tool.yaml").write_text(f"{TOOL}{records}")
    (tool_site / "modules").mkdir()
    # a person means the records of their own
    assert "0 containers in the catalog, 0 installed now\n" in ebsif("install", "--all").err
    everything = ["install", "--catalog", "site", "--all"]
    assert "5 containers in the catalog, 4 would be installed\n" in ebsif(*everything, "--dry-run").err
    assert not installer.runs
    same, *_ = reading.read(site.read("mine", [site.SITES]), tool_site / "site/mine")
    # written by another version of ebsif, with other comments
    installer.there["Tool/1.0"] = [installation(tool_site, "1.0", "# Rendered\n" + easyconfig.render(same))]
    installer.there["Tool/4.0"] = [installation(tool_site, "4.0", "other")]
    assert cli.main(everything) == 3
    assert [name for name, again, _ in installer.runs] == ["Tool-2.0.eb", "Tool-3.0.eb"]
    said = capsys.readouterr().err
    assert "ebsif: Tool/2.0: the image is damaged\n" in said
    assert "Tool/4.0 is installed already, though its record has changed since: nothing to do (--rebuild " in said
    assert "Tool/1.0" not in said and "5 containers in the catalog, 1 installed now\n" in said
    # C-04: the easyconfig of the failed attempt is gone
    folder = tool_site / "data/ebsif/easyconfigs/t/Tool"
    assert [path.name for path in folder.iterdir()] == ["Tool-3.0.eb"]
    installer.runs.clear()
    assert cli.main([*everything, "--rebuild", "--", "--debug"]) == 3
    assert installer.runs[-1] == ("Tool-4.0.eb", True, ["--debug", "--sourcepath=x"])
    assert len(installer.runs) == 3


def test_one_that_is_named(tool_site, installer, capsys, ebsif):
    """V-08: nothing to do if it is there; --dry-run writes nothing; what `ebsif render` keeps stays."""
    (tool_site / "modules").mkdir()
    assert ebsif("install", "tool", "--dry-run").out.startswith("# Rendered by ebsif from the catalog of the site mine")
    assert not (tool_site / "data").exists() and not installer.runs
    assert cli.main(["install", "tool"]) == 0
    path = tool_site / "data/ebsif/easyconfigs/t/Tool/Tool-1.0.eb"
    path.write_text(path.read_text() + "# mine\n")
    assert "Tool-1.0.eb was written or edited by a person" in ebsif("install", "tool", status=3).err
    assert cli.main(["install", "tool", "-o", "elsewhere"]) == 0
    written = (tool_site / "elsewhere/t/Tool/Tool-1.0.eb").read_text()
    installer.there["Tool/1.0"] = [installation(tool_site, "1.0", written)]
    installer.runs.clear()
    assert cli.main(["install", "tool"]) == 0
    assert not installer.runs
    said = capsys.readouterr().err
    assert "Tool/1.0 is installed already: nothing to do (--rebuild installs it again)\nload it with: module " in said
    said = json.loads(ebsif("install", "tool", "--json").out)
    assert (said["module"], said["new"]) == ("Tool/1.0", False) and said["load"].endswith("module load Tool/1.0")
    # EasyBuild's scheme of categories puts the class before the name; cron doesn't install it again each day
    (moduleclass,) = re.findall("moduleclass = '(.*)'", written)
    installer.there[f"{moduleclass}/Tool/1.0"] = installer.there.pop("Tool/1.0")
    assert cli.main(["install", "tool"]) == 0 and not installer.runs
    assert "is installed already: nothing to do" in capsys.readouterr().err
    assert cli.main(["install", "tool", "--rebuild", "-o", "elsewhere"]) == 0
    assert [again for _, again, _ in installer.runs] == [True]
    for arguments in ([], ["tool", "--all"]):
        assert cli.main(["install", *arguments]) == 2
    assert cli.main(["install", "nothing"]) == 3


@pytest.mark.parametrize("category", ["", "ai/"])
def test_what_the_list_says_of_it(tool_site, monkeypatch, ebsif, category):
    """I-01, F-02: `ebsif list` marks what is installed, also with EasyBuild's scheme of categories."""
    file = tool_site / f"modules/{category}Tool/1.0.lua"
    monkeypatch.setenv("MODULEPATH", str(tool_site / "modules"))
    for said in (["Tool/1.0"], ["Tool/1.0", "here"]):
        assert ebsif("list", "tool").out.splitlines()[1].split() == said
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_an_image_that_may_be_another_one_tomorrow(tool_site, installer, ebsif):
    """V-08, R-12: `ebsif install` refuses, as `ebsif render` does."""
    images = f"images: {{directories: [{{path: {tool_site}/images, stability: moving}}]}}\n"
    (tool_site / "project/mine/site.yaml").write_text(f"{SITE}{images}")
    (tool_site / "images").mkdir()
    (tool_site / "images/tool-1.0.sif").touch()
    assert "Tool/1.0 can't be installed: " in ebsif("install", "tool", status=3).err
    assert not installer.runs


def test_a_module_that_another_eb_installs(tmp_path, monkeypatch):
    """EasyBuild only says that there is a lock; an eb that was killed leaves one, too."""
    path = tmp_path / "Tool-1.0.eb"
    place = framework.ModulePlace(path, tmp_path, "Tool/1.0", tmp_path / "1.0.lua", tmp_path / "software")
    error = "Installation of Tool-1.0.eb failed: Lock /software/.locks/a.lock already exists, aborting!"
    monkeypatch.setattr(running, "install", lambda _: running.Result(1, error, log="/tmp/log"))
    with pytest.raises(installing.ExtendingError) as raised:
        installing.install(place, Request("install"), "--sourcepath=x")
    assert str(raised.value) == places.locked("Tool/1.0", Path("/software/.locks/a.lock"))
