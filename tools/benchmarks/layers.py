"""Other packages than the image's: what a layer of system packages and a replaced package cost."""

import os
import subprocess
import sys
import time
from pathlib import Path

from measuring import Row, in_turn, rows
from parts import TOOLS, wheel_settings
from support import CHECKOUT, Site, make_wheel

TEXT = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
REPLACING = "requirements = [{'requirements': ['wheel==9.9'], 'allow_replace': ['wheel']}]\n"


def measure(folder):
    """Measure making and using a layer with ffmpeg and libGL, and installing another version of a package."""
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(os.environ["EBSIF_TEST_BASE_IMAGE"])
    wheels = folder / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "wheel", "9.9")
    make_wheel(wheels, "other", "9.9")

    def install(text):
        start = time.perf_counter()
        site.eb(site.easyconfig(TEXT + text), "--rebuild", **settings)
        return time.perf_counter() - start

    settings = {"EBSIF_INSTALL_BIND": site.run([CHECKOUT / "scripts/install-binds"]).stdout.strip()}
    plain = min(install("versionsuffix = '-plain'\n") for _ in range(2))
    layered = install("versionsuffix = '-layered'\nsystem_packages = ['ffmpeg', 'libgl1']\n")
    (layer,) = (site.prefix / "eb/software/Example/1.0-layered").glob("*system*.squashfs")
    size = f"{layer.stat().st_size / 1e6:.0f} MB, with the download"
    found = [Row("layer with ffmpeg and libGL, made", "ebsif", layered - plain, 1, note=size)]

    commands = {name: started(site, f"Example/1.0-{name}") for name in ("plain", "layered")}
    times = in_turn(commands, runs=40)
    found += rows("start of a container", times, "layered", {"plain": ("ratio", 1.35)})

    settings = wheel_settings(wheels)
    times = in_turn(
        {
            "one more package": lambda: install("versionsuffix = '-more'\nrequirements = ['other']\n"),
            "one replaced": lambda: install("versionsuffix = '-replaced'\n" + REPLACING),
        },
        runs=5,
    )
    return found + rows("a package, installed", times, "one replaced", {"one more package": None})


def started(site, module):
    """Return a function that starts a container with a module's variables, and waits for its end."""
    loaded = site.bash(f"module load {module}; env -0").stdout
    environment = dict(line.split("=", 1) for line in loaded.split("\0") if "=" in line)
    command = ["apptainer", "exec", environment["SIF"], "/bin/true"]
    return lambda: subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL) and None
