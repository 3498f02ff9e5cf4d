##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Verify the signature of an image with the keys that the easyconfig names, and with no others.

The container runtime verifies signatures in SIF files, with a keyring of our own; cosign those of images in registries,
and in OCI layouts that it has saved.
"""
import base64
import errno
import grp
import json
import os
import pwd
import re
import stat
import tempfile

from easybuild.easyblocks.generic.container.connection import is_loopback
from easybuild.easyblocks.generic.container.framework import EasyBuildExit, run_shell_cmd
from easybuild.easyblocks.generic.container.imagecopy import private
from easybuild.easyblocks.generic.container.imagenote import SHA256, SOURCE, note_path, read_note
from easybuild.easyblocks.generic.container.imagesource import CONVERTED, DOCKER, DOCKER_ARCHIVE, DOCKER_HUB, OCI
from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.login import DOCKER_HUB_KEYS, login_for
from easybuild.easyblocks.generic.container.ociimage import open_store
from easybuild.easyblocks.generic.container.registry import sif_layer
from easybuild.easyblocks.generic.container.runtime import passed_variables
from easybuild.easyblocks.generic.container.sif import signers
from easybuild.easyblocks.generic.container.signature import ALTERED, ARCHIVES, FOREIGN, OF_ARCHIVES, REQUIRED, UNKNOWN
from easybuild.easyblocks.generic.container.signature import UNSIGNED, VERIFIED, Signature
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, mkdir, read_file, which
from easybuild.tools.utilities import trace_msg


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

    def of_image(self, image, found, source):
        """
        Return the Signature of an image: the one in the file, or that of what the file was converted from.

        Parameters
        ----------
        image, found : str
            Path without links, and the path where it was found, which may have a note.
        source : ImageSource
            Where the easyconfig says that the image is from, None if it doesn't.
        """
        is_signed, note = bool(signers(image)), read_note(found)
        if not is_signed and not is_note_on(note, source):
            return self.of_source(source) if source and source.kind in ARCHIVES else Signature(UNSIGNED, '')
        # before the verification: what is installed must have it, too
        sha256 = compute_checksum(image, CHECKSUM_TYPE_SHA256)
        is_same = note.get(SHA256) == sha256
        signature = self.of_file(image) if is_signed else self.of_converted(image, found, source, is_same)
        signature.sha256 = sha256
        return signature

    def of_converted(self, image, found, source, is_same):
        """
        Return the Signature of what an image was converted from, as far as the note on the image can be believed.

        Parameters
        ----------
        image, found, source
            See ``of_image``.
        is_same : bool
            Whether the image has the SHA256 in the note.
        """
        if not is_same:
            return Signature(UNSIGNED, '')
        # a note is the word of whoever can write it
        open_path = next(filter(None, map(writable_by_others, (image, note_path(found), os.path.dirname(found)))), None)
        if open_path:
            return Signature(
                UNKNOWN, "accounts other than yours and root can change %s" % open_path,
                "Whoever can write there can say of any image that it was converted from a signed one. Take that "
                "permission away (`chmod go-w`), or let eb fetch the image into a directory of yours (`--sourcepath`).")
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
        """Return the Signature of an image in a registry or a layout (ImageSource), as cosign tells it."""
        if source.kind in ARCHIVES:
            return Signature(UNKNOWN, "cosign verifies no archives", OF_ARCHIVES)
        cosign = which('cosign', log_ok=False, on_error='ignore')
        if not cosign:
            return Signature(UNKNOWN, "cosign is not on PATH")
        if not self.pem:
            return Signature(UNKNOWN, "cosign needs a key in PEM format")
        # the key says who signed the image; a public log of signatures can't be asked where there is no network
        command = [cosign, 'verify', '--insecure-ignore-tlog=true']
        if source.kind == OCI:
            command += ['--local-image', source.path]
        else:
            command += (['--allow-http-registry'] if is_loopback(source.host) else []) + [
                '%s/%s@%s' % (source.host, source.repository, source.digest)]
        found = {}
        with tempfile.TemporaryDirectory(prefix='login-') as folder:
            write_login(source.host, folder)
            for key in self.pem:
                done = self.run(command + ['--key', key], DOCKER_CONFIG=folder)
                if done.exit_code == 0 and source.digest in signed_digests(done.output):
                    return Signature(VERIFIED, os.path.basename(key))
                found[state_of(done)] = problem_of(done, source)
        # a key that couldn't be tried may be the right one
        state = next(state for state in (UNSIGNED, UNKNOWN, FOREIGN) if state in found)
        return Signature(state, found[state])

    def check_source(self, source):
        """Raise EasyBuildError unless what is to be converted is signed and verified; SIF files are verified later."""
        if source.kind not in CONVERTED or not (source.digest or source.kind in ARCHIVES):
            return
        if source.kind in (DOCKER, DOCKER_ARCHIVE) or not sif_layer(
                open_store(source).manifest(source).content.get('layers')):
            check_required(self.of_source(source), source)


def is_note_on(note, source):
    """Return whether a note (dict) is on the image in a registry or layout that the easyconfig names by its digest."""
    if not note or not source or source.kind not in (DOCKER, OCI) or not source.digest:
        return False
    try:
        noted = ImageSource.parse(note[SOURCE])
    except ValueError:
        return False
    return (noted.kind, noted.host, noted.repository, noted.path, noted.digest) == (
        source.kind, source.host, source.repository, source.path, source.digest)


def writable_by_others(path):
    """
    Return the part of a path that accounts other than this one and root can change or replace (str), None without one.

    Entries in an ACL count: with them, the mode's bits for the group are what the entries allow at most (acl(5)). The
    group of an account of the same name, which has no other members, doesn't count.
    """
    path = os.path.realpath(path)
    is_last = True
    while True:
        status = os.stat(path)
        mode = status.st_mode
        # in a directory with the sticky bit, others can't replace what isn't theirs; the group comes last, because
        # finding out about it may mean to ask a server for all accounts
        is_closed = not is_last and mode & stat.S_ISVTX or not mode & 0o002 and (
            not mode & 0o020 or is_private_group(status.st_gid) and not has_acl(path))
        if status.st_uid not in (0, os.geteuid()) or not is_closed:
            return path
        if path == os.path.dirname(path):
            return None
        path, is_last = os.path.dirname(path), False


def is_private_group(number):
    """Return whether a group has no members but this account or root (bool): it has the name of that, as is usual."""
    try:
        group = grp.getgrgid(number)
        account = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    return account.pw_uid in (0, os.geteuid()) and not set(group.gr_mem) - {account.pw_name} and \
        [one.pw_name for one in pwd.getpwall() if one.pw_gid == number] == [account.pw_name]


def has_acl(path):
    """Return whether a path has an ACL, or may have one that can't be read (bool)."""
    try:
        return bool({'system.posix_acl_access', 'system.nfs4_acl'} & set(os.listxattr(path)))
    except OSError as err:
        return err.errno != errno.ENOTSUP


def write_login(host, folder):
    """Write the runtime's login for a registry (str, or None), and no other, where cosign reads it: a private place."""
    login = login_for(host) if host else None
    logins = {}
    if login:
        entry = {'identitytoken': login.token} if login.token else {
            'auth': base64.b64encode(('%s:%s' % (login.user, login.password)).encode()).decode()}
        logins = {DOCKER_HUB_KEYS[0] if host == DOCKER_HUB else host: entry}
    with open(os.path.join(folder, 'config.json'), 'w', opener=private) as text:
        json.dump({'auths': logins}, text)


def signed_digests(text):
    """Return the digests of the images to which verified signatures belong, in the output of cosign (list of str)."""
    try:
        return [one['critical']['image']['docker-manifest-digest'] for one in json.loads(text)]
    except (ValueError, KeyError, TypeError):
        return []


def problem_of(done, source):
    """Return why cosign hasn't verified the signature of a source (str)."""
    if done.exit_code == 0:
        return "the signatures there are of other images"
    if source.kind == OCI and 'must verify either an image index or image' in (done.stderr or ''):
        return "%s has no signatures, which only `cosign save --dir DIRECTORY` keeps in a layout" % source.path
    return last_line(done)


def state_of(done):
    """Return what a failure of cosign means: many have nothing to do with the signature (str)."""
    said = done.stderr or ''
    if 'no signatures found' in said:
        return UNSIGNED
    return FOREIGN if 'no matching signatures' in said else UNKNOWN


def check_required(signature, image):
    """Raise an EasyBuildError unless the Signature of an image (path) was verified."""
    if signature.state != VERIFIED:
        raise EasyBuildError("The image %s %s, and the easyconfig requires a signature. %s", image, signature,
                             signature.remedy, exit_code=EasyBuildExit.FAIL_CHECKSUM)


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


def judge(signature, policy, image, name):
    """
    Say what the Signature of an image (path, name) is, and what that means for the installation (R-04).

    Returns
    -------
    str
        A warning if it was not verified, None if it was.

    Raises
    ------
    EasyBuildError
        If the policy (easyconfig parameter 'signature') requires one that was verified.
    """
    if policy == REQUIRED:
        check_required(signature, image)
    if signature.state != VERIFIED:
        return "the image %s %s" % (name, signature)
    trace_msg("the image %s" % signature)
    return None
