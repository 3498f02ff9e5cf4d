##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for installing a container image as a module, implemented as an easyblock.
"""
import hashlib
import os
import re
import sys

from easybuild.easyblocks.generic.containerlock import ContainerLock
from easybuild.easyblocks.generic.containermasks import ContainerMasks
from easybuild.easyblocks.generic.containermodule import ContainerModule
from easybuild.easyblocks.generic.containerreplace import ContainerReplace
from easybuild.easyblocks.generic.containerruntime import RUNTIME_PREFIXES, ContainerRuntime, bind_source, bind_target
from easybuild.easyblocks.generic.containerruntime import escape_bind, escape_value, run_program, runtime_variables
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.tools.build_log import EasyBuildError, dry_run_msg
from easybuild.tools.config import build_option
from easybuild.tools.filetools import adjust_permissions, convert_name, copy_file, mkdir, which
from easybuild.tools.utilities import trace_msg
from easybuild.tools.version import VERSION as EASYBUILD_VERSION

# Who makes Python ready in the image; what the module has to add follows from it.
INIT_IMAGE = 'image'
INIT_CONDA_INJECTED = 'conda-injected'
INIT_CONDA_MANUAL = 'conda-manual'
INIT_VENV_IN_IMAGE = 'venv-in-image'
INIT_NONE = 'none'
INIT_KINDS = (INIT_IMAGE, INIT_CONDA_INJECTED, INIT_CONDA_MANUAL, INIT_VENV_IN_IMAGE, INIT_NONE)
# When a library of the host is bound into the container.
IF_MISSING = 'if_missing'
IF_NEWER = 'if_newer'
LIBRARY_BINDS = (IF_MISSING, IF_NEWER)

INIT_CONDA = (INIT_CONDA_INJECTED, INIT_CONDA_MANUAL)

# Extra binds for this machine, at install time only (certificates, a pip configuration, a folder of wheels).
INSTALL_BIND_VARIABLE = 'EBSIF_INSTALL_BIND'

# The overlay with the masks, in an installation.
MASKS = os.path.join('share', 'ebsif', 'masks.squashfs')

# Prints the path of a library that the image has: in the cache of its loader, on its search path, or at the place
# given. For sh; not every image has ldconfig.
FIND_LIBRARY = r"""
found=$(ldconfig -p 2>/dev/null | while read -r name rest; do
    [ "$name" != "$1" ] || printf '%s\n' "${rest##*=> }"
done | head -n 1)
IFS=:
for folder in $LD_LIBRARY_PATH; do
    [ -n "$found" ] || [ ! -e "$folder/$1" ] || found=$folder/$1
done
[ -n "$found" ] || [ ! -e "$2" ] || found=$2
[ -z "$found" ] || readlink -f "$found"
"""

COPY_BLOCK = 4 * 1024 * 1024  # bytes


class ContainerInstall(ContainerReplace):
    """
    Support for installing one container image (a SIF file) as a module.

    At install: the image named in 'sources' is copied once, links followed, while its SHA256 is taken; the commands
    (bin/) and run scripts (runscripts/) are installed beside it, with no value written into them; where the image
    came from and what it is goes to share/ebsif/lock.json.

    At module load, on the node: the image is the own copy, or else that of the first of 'image_dirs' that has it, or
    else loading fails. SIF, SIF<NAME>, CONTAINERROOT, RUNSCRIPTS, RUNSCRIPTS<NAME>, the binds and the environment of
    the image are set, so that `singularity exec $SIF command` works as it is.
    """

    SCRIPTS = ['bin/start-shell', 'share/ebsif/common.bash']
    PYTHON_SCRIPTS = ['bin/list-packages', 'runscripts/conda-python-simple', 'runscripts/init-conda-venv']

    @staticmethod
    def extra_options(extra_vars=None):
        """Easyconfig parameters specific to container images."""
        extra_vars = ContainerReplace.extra_options(extra_vars)
        extra_vars.update({
            'binds': [[], "Bind mounts that must exist where the module is loaded (source[:target[:options]])", CUSTOM],
            'conda_env': [None, "Name of the Conda environment in the image (default: name in lower case)", CUSTOM],
            'conda_root': ['/opt/miniconda3', "Where Conda is in the image", CUSTOM],
            'container_env': [{}, "Environment variables to set in the container", CUSTOM],
            'image_dirs': [[], "Directories with copies of the image, used in this order when the own copy is "
                               "gone", CUSTOM],
            'init': [INIT_IMAGE, "Who makes Python ready in the image: %s" % ', '.join(INIT_KINDS), CUSTOM],
            'library_binds': [{}, "Bind mounts of libraries of the host, each with 'if_missing' (when the image has "
                                  "none of that name) or 'if_newer' (or has an older one)", CUSTOM],
            'masked_paths': [[], "Files of the image to hide in the container (list of patterns), or to replace "
                                 "(dictionary of patterns and what replaces them)", CUSTOM],
            'optional_binds': [[], "Bind mounts that are made only where their source exists", CUSTOM],
        })
        return extra_vars

    def __init__(self, *args, **kwargs):
        """Check the parameters that can be checked without looking at the machine."""
        super().__init__(*args, **kwargs)
        self.runtime = None
        self.source_image = None
        self.overlays = []
        self.lock = ContainerLock()

        if self.cfg['init'] not in INIT_KINDS:
            raise EasyBuildError("Unknown value for easyconfig parameter 'init': '%s' (known: %s)",
                                 self.cfg['init'], ', '.join(INIT_KINDS))
        for param in ('binds', 'optional_binds', 'image_dirs'):
            value = self.cfg.get_ref(param)
            if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
                raise EasyBuildError("Easyconfig parameter '%s' should be a list of strings, found: %s", param, value)
        ContainerMasks(self.cfg.get_ref('masked_paths'))
        library_binds = self.cfg.get_ref('library_binds')
        if not isinstance(library_binds, dict) or not all(value in LIBRARY_BINDS for value in library_binds.values()):
            raise EasyBuildError("Easyconfig parameter 'library_binds' should be a dictionary of bind mounts, each "
                                 "with '%s', found: %s", "' or '".join(LIBRARY_BINDS), library_binds)
        for name in self.cfg.get_ref('container_env'):
            if not re.match(r'[A-Za-z_][A-Za-z0-9_]*\Z', name):
                raise EasyBuildError("Easyconfig parameter 'container_env': '%s' can't be the name of an environment "
                                     "variable (letters, digits and _ only)", name)

        # nothing in an installation is there to be compiled against or linked with from outside the container
        for variable in list(self.module_load_environment.as_dict):
            if variable != 'PATH':
                self.module_load_environment.remove(variable)
        self.module_load_environment.PATH = ['bin']
        self.masks = ContainerMasks(self.cfg['masked_paths'])

    # --- what follows from the easyconfig alone, also with --module-only

    @property
    def image_name(self):
        """File name of the image."""
        sources = self.cfg['sources']
        if not sources:
            return '%s-%s.sif' % (self.name, self.version)
        source = sources[0]
        if isinstance(source, dict):
            source = source.get('filename') or source.get('download_filename')
        elif isinstance(source, (list, tuple)):
            source = source[0]
        return os.path.basename(source)

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
        """The commands and run scripts of this installation, relative to it."""
        return self.SCRIPTS + ([] if self.cfg['init'] == INIT_NONE else self.PYTHON_SCRIPTS)

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

    def container_environment(self):
        """Variables the module sets in the container, whatever it finds on the node."""
        # nothing may leak from the user's ~/.local into the image, and nothing of pip's may land there
        variables = {'PYTHONNOUSERSITE': '1', 'PIP_USER': '0'}
        if self.cfg['init'] == INIT_CONDA_INJECTED:
            variables.update(self.image_environment())
        if self.cfg['init'] != INIT_CONDA_MANUAL:
            # old job scripts run `$WITH_CONDA`; it has to stay a command, and there is nothing left to do for it
            variables.update({'WITH_CONDA': 'true', 'WITH_VENV': 'true', 'WITH_CONDA_VENV': 'true'})
        variables.update({name: str(value) for name, value in self.cfg['container_env'].items()})
        return variables

    def container_search_path(self):
        """Directories the module puts first on PATH in the container, in order."""
        path = ['/runscripts']
        if self.cfg['init'] == INIT_CONDA_INJECTED:
            path += self.image_search_path()
        return path

    # --- steps

    def fetch_step(self, *args, **kwargs):
        """Find the image."""
        if len(self.cfg['sources']) != 1:
            raise EasyBuildError("Easyconfig parameter 'sources' should name exactly one image (a SIF file), found %d",
                                 len(self.cfg['sources']))
        super().fetch_step(*args, **kwargs)

    def extract_step(self):
        """Nothing to unpack: the image stays where it is until it's copied to the installation directory."""
        for source in self.src:
            source['finalpath'] = self.builddir
            # once: a central link may move while we work, and all of it should be about one image
            self.source_image = os.path.realpath(source['path'])

    def prepare_step(self, *args, **kwargs):
        """Check that the programs that are needed are there, before anything is done."""
        super().prepare_step(*args, **kwargs)
        if self.dry_run or build_option('module_only'):
            return
        self.runtime = ContainerRuntime()
        for path in (self.installdir, self.builddir):
            if self.masks and re.search('[,:]', path):
                raise EasyBuildError("'masked_paths' needs a directory without comma and colon, the container runtime "
                                     "can't mount an overlay from %s", path)
        if self.masks and not which('mksquashfs', log_ok=False, on_error='ignore'):
            raise EasyBuildError("mksquashfs not found on PATH, 'masked_paths' needs it: install the package "
                                 "squashfs-tools, or run eb on a node that has it.")

    def configure_step(self):
        """Start the image once, and decide what depends on what is in it: masks, libraries of the host."""
        if self.dry_run:
            dry_run_msg("Starting the image %s once\n" % self.image_name)
            return
        # a truncated file, or one of another kind, ends here
        self.run_in_container(['true'], image=self.source_image)
        if self.masks:
            self.make_masks()
        self.lock['library_binds'] = [
            bind for bind, kind in sorted(self.cfg['library_binds'].items()) if self.is_library_wanted(bind, kind)]

    def make_masks(self):
        """Find what is masked, and make the overlay that does it."""
        def run(command):
            return self.run_in_container(command, image=self.source_image, hidden=True, split_stderr=True).output

        overlay = os.path.join(self.builddir, os.path.basename(MASKS))
        self.masks.find(run)
        self.masks.pack(overlay, self.builddir, run)
        self.overlays.append(overlay)
        for pattern, found in sorted(self.masks.record.items()):
            trace_msg("masking %s: %d in the image" % (pattern, len(found['paths'])))

    def is_library_wanted(self, bind, kind):
        """Tell whether a library of the host is bound: the image has none of its name, or (if_newer) an older one."""
        source, target = bind_source(bind), bind_target(bind)
        name = os.path.basename(target)
        # what the image's loader would find, and the place where the host's would be
        found = self.run_in_container(['sh', '-c', FIND_LIBRARY, 'sh', name, target], image=self.source_image,
                                      hidden=True, split_stderr=True).output.split('\n')[0]
        wanted = not found
        if found and kind == IF_NEWER:
            host, image = (library_version(path, name) for path in (os.path.realpath(source), found))
            wanted = bool(host and image and image < host)
        trace_msg("%s of the host is %s: the image has %s" % (
            source, 'bound' if wanted else 'not needed', found or 'none'))
        return wanted

    def build_step(self):
        """Nothing to build; what takes part is recorded."""
        if self.dry_run:
            return
        self.lock['module'] = {key: self.cfg[key] for key in ('name', 'version', 'versionsuffix')}
        self.lock['masks'] = self.masks.record
        self.lock['versions'] = {
            'easybuild': str(EASYBUILD_VERSION),
            'ebsif': ebsif_version(),
            'runtime': self.runtime.version,
        }

    def install_step(self):
        """Copy the image and install the scripts."""
        self.install_scripts()
        if self.dry_run:
            dry_run_msg("Copying the image to %s\n" % self.image_path)
            return
        size = os.path.getsize(self.source_image)
        trace_msg("copying %s (%.1f GB)" % (self.source_image, size / 1e9))
        sha256 = copy_with_sha256(self.source_image, self.image_path)
        trace_msg("SHA256 %s" % sha256)
        self.lock['image'] = {
            'file': self.image_name,
            'source': self.src[0]['path'],
            'resolved': self.source_image,
            'size': size,
            'sha256': sha256,
        }
        self.install_additions()
        # last: only a complete installation has one
        self.lock.write(self.lock_path)
        self.write_bill_of_materials()

    def install_additions(self):
        """What is installed besides image and scripts; easyblocks that derive from this one add to it."""
        if self.masks:
            copy_file(os.path.join(self.builddir, os.path.basename(MASKS)), os.path.join(self.installdir, MASKS))

    def recorded(self, key, default):
        """Return what the lock says: that of this installation, or with --module-only that of the one that is there."""
        if key not in self.lock and os.path.exists(self.lock_path):
            return ContainerLock.from_file(self.lock_path).get(key, default)
        return self.lock.get(key, default)

    def write_bill_of_materials(self):
        """Write the CycloneDX file beside the lock, where the command that makes it is installed with EasyBuild."""
        beside_python = os.path.join(os.path.dirname(sys.executable), 'ebsif')
        ebsif = beside_python if os.path.exists(beside_python) else which('ebsif', log_ok=False, on_error='ignore')
        if ebsif:
            run_program([ebsif, 'lock', 'sbom', self.installdir, '--output',
                         os.path.join(os.path.dirname(self.lock_path), 'sbom.cdx.json')], hidden=True)
        else:
            trace_msg("no software bill of materials is written: the command ebsif is not on PATH")

    def install_scripts(self):
        """Copy the scripts from beside the easyblocks; readable and executable for all, whatever the umask."""
        for script in self.scripts:
            target = os.path.join(self.installdir, script)
            mkdir(os.path.dirname(target), parents=True)
            copy_file(os.path.join(container_files(), script), target)
            if not self.dry_run:
                adjust_permissions(target, 0o755, relative=False)

    # --- the container at install time

    def install_environment(self):
        """
        The environment of a command in the container at install time.

        The same installation should come out whoever runs eb, so what the runtime would take from the caller's
        environment is dropped: binds, overlays, injected variables, everything of Python's.
        """
        dropped = runtime_variables(os.environ)
        environment = {key: value for key, value in os.environ.items()
                       if key not in dropped and not key.startswith(('PYTHON', 'CONDA', 'VIRTUAL_ENV'))}
        environment['TMPDIR'] = os.path.join(self.builddir, 'tmp')
        injected = dict(self.container_environment(), **self.image_environment())
        if self.image_search_path():
            injected['PREPEND_PATH'] = ':'.join(self.image_search_path())
        for name, value in injected.items():
            for prefix in RUNTIME_PREFIXES:
                environment['%sENV_%s' % (prefix, name)] = escape_value(value)
        return environment

    def install_binds(self):
        """Binds of a command in the container at install time: the build directory and what the module would bind."""
        missing = [bind for bind in self.cfg['binds'] if not os.path.exists(bind_source(bind))]
        if missing:
            raise EasyBuildError("Required bind mounts don't exist on this machine: %s. List them as 'optional_binds' "
                                 "if the container works without them, or install on a node that has them.",
                                 ', '.join(missing))
        optional = [bind for bind in self.cfg['optional_binds'] if os.path.exists(bind_source(bind))]
        extra = os.environ.get(INSTALL_BIND_VARIABLE)
        libraries = [bind for bind in self.lock.get('library_binds', []) if os.path.exists(bind_source(bind))]
        return [escape_bind(self.builddir)] + list(self.cfg['binds']) + optional + libraries + \
            ([extra] if extra else [])

    def run_in_container(self, command, image, binds=(), environment=None, **kwargs):
        """
        Run a command in the image, away from the user's home directory; see ContainerRuntime.run.

        Parameters
        ----------
        command : list of str
            Program and arguments.
        image : str
            Path of the image.
        binds : sequence of str
            More binds, in the runtime's syntax.
        environment : dict, optional
            More variables of the command.
        kwargs
            For run_shell_cmd.

        Returns
        -------
        RunShellCmdResult

        Raises
        ------
        RunShellCmdError
            If the command fails (EasyBuild shows its output and where the log is).
        """
        home = os.path.join(self.builddir, 'home')
        for path in (home, os.path.join(self.builddir, 'tmp')):
            mkdir(path, parents=True)
        return self.runtime.run(
            command, image=image, home=home, binds=self.install_binds() + list(binds), overlays=self.overlays,
            work_dir=self.builddir,
            env=dict(self.install_environment(), **(environment or {})), **kwargs)

    # --- sanity check and module

    def sanity_check_rpath(self, *args, **kwargs):
        """No RPATH check: what is in an image was linked for that image."""
        self.log.info("RPATH sanity check is not done for container images")
        return []

    def sanity_check_step(self, *args, **kwargs):
        """Check the scripts, and that the loaded module starts a shell in the container."""
        # EasyBuild loads the module into the environment it started with; binds and variables that the caller has for
        # the runtime are no part of what is checked
        for key in runtime_variables(self.initial_environ):
            del self.initial_environ[key]
        kwargs.setdefault('custom_paths', {'files': self.scripts + ['share/ebsif/lock.json'], 'dirs': ['bin']})
        kwargs.setdefault('custom_commands', [self.sanity_check_command])
        super().sanity_check_step(*args, **kwargs)

    @property
    def sanity_check_command(self):
        """A command that works only if module, image and scripts do."""
        if self.cfg['init'] == INIT_NONE:
            return 'start-shell -c true'
        return 'start-shell /runscripts/conda-python-simple --version'

    def make_module_description(self):
        """The help text, with what is particular to this container."""
        usage = self.cfg['usage']
        if self.masks:
            lines = ['Files of the image that are masked in the container:']
            lines += [' - ' + line for line in self.masks.lines]
            self.cfg['usage'] = '\n'.join(([usage, ''] if usage else []) + lines)
        try:
            return super().make_module_description()
        finally:
            self.cfg['usage'] = usage

    def make_module_extra(self, *args, **kwargs):
        """What the module does for the container, see the description of the class."""
        module = ContainerModule.for_syntax(self.module_generator.SYNTAX, self.installdir)
        return ''.join([
            super().make_module_extra(*args, **kwargs), '\n',
            self.module_image(module), '\n',
            self.module_binds(module), '\n',
            self.module_masks(module),
            self.module_environment(module),
        ])

    def module_masks(self, module):
        """Statements that mount the overlay with the masks; an overlay of the user's stays in use."""
        overlay = os.path.join(self.installdir, MASKS)
        if not self.masks:
            return ''
        mount = ''.join(module.prepend_list(prefix + '_OVERLAY', overlay + ':ro') for prefix in RUNTIME_PREFIXES)
        return module.comment('Files of the image that are masked.') + mount + '\n'

    def module_image(self, module):
        """Statements that find the image and say where everything is."""
        central = [os.path.join(path, self.image_name) for path in self.cfg['image_dirs']]
        choose = module.fail_on_load(
            "The image of this container is gone. None of these exists on this node: %s. If you removed your own copy, "
            "the site has removed its copy as well, or it never had one: install the module again with eb."
            % ', '.join([self.image_path] + central))
        for path in reversed(central):
            choose = module.when(module.is_file(path), module.assign('container_image', path), choose)
        runscripts = os.path.join(self.installdir, 'runscripts')
        suffix = self.variable_suffix
        return ''.join([
            module.comment('The image: the own copy, else a central one.'),
            module.declare('container_image', self.image_path),
            module.when(module.negate(module.is_file(self.image_path)), choose),
            module.setenv_from('SIF', 'container_image'), module.setenv_from('SIF' + suffix, 'container_image'),
            module.setenv('CONTAINERROOT', self.installdir),
            module.setenv('RUNSCRIPTS', runscripts), module.setenv('RUNSCRIPTS' + suffix, runscripts),
        ])

    def module_binds(self, module):
        """Statements that set the binds: one variable of the module file, added to by what is found."""
        binds = [escape_bind(os.path.join(self.installdir, 'runscripts')) + ':/runscripts']
        text = module.comment('The binds. SINGULARITY_BIND and APPTAINER_BIND are left to the user, and are merged.')
        text += module.declare('container_binds', ','.join(binds + list(self.cfg['binds'])))
        for bind in self.cfg['binds']:
            source = bind_source(bind)
            text += module.when(module.negate(module.exists(source)), module.fail_on_load(
                "This container needs %s, which does not exist on this node. Is the file system mounted?" % source))
        for bind in list(self.cfg['optional_binds']) + self.recorded('library_binds', []):
            text += module.when(module.exists(bind_source(bind)), module.append('container_binds', ',' + bind))
        text += self.module_more_binds(module)
        for prefix in RUNTIME_PREFIXES:
            text += module.setenv_from(prefix + '_BINDPATH', 'container_binds')
        return text

    def module_more_binds(self, module):
        """Statements that add to container_binds, for easyblocks that derive from this one."""
        return ''

    def module_environment(self, module):
        """Statements that set the environment in the container."""
        text = module.comment('The environment in the container.')
        for name, value in sorted(self.container_environment().items()):
            text += module_container_variable(module, name, value)
        # the modules tools put each in front, so the last one comes first
        for path in reversed(self.container_search_path()):
            for prefix in RUNTIME_PREFIXES:
                text += module.prepend_path(prefix + 'ENV_PREPEND_PATH', path)
        return text


def module_container_variable(module, name, value):
    """Statements that set one variable in the container, for both runtimes."""
    return ''.join(module.setenv('%sENV_%s' % (prefix, name), escape_value(value)) for prefix in RUNTIME_PREFIXES)


def library_version(path, name):
    """Return the version in the file name of a library, libx.so.1.2.3 (tuple of int), None if there is none."""
    found = re.search(r'\.so\.(\d+(?:\.\d+)*)$', path) or re.search(r'\.so\.(\d+(?:\.\d+)*)$', name)
    return tuple(int(number) for number in found.group(1).split('.')) if found else None


def ebsif_version():
    """Return the version of this software (str), which is beside what it installs."""
    with open(os.path.join(container_files(), 'VERSION')) as text:
        return text.read().strip()


def container_files():
    """
    Directory of the scripts that are installed.

    Beside the easyblocks, in a checkout as in an installed package; links are resolved because
    --include-easyblocks links the easyblock into a directory of EasyBuild's.
    """
    easyblocks = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    path = os.path.join(easyblocks, 'container_files')
    if not os.path.isdir(path):
        raise EasyBuildError("The scripts of the container modules are not where they belong, in %s: the easyblock "
                             "was copied without them. Keep 'container_files' beside the directory of the "
                             "easyblock.", path)
    return path


def copy_with_sha256(source, target):
    """
    Copy a file while its SHA256 is taken: an image of tens of gigabytes is read once.

    The target appears whole or not at all: a new file is written beside it, then renamed.

    Returns
    -------
    str
        The SHA256 of what was written, in hexadecimal.

    Raises
    ------
    EasyBuildError
        If reading or writing fails; the message names both files.
    """
    partial = target + '.partial'
    digest = hashlib.sha256()
    try:
        with open(source, 'rb') as image, open(partial, 'wb') as copy:
            for block in iter(lambda: image.read(COPY_BLOCK), b''):
                digest.update(block)
                copy.write(block)
            copy.flush()
            os.fsync(copy.fileno())
        os.rename(partial, target)
    except OSError as err:
        if os.path.exists(partial):
            os.remove(partial)
        raise EasyBuildError("Copying the image %s to %s failed: %s", source, target, err)
    return digest.hexdigest()
