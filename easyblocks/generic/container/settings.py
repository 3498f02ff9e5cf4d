##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
share/ebsif/module.conf of an installation: what its module decides from, on each node.

Each line is a key and a value; some keys have several lines. files/modulefile/container.lua and container.tcl, and
files/share/ebsif/container.sh read it. Paths that begin with './' are in the installation, so that a copy of it works.

The container sees the file, too: files/share/ebsif/set-environment.sh sets the variables that each container of the
module starts with, and runs files/runscripts/find-caches; conda-python-distributed reads it for ranks. Set by the
module, each variable would be two in the user's environment (SINGULARITYENV_X, APPTAINERENV_X), and setting variables
is what modules tools need most of their time for. Values that users give a container (APPTAINERENV_X) take precedence,
whether they set them before or after loading the module.

| key | value |
|---|---|
| start_reads | (before all other keys) the names of the caller's variables that matter when a container starts |
| start | (before the keys on caches) a variable in each container |
| start_clear | the name of a variable of the image that is not for containers of the module |
| start_file | such a variable with the path of a file: if that exists, unless the caller has another value |
| start_apart | such a variable for containers with a user namespace of their own, unless the caller has a value |
| start_drop | the name of a variable of the caller that is never right in a container |
| start_libraries | a directory at the beginning of LD_LIBRARY_PATH in each container |
| start_path | a directory at the end of PATH in each container |
| start_unset | the name of a variable that no process in the container has |
| cache_reads | (before the other keys on caches) the names of the caller's variables that decide on these |
| cache_job | two variables that identify a job and its step; the first line counts whose first variable is set |
| cache_node, cache_project | a directory on the node, or on project storage, with variables as ${NAME} |
| cache | a variable, the place of this cache, and other variables that decide the same |
| module | name of the module |
| suffix | the software name in SIF<NAME> |
| image | where the image may be; relative paths are below image_root, or the directory that image_root_variable names |
| image_remedy, bind_remedy | what to do if there is no image, or the source of a bind is missing |
| bind | a bind, '?' before optional ones; bind_file: a file with more of them, bind_default: if there is no such file |
| user_software | (if the module has any) options of its bind if it is a SquashFS file |
| mounter | a program by which the runtime mounts images, see share/ebsif/mounter |
| search_path, overlay | search path in the container; overlays over the image, the last one on top |
| set, default | a variable, which replaces the person's, or doesn't; `*` is for APPTAINER and SINGULARITY |
| where | a path (or user_software, if there is any) and a default variable, which is set where that exists |
| one_container | `replace` if the module replaces another container module that is loaded |
| scheduler | the scheduler whose variables ranks read |
| rank_gpu | what ranks need to choose their GPU: the columns from `tool` on in sitevalues.py |
| rank_unset | the name of a variable that ranks unset, because each may have another value |
| wrappers_load | `yes` if commands of the module load it by themselves |
| striping | options of `lfs setstripe`, one in each line, for make-squashfs |
| conflict, needs, expand | EasyBuild's part of the module file, for container.sh |
| path, path_append | the same: a variable, and a path that comes before or after its others |
"""
import errno
import os
import re
from glob import escape, glob
from typing import Any, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.utilities import nub

from .host.libraries import FOLDER
from .host.programs import INSTALLED_WRAPPERS, WRAPPERS
from .masks import MASKS
from .moduleparts import ModuleBinds, ModuleCaches, ModuleCommands, ModuleEnvironment, Gpu, ImageFile, ModuleParts
from .parameters import REPLACE
from .permissions import write_readable, write_whole
from .runtime import escape_value
from .record.lockfile import IMAGE_CENTRAL, IMAGE_OWN, IMAGE_REFERENCE, LAYER, ImageRecord, Record
from .image.installed import image_places
from .schedulers import SCHEDULERS
from .spec import MOUNTERS, SET_ENVIRONMENT
from .sitevalues import ALWAYS, APART, CACHES, CONSTRAINT_VARIABLES, GPU_KINDS, OF_COMMANDS, VARIABLES, kept_out
from .values import MOUNT_SQUASHFS, parse_binds, plain_error

Line = Tuple[str, str]

# The file in an installation, and in the container.
MODULE_CONF = os.path.join('share', 'ebsif', 'module.conf')
MODULE_CONF_INSIDE = '/' + MODULE_CONF

# The path of SET_ENVIRONMENT in the container. The name makes it run after the scripts that set the image's variables,
# and before 99-base.sh, which sets the variables from APPTAINERENV_*.
SET_ENVIRONMENT_INSIDE = '/.singularity.d/env/97-ebsif.sh'

# The visible GPUs may differ between processes of a node, so ranks choose them, and nothing else unsets them.
GPU_SELECTION = re.compile(r'\w+_VISIBLE_DEVICES\Z')

GPU_AWARE_VARIABLE = 'MPICH_GPU_SUPPORT_ENABLED'

# Set by users: a directory on the node, and the directory of all caches (XDG Base Directory Specification).
CACHE_SETTINGS = ('EBSIF_NODE_LOCAL', 'XDG_CACHE_HOME')


def container_lines(parts: ModuleParts, record: Record, module: str) -> Iterator[Line]:
    """Yield the lines on the container; `module` is name and version as in `module load`."""
    start = list(start_lines(parts.environment, record.image_constraints))
    caches = list(cache_lines(parts.caches, parts.scheduler))
    yield 'start_reads', ' '.join(sorted(set(names_read(start + caches))))
    for line in start:
        yield line
    if record.host_libraries.libraries:
        yield 'start_libraries', FOLDER
    if parts.has_host_programs:
        yield 'start_path', WRAPPERS
    for line in caches:
        yield line
    yield 'module', module
    yield 'suffix', parts.suffix
    if parts.one_container == REPLACE:
        yield 'one_container', REPLACE
    for name in MOUNTERS:
        yield 'mounter', name
    for some in (image_lines(parts.image, record.image),
                 bind_lines(parts.binds, record.binds_of_host, parts.has_host_programs),
                 overlay_lines(bool(record.system_layer.sha256), bool(parts.masked_paths)),
                 command_lines(parts.commands, parts.environment.search_path),
                 venv_lines(parts.venv, parts.environment.own, record.venv_environment),
                 environment_lines(parts.environment, parts.commands.entry_point, record.entry_point_environment),
                 gpu_lines(parts.gpu), rank_lines(parts.gpu, parts.scheduler, parts.environment.unset)):
        for line in some:
            yield line


def start_lines(environment: ModuleEnvironment, image_constraints: Collection[str]) -> Iterator[Line]:
    """Yield what containers start with; `image_constraints` are variables of the image that aren't used."""
    for name, value in sorted(environment.start.items()):
        yield 'start', '%s=%s' % (name, value)
    for name in CONSTRAINT_VARIABLES:
        if name in image_constraints:
            yield 'start_clear', name
    for name, path in sorted(environment.start_files.items()):
        yield 'start_file', '%s=%s' % (name, path)
    for name, value in sorted(APART.items()):
        if name not in (*environment.own, *environment.network, *environment.unset):
            yield 'start_apart', '%s=%s' % (name, value)
    for name in kept_out(ALWAYS):
        yield 'start_drop', name
    for name in environment.unset:
        if not GPU_SELECTION.match(name):
            yield 'start_unset', name


def names_read(lines: Iterable[Line]) -> Iterator[str]:
    """Yield the names of the caller's variables that these lines depend on."""
    for key, value in lines:
        if key in ('start_file', 'start_apart', 'start_drop', 'start_unset'):
            yield value.split('=')[0]
        elif key == 'cache_reads':
            for name in value.split():
                yield name


def cache_lines(caches: ModuleCaches, scheduler: Optional[str]) -> Iterator[Line]:
    """Yield where libraries keep their caches."""
    if not caches.places:
        return
    # the site's own scheduler comes first: variables of another scheduler may be inherited
    steps = [step for one in sorted(SCHEDULERS.values(), key=lambda one: one.kind != scheduler)
             for step in one.steps]
    others = {name: CACHES[name].others if name in CACHES else () for name in caches.places}
    templates = list(caches.node) + list(caches.project)
    names = list(CACHE_SETTINGS) + sorted(caches.places) + [name for step in steps for name in step]
    names += [name for more in others.values() for name in more]
    names += [name for template in templates for name in VARIABLES.findall(template)]
    # shells set UID and EUID themselves, and some don't let anybody change them
    yield 'cache_reads', ' '.join(sorted(set(names) - {'UID', 'EUID'}))
    for step in steps:
        yield 'cache_job', ' '.join(step)
    for template in caches.node:
        yield 'cache_node', template
    for template in caches.project:
        yield 'cache_project', template
    for name, place in sorted(caches.places.items()):
        yield 'cache', ' '.join((name, place) + others[name])


def is_reference(image: ImageFile, recorded: ImageRecord) -> bool:
    """Return whether the module uses the image where the installation found it."""
    return image.kind == recorded.kind == IMAGE_REFERENCE


def image_lines(image: ImageFile, recorded: ImageRecord) -> Iterator[Line]:
    """Yield where the image may be."""
    kind = IMAGE_CENTRAL if image.kind == IMAGE_CENTRAL else \
        IMAGE_REFERENCE if is_reference(image, recorded) else IMAGE_OWN
    for path in image_places(kind, './' + image.name, recorded.resolved,
                             [os.path.join(path, image.name) for path in image.dirs]):
        yield 'image', path
    if image.root:
        yield 'image_root', image.root
    if image.root_variable:
        yield 'image_root_variable', image.root_variable
    yield 'image_remedy', image_remedy(kind, recorded.origin)
    for option in image.striping:
        yield 'striping', option


def image_remedy(kind: str, owner: Optional[str]) -> str:
    """Return what to do if there is no image; `owner` is the module whose image it is, if that is another one."""
    if kind == IMAGE_OWN:
        return "If you removed your own copy, the site has removed its copy too, or never had one: reinstall the " \
            "module with eb."
    if owner:
        return "It is the image of %s, which was removed or has another image now: reinstall that module with " \
            "eb, or this one with `eb --rebuild`." % owner
    return "This module has no copy: put the image back. If it was moved, correct its directory in the " \
        "easyconfig, and reinstall the module with `eb --rebuild`."


def bind_lines(binds: ModuleBinds, binds_of_host: List[str], has_host_programs: bool) -> Iterator[Line]:
    """Yield the binds; `binds_of_host` are those of libraries and programs of the host."""
    yield 'bind', './runscripts:/runscripts'
    yield 'bind', './%s:%s:ro' % (MODULE_CONF, MODULE_CONF_INSIDE)
    yield 'bind', './%s:%s:ro' % (SET_ENVIRONMENT, SET_ENVIRONMENT_INSIDE)
    required, optional = parse_binds(binds.lines)
    for bind in required + ['?' + bind for bind in optional + binds_of_host]:
        yield 'bind', bind
    if has_host_programs:
        yield 'bind', './%s:%s:ro' % (INSTALLED_WRAPPERS, WRAPPERS)
    yield 'bind_remedy', "Is the file system mounted? A part of the installation comes back with `eb --rebuild`."
    if binds.file:
        yield 'bind_file', binds.file
    required, optional = parse_binds(binds.file_default)
    for bind in required + ['?' + bind for bind in optional]:
        yield 'bind_default', bind


def overlay_lines(has_layer: bool, has_masks: bool) -> Iterator[Line]:
    """Yield the overlays; the last one is on top: masks may hide what is in the layer."""
    if has_layer:
        yield 'overlay', '/%s:ro' % LAYER
    if has_masks:
        yield 'overlay', '/%s:ro' % MASKS


def command_lines(commands: ModuleCommands, search_path: Sequence[str]) -> Iterator[Line]:
    """Yield what commands of the module do, and where the container finds programs."""
    yield 'set', 'EBSIF_UNSET %s' % ' '.join(kept_out(OF_COMMANDS))
    yield 'search_path', ':'.join(search_path)
    if commands.activates:
        yield 'set', 'EBSIF_ACTIVATE 1'
    if commands.loads:
        yield 'wrappers_load', 'yes'
    if commands.own_modules:
        yield 'set', 'EBSIF_OWN_MODULES %s' % commands.own_modules


def venv_lines(venv: str, own: Mapping[str, str], activated: Mapping[str, str]) -> Iterator[Line]:
    """Yield the variables of user software, if there is any: `activated` are those that its venv sets."""
    if not venv:
        return
    yield 'user_software', MOUNT_SQUASHFS
    prompt = own.get('VIRTUAL_ENV_PROMPT', os.path.basename(venv))
    # the venv's PYTHONPATH extends the image's, so it replaces the easyconfig's
    variables = dict(activated, VIRTUAL_ENV=venv, VIRTUAL_ENV_PROMPT=prompt)
    for name, value in sorted(variables.items()):
        yield 'where', 'user_software ' + in_container(name, value)


def environment_lines(environment: ModuleEnvironment, entry_point: Optional[str],
                      entry_point_environment: Mapping[str, str]) -> Iterator[Line]:
    """Yield the variables of the container, of its entry point, and for the network."""
    for name, value in sorted(environment.own.items()):
        yield 'default', in_container(name, value)
    if entry_point:
        yield 'set', 'EBSIF_ENTRY_POINT %s' % entry_point
        for name, value in sorted(entry_point_environment.items()):
            if name not in environment.unset and name not in environment.start:
                yield 'default', in_container(name, value)
    for name, value in sorted(environment.network.items()):
        yield 'default', '%s %s' % (name, value)


def gpu_lines(gpu: Optional[Gpu]) -> Iterator[Line]:
    """Yield the settings for GPUs, used on nodes that have some; wrappers look again."""
    if gpu and gpu.has_option:
        option, device = GPU_KINDS[gpu.kind].option, GPU_KINDS[gpu.kind].device
        yield 'set', 'EBSIF_GPU %s %s' % (option, device)
        yield 'where', '%s *_%s 1' % (device, option.lstrip('-').upper())
    if gpu and gpu.mpi_library:
        # MPI refuses to start if it's told to be GPU-aware, but the library is missing
        yield 'where', '%s %s 1' % (gpu.mpi_library, GPU_AWARE_VARIABLE)
        yield 'where', '%s %s' % (gpu.mpi_library, in_container('LD_PRELOAD', gpu.mpi_library))


def rank_lines(gpu: Optional[Gpu], scheduler: Optional[str], unset: Sequence[str]) -> Iterator[Line]:
    """Yield the settings for ranks of distributed runs, besides the variables for the network."""
    if scheduler:
        yield 'scheduler', scheduler
    if gpu:
        kind = GPU_KINDS[gpu.kind]
        yield 'rank_gpu', ' '.join(
            [kind.tool, gpu.visibility or kind.visibility, kind.variable, kind.among]).rstrip()
    for name in unset:
        if GPU_SELECTION.match(name):
            yield 'rank_unset', name


def in_container(name: str, value: str) -> str:
    """Return a variable that runtimes set in the container; they evaluate the value in a shell."""
    return '*ENV_%s %s' % (name, escape_value(value))


def constant(value: object, pushes: bool = True) -> Optional[str]:
    """
    Return the value of a variable in 'modextravars' if it refers to no other variable, or must not do so.

    None also if unloading restores the earlier value ('pushenv'), which EasyBuild's statements do where the modules
    tool `pushes`.
    """
    settings = value if isinstance(value, dict) else {'value': value}
    text = str(settings['value'])
    if settings.get('pushenv') and pushes:
        return None
    return text if settings.get('resolve_env_vars') is False or '$' not in text else None


def variable_lines(variables: Mapping[str, object], pushes: bool = True) -> List[Line]:
    """Return lines for 'modextravars': modules set constants, EasyBuild's part of the module file sets the rest."""
    lines = []
    for name, value in variables.items():
        text = value['value'] if isinstance(value, dict) else value
        lines.append(('expand' if constant(value, pushes) is None else 'set', '%s %s' % (name, text)))
    return lines


def path_lines(installdir: str, own: Dict[str, List[str]], extra: Mapping[str, object]) -> List[Line]:
    """Return lines for search paths: `own`, and those in 'modextrapaths' that EasyBuild finds in the installation."""
    lines = [('path', '%s %s' % (name, path)) for name, paths in own.items() for path in paths]
    for name, value in extra.items():
        options: Dict[str, Any] = value if isinstance(value, dict) else {'paths': value}
        patterns = [options['paths']] if isinstance(options['paths'], str) else options['paths']
        key = 'path' if options.get('prepend', True) else 'path_append'
        for pattern in patterns:
            for path in glob(os.path.join(escape(installdir), pattern)):
                # EasyBuild leaves out empty directories, unless it's told not to
                if os.path.isfile(path) or options.get('var_type') == 'PATH' or any(
                        files for _, _, files in os.walk(path)):
                    place = path if os.path.isabs(pattern) else os.path.relpath(path, installdir)
                    lines.append((key, '%s %s' % (name, place)))
    return nub(lines)


def write_settings(installdir: str, lines: Iterable[Line]) -> Optional[str]:
    """Write module.conf; return a warning if it can't, because another account has installed or it is read-only."""
    text = ''
    for key, value in lines:
        if '\n' in value or '\r' in value:
            raise EasyBuildError("%s of the module has a line break, which its settings can't have: %r", key, value)
        text += '%s %s\n' % (key, value)
    path = os.path.join(installdir, MODULE_CONF)
    try:
        write_readable(path, text, write_whole)
    except (EasyBuildError, OSError) as err:
        if isinstance(err, OSError) and err.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return "Can't write %s: the module keeps its earlier settings (%s)" % (path, plain_error(str(err)))
    return None
