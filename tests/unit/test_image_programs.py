"""Programs that the Python of a new venv runs, here with the tests' Python: image-programs.py and image-pip.py."""

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from support import CONTAINER_FILES, add_package, make_wheel, printed, write_program

IMAGE_PIP = CONTAINER_FILES / "share/ebsif/image-pip.py"
PIP = CONTAINER_FILES / "share/ebsif/pip"
MAKE_VENV = CONTAINER_FILES / "share/ebsif/make-venv.py"
LIST_PACKAGES = CONTAINER_FILES / "runscripts/list-packages.py"
PROGRAM = CONTAINER_FILES / "share/ebsif/image-programs.py"
# printed by every program: its Python, its arguments, its own name, and where it looks for modules
TELL = "import os, sys\ndef main():\n    print(sys.prefix, *sys.argv[1:], sys.flags.ignore_environment)\n"
SCRIPT = "{first}\n" + TELL + "if __name__ == '__main__':\n    print(__file__, sys.argv[0], sys.path[0])\n    main()\n"
# metadata files that are not valid text
BROKEN = ("METADATA", "RECORD", "entry_points.txt")
SPAWN = """#!{python}
import multiprocessing, sys

def where(number):
    return sys.prefix

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(where, [1])[0])
"""


def make_venv(path, sees=None):
    """Make a venv, which sees the packages of another one or of none."""
    options = ["--without-pip", *(["--system-site-packages"] if sees else [])]
    subprocess.run([sys.executable, "-m", "venv", *options, path], check=True)
    (packages,) = path.glob("lib/python*/site-packages")
    if sees:
        (packages / "image.pth").write_text("".join(f"{path}\n" for path in sees.glob("lib/python*/site-packages")))
    return packages


def test_an_environment_sees_the_packages_of_the_image(tmp_path):
    """S001-20: if the image's Python is that of a venv, also packages in directories that a .pth adds."""
    packages, more = make_venv(tmp_path / "image"), tmp_path / "more"
    more.mkdir()
    for folder, name in ((packages, "one"), (more, "two")):
        (folder / f"{name}.py").touch()
    (packages / "more.pth").write_text(f"{more}\n")
    texts = [MAKE_VENV.read_text(), tmp_path / "mine", "", "", "import one, two; print(one.__file__, two.__file__)"]
    assert printed([tmp_path / "image/bin/python", "-I", "-c", *texts]) == f"{packages}/one.py {more}/two.py\n"


class Place:
    """An image's environment, itself a venv, with all kinds of programs, and a venv on top of it."""

    def __init__(self, folder):
        self.image = folder / "image"
        self.venv = folder / "the venv"
        packages = make_venv(self.image)
        bin_ = self.image / "bin"
        python = bin_ / "python"
        entry_points = "[console_scripts]\ntool = tool:main\nno-file=tool:main [extra]\ncompiled = tool:main\n"
        entry_points += "pip3.99 = tool:main\n[gui_scripts]\nwindow = tool:main\n"
        metadata = {"RECORD": "../../../bin/recorded,,\n", "entry_points.txt": entry_points}
        add_package(packages, "tool", files={"tool.py": TELL}, **metadata)
        add_package(packages, "broken", **{"entry_points.txt": "[console_scripts]\nnothing\n"})
        (packages / "empty-1.0.dist-info").mkdir()
        for name in BROKEN:
            add_package(packages, Path(name).stem)
            (packages / f"{Path(name).stem}-1.0.dist-info" / name).write_bytes(b"Name: \xff\n")
        write_program(bin_ / "tool", f"#!{python}\nfrom tool import main\nmain()\n")
        beside = '"$(dirname -- "$(realpath -- "$0")")"'
        firsts = {
            "plain": f"#!{python}",
            "third": f"#! {python}3 -E",
            "env": "#!/usr/bin/env python3",
            "recorded": f"#!{python}",
            "long": f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''",
            "relocatable": f"#!/bin/sh\n'''exec' {beside}/'python3' \"$0\" \"$@\"\n' '''",
        }
        self.scripts = set(firsts)
        for name, first in firsts.items():
            write_program(bin_ / name, SCRIPT.format(first=first))
        write_program(bin_ / "spawn", SPAWN.format(python=python))
        # programs that must not be replaced
        other = folder / "other"
        make_venv(other)
        write_program(bin_ / "shell", "#!/bin/sh\necho shell\n")
        write_program(bin_ / "compiled", "\x7fELF")
        write_program(bin_ / "empty", "")
        write_program(bin_ / "quote", "#!/usr/bin/env -S python3 '\n")
        write_program(bin_ / "conda", SCRIPT.format(first=f"#!{other}/bin/python"))
        write_program(bin_ / "beneath", SCRIPT.format(first=f"#!{Path(sys.executable).resolve()}"))
        write_program(bin_ / "perl", "#!/usr/bin/env perl\n")
        write_program(bin_ / "data", SCRIPT.format(first=f"#!{python}")).chmod(0o644)
        for name in ("pip", "pip3", "python3-config", "activate"):
            write_program(bin_ / name, SCRIPT.format(first=f"#!{python}"))
        (bin_ / "__pycache__").mkdir()
        make_venv(self.venv, sees=self.image)
        write_program(self.venv / "bin" / "recorded", "mine\n")
        # the working directory may contain modules of others
        for name in ("re", "sysconfig"):
            (folder / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")

    def make(self, venv, path):
        """Run the program with a venv's Python; return names and texts of the files that it wrote."""
        before = {path.name for path in (venv / "bin").iterdir()}
        path = ":".join(str(folder) for folder in [*path, "/usr/bin", "/bin"])
        command = [venv / "bin/python", "-"]
        said = printed(command, input=PROGRAM.read_text(), env={"PATH": path}, cwd=self.image.parent)
        new = {path.name: path.read_text() for path in (venv / "bin").iterdir() if path.name not in before}
        assert sorted(new) == said.split()
        return new


def run(path, *arguments):
    """Run a program and return its output lines."""
    environment = {"PATH": f"{path.parent}:/usr/bin:/bin"}
    return printed([path, *arguments], env=environment, cwd="/").splitlines()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("programs"))
    place.made = place.make(place.venv, [place.venv / "bin", place.image / "bin"])
    return place


def test_a_replacement_for_every_python_program(place):
    """G-01: for entry points and Python scripts; not for other programs, other Pythons, pip and Python."""
    own = {"tool", "no-file", "window", "spawn", *place.scripts} - {"recorded"}
    assert own <= set(place.made)
    # none for the Python that the image's venv is based on, which doesn't see the venv's packages
    assert {name for name in place.made if (place.image / "bin" / name).exists()} == own - {"no-file", "window"}
    assert (place.venv / "bin/recorded").read_text() == "mine\n"
    assert not [name for name in place.made if name.startswith("pip") or name.endswith("-config")]


def test_replacements_run_the_venvs_python(place):
    """G-01: entry points as pip writes them, also in a directory with a blank; child processes, too."""
    for name in ("tool", "no-file", "window"):
        assert run(place.venv / "bin" / name, "a b", "*") == [f"{place.venv} a b * 0"]
    assert run(place.venv / "bin/spawn") == [str(place.venv)]


def test_replacements_run_the_original_script(place):
    """G-01: a script has its own name, file and search path; options in its first line apply."""
    for name in place.scripts - {"recorded"}:
        file = place.image / "bin" / name
        told, last = run(place.venv / "bin" / name, "x y")
        assert told == f"{file} {file} {file.parent}"
        assert last == f"{place.venv} x y {int(name == 'third')}"


def test_packages_are_listed_without_pip(place):
    """G-11: packages with missing or invalid metadata are left out, the others are listed."""
    command = [place.image / "bin/python", LIST_PACKAGES]
    _, _, *lines = printed(command).splitlines()
    assert [line.split()[0] for line in lines] == ["broken", "entry_points", "RECORD", "tool"]


def test_a_venv_uses_the_images_pip(tmp_path):
    """pip in a venv runs the image's pip, which installs into the venv, and upgrades itself there."""
    image, venv = make_venv(tmp_path / "image"), tmp_path / "venv"
    packages = make_venv(venv, sees=tmp_path / "image")
    pip = distribution("pip")
    info = image / f"pip-{pip.version}.dist-info"
    shutil.copytree(pip.locate_file("pip"), image / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(pip.locate_file(info.name), info)
    # old versions of Python install setuptools with ensurepip as well
    add_package(image, "setuptools")

    def add_commands(python=tmp_path / "image/bin/python"):
        command = [python, "-I", "-c", IMAGE_PIP.read_text(), venv, PIP.read_text()]
        return subprocess.run(command, check=False).returncode

    def run_pip(*words):
        return printed([venv / "bin/pip", "--disable-pip-version-check", *words])

    missing = image / "pip/_internal/commands/install.py"
    missing.rename(tmp_path / "install.py")
    assert add_commands() == 1
    (tmp_path / "install.py").rename(missing)
    assert add_commands() == 0
    assert str(image) in run_pip("--version")
    make_wheel(tmp_path, "pip", version="99.0", module_text="print('new')\n")
    run_pip("install", "--quiet", "--no-index", "--find-links", tmp_path, "--upgrade", "pip")
    assert (packages / "pip-99.0.dist-info").is_dir()
    assert info.is_dir()
    assert subprocess.check_output([venv / "bin/python", "-m", "pip"], text=True) == "new\n"
    # an image without pip
    make_venv(tmp_path / "other")
    assert add_commands(tmp_path / "other/bin/python") == 1
