"""Run in the container by `ebsif doctor --installed`: import packages, and describe MPI, NCCL and libfabric.

Usage: python - NAMES, where NAMES is a list of distributions in JSON; those after null may be missing. The last line of
standard output is JSON.
"""
import ctypes
import importlib.util
import json
import os
import re
import sys

if not sys.path[0]:
    del sys.path[0]

# what packages print when they are imported doesn't belong in the result
OUTPUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
try:
    from importlib import metadata  # novermin: runs in the image, not with EasyBuild
except ImportError:
    metadata = None


def module_of(distribution):
    """Return the module to import for a distribution, None if it has none."""
    files = [str(path) for path in distribution.files or []]
    pattern = r"([A-Za-z]\w*)(?:/__init__\.py|\.py|(?:\.cpython-[^/]*|\.abi3)?\.so)\Z"
    matches = [re.match(pattern, path) for path in files]
    names = [found.group(1) for found in matches if found]
    like = re.sub(r"[-.]+", "_", distribution.metadata["Name"])
    for name in names:
        if name.lower() == like.lower():
            return name
    return names[0] if len(names) == 1 else None


def module_of_name(name):
    """Return the module to import for a distribution, by its name (before Python 3.8); None if there is none."""
    module = name.replace("-", "_").replace(".", "_")
    return module if importlib.util.find_spec(module) else None


def is_optional(module, distribution):
    """Return whether a module isn't installed, and nothing that the distribution requires is missing."""
    if not metadata or importlib.util.find_spec(module):
        return False
    for line in distribution.requires or []:
        if not re.search(r";.*\bextra\b", line):
            try:
                metadata.distribution(re.match(r"[\w.-]+", line).group())
            except ImportError:
                return False
    return True


def look_at(names):
    """Import the packages; return problems by name, missing modules that are optional by name, and missing packages."""
    problems, without, missing, optional = {}, {}, [], False
    for name in names:
        if name is None:
            optional = True
            continue
        try:
            distribution = metadata.distribution(name) if metadata else None
            module = module_of(distribution) if metadata else module_of_name(name)
        except ImportError:  # PackageNotFoundError
            if not optional:
                missing.append(name)
            continue
        except Exception:
            continue
        try:
            if module:
                sys.stderr.write("importing %s\n" % module)
                sys.stderr.flush()
                __import__(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            lacks = (getattr(error, "name", None) or "").partition(".")[0]
            if isinstance(error, ModuleNotFoundError) and lacks and is_optional(lacks, distribution):
                without[name] = lacks
            else:
                problems[name] = "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[0])
    return problems, without, missing


def look_at_torch():
    """Return what torch says of itself."""
    torch = sys.modules.get("torch")
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


problems, without, missing = look_at(json.loads(sys.argv[1]))
result = {"version": ".".join(map(str, sys.version_info[:3])), "problems": problems, "without": without,
          "missing": missing, "torch": look_at_torch(), "mpi": look_at_mpi(), "fabric": look_at_fabric(),
          "communication": loaded_libraries(), "needed": interfaces(sys.argv[2:])}
OUTPUT.write("python\t%s\n" % json.dumps(result))
OUTPUT.flush()
# a library may hang at exit
os._exit(0)
