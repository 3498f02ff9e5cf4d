"""The command line: help, wrong use, doctor."""

import subprocess
import sys
from pathlib import Path

import pytest

EBSIF = Path(sys.prefix) / "bin" / "ebsif"


def run(*arguments, **options):
    """Run the installed command."""
    return subprocess.run([EBSIF, *arguments], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"], ["lock", "diff", "--help"]])
def test_help_has_no_traceback_and_shows_the_use(arguments):
    """Every command explains itself."""
    result = run(*arguments)
    assert result.returncode == 0
    assert result.stdout.startswith("usage: ebsif")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["lock"], ["lock", "diff", "one"]])
def test_wrong_use_is_status_2(arguments):
    """Wrong use: what is wrong on standard error, status 2."""
    result = run(*arguments)
    assert result.returncode == 2
    assert "usage:" in result.stderr


def test_doctor_names_what_is_missing(tmp_path):
    """A machine with nothing: each part with what to do, status 1."""
    result = run("doctor", env={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert result.returncode == 1
    missing = [line for line in result.stdout.splitlines() if line.startswith("MISSING")]
    assert len(missing) == 5
    assert any("apptainer or singularity not on PATH" in line for line in missing)


def test_doctor_says_when_a_program_does_not_run(tmp_path):
    """A program that is there and does not work is not ok."""
    (tmp_path / "apptainer").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "apptainer").chmod(0o755)
    result = run("doctor", env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)})
    assert "does not run (exit status 127)" in result.stdout
