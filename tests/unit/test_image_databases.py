"""Databases of packages in an image, read without its Python."""

import ast
import json
import os
import shutil

import pytest
from easybuild.easyblocks.generic.container.imageprograms import sh_command
from easybuild.easyblocks.generic.container.masks import Masks
from easybuild.easyblocks.generic.container.probe import read, read_inventory, read_labels
from easybuild.easyblocks.generic.container.record.lockfile import Package, Record
from easybuild.easyblocks.generic.container.written import BLOCKS, UnfitError, write_seen
from support import attempt, installed_packages, write_program

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u13
Description: shared libraries
 Version: this is a continuation

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.36-9+deb12u13

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: never
Status: purge ok not-installed
Architecture: amd64
Version: 1

Package: tzdata
Status: hold ok installed
Architecture: all
Version: 2025b-0
"""
FILES = {
    "etc/os-release": 'NAME="Some Linux"\nID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status": STATUS,
    "var/lib/dpkg/status.d/base": "Package: base-files\nVersion: 12.4\nArchitecture: amd64\n",
    "var/lib/dpkg/status.d/base.md5sums": "Package: wrong\nVersion: 1\n",
    "lib/apk/db/installed": "C:Q1x=\nP:musl\nV:1.2.4-r4\nA:x86_64\n\nP:busybox\nV:1.36.1-r20\n",
    "opt/conda/conda-meta/python-3.11.9-h955ad1f_0.json": "{}",
    "opt/conda/conda-meta/history": "",
    "opt/conda/envs/one/conda-meta/_libgcc_mutex-0.1-conda_forge.json": "{}",
    ".singularity.d/labels.json": '{"org.opencontainers.image.source": "https://example.org/x", "n": 1}',
}


@pytest.fixture
def look(tmp_path):
    """A function that runs the script for images with these files; returns the directory that it fills, its output."""

    def run(files, path=os.environ["PATH"], *command, program="print({})"):
        root, folder = tmp_path / "root", tmp_path / "databases"
        folder.mkdir()
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        words = sh_command("probe-image.sh", BLOCKS, str(folder), str(root), "", *command)
        done = attempt(["/bin/sh", *words[1:]], input=program, env={"PATH": path}, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return str(folder), done.stdout

    return run


def test_databases_of_packages(look):
    """I-07: dpkg's packages that are installed, with foreign architectures, and those of apk and Conda."""
    folder, _ = look(FILES)
    found = read_inventory(folder)
    assert found["system"] == {"distribution": "debian", "release": "12"}
    assert found["system_packages"] == {
        "deb": ["base-files==12.4", "libc6:i386==2.36-9+deb12u13", "libc6==2.36-9+deb12u13", "tzdata==2025b-0"],
        "apk": ["busybox==1.36.1-r20", "musl==1.2.4-r4"],
    }
    assert {prefix.split("/root/")[1]: lines for prefix, lines in found["conda_packages"].items()} == {
        "opt/conda": ["python==3.11.9"],
        "opt/conda/envs/one": ["_libgcc_mutex==0.1"],
    }
    assert read_labels(folder) == {"org.opencontainers.image.source": "https://example.org/x"}


def test_rpm(look, tmp_path):
    """I-07: rpm lists its packages itself, while Python lists its own; keys are no packages."""
    pipe, program = tmp_path / "pipe", tmp_path / "bin" / "rpm"
    os.mkfifo(pipe)
    program.parent.mkdir()
    # each waits until the other has opened the pipe
    write_program(program, f"#!/bin/sh\n: <'{pipe}'\nprintf 'glibc==2.38-1\\nperl==4:5.26-1\\ngpg-pubkey==1-2\\n'\n")
    path, python = f"{program.parent}:{os.environ['PATH']}", f"open({str(pipe)!r}, 'w')\nprint({{}})\n"
    folder, said = look({"var/lib/rpm/rpmdb.sqlite": ""}, path, program=python)
    assert said.endswith("{}\n")
    assert read_inventory(folder)["system_packages"] == {"rpm": ["glibc==2.38-1", "perl==4:5.26-1"]}


def test_an_image_without_programs(look):
    """I-07: nothing but a shell: the image has no records, and that is no error."""
    folder, said = look(FILES, "/nowhere")
    assert said == "bash\t\npython3\t\n"
    assert read_inventory(folder)["system_packages"] == {}


def test_a_command_in_the_same_container(look, tmp_path):
    """The output and status of a command that runs meanwhile are known, and not mixed in."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # at the same time: each waits until the other has opened the pipe
    command = ["sh", "-c", 'echo "$1"; echo no >&2; : <"$2"; exit 3', "sh", "a  b", str(pipe)]
    program = f"import sys\nopen({str(pipe)!r}, 'w')\nprint({{}}, sys.argv)\n"
    folder, said = look({}, os.environ["PATH"], *command, program=program)
    # all modules that a venv needs are tried
    assert said.endswith("{} ['-']\n")
    assert [read(folder, name) for name in ("output", "errors", "status")] == ["a  b\n", "no\n", "3\n"]


CYCLONEDX = [
    {"name": "libc6", "version": "2.39", "purl": "pkg:deb/ubuntu/libc6@2.39"},
    {"name": "app", "version": "1"},
    {"name": "torch", "version": "2.10", "purl": "pkg:pypi/torch@2.10"},
    {"name": "x", "purl": "pkg:pypi/x"},
]
IS_TORCH = [{"referenceLocator": "cpe:2.3:a"}, {"referenceLocator": "pkg:pypi/torch@2.10"}]
SPDX = [
    {"name": "image", "versionInfo": "1"},
    {"name": "torch", "versionInfo": "2.10", "externalRefs": IS_TORCH},
    {"name": "libc6", "versionInfo": "2.39", "externalRefs": [{"referenceLocator": "pkg:deb/x/libc6@2.39"}]},
]


@pytest.mark.parametrize(
    "content",
    [
        {"apt": [{"name": "libc6", "version": "2.39"}], "pip": [{"name": "torch", "version": "2.10"}]},
        {"bomFormat": "CycloneDX", "components": CYCLONEDX},
        {"spdxVersion": "SPDX-2.3", "packages": SPDX},
    ],
)
def test_the_image_s_own_list(look, content):
    """I-07: /.sbom.json, in the AI Factory's format, CycloneDX and SPDX."""
    folder, _ = look({".sbom.json": json.dumps(content)})
    assert read_inventory(folder)["image_list"] == {"deb": ["libc6==2.39"], "pypi": ["torch==2.10"]}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[1]", '{"apt": 1}', '{"packages": [{"externalRefs": 3}]}', '"x"', "[" * 100_000]
)
def test_lists_in_other_formats(look, text):
    """I-07, R-11: what isn't understood is left out."""
    folder, _ = look({".sbom.json": text, ".singularity.d/labels.json": text})
    assert read_inventory(folder)["image_list"] == {} == read_labels(folder)


def test_packages_are_named_once():
    """I-07: what both a database and /.sbom.json list is one package."""
    listed = {"pypi": ["a==1", "c==3"], "deb": ["b==2"]}
    python = {"image_packages": ["a==1"], "venv_packages": ["a==1"]}
    record = Record(system_packages={"deb": ["b==2"]}, image_list=listed, **python)
    assert record.packages == [
        Package("pypi", "image", "a", "1"),
        Package("pypi", "user-software", "a", "1"),
        Package("deb", "image", "b", "2"),
        Package("pypi", "image", "c", "3"),
    ]


def test_packages_of_an_old_python(tmp_path):
    """I-07: a Python without importlib.metadata lists its packages by the names of their files."""
    for name in ("A_b-1.dist-info", "b.egg-info", "c-3.1-py3.6.egg-info", "~d-1.dist-info"):
        (tmp_path / name).mkdir()
    without = "import sys; sys.modules.update({'importlib.metadata': None, 'venv': None})\n"
    found = ast.literal_eval(installed_packages(tmp_path, without, ["-S"]))
    listed = [one[:2] for one in found["packages"] if one[2] == str(tmp_path)]
    assert listed == [["A_b", "1"], ["c", "3.1"]]
    assert {"importlib.metadata", "venv"} <= set(found["missing"])


def test_files_that_a_hostile_image_has_replaced(tmp_path):
    """P-03: a link to a file of the installing account isn't followed on the host, and nobody waits for a pipe."""
    (tmp_path / "private").write_text('{"ID": "TOPSECRET"}\nID=TOPSECRET\n')
    folder = tmp_path / "work/databases"
    folder.mkdir(parents=True)
    (folder / "dpkg").symlink_to(tmp_path / "private")
    for _ in range(2):
        with pytest.raises(UnfitError, match="A program in the container has put something else") as error:
            read(str(folder), "dpkg")
        assert "TOPSECRET" not in str(error.value)
        (folder / "dpkg").unlink()
        os.mkfifo(folder / "dpkg")
    # the whole folder may be a link, too
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path)
    with pytest.raises(UnfitError, match="something else"):
        read(str(folder), "private")


def test_files_that_are_written_where_a_package_has_put_links(tmp_path):
    """P-02: what eb writes for pip replaces a link, and isn't written into a directory to which one leads."""
    private = tmp_path / "private"
    private.mkdir()
    (private / "list.py").write_text("mine")
    (tmp_path / "work/stages").mkdir(parents=True)
    (tmp_path / "work/stages/one").symlink_to(private)
    with pytest.raises(UnfitError, match="something else"):
        write_seen(str(tmp_path / "work/stages/one/list.py"), "text", str(tmp_path / "work"))
    (tmp_path / "work/stages/list.py").symlink_to(private / "list.py")
    write_seen(str(tmp_path / "work/stages/list.py"), "text", str(tmp_path / "work"))
    assert (tmp_path / "work/stages/list.py").read_text() == "text"
    assert (private / "list.py").read_text() == "mine"


def test_masks_that_a_package_has_replaced(tmp_path):
    """P-03: no file of the installing account becomes one of the installation, which everybody can read."""
    (tmp_path / "private").write_text("mine")
    (tmp_path / "work").mkdir()
    (tmp_path / "root/share/ebsif").mkdir(parents=True)
    (tmp_path / "work/masks.squashfs").symlink_to(tmp_path / "private")
    with pytest.raises(UnfitError, match="something else"):
        Masks(["/opt/x"]).install(str(tmp_path / "work"), str(tmp_path / "root"))
    assert list((tmp_path / "root/share/ebsif").iterdir()) == []
