##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The easyconfig parameters of the two easyblocks: a row for each, with its default value, what it is for, and its check.

Checks are made before anything is done, when values may still contain unresolved templates. Each error names the
parameter, the value and the valid ones.
"""
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Union

from easybuild.framework.easyconfig.easyconfig import EasyConfig
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.utilities import nub

from .credentials import REMEDY, Credentials
from .framework import EasyBuildExit
from .host import libraries, programs
from .host.loader import ItemCheck, lists_problem
from .image.source import ImageSource, source_name
from .scripts import NEEDED_ON_HOST
from .record.lockfile import IMAGE_CENTRAL, IMAGE_KINDS, IMAGE_OWN
from .masks import mask_problem
from .requirements import lock_of
from .schedulers import SCHEDULERS
from .stages import PipStage
from .system.packages import SystemRequest
from .sitevalues import CONDA_ROOT, GPU_KINDS, GPU_VISIBILITY, INIT_IMAGE, INIT_KINDS, INIT_NONE, NODE, STRIPING
from .sitevalues import place_problem, template_problem
from .values import FLAG, LISTED, NAME_PART, SETTINGS_OR_NONE, TEXT, TEXTS, VARIABLES, VARIABLES_OR_NONE, Setting
from .values import bind_problem, is_of_kind, parse_binds, root_parts, value_problem, variable_problem, with_value
from .written import is_command

# What happens at load if another container module is loaded.
REFUSE = 'refuse'
REPLACE = 'replace'
ONE_CONTAINER = (REFUSE, REPLACE)

# Packages that a module lists as extensions, with their keys in the installation's record.
LISTED_PACKAGES = {
    'all': ('image_packages', 'venv_packages'), 'user_software': ('venv_packages',), 'none': ()}

# Value of 'wrappers': every program of the venv.
WRAPPERS_ALL = 'all'

# Full path of a Conda environment.
CONDA_ENVIRONMENT = re.compile(r'/.*/envs/[^/]+\Z')

# Steps of EasyBuild without which nothing is installed, or what is recorded is wrong.
NEEDED_STEPS = ('extract', 'configure', 'build', 'install')

# Kind of parameters that take values of several types, which their check tells apart.
OTHER = ''

# Parameters of EasyBuild that make no sense for containers, and why.
EXTENSIONS = "extensions would be built on the host, not in the container. List packages for the container in " \
    "'requirements' (easyblock ContainerVenv)."
UNUSABLE = {
    'exts_list': EXTENSIONS,
    'exts_defaultclass': EXTENSIONS,
    'multi_deps': "EasyBuild would install the container once for each version. Write one version into 'dependencies'.",
    'buildininstalldir': "temporary files would stay in the installation. To build elsewhere, use 'eb --buildpath'.",
    'keeppreviousinstall': "files of two images would be mixed. What users have added is kept, or set aside, anyway.",
}

# Parameters of earlier versions, which EasyBuild would ignore with a warning, and what to write instead.
FORMER = {
    'optional_binds': "write these binds into 'binds', with '?' before each.",
    'image_root_variable': "write image_root = '${NAME:-DIRECTORY}'.",
    'conda_root': "write the full path of the environment into 'conda_env'.",
    'wheelhouse': "write the directory into 'find_links' of each stage, and '--no-index' into its 'options'.",
    'keep_user_software': "what users have added is always kept or set aside; remove it afterwards.",
    'protect': "list what a stage may replace in its 'allow_replace'.",
    'squashfs_options': "pack again with make-squashfs and its options.",
    'signature': "list the public keys that may sign the image in 'signature_keys'.",
    'one_container_per_node': "remove it; each rank starts its own container.",
    'library_binds': "name these libraries in 'host_libraries' = {'libraries': ['?libNAME.so.1', ...]}; what they need "
                     "comes along if the image lacks it or has it in an older version.",
}

# Returns what is wrong with a value (the rest of a sentence that begins "Easyconfig parameter 'name'"), or None.
Check = Callable[[Any], Optional[str]]


class Compared(NamedTuple):
    """What values of other parameters are compared with."""

    name: str
    bind_file: Optional[str]
    container_env: Dict[str, Setting]
    gpu: Optional[str]
    image_dirs: List[str]
    image_root: Optional[str]
    # whether there is user software; the scripts that can have more names; the variables that the module sets, and why
    has_venv: bool
    scripts: List[str]
    module_decides: Dict[str, str]
    # whether Lmod will read a module in Tcl
    tcl_in_lmod: bool


class Parameter:
    """An easyconfig parameter."""

    KINDS = {bool: FLAG, list: TEXTS, dict: VARIABLES}

    def __init__(self, default: object, text: str, kind: Optional[str] = None, choices: Sequence[Optional[str]] = (),
                 each: Optional[ItemCheck] = None, check: Optional[Check] = None,
                 compare: Optional[Callable[[Any, Compared], Optional[str]]] = None) -> None:
        """
        Store default value, description, kind, all possible values if there is a fixed set, and the checks.

        The kind is the type of values; it follows from the default value unless it is given. None as default value
        allows None. `each` checks single items, `check` a value, `compare` a value with those of other parameters.
        """
        self.default = default
        self.text = text
        self.kind = self.KINDS.get(type(default), TEXT) if kind is None else kind
        self.choices = choices
        self.each = each
        self.check = check
        self.compare = compare

    def type_problem(self, value: object) -> Optional[str]:
        """Return what is wrong with the type of a value, or None."""
        is_default = value is None and self.default is None
        if self.kind == OTHER or is_default or is_of_kind(value, self.kind):
            return None
        return " should be %s, found: %s" % (self.kind, Credentials.mask(value))

    def value_problem(self, value: Any, compared: Compared) -> Optional[str]:
        """Return what is wrong with a value of the right type, or None."""
        if self.choices and value not in self.choices:
            return ": unknown value '%s' (known: %s)" % (value, ', '.join(one for one in self.choices if one))
        return (self.check and self.check(value)) or (self.each and self.item_problem(value, self.each)) or \
            (self.compare and self.compare(value, compared)) or None

    @staticmethod
    def item_problem(items: Iterable[str], each: ItemCheck) -> Optional[str]:
        """Return what is wrong with the first item for which that is the case."""
        problems = ((item, each(item)) for item in ([items] if isinstance(items, str) else items))
        return next((": '%s' %s" % (item, problem) for item, problem in problems if problem), None)


def check_types(parameters: Mapping[str, Parameter], values: Mapping[str, object]) -> None:
    """Raise EasyBuildError for the first value that has a wrong type; `values` also has the sources."""
    for name, parameter in sorted(parameters.items()):
        refuse(name, parameter.type_problem(values[name]))
    refuse('sources', sources_problem(values['sources']))


def check_values(parameters: Mapping[str, Parameter], values: Mapping[str, object], compared: Compared) -> None:
    """Raise EasyBuildError for the first invalid value; all have the right type."""
    for name, parameter in sorted(parameters.items()):
        refuse(name, parameter.value_problem(values[name], compared))


def refuse(name: str, problem: Optional[str]) -> None:
    """Raise EasyBuildError for a problem of a parameter, if there is one."""
    if problem:
        raise EasyBuildError("Easyconfig parameter '%s'%s", name, problem)


# --- the parts of an easyconfig that are not parameters of our easyblocks


def check_easyconfig(cfg: EasyConfig) -> None:
    """Raise EasyBuildError for credentials, and for what EasyBuild allows but makes no sense for containers."""
    # the raw text includes comments, what is written the variables of the easyconfig
    written = cfg.parser.get_config_dict()
    secrets = Credentials.find(cfg.rawtxt) or Credentials.find({**written, **cfg.asdict()})
    if secrets:
        raise EasyBuildError("A credential is written out in the easyconfig: %s. %s", ', '.join(nub(secrets)), REMEDY)
    if 'components' in cfg:
        raise EasyBuildError("A container can't be a component of a Bundle, which would unpack the image: write a "
                             "separate easyconfig for it, and add that to 'dependencies'.")
    for name, why in UNUSABLE.items():
        if cfg.get_ref(name):
            raise EasyBuildError("Easyconfig parameter '%s' can't be used: %s", name, why)
    for name, instead in FORMER.items():
        if name in written:
            raise EasyBuildError("Easyconfig parameter '%s' was removed: %s", name, instead)
    for name, value in cfg.get_ref('modextravars').items():
        if isinstance(value, dict) and value.get('pushenv') and value.get('resolve_env_vars') is False and \
                '$' in str(value['value']):
            raise EasyBuildError("Easyconfig parameter 'modextravars': the value of %s contains '$', which kernels and "
                                 "with-module would replace: leave out 'pushenv', or '$'.", name)
    for name, value in cfg.get_ref('modextrapaths').items():
        if isinstance(value, dict) and value.get('delimiter', ':') != ':':
            raise EasyBuildError("Easyconfig parameter 'modextrapaths': the delimiter of %s can only be ':', because "
                                 "kernels and with-module set it, too. Use 'modextravars'.", name)
    if re.search(r'[\r\n]', ''.join(map(str, cfg.get_ref('modextravars').values()))):
        raise EasyBuildError("Easyconfig parameter 'modextravars': a value has a line break, which the settings of the "
                             "module can't have: %r", cfg.get_ref('modextravars'))
    refuse('modextravars', backslash_problem(cfg.get_ref('modextravars')))
    skipped = [step for step in NEEDED_STEPS if step in cfg['skipsteps']]
    if skipped:
        raise EasyBuildError("Easyconfig parameter 'skipsteps': a container can't be installed without the step '%s'.",
                             skipped[0])


def sources_problem(sources: object) -> Optional[str]:
    """Check that each source has a file name, in one of EasyBuild's formats."""
    names = [source_name(source) for source in sources] if isinstance(sources, (list, tuple)) else [None]
    if all(isinstance(name, str) for name in names):
        return None
    return " should be a list with the name of an image (a SIF file), found: %s" % sources


def check_one_source(sources: Sequence[object]) -> None:
    """Raise EasyBuildError unless the easyconfig parameter 'sources' names one image, as soon as one is needed."""
    if len(sources) != 1:
        raise EasyBuildError("Easyconfig parameter 'sources' must name exactly one image (a SIF file), found %d",
                             len(sources), exit_code=EasyBuildExit.EASYCONFIG_ERROR)


# --- checks of items


def alias_problem(alias: str) -> Optional[str]:
    """Return why a text can't be the version of a module, as an alias is."""
    return None if re.fullmatch(NAME_PART, alias) else \
        "can't be the version of a module (letters, digits and _ . + - only)"


def bind_line_problem(line: str) -> Optional[str]:
    """Return what is wrong with a line with a bind, which may be marked as optional."""
    return next(filter(None, (bind_problem(bind) for kind in parse_binds([line]) for bind in kind)), None)


def constraint_problem(line: str) -> Optional[str]:
    """Return why a line is no exact version."""
    return None if re.match(r'[\w.-]+==[^\s;,*]+\Z', line) else "should be a name and an exact version, name==version"


def image_dir_problem(path: str) -> Optional[str]:
    """Return why a path can't lead to images: no shell expands it."""
    return "is not expanded, write the full path (or use 'image_root' for a directory named by a variable)" \
        if path.startswith(('$', '~')) else None


def wrapper_problem(name: str) -> Optional[str]:
    """Return why a program of the container can't be a command of the module."""
    return "would hide the host's, which commands and job scripts need to start the container. Leave it out; " \
        "start-shell opens a shell in the container." if name in NEEDED_ON_HOST else None


# --- checks of values


def backslash_problem(variables: Mapping[str, object]) -> Optional[str]:
    """Check the ends of values that modules set as they are: EasyBuild asks modules tools for Python's statements."""
    return next((": the value of %s ends with a backslash, so EasyBuild can't load the module with Environment Modules"
                 % name for name, value in variables.items()
                 if str(value['value'] if isinstance(value, dict) else value).endswith('\\')), None)


def cache_variables_problem(variables: Dict[str, Optional[str]]) -> Optional[str]:
    """Check the places of caches."""
    return Parameter.item_problem([place for place in variables.values() if place is not None], place_problem)


def conda_env_problem(name: Optional[str]) -> Optional[str]:
    """Check the path of a Conda environment."""
    if not name or '/' not in name or CONDA_ENVIRONMENT.match(name):
        return None
    return " should be the name of a Conda environment, or DIRECTORY/envs/NAME, found: %s" % name


def definition_files_problem(paths: Iterable[str]) -> Optional[str]:
    """Check that definition files have different names, since they are kept in one directory."""
    names = [os.path.basename(path) for path in paths]
    return next((" has more than one file named %s: all are kept in one directory. Rename all but one." % name
                 for name in names if names.count(name) > 1), None)


def entry_point_problem(path: Optional[str]) -> Optional[str]:
    """Check the path of a program of the image."""
    if not path or re.match(r'/[A-Za-z0-9_.+/-]+\Z', path):
        return None
    return " should be the full path of a program of the image (letters, digits and _ . + - only), found: %s" % path


def host_libraries_problem(value: object) -> Optional[str]:
    """Check the lists of libraries of the host, and of where they are."""
    return lists_problem(value, libraries.CHECKS)


def host_programs_problem(value: object) -> Optional[str]:
    """Check the lists of programs of the host, and of what they need."""
    return lists_problem(value, programs.CHECKS)


def image_root_problem(text: Optional[str]) -> Optional[str]:
    """Check the directory, and the variable that may name another one."""
    variable, path = root_parts(text)
    if path and not path.startswith(('/', '%')):
        return " should be a full path, or ${NAME:-DIRECTORY} with one, found: %s" % text
    return variable and Parameter.item_problem([variable], variable_problem)


def image_source_problem(text: Optional[str]) -> Optional[str]:
    """Check where the image can be fetched from, as soon as templates in it have a value."""
    if not text or re.search(r'%\(', text):
        return None
    try:
        digest = ImageSource.parse(text).digest
    except ValueError as err:
        return ": '%s' %s" % (Credentials.mask(text), err)
    if digest:
        return None
    return ": '%s' has no digest, and the tag can change. `ebsif show %s` shows its current digest." % (
        text, text)


def masked_paths_problem(masks: Union[List[str], Dict[str, Optional[str]]]) -> Optional[str]:
    """Check the replacements of masked files."""
    replacements = masks.values() if isinstance(masks, dict) else []
    return Parameter.item_problem([path for path in replacements if path is not None], mask_problem)


def network_env_problem(variables: Dict[str, Setting]) -> Optional[str]:
    """Check values of variables that scripts of bash read as lines."""
    for name, value in with_value(variables).items():
        if not re.match(r'\S(.*\S)?\Z', value):
            return ": the value of %s should be one line, without blanks at its ends, or None to unset it, found: %r" \
                % (name, variables[name])
    return backslash_problem(variables)


def own_modules_problem(name: Optional[str]) -> Optional[str]:
    """Check the name of a variable."""
    return name and Parameter.item_problem([name], variable_problem)


def requirements_problem(requirements: object) -> Optional[str]:
    """Check the stages (their errors name the stage), or the lock to repeat."""
    if isinstance(requirements, dict) and not lock_of(requirements):
        return ": a dictionary should be {'lock': FILE}, the record of the installation to repeat, and may have its " \
            "user software, 'squashfs': FILE; found: %s" % Credentials.mask(requirements)
    return None if isinstance(requirements, dict) else PipStage.problem(requirements)


def system_packages_problem(value: object) -> Optional[str]:
    """Check the names of packages of the image's system."""
    return SystemRequest(value).problem


def wrappers_problem(wrappers: object) -> Optional[str]:
    """Check that wrappers have valid names."""
    names = wrappers if isinstance(wrappers, (list, tuple)) else [wrappers] if wrappers == WRAPPERS_ALL else [None]
    return None if all(isinstance(name, str) and is_command(name) for name in names) else \
        " should be '%s' or a list of program names, found: %s" % (WRAPPERS_ALL, wrappers)


# --- comparisons with other values


def bind_file_default_problem(lines: List[str], compared: Compared) -> Optional[str]:
    """Check that there is a 'bind_file', whose absence these binds are for."""
    return " has binds for where 'bind_file' doesn't exist: set that too, or use 'binds'" \
        if lines and not compared.bind_file else None


def container_env_problem(variables: Dict[str, Setting], compared: Compared) -> Optional[str]:
    """Check that the module doesn't set the variables itself, and whether their values reach the container."""
    for name in variables:
        if name in compared.module_decides:
            return ": %s is set by the module: %s" % (name, compared.module_decides[name])
    for name, value in sorted(with_value(variables).items()):
        problem = value_problem(value, compared.tcl_in_lmod)
        if problem:
            return ": the value of %s %s: %r" % (name, problem, value)
    return None


def gpu_mpi_library_problem(library: Optional[str], compared: Compared) -> Optional[str]:
    """Check that the library for GPU-aware MPI matches the kind of GPU."""
    if not library:
        return None
    if compared.gpu not in GPU_KINDS:
        return " needs the parameter 'gpu' (known: %s)" % ', '.join(sorted(GPU_KINDS))
    wanted = GPU_KINDS[compared.gpu].mpi_library
    if not library.startswith('/') or not os.path.basename(library).startswith(wanted):
        return ": for the GPU kind '%s' it should be the full path of a %s, found: %s" % (
            compared.gpu, wanted, library)
    if re.search(r'[\s:]', library):
        return " is loaded with LD_PRELOAD, which splits at blanks and colons: use a link without them, found: %r" \
            % library
    if 'LD_PRELOAD' in compared.container_env:
        return " is loaded with LD_PRELOAD, and 'container_env' has a value for that: add the library there instead"
    return None


def host_libraries_clash(value: object, compared: Compared) -> Optional[str]:
    """Check that the easyconfig doesn't set the library path, which begins with these libraries."""
    return " comes first in LD_LIBRARY_PATH, and 'container_env' has a value for that: add its directories to " \
        "'search_path', and leave it out" if value and 'LD_LIBRARY_PATH' in compared.container_env else None


def image_problem(image: str, compared: Compared) -> Optional[str]:
    """Check that a module that uses a central image knows where it is."""
    return " is '%s', so 'image_dirs' must say where the image is" % IMAGE_CENTRAL \
        if image == IMAGE_CENTRAL and not compared.image_dirs else None


def image_dirs_problem(paths: List[str], compared: Compared) -> Optional[str]:
    """Check that directories are full paths, or below 'image_root'; those that begin with a template may become one."""
    return next((": '%s' is not a full path, and 'image_root' is not set" % path
                 for path in paths if not path.startswith(('/', '%')) and not compared.image_root), None)


def init_problem(init: str, compared: Compared) -> Optional[str]:
    """Check that an image with user software has a Python."""
    return " is '%s': an image without Python can't have a venv. Use the easyblock ContainerInstall for it." % init \
        if compared.has_venv and init == INIT_NONE else None


def script_names_problem(names: Dict[str, str], compared: Compared) -> Optional[str]:
    """Check that additional script names refer to existing scripts in the same directory."""
    return next((": '%s' can't be another name of '%s' (known, in the same directory: %s)" % (
        new, script, ', '.join(compared.scripts)) for new, script in names.items()
        if script not in compared.scripts or os.path.dirname(new) != os.path.dirname(script)
        or not is_command(os.path.basename(new))), None)


def venv_name_problem(name: Optional[str], compared: Compared) -> Optional[str]:
    """Check the name of the venv, which may be the default value."""
    name = name or default_name(compared.name)
    return None if re.match(r'[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]\Z', name) else \
        ": '%s' can't be the name of a venv (one directory: letters, digits, '_', '.', '+' and '-')" % name


def default_name(software: str) -> str:
    """Return the name of an environment that the easyconfig doesn't name."""
    return software.lower()


# --- the parameters


CONTAINER_PARAMETERS = {
    'aliases': Parameter(
        [], "Additional versions under which the module can be loaded; a hidden module can always be loaded without "
        "the dot", each=alias_problem),
    'bind_file': Parameter(
        None, "File with more bind mounts, one per line, read when the module is loaded ('?' marks optional ones)"),
    'bind_file_default': Parameter(
        [], "Lines to use where 'bind_file' doesn't exist (default: the module can't be loaded there)",
        each=bind_line_problem,
        compare=bind_file_default_problem),
    'binds': Parameter(
        [], "Bind mounts, source[:target[:options]]; loading fails if a source doesn't exist, unless the bind begins "
        "with '?'", each=bind_line_problem),
    'cache_variables': Parameter(
        {}, "Places of more caches (job/NAME, step/NAME, project/NAME), by the variable that libraries read; None "
        "leaves a variable alone", VARIABLES_OR_NONE, each=variable_problem,
        check=cache_variables_problem),
    'conda_env': Parameter(
        None, "Conda environment in the image: its name in %s, or its full path (default: name in lower case)"
        % os.path.join(CONDA_ROOT, 'envs'), check=conda_env_problem),
    'conflicts': Parameter([], "Modules that can't be loaded together with this one"),
    'container_env': Parameter(
        {}, "Environment variables to set in the container; None unsets a variable there", SETTINGS_OR_NONE,
        each=variable_problem, compare=container_env_problem),
    'definition_files': Parameter(
        [], "Files that the image was built from, kept in share/docker-defs", check=definition_files_problem),
    'entry_point': Parameter(
        None, "Program of the image (full path) through which commands, wrappers and run scripts start programs, to "
        "get the environment that it sets", check=entry_point_problem),
    'gpu': Parameter(
        None, "Kind of GPU: %s" % ', '.join(sorted(GPU_KINDS)), choices=(None,) + tuple(sorted(GPU_KINDS))),
    'gpu_option': Parameter(
        True, "Use the runtime's option for this kind of GPU (--rocm, --nv), which puts libraries of the host before "
        "the image's"),
    'gpu_mpi_library': Parameter(
        None, "Library that makes MPI GPU-aware (GTL), used where it exists", compare=gpu_mpi_library_problem),
    'gpu_visibility': Parameter(
        None, "GPUs that each rank of a distributed run sees: %s (default for ROCm: its own)"
        % ', '.join(GPU_VISIBILITY), choices=(None,) + GPU_VISIBILITY),
    'host_libraries': Parameter(
        {}, "Libraries of the host that the image's programs use, with what they need: {'libraries': [names, paths or "
        "patterns, perhaps followed by 'as NAME' or 'replace'], 'plugins': [directories or patterns of what they open "
        "by path], 'search_path': [directories or patterns]}; '?' before an item allows that the host lacks it", OTHER,
        check=host_libraries_problem, compare=host_libraries_clash),
    'host_programs': Parameter(
        {}, "Programs of the host that work in the container: {'programs': [names or full paths], 'plugins': "
        "[directories or patterns of what they open by path], 'files': [binds of what else they read]}; '?' before an "
        "item allows that the host lacks it", OTHER, check=host_programs_problem),
    'image': Parameter(
        IMAGE_OWN, "The module's image: its 'own' copy, the 'central' one in 'image_dirs', or a 'reference' to the "
        "image of another module", choices=IMAGE_KINDS, compare=image_problem),
    'image_dirs': Parameter(
        [], "Directories with copies of the image, searched in this order if the module has no copy; relative ones are "
        "below 'image_root'", each=image_dir_problem,
        compare=image_dirs_problem),
    'image_packages': Parameter(
        {}, "Python packages that the image must have, with their versions, and python itself; the description of the "
        "module lists them"),
    'image_root': Parameter(
        None, "Parent directory of relative 'image_dirs'; as ${NAME:-DIRECTORY}, an environment variable names "
        "it, if set", check=image_root_problem),
    'image_source': Parameter(
        None, "Where the image is fetched from if it isn't found: oras://, docker://, https:// or oci:, "
        "with its digest", check=image_source_problem),
    'init': Parameter(
        INIT_IMAGE, "How the image's Python environment is activated: %s" % ', '.join(INIT_KINDS), choices=INIT_KINDS,
        compare=init_problem),
    'listed_packages': Parameter(
        'user_software', "Python packages that the module lists as extensions: %s" % ', '.join(LISTED_PACKAGES),
        choices=tuple(LISTED_PACKAGES)),
    'lustre_striping': Parameter(
        STRIPING, "Options of `lfs setstripe` for the image and packed user software on Lustre; an empty list leaves "
        "it to the file system"),
    'masked_paths': Parameter(
        [], "Files of the image to hide in the container (list of patterns), or to replace (dictionary of patterns and "
        "replacements)", LISTED, each=mask_problem, check=masked_paths_problem),
    'network_env': Parameter(
        {}, "Environment variables for the site's network; None unsets a variable in the container", SETTINGS_OR_NONE,
        each=variable_problem, check=network_env_problem),
    'node_caches': Parameter(
        NODE, "Directories on the node for caches that only a job needs: the first one that can be used, with "
        "variables as ${NAME}", each=template_problem),
    'one_container': Parameter(
        REFUSE, "What loading does if another container module is loaded: %s" % ', '.join(ONE_CONTAINER),
        choices=ONE_CONTAINER),
    'own_modules': Parameter(
        None, "The image has its own modules: programs start without the host's modules. Name of a variable that lists "
        "further variables to keep, separated by commas", check=own_modules_problem),
    'project_caches': Parameter(
        [], "Directories on project storage for caches that are kept: the first one that can be used, with variables "
        "as ${NAME}", each=template_problem),
    'scheduler': Parameter(
        None, "Scheduler whose variables distributed runs read: %s (default: any launcher's)" % ', '.join(SCHEDULERS),
        choices=[None] + list(SCHEDULERS)),
    'script_names': Parameter(
        {}, "Additional names of commands and run scripts (new name: existing name, both as bin/NAME or "
        "runscripts/NAME)", compare=script_names_problem),
    'signature_keys': Parameter(
        [], "Files of the public keys that may sign the image; without such a signature, it isn't installed"),
    'support_level': Parameter(None, "How this container is supported, for the help of the module"),
    'system_packages': Parameter(
        [], "Packages of the image's distribution to add as a layer: list of names, or {'packages': [...], "
        "'allow_upgrade': [packages of the image that may get another version]}; NAME=VERSION for a version", OTHER,
        check=system_packages_problem),
    'warnings': Parameter([], "Texts to show at installation and in the help of the module"),
    'wrappers': Parameter(
        [], "Programs of the container and run scripts that become commands of the module (list of names), '%s' for "
        "the programs of the venv" % WRAPPERS_ALL, OTHER, each=wrapper_problem, check=wrappers_problem),
    'wrappers_load': Parameter(
        False, "Wrappers and other commands of the module work without the loaded module (called by their path): they "
        "set up its environment themselves"),
}

VENV_PARAMETERS = {
    'constraints': Parameter(
        [], "Exact versions (name==version) of packages that pip may install, for example the versions of an "
        "earlier installation", each=constraint_problem),
    'keep_packages': Parameter(
        [], "Packages of the image that requirements can't replace, besides those that are compiled or built for the "
        "machine"),
    'requirements': Parameter(
        None, "Python packages to install: the text of a requirements.txt, a list of its lines, a list of stages "
        "(dictionaries), {'lock': FILE} to repeat an installation, or {'lock': FILE, 'squashfs': FILE} to take its "
        "user software as well", OTHER, check=requirements_problem),
    'venv_name': Parameter(
        None, "Name of the venv in /user-software/venv (default: name in lower case)", compare=venv_name_problem),
}
