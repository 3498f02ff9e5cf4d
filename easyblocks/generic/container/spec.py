##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What follows from the easyconfig alone: the image, its environment, its scripts; and every check of a parameter.
"""
import os
import re

from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials
from easybuild.easyblocks.generic.container.distributed import UNSET_SCRIPT, Distributed
from easybuild.easyblocks.generic.container.gpus import GPU_KINDS, GPUS_FILE
from easybuild.easyblocks.generic.container.masks import Masks
from easybuild.easyblocks.generic.container.packages import USER_SOFTWARE
from easybuild.easyblocks.generic.container.parameters import TEXTS, Parameters, is_of_kind
from easybuild.easyblocks.generic.container.schedulers import SCHEDULERS
from easybuild.easyblocks.generic.container.stages import Stage
from easybuild.easyblocks.generic.container.texts import bind_problem, value_problem, variable_problem
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import convert_name
from easybuild.tools.utilities import nub

# Who makes Python ready in the image; what the module has to add follows from it.
INIT_IMAGE = 'image'
INIT_CONDA_INJECTED = 'conda-injected'
INIT_CONDA_MANUAL = 'conda-manual'
INIT_VENV_IN_IMAGE = 'venv-in-image'
INIT_NONE = 'none'
INIT_KINDS = (INIT_IMAGE, INIT_CONDA_INJECTED, INIT_CONDA_MANUAL, INIT_VENV_IN_IMAGE, INIT_NONE)
INIT_CONDA = (INIT_CONDA_INJECTED, INIT_CONDA_MANUAL)

# When a library of the host is bound into the container.
IF_MISSING = 'if_missing'
IF_NEWER = 'if_newer'
LIBRARY_BINDS = (IF_MISSING, IF_NEWER)

# Where the image is.
IMAGE_OWN = 'own'
IMAGE_CENTRAL = 'central'
IMAGE_KINDS = (IMAGE_OWN, IMAGE_CENTRAL)

# What loading does when another container module is loaded.
REFUSE = 'refuse'
REPLACE = 'replace'
ONE_CONTAINER = (REFUSE, REPLACE)

# Packages that a module lists as extensions: what the record of the installation calls them.
LISTED_PACKAGES = {'all': ('image_packages', 'venv_packages'), 'user_software': ('venv_packages',), 'none': ()}

# For 'wrappers': every program of the venv.
WRAPPERS_ALL = 'all'

# For 'protect': every package of the image.
PROTECT_ALL = 'all'

# What can't be a wrapper: scripts of the host that begin with `#!/usr/bin/env bash`, and what eb runs, would be run in
# the container.
NEEDED_ON_HOST = ('apptainer', 'bash', 'env', 'sh', 'singularity')


class ContainerSpec:
    """
    The specification of a container module. It doesn't change; a later step of EasyBuild has one of its own, in which
    more templates are resolved.

    Attributes
    ----------
    name, version, sources and all parameters of the easyblock
        As in the easyconfig; 'conda_env' has its default value.
    """

    SCRIPTS = ['bin/start-shell', GPUS_FILE] + [
        'share/ebsif/%s.bash' % name for name in ('common', 'inside', 'ready', 'run')]
    PYTHON_SCRIPTS = ['bin/list-packages', 'bin/make-venv', 'bin/extend-venv-activate', 'share/ebsif/make-venv.py',
                      'share/ebsif/image-programs.py', 'share/ebsif/venv-wrapper', 'share/ebsif/activate-before.sh',
                      'share/ebsif/activate-after.sh', 'runscripts/conda-python-simple', 'runscripts/init-conda-venv',
                      'runscripts/conda-python-distributed', 'runscripts/get-master',
                      'runscripts/list-packages', 'runscripts/list-packages.py'] + \
        ['runscripts/schedulers/%s.bash' % kind for kind in sorted(SCHEDULERS)]
    # installed under the names that 'script_names' has for them
    NAMED_SCRIPTS = ['bin/container-exec', 'bin/container-run', 'bin/container-runtime']
    # variables in the container that are no matter of 'container_env', and why
    MODULE_DECIDES = {
        'PREPEND_PATH': "it names the directories of run scripts and Python environments; APPEND_PATH can name more"}

    def __init__(self, options, values):
        """
        Keep the values.

        Parameters
        ----------
        options : dict
            The parameters of the easyblock, as its extra_options returns them.
        values : dict
            Their values, and those of name, version and sources; a default value may be left out.
        """
        defaults = {name: option[0] for name, option in options.items()}
        self.__dict__.update(defaults, **values)
        self.__dict__.update(options=options, **self.derived_defaults())

    @classmethod
    def from_easyconfig(cls, options, cfg):
        """Return what an easyconfig says now; see ``__init__``."""
        return cls(options, {name: cfg[name] for name in list(options) + ['name', 'version', 'sources']})

    def __setattr__(self, name, value):
        """Refuse to change."""
        raise AttributeError("the specification of a container doesn't change: %s" % name)

    def derived_defaults(self):
        """Values of parameters whose default depends on others (dict)."""
        return {'conda_env': self.conda_env or self.name.lower()}

    # --- what follows from it

    @property
    def image_name(self):
        """File name of the image."""
        if not self.sources:
            return '%s-%s.sif' % (self.name, self.version)
        return os.path.basename(source_name(self.sources[0]))

    @property
    def variable_suffix(self):
        """The name of the software as EasyBuild spells it in variables (SIF<NAME>), always legal there."""
        return re.sub(r'[^A-Z0-9_]', '_', convert_name(self.name, upper=True))

    @property
    def masks(self):
        """The files of the image that are hidden or replaced (Masks)."""
        return Masks(self.masked_paths)

    @property
    def distributed(self):
        """What distributed runs need (Distributed)."""
        return Distributed(self)

    @property
    def scripts(self):
        """The commands and run scripts of an installation, relative to it: the name of each, and which file it is."""
        names = self.SCRIPTS + ([] if self.init == INIT_NONE else self.PYTHON_SCRIPTS)
        names += [UNSET_SCRIPT] if self.unset_variables else []
        return dict({name: name for name in names}, **self.script_names)

    @property
    def commands(self):
        """Names of the commands of an installation (list of str)."""
        return [os.path.basename(script) for script in self.scripts if script.startswith('bin/')]

    @property
    def image_search_path(self):
        """Directories that go first on PATH in the container for the image's environment to be active."""
        if self.init not in INIT_CONDA:
            return []
        return [os.path.join(self.conda_root, 'envs', self.conda_env, 'bin'), os.path.join(self.conda_root, 'condabin')]

    @property
    def container_search_path(self):
        """Directories the module puts first on PATH in the container, in order."""
        return ['/runscripts'] + (self.image_search_path if self.init == INIT_CONDA_INJECTED else [])

    @property
    def image_environment(self):
        """Variables that activation of the image's environment would set, apart from PATH."""
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
        """Variables the module sets in the container, whatever it finds on the node; those of the easyconfig win."""
        # nothing may leak from the user's ~/.local into the image, and nothing of pip's may land there
        variables = {'PYTHONNOUSERSITE': '1', 'PIP_USER': '0'}
        if self.init == INIT_CONDA_INJECTED:
            variables.update(self.image_environment)
        if self.init != INIT_CONDA_MANUAL:
            # old job scripts run `$WITH_CONDA`; it has to stay a command, and there is nothing left to do for it
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
            Whether the module is in Tcl, and read by Lmod.

        Raises
        ------
        EasyBuildError
            For the first value that can't be used: which parameter, what was found, what is known.
        """
        Parameters(self.options).check(self.__dict__)
        self.check_sources()
        self.check_choices()
        self.masks.check()
        self.check_binds()
        self.check_variables(tcl_in_lmod)
        self.check_image_dirs()
        if self.entry_point and not re.match(r'/[A-Za-z0-9_.+/-]+\Z', self.entry_point):
            raise EasyBuildError("Easyconfig parameter 'entry_point' should be the full path of a program of the image "
                                 "(letters, digits and _ . + - only), found: %s", self.entry_point)
        self.distributed.check()
        self.check_script_names()
        self.check_wrappers()
        self.check_definition_files()

    def check_sources(self):
        """Each image has a name, in the forms that EasyBuild has for files."""
        sources = self.sources
        names = [source_name(source) for source in sources] if isinstance(sources, (list, tuple)) else [None]
        if not all(isinstance(name, str) for name in names):
            raise EasyBuildError("Easyconfig parameter 'sources' should be a list with the name of an image (a SIF "
                                 "file), found: %s", sources)

    def check_choices(self):
        """Some parameters have one of a few values."""
        for param, known in (('init', INIT_KINDS), ('image', IMAGE_KINDS), ('gpu', (None,) + tuple(sorted(GPU_KINDS))),
                             ('one_container', ONE_CONTAINER), ('listed_packages', tuple(LISTED_PACKAGES))):
            value = getattr(self, param)
            if value not in known:
                raise EasyBuildError("Unknown value for easyconfig parameter '%s': '%s' (known: %s)", param, value,
                                     ', '.join(str(kind) for kind in known))

    def check_binds(self):
        """Binds are written as the runtime reads them."""
        if not all(value in LIBRARY_BINDS for value in self.library_binds.values()):
            raise EasyBuildError("Easyconfig parameter 'library_binds' should be a dictionary of bind mounts, each "
                                 "with '%s', found: %s", "' or '".join(LIBRARY_BINDS), self.library_binds)
        for param in ('binds', 'optional_binds', 'library_binds'):
            for bind in getattr(self, param):
                if bind_problem(bind):
                    raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", param, bind, bind_problem(bind))

    def check_variables(self, tcl_in_lmod):
        """Names of variables are legal, values arrive in the container as they are (Lmod, Environment Modules)."""
        root_variable = self.image_root_variable
        for param, names in (('container_env', list(self.container_env)),
                             ('image_root_variable', [root_variable] if root_variable else [])):
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
        """Directories are full paths, or below 'image_root'; no shell reads them."""
        if self.image == IMAGE_CENTRAL and not self.image_dirs:
            raise EasyBuildError("Easyconfig parameter 'image' is '%s', so 'image_dirs' should say where it is",
                                 IMAGE_CENTRAL)
        # what begins with a template is known later
        for path in [path for path in self.image_dirs if not path.startswith('%')]:
            if path.startswith(('$', '~')):
                raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is not expanded, write the full path "
                                     "('image_root_variable' is for a directory that a variable names)", path)
            if not path.startswith('/') and not self.image_root:
                raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is no full path, and there is no "
                                     "'image_root'", path)

    def check_script_names(self):
        """More names are for scripts that there are, in the directory where these are."""
        known = self.SCRIPTS + self.PYTHON_SCRIPTS + self.NAMED_SCRIPTS
        known = [script for script in known if script.startswith(('bin/', 'runscripts/'))]
        for new, script in self.script_names.items():
            if script not in known or not re.match(r'%s/[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z' % os.path.dirname(script), new):
                raise EasyBuildError("Easyconfig parameter 'script_names': '%s' can't be another name of '%s' (known, "
                                     "in the same directory: %s)", new, script, ', '.join(known))

    def check_wrappers(self):
        """Wrappers have the names of programs, and take no place of what is needed on the host."""
        wrappers = self.wrappers
        names = wrappers if isinstance(wrappers, (list, tuple)) else [wrappers] if wrappers == WRAPPERS_ALL else [None]
        if not all(isinstance(name, str) and re.match(r'[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z', name) for name in names):
            raise EasyBuildError("Easyconfig parameter 'wrappers' should be '%s' or a list of names of programs, "
                                 "found: %s", WRAPPERS_ALL, wrappers)
        needed = [name for name in names if name in NEEDED_ON_HOST]
        if needed:
            raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' would take the place of the host's, which "
                                 "commands and job scripts need to get into the container. Leave it out; start-shell "
                                 "is the shell of the container.", needed[0])

    def check_definition_files(self):
        """Files that are kept in one directory have different names."""
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

    SCRIPTS = ContainerSpec.SCRIPTS + ['bin/make-squashfs', 'bin/unmake-squashfs', 'share/ebsif/squashfs.bash']
    MODULE_DECIDES = dict(
        ContainerSpec.MODULE_DECIDES, VIRTUAL_ENV="it names the venv of user software; 'venv_name' changes its name")

    def derived_defaults(self):
        """Values of parameters whose default depends on others (dict)."""
        return dict(super().derived_defaults(), venv_name=self.venv_name or self.name.lower())

    @property
    def venv(self):
        """Path of the venv in the container."""
        return os.path.join(USER_SOFTWARE, 'venv', self.venv_name)

    @property
    def container_search_path(self):
        """
        The venv comes before the image; a directory that isn't there (no user software) does no harm on PATH.

        After it the programs of a SquashFS file that a person mounts there instead, as LUMI's guide does.
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
        elif set(self.requirements) != {'lock'} or not isinstance(self.requirements['lock'], str):
            raise EasyBuildError("Easyconfig parameter 'requirements': a dictionary should be {'lock': FILE}, the lock "
                                 "of the installation to repeat, found: %s", Credentials.masked(self.requirements))
        if self.protect != PROTECT_ALL and not is_of_kind(self.protect, TEXTS):
            raise EasyBuildError("Easyconfig parameter 'protect' should be '%s' or a list of names of packages, "
                                 "found: %s", PROTECT_ALL, self.protect)
        if not re.match(r'[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]\Z', self.venv_name):
            raise EasyBuildError("Easyconfig parameter 'venv_name': '%s' can't be the name of a venv (one directory: "
                                 "letters, digits, '_', '.', '+' and '-')", self.venv_name)


def check_easyconfig(cfg):
    """
    Check what does not concern parameters of ours.

    Parameters
    ----------
    cfg : EasyConfig

    Raises
    ------
    EasyBuildError
        For credentials, and for what EasyBuild allows and would do something else than is meant.
    """
    # as text also for comments
    secrets = Credentials.found(cfg.rawtxt) or Credentials.found(cfg.asdict())
    if secrets:
        raise EasyBuildError("A credential is written out in the easyconfig: %s. %s", ', '.join(nub(secrets)), REMEDY)
    if 'components' in cfg:
        raise EasyBuildError("A container can't be a component of a Bundle, which would unpack the image: give it an "
                             "easyconfig of its own, and name that in 'dependencies'.")
    for param in ('exts_list', 'exts_defaultclass'):
        if cfg.get_ref(param):
            raise EasyBuildError("Easyconfig parameter '%s' can't be used: extensions would be built with what is on "
                                 "this machine, not in the container. Packages for the container go into "
                                 "'requirements' (easyblock ContainerVenv).", param)
    if cfg['buildininstalldir']:
        raise EasyBuildError("Easyconfig parameter 'buildininstalldir' can't be used: all that is needed only while a "
                             "container is installed would stay in the installation. To build elsewhere, use 'eb "
                             "--buildpath'.")


def source_name(source):
    """Return the name of a file in 'sources', which may have more to it."""
    if isinstance(source, dict):
        return source.get('filename') or source.get('download_filename')
    return source[0] if isinstance(source, (list, tuple)) and source else source
