"""Read the requirements in a pyproject.toml: dependencies, extras, and dependency groups (PEP 735)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.packages.formats.toml import load
from ebsif.packages.formats.wanted import Image, RequirementsError, Wanted, check_python, known_or_none, table, texts


def read(path: Path, image: Image, extras: Iterable[str], groups: Iterable[str]) -> Wanted:
    """
    Return the requirements of a project, without the project itself.

    Parameters
    ----------
    path
        The file.
    image
        The image, whose Python must fit.
    extras, groups
        Names of extras and dependency groups to install too.

    Raises
    ------
    RequirementsError
        If the project lists its requirements in another way, doesn't have an extra or group, or needs another Python.
    """
    content = load(path)
    project = table(content.get("project", {}), path, "project")
    tool = table(content.get("tool", {}), path, "tool")
    check_kind(path, project, tool)
    check_python(path, project.get("requires-python"), image)
    optional = {normal_name(name): texts(lines, path, f"optional-dependencies.{name}") for name, lines
                in table(project.get("optional-dependencies", {}), path, "optional-dependencies").items()}
    lines = [*texts(project.get("dependencies", []), path, "dependencies"),
             *lines_of_groups(path, table(content.get("dependency-groups", {}), path, "dependency-groups"), groups)]
    name = normal_name(str(project.get("name", "")))
    own = [f"{name}[{extra}]" for extra in known_extras(path, optional, extras)]
    expanded = [one for line in (*lines, *own) for one in expand(path, line, name, optional, ())]
    sources = table(table(tool.get("uv", {}), path, "tool.uv").get("sources", {}), path, "tool.uv.sources")
    return without_sources(path, expanded, sources)


def check_kind(path, project, tool):
    """Raise RequirementsError if the requirements of a project are somewhere else."""
    poetry = tool.get("poetry")
    if isinstance(poetry, dict) and "dependencies" in poetry and "dependencies" not in project:
        raise RequirementsError(
            f"{path}: its dependencies are in Poetry's own table (tool.poetry.dependencies), which only Poetry reads: "
            "write them to a requirements.txt with 'poetry export -o requirements.txt'")
    if "dependencies" in texts(project.get("dynamic", []), path, "dynamic"):
        raise RequirementsError(f"{path}: its dependencies are dynamic (computed by the build): list them in a "
                                "requirements.txt")


def known_extras(path, optional, extras):
    """Return the normalized names of extras (list of str), after checking that the project has them."""
    for name in extras:
        if normal_name(name) not in optional:
            raise RequirementsError(f"{path} has no extra '{name}' ({known_or_none(optional)})")
    return [normal_name(name) for name in extras]


def lines_of_groups(path, groups, names):
    """Return the requirements of dependency groups, including those that they include (list of str)."""
    # imported here because most projects have no groups
    from packaging.dependency_groups import resolve_dependency_groups

    for name in names:
        if normal_name(name) not in map(normal_name, groups):
            raise RequirementsError(f"{path} has no dependency group '{name}' ({known_or_none(groups)})")
    try:
        return list(resolve_dependency_groups(groups, *names)) if names else []
    except Exception as error:  # noqa: BLE001 several kinds, some of them groups of errors
        causes = getattr(error, "exceptions", None) or [error]
        raise RequirementsError(f"{path}: invalid dependency groups: "
                                f"{'; '.join(str(cause) for cause in causes)}") from None


def expand(path, line, project, optional, outer):
    """
    Return the requirements (list of str) that a line stands for: for extras of the project itself, their lines.

    Parameters
    ----------
    path : Path
    line : str
    project : str
        Normalized name of the project.
    optional : dict
        Lines by normalized name of extra.
    outer : tuple of str
        The extras that are being expanded.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        raise RequirementsError(f"{path}: '{line}' is not a valid requirement: {error}") from None
    if normal_name(requirement.name) != project:
        return [line]
    names = known_extras(path, optional, sorted(requirement.extras))
    return [with_marker(one, requirement.marker) for name in names if name not in outer for inner in optional[name]
            for one in expand(path, inner, project, optional, (*outer, name))]


def with_marker(line: str, marker: Optional[Any]) -> str:
    """Return a requirement that also depends on a marker (packaging.markers.Marker)."""
    from packaging.markers import Marker
    from packaging.requirements import Requirement

    if marker is None:
        return line
    requirement = Requirement(line)
    requirement.marker = Marker(f"({requirement.marker}) and ({marker})") if requirement.marker else marker
    return str(requirement)


def without_sources(path, lines, sources):
    """Return the lines (Wanted) without packages for which uv has a source that pip would not use."""
    from packaging.requirements import Requirement

    wanted = Wanted()
    places = {normal_name(name): source for name, source in sources.items()}
    for line in lines:
        source = places.get(normal_name(Requirement(line).name))
        every = source if isinstance(source, list) else [source] if source else []
        kinds = sorted({key for one in every if isinstance(one, dict)
                        for key in ("git", "url", "path", "workspace") if one.get(key)})
        if kinds:
            # an index may have another package of that name
            wanted.impossible.append(f"{path}: {line} is not installed, because it comes from a {kinds[0]} source of "
                                     "uv (tool.uv.sources): name its location in a requirements.txt")
            continue
        if every:
            wanted.impossible.append(f"{path}: {line} comes from the index that pip uses, not from that in "
                                     "tool.uv.sources: add an index with --extra-index-url in a requirements.txt")
        wanted.lines.append(line)
    return wanted
