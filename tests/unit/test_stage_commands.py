"""How commands of stages are run."""

import subprocess

import pytest
from easybuild.easyblocks.generic.container.pip import BASH
from easybuild.easyblocks.generic.container.runtime import host_variables


@pytest.mark.parametrize(
    ("command", "status"),
    [("make() { return 7; }\nmake | tee /dev/null", 7), ("false\ntrue", 1), ("false; true", 1), ("false || true", 0),
     ("if false; then :; fi\n! false", 0), ("true | cat\ntrue", 0)],
)
def test_a_command_fails_if_any_part_fails(command, status):
    """S004-19, tests: a failure in a pipe or before the last line fails the whole command."""
    assert subprocess.run([*BASH, command], check=False, stdout=subprocess.DEVNULL).returncode == status


def test_variables_of_modules():
    """S003-11: all variables that they set; search paths come after the container's own; no Python settings."""
    before = {"PATH": "/usr/bin:/bin", "KEPT": "1", "LD_LIBRARY_PATH": "/x"}
    after = {"PATH": "/a $b/bin:/usr/bin:/bin", "KEPT": "1", "LD_LIBRARY_PATH": "/a/lib:/x", "CC": "cc",
             "PYTHONPATH": "/p"}
    assert host_variables(before, after, ["/env/bin"]) == {
        "PATH": after["PATH"], "LD_LIBRARY_PATH": "/a/lib:/x", "CC": "cc",
        "APPTAINERENV_PREPEND_PATH": "/env/bin:/a \\$b/bin", "SINGULARITYENV_PREPEND_PATH": "/env/bin:/a \\$b/bin",
        "APPTAINERENV_LD_LIBRARY_PATH": "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/a/lib",
        "SINGULARITYENV_LD_LIBRARY_PATH": "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/a/lib",
    }
    assert host_variables(before, before, []) == {}
