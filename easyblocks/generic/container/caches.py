##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Where libraries in the container keep their caches: on the node, or on project storage; not in the home directory.

The easyconfig has the directories and changes of the table below. A file beside the run scripts has both;
files/runscripts/find-caches reads it whenever a container starts, because a place may depend on the job.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import os
import re
from collections import namedtuple

from .activation import INIT_NONE
from .schedulers import SCHEDULERS
from .texts import variable_problem

# Next to the run scripts.
CACHES_FILE = os.path.join('runscripts', 'caches.conf')

CACHE_SCRIPTS = [os.path.join('runscripts', 'find-caches'), os.path.join('runscripts', 'remove-caches')]

# Directories on every node, unless the site names others.
NODE = ['/tmp']

# Set by users: a directory on the node, and the directory of all caches (XDG Base Directory Specification); set by a
# container: the directory of the job, which other containers and jobs inherit.
USER_SETTINGS = ('EBSIF_NODE_LOCAL', 'XDG_CACHE_HOME', 'EBSIF_JOB_CACHES')

PLACE = re.compile(r'(project|(job|step|project)(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+)\Z')
TEMPLATE = re.compile(r'(?:[A-Za-z0-9_.+@/-]|\$\{[A-Za-z0-9_]+\})+\Z')
VARIABLES = re.compile(r'\$\{(\w+)\}')

# Place of the cache of a variable, the kind of GPU that it is for (None: any, or none), and other variables that decide
# the same: if users set one of these, theirs counts.
Cache = namedtuple('Cache', 'place gpu others')

# What is compiled for this node goes to the node. One directory for each step where a file tells that a process is
# compiling, or a database is locked: the file of a killed process would make the next step wait forever, and parallel
# file systems lack locks (LUMI AI Guide). Project storage has what is downloaded; its names are those of the libraries
# below XDG_CACHE_HOME. Sources: the libraries' documentation; torch/utils/cpp_extension.py (FileBaton);
# MIOpen/src/binary_cache.cpp.
CACHES = {
    'AMD_COMGR_CACHE_DIR': Cache('job/comgr', 'rocm', ()),
    'CUDA_CACHE_PATH': Cache('job/cuda', 'cuda', ()),
    'CUPY_CACHE_DIR': Cache('job/cupy', None, ()),
    'HF_HOME': Cache('project/huggingface', None, ()),
    'MIOPEN_CUSTOM_CACHE_DIR': Cache('step/miopen', 'rocm', ()),
    'MIOPEN_USER_DB_PATH': Cache('step/miopen', 'rocm', ()),
    'MPLCONFIGDIR': Cache('job/matplotlib', None, ()),
    'NUMBA_CACHE_DIR': Cache('job/numba', None, ()),
    'TORCHINDUCTOR_CACHE_DIR': Cache('job/torchinductor', None, ()),
    'TORCH_EXTENSIONS_DIR': Cache('step/torch_extensions', None, ()),
    'TORCH_HOME': Cache('project/torch', None, ()),
    'TRITON_CACHE_DIR': Cache('job/triton', None, ('TRITON_HOME',)),
    'VLLM_CACHE_ROOT': Cache('project/vllm', None, ()),
    'WANDB_CACHE_DIR': Cache('project/wandb', None, ()),
    'WANDB_DATA_DIR': Cache('project/wandb-data', None, ()),
    'XDG_CACHE_HOME': Cache('project', None, ()),
}

# Files in the home directory that stay in use, by the variable that names each: path, variable that would hide it.
HIDDEN_FILES = {
    'HF_TOKEN_PATH': ('.cache/huggingface/token', 'HF_HOME'),
    'MATPLOTLIBRC': ('.config/matplotlib/matplotlibrc', 'MPLCONFIGDIR'),
}

# What stays in use by a link, because no variable names it: path in the home directory, variable that would hide it,
# name of the link there. Sources: accelerate/commands/config/config_args.py; matplotlib/style/core.py.
LINKED_FILES = (
    ('.cache/huggingface/accelerate/default_config.yaml', 'HF_HOME', 'accelerate/default_config.yaml'),
    ('.config/matplotlib/stylelib', 'MPLCONFIGDIR', 'stylelib'),
)


def template_problem(template):
    """Return why a text can't be a directory for caches, or None if it can."""
    if not TEMPLATE.match(template) or not template.startswith(('/', '$')) or any(
            variable_problem(name) for name in VARIABLES.findall(template)):
        return "should be a full path (letters, digits and _ . + @ - /), with variables as ${NAME}"
    return None


def place_problem(place):
    """Return why a text can't be the place of a cache, or None if it can."""
    return None if PLACE.match(place) else "should be job/NAME, step/NAME or project/NAME"


class Caches:
    """
    The caches of a container.

    Parameters
    ----------
    spec : ContainerSpec
        With the parameters node_caches, project_caches, cache_variables, init, gpu, scheduler.
    """

    def __init__(self, spec):
        """Keep the specification."""
        self.spec = spec

    def problems(self):
        """Yield the name, value and problem of each invalid parameter (tuple of str)."""
        for param in ('node_caches', 'project_caches'):
            for template in getattr(self.spec, param):
                if template_problem(template):
                    yield param, template, template_problem(template)
        for name, place in sorted(self.spec.cache_variables.items()):
            if variable_problem(name):
                yield 'cache_variables', name, variable_problem(name)
            elif place is not None and place_problem(place):
                yield 'cache_variables', place, place_problem(place)

    @property
    def places(self):
        """The place of each variable (dict of str); an image without Python has those of the easyconfig only."""
        known = {} if self.spec.init == INIT_NONE else CACHES
        places = {name: cache.place for name, cache in known.items() if cache.gpu in (None, self.spec.gpu)}
        places.update(self.spec.cache_variables)
        return {name: place for name, place in places.items() if place is not None}

    @property
    def text(self):
        """Content of the file beside the run scripts: a keyword and values in each line, first all variables' names."""
        spec, places = self.spec, self.places
        # those of the site's own scheduler count, where variables of another one are inherited
        steps = [pair for one in sorted(SCHEDULERS.values(), key=lambda one: one.kind != spec.scheduler)
                 for pair in one.steps]
        others = {name: CACHES[name].others if name in CACHES else () for name in places}
        files = {name: file for name, file in HIDDEN_FILES.items() if file[1] in places}
        lines = [('job',) + pair for pair in steps]
        lines += [('node', template) for template in spec.node_caches]
        lines += [('project', template) for template in spec.project_caches]
        lines += [('set', name, places[name]) + others[name] for name in sorted(places)]
        lines += [('file', name) + files[name] for name in sorted(files)]
        lines += [('link', variable, path, name) for path, variable, name in LINKED_FILES if variable in places]
        names = list(USER_SETTINGS) + sum(map(list, steps), []) + list(places) + sum(map(list, others.values()), [])
        names += list(files) + [name for template in list(spec.node_caches) + list(spec.project_caches)
                                for name in VARIABLES.findall(template)]
        # shells set UID and EUID themselves, and some don't let anybody change them
        return ''.join(' '.join(words) + '\n' for words in [sorted(set(names) - {'UID', 'EUID'})] + lines)

    @property
    def help_lines(self):
        """Lines on the caches for the help of the module (list of str)."""
        lines = []
        for where, directories, kinds in (
                ("for each job on the node, in", ['$EBSIF_NODE_LOCAL'] + list(self.spec.node_caches), ('job', 'step')),
                ("kept, in", ['$XDG_CACHE_HOME'] + list(self.spec.project_caches), ('project',))):
            names = sorted(name for name, place in self.places.items() if place.split('/')[0] in kinds)
            if names:
                lines.append(" - %s %s: %s" % (where, ' or '.join(directories), ', '.join(names)))
        return lines
