##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Installing again without taking away what works: what an easyblock does beyond EasyBuild's, to derive from.
"""
import errno
import os
import shutil
import time
from contextlib import contextmanager, suppress

from easybuild.easyblocks.generic.container.lockowner import LockOwner
from easybuild.easyblocks.generic.container.framework import FAILURES, EasyBuildExit
from easybuild.easyblocks.generic.container.parameters import exit_status
from easybuild.easyblocks.generic.container.record import RECORD
from easybuild.easyblocks.generic.container.usersoftware import UserSoftware, exchange, spare_path
from easybuild.framework import easyblock
from easybuild.tools.build_log import print_msg, print_warning
from easybuild.tools.filetools import copy_file, read_file, remove_dir, remove_file, write_file
from easybuild.tools.utilities import trace_msg

# In an installation that is in its place, and whose module is not written yet.
UNPROVEN = os.path.join('share', 'ebsif', 'unproven')

# Exit statuses that are not called as their step is.
STEP_STATUS = {'postiter': EasyBuildExit.FAIL_POST_ITER_STEP, 'postproc': EasyBuildExit.FAIL_POST_PROC_STEP,
               'sanitycheck': EasyBuildExit.FAIL_SANITY_CHECK_STEP, 'testcases': EasyBuildExit.FAIL_TEST_CASES_STEP}


class Reinstall:
    """
    Support for replacing an installation only when the new one is complete; no easyblock itself.

    EasyBuild empties the installation directory, then fills it. Here the new installation is made beside an earlier
    one. When all is there the two change places, with a module for the new one, so that what comes afterwards (commands
    of the easyconfig, hooks, the sanity check, the module) sees the paths that stay. Whatever fails, they change back:
    the earlier image, user software and module are as they were; jobs that run from them go on with the files they
    have. After a kill the next attempt changes them back.
    """

    # whether the module makes user software visible in the container
    HAS_USER_SOFTWARE = False

    def __init__(self, *args, **kwargs):
        """There is nothing to replace until an earlier installation is found."""
        super().__init__(*args, **kwargs)
        self.place = None
        self.lock_owner = None

    @property
    def lock_path(self):
        """Where the record of what was installed is; only a complete installation has one."""
        return os.path.join(self.installdir, RECORD)

    @property
    def replaced_module(self):
        """Where the module of the earlier installation is kept until that of the new one is complete."""
        return beside_module(self.mod_filepath, 'replaced')

    def run_all_steps(self, *args, **kwargs):
        """Run the steps; when they end without a new installation, everything is as it was."""
        self.lock_owner = LockOwner(self.installdir)
        with self.lock_owner.held():
            try:
                done = super().run_all_steps(*args, **kwargs)
                if self.place:
                    # EasyBuild goes on to call it a success
                    print_warning("Stopped before the new installation is complete (--stop): it is removed, and the "
                                  "earlier one stays. To keep what the steps have made, install elsewhere (--prefix).",
                                  log=self.log)
                return done
            finally:
                # already reported, or it would mask the original error
                with suppress(*FAILURES):
                    self.finish_writing()
                if self.place:
                    with self.lock_owner.again() as ours:
                        if ours:
                            self.give_up()

    def run_step(self, step, *args, **kwargs):
        """Run a step; there are none without the lock. Its errors have its exit status."""
        if self.lock_owner:
            self.lock_owner.confirm()
        code = STEP_STATUS.get(step) or getattr(EasyBuildExit, 'FAIL_%s_STEP' % step.upper(), EasyBuildExit.ERROR)
        with exit_status(code):
            return super().run_step(step, *args, **kwargs)

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
            if os.path.exists(self.replaced_module) and os.path.exists(os.path.join(place.beside, UNPROVEN)):
                os.rename(self.replaced_module, self.mod_filepath)
            for path in place.leftovers:
                # a killed attempt: without a lock file it was not complete, with one it had been in place
                self.keep_from(path)
                remove_replaced(path)
            remove_file(self.replaced_module)
            earlier = os.path.exists(self.lock_path) or os.path.exists(self.mod_filepath)
            if earlier and os.path.isdir(self.installdir) and not self.cfg['keeppreviousinstall']:
                self.make_beside(place)
        super().make_installdir(*args, **kwargs)

    def make_beside(self, place):
        """Go on beside the earlier installation; where directories can't be renamed, EasyBuild empties it."""
        problem = place.problem()
        if problem:
            print_warning("%s can't change places with a new installation (%s): it is emptied, and not available until "
                          "the new one is complete.", self.installdir, problem, log=self.log)
            self.keep_from(self.installdir)
            super().remove_module_file()
            return
        trace_msg("the earlier installation stays as it is until the new one is complete")
        self.place = place
        self.change_installdir(place.beside)

    def change_installdir(self, path):
        """Go on in another installation directory, templates included."""
        self.installdir = path
        self.update_config_template_run_step()

    def post_processing_step(self, *args, **kwargs):
        """Put the new installation in its place first: what runs now may write the paths of it into files."""
        self.take_place()
        return super().post_processing_step(*args, **kwargs)

    def take_place(self):
        """Let the new installation take the place of the earlier one, and its module at once."""
        if not self.place or self.place.taken:
            return
        self.finish_writing()
        self.change_installdir(self.place.path)
        module = self.module_text()
        if os.path.exists(self.mod_filepath):
            copy_file(self.mod_filepath, self.replaced_module)
        self.place.take()
        # the earlier module may name an image that the new installation does not have
        write_whole(self.mod_filepath, module)

    def give_up(self):
        """Put the earlier installation and its module back, where they aren't, and remove the new one."""
        place, self.place = self.place, None
        self.change_installdir(place.path)
        if place.taken:
            place.exchange()
            if os.path.exists(self.replaced_module):
                os.rename(self.replaced_module, self.mod_filepath)
            else:
                remove_file(self.mod_filepath)
            # it could be loaded meanwhile
            self.keep_from(place.beside)
        remove_file(self.replaced_module)
        remove_replaced(place.beside)

    def make_module_step(self, fake=False):
        """Write the module, whole; then the earlier installation is no longer needed."""
        if fake or self.dry_run:
            return super().make_module_step(fake=fake)
        self.finish_writing()
        self.take_place()
        with whole_files():
            modules_path = super().make_module_step()
        if self.place:
            place, self.place = self.place, None
            remove_file(os.path.join(self.installdir, UNPROVEN))
            remove_file(self.replaced_module)
            self.keep_from(place.beside, merge=True)
            if self.cfg['cleanupoldinstall']:
                remove_replaced(place.beside)
            else:
                backup = '%s.%s' % (place.installdir, time.strftime('%Y%m%d-%H%M%S'))
                os.rename(place.beside, backup)
                print_msg("the earlier installation is kept at %s", backup, log=self.log)
        return modules_path

    def module_text(self):
        """Return the module of the new installation (str)."""
        modules_path = super().make_module_step(fake=True)
        text = read_file(self.module_generator.get_module_filepath(fake=True))
        remove_dir(modules_path)
        return text

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
        Keep what people have put into an installation that is going to be removed: user software, scripts.

        Where both installations had the same user software to begin with, that of the earlier one is put into the new
        one, also if nobody changed it: programs may run from it. Otherwise (another image, other packages) what was
        changed is set aside: what was added may not fit what is there now.

        Parameters
        ----------
        earlier : str
            Its directory.
        merge : bool
            Whether the new installation is complete, so that something could be put into it.
        """
        before, now = UserSoftware(earlier), UserSoftware(self.installdir)
        # without a lock file and not in use, it's the rest of a killed attempt
        if not self.cfg['keep_user_software'] or not (before.record or merge or earlier == self.installdir):
            return
        self.keep_scripts(before, now, merge)
        changed = before.changed
        if merge and before.present and before.installed and before.installed == now.installed:
            now.take_over(before)
            if changed:
                print_msg("user software was changed by hand since it was installed; it is kept as it is (%s)",
                          ', '.join(changed), log=self.log)
            return
        why = "was changed by hand since" if before.installed else "may have been changed by hand (it has no record)"
        paths, command = before.set_aside(changed, now)
        if paths:
            use = "To use it all the same: %s" % command if self.HAS_USER_SOFTWARE else \
                "An installation of this kind uses none: for one that does, see the easyblock ContainerVenv."
            print_msg("user software of the earlier installation %s, and is not for this one; it is kept at %s. %s",
                      why, ' and '.join(paths), use, log=self.log)

    def keep_scripts(self, before, now, merge):
        """Keep commands and run scripts of people's own: in place, or set aside where the new installation has them."""
        there = now.scripts if merge else {}
        own = [name for name in before.own_scripts if before.scripts[name] != there.get(name)]
        in_place = [name for name in own if merge and before.record and name not in there]
        for name in in_place:
            os.makedirs(os.path.dirname(now.path(name)), exist_ok=True)
            os.rename(before.path(name), now.path(name))
        if in_place:
            print_msg("scripts that were added by hand are kept (%s)", ', '.join(in_place), log=self.log)
        aside = [name for name in own if name not in in_place]
        if aside:
            print_msg("scripts of the earlier installation that are not those of this one are kept at %s (%s)",
                      before.set_scripts_aside(aside, now), ', '.join(aside), log=self.log)


class Place:
    """
    The place of an installation and the one beside it, in the same directory, so that renaming is enough.

    Attributes
    ----------
    path : str
        Where the installation is, or will be, as EasyBuild calls it.
    installdir : str
        The same with links resolved: a link stays one.
    beside : str
        Where its replacement is made; after ``exchange`` the replaced one is there.
    spare : str
        Needed in between where the two can't change places at once.
    taken : bool
        Whether the replacement is in its place.
    """

    def __init__(self, path):
        """Keep where the installation is."""
        self.path = path
        self.installdir = os.path.realpath(path)
        self.beside = self.installdir + '.replace'
        self.spare = spare_path(self.installdir)
        self.taken = False

    def recover(self):
        """Undo an exchange that was killed, half-way or before the module was written: the unproven one is beside."""
        if not os.path.lexists(self.installdir) and os.path.lexists(self.spare):
            os.rename(self.spare, self.installdir)
        if os.path.exists(os.path.join(self.installdir, UNPROVEN)):
            if not os.path.lexists(self.beside) and os.path.lexists(self.spare):
                os.rename(self.spare, self.beside)
            if os.path.isdir(self.beside):
                self.exchange()

    @property
    def leftovers(self):
        """What killed attempts left beside the installation (list of str)."""
        return [path for path in (self.beside, self.spare) if os.path.lexists(path)]

    def problem(self):
        """
        Tell why the two could not change places (OSError), None if they can.

        A directory is not put in the place of one that isn't empty, so trying to do it changes nothing.
        """
        try:
            os.makedirs(os.path.join(self.beside, 'not empty'))
            os.rename(self.installdir, self.beside)
        except OSError as err:
            shutil.rmtree(self.beside, ignore_errors=True)
            return None if err.errno in (errno.ENOTEMPTY, errno.EEXIST) else err
        # a file system that does it all the same
        os.rename(self.beside, self.installdir)
        return None

    def take(self):
        """Put the replacement in its place, marked as one that is not proven to work."""
        mark = os.path.join(self.beside, UNPROVEN)
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        with open(mark, 'w'):
            pass
        self.exchange()
        self.taken = True

    def exchange(self):
        """Let the installation and its replacement change places; done twice, everything is as it was."""
        exchange(self.installdir, self.beside)


@contextmanager
def whole_files():
    """
    Let EasyBuild write files whole: whoever reads one meanwhile gets the earlier one or the new one.

    A kill half-way would leave a part of a module that EasyBuild takes for an installation. Here, so that it happens
    between the hook for the text and the update of the modules tool's cache, and both see the path that stays.
    """
    easyblock.write_file = write_whole
    try:
        yield
    finally:
        easyblock.write_file = write_file


def write_whole(path, *args, **kwargs):
    """Write a file as EasyBuild's write_file does, under another name first."""
    part = beside_module(path, 'unfinished')
    try:
        write_file(part, *args, **kwargs)
        os.rename(part, path)
    finally:
        remove_file(part)


def beside_module(path, what):
    """Return a path for something that has to do with a module file; modules tools list no such name (str)."""
    return os.path.join(os.path.dirname(path), '.%s.%s' % (os.path.basename(path), what))


def remove_replaced(path):
    """Remove an installation that is no longer needed; what can't be removed is named, and nothing else is wrong."""
    try:
        remove_dir(path)
    except Exception as err:  # EasyBuildError, or what a shared file system comes up with
        print_warning("Can't remove %s, please do so: %s", path, err)
