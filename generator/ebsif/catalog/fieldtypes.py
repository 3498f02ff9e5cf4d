"""The types of fields in site.yaml and in records: lines, names, versions, binds, variables, durations."""

import datetime
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Optional

from easybuild.easyblocks.generic.container.host import libraries, programs
from easybuild.easyblocks.generic.container.host.loader import item_problem, path_problem
from easybuild.easyblocks.generic.container.image.source import IN_REGISTRY, ImageSource
from easybuild.easyblocks.generic.container.sitevalues import place_problem, template_problem
from easybuild.easyblocks.generic.container.values import (
    NAME_PART,
    SYSTEM_PACKAGE,
    bind_problem,
    value_problem,
    variable_problem,
)
from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import core_schema

from ebsif.catalog.yamlerrors import DAY

# All characters, except tabs, that end a line in any program (str.splitlines, universal newlines) or control terminals.
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
PLACEHOLDER = re.compile(r"\{([\w-]+)(!dotless)?\}")
# The version suffix where a family has none: a label distinguishes modules there too.
DEFAULT_SUFFIX = "{label}"


def is_line(text: str) -> str:
    """Return a text if it is one line without leading or trailing blanks."""
    if not text or text != text.strip():
        raise ValueError("should be one line, without leading or trailing blanks")
    if CONTROL.search(text):
        raise ValueError("should be one line, without control characters")
    return text


def is_system_package(text: str) -> str:
    """Return the name of a package of the image's distribution, perhaps with a version."""
    if not SYSTEM_PACKAGE.match(text):
        raise ValueError(f"'{text}' is not a name of a package of the image's distribution: write NAME or NAME=VERSION")
    return text


def is_path(text: str) -> str:
    """Return the name or path of a file or directory if it is the same for all who use the catalog."""
    if is_line(text).startswith("~"):
        raise ValueError(f"'{text}' is another directory for each account: write the full path")
    return text


def is_full_path(text: str) -> str:
    """Return a path if it is a full one."""
    if not is_path(text).startswith("/"):
        raise ValueError(f"'{text}' is not a full path: write that")
    return text


def is_comment(text: str) -> str:
    """Return a line if it is a comment in Python."""
    if not is_line(text).startswith("#"):
        raise ValueError("should begin with '#', because it begins a comment in the easyconfig")
    return text


def refused(problem_of: Callable[[str], Optional[str]]) -> AfterValidator:
    """Return the check of a text by a function of the easyblocks, which says what is wrong with it."""

    def check(text: str) -> str:
        problem = problem_of(text)
        if problem:
            raise ValueError(problem)
        return text

    return AfterValidator(check)


class Statements(str):
    """A value of a variable for `eval`: its own variables are expanded by eval, not when the module is loaded."""

    __slots__ = ()


def statements(value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> str:
    """Return the value of a variable; Statements (without comments) for `{file: NAME}` and `{text: STATEMENTS}`."""
    if not (isinstance(value, dict) and list(value) in (["file"], ["text"])):
        return check(value)
    ((key, text),) = value.items()
    if key == "file":
        if not info.context:
            raise ValueError(f"the file '{text}' can only be named in a catalog, whose site has a directory 'files'")
        try:
            lines = (info.context["files"] / str(text)).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"can't read the file '{text}' in the directory 'files' of the site: {error}") from None
        text = " ".join(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return Statements(check(text))


def is_duration(text: str) -> str:
    """Return a duration, in any form that Slurm reads, as hours:minutes:seconds, which every scheduler reads."""
    if not re.fullmatch(r"(\d{1,2}-\d{1,2}|\d{1,5})(:\d{1,2}){0,2}", text):
        raise ValueError(
            "should be a duration: minutes, minutes:seconds, hours:minutes:seconds or "
            "days-hours:minutes:seconds, such as 30, 00:30:00 or 2-00:00:00"
        )
    days, dash, rest = text.rpartition("-")
    numbers = [int(part) for part in rest.split(":")]
    if dash:
        numbers[0] += 24 * int(days)
    elif len(numbers) < 3:
        numbers.insert(0, 0)
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    minutes, seconds = divmod(60 * minutes + seconds, 60)
    if not (hours or minutes or seconds):
        raise ValueError("should be longer than 0, which Slurm takes for no limit")
    return f"{hours + minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def seconds_in(duration: str) -> int:
    """Return the seconds of a duration in hours:minutes:seconds."""
    hours, minutes, seconds = map(int, duration.split(":"))
    return hours * 3600 + minutes * 60 + seconds


def is_day(text: str) -> str:
    """Return a text if the date that it may begin with (2026-01-23, 20260123, 2026-01, 2026) exists."""
    found = re.match(r"(20\d\d)(?:-?(\d\d)(?:-?(\d\d))?)?(?!\d)", text)
    try:
        datetime.date(*(int(part or 1) for part in found.groups())) if found else None
    except ValueError:
        raise ValueError(f"should be a date that exists, found '{text}'") from None
    return text


def is_source(text: str) -> str:
    """Return the source of an image, which names the digest (R-02)."""
    try:
        source = ImageSource.parse(is_line(text))
    except ValueError as error:
        raise ValueError(f"'{text}' {error}") from None
    if not source.digest:
        raise ValueError(
            f"'{text}' has no digest, and a tag or file can change: `ebsif show {text}` shows its current digest"
        )
    return str(source)


def is_repository(text: str) -> str:
    """Return the repository of a registry, without a tag."""
    try:
        source = ImageSource.parse(is_line(text))
    except ValueError as error:
        raise ValueError(f"'{text}' {error}") from None
    if source.kind not in IN_REGISTRY or source.tag or source.digest:
        raise ValueError("should be oras://HOST/PATH or docker://HOST/PATH, without a tag")
    return str(source)


def is_version_part(text: str) -> str:
    """Return a text if it can be a version, or another part of the name of a file or module."""
    if not re.fullmatch(NAME_PART, text):
        raise ValueError("should contain letters, digits and _ . + - only, and begin with a letter or digit")
    return text


def is_file_name(text: str) -> str:
    """Return a text if it can be a file name once its placeholders are replaced."""
    if re.search(r"[{}]", PLACEHOLDER.sub("", is_line(text))):
        raise ValueError(f"should have braces only around placeholders, such as {{version}}, found '{text}'")
    return text


def is_suffix(text: str) -> str:
    """Return a text if it can be a version suffix (part of a file name) once its placeholders are replaced."""
    if not re.fullmatch(r"[A-Za-z0-9_.+-]*", PLACEHOLDER.sub("", text)):
        raise ValueError("should contain letters, digits, _ . + - and placeholders only: it is part of a file name")
    return text


class OneOf:
    """A type for one of some words, which other modules list."""

    def __init__(self, *words: str):
        """Keep the words."""
        self.words = words

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return what pydantic checks."""
        return core_schema.literal_schema(list(self.words))


class Removable:
    """A value in a table that null takes away when levels are merged: a file may have null, a container hasn't."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return what pydantic checks."""
        return core_schema.nullable_schema(handler(source))


SingleLine = Annotated[str, AfterValidator(is_line)]
SystemPackageName = Annotated[str, AfterValidator(is_system_package)]
FileName = Annotated[str, AfterValidator(is_file_name)]
FilePath = Annotated[str, AfterValidator(is_path)]
FullPath = Annotated[str, AfterValidator(is_full_path)]
Source = Annotated[str, AfterValidator(is_source)]
RepositoryName = Annotated[str, AfterValidator(is_repository)]
Bind = Annotated[SingleLine, refused(partial(bind_problem, templates=False))]
HostProgram = Annotated[SingleLine, refused(partial(item_problem, programs.CHECKS[programs.PROGRAMS]))]
HostPath = Annotated[SingleLine, refused(partial(item_problem, path_problem))]
HostLibrary = Annotated[SingleLine, refused(partial(item_problem, libraries.CHECKS[libraries.LIBRARIES]))]
HostFile = Annotated[SingleLine, refused(partial(item_problem, programs.CHECKS[programs.FILES]))]
CacheDirectory = Annotated[str, refused(template_problem)]
CachePlace = Annotated[str, refused(place_problem)]
Comment = Annotated[str, AfterValidator(is_comment)]
EnvName = Annotated[str, refused(variable_problem)]
EnvValue = Annotated[
    str,
    refused(
        lambda text: (
            value_problem(text) or ("should be one line without control characters" if CONTROL.search(text) else None)
        )
    ),
]
EnvText = Annotated[
    EnvValue,
    WrapValidator(statements),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                *(
                    {
                        "type": "object",
                        "properties": {key: {"type": "string"}},
                        "required": [key],
                        "additionalProperties": False,
                    }
                    for key in ("file", "text")
                ),
            ]
        }
    ),
]
Duration = Annotated[str, AfterValidator(is_duration)]
Count = Annotated[int, Field(ge=1)]
VersionPart = Annotated[str, AfterValidator(is_version_part)]
DatePart = Annotated[VersionPart, AfterValidator(is_day)]
Day = Annotated[str, Field(pattern=DAY), AfterValidator(is_day)]
Suffix = Annotated[str, AfterValidator(is_suffix)]
Text = Annotated[str, Field(min_length=1)]
