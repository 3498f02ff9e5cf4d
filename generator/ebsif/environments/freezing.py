"""Write an easyconfig of the current state of an installation: exact versions, including packages added by hand."""

from typing import Any, Optional

from easybuild.easyblocks.generic.container.literals import assignments, parsed

from ebsif.catalog.stages import Stage, as_parameter
from ebsif.eb import easyconfigtext
from ebsif.environments.earlier import Earlier
from ebsif.environments.extension import check_names
from ebsif.errors import EbsifError
from ebsif.installed import current, search
from ebsif.installed.places import Installation
from ebsif.render.easyconfig import literal


def freeze(installation: Installation, name: Optional[str], date: Optional[str]) -> tuple[str, str, list[str]]:
    """
    Return file name and text of an easyconfig of the current state of an installation, and what it can't express.

    Name and date are parts of the version suffix: by default the name of the module, and today, perhaps with a number.
    Raise EbsifError if the installation has no packages, no easyconfig or no name.
    """
    record, path, packages = installation.record, installation.easyconfig, current.packages_of(installation)
    if packages is None:
        raise EbsifError(f"{installation.module} has no packages besides the image's: its own easyconfig describes it")
    if not path:
        raise EbsifError(installation.lack)
    module, base = record.module, record.module["versionsuffix"]
    if installation.extension:
        base = base.removesuffix(f"-{'-'.join(installation.extension)}")
        name = name or installation.extension[0]
    if not name:
        raise EbsifError(f"{installation.module} has no name of an extension: choose one with --name")
    module_name = f"{module['name']}/{module['version']}{base}"
    date = date or next(Earlier.of(module_name, name, search.everything()).free_dates())
    check_names(name, date)
    suffix, text = f"{base}-{name}-{date}", path.read_text(encoding="utf-8")
    # all versions are in the requirements
    values: dict[str, Any] = {
        "versionsuffix": suffix,
        "constraints": None,
        "requirements": text_or_stages(current.pinned_stages(record, packages)),
    }
    if "checksums" not in assignments(parsed(text)):
        values["checksums"] = [record.image.sha256]
    impossible = [f"{package.name} {package.version}: {package.said}" for package in packages.values() if package.said]
    return f"{module['name']}-{module['version']}{suffix}.eb", with_values(text, values), impossible


def text_or_stages(stages: list[Stage]) -> Any:
    """Return stages as the easyconfig parameter 'requirements': a text for a single stage without options."""
    if len(stages) == 1 and stages[0].has_only():
        return f"\n{stages[0].requirements}"
    return as_parameter([stage.replace(requirements=stage.written) for stage in stages])


def with_values(text: str, values: dict[str, Any]) -> str:
    """Return the text of an easyconfig with new values of some parameters, otherwise unchanged; None removes one."""
    wanted = {
        name: "" if value is None else f"{name} = {literal(value, used=len(name) + 3)}\n"
        for name, value in values.items()
    }
    return f"{easyconfigtext.header('lock')}\n{easyconfigtext.with_lines(text, wanted)}"
