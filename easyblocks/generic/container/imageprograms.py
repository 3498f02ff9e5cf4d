##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The files beside the easyblocks (files/), and programs among them that run in an image.
"""
import os
from typing import List

# resolve links: --include-easyblocks links easyblocks into a directory of EasyBuild's
FILES = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'files')
# the program that imports packages; it is also in user software, for pip by hand
IMPORTS = 'ebsif_imports.py'


def read_program(name: str) -> str:
    """
    Return the text of a program to run in the image, for Python's standard input or `sh -c`.

    It is passed as text because the directory of the easyblocks isn't visible in the image.
    """
    folder = 'sh' if name.endswith('.sh') else os.path.join('share', 'ebsif')
    folder = 'site-packages' if name == IMPORTS else folder
    with open(os.path.join(FILES, folder, name)) as text:
        return text.read()


def sh_command(name: str, *arguments: str) -> List[str]:
    """
    Return the command that runs a program in the image with sh, which every image has.

    EasyBuild's log has the command, so comments are left out.
    """
    lines = [line for line in read_program(name).splitlines() if not line.lstrip().startswith('#')]
    return ['sh', '-c', '\n'.join(lines), name] + list(arguments)


def lines_after(word: str, output: str) -> List[str]:
    """
    Return what a program in the image has printed after a word at the beginning of each line.

    Scripts of the image that run when a container starts may print other lines.
    """
    return [line[len(word) + 1:] for line in output.splitlines() if line.startswith(word + ' ')]


def ebsif_version() -> str:
    """Return the version of ebsif."""
    with open(os.path.join(FILES, 'VERSION')) as text:
        return text.read().strip()
