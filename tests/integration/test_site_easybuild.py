"""EasyBuild configured as LUMI's: everything works, and what is the site's is neither replaced nor disturbed."""

import json
import re

import pytest
from parts import wheel_settings
from site_easybuild import PLAIN
from support import CHECKOUT, blocks

FACTS = json.loads((CHECKOUT / "tests/data/lumi-containers.json").read_text())


@pytest.mark.nightly
def test_an_older_easybuild_is_not_disturbed(lumi):
    """
    F-04: with our easyblocks in its include path, EasyBuild 4 refuses containers and nothing else.

    They are put there by the lines for LUST, who have EasyBuild 5, too.
    """
    block = blocks("docs/lumi/for-lust.md")[0]
    for at_lumi, here in (
        ("/appl/lumi/LUMI-SoftwareStack/easybuild/easyblocks", lumi.easyblocks),
        ("LUMI partition/container EasyBuild-user", "EasyBuild-user/5"),
    ):
        assert at_lumi in block
        block = block.replace(at_lumi, str(here))
    lumi.bash(f"set -e\n{block}", cwd=CHECKOUT)
    container = lumi.easyconfig("sources = ['example.sif']")
    said = lumi.bash(f"eb -D hello-1.0.eb; eb -S ^hello; eb {container}", check=False, easybuild="4")
    assert said.stdout.count("(module: hello/1.0)") == 1
    assert "/hello-1.0.eb" in said.stdout.split("(module: hello/1.0)")[1]
    (refused,) = [line for line in said.stderr.splitlines() if line.startswith("ERROR")]
    assert refused.endswith(
        "the easyblocks for container images need EasyBuild 5, and this is EasyBuild 4.9.4: load "
        "or install a newer EasyBuild"
    )
    # the same directory, with EasyBuild 5
    assert "(module: Example/1.0)" in lumi.bash(f"eb -D {container}").stdout


def test_the_switch_from_recipes_to_records(lumi):
    """
    The block for LUST works in a directory with files of the names and places of all of LUMI's recipes.

    Each current recipe is replaced but those of ccpe, and what LUMI has archived stays archived: `eb` doesn't find it
    by its name.
    """
    lumi.share_easyblocks()
    repository = lumi.appl / "containers/LUMI-EasyBuild-containers"
    easyconfigs = repository / "easybuild/easyconfigs"
    recipes = {}
    for fact in FACTS:
        folder = easyconfigs / "__archive__" if fact["archived"] else easyconfigs
        path = folder / fact["name"][0].lower() / fact["name"] / fact["easyconfig"]
        recipes[path] = fact
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# written by hand\n" + PLAIN.replace("hello", fact["name"]))
    block = blocks("docs/lumi/for-lust.md")[1]
    assert "/appl/local/containers/" in block
    # as in LUMI's stack, where robot paths have the directory of the repository
    block = block.replace("/appl/local/containers", str(lumi.appl / "containers"))
    by_name = "eb -D PyTorch-2.0.1-rocm-5.5.1-python-3.10-singularity-20240207.eb || echo archived: not found"
    said = lumi.bash(
        f"set -e\nexport EASYBUILD_ROBOT_PATHS={repository}\n{block}\necho now search\neb -S ^PyTorch-2.0.1\n{by_name}"
    ).stdout
    assert f"CFGS={easyconfigs}/p/PyTorch" in said
    assert "(module: PyTorch/2.7.1-rocm-6.2.4-python-3.12-singularity-20250827)" in said
    searched = said.partition("now search\n")[2]
    assert "PyTorch/PyTorch-2.0.1" not in searched and searched.endswith("archived: not found\n")
    for path, fact in recipes.items():
        by_hand = path.read_text().startswith("# written by hand\n")
        assert by_hand == (fact["name"] == "ccpe"), path
    # nothing that LUMI has archived is beside its current recipes
    names = {fact["easyconfig"] for fact in FACTS if fact["archived"]}
    assert not [path for path in easyconfigs.glob("?/*/*.eb") if path.name in names]


def test_commands_heed_the_configuration_of_the_site(lumi, wheels, base_image):
    """
    F-02, F-03: with a naming scheme, easyblocks and robot paths of the site, and an eb of another Python.

    Easyblocks for another EasyBuild stop nothing, and neither do the site's copies of ours, of another version.
    """
    (lumi.sources / "example.sif").symlink_to(base_image)
    for name, text in (("other", "import nothing_like_this\n"), ("containerinstall", "raise ImportError('other')\n")):
        (lumi.easyblocks / f"generic/{name}.py").write_text(text)
    said = lumi.bash("ebsif installed")
    assert "0 installations" in said.stderr
    assert "easyblock" not in said.stderr
    # eb itself would stop there
    for name in ("other", "containerinstall"):
        (lumi.easyblocks / f"generic/{name}.py").unlink()

    container = lumi.easyconfig("sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\n")
    extend = f"ebsif extend {container} --add greeting --name"
    said = lumi.bash(
        f"ebsif doctor\n{extend} mine --quiet\n{extend} other -o . 2>hint\n"
        "eval \"$(sed -n 's/^install it with: //p' hint) -D\"\n"
        "ebsif list --mine\nebsif doctor --installed",
        check=False,
        APPTAINER_BIND=wheels,
        **wheel_settings(wheels),
    )
    said = said.stdout + said.stderr
    assert re.search(
        r"^note: easyblocks: eb finds them with '--include-easyblocks=\S+/containervenv\.py,"
        rf"{lumi.easyblocks}/\*/\*\.py', which ebsif adds when it runs eb$",
        said,
        re.MULTILINE,
    )
    assert f"eb finds those in {lumi.easyconfigs} by name" in said
    assert "error: " not in said
    assert re.search(r"\[ \] \S+ \(module: Example/1\.0-other-\d+\)$", said, re.MULTILINE)
    assert re.search(r"^mine +Example/1\.0 ", said, re.MULTILINE)
    assert "1 module checked: nothing is wrong" in said
