##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What packages lack when they are built or imported, from what the programs say, and which packages have it.

A copy of this is in user software, as ebsif_missing.py, where the command pip says the same.
"""
import re
from typing import Iterable, List, NamedTuple

COMPILER = r"(?:\S*/)?(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|gfortran)(?:-\d+)?"
# The package of Debian and Ubuntu with compilers for C and C++, and what they need.
COMPILERS = 'g++'

# What a build needs, the packages of Debian and Ubuntu that have it, the kind of GPU it is for.
Tool = NamedTuple('Tool', [('what', str), ('packages', List[str]), ('gpu', str)])

# (pattern, what is missing); \1 is the group of the match. The compilers of GPUs are in no distribution.
TOOLS = (
    (r"CUDA_HOME environment variable is not set|nvcc was not found|No CMAKE_CUDA_COMPILER could be found"
     r"|No such file or directory: '[^']*\bnvcc'",
     Tool("the CUDA compiler (nvcc): the container has none, or CUDA_HOME doesn't name its directory", [], 'cuda')),
    (r"ROCM_HOME environment variable is not set|No CMAKE_HIP_COMPILER could be found"
     r"|No such file or directory: '[^']*\bhipcc'",
     Tool("the ROCm compiler (hipcc): the container has none, or ROCM_HOME doesn't name its directory", [], 'rocm')),
    (r"(?:No such file or directory: |unable to execute |[Cc]ommand )'((?:\S*-)?gfortran(?:-\d+)?)'"
     r"(?!.* failed with exit)|\bsh: (?:(?:line )?\d+: )?(gfortran): (?:command )?not found"
     r"|No CMAKE_Fortran_COMPILER could be found",
     Tool("the compiler gfortran, which the container doesn't have", ['gfortran', COMPILERS], '')),
    (r"(?:No such file or directory: |unable to execute |[Cc]ommand )'(%s)'(?!.* failed with exit)" % COMPILER,
     Tool("the compiler \\1, which the container doesn't have", [COMPILERS], '')),
    (r"\bsh: (?:(?:line )?\d+: )?(%s): (?:command )?not found" % COMPILER,
     Tool("the compiler \\1, which the container doesn't have", [COMPILERS], '')),
    (r"No CMAKE_(?:C|CXX)_COMPILER could be found|Unknown compiler\(s\): ",
     Tool("a compiler, which the container doesn't have", [COMPILERS], '')),
    (r"Unsupported compiler -- at least C\+\+\d+ support is needed",
     Tool("a compiler for C++, and the container has none that works", [COMPILERS], '')),
    (r"\bcrt[1in]\.o'? not found|cannot find crt[1in]\.o",
     Tool("a complete compiler: the container's can't link programs", [COMPILERS], '')),
    (r"can't find Rust compiler|Cargo, the Rust package manager, is not installed",
     Tool("the compiler of Rust (cargo), which the container doesn't have", ['cargo'], '')),
)

# The packages of Debian and Ubuntu with libraries that wheels leave to the system.
LIBRARIES = {
    'libEGL.so.1': 'libegl1', 'libGL.so.1': 'libgl1', 'libGLU.so.1': 'libglu1-mesa', 'libICE.so.6': 'libice6',
    'libOpenGL.so.0': 'libopengl0', 'libSM.so.6': 'libsm6', 'libX11.so.6': 'libx11-6', 'libXcursor.so.1': 'libxcursor1',
    'libXext.so.6': 'libxext6', 'libXfixes.so.3': 'libxfixes3', 'libXi.so.6': 'libxi6', 'libXrandr.so.2': 'libxrandr2',
    'libXrender.so.1': 'libxrender1', 'libcairo.so.2': 'libcairo2', 'libdbus-1.so.3': 'libdbus-1-3',
    'libfontconfig.so.1': 'libfontconfig1', 'libfreetype.so.6': 'libfreetype6', 'libglib-2.0.so.0': 'libglib2.0-0',
    'libgomp.so.1': 'libgomp1', 'libgthread-2.0.so.0': 'libglib2.0-0', 'libmagic.so.1': 'libmagic1',
    'libnuma.so.1': 'libnuma1', 'libportaudio.so.2': 'libportaudio2', 'libsndfile.so.1': 'libsndfile1',
    'libxcb.so.1': 'libxcb1', 'libxkbcommon.so.0': 'libxkbcommon0', 'libzbar.so.0': 'libzbar0',
}

# The packages of pip that have modules which older packages expect in every environment; setuptools 82 has neither.
MODULES = {'pkg_resources': 'setuptools<81', 'distutils': 'setuptools<81'}


def missing_tools(output: str) -> List[Tool]:
    """Return the first tool that a build needs, if its output says that it has none; an empty list otherwise."""
    for pattern, tool in TOOLS:
        found = re.search(pattern, output)
        if found:
            return [tool._replace(what=found.expand(tool.what))]
    return []


def missing_module(output: str) -> str:
    """Return the name of the module that the build of a package can't import; empty if it fails for another reason."""
    found = re.search(r"ModuleNotFoundError: No module named '(\w+)", output)
    return found.group(1) if found else ''


def packages_with(libraries: Iterable[str]) -> List[str]:
    """Return the packages of Debian and Ubuntu that have libraries, as far as they are known."""
    return sorted({LIBRARIES[name] for name in libraries if name in LIBRARIES})


def package_with(module: str) -> str:
    """Return the requirement for the package of pip that has a module; empty if its name isn't known."""
    return MODULES.get(module.partition('.')[0], '')
