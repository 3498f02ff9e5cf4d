##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Statements of a module file in Lua; the rules that they keep are in modulesyntax.py.
"""

from easybuild.easyblocks.generic.container.modulesyntax import CONTROL_CHARACTERS, ModuleSyntax


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
        """Set the variables of both runtimes with this name after their prefixes."""
        return 'put_both("%s", %s)\n' % (name, variable)

    def declare_list(self, variable, name, separator):
        """Declare a variable of the module file with the user's items of a list for both runtimes."""
        return 'local %s = of_both("%s", "%s")\n' % (variable, name, separator)

    def add(self, variable, text):
        """Add an item to a list with commas in a declared variable, unless it's there."""
        return '%s = with(%s, %s, ",")\n' % (variable, variable, self.quote(text))

    def conflict(self, name):
        """Declare a conflict with another module."""
        return 'conflict(%s)\n' % self.quote(name)

    def declare_from_environment(self, variable, name, default):
        """Declare a variable of the module file with the value of an environment variable, or a default."""
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
            '                LmodError("This container needs " .. source .. ", which doesn\'t exist on this node.")\n'
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
        """Condition: a variable is set to a relative path."""
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
