"""Merge the levels of the catalog as plain values: a site and what it extends, families, records.

A level adds to the entries of tables and to some lists of the level below it, and replaces all else. Null takes an
entry of a table away, except in tables of variables, where it is a value.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Optional, TypeVar

from ebsif.catalog.yamlfile import Model

# Tables in which null is a value: the variable is unset in the container or left alone, the site's badge isn't shown.
NULL_IN_SITE = ("container_env", "network_env", "variables")
NULL_IN_RECORD = ("badges", "caches", "container_env", "network_env")
# The lists of a profile that add to those of the extended one, each with the name of its table.
JOINED = (("", "conflicts"), ("binds", "required"), ("binds", "optional"))

AnyModel = TypeVar("AnyModel", bound=Model)


def profiles(base: Mapping[str, Any], own: Mapping[str, Any], join: bool, name: str = "") -> dict[str, Any]:
    """Return the contents of two profiles, or of a table in them, as one; `join` is for binds and conflicts."""
    merged = dict(own)
    for key, value in own.items():
        if isinstance(value, dict):
            merged[key] = profiles(base[key] if isinstance(base.get(key), dict) else {}, value, join, key)
        elif join and isinstance(value, list) and (name, key) in JOINED:
            merged[key] = unique(base.get(key) or (), value)
    return table(base, merged, name in NULL_IN_SITE)


def table(base: Mapping[str, Any], own: Mapping[str, Any], is_null_kept: bool = False) -> dict[str, Any]:
    """Return two tables as one."""
    merged = {**base, **own}
    return (
        merged if is_null_kept else {key: value for key, value in merged.items() if value is not None or key not in own}
    )


def unique(*lists: Iterable[Any]) -> list[Any]:
    """Return several lists as one, without repetitions."""
    return list(dict.fromkeys(item for items in lists for item in items))


def defaults_of(model: type[Model]) -> dict[str, Any]:
    """Return the default values of a model's fields; None for those that have to be given."""
    return {name: None if field.is_required() else field.get_default() for name, field in model.model_fields.items()}


def fields(base: Mapping[str, Any], own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of two levels as one: tables are merged, lists added to, except those in `not_inherited`."""
    merged = {**base, **{field: defaults[field] for field in own.get("not_inherited", ())}}
    for field, value in own.items():
        before, default = merged.get(field), defaults.get(field)
        if isinstance(default, dict):
            merged[field] = table(before or {}, value, field in NULL_IN_RECORD)
        elif isinstance(default, list):
            merged[field] = unique(before or (), value)
        elif field == "binds":
            merged[field] = models(before, value)
        elif field == "requirements":
            merged[field] = stages(before, value)
        else:
            merged[field] = value
    return merged


def models(base: Optional[AnyModel], own: Optional[AnyModel]) -> Optional[AnyModel]:
    """Return two models of one type as one, by the rule of `fields`."""
    if not base or not own:
        return own or base
    return base.model_copy(update=fields(base.given, own.given, defaults_of(type(own))))


def is_stages(requirements: object) -> bool:
    """Return whether requirements are stages."""
    return isinstance(requirements, list) and bool(requirements) and isinstance(requirements[0], Model)


def stages(base: Any, own: Any) -> Any:
    """Return the requirements of two levels as one: a stage updates the one of the same name, others are appended."""
    if not is_stages(base) or not is_stages(own):
        return own
    merged = {stage.name or number: stage for number, stage in enumerate(base)}
    for number, stage in enumerate(own, len(base)):
        name = stage.name or number
        merged[name] = merged[name].model_copy(update=stage.given) if name in merged else stage
    return list(merged.values())
