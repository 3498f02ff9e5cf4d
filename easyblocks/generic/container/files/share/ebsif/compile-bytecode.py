"""Compile the Python files of a venv in several processes, reproducibly; run by the Python of the venv in the image.

Usage: python3 -I - PROCESSES. Takes two thirds of the time of `python3 -m compileall -j`, because the files are
distributed once, large ones first, instead of one by one. The result is the same for any number of processes.
Bytecode contains the time of its source file, so that is fixed first. What has this time already is only compiled if it
isn't yet. Files that don't compile are skipped: templates, and files for other versions of Python.
"""
import compileall
import os
import sys

# 1980-01-01, the earliest time that zip files allow
FILE_TIME = 315532800


def compile_file(path):
    """Fix the time of a file and compile it."""
    is_new = os.lstat(path).st_mtime != FILE_TIME
    if is_new:
        os.utime(path, (FILE_TIME, FILE_TIME), follow_symlinks=False)
    compileall.compile_file(path, quiet=2, force=is_new)


def main(processes, directory):
    """Distribute the files; each process compiles its share."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names
             if name.endswith(".py")]
    files.sort(key=lambda path: (-os.lstat(path).st_size, path))
    # with it, bytecode would contain a hash of the source instead of the time
    os.environ.pop("SOURCE_DATE_EPOCH", None)
    children = []
    for number in range(processes):
        child = os.fork()
        if not child:
            for path in files[number::processes]:
                compile_file(path)
            # without the parent's exit handlers
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


main(int(sys.argv[1]), os.path.join(sys.prefix, "lib"))
