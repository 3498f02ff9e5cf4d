"""Run by the Python of a venv: let the Python programs of what is beneath it, image or venv, run with this Python.

The first line of a program names its interpreter: torchrun of the image runs the image's Python, which does not see the
packages of the venv, and so do the processes it starts. This puts a program of the same name into the venv's bin, which
comes before the image's on PATH: for each entry point of the packages that this Python sees what pip would write, for
each Python script in a directory of programs one that starts that very file. Prints the names.

Left alone: what the venv has itself, what is no Python program, and what is for another Python (Conda's `conda`).

Usage: python - , with PATH as it is before the venv is activated. The same bytes for the same image.
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
# of a venv itself, whether this one has them or not
RESERVED = re.compile(r"(python|pip)[\d.]*t?(-config)?$|(de)?activate(\.\w+)?$", re.IGNORECASE)
INTERPRETER = re.compile(r"python[\d.]*t?$")
# what the kernel reads of a first line (older ones); pip has the same limit and the same way out
LONGEST = 127
NOTE = "# a program of the image, run by the Python of this environment (ebsif)\n"


# --- what is beneath the venv


def environments():
    """Return the other venvs whose packages this Python sees (their directories, links resolved)."""
    # PREFIX/lib/pythonX.Y/site-packages
    prefixes = [os.path.realpath(os.path.join(path, "..", "..", "..")) for path in sys.path if path]
    return [prefix for prefix in dict.fromkeys(prefixes)
            if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) and prefix != os.path.realpath(sys.prefix)]


def is_isolated(prefix):
    """Tell whether a venv does not see the packages of the Python that it was made from."""
    with open(os.path.join(prefix, "pyvenv.cfg")) as lines:
        return not re.search(r"^include-system-site-packages\s*=\s*true", lines.read(), re.MULTILINE | re.IGNORECASE)


def is_ours(interpreter):
    """Tell whether an interpreter is the one beneath the venv, or that of a venv beneath it."""
    prefix = os.path.dirname(os.path.dirname(interpreter))
    if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        return os.path.realpath(prefix) in environments()
    # not the same inode: Conda's environments have hard links to one file
    return os.path.realpath(interpreter) == os.path.realpath(sys.executable) and \
        not any(is_isolated(path) for path in environments())


def folders():
    """Return the directories where pip puts programs: of the Python beneath the venv, and of the venvs beneath it."""
    code = "import sysconfig; print(sysconfig.get_path('scripts'))"
    base = subprocess.run([os.path.realpath(sys.executable), "-c", code], stdout=subprocess.PIPE, check=True)
    return [os.path.join(prefix, "bin") for prefix in environments()] + [os.fsdecode(base.stdout).rstrip("\n")]


def packages():
    """Yield the packages this Python sees that are not in the venv, nor hidden by another one."""
    seen = set()
    own = os.path.realpath(sys.prefix) + os.sep
    for package in distributions():
        try:
            name = package.metadata["Name"]
        except Exception:  # without metadata, from Python 3.14 on; or a file that is no text
            name = None
        name = name and re.sub(r"[-_.]+", "-", name).lower()
        if name and name not in seen:
            seen.add(name)
            if not os.path.realpath(str(package.locate_file(""))).startswith(own):
                yield package


# --- the programs


def command_of(path, search_path):
    """Return what a Python program starts: interpreter, options, script; None if it's another program."""
    try:
        with open(path, "rb") as program:
            lines = [os.fsdecode(line) for line in program.read(8192).split(b"\n")[:3]]
    except OSError:
        return None
    # interpreter and one argument, as the kernel takes them
    words = lines[0][2:].strip().split(None, 1) if lines[0].startswith("#!") else []
    name = os.path.basename(words[0]) if words else None
    if name == "env" and len(words) > 1:
        words = words_of(words[1][2:]) if words[1].startswith("-S") else words[1:]
        words[:1] = [shutil.which(words[0], path=search_path) or ""] if words else []
    elif name == "sh" and NOTE.rstrip() in lines:
        # of a venv beneath this one
        return words_of(lines[-1])[1:-1]
    elif name == "sh":
        words = command_of_long(path, lines[1]) if len(lines) > 1 else []
    return [*words, path] if words and INTERPRETER.match(os.path.basename(words[0])) else None


def command_of_long(path, line):
    """Return interpreter and options of a program by pip or uv whose first line would be too long, or has no path."""
    found = re.match(r"""'''exec' (.*) "\$0" "\$@"$""", line)
    beside = found and re.search(r"""\$0.*/["']*(python[\d.]*t?)["']*$""", found.group(1))
    if beside:
        return [os.path.join(os.path.dirname(os.path.realpath(path)), beside.group(1))]
    return words_of(found.group(1)) if found else []


def words_of(text):
    """Return the words of a text as a shell splits it; none if a shell can't read it either."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def lines_of(package, name):
    """Return the lines of a file of a package's metadata; none if it's not there, or is no text."""
    try:
        return (package.read_text(name) or "").splitlines()
    except ValueError:
        return []


def entry_points():
    """
    Return what the packages say that their programs do: module and function, by the name of the program.

    From the text: Python's own reader ends with one error or another for a package whose file is broken.
    """
    found = {}
    for package in packages():
        section = None
        for line in lines_of(package, "entry_points.txt"):
            header = re.match(r"\s*\[(.*)\]\s*$", line)
            section = header.group(1) if header else section
            point = re.match(r"\s*([^\s/#;]+)\s*=\s*([\w.]+)\s*:\s*([\w.]+)", line)
            if point and section in ("console_scripts", "gui_scripts"):
                found.setdefault(point.group(1), point.groups()[1:])
    return found


def scripts():
    """Return the files in the directories of programs, and those there or elsewhere that packages name, by name."""
    found = {}
    for folder in folders():
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            found.setdefault(name, os.path.join(folder, name))
    for package in packages():
        for line in lines_of(package, "RECORD"):
            path = re.match(r'"?(\.\./[^",]*/bin/[^/",]+)', line)
            if path:
                place = os.path.normpath(str(package.locate_file(path.group(1))))
                found.setdefault(os.path.basename(place), place)
    return found


def counterparts():
    """Return what to write, by the name of the program (dict of str)."""
    search_path = os.pathsep.join(path for path in os.environ.get("PATH", "").split(os.pathsep)
                                  if os.path.realpath(path) != os.path.realpath(BIN))
    points, files = entry_points(), scripts()
    texts = {}
    for name in set(points) | set(files):
        if RESERVED.match(name) or os.path.lexists(os.path.join(BIN, name)):
            continue
        # what this name runs today decides
        path = shutil.which(name, path=search_path) or files.get(name)
        if path:
            if not os.path.isfile(path) or not os.access(path, os.X_OK):
                continue
            command = command_of(path, search_path)
            if not command or not is_ours(command[0]):
                continue
        texts[name] = of_entry_point(*points[name]) if name in points else of_script(command[1:])
    return texts


def of_entry_point(module, function):
    """Return the program that pip would write."""
    first = "#!" + PYTHON
    if len(os.fsencode(first)) >= LONGEST or re.search(r"\s", PYTHON):
        first = "#!/bin/sh\n'''exec' %s \"$0\" \"$@\"\n' '''" % shlex.quote(PYTHON)
    return "%s\n%simport sys\nfrom %s import %s\nif __name__ == '__main__':\n    sys.exit(%s())\n" % (
        first, NOTE, module, function.split(".")[0], function)


def of_script(arguments):
    """Return a program that starts a script with the options it has, but with the Python of the venv."""
    return '#!/bin/sh\n%sexec %s "$@"\n' % (NOTE, " ".join(shlex.quote(word) for word in [PYTHON, *arguments]))


def main():
    """Write the programs."""
    for name, text in sorted(counterparts().items()):
        path = os.path.join(BIN, name)
        new = "%s.%d" % (path, os.getpid())
        with open(new, "wb") as program:
            program.write(os.fsencode(text))
        os.chmod(new, 0o755)
        os.replace(new, path)
        print(name)


main()
