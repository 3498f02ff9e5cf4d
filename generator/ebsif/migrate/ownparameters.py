"""Read the parameters of our own easyblocks."""

import re
from typing import Any

from easybuild.easyblocks.generic.container.texts import parse_binds, root_parts

from ebsif.catalogue.container import ARCHIVE_MESSAGE
from ebsif.catalogue.site import Site
from ebsif.migrate.easyconfigfile import Source
from ebsif.migrate.imported import Imported
from ebsif.migrate.reader import as_strings, is_empty, shortened
from ebsif.render import easyconfig

# Our own easyblocks; parameters that are fields of a record, and parameters read elsewhere.
OWN = ("ContainerInstall", "ContainerVenv")
FIELDS = ("init", "conda_env", "entry_point", "venv_name", "image", "image_packages", "gpu", "gpu_option",
          "gpu_visibility", "masked_paths", "own_modules", "wrappers", "script_names", "definition_files",
          "requirements", "warnings", "aliases")
BY_MODULE = ("binds", "optional_binds", "container_env", "conflicts")

# Easyconfigs without any of these use the site's.
GAINED = ("library_binds", "bind_file")


def read_own(values: dict[str, Any], found: Imported, source: Source, site: Site) -> None:
    """Read parameters of our own easyblocks; values from the site's profile are compared, not copied."""
    record, found.ours = found.record, True
    read_archive(values, record)
    record.update(venv=values["easyblock"] == "ContainerVenv", init="image")
    record.update({name: as_strings(values[name]) for name in FIELDS if not is_empty(values.get(name))})
    if "/" in record.get("conda_env", ""):
        record["conda_root"], _, record["conda_env"] = record["conda_env"].rpartition("/envs/")
    packages = dict(record.pop("image_packages", {}))
    python = packages.pop("python", None)
    record.update({**({"image_packages": packages} if packages else {}), **({"python": python} if python else {})})
    record["gpu"] = values.get("gpu") or "none"
    if record["gpu"] != "none":
        record["gpu_option"] = values.get("gpu_option", True)
    if values.get("support_level") not in (None, site.support):
        record["support"] = values["support_level"]
    found.recognized.append(f"easyblock {values['easyblock']}")
    read_rendered_description(values, record)
    if str(values.get("download_instructions")).startswith(easyconfig.WHERE.format(site.description) + "\n"):
        del values["download_instructions"]
    # 0.1 had them apart
    earlier = [f"?{bind}" for bind in values.get("optional_binds") or []]
    values["binds"], values["optional_binds"] = parse_binds([*(values.get("binds") or []), *earlier])
    read_image_places(values, record, site)
    read_source(values, record, site)
    read_bind_file(values, site)
    read_not_inherited(values, record, site)
    read_network(values, record, site)
    read_caches(values, record, site)
    compare_with_site(values, found, source, site)


def read_bind_file(values, site):
    """Add the site's binds to the easyconfig's, where other functions read them, if it uses the site's bind file."""
    if site.binds.file and values.get("bind_file_default") == easyconfig.bind_lines(site.binds):
        del values["bind_file_default"]
        for name, binds in (("binds", site.binds.required), ("optional_binds", site.binds.optional)):
            values[name] = [*binds, *(values.get(name) or [])]


def read_not_inherited(values, record, site):
    """Read `not_inherited`: the site's binds if a container has only its own, the network if it has none."""
    binds, own = {*site.binds.required, *site.binds.optional}, values.get("optional_binds") or []
    fields = [] if is_empty(site.network_env) or values.get("network_env") else ["network_env"]
    if own and not values.get("binds") and not values.get("bind_file") and not binds <= set(own):
        fields.append("binds")
    if fields:
        record["not_inherited"] = fields


def read_archive(values, record):
    """Read the date, reason and replacement of an archived container from its load message."""
    message = values.get("modloadmsg") or ""
    archive = ARCHIVE_MESSAGE.fullmatch(message)
    if archive and values.get("hidden"):
        record["archived"] = {key: value for key, value in archive.groupdict().items() if value} or True
        values["warnings"] = [text for text in values.get("warnings") or [] if text != message]
        del values["modloadmsg"], values["hidden"]


def read_rendered_description(values, record):
    """Read the components and keywords at the end of a rendered description."""
    keywords = re.search(r"\nKeywords: ([^:]*)\.\s*\Z", values.get("description") or "")
    if keywords:
        values["description"] = values["description"][: keywords.start()]
        record["keywords"] = " ".join(keywords.group(1).split()).split(", ")
    inside = re.search(r"(?:\A|\n)In the image: ([^:]*)\.\s*\Z", values.get("description") or "")
    if inside:
        values["description"] = values["description"][: inside.start()]
        pairs = [part.rpartition(" ") for part in " ".join(inside.group(1).split()).split(", ")]
        record["components"] = {name: version for name, _, version in pairs}


def read_image_places(values, record, site):
    """Read the image directories, unless they are the site's."""
    if not values.get("image_dirs"):
        return
    variable, root = root_parts(values.pop("image_root", None))
    variable = variable or values.pop("image_root_variable", None)
    own = {"root": root or None, "root_variable": variable or None, "dirs": values.pop("image_dirs")}
    theirs = {"root": site.images.root, "root_variable": site.images.root_variable,
              "dirs": [one.path for one in site.images.directories]}
    if own != theirs:
        directories = [{"path": path} for path in own.pop("dirs")]
        record["images"] = {**{name: value for name, value in own.items() if value}, "directories": directories}


def read_source(values, record, site):
    """Read where the image is fetched from, and whose signature it needs, unless the site says that."""
    source = values.pop("image_source", None)
    if source:
        record["source"] = source
    keys = values.pop("signature_keys", None) or []
    if keys != site.signature_keys:
        record["signature_keys"] = keys


def read_network(values, record, site):
    """Read the network variables that differ from the site's."""
    network = values.get("network_env") or {}
    if all(name in network for name in site.network_env):
        own = {name: value for name, value in as_strings(values.pop("network_env", {})).items()
               if name not in site.network_env or site.network_env[name] != value}
        if own:
            record["network_env"] = own


def read_caches(values, record, site):
    """Read the variables of caches whose place differs from the site's."""
    own = {name: place for name, place in (values.pop("cache_variables", None) or {}).items()
           if name not in site.caches.variables or site.caches.variables[name] != place}
    if own:
        record["caches"] = own


def compare_with_site(values, found, source, site):
    """Leave parameters that differ from the site's profile to the user; remove the others."""
    theirs = {
        "gpu_mpi_library": site.gpu_mpi_library, "network_env": site.network_env,
        "one_container": site.one_container, "wrappers_load": site.wrappers_load,
        "lustre_striping": site.lustre_striping,
        "listed_packages": site.listed_packages, "scheduler": site.scheduler.kind,
        "image_root": easyconfig.image_root(site.images),
        "node_caches": site.caches.node, "project_caches": site.caches.project,
        "library_binds": site.binds.libraries, "bind_file": site.binds.file}
    for name, wanted in theirs.items():
        value = values.get(name)
        gained = name in GAINED and not is_empty(wanted) and "binds" not in found.record.get("not_inherited", ())
        if is_empty(value) and not gained or value == wanted:
            continue
        found.leave(source.of(name), f"parameter {name} = {of_value(value)}, and the site has {of_value(wanted)}")
    for name in (*FIELDS, *theirs, "support_level"):
        values.pop(name, None)


def of_value(value):
    """Return a value for a message (str)."""
    return "none" if is_empty(value) else shortened(value)
