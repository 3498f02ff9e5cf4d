"""Imported by every Python with this folder on PYTHONPATH; takes effect in eb only.

Kills the whole process group with SIGKILL at the point KILL_AT, a number or an expression whose first match counts:
before a change below the directories WATCH, after opening a file there for writing, at the start of a program, and
shortly after it. With KILL_AT=0 the points are only recorded, in the file POINTS.
"""

import os
import re
import signal
import sys
import threading
import time

NAMES = "rename remove mkdir rmdir chmod link symlink utime truncate chown"
CHANGES = {f"os.{name}" for name in NAMES.split()}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
IN_A_PROGRAM = 0.25  # seconds


def watch():
    """Start watching."""
    at, points = os.environ["KILL_AT"], os.environ["POINTS"]
    watched = tuple(os.environ["WATCH"].split(":"))
    state = {"number": 0, "busy": False}
    us = os.getpid()

    def kill(*_):
        os.killpg(0, signal.SIGKILL)

    def kill_soon():
        threading.Thread(target=lambda: kill(time.sleep(IN_A_PROGRAM)), daemon=True).start()

    def reach(what, end=kill):
        state["number"] += 1
        here = state["number"] == int(at) if at.isdigit() else re.search(at, what)
        if at != "0" and not here:
            return
        state["busy"] = True
        if here:
            end()
        else:
            with open(points, "a") as file:
                file.write(f"{what}\n")
        state["busy"] = False

    def hook(event, arguments):
        if state["busy"] or os.getpid() != us:
            return
        if event == "subprocess.Popen":
            words = arguments[1] if isinstance(arguments[1], str) else " ".join(map(str, arguments[1]))
            words = repr(words)
            # EasyBuild does this before and after every program
            if "declare -f" not in words:
                reach(f"start {words}")
                reach(f"in {words}", kill_soon)
        elif event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
            names = arguments[:1] if event == "open" else arguments[:2]
            folder = os.getcwd()
            if event in ("os.remove", "os.rmdir") and arguments[1] >= 0:
                # relative to an open directory, as in shutil.rmtree
                folder = os.readlink(f"/proc/self/fd/{arguments[1]}")
            paths = [os.path.join(folder, os.fsdecode(path)) for path in names if isinstance(path, (str, bytes))]
            if any(path.startswith(watched) for path in paths):
                reach(f"{event} {' '.join(paths)}")
                if event == "open":
                    reach(f"opened {paths[0]}", lambda: kill(os.open(paths[0], arguments[2], 0o644)))

    sys.addaudithook(hook)


with open("/proc/self/cmdline", "rb") as command_line:
    if b"easybuild.main" in command_line.read().split(b"\0") and "KILL_AT" in os.environ:
        watch()
