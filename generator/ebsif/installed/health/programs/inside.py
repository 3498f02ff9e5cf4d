"""Run in the container by `ebsif doctor --installed`: import packages, and describe MPI, NCCL and libfabric.

Usage: python - REQUEST IMPORTS [PLUGIN]..., where IMPORTS is the text of the easyblocks' program that imports packages,
and REQUEST what that gets. The last line of standard output is JSON.
"""
import ctypes
import json
import re
import sys

if not sys.path[0]:
    del sys.path[0]


def look_at_torch():
    """Return what torch says of itself."""
    try:
        import torch
    except BaseException:
        # an error that is reported already, or there is none
        return None
    if not hasattr(torch, "version"):
        return None
    found = {"version": torch.__version__, "cuda": getattr(torch.version, "cuda", None),
             "hip": getattr(torch.version, "hip", None)}
    try:
        found["mpi"] = bool(torch.distributed.is_available() and torch.distributed.is_mpi_available())
        found["devices"] = torch.cuda.device_count()
        if torch.distributed.is_nccl_available():
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:
        pass
    return found


def look_at_mpi():
    """Return what the MPI of mpi4py calls itself, without starting it."""
    try:
        import mpi4py
        mpi4py.rc.initialize = False
        from mpi4py import MPI
        return MPI.Get_library_version().strip("\0 \n").split("\n")[0]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def look_at_fabric():
    """Return the version of libfabric, and of which one of several libraries can be loaded."""
    found = {}
    for name in ("libfabric.so.1", "libcxi.so.1"):
        try:
            library = ctypes.CDLL(name)
            found[name] = True
            if name.startswith("libfabric"):
                library.fi_version.restype = ctypes.c_uint32
                number = library.fi_version()
                found["version"] = "%d.%d" % (number >> 16, number & 0xffff)
                with open("/proc/self/maps") as lines:
                    paths = {line.split(None, 5)[5].strip() for line in lines if "/libfabric.so" in line}
                found["interface"] = max(interfaces(paths).values(), default=None)
        except (OSError, AttributeError):
            found.setdefault(name, False)
    return found


def loaded_libraries():
    """Return the paths of the loaded libraries of GPU communication."""
    with open("/proc/self/maps") as lines:
        paths = {line.split(None, 5)[5].strip() for line in lines if "/" in line}
    return sorted(path for path in paths if re.search(r"/lib(nccl|rccl)[.-][^/]*$", path))


def interfaces(paths):
    """Return the newest version of libfabric's interface (FABRIC_1.x) that each of some libraries names."""
    named = {}
    for path in paths:
        try:
            with open(path, "rb") as content:
                versions = re.findall(rb"FABRIC_(\d+)\.(\d+)", content.read())
        except OSError:
            continue
        if versions:
            named[path] = max([int(major), int(minor)] for major, minor in versions)
    return named


def look_around():
    """Return what there is for communication, in the process that has imported the packages."""
    return {"torch": look_at_torch(), "mpi": look_at_mpi(), "fabric": look_at_fabric(),
            "communication": loaded_libraries(), "needed": interfaces(sys.argv[3:])}


imports = {}
exec(sys.argv[2], imports)  # noqa: S102
found = imports["try_packages"](afterwards=look_around, **json.loads(sys.argv[1]))
found.update(found.pop("afterwards") or {}, version=".".join(map(str, sys.version_info[:3])))
print("python\t%s" % json.dumps(found))
