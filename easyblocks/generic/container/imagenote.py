##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Notes beside images in the source path: where each image was fetched from, for installations later on.
"""
import json
import os

from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.sharedimage import InstalledImage
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import write_file

# Keys of a note: source (with digest), its digest, and the SHA256 of the SIF file.
SOURCE, SOURCE_DIGEST, SHA256 = 'source', 'source_digest', 'sha256'


def note_path(image):
    """Return the path of the note on an image (str)."""
    return image + '.source.json'


def read_note(image):
    """Return the note on an image: where it was fetched from (dict), empty without one."""
    try:
        with open(note_path(image)) as text:
            note = json.load(text)
    except (OSError, ValueError):
        return {}
    is_note = isinstance(note, dict) and all(isinstance(note.get(key), str) for key in (SOURCE, SOURCE_DIGEST, SHA256))
    return note if is_note else {}


def write_note(image, source, sha256):
    """Write where an image with this SHA256 is from (ImageSource), before the image gets its name."""
    note = {SOURCE: str(source), SOURCE_DIGEST: source.digest, SHA256: sha256}
    write_file(note_path(image), json.dumps(note, indent=2, sort_keys=True) + '\n', forced=True)
    os.chmod(note_path(image), 0o644)


def origin_of(image, sha256):
    """
    Return where an image is from, for the record (dict).

    Parameters
    ----------
    image : str
        Path of the image that was installed: with a note, or the own one of another installation.
    sha256 : str
        Its SHA256: notes and records on other contents don't count.

    Returns
    -------
    dict
        Source and digest; the path if that is all that is known.
    """
    for known in (read_note(image), InstalledImage(os.path.dirname(os.path.realpath(image))).image):
        if known.get(SHA256) == sha256 and known.get(SOURCE_DIGEST):
            return {key: known[key] for key in (SOURCE, SOURCE_DIGEST)}
    return {SOURCE: image}


def check_note(image, source):
    """
    Check that an image in the source path was fetched from the digest that the easyconfig names.

    Parameters
    ----------
    image : str
        Path.
    source : ImageSource

    Returns
    -------
    str
        A warning if the easyconfig names no digest, and the note says which one it was; None otherwise.

    Raises
    ------
    EasyBuildError
        If it is another digest.
    """
    note = read_note(image)
    if not note:
        return None
    digest = note[SOURCE_DIGEST]
    if source.digest is None:
        return "'image_source' names no digest: %s may become another image. To always get this one, write: " \
            "image_source = '%s'" % (source, source.with_digest(digest))
    if source.digest != digest:
        raise EasyBuildError("%s was made from %s, and the easyconfig names %s. Give the image in 'sources' another "
                             "name, or remove this file (and %s).", image, note[SOURCE], source, note_path(image),
                             exit_code=EasyBuildExit.FAIL_CHECKSUM)
    return None


def check_content(image, sha256):
    """
    Check that an image in the source path is what was fetched.

    Parameters
    ----------
    image : str
        Path, with a note.
    sha256 : str
        Its SHA256.

    Raises
    ------
    EasyBuildError
        If it was altered or truncated.
    """
    note = read_note(image)
    if note and note[SHA256] != sha256:
        raise EasyBuildError("The image %s is not what was fetched from %s: its SHA256 is %s, and was %s. Remove it "
                             "(and %s): then `eb` fetches it again.", image, note[SOURCE], sha256, note[SHA256],
                             note_path(image), exit_code=EasyBuildExit.FAIL_CHECKSUM)
