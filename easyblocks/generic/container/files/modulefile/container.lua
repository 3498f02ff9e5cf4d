-- Decide on this node which image, user software and binds the container has, and set its environment, as
-- share/ebsif/module.conf in the installation (`root`) says. container.tcl and container.sh do the same. EBSIF_SET and
-- EBSIF_ADDED_* hold what was decided; unloading undoes exactly that, because the node may have changed.
local function container()
    local loading, unloading, conf, names = mode() == "load", mode() == "unload", {}, {}
    local function all(key) return ipairs(conf[key] or {}) end
    local function one(key) return conf[key] and conf[key][1] or "" end
    local function env(name) return os.getenv(name) or "" end
    -- Lmod's isFile and isDir are true for links to anything
    local function is(kind, path) return lfs.attributes(path, "mode") == kind end
    local function exists(path) return lfs.attributes(path, "mode") ~= nil end
    local function escape(path) return (path:gsub("[,:]", "\\%0")) end
    local function fail(text) if loading then LmodError(text) end end
    local function set(name, value)
        table.insert(names, name)
        setenv(name, value)
    end

    -- set a variable, for both runtimes if its name begins with *, unless the person has
    local function suggest(name, value)
        local apptainer, singularity = name:gsub("^%*", "APPTAINER"), name:gsub("^%*", "SINGULARITY")
        if env(apptainer) .. env(singularity) ~= "" then return end
        set(apptainer, value)
        if singularity ~= apptainer then set(singularity, value) end
    end

    -- add to a list, and note what was added, so that unloading takes that out
    local function add(to_list, variable, separator, items)
        local added = unloading and env("EBSIF_ADDED_" .. variable) or items
        if added == "" then return end
        set("EBSIF_ADDED_" .. variable, added)
        to_list(variable, added, separator)
    end

    -- add to the lists of both runtimes; one that isn't set begins with what the person has in the other one
    local function extend(name, separator, items)
        local lists = {APPTAINER = env("APPTAINER" .. name), SINGULARITY = env("SINGULARITY" .. name)}
        for runtime, list in pairs(lists) do
            if list:find("\n", 1, true) then
                fail(runtime .. name .. " has a line break: modules tools run the rest of it. Unset it.")
            end
        end
        for _, runtimes in ipairs({{"APPTAINER", "SINGULARITY"}, {"SINGULARITY", "APPTAINER"}}) do
            local runtime, other = runtimes[1], lists[runtimes[2]]
            local is_copied = loading and items ~= "" and lists[runtime] == "" and other ~= ""
            -- Lmod drops the slash, which means the same
            local copy = (other .. separator):gsub("image%-src=/" .. separator, "image-src=" .. separator)
            add(append_path, runtime .. name, separator, is_copied and copy .. items or items)
        end
    end

    local function refuse_other(other)
        -- isloaded is true for the module that is being loaded
        if not loading or other == "" or other == myModuleFullName() or not isloaded(other) then return end
        if one("one_container") == "replace" then return unload(other) end
        -- a script that goes on after the error must not run in the other container
        if myShellType() == "sh" then io.stdout:write("unset SIF CONTAINERROOT;\n") end
        fail("The container module " .. other .. " is loaded, and only one can be loaded at a time. To replace it: " ..
             "`module unload " .. other .. "`, then `module load " .. myModuleFullName():gsub("/%.", "/") .. "`.")
    end

    local function find_image()
        local top, tried = env(one("image_root_variable")), {}
        for _, path in all("image") do
            if path:find("^%./") then
                path = root .. path:sub(2)
            elseif not path:find("^/") then
                path = (top ~= "" and top or one("image_root")) .. "/" .. path
            end
            if is("file", path) then return path end
            table.insert(tried, path)
        end
        fail("The image of this container is missing: no copy was found on this node. Looked for: " ..
             table.concat(tried, ", ") .. ". " .. one("image_remedy"))
        return ""
    end

    local function find_user_software()
        -- Lmod spells the path of a bind like this
        local own = (env("EBSIF_USER_SOFTWARE") .. "/"):gsub("//+", "/"):gsub("/%.%f[/]", ""):sub(1, -2)
        local is_odd = not own:find("^/[^%c]*$") or own:find("[,:] ") or own:find(" [,:]")
        if own ~= "" and (is_odd or not is("directory", own)) then
            fail("EBSIF_USER_SOFTWARE=" .. own .. " is not the full path of a directory that can be bound into a " ..
                 "container. Create it, choose another one, or unset the variable.")
        end
        for _, folder in ipairs(own ~= "" and {own, root} or {root}) do
            local directory, file = folder .. "/user-software", folder .. "/user-software.squashfs"
            if loading and is("file", file) and is("directory", directory) then
                LmodMessage(folder .. " has both user-software.squashfs and the directory user-software: the file " ..
                            "is used, and changes in the directory have no effect.")
            end
            if is("file", file) then return file end
            if is("directory", directory) then return directory end
        end
        return ""
    end

    local function find_binds(user_software)
        local binds = {}
        local function add_bind(line, where)
            local optional, bind = line:match("^%s*(%??)%s*(.-)%s*$")
            if not bind:find("^[^#]") then return end
            bind = bind:gsub("^%./", function() return escape(root) .. "/" end)
            local source = bind:gsub("\\([,:])", {[","] = "\1", [":"] = "\2"}):match("^[^:]*")
            source = source:gsub("[\1\2]", {["\1"] = ",", ["\2"] = ":"})
            if exists(source) then
                table.insert(binds, bind)
            elseif optional == "" then
                fail("This container needs " .. source .. ", which doesn't exist on this node. " .. where)
            end
        end
        for _, line in all("bind") do add_bind(line, one("bind_remedy")) end
        local path = one("bind_file")
        local file = is("file", path) and io.open(path)
        for line in file and file:lines() or function() end do add_bind(line, "It is listed in " .. path .. ".") end
        if path ~= "" and not file and (exists(path) or not conf.bind_default) then
            fail("The list of bind mounts can't be read: " .. path)
        end
        for _, line in ipairs(not file and conf.bind_default or {}) do add_bind(line, "") end
        if user_software ~= "" then
            local options = is("file", user_software) and one("user_software") or ""
            table.insert(binds, escape(user_software) .. ":/user-software" .. options)
        end
        return table.concat(binds, ",")
    end

    local file = io.open(root .. "/share/ebsif/module.conf")
    for line in file and file:lines() or function() end do
        local key, value = line:match("^(%S+) (.*)$")
        if key then
            conf[key] = conf[key] or {}
            table.insert(conf[key], value)
        end
    end
    if not unloading and not conf.module then
        return fail("The installation " .. root .. " is missing on this node, damaged, or closed to you: ask " ..
                    "whoever installed it, or reinstall it with `eb --rebuild`.")
    end
    local binds = ""
    if not unloading then
        refuse_other(env("EBSIF_LOADED_MODULE"))
        local image, user_software = find_image(), conf.user_software and find_user_software() or ""
        binds = find_binds(user_software)
        for _, suffix in ipairs({"", one("suffix")}) do
            set("SIF" .. suffix, image)
            set("RUNSCRIPTS" .. suffix, root .. "/runscripts")
        end
        set("CONTAINERROOT", root)
        set("EBSIF_LOADED_MODULE", myModuleFullName())
        set("EBSIF_MOUNTED_USER_SOFTWARE", user_software)
        for _, pair in all("set") do set(pair:match("^(%S+) (.*)$")) end
        for _, words in all("where") do
            local path, name, value = words:match("^(%S+) (%S+) (.*)$")
            if exists(path == "user_software" and user_software or path) then suggest(name, value) end
        end
        for _, pair in all("default") do suggest(pair:match("^(%S+) (.*)$")) end
    end
    extend("_BINDPATH", ",", binds)
    local overlays = {}
    for _, path in all("overlay") do table.insert(overlays, root .. path) end
    if conf.overlay or unloading then extend("_OVERLAY", ",", table.concat(overlays, ",")) end
    extend("ENV_PREPEND_PATH", ":", one("search_path"))
    -- programs that mount images, so that signals don't end them (share/ebsif/mounter)
    local mounters = {}
    for _, name in all("mounter") do
        if is("file", "/usr/bin/" .. name) then table.insert(mounters, root .. "/share/ebsif/mounters/" .. name) end
    end
    add(prepend_path, "PATH", ":", table.concat(mounters, ":"))
    -- of a module written by hand in whose place this one is
    if env("SINGULARITY_BIND"):find(root .. "/runscripts:/runscripts", 1, true) then
        if unloading then setenv("SINGULARITY_BIND", "") else unsetenv("SINGULARITY_BIND") end
    end
    for name in (unloading and env("EBSIF_SET") or ""):gmatch("%S+") do set(name, "") end
    setenv("EBSIF_SET", table.concat(names, " "))
end
if mode() == "load" or mode() == "unload" or mode() == "show" then container() end
