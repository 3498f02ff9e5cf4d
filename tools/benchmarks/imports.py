"""Importing torch and torchmetrics: from the image, with user software as a directory and as a SquashFS file."""

import os
import subprocess
import sys
from pathlib import Path

from measuring import drop_caches, in_turn, rows, run
from parts import TOOLS
from support import CHECKOUT, Site

# Counts the files that Python opens below a directory: modules, bytecode and libraries.
COUNT = """
import sys
opened = set()
def hook(event, arguments):
    if event == "open" and str(arguments[0]).startswith("/user-software"):
        opened.add(str(arguments[0]))
    elif event == "import" and str(arguments[1]).startswith("/user-software"):
        opened.add(str(arguments[1]))
sys.addaudithook(hook)
import torch, torchmetrics
print(len(opened))
"""


def installed(folder):
    """Return the environments of two modules (dict): torchmetrics in a SquashFS file, and in a directory."""
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    image = Path(os.environ["EBSIF_TEST_PYTORCH_IMAGE"])
    (site.sources / image.name).symlink_to(image)
    binds = run(["bash", CHECKOUT / "scripts/install-binds"]).stdout.strip()
    text = (
        f"sources = [{image.name!r}]\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
        "requirements = ['torchmetrics']\n"
    )
    for suffix in ("-file", "-directory"):
        site.eb(site.easyconfig(text, suffix=suffix), EBSIF_INSTALL_BIND=binds)
    site.bash("module load Example/1.0-directory; unmake-squashfs; rm $CONTAINERROOT/user-software.squashfs")
    environments = {}
    for suffix in ("-file", "-directory"):
        loaded = site.bash(f"module load Example/1.0{suffix}; env -0").stdout
        environments[suffix] = dict(line.split("=", 1) for line in loaded.split("\0") if "=" in line)
    return environments


def measure(folder):
    """Measure with a warm page cache, and with a cold one if this machine allows dropping it."""
    environments = installed(folder)

    def python(suffix, code):
        environment = environments[suffix]
        command = ["apptainer", "exec", environment["SIF"], "python", "-c", code]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    both = "import torch, torchmetrics"
    contenders = {
        "image alone": lambda: python("-file", "import torch"),
        "directory": lambda: python("-directory", both),
        "SquashFS file": lambda: python("-file", both),
    }
    opened = int(python("-directory", COUNT))
    notes = {
        "image alone": "import of torch only",
        "directory": f"{opened} files opened on the file system of the installation",
        "SquashFS file": "1 file opened on the file system of the installation",
    }
    found = rows(
        "import, warm", in_turn(contenders, runs=5), "SquashFS file", {"directory": None, "image alone": None}, notes
    )
    if drop_caches():
        cold = {name: (lambda work=work: timed_cold(work)) for name, work in contenders.items()}
        found += rows(
            "import, cold (local disk)",
            in_turn(cold, runs=3),
            "SquashFS file",
            {"directory": None, "image alone": None},
            notes,
        )
    return found


def timed_cold(work):
    """Do the work with an empty page cache; return the seconds."""
    import time

    drop_caches()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
