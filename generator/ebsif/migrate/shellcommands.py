"""Read the shell commands of an easyconfig, and the scripts that they write."""

import posixpath
import re

from easybuild.easyblocks.generic.container.tables import RUNTIMES

from ebsif.migrate.commandline import PASSING, has_substitution, inside, non_options, simple_commands
from ebsif.migrate.modulesettings import take_activation
from ebsif.migrate.pipinstall import UnknownFile, stage_of
from ebsif.migrate.reader import INSTALLATION, OWN_BINDS, Reader, same_path_twice, shortened
from ebsif.migrate.scripts import KINDS, in_place_of, strange_lines

# Directories that our easyblocks create.
DIRECTORIES = ("", "bin", "runscripts", "share", "share/docker-defs", "user-software", "user-software/venv")

# Commands that activate an environment that is already active when a stage runs.
ACTIVATING = r"\$WITH_CONDA|(source|\.) /\S+/(init-conda-venv|bin/activate)( [\w.+-]+)?"

# A here-document written to a file.
HERE = re.compile(
    r"cat\s*(?:(?P<mode>>{1,2})\s*(?P<file>[^\s<>]+)\s*)?<<-?\s*(?P<quote>[\"']?)(?P<end>\w+)(?P=quote)[ \t]*"
    r"(?:(?P<mode2>>{1,2})[ \t]*(?P<file2>\S+)[ \t]*)?\n(?P<text>.*?)^(?P=end)[ \t]*(?=\n|\Z)",
    re.DOTALL | re.MULTILINE)

class ShellCommands(Reader):
    """Reads the commands that run after the installation and in the sanity check."""

    def __init__(self, *easyconfig):
        """Start without requirements and scripts."""
        super().__init__(*easyconfig)
        self.written = {}
        self.stages = []
        self.line = 1
        self.folder = ""

    def read(self):
        """Read all commands."""
        for index, command in enumerate(self.values.get("postinstallcmds") or []):
            self.line = self.source.of("postinstallcmds", index)
            self.read_command(command)
        self.settle_requirements()
        self.read_sanity_check_paths()
        self.read_sanity_check_commands()

    def leave(self, message):
        """Leave a command to the user."""
        self.found.leave(self.line, message)

    def recognize(self, words):
        """Report a command that our easyblocks make unnecessary; return True."""
        self.found.recognized.append(f"command {shortened(' '.join(words))}")
        return True

    def read_command(self, text, environment=()):
        """Read a command line and its here-documents, with the variables set outside."""
        files = []

        def keep(match):
            files.append(match)
            return f" :file {len(files) - 1} "

        try:
            parts = simple_commands(HERE.sub(keep, text))
        except ValueError as reason:
            self.leave(f"postinstallcmds: {shortened(text)} ({reason})")
            return
        environment, folder = dict(environment), self.folder
        for words, targets, piped in parts:
            if words[:1] == [":file"]:
                self.read_here_document(files[int(words[1])])
            elif targets:
                self.leave(f"postinstallcmds: the file {inside(targets[-1])}, written by: {shortened(' '.join(words))}")
            elif not self.read_simple_command(words, piped, environment):
                self.leave(f"postinstallcmds: {shortened(' '.join(words) if len(parts) > 1 else text)}")
        # each command line is that of another shell
        self.folder = folder

    def located(self, path):
        """Return a path relative to the installation directory, given one relative to the shell's current directory."""
        absolute = path.startswith(("/", INSTALLATION))
        return inside(path if absolute else posixpath.normpath(posixpath.join(self.folder, path)))

    def read_simple_command(self, words, piped, exported):
        """
        Read a simple command; return False if our easyblocks do nothing equivalent.

        Parameters
        ----------
        words : list of str
            Variables of the command, program and arguments.
        piped : bool
            Whether another command reads its output.
        exported : dict
            Variables of the shell; an `export` adds to them.
        """
        environment = dict(exported)
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            name, _, value = words[0].partition("=")
            environment[name], words = value, words[1:]
        if not words:
            return False
        program, arguments = words[0].rsplit("/", 1)[-1], words[1:]
        if re.fullmatch(r"(pip|python)[0-9.]*", program):
            return not piped and self.read_python(program, arguments, environment)
        if program in ("mksquashfs", "make-squashfs"):
            return self.is_squashing(arguments) and self.recognize(words)
        if piped or has_substitution(words):
            return False
        if program in RUNTIMES:
            return self.read_container(arguments, environment)
        if program == "ln":
            return self.read_link(arguments)
        if program == "export":
            return self.read_export(arguments, exported) and self.recognize(words)
        if program == "cd":
            self.folder = self.located(arguments[0] if arguments else "~")
        if program in PASSING or re.fullmatch(ACTIVATING, " ".join(words)):
            take_activation(" ".join(words), self.record)
            return self.recognize(words)
        return self.is_file_command(program, arguments) and self.recognize(words)

    @staticmethod
    def read_export(arguments, exported):
        """Add to the variables of the shell (dict); return False if the command does something else."""
        if not all("=" in word for word in arguments):
            return False
        exported.update(word.split("=", 1) for word in arguments)
        return True

    def is_squashing(self, arguments):
        """Return whether these are arguments for packing user software."""
        return not non_options(arguments) or self.located(non_options(arguments)[0]) == "user-software"

    def is_file_command(self, program, arguments):
        """Return whether a command only creates, changes or removes files that our easyblocks manage."""
        paths = non_options(arguments)
        if program == "mkdir":
            return all(self.located(path) in DIRECTORIES for path in paths)
        if program == "chmod":
            return len(paths) > 1 and all(self.located(path) in self.written for path in paths[1:])
        return program == "rm" and all(self.located(path) == "user-software" for path in paths)

    def read_link(self, arguments):
        """Read a link to a wrapper, which becomes another wrapper; return False for other links."""
        if len(non_options(arguments)) != 2:
            return False
        target, name = non_options(arguments)
        # a relative target is relative to the link
        target, name = inside(target).removeprefix("bin/"), self.located(name)
        if target not in (self.record.get("wrappers") or []) or not re.fullmatch(r"(bin/)?[\w.+-]+", name):
            return False
        self.add_wrapper(name.removeprefix("bin/"))
        return True

    def add_wrapper(self, name):
        """Add a wrapper to the record."""
        self.record.setdefault("wrappers", []).append(name)
        self.found.data.append(f"wrapper {name}")

    def read_container(self, arguments, environment):
        """Read a command in the container; return False if our easyblocks do nothing equivalent."""
        words = self.read_runtime_options(arguments[1:]) if arguments[:1] == ["exec"] else None
        if not words:
            return False
        command = words[1:]
        if len(command) == 3 and command[0] in ("bash", "sh") and re.fullmatch("-l?c", command[1]):
            self.read_command(command[2], environment)
            return True
        return bool(command) and self.read_simple_command(command, False, environment)

    def read_runtime_options(self, words):
        """Read options of `singularity exec`; return the words after them (list of str), None for unknown options."""
        while words and words[0].startswith("-"):
            option, equals, value = words[0].partition("=")
            words = words[1:]
            if option in ("--nv", "--rocm"):
                self.use_gpu(option)
                continue
            if option not in ("--bind", "-B"):
                return None
            if not equals:
                value, words = "".join(words[:1]), words[1:]
            strange = [bind for bind in value.split(",") if not self.is_known_bind(bind)]
            if strange:
                self.leave(f"postinstallcmds: bind {', '.join(strange)} during installation (EBSIF_INSTALL_BIND)")
        return words

    def use_gpu(self, option):
        """Note that the runtime's GPU option is used, unless the site uses it anyway."""
        kind = {"--nv": "cuda", "--rocm": "rocm"}[option]
        if kind != self.site.gpu:
            self.record["gpu"] = kind
        if not self.site.gpu_option:
            self.record["gpu_option"] = True
        self.found.data.append(f"option {option}")

    def is_known_bind(self, bind):
        """Return whether the module already has a bind."""
        bind, binds = same_path_twice(bind), self.site.binds
        return bind in (*binds.required, *binds.optional, *self.record.get("binds", [])) or bool(OWN_BINDS.match(bind))

    def read_python(self, program, arguments, environment):
        """Read a call of pip, or of Python with `-m pip` or `-m venv`; return False for others."""
        if program.startswith("python"):
            if arguments[:2] == ["-m", "venv"]:
                return self.read_venv(arguments[2:])
            if arguments[:2] != ["-m", "pip"]:
                return False
            arguments = arguments[2:]
        if arguments[:1] in (["list"], ["freeze"], ["check"], ["--version"]):
            return self.recognize(["pip", *arguments])
        if arguments[:1] != ["install"]:
            return False
        try:
            stage = stage_of(arguments[1:], environment, self.lines_of)
        except UnknownFile as name:
            self.leave(f"requirements of {shortened(str(name))}")
            return True
        if stage:
            self.stages.append(stage)
        return stage is not None

    def read_venv(self, arguments):
        """Read a call of `python -m venv`; return False if its options differ from ours."""
        names = non_options(arguments)
        options = {word for word in arguments if word not in names}
        if len(names) != 1 or options - {"--system-site-packages", "--clear"}:
            return False
        self.record.update(venv=True, venv_name=names[0].rsplit("/", 1)[-1])
        self.found.recognized.append("the venv")
        return True

    def lines_of(self, name):
        """Return the requirements in a file that a command has written (list of str), or None if they are unknown."""
        last = name.rsplit("/", 1)[-1]
        text = next((text for path, text in self.written.items() if path.rsplit("/", 1)[-1] == last), None)
        blocks = [value for key, value in self.values.items()
                  if key.startswith("local_") and "requirements" in key and isinstance(value, str)]
        if text is None and name == "requirements.txt" and len(blocks) == 1:
            text = blocks[0]
        return None if text is None else [line.strip() for line in text.splitlines() if line.strip()]

    def settle_requirements(self):
        """Put requirements into the record, as stages only if a single list isn't enough."""
        stages = [stage for stage in self.stages if stage]
        if not stages:
            return
        simple = len(stages) == 1 and list(stages[0]) == ["requirements"]
        self.record.update(venv=True, requirements=stages[0]["requirements"] if simple else stages)
        self.found.data += [f"requirements {shortened(', '.join(stage['requirements']))}" for stage in stages]

    # --- scripts

    def read_here_document(self, match):
        """Read a file that a command writes."""
        file, text = match["file"] or match["file2"], match["text"]
        name = self.located(file) if file else "standard output"
        if not match["quote"]:
            # the shell removes these backslashes
            text = re.sub(r"\\([$`\\\n])", lambda one: "" if one[1] == "\n" else one[1], text)
        self.written[name] = text
        if (match["mode"] or match["mode2"]) != ">":
            self.leave(f"postinstallcmds: appends to {name}" if match["mode"] or match["mode2"] else
                       f"postinstallcmds: prints {shortened(text)}")
            return
        self.read_file(name, text)

    def read_file(self, name, text):
        """Read a written file: a script that ours replaces, or requirements."""
        self.found.by_hand = self.found.by_hand or bool(re.search(r"(?m)^[^#\n]*\$\{?WITH_CONDA\b", text))
        ours = in_place_of(name, text)
        for option in re.findall(r" (--nv|--rocm)(?= )", text) if ours in KINDS else []:
            self.use_gpu(option)
        if ours == "requirements":
            self.found.recognized.append(name)
            return
        if not ours:
            self.leave(f"the file {name}, which none of our scripts replaces")
            return
        self.found.python = self.found.python or "python" in name
        if ours == "wrapper":
            self.add_wrapper(name.removeprefix("bin/"))
        elif ours != name:
            self.found.put("script_names", name, ours, f"{name} is another name of {ours}")
        else:
            self.found.recognized.append(name)
        for line in strange_lines(ours, text, self.site):
            self.found.leave(self.source.having(line, self.line), f"{name}: ours does not have: {shortened(line)}")

    # --- sanity check

    def read_sanity_check_paths(self):
        """Leave files and directories that our easyblocks don't check to the user."""
        paths = self.values.get("sanity_check_paths") or {}
        named = (*DIRECTORIES, *self.record.get("definition_files", []), self.record["file"])
        for path in [path for paths_of_kind in paths.values() for path in paths_of_kind or []]:
            known = path in self.written and in_place_of(path, self.written[path])
            if not known and str(path).removeprefix("share/docker-defs/") not in named:
                self.found.leave(self.source.of("sanity_check_paths"), f"sanity_check_paths: {shortened(path)}")

    def read_sanity_check_commands(self):
        """Read the commands of the sanity check, except syntax checks, which our easyblocks don't need."""
        kept = []
        for command in self.values.get("sanity_check_commands") or []:
            several = isinstance(command, list) and all(isinstance(one, str) for one in command)
            text = " ".join(command) if several else command
            if not isinstance(text, str):
                self.found.leave(self.source.of("sanity_check_commands"),
                                 f"sanity_check_commands: {shortened(command)}")
            elif re.fullmatch(r"\s*(echo [^;]*;)?\s*bash -n [\w%()/.-]+\s*", text):
                self.found.recognized.append(f"sanity check {text}")
            else:
                kept.append(text)
        if kept:
            self.found.put("parameters", "sanity_check_commands", kept, f"{len(kept)} sanity_check_commands")
