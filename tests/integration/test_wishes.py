"""V-01 to V-04: what people have asked of images of the LUMI AI Factory, with stand-ins of the same packages."""

import sys
from pathlib import Path

import pytest
from aptrepository import binds_of, make_deb
from parts import TOOLS, wheel_settings
from support import Site, make_wheel

pytestmark = pytest.mark.nightly
SITE = """\
name: local
description: a machine of the tests.
images: {{directories: [{{path: {folder}}}]}}
"""
CATALOG = """\
name: multitorch
families:
  full:
    homepage: https://example.org/
    file: full.sif
    suffix: -full
    init: venv-in-image
    image: central
    venv: true
    wrappers: [python, pip]
    entry_point: /opt/oci-entrypoint.sh
containers:
  - {family: full, version: 2.10}
"""
VERSIONS = "import {0}; print({0}.__version__, {0}.__file__)"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """What pip finds: the versions that people asked for, and what these require."""
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "transformers", "5.5.0", ["huggingface-hub<2.0,>=1.5.0", "tqdm>=4.27"])
    make_wheel(folder, "huggingface_hub", "1.9.1", ["hf-xet<2.0.0,>=1.4.3", "tqdm>=4.42.1"])
    make_wheel(folder, "huggingface_hub", "1.8.0", ["hf-xet<2.0.0,>=1.4.2", "tqdm>=4.42.1"])
    make_wheel(folder, "hf_xet", "1.4.3")
    make_wheel(folder, "tqdm", "4.66.5")
    return folder


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """What apt finds: a program and its library."""
    folder = tmp_path_factory.mktemp("repository")
    make_deb(folder, "ffmpeg", "7:5.1", {"usr/bin/ffmpeg": "#!/bin/sh\ncat /usr/share/libav/text\n"}, Depends="libav")
    make_deb(folder, "libav", files={"usr/share/libav/text": "it encodes\n"})
    return folder


class Place:
    """A site whose catalog has the image, where it lies."""

    def __init__(self, folder, image, wheels, repository):
        self.site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
        self.settings = {**wheel_settings(wheels), "EBSIF_INSTALL_BIND": f"{wheels},{binds_of(repository)}"}
        (self.site.sources / "full.sif").symlink_to(image)
        self.catalog = folder / "sites"
        (self.catalog / "local/containers").mkdir(parents=True)
        (self.catalog / "local/site.yaml").write_text(SITE.format(folder=self.site.sources))
        (self.catalog / "local/containers/multitorch.yaml").write_text(CATALOG)

    def ebsif(self, *words, status=0):
        """Run ebsif; return its output without line breaks, results first."""
        more = ("--catalog", self.catalog, "--date", "20260601", "--", *self.site.eb_options)
        command = ["ebsif", *words, *(more if words[0] == "extend" else ())]
        result = self.site.run(command, check=False, MODULEPATH=self.site.modules, **self.settings)
        assert result.returncode == status, result.stdout + result.stderr
        return " ".join((result.stdout + result.stderr).split())

    def python(self, module, name):
        """Return version and file of a Python module in a container."""
        return self.shell(f"module load {module} && singularity exec $SIF python -c '{VERSIONS.format(name)}'").split()

    def shell(self, script):
        """Return the output of a shell script."""
        return self.site.bash(script).stdout

    def record(self, module):
        """Return the record of an installed module."""
        return self.site.record(module)


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_image, wheels, repository):
    """The site; nothing is installed."""
    return Place(tmp_path_factory.mktemp("place"), small_image("laif-full"), wheels, repository)


def test_a_newer_transformers(place):
    """
    V-01, V-02 (laifs-container-recipes 24): the table has what pip warned of there, and the module then works.

    vllm and compressed-tensors, which don't fit together in the image, aren't blamed on the replacement. hf-xet is
    compiled and stays, so that the newest huggingface-hub which fits it is installed.
    """
    module = "multitorch/2.10-full-gemma-20260601"
    words = ("extend", "multitorch/2.10", "--replace", "transformers==5.5.0", "--name", "gemma")
    table = place.ebsif(*words, status=3)
    for row in (
        "compressed-tensors 0.14.1a20260317 image transformers<5.0.0 breaks",
        "llmcompressor 0.10.0.2.dev0+lumi.aif.6a6cfec image transformers<=4.57.6,>=4.56.1 breaks",
        "vllm 0.16.0+lumi.aif.gfx90a.89a77b1 image transformers<5,>=4.56.0 breaks",
    ):
        assert row in table
    assert "compressed-tensors==0.13.0" not in table
    place.ebsif(*words, "--yes")
    packages = "/user-software/venv/multitorch/lib/python3.13/site-packages"
    assert place.python(module, "transformers") == ["5.5.0", f"{packages}/transformers.py"]
    assert place.python(module, "huggingface_hub") == ["1.8.0", f"{packages}/huggingface_hub.py"]
    for name, version in (("hf_xet", "1.4.2"), ("vllm", "0.16.0+lumi.aif.gfx90a.89a77b1")):
        assert place.python(module, name) == [version, f"/opt/venv/lib/python3.13/site-packages/{name}/__init__.py"]
    helped = " ".join(place.shell(f"module help {module} 2>&1").split())
    assert "llmcompressor 0.10.0.2.dev0+lumi.aif.6a6cfec needs transformers<=4.57.6,>=4.56.1" in helped
    assert "warning" in place.ebsif("doctor", "--installed", module)


def test_an_older_tqdm(place):
    """V-01 (LUMI-AI-Guide 93 and 106): the version asked for is imported, not the one on the image's PYTHONPATH."""
    module = "multitorch/2.10-full-older-20260601"
    place.ebsif("extend", "multitorch/2.10", "--replace", "tqdm==4.66.5", "--name", "older", "--yes")
    expected = ["4.66.5", "/user-software/venv/multitorch/lib/python3.13/site-packages/tqdm.py"]
    assert place.python(module, "tqdm") == expected
    assert place.shell(f"module load {module} && python -c 'import tqdm; print(tqdm.__version__)'") == "4.66.5\n"


def test_a_package_of_the_system(place):
    """V-04: ffmpeg in an image of the Factory, for exec, wrapper and entry point; a package of pip beside it."""
    module = "multitorch/2.10-full-video-20260601"
    place.ebsif("extend", "multitorch/2.10", "--apt", "ffmpeg", "--replace", "tqdm==4.66.5", "--name", "video", "--yes")
    code = 'import os, tqdm; os.system("ffmpeg"); print(tqdm.__version__)'
    output = place.shell(
        f"module load {module} && singularity exec $SIF ffmpeg && singularity run $SIF ffmpeg && python -uc '{code}'"
    )
    assert output.splitlines() == ["it encodes"] * 3 + ["4.66.5"]
    assert place.record(module)["system_layer"]["packages"] == ["ffmpeg==7:5.1", "libav==1.0"]
