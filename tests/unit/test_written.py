"""The door: what names, versions, paths, files and texts that others wrote may be."""

import os

import pytest
from easybuild.easyblocks.generic.container import written
from easybuild.easyblocks.generic.container.written import UnfitError

CODE = [*'"[]{', "[exec", "]==]", "$(id)", "${HOME}", "a b", "a\nb", "a\n", "a\\", "`id`", "a;b", "\x1b[2J", ""]


@pytest.mark.parametrize("code", CODE)
def test_names_that_are_code_in_some_language(code):
    """P-06: no name, version or command has a character with a meaning in Lua, Tcl or a shell."""
    for one in (code, f"x{code}", f"{code}x", f"x{code}x") if code else ("",):
        assert not written.is_package(one, "1.0")
        assert not written.is_package("name", one)
        assert not written.is_command(one)
        assert not written.is_for_pip(one, "1.0") and not written.is_for_pip("name", one)


def test_names_of_real_packages():
    """P-06: packages of Python, distributions and Conda have names that fit."""
    for name, version in (
        ("PyYAML", "6.0.1"),
        ("jaraco.text", "3.12"),
        ("python-apt", "2.7.7+ubuntu5"),
        ("torch", "2.7.1+rocm6.2.4"),
        ("libstdc++6:arm64", "1:14.2.0-4~deb"),
        ("_libgcc_mutex", "0.1"),
        ("broken", "unknown"),
        ("bash", "5.2^20240101-1"),
        (".build-deps", "20240101.000000"),
    ):
        assert written.is_package(name, version)
    for wrong in (None, 5, ["x"]):
        assert not written.is_package(wrong, "1") and not written.is_package("x", wrong)
    assert written.is_for_pip("x", "1!2.0rc1.post1+local") and not written.is_for_pip("x", "2.22.1ubuntu1")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/opt/x", None),
        ("opt", "full path"),
        ("/opt/../etc", "full path"),
        ("/", "full path"),
        ("/a\nb", "control character"),
    ],
)
def test_paths(path, problem):
    """P-06: a path is a full one, and one line."""
    assert (written.path_problem(path) or "") == "" if problem is None else problem in written.path_problem(path)


def test_text_to_be_printed():
    """P-06: terminals do nothing but show it."""
    assert written.escape("a\x1b[2J\nb\u2028\x9b") == r"a\x1b[2J\nb\u2028\x9b"
    assert written.printable("a\x1b]0;x\x07\n\tb") == "a\\x1b]0;x\\x07\n\tb"


def test_files(tmp_path):
    """P-03: only a regular file of limited size is opened, without waiting for anything."""
    file = tmp_path / "file"
    file.write_text("text")
    assert written.read_regular(str(file)) == b"text"
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        written.read_regular(str(tmp_path / "link"))
    assert written.read_regular(str(tmp_path / "link"), links=True) == b"text"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "zero", tmp_path):
        with pytest.raises(UnfitError, match="is not a regular file"):
            written.read_regular(str(path), links=True)
    with file.open("w") as big:
        big.truncate(300 * 1024**2)
    with pytest.raises(UnfitError, match="is larger than 256.0 MB"):
        written.read_regular(str(file))
