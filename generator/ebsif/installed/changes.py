"""How two containers or installations differ, for a person or a program."""

import dataclasses
import json


def print_changes(changes, as_json):
    """Print differences (list of lock.Change); return 1 if there are any, else 0."""
    if as_json:
        print(json.dumps([dataclasses.asdict(change) for change in changes], indent=2))
    elif not changes:
        print("no differences")
    else:
        for change in changes:
            print(describe(change))
    return 1 if changes else 0


def describe(change):
    """Return a line that tells a person what changed."""
    if change.before is None:
        return f"+ {change.kind} {change.name} {shown(change.after)}"
    if change.after is None:
        return f"- {change.kind} {change.name} {shown(change.before)}"
    return f"~ {change.kind} {change.name} {shown(change.before)} -> {shown(change.after)}"


def shown(value):
    """Return a value of a record as text for a person."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
