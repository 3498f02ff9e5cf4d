"""Write YAML in the style of the catalogue: blocks for long strings, short lists on one line."""

import yaml

from ebsif.catalogue.fieldtypes import Statements
from ebsif.catalogue.yamlfile import Loader

SHORT = 90  # columns
TABLE, LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


class Dumper(yaml.SafeDumper):
    """Writes YAML in the catalogue's dialect: every scalar is a string, so versions need no quotes."""

    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers

    def ignore_aliases(self, data):
        """Don't use aliases for repeated values."""
        return True


class Lines(dict):
    """A dictionary with each field on its own line, however short."""


class Items(list):
    """A list with each item on its own lines."""


def is_short(value):
    """Return whether a list or dictionary fits on one line."""
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return len(str(value)) < SHORT and not any("\n" in item if isinstance(item, str) else item and not is_short(item)
                                               for item in items if not isinstance(item, bool))


def represent_string(dumper, text):
    """Represent a string of several lines as a block."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, represent_string)
Dumper.add_representer(Lines, lambda dumper, table: dumper.represent_mapping(TABLE, table, flow_style=False))
Dumper.add_representer(Items, lambda dumper, items: dumper.represent_sequence(LIST, items, flow_style=False))
Dumper.add_representer(Statements, lambda dumper, text: dumper.represent_data({"text": str(text)}))
Dumper.add_representer(dict, lambda dumper, table: dumper.represent_mapping(TABLE, table, flow_style=is_short(table)))
Dumper.add_representer(list, lambda dumper, items: dumper.represent_sequence(LIST, items, flow_style=is_short(items)))


def as_yaml(content, indent=0):
    """Return content as YAML (str), each line indented."""
    text = yaml.dump(content, Dumper=Dumper, width=10**6, sort_keys=False, allow_unicode=True)
    return "".join(f"{' ' * indent}{line}" if line.strip() else line for line in text.splitlines(keepends=True))
