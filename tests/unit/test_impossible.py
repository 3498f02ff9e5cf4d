"""What an image can't have is said before pip starts. No image is needed."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from easybuild.easyblocks.generic.container.packages import InstalledPackages
from ebsif.catalog.stages import stages_of
from ebsif.environments import bases, impossible
from ebsif.environments.baseimage import BaseImage, WantedStages
from ebsif.images import inspection
from ebsif.packages.wanted import KnownImage

THERE = {"torch": "2.13.0+cpu", "numpy": "2.4.6", "sympy": "1.14.0"}
BOUND = {"torch": "built for this machine (+cpu)", "numpy": "compiled"}


@pytest.fixture
def said(monkeypatch):
    """A function that returns what is said of requirements, and whether the image was started for that."""
    started = []

    def packages(_):
        started.append(True)
        return InstalledPackages((name, (name, version, "")) for name, version in THERE.items())

    monkeypatch.setattr(BaseImage, "packages", property(packages))
    monkeypatch.setattr(BaseImage, "bound", BOUND)

    def run(wanted, own=()):
        started.clear()
        image = BaseImage(SimpleNamespace(), KnownImage("3.11", THERE), frozenset(own))
        return impossible.why_impossible(WantedStages(image, stages_of(wanted))), bool(started)

    return run


def test_all_pins_at_once(said):
    """N-07, E-11, student 11: all of them, why, and the ways out as commands, the safest first."""
    text, _ = said(["einops", "torch==2.9.1", "numpy == 1.22.4 # old", "sympy==1.13"])
    assert text == (
        "what you ask for has other versions than packages that are built for this machine:\n"
        "  torch==2.9.1, but the image has 2.13.0+cpu (built for this machine (+cpu))\n"
        "  numpy==1.22.4, but the image has 2.4.6 (compiled)\n"
        "To take the versions of the image:\n    ebsif extend ... --add torch numpy\n"
        "To replace them on purpose:\n    ebsif extend ... --replace torch==2.9.1 numpy==1.22.4 --force\n"
        "To find containers that have what you ask for:\n    ebsif list --has torch==2.9.1 --has numpy==1.22.4"
    )
    text, _ = said(["numpy<2"])
    assert "--replace" not in text and text.endswith("    ebsif list --has 'numpy<2'")


def test_packages_for_another_torch(said):
    """N-07, E-12: each release of torchvision and torchaudio is for one of torch, which the image keeps."""
    text, _ = said(["torchvision==0.20.1", "torchaudio==2.5.1"])
    for pin in ("torchvision==0.20.1", "torchaudio==2.5.1"):
        needs = f"and {pin.partition('=')[0]} of this version needs torch 2.5"
        assert f"\n  {pin}, but the image has torch 2.13.0+cpu, {needs}\n" in text
    assert "--add torchvision torchaudio\n" in text and "--replace" not in text
    assert text.endswith("    ebsif list --has torchvision==0.20.1 --has torchaudio==2.5.1")
    # what is locked with hashes has to be locked again; nothing can be left out of it
    text, _ = said(["torchvision==0.14.1 --hash=sha256:0", "numpy==1.22.4 --hash=sha256:0"])
    assert "needs torch 1.13\n  numpy==1.22.4, but the image has 2.4.6 (compiled)\nLock it again with" in text
    assert 'constraint-dependencies = ["torch==2.13.0", "numpy==2.4.6"]' in text and "--add" not in text


@pytest.mark.parametrize(
    ("wanted", "own", "starts"),
    [
        # of this torch, of none that is known, without a version, with the torch that is replaced on purpose
        (["torchvision==0.28.0+cpu", "torchaudio==2.11", "torchvision", "torchdata==0.10"], [], False),
        ([{"name": "a", "requirements": ["torchvision==0.20"], "allow_replace": ["torch"]}], [], False),
        # what the image meets, in the version without its label, too
        (["torch==2.13.0", "numpy>=2", "einops==0.8"], [], False),
        # markers, other places, what was replaced on purpose, what user software hides; pure Python
        (["numpy==1.0 ; python_version < '3.8'", "torch @ https://example.org/torch.whl", "-r x"], [], False),
        ([{"name": "a", "requirements": ["numpy==1.0"], "allow_replace": ["NumPy"]}], [], False),
        (["numpy==1.0"], ["numpy"], False),
        (["sympy==1.13"], [], True),
        # for GPUs only, but with the torch that is replaced, or there already
        ([{"name": "a", "requirements": ["flash-attn"], "allow_replace": ["torch"]}], [], False),
        (["flash-attn", "grouped-gemm ; python_version < '3'"], ["flash-attn"], False),
    ],
)
def test_what_is_possible(said, wanted, own, starts):
    """N-07: only what pip would refuse is refused; the image is started only if something may be wrong."""
    assert said(wanted, own) == ("", starts)


def test_packages_for_gpus_only(said):
    """N-07: what is only for GPUs fails in an image for CPUs; it is said together with the pins."""
    text, _ = said(["einops", "flash_attn>=2", "numpy==1.22.4", "mamba-ssm[dev]"])
    assert "    ebsif list --has numpy==1.22.4\nthe image has torch 2.13.0+cpu, which is for CPUs" in text
    assert ", but these packages are only for GPUs: flash-attn, mamba-ssm\n" in text
    assert text.endswith("\n    ebsif list --has flash-attn --has mamba-ssm")
    assert said(["flash-attn"])[0].startswith("the image has torch 2.13.0+cpu")


@pytest.mark.parametrize("torch", ["2.13.0+rocm7.0", "2.13.0+cu128", "2.13.0"])
def test_packages_for_gpus_in_images_for_gpus(said, monkeypatch, torch):
    """N-07: the image of a torch without a label may be for GPUs."""
    monkeypatch.setitem(THERE, "torch", torch)
    assert said(["flash-attn"]) == ("", torch == "2.13.0")


@pytest.mark.parametrize(
    ("torch", "wanted", "there", "compiler"),
    [
        ("2.13.0+cu128", ["flash-attn", "einops"], set(), "nvcc"),
        ("2.13.0+rocm7.0", ["mamba-ssm"], set(), "hipcc"),
        ("2.13.0+cu128", ["flash-attn"], {"/usr/local/cuda/bin/nvcc"}, None),
        # what is known is not enough
        ("2.13.0+cu128", ["flash-attn"], None, None),
        ("2.13.0+cu128", ["einops"], set(), None),
        ("2.13.0", ["flash-attn"], set(), None),
        ("2.13.0+cpu", ["flash-attn"], set(), None),
        ("2.13.0+cu128", [{"name": "a", "requirements": ["flash-attn"], "modules": ["CUDA"]}], set(), None),
    ],
)
def test_images_without_a_compiler_for_gpus(said, monkeypatch, torch, wanted, there, compiler):
    """N-07: said before pip starts; not refused, because a wheel may fit."""
    answer = {"side_effect": inspection.InspectionError("no image")} if there is None else {"return_value": there}
    monkeypatch.setitem(THERE, "torch", torch)
    monkeypatch.setattr(inspection, "programs_of", Mock(**answer))
    monkeypatch.setattr(bases, "image_of", lambda *_: "image.sif")
    image = BaseImage(SimpleNamespace(), KnownImage("3.11", THERE))
    note = impossible.without_compiler(WantedStages(image, stages_of(wanted)))
    assert bool(compiler) == bool(note)
    if compiler:
        assert note.startswith(f"the image has no {compiler} to build {wanted[0]}: only wheels that were built for")
        assert note.endswith(f"ebsif list --has {wanted[0]})")


def test_an_image_that_is_elsewhere(said, monkeypatch):
    """N-07: without the image, pip says it later."""
    missing = Mock(side_effect=inspection.InspectionError("no image"))
    monkeypatch.setattr(BaseImage, "packages", property(missing))
    assert said(["torch==2.9.1"]) == ("", False)
