##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Let a module be loaded under its aliases, and hide it or not: change the .modulerc files beside it (modulerc.py).
"""
import os
from typing import Iterable, List, Optional

from easybuild.tools.build_log import print_warning
from easybuild.tools.filetools import remove_file, symlink
from easybuild.tools.module_generator import ModuleGenerator

from . import modulerc
from .permissions import write_whole

# Statements that hide a module which can be loaded. In Tcl: Environment Modules 4.6, or Lmod.
HIDE = {
    'Lua': 'hide_version("%(module)s")',
    'Tcl': '#%%Module\nif {[info commands module-hide] ne {}} {module-hide %(module)s} else {hide-version %(module)s}',
}


def update_modulerc(generator: ModuleGenerator, mod_filepath: str, module: str, aliases: List[str], installdir: str,
                    earlier_aliases: Iterable[str] = ()) -> None:
    """
    Let a module be loaded under its aliases, and a hidden one also without the dot of its version.

    `earlier_aliases` are those of the installation that is replaced: they end if the module doesn't have them anymore.
    Lmod reads the file of the other syntax, too, in which the module may have had its aliases before.
    """
    names = ModuleNames(generator, mod_filepath, module)
    with modulerc.lock(names.folder):
        before = modulerc.read(names.path)
        text = names.show_or_hide(before, installdir)
        own = [alias for alias in aliases if alias.lstrip('.') != names.shown_version]
        # a hidden module is loaded without the dot by its hidden link, or else by an alias
        if names.is_hidden and not os.path.islink(names.other_file):
            own.insert(0, names.shown_version)
        text = names.give(text, own)
        ended = set(earlier_aliases).difference(own, aliases)
        text = without_aliases(text, names.both, ended)
        names.warn_of_others(text, {*own, *aliases})
        write_modulerc(names.path, text, before)
        for path in {os.path.join(names.folder, name) for name in modulerc.FILES}.difference([names.path]):
            names.remove_from(path, ended.union(own, [names.shown_version]))


class ModuleNames:
    """A module and its other name, with or without the dot of a hidden module, in .modulerc files."""

    def __init__(self, generator: ModuleGenerator, mod_filepath: str, module: str) -> None:
        """Store EasyBuild's generator of module files, the path of the module file, and the name of the module."""
        self.generator = generator
        self.file = mod_filepath
        self.other_file = other_name(mod_filepath)
        self.folder = os.path.dirname(mod_filepath)
        self.path = os.path.join(self.folder, generator.DOT_MODULERC)
        self.module = module
        self.software, self.version = os.path.split(module)
        self.is_hidden = self.version.startswith('.')
        self.shown_version = self.version.lstrip('.')
        self.both = [os.path.join(self.software, dot + self.shown_version) for dot in ('', '.')]

    def show_or_hide(self, text: str, installdir: str) -> str:
        """
        Replace the module file of the other name, if it is the installation's; return the text of .modulerc then.

        If the installation was not hidden before, its earlier module file becomes a hidden link: modules tools don't
        list it, but shells that have loaded it can unload it (I-06). The earlier file of a module that is no longer
        hidden is removed.
        """
        if not os.path.isfile(self.other_file) or not is_in(self.generator.det_installdir(self.other_file), installdir):
            return text
        remove_file(self.other_file)
        text = modulerc.without_module(text, self.module)
        shown, hidden = self.both
        if not self.is_hidden:
            return modulerc.without_module(text, hidden)
        # not a symbolic version, by which Lmod would not unload the module
        symlink(os.path.basename(self.file), self.other_file, use_abspath_source=False)
        return modulerc.with_statement(text, HIDE[self.generator.SYNTAX] % {'module': shown})

    def give(self, text: str, aliases: Iterable[str]) -> str:
        """
        Return the text of .modulerc in which the module has aliases.

        An alias moves from another version of the software to this one, unless it is the name of both without their
        dates, and the other one is newer. So does the version itself: with an alias of that name, the modules tool
        would load the other version.
        """
        text = without_alias_of_others(text, self.module, self.shown_version)
        for alias in aliases:
            version = modulerc.version_meant(self.folder, self.version, alias)
            owner = os.path.join(self.software, version)
            text = without_alias_of_others(text, owner, alias)
            text = modulerc.with_statement(text, self.generator.modulerc(
                {'modname': owner, 'sym_version': alias, 'version': version}))
        return text

    def warn_of_others(self, text: str, aliases: Iterable[str]) -> None:
        """Warn of names that somebody else has given the module, or an installation without easyconfig."""
        named = {alias for one in modulerc.names_in(text) if modulerc.is_same(one.module, self.module)
                 for alias in one.aliases}
        for alias in sorted(named.difference(['default'], aliases)):
            print_warning("%s can also be loaded as %s/%s, which the easyconfig doesn't name: to end that, remove its "
                          "line from %s", self.module, self.software, alias, self.path)

    def remove_from(self, path: str, aliases: Iterable[str]) -> None:
        """Remove aliases, and what is said of the other name, from the .modulerc file of the other syntax."""
        before = modulerc.read(path)
        text = without_aliases(before, self.both, aliases)
        for name in self.both:
            if name != self.module:
                text = modulerc.without_module(text, name)
        write_modulerc(path, text, before)


def write_modulerc(path: str, text: str, before: str) -> None:
    """Write the text of a .modulerc file, if it is another one than before; remove a file in which nothing is left."""
    if text != before and modulerc.is_empty(text):
        remove_file(path)
    elif text != before:
        write_whole(path, text)


def without_alias_of_others(text: str, module: str, alias: str) -> str:
    """Return the text of a .modulerc file without an alias, unless it is that of a module."""
    return modulerc.without_alias(text, lambda name: not modulerc.is_same(name, module), alias)


def without_aliases(text: str, modules: Iterable[str], aliases: Iterable[str]) -> str:
    """Return the text of a .modulerc file without aliases of modules."""
    for alias in aliases:
        text = modulerc.without_alias(text, lambda name: any(modulerc.is_same(name, one) for one in modules), alias)
    return text


def other_name(mod_filepath: str) -> str:
    """Return where the module file of a version is if this one is hidden and that isn't, or the reverse."""
    folder, name = os.path.split(mod_filepath)
    return os.path.join(folder, name[1:] if name.startswith('.') else '.' + name)


def is_in(directory: Optional[str], installdir: str) -> bool:
    """Return whether the directory in a module file, which may have none, is an installation directory."""
    return directory is not None and os.path.realpath(directory) == os.path.realpath(installdir)
