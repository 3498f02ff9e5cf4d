"""What an installed extension has now: what was asked for, with the changes that were made by hand since."""

import contextlib
import shlex
from typing import Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.requirements import requirement_text, stages_of
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.container import Container
from ebsif.catalogue.families import as_parameter
from ebsif.catalogue.site import Site
from ebsif.environments import bases, environments
from ebsif.environments.environments import Package
from ebsif.environments.extension import Environment, add_lines
from ebsif.errors import EbsifError
from ebsif.installed import current, lock
from ebsif.installed.names import Names
from ebsif.installed.places import Installation
from ebsif.packages.requirementline import lines_of, name_in, parsed
from ebsif.report import output


def base_of(installation: Installation, names: Names, site: Site) -> Optional[Container]:
    """Return the container that an extension extends: of the catalogue or installed; None if it's gone."""
    with contextlib.suppress(EbsifError):
        # not another module whose name begins with that of the base
        found = names.exact(installation.base)
        return bases.of_installation(found, site) if isinstance(found, Installation) else found
    return None


def environment_of(installation: Installation, container: Container, base: Optional[Container]) -> Environment:
    """
    Return the current packages of an installation, and what was asked for, with the changes made by hand.

    Parameters
    ----------
    installation
        The installation.
    container
        The same as a container: from its easyconfig.
    base
        The container that it extends, if known.
    """
    record = installation.record
    recorded = lock.pins(record.get(lockfile.VENV_PACKAGES, []))
    packages = current.packages_of(installation)
    if packages is None:
        packages = {normal_name(name): Package(name, version, f"{name}=={version}", None)
                    for name, version in recorded.items()}
    for name in environments.TOOLS:
        packages.pop(name, None)
    image = {normal_name(name): version for name, version in lock.pins(record.get(lockfile.IMAGE_PACKAGES, [])).items()}
    stages = stages_of(as_parameter(container.requirements))
    inherited = shared_stages(stages, stages_of(as_parameter(base.requirements)) if base else [])
    found = Environment(installation.module, stages, inherited, packages, image,
                        record.get(lockfile.VERSIONS, {}).get("python"))
    before = {normal_name(name): version for name, version in recorded.items()}
    add_changes_by_hand(found, before)
    found.needed_before = frozenset(found.needed_by(found.lines))
    return found


def add_changes_by_hand(environment, before):
    """Adapt stages to the packages that were added, changed or removed by hand since the installation."""
    packages = environment.packages
    changed = {name for name, package in packages.items() if before.get(name, package.version) != package.version}
    environment.changed_by_hand = before.keys() - environments.TOOLS != packages.keys() or bool(changed)
    stages = []
    for stage in environment.stages:
        lines = [line for text in requirement_text(stage.get("requirements")).splitlines()
                 for line in line_now(text, packages, changed, environment, before)]
        stages.append({**stage, "requirements": lines})
    environment.stages = stages
    added = {name: package for name, package in packages.items() if name not in before}
    lines = lines_for(added)
    if lines:
        environment.said.append(f"{environment.module} has packages that were added by hand, which are taken along: "
                                f"{', '.join(lines)}")
        add_lines(environment, lines, "by hand")
    environment.said += [f"{package.name} {package.version}: {package.said}" for package in added.values()
                         if package.said]


def line_now(text, packages, changed, environment, before):
    """Return a requirement line as it has to be to get the current packages: a list of one line or none."""
    name = name_in(text)
    package = packages.get(name)
    if not name or (package and name not in changed and " @ " not in (package.line or "")):
        return [text] if text.strip() else []
    if name in before and not package and name not in environment.image:
        environment.said.append(f"{name} was removed by hand, so it is left out")
        return []
    return current.pinned(text, dict(packages), set(environment.image)) if package else [text]


def shared_stages(stages, inherited):
    """Return how many stages (int) at the beginning are also those of another container."""
    number = 0
    for one, other in zip(stages, inherited):
        if one.get("name") != other.get("name") or lines_of(one) != lines_of(other):
            break
        number += 1
    # a single list of requirements is all of the extension's unless the base has the same
    return number


def lines_for(added):
    """Return the requirements for packages (dict by name) without those that others of them need (list of str)."""
    needed = {normal_name(parsed(text).name) for package in added.values() for text in package.requires if parsed(text)}
    return [package.line for name, package in sorted(added.items()) if name not in needed and package.line]


def report_left_behind(installation: Installation, name: str, wanted: list) -> None:
    """
    Say which packages were added by hand to an installation, for a new extension that doesn't have them.

    Parameters
    ----------
    installation
        An installation of the container that is extended.
    name
        Name of the new extension.
    wanted
        What was asked for: stages, or requirement lines. It has these packages, so they are not named.
    """
    asked = {name_in(line) for stage in stages_of(wanted) for line in lines_of(stage)}
    before = {normal_name(one) for one in lock.pins(installation.record.get(lockfile.VENV_PACKAGES, []))}
    added = {one: package for one, package in (current.packages_of(installation) or {}).items()
             if one not in before | environments.TOOLS}
    lines = [line for line in lines_for(added) if name_in(line) not in asked]
    if lines:
        output.note(f"{installation.module} has packages that were added by hand, which are not taken along: "
                    f"{', '.join(lines)} (to have them, too, once "
                    f"it is installed: ebsif extend {name} --add {shlex.join(lines)} --install)")
