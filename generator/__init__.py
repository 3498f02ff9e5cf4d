"""ebsif: container images as environment modules."""

__version__ = "0.1.0"
