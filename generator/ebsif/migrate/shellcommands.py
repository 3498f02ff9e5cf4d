"""Read the shell commands of an easyconfig, and the scripts that they write.

A command line is either understood as a whole or listed as a whole.
"""

import re
import shlex
from typing import Any

from easybuild.easyblocks.generic.container.sitevalues import RUNTIMES

from ebsif.catalog.site import Site
from ebsif.migrate.easyconfigfile import EasyconfigText
from ebsif.migrate.imported import INSTALLATION, Imported, inside, shortened
from ebsif.migrate.modulesettings import OWN_BINDS, same_path_twice, take_activation
from ebsif.migrate.scripts import in_place_of

# Directories that our easyblocks create.
DIRECTORIES = ("", "bin", "runscripts", "share", "share/docker-defs", "user-software", "user-software/venv")

# Commands without lasting effect, and the modes of scripts.
PASSING = ("true", ":", "set", "cd", "pwd", "echo", "printf")
MODES = r"(a|u|ug)?[+-]r?x|a\+r|0?755"

# Words that start compound commands (bash(1), "Compound Commands" and "Reserved Words").
COMPOUND = ("if", "for", "while", "until", "case", "select", "function", "{", "[[", "!", "time", "coproc", "eval")

# A file written by a here-document.
HERE = re.compile(
    r"cat\s*(?P<mode>>{1,2})\s*(?P<file>[^\s<>]+)\s*<<-?\s*(?P<quote>[\"']?)(?P<end>\w+)(?P=quote)"
    r"[ \t]*\n(?P<text>.*?)^(?P=end)[ \t]*(?=\n|\Z)",
    re.DOTALL | re.MULTILINE,
)


class UnknownCommandError(ValueError):
    """A command has no equivalent in our easyblocks."""


class ShellCommands:
    """Reads the commands that run after the installation and in the sanity check."""

    def __init__(self, values: dict[str, Any], result: Imported, source: EasyconfigText, site: Site):
        """Start without requirements and scripts."""
        self.values, self.result, self.source, self.site = values, result, source, site
        self.record = result.record
        # files written, by their place in the installation
        self.written: dict[str, str] = {}
        # of each call of pip
        self.requirements: list[list[str]] = []
        self.line = 1

    def read(self) -> None:
        """Read all commands."""
        for index, command in enumerate(self.values.get("postinstallcmds") or []):
            self.line = line = self.source.of("postinstallcmds", index)
            rest = HERE.sub(self.read_here_document, command)
            before = dict(self.record), list(self.requirements), list(self.result.data)
            try:
                self.read_line(rest)
            except ValueError as error:
                # restored, because a part of the line may have been read
                self.record.clear()
                self.record.update(before[0])
                self.requirements, self.result.data = before[1:]
                reason = "" if isinstance(error, UnknownCommandError) else f" ({error})"
                self.result.leave(line, f"postinstallcmds: {shortened(rest)}{reason}")
            else:
                if rest.strip():
                    self.result.recognized.append(f"command {shortened(rest)}")
        self.settle_requirements()
        self.read_sanity_checks()

    # --- commands

    def read_line(self, text: str) -> None:
        """Read a command line. Raise ValueError if a part of it is not understood."""
        for words in simple_commands(text):
            self.read_words(words)

    def read_words(self, words: list[str]) -> None:
        """Read a simple command. Raise UnknownCommandError if it is unknown."""
        text, program, arguments = " ".join(words), words[0].rsplit("/", 1)[-1], words[1:]
        if program in RUNTIMES and arguments[:1] == ["exec"]:
            self.read_container(arguments[1:])
        elif re.fullmatch(r"(pip|python)[0-9.]*", program):
            self.read_python(program, arguments)
        elif program == "ln":
            self.read_link(paths_in(arguments))
        elif not (program in PASSING or take_activation(text, self.record) or self.is_file_command(program, arguments)):
            raise UnknownCommandError(text)

    def is_file_command(self, program: str, arguments: list[str]) -> bool:
        """Return whether a command only creates, changes or removes files that our easyblocks manage."""
        paths = [inside(path) for path in paths_in(arguments)]
        if program == "mkdir":
            return all(path in DIRECTORIES for path in paths)
        if program == "chmod":
            return bool(re.fullmatch(MODES, arguments[0] if arguments else "")) and all(
                inside(path) in self.written for path in arguments[1:]
            )
        if program == "rm":
            return paths == ["user-software"]
        return program == "make-squashfs" and not arguments

    def read_link(self, paths: list[str]) -> None:
        """Read a link to a wrapper, which becomes another wrapper. Raise UnknownCommandError for other links."""
        target, name = [re.sub(r"\A(\./|bin/)+", "", inside(path)) for path in paths] if len(paths) == 2 else ("", "")
        if target not in (self.record.get("wrappers") or []) or not re.fullmatch(r"[\w.+-]+", name):
            raise UnknownCommandError("ln")
        self.record["wrappers"] = [*self.record["wrappers"], name]
        self.result.data.append(f"wrapper {name}")

    def read_container(self, words: list[str]) -> None:
        """Read what `singularity exec` is called with. Raise UnknownCommandError where there is no equivalent."""
        while words and words[0].startswith("-"):
            option, equals, value = words[0].partition("=")
            words = words[1:]
            if not equals:
                value, words = "".join(words[:1]), words[1:]
            if option not in ("--bind", "-B") or not all(map(self.is_known_bind, value.split(","))):
                raise UnknownCommandError(option)
        command = words[1:]
        if len(command) == 3 and command[0] in ("bash", "sh") and re.fullmatch("-l?c", command[1]):
            self.read_line(command[2])
        elif command:
            self.read_words(command)

    def is_known_bind(self, bind: str) -> bool:
        """Return whether the module already has a bind."""
        bind, binds = same_path_twice(bind), self.site.binds
        return bind in (*binds.required, *binds.optional, *self.record.get("binds", [])) or bool(OWN_BINDS.match(bind))

    def read_python(self, program: str, arguments: list[str]) -> None:
        """Read `pip install`, or Python with `-m pip` or `-m venv`. Raise UnknownCommandError for anything else."""
        if program.startswith("python"):
            if arguments[:2] == ["-m", "venv"]:
                self.read_venv(arguments[2:])
                return
            if arguments[:2] != ["-m", "pip"]:
                raise UnknownCommandError(program)
            arguments = arguments[2:]
        if arguments[:1] == ["install"]:
            self.requirements.append(self.requirements_of(arguments[1:]))
        elif arguments[:1] not in (["list"], ["freeze"], ["check"], ["--version"]):
            raise UnknownCommandError(program)

    def read_venv(self, arguments: list[str]) -> None:
        """Read `python -m venv`. Raise UnknownCommandError for unknown options and a second venv."""
        names = paths_in(arguments)
        options = {word for word in arguments if word not in names}
        name = names[0].rsplit("/", 1)[-1] if len(names) == 1 else ""
        if (
            not name
            or options - {"--system-site-packages", "--clear"}
            or (self.record.get("venv") and self.record["venv_name"] != name)
        ):
            raise UnknownCommandError("venv")
        self.record.update(venv=True, venv_name=name)

    def requirements_of(self, words: list[str]) -> list[str]:
        """Return the requirements among the arguments of `pip install`. Raise UnknownCommandError for other options."""
        lines: list[str] = []
        words = list(words)
        while words:
            option, _, value = words.pop(0).partition("=")
            if not option.startswith("-"):
                lines.append(f"{option}={value}" if value else option)
            elif option in ("-r", "--requirement"):
                lines += self.lines_of(value or "".join(words[:1]))
                words = words if value else words[1:]
            else:
                raise UnknownCommandError(option)
        # what depends on variables of a shell, or on the directory in which pip runs
        if not lines or any("$" in line or re.match(r"\.{1,2}(/|\[|$)", line) for line in lines):
            raise UnknownCommandError("pip")
        return lines

    def lines_of(self, name: str) -> list[str]:
        """Return the requirements in a file that a command has written. Raise UnknownCommandError for other files."""
        last = name.rsplit("/", 1)[-1]
        text = next((text for path, text in self.written.items() if path.rsplit("/", 1)[-1] == last), None)
        if text is None:
            raise UnknownCommandError(name)
        return [line.strip() for line in text.splitlines() if line.strip()]

    def settle_requirements(self) -> None:
        """Put requirements into the record, as stages if pip is called several times."""
        if not self.requirements:
            return
        stages = [{"requirements": lines} for lines in self.requirements]
        self.record.update(venv=True, requirements=self.requirements[0] if len(stages) == 1 else stages)
        self.result.data += [f"requirements {shortened(', '.join(lines))}" for lines in self.requirements]

    # --- scripts

    def read_here_document(self, match: re.Match) -> str:
        """Read a file that a command writes; return what stays of the command line."""
        name, text = inside(match["file"]), match["text"]
        if match["mode"] != ">" or name.startswith(("/", "./")):
            return match.group()
        if not match["quote"]:
            # the shell removes these backslashes
            text = re.sub(r"\\([$`\\\n])", lambda escape: "" if escape[1] == "\n" else escape[1], text)
        self.written[name] = text
        self.read_file(name, text, self.line)
        return ""

    def read_file(self, name: str, text: str, line: int) -> None:
        """Read a written file: a script that ours replaces, or requirements."""
        self.result.by_hand = self.result.by_hand or bool(re.search(r"(?m)^[^#\n]*\$\{?WITH_CONDA\b", text))
        ours = in_place_of(name, text)
        if not ours:
            self.result.leave(line, f"the file {name}, which none of our scripts replaces")
            return
        self.result.python = self.result.python or "python" in name
        if ours == "wrapper":
            self.result.append("wrappers", name.removeprefix("bin/"), f"wrapper {name.removeprefix('bin/')}")
        elif ours not in (name, "requirements"):
            self.result.put("script_names", name, ours, f"{name} is another name of {ours}")
        if ours != "requirements":
            self.result.replaced.append((line, name))

    # --- sanity check

    def read_sanity_checks(self) -> None:
        """Leave paths that our easyblocks don't check to the user; keep commands, except syntax checks of scripts."""
        named = (*DIRECTORIES, *self.record.get("definition_files", []), self.record["file"])
        for path in [path for paths in (self.values.get("sanity_check_paths") or {}).values() for path in paths or []]:
            known = path in self.written and in_place_of(path, self.written[path])
            if not known and str(path).removeprefix("share/docker-defs/") not in named:
                self.result.leave(self.source.of("sanity_check_paths"), f"sanity_check_paths: {shortened(path)}")
        kept = []
        for command in self.values.get("sanity_check_commands") or []:
            if not isinstance(command, str):
                self.result.leave(
                    self.source.of("sanity_check_commands"), f"sanity_check_commands: {shortened(command)}"
                )
            elif re.fullmatch(r"\s*(echo [^;]*;)?\s*bash -n [\w%()/.-]+\s*", command):
                self.result.recognized.append(f"sanity check {command}")
            else:
                kept.append(command)
        if kept:
            self.result.put("parameters", "sanity_check_commands", kept, f"{len(kept)} sanity_check_commands")


def paths_in(words: list[str]) -> list[str]:
    """Return the words of a command that are not options."""
    return [word for word in words if not word.startswith("-")]


def simple_commands(text: str) -> list[list[str]]:
    """Return the commands of a line joined by `;`, `&&` and line ends. Raise ValueError for anything else."""
    # the parentheses are special in a shell
    lexer = shlex.shlex(text.replace(INSTALLATION, "@installdir@"), posix=True, punctuation_chars=";<>|&()\n")
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "", " \t\r", True
    commands: list[list[str]] = [[]]
    for token in lexer:
        operator = token.strip("\n")
        if (token and not operator) or operator in (";", "&&"):
            commands.append([])
        elif operator and not operator.strip(";<>|&()"):
            raise ValueError(f"it has {operator}")
        elif "$(" in token or "`" in token:
            raise ValueError("it has a command in a command")
        else:
            commands[-1].append(token.replace("@installdir@", INSTALLATION))
    compound = next((words[0] for words in commands if words and words[0] in COMPOUND), None)
    if compound:
        raise ValueError(f"a compound command, {compound}")
    return [words for words in commands if words]
