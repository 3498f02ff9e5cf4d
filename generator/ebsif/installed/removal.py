"""Remove an installation: the module, its files, and what reinstallations have set aside, but nothing else."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Optional

from easybuild.easyblocks.generic.container import modulerc
from easybuild.easyblocks.generic.container.image.installed import InstalledImage
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.requirements import package_lines
from easybuild.easyblocks.generic.container.values import shown_module, system_names

from ebsif import files
from ebsif.eb import easyconfigtext
from ebsif.errors import EbsifError
from ebsif.installed import current, ownfiles, places, search
from ebsif.installed.places import Installation, shown
from ebsif.installed.search import BESIDE
from ebsif.packages import venv
from ebsif.packages.lines import names_in
from ebsif.report import output


@dataclass
class Removal:
    """
    What goes with an installation: its paths, the module file first, and its lines in .modulerc files.

    `kept` are files that a user may expect to be removed, with the reason for keeping them. `heirs` are the modules
    that get its aliases, by alias.
    """

    installation: Installation
    heirs: dict[str, str] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    lines: list[Path] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    @property
    def heir(self) -> str:
        """What the shortest of the aliases loads afterwards; empty if nothing has inherited one."""
        if not self.heirs:
            return ""
        alias = min(self.heirs, key=lambda name: (len(name), name))
        software = shown(self.installation).rpartition("/")[0]
        return f"{software}/{alias} is {shown_module(self.heirs[alias])} now"


def plan(
    installation: Installation,
    kernels: Iterable[Path] = (),
    users: Sequence[Installation] = (),
    earlier: Sequence[Installation] = (),
) -> Removal:
    """
    Return what belongs to an installation, with the directories of `kernels` that start in it.

    `users` are the other installations, which may use its image, and `earlier` those of them that are earlier
    extensions with the same name, both with the newest first.

    Raise EbsifError if the module is loaded or being installed, if its record is damaged, if files belong to another
    account, or if one of the installations in `users` needs its image.
    """
    if installation.is_loaded:
        # the name alone also unloads a hidden module
        name = installation.module.rpartition("/")[0]
        raise EbsifError(f"{shown(installation)} is loaded: unload it first (module unload {name})")
    if installation.damage:
        raise EbsifError(
            f"{installation.damage}. Without it, modules that use the image can't be found: "
            f"{installation.repair}, and then remove it"
        )
    root = Path(os.path.realpath(installation.root))
    require_owner(installation, root)
    if wait := places.in_use(shown(installation), installation.root):
        raise EbsifError(wait)
    link = [installation.root] if installation.root.is_symlink() else []
    beside = sorted(
        path
        for path in root.parent.iterdir()
        if path.name.startswith(root.name) and BESIDE.fullmatch(path.name[len(root.name) :])
    )
    removal = Removal(
        installation,
        heirs(installation, users, earlier),
        [*paths_of_module(installation), *link, root, *beside, *kernels],
    )
    add_easyconfig(removal)
    for path in removal.paths:
        check_removable(path)
    folder = installation.file.parent if installation.file else None
    for path in (folder / name for name in modulerc.FILES) if folder else ():
        if text_without(path, installation.module, removal.heirs) is not None:
            removal.lines.append(path)
    # last, so that we don't ask to remove dependents in vain
    needing = users_of(root, users)
    if needing:
        raise EbsifError(
            f"{shown(installation)} has the image that these modules use: "
            f"{', '.join(needing)}; remove those first, or install them with `image = 'own'` "
            "(eb --rebuild)"
        )
    return removal


def possible_users(directories: Sequence[str]) -> list[Installation]:
    """Return the installations that may use an image, also in other directories; say what can't be searched."""
    installations, problems = search.installations()
    for directory in directories:
        more, gaps = search.installations([directory])
        installations += more
        problems += gaps
        if not more:
            output.note(f"{directory} has no container modules: is it a prefix of EasyBuild or a directory of modules?")
    closed = list(dict.fromkeys(problem.path for problem in problems if search.is_gap(problem)))
    if closed:
        output.note(f"{', '.join(closed)} can't be read: if a module there uses the image, it will stop working")
    return places.once(installations)


def users_of(root: Path, installations: Iterable[Installation]) -> list[str]:
    """Return the installed modules that use the image of the module in a directory, each with a foreign owner."""
    path, users = InstalledImage(str(root)).own_path, []
    for one in installations:
        if not places.is_same(one.root, root) and InstalledImage(str(one.root)).needs(path):
            account = one.root.stat().st_uid
            users.append(places.word(one) if account == os.getuid() else f"{one.module} (of {files.owner(account)})")
    return sorted(users)


def paths_of_module(installation: Installation) -> Iterator[Path]:
    """Yield the module file, its backups, and the links to it in EasyBuild's directories of module classes."""
    file, use = installation.file, installation.use
    if not (file and use):
        return
    yield file
    yield from sorted(
        path
        for path in file.parent.glob(f".{file.name}.*")
        if path.name[len(file.name) + 2 :] in ("unfinished", "replaced")
    )
    # its earlier name, if it was hidden after the installation
    earlier = sorted(path for path in file.parent.iterdir() if path.is_symlink() and path.readlink() == Path(file.name))
    yield from earlier
    for path in (file, *earlier):
        # the directories of classes are in that of all modules if EasyBuild's 'suffix-modules-path' is empty
        for link in sorted(one for folder in (use.parent, use) for one in folder.glob(f"*/{path.relative_to(use)}")):
            if link != path and link.is_symlink() and os.path.realpath(link) == os.path.realpath(file):
                yield link


def heirs(
    installation: Installation, staying: Sequence[Installation], earlier: Sequence[Installation]
) -> dict[str, str]:
    """
    Return the modules that get the aliases of one that is removed, by alias: the newest one whose easyconfig has it.

    The name of an extension without its date goes to the newest earlier one, whatever its easyconfig says (V-07).
    """
    found: dict[str, str] = {}
    for name in installation.aliases:
        alias = name.rpartition("/")[2]
        beside = [
            one
            for one in staying
            if one.file
            and installation.file
            and places.is_same(one.file.parent, installation.file.parent)
            and alias in modulerc.aliases_of(str(one.root))
        ]
        if not beside and name == f"{installation.base}-{(installation.extension or [''])[0]}":
            beside = list(earlier)
        if beside:
            found[alias] = beside[0].module
    return found


def not_in(newest: Installation, older: Sequence[Installation]) -> dict[Installation, list[str]]:
    """
    Return the packages and files that earlier extensions have and the newest one doesn't, by extension.

    What the newest one was made from counts only for packages that were added by hand: the others were there, and a
    person has removed them. Of files, only those count that were added by hand.
    """
    by_name = {one.recorded_name: one for one in older}
    current_one, ancestors = newest, set()
    while current_one.record.made_from in by_name and current_one.record.made_from not in ancestors:
        ancestors.add(current_one.record.made_from)
        current_one = by_name[current_one.record.made_from]
    record = current.record_of(newest)
    there = {*record.image_versions, *record.venv_versions, *system_names(record.system_layer.requested)}
    found = {}
    taken_along = set(ownfiles.of(newest)) if older else set()
    for one in older:
        if one.damage:
            continue
        now = {*current.record_of(one).venv_versions}
        wanted = now.difference(one.record.venv_versions, venv.TOOLS)
        if one.recorded_name not in ancestors:
            wanted |= now.intersection(names_in(package_lines(one.record.stages)))
            wanted |= set(system_names(one.record.system_layer.requested))
        own = set(ownfiles.of(one)) - taken_along
        if wanted - there or own:
            found[one] = sorted(wanted - there) + sorted(own)
    return found


def text_without(path: Path, module: str, inherited: Mapping[str, str] = MappingProxyType({})) -> Optional[str]:
    """Return the text of a .modulerc file without a module, None if unchanged; others get its aliases."""
    # bytes of another encoding in the lines of others stay as they are
    before = path.read_text(encoding="utf-8", errors="surrogateescape") if files.is_there(path) else ""
    after = before
    for name in (module, shown_module(module)):
        after = modulerc.without_module(after, name, inherited)
    if after == before:
        return None
    return "" if modulerc.is_empty(after) else after


def add_easyconfig(removal: Removal) -> None:
    """Add the easyconfig that was installed, and the files it names, if `ebsif` wrote it and it is unchanged."""
    recorded, copy = removal.installation.record.easyconfig, removal.installation.easyconfig
    path = Path(recorded) if recorded else None
    if not (path and copy and path.is_file()) or Path(os.path.realpath(path)).is_relative_to(
        os.path.realpath(removal.installation.root)
    ):
        # the copy is removed with the installation
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if not easyconfigtext.is_written(text):
        return
    if path.stat().st_uid != removal.installation.root.stat().st_uid:
        # whoever installed the module has written the record, which may name any file
        removal.kept.append(f"{path}: belongs to {files.owner(path.stat().st_uid)}")
        return
    if text != copy.read_text(encoding="utf-8", errors="replace"):
        removal.kept.append(f"{path}: changed since the installation")
        return
    removal.paths.append(path)
    # as `ebsif extend --from-lock` and `ebsif pull` call them; others may be anybody's
    removal.paths += [
        file
        for suffix in (lockfile.COPY_SUFFIX, ".squashfs")
        for file in [path.with_name(f"{path.stem}{suffix}")]
        if file.is_file() and f"'{file.name}'" in text
    ]


def require_owner(installation: Installation, root: Path) -> None:
    """
    Raise EbsifError if a module file leads to an installation of another account, unless that is root's file.

    Otherwise, root would remove whatever somebody else's module file names. Other accounts can't remove foreign files.
    """
    account = installation.file.lstat().st_uid if installation.file else root.stat().st_uid
    if account not in (0, root.stat().st_uid):
        raise EbsifError(
            f"{installation.file} belongs to {files.owner(account)}, but {root}, which it names, to "
            f"{files.owner(root.stat().st_uid)}; nothing was removed"
        )


def check_removable(path: Path) -> None:
    """Raise EbsifError if a file or directory, or a directory in it, belongs to another account."""
    inside = [Path(folder) for folder, _, _ in os.walk(path)] if path.is_dir() and not path.is_symlink() else []
    for one in (path, *inside) if os.getuid() else ():
        account = one.lstat().st_uid
        if account != os.getuid():
            raise EbsifError(f"{one} belongs to {files.owner(account)}, who can remove it; nothing was removed")


def remove(removal: Removal) -> None:
    """Remove everything, the module file first; raise EbsifError if nothing was removed, or files are left."""
    root = Path(os.path.realpath(removal.installation.root))
    renamed: list[tuple[Path, Path]] = []
    try:
        for path in filter(None, (removal.installation.file, root)):
            # hidden, so that modules tools don't list it
            new = path.with_name(f".{path.name.lstrip('.')}.removed-{uuid.uuid4().hex[:8]}")
            path.rename(new)
            renamed.append((path, new))
    except OSError as error:
        for path, new in renamed:
            new.rename(path)
        raise EbsifError(f"{error.filename} can't be removed: {error.strerror}; nothing was removed") from error
    places_of = dict(renamed)
    left = [str(path) for path in (places_of.get(path, path) for path in removal.paths) if not delete(path)]
    for path in removal.lines:
        remove_lines(path, removal)
    for folder in dict.fromkeys(path.parent for path in (*removal.paths, *removal.lines)):
        # the software's directory, if this was its last version
        if folder.name == places.software(removal.installation):
            with contextlib.suppress(OSError):
                folder.rmdir()
    if left:
        raise EbsifError(f"the module is removed, but these files are left, remove them by hand: {', '.join(left)}")


def remove_lines(path: Path, removal: Removal) -> None:
    """Remove a module from a .modulerc file, to which others may be adding theirs; say it if that isn't possible."""
    try:
        with modulerc.lock(str(path.parent)):
            text = text_without(path, removal.installation.module, removal.heirs)
            if text:
                files.replace(path, text)
            elif text == "":
                path.unlink()
    except OSError:
        output.note(
            f"the lines for {removal.installation.module} are left in {path}, which can't be changed: "
            f"{files.how_to_get_access(path)}"
        )


def delete(path: Path) -> bool:
    """Delete a file or directory, even inside directories without write permission; return whether it is gone."""
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            if not os.access(folder, os.W_OK | os.X_OK):
                with contextlib.suppress(OSError):
                    os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return not os.path.lexists(path)
