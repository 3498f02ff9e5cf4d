"""Complete a record with the fields of its family, and of the families that this one extends."""

from typing import Any

from ebsif.catalogue.records import CatalogueFile, Family, Record, Stage
from ebsif.catalogue.site import Binds
from ebsif.catalogue.yamlfile import Model

# Lists and tables to which a family or record adds instead of replacing them.
ADDED = ("aliases", "conflicts", "definition_files", "keywords", "not_inherited", "warnings")
MERGED = ("badges", "caches", "components", "container_env", "network_env", "variables", "image_packages",
          "script_names", "parameters")

# Tables in which null is a value: the variable is unset in the container or left alone, the site's badge isn't shown.
UNSETTING = ("badges", "caches", "container_env", "network_env")

# The fields of every container, with their default values.
EMPTY: dict[str, Any] = {
    **dict.fromkeys([*Family.model_fields, *Record.model_fields]), **dict.fromkeys(MERGED, {}),
    **dict.fromkeys(ADDED, [])}


def explicit_fields(model: Model) -> dict[str, Any]:
    """Return the fields of a model that are set in its file."""
    return {field: getattr(model, field) for field in model.model_fields_set}


def family_values(document: CatalogueFile, name: str) -> dict[str, Any]:
    """Return the fields of a family, merged with those of the families that it extends."""
    family = document.families[name]
    base = family_values(document, family.extends) if family.extends else EMPTY
    return join_fields(base, explicit_fields(family))


def all_components(document, record):
    """Return the components of a record (dict), including those of its family."""
    return {**family_values(document, record.family)["components"], **record.components}


def join_fields(defaults: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """
    Return the merged fields of two levels: `more` overrides `defaults`, or adds to its lists and tables.

    Fields in `not_inherited` start empty, and None removes an entry of a table.
    """
    joined = {**defaults, **{field: EMPTY[field] for field in more.get("not_inherited", ())}}
    for field, value in more.items():
        if field in MERGED:
            table = {**joined.get(field, {}), **value}
            joined[field] = {key: one for key, one in table.items() if one is not None or field in UNSETTING}
        elif field in ADDED:
            joined[field] = [*joined.get(field, []), *value]
        elif field == "binds" and joined.get("binds"):
            before = joined["binds"]
            joined[field] = Binds(
                required=[*before.required, *value.required], optional=[*before.optional, *value.optional],
                libraries={**before.libraries, **value.libraries}, file=value.file or before.file)
        elif field == "requirements" and is_stages(value) and is_stages(joined.get(field)):
            joined[field] = join_stages(joined[field], value)
        else:
            joined[field] = value
    return joined


def is_stages(requirements: object) -> bool:
    """Return whether requirements are stages."""
    return isinstance(requirements, list) and bool(requirements) and isinstance(requirements[0], Stage)


def as_parameter(requirements):
    """Return requirements as in the easyconfig parameter: text, lines, or stages (list of dict)."""
    if is_stages(requirements):
        return [stage.model_dump(exclude_defaults=True) for stage in requirements]
    return requirements


def join_stages(stages, more):
    """Return merged stages (list of Stage): a stage updates the one of the same name, others are appended."""
    joined = {stage.name or number: stage for number, stage in enumerate(stages)}
    for number, stage in enumerate(more, len(stages)):
        name = stage.name or number
        joined[name] = joined[name].model_copy(update=explicit_fields(stage)) if name in joined else stage
    return list(joined.values())
