##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The names of a module beside those of others: aliases that are taken, and modules that came meanwhile.
"""
import json
import os
from typing import Iterable

from easybuild.tools.build_log import EasyBuildError

from .modulerc import KNOWN_VARIABLE, date_in, installed_meanwhile, names_of_others, without_dot


class OutdatedError(EasyBuildError):
    """A complete installation isn't wanted anymore."""


def check_names(folder: str, module: str, aliases: Iterable[str], is_done: bool = False) -> None:
    """
    Raise EasyBuildError if a module would take the alias of another one, or leave out what another one has.

    `folder` has the module files of the software; `is_done`: whether the new installation is complete, so that what is
    known of the earlier one doesn't hold.
    """
    for alias, other in names_of_others(folder, module, aliases):
        raise EasyBuildError(
            "%s is a name of %s, which is installed: remove '%s' from 'aliases' of this easyconfig. If this module "
            "replaces that one, remove that one first, or add its version to 'aliases', too ('%s')",
            os.path.join(os.path.dirname(module), alias), other, alias, without_dot(other))
    known = json.loads(os.environ.get(KNOWN_VARIABLE, 'null'))
    if known is None:
        return
    undated = [alias for alias in aliases if date_in(without_dot(module), alias) is not None]
    version = installed_meanwhile(folder, undated, known, but=without_dot(module) if is_done else '')
    if version:
        raise OutdatedError(
            "Meanwhile, another command has installed %s. This module would come after it, without that one's "
            "changes, so it isn't installed. Run the command again: it begins with what is there now",
            os.path.join(os.path.dirname(module), version))
