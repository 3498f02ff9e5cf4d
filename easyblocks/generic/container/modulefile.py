##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for what the module of a container image does, implemented as an easyblock to derive from.
"""
import os
import re

from easybuild.easyblocks.generic.container.distributed import GPU_AWARE_VARIABLE, GPU_VISIBILITY, SCHEDULERS
from easybuild.easyblocks.generic.container.distributed import Distributed
from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.record import InstallRecord
from easybuild.easyblocks.generic.container.masks import Masks
from easybuild.easyblocks.generic.container.modulesyntax import ModuleSyntax
from easybuild.easyblocks.generic.container.parameters import Parameters, exit_status
from easybuild.easyblocks.generic.container.reinstall import Reinstall
from easybuild.easyblocks.generic.container.runtime import RUNTIME_PREFIXES, bind_problem, bind_source, escape_bind
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import convert_name
from easybuild.tools.modules import Lmod

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

# The kinds of GPU that a runtime has an option for: the option, and the device that is there if the node has one.
GPU_KINDS = {'rocm': ('ROCM', '/dev/kfd'), 'cuda': ('NV', '/dev/nvidiactl')}

# For 'wrappers': every program of the venv.
WRAPPERS_ALL = 'all'

# Where a user has user software of their own, for any container module.
PLACE_VARIABLE = 'EBSIF_USER_SOFTWARE'

# Variables of the module, and those that change what it does: another module's are no part of a check of this one.
MODULE_VARIABLES = ('CONTAINERROOT', 'CONTAINER_ENTRY_POINT', 'CONTAINER_MODULE', PLACE_VARIABLE)

# The overlay with the masks, in an installation.
MASKS = os.path.join('share', 'ebsif', 'masks.squashfs')

# What can't be a wrapper: scripts of the host that begin with `#!/usr/bin/env bash`, and what eb runs, would be run in
# the container.
NEEDED_ON_HOST = ('apptainer', 'bash', 'env', 'sh', 'singularity')


class ContainerLoad(Reinstall):
    """
    Support for the module of a container image: what is decided when it's loaded, on the node.

    The image is the own copy, or else that of the first of 'image_dirs' that has it, or else loading fails. SIF,
    SIF<NAME>, CONTAINERROOT, RUNSCRIPTS, RUNSCRIPTS<NAME>, the binds, masks and the environment of the image are set,
    so that `singularity exec $SIF command` works as it is.
    """

    SCRIPTS = ['bin/start-shell'] + ['share/ebsif/%s.bash' % name for name in ('common', 'inside', 'ready', 'run')]
    PYTHON_SCRIPTS = ['bin/list-packages', 'bin/make-venv', 'bin/extend-venv-activate', 'share/ebsif/make-venv.py',
                      'share/ebsif/image-programs.py', 'share/ebsif/venv-wrapper', 'share/ebsif/activate-before.sh',
                      'share/ebsif/activate-after.sh', 'runscripts/conda-python-simple', 'runscripts/init-conda-venv',
                      'runscripts/conda-python-distributed', 'runscripts/get-master',
                      'runscripts/list-packages', 'runscripts/list-packages.py']
    # variables in the container that are no matter of 'container_env', and why
    MODULE_DECIDES = {
        'PREPEND_PATH': "it names the directories of run scripts and Python environments; APPEND_PATH can name more"}
    # installed under the names that 'script_names' has for them
    NAMED_SCRIPTS = ['bin/container-exec', 'bin/container-run', 'bin/container-runtime']

    @staticmethod
    def extra_options(extra_vars=None):
        """Easyconfig parameters for what the module does."""
        extra_vars = Reinstall.extra_options(extra_vars)
        extra_vars.update({
            'bind_file': [None, "File with more bind mounts, read when the module is loaded (one in a line, with '?' "
                                "before it if it may be missing)", CUSTOM],
            'binds': [[], "Bind mounts that must exist where the module is loaded (source[:target[:options]])", CUSTOM],
            'conda_env': [None, "Name of the Conda environment in the image (default: name in lower case)", CUSTOM],
            'conda_root': ['/opt/miniconda3', "Where Conda is in the image", CUSTOM],
            'conflicts': [[], "Modules that can't be loaded beside this one", CUSTOM],
            'container_env': [{}, "Environment variables to set in the container", CUSTOM],
            'definition_files': [[], "Files the image was built from, kept in share/docker-defs", CUSTOM],
            'entry_point': [None, "Program of the image through which commands, wrappers, run scripts start programs, "
                                  "for what it sets in their environment (full path)", CUSTOM],
            'gpu': [None, "Kind of GPU: %s" % ', '.join(sorted(GPU_KINDS)), CUSTOM],
            'gpu_option': [True, "Use the option of the runtime for this kind of GPU (--rocm, --nv), which puts "
                                 "libraries of the host before those of the image", CUSTOM],
            'gpu_mpi_library': [None, "Library by which MPI reads and writes the memory of the GPU (GTL), used where "
                                      "it is there", CUSTOM],
            'gpu_visibility': [None, "GPUs that each rank of a distributed run sees: %s (default: for ROCm its own)"
                                     % ', '.join(GPU_VISIBILITY), CUSTOM],
            'image': [IMAGE_OWN, "Where the image is: '%s' copy, or only in 'image_dirs' ('%s')" % IMAGE_KINDS, CUSTOM],
            'image_dirs': [[], "Directories with copies of the image, used in this order when there is no own copy; "
                               "below image_root if they are relative", CUSTOM],
            'image_root': [None, "Directory that holds the relative 'image_dirs'", CUSTOM],
            'image_root_variable': [None, "Environment variable that takes the place of 'image_root' when it's set",
                                    CUSTOM],
            'init': [INIT_IMAGE, "Who makes Python ready in the image: %s" % ', '.join(INIT_KINDS), CUSTOM],
            'library_binds': [{}, "Bind mounts of libraries of the host, each with 'if_missing' (when the image has "
                                  "none of that name) or 'if_newer' (or has an older one)", CUSTOM],
            'listed_packages': ['all', "Python packages that the module lists as its extensions: %s"
                                       % ', '.join(LISTED_PACKAGES), CUSTOM],
            'masked_paths': [[], "Files of the image to hide in the container (list of patterns), or to replace "
                                 "(dictionary of patterns and what replaces them)", CUSTOM],
            'network_env': [{}, "Environment variables the network of the site needs, None for those to unset in "
                                "distributed runs", CUSTOM],
            'one_container': [REFUSE, "What loading does when another container module is loaded: %s"
                                      % ', '.join(ONE_CONTAINER), CUSTOM],
            'optional_binds': [[], "Bind mounts that are made only where their source exists", CUSTOM],
            'scheduler': [None, "Scheduler whose variables distributed runs read: %s (default: those of any launcher)"
                                % ', '.join(SCHEDULERS), CUSTOM],
            'script_names': [{}, "More names of commands and run scripts (new name and name, both as bin/NAME or "
                                 "runscripts/NAME)", CUSTOM],
            'support_level': [None, "How this container is supported, for the help text", CUSTOM],
            'warnings': [[], "Texts to show at installation and in the help of the module", CUSTOM],
            'wrappers': [[], "Programs of the container that become commands of the module (list of names), '%s' for "
                             "those of the venv" % WRAPPERS_ALL, CUSTOM],
        })
        return extra_vars

    def __init__(self, *args, **kwargs):
        """Check the parameters."""
        super().__init__(*args, **kwargs)
        self.lock = InstallRecord()
        self.distributed = Distributed(self.cfg)
        with exit_status(EasyBuildExit.EASYCONFIG_ERROR):
            self.check_parameters()
        self.masks = Masks(self.cfg['masked_paths'])
        # nothing in an installation is there to be compiled against or linked with from outside the container
        for variable in list(self.module_load_environment.as_dict):
            if variable != 'PATH':
                self.module_load_environment.remove(variable)
        self.module_load_environment.PATH = ['bin']

    def check_parameters(self):
        """Stop for values that can't be; what holds templates can be checked, it only can't be used yet."""
        Parameters(ContainerLoad.extra_options()).check(self.cfg)
        self.check_sense()
        self.check_sources()
        for param, known in (('init', INIT_KINDS), ('image', IMAGE_KINDS), ('gpu', (None,) + tuple(sorted(GPU_KINDS))),
                             ('one_container', ONE_CONTAINER), ('listed_packages', tuple(LISTED_PACKAGES))):
            if self.cfg[param] not in known:
                raise EasyBuildError("Unknown value for easyconfig parameter '%s': '%s' (known: %s)", param,
                                     self.cfg[param], ', '.join(str(kind) for kind in known))
        Masks(self.cfg.get_ref('masked_paths'))
        library_binds = self.cfg.get_ref('library_binds')
        if not all(value in LIBRARY_BINDS for value in library_binds.values()):
            raise EasyBuildError("Easyconfig parameter 'library_binds' should be a dictionary of bind mounts, each "
                                 "with '%s', found: %s", "' or '".join(LIBRARY_BINDS), library_binds)
        for param in ('binds', 'optional_binds', 'library_binds'):
            for bind in self.cfg.get_ref(param):
                if bind_problem(bind):
                    raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", param, bind, bind_problem(bind))
        root_variable = self.cfg['image_root_variable']
        for param, names in (('container_env', list(self.cfg.get_ref('container_env'))),
                             ('image_root_variable', [root_variable] if root_variable else [])):
            for name in names:
                if not re.match(r'[A-Za-z_][A-Za-z0-9_]*\Z', name):
                    raise EasyBuildError("Easyconfig parameter '%s': '%s' can't be the name of an environment variable "
                                         "(letters, digits and _ only)", param, name)
        self.check_container_env()
        if self.cfg['image'] == IMAGE_CENTRAL and not self.cfg.get_ref('image_dirs'):
            raise EasyBuildError("Easyconfig parameter 'image' is '%s', so 'image_dirs' should say where it is",
                                 IMAGE_CENTRAL)
        self.check_image_dirs([path for path in self.cfg.get_ref('image_dirs') if not path.startswith('%')])
        entry_point = self.cfg['entry_point']
        if entry_point and not re.match(r'/[A-Za-z0-9_.+/-]+\Z', entry_point):
            raise EasyBuildError("Easyconfig parameter 'entry_point' should be the full path of a program of the image "
                                 "(letters, digits and _ . + - only), found: %s", entry_point)
        self.distributed.check()
        self.check_script_names()
        wrappers = self.cfg.get_ref('wrappers')
        names = wrappers if isinstance(wrappers, (list, tuple)) else [wrappers] if wrappers == WRAPPERS_ALL else [None]
        if not all(isinstance(name, str) and re.match(r'[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z', name) for name in names):
            raise EasyBuildError("Easyconfig parameter 'wrappers' should be '%s' or a list of names of programs, "
                                 "found: %s", WRAPPERS_ALL, wrappers)
        needed = [name for name in names if name in NEEDED_ON_HOST]
        if needed:
            raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' would take the place of the host's, which "
                                 "commands and job scripts need to get into the container. Leave it out; start-shell "
                                 "is the shell of the container.", needed[0])

    def check_sources(self):
        """Each image has a name, in the forms that EasyBuild has for files."""
        sources = self.cfg.get_ref('sources')
        names = [self.source_name(source) for source in sources] if isinstance(sources, (list, tuple)) else [None]
        if not all(isinstance(name, str) for name in names):
            raise EasyBuildError("Easyconfig parameter 'sources' should be a list with the name of an image (a SIF "
                                 "file), found: %s", sources)

    @staticmethod
    def source_name(source):
        """Return the name of a file in 'sources', which may have more to it."""
        if isinstance(source, dict):
            return source.get('filename') or source.get('download_filename')
        return source[0] if isinstance(source, (list, tuple)) and source else source

    def check_sense(self):
        """Stop for what EasyBuild allows and would do something else than is meant."""
        if 'components' in self.cfg:
            raise EasyBuildError("A container can't be a component of a Bundle, which would unpack the image: give it "
                                 "an easyconfig of its own, and name that in 'dependencies'.")
        for param in ('exts_list', 'exts_defaultclass'):
            if self.cfg.get_ref(param):
                raise EasyBuildError("Easyconfig parameter '%s' can't be used: extensions would be built with what is "
                                     "on this machine, not in the container. Packages for the container go into "
                                     "'requirements' (easyblock ContainerVenv).", param)
        if self.cfg['buildininstalldir']:
            raise EasyBuildError("Easyconfig parameter 'buildininstalldir' can't be used: all that is needed only "
                                 "while a container is installed would stay in the installation. To build elsewhere, "
                                 "use 'eb --buildpath'.")

    def check_image_dirs(self, paths):
        """Directories are full paths, or below 'image_root'; no shell reads them."""
        for path in paths:
            if path.startswith(('$', '~')):
                raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is not expanded, write the full path "
                                     "('image_root_variable' is for a directory that a variable names)", path)
            if not path.startswith('/') and not self.cfg.get_ref('image_root'):
                raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is no full path, and there is no "
                                     "'image_root'", path)

    def prepare_step(self, *args, **kwargs):
        """Check what templates have become."""
        super().prepare_step(*args, **kwargs)
        self.check_image_dirs(self.cfg['image_dirs'])

    def check_container_env(self):
        """Stop for values that don't arrive in the container as they are (Lmod 8.6, Environment Modules 5.2)."""
        for name, value in sorted(self.cfg.get_ref('container_env').items()):
            problem = None
            if name in self.MODULE_DECIDES:
                raise EasyBuildError("Easyconfig parameter 'container_env': %s is set by the module: %s", name,
                                     self.MODULE_DECIDES[name])
            if re.search(r'[\x00-\x1f\x7f]', str(value)):
                problem = "should be one line without control characters, modules tools can't set it"
            elif re.search(r'(^|:)~', str(value)):
                problem = "begins with '~', which is the home directory with some modules tools: write the full path"
            elif self.module_generator.SYNTAX == 'Tcl' and isinstance(self.modules_tool, Lmod) and \
                    re.search(r'[^\x20-\x7e]|^ | $', str(value)):
                problem = "can't be set by Lmod from a module in Tcl (only ASCII, no blank at its ends): use Lua"
            if problem:
                raise EasyBuildError("Easyconfig parameter 'container_env': the value of %s %s: %r", name, problem,
                                     value)

    def check_script_names(self):
        """More names are for scripts that there are, in the directory where these are."""
        names = self.cfg.get_ref('script_names')
        known = self.SCRIPTS + self.PYTHON_SCRIPTS + self.NAMED_SCRIPTS
        known = [script for script in known if script.startswith(('bin/', 'runscripts/'))]
        for new, script in names.items():
            if script not in known or not re.match(r'%s/[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z' % os.path.dirname(script), new):
                raise EasyBuildError("Easyconfig parameter 'script_names': '%s' can't be another name of '%s' (known, "
                                     "in the same directory: %s)", new, script, ', '.join(known))

    # --- what follows from the easyconfig alone, also with --module-only

    @property
    def image_name(self):
        """File name of the image."""
        sources = self.cfg['sources']
        if not sources:
            return '%s-%s.sif' % (self.name, self.version)
        return os.path.basename(self.source_name(sources[0]))

    @property
    def image_path(self):
        """Path of the installation's own copy of the image."""
        return os.path.join(self.installdir, self.image_name)

    @property
    def variable_suffix(self):
        """The name of the software as EasyBuild spells it in variables (SIF<NAME>), always legal there."""
        return re.sub(r'[^A-Z0-9_]', '_', convert_name(self.name, upper=True))

    @property
    def conda_env(self):
        """Name of the Conda environment in the image."""
        return self.cfg['conda_env'] or self.name.lower()

    @property
    def scripts(self):
        """The commands and run scripts of this installation, relative to it: the name of each, and which file it is."""
        names = self.SCRIPTS + ([] if self.cfg['init'] == INIT_NONE else self.PYTHON_SCRIPTS)
        return dict({name: name for name in names}, **self.cfg['script_names'])

    def image_search_path(self):
        """Directories that go first on PATH in the container for the image's environment to be active."""
        if self.cfg['init'] not in INIT_CONDA:
            return []
        root = self.cfg['conda_root']
        return [os.path.join(root, 'envs', self.conda_env, 'bin'), os.path.join(root, 'condabin')]

    def image_environment(self):
        """Variables that activation of the image's environment would set, apart from PATH."""
        if self.cfg['init'] not in INIT_CONDA:
            return {}
        root = self.cfg['conda_root']
        return {
            'CONDA_DEFAULT_ENV': self.conda_env,
            'CONDA_EXE': os.path.join(root, 'bin', 'conda'),
            'CONDA_PREFIX': os.path.join(root, 'envs', self.conda_env),
            'CONDA_PYTHON_EXE': os.path.join(root, 'bin', 'python'),
            'CONDA_SHLVL': '1',
        }

    def activation_environment(self):
        """Variables the module sets in the container, whatever it finds on the node."""
        # nothing may leak from the user's ~/.local into the image, and nothing of pip's may land there
        variables = {'PYTHONNOUSERSITE': '1', 'PIP_USER': '0'}
        if self.cfg['init'] == INIT_CONDA_INJECTED:
            variables.update(self.image_environment())
        if self.cfg['init'] != INIT_CONDA_MANUAL:
            # old job scripts run `$WITH_CONDA`; it has to stay a command, and there is nothing left to do for it
            variables.update({'WITH_CONDA': 'true', 'WITH_VENV': 'true', 'WITH_CONDA_VENV': 'true'})
        return variables

    def container_environment(self):
        """Variables in the container: those of the module, and what the easyconfig has for 'container_env'."""
        variables = self.activation_environment()
        variables.update({name: str(value) for name, value in self.cfg['container_env'].items()})
        return variables

    def container_search_path(self):
        """Directories the module puts first on PATH in the container, in order."""
        path = ['/runscripts']
        if self.cfg['init'] == INIT_CONDA_INJECTED:
            path += self.image_search_path()
        return path

    def recorded(self, key, default):
        """Return what the lock says: that of this installation, or with --module-only that of the one that is there."""
        if key not in self.lock and os.path.exists(self.lock_path):
            return InstallRecord.from_file(self.lock_path).get(key, default)
        return self.lock.get(key, default)

    # --- the description of the module

    def make_module_description(self):
        """The help text, with what is particular to this container."""
        usage = self.cfg['usage']
        # EasyBuild fills templates in it: these texts have theirs filled already
        self.cfg['usage'] = re.sub(r'%(?=%*\()', '%%', '\n\n'.join(([usage] if usage else []) + self.help_sections()))
        try:
            return super().make_module_description()
        finally:
            self.cfg['usage'] = usage

    def help_sections(self):
        """What the help text says of this container (list of str)."""
        sections = [
            "The image is %s, $SIF. Run a command in it:\n\n    singularity exec $SIF COMMAND\n\n"
            "Or use these commands: %s." % (self.image_name, ', '.join(sorted(self.commands)))]
        if self.wrappers:
            sections.append("These run in the container by themselves: %s." % ', '.join(self.wrappers))
        if self.cfg['init'] == INIT_CONDA_MANUAL:
            # in single quotes: the variable has its value in the container only
            sections.append("Its Conda environment is activated in the container:\n\n"
                            "    singularity exec $SIF bash -c '$WITH_CONDA; python --version'")
        sections.append("Variables: SIF, SIF%s (the image), CONTAINERROOT (the installation), RUNSCRIPTS, RUNSCRIPTS%s "
                        "(run scripts,\n/runscripts in the container). Binds of your own go to APPTAINER_BIND or "
                        "SINGULARITY_BIND." % (self.variable_suffix, self.variable_suffix))
        if self.masks:
            sections.append('\n'.join(['Files of the image that are masked in the container:'] +
                                      [' - ' + line for line in self.masks.lines]))
        sections += ["Warning: %s" % text for text in self.cfg['warnings']]
        if self.cfg['support_level']:
            sections.append("Support: %s" % self.cfg['support_level'])
        return sections

    @property
    def commands(self):
        """Names of the commands of this installation (list of str)."""
        return [os.path.basename(script) for script in self.scripts if script.startswith('bin/')]

    @property
    def wrappers(self):
        """Names of the programs of the container that are commands of this installation (list of str)."""
        return self.recorded('wrappers', [])

    def make_extension_list(self, *args, **kwargs):
        """The packages in the container, so that `module spider PACKAGE` finds the module: (name, version) of each."""
        pins = dict(line.split('==', 1) for key in LISTED_PACKAGES[self.cfg['listed_packages']]
                    for line in self.recorded(key, []))
        return super().make_extension_list(*args, **kwargs) + sorted(pins.items())

    # --- what the module does

    def make_module_dep(self, *args, **kwargs):
        """Dependencies, and the modules that can't be loaded beside this one."""
        module = ModuleSyntax.for_syntax(self.module_generator.SYNTAX, self.installdir)
        conflicts = ''.join(module.conflict(name) for name in self.cfg['conflicts'])
        return super().make_module_dep(*args, **kwargs) + conflicts

    def make_module_extra(self, *args, **kwargs):
        """What the module does for the container, see the description of the class."""
        module = ModuleSyntax.for_syntax(self.module_generator.SYNTAX, self.installdir)
        return ''.join([
            super().make_module_extra(*args, **kwargs), '\n',
            self.module_alone(module), '\n',
            self.module_image(module), '\n',
            self.module_binds(module), '\n',
            self.module_masks(module),
            self.module_environment(module),
            self.module_gpu(module),
            self.distributed.module(module),
            self.module_packages(),
        ])

    def module_packages(self):
        """Statements that list the packages in EBEXTSLIST<NAME>, which EasyBuild has for 'exts_list' alone."""
        # with 'extension_name' it writes them itself, all that make_extension_list returns
        listed = self.make_extension_list() and not self.cfg.get('extension_name')
        return '\n' + self.make_module_extra_extensions() if listed else ''

    def module_alone(self, module):
        """Statements that see to it that no other container module is loaded: both set the same variables."""
        other = module.fail_on_load(
            "The container module ", 'other_module', " is loaded, and only one can be. Replace it: `module unload ",
            'other_module', "`, then `module load %s`." % self.short_mod_name)
        if self.cfg['one_container'] == REPLACE:
            other = module.unload_on_load('other_module')
        return ''.join([
            module.comment('One container at a time.'),
            module.declare_from_environment('other_module', 'CONTAINER_MODULE', ''),
            module.when(module.is_loaded('other_module'), other), '\n',
            module.comment('What a person has set before comes first where it can, and is there again afterwards.'),
            module.functions,
            module.setenv('CONTAINER_MODULE', self.short_mod_name),
        ])

    def module_image(self, module):
        """Statements that find the image and say where everything is."""
        central = [os.path.join(path, self.image_name) for path in self.cfg['image_dirs']]
        own = [self.image_path] if self.cfg['image'] == IMAGE_OWN else []
        # texts and variables in turn; not the word None, in which a check of EasyBuild sees a mistake
        looked_at = ["The image of this container is gone: there is no copy on this node. Looked for: "]
        for number, path in enumerate(own + central):
            looked_at[-1] += ', ' if number else ''
            if path.startswith('/'):
                looked_at[-1] += path
            else:
                looked_at += ['image_root', '/' + path]
        looked_at[-1] += ". If you removed your own copy, the site has removed its copy as well, or it never had " \
            "one: install the module again with eb."
        choose = module.fail_on_load(*looked_at)
        for path in reversed(own + central):
            if path.startswith('/'):
                choose = module.when(module.is_file(path), module.assign('container_image', path), choose)
            else:
                choose = module.when(module.is_file_below('image_root', path),
                                     module.assign_below('container_image', 'image_root', path), choose)
        runscripts = os.path.join(self.installdir, 'runscripts')
        suffix = self.variable_suffix
        root = ''
        if self.cfg['image_root']:
            root = module.declare('image_root', self.cfg['image_root'])
            if self.cfg['image_root_variable']:
                root = module.declare_from_environment(
                    'image_root', self.cfg['image_root_variable'], self.cfg['image_root'])
        return ''.join([
            module.comment('The image: the own copy, else a central one.'), root,
            module.declare('container_image', ''), choose,
            module.setenv_from('SIF', 'container_image'), module.setenv_from('SIF' + suffix, 'container_image'),
            module.setenv('CONTAINERROOT', self.installdir),
            module.setenv('RUNSCRIPTS', runscripts), module.setenv('RUNSCRIPTS' + suffix, runscripts),
        ])

    def module_binds(self, module):
        """Statements that set the binds: one variable of the module file, added to by what is found."""
        binds = [escape_bind(os.path.join(self.installdir, 'runscripts')) + ':/runscripts']
        text = module.comment('The binds. SINGULARITY_BIND and APPTAINER_BIND are left to the user, and are merged.')
        text += module.declare_list('container_binds', '_BINDPATH', ',')
        for bind in binds + list(self.cfg['binds']):
            text += module.add('container_binds', bind)
        for bind in self.cfg['binds']:
            source = bind_source(bind)
            text += module.when(module.negate(module.exists(source)), module.fail_on_load(
                "This container needs %s, which does not exist on this node. Is the file system mounted?" % source))
        for bind in list(self.cfg['optional_binds']) + self.recorded('library_binds', []):
            text += module.when(module.exists(bind_source(bind)), module.add('container_binds', bind))
        if self.cfg['bind_file']:
            text += module.read_binds('container_binds', self.cfg['bind_file'])
        text += self.module_more_binds(module)
        return text + module.put_both_from('_BINDPATH', 'container_binds')

    def module_more_binds(self, module):
        """Statements that add to container_binds, for easyblocks that derive from this one."""
        return ''

    def module_masks(self, module):
        """Statements that mount the overlay with the masks; an overlay of the user's stays in use."""
        overlay = os.path.join(self.installdir, MASKS)
        if not self.masks:
            return ''
        return module.comment('Files of the image that are masked.') + \
            module.put_list('_OVERLAY', ',', overlay + ':ro') + '\n'

    def module_environment(self, module):
        """Statements that set the environment in the container."""
        text = module.comment('The environment in the container.')
        for name, value in sorted(self.container_environment().items()):
            text += module.container_env(name, value)
        if self.cfg['entry_point']:
            text += module.setenv('CONTAINER_ENTRY_POINT', self.cfg['entry_point'])
        return text + module.put_list('ENV_PREPEND_PATH', ':', ':'.join(self.container_search_path()))

    def module_gpu(self, module):
        """Statements that make the GPU available in the container, where the node has one."""
        if not self.cfg['gpu']:
            return ''
        text = ''
        if self.cfg['gpu_option']:
            option, device = GPU_KINDS[self.cfg['gpu']]
            use = ''.join(module.setenv('%s_%s' % (prefix, option), '1') for prefix in RUNTIME_PREFIXES)
            text = module.comment('The GPU, where there is one; the wrappers look again.')
            text += module.setenv('CONTAINER_GPU', self.cfg['gpu'])
            text += module.where(module.exists(device), use)
        library = self.cfg['gpu_mpi_library']
        if library:
            # without the library MPI refuses to start when it's told to know of GPUs
            aware = module.setenv(GPU_AWARE_VARIABLE, '1') + module.container_env('LD_PRELOAD', library)
            text += module.where(module.exists(library), aware)
        return '\n' + text if text else ''
