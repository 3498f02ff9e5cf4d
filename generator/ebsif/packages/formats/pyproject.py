"""Read the requirements in a pyproject.toml: dependencies, extras, and dependency groups (PEP 735)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container import remedies
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.packages.formats.wanted import (
    KnownImage,
    RequirementsError,
    WantedPackages,
    check_python,
    collected,
    load_toml,
    not_chosen,
    texts,
    unknown,
    without,
)

if TYPE_CHECKING:
    from packaging.markers import Marker


def read(path: Path, image: KnownImage, extras: Sequence[str], groups: Sequence[str]) -> WantedPackages:
    """Return the requirements of a project, without the project itself."""
    content = load_toml(path)
    try:
        project, tool = content.get("project", {}), content.get("tool", {})
        check_kind(path, project, tool)
        check_python(path, project.get("requires-python"), image)
        optional = {
            normal_name(name): texts(lines, path, f"optional-dependencies.{name}")
            for name, lines in project.get("optional-dependencies", {}).items()
        }
        own = normal_name(str(project.get("name", "")))
        lines = [
            *texts(project.get("dependencies", []), path, "dependencies"),
            *lines_of_groups(path, content.get("dependency-groups", {}), groups),
            *(f"{own}[{extra}]" for extra in known_extras(path, optional, extras)),
        ]
        if not lines and (optional or content.get("dependency-groups")):
            raise nothing_chosen(path, project.get("optional-dependencies", {}), content.get("dependency-groups", {}))
        expanded = collected(lines, lambda text: expand(path, text, own, optional, ()))
        wanted = without_sources(path, expanded, tool.get("uv", {}).get("sources", {}))
        wanted.impossible += left_out(path, content, extras, groups)
        return wanted
    except (AttributeError, TypeError) as error:
        raise RequirementsError(f"{path} is not a valid pyproject.toml: {error}") from None


def nothing_chosen(path: Path, extras: Iterable[str], groups: Iterable[str]) -> RequirementsError:
    """Return the error for a project that needs nothing without its extras and dependency groups, which it names."""
    chosen = [("--extra", name) for name in sorted(extras)] + [("--group", name) for name in sorted(groups)]
    return RequirementsError(
        f"{path} names no Python package outside of its extras and dependency groups. Choose of "
        "these:" + "".join(remedies.line(*one) for one in chosen)
    )


def left_out(path: Path, content: dict[str, Any], extras: Iterable[str], groups: Iterable[str]) -> list[str]:
    """Return a message on the extras and groups of a project that aren't asked for, though they name packages."""
    optional, grouped = (
        content.get("project", {}).get("optional-dependencies", {}),
        content.get("dependency-groups", {}),
    )
    return not_chosen(
        path,
        [name for name in without(optional, extras) if optional[name]],
        [name for name in without(grouped, groups) if grouped[name]],
    )


def check_kind(path: Path, project: dict[str, Any], tool: dict[str, Any]) -> None:
    """Raise RequirementsError if the requirements of a project are somewhere else."""
    if "dependencies" in tool.get("poetry", {}) and "dependencies" not in project:
        raise RequirementsError(
            f"{path}: its dependencies are in Poetry's own table (tool.poetry.dependencies), which only Poetry reads: "
            "write them to a requirements.txt with 'poetry export -o requirements.txt'"
        )
    if "dependencies" in texts(project.get("dynamic", []), path, "dynamic"):
        raise RequirementsError(
            f"{path}: its dependencies are dynamic (computed by the build): list them in a requirements.txt"
        )


def known_extras(path: Path, optional: dict[str, list[str]], extras: Iterable[str]) -> list[str]:
    """Return the normalized names of extras, after checking that the project has them."""
    for name in extras:
        if normal_name(name) not in optional:
            raise unknown(path, "extra", name, optional)
    return [normal_name(name) for name in extras]


def lines_of_groups(path: Path, groups: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Return the requirements of dependency groups, including those that they include."""
    # imported here because most projects have no groups
    from packaging.dependency_groups import resolve_dependency_groups

    for name in names:
        if normal_name(name) not in map(normal_name, groups):
            raise unknown(path, "dependency group", name, groups)
    try:
        return list(resolve_dependency_groups(groups, *names)) if names else []
    except Exception as error:  # several kinds, some of them groups of errors
        causes = getattr(error, "exceptions", None) or [error]
        raise RequirementsError(f"{path}: invalid dependency groups: {'; '.join(map(str, causes))}") from None


def expand(path: Path, line: str, project: str, optional: dict[str, list[str]], outer: tuple[str, ...]) -> list[str]:
    """
    Return the requirements that a line stands for: for extras of the project itself, their lines.

    `outer` are the extras that are being expanded; all names are normalized.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        raise RequirementsError(f"{path}: '{line}' is not a valid requirement: {error}") from None
    if normal_name(requirement.name) != project:
        return [line]
    names = known_extras(path, optional, sorted(requirement.extras))
    return [
        with_marker(expanded, requirement.marker)
        for name in names
        if name not in outer
        for text in optional[name]
        for expanded in expand(path, text, project, optional, (*outer, name))
    ]


def with_marker(line: str, marker: "Optional[Marker]") -> str:
    """Return a requirement that also depends on a marker."""
    from packaging.requirements import Requirement

    if marker is None:
        return line
    requirement = Requirement(line)
    requirement.marker = requirement.marker & marker if requirement.marker else marker
    return str(requirement)


def without_sources(path: Path, lines: Iterable[str], sources: dict[str, Any]) -> WantedPackages:
    """Return the lines without packages for which uv has a source that pip would not use."""
    from packaging.requirements import Requirement

    wanted = WantedPackages()
    places = {normal_name(name): source if isinstance(source, list) else [source] for name, source in sources.items()}
    for line in lines:
        tables = places.get(normal_name(Requirement(line).name), [])
        kind = next((key for key in ("git", "path", "url", "workspace") if any(key in table for table in tables)), None)
        if kind:
            # an index may have another package of that name
            wanted.impossible.append(
                f"{path}: {line} is not installed, because it comes from a {kind} source of uv "
                "(tool.uv.sources): write its location into a requirements.txt"
            )
            continue
        if tables:
            wanted.impossible.append(
                f"{path}: {line} comes from the index that pip uses, not from that in "
                "tool.uv.sources: add an index with --extra-index-url in a requirements.txt"
            )
        wanted.lines.append(line)
    return wanted
