##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The software bill of materials of an installation, CycloneDX 1.5 in JSON, from its lock file.
"""
import json
import time
import uuid
from urllib.parse import quote

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.texts import normal_name

# Beside the lock file.
BILL_OF_MATERIALS = 'sbom.cdx.json'


def bill_of_materials(record, seconds):
    """
    Return the bill of materials of an installation.

    Parameters
    ----------
    record : dict
        The content of the lock file.
    seconds : float
        When the bill is written, since 1970.

    Returns
    -------
    str
        CycloneDX: the module, the image as a container, and every Python package of the image and of user software,
        with the SHA256 of the file that pip installed from where it is known. The same arguments give the same text.
    """
    module, image = record.get(lockfile.MODULE, {}), record[lockfile.IMAGE]
    in_image = [package(line, 'image', {}) for line in record.get(lockfile.IMAGE_PACKAGES, [])]
    in_venv = [package(line, 'user-software', record.get(lockfile.ARTIFACTS, {}))
               for line in record.get(lockfile.VENV_PACKAGES, [])]
    about = component('application', module.get('name', image['file']), 'module',
                      version=module.get('version', '') + module.get('versionsuffix', ''))
    container = component('container', image['file'], 'image', hashes=sha256(image['sha256']))
    content = {
        '$schema': 'http://cyclonedx.org/schema/bom-1.5.schema.json',
        'bomFormat': 'CycloneDX',
        'specVersion': '1.5',
        'version': 1,
        'metadata': {
            'timestamp': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(seconds)),
            'tools': {'components': [without_nothing({
                'type': 'application', 'name': 'ebsif', 'version': record.get(lockfile.VERSIONS, {}).get('ebsif')})]},
            'component': about,
        },
        'components': [container] + in_image + in_venv,
        'dependencies': [dependencies(about, [container] + in_venv), dependencies(container, in_image)] + [
            dependencies(one, []) for one in in_image + in_venv],
    }
    content['serialNumber'] = 'urn:uuid:%s' % uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return json.dumps(content, indent=2, sort_keys=True) + '\n'


def package(line, place, artifacts):
    """Return the component of a Python package, from a line like ``name==version`` and the files pip installed from."""
    name, version = line.split('==', 1)
    artifact = artifacts.get(normal_name(name))
    return component(
        'library', name, '%s:%s@%s' % (place, name, version), version=version,
        # https://github.com/package-url/purl-spec: 'pypi' has names in lower case, with '-' for '_'
        purl='pkg:pypi/%s@%s' % (quote(name.lower().replace('_', '-'), safe=''), quote(version, safe='')),
        properties=[{'name': 'ebsif:place', 'value': place}],
        # of the file that was installed from, not of what is installed
        hashes=sha256(artifact['sha256']) if artifact else None)


def component(kind, name, reference, **more):
    """Return a component of CycloneDX (dict); what is empty is left out."""
    return without_nothing(dict(more, **{'type': kind, 'name': name, 'bom-ref': reference}))


def without_nothing(values):
    """Return a dictionary without the entries that have no value."""
    return {key: value for key, value in values.items() if value}


def sha256(digest):
    """Return a SHA256 as CycloneDX has it (list of dict)."""
    return [{'alg': 'SHA-256', 'content': digest}]


def dependencies(one, others):
    """Return which components one depends on (dict)."""
    return without_nothing({'ref': one['bom-ref'], 'dependsOn': [other['bom-ref'] for other in others]})
