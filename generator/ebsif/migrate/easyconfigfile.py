"""Read the parameters of an easyconfig with EasyBuild's parser; find line numbers and comments in its text."""

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import literals

from ebsif.catalog.fieldtypes import is_version_part
from ebsif.eb import framework
from ebsif.errors import EbsifError
from ebsif.migrate.imported import shortened

# Types of parameters, and of their items.
TYPES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(
        ("modluafooter", "homepage", "description", "versionsuffix", "name", "version", "moduleclass", "usage"),
        (str, str),
    ),
    "modextravars": (dict, str),
    "files_to_copy": (list, (str, list, tuple)),
    "postinstallcmds": (list, str),
    "sanity_check_paths": (dict, str),
    "sanity_check_commands": (list, object),
    "skipsteps": (list, str),
}


class ImportingError(EbsifError):
    """An easyconfig can't be imported; the message says why."""


class EasyconfigText:
    """The text of an easyconfig, for line numbers and comments."""

    def __init__(self, path: Path):
        """Parse the easyconfig, which is valid Python because EasyBuild has already run it."""
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        tree = literals.parsed(self.text)
        self.first_statement = tree.body[0].lineno
        self.assigned = literals.assignments(tree)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        self.used = {node.id for node in names if isinstance(node.ctx, ast.Load)}

    def of(self, name: str, index: Optional[int] = None) -> int:
        """Return the line of a parameter or variable, or of an item if it is a list (from 1)."""
        node = self.assigned.get(name)
        if node is None:
            return 1
        items = getattr(node.value, "elts", [])
        return items[index].lineno if index is not None and index < len(items) else node.lineno

    def having(self, text: str, otherwise: int) -> int:
        """Return the first line containing a text, comments, quotes and escapes aside, or another line."""
        wanted = bare(text)
        lines = (
            number
            for number, line in enumerate(self.lines, 1)
            if wanted and wanted in bare(line) and not line.lstrip().startswith("#")
        )
        return next(lines, otherwise)

    def comments(self) -> list[tuple[int, str]]:
        """Return the comments with their lines, except rulers; those within strings belong to the scripts there."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [
            (token.start[0], token.string.lstrip("# ").rstrip())
            for token in tokens
            if token.type == tokenize.COMMENT and re.search(r"\w", token.string)
        ]


def bare(text: str) -> str:
    """Return a text for comparison: without backslashes, quotes, doubled braces and surrounding blanks."""
    return re.sub(r"[\\\"']", "", text).strip().replace("{{", "{").replace("}}", "}")


def parsed(path: Path) -> dict[str, Any]:
    """Return parameters and variables of an easyconfig, with only templates for names and versions resolved."""
    # EasyBuild runs an easyconfig as Python code, and would do so with any other program
    if path.suffix != ".eb":
        raise ImportingError(f"{path} is not an easyconfig: its name doesn't end in .eb")
    try:
        values = framework.written_values(path)
    except framework.EbError as error:
        raise ImportingError(str(error)) from None
    if values.get("easyblock") in ("ContainerInstall", "ContainerVenv"):
        raise ImportingError(
            f"{path}: this easyconfig uses {values['easyblock']} already: install it with eb, or "
            "write its record by hand; only recipes of shell commands are imported"
        )
    missing = [name for name in ("name", "version", "sources") if not values.get(name)]
    if missing:
        raise ImportingError(f"{path}: {', '.join(missing)} is missing: this is not the easyconfig of a container")
    if not isinstance(values["sources"], (list, tuple)):
        values["sources"] = [values["sources"]]
    check_types(path, values)
    return {name: templates_filled(value, values) for name, value in values.items()}


def check_types(path: Path, values: dict[str, Any]) -> None:
    """Raise ImportingError for values of the wrong type, or for a name that is not allowed in the catalog."""
    try:
        is_version_part(values["name"])
        is_version_part(values["version"])
    except ValueError as error:
        raise ImportingError(f"{path}: the catalog can't have this name or version: {error}") from None
    for name, (kind, items) in TYPES.items():
        value = values.get(name) or kind()
        if not isinstance(value, kind) or not all(isinstance(item, items) for item in value):
            raise ImportingError(f"{path}: {name} is not what EasyBuild expects: {shortened(value)}")


def templates_filled(value: Any, values: dict[str, Any]) -> Any:
    """Return a value with EasyBuild's templates for name and version resolved; %(installdir)s stays."""
    if isinstance(value, str):
        known = {name: str(values.get(name) or "") for name in ("name", "version", "versionsuffix")}
        known["namelower"] = known["name"].lower()
        for name, text in known.items():
            value = value.replace(f"%({name})s", text)
        return value
    if isinstance(value, (list, tuple)):
        return [templates_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {key: templates_filled(item, values) for key, item in value.items()}
    return value
