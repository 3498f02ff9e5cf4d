"""Importing easyconfigs of the style in use today: programs of shell commands become records of the catalogue.

They are read by EasyBuild's own parser. Everything in one of them ends in one of three lists: what the family and the
easyblock do anyway, what became data of the record, and what is left for a person, with its line.
"""

import ast
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from ebsif import eb
from ebsif.catalogue.fieldtypes import PLACEHOLDER, is_version_part
from ebsif.errors import EbsifError
from ebsif.importing.commands import Commands, shortened
from ebsif.importing.module import ModuleTexts
from ebsif.render import easyconfig
from ebsif.user.requirements import PIP_NAMES

INSTALLATION = "%(installdir)s"

# Parameters that say nothing of the container: the easyblock does the same in its own way.
OURS = {"easyblock": ("MakeCp", "Tarball", "Binary", "PackedBinary"), "skip": (True,),
        **dict.fromkeys(("start_dir", "unpack_options", "buildininstalldir"))}
READ = ("name", "version", "versionsuffix", "homepage", "description", "toolchain", "sources", "files_to_copy",
        "checksums", "moduleclass", "modextravars", "modluafooter", "postinstallcmds", "sanity_check_paths",
        "sanity_check_commands", "usage")

# Parameters of EasyBuild that mean the same for our easyblocks, so that a record has them as they are.
CARRIED = (
    "whatis", "docurls", "docpaths", "examples", "citing", "site_contacts", "upstream_contacts", "software_license",
    "software_license_urls", "hidden", "deprecated", "group", "source_urls", "download_instructions", "dependencies",
    "hiddendependencies", "osdependencies", "allow_system_deps", "modextrapaths", "modaliases",
    "modloadmsg", "modunloadmsg", "modtclfooter", "moddependpaths", "module_depends_on", "moduleforceunload",
    "moduleloadnoconflict", "recursive_module_unload", "build_info_msg", "postinstallmsgs", "unwanted_env_vars",
    "enhance_sanity_check")

# What these hold, and what it holds.
TYPES = {
    **dict.fromkeys(("modluafooter", "homepage", "description", "versionsuffix", "name", "version", "moduleclass",
                     "usage"), (str, str)),
    **dict.fromkeys(("modextravars", "container_env"), (dict, str)), "files_to_copy": (list, (str, list, tuple)),
    **dict.fromkeys(("postinstallcmds", "optional_binds", "image_dirs"), (list, str))}

# Our own easyblocks: parameters that are fields of a record, and those that come from the profile of a site.
OWN = ("ContainerInstall", "ContainerVenv")
FIELDS = ("init", "conda_root", "conda_env", "entry_point", "venv_name", "image", "image_packages", "gpu", "gpu_option",
          "gpu_visibility", "masked_paths", "wrappers", "script_names", "definition_files", "requirements", "warnings")
BY_MODULE = ("optional_binds", "container_env", "conflicts")

# What easyconfigs call components, and what pip calls them.
COMPONENTS = {"flashattention": "flash-attn", "flash-attention": "flash-attn", **PIP_NAMES}


class ImportingError(EbsifError):
    """An easyconfig can't be imported; the message says why."""


@dataclass
class Imported:
    """
    What became of an easyconfig.

    Its record has every field that it says something of, as if there were no family.
    """

    path: Path
    name: str = ""
    suffix: str = ""
    record: dict = field(default_factory=dict)
    recognised: list = field(default_factory=list)
    data: list = field(default_factory=list)
    # pairs of line and text
    left: list = field(default_factory=list)
    # whether anything shows that Python is activated by hand, is used
    by_hand: bool = False
    python: bool = False
    # whether it is for an easyblock of ours, and so says all components
    ours: bool = False

    @property
    def not_understood(self):
        """What is left for a person, each with file and line (list of str)."""
        left = sorted(dict.fromkeys(self.left), key=lambda one: one[0])
        return [f"{self.path}:{line}: {text}" for line, text in left]

    def leave(self, line, text):
        """Leave something for a person."""
        # room for what is wrong with two long paths
        self.left.append((line, shortened(text, 600)))

    def put(self, name, key, value, told):
        """Add to a table of the record, and tell it."""
        self.record.setdefault(name, {})[key] = value
        self.data.append(told)


class Source:
    """
    The text of an easyconfig, to tell where something of it is.

    Parameters
    ----------
    path : Path
        The easyconfig.
    """

    def __init__(self, path):
        """Read it; EasyBuild has done so before, so it is Python."""
        text = path.read_text(encoding="utf-8")
        self.lines = text.splitlines()
        with warnings.catch_warnings():
            # of backslashes, which many of them have
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        self.assigned = {target.id: node for node in tree.body if isinstance(node, ast.Assign)
                         for target in node.targets if isinstance(target, ast.Name)}
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        self.used = {node.id for node in names if isinstance(node.ctx, ast.Load)}

    def of(self, name, index=None):
        """Return the line of a parameter or variable, or of an item of its list (int, from 1)."""
        node = self.assigned.get(name)
        if node is None:
            return 1
        items = getattr(node.value, "elts", [])
        return items[index].lineno if index is not None and index < len(items) else node.lineno

    def having(self, text, otherwise):
        """Return the line that has a text, as it is or with backslashes (int), else another one."""
        wanted = bare(text)
        found = [number for number, line in enumerate(self.lines, 1)
                 if wanted and wanted in bare(line) and not line.lstrip().startswith("#")]
        return found[0] if found else otherwise


def bare(text):
    """Return a text without blanks at its ends, backslashes and doubled braces, to be looked for."""
    return text.strip().replace("\\", "").replace("{{", "{").replace("}}", "}")


def read(path, site):
    """
    Return what an easyconfig becomes (Imported).

    Parameters
    ----------
    path : Path
        The easyconfig. EasyBuild's parser runs it, as eb does.
    site : Site
        Whose binds and variables are not repeated.

    Raises
    ------
    ImportingError
        If it is no easyconfig with an image.
    """
    values = parsed(path)
    source = Source(path)
    found = Imported(path, name=values["name"], suffix=values.get("versionsuffix") or "")
    found.record["version"] = values["version"]
    read_sources(values, found, source)
    if values.get("easyblock") in OWN:
        read_own(values, found, source, site)
    ModuleTexts(values, found, source, site).read()
    Commands(values, found, source, site).read()
    read_components(values, found, source)
    read_texts(values, found, source)
    read_others(values, found, source)
    settle(values, found, source)
    leave_credentials(found)
    return found


def parsed(path):
    """Return the parameters and variables of an easyconfig (dict), resolved but for EasyBuild's templates."""
    from easybuild.framework.easyconfig.parser import EasyConfigParser
    from easybuild.tools.build_log import EasyBuildError

    if not path.is_file():
        raise ImportingError(f"there is no file {path}")
    eb.session()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = EasyConfigParser(str(path)).get_config_dict()
    except EasyBuildError as error:
        raise ImportingError(f"{path}: {str(error).strip(chr(39))}") from None
    missing = [name for name in ("name", "version", "sources") if not values.get(name)]
    if missing:
        raise ImportingError(f"{path}: {', '.join(missing)} is missing: this is no easyconfig of a container")
    if not isinstance(values["sources"], (list, tuple)):
        values["sources"] = [values["sources"]]
    try:
        is_version_part(values["name"])
        is_version_part(values["version"])
    except ValueError as error:
        raise ImportingError(f"{path}: name and version can't be in the catalogue: {error}") from None
    for name, (kind, items) in TYPES.items():
        value = values.get(name) or kind()
        if not isinstance(value, kind) or not all(isinstance(item, items) for item in value):
            raise ImportingError(f"{path}: {name} is not as EasyBuild wants it: {shortened(value)}")
    return {name: templates_filled(value, values) for name, value in values.items()}


def templates_filled(value, values):
    """Return a value with EasyBuild's templates for name and version filled; that of the installation stays."""
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
    """Take the image and the definition files, and what is copied besides."""
    names = [Path(name).name for name in eb.source_names(values["sources"])]
    images = [name for name in names if name.endswith((".sif", ".simg"))]
    if not images:
        raise ImportingError(f"{found.path}: none of the sources is an image (*.sif)")
    line = source.of("sources")
    if PLACEHOLDER.search(images[0]):
        found.leave(line, f"the name of the image, {images[0]}, has words in braces, which a record fills")
    found.record["file"] = images[0]
    found.data.append(f"image {images[0]}")
    places = copied_files(values, found, source)
    definitions = []
    for name in names:
        if name == images[0]:
            pass
        elif places.get(name, "share/docker-defs") == "share/docker-defs" and name.endswith((".docker", ".def")):
            definitions.append(name)
            found.data.append(f"definition file {name}")
        else:
            found.leave(source.having(name, line), f"sources: {name}, which is no image and no definition file")
    for name, place in places.items():
        if place != {images[0]: ""}.get(name, "share/docker-defs" if name in definitions else None):
            found.leave(source.of("files_to_copy"), f"files_to_copy: {name}, copied to {place or 'the installation'}")
    if definitions:
        found.record["definition_files"] = definitions
    for one in values["sources"]:
        more = sorted(set(one) - {"filename", "extract_cmd", "name"}) if isinstance(one, dict) else []
        if more:
            found.leave(line, f"sources: {', '.join(f'{key} = {one[key]}' for key in more)}")
    read_checksums(values, found, source, names.index(images[0]))


def copied_files(values, found, source):
    """Return where files are copied (dict), as MakeCp is told; '' is the installation directory."""
    places = {}
    for item in values.get("files_to_copy") or []:
        if isinstance(item, str):
            places[Path(item).name] = ""
        elif isinstance(item, list) and len(item) == 2 and isinstance(item[1], str):
            for name in item[0] if isinstance(item[0], list) else [item[0]]:
                places[Path(str(name)).name] = item[1].strip("/").removeprefix("./").strip(".")
        else:
            found.leave(source.of("files_to_copy"), f"files_to_copy: {item}")
    return places


def read_checksums(values, found, source, index):
    """Take the SHA256 of the image, the source with an index."""
    checksums = values.get("checksums") or []
    one = checksums[index] if isinstance(checksums, list) and index < len(checksums) else None
    if isinstance(one, dict) and len(one) == 1:
        (one,) = one.values()
    if isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one):
        found.record["sha256"] = one
        found.data.append(f"checksum {one}")
        checksums = [other for number, other in enumerate(checksums) if number != index]
    if isinstance(checksums, dict) or any(checksums):
        found.leave(source.of("checksums"), f"parameter checksums = {checksums}")


def read_own(values, found, source, site):
    """Take parameters of our own easyblocks, and name those that say something else than the profile of the site."""
    record, found.ours = found.record, True
    record.update(venv=values["easyblock"] == "ContainerVenv", init="image")
    record.update({name: as_text(values[name]) for name in FIELDS if values.get(name) not in (None, "", [], {})})
    record["gpu"] = values.get("gpu") or "none"
    if record["gpu"] != "none":
        record["gpu_option"] = values.get("gpu_option", True)
    found.recognised.append(f"easyblock {values['easyblock']}")
    inside = re.search(r"(?:\A|\n)In the image: ([^:]*)\.\s*\Z", values.get("description") or "")
    if inside:
        values["description"] = values["description"][: inside.start()]
        pairs = [part.rpartition(" ") for part in " ".join(inside.group(1).split()).split(", ")]
        record["components"] = {name: version for name, _, version in pairs}
    if values.get("support_level") not in (None, site.support):
        record["support"] = values["support_level"]
    images = {"image_root": site.images.root, "image_root_variable": site.images.root_variable,
              "image_dirs": [one.path for one in site.images.directories]}
    if values.get("image_dirs") and any(values.get(name) != value for name, value in images.items()):
        named = {name: values.get(f"image_{name}") for name in ("root", "root_variable")}
        record["images"] = {**{name: value for name, value in named.items() if value},
                            "directories": [{"path": path} for path in values["image_dirs"]]}
        images = dict.fromkeys(images)
        values.update(images)
    if str(values.get("download_instructions")).startswith(easyconfig.WHERE.format(site.description) + "\n"):
        del values["download_instructions"]
    wanted = {
        **images, "support_level": values.get("support_level"), "gpu_mpi_library": site.gpu_mpi_library,
        "network_env": site.network_env, "one_container": site.one_container,
        "listed_packages": site.listed_packages,
        "scheduler": site.scheduler.kind, "binds": site.binds.required, "library_binds": site.binds.libraries,
        "bind_file": site.binds.file}
    for name, value in wanted.items():
        if values.get(name) not in (None, value):
            found.leave(source.of(name), f"parameter {name} = {values[name]}: the site has {value or 'none'}")
    for name in (*FIELDS, *wanted):
        values.pop(name, None)


def read_components(values, found, source):
    """Take versions of components, date and hash from variables like local_c_rocm_version."""
    record, line = found.record, source.of
    components = {}
    for name, value in values.items():
        if not name.startswith("local_"):
            continue
        about = re.fullmatch(r"local_c_(\w+?)_(version|commit)", name)
        if about and isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", value):
            key = canonicalize_name(about.group(1))
            key = COMPONENTS.get(key) or key
            if about.group(2) == "commit":
                key += "-commit"
            if (key in (values["name"].lower(), COMPONENTS.get(values["name"].lower())) and value == values["version"]):
                found.recognised.append(f"variable {name}, which is the version")
                continue
            components[key] = value
            found.data.append(f"component {key} {value}")
        elif name in ("local_c_date", "local_date") and re.fullmatch(r"\d{8}", str(value)):
            record["date"] = value
            found.data.append(f"date {value}")
        elif name == "local_c_python_mm" and isinstance(value, str):
            record["python"] = value
            found.data.append(f"python {value}")
        elif name in source.used or "requirements" in name:
            found.recognised.append(f"variable {name}, used elsewhere")
        else:
            found.leave(line(name), f"variable {name} = {value}, which nothing uses")
    if components:
        record["components"] = {**record.get("components", {}), **components}


def read_texts(values, found, source):
    """Take homepage, description, usage and module class."""
    for name in ("homepage", "description", "usage", "moduleclass"):
        text = values.get(name)
        if not text:
            continue
        text = "\n".join(line.rstrip() for line in text.strip().splitlines())
        if name in ("description", "usage") and PLACEHOLDER.search(text):
            word = PLACEHOLDER.search(text).group()
            found.leave(source.having(word, source.of(name)),
                        f"parameter {name}: has {word}, which a record would fill")
        elif name == "homepage" and "\n" in text:
            found.leave(source.of(name), f"parameter {name} = {text}")
        else:
            found.record[name] = text


def read_others(values, found, source):
    """Take parameters that our easyblocks have as well, name the rest."""
    for name, value in values.items():
        if name in READ or name.startswith("local_") or value in (None, "", [], {}):
            continue
        if name == "skipsteps":
            others = [step for step in value if step not in ("build", "configure", "test")]
            if others:
                found.leave(source.of(name), f"parameter skipsteps: {', '.join(others)}")
            continue
        if name in BY_MODULE or name == "easyblock" and value in OWN:
            continue
        known = OURS.get(name, ())
        if known is None or value in known:
            found.recognised.append(f"parameter {name}: the easyblock does that in its own way")
        elif name in CARRIED and is_data(value):
            found.put("parameters", name, as_text(value), f"parameter {name} = {shortened(value)}")
        else:
            found.leave(source.of(name), f"parameter {name} = {value}")


def is_data(value):
    """Tell whether a value can stand in a record as it is."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_data(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_data, value))
    return isinstance(value, (str, bool, int))


def as_text(value):
    """Return a value with its numbers as texts, as the catalogue has them."""
    if isinstance(value, dict):
        return {key: as_text(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_text(item) for item in value]
    return value if isinstance(value, bool) else str(value)


def settle(values, found, source):
    """Decide who makes Python ready, and what else follows from several parts."""
    record = found.record
    if "__archive__" in found.path.absolute().parts:
        record["archived"] = True
        found.data.append("archived, which its directory says")
    wanted = f"{values['name']}-{values['version']}{found.suffix}.eb"
    if found.path.name != wanted:
        found.data.append(f"another name: {wanted}, after the module")
    elsewhere = re.search("WITH_CONDA", values.get("description") or "")
    if "conda_env" in record:
        # who has to activate an environment finds it active instead
        record.setdefault("init", "conda-injected")
    if "init" not in record:
        used = found.python or record.get("venv") or record.get("wrappers")
        by_hand = found.by_hand and not record.get("venv_name") or elsewhere and not record.get("venv") and not used
        record["init"] = "conda-manual" if by_hand else "image" if used else "none"
    record.setdefault("venv", False)
    found.recognised.append(f"Python is made ready by: {record['init']}")


def leave_credentials(found):
    """Leave for a person what holds a credential; neither record nor report shows it (G-09)."""
    from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials

    for name, value in list(found.record.items()):
        table = value if isinstance(value, dict) else found.record
        for key in [key for key in (list(value) if table is value else [name])
                    if Credentials.found({key: table[key]})]:
            del table[key]
            found.leave(1, f"{key}: a credential is written out. {REMEDY}")
    for name in ("recognised", "data"):
        setattr(found, name, [Credentials.masked(text) for text in getattr(found, name)])
    found.left = [(line, Credentials.masked(text)) for line, text in found.left]


def name_twins(imported):
    """Leave for a person easyconfigs (list of Imported) that make the same module."""
    first = {}
    for found in imported:
        module = f"{found.name}/{found.record['version']}{found.suffix}"
        other = first.setdefault(module.lower(), found)
        if other is not found:
            other.leave(1, f"the module {module} is also that of {found.path}: give one of them a label of its own")
            found.leave(1, f"the module {module} is also that of {other.path}: give one of them a label of its own")
