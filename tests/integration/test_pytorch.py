"""The main use case, as in `make demo`: PyTorch with additional packages, from the project's easyconfigs."""

import os
import re
import subprocess
from pathlib import Path

from support import CHECKOUT, make_wheel, printed, record_of

MODULE = "PyTorch/2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121"


def by_hand(script, check=True):
    """Continue as the demo says: source .demo/env.sh in a fresh shell, load the module, run a script."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", f"source .demo/env.sh\nmodule load {MODULE}\n{script}"],
        cwd=CHECKOUT,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        check=check,
        timeout=300,
    ).stdout.strip()


def test_the_demo_shows_the_session(demo):
    """
    S001-05 (in part): every step prints what it does and how long it took; the session shows what it should.

    There is a line for each step; package managers and installers print none.
    """
    output = demo.stdout + demo.stderr
    steps = re.findall(r"^==> (.*)$", output, re.MULTILINE)
    assert len(steps) >= 6
    before = demo.stderr.partition("==> Installing PyTorch-2.13.0")[0].splitlines()
    assert [
        line
        for line in before
        if not re.fullmatch(
            r"==> .*|    (nothing is missing on this machine|missing on this machine, .*|cached: .*)", line
        )
    ] == []
    assert re.search(r"^==> Preparing \.venv with EasyBuild and ebsif\.* \d+\.\d s$", output, re.MULTILINE)
    # E-10: those of eb in a line each
    assert "building and installing" not in output
    # between them are also warnings, of a slow network for example
    steps_of_eb = (
        r"^  installing packages +\d.* added\n(.*\n)*  writing the module +\d+ s\n(.*\n)*"
        r"  the log is /.*\.log$"
    )
    assert f"{MODULE} is already installed" in output or re.search(steps_of_eb, output, re.MULTILINE), output
    for shown in ("$ module load PyTorch/", "$ printenv SIF", "$ printenv APPTAINER_BINDPATH", "$ start-shell -c"):
        assert shown in output
    assert re.search(r"^torchmetrics +\d", output, re.MULTILINE)
    assert re.search(r"^torch 2\.13\.0\+cpu in /opt/miniconda3/envs/pytorch/", output, re.MULTILINE)


def test_the_demo_writes_no_escape_codes_into_a_file(demo):
    """Escape codes are only written to terminals."""
    assert "\x1b" not in demo.stdout + demo.stderr


def test_the_demo_writes_only_to_its_folders(demo):
    """Everything that the demo creates is in ignored folders."""
    status = printed(["git", "status", "--porcelain", "--ignored"], cwd=CHECKOUT)
    ignored = {line.split()[1] for line in status.splitlines() if line.startswith("!!")}
    caches = {path for path in ignored if "cache" in path or path in (".hypothesis/",)}
    # build/ and dist/ are of `make check` and `make release`, which may have been before
    assert ignored - caches <= {".venv/", ".demo/", "build/", "dist/"}


def test_the_images_torch_computes_with_added_packages(demo):
    """
    S002-46, S001-08: torch is in the image, torchmetrics in /user-software, seen by plain `singularity exec`.

    A step of gradient descent with the image's torch, measured with torchmetrics from user software.
    """
    (CHECKOUT / ".demo" / "work" / "step.py").write_text(
        "import importlib.util, torch, torchmetrics\n"
        "lightning = importlib.util.find_spec('pytorch_lightning')\n"
        "print(torch.__file__, torchmetrics.__file__, lightning.origin)\n"
        "w = torch.zeros(3, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([w], lr=0.5)\n"
        "((w - 1) ** 2).sum().backward()\n"
        "optimizer.step()\n"
        "print(float(torchmetrics.functional.mean_squared_error(w.detach(), torch.ones(3))))\n"
    )
    torch, *additions, error = by_hand("singularity exec $SIF python .demo/work/step.py").split()
    assert torch.startswith("/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages/torch/")
    assert len(additions) == 2
    for file in additions:
        assert file.startswith("/user-software/venv/pytorch/lib/python3.11/site-packages/")
    assert error == "0.0"


def test_nothing_of_cuda_was_fetched(demo):
    """No CUDA package, and the SquashFS file is smaller than 60 MB."""
    root = Path(by_hand("echo $CONTAINERROOT"))
    packages = record_of(root)["venv_packages"]
    assert any(line.startswith("torchmetrics==") for line in packages)
    assert not [line for line in packages if re.match(r"nvidia|cuda|triton|torch==", line)]
    assert (root / "user-software.squashfs").stat().st_size < 60e6
    assert "nvidia" not in by_hand("list-packages")


def test_a_user_can_continue_by_hand(demo):
    """After `source .demo/env.sh` module, eb and ebsif are ready, and the demo's modules are on MODULEPATH."""
    assert "This is EasyBuild" in by_hand("eb --version")
    assert re.match(r"ebsif \d", by_hand("ebsif --version"))
    doctor = by_hand("ebsif doctor")
    assert "error: " not in doctor
    assert "container runtime" in doctor
    assert MODULE in by_hand("module --terse avail PyTorch 2>&1")


def test_eb_finds_the_easyconfigs_of_the_installed_project(demo):
    """After `pip install` EasyBuild finds easyconfigs and easyblocks."""
    found = by_hand("cd /; eb --search-short exampleVenv 2>&1")
    assert "PyTorch-2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121.eb" in found
    assert "ContainerVenv" in by_hand("cd /; eb --list-easyblocks 2>&1")


LAUNCHER = """
import subprocess, sys
def main():
    sys.exit(subprocess.run([sys.executable, *sys.argv[2:]]).returncode)
"""


def test_launchers_in_a_users_environment(demo, tmp_path):
    """G-02: in an active environment, torchrun and an installed launcher start its Python, also nested."""
    make_wheel(tmp_path, "accelerate", module_text=LAUNCHER, scripts={"accelerate": "accelerate:main"})
    (tmp_path / "rank.py").write_text(
        "import os, sys, accelerate\n"
        "sys.stdout.write(f'{os.environ[\"RANK\"]}|{sys.prefix}|{accelerate.__file__}\\n')\n"
    )
    (tmp_path / "nested.py").write_text(
        "import os; os.execvp('torchrun', ['torchrun', '--standalone', '--nproc-per-node=2', 'rank.py'])\n"
    )
    output = by_hand(f"""
        cd {tmp_path} && make-venv 'my env' && source 'my env/bin/activate' || exit
        pip install --quiet --no-index --find-links . accelerate
        # one program stands for all; a start of PyTorch takes seconds
        cmp 'my env'/host-bin/{{torchrun,accelerate}} && [[ $(type -P torchrun) == */host-bin/torchrun ]] || exit
        accelerate launch nested.py
        singularity exec $SIF torchrun rank.py
    """)
    seen = f"|{tmp_path}/my env|{tmp_path}/my env/lib/python3.11/site-packages/accelerate.py"
    assert sorted(output.splitlines()) == [f"0{seen}"] * 2 + [f"1{seen}"]
