"""Lock files that users bring: uv.lock and pylock.toml (E-12)."""

import pytest
from ebsif.packages import requirements
from ebsif.packages.wanted import KnownImage
from support import write_program

# an index that the lock files name, and one that the project declares, with credentials that locks don't have
INDEX, OWN_INDEX = "https://index.example.org/simple", "https://example.org/own"
PROJECT_INDEXES = '[[tool.uv.index]]\nname = "own"\nurl = "https://bob@example.org/own/"\n'


def names(wanted):
    """Return the requirements without hashes and options."""
    return [line.split(" --hash")[0] for line in wanted.lines if not line.startswith("-")]


def not_searched(path, *indexes):
    """Return the message on indexes of a lock file that pip doesn't search."""
    return (
        f"{path}: pip searches the index that it is configured for, not {', '.join(indexes)} (to add an index, "
        f"declare it in {path.parent}/pyproject.toml as [[tool.uv.index]])"
    )


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """A program that writes a pylock.toml without what was pruned, as uv does; returns the file with its arguments."""
    program, arguments = tmp_path / "bin/uv", tmp_path / "arguments"
    write_program(
        program,
        f"""#!/bin/sh
echo "$@" >>{arguments}
case "$*" in
*" x "*) echo "error: Extra \\`x\\` is not defined" >&2; exit 2 ;;
*"--prune torch"*) cat {tmp_path}/pruned ;;
*) cat {tmp_path}/exported ;;
esac
""",
    )
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return arguments


def exported(name, version="1.0"):
    """Return a package in the pylock.toml that uv writes."""
    return (
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\nindex = "{INDEX}"\nwheels = [{{ url = '
        f'"https://example.org/{name}-{version}-py3-none-any.whl", hashes = {{ sha256 = "{"a" * 64}" }} }}]\n'
    )


def test_a_lock_of_uv(tmp_path, uv, monkeypatch):
    """E-12: as uv exports it, with hashes; what only the image's packages need is left out."""
    path = tmp_path / "uv.lock"
    path.write_text("version = 1\n")
    head = 'lock-version = "1.0"\ncreated-by = "uv"\nrequires-python = ">=3.10"\n'
    (tmp_path / "exported").write_text(head + exported("direct") + exported("cuda") + exported("torch", "2.6.0"))
    (tmp_path / "pruned").write_text(head + exported("direct"))
    wanted = requirements.read_all([path], KnownImage("3.11"), ["train"], ["dev"])
    assert names(wanted) == ["cuda==1.0", "direct==1.0", "torch==2.6.0"]
    assert all(f" --hash=sha256:{'a' * 64}" in line for line in wanted.lines)
    assert wanted.impossible == [not_searched(path, INDEX)]
    assert uv.read_text().endswith(f" --extra train --group dev --directory {tmp_path}\n")
    newer = requirements.read_all([path], KnownImage("3.11", {"torch": "2.6.0+rocm6.2"}))
    assert names(newer) == ["direct==1.0", "torch==2.6.0"]
    (tmp_path / "pyproject.toml").write_text(
        "[project.optional-dependencies]\ntrain = ['a']\nPlot = ['b']\nnone = []\n"
    )
    assert requirements.read_all([path], KnownImage("3.11"), ["Train"]).impossible == [
        not_searched(path, INDEX),
        f"{path}: installed only if you add them: --extra Plot",
    ]
    # V-01, V-03: another version may be replaced on purpose, or be pure Python; it is read with what it needs
    for there in ("2.7.0", "2.7.0+rocm6.2"):
        assert names(requirements.read_all([path], KnownImage("3.11", {"torch": there}))) == names(wanted)
    wrong = requirements.read_all([path], KnownImage("3.11"), ["x"]).wrong
    assert wrong == [f"{path}: can't be read by uv: Extra `x` is not defined"]
    monkeypatch.setenv("PATH", "/none")
    wrong = requirements.read_all([path], KnownImage("3.11")).wrong
    assert "needs uv, which is not on PATH: install it for yourself (`python3 -m pip install" in wrong[0]


PYLOCK = f"""\
lock-version = "1.0"
created-by = "tests"
requires-python = ">=3.10"
environments = ["sys_platform == 'linux'", "sys_platform == 'win32'"]
extras = ["train"]
dependency-groups = ["dev", "docs"]
default-groups = ["docs"]
[[packages]]
name = "a"
version = "1"
index = "{INDEX}"
wheels = [{{ url = "https://example.org/a-1-py3-none-any.whl", hashes = {{ sha256 = "{"a" * 64}", md5 = "0" }} }}]
sdist = {{ url = "https://example.org/a-1.tar.gz", hashes = {{ sha512 = "1" }} }}
[[packages]]
name = "b"
version = "1"
marker = "python_version < '3.11'"
index = "{INDEX}"
sdist = {{ path = "b-1.tar.gz", hashes = {{ sha256 = "2" }} }}
[[packages]]
name = "c"
version = "1"
marker = "'train' in extras"
index = "{OWN_INDEX}"
sdist = {{ url = "https://example.org/c-1.tar.gz", hashes = {{ sha256 = "3" }} }}
[[packages]]
name = "d"
version = "1"
marker = "'docs' in dependency_groups"
sdist = {{ path = "wheels/d-1.tar.gz", hashes = {{ sha256 = "4" }} }}
[[packages]]
name = "e"
marker = "'dev' in dependency_groups"
vcs = {{ type = "git", url = "https://example.org/e", commit-id = "0123" }}
[[packages]]
name = "f"
marker = "'dev' in dependency_groups"
directory = {{ path = "libs/f" }}
[[packages]]
name = "g"
version = "2"
archive = {{ url = "https://example.org/g-2.zip", hashes = {{ sha256 = "5" }} }}
"""


@pytest.mark.parametrize("project", ["tool = 5", "tool.uv.index = [{ name = 'x' }]", "[project]"])
def test_a_project_without_indexes(tmp_path, project):
    """The project beside a lock file may declare no index, or be broken."""
    (tmp_path / "pyproject.toml").write_text(f"{project}\n")
    (tmp_path / "pylock.toml").write_text(PYLOCK)
    assert not [
        line for line in requirements.read_all([tmp_path / "pylock.toml"], KnownImage("3.11")).lines if INDEX in line
    ]


def test_a_pylock(tmp_path):
    """PEP 751: markers, extras, default and other groups; indexes and hashes; entries without a hash are named."""
    (tmp_path / "pyproject.toml").write_text(PROJECT_INDEXES)
    path = tmp_path / "pylock.mine.toml"
    path.write_text(PYLOCK)
    wanted = requirements.read_all([path], KnownImage("3.11"))
    always = [f"a==1 --hash=sha256:{'a' * 64} --hash=sha512:1"]
    rest = ["d==1 --hash=sha256:4", "g @ https://example.org/g-2.zip --hash=sha256:5"]
    assert wanted.lines == [f"--find-links {tmp_path}/wheels", *always, *rest]
    wanted = requirements.read_all([path], KnownImage("3.10", {"g": "2"}), ["train"], ["dev"])
    assert wanted.lines == [
        f"--extra-index-url {OWN_INDEX}",
        f"--find-links {tmp_path}/wheels",
        *always,
        "b==1 --hash=sha256:2",
        "c==1 --hash=sha256:3",
        rest[0],
        "g==2 --hash=sha256:5",
    ]
    assert wanted.impossible == [
        f"{path}: e is not installed: it comes from a repository (https://example.org/e, commit 0123), which has no "
        "hash: install it in a stage of its own",
        f"{path}: f is not installed: it is the directory libs/f: build a wheel of it",
        not_searched(path, INDEX),
    ]
    (tmp_path / "pyproject.toml").unlink()
    assert requirements.read_all([path], KnownImage("3.11"), ["train"]).impossible == [
        not_searched(path, INDEX, OWN_INDEX),
        f"{path}: installed only if you add them: --group dev",
    ]


def test_files_for_other_pythons_and_systems(tmp_path):
    """Only the hashes of files that may be installed are kept."""
    files = ["cp310-cp310-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp39-abi3-linux_x86_64"]
    files += ["cp311-cp311-win_amd64", "cp311-cp311-musllinux_1_1_x86_64", "py3-none-any"]
    wheels = ", ".join(
        f'{{ path = "wheels/x-1-{tag}.whl", hashes = {{ sha256 = "{number}" }} }}' for number, tag in enumerate(files)
    )
    folder = tmp_path / "a project"
    path = folder / "pylock.toml"
    (folder / "wheels").mkdir(parents=True)
    path.write_text(
        'lock-version = "1.0"\ncreated-by = "tests"\n[[packages]]\nname = "x"\nversion = "1"\n'
        f'index = "file://{folder}/wheels"\nwheels = [{wheels}]\n'
    )
    kept = " ".join(f"--hash=sha256:{number}" for number in (1, 2, 5))
    assert requirements.read_all([path], KnownImage("3.11")).lines == [
        f"--find-links '{folder}/wheels'",
        f"x==1 {kept}",
    ]
    assert "--hash=sha256:0" in requirements.read_all([path]).lines[1]


@pytest.mark.parametrize(
    ("changes", "python", "chosen", "expected"),
    [
        ({}, None, {}, "depends on the Python of the image, whose version is not known"),
        ({"2.0": "1", 'sha256 = "5': 'md5 = "5'}, "3.11", {}, "has no file of g 2 for this image with a hash"),
        ({"1.0": "2.0"}, "3.11", {}, "is not a valid lock file"),
        ({"'linux'": "'darwin'"}, "3.11", {}, 'is locked for other environments: sys_platform == "darwin"; '),
        ({}, "3.9", {}, "requires Python >=3.10, but the image has Python 3.9"),
        ({}, "3.11", {"extras": ["x"]}, "has no extra 'x' (known: train)"),
        ({}, "3.11", {"groups": ["x"]}, "has no dependency group 'x' (known: dev, docs)"),
    ],
)
def test_locks_that_can_not_be_used(tmp_path, changes, python, chosen, expected):
    """The error names the file, the problem and the remedy."""
    path, text = tmp_path / "pylock.toml", PYLOCK
    for before, after in changes.items():
        text = text.replace(before, after)
    path.write_text(text)
    (wrong,) = requirements.read_all([path], KnownImage(python), **chosen).wrong
    assert str(path) in wrong
    assert expected in wrong
