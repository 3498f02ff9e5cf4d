##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Additional versions under which a module can be loaded: symbolic versions, in a .modulerc file next to the module file.

A module that is hidden after its installation keeps its earlier module file, because shells have loaded it, but that is
hidden as well.
"""
import fcntl
import os
from contextlib import contextmanager, suppress

from easybuild.tools.filetools import read_file, remove_file, symlink

from .texts import modulerc_statements
from .readable import write_whole

# Hides a module that can be loaded. In Tcl: Environment Modules 4.6, or Lmod.
HIDE = {
    'Lua': 'hide_version("%(module)s")',
    'Tcl': '#%%Module\nif {[info commands module-hide] ne {}} {module-hide %(module)s} else {hide-version %(module)s}',
}


def symbolic_versions(version, aliases):
    """
    Return the additional versions under which a module can be loaded (list of str).

    Parameters
    ----------
    version : str
        The version in the name of the module file, which for hidden modules starts with a dot.
    aliases : list of str
        Versions from the easyconfig.
    """
    # hidden from `module avail`, but can be loaded by name
    plain = [version[1:]] if version.startswith('.') else []
    return plain + [alias for alias in aliases if alias not in plain + [version]]


def add_symbolic_versions(generator, mod_filepath, module, aliases):
    """
    Make a module loadable under additional versions.

    Parameters
    ----------
    generator : ModuleGenerator
        Generates the statements for the modules tool and syntax in use.
    mod_filepath : str
        The module file.
    module : str
        Name of the module.
    aliases : list of str
        The versions; for a hidden module, the one without the dot is added.
    """
    path = os.path.join(os.path.dirname(mod_filepath), generator.DOT_MODULERC)
    version = os.path.basename(module)
    statements = [generator.modulerc({'modname': module, 'sym_version': alias, 'version': version})
                  for alias in symbolic_versions(version, aliases)
                  if not (alias == version[1:] and is_linked(mod_filepath))]
    add_statements(path, statements)


def add_statements(path, statements):
    """Add statements to a .modulerc file unless they are there; in Tcl, each begins with the header of the file."""
    with alone(path):
        text = earlier = read_file(path) if os.path.exists(path) else ''
        for statement in statements:
            header, _, body = statement.partition('\n') if statement.startswith('#%Module') else ('', '', statement)
            text = text or header
            # whole lines: one version can begin like another
            if '\n%s\n' % body not in '\n%s\n' % text:
                text += '\n' * (text != '' and not text.endswith('\n')) + body + '\n'
        if text != earlier:
            write_whole(path, text)


@contextmanager
def alone(path):
    """Context manager that keeps installations of other versions from changing a .modulerc file at the same time."""
    # so that no file for the lock stays
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        # not all file systems have locks
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def update_earlier_spelling(generator, mod_filepath, module, installdir):
    """
    Update the module file that the same installation had before the module was hidden, or while it was.

    The earlier file of a hidden module becomes a hidden link: modules tools don't list it (I-06), but shells that have
    loaded it can unload it. That of a module which is no longer hidden is removed.

    Parameters
    ----------
    generator, mod_filepath, module
        See ``add_symbolic_versions``.
    installdir : str
        The installation directory.
    """
    folder, name = os.path.split(mod_filepath)
    is_hidden = name.startswith('.')
    other = os.path.join(folder, name[1:] if is_hidden else '.' + name)
    directory = generator.det_installdir(other) if os.path.isfile(other) else None
    if not directory or os.path.realpath(directory) != os.path.realpath(installdir):
        return
    prefix, version = os.path.split(module)
    path = os.path.join(folder, generator.DOT_MODULERC)
    remove_file(other)
    remove_statements(path, module)
    if is_hidden:
        # not a symbolic version, by which Lmod would not unload the module
        symlink(name, other, use_abspath_source=False)
        add_statements(path, [HIDE[generator.SYNTAX] % {'module': os.path.join(prefix, version[1:])}])
    else:
        remove_statements(path, os.path.join(prefix, '.' + version))


def is_linked(mod_filepath):
    """Return whether a hidden module file has a link without the dot."""
    folder, name = os.path.split(mod_filepath)
    return os.path.islink(os.path.join(folder, name[1:]))


def remove_statements(path, module):
    """Remove the statements on a module from a .modulerc file."""
    with alone(path):
        text = read_file(path) if os.path.exists(path) else ''
        if modulerc_statements(module).search(text):
            write_whole(path, modulerc_statements(module).sub('', text))
