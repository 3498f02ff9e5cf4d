"""Check easyconfigs with EasyBuild: what it reads, whether it accepts the parameters, and the code style."""

import contextlib
import hashlib
import importlib.util
import io
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container.literals import literals

from ebsif.catalog.container import Container
from ebsif.eb import framework
from ebsif.render import easyconfig
from ebsif.report import output
from ebsif.report.findings import ERROR, Finding

# Parameters that EasyBuild and the easyblocks only copy into files and names, or that are checked for each record by
# check_requirements or the model.
PASSED_ON = (
    "version",
    "versionsuffix",
    "homepage",
    "description",
    "usage",
    "sources",
    "checksums",
    "support_level",
    "requirements",
    "image_packages",
)


class EasyconfigReader:
    """
    Reads easyconfigs back with EasyBuild.

    EasyBuild takes ten milliseconds for each. Those that differ from a valid one only in parameters that are passed
    through unchanged (PASSED_ON) are parsed with Python alone, which is enough to compare the values.
    """

    def __init__(self) -> None:
        """Start without known easyconfigs."""
        self.known: set[bytes] = set()

    def problems(self, container: Container, text: str) -> Iterator[str]:
        """Yield the values in an easyconfig that EasyBuild reads differently, or that the easyblock refuses."""
        values = easyconfig.parameters(container)
        shown = {name: type(value).__name__ if name in PASSED_ON else value for name, value in values.items()}
        kind = hashlib.sha256(repr(shown).encode()).digest()
        # EasyBuild replaces text that looks like a template
        if kind in self.known and "%" not in text and literals(text) == values:
            return
        problems = list(differences(container, text))
        yield from problems
        if not problems:
            self.known.add(kind)


def differences(container: Container, text: str) -> Iterator[str]:
    """Yield differences between EasyBuild's values and the catalog's, and values that EasyBuild refuses."""
    reading = "EasyBuild does not read what was rendered"
    # first, so that an error in EasyBuild's configuration is not reported for a container
    framework.session()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / container.easyconfig_name
        path.write_text(text, encoding="utf-8")
        try:
            read = framework.read(path)
            for name, value in easyconfig.parameters(container).items():
                # parameters written unchanged may contain templates, and EasyBuild converts some types
                if name in container.parameters:
                    if name not in read:
                        yield f"EasyBuild has no parameter {name} (see 'parameters')"
                elif read[name] != value:
                    yield f"{reading}: {name} is {read[name]!r}, and should be {value!r}"
        except framework.EbError as error:
            yield f"{reading}: {str(error).removeprefix(f'{path}: ')}"
            return
        try:
            framework.check_parameters(read)
        except framework.EbError as error:
            yield str(error)


def check_style(paths: Iterable[Path]) -> Iterator[Finding]:
    """Yield findings of EasyBuild's style check on easyconfigs."""
    if not importlib.util.find_spec("pycodestyle"):
        output.note("skipping the style check of easyconfigs: pip install pycodestyle")
        return
    # files that differ only in words have the same style, except for long lines
    alike: dict[Any, list[Path]] = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        shape = re.sub(r"[\w.+-]+", "x", text), *(len(line) > easyconfig.WIDTH for line in text.splitlines())
        alike.setdefault(shape, []).append(path)
    suspicious = {path for path, _, _ in style_problems([some[0] for some in alike.values()])}
    for path, line, text in style_problems([path for some in alike.values() if some[0] in suspicious for path in some]):
        yield Finding(ERROR, path.stem, f"style: {text}", str(path), line)


def style_problems(paths: list[Path]) -> list[tuple[Path, int, str]]:
    """Return the messages of EasyBuild's style check on files: path, line, text."""
    from easybuild.framework.easyconfig import style

    if not paths:
        return []
    framework.session()
    output_of_check = io.StringIO()
    with contextlib.redirect_stdout(output_of_check):
        style.check_easyconfigs_style(list(map(str, paths)))
    matches = [re.match(r"(.*?):(\d+):\d+: (.*)", line) for line in output_of_check.getvalue().splitlines()]
    return [(Path(match.group(1)), int(match.group(2)), match.group(3)) for match in matches if match]
