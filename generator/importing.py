"""Importing easyconfigs of the style in use today: programs of shell commands become records of the catalogue.

They are read by EasyBuild's own parser. Everything in one of them ends in one of three lists: what the family and the
easyblock do anyway, what became data of the record, and what was not understood and needs a person.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ebsif import adding, catalogue, eb
from ebsif.errors import EbsifError
from packaging.utils import canonicalize_name

# Parameters that say nothing of the container: the easyblock does the same in its own way.
OURS = ("easyblock", "toolchain", "skipsteps", "files_to_copy", "sanity_check_paths", "sanity_check_commands", "skip",
        "start_dir", "unpack_options", "buildininstalldir")
TAKEN = ("name", "version", "versionsuffix", "homepage", "description", "sources", "moduleclass", "modextravars",
         "modluafooter", "postinstallcmds", "checksums")

# Scripts and commands that every container has, and words of commands that only prepare for them.
SCRIPTS = {"start-shell", "make-squashfs", "unmake-squashfs", "list-packages", "conda-python-simple",
           "conda-python-distributed", "get-master", "init-conda-venv"}
OLD_NAMES = {"python-conda-simple": "conda-python-simple"}
PREPARING = ("mkdir", "chmod", "cd", "rm", "touch", "echo", "popd", "pushd", "set", "true", "export")

# Variables that activation would set, which follow from how Python is made ready.
ACTIVATION = re.compile(r"(CONDA_\w+|VIRTUAL_ENV|PREPEND_PATH|WITH_CONDA|WITH_VENV|WITH_CONDA_VENV)\Z")

# Directories on PATH that follow from the same.
KNOWN_PATH = re.compile(r"/runscripts\Z|/user-software/venv/[^/]+/bin\Z|.*/(envs/[^/]+/bin|condabin)\Z")

INSTALLATION = "%(installdir)s"


class ImportingError(EbsifError):
    """An easyconfig can't be imported; the message says why."""


@dataclass
class Imported:
    """What became of an easyconfig."""

    path: Path
    name: str = ""
    proposal: object = None
    recognised: list = field(default_factory=list)
    data: list = field(default_factory=list)
    not_understood: list = field(default_factory=list)


def read(path, documents, site):
    """
    Return what an easyconfig becomes (Imported).

    Parameters
    ----------
    path : Path
        The easyconfig. EasyBuild's parser runs it, as eb does.
    documents : list of Document
        The files of the catalogue.
    site : Site
        Whose binds and variables are not repeated.

    Raises
    ------
    ImportingError
        If it is no easyconfig with an image.
    """
    values = parsed(path)
    found = Imported(path, name=values["name"])
    record = {}
    read_sources(values, found, record)
    read_variables(values, found, record, site)
    read_commands(values, found, record)
    components = read_local(values, found)
    for name in sorted(values):
        if name in OURS:
            found.recognised.append(f"{name}: the easyblock does that in its own way")
        elif name not in TAKEN and not name.startswith("local_"):
            found.not_understood.append(f"parameter {name} = {shortened(values[name])}")
    found.proposal = with_family(values, record, components, documents, found)
    return found


def parsed(path):
    """Return the parameters and variables of an easyconfig (dict), resolved but for EasyBuild's templates."""
    from easybuild.framework.easyconfig.parser import EasyConfigParser
    from easybuild.tools.build_log import EasyBuildError

    eb.session()
    try:
        values = EasyConfigParser(str(path)).get_config_dict()
    except EasyBuildError as error:
        raise ImportingError(f"{path}: {str(error).strip(chr(39))}") from None
    missing = [name for name in ("name", "version", "sources") if not values.get(name)]
    if missing:
        raise ImportingError(f"{path}: {', '.join(missing)} is missing: this is no easyconfig of a container")
    return {name: templates_filled(value, values) for name, value in values.items()}


def templates_filled(value, values):
    """Return a value with EasyBuild's templates for name and version filled; that of the installation stays."""
    if isinstance(value, str):
        for name in ("name", "version", "versionsuffix"):
            value = value.replace(f"%({name})s", str(values.get(name, "")))
        return value
    if isinstance(value, (list, tuple)):
        return [templates_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {key: templates_filled(item, values) for key, item in value.items()}
    return value


def read_sources(values, found, record):
    """Take the image and the definition file."""
    names = eb.source_names(values["sources"])
    images = [Path(name).name for name in names if name.endswith((".sif", ".simg"))]
    if not images:
        raise ImportingError(f"{found.path}: none of the sources is an image (*.sif)")
    record["file"] = images[0]
    others = [Path(name).name for name in names if Path(name).name not in images[:1]]
    if others:
        record["definition_files"] = others
    checksums = values.get("checksums") or []
    if checksums and re.fullmatch("[0-9a-f]{64}", str(checksums[0])):
        record["sha256"] = checksums[0]
        found.data.append(f"checksum {checksums[0]}")
    elif any(checksums):
        found.not_understood.append(f"parameter checksums = {shortened(checksums)}")
    found.data += [f"image {images[0]}", *(f"definition file {name}" for name in others)]


def read_variables(values, found, record, site):
    """Take binds and variables; what follows from the family or the site is not repeated."""
    variables = dict(values.get("modextravars") or {})
    for line in (values.get("modluafooter") or "").splitlines():
        setting = re.match(r"""\s*setenv\(\s*["'](\w+)["']\s*,\s*["'](.*)["']\s*\)\s*$""", line)
        if setting:
            variables[setting.group(1)] = setting.group(2)
        elif line.strip() and not line.strip().startswith("--"):
            found.not_understood.append(f"modluafooter: {line.strip()}")
    own = (f"SIF{values['name'].upper()}", f"RUNSCRIPTS{values['name'].upper()}", "SIF", "RUNSCRIPTS", "CONTAINERROOT")
    for name, value in variables.items():
        bare = re.sub(r"^(SINGULARITY|APPTAINER)ENV_", "", name)
        if name in own:
            found.recognised.append(f"variable {name}")
        elif re.fullmatch(r"(SINGULARITY|APPTAINER)_BIND(PATH)?", name):
            read_binds(value, found, record, site)
        elif bare != name and ACTIVATION.match(bare):
            found.recognised.append(f"variable {name}")
            if bare == "CONDA_DEFAULT_ENV":
                record["conda_env"] = value
            if bare == "VIRTUAL_ENV":
                record.setdefault("init", "image")
            if bare.startswith("CONDA_"):
                record["init"] = "conda-injected"
        elif site.network_env.get(name) == value:
            found.recognised.append(f"variable {name}, which is the site's")
        else:
            kind = "variables" if bare == name else "container_env"
            record.setdefault(kind, {})[bare] = value
            found.data.append(f"variable {name} = {value}")
        if bare == "PREPEND_PATH":
            others = [part for part in value.split(":") if part and not KNOWN_PATH.match(part)]
            found.not_understood += [f"directory {part} in {name}" for part in others]


def read_binds(value, found, record, site):
    """Take the binds that the site does not have."""
    known = {*site.binds.required, *site.binds.optional, f"{INSTALLATION}/runscripts:/runscripts"}
    for bind in filter(None, value.split(",")):
        source, _, target = bind.partition(":")
        bind = source if target in ("", source) else bind
        if bind in known or "user-software" in bind:
            found.recognised.append(f"bind {bind}")
        else:
            record.setdefault("binds", []).append(bind)
            found.data.append(f"bind {bind}")


def read_commands(values, found, record):
    """Take what the shell commands do: scripts that every container has, wrappers, the venv, requirements."""
    for command in values.get("postinstallcmds") or []:
        # what goes into files is told by their names
        text = re.sub(r"<<-?\s*[\"']?(\w+)[\"']?\s*(.*?)\n.*?\n\1(?=\n|\Z)", r"<<\1 \2", command, flags=re.DOTALL)
        # separators in quotes belong to a word
        for part in re.findall(r"""(?:'[^']*'|"[^"]*"|\\.|(?<!&)&(?!&)|(?<!\|)\|(?!\|)|[^'"\\&|;\n])+""", text):
            if part.strip():
                read_command(part.strip(), values, found, record)


def read_command(part, values, found, record):
    """Take one shell command."""
    script = re.search(r">\s*[\"']?" + re.escape(INSTALLATION) + r"/(bin|runscripts)/([\w.+-]+)", part)
    link = re.match(r"ln\s+(?:-\w+\s+)*(\S+)\s+(?:" + re.escape(INSTALLATION) + r"/)?(?:bin/)?([\w.+-]+)\Z", part)
    if script and script.group(2) in SCRIPTS:
        found.recognised.append(f"{script.group(1)}/{script.group(2)}")
    elif script and script.group(2) in OLD_NAMES:
        names = record.setdefault("script_names", {})
        names[f"runscripts/{script.group(2)}"] = f"runscripts/{OLD_NAMES[script.group(2)]}"
        found.data.append(f"old name {script.group(2)}")
    elif script and script.group(1) == "bin":
        record.setdefault("wrappers", []).append(script.group(2))
        found.data.append(f"wrapper {script.group(2)}")
    elif link:
        record.setdefault("wrappers", []).append(link.group(2))
        found.data.append(f"wrapper {link.group(2)}")
    elif re.search(r"-m venv\b", part):
        record["venv"] = True
        found.recognised.append("the venv")
    elif re.search(r"\bpip3? install\b|\bmksquashfs\b|make-squashfs", part):
        read_requirements(part, values, found, record)
    elif part.split()[0].rsplit("/", 1)[-1] in PREPARING or part.startswith(("#", "EOF")):
        found.recognised.append(f"command {shortened(part)}")
    else:
        found.not_understood.append(f"command {shortened(part)}")


def read_requirements(part, values, found, record):
    """Take the requirements that a command installs: those of a local variable, or words of the command."""
    found.recognised.append(f"command {shortened(part)}")
    block = next((value for name, value in values.items()
                  if name.startswith("local_") and "requirements" in name and isinstance(value, str)), None)
    if "pip" not in part.split("mksquashfs")[0] or record.get("requirements"):
        return
    lines = [line.strip() for line in (block or "").splitlines() if line.strip()]
    if not lines:
        lines = [word for word in part.split("install", 1)[-1].split() if not word.startswith(("-", "/", ">", "%"))]
    if lines:
        record["requirements"] = lines
        found.data.append(f"requirements {', '.join(lines)}")
    else:
        found.not_understood.append(f"requirements of: {shortened(part)}")


def read_local(values, found):
    """Return versions of components from variables like local_c_rocm_version (dict)."""
    components = {}
    places = ("postinstallcmds", "modextravars", "description", "sources")
    used = "\n".join(texts_in([values.get(name) for name in places]))
    for name, value in values.items():
        version = re.fullmatch(r"local_c_(\w+?)_version", name)
        if version and isinstance(value, str):
            components[canonicalize_name(version.group(1))] = value
            found.data.append(f"component {version.group(1)} {value}")
        elif name.startswith("local_"):
            if isinstance(value, str) and value and value in used or "requirements" in name:
                found.recognised.append(f"variable {name}, used elsewhere")
            else:
                found.not_understood.append(f"variable {name} = {shortened(value)}")
    return components


def texts_in(value):
    """Return the texts in a value, at any depth (list of str)."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


def with_family(values, record, components, documents, found):
    """Return the proposal: of the family whose images are named like this one, as far as there is one."""
    init, venv = record.pop("init", "conda-manual"), bool(record.get("venv") or "wrappers" in record)
    best = None
    for document in documents:
        if document.name != values["name"]:
            continue
        for family in document.families:
            defaults = catalogue.family_values(document, family)
            fields = adding.fields_in(defaults["file"] or "", record["file"])
            binds = [] if not defaults["binds"] else defaults["binds"].optional
            used = any(one.family == family for one in document.containers)
            score = (used, (defaults["init"] or "image") == init, bool(defaults["venv"]) == venv,
                     sorted(binds) == sorted(record.get("binds", [])))
            if best is None or score > best[0]:
                best = (score, family, defaults, fields)
    if best is None:
        return begun(values, record, components, init)
    _, family, defaults, fields = best
    if fields is None:
        # named in another way than the family: what can be told for sure
        fields = {key: match.group(1) for key, match in (
            (key, re.search(rf"-{key}-(\d[\d.]*\d)", record["file"])) for key in ("rocm", "python")) if match}
        fields["hash"] = (re.search(r"dockerhash-(\w+)\.sif\Z", record["file"]) or [None, "none"])[1]
    result = {"family": family, "version": values["version"]}
    date = re.search(r"(\d{8})\Z", values.get("versionsuffix", ""))
    if date:
        result["date"] = date.group(1)
    for key in ("hash", "variant"):
        if key in fields:
            result[key] = fields[key]
    python = fields.get("python")
    if python and python != defaults["python"]:
        result["python"] = python
    inside = {key: value for key, value in fields.items()
              if key not in ("hash", "variant", "version", "python", "date", "label")}
    result["components"] = {**inside, **components}
    found.recognised += [f"family {family}", *(f"parameter {name}, which is the family's or the site's" for name in (
        "homepage", "description", "moduleclass") if values.get(name))]
    return proposal_of(values, record, result, defaults)


def proposal_of(values, record, result, defaults):
    """Return the proposal of a known family: of the record only what the family does not say."""
    known = [] if not defaults["binds"] else defaults["binds"].optional
    binds = [bind for bind in record.get("binds", []) if bind not in known]
    if binds:
        result["binds"] = {"optional": binds}
    for key in ("definition_files", "requirements", "wrappers", "container_env", "variables", "script_names",
                "conda_env", "sha256"):
        value = record.get(key)
        if key == "wrappers" and value:
            python = result.get("python") or defaults["python"] or ""
            ours = [name.replace("{python}", python) for name in defaults[key] or []]
            value = None if set(value) <= set(ours) else value
        if value and value != defaults[key]:
            result[key] = value
    # names have to come out as they were
    naming = {key: value for key, value in result.items() if key != "binds"}
    made = catalogue.Container(values["name"], catalogue.join(defaults, naming), None, Path(), 0)
    for key, wanted, now in (("file", record["file"], lambda: made.file_name),
                             ("suffix", values.get("versionsuffix", ""), lambda: made.versionsuffix)):
        try:
            same = now() == wanted
        except EbsifError:
            same = False
        if not same:
            result[key] = wanted
    return adding.Proposal(values["name"], result["family"], result)


def begun(values, record, components, init):
    """Return the proposal with a family of its own."""
    family = {"file": record.pop("file"), "init": init, "homepage": values.get("homepage") or "https://apptainer.org/"}
    family["suffix"] = values.get("versionsuffix", "")
    result = {"family": values["name"].lower(), "version": values["version"], "components": components}
    binds = record.pop("binds", [])
    if binds:
        result["binds"] = {"optional": binds}
    result.update({key: value for key, value in record.items() if value})
    result = {key: value for key, value in result.items() if value}
    return adding.Proposal(values["name"], values["name"].lower(), result, new_family=family)


def shortened(value):
    """Return the beginning of a value, in one line (str)."""
    text = " ".join(str(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."
