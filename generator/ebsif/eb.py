"""EasyBuild: run as a program, in clean surroundings, and asked in this process what it is configured to do."""

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ebsif import output
from ebsif.errors import EbsifError


class EasyBuildFailure(EbsifError):
    """EasyBuild can't be used as it is configured; the message says what it said."""


@dataclass(frozen=True)
class Place:
    """Where EasyBuild puts a module: what `module use` and `module load` want, module file, installation."""

    use: Path
    module: str
    file: Path
    installation: Path

    @property
    def load(self):
        """The line by which a person loads it (str)."""
        known = {os.path.realpath(part) for part in os.environ.get("MODULEPATH", "").split(":") if part}
        use = "" if os.path.realpath(self.use) in known else f"module use {shlex.quote(str(self.use))} && "
        return f"{use}module load {self.module}"


def run(arguments, capture=False, **variables):
    """
    Run eb, and wait for it also when it is interrupted: it takes away what it has begun.

    It looks into the directory it runs in, which may hold a lot, so that is an empty one (S002-52).

    Parameters
    ----------
    arguments : sequence
        Arguments of eb; paths are full ones.
    capture : bool
        Whether its output is kept instead of shown.
    variables : str
        Environment variables in addition.

    Returns
    -------
    subprocess.CompletedProcess
        Its exit status and, where it was kept, its output.

    Raises
    ------
    EasyBuildFailure
        If there is no eb.
    """
    environment = clean_environment()
    command = [program(environment), *map(str, arguments)]
    output.command(command)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if capture else {}
    with tempfile.TemporaryDirectory(prefix="ebsif-eb-") as folder:
        process = subprocess.Popen(command, cwd=folder, env={**environment, **variables}, text=True, errors="replace",
                                   **pipes)
        try:
            said, _ = process.communicate()
        except KeyboardInterrupt:
            process.wait()
            raise
    return subprocess.CompletedProcess(command, process.returncode, said)


def program(environment):
    """
    Return the path of eb (str): that of PATH, else the one that was installed with this command.

    Raises
    ------
    EasyBuildFailure
        If there is none.
    """
    found = shutil.which("eb", path=environment.get("PATH")) or shutil.which("eb", path=Path(sys.executable).parent)
    if not found:
        raise EasyBuildFailure("eb is not on PATH: load the site's module of EasyBuild, or install easybuild with pip")
    return found


def clean_environment():
    """
    Return the environment (dict) without the modules of containers that are loaded.

    EasyBuild installs nothing whose module is loaded, and their wrappers named python are not what it can run with.
    """
    environment = dict(os.environ)
    loaded = container_modules(environment)
    if loaded:
        environment = unloaded(loaded, environment)
    # the Python that has EasyBuild; others on PATH may be those of containers
    if Path(program(environment)).parent == Path(sys.executable).parent and not environment.get("EB_INSTALLPYTHON"):
        environment.setdefault("EB_PYTHON", sys.executable)
    return environment


def container_modules(environment):
    """Return the names of loaded modules of containers (list of str), as their files tell."""
    names, files = (environment.get(name, "").split(":") for name in ("LOADEDMODULES", "_LMFILES_"))
    found = []
    for name, file in zip(names, files):
        with contextlib.suppress(OSError):
            if "CONTAINERROOT" in Path(file).read_text(encoding="utf-8", errors="replace"):
                found.append(name)
    return found


def unloaded(modules, environment):
    """Return an environment (dict) after unloading modules; as it is if the modules tool can't do that."""
    command = environment.get("LMOD_CMD") or environment.get("MODULES_CMD")
    if not command:
        return environment
    # what the modules tool prints is for a shell to evaluate; names reach it as arguments
    script = 'tool=$1; shift; code=$("$tool" bash unload "$@") || exit; eval "$code" >&2; env -0'
    result = subprocess.run(  # noqa: S603
        ["/bin/bash", "--noprofile", "--norc", "-c", script, "bash", command, *modules], env=environment,
        capture_output=True, check=False, stdin=subprocess.DEVNULL)
    entries = [entry.split("=", 1) for entry in os.fsdecode(result.stdout).split("\0") if "=" in entry]
    return dict(entries) if result.returncode == 0 and entries else environment


@lru_cache(maxsize=1)
def session(arguments=()):
    """
    Configure EasyBuild in this process, for reading easyconfigs: without a modules tool. The first call counts.

    It would make a private directory that of all temporary files of the process; that is undone.

    Parameters
    ----------
    arguments : tuple of str
        Options of eb.

    Raises
    ------
    EasyBuildFailure
        If it does not like its options, environment variables or configuration files.
    """
    from easybuild.tools import config, options

    # somebody else has, which can't be repeated
    if config.BuildOptions in type(config.BuildOptions)._instances:
        return
    environment, folder = dict(os.environ), tempfile.gettempdir()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            # it misses its own command on PATH, which is not needed
            parsed = options.parse_options(args=["--ignore-osdeps", *arguments], with_include=False)
    except (Exception, SystemExit) as error:  # for a file that is no configuration it fails with a TypeError
        text = said.getvalue().strip() if isinstance(error, SystemExit) else str(error).strip("'\"")
        raise EasyBuildFailure(f"EasyBuild refuses its configuration: {text}") from None
    finally:
        if tempfile.gettempdir() != folder:
            shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
        tempfile.tempdir = folder
        os.environ.clear()
        os.environ.update(environment)
    values = parsed.get_options_by_section("config")
    # eb would refuse to go on without the program of a modules tool; no module is loaded here
    values["modules_tool"] = None
    config.init(parsed.options, values)
    config.init_build_options(cmdline_options=parsed.options)


def read(path):
    """
    Return an easyconfig as EasyBuild reads it (easybuild.framework.easyconfig.easyconfig.EasyConfig).

    Raises
    ------
    EasyBuildFailure
        If it can't be read.
    """
    from easybuild.framework.easyconfig.easyconfig import EasyConfig
    from easybuild.tools.build_log import EasyBuildError

    session()
    try:
        return EasyConfig(str(path))
    except EasyBuildError as error:
        raise EasyBuildFailure(f"{path}: {str(error).strip(chr(39))}") from None


def check_parameters(easyconfig):
    """
    Let the easyblock of an easyconfig (EasyConfig) look at its parameters, as it does before it installs anything.

    Raises
    ------
    EasyBuildFailure
        If it refuses one.
    """
    from easybuild.framework.easyconfig.easyconfig import get_easyblock_class
    from easybuild.tools.build_log import EasyBuildError

    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        # an easyblock begins a log, and makes a directory for module files
        tempfile.tempdir = folder
        try:
            get_easyblock_class(easyconfig["easyblock"])(easyconfig, logfile=os.devnull)
        except EasyBuildError as error:
            raise EasyBuildFailure(str(error).strip("'\"")) from None
        finally:
            tempfile.tempdir = before


def source_paths():
    """Return where EasyBuild looks for images (list of str)."""
    from easybuild.tools.config import source_paths

    session()
    return source_paths()


def installations(name):
    """Return the directory (Path) below which containers of a name are installed."""
    from easybuild.tools.config import install_path

    session()
    return Path(install_path()) / name


def source_names(sources):
    """Return the names of sources (list of str), each a text or, as EasyBuild has it as well, a table."""
    names = [source.get("filename") if isinstance(source, dict) else source for source in sources]
    return [name for name in names if isinstance(name, str)]


def place_of(path):
    """Return where the module of an easyconfig is, or would be (Place)."""
    from easybuild.framework.easyconfig.easyconfig import ActiveMNS
    from easybuild.tools.config import build_option, get_module_syntax, install_path

    easyconfig = read(path)
    use = Path(install_path("mod")) / build_option("suffix_modules_path") / easyconfig.mod_subdir
    suffix = ".lua" if get_module_syntax() == "Lua" else ""
    return Place(use, easyconfig.short_mod_name, use / f"{easyconfig.short_mod_name}{suffix}",
                 Path(install_path()) / ActiveMNS().det_install_subdir(easyconfig))
