"""Write imported easyconfigs to a file of the catalog: records, and a family for them."""

import re
from collections import Counter
from typing import Any

from easybuild.easyblocks.generic.container.sitevalues import CONDA_ROOT, INIT_IMAGE
from easybuild.easyblocks.generic.container.written import escape
from pydantic import ValidationError

from ebsif.catalog.fieldtypes import PLACEHOLDER
from ebsif.catalog.guess.template import insert_placeholders
from ebsif.catalog.records import CatalogFile, ContainerRecord
from ebsif.catalog.site import Site
from ebsif.catalog.yamltext import Lines, as_item, as_yaml
from ebsif.errors import EbsifError
from ebsif.migrate.imported import Imported, shortened

# Fields that only records have; others can come from the family.
OF_RECORD = (
    "version",
    "date",
    "hash",
    "variant",
    "label",
    "file",
    "suffix",
    "components",
    "definition_files",
    "requirements",
    "sha256",
    "archived",
)

# A word of a file name or suffix, and its value: -rocm-6.2.4, -pytorch-v2.7.1, -dockerhash-0a1b2c3
WORD = re.compile(r"([A-Za-z]+)-(v?)([0-9][\w.+]*?|(?<=hash-)[0-9a-f]+)(?=-|\.s(?:if|img)\Z|\Z)")


class File:
    """A catalog file for the easyconfigs of one name; whatever doesn't fit into it is left to the user."""

    def __init__(self, name: str, imported: list[Imported], site: Site):
        """Put the easyconfigs into a new family."""
        self.name, self.imported = name, imported
        usual = usual_values(name, site)
        self.records = [with_templates(result, usual) for result in imported]
        self.family = take_common(self.records)
        while not self.is_valid():
            pass

    def is_valid(self) -> bool:
        """Return whether this file is valid; invalid fields are left to the user."""
        records = [{"family": self.name.lower(), **record} for record in self.records]
        try:
            CatalogFile.model_validate(
                {"name": self.name, "families": {self.name.lower(): self.family}, "containers": records}
            )
        except ValidationError as error:
            problems = {(*problem["loc"], None, None)[:3]: problem["msg"] for problem in error.errors()}
            for (kind, place, field), reason in problems.items():
                self.drop(kind, place, field, reason)
            return False
        return True

    def drop(self, kind: Any, place: Any, field: Any, reason: str) -> None:
        """Leave a field of a record or family to the user; raise EbsifError if it is required."""
        of_record = kind == "containers" and isinstance(place, int)
        table = self.records[place] if of_record else self.family if kind == "families" else {}
        if field == "version" or field not in table:
            where = self.imported[place if of_record else 0].path
            raise EbsifError(f"{where}: this can't be in the catalog: {field or kind}: {reason}")
        value = table.pop(field)
        for result in [self.imported[place]] if of_record else self.imported:
            result.leave(1, f"{field} = {shortened(value)}: {reason}")

    @property
    def text(self) -> str:
        """The file, with the first comments of each easyconfig and what is left to the user above its record."""
        families = Lines({self.name.lower(): Lines(ordered(self.family))})
        lines = [as_yaml({"name": self.name, "families": families}), "containers:\n"]
        for result, record in zip(self.imported, self.records):
            lines.append(f"  # {result.path.name}\n")
            lines += [f"  # {escape(text)}\n" for text in result.head]
            lines += [f"  # review: line {line}: {escape(message)}\n" for line, message in result.left_by_line]
            lines.append(as_item({"family": self.name.lower(), **ordered(record)}))
        return "".join(lines)


def usual_values(name: str, site: Site) -> dict[str, Any]:
    """Return the values that every container of a site has unless its record says something else."""
    return {
        "init": INIT_IMAGE,
        "venv": False,
        "conda_root": CONDA_ROOT,
        "conda_env": name.lower(),
        "venv_name": name.lower(),
        "moduleclass": site.moduleclass,
        "gpu": site.gpu,
        "gpu_option": site.gpu_option,
    }


def ordered(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record or family with its fields in the catalog's usual order."""
    order = [*OF_RECORD, *ContainerRecord.model_fields]
    return {key: record[key] for key in sorted(record, key=order.index)}


def with_templates(result: Imported, usual: dict[str, Any]) -> dict[str, Any]:
    """Return a record without usual values, with placeholders in its names and the fields that these stand for."""
    record = {
        key: value
        for key, value in result.record.items()
        if value not in ({}, [], None) and (key not in usual or value != usual[key])
    }
    fields = {
        **record.get("components", {}),
        **{key: record[key] for key in ("version", "date", "python") if key in record},
    }
    day = re.search(r"(?<![0-9])20[0-9]{6}\Z", result.suffix)
    if day:
        fields.setdefault("date", day.group())
    record["file"], record["suffix"] = template(record["file"], fields), template(result.suffix, fields)
    named = {key for key, _ in PLACEHOLDER.findall(record["file"] + record["suffix"])}
    record.update(
        {
            key: fields.pop(key)
            for key in ("version", "date", "hash", "python")
            if key in fields and (key in named or key in record)
        }
    )
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
        elif (key in ContainerRecord.model_fields and key not in ("hash", "python")) or fields.setdefault(
            key, value
        ) != value:
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
    versions = {
        version for record in records for version in (record["version"], *record.get("components", {}).values())
    }
    for key in [key for key in records[0] if key not in OF_RECORD]:
        value = records[0][key]
        named = any(version in str(value) for version in versions) or (
            key == "description" and re.search(r"(?<!\w)v?[0-9]+(\.[0-9]+)+", value)
        )
        if not named and all(record.get(key) == value for record in records):
            family[key] = value
            for record in records:
                del record[key]
    return family
