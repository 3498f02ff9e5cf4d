"""Install containers of the catalog."""

from dataclasses import dataclass
from typing import Optional

from ebsif.catalog.container import Container
from ebsif.eb import framework
from ebsif.environments import bases, installing, plan, writing
from ebsif.environments.request import Request
from ebsif.errors import EbsifError
from ebsif.installed import places
from ebsif.installed.places import Installation
from ebsif.render import easyconfig, rendering
from ebsif.render.rendering import Rendered
from ebsif.report import output


@dataclass(frozen=True)
class ToInstall:
    """A container to install: its easyconfig, and its installation if it has one here."""

    rendered: Rendered
    there: Optional[Installation]

    @property
    def has_changed(self) -> bool:
        """Whether the record has changed since the installation, whose easyconfig EasyBuild keeps."""
        kept = self.there.easyconfig if self.there else None
        return kept is not None and without_comments(
            kept.read_text(encoding="utf-8", errors="replace")
        ) != without_comments(self.rendered.text)


def without_comments(text: str) -> list[str]:
    """Return the lines of an easyconfig without comments, whose words may differ between versions of ebsif."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def look(container: Container, request: Request) -> ToInstall:
    """Return what is to be installed; raise EbsifError if its image can change."""
    problem = easyconfig.moving_problem(container)
    if problem:
        raise EbsifError(f"{container.module} can't be installed: {problem}")
    return ToInstall(rendering.render(container, request.folder), places.of_container(container))


def install_container(wanted: ToInstall, request: Request) -> int:
    """Write the easyconfig of a container and install it, unless it is there; return the exit status."""
    rendered, container = wanted.rendered, wanted.rendered.container
    if request.dry_run:
        print(rendered.text, end="")
        output.hint(f"{container.module} would be installed from {rendered.path}")
        return 0
    if wanted.there and not request.again:
        return installing.nothing_to_do(
            wanted.there,
            "is installed already" + (", though its record has changed since" if wanted.has_changed else ""),
            request.json,
        )
    rendering.require_replaceable(rendered, request.folder)
    with writing.removed_after_failure(rendered.path) as written:
        rendering.write([rendered], request.folder)
        written.append(rendered.path)
        place = framework.place_of(rendered.path, rendered.text)
        sources = bases.sources(container, request.names.everything)
        installing.install(place, request, sources, otherwise="", explained=plan.with_similar_names)
    return 0
