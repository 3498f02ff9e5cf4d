##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Checks of an easyconfig, before anything is done: each error names the parameter, the value and the valid ones.

Values may still contain unresolved templates.
"""
import os
import re

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.utilities import nub

from .credentials import REMEDY, Credentials
from .framework import EasyBuildExit
from .imagesource import ImageSource, source_name
from .parameters import LIBRARY_BINDS, PROTECT_ALL, WRAPPERS_ALL
from .requirements import lock_of
from .lockfile import IMAGE_CENTRAL
from .stages import Stage
from .tables import GPU_KINDS, INIT_NONE, parse_binds, place_problem, template_problem
from .texts import bind_problem, value_problem, variable_problem
from .valuetypes import TEXTS, is_of_kind
from .install import NEEDED_ON_HOST


def check_container(spec, tcl_in_lmod=False):
    """
    Validate the parameters. Values may still contain unresolved templates.

    Parameters
    ----------
    spec : ContainerSpec
    tcl_in_lmod : bool
        Whether Lmod will read a module in Tcl.

    Raises
    ------
    EasyBuildError
        For the first invalid value; the message names the parameter, the value and the valid ones.
    """
    for name, parameter in sorted(spec.PARAMETERS.items()):
        parameter.check_type(name, getattr(spec, name))
    check_sources(spec)
    check_image_source(spec)
    for name, parameter in sorted(spec.PARAMETERS.items()):
        parameter.check_choice(name, getattr(spec, name))
    spec.masks.check()
    check_binds(spec)
    check_variables(spec, tcl_in_lmod)
    check_image_dirs(spec)
    if spec.entry_point and not re.match(r'/[A-Za-z0-9_.+/-]+\Z', spec.entry_point):
        raise EasyBuildError("Easyconfig parameter 'entry_point' should be the full path of a program of the image "
                             "(letters, digits and _ . + - only), found: %s", spec.entry_point)
    check_network(spec)
    check_gpu_mpi_library(spec)
    check_caches(spec)
    check_aliases(spec)
    check_script_names(spec)
    check_wrappers(spec)
    check_definition_files(spec)


def check_sources(spec):
    """Check that each source has a file name, in one of EasyBuild's formats."""
    sources = spec.sources
    names = [source_name(source) for source in sources] if isinstance(sources, (list, tuple)) else [None]
    if not all(isinstance(name, str) for name in names):
        raise EasyBuildError("Easyconfig parameter 'sources' should be a list with the name of an image (a SIF "
                             "file), found: %s", sources)


def check_image_source(spec):
    """Check where the image can be fetched from, as soon as templates in it have a value."""
    if not spec.image_source or re.search(r'%\(', spec.image_source):
        return
    try:
        digest = ImageSource.parse(spec.image_source).digest
    except ValueError as err:
        raise EasyBuildError("Easyconfig parameter 'image_source': '%s' %s", Credentials.mask(spec.image_source),
                             err)
    if not digest:
        raise EasyBuildError("Easyconfig parameter 'image_source': '%s' has no digest, so it may be another image "
                             "tomorrow. `ebsif inspect %s` shows the one that it has now.", spec.image_source,
                             spec.image_source)


def check_binds(spec):
    """Check the syntax of binds."""
    if not all(value in LIBRARY_BINDS for value in spec.library_binds.values()):
        raise EasyBuildError("Easyconfig parameter 'library_binds' should be a dictionary of bind mounts, each "
                             "with '%s', found: %s", "' or '".join(LIBRARY_BINDS), spec.library_binds)
    if spec.bind_file_default and not spec.bind_file:
        raise EasyBuildError("Easyconfig parameter 'bind_file_default' has binds for where 'bind_file' doesn't "
                             "exist: set that too, or use 'binds' and 'optional_binds'")
    for param in ('binds', 'optional_binds', 'library_binds', 'bind_file_default'):
        binds = getattr(spec, param)
        for bind in sum(parse_binds(binds), []) if param == 'bind_file_default' else binds:
            if bind_problem(bind):
                raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", param, bind, bind_problem(bind))


def check_variables(spec, tcl_in_lmod):
    """Check that variable names are valid, and that modules tools pass the values to the container unchanged."""
    root_variable = spec.image_root_variable
    for param, names in (('container_env', list(spec.container_env)),
                         ('image_root_variable', [root_variable] if root_variable else []),
                         ('own_modules', [spec.own_modules] if spec.own_modules else [])):
        for name in names:
            if variable_problem(name):
                raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", param, name, variable_problem(name))
    for name, value in sorted(spec.container_env.items()):
        if name in spec.MODULE_DECIDES:
            raise EasyBuildError("Easyconfig parameter 'container_env': %s is set by the module: %s", name,
                                 spec.MODULE_DECIDES[name])
        problem = value is not None and value_problem(str(value), tcl_in_lmod)
        if problem:
            raise EasyBuildError("Easyconfig parameter 'container_env': the value of %s %s: %r", name, problem,
                                 value)


def check_network(spec):
    """Check the variables for the site's network."""
    for name, value in spec.network_env.items():
        if variable_problem(name):
            raise EasyBuildError("Easyconfig parameter 'network_env': '%s' %s", name, variable_problem(name))
        if value is not None and not re.match(r'\S(.*\S)?\Z', str(value)):
            raise EasyBuildError("Easyconfig parameter 'network_env': the value of %s should be one line, without "
                                 "blanks at its ends, or None to unset it, found: %r", name, value)


def check_gpu_mpi_library(spec):
    """Check that the library for GPU-aware MPI matches the kind of GPU."""
    library, gpu = spec.gpu_mpi_library, spec.gpu
    if not library:
        return
    if gpu not in GPU_KINDS:
        raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library' needs the parameter 'gpu' (known: %s)",
                             ', '.join(sorted(GPU_KINDS)))
    if not library.startswith('/') or not os.path.basename(library).startswith(GPU_KINDS[gpu].mpi_library):
        raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library': for the GPU kind '%s' it should be the full "
                             "path of a %s, found: %s", gpu, GPU_KINDS[gpu].mpi_library, library)
    if 'LD_PRELOAD' in spec.container_env:
        raise EasyBuildError("Easyconfig parameter 'gpu_mpi_library' is loaded with LD_PRELOAD, and "
                             "'container_env' has a value for that: name the library there instead")


def check_caches(spec):
    """Check the directories and places of caches."""
    for param in ('node_caches', 'project_caches'):
        for template in getattr(spec, param):
            if template_problem(template):
                raise EasyBuildError("Easyconfig parameter '%s': '%s' %s", param, template, template_problem(template))
    for name, place in sorted(spec.cache_variables.items()):
        problem = variable_problem(name)
        if problem:
            raise EasyBuildError("Easyconfig parameter 'cache_variables': '%s' %s", name, problem)
        if place is not None and place_problem(place):
            raise EasyBuildError("Easyconfig parameter 'cache_variables': '%s' %s", place, place_problem(place))


def check_image_dirs(spec):
    """Check that directories are full paths or below 'image_root'; no shell expands them."""
    if spec.image == IMAGE_CENTRAL and not spec.image_dirs:
        raise EasyBuildError("Easyconfig parameter 'image' is '%s', so 'image_dirs' must say where the image is",
                             IMAGE_CENTRAL)
    # paths that begin with a template are checked once it has a value
    for path in [path for path in spec.image_dirs if not path.startswith('%')]:
        if path.startswith(('$', '~')):
            raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is not expanded, write the full path "
                                 "(or use 'image_root_variable' for a directory named by a variable)", path)
        if not path.startswith('/') and not spec.image_root:
            raise EasyBuildError("Easyconfig parameter 'image_dirs': '%s' is not a full path, and 'image_root' is "
                                 "not set", path)


def check_aliases(spec):
    """Check that additional versions are valid names of module files, like the version itspec."""
    wrong = [alias for alias in spec.aliases if not re.match(r'[A-Za-z0-9][A-Za-z0-9_.+-]*\Z', alias)]
    if wrong:
        raise EasyBuildError("Easyconfig parameter 'aliases': '%s' can't be the version of a module (letters, "
                             "digits and _ . + - only)", wrong[0])


def check_script_names(spec):
    """Check that additional script names refer to existing scripts in the same directory."""
    known = spec.SCRIPTS + spec.PYTHON_SCRIPTS + spec.NAMED_SCRIPTS
    known = [script for script in known if script.startswith(('bin/', 'runscripts/'))]
    for new, script in spec.script_names.items():
        if script not in known or not re.match(r'%s/[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z' % os.path.dirname(script), new):
            raise EasyBuildError("Easyconfig parameter 'script_names': '%s' can't be another name of '%s' (known, "
                                 "in the same directory: %s)", new, script, ', '.join(known))


def check_wrappers(spec):
    """Check that wrappers have valid names, and don't hide programs that are needed on the host."""
    wrappers = spec.wrappers
    names = wrappers if isinstance(wrappers, (list, tuple)) else [wrappers] if wrappers == WRAPPERS_ALL else [None]
    if not all(isinstance(name, str) and re.match(r'[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z', name) for name in names):
        raise EasyBuildError("Easyconfig parameter 'wrappers' should be '%s' or a list of program names, "
                             "found: %s", WRAPPERS_ALL, wrappers)
    needed = [name for name in names if name in NEEDED_ON_HOST]
    if needed:
        raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' would hide the host's, which commands and job "
                             "scripts need to start the container. Leave it out; start-shell opens a shell in the "
                             "container.", needed[0])


def check_definition_files(spec):
    """Check that definition files have different names, since they are kept in one directory."""
    names = [os.path.basename(name) for name in spec.definition_files]
    for name in nub(names):
        if names.count(name) > 1:
            raise EasyBuildError("Easyconfig parameter 'definition_files' has more than one file named %s: all are "
                                 "kept in one directory. Rename all but one.", name)


def check_venv(spec):
    """Validate the parameters of a VenvSpec that ContainerSpec doesn't have; see ``check_container``."""
    if spec.init == INIT_NONE:
        raise EasyBuildError("Easyconfig parameter 'init' is '%s': an image without Python can't have a venv. Use "
                             "the easyblock ContainerInstall for it.", INIT_NONE)
    if not isinstance(spec.requirements, dict):
        Stage.from_parameter(spec.requirements)
    elif not lock_of(spec.requirements):
        raise EasyBuildError("Easyconfig parameter 'requirements': a dictionary should be {'lock': FILE}, the "
                             "record of the installation to repeat, and may have its user software, 'squashfs': "
                             "FILE; found: %s",
                             Credentials.mask(spec.requirements))
    wrong = [line for line in spec.constraints if not re.match(r'[\w.-]+==[^\s;,*]+\Z', line)]
    if wrong:
        raise EasyBuildError("Easyconfig parameter 'constraints': '%s' should be a name and an exact version, "
                             "name==version", wrong[0])
    if spec.protect != PROTECT_ALL and not is_of_kind(spec.protect, TEXTS):
        raise EasyBuildError("Easyconfig parameter 'protect' should be '%s' or a list of package names, "
                             "found: %s", PROTECT_ALL, spec.protect)
    if not re.match(r'[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]\Z', spec.venv_name):
        raise EasyBuildError("Easyconfig parameter 'venv_name': '%s' can't be the name of a venv (one directory: "
                             "letters, digits, '_', '.', '+' and '-')", spec.venv_name)


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


def check_one_source(sources):
    """Check that the easyconfig parameter 'sources' names one image, as soon as one is needed."""
    if len(sources) != 1:
        raise EasyBuildError("Easyconfig parameter 'sources' must name exactly one image (a SIF file), found %d",
                             len(sources), exit_code=EasyBuildExit.EASYCONFIG_ERROR)
