"""
Try the available versions of EasyBuild, the modules tools, the runtime and Python, each with the newest of the
others (of Lmod, the newest in Debian). Writes tests/data/compatibility.json and the table in docs/compatibility.md;
rows that can't be tried here (a Python that isn't on this machine) stay as they are. Run by `make test-versions`.
"""

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "tests")]

import record  # noqa: E402 in the same directory
from packaging.requirements import Requirement  # noqa: E402
from packaging.version import Version  # noqa: E402
from parts import part, unpack_easybuild  # noqa: E402
from support import CHECKOUT, CONTAINER_FILES, ModulesTool, Site, project, tracked  # noqa: E402
from trial import Trial  # noqa: E402

# The command ebsif needs a newer Python than the easyblocks.
EASYBLOCKS_ONLY = ("3.6", "3.7", "3.8")
PYTHONS = (*EASYBLOCKS_ONLY, "3.9", "3.10", "3.11", "3.12", "3.13")


def easybuild_versions():
    """Return the releases of EasyBuild in the package index that pyproject.toml allows, oldest first (list of str)."""
    required = map(Requirement, project()["dependencies"])
    (allowed,) = (one.specifier for one in required if one.name == "easybuild-framework")
    said = said_by(sys.executable, "-m", "pip", "index", "versions", "easybuild-framework")
    known = re.search(r"^Available versions: (.*)", said, re.MULTILINE).group(1).split(", ")
    return sorted(allowed.filter(known), key=Version)


def modules_tools(folder):
    """Return the unpacked versions of a folder: ModulesTool by part and version, oldest first (dict)."""
    tools = {}
    for path in sorted(folder.iterdir(), key=lambda path: Version(path.name.rpartition("-")[2])):
        name, _, version = path.name.rpartition("-")
        if name == "lmod":
            tools |= lmod(path / "usr/share/lmod/lmod", version)
        else:
            (command,) = path.glob("usr/lib/*/modulecmd.tcl")
            tools["Environment Modules", version] = ModulesTool(
                "EnvironmentModules",
                "Tcl",
                (("MODULES_CMD", str(command)),),
                f"source <(tclsh '{command}' bash autoinit)",
            )
    return tools


def lmod(home, version=None):
    """Return an Lmod in a directory, with module files in both syntaxes: ModulesTool by part and version (dict)."""
    command, init = home / "libexec/lmod", f"source '{home}/init/bash'"
    if not version:
        version = re.search(r"Version (\S+)", said_by(command, "bash", "--version", stderr=subprocess.STDOUT)).group(1)
    return {
        (f"Lmod ({syntax})", version): ModulesTool("Lmod", syntax, (("LMOD_CMD", str(command)),), init)
        for syntax in ("Lua", "Tcl")
    }


def find_python(version):
    """Return the path of a Python of this version on this machine, or None (Path)."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = [Path(path) for path in [shutil.which(f"python{version}")] if path]
    # on the PATH, pyenv has scripts that start only the chosen version
    return next(iter([*versions.glob(f"{version}.*/bin/python3"), *on_path]), None)


def said_by(*command, **settings):
    """Run a command (a list); return its standard output."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False, **settings)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}")
    return done.stdout.strip()


class Versions:
    """The versions of this machine, and one trial for each."""

    def __init__(self, place, tools, lmods):
        self.place = place
        self.image = Path(part("EBSIF_TEST_BASE_IMAGE"))
        self.tools = modules_tools(tools)
        self.newest_lmod = [version for name, version in self.tools if name == "Lmod (Lua)"][-1]
        for home in lmods:
            self.tools |= lmod(home)
        self.easybuilds = easybuild_versions()
        self.apptainer = Version(said_by("apptainer", "--version").split()[-1].partition("-")[0])
        self.newest = {
            "EasyBuild": self.easybuilds[-1],
            "Lmod (Lua)": self.newest_lmod,
            "Apptainer": str(self.apptainer),
            "Python": "{}.{}".format(*sys.version_info[:2]),
        }
        self.release = None

    def rows(self):
        """Return what can be tried here (list of (part, version))."""
        pythons = [version for version in PYTHONS if find_python(version)]
        return [
            *(("EasyBuild", version) for version in self.easybuilds),
            *self.tools,
            ("Apptainer", self.newest["Apptainer"]),
            *(("Python", version) for version in pythons),
        ]

    def trial(self, name, version):
        """Return the trial for a version of a part (Trial)."""
        tool = self.tools.get((name, version)) or self.tools["Lmod (Lua)", self.newest_lmod]
        # Lmod may start Tcl by a shell, without quoting paths
        folder = self.place / re.sub(r"[^\w.]+", "-", f"{name}-{version}")
        python = Path(sys._base_executable)
        venv = Path(sys.prefix)
        if name == "Python":
            python = find_python(version)
            if version not in EASYBLOCKS_ONLY:
                venv = self.install(python, folder / "venv")
                return Trial(Site(folder / "site", tool, venv), venv / "bin/python", self.image)
        wheels = said_by(
            CHECKOUT / "scripts/easybuild-wheels", version if name == "EasyBuild" else self.newest["EasyBuild"]
        )
        path = unpack_easybuild(Path(wheels).glob("*.whl"), folder / "path")
        return Trial(Site(folder / "site", tool, venv), python, self.image, path, with_commands=name != "Python")

    def install(self, python, venv):
        """W-10: install the wheel, then the source distribution, into a new virtual environment; return it."""
        release = self.release = self.release or self.build()
        said_by(python, "-m", "venv", venv)
        pip = [venv / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        said_by(*pip, "--upgrade", "pip")
        # without the sources of this checkout
        said_by(*pip, next(release.glob("*.whl")), cwd=self.place)
        files = said_by(venv / "bin/python", "-m", "pip", "show", "--files", "ebsif", cwd=self.place)
        said_by(*pip, "--no-deps", "--force-reinstall", next(release.glob("*.tar.gz")), cwd=self.place)
        again = said_by(venv / "bin/python", "-m", "pip", "show", "--files", "ebsif", cwd=self.place)
        # how it was installed differs
        if {line for line in files.splitlines() if ".dist-info" not in line} != {
            line for line in again.splitlines() if ".dist-info" not in line
        }:
            sys.exit(f"{python}: the source distribution installs other files than the wheel:\n{files}\n{again}")
        return venv

    def build(self):
        """Build source distribution and wheel of the working copy; return their directory."""
        release, sources = self.place / "release", self.place / "release/sources"
        for path in tracked():
            target = sources / path.relative_to(CHECKOUT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        said_by(sys.executable, "-m", "build", "--no-isolation", "--outdir", release, sources)
        return release


def main():
    """Try the versions, print the outcome of each, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(record.PARTS)} (default: all)")
    parser.add_argument(
        "--modules-tools",
        type=Path,
        required=True,
        metavar="DIRECTORY",
        help="what scripts/unpack-modules-tools has written",
    )
    parser.add_argument(
        "--lmod",
        type=Path,
        default=[],
        action="append",
        metavar="DIRECTORY",
        help="another Lmod to try: the directory with libexec/lmod",
    )
    options = parser.parse_args()
    unknown = set(options.parts) - set(record.PARTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))} (known: {', '.join(record.PARTS)})")
    place = Path(tempfile.mkdtemp(prefix="ebsif-versions-"))
    commit = said_by("git", "describe", "--always", "--dirty", "--exclude=*", cwd=CHECKOUT)
    failed = False
    try:
        versions = Versions(place, options.modules_tools.resolve(), [path.resolve() for path in options.lmod])
        for name, version in versions.rows():
            if options.parts and name not in options.parts:
                continue
            steps, failure = versions.trial(name, version).steps()
            failed = failed or failure
            print(f"{name} {version}: {failure or 'works'}", flush=True)
            record.write(
                [
                    {
                        "part": name,
                        "version": version,
                        "date": datetime.date.today().isoformat(),
                        "ebsif": (CONTAINER_FILES / "VERSION").read_text().strip(),
                        "commit": commit,
                        "steps": steps,
                        "with": {one: newest for one, newest in versions.newest.items() if one != name},
                    }
                ]
            )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
