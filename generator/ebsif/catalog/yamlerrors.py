"""Turn the errors of the YAML parser and of pydantic into messages for users, each with its line."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union, get_args

import yaml
from easybuild.easyblocks.generic.container.values import NAME_PART
from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from ebsif.errors import EbsifError
from ebsif.text import without_middle

# Patterns of fields, and what these should be.
SHA256 = "^[0-9a-f]{64}$"
DAY = r"^\d{4}(-\d{2}(-\d{2})?)?$"
CPU_MASK = "^0x[0-9a-f]+$"
SOFTWARE_NAME = f"^{NAME_PART}$"
SITE_NAME = "^[a-z0-9][a-z0-9_-]*$"
PATTERNS = {
    SHA256: "64 hexadecimal digits, as `sha256sum` prints them",
    DAY: "a date, such as 2026-01-23",
    CPU_MASK: "a mask in hexadecimal digits, such as 0xff",
    SOFTWARE_NAME: "letters, digits and _ . + -, beginning with a letter or digit",
    SITE_NAME: "lower-case letters, digits, _ and -, beginning with a letter or digit",
}

# What a value should be, by the type of pydantic's error; braces are for what the error knows.
VALUES = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "dict_type": "should be a table",
    "greater_than_equal": "should be at least {ge}",
    "int_from_float": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_parsing_size": "should be a smaller number",
    "int_type": "should be a whole number",
    "list_type": "should be a list",
    "model_type": "should be a table",
    "string_too_short": "should not be empty",
    "string_type": "should be text",
    "too_long": "should have {max_length} entries at most",
    "too_short": "should have {min_length} or more entries",
}

# Keys of a release, with the key above them, and what to write instead.
FORMER: dict[tuple[str, ...], str] = {
    (
        "binds",
        "libraries",
    ): "was removed: name these libraries in `host_libraries: {libraries: ['?libNAME.so.1']}`; what "
    "they need comes along if the image lacks it or has it in an older version",
}

# Report at most this many errors per file.
ERRORS = 50

# List all known keys if there are at most this many.
KEYS = 12

# What the usual mistakes in YAML need, by what the parser says of them (also in pure Python).
REMEDIES = {
    "mapping values are not allowed": "unexpected ':': put a value that contains ': ' in quotes, and check the line "
    "before, which should be 'key: value' with a blank after the colon",
    "could not find expected ':'": "this line should be 'key: value' with a blank after the colon",
    "found a tab character|found character .* that cannot start": "there is a tab, or a value that needs quotes: "
    "indent with spaces",
    "found unexpected end of stream": "a quote is opened but never closed",
    "found undefined alias|second occurrence": "anchors and aliases (&, *) can't be used here: repeat the value, or "
    "put it in quotes",
    "could not determine a constructor|found undefined tag": "a value can't begin with '!': put it in quotes",
    "found unhashable key": "a key should be text: put a value that begins with [ or { in quotes",
}


class Problem(NamedTuple):
    """A problem in a file, with its line if that is known."""

    path: Path
    line: Optional[int]
    text: str

    def __str__(self) -> str:
        """Return the message with its place."""
        return f"{self.path}:{f'{self.line}:' if self.line else ''} {self.text}"


class DocumentError(EbsifError):
    """A file is invalid; the message has a line for each Problem: file, line, field, remedy."""

    def __init__(self, *problems: Problem):
        """Keep the problems, for other formats of the output."""
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def syntax_problem(error: Union[yaml.YAMLError, ValueError], path: Path, text: str) -> Problem:
    """Return the Problem for an error of the YAML parser."""
    message = str(getattr(error, "problem", None) or error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    # the place where it is opened is more helpful than the end of the file
    if message.startswith(("found unexpected end of stream", "did not find expected ','", "could not find expected")):
        mark = getattr(error, "context_mark", None) or mark
    position = getattr(error, "position", None)
    line = mark.line + 1 if mark else 1 if position is None else text.count("\n", 0, position) + 1
    remedy = next((remedy for pattern, remedy in REMEDIES.items() if re.match(pattern, message)), message)
    # the end of the file is after the last visible line
    return Problem(path, min(line, max(1, len(text.splitlines()))), remedy)


def invalid(*places: tuple[tuple, str], fields: Optional[ValidationError] = None) -> ValidationError:
    """Return the error for a model's check to raise: keys and text of each problem, and errors of `fields`."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError(
                error["type"],
                "{text}",
                {  # type: ignore[arg-type]
                    **error.get("ctx", {}),
                    "text": error["msg"],
                },
            ),
            loc=error["loc"],
            input=error["input"],
        )
        for error in (fields.errors(include_url=False) if fields else ())
    ]
    details += [
        InitErrorDetails(type=PydanticCustomError("value_error", "{text}", {"text": text}), loc=keys, input=None)
        for keys, text in places
    ]
    return ValidationError.from_exception_data("a file", details)


def problems_of(error: ValidationError, model: type[BaseModel], node: yaml.Node, path: Path) -> list[Problem]:
    """Return pydantic's errors as problems, given the composed YAML of the file."""
    errors = without_misspelled(model, error.errors(include_url=False))
    by_keys: dict[tuple, list[tuple[int, str, str]]] = {}
    for item in errors[:ERRORS]:
        line, keys = place(node, [*item["loc"]], item["type"] == "missing")
        by_keys.setdefault(keys, []).append((line, *explain(model, item)))
    problems = []
    for keys, messages in by_keys.items():
        # of the alternatives of a union, keep the errors of the one that fits best
        if any(len(other) > len(keys) and other[: len(keys)] == keys for other in by_keys):
            continue
        field = without_middle(field_at(keys), 200) or "the document"
        text = ", or ".join(dict.fromkeys(message for _, message, _ in messages)) + messages[0][2]
        problems.append(Problem(path, messages[0][0], f"{field}: {without_middle(text, 2000)}"))
    if len(errors) > ERRORS:
        problems.append(Problem(path, None, f"and {len(errors) - ERRORS} more"))
    return problems


def without_misspelled(model: type[BaseModel], errors: Sequence[Any]) -> list[Any]:
    """Return pydantic's errors, but not that a key is missing if an unknown key beside it is likely to mean it."""
    meant = {
        (*keys, likely(str(key), fields_at(model, keys)))
        for *above, key in (error["loc"] for error in errors if error["type"] == "extra_forbidden")
        for keys in (tuple(above),)
    }
    return [error for error in errors if not (error["type"] == "missing" and error["loc"] in meant)]


def field_at(keys: Sequence[Union[str, int]]) -> str:
    """Return the name of a field for people, who count the entries of a list from 1."""
    name = ""
    for before, key in zip((None, *keys), keys):
        if isinstance(key, int):
            name += f", entry {key + 1}"
        else:
            name += {type(None): "", int: ", ", str: "."}[type(before)] + key
    return name


def explain(model: type[BaseModel], error: Any) -> tuple[str, str]:
    """Return the message for one of pydantic's errors, and what was found instead."""
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        former = FORMER.get(tuple(map(str, error["loc"][-2:])))
        return former or unknown_key(str(error["loc"][-1]), fields_at(model, error["loc"][:-1])), ""
    if kind == "missing":
        return "is missing", ""
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if kind == "value_error":
        return message[0].lower() + message[1:], ""
    if kind == "string_pattern_mismatch":
        message = f"should be {PATTERNS.get(error['ctx']['pattern'], error['ctx']['pattern'])}"
    elif kind in VALUES:
        message = VALUES[kind].format(**error.get("ctx", {}))
    found = (
        "a table"
        if isinstance(value, dict)
        else ("a list" if value else "an empty list")
        if isinstance(value, list)
        else (repr(value) if isinstance(value, str) else "nothing" if value is None else str(value).lower())
    )
    return message[0].lower() + message[1:], f", found {found}"


def likely(key: str, known: list[str]) -> Optional[str]:
    """Return the known key that an unknown one is likely to mean, if any."""
    return next(iter(difflib.get_close_matches(key, known, n=1)), None)


def unknown_key(key: str, known: list[str]) -> str:
    """Return the message for an unknown key, with the likely one or the known ones."""
    close = likely(key, known)
    if close:
        return f"unknown key, did you mean '{close}'?"
    names = f"known: {', '.join(known)}" if len(known) <= KEYS else "`ebsif check --schema NAME` prints all"
    return f"unknown key ({names})"


def place(node: Optional[yaml.Node], keys: list[Any], is_missing: bool) -> tuple[int, tuple]:
    """Return the line that keys lead to (or their parent), and the keys without those of alternatives."""
    if node is None:
        return 1, ()
    line, led = node.start_mark.line, []
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            entries = [(name, value) for name, value in node.value if name.value == str(key)]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            entries = [(node.value[key], node.value[key])]
        else:
            continue
        if entries:
            name, node = entries[0]
            line = name.start_mark.line
            led.append(key)
    return line + 1, tuple(led + list(keys[-1:]) if is_missing else led)


def fields_at(model: type[BaseModel], keys: tuple) -> list[str]:
    """Return the names of the fields of the models that keys lead to, starting from another model."""
    models = [model]
    for key in keys:
        parts = [
            part
            for one in models
            for name, field in one.model_fields.items()
            if name == key
            for part in models_in(field.annotation)
        ]
        models = parts or models
    return sorted({name for one in models for name in one.model_fields})


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in a type annotation, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
