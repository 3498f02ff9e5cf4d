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
| start | (before all other keys) a variable in each container |
| start_clear | the name of a variable of the image that is not for containers of the module |
| start_file | such a variable with the path of a file: if that exists, unless the caller has another value |
| start_drop | the name of a variable of the caller that is never right in a container |
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
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.utilities import nub

from .host.programs import INSTALLED_WRAPPERS, WRAPPERS
from .masks import MASKS
from .parameters import REPLACE
from .install import write_readable, write_whole
from .runtime import escape_value
from .record.lockfile import IMAGE_CENTRAL, IMAGE_OWN, IMAGE_REFERENCE, LAYER, ImageRecord, Record
from .image.installed import image_places
from .schedulers import SCHEDULERS
from .spec import MOUNTERS, SET_ENVIRONMENT, ContainerSpec
from .sitevalues import ALWAYS, CACHES, CONSTRAINT_VARIABLES, GPU_KINDS, INIT_NONE, OF_COMMANDS, VARIABLES, kept_out
from .values import MOUNT_SQUASHFS, parse_binds, plain_error, with_value

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


class ModuleSettings:
    """The lines of module.conf, from the specification of a container and the record of its installation."""

    def __init__(self, spec: ContainerSpec, record: Record, module: str) -> None:
        """``module``: name and version as in `module load`."""
        self.spec = spec
        self.record = record
        self.module = module

    @property
    def image_record(self) -> ImageRecord:
        """The part of the record on the image."""
        return self.record.image

    @property
    def is_reference(self) -> bool:
        """Whether the module uses the image where the installation found it."""
        return self.spec.image == self.image_record.kind == IMAGE_REFERENCE

    def lines(self) -> Iterator[Line]:
        """Yield the lines on the container."""
        spec = self.spec
        for name, value in sorted(spec.start_environment.items()):
            yield 'start', '%s=%s' % (name, value)
        for name in CONSTRAINT_VARIABLES:
            if name in self.record.image_constraints:
                yield 'start_clear', name
        for name, path in sorted(spec.start_files.items()):
            yield 'start_file', '%s=%s' % (name, path)
        for name in kept_out(ALWAYS):
            yield 'start_drop', name
        for name in spec.unset_variables:
            if not GPU_SELECTION.match(name):
                yield 'start_unset', name
        if spec.host_programs:
            yield 'start_path', WRAPPERS
        if self.cache_places:
            for line in self.caches():
                yield line
        yield 'module', self.module
        yield 'suffix', spec.variable_suffix
        if spec.one_container == REPLACE:
            yield 'one_container', REPLACE
        for name in MOUNTERS:
            yield 'mounter', name
        for part in (self.image(), self.binds(), self.variables(), self.gpu(), self.ranks()):
            for line in part:
                yield line

    @property
    def cache_places(self) -> Dict[str, str]:
        """The place of each cache by its variable; an image without Python has only the caches of the easyconfig."""
        spec = self.spec
        known = {} if spec.init == INIT_NONE else CACHES
        places: Dict[str, Optional[str]] = {
            name: cache.place for name, cache in known.items() if cache.gpu in (None, spec.gpu)}
        places.update(spec.cache_variables)
        return {name: place for name, place in places.items() if place is not None}

    def caches(self) -> Iterator[Line]:
        """Yield where libraries keep their caches."""
        spec, places = self.spec, self.cache_places
        # the site's own scheduler comes first: variables of another scheduler may be inherited
        steps = [step for one in sorted(SCHEDULERS.values(), key=lambda one: one.kind != spec.scheduler)
                 for step in one.steps]
        others = {name: CACHES[name].others if name in CACHES else () for name in places}
        templates = list(spec.node_caches) + list(spec.project_caches)
        names = list(CACHE_SETTINGS) + sorted(places) + [name for step in steps for name in step]
        names += [name for more in others.values() for name in more]
        names += [name for template in templates for name in VARIABLES.findall(template)]
        # shells set UID and EUID themselves, and some don't let anybody change them
        yield 'cache_reads', ' '.join(sorted(set(names) - {'UID', 'EUID'}))
        for step in steps:
            yield 'cache_job', ' '.join(step)
        for template in spec.node_caches:
            yield 'cache_node', template
        for template in spec.project_caches:
            yield 'cache_project', template
        for name, place in sorted(places.items()):
            yield 'cache', ' '.join((name, place) + others[name])

    def image(self) -> Iterator[Line]:
        """Yield where the image may be."""
        spec = self.spec
        kind = spec.image if spec.image == IMAGE_CENTRAL else IMAGE_REFERENCE if self.is_reference else IMAGE_OWN
        for path in image_places(kind, './' + spec.image_name, self.image_record.resolved,
                                 [os.path.join(path, spec.image_name) for path in spec.image_dirs]):
            yield 'image', path
        variable, root = spec.image_root_parts
        if root:
            yield 'image_root', root
        if variable:
            yield 'image_root_variable', variable
        yield 'image_remedy', self.image_remedy
        for option in spec.lustre_striping:
            yield 'striping', option

    @property
    def image_remedy(self) -> str:
        """What to do if there is no image."""
        if not (self.is_reference or self.spec.image == IMAGE_CENTRAL):
            return "If you removed your own copy, the site has removed its copy too, or never had one: reinstall the " \
                "module with eb."
        owner = self.image_record.origin
        if owner:
            return "It is the image of %s, which was removed or has another image now: reinstall that module with " \
                "eb, or this one with `eb --rebuild`." % owner
        return "This module has no copy: put the image back. If it was moved, correct its directory in the " \
            "easyconfig, and reinstall the module with `eb --rebuild`."

    def binds(self) -> Iterator[Line]:
        """Yield the binds."""
        spec = self.spec
        yield 'bind', './runscripts:/runscripts'
        yield 'bind', './%s:%s:ro' % (MODULE_CONF, MODULE_CONF_INSIDE)
        yield 'bind', './%s:%s:ro' % (SET_ENVIRONMENT, SET_ENVIRONMENT_INSIDE)
        required, optional = parse_binds(spec.binds)
        for bind in required + ['?' + bind for bind in optional + self.record.binds_of_host]:
            yield 'bind', bind
        if spec.host_programs:
            yield 'bind', './%s:%s:ro' % (INSTALLED_WRAPPERS, WRAPPERS)
        yield 'bind_remedy', "Is the file system mounted? A part of the installation comes back with `eb --rebuild`."
        if spec.bind_file:
            yield 'bind_file', spec.bind_file
        required, optional = parse_binds(spec.bind_file_default)
        for bind in required + ['?' + bind for bind in optional]:
            yield 'bind_default', bind
        # the last one is on top: masks may hide what is in the layer
        if self.record.system_layer.sha256:
            yield 'overlay', '/%s:ro' % LAYER
        if spec.masked_paths:
            yield 'overlay', '/%s:ro' % MASKS

    def variables(self) -> Iterator[Line]:
        """Yield the variables of commands, of the container, and for the network."""
        spec = self.spec
        yield 'set', 'EBSIF_UNSET %s' % ' '.join(kept_out(OF_COMMANDS))
        yield 'search_path', ':'.join(spec.container_search_path)
        if spec.needs_activation:
            yield 'set', 'EBSIF_ACTIVATE 1'
        if spec.wrappers_load:
            yield 'wrappers_load', 'yes'
        if spec.own_modules:
            yield 'set', 'EBSIF_OWN_MODULES %s' % spec.own_modules
        if spec.venv:
            yield 'user_software', MOUNT_SQUASHFS
            prompt = spec.own_environment.get('VIRTUAL_ENV_PROMPT', os.path.basename(spec.venv))
            # the venv's PYTHONPATH extends the image's, so it replaces the easyconfig's
            activated = dict(self.record.venv_environment, VIRTUAL_ENV=spec.venv,
                             VIRTUAL_ENV_PROMPT=prompt)
            for name, value in sorted(activated.items()):
                yield 'where', 'user_software ' + in_container(name, value)
        for name, value in sorted(spec.own_environment.items()):
            yield 'default', in_container(name, value)
        if spec.entry_point:
            yield 'set', 'EBSIF_ENTRY_POINT %s' % spec.entry_point
            for name, value in sorted(self.record.entry_point_environment.items()):
                if name not in spec.unset_variables and name not in spec.start_environment:
                    yield 'default', in_container(name, value)
        for name, value in sorted(with_value(spec.network_env).items()):
            yield 'default', '%s %s' % (name, value)

    def gpu(self) -> Iterator[Line]:
        """Yield the settings for GPUs, used on nodes that have some; wrappers look again."""
        spec = self.spec
        if spec.gpu and spec.gpu_option:
            option, device = GPU_KINDS[spec.gpu].option, GPU_KINDS[spec.gpu].device
            yield 'set', 'EBSIF_GPU %s %s' % (option, device)
            yield 'where', '%s *_%s 1' % (device, option.lstrip('-').upper())
        if spec.gpu and spec.gpu_mpi_library:
            # MPI refuses to start if it's told to be GPU-aware, but the library is missing
            library = spec.gpu_mpi_library
            yield 'where', '%s %s 1' % (library, GPU_AWARE_VARIABLE)
            yield 'where', '%s %s' % (library, in_container('LD_PRELOAD', library))

    def ranks(self) -> Iterator[Line]:
        """Yield the settings for ranks of distributed runs, besides the variables for the network."""
        spec = self.spec
        if spec.scheduler:
            yield 'scheduler', spec.scheduler
        if spec.gpu:
            kind = GPU_KINDS[spec.gpu]
            yield 'rank_gpu', ' '.join(
                [kind.tool, spec.gpu_visibility or kind.visibility, kind.variable, kind.among]).rstrip()
        for name in spec.unset_variables:
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
