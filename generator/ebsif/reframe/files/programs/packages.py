"""Compare the packages that Python sees with the record of the installation, which is standard input; import some."""
import json
import os
import sys
from importlib import metadata

IMPORTED = ("torch", "jax", "tensorflow", "mpi4py", "numpy")
record = json.load(sys.stdin)
# what packages print when they are imported
output = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def normal(name):
    """Return the name of a package as it is compared."""
    return name.replace("_", "-").replace(".", "-").lower()


wanted, wrong = {}, []
for key in ("image_packages", "venv_packages"):
    for line in record.get(key, []):
        name, version = line.split("==", 1)
        wanted[normal(name)] = version
found = {}
for distribution in metadata.distributions():
    name = distribution.metadata and distribution.metadata["Name"]
    if name:
        found.setdefault(normal(name), distribution.version)
for name, version in sorted(wanted.items()):
    if found.get(name) != version and not (version == "unknown" and name in found):
        wrong.append("%s is %s, not %s" % (name, found.get(name, "missing"), version))
for name in IMPORTED + tuple(normal(line.split("==")[0]) for line in record.get("venv_packages", [])):
    module = name.replace("-", "_")
    if name in wanted and (name in IMPORTED or any(str(path) in (module + ".py", module + "/__init__.py")
                                                   for path in metadata.files(name) or [])):
        try:
            __import__(module)
        except BaseException as error:
            wrong.append("%s can't be imported: %s" % (name, error))
for text in wrong:
    output.write("wrong: %s\n" % text)
output.write("packages: %d as recorded\n" % (len(wanted) - len(wrong)))
output.flush()
os._exit(bool(wrong))
