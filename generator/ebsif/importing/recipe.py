"""Read an easyconfig of today's style, which installs a container with shell commands, as a record of the catalogue.

EasyBuild's own parser runs it. Everything in it ends up in one of three lists: what the family and the easyblock do
anyway, what became data of the record, and what is left to the user, with its line.
"""

import ast
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif import eb
from ebsif.catalogue.fieldtypes import PLACEHOLDER, is_version_part
from ebsif.errors import EbsifError
from ebsif.importing.modulesettings import ModuleSettings
from ebsif.importing.reader import shortened
from ebsif.importing.shellcommands import ShellCommands
from ebsif.render import easyconfig
from ebsif.user.requirements import PIP_NAMES

# Parameters that say nothing about the container; None: whatever their value is.
NOT_NEEDED = {
    "easyblock": ("MakeCp", "Tarball", "Binary", "PackedBinary"), "skip": (True,),
    **dict.fromkeys(("start_dir", "unpack_options", "buildininstalldir"))}

# Parameters that the functions below read.
READ = ("name", "version", "versionsuffix", "homepage", "description", "toolchain", "sources", "files_to_copy",
        "checksums", "moduleclass", "modextravars", "modluafooter", "postinstallcmds", "sanity_check_paths",
        "sanity_check_commands", "usage")

# EasyBuild parameters that mean the same for our easyblocks: a record has them unchanged.
CARRIED = (
    "whatis", "docurls", "docpaths", "examples", "citing", "site_contacts", "upstream_contacts", "software_license",
    "software_license_urls", "hidden", "deprecated", "group", "source_urls", "download_instructions", "dependencies",
    "hiddendependencies", "osdependencies", "allow_system_deps", "modextrapaths", "modaliases",
    "modloadmsg", "modunloadmsg", "modtclfooter", "moddependpaths", "module_depends_on", "moduleforceunload",
    "moduleloadnoconflict", "recursive_module_unload", "build_info_msg", "postinstallmsgs", "unwanted_env_vars",
    "enhance_sanity_check")

# Types of parameters, and of their items.
TYPES = {
    **dict.fromkeys(("modluafooter", "homepage", "description", "versionsuffix", "name", "version", "moduleclass",
                     "usage"), (str, str)),
    **dict.fromkeys(("modextravars", "container_env"), (dict, str)), "files_to_copy": (list, (str, list, tuple)),
    **dict.fromkeys(("postinstallcmds", "binds", "optional_binds", "image_dirs"), (list, str)),
    "sanity_check_paths": (dict, str), "sanity_check_commands": (list, object)}

# Our own easyblocks; parameters that are fields of a record, and those that the module's reader takes.
OWN = ("ContainerInstall", "ContainerVenv")
FIELDS = ("init", "conda_root", "conda_env", "entry_point", "venv_name", "image", "image_packages", "gpu", "gpu_option",
          "gpu_visibility", "masked_paths", "wrappers", "script_names", "definition_files", "requirements", "warnings")
BY_MODULE = ("binds", "optional_binds", "container_env", "conflicts")

# Easyconfigs with none of these get those of the site.
GAINED = ("library_binds", "bind_file")

# Names of components in easyconfigs, and those of their packages.
COMPONENTS = {"flashattention": "flash-attn", "flash-attention": "flash-attn", **PIP_NAMES}


class ImportingError(EbsifError):
    """An easyconfig can't be imported; the message says why."""


@dataclass
class Imported:
    """An easyconfig as a record, with every field as if there were no family, and what became of each part of it."""

    path: Path
    name: str = ""
    suffix: str = ""
    record: dict = field(default_factory=dict)
    recognised: list = field(default_factory=list)
    data: list = field(default_factory=list)
    # pairs of line and message
    left: list = field(default_factory=list)
    # whether scripts activate Python themselves, whether there are any that need Python
    by_hand: bool = False
    python: bool = False
    # whether it is for one of our easyblocks, and so names all components
    ours: bool = False

    @property
    def left_by_line(self):
        """Pairs of line and message that are left to the user, each once, in the order of lines (list of tuple)."""
        return sorted(dict.fromkeys(self.left), key=lambda one: one[0])

    @property
    def not_understood(self):
        """Messages about what is left to the user, with file and line (list of str)."""
        return [f"{self.path}:{line}: {message}" for line, message in self.left_by_line]

    def leave(self, line, message):
        """Leave something to the user; the message becomes one line, values in it are shortened by the caller."""
        self.left.append((line, " ".join(message.split())))

    def put(self, field, key, value, message):
        """Add an entry to a dictionary of the record, and report it."""
        self.record.setdefault(field, {})[key] = value
        self.data.append(message)


class Source:
    """
    The text of an easyconfig, for line numbers.

    Parameters
    ----------
    path : Path
        The easyconfig.
    """

    def __init__(self, path):
        """Parse it; EasyBuild has run it before, so it is valid Python."""
        text = path.read_text(encoding="utf-8")
        self.lines = text.splitlines()
        with warnings.catch_warnings():
            # many easyconfigs have backslashes that Python warns about
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        self.assigned = {target.id: node for node in tree.body if isinstance(node, ast.Assign)
                         for target in node.targets if isinstance(target, ast.Name)}
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        self.used = {node.id for node in names if isinstance(node.ctx, ast.Load)}

    def of(self, name, index=None):
        """Return the line of a parameter or variable, or of one item if it is a list (int, from 1)."""
        node = self.assigned.get(name)
        if node is None:
            return 1
        items = getattr(node.value, "elts", [])
        return items[index].lineno if index is not None and index < len(items) else node.lineno

    def having(self, text, otherwise):
        """Return the first line with a text, comments and escapes aside (int), or another line if there is none."""
        wanted = bare(text)
        found = [number for number, line in enumerate(self.lines, 1)
                 if wanted and wanted in bare(line) and not line.lstrip().startswith("#")]
        return found[0] if found else otherwise


def bare(text):
    """Return a text without backslashes, doubled braces and blanks around it, for comparison."""
    return text.strip().replace("\\", "").replace("{{", "{").replace("}}", "}")


def read(path, site):
    """
    Read an easyconfig.

    Parameters
    ----------
    path : Path
        The easyconfig. EasyBuild's parser runs it, as eb does.
    site : Site
        Its binds and variables are not repeated.

    Returns
    -------
    Imported

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


def parsed(path):
    """Return parameters and variables of an easyconfig (dict); of templates only names and versions are filled in."""
    values = run_parser(path)
    missing = [name for name in ("name", "version", "sources") if not values.get(name)]
    if missing:
        raise ImportingError(f"{path}: {', '.join(missing)} is missing: this is not the easyconfig of a container")
    if not isinstance(values["sources"], (list, tuple)):
        values["sources"] = [values["sources"]]
    check_types(path, values)
    return {name: templates_filled(value, values) for name, value in values.items()}


def run_parser(path):
    """Return what EasyBuild's parser makes of an easyconfig (dict)."""
    from easybuild.framework.easyconfig.parser import EasyConfigParser
    from easybuild.tools.build_log import EasyBuildError

    if not path.is_file():
        raise ImportingError(f"there is no file {path}")
    eb.session()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return EasyConfigParser(str(path)).get_config_dict()
    except EasyBuildError as error:
        raise ImportingError(f"{path}: {str(error).strip(chr(39))}") from None


def check_types(path, values):
    """Raise ImportingError for values of other types than EasyBuild's, and for a name that the catalogue can't have."""
    try:
        is_version_part(values["name"])
        is_version_part(values["version"])
    except ValueError as error:
        raise ImportingError(f"{path}: the catalogue can't have this name or version: {error}") from None
    for name, (kind, items) in TYPES.items():
        value = values.get(name) or kind()
        if not isinstance(value, kind) or not all(isinstance(item, items) for item in value):
            raise ImportingError(f"{path}: {name} is not what EasyBuild expects: {shortened(value)}")


def templates_filled(value, values):
    """Return a value with EasyBuild's templates for name and version filled in; %(installdir)s stays."""
    if isinstance(value, str):
        known = {name: str(values.get(name) or "") for name in ("name", "version", "versionsuffix")}
        known["namelower"] = known["name"].lower()
        for name, text in known.items():
            value = value.replace(f"%({name})s", text)
        return value
    if isinstance(value, (list, tuple)):
        return [templates_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {key: templates_filled(item, values) for key, item in value.items()}
    return value


def read_sources(values, found, source):
    """Read the image, definition files, what is copied besides, and the checksum."""
    names = [Path(name).name for name in eb.source_names(values["sources"])]
    images = [name for name in names if name.endswith((".sif", ".simg"))]
    if not images:
        raise ImportingError(f"{found.path}: none of the sources is an image (*.sif)")
    image, line = images[0], source.of("sources")
    if PLACEHOLDER.search(image):
        found.leave(line, f"the name of the image, {image}, has words in braces, which are placeholders in a record")
    found.record["file"] = image
    found.data.append(f"image {image}")
    places = copied_files(values, found, source)
    read_definition_files(names, image, places, found, source)
    for one in values["sources"]:
        more = sorted(set(one) - {"filename", "extract_cmd", "name"}) if isinstance(one, dict) else []
        for key in more:
            found.leave(line, f"sources: {key} = {shortened(one[key])}")
    read_checksums(values, found, source, names.index(image))


def read_definition_files(names, image, places, found, source):
    """Take the sources (list of str) that the image was built from; leave others, and files that go elsewhere."""
    definitions, usual = [], "share/docker-defs"
    for name in names:
        if name == image:
            continue
        if places.get(name, usual) == usual and name.endswith((".docker", ".def")):
            definitions.append(name)
            found.data.append(f"definition file {name}")
        else:
            found.leave(source.having(name, source.of("sources")),
                        f"sources: {name}, which is neither an image nor a definition file")
    if definitions:
        found.record["definition_files"] = definitions
    for name, place in places.items():
        if place != {image: ""}.get(name, usual if name in definitions else None):
            found.leave(source.of("files_to_copy"),
                        f"files_to_copy: {name}, copied to {place or 'the installation directory'}")


def copied_files(values, found, source):
    """Return where MakeCp copies each file (dict); '' is the installation directory."""
    places = {}
    for item in values.get("files_to_copy") or []:
        if isinstance(item, str):
            places[Path(item).name] = ""
        elif isinstance(item, list) and len(item) == 2 and isinstance(item[1], str):
            for name in item[0] if isinstance(item[0], list) else [item[0]]:
                places[Path(str(name)).name] = item[1].strip("/").removeprefix("./").strip(".")
        else:
            found.leave(source.of("files_to_copy"), f"files_to_copy: {shortened(item)}")
    return places


def read_checksums(values, found, source, index):
    """Take the SHA256 of the image, which is the source with this index."""
    checksums = values.get("checksums") or []
    one = checksums[index] if isinstance(checksums, list) and index < len(checksums) else None
    if isinstance(one, dict) and len(one) == 1:
        (one,) = one.values()
    if isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one):
        found.record["sha256"] = one
        found.data.append(f"checksum {one}")
        checksums = [other for number, other in enumerate(checksums) if number != index]
    if isinstance(checksums, dict) or any(checksums):
        found.leave(source.of("checksums"), f"parameter checksums = {shortened(checksums)}")


def read_own(values, found, source, site):
    """Read parameters of our own easyblocks; what follows from the site's profile is compared, not repeated."""
    record, found.ours = found.record, True
    record.update(venv=values["easyblock"] == "ContainerVenv", init="image")
    record.update({name: as_strings(values[name]) for name in FIELDS if not is_empty(values.get(name))})
    record["gpu"] = values.get("gpu") or "none"
    if record["gpu"] != "none":
        record["gpu_option"] = values.get("gpu_option", True)
    if values.get("support_level") not in (None, site.support):
        record["support"] = values["support_level"]
    found.recognised.append(f"easyblock {values['easyblock']}")
    read_rendered_description(values, record)
    if str(values.get("download_instructions")).startswith(easyconfig.WHERE.format(site.description) + "\n"):
        del values["download_instructions"]
    read_image_places(values, record, site)
    compare_with_site(values, found, source, site)


def read_rendered_description(values, record):
    """Take the components that a rendered description ends with."""
    inside = re.search(r"(?:\A|\n)In the image: ([^:]*)\.\s*\Z", values.get("description") or "")
    if inside:
        values["description"] = values["description"][: inside.start()]
        pairs = [part.rpartition(" ") for part in " ".join(inside.group(1).split()).split(", ")]
        record["components"] = {name: version for name, _, version in pairs}


def read_image_places(values, record, site):
    """Take the directories of images, unless they are the site's."""
    if not values.get("image_dirs"):
        return
    own = {name: values.pop(f"image_{name}", None) for name in ("root", "root_variable", "dirs")}
    theirs = {"root": site.images.root, "root_variable": site.images.root_variable,
              "dirs": [one.path for one in site.images.directories]}
    if own != theirs:
        directories = [{"path": path} for path in own.pop("dirs")]
        record["images"] = {**{name: value for name, value in own.items() if value}, "directories": directories}


def compare_with_site(values, found, source, site):
    """Leave parameters that differ from the site's profile to the user; remove those that are read now."""
    theirs = {
        "gpu_mpi_library": site.gpu_mpi_library, "network_env": site.network_env, "one_container": site.one_container,
        "listed_packages": site.listed_packages, "scheduler": site.scheduler.kind,
        "image_root": site.images.root, "image_root_variable": site.images.root_variable,
        "library_binds": site.binds.libraries, "bind_file": site.binds.file}
    for name, wanted in theirs.items():
        value = values.get(name)
        if is_empty(value) and (name not in GAINED or is_empty(wanted)) or value == wanted:
            continue
        found.leave(source.of(name), f"parameter {name} = {of_value(value)}, and the site has {of_value(wanted)}")
    for name in (*FIELDS, *theirs, "support_level"):
        values.pop(name, None)


def is_empty(value):
    """Return whether a parameter is not set, or is set to nothing; False and 0 are something."""
    return value is None or value in ("", [], {}, ())


def of_value(value):
    """Return a value for a message (str)."""
    return "none" if is_empty(value) else shortened(value)


def read_components(values, found, source):
    """Take versions of components, date, hash and Python from variables such as local_c_rocm_version."""
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
            found.recognised.append(f"variable {name}, used elsewhere")
        else:
            found.leave(source.of(name), f"variable {name} = {shortened(value)}, which nothing uses")


def read_component(name, kind, value, values, found):
    """Take the version or commit of a component, unless it is the version of the software itself."""
    key = normal_name(name)
    key = COMPONENTS.get(key) or key
    software = values["name"].lower()
    if kind == "commit":
        key += "-commit"
    if key in (software, COMPONENTS.get(software)) and value == values["version"]:
        found.recognised.append(f"variable local_c_{name}_{kind}, which is the version")
    else:
        found.put("components", key, value, f"component {key} {value}")


def read_texts(values, found, source):
    """Take homepage, description, usage and module class."""
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
    """Take parameters that our easyblocks have as well; leave the rest to the user."""
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
            found.recognised.append(f"parameter {name}: our easyblocks do that in their own way")
        elif name in CARRIED and is_data(value):
            found.put("parameters", name, as_strings(value), f"parameter {name} = {shortened(value)}")
        else:
            found.leave(source.of(name), f"parameter {name} = {shortened(value)}")


def is_data(value):
    """Return whether YAML can hold a value."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_data(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_data, value))
    return isinstance(value, (str, bool, int))


def as_strings(value):
    """Return a value with its numbers as strings, as in the catalogue."""
    if isinstance(value, dict):
        return {key: as_strings(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_strings(item) for item in value]
    return value if isinstance(value, bool) else str(value)


def settle(values, found, source):
    """Take what follows from several parts: whether it is archived, how Python is activated."""
    record = found.record
    if "__archive__" in found.path.absolute().parts:
        record["archived"] = True
        found.data.append("archived, after its directory")
    wanted = f"{values['name']}-{values['version']}{found.suffix}.eb"
    if found.path.name != wanted:
        found.data.append(f"renamed {wanted}, after the module")
    if "conda_env" in record:
        # users had to activate this environment; now it is active from the start
        record.setdefault("init", "conda-injected")
    record.setdefault("init", activation_of(values, found))
    record.setdefault("venv", False)
    found.recognised.append(f"activation of Python: {record['init']}")


def activation_of(values, found):
    """Return the `init` of a container (str) for which no variable of the module says it."""
    record = found.record
    used = found.python or record.get("venv") or record.get("wrappers")
    in_text = "WITH_CONDA" in (values.get("description") or "") and not used
    if found.by_hand and not record.get("venv_name") or in_text:
        return "conda-manual"
    return "image" if used else "none"


def leave_credentials(found):
    """Leave fields with credentials to the user; neither record nor report has them (G-09)."""
    from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials

    for name, value in list(found.record.items()):
        table = value if isinstance(value, dict) else found.record
        for key in [key for key in (list(value) if table is value else [name])
                    if Credentials.found({key: table[key]})]:
            del table[key]
            found.leave(1, f"{key}: a credential is written out. {REMEDY}")
    for name in ("recognised", "data"):
        setattr(found, name, [Credentials.masked(text) for text in getattr(found, name)])
    found.left = [(line, Credentials.masked(message)) for line, message in found.left]


def report_same_module(imported):
    """Leave easyconfigs (list of Imported) that make the same module to the user, each with the name of the other."""
    first = {}
    for found in imported:
        module = f"{found.name}/{found.record['version']}{found.suffix}"
        other = first.setdefault(module.lower(), found)
        if other is not found:
            for one, twin in ((other, found), (found, other)):
                one.leave(1, f"the module {module} is also that of {twin.path}: give one of them its own label")
