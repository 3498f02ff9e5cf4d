"""How eb is run, and the errors for a wrong configuration of EasyBuild."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from ebsif import modulestool, processes
from ebsif.eb import framework, running
from support import attempt, printed, write_program


@pytest.mark.parametrize("words", ["check --site local", "import a.eb"])
@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"EASYBUILD_NONSENSE": "1"}, "EASYBUILD_NONSENSE"),
        ({"EASYBUILD_CONFIGFILES": "config.cfg"}, "no section headers. file: 'config.cfg', line: 1 'not ini"),
    ],
)
def test_settings_that_easybuild_refuses(tmp_path, words, setting, named):
    """An unknown variable of EasyBuild and a malformed file are named, without EasyBuild's traceback."""
    (tmp_path / "a.eb").write_text("name = 'A'\n")
    (tmp_path / "config.cfg").write_text("not ini\n")
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **setting}
    result = attempt([Path(sys.prefix) / "bin/ebsif", *words.split()], cwd=tmp_path, env=variables)
    # for `check` it is a finding
    status, begin, said = (1, "error", result.stdout) if "check" in words else (3, "ebsif", result.stderr)
    assert result.returncode == status and "Traceback" not in result.stderr
    assert re.search(f"^{begin}: EasyBuild refuses its configuration: ", said, re.MULTILINE) and named in said


def test_a_signal_while_easybuild_is_configured(monkeypatch):
    """I-04: the process ends as by the signal, and nobody looks for a mistake in the configuration."""
    framework.session.cache_clear()
    monkeypatch.setattr(framework, "is_configured", lambda: False)
    monkeypatch.setattr(framework, "parsed_options", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with processes.interruptible(), pytest.raises(SystemExit) as ended:
        framework.session()
    assert ended.value.code == 128 + signal.SIGTERM


def test_the_scripts_for_the_modules_tool(tmp_path):
    """bash evaluates the tool's output; arguments are passed unchanged; failures are detected."""
    tool = write_program(
        tmp_path / "a tool",
        '#!/bin/sh\nshift\n[ "$2" != none ] || exit 1\necho "export DONE=\'$*\' SIF=/a.sif; unset GONE; echo said"\n',
    )
    environment = {"LMOD_CMD": str(tool), "PATH": "/usr/bin:/bin", "GONE": "1", "APPTAINERENV_X": "1"}
    result = running.unloaded(["A/1", "b c"], environment)
    assert (result["DONE"], "GONE" in result) == ("unload A/1 b c", False)
    assert running.unloaded(["none"], environment) == environment
    for name, status in (("A/1", 0), ("none", 1)):
        assert modulestool.run("is-available.bash", name, environment=environment).returncode == status
    before, _, after = modulestool.run("environments.bash", "A/1", environment=environment).stdout.partition("\0\0")
    before, after = modulestool.entries(before), modulestool.entries(after)
    assert not {"SIF", "APPTAINERENV_X"} & set(before)
    assert (after["DONE"], after["SIF"]) == ("load A/1", "/a.sif")


def test_the_command_that_loads_a_module(tmp_path, monkeypatch):
    """E-13: pasted into a shell, it uses the directory of the module first, unless new shells search it anyway."""
    place = tmp_path / "my modules/all"
    place.mkdir(parents=True)
    (tmp_path / "link").symlink_to(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MODULEPATH", "/somewhere/else:")
    script = f"module() {{ printf '%s\\n' \"$@\"; }}\n{framework.load_command(place, 'Tool/1.0')}"
    said = printed(["bash", "-c", script])
    assert said.splitlines() == ["use", str(place), "load", "Tool/1.0"]
    assert framework.load_command(None, "Tool/1.0") == "module load Tool/1.0"
    # of a site
    monkeypatch.setenv("MODULEPATH", f"/somewhere/else:{tmp_path}/link")
    monkeypatch.setattr(os, "getuid", lambda: place.stat().st_uid + 1)
    assert framework.load_command(place, "Tool/1.0") == "module load Tool/1.0"


def test_directories_that_a_new_shell_may_not_search(tmp_path, monkeypatch):
    """F-06, N-01: job scripts name a person's own directory, even if this shell searches it; messages don't."""
    monkeypatch.setenv("MODULEPATH", f"/site:{tmp_path}")
    assert framework.is_own(tmp_path) and framework.load_command(tmp_path, "T/1") == "module load T/1"
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert not framework.is_own(tmp_path)
    monkeypatch.setenv("MODULEPATH", "/site")
    assert framework.is_own(tmp_path)
