"""Read YAML files into models safely, and report errors with their lines."""

import re
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ebsif.catalog.yamlerrors import DocumentError, Problem, problems_of, syntax_problem

# Allowed depth of lists and tables in a document; nobody needs more than ten.
DEPTH = 500


class Model(BaseModel):
    """Base class of everything that is read from YAML: unknown keys are errors, and models are immutable."""

    # validators are built on first use: most commands use few models
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @property
    def given(self) -> dict[str, Any]:
        """The fields that are set in its file."""
        return {field: getattr(self, field) for field in self.model_fields_set}


AnyModel = TypeVar("AnyModel", bound=Model)


# the parser in C, where PyYAML has it
BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlLoader(BaseLoader):
    """
    A safe loader that reads every scalar as text, except true, false and null.

    In plain YAML, 2.10 is the number 2.1, 20260415_130625 is a number as well, and `no` is false, so that versions and
    suffixes would change. Models convert text to numbers where necessary. Duplicate keys are errors.
    """

    yaml_implicit_resolvers = {
        **{first: [("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z"))] for first in "tf"},
        **{first: [("tag:yaml.org,2002:null", re.compile(r"(?:~|null|)\Z"))] for first in ("~", "n", "")},
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping as a dict; raise an error for a duplicate key."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(None, None, "a key should be text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key '{key.value}': remove one of them", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(path: Path) -> Any:
    """Return the content of a YAML file. Raise DocumentError, also for anchors, which can expand enormously."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DocumentError(Problem(path, line, "the file is not encoded in UTF-8: save it as UTF-8")) from None
    except OSError as error:
        raise DocumentError(Problem(path, None, f"can't be read: {error.strerror}")) from None
    try:
        # a search in the text is cheaper than parsing twice
        if re.search(r"(^|[\s\[{,:-])&\S", text) or is_suspiciously_deep(text):
            check_events(text, path)
        # a safe loader, see there
        return yaml.load(text, YamlLoader)
    except RecursionError:
        raise DocumentError(Problem(path, 1, "nested too deeply")) from None
    except (yaml.YAMLError, ValueError) as error:  # a value that does not fit its !!tag
        raise DocumentError(syntax_problem(error, path, text)) from None


def is_suspiciously_deep(text: str) -> bool:
    """Return whether a document may be nested too deeply: by brackets, by indentation, or by `- - -` in a line."""
    depths = accumulate({"[": 1, "{": 1}.get(bracket, -1) for bracket in re.findall(r"[\[\]{}]", text))
    return max(depths, default=0) > DEPTH or bool(re.search(rf" {{{DEPTH},}}|(?:[-?][ \t]+){{{DEPTH},}}", text))


def check_events(text: str, path: Path) -> None:
    """Raise DocumentError if a document has anchors, or is nested so deeply that constructing it would crash Python."""
    depth = 0
    for event in yaml.parse(text, YamlLoader):
        line = event.start_mark.line + 1
        if getattr(event, "anchor", None):
            raise DocumentError(Problem(path, line, "anchors and aliases (&, *) can't be used here: repeat the value"))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH:
            raise DocumentError(Problem(path, line, "nested too deeply"))


def validate(model: type[AnyModel], content: object, path: Path) -> AnyModel:
    """Return the model of a file's content. Raise DocumentError with all lines."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise document_error(error, model, path) from None


def document_error(error: ValidationError, model: type[Model], path: Path) -> DocumentError:
    """Return the DocumentError for a ValidationError of pydantic; see `validate`."""
    node = yaml.compose(path.read_text(encoding="utf-8"), YamlLoader)
    return DocumentError(*problems_of(error, model, node, path))


def line_of(path: Path, key: str) -> int:
    """Return the line of a key at the top of a valid file, 1 if it isn't there."""
    node = yaml.compose(path.read_text(encoding="utf-8"), YamlLoader)
    return next((one.start_mark.line + 1 for one, _ in node.value if one.value == key), 1)
