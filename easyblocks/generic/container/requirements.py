##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The easyconfig parameter 'requirements' in all its forms: a string, a list of lines, a list of stages, or a lock file,
perhaps with the user software of that installation. And what single requirement lines say.

Doesn't import EasyBuild, so that commands can use it too.
"""
import os
import re
import shlex
from contextlib import suppress
from typing import Any, Collection, Dict, List, Mapping, Optional, Tuple
from urllib.parse import unquote

from .values import normal_name
from .written import UnfitError, read_regular

# Packages that import torch while they are built. There are hardly any wheels of them that match an image's torch.
NEEDS_TORCH = ('apex', 'causal-conv1d', 'deepspeed', 'flash-attn', 'grouped-gemm', 'mamba-ssm', 'pytorch3d',
               'torch-cluster', 'torch-scatter', 'torch-sparse', 'torch-spline-conv', 'transformer-engine', 'xformers')
# Those of them that can't be imported without their programs for GPUs, with whatever compiler they are built.
NEEDS_GPU = ('causal-conv1d', 'flash-attn', 'grouped-gemm', 'mamba-ssm')

# What builds without isolation commonly need.
NEEDED_WITHOUT_ISOLATION = ('ninja', 'packaging', 'setuptools', 'wheel')

# The name of the package at the end of a URL.
EGG = re.compile(r'#(?:.*&)?egg=([\w.-]+)')

# A variable, which pip replaces by its value.
VARIABLE = re.compile(r'\$\{([A-Z0-9_]+)\}')

# Options of pip that name a place; those that include a file of more requirements or constraints.
INCLUDE = ('-c', '-r', '--constraint', '--requirement')
PLACES = INCLUDE + ('-e', '-f', '--editable', '--find-links')
# bytes of such a file; lists of packages have a few thousand lines
MOST_REQUIREMENTS = 10 ** 6

# A path in a requirement or an option, without marker, options and comment.
LOCAL = re.compile(r"""
    \s*(?:[\w.-]+(?:\[[^\]]*\])?\s*@\s*|-[cefr]\s*|--(?:constraint|editable|find-links|requirement)[\s=]+)?
    (?P<git>git\+)?(?P<url>file:(?://(?:localhost)?)?)?["']?(?P<path>/[^#;]*?)["']?\s*(?:[#;].*|\s--.*)?$
    """, re.VERBOSE)


# --- forms of the parameter


# What describes a stage in an easyconfig; container/stages.py checks it.
Properties = Dict[str, Any]


def requirement_text(value: object) -> str:
    """Return requirements (text, or its lines) as the text of a requirements.txt, ending in a newline unless empty."""
    text = ''.join('%s\n' % line for line in value) if isinstance(value, (list, tuple)) else str(value or '')
    if not text.strip():
        return ''
    # the file for pip ends in a newline even if the parameter doesn't
    return text if text.endswith('\n') else text + '\n'


def are_stages(value: object) -> bool:
    """Return whether a value is a list of stages."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, dict) for item in value)


def lock_of(value: object) -> Optional[str]:
    """Return the lock file of the installation to repeat, None if the value has another form."""
    if not isinstance(value, dict) or set(value) not in ({'lock'}, {'lock', 'squashfs'}):
        return None
    return value['lock'] if all(isinstance(name, str) for name in value.values()) else None


def squashfs_of(value: object) -> Optional[str]:
    """Return the SquashFS file with the user software of the installation to repeat, None without one."""
    return value.get('squashfs') if isinstance(value, dict) and lock_of(value) else None


def stages_of(value: object) -> List[Properties]:
    """
    Return the properties of each stage that a value describes, without checking them.

    A string or a list of lines is one stage; without requirements there is none. For a lock file there are none: they
    are in the file.
    """
    if isinstance(value, (list, tuple)) and are_stages(value):
        return [dict(stage) for stage in value]
    if not isinstance(value, (str, list, tuple)) or not requirement_text(value):
        return []
    return [{'name': 'requirements', 'requirements': value}]


def lines_of(value: object) -> List[str]:
    """Return the requirement lines of all stages, without blank lines."""
    text = ''.join(requirement_text(stage.get('requirements')) for stage in stages_of(value))
    return [line.strip() for line in text.splitlines() if line.strip()]


def package_lines(value: object) -> List[str]:
    """Return the lines of all stages that name a package, without comments; of the options, -e does."""
    lines = map(without_comment, lines_of(value))
    return [line for line in lines if line and (not line.startswith('-') or is_editable(line))]


# --- single lines


def without_comment(line: str) -> str:
    """Return a line of requirements without its comment; in a URL, what follows a # is none."""
    return re.sub(r'(^|\s)#.*', '', line).strip()


def is_editable(line: str) -> bool:
    """Return whether a line has the option that names a package, which stays where it is."""
    return bool(re.match('-e|--editable', line))


def with_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return requirements with the values of variables, as pip reads them."""
    return VARIABLE.sub(lambda found: variables.get(found.group(1)) or found.group(), text)


def package_name(line: str) -> str:
    """Return the normalized package name of a requirement line; for a URL, the name guessed from it."""
    egg = EGG.search(line)
    if egg:
        return normal_name(egg.group(1))
    named = re.match(r'[A-Za-z0-9][\w.-]*(?=\s*(?:$|[\[@=<>!~; ]))', line)
    last = re.sub(r'(\.git)?(@[^/]*)?(#.*)?$', '', line.rstrip('/')).rsplit('/', 1)[-1]
    return normal_name(named.group() if named else last)


def is_pinned(line: str) -> bool:
    """Return whether a requirement line means one version only, or a place; options mean what they say."""
    wanted = re.split(r'\s*;|\s#|\s--', line)[0]
    return bool(re.search(r'@|\.whl\b|^-|^\.?/|===?[^=*,]+(?:,|\Z)', wanted))


def local_paths(text: str, variables: Mapping[str, str], folder: str = '', known: Collection[str] = ()) -> List[str]:
    """
    Return the files and directories of this machine that requirements name, also in files that they include (-r, -c).

    pip replaces ${NAME} by `variables`. Included files are relative to the `folder` of the file that names them;
    `known` are the paths that were found before.
    """
    paths = list(known)
    for line in with_variables(text, variables).replace('\\\n', ' ').splitlines():
        for option, place in places_in(line):
            is_included = option in INCLUDE
            if is_included and folder and ':/' not in place:
                place = os.path.normpath(os.path.join(folder, place))
            path = local_path(place)
            if path and path not in paths:
                paths.append(path)
                if is_included:
                    paths = local_paths(text_of(path), variables, os.path.dirname(path), paths)
    return paths


def places_in(line: str) -> List[Tuple[str, str]]:
    """Return the places in a line of requirements, each with its option: it can have several, but only one package."""
    words: List[str] = []
    if line.lstrip().startswith('-'):
        with suppress(ValueError):
            words = shlex.split(without_comment(line))
    if not words:
        return [('', line)]
    found = []
    for number, word in enumerate(words):
        option, is_joined, place = word.partition('=') if word.startswith('--') else (word[:2], word[2:], word[2:])
        if option in PLACES:
            found += [(option, place if is_joined else one) for one in words[number + 1:number + 2] or ['']]
    return found


def text_of(path: str) -> str:
    """Return the text of an included file of requirements, '' if it can't be read: pip says so."""
    try:
        return read_regular(path, MOST_REQUIREMENTS, links=True).decode('utf-8', 'replace')
    except (OSError, UnfitError):
        return ''


def local_path(line: str) -> str:
    """Return the absolute path of a file or directory of this machine in a requirement line, '' without one."""
    found = LOCAL.match(line)
    if not found:
        return ''
    # without extras
    path = re.sub(r'\[[^/]*\]\Z', '', found.group('path').strip())
    if found.group('url'):
        path = unquote(path)
    # without branch or commit
    return re.sub(r'@[^/@]*\Z', '', path) if found.group('git') else path
