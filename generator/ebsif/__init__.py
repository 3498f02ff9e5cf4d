"""ebsif: container images as environment modules."""


def version():
    """Return the version of what is installed (str)."""
    # most commands don't need it, and the library takes longer to load than they take to start
    from importlib.metadata import version as version_of

    return version_of("ebsif")
