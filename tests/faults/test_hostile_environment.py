"""Variables, functions and files in a user's environment don't change what wrappers and installations run."""

import os
import shutil

import pytest
from parts import Installed, example_site, wheel_settings
from support import attempt, record_of, write_program

TEXT = Installed.TEXT
FUNCTIONS = """
    singularity apptainer exec hash source printf unset readlink command type local mksquashfs unsquashfs python pip
    find chmod mv tail mktemp shift return
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory, base_image, wheels):
    """A site whose module has a wrapper for python."""
    site = example_site(tmp_path_factory.mktemp("used"), base_image)
    site.eb(site.easyconfig(TEXT + "requirements = ['hello']\nwrappers = ['python']\n"), **wheel_settings(wheels))
    return site


def traps(folder):
    """Create programs, modules and files that record who runs them; return the record and variables with paths."""
    folder.mkdir()
    log = folder / "log"
    log.touch()
    log.chmod(0o666)

    def tell(what):
        return f"builtin echo '{what}' \"$0 container=$([ ! -e /.singularity.d ] || builtin echo yes)\" >>{log}"

    (folder / "bash_env").write_text(tell("BASH_ENV") + "\n")
    (folder / "sitecustomize.py").write_text(f"import sys\nprint('site', sys.argv, file=open({str(log)!r}, 'a'))\n")
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "python3", "pip", "sh", "bash", "env"):
        write_program(programs / name, f"#!/bin/bash\n{tell('PATH')}\nexit 1\n")
    variables = {
        "BASH_ENV": folder / "bash_env",
        "ENV": folder / "bash_env",
        "IFS": "/",
        "CDPATH": str(folder),
        "GLOBIGNORE": "*",
        "PS4": f"$({tell('PS4')})",
        "PYTHONPATH": folder,
        "PYTHONSTARTUP": folder / "sitecustomize.py",
        "PYTHONHOME": folder,
        "PYTHONUSERBASE": folder,
        "LD_PRELOAD": "/lib/x86_64-linux-gnu/libutil.so.1",
        "PROMPT_COMMAND": tell("PROMPT_COMMAND"),
        **{f"BASH_FUNC_{name}%%": f"() {{ {tell(f'function {name}')}; }}" for name in FUNCTIONS.split()},
    }
    return log, {name: str(value) for name, value in variables.items()}, programs


def run_with(site, script, variables, programs=None):
    """Load the module, then run a command in an environment with these variables."""
    # `env` sets them, because the user's own bash is the user's responsibility
    settings = [f"{name}={value}" for name, value in variables.items()]
    if programs:
        settings.append(f"PATH={programs}:{os.environ['PATH']}")
    prelude = f"{site.tool.init}\nmodule use '{site.modules}'\nmodule load Example/1.0\n"
    line = 'root=$CONTAINERROOT; command=$1; shift; exec /usr/bin/env "$@" "$root/bin/$command" "${words[@]}"'
    command = ["bash", "--noprofile", "--norc", "-c", f"{prelude}{script}\n{line}", "bash", *settings]
    return site.run(command, check=False)


PRINT = 'import sys, os; print(sys.executable, os.environ.get(\\"LD_PRELOAD\\"))'
COMMANDS = {
    "python": f'words=(-c "{PRINT}"); set -- python "$@"',
    # exported functions of the user are in the user's own shell
    "start-shell": "words=(-c '/bin/echo $LD_PRELOAD $0; /usr/bin/which python'); set -- start-shell \"$@\"",
    "list-packages": 'words=(); set -- list-packages "$@"',
    "make-squashfs": 'words=(); set -- make-squashfs "$@"',
    "unmake-squashfs": 'words=(); set -- unmake-squashfs "$@"',
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_of_the_module(used, tmp_path, fault, name):
    """
    None of it runs, inside or outside the container; the result is that of a clean environment.

    All variables are set at once, except two that could hide the effect of others.
    """
    log, variables, _ = traps(tmp_path / "traps")
    expected = run_with(used, COMMANDS[name], {})
    alone = {variable: {variable: variables.pop(variable)} for variable in ("IFS", "PYTHONHOME")}
    for what, some in {"everything": variables, **alone}.items():
        if what.startswith("PYTHON") and name.endswith("squashfs"):
            continue
        case = fault("hostile environment of commands", f"{name} with {what}")
        shutil.rmtree(used.prefix / "eb/software/Example/1.0/user-software", ignore_errors=True)
        result = run_with(used, COMMANDS[name], some)
        case.kept(
            (result.returncode, result.stdout) == (expected.returncode, expected.stdout),
            f"{result.returncode} {result.stdout} {result.stderr}",
        )
        case.kept(log.read_text() == "", log.read_text())
        log.write_text("")


def test_the_hosts_path(used, tmp_path, fault):
    """The container runs no programs from the host's PATH, even if it can see the directory."""
    log, _, programs = traps(tmp_path / "traps")
    case = fault("hostile environment of commands", "python with PATH")
    result = run_with(used, COMMANDS["python"], {"APPTAINER_BIND": str(tmp_path)}, programs)
    case.kept(result.stdout.startswith("/user-software/venv/"), result.stdout + result.stderr)
    case.kept("container=yes" not in log.read_text(), log.read_text())


def test_intended_settings(used, fault):
    """A variable for the container, a bind and another runtime first on PATH are the user's choice and apply."""
    case = fault("hostile environment of commands", "what is meant")
    words = 'words=(-c \'import os; print(os.environ["LD_AUDIT"], os.path.isdir("/meant"))\'); set -- python "$@"'
    result = run_with(used, words, {"APPTAINERENV_LD_AUDIT": "", "APPTAINER_BIND": "/usr/share:/meant"})
    case.kept(result.stdout == " True\n", result.stdout + result.stderr)


def test_an_installation(site, used, wheels, tmp_path, fault):
    """The result is identical byte for byte, and only eb itself has run any of it."""
    log, variables, _ = traps(tmp_path / "traps")
    # these would stop eb before it starts
    for name in ("PYTHONHOME", "PYTHONPATH", "IFS"):
        del variables[name]
    variables = {
        name: value
        for name, value in variables.items()
        if not name.startswith("BASH_FUNC_")
        or name in ("BASH_FUNC_singularity%%", "BASH_FUNC_apptainer%%", "BASH_FUNC_mksquashfs%%", "BASH_FUNC_pip%%")
    }
    variables.update(
        {
            "APPTAINER_BIND": f"{tmp_path}:/opt/miniconda3",
            "SINGULARITY_OVERLAY": str(tmp_path),
            "APPTAINER_CLEANENV": "1",
            "APPTAINERENV_PREPEND_PATH": str(tmp_path / "traps/bin"),
            "SINGULARITYENV_PYTHONPATH": str(tmp_path / "traps"),
            "PIP_TARGET": str(tmp_path),
            "PIP_PREFIX": str(tmp_path),
            "PIP_USER": "1",
            "PIP_DRY_RUN": "1",
            "EBSIF_USER_SOFTWARE": str(tmp_path),
            "VIRTUAL_ENV": str(tmp_path),
            "CONDA_PREFIX": str(tmp_path),
        }
    )
    case = fault("hostile environment of an installation", "everything at once")
    text = site.easyconfig(TEXT + "requirements = ['hello']\nwrappers = ['python']\n")
    result = site.eb(text, check=False, **wheel_settings(wheels), **variables)
    case.kept(result.returncode == 0, result.stdout[-1500:] + result.stderr)
    said = [line for line in log.read_text().splitlines() if "container=yes" in line or "squashfs" in line]
    case.kept(said == [], said)

    def installed(one):
        root = one.prefix / "eb/software/Example/1.0"
        lock = record_of(root)
        return lock["image_packages"], lock["venv_packages"], lock["user_software"]

    case.kept(installed(site) == installed(used), installed(site))


def test_run_scripts_in_the_container(used, tmp_path, fault):
    """list-packages and get-master print the same in the container, whatever the shell has inherited."""
    log, variables, _ = traps(tmp_path / "traps")
    script = "module load Example/1.0\nsingularity exec $SIF list-packages"
    expected = used.bash(script).stdout
    # they are bash scripts run by the image's bash; only functions and BASH_ENV affect them
    for name in ("BASH_ENV", "BASH_FUNC_exec%%", "IFS"):
        case = fault("hostile environment of run scripts", name)
        line = (
            f"{used.tool.init}\nmodule use {used.modules}\nmodule load Example/1.0\n"
            'exec /usr/bin/env "$1" "$(type -P singularity)" exec "$SIF" list-packages'
        )
        command = ["bash", "--noprofile", "--norc", "-c", line, "bash", f"{name}={variables[name]}"]
        result = used.run(command, check=False)
        case.kept(result.stdout == expected, result.stdout + result.stderr)
        case.kept(log.read_text() == "", log.read_text())
        log.write_text("")


def test_the_first_line_of_scripts():
    """Scripts that users start tell bash to ignore the environment (-p); images may have no bash for the others."""
    from support import CONTAINER_FILES

    # a Python program, which one of them starts
    paths = [*(CONTAINER_FILES / "bin").iterdir(), *(CONTAINER_FILES / "runscripts").rglob("*")]
    for path in [path for path in paths if path.is_file() and path.suffix not in (".py", ".pyc", ".conf")]:
        first = path.read_text().splitlines()[0]
        # files with a suffix are read by scripts
        assert (
            first in ("#!/bin/bash -p", "# shellcheck shell=bash")
            or path.suffix in (".bash", ".sh")
            or (path.name in ("find-caches", "remove-caches") and first == "#!/bin/sh")
        ), path
    result = attempt(["/bin/bash", "-p", "-c", "f"], env={"BASH_FUNC_f%%": "() { echo in; }"})
    assert result.stdout == ""
