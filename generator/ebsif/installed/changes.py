"""Differences between two containers or installations: find them in values by name, and print them."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from easybuild.easyblocks.generic.container.lockfile import Record, versions_in


@dataclass(frozen=True)
class Change:
    """A difference: its kind (``image``, ``image package`` ...), the name, and both values (None: absent)."""

    kind: str
    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return it as a line of text."""
        if self.before is None:
            return f"+ {self.kind} {self.name} {as_text(self.after)}"
        if self.after is None:
            return f"- {self.kind} {self.name} {as_text(self.before)}"
        return f"~ {self.kind} {self.name} {as_text(self.before)} -> {as_text(self.after)}"


def differences(kind: str, before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the differences between two dictionaries, ordered by name."""
    return [Change(kind, name, before.get(name), after.get(name))
            for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def packages_by_kind(record: Record) -> dict[str, dict[str, str]]:
    """Return the versions of packages by name, by kind; without the kinds that earlier versions did not record."""
    packages = {"image package": versions_in(record.image_packages)} if record.has("image_packages") else {}
    for kind, name in (("system package", "system_packages"), ("Conda package", "conda_packages")):
        if record.has(name):
            packages[kind] = versions_in(line for lines in getattr(record, name).values() for line in lines)
    return {**packages, "package": versions_in(record.venv_packages)}


def package_changes(before: Record, after: Record) -> list[Change]:
    """Return the differences between the packages of two installations, of the kinds that both have recorded."""
    old, new = packages_by_kind(before), packages_by_kind(after)
    return [change for kind in old if kind in new for change in differences(kind, old[kind], new[kind])]


def print_changes(changes: list[Change], as_json: bool) -> int:
    """Print differences; return 1 if there are any, else 0."""
    if as_json:
        print(json.dumps([asdict(change) for change in changes], indent=2))
    else:
        print("\n".join(map(str, changes)) or "no differences")
    return 1 if changes else 0


def as_text(value: Any) -> str:
    """Return a value of a record as text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
