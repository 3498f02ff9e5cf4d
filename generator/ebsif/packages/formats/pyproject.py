"""Read the requirements in a pyproject.toml: dependencies, extras, and dependency groups (PEP 735)."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container import remedies
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.packages.wanted import Choice, KnownImage, RequirementsError, WantedPackages, texts

if TYPE_CHECKING:
    from packaging.markers import Marker


def wanted_by(content: dict[str, Any], image: KnownImage, choice: Choice) -> WantedPackages:
    """Return the requirements of a project, without the project itself."""
    try:
        project, tool, groups = (content.get(name, {}) for name in ("project", "tool", "dependency-groups"))
        check_kind(project, tool)
        image.check_python(project.get("requires-python"))
        optional = {
            normal_name(name): texts(lines, f"optional-dependencies.{name}")
            for name, lines in project.get("optional-dependencies", {}).items()
        }
        choice.check(Choice(list(optional), list(groups)))
        own = normal_name(str(project.get("name", "")))
        lines = [
            *texts(project.get("dependencies", []), "dependencies"),
            *lines_of_groups(groups, choice.groups),
            *(f"{own}[{normal_name(extra)}]" for extra in choice.extras),
        ]
        if not lines and (optional or groups):
            raise nothing_chosen(project.get("optional-dependencies", {}), groups)
        expanded, wrong = [], []
        for line in lines:
            try:
                expanded += expand(line, own, optional, ())
            except RequirementsError as error:
                wrong.append(str(error))
        wanted = without_sources(expanded, tool.get("uv", {}).get("sources", {}))
        wanted.offered = offered(content)
        wanted.wrong += wrong
        return wanted
    except (AttributeError, TypeError) as error:
        raise RequirementsError(f"is not a valid pyproject.toml: {error}") from None


def check_kind(project: dict[str, Any], tool: dict[str, Any]) -> None:
    """Raise RequirementsError if the requirements of a project are somewhere else."""
    if "dependencies" in tool.get("poetry", {}) and "dependencies" not in project:
        raise RequirementsError(
            "its dependencies are in Poetry's own table (tool.poetry.dependencies), which only Poetry reads: "
            "write them to a requirements.txt with 'poetry export -o requirements.txt'"
        )
    if "dependencies" in texts(project.get("dynamic", []), "dynamic"):
        raise RequirementsError("its dependencies are dynamic (computed by the build): list them in a requirements.txt")


def lines_of_groups(groups: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Return the requirements of dependency groups, including those that they include."""
    # imported here because most projects have no groups
    from packaging.dependency_groups import resolve_dependency_groups

    try:
        return list(resolve_dependency_groups(groups, *names)) if names else []
    except Exception as error:  # several kinds, some of them groups of errors
        causes = getattr(error, "exceptions", None) or [error]
        raise RequirementsError(f"invalid dependency groups: {'; '.join(map(str, causes))}") from None


def nothing_chosen(extras: Iterable[str], groups: Iterable[str]) -> RequirementsError:
    """Return the error for a project that needs nothing without its extras and dependency groups, which it names."""
    chosen = [("--extra", name) for name in sorted(extras)] + [("--group", name) for name in sorted(groups)]
    return RequirementsError(
        "names no Python package outside of its extras and dependency groups. Choose of these:"
        + "".join(remedies.line(*one) for one in chosen)
    )


def expand(line: str, project: str, optional: dict[str, list[str]], outer: tuple[str, ...]) -> list[str]:
    """
    Return the requirements that a line stands for: for extras of the project itself, their lines.

    `outer` are the extras that are being expanded; all names are normalized.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        raise RequirementsError(f"'{line}' is not a valid requirement: {error}") from None
    if normal_name(requirement.name) != project:
        return [line]
    names = sorted(map(normal_name, requirement.extras))
    unknown = [name for name in names if name not in optional]
    if unknown:
        raise RequirementsError(f"'{line}' names an extra that the project doesn't have: {', '.join(unknown)}")
    return [
        with_marker(expanded, requirement.marker)
        for name in names
        if name not in outer
        for text in optional[name]
        for expanded in expand(text, project, optional, (*outer, name))
    ]


def with_marker(line: str, marker: "Optional[Marker]") -> str:
    """Return a requirement that also depends on a marker."""
    from packaging.requirements import Requirement

    if marker is None:
        return line
    requirement = Requirement(line)
    requirement.marker = requirement.marker & marker if requirement.marker else marker
    return str(requirement)


def without_sources(lines: Iterable[str], sources: dict[str, Any]) -> WantedPackages:
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
                f"{line} is not installed, because it comes from a {kind} source of uv "
                "(tool.uv.sources): write its location into a requirements.txt"
            )
            continue
        if tables:
            wanted.impossible.append(
                f"{line} comes from the index that pip uses, not from that in "
                "tool.uv.sources: add an index with --extra-index-url in a requirements.txt"
            )
        wanted.lines.append(line)
    return wanted


def offered(content: dict[str, Any]) -> Choice:
    """Return the extras and groups of a project that name packages."""
    extras = content.get("project", {}).get("optional-dependencies", {})
    groups = content.get("dependency-groups", {})
    return Choice([name for name, lines in extras.items() if lines], [name for name, lines in groups.items() if lines])
