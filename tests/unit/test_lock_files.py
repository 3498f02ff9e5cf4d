"""Lock files that users bring: uv.lock and pylock.toml (E-12)."""

import pytest
from ebsif.packages import requirements
from ebsif.packages.formats.wanted import Image
from ebsif.packages.requirements import RequirementsError

# an index that the lock files name, and one that the project declares, with credentials that locks don't have
INDEX, OWN_INDEX = "https://index.example.org/simple", "https://example.org/own"
PROJECT_INDEXES = '[[tool.uv.index]]\nname = "own"\nurl = "https://bob@example.org/own/"\n'
HASHES = {letter: f"sha256:{letter * 64}" for letter in "abcdef"}


def uv_package(name, more="", version="1.0", source=f'{{ registry = "{INDEX}" }}', file="a", wheel="py3-none-any"):
    """Return a package of a uv.lock."""
    files = (f'wheels = [{{ url = "https://example.org/{name.replace("-", "_")}-{version}-{wheel}.whl", '
             f'hash = "{HASHES[file]}" }}]\n') if file else ""
    return f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {source}\n{files}{more}'


PROJECT = uv_package("mine", source='{ editable = "." }', file="", more="""\
dependencies = [
    { name = "direct", extra = ["fast"] },
    { name = "old", marker = "python_full_version < '3.11'" },
    { name = "torch" },
    { name = "forked", version = "1.0", marker = "python_full_version < '3.12'" },
    { name = "forked", version = "2.0", marker = "python_full_version >= '3.12'" },
    { name = "private" },
]
[package.optional-dependencies]
train = [{ name = "trainer" }]
cpu = [{ name = "chosen", marker = "extra == 'extra-4-mine-cpu' or extra != 'extra-4-mine-gpu'" }]
gpu = [{ name = "unchosen", marker = "extra == 'extra-4-mine-cpu'" }, { name = "trainer" }]
[package.dev-dependencies]
dev = [{ name = "tester" }, { name = "repository" }, { name = "member" }]
""")
UV = "\n".join([
    'version = 1\nrevision = 3\nrequires-python = ">=3.10"\n', PROJECT,
    uv_package("direct", 'dependencies = [{ name = "indirect" }]\n[package.optional-dependencies]\n'
               'fast = [{ name = "faster" }]\nslow = [{ name = "slower" }]\n', file="b"),
    uv_package("torch", 'dependencies = [{ name = "cuda" }]\n', version="2.6.0", file="c"),
    *(uv_package(name) for name in ("indirect", "faster", "slower", "old", "cuda", "trainer", "chosen", "unchosen",
                                    "tester")),
    uv_package("forked"), uv_package("forked", version="2.0", file="d"),
    uv_package("private", source=f'{{ registry = "{OWN_INDEX}" }}', version="1.0+rocm", file="e"),
    uv_package("repository", source='{ git = "https://example.org/r?rev=main#0123" }', file=""),
    uv_package("member", 'dependencies = [{ name = "slower" }]\n', source='{ directory = "libs/member" }', file=""),
])
ALWAYS = ["direct==1.0", "faster==1.0", "forked==1.0", "indirect==1.0", "private==1.0+rocm", "torch==2.6.0"]
TORCH = Image("3.11", {"torch": "2.6.0+rocm6.2"})


def names(wanted):
    """Return the requirements without hashes and options."""
    return [line.split(" --hash")[0] for line in wanted.lines if not line.startswith("-")]


def not_searched(path, *indexes):
    """Return the message on indexes of a lock file that pip doesn't search."""
    return (f"{path}: pip searches the index that it is configured for, not {', '.join(indexes)} (to add an index, "
            f"declare it in {path.parent}/pyproject.toml as [[tool.uv.index]])")


@pytest.fixture
def lock(tmp_path):
    """A uv.lock with the project that declares one of its indexes."""
    (tmp_path / "pyproject.toml").write_text(PROJECT_INDEXES)
    path = tmp_path / "uv.lock"
    path.write_text(UV)
    return path


def test_a_lock_of_uv(lock):
    """Everything that the project needs in the image, with hashes; what the image's packages need is not followed."""
    wanted = requirements.read(lock, TORCH)
    assert names(wanted) == ALWAYS
    assert wanted.lines[:2] == [f"--extra-index-url {OWN_INDEX}", f"direct==1.0 --hash={HASHES['b']}"]
    assert wanted.impossible == [not_searched(lock, INDEX)]
    without = requirements.read(lock, Image("3.10.14"))
    assert names(without) == sorted([*ALWAYS, "cuda==1.0", "old==1.0"])
    assert "forked==2.0" in names(requirements.read(lock, Image("3.12")))


def test_extras_and_groups_of_a_lock_of_uv(lock):
    """Markers of uv for extras that exclude each other; entries without a hash are named."""
    wanted = requirements.read(lock, TORCH, ["Train", "cpu"])
    assert names(wanted) == sorted([*ALWAYS, "chosen==1.0", "trainer==1.0"])
    assert names(requirements.read(lock, TORCH, ["gpu"])) == sorted([*ALWAYS, "trainer==1.0"])
    wanted = requirements.read(lock, TORCH, [], ["dev"])
    assert names(wanted) == sorted([*ALWAYS, "slower==1.0", "tester==1.0"])
    assert wanted.impossible == [
        f"{lock}: repository is not installed: it comes from a repository (https://example.org/r?rev=main#0123), which "
        "has no hash: install it in a stage of its own",
        f"{lock}: member is not installed: it is the directory libs/member: build a wheel of it",
        not_searched(lock, INDEX)]


def test_files_for_other_pythons_and_systems(tmp_path):
    """Only the hashes of files that may be installed are kept."""
    files = ["cp310-cp310-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp39-abi3-linux_x86_64",
             "cp311-cp311-win_amd64", "cp311-cp311-musllinux_1_1_x86_64", "py3-none-any"]
    wheels = ", ".join(f'{{ path = "x-1-{tag}.whl", hash = "{one}" }}' for tag, one in zip(files, HASHES.values()))
    folder = tmp_path / "a project"
    path = folder / "uv.lock"
    (folder / "wheels").mkdir(parents=True)
    path.write_text(
        'version = 1\n[[package]]\nname = "mine"\nsource = { virtual = "." }\ndependencies = [{ name = "x" }]\n'
        f'[[package]]\nname = "x"\nversion = "1"\nsource = {{ registry = "wheels" }}\nwheels = [{wheels}]\n')
    kept = " ".join(f"--hash={HASHES[letter]}" for letter in "bcf")
    assert requirements.read(path, Image("3.11")).lines == [f"--find-links '{folder}/wheels'", f"x==1 {kept}"]
    assert HASHES["a"] in requirements.read(path).lines[1]


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
wheels = [{{ url = "https://example.org/a-1-py3-none-any.whl", hashes = {{ sha256 = "{'a' * 64}", md5 = "0" }} }}]
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
    assert not [line for line in requirements.read(tmp_path / "pylock.toml", Image("3.11")).lines if INDEX in line]


def test_a_pylock(tmp_path):
    """PEP 751: markers, extras, default and other groups; indexes and hashes; entries without a hash are named."""
    (tmp_path / "pyproject.toml").write_text(PROJECT_INDEXES)
    path = tmp_path / "pylock.mine.toml"
    path.write_text(PYLOCK)
    wanted = requirements.read(path, Image("3.11"))
    always = [f"a==1 --hash=sha256:{'a' * 64} --hash=sha512:1"]
    rest = ["d==1 --hash=sha256:4", "g @ https://example.org/g-2.zip --hash=sha256:5"]
    assert wanted.lines == [f"--find-links {tmp_path}/wheels", *always, *rest]
    wanted = requirements.read(path, Image("3.10", {"g": "2"}), ["train"], ["dev"])
    assert wanted.lines == [
        f"--extra-index-url {OWN_INDEX}", f"--find-links {tmp_path}/wheels", *always, "b==1 --hash=sha256:2",
        "c==1 --hash=sha256:3", rest[0], "g==2 --hash=sha256:5"]
    assert wanted.impossible == [
        f"{path}: e is not installed: it comes from a repository (https://example.org/e, commit 0123), which has no "
        "hash: install it in a stage of its own",
        f"{path}: f is not installed: it is the directory libs/f: build a wheel of it",
        not_searched(path, INDEX)]
    (tmp_path / "pyproject.toml").unlink()
    assert requirements.read(path, Image("3.11"), ["train"]).impossible == [not_searched(path, INDEX, OWN_INDEX)]


@pytest.mark.parametrize(("text", "image", "chosen", "expected"), [
    (UV, Image("3.11", {"torch": "2.7.0+rocm6.2", "direct": "0.9"}), {},
     "other versions than the image, whose packages can't be replaced:\n  direct 1.0, but the image has 0.9\n"
     "  torch 2.6.0, but the image has 2.7.0+rocm6.2\nLock it again with the versions of the image (with uv: "
     'constraint-dependencies = ["direct==0.9", "torch==2.7.0"] in [tool.uv])'),
    (UV, Image("3.9"), {}, "requires Python >=3.10, but the image has Python 3.9"),
    (UV, Image(), {}, "depends on the Python of the image, whose version is not known"),
    (UV, TORCH, {"extras": ["x"]}, "has no extra 'x' (known: cpu, gpu, train)"),
    (UV, TORCH, {"groups": ["x"]}, "has no dependency group 'x' (known: dev)"),
    ("version = 2\n", TORCH, {}, "format version 2 is not supported (only 1)"),
    ("version = 1\n", TORCH, {}, "has no project"),
    ("version = 1\npackage = [{name = 'a', source = {}}]\n", TORCH, {}, "is not a valid uv.lock"),
    (UV.replace(HASHES["b"], "md5:1"), TORCH, {}, "has no file of direct 1.0 for this image with a hash"),
    (UV.replace("direct-1.0-py3-none-any", "direct-1.0-cp39-cp39-win32"), TORCH, {}, "has no file of direct 1.0"),
    (PYLOCK.replace("1.0", "2.0"), TORCH, {}, "is not a valid pylock.toml"),
    (PYLOCK.replace("'linux'", "'darwin'"), TORCH, {},
     "is locked for other environments: sys_platform == \"darwin\"; "),
    (PYLOCK, Image("3.9"), {}, "requires Python >=3.10, but the image has Python 3.9"),
    (PYLOCK, TORCH, {"extras": ["x"]}, "has no extra 'x' (known: train)"),
    (PYLOCK, Image("3.11", {"a": "2"}), {}, "\n  a 1, but the image has 2\n"),
])
def test_locks_that_can_not_be_used(tmp_path, text, image, chosen, expected):
    """The error names the file, the problem and the remedy."""
    path = tmp_path / ("pylock.toml" if text.startswith("lock-version") else "uv.lock")
    path.write_text(text)
    with pytest.raises(RequirementsError) as error:
        requirements.read(path, image, **chosen)
    assert str(path) in str(error.value)
    assert expected in str(error.value)
