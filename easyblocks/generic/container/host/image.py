##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The libraries of an image: found as its loader finds them, and copied to the build directory, where they are read.
"""
import os
from typing import Dict, Sequence

from easybuild.tools.filetools import mkdir, remove_dir

from .elf import libraries_in
from .libraries import ImageLibrary
from .loader import DEFAULT_FOLDERS
from ..imageprograms import sh_command
from ..runtime import InstallContainer
from ..written import BLOCKS, MOST_WRITTEN, UnfitError, open_written, read_written


def read_libraries(container: InstallContainer, names: Sequence[str]) -> Dict[str, ImageLibrary]:
    """Return those of some libraries that the image has, by name; starts it twice."""
    folder = os.path.join(container.work_dir, 'image-libraries')
    remove_dir(folder)
    mkdir(folder)
    container.run(sh_command('image-libraries.sh', BLOCKS, folder), split_stderr=True, limited=True)
    search_path = [one for one in read_written(os.path.join(folder, 'search-path'), folder).split(':') if one]
    cache = libraries_in(read(folder, 'cache'))
    # LD_LIBRARY_PATH comes before the cache, the cache before the default directories
    wanted = [':'.join([name, *(os.path.join(place, name) for place in search_path), *cache.get(name, []),
                        *(os.path.join(place, name) for place in DEFAULT_FOLDERS)]) for name in names]
    container.run(sh_command('image-libraries.sh', BLOCKS, folder, *wanted), split_stderr=True, limited=True)
    lines = [line.partition('\t') for line in read_written(os.path.join(folder, 'paths'), folder).splitlines()]
    found = {name: ImageLibrary.of(path, read(folder, name)) for name, _, path in lines if name in names}
    remove_dir(folder)
    return {name: one for name, one in found.items() if one}


def read(folder: str, name: str) -> bytes:
    """Return the content of one of the copied files, b'' if there is none."""
    try:
        with open_written(os.path.join(folder, name), folder) as file:
            return file.read(MOST_WRITTEN)
    except (OSError, UnfitError):
        return b''
