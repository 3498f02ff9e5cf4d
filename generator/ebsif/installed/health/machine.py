"""Checks of this node: the container runtime, what it needs to mount images, GPUs, and the network."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.host.loader import Loader
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS, RUNTIMES

from ebsif import processes
from ebsif.report.findings import ERROR, NOTE, OK, Finding

SQUASHFUSE = ("squashfuse_ll", "squashfuse")
# where runtimes look for programs, besides PATH and their own directory (`binary path` in their configuration)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
FABRIC = "/sys/class/cxi"  # Slingshot
INFINIBAND = "/sys/class/infiniband"
LONGEST = 60  # seconds for a runtime to describe itself


@dataclass
class Machine:
    """The node on which the checks run; `root` is its file system."""

    root: Path = Path("/")

    def has(self, path: str) -> bool:
        """Return whether a device or directory exists and has content."""
        place = self.root / path.lstrip("/")
        return any(place.iterdir()) if place.is_dir() else place.exists()

    @cached_property
    def loader(self) -> Loader:
        """The loader of this node, which reads each file once for all modules."""
        return Loader()

    @cached_property
    def gpu(self) -> Optional[str]:
        """The kind of GPU of this node."""
        return next((kind for kind, one in GPU_KINDS.items() if self.has(one.device)), None)

    @cached_property
    def fabric(self) -> bool:
        """Whether this node is on a Slingshot network."""
        return self.has(FABRIC)

    def driver(self, kind: str) -> str:
        """Return the version of the driver for a kind of GPU; '' if there is none, or if it is that of the kernel."""
        return self.number_in(*GPU_KINDS[kind].driver)

    def number_in(self, path: str, pattern: str) -> str:
        """Return what a pattern finds in a file of the system, '' if it isn't there."""
        try:
            text = (self.root / path.lstrip("/")).read_text(errors="replace")
        except OSError:
            return ""
        found = re.search(pattern, text)
        return found.group(1) if found else ""


def examine(machine: Machine, recorded: Iterable[str]) -> Iterator[Finding]:
    """Yield the findings on a node; `recorded` is what the runtimes called themselves when modules were installed."""
    yield from starting(recorded)
    yield from unseen(machine)


def starting(recorded: Iterable[str] = ()) -> Iterator[Finding]:
    """Yield the findings on what containers need to start on this node; see `examine`."""
    runtimes = runtimes_on_path()
    yield from runtime(runtimes, set(filter(None, recorded)))
    if runtimes:
        yield from mounting(next(iter(runtimes)))


def runtimes_on_path() -> dict[str, Optional[str]]:
    """Return what each runtime on PATH calls itself, in the order in which modules would use them (None: it fails)."""
    found: dict[str, Optional[str]] = {}
    for name in RUNTIMES:
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            path = shutil.which(name, path=folder) if folder else None
            if path and not any(Path(path).samefile(one) for one in found):
                found[path] = version_of(path)
    return found


def version_of(path: str) -> Optional[str]:
    """Return what a runtime calls itself, None if it fails or doesn't answer."""
    return ask(path, "--version") or None


def ask(path: str, question: str) -> str:
    """Return what a runtime answers, '' if it fails or doesn't answer."""
    try:
        result = processes.run([path, question], LONGEST)
    except (OSError, processes.NoAnswerError):
        return ""
    return "" if result.returncode else result.stdout.strip()


def runtime(found: dict[str, Optional[str]], recorded: set[str]) -> Iterator[Finding]:
    """Yield a Finding on the runtime: does it run, and is it the one with which the modules were installed?"""
    subject = "container runtime"
    if not found:
        yield Finding(
            ERROR,
            subject,
            "neither apptainer nor singularity is on PATH: load the site's module for one of them, or use another node",
        )
        return
    (path, version), *others = found.items()
    folder = Path(path).parent
    # PATH can't choose between two programs in one directory
    others = [(other, name) for other, name in others if name and Path(other).parent != folder]
    right = next(((other, name) for other, name in others if name in recorded), None)
    if version is None:
        better = next(iter(others), None)
        yield Finding(
            ERROR,
            subject,
            f"{path} doesn't run"
            + (
                f", and modules use it instead of {better[0]} ({better[1]}): take {folder} off PATH"
                if better
                else ": repair it, or load the site's module for the runtime"
            ),
        )
    elif recorded and version not in recorded and right:
        yield Finding(
            ERROR,
            subject,
            f"modules use {path} ({version}) instead of {right[0]} ({right[1]}), with which "
            f"they were installed: take {folder} off PATH",
        )
    else:
        yield Finding(OK, subject, f"{version}, {path}")


def mounting(path: str) -> Iterator[Finding]:
    """Yield the findings on what the runtime needs to mount images without privileges."""
    if os.getuid() == 0 or is_setuid(path):
        return
    folders = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}:{library_folder(path)}/bin"
    if not any(shutil.which(name, path=folders) for name in SQUASHFUSE):
        yield Finding(
            ERROR,
            "squashfuse",
            "not found, so the runtime unpacks the whole image at each start, and can't "
            "mount packed user software: install the package squashfuse, or use a node that has it",
        )
    elif not os.access("/dev/fuse", os.R_OK | os.W_OK):
        yield Finding(
            ERROR,
            "FUSE",
            "you can't use /dev/fuse, which squashfuse needs to mount images: load the kernel "
            "module fuse, and let users read and write the device",
        )
    else:
        yield Finding(OK, "squashfuse", "found, with /dev/fuse")
    limit = Path("/proc/sys/user/max_user_namespaces")
    allowed = Path("/proc/sys/kernel/unprivileged_userns_clone")
    if any(one.exists() and one.read_text().strip() == "0" for one in (limit, allowed)):
        yield Finding(
            ERROR,
            "user namespaces",
            "switched off, and the runtime isn't installed setuid: set "
            "user.max_user_namespaces with sysctl, or install the setuid package of the runtime",
        )


def is_setuid(path: str) -> bool:
    """Return whether a runtime is installed setuid, which then needs neither FUSE nor user namespaces."""
    return any((folder / "starter-suid").exists() for folder in Path(library_folder(path)).glob("bin"))


def library_folder(path: str) -> str:
    """Return the directory with the runtime's own programs."""
    found = re.search(r"^LIBEXECDIR=(.+)$", ask(path, "buildcfg"), re.MULTILINE)
    names = [found.group(1)] if found else []
    return next((f"{one}/{name}" for one in names for name in RUNTIMES if os.path.isdir(f"{one}/{name}")), "/nowhere")


def unseen(machine: Machine) -> Iterator[Finding]:
    """Yield notes on what this node doesn't have, so that nothing is known of it (I-12)."""
    if machine.gpu:
        yield Finding(OK, "GPU", f"{machine.gpu}, driver {machine.driver(machine.gpu) or 'of the kernel'}")
    else:
        yield Finding(NOTE, "GPU", "this node has none, so drivers, and programs on GPUs, were not checked")
    if machine.fabric:
        yield Finding(OK, "network", "Slingshot")
    elif machine.has(INFINIBAND):
        yield Finding(OK, "network", "InfiniBand")
    else:
        yield Finding(
            NOTE,
            "network",
            "this node has neither Slingshot nor InfiniBand, so libfabric's providers for them were not checked",
        )
