"""The easyblock proposed to EasyBuild, docs/upstream: tried with the example image."""

import sys
from pathlib import Path

from parts import TOOLS
from support import CHECKOUT, Site, blocks

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
    image = site.prefix / "eb/software/Example/1.0/Example-1.0.sif"
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
