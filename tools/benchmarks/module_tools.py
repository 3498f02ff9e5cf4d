"""Loading and unloading a module, compared with an empty one, repeatedly in one shell."""

import os
import sys
from pathlib import Path

from measuring import in_turn, rows
from parts import TOOLS
from support import Site

LOADS = 20
RUNS = 9
EMPTY = {"Lua": "", "Tcl": "#%Module\n"}
EASYCONFIG = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
MODULES = {"an empty module": "Empty/1.0", "ebsif": "Example/1.0"}

# Measures the two commands only; starting the shell and defining `module` takes the same time for both.
SCRIPT = """
load=0 unload=0
for ((i = 0; i < {loads}; i++)); do
    start=$EPOCHREALTIME
    module load {module}
    loaded=$EPOCHREALTIME
    module unload {module}
    end=$EPOCHREALTIME
    (( load += ${{loaded/./}} - ${{start/./}}, unload += ${{end/./}} - ${{loaded/./}} ))
done
echo "$load $unload"
"""


def measure(folder):
    """Measure load, unload and both together for each modules tool."""
    found = []
    for tool in TOOLS:
        site = installed(folder / tool, TOOLS[tool]())
        steps = {"load": {name: [] for name in MODULES}, "unload": {name: [] for name in MODULES}}

        def load_and_unload(name, site=site, steps=steps):
            output = site.bash(SCRIPT.format(loads=LOADS, module=MODULES[name])).stdout
            times = [int(number) / LOADS / 1e6 for number in output.split()[-2:]]
            for step, seconds in zip(steps, times):
                steps[step][name].append(seconds)
            return sum(times)

        both = in_turn({name: (lambda name=name, run=load_and_unload: run(name)) for name in MODULES}, RUNS, warm_up=1)
        for step, times in steps.items():
            times = {name: values[1:] for name, values in times.items()}
            found += rows(f"module {step}, {tool}", times, "ebsif", {"an empty module": ("difference", 0.005)})
        found += rows(f"load and unload, {tool}", both, "ebsif", {"an empty module": None})
    return found


def installed(folder, tool):
    """Return a site with the two modules."""
    site = Site(folder, tool, Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(os.environ["EBSIF_TEST_BASE_IMAGE"])
    site.eb(site.easyconfig(EASYCONFIG))
    empty = site.modules / "Empty/1.0"
    empty.parent.mkdir(parents=True)
    empty.with_name("1.0.lua" if tool.syntax == "Lua" else "1.0").write_text(EMPTY[tool.syntax])
    return site
