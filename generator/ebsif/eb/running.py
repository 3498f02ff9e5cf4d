"""Install with eb: show the steps, which are read from its output, and return how it ended."""

import contextlib
import glob
import queue
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Union

from easybuild.easyblocks.generic.container.texts import format_size

from ebsif.eb import framework
from ebsif.report import output
from ebsif.report.steps import Now, Steps

# Steps of EasyBuild under names that say what they mean for a container; all others keep their name, and are mentioned
# only if they take a second.
NAMES = {
    "creating build dir, resetting environment": "preparing",
    "fetching files and verifying checksums": "finding the image",
    "preparing": "inspecting the image",
    "testing": "importing packages",
    "sanity checking": "trying the module",
    "creating module": "writing the module",
}
IMPORTANT = ("sanity checking", "creating module")

# Messages of EasyBuild that say nothing about this installation.
NOISE = re.compile(r"$|== (?:Temporary |processing EasyBuild|building and installing |COMPLETED|FAILED|Build succeeded|"
                   r"Summary|\.\.\. \(took )|   \* \[|.* \[skipped\]$")
LOG = re.compile(r"== Results of the build can be found in the log file\(s\) (.*)")
STEP = re.compile(r"== (.*)\.\.\.$")
TRACE = "  >> "
# how warnings of what is installed begin
WARNINGS = ("WARNING: stage '", "WARNING: Test failure ignored")

UNITS = {"bytes": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
# what pip prints
PIP = re.compile(r" *(Collecting|Downloading|Building wheel for|Installing collected packages:) (\S+)"
                 r"(?: \((\d+(?:\.\d+)?) (\w+)\)$)?(.*)")


@dataclass
class Result:
    """
    How eb ended.

    Attributes
    ----------
    status
        Its exit status.
    error
        Its message; empty if it succeeded.
    program
        The end of the output of a program that failed.
    log
        The path of its log file, if it says so.
    skipped
        Whether there was nothing to do.
    warned
        Whether there were warnings of what is installed.
    """

    status: int = 0
    error: str = ""
    program: list[str] = field(default_factory=list)
    log: Optional[str] = None
    skipped: bool = False
    warned: bool = False

    @property
    def message(self) -> str:
        """What to tell the user: the reason, and where the log is."""
        return (self.reason or f"eb failed with exit status {self.status}") + (
            f"\nThe log is {self.log}" if self.log else "")

    def print_program(self) -> None:
        """Print the end of the output of a program that failed, which the message refers to, to standard error."""
        for line in self.program:
            print(f"  {output.escape(line)}".rstrip(), file=sys.stderr)

    @property
    def reason(self) -> str:
        """The message without the name of the easyconfig and of EasyBuild's step."""
        text = re.sub(r"^Installation of \S+ failed: ", "", self.error).strip("'\"")
        return re.sub(r"^An error was raised during test step: ", "", text).strip("'\"")


def install(arguments: Sequence[Union[str, Path]], **variables: str) -> Result:
    """
    Run eb and show its steps; with --verbose, show its output instead.

    Parameters
    ----------
    arguments
        Arguments of eb, with full paths; those of the user last.
    variables
        Additional environment variables.

    Raises
    ------
    framework.EasyBuildFailure
        If eb is not found.
    """
    # in its own lines, as they come, with details; options of the user come later and win
    options = ["--output-style=basic", "--trace"]
    arguments = [*options, *framework.finding_easyblocks(), *arguments]
    with framework.started(arguments, {"PYTHONUNBUFFERED": "1", **variables}) as process, \
            Steps(not output.is_verbose()) as steps:
        steps.begin("starting eb", important=False)
        said = Said(steps)
        lines = queue.SimpleQueue()
        for arguments in ((process.stdout, said.output, sys.stdout), (process.stderr, said.errors, sys.stderr)):
            threading.Thread(target=pass_on, args=(*arguments, lines), daemon=True).start()
        try:
            for read, echo, line in follow(lines, process):
                if output.is_verbose():
                    print(line, file=echo, flush=True)
                read(line)
        except KeyboardInterrupt:
            steps.say("eb is interrupted and cleans up ...")
            raise
        said.result.status = process.wait()
        if said.result.status:
            steps.detail("failed")
    said.result.error = "\n".join(said.error).strip()
    return said.result


def pass_on(stream, read, echo, lines):
    """
    Put each line of a stream into a queue, with the function that reads it and where to print it; None at its end.

    It only reads, so that eb never waits for this program, even if nobody reads what this program prints.
    """
    for line in stream:
        lines.put((read, echo, line.rstrip("\n")))
    lines.put(None)


def follow(lines, process):
    """Yield what is in a queue until both streams have ended; a program that eb left behind may keep them open."""
    ended = 0
    while ended < 2:
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


class Said:
    """
    What eb says, line by line.

    Parameters
    ----------
    steps
        Shows the steps.
    """

    def __init__(self, steps: Steps):
        """Start before the first line."""
        self.steps = steps
        self.result = Result()
        self.error = []
        self.folder = None
        self.is_trace = self.is_warning = False

    def output(self, line: str) -> None:
        """Read a line of standard output: steps, with what happens in them; other messages are shown as they are."""
        log, step = LOG.match(line), STEP.match(line)
        if line.startswith(TRACE):
            self.is_trace = True
            self.trace(line[len(TRACE):])
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
                self.steps.begin(NAMES.get(name, name), name in IMPORTANT)
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

    def trace(self, text):
        """Read a message about the current step."""
        for pattern, read in self.MESSAGES:
            found = re.match(pattern, text)
            if found:
                read(self, *found.groups())
                return

    def stage(self, name):
        """Begin a stage of pip, which writes a log in the build directory."""
        self.steps.begin(f"pip: {name}", watch=PipLog(self.folder, name).now if self.folder else None)

    def copy(self, source, target):
        """Begin to copy the image."""
        self.steps.begin("copying the image", watch=lambda: copied(source, target))
        # a name may read like the rest of the message
        with contextlib.suppress(OSError):
            self.steps.detail(format_size(Path(source).stat().st_size))

    def shared(self):
        """Mention an image that is not copied."""
        self.steps.begin("image")
        self.steps.detail("not copied")

    def pack(self, target):
        """Begin to pack user software."""
        self.steps.begin("packing user software", watch=lambda: packed(target))

    # messages of the easyblocks (and the first one of EasyBuild)
    MESSAGES = (
        (r"build dir: (/.*)", lambda self, folder: setattr(self, "folder", Path(folder))),
        (r"creating the venv", lambda self: self.steps.begin("virtual environment")),
        (r"the venv (sees) all (\d+ packages) of the image", lambda self, *words: self.steps.detail(" ".join(words))),
        (r"packages of .* that stay as they are: (.*)", lambda self, number: self.steps.detail(f"{number} taken over")),
        (r"stage '(.*)'$", stage),
        (r"(\d+ packages? added)$", lambda self, text: self.steps.detail(text)),
        (r"copying (/.*) to (/.*) \(", copy),
        (r"copied at (.*)", lambda self, rate: self.steps.detail(rate)),
        (r"the image is not copied: ", shared),
        (r"computing the SHA256 of", lambda self: self.steps.begin("SHA256 of the image")),
        (r"compiling bytecode", lambda self: self.steps.begin("compiling Python files", important=False)),
        (r"packing user software into (/.*)", pack),
        (r"user software is (.*) in one file", lambda self, size: self.steps.detail(size)),
    )


def copied(source, target):
    """Return how much of the image is copied (Now)."""
    partial = Path(f"{target}.partial")
    total, done = Path(source).stat().st_size, partial.stat().st_size if partial.exists() else 0
    return Now(f"{format_size(done)} of {format_size(total)}", done, total)


def packed(target):
    """Return how large the packed file is so far (Now)."""
    sizes = [path.stat().st_size for path in Path(target).parent.glob(".make-squashfs.*/new")]
    return Now(f"{format_size(sum(sizes))} so far" if sizes else "")


class PipLog:
    """
    What pip is doing in a stage, from what it prints.

    Parameters
    ----------
    folder
        The build directory.
    stage
        Name of the stage.
    """

    def __init__(self, folder: Path, stage: str):
        """Begin at the start of the log."""
        self.path = folder / "stages" / re.sub(r"[^A-Za-z0-9_.-]", "_", stage) / "pip.log"
        self.temporary = folder / "tmp"
        self.position, self.rest = 0, b""
        self.text, self.file, self.size, self.found = "", None, 0, 0

    def now(self) -> Now:
        """Return what pip does at the moment."""
        with contextlib.suppress(OSError), self.path.open("rb") as log:
            log.seek(self.position)
            new = log.read()
            self.position += len(new)
            *lines, self.rest = (self.rest + new).split(b"\n")
            for line in lines:
                self.read(line.decode(errors="replace"))
        # where pip downloads it to
        files = self.temporary.glob(f"pip-*/{glob.escape(self.file)}") if self.size else []
        sizes = [path.stat().st_size for path in files]
        return Now(self.text, sum(sizes), self.size) if sizes else Now(self.text)

    def read(self, line):
        """Read a line of the log."""
        found = PIP.match(line)
        if not found:
            return
        what, name, number, unit, rest = found.groups()
        self.file, self.size = None, 0
        if what == "Collecting":
            self.found += 1
            self.text = f"package {self.found}: {name}"
        elif what == "Downloading":
            self.file, self.size = name.rpartition("/")[2], int(float(number or 0) * UNITS.get(unit, 0))
            self.text = f"{format_size(self.size)} {self.file.partition('-')[0]}" if self.size else self.file
        elif what.startswith("Building"):
            self.text = f"building {name}"
        else:
            self.text = f"installing {output.format_count(rest.count(',') + name.count(',') + 1, 'package')}"
