"""Install a container of the catalogue from the easyconfig of its record, as `ebsif extend --install` does."""

from dataclasses import dataclass
from typing import Optional

from ebsif.catalogue.container import Container
from ebsif.environments import extending, outcome
from ebsif.environments.outcome import Request
from ebsif.errors import EbsifError
from ebsif.installed import places
from ebsif.installed.places import Installation
from ebsif.render import easyconfig, rendering
from ebsif.render.rendering import Rendered
from ebsif.report import output


class InstallingError(EbsifError):
    """A container can't be installed; the message says why and what to do."""


@dataclass(frozen=True)
class Wanted:
    """A container to install: its easyconfig, and its installation if it has one here."""

    rendered: Rendered
    there: Optional[Installation]

    @property
    def has_changed(self) -> bool:
        """Whether the record has changed since the installation, whose easyconfig EasyBuild keeps."""
        kept = self.there.easyconfig if self.there else None
        return kept is not None and kept.read_text(encoding="utf-8", errors="replace") != self.rendered.text


def look(container: Container, request: Request) -> Wanted:
    """Return what is to be installed; raise InstallingError if its image can change."""
    problem = easyconfig.moving_problem(container)
    if problem:
        raise InstallingError(f"{container.module} can't be installed: {problem}")
    return Wanted(rendering.render(container, request.folder), places.of_container(container))


def install(wanted: Wanted, request: Request) -> int:
    """Write the easyconfig of a container and install it, unless it is there; return the exit status."""
    rendered, container = wanted.rendered, wanted.rendered.container
    if request.dry_run:
        print(rendered.text, end="")
        output.hint(f"{container.module} would be installed from {rendered.path}")
        return 0
    if wanted.there and not request.again:
        return outcome.nothing_to_do(wanted.there, "is installed already" + (
            ", though its record has changed since" if wanted.has_changed else ""))
    rendering.require_replaceable(rendered, request.folder)
    with outcome.removed_after_failure(rendered.path):
        rendering.write([rendered], request.folder)
        sources = extending.sources(container)
        return outcome.install(rendered.path, request.rebuild, [*request.more, sources], otherwise="")
