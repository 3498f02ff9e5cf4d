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
import subprocess
from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild

BIN = os.path.join(sys.prefix, "bin")
PYTHON = os.path.join(BIN, "python")
# programs that belong to a venv itself, whether this one has them or not
RESERVED = re.compile(r"(python|pip)[\d.]*t?(-config)?$|(de)?activate(\.\w+)?$", re.IGNORECASE)
INTERPRETER = re.compile(r"python[\d.]*t?$")
# older kernels read no more of the first line; pip has the same limit and the same workaround
LONGEST = 127
NOTE = "# a program of the image, run by the Python of this environment (ebsif)\n"


# --- the image and venvs below this one


def find_venvs():
    """Return the other venvs whose packages this Python sees (list of str, without links)."""
    # PREFIX/lib/pythonX.Y/site-packages
    prefixes = [os.path.realpath(os.path.join(path, "..", "..", "..")) for path in sys.path if path]
    return [prefix for prefix in dict.fromkeys(prefixes)
            if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) and prefix != os.path.realpath(sys.prefix)]


def is_isolated(prefix):
    """Return whether a venv doesn't see the packages of the Python that it was created with."""
    with open(os.path.join(prefix, "pyvenv.cfg")) as lines:
        return not re.search(r"^include-system-site-packages\s*=\s*true", lines.read(), re.MULTILINE | re.IGNORECASE)


def is_ours(interpreter):
    """Return whether an interpreter is the one that the venv was created with, or belongs to a venv below this one."""
    prefix = os.path.dirname(os.path.dirname(interpreter))
    if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        return os.path.realpath(prefix) in find_venvs()
    # don't compare inodes: Conda's environments have hard links to one file
    return os.path.realpath(interpreter) == os.path.realpath(sys.executable) and \
        not any(is_isolated(path) for path in find_venvs())


def find_program_directories():
    """Return the directories where pip installs programs, of the underlying Python and of venvs (list of str)."""
    # -I: don't import modules from the working directory
    command = [os.path.realpath(sys.executable), "-I", "-m", "sysconfig"]
    paths = os.fsdecode(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    scripts = re.search(r'^\tscripts = "(.*)"$', paths, re.MULTILINE).group(1)
    return [os.path.join(prefix, "bin") for prefix in find_venvs()] + [scripts]


def find_packages():
    """Yield the packages that this Python sees, except those in the venv and those hidden by another one."""
    seen = set()
    own = os.path.realpath(sys.prefix) + os.sep
    for package in distributions():
        try:
            name = package.metadata["Name"]
        except Exception:  # no metadata (Python 3.14 and newer), or not a text file
            name = None
        name = name and re.sub(r"[-_.]+", "-", name).lower()
        if name and name not in seen:
            seen.add(name)
            if not os.path.realpath(str(package.locate_file(""))).startswith(own):
                yield package


# --- the programs


def parse_program(path, search_path):
    """Return the command that a Python program runs: interpreter, options, script; None for other programs."""
    try:
        with open(path, "rb") as program:
            lines = [os.fsdecode(line) for line in program.read(8192).split(b"\n")[:3]]
    except OSError:
        return None
    # interpreter and one argument, as the kernel splits them
    words = lines[0][2:].strip().split(None, 1) if lines[0].startswith("#!") else []
    name = os.path.basename(words[0]) if words else None
    if name == "env" and len(words) > 1:
        words = split_words(words[1][2:]) if words[1].startswith("-S") else words[1:]
        words[:1] = [shutil.which(words[0], path=search_path) or ""] if words else []
    elif name == "sh" and NOTE.rstrip() in lines:
        # written by this program for a venv below this one
        return split_words(lines[-1])[1:-1]
    elif name == "sh":
        words = parse_exec_line(path, lines[1]) if len(lines) > 1 else []
    return [*words, path] if words and INTERPRETER.match(os.path.basename(words[0])) else None


def parse_exec_line(path, line):
    """Return interpreter and options in the workaround of pip and uv for first lines that are too long or relative."""
    found = re.match(r"""'''exec' (.*) "\$0" "\$@"$""", line)
    beside = found and re.search(r"""\$0.*/["']*(python[\d.]*t?)["']*$""", found.group(1))
    if beside:
        return [os.path.join(os.path.dirname(os.path.realpath(path)), beside.group(1))]
    return split_words(found.group(1)) if found else []


def split_words(text):
    """Return the words of a string, split like a shell does; none if that fails (then it fails in a shell too)."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def read_lines(package, name):
    """Return the lines of a file in a package's metadata; none if it doesn't exist or isn't text."""
    try:
        return (package.read_text(name) or "").splitlines()
    except ValueError:
        return []


def find_entry_points():
    """
    Return the entry points of the packages: module and function, by the name of the program.

    Parses the text, because Python's own parser fails in various ways for broken files.
    """
    found = {}
    for package in find_packages():
        section = None
        for line in read_lines(package, "entry_points.txt"):
            header = re.match(r"\s*\[(.*)\]\s*$", line)
            section = header.group(1) if header else section
            point = re.match(r"\s*([^\s/#;]+)\s*=\s*([\w.]+)\s*:\s*([\w.]+)", line)
            if point and section in ("console_scripts", "gui_scripts"):
                found.setdefault(point.group(1), point.groups()[1:])
    return found


def find_scripts():
    """Return the files in the directories of programs, and the programs that packages list, by name (dict of str)."""
    found = {}
    for folder in find_program_directories():
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            found.setdefault(name, os.path.join(folder, name))
    for package in find_packages():
        for line in read_lines(package, "RECORD"):
            path = re.match(r'"?(\.\./[^",]*/bin/[^/",]+)', line)
            if path:
                place = os.path.normpath(str(package.locate_file(path.group(1))))
                found.setdefault(os.path.basename(place), place)
    return found


def make_programs():
    """Return the text of each program to write, by name (dict of str)."""
    search_path = os.pathsep.join(path for path in os.environ.get("PATH", "").split(os.pathsep)
                                  if os.path.realpath(path) != os.path.realpath(BIN))
    points, files = find_entry_points(), find_scripts()
    texts = {}
    for name in set(points) | set(files):
        if RESERVED.match(name) or os.path.lexists(os.path.join(BIN, name)):
            continue
        # look at the program that this name runs now
        path = shutil.which(name, path=search_path) or files.get(name)
        if path:
            if not os.path.isfile(path) or not os.access(path, os.X_OK):
                continue
            command = parse_program(path, search_path)
            if not command or not is_ours(command[0]):
                continue
        texts[name] = entry_point_program(*points[name]) if name in points else script_program(command[1:])
    return texts


def entry_point_program(module, function):
    """Return the program that pip would write."""
    first = "#!" + PYTHON
    if len(os.fsencode(first)) >= LONGEST or re.search(r"\s", PYTHON):
        first = "#!/bin/sh\n'''exec' %s \"$0\" \"$@\"\n' '''" % shlex.quote(PYTHON)
    return "%s\n%simport sys\nfrom %s import %s\nif __name__ == '__main__':\n    sys.exit(%s())\n" % (
        first, NOTE, module, function.split(".")[0], function)


def script_program(arguments):
    """Return a program that runs a script with its own options, but with the Python of the venv."""
    return '#!/bin/sh\n%sexec %s "$@"\n' % (NOTE, " ".join(shlex.quote(word) for word in [PYTHON, *arguments]))


def main():
    """Write the programs."""
    for name, text in sorted(make_programs().items()):
        path = os.path.join(BIN, name)
        new = "%s.%d" % (path, os.getpid())
        with open(new, "wb") as program:
            program.write(os.fsencode(text))
        os.chmod(new, 0o755)
        os.replace(new, path)
        print(name)


main()
