"""scripts/separate-packages: the command ebsif of the module that eb installs."""

import subprocess
import sys

import pytest
from support import CHECKOUT, write_program

# As pip writes it, if the path of Python is too long for the first line.
BY_SHELL = """\
#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
"""


@pytest.mark.parametrize("interpreter", ["#!{python}\n", BY_SHELL])
def test_the_command(tmp_path, interpreter):
    """W-07: it runs the Python that the wheels are for, and finds what no other program sees."""
    found = tmp_path / "packages"
    program = "import yaml, sys\ndef main():\n    print(sys.executable, yaml.__file__)\n"
    for path, text in (
        ("ebsif/__init__.py", ""),
        ("ebsif/cli.py", program),
        ("yaml/__init__.py", ""),
        ("easybuild/__init__.py", ""),
    ):
        (found / path).parent.mkdir(parents=True, exist_ok=True)
        (found / path).write_text(text)
    command = write_program(
        found / "bin/ebsif", interpreter.format(python=sys.executable) + "# -*- coding: utf-8 -*-\nimport sys\n"
    )
    (command.parent / "other").touch()
    subprocess.run([sys.executable, CHECKOUT / "scripts/separate-packages", tmp_path], check=True)
    command = tmp_path / "bin/ebsif"
    said = subprocess.run([command], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said == f"{sys.executable} {tmp_path}/packages/yaml/__init__.py\n"
    assert [path.name for path in (tmp_path / "python").iterdir()] == ["easybuild"]
    assert {path.name for path in found.iterdir()} == {"ebsif", "yaml"}
    assert [path.name for path in command.parent.iterdir()] == ["ebsif"]
