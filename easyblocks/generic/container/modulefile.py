##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The container-specific part of a module file: its help, the packages that it lists, and a static program, which reads
share/ebsif/module.conf (settings.py) and decides when the module is loaded, on the node.
"""
import os
from typing import List, Tuple


from .record import lockfile
from .parameters import LISTED_PACKAGES
from .install import FILES
from .masks import Masks
from .modulerc import date_in
from .settings import ModuleSettings
from .requirements import package_lines, package_name
from .sitevalues import CONSTRAINT_VARIABLES, INIT_CONDA_MANUAL
from .values import shown_module
from .usersoftware import USER_SOFTWARE_VARIABLE
from .written import is_package

# the programs by the syntax of the module file, and what comes before everything else in the file
PROGRAMS = {'Lua': 'container.lua', 'Tcl': 'container.tcl'}
BEGINNINGS = {'Tcl': 'swap.tcl'}

# Variables that modules set or read; unset for the sanity check, so that another loaded module doesn't affect it.
MODULE_VARIABLES = ('CONTAINERROOT', 'EBSIF_ACTIVATE', 'EBSIF_ENTRY_POINT', 'EBSIF_LOADED_MODULE', 'EBSIF_OWN_MODULES',
                    USER_SOFTWARE_VARIABLE)


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
        spec, name = self.spec, self.short_name
        sections = []
        if self.added:
            sections.append("Packages that were added to the image: %s." % ', '.join(self.added))
        sections += [
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
        if self.record.host_programs.programs:
            sections.append("Programs of the host that work in the container, too: %s.\nWhat they start runs on the "
                            "host: put `with-module` before a program of the container there."
                            % ', '.join(sorted(self.record.host_programs.programs)))
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
        if spec.masked_paths:
            sections.append('\n'.join(['Files of the image that are masked in the container:'] +
                                      [' - ' + line for line in Masks(spec.masked_paths).lines]))
        if self.record.replaced:
            sections.append('\n'.join(["Packages of the image that are replaced:"] + [
                " - " + text for text in self.record.replacements]))
        sections += ["Warning: %s" % text for text in spec.all_warnings]
        if spec.support_level:
            sections.append("Support: %s" % spec.support_level)
        return sections

    @property
    def short_name(self) -> str:
        """The shortest name that always means this module: the names of an extension without its date move on."""
        name = shown_module(self.module)
        folder, version = os.path.split(name)
        aliases = [os.path.join(folder, alias) for alias in self.spec.aliases if date_in(version, alias) is None]
        return min(aliases + [name], key=len)

    @property
    def added(self) -> List[str]:
        """The packages that were asked for, with their versions, and how many more there are."""
        versions = {name: version for name, version in self.record.venv_versions.items() if is_package(name, version)}
        names = sorted(set(map(package_name, package_lines(self.record.stages))).intersection(versions))
        more = len(set(versions).difference(names, ['pip', 'setuptools', 'wheel']))
        return ['%s %s' % (name, versions[name]) for name in names] + ['and %d more' % more] * bool(names and more)

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
