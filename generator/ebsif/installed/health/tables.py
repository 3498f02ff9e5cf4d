"""What the checks compare with: versions of drivers, names of packages and libraries, each with its source."""

import re

# The oldest NVIDIA driver for programs of a major version of CUDA; newer drivers work as well.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_CUDA_DRIVER = {11: 450, 12: 525, 13: 580}

# The oldest and newest ROCm that AMD supports with a driver. A site's `driver_rocm` comes first.
# The compatibility matrix in https://github.com/ROCm/amdgpu-docs; earlier drivers are older than the images of today.
ROCM_OF_DRIVER = {"30.30": ("6.3", "7.2")}

# Packages to import if the image has them, by name; the others are imported if a person installed them.
KEY_PACKAGES = {"torch": "torch", "mpi4py": "mpi4py", "numpy": "numpy", "jax": "jax", "tensorflow": "tensorflow"}
# What MPI libraries call themselves: those with the ABI of MPICH (https://www.mpich.org/abi/), and Open MPI.
MPICH_LIBRARY = re.compile(r"MPICH|MVAPICH|Intel\(R\) MPI|CRAY", re.IGNORECASE)
OPENMPI_LIBRARY = re.compile(r"Open MPI", re.IGNORECASE)

# Where a moved library may be now.
LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib", "/lib64", "/usr/local/lib", "/usr/local/lib64", "/usr/lib/*-linux-gnu",
                   "/opt/*/lib", "/opt/*/lib64", "/opt/*/*/*/lib64", "/opt/*/*/lib64")
