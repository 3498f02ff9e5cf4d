##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Specification of a container module, from the easyconfig alone: image, environment, scripts. Checks all parameters.
"""
import os
import re

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials
from easybuild.easyblocks.generic.container.bindfile import parse_binds
from easybuild.easyblocks.generic.container.caches import CACHE_SCRIPTS, Caches
from easybuild.easyblocks.generic.container.distributed import UNSET_SCRIPT, Distributed
from easybuild.easyblocks.generic.container.gpus import GPU_KINDS, GPUS_FILE
from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.lustre import MAKE_STRIPED
from easybuild.easyblocks.generic.container.masks import Masks
from easybuild.easyblocks.generic.container.packages import USER_SOFTWARE
from easybuild.easyblocks.generic.container.parameters import TEXTS, Parameters, is_of_kind
from easybuild.easyblocks.generic.container.requirements import lock_of
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.sharedimage import IMAGE_CENTRAL, IMAGE_KINDS
from easybuild.easyblocks.generic.container.signature import REQUIRED, SIGNATURES
from easybuild.easyblocks.generic.container.stages import Stage
from easybuild.easyblocks.generic.container.texts import bind_problem, value_problem, variable_problem
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import convert_name
from easybuild.tools.utilities import nub

# How Python is activated in the image; this determines what the module has to add.
INIT_IMAGE = 'image'
INIT_CONDA_INJECTED = 'conda-injected'
INIT_CONDA_MANUAL = 'conda-manual'
INIT_VENV_IN_IMAGE = 'venv-in-image'
INIT_NONE = 'none'
INIT_KINDS = (INIT_IMAGE, INIT_CONDA_INJECTED, INIT_CONDA_MANUAL, INIT_VENV_IN_IMAGE, INIT_NONE)
INIT_CONDA = (INIT_CONDA_INJECTED, INIT_CONDA_MANUAL)

# Conditions for binding a library of the host into the container.
IF_MISSING = 'if_missing'
IF_NEWER = 'if_newer'
LIBRARY_BINDS = (IF_MISSING, IF_NEWER)

# What happens at load if another container module is loaded.
REFUSE = 'refuse'
REPLACE = 'replace'
ONE_CONTAINER = (REFUSE, REPLACE)

# Packages that a module lists as extensions, with their keys in the installation's record.
LISTED_PACKAGES = {
    'all': (lockfile.IMAGE_PACKAGES, lockfile.VENV_PACKAGES), 'user_software': (lockfile.VENV_PACKAGES,), 'none': ()}

# The directory for `pip install --user`. Nothing can be created there, so pip fails whichever Python and version it is;
# many install in ~/.local otherwise, where Python doesn't look for packages (PYTHONNOUSERSITE). pip's error names it.
NO_USER_BASE = '/dev/null/use-make-venv-instead-of-pip-install--user'

# Value of 'wrappers': every program of the venv.
WRAPPERS_ALL = 'all'

# Value of 'protect': every package of the image.
PROTECT_ALL = 'all'

# Names that wrappers can't have: host scripts with `#!/usr/bin/env bash`, and programs that eb runs, would run in the
# container.
NEEDED_ON_HOST = ('apptainer', 'bash', 'env', 'sh', 'singularity')


class ContainerSpec:
    """
    The specification of a container module. It is immutable; later steps of EasyBuild create a new one, with more
    templates resolved.

    Attributes
    ----------
    name, version, sources and all parameters of the easyblock
        As in the easyconfig; 'conda_env' has its default value.
    """

    SCRIPTS = ['bin/start-shell', 'bin/with-module', GPUS_FILE] + [
        'share/ebsif/%s.bash' % name for name in (
            'common', 'inside', 'load', 'one-container', 'ready', 'run', 'without-host-modules')] + [
        'share/ebsif/end-container', 'runscripts/joined-rank.sh', 'runscripts/stay.sh', 'runscripts/rank.bash',
        'runscripts/stage-software', 'runscripts/get-master'] + [
        'runscripts/schedulers/%s.bash' % kind for kind in sorted(SCHEDULERS)]
    PYTHON_SCRIPTS = ['interpreter/python', 'bin/list-packages', 'bin/make-venv', 'bin/extend-venv-activate',
                      'share/ebsif/make-venv.py',
                      'share/ebsif/image-pip.py', 'share/ebsif/pip', 'share/ebsif/image-programs.py',
                      'share/ebsif/kernel', 'share/ebsif/run-kernel.bash', 'runscripts/start-kernel.py',
                      'share/ebsif/venv-wrapper',
                      'share/ebsif/activate-before.sh', 'share/ebsif/activate-after.sh',
                      'runscripts/conda-python-simple', 'runscripts/init-conda-venv',
                      'runscripts/conda-python-distributed', 'runscripts/list-packages',
                      'runscripts/list-packages.py', 'runscripts/record-run', 'runscripts/record-run.py',
                      'runscripts/start-ranks.py']
    # installed only under the names in 'script_names'
    NAMED_SCRIPTS = ['bin/container-exec', 'bin/container-run', 'bin/container-runtime']
    # variables that 'container_env' can't set, and why
    MODULE_DECIDES = {
        'PREPEND_PATH': "it names the directories of run scripts and Python environments; APPEND_PATH can name more"}

    def __init__(self, options, values):
        """
        Set the values.

        Parameters
        ----------
        options : dict
            The parameters of the easyblock, as returned by extra_options.
        values : dict
            Their values, and those of name, version and sources; default values may be omitted.
        """
        defaults = {name: option[0] for name, option in options.items()}
        self.__dict__.update(defaults, **values)
        self.__dict__.update(options=options, **self.derived_defaults())

    @classmethod
    def from_easyconfig(cls, options, cfg):
        """Create the specification from the current values of an easyconfig; see ``__init__``."""
        return cls(options, {name: cfg[name] for name in list(options) + ['name', 'version', 'sources']})

    def __setattr__(self, name, value):
        """Refuse changes."""
        raise AttributeError("the specification of a container is immutable: %s" % name)

    def derived_defaults(self):
        """Values of parameters whose default depends on other parameters (dict)."""
        return {'conda_env': self.conda_env or self.name.lower()}

    # --- derived values

    @property
    def image_name(self):
        """File name of the image."""
        if not self.sources:
            return '%s-%s.sif' % (self.name, self.version)
        return os.path.basename(source_name(self.sources[0]))

    @property
    def source(self):
        """Where the image can be fetched from (ImageSource), None if nothing says that."""
        return ImageSource.parse(self.image_source) if self.image_source else None

    @property
    def central_directories(self):
        """The full paths of 'image_dirs' in the current environment (list of str)."""
        root = os.environ.get(self.image_root_variable or '') or self.image_root or '/'
        return [os.path.join(root, path) for path in self.image_dirs]

    @property
    def variable_suffix(self):
        """The software name as EasyBuild spells it in variables (SIF<NAME>), always a valid identifier."""
        return re.sub(r'[^A-Z0-9_]', '_', convert_name(self.name, upper=True))

    @property
    def masks(self):
        """The files of the image to hide or replace (Masks)."""
        return Masks(self.masked_paths)

    @property
    def distributed(self):
        """Settings for distributed runs (Distributed)."""
        return Distributed(self)

    @property
    def caches(self):
        """Where libraries keep their caches (Caches)."""
        return Caches(self)

    @property
    def scripts(self):
        """Commands and run scripts by their path relative to the installation, with the source file of each (dict)."""
        names = self.SCRIPTS + ([] if self.init == INIT_NONE else self.PYTHON_SCRIPTS)
        names += [UNSET_SCRIPT] if self.unset_variables else []
        names += CACHE_SCRIPTS if self.caches.places else []
        return dict({name: name for name in names}, **self.script_names)

    @property
    def commands(self):
        """Names of the commands of an installation (list of str)."""
        return [os.path.basename(script) for script in self.scripts if script.startswith('bin/')]

    @property
    def image_search_path(self):
        """Directories to prepend to PATH in the container to activate the image's environment."""
        if self.init not in INIT_CONDA:
            return []
        return [os.path.join(self.conda_root, 'envs', self.conda_env, 'bin'), os.path.join(self.conda_root, 'condabin')]

    @property
    def container_search_path(self):
        """Directories that the module prepends to PATH in the container, in order."""
        return ['/runscripts'] + (self.image_search_path if self.init == INIT_CONDA_INJECTED else [])

    @property
    def image_environment(self):
        """Variables that activating the image's environment would set, except PATH."""
        if self.init not in INIT_CONDA:
            return {}
        return {
            'CONDA_DEFAULT_ENV': self.conda_env,
            'CONDA_EXE': os.path.join(self.conda_root, 'bin', 'conda'),
            'CONDA_PREFIX': os.path.join(self.conda_root, 'envs', self.conda_env),
            'CONDA_PYTHON_EXE': os.path.join(self.conda_root, 'bin', 'python'),
            'CONDA_SHLVL': '1',
        }

    @property
    def container_environment(self):
        """Variables that the module sets in the container on every node; those of the easyconfig take precedence."""
        # keep packages in ~/.local out of the container, and pip out of ~/.local
        variables = {'PYTHONNOUSERSITE': '1', 'PIP_USER': '0', 'PYTHONUSERBASE': NO_USER_BASE}
        if self.init == INIT_CONDA_INJECTED:
            variables.update(self.image_environment)
        if self.init != INIT_CONDA_MANUAL:
            # existing job scripts run `$WITH_CONDA`, so it must be a command, but there is nothing left to do
            variables.update({'WITH_CONDA': 'true', 'WITH_VENV': 'true', 'WITH_CONDA_VENV': 'true'})
        variables.update(self.container_env)
        return {name: str(value) for name, value in variables.items() if value is not None}

    @property
    def unset_variables(self):
        """Names of the variables that are unset in the container, even where the caller has them (list of str)."""
        settings = list(self.container_env.items()) + list(self.network_env.items())
        return sorted(name for name, value in dict(settings).items() if value is None)

    # --- checks

    def check(self, tcl_in_lmod=False):
        """
        Validate the parameters. Values may still contain unresolved templates.

        Parameters
        ----------
        tcl_in_lmod : bool
            Whether Lmod will read a module in Tcl.

        Raises
        ------
        EasyBuildError
            For the first invalid value; the message names the parameter, the value and the valid ones.
        """
        Parameters(self.options).check(self.__dict__)
        self.check_sources()
        self.check_image_source()
        self.check_choices()
        self.masks.check()
        self.check_binds()
        self.check_variables(tcl_in_lmod)
        self.check_image_dirs()
        if self.entry_point and not re.match(r'/[A-Za-z0-9_.+/-]+\Z', self.entry_point):
            raise EasyBuildError("Easyconfig parameter 'entry_point' should be the full path of a program of the image "
                                 "(letters, digits and _ . + - only), found: %s", self.entry_point)
        self.distributed.check()
        for problem in self.caches.problems():
            raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", *problem)
        self.check_aliases()
        self.check_script_names()
        self.check_wrappers()
        self.check_definition_files()

    def check_sources(self):
        """Check that each source has a file name, in one of EasyBuild's formats."""
        sources = self.sources
        names = [source_name(source) for source in sources] if isinstance(sources, (list, tuple)) else [None]
        if not all(isinstance(name, str) for name in names):
            raise EasyBuildError("Easyconfig parameter 'sources' should be a list with the name of an image (a SIF "
                                 "file), found: %s", sources)

    def check_image_source(self):
        """Check where the image can be fetched from, as soon as templates in it have a value."""
        if not self.image_source or re.search(r'%\(', self.image_source):
            return
        try:
            ImageSource.parse(self.image_source)
        except ValueError as err:
            raise EasyBuildError("Easyconfig parameter 'image_source': '%s' %s", Credentials.mask(self.image_source),
                                 err)

    def check_choices(self):
        """Check the parameters that have a fixed set of values."""
        for param, known in (('init', INIT_KINDS), ('image', IMAGE_KINDS), ('gpu', (None,) + tuple(sorted(GPU_KINDS))),
                             ('one_container', ONE_CONTAINER), ('listed_packages', tuple(LISTED_PACKAGES)),
                             ('signature', SIGNATURES)):
            value = getattr(self, param)
            if value not in known:
                raise EasyBuildError("Unknown value for easyconfig parameter '%s': '%s' (known: %s)", param, value,
                                     ', '.join(str(kind) for kind in known))
        if self.signature == REQUIRED and not self.signature_keys:
            raise EasyBuildError("Easyconfig parameter 'signature' is '%s', so 'signature_keys' must name the files of "
                                 "the public keys", REQUIRED)

    def check_binds(self):
        """Check the syntax of binds."""
        if not all(value in LIBRARY_BINDS for value in self.library_binds.values()):
            raise EasyBuildError("Easyconfig parameter 'library_binds' should be a dictionary of bind mounts, each "
                                 "with '%s', found: %s", "' or '".join(LIBRARY_BINDS), self.library_binds)
        if self.bind_file_default and not self.bind_file:
            raise EasyBuildError("Easyconfig parameter 'bind_file_default' has binds for where 'bind_file' doesn't "
                                 "exist: set that too, or use 'binds' and 'optional_binds'")
        for param in ('binds', 'optional_binds', 'library_binds', 'bind_file_default'):
            binds = getattr(self, param)
            for bind in sum(parse_binds(binds), []) if param == 'bind_file_default' else binds:
                if bind_problem(bind):
                    raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", param, bind, bind_problem(bind))

    def check_variables(self, tcl_in_lmod):
        """Check that variable names are valid, and that modules tools pass the values to the container unchanged."""
        root_variable = self.image_root_variable
        for param, names in (('container_env', list(self.container_env)),
                             ('image_root_variable', [root_variable] if root_variable else []),
                             ('own_modules', [self.own_modules] if self.own_modules else [])):
            for name in names:
                if variable_problem(name):
                    raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", param, name, variable_problem(name))
        for name, value in sorted(self.container_env.items()):
            if name in self.MODULE_DECIDES:
                raise EasyBuildError("Easyconfig parameter 'container_env': %s is set by the module: %s", name,
                                     self.MODULE_DECIDES[name])
            problem = value is not None and value_problem(str(value), tcl_in_lmod)
            if problem:
                raise EasyBuildError("Easyconfig parameter 'container_env': the value of %s %s: %r", name, problem,
                                     value)

    def check_image_dirs(self):
        """Check that directories are full paths or below 'image_root'; no shell expands them."""
        if self.image == IMAGE_CENTRAL and not self.image_dirs:
            raise EasyBuildError("Easyconfig parameter 'image' is '%s', so 'image_dirs' must say where the image is",
                                 IMAGE_CENTRAL)
        # paths that begin with a template are checked once it has a value
        for path in [path for path in self.image_dirs if not path.startswith('%')]:
            if path.startswith(('$', '~')):
                raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is not expanded, write the full path "
                                     "(or use 'image_root_variable' for a directory named by a variable)", path)
            if not path.startswith('/') and not self.image_root:
                raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is not a full path, and 'image_root' is "
                                     "not set", path)

    def check_aliases(self):
        """Check that additional versions are valid names of module files, like the version itself."""
        wrong = [alias for alias in self.aliases if not re.match(r'[A-Za-z0-9][A-Za-z0-9_.+-]*\Z', alias)]
        if wrong:
            raise EasyBuildError("Easyconfig parameter 'aliases': '%s' can't be the version of a module (letters, "
                                 "digits and _ . + - only)", wrong[0])

    def check_script_names(self):
        """Check that additional script names refer to existing scripts in the same directory."""
        known = self.SCRIPTS + self.PYTHON_SCRIPTS + self.NAMED_SCRIPTS
        known = [script for script in known if script.startswith(('bin/', 'runscripts/'))]
        for new, script in self.script_names.items():
            if script not in known or not re.match(r'%s/[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z' % os.path.dirname(script), new):
                raise EasyBuildError("Easyconfig parameter 'script_names': '%s' can't be another name of '%s' (known, "
                                     "in the same directory: %s)", new, script, ', '.join(known))

    def check_wrappers(self):
        """Check that wrappers have valid names, and don't hide programs that are needed on the host."""
        wrappers = self.wrappers
        names = wrappers if isinstance(wrappers, (list, tuple)) else [wrappers] if wrappers == WRAPPERS_ALL else [None]
        if not all(isinstance(name, str) and re.match(r'[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z', name) for name in names):
            raise EasyBuildError("Easyconfig parameter 'wrappers' should be '%s' or a list of program names, "
                                 "found: %s", WRAPPERS_ALL, wrappers)
        needed = [name for name in names if name in NEEDED_ON_HOST]
        if needed:
            raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' would hide the host's, which commands and job "
                                 "scripts need to start the container. Leave it out; start-shell opens a shell in the "
                                 "container.", needed[0])

    def check_definition_files(self):
        """Check that definition files have different names, since they are kept in one directory."""
        names = [os.path.basename(name) for name in self.definition_files]
        for name in nub(names):
            if names.count(name) > 1:
                raise EasyBuildError("Easyconfig parameter 'definition_files' has more than one file named %s: all are "
                                     "kept in one directory. Rename all but one.", name)


class VenvSpec(ContainerSpec):
    """
    The specification of a container module with user software.

    Attributes
    ----------
    venv_name : str
        Name of the venv, with its default value.
    """

    SCRIPTS = ContainerSpec.SCRIPTS + ['bin/make-squashfs', 'bin/unmake-squashfs', 'share/ebsif/squashfs.bash',
                                       MAKE_STRIPED]
    MODULE_DECIDES = dict(
        ContainerSpec.MODULE_DECIDES, VIRTUAL_ENV="it names the venv of user software; 'venv_name' changes its name")

    def derived_defaults(self):
        """Values of parameters whose default depends on other parameters (dict)."""
        return dict(super().derived_defaults(), venv_name=self.venv_name or self.name.lower())

    @property
    def venv(self):
        """Path of the venv in the container."""
        return os.path.join(USER_SOFTWARE, 'venv', self.venv_name)

    @property
    def container_search_path(self):
        """
        The venv comes before the image; if there is no user software, a missing directory on PATH does no harm.

        The bin directory after it is for SquashFS files that users mount themselves, as in LUMI's guide.
        """
        path = super().container_search_path
        return path[:1] + [os.path.join(self.venv, 'bin'), os.path.join(USER_SOFTWARE, 'bin')] + path[1:]

    def check(self, tcl_in_lmod=False):
        """Validate the parameters; see ContainerSpec."""
        super().check(tcl_in_lmod)
        if self.init == INIT_NONE:
            raise EasyBuildError("Easyconfig parameter 'init' is '%s': an image without Python can't have a venv. Use "
                                 "the easyblock ContainerInstall for it.", INIT_NONE)
        if not isinstance(self.requirements, dict):
            Stage.from_parameter(self.requirements)
        elif not lock_of(self.requirements):
            raise EasyBuildError("Easyconfig parameter 'requirements': a dictionary should be {'lock': FILE}, the "
                                 "record of the installation to repeat, and may have its user software, 'squashfs': "
                                 "FILE; found: %s",
                                 Credentials.mask(self.requirements))
        wrong = [line for line in self.constraints if not re.match(r'[\w.-]+==[^\s;,*]+\Z', line)]
        if wrong:
            raise EasyBuildError("Easyconfig parameter 'constraints': '%s' should be a name and an exact version, "
                                 "name==version", wrong[0])
        if self.protect != PROTECT_ALL and not is_of_kind(self.protect, TEXTS):
            raise EasyBuildError("Easyconfig parameter 'protect' should be '%s' or a list of package names, "
                                 "found: %s", PROTECT_ALL, self.protect)
        if not re.match(r'[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]\Z', self.venv_name):
            raise EasyBuildError("Easyconfig parameter 'venv_name': '%s' can't be the name of a venv (one directory: "
                                 "letters, digits, '_', '.', '+' and '-')", self.venv_name)


def check_easyconfig(cfg):
    """
    Check the parts of an easyconfig that are not parameters of our easyblocks.

    Parameters
    ----------
    cfg : EasyConfig

    Raises
    ------
    EasyBuildError
        For credentials, and for settings that EasyBuild allows but that don't make sense for containers.
    """
    # the raw text includes comments
    secrets = Credentials.find(cfg.rawtxt) or Credentials.find(cfg.asdict())
    if secrets:
        raise EasyBuildError("A credential is written out in the easyconfig: %s. %s", ', '.join(nub(secrets)), REMEDY)
    if 'components' in cfg:
        raise EasyBuildError("A container can't be a component of a Bundle, which would unpack the image: write a "
                             "separate easyconfig for it, and add that to 'dependencies'.")
    for param in ('exts_list', 'exts_defaultclass'):
        if cfg.get_ref(param):
            raise EasyBuildError("Easyconfig parameter '%s' can't be used: extensions would be built on the host, not "
                                 "in the container. List packages for the container in 'requirements' (easyblock "
                                 "ContainerVenv).", param)
    if cfg.get_ref('multi_deps'):
        raise EasyBuildError("Easyconfig parameter 'multi_deps' can't be used: EasyBuild would install the container "
                             "once for each version. Name one version in 'dependencies'.")
    if cfg['buildininstalldir']:
        raise EasyBuildError("Easyconfig parameter 'buildininstalldir' can't be used: temporary files would stay in "
                             "the installation. To build elsewhere, use 'eb --buildpath'.")


def source_name(source):
    """Return the file name of an item of 'sources', which may be a string, a tuple or a dictionary."""
    if isinstance(source, dict):
        return source.get('filename') or source.get('download_filename')
    return source[0] if isinstance(source, (list, tuple)) and source else source
