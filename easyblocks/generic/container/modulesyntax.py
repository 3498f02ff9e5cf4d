##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Statements of a module file whose values are decided when the module is loaded.

EasyBuild's own generator writes constants. A container module has to look at the node it is loaded on (is the image
there, is there a SquashFS file), so its values are collected in variables of the module file. The rule that keeps
unloading right: a decision changes a variable's *value*; the statements that touch the environment are the same
whatever was decided (``where``), because the modules tools evaluate the file again to unload it, and by then the node
may look different.

Unloading restores the user's earlier value of each variable. A module file starts with functions for that
(``functions``), which the statements call. If a variable had a value, ``put`` records in ``__EBSIF_EARLIER_<NAME>``
either that it was kept (``same``), or the value after a colon (a plus if, in Lmod, another module has pushed it).

Environment Modules restores it with ``unsetenv NAME VALUE``: before 5.1 it has no pushenv, and later versions can't
push a value with a colon. In Lmod only pushenv sets a variable on unload, with a value from the stack in
``__LMOD_STACK_<NAME>``. We write that stack ourselves, because Lmod 8.6 leaves a value behind when it pops one, which
it would restore the next time, and in Tcl it pushes the new value instead of the old one. The value is on the stack
twice (or once, above those of other modules): on unload Lmod 8.6 drops the first and restores the second, Lmod 8.7.60
restores the first. There, empty values are unset. Tested with Lmod 8.6.19 and 8.7.60, and Environment Modules 5.2.

If a container module replaces another one, or the modules tool has lost track of that one (its file was removed, a
profile was sourced again), the values in the environment are the module's, not the user's, so the recorded ones
count. For the same reason only the first effective statement for a name is executed: another would take its value for
the user's, and leave it behind.
"""

from easybuild.easyblocks.generic.container.runtime import escape_value

# some end a file or a line for an interpreter (Ctrl-Z in Tcl), and none is readable in a module file
CONTROL_CHARACTERS = [chr(code) for code in range(32)] + [chr(127)]


class ModuleSyntax:
    """
    Base of the two syntaxes; each method returns the text of one or more statements, ending in a newline.

    Conditions are texts too (``is_file``, ``is_dir``, ``exists``, ``is_set``), for use in ``when`` and ``negate``.
    """

    INDENT = '    '

    def __init__(self, root):
        """Take the installation directory, which EasyBuild's part of the module file has in its variable root."""
        self.root = root

    def quote(self, text):
        """Return an expression of the module syntax for exactly this text, short where it holds the root."""
        return self.join_root([
            ''.join(self.ESCAPES.get(char, char) for char in part) for part in text.split(self.root)])

    @property
    def functions(self):
        """The functions that statements call. The environment before them is the user's."""
        return self.FUNCTIONS.lstrip('\n')

    def container_env(self, name, value):
        """Set a variable in the container, unless the user has set it."""
        escaped = escape_value(value)
        return self.call('put_in_container', name, escaped, *([value] if escaped != value else []))

    def default_env(self, name, value):
        """Set an environment variable, unless the user has set it."""
        return self.call('put_default', name, value)

    def setenv(self, name, text):
        """Set an environment variable to a constant."""
        return self.call('put', name, text)

    def put_list(self, name, separator, text):
        """Set a list for both runtimes, with their prefixes before its name; the user's items come first."""
        return self.call('put_list', name, separator, text)

    def indent(self, text):
        """Return text with every line one level deeper."""
        # not splitlines: it splits at characters that may be in a value
        return ''.join(self.INDENT + line + '\n' for line in text.split('\n')[:-1])
