"""Values and names that scripts and Python code must share although neither can import the other."""

import json
import re
import typing
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container import requirements, scripts, sitevalues, values
from easybuild.easyblocks.generic.container.image import installed, layout
from easybuild.easyblocks.generic.container.record import lockfile
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from ebsif.catalog import fieldtypes, site
from ebsif.catalog.stages import as_parameter, stages_of
from ebsif.cli import COMMANDS
from ebsif.render.easyconfig import DEFAULT_VALUES
from packaging.utils import canonicalize_name
from pydantic import TypeAdapter
from support import CHECKOUT, CONTAINER_FILES, tracked

SOURCES = [path for path in tracked("easyblocks/generic/*.py") if CONTAINER_FILES not in path.parents]
PYTHON = "\n".join(path.read_text() for path in SOURCES)


def test_values():
    """Paths that scripts use and Python expects are equal: the settings of the module, and its run scripts."""

    def found(expression, name):
        return set(re.findall(expression, (CONTAINER_FILES / name).read_text()))

    (settings,) = re.findall(r"MODULE_CONF = os\.path\.join\('share', 'ebsif', '(.*)'\)", PYTHON)
    names = ("share/ebsif/set-environment.sh", "share/ebsif/container.sh")
    for name in (*names, "modulefile/container.lua", "modulefile/container.tcl"):
        assert found(r"/share/ebsif/(module\.\w+)", name) == {settings}, name
    assert set(re.findall(r"\['(/runscripts)'\]", PYTHON)) == found(r"\*:(/\w+):\*", "share/ebsif/common.bash") != set()


def test_the_message_of_make_squashfs():
    """The line that eb copies to its output begins alike in the script and in Python."""
    assert '\nsay "made $squashfs: ' in (CONTAINER_FILES / "bin/make-squashfs").read_text()
    assert """printf '%s: %s\\n' "${0##*/}" "$1" >&2""" in (CONTAINER_FILES / "share/ebsif/common.bash").read_text()
    assert scripts.PACKED == "make-squashfs: made "


# our variables only: not _EBSIF_X, which scripts use internally, and not part of another name
VARIABLE = r"(?<![\w-])EBSIF_[A-Z]+(?:_[A-Z]+)*"


def test_variables():
    """Each variable that a script reads is set by the module or documented as a setting for users."""
    settings = {"EBSIF_CPU_BIND", "EBSIF_GPU_VISIBILITY", "EBSIF_PYTHON_RANKS", "EBSIF_RANK_LOGS", "EBSIF_REPORT"}
    internal = {"EBSIF_ADDED", "EBSIF_JOB_CACHES", "EBSIF_SET", "EBSIF_ENTERED", "EBSIF_STAGED"}
    internal |= {"EBSIF_MOUNTED_USER_SOFTWARE", "EBSIF_JOB", "EBSIF_SERVER_LOG"}
    # set where the modules inside an image are initialized
    own_modules = {"EBSIF_BINDS", "EBSIF_MODULES_OF"}
    read = set()
    for path in CONTAINER_FILES.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            read |= set(re.findall(VARIABLE, path.read_text(errors="replace")))
    known = set(re.findall(VARIABLE, PYTHON))
    assert read - known == settings | internal | own_modules
    assert {"EBSIF_GPU", "EBSIF_LOADED_MODULE", "EBSIF_ENTRY_POINT"} <= read & known


def test_list_of_variables():
    """All variables shared by modules, scripts and commands are in one list and have our prefix."""
    used, ours = set(), tracked("easyblocks/generic/**", "generator/ebsif/**")
    for path in ours:
        text = path.read_text(errors="replace")
        used |= set(re.findall(VARIABLE, text))
        assert not re.search(r"\bCONTAINER_(GPU|MODULE|USER_SOFTWARE|ENTRY_POINT)\b", text), path
    assert ours
    assert set(re.findall(VARIABLE, (CHECKOUT / "docs/variables.md").read_text())) == used


def test_every_program_for_images_is_used():
    """Every program for images is used, and every program that is used exists."""
    there = {path.name for path in (CONTAINER_FILES / "sh").iterdir()}
    named = set(re.findall(r"(?:sh_command\(|'sh', )'([\w-]+[.]sh)'", PYTHON))
    assert there == named


def test_kinds_of_gpu():
    """A GPU kind is a row of a table; no other file names devices."""
    assert {kind.visibility for kind in sitevalues.GPU_KINDS.values()} <= set(sitevalues.GPU_VISIBILITY)
    assert set(site.GpuName.__metadata__[0].words) == {"none", *sitevalues.GPU_KINDS}
    assert set(typing.get_args(site.GpuVisibility)) == set(sitevalues.GPU_VISIBILITY)
    for path in tracked("easyblocks/generic", "generator/ebsif/*.py"):
        if path.name != "sitevalues.py":
            assert not re.search("/dev/kfd|/dev/nvidiactl", path.read_text(errors="replace")), path


# --- the easyblocks and the commands


@pytest.mark.parametrize("name", ["torch", "Flash_Attn", "ruamel.yaml", "a--b__c..d", "A-_.b"])
def test_names_of_packages(name):
    """Both sides normalize names as PEP 503 says, including the code in the container, which can't import EasyBuild."""
    copies = []
    for path in CONTAINER_FILES.rglob("*.py"):
        for definition in re.findall(r"^def normal_name\(.*\n(?: +.*\n)+", path.read_text(), re.MULTILINE):
            copies.append({"re": re})
            exec(definition, copies[-1])
    # of the programs that may run without pip
    assert len(copies) == 3
    assert {made["normal_name"](name) for made in (vars(values), *copies)} == {canonicalize_name(name)}


def accepts(kind, text):
    """Return whether a field type of the catalog accepts a text."""
    try:
        TypeAdapter(kind).validate_python(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "problem", "texts"),
    [
        (fieldtypes.EnvName, values.variable_problem, ["A", "_a1", "1A", "A-B", "", "A\n", "\u00c4"]),
        # limits of single modules tools are left to the easyblock, which knows the tool
        (fieldtypes.EnvValue, values.value_problem, ["a", "", "a b", "a\tb", "a\nb", "~/x", "/a:~/b", "a~", "\x7f"]),
        (fieldtypes.EnvValue, values.value_problem, ["\x1b[0m"]),
        # only easyconfigs may contain templates
        (fieldtypes.Bind, values.bind_problem, ["/a", "/a:/b", "/a:/b:ro", "/a\\,b", "/a:/b:image-src=/x,ro"]),
        (fieldtypes.Bind, values.bind_problem, ["/a\\:b:/c", "a", "/a:b", "/a,/b", "/a:/b:ro:rw"]),
    ],
)
def test_names_and_values_of_variables_and_binds(kind, problem, texts):
    """The catalog and the easyblock accept the same ones."""
    assert [text for text in texts if accepts(kind, text)] == [text for text in texts if problem(text) is None]


def test_errors_of_the_operating_system():
    """E-15: words instead of numbers; what else the message says stays."""
    full = "the disk is full (make room, or choose another directory)"
    refused = "the connection was refused (check host and port, and whether the server is running)"
    assert values.plain_error("'/a': [Errno 28] No space left on device: '/a'") == f"'/a': {full}: '/a'"
    assert values.plain_error("HTTP([Errno 111] Connection refused). Use it") == f"HTTP({refused}). Use it"
    assert values.plain_error("[Errno 2] No such file: 'x'") == "No such file: 'x'"


@pytest.mark.parametrize(
    ("rule", "home"),
    [
        ("/opt/miniconda3", "sitevalues.py"),
        ("conda-manual", "sitevalues.py"),
        ("apptainer.{1,4}singularity", "sitevalues.py"),
        ("image-src=", "values.py"),
        (r"\(\?=%\*", "values.py"),
        ("[.]lock[.]json", "lockfile.py"),
        ("(?<![-.\\w])lock[.]json'", "lockfile.py"),
        # names of packages and of variables
        (r"\[-_\.\]\+", "values.py"),
        (r"\[A-Za-z_\]\[A-Za-z0-9_\]\*", "values.py"),
        (r"\[A-Za-z0-9\]\[A-Za-z0-9_\.\+-\]\*", "values.py"),
        (r"egg=\(", "requirements.py"),
        # comments and variables of pip
        (r"\(\^\|\\s\)#", "requirements.py"),
        (r"\(\[A-Z0-9_\]\+\)", "requirements.py"),
        # what starts Python
        (r"python\(3", "servers.py"),
        (r"org\.opencontainers\.image\.ref", "layout.py"),
    ],
)
def test_rules_of_both_sides_have_one_home(rule, home):
    """The commands import what the easyblocks define; only docstrings may repeat it."""
    found = set()
    for path in tracked("easyblocks/*.py", "generator/*.py"):
        code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
        if CONTAINER_FILES not in path.parents and re.search(rf"""["'][^"' ]*{rule}""", code):
            found.add(path.name)
    assert found == {home}


@pytest.mark.parametrize("module", [sitevalues, values, lockfile, installed, layout, requirements])
def test_shared_modules_do_not_import_easybuild(module):
    """Importing it does not load EasyBuild, which would take longer than running `ebsif list`."""
    assert not re.search(r"easybuild\.(?!easyblocks\.generic\.container)", Path(module.__file__).read_text())


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", [], "a\nb==1", "a\n\n  b==1\n", ["a", "b==1"], ["a", "# why", "b==1"]),
        [{"requirements": "a\nb==1"}],
        [{"name": "one", "requirements": ["a"]}, {"requirements": ["b==1"], "no_deps": True}],
        [{"post": ["true"]}],
        {"lock": "/x/lock.json"},
    ],
)
def test_shapes_of_requirements(value):
    """Commands and easyblock read the same lines from every form of the parameter."""
    parameter = None if requirements.lock_of(value) else value
    installed = "".join(stage.requirements for stage in PipStage.from_parameter(parameter)).split("\n")
    assert requirements.lines_of(value) == [line.strip() for line in installed if line.strip()]
    assert len(requirements.stages_of(value)) == len(PipStage.from_parameter(parameter))
    stages = stages_of(value)
    assert [line for stage in stages for line in stage.written] == requirements.lines_of(value)
    again = PipStage.from_parameter(as_parameter(stages))
    assert [stage.requirement_list for stage in again] == [stage.lines for stage in stages]


def test_values_without_a_parameter():
    """The catalog leaves out what the easyblocks have anyway; without a scheduler, they read all of them."""
    ours = {name: value for name, (value, *_) in ContainerInstall.extra_options().items()}
    assert {name: ours[name] for name in DEFAULT_VALUES} == {**DEFAULT_VALUES, "scheduler": None}
    assert next(iter(SCHEDULERS)) == DEFAULT_VALUES["scheduler"]


@pytest.mark.parametrize("value", [5, [1, 2], {"lok": "a"}, [{"requirements": None}], [{}]])
def test_requirements_that_the_easyblock_refuses(value):
    """Commands that only read an easyconfig accept it and leave the error to the easyblock."""
    assert isinstance(requirements.lines_of(value), list)


@pytest.mark.parametrize(
    ("kind", "value", "wrong"),
    [
        ("stages", [{"requirements": "x"}], "stages"),
        ("venv_packages", "a==1", "venv_packages"),
        ("versions", [], "versions"),
        ("image", {"file": 1}, "image: file"),
        ("image", {"size": 1}, "image: file"),
        ("image", {"file": "a.sif", "signers": [1]}, "image: signers"),
        ("system_packages", {"deb": "a"}, "system_packages"),
    ],
)
def test_values_of_a_record_have_their_types(kind, value, wrong):
    """S000-18: reading names the value that is damaged; what another version of ebsif has added is kept."""
    content = {"image": {"file": "a.sif", "size": 1, "new": 2}, "system_packages": {"deb": ["a==1"]}, "new": [3]}
    # whatever its name is, that of a method included
    content.update(dict.fromkeys(("packages", "text", "has", "__init__", "undeclared"), 1))
    record = lockfile.Record.parse(json.dumps(content))
    assert json.loads(record.text) == content
    assert json.loads(record.replace(wrappers=["python"]).text) == {**content, "wrappers": ["python"]}
    assert not callable(record.packages) and record.has("image")
    with pytest.raises(lockfile.RecordError, match=f"damaged: '{wrong}'"):
        lockfile.Record.parse(json.dumps({**content, kind: value}))


def test_commands_of_ebsif_that_the_easyblocks_name():
    """Messages of the easyblocks only name commands that there are; easyblocks work without them."""
    named = {name for path in tracked("easyblocks/*.py") for name in re.findall(r"`ebsif ([a-z]+)", path.read_text())}
    assert {"extend", "show"} <= named
    assert named - set(COMMANDS) == set()


def test_how_scripts_find_their_installation():
    """Commands, wrappers and the interpreter follow links in the same way."""
    line = '[[ ! -L "${BASH_SOURCE[0]}" ]] || exec "$(readlink -f -- "${BASH_SOURCE[0]}")" "$@"\n'
    paths = [path for folder in ("bin", "interpreter") for path in (CONTAINER_FILES / folder).iterdir()]
    others = {"make-squashfs", "unmake-squashfs", "make-venv", "extend-venv-activate"}
    scripts = [path for path in [*paths, CONTAINER_FILES / "share/ebsif/wrapper"] if path.name not in others]
    assert len(scripts) > 6
    for path in scripts:
        text = path.read_text()
        assert line in text and "ebsif_root=" not in text, path


def test_scripts_source_files_that_there_are():
    """Every file that a script sources exists; bash goes on without it, so nothing else would notice."""
    for path in [*(CONTAINER_FILES / "bin").iterdir(), *(CONTAINER_FILES / "share/ebsif").iterdir()]:
        for name in re.findall(r"source \S*/share/ebsif/([\w.-]+)", path.read_text()):
            assert (CONTAINER_FILES / "share/ebsif" / name).exists(), (path, name)


def test_names_that_module_files_define():
    """Procedures and variables in Tcl module files carry our prefix, because the interpreter has others, too."""
    for name in ("swap.tcl", "container.tcl"):
        text = (CONTAINER_FILES / "modulefile" / name).read_text()
        text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
        own = re.sub(r"^proc (?:.*\}|.*\n(?:.+\n)*?\})$", "", text, flags=re.MULTILINE)
        defined = re.findall(r"^proc (\S+)", text, re.MULTILINE) + re.findall(r"\bset (\S+)", own)
        # `root` is EasyBuild's
        assert [one for one in defined if not re.match("ebsif(?:::|_)", one) and one != "root"] == [], name
        assert defined, name
