"""Scripts that need no loaded module. No image is needed."""

import re
import shutil
import subprocess

import pytest
from easybuild.easyblocks.generic.container import newest, settings
from easybuild.easyblocks.generic.container.settings import MODULE_CONF, constant, variable_lines, write_settings
from easybuild.tools.build_log import EasyBuildError
from support import CONTAINER_FILES, attempt, printed, write_program


@pytest.fixture
def root(tmp_path):
    """An installation."""
    return install(tmp_path / "root", "Mine/1.0")


def install(folder, name, *lines):
    """Write an installation with these lines in the settings of its module; return its directory."""
    for part in ("share/ebsif", "bin", "interpreter", "runscripts"):
        shutil.copytree(CONTAINER_FILES / part, folder / part)
    (folder / "interpreter/python").chmod(0o755)
    (folder / "a.sif").touch()
    text = [("module", name), ("suffix", "MINE"), ("image", "./a.sif"), ("bind", "./runscripts:/runscripts")]
    text += [("search_path", "/runscripts"), ("path", "PATH bin"), *lines]
    (folder / MODULE_CONF).write_text("".join(f"{key} {value}\n" for key, value in text))
    return folder


def kernel(root):
    """Return the command with which Jupyter starts the kernel of an installation, without the name of the file."""
    return [root / "interpreter/python", "-m", "ipykernel_launcher", "-f"]


class Runtime:
    """A runtime that prints its environment and its arguments, under either name."""

    def __init__(self, folder):
        """Write it."""
        self.folder = folder
        for name in ("apptainer", "singularity"):
            (folder / name).mkdir(parents=True)
            write_program(folder / name / name, '#!/bin/sh\n/usr/bin/env -0\nprintf "%s\\0" "$0" "$@"\n')
            # what else scripts need, without a real runtime
            for tool in ("readlink", "stat"):
                (folder / name / tool).symlink_to(shutil.which(tool))

    def run(self, *command, name="apptainer", **variables):
        """Run a command; return the environment (dict) and the arguments (list) of the runtime that it starts."""
        said = attempt([str(one) for one in command], env={"PATH": f"{self.folder}/{name}", **variables})
        assert not said.returncode, said.stderr
        words = said.stdout.split("\0")[:-1]
        start = words.index(f"{self.folder}/{name}/{name}")
        return dict(one.split("=", 1) for one in words[:start]), words[start + 1 :]


@pytest.fixture
def runtime(tmp_path):
    """A runtime."""
    return Runtime(tmp_path / "runtimes")


@pytest.mark.parametrize("name", ["apptainer", "singularity"])
def test_binds_of_a_kernel(root, runtime, tmp_path, name):
    """J-01: of person, module and connection, whatever the runtime's name; lists of a person that differ stay."""
    own = f"{root}/runscripts:/runscripts"

    def binds(**variables):
        environment, _ = runtime.run(*kernel(root), "/run/a,b/x.json", name=name, **variables)
        apptainer, singularity = (sorted(re.split(r"(?<!\\),", environment[name])) for name in both)
        return apptainer if apptainer == singularity else [apptainer, singularity]

    def expected(*items):
        return sorted([own, "/run/a\\,b", *items])

    both = [f"{one}_BINDPATH" for one in ("APPTAINER", "SINGULARITY")]
    assert binds() == expected()
    assert binds(APPTAINER_BINDPATH="/one") == binds(SINGULARITY_BINDPATH="/one") == expected("/one")
    assert binds(APPTAINER_BINDPATH="/one", SINGULARITY_BINDPATH="/two") == [expected("/one"), expected("/two")]
    # the module is loaded, and one or both have been changed since
    loaded = {"EBSIF_LOADED_MODULE": "Mine/1.0", "CONTAINERROOT": str(root), "SIF": str(root / "a.sif")}
    for first, second in ((f"{own},/x", f"{own},/x"), (f"{own},/x", ""), ("", f"{own},/x")):
        assert binds(**loaded, **dict(zip(both, (first, second)))) == expected("/x")
    # those of another module, to which the person has added; its installation is gone
    other = tmp_path / "other"
    loaded.update({"EBSIF_LOADED_MODULE": "Other/1.0", "CONTAINERROOT": str(other)})
    theirs = {
        **dict.fromkeys(both, f"/one,{other}/runscripts:/runscripts,/other,/two"),
        **dict.fromkeys([f"EBSIF_ADDED_{one}" for one in both], f"{other}/runscripts:/runscripts,/other"),
    }
    assert binds(**loaded, **theirs) == expected("/one", "/two")


def test_a_kernel_of_an_editor(root, runtime):
    """J-04: one that an editor starts with the interpreter is started like those of Jupyter."""
    python = root / "interpreter/python"
    options = ["-X", "frozen_modules=off", "-B"]
    files = ["--ip=127.0.0.1", "--f=/run/x/y.json"]
    environment, arguments = runtime.run(python, *options, "-m", "ipykernel_launcher", *files)
    start = arguments.index("/runscripts/conda-python-simple")
    assert arguments[start + 1 :] == [*options, "/runscripts/start-kernel.py", *files]
    assert environment["APPTAINER_BINDPATH"].endswith(",/run/x")
    for words in (("-m", "ipykernel", "--version"), ("-c", "pass", "-m", "ipykernel_launcher")):
        _, arguments = runtime.run(python, *words)
        assert arguments[-len(words) :] == list(words)


def test_variables_of_the_easyconfig(tmp_path):
    """J-01: 'modextravars' are set, and variables in their values replaced; unloading leaves nothing of them."""
    values = {
        "ONE": "$BASE/x:${NONE}y",
        "TWO": {"value": "$BASE  x", "resolve_env_vars": False},
        "THREE": 3,
        "FOUR": {"value": "a", "pushenv": True},
    }
    assert [constant(value) for value in values.values()] == [None, "$BASE  x", "3", None]
    root = install(tmp_path / "a, root", "Mine/1.0", *variable_lines(values))
    names = "PATH ONE TWO THREE FOUR APPTAINER_BINDPATH SIFMINE"
    show = f"for name in {names}; do echo ${{!name-none}}; done"
    script = f"source '{root}/share/ebsif/container.sh'"
    script = f"{script} load; {show}; {script} unload; {show}"
    said = printed(["bash", "-c", script], env={"PATH": "/usr/bin:/bin", "BASE": "/base"}).splitlines()
    # a comma in the path of a copy
    binds = str(root).replace(",", "\\,") + "/runscripts:/runscripts"
    set_now = ["/base/x:y", "$BASE x", "3", "a", binds, f"{root}/a.sif"]
    assert said == [f"{root}/bin:/usr/bin:/bin", *set_now, "/usr/bin:/bin", *["none"] * 6]


def test_search_paths_of_the_easyconfig(tmp_path):
    """H-02: with-module and kernels set 'modextrapaths' as `module load` does; unloading leaves nothing of them."""
    root, other = tmp_path / "root", tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    for name in ("one", "two", "empty"):
        (root / name).mkdir(parents=True)
    for name in ("one", "two"):
        (root / name / "file").touch()
    values = {
        "BEFORE": ["one", "t*", "one", "empty", "missing", str(other)],
        "PATH": "two",
        "AFTER": {"paths": ["one", "empty"], "prepend": False, "var_type": "PATH"},
    }
    lines = settings.path_lines(str(root), {"PATH": ["bin"]}, values)
    assert lines == [
        ("path", "PATH bin"),
        ("path", "BEFORE one"),
        ("path", "BEFORE two"),
        ("path", f"BEFORE {other}"),
        ("path", "PATH two"),
        ("path_append", "AFTER one"),
        ("path_append", "AFTER empty"),
    ]
    shutil.rmtree(root)
    install(root, "Mine/1.0", *lines[1:])
    for name in ("one", "two", "empty"):
        (root / name).mkdir()
    show = "echo $BEFORE $AFTER $PATH"
    script = f"source '{root}/share/ebsif/container.sh'"
    command = ["bash", "-c", f"{script} load; {show}; {script} unload; {show}"]
    said = printed(command, env={"PATH": "/usr/bin:/bin", "BEFORE": "/x", "AFTER": "/y"}).splitlines()
    searched = f"{other}:{root}/two:{root}/one:/x /y:{root}/one:{root}/empty {root}/two:{root}/bin:/usr/bin:/bin"
    assert said == [searched, "/x /y /usr/bin:/bin"]


def test_blanks_at_the_ends_of_values(tmp_path):
    """J-01: they belong to the values, as modules set them: of a prompt, for example."""
    lines = [("set", "ONE  a "), ("default", "*ENV_PS1 lumi> "), ("where", "/ TWO b "), ("expand", "THREE $BASE ")]
    root = install(tmp_path / "root", "Mine/1.0", *lines, ("set", "FOUR "))
    script = f"source '{root}/share/ebsif/container.sh'; printf '[%s]'"
    values = '"$ONE" "$APPTAINERENV_PS1" "$TWO" "$THREE" "${FOUR-none}"'
    said = printed(["bash", "-c", f"{script} {values}"], env={"PATH": "/usr/bin:/bin", "BASE": " c"})
    assert said == "[ a ][lumi> ][b ][ c ][]"


def test_settings_have_no_line_breaks(tmp_path):
    """No value of a setting becomes a line of its own."""
    with pytest.raises(EasyBuildError, match="set of the module has a line break"):
        write_settings(str(tmp_path), [("module", "A/1.0"), ("set", "A b\nset C d")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("named", "loaded"),
    [("Mine/1.0", "Mine/.1.0"), ("Mine/.1.0", "Mine/1.0"), ("Mine", "Mine/1.0"), ("Mine", "Mine/.1.0")],
)
def test_an_environment_of_a_hidden_module(tmp_path, runtime, named, loaded):
    """J-05: a kernel of an environment starts, although its module has been hidden, or made visible, since."""
    root, venv = install(tmp_path / "root", loaded), tmp_path / "venv"
    (venv / "host-bin").mkdir(parents=True)
    (venv / "host-bin/.run").touch(0o755)
    (venv / "bin").mkdir()
    (venv / "bin/activate").write_text(f"VIRTUAL_ENV={venv}\nexport VIRTUAL_ENV\ndeactivate() {{ :; }}\n")
    subprocess.run([root / "bin/extend-venv-activate", venv, named], check=True, env={"PATH": "/usr/bin:/bin"})
    environment, _ = runtime.run(*kernel(root), "x", EBSIF_VENV=str(venv))
    assert environment["APPTAINERENV_VIRTUAL_ENV"] == str(venv)


def test_deactivation_removes_each_function_once(root, tmp_path):
    """S003-16: zsh, unlike bash, complains about a function that isn't there any more."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/activate").touch()
    subprocess.run([root / "bin/extend-venv-activate", venv, "Mine/1.0"], check=True, env={"PATH": "/usr/bin:/bin"})
    script = """
        module() { LOADEDMODULES=Mine/1.0 EBSIF_LOADED_MODULE=Mine/1.0; }
        unset() {
            [[ $1 != -f ]] || declare -F "${@:2}" >/dev/null || echo "one of these isn't there: ${*:2}"
            builtin unset "$@"
        }
        for number in 1 2; do source "$1/bin/activate"; source "$1/bin/activate"; deactivate; done
        declare -F deactivate || echo gone
    """
    done = attempt(["bash", "-c", script, "bash", venv], env={"PATH": "/usr/bin:/bin"})
    assert (done.stdout, done.stderr) == ("gone\n", "")


def test_an_environment_of_another_module(root, tmp_path):
    """J-05: the message names both modules."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "host-bin").mkdir()
    (venv / "host-bin/.run").touch(0o755)
    text = (root / "share/ebsif/activate.sh").read_text()
    (venv / "bin/activate").write_text(f"_EBSIF_MODULE=Other/1.0 _EBSIF_VENV={venv} _EBSIF_USE=\n{text}")
    result = attempt([root / "bin/with-module", "echo", "x"], env={"PATH": "/usr/bin:/bin", "EBSIF_VENV": str(venv)})
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"with-module: the environment {venv} belongs to the module Other/1.0, not to Mine/1.0\n"


@pytest.mark.parametrize(
    ("written", "loaded", "belongs"),
    [
        ("Mine/1.0 _EBSIF_NEWEST=", "Mine/1.0", True),
        ("Mine/1.0 _EBSIF_NEWEST=", "Mine/.1.0", True),
        ("Mine/1.0-own _EBSIF_NEWEST=yes", "Mine/1.0-own-20261122", True),
        ("Mine/1.0-own _EBSIF_NEWEST=yes", "Mine/.1.0-own-20261122.2", True),
        # of --date
        ("Mine/1.0-own _EBSIF_NEWEST=yes", "Mine/1.0-own-first", True),
        ("Mine/1.0-own _EBSIF_NEWEST=yes", "Mine/1.0-own-2026_11.3", True),
        # an extension of it, one of another name, and another container, whose version begins alike
        ("Mine/1.0-own _EBSIF_NEWEST=yes", "Mine/1.0-own-20261122-more-20261122", False),
        ("Mine/1.0-own _EBSIF_NEWEST=yes", "Mine/1.0-owner-20261122", False),
        ("Mine/1.0 _EBSIF_NEWEST=", "Mine/1.0-20261122", False),
    ],
)
def test_which_module_an_environment_belongs_to(tmp_path, written, loaded, belongs):
    """V-07, S003-18: a name without its date means any extension of that name, whatever its date, and nothing else."""
    _, dash, date = loaded.replace("/.", "/").removeprefix(written.split()[0]).partition("-")
    assert not dash or not belongs or re.fullmatch(newest.DATE, date)
    root, venv = install(tmp_path / "root", loaded), tmp_path / "venv"
    (venv / "host-bin").mkdir(parents=True)
    (venv / "bin").mkdir()
    write_program(venv / "host-bin/.run", "#!/bin/sh\n")
    text = (root / "share/ebsif/activate.sh").read_text()
    (venv / "bin/activate").write_text(f"_EBSIF_MODULE={written} _EBSIF_VENV={venv} _EBSIF_SITE= _EBSIF_USE=\n{text}")
    variables = {"PATH": "/usr/bin:/bin", "EBSIF_VENV": str(venv)}
    done = attempt([root / "bin/with-module", "printenv", "APPTAINERENV_VIRTUAL_ENV"], env=variables)
    assert done.stdout == f"{venv}\n" * belongs
    assert ("belongs to the module" in done.stderr) == (not belongs)


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        ("--nosuch", 64, "--nosuch is not an option of with-module: begin with a command"),
        ("nosuch", 127, "there is no command nosuch on PATH: check the spelling"),
    ],
)
def test_what_is_no_command(root, command, status, expected):
    """J-01, N-07: with-module says what is wrong itself, not bash with a line of the script."""
    done = attempt([root / "bin/with-module", command], env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"with-module: {expected}")
