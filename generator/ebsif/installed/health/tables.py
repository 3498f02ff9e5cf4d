"""What the checks compare with: versions of drivers, names of packages and libraries, each with its source."""

import re

# The oldest NVIDIA driver for programs of a major version of CUDA; newer drivers work as well.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_CUDA_DRIVER = {11: 450, 12: 525, 13: 580}

# The oldest and newest ROCm that AMD supports with a driver. A site's `driver_rocm` comes first.
# The compatibility matrix in https://github.com/ROCm/amdgpu-docs; earlier drivers are older than the images of today.
ROCM_OF_DRIVER = {"30.30": ("6.3", "7.2")}

# Packages of CUDA: NVIDIA's wheels (nvidia-nccl-cu12), and those of other projects that name it (cupy-cuda12x).
CUDA_PACKAGE = re.compile(r"nvidia-[a-z0-9-]+-cu\d+\Z|cupy-cuda\d+x?\Z|cuda-python\Z|nvidia-cuda-\w+")
# Packages of ROCm: AMD's builds of these have names of their own.
ROCM_PACKAGE = re.compile(r"cupy-rocm[\d-]+\Z|pytorch-triton-rocm\Z|amdsmi\Z|jax-rocm\d+-(plugin|pjrt)\Z")

# Packages to import if the image has them, by name; the others are imported if a person installed them.
KEY_PACKAGES = {"torch": "torch", "mpi4py": "mpi4py", "numpy": "numpy", "jax": "jax", "tensorflow": "tensorflow"}
# They don't need to be imported to know that they work, and take long or open devices.
NO_IMPORT = re.compile(r"(pip|setuptools|wheel|nvidia-.*|.*-stubs|types-.*)\Z")

# What MPI libraries call themselves: those with the ABI of MPICH (https://www.mpich.org/abi/), and Open MPI.
MPICH_LIBRARY = re.compile(r"MPICH|MVAPICH|Intel\(R\) MPI|CRAY", re.IGNORECASE)
OPENMPI_LIBRARY = re.compile(r"Open MPI", re.IGNORECASE)

# Where a moved library may be now.
LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib", "/lib64", "/usr/local/lib", "/usr/local/lib64", "/usr/lib/*-linux-gnu",
                   "/opt/*/lib", "/opt/*/lib64", "/opt/*/*/*/lib64", "/opt/*/*/lib64")
