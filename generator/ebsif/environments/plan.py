"""Find out what pip installs on top of a container, and whether that works, for --check."""

import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional
from urllib.parse import unquote, urlsplit

from easybuild.easyblocks.generic.container.diagnosis import Diagnosis
from easybuild.easyblocks.generic.container.lockfile import versions_in
from easybuild.easyblocks.generic.container.requirements import stages_of
from easybuild.easyblocks.generic.container.texts import format_size, normal_name

from ebsif.catalogue.container import Container
from ebsif.catalogue.records import Stage, as_parameter
from ebsif.eb import framework, running
from ebsif.environments.extending import ExtendingError, sources
from ebsif.packages.requirements import names_in
from ebsif.render import easyconfig
from ebsif.report import output
from ebsif.report.steps import Now, Steps

REASONS = ("asked for", "dependency")
SEE_WARNING = " (but see the warning above)"
TIMEOUT = 10  # seconds, for the size of a file


@dataclass(frozen=True)
class Addition:
    """A package to install: name and version of its metadata, size of its file in bytes, one of REASONS."""

    name: str
    version: str
    size: Optional[int]
    why: str


@dataclass
class Plan:
    """
    What pip would do: the packages to install, sorted by the reason, then by size, and those that are there.

    `there` are packages that were asked for and are in the image, `before` is the number of packages of the extension
    that is changed which stay. `problem` is why the requirements can't be installed, `replacing` the stages that would
    allow the conflicting packages of the image to be replaced. `artifacts` are the files that pip would install, as
    `artifacts_in` returns them; `total` is the size if all packages are in one file.
    """

    added: list[Addition] = field(default_factory=list)
    there: list[tuple[str, str]] = field(default_factory=list)
    before: int = 0
    problem: str = ""
    replacing: list[dict] = field(default_factory=list)
    artifacts: dict[str, dict] = field(default_factory=dict)
    total: Optional[int] = None
    warned: bool = False

    @property
    def size(self) -> str:
        """The size of all downloads, as far as it is known."""
        if self.total is not None:
            return format_size(self.total)
        known = [one.size for one in self.added if one.size is not None]
        if self.added and not known:
            return "size unknown"
        return ("" if len(known) == len(self.added) else "at least ") + format_size(sum(known))


def check(container: Container, options: Sequence[str] = (), image: Optional[Path] = None,
          kept: Iterable[str] = ()) -> Plan:
    """
    Return what pip does: eb builds in a temporary directory, and imports what was asked for (F-10).

    This works as in an installation. Stages that are too heavy for a login node are only planned by pip; then nothing
    is imported, because other packages may need those of such a stage. `options` are more options for eb, `image` is
    for an eb that doesn't find it, and packages in `kept` keep their version. Raise ExtendingError if the check itself
    fails: no image, no network, eb refuses its options.
    """
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.packages import artifacts_in

    stages = stages_of(as_parameter(container.requirements))
    heavy = [stage["name"] for stage in stages if stage.get("heavy")]
    planned = container.replace(
        requirements=[Stage.model_validate(stage) for stage in only_planned(stages)], sha256=None, definition_files=[],
        **({"file": str(image.absolute())} if image else {}))
    with tempfile.TemporaryDirectory(prefix="ebsif-check-") as folder:
        path = Path(folder) / container.easyconfig_name
        path.write_text(easyconfig.render(planned), encoding="utf-8")
        # nothing of a check is left, unless the user has another --tmpdir; their --buildpath has no reports
        last = "build" if heavy else "test"
        done = running.install([path, f"--tmpdir={folder}", *options, *framework.only_build(folder, last),
                                "--disable-enforce-checksums", sources(container)])
        if done.status:
            return Plan(problem=problem(done, container, folder), replacing=replacing(done.error, stages))
        items = [item for report in written(folder, "report.json") for item in json.loads(report)["install"]]
        pins = written(folder, "constraints.txt")
    if heavy:
        output.note(f"stage '{heavy[0]}' is heavy, so it is only planned: whether the packages can be imported is "
                    "tried when they are installed")
    before = {normal_name(name): version for name, version in versions_in(kept).items()}
    added = additions([item for item in items if before.get(
        normal_name(item["metadata"]["name"])) != item["metadata"]["version"]])
    image_packages = {normal_name(name): version for name, version in versions_in("".join(pins).split()).items()}
    installed = {normal_name(one.name) for one in added}
    there = sorted((names_in(stages) & image_packages.keys()) - installed - before.keys())
    return Plan(added, [(name, image_packages[name]) for name in there], len(set(before) - installed),
                artifacts=artifacts_in(items), warned=done.warned)


def only_planned(stages: list[dict]) -> list[dict]:
    """Return stages of which pip only plans those that are heavy."""
    changed = [dict(stage) for stage in stages]
    for stage in changed:
        if stage.get("heavy"):
            stage["options"] = [*stage.get("options", []), "--dry-run"]
            for key in ("post", "verify", "patches"):
                stage.pop(key, None)
    return changed


def additions(items: Iterable[dict]) -> list[Addition]:
    """Return the packages in the items of pip's reports: first those that were asked for, then the largest."""
    from concurrent.futures import ThreadPoolExecutor

    unique = {normal_name(item["metadata"]["name"]): item for item in items}
    sizes: list[Optional[int]] = []
    with Steps() as steps, ThreadPoolExecutor(8) as pool:
        steps.begin("asking for sizes of files", important=False,
                    watch=lambda: Now(f"{len(sizes)} of {len(unique)}", len(sizes), len(unique)))
        for size in pool.map(size_of, [item["download_info"] for item in unique.values()]):
            sizes.append(size)
    added = [Addition(item["metadata"]["name"], item["metadata"]["version"], size,
                      REASONS[not item.get("requested")]) for item, size in zip(unique.values(), sizes)]
    return sorted(added, key=lambda package: (REASONS.index(package.why), -(package.size or 0), package.name.lower()))


def size_of(download: dict) -> Optional[int]:
    """Return the size of a file that pip would install, None if nobody says it; pip's report only says where it is."""
    if "vcs_info" in download:
        # the URL is that of a repository
        return None
    url = download["url"]
    # take long to import
    import http.client
    import urllib.request

    try:
        if urlsplit(url).scheme == "file":
            path = Path(unquote(urlsplit(url).path))
            return path.stat().st_size if path.is_file() else None
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, http.client.HTTPException, ValueError, TypeError):
        return None


def written(folder: str, name: str) -> list[str]:
    """
    Return the texts of the files of that name which the stages of an installation have written below a folder.

    Raise ExtendingError if a program in the container has put anything but a plain file there (P-03).
    """
    from easybuild.easyblocks.generic.container.runtime import check_written
    from easybuild.tools.build_log import EasyBuildError

    try:
        return [Path(check_written(str(path), folder)).read_text(errors="replace")
                for path in Path(folder).glob(f"build/**/stages/*/{name}")]
    except EasyBuildError as error:
        raise ExtendingError(str(error).strip("'\"")) from None


def problem(done: running.Result, container: Container, folder: str) -> str:
    """Return why requirements can't be installed; raise ExtendingError if it isn't because of the requirements."""
    text = "\n".join([*done.program, done.error])
    if "no such option: --dry-run" in text:
        raise ExtendingError("--check needs pip 22.2 or newer in the image: leave it out")
    if "Couldn't find file" in text:
        places = [str(path.parent) for _, path in container.image_places]
        raise ExtendingError(
            f"the image of {container.module} is not found ({container.file_name} is neither in EasyBuild's source "
            f"paths nor in {', '.join(places) or 'a directory of the site'}): name it with --image FILE")
    reason = done.reason.removesuffix(" See its output above or in the log.")
    logs = written(folder, "pip.log")
    if not re.match(r"pip failed in stage|Stage '", reason) or Diagnosis(text, "".join(logs)).machine:
        done.print_program()
        raise ExtendingError(reason)
    return reason


def replacing(error: str, stages: list[dict]) -> list[dict]:
    """Return the stages with 'allow_replace' as an error of a stage suggests it; none if it doesn't."""
    match = re.search(r"stage '([^']*)'(?:(?!stage ').)*'allow_replace': \[(.*?)\]", error, re.IGNORECASE | re.DOTALL)
    if not match:
        return []
    names = re.findall("'(.*?)'", match.group(2))
    return [{**stage, "allow_replace": [*stage.get("allow_replace", []), *names]}
            if stage["name"] == match.group(1) else stage for stage in stages]


def show_packages(plan: Plan) -> None:
    """Print the packages of a plan."""
    rows = [("+", f"{one.name} {one.version}", "" if one.size is None else format_size(one.size), one.why)
            for one in plan.added]
    rows += [("=", f"{name} {version}", "", "in the image") for name, version in plan.there]
    rows += [("=", output.format_count(plan.before, "package"), "", "as before")] if plan.before else []
    widths = [max((len(row[number]) for row in rows), default=0) for number in (1, 2)]
    for sign, package, size, why in rows:
        print(output.escape(f"{sign} {package:<{widths[0]}}  {size:>{widths[1]}}  {why}"))


def show(plan: Plan, container: Container, command: str) -> None:
    """Print a plan for an extension, the verdict, and the command that installs it."""
    show_packages(plan)
    if not plan.problem:
        number = len(plan.added) + plan.before
        print(f"yes: {container.module} can be installed: {output.format_count(number, 'package')}"
              f"{f' ({plan.before} as before)' if plan.before else ''}, {plan.size}"
              f"{SEE_WARNING if plan.warned else ''}")
        output.hint(f"install it with: {command}")
        return
    print(f"no: {container.module} can't be installed: {output.printable(plan.problem)}")
    if plan.replacing:
        value = easyconfig.literal(as_parameter([Stage.model_validate(stage) for stage in plan.replacing]), 0,
                                   len("requirements = "))
        output.hint("to replace packages of the image on purpose, write the easyconfig (leave out --check), and its "
                    f"requirements as\n\nrequirements = {value}\n\n"
                    f"then install it with: {framework.command([container.easyconfig_name])}")
