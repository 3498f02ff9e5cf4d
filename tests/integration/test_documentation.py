"""The commands of the documentation, run as they are written."""

import os
import re
import subprocess

import pytest
from support import CHECKOUT, attempt, blocks


def run(script, folder):
    """Run a script in a fresh shell, in a folder that looks like a clone after `make demo`."""
    environment = {**os.environ, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    result = attempt(["bash", "--noprofile", "--norc", "-ec", script], cwd=folder, env=environment, timeout=1700)
    assert result.returncode == 0, f"{script}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory, demo):
    """A folder with the demo's env.sh, where everything is installed into this folder."""
    tmp_path = tmp_path_factory.mktemp("clone")
    (tmp_path / ".demo").mkdir()
    text = (CHECKOUT / ".demo" / "env.sh").read_text()
    modules = tmp_path / "eb" / "modules" / "all"
    own = f"export EASYBUILD_PREFIX={tmp_path}/eb\nmkdir -p {modules}\nmodule use {modules}\n"
    (tmp_path / ".demo" / "env.sh").write_text(text + own)
    for name in ("docs", "easyblocks", "easyconfigs"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    return tmp_path


def test_the_commands_of_the_readme(clone):
    """
    S003-24, S002-72 (in part): every command of the README works, in the order given; its module can be shared.

    None of them prints a warning.
    """
    use, demo, catalog = blocks("README.md")
    # the fixture has run it
    make, source = demo.splitlines()
    assert make == "make demo"
    added = """
        module load PyTorch/mine
        singularity exec $SIF python -c 'import einops; print(einops.__file__)'
    """
    output = run(f"{source}\n{{\n{use}}} 2>messages\n{catalog}{added}", clone)
    messages = (clone / "messages").read_text()
    assert re.findall(r"^ebsif: (\w+)", messages, re.MULTILINE) == ["installed", "wrote"], messages
    assert "warning" not in messages.lower()
    assert "/user-software/venv/pytorch/lib/python3.11/site-packages/einops/__init__.py\n" in output
    assert list(clone.glob("my-easyconfigs/p/PyTorch/PyTorch-2.7.0-*.eb"))
    assert "conda-python-distributed" in (clone / "job.sh").read_text()
    run("source .demo/env.sh\n" + "".join(blocks("docs/registries.md")), clone)
    assert (clone / "environments/index.json").is_file()
    assert (clone / "crate/ro-crate-metadata.json").is_file()


@pytest.mark.nightly
def test_the_quick_start_for_users(clone):
    """The commands of the page work."""
    output = run("source .demo/env.sh\n" + "".join(blocks("docs/for-users.md")), clone)
    assert "pytorch-lightning" in output
    assert output.rstrip().endswith("2.13.0+cpu")
    assert "conda-python-distributed" in (clone / "train.sh").read_text()


@pytest.mark.nightly
def test_the_other_quick_starts(clone):
    """The commands of both pages work, each page in a shell of its own."""
    output = run("source .demo/env.sh\n" + "".join(blocks("docs/for-administrators.md")), clone)
    assert "PyTorch/2.7.0-rocm-6.2.4" in output
    assert (clone / "pages/index.html").is_file()
    output = run("source .demo/env.sh\n" + "".join(blocks("docs/for-easybuild.md")), clone)
    assert "masked_paths" in output
    module = clone / "eb/modules/all/PyTorch"
    assert (module / "2.13.0-cpu-python-3.11-singularity-byhand-20261121.lua").is_file()
    assert (module / "2.13.0-cpu-python-3.11-singularity-20261121.lua").is_file()


@pytest.mark.nightly
def test_the_commands_for_extending_by_hand(clone):
    """
    S003-24, S004-15 (in part): the documented way to add packages to a writable module works.

    S002-32, S002-26, S002-28: without requirements: writable, pip install by hand, squash, reload, unsquash.
    """
    first, second, without_loading = blocks("docs/using.md")
    assert run(f"source .demo/env.sh\n{without_loading}", clone).endswith("2.13.0+cpu\n")
    module = "PyTorch/2.13.0-cpu-python-3.11-singularity-20261121"
    origins = "; ".join(f'print(importlib.util.find_spec(\\"{name}\\").origin)' for name in ("einops", "torch"))
    output = run(
        f"""
        source .demo/env.sh
        {first}
        list-packages
        start-shell -c "python -c 'import importlib.util; {origins}'"
        {second}
        list-packages
        start-shell -c 'touch /user-software/writable && ls -m /user-software'
        mkdir ~/my-software; export EBSIF_USER_SOFTWARE=~/my-software
        module unload PyTorch; module load {module}
        unmake-squashfs
        module unload PyTorch; module load {module}
        singularity exec $SIF pip install einops
        start-shell -c 'ls -m /user-software'
    """,
        clone,
    )
    assert re.search(r"^einops +\d", output, re.MULTILINE)
    assert re.search(r"^rich +\d", output, re.MULTILINE)
    assert (
        "\n/user-software/venv/pytorch/lib/python3.11/site-packages/einops/__init__.py\n"
        "/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages/torch/__init__.py\n" in output
    )
    assert len(re.findall("^venv, writable$", output, re.MULTILINE)) == 2
    assert (clone / "my-software/user-software/writable").is_file()


def test_the_commands_of_the_catalog(clone):
    """S003-24: list, show, render, check, schema, site init as documented; the documented record is valid."""
    script = "".join(blocks("docs/catalog.md"))
    output = run(f"source .demo/env.sh\n{script}", clone)
    assert "PyTorch/2.7.0-rocm-6.2.4" in output
    assert "the site has no containers yet" in output
    document = (CHECKOUT / "docs/catalog.md").read_text()
    text = re.search(r"^```yaml\n(name: PyTorch\n.*?)^```", document, re.MULTILINE | re.DOTALL)
    (clone / "sites/lumi/containers").mkdir(parents=True)
    (clone / "sites/lumi/containers/PyTorch.yaml").write_text(text.group(1))
    output = run("source .demo/env.sh\nebsif show --site lumi --catalog sites PyTorch/2.7.0", clone)
    assert "PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250527" in output


@pytest.mark.nightly
def test_the_commands_for_running(clone):
    """S003-24: the documented training, with one rank and with two; the job script; where caches are."""
    (script,) = blocks("docs/running.md")
    output = run(f"source .demo/env.sh\nexport APPTAINER_BIND+=,{CHECKOUT}\n{script}", clone)
    assert re.findall(r"^ranks: (\d), equal weights: True", output, re.MULTILINE) == ["1", "2"]
    subprocess.run(["bash", "-n", clone / "two-nodes.sh"], check=True)
    (script,) = blocks("docs/caches.md")
    assert run(f"source .demo/env.sh\nexport EBSIF_NODE_LOCAL={clone}\n{script}", clone).endswith("/no-job/triton\n")


def test_the_easyconfig_of_the_documentation(clone):
    """eb accepts the easyconfig in docs/easyconfigs.md."""
    text = re.search(r"^```python\n(.*?)^```", (CHECKOUT / "docs/easyconfigs.md").read_text(), re.MULTILINE | re.DOTALL)
    path = clone / "PyTorch-2.13.0-cpu-python-3.11-singularity-mine-20261121.eb"
    path.write_text(text.group(1))
    output = run(f"source .demo/env.sh\neb -D {path.name}\neb --check-style {path.name}", clone)
    assert "PyTorch/2.13.0-cpu-python-3.11-singularity-mine-20261121" in output
