"""
Loading, unloading and looking for a package among ten thousand modules, compared with as many others.

The others are empty, or have what EasyBuild writes into the module of any software: help, packages and paths. The CPU
time is measured, which varies less than the time on a busy machine. EBSIF_BENCH_MODULES is the number of modules.

With a cache, Lmod looks at the tree to load a module, or reads the cache, as LMOD_CACHED_LOADS says. Then it also sorts
the modules that list the same package, so modules without such a list are measured, too.
"""

import os

from measuring import in_turn, rows
from module_tools import EASYCONFIG, MODULES, installed
from parts import TOOLS

FOLDERS = 100
VERSIONS = int(os.environ.get("EBSIF_BENCH_MODULES", "10000")) // FOLDERS
# Lmod looks at the whole tree each time. Loads of the same module in equal trees differ by 20 of 300 ms, so only the
# median of many shows a difference of milliseconds.
LOADS = {"Lmod": 4, "EnvironmentModules": 10}
RUNS = {"Lmod": 50, "EnvironmentModules": 9}
DESCRIBED = "a module of any software"
UNLISTED = "ebsif, listed_packages: none"
CONTENDERS = {**MODULES, DESCRIBED: "Described/1.0", UNLISTED: "Unlisted/1.0"}
COMPARED = ["an empty module", DESCRIBED, "ebsif"]

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
    title = f"{FOLDERS * VERSIONS:,} modules"
    for tool in TOOLS:
        site = installed(folder / tool, TOOLS[tool]())
        site.eb(site.easyconfig(f"{EASYCONFIG}listed_packages = 'none'\n", name="Unlisted"))
        trees = {name: folder / tool / f"tree-{number}" for number, name in enumerate(CONTENDERS)}
        for name, tree in trees.items():
            fill(tree, site.modules, CONTENDERS[name])
        shell = {name: f"export MODULEPATH={tree} LMOD_CACHED_LOADS=no\n" for name, tree in trees.items()}
        found += loading(f"{title}, {tool}", site, shell)
        if site.tool.name != "Lmod":
            continue
        cached = {name: f"{shell[name]}export LMOD_RC={tree}.cache/lmodrc.lua\n" for name, tree in trees.items()}
        for name, tree in trees.items():
            site.bash(f"{shell[name]}CACHES={tree}.cache\n{CACHE}")
        found += loading(f"{title} and a cache, {tool}", site, cached)
        if not tool.endswith("Tcl"):
            found += spider(f"{title}: spider, {tool}", site, shell, "--ignore_cache")
            found += spider(f"{title} and a cache: spider, {tool}", site, cached, "")
            read = {name: f"{text}export LMOD_CACHED_LOADS=yes\n" for name, text in cached.items()}
            found += loading(f"{title}, loads read the cache, {tool}", site, read, list(CONTENDERS))
    return found


def fill(tree, modules, module):
    """Fill a tree with copies of a module, each with another description, which is also there by its name."""
    name, version = module.split("/")
    source = modules / ("Example" if name == "Described" else name)
    (path,) = source.glob(f"{version}*")
    suffix = path.suffix if path.suffix == ".lua" else ""
    text = path.read_text()
    if name == "Described":
        text = text[: text.index(CONTAINER_PART[suffix])]
    for folder in [*(f"Software{number}" for number in range(FOLDERS - 1)), name]:
        place = tree / folder
        place.mkdir(parents=True)
        for number in range(VERSIONS):
            own = text.replace("A container of the tests", f"{folder} 1.{number}, a container of the tests")
            place.joinpath(f"1.{number}{suffix}").write_text(own)


def loading(title, site, shell, contenders=COMPARED):
    """Measure load and unload."""
    steps = {step: {name: [] for name in contenders} for step in ("load", "unload")}

    def load_and_unload(name):
        loads = LOADS[site.tool.name]
        output = site.bash(shell[name] + LOAD.format(loads=loads, module=CONTENDERS[name])).stdout
        for step, text in zip(steps, output.split("/")):
            steps[step][name].append(sum(map(float, text.split())) / loads)

    in_turn({name: (lambda name=name: load_and_unload(name)) for name in contenders}, RUNS[site.tool.name])
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

    return rows(
        title,
        in_turn({name: (lambda name=name: run(name)) for name in COMPARED}, 3),
        "ebsif",
        {"an empty module": None, DESCRIBED: None},
    )
