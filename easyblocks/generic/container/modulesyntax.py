##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Module statements whose values are determined when the module is loaded.

EasyBuild's module generator writes constants. A container module must inspect the node where it is loaded (does the
image exist, is there a SquashFS file), and collects the results in variables of the module file. To keep unloading
correct, such conditions only change the *values* of these variables; the statements that change the environment are
always the same (``where``). To unload a module, modules tools evaluate the file again, and by then the node may look
different.

Unloading restores the user's earlier value of each variable. The functions for that are at the start of the module
file, from files/modulefile/, and the statements call them. If a variable had a value, ``put`` records in
``__EBSIF_EARLIER_<NAME>`` either that it was kept (``same``), or the value after a colon (a plus if another module has
pushed it in Lmod).

Environment Modules restores it with ``unsetenv NAME VALUE``: before 5.1 it has no pushenv, and later versions can't
push a value with a colon. In Lmod only pushenv sets a variable on unload, to a value from the stack in
``__LMOD_STACK_<NAME>``. We write that stack ourselves, because Lmod 8.6 leaves a value behind when it pops one, and
would restore it the next time; in Tcl it also pushes the new value instead of the old one. The value is on the stack
twice (or once, above those of other modules): on unload Lmod 8.6 drops the first and restores the second, Lmod 8.7.60
restores the first. There, empty values are unset. If Lmod 9 unloads and loads a module in one
go, the stack is still there when it loads, so it stays at the end. Tested with Lmod 8.6.19, 8.7.60 and 9.2.7, and
Environment Modules 5.2 and 5.7.

If a container module replaces another one, or the modules tool has lost track of the other one (its file was removed, a
profile was sourced again), the values in the environment are the module's, not the user's, so the recorded ones are
used. For the same reason only the first effective statement for a name is executed: a second one would mistake the
module's value for the user's, and leave it behind.
"""
import os

from easybuild.easyblocks.generic.container.runtime import escape_value
from easybuild.easyblocks.generic.container.scripts import FILES

# some end a file or a line (Ctrl-Z in Tcl), and none is readable in a module file
CONTROL_CHARACTERS = [chr(code) for code in range(32)] + [chr(127)]


class ModuleSyntax:
    """
    Base class of the syntaxes. Each method returns the text of one or more statements, ending in a newline.

    Conditions are texts too (``is_file``, ``is_dir``, ``exists``, ``is_set``), for ``when`` and ``negate``.
    """

    INDENT = '    '

    def __init__(self, root):
        """Set the installation directory; EasyBuild's part of the module file has it in the variable root."""
        self.root = root

    def quote(self, text):
        """Return an expression for exactly this text; the installation directory in it becomes the variable root."""
        return self.join_root([
            ''.join(self.ESCAPES.get(char, char) for char in part) for part in text.split(self.root)])

    @property
    def functions(self):
        """The functions that statements call. They must come before anything changes the user's environment."""
        with open(self.functions_path) as text:
            return text.read()

    @property
    def functions_path(self):
        """Path of the file with the functions."""
        return os.path.join(FILES, 'modulefile', self.FUNCTIONS)

    def list_packages(self, directory, keys, times):
        """Nothing: only Lmod reads lists of packages from module files, in Lua best."""
        return ''

    def unless_searched(self, text):
        """Execute statements, except when the modules tool reads all modules to search them."""
        return text

    def add_to_help(self, condition, *parts):
        """Nothing: only modules tools show help."""
        return ''

    def restore_on_unload(self, text):
        """Execute statements; to unload, a syntax may only restore the variables that they set."""
        return text

    def when_loading(self, text):
        """Execute statements that have an effect only when the module is loaded; a syntax may do so only then."""
        return text

    def only_one(self, refusal):
        """Allow one container module: refuse with a message if there is one (its parts), else unload the other."""
        other = self.fail_on_load(*refusal) if refusal else self.unload_on_load('other_module')
        return ''.join([
            self.comment('Only one container at a time.'),
            self.when_loading(
                self.declare_from_environment('other_module', 'EBSIF_LOADED_MODULE', '') +
                self.when(self.is_loaded('other_module'), other)),
            '\n'])

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
        """Set the list variables of both runtimes, whose prefixes go before the name; the user's items come first."""
        return self.call('put_list', name, separator, text)

    def indent(self, text):
        """Return text with every line indented by one more level."""
        # not splitlines, which also splits at characters that may be in a value
        return ''.join(self.INDENT + line + '\n' for line in text.split('\n')[:-1])


def is_literal(value):
    """Return whether a value in 'modextravars' is set as it is: it refers to no other variable, or must not do so."""
    return isinstance(value, dict) and 'value' in value and (
        value.get('resolve_env_vars') is False or bool(value.get('pushenv')) and '$' not in value['value'])
