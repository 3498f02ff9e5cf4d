"""Run eb as a program in a clean environment; show the steps of an installation, which are read from its output."""

import contextlib
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Optional, Union

from easybuild.easyblocks.generic.container import messages
from easybuild.easyblocks.generic.container.messages import values_in
from easybuild.easyblocks.generic.container.values import plain_error

from ebsif import modulestool, processes
from ebsif.eb import framework
from ebsif.report import output
from ebsif.report.steps import Now, Steps

# Steps of EasyBuild under names that say what they mean for a container; all others keep their name, and are mentioned
# only if they take a second.
NAMES = {
    "creating build dir, resetting environment": "preparing",
    "fetching files and verifying checksums": "finding the image",
    "preparing": "inspecting the image",
    "building": "installing packages",
    "testing": "importing packages",
    "installing": "installing files",
    "sanity checking": "testing the module",
    "creating module": "writing the module",
}
IMPORTANT = ("sanity checking", "creating module")

# Messages of EasyBuild that say nothing about this installation.
NOISE = re.compile(
    r"$|== (?:Temporary |processing EasyBuild|building and installing |COMPLETED|FAILED|Build succeeded|"
    r"Summary|\.\.\. \(took )|   \* \[|.* \[skipped\]$"
)
LOG = re.compile(r"== Results of the build can be found in the log file\(s\) (.*)")
STEP = re.compile(r"== (.*)\.\.\.$")
TRACE = "  >> "
# messages of the easyblocks that stay on the line of a step
RESULTS = {
    messages.NOT_ISOLATED: "{0} built without isolation",
    messages.STAYING: "{1} taken over",
    messages.NOT_COPIED: "image not copied",
    messages.IN_ONE_FILE: "{0} packed",
}
# EasyBuild colors the report of a failed command even in a file
COLOR = re.compile(r"\x1b\[[0-9;]*m")
# Without the same quotation mark inside, unless it is escaped.
QUOTED = re.compile(r"""(['"])((?:(?!\1)[^\\]|\\.)*)\1""", re.DOTALL)
# Our easyblocks.
EASYBLOCKS = ("containerinstall", "containervenv")
# how warnings of what is installed begin
WARNINGS = ("WARNING: stage '", "WARNING: Test failure ignored")


@dataclass
class Result:
    """How eb ended: its status, its message, the end of the output of a program that failed, the path of its log."""

    status: int = 0
    error: str = ""
    program: list[str] = field(default_factory=list)
    log: Optional[str] = None
    skipped: bool = False  # there was nothing to do
    warned: bool = False  # there were warnings of what is installed
    imported: int = 0  # number of packages that were imported

    @property
    def message(self) -> str:
        """What to tell the user: the reason, and where the log is."""
        ended = f"eb failed with exit status {self.status}"
        if self.status < 0:
            why = ", often because memory ran out" if self.status == -signal.SIGKILL else ""
            ended = f"eb was ended by signal {-self.status}{why}"
        return (self.reason or ended) + (f"\nThe log is {self.log}" if self.log else "")

    def print_program(self) -> None:
        """Print the end of the output of a program that failed, which the message refers to, to standard error."""
        for line in [] if self.crash else self.program:
            print(f"  {output.escape(COLOR.sub('', line))}".rstrip(), file=sys.stderr)

    @property
    def reason(self) -> str:
        """The message without the name of the easyconfig and of EasyBuild's step."""
        text = unquoted(re.sub(r"^Installation of \S+ failed: ", "", self.error))
        return unquoted(re.sub(r"^An error was raised during test step: ", "", text)) or self.crash

    @property
    def is_explained(self) -> bool:
        """Whether the message says why a program has failed, so that nobody needs its output."""
        return bool(values_in(self.reason, messages.PIP_FAILED)) and not self.reason.endswith(messages.SEE_OUTPUT)

    @property
    def crash(self) -> str:
        """The error with which eb itself ended, without its traceback; empty if it has reported one."""
        if self.error or "Traceback (most recent call last):" not in self.program:
            return ""
        last = next(line for line in reversed(self.program) if line.strip())
        return f"eb crashed: {plain_error(re.sub('^OSError: ', '', last.strip()))}"


def unquoted(text: str) -> str:
    """Return the message of an error, which EasyBuild may have quoted as a whole; it may end in a quoted word."""
    quoted = QUOTED.fullmatch(text.strip())
    return quoted[2] if quoted else text.strip()


def install(arguments: Sequence[Union[str, Path]], **variables: str) -> Result:
    """
    Run eb and show its steps; with --verbose, show its output instead, all of it on standard error.

    Arguments need full paths, those of the user last; `variables` are added to the environment. Raise EbError
    if eb is not found.
    """
    # in its own lines, as they come, with details; options of the user come later and win
    arguments = ["--output-style=basic", "--trace", *finding_easyblocks(), *arguments]
    with (
        started(arguments, {"PYTHONUNBUFFERED": "1", **variables}) as process,
        Steps(not output.is_verbose()) as steps,
    ):
        steps.begin("starting eb", important=False)
        reader = OutputReader(steps)
        try:
            for read, line in lines_of(process, reader):
                if output.is_verbose():
                    # standard output is for results
                    print(line, file=sys.stderr, flush=True)
                read(line)
        except KeyboardInterrupt:
            steps.say("eb is interrupted and cleans up ...")
            raise
        reader.result.status = process.wait()
        if reader.result.status:
            steps.detail("failed")
    reader.result.error = "\n".join(reader.error).strip()
    return reader.result


def only_build(folder: Union[str, Path], last: str = "build") -> list[str]:
    """Return the options with which eb builds in a folder up to a step, installs nothing, and writes nowhere else."""
    # --rebuild: eb would skip the easyconfig if its module exists already
    return [
        f"--buildpath={folder}/build",
        f"--installpath={folder}/install",
        f"--repositorypath={folder}/repository",
        f"--stop={last}",
        "--rebuild",
    ]


def lines_of(process: "subprocess.Popen[str]", reader: "OutputReader") -> Iterator[tuple[Callable, str]]:
    """
    Yield each line that eb prints, with the function that reads it, until eb has ended.

    Threads take the lines, so that eb never waits for this program, even if nobody reads what this program prints. A
    program that eb left behind may keep the pipes open.
    """
    lines: queue.SimpleQueue = queue.SimpleQueue()

    def take(stream: IO[str], read: Callable) -> None:
        for line in stream:
            lines.put((read, line.rstrip("\n")))
        lines.put(None)

    streams = ((process.stdout, reader.output), (process.stderr, reader.errors))
    for stream in streams:
        threading.Thread(target=take, args=stream, daemon=True).start()
    ended = 0
    while ended < len(streams):
        try:
            item = lines.get(timeout=1)
        except queue.Empty:
            if process.poll() is not None:
                return
            continue
        if item:
            yield item
        else:
            ended += 1


class OutputReader:
    """Reads what eb prints, line by line: begins the steps that it names, and keeps its error."""

    def __init__(self, steps: Steps) -> None:
        """Start before the first line."""
        self.steps = steps
        self.result = Result()
        self.error: list[str] = []
        self.is_trace = self.is_warning = False
        self.added = 0
        # the last message about the step, when it came, and the build directory
        self.message, self.since = "", 0.0
        self.folder: Optional[Path] = None

    def output(self, line: str) -> None:
        """Read a line of standard output: steps, with what happens in them; other messages are shown as they are."""
        log, step = LOG.match(line), STEP.match(line)
        if line.startswith(TRACE):
            self.is_trace = True
            self.trace(line[len(TRACE) :])
        elif self.is_trace and not line.startswith("== "):
            # more lines of the same, such as a command
            return
        else:
            self.is_trace = False
            if log:
                self.result.log = log.group(1)
            elif NOISE.match(line):
                # the error follows on standard error
                self.is_trace = line.startswith("== FAILED")
            elif step:
                name = step.group(1)
                self.message = ""
                self.steps.begin(NAMES.get(name, name), name in IMPORTANT, self.now)
            else:
                self.result.skipped |= line.endswith("skipping")
                self.steps.say(line.removeprefix("== "))

    def errors(self, line: str) -> None:
        """Read a line of standard error: warnings are shown, errors and the output of failed programs kept."""
        if line.startswith("ERROR: ") or self.error:
            self.error.append(line.removeprefix("ERROR: "))
        elif line.startswith("WARNING: ") or (self.is_warning and line):
            self.is_warning = True
            self.result.warned |= line.startswith(WARNINGS)
            self.steps.say(line)
        elif self.is_warning:
            self.is_warning = False
        elif line:
            self.result.program.append(line.removeprefix("  "))

    def trace(self, text: str) -> None:
        """Read a message about the current step."""
        self.message, self.since = text, time.time()
        if text.startswith("build dir: "):
            self.folder = Path(text.removeprefix("build dir: "))
        if imported := values_in(text, messages.IMPORTING):
            self.result.imported = len(imported[0].split(", "))
            self.steps.detail(output.format_count(self.result.imported, "package"))
        added = values_in(text, messages.ADDED)
        # commands of others are shown between the messages
        if added and added[0].isdecimal():
            self.added += int(added[0])
            self.steps.detail(f"{output.format_count(self.added, 'package')} added", "added")
        for message, detail in RESULTS.items():
            if values := values_in(text, message):
                self.steps.detail(detail.format(*values))

    def now(self) -> Now:
        """Return what the current step does: copies the image, or what pip has printed last, or the last message."""
        if copying := values_in(self.message, messages.COPYING):
            path, target, _ = copying
            partial = Path(f"{target}.partial")
            done = partial.stat().st_size if partial.exists() else 0
            return Now("copying the image", done, Path(path).stat().st_size)
        logs = self.folder.glob("stages/*/pip.log") if self.folder else ()
        for log in logs:
            if log.stat().st_mtime > self.since:
                # without where a package is, and what needs it
                return Now(re.sub(r" in /\S*| \(from .*", "", last_line(log)))
        return Now(self.message)


def last_line(path: Path) -> str:
    """Return the last line of a file that is being written."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 4096, 0))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


# --- the program


def command(arguments: Iterable[Union[str, Path]]) -> str:
    """Return how a person runs eb, which refuses to while another module of the same software is loaded."""
    loaded = os.environ.get("EBSIF_LOADED_MODULE")
    words = [*typed(), *finding_easyblocks(has_own=True), *map(str, arguments)]
    return (f"module unload {loaded}; " if loaded else "") + shlex.join(words)


def typed() -> list[str]:
    """Return the words with which a person starts the eb that this command runs."""
    path = beside_python()
    if shutil.which("eb") or not path:
        return ["eb"]
    # eb searches PATH for its Python
    return ["env", f"EB_PYTHON={sys.executable}", path]


def beside_python() -> Optional[str]:
    """Return the path of the eb that is installed with this command, if there is one."""
    return shutil.which("eb", path=Path(sys.executable).parent)


def finding_easyblocks(has_own: bool = False) -> list[str]:
    """
    Return the options with which eb finds our easyblocks, after which it still finds those of the site.

    None are needed if eb is installed with this command; with `has_own`, neither if the site seems to have our
    easyblocks, perhaps of another version. A site's eb has another Python, and may ignore PYTHONPATH.
    """
    path = shutil.which("eb")
    if not path or Path(path).parent == Path(sys.executable).parent:
        return []
    from easybuild.easyblocks import generic
    from easybuild.tools.filetools import expand_glob_paths

    framework.session()
    ours = [
        next(str(file) for folder in generic.__path__ if (file := Path(folder, f"{name}.py")).exists())
        for name in EASYBLOCKS
    ]
    if has_own and (
        any(map(is_ours, expand_glob_paths(framework.INCLUDED)))
        or str(Path(ours[0]).parents[3]) in os.environ.get("PYTHONPATH", "").split(":")
    ):
        return []
    return [f"--include-easyblocks={','.join([*ours, *framework.INCLUDED])}"]


def is_ours(path: str) -> bool:
    """Return whether a file is named as one of our easyblocks."""
    return Path(path).stem in EASYBLOCKS


def run(arguments: Sequence[Union[str, Path]]) -> subprocess.CompletedProcess[str]:
    """Run eb as a person would, for questions that it answers quickly; return exit status and all output."""
    with started(arguments, {}, stderr=subprocess.STDOUT) as process:
        text, _ = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, text)


@contextlib.contextmanager
def started(
    arguments: Sequence[Union[str, Path]], variables: Mapping[str, str], stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """
    Yield a running eb with additional variables, and wait for its end even if it is interrupted: it cleans up.

    It runs in an empty directory, because eb searches the current one, which may be large (S002-52); so arguments need
    full paths. Raise EbError if eb is not found.
    """
    environment = clean_environment()
    command = [program(environment), *map(str, arguments)]
    output.command(command)
    with tempfile.TemporaryDirectory(prefix="ebsif-eb-") as folder, processes.interruptible_once() as admit_signals:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, **framework.TOOL, **variables},
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        try:
            admit_signals()
            yield process
        except SystemExit:
            # a signal to this process alone; eb gets each Ctrl-C itself
            process.terminate()
            raise
        finally:
            process.wait()


def program(environment: Mapping[str, str]) -> str:
    """Return the path of eb: the one on PATH, else the one installed with this command; else raise EbError."""
    path = shutil.which("eb", path=environment.get("PATH")) or beside_python()
    if not path:
        raise framework.EbError("eb is not on PATH: load the site's EasyBuild module, or install easybuild with pip")
    return path


def clean_environment() -> dict[str, str]:
    """
    Return the environment without loaded container modules.

    EasyBuild refuses to install a module that is loaded, and it can't run with their wrapper `python`.
    """
    environment = dict(os.environ)
    loaded = container_modules(environment)
    if loaded:
        environment = unloaded(loaded, environment)
    # the Python that runs EasyBuild; others on PATH may be wrappers of a container
    if Path(program(environment)).parent == Path(sys.executable).parent and not environment.get("EB_INSTALLPYTHON"):
        environment.setdefault("EB_PYTHON", sys.executable)
    return environment


def container_modules(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the loaded container modules, recognized by their module files."""
    names, paths = (environment.get(name, "").split(":") for name in ("LOADEDMODULES", "_LMFILES_"))
    loaded = []
    for name, path in zip(names, paths):
        with contextlib.suppress(OSError):
            if "CONTAINERROOT" in Path(path).read_text(encoding="utf-8", errors="replace"):
                loaded.append(name)
    return loaded


def unloaded(modules: Iterable[str], environment: dict[str, str]) -> dict[str, str]:
    """Return an environment after unloading modules; unchanged if the modules tool can't unload them."""
    if not modulestool.command(environment):
        return environment
    result = modulestool.run("without-modules.bash", *modules, environment=environment)
    entries = modulestool.entries(result.stdout)
    return entries if result.returncode == 0 and entries else environment
