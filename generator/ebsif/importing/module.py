"""Importing easyconfigs: what their module does, from modextravars and modluafooter."""

import re

from ebsif.catalogue.fieldtypes import is_env_name, is_env_value

INSTALLATION = "%(installdir)s"
VENV = re.compile(r"/user-software/venv/([\w.+-]+)")
BINDS = re.compile(r"(SINGULARITY|APPTAINER)_BIND(PATH)?")
PREFIX = re.compile(r"(SINGULARITY|APPTAINER)ENV_")

# Commands that activate what is active already; scripts that run them go on working.
ACTIVATING = re.compile(r"true|:|(?:source|\.) (?:/runscripts/init-conda-venv|/user-software/venv/[^/\s]+/bin/activate"
                        r"|(?P<root>/\S+)/bin/activate (?P<env>[\w.+-]+))")

# Lua: a text in quotes, or in long brackets; a call of a function with texts.
STRING = re.compile(r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\[(=*)\[.*?\]\1\])""", re.DOTALL)
NAME = re.compile(r"\s*(\w+)\s*\(\s*")


class ModuleTexts:
    """
    Reads what a module sets.

    Parameters
    ----------
    values : dict
        The parameters of the easyconfig.
    found : Imported
        Takes what is found.
    source : Source
        Where it is.
    site : Site
        Whose binds and variables are not repeated.
    """

    def __init__(self, values, found, source, site):
        """Nothing is read yet."""
        self.values, self.found, self.source, self.site = values, found, source, site
        self.record = found.record
        self.binds = []

    def read(self):
        """Read both parameters, and those of our own easyblocks."""
        for bind in self.values.get("optional_binds") or []:
            self.read_binds(bind, self.source.of("optional_binds"))
        for name, value in (self.values.get("container_env") or {}).items():
            if self.site.container_env.get(name) != value:
                self.found.put("container_env", name, str(value), f"variable {name} = {value}")
        self.read_call("conflict", self.values.get("conflicts") or [], 1)
        for name, value in (self.values.get("modextravars") or {}).items():
            line = self.source.having(f"'{name}'", self.source.of("modextravars"))
            self.read_variable(name, str(value), line)
        self.read_footer()
        gained = [bind for bind in (*self.site.binds.required, *self.site.binds.optional) if bind not in self.binds]
        if gained:
            self.found.leave(1, f"binds of the site, which this easyconfig doesn't have: {', '.join(gained)}")

    def read_variable(self, name, value, line):
        """Take a variable; its value is written as in a Lua text."""
        upper, bare, leave = self.values["name"].upper(), PREFIX.sub("", name), self.found.leave
        own = {"SIF": f"/{self.record['file']}", "RUNSCRIPTS": "/runscripts", "CONTAINERROOT": ""}
        own.update({f"{key}{upper}": own[key] for key in ("SIF", "RUNSCRIPTS")})
        told = f"variable {name} = {value}"
        if name in own and value == INSTALLATION + own[name]:
            self.found.recognised.append(f"variable {name}")
        elif name in own:
            leave(line, f"{told}: the module has another value")
        elif BINDS.fullmatch(name):
            self.read_binds(value, line)
        elif bare != name and self.read_activation(bare, unescaped(value), line):
            self.found.recognised.append(told)
        elif self.site.network_env.get(name) == value or (
                bare != name and self.site.container_env.get(bare) == unescaped(value)):
            self.found.recognised.append(f"{told}, which is the site's")
        elif INSTALLATION in value or "%(" in value:
            leave(line, f"{told}: a record can't name the installation (parameters: modluafooter can)")
        else:
            text = value if bare == name else unescaped(value)
            try:
                is_env_name(bare)
                is_env_value(text)
            except ValueError as error:
                leave(line, f"{told}: {error}")
                return
            self.found.put("variables" if bare == name else "container_env", bare, text, told)

    def read_activation(self, name, value, line):
        """Take a variable that activation sets, which follows from how Python is made ready; False for others."""
        record, of_venv = self.record, VENV.fullmatch(value)
        if name == "PREPEND_PATH":
            self.read_search_path(value, line)
        elif name == "VIRTUAL_ENV" and of_venv:
            record["venv_name"] = of_venv.group(1)
            record.setdefault("init", "image")
        elif name == "CONDA_DEFAULT_ENV":
            record.update(init="conda-injected", conda_env=value)
        elif name == "CONDA_PREFIX" and re.fullmatch(r"/.*/envs/[\w.+-]+", value):
            root, _, env = value.rpartition("/envs/")
            record.update(init="conda-injected", conda_root=root, conda_env=env)
        elif name in ("CONDA_EXE", "CONDA_PYTHON_EXE") and re.fullmatch(r"/.*/bin/(conda|python)", value):
            record.update(init="conda-injected", conda_root=value.rpartition("/bin/")[0])
        elif name in ("CONDA_SHLVL", "CONDA_PROMPT_MODIFIER"):
            pass
        elif name in ("WITH_CONDA", "WITH_VENV", "WITH_CONDA_VENV"):
            return take_activation(value, record)
        else:
            return False
        return True

    def read_search_path(self, value, line):
        """Name directories of one's own on PATH in the container."""
        for part in filter(None, value.split(":")):
            if not re.fullmatch(r"/runscripts|/user-software/venv/[^/]+/bin|/.*/(envs/[^/]+/bin|condabin)", part):
                self.found.leave(line, f"directory {part} in PREPEND_PATH, the search path in the container")

    def read_binds(self, value, line):
        """Take the binds that the site does not have."""
        known = {*self.site.binds.required, *self.site.binds.optional}
        for bind in filter(None, re.split(r"(?<!\\),", value)):
            part, _, target = bind.partition(":")
            bind = part if target in ("", part) else bind
            if bind in self.binds:
                continue
            self.binds.append(bind)
            if bind in known or re.match(re.escape(INSTALLATION) + r"/(runscripts:/runscripts|user-software)", bind):
                self.found.recognised.append(f"bind {bind}")
            elif "%(" in bind:
                self.found.leave(self.source.having(bind, line), f"bind {bind}: a record can't name the installation")
            else:
                self.record.setdefault("binds", []).append(bind)
                self.found.data.append(f"bind {bind}")

    def read_footer(self):
        """Take statements of Lua that a record has fields for; the others go into the easyconfig as they are."""
        text, kept, depth, position = self.values.get("modluafooter") or "", [], 0, 0
        while position < len(text):
            end = text.find("\n", position) + 1 or len(text)
            line = text[position:end]
            call = call_at(text, position) if depth == 0 else None
            if call and self.read_call(*call[:2], self.source.having(line, self.source.of("modluafooter"))):
                position = call[2]
                continue
            if call:
                # as it is, with all its lines
                end = text.find("\n", call[2] - 1) + 1 or len(text)
                line = text[position:end]
            else:
                bare = re.sub(r"--.*", "", STRING.sub("''", line))
                depth += len(re.findall(r"\b(?:if|for|while|function|repeat)\b", bare))
                depth -= len(re.findall(r"\b(?:end|until)\b", bare))
            kept.append(line)
            position = end
        if re.sub(r"(?m)^\s*--(?!\[).*$", "", "".join(kept)).strip():
            self.found.put("parameters", "modluafooter", "".join(kept).strip() + "\n", "modluafooter, as it is: "
                           + "; ".join(line.strip() for line in kept if line.strip())[:200])

    def read_call(self, name, arguments, line):
        """Take a call of a function of Lmod, or of LUMI's for containers; False if there is no field for it."""
        if name == "conflict":
            for module in arguments:
                if module in self.site.conflicts:
                    self.found.recognised.append(f"conflict {module}, which is the site's")
                else:
                    self.record.setdefault("conflicts", []).append(module)
                    self.found.data.append(f"conflict {module}")
        elif name in ("setenv", "pushenv") and len(arguments) == 2 and "\n" not in arguments[1]:
            self.read_variable(*arguments, line)
        elif name in ("prepend_path", "append_path") and len(arguments) > 1 and BINDS.fullmatch(arguments[0]):
            self.read_binds(arguments[1], line)
        elif name == "create_container_vars" and len(arguments) in (3, 4):
            self.read_container_vars(arguments, line)
        else:
            return False
        return True

    def read_container_vars(self, arguments, line):
        """Take the call by which modules of LUMI set SIF, and binds if it has a fourth argument."""
        image, name, place = arguments[:3]
        self.found.recognised.append("create_container_vars")
        if image != self.record["file"] or place != INSTALLATION:
            self.found.leave(line, f"create_container_vars: another image or place, {image}, {place}")
        if name.upper() != self.values["name"].upper():
            self.found.leave(line, f"create_container_vars: the name {name}, so that SIF{name.upper()} is set")
        for binds in arguments[3:]:
            self.read_binds(binds, line)


def call_at(text, position):
    """Return name, texts and end of a call of Lua with texts as arguments, None if there is none at this place."""
    match = NAME.match(text, position)
    if not match:
        return None
    name, arguments, position = match.group(1), [], match.end()
    while True:
        string = STRING.match(text, position)
        if not string:
            return None
        arguments.append(string_value(string.group()))
        end = re.compile(r"\s*(,\s*|\)[ \t]*;?[ \t]*(?:--[^\n]*)?(?:\n|\Z))").match(text, string.end())
        if not end:
            return None
        position = end.end()
        if end.group(1).startswith(")"):
            return name, arguments, position


def string_value(text):
    """Return what is in a text of Lua, escapes included."""
    return re.sub(r"\A\[(=*)\[\n?(.*)\]\1\]\Z", r"\2", text, flags=re.DOTALL) if text[0] == "[" else text[1:-1]


def unescaped(text):
    """Return a text of Lua with its escapes resolved, which EasyBuild leaves to Lua."""
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match.group(1), match.group(1)), text)


def take_activation(command, record):
    """Put the Conda environment that a command activates into a record; False if this is no such command."""
    known = ACTIVATING.fullmatch(command)
    if known and known["root"]:
        record.setdefault("conda_root", known["root"])
        record.setdefault("conda_env", known["env"])
    return bool(known)
