##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Replace an installation only once the new one is complete, and preserve what users have changed in it.
"""
import errno
import os
import shutil
import stat
import time
from logging import Logger
from typing import Callable, Iterable, List

from easybuild.tools.build_log import EasyBuildError, print_msg, print_warning
from easybuild.tools.filetools import adjust_permissions, remove_dir, remove_file
from easybuild.tools.utilities import trace_msg

from .interruption import ignored_signals
from .recipes import scripts_of_recipe
from .record.lockfile import RECORD
from .usersoftware import UserSoftware, forms_in
from .values import DIRECTORY

# Moves user software of another easyblock's installation (the first one) to ours if it works there; returns whether.
Adopt = Callable[[UserSoftware, UserSoftware], bool]


class Reinstallation:
    """
    An installation that takes the place of an earlier one only when it is complete.

    EasyBuild empties the installation directory, then fills it. Here the new installation is built beside the earlier
    one, in DIRECTORY.replace. Once it is complete, the earlier one is renamed to DIRECTORY.replaced and the new one
    takes its place, so that later steps (commands of the easyconfig, hooks, the sanity check, the module) see the final
    paths. If a step fails, the earlier installation is renamed back. If eb is killed, the next eb does that.

    Of a first installation that fails before it is complete, or that is interrupted, nothing stays.
    """

    def __init__(self, place: str, module_file: str, has_user_software: bool, log: Logger) -> None:
        """
        Begin without an earlier installation.

        `place` is the installation directory in the end; `has_user_software`: whether the new installation can use it.
        """
        self.place = place
        self.module_file = module_file
        self.has_user_software = has_user_software
        self.log = log
        # if the installation directory is a link, it stays one
        self.target = os.path.realpath(place)
        # where the new installation is built, and where the earlier one is while the new one is tested
        self.staging, self.replaced = self.target + '.replace', self.target + '.replaced'
        # where the earlier one is after that until it's complete again, if it's kept
        self.kept_earlier = self.target + '.kept'
        # whether there is an earlier installation, and whether the new one is still beside it
        self.is_replacing = self.is_beside = False
        # whether there is none, and this run has begun the first one
        self.is_first = False
        self.kept = KeptFiles()

    @property
    def directory(self) -> str:
        """Where the new installation is now."""
        return self.staging if self.is_beside else self.place

    @property
    def earlier(self) -> str:
        """Where the installation is that has been there before."""
        return self.replaced if self.is_replacing and not self.is_beside else self.place

    def contains(self, path: str) -> bool:
        """Return whether a path is in the installation directory."""
        return os.path.realpath(path).startswith(self.target + os.sep)

    # --- in the order of an installation

    def check_renaming(self) -> None:
        """
        Raise EasyBuildError if the earlier installation or its user software can't be renamed, as a mount point.

        The easyblock also does this before it builds anything.
        """
        if not self.has_earlier():
            return
        # in a read-only installation, user software is made writable before
        for path, passing in ((self.target, ()), (os.path.join(self.target, DIRECTORY), (errno.EACCES, errno.EPERM))):
            reason = why_no_renaming(path, self.staging, passing)
            if reason:
                raise EasyBuildError("%s can't be renamed (%s), and so it can't be kept until the new installation is "
                                     "complete. If it is a mount point, unmount it. Otherwise keep what was added "
                                     "(in user-software, bin and runscripts), remove everything in %s, and install "
                                     "again.", path, reason, self.target)

    def begin(self) -> None:
        """Decide where the new installation is built: beside the earlier one, if there is one."""
        self.recover()
        self.check_renaming()
        if self.has_earlier():
            trace_msg("the earlier installation stays as it is until the new one is complete")
            self.is_replacing = self.is_beside = True

    def recover(self) -> None:
        """Put back an installation that a killed eb was replacing, and remove what it has left."""
        copy = copy_of(self.module_file)
        was_complete = os.path.lexists(self.staging) and not os.path.lexists(self.replaced)
        if was_complete or os.path.lexists(self.kept_earlier):
            # so was its module: the copy is of the earlier one
            remove_file(copy)
        elif os.path.lexists(copy):
            os.rename(copy, self.module_file)
        if os.path.lexists(self.replaced):
            if os.path.lexists(self.target):
                remove_replaced(self.staging)
                self.swap_back()
            else:
                os.rename(self.replaced, self.target)
        if os.path.lexists(self.staging):
            self.set_changes_aside(self.staging)
            remove_replaced(self.staging)
        if os.path.lexists(self.kept_earlier):
            self.keep_earlier()

    def has_earlier(self) -> bool:
        """Return whether there is an installation to replace, perhaps of an easyblock whose modules are elsewhere."""
        record = os.path.join(self.place, RECORD)
        # a first installation of ours that was killed has this directory, and no record
        is_unfinished = os.path.isdir(os.path.dirname(record))
        # a mount point that was emptied for a new installation has none
        return os.path.isdir(self.place) and bool(os.listdir(self.place)) and bool(
            os.path.exists(record) or os.path.exists(self.module_file)
            or os.path.isdir(os.path.join(self.place, 'easybuild'))
            or (forms_in(self.place) and not is_unfinished))

    def activate(self) -> None:
        """
        Put the new installation in the place of the earlier one, unless it is there.

        The easyblock does this as soon as it is complete: commands of the easyconfig may write its path into files.
        """
        if not self.is_beside:
            return
        with ignored_signals():
            os.rename(self.target, self.replaced)
            try:
                os.rename(self.staging, self.target)
            except OSError:
                os.rename(self.replaced, self.target)
                raise
            self.is_beside = False

    def complete(self, adopt: Adopt, is_removed: bool) -> None:
        """
        Preserve what users have changed in the earlier installation; remove that, or keep it under another name.

        From here on, a failure puts nothing back: the earlier module would have no installation.
        """
        if not self.is_replacing:
            self.kept.forget()
            return
        self.carry_changes_over(adopt)
        # from now on nothing puts it back, even if only a part can be removed; the next eb does the rest
        with ignored_signals():
            os.rename(self.replaced, self.staging if is_removed else self.kept_earlier)
            self.is_replacing = False
            self.kept.forget()
        if is_removed:
            remove_replaced(self.staging)
        else:
            self.keep_earlier()

    def keep_earlier(self) -> None:
        """Keep the earlier installation, with user software, under a name of its own."""
        UserSoftware(self.kept_earlier).keep_exchanged()
        path = '%s.%s' % (self.target, time.strftime('%Y%m%d-%H%M%S'))
        os.rename(self.kept_earlier, path)
        print_msg("the earlier installation is kept at %s", path, log=self.log)

    # --- if a step fails or is interrupted

    def undo(self, is_stopped: bool, stays: bool) -> None:
        """
        Put the earlier installation and its module back; `is_stopped`: as asked for, with --stop.

        People look at a first installation that fails its sanity check, so it `stays` if it was complete.
        """
        self.kept.put_back()
        if self.is_replacing:
            if is_stopped:
                print_warning("Stopped before the new installation was complete (--stop): it is removed, and the "
                              "earlier one stays. To keep the result of the steps, install elsewhere (--prefix).",
                              log=self.log)
            self.roll_back()
        elif self.is_first and not is_stopped and not os.path.exists(
                os.path.join(self.place, RECORD) if stays else self.module_file):
            remove_replaced(self.place)

    def roll_back(self) -> None:
        """Put the earlier installation back, and remove the new one."""
        was_active = not self.is_beside
        if was_active:
            self.swap_back()
        self.is_replacing = self.is_beside = False
        if was_active:
            # the module could be loaded in the meantime
            self.set_changes_aside(self.staging)
        remove_replaced(self.staging)

    def swap_back(self) -> None:
        """Rename both installations to what they were before the new one was in place, each with its user software."""
        UserSoftware(self.target).give_back(UserSoftware(self.replaced))
        os.rename(self.target, self.staging)
        os.rename(self.replaced, self.target)

    # --- what users have changed is kept in place, stays in use, or is set aside

    def carry_changes_over(self, adopt: Adopt) -> None:
        """Keep users' files and user software of the earlier installation in the new one, or set them aside."""
        make_writable(self.replaced)
        before, now = UserSoftware(self.replaced), UserSoftware(self.place)
        kept = before.move_files(now)
        if kept:
            print_msg("files that were added by hand are kept (%s)", ', '.join(kept), log=self.log)
        self.set_files_aside(before, now)
        changed = before.changed()
        if not self.keep_in_use(before, now, changed, adopt):
            self.set_user_software_aside(before, now, changed)

    def set_changes_aside(self, failed: str) -> None:
        """Set aside what users have changed in an installation that was in place, and didn't pass its tests."""
        before, now = UserSoftware(failed), UserSoftware(self.place)
        # what a killed attempt has left beside the installation has no record
        if before.record:
            self.set_files_aside(before, now)
            self.set_user_software_aside(before, now, before.changed())

    def keep_in_use(self, before: UserSoftware, now: UserSoftware, changed: List[str], adopt: Adopt) -> bool:
        """
        Move user software to the new installation if it fits; return whether it does.

        If both installations started with the same user software and packages of the image, it is moved even if it is
        unchanged: programs may be running from it. Changed user software that another easyblock, or another version of
        this one, has made is moved if it works with the new installation.
        """
        if not before.present() or before.dead_links():
            return False
        # without requirements, user software is the same for images with other packages
        is_same_image = before.record.image_packages == now.record.image_packages
        if before.installed and before.installed == now.installed and is_same_image:
            now.take_over(before)
            if changed:
                print_msg("user software was changed by hand since it was installed; it is kept as it is (%s)",
                          ', '.join(changed), log=self.log)
            return True
        # another version of ebsif has other files of its own there
        is_same_recipe = bool(before.installed) and is_same_image and all(
            getattr(before.record, name) == getattr(now.record, name) for name in ('venv_packages', 'stages'))
        if changed and (is_same_recipe or not before.record) and adopt(before, now):
            print_msg("user software of the earlier installation works with this one; it stays in use (%s)",
                      ', '.join(changed), log=self.log)
            return True
        return False

    def set_user_software_aside(self, before: UserSoftware, now: UserSoftware, changed: List[str]) -> None:
        """Set aside changed user software that may not work with the installation, and links to what was removed."""
        if not changed:
            return
        targets = [os.readlink(before.path(name)) for name in before.dead_links()]
        if targets:
            why = "was a link to %s, which doesn't exist" % ' and '.join(targets)
        elif before.installed:
            why = "was changed by hand since, and doesn't match this one"
        else:
            why = "may have been changed by hand (it has no record), and doesn't match this one"
        paths, command = before.set_aside(changed, now)
        use = "To use it anyway: %s" % command if self.has_user_software else \
            "This kind of installation has no user software; the easyblock ContainerVenv has."
        print_msg("user software of the earlier installation %s; it is kept at %s. %s",
                  why, ' and '.join(paths), use, log=self.log)

    def set_files_aside(self, before: UserSoftware, now: UserSoftware) -> None:
        """Set aside files that users have added or changed, except those that the installation has, too."""
        scripts = now.scripts()
        own = [name for name, digest in before.own_files().items() if digest != scripts.get(name)]
        replaced = [] if before.record else scripts_of_recipe(before.root, own, (self.place, self.target))
        if replaced:
            print_msg("scripts that the earlier easyconfig has written are replaced (%s)", ', '.join(replaced),
                      log=self.log)
        aside = [name for name in own if name not in replaced]
        if aside:
            print_msg("files of the earlier installation that were added or changed by hand are kept at %s (%s)",
                      before.set_files_aside(aside, now), ', '.join(aside), log=self.log)


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


def make_writable(earlier: str) -> None:
    """Let the owner move user software out of an installation that was made with --read-only-installdir."""
    for path in (earlier, os.path.join(earlier, DIRECTORY)):
        if os.path.isdir(path) and not (os.path.islink(path) or os.access(path, os.W_OK)):
            adjust_permissions(path, stat.S_IWUSR)


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


def remove_replaced(path: str) -> None:
    """Remove an installation that is no longer needed; failing to is only worth a warning."""
    try:
        remove_dir(path)
    except Exception as err:  # EasyBuildError, or what a shared file system comes up with
        print_warning("Can't remove %s, please do so: %s", path, err)
