"""Checking catalogue and easyconfigs: what is wrong is a finding, with file and line."""

import ast
import contextlib
import hashlib
import importlib.util
import io
import re
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from ebsif import eb, output
from ebsif.catalogue import reading, site
from ebsif.catalogue.container import CatalogueError, RecordError
from ebsif.catalogue.selection import twins
from ebsif.errors import EbsifError
from ebsif.files import is_there
from ebsif.image import inspection
from ebsif.render import easyconfig, rendering

ERROR, WARNING = "error", "warning"

# Lines of an easyconfig that a person likes to read; stages take what they take.
LONG = 80

# Parameters of which EasyBuild and the easyblocks make nothing but texts in files and names, or that are looked at for
# each record (check_requirements, the model).
PASSED_ON = ("version", "versionsuffix", "homepage", "description", "usage", "sources", "checksums", "support_level",
             "requirements", "image_packages")

# What of a package tells for which GPU software it was built: +rocm6.2, +cu124.
GPU_LABEL = re.compile(r"\+(rocm|cu)(\d+(?:\.\d+)?)")


# How the easyblocks name a parameter, which has the name of a field of the record.
PARAMETER = re.compile(r"Easyconfig parameter '(\w+)'")

# What people and `ebsif add` put beside something to be looked at.
REVIEW = re.compile(r"#\s*review\b:?\s*(.*)")


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
        place = f"{self.path}:{self.line}: " if self.path else ""
        return output.plain(f"{place}{self.level}: {self.message}")

    @property
    def message(self):
        """What is wrong with what (str)."""
        return f"{self.container}: {self.text}" if self.container else self.text

    @property
    def github(self):
        """The line by which a workflow of GitHub annotates the file."""
        place = f" file={escaped(self.path, ':,')},line={self.line}" if self.path else ""
        return f"::{self.level}{place}::{escaped(self.message)}"

    @property
    def data(self):
        """For a program (dict)."""
        return asdict(self)


def escaped(text, more=""):
    """Return a text as GitHub's workflow commands have it (str), with more characters escaped in a property."""
    return re.sub(f"[%\r\n{more}]", lambda match: f"%{ord(match.group()):02X}", text)


def check_sites(settings, names, deep=True, images=False):
    """
    Yield what is wrong with the catalogue of sites and their easyconfigs; see `check`.

    Parameters
    ----------
    settings : Settings
        Where catalogue and easyconfigs are.
    names : list of str
        The sites; None is the chosen one.
    deep, images : bool
        As for `check`.

    Yields
    ------
    Container or Finding
        Each container that is checked, and what is wrong.
    """
    for name in names:
        containers = []
        try:
            profile = settings.site(name)
            chains = reading.chains(*site.directories_of(profile.name, settings.directories))
        except EbsifError as error:
            yield from findings_of(error)
            continue
        problems = []
        for chain in chains:
            containers += reading.read_file(chain[0], profile, *chain[1:], problems=problems)
            for path in chain:
                yield from check_reviews(path)
        for path, line, text in problems:
            yield Finding(ERROR, str(path), line or 1, "", text)
        yield from containers
        yield from check(containers, settings.output_of(profile.name), profile, deep, images, not problems)


def findings_of(error):
    """Yield a Finding for each thing that an error says."""
    for path, line, text in getattr(error, "problems", None) or [("", 1, str(error))]:
        yield Finding(ERROR, str(path), line or 1, "", text)


def check_reviews(path):
    """Yield a finding for each guess that `ebsif add` has marked and nobody has looked at since."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):  # told where records are read
        lines = []
    for number, line in enumerate(lines, 1):
        match = REVIEW.search(line)
        # not in a text
        if match and not any(line[: match.start()].count(quote) % 2 for quote in "'\""):
            what = f": {match.group(1)}" if match.group(1) else ""
            yield Finding(WARNING, str(path), number, path.stem,
                          f"not reviewed yet{what} (settle it, then remove the mark # review)")


def check(containers, output, profile, deep=True, images=False, complete=True):
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
    images : bool
        Also what takes reading images: their checksums.
    complete : bool
        Whether all records could be read, so that easyconfigs of none of them are left over.

    Yields
    ------
    Finding
    """
    others = twins(containers)
    wanted, paths = [], []
    reader = Reader()
    digest = cache(inspection.sha256)
    for container in containers:
        told = set()

        def finding(level, text, one=container, told=told):
            told.add(text)
            parameter = PARAMETER.match(text)
            return Finding(level, str(one.path), one.line_of(parameter and parameter.group(1)), one.module_or_version,
                           text)

        try:
            if container in others:
                yield finding(ERROR, f"another container has this name and suffix ({others[container].place}): give "
                                     "one a 'label' of its own, or installing one replaces the other")
            if not container.file_name.endswith((".sif", ".simg")):
                yield finding(WARNING, f"the image {container.file_name} does not end in .sif")
            yield from check_image(container, finding, digest if images else None)
            text = easyconfig.render(container)
            yield from check_requirements(container, finding)
            yield from check_rocm(container, finding)
            path = rendering.place(container, output)
            wanted.append(path)
            there = path.read_text(encoding="utf-8") if path.is_file() else None
        except CatalogueError as error:
            yield finding(ERROR, error.text if isinstance(error, RecordError) else str(error))
            # nobody knows which easyconfig it would be
            complete = False
            continue
        except (OSError, UnicodeDecodeError) as error:
            yield finding(ERROR, f"{path} can't be read: {error}")
            continue
        if there is None:
            yield finding(ERROR, f"{path} is not there: ebsif render --site {profile.name}")
        elif there != text:
            yield finding(ERROR, f"{path} is not what the catalogue says: ebsif render --site {profile.name}, or "
                                 "change the catalogue")
        else:
            paths.append(path)
        if len(text.splitlines()) >= LONG and not container.stages:
            yield finding(WARNING, f"{path} has {len(text.splitlines())} lines; a record says what differs only")
        if deep:
            for problem in reader.problems(container, text):
                if problem not in told:
                    yield finding(ERROR, problem)
    if complete:
        for path in rendering.left_over(wanted, output, profile):
            yield Finding(ERROR, str(path), 1, path.stem, "is in the catalogue no more: remove it")
    if deep and paths:
        yield from check_style(paths)


def check_image(container, finding, digest):
    """
    Yield findings on the image where it can be reached: it is there, a checksum, no moving link.

    Parameters
    ----------
    container : Container
        The container.
    finding : callable
        Makes a Finding of level and text.
    digest : callable, optional
        Returns the SHA256 of a file, where images are to be read.
    """
    places = [path for _, path in container.image_places if is_there(path)]
    mounted = [path.parent for _, path in container.image_places if is_there(path.parent)]
    if mounted and not places and (digest or container.image == "central"):
        yield finding(ERROR if container.image == "central" else WARNING,
                      f"the image {container.file_name} is not there, in {' or '.join(map(str, mounted))}")
    if places and not container.sha256:
        yield finding(WARNING, f"{places[0]} can be reached, and the record has no sha256 of it")
    for path in places if digest and container.sha256 else []:
        try:
            found = digest(path.resolve())
        except OSError as error:
            yield finding(ERROR, f"{path} can't be read: {error}")
            continue
        if found != container.sha256:
            yield finding(ERROR, f"{path} is another image than that of the record: its SHA256 is {found}")
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
    from easybuild.easyblocks.generic.container.lint import Lint
    from easybuild.easyblocks.generic.container.stages import Stage
    from easybuild.tools.build_log import EasyBuildError
    from packaging.utils import canonicalize_name

    try:
        stages = Stage.from_parameter(easyconfig.requirements(container))
    except EasyBuildError as error:
        yield finding(ERROR, str(error).strip("'\""))
        return
    inside = [canonicalize_name(name) for name in [*container.components, container.package or container.name]]
    for text in Lint(stages, inside, "not known before installation").findings:
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


class Reader:
    """
    Reads easyconfigs back as EasyBuild does.

    EasyBuild takes a hundredth of a second for each. What it makes of one, it makes of others that differ only in what
    it and the easyblock pass on as it is (PASSED_ON): for these it is enough that Python reads what was meant.
    """

    def __init__(self):
        """Nothing is known yet."""
        self.known = set()

    def problems(self, container, text):
        """Yield what EasyBuild, or the easyblock, does not take as it was meant (str), in an easyconfig (str)."""
        values = parameters(container)
        kind = {name: type(value).__name__ if name in PASSED_ON else value for name, value in values.items()}
        kind = hashlib.sha256(repr(kind).encode()).digest()
        # EasyBuild replaces what looks like a template
        if kind in self.known and "%" not in text and literals(text) == values:
            return
        said = list(differences(container, text))
        yield from said
        if not said:
            self.known.add(kind)


def parameters(container):
    """Return the parameters of the easyconfig of a container (dict)."""
    return {name: value for group in easyconfig.parameters(container) for name, value in group.items()}


def literals(text):
    """Return the values in the text of an easyconfig (dict), as Python reads them; empty if it does not."""
    try:
        return {statement.targets[0].id: ast.literal_eval(statement.value) for statement in ast.parse(text).body
                if not isinstance(statement.value, ast.Name)}
    except (ValueError, SyntaxError):
        return {}


def differences(container, text):
    """Yield how what EasyBuild reads from an easyconfig differs from what the catalogue says, or what is refused."""
    reading = "EasyBuild does not read what was rendered"
    # a mistake in its configuration is none of the container's
    eb.session()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / container.easyconfig_name
        path.write_text(text, encoding="utf-8")
        try:
            read = eb.read(path)
            for name, value in parameters(container).items():
                # those that are written as they are may hold templates, and EasyBuild has other types for some
                if name in container.parameters:
                    if name not in read:
                        yield f"EasyBuild knows no parameter {name} (parameters)"
                elif read[name] != value:
                    yield f"{reading}: {name} is {read[name]!r}, and should be {value!r}"
        except eb.EasyBuildFailure as error:
            yield f"{reading}: {str(error).removeprefix(f'{path}: ')}"
            return
        try:
            eb.check_parameters(read)
        except eb.EasyBuildFailure as error:
            yield str(error)


def check_style(paths):
    """Yield what the style check of EasyBuild says of easyconfigs."""
    if not importlib.util.find_spec("pycodestyle"):
        output.note("the style of easyconfigs is not checked: pip install pycodestyle")
        return
    # what differs in words only has the same style, as long as lines don't become too long
    alike = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        shape = re.sub(r"[\w.+-]+", "x", text), *(len(line) > easyconfig.WIDTH for line in text.splitlines())
        alike.setdefault(shape, []).append(path)
    suspicious = {path for path, _, _ in style_problems([some[0] for some in alike.values()])}
    for path, line, text in style_problems([path for some in alike.values() if some[0] in suspicious for path in some]):
        yield Finding(ERROR, str(path), line, path.stem, f"style: {text}")


def style_problems(paths):
    """Return what the style check of EasyBuild says of files (list of (path, line, text))."""
    from easybuild.framework.easyconfig import style

    if not paths:
        return []
    eb.session()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        style.check_easyconfigs_style(list(map(str, paths)))
    matches = [re.match(r"(.*?):(\d+):\d+: (.*)", line) for line in said.getvalue().splitlines()]
    return [(Path(match.group(1)), int(match.group(2)), match.group(3)) for match in matches if match]
