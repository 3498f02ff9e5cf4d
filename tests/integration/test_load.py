"""What is decided when a module is loaded: image, binds, user software, other modules; in every modules tool."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from parts import TOOLS, Installed, wheel_settings
from support import Site, make_wheel

TEXT = Installed.TEXT


@pytest.fixture(params=TOOLS)
def tool_site(request, tmp_path, base_image):
    """A site of its own for each modules tool and syntax."""
    # EasyBuild writes the installation directory into Tcl modules as it is: no blanks there
    site = Site(tmp_path / "site", TOOLS[request.param](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    return site


def test_the_image_of_the_site(tool_site, base_image, tmp_path):
    """S002-17 (in part): image = 'central': no copy; the first directory that has it; a variable of the site's."""
    for name in ("one", "two", "other root/two"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "two" / "example.sif").symlink_to(base_image)
    text = f"image = 'central'\nimage_root = '{tmp_path}'\nimage_root_variable = 'SITE_IMAGES'\n"
    tool_site.eb(tool_site.easyconfig(TEXT + text + "image_dirs = ['one', 'two', '/does/not/exist']\n"))
    root = tool_site.prefix / "eb/software/Example/1.0"
    assert not list(root.glob("*.sif"))
    assert json.loads((root / "share/ebsif/lock.json").read_text())["image"]["sha256"]
    script = "module load Example/1.0 && echo $SIF && singularity exec $SIF true"
    assert tool_site.bash(script).stdout.strip() == f"{tmp_path}/two/example.sif"

    (tmp_path / "other root/two/example.sif").symlink_to(base_image)
    script = 'module load Example/1.0 && echo "$SIF" && singularity exec "$SIF" true'
    output = tool_site.bash(script, SITE_IMAGES=f"{tmp_path}/other root").stdout
    assert output.strip() == f"{tmp_path}/other root/two/example.sif"
    result = tool_site.bash("module load Example/1.0; echo status $?", check=False, SITE_IMAGES="/nowhere")
    assert "The image of this container is gone" in " ".join(result.stderr.split())


def test_binds_that_the_site_keeps_in_one_file(tool_site, tmp_path):
    """S002-14: the binds of all modules are in one file: editing it changes every module at its next load."""
    for name in ("scratch", "a b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    file = tmp_path / "binds"
    file.write_text(f"# of this site\n\n{tmp_path}/scratch:/mnt\n? /does/not/exist:/x\n")
    tool_site.eb(tool_site.easyconfig(TEXT + f"bind_file = '{file}'\n"))
    assert tool_site.bash("module load Example/1.0 && singularity exec $SIF cat /mnt/file").stdout == "scratch"
    file.write_text(f"? {tmp_path}/a b:/mnt\n")
    assert tool_site.bash("module load Example/1.0 && singularity exec $SIF cat /mnt/file").stdout == "a b"
    file.write_text(f"{tmp_path}/gone:/mnt\n")
    result = tool_site.bash("module load Example/1.0", check=False)
    assert f"This container needs {tmp_path}/gone" in " ".join(result.stderr.split())
    file.unlink()
    assert "can't be read" in " ".join(tool_site.bash("module load Example/1.0", check=False).stderr.split())


def test_a_place_of_ones_own(tool_site, tmp_path):
    """EBSIF_USER_SOFTWARE: one installation for many users, each with additions of their own, by the same commands."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "central")
    make_wheel(wheels, "byhand")
    tool_site.eb(tool_site.easyconfig(TEXT + "requirements = ['central']\n"), **wheel_settings(wheels))
    place = tmp_path / "my place"
    place.mkdir()
    squashfs = tool_site.prefix / "eb/software/Example/1.0/user-software.squashfs"
    content = squashfs.read_bytes()
    reload = "module unload Example; module load Example/1.0"
    output = tool_site.bash(f"""
        set -e
        module load Example/1.0
        singularity exec "$SIF" python -c 'import central; print(1)'
        unmake-squashfs
        {reload}
        singularity exec -B '{wheels}' "$SIF" pip install --no-index --find-links '{wheels}' byhand
        make-squashfs
        rm -r "$EBSIF_USER_SOFTWARE/user-software"
        {reload}
        singularity exec "$SIF" python -c 'import central, byhand; print(2)'
        echo "$CONTAINER_USER_SOFTWARE"
    """, EBSIF_USER_SOFTWARE=place).stdout.splitlines()
    assert "1" in output
    assert output[-2:] == ["2", f"{place}/user-software.squashfs"]
    assert squashfs.read_bytes() == content
    assert not (squashfs.parent / "user-software").exists()
    # without the variable it is what everybody has
    result = tool_site.bash("module load Example/1.0; singularity exec \"$SIF\" python -c 'import byhand'", check=False)
    assert "ModuleNotFoundError" in result.stderr


def test_other_modules(tool_site):
    """S001-11, S002-08: not beside the site's binding modules and other containers; a swap leaves nothing behind."""
    tool_site.eb(
        tool_site.easyconfig(TEXT + "conflicts = ['site-bindings']\n"),
        tool_site.easyconfig(TEXT + "container_env = {'ONE': '1'}\n", version="2.0"),
        tool_site.easyconfig(TEXT, name="Other"),
    )
    text = 'setenv("SITE_BINDINGS", "1")\n' if tool_site.tool.syntax == "Lua" else "#%Module\nsetenv SITE_BINDINGS 1\n"
    suffix = ".lua" if tool_site.tool.syntax == "Lua" else ""
    (tool_site.modules / "site-bindings").mkdir()
    (tool_site.modules / "site-bindings" / f"1.0{suffix}").write_text(text)
    result = tool_site.bash("module load site-bindings/1.0; module load Example/1.0; echo ${SIF-none}", check=False)
    assert result.stdout.strip() == "none"
    result = tool_site.bash("module load Other/1.0; module load Example/1.0; echo $CONTAINERROOT", check=False)
    assert result.stdout.strip().endswith("/Other/1.0")
    assert "The module of another container is loaded" in " ".join(result.stderr.split())

    swap = "module load Example/2.0; module swap Example/2.0 Example/1.0; echo $CONTAINERROOT ${APPTAINERENV_ONE-gone}"
    assert tool_site.bash(swap).stdout.split()[-1] == "gone"
    assert tool_site.bash(swap).stdout.split()[0].endswith("/Example/1.0")


def test_both_kinds_of_user_software(tool_site):
    """S002-35: SquashFS file and directory are both there: loading says which one is used."""
    tool_site.eb(tool_site.easyconfig(TEXT))
    tool_site.bash("module load Example/1.0 && make-squashfs")
    result = tool_site.bash("module load Example/1.0; module unload Example")
    assert " ".join(result.stderr.split()).count("the file is used, changes in the directory are not seen") == 1


def test_what_help_says(tool_site):
    """S002-18, S002-55, S000-12: image, commands, variables, support level; `$WITH_CONDA` in single quotes."""
    text = TEXT.replace("conda-injected", "conda-manual")
    tool_site.eb(tool_site.easyconfig(text + "support_level = 'beta, best effort'\nwrappers = ['python']\n"))
    shown = tool_site.bash("module help Example/1.0 2>&1; module whatis Example/1.0 2>&1").stdout
    for expected in ("example.sif", "start-shell", "Support: beta, best effort", "bash -c '$WITH_CONDA; python",
                     "RUNSCRIPTSEXAMPLE", "These run in the container by themselves: python", "numpy-"):
        assert expected in shown, expected


def test_spider_finds_packages(site):
    """`module spider PACKAGE` finds the module through what it contains, and `is-avail`, save and restore work."""
    site.eb(site.easyconfig(TEXT))
    shown = site.bash("module spider numpy 2>&1").stdout
    assert "Example/1.0" in shown
    assert "numpy" in shown
    script = "module is-avail Example/1.0 && module load Example/1.0 && module save mine >/dev/null 2>&1; " \
        "module purge; module restore mine >/dev/null 2>&1; echo $CONTAINERROOT"
    assert site.bash(script).stdout.strip().endswith("/Example/1.0")


def test_definition_files(site):
    """S002-12: definition files are in share/docker-defs; without any nothing fails."""
    (site.prefix / "image.def").write_text("Bootstrap: docker\n")
    site.eb(site.easyconfig(TEXT + "definition_files = ['image.def']\n"))
    path = site.prefix / "eb/software/Example/1.0/share/docker-defs/image.def"
    assert path.read_text() == "Bootstrap: docker\n"


def test_the_equivalent_command(site, tmp_path):
    """S002-13, use D12.12: `ebsif command MODULE` prints what does the same without the module, loaded or not."""
    (tmp_path / "a b").mkdir()
    text = f"optional_binds = ['{tmp_path}/a b:/mnt']\ncontainer_env = {{'QUOTED': \"it's $HOME\"}}\n"
    site.eb(site.easyconfig(TEXT + "requirements = [{'post': ['true']}]\n" + text))
    script = f"export MODULEPATH='{site.modules}'; ebsif command Example/1.0"
    line = site.bash(script).stdout.strip()
    assert " singularity exec -B " in line
    assert site.bash("module load Example/1.0; ebsif command Example/1.0").stdout.strip() == line
    code = "import sys, os; print(sys.prefix, os.environ['QUOTED'], os.path.isdir('/mnt'))"
    command = site.bash(f'{line} python -c "{code}"').stdout
    assert command == "/user-software/venv/pytorch it's $HOME True\n"
    result = site.bash("ebsif command NoSuchModule/1.0", check=False)
    assert result.returncode == 1
    assert "NoSuchModule/1.0" in result.stderr
    result = site.run(["ebsif", "command", "x"], check=False, LMOD_CMD="")
    assert result.returncode == 1
    assert "modules tool" in result.stderr


def test_an_image_without_python(site):
    """Nothing of Python is wanted (init = none), though the image has one: module, binds and commands are made."""
    easyconfig = site.easyconfig("sources = ['example.sif']\ninit = 'none'\nwrappers = ['git']\n")
    easyconfig.write_text(easyconfig.read_text().replace("ContainerVenv", "ContainerInstall"))
    site.eb(easyconfig)
    root = site.prefix / "eb/software/Example/1.0"
    assert {path.name for path in (root / "bin").iterdir()} == {"start-shell", "git"}
    site.bash("module load Example/1.0 && git --version && start-shell -c 'echo $APPTAINER_NAME'")


@pytest.mark.parametrize("init", ["conda-injected", "conda-manual"])
def test_words_of_older_modules_stay_harmless(site, init):
    """S002-54, S001-04: $WITH_CONDA, $WITH_VENV and $WITH_CONDA_VENV succeed, with nothing left to do for most."""
    site.eb(site.easyconfig(TEXT.replace("conda-injected", init)))
    script = "set -e; $WITH_CONDA; $WITH_VENV; $WITH_CONDA_VENV; python -c 'import numpy; print(numpy.__version__)'"
    result = site.bash(f'module load Example/1.0 && singularity exec $SIF bash -c "{script}"'.replace("$W", r"\$W"))
    assert result.stdout[0].isdigit()


def test_variables_of_the_site_go_with_the_module(site):
    """S004-06: what the module sets for the container is unset again on unload."""
    site.eb(site.easyconfig(TEXT + "container_env = {'NCCL_NET': 'AWS Libfabric'}\n"))
    show = "singularity exec $SIF printenv NCCL_NET"
    script = f"module load Example/1.0; {show}; module unload Example; env | grep -c ENV_NCCL"
    assert site.bash(script, check=False).stdout == "AWS Libfabric\n0\n"


def test_the_central_image_goes(site, base_image, tmp_path):
    """S002-05: the site deletes the central image: a user with a copy of their own is unaffected."""
    (tmp_path / "central").mkdir()
    central = tmp_path / "central" / "example.sif"
    central.symlink_to(base_image)
    site.eb(site.easyconfig(TEXT + f"image_dirs = ['{tmp_path}/central']\n"))
    central.unlink()
    (site.sources / "example.sif").unlink()
    assert site.bash("module load Example/1.0 && singularity exec $SIF echo fine").stdout == "fine\n"


def test_an_image_that_prepares_its_environment_itself(site, tmp_path):
    """S001-09: an image as cotainr builds it, which activates its Conda environment itself, works as any other."""
    script = tmp_path / "92-conda.sh"
    script.write_text("export CONDA_PREFIX=/opt/miniconda3/envs/pytorch\nexport PATH=$CONDA_PREFIX/bin:$PATH\n")
    script.chmod(0o755)
    text = f"sources = ['example.sif']\nbinds = ['{script}:/.singularity.d/env/92-conda.sh']\nvenv_name = 'mine'\n"
    site.eb(site.easyconfig(text + "wrappers = ['python']\n"))
    code = "import sys, numpy; print(sys.prefix, numpy.__file__)"
    output = site.bash(f"module load Example/1.0 && python -c '{code}'").stdout
    assert output.startswith("/user-software/venv/mine /opt/miniconda3/envs/pytorch/")


def test_nothing_of_one_site_is_in_another(site):
    """S001-21: no site is chosen: none of the names and paths of a site is in anything that is made."""
    site.eb(site.easyconfig(TEXT + "wrappers = ['python']\n"))
    root = site.prefix / "eb/software/Example/1.0"
    made = [*root.glob("bin/*"), *root.glob("runscripts/*"), *root.glob("share/*/*"), site.modules / "Example/1.0.lua"]
    assert len(made) > 10
    for path in made:
        text = path.read_text(errors="replace").lower()
        for name in ("lumi", "archer2", "derecho", "/appl/", "/glade", "/work/y07"):
            assert name not in text, (path, name)


def test_either_name_of_the_runtime(site, tmp_path):
    """S001-22 (in part): only `singularity` is on PATH: the same module is installed and used with that name."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name not in ("apptainer", "singularity") and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    (tools / "singularity").symlink_to(shutil.which("apptainer"))
    path = f"{site.venv}/bin:{tools}"
    site.run(["eb", *site.eb_options, site.easyconfig(TEXT + "wrappers = ['python']\n")], PATH=path)
    script = "module load Example/1.0 && ! type apptainer 2>/dev/null && python -V && start-shell -c 'echo shell'"
    assert site.bash(script, PATH=path).stdout.splitlines()[-1] == "shell"


def test_settings_of_the_installation_stay_there(site):
    """S004-07: what a stage needs to build is not needed, and not there, when the module is used."""
    stages = [{"env": {"CC": "tcc", "MAX_JOBS": "4"}, "verify": ['test "$CC" = tcc']}]
    site.eb(site.easyconfig(TEXT + f"requirements = {stages!r}\n"))
    assert "MAX_JOBS" not in (site.modules / "Example/1.0.lua").read_text()
    show = "sh -c 'echo ${MAX_JOBS-none} ${CC-none}'"
    assert site.bash(f"module load Example/1.0 && singularity exec $SIF {show}").stdout == "none none\n"
