##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Verify the signatures of an image with the site's keys, by the container runtime (R-04).
"""
import json
import os
import re
from typing import List, Sequence, Tuple

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir, read_file

from ..framework import EasyBuildExit, RunShellCmdResult
from ..runtime import Runtime, passed_variables, run_program
from ..sitevalues import runtime_name
from .sif import signers


class KeyFileError(EasyBuildError):
    """A file of the easyconfig isn't a public key."""

    def __init__(self, text: str) -> None:
        """Name the parameter."""
        super().__init__("Easyconfig parameter 'signature_keys': %s", text, exit_code=EasyBuildExit.EASYCONFIG_ERROR)


def verify(image: str, keys: Sequence[str], folder: str) -> Tuple[List[str], str]:
    """Verify the signatures of an image with these keys only; return who signed it, and the problem ('' if none)."""
    if not signers(image):
        return [], "is not signed: get the signed image, or sign it with a key of yours (`%s sign`)" % runtime_name()
    allowed = import_keys(keys, folder)
    done = run_with_keyring(['verify', '--local', '--json', image], folder)
    try:
        found = [one['Signer'] for one in json.loads(done.output)['SignerKeys']]
        names = {one['Fingerprint'].upper(): one.get('Name', '') for one in found}
    except (ValueError, KeyError, TypeError):
        names = {}
    # the runtime also trusts the keyring that its administrator may have filled
    if done.exit_code == 0 and names and set(names) <= allowed:
        return ['%s (%s)' % (name, fingerprint) for fingerprint, name in sorted(names.items())], ""
    messages = ['no message'] + ((done.output or '') + '\n' + (done.stderr or '')).strip().splitlines()
    return [], "is signed by %s, which can't be verified: %s" % (
        ', '.join(filter(None, signers(image))) or "a key without a fingerprint", messages[-1].strip())


def import_keys(keys: Sequence[str], folder: str) -> set:
    """Put public keys into a new keyring; return their fingerprints."""
    mkdir(folder, parents=True)
    os.chmod(folder, 0o700)
    for key in keys:
        if b'PRIVATE KEY' in read_file(key, mode='rb'):
            raise KeyFileError("%s is a private key. Keep it secret, and use the public one." % key)
        done = run_with_keyring(['key', 'import', key], folder)
        if done.exit_code != 0:
            raise KeyFileError("%s is no public key that the container runtime can read: write it with `%s key export "
                               "--armor FILE`." % (key, runtime_name()))
    listed = run_with_keyring(['key', 'list'], folder).output
    return {digits.upper() for digits in re.findall(r'Fingerprint:\s*([0-9A-Fa-f]{40,64})', listed)}


def run_with_keyring(arguments: List[str], folder: str) -> RunShellCmdResult:
    """Run the container runtime with a keyring; return its result, whatever the exit status."""
    variables = dict(passed_variables(os.environ), APPTAINER_KEYSDIR=folder, SINGULARITY_KEYSDIR=folder,
                     SINGULARITY_SYPGPDIR=folder)
    return run_program([Runtime().path] + arguments, fail_on_error=False, split_stderr=True, env=variables)
