##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The container-specific part of a module file: everything that is decided at load time, on the node.
"""
import os

from easybuild.easyblocks.generic.container import lockfile
from easybuild.easyblocks.generic.container.activation import INIT_CONDA_MANUAL
from easybuild.easyblocks.generic.container.bindfile import parse_binds
from easybuild.easyblocks.generic.container.distributed import GPU_AWARE_VARIABLE, UNSET_SCRIPT
from easybuild.easyblocks.generic.container.distributed import UNSET_SCRIPT_INSIDE
from easybuild.easyblocks.generic.container.gpus import GPU_KINDS
from easybuild.easyblocks.generic.container.luamodule import LuaModule
from easybuild.easyblocks.generic.container.masks import MASKS
from easybuild.easyblocks.generic.container.parameters import LISTED_PACKAGES, REPLACE
from easybuild.easyblocks.generic.container.runtime import bind_source, escape_bind
from easybuild.easyblocks.generic.container.runtimes import RUNTIME_PREFIXES
from easybuild.easyblocks.generic.container.shellmodule import ShellModule
from easybuild.easyblocks.generic.container.sharedimage import IMAGE_CENTRAL, IMAGE_OWN, IMAGE_REFERENCE, image_places
from easybuild.easyblocks.generic.container.spec import MOUNTERS
from easybuild.easyblocks.generic.container.startenvironment import ENVIRONMENT_FILE, SET_ENVIRONMENT
from easybuild.easyblocks.generic.container.startenvironment import SET_ENVIRONMENT_INSIDE
from easybuild.easyblocks.generic.container.tclmodule import TclModule
from easybuild.easyblocks.generic.container.texts import shown_module
from easybuild.easyblocks.generic.container.usersoftware import USER_SOFTWARE_VARIABLE

# the syntaxes of module generators: EasyBuild's, and ours
SYNTAXES = {'Lua': LuaModule, 'Tcl': TclModule, 'Shell': ShellModule}

# Variables that modules set or read; unset for the sanity check, so that another loaded module doesn't affect it.
MODULE_VARIABLES = ('CONTAINERROOT', 'EBSIF_ACTIVATE', 'EBSIF_ENTRY_POINT', 'EBSIF_LOADED_MODULE', 'EBSIF_OWN_MODULES',
                    USER_SOFTWARE_VARIABLE)

# What the next module must not use if the modules tool has lost this one, because its file was removed for instance.
LEFT_BEHIND = ['EBSIF_ACTIVATE', 'EBSIF_ENTRY_POINT', 'EBSIF_GPU', 'EBSIF_MOUNTED_USER_SOFTWARE', 'EBSIF_OWN_MODULES',
               'APPTAINER_OVERLAY', 'APPTAINERENV_VIRTUAL_ENV', 'APPTAINERENV_VIRTUAL_ENV_PROMPT'] + sorted(
                   'APPTAINER_' + kind.option.lstrip('-').upper() for kind in GPU_KINDS.values())


class ModuleFile:
    """
    The container-specific part of a module file.

    The module uses its own copy of the image, else the first copy found in 'image_dirs'; if there is none, loading
    fails. It sets SIF, SIF<NAME>, CONTAINERROOT, RUNSCRIPTS, RUNSCRIPTS<NAME>, the binds, the masks and the environment
    of the image, so that plain `singularity exec $SIF command` works.
    """

    def __init__(self, spec, record, module, full_name):
        """
        Take what the module file is made from.

        Parameters
        ----------
        spec : ContainerSpec
        record : dict
            The record of the installation: 'wrappers', 'library_binds', 'entry_point_environment',
            'venv_environment', lists of packages.
        module : ModuleSyntax
            Provides the syntax of the module file and the installation directory.
        full_name : str
            Name and version of the module, as in `module load`.
        """
        self.spec = spec
        self.record = record
        self.module = module
        self.full_name = full_name

    # --- the description

    @property
    def help_sections(self):
        """The sections of the help text on this container (list of str)."""
        spec = self.spec
        sections = [
            "The image is %s; $SIF has its full path. To run a command in the container:\n\n"
            "    singularity exec $SIF COMMAND\n\n"
            "The module also provides these commands: %s.\nEach has a --help." % (
                spec.image_name, ', '.join(sorted(spec.commands)))]
        if self.record.get(lockfile.WRAPPERS):
            sections.append("These commands run in the container automatically: %s."
                            % ', '.join(self.record[lockfile.WRAPPERS]))
        if spec.init == INIT_CONDA_MANUAL:
            # in single quotes: the variable has its value in the container only
            sections.append("To activate its Conda environment in the container:\n\n"
                            "    singularity exec $SIF bash -c '$WITH_CONDA; python --version'")
        sections.append("Variables: SIF, SIF%s (the image), CONTAINERROOT (the installation), RUNSCRIPTS, RUNSCRIPTS%s "
                        "(the run scripts,\n/runscripts in the container). Set your own binds in APPTAINER_BIND or "
                        "SINGULARITY_BIND." % (spec.variable_suffix, spec.variable_suffix))
        if spec.caches.places:
            sections.append('\n'.join([
                "Caches of libraries, unless you set the variable yourself:"] + spec.caches.help_lines))
        if self.image_record.get('sha256'):
            sections.append("The SHA256 of the image is %s.%s" % (self.image_record['sha256'], self.sharing))
        if self.image_record.get('source_digest'):
            sections.append("The image comes from %s." % self.image_record['source'])
        if self.image_record.get('verified'):
            sections.append("The image is signed by %s." % ', '.join(self.image_record['verified']))
        if spec.masks:
            sections.append('\n'.join(['Files of the image that are masked in the container:'] +
                                      [' - ' + line for line in spec.masks.lines]))
        sections += ["Warning: %s" % text for text in spec.warnings]
        if spec.support_level:
            sections.append("Support: %s" % spec.support_level)
        return sections

    @property
    def shown_name(self):
        """Name and version of the module for people: a hidden one can be loaded without the dot (str)."""
        return shown_module(self.full_name)

    @property
    def image_record(self):
        """The part of the record on the image (dict)."""
        return self.record.get(lockfile.IMAGE, {})

    @property
    def is_reference(self):
        """Whether the module uses the image where the installation found it."""
        return self.spec.image == self.image_record.get('kind') == IMAGE_REFERENCE

    @property
    def sharing(self):
        """What the help says about an image that isn't the module's own (str)."""
        if not self.is_reference:
            return ''
        owner = self.image_record.get('origin')
        whose = "the image of the module %s" % owner if owner else "an image"
        return "\nThe module has no copy: it uses %s, %s." % (whose, self.image_record['resolved'])

    @property
    def listed_packages(self):
        """The packages in the container that are listed as extensions: (name, version) pairs (list of tuple)."""
        pins = dict(line.split('==', 1) for key in LISTED_PACKAGES[self.spec.listed_packages]
                    for line in self.record.get(key, []))
        return sorted(pins.items())

    # --- statements

    @property
    def conflicts(self):
        """Statements for the modules that can't be loaded together with this one."""
        return ''.join(self.module.conflict(name) for name in self.spec.conflicts)

    # statements for packages that are not those of the record
    changed_packages = ''

    @property
    def text(self):
        """All other statements, which are only for loading and unloading."""
        module = self.module
        return '\n'.join(['', self.alone(), self.mounters(), module.restore_on_unload('\n'.join([
            module.call('forget', *LEFT_BEHIND) + module.setenv('EBSIF_LOADED_MODULE', self.full_name),
            self.image(), self.binds(),
            self.masks() + self.environment() + self.gpu() + self.spec.distributed.module_statements(module)]))])

    def alone(self):
        """Statements that allow only one container module at a time, because all set the same variables."""
        module = self.module
        refusal = (
            "The container module ", 'other_module', " is loaded, and only one can be loaded at a time. To replace it: "
            "`module unload ", 'other_module', "`, then `module load %s`." % self.shown_name)
        return ''.join([
            module.only_one(None if self.spec.one_container == REPLACE else refusal),
            module.comment("The user's own values come first where possible, and unloading restores them."),
            module.functions,
        ])

    def image(self):
        """Statements that find the image and set the paths."""
        spec, module = self.spec, self.module
        kind = spec.image if spec.image == IMAGE_CENTRAL else IMAGE_REFERENCE if self.is_reference else IMAGE_OWN
        places = list(image_places(kind, os.path.join(module.root, spec.image_name), self.image_record.get('resolved'),
                                   [os.path.join(path, spec.image_name) for path in spec.image_dirs]))
        # alternating constants and variables; without the word None, which a check of EasyBuild takes for a mistake
        looked_at = ["The image of this container is missing: no copy was found on this node. Looked for: "]
        for number, path in enumerate(places):
            looked_at[-1] += ', ' if number else ''
            if path.startswith('/'):
                looked_at[-1] += path
            else:
                looked_at += ['image_root', '/' + path]
        looked_at[-1] += self.remedy
        choose = module.fail_on_load(*looked_at)
        for path in reversed(places):
            if path.startswith('/'):
                choose = module.when(module.is_file(path), module.assign('container_image', path), choose)
            else:
                choose = module.when(module.is_file_below('image_root', path),
                                     module.assign_below('container_image', 'image_root', path), choose)
        runscripts = os.path.join(module.root, 'runscripts')
        suffix = spec.variable_suffix
        root = ''
        if spec.image_root:
            root = module.declare('image_root', spec.image_root)
            if spec.image_root_variable:
                root = module.declare_from_environment(
                    'image_root', spec.image_root_variable, spec.image_root)
        return ''.join([
            module.when(module.negate(module.is_dir(runscripts)), module.fail_on_load(
                "The installation %s is missing on this node, or closed to you: ask whoever installed it."
                % module.root)), self.check_settings(),
            module.comment("The image: the module's own copy, else a central one."), root,
            module.declare('container_image', ''), choose, self.notice_of_change(),
            module.add_to_help(module.negate(module.is_set('container_image')), *looked_at),
            module.setenv_from('SIF', 'container_image'), module.setenv_from('SIF' + suffix, 'container_image'),
            module.setenv('CONTAINERROOT', module.root),
            module.setenv('RUNSCRIPTS', runscripts), module.setenv('RUNSCRIPTS' + suffix, runscripts),
        ])

    def check_settings(self):
        """Statements that fail if containers would start without their variables, and pip could replace packages."""
        module, text = self.module, ''
        for name in (SET_ENVIRONMENT, ENVIRONMENT_FILE):
            path = os.path.join(module.root, name)
            text += module.when(module.negate(module.is_file(path)), module.fail_on_load(
                "%s is missing, without which containers lack variables: reinstall the module with `eb --rebuild`."
                % path))
        return text

    @property
    def remedy(self):
        """What to do if there is no image, for the message (str)."""
        if not self.is_reference:
            return ". If you removed your own copy, the site has removed its copy too, or never had one: reinstall " \
                "the module with eb."
        owner = self.image_record.get('origin')
        if owner:
            return ". It is the image of %s, which was removed or has another image now: reinstall that module with " \
                "eb, or this one with `eb --rebuild`." % owner
        return ". This module has no copy: put the image back, or reinstall the module with `eb --rebuild`."

    def notice_of_change(self):
        """Statements that say on load that somebody has replaced or truncated the image (I-03)."""
        module, size = self.module, self.image_record.get('size')
        if size is None:
            return ''
        return module.when(module.has_other_size('container_image', size), module.notice_on_load(
            "The image ", 'container_image', " has changed since %s was installed (it has another size): the packages "
            "of this module may not work with it. Reinstall the module with `eb --rebuild`." % self.shown_name))

    def binds(self):
        """Statements that collect the binds in a variable of the module file and set them."""
        spec, module = self.spec, self.module
        binds = [escape_bind(os.path.join(module.root, 'runscripts')) + ':/runscripts']
        binds.append(escape_bind(os.path.join(module.root, SET_ENVIRONMENT)) + ':%s:ro' % SET_ENVIRONMENT_INSIDE)
        if spec.unset_variables:
            binds.append(escape_bind(os.path.join(module.root, UNSET_SCRIPT)) + ':%s:ro' % UNSET_SCRIPT_INSIDE)
        text = module.comment('Binds. SINGULARITY_BIND and APPTAINER_BIND are left to users; the runtime merges them.')
        text += module.declare_list('container_binds', '_BINDPATH', ',')
        text += ''.join(module.add('container_binds', bind) for bind in binds)
        text += self.add_binds(spec.binds, list(spec.optional_binds) + self.record.get(lockfile.LIBRARY_BINDS, []))
        if spec.bind_file:
            read = module.read_binds('container_binds', spec.bind_file)
            default = self.add_binds(*parse_binds(spec.bind_file_default))
            text += module.when(module.exists(spec.bind_file), read, default) if default else read
        text += self.more_binds()
        return text + module.put_both_from('_BINDPATH', 'container_binds') + module.drop_replaced(
            'container_binds', ['SINGULARITYENV_' + name for name in sorted(spec.start_environment)])

    def add_binds(self, required, optional):
        """Statements that add binds to container_binds; loading fails if the source of a required one is missing."""
        module = self.module
        text = ''.join(module.add('container_binds', bind) for bind in required)
        for source in map(bind_source, required):
            text += module.when(module.negate(module.exists(source)), module.fail_on_load(
                "This container needs %s, which doesn't exist on this node. Is the file system mounted?" % source))
        return text + ''.join(
            module.when(module.exists(bind_source(bind)), module.add('container_binds', bind)) for bind in optional)

    def more_binds(self):
        """Statements that add more binds to container_binds. Derived classes override this."""
        return ''

    def mounters(self):
        """Statements that keep the file systems of containers mounted when a signal reaches all processes of a job."""
        module = self.module
        return module.comment("Programs that mount images, so that signals don't end them.") + ''.join(
            module.call('stand_in', os.path.basename(path), os.path.join(module.root, os.path.dirname(path)))
            for path in MOUNTERS)

    def masks(self):
        """Statements that mount the overlay with the masks; the user's own overlay stays in use."""
        spec, module = self.spec, self.module
        overlay = os.path.join(module.root, MASKS)
        if not spec.masks:
            return ''
        return module.comment('Masked files of the image.') + \
            module.put_list('_OVERLAY', ',', overlay + ':ro') + '\n'

    def environment(self):
        """Statements that set the environment in the container."""
        spec, module = self.spec, self.module
        text = module.comment('The environment in the container; %s sets the rest.' % os.path.basename(SET_ENVIRONMENT))
        for name, value in sorted(spec.own_environment.items()):
            text += module.container_env(name, value)
        if spec.needs_activation:
            text += module.setenv('EBSIF_ACTIVATE', '1')
        if spec.entry_point:
            text += module.setenv('EBSIF_ENTRY_POINT', spec.entry_point)
            for name, value in sorted(self.record.get(lockfile.ENTRY_POINT_ENVIRONMENT, {}).items()):
                if name not in spec.unset_variables and name not in spec.start_environment:
                    text += module.container_env(name, value)
        if spec.own_modules:
            text += module.setenv('EBSIF_OWN_MODULES', spec.own_modules)
        return text + module.put_list('ENV_PREPEND_PATH', ':', ':'.join(spec.container_search_path))

    def gpu(self):
        """Statements that make the GPU available in the container on nodes that have one."""
        spec, module = self.spec, self.module
        if not spec.gpu:
            return ''
        text = ''
        if spec.gpu_option:
            option, device = GPU_KINDS[spec.gpu].option, GPU_KINDS[spec.gpu].device
            use = ''.join(module.setenv('%s_%s' % (prefix, option.lstrip('-').upper()), '1')
                          for prefix in RUNTIME_PREFIXES)
            text = module.comment('GPU support if there is a GPU here; wrappers check again where they run.')
            text += module.setenv('EBSIF_GPU', '%s %s' % (option, device))
            text += module.where(module.exists(device), use)
        library = spec.gpu_mpi_library
        if library:
            # MPI refuses to start if it's told to be GPU-aware, but the library is missing
            aware = module.setenv(GPU_AWARE_VARIABLE, '1') + module.container_env('LD_PRELOAD', library)
            text += module.where(module.exists(library), aware)
        return '\n' + text if text else ''
