##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The parts of a module as values: what its settings (settings.py) and its help (modulefile.py) need of an easyconfig.

spec.py makes them.
"""
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Union


class ImageFile(NamedTuple):
    """The image, and where the site may have it."""

    name: str
    kind: str  # own, central or reference
    dirs: Sequence[str]  # of the site; relative ones are below `root`
    root: str
    root_variable: str  # of the environment; its directory comes before `root`
    striping: Sequence[str]  # options of lfs-setstripe(1)


class ModuleBinds(NamedTuple):
    """Binds: each line has one, or several."""

    lines: Sequence[str]
    file: Optional[str]  # with more lines, on the node
    file_default: Sequence[str]  # if there is no such file


class ModuleEnvironment(NamedTuple):
    """The variables of each container of the module."""

    start: Mapping[str, str]  # set whenever one starts
    start_files: Mapping[str, str]  # the same, if there is this file
    own: Mapping[str, str]  # of the easyconfig
    network: Mapping[str, str]  # the same, on the host, too
    unset: Sequence[str]
    search_path: Sequence[str]  # directories that come before the image's in PATH


class ModuleCaches(NamedTuple):
    """Where libraries keep their caches."""

    places: Mapping[str, str]  # by variable, relative to the directory of a job, a step or a project
    node: Sequence[str]  # directories that may be used, with variables
    project: Sequence[str]


class Gpu(NamedTuple):
    """How the module uses GPUs."""

    kind: str
    has_option: bool  # of the runtime
    mpi_library: Optional[str]
    visibility: Optional[str]  # of GPUs to ranks, unless as usual for the kind


class ModuleCommands(NamedTuple):
    """What the commands of the module do."""

    names: Sequence[str]
    own_modules: Optional[str]  # the variable with the image's own modules
    entry_point: Optional[str]
    loads: bool  # they load the module by themselves
    activates: bool  # they run `$WITH_CONDA` in the container first


class ModuleParts(NamedTuple):
    """All that the module of an easyconfig decides from, and tells people."""

    suffix: str  # the name of the software in SIF<NAME>
    aliases: Sequence[str]
    image: ImageFile
    binds: ModuleBinds
    environment: ModuleEnvironment
    caches: ModuleCaches
    commands: ModuleCommands
    has_host_programs: bool
    gpu: Optional[Gpu]
    scheduler: Optional[str]
    one_container: str
    venv: str  # its path in the container; empty if there is no user software
    masked_paths: Union[List[str], Dict[str, Optional[str]]]
    has_manual_conda: bool  # people activate the image's Conda environment
    warnings: Sequence[str]
    support_level: Optional[str]
