##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Wheelhouses: directories with a wheel of every package, from which pip installs without an index, and filling them.
"""
import re

from easybuild.tools.build_log import EasyBuildError

from .requirements import EGG, package_name
from .texts import normal_name

# Folder that collects a wheel of every installed package; set by `ebsif wheelhouse`.
FILL_VARIABLE = 'EBSIF_FILL_WHEELHOUSE'

# Options of `pip install` that `pip wheel` doesn't have, with the number of their values.
INSTALL_OPTIONS = {
    '-U': 0, '--upgrade': 0, '--upgrade-strategy': 1, '-I': 0, '--ignore-installed': 0, '--force-reinstall': 0,
    '--compile': 0, '--no-compile': 0, '--no-warn-script-location': 0, '--no-warn-conflicts': 0,
    '--root-user-action': 1, '--break-system-packages': 0, '--no-deps': 0,
}

# a requirement with its own location instead of an index: 'name @ location', or 'location#egg=name'
PLACE = re.compile(r'^\s*(?:(?:-e|--editable)[\s=]+)?(?:(?P<name>[\w.-]+)(?P<extras>\[[^\]]*\])?\s*@\s*)?'
                   r'(?P<place>(?:\w+\+)?\w+://\S+|/\S+)\s*(?P<marker>;.*)?$')


def without_options(words, unwanted):
    """Return options without the unwanted ones, which are given with their number of values (dict)."""
    kept, left_out = [], 0
    for word in words:
        name = word.split('=', 1)[0]
        if left_out:
            left_out -= 1
        elif name in unwanted:
            left_out = 0 if '=' in word else unwanted[name]
        else:
            kept.append(word)
    return kept


def by_name(line, stage):
    """
    Return a requirement line with only the name of the package, so that pip finds it in a wheelhouse.

    A wheelhouse has wheels of all packages, including those from repositories and local files.

    Raises
    ------
    EasyBuildError
        If the line doesn't name the package.
    """
    if line.strip().startswith('--no-binary'):
        return ''
    place = PLACE.match(line)
    if not place:
        return line
    name = place.group('name')
    if not name:
        egg = EGG.search(line)
        wheel = re.search(r'/([\w.]+)-[^/]*\.whl$', place.group('place'))
        found = egg or wheel
        if not found:
            raise EasyBuildError("Stage '%s': the requirement '%s' can't be installed from a wheelhouse, because it "
                                 "doesn't name the package. Write 'name @ %s'.", stage.name, line.strip(),
                                 place.group('place'))
        name = found.group(1)
    return name + (place.group('extras') or '') + (' ' + place.group('marker') if place.group('marker') else '')


def lines_for_wheels(given, frozen, new):
    """
    Return which wheels to build after a stage, and of which versions.

    Wheels are built as in the stage: from the same requirement lines, which may have options. Other packages are
    requested with their installed versions.

    Parameters
    ----------
    given, frozen : list of str
        The requirement lines of the stage, and what `pip freeze` prints.
    new : collection of str
        Normalized names of the packages that the stage has installed.

    Returns
    -------
    tuple of list of str
        Requirement lines, and constraints.
    """
    # for packages that did not come from an index, the line has the location
    lines = {normal_name(re.split(r'==|\s@\s', line)[0]): line for line in frozen if not line.startswith('#')}
    pins = [lines[name] for name in lines if name in new and '==' in lines[name]]
    asked = {package_name(line.strip()): line for line in given if not re.match(r'\s*(#|-(?!e|-editable)|$)', line)}
    wanted = [line for line in given if re.match(r'\s*-(?!e|-editable)', line)] + \
        [line for line in (asked.get(name, lines.get(name)) for name in sorted(new)) if line]
    return wanted, pins
