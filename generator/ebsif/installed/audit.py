"""Known vulnerabilities of the Python packages of modules, from pip-audit."""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.values import normal_name
from packaging.version import InvalidVersion, Version

from ebsif.errors import EbsifError, how_to_add
from ebsif.report import output

# A package: normalized name, public version (local labels like +rocm6.2 are in no advisory).
Pin = tuple[str, str]

WITHOUT_NETWORK = (
    "Without network access, give a bill of materials to osv-scanner or grype: `ebsif lock MODULE --format sbom`"
)


@dataclass(frozen=True)
class Advisory:
    """A known vulnerability: its name, its other names, the versions without it, and a summary."""

    id: str
    aliases: tuple[str, ...]
    fixed: tuple[str, ...]
    summary: str

    def __str__(self) -> str:
        """Return it as one line."""
        names = f"{self.id} ({', '.join(self.aliases)})" if self.aliases else self.id
        fixed = f", fixed in {' or '.join(self.fixed)}" if self.fixed else ", no fixed version"
        return f"{names}{fixed}"


@dataclass(frozen=True)
class Vulnerability:
    """A package of a module with an advisory; the place is ``image`` or ``user-software``."""

    module: str
    package: str
    version: str
    place: str
    advisory: Advisory

    @property
    def data(self) -> dict[str, Any]:
        """The fields, for JSON."""
        fields = asdict(self)
        advisory = fields.pop("advisory")
        return {**fields, **advisory}


def python_packages(record: Record) -> list[tuple[str, str, str]]:
    """Return the Python packages in a record: (name, version, place)."""
    return [(one.name, one.version, one.place) for one in record.packages if one.kind == "pypi"]


def version_of(text: str) -> Optional[Version]:
    """Return a version, None for a text that isn't one of Python's."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def pin(name: str, version: str) -> Optional[Pin]:
    """Return what advisories call a package; None for a version that isn't Python's, which no advisory names."""
    known = version_of(version)
    return (normal_name(name), known.public) if known else None


def vulnerabilities(records: Mapping[str, Record], advisories: Mapping[Pin, list[Advisory]]) -> Iterator[Vulnerability]:
    """Yield the vulnerabilities of each module, from its record and the advisories on packages."""
    for module, record in records.items():
        for name, version, place in python_packages(record):
            key = pin(name, version)
            for advisory in advisories.get(key, []) if key else []:
                yield Vulnerability(module, name, version, place, advisory)


def updates(found: Iterable[Vulnerability]) -> dict[str, list[str]]:
    """Return the requirements, by module, that replace packages in user software by the next versions with a fix."""
    wanted: dict[str, dict[str, Version]] = {}
    for one in found:
        fixes = [
            version for version in map(version_of, one.advisory.fixed) if version and version > Version(one.version)
        ]
        if fixes and one.place != "image":
            packages = wanted.setdefault(one.module, {})
            packages[one.package] = max(min(fixes), packages.get(one.package, min(fixes)))
    return {module: [f"{name}>={version}" for name, version in packages.items()] for module, packages in wanted.items()}


def from_service(pins: Iterable[Pin], url: Optional[str] = None) -> tuple[dict[Pin, list[Advisory]], list[Pin]]:
    """Return the advisories of pip-audit's service on packages, and the packages that it doesn't know."""
    if not importlib.util.find_spec("pip_audit"):
        raise EbsifError(f"pip-audit is not installed: {how_to_add('pip-audit')}. {WITHOUT_NETWORK}")
    if url and Version(pip_audit := importlib.metadata.version("pip-audit")) < Version("2.10"):
        raise EbsifError(f"--osv-url needs pip-audit 2.10, which needs Python 3.10, but {pip_audit} is installed")
    advisories: dict[Pin, list[Advisory]] = {}
    unknown: list[Pin] = []
    left = set(pins)
    while left:
        # each name once, because pip-audit refuses several versions
        asked = dict(sorted(left))
        left -= set(asked.items())
        for package in ask(asked, ["-s", "osv", "--osv-url", url] if url else []):
            key = normal_name(package["name"]), asked[normal_name(package["name"])]
            if "skip_reason" in package:
                unknown.append(key)
            elif package["vulns"]:
                advisories[key] = [
                    Advisory(
                        one["id"],
                        tuple(sorted(one["aliases"])),
                        tuple(one["fix_versions"]),
                        one.get("description") or "",
                    )
                    for one in package["vulns"]
                ]
    return advisories, unknown


def ask(versions: Mapping[str, str], options: Sequence[str]) -> list[dict[str, Any]]:
    """Return what pip-audit says of packages, given by name; raise EbsifError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "requirements.txt")
        path.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()), encoding="utf-8")
        words = [
            sys.executable,
            "-m",
            "pip_audit",
            "--requirement",
            str(path),
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "--progress-spinner",
            "off",
            *options,
        ]
        output.command(words)
        result = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        return json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = result.stderr.strip().splitlines()[-1:] or ["no output"]
        raise EbsifError(f"pip-audit failed, exit status {result.returncode}: {said[0]}. {WITHOUT_NETWORK}") from None
