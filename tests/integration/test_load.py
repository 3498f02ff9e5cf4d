"""What is decided when a module is loaded: image, binds, user software, other modules; in every modules tool."""

import functools
import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
    file.mkdir()  # defects C7
    assert "can't be read" in " ".join(tool_site.bash("module load Example/1.0", check=False).stderr.split())
    file.rmdir()
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
    # what can't be used is said (defects C2, use D10)
    for value, said in (("my place", "is no full path"), ("/a, b", "can't be bound"), ("/a/b", "is no directory")):
        result = tool_site.bash("module load Example/1.0; echo ${SIF:+loaded}", check=False, EBSIF_USER_SOFTWARE=value)
        assert f"EBSIF_USER_SOFTWARE={value} {said}" in " ".join(result.stderr.split())
        assert result.stdout == ("loaded\n" if value == "/a/b" else "\n")
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
    assert "The container module Other/1.0 is loaded" in " ".join(result.stderr.split())

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
    text += "warnings = ['100% of %%(nosuch)s, not %%(name)s']\n"  # defects B14
    tool_site.eb(tool_site.easyconfig(text + "support_level = 'beta, best effort'\nwrappers = ['python']\n"))
    shown = tool_site.bash("module help Example/1.0 2>&1; module whatis Example/1.0 2>&1").stdout
    for expected in ("example.sif", "start-shell", "Support: beta, best effort", "bash -c '$WITH_CONDA; python",
                     "Warning: 100% of %(nosuch)s, not %(name)s", "RUNSCRIPTSEXAMPLE",
                     "These run in the container by themselves: python", "numpy-"):
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
    # not what a person has set; with something in the environment that is no text
    own = {"APPTAINER_BINDPATH": "/srv:/srv", "SINGULARITYENV_QUOTED": "mine", "APPTAINERENV_PREPEND_PATH": "/mine"}
    assert site.bash(script, **own).stdout.strip() == line
    loaded = "export ODD=$'\\377'; module load Example/1.0; ebsif command Example/1.0"
    assert site.bash(loaded, **own).stdout.strip() == line
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


# Variables of the modules tools, and those that EasyBuild sets with statements of its own.
BOOKKEEPING = ("_Module", "__LMOD_REF_", "__LMOD_Priority_", "LMOD", "LOADED", "_LM", "__MODULES", "MODULE", "EB", "_=")
LISTS = ("_BINDPATH", "_OVERLAY", "ENV_PREPEND_PATH")
RUNTIMES = ("APPTAINER", "SINGULARITY")


class Pair:
    """Modules of two containers that set all that a module can set: One refuses to replace another, Two does it."""

    TEXT = (
        "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\n"
        "image = 'central'\nimage_dirs = ['{sources}']\n"
        "container_env = {{'ODD': 'a$b`c', 'PLAIN': '1'}}\nnetwork_env = {{'NET_OF_SITE': 'hsn'}}\n"
        "optional_binds = ['{root}/data:/mnt', '/dev/null:/opt/null', '/does/not/exist:/x']\n"
        "masked_paths = ['/etc/debian_version']\nbinds = ['{root}/needed:/media']\n"
    )

    def __init__(self, site, image):
        self.site = site
        (site.sources / "example.sif").symlink_to(image)
        for folder in ("data", "needed"):
            (site.prefix / folder).mkdir()
        text = self.TEXT.format(sources=site.sources, root=site.prefix)
        easyconfigs = [
            site.easyconfig(text, name="One"), site.easyconfig(text + "one_container = 'replace'\n", name="Two")
        ]
        for path in easyconfigs:
            path.write_text(path.read_text().replace("ContainerVenv", "ContainerInstall"))
        site.eb(*easyconfigs)
        ((before, loaded, _),) = self.take([({}, ["load Two/1.0"])])
        # a module knows by CONTAINER_MODULE that another one is there: no person sets that
        # Lmod reads modules in Tcl before it unloads another one for them, so what only one of the two sets isn't noted
        self.names = sorted({name for name in loaded if not name.endswith("TWO")} - set(before) - {"CONTAINER_MODULE"})

    def take(self, cases):
        """
        Take steps of `module` in one shell, for each case (variables, steps) from the same point.

        Returns environments, for each case: before, after the first step and after the last one.
        """
        script = "show() { env -0 >\"$work/$1\"; }\n"
        for number, (environment, steps) in enumerate(cases):
            script += "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
            script += f"show before{number}\n"
            for count, step in enumerate(steps):
                script += f"module {step}\n" + (f"show loaded{number}\n" if not count else "")
            script += f"show after{number}\nmodule purge\n" + "".join(f"unset {name}\n" for name in environment)
        self.site.bash(script, work=self.site.work)
        return [
            [self.shown(f"{name}{number}") for name in ("before", "loaded", "after")] for number in range(len(cases))
        ]

    def shown(self, name):
        """Read an environment, without the books of the modules tools."""
        entries = (self.site.work / name).read_bytes().decode(errors="surrogateescape").split("\0")
        return dict(entry.split("=", 1) for entry in entries if entry and not entry.startswith(BOOKKEEPING))


@pytest.fixture(scope="session")
def pairs(prefix, base_image):
    """A function that installs the two modules for a modules tool and syntax, once."""
    # not a fixture with parameters: pytest takes that down when a test with the next one comes in between
    return functools.cache(
        lambda tool: Pair(Site(prefix / f"pair-{tool}", TOOLS[tool](), Path(sys.prefix)), base_image))


@pytest.fixture(params=TOOLS)
def pair(request, pairs):
    """The two modules, for each modules tool and syntax."""
    return pairs(request.param)


WAYS = (
    ["load One/1.0", "unload One"],
    ["load One/1.0", "load One/1.0", "purge"],
    ["load One/1.0", "swap One/1.0 Two/1.0", "unload Two"],
    ["load One/1.0", "load Two/1.0", "unload Two/1.0"],
    ["load Two/1.0", "load One/1.0", "purge"],
    ["load One/1.0", "unload One", "load Two/1.0", "unload Two"],
    ["load One/1.0", "unload One", "load One/1.0", "swap One/1.0 One/1.0", "unload One"],
)
# without control characters, and a tilde, which is the home directory for some modules tools
CHARACTERS = st.characters(max_codepoint=0x17F, exclude_categories=["Cc"], exclude_characters="~")
VALUES = st.sampled_from(["/data:/data", "/a,/b:/c:ro", "/usr/bin", "1"]) | st.text(CHARACTERS, min_size=1, max_size=12)


# the modules stay as they are from one example to the next
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_unloading_brings_back_what_was(pair, data):
    """G-07, defects C1, lumi B9, use D9: what was set before is in force beside the module's, and there afterwards."""
    environments = st.dictionaries(st.sampled_from(pair.names), VALUES, max_size=8)
    cases = data.draw(st.lists(st.tuples(environments, st.sampled_from(WAYS)), min_size=4, max_size=4))
    for (own, steps), (before, loaded, after) in zip(cases, pair.take(cases)):
        assert after == before, steps
        for name in {name[len(prefix):] for name in pair.names for prefix in RUNTIMES if name.startswith(prefix)}:
            one, other = (loaded[prefix + name] for prefix in RUNTIMES)
            # otherwise Apptainer prints a warning at every start
            assert one == other
            theirs = [own[prefix + name] for prefix in RUNTIMES if prefix + name in own]
            if name in LISTS:
                assert all(value in one for value in theirs)
                assert pair.site.prefix.name in one or name == "ENV_PREPEND_PATH"
            elif theirs:
                assert one == theirs[0]
        assert loaded["SIF"] == f"{pair.site.sources}/example.sif"


def test_one_container_at_a_time(pair):
    """G-08, lumi B6: a job that inherits another container module never runs in it in silence, or it is replaced."""
    # a job: a shell of its own, which inherits the environment
    (pair.site.work / "job").write_text(f"{pair.site.tool.init}\nmodule load $1\necho $?\necho $CONTAINERROOT\n")
    job = "bash --noprofile --norc job "
    refused = pair.site.bash(f"module load Two/1.0; {job} One/1.0")
    said = " ".join(refused.stderr.split())
    assert "The container module Two/1.0 is loaded" in said
    assert "`module unload Two/1.0`, then `module load One/1.0`" in said
    assert refused.stdout.split()[0] == "1"
    replaced = pair.site.bash(f"module load One/1.0; {job} Two/1.0").stdout.split()
    assert replaced[-1].endswith("/Two/1.0")
    assert replaced[-2] == "0"
    # nor is the command of one of them, asked for beside the other
    assert "/One/" in pair.site.bash("module load Two/1.0; ebsif command One/1.0").stdout
    # a swap is no matter of that
    swapped = pair.site.bash("module load Two/1.0; module swap Two/1.0 One/1.0; echo $CONTAINERROOT; module list 2>&1")
    assert swapped.stdout.split("\n")[0].endswith("/One/1.0")
    assert "Two/1.0" not in swapped.stdout


def test_a_module_that_the_tool_has_lost(pair):
    """Defects C4: variables of a module that isn't loaded are no obstacle, and no values of a person's."""
    leftover = {
        "CONTAINERROOT": "/gone", "CONTAINER_MODULE": "Gone/1.0", "SIF": "/gone/x.sif", "APPTAINERENV_PLAIN": "x",
        "SINGULARITYENV_PLAIN": "x", "APPTAINER_BINDPATH": "/gone:/runscripts", "SINGULARITYENV_PREPEND_PATH": "/gone",
    }
    ((_, loaded, after),) = pair.take([(leftover, ["load One/1.0", "unload One"])])
    assert loaded["CONTAINERROOT"].endswith("/One/1.0")
    assert loaded["APPTAINERENV_PLAIN"] == "1"
    assert "/gone" not in "".join(loaded.values())
    assert not set(after) & set(leftover)


def test_a_bind_whose_source_is_missing(pair):
    """S002-16: a required one: one clear message at load, and no failure at unload; an optional one is left out."""
    needed = pair.site.prefix / "needed"
    result = pair.site.bash(f"""
        module load One/1.0 && mv '{needed}' '{needed}.away'
        module unload One || echo unload failed
        module load One/1.0; echo "$? ${{SIF-none}}"
        mv '{needed}.away' '{needed}'
        module load One/1.0 && echo "$APPTAINER_BINDPATH"
    """)
    failed, binds = result.stdout.split("\n", 1)
    assert failed == "1 none"
    assert f"{needed}:/media" in binds
    assert "/does/not/exist" not in binds
    said = " ".join(result.stderr.split())
    assert said.count(f"This container needs {needed}, which does not exist on this node.") == 1


def test_values_for_a_runtime_that_evaluates_nothing(pair):
    """Defects C6: with NO_EVAL set what an easyconfig sets in the container arrives without backslashes."""
    for variable in ("APPTAINER_NO_EVAL", "SINGULARITY_NO_EVAL", "OTHER"):
        show = "module load One/1.0 && singularity exec $SIF printenv ODD"
        assert pair.site.bash(show, **{variable: "1"}).stdout == "a$b`c\n"


def test_what_a_person_has_set_is_in_force_in_the_container(pair, tmp_path):
    """G-07, defects B10, C1, C5: binds and search paths of both spellings, a device, and no word of the runtime."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    own = {
        "APPTAINER_BINDPATH": f"{tmp_path}/one:/srv",
        # one of the module's as well: bound once
        "SINGULARITY_BINDPATH": f"{tmp_path}/two:/home,{pair.site.prefix}/data:/mnt",
        "SINGULARITYENV_PREPEND_PATH": "/mine/bin", "SINGULARITYENV_PLAIN": "mine",
    }
    script = "module load One/1.0; singularity exec $SIF sh -c 'ls /srv /home; echo $PLAIN $PATH; test -c /opt/null'"
    result = pair.site.bash(script, **own)
    assert result.stderr == ""
    assert {"one", "two", "mine"} <= set(result.stdout.split())
    assert "/mine/bin:" in result.stdout
