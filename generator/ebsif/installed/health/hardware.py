"""Checks of what the container does with this hardware: driver, libfabric, plugin of RCCL or NCCL, MPI."""

import re
from collections.abc import Iterator

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.packages import gpu_label

from ebsif.findings import Finding
from ebsif.image.network import PLUGIN
from ebsif.installed import lock
from ebsif.installed.health.subject import Subject
from ebsif.installed.health.tables import MPICH_LIBRARY, OLDEST_CUDA_DRIVER, OPENMPI_LIBRARY, ROCM_OF_DRIVER


def driver(one: Subject) -> Iterator[Finding]:
    """Is the image's ROCm or CUDA in the range that the driver supports?"""
    kind, version = one.gpu, gpu_version(one)
    if kind == "rocm" and version:
        oldest, newest, whose = rocm_range(one)
        if oldest and not as_numbers(oldest) <= as_numbers(version) <= as_numbers(newest):
            yield one.error(f"its ROCm {version} is not supported by {whose}, which supports {oldest} to {newest}: "
                            "take an image with one of these (`ebsif list`), and move your packages with `ebsif "
                            "upgrade`")
    elif kind == "cuda" and version and one.machine.cuda_driver:
        major, driver_version = as_numbers(version)[0], one.machine.cuda_driver
        oldest = OLDEST_CUDA_DRIVER.get(major)
        if oldest and as_numbers(driver_version)[0] < oldest:
            yield one.error(f"its CUDA {version} needs driver {oldest} or newer, this node has {driver_version}: take "
                            "an image with an older CUDA, or another node")


def gpu_version(one):
    """Return the version of ROCm or CUDA in the container, major.minor; '' if it's unknown."""
    torch = one.python.get("torch") or {}
    kind = one.gpu
    known = torch.get("hip") if kind == "rocm" else torch.get("cuda")
    found = one.image_facts.get(kind) or known or gpu_label(one.torch)[1] or ""
    return ".".join(re.findall(r"\d+", found)[:2])


def rocm_range(one):
    """Return the oldest and the newest ROCm that the driver supports, and what says so; '' if it's unknown."""
    if one.site and one.site.driver_rocm:
        return (*one.site.driver_rocm, f"the driver of {one.site.name} (driver_rocm in its profile)")
    version = one.machine.rocm_driver
    for beginning, known in ROCM_OF_DRIVER.items():
        if f"{version}.".startswith(f"{beginning}."):
            return (*known, f"driver {version} of this node")
    return "", "", ""


def as_numbers(version):
    """Return major and minor version as numbers (tuple of int); 7 is 7.0."""
    numbers = [int(number) for number in re.findall(r"\d+", str(version))[:2]]
    return tuple(numbers + [0] * (2 - len(numbers)))


def provider(one: Subject) -> Iterator[Finding]:
    """Can libfabric load the provider of Slingshot, where there is one?"""
    found = one.python.get("fabric", {})
    if one.machine.fabric and found.get("libfabric.so.1") and not found.get("libcxi.so.1"):
        yield one.error("libfabric finds no libcxi.so.1, so it can't use Slingshot, and runs on several nodes use TCP "
                        "or fail: bind the library of the host (`binds` in the site's profile), and render the "
                        "easyconfig")


def plugin(one: Subject) -> Iterator[Finding]:
    """Do RCCL or NCCL have a plugin for Slingshot that fits libfabric? (S002-19, S004-05, S004-14)"""
    library, plugins = PLUGIN.get(one.gpu or ""), one.image_facts.get("network-plugin", [])
    if not library or not one.has_fabric:
        return
    if not plugins and not one.environment.get("NCCL_NET_PLUGIN"):
        own = stock_nccl(one)
        yield one.warning(f"{own or library} has no plugin for Slingshot: it works between nodes, but slowly, over "
                          "TCP. Take an image with aws-ofi-nccl or aws-ofi-rccl, or build one in the container")
    fabric = one.python.get("fabric", {})
    for path, needed in sorted(one.python.get("needed", {}).items()):
        # lists of two numbers
        if fabric.get("interface") and needed > fabric["interface"]:
            yield one.error(f"the plugin {path} needs a newer libfabric than {fabric['version']}, with which the "
                            "container runs now: take an image whose plugin was built for that one, or bind a newer "
                            "libfabric")


def stock_nccl(one):
    """Return the name of an NCCL that comes as a package of pip or Conda, without a plugin; '' if there is none."""
    packages = {**one.image_packages, **one.user_packages}
    stock = [f"{name} {version}" for name, version in packages.items() if name.startswith(("nvidia-nccl-cu", "nccl"))]
    conda = [f"{name} {version} (Conda)" for lines in one.record.get(lockfile.CONDA_PACKAGES, {}).values()
             for name, version in lock.pins(lines).items() if name == "nccl"]
    return next(iter([*stock, *conda]), "")


def mpi(one: Subject) -> Iterator[Finding]:
    """Does mpi4py use an MPI that the MPI of a Cray can replace? (S002-19)"""
    library = one.python.get("mpi") or ""
    if library and one.has_fabric and OPENMPI_LIBRARY.search(library) and not MPICH_LIBRARY.search(library):
        yield one.warning(f"mpi4py uses {library}: an MPI with the ABI of MPICH, as Cray's, can't replace it, so it "
                          "doesn't use Slingshot. Install mpi4py again in the container, built with an MPI with that "
                          "ABI (MPICC)")


def mpi_backend(one: Subject) -> Iterator[Finding]:
    """Has torch.distributed the backend MPI? (S003-03, S004-13)"""
    torch = one.python.get("torch")
    if torch and torch.get("mpi") is False:
        yield one.note("torch.distributed: MPI backend not available; only a torch that is built from source against "
                       "the MPI has it (on a GPU with the patch that makes it CUDA-aware). RCCL, NCCL and gloo need "
                       "none")
