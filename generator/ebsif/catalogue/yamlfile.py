"""YAML files of people, read into models: nothing in them is executed, and what is wrong is told with its line."""

import re
from itertools import accumulate

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ebsif.catalogue.yamlerrors import DocumentError, Problem, problems_of, syntax_problem

# Levels of lists and tables in a document; nobody needs more than ten.
DEPTH = 500


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
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DocumentError(Problem(path, line, "this is not text in UTF-8: save it as UTF-8")) from None
    except OSError as error:
        raise DocumentError(Problem(path, None, f"can't be read: {error.strerror}")) from None
    try:
        # looked for in the text first, because parsing twice takes twice the time
        if re.search(r"(^|[\s\[{,:-])&\S", text) or is_suspiciously_deep(text):
            check_events(text, path)
        return yaml.load(text, Loader)  # noqa: S506 a safe loader, see there
    except RecursionError:
        raise DocumentError(Problem(path, 1, "nested too deeply")) from None
    except (yaml.YAMLError, ValueError) as error:  # a value that does not fit its !!tag
        raise DocumentError(syntax_problem(error, path, text)) from None


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


def explained(error, model, path, where=()):
    """Return the DocumentError for what pydantic found in a file (ValidationError); see `validate`."""
    node = yaml.compose(path.read_text(encoding="utf-8"), Loader)
    return DocumentError(*problems_of(error, model, node, path, where))
