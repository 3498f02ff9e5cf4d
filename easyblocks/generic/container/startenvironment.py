##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The variables that are the same whenever a container of a module starts.

files/share/ebsif/set-environment.sh, which the runtime sources then, sets them from a file beside the run scripts. Set
by the module, each would be two variables in the user's environment (SINGULARITYENV_X, APPTAINERENV_X), and setting
variables is what modules tools need most of their time for. Values that users give a container (APPTAINERENV_X) take
precedence, whether they set them before or after loading the module.
"""
import os

# Next to the run scripts.
ENVIRONMENT_FILE = os.path.join('runscripts', 'environment.conf')

# Script that the runtime sources when a container starts, and its path in the container. The name makes it run after
# the scripts that set the image's variables, and before 99-base.sh, which sets the variables from APPTAINERENV_*.
SET_ENVIRONMENT = os.path.join('share', 'ebsif', 'set-environment.sh')
SET_ENVIRONMENT_INSIDE = '/.singularity.d/env/97-ebsif.sh'

# Constraints that keep pip and uv from replacing packages of the image: relative to the installation, in the container.
CONSTRAINTS = os.path.join('runscripts', 'image-constraints.txt')
CONSTRAINTS_INSIDE = '/' + CONSTRAINTS

# Variables of the caller that are never right in a container: where the host's Python is.
OF_HOST = ('PYTHONHOME',)


def environment_text(variables, files):
    """
    Return the content of the file: a line for each variable (str).

    Parameters
    ----------
    variables : dict of str
    files : dict of str
        Paths in the container: variables that are set unless the caller has set them, and if the file exists.
    """
    lines = ['%s %s=%s' % (kind, name, value) for kind, values in (('set', variables), ('file', files))
             for name, value in sorted(values.items())]
    return ''.join(line + '\n' for line in lines + ['drop %s' % name for name in OF_HOST])
