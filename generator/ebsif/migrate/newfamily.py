"""Find the common properties of several imported containers, for a new family."""

import re
from collections import Counter
from typing import Any

from easybuild.easyblocks.generic.container.tables import CONDA_ROOT, INIT_IMAGE

from ebsif.catalogue.container import Container
from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.catalogue.guess.template import insert_placeholders
from ebsif.catalogue.records import Record
from ebsif.catalogue.site import Site
from ebsif.migrate.imported import Imported
from ebsif.migrate.knownfamily import OF_RECORD, TABLES, is_same, naming, of_gpu

TEXTS = ("homepage", "description")
HEX = "[0-9a-f]{7,64}"

# A word of a file name or suffix, and its value: -rocm-6.2.4, -pytorch-v2.7.1, -dockerhash-0a1b2c3
WORD = re.compile(r"([A-Za-z]+)-(v?)([0-9][\w.+]*?|(?<=hash-)[0-9a-f]+)(?=-|\.s(?:if|img)\Z|\Z)")


class Naming:
    """
    File name and suffix of a container as templates.

    Parameters
    ----------
    found
        The container.

    Attributes
    ----------
    file, suffix : str
        With placeholders for the parts that vary.
    fields : dict
        Date, hash and Python, if they have placeholders.
    components : dict
        Components of the easyconfig and those in the names.
    """

    def __init__(self, found: Imported):
        """Find the fields in both names."""
        self.found, self.record = found, found.record
        self.components = dict(self.record.get("components", {}))
        self.fields = {key: self.record[key] for key in ("date", "python") if self.record.get(key)}
        at_end = re.search(r"(?<![0-9])20[0-9]{6}\Z", found.suffix)
        self.date = self.record.get("date") or (at_end and at_end.group())
        self.file, self.suffix = self.template(self.record["file"]), self.template(found.suffix)

    def template(self, name):
        """Return a name with placeholders (str)."""
        name = WORD.sub(self.with_placeholder, name)
        if self.date and self.date in name:
            self.fields["date"] = self.date
        return insert_placeholders(name, {"version": self.record["version"], "date": self.date})

    def with_placeholder(self, match):
        """Return a word with a placeholder instead of its value (str), or unchanged if there is no field for it."""
        word, mark, value = match.groups()
        if value == self.record["version"]:
            return f"{word}-{mark}{{version}}"
        key = self.field_of(word.lower(), value)
        table = self.fields if key in ("hash", "python", "date") else self.components
        if key is None or self.found.ours and table is self.components and key not in table:
            return match.group()
        return f"{word}-{mark}{{{key}}}" if table.setdefault(key, value) == value else match.group()

    def field_of(self, word, value):
        """Return the field or component for a word (str), or None if records use that name for something else."""
        if word in ("dockerhash", "hash") and re.fullmatch(HEX, value):
            return "hash"
        if value == self.date:
            return "date"
        return None if word in Record.model_fields and word != "python" else word


def complete(naming_of: Naming, file: str, suffix: str, name: str, site: Site) -> dict[str, Any]:
    """
    Return the record of a container for a new family, without default values.

    Parameters
    ----------
    naming_of
        The container.
    file, suffix
        Templates of the family.
    name
        Name of the software.
    site
        Its site.
    """
    found = naming_of.found
    record = {key: value for key, value in found.record.items() if key != "file" and value not in ({}, [], None)}
    record.update(naming_of.fields)
    if naming_of.components:
        record["components"] = naming_of.components
    defaults = {"init": INIT_IMAGE, "venv": False, "conda_env": name.lower(), "venv_name": name.lower(),
                "conda_root": CONDA_ROOT, "moduleclass": site.moduleclass, **of_gpu(site)}
    record = {key: value for key, value in record.items() if key not in defaults or value != defaults[key]}
    if "binds" in record:
        record["binds"] = {"optional": record["binds"]}
    if "wrappers" in record and record.get("python"):
        record["wrappers"] = [re.sub(rf"(?<=\D){re.escape(record['python'])}\Z", "{python}", one)
                              for one in record["wrappers"]]
    # names that differ, with placeholders as far as they produce the right name
    family = {"file": file, "suffix": suffix}
    for key in naming(found, record, family, name):
        record[key] = getattr(naming_of, key)
    return {**record, **naming(found, record, family, name)}


def take_common(records: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the common part of all records for their family, and remove it from them."""
    insert_versions(records, name)
    fields = dict.fromkeys(key for record in records for key in record if key not in OF_RECORD)
    common = {key: value for key, value in ((key, common_value(key, records)) for key in fields) if value}
    for record in records:
        for key, value in common.items():
            remove_common(record, key, value)
    return common


def common_value(key, records):
    """Return the common value of a field in all records; empty or None if there is none."""
    values = [record.get(key) for record in records]
    if key in TABLES:
        return common_entries([value or {} for value in values], [record["version"] for record in records])
    if key in TEXTS:
        texts = [text for text in values if text and not names_a_version(text)]
        return Counter(texts).most_common(1)[0][0] if texts and all(values) else None
    if key == "binds":
        lists = [value["optional"] if value else [] for value in values]
        binds = [bind for bind in lists[0] if all(bind in other for other in lists)]
        return {"optional": binds} if binds else None
    return values[0] if all(value == values[0] for value in values) else None


def common_entries(tables, versions):
    """Return the entries that all tables (list of dict) have in common, except those that contain a version (dict)."""
    # these would be wrong for the next container of the family
    return {name: value for name, value in tables[0].items() if all(other.get(name) == value for other in tables)
            and not any(version in str(value) for version in versions)}


def names_a_version(text):
    """Return whether a text contains a version that is not a placeholder."""
    return bool(re.search(r"(?<!\w)v?[0-9]+(\.[0-9]+)+", PLACEHOLDER.sub("", text)))


def remove_common(record, key, value):
    """Remove the family's part of a field from a record (dict)."""
    if key in TABLES:
        record[key] = {one: more for one, more in record.get(key, {}).items() if one not in value}
    elif key == "binds" and key in record:
        record[key] = {"optional": [bind for bind in record[key]["optional"] if bind not in value["optional"]]}
    if record.get(key) in (value, {}, {"optional": []}):
        record.pop(key)


def insert_versions(records, name):
    """Insert placeholders for versions into descriptions (of a list of dict) if these produce the same text."""
    for record in records:
        text = record.get("description", "")
        fields = {**record.get("components", {}), "python": record.get("python"), "version": record["version"]}
        # the longest first: 6.2.4 before 6.2
        template = insert_placeholders(text, dict(sorted(fields.items(), key=lambda one: -len(one[1] or ""))))
        container = Container.of(name, record, None, None)
        if text and is_same(template, text, container):
            record["description"] = template
