"""Read the settings of an easyconfig's module: modextravars and modluafooter."""

import re
from typing import Any

from easybuild.easyblocks.generic.container.sitevalues import INIT_CONDA_INJECTED, INIT_IMAGE
from easybuild.easyblocks.generic.container.values import value_problem, variable_problem

from ebsif.catalog.site import Site
from ebsif.migrate.easyconfigfile import EasyconfigText
from ebsif.migrate.imported import INSTALLATION, Imported, shortened

# Binds that every module has.
OWN_BINDS = re.compile(re.escape(INSTALLATION) + r"/(runscripts:/runscripts|user-software)")

VENV = re.compile(r"/user-software/venv/([\w.+-]+)")
BINDS = re.compile(r"(SINGULARITY|APPTAINER)_BIND(PATH)?")
PREFIX = re.compile(r"(SINGULARITY|APPTAINER)ENV_")

# Commands that activate an environment that is now always active; scripts can still run them.
ACTIVATING = re.compile(
    r"true|:|\$WITH_CONDA|(source|\.) (/runscripts/init-conda-venv"
    r"|/user-software/venv/[^/\s]+/bin/activate|(?P<root>/\S+)/bin/activate (?P<env>[\w.+-]+))"
)

# Lua: a string in quotes, and a call with strings of the routine with which LUMI's modules set SIF.
STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
CALL = re.compile(rf"create_container_vars\s*\(\s*({STRING}(?:\s*,\s*{STRING})*)\s*\)\s*;?")


class ModuleParameters:
    """Reads what the module sets."""

    def __init__(self, values: dict[str, Any], result: Imported, source: EasyconfigText, site: Site):
        """Take the easyconfig's values, and where the result goes."""
        self.values, self.result, self.source, self.site = values, result, source, site
        self.record = result.record

    def read(self) -> None:
        """Read modextravars and modluafooter, and compare the binds with the site's."""
        for name, value in (self.values.get("modextravars") or {}).items():
            line = self.source.having(f"'{name}'", self.source.of("modextravars"))
            if isinstance(value, dict) and value.get("resolve_env_vars") is False:
                self.result.put("variables", name, {"text": value["value"]}, f"variable {name}")
            else:
                self.read_variable(name, str(value), line)
        kept = self.read_footer()
        # Lua that joins binds isn't evaluated, but it names them
        words = re.split(r"""["',\[\]\s]+""", kept) if BINDS.search(kept) else []
        named = {*self.result.binds, *map(same_path_twice, words)}
        gained = [bind for bind in (*self.site.binds.required, *self.site.binds.optional) if bind not in named]
        if gained:
            self.result.leave(1, f"binds of the site, which this easyconfig does not have: {', '.join(gained)}")

    def read_variable(self, name: str, value: str, line: int) -> None:
        """Read a variable; its value is written as in a Lua string."""
        own = self.own_variables()
        inner = PREFIX.sub("", name)
        message = f"variable {shortened(f'{name}={value}')}"
        if name in own and value == own[name]:
            self.result.recognized.append(f"variable {name}")
        elif name in own:
            self.result.leave(line, f"{message}: our module sets another value")
        elif BINDS.fullmatch(name):
            self.read_binds(value, line)
        elif inner != name and self.read_activation(inner, unescaped(value), line):
            self.result.recognized.append(message)
        elif self.site.network_env.get(name) == value or (
            inner != name and self.site.container_env.get(inner) == unescaped(value)
        ):
            self.result.recognized.append(f"{message}, which is the site's")
        elif "%(" in value:
            self.result.leave(line, f"{message}: a record can't name the installation (parameters: modluafooter can)")
        elif inner != name:
            self.put_variable("container_env", inner, unescaped(value), line, message)
        else:
            self.put_variable("variables", name, value, line, message)

    def own_variables(self) -> dict[str, str]:
        """Return the variables that our module sets itself."""
        suffix = self.values["name"].upper()
        image, scripts = f"{INSTALLATION}/{self.record['file']}", f"{INSTALLATION}/runscripts"
        return {
            "SIF": image,
            f"SIF{suffix}": image,
            "RUNSCRIPTS": scripts,
            f"RUNSCRIPTS{suffix}": scripts,
            "CONTAINERROOT": INSTALLATION,
        }

    def put_variable(self, field: str, name: str, value: str, line: int, message: str) -> None:
        """Put a variable into a field of the record, or leave it to the user if modules can't set it."""
        problem = variable_problem(name) or value_problem(value)
        if problem:
            self.result.leave(line, f"{message}: {problem}")
        else:
            self.result.put(field, name, value, message)

    def read_activation(self, name: str, value: str, line: int) -> bool:
        """Determine from a variable how Python is activated; return False for other variables."""
        record, of_venv = self.record, VENV.fullmatch(value)
        conda = re.fullmatch(r"(/.*)/envs/([\w.+-]+)", value)
        if name == "PREPEND_PATH":
            self.read_search_path(value, line)
        elif name == "VIRTUAL_ENV" and of_venv:
            record["venv_name"] = of_venv.group(1)
            record.setdefault("init", INIT_IMAGE)
        elif name == "CONDA_DEFAULT_ENV":
            record.update(init=INIT_CONDA_INJECTED, conda_env=value)
        elif name == "CONDA_PREFIX" and conda:
            record.update(init=INIT_CONDA_INJECTED, conda_root=conda.group(1), conda_env=conda.group(2))
        elif name in ("CONDA_EXE", "CONDA_PYTHON_EXE") and re.fullmatch(r"/.*/bin/(conda|python)", value):
            record.update(init=INIT_CONDA_INJECTED, conda_root=value.rpartition("/bin/")[0])
        elif name in ("WITH_CONDA", "WITH_VENV", "WITH_CONDA_VENV"):
            return take_activation(value, record)
        else:
            return name in ("CONDA_SHLVL", "CONDA_PROMPT_MODIFIER")
        return True

    def read_search_path(self, value: str, line: int) -> None:
        """Leave directories on the container's PATH to the user, except those that activation adds."""
        for part in filter(None, value.split(":")):
            if not re.fullmatch(r"/runscripts|/user-software/venv/[^/]+/bin|/.*/(envs/[^/]+/bin|condabin)", part):
                self.result.leave(line, f"directory {shortened(part)} in PREPEND_PATH, for PATH in the container")

    def read_binds(self, value: str, line: int) -> None:
        """Add binds, separated by commas, that the site lacks."""
        known = (*self.site.binds.required, *self.site.binds.optional)
        for bind in filter(None, re.split(r"(?<!\\),", value)):
            bind = same_path_twice(bind)
            if bind in self.result.binds:
                continue
            self.result.binds.append(bind)
            if bind in known or OWN_BINDS.match(bind):
                self.result.recognized.append(f"bind {bind}")
            elif "%(" in bind:
                self.result.leave(self.source.having(bind, line), f"bind {bind}: a record can't name the installation")
            else:
                self.result.append("binds", bind, f"bind {bind}")

    def read_footer(self) -> str:
        """Read LUMI's routine for containers; keep the other Lua in modluafooter, and return it."""
        first, kept = self.source.of("modluafooter"), []
        for line in (self.values.get("modluafooter") or "").strip().splitlines():
            call = CALL.fullmatch(line.strip())
            arguments = [string[1:-1] for string in re.findall(STRING, call[1])] if call else []
            if len(arguments) in (3, 4):
                self.read_container_vars(arguments, self.source.having(line, first))
            else:
                kept.append(line)
        if all(re.fullmatch(r"\s*(--(?!\[).*)?", line) for line in kept):
            self.result.comments += [
                (self.source.having(line, first), line.strip("- ")) for line in kept if re.search(r"\w", line)
            ]
            return ""
        text = "\n".join(kept).strip() + "\n"
        self.result.put("parameters", "modluafooter", text, f"modluafooter, unchanged: {shortened(text)}")
        return text

    def read_container_vars(self, arguments: list[str], line: int) -> None:
        """Read a call with image, name and directory, and perhaps binds."""
        image, name, place = arguments[:3]
        self.result.recognized.append("create_container_vars")
        if image != self.record["file"] or place != INSTALLATION:
            self.result.leave(line, f"create_container_vars: another image or directory, {image}, {place}")
        if name.upper() != self.values["name"].upper():
            self.result.leave(line, f"create_container_vars: the name {name}, so that SIF{name.upper()} is set")
        for binds in arguments[3:]:
            self.read_binds(binds, line)


def same_path_twice(bind: str) -> str:
    """Return a bind without a target that repeats its source."""
    source, _, target = bind.partition(":")
    return source if target in ("", source) else bind


def unescaped(text: str) -> str:
    """Return a Lua string with its escapes resolved; EasyBuild leaves that to Lua."""
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match.group(1), match.group(1)), text)


def take_activation(command: str, record: dict[str, Any]) -> bool:
    """Put the Conda environment that a command activates into a record; return False for other commands."""
    known = ACTIVATING.fullmatch(command)
    if known and known["root"]:
        record.setdefault("conda_root", known["root"])
        record.setdefault("conda_env", known["env"])
    return bool(known)
