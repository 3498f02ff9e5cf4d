##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What .modulerc files say: the aliases of modules, further versions under which the modules tool loads them.

An alias belongs to one module. The name of an extension is an alias, too, with its base (2.7-mine) and alone (mine): it
belongs to the newest one. Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import fcntl
import os
import re
from contextlib import contextmanager, suppress
from glob import escape, glob
from types import MappingProxyType
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from . import newest
from .literals import literals
from .record.lockfile import RECORD
from .written import MOST_TEXT, read_regular

# how the names of module files in Lua end
LUA = '.lua'
# Lmod reads both, Environment Modules the second one
FILES = ('.modulerc.lua', '.modulerc')
# Lines that give a module further names, as EasyBuild and people write them.
LUA_NAMING = re.compile(r'\s*module_version\s*\(([^)]*)\)[\s;]*(?:--.*)?$')
TCL_NAMING = re.compile(r'\s*module-version\s+([^;]*)(?:;.*)?$')
NAMING = {'Lua': 'module_version("%s", "%s")', 'Tcl': 'module-version %s %s'}
HIDING = r'\s*(?:hide_version\s*\(\s*["\']%s["\']|if \{[^{}]*\{\}\} \{module-hide %s\})'
# where EasyBuild's generators of module files write the installation directory
ROOT = re.compile(r'^(?:local root = "(?P<lua>.*)"|set root\s+(?P<tcl>.*\S))\s*$', re.MULTILINE)

# For eb that `ebsif` starts: the extensions of the name that were there when it began, as JSON: the time of the record
# by installation directory.
KNOWN_VARIABLE = 'EBSIF_KNOWN_EXTENSIONS'

# directories that this process has locked
LOCKED: Set[str] = set()

Dated = NamedTuple('Dated', [('version', str), ('date', str), ('root', str)])
# a module, its further names in a line, and the syntax of that
Naming = NamedTuple('Naming', [('module', str), ('aliases', List[str]), ('syntax', str)])


# --- the files

def aliases_in(folder: str) -> Dict[str, str]:
    """Return the aliases of the modules of a software, whose module files are in a directory: module by version."""
    found: Dict[str, str] = {}
    for name in FILES:
        # others may close the file
        with suppress(OSError):
            for one in names_in(read(os.path.join(folder, name))):
                # what begins with a slash belongs to the software whose directory it is
                module = os.path.basename(folder) + one.module if one.module.startswith('/') else one.module
                for alias in one.aliases:
                    found.setdefault(alias, module)
    return found


def read(path: str) -> str:
    """Return the text of a .modulerc file, '' if there is none; bytes of another encoding stay what they are."""
    if not os.path.isfile(path):
        return ''
    with open(path, encoding='utf-8', errors='surrogateescape') as text:
        return text.read()


def naming(line: str) -> Optional[Naming]:
    """Return the further names that a line of a .modulerc file gives a module; None if it doesn't."""
    lua, tcl = LUA_NAMING.match(line), TCL_NAMING.match(line)
    words: List[str] = []
    if lua:
        words = re.findall(r'["\']([^"\']+)["\']', lua.group(1))
    elif tcl:
        words = [word.strip('"{}') for word in tcl.group(1).split()]
    return Naming(words[0], words[1:], 'Lua' if lua else 'Tcl') if words[1:] else None


def names_in(text: str) -> Iterator[Naming]:
    """Yield the further names of modules in the text of a .modulerc file."""
    return filter(None, map(naming, text.split('\n')))


def is_same(name: str, module: str) -> bool:
    """Return whether a name in a .modulerc file is that of a module; it may be without the software."""
    return name == module or (name.startswith('/') and module.endswith(name))


def without_module(text: str, module: str, heirs: Mapping[str, str] = MappingProxyType({})) -> str:
    """
    Return the text of a .modulerc file without the lines that name or hide a module.

    `heirs` are the modules that get its further names, by these.
    """
    hiding = re.compile(HIDING % ((re.escape(module),) * 2))

    def change(line: str) -> str:
        one = naming(line)
        if one and is_same(one.module, module):
            return lines(one.syntax, [(heirs[alias], alias) for alias in one.aliases if alias in heirs])
        return '' if hiding.match(line) else line

    return changed(text, change)


def without_alias(text: str, is_owner: Callable[[str], bool], alias: str) -> str:
    """Return the text of a .modulerc file without an alias of the modules for which `is_owner` is true."""
    def change(line: str) -> str:
        one = naming(line)
        if not one or alias not in one.aliases or not is_owner(one.module):
            return line
        return lines(one.syntax, [(one.module, other) for other in one.aliases if other != alias])

    return changed(text, change)


def changed(text: str, change: Callable[[str], str]) -> str:
    """Return a text with each of its lines changed; those that become empty are gone."""
    return ''.join(change(line) for line in re.findall(r'[^\n]*\n|[^\n]+', text))


def lines(syntax: str, pairs: Iterable[Tuple[str, str]]) -> str:
    """Return the lines of a .modulerc file that name modules: pairs of a module and an alias."""
    return ''.join(NAMING[syntax] % pair + '\n' for pair in pairs)


def with_statement(text: str, statement: str) -> str:
    """Return the text of a .modulerc file with a statement; in Tcl, that begins with the header of the file."""
    header, _, body = statement.partition('\n') if statement.startswith('#%Module') else ('', '', statement)
    text = text or header
    # whole lines: one version can begin like another
    if '\n%s\n' % body in '\n%s\n' % text:
        return text
    return text + '\n' * (text != '' and not text.endswith('\n')) + body + '\n'


def is_empty(text: str) -> bool:
    """Return whether the text of a .modulerc file has nothing but its header."""
    return not re.sub('^#%Module.*', '', text).strip()


@contextmanager
def lock(folder: str) -> Iterator[None]:
    """Context manager that keeps other processes from changing which modules of a software there are."""
    place = os.path.realpath(folder)
    if place in LOCKED:
        yield
        return
    # so that no file for the lock stays
    opened = os.open(folder, os.O_RDONLY)
    LOCKED.add(place)
    try:
        # not all file systems have locks
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        LOCKED.remove(place)
        os.close(opened)


# --- whose an alias is

def aliases_of(installdir: str) -> List[str]:
    """Return the aliases in the easyconfig of an installation; none if it can't be read."""
    for path in sorted(glob(os.path.join(escape(installdir), 'easybuild', '*.eb'))):
        # a file that isn't an easyconfig can be anything, such as a pipe
        with suppress(OSError, ValueError):
            text = read_regular(path, MOST_TEXT, links=True).decode('utf-8', 'replace')
            aliases = literals(text).get('aliases')
            # eb takes both
            if isinstance(aliases, (list, tuple)):
                return [alias for alias in aliases if isinstance(alias, str)]
    return []


def without_dot(version: str) -> str:
    """Return the version of a module, or the last part of its name, without the dot of a hidden one."""
    return os.path.basename(version).lstrip('.')


def date_in(version: str, alias: str) -> Optional[str]:
    """Return the date in a version if an alias is that version without its date, or the name before it; else None."""
    named = newest.NAMED.search(version)
    if named and named.group('name') == alias:
        return named.group('date')
    date = version[len(alias) + 1:]
    return date if version.startswith(alias + '-') and re.match(newest.DATE + r'\Z', date) else None


def root_of(path: str) -> Optional[str]:
    """Return the installation directory in a module file; None if it has none."""
    try:
        with open(path, encoding='utf-8', errors='replace') as text:
            match = ROOT.search(text.read())
    except OSError:
        return None
    return (match.group('lua') or match.group('tcl')) if match else None


def file_of(folder: str, version: str) -> Optional[str]:
    """Return the module file of a version, which may be hidden, in a directory; None if there is none."""
    paths = (os.path.join(folder, name) for name in file_names(without_dot(version)))
    return next(filter(os.path.isfile, paths), None)


def file_names(version: str) -> List[str]:
    """Return the names that the module file of a version may have, in Lua or Tcl, at last those of a hidden module."""
    return [dot + version + end for dot in ('', '.') for end in (LUA, '')]


def version_of(name: str) -> str:
    """Return the version whose module file has a name."""
    return name[:-len(LUA)] if name.endswith(LUA) else name


def dated_modules(folder: str, alias: str) -> List[Dated]:
    """Return the installed modules of which an alias is the name without the date, the newest one last."""
    # a module that was written just now has no copy of its easyconfig yet
    owner = without_dot(aliases_in(folder).get(alias, ''))
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        version = version_of(name)
        date = date_in(without_dot(version), alias)
        # links are earlier names of modules that were hidden
        root = root_of(path) if date and not os.path.islink(path) else None
        if date and root and (without_dot(version) == owner or alias in aliases_of(root)):
            found.append(Dated(version, date, root))
    return sorted(found, key=lambda one: newest.extension_key(without_dot(one.version), one.date))


def version_meant(folder: str, version: str, alias: str) -> str:
    """Return the version that an alias of a version means: if it is the name without the date, the newest one."""
    date = date_in(without_dot(version), alias)
    if date is None:
        return version
    key = newest.extension_key(without_dot(version), date)
    later = [one.version for one in dated_modules(folder, alias)
             if newest.extension_key(without_dot(one.version), one.date) > key]
    return later[-1] if later else version


def names_of_others(folder: str, module: str, aliases: Iterable[str]) -> Iterator[Tuple[str, str]]:
    """
    Yield the aliases of a module that belong to another one that is installed, with that.

    They don't if the module replaces the other one: then its aliases have the version of that, too.
    """
    software, own = os.path.dirname(module), without_dot(module)
    aliases, there = list(aliases), aliases_in(folder)
    for alias in aliases:
        is_dated = date_in(own, alias) is not None
        other = without_dot(there.get(alias, own))
        if is_dated and file_of(folder, alias):
            yield alias, os.path.join(software, alias)
        elif other not in [own] + aliases and file_of(folder, other) and not (
                is_dated and date_in(other, alias) is not None):
            yield alias, os.path.join(software, other)


# --- extensions that appear while another one is installed

def time_of(root: str) -> int:
    """Return the time of the record of an installation, which each installation writes anew; 0 if it has none."""
    try:
        return os.stat(os.path.join(root, RECORD)).st_mtime_ns
    except OSError:
        return 0


def installed_meanwhile(folder: str, aliases: Iterable[str], known: Mapping[str, int], but: str = '') -> Optional[str]:
    """
    Return the version of a module with one of these aliases and a date that isn't known, or not as it is now.

    Only modules on the same base count: the alias is all of their version but the date. `known` are the times of
    records by installation directory, and the version `but` may be unknown.
    """
    for alias in aliases:
        for one in dated_modules(folder, alias):
            version, root = without_dot(one.version), os.path.realpath(one.root)
            is_on_base = version == '%s-%s' % (alias, one.date)
            if is_on_base and version != but and known.get(root) != time_of(root):
                return version
    return None
