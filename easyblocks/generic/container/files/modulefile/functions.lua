local loading, unloading, active, done = mode() == "load", mode() == "unload", true, {}
local lost = loading and os.getenv("EBSIF_LOADED_MODULE") ~= nil
local function user_value(name)
    local noted = os.getenv("__EBSIF_EARLIER_" .. name) or (lost and "none" or "same")
    if loading and noted ~= "none" then
        return noted == "same" and os.getenv(name) or noted:match("^[:+](.*)$")
    end
end
-- what a module that the modules tool has lost left behind: for both runtimes the same value, and no note
local function forget(...)
    for _, name in ipairs({...}) do
        local value, other = os.getenv(name), (name:gsub("^APPTAINER", "SINGULARITY"))
        if lost and value and value == os.getenv(other) and not os.getenv("__EBSIF_EARLIER_" .. name) then
            unsetenv(name)
            if other ~= name then unsetenv(other) end
        end
    end
end
local function base64(text)
    local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    -- Lmod 8.6 corrupts a third byte above 191: use groups of two there
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
local function restore(name, note)
    local noted, stack = os.getenv(note), "__LMOD_STACK_" .. name
    setenv(noted and note or name, "")
    if noted and noted ~= "same" then pushenv(name, "") end
    if noted and noted:find("^:") then setenv(stack, "") end
end
local function put(name, value)
    if done[name] then return end
    done[name] = active or unloading
    local note, stack, before = "__EBSIF_EARLIER_" .. name, "__LMOD_STACK_" .. name, user_value(name)
    if not active then value = before end
    if unloading then
        restore(name, note)
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
    put(name, user_value(name) or value)
end
local function put_both(name, value)
    put("SINGULARITY" .. name, value)
    put("APPTAINER" .. name, value)
end
local function put_in_container(name, value, literal)
    for _, no_eval in ipairs({"APPTAINER_NO_EVAL", "SINGULARITY_NO_EVAL"}) do
        if literal and (os.getenv(no_eval) or ""):find("^[1tT]") then value = literal end
    end
    put_both("ENV_" .. name, user_value("APPTAINERENV_" .. name) or user_value("SINGULARITYENV_" .. name) or value)
end
local function append_item(list, item, separator)
    if item == "" or (separator .. list .. separator):find(separator .. item .. separator, 1, true) then
        return list
    end
    return list == "" and item or list .. separator .. item
end
local function user_items(name, separator)
    return append_item(user_value("APPTAINER" .. name) or "", user_value("SINGULARITY" .. name) or "", separator)
end
local function put_list(name, separator, items)
    put_both(name, append_item(user_items(name, separator), items, separator))
end
-- put the directory of our file before that of the program with this name, if that is one where our file looks for it
local function stand_in(program, directory)
    local usual = {["/usr/local/bin"] = true, ["/usr/bin"] = true, ["/bin"] = true}
    local found
    for place in (os.getenv("PATH") or ""):gmatch("[^:]+") do
        if not found and place ~= directory and lfs.attributes(place .. "/" .. program, "mode") == "file" then
            found = place
        end
    end
    if unloading or usual[found] then prepend_path("PATH", directory) end
end
-- the module file that this one replaces may be loaded here: what it set in variables that this one leaves alone
local function drop_replaced(binds, ...)
    local name, kept = "SINGULARITY_BIND", ""
    local value = os.getenv(name) or ""
    if not (loading or unloading) or not value:find(root .. "/runscripts:/runscripts", 1, true) then return end
    for _, other in ipairs({...}) do
        if loading then unsetenv(other) elseif os.getenv(other) then setenv(other, "") end
    end
    for item in value:gmatch("[^,]+") do
        local source, target = item:match("^([^:]*):?([^:]*)")
        local bind = source == target and source or item
        if target ~= "/runscripts" and target ~= "/user-software" and append_item(binds, bind, ",") ~= binds then
            kept = append_item(kept, item, ",")
        end
    end
    if loading and kept == "" then
        unsetenv(name)
    elseif loading or kept == "" then
        setenv(name, kept)
    end
end
