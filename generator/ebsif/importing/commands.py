"""Importing easyconfigs: what their shell commands do, and the scripts that these write."""

import re
import shlex

from ebsif.importing.module import take_activation
from ebsif.importing.scripts import KINDS, in_place_of, strange_lines

INSTALLATION = "%(installdir)s"
STANDING_FOR = "@installdir@"
DIRECTORIES = ("", "bin", "runscripts", "share", "share/docker-defs", "user-software", "user-software/venv")

# What changes nothing that lasts.
PASSING = ("true", ":", "set", "cd", "pwd", "echo", "printf")

# What is active already where a stage runs.
ACTIVATING = r"\$WITH_CONDA|(source|\.) /\S+/(init-conda-venv|bin/activate)( [\w.+-]+)?"

# A file that a command writes from its own text.
HERE = re.compile(
    r"cat\s*(?:(?P<mode>>{1,2})\s*(?P<file>[^\s<>]+)\s*)?<<-?\s*(?P<quote>[\"']?)(?P<end>\w+)(?P=quote)[ \t]*"
    r"(?:(?P<mode2>>{1,2})[ \t]*(?P<file2>\S+)[ \t]*)?\n(?P<text>.*?)^(?P=end)[ \t]*(?=\n|\Z)",
    re.DOTALL | re.MULTILINE)

# Options of pip, and what of a stage they are.
PIP_LISTS = {"--extra-index-url": "extra_index_url", "-f": "find_links", "--find-links": "find_links",
             "--no-binary": "no_binary"}
PIP_VALUES = {"-i": "index_url", "--index-url": "index_url"}
PIP_SWITCHES = {"--no-build-isolation": "no_build_isolation", "--no-deps": "no_deps"}
PIP_OTHERS = ("--no-cache-dir", "--pre", "-U", "--upgrade", "-v", "--verbose", "--prefer-binary", "--use-pep517")
PIP_IGNORED = ("--disable-pip-version-check", "-q", "--quiet", "--no-input")


class Commands:
    """
    Reads what shell commands do after the installation, and before the module is believed.

    Parameters
    ----------
    values : dict
        The parameters of the easyconfig.
    found : Imported
        Takes what is found.
    source : Source
        Where it is.
    site : Site
        For what distributed runs need.
    """

    def __init__(self, values, found, source, site):
        """Nothing is read yet."""
        self.values, self.found, self.source, self.site = values, found, source, site
        self.record = found.record
        self.written = {}
        self.stages = []
        self.line = 1

    def read(self):
        """Read all commands."""
        for index, command in enumerate(self.values.get("postinstallcmds") or []):
            self.line = self.source.of("postinstallcmds", index)
            self.read_command(command)
        self.settle_requirements()
        self.read_sanity_checks()

    def leave(self, text):
        """Leave a command for a person."""
        self.found.leave(self.line, text)

    def read_command(self, text, environment=()):
        """Take a command, with variables from outside: files from its own text first, then each simple command."""
        files = []

        def keep(match):
            files.append(match)
            return f" :file {len(files) - 1} "

        try:
            parts = simple_commands(HERE.sub(keep, text))
        except ValueError:
            self.leave(f"postinstallcmds: {text}")
            return
        environment = dict(environment)
        for words, targets, piped in parts:
            if words[:1] == [":file"]:
                self.read_here(files[int(words[1])])
            elif targets:
                self.leave(f"postinstallcmds: the file {inside(targets[-1])}, written by: {' '.join(words)}")
            elif not self.read_words(words, piped, environment):
                self.leave(f"postinstallcmds: {' '.join(words) if len(parts) > 1 else text}")

    def read_words(self, words, piped, environment):
        """Take a simple command; False if nothing is known that does the same."""
        exported, environment = environment, dict(environment)
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            name, _, value = words[0].partition("=")
            environment[name], words = value, words[1:]
        if not words:
            return False
        program, arguments = words[0].rsplit("/", 1)[-1], words[1:]
        plain = [word for word in arguments if not word.startswith("-")]
        told = f"command {' '.join(words)}"
        if program in ("mksquashfs", "make-squashfs"):
            known = not plain or inside(plain[0]) == "user-software"
        elif re.fullmatch(r"pip[0-9.]*", program) or (
                re.fullmatch(r"python[0-9.]*", program) and arguments[:1] == ["-m"]):
            return not piped and self.read_python(program, arguments, environment)
        elif piped:
            return False
        elif program == "export" and all("=" in word for word in plain):
            exported.update(word.split("=", 1) for word in plain)
            known = True
        elif program in PASSING or re.fullmatch(ACTIVATING, " ".join(words)):
            take_activation(" ".join(words), self.record)
            known = True
        elif program == "mkdir":
            known = all(inside(word) in DIRECTORIES for word in plain)
        elif program == "chmod":
            known = len(plain) > 1 and all(inside(word) in self.written for word in plain[1:])
        elif program == "rm":
            known = all(inside(word) == "user-software" for word in plain)
        elif program == "ln" and len(plain) == 2:
            return self.read_link(*plain)
        elif program in ("singularity", "apptainer"):
            return self.read_container(arguments, environment)
        else:
            known = False
        if known:
            self.found.recognised.append(told)
        return known

    def read_link(self, target, name):
        """Take a link to a wrapper, which is one more."""
        target, name = inside(target).removeprefix("bin/"), inside(name)
        if target not in (self.record.get("wrappers") or []) or not re.fullmatch(r"(bin/)?[\w.+-]+", name):
            return False
        self.add_wrapper(name.removeprefix("bin/"))
        return True

    def add_wrapper(self, name):
        """Take a wrapper."""
        self.record.setdefault("wrappers", []).append(name)
        self.found.data.append(f"wrapper {name}")

    def read_container(self, arguments, environment):
        """Take a command that runs in the container: a shell's text, or a program with its arguments."""
        if arguments[:1] != ["exec"]:
            return False
        words = arguments[1:]
        while words and words[0].startswith("-"):
            option, equals, value = words[0].partition("=")
            words = words[1:]
            if option in ("--nv", "--rocm"):
                self.use_gpu(option)
                continue
            if option not in ("--bind", "-B"):
                return False
            if not equals:
                value, words = "".join(words[:1]), words[1:]
            strange = [bind for bind in value.split(",") if not self.is_known_bind(bind)]
            if strange:
                self.leave(f"postinstallcmds: bind {', '.join(strange)} while it is installed (EBSIF_INSTALL_BIND)")
        words = words[1:]
        if len(words) == 3 and words[0] in ("bash", "sh") and re.fullmatch("-l?c", words[1]):
            self.read_command(words[2], environment)
            return True
        return bool(words) and self.read_words(words, False, dict(environment))

    def use_gpu(self, option):
        """Take an option of the runtime for the GPU, where the site does not use it anyway."""
        kind = {"--nv": "cuda", "--rocm": "rocm"}[option]
        if kind != self.site.gpu:
            self.record["gpu"] = kind
        if not self.site.gpu_option:
            self.record["gpu_option"] = True
        self.found.data.append(f"option {option}")

    def is_known_bind(self, bind):
        """Tell whether a bind is the module's anyway."""
        bind = bind.partition(":")[0] if bind.partition(":")[0] == bind.partition(":")[2] else bind
        binds = self.site.binds
        return bind in (*binds.required, *binds.optional, *self.record.get("binds", [])) or bool(
            re.match(re.escape(INSTALLATION) + r"/(runscripts:/runscripts|user-software)", bind))

    def read_python(self, program, arguments, environment):
        """Take a call of pip or of the module venv."""
        if program.startswith("python"):
            if arguments[1:2] == ["venv"]:
                options = [word for word in arguments[2:] if word.startswith("-")]
                names = [word for word in arguments[2:] if not word.startswith("-")]
                if len(names) != 1 or set(options) - {"--system-site-packages", "--clear"}:
                    return False
                self.record.update(venv=True, venv_name=names[0].rsplit("/", 1)[-1])
                self.found.recognised.append("the venv")
                return True
            if arguments[1:2] != ["pip"]:
                return False
            arguments = arguments[2:]
        if arguments[:1] in (["list"], ["freeze"], ["check"], ["--version"]):
            return True
        stage = self.stage_of(arguments[1:], environment) if arguments[:1] == ["install"] else None
        if stage:
            self.stages.append(stage)
        return stage is not None

    def stage_of(self, words, environment):
        """Return the stage of requirements (dict) that the arguments of `pip install` say, None if they say more."""
        stage, lines, words = {}, [], list(words)
        while words:
            option, equals, value = words.pop(0).partition("=")
            if not option.startswith("-"):
                lines.append(f"{option}{equals}{value}")
                continue
            if option in ("-r", "--requirement", *PIP_LISTS, *PIP_VALUES) and not equals:
                if not words:
                    return None
                value = words.pop(0)
            if option in ("-r", "--requirement"):
                there = self.lines_of(value)
                if there is None:
                    self.leave(f"requirements of {value}")
                    return {}
                lines += there
            elif option in PIP_LISTS:
                stage.setdefault(PIP_LISTS[option], []).append(value)
            elif option in PIP_VALUES:
                stage[PIP_VALUES[option]] = value
            elif option in PIP_SWITCHES:
                stage[PIP_SWITCHES[option]] = True
            elif option in PIP_OTHERS:
                stage.setdefault("options", []).append(option)
            elif option not in PIP_IGNORED:
                return None
        # what the caller's shell fills in, and what depends on the directory it is in
        filled = any("$" in text or "`" in text for text in (*lines, *environment.values()))
        if filled or not lines or any(re.match(r"\.{1,2}(/|\[|$)", line) for line in lines):
            return None
        more = {"env": dict(environment)} if environment else {}
        return {"requirements": lines, **stage, **more}

    def lines_of(self, name):
        """Return the requirements in a file that a command has written, or in the variable that stands for it."""
        last = name.rsplit("/", 1)[-1]
        text = next((text for path, text in self.written.items() if path.rsplit("/", 1)[-1] == last), None)
        blocks = [value for key, value in self.values.items()
                  if key.startswith("local_") and "requirements" in key and isinstance(value, str)]
        if text is None and name == "requirements.txt" and len(blocks) == 1:
            text = blocks[0]
        return None if text is None else [line.strip() for line in text.splitlines() if line.strip()]

    def settle_requirements(self):
        """Say what pip was told, with stages only where one list does not say it."""
        stages = [stage for stage in self.stages if stage]
        if not stages:
            return
        simple = len(stages) == 1 and list(stages[0]) == ["requirements"]
        self.record.update(venv=True, requirements=stages[0]["requirements"] if simple else stages)
        self.found.data += [f"requirements {', '.join(stage['requirements'])}" for stage in stages]

    # --- scripts

    def read_here(self, match):
        """Take a file that a command writes."""
        name, text = inside(match["file"] or match["file2"] or "standard output"), match["text"]
        if not match["quote"]:
            # what a shell makes of it
            text = re.sub(r"\\([$`\\\n])", lambda one: "" if one[1] == "\n" else one[1], text)
        self.written[name] = text
        if (match["mode"] or match["mode2"]) != ">":
            self.leave(f"postinstallcmds: adds to the file {name}")
            return
        self.read_file(name, text)

    def read_file(self, name, text):
        """Take a file that is written: a script in whose place ours has one, or requirements."""
        self.found.by_hand = self.found.by_hand or bool(re.search(r"(?m)^[^#\n]*\$\{?WITH_CONDA\b", text))
        ours = in_place_of(name, text)
        for option in re.findall(r" (--nv|--rocm)(?= )", text) if ours in KINDS else []:
            self.use_gpu(option)
        if ours == "requirements":
            self.found.recognised.append(name)
            return
        if not ours:
            self.leave(f"the file {name}, which is written by hand")
            return
        self.found.python = self.found.python or "python" in name
        if ours == "wrapper":
            self.add_wrapper(name.removeprefix("bin/"))
        elif ours != name:
            self.record.setdefault("script_names", {})[name] = ours
            self.found.data.append(f"{name} is another name of {ours}")
        else:
            self.found.recognised.append(name)
        for line in strange_lines(ours, text, self.site):
            self.found.leave(self.source.having(line, self.line), f"{name}: what takes its place does not: {line}")

    def read_sanity_checks(self):
        """Take commands of the sanity check as they are, but for what the easyblock checks."""
        paths = self.values.get("sanity_check_paths") or {}
        named = (*DIRECTORIES, *self.record.get("definition_files", []), self.record["file"])
        for path in [path for key in ("files", "dirs") for path in paths.get(key) or []]:
            known = path in self.written and in_place_of(path, self.written[path])
            if not known and str(path).removeprefix("share/docker-defs/") not in named:
                self.found.leave(self.source.of("sanity_check_paths"), f"sanity_check_paths: {path}")
        kept = []
        for command in self.values.get("sanity_check_commands") or []:
            several = isinstance(command, list) and all(isinstance(one, str) for one in command)
            text = " ".join(command) if several else command
            if isinstance(text, str) and re.fullmatch(r"\s*(echo [^;]*;)?\s*bash -n [\w%()/.-]+\s*", text):
                self.found.recognised.append(f"sanity check {text}")
            elif isinstance(text, str):
                kept.append(text)
            else:
                self.found.leave(self.source.of("sanity_check_commands"), f"sanity_check_commands: {command}")
        if kept:
            self.found.put("parameters", "sanity_check_commands", kept, f"{len(kept)} sanity_check_commands")


def simple_commands(text):
    """
    Return the simple commands of a text of the shell: words, files written to, whether it's in a pipe.

    Raises
    ------
    ValueError
        If it has more than that: loops, subshells, files that are read.
    """
    # its parentheses are none of the shell's
    lexer = shlex.shlex(text.replace(INSTALLATION, STANDING_FOR), posix=True, punctuation_chars=";<>|&()\n")
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "", " \t\r", True
    found, words, targets, piped = [], [], [], False
    tokens = [*(token.replace(STANDING_FOR, INSTALLATION) for token in lexer), ";"]
    while tokens:
        token = tokens.pop(0)
        if token in ("|", "|&"):
            words, piped = [*words, "|"], True
        elif token and not token.strip("\n;&|"):
            # filters of messages change nothing
            if "|" in words and words[words.index("|") + 1 :][:1] == ["grep"]:
                words, piped = words[: words.index("|")], False
            if words:
                found.append((words, targets, piped))
            words, targets, piped = [], [], False
        elif token in (">", ">>", ">&", "&>"):
            number = words.pop() if words and words[-1] in ("1", "2") else ""
            target = tokens.pop(0)
            if target not in ("/dev/null", "1", "2"):
                targets.append(target)
            elif not number and target in ("1", "2"):
                pass
        elif token and not token.strip(";<>|&()\n"):
            raise ValueError(f"{token} in a command")
        else:
            words.append(token)
    if any(words[0] in ("if", "for", "while", "case", "function", "{", "eval", "until") for words, _, _ in found):
        raise ValueError("a compound command")
    return found


def inside(path):
    """Return a path without the installation directory."""
    return path.replace(INSTALLATION, "", 1).strip("/").removeprefix("./").strip("/")


def shortened(value, length=160):
    """Return the beginning of a value, in one line (str), at most `length` characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= length else f"{text[:length - 3]}..."
