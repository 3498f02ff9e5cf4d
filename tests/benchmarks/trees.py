"""
Loading, unloading and looking for a package among ten thousand modules, compared with as many others.

The others are empty, or have what EasyBuild writes into the module of any software: help, packages and paths. The CPU
time is measured, which varies less than the time on a busy machine. EBSIF_BENCH_MODULES is the number of modules.
"""

import os

from measuring import in_turn, rows
from module_tools import MODULES, SCRIPT, installed
from parts import TOOLS

FOLDERS = 100
VERSIONS = int(os.environ.get("EBSIF_BENCH_MODULES", "10000")) // FOLDERS
LOADS = 3
RUNS = 7
DESCRIBED = "a module of any software"
CONTENDERS = {"an empty module": MODULES["an empty module"], DESCRIBED: "Described/1.0", "ebsif": MODULES["ebsif"]}

# Where the part of a module begins that is special for containers.
CONTAINER_PART = {".lua": 'if mode() ~= "spider" then', "": "# Only one container at a time"}

# Prints the CPU seconds of commands, of user and system.
TIMED = """
TIMEFORMAT='%3U %3S'
{{ time {{ {commands}
}} &>said; }} 2>times
cat times
"""
CACHE = """
set -e
mkdir -p "$CACHES"
"${LMOD_CMD%/lmod}/update_lmod_system_cache_files" -d "$CACHES" -t "$CACHES/timestamp" "$MODULEPATH" >/dev/null
printf 'scDescriptT = {{dir = "%s", timestamp = "%s"}}\\n' "$CACHES" "$CACHES/timestamp" >"$CACHES/lmodrc.lua"
"""


def measure(folder):
    """Measure load and unload for each modules tool, with Lmod also with its cache, and its spider."""
    found = []
    for tool in TOOLS:
        site = installed(folder / tool, TOOLS[tool]())
        is_lmod = site.tool.name == "Lmod"
        trees = {name: folder / tool / f"tree-{number}" for number, name in enumerate(CONTENDERS)}
        for name, tree in trees.items():
            fill(tree, site.modules, CONTENDERS[name])
        shells = {"": {name: f"export MODULEPATH={tree}" for name, tree in trees.items()}}
        if is_lmod:
            shells[" with a cache"] = {}
            for name, tree in trees.items():
                shells[" with a cache"][name] = f"{shells[''][name]} LMOD_RC={tree}.cache/lmodrc.lua"
                site.bash(f"{shells[''][name]} CACHES={tree}.cache\n{CACHE}")
        title = f"{FOLDERS * VERSIONS:,} modules"
        for how, shell in shells.items():
            found += loading(f"{title}{how}, {tool}", site, shell)
            if is_lmod and not tool.endswith("Tcl"):
                found += spider(f"{title}{how}: spider, {tool}", site, shell, "" if how else "--ignore_cache")
    return found


def fill(tree, modules, module):
    """Fill a tree with copies of a module, each with another description, which is also there by its name."""
    name, version = module.split("/")
    (path,) = (modules / (name if name != "Described" else "Example")).glob(f"{version}*")
    suffix = path.suffix if path.suffix == ".lua" else ""
    text = path.read_text()
    if name == "Described":
        text = text[:text.index(CONTAINER_PART[suffix])]
    for folder in [*(f"Software{number}" for number in range(FOLDERS - 1)), name]:
        place = tree / folder
        place.mkdir(parents=True)
        for number in range(VERSIONS):
            own = text.replace("A container of the tests", f"{folder} 1.{number}, a container of the tests")
            place.joinpath(f"1.{number}{suffix}").write_text(own)


def timed(site, shell, commands):
    """Return the CPU seconds of commands."""
    said = site.bash(f"{shell}\n{TIMED.format(commands=commands)}").stdout
    return sum(map(float, said.split()))


def loading(title, site, shell):
    """Measure load and unload together."""
    def run(name):
        return timed(site, shell[name], SCRIPT.format(loads=LOADS, module=CONTENDERS[name])) / LOADS

    times = in_turn({name: (lambda name=name: run(name)) for name in CONTENDERS}, RUNS)
    return rows(title, times, "ebsif", {"an empty module": ("difference", 0.005), DESCRIBED: None})


def spider(title, site, shell, option):
    """Measure how long Lmod looks for a package."""
    def run(name):
        return timed(site, shell[name], f"module {option} spider numpy")

    return rows(title, in_turn({name: (lambda name=name: run(name)) for name in CONTENDERS}, 3), "ebsif",
                {"an empty module": None, DESCRIBED: None})
