##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Masks: files of an image that are hidden or replaced in the container, while the image stays as it is.

The means is an overlay, a small SquashFS file that the runtime mounts over the image. In it a character device 0,0
hides what has its name (a whiteout, see overlayfs in the documentation of Linux), and a symbolic link replaces it.
"""
import os

from easybuild.easyblocks.generic.container.runtime import run_program
from easybuild.easyblocks.generic.container.scripts import sh_command
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir

# The overlay with the masks, in an installation.
MASKS = os.path.join('share', 'ebsif', 'masks.squashfs')

# what is there is none of the image's, or the container can't start without it
REFUSED = ('/dev', '/proc', '/sys', '/user-software', '/runscripts', '/.singularity.d')


class Masks:
    """
    The masks of an image: patterns of paths, each with nothing (hidden) or the path of what replaces the matches.

    Attributes
    ----------
    patterns : dict
        Replacement (str) or None, by pattern.
    found : dict
        Paths in the image (list of str), by pattern; set by ``find``.
    """

    def __init__(self, value):
        """
        Keep the value of the easyconfig parameter 'masked_paths'.

        Parameters
        ----------
        value : list of str, or dict
            Patterns, or replacements (or None) by pattern.
        """
        self.patterns = value if isinstance(value, dict) else dict.fromkeys(value)
        self.found = {}

    def check(self):
        """
        Check the patterns and what replaces them.

        Raises
        ------
        EasyBuildError
            If a path can't be masked.
        """
        for path in list(self.patterns) + [path for path in self.patterns.values() if path is not None]:
            self.check_path(path)

    @staticmethod
    def check_path(path):
        """Stop for a path that can't be masked or can't replace one."""
        problem = None
        if not path.startswith('/') or os.path.normpath(path) != path or path == '/':
            problem = "it should be a full path, without '..' and without a slash at the end"
        elif any(ord(char) < 32 or char == '\x7f' for char in path):
            problem = "it has a control character"
        elif any(path == top or path.startswith(top + '/') for top in REFUSED):
            problem = "there is nothing of the image there; files in /user-software can be removed by a command in " \
                      "'post' of a stage"
        if problem:
            raise EasyBuildError("Easyconfig parameter 'masked_paths': '%s' can't be used: %s", path, problem)

    def __bool__(self):
        """Whether there are any."""
        return bool(self.patterns)

    @property
    def record(self):
        """What is masked, for the lock file: by pattern the paths and, if there is one, the replacement."""
        record = {}
        for pattern, paths in self.found.items():
            record[pattern] = {'paths': paths}
            if self.patterns[pattern]:
                record[pattern]['replacement'] = self.patterns[pattern]
        return record

    @property
    def lines(self):
        """A line of text for each pattern, for people."""
        return [pattern + (' (replaced by %s)' % replacement if replacement else ' (hidden)')
                for pattern, replacement in sorted(self.patterns.items())]

    def find(self, container):
        """
        Find what the patterns match in the image.

        Parameters
        ----------
        container : Container

        Raises
        ------
        EasyBuildError
            If a pattern matches nothing: a mask that does nothing is a mistake.
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
        """Return what the overlay holds, as pseudo file definitions of mksquashfs (list of str)."""
        masked = {path: self.patterns[pattern] for pattern, paths in self.found.items() for path in paths}
        # the directories show through the overlay, so they keep the modes they have in the image
        folders = sorted({folder for path in masked for folder in parents(path)})
        lines = output(container, sh_command('directory-modes.sh', *folders)).splitlines()
        modes = [line.split(' ', 1) for line in lines]
        definitions = ['%s d %s 0 0' % (quoted(folder), mode) for mode, folder in modes]
        for path, replacement in sorted(masked.items()):
            if replacement:
                definitions.append('%s s 777 0 0 %s' % (quoted(path), replacement))
            else:
                definitions.append('%s c 000 0 0 0 0' % quoted(path))
        return definitions


def output(container, command):
    """Return what a command in the container prints (str)."""
    return container.run(command, hidden=True, split_stderr=True).output


def parents(path):
    """Return the directories above a path, without the root, the uppermost first."""
    parts = path.strip('/').split('/')
    return ['/' + '/'.join(parts[:count]) for count in range(1, len(parts))]


def quoted(path):
    """Return a path as a name in a pseudo file definition."""
    return '"%s"' % path.strip('/').replace('\\', '\\\\').replace('"', '\\"')
