"""Fixtures for images, modules tools and installed modules."""

import fcntl
import functools
import inspect
import json
import logging.handlers
import os
import shutil
import subprocess
import sys
import tempfile
import types
import zipfile
from pathlib import Path

import pytest
from account import as_root, as_starter
from easybuild.base import fancylogger
from slurm import Cluster
from support import CHECKOUT, EASYBLOCKS, ModulesTool, Site, attempt, make_wheel
from user_software import kept

# What two ranks of MPICH run in a container.
EXCHANGE = CHECKOUT / "tests/mpi_exchange.py"


def part(variable):
    """Return the path in a variable of the set-up; if it is missing the test fails, and is never skipped."""
    value = os.environ.get(variable)
    if not value or not Path(value).exists():
        pytest.fail(f"{variable} does not name a file: run the tests with `make test`, which sets everything up")
    return value


def lmod(syntax):
    """Return Lmod, with module files in one of its two syntaxes."""
    command = part("LMOD_CMD")
    init = Path(command).parent.parent / "init" / "bash"
    return ModulesTool("Lmod", syntax, (("LMOD_CMD", command),), f"source '{init}'")


def environment_modules():
    """Return Environment Modules, with module files in Tcl."""
    command = part("EBSIF_TEST_MODULES_CMD")
    variables = (("MODULES_CMD", command),)
    return ModulesTool("EnvironmentModules", "Tcl", variables, f"source <(tclsh '{command}' bash autoinit)")


TOOLS = {
    "Lmod-Lua": lambda: lmod("Lua"),
    "Lmod-Tcl": lambda: lmod("Tcl"),
    "EnvironmentModules-Tcl": environment_modules,
}
# Where another syntax costs an installation: Lmod's module files in Tcl differ from Environment Modules' in little.
BOTH_TOOLS = ("Lmod-Lua", "EnvironmentModules-Tcl")
# For parametrized tests. Lmod with module files in Tcl differs in little from both.
EACH_TOOL = [*BOTH_TOOLS, pytest.param("Lmod-Tcl", marks=pytest.mark.nightly)]


def example_site(folder, image, tool="Lmod-Lua"):
    """Return a site in a folder, with an image as example.sif."""
    site = Site(folder / "site", TOOLS[tool](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(image)
    return site


@pytest.fixture(scope="session", autouse=True)
def quick_errors():
    """
    Let EasyBuild create errors as with `python -O`, which `eb` starts.

    Otherwise it looks for a logger in all variables of all functions on the stack and reads their source, several times
    for each error, which takes up to a tenth of a second below pytest.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("easybuild.base.exceptions.get_callers_logger", lambda: None)
        for name in ("_getCallingFunctionName", "_getCallingClassName", "getRootLoggerName"):
            patch.setattr(f"easybuild.base.fancylogger.{name}", lambda *_, **__: fancylogger.OPTIMIZED_ANSWER)
        frames = functools.partial(inspect.getouterframes, context=0)
        found = types.SimpleNamespace(currentframe=inspect.currentframe, getouterframes=frames)
        patch.setattr("easybuild.base.exceptions.inspect", found)
        yield


@pytest.fixture(autouse=True)
def closed_logs():
    """Close the log that each easyblock opens: those of later tests would write to all of them."""
    yield
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, logging.handlers.RotatingFileHandler)]:
        root.removeHandler(handler)
        handler.close()


@pytest.fixture(scope="session")
def base_image():
    """The example image without PyTorch, which is small and quick to install."""
    return Path(part("EBSIF_TEST_BASE_IMAGE"))


@pytest.fixture(scope="session")
def pytorch_image():
    """The example image."""
    return Path(part("EBSIF_TEST_PYTORCH_IMAGE"))


def made_by(script, *arguments):
    """Return the path that a script of the project prints, of what it has made or cached."""
    made = attempt([CHECKOUT / "scripts" / script, *arguments])
    assert made.returncode == 0, made.stderr[-3000:]
    return Path(made.stdout.strip())


@pytest.fixture(scope="session")
def small_image():
    """A function that returns the path of an image in scripts/images, after building it if it is not cached."""

    @functools.cache
    def get(variant):
        with as_root():
            return made_by("build-example-image", "--variant", variant)

    return get


def new_key(name):
    """Return the command that makes a key to sign images with, without a password."""
    person = ["--name", name, "--email", "s@example.org", "--comment", "", "--password", ""]
    return ["apptainer", "key", "newpair", *person, "--push=false", "--bit-length", "2048"]


def copy_from_image(image, root, *names):
    """Copy directories at the top of an image into a directory (Path), for another image with its programs."""
    root.mkdir(exist_ok=True)
    command = ["apptainer", "--silent", "exec", "--no-home", "--bind", f"{root}:/mnt", image]
    copy = f"tar -C / -c {' '.join(names)} | tar -C /mnt -x"
    subprocess.run([*command, "sh", "-c", copy], check=True, timeout=300, stdin=subprocess.DEVNULL)
    return root


@pytest.fixture(scope="session")
def root_of_busybox(small_image, tmp_path_factory):
    """A directory (Path) with the files of an image: busybox."""
    return copy_from_image(small_image("busybox"), tmp_path_factory.mktemp("root"), "bin")


@pytest.fixture(scope="session")
def easybuild_wheels():
    """A function that returns the wheels of a version of EasyBuild, which are downloaded once."""

    def get(version):
        return sorted(made_by("easybuild-wheels", version).glob("*.whl"))

    return get


def unpack_wheels(wheels, folder):
    """Unpack EasyBuild's wheels into a directory for Python's path; return it."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as files:
            files.extractall(folder)
    return folder


def unpack_easybuild(wheels, folder):
    """Unpack EasyBuild's wheels into a directory for Python's path, with our easyblocks; return the directory."""
    unpack_wheels(wheels, folder)
    (scripts,) = folder.glob("*.data/data/easybuild/scripts")
    scripts.rename(folder / "easybuild/scripts")
    for path in [*(EASYBLOCKS / "generic").glob("*.py"), EASYBLOCKS / "generic/container"]:
        (folder / "easybuild/easyblocks/generic" / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """A directory for installations, reachable by other accounts."""
    path = Path(tempfile.mkdtemp(prefix="ebsif-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def wheels(prefix):
    """A folder of tiny wheels, so that pip needs no network and always finds the same versions."""
    folder = prefix / "wheels"
    folder.mkdir()
    make_wheel(folder, "hello", requires=["numpy"])
    make_wheel(folder, "greeting", requires=["hello >= 1.0"])
    make_wheel(folder, "byhand")
    return folder


def wheel_settings(wheels):
    """Variables that make pip use only the tiny wheels during installations."""
    return {"EBSIF_INSTALL_BIND": wheels, "PIP_FIND_LINKS": wheels, "PIP_NO_INDEX": "1"}


class Installed:
    """Two modules installed at a site, with user software as a SquashFS file and as a directory."""

    SQUASHED = "Example/1.0-squashed"
    WRITABLE = "Example/1.0-writable"
    TEXT = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'pytorch'\n"

    def __init__(self, site, base_image, wheels, install_once, installed=None):
        """Install them, or write module files for a copy of what another modules tool has installed."""
        self.site = site
        self.wheels = wheels
        install = functools.partial(self.write_modules, installed) if installed else lambda: self.install(base_image)
        self.shared = install_once(site.prefix.parent.name, site, install)

    def copy(self, folder, *modules):
        """Return a new site in a folder with copies of both modules or of some, for tests that change them."""
        copied = Site(folder / self.site.prefix.name, self.site.tool, self.site.venv)
        copy_site(self.shared, copied.prefix)
        for other in {self.SQUASHED, self.WRITABLE} - set(modules or [self.SQUASHED, self.WRITABLE]):
            shutil.rmtree(copied.prefix / "eb/software" / other)
            for path in (copied.modules / other).parent.glob(f"{Path(other).name}*"):
                path.unlink()
        return copied

    def install(self, base_image):
        """Install both with one eb."""
        site, wheels = self.site, self.wheels
        (site.sources / "example.sif").symlink_to(base_image)
        squashed = site.easyconfig(self.TEXT + 'requirements = """\ngreeting\n"""\n', suffix="-squashed")
        writable = site.easyconfig(self.TEXT, suffix="-writable")
        site.eb(squashed, writable, **wheel_settings(wheels))

    def write_modules(self, installed):
        """Copy the installations, and write module files for this modules tool."""
        copy_site(installed.shared, self.site.prefix)
        shutil.rmtree(self.site.modules)
        self.site.eb("--module-only", *sorted(self.site.prefix.glob("*.eb")), **wheel_settings(self.wheels))

    def root(self, module):
        """Return the installation directory of a module."""
        return self.site.prefix / "eb" / "software" / module

    def load(self, module, script, check=True, **environment):
        """Run a bash script after loading a module; return the CompletedProcess."""
        return self.site.bash(f"module load {module} || exit 99\n{script}", check, **environment)

    def output(self, module, script, **environment):
        """Run a bash script after loading a module; return its standard output."""
        return self.load(module, script, **environment).stdout.strip()


def share_site(prefix, shared):
    """Save a copy of a site (Path) for other processes, with the directory where it was installed."""
    unfinished = shared.with_suffix(".unfinished")
    unfinished.mkdir()
    subprocess.run(["cp", "-a", prefix, unfinished / "site"], check=True)
    (unfinished / "prefix").write_text(str(prefix.parent))
    unfinished.rename(shared)


def copy_site(shared, prefix):
    """Create a site (Path) from the copy of another process: adapt paths in texts and links, and preserve times."""
    subprocess.run(["cp", "-a", f"{shared}/site/.", prefix], check=True)
    before, now = (shared / "prefix").read_text(), str(prefix.parent)
    for path in prefix.rglob("*"):
        if path.is_symlink():
            target = str(path.readlink())
            if target.startswith(before):
                path.unlink()
                path.symlink_to(target.replace(before, now, 1))
        # an image has no path
        elif path.suffix != ".sif" and path.is_file() and before.encode() in (content := path.read_bytes()):
            status = path.stat()
            path.write_bytes(content.replace(before.encode(), now.encode()))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def shared_folder(tmp_path_factory):
    """Return the folder (Path) that all test processes share."""
    folder = tmp_path_factory.getbasetemp()
    # with several processes, each has a folder in it
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The output of `make demo` (CompletedProcess), run once for all processes; it has written .demo/env.sh."""
    said = shared_folder(tmp_path_factory) / "demo.json"
    with (CHECKOUT / ".demo" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            # as the owner of the checkout, who has changed the project since, or has it installed as links
            with as_starter():
                subprocess.run(["scripts/setup-venv"], cwd=CHECKOUT, check=True)
            made = attempt(["make", "demo"], cwd=CHECKOUT)
            assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
            said.write_text(json.dumps([made.stdout, made.stderr]))
    return subprocess.CompletedProcess("make demo", 0, *json.loads(said.read_text()))


@pytest.fixture(scope="session")
def install_once(tmp_path_factory):
    """
    A function that installs into a site, once for all test processes: the other ones get a copy.

    Its arguments are a unique name, the site, and a function that installs. It returns the folder with the copy.
    """
    run = shared_folder(tmp_path_factory)

    def fill(name, site, install):
        shared = run / name
        with shared.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if shared.exists():
                copy_site(shared, site.prefix)
            else:
                install()
                share_site(site.prefix, shared)
        return shared

    return fill


@pytest.fixture(scope="session")
def installations(prefix, base_image, wheels, install_once):
    """A function that installs the two modules for a modules tool and syntax, once for all processes."""

    @functools.cache
    def get(name):
        site = Site(prefix / name / "site", TOOLS[name](), Path(sys.prefix))
        return Installed(site, base_image, wheels, install_once, get("Lmod-Lua") if name == "Lmod-Tcl" else None)

    return get


@pytest.fixture(params=EACH_TOOL)
def installed(request, installations):
    """The two modules, for each modules tool and syntax in turn."""
    return installations(request.param)


@pytest.fixture
def installed_once(installations):
    """The two modules, for Lmod and Lua, for tests that don't depend on the modules tool."""
    return installations("Lmod-Lua")


@pytest.fixture
def site(tmp_path, base_image):
    """A separate site for a test, with the small image as example.sif, Lmod and Lua."""
    return example_site(tmp_path, base_image)


@pytest.fixture(scope="session")
def own_software(installations, base_image):
    """A directory for EBSIF_USER_SOFTWARE with ipykernel."""

    def load(script, **environment):
        installations("Lmod-Lua").load(Installed.SQUASHED, script, **environment)

    return kept(f"kernels-{base_image.parent.name}", load, ["ipykernel"])


@pytest.fixture(scope="session")
def cluster():
    """A Slurm cluster of four nodes."""
    started = Cluster()
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A browser that connects only to its driver."""
    # slow to import
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    # without WebGL, whose results aren't in screenshots here, pages draw with SVG
    quiet = ["no-first-run", "disable-background-networking", "disable-component-update", "disable-sync"]
    place = [f"user-data-dir={tmp_path_factory.mktemp('browser')}", "window-size=1400,1000"]
    for argument in ("headless", "disable-gpu", "disable-3d-apis", "disable-quic", *quiet, *place):
        options.add_argument(f"--{argument}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


def focused(browser):
    """Return the focused element after a press of the Tab key, which must be seen."""
    browser.switch_to.active_element.send_keys("\ue004")
    element = browser.switch_to.active_element
    style = browser.execute_script(
        "const style = getComputedStyle(arguments[0]); return [style.outlineStyle, style.outlineWidth]", element
    )
    assert style == ["solid", "3px"], element.get_attribute("outerHTML")
    return element
