"""Report what an image can use of a site's network: libfabric and its provider, the ABI of its MPI, the GPU plugin.

It reports what is present and what is missing; only a benchmark shows how fast that is (S001-14).
"""

import re
from pathlib import Path

from ebsif.catalogue.container import Container
from ebsif.catalogue.site import Site
from ebsif.images.inspection import Inspection
from ebsif.report.findings import NOTE, OK, Finding

# Libraries with the ABI that MPICH and its derivatives share (MPICH ABI Compatibility Initiative), and those of
# Open MPI 1 to 5.
MPICH_ABI = re.compile(r"libmpi\.so\.12(\..*)?")
OPENMPI_ABI = re.compile(r"libmpi\.so\.(1|20|40)(\..*)?")

PROVIDER = "libcxi"  # of Slingshot
PLUGIN = {"rocm": "RCCL", "cuda": "NCCL"}


def examine(found: Inspection, site: Site, containers: list[Container]) -> list[Finding]:
    """
    Return the findings on each part of the communication between nodes.

    Parameters
    ----------
    found
        The findings on the image.
    site
        The site where the image will be used.
    containers
        The containers of the site.
    """
    return [origin(found, site, containers), provider(found, site), mpi(found), *plugin(found, site)]


def origin(found, site, containers):
    """Return a Finding on whether the image was made for the site."""
    modules = [one.module for one in containers if one.file_name == Path(found.resolved).name]
    if modules:
        return Finding(OK, "image", f"in the catalogue of {site.name}: {', '.join(modules)}")
    return Finding(NOTE, "image", f"not in the catalogue of {site.name}: an image that is fast on one machine may be "
                   "slow on another, so run a benchmark on two nodes first")


def provider(found, site):
    """Return a Finding on libfabric's provider for the network."""
    libraries = named(found, "libfabric.so")
    if not libraries:
        return Finding(NOTE, "libfabric", "none in the image: only what the site binds can use the fast network")
    version = found.components.get("libfabric")
    text = f"{version or 'unknown version'}, {libraries[0]}"
    own = named(found, f"{PROVIDER}.so")
    bound = [bind for bind in (*site.binds.required, *site.binds.optional, *site.binds.libraries) if PROVIDER in bind]
    if own:
        text += f"; for Slingshot {own[0]} in the image"
    if bound:
        text += f"; for Slingshot {bound[0]} of {site.name}"
    if not (own or bound):
        text += f"; no {PROVIDER}, so it can't use Slingshot"
    return Finding(OK if own or bound else NOTE, "libfabric", text)


def mpi(found):
    """Return a Finding on the ABI of the image's MPI, which decides whether the host's MPI can replace it."""
    libraries = {Path(path).name: path for path in named(found, "libmpi.so")}
    mpich = next((path for name, path in libraries.items() if MPICH_ABI.fullmatch(name)), None)
    openmpi = next((path for name, path in libraries.items() if OPENMPI_ABI.fullmatch(name)), None)
    if mpich and openmpi:
        return Finding(NOTE, "MPI", f"two in the image, {mpich} (ABI of MPICH) and {openmpi} (Open MPI): make sure "
                       "that programs use one of them")
    if mpich:
        return Finding(OK, "MPI", f"ABI of MPICH, {mpich}: Cray MPICH and others with that ABI can replace it")
    if openmpi:
        return Finding(NOTE, "MPI", f"Open MPI, {openmpi}: an MPI with the ABI of MPICH can't replace it, and it needs "
                       "a launcher with PMIx")
    return Finding(NOTE, "MPI", "none in the image")


def plugin(found, site):
    """Yield a Finding on the plugin through which GPUs on several nodes communicate, if the site has GPUs."""
    library = PLUGIN.get(site.gpu)
    if not library:
        return
    if found.plugins:
        yield Finding(OK, f"{library} plugin", found.plugins[0])
    else:
        yield Finding(NOTE, f"{library} plugin", f"none in the image: {library} uses TCP between nodes, unless the "
                      "site binds a plugin")


def named(found, prefix):
    """Return the libraries in an image whose file names have this prefix (list of str)."""
    return [path for path in found.libraries if Path(path).name.startswith(prefix)]
