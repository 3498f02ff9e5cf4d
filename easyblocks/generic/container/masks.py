##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Masks: hide or replace files of an image in the container, without changing the image.

They are implemented as a small overlay (overlay.py), which hides a file, or has a symbolic link in its place.
"""
import os
import re
from typing import Dict, List, Optional, Union

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir
from easybuild.tools.utilities import trace_msg

from . import overlay
from .copying import copy_hashed
from .imageprograms import lines_after, sh_command
from .runtime import InstallContainer
from .values import MODULE_DIRECTORIES, is_in_any
from .written import UnfitError, escape, open_written, path_problem

# The overlay with the masks, in an installation.
MASKS = os.path.join('share', 'ebsif', 'masks.squashfs')

# directories that don't belong to the image, or that the container needs to start
REFUSED = ('/dev', '/proc', '/sys') + MODULE_DIRECTORIES


def mask_problem(path: str) -> Optional[str]:
    """Return why a path can't be masked or used as a replacement, or None."""
    problem = path_problem(path)
    if not problem and is_in_any(path, REFUSED):
        problem = "that directory doesn't belong to the image; to remove files in /user-software, use a command " \
                  "in 'post' of a stage"
    return problem and "can't be used: %s" % problem


class Masks:
    """
    The masks of an image: path patterns, each with the path of a replacement, or None to hide the matches.

    ``find`` sets the paths in the image by pattern (found), and the octal modes of their directories by path (folders).
    """

    def __init__(self, value: Union[List[str], Dict[str, Optional[str]]]) -> None:
        """Store the easyconfig parameter 'masked_paths': patterns, or replacements (or None) by pattern."""
        self.patterns: Dict[str, Optional[str]] = value if isinstance(value, dict) else dict.fromkeys(value)
        self.found: Dict[str, List[str]] = {}
        self.folders: Dict[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether there are any masks."""
        return bool(self.patterns)

    @property
    def record(self) -> Dict[str, Dict[str, object]]:
        """The masks for the record: paths, and replacement if there is one, by pattern."""
        record: Dict[str, Dict[str, object]] = {pattern: {'paths': paths} for pattern, paths in self.found.items()}
        for pattern in record:
            if self.patterns[pattern]:
                record[pattern]['replacement'] = self.patterns[pattern]
        return record

    @property
    def lines(self) -> List[str]:
        """A description of each pattern, for the help text of the module."""
        return [pattern + (' (replaced by %s)' % replacement if replacement else ' (hidden)')
                for pattern, replacement in sorted(self.patterns.items())]

    def apply(self, container: InstallContainer) -> None:
        """Find the files to mask, and mask them in a container, by an overlay in its working directory."""
        path = os.path.join(container.work_dir, os.path.basename(MASKS))
        self.find(container)
        self.pack(path, container.work_dir)
        container.overlays.append(path)
        for pattern, paths in sorted(self.found.items()):
            trace_msg("masking %s: %d in the image" % (pattern, len(paths)))

    def install(self, work_dir: str, installdir: str) -> None:
        """Install the overlay from the working directory of the container, if there are masks."""
        if self:
            with open_written(os.path.join(work_dir, os.path.basename(MASKS)), work_dir) as file:
                copy_hashed(file, os.path.join(installdir, MASKS))

    def find(self, container: InstallContainer) -> None:
        """Find the files in the image that match the patterns; refuse a pattern that matches nothing."""
        patterns = list(self.patterns)
        self.found = {pattern: [] for pattern in patterns}
        result = container.run(sh_command('find-paths.sh', *patterns), split_stderr=True)
        for line in lines_after('folder', result.output):
            mode, _, path = line.partition(' ')
            if path_problem(path) or not re.match(r'[0-7]{3,4}\Z', mode):
                raise UnfitError("The image has a directory that can't be in an overlay: %s" % escape(line))
            self.folders[path] = mode
        for line in lines_after('mask', result.output):
            number, _, path = line.partition(' ')
            problem = mask_problem(path)
            if problem:
                raise EasyBuildError("Easyconfig parameter 'masked_paths': '%s' %s", path, problem)
            if not re.match(r'[0-9]+\Z', number) or int(number) >= len(patterns):
                raise UnfitError("The image has found a file for a pattern that isn't in 'masked_paths': %s"
                                 % escape(line))
            if path not in self.found[patterns[int(number)]]:
                self.found[patterns[int(number)]].append(path)
        nothing = [pattern for pattern in patterns if not self.found[pattern]]
        if nothing:
            raise EasyBuildError("Easyconfig parameter 'masked_paths': nothing in the image matches %s",
                                 ', '.join("'%s'" % pattern for pattern in nothing))

    def pack(self, target: str, work_dir: str) -> None:
        """Write the overlay, a SquashFS file."""
        overlay.check_mksquashfs('masked_paths')
        empty = os.path.join(work_dir, 'empty')
        mkdir(empty, parents=True)
        os.chmod(empty, 0o755)
        overlay.write(empty, target, self.files(), ['-comp', 'gzip'])

    def files(self) -> List[overlay.PseudoFile]:
        """Return the contents of the overlay."""
        # directories of the overlay hide directories of the image, so they have the same modes
        folders = [overlay.folder(path, mode) for path, mode in sorted(self.folders.items())]
        masked = {path: self.patterns[pattern] for pattern, paths in self.found.items() for path in paths}
        return folders + [overlay.link(path, replacement) if replacement else overlay.hidden(path)
                          for path, replacement in sorted(masked.items())]
