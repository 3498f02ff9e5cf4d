"""Remove an installation: the module, its files, and what reinstallations have set aside, but nothing else."""

import ast
import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.requirements import lock_of
from easybuild.easyblocks.generic.container.texts import modulerc_statements, shown_module

from ebsif import files
from ebsif.eb import framework
from ebsif.environments import kernels
from ebsif.errors import EbsifError
from ebsif.installed import inventory, removed, sharing
from ebsif.installed.names import shown
from ebsif.installed.places import BESIDE, WRITTEN, Installation
from ebsif.report import output


class RemovalError(EbsifError):
    """An installation can't be removed; the message gives the reason and lists remaining files."""


@dataclass
class Removal:
    """
    The planned removal.

    Attributes
    ----------
    installation : Installation
    paths : list of Path
        Files and directories, the module file first.
    lines : dict of str
        New texts of the files with symbolic versions, by path; empty if the file is removed.
    kept : list of str
        Files that a user may expect to be removed, with the reason for keeping them.
    """

    installation: Installation
    paths: list[Path] = field(default_factory=list)
    lines: dict[Path, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


def plan(installation: Installation, directories: Sequence[str] = ()) -> Removal:
    """
    Return the files that belong to an installation.

    Parameters
    ----------
    installation
        The installation.
    directories
        Where other people may have modules that use its image, besides EasyBuild's prefix and MODULEPATH.

    Raises
    ------
    RemovalError
        If the module is loaded or being installed, if its record is damaged, if others need its image, or if files
        belong to another user.
    """
    if installation.is_loaded:
        # the name alone also unloads a hidden module
        name = installation.module.rpartition("/")[0]
        raise RemovalError(f"{shown(installation)} is loaded: unload it first (module unload {name})")
    if installation.damage:
        raise RemovalError(f"{installation.damage}. Without it, modules that use the image can't be found: "
                           f"{installation.repair}, and then remove it")
    removal = Removal(installation, list(paths_of_module(installation)))
    root = Path(os.path.realpath(installation.root))
    if lock := easybuild_lock(root):
        raise RemovalError(locked(shown(installation), lock))
    link = [installation.root] if installation.root.is_symlink() else []
    removal.paths += [*link, root, *sorted(path for path in root.parent.iterdir() if path.name.startswith(root.name)
                                           and BESIDE.fullmatch(path.name[len(root.name) :]))]
    add_symbolic_versions(removal)
    add_easyconfig(removal)
    add_archived_easyconfig(removal, root)
    # those of Jupyter that start in it
    removal.paths += [kernel.folder for kernel in kernels.installed(kernels.user_folder())
                      if Path(os.path.realpath(kernel.program)).is_relative_to(root)]
    for path in removal.paths:
        check_removable(path)
    for path in removal.lines:
        if not os.access(path.parent, os.W_OK):
            raise RemovalError(f"{path} can't be changed: {path.parent} is not writable for you; nothing was removed")
    # at last: nobody should remove other modules for the sake of one that they can't remove
    check_users(removal, directories)
    return removal


def check_users(removal, directories):
    """Raise RemovalError if there are modules that use the image."""
    users = sharing.users_of(removal.installation.root, possible_users(directories))
    if users:
        raise RemovalError(f"{shown(removal.installation)} has the image that these modules use: "
                           f"{', '.join(map(str, users))}; remove those first, or install them with `image = 'own'` "
                           "(eb --rebuild)")


def possible_users(directories):
    """Return the installations that may use an image; say where others may be, before anybody confirms."""
    found, problems = inventory.installations()
    for directory in directories:
        more, gaps = inventory.installations([directory])
        found += more
        problems += gaps
        if not more:
            output.note(f"{directory} has no container modules: is it a prefix of EasyBuild or a directory of "
                        "modules?")
    closed = list(dict.fromkeys(one.path for one in problems if inventory.is_gap(one)))
    if closed:
        others = f" and {output.format_count(len(closed) - 3, 'other place')}" if len(closed) > 3 else ""
        output.note(f"{', '.join(closed[:3])}{others} can't be read: if a module there uses the image, it will stop "
                    "working")
    return {os.path.realpath(one.root): one for one in found}.values()


def paths_of_module(installation: Installation) -> Iterator[Path]:
    """Yield the module file, its backups, and the links to it in EasyBuild's directories of module classes."""
    file = installation.file
    if not file:
        return
    yield file
    yield from sorted(path for path in file.parent.glob(f".{file.name}.*")
                      if path.name[len(file.name) + 2 :] in ("unfinished", "replaced"))
    # its earlier name, if it was hidden after the installation
    earlier = sorted(path for path in file.parent.iterdir()
                     if path.is_symlink() and path.readlink() == Path(file.name))
    yield from earlier
    for path in (file, *earlier):
        for link in sorted(installation.use.parent.glob(f"*/{path.relative_to(installation.use)}")):
            if link != path and link.is_symlink() and os.path.realpath(link) == os.path.realpath(file):
                yield link


def easybuild_lock(root: Path) -> Optional[Path]:
    """Return EasyBuild's lock on an installation directory, perhaps of another prefix; None if there is none."""
    locks = (folder / ".locks" / (str(root).replace("/", "_") + ".lock") for folder in root.parents)
    return next(filter(Path.exists, locks), None)


def locked(module: str, lock: Path) -> str:
    """Return what to do about a lock."""
    return f"eb is installing {module}: wait until it is done; if no eb is running anywhere, remove its lock {lock}"


def add_symbolic_versions(removal):
    """Add the symbolic versions of the module in .modulerc files."""
    folder = removal.installation.file and removal.installation.file.parent
    for path in (folder / ".modulerc", folder / ".modulerc.lua") if folder else ():
        text = text_without(path, removal.installation.module)
        if text is not None:
            removal.lines[path] = text


def text_without(path, module):
    """Return the text of a .modulerc file without a module ('' if nothing is left); None if it doesn't name it."""
    before = path.read_text(encoding="utf-8") if files.is_there(path) else ""
    after = before
    for one in (module, shown_module(module)):
        after = modulerc_statements(one).sub("", after)
    if after == before:
        return None
    return after if re.sub(r"^#%Module.*", "", after).strip() else ""


def add_easyconfig(removal):
    """Add the easyconfig that was installed, if `ebsif` wrote it and it hasn't been changed since."""
    named, copy = removal.installation.record.easyconfig, removal.installation.easyconfig
    path = Path(named) if named else None
    if not (path and copy and path.is_file()):
        return
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(removal.installation.root)):
        # the installation was made again from its own copy, which is removed with it
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text.startswith(WRITTEN):
        return
    if text == copy.read_text(encoding="utf-8", errors="replace"):
        removal.paths.append(path)
        named = files_named(text)
        # as `ebsif extend --from-lock` and `ebsif pull` call them; others may be anybody's
        for one in (path.with_name(f"{path.stem}{suffix}") for suffix in (lockfile.COPY_SUFFIX, ".squashfs")):
            if one.is_file() and one.name in named:
                removal.paths.append(one)
            elif one.is_file():
                removal.kept.append(f"{one}: {path.name} doesn't name it")
    else:
        removal.kept.append(f"{path}: changed since the installation")


def add_archived_easyconfig(removal, root):
    """Add the easyconfig in EasyBuild's repository, unless it is that of another installation."""
    copy, name = removal.installation.easyconfig, removal.installation.recorded_name
    if not (copy and name):
        return
    text = copy.read_text(encoding="utf-8", errors="replace").strip()
    for folder in repositories(root):
        path = folder / name.split("/")[0] / f"{name.replace('/', '-')}.eb"
        # in a repository that this account can't search, it has archived nothing
        if not files.is_there(path):
            continue
        try:
            check_removable(path)
            is_own = text in path.read_text(encoding="utf-8", errors="replace")
        except (RemovalError, OSError):
            removal.kept.append(f"{path}: it belongs to another account")
            continue
        if is_own:
            removal.paths.append(path)
        else:
            removal.kept.append(f"{path}: it is that of another installation")


def repositories(root):
    """Yield where EasyBuild may have archived the easyconfig of an installation: in its prefix, or as configured."""
    folders = [prefix / "ebfiles_repo" for prefix in list(root.parents)[2:3]]
    if root.is_relative_to(os.path.realpath(framework.prefix()[0])):
        folders.append(framework.repository())
    known = {os.path.realpath(folder): folder for folder in folders if folder}
    yield from known.values()


def files_named(text):
    """Return the names of the files that an easyconfig has in place of requirements: lock, user software (set)."""
    named = {}
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "requirements":
                named = ast.literal_eval(node.value)
    return set(named.values()) if lock_of(named) else set()


def check_removable(path: Path) -> None:
    """
    Raise RemovalError if this account can't remove a file or directory because another account owns it.

    A directory of another account inside it can only be removed if this account can write to it.
    """
    if os.getuid() == 0:
        return
    status = path.lstat()
    if status.st_uid != os.getuid():
        raise RemovalError(f"{path} belongs to {files.owner(status.st_uid)}, who can remove it; nothing was removed")
    folders = [path.parent]
    if path.is_dir() and not path.is_symlink():
        # the user's own directories can be made writable
        folders += [Path(folder) for folder, inside, names in os.walk(path)
                    if (inside or names) and Path(folder).stat().st_uid != os.getuid()]
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise RemovalError(f"{folder} belongs to {files.owner(folder.stat().st_uid)}, and you can't change it, so "
                               "what is in it can't be removed; nothing was removed")


def remove(removal: Removal) -> None:
    """
    Carry out a planned removal. Everything is renamed first, so that either all files are removed or none.

    Raises
    ------
    RemovalError
        If a file can't be renamed (then nothing was removed), or a renamed one can't be deleted.
    """
    # imports EasyBuild
    from easybuild.easyblocks.generic.container.modulefile import modulerc_lock

    mark = f".removed-{uuid.uuid4().hex[:8]}"
    renamed: list[tuple[Path, Path]] = []
    try:
        for path in removal.paths:
            # hidden, so that modules tools don't list it
            new = path.with_name(f".{path.name.lstrip('.')}{mark}")
            path.rename(new)
            renamed.append((path, new))
        for path in removal.lines:
            with modulerc_lock(str(path)):
                # since it was planned, an installation may have added other modules
                text = text_without(path, removal.installation.module)
                if text:
                    files.replace(path, text)
                elif text == "":
                    path.unlink()
    except OSError as error:
        for path, new in reversed(renamed):
            new.rename(path)
        raise RemovalError(f"{error.filename} can't be removed: {error.strerror}; nothing was removed") from error
    removed.remember(shown(removal.installation))
    left = [str(new) for _, new in renamed if not delete(new)]
    for folder in dict.fromkeys(path.parent for path in (*removal.paths, *removal.lines)):
        # the software's directory, if this was its last version
        if folder.name == removal.installation.module.split("/")[0]:
            with contextlib.suppress(OSError):
                folder.rmdir()
    if left:
        raise RemovalError(f"the module is removed, but these files are left, remove them by hand: {', '.join(left)}")


def delete(path):
    """Delete a file or directory, even inside directories without write permission; return whether it is gone."""
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            if not os.access(folder, os.W_OK | os.X_OK):
                with contextlib.suppress(OSError):
                    os.chmod(folder, 0o700)  # noqa: PTH101
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return not os.path.lexists(path)
