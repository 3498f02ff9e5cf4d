"""Print the differences between two containers or installations, as text or JSON."""

import dataclasses
import json

from ebsif.installed.lock import Change


def print_changes(changes: list[Change], as_json: bool) -> int:
    """Print differences; return 1 if there are any, else 0."""
    if as_json:
        print(json.dumps([dataclasses.asdict(change) for change in changes], indent=2))
    elif not changes:
        print("no differences")
    else:
        for change in changes:
            print(describe(change))
    return 1 if changes else 0


def describe(change: Change) -> str:
    """Return a difference as a line of text."""
    if change.before is None:
        return f"+ {change.kind} {change.name} {as_text(change.after)}"
    if change.after is None:
        return f"- {change.kind} {change.name} {as_text(change.before)}"
    return f"~ {change.kind} {change.name} {as_text(change.before)} -> {as_text(change.after)}"


def as_text(value):
    """Return a value of a lock file as text (str)."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
