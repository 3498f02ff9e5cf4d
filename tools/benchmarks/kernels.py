"""Jupyter kernels: the time until a kernel answers, with ours and with the same command of the runtime by hand."""

import functools
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from measuring import in_turn, rows
from parts import TOOLS
from support import CHECKOUT, Site

PACKAGES = "start-shell -c 'pip install --quiet ipykernel'"


def start(folder):
    """Measure from the start of the program in kernel.json to the first reply of the kernel."""
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(os.environ["EBSIF_TEST_BASE_IMAGE"])
    text = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
    site.eb(site.easyconfig(text))
    binds = site.run([CHECKOUT / "scripts/install-binds"]).stdout.strip()
    site.bash(
        f"module load Example/1.0; {PACKAGES}; make-squashfs; rm -r $CONTAINERROOT/user-software", APPTAINER_BIND=binds
    )
    loaded = site.bash("module load Example/1.0; env -0").stdout
    environment = dict(line.split("=", 1) for line in loaded.split("\0") if "=" in line)
    program = f"{environment['CONTAINERROOT']}/interpreter/python"
    by_hand = [
        "apptainer",
        "exec",
        environment["SIF"],
        "/user-software/venv/pytorch/bin/python",
        "-m",
        "ipykernel_launcher",
    ]

    def call(command, variables):
        manager = KernelManager()
        manager._kernel_spec = KernelSpec(argv=[*command, "-f", "{connection_file}"], language="python")
        begin = time.perf_counter()
        manager.start_kernel(env=variables, stderr=subprocess.DEVNULL)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(60)
        seconds = time.perf_counter() - begin
        client.stop_channels()
        manager.shutdown_kernel()
        return seconds

    def processor_time(*arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        call(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    found = []
    # the latter depends less on other load
    for what, measure in (("to the first reply", call), ("CPU until its end", processor_time)):
        times = in_turn(
            {
                "apptainer exec": functools.partial(measure, by_hand, environment),
                # without the module loaded
                "ebsif": functools.partial(measure, [program, "-m", "ipykernel_launcher"], site.environment),
            },
            runs=12,
        )
        found += rows(f"kernel, {what}", times, "ebsif", {"apptainer exec": ("ratio", 1.05)})
    return found
