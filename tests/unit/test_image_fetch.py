"""Fetching an image: cuts, altered and missing data, other processes, full disks, and what is left of it."""

import errno
import io
import json
import os
import queue
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import download, imagecopy, imagefetch, lease, progress
from easybuild.easyblocks.generic.container.imagefetch import ImageFetch
from easybuild.easyblocks.generic.container.imagenote import check_content, check_note, origin_of, read_note
from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.lease import Lease
from easybuild.easyblocks.generic.container.lockowner import this_process
from easybuild.easyblocks.generic.container.ociimage import OciImage, open_store
from easybuild.easyblocks.generic.container.runtime import Runtime
from easybuild.easyblocks.generic.container.sif import DESCRIPTOR, HEADER, damage
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.run import RunShellCmdError
from ebsif.image.inspection import InspectionError, inspect
from httpfiles import digest_of, serve_files
from ocilayouts import add_blob, add_image, pack

pytestmark = pytest.mark.usefixtures("configuration")

BEGIN = HEADER.size + DESCRIPTOR.size
DATA = os.urandom(300_000 - BEGIN)
SIF = HEADER.pack(bytes(32), b"SIF_MAGIC", b"", b"", 0, 0, 0, 1, HEADER.size, DESCRIPTOR.size, BEGIN, len(DATA)) + \
    DESCRIPTOR.pack(0x4004, True, 1, 0, 0, BEGIN, len(DATA), len(DATA), 0, 0, 0, 0, b"", b"") + DATA


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """No waits between attempts, small blocks, and a home directory without logins."""
    monkeypatch.setattr(download, "WAITS", (0, 0))
    monkeypatch.setattr(download, "BLOCK", 10_000)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def files():
    """A server with an image, also as ai/x:1 of a registry."""
    with serve_files() as files:
        files.content["/x.sif"] = SIF
        files.manifest, files.blob = files.push("ai/x", "1", SIF)
        files.https = f"{files.url}/x.sif#sha256={digest_of(SIF)[7:]}"
        files.oras = f"oras://{files.host}/ai/x:1@{files.manifest}"
        yield files


def fetch(tmp_path, source, is_expected=lambda sha256: True):
    """Fetch an image; return its path."""
    return ImageFetch(ImageSource.parse(source), str(tmp_path / "src/x.sif"), is_expected).fetch()


def content(path):
    """Return what is in an image."""
    return Path(path).read_bytes()


def left(tmp_path):
    """Return the names of what is in the source path."""
    return sorted(path.name for path in (tmp_path / "src").iterdir())


@pytest.mark.parametrize("kind", ["https", "oras"])
def test_going_on_after_cuts(files, tmp_path, kind):
    """R-01: each cut costs one request for the rest; both digests are recorded beside the image."""
    files.cuts = [100_000, 50_000, 0, 70_000]
    path = fetch(tmp_path, getattr(files, kind))
    assert content(path) == SIF
    ranges = [headers.get("Range") for path, headers in files.requests if "manifests" not in path]
    assert ranges == [None, "bytes=100000-", "bytes=150000-", "bytes=150000-", "bytes=220000-"]
    assert left(tmp_path) == ["x.sif", "x.sif.source.json"]
    digest = files.manifest if kind == "oras" else digest_of(SIF)
    assert origin_of(path, digest_of(SIF)[7:]) == {"source": getattr(files, kind), "source_digest": digest}
    assert origin_of(path, "0" * 64) == {"source": path}


def test_the_next_attempt_goes_on(files, tmp_path):
    """R-01: if nothing more arrives the error says how much is there, and the next eb fetches the rest only."""
    files.cuts = [200_000, 0, 0, 0, 0]
    with pytest.raises(EasyBuildError, match=r"ended after 200\.0 kB of 300\.0 kB.*the same command goes on"):
        fetch(tmp_path, files.oras)
    assert [re.sub(r"partial-\w{12}", "P", name) for name in left(tmp_path)] == ["x.sif.P"]
    files.cuts = []
    fetch(tmp_path, files.oras)
    assert files.blobs()[-1] == (files.blob, "bytes=200000-")
    assert left(tmp_path) == ["x.sif", "x.sif.source.json"]


@pytest.mark.parametrize("more", [b"", b"more"])
@pytest.mark.parametrize("kind", ["https", "oras"])
def test_leftovers_of_the_whole_length(files, tmp_path, kind, more):
    """R-01: a file that is complete, or longer than the server's, blocks no attempt, also if nothing names the size."""
    manifest = json.loads(files.content["/v2/ai/x/manifests/1"])
    del manifest["layers"][0]["size"]
    files.content["/v2/ai/x/manifests/1"] = json.dumps(manifest).encode()
    name, digest = (files.https, digest_of(SIF)) if kind == "https" else (
        f"oras://{files.host}/ai/x:1", digest_of(json.dumps(manifest).encode()))
    (tmp_path / "src").mkdir()
    (tmp_path / f"src/x.sif.partial-{digest[7:19]}").write_bytes(SIF + more)
    assert content(fetch(tmp_path, name)) == SIF
    assert left(tmp_path) == ["x.sif", "x.sif.source.json"]


def test_cuts_without_a_digest(files, tmp_path):
    """R-03: without a digest, a file that was cut is an error even if only its end shows that; the remedy is named."""
    files.cuts, files.has_sizes = [200_000], False
    url = files.https.partition("#")[0]
    source = ImageSource("https", path=url)
    fetching = ImageFetch(source, str(tmp_path / "src/x.sif"), lambda sha256: True)
    with pytest.raises(EasyBuildError, match="is an incomplete SIF file. Nothing of it is kept"):
        fetching.fetch()
    assert left(tmp_path) == []
    files.cuts, files.has_sizes = [200_000, 0, 0, 0, 0], True
    with pytest.raises(EasyBuildError, match=r"starts again, .*: add #sha256=DIGEST"):
        fetching.fetch()
    files.cuts, files.requests[:] = [], []
    assert content(fetching.fetch()) == SIF
    assert [headers.get("Range") for _, headers in files.requests] == [None]


@pytest.mark.parametrize("bars", [False, True])
def test_progress(files, tmp_path, monkeypatch, bars):
    """R-01, E-10: how far a download is can be seen in EasyBuild's bar, else in lines, also while nothing arrives."""
    started = []
    lines = said_by(progress, monkeypatch)
    monkeypatch.setattr(progress, "show_progress_bars", lambda: bars)
    monkeypatch.setattr(progress, "start_progress_bar", lambda kind, size, label: started.append((size, label)))
    monkeypatch.setattr(progress, "stop_progress_bar", lambda kind: started.append("stopped"))
    fetch(tmp_path, files.https)
    assert started == ([(len(SIF), "x.sif"), "stopped"] if bars else [])
    if not bars:
        with progress.Progress("y.sif") as shown:
            shown.reach(100_000, 300_000)
            # nothing more does
            while lines.get(timeout=60) != "y.sif: 100.0 kB of 300.0 kB":
                pass


def test_progress_of_reading(tmp_path, monkeypatch):
    """E-10: while an image is copied or verified, how much of it was read can be seen."""
    lines, path = said_by(progress, monkeypatch), tmp_path / "x.sif"
    path.write_bytes(SIF)
    monkeypatch.setattr(imagecopy, "BLOCK", 100_000)

    class Slow(io.FileIO):
        def readinto(self, memory):
            while self.tell() == 100_000 and lines.get(timeout=60) != "x.sif: 100.0 kB of 300.0 kB":
                pass
            return super().readinto(memory)

    with Slow(path) as image:
        assert imagecopy.transfer(image, None) == (digest_of(SIF)[7:], len(SIF))


def said_by(module, monkeypatch):
    """Return what progress says, as soon as it is said (queue)."""
    lines = queue.SimpleQueue()
    monkeypatch.setattr(module, "EVERY", 0.01)
    monkeypatch.setattr(module, "trace_msg", lines.put)
    return lines


def test_servers_without_ranges(files, tmp_path):
    """R-01: a server that only sends whole files is asked again for all of it."""
    files.has_ranges, files.cuts = False, [100_000]
    assert content(fetch(tmp_path, files.https)) == SIF


def test_tags_are_resolved_once(files, tmp_path):
    """R-02: what a tag was is beside the image, and the warning names the digest to write."""
    tag = files.oras.partition("@")[0]
    path = fetch(tmp_path, tag)
    assert read_note(path) == {"source": files.oras, "source_digest": files.manifest, "sha256": digest_of(SIF)[7:]}
    assert f"write: image_source = '{files.oras}'" in check_note(path, ImageSource.parse(tag))
    assert check_note(path, ImageSource.parse(files.oras)) is None
    files.push("ai/x", "1", SIF + b"moved")
    assert check_note(path, ImageSource.parse(tag))
    with pytest.raises(EasyBuildError, match=r"was made from oras://.*, and the easyconfig names"):
        check_note(path, ImageSource.parse(tag).with_digest(digest_of(b"other")))


@pytest.mark.parametrize("kind", ["https", "oras"])
def test_altered_images_are_refused(files, tmp_path, kind):
    """R-03: an image with another content than its digest says is not kept, however it was altered."""
    for path in ("/x.sif", f"/v2/ai/x/blobs/{files.blob}"):
        files.content[path] = SIF[:-1] + b"?"
    with pytest.raises(EasyBuildError, match="it was altered on the way or on the server"):
        fetch(tmp_path, getattr(files, kind))
    assert left(tmp_path) == []


def test_damaged_leftovers_are_replaced(files, tmp_path):
    """R-03: if what is left of an earlier attempt is damaged, everything is fetched again."""
    (tmp_path / "src").mkdir()
    (tmp_path / f"src/x.sif.partial-{files.manifest[7:19]}").write_bytes(bytes(100_000))
    assert content(fetch(tmp_path, files.oras)) == SIF
    assert [size for _, size in files.blobs()] == ["bytes=100000-", None]


@pytest.mark.parametrize(("change", "message"), [
    (lambda files: files.content.update({"/x.sif": b"<html>no image</html>"}), "altered"),
    (lambda files: files.content.pop("/x.sif"), r"answers 404"),
    (lambda files: files.content.update({"/x.sif": SIF + b"more"}), "altered"),
])
def test_wrong_answers(files, tmp_path, change, message):
    """R-03: pages of errors, missing and longer files are no images."""
    change(files)
    with pytest.raises(EasyBuildError, match=message):
        fetch(tmp_path, files.https)
    assert left(tmp_path) == []


def test_what_is_no_sif_file(files, tmp_path):
    """R-03: a file with the right digest that is no SIF file is not kept; nor is an image of layers one for oras://."""
    files.content["/page"] = b"<html>"
    with pytest.raises(EasyBuildError, match="is no SIF file. Nothing of it is kept"):
        fetch(tmp_path, f"{files.url}/page#sha256={digest_of(b'<html>')[7:]}")
    files.push("ai/layers", "1", b"layer", layer="application/vnd.oci.image.layer.v1.tar+gzip")
    with pytest.raises(EasyBuildError, match="write docker:// instead of oras://"):
        fetch(tmp_path, f"oras://{files.host}/ai/layers:1")
    assert left(tmp_path) == []


def test_other_checksums_are_found_before_the_download(files, tmp_path):
    """R-03: an image that isn't the one in 'checksums' is not even fetched."""
    for source in (files.oras, files.https):
        with pytest.raises(EasyBuildError, match="'checksums' in the easyconfig names another one"):
            fetch(tmp_path, source, is_expected=lambda sha256: sha256 == "0" * 64)
    assert not [path for path, _ in files.requests if "manifests" not in path]


def test_full_disks(files, tmp_path, monkeypatch):
    """R-03: too little space is said before the download, a disk or a quota that is full during it, too."""
    with monkeypatch.context() as patch, pytest.raises(
            EasyBuildError, match=r"Not enough space in .*/src: 300\.0 kB are needed, 200\.0 kB are free"):
        patch.setattr(download.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 200_000}))
        fetch(tmp_path, files.oras)
    assert left(tmp_path) == []

    def full(number):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(download.os, "fsync", full)
    with pytest.raises(EasyBuildError, match=r"The disk or the quota is full: no more than 300\.0 kB of 300\.0 kB"):
        fetch(tmp_path, files.oras)
    assert left(tmp_path) == []


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_others_can_read_what_was_fetched(files, tmp_path, umask):
    """R-01: image, note and the directories for them don't depend on the umask; existing directories stay closed."""
    (tmp_path / "src").mkdir(mode=0o700)
    before = os.umask(umask)
    try:
        path = ImageFetch(ImageSource.parse(files.oras), str(tmp_path / "src/x/y/x.sif"), lambda sha256: True).fetch()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "src").rglob("*")}
    folder = 0o755 if umask == 0o077 else 0o775
    assert modes == {"x": folder, "y": folder, "x.sif": 0o644, "x.sif.source.json": 0o644}
    assert content(path) == SIF
    assert (tmp_path / "src").stat().st_mode & 0o777 == 0o700


def test_images_that_changed_after_they_were_fetched(files, tmp_path):
    """R-03: a note says what the image was; another content is named, with what to remove."""
    path = fetch(tmp_path, files.oras)
    check_content(path, digest_of(SIF)[7:])
    with pytest.raises(EasyBuildError, match=r"x\.sif is not what was fetched from oras://.*Remove it \(and .*json\)"):
        check_content(path, digest_of(SIF[:-1])[7:])
    Path(path + ".source.json").unlink()
    check_content(path, digest_of(SIF[:-1])[7:])


def test_killed_at_the_end(files, tmp_path, monkeypatch):
    """R-03: whenever eb is killed, no image has the note of another one; what was complete isn't fetched again."""
    fetch(tmp_path, files.oras)
    other = SIF + b"other"
    manifest, blob = files.push("ai/x", "2", other)
    again = ImageFetch(ImageSource.parse(f"oras://{files.host}/ai/x@{manifest}"), str(tmp_path / "src/x.sif"),
                       lambda sha256: True)

    def killed(*paths):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(imagefetch.os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            again.fetch(again=True)
    assert [name for name in left(tmp_path) if "partial" not in name] == ["x.sif.source.json"]
    requests = len(files.blobs())
    assert content(again.fetch()) == other
    assert read_note(again.target)["sha256"] == digest_of(other)[7:]
    assert len(files.blobs()) == requests


def test_stripes(files, layout, tmp_path, monkeypatch):
    """T-06: what is fetched, copied or converted gets its stripes before it is written."""
    said = []
    monkeypatch.setattr(imagefetch, "make_striped", lambda path, options: said.append((Path(path).exists(), options)))
    ImageFetch(ImageSource.parse(files.oras), str(tmp_path / "x.sif"), lambda sha256: True, ["-c", "2"]).fetch()
    assert said == [(False, ["-c", "2"])]
    source = ImageSource.parse(f"oci:{layout[0]}:1")
    ImageFetch(source, str(tmp_path / "y.sif"), lambda sha256: True, ["-c", "3"]).layout_reference()
    # a directory, in which the runtime writes
    assert said[1:] == [(True, ["-c", "3"])]


@pytest.mark.parametrize("what", ["right", "altered", "no SIF file"])
def test_sif_files_in_layouts(tmp_path, monkeypatch, what):
    """R-03: a SIF file in a layout is verified as it was copied; a page with its media type is no SIF file."""
    data = b"<html>" if what == "no SIF file" else SIF
    folder = tmp_path / "layout"
    folder.mkdir()
    layer = {"mediaType": "application/vnd.sylabs.sif.layer.v1.sif", **add_blob(folder, data)}
    manifest = {"schemaVersion": 2, "config": add_blob(folder, b"{}"), "layers": [layer]}
    (folder / "index.json").write_text(
        json.dumps({"manifests": [add_blob(folder, json.dumps(manifest).encode())]}))
    (tmp_path / "apptainer").write_text("#!/bin/false\n")
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    copy_image = imagefetch.copy_image

    def changed_first(blob, copy, striping):
        if what == "altered":
            Path(os.path.realpath(blob)).write_bytes(SIF[:-1])
        return copy_image(blob, copy, striping)

    monkeypatch.setattr(imagefetch, "copy_image", changed_first)
    if what == "right":
        assert content(fetch(tmp_path, f"oci:{folder}")) == SIF
        assert left(tmp_path) == ["x.sif", "x.sif.source.json"]
        return
    with pytest.raises(EasyBuildError, match=f"for x.sif (is|was) {what}"):
        fetch(tmp_path, f"oci:{folder}")
    assert left(tmp_path) == []


def test_two_at_once_fetch_once(files, tmp_path):
    """R-10: processes that need the same image at the same time wait for the first of them; all end right."""
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(fetch(tmp_path, files.oras))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [str(tmp_path / "src/x.sif")] * 3
    assert len(files.blobs()) == 1
    assert left(tmp_path) == ["x.sif", "x.sif.source.json"]


@pytest.mark.parametrize(("change", "is_gone"), [
    ({"host": "other-node"}, False), ({"pid": 2 ** 22 + 1}, True), (None, False)])
def test_locks_of_the_dead(tmp_path, change, is_gone):
    """R-10: the lock of a process that is gone is taken: at once on the same machine, else without a sign of life."""
    lock = tmp_path / "lock"
    lock.write_text("" if change is None else json.dumps({**this_process(), **change}))
    waited = []
    begin = time.monotonic()
    with Lease(str(lock), left=600 if is_gone else 1).held(waited.append):
        assert json.loads(lock.read_text()) == this_process()
        assert is_gone or time.monotonic() - begin >= 1
    assert waited
    assert not list(tmp_path.iterdir())


def test_directories_that_are_closed(files, tmp_path, monkeypatch):
    """R-10: a lock that can't be created or removed is an error that says so, not an endless wait."""
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "src").mkdir()
    (tmp_path / "src/x.sif.lock").write_text(json.dumps({**this_process(), "pid": 2 ** 22 + 1}))
    for name in ("rename", "open"):
        with monkeypatch.context() as patch, pytest.raises(
                EasyBuildError, match=r"the lock .*/x.sif.lock can't be taken: Permission denied\. Remove"):
            patch.setattr(lease.os, name, refuse)
            fetch(tmp_path, files.oras)


def test_locks_of_the_living_are_kept(tmp_path, monkeypatch):
    """R-10: an owner on another node that shows signs of life keeps its lock as long as it needs it."""
    lock = tmp_path / "lock"
    held, done = threading.Event(), threading.Event()

    def hold():
        with Lease(str(lock), left=0.4).held(lambda owner: None):
            held.set()
            done.wait(300)

    monkeypatch.setattr(lease, "owner_state", lambda owner: lease.GONE if done.is_set() else "unknown")
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(300)
    waits = []

    def waiting(owner):
        waits.append(owner)
        if len(waits) >= 6:
            done.set()
            return
        before, until = lock.stat().st_mtime_ns, time.monotonic() + 60
        while len(waits) % 2 and lock.stat().st_mtime_ns == before:
            assert time.monotonic() < until, "no sign of life"
            time.sleep(0.01)

    # a clock by which each second look sees a sign of life just in time, however busy the machine is
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: 10 * len(waits), sleep=lambda seconds: None))
    try:
        with Lease(str(lock), left=20).held(waiting):
            assert len(waits) >= 6
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("what", ["taken over", "removed"])
def test_what_others_do_meanwhile(files, tmp_path, monkeypatch, what):
    """R-10: a process that was suspended leaves the image to the one that took over; a lost file is fetched again."""
    run, target = download.Download.run, tmp_path / "src/x.sif"

    def disturbed(self, *arguments):
        run(self, *arguments)
        if len(files.blobs()) > 1:
            return
        if what == "removed":
            Path(self.path).unlink()
        else:
            Path(f"{target}.lock").write_text(json.dumps({**this_process(), "pid": 2 ** 22 + 1}))
            Path(self.path).rename(target)

    monkeypatch.setattr(download.Download, "run", disturbed)
    assert content(fetch(tmp_path, files.oras)) == SIF
    assert len(files.blobs()) == (2 if what == "removed" else 1)
    assert not list(tmp_path.glob("src/x.sif.lock*"))


@pytest.fixture
def layout(tmp_path):
    """A layout with two images, of which one has the tag 1; the value is its path, and the digest of that image."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("content")
    folder = tmp_path / "layout"
    digest = add_image(folder, root, "1")
    (root / "file").write_text("other")
    add_image(folder, root)
    return folder, digest


def collect(tmp_path, text):
    """Collect the blobs of an image; return their names."""
    source = ImageSource.parse(text)
    store = open_store(source)
    OciImage(store, str(tmp_path / "own")).collect(source, store.manifest(source))
    return sorted(path.name for path in (tmp_path / "own/blobs/sha256").iterdir())


@pytest.mark.parametrize("kind", ["oci", "oci-archive"])
def test_one_image_of_a_layout(layout, tmp_path, kind):
    """R-01: tag or digest choose the image in a layout, directory or archive; for others it says what there is."""
    folder, digest = layout
    place = folder
    if kind == "oci-archive":
        place = tmp_path / "layout.tar"
        pack(folder, place)
    by_tag = collect(tmp_path, f"{kind}:{place}:1")
    assert len(by_tag) == 3
    assert digest[7:] in by_tag
    assert collect(tmp_path, f"{kind}:{place}@{digest}") == by_tag
    with pytest.raises(EasyBuildError, match=r"is more than one of the images in .*1@sha256.*\(no tag\)@sha256"):
        collect(tmp_path, f"{kind}:{place}")
    with pytest.raises(EasyBuildError, match="is none of the images in"):
        collect(tmp_path, f"{kind}:{place}:2")


@pytest.mark.parametrize("what", ["layer", "manifest", "missing"])
def test_altered_layouts_are_refused(layout, tmp_path, what):
    """R-03: an altered or missing blob of a layout is named, and not used."""
    folder, digest = layout
    manifest = json.loads((folder / "blobs/sha256" / digest[7:]).read_text())
    blob = folder / "blobs/sha256" / (digest if what == "manifest" else manifest["layers"][0]["digest"])[7:]
    if what == "missing":
        blob.unlink()
    else:
        blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(Exception, match="can't be read" if what == "missing" else "was altered"):
        collect(tmp_path, f"oci:{folder}:1")
    assert not (tmp_path / "own/blobs/sha256" / blob.name).exists()


def test_blobs_of_a_registry(layout, tmp_path):
    """R-01, R-03: the layers of an image come from a registry, and go on after a cut; altered ones are not kept."""
    folder, digest = layout
    with serve_files() as files:
        for blob in (folder / "blobs/sha256").iterdir():
            files.content[f"/v2/ai/x/blobs/sha256:{blob.name}"] = blob.read_bytes()
        files.content[f"/v2/ai/x/manifests/{digest}"] = (folder / "blobs/sha256" / digest[7:]).read_bytes()
        layer = json.loads(files.content[f"/v2/ai/x/manifests/{digest}"])["layers"][0]["digest"]
        whole = files.content[f"/v2/ai/x/blobs/{layer}"]
        files.content[f"/v2/ai/x/blobs/{layer}"] = bytes(len(whole))
        with pytest.raises(EasyBuildError, match=f"The blob {layer} was altered"):
            collect(tmp_path, f"docker://{files.host}/ai/x@{digest}")
        files.content[f"/v2/ai/x/blobs/{layer}"] = whole
        files.cuts = [20]
        assert len(collect(tmp_path, f"docker://{files.host}/ai/x@{digest}")) == 3
        assert (layer, "bytes=20-") in files.blobs()


def test_images_for_several_machines(layout, tmp_path):
    """R-01: of an index with images for several machines, the one for this machine is used; none is an error."""
    folder, digest = layout
    entries = [{"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": name}}
               for name in ("amd64", "arm64")]
    (folder / "index.json").write_text(json.dumps({"manifests": [
        add_blob(folder, json.dumps({"manifests": entries}).encode()),
        add_blob(folder, json.dumps({"manifests": [{**entries[0], "platform": {"os": "plan9", "architecture": "vax"}}]
                                     }).encode())]}))
    several, other = (entry["digest"] for entry in json.loads((folder / "index.json").read_text())["manifests"])
    with pytest.raises(EasyBuildError, match="no image for this machine .*, only for: plan9/vax"):
        collect(tmp_path, f"oci:{folder}@{other}")
    assert len(collect(tmp_path, f"oci:{folder}@{several}")) == 3


@pytest.mark.parametrize("entry", [
    {"digest": ["sha256"]}, {"digest": "x:/etc/passwd"}, "text", {"annotations": ["1"]}, {"digest": 1}])
def test_malformed_layouts(layout, tmp_path, entry):
    """R-03: what is malformed in the index of a layout, or leads out of it, counts as missing."""
    folder, digest = layout
    if isinstance(entry, dict):
        entry = {"digest": digest, **entry}
    (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    with pytest.raises(EasyBuildError, match="is none of the images in .* It has: none"):
        collect(tmp_path, f"oci:{folder}")
    for several in ([{"digest": digest, "platform": ["linux"]}], 5):
        (folder / "index.json").write_text(json.dumps({"manifests": [
            add_blob(folder, json.dumps({"manifests": several}).encode())]}))
        with pytest.raises(EasyBuildError, match="no image for this machine"):
            collect(tmp_path, f"oci:{folder}")
    (folder / "index.json").write_text("[" * 100_000)
    with pytest.raises(EasyBuildError, match="no OCI layout that can be read"):
        collect(tmp_path, f"oci:{folder}")


def test_images_that_no_runtime_can_start(tmp_path, monkeypatch):
    """E-09: where the runtime fails, a SIF file that was cut is named as the cause; other failures stay as they are."""
    runtime, image = tmp_path / "bin/apptainer", tmp_path / "x.sif"
    runtime.parent.mkdir()
    runtime.write_text("#!/bin/sh\nexit 255\n")
    runtime.chmod(0o755)
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
    image.write_bytes(HEADER.pack(*HEADER.unpack(SIF[:HEADER.size])[:8], 2 ** 63 - 1, 0, 0, 0))
    assert "incomplete" in damage(str(image))
    image.unlink()
    assert "doesn't exist, or can't be read" in damage(str(image))
