##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What to do about a failure, as a whole command: the one that was typed, with more options.

`ebsif` knows what was typed, and prints that in place of TYPED. eb alone doesn't know it.

Doesn't import EasyBuild, so that commands can use it too.
"""
import shlex
from typing import Mapping, Sequence

from .values import normal_name

# What stands for the command that was typed; its options follow, up to the end of the line or a backquote.
TYPED = 'ebsif extend ...'
# EasyBuild's own option to install what can't be imported.
NEVERTHELESS = ('--', '--ignore-test-failure')


def again(*words: str) -> str:
    """Return the command that was typed with more options."""
    return ' '.join([TYPED] + [shlex.quote(word) for word in words])


def line(*words: str) -> str:
    """Return the command that was typed with more options, as a line of its own, to copy."""
    return '\n    ' + again(*words)


def nevertheless() -> str:
    """Return how to install what fails a test."""
    return "To install it nevertheless (with plain eb: --ignore-test-failure):%s" % line(*NEVERTHELESS)


def how_to_replace(names: Sequence[str], reasons: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """
    Return how to replace packages of the image all the same.

    By normalized name, `reasons` are why they are kept (see `Diagnosis`), and `versions` those to install, if known.
    """
    # what another package requires can be given up, what is built for the machine is meant twice
    force = [] if all(' needs ' in reasons.get(normal_name(name), '') for name in names) else ['--force']
    wanted = ['%s==%s' % (name, versions.get(normal_name(name), 'VERSION')) for name in names]
    return " on purpose (in an easyconfig, 'allow_replace': %s of this stage):%s" % (
        list(names), line('--replace', *(wanted + force)))


def containers_with(requirements: Sequence[str]) -> str:
    """Return the command that lists the containers that meet requirements."""
    return 'ebsif list %s' % ' '.join('--has %s' % shlex.quote(one) for one in requirements)
