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
# They don't need to be imported to know that they work, and take long or open devices.
NO_IMPORT = re.compile(r"(pip|setuptools|wheel|nvidia-.*|.*-stubs|types-.*)\Z")

# Imports that fail because there is no GPU: the libraries of NVIDIA's driver, which come from the host (those of ROCm
# are in the image), and what CUDA, ROCm, torch and Triton say without a device.
NO_GPU = {
    "cuda": re.compile(r"lib(cuda|nvidia-ml|nvidia-ptxjitcompiler|nvcuvid|nvidia-encode)\.so|No CUDA GPUs are "
                       r"available|no NVIDIA driver|no CUDA-capable device|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|"
                       r"0 active drivers|NVML Shared Library Not Found", re.IGNORECASE),
    "rocm": re.compile(r"No HIP GPUs are available|no ROCm-capable device|hipErrorNoDevice|Unable to open \S*kfd|"
                       r"0 active drivers", re.IGNORECASE),
}

# What MPI libraries call themselves: those with the ABI of MPICH (https://www.mpich.org/abi/), and Open MPI.
MPICH_LIBRARY = re.compile(r"MPICH|MVAPICH|Intel\(R\) MPI|CRAY", re.IGNORECASE)
OPENMPI_LIBRARY = re.compile(r"Open MPI", re.IGNORECASE)

# Where a moved library may be now.
LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib", "/lib64", "/usr/local/lib", "/usr/local/lib64", "/usr/lib/*-linux-gnu",
                   "/opt/*/lib", "/opt/*/lib64", "/opt/*/*/*/lib64", "/opt/*/*/lib64")
