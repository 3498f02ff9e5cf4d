"""Import an easyconfig in today's style, which installs a container with shell commands, as a record of the catalog.

EasyBuild's own parser reads it. Every part ends up in one of three lists: what the easyblock does anyway, data of the
record, and what is left to the user, with its line.
"""

import re
from pathlib import Path
from typing import Any

from easybuild.easyblocks.generic.container.sitevalues import (
    INIT_CONDA_INJECTED,
    INIT_CONDA_MANUAL,
    INIT_IMAGE,
    INIT_NONE,
)
from easybuild.easyblocks.generic.container.values import NAME_PART, normal_name

from ebsif.catalog.fieldtypes import PLACEHOLDER
from ebsif.catalog.packagenames import OTHER_NAMES
from ebsif.catalog.site import Site
from ebsif.eb import framework
from ebsif.files import IMAGES
from ebsif.migrate.easyconfigfile import EasyconfigText, ImportingError, parsed
from ebsif.migrate.imported import Imported, as_strings, is_data, shortened
from ebsif.migrate.modulesettings import ModuleParameters
from ebsif.migrate.shellcommands import ShellCommands

# Parameters without relevance for a container if they have one of these values; None: any value.
NOT_NEEDED: dict[str, Any] = {
    "easyblock": ("MakeCp", "Tarball", "Binary", "PackedBinary"),
    "skip": (True,),
    **dict.fromkeys(("start_dir", "unpack_options", "buildininstalldir")),
}

# Parameters that have readers of their own.
READ = (
    "name",
    "version",
    "versionsuffix",
    "homepage",
    "description",
    "toolchain",
    "sources",
    "files_to_copy",
    "checksums",
    "moduleclass",
    "modextravars",
    "modluafooter",
    "postinstallcmds",
    "sanity_check_paths",
    "sanity_check_commands",
    "usage",
)

# EasyBuild parameters with the same meaning in our easyblocks: records keep them unchanged.
CARRIED = (
    "whatis",
    "docurls",
    "docpaths",
    "examples",
    "citing",
    "site_contacts",
    "upstream_contacts",
    "software_license",
    "software_license_urls",
    "hidden",
    "deprecated",
    "group",
    "source_urls",
    "download_instructions",
    "dependencies",
    "hiddendependencies",
    "osdependencies",
    "allow_system_deps",
    "modextrapaths",
    "modaliases",
    "modloadmsg",
    "modunloadmsg",
    "modtclfooter",
    "moddependpaths",
    "module_depends_on",
    "moduleforceunload",
    "moduleloadnoconflict",
    "recursive_module_unload",
    "build_info_msg",
    "postinstallmsgs",
    "unwanted_env_vars",
    "enhance_sanity_check",
)

# Texts with more lines usually describe scripts and variables of the recipe, which the help of our modules does.
PARAGRAPH = 10


def read(path: Path, site: Site) -> Imported:
    """Read an easyconfig for a site, whose binds and variables are not repeated. Raise ImportingError for others."""
    values = parsed(path)
    source = EasyconfigText(path)
    result = Imported(path, name=values["name"], suffix=values.get("versionsuffix") or "")
    result.record["version"] = values["version"]
    result.comments = source.comments()
    result.head = [text for line, text in result.comments if line < source.first_statement]
    read_sources(values, result, source)
    ModuleParameters(values, result, source, site).read()
    ShellCommands(values, result, source, site).read()
    read_components(values, result, source)
    read_texts(values, result, source)
    read_others(values, result, source)
    settle(values, result)
    result.leave_credentials()
    return result


# --- sources


def read_sources(values: dict[str, Any], result: Imported, source: EasyconfigText) -> None:
    """Read the image, definition files, other copied files, and the checksum."""
    names = [Path(name).name for name in framework.source_names(values["sources"])]
    images = [name for name in names if name.endswith(IMAGES)]
    if not images:
        raise ImportingError(f"{result.path}: none of the sources is an image (*.sif)")
    image, line = images[0], source.of("sources")
    if PLACEHOLDER.search(image):
        result.leave(line, f"the name of the image, {image}, has words in braces, which are placeholders in a record")
    result.record["file"] = image
    result.data.append(f"image {image}")
    for name in names:
        if name != image and name.endswith((".docker", ".def")):
            result.append("definition_files", name, f"definition file {name}")
        elif name != image:
            result.leave(source.having(name, line), f"sources: {name}, which is neither an image nor a definition file")
    read_copies(values, result, source)
    for item in values["sources"]:
        for key in sorted(set(item) - {"filename", "extract_cmd", "name"}) if isinstance(item, dict) else []:
            result.leave(line, f"sources: {key} = {shortened(item[key])}")
    read_checksums(values, result, source, names.index(image))


def read_copies(values: dict[str, Any], result: Imported, source: EasyconfigText) -> None:
    """Leave what MakeCp copies to the user, except the image and definition files to their usual places."""
    usual = {"": [result.record["file"]], "share/docker-defs": result.record.get("definition_files", [])}
    for item in values.get("files_to_copy") or []:
        files, place = item if isinstance(item, list) and len(item) == 2 else (item, ".")
        known = usual.get(str(place).strip("/").removeprefix("./").strip("."), [])
        if any(Path(str(name)).name not in known for name in (files if isinstance(files, list) else [files])):
            result.leave(source.of("files_to_copy"), f"files_to_copy: {shortened(item)}")


def read_checksums(values: dict[str, Any], result: Imported, source: EasyconfigText, index: int) -> None:
    """Read the SHA256 of the image, which is the source with this index."""
    checksums = values.get("checksums") or []
    checksum = checksums[index] if isinstance(checksums, list) and index < len(checksums) else None
    if isinstance(checksum, dict) and len(checksum) == 1:
        (checksum,) = checksum.values()
    if isinstance(checksum, str) and re.fullmatch("[0-9a-f]{64}", checksum):
        result.record["sha256"] = checksum
        result.data.append(f"checksum {checksum}")
        checksums = [other for number, other in enumerate(checksums) if number != index]
    if isinstance(checksums, dict) or any(checksums):
        result.leave(source.of("checksums"), f"parameter checksums = {shortened(checksums)}")


# --- parameters and variables


def read_components(values: dict[str, Any], result: Imported, source: EasyconfigText) -> None:
    """Read versions of components, date and Python from variables such as local_c_rocm_version."""
    for name, value in values.items():
        if not name.startswith("local_"):
            continue
        about = re.fullmatch(r"local_c_(\w+?)_(version|commit)", name)
        if about and isinstance(value, str) and re.fullmatch(NAME_PART, value):
            read_component(about.group(1), about.group(2), value, values, result)
        elif name in ("local_c_date", "local_date") and re.fullmatch(r"\d{8}", str(value)):
            result.record["date"] = value
            result.data.append(f"date {value}")
        elif name == "local_c_python_mm" and isinstance(value, str):
            result.record["python"] = value
            result.data.append(f"python {value}")
        elif name in source.used:
            result.recognized.append(f"variable {name}, used elsewhere")
        else:
            result.leave(source.of(name), f"variable {name} = {shortened(value)}, which nothing uses")


def read_component(name: str, kind: str, value: str, values: dict[str, Any], result: Imported) -> None:
    """Read the version or commit of a component, unless it is the version of the software itself."""
    key = normal_name(name)
    key = OTHER_NAMES.get(key, key)
    software = values["name"].lower()
    if kind == "commit":
        key += "-commit"
    if key in (software, OTHER_NAMES.get(software)) and value == values["version"]:
        result.recognized.append(f"variable local_c_{name}_{kind}, which is the version")
    else:
        result.put("components", key, value, f"component {key} {value}")


def read_texts(values: dict[str, Any], result: Imported, source: EasyconfigText) -> None:
    """Read homepage, description, usage and module class."""
    for name in ("homepage", "description", "usage", "moduleclass"):
        text = "\n".join(line.rstrip() for line in (values.get(name) or "").strip().splitlines())
        placeholder = PLACEHOLDER.search(text)
        if name == "homepage" and not text:
            result.leave(1, "there is no homepage, and EasyBuild wants one")
        elif name in ("description", "usage") and placeholder:
            result.leave(
                source.having(placeholder.group(), source.of(name)),
                f"parameter {name}: {placeholder.group()} would be a placeholder in a record",
            )
        elif name == "homepage" and "\n" in text:
            result.leave(source.of(name), f"parameter {name} = {shortened(text)}")
        elif text:
            result.record[name] = text
            lines = text.count("\n") + 1
            if lines > PARAGRAPH:
                result.data.append(f"{name}, {lines} lines: shorten it to what is true of our module")


def read_others(values: dict[str, Any], result: Imported, source: EasyconfigText) -> None:
    """Read parameters that our easyblocks have as well; leave the rest to the user."""
    for name, value in values.items():
        if name in READ or name.startswith("local_") or value is None or value in ("", [], {}, ()):
            continue
        known = NOT_NEEDED.get(name, ())
        if name == "skipsteps":
            steps = ", ".join(str(step) for step in value if step not in ("build", "configure", "test"))
            if steps:
                result.leave(source.of(name), f"parameter skipsteps: {shortened(steps)}")
        elif known is None or value in known:
            result.recognized.append(f"parameter {name}: our easyblocks do that in their own way")
        elif name in CARRIED and is_data(value):
            result.put("parameters", name, as_strings(value), f"parameter {name} = {shortened(value)}")
        else:
            result.leave(source.of(name), f"parameter {name} = {shortened(value)}")


def settle(values: dict[str, Any], result: Imported) -> None:
    """Derive values that depend on several parameters: whether it is archived, how Python is activated."""
    record = result.record
    if "__archive__" in result.path.absolute().parts:
        record["archived"] = True
        result.data.append("archived, after its directory")
    wanted = f"{values['name']}-{values['version']}{result.suffix}.eb"
    if result.path.name != wanted:
        result.data.append(f"renamed {wanted}, after the module")
    used = result.python or record.get("venv") or record.get("wrappers")
    in_text = "WITH_CONDA" in (values.get("description") or "") and not used
    if "conda_env" in record:
        # users had to activate this environment; now it is always active
        init = INIT_CONDA_INJECTED
    elif (result.by_hand and not record.get("venv_name")) or in_text:
        init = INIT_CONDA_MANUAL
    else:
        init = INIT_IMAGE if used else INIT_NONE
    record.setdefault("init", init)
    record.setdefault("venv", False)
    result.recognized.append(f"activation of Python: {record['init']}")
