"""A prefix of EasyBuild with installations that consist of the files that commands read. No image is needed."""

import json
import os

import pytest
from easybuild.easyblocks.generic.container.requirements import lock_of
from easybuild.easyblocks.generic.container.stages import PipStage
from ebsif.catalog import site
from support import add_package

BASE = "PyTorch/2.13.0-cpu-python-3.11-singularity-20261121"
MINE = f"{BASE}-mine-20261121"
LATER = f"{BASE}-mine-20261122"
OTHER = f"{BASE}-other-20261121"
EASYCONFIG = """\
# Written by `ebsif extend`: yours to change.
easyblock = 'ContainerVenv'

name = 'PyTorch'
version = '2.13.0'
versionsuffix = '-cpu-python-3.11-singularity-20261121-mine-20261121'

homepage = 'https://pytorch.org/'
description = 'Mine'
toolchain = SYSTEM

sources = ['a.sif']

requirements = [
    'einops[all]>=0.8; python_version > "3"',
    'gone',
    '# a comment',
]

moduleclass = 'ai'
"""

SITE = "name: mine\ndescription: x\n"
TOOL = """\
name: Tool
families:
  tool: {homepage: https://example.org/, file: "tool-{version}.sif", init: none}
containers:
  - {family: tool, version: 1.0}
"""


def parameters_in(text):
    """Return the parameters in the text of an easyconfig."""
    values = {"SYSTEM": "SYSTEM", "container_env": {}}
    exec(text, values)
    return values


def stages_in(text):
    """Return the stages in an easyconfig, as the record of its installation has them."""
    value = parameters_in(text).get("requirements")
    return [] if lock_of(value) else [stage.record for stage in PipStage.from_parameter(value)]


class Prefix:
    """An EasyBuild prefix whose installations contain only the files that the commands read."""

    def __init__(self, folder):
        self.software, self.modules = folder / "eb/software", folder / "eb/modules/all"
        self.modules.mkdir(parents=True)

    def install(self, module, packages=("einops==0.8.1",), text=EASYCONFIG, lua=True, files=(), **record):
        """Install a module, perhaps with more (empty) files; return its directory."""
        root = self.software / module
        name, version = module.split("/")[-2:]
        (root / "share/ebsif").mkdir(parents=True)
        (root / "easybuild").mkdir()
        (root / "easybuild" / f"{module.replace('/', '-')}.eb").write_text(text)
        (root / "a.sif").write_bytes(bytes(5000))
        for package in packages:
            self.add(root, *package.split("=="))
        version, sign, suffix = version.partition("-")
        known = {
            "module": {"name": name, "version": version, "versionsuffix": sign + suffix},
            "image": {"file": "a.sif", "sha256": "0" * 64},
            "image_packages": ["numpy==2.0"],
            "artifacts": {},
            "venv_packages": list(packages),
            "stages": stages_in(text),
        }
        (root / "share/ebsif/lock.json").write_text(json.dumps({**known, **record}))
        for name in files:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).touch()
        self.write_module(module, root, lua)
        return root

    def write_module(self, module, root, lua=True):
        """Write the module file of an installation."""
        file = self.modules / (f"{module}.lua" if lua else module)
        file.parent.mkdir(parents=True, exist_ok=True)
        lua_text = f'local root = "{root}"\nput("CONTAINERROOT", root .. "")\n'
        file.write_text(lua_text if lua else f"#%Module\nset root {root}\nsetenv CONTAINERROOT $root\n")

    def alias(self, module, alias):
        """Let an alias mean a module, in place of all other ones of the software; return the file that says so."""
        file = (self.modules / module).with_name(".modulerc.lua")
        file.write_text(f'module_version("{module}", "{alias}")\n')
        return file

    @staticmethod
    def add(root, name, version):
        """Add a package by hand."""
        add_package(root / "user-software/venv/pytorch/lib/python3.11/site-packages", name, version)


@pytest.fixture
def eb_prefix(tmp_path, monkeypatch):
    """A prefix known to EasyBuild and the modules tool, with no module loaded."""
    made = Prefix(tmp_path)
    for name in [name for name in os.environ if name.startswith(("EBSIF_", "EASYBUILD_"))] + ["CONTAINERROOT"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODULEPATH", str(made.modules))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("ebsif.eb.framework.prefix", lambda: (made.software, made.modules))
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def tool_site(tmp_path, monkeypatch):
    """A project with the site SITE and the record TOOL, and an account without configuration; returns the directory."""
    monkeypatch.chdir(tmp_path)
    for name, folder in (("HOME", "home"), ("XDG_DATA_HOME", "data"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("EBSIF_SITE", "mine")
    monkeypatch.setattr(site, "SITES", tmp_path / "project")
    for name, text in (("mine/site.yaml", SITE), ("mine/containers/Tool.yaml", TOOL)):
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path
