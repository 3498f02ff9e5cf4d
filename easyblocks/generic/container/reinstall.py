##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Mixin for easyblocks that replace an installation only once the new one is complete.
"""
import errno
import os
import shutil
import signal
import stat
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Optional

from easybuild.framework.easyblock import MODULE_STEP, POSTPROC_STEP, StopException
from easybuild.tools.build_log import EasyBuildError, print_msg, print_warning
from easybuild.tools.config import build_option, install_path
from easybuild.tools.filetools import adjust_permissions, mkdir, remove_dir, remove_file, write_file
from easybuild.tools.utilities import trace_msg

from .framework import EasyBuildExit, exit_status, plain_errors, stopped_by_hangup, with_build_option
from .record.lockfile import RECORD
from .install import open_to_readers
from .names import OutdatedError
from .usersoftware import DIRECTORY, UserSoftware, forms_in, free_path, move

# exit statuses of steps whose name is not part of EasyBuild's
STEP_STATUS = {'postiter': EasyBuildExit.FAIL_POST_ITER_STEP, 'postproc': EasyBuildExit.FAIL_POST_PROC_STEP,
               'sanitycheck': EasyBuildExit.FAIL_SANITY_CHECK_STEP, 'testcases': EasyBuildExit.FAIL_TEST_CASES_STEP}

# The mixin uses attributes of EasyBlock. EasyBuild would list it as an easyblock if it were derived from that.
if TYPE_CHECKING:
    from easybuild.framework.easyblock import EasyBlock as MIXIN  # noqa: N814 (a base class, one of two)
else:
    MIXIN = object


class Reinstall(MIXIN):
    """
    Replace an installation only when the new one is complete. Not an easyblock by itself.

    EasyBuild empties the installation directory, then fills it. Here the new installation is built beside the earlier
    one, in DIRECTORY.replace. Once it is complete, the earlier one is renamed to DIRECTORY.replaced and the new one
    takes its place, so that later steps (commands of the easyconfig, hooks, the sanity check, the module) see the final
    paths. If a step fails, the earlier installation is renamed back. If eb is killed, the next eb does that.

    Of a first installation that fails before it is complete, or that is interrupted, nothing stays.
    """

    # whether there is no earlier installation, and this run has begun the first one
    is_first = False
    # the installation directory, while a new installation is built beside the earlier one
    directory = ''
    # whether the new installation has user software; derived classes that have it say so
    has_user_software = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Begin without copies of the module's files."""
        super().__init__(*args, **kwargs)
        self.kept = KeptFiles()

    @property
    def lock_path(self) -> str:
        """Path of the installation record; only a complete installation has one."""
        return os.path.join(self.installdir, RECORD)

    @property
    def final_installdir(self) -> str:
        """The installation directory where the new installation is going to be."""
        return self.directory or self.installdir

    @property
    def staging_dir(self) -> str:
        """Where the new installation is built; if the installation directory is a link, it stays one."""
        return os.path.realpath(self.final_installdir) + '.replace'

    @property
    def replaced_dir(self) -> str:
        """Where the earlier installation is while the new one is tested."""
        return os.path.realpath(self.final_installdir) + '.replaced'

    @property
    def is_own_copy(self) -> bool:
        """Whether the easyconfig is the copy in the earlier installation."""
        return os.path.realpath(self.cfg.path).startswith(os.path.realpath(self.final_installdir) + os.sep)

    @stopped_by_hangup()
    def run_step(self, step: str, *args: Any, **kwargs: Any) -> Any:
        """Run a step; if it fails or is interrupted, put the earlier installation back."""
        code = STEP_STATUS.get(step) or getattr(EasyBuildExit, 'FAIL_%s_STEP' % step.upper(), EasyBuildExit.ERROR)
        try:
            with exit_status(code), plain_errors():
                done = super().run_step(step, *args, **kwargs)
                if step == MODULE_STEP:
                    self.kept.forget()
                return done
        except BaseException as err:
            is_stopped = isinstance(err, StopException)
            is_failed = isinstance(err, Exception) and not is_stopped
            is_kept = is_failed and not isinstance(err, OutdatedError)
            if step == POSTPROC_STEP and is_failed:
                # what its commands have written doesn't count as users' changes
                self.record_files()
            with ignored_signals():
                self.kept.put_back()
            if self.directory:
                if is_stopped:
                    print_warning("Stopped before the new installation was complete (--stop): it is removed, and the "
                                  "earlier one stays. To keep the result of the steps, install elsewhere (--prefix).",
                                  log=self.log)
                with ignored_signals():
                    self.roll_back()
            elif self.is_first and not is_stopped and \
                    not os.path.exists(self.lock_path if is_kept else self.mod_filepath):
                # people look at what fails its sanity check, but not at what was interrupted
                with ignored_signals():
                    remove_replaced(self.installdir)
            raise

    def fetch_step(self, skip_checksums: bool = False) -> None:
        """Fetch files; create the directories that installations share, but not this installation's directory."""
        if build_option('pre_create_installdir') and not self.dry_run:
            # the umask applies to them; it doesn't to the directories below, which later steps create
            for path in (install_path(), self.installdir_mod):
                mkdir(path, parents=True)
        with with_build_option('pre_create_installdir', False):
            super().fetch_step(skip_checksums)

    def remove_module_file(self) -> None:
        """Keep the earlier module, which works until it's rewritten; remove one of another installation directory."""
        directory = self.module_generator.det_installdir(self.mod_filepath) if os.path.exists(self.mod_filepath) else ''
        if directory is None or os.path.realpath(directory) != os.path.realpath(self.installdir):
            super().remove_module_file()

    @open_to_readers()
    def make_installdir(self, dontcreate: Optional[bool] = None) -> None:
        """Make the installation directory, or one beside it if there is an earlier installation."""
        if not self.dry_run:
            self.tidy_up()
            self.check_renaming()
            if self.has_earlier_installation() and not self.cfg['keeppreviousinstall']:
                trace_msg("the earlier installation stays as it is until the new one is complete")
                staging, self.directory = self.staging_dir, self.installdir
                self.change_installdir(staging)
        super().make_installdir(dontcreate)
        self.is_first = not (self.directory or self.dry_run or self.cfg['keeppreviousinstall'])

    def tidy_up(self) -> None:
        """Put back an installation that a killed eb was replacing, and remove what it has left."""
        if os.path.lexists(self.replaced_dir):
            if os.path.lexists(os.path.realpath(self.installdir)):
                remove_replaced(self.staging_dir)
                os.rename(os.path.realpath(self.installdir), self.staging_dir)
            os.rename(self.replaced_dir, os.path.realpath(self.installdir))
            if os.path.lexists(copy_of(self.mod_filepath)):
                os.rename(copy_of(self.mod_filepath), self.mod_filepath)
        if os.path.lexists(self.staging_dir):
            # with a record it had been in place, without one it was not complete
            self.preserve_user_changes(self.staging_dir)
            remove_replaced(self.staging_dir)

    def has_earlier_installation(self) -> bool:
        """Return whether there is an installation to replace, perhaps of an easyblock whose modules are elsewhere."""
        # a first installation of ours that was killed has this directory, and no record
        is_unfinished = os.path.isdir(os.path.dirname(self.lock_path))
        # a mount point that was emptied for a new installation has none
        return os.path.isdir(self.installdir) and bool(os.listdir(self.installdir)) and bool(
            os.path.exists(self.lock_path) or os.path.exists(self.mod_filepath)
            or os.path.isdir(os.path.join(self.installdir, 'easybuild'))
            or (forms_in(self.installdir) and not is_unfinished))

    def check_renaming(self) -> None:
        """
        Raise EasyBuildError if the installation directory or its user software can't be renamed, as a mount point.

        The easyblock also does this before it builds anything.
        """
        if self.cfg['keeppreviousinstall'] or not self.has_earlier_installation():
            return
        installdir = os.path.realpath(self.installdir)
        reason = why_no_renaming(installdir, self.staging_dir)
        if reason:
            raise EasyBuildError("%s can't be renamed (%s), and so it can't stay until the new installation is "
                                 "complete. Keep what was added to it (in user-software, bin and runscripts), "
                                 "remove everything in it, and install again.", installdir, reason)
        user_software = os.path.join(installdir, DIRECTORY)
        # in a read-only installation: it is made writable before (make_writable)
        reason = why_no_renaming(user_software, self.staging_dir, (errno.EACCES, errno.EPERM))
        if reason:
            raise EasyBuildError("%s can't be renamed (%s), and so it can't be kept for the new installation. If it is "
                                 "a mount point, unmount it, or make user-software a link to a directory elsewhere; "
                                 "then install again.", user_software, reason)

    def change_installdir(self, path: str) -> None:
        """Switch to another installation directory, in templates as well."""
        self.installdir = path
        self.update_config_template_run_step()

    def activate_installation(self) -> None:
        """
        Put the new installation in the place of the earlier one, unless it is there.

        The easyblock does this as soon as it is complete: commands of the easyconfig may write its path into files.
        """
        if not self.directory or self.installdir == self.directory:
            return
        place = os.path.realpath(self.directory)
        with ignored_signals():
            os.rename(place, self.replaced_dir)
            try:
                os.rename(self.staging_dir, place)
            except OSError:
                os.rename(self.replaced_dir, place)
                raise
            self.change_installdir(self.directory)

    def roll_back(self) -> None:
        """Put the earlier installation back, and remove the new one."""
        place, was_active = os.path.realpath(self.directory), self.installdir == self.directory
        if was_active:
            os.rename(place, self.staging_dir)
            os.rename(self.replaced_dir, place)
        staging = self.staging_dir
        self.change_installdir(self.directory)
        self.directory = ''
        if was_active:
            # the module could be loaded in the meantime
            self.preserve_user_changes(staging)
        remove_replaced(staging)

    @open_to_readers()
    def make_module_step(self, fake: bool = False) -> str:
        """Write the module, then remove the earlier installation."""
        if fake or self.dry_run:
            return super().make_module_step(fake=fake)
        self.activate_installation()
        # nothing is built against a container, and EasyBuild's module for that has what eb changed in the environment
        # of the caller, passwords for registries included
        self.kept.keep(self.mod_filepath, in_place=True)
        if os.path.islink(self.mod_filepath):
            # to the name of a hidden module, which is going to be removed: EasyBuild would write through the link
            remove_file(self.mod_filepath)
        with with_build_option('generate_devel_module', False):
            modules_path = super().make_module_step()
        if self.directory:
            self.make_writable(self.replaced_dir)
            self.preserve_user_changes(self.replaced_dir, merge=True)
        if not build_option('module_only'):
            # from here on, the earlier module file would have no installation
            self.kept.forget()
        if self.directory:
            replaced, earlier = self.replaced_dir, self.staging_dir
            self.directory = ''
            # from now on it is a leftover, which nothing puts back, even if only a part can be removed
            os.rename(replaced, earlier)
            if self.cfg['cleanupoldinstall']:
                remove_replaced(earlier)
            else:
                backup = '%s.%s' % (os.path.realpath(self.installdir), time.strftime('%Y%m%d-%H%M%S'))
                os.rename(earlier, backup)
                print_msg("the earlier installation is kept at %s", backup, log=self.log)
        self.restore_easyconfig()
        return modules_path

    @staticmethod
    def make_writable(earlier: str) -> None:
        """Let the owner move user software out of an installation that was made with --read-only-installdir."""
        for path in (earlier, os.path.join(earlier, DIRECTORY)):
            if os.path.isdir(path) and not (os.path.islink(path) or os.access(path, os.W_OK)):
                adjust_permissions(path, stat.S_IWUSR)

    def restore_easyconfig(self) -> None:
        """Write the easyconfig again if it was in the earlier installation: eb copies it after the last step."""
        path = os.path.realpath(self.cfg.path)
        if self.is_own_copy and not os.path.exists(path):
            write_file(path, self.cfg.rawtxt)

    def preserve_user_changes(self, earlier: str, merge: bool = False) -> None:
        """
        Preserve what users have changed in an installation that is about to be removed: user software and scripts.

        If both installations started with the same user software and packages of the image, the earlier one's is moved
        to the new one, even if unchanged: programs may be running from it. So is changed user software that another
        easyblock, or another version of this one, has made, if it works here. Otherwise (another image, other packages)
        changed user software is set aside, because what was added may not work with the new installation. So are links
        to user software that was removed.

        `earlier` is the directory of that installation. `merge` is true if the new installation is complete, so that
        changes can be moved to it.
        """
        before, now = UserSoftware(earlier), UserSoftware(self.installdir)
        # without a record, and not in use: left by a killed attempt
        if not (before.record or merge or earlier == self.installdir):
            return
        self.keep_scripts(before, now, merge)
        self.keep_renamed(before, now, merge)
        if before.dead_links():
            self.keep_dead_links(before, now)
            return
        changed = before.changed()
        # without requirements it is the same for images with other packages
        is_same_image = before.record.image_packages == now.record.image_packages
        if merge and before.present() and before.installed and before.installed == now.installed and is_same_image:
            now.take_over(before)
            if changed:
                print_msg("user software was changed by hand since it was installed; it is kept as it is (%s)",
                          ', '.join(changed), log=self.log)
            return
        # another version of ebsif has other files of its own there
        is_same_recipe = bool(before.installed) and is_same_image and all(
            getattr(before.record, name) == getattr(now.record, name) for name in ('venv_packages', 'stages'))
        if merge and changed and (not before.record or is_same_recipe) and self.adopt(before, now):
            print_msg("user software of the earlier installation works with this one; it stays in use (%s)",
                      ', '.join(changed), log=self.log)
            return
        why = "was changed by hand since" if before.installed else "may have been changed by hand (it has no record)"
        paths, command = before.set_aside(changed, now)
        if paths:
            use = "To use it anyway: %s" % command if self.has_user_software else \
                "This kind of installation has no user software; the easyblock ContainerVenv has."
            print_msg("user software of the earlier installation %s, and doesn't match this one; it is kept at %s. %s",
                      why, ' and '.join(paths), use, log=self.log)

    def keep_dead_links(self, before: UserSoftware, now: UserSoftware) -> None:
        """Keep links to user software that was removed next to the installation, in case that comes back."""
        targets = [os.readlink(before.path(name)) for name in before.dead_links()]
        paths, command = before.set_aside(before.dead_links(), now)
        print_msg("user software of the earlier installation was a link to %s, which doesn't exist: the new one is "
                  "used. The link is kept at %s. To use it again: %s", ' and '.join(targets), ' and '.join(paths),
                  command, log=self.log)

    def record_files(self) -> None:
        """Record the files of the new installation, which are no changes by users. Derived easyblocks override this."""

    def adopt(self, before: UserSoftware, now: UserSoftware) -> bool:
        """
        Move user software of another easyblock's installation to this one if it works here; return whether it does.

        Derived classes that have user software override this.
        """
        return False

    def keep_scripts(self, before: UserSoftware, now: UserSoftware, merge: bool) -> None:
        """Keep users' own scripts: in place, or set aside if the new installation has a script of the same name."""
        there = now.scripts() if merge else {}
        theirs = before.scripts()
        own = [name for name in before.own_scripts() if theirs[name] != there.get(name)]
        known = before.recipe_scripts()
        # the programs of another software in bin would come before the host's
        in_place = [name for name in own if merge and name not in there
                    and (before.record or not name.startswith('bin/'))]
        for name in in_place:
            os.makedirs(os.path.dirname(now.path(name)), exist_ok=True)
            os.rename(before.path(name), now.path(name))
        if in_place:
            print_msg("scripts that were added by hand are kept (%s)", ', '.join(in_place), log=self.log)
        replaced = [name for name in own if name in known and name not in in_place]
        if replaced:
            print_msg("scripts that the earlier easyconfig has written are replaced (%s)", ', '.join(replaced),
                      log=self.log)
        aside = [name for name in own if name not in in_place + replaced]
        if aside:
            print_msg("scripts of the earlier installation that were added or changed by hand are kept at %s (%s)",
                      before.set_scripts_aside(aside, now), ', '.join(aside), log=self.log)

    def keep_renamed(self, before: UserSoftware, now: UserSoftware, merge: bool) -> None:
        """Keep user software that users have renamed: in place, or next to the installation."""
        paths = []
        for name in before.renamed():
            if not os.path.lexists(now.path(name)):
                paths.append(now.path(name) if merge else free_path('%s.%s' % (now.prefix, name)))
                move(before.path(name), paths[-1])
        if paths:
            print_msg("user software that was renamed by hand is kept (%s)", ', '.join(paths), log=self.log)


class KeptFiles:
    """Files of the module that is in use, of which there are copies until a complete new module is written."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self.paths: List[str] = []

    def keep(self, path: str, in_place: bool = False) -> None:
        """
        Keep a copy of a file of the module that is in use, or that there was none, until a new module is complete.

        If a step fails or is interrupted, the file is put back. It isn't if eb is killed: the next eb does that.
        `in_place`: whether it is written into, as EasyBuild does with a module file, and not replaced.
        """
        folder, copy = os.path.dirname(path), copy_of(path)
        can_be_changed = os.access(folder, os.W_OK) or (in_place and os.access(path, os.W_OK))
        if path in self.paths or (os.path.isdir(folder) and not can_be_changed):
            return
        try:
            if os.path.lexists(copy):
                os.rename(copy, path)
            if os.path.lexists(path):
                unfinished = copy + '.unfinished'
                remove_file(unfinished)
                try:
                    # a link stays one
                    shutil.copy2(path, unfinished, follow_symlinks=False)
                    os.rename(unfinished, copy)
                finally:
                    remove_file(unfinished)
        except PermissionError as err:
            raise EasyBuildError("%s isn't changed, because no copy of it can be kept beside it: %s", path,
                                 err.strerror)
        self.paths.append(path)

    def put_back(self) -> None:
        """Put the kept files back; those that weren't there are removed."""
        for path in self.paths:
            if os.path.lexists(copy_of(path)):
                os.rename(copy_of(path), path)
            else:
                remove_file(path)
        self.paths = []

    def forget(self) -> None:
        """Remove the copies of kept files: the new module is complete."""
        for path in self.paths:
            remove_file(copy_of(path))
        self.paths = []


def why_no_renaming(directory: str, spare: str, passing: Iterable[int] = ()) -> str:
    """
    Return why a directory can't be renamed; empty if it can, if there is none, or for errors that are `passing`.

    Renaming a directory onto one that isn't empty fails, so trying it with `spare` changes nothing.
    """
    if os.path.islink(directory) or not os.path.isdir(directory) or os.path.lexists(spare):
        return ''
    try:
        os.makedirs(os.path.join(spare, 'not empty'))
        os.rename(directory, spare)
    except OSError as err:
        shutil.rmtree(spare, ignore_errors=True)
        return '' if err.errno in (errno.ENOTEMPTY, errno.EEXIST, *passing) else err.strerror or str(err)
    # this file system allows it
    os.rename(spare, directory)
    return ''


def copy_of(path: str) -> str:
    """Return where the copy of a file is that a failure puts back."""
    return os.path.join(os.path.dirname(path), '.%s.replaced' % os.path.basename(path))


@contextmanager
def ignored_signals() -> Iterator[None]:
    """Context manager in which eb isn't interrupted: a second Ctrl-C would leave half of what the first one undoes."""
    before = {number: signal.signal(number, signal.SIG_IGN)
              for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def remove_replaced(path: str) -> None:
    """Remove an installation that is no longer needed; failing to is only worth a warning."""
    try:
        remove_dir(path)
    except Exception as err:  # EasyBuildError, or what a shared file system comes up with
        print_warning("Can't remove %s, please do so: %s", path, err)
