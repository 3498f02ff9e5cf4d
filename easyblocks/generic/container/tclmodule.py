##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Module statements in Tcl; modulesyntax.py explains them.
"""

import re

from easybuild.easyblocks.generic.container.modulesyntax import CONTROL_CHARACTERS, ModuleSyntax
from easybuild.easyblocks.generic.container.runtime import RUNTIME_PREFIXES

# What the functions that set variables put before the names that they are called with.
PREFIXES = {'put': [''], 'put_default': [''], 'put_both': RUNTIME_PREFIXES, 'put_list': RUNTIME_PREFIXES,
            'put_in_container': [prefix + 'ENV_' for prefix in RUNTIME_PREFIXES]}


class TclModule(ModuleSyntax):
    """Statements in Tcl, for Environment Modules and Lmod."""

    FUNCTIONS = 'functions.tcl'

    # braces too: the body of an `if` is a braced word, in which Tcl counts all braces
    ESCAPES = {char: '\\u%04x' % ord(char) for char in CONTROL_CHARACTERS}
    ESCAPES.update({char: '\\' + char for char in '\\"$[]{}'})
    ESCAPES['\n'] = '\\n'

    def join_root(self, parts):
        """Return an expression for escaped parts, joined by the variable root."""
        return '"%s"' % '${root}'.join(parts)

    def comment(self, text):
        """A comment in the module file."""
        return '# %s\n' % text

    def declare(self, variable, text):
        """Declare a variable of the module file with an initial value."""
        return self.assign(variable, text)

    def assign(self, variable, text):
        """Give a variable another value."""
        return 'set %s %s\n' % (variable, self.quote(text))

    def call(self, function, *texts):
        """Call one of the functions with constants."""
        return '%s %s\n' % (function, ' '.join(self.quote(text) for text in texts))

    def setenv_from(self, name, variable):
        """Set an environment variable to the value of a variable of the module file."""
        return 'put %s $%s\n' % (name, variable)

    def put_both_from(self, name, variable):
        """Set the variables of both runtimes, whose prefixes go before the name, to the value of a variable."""
        return 'put_both %s $%s\n' % (name, variable)

    def declare_list(self, variable, name, separator):
        """Declare a variable of the module file with the user's items in the list variables of both runtimes."""
        return 'set %s [user_items %s %s]\n' % (variable, name, separator)

    def add(self, variable, text):
        """Add an item to a comma-separated list in a declared variable, unless it already contains it."""
        return 'set %s [append_item $%s %s ,]\n' % (variable, variable, self.quote(text))

    def drop_replaced(self, variable, names):
        """Drop what the module of an earlier installation has set, if it is loaded: binds not in a list, variables."""
        return 'drop_replaced $%s %s\n' % (variable, ' '.join(names))

    def restore_on_unload(self, text):
        """Execute statements; to unload, restore the variables that they set, unless there are binds to drop."""
        calls = re.findall(r'^ *(%s) "?(\w+)' % '|'.join(PREFIXES), text, re.MULTILINE)
        names = dict.fromkeys(prefix + name for function, name in calls for prefix in PREFIXES[function])
        # Environment Modules compiles all of a module file, except what is given to eval
        return self.when('$unloading && ![info exists env(SINGULARITY_BIND)]',
                         'foreach name {%s} { restore $name }\n' % ' '.join(names),
                         'eval {\n%s}\n' % self.indent(text))

    def when_loading(self, text):
        """Execute statements only when the module is loaded: looking for a variable takes long in Tcl."""
        return self.when('[module-info mode load]', text)

    def conflict(self, name):
        """Declare a conflict with another module."""
        return 'conflict %s\n' % self.quote(name)

    def declare_from_environment(self, variable, name, default):
        """Declare a variable of the module file with the value of an environment variable or a default."""
        return self.declare(variable, default) + self.when(
            '[info exists env(%s)] && $env(%s) ne ""' % (name, name), 'set %s $env(%s)\n' % (variable, name))

    def assign_below(self, variable, base, path):
        """Assign a path below the directory in another variable to a declared variable."""
        return 'set %s [join [list $%s %s] ""]\n' % (variable, base, self.quote('/' + path))

    def add_bind(self, variable, path_variable, text):
        """Add a bind: the path in a variable, escaped for the runtime, followed by the rest of the bind."""
        escaped = '[string map {, \\\\, : \\\\:} $%s]' % path_variable
        return 'set %s [append_item $%s [join [list %s %s] ""] ,]\n' % (variable, variable, escaped, self.quote(text))

    def read_binds(self, variable, path):
        """Add the binds that a file lists when the module is loaded, one per line, with '?' before optional ones."""
        return (
            'if {[file isfile %(path)s] && [file readable %(path)s]} {\n'
            '    set bind_list [open %(path)s]\n'
            '    while {[gets $bind_list line] >= 0} {\n'
            '        regexp {^\\s*(\\??)\\s*(.*?)\\s*$} $line all optional bind\n'
            '        if {$bind ne "" && ![string match "#*" $bind]} {\n'
            '            regexp {^(?:\\\\[,:]|[^:])*} $bind source\n'
            '            set source [string map {\\\\: : \\\\, ,} $source]\n'
            '            if {[file exists $source]} {\n'
            '                set %(variable)s [append_item $%(variable)s $bind ,]\n'
            '            } elseif {$optional eq "" && [module-info mode load]} {\n'
            '                error [join [list "This container needs $source, which doesn\'t exist on this node."\\\n'
            '                    "It is listed in" %(path)s]]. {} MODULES_ERR_GLOBAL\n'
            '            }\n'
            '        }\n'
            '    }\n'
            '    close $bind_list\n'
            '} elseif {[module-info mode load]} {\n'
            '    error [join [list "The list of bind mounts can\'t be read:" %(path)s]] {} MODULES_ERR_GLOBAL\n'
            '}\n') % {'path': self.quote(path), 'variable': variable}

    def is_file_below(self, base, path):
        """Condition: a variable is set, and a regular file with this path exists below the directory in it."""
        return '$%s ne "" && [file isfile [join [list $%s %s] ""]]' % (base, base, self.quote('/' + path))

    def is_dir_below(self, base, path):
        """Condition: a variable is set, and a directory with this path exists below the directory in it."""
        return '$%s ne "" && [file isdirectory [join [list $%s %s] ""]]' % (base, base, self.quote('/' + path))

    def is_file_at(self, variable):
        """Condition: the path in a variable is a regular file."""
        return '[file isfile $%s]' % variable

    def has_other_size(self, variable, size):
        """Condition: the path in a variable is a file, and has another size than this."""
        return '[file isfile $%s] && [file size $%s] != %d' % (variable, variable, size)

    def is_no_dir(self, variable):
        """Condition: a variable is set, but not to the path of a directory."""
        return '$%s ne "" && ![file isdirectory $%s]' % (variable, variable)

    def is_relative(self, variable):
        """Condition: a variable is set to a relative path."""
        return '[regexp {^[^/]} $%s]' % variable

    def loses_blank(self, variable):
        """Condition: the runtime can't bind the path in a variable (see ``escape_bind``)."""
        return '[regexp {[,:]\\s|\\s[,:]} $%s]' % variable

    def is_loaded(self, module_variable):
        """Condition: the module whose name is in a variable is loaded."""
        loaded = '[info exists env(LOADEDMODULES)] && [lsearch -exact [split $env(LOADEDMODULES) :] $%s] >= 0'
        return '$%s ne "" && %s' % (module_variable, loaded % module_variable)

    def unload_on_load(self, module_variable):
        """Unload the module whose name is in a variable before this one is loaded."""
        return self.when('[module-info mode load]', 'module unload $%s\n' % module_variable)

    def is_file(self, path):
        """Condition: a path is a regular file or a link to one."""
        return '[file isfile %s]' % self.quote(path)

    def is_dir(self, path):
        """Condition: a path is a directory or a link to one."""
        return '[file isdirectory %s]' % self.quote(path)

    def exists(self, path):
        """Condition: a path exists."""
        return '[file exists %s]' % self.quote(path)

    def is_set(self, variable):
        """Condition: a variable of the module file is not empty."""
        return '$%s ne ""' % variable

    def negate(self, condition):
        """Condition: another condition is false."""
        return '!(%s)' % condition

    def when(self, condition, then, otherwise=''):
        """Execute one of two groups of statements."""
        text = 'if {%s} {\n%s}' % (condition, self.indent(then))
        if otherwise:
            text += ' else {\n%s}' % self.indent(otherwise)
        return text + '\n'

    def where(self, condition, then):
        """Execute statements so that they change the environment only if a condition holds."""
        return 'lappend outer $active\nset active [expr {$active && (%s)}]\n%s' \
            'set active [lindex $outer end]\nset outer [lreplace $outer end end]\n' % (condition, then)

    def message(self, parts):
        """Return an expression for a message: texts and names of variables in turn."""
        words = ['$' + part if number % 2 else self.quote(part) for number, part in enumerate(parts)]
        return '[join [list %s] ""]' % ' '.join(words)

    def fail_on_load(self, *parts):
        """Make loading fail with a message (texts and variables in turn), but not unload, show, spider and is-avail."""
        # for this kind of error Environment Modules shows the message without a stack trace
        return self.when('[module-info mode load]', 'error %s {} MODULES_ERR_GLOBAL\n' % self.message(parts))

    def add_to_help(self, condition, *parts):
        """Add a message (texts and variables in turn) to the help if a condition holds when somebody reads it."""
        return 'add_to_help {\n%s}\n' % self.indent(self.when(condition, 'puts stderr %s\n' % self.message(parts)))

    def notice_on_load(self, *parts):
        """Print a message (texts and variables in turn) when the module is loaded."""
        return self.when('[module-info mode load]', 'puts stderr %s\n' % self.message(parts))
