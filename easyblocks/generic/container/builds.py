##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What the build of a package lacks, from its output. A copy of this is in user software, as ebsif_builds.py, where the
command pip says the same.
"""
import re

COMPILER = r"(?:\S*/)?(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|gfortran)(?:-\d+)?"

# (pattern, what is missing); \1 is the group of the match
TOOLS = (
    (r"CUDA_HOME environment variable is not set|nvcc was not found|No CMAKE_CUDA_COMPILER could be found"
     r"|No such file or directory: '[^']*\bnvcc'",
     "the CUDA compiler (nvcc): the container has none, or CUDA_HOME doesn't name its directory"),
    (r"ROCM_HOME environment variable is not set|No CMAKE_HIP_COMPILER could be found"
     r"|No such file or directory: '[^']*\bhipcc'",
     "the ROCm compiler (hipcc): the container has none, or ROCM_HOME doesn't name its directory"),
    (r"(?:No such file or directory: |unable to execute |[Cc]ommand )'(%s)'(?!.* failed with exit)" % COMPILER,
     "the compiler \\1, which the container doesn't have"),
    (r"\bsh: (?:(?:line )?\d+: )?(%s): (?:command )?not found" % COMPILER,
     "the compiler \\1, which the container doesn't have"),
    (r"No CMAKE_(?:C|CXX|Fortran)_COMPILER could be found|Unknown compiler\(s\): ",
     "a compiler, which the container doesn't have"),
    (r"can't find Rust compiler|Cargo, the Rust package manager, is not installed",
     "the compiler of Rust (cargo), which the container doesn't have"),
)


def missing_tool(output: str) -> str:
    """Return which compiler a build needs and what to do, if its output says that it has none; else empty."""
    for pattern, meaning in TOOLS:
        found = re.search(pattern, output)
        if found:
            return ("a build needs %s. Use a wheel of the package, an image that has the compiler, or add it where the "
                    "image has apt (such as ebsif extend ... --apt g++)" % found.expand(meaning))
    return ''


def missing_module(output: str) -> str:
    """Return the name of the module that the build of a package can't import; empty if it fails for another reason."""
    found = re.search(r"ModuleNotFoundError: No module named '(\w+)", output)
    return found.group(1) if found else ''
