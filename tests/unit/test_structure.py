"""The import rules of docs/architecture.md, checked in the sources, imports inside functions included."""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from types import FunctionType

import pytest
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from support import CHECKOUT

WING = "easybuild.easyblocks.generic"
ARCHITECTURE = CHECKOUT / "docs/architecture.md"
ROOTS = {WING: CHECKOUT / "easyblocks/generic", "ebsif": CHECKOUT / "generator/ebsif"}


def modules():
    """Return every module of the project (dict of name and path), without programs for the image."""
    found = {}
    for package, folder in ROOTS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if (package == WING and "files" in parts) or path.stem == "__init__":
                continue
            found[".".join((package, *parts))] = path
    return found


def imports(name, path, known):
    """Return the project's modules that a module imports (set of str), also by relative names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            package = ".".join([*above, *([node.module] if node.module else [])])
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
    """There are no circular imports, neither at the top of a module nor inside a function."""
    assert list(TopologicalSorter(graph()).static_order())


def listed_packages():
    """Return the packages of the generator, and the modules beside them, in the order of docs/architecture.md."""
    lines = re.findall(r"^((?:[a-z]+(?:/|\.py) )+)", ARCHITECTURE.read_text(), re.MULTILINE)
    return [name.rstrip("/").removesuffix(".py") for line in lines for name in line.split()]


def test_packages_form_an_order():
    """Requirement C-01: a package of the generator uses only those before it in the list of docs/architecture.md."""
    order = listed_packages()
    used = {
        (name.split(".")[1], other.split(".")[1])
        for name, others in graph().items()
        for other in others
        if name.startswith("ebsif.") and other.startswith("ebsif.")
    }
    assert {name for pair in used for name in pair} == set(order)
    assert not [f"{name} imports {other}" for name, other in used if order.index(other) > order.index(name)]


def test_the_easyblocks_stand_alone():
    """Design, layout: easyblocks import nothing of the generator; modules of the sub-package import no easyblock."""
    for name, used in graph().items():
        if name.startswith(WING):
            assert not [one for one in used if one.startswith("ebsif")], name
        if name.startswith(f"{WING}.container."):
            assert not used & {f"{WING}.containerinstall", f"{WING}.containervenv"}, name


def test_commands_do_not_import_each_other():
    """Code shared by commands is in another package, and none of those imports a command."""
    for name, used in graph().items():
        commands = [one for one in used if one.startswith("ebsif.commands.") and one != "ebsif.commands.options"]
        assert not commands or name == "ebsif.cli", (name, commands)


def test_options_are_only_read():
    """What was typed stays as it was typed; a command hands values on, in types of their own."""
    for path in (ROOTS["ebsif"] / "commands").glob("*.py"):
        stored = [
            ast.unparse(node)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        ]
        assert not [one for one in stored if one.startswith("options.")], path.name


# what looks at files or starts programs
SLOW = {
    *("InstalledImage", "UserSoftware", "access", "compute_checksum", "exists", "fingerprint", "getsize", "isdir"),
    *("isfile", "lexists", "listdir", "lstat", "obtain_file", "open", "read", "read_regular", "run", "run_program"),
    *("samefile", "stat", "walk"),
}


def test_no_property_looks_at_files():
    """C-01: an attribute of the easyblocks costs nothing; what reads, or starts programs, is called."""
    found = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())) if name.startswith(WING) else ():
            if isinstance(node, ast.FunctionDef) and "property" in map(ast.unparse, node.decorator_list):
                calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
                called = {ast.unparse(one.func).rpartition(".")[2] for one in calls}
                found += [(name, node.name)] if called & SLOW else []
    assert found == []


def test_any_is_rare():
    """C-01: a type that says nothing stands at most 60 times in the easyblocks and their programs, imports included."""
    lines = [line for path in (CHECKOUT / "easyblocks").rglob("*.py") for line in path.read_text().splitlines()]
    assert sum(len(re.findall(r"\bAny\b", line)) for line in lines) <= 60


def types_in(tree):
    """Yield the names of classes, and of types that have a name at the top of a module, type variables aside."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        if isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith("TypeVar("):
            yield from (one.id for one in node.targets if re.fullmatch(r"[A-Z]\w*[a-z]\w*", ast.unparse(one)))


def test_class_names_mean_one_thing():
    """C-01: no two classes or types of easyblocks and generator have the same name."""
    names = [name for path in modules().values() for name in types_in(ast.parse(path.read_text()))]
    assert [name for name, number in Counter(names).items() if number > 1] == []


def is_self(node):
    """Return whether an expression is the object whose method this is."""
    return isinstance(node, ast.Name) and node.id == "self"


def handed_over(tree):
    """Yield arguments and values that lead back to the object whose method this is: itself, methods, closures."""
    known = [(name, value) for one in ContainerVenv.__mro__ for name, value in vars(one).items()]
    methods = {name for name, value in known if isinstance(value, FunctionType)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in ("getattr", "setattr"):
            given = [*node.args, *(one.value for one in node.keywords)]
        else:
            given = [node.value] if isinstance(node, (ast.Assign, ast.Return, ast.Yield)) else []
        for one in given:
            if is_self(one) or (isinstance(one, ast.Attribute) and is_self(one.value) and one.attr in methods):
                yield one
        is_function = isinstance(node, (ast.Lambda, ast.FunctionDef))
        is_method = is_function and any(argument.arg in ("self", "cls") for argument in node.args.args)
        if is_function and not is_method and any(map(is_self, ast.walk(node))):
            yield node


@pytest.mark.parametrize("module", ["containerinstall", "containervenv"])
def test_no_helper_holds_the_easyblock(module):
    """Modules of the sub-package get values and objects, and nothing that calls back into the easyblock."""
    tree = ast.parse(modules()[f"{WING}.{module}"].read_text())
    assert [f"line {one.lineno}: {ast.unparse(one)}" for one in handed_over(tree)] == []


def test_what_counts_as_handing_over_the_easyblock():
    """The rule before holds for the easyblock, its methods and functions within them; not for what it has."""
    closure = "class A:\n def a(self):\n  def b():\n   return self.spec\n  help(b)"
    for text in ("Helper(self)", "help(run=self.programs)", "help(lambda: self.spec)", "x = self", closure):
        assert list(handed_over(ast.parse(text))), text
    assert not list(handed_over(ast.parse("help(self.spec, lambda name: name in spec)")))


def test_the_page_on_the_architecture_is_complete():
    """docs/architecture.md lists every package of the generator and every module of the sub-package."""
    folders = {path.parent.name for path in ROOTS["ebsif"].glob("*/__init__.py")}
    beside = {path.stem for path in ROOTS["ebsif"].glob("*.py")} - {"__init__"}
    assert sorted(listed_packages()) == sorted(folders | beside)
    areas = ARCHITECTURE.read_text().partition("| area |")[2].partition("\n\n")[0]
    listed = re.findall(r"`(\w+\.py)`", areas)
    there = [name.rpartition(".")[2] for name in modules() if name.startswith(f"{WING}.container.")]
    assert sorted(listed) == sorted(f"{name}.py" for name in there)


def test_the_table_of_what_is_used_of_easybuild():
    """C-02: all that mypy knows of EasyBuild's classes, because the easyblocks use it, is in docs/developing.md."""
    stubs = "".join(path.read_text() for path in (CHECKOUT / "tests/stubs").rglob("*.pyi"))
    used = {name for name in re.findall(r"^    (?:def )?(\w+)[(:]", stubs, re.MULTILINE) if not name.startswith("__")}
    assert len(used) > 40
    table = (CHECKOUT / "docs/developing.md").read_text().partition("| part | used for |")[2]
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", table))))
    code = "".join(path.read_text() for path in ROOTS[WING].rglob("*.py"))
    changed = re.findall(r"update_build_option\(\s*'(\w+)'|with_build_option\('(\w+)'", code)
    assert sorted((used | {one or other for one, other in changed}) - named) == []


@pytest.mark.parametrize("document", ["architecture", "developing"])
def test_the_pages_on_the_code_name_what_exists(document):
    """Every folder, file and step of the picture that the pages on the code name exists."""
    text = (CHECKOUT / f"docs/{document}.md").read_text()
    container = ROOTS[WING] / "container"
    folders = [container / name for name in ("host", "image", "record", "system")]
    homes = [CHECKOUT, ROOTS["ebsif"], ROOTS["ebsif"] / "environments", ROOTS[WING], container, *folders]
    spans = re.findall(r"`([\w./-]+)`", text)
    folders = ("tests/", "tools/", "files/", "scripts/")
    named = {one for one in spans if one.endswith((".py", "/")) or one.startswith(folders)}
    picture = re.search(r"^(easyconfig ─.*)$", text, re.MULTILINE)
    named |= {f"{one}.py" for one in picture[1].split(" ─► ")[1:]} if picture else set()
    assert len(named) > 8
    assert [one for one in sorted(named) if not any((home / one).exists() for home in homes)] == []
