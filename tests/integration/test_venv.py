"""A user's environment on top of a module: make-venv and extend-venv-activate."""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from account import OWN_MOUNTS
from parts import TOOLS
from support import CONTAINER_FILES, Site, attempt, make_native_sdist, make_sdist, make_wheel, write_program

# prints everything in the shell that activation may change, on one line
SHOW = 'printf "%s|" "$PATH" "${PYTHONPATH-unset}" "${SIF-none}" "$LOADEDMODULES" "$(declare -f deactivate)"; echo'


# ignored: variables of the modules tools, and PS1, which Python's activation script sets
# Python's own text
NOT_OURS = "^((_|OLDPWD|_ModuleTable|__LMOD|__MODULES|BASH_FUNC|PS1)[^=]*=|(LOADEDMODULES|_LMFILES_)=$)"
WHOLE = rf"env -0 | grep -zvE '{NOT_OURS}' | sort -z | tr '\0\n' '| '; echo"


@pytest.fixture(scope="session")
def environments(prefix, installations):
    """A function that makes an environment on top of a tool's module, once: modules, path, commands to use it."""

    def make(tool):
        place, env = installations(tool), prefix / f"env of {tool}"
        said = place.load(place.WRITABLE, f"cd /tmp && make-venv '{env}'").stderr
        return place, env, said.rpartition("to use it: ")[2]

    return functools.cache(make)


@pytest.fixture(params=["Lmod-Lua", "EnvironmentModules-Tcl"])
def environment(request, environments):
    """The installed modules and an environment on top, for each modules tool."""
    return environments(request.param)


@pytest.fixture
def folder(tmp_path):
    """A folder with tiny wheels: some that fit the image and some that don't."""
    wheels = tmp_path / "own wheels"
    wheels.mkdir()
    make_wheel(wheels, "mine", module_text="def main():\n    print('in', __file__)\n", scripts={"mytool": "mine:main"})
    make_wheel(wheels, "fits", requires=["numpy"])
    make_wheel(wheels, "wants", requires=["numpy >= 99"])
    make_wheel(wheels, "numpy", version="99.0")
    return wheels


def pip_options(folder):
    """Return shell variables that make pip and uv use only that folder."""
    return f"--no-index --find-links {shlex.quote(str(folder))}"


def test_an_environment_on_top_of_the_module(environment, folder):
    """S003-16, S003-18: activation loads the module; its programs run in the container; deactivation undoes it all."""
    place, env, use = environment
    pip = f"pip install {pip_options(folder)}"
    script = f"""
        export PYTHONPATH=/somewhere
        {SHOW}
        {use}
        {pip} mine >/dev/null
        mytool
        python -c 'import sys, numpy, mine; print(sys.prefix, numpy.__file__)'
        deactivate
        {SHOW}
        source '{env}/bin/activate'
        source '{env}/bin/activate'
        mytool
        deactivate
        {SHOW}
        type mytool || true
    """
    # the wheels are below the tests' directory, which is bound because /tmp is
    lines = place.site.bash(script).stdout.splitlines()
    before, tool, python, after, again, last = lines
    assert tool == again == f"in {env}/lib/python3.11/site-packages/mine.py"
    assert python.startswith(f"{env} /opt/miniconda3/")
    assert before == after == last


def test_everything_in_the_container_uses_the_environment(installed_once, tmp_path, folder):
    """G-02: variables, child processes, start-shell, exec, uv: nothing is installed into the module."""
    place = installed_once
    program = tmp_path / "program.py"
    program.write_text("""if True:
        import os, shutil, subprocess, sys
        print(os.environ['VIRTUAL_ENV'], shutil.which('python'), shutil.which('pip'), flush=True)
        if sys.argv[1:]:
            subprocess.run(sys.argv[1], shell=True, check=True)
    """)
    user_software = place.root(place.WRITABLE) / "user-software"
    before = sorted(path for path in user_software.rglob("*") if "__pycache__" not in path.parts)
    env = f"{tmp_path}/env"
    script = f"""
        set -e
        make-venv {env}
        cp "{os.environ["EBSIF_TEST_UV"]}" {env}/bin/uv
        source {env}/bin/activate
        export pip="pip install -q {pip_options(folder)} mine"
        python {program} 'python {program}; eval "$pip"'
        start-shell -c 'echo $VIRTUAL_ENV $(which python pip)'
        singularity exec $SIF which python
        uv pip install -q {pip_options(folder)} fits
        singularity exec $SIF python -c 'import mine, fits; print(mine.__file__, fits.__file__)'
        deactivate
        echo ${{SIF-none}}
    """
    result = place.load(place.WRITABLE, script)
    site_packages = f"{env}/lib/python3.11/site-packages"
    assert result.stdout.splitlines() == [
        *[f"{env} {env}/bin/python {env}/bin/pip"] * 3,
        f"{env}/bin/python",
        f"{site_packages}/mine.py {site_packages}/fits.py",
        "none",
    ], result.stderr
    assert sorted(path for path in user_software.rglob("*") if "__pycache__" not in path.parts) == before


def test_deactivation_restores_the_environment(environment, tmp_path):
    """
    G-02: all variables are restored, the module unloaded: loaded before or not, twice, unloaded meanwhile.

    Also in a shell that another one has started with the environment active.
    """
    place, env, _ = environment
    show = tmp_path / "show"
    show.write_text(WHOLE)
    activate, unload = 'source "$own/bin/activate"', f"module unload {place.WRITABLE}"
    own = "export APPTAINERENV_PREPEND_PATH=/a/b PYTHONPATH=/c"
    cases = {
        "no module": (":", ":", ":"),
        "loaded before": (f"module load {place.WRITABLE}", ":", unload),
        "own values": (f"{own}; module load {place.WRITABLE}", ":", unload),
        "twice": (":", activate, ":"),
        "nested": (":", f"bash -c '{activate}; deactivate; bash {show}' >{tmp_path}/inner", ":"),
        "unloaded meanwhile": (":", unload, ":"),
        "loaded before, unloaded meanwhile": (f"module load {place.WRITABLE}", unload, unload),
    }
    # separate shells, all with the same initial environment
    script = "\n".join(
        f"""(
            (
                {setting}
                {expected}
                bash {show}
                :
            )
            {setting}
            {activate} || exit
            bash {show}
            {meanwhile}
            deactivate
            bash {show}
            :  # or the last command would take the place of this shell, with another SHLVL
        ) >'{tmp_path}/{name}'
    """
        for name, (setting, meanwhile, expected) in cases.items()
    )
    place.site.bash(script, own=env)
    for name in cases:
        before, active, after = (tmp_path / name).read_text().splitlines()
        assert f"APPTAINERENV_VIRTUAL_ENV={env}|" in active, name
        assert f"SINGULARITYENV_PREPEND_PATH={env}/bin:" in active, name
        assert before.split("|") == after.split("|"), name
    inner = (tmp_path / "inner").read_text()
    assert "APPTAINERENV" not in inner and "SIF=" not in inner


def test_the_module_is_loaded_again(environment):
    """G-02: the container is the module's again: the environment's programs say so; activation helps."""
    place, env, _ = environment
    script = f"""
        source '{env}/bin/activate'
        module unload {place.WRITABLE}
        module load {place.WRITABLE}
        '{env}/host-bin/python' -c '' || echo refused
        source '{env}/bin/activate'
        python -c 'import os; print(os.environ["VIRTUAL_ENV"])'
        deactivate
        echo "${{APPTAINERENV_VIRTUAL_ENV-gone}} ${{SIF-gone}}"
    """
    result = place.load(place.WRITABLE, script)
    assert result.stdout.splitlines() == ["refused", str(env), "gone gone"]
    assert "the environment is not active, or a module was loaded since; activate it: source " in result.stderr
    assert f"{env}/bin/activate" in result.stderr.replace("\\", "")


def test_other_shells(environment):
    """A shell in which activation can't work says so, and has no script of its own that only seems to."""
    place, env, use = environment
    assert [path.name for path in (env / "bin").glob("[aA]ctivate*")] == ["activate"]
    activate = use.strip().replace("source ", ". ")
    script = f"unset BASH_VERSION; {activate} || echo refused $?; echo ${{VIRTUAL_ENV-none}}"
    done = place.site.run([shutil.which("dash") or "bash", "-c", script])
    assert done.stdout == "refused 1\nnone\n"
    assert done.stderr == f"{env}/bin/activate needs bash or zsh\n"
    script = f"{activate} || echo refused $?; echo ${{VIRTUAL_ENV-none}} $(type -t deactivate)"
    done = place.site.run(["bash", "--noprofile", "--norc", "-c", script])
    assert done.stdout == "refused 1\nnone\n"
    assert "needs the command `module`, which this shell lacks: start scripts with #!/bin/bash -l" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_active_environment_whose_module_was_unloaded(environment):
    """The programs of such an environment say how to go on."""
    place, _, use = environment
    said = place.site.bash(f"{use}module purge; python -V; echo $?")
    assert said.stdout.endswith("\n1\n") or said.stdout == "1\n"
    assert "python: the environment is not active" in said.stderr


def test_programs_of_an_environment_are_added_and_removed(installed_once, tmp_path, folder):
    """Uninstalled programs are no longer commands, and BASH_ENV does not run at each call."""
    (tmp_path / "rc").write_text("echo BASH_ENV was read\n")
    script = f"""
        make-venv {tmp_path}/env
        source {tmp_path}/env/bin/activate
        pip install -q {pip_options(folder)} mine
        export BASH_ENV={tmp_path}/rc
        mytool
        pip uninstall -q -y mine
        hash -r; type mytool || echo gone
        ls -A {tmp_path}/env/host-bin | grep -xE "[.]run|mytool|pip3?"
    """
    result = installed_once.load(installed_once.WRITABLE, script)
    expected = ["in", f"{tmp_path}/env/lib/python3.11/site-packages/mine.py", "gone", ".run", "pip", "pip3"]
    assert result.stdout.split() == expected


def test_packages_of_the_image_are_protected_from_pip_by_hand(installed_once, tmp_path, folder):
    """G-03: pip by hand replaces no package of the image, says why and how to override; other packages install."""
    options = pip_options(folder)
    user_software = installed_once.root(installed_once.WRITABLE) / "user-software"
    subprocess.run(["cp", "-a", user_software, tmp_path], check=True)
    wheel = shlex.quote(f"{folder}/numpy-99.0-py3-none-any.whl")
    pip = f"pip install {options}"
    script = f"""
        make-venv {tmp_path}/env 2>/dev/null
        echo "== 'numpy<2'";    singularity exec $SIF {pip} 'numpy<2'
        echo "== -q wants";     singularity exec $SIF {pip} -q wants
        echo "== {wheel}";      singularity exec $SIF {pip} {wheel}
        source {tmp_path}/env/bin/activate
        echo "== wants";        {pip} wants
        echo "== -U numpy";     {pip} -U numpy
        deactivate
    """
    result = installed_once.load(installed_once.WRITABLE, f"exec 2>&1\n{script}")
    answers = dict(part.split("\n", 1) for part in result.stdout.split("== ")[1:])
    for name, answer in answers.items():
        upgrade = name == "-U numpy"
        expected = "of the image and is kept" if upgrade else "of the image, built for this machine"
        assert expected in answer, name
        command = "PIP_CONSTRAINT= pip install " + options + " " + name
        assert command in answer, (name, answer)
        assert "Successfully installed" not in answer
        assert "hint: numpy " in answer or name == "-q wants"
    # as the hint says, inside and outside the container; compatible packages need no override
    script = f"""
        source {tmp_path}/env/bin/activate
        pip install -q {options} fits && python -c 'import fits, numpy; print(numpy.__file__)'
        start-shell -c {shlex.quote(f"PIP_CONSTRAINT= pip install -q {options} wants")} && pip list | grep ^numpy
        pip uninstall -q -y numpy
        APPTAINERENV_PIP_CONSTRAINT= SINGULARITYENV_PIP_CONSTRAINT= pip install -q {options} wants
        python -c 'import numpy; print(numpy.__file__)'
    """
    result = installed_once.load(installed_once.WRITABLE, script, EBSIF_USER_SOFTWARE=tmp_path)
    file, _, version, other = result.stdout.split()
    assert (file.startswith("/opt/"), version) == (True, "99.0"), result.stderr
    assert other == f"{tmp_path}/env/lib/python3.11/site-packages/numpy.py"
    assert "different values" not in result.stderr
    # a user's own user software is protected as well
    typed = f"singularity exec $SIF {pip} wants"
    result = installed_once.load(installed_once.WRITABLE, typed, check=False, EBSIF_USER_SOFTWARE=tmp_path)
    assert result.returncode == 1 and "hint: numpy " in result.stderr


def test_packages_of_the_image_are_protected_from_uv(installed_once, tmp_path, folder):
    """
    G-03 (user 5): uv chooses the newest versions on top of the packages of the image, and adds none of them.

    It refuses what pip refuses, with the command that overrides it, and says what doesn't fit the image.
    """
    make_wheel(folder, "accelerate", "0.0.1")
    make_wheel(folder, "accelerate", "2.0", requires=["fits[more]>=1", "numpy>=1.17"])
    (tmp_path / "file.txt").write_text("mine\nnumpy == 99.0  # other\n")
    options = pip_options(folder)
    wheel = shlex.quote(f"{folder}/numpy-99.0-py3-none-any.whl")
    requests = ("accelerate mine", "numpy", "'numpy<2'", wheel, f"-r {tmp_path}/file.txt", "wants")
    script = "".join(
        f"""
        echo "== {request}"; uv pip install {options} {request}; echo status $?
    """
        for request in requests
    )
    typed = f"""
        exec 2>&1
        make-venv {tmp_path}/env
        cp "{os.environ["EBSIF_TEST_UV"]}" {tmp_path}/env/bin/uv
        source {tmp_path}/env/bin/activate
        {script}
        echo "== on purpose"
        APPTAINERENV_UV_OVERRIDE= SINGULARITYENV_UV_OVERRIDE= uv pip install {options} 'numpy>98'; echo status $?
    """
    result = installed_once.load(installed_once.WRITABLE, typed)
    answers = dict(part.split("\n", 1) for part in result.stdout.split("== ")[1:])
    assert [answers[name].split()[-1] for name in answers] == ["0", "0", "1", "1", "1", "1", "0"], result.stdout
    expected = ["accelerate==2.0", "fits==1.0", "mine==1.0"]
    assert re.findall(r"^ \+ (\S+)", answers["accelerate mine"], re.MULTILINE) == expected
    for request in requests[2:5]:
        assert re.search(r"^hint: numpy 2\S+ is a package of the image, built for this machine", answers[request], re.M)
        assert f"hint:     UV_OVERRIDE= uv pip install {options} {request}\n" in answers[request]
    pattern = r"^hint: wants 1.0 needs numpy >= 99, but numpy 2\S+ is a package of the image and is kept"
    assert re.search(pattern, answers["wants"], re.MULTILINE)
    assert " + numpy==99.0\n" in answers["on purpose"]


def test_pip_by_hand_says_what_can_not_be_imported(installed_once, tmp_path):
    """F-10 (user 2): in an environment of make-venv; with the command that helps."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "torch", "2.13.0+rocm6.2.4")
    missing = "raise RuntimeError('operator vision::nms does not exist')\n"
    make_wheel(wheels, "torchvision", "0.28", ["torch==2.13.0"], missing, more={"vision_c.so": ""})
    make_wheel(wheels, "fresh", "1.0", module_text="import os; os.nothing\n")
    make_wheel(wheels, "fresh", "2.0", ["numpy<1"])
    options = pip_options(wheels)
    script = f"""
        make-venv {tmp_path}/env 2>/dev/null; source {tmp_path}/env/bin/activate
        echo "== vision";  pip install {options} torch torchvision
        echo "== again";   pip install {options} torchvision
        echo "== fresh";   pip install {options} 'fresh>0'
    """
    result = installed_once.load(installed_once.WRITABLE, f"exec 2>&1\n{script}")
    answers = dict(part.split("\n", 1) for part in result.stdout.split("== ")[1:])
    answers = {name: re.findall("^hint: (.*)", answer, re.MULTILINE) for name, answer in answers.items()}
    assert answers["vision"] == [
        "`import torchvision` fails (RuntimeError: operator vision::nms does not exist): torchvision 0.28 was built "
        "for another torch than the one here, 2.13.0+rocm6.2.4",
        "    pip install --extra-index-url https://download.pytorch.org/whl/rocm6.2.4 torchvision==0.28+rocm6.2.4",
    ]
    assert answers["again"] == []
    assert answers["fresh"] == [
        "`import fresh` fails (AttributeError: module 'os' has no attribute 'nothing')",
        # which still fails
        *answers["vision"],
    ]


def test_pip_by_hand_says_why_a_build_fails(installed_once, tmp_path):
    """V-05 (user 6a): in an environment of make-venv; the command that the hint names works."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_sdist(wheels, "kernels", needs="numpy")
    make_native_sdist(wheels, "native", "nvcc")
    options = pip_options(wheels)
    script = f"""
        exec 2>&1
        make-venv {tmp_path}/env; source {tmp_path}/env/bin/activate
        echo "== kernels"; pip install {options} kernels
        echo "== native";  pip install {options} native
        echo "== again";   pip install --no-build-isolation {options} kernels; python -c 'import kernels'
    """
    result = installed_once.load(installed_once.WRITABLE, script)
    answers = dict(part.split("\n", 1) for part in result.stdout.split("== ")[1:])
    said = {name: re.findall("^hint: (.*)", answer, re.MULTILINE) for name, answer in answers.items()}
    assert said["kernels"] == [
        "a build needs packaging, which is here, but isolated builds don't see it. To build without isolation:",
        f"    pip install --no-build-isolation {options} kernels",
    ], answers["kernels"]
    assert said["native"][-1].startswith(
        "a build needs the CUDA compiler (nvcc): the container has none, or CUDA_HOME doesn't name its directory. "
    )
    assert said["again"] == []
    assert "Successfully installed kernels-1.0" in answers["again"]


def test_constraints_for_user_software(installed):
    """G-03: set in the container for pip and uv, without build tools; a user's value wins."""
    show = "singularity exec $SIF printenv PIP_CONSTRAINT UV_OVERRIDE"
    file, uv = "/runscripts/image-constraints.txt", "/runscripts/image-overrides.txt"
    for module in (installed.WRITABLE, installed.SQUASHED):
        assert installed.load(module, show).stdout.split() == [file, uv]
        lines = (installed.root(module) / file[1:]).read_text().splitlines()
        names = [line.split("==")[0] for line in lines]
        assert "numpy" in names
        assert not {"pip", "setuptools", "wheel", "greeting"} & set(names)
        left_out = (installed.root(module) / uv[1:]).read_text().splitlines()
        assert left_out == [f"{name} ; python_version < '0'" for name in names]
    for own in ("PIP_CONSTRAINT", "APPTAINERENV_PIP_CONSTRAINT"):
        assert installed.output(installed.WRITABLE, show, **{own: "/mine"}).split() == ["/mine", uv]


def plain_module(site, folder):
    """A module without a container, with packages on PYTHONPATH, as on ARCHER2."""
    folder.mkdir()
    (folder / "shared.py").write_text("where = 'module'\n")
    directory = site.modules / "plain"
    directory.mkdir(parents=True)
    if site.tool.syntax == "Lua":
        (directory / "1.0.lua").write_text(f'prepend_path("PYTHONPATH", "{folder}")\n')
    else:
        (directory / "1.0").write_text(f"#%Module\nprepend-path PYTHONPATH {folder}\n")


@pytest.mark.parametrize(
    ("tool", "marker"),
    [
        ("Lmod-Lua", "# you cannot run it directly"),
        ("EnvironmentModules-Tcl", "# You cannot run it directly"),
        ("Lmod-Lua", "# another text"),
    ],
)
def test_an_environment_on_top_of_a_plain_module(tool, marker, tmp_path):
    """S003-16, S003-17, S003-18, S003-19: any text of activate, twice, relative paths; PYTHONPATH is restored."""
    site = Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix))
    plain_module(site, tmp_path / "packages")
    venv = site.work / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    activate = venv / "bin/activate"
    activate.write_text(activate.read_text().replace("# you cannot run it directly", marker))
    assert marker in activate.read_text()
    extend = tmp_path / "tree" / "bin"
    subprocess.run(["cp", "-r", CONTAINER_FILES, tmp_path / "tree"], check=True)
    for _ in range(2):
        site.run([extend / "extend-venv-activate", "./env", "plain/1.0"])
    assert marker not in activate.read_text()
    (next(venv.glob("lib/python3*/site-packages")) / "shared.py").write_text("where = 'environment'\n")
    for setting in ("unset PYTHONPATH", "export PYTHONPATH=/a", "export PYTHONPATH=", "module load plain/1.0"):
        script = f"""
            {setting}; cd /; {SHOW}
            source {activate}; echo "$PYTHONPATH $LOADEDMODULES"; python -c 'import shared; print(shared.where)'
            deactivate; {SHOW}
            source {activate}; source {activate}; deactivate; {SHOW}
        """
        before, inside, where, after, last = site.bash(script).stdout.splitlines()
        assert where == "environment"
        assert "plain/1.0" in inside
        assert "::" not in inside
        assert before == after == last, setting
        assert not inside.split()[0].endswith(":") or setting == "export PYTHONPATH="


NAMING = {
    "Lmod-Lua": (".modulerc.lua", "module_version('{0}', '{1}')\n"),
    "EnvironmentModules-Tcl": (".modulerc", '#%Module\nmodule-version   "{0}"   {1}\n'),
}


@pytest.mark.parametrize("tool", NAMING)
def test_the_name_without_a_date(tool, tmp_path):
    """V-07: it is taken if it means the module, however .modulerc is written; not if it is only how names begin."""
    site = Site(tmp_path / "site", TOOLS[tool](), Path(sys.prefix))
    plain_module(site, tmp_path / "packages")
    (module,) = (site.modules / "plain").iterdir()
    dated = module.with_name(f"1.0-mine-20261128{module.suffix * (site.tool.syntax == 'Lua')}")
    module.rename(dated)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", site.work / "env"], check=True)
    name, (file, line) = "plain/1.0-mine-20261128", NAMING[tool]
    for written in ("plain/1.0-mine-20261128", "plain/1.0-mine"):
        site.bash(f"'{CONTAINER_FILES}/bin/extend-venv-activate' ./env {name}")
        assert f"\n_EBSIF_MODULE={written} " in (site.work / "env/bin/activate").read_text()
        dated.with_name(file).write_text(line.format(name, "1.0-mine"))


def test_where_the_module_is(installed_once, tmp_path):
    """F-06: activation in a new shell finds it, also if another shell made the environment without loading it."""
    place, name = installed_once, installed_once.WRITABLE
    commands = place.root(name) / "bin"
    script = f"""
        '{commands}/with-module' make-venv env
        '{commands}/extend-venv-activate' env {name}
        sed -n 's/^_EBSIF_MODULE=.* //p' env/bin/activate
        unset MODULEPATH
        '{commands}/with-module' make-venv other
        sed -n 's/^_EBSIF_MODULE=.* //p' other/bin/activate
        source other/bin/activate && python -c 'import sys; print(sys.prefix)'
    """
    said = place.site.bash(script, cwd=tmp_path)
    assert said.stdout.split() == 2 * [f"_EBSIF_USE={place.site.modules}"] + [f"{tmp_path}/other"]


def test_other_names_of_the_module(environment, tmp_path):
    """J-05, S003-18: an environment whose module is named without the dot of a hidden module is that of the module."""
    place, _, _ = environment
    site, name = place.site, place.WRITABLE
    folder = tmp_path / "modules/Example"
    folder.mkdir(parents=True)
    version, lua = name.rpartition("/")[2], site.tool.syntax == "Lua"
    (file,) = [path for path in (site.modules / "Example").iterdir() if path.stem == version or path.name == version]
    (folder / f".{file.name}").write_text(file.read_text().replace(f'"{name}"', f'"Example/.{version}"'))
    (folder / (".modulerc.lua" if lua else ".modulerc")).write_text(
        f'module_version("Example/.{version}", "{version}")\n'
        if lua
        else f"#%Module\nmodule-version Example/.{version} {version}\n"
    )
    show = "python -c 'import sys; print(sys.prefix)'"
    script = f"""
        set -e
        export MODULEPATH={tmp_path}/modules
        module load {name}
        make-venv env >&2
        module unload Example
        '{place.root(name)}/bin/extend-venv-activate' env {name}
        source env/bin/activate; {show}; deactivate; echo ${{SIF-none}}
        module load {name}; source env/bin/activate; {show}; deactivate
        [ -z "${{SIF:-}}" ]
        EBSIF_VENV=$PWD/env '{place.root(name)}/interpreter/python' -c 'import sys; print(sys.prefix)'
    """
    said = site.bash(script, cwd=tmp_path)
    assert said.stdout.split() == [f"{tmp_path}/env", "none", f"{tmp_path}/env", f"{tmp_path}/env"]


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        ("extend-venv-activate", 64, "usage: extend-venv-activate DIRECTORY [MODULE]"),
        ("extend-venv-activate /does/not/exist x", 1, "there is no directory /does/not/exist"),
        ("extend-venv-activate /tmp x", 1, "/tmp is not a Python virtual environment"),
        ("extend-venv-activate /tmp", 1, "no container module is loaded"),
        ("make-venv", 64, "usage: make-venv DIRECTORY"),
        ("make-venv /tmp/x", 1, "load the module of this container first"),
    ],
)
def test_wrong_usage_is_an_error(command, status, expected):
    """S003-18: without an argument or with a wrong one the error says what is expected; nothing is changed."""
    name, *arguments = command.split()
    result = attempt([CONTAINER_FILES / "bin" / name, *arguments], env={"PATH": "/usr/bin:/bin"})
    assert result.returncode == status and expected in result.stderr


def test_an_existing_environment(installed_once, tmp_path):
    """
    S004-09: an existing one is left alone, a missing one created, an unwritable directory reported.

    Modules of others in the working directory are not imported.
    """
    for name in ("glob", "re", "site", "subprocess", "venv"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not mine')\n")
    for expected in ("created", "already exists"):
        result = installed_once.load(installed_once.WRITABLE, f"cd {tmp_path} && make-venv {tmp_path}/env")
        assert f"{expected}" in result.stderr
    result = installed_once.load(installed_once.WRITABLE, "make-venv /sys/env", check=False)
    assert result.returncode == 1 and "/sys/env" in result.stderr
    assert "could not be created" in result.stderr and "Traceback" not in result.stderr
    result = installed_once.load(installed_once.WRITABLE, f"make-venv {tmp_path}/a:b", check=False)
    assert result.returncode == 1 and "with ':' in its path" in result.stderr
    assert not (tmp_path / "a:b").exists()


def test_an_environment_is_made_without_standard_error(installed_once, tmp_path):
    """With closed descriptors, as in the background, the environment is made, and the status says so."""
    for number, closed in enumerate(("2>&-", "<&- >&- 2>&-")):
        result = installed_once.load(installed_once.WRITABLE, f"make-venv {tmp_path}/env{number} {closed}; echo $?")
        assert result.stdout == "0\n", closed
        assert (tmp_path / f"env{number}/bin/pip").is_file()


def test_a_second_environment_while_one_is_active(environment, tmp_path):
    """S003-16: it would see the packages of the first one, and lose them with it; so the first is deactivated first."""
    place, env, use = environment
    result = place.site.bash(f"{use}make-venv {tmp_path}/second; echo $?")
    assert result.stdout == "1\n"
    assert not (tmp_path / "second").exists()
    assert f"the environment {env} is active" in result.stderr
    assert "deactivate it first" in result.stderr


def test_an_environment_that_was_moved(environment, tmp_path):
    """S003-16: activation fails, rather than letting pip install into the module; nothing stays of it."""
    place, env, _ = environment
    text = (env / "bin/activate").read_text()
    (tmp_path / "activate").write_text(re.sub(r"_EBSIF_VENV=(\\.|\S)+", f"_EBSIF_VENV={tmp_path}/gone", text))
    result = place.site.bash(f"{SHOW}\n. {tmp_path}/activate || echo failed\n{SHOW}")
    before, failed, after = result.stdout.splitlines()
    assert (failed, after) == ("failed", before)
    assert f"the environment was made at {tmp_path}/gone, where there is none" in result.stderr


def test_an_environment_that_could_not_be_completed(installed_once, tmp_path):
    """S004-09: wherever a full disk stops it, nothing is in the way of the next try. Each time another step fails."""
    small, env = tmp_path / "small", tmp_path / "small/env"
    small.mkdir()
    script = f"""
        mount -t tmpfs -o size=600k none {small}
        for room in 0 $(seq 20 8 400); do
            head -c $((600 - room))k /dev/zero >{small}/fill
            make-venv {env} && break
            echo $room: $(ls -A {small}) : $(ls -A {env} 2>/dev/null)
            rm -r {small}/*
        done
        source {env}/bin/activate && type -P python
    """
    command = shlex.join([*OWN_MOUNTS, "bash", "-c", script])
    result = installed_once.load(installed_once.WRITABLE, command)
    *failed, python = result.stdout.splitlines()
    for line in failed:
        assert line.partition(":")[2] in (" env fill :", " fill :")
    for said in ("could not be created", "extend-venv-activate: can't write"):
        assert said in result.stderr
    assert python == f"{env}/host-bin/python"


@pytest.mark.parametrize("fails", [True, False])
def test_two_that_create_an_environment(installed_once, tmp_path, fails):
    """S004-09: of two that begin at the same time, as in a job array, each removes only what it has created."""
    env, programs = tmp_path / "env", tmp_path / "programs"
    programs.mkdir()
    path = shutil.which("apptainer")
    write_program(
        programs / "apptainer",
        f"""#!/bin/bash
        PATH=${{PATH#*:}}
        # once the first one has begun
        [[ -e {tmp_path}/said ]] || make-venv {env} 2>{tmp_path}/said
        {"exit 255" if fails else f'exec {path} "$@"'}
    """,
    )
    (programs / "singularity").symlink_to("apptainer")
    result = installed_once.load(installed_once.WRITABLE, f"PATH={programs}:$PATH make-venv {env}", check=False)
    assert "another make-venv may be creating it" in (tmp_path / "said").read_text()
    assert result.returncode == fails
    assert any(env.iterdir()) == (env / "host-bin").is_dir() == (not fails)


def test_a_directory_that_the_container_does_not_see(installed_once):
    """A directory that is not bound in the container is refused, and stays empty."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        script = f"make-venv {folder}/env"
        result = installed_once.load(
            installed_once.WRITABLE, script, check=False, APPTAINER_NO_MOUNT="tmp", SINGULARITY_NO_MOUNT="tmp"
        )
        assert result.returncode == 1 and f"{folder}/env" in result.stderr
        assert not any((folder / "env").iterdir())
    finally:
        shutil.rmtree(folder)


def test_a_directory_that_can_not_be_used(installed_once, tmp_path):
    """A directory that can't be made, or that is not empty, is refused without leaving anything."""
    result = installed_once.load(installed_once.WRITABLE, "make-venv /srv/not-bound/env", check=False)
    assert result.returncode == 1 and "/srv/not-bound/env" in result.stderr
    assert not Path("/srv/not-bound").exists()
    (tmp_path / "file").write_text("mine")
    result = installed_once.load(installed_once.WRITABLE, f"make-venv {tmp_path}", check=False)
    assert result.returncode == 1 and "is not empty" in result.stderr


def test_the_environment_to_activate(base_image, tmp_path):
    """VIRTUAL_ENV set by hand decides; otherwise there must be only one environment; Conda is activated first."""
    for name in ("first", "second"):
        (tmp_path / "venv" / name / "bin").mkdir(parents=True)
        text = f"export VIRTUAL_ENV=/user-software/venv/{name} PATH=/user-software/venv/{name}/bin:$PATH\n"
        (tmp_path / "venv" / name / "bin/activate").write_text(text)
    command = ["apptainer", "exec", "--bind", f"{CONTAINER_FILES}/runscripts:/runscripts,{tmp_path}:/user-software"]

    def activated(**variables):
        words = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        shown = "source /runscripts/init-conda-venv; echo ${VIRTUAL_ENV:-none} ${CONDA_PREFIX:-none} ${PATH%%/bin:*}"
        return subprocess.run(
            [*command, *words, base_image, "bash", "-euc", shown], capture_output=True, text=True, check=True
        )

    conda = "/opt/miniconda3/envs/pytorch"
    several = activated(VIRTUAL_ENV="")
    assert several.stdout.split() == ["none", conda, conda]
    assert "there are several: set VIRTUAL_ENV to one of /user-software/venv/first" in several.stderr
    second = "/user-software/venv/second"
    # as in the module: the venv is active, but Conda is not
    path = f"{second}/bin:/usr/bin:/bin"
    for variables in ({"VIRTUAL_ENV": second}, {"VIRTUAL_ENV": second, "PATH": path}):
        assert activated(**variables).stdout.split() == [second, conda, second]
    (tmp_path / "venv/first/bin/activate").unlink()
    (tmp_path / "venv/first/bin").rmdir()
    (tmp_path / "venv/first").rmdir()
    assert activated(VIRTUAL_ENV="/user-software/venv/other").stdout.split() == [second, conda, second]
