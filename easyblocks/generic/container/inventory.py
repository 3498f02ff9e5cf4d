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
import collections
import json
import os
import re

from . import lockfile

# An installed package: kind as in package URLs ('pypi', 'conda', 'deb', 'rpm' or 'apk'); place ('image',
# 'user-software', or a Conda environment of the image); name; version
Package = collections.namedtuple('Package', 'kind place name version')

IMAGE, USER_SOFTWARE = 'image', 'user-software'
# Conda's names of files are NAME-VERSION-BUILD.json
CONDA_FILE = re.compile(r'(?P<prefix>.*)/conda-meta/(?P<name>[^/]+)-(?P<version>[^/-]+)-[^/-]+\.json\Z')
# https://github.com/package-url/purl-spec
PACKAGE_URL = re.compile(r'pkg:(pypi|conda|deb|rpm|apk)/')


def read_inventory(folder):
    """
    Return the part of a record on the packages and labels of an image.

    Parameters
    ----------
    folder : str
        The directory to which probe-image.sh has copied the databases.

    Returns
    -------
    dict
        By keys of ``lockfile``. Without labels, which belong to the image's entry; see ``read_labels``.
    """
    packages = {'deb': dpkg_packages(read(folder, 'dpkg')), 'apk': apk_packages(read(folder, 'apk')),
                'rpm': [line for line in lines_of(read(folder, 'rpm')) if not line.startswith('gpg-pubkey==')]}
    conda = conda_packages(read(folder, 'conda'))
    release = dict(re.findall(r'^(ID|VERSION_ID)=["\']?([^"\'\n]*)', read(folder, 'os-release'), re.MULTILINE))
    return {
        lockfile.SYSTEM: {'distribution': release.get('ID', ''), 'release': release.get('VERSION_ID', '')},
        lockfile.SYSTEM_PACKAGES: {kind: sorted(set(lines)) for kind, lines in packages.items() if lines},
        lockfile.CONDA_PACKAGES: conda,
        lockfile.IMAGE_LIST: listed_packages(read(folder, '.sbom.json')),
    }


def read(folder, name):
    """Return the text of one of the copied files, '' if there is none."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return ''
    with open(path, encoding='utf-8', errors='replace') as text:
        return text.read()


def lines_of(text):
    """Return the lines that are name==version (list of str)."""
    return [line for line in text.splitlines() if re.match(r'[^=\s]+==\S+\Z', line)]


def dpkg_packages(text):
    """Return the installed packages in dpkg's database (list of str); those of a foreign architecture as NAME:ARCH."""
    found, own = [], None
    for paragraph in re.split(r'\n\s*\n', text):
        fields = dict(re.findall(r'^(Package|Version|Status|Architecture): *(.*\S)', paragraph, re.MULTILINE))
        # files in status.d have no status
        state = fields.get('Status', 'installed').split()[-1]
        if state == 'installed' and 'Package' in fields and 'Version' in fields:
            found.append((fields['Package'], fields.get('Architecture'), fields['Version']))
            if fields['Package'] in ('dpkg', 'libc6'):
                own = own or fields.get('Architecture')
    return ['%s%s==%s' % (name, '' if architecture in ('all', own) or not own else ':' + architecture, version)
            for name, architecture, version in found]


def apk_packages(text):
    """Return the packages in the database of Alpine's apk (list of str)."""
    return ['%s==%s' % one for one in re.findall(r'^P:(\S+)\nV:(\S+)$', text, re.MULTILINE)]


def conda_packages(text):
    """Return the packages of each Conda environment (dict of list of str), from the paths of files in conda-meta."""
    found = {}
    for path in sorted(set(text.splitlines())):
        match = CONDA_FILE.match(path)
        if match:
            found.setdefault(match.group('prefix'), []).append('%s==%s' % match.group('name', 'version'))
    return found


def listed_packages(text):
    """
    Return the packages that an image lists itself in /.sbom.json, by kind (dict of list of str).

    Its format is CycloneDX, SPDX, or that of the LUMI AI Factory: {"apt": [{"name":, "version":}], "pip": [...]}.
    """
    try:
        content = json.loads(text or '{}')
        found = [(kind, one['name'], one['version'])
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
    lines = {}
    for kind, name, version in found:
        if kind and isinstance(name, str) and isinstance(version, str):
            lines.setdefault(kind, set()).add('%s==%s' % (name, version))
    return {kind: sorted(lines[kind]) for kind in lines}


def kind_of(url):
    """Return the kind of package in a package URL, None for kinds that are not recorded."""
    match = PACKAGE_URL.match(url or '')
    return match.group(1) if match else None


def read_labels(folder):
    """Return the labels of the image (dict of str), which say where it comes from."""
    try:
        labels = json.loads(read(folder, 'labels.json') or '{}')
    except ValueError:
        return {}
    if not isinstance(labels, dict):
        return {}
    return {str(name): text for name, text in labels.items() if isinstance(text, str)}


def is_complete(record):
    """Return whether a record lists all packages; those of earlier versions of ebsif list Python packages only."""
    return lockfile.SYSTEM_PACKAGES in record


def packages_of(record):
    """
    Yield the packages in the record of an installation, each once.

    Parameters
    ----------
    record : dict

    Yields
    ------
    Package
    """
    seen = set()
    for kind, place, lines in groups(record):
        for line in lines:
            package = Package(kind, place, *line.split('==', 1))
            if package not in seen:
                seen.add(package)
                yield package


def groups(record):
    """Yield kind, place and lines of each list of packages in a record; what is only in /.sbom.json comes last."""
    yield 'pypi', IMAGE, record.get(lockfile.IMAGE_PACKAGES, [])
    yield 'pypi', USER_SOFTWARE, record.get(lockfile.VENV_PACKAGES, [])
    for kind, lines in sorted(record.get(lockfile.SYSTEM_PACKAGES, {}).items()):
        yield kind, IMAGE, lines
    for prefix, lines in sorted(record.get(lockfile.CONDA_PACKAGES, {}).items()):
        yield 'conda', prefix, lines
    for kind, lines in sorted(record.get(lockfile.IMAGE_LIST, {}).items()):
        yield kind, IMAGE, lines
