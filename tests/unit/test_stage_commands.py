"""How commands of stages are run, and what they ask of pip. No container is started."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.packages import InstalledPackages
from easybuild.easyblocks.generic.container.pip import BASH, FILL_VARIABLE, Pip
from easybuild.easyblocks.generic.container.runtime import host_variables
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.tools.build_log import EasyBuildError
from support import make_archive

SITE = "/user-software/venv/example/lib/python3.11/site-packages"


class RecordedPip(Pip):
    """Pip that records its commands instead of running them in a container."""

    def __init__(self, folder):
        """Let pip work in a folder."""
        super().__init__(
            SimpleNamespace(python="python"), str(folder), InstalledPackages(numpy=("numpy", "2.0", "/image")), {}
        )
        self.commands = []

    def run(self, stage, arguments, extra, **_):
        """Record a command."""
        self.commands.append(arguments)


def installed(**versions):
    """Return packages of user software with these versions."""
    return InstalledPackages((name, (name, version, SITE)) for name, version in versions.items())


def stage_of(*lines, **properties):
    """Return a stage with these lines."""
    (stage,) = PipStage.from_parameter([{"name": "one", "requirements": "\n".join(lines), **properties}])
    return stage


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("make() { return 7; }\nmake | tee /dev/null", 7),
        ("false\ntrue", 1),
        ("false; true", 1),
        ("false || true", 0),
        ("if false; then :; fi\n! false", 0),
        ("true | cat\ntrue", 0),
    ],
)
def test_a_command_fails_if_any_part_fails(command, status):
    """S004-19, tests: a failure in a pipe or before the last line fails the whole command."""
    assert subprocess.run([*BASH, command], check=False, stdout=subprocess.DEVNULL).returncode == status


def test_variables_of_modules():
    """S003-11: all variables that they set; search paths come after the container's own; no Python settings."""
    before = {"PATH": "/usr/bin:/bin", "KEPT": "1", "LD_LIBRARY_PATH": "/x"}
    after = {"PATH": "/a $b/bin:/usr/bin:/bin", "KEPT": "1", "LD_LIBRARY_PATH": "/a/lib:/x", "CC": "cc"}
    after["PYTHONPATH"] = "/p"
    searched = {
        "PREPEND_PATH": "/env/bin:/a \\$b/bin",
        "LD_LIBRARY_PATH": "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/a/lib",
    }
    assert host_variables(before, after, ["/env/bin"]) == {
        **{name: after[name] for name in ("PATH", "LD_LIBRARY_PATH", "CC")},
        **{f"{runtime}ENV_{name}": searched[name] for runtime in ("APPTAINER", "SINGULARITY") for name in searched},
    }
    assert host_variables(before, before, []) == {}
    # K-01: libraries of the host come first; no part of the path is empty
    found = host_variables(before, after, [], ["/host"])
    assert found["APPTAINERENV_LD_LIBRARY_PATH"] == "/host${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:/a/lib"


def test_only_what_is_new_is_imported(configuration, tmp_path):
    """E-03, F-10: packages of an earlier installation that stay as they are were imported then."""
    request = RecordedPip(tmp_path).asked_for(
        [stage_of("einops", "rich>=13", "tqdm")],
        installed(einops="0.8", rich="14.0", tqdm="4.67"),
        {"einops": "0.8", "rich": "13.9"},
    )
    assert request.names == ["rich", "tqdm"]
    assert request.lines == {"rich": "rich>=13", "tqdm": "tqdm"}


def test_no_index_also_holds_for_pip_itself(configuration, tmp_path):
    """S003-10: without an index pip isn't upgraded from one either; other options of pip install are not for it."""
    stage = stage_of("einops", options=["--no-index", "--pre"], find_links=["/wheels"], upgrade_pip=True)
    assert RecordedPip(tmp_path).index_options(stage) == ["--find-links", "/wheels", "--no-index"]


@pytest.mark.usefixtures("configuration")
def test_a_source_that_patches_can_not_apply_to(tmp_path):
    """An archive with two entries at the top is refused with the reason."""

    class Downloading(RecordedPip):
        def run(self, stage, arguments, extra):
            make_archive(Path(self.folder(stage)) / "source/odd-1.0.tar.gz", ".", {"a.py": "", "b.py": ""})

    stage = stage_of("odd", patches=["a.patch"])
    with pytest.raises(EasyBuildError, match=r"the source odd-1.0.tar.gz contains 2 files and directories at its top"):
        Downloading(tmp_path).patched_source(stage, ["a.patch"])


@pytest.mark.usefixtures("configuration")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# mine\n--prefer-binary\n\n# nothing else\neinops\n", "installing 1 requirement line with pip 26.3"),
        ("einops\nrich  # colors\n", "installing 2 requirement lines with pip 26.3"),
        ("-r more.txt\n", "installing requirements with pip 26.3"),
    ],
)
def test_the_number_of_requirements(tmp_path, monkeypatch, capsys, text, said):
    """Comments, options and blank lines are no requirements."""
    monkeypatch.setattr(Pip, "record_artifacts", lambda *_: None)
    monkeypatch.setattr(InstalledPackages, "from_output", lambda _: None)
    RecordedPip(tmp_path).install_requirements(stage_of(text), [], "26.3", None)
    assert said in capsys.readouterr().out


def item(name, **download):
    """Return what pip reports of a package that it has installed."""
    return {"metadata": {"name": name, "version": "1.0"}, "download_info": download}


def fill_wheelhouse(pip, stage, items, **more):
    """Fill a wheelhouse after pip has reported these items, with more packages; return the lines that pip gets."""
    report = Path(pip.folder(stage)) / "report.json"
    report.write_text(json.dumps({"install": items}))
    pip.fill_wheelhouse(stage, installed(**{item["metadata"]["name"]: "1.0" for item in items}, **more))
    return report.with_name("wheelhouse.txt").read_text().splitlines()


def test_wheels_of_locations_with_credentials(configuration, tmp_path, monkeypatch):
    """S003-10: pip's report leaves credentials out, so a wheel is asked for as the easyconfig does."""
    monkeypatch.setenv(FILL_VARIABLE, str(tmp_path / "wheels"))
    monkeypatch.setenv("TOKEN", "secret")
    line = "private @ https://${TOKEN}@example.org/private-1.0-py3-none-any.whl"
    pip, stage = RecordedPip(tmp_path), stage_of(line, "einops")
    archive = {"hashes": {"sha256": "0" * 64}}
    urls = {name: f"https://example.org/{name}-1.0-py3-none-any.whl" for name in ("private", "einops")}
    lines = fill_wheelhouse(pip, stage, [item(name, url=url, archive_info=archive) for name, url in urls.items()])
    assert lines == [f"einops @ https://example.org/einops-1.0-py3-none-any.whl#sha256={'0' * 64}", line]
    (command,) = pip.commands
    assert command[:2] == ["wheel", "--no-deps"] and "secret" not in " ".join(command)


def test_a_wheelhouse_gets_what_was_installed(configuration, tmp_path, monkeypatch):
    """S003-10: the wheels are of the commits and directories from which pip has installed; else of the versions."""
    monkeypatch.setenv(FILL_VARIABLE, str(tmp_path / "wheels"))
    commit = {"vcs": "git", "commit_id": "f00"}
    cloned = item("cloned", url="https://example.org/x.git", vcs_info=commit, subdirectory="s")
    items = [cloned, item("local", url="file:///a/x", dir_info={})]
    lines = fill_wheelhouse(RecordedPip(tmp_path), stage_of("cloned", "/a/x"), items, earlier="3.0")
    assert lines == ["cloned @ git+https://example.org/x.git@f00#subdirectory=s", "earlier==3.0", "local @ file:///a/x"]
