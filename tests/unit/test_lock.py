"""Reading and comparing the records of installations on the command line."""

import json
import os
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.record.lockfile import RECORD as RECORD_FILE
from easybuild.easyblocks.generic.container.record.lockfile import Record
from ebsif.cli import main
from ebsif.installed import compare
from ebsif.installed.sbom import bill_of_materials, package_url
from packageurl import PackageURL
from prefixes import BASE, MINE

SHA256 = "0123456789abcdef" * 4
RECORD = {
    "image": {"file": "a.sif", "sha256": SHA256, "source": "/a.sif"},
    "module": {"name": "PyTorch", "version": "2.0", "versionsuffix": "-x"},
    "artifacts": {"einops": {"file": "einops-1-py3-none-any.whl", "sha256": SHA256[::-1]}},
    "image_packages": ["numpy==1.0", "torch==2.0+cpu"],
    "venv_packages": ["einops==1", "gone==3"],
    "stages": [{"name": "requirements", "requirements": "einops\ngone\n"}],
    "local_files": {},
}
OTHER = {
    "image": {"file": "a.sif", "sha256": "2", "source": "/b.sif"},
    "image_packages": ["numpy==1.0", "torch==2.1+cpu"],
    "venv_packages": ["einops==1", "new==1"],
    "stages": [{"name": "requirements", "requirements": "einops\nnew\n"}],
    "local_files": {"/w/new.whl": "3"},
    "masks": {"/opt/x/*": {"paths": ["/opt/x/a"]}},
}


def problem(text):
    """Return what is wrong with a bill of materials, None if it follows the standard."""
    # take a second to import
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)


@pytest.fixture
def places(tmp_path):
    """An installation directory and a saved record."""
    folder = tmp_path / "installation" / "share" / "ebsif"
    folder.mkdir(parents=True)
    (folder / "lock.json").write_text(json.dumps(RECORD))
    (tmp_path / "other.json").write_text(json.dumps(OTHER))
    return str(tmp_path / "installation"), str(tmp_path / "other.json")


def test_what_comes_first_in_a_lock():
    """Module, image and versions come first, then the rest by name."""
    parts = {"module": {"name": "A"}, "stages": [], "versions": {"ebsif": "1"}}
    record = Record.parse(json.dumps({"artifacts": {}, "image": {"file": "a.sif"}, **parts}))
    keys = list(json.loads(record.text))
    assert keys[:3] == ["module", "image", "versions"] and keys[3:] == sorted(keys[3:])
    assert Record.parse(record.text).text == record.text


def test_differences(places, ebsif):
    """S000-18, S000-12: compare two installations: packages added, removed, changed; image; masks; local files."""
    assert set(ebsif("diff", *places, status=1).out.splitlines()) == {
        f"~ image sha256 {SHA256} -> 2",
        "~ image package torch 2.0+cpu -> 2.1+cpu",
        "- package gone 3",
        "+ package new 1",
        '+ mask /opt/x/* {"paths": ["/opt/x/a"]}',
        "+ local file /w/new.whl 3",
    }
    changes = json.loads(ebsif("diff", *places, "--json", status=1).out)
    assert {"kind": "package", "name": "new", "before": None, "after": "1"} in changes
    assert ebsif("diff", places[0], places[0]).out == "no differences\n"


def test_a_checksum_that_only_one_side_knows_is_no_difference():
    """An installation and its record in the catalog, which has no checksum, have the same image."""
    installed, record = {"image": {"file": "a.sif", "sha256": SHA256}}, {"image": {"file": "a.sif"}}
    assert not compare.compare(installed, record)
    assert not compare.compare(record, installed)
    assert len(compare.compare(installed, {"image": {"file": "b.sif", "sha256": "2"}})) == 2


def test_records_of_earlier_versions(places, ebsif):
    """Packages of images are compared only if both records have them; early records without a venv don't."""
    for known in ({"image_packages": RECORD["image_packages"]}, {}):
        Path(places[1]).write_text(json.dumps({"image": RECORD["image"], **known}))
        changes = ebsif("diff", *places, status=1).out
        assert "package einops" in changes and "image package" not in changes


def test_a_bill_of_materials(places, tmp_path):
    """S000-18: valid CycloneDX with the image and every package, and all that is known about them."""
    path = tmp_path / "sbom.json"
    assert main(["lock", places[0], "--format", "sbom", "-o", str(path)]) == 0
    text = path.read_text()
    assert problem(text) is None
    content = json.loads(text)
    assert content["bomFormat"] == "CycloneDX"
    components = {component["bom-ref"]: component for component in content["components"]}
    of_user_software = {"user-software:einops@1", "user-software:gone@3"}
    assert set(components) == {"image", "image:numpy@1.0", "image:torch@2.0+cpu", *of_user_software}
    assert components["image"]["hashes"] == [{"alg": "SHA-256", "content": SHA256}]
    assert components["image:torch@2.0+cpu"]["purl"] == "pkg:pypi/torch@2.0%2Bcpu"
    assert components["user-software:einops@1"]["hashes"] == [{"alg": "SHA-256", "content": SHA256[::-1]}]
    needed = ["image", "user-software:einops@1", "user-software:gone@3"]
    assert content["dependencies"][0] == {"ref": "module", "dependsOn": needed}


def test_a_file_with_other_content_stays(places, tmp_path, ebsif):
    """C-04: such a file is refused, with what to do; an empty one has nothing to lose."""
    path = tmp_path / "lock.json"
    path.touch()
    words = ["lock", places[0], "-o", str(path)]
    assert main(words) == main(words) == 0
    text = path.read_text()
    path.write_text(text + "mine")
    said = ebsif(*words, status=3).err
    assert "exists already, with different content: choose another name, or replace it with --overwrite" in said
    assert path.read_text() == text + "mine"
    assert main([*words, "--overwrite"]) == 0
    assert path.read_text() == text


def test_all_kinds_of_packages_are_in_the_bill_of_materials():
    """I-07: system packages, Conda packages, and what only /.sbom.json lists; the image's labels and signatures."""
    record = {
        **RECORD,
        "image": {**RECORD["image"], "signers": ["AB12", ""], "labels": {"org.x": "1"}},
        "system": {"distribution": "sles", "release": "15.6"},
        "system_packages": {"rpm": ["glibc==2.38-1"]},
        "conda_packages": {"/opt/conda": ["numpy==1.0"]},
        "image_list": {"pypi": ["numpy==1.0", "seen==9"]},
    }
    text = bill_of_materials(Record.from_content(record), 0)
    assert problem(text) is None
    content = json.loads(text)
    names = [component["bom-ref"] for component in content["components"]]
    assert " ".join(sorted(names)) == (
        "/opt/conda:conda:numpy@1.0 image image:numpy@1.0 image:rpm:glibc@2.38-1 image:seen@9 image:torch@2.0+cpu "
        "user-software:einops@1 user-software:gone@3"
    )
    properties = [(one["name"], one["value"]) for one in content["components"][0]["properties"]]
    signed = [("ebsif:signed-by", "AB12"), ("ebsif:signed-by", "unknown")]
    assert properties == [("ebsif:source", "/a.sif"), *signed, ("ebsif:label:org.x", "1")]


def test_system_packages_are_compared(places, capsys, ebsif):
    """I-07: system and Conda packages, if both records have them; `ebsif lock` says if a record has none."""
    other = {**RECORD, "system_packages": {"deb": ["libc6==2.37"]}, "conda_packages": {}}
    Path(places[1]).write_text(json.dumps(other))
    assert main(["diff", *places]) == 0
    record = Path(places[0], "share/ebsif/lock.json")
    record.write_text(json.dumps({**other, "system_packages": {"deb": ["libc6==2.36"]}}))
    assert ebsif("diff", *places, status=1).out == "~ system package libc6 2.36 -> 2.37\n"
    assert main(["lock", places[1]]) == 0 and capsys.readouterr().err == ""
    record.write_text(json.dumps(RECORD))
    assert main(["lock", places[0]]) == 0 and "earlier version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "name", "version"),
    [
        ("pypi", "Num_Py", "1.2"),
        ("pypi", "ruamel.yaml", "3!1"),
        ("conda", "_libgcc_mutex", "0.1"),
        ("deb", "g++", "4:12.2.0-3+b1~x"),
        ("rpm", "perl", "5.26-1"),
    ],
)
def test_package_urls(kind, name, version):
    """I-07: package URLs equal those of the packageurl library; epochs of RPM and architectures are qualifiers."""
    system = kind in ("deb", "rpm", "apk")
    expected = PackageURL(kind, "debian" if system else None, name, version, {"distro": "debian-12"} if system else {})
    assert package_url(kind, name, version, {"distribution": "debian", "release": "12"}) == str(expected)
    assert package_url("rpm", "perl", "4:5.26", {}) == str(PackageURL("rpm", None, "perl", "5.26", {"epoch": "4"}))
    assert package_url("deb", "c:i386", "2", {}) == str(PackageURL("deb", None, "c", "2", {"arch": "i386"}))


def test_options_that_do_not_fit_the_format(places, ebsif):
    """Wrong use is status 2: a name without an easyconfig, an easyconfig of a saved record."""
    for words, expected in (
        (["--name", "x", places[0]], "--format eb"),
        (["--format", "eb", places[1]], "needs an installed module"),
    ):
        assert expected in ebsif("lock", *words, status=2).err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "not an installation of a container module"),
        ("[]", "has no 'image'"),
        ("{", "not a lock, which `ebsif lock` writes (not JSON in line 1); get it again: whoever has the"),
        # from other people, or damaged
        *(
            (json.dumps({**RECORD, **values}), f"damaged: '{wrong}")
            for values, wrong in [
                ({"versions": {"ebsif": {}}}, "versions' has"),
                ({"system": {"distribution": 1}}, "system' has"),
                ({"image": {"file": "a.sif", "labels": {"a": []}}}, "image: labels' has"),
                ({"optional_binds": [{}]}, "optional_binds' has"),
                ({"artifacts": {"einops": "x"}}, "artifacts' has"),
                ({"artifacts": {"einops": {"file": "x.whl"}}}, "artifacts' has a file without name or SHA256"),
                ({"artifacts": {"einops": {"sha256": "0"}}}, "artifacts' has a file without name or SHA256"),
                ({"stages": [{"name": "one", "requirements": [{"name": "x"}]}]}, "stages' has"),
                ({"stages": [{"name": "one", "requirements": 1}]}, "stages' has"),
            ]
        ),
    ],
)
def test_files_that_are_no_records(places, tmp_path, ebsif, content, expected):
    """The error names file and reason; nothing on standard output, status 3."""
    path = tmp_path / "wrong.json"
    if content is not None:
        path.write_text(content)
    for command in (["diff", places[0], str(path)], ["lock", str(path)], ["lock", str(path), "--format", "sbom"]):
        printed = ebsif(*command, status=3)
        assert printed.out == ""
        assert str(path) in printed.err
        assert expected in printed.err


def huge(path):
    """Make a file of a terabyte."""
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir, huge])
def test_records_without_end(eb_prefix, capsys, ebsif, make):
    """P-06: a record, or an easyconfig, that is a pipe, a device or huge is damaged, and nobody waits."""
    root = eb_prefix.install(MINE)
    (root / RECORD_FILE).unlink()
    make(root / RECORD_FILE)
    (copy,) = (root / "easybuild").glob("*.eb")
    copy.unlink()
    make(copy)
    for command in (["installed"], ["show", MINE], ["list", "--mine"], ["lock", str(root)], ["remove", MINE]):
        main(command)
        assert "Traceback" not in capsys.readouterr().err
    assert "can't be read" in ebsif("lock", str(root), status=3).err


def test_records_with_sequences_for_terminals(eb_prefix, capsys):
    """P-06: what is in somebody else's record is escaped when it is printed."""
    bad = "x\x1b]0;PWN\x07"
    stage, image = {"name": "one", "requirements": bad}, {"file": f"{bad}.sif", "sha256": "0" * 64}
    record = {"image": image, "venv_packages": [f"{bad}==1"], "stages": [stage]}
    root = eb_prefix.install(MINE, **record)
    eb_prefix.install(BASE)
    commands = (["show", MINE], ["diff", MINE, str(root)], ["diff", BASE, MINE], ["installed", "--has", "x"])
    for command in (*commands, ["installed"], ["list", "--mine"]):
        main(command)
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err and "\x07" not in printed.out + printed.err, command
    main(["show", MINE])
    assert "x\\x1b]0;PWN\\x07.sif" in capsys.readouterr().out
