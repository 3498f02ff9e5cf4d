##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Where the files are that are installed, and the programs that run in an image at install time.
"""
import os

# links resolved: --include-easyblocks links easyblocks into a directory of EasyBuild's
FILES = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'files')
# what copy-pip.py ends with where the image has no pip that could be copied
NO_PIP_TO_COPY = 3
# how make-squashfs begins the line that says what it has made
PACKED = 'make-squashfs: made '


def program_for_image(name):
    """
    Return the text of a program for the image (str): Python reads it from standard input, sh gets it with -c.

    The image sees the build directory, not the place where EasyBuild keeps its easyblocks.
    """
    folder = 'sh' if name.endswith('.sh') else os.path.join('share', 'ebsif')
    with open(os.path.join(FILES, folder, name)) as text:
        return text.read()


def sh_command(name, *arguments):
    """Return the command that runs a program for sh in the image (list of str), one that every image has."""
    return ['sh', '-c', program_for_image(name), name] + list(arguments)


def ebsif_version():
    """Return the version of this software (str), which is beside what it installs."""
    with open(os.path.join(FILES, 'VERSION')) as text:
        return text.read().strip()
