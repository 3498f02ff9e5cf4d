"""
The command ``ebsif``: run a subcommand, and turn errors into a message and an exit status.

What the help doesn't need is imported where it is used, because importing takes most of the help's time.
"""

import atexit
import contextlib
import gc
import importlib.util
import os
import shlex
import signal
import sys
import textwrap

from ebsif import version
from ebsif.commands import COMMANDS, EB_OPTIONS, FIRST_STEPS, HEADINGS, MOVED, OTHER_WORDS, STATUSES
from ebsif.errors import FAILED, EbsifError, UsageError
from ebsif.parsing import DOCUMENTATION, Parser, Store, usage, wrapped

# typing takes longer to import than the help to print
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from typing import Optional

EXIT_INTERRUPTED = 130

# What EasyBuild has besides easyblocks.
EASYBUILD = ("easybuild.framework", "easybuild.tools")


def help_text(short: bool = False) -> str:
    """Return the help of ebsif, or one that fits a screen."""
    lines = [
        "usage: ebsif COMMAND [OPTION...] [ARGUMENT...]",
        "       ebsif help [COMMAND]",
        "",
        "Install container images as environment modules, with EasyBuild.",
        "",
        "first steps:",
        FIRST_STEPS,
    ]
    for heading, commands in HEADINGS.items():
        if short:
            lines += wrapped(f"{heading}: {', '.join(commands)}", 4)
        else:
            lines += [f"{heading}:", *(f"  {name:12} {text}" for name, text in commands.items()), ""]
    if short:
        return "\n".join([*lines, "", "`ebsif --help` says what each command does.", ""])
    advice = "Options of a command: `ebsif COMMAND -h`, all about it: `ebsif help COMMAND`."
    return "\n".join([*lines, advice, DOCUMENTATION, "", STATUSES])


def configure(parser: "argparse.ArgumentParser", name: str) -> None:
    """Add description, options and arguments of a command to its parser."""
    from ebsif.commands import options

    # `import` is a word of Python
    module = importlib.import_module(f"ebsif.commands.{name.replace('import', 'import_')}")
    parser.description = "\n\n".join(textwrap.fill(text, 80) for text in (module.__doc__ or "").strip().split("\n\n"))
    parser.epilog = f"examples:\n{module.EXAMPLES}"
    module.configure(parser)
    options.add_common(parser)
    placeholder, more = getattr(module, "MORE", ("", ""))
    parser.set_defaults(
        run=module.run,
        command=name,
        placeholder=placeholder,
        takes_more=more,
        needs_more=getattr(module, "NEEDS_MORE", False),
        other_words=getattr(module, "other_words", None),
    )


def parser_of(name: str) -> Parser:
    """Return the parser of a command."""
    parser = Parser(prog=f"ebsif {name}")
    configure(parser, name)
    return parser


def complete() -> None:
    """Print the completions of the shell's command line, and exit."""
    try:
        # only needed here
        import argcomplete
    except ImportError:
        # it was there when `ebsif completion` was run; a Tab key can't explain anything
        sys.exit(FAILED)
    # completions may depend on the values of other options, such as --site
    argcomplete.safe_actions.add(Store)
    words = os.environ.get("COMP_LINE", "").split()
    parser = Parser(prog="ebsif")
    commands = parser.add_subparsers()
    for name, text in COMMANDS.items():
        subparser = commands.add_parser(name, help=text)
        # only the command that is typed: importing all of them takes longer than a person wants to wait
        if name in words[1:2]:
            configure(subparser, name)
    argcomplete.autocomplete(parser, validator=lambda name, typed: name.lower().startswith(typed.lower()))


def check_python(version: "tuple[int, int]") -> None:
    """Exit with a message if this Python is too old."""
    if version < (3, 9):
        sys.exit(
            f"ebsif: Python 3.9 or newer is needed, this is {version[0]}.{version[1]} ({sys.executable}); "
            "on a cluster, load a module that has one (module load cray-python, for example)"
        )


def find_easybuild() -> None:
    """Let Python find the EasyBuild of eb if it finds none: modules of EasyBuild may set PATH, but not PYTHONPATH."""
    if importlib.util.find_spec(EASYBUILD[0]):
        return
    import shutil
    from pathlib import Path

    prefix = Path(shutil.which("eb") or "/dev/null/bin/eb").resolve().parent.parent
    places = [
        str(path.parents[1])
        for start in ("lib*", "local/lib")
        for path in prefix.glob(f"{start}/python3*/*-packages/easybuild/framework")
    ]
    if places:
        sys.path.append(places[0])
        # it has found our part of the package only
        del sys.modules["easybuild"]


def without_easybuild(arguments: "Sequence[str]") -> str:
    """Return what to do if there is no EasyBuild; the profile of the site may know the modules."""
    from ebsif.commands.options import add_settings, settings_of

    # the parser of the command may not be there: its module imports EasyBuild
    parser = Parser()
    add_settings(parser)
    options, _ = parser.parse_known_args(arguments)
    modules = []
    with contextlib.suppress(EbsifError):
        modules = settings_of(options).site().scheduler.install.modules
    remedy = (
        f"run `module load {' '.join(modules)}`"
        if modules
        else "load the site's EasyBuild module, or run `pip install easybuild`"
    )
    return f"this command needs EasyBuild, which {sys.executable} can't import: {remedy}"


def main(arguments: "Optional[Iterable[str]]" = None) -> int:
    """Run the command line, by default that of the process; return the exit status (130: Ctrl-C, 141: broken pipe)."""
    check_python(sys.version_info[:2])
    if "_ARGCOMPLETE" in os.environ:
        complete()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    find_easybuild()
    # the process ends then, so looking for unused objects takes time for nothing (a sixth of `ebsif list`)
    atexit.register(gc.freeze)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # closed by the shell (>&-), so that a file could get its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 as long as the process
    # in one file with standard error, lines are in the order in which they were printed; the locale may be ASCII
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    try:
        try:
            return run(arguments)
        finally:
            flush_output()
    except BrokenPipeError:
        # the reader (head, for example) has closed the pipe
        return 128 + signal.SIGPIPE
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(EASYBUILD):
            raise
        print(f"ebsif: {without_easybuild(arguments)}", file=sys.stderr)
        return FAILED
    except (EbsifError, OSError) as error:
        from ebsif.files import message_of
        from ebsif.report import output

        output.error(message_of(error))
        return getattr(error, "status", FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def run(arguments: "Sequence[str]") -> int:
    """Run the command that arguments name, and return the exit status."""
    name = arguments[0] if arguments else ""
    if not name or name in ("-h", "--help") or list(arguments) in (["help"], ["help", "-h"], ["help", "--help"]):
        print(help_text(name == "-h"), end="", file=sys.stdout if name else sys.stderr)
        return 0 if name else UsageError.status
    if name == "--version":
        print(f"ebsif {version()}")
        return 0
    if name == "help":
        # of the command that is named
        name, arguments = arguments[1], [arguments[1], "--help"]
    if name not in COMMANDS:
        raise UsageError(unknown_command(name, arguments))
    # arguments after -- are for eb, or for the program that a command runs
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = parser_of(name)
    # for messages that repeat the command
    parser.set_defaults(words=tuple(arguments), more=list(arguments[end + 1 :]))
    # options may be between arguments: Python before 3.12.7 takes an optional one only next to others
    options, unknown = parser.parse_known_intermixed_args(arguments[1:end])
    if not options.takes_more:
        unknown += options.more
    if unknown:
        advice = options.other_words(unknown) if options.other_words else ""
        if not (advice or options.takes_more or unknown[0].startswith("-")):
            advice = f"usage: {usage(parser)}"
        said = f"unrecognized arguments: {' '.join(unknown)}: {advice}" if advice else ""
        parser.error(said or unexpected(unknown, arguments, options.takes_more, parser._option_string_actions))
    from ebsif.processes import interruptible
    from ebsif.report import output

    output.set_level(output.VERBOSE if options.verbose else output.QUIET if options.quiet else output.NORMAL)
    with interruptible():
        if (options.placeholder, options.takes_more) == EB_OPTIONS:
            from ebsif.eb import framework

            # they count for everything that the command reads
            framework.session(tuple(options.more))
        return options.run(options)


def unexpected(unknown: "Sequence[str]", arguments: "Sequence[str]", takes_more: str, known: "Iterable[str]") -> str:
    """
    Return what to do about arguments that a command doesn't have.

    `takes_more` is what it takes after --, `known` are its options.
    """
    import difflib

    said = f"unrecognized arguments: {' '.join(unknown)}"
    option = unknown[0].partition("=")[0]
    similar = []
    if len(option) == 2 and option != "--":
        # the letter of a long one
        similar = [one for one in known if one.startswith(f"-{option}")]
    elif option.startswith("-"):
        similar = difflib.get_close_matches(f"--{option.lstrip('-')}", known, 1, cutoff=0.8)
    if len(similar) == 1:
        return f"{said}: did you mean {similar[0]}?"
    if not takes_more or "--" in arguments:
        return said
    if "--add" in known and not unknown[0].startswith("-"):
        words = [word for word in arguments if word not in unknown]
        return f"{said}. To add packages: `{shlex.join(['ebsif', *words, '--add', *unknown])}`"
    start = list(arguments).index(unknown[0]) if unknown[0] in arguments else 0
    if not start or unknown[0].startswith("-"):
        return f"{said}: put -- before {takes_more}"
    command = shlex.join(["ebsif", *arguments[:start], "--", *arguments[start:]])
    return f"{said}: put -- before {takes_more}: `{command}`"


def unknown_command(name: str, arguments: "Sequence[str]") -> str:
    """Return what to do about a word that is no command: where an earlier one went, or similar ones."""
    import difflib

    own = arguments[: arguments.index("--") if "--" in arguments else len(arguments)]
    command = next((word for word in own[1:] if word in COMMANDS), "")
    if command and name not in OTHER_WORDS and arguments[0] == name:
        place = arguments.index(command)
        words = shlex.join(["ebsif", command, *arguments[:place], *arguments[place + 1 :]])
        return f"the command comes first: `{words}` (see `ebsif --help`)"
    if name in MOVED:
        return f"`ebsif {name}` is now `{MOVED[name]}`"
    if name in OTHER_WORDS:
        return f"there is no command '{name}': did you mean `{OTHER_WORDS[name]}`? (see `ebsif --help`)"
    if name.startswith("-"):
        return f"options follow a command: ebsif COMMAND {name} (see `ebsif --help`)"
    similar = difflib.get_close_matches(name, [*COMMANDS, "help"])
    return (
        f"there is no command '{name}'"
        + (f": did you mean {' or '.join(similar)}?" if similar else "")
        + " (see `ebsif --help`)"
    )


def flush_output() -> None:
    """Flush standard output here, and not at exit, where nothing handles a broken pipe or a full disk."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # otherwise Python tries and complains once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # it has no path; what the command has written to files is there
        error.filename = "standard output"
        raise


if __name__ == "__main__":
    sys.exit(main())
