"""Loading and unloading a module, beside one that is empty, in one shell that goes on."""

import os
import sys
from pathlib import Path

from measuring import in_turn, rows
from parts import TOOLS
from support import Site

LOADS = 20
EMPTY = {"Lua": "", "Tcl": "#%Module\n"}


def measure(folder):
    """For each modules tool."""
    found = []
    for name, make in TOOLS.items():
        tool = make()
        site = Site(folder / name, tool, Path(sys.prefix))
        (site.sources / "example.sif").symlink_to(os.environ["EBSIF_TEST_BASE_IMAGE"])
        text = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
        site.eb(site.easyconfig(text))
        empty = site.modules / "Empty/1.0"
        empty.parent.mkdir(parents=True)
        empty.with_name("1.0.lua" if tool.syntax == "Lua" else "1.0").write_text(EMPTY[tool.syntax])

        def loads(module, site=site):
            # the time of the loop only: starting the shell and defining `module` is the same for both
            script = f"""
                start=$EPOCHREALTIME
                for ((i = 0; i < {LOADS}; i++)); do module load {module}; module unload {module}; done
                end=$EPOCHREALTIME
                echo $(( (${{end/./}} - ${{start/./}}) / {LOADS} ))"""
            return int(site.bash(script).stdout.split()[-1]) / 1e6

        times = in_turn({"an empty module": lambda: loads("Empty/1.0"), "ebsif": lambda: loads("Example/1.0")}, runs=7)
        found += rows(f"load and unload, {name}", times, "ebsif", {"an empty module": ("difference", 0.005)})
    return found
