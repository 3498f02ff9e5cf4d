"""Who imports whom: the rules of docs/architecture.md, read from the sources, imports inside functions included."""

import ast
from graphlib import TopologicalSorter

from support import CHECKOUT

WING = "easybuild.easyblocks.generic"
ROOTS = {WING: CHECKOUT / "easyblocks/generic", "ebsif": CHECKOUT / "generator/ebsif"}


def modules():
    """Every module of the project (dict of name and path), programs for the image aside."""
    found = {}
    for package, folder in ROOTS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if "files" in parts or path.stem == "__init__":
                continue
            found[".".join((package, *parts))] = path
    return found


def imports(path, known):
    """The modules of the project that one imports (set of str)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found & known


def graph():
    """What each module imports."""
    known = modules()
    found = {name: imports(path, set(known)) for name, path in known.items()}
    assert len(found) > 60
    assert sum(map(len, found.values())) > 100
    return found


def test_no_import_goes_in_a_circle():
    """House 3, must hold of the layout: neither at the top of a module nor inside a function."""
    order = list(TopologicalSorter(graph()).static_order())
    assert order


def test_the_easyblocks_stand_alone():
    """Design, layout: nothing of the generator; in the wing no door."""
    for name, used in graph().items():
        if name.startswith(WING):
            assert not [one for one in used if one.startswith("ebsif")], name
        if name.startswith(f"{WING}.container."):
            assert not used & {f"{WING}.containerinstall", f"{WING}.containervenv"}, name


def test_commands_do_not_import_each_other():
    """House 2.11: what two commands need is in a room; no room needs a command."""
    for name, used in graph().items():
        commands = [one for one in used if one.startswith("ebsif.commands.")]
        assert not commands or name == "ebsif.cli", (name, commands)
