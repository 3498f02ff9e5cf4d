"""Summaries of containers for lists, as text and as data."""

from typing import Any

from ebsif.catalog.container import Container
from ebsif.catalog.selection import SNAPSHOT


def format_components(container: Container) -> str:
    """Return the package and the components of a container in one line, marked if the container is archived."""
    # of a snapshot, the version is a date
    knows_package = container.package and not SNAPSHOT.fullmatch(container.version)
    package = {container.package: container.version} if container.package and knows_package else {}
    versions = {**package, **container.components}
    inside = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"(archived) {inside}".rstrip() if container.archived else inside


def as_data(container: Container) -> dict[str, Any]:
    """Return the summary of a container for programs."""
    return {
        "name": container.name,
        "version": container.version,
        "versionsuffix": container.versionsuffix,
        "module": container.module,
        "easyconfig": container.easyconfig_name,
        "file": container.file_name,
        "site": container.site.name,
        "components": container.versions,
        "archived": bool(container.archived),
    }
