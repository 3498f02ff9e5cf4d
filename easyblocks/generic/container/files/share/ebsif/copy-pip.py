"""Run by the Python of a new venv in the image: give the venv the pip that the image has.

What ensurepip does, but without starting a pip from an archive to install another one, and with the pip that the image
was made with instead of the one its Python was released with. Ends with status 3 where that can't be done: no pip that
is complete and new enough, or no setuptools where ensurepip would install one.

Usage: python3 -I - TIME [DIRECTORY]. The bytecode comes along: compiling pip is half of what compiling a venv with some
packages takes. Bytecode names the time of its source file (TIME, in seconds since 1970), so both get that. DIRECTORY is
where the image has its pip: the Python of a new venv does not look into another venv.
"""
import importlib.util
import os
import shutil
import struct
import sys
import sysconfig

NOT_HERE = 3
# --report is from 22.2 on
OLDEST = (22, 2)
# ensurepip installs setuptools before that
NO_SETUPTOOLS = (3, 12)

SCRIPT = "\n".join(["#!{python}", "import sys", "from pip._internal.cli.main import main",
                    "if __name__ == '__main__':", "    sys.exit(main())", ""])


def copy(source, target, time):
    """Copy a file of pip, with its bytecode if that is of this file as it is."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)
    if not source.endswith(".py"):
        return
    try:
        with open(importlib.util.cache_from_source(source), "rb") as bytecode:
            head, code = bytecode.read(16), bytecode.read()
    except OSError:
        return
    # PEP 552: a magic number, no flags, time and size of the source
    status = os.stat(source)
    named = [int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF]
    if head[:4] == importlib.util.MAGIC_NUMBER and head[4:] == struct.pack("<LLL", 0, *named):
        os.utime(target, (time, time))
        cached = importlib.util.cache_from_source(target)
        os.makedirs(os.path.dirname(cached), exist_ok=True)
        with open(cached, "wb") as bytecode:
            bytecode.write(head[:8] + struct.pack("<LL", time, named[1]) + code)


def main():
    """Copy pip and write its scripts."""
    sys.path.extend(sys.argv[2:])
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
    # distributions take pip apart (pip/_vendor/__init__.py says so), and move it
    vendored = [file for file in wanted if file.parts[:2] == ("pip", "_vendor")]
    # not from there: the list of files may leave itself out
    info = [file.parent for file in wanted if file.name == "METADATA"]
    complete = info and len(vendored) >= 50 and all(os.path.isfile(str(file.locate())) for file in wanted)
    if version < OLDEST or not complete:
        return NOT_HERE

    # lib/python3.14t for one without a global lock
    library = sysconfig.get_path("purelib")
    records = []
    for file in wanted:
        copy(str(file.locate()), os.path.join(library, str(file)), int(sys.argv[1]))
        records.append(str(file))
    for name in ("pip", "pip3", "pip%d.%d" % sys.version_info[:2]):
        path = os.path.join(sys.prefix, "bin", name)
        with open(path, "w") as script:
            script.write(SCRIPT.format(python=os.path.join(sys.prefix, "bin", "python3")))
        os.chmod(path, 0o755)
        records.append(os.path.relpath(path, library))
    record = str(info[0] / "RECORD")
    with open(os.path.join(library, record), "w") as lines:
        lines.writelines("%s,,\n" % path for path in records + [record])
    return 0


sys.exit(main())
