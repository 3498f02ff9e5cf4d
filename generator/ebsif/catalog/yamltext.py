"""Write YAML in the style of the catalog: blocks for long strings, short lists and tables on one line."""

from typing import Any

import yaml

from ebsif.catalog.fieldtypes import Statements
from ebsif.catalog.yamlfile import YamlLoader

SHORT = 90  # columns
TABLE, LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


class Dumper(yaml.SafeDumper):
    """Writes YAML in the catalog's dialect: every scalar is a string, so versions need no quotes."""

    yaml_implicit_resolvers = YamlLoader.yaml_implicit_resolvers

    def ignore_aliases(self, data: Any) -> bool:
        """Don't use aliases for repeated values."""
        return True


class Lines(dict):
    """A dictionary with each field on its own line, however short."""


def is_short(value: Any) -> bool:
    """Return whether a list or dictionary fits on one line."""
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return len(str(value)) < SHORT and not any(
        "\n" in item if isinstance(item, str) else item and not is_short(item)
        for item in items
        if not isinstance(item, bool)
    )


def represent_string(dumper: Dumper, text: str) -> yaml.ScalarNode:
    """Represent a string of several lines as a block."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, represent_string)
Dumper.add_representer(int, lambda dumper, number: represent_string(dumper, str(number)))
Dumper.add_representer(Lines, lambda dumper, table: dumper.represent_mapping(TABLE, table, flow_style=False))
Dumper.add_representer(Statements, lambda dumper, text: dumper.represent_data({"text": str(text)}))
Dumper.add_representer(dict, lambda dumper, table: dumper.represent_mapping(TABLE, table, flow_style=is_short(table)))
Dumper.add_representer(list, lambda dumper, items: dumper.represent_sequence(LIST, items, flow_style=is_short(items)))


def as_yaml(table: dict[str, Any], indent: int = 0) -> str:
    """Return a table as YAML, each field on its own line, each line indented."""
    text = yaml.dump(Lines(table), Dumper=Dumper, width=10**6, sort_keys=False, allow_unicode=True)
    return "".join(f"{' ' * indent}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


def as_item(table: dict[str, Any]) -> str:
    """Return a table as an item of a list in YAML, each line indented."""
    return f"  - {as_yaml(table, 4)[4:]}"
