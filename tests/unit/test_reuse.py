"""When an installation may start with the user software of an earlier one. No image is needed."""

import ast
import hashlib
import json
import os
import subprocess
import sys

import pytest
from easybuild.easyblocks.generic.container.reuse import Reuse, digest_of, recorded_files
from easybuild.easyblocks.generic.container.scripts import ebsif_version, read_program
from easybuild.easyblocks.generic.container.stages import Stage
from ebsif.installed import inventory
from ebsif.user import outcome

PINS = {"einops": "0.8.1", "Flash_Attn": "2.8"}
HEAVY = {"name": "built", "requirements": "flash-attn\n", "no_build_isolation": True}
STAGES = [{"name": "requirements", "requirements": "einops\n"}, HEAVY]


@pytest.fixture
def earlier(tmp_path):
    """A function that makes an earlier installation with changes of its record, and says whether it can be reused."""
    root, image = tmp_path / "earlier", tmp_path / "a.sif"
    (root / "share/ebsif").mkdir(parents=True)
    image.write_bytes(b"image")
    os.link(image, root / "a.sif")
    (root / "user-software.squashfs").write_bytes(b"packages")
    recorded = {
        "image": {"file": "a.sif", "size": 5, "mtime_ns": image.stat().st_mtime_ns},
        "versions": {"ebsif": ebsif_version()}, "venv_name": "example", "stages": STAGES, "local_files": {},
        "venv_packages": ["einops==0.8.1", "flash-attn==2.8", "pip==24.0"],
        "user_software": {"user-software.squashfs": hashlib.sha256(b"packages").hexdigest()}}

    def reuse(stages=STAGES, pins=PINS, image=image, name="example", **changes):
        (root / "share/ebsif/lock.json").write_text(json.dumps({**recorded, **changes}))
        found = Reuse(str(root), Stage.from_parameter(stages), pins)
        same = found.is_similar(str(image), name) and found.is_possible
        return [stage.name for stage in found.missing] if same else None

    return reuse


def with_lines(*lines):
    """Return the stages with these lines in the first one."""
    return [{"name": "requirements", "requirements": "".join(f"{line}\n" for line in lines)}, HEAVY]


@pytest.mark.parametrize(("stages", "missing"), [
    (STAGES, []), (with_lines("einops", "rich"), ["requirements"]), ([*STAGES, {"name": "n", "requirements": "rich"}],
                                                                     ["n"]),
    # an option, another order, removed lines, other properties, hashes
    (with_lines("rich", "einops"), None), (with_lines("rich"), None), (STAGES[:1], None), (STAGES[1:], None),
    ([STAGES[0], {**HEAVY, "env": {"A": "1"}}], None), ([STAGES[0], {**HEAVY, "requirements": "flash-attn\nx"}], None),
    (with_lines("einops", f"rich==1 --hash=sha256:{'0' * 64}"), None),
    # pip marks what was asked for
    (with_lines("einops", "flash_attn"), None),
    # it may replace packages of the image, which later stages must know
    ([*STAGES, {"name": "n", "requirements": "rich", "allow_replace": ["numpy"]}], None)])
def test_only_additional_packages_are_installed(earlier, stages, missing):
    """E-03: stages that are there aren't installed again; if anything else is different, all of them are."""
    assert earlier(stages) == missing


def test_everything_else_must_be_the_same(earlier, tmp_path):
    """E-03: image, path of the venv, version of ebsif, versions of packages, files, and nothing changed by hand."""
    other = tmp_path / "b.sif"
    other.write_bytes(b"other")
    assert earlier() == []
    assert earlier(image=other) is None
    assert earlier(name="other") is None
    assert earlier(pins={**PINS, "einops": "0.8.2"}) is None
    assert earlier(pins={}) is None
    assert earlier(versions={}) is None
    assert earlier(local_files={"/a.whl": "0"}) is None
    assert earlier(user_software={"user-software": "0"}) is None
    (tmp_path / "earlier/user-software.squashfs").write_bytes(b"changed")
    assert earlier() is None
    assert Reuse("", [], {}).is_similar(str(other), "example") is False


def test_the_easyconfig_of_a_failed_attempt_is_replaced(tmp_path, monkeypatch, capsys):
    """E-03: it is kept as .old, and needs no --rebuild; that of an installed module, or somebody else's, stays."""
    path = tmp_path / "Example-1.0-mine-1.eb"
    monkeypatch.setattr(inventory, "everything", lambda: [])
    assert not outcome.is_left_over(path, "Example/1.0-mine-1")
    path.write_text("# Written by `ebsif freeze`: yours to change.\nname = 'Example'\n")
    assert not outcome.is_left_over(path, "Example/1.0-mine-1")
    path.write_text(f"{outcome.HEADER.format('pull')}\nname = 'Example'\n")
    assert outcome.is_left_over(path, "Example/1.0-mine-1")
    outcome.write_file(path, "new\n", again=True)
    assert path.with_suffix(".eb.old").read_text().endswith("name = 'Example'\n")
    assert f"the previous easyconfig is now {path}.old" in capsys.readouterr().out
    assert not outcome.is_left_over(path, "Example/1.0-mine-1")
    path.write_text(outcome.HEADER.format("extend"))
    monkeypatch.setattr(inventory, "everything", lambda: ["Example/1.0-mine-1"])
    monkeypatch.setattr(outcome, "shown", str)
    assert not outcome.is_left_over(path, "Example/1.0-mine-1")


def plain(*stages):
    """Return stages with nothing but requirement lines, each a list."""
    return [{"name": str(number), "requirements": "".join(f"{line}\n" for line in lines)}
            for number, lines in enumerate(stages)]


@pytest.mark.parametrize(("before", "now", "pins", "expected"), [
    # removed; another version; a package that was a dependency (pip marks it) or the other way round
    ([["a", "b"]], [["b"]], "b c", "b c"), ([["a", "b"]], [["b", "a>=2"]], "b c", "b c"),
    ([["a", "b"]], [["a", "b", "c"]], "a b c", "a b"), ([["a", "b", "c"]], [["a", "b"]], "a b c", "a b"),
    # pip must check the file; what it would be is unknown
    ([["a", "b"]], [[f"a==1 --hash=sha256:{'a' * 64}", f"b==1 --hash=sha256:{'0' * 64}"]], "a b", "b"),
    ([["a", "b"]], [["a @ file:///a.whl", "b"]], "a b", "b"), ([["a", "b"]], [["a", "./x/b"]], "a b", "a"),
    # an earlier stage may install what a later one asks for
    ([["a"], ["b"]], [["a", "d"], ["b"]], "a b", "a"), ([["a"], ["b"]], [["b"]], "b c", "c"),
    ([["a"], ["b", "d"]], [["a"], ["b"]], "a b", "a b"),
    # options, several lines for a package
    ([["a", "--pre"]], [["a"]], "a", ""), ([["a"]], [["a; python_version>'3'", "a<2; python_version<'3'"]], "a", "")])
def test_packages_that_stay_as_they_are(before, now, pins, expected):
    """E-03: they are from the same file, asked for as before; if in doubt, pip installs them."""
    reuse = Reuse("", Stage.from_parameter(plain(*now)), dict.fromkeys(pins.split(), "1"))
    reuse.record = {"stages": plain(*before), "venv_packages": ["a==1", "b==1", "c==1", "pip==1", "local==1"],
                    "artifacts": {name: {"file": f"{name}.whl", "sha256": "0" * 64} for name in "abc"}}
    assert reuse.unchanged == set(expected.split())
    reuse.record["stages"][0]["env"] = {"A": "1"}
    assert reuse.unchanged == set()


def test_files_of_packages_that_stay(tmp_path):
    """E-03: those that pip has recorded, unless another package has overwritten one, or one is somewhere else."""
    top = tmp_path / "earlier/venv"
    site = top / "x/lib/python3.11/site-packages"
    info, script = site / "a-1.dist-info", top / "x/bin/a"
    for path in (info / "METADATA", site / "a.py", site / "__pycache__/a.pyc", script):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    rows = [f"{name},{digest_of(site / name)},1\n" for name in ("a.py", "a-1.dist-info/METADATA", "../../../bin/a")]
    (info / "RECORD").write_text("".join(["a-1.dist-info/RECORD,,\n", "__pycache__/a.pyc,,\n", *rows]))
    assert recorded_files(str(site), str(info), str(top)) == {
        str(path) for path in (info / "RECORD", info / "METADATA", site / "a.py", script)}
    (info / "RECORD").write_text(f"{rows[0]}../../../../../outside,,\n")
    assert recorded_files(str(site), str(info), str(top)) is None
    script.write_text("of another package")
    (info / "RECORD").write_text("".join(rows))
    assert recorded_files(str(site), str(info), str(top)) is None


def test_packages_that_requirements_need(tmp_path):
    """E-03: markers and extras count, for what pip itself would install."""
    for name, requires in (("Top_One", ["dep; python_version>'3'", "no; python_version<'3'", "more; extra == 'x'"]),
                           ("dep", ["Deep.er[y]"]), ("deep-er", ["more; extra == 'z'", "yes; extra == 'y'"]),
                           ("more", []), ("yes", ["top-one"]), ("no", [])):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
                                       + "".join(f"Requires-Dist: {one}\n" for one in requires))

    def needed(*lines):
        found = subprocess.run([sys.executable, "-", *lines], input=read_program("needed-packages.py"), text=True,
                               capture_output=True, check=True, env={"PYTHONPATH": str(tmp_path)}).stdout
        return ast.literal_eval(found)

    assert needed("top-one", "unknown") == ["deep-er", "dep", "top-one", "yes"]
    assert needed("top-one[x]>=1; python_version>'3'") == ["deep-er", "dep", "more", "top-one", "yes"]
    assert needed("dep; python_version<'3'") == []
