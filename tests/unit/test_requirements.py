"""Files that users bring: requirements.txt, pyproject.toml, environment.yml."""

import pytest
from ebsif.user import requirements


def read(path, text):
    """Return the requirements in a file with this text."""
    path.write_text(text)
    return requirements.read(path)


def test_a_requirements_file(tmp_path):
    """Comments and blank lines are removed, continued lines joined, included files inserted."""
    (tmp_path / "more").mkdir()
    included = "--extra-index-url https://example.org/simple\nb[x]>=2 ; python_version > '3'\n"
    (tmp_path / "more/b.txt").write_text(included)
    address = "c @ git+https://example.org/c.git#egg=c"
    wanted = read(tmp_path / "a.txt", f"# mine\na==1  # one\n\n-r more/b.txt\n{address}\nd \\\n  <2\n")
    assert wanted.lines == ["a==1", "--extra-index-url https://example.org/simple", "b[x]>=2 ; python_version > '3'",
                            "c @ git+https://example.org/c.git#egg=c", "d <2"]


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("a.txt", "# nothing\n", "names no Python package"),
    ("a.txt", "-r a.txt\n", "includes itself"),
    ("a.txt", "-r none.txt\n", "can't be read"),
    ("a.txt", "\n-e .\n", "a.txt:2: '-e .' would break the module as soon as the directory is removed"),
    ("a.txt", "--editable /x\n", "would break the module as soon as"),
    ("a.txt", "a\nb \\\n  <2\n-c none.txt\n", "none.txt can't be read: it does not exist"),
    ("a.txt", "-fwheels\n", "a.txt:1: "),
    ("a.txt", "x-1.0-py3-none-any.whl\n", "a.txt:1: "),
    ("environment.yml", "dependencies: [{pip: [-r none.txt]}]\n", "can't be read"),
    ("pyproject.toml", "[project]\ndynamic = ['dependencies']\n", "list them in a requirements.txt"),
    ("pyproject.toml", "[project\n", "can't be read"),
    ("environment.yml", "dependencies: [pytorch]\n", "unless the image contains it, add torch to the pip section"),
    ("environment.yml", "dependencies: [\n", "can't be read"),
])
def test_unsupported_files(tmp_path, name, text, expected):
    """The error names the file, the problem and the remedy."""
    with pytest.raises(requirements.RequirementsError) as error:
        read(tmp_path / name, text)
    assert expected in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_project(tmp_path):
    """The dependencies in a pyproject.toml."""
    text = "[project]\nname = 'x'\ndependencies = ['a>=1', 'b']\n"
    assert read(tmp_path / "pyproject.toml", text).lines == ["a>=1", "b"]


def test_a_conda_environment(tmp_path):
    """Use D12.8: the pip section with included files; each Conda package is accounted for."""
    text = ("dependencies: [python=3.10, pip, 'conda-forge::opencv=4', ffmpeg, 'numpy<2', pytorch=2.6=py3_0, "
            "{pip: [rich==13, -r other.txt]}]\n")
    (tmp_path / "other.txt").write_text("./a.whl[x] ; python_version > '3'\n")
    (tmp_path / "a.whl").touch()
    wanted = read(tmp_path / "environment.yml", text)
    assert wanted.lines == ["rich==13", f"{tmp_path}/a.whl[x] ; python_version > '3'"]
    assert wanted.impossible == [
        "Conda package python=3.10: using the Python of the image instead",
        "Conda package conda-forge::opencv=4: ignored: unless the image contains it, add opencv-python==4.* to the "
        "pip section",
        "Conda package ffmpeg: ignored: pip can't install it, so the image must contain it",
        "Conda package numpy<2: ignored: if it is a Python package that the image lacks, add "
        "numpy<2 to the pip section",
        "Conda package pytorch=2.6=py3_0: ignored: unless the image contains it, add torch==2.6.* to the pip "
        "section"]
    inside = {"python": "3.11", "torch": "2.6.0+rocm6.2", "numpy": "2.1"}
    assert requirements.read(tmp_path / "environment.yml", inside).impossible[::2] == [
        "Conda package python=3.10: using python 3.11 of the image instead",
        "Conda package ffmpeg: ignored: pip can't install it, so the image must contain it"]
    assert requirements.read(tmp_path / "environment.yml", inside).impossible[-1] == (
        "Conda package numpy<2: using numpy 2.1 of the image instead")


def test_paths_beside_the_file(tmp_path, monkeypatch):
    """Defects D2: absolute in the easyconfig, wherever the file was read from; URLs are unchanged."""
    monkeypatch.chdir("/")
    for name in ("wheels", "more", "pro ject"):
        (tmp_path / name).mkdir()
    for name in ("c.txt", "more/d.txt", "wheels/x.whl", "y.tar.gz"):
        (tmp_path / name).touch()
    (tmp_path / "more/e.txt").write_text("-c d.txt\n-c https://example.org/c.txt\n../wheels/x.whl\n")
    same = ["-c /opt/c.txt", "--find-links=/opt", "/opt/z.whl", "a @ https://example.org/a/b.whl", "-e git+https://a/b",
            "git+https://example.org/a/b", "--index-url https://example.org/simple", "a.b-c_d[e]==1 ; os_name == '/'"]
    text = ("-c c.txt\n--constraint=c.txt\n-f wheels\n--find-links wheels\nwheels/x.whl --hash=sha256:0\ny.tar.gz\n.\n"
            "-r more/e.txt\n" + "\n".join(same))
    assert read(tmp_path / "a.txt", "\ufeff" + text).lines == [
        f"-c {tmp_path}/c.txt", f"--constraint {tmp_path}/c.txt", f"-f {tmp_path}/wheels",
        f"--find-links {tmp_path}/wheels", f"{tmp_path}/wheels/x.whl --hash=sha256:0", f"{tmp_path}/y.tar.gz",
        str(tmp_path), f"-c {tmp_path}/more/d.txt", "-c https://example.org/c.txt", f"{tmp_path}/wheels/x.whl", *same]
    assert read(tmp_path / "b.txt", "pro\\\n ject\n./more\n").lines == ["pro ject", f"{tmp_path}/more"]


def test_packages_that_need_torch_get_their_own_stage():
    """S000-02, S000-22: it comes after what they need, without isolation, with the tools for builds."""
    assert requirements.split_into_stages(["a", "b"]) == ["a", "b"]
    first, second, third = requirements.split_into_stages(["--pre", "flash_attn==2", "a", "ninja==1"])
    assert first == {"name": "build tools", "requirements": ["packaging", "setuptools", "wheel"]}
    assert second == {"name": "requirements", "requirements": ["--pre", "a", "ninja==1"]}
    assert third == {"name": "built against torch", "requirements": ["--pre", "flash_attn==2"],
                     "no_build_isolation": True}
