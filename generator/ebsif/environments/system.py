"""Packages of the image's distribution that an extension adds (easyconfig parameter 'system_packages')."""

from collections.abc import Sequence
from typing import Optional

from easybuild.easyblocks.generic.container.values import SYSTEM_PACKAGE, system_names

from ebsif.catalog.container import Container
from ebsif.catalog.records import SystemPackages
from ebsif.errors import EbsifError
from ebsif.text import did_you_mean


def joined(container: Container, more: SystemPackages) -> Container:
    """Return a container with more packages, in one layer: one that is there gets the version that is wanted now."""
    before = container.system
    packages = before.packages + more.packages
    return replaced(
        container, list(dict(zip(system_names(packages), packages)).values()), before.allow_upgrade + more.allow_upgrade
    )


def replaced(container: Container, packages: Sequence[str], allowed: Sequence[str]) -> Container:
    """Return a container with these packages instead of its own; each counts once."""
    return container.replace(
        system_packages=SystemPackages.model_construct(
            packages=list(dict.fromkeys(packages)), allow_upgrade=list(dict.fromkeys(allowed))
        )
    )


def added(container: Container, packages: Sequence[str], allowed: Sequence[str]) -> Container:
    """Return a container with packages that were typed; raise EbsifError for what is no name."""
    for name in (*packages, *allowed):
        if not SYSTEM_PACKAGE.match(name):
            raise EbsifError(f"not a name of a package: '{name}' (write NAME or NAME=VERSION)")
    named: dict[str, str] = {}
    for text, name in zip(packages, system_names(packages)):
        if named.setdefault(name, text) != text:
            raise EbsifError(f"--apt has {name} twice ({named[name]} and {text}): leave out one of them")
    if not packages and not allowed:
        return container
    if not packages and not container.system.packages:
        raise EbsifError("--allow-upgrade is for the packages of --apt: add one")
    return joined(container, SystemPackages.model_construct(packages=list(packages), allow_upgrade=list(allowed)))


def removed(container: Container, names: Sequence[str], module: str, base: Optional[Container]) -> Container:
    """Return the container of an extension, the module, without packages; raise EbsifError if it has none."""
    system = container.system
    inherited = system_names(base.system.packages) if base else []
    there = system_names(system.packages)
    for name in names:
        if name in inherited:
            raise EbsifError(f"{name} belongs to the module that {module} extends: remove it there")
        if name not in there:
            raise EbsifError(
                f"{module} was made without the system package {name}{did_you_mean(name, there)}"
                + (f" (it was made with: {', '.join(there)})" if there else "")
            )
    kept = [one for one in system.packages if system_names([one])[0] not in names]
    # nothing else needs the upgrade of a package of the image
    return replaced(container, kept, system.allow_upgrade if kept else [])


def own(container: Container, base: Optional[Container]) -> list[str]:
    """Return the packages that an extension adds to those of its base."""
    inherited = base.system.packages if base else []
    return [one for one in container.system.packages if one not in inherited]
