"""Copy the image's pip into a new venv; run by the Python of the venv in the image.

Replaces ensurepip, which starts a pip from an archive to install another one, and has the pip that Python was released
with instead of the image's. The exit status is 3 if the image has no pip that is complete and new enough, or lacks
setuptools although ensurepip would install it.

Usage: python3 -I - TIME SCRIPT [DIRECTORY]. Copies the bytecode too, because compiling pip takes half of the time of
compiling a venv with some packages. Bytecode contains the modification time of its source file, so both get the same
TIME (in seconds since 1970). SCRIPT is the text of the command pip. DIRECTORY contains the image's pip: the Python of a
new venv doesn't search other venvs.
"""
import importlib.util
import os
import re
import shlex
import shutil
import struct
import sys
import sysconfig

NOT_HERE = 3
# the first pip with --report
OLDEST = (22, 2)
# the first Python whose ensurepip doesn't install setuptools
NO_SETUPTOOLS = (3, 12)
# the longest first line that every Linux accepts; pip uses the same limit
LONGEST = 127


def copy(source, target, time):
    """Copy a file of pip, with its bytecode if that is up to date."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)
    if not source.endswith(".py"):
        return
    try:
        with open(importlib.util.cache_from_source(source), "rb") as bytecode:
            head, code = bytecode.read(16), bytecode.read()
    except OSError:
        return
    # PEP 552: magic number, no flags, modification time and size of the source
    status = os.stat(source)
    named = [int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF]
    if head[:4] == importlib.util.MAGIC_NUMBER and head[4:] == struct.pack("<LLL", 0, *named):
        os.utime(target, (time, time))
        cached = importlib.util.cache_from_source(target)
        os.makedirs(os.path.dirname(cached), exist_ok=True)
        with open(cached, "wb") as bytecode:
            bytecode.write(head[:8] + struct.pack("<LL", time, named[1]) + code)


def first_lines(python):
    """Return the start of a script of this Python: like pip's, through sh if the kernel would misread the path."""
    first = "#!" + python
    if len(os.fsencode(first)) >= LONGEST or re.search(r"\s", python):
        first = "#!/bin/sh\n'''exec' %s \"$0\" \"$@\"\n' '''" % shlex.quote(python)
    return first + "\n"


def main():
    """Copy pip and write its scripts."""
    sys.path.extend(sys.argv[3:])
    try:
        from importlib.metadata import PackageNotFoundError, distribution  # novermin: runs in the image
    except ImportError:
        return NOT_HERE
    try:
        pip = distribution("pip")
        if sys.version_info < NO_SETUPTOOLS:
            distribution("setuptools")
    except PackageNotFoundError:
        return NOT_HERE
    version = tuple(int(part) for part in pip.version.split(".")[:2] if part.isdigit())
    files = [file for file in pip.files or [] if ".." not in file.parts and "__pycache__" not in file.parts
             and not file.is_absolute()]
    wanted = [file for file in files if file.name != "RECORD"]
    # Linux distributions remove the vendored packages (see pip/_vendor/__init__.py), and move pip
    vendored = [file for file in wanted if file.parts[:2] == ("pip", "_vendor")]
    # add RECORD ourselves: the list of files may not contain it
    info = [file.parent for file in wanted if file.name == "METADATA"]
    complete = info and len(vendored) >= 50 and all(os.path.isfile(str(file.locate())) for file in wanted)
    if version < OLDEST or not complete:
        return NOT_HERE

    # the directory is lib/python3.14t for a free-threaded Python
    library = sysconfig.get_path("purelib")
    records = []
    for file in wanted:
        copy(str(file.locate()), os.path.join(library, str(file)), int(sys.argv[1]))
        records.append(str(file))
    for name in ("pip", "pip3", "pip%d.%d" % sys.version_info[:2]):
        path = os.path.join(sys.prefix, "bin", name)
        with open(path, "w") as script:
            script.write(first_lines(os.path.join(sys.prefix, "bin", "python3")) + sys.argv[2])
        os.chmod(path, 0o755)
        records.append(os.path.relpath(path, library))
    record = str(info[0] / "RECORD")
    with open(os.path.join(library, record), "w") as lines:
        lines.writelines("%s,,\n" % path for path in records + [record])
    return 0


sys.exit(main())
