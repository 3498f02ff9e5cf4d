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
from typing import Iterable, List, Tuple

from .record.lockfile import ImageRecord, Record, versions_in
from .parameters import LISTED_PACKAGES
from .imageprograms import FILES
from .masks import Masks
from .moduleparts import ModuleCaches, ModuleParts
from .modulerc import date_in
from .settings import is_reference
from .requirements import package_lines, package_name
from .sitevalues import CONSTRAINT_VARIABLES
from .values import USER_SOFTWARE_VARIABLE, shown_module
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


def help_sections(parts: ModuleParts, record: Record, module: str) -> List[str]:
    """Return the sections of the help text on a container; `module` is name and version as in `module load`."""
    image = record.image
    sections = []
    added = added_packages(record)
    if added:
        sections.append("Packages that were added to the image: %s." % ', '.join(added))
    sections += [
        "The image is %s. To run a command in the container, and to start a shell there:\n\n"
        "    singularity exec $SIF COMMAND\n    start-shell" % parts.image.name]
    if parts.venv:
        sections.append("To add packages, create your own module on top of this one:\n\n"
                        "    ebsif extend %s --add PACKAGE --name NAME" % short_name(module, parts.aliases))
    # the name of an extension is long, so it is said only where it is needed
    sections.append("While it is loaded, `ebsif show` prints what is in the image (`module spider ebsif` finds the\n"
                    "command ebsif). The module has these commands:\n%s.\nRun any of them with --help for details."
                    % ', '.join(sorted(parts.commands.names)))
    if record.wrappers:
        sections.append("These commands run in the container automatically: %s." % ', '.join(record.wrappers))
    sections += host_sections(record)
    if parts.has_manual_conda:
        # in single quotes: the variable has its value in the container only
        sections.append("To activate its Conda environment in the container:\n\n"
                        "    singularity exec $SIF bash -c '$WITH_CONDA; python --version'")
    sections.append("Variables: SIF and SIF%s (the image), CONTAINERROOT (the installation), RUNSCRIPTS and "
                    "RUNSCRIPTS%s\n(the run scripts, /runscripts in the container). Set your own binds in "
                    "APPTAINER_BIND or SINGULARITY_BIND." % (parts.suffix, parts.suffix))
    if parts.caches.places:
        sections.append('\n'.join([
            "Caches of libraries, unless you set the variable yourself:"] + lines_on_caches(parts.caches)))
    if image.sha256:
        shared = sharing(image) if is_reference(parts.image, image) else ''
        sections.append("The SHA256 of the image is %s.%s" % (image.sha256, shared))
    if image.source_digest:
        sections.append("The image comes from %s." % image.source)
    if image.verified:
        sections.append("The image is signed by %s." % ', '.join(image.verified))
    if record.image_constraints:
        # not the values, which the image chooses
        names = [name for name in CONSTRAINT_VARIABLES if name in record.image_constraints]
        sections.append("The image's own constraints for pip and uv are not used (%s)." % ', '.join(names))
    if record.system_layer.requested:
        sections.append("System packages added: %s." % record.system_layer.summary)
    if parts.masked_paths:
        sections.append('\n'.join(['Files of the image that are masked in the container:'] +
                                  [' - ' + line for line in Masks(parts.masked_paths).lines]))
    if record.replaced:
        sections.append('\n'.join(["Packages of the image that are replaced:"] + [
            " - " + text for text in record.replacements]))
    sections += ["Warning: %s" % text for text in parts.warnings]
    if parts.support_level:
        sections.append("Support: %s" % parts.support_level)
    return sections


def host_sections(record: Record) -> List[str]:
    """Return the sections of the help on libraries and programs of the host."""
    sections = []
    if record.host_libraries.libraries:
        sections.append("Libraries of the host that programs in the container use: %s."
                        % ', '.join(sorted(record.host_libraries.libraries)))
    if record.host_programs.programs:
        sections.append("Programs of the host that work in the container, too: %s.\nWhat they start runs on the "
                        "host: put `with-module` before a program of the container there."
                        % ', '.join(sorted(record.host_programs.programs)))
    return sections


def short_name(module: str, aliases: Iterable[str]) -> str:
    """Return the shortest name that always means a module: the names of an extension without its date move on."""
    name = shown_module(module)
    folder, version = os.path.split(name)
    names = [os.path.join(folder, alias) for alias in aliases if date_in(version, alias) is None]
    return min(names + [name], key=len)


def added_packages(record: Record) -> List[str]:
    """Return the packages that were asked for, with their versions, and how many more there are."""
    versions = {name: version for name, version in record.venv_versions.items() if is_package(name, version)}
    names = sorted(set(map(package_name, package_lines(record.stages))).intersection(versions))
    more = len(set(versions).difference(names, ['pip', 'setuptools', 'wheel']))
    return ['%s %s' % (name, versions[name]) for name in names] + ['and %d more' % more] * bool(names and more)


def lines_on_caches(caches: ModuleCaches) -> List[str]:
    """Return the lines of the help on caches."""
    lines = []
    for where, directories, kinds in (
            ("for each job on the node, in", ['$EBSIF_NODE_LOCAL'] + list(caches.node), ('job', 'step')),
            ("kept, in", ['$XDG_CACHE_HOME'] + list(caches.project), ('project',))):
        names = sorted(name for name, place in caches.places.items() if place.split('/')[0] in kinds)
        if names:
            lines.append(" - %s %s: %s" % (where, ' or '.join(directories), ', '.join(names)))
    return lines


def sharing(image: ImageRecord) -> str:
    """Return the sentence of the help on an image that isn't the module's own."""
    used = "the image of the module %s" % image.origin if image.origin else image.resolved
    return "\nThe module has no copy: it uses %s." % used


def listed_packages(which: str, record: Record) -> List[Tuple[str, str]]:
    """Return names and versions of the packages in a container that its module lists as extensions, if they fit."""
    # --module-only reads the record of an earlier ebsif
    lines = [line for key in LISTED_PACKAGES[which] for line in getattr(record, key)]
    return sorted(one for one in versions_in(lines).items() if is_package(*one))
