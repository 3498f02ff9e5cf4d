"""Importing easyconfigs: records and families for what was read, as files of the catalogue."""

import re
from collections import Counter

import yaml
from pydantic import ValidationError

from ebsif.catalogue.container import Container
from ebsif.catalogue.families import ADDED, EMPTY, family_values, is_stages, join_fields
from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.catalogue.records import CatalogueFile, Record
from ebsif.catalogue.site import Binds
from ebsif.catalogue.yamlfile import Loader
from ebsif.errors import EbsifError

# Fields of a record that are not a family's; the others are, where all its containers have the same.
OF_RECORD = ("version", "date", "hash", "variant", "label", "file", "suffix", "components", "definition_files",
             "requirements", "sha256", "archived")
TEXTS = ("homepage", "description")
TABLES = ("container_env", "variables", "script_names", "image_packages", "parameters")
HEX = "[0-9a-f]{7,64}"

SHORT = 90
TABLE, LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


class Dumper(yaml.SafeDumper):
    """Writes YAML as the catalogue has it: all scalars are text, so versions need no quotes."""

    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers

    def ignore_aliases(self, data):
        """The same value in several places is written out in each."""
        return True


class Lines(dict):
    """A table of which each field has a line of its own, however short they are."""


class Items(list):
    """A list of which each item has lines of its own."""


def is_short(value):
    """Tell whether a list or table can stand in a line."""
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return len(str(value)) < SHORT and not any("\n" in item if isinstance(item, str) else item and not is_short(item)
                                               for item in items if not isinstance(item, bool))


def represent_text(dumper, text):
    """Represent a text of several lines as a block."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Dumper.add_representer(str, represent_text)
Dumper.add_representer(Lines, lambda dumper, table: dumper.represent_mapping(TABLE, table, flow_style=False))
Dumper.add_representer(Items, lambda dumper, items: dumper.represent_sequence(LIST, items, flow_style=False))
Dumper.add_representer(dict, lambda dumper, table: dumper.represent_mapping(TABLE, table, flow_style=is_short(table)))
Dumper.add_representer(list, lambda dumper, items: dumper.represent_sequence(LIST, items, flow_style=is_short(items)))


def as_yaml(content, indent=0):
    """Return content as YAML, each line indented (str)."""
    text = yaml.dump(content, Dumper=Dumper, width=10**6, sort_keys=False, allow_unicode=True)
    return "".join(f"{' ' * indent}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


class File:
    """
    A file of the catalogue for the easyconfigs of one name.

    Parameters
    ----------
    name : str
        The name.
    imported : list of Imported
        What was read; what a family has and these don't is left for a person.
    known : CatalogueFile or None
        The file of the catalogue of that name.
    site : Site
        Where they are.
    """

    def __init__(self, name, imported, known, site):
        """Choose families, then begin those that are missing."""
        self.name, self.imported, self.known, self.site = name, imported, known, site
        self.families, self.records = {}, {}
        self.begin_families([one for one in imported if not (known and self.place_in_known(one))])
        while not self.is_valid():
            pass

    # --- families that are there

    def place_in_known(self, found):
        """
        Give a container to the family from which it differs least.

        False if no family has images named like its own, or each would add to it what a record can't take away.
        """
        choices = []
        for number, family in enumerate(self.known.families):
            defaults = family_values(self.known, family)
            fields = fields_of(defaults, found)
            if fields is None:
                continue
            record, gained = difference(found, defaults, fields, self.name, self.site)
            if gained:
                found.recognised.append(f"family {family} is not meant, it adds: {', '.join(gained)}")
                continue
            used = any(one.family == family for one in self.known.containers)
            choices.append((("file" in record, not used, len(record), number), family, record))
        if not choices:
            return False
        _, family, record = min(choices)
        self.records[found.path] = {"family": family, **record}
        found.recognised.append(f"family {family}")
        while family and family not in self.families:
            self.families[family] = as_data(self.known.families[family])
            family = self.known.families[family].extends
        return True

    # --- families that are begun

    def begin_families(self, strangers):
        """Begin a family for all containers that are made ready in the same way."""
        groups = {}
        for found in strangers:
            groups.setdefault((found.record["init"], found.record["venv"]), []).append((found, *templated(found)))
        for (init, _), members in groups.items():
            family = self.new_name(init)
            names = {key: Counter(one[number] for one in members).most_common(1)[0][0]
                     for number, key in ((1, "file"), (2, "suffix"))}
            records = [self.complete(*one, names) for one in members]
            self.families[family] = {**names, **shared(records, self.name)}
            for (found, *_), record in zip(members, records):
                self.records[found.path] = {"family": family, **ordered(record)}
                found.recognised.append(f"family {family}, which is new")

    def new_name(self, init):
        """Return a name for a family (str) that no other one has."""
        taken = {*self.families, *(self.known.families if self.known else ())}
        name = self.name.lower()
        tries = (name, f"{name}-{init}", *(f"{name}-{init}-{number}" for number in range(2, 10**6)))
        return next(one for one in tries if one not in taken)

    def complete(self, found, file, suffix, fields, names):
        """Return the record of a container for a family with these templates of names (dict)."""
        record = {key: value for key, value in found.record.items() if key != "file" and value not in ({}, [], None)}
        record = {**record, **{key: value for key, value in fields.items() if key != "components"}}
        components = {**fields["components"], **record.get("components", {})}
        if components:
            record["components"] = components
        if record["init"] == "image":
            del record["init"]
        if not record["venv"]:
            del record["venv"]
        for key in ("conda_env", "venv_name"):
            if record.get(key) == self.name.lower():
                del record[key]
        if record.get("conda_root") == "/opt/miniconda3":
            del record["conda_root"]
        for key, value in {"moduleclass": self.site.moduleclass, **of_gpu(self.site)}.items():
            if key in record and record[key] == value:
                del record[key]
        if "binds" in record:
            record["binds"] = {"optional": record["binds"]}
        if "wrappers" in record and record.get("python"):
            record["wrappers"] = [re.sub(rf"(?<=\D){re.escape(record['python'])}\Z", "{python}", name)
                                  for name in record["wrappers"]]
        # names of its own, with placeholders as far as that works
        for key in naming(found, record, names, self.name):
            record[key] = {"file": file, "suffix": suffix}[key]
        return {**record, **naming(found, record, names, self.name)}

    # --- what comes out

    def is_valid(self):
        """Tell whether this can be a file of the catalogue; a field that can't be in one is left for a person."""
        content = {"name": self.name, "families": self.families,
                   "containers": [self.records[found.path] for found in self.imported]}
        try:
            CatalogueFile.model_validate(content)
        except ValidationError as error:
            for kind, place, field, told in {(*one["loc"], None, None)[:3] + (one["msg"],) for one in error.errors()}:
                self.drop(kind, place, field, told)
            return False
        return True

    def drop(self, kind, place, field, told):
        """Leave a field of a record or family for a person; raise EbsifError if there is nothing without it."""
        table = (self.records[self.imported[place].path] if kind == "containers" else
                 self.families[place] if kind == "families" else {})
        if field in ("family", "version") or field not in table:
            where = self.imported[place if kind == "containers" else 0].path
            raise EbsifError(f"{where}: this can't be in the catalogue: {field or kind}: {told}")
        value = table.pop(field)
        for found in [self.imported[place]] if kind == "containers" else [
                one for one in self.imported if self.records[one.path]["family"] == place]:
            found.leave(1, f"{field} = {value}: {told}")

    @property
    def text(self):
        """The file (str)."""
        families = Lines({family: Lines(ordered(values)) for family, values in self.families.items()})
        lines = [as_yaml(Lines(name=self.name, families=families)), "containers:\n"]
        for found in self.imported:
            lines.append(f"  # {found.path.name}\n")
            lines += [f"  # review: line {line}: {text}\n" for line, text in dict.fromkeys(found.left)]
            lines.append(as_yaml(Items([Lines(self.records[found.path])]), 2))
        return "".join(lines)


def ordered(record):
    """Return a record or family with its fields in the order in which a person likes to read them (dict)."""
    order = ["family", "extends", *OF_RECORD, *Record.model_fields]
    return {key: record[key] for key in sorted(record, key=order.index)}


def as_data(model):
    """Return a model as its file has it (dict)."""
    return model.model_dump(exclude_unset=True)


def fields_of(defaults, found):
    """
    Return what file name and suffix say by the templates of a family (dict), None if the image is named otherwise.

    An image whose name has a word more than those of the family is taken for one of it; its name is kept as it is then.
    """
    if not defaults["file"]:
        return None
    known = {"version": found.record["version"], "name": found.name}
    fields = read_by(defaults["file"], found.record["file"], known)
    if fields is None:
        words = re.findall(r"[A-Za-z]{2,}", PLACEHOLDER.sub(" ", defaults["file"]))
        if len(words) < 3 or not re.search(r"\b.*\b".join(words), found.record["file"]):
            return None
        fields = {}
        for key, _ in PLACEHOLDER.findall(defaults["file"]):
            match = re.search(rf"-(?:docker)?{re.escape(key)}-([\w.+]+?)(?:-|\.sif)", found.record["file"])
            if match:
                fields[key] = match.group(1)
    return {**(read_by(defaults["suffix"] or "", found.suffix, known) or {}), **fields}


def read_by(template, text, known):
    """Return the fields that a text made by a template has (dict), None if it was not; some of them are known."""
    parts, end, names = [], 0, []
    for match in PLACEHOLDER.finditer(template):
        name, dotless = match.groups()
        parts.append(re.escape(template[end : match.start()]))
        end = match.end()
        group = f"f{len(names)}"
        hyphen = "" if name in Record.model_fields else "-"
        one = "[0-9]+" if dotless else re.escape(known[name]) if name in known else f"[A-Za-z0-9_.+{hyphen}]+?"
        optional = name in ("variant", "label")
        parts.append(rf"(?:-(?P<{group}>[A-Za-z0-9_.+-]+?))?" if optional else rf"(?P<{group}>{one})")
        names.append((group, name, dotless))
    match = re.fullmatch("".join(parts) + re.escape(template[end:]), text)
    if not match:
        return None
    fields = {}
    for group, name, dotless in names:
        value = match.group(group)
        if value:
            value = f"{value[0]}.{value[1:]}" if dotless and len(value) > 1 else value
            if fields.setdefault(name, value) != value:
                return None
    return fields


def difference(found, defaults, fields, name, site):
    """
    Return what the record of a container of a family has to say (dict), and what the family adds to it (list of str).

    Parameters
    ----------
    found : Imported
        The container.
    defaults : dict
        The fields of the family.
    fields : dict
        What names say.
    name : str
        Name of the software.
    site : Site
        Where it is.
    """
    own = found.record
    inside = {key: value for key, value in fields.items() if key not in ("name", *Record.model_fields)}
    same = {canonical(defaults["package"] or name), name.lower()}
    components = {key: value for key, value in own.get("components", {}).items()
                  if found.ours or not (key in same and value == own["version"])}
    components = {**components, **{key: value for key, value in inside.items() if key not in components}}
    result = {"version": own["version"], "date": fields.get("date") or own.get("date"), "hash": fields.get("hash"),
              "variant": fields.get("variant"), "label": fields.get("label"), "components": components}
    python = fields.get("python") or own.get("python")
    if python and python != defaults["python"]:
        result["python"] = python
    gained = [f"component {key} {value}, which the family has and this easyconfig hasn't"
              for key, value in defaults["components"].items() if key not in components]
    known = {"init": "image", "venv": False, "conda_root": "/opt/miniconda3", "conda_env": name.lower(),
             "venv_name": name.lower(), "moduleclass": site.moduleclass, **of_gpu(site)}
    for key in ("homepage", "description", "usage", "init", "venv", "conda_root", "conda_env", "venv_name",
                "moduleclass", "requirements", "sha256", "gpu", "gpu_option", "gpu_visibility", "entry_point", "image",
                "masked_paths", "support"):
        value, default = own.get(key), defaults.get(key) or known.get(key)
        if key == "requirements":
            default = as_lines(default)
        if value is not None and value != default:
            result[key] = value
        elif value is None and key not in known and key not in ("homepage", "description", "sha256") and default:
            gained.append(f"{key} of the family, which this easyconfig hasn't")
    filled = Container(name, join_fields(defaults, {key: value for key, value in result.items() if value}),
                                 None, None, 0)
    if "description" in result and is_same(defaults["description"], result["description"], filled):
        del result["description"]
    compare_wrappers(own, defaults, result, filled)
    if not is_same_place(own.get("images"), defaults["images"], filled):
        result["images"] = own["images"]
    for key in TABLES:
        table = own.get(key, {})
        more = {one: value for one, value in table.items() if defaults[key].get(one) != value}
        if more:
            result[key] = more
        gained += [f"{key}: {one}, which the family has and this easyconfig hasn't" for one in defaults[key]
                   if one not in table]
    binds = defaults["binds"] or Binds()
    theirs = [*binds.required, *binds.optional, *binds.libraries]
    more = [bind for bind in own.get("binds", []) if bind not in theirs]
    if more:
        result["binds"] = {"optional": more}
    gained += [f"bind {bind}, which the family has and this easyconfig hasn't" for bind in theirs
               if bind not in own.get("binds", [])]
    for key in ADDED:
        more = [one for one in own.get(key, []) if one not in defaults[key]]
        if more:
            result[key] = more
        gained += [f"{key}: {one}, which the family has and this easyconfig hasn't" for one in defaults[key]
                   if one not in own.get(key, [])]
    if own.get("archived"):
        result["archived"] = True
    result = {key: value for key, value in result.items() if value is not None and value != {}}
    return ordered({**result, **naming(found, result, defaults, name)}), gained


def of_gpu(site):
    """Return what a site says of the GPU (dict), as a record says it."""
    return {"gpu": site.gpu, "gpu_option": site.gpu_option, "gpu_visibility": site.gpu_visibility}


def as_lines(requirements):
    """Return requirements of a family as an easyconfig has them."""
    if is_stages(requirements):
        return [stage.model_dump(exclude_defaults=True) for stage in requirements]
    return requirements


def is_same(template, text, container):
    """Tell whether a template gives a text."""
    try:
        return container.fill(template or "").strip() == text
    except EbsifError:
        return False


def is_same_place(images, theirs, container):
    """Tell whether the places of images of a record (dict) are those of its family."""
    paths = [one["path"] for one in images["directories"]] if images else []
    return not images or bool(theirs) and len(paths) == len(theirs.directories) and all(
        is_same(one.path, path, container) for one, path in zip(theirs.directories, paths))


def compare_wrappers(own, defaults, result, filled):
    """Put the wrappers into a record (dict) if they are not those of the family."""
    wanted, theirs = own.get("wrappers") or [], defaults["wrappers"] or []
    try:
        made = [filled.fill(one) for one in theirs] if isinstance(theirs, list) else []
    except EbsifError:
        made = []
    if sorted(set(wanted)) != sorted(set(made)):
        result["wrappers"] = wanted


def naming(found, record, defaults, name):
    """Return file and suffix (dict) as far as a record does not get its own by the templates of its family."""
    values = join_fields({**EMPTY, **defaults, "binds": None}, {
        key: value for key, value in record.items() if key != "binds"})
    made = Container(name, values, None, None, 0)
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


def canonical(name):
    """Return the normal name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def templated(found):
    """Return templates of file name and suffix (str), with placeholders for what varies, and their fields (dict)."""
    record = found.record
    fields = {"components": dict(record.get("components", {}))}
    for key in ("date", "python"):
        if record.get(key):
            fields[key] = record[key]
    at_end = re.search(r"(?<![0-9])20[0-9]{6}\Z", found.suffix)
    date = record.get("date") or (at_end and at_end.group())

    def place(match):
        """What stands for a word with a value behind it."""
        word, mark, value = match.groups()
        key = word.lower()
        if value == record["version"]:
            return f"{word}-{mark}{{version}}"
        if key in ("dockerhash", "hash") and re.fullmatch(HEX, value):
            key = "hash"
        elif value == date:
            key = "date"
        elif key in Record.model_fields and key != "python":
            return match.group()
        table = fields if key in ("hash", "python", "date") else fields["components"]
        if found.ours and table is not fields and key not in table:
            return match.group()
        return f"{word}-{mark}{{{key}}}" if table.setdefault(key, value) == value else match.group()

    texts = []
    for text in (record["file"], found.suffix):
        bare = re.sub(r"([A-Za-z]+)-(v?)([0-9][\w.+]*?|(?<=hash-)[0-9a-f]+)(?=-|\.s(?:if|img)\Z|\Z)", place, text)
        if date and date in bare:
            fields["date"] = date
        texts.append(with_placeholders(bare, {"version": record["version"], "date": date}))
    return texts[0], texts[1], fields


def with_placeholders(text, fields):
    """Return a text with placeholders for values that stand there as words."""
    for key, value in fields.items():
        if value:
            text = re.sub(rf"(?<![\w.{{+]){re.escape(value)}(?![\w}}]|\.[0-9])", f"{{{key}}}", text)
    return text


def shared(records, name):
    """Return what all records have (dict), and take it out of them: a family says it once."""
    common = {}
    describe(records, name)
    for key in dict.fromkeys(key for record in records for key in record if key not in OF_RECORD):
        values = [record.get(key) for record in records]
        if key in TABLES:
            # not what speaks of one version: it would be wrong for the next container of the family
            common[key] = {one: value for one, value in (values[0] or {}).items()
                           if all((other or {}).get(one) == value for other in values)
                           and not any(record["version"] in str(value) for record in records)}
        elif all(value == values[0] for value in values) or key in TEXTS and all(values):
            common[key] = Counter(map(str, values)).most_common(1)[0][0] if key in TEXTS else values[0]
        elif key == "binds":
            common[key] = {"optional": [bind for bind in (values[0] or {"optional": []})["optional"]
                                        if all(other and bind in other["optional"] for other in values)]}
    for record in records:
        for key, value in common.items():
            if key in TABLES:
                record[key] = {one: more for one, more in record.get(key, {}).items() if one not in value}
            elif key == "binds" and key in record:
                record[key] = {"optional": [bind for bind in record[key]["optional"] if bind not in value["optional"]]}
            if record.get(key) in (value, {}, {"optional": []}):
                record.pop(key)
    return {key: value for key, value in common.items() if value not in ({}, {"optional": []})}


def describe(records, name):
    """Put placeholders into descriptions of records (list of dict): the same is said of different versions."""
    for record in records:
        text = record.get("description", "")
        fields = {**record.get("components", {}), "python": record.get("python"), "version": record["version"]}
        # the longest first: 6.2.4 before 6.2
        template = with_placeholders(text, dict(sorted(fields.items(), key=lambda one: -len(one[1] or ""))))
        container = Container(name, {**EMPTY, **record}, None, None, 0)
        if text and is_same(template, text, container):
            record["description"] = template
