##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The easyconfig parameter 'requirements' in all its forms: a string, a list of lines, a list of stages, or a lock file,
perhaps with the user software of that installation.

Doesn't import EasyBuild, so that commands can use it too.
"""


def requirement_text(value):
    """Return requirements as the text of a requirements.txt, ending in a newline; empty if there are none."""
    value = value or ''
    if not isinstance(value, str):
        value = ''.join('%s\n' % line for line in value)
    if not value.strip():
        return ''
    # the file for pip ends in a newline even if the parameter doesn't
    return value if value.endswith('\n') else value + '\n'


def are_stages(value):
    """Return whether a value is a list of stages."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, dict) for item in value)


def lock_of(value):
    """Return the lock file of the installation to repeat (str), or None if the value has another form."""
    is_lock = isinstance(value, dict) and set(value) in ({'lock'}, {'lock', 'squashfs'}) and \
        all(isinstance(name, str) for name in value.values())
    return value['lock'] if is_lock else None


def squashfs_of(value):
    """Return the SquashFS file with the user software of the installation to repeat (str), or None without one."""
    return value.get('squashfs') if lock_of(value) else None


def stages_of(value):
    """
    Return the stages that a value describes, without checking their properties.

    Parameters
    ----------
    value : None, str, list of str, list of dict, or dict
        The easyconfig parameter. For a lock file there are no stages: they are in the file.

    Returns
    -------
    list of dict
        The properties of each stage. A string or list of lines is one stage; without requirements there is none.
    """
    if are_stages(value):
        return [dict(stage) for stage in value]
    if not isinstance(value, (str, list, tuple)) or not requirement_text(value):
        return []
    return [{'name': 'requirements', 'requirements': value}]


def stages_or_lines(value):
    """Return the stages if the value is a list of stages (list of dict), else its lines (list of str)."""
    return stages_of(value) if are_stages(value) else lines_of(value)


def lines_of(value):
    """Return the requirement lines of all stages (list of str), without blank lines."""
    text = ''.join(requirement_text(stage.get('requirements')) for stage in stages_of(value))
    return [line.strip() for line in text.splitlines() if line.strip()]
