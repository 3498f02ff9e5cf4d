"""Inspecting real images and adding them to the catalog."""

import hashlib
import json
import multiprocessing
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from ebsif import files
from ebsif.catalog import reading, site, writing, yamlfile
from ebsif.catalog.guess import adding, template
from ebsif.catalog.proposal import Proposal
from ebsif.images import inspection
from ebsif_command import run_ebsif
from parts import copy_from_image
from support import printed

LUMI_NAME = "lumi-pytorch-rocm-6.4.4-python-3.11-pytorch-v2.8.0-dockerhash-0123456789ab.sif"


@pytest.fixture
def ebsif(tmp_path):
    """Return a function that runs the command in a directory of its own."""

    def run(*arguments, status=0):
        result = run_ebsif(arguments, cwd=tmp_path)
        assert result.returncode == status, result.stdout + result.stderr
        return result

    return run


def named_images(tmp_path, source):
    """Return a function that gives an image another name."""

    def named(name, folder="images"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        return shutil.copyfile(source, path)

    return named


@pytest.fixture
def image(tmp_path, base_image):
    """Return a function that gives the example image another name."""
    return named_images(tmp_path, base_image)


@pytest.fixture
def tiny_image(tmp_path, small_image):
    """Return a function that gives an image with only busybox another name."""
    return named_images(tmp_path, small_image("busybox"))


def test_inspecting_an_image(ebsif, base_image):
    """Contents and activation of Python, as text and as JSON."""
    text = ebsif("show", base_image.parent / ".." / base_image.parent.name / base_image.name).stdout
    assert "is a link" not in text
    assert re.search(r"^python +3\.11\.\d+ in /opt/miniconda3/envs/pytorch$", text, re.MULTILINE)
    assert re.search(r"^activation +conda-injected$", text, re.MULTILINE)
    data = json.loads(ebsif("show", base_image, "--json").stdout)
    assert data["size"] == base_image.stat().st_size
    digest = printed(["sha256sum", base_image]).split()[0]
    assert data["sha256"] == digest
    assert "numpy" in data["python"]["packages"]
    assert (data["conda_root"], data["conda_env"]) == ("/opt/miniconda3", "pytorch")
    assert data["system"].startswith("Debian")


def test_the_packages_that_an_image_lists(ebsif, small_image):
    """R-11: what /.sbom.json lists is shown, and in the JSON."""
    image = small_image("laif")
    pattern = r"^bill +/\.sbom\.json lists packages: \d+ deb, \d+ pypi$"
    assert re.search(pattern, ebsif("show", image, "--no-checksum").stdout, re.MULTILINE)
    listed = json.loads(ebsif("show", image, "--no-checksum", "--json").stdout)["listed"]
    assert listed["pypi"]["torch"] == "2.10.0+rocm7.0"


def test_files_that_are_no_images(ebsif, tmp_path, base_image):
    """A missing file, text, half an image: the error names it."""
    (tmp_path / "text.sif").write_text("text")
    with base_image.open("rb") as whole:
        (tmp_path / "half.sif").write_bytes(whole.read(1_000_000))
    assert "the file nothing.sif does not exist" in ebsif("show", "nothing.sif", status=3).stderr
    for said in ("text.sif is not a SIF file\n", "half.sif is an incomplete SIF file: copy or fetch it again\n"):
        assert said in ebsif("show", said.split()[0], status=3).stderr


def test_guesses_are_marked(ebsif, image, tmp_path):
    """The name has no date, so the date is marked for review; a dry run writes nothing."""
    path = image(LUMI_NAME)
    text = ebsif("add", path, "--site", "lumi", "--catalog", ".", "--dry-run").stdout
    # shown as a difference: the project's file is not repeated
    lines = [line[1:] for line in text.partition("+++ easyconfigs")[0].splitlines() if line.startswith("+")][1:]
    assert lines[1:4] == ["name: PyTorch", "extends: true", "containers:"]
    (record,) = yaml.load("\n".join(lines), yamlfile.YamlLoader)["containers"]
    assert len(record["sha256"]) == 64
    assert record["version"] == "2.8.0"
    assert (record["hash"], record["components"], record["python"]) == ("0123456789ab", {"rocm": "6.4.4"}, "3.11")
    assert record["family"] == "injected-jansson"
    assert re.search(r"^\+    date: \d{8}  # review: the day the file was written$", text, re.MULTILINE)
    assert not (tmp_path / "lumi").exists()
    assert len(lines) <= 13


def test_a_link_to_an_image_that_may_move(ebsif, image, tmp_path):
    """S001-02, S002-17, R-12: refused by `add` and `render` unless confirmed; the message shows the link's target."""
    image("pytorch-2.14.0-cpu-python-3.11.sif")
    directories = f"[{{path: {tmp_path}/moving, stability: moving}}]"
    profile = f"name: mine\ndescription: x\nimages:\n  directories: {directories}\n"
    (tmp_path / "mine/containers").mkdir(parents=True)
    (tmp_path / "mine/site.yaml").write_text(profile)
    (tmp_path / "moving").mkdir()
    (tmp_path / "moving/latest.sif").symlink_to("../images/pytorch-2.14.0-cpu-python-3.11.sif")
    arguments = ("add", "moving/latest.sif", "--site", "mine", "--catalog", ".", "--name", "PyTorch")
    said = ebsif(*arguments, status=3).stderr
    assert "moving/latest.sif is in a directory whose links move" in said
    assert f"add its present target, {tmp_path}/images/pytorch-2.14.0-cpu-python-3.11.sif, " in said
    assert not (tmp_path / "mine/containers/PyTorch.yaml").exists()
    #
    target = tmp_path / "images/pytorch-2.14.0-cpu-python-3.11.sif"
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    expected = f"moving/latest.sif is a link: the record is for {target} (SHA256 {digest}); the link can change"
    assert expected in ebsif(*arguments, "--moving").stderr
    pattern = rf"is a link to +{target}, which can change\n"
    assert re.search(pattern, ebsif("show", "moving/latest.sif", "--no-checksum").stdout)
    path = tmp_path / "mine/containers/PyTorch.yaml"
    assert "file: pytorch-{version}-cpu-python-3.11.sif" in path.read_text()
    # rendered because the record allows it, and only then
    (tmp_path / "moving/pytorch-2.14.0-cpu-python-3.11.sif").symlink_to("../images/pytorch-2.14.0-cpu-python-3.11.sif")
    render = ("render", "--site", "mine", "--catalog", ".")
    assert "1 up to date" in ebsif(*render).stderr
    assert path.read_text().count("    moving: true\n") == 1
    # I-03: the image is looked into
    check = ("check", "--quick", "--deep", "--site", "mine", "--catalog", ".")
    assert "error" not in ebsif(*check).stdout
    text = path.read_text()
    path.write_text(text.replace("moving: true\n", "moving: true\n    wrappers: [python, nope]\n    python: 3.9\n"))
    said = ebsif(*check, status=1).stdout
    assert "sif has Python 3.11." in said
    assert ", not 3.9: correct the record" in said
    assert "sif has no program nope, which 'wrappers' names: " in said
    path.write_text(text)
    path.write_text(path.read_text().replace("    moving: true\n", ""))
    result = ebsif(*render, status=1)
    assert "is not rendered: the image is only in a directory whose links move" in result.stderr
    assert "no longer in the catalog" not in result.stderr


def test_the_first_image_of_its_kind(ebsif, tiny_image, tmp_path):
    """It needs a name, at least of the file; unknown values are marked; the project's catalog is unchanged."""
    path = tiny_image("thing-1.2.3.sif")
    assert "start one with --name NAME" in ebsif("add", tiny_image("1.2.3.sif"), "--catalog", ".", status=3).stderr
    ebsif("add", path, "--name", "Thing", "--catalog", ".")
    text = (tmp_path / "local/containers/Thing.yaml").read_text()
    assert "    version: 1.2.3  # review: from the file name\n" in text
    for line in ("homepage: https://apptainer.org/", "description: Thing in a container.", "moduleclass: ai"):
        assert f"    {line}  # review: a " in text
    checked = ebsif("check", "--site", "local", "--catalog", ".", "--quick", status=1)
    assert "install" not in checked.stderr
    # each is reported once
    assert checked.stdout.count("not reviewed yet: ") == 4 and checked.stdout.count("homepage") == 1
    # a second version joins the same family
    other = tiny_image("thing-1.3.0.sif")
    said = ebsif("add", other, "--catalog", ".").stderr
    assert f"{other} is a copy of thing-1.2.3.sif, the image of Thing/1.2.3 (" in said
    (_, second) = reading.read_file(tmp_path / "local/containers/Thing.yaml", site.read("local"))
    assert second.version == "1.3.0"
    # a file with another layout is left alone
    (tmp_path / "local/containers/Thing.yaml").write_text("containers: []\nname: Thing\nfamilies: {}\n")
    third = tiny_image("thing-1.4.0.sif")
    assert "add this record by hand" in ebsif("add", third, "--name", "Thing", "--catalog", ".", status=3).stderr


def test_another_name_for_known_software(ebsif, tiny_image, tmp_path):
    """The record has the file name; an invalid file is rejected before anything is written."""
    ebsif("add", tiny_image("tool-3.2.1.sif"), "--name", "Tool", "--catalog", ".")
    path = tmp_path / "local/containers/Tool.yaml"
    before = path.read_text()
    for name in ("tool-{name}.sif", "tool-{version}-2.0.sif", "tool\n4.0.sif"):
        said = ebsif("add", tiny_image(name), "--name", "Tool", "--catalog", ".", status=3).stderr
        assert "Traceback" not in said
    assert path.read_text() == before
    ebsif("add", tiny_image("othername-4.0.sif"), "--name", "Tool", "--catalog", ".")
    first, second = reading.read_file(path, site.read("local"))
    assert (first.file_name, second.file_name) == ("tool-3.2.1.sif", "othername-4.0.sif")
    assert (second.version, second.family) == ("4.0", "tool")
    assert "# review: its other images are named differently" in path.read_text()


def add_records(path, numbers):
    """Add a record for each number; runs in a process of its own."""
    for number in numbers:
        values = {"family": "tool", "version": str(number), "file": f"tool-{number}.sif"}
        proposal = Proposal("Tool", "tool", values, new_family={"homepage": "https://example.org/"})
        writing.write([proposal], path)


def test_concurrent_adds(tmp_path):
    """Every record is there, the duplicate one once, and no other file is left in the directory."""
    path = tmp_path / "own/local/containers/Tool.yaml"
    workers = [
        multiprocessing.get_context("fork").Process(target=add_records, args=(path, range(start, start + 20, 2)))
        for start in (0, 1, 0, 1, 20, 21)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 6
    assert sorted(int(one.version) for one in reading.read_file(path, site.read("local"))) == list(range(40))
    assert sorted(one.name for one in path.parent.iterdir()) == [".ebsif.lock", "Tool.yaml"]


def replace_often(path, text):
    """Replace a file repeatedly; runs in a process of its own."""
    for _ in range(200):
        files.replace(path, text)


def test_concurrent_renders(tmp_path):
    """Other processes that write the same easyconfig cause no failure."""
    workers = [
        multiprocessing.get_context("fork").Process(target=replace_often, args=(tmp_path / "a.eb", text * 1000))
        for text in "abcd"
    ]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        seen = (tmp_path / "a.eb").read_text() if (tmp_path / "a.eb").exists() else "aaa"
        assert len(set(seen)) == 1
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert [one.name for one in tmp_path.iterdir()] == ["a.eb"]


# --- names and inspections, without an image


def found(name, init="image", packages=None, **values):
    """Return an inspection of an image with that name, whose file is this one."""
    python = None if init == "none" else inspection.Python("3.12.1", "/opt/x", "/opt/x", packages or {})
    path = f"/images/{name}"
    return inspection.Inspection(path=path, resolved=path, size=1, python=python, init=init, **values)


@pytest.fixture
def lumi(monkeypatch):
    """LUMI's catalog; all images have the same date."""
    monkeypatch.setattr(adding.time, "strftime", lambda *_: "20260101")
    monkeypatch.setattr(Path, "stat", lambda self, **_: type("Status", (), {"st_mtime": 0})())


LUMI_DOCUMENTS = list(reading.documents(site.SITES / "lumi"))


def test_the_family_follows_from_the_activation(lumi):
    """The same file name in another generation: the image's content decides the family."""
    name = "lumi-pytorch-rocm-6.4.4-python-3.12-pytorch-v2.8.0-dockerhash-0123456789ab.sif"
    for init, family in (("image", "image"), ("conda-injected", "injected-jansson")):
        assert adding.propose(found(name, init), LUMI_DOCUMENTS).family == family
    packages = {"vllm": "0.9", "flash_attn": "2.8", "left-pad": "1", "torch": "2.8.0+rocm6.4"}
    proposal = adding.propose(found(name, packages=packages), LUMI_DOCUMENTS)
    assert proposal.values["components"] == {"rocm": "6.4.4", "flash-attn": "2.8", "vllm": "0.9"}
    assert "python" not in proposal.values
    assert list(proposal.reviews) == ["date"]


def test_name_and_image_disagree(lumi):
    """The message names both values; nothing is invented."""
    name = "lumi-pytorch-rocm-6.4.4-python-3.11-pytorch-v2.8.0-dockerhash-0123456789ab.sif"
    proposal = adding.propose(found(name, packages={"torch": "2.7.1"}, components={"rocm": "6.3.0"}), LUMI_DOCUMENTS)
    assert proposal.reviews["version"] == "from the file name; the package in the image is 2.7.1"
    assert proposal.reviews["python"] == "from the file name; in the image it is 3.12.1"
    assert "rocm is 6.4.4 in the file name, 6.3.0 in the image" in proposal.reviews["components"]


def test_names_of_the_ai_factory_are_decoded():
    """Versions without dots, as in u24r70f21m50t210."""
    name = "lumi-multitorch-full-u24r71f22m50t212-20260601_120000.sif"
    proposal = adding.propose(found(name, "venv-in-image", {"torch": "2.12.0"}), LUMI_DOCUMENTS)
    assert proposal.name == "lumi-multitorch"
    # the other fields are those of the family
    assert proposal.values["components"] == {"rocm": "7.1", "libfabric": "2.2", "torch": "2.12"}
    assert proposal.values["date"] == "20260601_120000"


def test_an_image_without_python():
    """S001-12 (in part): no venv, no Python settings."""
    proposal = adding.propose(found("julia-1.11.2.sif", "none"), LUMI_DOCUMENTS, name="Julia")
    assert proposal.new_family["init"] == "none"
    assert "venv" not in proposal.new_family
    assert proposal.values["version"] == "1.11.2"


def test_every_name_of_lumi_is_read_back():
    """For all containers, the family's template parses the file name that it wrote."""
    for one in reading.read(site.read("lumi"), site.SITES / "lumi"):
        # a hyphen inside a value is indistinguishable from one between values
        if "{" in one.file and "-" not in one.components.get("release", "") + one.version:
            fields = template.read_fields(one.file, one.file_name)
            assert fields is not None, one.file_name
            for name, value in fields.items():
                assert one.fields[name].lstrip("-") == value


def test_the_network_of_an_image(ebsif, small_image, tmp_path):
    """S001-14: libfabric, MPI ABI and plugin of a real image that was not built for the site."""
    files = ("/opt/mpi/lib/libmpi.so.40", "/usr/lib/x86_64-linux-gnu/libfabric.so.1", "/opt/plugin/librccl-net.so")
    root = copy_from_image(small_image("busybox"), tmp_path / "root", "bin")
    for name in files:
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    subprocess.run(["apptainer", "--silent", "build", tmp_path / "other.sif", root], check=True, timeout=300)
    text = ebsif("doctor", "--site", "lumi", "other.sif").stdout
    assert re.search(r"^note: image: not in the catalog of lumi", text, re.MULTILINE)
    assert re.search(rf"^ok: libfabric: unknown version, {files[1]}; for Slingshot /usr/lib64", text, re.MULTILINE)
    assert re.search(rf"^note: MPI: Open MPI, {files[0]}", text, re.MULTILINE)
    assert re.search(rf"^ok: RCCL plugin: {files[2]}$", text, re.MULTILINE)
    assert "the file nothing.sif does not exist" in ebsif("doctor", "nothing.sif", status=3).stderr
