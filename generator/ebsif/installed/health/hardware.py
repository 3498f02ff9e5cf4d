"""Checks of what a container or an image does with the hardware: driver, libfabric, plugin of RCCL or NCCL, MPI."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from easybuild.easyblocks.generic.container.packages import gpu_label
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS

from ebsif.catalog.container import Container
from ebsif.catalog.site import Site, is_between
from ebsif.images.inspection import Inspection
from ebsif.installed.health.subject import Subject
from ebsif.report.findings import NOTE, OK, Finding

# The oldest NVIDIA driver for programs of a major version of CUDA; newer drivers work as well.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_CUDA_DRIVER = {11: 450, 12: 525, 13: 580}

# The oldest and newest ROCm that AMD supports with a driver. A site's `driver_rocm` comes first.
# The compatibility matrix in https://github.com/ROCm/amdgpu-docs; earlier drivers are older than the images of today.
ROCM_OF_DRIVER = {"30.30": ("6.3", "7.2")}

# What MPI libraries call themselves: those with the ABI of MPICH (https://www.mpich.org/abi/), and Open MPI.
MPICH_LIBRARY = re.compile(r"MPICH|MVAPICH|Intel\(R\) MPI|CRAY", re.IGNORECASE)
OPENMPI_LIBRARY = re.compile(r"Open MPI", re.IGNORECASE)
# Their files; Open MPI 1 to 5.
MPICH_FILE = re.compile(r"libmpi\.so\.12(\..*)?")
OPENMPI_FILE = re.compile(r"libmpi\.so\.(1|20|40)(\..*)?")

PROVIDER = "libcxi"  # the library of libfabric's provider for Slingshot


def driver(one: Subject) -> Iterator[Finding]:
    """Is the image's ROCm or CUDA in the range that the driver supports?"""
    kind, version = one.gpu, gpu_version(one)
    if kind == "rocm" and version:
        oldest, newest, whose = rocm_range(one)
        if oldest and not is_between(version, oldest, newest):
            yield one.error(
                f"its ROCm {version} is not supported by {whose}, which supports {oldest} to {newest}: "
                "install a module with one of these (`ebsif list`), move extensions to it with `ebsif "
                f"upgrade`, and remove this module with `ebsif remove {one.module}`"
            )
    elif kind == "cuda" and version and one.machine.driver(kind):
        driver_version = one.machine.driver(kind)
        needed = OLDEST_CUDA_DRIVER.get(major(version))
        if needed and major(driver_version) < needed:
            yield one.error(
                f"its CUDA {version} needs driver {needed} or newer, and this node has {driver_version}: "
                "use an image with an older CUDA, or another node"
            )


def gpu_version(one: Subject) -> str:
    """Return the version of ROCm or CUDA in the container; '' if it's unknown."""
    torch = one.python.get("torch") or {}
    kind = one.gpu or ""
    # the third number is that of a build
    known = ".".join(re.findall(r"\d+", torch.get(kind) or "")[:2])
    found = one.image_facts.get(kind) or known or gpu_label(one.torch)[1] or ""
    return ".".join(re.findall(r"\d+", found)[:3])


def rocm_range(one: Subject) -> tuple[str, str, str]:
    """Return the oldest and the newest ROCm that the driver supports, and what says so; '' if it's unknown."""
    if one.site and one.site.driver_rocm:
        oldest, newest = one.site.driver_rocm
        return oldest, newest, f"the driver of {one.site.name} (driver_rocm in its profile)"
    version = one.machine.driver("rocm")
    for beginning, known in ROCM_OF_DRIVER.items():
        if f"{version}.".startswith(f"{beginning}."):
            return (*known, f"driver {version} of this node")
    return "", "", ""


def major(version: str) -> int:
    """Return the first number of a version."""
    return int(re.findall(r"\d+", version)[0])


def provider(one: Subject) -> Iterator[Finding]:
    """Can libfabric load the provider of Slingshot, where there is one?"""
    found = one.python.get("fabric", {})
    for library in ("libfabric.so.1", "libcxi.so.1") if one.machine.fabric else ():
        what, why = unloadable(library, found.get("said", {}).get(library, ""))
        # an image without libfabric doesn't use Slingshot by it
        is_used = what != library if library.startswith("libfabric") else found.get("libfabric.so.1")
        if found.get(library) is False and is_used:
            remedy = (
                f"add the host's {what} to `binds` in the site's profile, {one.render_again}"
                if what
                else "use an image with a newer distribution, or a library that was built for this one"
            )
            yield one.error(
                f"libfabric can't use Slingshot, and jobs on several nodes use TCP or fail, because {why}: {remedy}"
            )
            return


def unloadable(library: str, said: str) -> tuple[str, str]:
    """
    Return which library is missing, empty if none is, and why one can't be loaded, from what the loader said of it.

    A bound library may need another one that isn't bound, or a newer glibc (K-02).
    """
    missing = re.match(r"(\S+\.so\S*): cannot open shared object file", said)
    if not said or (missing and missing[1] == library):
        return library, f"{library} isn't in the container"
    if missing:
        return missing[1], f"{library} needs {missing[1]}, which isn't in the container"
    newer = re.search(r"version `GLIBC_([\d.]+)' not found", said)
    if newer:
        return "", f"{library} needs glibc {newer[1]}, and the image has an older one ({said})"
    return "", f"{library} can't be loaded ({said})"


def plugin(one: Subject) -> Iterator[Finding]:
    """Do RCCL or NCCL have a plugin for Slingshot that fits libfabric? (S002-19, S004-05, S004-14)"""
    if not one.gpu or not one.has_fabric:
        return
    library, plugins = GPU_KINDS[one.gpu].collectives, one.image_facts.get("network-plugin", [])
    if not has_library(one, library):
        return
    if not plugins and not one.environment.get("NCCL_NET_PLUGIN"):
        own = stock_nccl(one) if one.gpu == "cuda" else ""
        yield one.warning(
            f"{own or library} has no plugin for Slingshot, so it uses TCP between nodes, which is slow: "
            f"use an image with aws-ofi-{library.lower()}, or build it in the container"
        )
    fabric = one.python.get("fabric", {})
    for path, needed in sorted(one.python.get("needed", {}).items()):
        # lists of two numbers
        if fabric.get("interface") and needed > fabric["interface"]:
            yield one.error(
                f"the plugin {path} needs a newer libfabric than {fabric['version']}, which the container "
                "uses now: use an image whose plugin was built for that version, or bind a newer libfabric"
            )


def has_library(one: Subject, library: str) -> bool:
    """Return whether the container has RCCL or NCCL: that of torch, a package, one in the image, or a loaded one."""
    torch = one.python.get("torch") or {}
    if gpu_label(one.torch)[0] in GPU_KINDS or torch.get("nccl") or (one.gpu == "cuda" and stock_nccl(one)):
        return True
    paths = [*one.image_facts.get("network-library", []), *one.python.get("communication", [])]
    return any(f"/lib{library.lower()}" in path for path in paths)


def stock_nccl(one: Subject) -> str:
    """Return the name of an NCCL that comes as a package of pip or Conda, without a plugin; '' if there is none."""
    packages = {**one.image_packages, **one.user_packages}
    stock = [f"{name} {version}" for name, version in packages.items() if name.startswith(("nvidia-nccl-cu", "nccl"))]
    conda = [
        f"{name} {version} (Conda)"
        for lines in one.record.conda_packages.values()
        for name, version in lockfile.versions_in(lines).items()
        if name == "nccl"
    ]
    return next(iter([*stock, *conda]), "")


def mpi(one: Subject) -> Iterator[Finding]:
    """Does mpi4py use an MPI that the MPI of a Cray can replace? (S002-19)"""
    library = one.python.get("mpi") or ""
    if library and one.has_fabric and OPENMPI_LIBRARY.search(library) and not MPICH_LIBRARY.search(library):
        yield one.warning(
            f"mpi4py uses {library}, which an MPI with the ABI of MPICH, such as Cray's, can't replace, "
            "so it doesn't use Slingshot: build mpi4py in the container with an MPI that has this ABI "
            "(`MPICC`)"
        )


def mpi_backend(one: Subject) -> Iterator[Finding]:
    """Does torch.distributed have the MPI backend? (S003-03, S004-13)"""
    torch = one.python.get("torch")
    if torch and torch.get("mpi") is False:
        yield one.note(
            "torch.distributed: MPI backend not available. Only a torch that was built against an MPI has "
            "it; RCCL, NCCL and gloo don't need it"
        )


# --- what an image could use, before it is installed


def examine_image(inspection: Inspection, site: Site, containers: Sequence[Container]) -> list[Finding]:
    """Return the findings on what an image can use of a site's network (S001-14)."""
    return [
        origin(inspection, site, containers),
        image_provider(inspection, site),
        image_mpi(inspection),
        *image_plugin(inspection, site),
    ]


def origin(inspection: Inspection, site: Site, containers: Sequence[Container]) -> Finding:
    """Return a Finding on whether the image was made for the site."""
    modules = [one.module for one in containers if one.file_name == Path(inspection.resolved).name]
    if modules:
        return Finding(OK, "image", f"in the catalog of {site.name}: {', '.join(modules)}")
    return Finding(
        NOTE,
        "image",
        f"not in the catalog of {site.name}: an image that is fast on one machine may be "
        "slow on another, so run a benchmark on two nodes first",
    )


def image_provider(inspection: Inspection, site: Site) -> Finding:
    """Return a Finding on libfabric's provider for the network."""
    libraries = libraries_named(inspection, "libfabric.so")
    if not libraries:
        return Finding(NOTE, "libfabric", "none in the image: only what the site binds can use the fast network")
    version = inspection.components.get("libfabric")
    text = f"{version or 'unknown version'}, {libraries[0]}"
    own = libraries_named(inspection, f"{PROVIDER}.so")
    bound = [bind for bind in site.bound if PROVIDER in bind]
    if own:
        text += f"; for Slingshot {own[0]} in the image"
    if bound:
        text += f"; for Slingshot {bound[0]} of {site.name}"
    if not (own or bound):
        text += f"; no {PROVIDER}, so it can't use Slingshot"
    return Finding(OK if own or bound else NOTE, "libfabric", text)


def image_mpi(inspection: Inspection) -> Finding:
    """Return a Finding on the ABI of the image's MPI, which decides whether the host's MPI can replace it."""
    libraries = {Path(path).name: path for path in libraries_named(inspection, "libmpi.so")}
    mpich = next((path for name, path in libraries.items() if MPICH_FILE.fullmatch(name)), None)
    openmpi = next((path for name, path in libraries.items() if OPENMPI_FILE.fullmatch(name)), None)
    if mpich and openmpi:
        return Finding(
            NOTE,
            "MPI",
            f"two in the image, {mpich} (ABI of MPICH) and {openmpi} (Open MPI): make sure "
            "that programs use one of them",
        )
    if mpich:
        return Finding(OK, "MPI", f"ABI of MPICH, {mpich}: Cray MPICH and others with that ABI can replace it")
    if openmpi:
        return Finding(
            NOTE,
            "MPI",
            f"Open MPI, {openmpi}: an MPI with the ABI of MPICH can't replace it, and it needs a launcher with PMIx",
        )
    return Finding(NOTE, "MPI", "none in the image")


def image_plugin(inspection: Inspection, site: Site) -> Iterator[Finding]:
    """Yield a Finding on the plugin through which GPUs on several nodes communicate, if the site has GPUs."""
    if site.gpu not in GPU_KINDS:
        return
    library = GPU_KINDS[site.gpu].collectives
    if inspection.plugins:
        yield Finding(OK, f"{library} plugin", inspection.plugins[0])
    else:
        yield Finding(
            NOTE,
            f"{library} plugin",
            f"none in the image: {library} uses TCP between nodes, unless the site binds a plugin",
        )


def libraries_named(inspection: Inspection, prefix: str) -> list[str]:
    """Return the libraries in an image whose file names have this prefix."""
    return [path for path in inspection.libraries if Path(path).name.startswith(prefix)]
