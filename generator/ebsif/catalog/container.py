"""A container in the catalog: its record, completed by its family and its site."""

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Optional

import yaml
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog import merge
from ebsif.catalog.fieldtypes import DEFAULT_SUFFIX, PLACEHOLDER
from ebsif.catalog.records import DEFAULTS, ContainerRecord, SystemPackages, system_of
from ebsif.catalog.site import Binds, Site, own_catalog
from ebsif.catalog.stages import Stage, stages_of
from ebsif.catalog.yamlfile import YamlLoader
from ebsif.errors import EbsifError
from ebsif.files import is_there


class CatalogError(EbsifError):
    """A container is not in the catalog, or its record can't be completed; the message says what is known."""


class ContainerRecordError(CatalogError):
    """The record of a container is invalid; the message begins with its place."""

    def __init__(self, container: "Container", text: str):
        """Keep the text without the place, too."""
        super().__init__(f"{container.place}: {container.name} {container.version}: {text}")
        self.text = text


class Container(ContainerRecord):
    """A container: the fields of its record, merged with those of its family, and its site."""

    name: str
    site: Site
    # the file with the record, and the index of the record in the file, from 0
    path: Path
    index: int

    @classmethod
    def of(
        cls, name: str, values: Mapping[str, Any], site: Optional[Site], path: Optional[Path], index: int = 0
    ) -> "Container":
        """Return a container; the values were validated where they were written."""
        return cls.model_construct(**{**values, "name": name, "site": site, "path": path, "index": index})

    def of_record(self, record: ContainerRecord, index: int) -> "Container":
        """Return the container of a record, given what the records of its family have in common."""
        return self.model_copy(update={**merge.fields(vars(self), record.given, DEFAULTS), "index": index})

    def replace(self, **changes: Any) -> "Container":
        """Return a copy of the container with changed values."""
        return self.model_construct(**{**dict(self), **changes})

    @property
    def values(self) -> dict[str, Any]:
        """The merged fields of the record and its families."""
        return {field: getattr(self, field) for field in DEFAULTS}

    def __eq__(self, other: object) -> bool:
        """Compare identities: two records may have the same fields."""
        return self is other

    def __hash__(self) -> int:
        """Return the identity."""
        return id(self)

    @cached_property
    def fields(self) -> dict[str, str]:
        """The values of the placeholders."""
        fields = dict(self.components)
        fields.update(name=self.name, version=self.version)
        for field in ("date", "hash", "python"):
            if getattr(self, field):
                fields[field] = getattr(self, field)
        for field in ("variant", "label"):
            fields[field] = f"-{getattr(self, field)}" if getattr(self, field) else ""
        return fields

    @property
    def versions(self) -> dict[str, str]:
        """The versions of its components, itself included, by normalized name."""
        found = {normal_name(name): version for name, version in self.components.items()}
        found[normal_name(self.name)] = self.version
        if self.package:
            found[normal_name(self.package)] = self.version
        if self.python:
            found["python"] = self.python
        return found

    def fill(self, text: str) -> str:
        """Return a text with placeholders replaced: {rocm} by 6.2.4, {rocm!dotless} by 624, or raise an error."""

        def value(match: "re.Match[str]") -> str:
            name, dotless = match.groups()
            if name not in self.fields:
                raise ContainerRecordError(
                    self, f"there is no value for {{{name}}} in '{text}' (known: {', '.join(sorted(self.fields))})"
                )
            return self.fields[name].replace(".", "") if dotless else self.fields[name]

        return PLACEHOLDER.sub(value, text)

    @cached_property
    def versionsuffix(self) -> str:
        """The version suffix."""
        return self.fill(self.suffix_template)

    @property
    def suffix_template(self) -> str:
        """The version suffix with placeholders."""
        return DEFAULT_SUFFIX if self.suffix is None else self.suffix

    @cached_property
    def file_name(self) -> str:
        """File name of the image."""
        if not self.file:
            raise ContainerRecordError(self, "neither the record nor its family has a file: add the name of the image")
        return self.fill(self.file)

    def require_names(self) -> None:
        """Raise RecordError if its module or its image has no name, because a placeholder has no value."""
        _ = self.versionsuffix, self.file_name, self.site and self.image_places

    @property
    def place(self) -> str:
        """File and line of its record."""
        return f"{self.path}:{self.line_of()}"

    def line_of(self, field: Optional[str] = None) -> int:
        """Return the line (from 1) of a field of the record, or of the record if it lacks that field."""
        if self.path is None:
            return 1
        try:
            lines = record_lines(self.path, self.path.stat().st_mtime_ns)[self.index]
        except (OSError, IndexError):  # not in the file yet
            return 1
        return lines.get(field, lines[None])

    @property
    def full_version(self) -> str:
        """Version and suffix: the second part of the module name."""
        return self.version + self.versionsuffix

    @property
    def module(self) -> str:
        """Name of the module."""
        return f"{self.name}/{self.full_version}"

    @property
    def modules(self) -> tuple[str, str]:
        """Names of the module: its own, and the one in EasyBuild's naming scheme of categories."""
        return self.module, f"{self.moduleclass or self.site.moduleclass}/{self.module}"

    @property
    def module_or_version(self) -> str:
        """Name of the module, without suffix if that can't be completed."""
        try:
            return self.module
        except CatalogError:
            return f"{self.name}/{self.version}"

    @property
    def easyconfig_name(self) -> str:
        """File name of the easyconfig."""
        return f"{self.name}-{self.full_version}.eb"

    def with_site(self, field: str) -> Any:
        """Return the site's value of a field, merged with the container's; without the site's if not inherited."""
        if field in self.not_inherited:
            return getattr(self, field)
        site = {field: getattr(self.site, field)}
        return merge.fields(site, {field: getattr(self, field)}, DEFAULTS)[field]

    @cached_property
    def all_binds(self) -> Binds:
        """The binds of the site and of the record."""
        return self.with_site("binds") or Binds()

    @property
    def system(self) -> SystemPackages:
        """Its packages of the image's distribution, in whatever form they are written."""
        return system_of(self.system_packages)

    @property
    def is_own(self) -> bool:
        """Whether the record is in this account's own catalog."""
        return self.path is not None and self.path.is_relative_to(own_catalog())

    @property
    def image_kind(self) -> Optional[str]:
        """The image of the module: own, central or reference; None if neither record nor site says it."""
        return self.image or self.site.image

    @property
    def image_places(self) -> list[tuple[str, Path]]:
        """The stability of the image and its path for each possible place, in search order."""
        images = self.images or self.site.images
        return [
            (one.stability, images.current_root / self.fill(one.path) / self.file_name) for one in images.directories
        ]

    def moving_image(self) -> Optional[Path]:
        """Return the image if it is only in directories whose links move and the record forbids that."""
        places = [(stability, path) for stability, path in self.image_places if is_there(path)]
        only = places and not self.moving and all(stability == "moving" for stability, _ in places)
        return places[0][1] if only else None

    @property
    def replacement(self) -> Optional[str]:
        """Name of the software to use instead of an archived container, if its record has one."""
        return self.archived.replacement if self.archived and self.archived is not True else None

    @property
    def archive_message(self) -> Optional[str]:
        """Message for loading, listing and documenting an archived container; None for others."""
        if not self.archived:
            return None
        text = f"{self.module} was archived"
        if self.archived is not True:
            # a day, or only a year or a month
            when = "on" if self.archived.since.count("-") == 2 else "in"
            text += f" {when} {self.archived.since}: {self.archived.reason}"
            instead = f"a newer {self.name}" if self.replacement == self.name else self.replacement
            text += f". Use {instead} instead" if instead else ""
        return text + "."

    @property
    def gpu_kind(self) -> str:
        """Kind of GPU, or 'none'."""
        return self.gpu or self.site.gpu

    @property
    def uses_gpu_option(self) -> bool:
        """Whether the module uses the runtime's option for GPUs."""
        return self.site.gpu_option if self.gpu_option is None else self.gpu_option

    @property
    def stages(self) -> list[Stage]:
        """The stages of the requirements, whatever their form is."""
        return stages_of(self.requirements)


@lru_cache(maxsize=4)
def record_lines(path: Path, stamp: int) -> list[dict[Optional[str], int]]:
    """Return the lines of the fields of each record in a file, and of the record itself (None)."""
    node = yaml.compose(path.read_text(encoding="utf-8"), YamlLoader)
    records = next(value for key, value in node.value if key.value == "containers")
    return [
        {None: record.start_mark.line + 1, **{key.value: key.start_mark.line + 1 for key, _ in record.value}}
        for record in records.value
    ]
