"""Loading, unloading and looking for a package among ten thousand modules, compared with as many empty ones."""

from measuring import in_turn, rows
from module_tools import MODULES, SCRIPT, installed
from parts import TOOLS

FOLDERS, VERSIONS = 100, 100
LOADS = 3
RUNS = 7
SPIDER = """
start=$EPOCHREALTIME
module {option} spider numpy &>spider
end=$EPOCHREALTIME
echo "$((${{end/./}} - ${{start/./}}))"
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
        trees = {name: folder / tool / f"tree-{number}" for number, name in enumerate(MODULES)}
        for name, tree in trees.items():
            fill(tree, site.modules, MODULES[name])
        shells = {"": {name: f"export MODULEPATH={tree}" for name, tree in trees.items()}}
        if is_lmod:
            shells[" with a cache"] = {}
            for name, tree in trees.items():
                shells[" with a cache"][name] = f"{shells[''][name]} LMOD_RC={tree}.cache/lmodrc.lua"
                site.bash(f"{shells[''][name]} CACHES={tree}.cache\n{CACHE}")
        for how, shell in shells.items():
            found += loading(f"10,000 modules{how}, {tool}", site, shell)
            if is_lmod:
                found += spider(f"10,000 modules{how}: spider, {tool}", site, shell, "" if how else "--ignore_cache")
    return found


def fill(tree, modules, module):
    """Fill a tree with copies of a module, which is also there by its name."""
    name, version = module.split("/")
    (path,) = (modules / name).glob(f"{version}*")
    text = path.read_bytes()
    places = [tree / f"Software{number}" for number in range(FOLDERS - 1)]
    for place in [*places, tree / name]:
        place.mkdir(parents=True)
        for number in range(VERSIONS):
            place.joinpath(f"1.{number}{path.suffix if path.suffix == '.lua' else ''}").write_bytes(text)


def loading(title, site, shell):
    """Measure load and unload together."""
    def run(name):
        output = site.bash(f"{shell[name]}\n{SCRIPT.format(loads=LOADS, module=MODULES[name])}").stdout
        return sum(map(int, output.split()[-2:])) / LOADS / 1e6

    times = in_turn({name: (lambda name=name: run(name)) for name in MODULES}, RUNS)
    return rows(title, times, "ebsif", {"an empty module": ("difference", 0.005)})


def spider(title, site, shell, option):
    """Measure how long Lmod looks for a package."""
    def run(name):
        return int(site.bash(f"{shell[name]}\n{SPIDER.format(option=option)}").stdout) / 1e6

    return rows(title, in_turn({name: (lambda name=name: run(name)) for name in MODULES}, 3), "ebsif",
                {"an empty module": None})
