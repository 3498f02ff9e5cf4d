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
from typing import Any, Dict, List, Optional, Tuple, Union

from easybuild.tools.filetools import convert_name, read_file

from .tables import CONDA_ROOT, INIT_CONDA, INIT_CONDA_INJECTED, INIT_CONDA_MANUAL, INIT_NONE, MAKE_STRIPED
from .image.source import ImageSource, source_name
from .masks import Masks
from .packages import USER_SOFTWARE
from .parameters import CONTAINER_PARAMETERS, VENV_PARAMETERS, WRAPPERS_ALL
from .schedulers import SCHEDULERS
from .system.packages import SystemPackages
from .texts import parse_binds, root_parts

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
    templates resolved.

    Attributes are all parameters of the easyblock, and some of EasyBuild's, with the easyconfig's values.
    """

    PARAMETERS = CONTAINER_PARAMETERS
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
                      'runscripts/job.bash', 'runscripts/slurm-rank', 'runscripts/flux-rank']
    # installed only under the names in 'script_names'
    NAMED_SCRIPTS = ['bin/container-exec', 'bin/container-run', 'bin/container-runtime']
    # variables that 'container_env' can't set, and why
    MODULE_DECIDES = {
        'PREPEND_PATH': "it names the directories of run scripts and Python environments; APPEND_PATH can name more"}

    # of EasyBuild
    name: str
    version: str
    sources: List[Any]
    hidden, modloadmsg = False, ''

    # the parameters: container/parameters.py says what they are
    aliases: List[str]
    bind_file: Optional[str]
    bind_file_default: List[str]
    binds: List[str]
    cache_variables: Dict[str, Optional[str]]
    conda_env: str
    conflicts: List[str]
    container_env: Dict[str, Any]
    definition_files: List[str]
    entry_point: Optional[str]
    gpu: Optional[str]
    gpu_mpi_library: Optional[str]
    gpu_option: bool
    gpu_visibility: Optional[str]
    image: str
    image_dirs: List[str]
    image_packages: Dict[str, str]
    image_root: Optional[str]
    image_source: Optional[str]
    init: str
    library_binds: Dict[str, str]
    listed_packages: str
    lustre_striping: List[str]
    masked_paths: Union[List[str], Dict[str, Optional[str]]]
    network_env: Dict[str, Any]
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

    def __init__(self, values: Dict[str, Any]) -> None:
        """Store the values of parameters, or their default values, and of name, version and sources."""
        defaults = {name: parameter.default for name, parameter in self.PARAMETERS.items()}
        self.__dict__.update(defaults, **values)
        self.__dict__.update(self.derived_defaults())

    @classmethod
    def from_easyconfig(cls, cfg: Any) -> 'ContainerSpec':
        """Create the specification from the current values of an easyconfig."""
        return cls({name: cfg[name] for name in list(cls.PARAMETERS) + [
            'name', 'version', 'sources', 'hidden', 'modloadmsg']})

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse changes."""
        raise AttributeError("the specification of a container is immutable: %s" % name)

    def derived_defaults(self) -> Dict[str, Any]:
        """Values of parameters whose default depends on other parameters."""
        return {'conda_env': self.conda_env or self.name.lower()}

    # --- derived values

    @property
    def has_python(self) -> bool:
        """Whether modules of the image provide its Python."""
        return self.init != INIT_NONE

    @property
    def all_warnings(self) -> List[str]:
        """The warnings, and what a hidden module says when it is loaded: why it is archived."""
        lines = self.modloadmsg.splitlines() if self.hidden and self.modloadmsg else []
        # ebsif 0.2.0 wrote the text as both
        return list(self.warnings) + [line for line in lines if line not in self.warnings]

    @property
    def image_name(self) -> str:
        """File name of the image."""
        if not self.sources:
            return '%s-%s.sif' % (self.name, self.version)
        return os.path.basename(source_name(self.sources[0]))

    @property
    def source(self) -> Optional[ImageSource]:
        """Where the image can be fetched from, None if the easyconfig doesn't name a source."""
        return ImageSource.parse(self.image_source) if self.image_source else None

    @property
    def image_root_parts(self) -> Tuple[str, str]:
        """The variable that may name the parent directory of images, and the directory otherwise."""
        return root_parts(self.image_root)

    @property
    def central_directories(self) -> List[str]:
        """The full paths of 'image_dirs' in the current environment."""
        variable, path = self.image_root_parts
        root = os.environ.get(variable) or path or '/'
        return [os.path.join(root, path) for path in self.image_dirs]

    def current_binds(self) -> Tuple[List[str], List[str]]:
        """Return the required and the optional binds on this machine, with those in 'bind_file'."""
        path, lines = self.bind_file, self.bind_file_default
        if path and os.path.isfile(path) and os.access(path, os.R_OK):
            lines = read_file(path).splitlines()
        return parse_binds(list(self.binds) + list(lines))

    @property
    def container_settings(self) -> Dict[str, Any]:
        """What a container gets at install time, on this machine."""
        binds, optional_binds = self.current_binds()
        return {'search_path': self.image_search_path, 'binds': binds, 'optional_binds': optional_binds,
                'variables': dict(self.container_environment, **self.image_environment)}

    @property
    def variable_suffix(self) -> str:
        """The software name as EasyBuild spells it in variables (SIF<NAME>), always a valid identifier."""
        return re.sub(r'[^A-Z0-9_]', '_', convert_name(self.name, upper=True))

    @property
    def masks(self) -> Masks:
        """The files of the image to hide or replace."""
        return Masks(self.masked_paths)

    @property
    def system(self) -> SystemPackages:
        """The packages of the image's system to add."""
        return SystemPackages(self.system_packages)

    @property
    def scripts(self) -> Dict[str, str]:
        """Commands and run scripts by their path relative to the installation, with the source file of each."""
        names = self.SCRIPTS + (self.PYTHON_SCRIPTS if self.has_python else [])
        names += ['runscripts/remove-caches'] if self.has_python or self.cache_variables else []
        names += [WITHOUT_HOST_MODULES] if self.own_modules else []
        names += [MAKE_STRIPED] if self.venv else []
        mounters = {'share/ebsif/mounters/%s/%s' % (name, name): MOUNTER for name in MOUNTERS}
        return dict({name: name for name in names}, **dict(mounters, **self.script_names))

    @property
    def wraps_all(self) -> bool:
        """Whether all programs of the venv become commands of the module."""
        return WRAPPERS_ALL in ([self.wrappers] if isinstance(self.wrappers, str) else self.wrappers)

    @property
    def wrapped(self) -> List[str]:
        """The names of programs that become commands of the module."""
        return [] if isinstance(self.wrappers, str) else [name for name in self.wrappers if name != WRAPPERS_ALL]

    @property
    def check_command(self) -> str:
        """A command that tests module, image and scripts together."""
        return 'start-shell /runscripts/conda-python-simple --version' if self.has_python else 'start-shell -c true'

    @property
    def commands(self) -> List[str]:
        """Names of the commands of an installation."""
        return [os.path.basename(script) for script in self.scripts if script.startswith('bin/')]

    @property
    def conda_prefix(self) -> str:
        """Path of the Conda environment in the image."""
        return os.path.join(CONDA_ROOT, 'envs', self.conda_env)

    @property
    def conda_root(self) -> str:
        """Path of the Conda installation in the image."""
        return os.path.dirname(os.path.dirname(self.conda_prefix))

    @property
    def image_search_path(self) -> List[str]:
        """Directories to prepend to PATH in the container to activate the image's environment."""
        if self.init not in INIT_CONDA:
            return []
        return [os.path.join(self.conda_prefix, 'bin'), os.path.join(self.conda_root, 'condabin')]

    @property
    def container_search_path(self) -> List[str]:
        """Directories that the module prepends to PATH in the container, in order."""
        return ['/runscripts'] + (self.image_search_path if self.init == INIT_CONDA_INJECTED else [])

    @property
    def image_environment(self) -> Dict[str, str]:
        """Variables that activating the image's environment would set, except PATH."""
        if self.init not in INIT_CONDA:
            return {}
        return {
            'CONDA_DEFAULT_ENV': os.path.basename(self.conda_prefix),
            'CONDA_EXE': os.path.join(self.conda_root, 'bin', 'conda'),
            'CONDA_PREFIX': self.conda_prefix,
            'CONDA_PYTHON_EXE': os.path.join(self.conda_root, 'bin', 'python'),
            'CONDA_SHLVL': '1',
        }

    @property
    def container_environment(self) -> Dict[str, str]:
        """The variables in every container: the variables of its start, and the variables of the easyconfig."""
        return dict(self.start_environment, **self.own_environment)

    @property
    def own_environment(self) -> Dict[str, str]:
        """Variables that the easyconfig sets in the container."""
        return {name: str(value) for name, value in self.container_env.items() if value is not None}

    @property
    def needs_activation(self) -> bool:
        """Whether commands of the module have to run `$WITH_CONDA` in the container first."""
        return self.init == INIT_CONDA_MANUAL or self.own_environment.get('WITH_CONDA', 'true') != 'true'

    @property
    def start_environment(self) -> Dict[str, str]:
        """Variables that are set whenever a container starts, unless the easyconfig decides on them."""
        # keep packages in ~/.local out of the container, and pip out of ~/.local
        variables = {'PYTHONNOUSERSITE': '1', 'PIP_USER': '0', 'PYTHONUSERBASE': NO_USER_BASE}
        if self.init == INIT_CONDA_INJECTED:
            variables.update(self.image_environment)
        if self.init != INIT_CONDA_MANUAL:
            # existing job scripts run `$WITH_CONDA`, so it must be a command, but there is nothing left to do
            variables.update({'WITH_CONDA': 'true', 'WITH_VENV': 'true', 'WITH_CONDA_VENV': 'true'})
        return {name: value for name, value in variables.items() if name not in self.container_env}

    # like start_environment, for paths of files: unless the caller has set the variable, and if the file is there
    start_files: Dict[str, str] = {}

    @property
    def venv(self) -> str:
        """Path of the venv in the container; empty if there is no user software."""
        return ''

    @property
    def unset_variables(self) -> List[str]:
        """Names of the variables that are unset in the container, even where the caller has them."""
        settings = dict(self.container_env, **self.network_env)
        return sorted(name for name, value in settings.items() if value is None)


class VenvSpec(ContainerSpec):
    """The specification of a container module with user software."""

    PARAMETERS = dict(CONTAINER_PARAMETERS, **VENV_PARAMETERS)
    constraints: List[str]
    keep_packages: List[str]
    requirements: Any
    venv_name: str

    SCRIPTS = ContainerSpec.SCRIPTS + ['bin/make-squashfs', 'bin/unmake-squashfs', 'share/ebsif/squashfs.bash']
    # keep pip and uv from replacing packages of the image
    start_files = {'PIP_CONSTRAINT': '/' + CONSTRAINTS, 'UV_OVERRIDE': '/' + OVERRIDES}
    MODULE_DECIDES = dict(
        ContainerSpec.MODULE_DECIDES, VIRTUAL_ENV="it names the venv of user software; 'venv_name' changes its name")

    def derived_defaults(self) -> Dict[str, Any]:
        """Values of parameters whose default depends on other parameters."""
        return dict(super().derived_defaults(), venv_name=self.venv_name or self.name.lower())

    @property
    def venv(self) -> str:
        """Path of the venv in the container."""
        return os.path.join(USER_SOFTWARE, 'venv', self.venv_name)

    @property
    def container_search_path(self) -> List[str]:
        """
        The venv comes before the image; if there is no user software, a missing directory on PATH does no harm.

        The bin directory after it is for SquashFS files that users mount themselves, as in LUMI's guide.
        """
        path = super().container_search_path
        return path[:1] + [os.path.join(self.venv, 'bin'), os.path.join(USER_SOFTWARE, 'bin')] + path[1:]
