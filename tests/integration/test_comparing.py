"""Comparing containers, and moving an extension to a newer container."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ebsif_command import run_ebsif
from support import CHECKOUT

EBSIF = Path(sys.prefix) / "bin/ebsif"
OLDER, NEWER = "PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250410", "PyTorch/2.7.0"


def run(*arguments, status=0, cwd=CHECKOUT, **environment):
    """Run the command."""
    result = run_ebsif(arguments, cwd, {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **environment})
    assert result.returncode == status, result.stdout + result.stderr
    return result


def test_two_containers_of_the_catalog():
    """Changed components and new binds; status 1 if they differ; JSON."""
    lines = run("diff", "--site", "lumi", OLDER, NEWER, status=1).stdout.splitlines()
    assert "~ component vllm 0.7.2+rocm624 -> 0.8.5+rocm624" in lines
    assert not [line for line in lines if line.startswith(("~ bind", "+ bind"))]
    older = "PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240209"
    lines = run("diff", "--site", "lumi", older, NEWER, status=1).stdout.splitlines()
    assert "- bind /usr/lib64/libjansson.so.4 optional" in lines
    assert "+ wrapper torchrun yes" in lines
    assert run("diff", "--site", "lumi", NEWER, NEWER).stdout == "no differences\n"
    changes = json.loads(run("diff", "--site", "lumi", OLDER, NEWER, "--json", status=1).stdout)
    assert {"kind": "component", "name": "vllm", "before": "0.7.2+rocm624", "after": "0.8.5+rocm624"} in changes
    assert "is ambiguous; choose one of" in run("diff", "--site", "lumi", "PyTorch/2.6.0", NEWER, status=3).stderr


def test_two_installations(installed_once):
    """Packages in the lock file, and values in the easyconfig beside it."""
    squashed, writable = (installed_once.root(name) for name in (installed_once.SQUASHED, installed_once.WRITABLE))
    lines = run("diff", writable, squashed, status=1).stdout.splitlines()
    assert "+ package greeting 1.0" in lines
    assert not [line for line in lines if " image " in line]
    assert run("diff", squashed, squashed).stdout == "no differences\n"
    assert "not an installation" in run("diff", squashed, CHECKOUT, status=3).stderr


CATALOG = """\
name: Base
families:
  base: {homepage: https://example.org/, file: example.sif, init: conda-injected, conda_env: pytorch, venv: true}
containers:
  - {family: base, version: 1.0}
  - {family: base, version: 2.0}
"""


def test_moving_an_extension(tmp_path):
    """The same packages and stages on the newer container, under the same name. (For --check see tests/paths.)"""
    (tmp_path / "sites/local/containers").mkdir(parents=True)
    (tmp_path / "sites/local/containers/Base.yaml").write_text(CATALOG)
    (tmp_path / "requirements.txt").write_text("greeting\nflash-attn==2.8\n")
    common = ["--catalog", "sites", "--date", "20260101", "-o", "."]
    run("extend", "Base/1.0", "-r", "requirements.txt", "--name", "mine", *common, cwd=tmp_path)
    said = run("upgrade", "Base-1.0-mine-20260101.eb", "Base/2.0", *common, cwd=tmp_path).stdout
    assert said.startswith("Base-2.0-mine-20260101.eb\n")
    before, after = ((tmp_path / f"Base-{version}-mine-20260101.eb").read_text() for version in ("1.0", "2.0"))
    expected = re.sub(r"\bBase([ /])1\.0\b", r"Base\g<1>2.0", before.replace("'1.0", "'2.0"))
    assert after == expected.replace("`ebsif extend`", "`ebsif upgrade`")
    plain = tmp_path / "Plain-1.0.eb"
    plain.write_text(before.replace("-mine-20260101", ""))
    locked, odd = tmp_path / "Locked-mine-1.eb", tmp_path / "Odd-mine-1.eb"
    other = before.split("requirements = ")[0] + "moduleclass = 'ai'\nrequirements = "
    locked.write_text(f"{other}{{'lock': 'lock.json'}}\n")
    odd.write_text(f"{other}[{{'requirement': ['a']}}]\n")
    for file, expected in (
        (locked, "from its lock. To repeat that on Base/2.0:\n    ebsif extend Base/2.0 --from-lock"),
        (odd, "invalid stage: "),
        (plain, "does not end in a name and a date"),
        ("none.eb", "the file none.eb does not exist"),
    ):
        assert expected in run("upgrade", file, "Base/2.0", *common, cwd=tmp_path, status=3).stderr


EXAMPLE = "PyTorch/2.13.0-cpu-python-3.11-singularity-20261121"
LABELLED = "PyTorch/2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("ebsif ren", {"render"}),
        ("ebsif job --launcher t", {"torchrun"}),
        # E-14
        ("ebsif show PyTorch/2.13.0-cpu-python-3.11-singularity-2", {EXAMPLE}),
        ("ebsif diff a pyt", {EXAMPLE, LABELLED}),
        ("ebsif list --site lu", {"lumi"}),
        ("ebsif site li", {"libraries"}),
        ("ebsif site init a", {""}),
        ("ebsif list --site lumi --has flash", {"flash-attn"}),
    ],
)
def test_the_shell_completes(typed, expected):
    """Tab completion in bash: commands, options and their values; completion scripts for zsh and fish."""
    script = (
        'source <("$1" completion bash)\n'
        'COMP_LINE=$2 COMP_POINT=${#2} COMP_TYPE=9\nread -r -a COMP_WORDS <<<"$2"\n'
        '[[ $2 != *" " ]] || COMP_WORDS+=("")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n'
        'PATH=${1%/*}:$PATH\n_python_argcomplete ebsif "${COMP_WORDS[COMP_CWORD]}" ""\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    command = ["bash", "-c", script, "bash", EBSIF, typed]
    result = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert {line.strip() for line in result.stdout.splitlines()} - {"--help", "-h"} == expected
    for shell in ("zsh", "fish"):
        assert "ebsif" in run("completion", shell).stdout
