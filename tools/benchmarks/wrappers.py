"""Wrappers: the time until the runtime starts, and until a short Python program has finished."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import recipe
from measuring import in_turn, rows, run
from parts import TOOLS
from support import CONTAINER_FILES, Site

RUNTIMES = ("apptainer", "singularity")


def spawn(folder):
    """Measure the time until the runtime starts, using a program that ends at once in its place."""
    root = folder / "installation"
    shutil.copytree(CONTAINER_FILES, root)
    shutil.copy(root / "share/ebsif/wrapper", root / "bin/python")
    tools = folder / "tools"
    tools.mkdir()
    for name in RUNTIMES:
        (tools / name).symlink_to("/bin/true")
    (root / "image.sif").touch()
    theirs = folder / "theirs"
    theirs.mkdir()
    (theirs / "python").write_text(recipe.WRAPPER)
    (theirs / "python").chmod(0o755)
    shpc = singularity_hpc(folder)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SIF": str(root / "image.sif"),
        "CONTAINERROOT": str(root),
        "EBSIF_GPU": "--rocm /dev/kfd",
        "EBSIF_LOADED_MODULE": "Example/1.0",
        # set in every user's shell; without it bash asks the system for it
        "HOME": str(folder),
        "PWD": str(folder),
        "SHELL": "/bin/bash",
        "USER": "user",
    }

    def call(path):
        # posix_spawn, because forking this process would take most of the time
        silent = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_WRONLY, 0) for number in (1, 2)]
        pid = os.posix_spawn(path, [str(path), "-V"], environment, file_actions=silent)
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"{path} refuses to start the runtime"

    contenders = {
        "/bin/true": Path("/bin/true"),
        "hand-written wrapper": theirs / "python",
        "singularity-hpc": shpc,
        "ebsif": root / "bin/python",
    }
    times = in_turn({name: (lambda path=path: call(path)) for name, path in contenders.items()}, runs=200, warm_up=5)
    above = {
        name: [one - base for one, base in zip(values, times["/bin/true"])]
        for name, values in times.items()
        if name != "/bin/true"
    }
    found = rows(
        "wrapper, until the runtime",
        times,
        "ebsif",
        {"/bin/true": ("difference", 0.0015)},
        {"ebsif": "also checks module, image and user software"},
    )
    return found + rows(
        "wrapper, above a spawn",
        above,
        "ebsif",
        {"hand-written wrapper": ("ratio", 0.5), "singularity-hpc": ("ratio", 0.5)},
    )


def singularity_hpc(folder):
    """Install singularity-hpc and a container with its wrapper for `python`; return that wrapper (Path)."""
    venv = folder / "shpc"
    run([sys.executable, "-m", "venv", venv])
    run([venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "singularity-hpc"])
    registry = folder / "registry"
    container = registry / "local/image"
    container.mkdir(parents=True)
    shutil.copy(os.environ["EBSIF_TEST_BASE_IMAGE"], container / "image.sif")
    (container / "container.yaml").write_text(
        "path: image.sif\nmaintainer: '@nobody'\ndescription: an image\nurl: https://example.org\n"
        "latest:\n  1.0.0: image.sif\ntags:\n  1.0.0: image.sif\naliases:\n  python: /usr/bin/python\n"
    )
    (packages,) = venv.glob("lib/python3*/site-packages")
    settings = packages / "shpc/settings.yml"
    text = settings.read_text().splitlines()
    text = [f"registry: [{registry}]" if line.startswith("registry:") else line for line in text]
    settings.write_text("\n".join(text) + "\n")
    environment = {**os.environ, "HOME": str(folder)}
    for name, value in {
        "module_base": folder / "modules",
        "container_base": folder / "containers",
        "wrapper_scripts:enabled": "true",
    }.items():
        run([venv / "bin/shpc", "config", "set", name, value], env=environment)
    run([venv / "bin/shpc", "install", "local/image:1.0.0"], env=environment)
    (wrapper,) = [path for path in folder.rglob("local/image/1.0.0/bin/python") if path.is_file()]
    return wrapper


def python(folder):
    """Measure from the call of the wrapper to the end of `python -c pass` in the container."""
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(os.environ["EBSIF_TEST_BASE_IMAGE"])
    text = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
    site.eb(site.easyconfig(text + "wrappers = ['python']\n"))
    loaded = site.bash("module load Example/1.0; env -0").stdout
    environment = dict(line.split("=", 1) for line in loaded.split("\0") if "=" in line)
    sif, interpreter = environment["SIF"], "/user-software/venv/pytorch/bin/python"
    commands = {
        "apptainer exec": ["apptainer", "exec", sif, interpreter, "-c", "pass"],
        "ebsif": [f"{environment['CONTAINERROOT']}/bin/python", "-c", "pass"],
    }

    def call(command):
        subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)

    times = in_turn({name: (lambda command=command: call(command)) for name, command in commands.items()}, runs=60)
    return rows("wrapper, to finished python", times, "ebsif", {"apptainer exec": ("ratio", 1.02)})
