"""When an installation may start with the user software of an earlier one. No image is needed."""

import hashlib
import json
import os

import pytest
from easybuild.easyblocks.generic.container.image.installed import InstalledImage
from easybuild.easyblocks.generic.container.imageprograms import ebsif_version
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.easyblocks.generic.container.venv import Reuse

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
        "versions": {"ebsif": ebsif_version()},
        "venv_name": "example",
        "local_files": {},
        "venv_packages": ["einops==0.8.1", "flash-attn==2.8", "pip==24.0"],
        "user_software": {"user-software.squashfs": hashlib.sha256(b"packages").hexdigest()},
    }

    def reuse(stages=STAGES, pins=PINS, image=image, name="example", system=(), files=None, before=STAGES, **changes):
        (root / "share/ebsif/lock.json").write_text(json.dumps({**recorded, "stages": before, **changes}))
        found = Reuse(InstalledImage(str(root)), PipStage.from_parameter(stages), pins, system)
        is_possible = found.is_possible(str(image), name, lambda stage: files(stage.name) if files else pytest.fail())
        return [stage.name for stage in found.missing] if is_possible else None

    return reuse


def with_lines(*lines):
    """Return the stages with these lines in the first one."""
    return [{"name": "requirements", "requirements": "".join(f"{line}\n" for line in lines)}, HEAVY]


@pytest.mark.parametrize(
    ("stages", "missing"),
    [
        (STAGES, []),
        (with_lines("einops", "rich"), ["requirements"]),
        # the same in another form, as the first change of an extension writes it
        (with_lines("", "einops", "", "rich"), ["requirements"]),
        ([{**STAGES[0], "requirements": ["einops"]}, HEAVY], []),
        ([*STAGES, {"name": "n", "requirements": "rich"}], ["n"]),
        ([{"name": "n", "requirements": "rich"}, *STAGES], ["n"]),
        (STAGES[::-1], None),
        # an option, another order, removed lines, other properties, hashes
        (with_lines("rich", "einops"), None),
        (STAGES[1:], None),
        ([STAGES[0], {**HEAVY, "env": {"A": "1"}}], None),
        ([STAGES[0], {**HEAVY, "requirements": "flash-attn\nx"}], None),
        (with_lines("einops", f"rich==1 --hash=sha256:{'0' * 64}"), None),
        # pip marks what was asked for
        (with_lines("einops", "flash_attn"), None),
        # it may replace packages of the image, which later stages must know
        ([*STAGES, {"name": "n", "requirements": "rich", "allow_replace": ["numpy"]}], None),
    ],
)
def test_only_additional_packages_are_installed(earlier, stages, missing):
    """E-03: stages that are there aren't installed again; if anything else is different, all of them are."""
    assert earlier(stages) == missing


def test_system_packages_that_were_built_on(earlier):
    """E-03, V-04: packages may have been built on system packages, so those must be there; more do no harm."""
    assert earlier(system_layer={"requested": ["git"]}) is None
    assert earlier(system_layer={"requested": ["git"]}, system=["git=2"]) is None
    assert earlier(system_layer={"requested": ["git"]}, system=["git", "vim"]) == []


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


def test_packages_of_the_base(earlier):
    """N-07: without pins, they are taken over if pip would choose the same files now."""
    first, new, files = STAGES[0], {"name": "n", "requirements": "rich"}, {"einops": {"file": "a", "sha256": "1"}}
    recorded = {"before": [first], "venv_packages": ["einops==0.8.1", "pip==24.0"], "artifacts": files}

    def reuse(*stages, now=files, **changes):
        return earlier(list(stages), {}, files=lambda name: {"requirements": now}[name], **{**recorded, **changes})

    assert reuse(first, new) == ["n"] and reuse(first) == []
    assert reuse(first, new, now={"einops": {"file": "b", "sha256": "2"}}) is None
    assert reuse(first, new, now={}) is None
    # what is not known, or depends on more than the first stage
    assert reuse(first, new, artifacts={}) is None
    assert reuse(new, first) is None
    assert reuse(*STAGES, new, before=STAGES) is None
    assert reuse({**first, "env": {"A": "1"}}, new, before=[{**first, "env": {"A": "1"}}]) is None


def test_user_software_of_another_account(earlier, tmp_path, monkeypatch):
    """P-04: root doesn't unpack it, because devices in it would come along."""
    squashfs, stat = str(tmp_path / "earlier/user-software.squashfs"), os.stat
    theirs = [*stat(squashfs)]
    theirs[4] = 12345
    monkeypatch.setattr(
        os, "stat", lambda path, **how: os.stat_result(theirs) if path == squashfs else stat(path, **how)
    )
    for account, stages in ((12345, []), (0, None)):
        monkeypatch.setattr(os, "getuid", lambda account=account: account)
        assert earlier() == stages
