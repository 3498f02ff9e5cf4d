##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
More versions under which a module can be loaded: symbolic versions, in the .modulerc file beside the module file.
"""
import os

from easybuild.tools.filetools import read_file


def symbolic_versions(version, aliases):
    """
    Return the versions under which a module is to be loaded as well (list of str).

    Parameters
    ----------
    version : str
        The version in the name of its file; EasyBuild begins that of a hidden module with a dot.
    aliases : list of str
        What the easyconfig names.
    """
    # hidden from `module avail`; whoever knows the name can load it
    plain = [version[1:]] if version.startswith('.') else []
    return plain + [alias for alias in aliases if alias not in plain + [version]]


def add_symbolic_versions(generator, mod_filepath, module, aliases, write):
    """
    Let a module be loaded under more versions.

    Parameters
    ----------
    generator : ModuleGenerator
        Knows the statement, by modules tool and syntax.
    mod_filepath : str
        The module file.
    module : str
        Name of the module.
    aliases : list of str
        The versions, besides the plain one of a hidden module.
    write : callable
        Writes a text to a path; readers find the earlier or the new file.
    """
    path = os.path.join(os.path.dirname(mod_filepath), generator.DOT_MODULERC)
    text = earlier = read_file(path) if os.path.exists(path) else ''
    version = os.path.basename(module)
    for alias in symbolic_versions(version, aliases):
        statement = generator.modulerc({'modname': module, 'sym_version': alias, 'version': version})
        header, _, body = statement.partition('\n') if statement.startswith('#%Module') else ('', '', statement)
        text = text or (header and header + '\n')
        if body not in text:
            text += body + '\n'
    if text != earlier:
        write(path, text)
