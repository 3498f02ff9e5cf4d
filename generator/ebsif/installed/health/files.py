"""Checks of what is on disk: record, module file, image, user software, packages."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.packages import gpu_label

from ebsif.files import is_there
from ebsif.findings import Finding
from ebsif.installed import imagestate, softwarestate
from ebsif.installed.health.subject import Subject
from ebsif.installed.health.tables import CUDA_PACKAGE, LIBRARY_FOLDERS, ROCM_PACKAGE


def record(one: Subject) -> Iterator[Finding]:
    """Can the record be read?"""
    damage = one.installation.damage
    if damage:
        yield Finding("error", one.installation.module, f"{damage}: install the module again with `eb --rebuild`")


def module_file(one: Subject) -> Iterator[Finding]:
    """Is there a module file?"""
    if not one.installation.file:
        yield one.error(f"{one.installation.root} has no module file where modules were searched: write it with `eb "
                        f"--module-only --force {one.easyconfig}`, or remove the installation")


def image(one: Subject) -> Iterator[Finding]:
    """Is the image there, and the one that was installed? (I-03)"""
    state = one.image
    if state.is_bad:
        yield one.error(state.problem)
    elif state.state == imagestate.UNKNOWN:
        yield one.note("an earlier version of ebsif installed it, which recorded too little to notice another image")


def user_software(one: Subject) -> Iterator[Finding]:
    """Is user software there, packed as it was installed, and in one form only?"""
    state, root = one.software, one.installation.root
    if not state:
        return
    packed = any(name.endswith(".squashfs") for name in one.record.get(lockfile.USER_SOFTWARE, {}))
    pack = f"`module load {one.module}; make-squashfs`"
    if state.state == softwarestate.GONE:
        yield one.error("its user software is gone: install the module again with `eb --rebuild`, unless everybody "
                        "uses their own (EBSIF_USER_SOFTWARE)")
    elif state.state == softwarestate.BOTH:
        yield one.warning(f"{root}/user-software.squashfs is used, and changes in the directory user-software beside "
                          f"it have no effect: remove the directory, or pack it with {pack}")
    elif state.state == softwarestate.UNPACKED and packed:
        yield one.warning(f"its user software was packed in one file and is a directory now, which is slow on a shared "
                          f"file system: pack it with {pack}, then remove the directory {root}/user-software")


def binds(one: Subject) -> Iterator[Finding]:
    """Is everything there that was bound when the module was installed? (Loading tells about required binds.)"""
    for source in one.record.get(lockfile.OPTIONAL_BINDS, []):
        if not is_there(Path(source)):
            now = elsewhere(source)
            where = f"; now there is {now}" if now else ""
            # login nodes may lack directories that other nodes have; without a library, programs don't start
            say = one.error if ".so" in os.path.basename(source) else one.warning  # noqa: PTH119
            yield say(f"{source} was bound when the module was installed, and is gone{where}: put it back or mount "
                      "its file system, or correct the bind in the site's profile, render the easyconfig and run "
                      f"`eb --rebuild {one.easyconfig}`")


def elsewhere(source):
    """Return where a library may be now: the same file name, or another version beside it; '' if unknown."""
    name = os.path.basename(source)  # noqa: PTH119
    if ".so" not in name:
        return ""
    stem = glob.escape(name.split(".so")[0])
    same = [path for folder in LIBRARY_FOLDERS for path in glob.glob(f"{folder}/{glob.escape(name)}")]  # noqa: PTH207
    beside = glob.glob(f"{glob.escape(os.path.dirname(source))}/**/{stem}.so*", recursive=True)  # noqa: PTH207, PTH120
    return next(iter([*same, *sorted(beside)]), "")


def wheels(one: Subject) -> Iterator[Finding]:
    """Are there packages for another kind of GPU than that of torch, of the image or of the site? (S002-19)"""
    gpu = one.gpu
    for packages, place in ((one.user_packages, "user software"), (one.image_packages, "the image")):
        wrong = sorted(f"{name} {version}" for name, version in packages.items() if other_gpu(name, version, gpu))
        if wrong:
            several = f"{', '.join(wrong[:3])}{f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''}"
            kind = {"rocm": "ROCm", "cuda": "CUDA"}[gpu]
            remedy = ("remove them (`ebsif extend MODULE --remove`, or pip uninstall and make-squashfs), and install "
                      f"builds for {kind}") if place == "user software" else f"take an image that is built for {kind}"
            yield one.warning(f"this container is for {kind}, and {place} has packages for another kind of GPU "
                              f"({several}): {remedy}")


def other_gpu(name, version, gpu):
    """Return whether a package is built for another kind of GPU than this one."""
    label = gpu_label(version)[0]
    if gpu == "rocm":
        return label == "cu" or bool(CUDA_PACKAGE.match(name))
    return gpu == "cuda" and (label == "rocm" or bool(ROCM_PACKAGE.match(name)))
