-- `module spider` lists the packages that user software has, which users change by hand.
local function list_packages(venv, ...)
    local function read(path)
        local file = io.open(path)
        local text = file and file:read("*a") or ""
        if file then file:close() end
        return text
    end
    local function normal(name)
        return (name:gsub("[-_.]+", "-"):lower())
    end
    local size, library, found = lfs.attributes(root .. "/user-software.squashfs", "size"), root .. venv .. "/lib", nil
    if size then
        -- only make-squashfs knows what is in the file; without its list the file is that of the installation
        found = read(root .. "/share/ebsif/packages"):match("^" .. size .. "(\n.*)$")
    elseif isDir(library) then
        found = ""
        for python in lfs.dir(library) do
            local packages = library .. "/" .. python .. "/site-packages"
            for name in lfs.dir(isDir(packages) and packages or library) do
                found = found .. "\n" .. name
            end
        end
    end
    if not found then return end
    local record, listed, spelling, names = read(root .. "/share/ebsif/lock.json"), {}, {}, {}
    for _, key in ipairs({...}) do
        local packages = record:match('"' .. key .. '": %[(.-)%]') or ""
        for name, version in packages:gmatch('"([^"=]+)==([^"]+)"') do
            spelling[normal(name)] = name
            listed[normal(name)] = key ~= "venv_packages" and version or nil
        end
    end
    for _, pattern in ipairs({"%.dist%-info", "[^\n]*%.egg%-info"}) do
        for name, version in found:gmatch("\n(%w[^\n]*)%-(%d[^\n-]*)" .. pattern) do
            listed[normal(name)] = version
        end
    end
    for name, version in pairs(listed) do
        names[#names + 1] = (spelling[name] or name) .. "/" .. version
    end
    table.sort(names)
    extensions(table.concat(names, ","))
end
