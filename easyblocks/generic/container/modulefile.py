##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What the module of a container does when it is loaded, on the node.
"""
import os

from easybuild.easyblocks.generic.container.distributed import GPU_AWARE_VARIABLE, UNSET_SCRIPT
from easybuild.easyblocks.generic.container.distributed import UNSET_SCRIPT_INSIDE
from easybuild.easyblocks.generic.container.gpus import GPU_KINDS
from easybuild.easyblocks.generic.container.masks import MASKS
from easybuild.easyblocks.generic.container.packages import USER_SOFTWARE
from easybuild.easyblocks.generic.container.runtime import RUNTIME_PREFIXES, bind_source, escape_bind
from easybuild.easyblocks.generic.container.spec import IMAGE_OWN, INIT_CONDA_MANUAL, LISTED_PACKAGES
from easybuild.easyblocks.generic.container.spec import REPLACE
from easybuild.easyblocks.generic.container.usersoftware import DIRECTORY, PLACE_VARIABLE, SQUASHFS

# Variables of the module, and those that change what it does: another module's are no part of a check of this one.
MODULE_VARIABLES = ('CONTAINERROOT', 'EBSIF_ENTRY_POINT', 'EBSIF_LOADED_MODULE', PLACE_VARIABLE)

# What keeps pip and uv from replacing packages of the image by hand: the file in an installation, where the container
# sees it, and the variables that name it.
CONSTRAINTS = os.path.join('runscripts', 'image-constraints.txt')
CONSTRAINTS_VARIABLES = ('PIP_CONSTRAINT', 'UV_CONSTRAINT')


class ModuleFile:
    """
    The part of a module file that is for the container.

    The image is the own copy, or else that of the first of 'image_dirs' that has it, or else loading fails. SIF,
    SIF<NAME>, CONTAINERROOT, RUNSCRIPTS, RUNSCRIPTS<NAME>, the binds, masks and the environment of the image are set,
    so that `singularity exec $SIF command` works as it is.
    """

    def __init__(self, spec, record, module, full_name):
        """
        Keep what it is made from.

        Parameters
        ----------
        spec : ContainerSpec
        record : dict
            The record of the installation: 'wrappers', 'library_binds', 'venv_environment', lists of packages.
        module : ModuleSyntax
            For the syntax of the module file, and the installation directory.
        full_name : str
            Name of the module, as it is loaded.
        """
        self.spec = spec
        self.record = record
        self.module = module
        self.full_name = full_name

    # --- the description

    @property
    def help_sections(self):
        """What the help text says of this container (list of str)."""
        spec = self.spec
        sections = [
            "The image is %s, $SIF. Run a command in it:\n\n    singularity exec $SIF COMMAND\n\n"
            "Or use these commands: %s." % (spec.image_name, ', '.join(sorted(spec.commands)))]
        if self.record.get('wrappers'):
            sections.append("These run in the container by themselves: %s." % ', '.join(self.record['wrappers']))
        if spec.init == INIT_CONDA_MANUAL:
            # in single quotes: the variable has its value in the container only
            sections.append("Its Conda environment is activated in the container:\n\n"
                            "    singularity exec $SIF bash -c '$WITH_CONDA; python --version'")
        sections.append("Variables: SIF, SIF%s (the image), CONTAINERROOT (the installation), RUNSCRIPTS, RUNSCRIPTS%s "
                        "(run scripts,\n/runscripts in the container). Binds of your own go to APPTAINER_BIND or "
                        "SINGULARITY_BIND." % (spec.variable_suffix, spec.variable_suffix))
        if spec.masks:
            sections.append('\n'.join(['Files of the image that are masked in the container:'] +
                                      [' - ' + line for line in spec.masks.lines]))
        sections += ["Warning: %s" % text for text in spec.warnings]
        if spec.support_level:
            sections.append("Support: %s" % spec.support_level)
        return sections

    @property
    def listed_packages(self):
        """The packages in the container that are listed as extensions: (name, version) of each (list of tuple)."""
        pins = dict(line.split('==', 1) for key in LISTED_PACKAGES[self.spec.listed_packages]
                    for line in self.record.get(key, []))
        return sorted(pins.items())

    # --- statements

    @property
    def conflicts(self):
        """Statements for the modules that can't be loaded beside this one."""
        return ''.join(self.module.conflict(name) for name in self.spec.conflicts)

    @property
    def text(self):
        """All other statements."""
        return '\n'.join([
            '', self.alone(), self.image(), self.binds(),
            self.masks() + self.environment() + self.gpu() + self.spec.distributed.module(self.module)])

    def alone(self):
        """Statements that see to it that no other container module is loaded: both set the same variables."""
        spec, module = self.spec, self.module
        other = module.fail_on_load(
            "The container module ", 'other_module', " is loaded, and only one can be. Replace it: `module unload ",
            'other_module', "`, then `module load %s`." % self.full_name)
        if spec.one_container == REPLACE:
            other = module.unload_on_load('other_module')
        return ''.join([
            module.comment('One container at a time.'),
            module.declare_from_environment('other_module', 'EBSIF_LOADED_MODULE', ''),
            module.when(module.is_loaded('other_module'), other), '\n',
            module.comment('What a person has set before comes first where it can, and is there again afterwards.'),
            module.functions,
            module.setenv('EBSIF_LOADED_MODULE', self.full_name),
        ])

    def image(self):
        """Statements that find the image and say where everything is."""
        spec, module = self.spec, self.module
        central = [os.path.join(path, spec.image_name) for path in spec.image_dirs]
        own = [os.path.join(module.root, spec.image_name)] if spec.image == IMAGE_OWN else []
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
        runscripts = os.path.join(module.root, 'runscripts')
        suffix = spec.variable_suffix
        root = ''
        if spec.image_root:
            root = module.declare('image_root', spec.image_root)
            if spec.image_root_variable:
                root = module.declare_from_environment(
                    'image_root', spec.image_root_variable, spec.image_root)
        return ''.join([
            module.comment('The image: the own copy, else a central one.'), root,
            module.declare('container_image', ''), choose,
            module.setenv_from('SIF', 'container_image'), module.setenv_from('SIF' + suffix, 'container_image'),
            module.setenv('CONTAINERROOT', module.root),
            module.setenv('RUNSCRIPTS', runscripts), module.setenv('RUNSCRIPTS' + suffix, runscripts),
        ])

    def binds(self):
        """Statements that set the binds: one variable of the module file, added to by what is found."""
        spec, module = self.spec, self.module
        binds = [escape_bind(os.path.join(module.root, 'runscripts')) + ':/runscripts']
        if spec.unset_variables:
            binds.append(escape_bind(os.path.join(module.root, UNSET_SCRIPT)) + ':%s:ro' % UNSET_SCRIPT_INSIDE)
        text = module.comment('The binds. SINGULARITY_BIND and APPTAINER_BIND are left to the user, and are merged.')
        text += module.declare_list('container_binds', '_BINDPATH', ',')
        for bind in binds + list(spec.binds):
            text += module.add('container_binds', bind)
        for bind in spec.binds:
            source = bind_source(bind)
            text += module.when(module.negate(module.exists(source)), module.fail_on_load(
                "This container needs %s, which does not exist on this node. Is the file system mounted?" % source))
        for bind in list(spec.optional_binds) + self.record.get('library_binds', []):
            text += module.when(module.exists(bind_source(bind)), module.add('container_binds', bind))
        if spec.bind_file:
            text += module.read_binds('container_binds', spec.bind_file)
        text += self.more_binds()
        return text + module.put_both_from('_BINDPATH', 'container_binds')

    def more_binds(self):
        """Statements that add to container_binds: none."""
        return ''

    def masks(self):
        """Statements that mount the overlay with the masks; an overlay of the user's stays in use."""
        spec, module = self.spec, self.module
        overlay = os.path.join(module.root, MASKS)
        if not spec.masks:
            return ''
        return module.comment('Files of the image that are masked.') + \
            module.put_list('_OVERLAY', ',', overlay + ':ro') + '\n'

    def environment(self):
        """Statements that set the environment in the container."""
        spec, module = self.spec, self.module
        text = module.comment('The environment in the container.')
        for name, value in sorted(spec.container_environment.items()):
            text += module.container_env(name, value)
        if spec.entry_point:
            text += module.setenv('EBSIF_ENTRY_POINT', spec.entry_point)
        return text + module.put_list('ENV_PREPEND_PATH', ':', ':'.join(spec.container_search_path))

    def gpu(self):
        """Statements that make the GPU available in the container, where the node has one."""
        spec, module = self.spec, self.module
        if not spec.gpu:
            return ''
        text = ''
        if spec.gpu_option:
            option, device = GPU_KINDS[spec.gpu].option.lstrip('-').upper(), GPU_KINDS[spec.gpu].device
            use = ''.join(module.setenv('%s_%s' % (prefix, option), '1') for prefix in RUNTIME_PREFIXES)
            text = module.comment('The GPU, where there is one; the wrappers look again.')
            text += module.setenv('EBSIF_GPU', spec.gpu)
            text += module.where(module.exists(device), use)
        library = spec.gpu_mpi_library
        if library:
            # without the library MPI refuses to start when it's told to know of GPUs
            aware = module.setenv(GPU_AWARE_VARIABLE, '1') + module.container_env('LD_PRELOAD', library)
            text += module.where(module.exists(library), aware)
        return '\n' + text if text else ''


class VenvModuleFile(ModuleFile):
    """The part of a module file that is for a container with user software, which is looked for at module load."""

    @property
    def help_sections(self):
        """How to add packages, whosever the module is and whether user software is packed or not."""
        return super().help_sections + [
            "Packages of your own: if this module is yours and user-software in it is a directory, add them with pip "
            "in the container,\npack it with make-squashfs and reload the module (unmake-squashfs makes the directory "
            "again). Or begin with a copy:\n\n    mkdir DIRECTORY; export EBSIF_USER_SOFTWARE=$(realpath DIRECTORY); "
            "unmake-squashfs; module load %s" % self.full_name]

    def more_binds(self):
        """User software, as it is found: the SquashFS file wins over the directory."""
        module = self.module
        directory = os.path.join(module.root, DIRECTORY)
        squashfs = os.path.join(module.root, SQUASHFS)
        both = module.when(module.is_dir(directory), module.notice_on_load(
            "There are user-software.squashfs and the directory user-software in %s: the file is used, changes in the "
            "directory are not seen." % module.root))
        choose = module.when(
            module.is_file(squashfs), module.assign('user_software', squashfs) + both,
            module.when(module.is_dir(directory), module.assign('user_software', directory)))
        choose = module.when(
            module.is_dir_below('own_place', DIRECTORY),
            module.assign_below('user_software', 'own_place', DIRECTORY), choose)
        choose = module.when(
            module.is_file_below('own_place', SQUASHFS),
            module.assign_below('user_software', 'own_place', SQUASHFS), choose)
        return ''.join([
            module.comment('User software: the SquashFS file, read-only, else the directory, else none; first that of'),
            module.comment('the place that the user has named.'),
            module.declare_from_environment('own_place', PLACE_VARIABLE, ''),
            self.check_own_place(),
            module.declare('user_software', ''),
            choose,
            module.when(
                module.is_file_at('user_software'),
                module.add_bind('container_binds', 'user_software', ':%s:image-src=/,ro' % USER_SOFTWARE),
                module.when(module.is_set('user_software'),
                            module.add_bind('container_binds', 'user_software', ':' + USER_SOFTWARE))),
            module.setenv_from('EBSIF_MOUNTED_USER_SOFTWARE', 'user_software'),
        ])

    def check_own_place(self):
        """Statements that look at the place that the user has named."""
        module = self.module
        problems = [
            (module.is_relative('own_place'), " is no full path: it would be another directory after `cd`."),
            (module.loses_blank('own_place'), " can't be bound by the container runtime, because of the blank beside a "
                                              "comma or colon: use another directory."),
        ]
        text = ''.join(module.when(condition, module.fail_on_load(PLACE_VARIABLE + "=", 'own_place', problem))
                       for condition, problem in problems)
        return text + module.when(module.is_no_dir('own_place'), module.notice_on_load(
            PLACE_VARIABLE + "=", 'own_place', " is no directory, so the user software of the module is used. Make it "
            "(mkdir), or unset the variable, then unload and load the module."))

    def environment(self):
        """The environment of the image, and what activation of the venv would set where there is user software."""
        spec, module = self.spec, self.module
        # that of the image or the easyconfig with the venv's before it, so it comes first: what is set, is set once
        python_path = ''.join(module.container_env(name, value)
                              for name, value in sorted(self.record.get('venv_environment', {}).items()))
        activated = module.container_env('VIRTUAL_ENV', spec.venv)
        activated += module.container_env('VIRTUAL_ENV_PROMPT', spec.venv_name)
        # a module that is written again may be that of an installation without the file
        constraints = os.path.join(module.root, CONSTRAINTS)
        activated += module.where(module.is_file(constraints), module_constraints(module))
        parts = [super().environment(), module.where(module.is_set('user_software'), activated)]
        if python_path:
            parts.insert(0, module.where(module.is_set('user_software'), python_path))
        return ''.join(parts)


def module_constraints(module):
    """Statements that name the constraints for pip and uv in the container; what a person has set stays in force."""
    text = ''
    for name in CONSTRAINTS_VARIABLES:
        own = 'own_' + name.lower()
        text += module.declare_from_environment(own, name, '') + module.where(
            module.negate(module.is_set(own)), module.container_env(name, '/' + CONSTRAINTS))
    return text
