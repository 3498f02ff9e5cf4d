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

What a person had in a variable before is there again after unloading. A module file begins with functions for that
(``functions``); the statements call them. If a variable had a value, ``put`` notes in ``__EBSIF_EARLIER_<NAME>``
that it was left as it is (``same``), or the value, after a colon (a plus: in Lmod, another module has pushed it).

Environment Modules brings it back with ``unsetenv NAME VALUE``: before 5.1 it has no pushenv, and later it can't push
a value with a colon. In Lmod nothing but pushenv sets a variable on unload, and that takes the value from a stack, in
``__LMOD_STACK_<NAME>``. We write it ourselves, because Lmod 8.6 leaves a value behind when it takes one off, which it
would bring back the next time, and in Tcl pushes the new value for the old one. The value is on the stack twice (or
once, above those of other modules): on unload Lmod 8.6 drops the first and restores the second, Lmod 8.7.60 restores
the first. An empty value is unset there. Tried with Lmod 8.6.19 and 8.7.60, and Environment Modules 5.2.

Where a container module is loaded in place of another one, or the modules tool has lost sight of that (its file was
removed, a profile was sourced again), its values are no person's: what it has noted counts. For the same reason
the first statement that is in force for a name is the last one: another would take its value for a person's, and leave
it behind.
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
        ModuleSyntax

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

    @property
    def functions(self):
        """The functions that statements call. What is in the environment before them is a person's."""
        return self.FUNCTIONS.lstrip('\n')

    def container_env(self, name, value):
        """Set a variable in the container, unless a person has set it there."""
        escaped = escape_value(value)
        return self.call('put_in_container', name, escaped, *([value] if escaped != value else []))

    def default_env(self, name, value):
        """Set an environment variable, unless a person has set it."""
        return self.call('put_default', name, value)

    def setenv(self, name, text):
        """Set an environment variable to a constant."""
        return self.call('put', name, text)

    def put_list(self, name, separator, text):
        """Set a list that both runtimes know, by a name with their prefixes; what a person has in it comes first."""
        return self.call('put_list', name, separator, text)

    def indent(self, text):
        """Return text with every line one level deeper."""
        # not splitlines: it splits at characters that may be in a value
        return ''.join(self.INDENT + line + '\n' for line in text.split('\n')[:-1])


class LuaModule(ModuleSyntax):
    """Statements in Lua, for Lmod."""

    FUNCTIONS = r"""
local loading, unloading, in_force, done = mode() == "load", mode() == "unload", true, {}
local lost = loading and os.getenv("EBSIF_LOADED_MODULE") ~= nil
local function earlier(name)
    local noted = os.getenv("__EBSIF_EARLIER_" .. name) or (lost and "none" or "same")
    if loading and noted ~= "none" then
        return noted == "same" and os.getenv(name) or noted:match("^[:+](.*)$")
    end
end
local function base64(text)
    local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    -- Lmod 8.6 damages a third byte above 191: groups of two where there is one
    return (text:gsub("..?[^\192-\255]?", function(three)
        local first, second, third = three:byte(1, 3)
        local bits, word = first * 65536 + (second or 0) * 256 + (third or 0), ""
        for _, place in ipairs({262144, 4096, 64, 1}) do
            local digit = math.floor(bits / place) % 64 + 1
            word = word .. digits:sub(digit, digit)
        end
        return word:sub(1, #three + 1) .. ("="):rep(3 - #three)
    end))
end
local function put_back(name, note)
    local noted, stack = os.getenv(note), "__LMOD_STACK_" .. name
    setenv(noted and note or name, "")
    if noted and noted ~= "same" then pushenv(name, "") end
    if noted and noted:find("^:") then setenv(stack, "") end
end
local function put(name, value)
    if done[name] then return end
    done[name] = in_force or unloading
    local note, stack, before = "__EBSIF_EARLIER_" .. name, "__LMOD_STACK_" .. name, earlier(name)
    if not in_force then value = before end
    if unloading then
        put_back(name, note)
    elseif before and before == value then
        setenv(note, "same")
        if lost then setenv(name, value) end
    elseif before then
        local others = not lost and os.getenv(stack) or nil
        setenv(note, (others and "+" or ":") .. before)
        setenv(stack, base64(before) .. ":" .. (others or base64(before)))
        setenv(name, value)
    elseif value then
        setenv(name, value)
    elseif lost then
        unsetenv(name)
    end
end
local function put_default(name, value)
    put(name, earlier(name) or value)
end
local function put_both(name, value)
    put("SINGULARITY" .. name, value)
    put("APPTAINER" .. name, value)
end
local function put_in_container(name, value, literal)
    for _, no_eval in ipairs({"APPTAINER_NO_EVAL", "SINGULARITY_NO_EVAL"}) do
        if literal and (os.getenv(no_eval) or ""):find("^[1tT]") then value = literal end
    end
    put_both("ENV_" .. name, earlier("APPTAINERENV_" .. name) or earlier("SINGULARITYENV_" .. name) or value)
end
local function with(list, item, separator)
    if item == "" or (separator .. list .. separator):find(separator .. item .. separator, 1, true) then
        return list
    end
    return list == "" and item or list .. separator .. item
end
local function of_both(name, separator)
    return with(earlier("APPTAINER" .. name) or "", earlier("SINGULARITY" .. name) or "", separator)
end
local function put_list(name, separator, items)
    put_both(name, with(of_both(name, separator), items, separator))
end
"""

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

    def call(self, function, *texts):
        """Call one of the functions with constants."""
        return '%s(%s)\n' % (function, ', '.join(self.quote(text) for text in texts))

    def setenv_from(self, name, variable):
        """Set an environment variable to the value of a variable of the module file."""
        return 'put("%s", %s)\n' % (name, variable)

    def put_both_from(self, name, variable):
        """Set the variables that both runtimes know by a name with their prefixes."""
        return 'put_both("%s", %s)\n' % (name, variable)

    def declare_list(self, variable, name, separator):
        """Introduce a variable of the module file with what a person has in a list that both runtimes know."""
        return 'local %s = of_both("%s", "%s")\n' % (variable, name, separator)

    def add(self, variable, text):
        """Add an item to a list with commas in a declared variable, unless it's there."""
        return '%s = with(%s, %s, ",")\n' % (variable, variable, self.quote(text))

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

    def add_bind(self, variable, path_variable, text):
        """Add a bind: the path in a variable, escaped for the runtime, and the rest of the bind."""
        return '%s = with(%s, (%s:gsub("([,:])", "\\\\%%1")) .. %s, ",")\n' % (
            variable, variable, path_variable, self.quote(text))

    def read_binds(self, variable, path):
        """Add the binds that a file holds when the module is loaded, one in a line, '?' before optional ones."""
        return (
            'local bind_list = isFile(%(path)s) and io.open(%(path)s)\n'
            'if bind_list then\n'
            '    for line in bind_list:lines() do\n'
            '        local optional, bind = line:match("^%%s*(%%??)%%s*(.-)%%s*$")\n'
            '        if bind ~= "" and bind:sub(1, 1) ~= "#" then\n'
            '            local source = bind:gsub("\\\\:", "\\1"):match("^[^:]*"):gsub("\\1", ":"):gsub("\\\\,", ",")\n'
            '            if lfs.attributes(source, "mode") then\n'
            '                %(variable)s = with(%(variable)s, bind, ",")\n'
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

    def is_no_dir(self, variable):
        """Condition: a variable is set, but no directory is at the path in it."""
        return '%s ~= "" and not isDir(%s)' % (variable, variable)

    def is_relative(self, variable):
        """Condition: a variable is set, to what is no full path."""
        return '%s:find("^[^/]")' % variable

    def loses_blank(self, variable):
        """Condition: the runtime can't bind the path in a variable (see ``escape_bind``)."""
        return '%s:find("[,:]%%s") or %s:find("%%s[,:]")' % (variable, variable)

    def is_loaded(self, module_variable):
        """Condition: the module of the name in a variable is loaded."""
        return '%s ~= "" and isloaded(%s)' % (module_variable, module_variable)

    def unload_on_load(self, module_variable):
        """Unload the module of the name in a variable before this one is loaded."""
        return self.when('mode() == "load"', 'unload(%s)\n' % module_variable)

    def is_file(self, path):
        """Condition: a regular file, or a link to one, is there."""
        return 'isFile(%s)' % self.quote(path)

    def is_dir(self, path):
        """Condition: a directory, or a link to one, is there."""
        return 'isDir(%s)' % self.quote(path)

    def exists(self, path):
        """Condition: anything is there, a socket or a device as well: Lmod's isFile is true of regular files only."""
        return 'lfs.attributes(%s, "mode") ~= nil' % self.quote(path)

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

    def where(self, condition, then):
        """Statements that change the environment where a condition holds: elsewhere they leave the values there are."""
        return 'do\n    local outer = in_force\n    in_force = outer and (%s)\n%s    in_force = outer\nend\n' % (
            condition, self.indent(then))

    def message(self, parts):
        """Return an expression for a message: texts, and between them names of variables."""
        return ' .. '.join(part if number % 2 else self.quote(part) for number, part in enumerate(parts))

    def fail_on_load(self, *parts):
        """Stop a load with a message (texts and variables in turn); unload, show, spider and is-avail go on."""
        return self.when('mode() == "load"', 'LmodError(%s)\n' % self.message(parts))

    def notice_on_load(self, *parts):
        """Say something (texts and variables in turn) when the module is loaded."""
        return self.when('mode() == "load"', 'LmodMessage(%s)\n' % self.message(parts))


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
        """A line for the reader of the module file."""
        return '# %s\n' % text

    def declare(self, variable, text):
        """Introduce a variable of the module file with a first value."""
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
        """Set the variables that both runtimes know by a name with their prefixes."""
        return 'put_both %s $%s\n' % (name, variable)

    def declare_list(self, variable, name, separator):
        """Introduce a variable of the module file with what a person has in a list that both runtimes know."""
        return 'set %s [of_both %s %s]\n' % (variable, name, separator)

    def add(self, variable, text):
        """Add an item to a list with commas in a declared variable, unless it's there."""
        return 'set %s [with $%s %s ,]\n' % (variable, variable, self.quote(text))

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
            '                error "This container needs $source, which does not exist on this node." \\\n'
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
        """Condition: a variable is set, to what is no full path."""
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
