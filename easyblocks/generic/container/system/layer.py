##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Pack what has changed in a copy of directories of an image as a layer: an overlay over the image (overlay.py).
"""
import os
import re
import stat
import time
from typing import Dict, Iterable, List, Set, Tuple

from .. import overlay
from ..copying import copy_hashed
from ..framework import RunShellCmdResult
from ..runtime import InstallContainer
from ..usersoftware import FILE_TIME
from ..written import ANY_SIZE, open_written

# What doesn't belong to the layer: accounts, files of this machine, what only this run needs.
EXCLUDED = re.compile(r"""(?:
    (?:var/(?:run|lock)|var/lib/apt/(?:lists|periodic)|run)(?:/.*)?
    |var/lib/apt/extended_states|var/lib/dpkg/(?:lock.*|.*-old|triggers/Lock|updates/.*|.*-new)
    |etc/(?:passwd|group|shadow|gshadow|subuid|subgid)-?|etc/(?:hosts|hostname|resolv\.conf|localtime|mtab|timezone)
    |etc/\.pwd\.lock|etc/ld\.so\.cache|usr/sbin/policy-rc\.d|.*\.pyc\.\d+
    )\Z""", re.VERBOSE)

# Logs and caches don't either, unless they are part of a package.
CACHES = re.compile(r'var/(?:log|cache|tmp|backups)(?:/.*)?\Z')

# zstd first, see make-squashfs; not every mksquashfs and every runtime has it.
COMPRESSION = (['-comp', 'zstd', '-Xcompression-level', '5'], ['-comp', 'gzip'])
UNCOMPRESSED = ['-noI', '-noD', '-noF', '-noX']


class Layer:
    """The changes of a copy of directories of an image."""

    def __init__(self, container: InstallContainer, root: str, folder: str) -> None:
        """Remember the state of the copy, `root`; `container` has the image, `folder` is for temporary files."""
        self.container = container
        self.root = root
        self.folder = folder
        self.staged = os.path.join(folder, 'staged')
        self.started = time.time() - 1
        self.before = self.state()
        self.changed: List[str] = []
        self.gone: List[str] = []
        self.left_out: List[str] = []

    def path(self, path: str) -> str:
        """Return the path of a file in the copy."""
        return os.path.join(self.root, path)

    def make(self, target: str, listed: Iterable[str]) -> None:
        """Find what has changed, and pack it; `listed` are the paths that the packages have, relative to the root."""
        self.find_differences(set(listed))
        self.stage()
        self.add_linker_cache()
        self.pack(target)

    def replaced(self) -> List[str]:
        """Return the files of the image that were replaced, in the image."""
        return ['/' + path for path in self.changed
                if path in self.before and not stat.S_ISDIR(os.lstat(self.path(path)).st_mode)]

    def state(self) -> Dict[str, Tuple[int, ...]]:
        """Return what shows whether a file or directory of the copy has changed, by path."""
        state: Dict[str, Tuple[int, ...]] = {}
        for folder, names, files in os.walk(self.root):
            for name in names + files:
                path = os.path.join(folder, name)
                entry = os.lstat(path)
                state[os.path.relpath(path, self.root)] = (entry.st_mode,) if stat.S_ISDIR(entry.st_mode) else (
                    entry.st_mode, entry.st_ino, entry.st_ctime_ns)
        return state

    def find_differences(self, listed: Set[str]) -> None:
        """
        Set the paths that have changed or are new, and those that are gone (only the top of each tree).

        What packages have and the layer won't have is left out.
        """
        after = self.state()
        for path, value in sorted(after.items()):
            if self.before.get(path) == value:
                continue
            if not EXCLUDED.match(path) and (path in listed or not CACHES.match(path)):
                self.changed.append(path)
            elif path in listed:
                self.left_out.append(path)
        # something else in the place of a directory hides it as a whole
        self.gone = sorted(path for path in self.before
                           if path not in after and not EXCLUDED.match(path) and not CACHES.match(path)
                           and stat.S_ISDIR(after.get(os.path.dirname(path), (0,))[0]))

    def stage(self) -> None:
        """Make a directory with links to the files that have changed."""
        for path in self.changed:
            source, target = self.path(path), os.path.join(self.staged, path)
            entry = os.lstat(source)
            if stat.S_ISDIR(entry.st_mode):
                self.add_folder(path)
            elif stat.S_ISREG(entry.st_mode) or stat.S_ISLNK(entry.st_mode):
                self.add_folder(os.path.dirname(path))
                if stat.S_ISREG(entry.st_mode):
                    # nobody is root here
                    with open_written(source, self.root, ANY_SIZE) as file:
                        os.fchmod(file.fileno(), stat.S_IMODE(entry.st_mode) & 0o777)
                if entry.st_mtime > self.started:
                    # written just now; the same time in each run
                    os.utime(source, (FILE_TIME, FILE_TIME), follow_symlinks=False)
                os.link(source, target, follow_symlinks=False)
        for path in self.gone:
            self.add_folder(os.path.dirname(path))

    def add_folder(self, path: str) -> None:
        """Make a directory of the layer and those above it; they hide those of the image, and have the same modes."""
        target = os.path.join(self.staged, path)
        if os.path.isdir(target):
            return
        if path:
            self.add_folder(os.path.dirname(path))
        os.mkdir(target)
        os.chmod(target, stat.S_IMODE(os.stat(self.path(path)).st_mode) & 0o1777 | 0o700)

    def pack(self, target: str) -> None:
        """Write the layer, with the first kind of compression that mksquashfs and the runtime have."""
        for options in COMPRESSION[:-1]:
            if not self.squash(target, options, fail_on_error=False).exit_code and \
                    not self.over_image(target).run(['true'], fail_on_error=False).exit_code:
                return
        self.squash(target, COMPRESSION[-1])

    def squash(self, target: str, options: List[str], fail_on_error: bool = True) -> RunShellCmdResult:
        """Write the overlay, in which files that are gone are hidden."""
        return overlay.write(self.staged, target, map(overlay.hidden, self.gone), options, fail_on_error)

    def over_image(self, layer: str) -> InstallContainer:
        """Return a container with a layer."""
        container = InstallContainer(self.container.runtime, self.container.image, self.folder)
        container.overlays = [layer]
        return container

    def add_linker_cache(self) -> None:
        """Add ld.so.cache, made with the layer over the whole image: the copies lack libraries in other directories."""
        draft, cache = os.path.join(self.folder, 'draft.squashfs'), os.path.join(self.folder, 'ld.so.cache')
        self.squash(draft, UNCOMPRESSED)
        self.over_image(draft).run(['/sbin/ldconfig', '-X', '-C', cache])
        os.remove(draft)
        self.add_folder('etc')
        path = os.path.join(self.staged, 'etc', 'ld.so.cache')
        with open_written(cache, self.folder) as file:
            copy_hashed(file, path)
        os.chmod(path, 0o644)
        os.utime(path, (FILE_TIME, FILE_TIME))
