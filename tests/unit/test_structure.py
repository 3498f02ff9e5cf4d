"""The import rules of docs/architecture.md, checked in the sources, imports inside functions included."""

import ast
from graphlib import TopologicalSorter

from support import CHECKOUT

WING = "easybuild.easyblocks.generic"
ROOTS = {WING: CHECKOUT / "easyblocks/generic", "ebsif": CHECKOUT / "generator/ebsif"}


def modules():
    """Return every module of the project (dict of name and path), without programs for the image."""
    found = {}
    for package, folder in ROOTS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if "files" in parts or path.stem == "__init__":
                continue
            found[".".join((package, *parts))] = path
    return found


def imports(path, known):
    """Return the project's modules that a module imports (set of str)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found & known


def graph():
    """The imports of each module."""
    known = modules()
    found = {name: imports(path, set(known)) for name, path in known.items()}
    assert len(found) > 60
    assert sum(map(len, found.values())) > 100
    return found


def test_no_circular_imports():
    """House 3, must hold of the layout: neither at the top of a module nor inside a function."""
    order = list(TopologicalSorter(graph()).static_order())
    assert order


def test_the_easyblocks_stand_alone():
    """Design, layout: easyblocks import nothing of the generator; modules of the sub-package import no easyblock."""
    for name, used in graph().items():
        if name.startswith(WING):
            assert not [one for one in used if one.startswith("ebsif")], name
        if name.startswith(f"{WING}.container."):
            assert not used & {f"{WING}.containerinstall", f"{WING}.containervenv"}, name


def test_commands_do_not_import_each_other():
    """House 2.11: code shared by commands is in another package, and none of those imports a command."""
    for name, used in graph().items():
        commands = [one for one in used if one.startswith("ebsif.commands.")]
        assert not commands or name == "ebsif.cli", (name, commands)
