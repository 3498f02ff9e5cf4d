"""The JSON Schemas of what people write, for editors: made from the models, shipped in ``schemas``."""

import json
from pathlib import Path

from ebsif.catalogue.records import CatalogueFile
from ebsif.catalogue.settings import Configuration
from ebsif.catalogue.site import Site

# Where they are shipped.
FOLDER = Path(__file__).parent / "schemas"
MODELS = {"site": Site, "containers": CatalogueFile, "config": Configuration}


def texts():
    """Return the text of each schema (dict of str by name)."""
    return {name: json.dumps(schema(model), indent=2) + "\n" for name, model in MODELS.items()}


def schema(model):
    """
    Return the JSON Schema of a model (dict).

    Here every scalar is text (2.10 is not 2.1), while editors read YAML's numbers: both are right for them.
    """
    made = model.model_json_schema()
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return with_numbers(made)


def with_numbers(part):
    """Return a part of a schema in which what is text may be a number as well."""
    if isinstance(part, list):
        return [with_numbers(item) for item in part]
    if not isinstance(part, dict):
        return part
    changed = {key: with_numbers(value) for key, value in part.items()}
    if part.get("type") == "string" and "enum" not in part:
        changed["type"] = ["string", "number"]
    return changed
