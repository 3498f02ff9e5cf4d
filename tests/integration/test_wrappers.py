"""Wrappers: programs of the container as commands of the module, for every way to use programs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from account import OWN_MOUNTS
from parts import TOOLS, Installed, wheel_settings
from support import CONTAINER_FILES, Site, heed_signals, make_wheel, words_of_scripts, write_program

TOOL_TEXT = """
import os, sys

def main():
    print(os.environ.get("APPTAINER_NAME"), os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd())
"""


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory, base_image):
    """A site in a directory with a blank; its module has wrappers for all of the venv and two programs of the image."""
    folder = tmp_path_factory.mktemp("wrapped") / "a place"
    folder.mkdir()
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    wheels = tmp_path_factory.mktemp("wheels")
    make_wheel(wheels, "mytool", module_text=TOOL_TEXT, scripts={"mytool": "mytool:main"})
    text = Installed.TEXT + "requirements = ['mytool']\nwrappers = ['all', 'git', 'sleep']\n"
    text += "container_env = {'COLOUR': 'red'}\n"
    site.eb(site.easyconfig(text), **wheel_settings(wheels))
    return site


def loaded(site, script, check=True, **options):
    """Run a bash script with the module loaded; return the CompletedProcess."""
    return site.bash(f"module load Example/1.0 || exit 99\n{script}", check, **options)


def test_every_program_of_the_venv_has_a_wrapper(wrapped):
    """S001-06: wrappers = all: every program of the venv and those named; none for activation scripts."""
    root = wrapped.prefix / "eb/software/Example/1.0"
    names = {path.name for path in (root / "bin").iterdir()}
    ours = {"start-shell", "list-packages", "make-squashfs", "unmake-squashfs"}
    assert {"python", "python3", "python3.11", "pip", "pip3", "mytool", "git", "sleep"} <= names
    assert not [name for name in names - ours if name.lower().startswith("activate")]


@pytest.mark.parametrize(
    "arguments", [[], ["a b", "", "*", "$HOME `id` $(id)", "--", "-x", "'\"\\", "line\nbreak", "ü"]]
)
def test_arguments_and_directory_pass_through(wrapped, arguments):
    """S002-24: arguments, working directory and program name are unchanged."""
    script = f"{wrapped.tool.init}\nmodule use '{wrapped.modules}'\nmodule load Example/1.0\nexec mytool \"$@\""
    result = wrapped.run(["bash", "--noprofile", "--norc", "-c", script, "bash", *arguments])
    assert result.stdout == f"example.sif mytool {arguments!r} {wrapped.work}\n"
    assert result.stderr == ""


WAYS = {
    "exec": 'singularity exec "$SIF" python find.py',
    "shell": "echo 'python find.py' | singularity shell \"$SIF\"",
    "start-shell": "start-shell -c 'python find.py'",
    "wrapper": "python find.py",
    "distributed run": 'singularity exec "$SIF" conda-python-distributed find.py',
}


def test_packages_in_the_home_directory_are_not_used(wrapped, base_image, tmp_path):
    """
    S002-41, tests: packages in ~/.local are not visible, however Python is started, except in the plain image.

    Nor are they if the user's PYTHONUSERBASE names that directory.
    """
    folder = tmp_path / ".local/lib/python3.11/site-packages"
    folder.mkdir(parents=True)
    for name in ("only_there", "mytool", "numpy"):
        (folder / f"{name}.py").write_text("raise SystemExit('shadow')\n")
    (wrapped.work / "find.py").write_text(
        "import importlib.util, mytool, numpy\nprint(importlib.util.find_spec('only_there'), mytool.__file__)\n"
    )
    python = ["/opt/miniconda3/envs/pytorch/bin/python3", "-c", "import only_there"]
    plain = wrapped.run(["apptainer", "exec", base_image, *python], check=False, APPTAINER_HOME=tmp_path)
    assert "shadow" in plain.stderr
    for way, command in WAYS.items():
        result = loaded(
            wrapped, command, check=False, APPTAINER_HOME=tmp_path, APPTAINERENV_PYTHONUSERBASE=tmp_path / ".local"
        )
        assert re.match(r"None /user-software/venv/pytorch/lib/\S+/mytool.py$", result.stdout), (way, result)


def test_input_and_status_pass_through(wrapped):
    """S002-24: standard input, standard error and exit status are unchanged; nothing is added."""
    code = "import sys; sys.stderr.write(sys.stdin.read().upper()); sys.exit(37)"
    result = loaded(wrapped, f"printf 'some text' | python -c '{code}'", check=False)
    assert (result.returncode, result.stdout, result.stderr) == (37, "", "SOME TEXT")


def processes(marker):
    """Return the processes whose command line matches a pattern, except this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text(errors="replace").replace("\0", " ")
        except OSError:  # it has ended
            continue
        if re.search(marker, words) and path.parent.name != str(os.getpid()):
            found.append(path.parent.name)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_leave_no_process(wrapped, number):
    """S002-24: SIGTERM and SIGINT reach the program; after them, or SIGKILL of all, no process is left."""
    marker = f"99{number:03d}{os.getpid()}"
    script = f"{wrapped.tool.init}\nmodule use '{wrapped.modules}'\nmodule load Example/1.0\nexec sleep {marker}"
    command = ["bash", "--noprofile", "--norc", "-c", script]
    job = subprocess.Popen(command, env=wrapped.environment, start_new_session=True, preexec_fn=heed_signals)
    try:
        assert eventually(lambda: processes(f"^(/usr/bin/)?sleep {marker}"))
        # a scheduler kills all processes of a step
        (os.killpg if number == signal.SIGKILL else os.kill)(job.pid, number)
        assert job.wait(timeout=300) != 0
        assert eventually(lambda: not processes(marker))
    finally:
        if processes(marker):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait(timeout=300)


def eventually(condition):
    """Return whether a condition becomes true within ten seconds."""
    for _ in range(100):
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_python_works_through_its_wrapper(wrapped):
    """sys.executable, multiprocessing with spawn, python -m venv and child processes work."""
    program = wrapped.work / "spawn.py"
    program.write_text(
        "import multiprocessing, subprocess, sys\n"
        "def square(x):\n    return x * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        print(pool.map(square, [1, 2, 3]))\n"
        "    print(sys.executable)\n"
        "    print(subprocess.run([sys.executable, '-c', 'import mytool; print(1)'], capture_output=True).stdout)\n"
    )
    script = "python spawn.py && python -m venv --without-pip made && ls made/bin/python"
    output = loaded(wrapped, script).stdout.splitlines()
    assert output == ["[1, 4, 9]", "/user-software/venv/pytorch/bin/python", "b'1\\n'", "made/bin/python"]


def test_environments_that_a_wrapper_does_not_use(wrapped, tmp_path):
    """user 6e: `python -m venv` says that its programs don't work on the host, and so does a wrapper found instead."""
    script = "python -m venv --without-pip {0} && source {0}/bin/activate && python -c 'import sys; print(sys.prefix)'"
    result = loaded(wrapped, script.format(tmp_path / "lost"))
    assert result.stdout == "/user-software/venv/pytorch\n"
    assert re.match(
        r"python: programs of this environment work in the container only; make-venv .*\n"
        rf"python: the environment {tmp_path}/lost is not used: .*make-venv.*\n$",
        result.stderr,
    )
    script = (
        "make-venv {0} 2>{0}.log && source {0}/bin/activate && sleep 0 && python -c 'import sys; print(sys.prefix)'"
    )
    result = loaded(wrapped, script.format(tmp_path / "mine"))
    assert (result.stdout, result.stderr) == (f"{tmp_path}/mine\n", "")
    # the host's, of which nothing is hidden
    (tmp_path / "host/bin").mkdir(parents=True)
    (tmp_path / "host/bin/python").symlink_to(sys.executable)
    assert loaded(wrapped, "python -V", VIRTUAL_ENV=tmp_path / "host").stderr == ""


def test_wrappers_in_the_container(wrapped):
    """Inside the container a wrapper runs the program; in another container it prints an error."""
    root = wrapped.prefix / "eb/software/Example/1.0"
    bind = f"singularity exec -B '{wrapped.prefix}' \"$SIF\""
    output = loaded(wrapped, f"{bind} '{root}/bin/python' -c 'import sys; print(sys.prefix)'").stdout
    assert output.strip() == "/user-software/venv/pytorch"
    other = wrapped.sources / "other.sif"
    if not other.exists():
        other.symlink_to((wrapped.sources / "example.sif").resolve())
    result = loaded(wrapped, f"singularity exec -B '{wrapped.prefix}' '{other}' '{root}/bin/python' -V", check=False)
    assert result.returncode == 1 and "this is another container" in result.stderr
    # the same image, started by another path
    link = wrapped.sources / "link.sif"
    if not link.exists():
        link.symlink_to(root / "example.sif")
    bind = f"singularity exec -B '{wrapped.prefix}' '{link}'"
    assert loaded(wrapped, f"{bind} '{root}/bin/python' -c 'import sys; print(sys.prefix)'").stdout == output


def test_the_users_binds_and_variables_are_respected(wrapped, tmp_path):
    """S002-56, S002-07: a user's binds and variables, set before or after loading, apply; the module's binds stay."""
    (tmp_path / "mine").write_text("mine")
    show = "sh -c 'cat /opt/mine && test -x /runscripts/get-master && echo $COLOUR'"
    settings = {"APPTAINER_BIND": f"{tmp_path}:/opt", "SINGULARITY_BIND": f"{tmp_path}:/opt"}
    # binds over /opt hide its Conda, so sh is used
    assert loaded(wrapped, f'singularity exec "$SIF" {show}', **settings).stdout == "minered\n"
    for prefix in ("APPTAINER", "SINGULARITY"):
        settings = {f"{prefix}ENV_COLOUR": "blue"}
        script = f"singularity exec \"$SIF\" sh -c 'echo $COLOUR'; module unload Example; echo ${prefix}ENV_COLOUR"
        assert loaded(wrapped, script, **settings).stdout == "blue\nblue\n"
    show = "python -c 'import os; print(os.environ[\"COLOUR\"])'"
    assert loaded(wrapped, f"export {{APPTAINER,SINGULARITY}}ENV_COLOUR=green; {show}").stdout == "green\n"


def test_settings_of_the_hosts_python(wrapped, tmp_path):
    """S003-14: PYTHONPATH and PYTHONUSERBASE of the host do not affect programs run by a wrapper."""
    (tmp_path / "mytool.py").write_text("raise SystemExit('the wrong one')\n")
    settings = {"PYTHONPATH": tmp_path, "PYTHONUSERBASE": tmp_path, "PYTHONHOME": tmp_path}
    assert loaded(wrapped, "python -c 'import mytool; print(mytool.__file__)'", **settings).stdout.startswith("/user-")


@pytest.mark.parametrize("command", ["python -V", "start-shell -c true"])
def test_changes_after_loading_are_explained(wrapped, command):
    """S002-37: image or user software missing since loading: "reload" instead of the runtime's message."""
    root = wrapped.prefix / "eb/software/Example/1.0"
    for name in ("user-software.squashfs", "example.sif"):
        script = f"mv '{root}/{name}' '{root}/away'; {command}; s=$?; mv '{root}/away' '{root}/{name}'; exit $s"
        result = loaded(wrapped, script, check=False)
        assert result.returncode == 1 and "reload the module" in result.stderr
        assert "FATAL" not in result.stderr
    result = wrapped.bash(f"'{root}'/bin/{command}", check=False)
    assert result.returncode == 1 and "load the module of this container first" in result.stderr
    (alone,) = re.findall("put (.*/bin/with-module) before the command", result.stderr)
    assert wrapped.bash(f"{alone} '{root}'/bin/{command}").returncode == 0


def test_a_wrapper_through_a_link(wrapped, tmp_path):
    """A link to a wrapper finds the installation; a copied installation uses its own files."""
    root = wrapped.prefix / "eb/software/Example/1.0"
    (tmp_path / "python3").symlink_to(root / "bin" / "python3")
    assert loaded(wrapped, f"'{tmp_path}/python3' -c 'import mytool; print(1)'").stdout == "1\n"
    (tmp_path / "copy").mkdir()
    subprocess.run(["cp", "-r", root / "bin", root / "share", tmp_path / "copy"], check=True)
    result = loaded(wrapped, f"'{tmp_path}/copy/bin/python' -V", check=False)
    assert result.returncode == 1 and "the loaded module belongs to" in result.stderr


def test_the_gpu_is_used_where_there_is_one(site, wheels, tmp_path):
    """
    L-07, S004-18, S003-01, S000-15: the runtime's option for this kind of GPU, if the device exists.

    Module, wrapper and `ebsif interpreter --command` agree; none has it without that GPU, or if it's disabled. Stages
    are installed with either kind.
    """
    text = (
        f"sources = ['example.sif']\nimage = 'central'\nimage_dirs = ['{site.sources}']\n"
        "init = 'conda-injected'\nconda_env = 'pytorch'\nwrappers = ['python']\n"
    )
    stages = "requirements = [{'requirements': ['hello'], 'verify': ['python -c \"import hello\"']}]\n"
    kinds = {
        "-rocm": "gpu = 'rocm'\n",
        "-cuda": "gpu = 'cuda'\n" + stages,
        "-off": "gpu = 'rocm'\ngpu_option = False\n",
        "-cpu": "",
    }
    # without user software unless there are requirements
    paths = [
        site.easyconfig(("" if stages in more else "easyblock = 'ContainerInstall'\n") + text + more, suffix=suffix)
        for suffix, more in kinds.items()
    ]
    site.eb(*paths, **wheel_settings(wheels))
    fake = tmp_path / "bin"
    fake.mkdir()
    write_program(fake / "apptainer", '#!/bin/sh\necho "$@"\n')
    script = f"""
        {site.tool.init}
        module use '{site.modules}'
        PATH={fake}:$PATH
        for suffix in {" ".join(kinds)}; do
            echo $suffix
            ebsif interpreter --command Example/1.0$suffix
            module load Example/1.0$suffix
            python -V
            env | grep -E '_(ROCM|NV)='
            module unload Example
        done
    """

    def options(devices):
        """Return each module's GPU options and variables on a node with these devices."""
        # that file only, in a separate mount namespace; the tests may write below /dev/shm
        make = (
            "mount --rbind /dev/shm /mnt && mount -t tmpfs none /dev && mkdir /dev/shm && "
            f'mount --rbind /mnt /dev/shm && touch {devices} && exec bash --noprofile --norc -c "$1"'
        )
        output = site.run([*OWN_MOUNTS, "sh", "-c", make, "sh", script], check=False).stdout
        parts = re.split(r"^(-\w+)$", output, flags=re.MULTILINE)[1:]
        assert output.count("-V") == len(kinds)
        found = {
            suffix: re.findall(r"--rocm|--nv|\w+_(?:ROCM|NV)=1", part) for suffix, part in zip(parts[::2], parts[1::2])
        }
        return {suffix: sorted(words) for suffix, words in found.items() if words}

    assert options("/dev/null") == {}
    # from `ebsif interpreter --command`, the wrapper and the module
    assert options("/dev/kfd") == {"-rocm": ["--rocm", "--rocm", "APPTAINER_ROCM=1", "SINGULARITY_ROCM=1"]}
    assert options("/dev/nvidiactl") == {"-cuda": ["--nv", "--nv", "APPTAINER_NV=1", "SINGULARITY_NV=1"]}


# Programs in user software: the interpreter is found by the kernel, by env, by sh; it is there.
BROKEN = [
    f"printf '{text}' >$VIRTUAL_ENV/bin/{name}; chmod +x $VIRTUAL_ENV/bin/{name}"
    for name, text in (
        ("moved", "#!/nowhere/python\\n"),
        ("lost", "#!/usr/bin/env no-python\\n"),
        ("long", "#!/bin/sh\\n\\047\\047\\047exec\\047 \\042/no where/python\\042 \\042$0\\042\\n"),
        ("fine", "#!/usr/bin/env -S bash -p\\n"),
    )
]


def test_wrong_wrappers_are_reported(site):
    """
    F-12: each is started once; the error names the wrapper and the reason.

    Tests that need no image are in tests/unit/test_parameters.py.
    """
    plain = "easyblock = 'ContainerInstall'\n" + Installed.TEXT.replace("venv_name = 'pytorch'\n", "")
    ours = [{"post": ["ln -s /bin/bash $VIRTUAL_ENV/bin/start-shell"]}]
    texts = {
        "unknown": f"{plain}wrappers = ['no-such-program']\n",
        "ours": f"{Installed.TEXT}wrappers = ['start-shell']\nrequirements = {ours}\n",
        "broken": f"{Installed.TEXT}wrappers = 'all'\nrequirements = {[{'post': BROKEN}]}\n",
    }
    results = site.eb_each(texts)
    said = " ".join(results["broken"].stdout.split())
    assert results["broken"].returncode and "copying" not in said
    for name, interpreter in (("moved", "/nowhere/python"), ("lost", "no-python"), ("long", "/no where/python")):
        wrong = f"'{name}' can't be started in the container: its interpreter {interpreter} is not there"
        assert (wrong in said) == (name != "moved"), name
    assert "'moved' can't be started in the container: env: " in said
    assert "'fine'" not in said
    for name, expected in (
        ("unknown", "the container has no program named 'no-such-program'"),
        ("ours", "'start-shell' is a command of the module itself"),
    ):
        assert results[name].returncode != 0
        assert expected in " ".join(results[name].stdout.split())


# Prints the variables in NAMES whose value is not the one that the caller has set.
CHANGED = "import os; print([name for name in os.environ['NAMES'].split() if os.environ.get(name) != 'of ' + name])"


@pytest.mark.parametrize(
    "command",
    [
        "python",
        '"$CONTAINERROOT/interpreter/python"',
        '"$CONTAINERROOT/bin/with-module" python',
        "start-shell -c 'exec python \"$@\"' python",
        'singularity exec "$SIF" conda-python-simple',
        'singularity exec "$SIF" conda-python-distributed',
        '"$RUNSCRIPTS/stage-software" --use python',
        '. {jobs}/job.bash none x && job_signal end && job_run singularity exec "$SIF" python',
        "make-venv {venv} >&2 && . {venv}/bin/activate && python",
        'start-shell -c \'"$0" "$@"\' python',
    ],
)
def test_variables_that_scripts_have_too(wrapped, tmp_path, command):
    """admin: each word of our scripts may be the name of a variable of the person's, which programs get unchanged."""
    names = words_of_scripts()
    assert len(names) > 300
    prelude = 'for NAME in $NAMES; do export "$NAME=of $NAME"; done\n'
    # with a scheduler that needs no variables
    (tmp_path / "schedulers").mkdir()
    (tmp_path / "schedulers/none.bash").write_text("none_job() { ebsif_job=1; }\n")
    shutil.copy(CONTAINER_FILES / "runscripts/job.bash", tmp_path)
    plain, ours = (
        loaded(wrapped, f'{prelude}{words} -c "$CODE"', NAMES=" ".join(names), CODE=CHANGED).stdout
        for words in ('singularity exec "$SIF" python', command.format(venv=tmp_path / "venv", jobs=tmp_path))
    )
    assert ours == plain
