"""Concurrency: two make-squashfs, two eb, a reinstallation while the module is used."""

import os
import shutil
import subprocess
import time

from parts import Installed, wheel_settings
from support import CONTAINER_FILES

TEXT = Installed.TEXT


def test_two_make_squashfs(tmp_path, fault):
    """The result is one complete file, with nothing left beside it."""
    case = fault("at once", "two make-squashfs")
    root = tmp_path / "installation"
    shutil.copytree(CONTAINER_FILES, root)
    (root / "user-software").mkdir()
    for number in range(200):
        (root / f"user-software/{number}").write_bytes(os.urandom(20_000))
    command = [root / "bin/make-squashfs"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=300)[1] for one in both]
    case.shown(all(one.returncode in (0, 3) for one in both), said)
    case.kept(0 in [one.returncode for one in both], said)
    words = ["unsquashfs", "-no-progress", "-d", tmp_path / "out", root / "user-software.squashfs"]
    subprocess.run(words, check=True, capture_output=True)
    same = subprocess.run(["diff", "-r", root / "user-software", tmp_path / "out"], capture_output=True, check=False)
    case.kept(same.returncode == 0, same.stdout)
    case.kept([path.name for path in root.iterdir() if path.name.startswith(".")] == [], "work directories")


def start(site, command, wheels):
    """Start a command of a site."""
    environment = {**site.environment, **{key: str(value) for key, value in wheel_settings(wheels).items()}}
    return subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        cwd=site.work,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_two_installations(site, wheels, fault):
    """
    One installs, the other reports the lock; the result is complete, and no lock is left.

    The second one starts when the first has the lock: EasyBuild doesn't keep two from taking it in the same moment.
    """
    case = fault("at once", "two eb")
    command = ["eb", *site.eb_options, site.easyconfig(TEXT + "requirements = ['hello']\n")]
    locks = site.prefix / "eb/software/.locks"
    both = [start(site, command, wheels)]
    while both[0].poll() is None and not (locks.is_dir() and list(locks.iterdir())):
        time.sleep(0.05)
    both.append(start(site, command, wheels))
    said = [one.communicate(timeout=300)[0] for one in both]
    case.kept(both[0].returncode == 0, said)
    if both[1].returncode:
        case.said(said[1], "already exists, aborting")
    result = site.bash("module load Example/1.0 && singularity exec $SIF python -c 'import hello'", check=False)
    case.kept(result.returncode == 0, result.stderr)
    case.kept(list(locks.iterdir()) == [], "a lock is left")


def test_a_reinstallation_while_the_module_is_used(installations, wheels, tmp_path, fault):
    """
    A module is loaded and used continuously while it is reinstalled: no use fails.

    Running jobs continue while image and user software, packed or a directory, are replaced.
    Python starts itself again, as multiprocessing and torchrun do.
    """
    site = installations("Lmod-Lua").copy(tmp_path)
    again = "subprocess.run([sys.executable, '-c', ''], check=True)"
    jobs = {}
    for module, work in (
        (Installed.SQUASHED, "import numpy.fft, greeting, hello, json.tool"),
        (Installed.WRITABLE, f"import numpy.fft, subprocess, sys; {again}"),
    ):
        script = (
            f"{site.tool.init}\nmodule use '{site.modules}'\nmodule load {module} && "
            f'exec singularity exec $SIF python -c "import time; print(1, flush=True); input(); {work}; print(2)"'
        )
        jobs[module] = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", script],
            env=site.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    number = 0
    try:
        assert [job.stdout.readline() for job in jobs.values()] == ["1\n"] * 2
        easyconfigs = [site.prefix / f"{module.replace('/', '-')}.eb" for module in jobs]
        installing = start(site, ["eb", *site.eb_options, *easyconfigs, "--rebuild"], wheels)
        while installing.poll() is None:
            number += 1
            case = fault("installing while people use the module", f"use {number}")
            script = f"module load {Installed.SQUASHED} && singularity exec $SIF python -c 'import hello'"
            result = site.bash(script, check=False)
            case.kept(result.returncode == 0, result.stderr)
    finally:
        ended = {module: (job.communicate("\n", timeout=300), job.returncode) for module, job in jobs.items()}
    assert installing.returncode == 0, installing.communicate()
    assert number > 5
    for module, ((output, errors), status) in ended.items():
        assert (output, status) == ("2\n", 0), (module, errors)
