"""Use EasyBuild as a library, to read easyconfigs and settings."""

import contextlib
import io
import os
import shlex
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from ebsif import processes
from ebsif.errors import EbsifError

if TYPE_CHECKING:
    from easybuild.framework.easyconfig.easyconfig import EasyConfig
    from easybuild.tools.options import EasyBuildOptions

# One thread at a time reads easyconfigs.
READING = threading.Lock()
OLDEST = (5, 1)  # as in pyproject.toml
# what is wrong with an easyconfig that EasyBuild can't read, perhaps because of a name in a comment
NO_TEXT = ": the file is not encoded in UTF-8: save it as UTF-8"

# The easyblocks that EasyBuild's configuration includes (known after `session`).
INCLUDED: list[str] = []

# Settings for eb where the modules tool that it would use is missing, and the other one is here (after `session`).
TOOL: dict[str, str] = {}
OTHER_TOOL = {"EASYBUILD_MODULES_TOOL": "EnvironmentModules", "EASYBUILD_MODULE_SYNTAX": "Tcl"}


class EbError(EbsifError):
    """EasyBuild is missing or failed; the message includes its own."""


@dataclass(frozen=True)
class ModulePlace:
    """
    An easyconfig, and where its module is or would be.

    `use` and `module` are arguments of `module use` and `module load`, `file` is the module file, `installation` the
    directory.
    """

    easyconfig: Path
    use: Path
    module: str
    file: Path
    installation: Path

    @property
    def load(self) -> str:
        """The command that loads the module."""
        return load_command(self.use, self.module)

    @property
    def is_current(self) -> bool:
        """Whether the installation was made from the easyconfig as it is now; eb keeps a copy of what it used."""
        copy = self.installation / "easybuild" / self.easyconfig.name
        return copy.is_file() and copy.read_bytes() == self.easyconfig.read_bytes()


def load_command(directory: Optional[Path], module: str) -> str:
    """Return the command that loads a module: with `module use` if MODULEPATH lacks its directory."""
    use = f"module use {shlex.quote(str(directory))} && " if directory and not is_searched(directory) else ""
    return f"{use}module load {module}"


def is_searched(directory: Path) -> bool:
    """Return whether a directory of modules is on MODULEPATH."""
    searched = {os.path.realpath(part) for part in os.environ.get("MODULEPATH", "").split(":") if part}
    return os.path.realpath(directory) in searched


def is_own(directory: Path) -> bool:
    """Return whether a new shell may not search a directory of modules: it's this account's, or not on MODULEPATH."""
    return not is_searched(directory) or (directory.is_dir() and directory.stat().st_uid == os.getuid())


def is_configured() -> bool:
    """
    Return whether EasyBuild is already configured in this process, which is possible only once.

    EasyBuild has no function for that; its ``set_up_configuration`` looks in the same place (5.1 to 5.3).
    """
    from easybuild.tools.config import BuildOptions

    return BuildOptions in type(BuildOptions)._instances


@lru_cache(maxsize=1)
def session(arguments: tuple[str, ...] = ()) -> None:
    """
    Configure EasyBuild in this process, with options of eb, to read easyconfigs without a modules tool.

    Only the first call counts. Easyblocks that the configuration includes stay out: no command needs them, they may
    fail in this Python, and ours may be there in another version. EasyBuild changes the directory for temporary files
    of the whole process; this is undone. Raise EbError if EasyBuild refuses its configuration.
    """
    from easybuild.tools import config, version

    if is_configured():
        return
    if tuple(version.VERSION.version[:2]) < OLDEST:
        raise EbError(
            f"ebsif needs EasyBuild {'.'.join(map(str, OLDEST))} or newer, and this is "
            f"{this_easybuild()}: load or install a newer EasyBuild"
        )
    environment, before = dict(os.environ), tempfile.tempdir
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), tempfile.TemporaryDirectory() as folder:
            # --ignore-osdeps: otherwise EasyBuild complains if eb is not on PATH
            parsed = parsed_options(["--ignore-osdeps", *arguments, f"--tmpdir={folder}"])
    except processes.Ended:
        raise
    except (Exception, SystemExit) as error:
        # a TypeError hides what is wrong with a configuration file: EasyBuild can't create the exception again
        cause = error.__context__ if isinstance(error, TypeError) and error.__context__ else error
        text = " ".join(str(cause).split()).strip("'\"")
        text = printed.getvalue().strip() if isinstance(error, SystemExit) else text
        raise EbError(f"EasyBuild refuses its configuration: {text} ({this_easybuild()})") from None
    finally:
        tempfile.tempdir = before
        os.environ.clear()
        os.environ.update(environment)
    values = parsed.get_options_by_section("config")
    # eb would refuse to run without a modules tool, but no module is loaded here
    values["modules_tool"] = None
    config.init(parsed.options, values)
    config.init_build_options(cmdline_options=parsed.options)


def parsed_options(arguments: list[str]) -> "EasyBuildOptions":
    """Return the options of EasyBuild, with the naming schemes and toolchains of the site, but not its easyblocks."""
    from easybuild.tools import include, options

    # EasyBuild knows the naming scheme of a site only when that is included
    first = options.parse_options(args=[*arguments, "--module-naming-scheme=EasyBuildMNS"], with_include=False)
    INCLUDED[:] = first.options.include_easyblocks or []
    # EasyBuild's default is Lmod, which many machines don't have
    if (
        first.options.modules_tool == "Lmod"
        and not (os.environ.get("LMOD_CMD") or shutil.which("lmod"))
        and os.environ.get("MODULES_CMD")
    ):
        TOOL.update(OTHER_TOOL)
        os.environ.update(TOOL)
    for kind in ("module_naming_schemes", "toolchains"):
        paths = getattr(first.options, f"include_{kind}")
        if paths:
            getattr(include, f"include_{kind}")(first.tmpdir, paths)
    return options.parse_options(args=arguments, with_include=False)


def this_easybuild() -> str:
    """Return the version and the directory of the EasyBuild that this process uses, and its Python."""
    from easybuild.tools import version

    place = Path(version.__file__).parents[2]
    return f"EasyBuild {version.VERSION} in {place}, with Python {'.'.join(map(str, sys.version_info[:2]))}"


def read(path: Union[str, Path], text: Optional[str] = None) -> "EasyConfig":
    """Return an easyconfig as EasyBuild reads it, or will with the text to be written; raise EbError if it can't."""
    from easybuild.framework.easyconfig.easyconfig import EasyConfig
    from easybuild.tools.build_log import EasyBuildError

    # EasyBuild isn't made for threads, and configuring it changes the environment for a moment
    with READING:
        session()
        try:
            return EasyConfig(None if text else str(path), rawtxt=text)
        except EasyBuildError as error:
            raise EbError(f"{path}: {str(error).strip(chr(39))}") from None
        except UnicodeDecodeError:
            raise EbError(f"{path}{NO_TEXT}") from None


def written_values(path: Path) -> dict[str, Any]:
    """Return what is written in an easyconfig, without EasyBuild's defaults; raise EbError if it can't."""
    from easybuild.framework.easyconfig.parser import EasyConfigParser
    from easybuild.tools.build_log import EasyBuildError

    if not path.is_file():
        raise EbError(f"the file {path} does not exist")
    session()
    try:
        with warnings.catch_warnings():
            # many easyconfigs have backslashes that Python warns about
            warnings.simplefilter("ignore")
            return EasyConfigParser(str(path)).get_config_dict()
    except EasyBuildError as error:
        raise EbError(f"{path}: {str(error).strip(chr(39))}") from None
    except UnicodeDecodeError:
        raise EbError(f"{path}{NO_TEXT}") from None
    except (AttributeError, TypeError) as error:  # of a parameter whose type EasyBuild takes for granted
        raise EbError(f"{path}: EasyBuild can't read it: {error}") from None


def check_parameters(easyconfig: "EasyConfig") -> None:
    """Let the easyblock of an easyconfig check its parameters, as before an installation; raise EbError."""
    from easybuild.framework.easyconfig.easyconfig import get_easyblock_class
    from easybuild.tools.build_log import EasyBuildError

    with temporary_files():
        try:
            # it opens a log and creates a directory for module files
            get_easyblock_class(easyconfig["easyblock"])(easyconfig, logfile=os.devnull)
        except EasyBuildError as error:
            raise EbError(str(error).strip("'\"")) from None


@contextlib.contextmanager
def temporary_files() -> Iterator[str]:
    """Yield a directory for the temporary files that EasyBuild makes and leaves meanwhile; it is removed."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="ebsif-") as folder:
        tempfile.tempdir = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before


def source_paths() -> list[str]:
    """Return EasyBuild's source paths, where it searches images."""
    from easybuild.tools.config import source_paths

    session()
    return source_paths()


def prefix() -> tuple[Path, Path]:
    """Return EasyBuild's directories of installations and of module files."""
    from easybuild.tools.config import build_option, install_path

    session()
    return Path(install_path()), Path(install_path("mod")) / build_option("suffix_modules_path")


def source_names(sources: Iterable[Union[str, dict]]) -> list[str]:
    """Return the file names of sources, each of which is a string or a dict for EasyBuild."""
    names = [source.get("filename") if isinstance(source, dict) else source for source in sources]
    return [name for name in names if isinstance(name, str)]


def place_of(path: Path, text: str) -> ModulePlace:
    """Return the place where the module of an easyconfig, which may still have to be written, is or would be."""
    from easybuild.framework.easyconfig.easyconfig import ActiveMNS
    from easybuild.tools.config import build_option, get_module_syntax, install_path

    easyconfig = read(path, text)
    use = Path(install_path("mod")) / build_option("suffix_modules_path") / easyconfig.mod_subdir
    suffix = ".lua" if get_module_syntax() == "Lua" else ""
    return ModulePlace(
        path,
        use,
        easyconfig.short_mod_name,
        use / f"{easyconfig.short_mod_name}{suffix}",
        Path(install_path()) / ActiveMNS().det_install_subdir(easyconfig),
    )
