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

from .imageprograms import FILES
from .permissions import copy_readable, write_readable
from .values import USER_SOFTWARE_VARIABLE, VENV_VARIABLE, shown_module

# What the module adds to JUPYTER_PATH, and the program that starts a kernel, relative to the installation.
JUPYTER = os.path.join('share', 'jupyter')
INTERPRETER = os.path.join('interpreter', 'python')
LOGO = os.path.join(FILES, JUPYTER, 'logo-64x64.png')
# What Jupyter may replace in the program of a kernel (some names, and more if it has other launchers).
SUBSTITUTED = re.compile(r'\{[A-Za-z0-9_]+\}')


def kernel_name(module: str) -> str:
    """Return the name of the kernel of a module; Jupyter allows no slash, and finds only lower case."""
    return re.sub(r'[^a-z0-9._-]+', '-', shown_module(module).lower()).strip('-.')


def kernel_title(module: str) -> str:
    """Return the name of the kernel in Jupyter's menus."""
    name, _, version = shown_module(module).rpartition('/')
    number, _, suffix = version.partition('-')
    return '%s %s%s' % (name, number, ' (%s)' % suffix if suffix else '')


def kernel_spec(python: str, title: str, module: str, venv: str = '', user_software: str = '', newest: str = '') -> str:
    """
    Return the text of kernel.json: ipykernel, started by the interpreter of an installation.

    ``title`` is the name in menus, ``module`` the one by which `ebsif kernel` knows its kernels. ``venv`` and
    ``user_software`` are paths without '$', which Jupyter may replace. If ``python`` starts the newest extension of a
    name, ``newest`` is the path of these installations without the date. In the directory of an installation,
    '{resource_dir}' in ``python`` stands for the directory of kernel.json, so that a copy works. Jupyter knows it since
    jupyter_client 5.2 (2018), VS Code since 2025.2.
    """
    # also empty: the kernel shouldn't get the environment in which Jupyter itself runs
    variables = {VENV_VARIABLE: venv}
    if user_software:
        variables[USER_SOFTWARE_VARIABLE] = user_software
    about = {'module': module, 'newest': newest} if newest else {'module': module}
    return json.dumps({'argv': [python, '-m', 'ipykernel_launcher', '-f', '{connection_file}'], 'env': variables,
                       'display_name': title, 'language': 'python', 'interrupt_mode': 'signal',
                       'metadata': {'debugger': True, 'ebsif': about}}, indent=2) + '\n'


def install_kernel(installdir: str, module: str) -> None:
    """Install the kernel of a module (J-01)."""
    folder = os.path.join(installdir, JUPYTER, 'kernels', kernel_name(module))
    python = os.path.join('{resource_dir}', os.path.relpath(os.path.join(installdir, INTERPRETER), folder))
    write_readable(os.path.join(folder, 'kernel.json'), kernel_spec(python, kernel_title(module), module))
    copy_readable(LOGO, os.path.join(folder, os.path.basename(LOGO)))
