##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for installing again without taking away what works, implemented as an easyblock to derive from.
"""
import ctypes
import os
import time
from contextlib import suppress

from easybuild.easyblocks.generic.containerclaim import ContainerClaim
from easybuild.framework.easyblock import EasyBlock
from easybuild.tools.build_log import print_msg, print_warning
from easybuild.tools.filetools import read_file, remove_dir, remove_file, write_file
from easybuild.tools.utilities import trace_msg

RENAME_EXCHANGE = 2  # of renameat2(2)
AT_FDCWD = -100


class ContainerReplace(EasyBlock):
    """
    Support for replacing an installation only when the new one is complete.

    EasyBuild empties the installation directory, then fills it. Here the new installation is made beside an earlier
    one and checked there, then the two change places and the module is written. Whatever fails before, the earlier
    image, user software and module are as they were; jobs that run from them go on with the files they have.
    """

    def __init__(self, *args, **kwargs):
        """There is nothing to replace until an earlier installation is found."""
        super().__init__(*args, **kwargs)
        self.place = None

    @property
    def lock_path(self):
        """Where the record of what was installed is; it's written last, so only a complete installation has one."""
        return os.path.join(self.installdir, 'share', 'ebsif', 'lock.json')

    def run_all_steps(self, *args, **kwargs):
        """Run the steps; when they end without a new installation, nothing is left beside the earlier one."""
        with ContainerClaim(self.installdir).held():
            try:
                return super().run_all_steps(*args, **kwargs)
            finally:
                # what went wrong with it was said already, or something else is
                with suppress(Exception):
                    self.finish_writing()
                if self.place:
                    remove_replaced(self.place.beside)
                    self.place = None

    def remove_module_file(self):
        """Leave the module of the earlier installation: it works until it's rewritten. One of another place goes."""
        directory = self.module_generator.det_installdir(self.mod_filepath) if os.path.exists(self.mod_filepath) else ''
        if directory is None or os.path.realpath(directory) != os.path.realpath(self.installdir):
            super().remove_module_file()

    def make_installdir(self, *args, **kwargs):
        """Make the installation directory; beside an earlier installation, if there is one."""
        place = Place(self.installdir)
        if not self.dry_run:
            place.recover()
            for path in place.leftovers:
                # a killed attempt: without a lock file it was not complete, with one it had been replaced already
                self.keep_from(path)
                remove_replaced(path)
            earlier = os.path.exists(self.lock_path) or os.path.exists(self.mod_filepath)
            if earlier and os.path.isdir(self.installdir) and not self.cfg['keeppreviousinstall']:
                trace_msg("the earlier installation stays as it is until the new one is complete")
                self.place = place
                self.change_installdir(place.beside)
        super().make_installdir(*args, **kwargs)

    def change_installdir(self, path):
        """Go on in another installation directory, templates included."""
        self.installdir = path
        self.update_config_template_run_step()

    def make_module_step(self, fake=False):
        """Write the module; a complete installation takes the place of the earlier one, and its module at once."""
        if fake or self.dry_run:
            return super().make_module_step(fake=fake)
        self.finish_writing()
        if not self.place:
            return self.write_module()
        earlier_module = read_file(self.mod_filepath, mode='rb') if os.path.exists(self.mod_filepath) else None
        module = self.module_for(self.place)
        # until here what was made beside the earlier installation is removed when something fails
        place, self.place = self.place, None
        self.change_installdir(place.installdir)
        place.exchange()
        try:
            # the earlier module may name an image that the new installation does not have
            os.rename(module, self.mod_filepath)
            modules_path = self.write_module()
        except BaseException:
            place.exchange()
            remove_replaced(place.beside)
            if earlier_module is None:
                remove_file(self.mod_filepath)
            else:
                write_file(module, earlier_module)
                os.rename(module, self.mod_filepath)
            raise
        self.keep_from(place.beside, merge=True)
        if self.cfg['cleanupoldinstall']:
            remove_replaced(place.beside)
        else:
            backup = '%s.%s' % (self.installdir, time.strftime('%Y%m%d-%H%M%S'))
            os.rename(place.beside, backup)
            print_msg("the earlier installation is kept at %s", backup, log=self.log)
        return modules_path

    def write_module(self):
        """
        Write the module as EasyBuild does, under another name first: whoever loads it meanwhile gets a whole one.

        A kill half-way would leave a part of a module that EasyBuild takes for an installation.
        """
        path = self.mod_filepath
        self.mod_filepath = unfinished(path)
        try:
            modules_path = super().make_module_step()
            os.rename(self.mod_filepath, path)
        finally:
            remove_file(self.mod_filepath)
            self.mod_filepath = path
        return modules_path

    def module_for(self, place):
        """Write the module of the new installation as it will be in its place; return the path of the file (str)."""
        modules_path = super().make_module_step(fake=True)
        text = read_file(self.module_generator.get_module_filepath(fake=True))
        remove_dir(modules_path)
        path = unfinished(self.mod_filepath)
        # the one is the other with something added, so nothing else can be meant
        try:
            write_file(path, text.replace(place.beside, place.installdir))
        except BaseException:
            remove_file(path)
            raise
        return path

    def finish_writing(self):
        """
        Wait for what still writes to the installation directory; easyblocks that derive say what.

        Raises
        ------
        Exception
            If it fails.
        """

    def keep_from(self, earlier, merge=False):
        """
        Keep what people have put into an installation that is going to be removed; easyblocks that derive say what.

        Parameters
        ----------
        earlier : str
            Its directory.
        merge : bool
            Whether the new installation is complete, so that something could be put into it.
        """


class Place(object):
    """
    The place of an installation and the one beside it, in the same directory, so that renaming is enough.

    Attributes
    ----------
    installdir : str
        Where the installation is, or will be.
    beside : str
        Where its replacement is made; after ``exchange`` the replaced one is there.
    spare : str
        Needed in between where the two can't change places at once.
    """

    def __init__(self, installdir):
        """Keep where the installation is."""
        self.installdir = installdir
        self.beside = installdir + '.replace'
        self.spare = installdir + '.replaced'

    def recover(self):
        """Undo the first half of an exchange that was killed."""
        if not os.path.lexists(self.installdir) and os.path.lexists(self.spare):
            os.rename(self.spare, self.installdir)

    @property
    def leftovers(self):
        """What killed attempts left beside the installation (list of str)."""
        return [path for path in (self.beside, self.spare) if os.path.lexists(path)]

    def exchange(self):
        """
        Let the installation and its replacement change places; done twice, everything is as it was.

        At once where kernel and file system can (renameat2 with RENAME_EXCHANGE), else with three renames.
        """
        renameat2 = getattr(ctypes.CDLL(None), 'renameat2', None)
        if renameat2 and renameat2(AT_FDCWD, os.fsencode(self.installdir), AT_FDCWD, os.fsencode(self.beside),
                                   RENAME_EXCHANGE) == 0:
            return
        os.rename(self.installdir, self.spare)
        os.rename(self.beside, self.installdir)
        os.rename(self.spare, self.beside)


def unfinished(path):
    """Return where a module file is written before it is put in its place; modules tools list no such name (str)."""
    return os.path.join(os.path.dirname(path), '.%s.unfinished' % os.path.basename(path))


def remove_replaced(path):
    """Remove an installation that is no longer needed; what can't be removed is named, and nothing else is wrong."""
    try:
        remove_dir(path)
    except Exception as err:  # EasyBuildError, or what a shared file system comes up with
        print_warning("Can't remove %s, please do so: %s", path, err)
