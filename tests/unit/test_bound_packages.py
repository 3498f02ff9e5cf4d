"""Which packages of an image belong to the machine, and how others may be replaced. No image is needed."""

import ast
import re
import sys
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.diagnosis import Diagnosis
from easybuild.easyblocks.generic.container.packages import InstalledPackages, Need
from easybuild.easyblocks.generic.container.pip import FILE
from ebsif.catalog import site
from ebsif.catalog.container import Container
from ebsif.catalog.stages import as_parameter, stages_of
from ebsif.environments import change, replacing
from ebsif.environments.baseimage import BaseImage
from ebsif.environments.change import Environment
from ebsif.errors import UsageError
from ebsif.packages.venv import VenvPackage
from ebsif.packages.wanted import KnownImage
from ebsif.render import easyconfig
from ebsif.report import asking
from support import add_package, installed_packages

VERSIONS = {"torch": "2.7.1+rocm6.2.4", "numpy": "2.4", "nvidia-cublas-cu12": "12.1", "fsspec": "2026.9"}
VERSIONS.update({"sympy": "1.14", "vllm-tools": "1.0"})
IMAGE = InstalledPackages((name, (name, version, "/opt")) for name, version in VERSIONS.items())
IMAGE.compiled = {"torch", "numpy"}
IMAGE.needs = [Need("torch", "sympy", ">=1.13.3", True), Need("fsspec", "sympy", "", True)]


def test_what_belongs_to_the_machine():
    """S001-19, V-02: what is compiled, labelled, of CUDA or ROCm, or listed by the site; each with its reason."""
    assert IMAGE.bound(["vLLM_tools"]) == {
        "torch": "built for this machine (+rocm6.2.4)",
        "numpy": "compiled",
        "nvidia-cublas-cu12": "built for this machine",
        "vllm-tools": "kept by the site ('keep_packages')",
    }


def test_what_a_package_says_of_itself(tmp_path):
    """S001-19: compiled is what lists shared objects, has some in its modules, or says nothing; and what it needs."""
    needs = ["listed<1", "Walked>=1; python_version > '3'", "absent", "single; python_version < '3'"]
    needs += ["single; extra == 'x'", "single (bad]"]
    add_package(tmp_path, "pure", needs=needs, RECORD="pure.py,,\npure/data.so.txt,,\n")
    add_package(tmp_path, "listed", RECORD="listed/_C.cpython-311-x86_64-linux-gnu.so,sha256=x,1\n")
    add_package(tmp_path, "versioned", RECORD="versioned/lib/libx.so.12,sha256=x,1\n")
    for name in ("walked", "single"):
        add_package(tmp_path, name, **{"top_level.txt": f"{name}\n"})
    (tmp_path / "walked/deep").mkdir(parents=True)
    (tmp_path / "walked/deep/x.so").touch()
    (tmp_path / "single.py").touch()
    add_package(tmp_path, "unknown")
    said = ast.literal_eval(installed_packages(tmp_path))
    ours = {"pure", "listed", "versioned", "walked", "single", "unknown"}
    assert ours & set(said["compiled"]) == {"listed", "versioned", "walked", "unknown"}
    expected = [["pure", "listed", "<1", False, True], ["pure", "walked", ">=1", True, True]]
    assert [need for need in said["needs"] if need[0] in ours] == expected


def test_why_a_package_of_the_image_is_replaced(tmp_path):
    """V-03: because of what the image's version doesn't suit; what both versions suit isn't the cause."""

    mine, image = tmp_path / "mine", tmp_path / "image"
    add_package(mine, "fsspec", "2025.3.0")
    add_package(mine, "datasets", "3.6.0", needs=["fsspec<=2025.3.0"])
    add_package(mine, "lightning", "2.6.6", needs=["fsspec>=2022.5.0"])
    add_package(image, "fsspec", "2026.9.0")
    add_package(image, "torch", "2.13.0", needs=["fsspec>=0.8.5"])
    add_package(image, "s3fs", "2026.9.0", needs=["fsspec==2026.9.0"])
    said = installed_packages(f"{mine}:{image}")
    there = InstalledPackages.from_output(said.replace(str(mine), "/user-software/venv"))
    (found,) = there.replaced_in(InstalledPackages({"fsspec": ("fsspec", "2026.9.0", "/opt")}))
    assert found["breaks"] == ["s3fs 2026.9.0 needs fsspec==2026.9.0"]
    assert found["wanted"] == ["datasets 3.6.0 needs fsspec<=2025.3.0"]
    assert sorted(found["affects"]) == ["lightning 2.6.6 needs fsspec>=2022.5.0", "torch 2.13.0 needs fsspec>=0.8.5"]


def test_how_a_conflict_is_explained():
    """V-02, V-03: each kept package with its reason; only what belongs to the machine needs --force."""
    reasons = {"numpy": "compiled", "sympy": "torch 2.7 needs sympy>=1.13.3"}
    constraint = "    The user requested (constraint) "
    text = Diagnosis(f"    The user requested sympy==1.12\n{constraint}sympy>=1.13.3\n", "", (), reasons).text()
    kept = "sympy>=1.13.3 of the image (torch 2.7 needs sympy>=1.13.3) can't be replaced, but: you ask for sympy==1.12."
    assert kept in text and "\n    ebsif extend ... --replace sympy==1.12\n" in text
    text = Diagnosis(f"    x 1.0 depends on numpy<1\n{constraint}numpy==2.4\n", "", (), reasons).text()
    assert "numpy==2.4 of the image (compiled) can't be replaced, but: x 1.0 needs numpy<1." in text
    assert "\n    ebsif extend ... --replace numpy==VERSION --force\n" in text


CONFLICT = """\
ERROR: Cannot install app because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested torch==2.9.1
    gradio 4.2.0 depends on markupsafe~=2.0
    gradio 4.1.0 depends on markupsafe~=2.0
    streamlit 1.50.0 depends on numpy<3 and >=1.23
    pandas 2.3.3 depends on numpy>=1.23.2; python_version == "3.11"
    scikit-learn 1.3.2 depends on numpy<2.0,>=1.17.3
    The user requested (constraint) torch==2.13.0+cpu
    The user requested (constraint) numpy==2.4.6
    The user requested (constraint) markupsafe==3.0.2

To fix this you could try to:
1. loosen the range of package versions you've specified
"""


def test_only_what_matters_of_a_conflict():
    """E-11: all conflicts at once, with whole commands, the safest first."""
    asked = {}
    text = Diagnosis(
        CONFLICT,
        reasons={"numpy": "compiled", "torch": "built for this machine (+cpu)"},
        newest=lambda wanted: asked.update(wanted) or {"numpy": "1.26.4", "markupsafe": "2.1.5"},
    ).text()
    assert asked == {"numpy": "<2.0,>=1.17.3", "markupsafe": "~=2.0"}
    first, *ways = text.split("\n")
    assert first == (
        "markupsafe==3.0.2 of the image, numpy==2.4.6 of the image (compiled), torch==2.13.0+cpu of the image (built "
        "for this machine (+cpu)) can't be replaced, but: you ask for torch==2.9.1; gradio 4.2.0 needs markupsafe~=2.0 "
        "(and 1 earlier version); scikit-learn 1.3.2 needs numpy<2.0,>=1.17.3. Ask for other versions of gradio and "
        "scikit-learn."
    )
    assert [line.strip() for line in ways if line.startswith("    ")] == [
        "ebsif extend ... --add torch",
        "ebsif extend ... --replace markupsafe==2.1.5 numpy==1.26.4 torch==2.9.1 --force",
        "ebsif list --has 'markupsafe~=2.0' --has 'numpy<2.0,>=1.17.3' --has torch==2.9.1",
    ]
    more = "".join(f"    package-{number} 1.0 depends on numpy<2\n" for number in range(100))
    many = CONFLICT.replace("    The user requested torch==2.9.1", more)
    assert re.search(r" needs numpy<2; and \d+ more\. Ask", Diagnosis(many).text())


def test_requirements_that_contradict_each_other():
    """E-11: what contradicts what is said, and nothing of the package that pip has read last."""
    conflict = CONFLICT.replace("torch==2.9.1", "torch==2.0.0")
    conflict = conflict.replace("    The user requested (constraint)", "    package 1 depends on")
    found = Diagnosis(f"Collecting requests\n{conflict}")
    assert found.package() == ""
    assert found.text().startswith("the requirements contradict each other: you ask for torch==2.0.0; gradio 4.2.0 ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  Downloading datasets-3.6.0-py3-none-any.whl (491 kB)", ("datasets", "3.6.0")),
        ("  Using cached open_clip_torch-2.14.4-py3-none-any.whl.metadata (19 kB)", ("open_clip_torch", "2.14.4")),
        ("Processing /my wheels/fresh-1.0-cp311-cp311-linux_x86_64.whl (from x)", ("fresh", "1.0")),
        ("  Downloading https://x.org/a/b/zope.interface-5.0.tar.gz (1 MB)", ("zope.interface", "5.0")),
        ("Processing /home/me/project", None),
        ("Requirement already satisfied: numpy in /opt", None),
    ],
)
def test_versions_that_pip_looks_at(line, expected):
    """V-03: they are in what any pip prints; only several of one package cost a question to the index."""
    found = FILE.findall(line)
    assert found == ([expected] if expected else [])


def test_stages_that_may_replace():
    """V-01: the version takes the place of the package's line, else it is added; each stage may replace it."""

    def allow(wanted, lines):
        return [stage.requirements for stage in replacing.allow(stages_of(wanted), replacing.parse(lines))]

    stage = {"name": "requirements", "requirements": ["A[x]==3", "b", "c==1"], "allow_replace": ["a", "c"]}
    assert as_parameter(replacing.allow(stages_of(["a[x]>1", "b"]), replacing.parse(["A==3", "c==1"]))) == [stage]
    built = {"name": "built", "requirements": ["flash-attn"], "no_build_isolation": True}
    assert allow([built], ["a==1"]) == [["a==1"], ["flash-attn"]]
    assert allow([], ["a==1"]) == [["a==1"]]
    # commands stay when the package is removed
    commands = {"name": "commands", "post": ["echo hi"]}
    assert allow([commands], ["a==1"]) == [["a==1"], []]
    assert allow([commands, {"name": "c", "requirements": ["b"]}], ["a==1"]) == [[], ["b", "a==1"]]
    # pip wants hashes for all packages of a stage, or for none
    assert allow(["b==1 --hash=sha256:0"], ["a==1", "c==1"]) == [["a==1", "c==1"], ["b==1 --hash=sha256:0"]]
    locked = ["a==1 --hash=sha256:1", "b==1 --hash=sha256:0"]
    for line, expected in (
        ("a==1", [locked]),
        ("a==2", [["a==2"], locked[1:]]),
        ("a==2 --hash=sha256:2", [["a==2 --hash=sha256:2", locked[1]]]),
        ("c==2 --hash=sha256:2", [[*locked, "c==2 --hash=sha256:2"]]),
    ):
        assert allow(locked, [line]) == expected
    url = "a @ https://example.org/a-1.whl --hash=sha256:1"
    assert allow([url, "b==1 --hash=sha256:0"], ["a==2"]) == [["a==2"], ["b==1 --hash=sha256:0"]]
    container = Container.of("A", {}, None, None)
    image, added = BaseImage(container, KnownImage(packages={"a": "1"})), {"a": VenvPackage("a", "3", "a==3", None)}
    own = tuple(replacing.allow(stages_of(["b"]), replacing.parse(["a==3"])))
    environment = Environment("m", container, image, added, own=own)
    remaining, removed = change.remove(environment, ["a"])
    assert removed == ["a"] and as_parameter(remaining.stages) == [{"name": "requirements", "requirements": ["b"]}]


def test_who_requires_what(monkeypatch):
    """V-01: packages of the image and of the extension; not those that are replaced, too, or hidden by another one."""
    monkeypatch.setattr(BaseImage, "packages", IMAGE)
    image = BaseImage(None, KnownImage("3.6"))
    requires = ("sympy<2; python_version < '3.7'", "sympy; extra == 'x'", "sympy<1; python_version > '3.6'", "numpy")
    own = {"mine": VenvPackage("mine", "2.0", None, None, requires)}
    assert replacing.dependents("sympy", image, own, ["sympy"]) == [
        ["fsspec 2026.9", "image", "sympy"],
        ["torch 2.7.1+rocm6.2.4", "image", "sympy>=1.13.3"],
        ["mine 2.0", "extension", "sympy<2"],
    ]
    hidden = {"fsspec": own["mine"]}
    assert replacing.dependents("sympy", image, hidden, ["sympy", "torch"]) == [["mine 2.0", "extension", "sympy<2"]]


@pytest.mark.parametrize(("answer", "expected"), [("y\n", True), ("Yes\n", True), ("\n", False), ("", False)])
def test_a_confirmation(monkeypatch, capsys, answer, expected):
    """V-01: asked at a terminal; elsewhere the error says what to add."""
    with pytest.raises(UsageError, match="add --yes"):
        asking.confirmed("Install it?", UsageError("add --yes"))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: answer))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert asking.confirmed("Install it?", UsageError("add --yes")) is expected
    assert capsys.readouterr().err == "Install it? [y/N] "


def test_packages_that_the_site_keeps(tmp_path):
    """S001-19: those of the site and of the record are a parameter of modules with user software."""
    mine = site.Site(name="mine", description="x", keep_packages=["transformers"])
    values = {"version": "1", "file": "a.sif", "homepage": "https://example.org/", "venv": True}
    values["keep_packages"] = ["trl", "transformers"]
    assert easyconfig.parameters(Container.of("A", values, mine, tmp_path))["keep_packages"] == ["transformers", "trl"]
    values["venv"] = False
    assert "keep_packages" not in easyconfig.parameters(Container.of("A", values, mine, tmp_path))
