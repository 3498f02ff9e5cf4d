# Decide on this node which image, user software and binds the container has, and set its environment, as
# share/ebsif/module.conf in the installation (`root`) says. container.lua and container.sh do the same. EBSIF_SET and
# EBSIF_ADDED_* hold what was decided; unloading undoes exactly that, because the node may have changed.
# In a namespace: other parts of the module file, hooks of a site, and other modules may define what has such names.
namespace eval ebsif {}
proc ebsif::all {key} {
    variable conf
    return [expr {[dict exists $conf $key] ? [dict get $conf $key] : {}}]
}
proc ebsif::one {key} { return [lindex [all $key] 0] }
# Tcl decodes the whole environment whenever it looks for a variable. Those that Environment Modules has just unset are
# empty.
proc ebsif::env_of {name} {
    variable known
    return [expr {[dict exists $known $name] ? [dict get $known $name] : ""}]
}
# the first word of a text, and the rest (patterns of Tcl take long to compile)
proc ebsif::parted {text} {
    set at [string first " " $text]
    return [list [string range $text 0 $at-1] [string range $text $at+1 end]]
}
proc ebsif::escape {path} { return [string map {, \\, : \\:} $path] }
proc ebsif::fail {text} {
    variable loading
    # for this kind of error Environment Modules shows no stack trace
    if {$loading} { error $text {} MODULES_ERR_GLOBAL }
}
proc ebsif::set_variable {name value} {
    global env; variable names; variable known; variable replaced
    lappend names $name
    dict set known $name $value
    setenv $name $value
    # Lmod unloads a module that is replaced after this, and that needs what it has set
    if {[dict exists $replaced $name]} { set env($name) [dict get $replaced $name] }
}
# set a variable, for both runtimes if its name begins with *, unless the person has
proc ebsif::suggest {name value} {
    variable names; variable replaced
    set earlier [expr {[dict exists $replaced EBSIF_SET] ? [dict get $replaced EBSIF_SET] : {}}]
    set variables [lsort -unique [list [string map {* APPTAINER} $name] [string map {* SINGULARITY} $name]]]
    foreach variable $variables {
        if {[env_of $variable] ne "" && ($variable in $names || $variable ni $earlier)} { return }
    }
    foreach variable $variables { set_variable $variable $value }
}
# add to a list, and note what was added, so that unloading takes that out
proc ebsif::add {to_list variable separator items} {
    variable unloading; variable in_lmod
    set added [expr {$unloading ? [env_of EBSIF_ADDED_$variable] : $items}]
    if {$added eq ""} { return }
    set_variable EBSIF_ADDED_$variable $added
    # Lmod puts the text into a program in Lua as it is
    $to_list --delim=$separator $variable [string map [expr {$in_lmod ? {\\ \\\\ \" \\\"} : {}}] $added]
}
# add to the lists of both runtimes; one that isn't set begins with what the person has in the other one
proc ebsif::extend {name separator items} {
    variable loading; variable in_lmod
    set lists [list APPTAINER [env_of APPTAINER$name] SINGULARITY [env_of SINGULARITY$name]]
    foreach {runtime mine} $lists {
        if {[string first \n $mine] < 0} { continue }
        fail "$runtime$name has a line break: modules tools run the rest of it. Unset it."
    }
    foreach {runtime mine} $lists other [list [lindex $lists 3] [lindex $lists 1]] {
        # Lmod drops the slash, which means the same
        if {$in_lmod} { set other [regsub -all {image-src=/(?=$|,)} $other image-src=] }
        set copied [expr {$loading && $items ne "" && $mine eq "" && $other ne ""}]
        add append-path $runtime$name $separator [expr {$copied ? "$other$separator$items" : $items}]
    }
}
proc ebsif::refuse_other {other} {
    global env; variable loading; variable known; variable in_lmod; variable replaced
    set loaded [split [env_of LOADEDMODULES] :]
    if {!$loading || $other eq "" || $other eq [module-info name] || $other ni $loaded} { return }
    if {[one one_container] eq "replace"} {
        if {$in_lmod} { set replaced $known }
        module unload $other
        set known [array get env]
        return
    }
    # a script that goes on after the error must not run in the other container; Environment Modules prints nothing then
    if {[module-info shelltype] eq "sh"} { puts prestdout "unset SIF CONTAINERROOT;" }
    fail "The container module $other is loaded, and only one can be loaded at a time. To replace it: `module unload\
        $other`, then `module load [string map {/. /} [module-info name]]`."
}
proc ebsif::find_image {} {
    global root
    set top [env_of [one image_root_variable]]
    if {$top eq ""} { set top [one image_root] }
    foreach path [all image] {
        if {[string match ./* $path]} {
            set path $root[string range $path 1 end]
        } elseif {![string match /* $path]} {
            set path $top/$path
        }
        if {[file isfile $path]} { return $path }
        lappend tried $path
    }
    fail "The image of this container is missing: no copy was found on this node. Looked for: [join $tried {, }].\
        [one image_remedy]"
}
proc ebsif::find_user_software {} {
    global root; variable loading
    # Lmod spells the path of a bind like this
    set own [regsub -all {//+} [env_of EBSIF_USER_SOFTWARE]/ /]
    set own [string range [regsub -all {(/\.)+/} $own /] 0 end-1]
    # ASCII only, as in the other programs
    set is_odd [expr {![regexp {^/[^\x01-\x1f\x7f]*$} $own] || [regexp {[,:] | [,:]} $own]}]
    if {$own ne "" && ($is_odd || ![file isdirectory $own])} {
        fail "EBSIF_USER_SOFTWARE=$own is not the full path of a directory that can be bound into a container. Create\
            it, choose another one, or unset the variable."
    }
    foreach folder [expr {$own ne "" ? [list $own $root] : [list $root]}] {
        set directory $folder/user-software
        set file $folder/user-software.squashfs
        if {$loading && [file isfile $file] && [file isdirectory $directory]} {
            puts stderr "$folder has both user-software.squashfs and the directory user-software: the file is used, and\
                changes in the directory have no effect."
        }
        if {[file isfile $file]} { return $file }
        if {[file isdirectory $directory]} { return $directory }
    }
}
proc ebsif::add_bind {binds line where} {
    global root
    upvar $binds found
    set bind [string trim $line]
    set optional [string match {\?*} $bind]
    if {$optional} { set bind [string trimleft [string range $bind 1 end]] }
    if {$bind eq "" || [string match #* $bind]} { return }
    if {[string match ./* $bind]} { set bind [escape $root][string range $bind 1 end] }
    # a colon that is escaped does not end the source
    set source [lindex [split [string map {\\: \0 \\, ,} $bind] :] 0]
    set source [string map {\0 :} $source]
    if {[file exists $source]} {
        lappend found $bind
    } elseif {!$optional} {
        fail "This container needs $source, which doesn't exist on this node. $where"
    }
}
proc ebsif::find_binds {user_software} {
    set binds {}
    foreach line [all bind] { add_bind binds $line [one bind_remedy] }
    set path [one bind_file]
    if {[file isfile $path] && [file readable $path]} {
        foreach line [lines_of $path] { add_bind binds $line "It is listed in $path." }
    } elseif {$path ne "" && ([file exists $path] || [all bind_default] eq "")} {
        fail "The list of bind mounts can't be read: $path"
    } else {
        foreach line [all bind_default] { add_bind binds $line "" }
    }
    if {$user_software ne ""} {
        set options [expr {[file isfile $user_software] ? [one user_software] : ""}]
        lappend binds [escape $user_software]:/user-software$options
    }
    return [join $binds ,]
}
proc ebsif::lines_of {path} {
    set file [open $path]
    set lines [split [read $file] \n]
    close $file
    return $lines
}
proc ebsif::container {} {
    global root; variable conf; variable unloading; variable names
    set path $root/share/ebsif/module.conf
    foreach line [expr {[file readable $path] ? [lines_of $path] : {}}] {
        lassign [parted $line] key value
        if {$key ne ""} { dict lappend conf $key $value }
    }
    if {!$unloading && [one module] eq ""} {
        fail "The installation $root is missing on this node, damaged, or closed to you: ask whoever installed it, or\
            reinstall it with `eb --rebuild`."
        return
    }
    set binds ""
    if {!$unloading} {
        refuse_other [env_of EBSIF_LOADED_MODULE]
        set image [find_image]
        set user_software [expr {[one user_software] ne "" ? [find_user_software] : ""}]
        set binds [find_binds $user_software]
        foreach suffix [list "" [one suffix]] {
            set_variable SIF$suffix $image
            set_variable RUNSCRIPTS$suffix $root/runscripts
        }
        set_variable CONTAINERROOT $root
        set_variable EBSIF_LOADED_MODULE [module-info name]
        set_variable EBSIF_MOUNTED_USER_SOFTWARE $user_software
        foreach pair [all set] { set_variable {*}[parted $pair] }
        foreach words [all where] {
            lassign [parted $words] path pair
            lassign [parted $pair] name value
            if {[file exists [expr {$path eq "user_software" ? $user_software : $path}]]} { suggest $name $value }
        }
        foreach pair [all default] { suggest {*}[parted $pair] }
    }
    extend _BINDPATH , $binds
    set overlays {}
    foreach path [all overlay] { lappend overlays $root$path }
    if {$overlays ne {} || $unloading} { extend _OVERLAY , [join $overlays ,] }
    extend ENV_PREPEND_PATH : [one search_path]
    # programs that mount images, so that signals don't end them (share/ebsif/mounter)
    set mounters {}
    foreach name [all mounter] {
        if {[file isfile /usr/bin/$name]} { lappend mounters $root/share/ebsif/mounters/$name }
    }
    add prepend-path PATH : [join $mounters :]
    # of a module written by hand in whose place this one is
    if {[string first $root/runscripts:/runscripts [env_of SINGULARITY_BIND]] >= 0} {
        if {$unloading} { setenv SINGULARITY_BIND "" } else { unsetenv SINGULARITY_BIND }
    }
    if {$unloading} { foreach name [split [env_of EBSIF_SET]] { set_variable $name "" } }
    set_variable EBSIF_SET [join $names]
}
set ebsif::conf {}
set ebsif::names {}
set ebsif::in_lmod [expr {[info exists ModuleTool] && $ModuleTool eq "Lmod"}]
if {$ebsif::in_lmod} {
    # it reads UTF-8 from Tcl, but has let it read this text, and would let it read the environment, in another encoding
    set root [encoding convertfrom utf-8 [encoding convertto [encoding system] $root]]
    encoding system utf-8
}
set ebsif::known [array get env]
set ebsif::replaced {}
set ebsif::unloading [expr {[module-info mode unload] || [module-info mode remove]}]
set ebsif::loading [expr {[module-info mode load] && !$ebsif::unloading}]
if {$ebsif::loading || $ebsif::unloading || [module-info mode display] || [module-info mode show]} { ebsif::container }
