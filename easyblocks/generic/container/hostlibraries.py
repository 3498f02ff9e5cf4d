##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Decide which host libraries are bound into a container (easyconfig parameter 'library_binds').
"""
import os
import re

from easybuild.tools.utilities import trace_msg

from .parameters import IF_NEWER
from .runtime import bind_source, bind_target
from .scripts import sh_command


def wanted_libraries(container, binds):
    """Return the binds of host libraries that a container needs (list of str), given the condition of each (dict)."""
    return [bind for bind, kind in sorted(binds.items()) if is_library_wanted(container, bind, kind)]


def is_library_wanted(container, bind, kind):
    """Return whether to bind a host library: if the image lacks it or, with if_newer, has an older version."""
    source, target = bind_source(bind), bind_target(bind)
    name = os.path.basename(target)
    # the library that the image's loader would find, or a file at the target of the bind
    found = container.run(sh_command('find-library.sh', name, target), hidden=True, split_stderr=True)
    found = found.output.split('\n')[0]
    wanted = not found
    if found and kind == IF_NEWER:
        host, image = (library_version(path, name) for path in (os.path.realpath(source), found))
        wanted = bool(host and image and image < host)
    trace_msg("host library %s is %s: the image has %s" % (
        source, 'bound' if wanted else 'not needed', found or 'none'))
    return wanted


def library_version(path, name):
    """Return the version in the file name of a library, like libx.so.1.2.3 (tuple of int), or None."""
    found = re.search(r'\.so\.(\d+(?:\.\d+)*)$', path) or re.search(r'\.so\.(\d+(?:\.\d+)*)$', name)
    return tuple(int(number) for number in found.group(1).split('.')) if found else None
