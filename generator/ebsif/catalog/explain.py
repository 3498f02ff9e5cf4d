"""Tell for each value of a container which level of the catalog it comes from, with file and line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import yaml

from ebsif.catalog import merge, reading, site
from ebsif.catalog.container import Container
from ebsif.catalog.records import DEFAULTS
from ebsif.catalog.settings import Settings
from ebsif.catalog.site import Binds, Site
from ebsif.catalog.stages import Stage
from ebsif.catalog.yamlfile import Model, YamlLoader

# Where a value comes from that no file sets.
DEFAULT = "default of ebsif"

# What no easyconfig depends on: the jobs of `ebsif job`, texts.
NOT_SHOWN = ("name", "description", "extends", "not_inherited", "scheduler")


class Origin(NamedTuple):
    """A value of a container: the field, or field.key of a table, the value, and its file and line."""

    field: str
    value: str
    place: str


class Written(str):
    """A value as it is written in a file."""

    place = ""

    @classmethod
    def at(cls, node: yaml.Node, path: Path, line: int) -> "Written":
        """Return the value of a scalar."""
        written = cls(node.value)
        written.place = f"{path}:{line + 1}"
        return written


def explain(container: Container, settings: Settings) -> list[Origin]:
    """Return the values of a container and of its site; the files are merged again, as when they were read."""
    rows = list(origins("", {field: getattr(container, field) for field in DEFAULTS}, of_record(container, settings)))
    profile = {field: value for field, value in dict(container.site).items() if field not in NOT_SHOWN}
    return rows + list(origins("site", profile, of_site(container.site, settings)))


def of_record(container: Container, settings: Settings) -> dict[str, Any]:
    """Return the fields of a record and its families, as written."""
    chain = next(chain for chain in reading.chains(*settings.directories_of(container.site)) if container.path in chain)
    families: dict[str, Any] = {}
    content: dict[str, Any] = {}
    for path in reversed(chain[chain.index(container.path) :]):
        content = document(path)
        families.update(content.get("families", {}))
    record = content["containers"][container.index]
    levels = [record]
    base = record["family"]
    while base:
        levels.append(families[base])
        base = families[base].get("extends")
    merged: dict[str, Any] = DEFAULTS
    for level in reversed(levels):
        merged = merge.fields(merged, with_models(level), DEFAULTS)
    return merged


def of_site(profile: Site, settings: Settings) -> dict[str, Any]:
    """Return the settings of a site and of those that it extends, as written."""
    content: dict[str, Any] = {}
    for level in reversed(site.chain(profile.name, settings.directories)):
        content = site.inherited(content, level._replace(content=document(level.path)), join=True)
    return content


def document(path: Path) -> Any:
    """Return the content of a valid file, whose scalars know their lines."""
    return written(yaml.compose(path.read_text(encoding="utf-8"), YamlLoader), path, "")


def written(node: yaml.Node, path: Path, name: str, line: Optional[int] = None) -> Any:
    """Return a part of a file with this name; null is a value only where merging keeps it."""
    line = node.start_mark.line if line is None else line
    if isinstance(node, yaml.MappingNode):
        return {
            key.value: None if is_null(value, name) else written(value, path, key.value, key.start_mark.line)
            for key, value in node.value
        }
    if isinstance(node, yaml.SequenceNode):
        return [written(item, path, name) for item in node.value]
    return Written.at(node, path, line)


def is_null(node: yaml.Node, name: str) -> bool:
    """Return whether a value in a table of this name takes an entry away."""
    return node.tag == "tag:yaml.org,2002:null" and name not in (*merge.NULL_IN_SITE, *merge.NULL_IN_RECORD)


def with_models(level: dict[str, Any]) -> dict[str, Any]:
    """Return a level with models where merging needs them; they aren't validated again."""
    level = dict(level)
    if isinstance(level.get("binds"), dict):
        level["binds"] = Binds.model_construct(set(level["binds"]), **level["binds"])
    requirements = level.get("requirements")
    if isinstance(requirements, list) and isinstance(next(iter(requirements), None), dict):
        level["requirements"] = [Stage.model_construct(set(stage), **stage) for stage in requirements]
    return level


def origins(name: str, value: Any, source: Any) -> Iterator[Origin]:
    """Yield the origin of each value at any depth, given the same as it is written, as far as it is."""
    value, source = (dict(one) if isinstance(one, Model) else one for one in (value, source))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from origins(
                f"{name}.{key}" if name else key, item, source.get(key) if isinstance(source, dict) else source
            )
    elif isinstance(value, list):
        same = isinstance(source, list) and len(source) == len(value)
        for number, item in enumerate(value):
            yield from origins(name, item, source[number] if same else source)
    elif value not in (None, "") or place_of(source) != DEFAULT:
        yield Origin(name, "null" if value is None else str(value).strip(), place_of(source))


def place_of(source: Any) -> str:
    """Return where a value is written, of a list or table where it begins."""
    if isinstance(source, (dict, list)):
        source = next(iter(source.values() if isinstance(source, dict) else source), None)
        return place_of(source)
    return source.place if isinstance(source, Written) else DEFAULT
