##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The container-specific part of a module file with user software, which is found at load time, on the node.
"""
import glob
import os

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.advice import MAKE_EXTENSION
from easybuild.easyblocks.generic.container.modulefile import ModuleFile
from easybuild.easyblocks.generic.container.packages import USER_SOFTWARE
from easybuild.easyblocks.generic.container.parameters import LISTED_PACKAGES
from easybuild.easyblocks.generic.container.texts import MOUNT_SQUASHFS
from easybuild.easyblocks.generic.container.usersoftware import DIRECTORY, SQUASHFS, USER_SOFTWARE_VARIABLE


class VenvModuleFile(ModuleFile):
    """The container-specific part of a module file with user software, which is found at load time."""

    @property
    def help_sections(self):
        """Add how to install packages in the user's own and in others' modules, with packed user software or not."""
        return super().help_sections + [
            "To add your own packages, make a module of your own from this one: %s.\n"
            "Or change its user software: if this is your module and its user-software is a directory, install them "
            "with pip in the container,\npack it with make-squashfs and reload the module (unmake-squashfs unpacks it "
            "again). Otherwise start with a copy:\n\n    mkdir DIRECTORY; export EBSIF_USER_SOFTWARE=$(realpath "
            "DIRECTORY); unmake-squashfs\n    module unload %s; module load %s" % (
                MAKE_EXTENSION % self.shown_name, self.shown_name.rpartition('/')[0], self.shown_name)]

    @property
    def changed_packages(self):
        """Statements that add the packages that users add by hand to what `module spider` lists (E-08)."""
        keys = LISTED_PACKAGES[self.spec.listed_packages]
        directory = os.path.relpath(self.spec.venv, os.path.dirname(USER_SOFTWARE))
        library = os.path.join(self.module.root, directory, 'lib')
        paths = [os.path.join(self.module.root, SQUASHFS)] + glob.glob(
            os.path.join(glob.escape(library), '*', 'site-packages'))
        times = {path: int(os.path.getmtime(path)) if os.path.exists(path) else 0 for path in paths}
        return '\n' + self.module.list_packages(directory, keys, times) if keys else ''

    def more_binds(self):
        """Statements that bind the user software they find; the SquashFS file takes precedence over the directory."""
        module = self.module
        directory = os.path.join(module.root, DIRECTORY)
        squashfs = os.path.join(module.root, SQUASHFS)
        both = module.when(module.is_dir(directory), module.notice_on_load(
            "%s has both user-software.squashfs and the directory user-software: the file is used, and changes in the "
            "directory have no effect." % module.root))
        choose = module.when(
            module.is_file(squashfs), module.assign('user_software', squashfs) + both,
            module.when(module.is_dir(directory), module.assign('user_software', directory)))
        choose = module.when(
            module.is_dir_below('own_directory', DIRECTORY),
            module.assign_below('user_software', 'own_directory', DIRECTORY), choose)
        choose = module.when(
            module.is_file_below('own_directory', SQUASHFS),
            module.assign_below('user_software', 'own_directory', SQUASHFS), choose)
        return ''.join([
            module.comment("User software: the user's own in EBSIF_USER_SOFTWARE, else the module's, if there is any;"),
            module.comment('the SquashFS file (read-only) takes precedence over the directory.'),
            module.declare_from_environment('own_directory', USER_SOFTWARE_VARIABLE, ''),
            self.check_own_directory(),
            module.declare('user_software', ''),
            choose,
            module.when(
                module.is_file_at('user_software'),
                module.add_bind('container_binds', 'user_software', ':' + USER_SOFTWARE + MOUNT_SQUASHFS),
                module.when(module.is_set('user_software'),
                            module.add_bind('container_binds', 'user_software', ':' + USER_SOFTWARE))),
            module.setenv_from('EBSIF_MOUNTED_USER_SOFTWARE', 'user_software'),
        ])

    def check_own_directory(self):
        """Statements that check the directory in EBSIF_USER_SOFTWARE."""
        module = self.module
        problems = [
            (module.is_relative('own_directory'), " is not a full path: it would mean another directory after `cd`."),
            (module.loses_blank('own_directory'), " can't be bound by the container runtime, because of the space next "
                                                  "to a comma or colon: use another directory."),
        ]
        named = (USER_SOFTWARE_VARIABLE + "=", 'own_directory')
        text = ''.join(module.when(condition, module.fail_on_load(*named + (problem,)))
                       for condition, problem in problems)
        return text + module.when(module.is_no_dir('own_directory'), module.notice_on_load(*named + (
            " is not a directory, so the module's user software is used. Create the directory or unset the variable, "
            "then reload the module.",)))

    def environment(self):
        """Statements for the environment of the image and, if there is user software, of the activated venv."""
        spec, module = self.spec, self.module
        # the venv's PYTHONPATH extends the image's, so it comes first: the first statement for a variable counts
        python_path = ''.join(module.container_env(name, value)
                              for name, value in sorted(self.record.get(lockfile.VENV_ENVIRONMENT, {}).items()))
        activated = module.container_env('VIRTUAL_ENV', spec.venv)
        activated += module.container_env('VIRTUAL_ENV_PROMPT', spec.venv_name)
        parts = [super().environment(), module.where(module.is_set('user_software'), activated)]
        if python_path:
            parts.insert(0, module.where(module.is_set('user_software'), python_path))
        return ''.join(parts)
