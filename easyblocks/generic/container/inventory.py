##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What an image consists of, besides what its Python sees: its databases of packages, and its labels.

Doesn't import EasyBuild, because importing it takes longer than running the commands that read records.
"""
import json
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from . import lockfile

# Where an installed package is; others are in a Conda environment of the image, and have its prefix as their place.
IN_IMAGE, IN_USER_SOFTWARE = 'image', 'user-software'
# Conda's names of files are NAME-VERSION-BUILD.json
CONDA_FILE = re.compile(r'(?P<prefix>.*)/conda-meta/(?P<name>[^/]+)-(?P<version>[^/-]+)-[^/-]+\.json\Z')
# https://github.com/package-url/purl-spec
PACKAGE_URL = re.compile(r'pkg:(pypi|conda|deb|rpm|apk)/')


class Package(NamedTuple):
    """An installed package; its kind is that of package URLs ('pypi', 'conda', 'deb', 'rpm' or 'apk')."""

    kind: str
    place: str
    name: str
    version: str


def read_inventory(folder: str) -> Dict[str, Any]:
    """Return what the record has on the packages of an image, from databases that probe-image.sh has copied."""
    packages = {'deb': dpkg_packages(read(folder, 'dpkg')), 'apk': apk_packages(read(folder, 'apk')),
                'rpm': [line for line in package_lines(read(folder, 'rpm')) if not line.startswith('gpg-pubkey==')]}
    conda = conda_packages(read(folder, 'conda'))
    release = dict(re.findall(r'^(ID|VERSION_ID)=["\']?([^"\'\n]*)', read(folder, 'os-release'), re.MULTILINE))
    return {
        lockfile.SYSTEM: {'distribution': release.get('ID', ''), 'release': release.get('VERSION_ID', '')},
        lockfile.SYSTEM_PACKAGES: {kind: sorted(set(lines)) for kind, lines in packages.items() if lines},
        lockfile.CONDA_PACKAGES: conda,
        lockfile.IMAGE_LIST: listed_packages(read(folder, '.sbom.json')),
    }


def read(folder: str, name: str) -> str:
    """Return the text of one of the copied files, '' if there is none."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return ''
    with open(path, encoding='utf-8', errors='replace') as text:
        return text.read()


def package_lines(text: str) -> List[str]:
    """Return the lines that are name==version."""
    return [line for line in text.splitlines() if re.match(r'[^=\s]+==\S+\Z', line)]


def dpkg_packages(text: str) -> List[str]:
    """Return the installed packages in dpkg's database; those of a foreign architecture as NAME:ARCH."""
    found, own = [], ''
    for paragraph in re.split(r'\n\s*\n', text):
        fields = dict(re.findall(r'^(Package|Version|Status|Architecture): *(.*\S)', paragraph, re.MULTILINE))
        # files in status.d have no status
        state = fields.get('Status', 'installed').split()[-1]
        if state == 'installed' and 'Package' in fields and 'Version' in fields:
            found.append((fields['Package'], fields.get('Architecture', 'all'), fields['Version']))
            if fields['Package'] in ('dpkg', 'libc6'):
                own = own or fields.get('Architecture', '')
    return ['%s%s==%s' % (name, '' if architecture in ('all', own) or not own else ':' + architecture, version)
            for name, architecture, version in found]


def apk_packages(text: str) -> List[str]:
    """Return the packages in the database of Alpine's apk."""
    return ['%s==%s' % one for one in re.findall(r'^P:(\S+)\nV:(\S+)$', text, re.MULTILINE)]


def conda_packages(text: str) -> Dict[str, List[str]]:
    """Return the packages of each Conda environment by its prefix, from the paths of files in conda-meta."""
    found: Dict[str, List[str]] = {}
    for path in sorted(set(text.splitlines())):
        match = CONDA_FILE.match(path)
        if match:
            found.setdefault(match.group('prefix'), []).append('%s==%s' % match.group('name', 'version'))
    return found


def listed_packages(text: str) -> Dict[str, List[str]]:
    """
    Return the packages that an image lists itself in /.sbom.json, by kind.

    Its format is CycloneDX, SPDX, or that of the LUMI AI Factory: {"apt": [{"name":, "version":}], "pip": [...]}.
    """
    try:
        content = json.loads(text or '{}')
        found: List[Any] = [
            (kind, one['name'], one['version'])
            for key, kind in (('apt', 'deb'), ('rpm', 'rpm'), ('apk', 'apk'), ('pip', 'pypi'), ('conda', 'conda'))
            for one in content.get(key) or []]
        for one in content.get('components') or []:
            found.append((kind_of(one.get('purl')), one.get('name'), one.get('version')))
        for one in content.get('packages') or []:
            urls = [reference.get('referenceLocator') for reference in one.get('externalRefs') or []]
            kinds = [kind_of(url) for url in urls if kind_of(url)]
            found.append((kinds[0] if kinds else None, one.get('name'), one.get('versionInfo')))
    except (ValueError, KeyError, TypeError, AttributeError):
        # anybody can write a file of that name
        return {}
    lines: Dict[str, Set[str]] = {}
    for kind, name, version in found:
        if kind and isinstance(name, str) and isinstance(version, str):
            lines.setdefault(kind, set()).add('%s==%s' % (name, version))
    return {kind: sorted(lines[kind]) for kind in lines}


def kind_of(url: Optional[str]) -> Optional[str]:
    """Return the kind of package in a package URL, None for kinds that are not recorded."""
    match = PACKAGE_URL.match(url or '')
    return match.group(1) if match else None


def read_labels(folder: str) -> Dict[str, str]:
    """Return the labels of the image, which say where it comes from."""
    try:
        labels = json.loads(read(folder, 'labels.json') or '{}')
    except ValueError:
        return {}
    if not isinstance(labels, dict):
        return {}
    return {str(name): text for name, text in labels.items() if isinstance(text, str)}


def is_complete(record: Dict[str, Any]) -> bool:
    """Return whether a record lists all packages; those of earlier versions of ebsif list Python packages only."""
    return lockfile.SYSTEM_PACKAGES in record


def packages_of(record: Dict[str, Any]) -> Iterator[Package]:
    """Yield the packages in the record of an installation, each once."""
    seen: Set[Package] = set()
    for kind, place, lines in groups(record):
        for line in lines:
            package = Package(kind, place, *line.split('==', 1))
            if package not in seen:
                seen.add(package)
                yield package


def groups(record: Dict[str, Any]) -> Iterator[Tuple[str, str, List[str]]]:
    """Yield kind, place and lines of each list of packages in a record; what is only in /.sbom.json comes last."""
    yield 'pypi', IN_IMAGE, record.get(lockfile.IMAGE_PACKAGES, [])
    yield 'pypi', IN_USER_SOFTWARE, record.get(lockfile.VENV_PACKAGES, [])
    for kind, lines in sorted(record.get(lockfile.SYSTEM_PACKAGES, {}).items()):
        yield kind, IN_IMAGE, lines
    for prefix, lines in sorted(record.get(lockfile.CONDA_PACKAGES, {}).items()):
        yield 'conda', prefix, lines
    for kind, lines in sorted(record.get(lockfile.IMAGE_LIST, {}).items()):
        yield kind, IN_IMAGE, lines
