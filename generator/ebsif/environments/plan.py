"""Let eb build packages without installing them: for --check, to see whether that works, and for --wheelhouse."""

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container import messages
from easybuild.easyblocks.generic.container.diagnosis import Diagnosis
from easybuild.easyblocks.generic.container.record.lockfile import LayerRecord, versions_in
from easybuild.easyblocks.generic.container.values import normal_name, system_names
from easybuild.easyblocks.generic.container.written import UnfitError, read_written

from ebsif.catalog.container import Container
from ebsif.catalog.stages import lines_of
from ebsif.eb import running
from ebsif.environments.bases import no_image, sources
from ebsif.environments.extension import ExtendingError
from ebsif.environments.request import Request
from ebsif.packages import condanames
from ebsif.packages.lines import names_in
from ebsif.render import easyconfig
from ebsif.report import colors, output

# the name of a package that no index has, in an error of pip
MISSING = re.compile(rf"{messages.NO_VERSION}(?P<name>[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)(?=[. ;,])")
REASONS = ("asked for", "dependency")
SEE_WARNING = " (but see the warning above)"


@dataclass(frozen=True)
class Addition:
    """A package to install: name and version of its metadata, one of REASONS."""

    name: str
    version: str
    why: str


@dataclass
class Plan:
    """
    What pip would do: the packages to install, sorted by the reason, then by name, and those that are there.

    `there` are packages that were asked for and are in the image, `before` is the number of packages of the extension
    that is changed, or of the base, which stay: they are `unchanged`. `system` are the packages of the image's
    distribution. `problem` is why the packages can't be installed, `artifacts` are the files that pip would install, as
    `artifacts_in` returns them.
    """

    added: list[Addition] = field(default_factory=list)
    there: list[tuple[str, str]] = field(default_factory=list)
    before: int = 0
    unchanged: str = "as before"
    system: LayerRecord = field(default_factory=LayerRecord)
    problem: str = ""
    artifacts: dict[str, dict] = field(default_factory=dict)
    warned: bool = False


def check(
    container: Container,
    request: Request,
    kept: Iterable[str] = (),
    variables: Optional[Mapping[str, str]] = None,
) -> Plan:
    """
    Return what pip does: eb builds as in an installation, but in a temporary directory, and imports what was asked for.

    `variables` are more of them for eb, and packages in `kept` keep their version (F-10). Raise ExtendingError if the
    check itself fails: no image, no network, eb refuses its options.
    """
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.packages import InstalledPackages
    from easybuild.easyblocks.generic.container.pip import artifacts_in
    from easybuild.easyblocks.generic.container.system.packages import CHECK_VARIABLE, REPORT

    image = request.image
    planned = container.replace(sha256=None, definition_files=[], **({"file": str(image.absolute())} if image else {}))
    with tempfile.TemporaryDirectory(prefix="ebsif-check-") as folder:
        path = Path(folder) / container.easyconfig_name
        path.write_text(easyconfig.render(planned), encoding="utf-8")
        # nothing of a check is left, unless the user has another --tmpdir; their --buildpath has no reports
        done = running.install(
            [
                path,
                f"--tmpdir={folder}",
                *request.more,
                *running.only_build(folder, "test"),
                "--disable-enforce-checksums",
                sources(container, request.names.everything),
            ],
            **{CHECK_VARIABLE: "1", **(variables or {})},
        )
        if done.status:
            return Plan(problem=problem(done, container, folder))
        items = [item for report in written(folder, "report.json") for item in json.loads(report)["install"]]
        seen = [InstalledPackages.from_output(text) for text in written(folder, "packages.txt")]
        system = [LayerRecord.from_content(json.loads(report)) for report in written(folder, REPORT, "")]
    before = {normal_name(name): version for name, version in versions_in(kept).items()}
    added = additions(
        [item for item in items if before.get(normal_name(item["metadata"]["name"])) != item["metadata"]["version"]]
    )
    image_packages = {name: one[name][1] for one in seen for name in one if not one.in_user_software(name)}
    installed = {normal_name(one.name) for one in added}
    there = sorted((names_in(lines_of(container.stages)) & image_packages.keys()) - installed - before.keys())
    return Plan(
        added,
        [(name, image_packages[name]) for name in there],
        before=len(set(before) - installed),
        system=system[0] if system else LayerRecord(),
        artifacts=artifacts_in(items),
        warned=done.warned,
    )


def additions(items: Iterable[dict]) -> list[Addition]:
    """Return the packages in the items of pip's reports: first those that were asked for."""
    unique = {normal_name(item["metadata"]["name"]): item for item in items}
    added = [
        Addition(item["metadata"]["name"], item["metadata"]["version"], REASONS[not item.get("requested")])
        for item in unique.values()
    ]
    return sorted(added, key=lambda package: (REASONS.index(package.why), package.name.lower()))


def written(folder: str, name: str, where: str = "stages/*/") -> list[str]:
    """
    Return the texts of the files of that name which the stages of an installation have written below a folder.

    Raise ExtendingError if a program in the container has put anything but a plain file there (P-03).
    """
    try:
        return [read_written(str(path), folder) for path in Path(folder).glob(f"build/**/{where}{name}")]
    except UnfitError as error:
        raise ExtendingError(str(error)) from None


def with_similar_names(reason: str) -> str:
    """Return why pip failed, with names of packages that resemble one that doesn't exist."""
    missing = MISSING.search(reason)
    similar = condanames.similar_to(missing["name"]) if missing else None
    return reason.replace(missing[0], f"{missing[0]} (did you mean {similar}?)", 1) if missing and similar else reason


def as_typed(reason: str) -> str:
    """Return why an extension can't be installed in the words of the command that makes it."""
    return with_similar_names(reason.replace(messages.SYSTEM_PACKAGES, "--apt: ", 1))


def problem(done: running.Result, container: Container, folder: str) -> str:
    """Return why requirements can't be installed; raise ExtendingError if it isn't because of the requirements."""
    text = "\n".join([*done.program, done.error])
    if "Couldn't find file" in text:
        raise no_image(container)
    reason = done.reason.removesuffix(f" {messages.SEE_OUTPUT}")
    diagnosis = Diagnosis(text, "".join(written(folder, "pip.log")))
    is_of_system = reason.startswith(messages.SYSTEM_PACKAGES)
    is_of_requirements = (
        messages.values_in(reason, messages.PIP_FAILED) or reason.startswith("Stage '")
    ) and not diagnosis.machine()
    # without a known cause, only the output tells
    if not (is_of_system or (is_of_requirements and diagnosis.text())):
        done.print_program()
    if not (is_of_system or is_of_requirements):
        raise ExtendingError(reason or done.message)
    return as_typed(reason)


def show_packages(plan: Plan) -> None:
    """Print the packages of a plan."""
    rows = [("+", f"{one.name} {one.version}", one.why) for one in plan.added]
    rows += [("=", f"{name} {version}", "in the image") for name, version in plan.there]
    rows += [("=", output.format_count(plan.before, "package"), plan.unchanged)] if plan.before else []
    rows += system_rows(plan.system)
    width = max((len(package) for _, package, _ in rows), default=0)
    for sign, package, why in rows:
        print(output.escape(f"{sign} {package:<{width}}  {why}"))


def system_rows(system: LayerRecord) -> list[tuple[str, str, str]]:
    """Return the rows on packages of the image's distribution: what was asked for, what changes, how many more."""
    versions, asked = versions_in(system.packages), system_names(system.requested)
    rows = [
        ("+", f"{name} {versions[name]}", "system package, asked for")
        if name in versions
        else ("=", name, "system package, in the image")
        for name in asked
        if name not in system.upgraded
    ]
    rows += [
        ("+", f"{name} {new}", f"system package, instead of {old}") for name, (old, new) in system.upgraded.items()
    ]
    more = len(versions.keys() - set(asked))
    return rows + ([("+", output.format_count(more, "system package"), "dependencies")] if more else [])


def data(plan: Plan, container: Container) -> dict[str, Any]:
    """Return a plan for programs."""
    return {
        "module": container.module,
        "possible": not plan.problem,
        "problem": plan.problem,
        "added": [{"name": one.name, "version": one.version, "why": one.why} for one in plan.added],
        "in_image": dict(plan.there),
        "unchanged": plan.before,
        "system_packages": plan.system.packages,
    }


def show(plan: Plan, name: str, command: str) -> None:
    """Print a plan for an extension, the verdict on it by its name, and the command that installs it."""
    show_packages(plan)
    if not plan.problem:
        number, system = len(plan.added) + plan.before, len(plan.system.packages) + len(plan.system.upgraded)
        counts = [
            output.format_count(count, what)
            for count, what in ((number, "package"), (system, "system package"))
            if count or (what == "package" and not system)
        ]
        print(
            f"{colors.paint('yes:', 'ok', sys.stdout)} {name} can be installed: {' and '.join(counts)}"
            f"{f' ({plan.before} {plan.unchanged})' if plan.before else ''}"
            f"{SEE_WARNING if plan.warned else ''}"
        )
        output.hint(f"install it with: {command}")
        return
    no = colors.paint("no:", "error", sys.stdout)
    print(f"{no} {name} can't be installed: {output.printable(plan.problem)}")


def fill_wheelhouse(easyconfig: Union[str, Path], folder: Path, options: Sequence[str] = ()) -> list[Path]:
    """
    Let eb build an easyconfig, a file or a name, in a temporary directory; return the wheels of its packages.

    Raise ExtendingError if eb fails.
    """
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.pip import FILL_VARIABLE

    folder = folder.resolve()
    if Path(easyconfig).exists():
        easyconfig = Path(easyconfig).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExtendingError(f"can't create the folder {folder}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="ebsif-wheelhouse-") as work:
        # the variable tells the easyblock to put a wheel of everything it installs into the folder
        done = running.install([easyconfig, *running.only_build(work), *options], **{FILL_VARIABLE: str(folder)})
    if done.status:
        done.print_program()
        raise ExtendingError(f"{done.message}\nThe folder may contain some of the wheels.")
    return sorted(folder.glob("*.whl"))
