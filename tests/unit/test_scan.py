"""`ebsif scan`: new images become records, moved and missing ones are named, with a tree like the AI Factory's."""

import hashlib
import json
import os
import re
import shutil

import pytest
from ebsif.catalog import reading, site
from ebsif.images import inspection
from ebsif.scan.comparison import stated_beside
from support import CHECKOUT

# as of November 2026: whoever adds a record to the catalog need not change these tests
LUMI = CHECKOUT / "tests/data/lumi-multitorch.yaml"
OLD = [f"u24r64f21m43t29-{date}" for date in ("20251209_134408", "20260124_092648", "20260216_093549")]
OLD += [f"u24r64f21m43t29-{date}" for date in ("20260225_144743", "20260319_153422")]
OLD += [f"u24r70f21m50t210-{date}" for date in ("20260415_130625", "20260513_121430", "20260807_115122")]
# its record
LAST = "oci, version: 2.10, date: 20260807_115122"
NEW = "u24r71f22m50t211-20261101_120000"
PACKAGES = {"apt": [{"name": "libc6", "version": "2.39"}], "pip": [{"name": "torch", "version": "2.11.0"}]}


class Place:
    """A site like LUMI, with releases like the AI Factory's, and a catalog of its own."""

    def __init__(self, folder, ebsif):
        self.folder, self.releases, self.stable = folder, folder / "releases", folder / "stable"
        self.ebsif = ebsif
        self.catalog = folder / "own/mine/containers/lumi-multitorch.yaml"
        self.catalog.parent.mkdir(parents=True)
        for name in ("stable", "links"):
            (folder / name).mkdir()
        text = LUMI.read_text().replace("/appl/local/laifs/containers", str(self.releases))
        # the SHA256 of the real one
        self.catalog.write_text("".join(line for line in text.splitlines(keepends=True) if "sha256:" not in line))
        self.write_profile()
        for release in OLD:
            self.release(release, stated=False)

    def write_profile(self, more=""):
        """Write the profile, with more fields of `images`."""
        (self.folder / "own/mine/site.yaml").write_text(
            f"name: mine\ndescription: x\nimages:\n  root: {self.folder}\n  directories:\n    - {{path: stable}}\n"
            f"    - {{path: links, stability: moving}}\n{more}"
        )

    def release(self, release, kinds=("full", "torch"), stated=True):
        """Make a release with images of some kinds, and what the AI Factory writes beside them, unless not `stated`."""
        folder = self.releases / f"lumi-multitorch-{release}"
        folder.mkdir(parents=True)
        for kind in kinds:
            image = folder / f"lumi-multitorch-{kind}-{release}.sif"
            image.write_text(image.name)
            if stated:
                self.state(image)
        return folder

    @staticmethod
    def state(image):
        """Write SHA256 and packages of an image beside it."""
        image.with_suffix(".md").write_text(
            f"# Container Image {image.stem}\n\n## Files\n\n{'0' * 64}  {image.stem}.json\n"
            f"{hashlib.sha256(image.name.encode()).hexdigest()}  {image.name}\n"
        )
        image.with_suffix(".json").write_text(json.dumps(PACKAGES))

    def scan(self, *arguments, status=1):
        """Run the command; return what it has printed."""
        return self.ebsif("scan", "--site", "mine", "--catalog", self.folder / "own", *arguments, status=status)

    def replace(self, text, new):
        """Change a record in the catalog."""
        before = self.catalog.read_text()
        assert text in before
        self.catalog.write_text(before.replace(text, new))


def look(path, checksum=True):
    """Stand for an inspection of an image."""
    if "damaged" in path.read_text():
        raise inspection.InspectionError(f"{path} is not a SIF file: no magic")
    python, paths = inspection.Python("3.12.3", "/opt/venv", "/usr"), (str(path), str(path.resolve()))
    return inspection.Inspection(*paths, size=path.stat().st_size, python=python, init="venv-in-image")


@pytest.fixture
def place(tmp_path, monkeypatch, ebsif):
    """A site whose catalog has all images."""
    monkeypatch.setattr(inspection, "inspect", look)
    monkeypatch.setattr(inspection, "programs", lambda _, names: set(names))
    monkeypatch.setattr(site, "SITES", tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, ebsif)


def test_nothing_differs(place):
    """R-05: status 0 and one line; images in other formats and files beside them are no images."""
    (place.stable / "README.md").touch()
    assert place.scan(status=0) == ("", "the catalog of mine has all images\n")
    assert json.loads(place.scan("--json", status=0).out) == {"records": [], "findings": []}


def test_a_new_release_becomes_complete_records(place):
    """R-05: shown as a diff and then written without a question or mark for review; comments and other records stay."""
    place.release(NEW, ["rocm", "libfabric", "mpich", "torch", "full"])
    before = place.catalog.read_text()
    shown = "".join(place.scan())
    assert place.catalog.read_text() == before
    added = "".join(line[1:] for line in shown.splitlines(keepends=True) if line.startswith("+ "))
    digest = hashlib.sha256(f"lumi-multitorch-full-{NEW}.sif".encode()).hexdigest()
    size = len(f"lumi-multitorch-full-{NEW}.sif")
    assert added.startswith(
        "  - family: oci-full\n    version: 2.11\n    date: 20261101_120000\n"
        "    components: {rocm: 7.1, libfabric: 2.2, torch: 2.11}\n"
        f"    sha256: {digest}\n    size: {size}\n  - family: oci\n    version: 2.11\n"
    )
    assert "review" not in added
    # 'ignored' of the family leaves the others out
    assert not any(f"lumi-multitorch-{kind}" in shown for kind in ("rocm", "libfabric", "mpich"))
    assert f"2 new records; to write: ebsif scan --site mine --catalog {place.folder}/own --write\n" in shown
    # `ebsif scan --write && ebsif render` renders
    command = f"Next: ebsif render --site mine --catalog {place.folder}/own && ebsif check --deep --site mine "
    assert command in place.scan("--write", status=0).err
    assert place.catalog.read_text() == before + added
    records = reading.read(site.read("mine", [place.folder / "own"]), place.folder / "own/mine")
    assert records[-2].module == "lumi-multitorch/2.11-rocm-7.1-full-20261101_120000"
    assert place.scan("--quiet", status=0).out == ""


def test_json_has_records_and_findings(place):
    """R-05: for programs."""
    place.release(NEW)
    (place.stable / "other-1.0.sif").touch()
    found = json.loads(place.scan("--json").out)
    assert [one["record"]["family"] for one in found["records"]] == ["oci-full", "oci"]
    (finding,) = found["findings"]
    assert (finding["level"], finding["path"]) == ("warning", str(place.stable / "other-1.0.sif"))
    assert "no family has images with such names" in finding["text"]
    place.write_profile("  ignored: [other-*]\n")
    assert json.loads(place.scan("--json").out)["findings"] == []


def test_moved_and_missing_images(place):
    """R-05: which record, where its image was, where it is, and what to do."""
    first, second = (place.releases / f"lumi-multitorch-{release}" for release in OLD[:2])
    first.rename(place.releases / "old")
    shutil.rmtree(second)
    place.replace(LAST, f"{LAST}, size: 1")
    place.replace("oci, version: 2.10, date: 20260513_121430", "oci, version: 2.10, date: 20260513_121430, size: 99")
    said = place.scan().out
    for kind in ("full", "torch"):
        assert (
            f"lumi-multitorch/2.9-rocm-6.4-{kind}-20251209_134408: its image lumi-multitorch-{kind}-{OLD[0]}.sif "
            f"was moved from {first} to {place.releases}/old: add that directory" in said
        )
        assert (
            f"lumi-multitorch/2.9-rocm-6.4-{kind}-20260124_092648: its image lumi-multitorch-{kind}-{OLD[1]}.sif "
            f"is no longer in {second}: bring it back, or archive the record" in said
        )
    assert "lumi-multitorch/2.10-rocm-7.0-torch-20260807_115122: its image " in said
    assert "was replaced: it has 58 bytes, not 1. Put the right one there, " in said
    assert "was truncated: it has 58 bytes, not 99. Put" in said
    # signing adds to a file
    assert said.count("if it was only signed, correct 'sha256' and 'size'") == 1
    assert said.count("warning: ") == 6
    # an archived one is of no interest
    place.replace("history: a preview", "archived: true")
    assert "20251209" not in place.scan().out


def test_an_image_with_another_name(place):
    """R-05: an image that has got another name is gone under the earlier one; the new record names that as its copy."""
    image = place.releases / f"lumi-multitorch-{OLD[7]}/lumi-multitorch-torch-{OLD[7]}.sif"
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    place.replace(LAST, f"{LAST}, sha256: {digest}")
    renamed = image.with_name(image.name.replace("20260807", "20260808"))
    image.rename(renamed)
    renamed.parent.rename(str(renamed.parent).replace("20260807", "20260808"))
    renamed = type(renamed)(str(renamed).replace("20260807", "20260808"))
    said = place.scan().out
    assert f"its image {image.name} is no longer in {image.parent}" in said
    assert f"{renamed}: note: is a copy of {image.name}, the image of lumi-multitorch/2.10" in said


def test_another_sha256_in_the_release(place):
    """R-05: the release states another SHA256 than the record; nothing has to be read for that."""
    place.replace(LAST, f"{LAST}, sha256: {'1' * 64}")
    place.state(place.releases / f"lumi-multitorch-{OLD[7]}/lumi-multitorch-torch-{OLD[7]}.sif")
    assert "states another SHA256 for its image than the record, " in place.scan().out


def test_a_record_without_a_sha256(place):
    """R-05: what the release states is named, to be written into the record."""
    image = place.releases / f"lumi-multitorch-{OLD[7]}/lumi-multitorch-full-{OLD[7]}.sif"
    place.state(image)
    stated = f"{image.with_suffix('.md')} states {hashlib.sha256(image.name.encode()).hexdigest()}\n"
    record = "note: lumi-multitorch/2.10-rocm-7.0-full-20260807_115122: the record has no SHA256; "
    assert record + stated in place.scan(status=0).out


def test_values_below_their_keys(place):
    """A record in another form of YAML, whose SHA256 a release states, is read, and others are added to it."""
    text = place.catalog.read_text()
    below = re.sub(
        r"\{family: (oci-full), version: (\S+), date: (20260807_115122)\}",
        r"family:\n      \1\n    version:\n      \2\n    ? date\n    : \3",
        text,
    )
    assert below != text
    place.catalog.write_text(below)
    place.state(place.releases / f"lumi-multitorch-{OLD[7]}/lumi-multitorch-full-{OLD[7]}.sif")
    place.release(NEW)
    assert "the record has no SHA256" in place.scan("--write", status=0).out
    after = place.catalog.read_text()
    assert after.startswith(below) and "20261101" in after[len(below) :]


def test_what_a_link_stands_for(place):
    """R-12: a link that moves names its target, its SHA256 and record; the record is that of the target."""
    folder = place.release(NEW)
    target = folder / f"lumi-multitorch-full-{NEW}.sif"
    (place.releases / "lumi-multitorch-latest.sif").symlink_to(target.relative_to(place.releases))
    (place.folder / "links/broken.sif").symlink_to("nothing.sif")
    (place.folder / "links/round.sif").symlink_to("round.sif")
    (place.folder / "links/file.sif").touch()
    said = place.scan().out
    digest = hashlib.sha256(target.name.encode()).hexdigest()
    assert (
        f"{place.releases}/lumi-multitorch-latest.sif: note: is a link to {target}, of "
        f"lumi-multitorch/2.11-rocm-7.1-full-20261101_120000 (SHA256 {digest}). The link can change" in said
    )
    for name in ("broken", "round"):
        assert f"links/{name}.sif: warning: is a link to " in said
    assert "links/file.sif: note: was skipped: a plain file in a directory of links that change" in said
    assert "latest" not in "".join(line for line in said.splitlines() if line.startswith("+"))


def test_what_can_t_be_read_hides_nothing(place, monkeypatch):
    """R-05: a directory that can't be read, a missing one, and a damaged image are named; the new record is there."""
    folder = place.release(NEW)
    (folder / f"lumi-multitorch-torch-{NEW}.sif").write_text("damaged")
    closed = place.releases / f"lumi-multitorch-{OLD[0]}"
    scandir, access = os.scandir, os.access

    def refuse(path):
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and access(path, mode))
    place.stable.rmdir()
    said = place.scan().out
    assert f"{place.stable}: warning: does not exist on this machine\n" in said
    assert f"{closed}: warning: can't be read (Permission denied), so its images are unknown: run `chmod u+rX " in said
    assert f"lumi-multitorch-torch-{NEW}.sif: warning: is not in the catalog" in said
    assert "is not a SIF file: no magic" in said
    assert said.count("+  - family: ") == 1
    assert "is no longer in" not in said


def test_nothing_to_compare_with(place):
    """R-05: on another machine without the directories the command fails instead of reporting everything as missing."""
    for path in (place.stable, place.folder / "links", place.releases):
        path.rename(place.folder / f"no-{path.name}")
    assert "no directory with images of mine can be read here" in place.scan(status=3).err


def test_records_to_complete_by_hand(place):
    """R-05: a record that can't be written is shown as it can be pasted, whatever the reason; the rest isn't hidden."""
    folder = place.release(f"u26{OLD[7][3:]}", ["full"])
    said = place.scan().out
    (twin,) = folder.glob("*.sif")
    assert f"{twin}: warning: is not in the catalog, and can't be added: the module would be " in said
    record = "  - family: oci-full\n    version: 2.10\n    date: 20260807_115122\n    components: {ubuntu: 26}\n"
    assert f"Give it a 'label' of its own by hand, in {place.catalog}:\n{record}    sha256: " in said
    place.release(NEW)
    text = place.catalog.read_text()
    place.catalog.write_text(text.removeprefix("name: lumi-multitorch\n") + "name: lumi-multitorch\n")
    for options in ((), ("--write",)):
        said = place.scan(*options).out
        assert "so add this record by hand:\n  - family: oci-full\n    version: 2.11\n" in said
        assert "\n  - family: oci\n    version: 2.11\n" in said
        assert record in said and "new record" not in said


@pytest.mark.parametrize(
    ("name", "text", "stated"),
    [
        ("a.md", "DIGEST  a.sif\n", True),
        ("a.sif.sha256", "DIGEST *a.sif\n", True),
        ("SHA256SUMS", "DIGEST  ./a.sif\n", True),
        ("sha256sum.txt", "DIGEST  x/a.sif\n", True),
        ("a.md", "DIGEST  b.sif\nDIGEST a.sif\n", False),
        ("a.txt", "DIGEST  a.sif\n", False),
        ("a.md", "DIGEST  a.sif\n" + "1" * 64 + "  a.sif\n", False),
    ],
)
def test_sha256_stated_by_a_release(tmp_path, name, text, stated):
    """R-05: lines of sha256sum in the usual files; two that disagree say nothing."""
    digest = "0123456789abcdef" * 4
    (tmp_path / name).write_text(text.replace("DIGEST", digest))
    found = stated_beside(tmp_path / "a.sif")
    assert (found and found.sha256) == (digest if stated else None)
