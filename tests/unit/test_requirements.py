"""What people bring: requirements.txt, pyproject.toml, environment.yml."""

import pytest
from ebsif import requirements


def read(path, text):
    """What is read from a file with this text."""
    path.write_text(text)
    return requirements.read(path)


def test_a_requirements_file(tmp_path):
    """Comments and blank lines go, lines that are continued become one, files that are included take their place."""
    (tmp_path / "more").mkdir()
    included = "--extra-index-url https://example.org/simple\nb[x]>=2 ; python_version > '3'\n"
    (tmp_path / "more/b.txt").write_text(included)
    address = "c @ git+https://example.org/c.git#egg=c"
    wanted = read(tmp_path / "a.txt", f"# mine\na==1  # one\n\n-r more/b.txt\n{address}\nd \\\n  <2\n")
    assert wanted.lines == ["a==1", "--extra-index-url https://example.org/simple", "b[x]>=2 ; python_version > '3'",
                            "c @ git+https://example.org/c.git#egg=c", "d <2"]


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("a.txt", "# nothing\n", "asks for no Python package"),
    ("a.txt", "-r a.txt\n", "includes itself"),
    ("a.txt", "-r none.txt\n", "can't be read"),
    ("a.txt", "-e .\n", "is a path beside the file"),
    ("pyproject.toml", "[project]\ndynamic = ['dependencies']\n", "name them in a requirements.txt"),
    ("pyproject.toml", "[project\n", "can't be read"),
    ("environment.yml", "dependencies: [pytorch]\n", "its name there is probably torch"),
    ("environment.yml", "dependencies: [\n", "can't be read"),
])
def test_what_can_not_be_used(tmp_path, name, text, expected):
    """Which file, what is wrong with it, what to do."""
    with pytest.raises(requirements.RequirementsError) as error:
        read(tmp_path / name, text)
    assert expected in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_project(tmp_path):
    """The dependencies of a pyproject.toml."""
    text = "[project]\nname = 'x'\ndependencies = ['a>=1', 'b']\n"
    assert read(tmp_path / "pyproject.toml", text).lines == ["a>=1", "b"]


def test_a_conda_environment(tmp_path):
    """The part for pip; Conda packages are named, with what pip calls them."""
    text = "dependencies: [python=3.10, 'conda-forge::opencv=4', cudatoolkit, scipy, {pip: [rich==13]}]\n"
    wanted = read(tmp_path / "environment.yml", text)
    assert wanted.lines == ["rich==13"]
    assert wanted.impossible == [
        "Conda package conda-forge::opencv=4: not possible with pip; its name there is probably opencv-python",
        "Conda package cudatoolkit: not possible with pip, it has to be in the image",
        "Conda package scipy: not possible with pip; its name there is probably scipy"]


def test_what_needs_torch_gets_a_stage_of_its_own():
    """S000-02, S000-22: after what it needs, without isolation, with the tools that builds want."""
    assert requirements.stages(["a", "b"]) == ["a", "b"]
    first, second, third = requirements.stages(["--pre", "flash_attn==2", "a", "ninja==1"])
    assert first == {"name": "build tools", "requirements": ["packaging", "setuptools", "wheel"]}
    assert second == {"name": "requirements", "requirements": ["--pre", "a", "ninja==1"]}
    assert third == {"name": "built against torch", "requirements": ["--pre", "flash_attn==2"],
                     "no_build_isolation": True}
