##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Additional versions under which a module can be loaded: symbolic versions, in a .modulerc file next to the module file.
"""
import os

from easybuild.tools.filetools import read_file


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


def add_symbolic_versions(generator, mod_filepath, module, aliases, write):
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
    write : callable
        Writes text to a path, atomically.
    """
    path = os.path.join(os.path.dirname(mod_filepath), generator.DOT_MODULERC)
    text = earlier = read_file(path) if os.path.exists(path) else ''
    version = os.path.basename(module)
    for alias in symbolic_versions(version, aliases):
        statement = generator.modulerc({'modname': module, 'sym_version': alias, 'version': version})
        header, _, body = statement.partition('\n') if statement.startswith('#%Module') else ('', '', statement)
        text = text or header
        # whole lines: one version can begin like another
        if '\n%s\n' % body not in '\n%s\n' % text:
            text += '\n' * (text != '' and not text.endswith('\n')) + body + '\n'
    if text != earlier:
        write(path, text)
