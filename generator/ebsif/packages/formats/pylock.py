"""Read a pylock.toml (PEP 751)."""

from collections.abc import Iterable
from pathlib import Path

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.packages.formats.locked import Locked, name_of
from ebsif.packages.formats.toml import load
from ebsif.packages.formats.wanted import Image, RequirementsError, Wanted, check_python, known_or_none


def is_pylock(path: Path) -> bool:
    """Return whether a file has the name of a lock file: pylock.toml or pylock.NAME.toml."""
    from packaging.pylock import is_valid_pylock_path

    return is_valid_pylock_path(path)


def read(path: Path, image: Image, extras: Iterable[str], groups: Iterable[str]) -> Wanted:
    """Return the locked packages that an image needs, with their hashes; see `uvlock.read`."""
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    try:
        content = Pylock.from_dict(load(path))
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise RequirementsError(f"{path} is not a valid pylock.toml: {error}") from None
    check_names(path, "extra", extras, content.extras)
    check_names(path, "dependency group", groups, content.dependency_groups)
    check_python(path, str(content.requires_python or ""), image)
    if content.environments and not any(image.applies(path, one) for one in content.environments):
        raise RequirementsError(f"{path} is locked for other environments: "
                                f"{'; '.join(map(str, content.environments))}")
    chosen = (frozenset(map(normal_name, extras)),
              frozenset(map(normal_name, [*groups, *(content.default_groups or [])])))
    locked = Locked(path, image)
    for package in content.packages:
        if image.applies(path, package.marker, *chosen):
            check_python(path, str(package.requires_python or ""), image)
            add(locked, package)
    return locked.wanted()


def check_names(path, kind, names, known):
    """Raise RequirementsError if a lock file doesn't have an extra or dependency group."""
    for name in names:
        if normal_name(name) not in map(normal_name, known or []):
            raise RequirementsError(f"{path} has no {kind} '{name}' ({known_or_none(known or [])})")


def add(locked, package):
    """Add a package (packaging.pylock.Package), or the reason why it is left out."""
    if package.vcs:
        locked.leave_out(package.name, f"it comes from a repository ({package.vcs.url or package.vcs.path}, commit "
                                       f"{package.vcs.commit_id}), which has no hash: install it in a stage of its own")
    elif package.directory:
        locked.leave_out(package.name, f"it is the directory {package.directory.path}: build a wheel of it")
    elif package.archive:
        archive = package.archive
        url = archive.url or (locked.path.parent / archive.path).resolve().as_uri()
        locked.add(package.name, str(package.version or ""), [(name_of(url), hashes_of(archive))], url)
    else:
        files = [*(package.wheels or []), *([package.sdist] if package.sdist else [])]
        locked.add(package.name, str(package.version or ""), [(file.filename, hashes_of(file)) for file in files])
        for place in [package.index] if package.index else [file.path or file.url for file in files]:
            # without an index, files elsewhere than here are in that of pip
            if package.index or not place.startswith(("http:", "https:")):
                locked.search(place)


def hashes_of(file):
    """Return the hashes of a file in pip's form (list of str)."""
    return [f"{kind}:{value}" for kind, value in file.hashes.items()]
