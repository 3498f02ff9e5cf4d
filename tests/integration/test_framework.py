"""
Every supported version of the framework has the parts that the easyblocks use beyond the usual, unchanged.

A small easyblock derived from ours inspects itself in a real eb, without a container.
"""

import json
import os
import re
import sys
from importlib.metadata import version

import pytest
from parts import unpack_easybuild
from support import EASYBLOCKS, attempt

OLDEST = "5.1.0"  # as in pyproject.toml
NEWEST = version("easybuild-framework")

PROBE = """
import json, os, re
from easybuild.easyblocks import generic
from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from easybuild.framework.easyblock import EasyBlock
from easybuild.framework.easyconfig.easyconfig import letter_dir_for
from easybuild.tools.build_log import EasyBuildError, EasyBuildExit
from easybuild.tools.config import build_option, get_repository, get_repositorypath, install_path, update_build_option
from easybuild.tools.config import source_paths
from easybuild.tools.environment import restore_env
from easybuild.tools.filetools import download_file, verify_checksum
from easybuild.tools.run import run_shell_cmd

SEEN = {}


class Probe(ContainerInstall):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # ContainerInstall
        for variable in list(self.module_load_environment.as_dict):
            if variable != 'PATH':
                self.module_load_environment.remove(variable)
        self.module_load_environment.PATH = ['bin']
        # where --include-easyblocks puts its directory, too
        SEEN['list of directories'] = isinstance(generic.__path__, list)
        SEEN['exit codes'] = all(hasattr(EasyBuildExit, name) for name in os.environ['PROBE_EXITS'].split())
        SEEN['exit code'] = EasyBuildError('text').exit_code == EasyBuildExit.ERROR and EasyBuildError('a %s', 'b').msg
        SEEN['comment'] = '# of the file' in self.cfg.rawtxt
        SEEN['values'] = self.cfg.asdict()['homepage']
        SEEN['parsed'] = [self.cfg.parser.get_config_dict()['version'], self.cfg.get('no parameter', 'none')]
        SEEN['names'] = [self.name, self.version, self.cfg.short_mod_name, self.cfg.mod_subdir]
        SEEN['needs'] = self.cfg.dependencies(runtime_only=True)
        with self.cfg.allow_unresolved_templates():
            SEEN['unresolved'] = self.cfg['description']

    def update_config_template_run_step(self):
        super().update_config_template_run_step()
        self.resolved = True

    def fetch_step(self, *args, **kwargs):
        kwargs['skip_checksums'] = True
        # a file that was found before
        before, checksums = self.cfg.get_ref('sources'), self.cfg.get_ref('checksums')
        self.cfg['sources'], self.cfg['checksums'] = [os.path.join(os.path.dirname(self.cfg.path), 'probe.txt')], []
        EasyBlock.fetch_step(self, *args, **kwargs)
        SEEN['taken'] = [one['path'] for one in self.src]
        self.src = []
        self.cfg['sources'], self.cfg['checksums'] = before, checksums
        EasyBlock.fetch_step(self, *args, **kwargs)
        SEEN['sources'] = [path for path in source_paths() if os.path.isdir(path)] + [letter_dir_for('Example')]
        SEEN['source'] = sorted(self.src[0])
        SEEN['checksum'] = self.src[0]['checksum']
        SEEN['patch'] = os.path.basename(self.obtain_file('lock.json', no_download=True))
        here = os.path.dirname(self.cfg.path)
        self.robot_path = list(self.robot_path or []) + [os.path.join(here, 'images')]
        SEEN['images'] = [self.obtain_file(name, no_download=True, warning_only=True) for name in ('x.sif', 'y.sif')]
        SEEN['checksums'] = [self.get_checksum_for(self.cfg['checksums'], filename='probe.txt', index=0)[:4]] + [
            verify_checksum('/none/x.sif', [{'x.sif': 'a' * 64}], {'sha256': digit * 64}) for digit in 'ab']
        SEEN['download'] = download_file('z', 'file://' + os.path.join(here, 'probe.txt'), os.path.join(here, 'z'))
        done = run_shell_cmd(['env'], use_bash=False, fail_on_error=False, output_file=False, hidden=True,
                             work_dir=here)
        SEEN['environment'] = [done.exit_code, 'PROBE_SECRET=secret' in done.output, done.out_file]

    def checksum_step(self):
        # a SHA256 that is known isn't computed again
        before, self.src = self.src, []
        EasyBlock.checksum_step(self)
        self.src = before

    def extract_step(self):
        for source in self.src:
            source['finalpath'] = self.builddir

    def prepare_step(self, *args, **kwargs):
        EasyBlock.prepare_step(self, *args, **kwargs)
        SEEN['filters'] = [update_build_option('test_report_env_filter', re.compile('^PROBE_SECRET$')),
                           build_option('test_report_env_filter').pattern, build_option('force_download')]

    def configure_step(self):
        SEEN['hook after templates'] = self.hooked
        SEEN['cores'] = self.cfg.parallel > 0
        before = dict(os.environ)
        self.modules_tool.load([])
        restore_env(before)

    def build_step(self):
        pass

    def test_step(self):
        pass

    def install_step(self):
        SEEN['installdir'] = self.installdir
        SEEN['template'] = self.cfg['description']
        SEEN['earlier module'] = os.path.exists(self.mod_filepath)
        of_module = self.module_generator.det_installdir(self.mod_filepath)
        SEEN['module'] = [self.mod_filepath, self.installdir_mod, of_module]
        SEEN['places'] = [install_path(), install_path('mod'), get_repository(), *get_repositorypath()][:4]
        for name in ('bin/probe', 'share/ebsif/lock.json'):
            path = os.path.join(self.installdir, name)
            os.makedirs(os.path.dirname(path))
            with open(path, 'w') as file:
                file.write('{}')

    def sanity_check_step(self, *args, **kwargs):
        self.initial_environ.pop('PROBE_VARIABLE')
        kwargs['custom_paths'] = {'files': ['bin/probe'], 'dirs': ['bin']}
        kwargs['custom_commands'] = ['test -z "$PROBE_VARIABLE" && test -n "$PROBE_OTHER"']
        EasyBlock.sanity_check_step(self, *args, **kwargs)

    def make_module_description(self):
        self.cfg['usage'] = 'How to use it'
        return EasyBlock.make_module_description(self)

    def make_module_dep(self, *args, **kwargs):
        return EasyBlock.make_module_dep(self, *args, **kwargs) + 'conflict("other")\\n'

    def make_module_extra(self, *args, **kwargs):
        return EasyBlock.make_module_extra(self, *args, **kwargs) + self.make_module_extra_extensions()

    def permissions_step(self):
        SEEN['group'] = self.group
        EasyBlock.permissions_step(self)
        os.chmod(os.path.join(self.installdir, 'bin/probe'), 0o600)

    def make_extension_list(self, formatted=True):
        return [('numpy', '1.0')]

    def sanity_check_rpath(self, *args, **kwargs):
        SEEN['rpath'] = True
        return []

    def make_module_step(self, fake=False):
        made = EasyBlock.make_module_step(self, fake=fake) if fake else self.replace_module()
        if not fake:
            SEEN['path'] = made
            names = {'modname': 'Example/1.0', 'sym_version': 'new', 'version': '1.0'}
            SEEN['modulerc'] = [self.module_generator.DOT_MODULERC, self.module_generator.modulerc(names)]
        return made

    def run_all_steps(self, *args, **kwargs):
        try:
            return super().run_all_steps(*args, **kwargs)
        finally:
            with open(os.environ['PROBE_SEEN'], 'w') as file:
                json.dump(SEEN, file)
"""

HOOKS = """
def pre_prepare_hook(self):
    self.resolved = False

def pre_configure_hook(self):
    self.hooked = self.resolved

def module_write_hook(self, filepath, text, *args, **kwargs):
    with open(os.environ['PROBE_SEEN'] + '.hook', 'a') as file:
        file.write('%s in %s\\n' % (filepath, self.installdir))
"""

EASYCONFIG = """# of the file
easyblock = 'Probe'
name = 'Example'
version = '1.0'
homepage = 'https://example.org'
description = 'In %(installdir)s'
toolchain = SYSTEM
sources = ['probe.txt']
checksums = ['f0b5c2c2211c8d67ed15e75e656c7862d086e9245420892a7de62cd9ec582a06']
"""


@pytest.fixture(params=[pytest.param(OLDEST, marks=pytest.mark.nightly), NEWEST])
def framework(request, tmp_path, easybuild_wheels):
    """A directory of Python's path with one version of EasyBuild and our easyblocks."""
    return unpack_easybuild(easybuild_wheels(request.param), tmp_path / "path")


def run_eb(framework, work, *arguments, **variables):
    """Run eb of a framework in a directory, as the program does; return the CompletedProcess."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EASYBUILD"))}
    environment |= {"PYTHONPATH": str(framework), "HOME": str(work), **variables}
    command = [sys._base_executable, "-m", "easybuild.main", *arguments, f"--prefix={work}/eb", "--modules-tool=Lmod"]
    words = [*command, "--module-syntax=Lua", "--output-style=basic", "--allow-use-as-root-and-accept-consequences"]
    return attempt(words, env=environment, cwd=work)


def test_used_parts_of_the_framework(framework, tmp_path):
    """C-02, easybuild, Overrides of the framework: a new installation replaces the earlier one as intended."""
    (framework / "easybuild/easyblocks/generic/probe.py").write_text(PROBE)
    texts = {"Example-1.0.eb": EASYCONFIG, "hooks.py": f"import os\n{HOOKS}", "probe.txt": "5\n", "lock.json": "{}"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    root, modules = tmp_path / "eb/software/Example/1.0", tmp_path / "eb/modules/all"
    (root / "share/ebsif").mkdir(parents=True)
    (root / "share/ebsif/lock.json").write_text("{}")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/x.sif").touch()
    (modules / "Example").mkdir(parents=True)
    (modules / "Example/1.0.lua").write_text(f'local root = "{root}"\n')
    seen = tmp_path / "seen"
    sources = "".join(path.read_text() for path in (EASYBLOCKS / "generic").rglob("*.py"))
    exits = set(re.findall(r"EasyBuildExit\.([A-Z_]+)", sources))
    assert "EASYCONFIG_ERROR" in exits
    result = run_eb(
        framework,
        tmp_path,
        "Example-1.0.eb",
        "--rebuild",
        "--hooks=hooks.py",
        f"--sourcepath={tmp_path}",
        PROBE_VARIABLE="1",
        PROBE_OTHER="1",
        PROBE_SECRET="secret",
        PROBE_SEEN=str(seen),
        PROBE_EXITS=" ".join(exits),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(seen.read_text()) == {
        # as parsed, and as written
        "list of directories": True,
        "exit codes": True,
        "exit code": "a b",
        "sources": [str(tmp_path), "e"],
        "hook after templates": True,
        "cores": True,
        "group": None,
        "modulerc": [".modulerc.lua", 'module_version("Example/1.0", "new")'],
        "comment": True,
        "values": "https://example.org",
        "unresolved": "In %(installdir)s",
        "source": ["checksum", "cmd", "finalpath", "name", "path"],
        "patch": "lock.json",
        "checksum": "f0b5c2c2211c8d67ed15e75e656c7862d086e9245420892a7de62cd9ec582a06",
        "filters": [None, "^PROBE_SECRET$", None],
        "taken": [str(tmp_path / "probe.txt")],
        "parsed": ["1.0", "none"],
        "names": ["Example", "1.0", "Example/1.0", ""],
        "needs": [],
        # found in a directory that was added, or not; by a SHA256 that is known; without a file of the environment
        "images": [f"{tmp_path}/images/x.sif", None],
        "checksums": ["f0b5", True, False],
        "download": f"{tmp_path}/z",
        "environment": [0, True, None],
        # make_installdir, templates, remove_module_file
        "installdir": f"{root}.replace",
        "template": f"In {root}.replace",
        "earlier module": True,
        "module": [str(modules / "Example/1.0.lua"), str(modules), str(root)],
        "places": [
            f"{tmp_path}/eb/software",
            f"{tmp_path}/eb/modules",
            "FileRepository",
            f"{tmp_path}/eb/ebfiles_repo",
        ],
        "rpath": True,
        "path": str(modules),
    }
    written = [line for line in (tmp_path / "seen.hook").read_text().splitlines() if line.startswith(str(modules))]
    assert written == [f"{modules}/Example/1.0.lua in {root}"]
    text = (modules / "Example/1.0.lua").read_text().partition("local function container()")[0]
    assert f'local root = "{root}"' in text
    assert "numpy/1.0" in text
    for part in ("How to use it", 'conflict("other")', 'setenv("EBEXTSLISTEXAMPLE", "numpy-1.0")'):
        assert part in text
    assert (root / "bin/probe").stat().st_mode & 0o777 == 0o600
    assert not list(root.glob("easybuild/*-easybuild-devel"))
    assert text.count("prepend_path(") == text.count('prepend_path("PATH"') == 1
    assert not [path for path in root.parent.iterdir() if path != root]
    (report,) = root.glob("easybuild/*_test_report.md")
    assert "PROBE_OTHER" in report.read_text()
    assert "PROBE_SECRET" not in report.read_text()


BUNDLE = """
easyblock = 'Bundle'
name = 'Two'
version = '1.0'
homepage = 'https://example.org'
description = 'A container and something else'
toolchain = SYSTEM
components = [('Example', '1.0', {'easyblock': 'ContainerVenv', 'sources': ['probe.txt']})]
"""


@pytest.mark.parametrize("framework", [NEWEST], indirect=True)
def test_a_component_of_a_bundle(framework, tmp_path):
    """A-02: EasyBuild would unpack the image, and write a module that doesn't set it up: eb refuses, and says why."""
    (tmp_path / "Two-1.0.eb").write_text(BUNDLE)
    (tmp_path / "probe.txt").write_text("5\n")
    result = run_eb(framework, tmp_path, "Two-1.0.eb", f"--sourcepath={tmp_path}")
    assert result.returncode != 0
    said = " ".join((result.stdout + result.stderr).split())
    assert "A container can't be a component of a Bundle, which would unpack the image: write a separate" in said
    assert not (tmp_path / "eb/software/Two").exists()


def test_a_container_is_installed(framework, tmp_path, base_image):
    """W-05, C-02: the whole way to a module, with each method of the framework that the easyblock extends."""
    (tmp_path / "example.sif").symlink_to(base_image)
    (tmp_path / "Example-1.0.eb").write_text(
        "easyblock = 'ContainerInstall'\nname = 'Example'\nversion = '1.0'\nhomepage = 'https://example.org/'\n"
        "description = 'A container.'\ntoolchain = SYSTEM\nsources = ['example.sif']\nmoduleclass = 'ai'\n"
    )
    result = run_eb(framework, tmp_path, "Example-1.0.eb", f"--sourcepath={tmp_path}", PATH=os.environ["PATH"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "eb/modules/all/Example/1.0.lua").is_file()
