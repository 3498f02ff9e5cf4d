##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Module statements in Lua; modulesyntax.py explains them.
"""
import os

from easybuild.easyblocks.generic.container.modulesyntax import CONTROL_CHARACTERS, ModuleSyntax


class LuaModule(ModuleSyntax):
    """Statements in Lua, for Lmod."""

    FUNCTIONS = 'functions.lua'

    ESCAPES = {char: '\\%03d' % ord(char) for char in CONTROL_CHARACTERS}
    ESCAPES.update({'\\': '\\\\', '"': '\\"', '\n': '\\n'})

    def join_root(self, parts):
        """Return an expression for escaped parts, joined by the variable root."""
        words = ' .. root .. '.join('"%s"' % part for part in parts)
        return words[len('"" .. '):] if words.startswith('"" .. ') else words

    def comment(self, text):
        """A comment in the module file."""
        return '-- %s\n' % text

    def declare(self, variable, text):
        """Declare a variable of the module file with an initial value."""
        return 'local %s = %s\n' % (variable, self.quote(text))

    def assign(self, variable, text):
        """Give a declared variable another value."""
        return '%s = %s\n' % (variable, self.quote(text))

    def call(self, function, *texts):
        """Call one of the functions with constants."""
        return '%s(%s)\n' % (function, ', '.join(self.quote(text) for text in texts))

    def setenv_from(self, name, variable):
        """Set an environment variable to the value of a variable of the module file."""
        return 'put("%s", %s)\n' % (name, variable)

    def put_both_from(self, name, variable):
        """Set the variables of both runtimes, whose prefixes go before the name, to the value of a variable."""
        return 'put_both("%s", %s)\n' % (name, variable)

    def declare_list(self, variable, name, separator):
        """Declare a variable of the module file with the user's items in the list variables of both runtimes."""
        return 'local %s = user_items("%s", "%s")\n' % (variable, name, separator)

    def add(self, variable, text):
        """Add an item to a comma-separated list in a declared variable, unless it already contains it."""
        return '%s = append_item(%s, %s, ",")\n' % (variable, variable, self.quote(text))

    def drop_replaced(self, variable, names):
        """Drop what the module of an earlier installation has set, if it is loaded: binds not in a list, variables."""
        return 'drop_replaced(%s)\n' % ', '.join([variable] + [self.quote(name) for name in names])

    def conflict(self, name):
        """Declare a conflict with another module."""
        return 'conflict(%s)\n' % self.quote(name)

    def declare_from_environment(self, variable, name, default):
        """Declare a variable of the module file with the value of an environment variable or a default."""
        return 'local %s = os.getenv("%s") or ""\n' % (variable, name) + \
            (self.when('%s == ""' % variable, self.assign(variable, default)) if default else '')

    def assign_below(self, variable, base, path):
        """Assign a path below the directory in another variable to a declared variable."""
        return '%s = %s .. %s\n' % (variable, base, self.quote('/' + path))

    def add_bind(self, variable, path_variable, text):
        """Add a bind: the path in a variable, escaped for the runtime, followed by the rest of the bind."""
        return '%s = append_item(%s, (%s:gsub("([,:])", "\\\\%%1")) .. %s, ",")\n' % (
            variable, variable, path_variable, self.quote(text))

    def read_binds(self, variable, path):
        """Add the binds that a file lists when the module is loaded, one per line, with '?' before optional ones."""
        return (
            'local bind_list = isFile(%(path)s) and io.open(%(path)s)\n'
            'if bind_list then\n'
            '    for line in bind_list:lines() do\n'
            '        local optional, bind = line:match("^%%s*(%%??)%%s*(.-)%%s*$")\n'
            '        if bind ~= "" and bind:sub(1, 1) ~= "#" then\n'
            '            local source = bind:gsub("\\\\:", "\\1"):match("^[^:]*"):gsub("\\1", ":"):gsub("\\\\,", ",")\n'
            '            if lfs.attributes(source, "mode") then\n'
            '                %(variable)s = append_item(%(variable)s, bind, ",")\n'
            '            elseif optional == "" and mode() == "load" then\n'
            '                LmodError("This container needs " .. source .. ", which doesn\'t exist on this node. "\n'
            '                    .. "It is listed in " .. %(path)s .. ".")\n'
            '            end\n'
            '        end\n'
            '    end\n'
            '    bind_list:close()\n'
            'elseif mode() == "load" then\n'
            '    LmodError("The list of bind mounts can\'t be read: " .. %(path)s)\n'
            'end\n') % {'path': self.quote(path), 'variable': variable}

    def is_file_below(self, base, path):
        """Condition: a variable is set, and a regular file with this path exists below the directory in it."""
        return '%s ~= "" and isFile(%s .. %s)' % (base, base, self.quote('/' + path))

    def is_dir_below(self, base, path):
        """Condition: a variable is set, and a directory with this path exists below the directory in it."""
        return '%s ~= "" and isDir(%s .. %s)' % (base, base, self.quote('/' + path))

    def is_file_at(self, variable):
        """Condition: the path in a variable is a regular file."""
        return 'isFile(%s)' % variable

    def has_other_size(self, variable, size):
        """Condition: the path in a variable is a file, and has another size than this."""
        return '(lfs.attributes(%s, "size") or %d) ~= %d' % (variable, size, size)

    def is_no_dir(self, variable):
        """Condition: a variable is set, but not to the path of a directory."""
        return '%s ~= "" and not isDir(%s)' % (variable, variable)

    def is_relative(self, variable):
        """Condition: a variable is set to a relative path."""
        return '%s:find("^[^/]")' % variable

    def loses_blank(self, variable):
        """Condition: the runtime can't bind the path in a variable (see ``escape_bind``)."""
        return '%s:find("[,:]%%s") or %s:find("%%s[,:]")' % (variable, variable)

    def is_loaded(self, module_variable):
        """Condition: the module whose name is in a variable is loaded."""
        return '%s ~= "" and isloaded(%s)' % (module_variable, module_variable)

    def unload_on_load(self, module_variable):
        """Unload the module whose name is in a variable before this one is loaded."""
        return self.when('mode() == "load"', 'unload(%s)\n' % module_variable)

    def list_packages(self, directory, keys, times):
        """
        Let `module spider` list packages as they are in a venv, a path in the installation, and in the record.

        It reads them only if the files have other times than these (dict of int, 0: missing). Otherwise they are those
        that the module lists anyway.
        """
        with open(os.path.join(os.path.dirname(self.functions_path), 'packages.lua')) as functions:
            statement = functions.read() + self.call('list_packages', '/' + directory, *keys)
        changed = ' or '.join('(lfs.attributes(%s, "modification") or 0) ~= %d' % (self.quote(path), times[path])
                              for path in sorted(times))
        return self.when('mode() == "spider" and (%s)' % changed, statement)

    def unless_searched(self, text):
        """Execute statements, except for `module spider`, which only needs what EasyBuild writes into every module."""
        return self.when('mode() ~= "spider"', text)

    def is_file(self, path):
        """Condition: a path is a regular file or a link to one."""
        return 'isFile(%s)' % self.quote(path)

    def is_dir(self, path):
        """Condition: a path is a directory or a link to one."""
        return 'isDir(%s)' % self.quote(path)

    def exists(self, path):
        """Condition: a path exists. Lmod's isFile is true for regular files only, not for sockets and devices."""
        return 'lfs.attributes(%s, "mode") ~= nil' % self.quote(path)

    def is_set(self, variable):
        """Condition: a variable of the module file is not empty."""
        return '%s ~= ""' % variable

    def negate(self, condition):
        """Condition: another condition is false."""
        return 'not (%s)' % condition

    def when(self, condition, then, otherwise=''):
        """Execute one of two groups of statements."""
        text = 'if %s then\n%s' % (condition, self.indent(then))
        if otherwise:
            text += 'else\n%s' % self.indent(otherwise)
        return text + 'end\n'

    def where(self, condition, then):
        """Execute statements so that they change the environment only if a condition holds."""
        return 'do\n    local outer = active\n    active = outer and (%s)\n%s    active = outer\nend\n' % (
            condition, self.indent(then))

    def message(self, parts):
        """Return an expression for a message: texts and names of variables in turn."""
        return ' .. '.join(part if number % 2 else self.quote(part) for number, part in enumerate(parts))

    def fail_on_load(self, *parts):
        """Make loading fail with a message (texts and variables in turn), but not unload, show, spider and is-avail."""
        return self.when('mode() == "load"', 'LmodError(%s)\n' % self.message(parts))

    def add_to_help(self, condition, *parts):
        """Add a message (texts and variables in turn) to the help if a condition holds when somebody reads it."""
        return self.when('mode() == "help" and %s' % condition, 'help(%s)\n' % self.message(parts))

    def notice_on_load(self, *parts):
        """Print a message (texts and variables in turn) when the module is loaded."""
        return self.when('mode() == "load"', 'LmodMessage(%s)\n' % self.message(parts))
