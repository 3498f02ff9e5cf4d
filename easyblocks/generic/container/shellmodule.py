##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Module statements in bash: the environment of a module for programs that start without a modules tool.

They are written to share/ebsif/environment.sh of the installation whenever the module is written. Kernels, interpreters
of editors and wrappers source it. It finds the installation from its own location. modulesyntax.py explains the
statements; `ShellGenerator` provides those that EasyBuild's own part of a module file consists of.
"""
import os
import re

from easybuild.easyblocks.generic.container.modulesyntax import ModuleSyntax
from easybuild.easyblocks.generic.container.readable import write_readable, write_whole
from easybuild.base import fancylogger
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.module_generator import ModuleGenerator

# the file in the installation
ENVIRONMENT = os.path.join('share', 'ebsif', 'environment.sh')


class ShellModule(ModuleSyntax):
    """Statements in bash, all in one function."""

    FUNCTIONS = 'functions.sh'

    ESCAPES = {char: '\\' + char for char in '\\"$`'}
    # lines of statements are indented
    ESCAPES['\n'] = '"$\'\\n\'"'

    def whole(self, statements):
        """Return the text of the file with these statements."""
        with open(self.functions_path) as functions:
            return '%s\nebsif_statements() {\n%s%s}\n\nebsif_main "${BASH_SOURCE[0]}" "${1:-load}"\n' % (
                functions.read(), self.indent(statements), self.INDENT + 'return 0\n')

    @property
    def functions(self):
        """Nothing: the functions are at the start of the file."""
        return ''

    def join_root(self, parts):
        """Return an expression for escaped parts, joined by the installation directory."""
        return '"%s"' % '${ebsif_root}'.join(parts)

    def comment(self, text):
        """A comment in the file."""
        return '# %s\n' % text

    def declare(self, variable, text):
        """Declare a variable with an initial value."""
        return 'local %s=%s\n' % (variable, self.quote(text))

    def assign(self, variable, text):
        """Give a declared variable another value."""
        return '%s=%s\n' % (variable, self.quote(text))

    def call(self, function, *texts):
        """Call one of the functions with constants."""
        return 'ebsif_%s %s\n' % (function, ' '.join(self.quote(text) for text in texts))

    def setenv_from(self, name, variable):
        """Set an environment variable to the value of another variable."""
        return 'ebsif_put %s "$%s"\n' % (name, variable)

    def put_both_from(self, name, variable):
        """Set the variables of both runtimes, whose prefixes go before the name, to the value of a variable."""
        return 'ebsif_put_both %s "$%s"\n' % (name, variable)

    def declare_list(self, variable, name, separator):
        """Declare a variable with the user's items in the list variables of both runtimes."""
        return 'local %s\nebsif_user_items %s %s %s\n' % (variable, variable, name, separator)

    def add(self, variable, text):
        """Add an item to a comma-separated list in a declared variable, unless it already contains it."""
        return 'ebsif_append %s %s ,\n' % (variable, self.quote(text))

    def drop_replaced(self, variable, names):
        """Drop what the module of an earlier installation has set, if it is loaded: binds not in a list, variables."""
        return 'ebsif_drop_replaced "$%s" %s\n' % (variable, ' '.join(names))

    def conflict(self, name):
        """Refuse to work beside another module."""
        return 'ebsif_conflict %s || return 1\n' % self.quote(name)

    def only_one(self, refusal):
        """Nothing: the functions have unloaded another container module, because a kernel must start beside it."""
        return ''

    def declare_from_environment(self, variable, name, default):
        """Declare a variable with the value of an environment variable or a default."""
        text = 'local %s="${%s:-}"\n' % (variable, name)
        return text + ('[[ -n "$%s" ]] || %s' % (variable, self.assign(variable, default)) if default else '')

    def assign_below(self, variable, base, path):
        """Assign a path below the directory in another variable to a declared variable."""
        return '%s="$%s"%s\n' % (variable, base, self.quote('/' + path))

    def add_bind(self, variable, path_variable, text):
        """Add a bind: the path in a variable, escaped for the runtime, followed by the rest of the bind."""
        return 'ebsif_add_bind %s "$%s" %s\n' % (variable, path_variable, self.quote(text))

    def read_binds(self, variable, path):
        """Add the binds that a file lists at that time, one per line, with '?' before optional ones."""
        return 'ebsif_read_binds %s %s || return 1\n' % (variable, self.quote(path))

    # --- conditions: what stands between [[ and ]]

    def is_file_below(self, base, path):
        """Condition: a variable is set, and a regular file with this path exists below the directory in it."""
        return '-n "$%s" && -f "$%s"%s' % (base, base, self.quote('/' + path))

    def is_dir_below(self, base, path):
        """Condition: a variable is set, and a directory with this path exists below the directory in it."""
        return '-n "$%s" && -d "$%s"%s' % (base, base, self.quote('/' + path))

    def is_file_at(self, variable):
        """Condition: the path in a variable is a regular file."""
        return '-f "$%s"' % variable

    def has_other_size(self, variable, size):
        """Condition: the path in a variable is a file, and has another size than this."""
        # without a program for it on PATH, nothing is printed, and the size is taken for right; exec: one process less
        return '-n "$ebsif_loading" && -f "$%s" && "$(exec stat -L -c %%s -- "$%s" 2>/dev/null)" != @(|%d)' % (
            variable, variable, size)

    def is_no_dir(self, variable):
        """Condition: a variable is set, but not to the path of a directory."""
        return '-n "$%s" && ! -d "$%s"' % (variable, variable)

    def is_relative(self, variable):
        """Condition: a variable is set to a relative path."""
        return '"$%s" == [!/]*' % variable

    def loses_blank(self, variable):
        """Condition: the runtime can't bind the path in a variable (see ``escape_bind``)."""
        return '"$%s" == *[,:][[:space:]]* || "$%s" == *[[:space:]][,:]*' % (variable, variable)

    def is_file(self, path):
        """Condition: a path is a regular file or a link to one."""
        return '-f %s' % self.quote(path)

    def is_dir(self, path):
        """Condition: a path is a directory or a link to one."""
        return '-d %s' % self.quote(path)

    def exists(self, path):
        """Condition: a path exists."""
        return '-e %s' % self.quote(path)

    def is_set(self, variable):
        """Condition: a variable is not empty."""
        return '-n "$%s"' % variable

    def negate(self, condition):
        """Condition: another condition is false."""
        return '! (%s)' % condition

    def when(self, condition, then, otherwise=''):
        """Execute one of two groups of statements."""
        text = 'if [[ %s ]]; then\n%s' % (condition, self.indent(then))
        if otherwise:
            text += 'else\n%s' % self.indent(otherwise)
        return text + 'fi\n'

    def where(self, condition, then):
        """Execute statements so that they change the environment only if a condition holds."""
        return 'ebsif_outer+=("$ebsif_active")\n[[ %s ]] || ebsif_active=\n%s' \
            'ebsif_active=${ebsif_outer[-1]}\nunset "ebsif_outer[-1]"\n' % (condition, then)

    def message(self, parts):
        """Return an expression for a message: texts and names of variables in turn."""
        return ''.join('"$%s"' % part if number % 2 else self.quote(part) for number, part in enumerate(parts))

    def fail_on_load(self, *parts):
        """Stop with a message (texts and variables in turn)."""
        return 'ebsif_refuse %s || return 1\n' % self.message(parts)

    def notice_on_load(self, *parts):
        """Print a message (texts and variables in turn)."""
        return 'ebsif_say %s\n' % self.message(parts)


class ShellGenerator(ModuleGenerator):
    """
    EasyBuild's own part of a module file in bash: paths, variables and dependencies of the easyconfig.

    Left out is what has no effect in a program: help, aliases, messages, checks of groups (files have permissions).
    """

    SYNTAX = 'Shell'

    def __init__(self, installdir):
        """Take the installation directory; the parent's constructor would need the easyblock and a modules tool."""
        self.installdir = installdir
        self.log = fancylogger.getLogger(self.__class__.__name__, fname=False)
        self.added_paths_per_key = None
        self.shell = ShellModule(installdir)

    def comment(self, msg):
        """A comment in the file."""
        return self.shell.comment(msg)

    def set_environment(self, key, value, relpath=False):
        """Set a variable to a value, in which $NAME stands for another variable unless the value says otherwise."""
        if not self.define_env_var(key):
            return ''
        resolve, function = True, 'setenv'
        if isinstance(value, dict):
            # put restores the earlier value on unload, like pushenv
            function = 'put' if value.get('pushenv') else 'setenv'
            resolve, value = value.get('resolve_env_vars', True), value['value']
        if relpath:
            value = os.path.join(self.installdir, value) if value else self.installdir
        quoted = self.shell.quote(value)
        if resolve:
            quoted = re.sub(r'\\\$(%s)' % self.REGEX_SHELL_VAR_PATTERN, r'${\1:-}', quoted)
        return 'ebsif_%s %s %s\n' % (function, key, quoted)

    def update_paths(self, key, paths, prepend=True, allow_abs=False, expand_relpaths=True, delim=':'):
        """Add paths, which are relative to the installation unless they are full ones."""
        if not self.define_env_var(key):
            return ''
        paths = [paths] if isinstance(paths, str) else paths
        if expand_relpaths:
            paths = [os.path.join(self.installdir, path) if path else self.installdir for path in paths]
        word = 'prepend' if prepend else 'append'
        return ''.join(self.shell.call('path', word, key, path, delim) for path in paths)

    def load_module(self, mod_name, *args, **kwargs):
        """Load a module that this one depends on."""
        return 'ebsif_need_module %s || return 1\n' % self.shell.quote(mod_name)

    def unload_module(self, mod_name):
        """Nothing: a dependency that is loaded is used."""
        return ''

    def use(self, paths, prefix=None, guarded=False, user_modpath=None):
        """Search directories for modules."""
        return ''.join(self.shell.call('use', path) for path in paths)

    def msg_on_load(self, msg):
        """Nothing: a person would see the message at the start of every program."""
        return ''

    msg_on_unload = msg_on_load

    def set_alias(self, key, value):
        """Nothing: programs don't use aliases."""
        return ''


def write_environment(installdir, statements):
    """
    Write the file with the statements of the module.

    Returns
    -------
    str
        A warning if it can't be written, because another account has installed; None otherwise.
    """
    path = os.path.join(installdir, ENVIRONMENT)
    try:
        write_readable(path, ShellModule(installdir).whole(statements), write_whole)
    except EasyBuildError as err:
        return "Can't write %s: programs that start without the module will find %s environment (%s)" % (
            path, "the earlier" if os.path.exists(path) else "no", err)
    return None
