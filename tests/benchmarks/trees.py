"""
Loading, unloading and looking for a package among ten thousand modules, compared with as many others.

The others are empty, or have what EasyBuild writes into the module of any software: help, packages and paths. The CPU
time is measured, which varies less than the time on a busy machine. EBSIF_BENCH_MODULES is the number of modules.
"""

import os

from measuring import in_turn, rows
from module_tools import MODULES, installed
from parts import TOOLS

FOLDERS = 100
VERSIONS = int(os.environ.get("EBSIF_BENCH_MODULES", "10000")) // FOLDERS
LOADS = 5
RUNS = 9
DESCRIBED = "a module of any software"
CONTENDERS = {"an empty module": MODULES["an empty module"], DESCRIBED: "Described/1.0", "ebsif": MODULES["ebsif"]}

# Where the part of a module begins that is special for containers.
CONTAINER_PART = {".lua": 'if mode() ~= "spider" then', "": "# Only one container at a time"}

# Both print the CPU seconds of commands, of user and system.
LOAD = """
TIMEFORMAT='%3U %3S'
for ((i = 0; i < {loads}; i++)); do
    {{ time module load {module} &>said; }} 2>>load
    {{ time module unload {module} &>said; }} 2>>unload
done
echo $(<load) / $(<unload)
rm load unload
"""
SPIDER = """
TIMEFORMAT='%3U %3S'
{{ time module {option} spider numpy &>said; }} 2>times
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


def loading(title, site, shell):
    """Measure load and unload."""
    steps = {"load": {name: [] for name in CONTENDERS}, "unload": {name: [] for name in CONTENDERS}}

    def load_and_unload(name):
        output = site.bash(shell[name] + LOAD.format(loads=LOADS, module=CONTENDERS[name])).stdout
        for step, text in zip(steps, output.split("/")):
            steps[step][name].append(sum(map(float, text.split())) / LOADS)

    in_turn({name: (lambda name=name: load_and_unload(name)) for name in CONTENDERS}, RUNS)
    found = []
    for step, times in steps.items():
        times = {name: values[1:] for name, values in times.items()}
        found += rows(f"{title}: {step}", times, "ebsif", {"an empty module": ("difference", 0.005), DESCRIBED: None})
    return found


def spider(title, site, shell, option):
    """Measure how long Lmod looks for a package."""
    def run(name):
        said = site.bash(shell[name] + SPIDER.format(option=option)).stdout
        return sum(map(float, said.split()))

    return rows(title, in_turn({name: (lambda name=name: run(name)) for name in CONTENDERS}, 3), "ebsif",
                {"an empty module": None, DESCRIBED: None})
