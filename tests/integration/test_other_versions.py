"""Other versions of packages than the image's: on purpose, or because what was asked for needs them."""

import hashlib
import re

import pytest
from parts import example_site, wheel_settings
from support import make_wheel
from test_extending import CATALOG

MODULE = "Base/1.0-20250101-mine-20260101"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Wheels that want other versions of what the image has: fsspec, sympy, numpy."""
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "datasets", "2.14.4")
    make_wheel(folder, "datasets", "3.6.0", ["fsspec<=2025.3.0,>=2023.1.0"], "import fsspec\n")
    make_wheel(folder, "evaluate", "0.4", ["datasets>=2"])
    make_wheel(folder, "fsspec", "2025.3.0")
    make_wheel(folder, "fsspec", "2022.1.0")
    make_wheel(folder, "sympy", "1.12")
    make_wheel(folder, "algebra", "1.0")
    make_wheel(folder, "algebra", "2.0", ["sympy<1.13"])
    make_wheel(folder, "fresh", "1.0")
    make_wheel(folder, "fresh", "2.0", ["numpy<1"])
    make_wheel(folder, "app", "1.0")
    make_wheel(folder, "app", "2.0", ["fresh>=2"])
    make_wheel(folder, "numpy", "1.5")
    make_wheel(folder, "numpy", "1.0")
    make_wheel(folder, "torch", "3.0")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory, pytorch_image, wheels):
    """A site with a catalog of one container, the example image; returns a function that runs ebsif there."""
    folder = tmp_path_factory.mktemp("place")
    site = example_site(folder, pytorch_image)
    containers = folder / "sites/local/containers"
    containers.mkdir(parents=True)
    (containers / "Base.yaml").write_text(CATALOG)

    def run(*words, status=0):
        more = ("--catalog", folder / "sites") if words[0] == "extend" else ()
        end = ("--", *site.eb_options) if words[0] == "extend" else ()
        command = ["ebsif", *words, *more, *end]
        result = site.run(command, check=False, **wheel_settings(wheels), MODULEPATH=site.modules)
        assert result.returncode == status, result.stdout + result.stderr
        return " ".join(result.stdout.split()), " ".join(result.stderr.split())

    run.site = site
    return run


def record_of(place, module):
    """Return the record of an installed module."""
    return place.site.record(module)


def test_what_was_asked_for_comes_first(place):
    """
    V-03 (user 2b): the newest version of what was asked for, with the version of a pure Python package that it needs.

    What is compiled stays, with what it requires; the output says which packages are older for that reason, and why.
    """
    _, said = place(
        "extend", "Base/1.0", "--add", "evaluate", "fresh", "algebra", "app", "--name", "mine", "--date", "20260101"
    )
    record = record_of(place, MODULE)
    wanted = ["algebra==1.0", "app==1.0", "datasets==3.6.0", "evaluate==0.4", "fresh==1.0", "fsspec==2025.3.0"]
    assert record["venv_packages"] == wanted
    fsspec = (
        "fsspec 2025.3.0 instead of the image's 2026.9.0; because datasets 3.6.0 needs "
        "fsspec<=2025.3.0,>=2023.1.0; these allow it: torch 2.13.0+cpu needs fsspec>=0.8.5"
    )
    assert fsspec in said
    assert (
        "fresh 1.0 and not 2.0 was installed, because the image has numpy 2.4.6 (compiled), and fresh 2.0 needs "
        "numpy<1" in said
    )
    assert re.search(
        r"algebra 1\.0 and not 2\.0 was installed, because the image has sympy 1\.\S+ \(torch "
        r"2\.13\.0\+cpu needs sympy>=1\.13\.3\), and algebra 2\.0 needs sympy<1\.13",
        said,
    )
    expected = "app 1.0 and not 2.0 was installed, because pip finds no versions that fit it, the image and all else"
    assert expected in said
    # from now on
    assert fsspec in place("show", MODULE)[0]
    assert fsspec in " ".join(place.site.bash(f"module help {MODULE} 2>&1").stdout.split())


def test_a_lock_file_with_another_version(place, wheels, tmp_path):
    """V-03: what is pure Python and locked in another version is installed; numpy, which is compiled, is refused."""
    module = "Base/1.0-20250101-locked-20260101"
    lock = tmp_path / "pylock.toml"
    words = ("extend", "Base/1.0", "-r", lock, "--name", "locked", "--date", "20260101")
    lock.write_text(locked(wheels, "fsspec-2025.3.0", "numpy-1.0"))
    assert "numpy==2.4.6 of the image (compiled) can't be replaced" in place(*words, status=3)[1]
    # as the error advises: in another version without a hash, or locked with its hash
    change = (*words, "--replace", "numpy==1.5", "--force", "--dry-run")
    assert "'numpy==1.5'" in place(*change)[0]
    said = place(*words, "--yes", "--force", "--replace", "numpy==1.0")[1]
    assert record_of(place, module)["venv_packages"] == ["fsspec==2025.3.0", "numpy==1.0"]
    assert "fsspec 2025.3.0 instead of the image's 2026.9.0" in said


def locked(folder, *names):
    """Return a pylock.toml with wheels in a folder."""
    text = 'lock-version = "1.0"\ncreated-by = "the tests"\n'
    for name in names:
        wheel = folder / f"{name}-py3-none-any.whl"
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        package, version = name.split("-")
        text += (
            f'[[packages]]\nname = "{package}"\nversion = "{version}"\n[[packages.wheels]]\n'
            f'name = "{wheel.name}"\npath = "{wheel}"\nhashes = {{sha256 = "{digest}"}}\n'
        )
    return text


def test_replacing_with_open_eyes(place):
    """
    V-01: a table of what requires another version, before anything is installed, and then a confirmation.

    The module is made if the person goes on; record, help, show, pages and doctor name what it breaks.
    """
    words = ("extend", "Base/1.0", "--replace", "sympy==1.12", "--name", "old", "--date", "20260101")
    table, said = place(*words, status=3)
    assert (
        "PACKAGE WHERE REQUIRES VERDICT torch 2.13.0+cpu image sympy>=1.13.3 breaks 1 package in image and "
        "extension requires replaced packages; 1 would break" in table
    )
    assert re.search(
        r"nothing was installed, because there is no terminal to ask on: to go on, ebsif extend Base/1.0 "
        r"--replace sympy==1.12 .*--yes -- ",
        said,
    )
    module = "Base/1.0-20250101-old-20260101"
    assert not place.site.root(module).exists()
    place(*words, "--yes")
    breaks = re.compile(
        r"sympy 1\.12 instead of the image's 1\.\S+; this breaks: torch "
        r"2\.13\.0\+cpu needs sympy>=1\.13\.3"
    )
    (one,) = record_of(place, module)["replaced"]
    assert (one["name"], one["version"], one["breaks"]) == ("sympy", "1.12", ["torch 2.13.0+cpu needs sympy>=1.13.3"])
    assert breaks.search(place("show", module)[0])
    assert breaks.search(" ".join(place.site.bash(f"module help {module} 2>&1").stdout.split()))
    assert re.search(rf"warning: {module}: {breaks.pattern}", place("doctor", "--installed", module)[0])
    # a change keeps it, and its packages count, too
    table, _ = place("extend", "old", "--add", "evaluate", "--replace", "fsspec==2022.1.0", "--dry-run")
    assert "'allow_replace': ['sympy', 'fsspec']" in table
    (eb,) = (place.site.root(module) / "easybuild").glob("*.eb")
    assert "'allow_replace': ['sympy']" in eb.read_text()


def test_what_belongs_to_the_machine_needs_force(place):
    """V-02, S001-19: a compiled package, or one built for the machine, is refused with the reason; --force means it."""
    words = ("extend", "Base/1.0", "--name", "forced", "--date", "20260101", "--dry-run", "--replace")
    for package, reason in (
        ("numpy==1.0", "numpy 2.4.6 can't be replaced: it is compiled"),
        ("torch==3.0", r"torch 2.13.0+cpu can't be replaced: it is built for this machine (+cpu)"),
    ):
        text, said = place(*words, package, status=3)
        assert f"{reason}, and what was built with it may fail" in said
        assert "If you mean it: ebsif extend Base/1.0 " in said and f" --replace {package} --force" in said
        assert not text
    assert "'allow_replace': ['numpy']" in place(*words, "numpy==1.0", "--force")[0]
    assert "add the version" in place(*words, "numpy<2", "--force", status=3)[1]
    assert "not in the image of Base/1.0-20250101, so it can only be added:" in place(*words, "nowhere==1", status=3)[1]
