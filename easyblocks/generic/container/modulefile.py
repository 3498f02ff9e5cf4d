##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The container-specific part of a module file: its help, the packages that it lists, and a static program, which reads
share/ebsif/module.conf (settings.py) and decides when the module is loaded, on the node. Also the .modulerc file beside
it, which names more versions under which a module can be loaded.
"""
import os
from typing import Any, Iterable, List, Optional, Tuple

from easybuild.tools.build_log import print_warning
from easybuild.tools.filetools import remove_file, symlink

from . import modulerc
from .record import lockfile
from .parameters import LISTED_PACKAGES
from .install import FILES, write_whole
from .settings import ModuleSettings
from .tables import CONSTRAINT_VARIABLES, INIT_CONDA_MANUAL
from .texts import shown_module
from .usersoftware import USER_SOFTWARE_VARIABLE
from .written import is_package

# the programs by the syntax of the module file, and what comes before everything else in the file
PROGRAMS = {'Lua': 'container.lua', 'Tcl': 'container.tcl'}
BEGINNINGS = {'Tcl': 'swap.tcl'}

# Variables that modules set or read; unset for the sanity check, so that another loaded module doesn't affect it.
MODULE_VARIABLES = ('CONTAINERROOT', 'EBSIF_ACTIVATE', 'EBSIF_ENTRY_POINT', 'EBSIF_LOADED_MODULE', 'EBSIF_OWN_MODULES',
                    USER_SOFTWARE_VARIABLE)

# Statements that hide a module which can be loaded. In Tcl: Environment Modules 4.6, or Lmod.
HIDE = {
    'Lua': 'hide_version("%(module)s")',
    'Tcl': '#%%Module\nif {[info commands module-hide] ne {}} {module-hide %(module)s} else {hide-version %(module)s}',
}


def program(syntax: str) -> str:
    """Return the program for a syntax of module files. It needs the installation directory as `root`."""
    return '\n' + read_part(PROGRAMS[syntax])


def beginning(syntax: str) -> str:
    """Return what comes before everything else in a module file of a syntax; empty if there is nothing."""
    return read_part(BEGINNINGS[syntax]) + '\n' if syntax in BEGINNINGS else ''


def read_part(name: str) -> str:
    """Return the text of a file that becomes a part of module files."""
    with open(os.path.join(FILES, 'modulefile', name)) as text:
        return text.read()


class ModuleFile(ModuleSettings):
    """The help of a module, and the packages that it lists."""

    @property
    def help_sections(self) -> List[str]:
        """The sections of the help text on this container."""
        spec, name = self.spec, shown_module(self.module)
        sections = [
            "The image is %s. To run a command in the container, and to start a shell there:\n\n"
            "    singularity exec $SIF COMMAND\n    start-shell" % spec.image_name]
        if spec.venv:
            sections.append("To add packages, create your own module on top of this one:\n\n"
                            "    ebsif extend %s --add PACKAGE --name NAME" % name)
        sections.append("`ebsif show %s` prints what is in the image (`module spider ebsif` finds the command ebsif).\n"
                        "The module has these commands:\n%s. Run any of them with --help for details."
                        % (name, ', '.join(sorted(spec.commands))))
        if self.record.wrappers:
            sections.append("These commands run in the container automatically: %s."
                            % ', '.join(self.record.wrappers))
        if spec.init == INIT_CONDA_MANUAL:
            # in single quotes: the variable has its value in the container only
            sections.append("To activate its Conda environment in the container:\n\n"
                            "    singularity exec $SIF bash -c '$WITH_CONDA; python --version'")
        sections.append("Variables: SIF and SIF%s (the image), CONTAINERROOT (the installation), RUNSCRIPTS and "
                        "RUNSCRIPTS%s\n(the run scripts, /runscripts in the container). Set your own binds in "
                        "APPTAINER_BIND or SINGULARITY_BIND." % (spec.variable_suffix, spec.variable_suffix))
        if self.cache_places:
            sections.append('\n'.join([
                "Caches of libraries, unless you set the variable yourself:"] + self.cache_lines))
        if self.image_record.sha256:
            sections.append("The SHA256 of the image is %s.%s" % (self.image_record.sha256, self.sharing))
        if self.image_record.source_digest:
            sections.append("The image comes from %s." % self.image_record.source)
        if self.image_record.verified:
            sections.append("The image is signed by %s." % ', '.join(self.image_record.verified))
        if self.record.image_constraints:
            # not the values, which the image chooses
            names = [name for name in CONSTRAINT_VARIABLES if name in self.record.image_constraints]
            sections.append("The image's own constraints for pip and uv are not used (%s)." % ', '.join(names))
        if self.record.system_layer.requested:
            sections.append("System packages added: %s." % self.record.system_layer.summary)
        if spec.masks:
            sections.append('\n'.join(['Files of the image that are masked in the container:'] +
                                      [' - ' + line for line in spec.masks.lines]))
        if self.record.replaced:
            sections.append('\n'.join(["Packages of the image that are replaced:"] + [
                " - " + text for text in self.record.replacements]))
        sections += ["Warning: %s" % text for text in spec.all_warnings]
        if spec.support_level:
            sections.append("Support: %s" % spec.support_level)
        return sections

    @property
    def cache_lines(self) -> List[str]:
        """The lines of the help on caches."""
        lines = []
        for where, directories, kinds in (
                ("for each job on the node, in", ['$EBSIF_NODE_LOCAL'] + list(self.spec.node_caches), ('job', 'step')),
                ("kept, in", ['$XDG_CACHE_HOME'] + list(self.spec.project_caches), ('project',))):
            names = sorted(name for name, place in self.cache_places.items() if place.split('/')[0] in kinds)
            if names:
                lines.append(" - %s %s: %s" % (where, ' or '.join(directories), ', '.join(names)))
        return lines

    @property
    def sharing(self) -> str:
        """The sentence of the help on an image that isn't the module's own."""
        if not self.is_reference:
            return ''
        owner = self.image_record.origin
        whose = "the image of the module %s" % owner if owner else "an image"
        return "\nThe module has no copy: it uses %s, %s." % (whose, self.image_record.resolved)

    @property
    def listed_packages(self) -> List[Tuple[str, str]]:
        """Names and versions of the packages in the container that are listed as extensions, of those that fit."""
        # --module-only reads the record of an earlier ebsif
        lines = [line for key in LISTED_PACKAGES[self.spec.listed_packages] for line in getattr(self.record, key)]
        return sorted(one for one in lockfile.versions_in(lines).items() if is_package(*one))


# --- the .modulerc file

def update_modulerc(generator: Any, mod_filepath: str, module: str, aliases: List[str], installdir: str,
                    earlier_aliases: Iterable[str] = ()) -> None:
    """
    Let a module be loaded under its aliases, and a hidden one also without the dot of its version.

    `earlier_aliases` are those of the installation that is replaced: they end if the module doesn't have them anymore.

    An alias moves from another version of the software to this one, unless it is the name of both without their dates,
    and the other one is newer. So does the version itself: with an alias of that name, the modules tool would load the
    other version. If the installation was not hidden before, its earlier module file becomes a hidden link: modules
    tools don't list it, but shells that have loaded it can unload it (I-06). The earlier file of a module that is no
    longer hidden is removed.

    Lmod reads the file of the other syntax, too, in which the module may have had its aliases before.
    """
    folder, name = os.path.split(mod_filepath)
    software, version = os.path.split(module)
    is_hidden = version.startswith('.')
    shown_version = version.lstrip('.')
    shown, hidden = os.path.join(software, shown_version), os.path.join(software, '.' + shown_version)
    earlier = other_name(mod_filepath)
    path = os.path.join(folder, generator.DOT_MODULERC)
    others = [one for one in aliases if one.lstrip('.') != shown_version]
    with modulerc.lock(folder):
        text = before = modulerc.read(path)
        if os.path.isfile(earlier) and is_in(generator.det_installdir(earlier), installdir):
            remove_file(earlier)
            text = modulerc.without_module(text, module)
            if is_hidden:
                # not a symbolic version, by which Lmod would not unload the module
                symlink(name, earlier, use_abspath_source=False)
                text = modulerc.with_statement(text, HIDE[generator.SYNTAX] % {'module': shown})
            else:
                text = modulerc.without_module(text, hidden)
        without_dot = [shown_version] if is_hidden and not os.path.islink(earlier) else []
        text = without_alias_of_others(text, module, shown_version)
        for alias in without_dot + others:
            owner = modulerc.target(folder, version, alias)
            text = without_alias_of_others(text, os.path.join(software, owner), alias)
            text = modulerc.with_statement(text, generator.modulerc(
                {'modname': os.path.join(software, owner), 'sym_version': alias, 'version': owner}))
        ended = set(earlier_aliases).difference(without_dot, aliases)
        text = without_aliases(text, (shown, hidden), ended)
        # a name that somebody else has given the module, or an alias of an installation without easyconfig
        named = {alias for one in modulerc.names_in(text) if modulerc.is_same(one.module, module)
                 for alias in one.aliases}
        for alias in sorted(named.difference(['default'], without_dot, aliases)):
            print_warning("%s can also be loaded as %s/%s, which the easyconfig doesn't name: to end that, remove its "
                          "line from %s", module, software, alias, path)
        if text != before:
            write_whole(path, text)
        for other in {os.path.join(folder, one) for one in modulerc.FILES}.difference([path]):
            tidy_up_other(other, module, (shown, hidden), ended.union([shown_version], others))


def tidy_up_other(path: str, module: str, modules: Iterable[str], aliases: Iterable[str]) -> None:
    """Remove aliases, and what was said of the other name of a module, from the .modulerc file of the other syntax."""
    if not os.path.isfile(path):
        return
    before = modulerc.read(path)
    text = without_aliases(before, modules, aliases)
    for name in set(modules).difference([module]):
        text = modulerc.without_module(text, name)
    if text == before:
        return
    if modulerc.is_empty(text):
        remove_file(path)
    else:
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
