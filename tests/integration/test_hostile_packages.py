"""Images, wheels and artefacts of somebody who wants to run commands outside of containers: nothing does."""

import contextlib
import re
import threading
from pathlib import Path

import pytest
from parts import example_site, wheel_settings
from support import make_wheel, write_program

IMAGE_PACKAGES = "/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages"
TEXT = (
    "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
    "requirements = ['nicepkg']\nlisted_packages = 'all'\n"
)


def codes(mark):
    """Return names of packages that run a command in a module file in Lua or Tcl, or end a string there."""
    return [
        f'nice"); os.execute([[touch {mark}]]) --',
        f"nice[exec touch {mark}]",
        "nice]==]",
        'nice"',
        "nice\n x",
        f"nice]]; os.execute('touch {mark}') --",
        f"nice$(touch {mark})",
    ]


@pytest.mark.parametrize("tool", ["Lmod-Lua", "Lmod-Tcl"])
def test_names_of_packages_that_are_code(tmp_path, base_image, tool):
    """P-06: names and versions in an image or a wheel aren't run when the module is loaded or shown."""
    site = example_site(tmp_path, base_image, tool)
    mark = tmp_path / "mark"
    evil = tmp_path / "evil"
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    more, binds = {}, [str(wheels)]
    for number, code in enumerate(codes(mark)):
        fields = {"Name": f"Name: {code}\nVersion: 1.0\n", "Version": f"Name: odd{number}\nVersion: {code}\n"}
        for field, text in fields.items():
            folder = evil / f"evil{number}{field}-1.0.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\n{text}")
            binds.append(f"{folder}:{IMAGE_PACKAGES}/{folder.name}")
            # with other names in the wheel
            more[f"nicepkg-1.0.data/purelib/w{folder.name}/METADATA"] = (
                f"Metadata-Version: 2.1\n{text.replace('Name: ', 'Name: w')}"
            )
    make_wheel(wheels, "nicepkg", more=more)
    said = site.eb(site.easyconfig(TEXT), **{**wheel_settings(wheels), "EBSIF_INSTALL_BIND": ",".join(binds)})
    warnings = re.findall("Packages are left out of the module.*", said.stdout + said.stderr)
    # of the image, and of user software
    assert len(warnings) == 2
    assert "nice]==] 1.0" in warnings[0] and "os.execute([[touch" in warnings[0]
    module = (site.modules / f"Example/1.0{'.lua' if tool == 'Lmod-Lua' else ''}").read_text()
    (listed,) = re.findall(r'^ *extensions\W*(.*?)(?:"\))?$', module, re.MULTILINE)
    expected = ["nicepkg", "numpy", "packaging", "pip", "setuptools", "wheel"]
    assert [one.split("/")[0] for one in re.split("[, ]+", listed)] == expected
    record = (site.root() / "share/ebsif/lock.json").read_text()
    assert "touch" not in record
    site.bash("module load Example/1.0; list-packages; for what in show spider help; do module $what Example/1.0; done")
    assert not mark.exists()


@pytest.mark.parametrize("program", ["exec yes", "echo '{}'", r"printf 'ok \033]0;PWNED\007\n' >&2; exit 1"])
def test_an_image_whose_python_is_hostile(tmp_path, base_image, program):
    """Endless output, another description and terminal sequences: eb refuses the image and stays alive."""
    site = example_site(tmp_path, base_image)
    python = write_program(tmp_path / "python3", f"#!/bin/sh\n{program}\n")
    path = site.easyconfig("sources = ['example.sif']\nrequirements = ['x']\n")
    done = site.eb(path, check=False, EBSIF_INSTALL_BIND=f"{python}:/usr/bin/python3")
    said = done.stdout + done.stderr
    assert "its python3 doesn't work: " in said and "Nothing was copied" in said
    assert "crashed" not in said and "Traceback" not in said and "\x1b]" not in said
    assert len(said) < 10_000


def test_programs_of_a_wheel_with_names_of_commands(tmp_path, base_image):
    """Programs of a wheel don't hide the host's, which is said; programs in 'wrappers' do."""
    site = example_site(tmp_path, base_image)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    names = ("ls", "git", "sbatch", "ebsif", "nice-tool")
    programs = dict.fromkeys(names, "nicepkg:main")
    make_wheel(wheels, "nicepkg", module_text="def main(): print('of the wheel')\n", scripts=programs)
    said = site.eb(site.easyconfig(TEXT + "wrappers = ['git']\n"), **wheel_settings(wheels))
    assert "this machine has commands of these names: ebsif, ls, sbatch. Run them" in said.stdout + said.stderr
    output = site.bash("module load Example/1.0; nice-tool; git; ls -d /; singularity exec $SIF ls").stdout
    assert output.splitlines() == ["of the wheel", "of the wheel", "/", "of the wheel"]


def command_lines(found, done):
    """Add the command lines of all processes, until an event is set."""
    while not done.is_set():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found.add(path.read_bytes())


def test_credentials_in_command_lines(tmp_path, base_image):
    """Anybody on the node can read the arguments of programs: no password or token of the caller is there."""
    site = example_site(tmp_path, base_image)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "nicepkg")
    secrets = {
        "PIP_EXTRA_INDEX_URL": "http://me:s3cr3tpass@127.0.0.1:9/simple",
        "HF_TOKEN": "s3cr3ttoken",
        "https_proxy": "http://me:s3cr3tproxy@127.0.0.1:9",
    }
    text = TEXT.replace("['nicepkg']", "[{'requirements': 'nicepkg', 'env': {'MINE': '${HF_TOKEN}'}}]")
    found, done = set(), threading.Event()
    watcher = threading.Thread(target=command_lines, args=(found, done))
    watcher.start()
    said = site.eb(site.easyconfig(text), check=False, **{**wheel_settings(wheels), **secrets})
    done.set()
    watcher.join()
    assert said.returncode == 0, said.stdout + said.stderr
    lines = b"\n".join(found)
    assert b"apptainer" in lines and b"nicepkg" in lines
    assert b"s3cr3t" not in lines
    assert "s3cr3t" not in said.stdout + said.stderr
