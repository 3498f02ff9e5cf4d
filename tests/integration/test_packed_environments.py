"""Virtual environments in SquashFS files."""

import subprocess

import pytest
from ebsif.packages import requirements, venv


def test_an_environment_in_a_squashfs_file(tmp_path):
    """An environment in a SquashFS file is read like a directory."""
    for name in ("optuna-4.5.0", "broken-1.0"):
        (tmp_path / f"env/lib/python3.12/site-packages/{name}.dist-info").mkdir(parents=True)
    info = tmp_path / "env/lib/python3.12/site-packages/optuna-4.5.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: optuna\nVersion: 4.5.0\n")
    (info / "RECORD").write_text("optuna.py,sha256=x,1\n")
    packed = tmp_path / "env.sqsh"
    command = ["mksquashfs", tmp_path / "env", packed, "-processors", "1", "-no-xattrs", "-quiet", "-no-progress"]
    subprocess.run(command, check=True)
    wanted = venv.read(packed)
    assert wanted.lines == ["optuna==4.5.0"]
    assert len(wanted.impossible) == 1
    assert wanted == venv.read(tmp_path / "env")


def test_other_files(tmp_path):
    """The error names the file."""
    (tmp_path / "text").write_text("no SquashFS file\n")
    with pytest.raises(requirements.RequirementsError, match="text can't be read as a SquashFS file: "):
        venv.read(tmp_path / "text")
