##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The easyconfig parameters of the two easyblocks: default values, what they are for, and what values they take.
"""
from easybuild.tools.build_log import EasyBuildError

from . import lockfile
from .credentials import Credentials
from .schedulers import SCHEDULERS
from .lockfile import IMAGE_KINDS, IMAGE_OWN
from .tables import CONDA_ROOT, GPU_KINDS, GPU_VISIBILITY, INIT_IMAGE, INIT_KINDS, NODE, STRIPING
from .valuetypes import FLAG, LISTED, SETTINGS_OR_NONE, TEXT, TEXTS, VARIABLES, VARIABLES_OR_NONE, is_of_kind

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

# Value of 'wrappers': every program of the venv.
WRAPPERS_ALL = 'all'

# Value of 'protect': every package of the image.
PROTECT_ALL = 'all'

# Kind of parameters that take values of several types, and have a check of their own.
OTHER = ''


class Parameter:
    """
    An easyconfig parameter.

    Attributes
    ----------
    default : object
        Its default value; None allows None.
    text : str
        What it is for.
    kind : str
        The type of its values, which follows from the default value unless it is given.
    choices : sequence
        All values that it can have; empty without a fixed set.
    """

    KINDS = {bool: FLAG, list: TEXTS, dict: VARIABLES}

    def __init__(self, default, text, kind=None, choices=()):
        """Take what is known of the parameter."""
        self.default = default
        self.text = text
        self.kind = self.KINDS.get(type(default), TEXT) if kind is None else kind
        self.choices = choices

    def check_type(self, name, value):
        """
        Check the type of a value, which may still contain unresolved templates.

        Raises
        ------
        EasyBuildError
            If it is wrong; the message names the parameter.
        """
        is_default = value is None and self.default is None
        if self.kind != OTHER and not is_default and not is_of_kind(value, self.kind):
            raise EasyBuildError("Easyconfig parameter '%s' should be %s, found: %s", name, self.kind,
                                 Credentials.mask(value))

    def check_choice(self, name, value):
        """Check that a value is one of the choices, if there is a fixed set; raises EasyBuildError."""
        if self.choices and value not in self.choices:
            raise EasyBuildError("Unknown value for easyconfig parameter '%s': '%s' (known: %s)", name, value,
                                 ', '.join(choice for choice in self.choices if choice is not None))


CONTAINER_PARAMETERS = {
    'aliases': Parameter(
        [], "Additional versions under which the module can be loaded; a hidden module can always be loaded without "
        "the dot"),
    'bind_file': Parameter(
        None, "File with more bind mounts, one per line, read when the module is loaded ('?' marks optional ones)"),
    'bind_file_default': Parameter(
        [], "Lines to use where 'bind_file' doesn't exist (default: the module can't be loaded there)"),
    'binds': Parameter([], "Bind mounts, source[:target[:options]]; loading fails if a source doesn't exist"),
    'cache_variables': Parameter(
        {}, "Places of more caches (job/NAME, step/NAME, project/NAME), by the variable that libraries read; None "
        "leaves a variable alone", VARIABLES_OR_NONE),
    'conda_env': Parameter(None, "Name of the Conda environment in the image (default: name in lower case)"),
    'conda_root': Parameter(CONDA_ROOT, "Prefix of the Conda installation in the image"),
    'conflicts': Parameter([], "Modules that can't be loaded together with this one"),
    'container_env': Parameter(
        {}, "Environment variables to set in the container; None unsets a variable there", SETTINGS_OR_NONE),
    'definition_files': Parameter([], "Files that the image was built from, kept in share/docker-defs"),
    'entry_point': Parameter(
        None, "Program of the image (full path) through which commands, wrappers and run scripts start programs, to "
        "get the environment that it sets"),
    'gpu': Parameter(None, "Kind of GPU: %s" % ', '.join(sorted(GPU_KINDS)), choices=[None] + sorted(GPU_KINDS)),
    'gpu_option': Parameter(
        True, "Use the runtime's option for this kind of GPU (--rocm, --nv), which puts libraries of the host before "
        "those of the image"),
    'gpu_mpi_library': Parameter(None, "Library that makes MPI GPU-aware (GTL), used where it exists"),
    'gpu_visibility': Parameter(
        None, "GPUs that each rank of a distributed run sees: %s (default for ROCm: its own)"
        % ', '.join(GPU_VISIBILITY), choices=(None,) + GPU_VISIBILITY),
    'image': Parameter(
        IMAGE_OWN, "The module's image: its 'own' copy, the 'central' one in 'image_dirs', or a 'reference' to that of "
        "another module", choices=IMAGE_KINDS),
    'image_dirs': Parameter(
        [], "Directories with copies of the image, searched in this order if the module has no copy; relative ones are "
        "below 'image_root'"),
    'image_packages': Parameter({}, "Python packages that the image must have, with their versions, and python itself"),
    'image_root': Parameter(None, "Parent directory of relative 'image_dirs'"),
    'image_root_variable': Parameter(None, "Environment variable that overrides 'image_root'"),
    'image_source': Parameter(
        None, "Where the image is fetched from if it isn't found: oras://, docker://, https://, oci:, oci-archive: or "
        "docker-archive:, with its digest"),
    'init': Parameter(
        INIT_IMAGE, "How the image's Python environment is activated: %s" % ', '.join(INIT_KINDS), choices=INIT_KINDS),
    'keep_user_software': Parameter(
        True, "On reinstallation, keep user software and scripts that were changed by hand"),
    'library_binds': Parameter(
        {}, "Host libraries to bind, each 'if_missing' (the image has no library of that name) or 'if_newer' (it has "
        "none, or an older one)"),
    'listed_packages': Parameter(
        'all', "Python packages that the module lists as extensions: %s" % ', '.join(LISTED_PACKAGES),
        choices=tuple(LISTED_PACKAGES)),
    'lustre_striping': Parameter(
        STRIPING, "Options of `lfs setstripe` for the image and packed user software on Lustre; an empty list leaves "
        "it to the file system"),
    'masked_paths': Parameter(
        [], "Files of the image to hide in the container (list of patterns), or to replace (dictionary of patterns and "
        "replacements)", LISTED),
    'network_env': Parameter(
        {}, "Environment variables for the site's network; None unsets a variable in the container", SETTINGS_OR_NONE),
    'node_caches': Parameter(
        NODE, "Directories on the node for caches that only a job needs: the first one that can be used, with "
        "variables as ${NAME}"),
    'one_container': Parameter(
        REFUSE, "What loading does if another container module is loaded: %s" % ', '.join(ONE_CONTAINER),
        choices=ONE_CONTAINER),
    'optional_binds': Parameter([], "Bind mounts that are used only if their source exists"),
    'own_modules': Parameter(
        None, "The image has its own modules: programs start without the host's modules. Name of a variable that lists "
        "further variables to keep, separated by commas"),
    'project_caches': Parameter(
        [], "Directories on project storage for caches that are kept: the first one that can be used, with variables "
        "as ${NAME}"),
    'scheduler': Parameter(
        None, "Scheduler whose variables distributed runs read: %s (default: any launcher's)" % ', '.join(SCHEDULERS),
        choices=[None] + list(SCHEDULERS)),
    'script_names': Parameter(
        {}, "Additional names of commands and run scripts (new name: existing name, both as bin/NAME or "
        "runscripts/NAME)"),
    'signature_keys': Parameter(
        [], "Files of the public keys of those who may sign the image; it isn't installed without their signature"),
    'support_level': Parameter(None, "How this container is supported, for the help of the module"),
    'warnings': Parameter([], "Texts to show at installation and in the help of the module"),
    'wrappers': Parameter(
        [], "Programs of the container and run scripts that become commands of the module (list of names), '%s' for "
        "the programs of the venv" % WRAPPERS_ALL, OTHER),
    'wrappers_load': Parameter(
        False, "Wrappers and other commands of the module work without the loaded module (called by their path): they "
        "set up its environment themselves"),
}

VENV_PARAMETERS = {
    'constraints': Parameter(
        [], "Exact versions (name==version) of packages that pip may install, for example those of an earlier "
        "installation"),
    'protect': Parameter(
        PROTECT_ALL, "Packages of the image that requirements can't replace: '%s', or a list of names" % PROTECT_ALL,
        OTHER),
    'requirements': Parameter(
        None, "Python packages to install: the text of a requirements.txt, a list of its lines, a list of stages "
        "(dictionaries), {'lock': FILE} to repeat an installation, or {'lock': FILE, 'squashfs': FILE} to take its "
        "user software as well", OTHER),
    'squashfs_options': Parameter([], "Options for mksquashfs that replace the default compression"),
    'venv_name': Parameter(None, "Name of the venv in /user-software/venv (default: name in lower case)"),
}
