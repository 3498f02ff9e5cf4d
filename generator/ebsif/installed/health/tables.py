"""What the checks compare with: versions of drivers, names of packages and libraries, each with its source."""

import re

# The oldest NVIDIA driver for programs of a major version of CUDA; newer drivers work as well.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_CUDA_DRIVER = {11: 450, 12: 525, 13: 580}

# The oldest and newest ROCm that AMD supports with a driver. A site's `driver_rocm` comes first.
# The compatibility matrix in https://github.com/ROCm/amdgpu-docs; earlier drivers are older than the images of today.
ROCM_OF_DRIVER = {"30.30": ("6.3", "7.2")}

# What MPI libraries call themselves: those with the ABI of MPICH (https://www.mpich.org/abi/), and Open MPI.
MPICH_LIBRARY = re.compile(r"MPICH|MVAPICH|Intel\(R\) MPI|CRAY", re.IGNORECASE)
OPENMPI_LIBRARY = re.compile(r"Open MPI", re.IGNORECASE)
# Their files; Open MPI 1 to 5.
MPICH_FILE = re.compile(r"libmpi\.so\.12(\..*)?")
OPENMPI_FILE = re.compile(r"libmpi\.so\.(1|20|40)(\..*)?")

PROVIDER = "libcxi"  # the library of libfabric's provider for Slingshot
PLUGIN = {"rocm": "RCCL", "cuda": "NCCL"}  # what needs a plugin for the network

# Where a moved library may be now.
LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib", "/lib64", "/usr/local/lib", "/usr/local/lib64", "/usr/lib/*-linux-gnu",
                   "/opt/*/lib", "/opt/*/lib64", "/opt/*/*/*/lib64", "/opt/*/*/lib64")
