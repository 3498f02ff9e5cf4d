"""Fetching an image: altered, missing and malformed data, other processes, planted files, and what is left of it."""

import errno
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import framework, space
from easybuild.easyblocks.generic.container.image import fetch as imagefetch
from easybuild.easyblocks.generic.container.image.fetch import fetch
from easybuild.easyblocks.generic.container.image.identity import check_content, check_note, note_path, read_note
from easybuild.easyblocks.generic.container.image.sif import HEADER, damage
from easybuild.easyblocks.generic.container.image.source import ImageSource
from easybuild.easyblocks.generic.container.runtime import Runtime, run_program
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.run import RunShellCmdError
from ebsif.images.inspection import InspectionError, inspect
from httpfiles import SIF, digest_of, serve_files
from ocilayouts import add_blob, add_image
from support import write_program

pytestmark = pytest.mark.usefixtures("configuration")


@pytest.fixture
def files():
    """A server with an image."""
    with serve_files() as files:
        files.content["/x.sif"] = SIF
        files.source = f"{files.url}/x.sif#sha256={digest_of(SIF)[7:]}"
        yield files


@pytest.fixture
def target(tmp_path):
    """The path that an image gets, in a directory that is not there yet."""
    return tmp_path / "src/x.sif"


def get(source, target, **options):
    """Fetch an image; return its source with the digest."""
    return fetch(ImageSource.parse(str(source)), str(target), **options)


def refuse(source, target, problem, **options):
    """Check that an image isn't fetched, and that nothing of it is left."""
    with pytest.raises(EasyBuildError, match=problem):
        get(source, target, **options)
    assert list(target.parent.iterdir()) == []


def test_what_is_fetched_has_a_note(files, target):
    """R-01: the file, and beside it where it is from; both digests; nothing else."""
    assert str(get(files.source, target)) == files.source
    assert target.read_bytes() == SIF
    assert read_note(str(target)) == {"source": files.source, "sha256": digest_of(SIF)[7:]}
    assert sorted(path.name for path in target.parent.iterdir()) == ["x.sif", "x.sif.source.json"]
    check_note(str(target), ImageSource.parse(files.source))
    check_content(str(target), digest_of(SIF)[7:])
    with pytest.raises(EasyBuildError, match=r"was made from http://.* Give the image in 'sources' another name"):
        check_note(str(target), ImageSource.parse(files.source).with_digest(f"sha256:{'0' * 64}"))
    with pytest.raises(EasyBuildError, match=r"x\.sif is not what was fetched from http://.*Remove it \(and .*json\)"):
        check_content(str(target), "0" * 64)
    for text in ("", "[]", '{"source": 1, "sha256": ""}', '{"source": "x", "sha256": ""}'):
        Path(note_path(str(target))).write_text(text)
        assert read_note(str(target)) == {}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda files: files.content.update({"/x.sif": SIF[:-1] + bytes([SIF[-1] ^ 1])}), "was altered or truncated"),
        (lambda files: files.content.update({"/x.sif": SIF + b"more"}), "was altered or truncated"),
        (lambda files: files.cuts.append(1000), "was altered or truncated"),
        (lambda files: files.content.pop("/x.sif"), "can't be downloaded: check the address"),
    ],
)
def test_altered_and_missing_files(files, target, change, problem):
    """R-03: what was altered, cut or isn't there leaves nothing behind."""
    change(files)
    refuse(files.source, target, problem)


def test_what_is_no_sif_file(files, target):
    """R-03: a file with the right digest that is no SIF file is not kept."""
    files.content["/page"] = b"<html>"
    refuse(f"{files.url}/page#sha256={digest_of(b'<html>')[7:]}", target, "no SIF file")


@pytest.mark.parametrize("kind", ["md5", "sha256", "sha512"])
def test_checksums_of_another_kind(files, target, kind):
    """R-01, R-03: what is fetched is compared with a checksum of any kind that EasyBuild supports."""
    right = hashlib.new(kind, SIF).hexdigest()
    refuse(files.source, target, "'checksums' in the easyconfig has a different one", checksum=(kind, "0" * len(right)))
    get(files.source, target, checksum=(kind, right))
    # of these two, the kind follows from the length
    get(files.source, target, checksum=(kind, right) if kind == "sha512" else right, again=True)


def test_planted_files(files, tmp_path, target):
    """P-02: names that others can predict are replaced or left alone, never followed or continued."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    target.parent.mkdir()
    Path(note_path(str(target))).symlink_to(victim)
    target.symlink_to(victim)
    get(files.source, target, again=True)
    assert (victim.read_text(), target.is_symlink(), target.read_bytes()) == ("mine", False, SIF)
    assert read_note(str(target))["source"] == files.source


def test_an_image_that_is_there_meanwhile(files, target, monkeypatch):
    """R-10: the image of the process that was faster stays, unless it is to be replaced."""
    compute = imagefetch.compute_checksum

    def slower(*arguments):
        target.write_bytes(b"theirs")
        return compute(*arguments)

    monkeypatch.setattr(imagefetch, "compute_checksum", slower)
    get(files.source, target)
    assert (target.read_bytes(), list(target.parent.iterdir())) == (b"theirs", [target])
    get(files.source, target, again=True)
    assert (target.read_bytes(), read_note(str(target))["source"]) == (SIF, files.source)


@pytest.mark.parametrize("has_links", [True, False])
def test_the_note_is_about_the_image(files, target, monkeypatch, has_links):
    """R-10: of two images that are complete at the same time, the one with the name has its note beside it."""
    link, note = os.link, {"source": files.source, "sha256": digest_of(b"converted elsewhere")[7:]}

    def link_file(made, name):
        if not has_links:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        link(made, name)

    def slower(made, name):
        target.write_bytes(b"converted elsewhere")
        Path(note_path(str(target))).write_text(json.dumps(note))
        link_file(made, name)

    monkeypatch.setattr(os, "link", slower)
    get(files.source, target)
    assert (target.read_bytes(), read_note(str(target))) == (b"converted elsewhere", note)
    assert sorted(path.name for path in target.parent.iterdir()) == ["x.sif", "x.sif.source.json"]
    target.unlink()
    monkeypatch.setattr(os, "link", link_file)
    get(files.source, target)
    assert (target.read_bytes(), read_note(str(target))["sha256"]) == (SIF, digest_of(SIF)[7:])


def test_what_a_killed_process_has_left(files, target):
    """R-03: a leftover is removed after a day; files of a process that may still fetch, and others, stay."""
    left = {}
    for name, age in (("killed", 2), ("running", 0), ("renamed", 2)):
        left[name] = target.parent / f".x.sif.{name}/{'photos' if name == 'renamed' else 'layout'}"
        left[name].mkdir(parents=True)
        left[name].parent.chmod(0o700)
        (left[name] / "part").write_text("part")
        for path in (left[name] / "part", left[name], left[name].parent):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age * 24 * 3600))
    (target.parent / ".x.sif.text").write_text("mine")
    os.utime(target.parent / ".x.sif.text", (1, 1))
    get(files.source, target)
    there = [".x.sif.renamed", ".x.sif.running", ".x.sif.text", "x.sif", "x.sif.source.json"]
    assert sorted(path.name for path in target.parent.iterdir()) == there


def test_directories_that_are_closed(files):
    """E-15: where nothing can be written, the directory is named, and what to do."""
    with pytest.raises(EasyBuildError, match=r"nothing can be written to /proc/self.*--sourcepath"):
        get(files.source, "/proc/self/x.sif")


def test_stripes(files, target, monkeypatch):
    """T-06: the directory in which an image is fetched or converted has its stripes."""
    said = []

    def make_striped(path, options):
        said.append((list(Path(path).iterdir()), options))

    monkeypatch.setattr(imagefetch, "make_striped", make_striped)
    get(files.source, target, striping=["-c", "2"])
    assert said == [([], ["-c", "2"])]


@pytest.fixture
def layout(tmp_path):
    """A layout with two images, of which one has the tag 1; the value is its path, and the digest of that image."""
    root = tmp_path / "root"
    root.mkdir()
    folder, digest = tmp_path / "layout", add_image(tmp_path / "layout", root, "1")
    (root / "file").write_text("other")
    add_image(folder, root)
    return folder, digest


def test_one_image_of_a_layout(layout, target):
    """R-01, R-08: the digest chooses the image; without one the tag; for others the error says what there is."""
    folder, digest = layout
    for name in (f"oci:{folder}:1@{digest}", f"oci:{folder}@{digest}", f"oci:{folder}:1"):
        assert imagefetch.find_in_layout(ImageSource.parse(name))["digest"] == digest
    # what has no tag may belong to the image, as a signature does: only its digest means it
    assert imagefetch.find_in_layout(ImageSource.parse(f"oci:{folder}"))["digest"] == digest
    add_image(folder, folder / "blobs", "3")
    refuse(f"oci:{folder}", target, r"it is more than one of the images there, .*1@sha256.*\(no tag\)@sha256")
    refuse(f"oci:{folder}:2", target, "it is none of the images there")
    refuse(f"oci:{folder}@sha256:{'0' * 64}", target, "it is none of the images there")
    refuse("oci:/does/not/exist", target, "is not a directory with an OCI layout")


@pytest.mark.parametrize("what", ["layer", "config", "manifest", "missing"])
def test_altered_layouts_are_refused(layout, target, what):
    """R-03: an altered or missing blob of a layout is named, and not used; the runtime doesn't notice."""
    folder, digest = layout
    manifest = json.loads((folder / "blobs/sha256" / digest[7:]).read_text())
    one = {"manifest": digest, "config": manifest["config"]["digest"]}.get(what, manifest["layers"][0]["digest"])
    blob = folder / "blobs/sha256" / one[7:]
    if what == "missing":
        blob.unlink()
    else:
        blob.write_bytes(blob.read_bytes()[:-1] + b" ")
    refuse(f"oci:{folder}:1", target, "No such file" if what == "missing" else f"The blob {one} was altered")


@pytest.mark.parametrize("data", [SIF, b"<html>"], ids=["sif", "html"])
def test_sif_files_in_layouts(tmp_path, target, monkeypatch, data):
    """R-08, R-03: a SIF file in a layout is taken as it is; a page with its media type is no SIF file."""
    folder = tmp_path / "layout"
    folder.mkdir()
    layer = {"mediaType": "application/vnd.sylabs.sif.layer.v1.sif", **add_blob(folder, data)}
    manifest = {"schemaVersion": 2, "config": add_blob(folder, b"{}"), "layers": [layer]}
    (folder / "index.json").write_text(json.dumps({"manifests": [add_blob(folder, json.dumps(manifest).encode())]}))
    monkeypatch.setattr(imagefetch, "run_runtime", lambda source, words, made: Path(made).write_bytes(b"nothing"))
    if data == SIF:
        get(f"oci:{folder}", target)
        assert target.read_bytes() == SIF
    else:
        refuse(f"oci:{folder}", target, "is no SIF file, or an incomplete one")


@pytest.mark.parametrize("entry", [{"digest": ["sha256"]}, {"digest": "x:/etc/passwd"}, "text", {}])
def test_malformed_layouts(layout, target, entry):
    """R-03: what is malformed in the index of a layout, or leads out of it, is an error."""
    folder, digest = layout
    if entry:
        entry = {"digest": digest, **entry} if isinstance(entry, dict) else entry
        (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    else:
        (folder / "index.json").write_text("[" * 100_000)
    refuse(f"oci:{folder}", target, "can't be read as an image of an OCI layout")


def test_images_that_no_runtime_can_start(tmp_path, monkeypatch):
    """E-15: where the runtime fails, a SIF file that was cut is named as the cause; other failures stay as they are."""
    runtime, image = tmp_path / "bin/apptainer", tmp_path / "x.sif"
    write_program(runtime, "#!/bin/sh\nexit 255\n")
    monkeypatch.setenv("PATH", f"{runtime.parent}:/usr/bin:/bin")
    image.write_bytes(SIF[:-1])
    with pytest.raises(EasyBuildError, match=r"x\.sif is an incomplete SIF file: copy or fetch it again"):
        Runtime().run(["true"], str(image), str(tmp_path), [])
    with pytest.raises(InspectionError, match=r"x\.sif is an incomplete SIF file: copy or fetch it again"):
        inspect(image)
    image.write_bytes(SIF)
    with pytest.raises(RunShellCmdError):
        Runtime().run(["true"], str(image), str(tmp_path), [])
    # SingularityCE 4.1 with an image that Apptainer has compressed with zstd
    runtime.write_text("#!/bin/sh\necho 'FATAL: unknown compression algorithm value 6' >&2\nexit 255\n")
    for split_stderr in (False, True):
        with pytest.raises(EasyBuildError, match=r"x\.sif is compressed in a way .* again, compressed with gzip"):
            Runtime().run(["true"], str(image), str(tmp_path), [], split_stderr=split_stderr)
    with pytest.raises(InspectionError, match="compressed with gzip"):
        inspect(image)
    # a table of contents behind the end of the largest possible file
    image.write_bytes(HEADER.pack(*HEADER.unpack(SIF[: HEADER.size])[:8], 2**63 - 1, 0, 0, 0))
    assert "incomplete" in damage(str(image))
    image.unlink()
    assert "doesn't exist, or can't be read" in damage(str(image))


def test_which_disk_is_full(tmp_path, monkeypatch):
    """E-15, N-07: the directories without free space, their file systems, and what chooses others."""
    usage = {tmp_path / "build": 0, tmp_path / "install": 10**12, tmp_path / "tmp": 5, tmp_path / "gone": 0}
    for path in list(usage)[:3]:
        path.mkdir()
    monkeypatch.setattr(space, "build_path", lambda: str(tmp_path / "build"))
    monkeypatch.setattr(space, "install_path", lambda: str(tmp_path / "install"))
    monkeypatch.setattr(space.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    total = 8 * 10**6
    monkeypatch.setattr(space.shutil, "disk_usage", lambda path: SimpleNamespace(free=usage[Path(path)], total=total))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "gone"))
    monkeypatch.setattr(space.os.path, "ismount", lambda path: path == str(tmp_path))
    at = f"free of 8.0 MB in the file system {tmp_path} (to choose another: export"
    assert space.full_places() == [
        f"{tmp_path}/build: 0.0 kB {at} EASYBUILD_BUILDPATH=DIRECTORY)",
        f"{tmp_path}/tmp: 0.0 kB {at} TMPDIR=DIRECTORY)",
    ]
    # a quota, or what filled it is removed
    usage.update(dict.fromkeys(usage, 10**9))
    assert [line.partition(" ")[0] for line in space.full_places()] == ["perhaps"] * 3
    assert space.full_places()[1] == f"perhaps {tmp_path}/install: 1.0 GB {at} EASYBUILD_INSTALLPATH=DIRECTORY)"
    with pytest.raises(EasyBuildError) as error, framework.plain_errors():
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "/a")
    assert str(error.value).strip("'").splitlines()[0].startswith("the quota is used up")
    assert str(error.value).count("perhaps ") == 3


def test_a_program_on_a_full_disk(tmp_path):
    """E-15: the message has the cause, not only the number of the exit status."""
    for said, cause in (("No space left on device", "disk is full"), ("Disk quota exceeded", "quota is used up")):
        program = write_program(tmp_path / "packing", f"#!/bin/sh\necho {said}\nexit 4\n")
        with pytest.raises(EasyBuildError, match=f"packing failed: the {cause}"):
            run_program([str(program)])
