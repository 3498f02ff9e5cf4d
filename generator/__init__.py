"""ebsif: container images as environment modules."""

from importlib.metadata import version

__version__ = version("ebsif")
