"""EasyBuild configured as at LUMI, which has EasyBuild 5 and, for older software, EasyBuild 4."""

import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from parts import TOOLS, unpack_wheels
from support import EASYBLOCKS, Site, write_program

OLD = "4.9.4"

# Not EasyBuild's own scheme, so commands that ignore the site's settings don't know it.
SCHEME = '''\
from easybuild.tools.module_naming_scheme.easybuild_mns import EasyBuildMNS


class Site_FlatMNS(EasyBuildMNS):
    """Without links in directories of module classes."""

    def det_module_symlink_paths(self, ec):
        return []
'''
# what the site's own easyconfigs use
EASYBLOCK = '''\
from easybuild.easyblocks.generic.tarball import Tarball


class SiteTarball(Tarball):
    """A tarball."""
'''
PLAIN = """\
easyblock = 'SiteTarball'
name = 'hello'
version = '1.0'
homepage = 'https://example.org'
description = 'Software of the site.'
toolchain = SYSTEM
sources = []
moduleclass = 'tools'
"""
# eb recognizes loaded modules by such a variable
TOOLS_MODULE = 'setenv("EBROOTSITEMINTOOLS", "/")\n'
# written into eb by LUMI's easyconfig of EasyBuild
OVERWRITES = "export PYTHONPATH={path}\n"


class SiteEasyBuild(Site):
    """A site whose users load EasyBuild before they install: the module EasyBuild-user/5 or EasyBuild-user/4."""

    def __init__(self, prefix, tool, venv, easybuild):
        """Write the site's files; `easybuild` are directories by the major version."""
        super().__init__(prefix, tool, venv)
        self.appl = self.prefix / "appl"
        self.easyblocks, self.easyconfigs = self.appl / "easyblocks", self.appl / "easyconfigs"
        self.catalog_of_modules = self.appl / "modules"
        for name, text in {
            "easyblocks/generic/sitetarball.py": EASYBLOCK,
            "easyconfigs/h/hello/hello-1.0.eb": PLAIN,
            "naming/site_flatmns.py": SCHEME,
            "modules/site-tools/1.0.lua": TOOLS_MODULE,
            "easybuild.cfg": "[override]\nallow-loaded-modules=EasyBuild,site-tools\n",
        }.items():
            path = self.appl / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for number, directory in easybuild.items():
            path = self.catalog_of_modules / f"EasyBuild-user/{number}.lua"
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                "".join(f"setenv({name!r}, {str(value)!r})\n" for name, value in self.settings.items())
                + f"prepend_path('PATH', '{directory}/bin')\n"
            )

    @property
    def settings(self):
        """The variables that the modules of EasyBuild set (dict)."""
        return {
            "EB_PYTHON": sys._base_executable,
            "EASYBUILD_PREFIX": self.prefix / "eb",
            "EASYBUILD_INSTALLPATH_SOFTWARE": self.prefix / "eb/SW",
            "EASYBUILD_INSTALLPATH_MODULES": self.prefix / "eb/modules",
            "EASYBUILD_SUFFIX_MODULES_PATH": "",
            "EASYBUILD_SOURCEPATH": self.sources,
            "EASYBUILD_CONFIGFILES": self.appl / "easybuild.cfg",
            "EASYBUILD_MODULES_TOOL": self.tool.name,
            "EASYBUILD_MODULE_SYNTAX": self.tool.syntax,
            "EASYBUILD_INCLUDE_MODULE_NAMING_SCHEMES": f"{self.appl}/naming/*.py",
            "EASYBUILD_MODULE_NAMING_SCHEME": "Site_FlatMNS",
            "EASYBUILD_INCLUDE_EASYBLOCKS": f"{self.easyblocks}/*/*.py",
            "EASYBUILD_ROBOT_PATHS": self.easyconfigs,
            **({} if os.geteuid() else {"EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1"}),
        }

    @property
    def modules(self):
        """The directory with the module files."""
        return self.prefix / "eb/modules"

    def share_easyblocks(self):
        """Put our easyblocks in the directory that both EasyBuilds include."""
        for path in (EASYBLOCKS / "generic").glob("*"):
            (self.easyblocks / "generic" / path.name).symlink_to(path)

    def bash(self, script, check=True, cwd=None, easybuild="5", **environment):
        """Run a bash script in a new shell, with a version of EasyBuild loaded unless that is None."""
        load = f"module load site-tools {f'EasyBuild-user/{easybuild}' if easybuild else ''}"
        return super().bash(f"module use {self.catalog_of_modules}\n{load}\n{script}", check, cwd, **environment)


def unpack_at(folder, wheels):
    """Put EasyBuild and an eb that knows only its own Python path in a directory; return it."""
    packages = unpack_wheels(wheels, folder / "lib/python3.11/site-packages")
    (script,), (data,) = packages.glob("*.data/scripts/eb"), packages.glob("*.data/data/easybuild")
    data.rename(folder / "easybuild")
    text = script.read_text().partition("\n")
    write_program(folder / "bin/eb", text[0] + "\n" + OVERWRITES.format(path=shlex.quote(str(packages))) + text[2])
    return folder


@pytest.fixture(scope="session")
def easybuild_of_site(tmp_path_factory, easybuild_wheels):
    """The directories of EasyBuild 5 and EasyBuild 4 (dict), neither of which has the easyblocks."""
    return {
        number: unpack_at(tmp_path_factory.mktemp(f"EasyBuild-{number}"), easybuild_wheels(release))
        for number, release in (("5", version("easybuild-framework")), ("4", OLD))
    }


@pytest.fixture
def lumi(tmp_path, easybuild_of_site):
    """A site with EasyBuild configured as LUMI's; ebsif is in a venv of its own, that of the tests."""
    return SiteEasyBuild(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix), easybuild_of_site)
