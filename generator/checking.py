"""Checking catalogue and easyconfigs: what is wrong is a finding, with file and line."""

import contextlib
import io
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ebsif import easyconfig, eb, rendering
from ebsif.catalogue import CatalogueError, LineNumbers, twins

ERROR, WARNING = "error", "warning"

# Lines of an easyconfig that a person likes to read; stages take what they take.
LONG = 80

# What of a package tells for which GPU software it was built: +rocm6.2, +cu124.
GPU_LABEL = re.compile(r"\+(rocm|cu)(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong (error) or may be (warning)."""

    level: str
    path: str
    line: int
    container: str
    text: str

    def __str__(self):
        """A line for a person."""
        return f"{self.path}:{self.line}: {self.level}: {self.container}: {self.text}"

    @property
    def github(self):
        """The line by which a workflow of GitHub annotates the file."""
        text = f"{self.container}: {self.text}".replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        return f"::{self.level} file={self.path},line={self.line}::{text}"

    @property
    def data(self):
        """For a program (dict)."""
        return asdict(self)


def check(containers, output, profile, deep=True):
    """
    Yield what is wrong with the containers of a site and their easyconfigs.

    Parameters
    ----------
    containers : list of Container
        All of them.
    output : Path
        Directory of the easyconfigs.
    profile : Site
        The site.
    deep : bool
        Also what takes EasyBuild: reading easyconfigs back, their style.

    Yields
    ------
    Finding
    """
    lines = LineNumbers()
    others = twins(containers)
    wanted, paths = [], []
    for container in containers:
        def finding(level, text, one=container):
            return Finding(level, str(one.path), lines.of(one), one.module_or_version, text)

        try:
            if container in others:
                yield finding(ERROR, f"another container has this name and suffix ({lines.place(others[container])}): "
                                     "give one a 'label' of its own, or installing one replaces the other")
            if not container.file_name.endswith((".sif", ".simg")):
                yield finding(WARNING, f"the image {container.file_name} does not end in .sif")
            text = easyconfig.render(container)
            yield from check_image(container, finding)
            yield from check_requirements(container, finding)
            yield from check_rocm(container, finding)
            path = rendering.place(container, output)
        except CatalogueError as error:
            yield finding(ERROR, str(error))
            continue
        wanted.append(path)
        if not path.is_file():
            yield finding(ERROR, f"{path} is not there: ebsif render --site {profile.name}")
        elif path.read_text(encoding="utf-8") != text:
            yield finding(ERROR, f"{path} is not what the catalogue says: ebsif render --site {profile.name}, or "
                                 "change the catalogue")
        else:
            paths.append(path)
        if len(text.splitlines()) >= LONG and not container.stages:
            yield finding(WARNING, f"{path} has {len(text.splitlines())} lines; a record says what differs only")
        if deep:
            for difference in differences(container, text):
                yield finding(ERROR, f"EasyBuild does not read what was rendered: {difference}")
    for path in rendering.left_over(wanted, output, profile):
        yield Finding(ERROR, str(path), 1, path.stem, "is in the catalogue no more: remove it")
    if deep and paths:
        yield from check_style(paths)


def check_image(container, finding):
    """Yield findings on the image where it can be reached: a checksum, no moving link."""
    places = [(stability, path) for stability, path in container.image_places if path.exists()]
    if places and not container.sha256:
        yield finding(WARNING, f"{places[0][1]} can be reached, and the record has no sha256 of it")
    if container.moving_image:
        yield finding(ERROR, easyconfig.moving_problem(container))


def check_rocm(container, finding):
    """Yield a finding if the driver of the site does not support the ROCm of the image (S001-17)."""
    problem = easyconfig.driver_problem(container)
    if problem and not container.archived:
        yield finding(WARNING, problem)


def check_requirements(container, finding):
    """Yield findings on requirements: what the easyblock would warn of, wheels for another GPU, what is not pinned."""
    if not container.requirements:
        return
    from easybuild.easyblocks.generic.containerlint import ContainerLint
    from easybuild.easyblocks.generic.containerstage import ContainerStage
    from easybuild.tools.build_log import EasyBuildError
    from packaging.utils import canonicalize_name

    try:
        stages = ContainerStage.from_parameter(easyconfig.requirements(container))
    except EasyBuildError as error:
        yield finding(ERROR, str(error).strip("'\""))
        return
    inside = [canonicalize_name(name) for name in [*container.components, container.package or container.name]]
    for text in ContainerLint(stages, inside, "not known before installation").findings:
        yield finding(ERROR if "built against torch" in text else WARNING, text)
    for stage in stages:
        for line in stage.requirement_list:
            yield from check_line(container, stage.name, line, finding)


def check_line(container, stage, line, finding):
    """Yield findings on one line of requirements."""
    label = GPU_LABEL.search(line)
    kind = container.gpu_kind
    if label:
        built, version = {"rocm": "rocm", "cu": "cuda"}[label.group(1)], label.group(2)
        there = container.components.get(built)
        if built != kind:
            yield finding(ERROR, f"stage '{stage}': {line} is for {built}, and this is a site with {kind}")
        elif there and short(there) != short(version if built == "rocm" else f"{version[:-1]}.{version[-1]}"):
            yield finding(WARNING, f"stage '{stage}': {line} is for {built} {version}, the image has {built} {there}")
    rocm = container.components.get("rocm")
    if re.match(r"bitsandbytes\b", line) and rocm and easyconfig.in_numbers(rocm) < (6, 1):
        yield finding(ERROR, f"stage '{stage}': bitsandbytes works from ROCm 6.1 on, and the image has {rocm}")
    if not re.search(r"===?|@|\.whl\b|^-|^\.?/", line):
        yield finding(WARNING, f"stage '{stage}': {line} is not pinned (==): another day brings another version")


def short(version):
    """Return major and minor of a version (str)."""
    return ".".join((version.split(".") + ["0"])[:2])


def differences(container, text):
    """Yield how what EasyBuild reads from an easyconfig differs from what the catalogue says."""
    # a mistake in its configuration is none of the container's
    eb.session()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / container.easyconfig_name
        path.write_text(text, encoding="utf-8")
        try:
            read = eb.read(path)
        except eb.EasyBuildFailure as error:
            yield str(error).removeprefix(f"{path}: ")
            return
        for group in easyconfig.parameters(container):
            for name, value in group.items():
                # those that are written as they are may hold templates, and EasyBuild has other types for some
                if name in container.parameters:
                    if name not in read:
                        yield f"it knows no parameter {name} (parameters)"
                elif read[name] != value:
                    yield f"{name} is {read[name]!r}, and should be {value!r}"


def check_style(paths):
    """Yield what the style check of EasyBuild says of easyconfigs."""
    from easybuild.framework.easyconfig import style

    eb.session()
    for path in paths:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            failed = style.check_easyconfigs_style([str(path)])
        if failed:
            for line in said.getvalue().splitlines():
                match = re.match(r".*?:(\d+):\d+: (.*)", line)
                if match:
                    yield Finding(ERROR, str(path), int(match.group(1)), path.stem, f"style: {match.group(2)}")
