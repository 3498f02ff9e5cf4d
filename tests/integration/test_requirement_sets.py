"""Sets of requirements like those of public projects, on the example image: pip alone, and with our constraints."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.packages import InstalledPackages
from easybuild.easyblocks.generic.container.pip import Pip
from easybuild.easyblocks.generic.container.stages import PipStage
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import CONTAINER_FILES, make_wheel, printed

PYTHON = "/opt/miniconda3/envs/pytorch/bin/python"

# Stand-ins: name, version, and what real packages of that time require, as far as it matters here.
WHEELS = """\
accelerate 1.12.0: numpy<3.0.0,>=1.17, packaging>=20.0, torch>=2.0.0, huggingface-hub>=0.21.0
aiohttp 3.13.0:
datasets 2.14.4: numpy>=1.17, packaging, fsspec>=2021.11.1, pyarrow>=8.0.0, huggingface-hub>=0.14.0, pandas, aiohttp
datasets 3.6.0: filelock, numpy>=1.17, packaging, fsspec<=2025.3.0,>=2023.1.0, pyarrow>=15.0.0, pandas, huggingface-hub
diffusers 0.36.0: filelock, huggingface-hub>=0.34.0, numpy, pillow
evaluate 0.4.6: datasets>=2.0.0, numpy>=1.17, fsspec>=2021.05.0, pandas, packaging, huggingface-hub>=0.7.0
faiss-cpu 1.12.0: numpy<3.0,>=1.25.0, packaging
fsspec 2025.3.0:
huggingface-hub 0.36.0: filelock, fsspec>=2023.5.0, packaging>=20.9, typing-extensions>=3.7.4.3
huggingface-hub 1.3.0: filelock>=3.10.0, fsspec>=2023.5.0, packaging>=20.9, typing-extensions>=4.1.0
langchain 1.1.0: langchain-core<2.0.0,>=1.1.0, pydantic<3.0.0,>=2.7.4
langchain-core 1.1.0: packaging<26.0.0,>=23.2.0, pydantic<3.0.0,>=2.7.4, typing-extensions<5.0.0,>=4.7.0
lightning 2.6.0: fsspec[http]<2028.0,>=2022.5.0, lightning-utilities<2.0,>=0.10.0, packaging<27.0, torch<4.0,>=2.1.0, \
torchmetrics<3.0,>0.7.0
lightning-utilities 0.15.2: packaging>=17.1, typing-extensions
networkx 2.8:
numba 0.62.0: numpy<2.4,>=1.22
numba 0.66.0: numpy<2.5,>=1.22
numpy 1.26.4:
numpy 2.3.5:
open-clip-torch 3.2.0: torch>=2.0, torchvision, ftfy, huggingface-hub, safetensors, timm>=1.0.17
ftfy 6.3.1:
packaging 25.0:
pandas 2.3.3: numpy>=1.23.2
pandas 3.0.0: numpy>=1.26.0
peft 0.18.0: numpy>=1.17, packaging>=20.0, torch>=1.13.0, transformers, accelerate>=0.21.0, safetensors
pillow 12.0.0:
protobuf 6.33.0:
pyarrow 22.0.0:
pydantic 2.12.0: typing-extensions>=4.14.1
safetensors 0.7.0:
scikit-learn 1.3.2: numpy<2.0,>=1.17.3, scipy>=1.5.0
scikit-learn 1.8.0: numpy>=1.24.1, scipy>=1.10.0
scipy 1.17.0: numpy<2.8,>=1.26.4
sentencepiece 0.2.1:
streamlit 1.50.0: numpy<3,>=1.23, packaging<26,>=20, pandas<3,>=1.4.0, protobuf<7,>=3.20
sympy 1.13.1: mpmath<1.4,>=1.1.0
timm 1.0.22: torch, torchvision, huggingface-hub, safetensors
tokenizers 0.22.1: huggingface-hub<2.0,>=0.16.4
torch 2.14.0: filelock, typing-extensions>=4.10.0, sympy>=1.13.3, networkx>=2.5.1, jinja2, fsspec>=0.8.5
torch-geometric 2.7.0: fsspec, numpy, jinja2
torchmetrics 1.8.2: numpy>1.20.0, packaging>17.1, torch>=2.0.0, lightning-utilities>=0.8.0
torchvision 0.28.0: numpy, torch==2.13.0, pillow
torchvision 0.29.0: numpy, torch==2.14.0, pillow
transformers 4.57.0: filelock, huggingface-hub<1.0,>=0.34.0, numpy>=1.17, packaging>=20.0, tokenizers<=0.23.0,>=0.22.0
transformers 5.5.0: huggingface-hub<2.0,>=1.3.0, numpy>=1.17, packaging>=20.0, tokenizers<=0.23.0,>=0.22.0, safetensors
trl 0.26.0: accelerate>=1.4.0, datasets>=3.0.0, transformers>=4.56.1
"""

# What is asked for, and what our constraints must give: the versions that are worth naming, or what can't be replaced.
SETS = {
    "text classification": (
        "accelerate>=0.12\ndatasets>=1.8.0,<=3.6.0\nevaluate\nsentencepiece\nprotobuf\ntorch>=1.3",
        {"datasets": "3.6.0", "fsspec": "2025.3.0"},
    ),
    "fine-tuning": ("transformers\npeft\ntrl\ndatasets", {"transformers": "5.5.0", "datasets": "3.6.0"}),
    "pinned": ("transformers==4.57.0\naccelerate", {"huggingface-hub": "0.36.0"}),
    "diffusion": ("diffusers\ntransformers\naccelerate\ntorchvision", {"torchvision": "0.28.0"}),
    "vision": ("open_clip_torch\ntimm\ntorch\ntorchvision", {"torchvision": "0.28.0"}),
    "training": ("lightning\ntorchmetrics\nscikit-learn\npandas", {"scikit-learn": "1.8.0"}),
    "retrieval": ("langchain\nfaiss-cpu\npandas", {"packaging": "25.0", "langchain": "1.1.0"}),
    "app": ("streamlit\ntransformers", {"packaging": "25.0"}),
    "compilers": ("numba\nscipy", {"numba": "0.66.0"}),
    "graphs": ("torch-geometric\nnetworkx<3", {"networkx": "2.8"}),
    "old learning": ("scikit-learn<1.4\npandas", "numpy"),
    "old algebra": ("sympy==1.13.1\ntorch", "sympy"),
    "torch": ("torch==2.14.0", "torch"),
}

# Run pip several times without importing it again: each call is a copy of this process.
CALLS = """\
import json, os, sys
from pip._internal.cli.main import main
import pip._internal.commands.install, pip._internal.resolution.resolvelib.resolver
for report, arguments in json.load(sys.stdin).items():
    child = os.fork()
    if not child:
        log = os.open(report + ".log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os._exit(main(["install", "--dry-run", "--no-index", "--report", report, *arguments]) or 0)
    os.waitpid(child, 0)
"""


def parsed(line):
    """Return name, version and requirements in a line of WHEELS."""
    package, _, needs = line.partition(":")
    name, version = package.split()
    return name, version, [one.strip() for one in needs.split(", ") if one.strip()]


NEEDS = {(name, version): list(map(Requirement, needs)) for name, version, needs in map(parsed, WHEELS.splitlines())}


@pytest.fixture(scope="module")
def results(tmp_path_factory, pytorch_image, configuration):
    """The image's packages; by set: versions after pip alone, with our constraints (None: refused), its output then."""
    folder = tmp_path_factory.mktemp("sets")
    for (name, version), needs in NEEDS.items():
        make_wheel(folder, name.replace("-", "_"), version, map(str, needs))

    def run(*words, text=""):
        return printed(["apptainer", "--silent", "exec", "--bind", folder, pytorch_image, *words], input=text)

    listing = run(
        "sh",
        "-c",
        f"{PYTHON} -m venv --without-pip --system-site-packages {folder}/venv && {folder}/venv/bin/python -",
        text=(CONTAINER_FILES / "share/ebsif/installed-packages.py").read_text(),
    )
    image = InstalledPackages.from_output(listing)
    pip = Pip(SimpleNamespace(python="python"), str(folder), image, {})
    calls = {}
    for number, (text, _) in enumerate(SETS.values()):
        (stage,) = PipStage.from_parameter([{"name": f"set {number}", "requirements": text}])
        path = folder / f"{number}.txt"
        path.write_text(f"--find-links {folder}\n{text}\n")
        calls[str(folder / f"{number}-plain.json")] = ["-r", str(path)]
        calls[str(folder / f"{number}-ours.json")] = ["-r", str(path), "-c", pip.write_constraints(stage)]
    run(f"{folder}/venv/bin/python", "-c", CALLS, text=json.dumps(calls))

    def versions(report):
        if not report.exists():
            return None
        installed = json.loads(report.read_text())["install"]
        return {
            **{name: one[1] for name, one in image.items()},
            **{canonicalize_name(item["metadata"]["name"]): item["metadata"]["version"] for item in installed},
        }

    return image, {
        name: (
            versions(folder / f"{number}-plain.json"),
            versions(folder / f"{number}-ours.json"),
            Path(folder, f"{number}-ours.json.log").read_text(),
        )
        for number, name in enumerate(SETS)
    }


def importable(name, versions, image, seen=()):
    """Return whether a package and all that it requires have versions that fit each other."""
    needs = NEEDS.get((name, versions.get(name)))
    if needs is None:
        needs = [Requirement(one.on + one.versions) for one in image.needs if canonicalize_name(one.name) == name]
    return name in versions and all(
        one.specifier.contains(versions.get(canonicalize_name(one.name), "0"), prereleases=True)
        and (one.name in seen or importable(canonicalize_name(one.name), versions, image, (*seen, name)))
        for one in needs
    )


@pytest.mark.parametrize("name", SETS)
def test_never_worse_than_by_hand(results, name):
    """
    V-03, S001-19: of each set, as many packages as with pip alone can be imported, in the newest versions, or more.

    What belongs to the machine is never another one; where by hand it would be, the refusal names it.
    """
    image, found = results
    plain, ours, output = found[name]
    text, expected = SETS[name]
    bound = {one: image[one][1] for one in image.bound()}
    if isinstance(expected, str):
        assert ours is None
        assert f"The user requested (constraint) {expected}" in output
        assert (
            plain is None
            or any(plain[one] != version for one, version in bound.items())
            or not importable("torch", plain, image)
        )
        return
    assert {one: ours[one] for one in bound} == bound
    assert {one: ours[one] for one in expected} == expected
    asked = [canonicalize_name(Requirement(line).name) for line in text.splitlines()]
    good, by_hand = ([one for one in asked if importable(one, versions, image)] for versions in (ours, plain or {}))
    assert good == asked
    assert set(by_hand) <= set(good)
