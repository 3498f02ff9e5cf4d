##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Specification of a container module, from the easyconfig alone: image, environment, scripts.
"""
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from easybuild.framework.easyconfig.easyconfig import EasyConfig
from easybuild.tools.filetools import convert_name, read_file

from .sitevalues import CACHES, CONDA_ROOT, INIT_CONDA, INIT_CONDA_INJECTED, INIT_CONDA_MANUAL, INIT_NONE, MAKE_STRIPED
from .host.programs import INSTALLED_WRAPPERS, WRAPPER, wrapper_names
from .image.source import ImageSource, source_name
from .moduleparts import ModuleBinds, ModuleCaches, ModuleCommands, ModuleEnvironment, Gpu, ImageFile, ModuleParts
from .parameters import CONTAINER_PARAMETERS, VENV_PARAMETERS, WRAPPERS_ALL, Compared, check_types, check_values
from .parameters import default_name
from .schedulers import SCHEDULERS
from .values import USER_SOFTWARE, Setting, current_root, parse_binds, root_parts, with_value

# Constraints that keep pip and uv from replacing packages of the image: relative to the installation, in the container.
CONSTRAINTS = os.path.join('runscripts', 'image-constraints.txt')
# the same for uv, which takes the packages of a virtual environment only: it leaves these out
OVERRIDES = os.path.join('runscripts', 'image-overrides.txt')

# Script that the runtime sources when a container starts.
SET_ENVIRONMENT = os.path.join('share', 'ebsif', 'set-environment.sh')

# Takes the host's modules out of the environment, for images with modules of their own.
WITHOUT_HOST_MODULES = 'share/ebsif/without-host-modules.bash'

# Programs by which the runtime mounts images where it isn't setuid; each has a directory, which the module puts on PATH
# on nodes with the program. Without fuse2fs: what is written into an ext3 image could be lost if TERM didn't end it.
MOUNTER = 'share/ebsif/mounter'
MOUNTERS = ('fuse-overlayfs', 'squashfuse_ll')

# The directory for `pip install --user`. Nothing can be created there, so pip fails whichever Python and version it is;
# many install in ~/.local otherwise, where Python doesn't look for packages (PYTHONNOUSERSITE). pip's error names it.
NO_USER_BASE = '/dev/null/use-make-venv-instead-of-pip-install--user'


class ContainerSpec:
    """
    The specification of a container module. It is immutable; later steps of EasyBuild create a new one, with more
    templates resolved. The values were checked (`check`).

    Attributes are all parameters of the easyblock, and some of EasyBuild's, with the easyconfig's values.
    """

    PARAMETERS = CONTAINER_PARAMETERS
    HAS_VENV = False
    SCRIPTS = ['bin/start-shell', 'bin/with-module', 'share/ebsif/container.sh', 'share/ebsif/common.bash',
               'share/ebsif/run.bash', SET_ENVIRONMENT, 'runscripts/stage-software', 'runscripts/find-caches',
               'runscripts/get-master', 'runscripts/show-help'] + [
                   'runscripts/schedulers/%s.bash' % kind for kind in sorted(SCHEDULERS)]
    PYTHON_SCRIPTS = ['interpreter/python', 'bin/list-packages', 'bin/make-venv', 'bin/extend-venv-activate',
                      'share/ebsif/make-venv.py', 'share/ebsif/image-pip.py', 'share/ebsif/pip',
                      'share/ebsif/image-programs.py', 'share/ebsif/venv-wrapper', 'share/ebsif/activate.sh',
                      'runscripts/start-kernel.py', 'runscripts/conda-python-simple', 'runscripts/enter.bash',
                      'runscripts/init-conda-venv',
                      'runscripts/conda-python-distributed', 'runscripts/rank.bash', 'runscripts/list-packages',
                      'runscripts/list-packages.py', 'runscripts/record-run.py', 'runscripts/start-ranks.py',
                      'runscripts/start-ray.py', 'runscripts/start-server.py', 'runscripts/job_processes.py',
                      'runscripts/job.bash', 'runscripts/slurm-rank', 'runscripts/flux-rank']
    # installed only under the names in 'script_names'
    NAMED_SCRIPTS = ['bin/container-exec', 'bin/container-run', 'bin/container-runtime']
    # variables that 'container_env' can't set, and why
    MODULE_DECIDES = {
        'PREPEND_PATH': "it names the directories of run scripts and Python environments; APPEND_PATH can name more"}

    # variables whenever a container starts, for paths of files: unless the caller has set the variable, and if the file
    # is there
    START_FILES: Dict[str, str] = {}

    # of EasyBuild
    name: str
    version: str
    sources: List[object]
    hidden, modloadmsg = False, ''

    # the parameters: container/parameters.py says what they are
    aliases: List[str]
    bind_file: Optional[str]
    bind_file_default: List[str]
    binds: List[str]
    cache_variables: Dict[str, Optional[str]]
    conda_env: str
    conflicts: List[str]
    container_env: Dict[str, Setting]
    definition_files: List[str]
    entry_point: Optional[str]
    gpu: Optional[str]
    gpu_mpi_library: Optional[str]
    gpu_option: bool
    gpu_visibility: Optional[str]
    host_libraries: Dict[str, List[str]]
    host_programs: Dict[str, List[str]]
    image: str
    image_dirs: List[str]
    image_packages: Dict[str, str]
    image_root: Optional[str]
    image_source: Optional[str]
    init: str
    listed_packages: str
    lustre_striping: List[str]
    masked_paths: Union[List[str], Dict[str, Optional[str]]]
    network_env: Dict[str, Setting]
    node_caches: List[str]
    one_container: str
    own_modules: Optional[str]
    project_caches: List[str]
    scheduler: Optional[str]
    script_names: Dict[str, str]
    signature_keys: List[str]
    support_level: Optional[str]
    system_packages: Union[List[str], Dict[str, List[str]]]
    warnings: List[str]
    wrappers: Union[str, List[str]]
    wrappers_load: bool

    # path of the venv in the container; empty if there is no user software
    venv = ''
    is_complete = False

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Compute what follows from the values of parameters, or their default values, and of name, version ..."""
        vars(self).update({name: parameter.default for name, parameter in self.PARAMETERS.items()}, **values)
        self.conda_env = self.conda_env or default_name(self.name)
        # whether modules of the image provide its Python
        self.has_python = self.init != INIT_NONE
        # file name of the image
        self.image_name = os.path.basename(source_name(self.sources[0]) or '') if self.sources else \
            '%s-%s.sif' % (self.name, self.version)
        # where the image can be fetched from
        self.source = ImageSource.parse(self.image_source) if self.image_source else None
        # the warnings, and what a hidden module says when it is loaded: why it is archived; ebsif 0.2.0 wrote the text
        # as both
        lines = self.modloadmsg.splitlines() if self.hidden and self.modloadmsg else []
        self.all_warnings = list(self.warnings) + [line for line in lines if line not in self.warnings]
        self.set_environment()
        self.set_commands()
        self.parts = self.module_parts()
        self.is_complete = True

    def set_environment(self) -> None:
        """Set the paths and variables of the container."""
        # the Conda environment in the image, and the Conda installation
        self.conda_prefix = os.path.join(CONDA_ROOT, 'envs', self.conda_env)
        self.conda_root = os.path.dirname(os.path.dirname(self.conda_prefix))
        # what activates the image's environment: directories to prepend to PATH in the container, and other variables
        self.image_search_path: List[str] = []
        self.image_environment: Dict[str, str] = {}
        if self.init in INIT_CONDA:
            self.image_search_path = [os.path.join(self.conda_prefix, 'bin'), os.path.join(self.conda_root, 'condabin')]
            self.image_environment = {
                'CONDA_DEFAULT_ENV': os.path.basename(self.conda_prefix),
                'CONDA_EXE': os.path.join(self.conda_root, 'bin', 'conda'),
                'CONDA_PREFIX': self.conda_prefix,
                'CONDA_PYTHON_EXE': os.path.join(self.conda_root, 'bin', 'python'),
                'CONDA_SHLVL': '1',
            }
        # directories that the module prepends to PATH in the container: the venv comes before the image (if there is no
        # user software, a missing directory does no harm), then programs of SquashFS files that users mount themselves,
        # as in LUMI's guide
        search_path = ['/runscripts']
        if self.venv:
            search_path += [os.path.join(self.venv, 'bin'), os.path.join(USER_SOFTWARE, 'bin')]
        # variables that are set whenever a container starts, unless the easyconfig decides on them; these keep packages
        # in ~/.local out of the container, and pip out of ~/.local
        start = {'PYTHONNOUSERSITE': '1', 'PIP_USER': '0', 'PYTHONUSERBASE': NO_USER_BASE}
        if self.init == INIT_CONDA_INJECTED:
            search_path += self.image_search_path
            start.update(self.image_environment)
        if self.init != INIT_CONDA_MANUAL:
            # existing job scripts run `$WITH_CONDA`, so it must be a command, but there is nothing left to do
            start.update({'WITH_CONDA': 'true', 'WITH_VENV': 'true', 'WITH_CONDA_VENV': 'true'})
        settings = dict(self.container_env, **self.network_env)
        self.environment = ModuleEnvironment(
            start={name: value for name, value in start.items() if name not in self.container_env},
            start_files=self.START_FILES, own=with_value(self.container_env), network=with_value(self.network_env),
            unset=sorted(name for name, value in settings.items() if value is None),
            search_path=search_path)
        # all variables in the container
        self.container_environment = {**self.environment.start, **self.environment.own}

    def set_commands(self) -> None:
        """Set the scripts and commands of the installation."""
        # commands and run scripts by their path relative to the installation, with the source file of each
        names = self.SCRIPTS + (self.PYTHON_SCRIPTS if self.has_python else [])
        names += ['runscripts/remove-caches'] if self.has_python or self.cache_variables else []
        names += [WITHOUT_HOST_MODULES] if self.own_modules else []
        names += [MAKE_STRIPED] if self.venv else []
        wrappers_of_host = {os.path.join(INSTALLED_WRAPPERS, name): WRAPPER
                            for name in wrapper_names(self.host_programs)}
        mounters = {'share/ebsif/mounters/%s/%s' % (name, name): MOUNTER for name in MOUNTERS}
        self.scripts = dict({name: name for name in names}, **dict(mounters, **wrappers_of_host, **self.script_names))
        self.commands = [os.path.basename(script) for script in self.scripts if script.startswith('bin/')]
        # programs that become commands of the module, and whether all programs of the venv do
        wrappers = [self.wrappers] if isinstance(self.wrappers, str) else self.wrappers
        self.wrapped = [name for name in wrappers if name != WRAPPERS_ALL]
        self.wraps_all = WRAPPERS_ALL in wrappers
        # tests module, image and scripts together
        self.check_command = 'start-shell /runscripts/conda-python-simple --version' if self.has_python else \
            'start-shell -c true'

    def module_parts(self) -> ModuleParts:
        """Return what the module needs of the easyconfig."""
        variable, root = root_parts(self.image_root)
        known = {} if self.init == INIT_NONE else CACHES
        # an image without Python has only the caches of the easyconfig
        places: Dict[str, Optional[str]] = {
            name: cache.place for name, cache in known.items() if cache.gpu in (None, self.gpu)}
        places.update(self.cache_variables)
        has_manual_conda = self.init == INIT_CONDA_MANUAL
        activates = has_manual_conda or self.environment.own.get('WITH_CONDA', 'true') != 'true'
        return ModuleParts(
            # the software name as EasyBuild spells it in variables, always a valid identifier
            suffix=re.sub(r'[^A-Z0-9_]', '_', convert_name(self.name, upper=True)),
            aliases=self.aliases,
            image=ImageFile(self.image_name, self.image, self.image_dirs, root, variable, self.lustre_striping),
            binds=ModuleBinds(self.binds, self.bind_file, self.bind_file_default),
            environment=self.environment,
            caches=ModuleCaches({name: place for name, place in places.items() if place is not None},
                                self.node_caches, self.project_caches),
            commands=ModuleCommands(self.commands, self.own_modules, self.entry_point, loads=self.wrappers_load,
                                    activates=activates),
            has_host_programs=bool(self.host_programs),
            gpu=Gpu(self.gpu, self.gpu_option, self.gpu_mpi_library, self.gpu_visibility) if self.gpu else None,
            scheduler=self.scheduler, one_container=self.one_container, venv=self.venv, masked_paths=self.masked_paths,
            has_manual_conda=has_manual_conda, warnings=self.all_warnings, support_level=self.support_level)

    @classmethod
    def values_in(cls, cfg: EasyConfig) -> Dict[str, object]:
        """Return the current values of an easyconfig from which a specification is made."""
        return {name: cfg[name] for name in list(cls.PARAMETERS) + [
            'name', 'version', 'sources', 'hidden', 'modloadmsg']}

    @classmethod
    def check(cls, values: Mapping[str, Any], tcl_in_lmod: bool = False) -> None:
        """
        Check the values of an easyconfig; the first invalid one raises EasyBuildError.

        ``tcl_in_lmod``: whether Lmod will read a module in Tcl.
        """
        check_types(cls.PARAMETERS, values)
        scripts = [script for script in cls.SCRIPTS + cls.PYTHON_SCRIPTS + cls.NAMED_SCRIPTS
                   if script.startswith(('bin/', 'runscripts/'))]
        compared = Compared(
            has_venv=cls.HAS_VENV, scripts=scripts, module_decides=cls.MODULE_DECIDES, tcl_in_lmod=tcl_in_lmod,
            **{name: values[name] for name in (
                'name', 'bind_file', 'container_env', 'gpu', 'image_dirs', 'image_root')})
        check_values(cls.PARAMETERS, values, compared)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse changes."""
        if self.is_complete:
            raise AttributeError("the specification of a container is immutable: %s" % name)
        super().__setattr__(name, value)

    # --- what depends on the machine

    def central_directories(self) -> List[str]:
        """Return the full paths of 'image_dirs' in the current environment."""
        root = current_root(self.image_root)
        return [os.path.join(root, path) for path in self.image_dirs]

    def current_binds(self) -> Tuple[List[str], List[str]]:
        """Return the required and the optional binds on this machine, with those in 'bind_file'."""
        path, lines = self.bind_file, self.bind_file_default
        if path and os.path.isfile(path) and os.access(path, os.R_OK):
            lines = read_file(path).splitlines()
        return parse_binds(list(self.binds) + list(lines))


class VenvSpec(ContainerSpec):
    """The specification of a container module with user software."""

    PARAMETERS = dict(CONTAINER_PARAMETERS, **VENV_PARAMETERS)
    constraints: List[str]
    keep_packages: List[str]
    requirements: object
    venv_name: str

    HAS_VENV = True
    SCRIPTS = ContainerSpec.SCRIPTS + ['bin/make-squashfs', 'bin/unmake-squashfs', 'share/ebsif/squashfs.bash']
    # keep pip and uv from replacing packages of the image
    START_FILES = {'PIP_CONSTRAINT': '/' + CONSTRAINTS, 'UV_OVERRIDE': '/' + OVERRIDES}
    MODULE_DECIDES = dict(
        ContainerSpec.MODULE_DECIDES, VIRTUAL_ENV="it names the venv of user software; 'venv_name' changes its name")

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Also compute the path of the venv."""
        name = values.get('venv_name') or default_name(values['name'])
        self.venv = os.path.join(USER_SOFTWARE, 'venv', name)
        super().__init__(dict(values, venv_name=name))
