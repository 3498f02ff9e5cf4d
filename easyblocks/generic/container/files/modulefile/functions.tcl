set unloading [expr {[module-info mode unload] || [module-info mode remove]}]
set loading [expr {[module-info mode load] && !$unloading}]
set in_lmod [expr {[info exists ModuleTool] && $ModuleTool eq "Lmod"}]
# Lmod may run Tcl itself, with the encoding of the C locale, which changes characters that are not ASCII; or by tclsh
set attached [expr {$in_lmod && ![string match tclsh* [file tail [info nameofexecutable]]]}]
set active 1
set done {}
# Tcl decodes the whole environment whenever it looks for a variable, so find out once which ones are set; to unload, only
# what was recorded matters
set known {}
foreach name [array names env [expr {$unloading ? "__EBSIF_EARLIER_*" : "*"}]] { dict set known $name 1 }
proc is_set {name} {
    global env known in_lmod
    if {![dict exists $known $name] || ![info exists env($name)]} { return 0 }
    # variables that Environment Modules has just unset are empty for the module that is loaded next
    return [expr {$in_lmod || $env($name) ne "" || [catch {getenv $name unset} value] || $value ne "unset"}]
}
set lost [expr {$loading && [is_set EBSIF_LOADED_MODULE]}]
# Lmod cuts blanks at the end of what Tcl modules set, such as the note; the value is on its stack, too
proc noted_value {name noted} {
    global env
    if {![info exists env(__LMOD_STACK_$name)]} { return $noted }
    set bytes ""
    # groups with their padding, see base64
    foreach group [regexp -all -inline {[^=:]+=*} [lindex [split [string map {- + _ /} $env(__LMOD_STACK_$name)] :] 0]] {
        append bytes [binary decode base64 $group]
    }
    set value [encoding convertfrom $bytes]
    return [expr {[string trimright $value "\r\n "] eq $noted ? $value : $noted}]
}
proc user_value {name} {
    global env loading lost known
    set note __EBSIF_EARLIER_$name
    if {!$loading || (![dict exists $known $name] && ![dict exists $known $note])} { return {} }
    if {[is_set $note] && $env($note) ne "same"} { return [list [noted_value $name [string range $env($note) 1 end]]] }
    if {[is_set $name] && (!$lost || [is_set $note])} { return [list $env($name)] }
    return {}
}
# what a module that the modules tool has lost left behind: for both runtimes the same value, and no note
proc forget {args} {
    global env lost
    if {!$lost} { return }
    foreach name $args {
        set other [regsub ^APPTAINER $name SINGULARITY]
        if {![is_set $name] || ![is_set $other] || [is_set __EBSIF_EARLIER_$name]} { continue }
        if {$env($name) ne $env($other)} { continue }
        unsetenv $name
        if {$other ne $name} { unsetenv $other }
    }
}
proc first_user_value {default args} {
    foreach name $args {
        foreach value [user_value $name] { return $value }
    }
    return $default
}
proc change {name value} {
    global attached known
    dict set known $name 1
    if {$attached && ![string is ascii $value]} {
        set value [encoding convertfrom utf-8 [encoding convertto $value]]
    }
    setenv $name $value
}
proc restore {name} {
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
    # Lmod 8.6 corrupts a third byte above 191: use groups of two there
    foreach three [regexp -all -inline {..?[^\u00c0-\u00ff]?} $bytes] { append text [binary encode base64 $three] }
    return [string map {+ - / _} [append text ""]]
}
proc override {name value before} {
    global env in_lmod lost
    set stack __LMOD_STACK_$name
    set kind :
    if {$in_lmod} {
        set noted [base64 [encoding convertto $before]]
        set others $noted
        if {!$lost && [info exists env($stack)]} { set kind +; set others $env($stack) }
        setenv $stack $noted:$others
    } elseif {[string match "*\n*" $before]} {
        error "$name has a value with a line break, which Environment Modules can't restore: unset it first." \
            {} MODULES_ERR_GLOBAL
    }
    change __EBSIF_EARLIER_$name $kind$before
    change $name $value
}
proc put {name value} {
    global env unloading lost active done
    if {[dict exists $done $name]} { return }
    if {$active || $unloading} { dict set done $name 1 }
    if {$unloading} { restore $name; return }
    set before [user_value $name]
    if {[llength $before] && (!$active || [lindex $before 0] eq $value)} {
        change __EBSIF_EARLIER_$name same
        if {$lost && (![is_set $name] || $env($name) ne [lindex $before 0])} { change $name [lindex $before 0] }
    } elseif {[llength $before]} {
        override $name $value [lindex $before 0]
    } elseif {$active} {
        change $name $value
    } elseif {$lost} {
        unsetenv $name
    }
}
# the statements are for when somebody reads the help, in which Lmod has another mode than Environment Modules
proc add_to_help {statements} {
    if {[info procs ModulesHelp] eq ""} { return }
    proc ModulesHelp {} [info body ModulesHelp]\n[list uplevel #0 $statements]
}
proc put_default {name value} {
    put $name [first_user_value $value $name]
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
    put_both ENV_$name [first_user_value $value APPTAINERENV_$name SINGULARITYENV_$name]
}
proc append_item {list item separator} {
    if {$item eq "" || [string first $separator$item$separator $separator$list$separator] >= 0} { return $list }
    if {$list eq ""} { return $item }
    return $list$separator$item
}
proc user_items {name separator} {
    return [append_item [first_user_value "" APPTAINER$name] [first_user_value "" SINGULARITY$name] $separator]
}
proc put_list {name separator items} {
    put_both $name [append_item [user_items $name $separator] $items $separator]
}
# put the directory of our file before that of the program with this name, if that is one where our file looks for it
proc stand_in {program directory} {
    global env unloading
    set found ""
    foreach place [split [expr {[info exists env(PATH)] ? $env(PATH) : ""}] :] {
        if {$found eq "" && $place ne $directory && [file isfile $place/$program]} { set found $place }
    }
    if {$unloading || $found in {/usr/local/bin /usr/bin /bin}} { prepend-path PATH $directory }
}
# the module file that this one replaces may be loaded here: what it set in variables that this one leaves alone
proc drop_replaced {binds args} {
    global env loading unloading root
    set name SINGULARITY_BIND
    if {!($loading || $unloading) || ![info exists env($name)]} { return }
    if {[string first $root/runscripts:/runscripts $env($name)] < 0} { return }
    foreach other $args {
        if {![info exists env($other)]} { continue }
        if {$loading} { unsetenv $other } else { setenv $other "" }
    }
    set kept ""
    foreach item [split $env($name) ,] {
        lassign [split $item :] source target
        set bind [expr {$source eq $target ? $source : $item}]
        if {$target ni {/runscripts /user-software} && [append_item $binds $bind ,] ne $binds} {
            set kept [append_item $kept $item ,]
        }
    }
    if {$loading && $kept eq ""} {
        unsetenv $name
    } elseif {$loading || $kept eq ""} {
        setenv $name $kept
    }
}
