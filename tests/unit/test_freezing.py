"""`ebsif lock` and `ebsif diff` of installed modules as they are now. No image is needed."""

import json
import time

import pytest
from ebsif.cli import main
from prefixes import BASE, EASYCONFIG, MINE


@pytest.fixture
def prefix(eb_prefix):
    """The prefix of EasyBuild, in place of that of the tests that install."""
    return eb_prefix


def test_packages_added_by_hand(prefix, capsys, tmp_path):
    """E-08: record, bill of materials and diff include them; without changes the record is the original."""
    root = prefix.install(MINE)
    record = json.loads((root / "share/ebsif/lock.json").read_text())
    assert main(["lock", "mine"]) == 0
    assert json.loads(capsys.readouterr().out) == record
    (tmp_path / "before.json").write_text(json.dumps(record))
    prefix.add(root, "rich", "14.0")
    assert main(["lock", "mine", "-o", "after.json"]) == 0
    after = json.loads((tmp_path / "after.json").read_text())
    assert after["venv_packages"] == ["einops==0.8.1", "rich==14.0"]
    assert after["stages"] == [{"name": "requirements", "requirements": (
        'einops[all]==0.8.1; python_version > "3"\nrich==14.0\n')}]
    assert main(["lock", "mine", "--format", "sbom"]) == 0
    assert "pkg:pypi/rich@14.0" in capsys.readouterr().out
    (root / "easybuild" / f"{MINE.replace('/', '-')}.eb").unlink()
    assert main(["diff", "./before.json", "mine"]) == 1
    assert capsys.readouterr().out == "+ package rich 14.0\n"


def test_an_installed_module_is_compared_rather_than_its_record(prefix, capsys):
    """With an installation, more is known about an installed module than about its record in the catalogue."""
    prefix.install(BASE, packages=[], image={"file": "b.sif", "sha256": "1" * 64})
    prefix.install(MINE)
    assert main(["diff", BASE, "mine"]) == 1
    assert f"~ image sha256 {'1' * 64} -> {'0' * 64}\n" in capsys.readouterr().out


def test_installing_while_the_module_is_loaded(prefix, capsys, monkeypatch):
    """E-09: the printed command works where the module that was frozen is loaded, with which eb refuses to run."""
    prefix.install(MINE, text=EASYCONFIG)
    monkeypatch.setenv("EBSIF_LOADED_MODULE", MINE)
    assert main(["lock", "mine", "--format", "eb", "--date", "20261123", "-o", "."]) == 0
    said = capsys.readouterr()
    assert said.err == f"install it with: module unload {MINE}; eb {said.out}"


def test_an_easyconfig_of_the_current_state(prefix, capsys, tmp_path):
    """E-08: exact versions; added packages are included, removed ones are not; the rest is unchanged."""
    text = EASYCONFIG.replace("moduleclass", "constraints = ['einops==0.7']\nmoduleclass")
    root = prefix.install(MINE, text=text, stages=[{"name": "requirements", "requirements": (
        'einops[all]>=0.8; python_version > "3"\n--pre\ngone\nnumpy<3  # of the image\n')}])
    prefix.add(root, "rich", "14.0")
    assert main(["lock", "mine", "--format", "eb", "--date", "20261123", "-o", "."]) == 0
    path = tmp_path / f"{BASE.replace('/', '-')}-mine-20261123.eb"
    assert capsys.readouterr().out.startswith(f"{path.name}\n")
    text = path.read_text()
    values = {"SYSTEM": "SYSTEM"}
    exec(text, values)
    assert values["requirements"].split("\n") == [
        "", 'einops[all]==0.8.1; python_version > "3"', "--pre", "numpy<3", "rich==14.0", ""]
    assert values["versionsuffix"].endswith("-20261121-mine-20261123")
    assert values["checksums"] == ["0" * 64]
    # of an extension that was changed
    assert "constraints" not in values
    assert text.startswith("# Written by `ebsif lock`") and "# Written by `ebsif extend`" not in text
    assert main(["lock", "mine", "--format", "eb", "--name", "new"]) == 0
    assert "-20261121-new-" in capsys.readouterr().out
    today = time.strftime("%Y%m%d")
    prefix.install(f"{BASE}-mine-{today}", text=text)
    prefix.modules.joinpath(f"{BASE}-mine-{today}.lua").unlink()
    assert main(["lock", MINE, "--format", "eb"]) == 0
    assert f"-mine-{today}.2'" in capsys.readouterr().out
    assert main(["lock", "mine", "--format", "eb", "--name", "a b"]) != 0
    assert "'a b' is not valid in a version suffix" in capsys.readouterr().err


def test_hashes_are_kept(prefix, capsys):
    """E-12: by unchanged packages; others are in a stage without hashes, because one call of pip wants them for all."""
    lines = [f"{name}==1.0 --hash=sha256:{name}" for name in ("einops", "rich", "numpy")]
    lines += [f"a @ https://example.org/{name}.whl --hash=sha256:a" for name in ("gone",)]
    prefix.install(MINE, packages=["einops==1.0", "rich==2.0", "hand==3.0"], stages=[
        {"name": "requirements", "requirements": "".join(f"{line}\n" for line in lines)}])
    assert main(["lock", "mine", "--format", "eb"]) == 0
    values = {"SYSTEM": "SYSTEM"}
    exec(capsys.readouterr().out, values)
    assert values["requirements"] == [
        {"name": "pinned", "requirements": ["hand==3.0", "rich==2.0"]},
        {"name": "requirements", "requirements": [lines[0], lines[2]]}]


def test_stages_keep_their_options(prefix, capsys):
    """E-08: packages built against torch come last; packages of several stages stay in them."""
    root = prefix.install(MINE, packages=["einops==0.8.1", "flash_attn==2.8", "ninja==1.13"], stages=[
        {"name": "tools", "requirements": "ninja\n", "env": {"A": "1"}},
        {"name": "torch", "requirements": "flash-attn\n", "no_build_isolation": True}])
    assert main(["lock", "mine", "--format", "eb"]) == 0
    values = {"SYSTEM": "SYSTEM"}
    exec(capsys.readouterr().out, values)
    assert values["requirements"] == [
        {"name": "pinned", "requirements": ["einops==0.8.1"]},
        {"name": "tools", "requirements": ["ninja==1.13"], "env": {"A": "1"}},
        {"name": "torch", "requirements": ["flash-attn==2.8"], "no_build_isolation": True}]
    assert root.exists()
