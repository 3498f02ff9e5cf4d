"""Texts for people: shortened, and with what a misspelled name may have meant."""

import difflib
from collections.abc import Iterable, Mapping

CUT = "..."


def without_end(text: str, length: int) -> str:
    """Return a text without its end if it is longer than a number of characters."""
    return text if len(text) <= length else f"{text[: length - len(CUT)].rstrip()}{CUT}"


def without_middle(text: str, length: int) -> str:
    """Return a text without its middle if it is longer: names that begin alike often end differently."""
    if len(text) <= length:
        return text
    left = max(length - len(CUT), 2)
    end = left // 2
    return f"{text[: left - end]}{CUT}{text[-end:]}"


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """Return the names that resemble a mistyped one as the end of a message, empty if there is none."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wanted.lower(), names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(names[name] for name in close)}?" if close else ""


def instead_of(table: Mapping[str, str], words: Iterable[str]) -> str:
    """Return what to type instead of the options among words that a table has; empty if there is none."""
    options = dict.fromkeys(word.partition("=")[0] for word in words)
    return "; ".join(f"for {option}, use {table[option]}" for option in options if option in table)
