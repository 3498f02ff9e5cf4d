"""What a person, or a program, is told of a container in a list."""

from ebsif.catalogue.selection import components_of


def format_components(container):
    """Return the components of a container in a line (str), after a word on one that is no longer recommended."""
    inside = ", ".join(f"{name} {version}" for name, version in container.components.items())
    return f"(archived) {inside}".rstrip() if container.archived else inside


def as_data(container):
    """Return what a program wants to know of a container (dict)."""
    return {"name": container.name, "version": container.version, "versionsuffix": container.versionsuffix,
            "module": container.module, "easyconfig": container.easyconfig_name, "file": container.file_name,
            "site": container.site.name, "components": components_of(container), "archived": container.archived}
