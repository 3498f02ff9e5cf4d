"""The profile that `ebsif site init` starts."""

import pytest
import yaml
from ebsif.catalog import newsite, site
from ebsif.errors import EbsifError
from support import write_program

# What sinfo prints: nodes of two kinds in a partition, GPUs with and without a type, other resources, the default last.
SINFO = """\
gpu|128|gpu:mi250:8(S:0-3),nvme:1
gpu|64+|gpu:mi250:4
mixed|64|gpu:a100:2,gpu:h100:2
small*|256|(null)
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A directory that is all of PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder, name, text):
    """Write a program that prints a text."""
    write_program(folder / name, f"#!/bin/sh\necho '{text}'\n")


def test_the_partitions_of_this_machine(programs, tmp_path):
    """Scheduler and partitions are those of the machine; one rank for each GPU, else one for each node."""
    program(programs, "sbatch", "")
    program(programs, "sinfo", SINFO.rstrip())
    path = newsite.write("mine", tmp_path)
    # which kind of GPU they have is to be reviewed; a machine without GPUs would have no such partitions
    assert "gpu: none  #" not in path.read_text()
    scheduler = site.read("mine", [tmp_path]).scheduler
    assert (scheduler.kind, scheduler.default_partition) == ("slurm", "small")
    found = {name: (one.tasks, one.cpus_per_task, one.gpus) for name, one in scheduler.partitions.items()}
    assert found == {"small": (1, 256, 0), "gpu": (8, 16, 8), "mixed": (4, 16, 4)}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("true*|4|(null)\n{x}|4|\nnull|4|", ["true", "{x}", "null"]),
        ("Welcome to the machine\n\n\nsmall|64|", ["small"]),
        ("empty*|n/a|(null)\nodd\nhalf|1", ["standard"]),
        ("big*|1K|gpu:8\nsmall|64+|", ["small"]),
    ],
)
def test_what_sinfo_prints_is_not_trusted(programs, tmp_path, said, expected):
    """Banners, partitions without nodes, other units and names with a meaning in YAML are understood."""
    program(programs, "sbatch", "")
    program(programs, "sinfo", said)
    for name in ("mine", "true", "1e3"):
        newsite.write(name, tmp_path)
        profile = site.read(name, [tmp_path])
        assert (profile.name, [*profile.scheduler.partitions]) == (name, expected)
        assert profile.scheduler.default_partition == expected[0]


@pytest.mark.parametrize(("name", "kind"), [("qsub", "pbs"), ("flux", "flux"), ("other", "slurm")])
def test_other_schedulers(programs, name, kind, tmp_path):
    """The scheduler whose command is here; without one, a partition to be changed."""
    program(programs, name, "")
    path = newsite.write("mine", tmp_path)
    profile = site.read("mine", [tmp_path])
    assert profile.scheduler.kind == kind
    assert [*profile.scheduler.partitions] == [profile.scheduler.default_partition]
    assert ("no scheduler was found here" in path.read_text()) == (name == "other")


def test_each_line_is_explained(programs, tmp_path):
    """The way of an EasyBuild person: about fifteen settings, each with a comment."""
    lines = newsite.write("mine", tmp_path).read_text().splitlines()
    settings = [line for line in lines if not line.startswith("#")]
    assert 12 <= len([line for line in settings if not line.rstrip().endswith(":")]) <= 18
    unexplained = [line for line in settings if "  # " not in line]
    # what a comment on the line above is about
    assert [line.split(":")[0].strip() for line in unexplained] == ["images", "binds", "scheduler", "standard"]
    assert yaml.safe_load("\n".join(lines))["name"] == "mine"


@pytest.mark.parametrize("name", ["../up", "Mine", "", "a b"])
def test_impossible_names(name, tmp_path):
    """The name is that of a directory in the catalog."""
    with pytest.raises(EbsifError, match="can't be the name of a site: use .*, beginning with a letter or digit"):
        newsite.write(name, tmp_path / "sites")
    assert list(tmp_path.iterdir()) == []


def test_a_site_of_the_project(programs, tmp_path, ebsif):
    """Nobody hides one of the project's sites without noticing."""
    warning = (
        "ebsif: the project has a site lumi, too, which this profile hides: choose another name, or add "
        "`extends: lumi` to build on it\n"
    )
    for name, said in (("lumi", warning), ("mine", "")):
        assert ebsif("site", "init", name, "--catalog", str(tmp_path)).err.partition("lines with")[0] == said
    # which has nothing yet, although nothing was asked for
    shown = ebsif("list", "--site", "mine", "--catalog", str(tmp_path)).err
    assert shown == "ebsif: there are no containers yet: add an image with `ebsif add`\n"


def test_an_existing_profile_stays(programs, tmp_path):
    """Nothing is lost: a second time is an error."""
    path = newsite.write("mine", tmp_path)
    path.write_text("name: mine\ndescription: reviewed\n")
    with pytest.raises(EbsifError, match="is there already"):
        newsite.write("mine", tmp_path)
    assert "reviewed" in path.read_text()


def test_the_file_systems_of_this_machine(programs, tmp_path, monkeypatch):
    """Mounted parallel and network file systems are binds, but no home directories, nor what is in others."""
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(newsite, "DIRECTORIES", (str(tmp_path),))
    monkeypatch.setattr(newsite, "MOUNTS", mounts)
    monkeypatch.setenv("HOME", "/users/person")
    mounts.write_text(
        "server:/a /pfs/one lustre rw 0 0\nserver:/b /pfs/one/more nfs rw 0 0\n"
        "server:/home /users nfs4 rw 0 0\n/dev/sda1 /local ext4 rw 0 0\n"
        "server:/c /odd\\040name lustre rw 0 0\nserver:/d /gpfs9 gpfs rw 0 0\n"
        "server:/e /opt nfs rw 0 0\nserver:/f /usr/local nfs rw 0 0\nserver:/g /home/other nfs rw 0 0\n"
    )
    newsite.write("mine", tmp_path / "catalog")
    found = site.read("mine", [tmp_path / "catalog"]).binds.optional
    assert found == sorted(["/gpfs9", "/pfs/one", str(tmp_path)])
    mounts.unlink()
    monkeypatch.setattr(newsite, "home", lambda: newsite.Path("/dev/null"))
    assert newsite.file_systems() == [str(tmp_path)]
