"""What is proposed to EasyBuild, docs/upstream: the easyblock, with the example image, and hooks in the framework."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from parts import TOOLS
from support import CHECKOUT, Site, blocks

pytestmark = pytest.mark.nightly
EASYBLOCK = CHECKOUT / "docs/upstream/containerimage.py"
TEXT = """\
easyblock = 'ContainerImage'
sources = ['example.sif']
binds = ['/srv:/data:ro', '/usr/share']
container_env = {'GREETING': "it's 5 o'clock"}
wrappers = ['git']
"""


SCRIPT = """
    env | grep -c ^APPTAINER
    module load Example
    echo "$SIF $APPTAINER_BINDPATH $SINGULARITY_BINDPATH"
    singularity exec "$SIF" sh -c 'echo "$GREETING"; ls -d /data; test ! -w /data'
    ln -sf "$(type -P git)" here; ./here --version; git -C /data --exec-path
    module unload Example
    env | grep -c ^APPTAINER
"""


def test_the_proposed_easyblock(tmp_path, base_image):
    """
    W-06: it installs the example image without ebsif; module and wrapper work, and unloading leaves nothing.

    A-04: a site that wants more changes one line, the easyblock, and has the same with ebsif.
    """
    site = Site(tmp_path / "site", TOOLS["EnvironmentModules-Tcl"](), tmp_path)
    (site.sources / "example.sif").symlink_to(base_image)
    site.eb(site.easyconfig(TEXT), f"--include-easyblocks={EASYBLOCK}")
    said = site.bash(SCRIPT, check=False, APPTAINER_BIND="/opt:/mnt")
    image = site.root() / "Example-1.0.sif"
    binds = "/srv:/data:ro,/usr/share"
    lines = said.stdout.splitlines()
    git = lines.pop(4)
    assert lines == ["1", f"{image} {binds} {binds}", "it's 5 o'clock", "/data", "/usr/lib/git-core", "1"], said
    assert git.startswith("git version 2.39")
    assert image.stat().st_size == base_image.stat().st_size

    site.venv = Path(sys.prefix)
    site.eb(site.easyconfig(TEXT.replace("'ContainerImage'", "'ContainerInstall'")), "--rebuild")
    after = site.bash(SCRIPT, check=False, APPTAINER_BIND="/opt:/mnt").stdout.splitlines()
    assert after.pop(4) == git
    changed = after.pop(1)
    assert changed.endswith(f".sif {' '.join([changed.split()[1]] * 2)}") and set(binds.split(",")) <= set(
        changed.split()[1].split(",")
    )
    assert after == ["1", "it's 5 o'clock", "/data", "/usr/lib/git-core", "1"]


def test_mistakes_in_its_parameters(site):
    """W-06: mistakes are found, those in parameters before anything is copied; the proposal's example has none."""
    (text,) = blocks("docs/upstream.md", "python")
    example = site.prefix / "PyTorch-2.13.0.eb"
    example.write_text(text)
    said = site.eb(example, "--dry-run", f"--include-easyblocks={EASYBLOCK}").stdout
    assert "(module: PyTorch/2.13.0)" in said, said

    def said(*change):
        return site.eb(
            site.easyconfig(TEXT.replace(*change, 1)), f"--include-easyblocks={EASYBLOCK}", check=False, one_stream=True
        ).stdout

    assert "installs a single image, found 2 sources" in said("]", ", 'other.sif']")
    assert "must start with a full path, and can't contain a comma: srv:/data:ro" in said("/srv", "srv")
    assert "must be the name of a program, without directory: ../git" in said("'git'", "'../git'")
    assert not (site.prefix / "eb/software").exists()
    assert "command -v nothere" in said("'git'", "'nothere'")
    # no module without a passed sanity check
    assert not list(site.modules.rglob("*.lua"))


BLOCK = """\
from easybuild.easyblocks.generic.tarball import Tarball


class Kept(Tarball):
    '''Installs what is made by commands.'''
    builds_beside = keeps_module = {hooks}

    def install_step(self):
        '''Nothing to copy.'''
        with open(self.installdir + '/number', 'w') as file:
            file.write(open('{number}').read())
"""
KEPT = """\
easyblock = 'Kept'
postinstallcmds = ['echo %(installdir)s >%(installdir)s/path; test ! -e FAIL']
sanity_check_paths = {'files': ['number'], 'dirs': []}
"""


@pytest.mark.parametrize("hooks", [True, False])
def test_the_proposed_hooks(tmp_path, hooks):
    """With both patches, a failed reinstallation leaves the earlier module, if an easyblock asks for it."""
    site = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    patched = tmp_path / "patched"
    (packages,) = Path(sys.prefix).glob("lib/python3*/site-packages")
    for part in ("framework", "tools", "base", "easyblocks", "toolchains", "main.py", "__init__.py"):
        target = patched / "easybuild" / part
        if (packages / "easybuild" / part).is_dir():
            shutil.copytree(packages / "easybuild" / part, target)
        elif (packages / "easybuild" / part).exists():
            shutil.copy(packages / "easybuild" / part, target)
    for name in ("build-beside.patch", "keep-module.patch"):
        subprocess.run(["git", "apply", CHECKOUT / "docs/upstream" / name], cwd=patched, check=True)
    block, number, fail = (tmp_path / name for name in ("kept.py", "number", "fail"))
    block.write_text(BLOCK.format(hooks=hooks, number=number))
    easyconfig = site.easyconfig(KEPT.replace("FAIL", str(fail)))
    installation, module = site.root(), site.modules / "Example/1.0.lua"

    def install(text):
        number.write_text(text)
        options = [*site.eb_options, f"--include-easyblocks={block}", "--rebuild", "--disable-cleanup-tmpdir"]
        command = [sys.executable, "-m", "easybuild.main", easyconfig, *options]
        return site.run(command, check=False, PYTHONPATH=patched)

    first = install("one")
    assert first.returncode == 0, first.stdout + first.stderr
    before = module.read_text()
    fail.touch()
    assert install("two").returncode
    if not hooks:
        assert (installation / "number").read_text() == "two" and not module.exists()
        return
    assert (installation / "number").read_text() == "one" and module.read_text() == before
    fail.unlink()
    last = install("three")
    assert last.returncode == 0, last.stdout + last.stderr
    assert (installation / "number").read_text() == "three"
    assert (installation / "path").read_text() == f"{installation}\n"
    assert [path.name for path in installation.parent.iterdir()] == ["1.0"]
    assert [path.name for path in module.parent.iterdir()] == ["1.0.lua"]
