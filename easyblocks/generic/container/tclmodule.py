##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Statements of a module file in Tcl; the rules that they keep are in modulesyntax.py.
"""

from easybuild.easyblocks.generic.container.modulesyntax import CONTROL_CHARACTERS, ModuleSyntax


class TclModule(ModuleSyntax):
    """Statements in Tcl, for Environment Modules and Lmod."""

    FUNCTIONS = r"""
set unloading [expr {[module-info mode unload] || [module-info mode remove]}]
set loading [expr {[module-info mode load] && !$unloading}]
set in_lmod [expr {[info exists ModuleTool] && $ModuleTool eq "Lmod"}]
set in_force 1
set done {}
# Tcl decodes the environment each time it looks for a variable: once for all those of ours that are not there
set known {}
foreach name [array names env] { dict set known $name 1 }
proc is_set {name} {
    global env known in_lmod
    if {![dict exists $known $name] || ![info exists env($name)]} { return 0 }
    # to the module that is loaded next, Environment Modules shows what it has unset as empty
    return [expr {$in_lmod || $env($name) ne "" || [catch {getenv $name unset} value] || $value ne "unset"}]
}
set lost [expr {$loading && [is_set EBSIF_LOADED_MODULE]}]
proc earlier {name} {
    global env loading lost
    if {!$loading} { return {} }
    set note __EBSIF_EARLIER_$name
    if {[is_set $note] && $env($note) ne "same"} { return [list [string range $env($note) 1 end]] }
    if {[is_set $name] && (!$lost || [is_set $note])} { return [list $env($name)] }
    return {}
}
proc theirs {default args} {
    foreach name $args {
        foreach value [earlier $name] { return $value }
    }
    return $default
}
proc change {name value} {
    global in_lmod known
    dict set known $name 1
    # Lmod runs Tcl in the encoding of the locale C
    if {$in_lmod && ![string is ascii $value]} {
        set value [encoding convertfrom utf-8 [encoding convertto $value]]
    }
    setenv $name $value
}
proc put_back {name} {
    global env in_lmod
    set note __EBSIF_EARLIER_$name
    if {![is_set $note]} { setenv $name ""; return }
    set noted $env($note)
    setenv $note ""
    if {$noted eq "same"} { return }
    if {!$in_lmod} { unsetenv $name [string range $noted 1 end]; return }
    pushenv $name ""
    if {[string match :* $noted]} { setenv __LMOD_STACK_$name "" }
}
proc base64 {bytes} {
    # Lmod 8.6 damages a third byte above 191: groups of two where there is one
    foreach three [regexp -all -inline {..?[^\u00c0-\u00ff]?} $bytes] { append text [binary encode base64 $three] }
    return [string map {+ - / _} [append text ""]]
}
proc put_over {name value before} {
    global env in_lmod lost
    set stack __LMOD_STACK_$name
    set kind :
    if {$in_lmod} {
        set noted [base64 [encoding convertto $before]]
        set others $noted
        if {!$lost && [info exists env($stack)]} { set kind +; set others $env($stack) }
        setenv $stack $noted:$others
    } elseif {[string match "*\n*" $before]} {
        error "$name has a value with a line break, which Environment Modules can't bring back: unset it first." \
            {} MODULES_ERR_GLOBAL
    }
    change __EBSIF_EARLIER_$name $kind$before
    change $name $value
}
proc put {name value} {
    global unloading lost in_force done
    if {[dict exists $done $name]} { return }
    if {$in_force || $unloading} { dict set done $name 1 }
    if {$unloading} { put_back $name; return }
    set before [earlier $name]
    if {[llength $before] && (!$in_force || [lindex $before 0] eq $value)} {
        change __EBSIF_EARLIER_$name same
        if {$lost} { change $name [lindex $before 0] }
    } elseif {[llength $before]} {
        put_over $name $value [lindex $before 0]
    } elseif {$in_force} {
        change $name $value
    } elseif {$lost} {
        unsetenv $name
    }
}
proc put_default {name value} {
    put $name [theirs $value $name]
}
proc put_both {name value} {
    put SINGULARITY$name $value
    put APPTAINER$name $value
}
proc put_in_container {name value {literal ""}} {
    global env
    foreach no_eval {APPTAINER_NO_EVAL SINGULARITY_NO_EVAL} {
        if {$literal ne "" && [is_set $no_eval] && [string match {[1tT]*} $env($no_eval)]} { set value $literal }
    }
    put_both ENV_$name [theirs $value APPTAINERENV_$name SINGULARITYENV_$name]
}
proc with {list item separator} {
    if {$item eq "" || [string first $separator$item$separator $separator$list$separator] >= 0} { return $list }
    if {$list eq ""} { return $item }
    return $list$separator$item
}
proc of_both {name separator} {
    return [with [theirs "" APPTAINER$name] [theirs "" SINGULARITY$name] $separator]
}
proc put_list {name separator items} {
    put_both $name [with [of_both $name $separator] $items $separator]
}
"""

    # braces as well: the bodies of `if` are read as braced words first, in which every brace counts
    ESCAPES = {char: '\\u%04x' % ord(char) for char in CONTROL_CHARACTERS}
    ESCAPES.update({char: '\\' + char for char in '\\"$[]{}'})
    ESCAPES['\n'] = '\\n'

    def join_root(self, parts):
        """Return escaped parts with the root between them as one expression."""
        return '"%s"' % '${root}'.join(parts)

    def comment(self, text):
        """A comment in the module file."""
        return '# %s\n' % text

    def declare(self, variable, text):
        """Declare a variable of the module file with an initial value."""
        return self.assign(variable, text)

    def assign(self, variable, text):
        """Give a variable a value."""
        return 'set %s %s\n' % (variable, self.quote(text))

    def call(self, function, *texts):
        """Call one of the functions with constants."""
        return '%s %s\n' % (function, ' '.join(self.quote(text) for text in texts))

    def setenv_from(self, name, variable):
        """Set an environment variable to the value of a variable of the module file."""
        return 'put %s $%s\n' % (name, variable)

    def put_both_from(self, name, variable):
        """Set the variables of both runtimes with this name after their prefixes."""
        return 'put_both %s $%s\n' % (name, variable)

    def declare_list(self, variable, name, separator):
        """Declare a variable of the module file with the user's items of a list for both runtimes."""
        return 'set %s [of_both %s %s]\n' % (variable, name, separator)

    def add(self, variable, text):
        """Add an item to a list with commas in a declared variable, unless it's there."""
        return 'set %s [with $%s %s ,]\n' % (variable, variable, self.quote(text))

    def conflict(self, name):
        """Declare a conflict with another module."""
        return 'conflict %s\n' % self.quote(name)

    def declare_from_environment(self, variable, name, default):
        """Declare a variable of the module file with the value of an environment variable, or a default."""
        return self.declare(variable, default) + self.when(
            '[info exists env(%s)] && $env(%s) ne ""' % (name, name), 'set %s $env(%s)\n' % (variable, name))

    def assign_below(self, variable, base, path):
        """Give a declared variable a path below the directory in another one."""
        return 'set %s [join [list $%s %s] ""]\n' % (variable, base, self.quote('/' + path))

    def add_bind(self, variable, path_variable, text):
        """Add a bind: the path in a variable, escaped for the runtime, and the rest of the bind."""
        escaped = '[string map {, \\\\, : \\\\:} $%s]' % path_variable
        return 'set %s [with $%s [join [list %s %s] ""] ,]\n' % (variable, variable, escaped, self.quote(text))

    def read_binds(self, variable, path):
        """Add the binds that a file holds when the module is loaded, one in a line, '?' before optional ones."""
        return (
            'if {[file isfile %(path)s] && [file readable %(path)s]} {\n'
            '    set bind_list [open %(path)s]\n'
            '    while {[gets $bind_list line] >= 0} {\n'
            '        regexp {^\\s*(\\??)\\s*(.*?)\\s*$} $line all optional bind\n'
            '        if {$bind ne "" && ![string match "#*" $bind]} {\n'
            '            regexp {^(?:\\\\[,:]|[^:])*} $bind source\n'
            '            set source [string map {\\\\: : \\\\, ,} $source]\n'
            '            if {[file exists $source]} {\n'
            '                set %(variable)s [with $%(variable)s $bind ,]\n'
            '            } elseif {$optional eq "" && [module-info mode load]} {\n'
            '                error "This container needs $source, which doesn\'t exist on this node." \\\n'
            '                    {} MODULES_ERR_GLOBAL\n'
            '            }\n'
            '        }\n'
            '    }\n'
            '    close $bind_list\n'
            '} elseif {[module-info mode load]} {\n'
            '    error [join [list "The list of bind mounts can\'t be read:" %(path)s]] {} MODULES_ERR_GLOBAL\n'
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

    def is_no_dir(self, variable):
        """Condition: a variable is set, but no directory is at the path in it."""
        return '$%s ne "" && ![file isdirectory $%s]' % (variable, variable)

    def is_relative(self, variable):
        """Condition: a variable is set to a relative path."""
        return '[regexp {^[^/]} $%s]' % variable

    def loses_blank(self, variable):
        """Condition: the runtime can't bind the path in a variable (see ``escape_bind``)."""
        return '[regexp {[,:]\\s|\\s[,:]} $%s]' % variable

    def is_loaded(self, module_variable):
        """Condition: the module of the name in a variable is loaded."""
        loaded = '[info exists env(LOADEDMODULES)] && [lsearch -exact [split $env(LOADEDMODULES) :] $%s] >= 0'
        return '$%s ne "" && %s' % (module_variable, loaded % module_variable)

    def unload_on_load(self, module_variable):
        """Unload the module of the name in a variable before this one is loaded."""
        return self.when('[module-info mode load]', 'module unload $%s\n' % module_variable)

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

    def where(self, condition, then):
        """Statements that change the environment where a condition holds: elsewhere they leave the values there are."""
        return 'lappend outer $in_force\nset in_force [expr {$in_force && (%s)}]\n%s' \
            'set in_force [lindex $outer end]\nset outer [lreplace $outer end end]\n' % (condition, then)

    def message(self, parts):
        """Return an expression for a message: texts, and between them names of variables."""
        words = ['$' + part if number % 2 else self.quote(part) for number, part in enumerate(parts)]
        return '[join [list %s] ""]' % ' '.join(words)

    def fail_on_load(self, *parts):
        """Stop a load with a message (texts and variables in turn); unload, show, spider and is-avail go on."""
        # of this kind of error Environment Modules shows the message, of others a stack trace as well
        return self.when('[module-info mode load]', 'error %s {} MODULES_ERR_GLOBAL\n' % self.message(parts))

    def notice_on_load(self, *parts):
        """Say something (texts and variables in turn) when the module is loaded."""
        return self.when('[module-info mode load]', 'puts stderr %s\n' % self.message(parts))
