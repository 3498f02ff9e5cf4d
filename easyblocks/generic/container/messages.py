##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Messages of the easyblocks that `ebsif` looks for in the output of eb, with %s for what differs.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import re
from typing import Optional, Tuple

# what happens in a step
COPYING = 'copying %s to %s (%s)'
NOT_COPIED = 'the image is not copied: the module uses %s'
STAYING = 'packages of %s that stay as they are: %s'
NOT_ISOLATED = 'building %s again without isolation'
ADDED = 'packages added: %s'
IMPORTING = 'importing %s'
IN_ONE_FILE = 'user software is %s in one file'

# errors
SYSTEM_PACKAGES = "Easyconfig parameter 'system_packages': "
PIP_FAILED = "pip failed in stage '%s'"
NO_VERSION = 'has a suitable version of '
SEE_OUTPUT = 'See its output above or in the log.'


def values_in(text: str, message: str) -> Optional[Tuple[str, ...]]:
    """Return what stands for each %s in a text that begins with a message; None if it is another one."""
    found = re.match('(.+)'.join(map(re.escape, message.split('%s'))), text)
    return found.groups() if found else None
