"""The loaded module with every modules tool and syntax: what users get from `module load`."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from parts import TOOLS, Installed
from support import CONTAINER_FILES, at_terminal, attempt, heed_signals, printed, write_program

QUOTE, APOSTROPHE, NEWLINE = '"', "'", "new\nline"


@pytest.fixture
def scratch(installed_once, tmp_path):
    """A copy of the writable module's user software, which is restored after tests that change it."""
    root = installed_once.root(installed_once.WRITABLE)
    kept = tmp_path / "kept"
    shutil.copytree(root / "user-software", kept, symlinks=True)
    yield installed_once
    for leftover in (root / "user-software", root / "user-software.squashfs"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        elif leftover.exists():
            leftover.unlink()
    shutil.copytree(kept, root / "user-software", symlinks=True)


def variables(text):
    """Parse the output of `env -0`."""
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def test_the_variables_of_the_module(installed_once):
    """S002-06: SIF, SIF<NAME>, RUNSCRIPTS, RUNSCRIPTS<NAME>, CONTAINERROOT are set when loaded."""
    root = installed_once.root(installed_once.SQUASHED)
    env = variables(installed_once.output(installed_once.SQUASHED, "env -0"))
    assert env["SIF"] == env["SIFEXAMPLE"] == f"{root}/example.sif"
    assert env["RUNSCRIPTS"] == env["RUNSCRIPTSEXAMPLE"] == f"{root}/runscripts"
    assert env["CONTAINERROOT"] == str(root)


def test_one_bind_variable_holds_everything(installed_once):
    """S002-07: one bind variable contains all binds, the same for both runtimes; the user's *_BIND is not changed."""
    env = variables(installed_once.output(installed_once.SQUASHED, "env -0"))
    root = installed_once.root(installed_once.SQUASHED)
    assert env["SINGULARITY_BINDPATH"] == env["APPTAINER_BINDPATH"]
    assert env["SINGULARITY_BINDPATH"] == (
        f"{root}/runscripts:/runscripts,{root}/share/ebsif/module.conf:/share/ebsif/module.conf:ro,"
        f"{root}/share/ebsif/set-environment.sh:/.singularity.d/env/97-ebsif.sh:ro,"
        f"{root}/user-software.squashfs:/user-software:ro,image-src="
    )
    assert env["EBSIF_ADDED_APPTAINER_BINDPATH"] == env["APPTAINER_BINDPATH"]
    assert "SINGULARITY_BIND" not in env
    assert "APPTAINER_BIND" not in env


def test_every_tool_sets_the_same_variables(installations):
    """S002-06, S002-07: the same in every tool and syntax, so tests in the container can use one of them."""
    for module in ("Example/1.0-squashed", "Example/1.0-writable"):
        found = []
        for installed in map(installations, TOOLS):
            env = variables(installed.output(module, "env -0"))
            assert f"{installed.root(module)}/bin:" in env["PATH"]
            # the order is not important
            env["EBSIF_SET"] = " ".join(sorted(env["EBSIF_SET"].split()))
            found.append(
                {
                    name: value.replace(str(installed.site.prefix), "PREFIX")
                    for name, value in env.items()
                    if name.startswith(("SIF", "CONTAINER", "APPTAINER", "SINGULARITY", "RUNSCRIPTS", "EBSIF"))
                }
            )
        assert found[0].keys() >= {"SIF", "SINGULARITYENV_PREPEND_PATH", "APPTAINERENV_VIRTUAL_ENV"}
        assert found[0] == found[1] == found[2]


def test_programs_that_mount_images(installations):
    """F-01: a module's own file stands in for the system's squashfuse_ll; unloading takes it back."""
    for tool in TOOLS:
        installed = installations(tool)
        module, root = installed.SQUASHED, installed.root(installed.SQUASHED)
        ours = f"{root}/share/ebsif/mounters/squashfuse_ll"
        found = installed.site.bash(f"""
            show() {{ "$@" bash -c 'type -P squashfuse_ll'; }}
            module show {module} 2>&1 | grep -o '{ours}' | sort -u
            before=$PATH
            module load {module}; show; module unload {module}
            [[ $PATH == "$before" ]] && show && show {root}/bin/with-module""").stdout.split()
        assert found == [ours, f"{ours}/squashfuse_ll", "/usr/bin/squashfuse_ll", f"{ours}/squashfuse_ll"]


def test_programs_that_others_mount_images_with(tmp_path):
    """Signals end the same program as ever if something else than the container runtime has started it."""
    for name, text in (
        ("cat", (CONTAINER_FILES / "share/ebsif/mounter").read_text()),
        ("starter", '#!/bin/bash\n"$@"\nexit\n'),
    ):
        write_program(tmp_path / name, text)
    ignored = []
    for command in (["/usr/bin/cat"], [tmp_path / "cat"], [tmp_path / "starter", tmp_path / "cat"]):
        said = printed([*command, "/proc/self/status"])
        ignored.append(re.search(r"^SigIgn:\s*(\w+)$", said, re.MULTILINE)[1])
    assert ignored[0] == ignored[1]
    # TERM is the 15th
    assert int(ignored[2], 16) & 1 << 14 and not int(ignored[0], 16) & 1 << 14


def test_unloading_leaves_nothing(installed):
    """After unloading, the environment is as before, even if user software changed in between."""
    root = installed.root(installed.WRITABLE)
    script = f"""
        env -0 | sort -z >before
        module load {installed.WRITABLE} && mv {root}/user-software {root}/elsewhere
        module unload {installed.WRITABLE}
        mv {root}/elsewhere {root}/user-software
        env -0 | sort -z >after
    """
    installed.site.bash("set -e\n" + script)
    before, after = (variables((installed.site.work / name).read_text()) for name in ("before", "after"))
    # variables that the modules tools use themselves
    ours = {key for key in after if not key.startswith(("_Module", "__LMOD", "LMOD", "LOADED", "_LM", "__MODULES"))}
    assert {key: before.get(key) for key in ours} == {key: after[key] for key in ours}


def test_loading_needs_no_other_module(installed):
    """S002-11: the module needs no module of EasyBuild, a partition or a software stack."""
    output = installed.load(installed.SQUASHED, "module --terse list 2>&1").stdout
    assert [line for line in output.split() if "/" in line] == [installed.SQUASHED]


def test_runscripts_are_on_path_in_the_container(installed_once):
    """S002-09: in the container /runscripts is on PATH; run scripts work by full path, too."""
    for command in ("conda-python-simple", "/runscripts/conda-python-simple"):
        run = f"singularity exec $SIF {command} -c 'print(6 * 7)'"
        assert installed_once.output(installed_once.SQUASHED, run) == "42"


def test_python_is_activated_in_the_container(installed_once):
    """S002-10: the variables that activating Conda and the venv would set are there without sourcing anything."""
    plain = variables(installed_once.output(installed_once.SQUASHED, "singularity exec $SIF env -0"))
    # the expected values: set by the activate scripts of image and venv in a container without the module's variables
    activated = variables(
        installed_once.output(
            installed_once.SQUASHED,
            "for v in ${!SINGULARITYENV_@} ${!APPTAINERENV_@}; do unset $v; done; "
            "export {APPTAINER,SINGULARITY}_BINDPATH=${APPTAINER_BINDPATH/,*ebsif.sh:ro}; singularity exec $SIF bash "
            "-c 'source /opt/miniconda3/bin/activate pytorch; source /user-software/venv/pytorch/bin/activate; env -0'",
        )
    )
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "CONDA_PYTHON_EXE", "CONDA_SHLVL"):
        assert plain[name] == activated[name], name
    # old versions of Python decorate the prompt, newer ones don't
    assert plain["VIRTUAL_ENV_PROMPT"] == activated["VIRTUAL_ENV_PROMPT"].strip("() ")
    # the venv first, then Conda, then the system: the same programs are found
    order = ["/user-software/venv/pytorch/bin", "/opt/miniconda3/envs/pytorch/bin", "/usr/bin"]
    for env in (plain, activated):
        positions = [env["PATH"].split(":").index(path) for path in order]
        assert positions == sorted(positions)


def test_variables_that_are_the_same_for_all_containers(installed_once):
    """T-12, G-07: the module doesn't set those; users give the container others, before or after loading."""
    names = "PYTHONNOUSERSITE WITH_CONDA CONDA_SHLVL PIP_CONSTRAINT"
    show = f"singularity exec $SIF printenv {names} | tr '\\n' ' '"
    own = (
        "export APPTAINERENV_PYTHONNOUSERSITE=0 SINGULARITYENV_PYTHONNOUSERSITE=0 APPTAINERENV_WITH_CONDA='a b' "
        "SINGULARITYENV_WITH_CONDA='a b'"
    )
    load = f"module load {installed_once.SQUASHED}"
    usual, mine = "1 true 1 /runscripts/image-constraints.txt ", "0 a b 1 /runscripts/image-constraints.txt "
    # plain variables are for the host's programs, except those that only pip and uv read
    host = "export PYTHONNOUSERSITE=0 WITH_CONDA=x CONDA_SHLVL=7"
    cases = (
        (load, usual),
        (f"{own}; {load}", mine),
        (f"{load}; {own}", mine),
        (f"{host}; {load}", usual),
        (f"{load}; {host}", usual),
        (f"{load}; export PIP_CONSTRAINT=/mine", "1 true 1 /mine "),
        (f"{load}; export PIP_CONSTRAINT=", usual),
    )
    for before, expected in cases:
        said = installed_once.site.bash(f"{before}; {show}; singularity exec --cleanenv $SIF printenv CONDA_SHLVL")
        assert said.stdout == f"{expected}1\n", before
        assert said.stderr == "", before
    # the host's Python is somewhere else; unset without the variable, too; an image may have its own
    python = f"{load}; singularity exec $SIF python -c 'import os, sys; print(os.environ.get(sys.argv[1]))' PYTHONHOME"
    script = f"export PYTHONHOME=/usr; {python}; unset PYTHONHOME; {python}"
    assert installed_once.site.bash(script).stdout == "None\n" * 2
    image = installed_once.site.work / "image.sh"
    image.write_text("export PYTHONHOME=/opt/miniconda3/envs/pytorch\n")
    bind = f"export APPTAINER_BIND={image}:/.singularity.d/env/91-environment.sh"
    script = f"{bind}; export PYTHONHOME=/usr; {python}; unset PYTHONHOME; {python}"
    assert installed_once.site.bash(script).stdout == "/opt/miniconda3/envs/pytorch\n" * 2
    script = f"env | grep -cE 'ENV_({names.replace(' ', '|')})=' || :"
    assert installed_once.output(installed_once.SQUASHED, script) == "0"


@pytest.mark.parametrize("name", ["module.conf", "set-environment.sh"])
def test_an_installation_without_its_variables(installed_once, tmp_path, name):
    """G-03, I-04: loading fails, instead of starting containers in which pip can replace packages; so does eb."""
    module = installed_once.SQUASHED
    site = installed_once.copy(tmp_path, module)
    root = site.root(module)
    lost = root / "share/ebsif" / name
    lost.unlink()
    result = site.bash(f"module load {module}", check=False)
    assert result.returncode and str(lost if name.endswith(".sh") else root) in " ".join(result.stderr.split())
    assert "eb --rebuild" in result.stderr
    if name.endswith(".sh"):
        easyconfig = site.prefix / "Example-1.0-squashed.eb"
        result = site.eb("--module-only", "--force", easyconfig, check=False)
        assert result.returncode and "Install it again, as a whole: `eb --rebuild`" in result.stdout + result.stderr


def test_a_users_squashfs_at_user_software(installed_once, tmp_path):
    """A SquashFS file is bound over /user-software as in LUMI's guide, its bin on PATH before or after loading.

    User software is a directory, because Apptainer can't mount two SquashFS files in one place. With exec, because the
    tests' image has no runscript.
    """
    write_program(tmp_path / "own/bin/python", "#!/bin/sh\necho mine $*\n")
    own = installed_once.site.work / "own.sqsh"
    installed_once.site.run(["mksquashfs", tmp_path / "own", own, "-no-progress", "-noappend"])
    export = "export SINGULARITYENV_PREPEND_PATH=/user-software/bin"
    run = "singularity exec -B own.sqsh:/user-software:image-src=/ $SIF python test.py"
    assert installed_once.output(installed_once.WRITABLE, f"{export}; {run}").splitlines()[-1] == "mine test.py"
    output = installed_once.site.bash(f"{export}; module load {installed_once.WRITABLE}; {run}").stdout
    assert output.splitlines()[-1] == "mine test.py"
    # commands of the module understand both values
    script = "export SINGULARITYENV_PREPEND_PATH=/x; start-shell -c 'echo $PATH'"
    show = installed_once.load(installed_once.WRITABLE, script)
    assert show.stdout.startswith("/x:/runscripts:")
    assert show.stderr == ""


def test_what_plain_singularity_exec_sees(installed_once):
    """
    S001-08, S002-33: with only the module loaded, the content of the SquashFS file, read-only at /user-software.

    S002-38: the venv with system site packages is /user-software/venv/<env>; python, python3, pip are its own.
    """
    script = """
        singularity exec $SIF bash -c 'type -P python python3 pip; cat /user-software/venv/pytorch/pyvenv.cfg'
        singularity exec $SIF python -c 'import greeting; print(greeting.__file__)'
        ! singularity exec $SIF touch /user-software/new
    """
    result = installed_once.load(installed_once.SQUASHED, script)
    *programs, greeting = result.stdout.splitlines()
    assert programs[:3] == [f"/user-software/venv/pytorch/bin/{name}" for name in ("python", "python3", "pip")]
    assert "include-system-site-packages = true" in programs
    assert greeting.startswith("/user-software/venv/pytorch/lib/")
    assert "Read-only file system" in result.stderr


def test_the_directory_is_writable_and_seen_outside(installed_once):
    """S002-32: the directory user-software is writable in the container and is the same directory outside."""
    installed_once.load(installed_once.WRITABLE, "singularity exec $SIF touch /user-software/new")
    new = installed_once.root(installed_once.WRITABLE) / "user-software" / "new"
    assert new.exists()
    new.unlink()


def test_the_squashfs_wins_over_the_directory(installed):
    """S002-34, S002-35: if both exist, the container sees the SquashFS file; the module says so at load."""
    directory = installed.root(installed.SQUASHED) / "user-software"
    directory.mkdir()
    (directory / "hidden").touch()
    try:
        script = f"singularity exec $SIF ls /user-software; module unload {installed.SQUASHED}"
        result = installed.load(installed.SQUASHED, script)
    finally:
        shutil.rmtree(directory)
    assert result.stdout == "venv\n"
    assert " ".join(result.stderr.split()).count("the file is used, and changes in the directory have no effect") == 1


def test_without_user_software_the_image_works(installed):
    """S002-36: without directory and SquashFS file the module loads, the base environment works, no venv is active."""
    root = installed.root(installed.WRITABLE)
    (root / "user-software").rename(root / "elsewhere")
    try:
        script = "singularity exec $SIF bash -c 'type -P python; echo ${VIRTUAL_ENV-none}; python -c \"import numpy\"'"
        output = installed.output(installed.WRITABLE, script)
    finally:
        (root / "elsewhere").rename(root / "user-software")
    assert output.split() == ["/opt/miniconda3/envs/pytorch/bin/python", "none"]


@pytest.mark.parametrize(
    "command", ["singularity exec $SIF pip list", "start-shell -c 'pip list'", "list-packages", "list-packages -v"]
)
def test_packages_of_image_and_venv_are_listed(installed_once, command):
    """S002-42: `pip list`, plain or through start-shell, lists the packages of image and venv, without a scheduler."""
    lines = installed_once.output(installed_once.SQUASHED, command).splitlines()
    assert {"numpy", "greeting", "hello"} <= {line.split()[0] for line in lines}
    if command == "list-packages":
        # what `pip list` can't say
        places = {line.split()[0]: " ".join(line.split()[2:]) for line in lines}
        assert (places["numpy"], places["hello"]) == ("image", "user software")
        # a reader that closes the pipe, such as head
        assert not installed_once.output(installed_once.SQUASHED, "{ list-packages 2>&3 | true; } 3>&1")


def test_start_shell_initializes_with_arguments(installed_once):
    """S002-22: start-shell with arguments of bash (-c, a script) initializes the environment, too."""
    (installed_once.site.work / "script.sh").write_text('echo "$1" "$VIRTUAL_ENV"; type -P python\n')
    expected = ["/user-software/venv/pytorch", "/user-software/venv/pytorch/bin/python"]
    output = installed_once.output(installed_once.SQUASHED, "start-shell script.sh 'a b'")
    assert output.split() == ["a", "b", *expected]
    script = "start-shell -c 'echo $VIRTUAL_ENV; type -P python'"
    assert installed_once.output(installed_once.SQUASHED, script).split() == expected


def test_start_shell_without_arguments_is_an_initialized_bash(installed_once):
    """S002-21: start-shell at a terminal: an initialized bash, whose prompt names the module."""
    site = installed_once.site
    # a user's rc file must not undo it
    (site.home / ".bashrc").write_text("PATH=/usr/bin:/bin\n")
    env = {**site.environment, **variables(installed_once.output(installed_once.SQUASHED, "env -0"))}
    command = installed_once.root(installed_once.SQUASHED) / "bin" / "start-shell"
    # in a directory with a short name, which fits into the prompt of a narrow terminal
    status, output = at_terminal(command, env, "/tmp", ["echo flags=$- python=$(type -P python)", "exit 7"])
    assert status == 7
    assert re.search(rf"\({installed_once.SQUASHED}\) \S+@\S+:\S+[#$] ", output)
    assert "python=/user-software/venv/pytorch/bin/python" in output
    assert re.search(r"flags=\w*i", output)
    (site.home / ".bashrc").unlink()
    # a prompt of the user for containers stays
    output = at_terminal(command, {**env, "APPTAINERENV_PS1": "mine> "}, site.work, ["echo $0", "exit"])[1]
    assert installed_once.SQUASHED not in output


def test_start_shell_in_the_container_is_bash(installed_once):
    """S002-23: inside a container start-shell becomes bash."""
    script = "singularity exec -B $CONTAINERROOT $SIF $CONTAINERROOT/bin/start-shell -c 'echo $0 $$ $1'"
    output = installed_once.output(installed_once.SQUASHED, script)
    assert output.split()[0] == "bash"


@pytest.mark.parametrize("program", ["start-shell -c 'exec \"$@\"' sh", "singularity exec $SIF conda-python-simple"])
def test_arguments_input_and_status_pass_through(installed_once, program):
    """S002-24, S002-25: arguments, standard input and exit status are passed through unchanged."""
    (installed_once.site.work / "echo.py").write_text(
        "import sys\nprint(sys.argv[1:], sys.stdin.read().upper())\nsys.exit(42)\n"
    )
    python = "python" if "start-shell" in program else ""
    script = f"printf 'some input' | {program} {python} echo.py 'a b' '' '$HOME' '*' '\"' \"'\" $'new\\nline'"
    result = installed_once.load(installed_once.SQUASHED, script, check=False)
    assert result.stdout.strip() == f"{['a b', '', '$HOME', '*', QUOTE, APOSTROPHE, NEWLINE]} SOME INPUT"
    assert result.returncode == 42


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_pass_through(installed_once, name):
    """S002-24: a signal to the command reaches the program in the container; the command returns its status."""
    site = installed_once.site
    (site.work / "wait.py").write_text(
        "import signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(33))\n"
        "print('ready', flush=True)\n"
        "for _ in range(600): time.sleep(0.1)\n"
    )
    env = {**site.environment, **variables(installed_once.output(installed_once.SQUASHED, "env -0"))}
    command = [installed_once.root(installed_once.SQUASHED) / "bin" / "start-shell", "-c", "exec python wait.py"]
    process = subprocess.Popen(
        command, env=env, cwd=site.work, stdout=subprocess.PIPE, text=True, preexec_fn=heed_signals
    )
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, getattr(signal, name))
    assert process.wait(timeout=300) == 33


def test_conda_python_simple_outside_a_container(installed_once):
    """S002-25: a clear error and status 1."""
    result = installed_once.load(installed_once.SQUASHED, "$RUNSCRIPTS/conda-python-simple -c pass", check=False)
    assert result.returncode == 1 and "singularity exec $SIF" in result.stderr


@pytest.mark.parametrize("command", ["make-squashfs", "unmake-squashfs"])
def test_the_squashfs_commands_refuse_in_a_container(installed_once, command):
    """S002-27, S002-29: they refuse to run in a container with status 1 and change nothing."""
    root = installed_once.root(installed_once.WRITABLE)
    before = sorted(path.name for path in root.iterdir())
    script = f"singularity exec -B $CONTAINERROOT $SIF $CONTAINERROOT/bin/{command}"
    result = installed_once.load(installed_once.WRITABLE, script, check=False)
    assert result.returncode == 1 and "outside the container" in result.stderr
    assert sorted(path.name for path in root.iterdir()) == before


def test_extending_by_hand(scratch):
    """
    S002-26, S002-28, S002-32 to -34, S002-39: pip install, make-squashfs, reload, unmake-squashfs, pip install again.

    Software other than Python packages is packed and mounted as well.
    """
    root = scratch.root(scratch.WRITABLE)
    pip = f"singularity exec -B {scratch.wheels} $SIF pip install --no-index --find-links {scratch.wheels}"
    script = f"""
        set -e
        {pip} byhand
        mkdir -p $CONTAINERROOT/user-software/bin
        printf '#!/bin/sh\necho /other.py\n' >$CONTAINERROOT/user-software/bin/other
        chmod +x $CONTAINERROOT/user-software/bin/other
        make-squashfs
        rm -rf $CONTAINERROOT/user-software
        module unload {scratch.WRITABLE}; module load {scratch.WRITABLE}
        singularity exec $SIF python -c 'import byhand; print(byhand.__file__)'
        singularity exec $SIF other
        ! {pip} hello
        unmake-squashfs
        rm $CONTAINERROOT/user-software.squashfs
        module unload {scratch.WRITABLE}; module load {scratch.WRITABLE}
        {pip} hello
        singularity exec $SIF python -c 'import byhand, hello; print(hello.__file__)'
    """
    result = scratch.load(scratch.WRITABLE, script)
    files = [line for line in result.stdout.splitlines() if line.endswith(".py")]
    assert [file.split("/")[-1] for file in files] == ["byhand.py", "other.py", "hello.py"]
    assert (root / "user-software").is_dir()
    # pip can't write to the SquashFS file, and must not fall back to the home directory
    assert not (scratch.site.home / ".local").exists()


def test_a_command_without_the_module(installed_once, tmp_path):
    """J-01: with-module needs no modules tool, and works in a copy elsewhere; errors say what is wrong."""
    site = installed_once.site
    copied = installed_once.copy(tmp_path, installed_once.SQUASHED)
    root = tmp_path / "moved here"
    (copied.prefix / "eb/software" / installed_once.SQUASHED).rename(root)
    program = root / "bin/with-module"

    def run(*arguments, **environment):
        names = ("PATH", "HOME", "LC_ALL", "EBSIF_NODE_LOCAL")
        known = {name: value for name, value in site.environment.items() if name in names}
        command = ["env", "-i", *(f"{name}={value}" for name, value in {**known, **environment}.items()), program]
        return attempt([*command, *arguments], cwd=tmp_path)

    code = "import greeting, os; print(os.environ['VIRTUAL_ENV'], os.getcwd())"
    assert run("start-shell", "-c", f'python -c "{code}"').stdout == f"/user-software/venv/pytorch {tmp_path}\n"
    # another container module is loaded, by which nothing changes
    expected = variables(run("env", "-0").stdout)
    assert expected["CONTAINERROOT"] == str(root)
    other = installed_once.load(installed_once.WRITABLE, f"'{program}' env -0").stdout
    ours = ("SIF", "CONTAINER", "RUNSCRIPTS", "EBSIF", "APPTAINER", "SINGULARITY", "__EBSIF")
    assert {name: value for name, value in variables(other).items() if name.startswith(ours)} == {
        name: value for name, value in expected.items() if name.startswith(ours)
    }
    # in the container there is nothing to do, and in another one it's impossible
    inside = f"'{program}' true && echo fine; SIF=/another.sif '{program}' true"
    result = run("start-shell", "-c", inside, APPTAINER_BIND=str(tmp_path))
    assert result.stdout == "fine\n"
    assert "this is another container" in result.stderr

    assert run().returncode == 64
    assert run("--help").stdout.startswith("Run a command as if")
    (root / "example.sif").rename(root / "away.sif")
    result = run("true")
    assert result.returncode == 1
    assert result.stderr.startswith("with-module: The image of this container is missing")
    (root / "share/ebsif/module.conf").unlink()
    result = run("true")
    assert result.returncode == 1
    assert "module.conf is missing: write the module again with eb --module-only" in result.stderr


def test_ebsif_run(installed_once):
    """N-02: a command runs in the container as after `module load`, loaded or not; its status and signals are true."""
    site, module = installed_once.site, installed_once.SQUASHED
    code = "import greeting, os; print(greeting.__file__, os.environ['RUNSCRIPTS'], os.path.exists('/.singularity.d'))"
    expected = installed_once.load(module, f'singularity exec $SIF python -c "{code}"').stdout
    assert expected.endswith(" True\n")
    run = f"ebsif run {module} --"
    assert site.bash(f'{run} python -c "{code}"').stdout == expected
    assert installed_once.load(installed_once.WRITABLE, f'{run} python -c "{code}"').stdout == expected
    result = site.bash(f"""
        {run} sh -c 'exit 7'; echo $?
        {run} sh -c 'kill -TERM $$'; echo $?
        {run} no-such-program 2>/dev/null; echo $?
        # the signal reaches the command, which ends by itself
        {run} sh -c 'trap "exit 9" USR1; echo ready; while :; do sleep 0.1; done' >ready & pid=$!
        until grep -q ready ready; do sleep 0.1; done
        kill -USR1 $pid; wait $pid; echo $?
        {run} yes | head -n 1; echo "${{PIPESTATUS[0]}}"
        cat <<<input | {run} cat
    """)
    assert result.stdout.splitlines() == ["7", "143", "255", "9", "y", "141", "input"], result.stderr
    said = site.bash("ebsif run NoSuchModule/1.0 -- true", check=False)
    assert (said.returncode, said.stdout) == (3, "")


def test_start_shell_without_the_module(installed_once):
    """Without its module a command names problem and remedy, without output of the runtime."""
    result = installed_once.site.bash(f"{installed_once.root(installed_once.SQUASHED)}/bin/start-shell", check=False)
    assert result.returncode == 1 and "load the module" in result.stderr


def test_a_missing_image_fails_the_load_only(installed):
    """S002-03: without any copy of the image the load fails, naming file and cause; show, spider and unload work."""
    root = installed.root(installed.WRITABLE)
    image = root / "example.sif"
    kept = root / "kept.sif"
    script = f"""
        module load {installed.WRITABLE} && mv {image} {kept}
        module unload {installed.WRITABLE} || echo unload failed
        for what in show help whatis; do
            module $what {installed.WRITABLE} >/dev/null 2>&1 || echo $what failed
        done
        if [[ -n ${{LMOD_CMD:-}} ]] && module spider {installed.WRITABLE} 2>&1 | grep -E 'Unable|gone'; then
            echo spider failed
        fi
        module load {installed.WRITABLE}; echo "load ended with $? SIF=${{SIF-unset}}"
        ln -s /gone {image}; module load {installed.WRITABLE}; echo "load ended with $? SIF=${{SIF-unset}}"
        mv {kept} {image}
    """
    result = installed.site.bash(script)
    assert "failed" not in result.stdout
    # also if there is a link to nothing
    assert result.stdout.count("load ended with 1 SIF=unset") == 2
    assert f"{root}/example.sif" in result.stderr
    assert "removed" in result.stderr


def test_what_module_show_prints(installed):
    """C-03: besides help and packages, it fits a screen."""
    shown = installed.site.bash(f"module show {installed.SQUASHED} 2>&1").stdout.splitlines()
    # help and packages are texts in several lines, of which only the first one is a statement
    statement = re.compile(r"(setenv|(pre|ap)pend[_-]path|conflict|whatis|module-whatis|family|load|depends)\b")
    lines = [line for line in shown if statement.match(line)]
    assert 20 < len(lines) <= 60
    assert any("SIFEXAMPLE" in line for line in lines)
    assert not [line for line in shown if re.match(r"(unsetenv|pushenv)\b", line)]


def test_user_software_that_is_a_link(installed, tmp_path):
    """A directory that was moved elsewhere for its quota is bound, not taken for a SquashFS file."""
    root = installed.root(installed.WRITABLE)
    (root / "user-software").rename(tmp_path / "moved")
    (root / "user-software").symlink_to(tmp_path / "moved")
    try:
        script = "singularity exec $SIF ls /user-software; echo $APPTAINER_BINDPATH"
        output = installed.output(installed.WRITABLE, script)
    finally:
        (root / "user-software").unlink()
        (tmp_path / "moved").rename(root / "user-software")
    assert output.split("\n")[0] == "venv"
    assert output.endswith(f",{root}/user-software:/user-software")


def test_loading_a_module_whose_environment_is_inherited(installed):
    """with-module runs a script that loads the module; unloading it leaves what with-module has set."""
    root = installed.root(installed.SQUASHED)
    use = f"module load {installed.SQUASHED} && singularity exec $SIF python -c 'print(6 * 7)'\n"
    (installed.site.work / "script").write_text(f"{installed.site.tool.init}\n{use}")
    result = installed.site.bash(f"{root}/bin/with-module bash --noprofile --norc script")
    assert (result.stdout, result.stderr) == ("42\n", "")


def test_a_directory_with_programs_of_somebody_else(scratch, tmp_path):
    """P-03: where others may have put programs, scripts and modules, commands neither run nor read them."""
    theirs, ran, own = (tmp_path / name for name in ("theirs", "ran", "own"))
    (theirs / "schedulers").mkdir(parents=True)
    (theirs / "share").symlink_to(".")
    (theirs / "ebsif").symlink_to(".")
    scripts = [path.name for path in CONTAINER_FILES.rglob("*") if path.is_file()]
    for name in (*[path.name for path in Path("/usr/bin").iterdir()], *scripts, "schedulers/slurm.bash"):
        write_program(theirs / name, f"#!/bin/sh\necho {name} >>{ran}\n")
    for name in (*sys.stdlib_module_names, "numpy", "pip", "setuptools", "sitecustomize", "usercustomize"):
        (theirs / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write('{name}.py\\n')\n")
    (theirs / "pip.conf").write_text("[global]\nno-such-option = x\nindex-url = http://127.0.0.1:9/\n")
    script = f"""
        set -e
        cp -p {CONTAINER_FILES}/bin/container-* $CONTAINERROOT/bin
        trap "rm $CONTAINERROOT/bin/container-*" EXIT
        cd {theirs}
        container-exec true; container-run true; container-runtime version; start-shell -c true; list-packages
        (make-venv {own}; source {own}/bin/activate; pip --version; python -I -c ''; deactivate)
        $CONTAINERROOT/bin/with-module true; $CONTAINERROOT/interpreter/python -I -c ''; $RUNSCRIPTS/get-master a
        for program in 'pip --version' list-packages 'conda-python-distributed -I -c 1' remove-caches; do
            singularity exec $SIF $program
        done
        make-squashfs
        $RUNSCRIPTS/stage-software --plan --image
    """
    done = scratch.load(scratch.WRITABLE, script)
    assert not ran.exists(), done.stderr


def test_nothing_is_added_to_standard_error(installed_once):
    """The runtime prints neither INFO nor WARNING because of the module."""
    assert installed_once.load(installed_once.SQUASHED, "singularity exec $SIF true; start-shell -c true").stderr == ""


def test_another_version_makes_room(installed):
    """With every modules tool, a module replaces a loaded one of its name, also one that a batch job inherits."""
    one, two = installed.SQUASHED, installed.WRITABLE
    # a job: a separate shell that inherits the environment
    job, image = installed.site.work / "job", installed.root(two) / "example.sif"
    job.write_text(f"{installed.site.tool.init}\nset -e\nmodule load {two}\necho $EBSIF_LOADED_MODULE\n")
    said = installed.site.bash(f"""
        show() {{ echo $? $EBSIF_LOADED_MODULE $(tr : '\n' <<<"$LOADEDMODULES" | grep -c ^Example/); }}
        (module load {two}; env -0 >fresh)
        module load {one}; show
        bash --noprofile --norc job; show
        mv {image} {image}.kept; module load {two}; show; mv {image}.kept {image}
        module load {two}; show; env -0 >swapped
        module load {two}; show
        module switch {two} {one}; show
    """).stdout.splitlines()
    # a version that can't be loaded replaces nothing
    assert said == [f"0 {one} 1", two, f"0 {one} 1", f"1 {one} 1", f"0 {two} 1", f"0 {two} 1", f"0 {one} 1"]
    fresh, swapped = (variables((installed.site.work / name).read_text()) for name in ("fresh", "swapped"))
    ours = re.compile("EBSIF_|SIF|APPTAINER|SINGULARITY|CONTAINERROOT|RUNSCRIPTS|PATH|WITH_")
    assert {name: value for name, value in fresh.items() if ours.match(name)} == {
        name: value for name, value in swapped.items() if ours.match(name)
    }


def test_loading_twice_is_loading_once(installed):
    """S004-08 (in part): loading twice has the same effect as loading once, for all variables of the module."""
    once = variables(installed.output(installed.SQUASHED, "env -0"))
    twice = variables(installed.output(installed.SQUASHED, f"module load {installed.SQUASHED}; env -0"))
    names = {n for n in once if n.startswith(("SIF", "PATH", "CONTAINER", "APPTAINER", "SINGULARITY", "RUNSCRIPTS"))}
    assert names >= {"SIF", "SINGULARITYENV_PREPEND_PATH", "APPTAINERENV_VIRTUAL_ENV"}
    assert {n: once.get(n) for n in names} == {n: twice.get(n) for n in names}


def test_an_archived_module(installed, tmp_path):
    """
    I-06: hidden after its installation, it is no longer listed, but loads by its name, with the message.

    A shell that has loaded it before can still unload it. Once it isn't hidden any more, it is as before. Help and
    commands show its name without the dot. With --module-only, the record gets the optional binds of the new module
    (I-04), so that doctor doesn't expect the earlier ones.
    """
    module, message = Installed.SQUASHED, "Example/1.0-squashed was archived in 2026: it is old."
    site = installed.copy(tmp_path, module)
    text = (site.prefix / "Example-1.0-squashed.eb").read_text()
    archived = site.work / "Example-1.0-squashed.eb"
    bound = ["?/etc/hosts", f"?{tmp_path}/gone"]
    # the second one is the container's own; ebsif 0.2.0 wrote the first one as a warning, too
    both = f"{message}\n100% of it"
    archived.write_text(f"{text}hidden = True\nmodloadmsg = {both!r}\nwarnings = {[message]}\nbinds = {bound}\n")
    record = site.root(module) / "share/ebsif/lock.json"
    installed_at = record.stat().st_mtime_ns
    (before,) = (site.modules / "Example").glob("1.0-squashed*")
    kept = shutil.copy(before, site.work / "kept")
    said = site.eb("--module-only", "--skip-sanity-check", archived)
    said = " ".join((said.stdout + said.stderr).split())
    assert [said.count(f"WARNING: {text}") for text in (message, "100% of it")] == [1, 1]
    assert json.loads(record.read_text())["optional_binds"] == ["/etc/hosts"]
    assert record.stat().st_mtime_ns == installed_at
    script = (
        f"module -t avail Example 2>&1; for name in {module} Example/.1.0-squashed; do "
        'module load $name || exit 1; echo "loaded $SIF"; module unload $name; echo "left $SIF"; done'
    )
    result = site.bash(script)
    assert "1.0-squashed" not in result.stdout.split("loaded")[0]
    assert result.stdout.split("loaded")[1:] == [f" {site.prefix}/eb/software/{module}/example.sif\nleft \n"] * 2
    assert result.stderr.count(f"{message}\n100% of it\n") == 2
    # loaded before it was archived
    (versions,) = before.parent.glob(".modulerc*")
    result = site.bash(f"""
        mv {versions} versions; mv {before} link; cp {kept} {before}; module load {module}
        mv versions {versions}; mv link {before}; module unload {module}; echo left $SIF""")
    assert result.stdout == "left\n", result.stderr
    if site.tool.syntax == "Lua":
        said = site.bash(f"module help {module} 2>&1; ebsif remove {module} --dry-run").stdout
        assert f"    ebsif extend {module} --add PACKAGE " in said
        assert [said.count(f"Warning: {text}\n") for text in (message, "100% of it")] == [1, 1]
        assert f"\n{module}, " in said and f"{site.prefix}/eb/software/{module}\n" in said
        assert "module load Example/.1.0" not in said
        site.eb("--module-only", "--force", "--skip-sanity-check", site.prefix / "Example-1.0-squashed.eb")
        listed = site.bash(f"module -t avail Example 2>&1; module load {module}; echo $SIF")
        assert module in listed.stdout
        assert message not in listed.stderr
        assert not before.is_symlink()
        assert not before.with_name(f".{before.name}").exists()
