"""Run in an image by `ebsif inspect`: what this interpreter is and which packages it sees, as JSON."""
import json
import os
import sys

found = {
    "version": ".".join(map(str, sys.version_info[:3])),
    "executable": sys.executable,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "environment": {name: os.environ.get(name, "") for name in ("CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONPATH")},
    "packages": {},
}
try:
    from importlib.metadata import distributions

    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:
            found["packages"].setdefault(name, distribution.version)
except ImportError:
    pass
json.dump(found, sys.stdout)
