##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Masks: hide or replace files of an image in the container, without changing the image.

They are implemented as an overlay, a small SquashFS file that the runtime mounts over the image. In it, a character
device 0,0 hides the file of the same name (a whiteout, see overlayfs in the documentation of Linux), and a symbolic
link replaces it.
"""
import os
import re

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import copy_file, mkdir, which
from easybuild.tools.utilities import trace_msg

from .framework import EasyBuildExit
from .runtime import run_program
from .scripts import sh_command

# The overlay with the masks, in an installation.
MASKS = os.path.join('share', 'ebsif', 'masks.squashfs')

# directories that don't belong to the image, or that the container needs to start
REFUSED = ('/dev', '/proc', '/sys', '/user-software', '/runscripts', '/.singularity.d')


class Masks:
    """
    The masks of an image: path patterns, each with the path of a replacement, or None to hide the matches.

    Attributes
    ----------
    patterns : dict
        Replacement (str) or None, by pattern.
    found : dict
        Paths in the image (list of str), by pattern; set by ``find``.
    """

    def __init__(self, value):
        """
        Take the value of the easyconfig parameter 'masked_paths'.

        Parameters
        ----------
        value : list of str, or dict
            Patterns, or replacements (or None) by pattern.
        """
        self.patterns = value if isinstance(value, dict) else dict.fromkeys(value)
        self.found = {}

    def check(self):
        """
        Check the patterns and the replacements.

        Raises
        ------
        EasyBuildError
            If a path can't be masked.
        """
        for path in list(self.patterns) + [path for path in self.patterns.values() if path is not None]:
            self.check_path(path)

    @staticmethod
    def check_path(path):
        """Refuse a path that can't be masked or used as a replacement."""
        problem = None
        if not path.startswith('/') or os.path.normpath(path) != path or path == '/':
            problem = "it should be a full path, without '..' and without a trailing slash"
        elif any(ord(char) < 32 or char == '\x7f' for char in path):
            problem = "it contains a control character"
        elif any(path == top or path.startswith(top + '/') for top in REFUSED):
            problem = "that directory doesn't belong to the image; to remove files in /user-software, use a command " \
                      "in 'post' of a stage"
        if problem:
            raise EasyBuildError("Easyconfig parameter 'masked_paths': '%s' can't be used: %s", path, problem)

    def check_machine(self, *directories):
        """Check that masks can be made on this machine, and mounted from these directories; raises EasyBuildError."""
        for path in directories:
            if re.search('[,:]', path):
                raise EasyBuildError("'masked_paths' needs a directory without comma and colon: the container runtime "
                                     "can't mount an overlay from %s", path)
        if not which('mksquashfs', log_ok=False, on_error='ignore'):
            raise EasyBuildError("mksquashfs not found on PATH, but 'masked_paths' needs it: install the package "
                                 "squashfs-tools, or run eb on a node that has it.",
                                 exit_code=EasyBuildExit.MISSING_SYSTEM_DEPENDENCY)

    def __bool__(self):
        """Return whether there are any masks."""
        return bool(self.patterns)

    @property
    def record(self):
        """The masks for the record: paths and replacement (if any) by pattern (dict)."""
        record = {}
        for pattern, paths in self.found.items():
            record[pattern] = {'paths': paths}
            if self.patterns[pattern]:
                record[pattern]['replacement'] = self.patterns[pattern]
        return record

    @property
    def lines(self):
        """A description of each pattern (list of str)."""
        return [pattern + (' (replaced by %s)' % replacement if replacement else ' (hidden)')
                for pattern, replacement in sorted(self.patterns.items())]

    def apply(self, container):
        """Find the files to mask, and mask them in a container, by an overlay in its working directory."""
        overlay = os.path.join(container.work_dir, os.path.basename(MASKS))
        self.find(container)
        self.pack(overlay, container)
        container.overlays.append(overlay)
        for pattern, found in sorted(self.record.items()):
            trace_msg("masking %s: %d in the image" % (pattern, len(found['paths'])))

    def install(self, work_dir, installdir):
        """Install the overlay from the working directory of the container, if there are masks."""
        if self:
            copy_file(os.path.join(work_dir, os.path.basename(MASKS)), os.path.join(installdir, MASKS))

    def find(self, container):
        """
        Find the files in the image that match the patterns.

        Parameters
        ----------
        container : Container

        Raises
        ------
        EasyBuildError
            If a pattern matches nothing, because a mask without effect is a mistake.
        """
        patterns = list(self.patterns)
        self.found = {pattern: [] for pattern in patterns}
        for line in output(container, sh_command('find-paths.sh', *patterns)).splitlines():
            number, path = line.split(' ', 1)
            self.check_path(path)
            if path not in self.found[patterns[int(number)]]:
                self.found[patterns[int(number)]].append(path)
        nothing = [pattern for pattern in patterns if not self.found[pattern]]
        if nothing:
            raise EasyBuildError("Easyconfig parameter 'masked_paths': nothing in the image matches %s",
                                 ', '.join("'%s'" % pattern for pattern in nothing))

    def pack(self, target, container):
        """
        Write the overlay.

        Parameters
        ----------
        target : str
            The SquashFS file to make.
        container : Container
        """
        empty = os.path.join(container.work_dir, 'empty')
        mkdir(empty, parents=True)
        os.chmod(empty, 0o755)
        command = ['mksquashfs', empty, target, '-noappend', '-all-root', '-no-xattrs', '-no-progress', '-comp', 'gzip']
        for definition in self.definitions(container):
            command += ['-p', definition]
        run_program(command, hidden=True)

    def definitions(self, container):
        """Return the contents of the overlay as pseudo file definitions for mksquashfs (list of str)."""
        masked = {path: self.patterns[pattern] for pattern, paths in self.found.items() for path in paths}
        # directories of the overlay hide those of the image, so give them the same modes
        folders = sorted({folder for path in masked for folder in parents(path)})
        lines = output(container, sh_command('directory-modes.sh', *folders)).splitlines()
        modes = [line.split(' ', 1) for line in lines]
        definitions = ['%s d %s 0 0' % (quote(folder), mode) for mode, folder in modes]
        for path, replacement in sorted(masked.items()):
            if replacement:
                definitions.append('%s s 777 0 0 %s' % (quote(path), replacement))
            else:
                definitions.append('%s c 000 0 0 0 0' % quote(path))
        return definitions


def output(container, command):
    """Return the output of a command in the container (str)."""
    return container.run(command, hidden=True, split_stderr=True).output


def parents(path):
    """Return the parent directories of a path except the root, topmost first."""
    parts = path.strip('/').split('/')
    return ['/' + '/'.join(parts[:count]) for count in range(1, len(parts))]


def quote(path):
    """Return a path quoted for a pseudo file definition."""
    return '"%s"' % path.strip('/').replace('\\', '\\\\').replace('"', '\\"')
