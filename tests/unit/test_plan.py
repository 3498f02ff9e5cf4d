"""What `ebsif extend --check` says about what pip would install."""

import dataclasses
import json
import os
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from ebsif.cli import main
from ebsif.eb import framework, running
from ebsif.environments import bases, downloads, extension, installing, making, plan
from ebsif.environments.request import Request, install_command, require_places
from ebsif.installed import places, search
from ebsif.report import colors
from prefixes import BASE, EASYCONFIG, MINE, OTHER

LUMI = "PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250527"


@pytest.mark.parametrize("kind", ["link", "pipe", "huge"])
def test_files_that_a_hostile_package_has_replaced(tmp_path, kind):
    """P-03: a log that is a link to a file of the person's isn't followed, and nobody waits for a pipe."""
    (tmp_path / "private").write_text("TOPSECRET")
    folder = tmp_path / "check"
    log = folder / "build/Tool/stages/1/pip.log"
    log.parent.mkdir(parents=True)
    log.write_text("fine")
    assert plan.written(str(folder), "pip.log") == ["fine"]
    log.unlink()
    if kind == "link":
        log.symlink_to(tmp_path / "private")
    elif kind == "pipe":
        os.mkfifo(log)
    else:
        with log.open("w") as file:
            file.truncate(300 * 1024**2)
    with pytest.raises(extension.ExtendingError, match="has put something else in the place of the file .*pip.log"):
        plan.written(str(folder), "pip.log")


def test_a_prefix_of_somebody_else(tmp_path, monkeypatch, ebsif):
    """The message says where EasyBuild would install and how to choose another place; no file is left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr("ebsif.eb.framework.prefix", lambda: (tmp_path, tmp_path / "file/modules"))
    stage = {"name": "requirements", "requirements": "a==1"}
    record = {"image": {"file": "a.sif", "sha256": "0"}, "image_packages": [], "venv_packages": ["a==1"]}
    (tmp_path / "lock.json").write_text(json.dumps({**record, "stages": [stage]}))
    for words in ([LUMI, "--add", "einops"], ["--from-lock", "lock.json"]):
        said = ebsif("extend", "--site", "lumi", *words, "--name", "mine", status=3).err
        assert (
            f"nothing can be installed in {tmp_path}/file/modules, EasyBuild's directory here, because you can't "
            f"write to {tmp_path}/file: choose one of your own (export EASYBUILD_PREFIX="
        ) in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "lock.json"]


def test_a_prefix_in_a_closed_directory(tmp_path, monkeypatch):
    """The message is the same for a prefix below a directory that this account can't search, such as /root."""
    closed, stat = tmp_path / "closed", os.stat
    closed.mkdir()

    def denied(path, *arguments, **options):
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr("ebsif.eb.framework.prefix", lambda: (closed / "eb/software", closed / "eb/modules"))
    monkeypatch.setattr(os, "stat", denied)
    # of root as well
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed)
    request = Request("extend", output=tmp_path)
    remedy = f"because you can't write to {closed}: choose one of your own (export EASYBUILD_PREFIX="
    for home, place in ((tmp_path, "$HOME/.local/easybuild, "), (closed, "DIRECTORY, ")):
        # no advice that can't be followed
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(extension.ExtendingError, match=re.escape(remedy + place)):
            require_places(request)
    with pytest.raises(extension.ExtendingError, match=f"written to {closed}, .* of your own \\(-o DIRECTORY\\)"):
        require_places(dataclasses.replace(request, output=closed))


def place_in(folder):
    """Return a place for a module."""
    return framework.ModulePlace(folder / "a-1.eb", folder, "a/1", folder / "a/1.lua", folder / "software")


def test_an_interrupted_installation(tmp_path, monkeypatch, capsys):
    """After Ctrl-C the last line says where the easyconfig is."""
    monkeypatch.setattr(running, "install", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        installing.install(place_in(tmp_path), Request("extend", rebuild=True), "--sourcepath=x")
    assert capsys.readouterr().err == f"ebsif: interrupted; the easyconfig is {tmp_path}/a-1.eb\n"


def test_how_to_load_what_is_installed(tmp_path, monkeypatch, capsys):
    """N-01: unless MODULEPATH has the directory of the module, the line that loads it names it."""
    place = place_in(tmp_path)
    place.file.parent.mkdir()
    place.file.touch()
    monkeypatch.setattr(running, "install", lambda _: running.Result(0, "", ""))
    there: list = []
    monkeypatch.setattr(places, "known", lambda *_: there)
    lines = []
    for searched in (tmp_path, tmp_path / "other"):
        monkeypatch.setenv("MODULEPATH", str(searched))
        installing.install(place, Request("extend", rebuild=True), "--sourcepath=x")
        lines += [line for line in capsys.readouterr().err.splitlines() if not line.startswith("ebsif: ")]
    assert lines == ["load it with: module load a/1", f"load it with: module use {tmp_path} && module load a/1"]
    # only what nothing was replaced for, and what the name means
    there.append(places.Installation(place.installation, "a/1", place.file, tmp_path))
    for options, number in (([], 1), (["--prefix=x"], 0)):
        installing.install(place, Request("extend", rebuild=True, more=options), "--sourcepath=x")
        assert capsys.readouterr().err.count("undo: ebsif remove a/1\n") == number
    there[0] = places.Installation(tmp_path / "other", "a/1", place.file, tmp_path)
    installing.install(place, Request("extend", rebuild=True), "--sourcepath=x")
    there[0] = places.Installation(place.installation, "a/1", place.file, tmp_path)
    place.installation.mkdir()
    installing.install(place, Request("extend", rebuild=True), "--sourcepath=x")
    assert "undo" not in capsys.readouterr().err


@pytest.fixture(autouse=True)
def own_temporary(tmp_path, monkeypatch):
    """What checks have downloaded is kept there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)


def test_downloads_of_a_check(eb_prefix, monkeypatch, capsys, tmp_path):
    """N-07: the installation that follows a check takes its downloads and removes them; no other one."""
    eb, taken = Eb({"rich 1.0": True}), []
    monkeypatch.setattr(running, "install", eb)
    assert main(["extend", BASE, "--add", "rich", "--name", "other", "--check"]) == 0
    kept = eb.downloads
    assert kept.is_dir() and kept.parent.parent == tmp_path and kept.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(installing, "install", lambda *given: taken.append(given[3].get("PIP_CACHE_DIR")))
    monkeypatch.setattr(making, "report_earlier", lambda *_: None)
    for packages in (["rich", "einops"], ["rich"], ["rich"]):
        assert main(["extend", BASE, "--add", *packages, "--name", "other", "--rebuild"]) == 0
    assert taken == [None, str(kept), None] and not kept.parent.exists()
    # neither of a check that says no, nor for long, nor where others can write, nor if pip keeps everything
    eb.result = running.Result(1, "pip failed in stage 'a': no matching distribution")
    kept.parent.mkdir(mode=0o700)
    for name in ("old", "new"):
        (kept.parent / name).mkdir()
    os.utime(kept.parent / "old", (0, 0))
    assert main(["extend", BASE, "--add", "rich", "--name", "other", "--check"]) == 1
    assert os.listdir(kept.parent) == ["new"]
    (kept.parent / "new/wheel").touch()
    made = extension.Extension(bases.Container, "x")
    monkeypatch.setattr(downloads, "key_of", lambda *_: "new")

    def left():
        # after a failure
        with pytest.raises(KeyboardInterrupt), downloads.left_by_check(made, []) as found:
            raise KeyboardInterrupt
        return found

    assert left() == {"PIP_CACHE_DIR": str(kept.parent / "new")}
    # what another command is removing, as it can be seen here: a name without a file
    with monkeypatch.context() as other:
        other.setattr(Path, "iterdir", lambda folder: iter([folder / "gone", folder / "new"]))
        assert left() == {"PIP_CACHE_DIR": str(kept.parent / "new")}
        # or the directory
        other.setattr(Path, "iterdir", lambda folder: iter(os.listdir(folder / "gone")))
        assert left() == {"PIP_CACHE_DIR": str(kept.parent / "new")}
    kept.parent.chmod(0o770)
    assert downloads.variables_of(made, []) == {}
    kept.parent.chmod(0o700)
    monkeypatch.setenv("PIP_CACHE_DIR", "/mine")
    assert downloads.variables_of(made, []) == {}


class Eb:
    """
    What eb does for a check: it writes pip's report.

    Parameters
    ----------
    packages
        Whether a package (`name version`) was asked for.
    """

    def __init__(self, packages):
        self.packages, self.easyconfig, self.result = packages, "", running.Result()

    def __call__(self, arguments, **variables):
        # the check of a lock has none
        if "PIP_CACHE_DIR" in variables:
            self.downloads = Path(variables.pop("PIP_CACHE_DIR"))
            self.downloads.mkdir(parents=True, exist_ok=True)
            (self.downloads / "wheel").touch()
        assert variables.pop("EBSIF_BASE", "/software/PyTorch/2").rpartition("/software/")[2].startswith("PyTorch/2")
        assert variables == {"EBSIF_CHECK": "1"}
        self.easyconfig = Path(arguments[0]).read_text()
        # nor does it write into the prefix, which may be somebody else's
        own = [one for one in map(str, arguments) if one.startswith(("--installpath=", "--repositorypath="))]
        assert {Path(one.partition("=")[2]).parent for one in own} == {Path(arguments[0]).parent}
        (folder,) = [one.partition("=")[2] for one in map(str, arguments) if one.startswith("--buildpath=")][-1:]
        report = Path(folder, "PyTorch/2.7.0/system/stages/requirements/report.json")
        report.parent.mkdir(parents=True)
        archive = {"hashes": {"sha256": "1" * 64}}
        items = []
        for package, requested in self.packages.items():
            name, version = package.split()
            download = {"url": f"file:///none/{name}-{version}.whl", "archive_info": archive}
            metadata = {"name": name, "version": version}
            items.append({"metadata": metadata, "requested": requested, "download_info": download})
        report.write_text(json.dumps({"install": items}))
        return self.result


def test_checking_a_lock(eb_prefix, tmp_path, monkeypatch, ebsif):
    """E-07, E-11: as other requirements: what was asked for, the verdict, the next command; the files are compared."""
    eb_prefix.install(BASE)
    eb = Eb({"rich 1.0": True, "hello 1.0": False})
    monkeypatch.setattr(running, "install", eb)
    file = {"file": "rich-1.0.whl", "sha256": "1" * 64}
    record = {
        "image": {"file": "a.sif", "sha256": "0" * 64},
        "image_packages": [],
        "artifacts": {"rich": file},
        "venv_packages": ["hello==1.0", "rich==1.0"],
        "stages": [{"name": "requirements", "requirements": "rich\n"}],
    }
    command = ["extend", "--from-lock", "lock.json", "--name", "theirs", "--date", "1", "--check"]
    monkeypatch.setattr("sys.argv", ["ebsif", *command])

    def checked(status, *more):
        (tmp_path / "lock.json").write_text(json.dumps(record))
        said = ebsif(*command, *more, status=status)
        return [*said.out.splitlines(), *(line for line in said.err.splitlines() if line.startswith("install it"))]

    packages = ["+ rich 1.0   asked for", "+ hello 1.0  dependency"]
    then = "install it with: ebsif extend --from-lock lock.json --name theirs --date 1"
    assert checked(0) == [*packages, "yes: PyTorch/theirs can be installed: 2 packages", then]
    assert "constraints = ['hello==1.0', 'rich==1.0']" in eb.easyconfig
    file["sha256"] = "2" * 64
    problem = "rich-1.0.whl has another SHA256 than in the lock"
    assert checked(1) == [*packages, f"no: PyTorch/theirs can't be installed: {problem}"]
    # on another image the versions are wanted, but these packages are not in an extension that is changed
    record["image"] = {"file": "b.sif", "sha256": "1" * 64}
    assert checked(0, BASE)[:2] == packages
    assert not list(tmp_path.glob("*.eb"))
    (tmp_path / "lock.json").unlink()
    said = ebsif(*command, status=3).err
    assert said == "ebsif: lock.json does not exist: give the lock of a module, or its installation\n"


def test_a_verdict_on_what_may_not_work(eb_prefix, monkeypatch, ebsif):
    """S002-19: pip installs a torchvision for CUDA beside a torch for CPUs: the verdict mentions the warning."""
    eb, searches, everything = Eb({"torchvision 0.28.0": True}), [], search.everything
    eb.result.warned = True
    monkeypatch.setattr(running, "install", eb)
    monkeypatch.setattr(search, "everything", lambda: searches.append(1) or everything())
    said = ebsif("extend", BASE, "--add", "torchvision", "--name", "other", "--check").out
    assert " can be installed: 1 package (but see the warning above)\n" in said
    # a large system isn't searched for each question
    assert len(searches) == 1


def test_a_check_knows_what_is_installed(eb_prefix, monkeypatch, ebsif):
    """Installing the same again needs nothing; another module of that name and date would be replaced."""
    monkeypatch.setattr(running, "install", Eb({"rich 1.0": True}))
    words = ["extend", BASE, "--add", "rich", "--name", "other", "--date", "20261121"]
    monkeypatch.setattr("sys.argv", ["ebsif", *words, "--check"])
    root = eb_prefix.install(OTHER, text=ebsif(*words, "-n").out)
    for option in (["--check"], []):
        said = ebsif(*words, *option)
        assert said.err == (
            f"ebsif: {OTHER} has these packages already: nothing to do (--rebuild installs it again)\n"
            f"load it with: module load {OTHER}\n"
        )
    there = {"module": OTHER, "name": OTHER, "load": f"module load {OTHER}", "root": str(root)}
    assert json.loads(ebsif(*words, "--json").out) == {**there, "new": False}
    (copy,) = root.glob("easybuild/*.eb")
    copy.write_text(copy.read_text().replace("rich", "einops"))
    planned = json.loads(ebsif(*words, "--check", "--json").out)
    assert planned["possible"] and planned["added"] == [{"name": "rich", "version": "1.0", "why": "asked for"}]
    said = ebsif(*words, "--check")
    assert said.err.startswith(f"ebsif: {OTHER} is installed already, with other packages: it would be replaced\n")
    assert said.err.endswith(f"\ninstall it with: ebsif {' '.join(words)} --rebuild\n")


def test_a_base_with_a_parameter_that_was_removed(eb_prefix, ebsif):
    """An extension without what the base has of the host would be worse than none."""
    text = f"{EASYCONFIG}library_binds = {{'/a.so': 'if_newer'}}\n"
    base = eb_prefix.install(BASE.replace("2.13", "2.12"), text=text)
    said = ebsif("extend", str(base), "--add", "rich", "--name", "mine", "-n", status=3).err
    assert "can't be extended: 'library_binds' was removed. Its owner has to change and install it: name these" in said


@pytest.mark.usefixtures("eb_on_path")
def test_a_base_that_repeats_an_installation(eb_prefix, ebsif, tmp_path):
    """Of the easyconfig that `ebsif pull` leaves, the module is extended; it may be installed already."""
    text = re.sub(r"requirements = \[.*?\n\]", "requirements = {'lock': 'x.lock.json'}", EASYCONFIG, flags=re.DOTALL)
    path = tmp_path / "pulled.eb"
    path.write_text(text)
    said = ebsif("extend", str(path), "--add", "rich", "--name", "more", "-n", status=3).err
    assert "install it (`eb " in said and f"pulled.eb`), and then extend its module {MINE}\n" in said
    eb_prefix.install(MINE, text=text)
    eb_prefix.alias(MINE, "mine")
    said = ebsif("extend", str(path), "--add", "rich", "--name", "more", "-n", status=3).err
    assert "so it can't be extended: extend its module, which is installed: `ebsif extend mine ...`\n" in said


def test_packages_of_the_distribution_that_do_not_exist():
    """For a wrong package, --check names the option that was typed."""
    said = "Easyconfig parameter 'system_packages': no package 'x' (here)"
    done = running.Result(1, f'Installation of x.eb failed: "{said}"')
    assert plan.problem(done, Mock(), "/nowhere") == "--apt: no package 'x' (here)"
    # what is in a record of the catalog wasn't typed
    assert plan.with_similar_names(done.reason).startswith("Easyconfig parameter")


def test_names_that_are_misspelled():
    """For a package that doesn't exist, similar names are given; a known one lacks only the version."""
    text = "pip failed in stage 'a': none of the searched indexes has a suitable version of {}. Check the spelling"
    for name, similar in (("einopss", "einops"), ("pytroch", "torch"), ("transfomers", "transformers")):
        assert plan.with_similar_names(text.format(name)) == text.format(f"{name} (did you mean {similar}?)")
    for name in ("einops", "einops>=9", "x/y", "qwertyuiop"):
        assert plan.with_similar_names(text.format(name)) == text.format(name)


def test_the_verdict_on_an_extension_that_is_changed(eb_prefix, monkeypatch, capsys, ebsif):
    """E-11: of many packages only one may be new, so the verdict counts the others; also those of the base."""
    rich = plan.Addition("rich", "15.0", "asked for")
    for unchanged in ("as before", "of the base, unchanged"):
        plan.show(plan.Plan([rich], before=82, unchanged=unchanged), "A/1", "COMMAND")
        assert capsys.readouterr().out.splitlines() == [
            "+ rich 15.0    asked for",
            f"= 82 packages  {unchanged}",
            f"yes: A/1 can be installed: 83 packages (82 {unchanged})",
        ]
    # N-04: at a terminal
    with monkeypatch.context() as at_terminal:
        at_terminal.setattr(colors, "are_on", lambda _: True)
        for problem, start in (("", "\x1b[1;32myes:\x1b[0m A/1 "), ("x", "\x1b[1;31mno:\x1b[0m A/1 ")):
            plan.show(plan.Plan(problem=problem), "A/1", "COMMAND")
            assert capsys.readouterr().out.startswith(start)
    monkeypatch.setattr(running, "install", Eb({"einops 0.8": True, "hand 1.0": True}))
    eb_prefix.install(BASE, ["hand==1.0"], text="")
    said = ebsif("extend", BASE, "--add", "einops", "--name", "mine", "--check").out
    assert said.startswith("+ einops 0.8  asked for\n= 1 package   of the base, unchanged\n")


def test_options_of_the_user_do_not_hide_the_plan(tmp_path, monkeypatch, ebsif):
    """E-02: with --buildpath for eb, the packages are still found where pip says what it would install."""
    monkeypatch.setattr(running, "install", Eb({"einops 0.8": True}))
    monkeypatch.chdir(tmp_path)
    command = ["extend", "--site", "lumi", LUMI, "--add", "einops", "--name", "mine", "--check"]
    said = ebsif(*command, "--", f"--buildpath={tmp_path}/elsewhere").out
    assert said.startswith("+ einops 0.8  asked for\nyes: ")
    assert install_command(["extend", "a b", "--check", "--", "--debug"]) == ("ebsif extend 'a b' -- --debug")
