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
whatever was decided, or are repeated on unload (``when_or_unloading``), because the modules tools evaluate the
file again to unload it, and by then the node may look different.
"""

# some end a file or a line for an interpreter (Ctrl-Z in Tcl), and none is readable in a module file
CONTROL_CHARACTERS = [chr(code) for code in range(32)] + [chr(127)]


class ContainerModule(object):
    """
    Base of the two syntaxes; each method returns the text of one or more statements, ending in a newline.

    Conditions are texts too (``is_file``, ``is_dir``, ``exists``, ``is_set``), for use in ``when`` and ``negate``.
    """

    INDENT = '    '

    def __init__(self, root):
        """Keep the installation directory, which EasyBuild's part of the module file has in its variable root."""
        self.root = root

    @staticmethod
    def for_syntax(syntax, root):
        """
        Return the writer for a module syntax.

        Parameters
        ----------
        syntax : str
            'Lua' or 'Tcl', the SYNTAX of EasyBuild's module generator.
        root : str
            The installation directory.

        Returns
        -------
        ContainerModule

        Raises
        ------
        KeyError
            For any other syntax.
        """
        return {'Lua': LuaModule, 'Tcl': TclModule}[syntax](root)

    def quote(self, text):
        """Return an expression of the module syntax for exactly this text, short where it holds the root."""
        return self.join_root([
            ''.join(self.ESCAPES.get(char, char) for char in part) for part in text.split(self.root)])

    def indent(self, text):
        """Return text with every line one level deeper."""
        # not splitlines: it splits at characters that may be in a value
        return ''.join(self.INDENT + line + '\n' for line in text.split('\n')[:-1])


class LuaModule(ContainerModule):
    """Statements in Lua, for Lmod."""

    ESCAPES = {char: '\\%03d' % ord(char) for char in CONTROL_CHARACTERS}
    ESCAPES.update({'\\': '\\\\', '"': '\\"', '\n': '\\n'})

    def join_root(self, parts):
        """Return escaped parts with the root between them as one expression."""
        words = ' .. root .. '.join('"%s"' % part for part in parts)
        return words[len('"" .. '):] if words.startswith('"" .. ') else words

    def comment(self, text):
        """A line for the reader of the module file."""
        return '-- %s\n' % text

    def declare(self, variable, text):
        """Introduce a variable of the module file with a first value."""
        return 'local %s = %s\n' % (variable, self.quote(text))

    def assign(self, variable, text):
        """Give a declared variable another value."""
        return '%s = %s\n' % (variable, self.quote(text))

    def append(self, variable, text):
        """Add text to the value of a declared variable."""
        return '%s = %s .. %s\n' % (variable, variable, self.quote(text))

    def append_variable(self, variable, other):
        """Add the value of another variable of the module file to that of a declared one."""
        return '%s = %s .. %s\n' % (variable, variable, other)

    def setenv(self, name, text):
        """Set an environment variable to a constant."""
        return 'setenv("%s", %s)\n' % (name, self.quote(text))

    def setenv_from(self, name, variable):
        """Set an environment variable to the value of a variable of the module file."""
        return 'setenv("%s", %s)\n' % (name, variable)

    def prepend_path(self, name, path):
        """Put a directory, or several with colons between them, in front of a search path."""
        return 'prepend_path("%s", %s)\n' % (name, self.quote(path))

    def prepend_list(self, name, item):
        """Put an item in front of a list with commas."""
        return 'prepend_path("%s", %s, ",")\n' % (name, self.quote(item))

    def default_env(self, names, text):
        """Set variables to a constant, unless one of them has another value; what a person has set is left alone."""
        value = self.quote(text)
        own = ' and '.join('(os.getenv("%s") or %s) == %s' % (name, value, value) for name in names)
        return ''.join(self.when(
            '(mode() == "unload" and os.getenv("%s") == %s) or (mode() ~= "unload" and %s)' % (name, value, own),
            self.setenv(name, text)) for name in names)

    def conflict(self, name):
        """Don't be loaded beside another module."""
        return 'conflict(%s)\n' % self.quote(name)

    def declare_from_environment(self, variable, name, default):
        """Introduce a variable of the module file with the value of an environment variable, if it has one."""
        return 'local %s = os.getenv("%s") or ""\n' % (variable, name) + \
            (self.when('%s == ""' % variable, self.assign(variable, default)) if default else '')

    def assign_below(self, variable, base, path):
        """Give a declared variable a path below the directory in another one."""
        return '%s = %s .. %s\n' % (variable, base, self.quote('/' + path))

    def append_bind(self, variable, path_variable, text):
        """Add a bind: the path in a variable, escaped for the runtime, and the rest of the bind."""
        return '%s = %s .. "," .. (%s:gsub("([,:])", "\\\\%%1")) .. %s\n' % (
            variable, variable, path_variable, self.quote(text))

    def read_binds(self, variable, path):
        """Add the binds that a file holds when the module is loaded, one in a line, '?' before optional ones."""
        return (
            'local bind_list = io.open(%(path)s)\n'
            'if bind_list then\n'
            '    for line in bind_list:lines() do\n'
            '        local optional, bind = line:match("^%%s*(%%??)%%s*(.-)%%s*$")\n'
            '        if bind ~= "" and bind:sub(1, 1) ~= "#" then\n'
            '            local source = bind:gsub("\\\\:", "\\1"):match("^[^:]*"):gsub("\\1", ":"):gsub("\\\\,", ",")\n'
            '            if isFile(source) or isDir(source) then\n'
            '                %(variable)s = %(variable)s .. "," .. bind\n'
            '            elseif optional == "" and mode() == "load" then\n'
            '                LmodError("This container needs " .. source .. ", which does not exist on this node.")\n'
            '            end\n'
            '        end\n'
            '    end\n'
            '    bind_list:close()\n'
            'elseif mode() == "load" then\n'
            '    LmodError("The list of bind mounts can\'t be read: " .. %(path)s)\n'
            'end\n') % {'path': self.quote(path), 'variable': variable}

    def is_file_below(self, base, path):
        """Condition: a regular file is there, below the directory in a variable, if that is set."""
        return '%s ~= "" and isFile(%s .. %s)' % (base, base, self.quote('/' + path))

    def is_dir_below(self, base, path):
        """Condition: a directory is there, below the directory in a variable, if that is set."""
        return '%s ~= "" and isDir(%s .. %s)' % (base, base, self.quote('/' + path))

    def is_file_at(self, variable):
        """Condition: a regular file is at the path in a variable."""
        return 'isFile(%s)' % variable

    def is_other_loaded(self, variable, text, module_variable):
        """Condition: a variable of another module is set, to something else than text."""
        return '%s ~= "" and %s ~= %s' % (variable, variable, self.quote(text))

    def is_device(self, path):
        """Condition: anything is there, a device for instance."""
        return 'lfs.attributes(%s, "mode") ~= nil' % self.quote(path)

    def is_file(self, path):
        """Condition: a regular file, or a link to one, is there."""
        return 'isFile(%s)' % self.quote(path)

    def is_dir(self, path):
        """Condition: a directory, or a link to one, is there."""
        return 'isDir(%s)' % self.quote(path)

    def exists(self, path):
        """Condition: anything is there. Lmod's isFile is true of regular files only."""
        return '(isFile(%s) or isDir(%s))' % (self.quote(path), self.quote(path))

    def is_set(self, variable):
        """Condition: a variable of the module file is not empty."""
        return '%s ~= ""' % variable

    def negate(self, condition):
        """Condition: the opposite."""
        return 'not (%s)' % condition

    def when(self, condition, then, otherwise=''):
        """One of two groups of statements."""
        text = 'if %s then\n%s' % (condition, self.indent(then))
        if otherwise:
            text += 'else\n%s' % self.indent(otherwise)
        return text + 'end\n'

    def when_or_unloading(self, condition, then):
        """Statements that change the environment under a condition, and are undone whatever the condition says then."""
        return self.when('(%s) or mode() == "unload"' % condition, then)

    def fail_on_load(self, message):
        """Stop a load with a message; unload, show, spider and is-avail go on."""
        return self.when('mode() == "load"', 'LmodError(%s)\n' % self.quote(message))

    def notice_on_load(self, message):
        """Say something when the module is loaded."""
        return self.when('mode() == "load"', 'LmodMessage(%s)\n' % self.quote(message))


class TclModule(ContainerModule):
    """Statements in Tcl, for Environment Modules and Lmod."""

    # braces as well: the bodies of `if` are read as braced words first, in which every brace counts
    ESCAPES = {char: '\\u%04x' % ord(char) for char in CONTROL_CHARACTERS}
    ESCAPES.update({char: '\\' + char for char in '\\"$[]{}'})
    ESCAPES['\n'] = '\\n'

    def join_root(self, parts):
        """Return escaped parts with the root between them as one expression."""
        return '"%s"' % '${root}'.join(parts)

    def comment(self, text):
        """A line for the reader of the module file."""
        return '# %s\n' % text

    def declare(self, variable, text):
        """Introduce a variable of the module file with a first value."""
        return self.assign(variable, text)

    def assign(self, variable, text):
        """Give a variable a value."""
        return 'set %s %s\n' % (variable, self.quote(text))

    def append(self, variable, text):
        """Add text to the value of a declared variable."""
        return 'append %s %s\n' % (variable, self.quote(text))

    def append_variable(self, variable, other):
        """Add the value of another variable of the module file to that of a declared one."""
        return 'append %s $%s\n' % (variable, other)

    def setenv(self, name, text):
        """Set an environment variable to a constant."""
        return 'setenv %s %s\n' % (name, self.quote(text))

    def setenv_from(self, name, variable):
        """Set an environment variable to the value of a variable of the module file."""
        return 'setenv %s $%s\n' % (name, variable)

    def prepend_path(self, name, path):
        """Put a directory, or several with colons between them, in front of a search path."""
        return 'prepend-path %s %s\n' % (name, self.quote(path))

    def prepend_list(self, name, item):
        """Put an item in front of a list with commas."""
        return 'prepend-path -d , %s %s\n' % (name, self.quote(item))

    def default_env(self, names, text):
        """Set variables to a constant, unless one of them has another value; what a person has set is left alone."""
        value = self.quote(text)
        unloading = '([module-info mode unload] || [module-info mode remove])'
        same = {name: '([info exists env(%s)] && $env(%s) eq %s)' % (name, name, value) for name in names}
        own = ' && '.join('(![info exists env(%s)] || $env(%s) eq %s)' % (name, name, value) for name in names)
        return ''.join(self.when('%s ? %s : (%s)' % (unloading, same[name], own), self.setenv(name, text))
                       for name in names)

    def conflict(self, name):
        """Don't be loaded beside another module."""
        return 'conflict %s\n' % self.quote(name)

    def declare_from_environment(self, variable, name, default):
        """Introduce a variable of the module file with the value of an environment variable, if it has one."""
        return self.declare(variable, default) + self.when(
            '[info exists env(%s)] && $env(%s) ne ""' % (name, name), 'set %s $env(%s)\n' % (variable, name))

    def assign_below(self, variable, base, path):
        """Give a declared variable a path below the directory in another one."""
        return 'set %s [join [list $%s %s] ""]\n' % (variable, base, self.quote('/' + path))

    def append_bind(self, variable, path_variable, text):
        """Add a bind: the path in a variable, escaped for the runtime, and the rest of the bind."""
        return 'append %s "," [string map {, \\\\, : \\\\:} $%s] %s\n' % (variable, path_variable, self.quote(text))

    def read_binds(self, variable, path):
        """Add the binds that a file holds when the module is loaded, one in a line, '?' before optional ones."""
        return (
            'if {[file readable %(path)s]} {\n'
            '    set bind_list [open %(path)s]\n'
            '    while {[gets $bind_list line] >= 0} {\n'
            '        regexp {^\\s*(\\??)\\s*(.*?)\\s*$} $line all optional bind\n'
            '        if {$bind ne "" && ![string match "#*" $bind]} {\n'
            '            regexp {^(?:\\\\[,:]|[^:])*} $bind source\n'
            '            set source [string map {\\\\: : \\\\, ,} $source]\n'
            '            if {[file exists $source]} {\n'
            '                append %(variable)s "," $bind\n'
            '            } elseif {$optional eq "" && [module-info mode load]} {\n'
            '                error "This container needs $source, which does not exist on this node."\n'
            '            }\n'
            '        }\n'
            '    }\n'
            '    close $bind_list\n'
            '} elseif {[module-info mode load]} {\n'
            '    error [join [list "The list of bind mounts can\'t be read:" %(path)s]]\n'
            '}\n') % {'path': self.quote(path), 'variable': variable}

    def is_file_below(self, base, path):
        """Condition: a regular file is there, below the directory in a variable, if that is set."""
        return '$%s ne "" && [file isfile [join [list $%s %s] ""]]' % (base, base, self.quote('/' + path))

    def is_dir_below(self, base, path):
        """Condition: a directory is there, below the directory in a variable, if that is set."""
        return '$%s ne "" && [file isdirectory [join [list $%s %s] ""]]' % (base, base, self.quote('/' + path))

    def is_file_at(self, variable):
        """Condition: a regular file is at the path in a variable."""
        return '[file isfile $%s]' % variable

    def is_other_loaded(self, variable, text, module_variable):
        """
        Condition: a variable of another module is set, to something else than text, and that module is loaded.

        While it swaps, Environment Modules has the variables of the module that it has unloaded still.
        """
        loaded = '[info exists env(LOADEDMODULES)] && [lsearch -exact [split $env(LOADEDMODULES) :] $%s] >= 0'
        return '$%s ne "" && $%s ne %s && %s' % (variable, variable, self.quote(text), loaded % module_variable)

    def is_device(self, path):
        """Condition: anything is there, a device for instance."""
        return self.exists(path)

    def is_file(self, path):
        """Condition: a regular file, or a link to one, is there."""
        return '[file isfile %s]' % self.quote(path)

    def is_dir(self, path):
        """Condition: a directory, or a link to one, is there."""
        return '[file isdirectory %s]' % self.quote(path)

    def exists(self, path):
        """Condition: anything is there."""
        return '[file exists %s]' % self.quote(path)

    def is_set(self, variable):
        """Condition: a variable of the module file is not empty."""
        return '$%s ne ""' % variable

    def negate(self, condition):
        """Condition: the opposite."""
        return '!(%s)' % condition

    def when(self, condition, then, otherwise=''):
        """One of two groups of statements."""
        text = 'if {%s} {\n%s}' % (condition, self.indent(then))
        if otherwise:
            text += ' else {\n%s}' % self.indent(otherwise)
        return text + '\n'

    def when_or_unloading(self, condition, then):
        """Statements that change the environment under a condition, and are undone whatever the condition says then."""
        # Environment Modules says unload, Lmod's Tcl interpreter says remove as well
        return self.when('(%s) || [module-info mode unload] || [module-info mode remove]' % condition, then)

    def fail_on_load(self, message):
        """Stop a load with a message; unload, show, spider and is-avail go on."""
        return self.when('[module-info mode load]', 'error %s\n' % self.quote(message))

    def notice_on_load(self, message):
        """Say something when the module is loaded."""
        return self.when('[module-info mode load]', 'puts stderr %s\n' % self.quote(message))
