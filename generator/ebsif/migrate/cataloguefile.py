"""Write imported easyconfigs to a file of the catalogue, as families and records."""

from collections import Counter
from itertools import chain, count
from typing import Optional

from pydantic import ValidationError

from ebsif.catalogue.records import CatalogueFile
from ebsif.catalogue.site import Site
from ebsif.errors import EbsifError
from ebsif.migrate.imported import Imported
from ebsif.migrate.knownfamily import Comparison, fields_of, ordered
from ebsif.migrate.newfamily import Naming, complete, take_common
from ebsif.migrate.reader import shortened
from ebsif.migrate.yamltext import Items, Lines, as_yaml


class File:
    """
    A catalogue file for the easyconfigs of one name.

    Parameters
    ----------
    name
        The name.
    imported
        The easyconfigs; whatever doesn't fit into the file is left to the user.
    known
        The catalogue's file for this name.
    site
        The site of the easyconfigs.
    """

    def __init__(self, name: str, imported: list[Imported], known: Optional[CatalogueFile], site: Site):
        """Assign containers to families of the catalogue, and create families for the others."""
        self.name, self.imported, self.known, self.site = name, imported, known, site
        self.families, self.records = {}, {}
        self.begin_families([one for one in imported if not (known and self.place_in_known(one))])
        while not self.is_valid():
            pass

    # --- families of the catalogue

    def place_in_known(self, found):
        """
        Assign a container to the family from which it differs least.

        Return False if no family has images with such a name, or if each would add something a record can't remove.
        """
        choices = [choice for number, family in enumerate(self.known.families)
                   if (choice := self.choice(number, family, found))]
        if not choices:
            return False
        _, family, record = min(choices)
        self.records[found.path] = {"family": family, **record}
        found.recognized.append(f"family {family}")
        while family and family not in self.families:
            self.families[family] = as_data(self.known.families[family])
            family = self.known.families[family].extends
        return True

    def choice(self, number, family, found):
        """Return the distance to a family, its name and the record (tuple), or None if the container can't be in it."""
        defaults = self.known.family_values(family)
        fields = fields_of(defaults, found)
        if fields is None:
            return None
        compared = Comparison(found, defaults, fields, self.name, self.site)
        if compared.gained:
            found.recognized.append(f"not family {family}, which would add: {', '.join(compared.gained)}")
            return None
        unused = all(one.family != family for one in self.known.containers)
        return ("file" in compared.record, unused, len(compared.record), number), family, compared.record

    # --- new families

    def begin_families(self, strangers):
        """Create families for containers whose Python is activated in the same way."""
        groups = {}
        for found in strangers:
            groups.setdefault((found.record["init"], found.record["venv"]), []).append(Naming(found))
        for (init, _), members in groups.items():
            family = self.new_name(init)
            file, suffix = (Counter(getattr(one, key) for one in members).most_common(1)[0][0]
                            for key in ("file", "suffix"))
            records = [complete(one, file, suffix, self.name, self.site) for one in members]
            self.families[family] = {"file": file, "suffix": suffix, **take_common(records, self.name)}
            for one, record in zip(members, records):
                if "homepage" not in {**self.families[family], **record}:
                    one.found.leave(1, "there is no homepage, and EasyBuild wants one")
            for one, record in zip(members, records):
                self.records[one.found.path] = {"family": family, **ordered(record)}
                one.found.recognized.append(f"family {family}, which is new")

    def new_name(self, init):
        """Return a new name for a family (str)."""
        taken = {*self.families, *(self.known.families if self.known else ())}
        name = self.name.lower()
        numbered = (f"{name}-{init}-{number}" for number in count(2))
        return next(one for one in chain((name, f"{name}-{init}"), numbered) if one not in taken)

    # --- the file

    def is_valid(self):
        """Return whether this file is valid; invalid fields are left to the user."""
        content = {"name": self.name, "families": self.families,
                   "containers": [self.records[found.path] for found in self.imported]}
        try:
            CatalogueFile.model_validate(content)
        except ValidationError as error:
            for kind, place, field, reason in {(*one["loc"], None, None)[:3] + (one["msg"],)
                                               for one in error.errors()}:
                self.drop(kind, place, field, reason)
            return False
        return True

    def drop(self, kind, place, field, reason):
        """Leave a field of a record or family to the user; raise EbsifError if it is required."""
        table = (self.records[self.imported[place].path] if kind == "containers" else
                 self.families[place] if kind == "families" else {})
        if field in ("family", "version") or field not in table:
            where = self.imported[place if kind == "containers" else 0].path
            raise EbsifError(f"{where}: this can't be in the catalogue: {field or kind}: {reason}")
        value = table.pop(field)
        for found in [self.imported[place]] if kind == "containers" else [
                one for one in self.imported if self.records[one.path]["family"] == place]:
            found.leave(1, f"{field} = {shortened(value)}: {reason}")

    @property
    def text(self):
        """The file (str)."""
        families = Lines({family: Lines(ordered(values)) for family, values in self.families.items()})
        lines = [as_yaml(Lines(name=self.name, families=families)), "containers:\n"]
        for found in self.imported:
            lines.append(f"  # {found.path.name}\n")
            lines += [f"  # review: line {line}: {message}\n" for line, message in found.left_by_line]
            lines.append(as_yaml(Items([Lines(self.records[found.path])]), 2))
        return "".join(lines)


def as_data(model):
    """Return a model as a dict with the fields of its file."""
    return model.model_dump(exclude_unset=True)
