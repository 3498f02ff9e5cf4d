##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Mixin for easyblocks that replace an installation only once the new one is complete.
"""
import os
import signal
import time
from contextlib import contextmanager

from easybuild.easyblocks.generic.container.closedplaces import closed_part, closed_place
from easybuild.easyblocks.generic.container.framework import EasyBuildExit, exit_status, plain_errors
from easybuild.easyblocks.generic.container.framework import with_build_option
from easybuild.easyblocks.generic.container.installdirswap import UNPROVEN, InstallDirSwap
from easybuild.easyblocks.generic.container.lockfile import RECORD
from easybuild.easyblocks.generic.container.lockowner import LockOwner
from easybuild.easyblocks.generic.container.readable import open_to_readers
from easybuild.easyblocks.generic.container.usersoftware import UserSoftware
from easybuild.easyblocks.generic.container.wholefile import hidden_path, whole_files, write_whole
from easybuild.tools.build_log import EasyBuildError, print_msg, print_warning
from easybuild.tools.config import build_option, get_repository, get_repositorypath, install_path
from easybuild.tools.filetools import copy_file, mkdir, read_file, remove_dir, remove_file, write_file
from easybuild.tools.utilities import trace_msg

# Steps whose exit status is not named after the step.
STEP_STATUS = {'postiter': EasyBuildExit.FAIL_POST_ITER_STEP, 'postproc': EasyBuildExit.FAIL_POST_PROC_STEP,
               'sanitycheck': EasyBuildExit.FAIL_SANITY_CHECK_STEP, 'testcases': EasyBuildExit.FAIL_TEST_CASES_STEP}


class Reinstall:
    """
    Replace an installation only when the new one is complete. Not an easyblock by itself.

    Of a first installation that fails before it is complete, or that is interrupted, nothing stays.

    EasyBuild empties the installation directory, then fills it. Here the new installation is built in a staging
    directory next to the earlier one. Once it is complete the two are swapped, together with the module, so that later
    steps (commands of the easyconfig, hooks, the sanity check, the module) see the final paths. If anything fails they
    are swapped back: the earlier image, user software and module are as they were, and running jobs keep the files they
    have open. After a kill the next attempt swaps them back.
    """

    # whether the module makes user software visible in the container
    HAS_USER_SOFTWARE = False
    # whether there is no earlier installation, and this run has begun the first one
    is_first = False

    def __init__(self, *args, **kwargs):
        """Start without a swap: no earlier installation has been found yet."""
        super().__init__(*args, **kwargs)
        self.swap = None
        self.lock_owner = None

    @property
    def lock_path(self):
        """Path of the installation record; only a complete installation has one."""
        return os.path.join(self.installdir, RECORD)

    @property
    def replaced_module(self):
        """Backup of the earlier module, kept until the new one is complete."""
        return hidden_path(self.mod_filepath, 'replaced')

    @property
    def final_installdir(self):
        """The installation directory where the new installation is going to be (str)."""
        return self.swap.path if self.swap else self.installdir

    @property
    def is_own_copy(self):
        """Whether the easyconfig is the copy in the earlier installation."""
        return os.path.realpath(self.cfg.path).startswith(os.path.realpath(self.final_installdir) + os.sep)

    def run_all_steps(self, *args, **kwargs):
        """Run the steps; unless they complete a new installation, restore the earlier one."""
        self.lock_owner = LockOwner(self.installdir)
        self.check_places()
        with self.lock_owner.held():
            complete = self.lock_path
            try:
                done = super().run_all_steps(*args, **kwargs)
                if self.swap:
                    # EasyBuild will report success
                    print_warning("Stopped before the new installation was complete (--stop): it is removed, and the "
                                  "earlier one stays. To keep the result of the steps, install elsewhere (--prefix).",
                                  log=self.log)
                # of a first one, the result of the steps stays
                self.is_first = False
                return done
            except (KeyboardInterrupt, SystemExit):
                # unlike after a failed sanity check, nobody wants to look at what there is
                complete = self.mod_filepath
                raise
            finally:
                with uninterrupted():
                    self.clean_up(self.is_first and not os.path.exists(complete))

    def clean_up(self, is_part):
        """Restore the earlier installation if necessary, or remove what is only a part of the first one."""
        if self.swap or is_part:
            with self.lock_owner.again() as ours:
                if ours and is_part:
                    remove_replaced(self.installdir)
                elif ours:
                    self.roll_back()

    def check_places(self):
        """Stop before anything is done if this account can't write where EasyBuild will, at once or in the end."""
        software, modules, needed, others = install_path(), install_path('mod'), [], {}
        installs = not any(map(build_option, ('module_only', 'sanity_check_only', 'stop')))
        locks = os.path.dirname(self.lock_owner.lock)
        if not build_option('ignore_locks'):
            # another prefix would be no remedy
            if build_option('locks_dir') or not installs:
                others['locks-dir'] = locks
            else:
                needed.append((software, locks))
        if installs:
            # without a new directory, the one that is there is filled
            parent = os.path.dirname(self.installdir)
            needed += [(software, self.installdir if closed_part(parent) else parent),
                       (modules, os.path.dirname(self.mod_filepath))]
            archive = os.path.join(*get_repositorypath()) if get_repository() == 'FileRepository' else None
            # EasyBuild fails if it can't create it; where it can't write to it, it archives nothing
            if archive and not os.path.isdir(archive):
                others['repositorypath'] = archive
        problem = None if self.dry_run else closed_place(needed, others, 'eb ')
        if problem:
            raise EasyBuildError("%s", problem[0].upper() + problem[1:])

    def run_step(self, step, *args, **kwargs):
        """Run a step, holding the lock; errors get the exit status of the step."""
        if self.lock_owner:
            self.lock_owner.confirm()
        code = STEP_STATUS.get(step) or getattr(EasyBuildExit, 'FAIL_%s_STEP' % step.upper(), EasyBuildExit.ERROR)
        with exit_status(code), plain_errors():
            return super().run_step(step, *args, **kwargs)

    def fetch_step(self, *args, **kwargs):
        """Fetch files; of the directories that EasyBuild would create meanwhile, only those of all installations."""
        if build_option('pre_create_installdir') and not self.dry_run:
            # who may enter them, the umask decides; it doesn't for those below, which later steps create
            for path in (install_path(), self.installdir_mod):
                mkdir(path, parents=True)
        with with_build_option('pre_create_installdir', False):
            super().fetch_step(*args, **kwargs)

    def remove_module_file(self):
        """Keep the earlier module, which works until it's rewritten; remove one of another installation directory."""
        directory = self.module_generator.det_installdir(self.mod_filepath) if os.path.exists(self.mod_filepath) else ''
        if directory is None or os.path.realpath(directory) != os.path.realpath(self.installdir):
            super().remove_module_file()

    @open_to_readers()
    def make_installdir(self, *args, **kwargs):
        """Make the installation directory, or a staging directory if there is an earlier installation."""
        swap = InstallDirSwap(self.installdir)
        if not self.dry_run:
            swap.recover()
            if os.path.exists(self.replaced_module) and os.path.exists(os.path.join(swap.staging_dir, UNPROVEN)):
                os.rename(self.replaced_module, self.mod_filepath)
            for path in swap.leftovers:
                # left by a killed attempt: with a record it had been in place, without one it was not complete
                self.preserve_user_changes(path)
                remove_replaced(path)
            remove_file(self.replaced_module)
            earlier = os.path.exists(self.lock_path) or os.path.exists(self.mod_filepath)
            if earlier and os.path.isdir(self.installdir) and not self.cfg['keeppreviousinstall']:
                self.use_staging_dir(swap)
        super().make_installdir(*args, **kwargs)
        self.is_first = not (self.swap or self.dry_run or self.cfg['keeppreviousinstall'])

    def use_staging_dir(self, swap):
        """Install into the staging directory; where directories can't be renamed, EasyBuild empties the earlier one."""
        problem = swap.problem()
        if problem:
            self.empty_installation(problem)
            return
        trace_msg("the earlier installation stays as it is until the new one is complete")
        self.swap = swap
        self.change_installdir(swap.staging_dir)

    def empty_installation(self, problem):
        """Save the users' changes, before EasyBuild empties the earlier installation, which can't be swapped."""
        print_warning("%s can't be swapped with a new installation (%s): it is emptied, and not available until the "
                      "new one is complete.", self.installdir, problem, log=self.log)
        self.preserve_user_changes(self.installdir)
        super().remove_module_file()

    def change_installdir(self, path):
        """Switch to another installation directory, in templates as well."""
        self.installdir = path
        self.update_config_template_run_step()

    def post_processing_step(self, *args, **kwargs):
        """Put the new installation in place first: commands may write its path into files."""
        self.activate_installation()
        return super().post_processing_step(*args, **kwargs)

    def activate_installation(self):
        """Swap in the new installation, together with its module."""
        if not self.swap or self.swap.active:
            return
        self.change_installdir(self.swap.path)
        module = self.module_text()
        if os.path.exists(self.mod_filepath):
            copy_file(self.mod_filepath, self.replaced_module)
        self.swap.activate()
        # the earlier module may point to an image that the new installation doesn't have
        write_whole(self.mod_filepath, module)

    def roll_back(self):
        """Restore the earlier installation and its module if necessary, and remove the new one."""
        swap, self.swap = self.swap, None
        self.change_installdir(swap.path)
        if swap.active:
            swap.exchange()
            if os.path.exists(self.replaced_module):
                os.rename(self.replaced_module, self.mod_filepath)
            else:
                remove_file(self.mod_filepath)
            # the module could be loaded in the meantime
            self.preserve_user_changes(swap.staging_dir)
        remove_file(self.replaced_module)
        remove_replaced(swap.staging_dir)

    @open_to_readers()
    def make_module_step(self, fake=False):
        """Write the module atomically, then remove the earlier installation."""
        if fake or self.dry_run:
            return super().make_module_step(fake=fake)
        self.activate_installation()
        # nothing is built against a container, and EasyBuild's module for that has what eb changed in the environment
        # of the caller, passwords for registries included
        with whole_files(), with_build_option('generate_devel_module', False):
            modules_path = super().make_module_step()
        if self.swap:
            swap, self.swap = self.swap, None
            remove_file(os.path.join(self.installdir, UNPROVEN))
            remove_file(self.replaced_module)
            self.preserve_user_changes(swap.staging_dir, merge=True)
            if self.cfg['cleanupoldinstall']:
                remove_replaced(swap.staging_dir)
            else:
                backup = '%s.%s' % (swap.installdir, time.strftime('%Y%m%d-%H%M%S'))
                os.rename(swap.staging_dir, backup)
                print_msg("the earlier installation is kept at %s", backup, log=self.log)
        self.restore_easyconfig()
        return modules_path

    def restore_easyconfig(self):
        """Write the easyconfig again if it was in the earlier installation: eb copies it after the last step."""
        path = os.path.realpath(self.cfg.path)
        if self.is_own_copy and not os.path.exists(path):
            write_file(path, self.cfg.rawtxt)

    def module_text(self):
        """Return the module of the new installation (str)."""
        modules_path = super().make_module_step(fake=True)
        text = read_file(self.module_generator.get_module_filepath(fake=True))
        remove_dir(modules_path)
        return text

    def preserve_user_changes(self, earlier, merge=False):
        """
        Preserve what users have changed in an installation that is about to be removed: user software and scripts.

        If both installations started with the same user software, the earlier one's is moved to the new one, even if
        unchanged: programs may be running from it. So is changed user software that another easyblock installed, if it
        works here. Otherwise (another image, other packages) changed user software is set aside, because what was added
        may not work with the new installation.

        Parameters
        ----------
        earlier : str
            Directory of that installation.
        merge : bool
            Whether the new installation is complete, so that changes can be moved to it.
        """
        before, now = UserSoftware(earlier), UserSoftware(self.installdir)
        # without a record, and not in use: left by a killed attempt
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
        if merge and changed and not before.record and self.adopt(before, now):
            print_msg("user software of the earlier installation works with this one; it stays in use (%s)",
                      ', '.join(changed), log=self.log)
            return
        known = before.installed or before.installed_at
        why = "was changed by hand since" if known else "may have been changed by hand (it has no record)"
        paths, command = before.set_aside(changed, now)
        if paths:
            use = "To use it anyway: %s" % command if self.HAS_USER_SOFTWARE else \
                "This kind of installation has no user software; the easyblock ContainerVenv has."
            print_msg("user software of the earlier installation %s, and doesn't match this one; it is kept at %s. %s",
                      why, ' and '.join(paths), use, log=self.log)

    def adopt(self, before, now):
        """
        Move user software of another easyblock's installation to this one if it works here; return whether it does.

        Derived classes that have user software override this.
        """
        return False

    def keep_scripts(self, before, now, merge):
        """Keep users' own scripts: in place, or set aside if the new installation has one of that name."""
        there = now.scripts if merge else {}
        own = [name for name in before.own_scripts if before.scripts[name] != there.get(name)]
        known = before.record or before.installed_at
        in_place = [name for name in own if merge and known and name not in there]
        for name in in_place:
            os.makedirs(os.path.dirname(now.path(name)), exist_ok=True)
            os.rename(before.path(name), now.path(name))
        if in_place:
            print_msg("scripts that were added by hand are kept (%s)", ', '.join(in_place), log=self.log)
        aside = [name for name in own if name not in in_place]
        if aside:
            print_msg("scripts of the earlier installation that differ from those of this one are kept at %s (%s)",
                      before.set_scripts_aside(aside, now), ', '.join(aside), log=self.log)


@contextmanager
def uninterrupted():
    """Context manager in which Ctrl-C, which impatient people type several times, has no effect."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def remove_replaced(path):
    """Remove an installation that is no longer needed; failing to is only worth a warning."""
    try:
        remove_dir(path)
    except Exception as err:  # EasyBuildError, or what a shared file system comes up with
        print_warning("Can't remove %s, please do so: %s", path, err)
