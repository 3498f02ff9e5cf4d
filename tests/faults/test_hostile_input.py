"""Text that could be taken for code: it comes out as it went in, and nothing is executed."""

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from ebsif.catalog import site, writing, yamlerrors, yamlfile
from ebsif.catalog.guess import adding
from ebsif.catalog.records import CatalogFile
from ebsif.errors import EbsifError, UsageError
from ebsif.images import inspection
from ebsif.jobs import job
from ebsif.jobs.job import Data, parse_data
from ebsif.packages import requirements
from ebsif.render import easyconfig
from ebsif_command import run_ebsif
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from parts import EACH_TOOL, TOOLS, Installed, wheel_settings
from support import CONTAINER_FILES, Site, attempt, printed, write_program

TEXT = Installed.TEXT
# without user software
IMAGE = TEXT.replace("venv_name = 'pytorch'\n", "")
CANARY = "canary"

# Each would create this file in the current directory if a program executed it.
HOSTILE = [
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"'; touch {CANARY}; '",
    f'"; touch {CANARY}; "',
    f"; touch {CANARY} #",
    f"| touch {CANARY}",
    f"& touch {CANARY} &",
    f"\ntouch {CANARY}\n",
    f"$'\\ntouch {CANARY}'",
    "${IFS}",
    "~",
    "*",
    "-rf",
    "--version",
    f"]] .. os.execute('touch {CANARY}') .. [[",
    f"]==] .. os.execute('touch {CANARY}') .. [==[",
    f'" .. os.execute("touch {CANARY}") .. "',
    f"[exec touch {CANARY}]",
    f"}} ; exec touch {CANARY} ; #",
    "\\",
    "\\\\",
    f"{{{{ ''.__class__.__mro__[1].__subclasses__() }}}} {{% raw %}} touch {CANARY}",
    "%(installdir)s",
    "%s %d %%",
    "{0}",
    f"' + __import__('os').system('touch {CANARY}') + '",
    f'"""\n__import__(\'os\').system(\'touch {CANARY}\')\n"""',
    "\t tab",
    "  blanks  ",
    "ünïcode ☃ \U0001f600",
    "\u202e right to left",
    "\x1b[31mred\x1b[0m",
    "\x07",
    "a,b:c;d",
    "x" * 20_000,
    "%{version}",
    "<script>",
    "\\u0041",
    "a\r\nb",
    "#",
    "!important",
    "=",
    "-",
    "&amp;",
    "[1](2)",
    "\x7f",
]
TEXTS = st.lists(
    st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))),
    min_size=1,
    max_size=6,
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current directory, where the canary file would appear."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- from an easyconfig to a process in the container


def values(name):
    """Return values for variables: all hostile ones and as many random ones, always the same."""
    chosen = random.Random(7)
    alphabet = [chr(code) for code in (*range(0x20, 0x7F), 0xE9, 0x2028, 0x1F600)]
    more = ["".join(chosen.choices(alphabet, k=30)) for _ in HOSTILE]
    # values that modules tools can't set are refused, see below
    wrong = "[\\x00-\\x1f\\x7f\U00010000-\U0010ffff]" if name == "Lmod-Tcl" else r"[\x00-\x1f\x7f]"
    right = [re.sub(r"(^|:)~+", r"\1", re.sub(wrong, "", value)) for value in [*HOSTILE, *more]]
    return [value.strip() for value in right] if name == "Lmod-Tcl" else right


@pytest.mark.parametrize("name", EACH_TOOL)
def test_variables_reach_the_container_as_they_are(tmp_path, base_image, fault, name):
    """Easyconfig, EasyBuild, module file, modules tool, bash, runtime, container: every character is preserved."""
    one = Site(tmp_path / "site", TOOLS[name](), Path(sys.prefix))
    (one.sources / "example.sif").symlink_to(base_image)
    wanted = {f"V{number}": value for number, value in enumerate(values(name))}
    one.eb(one.easyconfig(f"easyblock = 'ContainerInstall'\n{IMAGE}container_env = {easyconfig.literal(wanted)}\n"))
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k[0] == 'V'}))"
    result = one.bash(f'module load Example/1.0 && singularity exec $SIF python -c "{code}"')
    found = json.loads(result.stdout)
    for variable, value in wanted.items():
        case = fault("hostile values of variables", f"{name}: {value[:40]!r}")
        case.kept(found.get(variable) == value, found.get(variable))
    fault("hostile values of variables", f"{name}: canary").kept(not list(tmp_path.rglob(CANARY)), "executed")


EMOJI = (" ü", "\U0001f600")


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        ("\x1b[31m", [], "should be one line"),
        *((value, ["--module-syntax=Tcl"], "has blanks at its ends, or characters such as emoji") for value in EMOJI),
    ],
)
def test_values_that_modules_tools_can_not_set(site, fault, value, options, expected):
    """The error names the variable, before anything is done. Other values are in tests/unit."""
    case = fault("hostile values of variables", f"refused: {value!r}")
    result = site.eb(site.easyconfig(TEXT + f"container_env = {{'VALUE': {value!r}}}\n"), *options, check=False)
    case.shown(result.returncode != 0, "eb said nothing of it")
    case.said(result.stdout + result.stderr, f"'container_env': the value of VALUE {expected}")
    case.shown("\x1b[31m" not in result.stdout, "shown as it is")


# combined where one can't hide the effect of another
NAMES = [
    "a b ; touch canary & $(touch canary) `touch canary` ]] {{ 1 }} %x <b> ü☃",
    "it's a#b",
    'say "x" a\\b',
    "-rf",
    "~",
    "*",
]


def test_names_of_images(site, small_image, fault):
    """An image's name may have any character but a slash: it's found, copied, loaded and run; nothing is executed."""
    texts = {}
    for number, name in enumerate(NAMES):
        (site.sources / f"{name}.sif").symlink_to(small_image("busybox"))
        texts[str(number)] = (
            f"easyblock = 'ContainerInstall'\nversionsuffix = '-{number}'\ninit = 'none'\n"
            f"sources = {easyconfig.literal([f'{name}.sif'])}\n"
        )
    results = site.eb_each(texts)
    uses = [
        f'module load Example/1.0-{number} && singularity exec "$SIF" sh -c \'echo "$SINGULARITY_NAME"\' || echo\n'
        "module unload Example\n"
        for number in texts
    ]
    said = site.bash("".join(uses), check=False)
    lines = said.stdout.splitlines()
    for number, name in enumerate(NAMES):
        case = fault("hostile names of images", name)
        result = results[str(number)]
        case.kept(result.returncode == 0, result.stdout[-1500:])
        case.kept(lines[number : number + 1] == [f"{name}.sif"], lines + [said.stderr])
    assert not list(site.prefix.rglob(CANARY))


# --- requirements


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS, suffix=st.sampled_from([".txt", ".toml", ".yml"]))
def test_files_with_requirements(place, texts, suffix):
    """Any file is either read correctly or refused with an error; nothing is executed."""
    path = place / f"requirements{suffix}"
    content = {
        ".txt": "\n".join(texts),
        ".toml": f"[project]\ndependencies = {json.dumps(texts)}\n",
        ".yml": f"dependencies:\n- pip: {json.dumps(texts)}\n",
    }[suffix]
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    wanted = requirements.read_all([path])
    assert all(str(path) in text for text in wanted.wrong)
    if suffix == ".toml" and not wanted.wrong:
        assert wanted.lines == texts
    elif suffix == ".yml":
        # lines as pip reads them, without comments; a directory (.) with its full path
        assert all(any(line in text for text in texts) or line == str(place) for line in wanted.lines)
    assert not (place / CANARY).exists()


# combined where one can't hide the effect of another
LINES = [
    f"hello; $(touch {CANARY}) `touch {CANARY}` '; touch {CANARY} # {{{{ 7 * 7 }}}}\x1b[31m",
    f"hello @ file:///nowhere/$(touch {CANARY}).whl",
    f"--no-such-option=$(touch {CANARY}){'x' * 200_000}",
    "../../../etc/passwd",
]


def test_lines_that_reach_pip(site, wheels, fault):
    """In an easyconfig: pip refuses them, with the line; the error has no escape codes; nothing is executed."""
    texts = {str(number): TEXT + f"requirements = [{line!r}]\n" for number, line in enumerate(LINES)}
    results = site.eb_each(texts, **wheel_settings(wheels))
    for line, result in zip(LINES, results.values()):
        case = fault("hostile requirement lines", line[:60])
        case.shown(result.returncode != 0, "eb said nothing of it")
        case.shown((f"touch {CANARY}" if CANARY in line else line) in result.stdout, "the line is not named")
        case.shown("\x1b" not in result.stdout, "escape codes")
    fault("hostile requirement lines", "canary").kept(not list(site.prefix.rglob(CANARY)), "executed")


# --- YAML

DOCUMENTS = {
    "flow lists 200,000 deep": b"[" * 200_000,
    "tables 100,000 deep": b"{a: " * 100_000,
    "lists in a line 100,000 deep": b"- " * 100_000 + b"a",
    "indentation 3,000 deep": b"".join(b" " * level + b"a:\n" for level in range(3000)),
    "aliases that multiply": b"a0: &a0 [x]\n"
    + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (level, level, level - 1, level - 1) for level in range(1, 60)),
    "a Python object": f"a: !!python/object/apply:os.system ['touch {CANARY}']".encode(),
    "a Python name": b"a: !!python/name:os.system",
    "not UTF-8": b"name: \xff\xfe\n",
    "UTF-16": "name: x\n".encode("utf-16"),
    "NUL": b'name: "\0"\n',
    "control characters": b"name: \x1b[31m\n",
    "two documents": b"name: a\n---\nname: b\n",
    "a key twice": b"name: a\nname: b\n",
    "a list as a key": b"[a, b]: c\n",
    "a merge": b"<<: {name: x}\n",
    "nothing": b"",
    "a list": b"- name\n",
    "a line of 1 MB": b"name: " + b"x" * 1_000_000 + b"\n",
    "a name of 1 MB": b"x" * 1_000_000 + b": y\n",
    "10,000 keys": b"".join(b"k%d: 1\n" % number for number in range(10_000)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_malformed_yaml(place, fault, name):
    """The command that needs the file ends with status 1 and an error that names it, in bounded time and memory."""
    case = fault("hostile YAML", name)
    path = place / "sites/mine/containers/X.yaml"
    path.parent.mkdir(parents=True)
    (place / "sites/mine/site.yaml").write_text("name: mine\ndescription: ours\n")
    path.write_bytes(DOCUMENTS[name])
    limits = {resource.RLIMIT_AS: 4 * 10**9, resource.RLIMIT_CPU: 60}
    result = run_ebsif(["render", "-n", "--catalog", "sites", "--site", "mine"], limits=limits)
    case.shown(result.returncode == 1, f"status {result.returncode}")
    case.said(result.stderr, "X.yaml")
    case.shown("Traceback" not in result.stderr and "\x1b" not in result.stderr, result.stderr[-500:])
    case.shown(len(result.stderr) < 200_000, "a message without end")
    case.kept(not (place / CANARY).exists(), "executed")


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_as_yaml(place, data):
    """Either a document or an error that names the file, and nothing else."""
    path = place / "any.yaml"
    path.write_bytes(data)
    try:
        content = yamlfile.load(path)
        yamlfile.validate(CatalogFile, content, path)
    except yamlerrors.DocumentError as error:
        assert str(path) in str(error)
    except RecursionError:
        pytest.fail("too deep")


# --- labels of images


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS)
def test_metadata_of_an_image(place, texts):
    """From any labels, definition file and versions of packages: a record that reads back unchanged, or an error."""
    text = texts[0]
    found = inspection.Inspection(
        path="/images/julia-1.11.sif",
        resolved="/images/julia-1.11.sif",
        size=1,
        system=text,
        labels={"org.opencontainers.image.version": text, "org.opencontainers.image.url": text, text: text},
        components={"rocm": text, "cuda": text},
        python=inspection.Python(text, "/opt/x", "/opt/x", dict.fromkeys(["torch", text], text)),
        init="image",
    )
    status = type("Status", (), {"st_mtime": 0})()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "stat", lambda self, **_: status)
        patch.setattr(Path, "resolve", lambda self, **_: self)
        try:
            proposal = adding.propose(found, [], name="Julia")
        except EbsifError:
            return
    path = place / "Julia.yaml"
    path.unlink(missing_ok=True)
    try:
        writing.write([proposal], path)
    except EbsifError:
        assert not path.exists()
    else:
        (record,) = yamlfile.load(path)["containers"]
        assert record["components"] == proposal.values["components"]
    assert not (place / CANARY).exists()


def test_labels_at_a_terminal(tmp_path, fault):
    """`ebsif show IMAGE` shows each label on one line, without escape codes."""
    root = tmp_path / "root"
    for folder in ("bin", ".singularity.d"):
        (root / folder).mkdir(parents=True)
    labels = {f"label{number}": text for number, text in enumerate(HOSTILE) if len(text) < 1000}
    (root / ".singularity.d/labels.json").write_text(json.dumps(labels))
    for name in ("sh", "bash"):
        shutil.copy("/bin/bash", root / "bin" / name)
    libraries = printed(["ldd", "/bin/bash"]).split()
    for path in libraries:
        if path.startswith("/"):
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path[1:])
    subprocess.run(["apptainer", "--silent", "build", tmp_path / "x.sif", root], check=True, capture_output=True)
    command = [Path(sys.prefix) / "bin/ebsif", "show", tmp_path / "x.sif"]
    result = attempt(command, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    shown = [line for line in result.stdout.splitlines() if line.startswith("label ")]
    case = fault("hostile labels of images", "inspect")
    case.shown(len(shown) == len(labels), f"{len(shown)} of {len(labels)} lines")
    case.shown("\x1b" not in result.stdout and "\x07" not in result.stdout, "codes for the terminal")
    data = json.loads(printed([*command, "--json"]))
    for name, text in labels.items():
        fault("hostile labels of images", text[:40]).kept(data["labels"].get(name) == text, data["labels"].get(name))
    assert not list(tmp_path.rglob(CANARY))


# --- batch scripts


def bound(words):
    """Return the data (list of Data) that --data binds for files with these names, as far as it takes them."""
    taken = []
    for number, word in enumerate(words):
        with suppress(UsageError):
            taken.append(parse_data(f"{word}:/data/{number}"))
    return taken


@example(words=[": "])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=TEXTS)
def test_batch_scripts(place, words):
    """Words of the program, its data and its module remain words in the script: bash executes none of them."""
    shims = place / "shims"
    shims.mkdir(exist_ok=True)
    shim = shims / "srun"
    if not shim.exists():
        write_program(shim, "#!/bin/bash\nprintf '%s\\0' \"$@\" >seen\n")
    (place / "seen").unlink(missing_ok=True)
    # the script ends before srun if data is missing
    for data in (tuple(map(Data, words)), tuple(bound(words)), ()):
        text = job.script(job.JobRequest(module=words[0], command=("train.py", *words), data=data), site.read("local"))
        # too long for an argument of bash
        (place / "script").write_text(f"module() {{ :; }}\nSIF=x\n{text}")
        subprocess.run(
            ["bash", "script"],
            cwd=place,
            capture_output=True,
            check=False,
            timeout=20,
            env={"PATH": f"{shims}:/usr/bin:/bin", "RUNSCRIPTS": CONTAINER_FILES / "runscripts", "SLURM_JOB_ID": "1"},
        )
        assert not (place / CANARY).exists()
    seen = (place / "seen").read_bytes().decode().split("\0")[:-1]
    assert seen[-len(words) - 1 :] == ["train.py", *words]


# --- paths that leave the installation


LEAVING = [
    ("definition_files = ['../../../../etc/passwd-none']\n", "passwd-none"),
    ("requirements = [{'requirements': 'hello', 'patches': ['../escape.patch']}]\n", "patch"),
    ("requirements = [{'requirements': 'hello', 'patches': ['escape.patch']}]\n", ""),
]
PATCH = """\
--- a/{name}
+++ b/{name}
@@ -0,0 +1 @@
+escaped
"""


def test_paths_that_leave_the_installation(site, wheels, fault):
    """
    Refused with an error; no file is written outside, nor by a patch outside of site-packages.

    Parameters that are refused before anything is done are in tests/unit.
    """
    (site.sources / "escape.patch").write_text(PATCH.format(name="../../../../../../../../escape"))
    texts = {str(number): TEXT + text for number, (text, _) in enumerate(LEAVING)}
    for (text, expected), result in zip(LEAVING, site.eb_each(texts, **wheel_settings(wheels)).values()):
        case = fault("paths that leave", text.strip())
        case.shown(result.returncode != 0, "eb said nothing of it")
        case.said(result.stdout, expected)
    fault("paths that leave", "all of them").kept(not list(site.prefix.rglob("escape")), "a file outside")


@pytest.mark.parametrize("name", ["../escape", "/tmp/zesc", "..", "a/../../e"])
def test_a_malicious_squashfs_file(tmp_path, fault, name):
    """A real file, modified to contain names with paths outside: unmake-squashfs writes nothing outside."""
    case = fault("paths that leave", f"{name} in a SquashFS file")
    root = tmp_path / "installation"
    shutil.copytree(CONTAINER_FILES, root)
    (root / "soft").mkdir()
    placeholder = "z" * len(name)
    (root / "soft" / placeholder).write_text("escaped")
    squashfs = root / "user-software.squashfs"
    command = ["mksquashfs", root / "soft", squashfs, "-no-progress", "-noI", "-noD", "-noF", "-noX"]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(root / "soft")
    data = squashfs.read_bytes()
    assert data.count(placeholder.encode()) == 1
    squashfs.write_bytes(data.replace(placeholder.encode(), name.encode()))
    before = {str(path) for path in tmp_path.rglob("*")}
    result = attempt([root / "bin/unmake-squashfs"])
    new = {str(path) for path in tmp_path.rglob("*")} - before
    outside = [path for path in new if not path.startswith(str(root / "user-software"))]
    case.kept(outside == [] and not os.path.lexists("/tmp/zesc"), outside)
    case.shown(result.returncode == 4 or not list((root / "user-software").iterdir()), result.stderr)
    if result.returncode:
        case.said(result.stderr, "unsquashfs")
