##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The Jupyter kernel of a module: share/jupyter/kernels/NAME in the installation, for those who know that directory.
"""
import json
import os
import re

from .readable import copy_readable, write_readable
from .scripts import FILES
from .texts import shown_module

# What the module adds to JUPYTER_PATH, relative to the installation.
JUPYTER = os.path.join('share', 'jupyter')
# The program that starts a kernel.
START_KERNEL = os.path.join('share', 'ebsif', 'kernel')
# What Jupyter may replace in the arguments (some names, and more if it has other launchers), and nothing keeps it from
# that. In the values of variables ('env'), it replaces $NAME, so there are none.
SUBSTITUTED = re.compile(r'\{[A-Za-z0-9_]+\}')
LOGOS = [os.path.join(FILES, JUPYTER, name) for name in ('logo-64x64.png', 'logo-svg.svg')]


def kernel_name(module):
    """Return the name of the kernel of a module (str); Jupyter allows no slash, and finds only lower case."""
    return re.sub(r'[^a-z0-9._-]+', '-', shown_module(module).lower()).strip('-.')


def kernel_title(module):
    """Return the name of the kernel in Jupyter's menus (str)."""
    name, _, version = shown_module(module).rpartition('/')
    number, _, suffix = version.partition('-')
    return '%s %s%s' % (name, number, ' (%s)' % suffix if suffix else '')


def kernel_spec(program, title, module, arguments=()):
    """
    Return the text of kernel.json.

    Parameters
    ----------
    program, arguments : str, list of str
        What starts the kernel. In the directory of an installation '{resource_dir}', which stands for the directory of
        kernel.json, makes the program independent of the path. Jupyter knows it since jupyter_client 5.2 (2018), VS
        Code since 2025.2. See also `SUBSTITUTED`.
    title : str
        The name in menus.
    module : str
        The name of the module, by which `ebsif kernel` knows its kernels.
    """
    return json.dumps({'argv': [program] + list(arguments) + ['-f', '{connection_file}'], 'display_name': title,
                       'language': 'python', 'interrupt_mode': 'signal',
                       'metadata': {'debugger': True, 'ebsif': {'module': module}}}, indent=2) + '\n'


def install_kernel(installdir, module):
    """Install the kernel of a module, readable for everybody regardless of the umask (J-01)."""
    folder = os.path.join(installdir, JUPYTER, 'kernels', kernel_name(module))
    program = os.path.relpath(os.path.join(installdir, START_KERNEL), folder)
    write_readable(os.path.join(folder, 'kernel.json'),
                   kernel_spec(os.path.join('{resource_dir}', program), kernel_title(module), module))
    for logo in LOGOS:
        copy_readable(logo, os.path.join(folder, os.path.basename(logo)))
