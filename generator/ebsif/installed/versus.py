"""Compare installations with the catalogue of a site, in both directions."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Optional

from ebsif.catalogue.container import CatalogueError, Container
from ebsif.check.easyconfigs import literals
from ebsif.installed.names import catalogue_name
from ebsif.installed.places import Installation
from ebsif.render import easyconfig
from ebsif.render.rendering import RENDERED, for_eb
from ebsif.report.findings import NOTE, WARNING, Finding


class Catalogue:
    """The catalogue of a site, for comparing installations with it."""

    def __init__(self, site: str, containers: Sequence[Container], output: Path, options: Sequence[str] = ()):
        """
        Index the containers of a site by module.

        `output` is the directory of its easyconfigs; `options` are those of `ebsif` that name site, catalogue and
        directory.
        """
        self.site = site
        self.output = output
        self.options = options
        self.containers = {one.module_or_version: one for one in containers}

    def compare(self, installation: Installation) -> Iterator[Finding]:
        """Yield findings on the place of an installation in the catalogue."""
        name, module = catalogue_name(installation), installation.module
        base = name if installation.extension else None
        container, what = self.containers.get(name), f"its base {base}" if base else "it"
        if not container:
            gone = not base and rendered_for(installation) == self.site
            yield Finding(WARNING if gone else NOTE, module, (
                f"its record is no longer in the catalogue of {self.site}: remove the module, or put the record back"
                if gone else f"{what} is not in the catalogue of {self.site}"))
            return
        if container.archive_message:
            yield Finding(NOTE, module, f"{what} is archived: {container.archive_message}" if base else
                          container.archive_message)
        if not base and rendered_for(installation) == self.site:
            yield from self.check_easyconfig(installation, container)

    def check_easyconfig(self, installation: Installation, container: Container) -> Iterator[Finding]:
        """Yield a finding if an installation was made from another easyconfig than the catalogue has now."""
        try:
            wanted = literals(easyconfig.render(container))
        except CatalogueError as error:
            yield Finding(WARNING, installation.module, f"its record can't be rendered: {error}")
            return
        path = installation.easyconfig
        found = literals(path.read_text(encoding="utf-8", errors="replace")) if path else {}
        differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        if differing:
            yield Finding(WARNING, installation.module,
                          f"its easyconfig is out of date: it differs from the catalogue in {', '.join(differing)}; "
                          f"run `{shlex.join(['ebsif', 'render', *self.options])}`, then `eb --rebuild "
                          f"{for_eb(container, self.output)}`")

    def never_installed(self, installations: Iterable[Installation]) -> list[str]:
        """Return the modules in the catalogue that are not installed, without archived ones."""
        there = {catalogue_name(one) for one in installations if not one.extension}
        return [module for module, one in self.containers.items() if module not in there and not one.archived]


def rendered_for(installation: Installation) -> Optional[str]:
    """Return the site for whose catalogue the easyconfig of an installation was rendered, else None."""
    path = installation.easyconfig
    if not path:
        return None
    with path.open(encoding="utf-8", errors="replace") as text:
        rendered = RENDERED.match(text.readline())
    return rendered.group(1) if rendered else None
