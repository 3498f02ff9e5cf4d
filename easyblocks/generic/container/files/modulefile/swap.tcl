# Another version of this module that is loaded makes room, before the `conflict` below: Lmod sees to that by itself,
# Environment Modules would refuse to load this one. If this load fails, the other module stays.
if {[module-info mode load] && !([info exists ModuleTool] && $ModuleTool eq "Lmod")} {
    set ebsif_software [file dirname [module-info name]]
    if {[is-loaded $ebsif_software]} { module unload $ebsif_software }
}
