"""The import rules of docs/architecture.md, checked in the sources, imports inside functions included."""

import ast
import re
from graphlib import TopologicalSorter

import pytest
from support import CHECKOUT, tracked

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


def imports(name, path, known):
    """Return the project's modules that a module imports (set of str), also by relative names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            package = ".".join([*name.split(".")[:-node.level], *([node.module] if node.module else [])]) \
                if node.level else node.module
            found |= {package, *(f"{package}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found & known


def graph():
    """The imports of each module."""
    known = modules()
    found = {name: imports(name, path, set(known)) for name, path in known.items()}
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
        commands = [one for one in used if one.startswith("ebsif.commands.") and one != "ebsif.commands.options"]
        assert not commands or name == "ebsif.cli", (name, commands)


@pytest.mark.parametrize("document", ["architecture", "developing"])
def test_documents_name_the_modules_that_there_are(document):
    """House 10: what the pages and the picture on the code name exists; all of the sub-package is in the list."""
    text = (CHECKOUT / f"docs/{document}.md").read_text()
    there = {path.name for path in tracked("*.py")}
    named = set(re.findall(r"(\w+\.py)\b", text))
    picture = re.search(r"^(easyconfig ─.*)$", text, re.MULTILINE)
    named |= {f"{one}.py" for one in picture[1].split(" ─► ")[1:]} if picture else set()
    assert named - there == set()
    ours = {path.name for path in ROOTS[WING].glob("container/*.py")} - {"__init__.py"}
    assert document == "architecture" or ours - named == set()
