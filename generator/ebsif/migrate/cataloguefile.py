"""Write imported easyconfigs to a file of the catalogue: records, and the family that is new or was named."""

import re
from collections import Counter
from typing import Any, Optional

from easybuild.easyblocks.generic.container.tables import CONDA_ROOT, INIT_IMAGE
from pydantic import BaseModel, ValidationError

from ebsif.catalogue.fieldtypes import DEFAULT_SUFFIX, PLACEHOLDER
from ebsif.catalogue.guess.template import insert_placeholders, read_fields
from ebsif.catalogue.records import CatalogueFile, Record
from ebsif.catalogue.site import Site
from ebsif.catalogue.yamltext import Lines, as_item, as_yaml
from ebsif.errors import EbsifError
from ebsif.migrate.imported import Imported, shortened

# Fields that only records have; others can come from the family.
OF_RECORD = ("version", "date", "hash", "variant", "label", "file", "suffix", "components", "definition_files",
             "requirements", "sha256", "archived")

# Lists to which a record adds, instead of replacing them.
LISTS = {name for name, field in Record.model_fields.items() if field.default == [] and name != "python_packages"}

# What a family may add to a container without being asked about: texts, and how modules are found and checked.
HARMLESS = ("homepage", "description", "doc", "file", "suffix", "package", "python", "python_packages", "keywords",
            "badges", "support", "moduleclass", "image_packages", "extends", "archived", "images", "not_inherited",
            "why")

# A word of a file name or suffix, and its value: -rocm-6.2.4, -pytorch-v2.7.1, -dockerhash-0a1b2c3
WORD = re.compile(r"([A-Za-z]+)-(v?)([0-9][\w.+]*?|(?<=hash-)[0-9a-f]+)(?=-|\.s(?:if|img)\Z|\Z)")


class File:
    """A catalogue file for the easyconfigs of one name; whatever doesn't fit into it is left to the user."""

    def __init__(self, name: str, imported: list[Imported], site: Site, known: Optional[CatalogueFile] = None,
                 family: Optional[str] = None):
        """Put the easyconfigs into a family of a known file, or into a new one."""
        self.name, self.imported = name, imported
        self.families: dict[str, dict[str, Any]] = {}
        usual = usual_values(name, site)
        if known and family:
            self.family = family
            self.records = [in_family(result, known.family_values(family), usual, family) for result in imported]
            base: Optional[str] = family
            while base:
                self.families[base] = known.families[base].model_dump(exclude_unset=True)
                base = known.families[base].extends
        else:
            self.family = name.lower()
            self.records = [with_templates(result, usual) for result in imported]
            self.families[self.family] = take_common(self.records)
        while not self.is_valid():
            pass

    def is_valid(self) -> bool:
        """Return whether this file is valid; invalid fields are left to the user."""
        records = [{"family": self.family, **record} for record in self.records]
        try:
            CatalogueFile.model_validate({"name": self.name, "families": self.families, "containers": records})
        except ValidationError as error:
            problems = {(*problem["loc"], None, None)[:3]: problem["msg"] for problem in error.errors()}
            for (kind, place, field), reason in problems.items():
                self.drop(kind, place, field, reason)
            return False
        return True

    def drop(self, kind: Any, place: Any, field: Any, reason: str) -> None:
        """Leave a field of a record or family to the user; raise EbsifError if it is required."""
        of_record = kind == "containers" and isinstance(place, int)
        table = self.records[place] if of_record else self.families.get(place, {}) if kind == "families" else {}
        if field == "version" or field not in table:
            where = self.imported[place if of_record else 0].path
            raise EbsifError(f"{where}: this can't be in the catalogue: {field or kind}: {reason}")
        value = table.pop(field)
        for result in [self.imported[place]] if of_record else self.imported:
            result.leave(1, f"{field} = {shortened(value)}: {reason}")

    @property
    def text(self) -> str:
        """The file, with the first comments of each easyconfig and what is left to the user above its record."""
        families = Lines({family: Lines(ordered(values)) for family, values in self.families.items()})
        lines = [as_yaml({"name": self.name, "families": families}), "containers:\n"]
        for result, record in zip(self.imported, self.records):
            lines.append(f"  # {result.path.name}\n")
            lines += [f"  # {text}\n" for text in result.head]
            lines += [f"  # review: line {line}: {message}\n" for line, message in result.left_by_line]
            lines.append(as_item({"family": self.family, **ordered(record)}))
        return "".join(lines)


def usual_values(name: str, site: Site) -> dict[str, Any]:
    """Return the values that every container of a site has unless its record says something else."""
    return {"init": INIT_IMAGE, "venv": False, "conda_root": CONDA_ROOT, "conda_env": name.lower(),
            "venv_name": name.lower(), "moduleclass": site.moduleclass, "gpu": site.gpu, "gpu_option": site.gpu_option}


def ordered(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record or family with its fields in the catalogue's usual order."""
    order = ["extends", *OF_RECORD, *Record.model_fields]
    return {key: record[key] for key in sorted(record, key=order.index)}


# --- a new family

def with_templates(result: Imported, usual: dict[str, Any]) -> dict[str, Any]:
    """Return a record without usual values, with placeholders in its names and the fields that these stand for."""
    record = {key: value for key, value in result.record.items()
              if value not in ({}, [], None) and (key not in usual or value != usual[key])}
    fields = {**record.get("components", {}), **{key: record[key] for key in ("version", "date", "python")
                                                 if key in record}}
    day = re.search(r"(?<![0-9])20[0-9]{6}\Z", result.suffix)
    if day:
        fields.setdefault("date", day.group())
    record["file"], record["suffix"] = template(record["file"], fields), template(result.suffix, fields)
    named = {key for key, _ in PLACEHOLDER.findall(record["file"] + record["suffix"])}
    record.update({key: fields.pop(key) for key in ("version", "date", "hash", "python")
                   if key in fields and (key in named or key in record)})
    components = {key: value for key, value in fields.items() if key in named or key in record.get("components", {})}
    if components:
        record["components"] = components
    if "binds" in record:
        record["binds"] = {"optional": record["binds"]}
    return record


def template(name: str, fields: dict[str, str]) -> str:
    """Return a file name or suffix with placeholders; fields that it names are added to `fields`."""
    def with_placeholder(match: re.Match) -> str:
        word, mark, value = match.groups()
        key = "hash" if word in ("dockerhash", "hash") else word.lower()
        if value in (fields["version"], fields.get("date")):
            key = "version" if value == fields["version"] else "date"
        elif key in Record.model_fields and key not in ("hash", "python") or fields.setdefault(key, value) != value:
            return match.group()
        return f"{word}-{mark}{{{key}}}"

    return insert_placeholders(WORD.sub(with_placeholder, name), {key: fields.get(key) for key in ("version", "date")})


def take_common(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all records have in common for their family, and remove it from them."""
    family = {}
    for key in ("file", "suffix"):
        family[key] = Counter(record[key] for record in records).most_common(1)[0][0]
        for record in records:
            if record[key] == family[key]:
                del record[key]
    # what names one of these would be wrong for the next container of the family
    versions = {version for record in records for version in (
        record["version"], *record.get("components", {}).values())}
    for key in [key for key in records[0] if key not in OF_RECORD]:
        value = records[0][key]
        named = any(version in str(value) for version in versions) or (
            key == "description" and re.search(r"(?<!\w)v?[0-9]+(\.[0-9]+)+", value))
        if not named and all(record.get(key) == value for record in records):
            family[key] = value
            for record in records:
                del record[key]
    return family


# --- a known family

def in_family(result: Imported, defaults: dict[str, Any], usual: dict[str, Any], family: str) -> dict[str, Any]:
    """Return the record of a container in a family; what the family would add is left to the user."""
    own, of_names = with_fields(result, defaults)
    placeholders = {**own["components"], **{key: own.get(key) for key in ("version", "date", "hash", "python")},
                    "name": result.name}
    record: dict[str, Any] = {}
    gained = []
    for key, value in defaults.items():
        theirs = plain(value, placeholders) or usual.get(key)
        mine = usual.get(key) if own.get(key) is None else own[key]
        if key == "binds":
            theirs = [bind for kind in ("required", "optional", "libraries") for bind in (theirs or {}).get(kind, ())]
            more = [bind for bind in mine or [] if bind not in theirs]
            record[key] = {"optional": more} if more else None
            gained += [f"bind {bind}" for bind in theirs if bind not in result.binds]
        elif key in LISTS:
            record[key] = [item for item in mine or [] if item not in (theirs or [])]
            gained += [f"{key}: {item}" for item in theirs or [] if item not in (mine or []) and key not in HARMLESS]
        elif isinstance(value, dict):
            record[key] = {name: entry for name, entry in (mine or {}).items() if (theirs or {}).get(name) != entry}
            gained += [f"{key}: {name}" for name in theirs or {} if name not in (mine or {})
                       and key not in HARMLESS and name not in ("docurls", "whatis")]
        elif mine not in (None, "") and not is_same(mine, theirs) and not (key == "archived" and theirs):
            record[key] = mine
        elif theirs and not mine and key not in HARMLESS:
            gained.append(key)
    for key, fields in of_names.items():
        same = fields is not None and all((placeholders.get(name) or own.get(name)) == field
                                          for name, field in fields.items())
        record[key] = None if same else own[key]
    if gained:
        result.leave(1, f"the family {family} adds to this container: {', '.join(gained)}")
    return {key: value for key, value in record.items() if value not in (None, {}, [])}


def with_fields(result: Imported, defaults: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a record with the fields of its names, and those by name; None where a name isn't like the family's."""
    own = {**result.record, "suffix": result.suffix}
    known = {"version": own["version"], "name": result.name}
    of_names = {key: read_fields(template, own[key], known) for key, template in (
        ("file", defaults["file"] or ""), ("suffix", defaults["suffix"] or DEFAULT_SUFFIX))}
    fields = {**(of_names["suffix"] or {}), **(of_names["file"] or {})}
    components = {**fields, **own.get("components", {})}
    own["components"] = {key: value for key, value in components.items() if key not in ("name", *Record.model_fields)}
    own.update({key: fields.get(key) or own.get(key) for key in ("date", "hash", "variant", "label", "python")})
    return own, of_names


def is_same(mine: Any, theirs: Any) -> bool:
    """Return whether a value is the family's; the order of wrappers doesn't matter."""
    return mine == theirs or isinstance(mine, list) and isinstance(theirs, list) and sorted(map(str, mine)) == sorted(
        map(str, theirs))


def plain(value: Any, fields: dict[str, Optional[str]]) -> Any:
    """Return a value of a family as plain data, with its placeholders filled."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_defaults=True)
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda match: fields.get(match.group(1)) or match.group(), value).strip()
    if isinstance(value, list):
        return [plain(item, fields) for item in value]
    return value
