"""The reference of parameters, fields and commands, read from the code that defines them."""

import argparse
import dataclasses
import json
import os
import re
import textwrap
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from easybuild.easyblocks.generic.container.spec import ContainerSpec, VenvSpec
from easybuild.easyblocks.generic.container.stages import PipStage
from ebsif import cli, parsing
from ebsif.catalog import schema


@dataclasses.dataclass(frozen=True)
class Entry:
    """
    A command, parameter, field or option: its name, what it takes, what it is for, and its default (empty: none).

    `link` is the address of its own page, if it has one.
    """

    name: str
    kind: str
    text: str
    default: str = ""
    link: str = ""

    @property
    def anchor(self) -> str:
        """The name, as a part of an anchor."""
        return re.sub(r"[^a-z0-9_-]+", "-", self.name.lower()).strip("-")


@dataclasses.dataclass(frozen=True)
class Section:
    """Entries with a title and an anchor; a text before them, a usage line, and examples."""

    title: str
    anchor: str
    entries: list[Entry]
    text: str = ""
    usage: str = ""
    examples: str = ""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of the reference."""

    title: str
    text: str
    sections: list[Section]


def pages() -> dict[str, Page]:
    """Return all pages of the reference (dict by address without suffix)."""
    made = {"reference/commands": commands(), "reference/parameters": parameters()}
    made.update((f"reference/commands/{name}", command(name)) for name in cli.COMMANDS)
    for address, name, title, text in (
        (
            "reference/records",
            "containers",
            "Fields of the catalog",
            "The files `containers/*.yaml`, which describe the containers of a site.",
        ),
        (
            "reference/site",
            "site",
            "Fields of a site",
            "The file `site.yaml`, which describes a machine. `null` removes what a site inherits.",
        ),
        (
            "reference/config",
            "config",
            "Fields of the settings",
            "Your own settings, `config.yaml`: which site, which catalogs.",
        ),
    ):
        made[address] = Page(title, text, list(fields(schema.schema(schema.MODELS[name]))))
    return made


def parameters() -> Page:
    """Return the page of the parameters of easyconfigs."""
    image, venv = ContainerSpec.PARAMETERS, VenvSpec.PARAMETERS
    blocks = (
        (image, {}, "ContainerInstall", "One image as a module."),
        (venv, image, "ContainerVenv", "One image with user software. All parameters of ContainerInstall, and:"),
    )
    sections = [
        Section(
            name,
            name.lower(),
            [
                Entry(key, one.kind, one.text, shown(one.default))
                for key, one in options.items()
                if key not in inherited
            ],
            text,
        )
        for options, inherited, name, text in blocks
    ]
    stages = [Entry(name, kind, text) for name, (kind, text) in PipStage.PROPERTIES.items()]
    sections.append(Section("Stages", "stages", stages, "The properties of a stage in `requirements`."))
    return Page(
        "Parameters of easyconfigs",
        "What the two easyblocks add to the parameters of EasyBuild. `eb -a -e ContainerVenv` prints the same.",
        sections,
    )


def shown(default: Any) -> str:
    """Return a default as it is written in an easyconfig; empty for an empty one."""
    return "" if default in (None, [], {}, "") and default is not False else repr(default)


def in_yaml(default: Any) -> str:
    """Return a default as it is written in YAML; empty for an empty one."""
    if not isinstance(default, (bool, str, int, float)):
        return shown(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def commands() -> Page:
    """Return the page that lists the commands of ebsif, each with a page of its own."""
    entries = [
        Entry(
            f"ebsif {name}", "", (subparser(name).description or "").partition("\n\n")[0], link=f"commands/{name}.html"
        )
        for name in cli.COMMANDS
    ]
    return Page(
        "Commands",
        "All commands of `ebsif`, in the order of `ebsif --help`. A command ends with "
        "0 (done), 1 (something was found), 2 (usage error) or 3 (failed).",
        [Section("", "", entries)],
    )


def command(name: str) -> Page:
    """Return the page of a command."""
    parser = subparser(name)
    first, _, rest = (parser.description or "").partition("\n\n")
    examples = textwrap.dedent((parser.epilog or "").partition("\n")[2])
    sections = [Section("Usage", "usage", [], usage=parsing.usage(parser))]
    if examples:
        sections.append(Section("Examples", "examples", [], examples=examples))
    if rest:
        sections.append(Section("How it works", "how-it-works", [], rest))
    return Page(f"ebsif {name}", first, [*sections, Section("Arguments and options", "options", list(options(parser)))])


def subparser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    # usage is wrapped to the width of the terminal
    with patch.dict(os.environ, {"COLUMNS": "88"}):
        return cli.parser_of(name)


def options(parser: argparse.ArgumentParser) -> Iterator[Entry]:
    """Yield the arguments and options of a command, without --help."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, parsing.Help):
            continue
        # "-o DIRECTORY, --output DIRECTORY", or the name of an argument
        name = formatter._format_action_invocation(action)
        kind = "option" if action.option_strings else "argument"
        yield Entry(name, kind, formatter._expand_help(action) if action.help else "")


def fields(content: dict[str, Any]) -> Iterator[Section]:
    """Yield the sections of a JSON Schema: the file itself, then the objects in it."""
    objects = content.get("$defs", {})
    for name, part in {content["title"]: content, **objects}.items():
        if "properties" not in part:
            continue
        required = part.get("required", [])
        entries = [
            Entry(
                field,
                " or ".join(kinds(value)),
                meaning(field, value, objects),
                "required" if field in required else in_yaml(value.get("default")),
            )
            for field, value in part["properties"].items()
        ]
        yield Section(part.get("title", name), name.lower(), entries, part.get("description", ""))


def meaning(name: str, field: dict[str, Any], objects: dict[str, Any]) -> str:
    """Return what a field is for: its own text, else that of what it takes, else that of the parameter it writes."""
    named = [objects[one] for one in re.findall(r"#/\$defs/(\w+)", json.dumps(field))]
    texts = [one["description"] for one in (field, *named) if "description" in one]
    written = {
        **{one: text for one, (_, text) in PipStage.PROPERTIES.items()},
        **{one: parameter.text for one, parameter in VenvSpec.PARAMETERS.items()},
    }
    return texts[0] if texts else written.get(name, "")


def kinds(part: dict[str, Any]) -> Iterator[str]:
    """Yield what a field takes; names of other sections are links in Markdown."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        yield f"[{name}](#{name.lower()})"
    elif "enum" in part or "const" in part:
        yield ", ".join(f"`{one}`" for one in part.get("enum", [part.get("const")]))
    elif "anyOf" in part or "oneOf" in part:
        # of null, the text of the page says what it means
        some = [one for one in part.get("anyOf", part.get("oneOf")) if one.get("type") != "null"]
        yield from dict.fromkeys(kind for one in some for kind in kinds(one))
    elif part.get("type") == "array":
        yield f"list of {' or '.join(kinds(part['items'])) if 'items' in part else 'values'}"
    elif part.get("type") == "object":
        values = part.get("additionalProperties")
        yield f"dictionary of {' or '.join(kinds(values))}" if isinstance(values, dict) else "dictionary"
    elif part.get("type") == "boolean":
        yield "true or false"
    elif part.get("type") == "integer":
        yield "number"
    else:
        yield "text"
