"""Make the Python programs of the image, or of a venv below this one, run with the Python of this venv.

The first line of a program names its interpreter: the image's torchrun starts the image's Python, which doesn't see the
packages of the venv, and neither do the processes that it starts. So this writes a program of the same name into the
venv's bin directory, which comes first on PATH: for each entry point of the packages that this Python sees, the program
that pip would write; for each Python script in a directory of programs, one that runs the script. Prints the names.

Skips names that the venv already has, programs that aren't in Python, and those for another Python (Conda's `conda`).

Usage: python - , with the PATH from before the venv was activated. The output is the same for the same image.
"""
import sys

# a program from standard input searches the working directory first, where others may have put modules
if not sys.path[0]:
    del sys.path[0]

import os
import re
import shlex
import shutil
from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild

BIN = os.path.join(sys.prefix, "bin")
PYTHON = os.path.join(BIN, "python")
SEARCH_PATH = [path for path in os.environ.get("PATH", "").split(os.pathsep)
               if os.path.realpath(path) != os.path.realpath(BIN)]
# programs that belong to a venv itself, whether this one has them or not
RESERVED = re.compile(r"(python|pip)[\d.]*t?(-config)?$|(de)?activate(\.\w+)?$", re.IGNORECASE)
INTERPRETER = re.compile(r"python[\d.]*t?$")
NOTE = "# a program of the image, run by the Python of this environment (ebsif)\n"
# pip's workaround for paths that are too long or have blanks; it needs no case distinction if it is always used
ENTRY_POINT = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
{note}import sys
from {module} import {name}
if __name__ == '__main__':
    sys.exit({function}())
"""


def find_pythons():
    """Return the directories of the Pythons on PATH whose packages this one sees (list of str, without links)."""
    found = []
    for path in SEARCH_PATH:
        python = os.path.join(path, "python3")
        if not os.path.exists(python):
            continue
        found.append(os.path.realpath(path))
        configuration = os.path.join(path, "..", "pyvenv.cfg")
        if not os.path.isfile(configuration):
            return found + [os.path.dirname(os.path.realpath(python))]
        with open(configuration) as lines:
            if not re.search(r"^include-system-site-packages\s*=\s*true", lines.read(), re.MULTILINE | re.IGNORECASE):
                break
    return found


def read_start(path):
    """Return the first lines of a file (list of str); empty ones if it can't be read."""
    try:
        with open(path, "rb") as program:
            return [os.fsdecode(line) for line in program.read(1024).split(b"\n")] + [""]
    except OSError:
        return ["", ""]


def parse_first_line(path):
    """Return the interpreter of a Python program and its option, if any; none for other programs (list of str)."""
    first, second = read_start(path)[:2]
    # as the kernel splits them
    words = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    if words[1:] and os.path.basename(words[0]) == "env":
        words = [shutil.which(words[1], path=os.pathsep.join(SEARCH_PATH)) or ""]
    elif second.startswith("'''exec' "):
        # of pip and uv: the interpreter is beside the program
        words = [os.path.join(os.path.dirname(os.path.realpath(path)), "python")]
    return words if words and INTERPRETER.match(os.path.basename(words[0])) else []


def is_ours(path, pythons):
    """Return whether a program runs one of these Pythons, or was written here for a venv below this one."""
    words = parse_first_line(path)
    return os.path.realpath(os.path.dirname(words[0])) in pythons if words else NOTE.rstrip() in read_start(path)


def find_entry_points():
    """Return module and function of the programs of packages outside this venv, by name (dict of tuple)."""
    found = {}
    own = os.path.realpath(sys.prefix) + os.sep
    for package in distributions():
        try:
            points = list(package.entry_points)
        except Exception:  # a broken file
            continue
        if os.path.realpath(str(package.locate_file(""))).startswith(own):
            continue
        for point in points:
            function = re.match(r"([\w.]+)\s*:\s*([\w.]+)", point.value)
            if function and point.group in ("console_scripts", "gui_scripts") and re.match(r"[^\s/#;]+$", point.name):
                found.setdefault(point.name, function.groups())
    return found


def find_scripts(pythons):
    """Return option and path of the Python scripts in the directories where pip installs programs (dict of list)."""
    # PREFIX/lib/pythonX.Y/site-packages; the other one is for packages of Debian, which has its own programs
    prefixes = [os.path.realpath(os.path.join(path, "..", "..", "..")) for path in sys.path
                if path.endswith("-packages") and not path.endswith("/python3/dist-packages")]
    found = {}
    for folder in dict.fromkeys(os.path.join(prefix, "bin") for prefix in prefixes):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) and folder != os.path.realpath(BIN) else []:
            path = os.path.join(folder, name)
            words = parse_first_line(path) if os.path.isfile(path) and os.access(path, os.X_OK) else []
            if words and is_ours(path, pythons):
                found.setdefault(name, words[1:] + [path])
    return found


def main():
    """Write the programs."""
    pythons = find_pythons()
    points, scripts = find_entry_points(), find_scripts(pythons)
    for name in sorted(set(points) | set(scripts)):
        path = os.path.join(BIN, name)
        # the program that this name runs now
        current = shutil.which(name, path=os.pathsep.join(SEARCH_PATH))
        if RESERVED.match(name) or os.path.lexists(path) or (current and not is_ours(current, pythons)):
            continue
        if name in points:
            module, function = points[name]
            text = ENTRY_POINT.format(python=shlex.quote(PYTHON), note=NOTE, module=module, function=function,
                                      name=function.split(".")[0])
        else:
            text = '#!/bin/sh\n%sexec %s "$@"\n' % (
                NOTE, " ".join(shlex.quote(word) for word in [PYTHON] + scripts[name]))
        with open(path, "wb") as program:
            program.write(os.fsencode(text))
        os.chmod(path, 0o755)
        print(name)


main()
