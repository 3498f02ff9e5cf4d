"""How the easyblocks interpret their parameters, without installing anything."""

import functools
import logging
import os
import re
import tempfile
import types
from typing import get_args, get_type_hints

import pytest
from easybuild.base import exceptions
from easybuild.easyblocks.generic.container.framework import with_build_option
from easybuild.easyblocks.generic.container.parameters import check_easyconfig
from easybuild.easyblocks.generic.container.runtime import Runtime, escape_bind
from easybuild.easyblocks.generic.container.settings import container_lines
from easybuild.easyblocks.generic.container.sitevalues import CACHES
from easybuild.easyblocks.generic.container.spec import NO_USER_BASE, ContainerSpec, VenvSpec
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.easyblocks.generic.container.values import bind_source
from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from easybuild.framework.easyconfig.easyconfig import EasyConfig
from easybuild.tools.build_log import EasyBuildError, EasyBuildExit
from easybuild.tools.config import build_option
from easybuild.tools.module_generator import ModuleGeneratorLua, ModuleGeneratorTcl
from easybuild.tools.modules import Lmod
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import examples

pytestmark = pytest.mark.usefixtures("configuration")


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    """The directory for the easyblocks' logs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def easyblock(tmp_path):
    """Return a function that creates an easyblock from the text of an easyconfig."""

    def make(text, cls=ContainerVenv, name="Example"):
        path = tmp_path / "easyconfig.eb"
        path.write_text(
            f"easyblock = '{cls.__name__}'\nname = {name!r}\nversion = '1.0'\nhomepage = 'https://example.org'\n"
            f"description = 'text'\ntoolchain = SYSTEM\nsources = ['example.sif']\n{text}\n"
        )
        return cls(EasyConfig(str(path)), logfile=os.devnull)

    return make


def test_former_parameters_in_a_description(easyblock):
    """A former parameter's name in a description is no parameter."""
    easyblock("description = '''Options:\nprotect = yes\nsignature = none\nwheelhouse=x\n'''")
    with pytest.raises(EasyBuildError, match="'protect' was removed"):
        easyblock("description = '''text'''\nprotect = True")


@pytest.mark.parametrize("spec", [ContainerSpec, VenvSpec])
def test_the_specification_declares_its_fields(spec):
    """C-01: every parameter is a field with a type, which says whether it may be None; mypy finds misspelled ones."""
    fields = {name: kind for name, kind in get_type_hints(spec).items() if name not in vars(ContainerSpec)}
    assert set(fields) == {"name", "version", "sources", *spec.PARAMETERS}
    # their default follows from the name
    for name in set(spec.PARAMETERS) - {"conda_env", "venv_name"}:
        may_be_none = fields[name] is object or type(None) in get_args(fields[name])
        assert may_be_none == (spec.PARAMETERS[name].default is None), name


def test_the_name_is_always_legal_in_a_variable(easyblock):
    """S002-06: <NAME> in SIF<NAME> and RUNSCRIPTS<NAME> is always legal there, and spelt as in EBROOT<NAME>."""
    spelt = {"PyTorch": "PYTORCH", "lumi-multitorch": "LUMIMINMULTITORCH"}
    for name in (*spelt, "mpi4py", "2to3", "C++tools", "a.b", "x_y"):
        suffix = easyblock("", name=name).spec.parts.suffix
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", "SIF" + suffix) and suffix == spelt.get(name, suffix), name


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1), min_size=1))
def test_requirement_lines_are_kept_byte_for_byte(easyblock, lines):
    """S000-06: whatever a line contains, the requirements file contains it; directories elsewhere are refused."""
    assume(not any(part.strip().startswith(("-e", "--editable")) for line in lines for part in line.splitlines()))
    # EasyBuild's templates (%(name)s) are resolved as in every parameter; a lone % is not a template
    lines = [line.replace("%(", "% (") for line in lines]
    stages = easyblock(f"requirements = {lines!r}").stages()
    expected = "".join(line + "\n" for line in lines)
    assert [stage.requirements for stage in stages] == ([expected] if expected.strip() else [])


@pytest.mark.parametrize("block", ["\na\nb\n\n", "\na\nb\n", "\na\nb", "a\nb"])
def test_a_block_ends_in_a_newline(easyblock, block):
    """S002-47: with or without an empty line or newline at the end, the last requirement is a line of its own."""
    (stage,) = easyblock(f"requirements = {block!r}").stages()
    text = stage.requirements
    assert text.split() == ["a", "b"]
    assert text.endswith("b\n") or text.endswith("b\n\n")


@pytest.mark.parametrize("nothing", ["None", "''", "'\\n\\n'", "[]", "['']"])
def test_no_requirements(easyblock, nothing):
    """None, an empty block and an empty list all mean that there are no requirements."""
    assert easyblock(f"requirements = {nothing}").stages() == []


@pytest.mark.parametrize(
    ("path", "bind"), [("/a/b", "/a/b"), ("/a,b", "/a\\,b"), ("/a:b", "/a\\:b"), ("/a b", "/a b"), ("/a\\b", "/a\\b")]
)
def test_paths_in_binds(path, bind):
    """S002-07: commas and colons in a path don't act as separators in a bind."""
    assert escape_bind(path) == bind
    assert bind_source(f"{bind}:/target:ro") == path


def test_a_path_that_the_runtime_can_not_bind_is_refused():
    """The runtime would silently bind another path."""
    with pytest.raises(EasyBuildError, match="loses the space"):
        escape_bind("/a, b")


@pytest.mark.parametrize("cls", [ContainerInstall, ContainerVenv])
def test_no_none_in_the_module_without_sources(easyblock, cls):
    """easybuild, upstream's suites: the module of an easyconfig without sources doesn't contain None."""
    block = easyblock("sources = []", cls=cls)
    block.installdir = "/software/Example/1.0"
    assert block.spec.image_name == "Example-1.0.sif"
    assert "None" not in block.make_module_description() + block.make_module_extra()


def test_texts_like_templates(easyblock):
    """`%(name)s` in a label of an image, which rendering escapes, stays as it is in the module's help."""
    block = easyblock("")
    block.installdir = "/software/Example/1.0"
    block.cfg["description"] = "A %(name)s with %%(name)s."
    assert "A Example with %(name)s." in block.make_module_description()


def test_only_search_paths_of_programs_are_extended_outside_the_container(easyblock):
    """The module extends only PATH, and Jupyter's: nothing outside is compiled or linked with the installation."""
    assert list(easyblock("").module_load_environment.as_dict) == ["PATH", "JUPYTER_PATH"]


def test_the_environment_for_each_kind_of_image(easyblock):
    """S001-04 (in part), S002-10: injected variables depend on what activates Python in the image."""
    injected = easyblock("init = 'conda-injected'\nconda_env = 'env'").spec
    assert injected.container_environment["CONDA_PREFIX"] == "/opt/miniconda3/envs/env"
    own = "/runscripts:/user-software/venv/example/bin:/user-software/bin"
    conda = "/opt/miniconda3/envs/env/bin:/opt/miniconda3/condabin"
    assert ":".join(injected.environment.search_path) == f"{own}:{conda}"
    elsewhere = easyblock("init = 'conda-injected'\nconda_env = '/opt/conda/envs/ai'").spec.image_environment
    names = ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE")
    assert [elsewhere[name] for name in names] == ["/opt/conda/envs/ai", "ai", "/opt/conda/bin/conda"]
    manual = easyblock("init = 'conda-manual'").spec
    assert "CONDA_PREFIX" not in manual.container_environment
    assert "WITH_CONDA" not in manual.container_environment
    assert manual.image_environment["CONDA_PREFIX"] == "/opt/miniconda3/envs/example"
    image = easyblock("init = 'image'").spec
    assert "CONDA_PREFIX" not in image.container_environment
    assert image.container_environment["WITH_CONDA"] == "true"
    for spec in (injected, manual, image):
        assert spec.container_environment["PYTHONNOUSERSITE"] == "1"
        assert spec.container_environment["PIP_USER"] == "0"
        assert spec.container_environment["PYTHONUSERBASE"].startswith("/dev/null/")


def lines_of(block):
    """Return what the module of an easyblock's container decides from."""
    return list(container_lines(block.spec.parts, block.find_record(), block.short_mod_name))


# what users, schedulers and libraries set
READ_FOR_CACHES = {
    *("EBSIF_NODE_LOCAL", "FLUX_ENCLOSING_ID", "FLUX_JOB_ID", "PALS_APID", "PBS_JOBID", "SLURM_JOB_ID"),
    *("SLURM_STEP_ID", "TRITON_HOME", *(name for name, cache in CACHES.items() if cache.gpu is None)),
}


def test_variables_that_are_set_when_a_container_starts(easyblock):
    """T-12, G-03: what is the same for all containers is set there, except what the easyconfig decides."""
    one = easyblock("init = 'image'\ncontainer_env = {'PIP_USER': None, 'WITH_VENV': 'mine', 'OWN': 1}")
    spec = one.spec
    # at the start of the file, where set-environment.sh looks for them
    read = {"PIP_CONSTRAINT", "UV_OVERRIDE", "UCX_POSIX_USE_PROC_LINK", "UCX_TLS", "PYTHONHOME", "PIP_USER"}
    assert lines_of(one)[:12] == [
        ("start_reads", " ".join(sorted(READ_FOR_CACHES | read))),
        ("start", "PYTHONNOUSERSITE=1"),
        ("start", f"PYTHONUSERBASE={NO_USER_BASE}"),
        ("start", "WITH_CONDA=true"),
        ("start", "WITH_CONDA_VENV=true"),
        ("start_file", "PIP_CONSTRAINT=/runscripts/image-constraints.txt"),
        ("start_file", "UV_OVERRIDE=/runscripts/image-overrides.txt"),
        ("start_apart", "UCX_POSIX_USE_PROC_LINK=n"),
        ("start_apart", "UCX_TLS=^cma"),
        ("start_drop", "PYTHONHOME"),
        ("start_unset", "PIP_USER"),
        ("cache_reads", " ".join(sorted(READ_FOR_CACHES))),
    ]
    assert spec.environment.own == {"WITH_VENV": "mine", "OWN": "1"}
    assert "PIP_USER" not in spec.container_environment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image = 'central'", "'image' is 'central', so 'image_dirs' must say where the image is"),
        ("optional_binds = ['/a']", "'optional_binds' was removed: write these binds into 'binds'"),
        ("modextravars = {'A': 'b\\nc'}", "'modextravars': a value has a line break"),
        (
            "modextravars = {'A': {'value': '$b', 'pushenv': True, 'resolve_env_vars': False}}",
            "'modextravars': the value of A contains '$', which kernels and with-module would replace",
        ),
        ("modextrapaths = {'A': {'paths': 'bin', 'delimiter': ';'}}", "'modextrapaths': the delimiter of A can only"),
        ("image_dirs = ['sif-images']", "'sif-images' is not a full path, and 'image_root' is not set"),
        ("image_dirs = ['$HOME/images']", "'$HOME/images' is not expanded, write the full path"),
        ("one_container = 'both'", "'one_container': unknown value 'both' (known: refuse, replace)"),
        ("image_root = '${A B:-/a}'", "'image_root': 'A B' can't be the name of an environment variable"),
        ("conda_env = 'opt/conda'", "'conda_env' should be the name of a Conda environment, or DIRECTORY/envs/NAME"),
        ("binds = ['?relative']", "'binds': '?relative' should be source[:target[:options]], with full paths"),
        ("scheduler = 'slrum'", "'scheduler': unknown value 'slrum' (known: slurm, pbs"),
        ("network_env = ['A=b']", "'network_env' should be a dictionary of variables"),
        ("network_env = {'A': 'b\\nunset PATH'}", "the value of A should be one line"),
        ("network_env = {'A': 'C:\\\\'}", "'network_env': the value of A ends with a backslash"),
        ("modextravars = {'A': 'C:\\\\'}", "'modextravars': the value of A ends with a backslash"),
        ("modextravars = {'A': {'value': '\\\\'}}", "'modextravars': the value of A ends with a backslash"),
        ("gpu_mpi_library = '/a/libmpi_gtl_hsa.so'", "needs the parameter 'gpu' (known: cuda, rocm)"),
        ("gpu = 'cuda'; gpu_mpi_library = '/a/libmpi_gtl_hsa.so'", "'cuda' it should be the full path of"),
        ("gpu = 'rocm'; gpu_mpi_library = '/a b/libmpi_gtl_hsa.so'", "LD_PRELOAD, which splits at blanks and colons"),
        (
            "gpu = 'rocm'; gpu_mpi_library = '/a/libmpi_gtl_hsa.so'; container_env = {'LD_PRELOAD': 'x'}",
            "is loaded with LD_PRELOAD, and 'container_env' has a value for that",
        ),
        ("container_env = {'VIRTUAL_ENV': '/opt/venv'}", "VIRTUAL_ENV is set by the module: it names the venv of user"),
        ("entry_point = 'oci.sh'", "'entry_point' should be the full path of a program of the image"),
        ("wrappers = ['../escape']", "'wrappers' should be 'all' or a list of program names"),
        ("wrappers = ['a\\nb']", "'wrappers' should be 'all' or a list of program names"),
        ("script_names = {'start-shell': '../../../escape'}", "'script_names'"),
        ("masked_paths = ['/usr/../../etc/passwd']", "can't be used: it should be a full path"),
        ("masked_paths = {'/usr/bin/whoami': '../x'}", "can't be used: it should be a full path"),
        ("masked_paths = ['/user-software/venv/x']", "'post' of a stage"),
        ("masked_paths = '/usr/bin/touch'", "should be a list of strings, or a dictionary that maps strings"),
        ("host_libraries = {'libraries': ['a b']}", "should be a name or a full path, then perhaps 'as NAME' and"),
        ("host_libraries = {'libraries': ['a'], 'files': []}", "unknown 'files' (known: libraries, plugins"),
        (
            "host_libraries = {'libraries': ['libcxi.so.1']}; container_env = {'LD_LIBRARY_PATH': '/a'}",
            "comes first in LD_LIBRARY_PATH, and 'container_env' has a value for that",
        ),
        ("host_programs = ['srun']", "should be a dictionary of lists of strings (programs, plugins, files)"),
        ("host_programs = {'files': ['/etc/slurm']}", "'programs' is missing"),
        ("host_programs = {'program': ['srun']}", "unknown 'program' (known: programs, plugins, files)"),
        ("host_programs = {'programs': ['?bin/srun']}", "should be the name or the full path of a program"),
        ("host_programs = {'programs': ['srun'], 'plugins': ['slurm']}", "'slurm' in 'plugins' should be a full path"),
        ("host_programs = {'programs': ['srun'], 'files': ['?slurm']}", "'?slurm' in 'files' should be source[:target"),
        ("requirements = {'look': 'x'}", "should be {'lock': FILE}"),
        ("venv_name = '../escape'", "'venv_name': '../escape' can't be"),
        ("init = 'magic'", "'init': unknown value 'magic' (known: image, conda-injected"),
        ("init = 'none'", "easyblock ContainerInstall"),
        ("binds = '/one'", "'binds' should be a list of strings"),
        ("requirements = [1]", "'requirements' should be a string or a list of strings (one stage), or a list of"),
        ("container_env = {'A B': '1'}", "'A B' can't be the name of an environment variable"),
        # E-03
        ("constraints = ['einops>=0.8']", "'einops>=0.8' should be a name and an exact version, name==version"),
        ("container_env = {'VALUE': 'a\\nb'}", "'container_env': the value of VALUE should be one line"),
        ("container_env = {'VALUE': '~/x'}", "'container_env': the value of VALUE begins with '~'"),
        ("wrappers = 'python'", "'wrappers' should be 'all' or a list of program names"),
        # EasyBuild ignores parameters that it doesn't know
        ("signature = 'key.pem'", "'signature' was removed: list the public keys"),
        ("library_binds = {'/a.so': 'if_newer'}", "'library_binds' was removed: name these libraries"),
        ("one_container_per_node = True", "'one_container_per_node' was removed: "),
        ("wrappers = ['git', 'bash']", "'bash' would hide the host's"),
        # wrong types
        ("gpu_option = 'no'", "'gpu_option' should be True or False, found: no"),
        ("sources = 'a.sif'", "'sources' should be a list with the name of an image (a SIF file), found: a.sif"),
        ("exts_list = [('hello', '1.0')]", "'exts_list' can't be used: extensions would be built on the host"),
        ("skipsteps = ['test', 'build']", "'skipsteps': a container can't be installed without the step 'build'"),
        ("keeppreviousinstall = True", "'keeppreviousinstall' can't be used: files of two images would be mixed"),
        ("multi_deps = {'Python': ['3.11', '3.12']}", "'multi_deps' can't be used: EasyBuild would install the"),
    ],
)
def test_wrong_values_are_reported(easyblock, text, expected):
    """The error names parameter, value found and values allowed."""
    with pytest.raises(EasyBuildError) as error:
        easyblock(text)
    assert expected in str(error.value)
    assert error.value.exit_code == EasyBuildExit.EASYCONFIG_ERROR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local_password = 'oneverysecret'", "local_password=****"),
        ("local_env = {'HF_TOKEN': 'hf_oneverysecret'}\nstages = [{'env': local_env}]", "HF_TOKEN=****"),
        ("# --index-url https://me:oneverysecret@host/simple", "https://me:****"),
    ],
)
def test_credentials_in_an_easyconfig_are_refused(easyblock, text, expected):
    """G-09: also in its own variables and in comments, which EasyBuild copies with the easyconfig."""
    with pytest.raises(EasyBuildError, match="A credential is written out in the easyconfig") as error:
        check_easyconfig(easyblock(text).cfg)
    assert expected in str(error.value)
    assert "oneverysecret" not in str(error.value)


ODD_VALUES = [None, True, 2, "a b", b"bytes", object(), ["a", 1], [["a"]], [{}], (1,), {"a"}, {1: "a"}, {"a": 1}]
ODD_VALUES += [{"a": ["b"]}, {None: None}, {("a",): "b"}]
ODD_STAGES = [{"lock": 1}, *([one] for one in ({"name": 1}, {1: 2, None: 3}, {"requirements": [1]}, {"env": {1: "a"}}))]
ODD_STAGES += [[one] for one in ({"env": ["a"]}, {"pre": [[1]]}, {"modules": "a"}, {"patches": {}})]


def check(block):
    """Check an easyconfig as the easyblock does when it is created."""
    check_easyconfig(block.cfg)
    VenvSpec.check(VenvSpec.values_in(block.cfg))


def test_every_value_is_accepted_or_the_parameter_named(easyblock, monkeypatch):
    """Any value of any parameter is accepted, or the error names the parameter."""
    block = easyblock("")
    # these dominate EasyBuild's run time: locating the error for the log, and parsing all other parameters
    monkeypatch.setattr(exceptions, "get_callers_logger", lambda: logging.Logger("none"))
    monkeypatch.setattr(EasyBuildError, "LOC_INFO_TOP_PKG_NAMES", None)
    ours = ContainerVenv.extra_options()
    monkeypatch.setattr(block.cfg, "asdict", lambda: {name: block.cfg.get_ref(name) for name in ours})
    for parameter in ours:
        default = block.cfg.get_ref(parameter)
        for value in ODD_VALUES + (ODD_STAGES if parameter == "requirements" else []):
            block.cfg[parameter] = value
            try:
                check(block)
            except EasyBuildError as error:
                assert f"parameter '{parameter}'" in str(error), (parameter, value)
        block.cfg[parameter] = default
    check(block)


@pytest.mark.parametrize("generator", [ModuleGeneratorLua, ModuleGeneratorTcl])
@pytest.mark.parametrize(
    ("listed", "expected"),
    [("all", ["hello-1.0", "numpy-2.0", "pip-24.0"]), ("user_software", ["hello-1.0", "pip-24.0"]), ("none", [])],
)
def test_the_site_decides_which_packages_are_listed(easyblock, generator, listed, expected):
    """easybuild, extensions: all packages, those of user software or none are listed, also in EBEXTSLIST."""
    block = easyblock(f"listed_packages = '{listed}'")
    block.module_generator = generator(block)
    # the generator runs EasyBuild without a modules tool, and EasyBuild keeps the first tool of a process
    tool = types.SimpleNamespace(supports_extensions=False, REQ_VERSION_EXTENSIONS=Lmod.REQ_VERSION_EXTENSIONS)
    block.module_generator.modules_tool = tool
    block.installdir = "/software/Example/1.0"
    block.record.image_packages = ["numpy==2.0", "pip==23.0"]
    block.record.venv_packages = ["hello==1.0", "pip==24.0"]
    text = block.make_module_extra()
    found = re.findall(r"""EBEXTSLISTEXAMPLE[",\s]*([^"\n]+)""", text)
    assert found == ([",".join(expected)] if expected else [])
    described = block.make_module_description()
    assert ("Extensions: " + ", ".join(expected) in described) == bool(expected)
    assert ("numpy" in described) == (listed == "all")


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("definition_files = ['image.def']", "image.def"),
        ("requirements = [{'requirements': 'hello', 'patches': ['fix.patch']}]", "fix.patch"),
        ("requirements = {'lock': 'lock.json'}", "lock.json"),
    ],
)
def test_missing_files_stop_fetch_and_installation(easyblock, tmp_path, monkeypatch, text, missing):
    """`eb --fetch` fails if a file is missing, and an installation does before it starts."""
    monkeypatch.setattr("easybuild.framework.easyblock.download_file", lambda *_args, **_kwargs: None)
    (tmp_path / "example.sif").write_text("")
    easyblock("").fetch_step()
    with pytest.raises(EasyBuildError, match=missing) as error:
        easyblock(text + "\ndownload_instructions = 'The image is elsewhere.'").fetch_step()
    assert "instructions" not in str(error.value)
    assert error.value.exit_code in (EasyBuildExit.MISSING_SOURCES, EasyBuildExit.FAIL_DOWNLOAD)


def test_a_missing_image_and_the_searched_directories(easyblock, tmp_path, monkeypatch, capsys):
    """L-01: below the download instructions, with which EasyBuild itself doesn't list them; without, it does."""
    monkeypatch.setattr("easybuild.framework.easyblock.download_file", lambda *_args, **_kwargs: None)
    monkeypatch.setenv("IMAGES", str(tmp_path))
    places = "image_root = '${IMAGES:-/nowhere}'\nimage_dirs = ['one', '/two']\n"
    for instructions in ("download_instructions = 'The image is on LUMI.'\n", ""):
        with pytest.raises(EasyBuildError) as error:
            easyblock(places + instructions).fetch_step()
        # EasyBuild breaks lines anywhere
        told = "".join(capsys.readouterr().err.split())
        assert (f"TheimageisonLUMI.Searched:{tmp_path}/one,/two" in told) == bool(instructions)
        assert (f"{tmp_path}/one/" in str(error.value)) != bool(instructions)


def test_options_of_eb_are_changed_for_a_moment():
    """F-04: what the same eb installs after a container, also after a failed one, has its files as usual."""
    before = build_option("generate_devel_module")
    with pytest.raises(EasyBuildError), with_build_option("generate_devel_module", not before):
        assert build_option("generate_devel_module") != before
        raise EasyBuildError("no space")
    assert build_option("generate_devel_module") == before


def test_missing_local_files_are_reported(easyblock, tmp_path, capsys):
    """A requirements file that is missing here may be in the image, so it's a note, no error."""
    (tmp_path / "example.sif").write_text("")
    (tmp_path / "here.txt").write_text("")
    easyblock(f"requirements = ['-r {tmp_path}/here.txt', '-c /etc/pip/gone.txt']").fetch_step()
    warned = capsys.readouterr().err
    assert "needs /etc/pip/gone.txt, which is not on this machine" in warned
    assert "here.txt" not in warned


@pytest.mark.parametrize(
    ("step", "code"), [("fetch", "FAIL_FETCH_STEP"), ("sanitycheck", "FAIL_SANITY_CHECK_STEP"), ("extract", "ERROR")]
)
def test_errors_have_the_exit_status_of_their_step(easyblock, step, code):
    """easybuild, upstream's suites: EasyBuild's status for failed commands in that step, unless errors have one."""
    block = easyblock("", cls=ContainerInstall)

    def fail(own):
        raise EasyBuildError("text", exit_code=own)

    for own, expected in ((EasyBuildExit.ERROR, EasyBuildExit[code]), *[(EasyBuildExit.FAIL_CHECKSUM,) * 2]):
        method = functools.wraps(fail)(functools.partial(fail, own))
        with pytest.raises(EasyBuildError) as error:
            block.run_step(step, [lambda _, method=method: method])
        assert error.value.exit_code == expected


def test_the_easyconfig_is_read_once_per_step(easyblock):
    """What follows from the easyconfig is made once per step, with templates and what hooks have changed."""
    block = easyblock("binds = ['%(builddir)s']", cls=ContainerInstall)
    block.builddir, seen = "/build/one", []

    def look():
        seen.append((block.spec, block.spec))

    for builddir in ("/build/one", "/build/two"):
        block.builddir = builddir
        block.run_step("fetch", [lambda _: look])
    assert [first is second for first, second in seen] == [True, True]
    assert [first.binds for first, _ in seen] == [["/build/one"], ["/build/two"]]


def test_stages_are_parsed_once(easyblock, monkeypatch):
    """However often steps ask for the stages, each is made once, and nothing can be written into it."""
    made, make = [], PipStage.__init__
    monkeypatch.setattr(PipStage, "__init__", lambda stage, *values: made.append(stage) or make(stage, *values))
    block = easyblock("requirements = [{'requirements': 'einops'}, {'name': 'two', 'requirements': 'rich'}]")
    for _ in range(3):
        VenvSpec.check(VenvSpec.values_in(block.cfg))
        stages = block.stages()
    assert stages == made
    with pytest.raises(AttributeError, match="can't be changed"):
        stages[0].no_build_isolation = True


def test_a_missing_runtime_has_an_exit_status_of_its_own(monkeypatch, tmp_path):
    """easybuild, upstream's suites: the status tells, too, that something must be installed on the system."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EasyBuildError) as error:
        Runtime()
    assert error.value.exit_code == EasyBuildExit.MISSING_SYSTEM_DEPENDENCY


def test_the_easyconfig_wins_over_what_the_module_adds(easyblock):
    """'container_env' comes before the module's own values; its PYTHONPATH follows the venv's packages."""
    own = {"WITH_CONDA": "source /own", "PYTHONPATH": "/site", "VIRTUAL_ENV_PROMPT": "mine"}
    block = easyblock(f"container_env = {own!r}\ninit = 'conda-injected'\nentry_point = '/entry.sh'")
    block.record.venv_environment = {"PYTHONPATH": "/user-software/lib:/site"}
    # an entry point's values are only added
    block.record.entry_point_environment = {"CONDA_SHLVL": "2", "PYTHONNOUSERSITE": "0", "FROM_IMAGE": "1"}
    lines = [line for line in lines_of(block) if line[0] in ("where", "default")]
    assert lines == [
        ("where", "user_software *ENV_PYTHONPATH /user-software/lib:/site"),
        ("where", "user_software *ENV_VIRTUAL_ENV /user-software/venv/example"),
        ("where", "user_software *ENV_VIRTUAL_ENV_PROMPT mine"),
        *(("default", f"*ENV_{name} {value}") for name, value in sorted(own.items())),
        ("default", "*ENV_FROM_IMAGE 1"),
    ]
    # commands of the module have something to activate
    assert ("set", "EBSIF_ACTIVATE 1") in lines_of(block)
    assert ("set", "EBSIF_ACTIVATE 1") not in lines_of(easyblock("init = 'image'"))


def test_files_with_one_name_are_refused(easyblock):
    """Two definition files that would overwrite each other are refused before anything is copied."""
    with pytest.raises(EasyBuildError, match="more than one file named image.def"):
        easyblock("definition_files = ['one/image.def', 'two/image.def']", cls=ContainerInstall)
    easyblock("definition_files = ['one/image.def', 'two/other.def']", cls=ContainerInstall)
