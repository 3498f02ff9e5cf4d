"""Import an easyconfig in today's style, which installs a container with shell commands, as a record of the catalogue.

EasyBuild's own parser reads it. Every part ends up in one of three lists: what the family and the easyblock do anyway,
data of the record, and what is left to the user, with its line.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials
from easybuild.easyblocks.generic.container.tables import (
    INIT_CONDA_INJECTED,
    INIT_CONDA_MANUAL,
    INIT_IMAGE,
    INIT_NONE,
)
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.catalogue.site import Site
from ebsif.migrate.easyconfigfile import Source, parsed
from ebsif.migrate.imagefiles import read_sources
from ebsif.migrate.imported import Imported
from ebsif.migrate.modulesettings import ModuleSettings
from ebsif.migrate.ownparameters import BY_MODULE, OWN, read_own
from ebsif.migrate.reader import as_strings, is_data, is_empty, shortened
from ebsif.migrate.shellcommands import ShellCommands
from ebsif.packages.formats import condanames

# Parameters without relevance for a container if they have one of these values; None: any value.
NOT_NEEDED = {
    "easyblock": ("MakeCp", "Tarball", "Binary", "PackedBinary"), "skip": (True,),
    **dict.fromkeys(("start_dir", "unpack_options", "buildininstalldir"))}

# Parameters that modules of this package read.
READ = ("name", "version", "versionsuffix", "homepage", "description", "toolchain", "sources", "files_to_copy",
        "checksums", "moduleclass", "modextravars", "modluafooter", "postinstallcmds", "sanity_check_paths",
        "sanity_check_commands", "usage")

# EasyBuild parameters with the same meaning in our easyblocks: records keep them unchanged.
CARRIED = (
    "whatis", "docurls", "docpaths", "examples", "citing", "site_contacts", "upstream_contacts", "software_license",
    "software_license_urls", "hidden", "deprecated", "group", "source_urls", "download_instructions", "dependencies",
    "hiddendependencies", "osdependencies", "allow_system_deps", "modextrapaths", "modaliases",
    "modloadmsg", "modunloadmsg", "modtclfooter", "moddependpaths", "module_depends_on", "moduleforceunload",
    "moduleloadnoconflict", "recursive_module_unload", "build_info_msg", "postinstallmsgs", "unwanted_env_vars",
    "enhance_sanity_check")

# Names of components in easyconfigs, and the names of their packages.
COMPONENTS = {"flashattention": "flash-attn", "flash-attention": "flash-attn", "pytorch": "torch",
              **condanames.EXCEPTIONS}


def read(path: Path, site: Site) -> Imported:
    """
    Read an easyconfig.

    Parameters
    ----------
    path
        The easyconfig. EasyBuild's parser executes it, as eb does.
    site
        The site, whose binds and variables are not repeated.

    Raises
    ------
    ImportingError
        If it is not an easyconfig with an image.
    """
    values = parsed(path)
    source = Source(path)
    found = Imported(path, name=values["name"], suffix=values.get("versionsuffix") or "")
    found.record["version"] = values["version"]
    read_sources(values, found, source)
    if values.get("easyblock") in OWN:
        read_own(values, found, source, site)
    ModuleSettings(values, found, source, site).read()
    ShellCommands(values, found, source, site).read()
    read_components(values, found, source)
    read_texts(values, found, source)
    read_others(values, found, source)
    settle(values, found, source)
    leave_credentials(found)
    return found


def read_components(values, found, source):
    """Read versions of components, date, hash and Python from variables such as local_c_rocm_version."""
    for name, value in values.items():
        if not name.startswith("local_"):
            continue
        about = re.fullmatch(r"local_c_(\w+?)_(version|commit)", name)
        if about and isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", value):
            read_component(*about.groups(), value, values, found)
        elif name in ("local_c_date", "local_date") and re.fullmatch(r"\d{8}", str(value)):
            found.record["date"] = value
            found.data.append(f"date {value}")
        elif name == "local_c_python_mm" and isinstance(value, str):
            found.record["python"] = value
            found.data.append(f"python {value}")
        elif name in source.used or "requirements" in name:
            found.recognized.append(f"variable {name}, used elsewhere")
        else:
            found.leave(source.of(name), f"variable {name} = {shortened(value)}, which nothing uses")


def read_component(name, kind, value, values, found):
    """Read the version or commit of a component, unless it is the version of the software itself."""
    key = normal_name(name)
    key = COMPONENTS.get(key) or key
    software = values["name"].lower()
    if kind == "commit":
        key += "-commit"
    if key in (software, COMPONENTS.get(software)) and value == values["version"]:
        found.recognized.append(f"variable local_c_{name}_{kind}, which is the version")
    else:
        found.put("components", key, value, f"component {key} {value}")


def read_texts(values, found, source):
    """Read homepage, description, usage and module class."""
    for name in ("homepage", "description", "usage", "moduleclass"):
        text = values.get(name)
        if not text:
            continue
        text = "\n".join(line.rstrip() for line in text.strip().splitlines())
        placeholder = PLACEHOLDER.search(text)
        if name in ("description", "usage") and placeholder:
            found.leave(source.having(placeholder.group(), source.of(name)),
                        f"parameter {name}: {placeholder.group()} would be a placeholder in a record")
        elif name == "homepage" and "\n" in text:
            found.leave(source.of(name), f"parameter {name} = {shortened(text)}")
        else:
            found.record[name] = text


def read_others(values, found, source):
    """Read parameters that our easyblocks have as well; leave the rest to the user."""
    for name, value in values.items():
        if name in (*READ, *BY_MODULE) or name.startswith("local_") or is_empty(value):
            continue
        if name == "easyblock" and value in OWN:
            continue
        if name == "skipsteps":
            others = [step for step in value if step not in ("build", "configure", "test")]
            if others:
                found.leave(source.of(name), f"parameter skipsteps: {shortened(', '.join(map(str, others)))}")
            continue
        known = NOT_NEEDED.get(name, ())
        if known is None or value in known:
            found.recognized.append(f"parameter {name}: our easyblocks do that in their own way")
        elif name in CARRIED and is_data(value):
            found.put("parameters", name, as_strings(value), f"parameter {name} = {shortened(value)}")
        else:
            found.leave(source.of(name), f"parameter {name} = {shortened(value)}")


def settle(values, found, source):
    """Derive values that depend on several parameters: whether it is archived, how Python is activated."""
    record = found.record
    if "__archive__" in found.path.absolute().parts:
        record["archived"] = True
        found.data.append("archived, after its directory")
    wanted = f"{values['name']}-{values['version']}{found.suffix}.eb"
    if found.path.name != wanted:
        found.data.append(f"renamed {wanted}, after the module")
    if "conda_env" in record:
        # users had to activate this environment; now it is always active
        record.setdefault("init", INIT_CONDA_INJECTED)
    record.setdefault("init", activation_of(values, found))
    record.setdefault("venv", False)
    found.recognized.append(f"activation of Python: {record['init']}")


def activation_of(values, found):
    """Return how Python is activated (str, field `init`) if the module's variables don't say so."""
    record = found.record
    used = found.python or record.get("venv") or record.get("wrappers")
    in_text = "WITH_CONDA" in (values.get("description") or "") and not used
    if found.by_hand and not record.get("venv_name") or in_text:
        return INIT_CONDA_MANUAL
    return INIT_IMAGE if used else INIT_NONE


def leave_credentials(found):
    """Leave fields with credentials to the user; neither record nor report contains them (G-09)."""
    for name, value in list(found.record.items()):
        table = value if isinstance(value, dict) else found.record
        for key in [key for key in (list(value) if table is value else [name])
                    if Credentials.find({key: table[key]})]:
            del table[key]
            found.leave(1, f"{key}: a credential is written out. {REMEDY}")
    for name in ("recognized", "data"):
        setattr(found, name, [Credentials.mask(text) for text in getattr(found, name)])
    found.left = [(line, Credentials.mask(message)) for line, message in found.left]


def report_same_module(imported: Iterable[Imported]) -> None:
    """Leave easyconfigs with the same module to the user; each message names the other."""
    first = {}
    for found in imported:
        module = f"{found.name}/{found.record['version']}{found.suffix}"
        other = first.setdefault(module.lower(), found)
        if other is not found:
            for one, twin in ((other, found), (found, other)):
                one.leave(1, f"the module {module} is also that of {twin.path}: give one of them its own label")
