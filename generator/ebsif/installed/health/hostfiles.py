"""Checks of what modules have of the host, after an update of the system: libraries, programs, what these need (K-02).

The files are bound by their paths, so containers use a new build of one from their next start on.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from easybuild.easyblocks.generic.container.host import libraries, programs

from ebsif.files import is_there
from ebsif.installed.health.files import elsewhere
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import Subject
from ebsif.installed.places import Installation, shown
from ebsif.report.findings import NOTE, Finding


def there(one: Subject) -> Iterator[Finding]:
    """Is everything still where it was?"""
    for target, path in one.host_files.items():
        name = os.path.basename(path)
        if is_there(Path(path)):
            continue
        found = [*one.machine.loader.matching(name), elsewhere(path)] if ".so" in name else [shutil.which(name)]
        now = next(filter(None, found), "")
        if os.path.basename(now) == name:
            yield one.error(f"{path} has moved to {now}: install the module again with `{one.rebuild}`")
        else:
            # login nodes may lack programs that other nodes have; without a library, programs don't start
            say = one.error if ".so" in os.path.basename(target) else one.warning
            where = f" (there is {now} now)" if now else ""
            yield say(
                f"{path} is missing, which the container had when the module was installed{where}: put it back, or "
                f"mount its file system. If the site has another one for good, correct its profile, {one.render_again}"
            )


def needs(one: Subject) -> Iterator[Finding]:
    """Does one of the files need a library that it didn't need?"""
    bound = one.host_files
    for folder, others in ((libraries.FOLDER, set(one.record.host_libraries.served)), (programs.FOLDER, set[str]())):
        paths = {target: path for target, path in bound.items() if target.startswith(f"{folder}/")}
        known = others | {os.path.basename(target) for target in paths}
        for path in sorted(set(paths.values())):
            read = one.machine.loader.read(os.path.realpath(path))
            new = sorted(set(read.needed) - known) if read else []
            if folder == libraries.FOLDER:
                new = [name for name in new if not libraries.GLIBC.match(name)]
            if new:
                yield one.error(
                    f"{path} needs {', '.join(new)} since an update of the system, which the container doesn't have: "
                    f"install the module again with `{one.rebuild}`"
                )


def unloadable(one: Subject) -> Iterator[Finding]:
    """Can the loader of the image load the libraries, as they are now?"""
    said = one.image_facts.get("host-library", [])
    if said:
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        yield one.error(
            f"the image's loader says of libraries of the host: {said[0]}{more}. After an update of the system, use a "
            f"newer image, or an older build of the library. Else install the module again with `{one.rebuild}`"
        )


def new_builds(machine: Machine, installations: Sequence[Installation]) -> Iterator[Finding]:
    """Yield a note on each file that has another build than when modules were installed, once for all of them."""
    modules: dict[str, list[str]] = {}
    now: dict[str, str] = {}
    for one in installations:
        if one.damage:
            continue
        for path, build in {**one.record.host_libraries.builds, **one.record.host_programs.builds}.items():
            if path not in now and is_there(Path(path)):
                now.update(machine.loader.builds([path]))
            if now.get(path, build) != build:
                modules.setdefault(path, []).append(shown(one))
    for path, names in sorted(modules.items()):
        few = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield Finding(
            NOTE,
            "libraries of the host",
            f"{path} has another build than when {few} {'was' if len(names) == 1 else 'were'} installed, and "
            "containers use the new one: nothing to do if their programs work. To record it, install the module "
            "again with `eb --rebuild`",
        )
