"""Run ebsif in forks of a process that has imported everything, which saves starting Python each time."""

import contextlib
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
# a process that has imported these and done nothing else
OFTEN = ("check", "diff", "docs", "doctor", "extend", "import_", "installed", "job", "list", "lock", "render", "show")
FORKS.set_forkserver_preload(["ebsif.cli", *(f"ebsif.commands.{name}" for name in (*OFTEN, "upgrade"))])


def run_ebsif(arguments, cwd=None, env=None, limits=None):
    """Run ebsif like the installed command, which other tests start."""
    command = ["ebsif", *map(str, arguments)]
    # there is no way to read it without setting it
    umask = os.umask(0o077)
    os.umask(umask)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("output", "errors")]
        environment = {str(name): str(value) for name, value in (os.environ if env is None else env).items()}
        arguments = (command, str(cwd or Path.cwd()), environment, paths, limits, umask)
        process = FORKS.Process(target=in_fork, args=arguments)
        process.start()
        try:
            process.join()
        finally:
            process.kill()
        output, errors = (path.read_text() for path in paths)
    return subprocess.CompletedProcess(command, process.exitcode, output, errors)


def in_fork(command, cwd, environment, paths, limits, umask):
    """Turn the forked process into the command and run it; the process ends with it."""
    # already imported before the fork; the tests themselves don't need it
    from ebsif.cli import main

    for limit, value in (limits or {}).items():
        resource.setrlimit(limit, (value, value))
    os.umask(umask)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    tempfile.tempdir = None
    for number, path in enumerate([os.devnull, *paths]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    try:
        status = main()
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status or 0)
