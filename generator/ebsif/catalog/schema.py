"""Generate the JSON Schemas of the YAML files from the models, for editors; they are shipped in ``schemas``."""

import json
import os
from pathlib import Path
from typing import Any

from ebsif.catalog.records import CatalogFile
from ebsif.catalog.settings import Configuration
from ebsif.catalog.site import SITES, Site
from ebsif.catalog.yamlfile import Model
from ebsif.files import is_directory, make_directory, replace

# The folder of the shipped schemas.
FOLDER = Path(__file__).parent / "schemas"
MODELS: dict[str, type[Model]] = {"site": Site, "containers": CatalogFile, "config": Configuration}
# The folder of their copies in other catalogs.
COPIES = ".ebsif-schemas"


def first_line(path: Path, name: str, catalog: Path) -> str:
    """
    Return the first line of a new file in a catalog, which leads editors to the schema.

    The path is relative, to a file in the same catalog: so it is right in every clone, and after an upgrade of ebsif.
    """
    return f"# yaml-language-server: $schema={os.path.relpath(place(catalog) / f'{name}.json', path.parent)}\n"


def place(catalog: Path) -> Path:
    """Return the folder of the schemas for the files of a catalog."""
    return FOLDER if catalog.resolve() == SITES.resolve() else catalog / COPIES


def provide(catalog: Path, is_new: bool) -> None:
    """Copy the schemas into a catalog, for a file that is new or if there are some; correct earlier copies."""
    folder = place(catalog)
    if folder == FOLDER or not (is_new or is_directory(folder)):
        return
    make_directory(folder)
    for name in ("site", "containers"):
        copy, text = folder / f"{name}.json", (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        if not copy.is_file() or copy.read_text(encoding="utf-8", errors="replace") != text:
            replace(copy, text, shared=True)


def texts() -> dict[str, str]:
    """Return the texts of all schemas, by name."""
    return {name: json.dumps(schema(model), indent=2) + "\n" for name, model in MODELS.items()}


def schema(model: type[Model]) -> dict[str, Any]:
    """Return the JSON Schema of a model, with numbers as well: editors read 2.10 as one, ebsif reads text."""
    content = model.model_json_schema()
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return allow_numbers(allow_null(content) if model is Site else content)


def allow_null(part: Any) -> Any:
    """Return a part of a schema that allows null, by which a profile takes away what it inherits."""
    if isinstance(part, list):
        return [allow_null(item) for item in part]
    if not isinstance(part, dict):
        return part
    changed = {key: allow_null(value) for key, value in part.items()}
    required = part.get("required", [])
    for name, value in changed.get("properties", {}).items() if "properties" in part else ():
        if name not in required:
            changed["properties"][name] = or_null(value)
    if isinstance(changed.get("additionalProperties"), dict):
        changed["additionalProperties"] = or_null(changed["additionalProperties"])
    return changed


def or_null(part: Any) -> Any:
    """Return a part of a schema with null as an alternative; what editors show of it stays in front."""
    if {"type": "null"} in part.get("anyOf", []):
        return part
    shown = {key: part[key] for key in ("title", "description", "default") if key in part}
    rest = {key: value for key, value in part.items() if key not in shown}
    return {"anyOf": [*rest.pop("anyOf", []), *([rest] if rest else []), {"type": "null"}], **shown}


def allow_numbers(part: Any) -> Any:
    """Return a part of a schema that allows numbers wherever it allows strings."""
    if isinstance(part, list):
        return [allow_numbers(item) for item in part]
    if not isinstance(part, dict):
        return part
    changed = {key: allow_numbers(value) for key, value in part.items()}
    if part.get("type") == "string" and "enum" not in part:
        changed["type"] = ["string", "number"]
    return changed
