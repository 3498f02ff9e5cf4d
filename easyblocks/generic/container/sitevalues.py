##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Values that parameters of easyconfigs and fields of site profiles share: ways to activate Python in an image, kinds of
GPU, places of caches, striping on Lustre. Also what containers don't get of the host's variables, and the names of the
container runtimes.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import os
import re
import shutil
from typing import List, NamedTuple, Optional, Tuple

from .values import variable_problem

# --- how Python is activated in an image (parameter 'init'); this determines what the module has to add

INIT_IMAGE = 'image'
INIT_CONDA_INJECTED = 'conda-injected'
INIT_CONDA_MANUAL = 'conda-manual'
INIT_VENV_IN_IMAGE = 'venv-in-image'
INIT_NONE = 'none'
INIT_KINDS = (INIT_IMAGE, INIT_CONDA_INJECTED, INIT_CONDA_MANUAL, INIT_VENV_IN_IMAGE, INIT_NONE)
INIT_CONDA = (INIT_CONDA_INJECTED, INIT_CONDA_MANUAL)

# Prefix of the Conda installation in an image, unless the easyconfig names another.
CONDA_ROOT = '/opt/miniconda3'

# --- GPUs

# The GPUs that a rank sees: its own, or all GPUs of the node.
GPU_OWN = 'local_rank'
GPU_ALL = 'all'
GPU_VISIBILITY = (GPU_OWN, GPU_ALL)


class GpuKind(NamedTuple):
    """What differs between kinds of GPU, whose software has the kind's name."""

    # how people write the name
    title: str
    # what begins the local labels of versions that are built for it: 2.7.1+cu126
    label: str
    # option of the runtime
    option: str
    # device that a node with such GPUs has
    device: str
    # file with the version of the driver, and a pattern for that
    driver: Tuple[str, str]
    # library through which Cray MPICH accesses GPU memory
    mpi_library: str
    # program that shows the state of the GPUs
    tool: str
    # library with which GPUs communicate
    collectives: str
    # compiler, and where it is if it isn't on PATH
    compiler: Tuple[str, str]
    # default: frameworks for CUDA pick their device themselves, and copy to devices of other ranks
    visibility: str
    # variable that selects GPUs
    variable: str
    # variable that selects among the GPUs that the first variable leaves; may be empty
    among: str


GPU_KINDS = {
    'rocm': GpuKind(
        title='ROCm', label='rocm', option='--rocm', device='/dev/kfd',
        driver=('/sys/module/amdgpu/version', r'([\d.]+)'), mpi_library='libmpi_gtl_hsa.so', tool='rocm-smi',
        collectives='RCCL', compiler=('hipcc', '/opt/rocm/bin/hipcc'), visibility=GPU_OWN,
        variable='ROCR_VISIBLE_DEVICES', among='HIP_VISIBLE_DEVICES'),
    'cuda': GpuKind(
        title='CUDA', label='cu', option='--nv', device='/dev/nvidiactl',
        driver=('/proc/driver/nvidia/version', r'Kernel Module\D*([\d.]+)'), mpi_library='libmpi_gtl_cuda.so',
        tool='nvidia-smi', collectives='NCCL', compiler=('nvcc', '/usr/local/cuda/bin/nvcc'), visibility=GPU_ALL,
        variable='CUDA_VISIBLE_DEVICES', among=''),
}

# --- caches of libraries

# Directories on every node, unless the site names others.
NODE = ['/tmp']

PLACE = re.compile(r'(project|(job|step|project)(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+)\Z')
TEMPLATE = re.compile(r'(?:[A-Za-z0-9_.+@/-]|\$\{[A-Za-z0-9_]+\})+\Z')
VARIABLES = re.compile(r'\$\{(\w+)\}')


class Cache(NamedTuple):
    """The cache of a library."""

    # as in the parameter 'cache_variables'
    place: str
    # the kind of GPU that it is for; None: any, or none
    gpu: Optional[str]
    # variables with the same effect: if users set one of these, the module leaves both alone
    others: Tuple[str, ...]


# The place by the variable that libraries read. What is compiled for this node goes to the node: one directory per job,
# or per job step, because some libraries mark a running compilation with a file. That of a killed process would make
# the next step wait forever, and parallel file systems lack locks (LUMI AI Guide). Project storage has what is
# downloaded; it has the names that the libraries use below XDG_CACHE_HOME. Sources: the libraries' documentation;
# torch/utils/cpp_extension.py (FileBaton); MIOpen/src/binary_cache.cpp.
CACHES = {
    'AMD_COMGR_CACHE_DIR': Cache('job/comgr', 'rocm', ()),
    'CUDA_CACHE_PATH': Cache('job/cuda', 'cuda', ()),
    'CUPY_CACHE_DIR': Cache('job/cupy', None, ()),
    'HF_HOME': Cache('project/huggingface', None, ()),
    'MIOPEN_CUSTOM_CACHE_DIR': Cache('step/miopen', 'rocm', ()),
    'MIOPEN_USER_DB_PATH': Cache('step/miopen', 'rocm', ()),
    'MPLCONFIGDIR': Cache('job/matplotlib', None, ()),
    'NUMBA_CACHE_DIR': Cache('job/numba', None, ()),
    'TORCHINDUCTOR_CACHE_DIR': Cache('job/torchinductor', None, ()),
    'TORCH_EXTENSIONS_DIR': Cache('step/torch_extensions', None, ()),
    'TORCH_HOME': Cache('project/torch', None, ()),
    'TRITON_CACHE_DIR': Cache('job/triton', None, ('TRITON_HOME',)),
    'VLLM_CACHE_ROOT': Cache('project/vllm', None, ()),
    'WANDB_CACHE_DIR': Cache('project/wandb', None, ()),
    'WANDB_DATA_DIR': Cache('project/wandb-data', None, ()),
    'XDG_CACHE_HOME': Cache('project', None, ()),
}


def template_problem(template: str) -> Optional[str]:
    """Return why a text can't be a directory for caches, or None if it can."""
    if not TEMPLATE.match(template) or not template.startswith(('/', '$')) or any(
            variable_problem(name) for name in VARIABLES.findall(template)):
        return "should be a full path (letters, digits and _ . + @ - /), with variables as ${NAME}"
    return None


def place_problem(place: str) -> Optional[str]:
    """Return why a text can't be the place of a cache, or None if it can."""
    return None if PLACE.match(place) else "should be job/NAME, step/NAME or project/NAME"


# --- large files on Lustre: spread over several servers before they are written, because thousands of nodes read them

# Options of `lfs setstripe`. Files that several processes read should have more than one stripe, of 1 to 4 MB (LUMI's
# documentation, "Lustre"); one stripe delivers 161 MB/s there (LUMI AI Guide, chapter 4).
STRIPING = ['-c', '8', '-S', '4M']

# The program of an installation that uses the options.
MAKE_STRIPED = os.path.join('share', 'ebsif', 'make-striped')

# --- variables of the host that containers don't get; APPTAINERENV_... passes one on purpose

# Files with constraints for pip and uv. Installations and modules have their own, which pip would add to those of the
# image (NVIDIA's images set PIP_CONSTRAINT).
CONSTRAINT_VARIABLES = ('PIP_BUILD_CONSTRAINT', 'PIP_CONSTRAINT', 'UV_BUILD_CONSTRAINT', 'UV_CONSTRAINT', 'UV_OVERRIDE')

# Which containers: those of an installation, not even from a module; also those that commands of a module start; all.
AT_INSTALLATION, OF_COMMANDS, ALWAYS = range(3)
KEPT_OUT = dict(dict.fromkeys(CONSTRAINT_VARIABLES, AT_INSTALLATION), **{
    # where Python, the loader (ld.so(8)) and the shell find code to start with
    'PYTHONHOME': ALWAYS,
    'VIRTUAL_ENV': OF_COMMANDS, 'PYTHONPATH': OF_COMMANDS, 'PYTHONUSERBASE': OF_COMMANDS,
    'PYTHONSTARTUP': OF_COMMANDS, 'LD_PRELOAD': OF_COMMANDS, 'LD_AUDIT': OF_COMMANDS, 'BASH_ENV': OF_COMMANDS,
    'ENV': OF_COMMANDS,
    # what a shell does with a script (bash(1))
    'IFS': AT_INSTALLATION, 'CDPATH': AT_INSTALLATION, 'GLOBIGNORE': AT_INSTALLATION, 'SHELLOPTS': AT_INSTALLATION,
    'BASHOPTS': AT_INSTALLATION, 'PS4': AT_INSTALLATION,
    # what pip installs, and where
    'PIP_TARGET': AT_INSTALLATION, 'PIP_PREFIX': AT_INSTALLATION, 'PIP_ROOT': AT_INSTALLATION,
    'PIP_USER': AT_INSTALLATION, 'PIP_PYTHON': AT_INSTALLATION, 'PIP_DRY_RUN': AT_INSTALLATION,
    'PIP_FORCE_REINSTALL': AT_INSTALLATION, 'PIP_IGNORE_INSTALLED': AT_INSTALLATION, 'PIP_NO_DEPS': AT_INSTALLATION,
    'PIP_REQUIREMENT': AT_INSTALLATION, 'PIP_UPGRADE': AT_INSTALLATION,
})
# of an installation, with functions of bash
KEPT_OUT_PREFIXES = ('PYTHON', 'CONDA', 'VIRTUAL_ENV', 'BASH_FUNC_')


def kept_out(containers: int) -> List[str]:
    """Return the names of the variables that these containers don't get."""
    return [name for name, least in KEPT_OUT.items() if least >= containers]


# --- MPI on a node

# For UCX, by which Open MPI and MPICH send messages on a node, where each container has a user namespace of its own (a
# runtime without setuid): ranks in different containers can neither open the files of each other in /proc, nor read
# the memory of each other. UCX before 1.16 tries both, and aborts (openucx/ucx, pull request 9213).
APART = {'UCX_POSIX_USE_PROC_LINK': 'n', 'UCX_TLS': '^cma'}

# --- the container runtimes

# The programs; the first one that is found is used.
RUNTIMES = ('apptainer', 'singularity')

# SingularityCE reads only the first spelling. Apptainer reads both and warns if their values differ, so both are set to
# the same value.
RUNTIME_PREFIXES = ('SINGULARITY', 'APPTAINER')


def find_runtime() -> Optional[str]:
    """Return the path of the runtime on PATH, None if there is none."""
    return next(filter(None, map(shutil.which, RUNTIMES)), None)


def runtime_name() -> str:
    """Return the name of the runtime on PATH, for commands that messages advise."""
    return os.path.basename(find_runtime() or RUNTIMES[0])
