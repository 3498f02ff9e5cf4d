"""What to do about a failure, as a whole command: what was typed, with the options that messages of eb name."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from easybuild.easyblocks.generic.container.remedies import TYPED

from ebsif.errors import EbsifError

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
        raise type(error)(completed(str(error), words)) from None


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of a command with more options, which come before those of eb, or are some after `--`."""
    if "--" in options:
        return [*words, *(options[1:] if "--" in words else options)]
    end = list(words).index("--") if "--" in words else len(words)
    return [*words[:end], *options, *words[end:]]
