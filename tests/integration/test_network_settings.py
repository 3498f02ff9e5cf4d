"""Settings of a module for network and GPU, in the caller's environment and in the container's."""

import re
import sys
from pathlib import Path

import pytest
from parts import EXCHANGE, TOOLS
from support import Site


@pytest.mark.parametrize("tool", ["Lmod-Lua", "EnvironmentModules-Tcl"])
def test_the_network_variables_of_a_module(tool, tmp_path, base_image):
    """S004-06, S002-60, S001-15: set on load unless the user has set them; unset on unload; MPI knows of the GPU."""
    site = Site(tmp_path, TOOLS[tool](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    library = site.prefix / "libmpi_gtl_cuda.so"
    library.touch()
    easyconfig = site.easyconfig(
        "easyblock = 'ContainerInstall'\nsources = ['example.sif']\n"
        f"image = 'central'\nimage_dirs = ['{site.sources}']\n"
        "init = 'conda-injected'\nconda_env = 'pytorch'\ngpu = 'cuda'\nscheduler = 'pbs'\n"
        f"gpu_mpi_library = '{library}'\n"
        "network_env = {'NCCL_NET': 'AWS Libfabric', 'NCCL_DEBUG': 'WARN', 'CUDA_VISIBLE_DEVICES': None,\n"
        "               'NCCL_NET_GDR_LEVEL': None}\n"
        "container_env = {'PYTHONNOUSERSITE': None, 'WITH_CONDA': None}\n"
    )
    site.eb(easyconfig)
    names = "NCCL_NET NCCL_DEBUG MPICH_GPU_SUPPORT_ENABLED APPTAINERENV_LD_PRELOAD"
    script = f"export NCCL_DEBUG=INFO\nmodule load Example\nprintenv {names}\nmodule unload Example\nprintenv {names}"
    lines = site.bash(script, check=False).stdout.splitlines()
    assert lines == ["AWS Libfabric", "INFO", "1", str(library), "INFO"]
    data = (site.root() / "share/ebsif/module.conf").read_text().splitlines()
    assert [line for line in data if line.startswith(("start_unset", "scheduler", "rank_", "default"))] == [
        "start_unset NCCL_NET_GDR_LEVEL",
        "start_unset PYTHONNOUSERSITE",
        "start_unset WITH_CONDA",
        "default NCCL_DEBUG WARN",
        "default NCCL_NET AWS Libfabric",
        "scheduler pbs",
        "rank_gpu nvidia-smi all CUDA_VISIBLE_DEVICES",
        "rank_unset CUDA_VISIBLE_DEVICES",
    ]
    check_removed_variables(site)
    # MPI does not start if it should use GPUs but lacks the library for it
    library.unlink()
    lines = site.bash(f"module load Example\nprintenv {names}", check=False).stdout.splitlines()
    assert lines == ["AWS Libfabric", "WARN"]


def check_removed_variables(site):
    """
    L-02, S002-60: variables set to None are in no process of the container, however it's started, even if the image or
    the caller sets them; they aren't empty either. Variables for the container and others of the caller stay.
    """
    taken = ["NCCL_NET_GDR_LEVEL", "PYTHONNOUSERSITE", "WITH_CONDA"]
    show = "env | grep -E '^(NCCL_|WITH_CONDA=|PYTHONNOUSERSITE|OWN_|CUDA_VISIBLE)' | sort"
    doors = [
        f'singularity exec $SIF sh -c "{show}"',
        f'start-shell -c "{show}"',
        f'singularity shell $SIF <<<"{show}"',
        "singularity exec $SIF conda-python-distributed -c "
        "\"import os, subprocess; subprocess.run(os.environ['SHOW'], shell=True)\"",
    ]
    inherited = "export NCCL_NET_GDR_LEVEL=PHB PYTHONNOUSERSITE=1 OWN_TEXT=$'two\nlines' OWN=NCCL_NET_GDR_LEVEL="
    for setting, more in (
        (inherited, ["OWN_TEXT=two"]),
        ("true", []),
        ("export APPTAINERENV_NCCL_NET_GDR_LEVEL=3 SINGULARITYENV_NCCL_NET_GDR_LEVEL=3", ["NCCL_NET_GDR_LEVEL=3"]),
    ):
        # an old script sets it after loading the module
        ways = [f"{door}; echo end of door" for door in doors]
        script = "\n".join([f"{setting}; module load Example", setting, *ways])
        *shown_by, rest = site.bash(script, SHOW=show).stdout.split("end of door\n")
        assert (len(shown_by), rest) == (len(doors), "")
        for door, text in zip(doors, shown_by):
            lines = text.splitlines()
            assert [line for line in lines if not line.startswith(("NCCL_NET=", "NCCL_DEBUG="))] == more, door
            assert "NCCL_NET=AWS Libfabric" in lines
            assert more == ["NCCL_NET_GDR_LEVEL=3"] or not any(name in "\n".join(lines) for name in taken), lines


def test_no_gpu_settings_without_a_gpu(installed_once):
    """S003-01: no bind, option or variable of ROCm or CUDA."""
    root = installed_once.root(installed_once.SQUASHED)
    texts = [
        (root / "share/ebsif/module.conf").read_text(),
        (installed_once.site.modules / f"{installed_once.SQUASHED}.lua").read_text(),
    ]
    names = r"rocm|cuda|nvidia|NCCL|ROCR|HIP_|MIOPEN|GTL"
    for text in texts:
        assert [line for line in text.splitlines() if re.search(names, line, re.I)] == []


def test_mpi_between_containers_without_setuid(installed_once):
    """K-05: MPICH with UCX 1.13 exchanges a large array; with the variables as UCX has them, it aborts."""
    # of the same glibc as the image
    libraries = {f"{name}_BIND": "/usr/lib/x86_64-linux-gnu:/mnt" for name in ("APPTAINER", "SINGULARITY")}
    libraries |= {f"{name}ENV_LD_LIBRARY_PATH": "/mnt" for name in ("APPTAINER", "SINGULARITY")}
    run = f"singularity exec --bind {EXCHANGE} $SIF python3 {EXCHANGE} libmpich.so.12"
    command = f"timeout -s KILL 100 mpiexec.hydra -n 2 {run}"
    done = installed_once.load(installed_once.SQUASHED, command, check=False, **libraries)
    expected = ["rank 0 has 1", "rank 1 has 0"]
    assert [line.split(" with ")[0] for line in sorted(done.stdout.splitlines())] == expected, done
    own = {"UCX_TLS": "all", "UCX_POSIX_USE_PROC_LINK": "y"}

    def says_why_it_fails():
        done = installed_once.load(installed_once.SQUASHED, command, check=False, **libraries, **own)
        assert done.returncode != 0, done
        return "mm_posix.c" in done.stdout + done.stderr

    # mpiexec may end both ranks before it has passed on what the first one said
    assert any(says_why_it_fails() for _ in range(6))
