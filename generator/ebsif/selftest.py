"""
Try on this machine what people do with modules: install, load, pack, extend, run jobs, unload, remove.

Each step runs the commands that a person would type. EasyBuild has no configuration but the syntax of module files, and
installs into one directory, where everything is written. Packages come from a wheel that is made here, so no network is
needed.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.sitevalues import RUNTIMES

from ebsif import modulestool, processes, servers
from ebsif.catalog.settings import Settings
from ebsif.catalog.yamltext import as_yaml
from ebsif.eb import framework, running
from ebsif.errors import EbsifError
from ebsif.installed import lock
from ebsif.jobs import job
from ebsif.report.findings import ERROR
from ebsif.report.steps import Steps

OK, FAILED, NOT_HERE, NOT_RUN = "ok", "failed", "not possible here", "not run"
NAME, MODULE, EXTENSION, PACKAGE = "Selftest", "Selftest/1.0", "Selftest/1.0-trial", "ebsif_selftest"
SHOWN = ("EasyBuild", "container runtime", "modules tool")  # of what `ebsif doctor` finds
LONGEST = 1800  # seconds for a command: the SHA256 of a large image takes minutes
QUEUE = 120  # seconds that the job may wait in the queue, and then its ranks to start
PAUSE = 2  # seconds between questions to the scheduler
GRACE = 60  # seconds for what follows a signal, and for an answer of the scheduler

# Settings of this account or of loaded modules that a new user wouldn't have; the syntax is that of all module files.
SETTINGS = re.compile(r"EASYBUILD_(?!ALLOW_USE_AS_ROOT|MODULE_SYNTAX)|EBSIF_(?!NODE_LOCAL)|PIP_|XDG_(CONFIG|DATA)_HOME")
# What modules tools keep for themselves.
OF_MODULES_TOOL = re.compile(r"_|LMOD|MODULE|LOADEDMODULES|BASH_|SHLVL")
# A rank: says that it has started, and that a signal has reached it, in files, because some schedulers show what jobs
# print only when they have ended. It waits first: Apptainer loses a signal that comes just after the program's start.
RANK = """\
import os, signal, sys, time
rank = os.environ.get("RANK", "0") + "-of-" + os.environ.get("WORLD_SIZE", "1")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(open("ended-" + rank, "w").close()))
time.sleep(1)
open("started-" + rank, "w").close()
time.sleep(600)
"""
# A server, whose last argument is its socket, and a program that asks it; of Ray it needs the nodes of the job.
SERVER = """\
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    address_string = lambda self: "client"
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
socketserver.UnixStreamServer(sys.argv[-1], Handler).serve_forever()
"""
CLIENT = """\
import os, urllib.request
if "RAY_ADDRESS" in os.environ:
    import ray
    ray.init()
    ray.get(ray.remote(os.getpid).remote())
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"], headers=headers))
open("answered", "w").close()
"""


class ImpossibleError(EbsifError):
    """A step can't be tried on this machine; the message is the reason."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step."""

    step: str
    result: str
    seconds: float
    text: str


class SelfTest:
    """A self-test with an image, for the site whose settings are given, with options of `ebsif job`."""

    def __init__(self, image: Path, directory: Path, settings: Settings, of_job: Sequence[str]) -> None:
        """Make the test's own folder in a directory, with a site that differs in its images and containers only."""
        self.image, self.of_job = image.resolve(strict=True), of_job
        self.profile = settings.site()
        self.folder = folder = Path(tempfile.mkdtemp(prefix="ebsif-selftest-", dir=directory))
        self.work, self.modules, self.wheels = folder / "work", folder / "eb/modules/all", folder / "wheels"
        for path in (self.work, self.wheels, folder / "sites/selftest"):
            path.mkdir(parents=True)
        (folder / "sites/selftest/site.yaml").write_text(
            as_yaml(
                {
                    "name": "selftest",
                    "description": "a self-test of ebsif",
                    "extends": self.profile.name,
                    "not_inherited": ["containers", "images"],
                    "image": "central",
                    "images": {"directories": [{"path": str(self.image.parent)}]},
                }
            ),
            encoding="utf-8",
        )
        catalogs = [folder / "sites", *settings.own_directories]
        self.site = [word for one in catalogs for word in ("--catalog", str(one))] + ["--site", "selftest"]
        self.environment = {
            name: value for name, value in running.clean_environment().items() if not SETTINGS.match(name)
        }
        self.environment.update(
            {
                f"EASYBUILD_{name}": str(folder / "eb" / path)
                for name, path in (
                    ("PREFIX", ""),
                    ("INSTALLPATH", ""),
                    ("INSTALLPATH_SOFTWARE", "software"),
                    ("BUILDPATH", "build"),
                    ("INSTALLPATH_MODULES", "modules"),
                    ("SOURCEPATH", "sources"),
                    ("REPOSITORYPATH", "repository"),
                )
            },
            MODULEPATH=":".join(filter(None, [str(self.modules), os.environ.get("MODULEPATH")])),
            XDG_CONFIG_HOME=str(folder / "config"),
            XDG_CONFIG_DIRS=str(folder / "config"),
            XDG_DATA_HOME=str(folder / "data"),
            PIP_NO_INDEX="1",
            PIP_FIND_LINKS=self.wheels.as_uri(),
            EBSIF_INSTALL_BIND=str(self.wheels),
        )
        if not self.environment.get("LMOD_CMD"):
            # ebsif adds it when it runs eb, but `ebsif doctor` runs eb as a person would
            self.environment.update(framework.OTHER_TOOL)
        # what `ebsif doctor` has found
        self.machine: list[dict[str, str]] = []
        # the environment without and with the module that was loaded last
        self.before: dict[str, str] = {}
        self.loaded: dict[str, str] = {}
        self.installed: list[str] = []
        self.scheduler = job.scheduler_of(self.profile)
        # the ID of the job while there is one, and a process that is started without a job
        self.job = ""
        self.process: Optional[subprocess.Popen[bytes]] = None

    def run(self) -> Iterator[Outcome]:
        """Yield the outcome of each step; without a module, those that need one are not run."""
        lacks = ""
        with Steps() as steps:
            for name, step in self.steps.items():
                if lacks:
                    yield Outcome(name, NOT_RUN, 0, f"it needs what failed before ({lacks})")
                    continue
                steps.begin(name)
                start, result = time.monotonic(), OK
                try:
                    text = step()
                except ImpossibleError as error:
                    result, text = NOT_HERE, str(error)
                except (EbsifError, OSError) as error:
                    result, text = FAILED, str(error)
                    lacks = name if step in (self.add, self.install, self.load) else ""
                steps.detail(result)
                yield Outcome(name, result, round(time.monotonic() - start, 1), text)

    @property
    def steps(self) -> dict[str, Callable[[], str]]:
        """The steps by name; each returns what to say about it, or raises an error: ImpossibleError to be skipped."""
        return {
            "machine": self.examine,
            "record": self.add,
            "install": self.install,
            "load": self.load,
            "pack": self.pack,
            "extend": self.extend,
            "two ranks": self.start_ranks,
            "signal": self.end_ranks,
            "server": self.serve,
            "unload": self.unload,
            "remove": self.remove,
        }

    def examine(self) -> str:
        """Check that this machine has what is needed."""
        done = self.run_logged([*self.own_command, "doctor", "--json"])
        try:
            self.machine = json.loads(done.stdout)
        except ValueError:
            raise EbsifError(last_message(done)) from None
        if errors := [f"{one['subject']}: {one['text']}" for one in self.machine if one["level"] == ERROR]:
            raise EbsifError("; ".join(errors))
        return ", ".join(re.split(r", /| \(", one["text"])[0] for one in self.machine if one["subject"] in SHOWN)

    def add(self) -> str:
        """Write the record of the image."""
        self.ebsif("add", self.image, "--name", NAME, "--version", "1.0", *self.site, "-o", self.folder / "easyconfigs")
        return self.image.name

    def install(self) -> str:
        """Install a module that uses the image where it is, with user software that can be changed."""
        self.ebsif("install", MODULE, *self.site, "-o", self.folder / "easyconfigs")
        self.installed.append(MODULE)
        return ""

    def load(self) -> str:
        """Load the module, and run Python in the container."""
        return self.python_with(MODULE, "import sys; print('Python', sys.version.split()[0], 'in', sys.prefix)")

    def pack(self) -> str:
        """Pack the user software into a file, from which it is mounted then."""
        self.command([self.make_squashfs()], self.loaded)
        self.python_with(MODULE, "pass")
        return "user software is one file"

    def extend(self) -> str:
        """Add a package, and import it in the container of the extension."""
        self.make_squashfs()
        write_wheel(self.wheels)
        self.ebsif("extend", MODULE, "--add", PACKAGE, "--name", "trial", *self.site)
        self.installed.append(EXTENSION)
        self.python_with(EXTENSION, f"import {PACKAGE}")
        return "a package was added, and is imported"

    def start_ranks(self) -> str:
        """Start two ranks on a node, in a job."""
        self.submit(["--tasks-per-node", "2"], RANK)
        self.wait_for_job("started-*-of-2", "started both ranks", 2)
        return f"{self.scheduler.kind}: both ranks have started"

    def serve(self) -> str:
        """Start a server and a program that asks it, in a job; if the image has Ray, both with Ray."""
        versions = lock.read_record(Path(self.loaded["CONTAINERROOT"])).image_versions
        ray = "ray" in versions and not servers.ray_is_open(versions)
        server = shlex.join(["python", "-c", SERVER, servers.SOCKET])
        self.submit([*(["--launcher", "ray"] if ray else []), "--server", server, "--ready", "/"], CLIENT)
        self.wait_for_job("answered", "got an answer of its server")
        self.close()
        return f"a program has asked it{', and Ray' if ray else ''}"

    def submit(self, options: Sequence[str], program: str) -> None:
        """Submit a job; raise ImpossibleError if there can be none here."""
        submit = self.scheduler.submit[0]
        if not shutil.which(submit):
            raise ImpossibleError(f"there is no scheduler ({submit} is not on PATH)")
        self.require_answer()
        if not any(word.startswith("--account") for word in self.of_job):
            try:
                job.account(None, self.profile)
            except job.JobError as error:
                raise ImpossibleError(f"{error}, after -- (ebsif selftest IMAGE -- --account NAME)") from None
        said = self.ebsif(
            "job",
            self.installed[-1],
            *self.site,
            *options,
            "--time",
            "10",
            "--name",
            "selftest",
            "--submit",
            *self.of_job,
            "--",
            "-c",
            program,
        )
        submitted = re.search(self.scheduler.submitted, said)
        if not submitted:
            raise EbsifError(f"{submit} has printed no ID of the job")
        self.job = submitted[1]

    def wait_for_job(self, pattern: str, what: str, number: int = 1) -> None:
        """Wait until the job makes so many files, which say that it has done something; else end it."""
        try:
            self.wait_in_queue()
            failure = f"the job has left the queue, but not {what} within {QUEUE} seconds; {self.work} has its output"
            self.wait_for(pattern, QUEUE, failure, number)
        except (EbsifError, OSError):
            self.close()
            raise

    def require_answer(self) -> None:
        """Raise ImpossibleError without an answer of the scheduler: many machines that have its commands have none."""
        words = self.scheduler.answers
        try:
            asked = self.run_logged(words, limit=GRACE)
        except processes.NoAnswerError as error:
            raise ImpossibleError(f"the scheduler doesn't answer: {error}") from None
        if asked.returncode:
            raise ImpossibleError(f"the scheduler doesn't answer: {shlex.join(words)} says: {last_message(asked)}")

    def end_ranks(self) -> str:
        """End the job, or a process that is started without one: SIGTERM reaches the program in the container."""
        if self.job:
            cancelled = self.ask_scheduler(self.scheduler.cancel)
            if cancelled.returncode:
                raise EbsifError(last_message(cancelled))
            self.wait_for(
                "ended-*-of-2",
                GRACE,
                f"the job was cancelled, but no SIGTERM has reached both ranks within {GRACE} seconds",
                2,
            )
            self.job = ""
            return "SIGTERM has reached both ranks"
        self.process = subprocess.Popen(
            [f"{self.loaded['CONTAINERROOT']}/bin/start-shell", "-c", 'exec python -c "$1"', "rank", RANK],
            env=self.loaded,
            cwd=self.work,
            start_new_session=True,
        )
        self.wait_for("started-*-of-1", GRACE, f"the program has not started within {GRACE} seconds")
        self.process.terminate()
        self.wait_for("ended-*-of-1", GRACE, f"no SIGTERM has reached the program within {GRACE} seconds")
        return "SIGTERM has reached a program that was started without a job"

    def unload(self) -> str:
        """Unload the module: the environment is as before."""
        left = modulestool.entries(modulestool.run("without-modules.bash", NAME, environment=self.loaded).stdout)
        names = [
            name
            for name in {*left, *self.before}
            if not OF_MODULES_TOOL.match(name)
            and without_repetitions(left.get(name)) != without_repetitions(self.before.get(name))
        ]
        if names:
            raise EbsifError(f"these variables are not as before: {', '.join(sorted(names))}")
        return "the environment is as before"

    def remove(self) -> str:
        """Remove what was installed: nothing of it is left."""
        self.ebsif("remove", *reversed(self.installed), "--yes")
        left = [*(self.folder / "eb/software").glob("*/*"), *self.modules.rglob(f"{NAME}/*")]
        if left:
            raise EbsifError(f"there still is {left[0]}")
        return ""

    def close(self) -> None:
        """End what was started and hasn't ended, because a step has failed or was interrupted."""
        if self.process and self.process.poll() is None:
            processes.end([self.process])
        if self.job:
            # the job may have ended by itself
            with contextlib.suppress(EbsifError, OSError):
                self.ask_scheduler(self.scheduler.cancel)
            self.job = ""

    # --- what the steps are made of

    @property
    def own_command(self) -> list[str]:
        """What runs ebsif, with the Python that runs this program."""
        program = Path(sys.argv[0]).absolute()
        return [sys.executable, str(program) if program.is_file() else shutil.which("ebsif") or ""]

    def ebsif(self, *words: object) -> str:
        """Run ebsif; return what it prints."""
        return self.command([*self.own_command, *words])

    def command(self, words: Sequence[object], environment: Optional[dict[str, str]] = None) -> str:
        """Run a command; return its standard output, or raise EbsifError with its message."""
        done = self.run_logged(words, environment)
        if done.returncode:
            raise EbsifError(last_message(done))
        return done.stdout

    def ask_scheduler(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of the scheduler for the job, which may be unknown to it already."""
        return self.run_logged([*words, self.job], limit=GRACE)

    def run_logged(
        self, words: Sequence[object], environment: Optional[dict[str, str]] = None, limit: float = LONGEST
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, and log what it prints; raise NoAnswerError after a time limit."""
        done = processes.run(
            list(map(str, words)), limit, environment=environment or self.environment, cwd=str(self.work)
        )
        with (self.folder / "log").open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"$ {shlex.join(map(str, words))}\n{done.stdout}{done.stderr}exit status {done.returncode}\n\n")
        return done

    @property
    def runtime(self) -> str:
        """The container runtime."""
        return next((name for name in reversed(RUNTIMES) if shutil.which(name)), RUNTIMES[0])

    def make_squashfs(self) -> str:
        """Return the program that packs user software; raise ImpossibleError if the module has none."""
        program = f"{self.loaded['CONTAINERROOT']}/bin/make-squashfs"
        if not Path(program).exists():
            raise ImpossibleError("the module has no user software: the Python of the image has no pip or venv")
        return program

    def python_with(self, module: str, code: str) -> str:
        """Return what Python prints in the container of a module, with the environment that loading it makes."""
        done = modulestool.run("environments.bash", module, environment=self.environment)
        before, _, after = done.stdout.partition("\0\0")
        loaded = modulestool.entries(after)
        if done.returncode or "SIF" not in loaded:
            raise EbsifError(f"{module} can't be loaded: {' '.join(done.stderr.split())}")
        self.before, self.loaded = modulestool.entries(before), loaded
        return self.command([self.runtime, "exec", self.loaded["SIF"], "python", "-c", code], self.loaded).strip()

    def wait_in_queue(self) -> None:
        """Wait until the job isn't in the queue any more; raise ImpossibleError after a time limit."""
        end = time.monotonic() + QUEUE
        while re.search(self.scheduler.queued, self.ask_scheduler(self.scheduler.state).stdout):
            if time.monotonic() > end:
                raise ImpossibleError(
                    f"the job was still in the queue after {QUEUE} seconds; options of `ebsif job`, such "
                    "as --partition debug, follow --"
                )
            time.sleep(PAUSE)

    def wait_for(self, pattern: str, limit: float, failure: str, number: int = 1) -> None:
        """Wait until there are so many files; raise EbsifError with a message after a time limit."""
        end = time.monotonic() + limit
        while len(list(self.work.glob(pattern))) < number:
            if time.monotonic() > end:
                raise EbsifError(failure)
            time.sleep(0.2)


def without_repetitions(value: Optional[str]) -> Optional[list[str]]:
    """Return the entries of a variable, each once: modules tools leave out those that a list such as PATH has twice."""
    return None if value is None else list(dict.fromkeys(value.split(":")))


def last_message(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command that has failed has printed last."""
    lines = [
        line.strip()
        for line in f"{done.stdout}\n{done.stderr}".split("\n")
        if line.strip() and not line.startswith(("INFO: ", "WARNING: "))
    ]
    # ebsif's own message, and that of a program that it has run
    messages = [line for line in lines if re.match(r"(ebsif|ERROR|FATAL|\w+: (error|fatal)): ", line)]
    return "; ".join(messages[-2:] or lines[-1:]).replace("ebsif: ", "") or "no message"


def write_wheel(folder: Path) -> None:
    """Write a wheel with an empty module."""
    files = {
        f"{PACKAGE}.py": "",
        f"{PACKAGE}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{PACKAGE}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{PACKAGE}-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(folder / f"{PACKAGE}-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
