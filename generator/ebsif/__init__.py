"""ebsif: container images as environment modules."""


def version() -> str:
    """Return the installed version."""
    # most commands don't need it, and importing the library takes longer than running them
    from importlib.metadata import version as version_of

    return version_of("ebsif")
