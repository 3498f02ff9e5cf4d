"""Decisions at load time: image, binds, user software, conflicts; with every modules tool."""

import functools
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parts import BOTH_TOOLS, EACH_TOOL, TOOLS, Installed, copy_site, wheel_settings
from support import Site, make_wheel, record_of, write_program

TEXT = Installed.TEXT
# without user software
PLAIN = "easyblock = 'ContainerInstall'\nsources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\n"


class Several:
    """Modules for tests, installed by one eb; another modules tool gets a copy, with module files of its own."""

    def __init__(self, site, image, install_once, installed=None):
        self.site = site
        self.folder = site.prefix / "for-tests"
        self.wheels = self.folder / "wheels"
        self.binds = self.folder / "binds"
        self.shared = install_once(
            site.prefix.parent.name, site, lambda: self.copy(installed) if installed else self.install(image)
        )

    def copy(self, installed):
        """Copy the installations of another tool, and write module files for this one."""
        copy_site(installed.shared, self.site.prefix)
        shutil.rmtree(self.site.modules)
        self.write_site_module()
        self.site.eb("--module-only", *sorted(self.site.prefix.glob("*.eb")), **wheel_settings(self.wheels))

    def install(self, image):
        """Install them."""
        site = self.site
        (site.sources / "example.sif").symlink_to(image)
        for name in ("one", "two", "other root/two", "central", "scratch", "a b", "wheels"):
            (self.folder / name).mkdir(parents=True)
        make_wheel(self.wheels, "central")
        make_wheel(self.wheels, "byhand")
        for folder in ("two", "central"):
            (self.folder / folder / "example.sif").symlink_to(image)
        self.binds.write_text(f"# of this site\n\n{self.folder}/scratch:/mnt\n? /does/not/exist:/x\n")
        (site.prefix / "image.def").write_text("Bootstrap: docker\n")
        # activates Python as cotainr's images do
        activate = write_program(
            self.folder / "92-conda.sh",
            "export CONDA_PREFIX=/opt/miniconda3/envs/pytorch\nexport PATH=$CONDA_PREFIX/bin:$PATH\n",
        )
        stay = f"image = 'central'\nimage_dirs = ['{site.sources}']\n"
        stages = [{"requirements": ["central"], "env": {"CC": "tcc", "MAX_JOBS": "4"}, "verify": ['test "$CC" = tcc']}]
        own = "container_env = {'QUOTED': \"it's $HOME\", 'NCCL_NET': 'AWS Libfabric'}\nlisted_packages = 'all'\n"
        texts = {
            "Central/1.0": f"{PLAIN}image = 'central'\nimage_root = '${{SITE_IMAGES:-{self.folder}}}'\n"
            "image_dirs = ['one', 'two', '/does/not/exist']\n",
            "Bound/1.0": f"{PLAIN}{stay}bind_file = '{self.binds}'\n",
            "Bound/2.0": f"{PLAIN}{stay}bind_file = '{self.binds}'\n"
            f"bind_file_default = ['?{self.folder}/none:/srv', '{self.folder}/a b:/mnt']\n",
            "Example/1.0": f"{PLAIN}{stay}conflicts = ['site-bindings']\n",
            "Example/2.0": f"{PLAIN}{stay}container_env = {{'ONE': '1'}}\n",
            "Other/1.0": f"{PLAIN}{stay}definition_files = ['image.def']\n"
            "wrappers = ['python']\nwrappers_load = True\n",
            "None/1.0": f"{PLAIN.partition('init')[0]}init = 'none'\nwrappers = ['git']\n",
            "Copied/1.0": f"{PLAIN}image_dirs = ['{self.folder}/central']\n",
            "Own/1.0": f"{TEXT}wrappers = ['python']\nrequirements = {stages!r}\n"
            f"binds = ['?{self.folder}/a b:/mnt']\n{own}",
            "Manual/1.0": f"{TEXT.replace('conda-injected', 'conda-manual')}{stay}"
            "warnings = ['100% of %%(nosuch)s, not %%(name)s']\nsupport_level = 'beta, best effort'\n"
            "image_packages = {'python': '3.11'}\nwrappers = ['python']\n",
            "Itself/1.0": f"sources = ['example.sif']\n{stay}binds = ['{activate}:/.singularity.d/env/92-conda.sh']\n"
            "venv_name = 'mine'\nwrappers = ['python']\n",
        }
        easyconfigs = [site.easyconfig(text, *module.split("/")) for module, text in texts.items()]
        site.eb(*easyconfigs, **wheel_settings(self.wheels))
        self.write_site_module()

    def write_site_module(self):
        """Write a module of the site, which conflicts with one of ours."""
        site = self.site
        lua = site.tool.syntax == "Lua"
        (site.modules / "site-bindings").mkdir(parents=True)
        (site.modules / "site-bindings" / ("1.0.lua" if lua else "1.0")).write_text(
            'setenv("SITE_BINDINGS", "1")\n' if lua else "#%Module\nsetenv SITE_BINDINGS 1\n"
        )

    def root(self, name):
        """Return the installation directory of a module."""
        return self.site.root(f"{name}/1.0")


@pytest.fixture(scope="session")
def sites(prefix, base_image, install_once):
    """A function that installs the modules once, and writes them for a modules tool and syntax."""

    # EasyBuild writes the installation directory unquoted into Tcl modules, so it can't contain blanks
    @functools.cache
    def several(tool):
        site = Site(prefix / f"several-{tool}/site", TOOLS[tool](), Path(sys.prefix))
        return Several(site, base_image, install_once, None if tool == "Lmod-Lua" else several("Lmod-Lua"))

    return several


@pytest.fixture(params=BOTH_TOOLS)
def several(request, sites):
    """The modules, for each modules tool."""
    return sites(request.param)


@pytest.fixture
def several_once(sites):
    """The modules, for Lmod and Lua: for properties that don't depend on the modules tool."""
    return sites("Lmod-Lua")


def test_the_image_of_the_site(several, base_image):
    """S002-17 (in part): image = 'central': no copy; the first directory with the image is used and named."""
    folder = several.folder
    root = several.root("Central")
    assert not list(root.glob("*.sif"))
    assert record_of(root)["image"]["sha256"]
    script = 'module load Central/1.0 && echo "$SIF" && singularity exec "$SIF" true'
    assert several.site.bash(script).stdout.strip() == f"{folder}/two/example.sif"

    (folder / "other root/two/example.sif").symlink_to(base_image)
    output = several.site.bash(script, SITE_IMAGES=f"{folder}/other root").stdout
    assert output.strip() == f"{folder}/other root/two/example.sif"
    result = several.site.bash("module load Central/1.0; echo status $?", check=False, SITE_IMAGES="/nowhere")
    said = " ".join(result.stderr.split())
    assert "The image of this container is missing" in said
    assert "/nowhere/one/example.sif" in "".join(result.stderr.split())
    assert str(folder) not in "".join(result.stderr.split())


def test_an_installation_that_can_not_be_entered(several):
    """E-15: with the image of the site, too, loading fails if nothing of the installation can be used."""
    root = several.root("Central")
    away = root.rename(root.with_name("away"))
    try:
        result = several.site.bash("module load Central/1.0", check=False)
    finally:
        away.rename(root)
    said = " ".join(result.stderr.split())
    assert f"The installation {root} is missing on this node, damaged, or closed to you" in said
    assert result.returncode


def test_binds_that_the_site_keeps_in_one_file(several):
    """
    S002-14, L-06: one file contains the binds for all modules: a change applies to every module at its next load. If it
    doesn't exist, a module uses its default binds if it has any, and can't be loaded otherwise.
    """
    bash, folder, file = several.site.bash, several.folder, several.binds
    before = file.read_text()
    for name in ("scratch", "a b"):
        (folder / name / "file").write_text(name)
    assert bash("module load Bound/1.0 && singularity exec $SIF cat /mnt/file").stdout == "scratch"
    file.write_text(f"? {folder}/a b:/mnt\n")
    assert bash("module load Bound/1.0 && singularity exec $SIF cat /mnt/file").stdout == "a b"
    file.write_text(f"{folder}/gone:/mnt\n")
    result = bash("module load Bound/1.0", check=False)
    said = " ".join(result.stderr.split())
    assert f"This container needs {folder}/gone, which doesn't exist on this node. It is listed in {file}." in said
    assert bash("module load Bound/2.0", check=False).returncode
    file.unlink()
    assert bash("module load Bound/2.0 && singularity exec $SIF cat /mnt/file").stdout == "a b"
    (folder / "none").mkdir()
    (folder / "none/now").touch()
    assert bash("module load Bound/2.0 && singularity exec $SIF ls /srv").stdout == "now\n"
    file.mkdir()
    assert "can't be read" in " ".join(bash("module load Bound/1.0", check=False).stderr.split())
    file.rmdir()
    assert "can't be read" in " ".join(bash("module load Bound/1.0", check=False).stderr.split())
    file.write_text(before)


def test_a_users_own_user_software(several, tmp_path):
    """EBSIF_USER_SOFTWARE: one installation for many users, each with their own additions, by the same commands."""
    bash, wheels = several.site.bash, several.wheels
    place = tmp_path / "my place"
    place.mkdir()
    squashfs = several.root("Own") / "user-software.squashfs"
    content = squashfs.read_bytes()
    reload = "module unload Own; module load Own/1.0"
    script = f"""
        set -e
        module load Own/1.0
        singularity exec "$SIF" python -c 'import central; print(1)'
        start-shell -c '$CONTAINERROOT/interpreter/python -c "import central; print(\\"in the container\\")"'
        unmake-squashfs
        {reload}
        singularity exec -B '{wheels}' "$SIF" pip install --no-index --find-links '{wheels}' byhand
        make-squashfs
        rm -r "$EBSIF_USER_SOFTWARE/user-software"
        {reload}
        singularity exec "$SIF" python -c 'import central, byhand; print(2)'
        echo "$EBSIF_MOUNTED_USER_SOFTWARE"
    """
    output = bash(script, EBSIF_USER_SOFTWARE=place).stdout.splitlines()
    assert {"1", "in the container"} <= set(output), "W9: that of the module, as long as the directory is empty"
    assert output[-2:] == ["2", f"{place}/user-software.squashfs"]
    assert squashfs.read_bytes() == content
    assert not (squashfs.parent / "user-software").exists()
    # unusable values are reported
    odd = [tmp_path / name for name in ("a, b", "a\nb")]
    for path in odd:
        path.mkdir()
    for value in ("my place", "/a/b", *odd):
        result = bash("module load Own/1.0; echo ${SIF:+loaded}", check=False, EBSIF_USER_SOFTWARE=value)
        said = " ".join(result.stderr.split())
        assert "is not the full path of a directory that can be bound into a container" in said
        assert result.stdout == "\n"
    # without the variable users get the installation's own
    result = bash("module load Own/1.0; singularity exec \"$SIF\" python -c 'import byhand'", check=False)
    assert "ModuleNotFoundError" in result.stderr


def test_every_module_without_a_modules_tool(several_once, tmp_path):
    """J-01: container.sh decides like the module: on images, binds in a file, user software; and fails like it."""
    site, folder = several_once.site, several_once.folder
    (tmp_path / "user-software").mkdir()
    versions = [path.relative_to(site.modules) for path in sorted(site.modules.glob("*/[12].0*"))]
    names = [str(path).removesuffix(".lua") for path in versions if path.parent.name != "site-bindings"]
    assert len(names) >= 11
    script = 'show() { env -0 >"$work/$1"; }\n' + "".join(
        f"""
        (source '{site.prefix}/eb/software/{name}/share/ebsif/container.sh' load; show sourced{number})
        module load {name}; show loaded{number}; module purge
    """
        for number, name in enumerate(names)
    )
    binds = several_once.binds
    before = binds.read_text()
    binds.write_text(f"# of this site\n  ?{folder}/a b:/mnt:ro \n{folder}/scratch:/media\n?/does/not/exist")
    for own in ({}, {"EBSIF_USER_SOFTWARE": tmp_path, "SITE_IMAGES": f"{folder}/two/.."}):
        site.bash(script, work=site.work, **own)
        for number, name in enumerate(names):
            loaded, sourced = (
                of_container((site.work / f"{kind}{number}").read_text()) for kind in ("loaded", "sourced")
            )
            assert loaded["SIF"] and sourced == loaded, name

    def fails(name, *, before="", **own):
        path = f"{site.prefix}/eb/software/{name}/bin/with-module"
        result = site.bash(f"{before}\n'{path}' true", check=False, **own)
        assert result.returncode == 1
        return result.stderr

    binds.write_text(f"{folder}/gone:/mnt\n")
    said = fails("Bound/1.0")
    assert f"needs {folder}/gone, which doesn't exist on this node. It is listed in {binds}.\n" in said
    binds.unlink()
    assert fails("Bound/1.0") == f"with-module: The list of bind mounts can't be read: {binds}\n"
    binds.write_text(before)
    assert "/nowhere/one/example.sif" in fails("Central/1.0", SITE_IMAGES="/nowhere")
    expected = "can't be used together with the module site-bindings"
    assert expected in fails("Example/1.0", before="module load site-bindings/1.0")
    assert "EBSIF_USER_SOFTWARE=x is not the full path of a directory" in fails("Own/1.0", EBSIF_USER_SOFTWARE="x")


def of_container(text):
    """Parse `env -0`, without the variables of modules tools and of EasyBuild."""
    shown = dict(entry.split("=", 1) for entry in text.split("\0") if entry and not entry.startswith(OF_TOOLS))
    if "EBSIF_SET" in shown:
        # what EasyBuild's `pushenv` has set, it restores; container.sh unsets it
        shown["EBSIF_SET"] = sorted(set(shown["EBSIF_SET"].split()) - {"PUSHED"})
    return shown


def test_other_modules(several):
    """S001-11, S002-08: conflicts with the site's bind modules and other containers; a swap leaves nothing behind."""
    bash = several.site.bash
    result = bash("module load site-bindings/1.0; module load Example/1.0; echo ${SIF-none}", check=False)
    assert result.stdout.strip() == "none"
    result = bash("module load Other/1.0; module load Example/1.0; echo $CONTAINERROOT", check=False)
    assert "/Example/" not in result.stdout
    assert "The container module Other/1.0 is loaded" in " ".join(result.stderr.split())

    swap = "module load Example/2.0; module swap Example/2.0 Example/1.0; echo $CONTAINERROOT ${APPTAINERENV_ONE-gone}"
    root, one = bash(swap).stdout.split()
    assert root.endswith("/Example/1.0")
    assert one == "gone"


def test_the_help_text(several):
    """
    S002-18, S002-55, S000-12: image, commands, variables, support level; `$WITH_CONDA` in single quotes.

    The packages that were checked are in the description, which `module keyword` searches.
    """
    shown = several.site.bash("module help Manual/1.0 2>&1; module whatis Manual/1.0 2>&1").stdout
    assert shown.count("In the image: python 3.11.") == 2
    assert "    ebsif extend Manual/1.0 --add PACKAGE --name NAME\n" in shown
    for expected in (
        "example.sif",
        "start-shell",
        "Support: beta, best effort",
        "bash -c '$WITH_CONDA; python",
        "Warning: 100% of %(nosuch)s, not %(name)s",
        "RUNSCRIPTSMANUAL",
        "These commands run in the container automatically: python",
    ):
        assert expected in shown, expected


def test_spider_finds_packages(several_once):
    """`module spider PACKAGE` finds the module by packages of its image, if listed; `is-avail`, save, restore work."""
    shown = several_once.site.bash("module load Own/1.0; echo $EBEXTSLISTOWN; module spider numpy 2>&1").stdout
    assert re.match(r"(\S+,)*central-1.0,(\S+,)*numpy-", shown), shown[:500]
    assert "Own/1.0" in shown
    assert "numpy" in shown
    script = (
        "module is-avail Own/1.0 && module load Own/1.0 && module save mine >/dev/null 2>&1; "
        "module purge; module restore mine >/dev/null 2>&1; echo $CONTAINERROOT"
    )
    assert several_once.site.bash(script).stdout.strip().endswith("/Own/1.0")


def test_definition_files(several_once):
    """S002-12: definition files are in share/docker-defs; modules without any work, too."""
    path = several_once.root("Other") / "share/docker-defs/image.def"
    assert path.read_text() == "Bootstrap: docker\n"


def test_the_equivalent_command(several_once):
    """S002-13: `ebsif interpreter --command` prints the equivalent command, loaded or not."""
    site = several_once.site
    script = f"export MODULEPATH='{site.modules}'; ebsif interpreter --command Own/1.0"
    line = site.bash(script).stdout.strip()
    assert " singularity exec -B " in line
    # settings of the user aside; the environment contains something that is not valid text
    own = {"APPTAINER_BINDPATH": "/srv:/srv", "SINGULARITYENV_QUOTED": "mine", "APPTAINERENV_PREPEND_PATH": "/mine"}
    assert site.bash(script, **own).stdout.strip() == line
    loaded = "export ODD=$'\\377'; module load Own/1.0; ebsif interpreter --command Own/1.0"
    assert site.bash(loaded, **own).stdout.strip() == line
    code = "import sys, os; print(sys.prefix, os.environ['QUOTED'], os.path.isdir('/mnt'))"
    command = site.bash(f'{line} python -c "{code}"').stdout
    assert command == "/user-software/venv/pytorch it's $HOME True\n"
    result = site.bash("ebsif interpreter --command NoSuchModule/1.0", check=False)
    assert result.returncode == 3 and "NoSuchModule/1.0" in result.stderr
    result = site.run(["ebsif", "interpreter", "x", "--command"], check=False, LMOD_CMD="")
    assert result.returncode == 3 and "modules tool" in result.stderr


def test_an_image_without_python(several_once):
    """With init = none nothing is set up for Python, although the image has one: module, binds and commands work."""
    commands = {path.name for path in (several_once.root("None") / "bin").iterdir()}
    assert commands == {"start-shell", "with-module", "git"}
    several_once.site.bash("module load None/1.0 && git --version && start-shell -c 'echo $APPTAINER_NAME'")


@pytest.mark.parametrize("name", ["Own", "Manual"])
def test_variables_of_older_modules_stay_harmless(several_once, name):
    """S002-54, S001-04: $WITH_CONDA, $WITH_VENV and $WITH_CONDA_VENV succeed; most have nothing left to do."""
    script = "set -e; $WITH_CONDA; $WITH_VENV; $WITH_CONDA_VENV; python -c 'import numpy; print(numpy.__version__)'"
    result = several_once.site.bash(
        f'module load {name}/1.0 && singularity exec $SIF bash -c "{script}"'.replace("$W", r"\$W")
    )
    assert result.stdout[0].isdigit()


def test_variables_of_the_site_are_unset_on_unload(several_once):
    """S004-06: variables that the module sets for the container are removed on unload."""
    show = "singularity exec $SIF printenv NCCL_NET"
    script = f"module load Own/1.0; {show}; module unload Own; env | grep -c ENV_NCCL"
    assert several_once.site.bash(script, check=False).stdout == "AWS Libfabric\n0\n"


def test_build_settings_are_not_in_the_module(several_once):
    """S004-07: variables of a stage are not set when the module is used."""
    assert "MAX_JOBS" not in (several_once.site.modules / "Own/1.0.lua").read_text()
    show = "sh -c 'echo ${MAX_JOBS-none} ${CC-none}'"
    assert several_once.site.bash(f"module load Own/1.0 && singularity exec $SIF {show}").stdout == "none none\n"


def test_the_central_image_is_deleted(several_once):
    """S002-05: installations with a copy of their own are not affected."""
    central = several_once.folder / "central/example.sif"
    link = central.readlink()
    central.unlink()
    source = several_once.site.sources / "example.sif"
    source.rename(source.with_suffix(".away"))
    try:
        assert several_once.site.bash("module load Copied/1.0 && singularity exec $SIF echo fine").stdout == "fine\n"
    finally:
        central.symlink_to(link)
        source.with_suffix(".away").rename(source)


def test_an_image_that_prepares_its_environment_itself(several_once):
    """S001-09: an image like cotainr's, which activates its Conda environment itself, works like any other."""
    code = "import sys, numpy; print(sys.prefix, numpy.__file__)"
    output = several_once.site.bash(f"module load Itself/1.0 && python -c '{code}'").stdout
    assert output.startswith("/user-software/venv/mine /opt/miniconda3/envs/pytorch/")


def test_nothing_of_other_sites(several_once):
    """S001-21: without a site, no site's name or path is in any generated file."""
    root = several_once.root("Own")
    made = [path for pattern in ("bin/*", "runscripts/**/*", "share/*/*") for path in root.glob(pattern)]
    made.append(several_once.site.modules / "Own/1.0.lua")
    assert len(made) > 10
    for path in filter(Path.is_file, made):
        text = path.read_text(errors="replace").lower()
        for name in ("lumi", "archer2", "derecho", "/appl/", "/glade", "/work/y07"):
            assert name not in text, (path, name)


def test_either_name_for_the_runtime(site, tmp_path):
    """S001-22 (in part): with only `singularity` on PATH, the same module is installed and used with that name."""
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


# Variables of the modules tools, and those that EasyBuild sets itself.
BOOKKEEPING = ("_Module", "__LMOD_REF_", "__LMOD_Priority_", "LMOD", "LOADED", "_LM", "__MODULES", "MODULE", "EB", "_=")
RUNTIMES = ("APPTAINER", "SINGULARITY")


class Pair:
    """Two container modules with every setting there is: One refuses to replace another, Two replaces it."""

    TEXT = (
        "easyblock = 'ContainerInstall'\nsources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\n"
        "image = 'central'\nimage_dirs = ['{sources}']\n"
        "container_env = {{'ODD': 'a$b`c', 'PLAIN': '1', 'SHELL_TEXT': {hostile!r}}}\n"
        "network_env = {{'NET_OF_SITE': 'hsn'}}\n"
        "binds = ['{root}/needed:/media', '?{root}/data:/mnt', '?/dev/null:/opt/null', '?/does/not/exist:/x']\n"
        "masked_paths = ['/etc/debian_version']\n"
        "modextravars = {{'LITERAL': {{'value': {hostile!r}, 'resolve_env_vars': False}}, "
        "'PUSHED': {{'value': 'pushed', 'pushenv': True}}}}\n"
        "modextrapaths = {{'BEFORE': ['bin', 'run*'], 'AFTER': {{'paths': 'bin', 'prepend': False}}}}\n"
    )

    def __init__(self, site, image, install_once):
        self.site = site
        self.canary = site.work / "canary"
        self.hostile = f"$(touch {self.canary}) `touch {self.canary}` $HOME \\ \" ' {{}} [exit] ; #"
        install_once(site.prefix.name, site, lambda: self.install(image))

    def install(self, image):
        """Install them."""
        site = self.site
        (site.sources / "example.sif").symlink_to(image)
        for folder in ("data", "needed"):
            (site.prefix / folder).mkdir()
        text = self.TEXT.format(sources=site.sources, root=site.prefix, hostile=self.hostile)
        two = text + "one_container = 'replace'\n"
        site.eb(site.easyconfig(text, name="One"), site.easyconfig(two, name="Two"))

    def take(self, cases):
        """
        Run steps of `module` in one shell, with the same initial state for each case (variables, steps).

        Returns each case's environments: before, after the first step and after the last one.
        """
        script = 'show() { env -0 >"$work/$1"; }\n'
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
        """Read an environment, without variables of the modules tools."""
        entries = (self.site.work / name).read_bytes().decode(errors="surrogateescape").split("\0")
        return dict(entry.split("=", 1) for entry in entries if entry and not entry.startswith(BOOKKEEPING))


@pytest.fixture(scope="session")
def pairs(prefix, base_image, install_once):
    """A function that installs both modules once for a modules tool and syntax."""
    # not a parametrised fixture, which pytest would tear down when a test with the next parameter comes between
    return functools.cache(
        lambda tool: Pair(Site(prefix / f"pair-{tool}", TOOLS[tool](), Path(sys.prefix)), base_image, install_once)
    )


@pytest.fixture(params=EACH_TOOL)
def pair(request, pairs):
    """Both modules, for each modules tool and syntax."""
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
# what persons set, beside the module's own variables
ITEMS = ["/data:/data", "/a:/b:ro", "/own.squashfs:/own:image-src=/,ro", "/x\\,y", "/srv"]
LIST_NAMES = [f"{runtime}{name}" for runtime in RUNTIMES for name in ("_BINDPATH", "_BIND", "ENV_PREPEND_PATH")]
LISTED = st.lists(st.sampled_from(ITEMS), min_size=1, max_size=3, unique=True).map(",".join)
SINGLE = st.sampled_from(["mine", "a  b", "$HOME", "\\x", "\u0127\u00e9", " "])
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(LIST_NAMES[:2] + LIST_NAMES[3:5], LISTED),
        "NET_OF_SITE": SINGLE,
        "APPTAINERENV_PLAIN": SINGLE,
        "SINGULARITYENV_PLAIN": SINGLE,
        "APPTAINERENV_PREPEND_PATH": st.just("/mine"),
        "SINGULARITYENV_PREPEND_PATH": st.just("/usr/bin:/mine"),
    },
)


# examples don't change the modules
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_persons_have_set(pair, data):
    """G-07: it is in force beside what the module sets, and is what it was after the module is unloaded."""
    cases = data.draw(st.lists(st.tuples(SETTINGS, st.sampled_from(WAYS)), min_size=4, max_size=4))
    for (own, steps), (before, loaded, after) in zip(cases, pair.take(cases)):
        # Lmod drops slashes at the end of an item; the runtimes take image-src= for image-src=/
        plain = {name: value.replace("image-src=/", "image-src=") for name, value in before.items()}
        assert {name: value.replace("image-src=/", "image-src=") for name, value in after.items()} == plain, steps
        for name, value in own.items():
            if name.endswith("_BINDPATH") or name.endswith("ENV_PREPEND_PATH"):
                separator = "," if name.endswith("PATH") and "ENV" not in name else ":"
                theirs = value.replace("image-src=/", "image-src=").split(separator)
                both = [runtime + name.replace("APPTAINER", "").replace("SINGULARITY", "") for runtime in RUNTIMES]
                # if both are set, each stays
                for variable in both if len(own.keys() & set(both)) == 1 else [name]:
                    assert set(theirs) <= set(loaded[variable].replace("image-src=/", "image-src=").split(separator))
            else:
                assert loaded[name] == value
        assert f"{pair.site.prefix}/data:/mnt" in loaded["SINGULARITY_BINDPATH"].split(",")
        assert loaded["SIF"] == f"{pair.site.sources}/example.sif"


def test_variables_of_the_easyconfig(pair):
    """H-02: 'pushenv' gives the person's value back; with-module sets what `module load` sets."""
    root = f"{pair.site.prefix}/eb/software/One/1.0"
    said = pair.site.bash(f"""
        export PUSHED=mine BEFORE=/x AFTER=/y
        show() {{ "$@" bash -c 'echo "$PUSHED $BEFORE $AFTER"'; }}
        show {root}/bin/with-module
        module load One/1.0; show
        module unload One; show
        module load One/1.0; show {root}/bin/with-module
    """).stdout.splitlines()
    loaded = f"pushed {root}/runscripts:{root}/bin:/x /y:{root}/bin"
    # Lmod can't do this for modules in Tcl
    restored = "mine" if str(pair.site.tool) != "Lmod-Tcl" else ""
    assert said == [loaded, loaded, f"{restored} /x /y", loaded]


def test_wrappers_that_load_what_they_need(several_once):
    """J-04: with wrappers_load, a wrapper works by its path, without its module and beside another one."""
    said = several_once.site.bash(f"""
        show() {{ '{several_once.root("Other")}/bin/python' -c 'import os; print(os.environ["EBSIF_LOADED_MODULE"])'; }}
        show
        module load Example/2.0
        show
        echo $EBSIF_LOADED_MODULE
        module unload Example
        module load Other/1.0
        show
    """)
    assert said.stdout.split() == ["Other/1.0", "Other/1.0", "Example/2.0", "Other/1.0"]
    assert said.stderr == ""


# Variables of the modules tools; what the shell sets.
OF_TOOLS = (
    *("_Module", "__LMOD_", "LMOD", "LOADED", "_LM", "__MODULES", "MODULE", "_=", "BASH_FUNC"),
    *("EBROOT", "EBVERSION", "EBDEVEL", "EBEXTSLIST"),
)


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases=st.lists(SETTINGS, min_size=3, max_size=3))
def test_the_environment_without_a_modules_tool(pair, cases):
    """J-01: container.sh sets what the module sets, beside any values of the user and any other container module."""
    site, script = pair.site, 'show() { env -0 >"$work/$1"; }\n'
    one, two = (f"source '{site.prefix}/eb/software/{name}/1.0/share/ebsif/container.sh'" for name in ("One", "Two"))
    for number, own in enumerate(cases):
        script += (
            "".join(f"export {name}={shlex.quote(value)}\n" for name, value in own.items())
            + f"""
            show before{number}
            ({one} load; show sourced{number}; {one} load; show twice{number}; {one} unload; show left{number})
            ({two} load; show other{number}; {one} load; show again{number})
            module load One/1.0; show loaded{number}
            ({one} load; show nothing{number}; {two} load; show replaced{number})
            module unload One; module purge; unset {" ".join(own)} NOTHING
        """
        )

    def shown(name, number):
        text = (site.work / f"{name}{number}").read_bytes().decode(errors="surrogateescape")
        # see test_what_persons_have_set
        return of_container(text.replace("image-src=/", "image-src="))

    assert not site.bash(script, work=site.work).stderr
    for number in range(len(cases)):
        loaded = shown("loaded", number)
        for name in ("sourced", "twice", "again", "nothing"):
            assert shown(name, number) == loaded, name
        assert shown("left", number) == shown("before", number)
        assert shown("replaced", number) == shown("other", number)


def test_one_container_at_a_time(pair):
    """G-08: a job that inherits another container module never uses it silently: it's refused or replaced."""
    # a job: a separate shell that inherits the environment
    (pair.site.work / "job").write_text(f"{pair.site.tool.init}\nmodule load $1\necho $?\necho $CONTAINERROOT\n")
    job = "bash --noprofile --norc job "
    refused = pair.site.bash(f"module load Two/1.0; {job} One/1.0")
    said = " ".join(refused.stderr.split())
    assert "The container module Two/1.0 is loaded" in said
    assert "`module unload Two/1.0`, then `module load One/1.0`" in said
    assert refused.stdout.split()[0] == "1"
    # it doesn't go on in the other container, where the tool lets a failed load change the environment
    assert ("/Two/" in refused.stdout) == ("Environment" in pair.site.prefix.name)
    replaced = pair.site.bash(f"module load One/1.0; {job} Two/1.0").stdout.split()
    assert replaced[-1].endswith("/Two/1.0")
    assert replaced[-2] == "0"
    # `ebsif interpreter --command` for one with the other loaded works, too
    assert "/One/" in pair.site.bash("module load Two/1.0; ebsif interpreter --command One/1.0").stdout
    # a swap works in either case
    swapped = pair.site.bash("module load Two/1.0; module swap Two/1.0 One/1.0; echo $CONTAINERROOT; module list 2>&1")
    assert swapped.stdout.split("\n")[0].endswith("/One/1.0")
    assert "Two/1.0" not in swapped.stdout


def test_a_module_that_the_modules_tool_has_lost(pair):
    """Leftover variables of a module that isn't loaded prevent no load."""
    leftover = {
        "CONTAINERROOT": "/gone",
        "EBSIF_LOADED_MODULE": "Gone/1.0",
        "SIF": "/gone/x.sif",
        "APPTAINER_BINDPATH": "/gone:/runscripts",
        "EBSIF_ADDED_APPTAINER_BINDPATH": "/gone:/runscripts",
    }
    ((_, loaded, after),) = pair.take([(leftover, ["load One/1.0", "unload One"])])
    assert loaded["CONTAINERROOT"].endswith("/One/1.0")
    assert loaded["SIF"] == f"{pair.site.sources}/example.sif"
    assert not {name for name in after if name.startswith(("CONTAINERROOT", "EBSIF_", "SIF"))}


def test_a_missing_bind_source(pair):
    """S002-16: required: one clear message at load and no failure at unload; optional: left out."""
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
    assert said.count(f"This container needs {needed}, which doesn't exist on this node.") == 1


def test_values_for_the_container_are_not_evaluated(pair):
    """L-10: the easyconfig's values reach container and shell unchanged: nothing is expanded or executed."""
    (pair.site.work / "show.py").write_text("import os\nprint(os.environ['SHELL_TEXT'])\n")
    show = "module load One/1.0 && singularity exec $SIF python3 show.py && printenv LITERAL"
    assert pair.site.bash(show).stdout == 2 * f"{pair.hostile}\n"
    assert not pair.canary.exists()


def test_the_users_settings_apply_in_the_container(pair, tmp_path):
    """G-07: binds and search paths by either prefix, a device, no message of the runtime."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    own = {
        # one that the module also has is bound once
        "SINGULARITY_BINDPATH": f"{tmp_path}/one:/srv,{tmp_path}/two:/home,{pair.site.prefix}/data:/mnt",
        "SINGULARITYENV_PREPEND_PATH": "/mine/bin",
        "APPTAINERENV_PLAIN": "mine",
    }
    script = "module load One/1.0; singularity exec $SIF sh -c 'ls /srv /home; echo $PLAIN $PATH; test -c /opt/null'"
    result = pair.site.bash(script, **own)
    assert result.stderr == ""
    assert {"one", "two", "mine"} <= set(result.stdout.split())
    assert "/mine/bin:" in result.stdout
