##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Directories with an OCI layout: where index and blobs are, and which entry of the index a tag or a digest means.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md. Doesn't import EasyBuild, so that commands can
use it too.
"""
import json
import os
import re
from typing import Any, Dict, List, Optional, Sequence

# what marks the directory, and the file with its entries
MARK, INDEX = 'oci-layout', 'index.json'
VERSION = {'imageLayoutVersion': '1.0.0'}
# https://github.com/opencontainers/image-spec/blob/main/annotations.md
TAG = 'org.opencontainers.image.ref.name'
# those that every registry has to support
DIGEST = re.compile(r'(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z')

# An entry of the index, as others wrote it: media type, digest, size, perhaps annotations ...
IndexEntry = Dict[str, Any]


class LayoutError(ValueError):
    """A directory has no OCI layout, or one that is damaged; the message says what."""


def read_index(folder: str) -> Dict[str, Any]:
    """Return the index of a layout, in which 'manifests' is a list of entries with valid digests."""
    path = os.path.join(folder, INDEX)
    try:
        with open(path, encoding='utf-8') as text:
            content = json.load(text)
    except FileNotFoundError:
        raise LayoutError("%s is not a directory with an OCI layout (%s does not exist)" % (folder, path)) from None
    except (ValueError, RecursionError):
        content = None
    index: Dict[str, Any] = content if isinstance(content, dict) else {'manifests': None}
    entries = index.setdefault('manifests', [])
    if not isinstance(entries, list) or not all(map(is_entry, entries)):
        raise LayoutError("%s is damaged: not the index of an OCI layout" % path)
    return index


def is_entry(value: object) -> bool:
    """Return whether a value is an entry of an index: it has a digest."""
    return isinstance(value, dict) and is_digest(value.get('digest')) and \
        isinstance(value.get('annotations') or {}, dict)


def is_digest(value: object) -> bool:
    """Return whether a value is a digest."""
    return isinstance(value, str) and bool(DIGEST.match(value))


def tag_of(entry: IndexEntry) -> Optional[str]:
    """Return the tag of an entry; None if it has none."""
    tag = (entry.get('annotations') or {}).get(TAG)
    return tag if isinstance(tag, str) else None


def entries_named(entries: Sequence[IndexEntry], name: Optional[str]) -> List[IndexEntry]:
    """
    Return the entries that a tag or a digest means; without one those with a tag, if there are any, else all.

    What has lost its tag to another entry, or belongs to an image, such as a signature, is meant only by its digest.
    """
    if name:
        return [one for one in entries if name in (one['digest'], tag_of(one))]
    return [one for one in entries if tag_of(one)] or list(entries)


def blob_path(folder: str, digest: str) -> str:
    """Return the path of a blob in a layout; raise LayoutError for a digest that may lead out of it."""
    if not is_digest(digest):
        raise LayoutError("%r is no digest" % (digest,))
    return os.path.join(folder, 'blobs', *digest.split(':'))
