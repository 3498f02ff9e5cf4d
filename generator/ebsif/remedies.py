"""What to do about a failure, as a whole command: what was typed, with the options that messages of eb name."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from easybuild.easyblocks.generic.container.remedies import TYPED
from easybuild.easyblocks.generic.container.requirements import package_name

from ebsif.errors import EbsifError

# Options with any number of packages.
LISTS = ("--add", "--apt", "--allow-upgrade", "--replace")
# Ends with the line, or where the command is quoted in a sentence.
COMMAND = re.compile(rf"{re.escape(TYPED)} ([^`\n]*)")


def completed(text: str, words: Sequence[str]) -> str:
    """Return a message in which a command that was typed, without the name of the program, stands for TYPED."""
    # to repeat a lock, nothing can be added
    if not words or any(word.startswith("--from-l") for word in words):
        return text
    return COMMAND.sub(lambda found: shlex.join(["ebsif", *with_options(words, shlex.split(found[1]))]), text)


@contextmanager
def whole(words: Sequence[str]) -> Iterator[None]:
    """Complete the commands in the message of an error; see `completed`."""
    try:
        yield
    except EbsifError as error:
        # the same error, because some are made of more than their message
        error.args = (completed(str(error), words),)
        raise


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """
    Return the words of a command with more options, which come before those of eb, or are some after `--`.

    What they say of a package counts, and not what the command says of it.
    """
    end = list(words).index("--") if "--" in words else len(words)
    own, last = list(words[:end]), list(words[end:])
    if "--" in options:
        return [*own, *(last or ["--"]), *options[1:]]
    said = {(option, package_name(value)) for option, value in values_in(options) if not value.startswith("-")}
    # what is to be added replaces nothing
    said |= {("--replace", name) for option, name in said if option == "--add"}
    own = [
        word
        for option, value in values_in(own)
        if (option, package_name(value)) not in said
        for word in ([option, value] if option in LISTS else [value])
    ]
    if "--replace" not in own:
        own = [word for word in own if word != "--force"]
    return [*joined(own), *options, *last]


def values_in(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of a command without the names of options with lists; each after the name of its option."""
    option = ""
    for word in words:
        name, equals, value = word.partition("=")
        if name in LISTS:
            option = name
            if equals:
                yield option, value
        else:
            # pip's options have a blank, as in a line of a requirements.txt
            option = "" if word.startswith("-") and " " not in word else option
            yield option, word


def joined(words: Sequence[str]) -> list[str]:
    """Return words in which options with lists are before each value, before the first value only."""
    found, option = [], ""
    for number, word in enumerate(words):
        if word in LISTS:
            found += [word] if word != option else []
            option = word
        else:
            is_value = number and words[number - 1] in LISTS
            option = option if is_value else ""
            found.append(word)
    return found
