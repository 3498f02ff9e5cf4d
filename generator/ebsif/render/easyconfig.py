"""Easyconfigs: a container of the catalogue as the text that EasyBuild reads."""

import os
import re
import textwrap

from ebsif.catalogue.container import CatalogueError, RecordError
from ebsif.catalogue.families import as_parameter
from ebsif.templating import environment

# EasyBuild's line length.
WIDTH = 120


HEADER = "# Rendered by ebsif from the catalogue of the site {site}: change it there, or copy it (eb --copy-ec)."


# Begins the instructions for who has no image; then its directories on the site follow.
WHERE = "The image is on {}, in one of"


class AsItIs(str):
    """A text in which EasyBuild's templates are in force."""

    __slots__ = ()


def as_it_is(value):
    """Return a value whose texts, at any depth, are written as they are."""
    if isinstance(value, dict):
        return {key: as_it_is(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_it_is(item) for item in value]
    return AsItIs(value) if isinstance(value, str) else value


def parameters(container):
    """Return the parameters of an easyconfig that say something (dict)."""
    return {name: value for group in parameter_groups(container) for name, value in group.items()}


def parameter_groups(container):
    """
    Return the parameters of an easyconfig that say something: {name: value}, in groups that belong together.

    Parameters
    ----------
    container : Container
        What to install.

    Returns
    -------
    list of dict
        Groups, in the order in which a person likes to read them.
    """
    site, binds = container.site, container.all_binds
    venv = bool(container.venv)
    images = container.images or site.images
    gpu = container.gpu_kind
    if container.requirements and not venv:
        raise RecordError(container, "requirements are installed into a venv: 'venv: true', or no requirements")
    problem = driver_problem(container)
    groups = [
        {"easyblock": "ContainerVenv" if venv else "ContainerInstall"},
        {"name": container.name, "version": container.version, "versionsuffix": container.versionsuffix},
        {"homepage": container.homepage, "description": description(container), "usage": container.usage},
        {"sources": [container.file_name], "checksums": [container.sha256] if container.sha256 else None,
         "download_instructions": instructions(container), "definition_files": container.definition_files},
        {"image": container.image if container.image != "own" else None,
         "image_root": images.root if images.directories else None,
         "image_root_variable": images.root_variable if images.directories else None,
         "image_dirs": [container.fill(directory.path) for directory in images.directories]},
        {"init": container.init if container.init != "image" else None,
         "conda_root": container.conda_root,
         "conda_env": container.conda_env if container.conda_env != container.name.lower() else None,
         "entry_point": container.entry_point,
         "venv_name": container.venv_name if venv and container.venv_name != container.name.lower() else None,
         "image_packages": container.image_packages if venv else None},
        {"gpu": gpu if gpu != "none" else None,
         "gpu_option": False if gpu != "none" and not container.uses_gpu_option else None,
         "gpu_visibility": container.gpu_visibility or site.gpu_visibility if gpu != "none" else None,
         "gpu_mpi_library": site.gpu_mpi_library if gpu != "none" else None,
         "scheduler": site.scheduler.kind if site.scheduler.kind != "slurm" else None,
         "network_env": {**site.network_env, **container.network_env}},
        {"binds": binds.required, "optional_binds": binds.optional, "library_binds": binds.libraries,
         "bind_file": binds.file, "masked_paths": container.masked_paths},
        {"container_env": {**site.container_env, **container.container_env}, "modextravars": container.variables,
         "conflicts": list(dict.fromkeys([*site.conflicts, *container.conflicts])),
         "one_container": site.one_container if site.one_container != "refuse" else None,
         "listed_packages": site.listed_packages if site.listed_packages != "all" else None},
        {"wrappers": wrappers(container), "script_names": container.script_names},
        {"requirements": as_parameter(container.requirements) if venv else None},
        {"support_level": container.support or site.support,
         "warnings": list(filter(None, dict.fromkeys([*container.warnings, problem, container.archive_message])))},
        {**archive(container), **as_it_is(container.parameters)},
        {"aliases": container.aliases},
        {"moduleclass": container.moduleclass or site.moduleclass},
    ]
    groups = [{key: value for key, value in group.items() if value not in (None, "", [], {})} for group in groups]
    return [group for group in groups if group]


def description(container):
    """Return what a container is, with its components (str)."""
    text = container.fill(container.description or f"{container.name} in a container.").strip()
    # what placeholders stand for may be longer than these
    first, *others = text.splitlines()
    if len(f'description = """{first}') >= WIDTH or max(map(len, others), default=0) > WIDTH:
        text = textwrap.fill(text, WIDTH - 20, break_long_words=False, break_on_hyphens=False)
    inside = ", ".join(f"{name} {version}" for name, version in container.components.items())
    if inside:
        text += "\n" + textwrap.fill(f"In the image: {inside}.", WIDTH, break_long_words=False, break_on_hyphens=False)
    return text


def instructions(container):
    """
    Return what EasyBuild says where it does not find the image (str), which is where the site has it.

    None if that is not known, or the record has instructions or addresses of its own.
    """
    paths = [str(path.parent) for _, path in container.image_places]
    if not paths or {"download_instructions", "source_urls"} & container.parameters.keys():
        return None
    return "\n".join([WHERE.format(container.site.description), *paths])


def wrappers(container):
    """Return the programs that become commands: 'all', or a list of names, with placeholders filled."""
    if not isinstance(container.wrappers, list):
        return container.wrappers
    return [container.fill(name) for name in container.wrappers]


def archive(container):
    """Return the parameters of EasyBuild that hide the module of an archived container, and say so when it's loaded."""
    return {"hidden": True, "modloadmsg": container.archive_message} if container.archived else {}


def driver_problem(container):
    """Return what is wrong with the ROCm of an image on a site, None if nothing is (S001-17)."""
    supported, rocm = container.site.driver_rocm, container.components.get("rocm")
    if not (supported and rocm) or container.gpu_kind != "rocm":
        return None
    if in_numbers(supported[0]) <= in_numbers(rocm) <= in_numbers(supported[1], 10**6):
        return None
    return (f"ROCm {rocm} of this image is outside the range that the driver of {container.site.name} supports "
            f"({supported[0]} to {supported[1]}): it may fail or give wrong results")


def moving_problem(container):
    """Return what is wrong with where the image of a container is (str), None if nothing is (S001-02)."""
    image = container.moving_image()
    return image and (f"the image is only in a directory whose links move, {image} (now {os.path.realpath(image)}): "
                      "name the file in a stable one, or say 'moving: true'")


def in_numbers(version, missing=0):
    """Return a version as three numbers that can be compared (tuple of int)."""
    numbers = [int(number) for number in re.findall(r"\d+", version)][:3]
    return tuple(numbers + [missing] * (3 - len(numbers)))


def render(container, header=None):
    """
    Return the text of the easyconfig of a container.

    Parameters
    ----------
    container : Container
        What to install.
    header : str, optional
        The first line, a comment; by default it says where the text comes from.

    Returns
    -------
    str
        Ends in one newline. The same container gives the same text.

    Raises
    ------
    CatalogueError
        If it would hold a credential (G-09).
    """
    from easybuild.easyblocks.generic.container.credentials import REMEDY, Credentials

    groups = parameter_groups(container)
    if not container.homepage:
        raise RecordError(container, "homepage is missing, in record and family: EasyBuild wants one")
    secrets = [text for group in groups for text in Credentials.found(group)]
    if secrets:
        raise CatalogueError(f"{container.module}: a credential is written out ({', '.join(secrets)}). {REMEDY}")
    prefix = container.site.doc_prefix
    doc = f"{prefix} {container.fill(container.doc)}" if prefix and container.doc else None
    return environment("ebsif.render").get_template("easyconfig.eb.j2").render(
        groups=groups, doc=doc, literal=literal, comment=comment,
        header=header or HEADER.format(site=container.site.name))


def comment(text):
    """Return a text as a comment of Python: one line, whatever is in it."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", text).split())
    return line if line.startswith("#") else f"# {line}"


def literal(value, indent=0, used=0):
    """
    Return a value as Python that EasyBuild reads back as the same value, in lines that are not too long.

    Parameters
    ----------
    value : str, bool, None, list or dict
        The value.
    indent : int
        Columns of the line it is in.
    used : int
        Columns that the line has before it.
    """
    flat = literal_in_a_line(value)
    if isinstance(value, str) and "\n" in value and is_plain(value):
        # a block may begin with a newline of its own; the first line stays beside the quotes otherwise
        return f'"""{template_safe(value)}"""'
    if "\n" not in flat and used + len(flat) < WIDTH - 1:
        return flat
    if isinstance(value, str):
        return in_parts(template_safe(value), indent)
    if not isinstance(value, (list, dict)):
        return flat
    inner = " " * (indent + 4)
    if isinstance(value, dict):
        items = [f"{literal_in_a_line(key)}: {literal(item, indent + 4, indent + len(literal_in_a_line(key)) + 6)}"
                 for key, item in value.items()]
        opening, closing = "{", "}"
    else:
        items = [literal(item, indent + 4, indent + 4) for item in value]
        opening, closing = "[", "]"
    return "\n".join([opening, *(f"{inner}{item}," for item in items), " " * indent + closing])


def in_parts(text, indent):
    """Return a long text as Python in several lines, cut after blanks and colons where there are any."""
    inner = " " * (indent + 4)
    parts, width = [], WIDTH - indent - 12
    while text:
        part = text[:width]
        # what is written with backslashes takes more columns
        while len(repr(part)) > width + 4:
            part = part[:-1]
        if len(part) < len(text):
            end = max(part.rfind(" "), part.rfind(":"))
            part = part[: end + 1] if end > 0 else part
        parts.append(part)
        text = text[len(part) :]
    if len(parts) == 1:
        return quoted(parts[0])
    return "\n".join(["(", *(f"{inner}{quoted(part)}" for part in parts), " " * indent + ")"])


def literal_in_a_line(value):
    """Return a value as Python in one line."""
    if isinstance(value, str):
        return quoted(template_safe(value))
    if isinstance(value, dict):
        items = [f"{literal_in_a_line(key)}: {literal_in_a_line(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal_in_a_line, value)) + "]"
    return repr(value)


def quoted(text):
    """Return a text as Python in single quotes, unless it holds some and no double quotes."""
    return repr(text)


def template_safe(text):
    """Return a text with what EasyBuild would take for one of its templates escaped; a lone % stays as it is."""
    return str(text) if isinstance(text, AsItIs) else re.sub(r"%(?=%*\()", "%%", text)


def is_plain(text):
    """Tell whether a text can stand between triple quotes as it is."""
    return not re.search(r'[\\]|"""|"\Z|[^\n\x20-\x7e\u00a1-\u2027\u202a-\ud7ff]|[ ]\n', text)
