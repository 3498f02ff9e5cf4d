"""docs/upgrading.md: modules that the last release has installed, with the commands and easyblocks of today."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from parts import BOTH_TOOLS, TOOLS, wheel_settings
from support import CHECKOUT, Site, make_wheel

# The last commit of 0.3.0.
RELEASE = "f98e8fc4"
TEXT = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"
# Ours, and EasyBuild, which come from wheels.
NOT_SHARED = ("ebsif", "easybuild", "__editable__", "distutils-precedence")


@pytest.fixture(scope="module")
def earlier_venv(tmp_path_factory, easybuild_wheels):
    """A virtual environment (Path) with the last release, EasyBuild, and the libraries of ours."""
    folder = tmp_path_factory.mktemp("earlier")
    git = ["git", "-c", f"safe.directory={CHECKOUT}", "-C", CHECKOUT, "archive", RELEASE]
    archive = subprocess.run(git, capture_output=True, check=False)
    assert not archive.returncode, f"this test needs the history of the repository: {archive.stderr}"
    (folder / "sources").mkdir()
    subprocess.run(["tar", "-x", "-C", folder / "sources"], input=archive.stdout, check=True)
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, folder / "sources"]
    subprocess.run(build, check=True, capture_output=True)
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    wheels = [*easybuild_wheels(version("easybuild-framework")), *folder.glob("*.whl")]
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin/python", "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", "--no-compile", *wheels], check=True)
    (own, ours) = (next(Path(place).glob("lib/python3*/site-packages")) for place in (venv, sys.prefix))
    for path in ours.iterdir():
        if not path.name.startswith(NOT_SHARED) and not (own / path.name).exists():
            (own / path.name).symlink_to(path)
    return venv


@pytest.fixture(scope="module", params=BOTH_TOOLS)
def upgraded(request, tmp_path_factory, earlier_venv, base_image):
    """A site with modules of the last release; a function runs a script there, with ebsif and eb of today."""
    folder = tmp_path_factory.mktemp("upgraded")
    wheels = folder / "wheels"
    wheels.mkdir()
    for name in ("greeting", "byhand", "added", "later"):
        make_wheel(wheels, name)
    site = Site(folder / "site", TOOLS[request.param](), earlier_venv)
    (site.sources / "example.sif").symlink_to(base_image)
    options = [option[2:].partition("=") for option in site.eb_options]
    settings = {f"EASYBUILD_{name.upper().replace('-', '_')}": value or "1" for name, _, value in options}
    settings |= {**wheel_settings(wheels), "MODULEPATH": site.modules}

    def run(script, status=0):
        done = site.bash(script, check=False, **settings)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    easyconfigs = [
        site.easyconfig(TEXT + 'requirements = """\ngreeting\n"""\n', suffix="-squashed"),
        site.easyconfig(TEXT, suffix="-writable"),
    ]
    run(f"eb {' '.join(map(str, easyconfigs))} && ebsif --version | grep -x 'ebsif 0.3.0'")
    run("ebsif extend Example/1.0-squashed --add added --name mine --install")
    run(f"module load Example/1.0-writable && singularity exec -B {wheels} $SIF pip install byhand")
    site.venv = Path(sys.prefix)
    run.site = site
    return run


@pytest.mark.nightly
def test_commands_work_with_modules_of_the_last_release(upgraded):
    """Modules are listed, shown, checked, used, extended and removed."""
    assert all(
        f"\n{name} " in upgraded("ebsif list --mine") for name in ("Example/1.0-squashed", "Example/1.0-writable")
    )
    assert "3 installations, " in upgraded("ebsif installed --verify")
    assert "3 modules checked: nothing is wrong" in upgraded("ebsif doctor --installed")
    assert "added packages  added 1.0, greeting 1.0\n" in upgraded("ebsif show mine")
    assert '"ebsif": "0.3.0"' in upgraded("ebsif lock mine")
    assert upgraded("""ebsif run mine -- python -c 'import added, greeting; print("both")'""") == "both\n"
    assert upgraded("$(ebsif interpreter mine | tail -n 1) -c 'import added; print(5)'").endswith("5\n")
    # the script calls functions that the module has
    upgraded("ebsif job mine -o job.sh -- -m added")
    functions = upgraded("grep -o '^ *job_[a-z]*' job.sh | sort -u").split()
    assert functions
    for name in functions:
        upgraded(f"module load Example/1.0-squashed && grep -rq '^ *{name}()' $RUNSCRIPTS/job.bash")
    assert "installed mine (" in upgraded("ebsif extend mine --add later")
    assert upgraded("ebsif run mine -- python -c 'import later, added, greeting; print(3)'") == "3\n"
    assert "removed Example/1.0-squashed-mine-" in upgraded("ebsif remove mine --older --yes")
    assert "yes: Example/mine can " in upgraded("ebsif upgrade mine Example/1.0-writable --check")
    assert "removed Example/1.0-squashed-mine-" in upgraded("ebsif remove mine --yes")
    assert "2 installations, " in upgraded("ebsif installed")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["squashed", "writable"])
def test_modules_of_the_last_release_are_reinstalled(upgraded, name):
    """A module is reinstalled as a whole, even while it is loaded; packages stay, including those added by hand."""
    easyconfig = upgraded.site.root(f"Example/1.0-{name}") / f"easybuild/Example-1.0-{name}.eb"
    module, package = f"Example/1.0-{name}", {"squashed": "greeting", "writable": "byhand"}[name]
    uses = f"singularity exec $SIF python -c 'import {package}; print(1)'"
    load = f"module load {module}; "
    refused = upgraded(f"eb --module-only --rebuild {easyconfig}", status=22)
    assert "an earlier version of ebsif has made it. Install it again, as a whole: `eb --rebuild`" in refused
    assert upgraded(load + uses) == "1\n"
    # eb refuses to run in the shell that uses it
    upgraded(f"{load}(module unload {module}; eb --rebuild {easyconfig}) >log 2>&1; {uses}")
    assert upgraded(load + uses) == "1\n"
    assert re.search(rf"^{package} +1.0 +user software$", upgraded(f"{load} list-packages"), re.MULTILINE)
    upgraded(f"eb --module-only --rebuild {easyconfig}")
    assert "nothing is wrong" in upgraded("ebsif doctor --installed")
