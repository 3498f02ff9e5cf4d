"""Which sites there are, and the chain of profiles that extend each other, whose contents are merged."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ebsif.catalogue.yamlerrors import DocumentError, Problem
from ebsif.catalogue.yamlfile import line_of, load

# The profiles of this project.
SITES = Path(__file__).parent / "sites"


def names(directories: Iterable[Path] = (SITES,)) -> list[str]:
    """Return the names of all sites."""
    return sorted({path.parent.name for directory in directories for path in directory.glob("*/site.yaml")})


class Step(NamedTuple):
    """A profile in a chain of sites that extend each other: its name, file, content, and where its site is searched."""

    name: str
    path: Path
    content: Any
    directories: Sequence[Path]


def chain(name: str, directories: Sequence[Path], strict: bool = False) -> list[Step]:
    """
    Return the profile of a site, followed by those that it extends.

    Parameters
    ----------
    name
        Name of the site.
    directories
        Where to look for sites.
    strict
        Whether to raise errors; otherwise the chain ends there.

    Raises
    ------
    DocumentError
        If a profile can't be read, or extends an unknown site or itself.
    """
    steps: list[Step] = []
    everything, searched = directories, directories
    while name:
        paths = [directory / name / "site.yaml" for directory in searched]
        path = next((path for path in paths if path.is_file()), None)
        if not path or path in (step.path for step in steps):
            if strict:
                last = steps[-1].path
                known = ", ".join(one for one in names(everything) if one != steps[-1].name) or "none"
                reason = "the site extends itself" if path else \
                    f"no other catalogue has a site '{name}' (known: {known})" if name == steps[-1].name else \
                    f"there is no site '{name}' (known: {known})"
                raise DocumentError(Problem(last, line_of(last, "extends"), f"extends: {reason}"))
            break
        try:
            content = load(path)
        except DocumentError:
            if strict:
                raise
            break
        steps.append(Step(name, path, content, searched))
        base = content.get("extends") if isinstance(content, dict) else None
        # of the same name: that of the next catalogue
        searched = everything[list(everything).index(path.parent.parent) + 1 :] if base == name else everything
        name = base if isinstance(base, str) else None
    return steps


def directories_of(name: str, directories: Sequence[Path] = (SITES,)) -> list[Path]:
    """Return the directories of a site, in search order, followed by those of the sites that it extends."""
    found: list[Path] = []
    for step in chain(name, directories):
        found += [place for directory in step.directories for place in [directory / step.name]
                  if place.is_dir() and place not in found]
        if "containers" in left_out(step.content):
            break
    return found or [directory / name for directory in directories if (directory / name).is_dir()]


def left_out(content):
    """Return what a profile doesn't take from the site that it extends (list of str); nothing if that is invalid."""
    named = content.get("not_inherited") if isinstance(content, dict) else None
    return named if isinstance(named, list) else []


def inherited(base: Any, own: Any) -> Any:
    """Return the content of a profile, completed by that of the site that it extends; lists are not joined yet."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    without = {"name", "description", "extends", "not_inherited", *map(str, left_out(own))}
    return merged({key: value for key, value in base.items() if key not in without}, own)


def merged(base, own, is_environment=False):
    """Return two tables as one (dict): null removes an entry, except for variables, which it unsets."""
    result = dict(base)
    for key, value in own.items():
        if isinstance(value, dict):
            before = base[key] if isinstance(base.get(key), dict) else {}
            result[key] = merged(before, value, key in ("network_env", "container_env", "variables"))
        elif value is None and not is_environment:
            # the extended site may have dropped it in the meantime
            result.pop(key, None)
        else:
            result[key] = value
    return result


def is_taken_away(own: Any, *keys: str) -> bool:
    """Return whether a profile takes nothing from the extended one here: by not_inherited, or null here or above."""
    if keys[0] in left_out(own):
        return True
    for key in keys:
        if not isinstance(own, dict) or key not in own:
            return False
        own = own[key]
        if own is None:
            return True
    return False


def unique(*lists):
    """Return several lists as one, without repetitions."""
    return list(dict.fromkeys(item for items in lists for item in items))
