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

from . import lockfile
from .activation import INIT_CONDA_MANUAL
from .advice import MAKE_EXTENSION
from .parameters import LISTED_PACKAGES
from .scripts import FILES
from .settings import ModuleSettings
from .texts import shown_module
from .usersoftware import USER_SOFTWARE_VARIABLE

# the programs by the syntax of the module file
PROGRAMS = {'Lua': 'container.lua', 'Tcl': 'container.tcl'}

# Variables that modules set or read; unset for the sanity check, so that another loaded module doesn't affect it.
MODULE_VARIABLES = ('CONTAINERROOT', 'EBSIF_ACTIVATE', 'EBSIF_ENTRY_POINT', 'EBSIF_LOADED_MODULE', 'EBSIF_OWN_MODULES',
                    USER_SOFTWARE_VARIABLE)


def program(syntax: str) -> str:
    """Return the program for a syntax of module files. It needs the installation directory as `root`."""
    with open(os.path.join(FILES, 'modulefile', PROGRAMS[syntax])) as text:
        return '\n' + text.read()


class ModuleFile(ModuleSettings):
    """What a module file says about a container: its help and its packages."""

    @property
    def help_sections(self) -> List[str]:
        """The sections of the help text on this container."""
        spec = self.spec
        sections = [
            "The image is %s; $SIF has its full path. To run a command in the container:\n\n"
            "    singularity exec $SIF COMMAND\n\n"
            "The module also provides these commands: %s.\nEach has a --help." % (
                spec.image_name, ', '.join(sorted(spec.commands)))]
        if self.record.get(lockfile.WRAPPERS):
            sections.append("These commands run in the container automatically: %s."
                            % ', '.join(self.record[lockfile.WRAPPERS]))
        if spec.init == INIT_CONDA_MANUAL:
            # in single quotes: the variable has its value in the container only
            sections.append("To activate its Conda environment in the container:\n\n"
                            "    singularity exec $SIF bash -c '$WITH_CONDA; python --version'")
        sections.append("Variables: SIF, SIF%s (the image), CONTAINERROOT (the installation), RUNSCRIPTS, RUNSCRIPTS%s "
                        "(the run scripts,\n/runscripts in the container). Set your own binds in APPTAINER_BIND or "
                        "SINGULARITY_BIND." % (spec.variable_suffix, spec.variable_suffix))
        if spec.caches.places:
            sections.append('\n'.join([
                "Caches of libraries, unless you set the variable yourself:"] + spec.caches.help_lines))
        if self.image_record.get('sha256'):
            sections.append("The SHA256 of the image is %s.%s" % (self.image_record['sha256'], self.sharing))
        if self.image_record.get('source_digest'):
            sections.append("The image comes from %s." % self.image_record['source'])
        if self.image_record.get('verified'):
            sections.append("The image is signed by %s." % ', '.join(self.image_record['verified']))
        if spec.masks:
            sections.append('\n'.join(['Files of the image that are masked in the container:'] +
                                      [' - ' + line for line in spec.masks.lines]))
        sections += ["Warning: %s" % text for text in spec.warnings]
        if spec.support_level:
            sections.append("Support: %s" % spec.support_level)
        return sections + self.advice_on_packages

    @property
    def advice_on_packages(self) -> List[str]:
        """How to install packages in the user's own and in others' modules, with packed user software or not."""
        if not self.spec.venv:
            return []
        name = shown_module(self.module)
        return [
            "To add your own packages, make a module of your own from this one: %s.\n"
            "Or change its user software: if this is your module and its user-software is a directory, install them "
            "with pip in the container,\npack it with make-squashfs and reload the module (unmake-squashfs unpacks it "
            "again). Otherwise start with a copy:\n\n    mkdir DIRECTORY; export EBSIF_USER_SOFTWARE=$(realpath "
            "DIRECTORY); unmake-squashfs\n    module unload %s; module load %s" % (
                MAKE_EXTENSION % name, name.rpartition('/')[0], name)]

    @property
    def sharing(self) -> str:
        """What the help says about an image that isn't the module's own."""
        if not self.is_reference:
            return ''
        owner = self.image_record.get('origin')
        whose = "the image of the module %s" % owner if owner else "an image"
        return "\nThe module has no copy: it uses %s, %s." % (whose, self.image_record['resolved'])

    @property
    def listed_packages(self) -> List[Tuple[str, str]]:
        """Names and versions of the packages in the container that are listed as extensions."""
        pins = dict(line.split('==', 1) for key in LISTED_PACKAGES[self.spec.listed_packages]
                    for line in self.record.get(key, []))
        return sorted(pins.items())
