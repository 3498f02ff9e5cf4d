"""Parse a shell command line into its simple commands and the files that they write."""

import shlex

from ebsif.migrate.reader import INSTALLATION

# Replaces INSTALLATION, whose parentheses are special in a shell.
STAND_IN = "@installdir@"

# Commands without lasting effect.
PASSING = ("true", ":", "set", "cd", "pwd", "echo", "printf", "exit")

# Words that start compound commands (bash(1), "Compound Commands" and "Reserved Words").
COMPOUND = ("if", "then", "elif", "else", "for", "while", "until", "do", "case", "select", "function", "{", "[[", "((",
            "!", "time", "coproc", "eval")


def non_options(words: list[str]) -> list[str]:
    """Return the words of a command that are not options."""
    return [word for word in words if not word.startswith("-")]


def has_substitution(words: list[str]) -> bool:
    """Return whether a shell would run a command to fill in one of these words."""
    return any("`" in word or "$(" in word for word in words)


def simple_commands(text: str) -> list[tuple[list[str], list[str], bool]]:
    """
    Return the simple commands of a command line.

    Returns
    -------
    list of tuple
        Words, files that it writes, whether it is part of a pipe.

    Raises
    ------
    ValueError
        If there is anything but simple commands (loops, subshells, input files); the message is the reason.
    """
    found, words, targets, alternative = [], [], [], False
    tokens = tokens_of(text)
    while tokens:
        # the lexer joins an operator with the following line break
        token = tokens.pop(0)
        operator = token.strip("\n")
        if operator in ("|", "|&"):
            words.append("|")
        elif token and not token.strip("\n;&|"):
            if words:
                words = without_filter(words)
                check_simple(words, operator, alternative)
                found.append((words, targets, "|" in words))
                alternative = operator == "||"
            words, targets = [], []
        elif token in (">", ">>", ">&", "&>"):
            take_target(words, targets, tokens.pop(0))
        elif token and not token.strip(";<>|&()\n"):
            raise ValueError(f"it has {token}")
        else:
            words.append(token)
    return found


def without_filter(words):
    """Return the words of a command without a pipe to grep, which filters messages and changes nothing."""
    pipe = words.index("|") if "|" in words else len(words)
    return words[:pipe] if words[pipe + 1 : pipe + 2] == ["grep"] else words


def take_target(words, targets, target):
    """Add the target of a redirection, unless it is /dev/null or another stream; remove the stream's number."""
    if words and words[-1] in ("1", "2"):
        words.pop()
    if target not in ("/dev/null", "1", "2"):
        targets.append(target)


def tokens_of(text):
    """Return words and operators of a command line (list of str), with an operator at the end."""
    lexer = shlex.shlex(text.replace(INSTALLATION, STAND_IN), posix=True, punctuation_chars=";<>|&()\n")
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "", " \t\r", True
    return [*(token.replace(STAND_IN, INSTALLATION) for token in lexer), ";"]


def check_simple(words, operator, alternative):
    """Raise ValueError for a compound command, one in the background, or one that runs only if another one fails."""
    if words[0] in COMPOUND:
        raise ValueError(f"a compound command, {words[0]}")
    if operator == "&":
        raise ValueError("a command in the background")
    if alternative and words[0] not in PASSING:
        raise ValueError("a command that runs only if another one fails")


def inside(path: str) -> str:
    """Return a path relative to the installation directory."""
    return path.replace(INSTALLATION, "", 1).strip("/").removeprefix("./").strip("/")
