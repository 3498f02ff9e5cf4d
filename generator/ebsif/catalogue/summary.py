"""Summaries of containers for lists, as text and as data."""

from ebsif.catalogue.selection import components_of


def format_components(container):
    """Return the components of a container in one line (str), marked if the container is archived."""
    inside = ", ".join(f"{name} {version}" for name, version in container.components.items())
    return f"(archived) {inside}".rstrip() if container.archived else inside


def as_data(container):
    """Return the summary of a container for programs (dict)."""
    return {"name": container.name, "version": container.version, "versionsuffix": container.versionsuffix,
            "module": container.module, "easyconfig": container.easyconfig_name, "file": container.file_name,
            "site": container.site.name, "components": components_of(container), "archived": bool(container.archived)}
