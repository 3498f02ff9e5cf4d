"""The parts of a requirement line: the name of the package, its versions and extras."""

import contextlib
import re

from easybuild.easyblocks.generic.container.requirements import package_name, requirement_text


def lines_of(stage):
    """Return the requirement lines of a stage (list of str), without comments and options."""
    lines = (line.strip() for line in requirement_text(stage.get("requirements")).splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def name_in(line):
    """Return the normalized package name of a requirement line (str); empty for comments and options."""
    line = line.partition(" #")[0].strip()
    return "" if not line or line.startswith(("#", "-")) else package_name(line)


def parsed(line):
    """Return a requirement line (packaging.requirements.Requirement), None if it has another form."""
    from packaging.requirements import InvalidRequirement, Requirement

    with contextlib.suppress(InvalidRequirement):
        return Requirement(re.split(r"\s(?:#|--)", line)[0].strip())
    return None


def extras_in(line):
    """Return the extras in a requirement line (set of str)."""
    wanted = parsed(line)
    return wanted.extras if wanted else set()


def with_extras(line, extras):
    """Return a requirement line for another version of a package, with the extras that were asked for before."""
    wanted = parsed(line)
    if not extras or not wanted or wanted.extras:
        return line
    return f"{wanted.name}[{','.join(sorted(extras))}]{line.strip()[len(wanted.name):]}"
