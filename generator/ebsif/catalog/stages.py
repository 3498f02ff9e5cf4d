"""Stages of user software, each one call of pip, and the forms that they have in records, easyconfigs and locks."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container import requirements
from easybuild.easyblocks.generic.container.requirements import package_lines
from easybuild.easyblocks.generic.container.values import Command
from pydantic import ValidationError

from ebsif.catalog import merge
from ebsif.catalog.fieldtypes import EnvName, SingleLine
from ebsif.catalog.yamlfile import Model
from ebsif.errors import EbsifError, UsageError

# The name of a stage that installs nothing.
COMMANDS = "commands"


class Stage(Model):
    """One call of pip; see the easyconfig parameter ``requirements``."""

    name: Optional[SingleLine] = None
    heavy: bool = False
    upgrade_pip: bool = False
    no_build_isolation: bool = False
    no_deps: bool = False
    requirements: Union[str, list[str]] = ""
    options: list[str] = []
    env: dict[EnvName, str] = {}
    no_binary: list[str] = []
    index_url: Optional[SingleLine] = None
    extra_index_url: list[SingleLine] = []
    find_links: list[SingleLine] = []
    modules: list[SingleLine] = []
    patches: list[SingleLine] = []
    allow_replace: list[str] = []
    pre: list[Command] = []
    post: list[Command] = []
    verify: list[Command] = []

    @property
    def properties(self) -> dict[str, Any]:
        """What describes it in an easyconfig or a lock: the properties that it has."""
        return {name: value for name, value in self.model_dump().items() if value}

    @property
    def written(self) -> list[str]:
        """The lines of its requirements as they are written, with comments and options."""
        return requirements.lines_of(self.requirements)

    @property
    def lines(self) -> list[str]:
        """The lines of its requirements that name a package, without comments."""
        return package_lines(self.requirements)

    def has_only(self, *names: str) -> bool:
        """Return whether it has no properties but its name, requirements, and these."""
        return not self.properties.keys() - {"name", "requirements", *names}

    def replace(self, **values: Any) -> "Stage":
        """Return the stage with other values of some properties."""
        return self.model_copy(update=values)


def stages_of(value: Any) -> list[Stage]:
    """
    Return the stages of requirements in any form: text or lines (one stage), stages, or the properties of stages.

    The lock of another installation has none here: they are in its file. Raise EbsifError for what is no stage.
    """
    return list(value) if merge.is_stages(value) else [stage_of(one) for one in requirements.stages_of(value)]


def stage_of(properties: dict[str, Any]) -> Stage:
    """Return the stage with these properties; raise EbsifError if it can't be one."""
    try:
        return Stage.model_validate(properties)
    except ValidationError as error:
        first = error.errors()[0]
        raise EbsifError(
            f"invalid stage: {'.'.join(map(str, first['loc']))}: {first['msg']} "
            f"(properties of a stage: {', '.join(Stage.model_fields)})"
        ) from None


def lines_of(stages: Iterable[Stage]) -> list[str]:
    """Return the lines of stages that name a package."""
    return [line for stage in stages for line in stage.lines]


def commands_in(stages: Iterable[Stage]) -> list[str]:
    """Return the commands of stages, each as a shell takes it."""
    return [for_shell(command) for stage in stages for command in (*stage.pre, *stage.post, *stage.verify)]


def for_shell(command: Command) -> str:
    """Return a command as a shell takes it."""
    return command if isinstance(command, str) else shlex.join(command)


def simplest(stages: Sequence[Stage]) -> Union[str, list[str], list[Stage]]:
    """Return stages as requirements that people read: without stages, if there is one with nothing else."""
    if len(stages) == 1 and stages[0].has_only() and stages[0].name == "requirements":
        return stages[0].requirements
    return list(stages)


def as_parameter(value: Any) -> Any:
    """Return requirements as in the easyconfig parameter: text, lines, or the properties of stages."""
    return [stage.properties for stage in value] if merge.is_stages(value) else value


def append(stages: Sequence[Stage], more: Sequence[Stage], name: str) -> list[Stage]:
    """Return stages followed by more, each with a name of its own (E-04): the name of the extension makes it one."""
    joined = list(stages)
    for stage in more:
        taken = {one.name for one in joined if one.name}
        candidates = (f"{stage.name} ({name}{number})" for number in ("", *(f" {one}" for one in range(2, 100))))
        if stage.name in taken:
            stage = stage.replace(name=next(one for one in candidates if one not in taken))
        joined.append(stage)
    return joined


def with_commands(stages: Sequence[Stage], more: Stage) -> list[Stage]:
    """
    Return stages with the commands of one more, and built without isolation if that is.

    Packages of all stages are built without isolation; commands run after the last one, after those that it has.
    Without Python packages (--apt alone), the commands have a stage of their own. Raise UsageError if there is nothing
    to build.
    """
    if not more.properties:
        return list(stages)
    if not stages and more.no_build_isolation:
        raise UsageError("--no-build-isolation is for Python packages: add some with --add or -r, or leave it out")
    if more.no_build_isolation:
        stages = [stage.replace(no_build_isolation=True) for stage in stages]
    *others, last = stages or [Stage(name=COMMANDS)]
    post = [*last.post, *(one for one in more.post if one not in last.post)]
    verify = [*last.verify, *(one for one in more.verify if one not in last.verify)]
    return [*others, last.replace(post=post, verify=verify)]
