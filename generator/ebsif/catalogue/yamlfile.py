"""YAML files of people, read into models: nothing in them is executed, and what is wrong is told with its line."""

import difflib
import os
import re
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Optional, get_args

# it would look through everything that is installed, at every start
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import yaml  # noqa: E402
from pydantic import BaseModel, ConfigDict, ValidationError  # noqa: E402
from pydantic_core import PydanticCustomError  # noqa: E402

from ebsif.errors import EbsifError  # noqa: E402

# Levels of lists and tables in a document; nobody needs more than ten.
DEPTH = 500

# How people call what is in a document.
KINDS = {dict: "a table", list: "a list", type(None): "nothing"}

# Errors of a document that are told: who has more has made the same one again and again.
ERRORS = 50


class Problem(NamedTuple):
    """Something that is wrong in a file, with its line where that is known."""

    path: Path
    line: Optional[int]
    text: str

    def __str__(self):
        """A line for a person."""
        return f"{self.path}:{f'{self.line}:' if self.line else ''} {self.text}"


class DocumentError(EbsifError):
    """A file is not what it should be; the message has a line for each Problem: file, line, field, remedy."""

    def __init__(self, *problems):
        """Keep the problems, for who shows them otherwise."""
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Model(BaseModel):
    """Base of everything that is read from YAML: unknown keys are errors, and nothing changes after reading."""

    # built when it is used: most commands use few of them
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """
    A safe loader for which every scalar is text, but for true, false and null.

    In plain YAML 2.10 is the number 2.1, 20260415_130625 a number as well, and `no` is false: versions and suffixes
    would not be what a person wrote. Models turn text into numbers where they want some. A key that is there twice
    is an error.
    """

    yaml_implicit_resolvers = {
        **{first: [("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z"))] for first in "tf"},
        **{first: [("tag:yaml.org,2002:null", re.compile(r"(?:~|null|)\Z"))] for first in ("~", "n", "")},
    }

    def construct_mapping(self, node, deep=False):
        """Return the dict of a mapping, unless a key is in it twice."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(None, None, "a key should be text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(path):
    """
    Return what a YAML file holds.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict, list, str, bool or None
        All scalars are str, but for true, false and null.

    Raises
    ------
    DocumentError
        If it can't be read, is no YAML in UTF-8, or uses anchors (which could make a small file a huge one).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DocumentError(Problem(path, None, "this is not text in UTF-8")) from None
    except OSError as error:
        raise DocumentError(Problem(path, None, str(error))) from None
    try:
        # looked for in the text first, because parsing twice takes twice the time
        if re.search(r"(^|[\s\[{,:-])&\S", text) or is_suspiciously_deep(text):
            check_events(text, path)
        return yaml.load(text, Loader)  # noqa: S506 a safe loader, see there
    except RecursionError:
        raise DocumentError(Problem(path, None, "nested too deeply")) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(Problem(path, line, error.problem)) from None
    except yaml.YAMLError as error:
        raise DocumentError(Problem(path, None, str(error))) from None


def is_suspiciously_deep(text):
    """Tell whether a text may be a document that is nested deeply: brackets, indentation, or `- - -` in a line."""
    depths = accumulate({"[": 1, "{": 1}.get(bracket, -1) for bracket in re.findall(r"[\[\]{}]", text))
    return max(depths, default=0) > DEPTH or bool(re.search(rf" {{{DEPTH},}}|(?:[-?][ \t]+){{{DEPTH},}}", text))


def check_events(text, path):
    """
    Look through a document without building anything.

    Raises
    ------
    DocumentError
        If it has anchors, or is nested so deeply that building it would end the process.
    """
    depth = 0
    for event in yaml.parse(text, Loader):
        line = event.start_mark.line + 1
        if getattr(event, "anchor", None):
            raise DocumentError(Problem(path, line, "anchors and aliases (&, *) can't be used here: write it out"))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH:
            raise DocumentError(Problem(path, line, "nested too deeply"))


def validate(model, content, path, where=()):
    """
    Return a model of what a file holds.

    Parameters
    ----------
    model : type
        A subclass of Model.
    content : object
        What `load` returned, or a part of it.
    path : Path
        The file, for messages.
    where : tuple of str and int
        The keys and indexes that lead to the part.

    Raises
    ------
    DocumentError
        With a line for each error: where it is, what is wrong, what is allowed.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise explained(error, model, path, where) from None


def invalid(*places):
    """
    Return what the check of a model raises (ValueError), with a line of its own for each thing that is wrong.

    Parameters
    ----------
    places : tuple
        For each: the keys and indexes that lead to it from the model, and what is wrong.
    """
    return ValidationError.from_exception_data("a document", [
        {"type": PydanticCustomError("value_error", "{text}", {"text": text}), "loc": keys, "input": None}
        for keys, text in places])


def explained(error, model, path, where=()):
    """Return the DocumentError for what pydantic found in a file (ValidationError); see `validate`."""
    node = yaml.compose(path.read_text(encoding="utf-8"), Loader)
    errors = error.errors(include_url=False)
    found = {}
    for item in errors[:ERRORS]:
        line, keys = place(node, [*where, *item["loc"]], item["type"] == "missing")
        found.setdefault(keys[len(where) :], {})[explain(model, item)] = line
    # of the things that something could be, the one that fits best is meant
    best = [keys for keys in found if not any(len(other) > len(keys) and other[: len(keys)] == keys for other in found)]
    problems = []
    for keys in best:
        field = short(".".join(map(str, keys))) or "the document"
        text = short(", or ".join(found[keys]), 2000)
        problems.append(Problem(path, next(iter(found[keys].values())), f"{field}: {text}"))
    if len(errors) > ERRORS:
        problems.append(Problem(path, None, f"and {len(errors) - ERRORS} more"))
    return DocumentError(*problems)


def explain(model, error):
    """Return what is wrong (str), for one error of pydantic."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = fields_at(model, error["loc"][:-1])
        close = difflib.get_close_matches(str(error["loc"][-1]), known, n=1)
        hint = f", did you mean '{close[0]}'?" if close else ""
        return f"unknown key{hint} (known: {', '.join(known)})"
    if kind == "missing":
        return "is missing"
    shown = repr(value) if isinstance(value, (str, bool)) else KINDS.get(type(value), type(value).__name__)
    if kind == "literal_error":
        return f"{shown} is not known (known: {context['expected'].replace(chr(39), '')})"
    message = error["msg"].removeprefix("Value error, ").replace("Input should be a valid", "should be a")
    message = re.sub(r"a dictionary( or instance of \w+)?", "a table", message).replace("a integer", "an integer")
    return f"{message[0].lower()}{message[1:]}" + ("" if kind == "value_error" else f", found {shown}")


def short(text, length=200):
    """Return a text, without its middle if it is long."""
    return text if len(text) <= length else f"{text[: length // 2]} ... {text[-length // 2 :]}"


def place(node, keys, missing):
    """
    Return where keys lead to in a composed document, of which the last one may be missing.

    Returns
    -------
    tuple
        The line (from 1) of that part, or of what holds it; the keys without those of pydantic's that only name one of
        the things that a value can be.
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
    """Return the names of the fields (list of str) of the model that keys lead to from another one."""
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
    """Return the models (list of type) that a type annotation names, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
