"""Run in the container by `ebsif doctor` and ReFrame: import packages, and describe MPI, NCCL and libfabric.

Usage: python - RECORD IMPORTS [LISTING [PLUGIN]...], where IMPORTS and LISTING are the texts of the easyblocks'
programs that import and list packages. RECORD is JSON with the packages in the record of an installation; for "-", the
record is standard input, and versions are compared with it. The last line of standard output is JSON.
"""

import ctypes
import json
import re
import sys

# Packages to import if the image has them; the others are imported if a person installed them.
KEY_PACKAGES = ("torch", "mpi4py", "numpy", "jax", "tensorflow")
LIMIT = 240  # seconds

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
    found = {
        "version": torch.__version__,
        # by the names of the kinds of GPU
        "cuda": getattr(torch.version, "cuda", None),
        "rocm": getattr(torch.version, "hip", None),
    }
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
    """Return the version of libfabric, which libraries can be loaded, and what the loader says of the others."""
    found = {"said": {}}
    for name in ("libfabric.so.1", "libcxi.so.1"):
        try:
            library = ctypes.CDLL(name)
            found[name] = True
            if name.startswith("libfabric"):
                library.fi_version.restype = ctypes.c_uint32
                number = library.fi_version()
                found["version"] = "%d.%d" % (number >> 16, number & 0xFFFF)
                with open("/proc/self/maps") as lines:
                    paths = {line.split(None, 5)[5].strip() for line in lines if "/libfabric.so" in line}
                found["interface"] = max(interfaces(paths).values(), default=None)
        except (OSError, AttributeError) as error:
            found.setdefault(name, False)
            found["said"][name] = str(error)
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
    return {
        "torch": look_at_torch(),
        "mpi": look_at_mpi(),
        "fabric": look_at_fabric(),
        "communication": loaded_libraries(),
        "needed": interfaces(sys.argv[4:]),
    }


def versions_in(record, key):
    """Return the versions in a list of the record, by normalized name."""
    lines = (line.partition("==") for line in record.get(key, []))
    return {imports["normal_name"](name): version for name, _, version in lines}


def differences(recorded):
    """Return which packages have another version than recorded; None if this Python is too old to tell."""
    if not imports["metadata"]:
        return None
    present = {}
    for one in imports["metadata"].distributions():
        # of several, Python imports the first one in its path
        present.setdefault(imports["normal_name"](one.metadata["Name"] or ""), one.version)
    return [
        "%s is %s, not %s" % (name, present.get(name, "missing"), version)
        for name, version in sorted(recorded.items())
        if present.get(name) != version and not (version == "unknown" and name in present)
    ]


imports = {}  # type: dict
exec(sys.argv[2], imports)
record = json.load(sys.stdin) if sys.argv[1] == "-" else json.loads(sys.argv[1])
image, own = versions_in(record, "image_packages"), versions_in(record, "venv_packages")
optional = [name for name in KEY_PACKAGES if name in image and name not in own]
found = imports["try_packages"](sorted(own), optional, afterwards=look_around, limit=LIMIT)
found.update(found.pop("afterwards") or {}, version=".".join(map(str, sys.version_info[:3])))
for text in sys.argv[3:4]:
    listing = {}  # type: dict
    exec(text, listing)
    found["listing"] = listing["description"]()
if sys.argv[1] == "-":
    found["differences"] = differences(dict(image, **own))
print("python\t%s" % json.dumps(found))
