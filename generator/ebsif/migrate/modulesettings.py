"""Read the settings of an easyconfig's module: modextravars, modluafooter and parameters of our easyblocks."""

import re

from easybuild.easyblocks.generic.container.tables import INIT_CONDA_INJECTED, INIT_IMAGE

from ebsif.catalogue.fieldtypes import is_env_name, is_env_value
from ebsif.migrate.reader import INSTALLATION, OWN_BINDS, Reader, same_path_twice, shortened

VENV = re.compile(r"/user-software/venv/([\w.+-]+)")
BINDS = re.compile(r"(SINGULARITY|APPTAINER)_BIND(PATH)?")
PREFIX = re.compile(r"(SINGULARITY|APPTAINER)ENV_")

# Commands that activate an environment that is now always active; scripts can still run them.
ACTIVATING = re.compile(r"true|:|(?:source|\.) (?:/runscripts/init-conda-venv|/user-software/venv/[^/\s]+/bin/activate"
                        r"|(?P<root>/\S+)/bin/activate (?P<env>[\w.+-]+))")

# Lua: a string in quotes or long brackets; the beginning of a function call.
STRING = re.compile(r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\[(=*)\[.*?\]\1\])""", re.DOTALL)
NAME = re.compile(r"\s*(\w+)\s*\(\s*")


class ModuleSettings(Reader):
    """Reads what the module sets."""

    def __init__(self, *easyconfig):
        """Start without binds."""
        super().__init__(*easyconfig)
        self.binds = []
        # the Lua of modluafooter that records have no field for
        self.kept = ""

    def read(self):
        """Read the parameters of our easyblocks, then modextravars and modluafooter."""
        self.read_required_binds()
        for bind in self.values.get("optional_binds") or []:
            self.read_binds(bind, self.source.of("binds"))
        for name, value in (self.values.get("container_env") or {}).items():
            if self.site.container_env.get(name, "") != value:
                text = None if value is None else str(value)
                self.found.put("container_env", name, text, f"variable {name} = {shortened(value)}")
        self.read_call("conflict", self.values.get("conflicts") or [], 1)
        for name, value in (self.values.get("modextravars") or {}).items():
            line = self.source.having(f"'{name}'", self.source.of("modextravars"))
            if isinstance(value, dict) and value.get("resolve_env_vars") is False:
                self.found.put("variables", name, {"text": value["value"]}, f"variable {name}")
            else:
                self.read_variable(name, str(value), line)
        self.read_footer()
        # Lua that joins binds isn't evaluated, but it names them
        words = re.split(r"""["',\[\]\s]+""", self.kept) if BINDS.search(self.kept) else []
        named = set(map(same_path_twice, words))
        gained = [bind for bind in (*self.site.binds.required, *self.site.binds.optional)
                  if bind not in self.binds and bind not in named]
        if gained and "binds" not in self.record.get("not_inherited", ()):
            self.found.leave(1, f"binds of the site, which this easyconfig does not have: {', '.join(gained)}")

    def read_required_binds(self):
        """Compare the binds that must exist with the site's; leave others to the user."""
        line = self.source.of("binds")
        for bind in map(same_path_twice, self.values.get("binds") or []):
            self.binds.append(bind)
            if bind in self.site.binds.required:
                self.found.recognized.append(f"bind {bind}")
            elif bind in self.site.binds.optional:
                self.found.leave(line, f"binds: {bind} is required here, and optional for the site")
            else:
                self.found.leave(line, f"binds: {bind} is required here, and the site does not have it")

    def read_variable(self, name, value, line):
        """Read a variable; its value is written as in a Lua string."""
        own = self.own_variables()
        inside = PREFIX.sub("", name)
        message = f"variable {name} = {shortened(value)}"
        if name in own and value == own[name]:
            self.found.recognized.append(f"variable {name}")
        elif name in own:
            self.found.leave(line, f"{message}: our module sets another value")
        elif BINDS.fullmatch(name):
            self.read_binds(value, line)
        elif inside != name and self.read_activation(inside, unescaped(value), line):
            self.found.recognized.append(message)
        elif self.site.network_env.get(name) == value or (
                inside != name and self.site.container_env.get(inside) == unescaped(value)):
            self.found.recognized.append(f"{message}, which is the site's")
        elif "%(" in value:
            self.found.leave(line, f"{message}: a record can't name the installation (parameters: modluafooter can)")
        elif inside != name:
            self.put_variable("container_env", inside, unescaped(value), line, message)
        else:
            self.put_variable("variables", name, value, line, message)

    def own_variables(self):
        """Return the variables that our module sets itself (dict)."""
        suffix = self.values["name"].upper()
        image, scripts = f"{INSTALLATION}/{self.record['file']}", f"{INSTALLATION}/runscripts"
        return {"SIF": image, f"SIF{suffix}": image, "RUNSCRIPTS": scripts, f"RUNSCRIPTS{suffix}": scripts,
                "CONTAINERROOT": INSTALLATION}

    def put_variable(self, field, name, value, line, message):
        """Put a variable into a field of the record, or leave it to the user if modules can't set it."""
        try:
            is_env_name(name)
            is_env_value(value)
        except ValueError as error:
            self.found.leave(line, f"{message}: {error}")
        else:
            self.found.put(field, name, value, message)

    def read_activation(self, name, value, line):
        """Determine from a variable how Python is activated; return False for other variables."""
        record, of_venv = self.record, VENV.fullmatch(value)
        if name == "PREPEND_PATH":
            self.read_search_path(value, line)
        elif name == "VIRTUAL_ENV" and of_venv:
            record["venv_name"] = of_venv.group(1)
            record.setdefault("init", INIT_IMAGE)
        elif name == "CONDA_DEFAULT_ENV":
            record.update(init=INIT_CONDA_INJECTED, conda_env=value)
        elif name == "CONDA_PREFIX" and re.fullmatch(r"/.*/envs/[\w.+-]+", value):
            root, _, env = value.rpartition("/envs/")
            record.update(init=INIT_CONDA_INJECTED, conda_root=root, conda_env=env)
        elif name in ("CONDA_EXE", "CONDA_PYTHON_EXE") and re.fullmatch(r"/.*/bin/(conda|python)", value):
            record.update(init=INIT_CONDA_INJECTED, conda_root=value.rpartition("/bin/")[0])
        elif name in ("CONDA_SHLVL", "CONDA_PROMPT_MODIFIER"):
            pass
        elif name in ("WITH_CONDA", "WITH_VENV", "WITH_CONDA_VENV"):
            return take_activation(value, record)
        else:
            return False
        return True

    def read_search_path(self, value, line):
        """Leave directories on the container's PATH to the user, except those that activation adds."""
        for part in filter(None, value.split(":")):
            if not re.fullmatch(r"/runscripts|/user-software/venv/[^/]+/bin|/.*/(envs/[^/]+/bin|condabin)", part):
                self.found.leave(line, f"directory {shortened(part)} in PREPEND_PATH, for PATH in the container")

    def read_binds(self, value, line):
        """Add binds, separated by commas, that the site lacks."""
        inherited = "binds" not in self.record.get("not_inherited", ())
        known = {*self.site.binds.required, *self.site.binds.optional} if inherited else ()
        for bind in filter(None, re.split(r"(?<!\\),", value)):
            bind = same_path_twice(bind)
            if bind in self.binds:
                continue
            self.binds.append(bind)
            if bind in known or OWN_BINDS.match(bind):
                self.found.recognized.append(f"bind {bind}")
            elif "%(" in bind:
                self.found.leave(self.source.having(bind, line), f"bind {bind}: a record can't name the installation")
            else:
                self.record.setdefault("binds", []).append(bind)
                self.found.data.append(f"bind {bind}")

    def read_footer(self):
        """Read Lua statements for which records have fields; the others stay in modluafooter unchanged."""
        text, kept, depth, position = self.values.get("modluafooter") or "", [], 0, 0
        while position < len(text):
            end = text.find("\n", position) + 1 or len(text)
            line = text[position:end]
            call = call_at(text, position) if depth == 0 else None
            if call and self.read_call(*call[:2], self.source.having(line, self.source.of("modluafooter"))):
                position = call[2]
                continue
            if call:
                # unchanged, with all its lines
                end = text.find("\n", call[2] - 1) + 1 or len(text)
                line = text[position:end]
            else:
                bare = re.sub(r"--.*", "", STRING.sub("''", line))
                depth += len(re.findall(r"\b(?:if|for|while|function|repeat)\b", bare))
                depth -= len(re.findall(r"\b(?:end|until)\b", bare))
            kept.append(line)
            position = end
        self.kept = re.sub(r"(?m)^\s*--(?!\[).*$", "", "".join(kept))
        if self.kept.strip():
            lines = "; ".join(line.strip() for line in kept if line.strip())
            self.found.put("parameters", "modluafooter", "".join(kept).strip() + "\n",
                           f"modluafooter, unchanged: {shortened(lines)}")

    def read_call(self, name, arguments, line):
        """Read a call of Lmod's functions, or LUMI's for containers; return False if records have no field for it."""
        if name == "conflict":
            for module in arguments:
                if module in self.site.conflicts:
                    self.found.recognized.append(f"conflict {module}, which is the site's")
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
        """Read the call with which LUMI's modules set SIF, and binds in a fourth argument."""
        image, name, place = arguments[:3]
        self.found.recognized.append("create_container_vars")
        if image != self.record["file"] or place != INSTALLATION:
            self.found.leave(line, f"create_container_vars: another image or directory, {image}, {place}")
        if name.upper() != self.values["name"].upper():
            self.found.leave(line, f"create_container_vars: the name {name}, so that SIF{name.upper()} is set")
        for binds in arguments[3:]:
            self.read_binds(binds, line)


def call_at(text, position):
    """Return name, arguments and end of a Lua call with strings as arguments at a position, or None."""
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
    """Return a Lua string without its quotes; escapes stay."""
    return re.sub(r"\A\[(=*)\[\n?(.*)\]\1\]\Z", r"\2", text, flags=re.DOTALL) if text[0] == "[" else text[1:-1]


def unescaped(text):
    """Return a Lua string with its escapes resolved; EasyBuild leaves that to Lua."""
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match.group(1), match.group(1)), text)


def take_activation(command, record):
    """Put the Conda environment that a command activates into a record; return False for other commands."""
    known = ACTIVATING.fullmatch(command)
    if known and known["root"]:
        record.setdefault("conda_root", known["root"])
        record.setdefault("conda_env", known["env"])
    return bool(known)
