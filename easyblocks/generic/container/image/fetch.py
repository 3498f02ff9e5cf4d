##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Fetch an image from its source (easyconfig parameter 'image_source').

The container runtime fetches and converts, EasyBuild downloads. Until the file is complete and verified, it is in a
hidden directory beside the image.
"""
import glob
import json
import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import Iterator, List, Optional, Sequence

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, download_file, mkdir, remove
from easybuild.tools.filetools import verify_checksum, write_file
from easybuild.tools.utilities import trace_msg

from ..copying import copy_hashed, make_striped
from ..framework import EasyBuildExit, run_shell_cmd
from ..permissions import open_to_readers, set_mode
from ..runtime import SHOWN_LINES, Runtime
from ..sitevalues import runtime_name
from ..written import is_private
from .identity import SHA256, SOURCE, ContentError, note_path
from .layout import INDEX, MARK, VERSION, IndexEntry, LayoutError, blob_path, entries_named, read_index, tag_of
from .sif import is_sif, is_whole
from .source import DOCKER, HTTPS, OCI, ORAS, ImageSource, is_loopback

# What else is in the directory of a fetch: where the image is from, and a verified copy of it in an OCI layout.
NOTE, LAYOUT = 'note', 'layout'
DAY = 24 * 3600  # seconds; a directory that hasn't changed for so long was left by a killed process


class FetchError(EasyBuildError):
    """An image can't be fetched."""

    def __init__(self, text: str) -> None:
        """Set the exit status of eb for failed downloads."""
        super().__init__("%s", text, exit_code=EasyBuildExit.FAIL_DOWNLOAD)


def fetch(source: ImageSource, target: str, checksum: object = None, striping: Sequence[str] = (),
          again: bool = False) -> ImageSource:
    """
    Fetch an image, verify it, and give it its name (R-01); return its source with the digest.

    Each process fetches under a name of its own. The first complete image stays (R-10), unless `again` asks
    to replace it. `checksum` is in any form that EasyBuild supports.
    """
    folder, name = os.path.split(target)
    with open_to_readers():
        mkdir(folder, parents=True)
    remove_leftovers(folder, name)
    with private_directory(folder, name) as work_dir:
        trace_msg("fetching %s from %s" % (name, source))
        make_striped(work_dir, striping)
        made = os.path.join(work_dir, name)
        digest = FETCHERS[source.kind](source, made)
        sha256 = compute_checksum(made, CHECKSUM_TYPE_SHA256)
        source = source.with_digest(check_digest(source, digest or 'sha256:' + sha256))
        if not (is_sif(made) and is_whole(made)):
            raise FetchError("The image from %s is no SIF file, or an incomplete one. Nothing was kept." % str(source))
        if not (checksum is None or verify_checksum(made, checksum, {CHECKSUM_TYPE_SHA256: sha256})):
            raise ContentError("The image from %s has the SHA256 %s, but 'checksums' in the easyconfig has a different "
                               "one. Correct the checksum, or the source." % (source, sha256))
        note = os.path.join(work_dir, NOTE)
        write_file(note, json.dumps({SOURCE: str(source), SHA256: sha256}, indent=2) + '\n')
        for path in (made, note):
            set_mode(path, 0o644)
        if again:
            # a note is only ever beside the image that it is about
            with suppress(FileNotFoundError):
                os.remove(note_path(target))
            os.rename(made, target)
        if again or give_name(made, target):
            os.rename(note, note_path(target))
    return source


@contextmanager
def private_directory(folder: str, name: str) -> Iterator[str]:
    """
    Make a directory beside an image that is fetched, and yield a path that always leads to it; remove it afterwards.

    Others who may write to the folder can give the name of the directory to one of theirs, with links to files of this
    account, while the runtime is fetching. The path leads to the directory that was opened, whatever its name (P-02).
    """
    try:
        made = tempfile.mkdtemp(prefix='.%s.' % name, dir=folder)
        number = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as err:
        raise FetchError("%s can't be fetched: nothing can be written to %s (%s). Choose a directory of yours with "
                         "--sourcepath." % (name, folder, err.strerror))
    path = '/proc/%d/fd/%d' % (os.getpid(), number)
    try:
        if not is_private(os.fstat(number)):
            raise FetchError("%s can't be fetched: somebody has exchanged %s meanwhile. Choose a directory of yours "
                             "with --sourcepath." % (name, made))
        try:
            yield path
        finally:
            with suppress(OSError):
                remove([os.path.join(path, one) for one in os.listdir(path)])
    finally:
        os.close(number)
        with suppress(OSError):
            os.rmdir(made)


def give_name(made: str, target: str) -> bool:
    """Give a file its name, unless another process was faster, on any node; return whether it has the name."""
    try:
        os.link(made, target)
    except FileExistsError:
        return False
    except OSError:
        # a file system without hard links
        if os.path.lexists(target):
            return False
        os.rename(made, target)
    return True


def remove_leftovers(folder: str, name: str) -> None:
    """
    Remove directories in which a killed process was fetching: nothing in them has changed for a day.

    Others may have given such a name to another directory of this account: only what was made here is removed.
    """
    for leftover in glob.glob(os.path.join(glob.escape(folder), glob.escape('.%s.' % name) + '*')):
        with suppress(OSError):
            paths = [leftover] + [os.path.join(place, one) for place, _, names in os.walk(leftover) for one in names]
            is_ours = is_private(os.lstat(leftover)) and all(
                one.startswith(name) or one in (NOTE, LAYOUT) for one in os.listdir(leftover))
            if is_ours and max(os.lstat(path).st_mtime for path in paths) < time.time() - DAY:
                shutil.rmtree(leftover)


# --- each kind of source: write the SIF file; return the digest, or None if the digest of the file counts

def pull(source: ImageSource, made: str) -> Optional[str]:
    """Let the runtime fetch an image by its digest, with its own login; it verifies manifest and content."""
    if not source.digest:
        raise FetchError("%s has no digest, and the tag can change" % str(source))
    options = ['--no-https'] if is_loopback(source.host or '') else []
    # a SIF file in the cache would only be a second copy; layers in the cache needn't be fetched again after a cut
    options += ['--disable-cache'] if source.kind == ORAS else []
    run_runtime(source, ['pull'] + options + [made, '%s@%s' % (source.name, source.digest)], made)
    return source.digest


def download(source: ImageSource, made: str) -> Optional[str]:
    """Let EasyBuild download a SIF file."""
    if not download_file(os.path.basename(made), source.path, made):
        raise FetchError("%s can't be downloaded: check the address, and network and proxy of this node. EasyBuild's "
                         "log has the reason." % source.path)
    return None


def convert_layout(source: ImageSource, made: str) -> Optional[str]:
    """Let the runtime convert a verified copy of an image in an OCI layout, or take the SIF file in it."""
    copy = os.path.join(os.path.dirname(made), LAYOUT)
    try:
        entry = find_in_layout(source)
        layers = copy_from_layout(source, entry, copy)
        # the runtime finds a single image without a name, whichever runtime it is
        for name, content in ((MARK, VERSION), (INDEX, {'schemaVersion': 2, 'manifests': [entry]})):
            write_file(os.path.join(copy, name), json.dumps(content))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        raise FetchError("%s can't be read as an image of an OCI layout: %s" % (source, err))
    file = next((layer for layer in layers if is_sif(layer)), None)
    if file:
        os.rename(file, made)
    else:
        run_runtime(source, ['build', made, '%s:%s' % (OCI, copy)], made)
    return entry['digest']


FETCHERS = {ORAS: pull, DOCKER: pull, HTTPS: download, OCI: convert_layout}


def find_in_layout(source: ImageSource) -> IndexEntry:
    """Return the entry of an image in the index of a layout, without its tag."""
    entries = read_index(source.path or '')['manifests']
    found = {one['digest']: one for one in entries_named(entries, source.digest or source.tag)}
    if len(found) != 1:
        raise LayoutError("%s of the images there, which are: %s" % (
            "it is more than one" if found else "it is none",
            ', '.join('%s@%s' % (tag_of(one) or '(no tag)', one['digest']) for one in entries) or "none"))
    (entry,) = found.values()
    return {key: entry[key] for key in ('mediaType', 'digest', 'size') if key in entry}


def copy_from_layout(source: ImageSource, entry: IndexEntry, copy: str) -> List[str]:
    """Copy a manifest and its blobs to another layout; return the paths of its layers there."""
    with open(copy_blob(source, entry, copy)) as text:
        content = json.load(text)
    layers: List[str] = []
    for manifest in content.get('manifests', []):
        # manifests for other machines may be missing
        if os.path.exists(blob_path(source.path or '', manifest['digest'])):
            layers += copy_from_layout(source, manifest, copy)
    for config in [content['config']] if 'config' in content else []:
        copy_blob(source, config, copy)
    return layers + [copy_blob(source, layer, copy) for layer in content.get('layers', [])]


def copy_blob(source: ImageSource, blob: IndexEntry, copy: str) -> str:
    """Copy a blob to another layout, and verify its digest, which runtimes don't do in layouts; return its path."""
    digest = blob['digest']
    path = blob_path(copy, digest)
    if not digest.startswith('sha256:'):
        raise LayoutError("%s is no SHA256" % digest)
    mkdir(os.path.dirname(path), parents=True)
    with open(blob_path(source.path or '', digest), 'rb') as file:
        found = 'sha256:' + copy_hashed(file, path)
    if found != digest:
        raise ContentError("The blob %s was altered in %s: its SHA256 is %s. Nothing was kept." % (
            digest, source.path, found[7:]))
    return path


# --- common to all kinds

def run_runtime(source: ImageSource, arguments: List[str], made: str) -> None:
    """Run the runtime with the caller's environment, which may have a login; EasyBuild doesn't store the output."""
    command = [Runtime().path] + arguments
    done = run_shell_cmd(command, use_bash=False, fail_on_error=False, output_file=False,
                         work_dir=os.path.dirname(made))
    if done.exit_code == 0:
        return
    remedy = ""
    if source.host and re.search(r'UNAUTHORIZED|DENIED|authentication required|\b40[13]\b', done.output):
        remedy = "Log in with `%s registry login --username NAME docker://%s`." % (runtime_name(), source.host)
    elif 'no space left' in done.output:
        remedy = "Make room there, or choose another directory for temporary files ({0}_TMPDIR) or for the " \
            "runtime's cache ({0}_CACHEDIR).".format(runtime_name().upper())
    lines = done.output.strip().splitlines()[-SHOWN_LINES:]
    shown = [os.path.basename(one) if one == made else one for one in command]
    raise FetchError("%s can't be fetched with `%s`:\n%s\n%s" % (
        source, ' '.join(shown), '\n'.join('  ' + line for line in lines), remedy))


def check_digest(source: ImageSource, found: str) -> str:
    """Return the digest that was found; raise EasyBuildError if the source has another one."""
    if source.digest not in (None, found):
        raise ContentError("%s has the wrong digest: %s. The image was altered or truncated, at its source or during "
                           "the transfer. Nothing was kept." % (source, found))
    return found
