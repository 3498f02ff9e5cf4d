"""
The parser of a command line, and its two helps: `-h` fits a screen, `--help` has everything.

It doesn't import what the help doesn't need, because importing takes most of the help's time.
"""

import argparse
import difflib
import re
import textwrap

from ebsif.errors import UsageError

# typing takes longer to import than the help to print
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional

# The group of the options that nearly all commands have: the last one of a help.
COMMON = "common options"
LINES, COLUMNS = 24, 80  # of a screen
# the column in which texts of the short help begin
TEXT = 28
# what argparse says of an option without its value
VALUE_MISSING = re.compile(r"argument (?P<option>-\S+): expected (?:at least )?one argument")
DOCUMENTATION = "Documentation: docs/ in the source of ebsif (`make docs` makes web pages of it)"


class Store(argparse.Action):
    """
    What an option without `action` does: keep its value, and don't drop one that was given before (H-03).

    An option with a list of values (`nargs`) adds up; one with a single value is refused the second time.
    """

    is_given = False

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: "Any",
        option_string: "Optional[str]" = None,
    ) -> None:
        """Keep the value in the namespace."""
        if option_string and self.is_given:
            if not isinstance(values, list):
                parser.error(f"{option_string} can be given only once")
            values = [*getattr(namespace, self.dest), *values]
        self.is_given = bool(option_string)
        setattr(namespace, self.dest, values)


class Help(argparse.Action):
    """What -h and --help do: print the short or the complete help, and end."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: "Any",
        option_string: "Optional[str]" = None,
    ) -> None:
        """Print one of the helps."""
        print(short_help(parser) if option_string == "-h" else parser.format_help(), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """
    The parser of one command line, which leaves exit status and message of usage errors to `main`.

    All options of all commands are made by it, and so follow the rule of `Store`.
    """

    def __init__(self, **settings: "Any") -> None:
        """Let options without `action` use Store; they have to be written in full."""
        super().__init__(
            add_help=False, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings
        )
        self.register("action", None, Store)

    def error(self, message: str) -> "NoReturn":
        """Raise UsageError."""
        missing = message.partition("the following arguments are required: ")[2]
        option = VALUE_MISSING.fullmatch(message)
        if missing:
            message = f"{missing} {'are' if ', ' in missing else 'is'} missing: {usage(self)}"
        elif option:
            action = self._option_string_actions[option["option"].partition("/")[0]]
            last = action.option_strings[-1]
            message = f"{option['option']} needs a value: {last} {shown(action)}"
            typed = self.get_default("words") or ()
            following = typed[typed.index(last) + 1 :][:1] if last in typed else ()
            if following and following[0].startswith("-") and following[0] not in ("--", *self._option_string_actions):
                message += f", or {last}={following[0]} if it begins with -"
        message = message.removeprefix("argument ")
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def _check_value(self, action: argparse.Action, value: "Any") -> None:
        """Raise UsageError, with similar ones, if a value is none of those that an argument may have."""
        if action.choices is None or value in action.choices:
            return
        what = f"{'/'.join(action.option_strings)} can't be" if action.option_strings else f"`{self.prog}` doesn't know"
        similar = difflib.get_close_matches(str(value), list(map(str, action.choices)))
        self.error(
            f"{what} '{value}': "
            + (
                f"did you mean {' or '.join(similar)}?"
                if similar
                else f"choose one of {', '.join(map(str, action.choices))}"
            )
        )

    def format_help(self) -> str:
        """Return the complete help, with the options of all commands at the end."""
        self._action_groups.sort(key=lambda group: group.title == COMMON)
        self.usage = self.format_usage().partition(" ")[2].rstrip()
        return f"{super().format_help()}\n{DOCUMENTATION}\n"

    def format_usage(self) -> str:
        """Return the line that begins the help."""
        return "\n".join([*wrapped(f"usage: {usage(self)}", len("usage: ")), ""])


def common_group(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Return the group for the options of all commands, which is made once."""
    there = [group for group in parser._action_groups if group.title == COMMON]
    return there[0] if there else parser.add_argument_group(COMMON)


def shown(action: argparse.Action) -> str:
    """Return what stands for the value of an option or argument."""
    if action.metavar:
        return str(action.metavar)
    if action.choices:
        return f"{{{','.join(map(str, action.choices))}}}"
    return action.dest.upper()


def usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage of a command: its arguments and the options that it needs, without the others."""
    words = [parser.prog]
    for action in parser._actions:
        if action.option_strings and not action.required:
            continue
        name = shown(action)
        if action.option_strings:
            name = f"{action.option_strings[0]} {name}"
        # while it parses options between arguments, argparse keeps the number of these elsewhere
        number = str(vars(action).get("save_nargs", action.nargs))
        words.append({"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(number, name))
    words.append("[OPTION...]")
    more = parser.get_default("placeholder")
    return " ".join(
        words + ([f"-- {more}..." if parser.get_default("needs_more") else f"[-- {more}...]"] if more else [])
    )


def short_help(parser: argparse.ArgumentParser) -> str:
    """Return a help that fits a screen: what the command does, the first options, and the names of the others."""
    paragraph = (parser.description or "").partition("\n\n")[0]
    head = [parser.format_usage(), *textwrap.wrap(paragraph, COLUMNS)[:3]]
    examples = [line for line in (parser.epilog or "").splitlines()[1:] if not line.lstrip().startswith("#")]
    whole = [
        line
        for number, line in enumerate(examples)
        if not line.endswith("\\") and not examples[number - 1].endswith("\\")
    ]
    common = [action for group in parser._action_groups if group.title == COMMON for action in group._group_actions]
    own = [
        action
        for action in parser._actions
        if action.option_strings and action not in common and action.help != argparse.SUPPRESS
    ]
    tail = ["", "examples:", *[line for line in whole if len(line) <= COLUMNS][:2]]
    tail += [
        "",
        *wrapped(f"{COMMON}: {', '.join(names(action) for action in common)}", 4),
        f"`{parser.prog} --help` explains all of them.",
    ]
    room = LINES - "\n".join([*head, "", "options:", *tail]).count("\n") - 1
    for number in range(min(len(own), room), -1, -1):
        others = (
            wrapped(f"more options: {', '.join(names(action) for action in own[number:])}", 4) if own[number:] else []
        )
        if number + len(others) <= room:
            break
    lines = ["", "options:", *(line_of(parser, action) for action in own[:number]), *others] if own else []
    return "\n".join([*head, *lines, *tail, ""])


def wrapped(text: str, indent: int) -> "list[str]":
    """Return the lines of a text; those after the first one are indented."""
    return textwrap.wrap(text, COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)


def names(action: argparse.Action) -> str:
    """Return the names of an option."""
    return "/".join(action.option_strings)


def line_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return an option and its help as one line."""
    value = "" if action.nargs == 0 else f" {shown(action)}"
    name = f"  {', '.join(action.option_strings)}{value}"
    text = parser._get_formatter()._expand_help(action)
    name = f"{name:<{TEXT}}" if len(name) < TEXT - 1 else f"{name}  "
    return name + summary(text, max(COLUMNS - len(name), 20))


def summary(text: str, width: int) -> str:
    """Return a help, or the longest part of it that fits and says something by itself: without what explains more."""
    if len(text) <= width:
        return text
    ends = [one.start() for one in re.finditer(r"[;,] | \(", text[: width + 2])]
    whole = [text[:end] for end in ends if text.count("(", 0, end) == text.count(")", 0, end)]
    return whole[-1] if whole else textwrap.shorten(text, width, placeholder=" ...")
