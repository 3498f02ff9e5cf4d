"""Turn the errors of the YAML parser and of pydantic into messages for users, each with its line."""

import re
from pathlib import Path
from typing import NamedTuple, Optional, Union, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from ebsif.errors import EbsifError

# Names for the types of values in a file.
KINDS = {dict: "a table", list: "a list", type(None): "nothing", True: "true", False: "false"}

# What a value should be, by pydantic's types of errors.
EXPECTED = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a table"), "list_type": "a list",
    "string_type": "text", "string_too_short": "text that isn't empty",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    "greater_than_equal": "a whole number, {ge} or more"}

# Messages on the alternatives of a value.
ALTERNATIVE = re.compile(r"should be (?P<kind>.+), found (?P<value>.+)|"
                         r"(?P<unknown>.+) is not known \(known: (?P<known>.+)\)")

# What fields with a pattern should be.
PATTERNS = {
    "^[0-9a-f]{64}$": "64 hexadecimal digits, as `sha256sum` prints them",
    r"^\d{4}(-\d{2}(-\d{2})?)?$": "a date, such as 2026-01-23",
    "^0x[0-9a-f]+$": "a mask in hexadecimal digits, such as 0xff",
    "^[A-Za-z0-9][A-Za-z0-9_.+-]*$": "letters, digits and _ . + -, beginning with a letter or digit",
    "^[a-z0-9][a-z0-9_-]*$": "lower-case letters, digits, _ and -, beginning with a letter or digit",
}

# Report at most this many errors per file.
ERRORS = 50

# List all known keys if there are at most this many.
KEYS = 12

# Beginnings of the YAML parser's messages, and what they mean for users.
SYNTAX = {
    "mapping values are not allowed": "unexpected ':': put a value that contains ': ' in quotes, and check the line "
                                      "before, which should be 'key: value' with a blank after the colon",
    "could not find expected ':'": "this line should be 'key: value' with a blank after the colon",
    "found a tab character": "there is a tab: indent with spaces",
    "found character that cannot start": "a value can't begin with this character: put it in quotes (if it is a tab, "
                                         "indent with spaces)",
    "found unexpected end of stream": "a quote is opened but never closed",
    "found unknown escape character": "a backslash in double quotes begins an escape sequence: write it twice, or use "
                                      "single quotes",
    "did not find expected ',' or": "a list [...] or table {...} is not closed, or a comma is missing",
    "did not find expected node content": "a value is missing between two commas",
    "did not find expected '-'": "this line is not part of the list above: begin it with '- ', or indent it",
    "did not find expected key": "this line does not fit the lines above: check the indentation, and look for text "
                                 "after a closing quote or bracket",
    "did not find expected comment": "text after '|' or '>' belongs on the lines below, indented",
    "could not determine a constructor": "a value can't begin with '!': put it in quotes",
    "found undefined alias": "a value can't begin with '*': put it in quotes",
    "found undefined tag": "a value can't begin with '!': put it in quotes",
    "second occurrence": "anchors and aliases (&, *) can't be used here: repeat the value",
    "but found another document": "'---' begins a second document, but a file should have only one",
    "found unhashable key": "a key should be text, not a list or table: put a value that begins with [ or { in quotes",
    "found unknown directive": "a line can't begin with '%': put it in quotes",
    "unacceptable character": "there is a control character: remove it",
    "control characters are not allowed": "there is a control character: remove it",
}


class Problem(NamedTuple):
    """A problem in a file, with its line if that is known."""

    path: Path
    line: Optional[int]
    text: str

    def __str__(self):
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
    said = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None)
    # the place where it is opened is more helpful than the end of the file
    if said.startswith(("found unexpected end of stream", "did not find expected ',' or", "could not find expected")):
        mark = error.context_mark or mark
    position = getattr(error, "position", None)
    line = mark.line + 1 if mark else 1 if position is None else text.count("\n", 0, position) + 1
    known = next((words for begin, words in SYNTAX.items() if said.startswith(begin)), None)
    # the end of the file is after the last visible line
    line = min(line, max(1, len(text.splitlines())))
    return Problem(path, line, known or said.splitlines()[0])


def invalid(*places: tuple[tuple, str], fields: Optional[ValidationError] = None) -> ValidationError:
    """
    Return the error for the check of a model to raise, so that each problem gets its own line.

    Parameters
    ----------
    places
        For each problem, the keys and indexes that lead to it from the model, and the message.
    fields
        Problems with single fields, which are included.
    """
    of_fields = fields.errors(include_url=False) if fields else []
    return ValidationError.from_exception_data("a file", [
        *({"type": PydanticCustomError(one["type"], "{text}", {**one.get("ctx", {}), "text": one["msg"]}),
           "loc": one["loc"], "input": one["input"]} for one in of_fields),
        *({"type": PydanticCustomError("value_error", "{text}", {"text": text}), "loc": keys, "input": None}
          for keys, text in places)])


def problems_of(error: ValidationError, model: type[BaseModel], node: yaml.Node, path: Path,
                where: tuple = ()) -> list[Problem]:
    """Return pydantic's errors as problems, given the composed YAML of the file."""
    errors = error.errors(include_url=False)
    found = {}
    for item in errors[:ERRORS]:
        line, keys = place(node, [*where, *item["loc"]], item["type"] == "missing")
        found.setdefault(keys[len(where) :], {})[explain(model, item)] = line
    # of the alternatives of a union, keep the errors of the one that fits best
    best = [keys for keys in found if not any(len(other) > len(keys) and other[: len(keys)] == keys for other in found)]
    problems = []
    for keys in best:
        field = shorten(".".join(map(str, keys))) or "the document"
        text = shorten(joined(list(found[keys])), 2000)
        problems.append(Problem(path, next(iter(found[keys].values())), f"{field}: {text}"))
    if len(errors) > ERRORS:
        problems.append(Problem(path, None, f"and {len(errors) - ERRORS} more"))
    return problems


def explain(model, error):
    """Return the message for one of pydantic's errors (str)."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(str(error["loc"][-1]), fields_at(model, error["loc"][:-1]))
    if kind == "missing":
        return "is missing"
    shown = repr(value) if isinstance(value, str) else KINDS.get(value if isinstance(value, bool) else type(value),
                                                                 str(value))
    if kind == "literal_error":
        known = context["expected"].replace("'", "")
        is_text = isinstance(value, str)
        return f"{shown} is not known (known: {known})" if is_text else f"should be {known}, found {shown}"
    if kind == "string_pattern_mismatch":
        return f"should be {PATTERNS.get(context['pattern'], context['pattern'])}, found {shown}"
    if kind in EXPECTED:
        # YAML has words that are no text
        remedy = ": put it in quotes" if kind == "string_type" and isinstance(value, bool) else ""
        return f"should be {EXPECTED[kind].format(**context)}, found {shown}{remedy}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{message[0].lower()}{message[1:]}" + ("" if kind == "value_error" else f", found {shown}")


def joined(messages):
    """Return the messages on the alternatives of a value as one (str)."""
    parts = [ALTERNATIVE.fullmatch(one) for one in messages]
    if len(parts) < 2 or not all(parts):
        return ", or ".join(messages)
    kinds = " or ".join(part["kind"] or part["known"] for part in parts)
    return f"should be {kinds}, found {parts[0]['value'] or parts[0]['unknown']}"


def unknown_key(key, known):
    """Return the message for an unknown key (str), with the likely one or the known ones."""
    # only needed for a file with a mistake
    import difflib

    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"unknown key, did you mean '{close[0]}'?"
    if len(known) <= KEYS:
        return f"unknown key (known: {', '.join(known)})"
    near = sorted(difflib.get_close_matches(key, known, n=KEYS // 2, cutoff=0))
    return f"unknown key (known: {', '.join(near)} and {len(known) - len(near)} more, see `ebsif check --schema`)"


def shorten(text, length=200):
    """Return a text (str), without its middle if it is long."""
    return text if len(text) <= length else f"{text[: length // 2]} ... {text[-length // 2 :]}"


def place(node, keys, missing):
    """
    Return the place that keys lead to in a composed document; the last key may be missing.

    Returns
    -------
    tuple
        The line (from 1) of that part, or of its parent if it is missing; the keys, without those by which pydantic
        names the alternatives of a union.
    """
    if node is None:
        return 1, ()
    line, led = node.start_mark.line, []
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = [(name, value) for name, value in node.value if name.value == str(key)]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            found = [(node.value[key], node.value[key])]
        else:
            continue
        if found:
            name, node = found[0]
            line = name.start_mark.line
            led.append(key)
    return line + 1, tuple(led + list(keys[-1:]) if missing else led)


def fields_at(model, keys):
    """Return the field names (list of str) of the model that keys lead to, starting from another model."""
    models = [model]
    for key in keys:
        if isinstance(key, int):
            continue
        named = [field.annotation for one in models for name, field in one.model_fields.items()
                 if key in (name, field.alias)]
        found = [part for annotation in named for part in models_in(annotation)]
        models = found or models
    return sorted({field.alias or name for one in models for name, field in one.model_fields.items()})


def models_in(annotation):
    """Return the models (list of type) in a type annotation, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
