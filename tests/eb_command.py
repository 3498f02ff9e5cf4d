"""
Run eb in forks of a process that has imported the libraries that EasyBuild uses, which saves most of its start.

EasyBuild itself is imported in each fork, because it reads variables of the environment when it is imported.
"""

import atexit
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# What the script `eb` sets.
OF_EB = {"PYTHONOPTIMIZE": "1", "FANCYLOGGER_IGNORE_MPI4PY": "1"}


@functools.cache
def server():
    """Return the process that forks for each command (Popen); it ends with this one."""
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen([sys.executable, "-O", __file__], env=environment, **ends)
    atexit.register(process.stdin.close)
    return process


def run_eb(arguments, cwd, env, one_stream=False):
    """Run eb like the installed command, which other tests start; return the CompletedProcess."""
    arguments = [str(word) for word in arguments]
    # there is no way to read it without setting it
    umask = os.umask(0o077)
    os.umask(umask)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, name)) for name in ("output", "errors")]
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "paths": paths,
            "one_stream": one_stream,
            "umask": umask,
            "environment": {name: str(value) for name, value in env.items()},
        }
        process = server()
        try:
            print(json.dumps(request), file=process.stdin, flush=True)
            status = int(process.stdout.readline())
        except BaseException:
            # the test took too long, for example
            os.killpg(process.pid, signal.SIGKILL)
            server.cache_clear()
            raise
        output, errors = (Path(path).read_text() if Path(path).exists() else "" for path in paths)
    return subprocess.CompletedProcess(["eb", *arguments], status, output, errors)


def serve():
    """Fork for each request in standard input, one after the other, and print the status."""
    preload()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become_eb(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def preload():
    """Import what EasyBuild imports, but nothing of EasyBuild."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        import easybuild.main  # noqa: F401

        names = [name for name in sys.modules if name.partition(".")[0] not in ("__main__", "easybuild")]
        os.write(writer, " ".join(names).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as names:
        for name in names.read().split():
            __import__(name)
    os.waitpid(child, 0)


def become_eb(arguments, cwd, paths, one_stream, umask, environment):
    """Turn the forked process into eb and run it; the process ends with it."""
    os.umask(umask)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment | OF_EB)
    tempfile.tempdir = None
    for number, path in enumerate([os.devnull, paths[0], paths[0] if one_stream else paths[1]]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdin = open(0)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(number, "wb", 0), write_through=True)  # noqa: SIM115
        for number in (1, 2)
    )
    # like python -m
    sys.path[0] = cwd
    from easybuild import main

    sys.argv = [main.__file__, *arguments]
    status = 1
    try:
        main.main_with_hooks()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve()
