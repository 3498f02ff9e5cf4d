"""Environments of modules in registries and directories: `ebsif push` and `pull`, with the real eb and registry."""

import json
import re
import shutil
import subprocess

import pytest
from crates import problems
from parts import Installed, example_site, part
from registry import ACCOUNT, PASSWORD
from support import printed, record_of

MODULE = Installed.SQUASHED


@pytest.fixture
def mine(installed_once, tmp_path):
    """The site of somebody with packages of their own."""
    (tmp_path / "mine").mkdir()
    return installed_once.copy(tmp_path / "mine", MODULE)


@pytest.fixture
def theirs(installed_once, tmp_path):
    """Another site, with the same image in another module, and without any index for packages."""
    (tmp_path / "theirs").mkdir()
    return installed_once.copy(tmp_path / "theirs", Installed.WRITABLE)


def ebsif(site, *words, check=True, **environment):
    """Run ebsif at a site; return the CompletedProcess."""
    environment = {"EASYBUILD_PREFIX": site.prefix / "eb", "HOME": site.home, "PIP_NO_INDEX": "1", **environment}
    return site.run(["ebsif", *words], check, **environment)


def test_pushed_here_and_pulled_elsewhere(mine, theirs, registry):
    """R-06: the other site's module has the same bytes, without an index; the base is in the annotations."""
    name = f"oras://{registry.host}/group/mine:1"
    pushed = ebsif(mine, "push", MODULE, name, "--license", "MIT")
    line, advice = pushed.stdout.strip(), pushed.stderr.splitlines()[-1]
    digest = re.fullmatch(rf"{re.escape(name)}@(sha256:[0-9a-f]{{64}})", line).group(1)
    assert advice == f"others install it with: ebsif pull {name}"
    assert "pushing user software" in pushed.stderr
    # the same again is the same
    assert digest in ebsif(mine, "push", MODULE, name, "--license", "MIT").stdout
    said = ebsif(mine, "push", MODULE, name).stderr
    assert f"{name} pointed to another environment until now; it can still be pulled by its digest: {line}\n" in said
    root = mine.root(MODULE)
    record = record_of(root)
    command = [part("EBSIF_TEST_ORAS"), "manifest", "fetch", "--plain-http", f"{registry.host}/group/mine@{digest}"]
    seen = json.loads(printed(command))
    prefix = "org.opencontainers.image."
    assert {key.removeprefix(prefix): value for key, value in seen["annotations"].items()} == {
        "title": MODULE,
        "version": "1.0-squashed",
        "licenses": "MIT",
        "created": seen["annotations"][f"{prefix}created"],
        "base.name": "example.sif",
        "base.digest": f"sha256:{record['image']['sha256']}",
    }
    expected = ["user-software.squashfs", "lock.json", "sbom.cdx.json", "Example-1.0-squashed.eb"]
    assert [one["annotations"][f"{prefix}title"] for one in seen["layers"]] == expected

    said = ebsif(theirs, "pull", f"{name}@{digest}", "--name", "theirs", "--date", "1", "--", *theirs.eb_options)
    module = "Example/1.0-writable-theirs-1"
    assert " module load Example/theirs\n" in said.stderr, said.stdout + said.stderr
    copy = theirs.root(module)
    assert (copy / "user-software.squashfs").read_bytes() == (root / "user-software.squashfs").read_bytes()
    again = record_of(copy)
    for key in ("stages", "venv_packages", "artifacts", "venv_name", "user_software", "image_packages"):
        assert again[key] == record[key], key
    script = "singularity exec $SIF python -c 'import greeting; print(greeting.__file__)'"
    used = theirs.bash(f"module load {module}; {script}").stdout
    assert used.startswith("/user-software/venv/pytorch/")
    ebsif(theirs, "pull", f"{name}@{digest}", "--name", "theirs", "--date", "1", "-o", theirs.work)
    # a file that was altered meanwhile is refused before anything is done
    squashfs = theirs.work / f"{module.replace('/', '-')}.squashfs"
    before = squashfs.read_bytes()
    squashfs.write_bytes(before + b"x")
    failed = theirs.eb(squashfs.with_suffix(".eb"), "--rebuild", check=False)
    assert f"{squashfs.name} is not the user software of the lock" in failed.stdout + failed.stderr
    squashfs.write_bytes(before)
    # EasyBuild's copy of the easyconfig needs neither file
    theirs.eb(copy / "easybuild" / f"{squashfs.stem}.eb", "--rebuild")
    assert (copy / "user-software.squashfs").read_bytes() == (root / "user-software.squashfs").read_bytes()
    # what the installation needed goes, what was asked for with -o stays
    kept = sorted(theirs.work.iterdir())
    ebsif(theirs, "remove", "theirs", "--yes")
    assert sorted(theirs.work.iterdir()) == kept
    assert not list((theirs.home / ".local/share/ebsif").rglob("*theirs*"))


def test_a_directory_instead_of_a_registry(mine, theirs, tmp_path, base_image):
    """R-08, R-06: all of it without a network; with another image it is refused, and the lock is written."""
    place = tmp_path / "to carry"
    pushed = ebsif(mine, "push", MODULE, f"oci:{place}:mine")
    # as it can be typed
    assert pushed.stderr.splitlines()[-1] == f"others install it with: ebsif pull 'oci:{place}:mine'"
    moved = shutil.move(place, tmp_path / "arrived")
    (moved / "blobs/sha256/unrelated").write_text("")
    said = ebsif(theirs, "pull", f"oci:{moved}", "--name", "theirs", "--check")
    *packages, verdict = said.stdout.splitlines()
    advice = said.stderr.splitlines()[-1]
    assert packages == ["+ greeting 1.0  asked for", "+ hello 1.0     dependency"]
    assert verdict == "yes: Example/theirs can be installed: 2 packages"
    assert advice == f"install it with: ebsif pull oci:{moved} --name theirs"
    assert not list(theirs.work.iterdir())
    said = ebsif(theirs, "pull", f"oci:{moved}:mine", check=False, cwd=theirs.work)
    assert "Example/1.0-squashed has no name of an extension: choose one with --name" in said.stderr

    (tmp_path / "other").mkdir()
    other = example_site(tmp_path / "other", base_image)
    failed = ebsif(other, "pull", f"oci:{moved}:mine", "--name", "theirs", "-o", other.work, check=False)
    assert failed.returncode == 3
    lock = other.work / "Example-1.0-squashed.lock.json"
    expected = "the image example.sif of Example/1.0-squashed is neither in an installed module nor in the catalog"
    assert expected in failed.stderr
    assert f"ebsif extend CONTAINER --from-lock {lock} --name theirs" in failed.stderr
    assert [one.name for one in other.work.iterdir()] == [lock.name]
    assert json.loads(lock.read_text())["venv_packages"] == ["greeting==1.0", "hello==1.0"]


def test_no_credential_is_shared(mine, private_registry, tmp_path):
    """R-09: the runtime's login is used, and no file of ours has it; a recorded credential stops the command."""
    name = f"oras://{private_registry.host}/group/mine:1"
    failed = ebsif(mine, "push", MODULE, name, check=False)
    assert failed.returncode == 3 and "apptainer registry login --username NAME" in failed.stderr
    command = ["apptainer", "registry", "login", "--username", ACCOUNT]
    mine.run([*command, "--password", PASSWORD, f"oras://{private_registry.host}"], HOME=mine.home)
    ebsif(mine, "push", MODULE, name)
    texts = [
        path.read_bytes()
        for path in (private_registry.place / "data").rglob("*")
        if path.is_file() and path.stat().st_size < 10**6
    ]
    assert len(texts) > 10
    assert not [text for text in texts if PASSWORD.encode() in text]
    record = mine.root(MODULE) / "share/ebsif/lock.json"
    content = json.loads(record.read_text())
    content["stages"][0]["env"] = {"HF_TOKEN": "hf_oneverysecrettoken"}
    record.write_text(json.dumps(content))
    for words in (["push", MODULE, f"oci:{tmp_path}/layout:1"], ["export", MODULE, "-o", tmp_path / "crate"]):
        failed = ebsif(mine, *words, check=False)
        assert failed.returncode == 3
        assert "'stages' in the record has a credential that would be given to others" in failed.stderr
        assert "oneverysecret" not in failed.stdout + failed.stderr
    assert not (tmp_path / "layout").exists()
    assert not (tmp_path / "crate").exists()


def test_what_can_not_be_pushed_or_pulled(mine, theirs, registry, tmp_path, base_image):
    """R-06: user software that may change, wrong references, an image instead of an environment: what to do."""
    failed = ebsif(theirs, "push", Installed.WRITABLE, f"oci:{tmp_path}/x:1", check=False)
    assert failed.returncode == 3
    assert re.search(r"is a directory, .*: pack it first \(.*module load \S+; make-squashfs\)", failed.stderr)
    assert not (tmp_path / "x").exists()
    for reference, expected in (
        ("docker://host.example/x:1", "write oras:// instead of docker://"),
        (f"oci:{tmp_path}/x", f"give a tag, and no digest: oci:{tmp_path}/x:1"),
        ("registry.example/x:1", "should be oras://HOST/PATH:TAG"),
    ):
        assert expected in ebsif(mine, "push", MODULE, reference, check=False).stderr
    (tmp_path / "file").write_text("x")
    name = f"{registry.host}/group/image:1"
    command = [part("EBSIF_TEST_ORAS"), "push", "--plain-http", name, "file:application/vnd.sylabs.sif.layer.v1.sif"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    failed = ebsif(theirs, "pull", f"oras://{name}", check=False)
    assert failed.stderr.endswith(
        f"ebsif: oras://{name} is not an environment that `ebsif push` has written: an image? `ebsif add "
        f"oras://{name}` adds it to the catalog\n"
    )


def test_a_crate_for_a_paper(mine, tmp_path):
    """R-07: the validator finds nothing missing."""
    content = mine.record(MODULE)
    crate = tmp_path / "crate"
    said = ebsif(mine, "export", MODULE, "-o", crate)
    assert said.stdout == f"{crate}/ro-crate-metadata.json\n"
    assert f"in {crate}: Example-1.0-squashed.eb, lock.json, sbom.cdx.json\n" in said.stderr
    assert "the crate states no license, but repositories ask for one: --license CC0-1.0" in said.stderr
    # the only problem is the one that is made here
    metadata = crate / "ro-crate-metadata.json"
    metadata.write_text(metadata.read_text().replace('"datePublished"', '"dateModified"'))
    (problem,) = problems(crate, tmp_path)
    assert "datePublished" in problem
    # C-04
    again = ("export", MODULE, "-o", crate, "--license", "CC0-1.0")
    assert "changed since (ro-crate-metadata.json)" in ebsif(mine, *again, check=False).stderr
    ebsif(mine, *again, "--overwrite")
    entities = {one["@id"]: one for one in json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]}
    assert entities["./"]["license"] == {"@id": "https://spdx.org/licenses/CC0-1.0"}
    assert entities["#image"]["identifier"] == f"sha256:{content['image']['sha256']}"
    assert entities["#module"]["softwareRequirements"] == ["greeting==1.0", "hello==1.0"]
    assert (
        {one["@id"] for one in entities["./"]["hasPart"]}
        == {"Example-1.0-squashed.eb", "lock.json", "sbom.cdx.json"}
        == {path.name for path in crate.glob("[!.]*")} - {"ro-crate-metadata.json"}
    )
