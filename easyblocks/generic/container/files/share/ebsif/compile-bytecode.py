"""Compile the Python files of a venv in several processes, reproducibly; run by the Python of the venv in the image.

Usage: python3 -I - PROCESSES TIME. Bytecode contains the time of its source file, so all files get the same time first.
Files that don't compile are skipped: templates, and files for other versions of Python.
"""
import os
import sys
from importlib.util import cache_from_source

processes, time = sys.argv[1], int(sys.argv[2])
library = os.path.join(sys.prefix, "lib")
for folder, _, names in os.walk(library):
    for path in [os.path.join(folder, name) for name in names if name.endswith(".py")]:
        if os.lstat(path).st_mtime != time:
            os.utime(path, (time, time), follow_symlinks=False)
            # of the file before it was changed, perhaps with the same time
            if os.path.exists(cache_from_source(path)):
                os.remove(cache_from_source(path))
# with it, bytecode would contain a hash of the source instead of the time
os.environ.pop("SOURCE_DATE_EPOCH", None)
os.execv(sys.executable, [sys.executable, "-I", "-m", "compileall", "-qq", "-r", "100", "-j", processes, library])
