"""Shared code of the tests: a site with real programs in a temporary directory, and tiny wheels."""

import base64
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

from eb_command import run_eb
from ebsif_command import run_ebsif

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHECKOUT = Path(__file__).resolve().parent.parent
EASYBLOCKS = CHECKOUT / "easyblocks"
CONTAINER_FILES = EASYBLOCKS / "generic/container/files"


def printed(command, **options):
    """Return what a command prints that succeeds (str); options are those of subprocess.run."""
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def attempt(command, **options):
    """Run a command that may fail; return its CompletedProcess, with text. Options are those of subprocess.run."""
    source = {} if "input" in options else {"stdin": subprocess.DEVNULL}
    return subprocess.run(command, capture_output=True, text=True, check=False, **source, **options)


def until(condition, seconds=300, said=str):
    """Wait until a condition is true; return what it returns. `said` is a function that tells why it may never be."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, said()
        time.sleep(0.05)
    return found


def started(command, **options):
    """Start a program; return its Popen, whose output and errors are one text."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def in_background(command, output, **options):
    """Start a program in a session of its own, which reads nothing and writes to a file; return its Popen."""
    ends = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
    return subprocess.Popen(command, start_new_session=True, **ends, **options)


def write_program(path, text):
    """Write a program (Path) and the directory above it; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def tracked(*patterns):
    """Return the files of the project that match a pattern, including those not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    output = printed(command, cwd=CHECKOUT)
    return [CHECKOUT / name for name in output.split("\0") if name and (CHECKOUT / name).is_file()]


def project():
    """Return the metadata of the project, the table in pyproject.toml (dict)."""
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]


def blocks(name, language="bash"):
    """Return the blocks of code in a document, in order, without those that are marked as not run."""
    pattern = rf"^(<!-- not run: [^>]*-->\n)?```{language}\n(.*?)^```"
    found = re.findall(pattern, (CHECKOUT / name).read_text(), re.MULTILINE | re.DOTALL)
    return [text for mark, text in found if not mark]


def examples(number):
    """Return the number of examples to try for a property; fewer in `make check`, which should be quick."""
    return min(number, int(os.environ.get("EBSIF_TEST_EXAMPLES", number)))


# a build backend that needs two packages: one of an earlier stage, and packaging, which the image has
BACKEND = """
import zipfile
import packaging
import {needs}

def build_wheel(folder, *_):
    name = "{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("{name}.py", "built_with = {needs!r}")
        wheel.writestr("{name}-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        wheel.writestr("{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n")
        wheel.writestr("{name}-1.0.dist-info/RECORD", "")
    return name
"""


@dataclasses.dataclass(frozen=True)
class ModulesTool:
    """A modules tool and the syntax of its module files."""

    name: str  # EasyBuild's name for it
    syntax: str
    environment: tuple  # ((variable, value), ...) for the location of the tool
    init: str  # bash code that defines `module`

    def __str__(self):
        return f"{self.name}-{self.syntax}"


def record_of(root):
    """Return the record of an installation, from its directory (Path)."""
    return json.loads((root / "share/ebsif/lock.json").read_text())


class Site:
    """A place to install modules with eb and use them from bash, without the caller's environment."""

    def __init__(self, prefix, tool, venv):
        self.prefix = Path(prefix)
        self.tool = tool
        self.venv = Path(venv)
        self.home = self.prefix / "home"
        self.sources = self.prefix / "sources"
        self.work = self.prefix / "work"
        self.temporary = self.prefix / "tmp"
        for path in (self.home, self.sources, self.work, self.temporary):
            path.mkdir(parents=True, exist_ok=True)
        self.temporary.chmod(0o1777)

    @property
    def modules(self):
        """The directory with the module files."""
        return self.prefix / "eb" / "modules" / "all"

    def root(self, module="Example/1.0"):
        """Return the installation directory of a module, which need not exist."""
        return self.prefix / "eb/software" / module

    def record(self, module="Example/1.0"):
        """Return the record of an installed module."""
        return record_of(self.root(module))

    @property
    def environment(self):
        """The environment of every command: variables that tests need from the caller, and locations of programs."""
        kept = ("PATH", "LANG", "SSL_", "PIP_", "http_proxy", "https_proxy", "no_proxy")
        environment = {key: value for key, value in os.environ.items() if key.startswith(kept)}
        # without duplicates, which Lmod would remove, because tests compare before and after
        environment["PATH"] = ":".join(dict.fromkeys([f"{self.venv}/bin", *environment["PATH"].split(":")]))
        environment.update(self.tool.environment)
        environment["HOME"] = str(self.home)
        environment["LC_ALL"] = "C.UTF-8"
        # eb keeps the logs of failures there
        environment["TMPDIR"] = str(self.temporary)
        # else caches would be below /tmp; root keeps none in directories of the account
        environment["EBSIF_NODE_LOCAL"] = str(self.temporary) if os.geteuid() else ""
        return environment

    def run(self, command, check=True, cwd=None, timeout=900, **environment):
        """Run a command (a list); return the CompletedProcess with its output as text."""
        variables = {**self.environment, **{key: str(value) for key, value in environment.items()}}
        if command[0] == "ebsif" and self.can_fork(environment):
            result = run_ebsif(command[1:], cwd or self.work, variables)
        else:
            result = attempt([str(word) for word in command], cwd=cwd or self.work, timeout=timeout, env=variables)
        if check and result.returncode:
            raise AssertionError(f"{command} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
        return result

    def can_fork(self, environment):
        """Return whether a Python that has started can run a command with these variables as a new one would."""
        return str(self.venv) == sys.prefix and not any(name.startswith(("PYTHON", "EB_")) for name in environment)

    @property
    def eb_options(self):
        """The options that make eb install only in this site."""
        options = [
            f"--prefix={self.prefix}/eb",
            f"--sourcepath={self.sources}",
            f"--modules-tool={self.tool.name}",
            f"--module-syntax={self.tool.syntax}",
            "--disable-rpath",
            "--output-style=basic",
        ]
        if os.getuid() == 0:
            options.append("--allow-use-as-root-and-accept-consequences")
        return options

    def eb(self, *arguments, check=True, one_stream=False, **environment):
        """Run eb with this site's prefix and modules tool, with all output in one stream if asked; see `run`."""
        command = [*self.eb_options, *arguments]
        if not self.can_fork(environment):
            stream = ["sh", "-c", 'exec "$@" 2>&1', "sh"] if one_stream else []
            return self.run([*stream, "eb", *command], check, timeout=1700, PYTHONUNBUFFERED=1, **environment)
        result = run_eb(command, self.work, {**self.environment, **environment}, one_stream)
        if check and result.returncode:
            raise AssertionError(f"eb {command} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
        return result

    def eb_each(self, texts, *options, **environment):
        """
        Install several easyconfigs (text by name) with one eb, which continues after failures.

        Return by name a CompletedProcess: 0 or 1, and as stdout what eb printed for this one, errors included.
        """
        names = {str(self.easyconfig(text).rename(self.prefix / f"{name}.eb")): name for name, text in texts.items()}
        output = self.eb("--keep-going", *names, *options, check=False, one_stream=True, **environment).stdout
        results = {}
        for part in output.split("== processing EasyBuild easyconfig ")[1:]:
            path, said = part.split("\n", 1)
            success = "== COMPLETED: Installation ended successfully" in said
            results[names[path]] = subprocess.CompletedProcess(path, 0 if success else 1, said, "")
        assert list(results) == list(texts), output
        return results

    def bash(self, script, check=True, cwd=None, **environment):
        """Run a bash script with `module` and the modules of this site."""
        # `module use` would take half as long as loading a module
        prelude = f"{self.tool.init}\nexport MODULEPATH='{self.modules}'${{MODULEPATH:+:$MODULEPATH}}\n"
        return self.run(["bash", "--noprofile", "--norc", "-c", prelude + script], check, cwd, **environment)

    def easyconfig(self, text, name="Example", version="1.0", suffix=""):
        """Write an easyconfig with this text below name and version; return its path."""
        path = self.prefix / f"{name}-{version}{suffix}.eb"
        # EasyBuild uses the first one that it finds
        easyblock = "" if text.startswith("easyblock = ") else "easyblock = 'ContainerVenv'\n"
        path.write_text(
            f"{easyblock}name = {name!r}\nversion = {version!r}\nversionsuffix = {suffix!r}\n"
            "homepage = 'https://example.org'\ndescription = 'A container of the tests.'\ntoolchain = SYSTEM\n"
            f"{text}\nmoduleclass = 'ai'\n"
        )
        return path


def installed_packages(python_path, before="", options=()):
    """Return what installed-packages.py prints about packages in directories (str), after some code of a test."""
    program = (CONTAINER_FILES / "share/ebsif/installed-packages.py").read_text()
    return printed([sys.executable, *options, "-"], input=before + program, env={"PYTHONPATH": str(python_path)})


def words_of_scripts():
    """Return the words in the shell scripts of installations that may be names of variables, without our prefix."""
    words = set()
    for folder in ("bin", "interpreter", "runscripts", "share/ebsif"):
        for path in (CONTAINER_FILES / folder).rglob("*"):
            if path.is_file() and path.suffix in ("", ".sh", ".bash"):
                code = re.sub(r"^\s*#.*", "", path.read_text(), flags=re.MULTILINE)
                words |= set(re.findall(r"(?<![\w-])(?!ebsif_)[a-z][a-z0-9_]*\b", code))
    return sorted(words)


def processes_with(setting):
    """Return the command lines (list of bytes) of processes whose environment has a setting, NAME=VALUE."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        # it may have ended, or belong to others
        with contextlib.suppress(OSError):
            if f"{setting}\0".encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_bytes())
    return found


def heed_signals():
    """
    Let a program heed the signals that a test sends it: for Popen's `preexec_fn`.

    The tests may have been started with some ignored, by a shell in the background or nohup. Programs inherit that, and
    bash can't trap them then.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def add_package(folder, name, version="1.0", files=None, needs=(), **more):
    """Add an installed package, as pip does, with files (text by path) and more metadata (text by name of a file)."""
    info = Path(folder) / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {need}" for need in needs), ""]))
    if files:
        more = {"RECORD": "".join(f"{path},sha256=x,1\n" for path in files), **more}
    for path, text in {**{info / name: text for name, text in more.items()}, **(files or {})}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def make_wheel(folder, name, version="1.0", requires=(), module_text="", scripts=None, more=None):
    """Write a wheel with a module, programs (function by name) and more files (text by name); return its path."""
    path = Path(folder) / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {requirement}\n" for requirement in requires]
    files = {
        f"{name}.py": module_text or f"__version__ = {version!r}\n",
        f"{info}/METADATA": "".join(metadata),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files.update(more or {})
    if scripts:
        lines = [f"{script} = {function}\n" for script, function in scripts.items()]
        files[f"{info}/entry_points.txt"] = "".join(["[console_scripts]\n", *lines])
    record = [f"{file},sha256={wheel_digest(text)},{len(text.encode())}\n" for file, text in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"])
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return path


def project_files(name, needs):
    """Return the files of a source distribution that imports `needs` while it's built."""
    return {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(name=name, needs=needs),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }


def make_sdist(folder, name, needs):
    """Write such a source distribution to a folder."""
    make_archive(Path(folder) / f"{name}-1.0.tar.gz", f"{name}-1.0", project_files(name, needs))


def make_native_sdist(folder, name, compiler):
    """Write a source distribution that starts a compiler while it's built."""
    backend = (
        BACKEND.format(name=name, needs="subprocess")
        .replace("import packaging\n", "")
        .replace("def build_wheel(folder, *_):", f"def build_wheel(folder, *_):\n    subprocess.run([{compiler!r}])")
    )
    make_archive(
        Path(folder) / f"{name}-1.0.tar.gz", f"{name}-1.0", {**project_files(name, "subprocess"), "backend.py": backend}
    )


def make_archive(path, top, files):
    """Write texts by file name to an archive, below one directory."""
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{top}/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


# what a terminal gets besides text: colors, and movements of the cursor
SEQUENCE = r"\x1b\[[?;\d]*\w"


def at_terminal(command, environment, folder, lines):
    """Run a command at a terminal and type each line at a prompt; return its exit status, and all that was shown."""
    status, output = with_terminal([command], environment, folder, lines)
    return status, re.sub(SEQUENCE, "", output)


def with_terminal(words, environment, folder, lines=()):
    """Do the same with a command and its arguments; the output has the escape sequences, too."""
    lines = list(lines)
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        words, env=environment, cwd=folder, stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True
    )
    os.close(other_end)
    output = b""
    try:
        while True:
            output += os.read(terminal, 4096)
            if lines and re.sub(SEQUENCE.encode(), b"", output).endswith((b"> ", b"$ ", b"# ", b"(Pdb) ")):
                os.write(terminal, lines.pop(0).encode() + b"\n")
    except OSError:  # the program has closed its end
        return process.wait(timeout=300), output.decode()


def description(packages=(), **values):
    """Return what installed-packages.py prints about a Python with these packages, as a dictionary."""
    texts = dict.fromkeys(("executable", "prefix", "base_prefix", "purelib"), "")
    return {
        "version": "3.11.2",
        "environment": {"PYTHONPATH": ""},
        "missing": [],
        "compiled": [],
        "needs": [],
        **texts,
        "packages": list(packages),
        **values,
    }


def wheel_digest(text):
    """Return the digest of a text in the format of RECORD files in wheels."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
