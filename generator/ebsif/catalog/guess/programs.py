"""Compare the wrappers of a container with the programs that its image has."""

import re
from collections.abc import Callable

from easybuild.easyblocks.generic.container.spec import ContainerSpec

from ebsif.catalog.container import Container
from ebsif.catalog.proposal import Proposal

# Returns which of some names are programs in the image.
Programs = Callable[[list[str]], set[str]]

# Commands that every venv has.
OF_A_VENV = re.compile(r"(?:python|pip)[0-9.]*")


def compare_programs(proposal: Proposal, container: Container, programs: Programs) -> None:
    """Remove the family's wrappers for programs that the image lacks, and mark that for review."""
    missing = missing_programs(container, programs)
    if missing and isinstance(container.wrappers, list):
        proposal.values["wrappers"] = [name for name in container.wrappers if container.fill(name) not in missing]
        proposal.reviews["wrappers"] = f"the image has no {', '.join(sorted(missing))}, which the family has"


def missing_programs(container: Container, programs: Programs) -> set[str]:
    """Return the wrappers of a container whose programs its image lacks."""
    wanted = container.wrappers if isinstance(container.wrappers, list) else []
    asked = [
        name
        for name in map(container.fill, wanted)
        if not (container.venv and OF_A_VENV.fullmatch(name))
        and f"runscripts/{name}" not in ContainerSpec.PYTHON_SCRIPTS
    ]
    return set(asked) - programs(asked) if asked else set()
