"""Compare an imported container with a family of the catalogue."""

import re
from typing import Any, Optional

from easybuild.easyblocks.generic.container.tables import CONDA_ROOT, INIT_IMAGE
from easybuild.easyblocks.generic.container.texts import normal_name

from ebsif.catalogue import merge
from ebsif.catalogue.container import Container
from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.catalogue.guess.template import read_fields
from ebsif.catalogue.records import DEFAULTS, Archive, Record, as_parameter
from ebsif.catalogue.site import Binds, Site
from ebsif.errors import EbsifError
from ebsif.migrate.imported import Imported
from ebsif.render.easyconfig import image_packages

# Fields that only records have; others can come from the family.
OF_RECORD = ("version", "date", "hash", "variant", "label", "file", "suffix", "components", "definition_files",
             "requirements", "sha256", "archived")

# Fields that are dictionaries, to which a record adds.
TABLES = ("caches", "container_env", "network_env", "variables", "script_names", "parameters")

# Fields of a record that replace the family's.
SINGLE = ("homepage", "description", "usage", "init", "venv", "conda_root", "conda_env", "venv_name", "moduleclass",
          "requirements", "sha256", "gpu", "gpu_option", "gpu_visibility", "entry_point", "own_modules", "image",
          "masked_paths", "support")

# Fields that an easyconfig may omit even if its family has them, because every container has a default.
ALWAYS_THERE = ("homepage", "description", "sha256", "support")


def fields_of(defaults: dict[str, Any], found: Imported) -> Optional[dict[str, str]]:
    """
    Return the fields in the file name and suffix of a container, according to a family's templates.

    An image with an additional word in its name may belong to the family; it then keeps its file name.

    Parameters
    ----------
    defaults
        The fields of the family.
    found
        The container.

    Returns
    -------
    dict of str
        None if the family's images have other names.
    """
    if not defaults["file"]:
        return None
    known = {"version": found.record["version"], "name": found.name}
    fields = read_fields(defaults["file"], found.record["file"], known)
    if fields is None:
        fields = fields_between_words(defaults["file"], found.record["file"])
    return None if fields is None else {**(read_fields(defaults["suffix"] or "", found.suffix, known) or {}), **fields}


def fields_between_words(template, file_name):
    """Return the fields of a file name that contains all words of a template and others (dict), or None."""
    words = re.findall(r"[A-Za-z]{2,}", PLACEHOLDER.sub(" ", template))
    if len(words) < 3 or not re.search(r"\b.*\b".join(words), file_name):
        return None
    found = {key: re.search(rf"-(?:docker)?{re.escape(key)}-([\w.+]+?)(?:-|\.sif)", file_name)
             for key, _ in PLACEHOLDER.findall(template)}
    return {key: match.group(1) for key, match in found.items() if match}


class Comparison:
    """
    The record of a container in a family.

    Parameters
    ----------
    found
        The container.
    defaults
        The fields of the family.
    fields
        The fields in file name and suffix.
    name
        Name of the software.
    site
        The site, whose defaults are not repeated.

    Attributes
    ----------
    record : dict
        The fields that differ from the family's.
    gained : list of str
        Settings that the family would add to the container.
    """

    def __init__(self, found: Imported, defaults: dict[str, Any], fields: dict[str, str], name: str, site: Site):
        """Compare them."""
        self.found, self.defaults, self.fields, self.name = found, defaults, fields, name
        self.own, self.gained = found.record, []
        self.record = self.of_name()
        self.compare_single({
            "init": INIT_IMAGE, "venv": False, "conda_root": CONDA_ROOT, "conda_env": name.lower(),
            "venv_name": name.lower(), "moduleclass": site.moduleclass, **of_gpu(site)})
        # with the placeholders filled so far
        self.filled = Container.of(name, merge.fields(defaults, {
            key: value for key, value in self.record.items() if value}, DEFAULTS), None, None)
        self.compare_templates()
        for key in TABLES:
            self.compare_table(key)
        self.compare_packages()
        self.compare_binds()
        for key in (key for key, value in DEFAULTS.items() if isinstance(value, list)):
            self.compare_list(key)
        self.compare_archive()
        self.record = {key: value for key, value in self.record.items() if value is not None and value != {}}
        self.record = ordered({**self.record, **naming(found, self.record, defaults, name)})

    def compare_archive(self):
        """Keep the reason for archiving if it differs from the family's; without a reason, use the family's."""
        own, theirs = self.own.get("archived"), self.defaults["archived"]
        if isinstance(theirs, Archive):
            theirs = theirs.model_dump(exclude_none=True)
        if own and own != theirs and not (own is True and theirs):
            self.record["archived"] = own

    def gain(self, *names):
        """Record what the family would add."""
        self.gained += [f"{name}, which the family has and this easyconfig hasn't" for name in names]

    def of_name(self):
        """Return the fields in the names: version, date, hash, variant, label, components, Python (dict)."""
        own, components = self.own, self.components()
        self.gain(*(f"component {key} {value}" for key, value in self.defaults["components"].items()
                    if key not in components))
        record = {"version": own["version"], "date": self.fields.get("date") or own.get("date"),
                  **{key: self.fields.get(key) for key in ("hash", "variant", "label")}, "components": components}
        python = self.fields.get("python") or own.get("python")
        if python and python != self.defaults["python"]:
            record["python"] = python
        return record

    def components(self):
        """Return the components (dict): those of the easyconfig, then those in the names."""
        same = {normal_name(self.defaults["package"] or self.name), self.name.lower()}
        components = {key: value for key, value in self.own.get("components", {}).items()
                      if self.found.ours or not (key in same and value == self.own["version"])}
        of_names = {key: value for key, value in self.fields.items()
                    if key not in ("name", *Record.model_fields)}
        return {**components, **{key: value for key, value in of_names.items() if key not in components}}

    def compare_single(self, known):
        """Add the fields that differ from the family's, or from the defaults (dict) if the family lacks them."""
        for key in SINGLE:
            value, default = self.own.get(key), self.defaults.get(key) or known.get(key)
            if key == "requirements":
                default = as_parameter(default)
            if value is not None and value != default:
                self.record[key] = value
            elif value is None and default and key not in (*known, *ALWAYS_THERE):
                self.gain(f"{key} of the family")

    def compare_templates(self):
        """Compare the fields in which families use placeholders: description, wrappers, image directories."""
        if "description" in self.record and is_same(
                self.defaults["description"], self.record["description"], self.filled):
            del self.record["description"]
        wrappers = self.own.get("wrappers") or []
        if set(wrappers) != self.wrappers_of_family():
            self.record["wrappers"] = wrappers
        if not is_same_place(self.own.get("images"), self.defaults["images"], self.filled):
            self.record["images"] = self.own["images"]

    def wrappers_of_family(self):
        """Return the family's wrappers with placeholders filled (set of str), or an empty set if they have no value."""
        wrappers = self.defaults["wrappers"] or []
        try:
            return {self.filled.fill(one) for one in wrappers} if isinstance(wrappers, list) else set()
        except EbsifError:
            return set()

    def compare_table(self, key):
        """Add the differing entries of a dictionary."""
        self.take_entries(key, self.defaults[key])
        self.gain(*(f"{key}: {name}" for name in self.defaults[key] if name not in self.own.get(key, {})))

    def take_entries(self, key, known):
        """Add the entries of a dictionary that differ from known ones."""
        more = {name: value for name, value in self.own.get(key, {}).items() if known.get(name) != value}
        if more:
            self.record[key] = more

    def compare_packages(self):
        """Add the image's packages that don't follow from components, and those whose version is checked."""
        own, known = self.own.get("image_packages", {}), image_packages(self.filled)
        self.take_entries("image_packages", known)
        if self.found.ours and not known.keys() <= own.keys():
            self.record["python_packages"] = [name for name in known if name in own]

    def compare_binds(self):
        """Add the binds that the family lacks."""
        binds, own = self.defaults["binds"] or Binds(), self.own.get("binds", [])
        theirs = [*binds.required, *binds.optional, *binds.libraries]
        more = [bind for bind in own if bind not in theirs]
        if more:
            self.record["binds"] = {"optional": more}
        self.gain(*(f"bind {bind}" for bind in theirs if bind not in own))

    def compare_list(self, key):
        """Add the items of a list that the family lacks."""
        own, theirs = self.own.get(key, []), self.defaults[key]
        more = [one for one in own if one not in theirs]
        if more:
            self.record[key] = more
        # keywords only make modules easier to find, and other easyconfigs have no such list
        if key != "keywords" or self.found.ours:
            self.gain(*(f"{key}: {one}" for one in theirs if one not in own))


def naming(found, record, defaults, name):
    """Return `file` and `suffix` (dict) if the family's templates don't produce those of the container."""
    values = merge.fields(defaults, {key: value for key, value in record.items() if key != "binds"}, DEFAULTS)
    made = Container.of(name, values, None, None)
    wrong = {}
    for key, wanted, now in (("file", found.record["file"], lambda: made.file_name),
                             ("suffix", found.suffix, lambda: made.versionsuffix)):
        try:
            same = now() == wanted
        except EbsifError:
            same = False
        if not same:
            wrong[key] = wanted
    return wrong


def of_gpu(site):
    """Return the site's fields for GPUs (dict)."""
    return {"gpu": site.gpu, "gpu_option": site.gpu_option, "gpu_visibility": site.gpu_visibility}


def is_same(template, text, container):
    """Return whether a template produces a text."""
    try:
        return container.fill(template or "").strip() == text
    except EbsifError:
        return False


def is_same_place(images, theirs, container):
    """Return whether the image directories of a record (dict) are those of its family."""
    paths = [one["path"] for one in images["directories"]] if images else []
    return not images or bool(theirs) and len(paths) == len(theirs.directories) and all(
        is_same(one.path, path, container) for one, path in zip(theirs.directories, paths))


def ordered(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record or family with its fields in the catalogue's usual order."""
    order = ["family", "extends", *OF_RECORD, *Record.model_fields]
    return {key: record[key] for key in sorted(record, key=order.index)}
