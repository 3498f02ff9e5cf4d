"""Compare the packages that Python sees with the record of the installation, which is standard input; import some.

For Python 3.6 and newer, as images have it.
"""
import json
import os
import sys

IMPORTED = ("torch", "jax", "tensorflow", "mpi4py", "numpy")
# what packages print when they are imported
output = os.fdopen(os.dup(1), "w", errors="backslashreplace")
os.dup2(2, 1)


def normal(name):
    """Return the name of a package as it is compared."""
    return name.replace("_", "-").replace(".", "-").lower()


def versions():
    """Return the versions of the packages, by name; Python imports the first one in the path."""
    found = {}
    for folder in sys.path:
        for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            fields = fields_of(os.path.join(folder, entry))
            if "name" in fields:
                found.setdefault(normal(fields["name"]), fields.get("version", "unknown"))
    return found


def fields_of(path):
    """Return the fields of a package's metadata (dict), none if the path has no such."""
    if not path.endswith((".dist-info", ".egg-info")):
        return {}
    names = [os.path.join(path, "METADATA"), os.path.join(path, "PKG-INFO")] if os.path.isdir(path) else [path]
    fields = {}
    for name in filter(os.path.isfile, names):
        with open(name, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    break
                key, _, value = line.partition(":")
                fields.setdefault(key.lower(), value.strip())
    return fields


def module_of(name):
    """Return the module to import for a package of user software, None if its name doesn't tell."""
    module = name.replace("-", "_")
    return module if any(os.path.exists(os.path.join(folder, module + end)) for folder in sys.path
                         for end in (".py", "/__init__.py")) else None


record, wanted, wrong = json.load(sys.stdin), {}, []
for key in ("image_packages", "venv_packages"):
    for line in record.get(key, []):
        name, version = line.split("==", 1)
        wanted[normal(name)] = version
found = versions()
for name, version in sorted(wanted.items()):
    if found.get(name) != version and not (version == "unknown" and name in found):
        wrong.append("%s is %s, not %s" % (name, found.get(name, "missing"), version))
own = [normal(line.split("==")[0]) for line in record.get("venv_packages", [])]
for name in list(IMPORTED) + [name for name in own if name not in IMPORTED]:
    module = name if name in IMPORTED else module_of(name)
    if name in wanted and module:
        try:
            __import__(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            wrong.append("%s can't be imported: %s: %s" % (
                name, type(error).__name__, (str(error).strip().splitlines() or [""])[0]))
for text in wrong:
    output.write("wrong: %s\n" % text)
output.write("packages: %d as recorded\n" % (len(wanted) - len(wrong)))
output.flush()
os._exit(bool(wrong))
