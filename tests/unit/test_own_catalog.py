"""Modules for images where they lie: whose catalog gets the record, and what it says of the image."""

import dataclasses
import functools
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from ebsif import cli
from ebsif.catalog import reading, schema, selection, settings, site
from ebsif.catalog.guess.adding import guess_name
from ebsif.catalog.stages import stages_of
from ebsif.eb import framework
from ebsif.environments import extension
from ebsif.images import inspection
from ebsif.render import easyconfig
from prefixes import SITE, TOOL

OWN = "data/ebsif/catalog/mine/containers"


def look(path, checksum=True):
    """Stand for an inspection of an image."""
    if "damaged" in path.read_text():
        raise inspection.InspectionError(f"{path} is not a SIF file: no magic")
    return inspection.Inspection(path=str(path), resolved=str(path.resolve()), size=path.stat().st_size, init="none")


@pytest.fixture
def place(tool_site, monkeypatch):
    """A project with one site, an account without any catalog, and a directory with images."""
    monkeypatch.setattr(inspection, "inspect", look)
    monkeypatch.setattr(inspection, "programs", lambda _, names: set(names))
    monkeypatch.setattr(framework, "source_paths", lambda: [str(tool_site / "sources")])
    for folder in ("images", "sources", "site"):
        (tool_site / folder).mkdir()
    return tool_site


def image(place, name, folder="images"):
    """Write an image; return its path."""
    path = place / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(name)
    return str(path)


def parameters(place, name):
    """Return the parameters of the easyconfig of the newest record with a name."""
    chosen = settings.read_settings()
    return easyconfig.parameters(selection.find_one(chosen.containers(chosen.site()), name))


def test_a_record_of_ones_own(place, ebsif):
    """V-08: without a catalog, the record is the account's, extends that of the site, and is what its name means."""
    path = image(place, "other-tool-9.0.sif")
    said = ebsif("add", path, "--name", "Tool")
    assert f"{path}: the module uses the image where it is; nothing is copied\n" in said.err
    install = "install it with: ebsif install Tool/9.0"
    assert said.err.endswith((f"{install} --site mine\n", f"{install}\n"))
    text = (place / OWN / "Tool.yaml").read_text()
    # the families of the site are made for other images
    begin = "name: Tool\nextends: true\nfamilies:\n  tool-own:\n    file: other-tool-{version}.sif\n"
    assert text.partition("\n")[2].startswith(begin)
    assert (place / "data/ebsif/easyconfigs/t/Tool/Tool-9.0.eb").is_file()
    assert sorted(one.name for one in place.iterdir()) == ["data", "images", "project", "site", "sources"]
    # its easyconfig is written when it is installed
    said = ebsif("check", "--quick", status=1).out
    assert "Tool-1.0.eb does not exist" in said and "Tool-9.0.eb" not in said
    # the next one gets the same family, and an older version is the account's nevertheless
    assert cli.main(["add", image(place, "other-tool-0.5.sif")]) == 0
    assert "  - family: tool-own\n    version: 0.5\n" in (place / OWN / "Tool.yaml").read_text()
    _, *lines = ebsif("list", "tool").out.splitlines()
    assert [line.split()[0] for line in lines] == ["Tool/9.0", "Tool/1.0", "Tool/0.5"]
    (place / "project/mine/containers/Tool.yaml").write_text(TOOL.replace("1.0}", "10.0, date: 20260101}"))
    assert "install         ebsif install Tool/9.0\n" in ebsif("show", "Tool").out


def test_the_name_of_the_catalog_before_0_4(place, ebsif):
    """N-03: a catalog at its place of 0.3.0 isn't read, and a command that misses it says how to move it."""
    assert cli.main(["add", image(place, "other-tool-9.0.sif"), "--name", "Tool"]) == 0
    own = site.own_catalog()
    earlier = own.rename(own.with_name("catalogue"))
    settings.say_once.cache_clear()
    said = ebsif("list", "Tool/9.0", status=3).err
    assert f"your catalog has another name since 0.4.0: `mv {earlier} {own}`\n" in said
    earlier.rename(own)
    assert "another name" not in ebsif("list", "Tool/9.0").err


def test_where_records_go(place):
    """V-08: a catalog that is named gets the record, a configured one if it can be written, else the account's."""
    (place / "config/ebsif").mkdir(parents=True)
    (place / "config/ebsif/config.yaml").write_text(f"catalogs: [{place}/site]\n")
    assert settings.read_settings().catalog == place / "site"
    (place / "site").chmod(0o500)
    assert settings.read_settings().catalog == place / "data/ebsif/catalog"
    assert settings.read_settings(None, [place / "site"]).catalog == place / "site"
    (place / "site").chmod(0o700)
    # it is read first, but isn't what `ebsif check` or `ebsif site init` mean by one's own
    (place / "data/ebsif/catalog").mkdir(parents=True)
    read = settings.read_settings()
    assert read.directories == (place / "data/ebsif/catalog", place / "site", site.SITES)
    assert read.own_directories == [place / "site"]


@pytest.mark.parametrize(
    ("profile", "folder", "family", "expected"),
    [
        # nobody says it: where it is, unless EasyBuild finds the image
        ("", "images", "", ("central", ["images"])),
        ("", "sources", "", (None, None)),
        # site or family say it
        ("image: own\n", "images", "", ("own", ["images"])),
        ("image: central\nimages: {directories: [{path: IMAGES}]}\n", "images", "", ("central", ["images"])),
        ("image: own\n", "images", "image: reference, ", ("reference", ["images"])),
    ],
)
def test_what_the_record_says_of_the_image(place, profile, folder, family, expected):
    """V-08: own, central or reference is data of site and record; a record of one's own says where the image is."""
    (place / "project/mine/site.yaml").write_text(SITE + profile.replace("IMAGES", str(place / "images")))
    (place / "project/mine/containers/Tool.yaml").write_text(TOOL.replace("tool: {", f"tool: {{{family}"))
    assert cli.main(["add", image(place, "tool-2.0.sif", folder)]) == 0
    written = parameters(place, "Tool")
    kind, folders = expected
    # 'own' is the default of the easyblocks
    assert written.get("image") == (None if kind == "own" else kind)
    assert written.get("image_dirs") == (folders and [str(place / one) for one in folders])
    text = (place / OWN / "Tool.yaml").read_text()
    assert ("image: central" in text) == (not profile and folder == "images")
    assert ("images:" in text) == (folder == "images" and "directories" not in profile)


def test_the_image_of_a_site_stays_where_it_is(place):
    """V-08: the profile says it once for all records of a site; extensions don't copy it either."""
    (place / "site/mine/containers").mkdir(parents=True)
    where = f"images: {{directories: [{{path: {place}/images}}]}}"
    (place / "site/mine/site.yaml").write_text(f"{SITE}image: central\nextension_image: own\n{where}\n")
    (place / "site/mine/containers/Tool.yaml").write_text(TOOL.replace("init: none", "init: image, venv: true"))
    chosen = settings.read_settings(None, [place / "site"])
    (container,) = chosen.containers(chosen.site())
    assert easyconfig.parameters(container)["image"] == "central"
    wish = extension.Extension(container, "mine", stages=stages_of(["x"]))
    assert extension.extend(wish, "1").image == "central"


def test_a_directory_of_images(place, ebsif):
    """V-08: a record for each image below a directory, with what its release states; what can't be added is named."""
    for number, name in enumerate(("tool-2.0", "tool-10.0", "new_thing-1.5", "20260101")):
        # images of Singularity end in .simg, too
        end = "simg" if name.startswith("new") else "sif"
        path = Path(image(place, f"{name}.{end}", f"images/release-{number}"))
        path.with_suffix(".md").write_text(f"{'a' * 63}{number}  {path.name}\n")
        path.with_suffix(".json").write_text(json.dumps({"pip": [{"name": "torch", "version": "2.11.0"}]}))
    (place / "images/broken-1.0.sif").write_text("damaged")
    (place / "images/latest.sif").symlink_to("release-0/tool-2.0.sif")
    said = ebsif("add", "images", status=3)
    assert "ebsif: images/broken-1.0.sif: " in said.err and "no magic" in said.err
    assert "ebsif: images/release-3/20260101.sif: no family of the catalog has images named like" in said.err
    assert "5 images checked, new ones added; to install all modules: ebsif install --all" in said.err
    records = reading.read(site.read("mine", [site.SITES]), place / "data/ebsif/catalog/mine", site.SITES / "mine")
    own = {one.module: one for one in records if one.is_own}
    assert list(own) == ["Tool/2.0", "Tool/10.0", "new/1.5"]
    assert [one.sha256[-1] for one in own.values()] == ["0", "1", "2"]
    assert [str(path) for _, path in own["Tool/10.0"].image_places] == [str(place / "images/release-1/tool-10.0.sif")]
    # a second time, nothing changes
    before = {path: path.read_text() for path in (place / OWN).glob("*.yaml")}
    (place / "images/broken-1.0.sif").unlink()
    (place / "images/release-3/20260101.sif").unlink()
    for path in (place / "images").rglob("*-*.s*"):
        path.with_suffix(".md").unlink()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        (record,) = (one for one in own.values() if one.file_name == path.name)
        catalog = place / OWN / f"{record.name}.yaml"
        before[catalog] = before[catalog].replace(record.sha256, digest)
        catalog.write_text(before[catalog])
    assert cli.main(["add", "images"]) == 0
    assert {path: path.read_text() for path in (place / OWN).glob("*.yaml")} == before
    (place / "empty").mkdir()
    shown = ebsif("add", "empty", status=3).err
    assert "there are no images below empty: only files named *.sif or *.simg count, not links" in shown
    assert cli.main(["add", "images", "--version", "1"]) == 2


def test_updating_ones_own(place, ebsif):
    """V-08: new images of the site's families become records of one's own, to be installed with one command."""
    (place / "project/mine/site.yaml").write_text(f"{SITE}images: {{directories: [{{path: {place}/images}}]}}\n")
    for version in ("1.0", "2.0"):
        image(place, f"tool-{version}.sif")
    image(place, "other-1.0.simg")
    said = ebsif("scan", "--write", status=1)
    assert "written: 1 new record. Next: ebsif install --all\n" in said.err and "other-1.0.simg" in said.out
    assert parameters(place, "Tool")["image"] == "central"


def test_a_directory_as_of_the_ai_factory(place, monkeypatch):
    """V-08: releases with NAME.md and NAME.json beside each image, at another place than LUMI's, of LUMI's families."""
    monkeypatch.setattr(site, "SITES", Path(reading.__file__).parent / "sites")
    monkeypatch.setenv("EBSIF_SITE", "lumi")
    release = "u24r71f22m50t211-20261101_120000"
    for kind in ("full", "torch"):
        path = Path(image(place, f"lumi-multitorch-{kind}-{release}.sif", f"images/lumi-multitorch-{release}"))
        path.with_suffix(".md").write_text(f"# Files\n\n{kind[0].encode().hex() * 32}  {path.name}\n")
        path.with_suffix(".json").write_text(json.dumps({"pip": [{"name": "torch", "version": "2.11.0"}]}))
    python = inspection.Python("3.12.3", "/opt/venv", "/usr")
    found = functools.partial(dataclasses.replace, init="venv-in-image", python=python)
    monkeypatch.setattr(inspection, "inspect", lambda path, checksum=True: found(look(path)))
    assert cli.main(["add", "images"]) == 0
    text = (place / "data/ebsif/catalog/lumi/containers/lumi-multitorch.yaml").read_text()
    folder = f"{place}/images/lumi-multitorch-{release}"
    for kind in ("full", "torch"):
        written = parameters(place, f"lumi-multitorch/2.11-rocm-7.1-{kind}-20261101_120000")
        assert written["checksums"] == [kind[0].encode().hex() * 32]
        assert (written["image"], written["image_dirs"]) == ("central", [folder])
    assert text.partition("\n")[2].startswith("name: lumi-multitorch\nextends: true\ncontainers:\n  - family: rocm-")
    assert text.count("    components: {rocm: 7.1, libfabric: 2.2}\n") == 2 and "review" not in text


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("pytorch.sif", "PyTorch"),
        ("PYTORCH_2.5.sif", "PyTorch"),
        ("lumi-multitorch-full-u24r70.sif", "lumi-multitorch"),
        ("tensorflow2.sif", "TensorFlow"),
        ("julia-1.10.sif", "julia"),
        ("my-tool.sif", "My-Tool"),
        ("2026.sif", None),
    ],
)
def test_the_name_of_the_software(file_name, expected):
    """V-08: the file name tells it, as the project's catalogs or that of the site spell it."""
    assert guess_name(file_name, ["My-Tool"]) == expected


def test_an_image_that_was_moved(place, ebsif):
    """An image in place is moved: a module wouldn't find it, so the record has to be corrected first."""
    path = Path(image(place, "new-tool-9.0.sif"))
    assert cli.main(["add", str(path), "--name", "New"]) == 0
    moved = Path(image(place, path.name, "elsewhere"))
    path.unlink()
    said = ebsif("add", str(moved), "--name", "New", status=3).err
    record = place / OWN / "New.yaml"
    remedy = f"move it back, or correct the directory (`images`) in {record}:"
    assert f"{moved} isn't where the module looks for it ({path.parent}): {remedy}" in said
    record.write_text(record.read_text().replace(str(path.parent), str(moved.parent)))
    assert "--sourcepath" not in ebsif("add", str(moved), "--name", "New").err


def test_editors_are_led_to_the_schema(place, capsys):
    """New files of `site init`, `add` and `scan` name the schema beside them, in any clone; it is renewed."""
    catalog = place / "data/ebsif/catalog"
    (place / "project/mine/site.yaml").write_text(f"{SITE}images: {{directories: [{{path: {place}/images}}]}}\n")
    image(place, "tool-2.0.sif")
    add = ["add", image(place, "one-1.0.sif", "others")]
    for command in (["scan", "--write"], add, ["site", "init", "new", "--catalog", str(catalog)]):
        assert cli.main(command) in (0, 1), capsys.readouterr().err
    files = {path.name: path for path in catalog.rglob("*.yaml")}
    assert len(files) == 3, files
    clone = catalog.rename(place / "clone")
    for path in clone.rglob("*.yaml"):
        line = path.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        name = "site" if path.name == "site.yaml" else "containers"
        assert (path.parent / line).resolve() == clone / f".ebsif-schemas/{name}.json", line
    # of an earlier ebsif
    for path in clone.glob(".ebsif-schemas/*"):
        path.write_text("{}")
    image(place, "one-1.1.sif")
    assert cli.main(["add", str(place / "images/one-1.1.sif"), "--site", "mine", "--catalog", str(clone)]) == 0
    for path in clone.glob(".ebsif-schemas/*"):
        assert path.read_text() == (schema.FOLDER / path.name).read_text()
    # whoever removes them doesn't get them again
    shutil.rmtree(clone / ".ebsif-schemas")
    image(place, "one-1.2.sif")
    assert cli.main(["add", str(place / "images/one-1.2.sif"), "--site", "mine", "--catalog", str(clone)]) == 0
    assert not (clone / ".ebsif-schemas").exists()
