"""Checks of what is on disk: record, image and user software, module file, binds, packages."""

import glob
import os
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from easybuild.easyblocks.generic.container.packages import built_for
from easybuild.easyblocks.generic.container.requirements import lines_of, package_name
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS

from ebsif.files import is_there
from ebsif.installed import softwarestate
from ebsif.installed.health.subject import Subject
from ebsif.report.findings import Finding

# Where a moved library may be now.
LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib/*-linux-gnu",
    "/opt/*/lib",
    "/opt/*/lib64",
    "/opt/*/*/*/lib64",
    "/opt/*/*/lib64",
)


def state(one: Subject) -> Iterator[Finding]:
    """Can the record be read, and are image and user software as they were installed? (I-03)"""
    for finding in one.report.findings:
        yield one.finding(finding.level, finding.text)


def module_file(one: Subject) -> Iterator[Finding]:
    """Is there a module file?"""
    if not one.installation.file:
        yield one.error(
            f"{one.installation.root} has no module file in the directories that were searched: write it "
            f"with `{one.installation.rewrite_module}`, or remove the installation"
        )


def binds(one: Subject) -> Iterator[Finding]:
    """Is everything there that was bound when the module was installed? (Loading tells about required binds.)"""
    found = set(one.host_files.values())
    for source in one.record.optional_binds:
        if source not in found and not is_there(Path(source)):
            now = elsewhere(source)
            where = f" (there is {now} now)" if now else ""
            # login nodes may lack directories that other nodes have; without a library, programs don't start
            say = one.error if ".so" in os.path.basename(source) else one.warning
            yield say(
                f"{source} was bound when the module was installed, and is gone{where}: put it back, or mount "
                f"its file system. If it has moved for good, correct the bind in the site's profile, {one.render_again}"
            )


def elsewhere(source: str) -> str:
    """Return where a library may be now: the same file name, or another version beside it; '' if unknown."""
    name = os.path.basename(source)
    if ".so" not in name:
        return ""
    stem = glob.escape(name.split(".so")[0])
    same = [path for folder in LIBRARY_FOLDERS for path in glob.glob(f"{folder}/{glob.escape(name)}")]
    beside = glob.glob(f"{glob.escape(os.path.dirname(source))}/**/{stem}.so*", recursive=True)
    return next(iter([*same, *sorted(beside)]), "")


def wheels(one: Subject) -> Iterator[Finding]:
    """Are there packages for another kind of GPU than that of torch, of the image or of the site? (S002-19)"""
    if not one.gpu:
        return
    kind, names = GPU_KINDS[one.gpu].title, {*one.image_packages, *one.user_packages}
    places = ((one.user_packages, "user software"), (one.image_packages, "the image"))
    for (packages, place), other in product(places, GPU_KINDS.keys() - {one.gpu}):
        wrong = sorted(name for name, version in packages.items() if built_for(name, version, names) == other)
        if wrong:
            few = ", ".join(f"{name} {packages[name]}" for name in wrong[:3])
            several = f"{few} and {len(wrong) - 3} more" if len(wrong) > 3 else few
            remedy = without(one, wrong, kind) if place == "user software" else f"use an image that is built for {kind}"
            yield one.warning(
                f"the container is for {kind}, but {place} has packages for {GPU_KINDS[other].title} ({several}): "
                f"{remedy}"
            )


def without(one: Subject, names: Sequence[str], kind: str) -> str:
    """Return how to remove packages from user software."""
    again = f"If you need them, install builds for {kind}"
    if one.installation.extension:
        asked = set(map(package_name, lines_of(one.record.stages)))
        # the others are what these need
        mine, what = [name for name in names if name in asked], "them"
        if not mine:
            mine, what = ["PACKAGE"], "the packages that need them"
        return f"remove {what} with `ebsif extend {one.module} --remove {' '.join(mine)} --rebuild`. {again}"
    if one.software and one.software.state == softwarestate.UNPACKED:
        return f"remove them with `{one.load} && start-shell -c 'pip uninstall -y {' '.join(names)}'`. {again}"
    return f"remove them from the requirements in {one.easyconfig}, and run `eb --rebuild {one.easyconfig}`. {again}"
