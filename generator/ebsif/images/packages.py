"""Packages that an image lists in a bill of materials: in /.sbom.json, or in a file beside it or in its registry."""

import re

from easybuild.easyblocks.generic.container.texts import normal_name

# Epoch, and what a distribution adds to the version of the software.
NOT_UPSTREAM = re.compile(r"\A\d+:|[-~+].*\Z")


def read_packages(text: str) -> dict[str, dict[str, str]]:
    """Return the versions of the packages in a bill of materials (JSON), by kind ('deb', 'pypi' ...) and name."""
    from easybuild.easyblocks.generic.container.probe import packages_in_sbom

    return {kind: dict(line.split("==", 1) for line in lines) for kind, lines in packages_in_sbom(text).items()}


def software_version(kind: str, version: str) -> str:
    """Return the version of the software in a package: that of a system's package has no epoch and revision."""
    return version if kind in ("pypi", "conda") else NOT_UPSTREAM.sub("", version)


def versions_by_name(listed: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the versions of the software in listed packages by normalized name; those of Python count most."""
    found = {}
    for kind in sorted(listed, key=lambda one: one == "pypi"):
        found.update((normal_name(name), software_version(kind, version)) for name, version in listed[kind].items())
    return found
