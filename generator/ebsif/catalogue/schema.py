"""Generate the JSON Schemas of the YAML files from the models, for editors; they are shipped in ``schemas``."""

import json
from pathlib import Path
from typing import Any

from ebsif.catalogue.records import CatalogueFile
from ebsif.catalogue.settings import Configuration
from ebsif.catalogue.site import Site
from ebsif.catalogue.yamlfile import Model

# The folder of the shipped schemas.
FOLDER = Path(__file__).parent / "schemas"
MODELS = {"site": Site, "containers": CatalogueFile, "config": Configuration}


def texts() -> dict[str, str]:
    """Return the texts of all schemas (dict of str by name)."""
    return {name: json.dumps(schema(model), indent=2) + "\n" for name, model in MODELS.items()}


def schema(model: type[Model]) -> dict[str, Any]:
    """
    Return the JSON Schema of a model.

    ebsif reads every scalar as text (2.10 is not 2.1), but editors read numbers in YAML, so both types are allowed.
    """
    content = model.model_json_schema()
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return allow_numbers(content)


def allow_numbers(part):
    """Return a part of a schema that allows numbers wherever it allows strings."""
    if isinstance(part, list):
        return [allow_numbers(item) for item in part]
    if not isinstance(part, dict):
        return part
    changed = {key: allow_numbers(value) for key, value in part.items()}
    if part.get("type") == "string" and "enum" not in part:
        changed["type"] = ["string", "number"]
    return changed
