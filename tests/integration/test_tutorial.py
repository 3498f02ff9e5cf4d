"""The tutorial for a new site, followed word for word."""

import re
import shutil
import sys
from pathlib import Path

from parts import TOOLS
from support import Site, blocks

IMAGE = "pytorch-2.13.0-cuda-12.8-python-3.11.sif"


def test_the_tutorial_for_a_new_site(tmp_path, pytorch_image):
    """W-04: every block of docs/new-site.md, in order and in one shell, with nothing but what the page asks for."""
    site = Site(tmp_path / "site", TOOLS["EnvironmentModules-Tcl"](), Path(sys.prefix))
    shutil.copy(pytorch_image, site.work / IMAGE)
    script = "".join(blocks("docs/new-site.md"))
    assert script.count(IMAGE) > 1
    # not in the page: only the tests run as root
    typed = f"set -eo pipefail\n{script}\nmodule list 2>&1"
    said = site.bash(typed, EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES=1)
    text = said.stdout + said.stderr
    assert "Traceback" not in text
    assert not re.search(r"^error", text, re.MULTILINE), text
    assert "review: where are your images?" in said.stdout
    assert "the site has no containers yet" in text
    assert "\n0 containers: 1 warning\n" in text
    assert "\n1 container: nothing is wrong\n" in text
    assert "\n2.13.0+cpu sees a GPU: False\n" in said.stdout
    assert "#PBS -l select=2:ncpus=64:mpiprocs=4:ompthreads=16:ngpus=4\n" in said.stdout
    assert said.stdout.rstrip().endswith("1) PyTorch/2.13.0")
    # nothing elsewhere
    assert {path.name for path in site.home.iterdir()} <= {"ahorn", ".config", ".apptainer", ".cache"}
