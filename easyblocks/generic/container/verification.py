##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Verify the signature of an image with the keys that the easyconfig names, and with no others.

The container runtime verifies signatures in SIF files, with a keyring of our own; cosign those of images in registries.
"""
import json
import os
import re

from easybuild.easyblocks.generic.container.framework import EasyBuildExit, run_shell_cmd
from easybuild.easyblocks.generic.container.imagefetch import SHA256, SOURCE, read_note
from easybuild.easyblocks.generic.container.imagesource import DOCKER, ImageSource
from easybuild.easyblocks.generic.container.login import login_files
from easybuild.easyblocks.generic.container.registry import is_loopback
from easybuild.easyblocks.generic.container.runtime import passed_variables
from easybuild.easyblocks.generic.container.sif import signers
from easybuild.easyblocks.generic.container.signature import ALTERED, FOREIGN, REMEDIES, UNKNOWN, UNSIGNED, VERIFIED
from easybuild.easyblocks.generic.container.signature import Signature
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, mkdir, read_file, which


class Verification:
    """
    The verification of signatures with some keys.

    Attributes
    ----------
    runtime : Runtime
    keys : list of str
        Paths of public keys: OpenPGP, as `apptainer key export` writes them, or PEM.
    folder : str
        Directory for the keyring.
    """

    def __init__(self, runtime, keys, folder):
        """Check the keys."""
        self.runtime = runtime
        texts = {path: read_file(path, mode='rb') for path in keys}
        for path, text in texts.items():
            if b'PRIVATE KEY' in text:
                raise EasyBuildError("Easyconfig parameter 'signature_keys': %s is a private key. Keep it secret, and "
                                     "name the public one.", path, exit_code=EasyBuildExit.EASYCONFIG_ERROR)
        self.pem = [path for path in keys if b'-----BEGIN PUBLIC KEY-----' in texts[path]]
        self.pgp = [path for path in keys if path not in self.pem]
        self.folder = folder

    @property
    def environment(self):
        """Variables for the runtime, which name the keyring (dict)."""
        return dict(passed_variables(os.environ), APPTAINER_KEYSDIR=self.folder, SINGULARITY_KEYSDIR=self.folder,
                    SINGULARITY_SYPGPDIR=self.folder)

    def run(self, command, **variables):
        """Run a program; return its result, whatever the exit status."""
        return run_shell_cmd(command, use_bash=False, fail_on_error=False, hidden=True, split_stderr=True,
                             env=dict(self.environment, **variables))

    def of_image(self, image, found):
        """
        Return the Signature of an image: the one in the file, or that of what the file was converted from.

        Parameters
        ----------
        image, found : str
            Path without links, and the path where it was found, which may have a note.
        """
        if signers(image):
            return self.of_file(image)
        note = read_note(found)
        source = ImageSource.parse(note[SOURCE]) if note else None
        if not source or source.kind != DOCKER or compute_checksum(image, CHECKSUM_TYPE_SHA256) != note[SHA256]:
            return Signature(UNSIGNED, '')
        return self.of_source(source)

    def of_file(self, image):
        """Return the Signature in a SIF file."""
        found = [self.by_pgp(image)] if self.pgp else []
        found += [self.by_pem(image, key) for key in self.pem]
        states = [one.state for one in found]
        best = next((state for state in (VERIFIED, ALTERED) if state in states), None)
        return found[states.index(best)] if best else Signature(
            FOREIGN, "signed by %s" % (', '.join(filter(None, signers(image))) or "a key without a fingerprint"))

    def by_pgp(self, image):
        """Return the Signature of a SIF file as the keyring tells it."""
        mkdir(self.folder, parents=True)
        os.chmod(self.folder, 0o700)
        for key in self.pgp:
            done = self.run([self.runtime.path, 'key', 'import', key])
            if done.exit_code != 0:
                raise EasyBuildError("Easyconfig parameter 'signature_keys': %s is no public key that %s can read: %s",
                                     key, os.path.basename(self.runtime.path), last_line(done),
                                     exit_code=EasyBuildExit.EASYCONFIG_ERROR)
        listed = self.run([self.runtime.path, 'key', 'list'])
        ours = {digits.upper() for digits in re.findall(r'Fingerprint:\s*([0-9A-Fa-f]{40,64})', listed.output)}
        done = self.run([self.runtime.path, 'verify', '--local', '--json', image])
        found = signers_in(done.output)
        # the runtime also trusts the keyring that its administrator may have filled
        if done.exit_code == 0 and found and all(one.get('Fingerprint', '').upper() in ours for one in found):
            names = {'%s (%s)' % (one.get('Name'), one['Fingerprint'].upper()) for one in found}
            return Signature(VERIFIED, ', '.join(sorted(names)))
        # an object that nobody has signed may have been added to an image that one of our keys has signed
        is_ours = set(signers(image)) <= ours
        return Signature(ALTERED if is_altered(found) or is_ours else FOREIGN, last_line(done))

    def by_pem(self, image, key):
        """Return the Signature of a SIF file as one key in a file tells it."""
        done = self.run([self.runtime.path, 'verify', '--json', '--key', key, image])
        found = signers_in(done.output)
        if done.exit_code == 0 and found:
            return Signature(VERIFIED, os.path.basename(key))
        return Signature(ALTERED if is_altered(found) else FOREIGN, last_line(done))

    def of_source(self, source):
        """Return the Signature of an image in a registry (ImageSource), as cosign tells it."""
        cosign = which('cosign', log_ok=False, on_error='ignore')
        if not cosign:
            return Signature(UNKNOWN, "cosign is not on PATH")
        if not self.pem:
            return Signature(FOREIGN, "cosign needs a key in PEM format")
        login = next((path for path in login_files() if os.path.exists(path)), None)
        variables = {'REGISTRY_AUTH_FILE': login} if login else {}
        # the key says who signed the image; a public log of signatures can't be asked where there is no network
        options = ['--insecure-ignore-tlog=true'] + (['--allow-http-registry'] if is_loopback(source.host) else [])
        for key in self.pem:
            done = self.run([cosign, 'verify', '--key', key] + options + [
                '%s/%s@%s' % (source.host, source.repository, source.digest)], **variables)
            if done.exit_code == 0:
                return Signature(VERIFIED, os.path.basename(key))
        return Signature(UNSIGNED if 'no signatures found' in (done.stderr or '') else FOREIGN, last_line(done))


def check_required(signature, image):
    """Raise an EasyBuildError unless the Signature of an image (path) was verified."""
    if signature.state != VERIFIED:
        raise EasyBuildError("The image %s %s, and the easyconfig requires a signature. %s", image, signature,
                             REMEDIES[signature.state], exit_code=EasyBuildExit.FAIL_CHECKSUM)


def signers_in(text):
    """Return the signers of all objects in the runtime's output (list of dict); empty if there are none."""
    try:
        found = json.loads(text)['SignerKeys'] or []
        return [one['Signer'] for one in found]
    except (ValueError, KeyError, TypeError):
        return []


def is_altered(found):
    """Return whether an object in the image has another content than was signed."""
    return any(one.get('DataCheck') is False for one in found)


def last_line(done):
    """Return the last line that a program has printed (str)."""
    lines = ((done.output or '') + '\n' + (done.stderr or '')).strip().splitlines()
    prefixes = r'(?:(?:FATAL|ERROR|Failed to verify container|error during command execution):\s*)+'
    return re.sub(prefixes, '', lines[-1].strip()) if lines else "no message"
