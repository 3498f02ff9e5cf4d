"""Render a container in the catalog as an easyconfig."""

import os
import re
import textwrap
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any, Optional, Union

from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials
from easybuild.easyblocks.generic.container.sitevalues import CONDA_ROOT, INIT_NONE, NODE, STRIPING
from easybuild.easyblocks.generic.container.values import normal_name, without_templates

from ebsif.catalog import merge
from ebsif.catalog.container import CatalogError, Container, ContainerRecordError
from ebsif.catalog.fieldtypes import PLACEHOLDER, Statements
from ebsif.catalog.packagenames import USUAL_NAMES
from ebsif.catalog.records import WRITTEN_FROM
from ebsif.catalog.site import Binds
from ebsif.catalog.stages import as_parameter
from ebsif.eb.easyconfigtext import header_of_site
from ebsif.templating import environment

# EasyBuild's maximal line length.
WIDTH = 120

# Values that the easyblocks have without the parameter; empty values are left out anyway.
DEFAULT_VALUES = {
    "image": "own",
    "init": "image",
    "gpu_option": True,
    # without it, ranks read the variables of whatever has started them
    "scheduler": "slurm",
    "lustre_striping": list(STRIPING),
    "one_container": "refuse",
    "listed_packages": "user_software",
    "wrappers_load": False,
    "node_caches": list(NODE),
}


# The download instructions for an image in directories of the site; the easyblock adds the searched directories.
WHERE = "The image is on {}."

# An entry of a table with more columns has a line of its own.
SHORT = 80

# Stands above the sources if no checksum follows.
NO_SHA256 = "SHA256 unknown: the record in the catalog has none"

# Where a long shell text is broken: after each command, and if one is too long, preferably after && and ||.
COMMAND_ENDS = re.compile(r";(?: then| do| else)? (?!then |do |else |\})")
CHAINS = re.compile(r"&& |\|\| ")
# elsewhere not within https://
BLANKS = re.compile(r"[ ,]|:(?!//)")


class AsItIs(str):
    """A string whose EasyBuild templates are kept."""

    __slots__ = ()


def as_it_is(value: Any) -> Any:
    """Return a value whose strings, at any depth, are written unchanged (AsItIs)."""
    if isinstance(value, dict):
        return {key: as_it_is(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_it_is(item) for item in value]
    return AsItIs(value) if isinstance(value, str) else value


def parameters(container: Container) -> dict[str, Any]:
    """Return the parameters of an easyconfig that differ from their defaults."""
    return {name: value for group in parameter_groups(container) for name, value in group.items()}


def parameter_groups(container: Container) -> list[dict[str, Any]]:
    """Return the parameters of an easyconfig that differ from their defaults, in groups, in reading order."""
    if container.requirements and not container.venv:
        raise ContainerRecordError(container, "requirements need a venv: add 'venv: true', or remove the requirements")
    hiding = archive(container)
    groups: list[dict[str, Any]] = [
        {"easyblock": "ContainerVenv" if container.venv else "ContainerInstall"},
        {"name": container.name, "version": container.version, "versionsuffix": container.versionsuffix},
        {"homepage": container.homepage, "description": description(container), "usage": container.usage},
        of_image(container),
        of_python(container),
        {**of_node(container), "network_env": container.with_site("network_env"), **caches_of(container)},
        {
            **binds_of(container),
            **of_host(container),
            "masked_paths": container.masked_paths,
        },
        of_module(container),
        {
            "wrappers": wrappers(container),
            "wrappers_load": container.wrappers and container.site.wrappers_load,
            "script_names": container.script_names,
        },
        {
            "system_packages": container.system.parameter,
            "requirements": as_parameter(container.requirements),
        },
        {
            "support_level": container.support or container.site.support,
            "warnings": merge.unique(container.warnings, filter(None, [driver_problem(container)])),
            **hiding,
            **as_it_is(
                {
                    name: value
                    for name, value in container.parameters.items()
                    if name not in ("download_instructions", *hiding)
                }
            ),
            "aliases": container.aliases,
            "moduleclass": container.moduleclass or container.site.moduleclass,
        },
    ]
    groups = [
        {
            name: value
            for name, value in group.items()
            if value not in (None, "", [], {}) and (name in container.parameters or value != DEFAULT_VALUES.get(name))
        }
        for group in groups
    ]
    return [group for group in groups if group]


def of_image(container: Container) -> dict[str, Any]:
    """Return the parameters of the image: what it is, and where it is."""
    images = container.images or container.site.images
    return {
        "sources": [container.file_name],
        "checksums": [container.sha256] if container.sha256 else None,
        "image_source": container.source,
        "signature_keys": signature_keys(container),
        "download_instructions": instructions(container),
        "definition_files": container.definition_files,
        "image": container.image_kind,
        "image_root": images.root_in_easyconfig if images.directories else None,
        "image_dirs": [container.fill(directory.path) for directory in images.directories],
    }


def of_python(container: Container) -> dict[str, Any]:
    """Return the parameters of the image's Python and its packages."""
    is_named = container.venv and container.venv_name != container.name.lower()
    return {
        "init": container.init,
        "conda_env": conda_env(container),
        "entry_point": container.entry_point,
        "venv_name": container.venv_name if is_named else None,
        "keep_packages": keep_packages(container) if container.venv else [],
        "image_packages": {**python_of(container), **image_packages(container)},
    }


def of_node(container: Container) -> dict[str, Any]:
    """Return the parameters of the nodes: GPUs, scheduler, file system."""
    site, gpu = container.site, container.gpu_kind
    of_gpu = (
        {
            "gpu": gpu,
            "gpu_option": container.uses_gpu_option,
            "gpu_visibility": container.gpu_visibility or site.gpu_visibility,
            "gpu_mpi_library": site.gpu_mpi_library,
        }
        if gpu != "none"
        else {}
    )
    return {**of_gpu, "scheduler": site.scheduler.kind, "lustre_striping": site.lustre_striping}


def of_module(container: Container) -> dict[str, Any]:
    """Return the parameters of the module: variables, conflicts, what it lists."""
    return {
        "container_env": container.with_site("container_env"),
        "modextravars": module_variables(container),
        "own_modules": container.own_modules,
        "conflicts": container.with_site("conflicts"),
        "one_container": container.site.one_container,
        "listed_packages": container.site.listed_packages,
    }


def description(container: Container) -> str:
    """
    Return the description of a container, with its keywords and the components that it doesn't name.

    The easyblock adds those in 'image_packages', with their versions.
    """
    template = container.description or f"{container.name} in a container."
    text, named = container.fill(template).strip(), {name for name, _ in PLACEHOLDER.findall(template)}
    # values of placeholders may make lines too long
    first, *others = text.splitlines()
    if len(f'description = """{first}') >= WIDTH or max(map(len, others), default=0) > WIDTH:
        text = textwrap.fill(text, WIDTH - 20, break_long_words=False, break_on_hyphens=False)
    named.update(map(normal_name, image_packages(container)))
    inside = ", ".join(
        f"{USUAL_NAMES.get(name, name)} {version}"
        for name, version in container.components.items()
        if name not in named and normal_name(name) not in named
    )
    # EasyBuild copies the description into the module's `whatis`, which `module keyword` searches
    heading = "Also in the image" if image_packages(container) else "In the image"
    for title, items in ((heading, inside), ("Keywords", ", ".join(container.keywords))):
        if items:
            text += "\n" + textwrap.fill(
                f"{title}: {items}.", WIDTH - len('"""'), break_long_words=False, break_on_hyphens=False
            )
    return text


def python_of(container: Container) -> dict[str, str]:
    """Return the version of Python that is checked at installation, as an entry of 'image_packages' (F-11)."""
    return {"python": container.python} if container.python and container.init != INIT_NONE else {}


def image_packages(container: Container) -> dict[str, str]:
    """Return the Python packages of the image whose versions are checked at installation, by name."""
    versions = container.versions
    names = {name: normal_name(name) for name in container.python_packages or []}
    return {**{name: versions[key] for name, key in names.items() if key in versions}, **container.image_packages}


def instructions(container: Container) -> Optional[str]:
    """Return what EasyBuild prints if it doesn't find the image: the record's text, that the site has it, or None."""
    if "download_instructions" in container.parameters:
        return as_it_is(container.parameters["download_instructions"])
    if not any(container.image_places) or "source_urls" in container.parameters:
        return None
    return WHERE.format(container.site.title)


def keep_packages(container: Container) -> list[str]:
    """Return the packages of the image that can't be replaced, besides those that are built for the machine."""
    return merge.unique(container.site.keep_packages, container.keep_packages)


def signature_keys(container: Container) -> list[str]:
    """Return the files with the keys of those who may sign the image: a record may name none."""
    return container.site.signature_keys if container.signature_keys is None else container.signature_keys


def wrappers(container: Container) -> Union[list[str], str, None]:
    """Return the programs that become commands: 'all' or a list of names, with placeholders replaced."""
    if not isinstance(container.wrappers, list):
        return container.wrappers
    return [container.fill(name) for name in container.wrappers]


def binds_of(container: Container) -> dict[str, Any]:
    """Return the parameters for binds; if the site has a bind file, its binds are the defaults without that file."""
    everything, site = container.all_binds, container.site.binds
    if not site.file or everything.file != site.file:
        return {"binds": bind_lines(everything), "bind_file": everything.file}
    own = container.binds or Binds()
    return {"binds": bind_lines(own), "bind_file": site.file, "bind_file_default": bind_lines(site)}


def of_host(container: Container) -> dict[str, dict[str, list[str]]]:
    """Return the parameters of what a container has of the host: the site's, unless the record says otherwise."""
    found = {}
    for name in ("host_libraries", "host_programs"):
        own = getattr(container, name)
        value = getattr(container.site, name) if own == "site" else own
        found[name] = {key: items for key, items in value.model_dump().items() if items} if value else {}
    return found


def conda_env(container: Container) -> Optional[str]:
    """Return the name of the Conda environment, its path if Conda is elsewhere, or None for the default."""
    name = container.conda_env or container.name.lower()
    if container.conda_root not in (None, CONDA_ROOT):
        return f"{container.conda_root}/envs/{name}"
    return name if name != container.name.lower() else None


def caches_of(container: Container) -> dict[str, Any]:
    """Return the parameters for caches; an image without Python has those that its record names."""
    site = container.site.caches
    has_python = container.init != INIT_NONE
    variables = {**(site.variables if has_python else {}), **container.caches}
    if not has_python and not variables:
        return {}
    return {"node_caches": site.node, "project_caches": site.project, "cache_variables": variables}


def bind_lines(binds: Binds) -> list[str]:
    """Return binds as in an easyconfig or a bind file: optional ones begin with '?'."""
    return [*binds.required, *(f"?{bind}" for bind in binds.optional)]


def module_variables(container: Container) -> dict[str, Any]:
    """Return the module's variables as EasyBuild's parameter, in which it doesn't escape the $ of Statements."""
    return {
        name: {"value": str(value), "resolve_env_vars": False} if isinstance(value, Statements) else value
        for name, value in container.variables.items()
    }


def archive(container: Container) -> dict[str, Any]:
    """Return the EasyBuild parameters that hide the module of an archived container, with a message at load."""
    if not container.archived:
        return {}
    own = {"hidden": True, "modloadmsg": "", **container.parameters}
    message = f"{template_safe(container.archive_message or '')}\n{own['modloadmsg']}".strip()
    return {"hidden": own["hidden"], "modloadmsg": AsItIs(message)}


def reasons(container: Container, groups: list[dict[str, Any]]) -> dict[Optional[str], list[str]]:
    """Return the comments of a record (`why`) by the parameter above which they are written; by None, the rest."""
    values = {name: value for group in groups for name, value in group.items()}
    comments: dict[Optional[str], list[str]] = {}
    for key, reason in {**container.site.why, **container.why}.items():
        if reason is None:
            continue
        named = [name for name in values if key in (name, WRITTEN_FROM.get(name))]
        entry = [name for name, value in values.items() if is_entry(key, value)]
        place = next(iter([*named, *entry]), None)
        if place is None and key not in container.why:
            # the site's reasons are for the easyconfigs that have the parameter
            continue
        comments.setdefault(place, []).append(reason if named else f"{key}: {reason}")
    return comments


def is_entry(name: str, value: Any) -> bool:
    """Return whether a value has an entry of this name: a key, or an item or line that begins with it."""
    if isinstance(value, str):
        return any(re.match(rf"\??{re.escape(name)}(?![\w.-])", line) for line in value.splitlines())
    return isinstance(value, (list, dict)) and any(
        is_entry(name, item) for item in ([*value, *value.values()] if isinstance(value, dict) else value)
    )


def driver_problem(container: Container) -> Optional[str]:
    """Return why the site's driver does not support the ROCm version of an image, or None (S001-17)."""
    supported, rocm = container.site.driver_rocm, container.components.get("rocm")
    if not (supported and rocm) or container.gpu_kind != "rocm":
        return None
    if container.site.supports_rocm(rocm):
        return None
    return (
        f"the GPU driver of {container.site.title} supports ROCm {supported[0]} to {supported[1]}; ROCm {rocm} of "
        "the image may fail or give wrong results"
    )


def moving_problem(container: Container) -> Optional[str]:
    """Return a message if the image of a container is only in a directory whose links move, else None (S001-02)."""
    image = container.moving_image()
    if not image:
        return None
    return (
        f"the image is only in a directory whose links move, {image} (now {os.path.realpath(image)}): use the "
        "file in a stable directory, or set 'moving: true'"
    )


def render(container: Container, header: Optional[str] = None) -> str:
    """Return the text of an easyconfig below a header. Raise CatalogError if it would have a credential (G-09)."""
    groups = parameter_groups(container)
    if not container.homepage:
        raise ContainerRecordError(
            container, "neither the record nor its family has a homepage: add one, EasyBuild requires it"
        )
    secrets = [text for values in (*groups, container.site.why, container.why) for text in Credentials.find(values)]
    if secrets:
        raise CatalogError(f"{container.module}: a credential is written out ({', '.join(secrets)}). {REMEDY}")
    texts = reasons(container, groups)
    if not container.sha256:
        texts.setdefault("sources", []).append(NO_SHA256)
    comments = {name: [line for text in some for line in comment_lines(text)] for name, some in texts.items()}
    prefix = container.site.doc_prefix
    doc = f"{prefix} {container.fill(container.doc)}" if prefix and container.doc else None
    return (
        environment("ebsif.render")
        .get_template("easyconfig.eb.j2")
        .render(
            groups=groups,
            doc=doc,
            literal=literal,
            comment=comment,
            comments=comments,
            header=header or header_of_site(container.site.name),
        )
    )


def comment(text: str) -> str:
    """Return any text as a one-line comment in Python."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", text).split())
    return line if line.startswith("#") else f"# {line}"


def comment_lines(text: str) -> list[str]:
    """Return any text as comments of limited length."""
    return [f"# {line}" for line in textwrap.wrap(comment(text).lstrip("# "), WIDTH - 2, break_on_hyphens=False)]


def literal(value: Any, indent: int = 0, used: int = 0) -> str:
    """Return a value as Python code in short lines; `indent` is that of its line, `used` the columns before it."""
    flat = literal_in_a_line(value)
    if isinstance(value, str) and "\n" in value and is_plain(value):
        # the first line follows the quotes, unless the text begins with a newline
        return f'"""{template_safe(value)}"""'
    if "\n" not in flat and used + len(flat) < WIDTH - 1:
        return flat
    if isinstance(value, str):
        return in_parts(template_safe(value), indent)
    if not isinstance(value, (list, dict)):
        return flat
    inner = " " * (indent + 4)
    if isinstance(value, dict):
        items = [
            f"{literal_in_a_line(key)}: {literal(item, indent + 4, indent + len(literal_in_a_line(key)) + 6)}"
            for key, item in value.items()
        ]
        opening, closing = "{", "}"
    else:
        items = [literal(item, indent + 4, indent + 4) for item in value]
        if len(items) == 1 and items[0].startswith('"""'):
            # a text of several lines begins at the bracket
            return f"[{items[0]}]"
        opening, closing = "[", "]"
    lines: list[str] = []
    for short, some in groupby(zip(are_short(value, items), items), key=itemgetter(0)):
        codes = [code for _, code in some]
        lines += filled(codes, WIDTH - indent - 4) if short else [f"{code}," for code in codes]
    return "\n".join([opening, *(inner + line for line in lines), " " * indent + closing])


def are_short(value: Union[list, dict], items: list[str]) -> list[bool]:
    """Return which items of a list or table, as code, can stand beside others: words and short values can."""
    if isinstance(value, dict):
        return [
            not isinstance(item, (list, dict)) and "\n" not in code and len(code) <= SHORT
            for item, code in zip(value.values(), items)
        ]
    # sentences and commands have lines of their own
    is_words = not any(
        isinstance(item, (list, dict)) or " " in str(item) or "\n" in code for item, code in zip(value, items)
    )
    return [is_words] * len(items)


def filled(items: Iterable[str], width: int) -> list[str]:
    """Return items with a comma after each, as many in a line as fit."""
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) + 2 > width:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{item},"
    return lines


def in_parts(text: str, indent: int) -> str:
    """Return a long text as Python code in several lines: one for each shell command, broken at blanks and commas."""
    inner = " " * (indent + 4)
    ends = [0, *(found.end() for found in COMMAND_ENDS.finditer(text)), len(text)]
    parts = [part for start, end in zip(ends, ends[1:]) for part in parts_of(text[start:end], WIDTH - indent - 12)]
    return "\n".join(["(", *(f"{inner}{part!r}" for part in parts or [""]), " " * indent + ")"])


def parts_of(text: str, width: int) -> list[str]:
    """Return a text in parts for lines of a width, which end after blanks, commas and colons if possible."""
    parts: list[str] = []
    while text:
        part = text[:width]
        # escape sequences take more columns
        while len(repr(part)) > width + 4:
            part = part[:-1]
        if len(part) < len(text):
            ends = next(
                filter(
                    None,
                    (
                        [found.end() for found in pattern.finditer(text[: len(part) + 2]) if found.end() <= len(part)]
                        for pattern in (CHAINS, BLANKS)
                    ),
                ),
                [len(part)],
            )
            part = part[: max(ends)]
        parts.append(part)
        text = text[len(part) :]
    return parts


def literal_in_a_line(value: Any) -> str:
    """Return a value as Python code in one line."""
    if isinstance(value, str):
        return repr(template_safe(value))
    if isinstance(value, dict):
        items = [f"{literal_in_a_line(key)}: {literal_in_a_line(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal_in_a_line, value)) + "]"
    return repr(value)


def template_safe(text: str) -> str:
    """Return a text in which everything that looks like a template of EasyBuild is escaped; other % are kept."""
    return str(text) if isinstance(text, AsItIs) else without_templates(text)


def is_plain(text: str) -> bool:
    """Return whether a text can be put between triple quotes unchanged."""
    return not re.search(r'[\\]|"""|"\Z|[^\n\x20-\x7e\u00a1-\u2027\u202a-\ud7ff]|[ ]\n', text)
