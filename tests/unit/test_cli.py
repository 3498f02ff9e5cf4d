"""The command line: help, usage errors, doctor."""

import ast
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import SUPPRESS, Namespace
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.values import format_size
from ebsif import files
from ebsif.catalog import settings
from ebsif.cli import check_python, main, parser_of
from ebsif.commands import COMMANDS, HIDDEN, MOVED, STATUSES
from ebsif.errors import FAILED, USAGE, EbsifError, UsageError
from ebsif.images.registry.login import login_for
from ebsif.installed import doctor
from ebsif.report import output
from ebsif.report.findings import Finding
from packaging.requirements import Requirement
from support import CHECKOUT, add_package, write_program

EBSIF = Path(sys.prefix) / "bin" / "ebsif"


def run(*arguments, **options):
    """Run the installed command."""
    return subprocess.run([EBSIF, *arguments], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["isntall"], "ebsif: there is no command 'isntall': did you mean install or installed? "),
        (["helo"], "ebsif: there is no command 'helo': did you mean help? "),
        (["nonsense"], "ebsif: there is no command 'nonsense' "),
        (["--site", "lumi", "list"], "ebsif: the command comes first: `ebsif list --site lumi` "),
        (["lock"], "ebsif: no container given"),
        (["lock", "one", "two"], "ebsif: unrecognized arguments: two: usage: ebsif lock [CONTAINER] [OPTION...] "),
        (["list", "--", "x"], "ebsif: unrecognized arguments: x: usage: ebsif list [CONTAINER...] [OPTION...] "),
        # words of other tools, options without a value
        (["uninstall", "mine"], "ebsif: there is no command 'uninstall': did you mean `ebsif remove`? "),
        (["-V"], "did you mean `ebsif --version`? "),
        (["mine", "run", "--", "python"], "ebsif: the command comes first: `ebsif run mine -- python` "),
        (["list", "-mine"], "did you mean --mine? "),
        (["remove", "mine", "-y"], "did you mean --yes? "),
        (["remove", "mine", "--force"], "unrecognized arguments: --force: for --force, use --yes "),
        (["extend", "x", "-U", "einops", "--conda", "y"], "for -U, use --replace PACKAGE==VERSION; for --conda, use"),
        (["upgrade"], "ebsif: EXTENSION, CONTAINER are missing: "),
        (["upgrade", "mine"], "CONTAINER is missing: ebsif upgrade EXTENSION CONTAINER [OPTION...] "),
        (["job", "x", "--scheduler", "--qos=y"], "value: --scheduler OPTIONS, or --scheduler=--qos=y if it begins"),
        (["list", "--has"], "ebsif: --has needs a value: --has COMPONENT "),
        (["extend", "mine", "--add"], "ebsif: --add needs a value: --add PACKAGE "),
        (["job", "mine", "--nodes", "two"], "ebsif: -N/--nodes: 'two' is not a positive number "),
        (["diff", "one"], "ebsif: give what to compare with: ebsif diff one CONTAINER\n"),
        (["list", "--catalogue", "/tmp"], "unrecognized arguments: --catalogue: did you mean --catalog? "),
        (["push", "mine"], "ebsif: REF is missing: ebsif push CONTAINER REF [OPTION...] "),
        (["docs"], "-o/--output is missing: ebsif docs -o DIRECTORY [OPTION...] "),
        (["completion"], "bash|zsh|fish is missing: "),
        (["kernel", "instal", "mine"], "`ebsif kernel` doesn't know 'instal': did you mean install"),
        (["completion", "tcsh"], "`ebsif completion` doesn't know 'tcsh': choose one of bash, zsh, fish "),
        (["lock", "--format", "xml"], "--format can't be 'xml': choose one of lock, sbom, eb "),
        (["job", "x", "train.py", "-N", "2"], "put -- before arguments for the program: `ebsif job x -- train.py -N"),
        (["run", "mine", "python", "-c", "1"], "put -- before the command: `ebsif run mine -- python -c 1` "),
        (["run", "mine"], "give the command to run: ebsif run MODULE -- COMMAND"),
        # the next option that begins so would break scripts
        (["list", "--sit", "lumi"], "unrecognized arguments: --sit: did you mean --site?"),
        (["help", "isntall"], "there is no command 'isntall'"),
        # the record of a run is no option, so nothing in it is obeyed
        (["job", "--from", "record.json"], "unrecognized arguments: --from"),
        (["site", "init"], "init needs a name for the site: ebsif site init NAME"),
        (["site", "init", "new", "--json"], "--site and --json are for libraries, not for init"),
        (["site", "init", "new", "--catalog", "/a", "--catalog", "/b"], "init writes to one catalog"),
        (["extend", "x", "--robot"], "put -- before options of eb"),
        (["extend", "x", "--add", "rich", "--json", "-n"], "--dry-run prints an easyconfig, not JSON"),
        (["extend", "x", "--wheelhouse", "w", "--json"], "leave out the other options"),
        (["extend", "x", "einops", "rich"], "To add packages: `ebsif extend x --add einops rich` "),
    ],
)
def test_wrong_use_is_status_2(arguments, words, ebsif, monkeypatch):
    """Wrong use: status 2, and an error that is one line."""
    monkeypatch.delenv("CONTAINERROOT", raising=False)
    said = ebsif(*arguments, status=USAGE)
    assert words in said.err and said.err.count("\n") == 1 and not said.out


@pytest.mark.parametrize(
    "words",
    [
        ["extend", "x", "--add", "a b", "--install", "--name", "mine", "--", "--robot"],
        ["upgrade", "mine", "x", "--install"],
        ["pull", "oras://x.example/y:1", "--install"],
    ],
)
def test_install_is_what_they_do(words, capsys, ebsif):
    """N-03: the option of earlier releases says what to type; --check, -o and -n exclude each other."""
    assert main(words) == USAGE
    typed = shlex.join(word for word in words if word != "--install")
    said = f"ebsif: --install is gone, because ebsif {words[0]} installs the module without it: ebsif {typed} (see "
    assert capsys.readouterr().err.startswith(said)
    for one, other in (("--check", "-n"), ("-n", "-o"), ("--check", "-o")):
        said = ebsif(*words[: words.index("--install")], one, other, *["."][: other == "-o"], status=USAGE)
        assert "not allowed with argument" in said.err


@pytest.mark.parametrize("word", MOVED)
def test_words_that_went(word, ebsif):
    """Each word of the last release says where it went, and that is there."""
    said = ebsif(word, "PyTorch", status=USAGE).err
    target = re.search(r"`ebsif (\w+)([^`]*)`\n", said)
    assert said.startswith(f"ebsif: `ebsif {word}` is now `ebsif ") and target
    options = parser_of(target[1])._option_string_actions
    assert all(option in options for option in re.findall(r"--[\w-]+", target[2]))


def test_the_help_lists_commands_below_headings(ebsif):
    """Who types the name only reads what there is, in 80 columns: on standard error, because nothing was asked for."""
    said = ebsif(status=USAGE).err
    assert ebsif("--help").out == said and max(map(len, said.splitlines())) <= 80
    listed = re.findall(r"^  (\w+) +[a-z].*", said.partition("exit status")[0].partition("choose a")[2], re.MULTILINE)
    assert listed == [name for name in COMMANDS if name not in HIDDEN] and len(listed) <= 28
    assert len(re.findall(r"^[a-z ]+:$", said, re.MULTILINE)) == 6
    assert ebsif("help").out == said


@pytest.mark.parametrize("words", [["-h"], *([name, "-h"] for name in COMMANDS)], ids=lambda words: words[0])
def test_helps(words, capsys):
    """-h fits a screen, with all options by name; --help and `ebsif help` are complete."""

    def printed(*arguments):
        with contextlib.suppress(SystemExit):
            assert main(arguments) == 0
        return capsys.readouterr().out

    short, complete = printed(*words), printed(*words[:-1], "--help")
    assert len(short.splitlines()) <= 24 and max(map(len, short.splitlines())) <= 80
    # the first part of a long help, which says something by itself
    assert not re.search(r"^  -.*\.\.\.$", short, re.MULTILINE)
    assert printed("help", *words[:-1]) == complete
    assert "docs/" in complete
    if words[:-1]:
        shown = [action for action in parser_of(words[0])._actions if action.help != SUPPRESS]
        options = {one for action in shown for one in action.option_strings}
        assert {one for one in options if not re.search(rf"(?<!\S){one}\b|/{one}\b", short)} == set()
        # the options of all commands stand at the end
        assert re.search(r"^common options:\n(  .*\n)+\nexamples:$", complete, re.MULTILINE)
        own = re.findall("^  -.*", complete.partition("\ncommon options:")[0], re.MULTILINE)
        assert not [line for line in own if re.search("--(quiet|verbose|help|site)", line)]


def test_one_word_per_option():
    """An option means the same in all commands, and has a help; no command has another word for it."""
    short = {"-h": "--help", "-q": "--quiet", "-v": "--verbose", "-o": "--output", "-n": "--dry-run"}
    short.update({"-r": "--requirements", "-N": "--nodes"})
    flags = {"--dry-run", "--diff", "--json", "--yes", "--check", "--rebuild"}
    others = {"--out", "--outdir", "--output-dir", "--print", "--force", "--simulate", "--assume-yes", "-y", "--text"}
    seen = set()
    for name, parser in ((name, parser_of(name)) for name in COMMANDS):
        assert "examples:" in parser.epilog, name
        for option in parser._actions:
            if option.help == SUPPRESS:
                # a word of earlier releases
                continue
            assert option.help, (name, option)
            # V-02 has this word, which elsewhere would be another one for --rebuild or --overwrite
            assert not others & set(option.option_strings) - ({"--force"} if name == "extend" else set()), name
            for letter in (one for one in option.option_strings if not one.startswith("--")):
                assert short[letter] in option.option_strings, name
            long = {one for one in option.option_strings if one.startswith("--")}
            for one, letter in (("--output", "-o"), ("--dry-run", "-n")):
                assert one not in long or letter in option.option_strings, name
            if long & flags:
                assert option.nargs == 0, (name, long)
            seen |= long
    assert flags <= seen


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_are_given_twice(name):
    """H-03: both count, or the second one is refused; never the last one in silence, nor the default."""
    for option in parser_of(name)._actions:
        if option.nargs == 0 or not option.option_strings:
            continue
        default = option.default or []
        first = "one" if isinstance(default, list) else default
        values = (["one"], ["two"]) if option.nargs in ("+", "*") else (first, "two")
        options = Namespace(**{option.dest: option.default})
        option(parser_of(name), options, values[0], option.option_strings[0])
        try:
            option(parser_of(name), options, values[1], option.option_strings[0])
        except UsageError as error:
            assert f"{option.option_strings[0]} can be given only once" in str(error)
        else:
            assert getattr(options, option.dest) == [*default, "one", "two"], option.option_strings


@pytest.mark.parametrize("name", COMMANDS)
def test_statuses_of_all_commands(name, ebsif):
    """Wrong use is status 2 in every command; the statuses are in the help and in the documentation."""
    assert f"`ebsif {name} --help`" in ebsif(name, "--no-such-option", status=USAGE).err
    text = (CHECKOUT / "docs/using.md").read_text()
    for line in STATUSES.splitlines()[1:]:
        status, _, meaning = line.strip().partition("  ")
        assert f"| {status} | {meaning} |" in text


def test_lines_of_both_streams_in_one_file(tmp_path):
    """E-10: a file with standard output and standard error has the lines in the order in which they were printed."""
    (tmp_path / "mine/containers").mkdir(parents=True)
    (tmp_path / "mine/site.yaml").write_text("name: mine\ndescription: x\n")
    (tmp_path / "mine/containers/Tool.yaml").write_text("name: Tool\ncontainers:\n  - {version: 1.0}\n")
    command = [EBSIF, "check", "--catalog", tmp_path, "--site", "mine"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    said = subprocess.run(command, **both, text=True, check=False, env=environment)
    finding, summary = said.stdout.splitlines()
    assert "Tool.yaml:3: error: " in finding and summary == "0 containers: 1 error"


def test_an_account_without_a_home_directory(monkeypatch):
    """service accounts and images without /etc/passwd: no configuration and no cache, but no traceback."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert not settings.configuration_path().exists()
    assert login_for("registry.example") is None
    with pytest.raises(OSError, match="/dev/null"):
        (files.home() / ".cache").mkdir(parents=True)


def test_the_home_directory_of_nobody(ebsif):
    """an account that doesn't exist: no traceback."""
    for words in (
        ["pull", "oci:~nobody-here/x:1"],
        ["kernel", "install", "~nobody-here"],
        ["show", "~nobody-here/x.sif"],
    ):
        assert "~nobody-here" in ebsif(*words, status=FAILED).err


def test_devices_and_pipes_are_not_replaced(tmp_path):
    """For root, too, `-o /dev/null` writes into the device, and leaves it as it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        files.replace(pipe, "text")
        assert pipe.is_fifo() and os.read(reader, 9) == b"text"
    finally:
        os.close(reader)


def test_shared_files_with_umask_077(tmp_path):
    """A catalog isn't hidden from its users; in /tmp and for files of one's own the umask decides."""
    (tmp_path / "group").mkdir()
    (tmp_path / "group").chmod(0o2770)
    (tmp_path / "all").mkdir(mode=0o755)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    before = os.umask(0o077)
    try:
        for name, shared in (("group", True), ("all", True), ("tmp", True), ("all/own", False)):
            files.replace(tmp_path / name / "new/file", "text", shared)
        (tmp_path / "all/new/file").chmod(0o640)
        files.replace(tmp_path / "all/new/file", "more")
    finally:
        os.umask(before)
    modes = {"group": ["2770", "0660"], "all": ["0755", "0640"], "tmp": ["0700", "0600"], "all/own": ["0700", "0600"]}
    for name, expected in modes.items():
        assert [oct((tmp_path / name / one).stat().st_mode)[-4:] for one in ("new", "new/file")] == expected, name


def test_the_group_of_shared_files(tmp_path, monkeypatch):
    """What a directory lets its group do is not given to the person's own group, which may be everybody's."""
    owners = {}

    def chown(path, _, group):
        # an open file
        name = Path(path).readlink().name
        if name.startswith(".theirs"):
            raise PermissionError(1, "Operation not permitted", path)
        owners[name.split(".")[1]] = group

    # groups of other accounts, for accounts that may not give files to them
    stat = Path.stat

    def of_others(path, **options):
        group = os.getgid() + (os.path.realpath(path) == str(tmp_path))
        return SimpleNamespace(st_mode=stat(path, **options).st_mode, st_gid=group)

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr(Path, "stat", of_others)
    tmp_path.chmod(0o2774)
    files.replace(tmp_path / "ours", "text", shared=True)
    files.replace(tmp_path / "theirs", "text", shared=True)
    assert owners == {"ours": os.getgid() + 1}
    assert [oct(stat(tmp_path / name).st_mode & 0o7777) for name in ("ours", "theirs")] == ["0o664", "0o644"]


def test_a_file_that_cannot_be_written_is_named():
    """The error names the file, not the temporary one beside it."""
    with pytest.raises(OSError, match=r"'/proc/mine.eb'$"):
        files.replace(Path("/proc/mine.eb"), "text")


def test_errors_of_files(tmp_path, monkeypatch):
    """The path, what is wrong and what to do, without numbers of errors."""
    assert files.message_of(FileNotFoundError(2, "No such file", "x")) == "x does not exist"
    assert files.message_of(OSError("anything")) == "anything"
    # of os.getcwd
    removed = "the current directory was removed: change to another one"
    assert files.message_of(FileNotFoundError(2, "No such file")) == removed
    assert files.message_of(EbsifError("x: [Errno 104] Connection reset by peer")) == "x: Connection reset by peer"
    full = "the disk is full (make room, or choose another directory)"
    what = os.strerror(28)
    for error, begin in (
        (OSError(28, what, "x"), "x: "),
        (OSError(28, what), ""),
        (EbsifError(f"x: [Errno 28] {what}"), "x: "),
        (shutil.Error([("a", "b", f"{OSError(28, what)}")] * 2), ""),
    ):
        assert files.message_of(error) == begin + full
    assert Finding("error", "x", f"[Errno 28] {what}").message == f"x: {full}"
    for allowed, said in (
        ((), f"x: Permission denied: run `chmod u+rX {tmp_path}`"),
        ((os.X_OK,), f"x can't be created in {tmp_path}: choose another place, or run `chmod u+w {tmp_path}`"),
    ):
        monkeypatch.setattr(os, "access", lambda _, mode, allowed=allowed: mode in allowed)
        error = PermissionError(13, "Permission denied", str(tmp_path / "x"))
        assert files.message_of(error) == f"{tmp_path}/{said}"
    # what is going to be written needs more
    for allowed, missing in (((), "rwX"), ((os.X_OK,), "w")):
        monkeypatch.setattr(os, "access", lambda _, mode, allowed=allowed: mode in allowed)
        with pytest.raises(
            EbsifError, match=f"/x can't be created in .*: choose another place, or run `chmod u.{missing} "
        ):
            files.write_new({tmp_path / "x": ""})


def test_doctor_names_what_is_missing(tmp_path):
    """On a bare machine each missing part is listed with a remedy; status 1."""
    result = run("doctor", env={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert result.returncode == 1
    missing = [line for line in result.stdout.splitlines() if line.startswith("error: ")]
    assert len(missing) == 5
    assert any("neither apptainer nor singularity is on PATH" in line for line in missing)
    assert re.search(r"^\d+ checks: 5 errors", result.stderr, re.MULTILINE)


# The licenses of libraries that may be required: those that go with GPL-2.0-only.
LICENSES = re.compile(r"MIT|BSD|PSF|GPLv2|GPL-2\.0")


def license_of(metadata):
    """Return the license of an installed package, from whichever field has it, as an expression."""
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("Lic")]
    return metadata.get("License-Expression") or " AND ".join(classifiers) or metadata.get("License")


def test_licenses_of_what_is_required():
    """A-03: every library that comes with ebsif has a license that goes with GPL-2.0-only; others are extras."""
    seen, wanted = set(), ["ebsif"]
    while wanted:
        name = wanted.pop()
        package = distribution(name)
        seen.add(name)
        text = license_of(package.metadata)
        assert all(any(map(LICENSES.search, part.split(" OR "))) for part in text.split(" AND ")), (name, text)
        for one in map(Requirement, package.requires or []):
            if one.name not in seen and (not one.marker or one.marker.evaluate({"extra": ""})):
                wanted.append(one.name)
    # also what is required by what is required
    assert {"easybuild-framework", "pydantic", "typing-extensions"} <= set(seen)
    assert {"audit", "completion", "crate"} <= set(distribution("ebsif").metadata.get_all("Provides-Extra"))


@pytest.mark.parametrize("words", [["completion", "bash"], ["--help"]])
def test_without_what_completes_command_lines(words, monkeypatch, capsys):
    """A-03: argcomplete is optional: one line says how to get it, and nothing else needs it."""
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    install = f"run `{sys.executable} -m pip install argcomplete`\n"
    said = f"ebsif: the library argcomplete is missing: {install}" if words[0] == "completion" else ""
    assert (main(words), capsys.readouterr().err) == (FAILED if said else 0, said)


# Runs the command with a Python that has no EasyBuild.
WITHOUT_EASYBUILD = """\
import sys
sys.modules["easybuild.framework"] = sys.modules["easybuild.tools"] = None
from ebsif.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "command",
    [["upgrade", "PyTorch/2.7.1", "PyTorch/2.7.1", "--site", "lumi"], ["check", "--quick"], ["scan"], ["installed"]],
    ids=lambda words: words[0],
)
def test_the_modules_of_easybuild_are_named(tmp_path, command):
    """F-05: a command that can't be imported without EasyBuild, too, names the modules of the site's profile."""
    site = {} if "--site" in command else {"EBSIF_SITE": "lumi"}
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), **site}
    command = [sys.executable, "-c", WITHOUT_EASYBUILD, *command]
    said = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    needed = f"ebsif: this command needs EasyBuild, which {sys.executable} can't import: run `module load LUMI "
    assert said.returncode == 3 and said.stderr.startswith(needed)


def test_doctor_names_the_modules_of_easybuild(tmp_path, monkeypatch, ebsif):
    """F-05: doctor names the modules of the site's profile if eb is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("EBSIF_SITE", "lumi")
    # eb may be beside the Python that runs ebsif
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert "not on PATH: run `module load LUMI partition/container EasyBuild-user`\n" in ebsif("doctor", status=1).out


def test_doctor_says_when_a_program_does_not_run(tmp_path):
    """I-04: a program that exists but fails is not reported as ok; nor is a runtime without what mounts images."""
    for name in ("apptainer", "mksquashfs"):
        write_program(tmp_path / name, "#!/bin/sh\nexit 127\n")
    result = run("doctor", env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)})
    assert "mksquashfs doesn't run (exit status 127)" in result.stdout
    assert f"error: container runtime: {tmp_path}/apptainer doesn't run" in result.stdout
    (tmp_path / "apptainer").write_text("#!/bin/sh\necho apptainer version 1\n")
    result = run("doctor", env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)})
    assert f"ok: container runtime: apptainer version 1, {tmp_path}/apptainer\n" in result.stdout
    # root needs neither, and is who runs this in the container of test-pythons
    assert os.geteuid() == 0 or ": squashfuse: " in result.stdout or ": FUSE: " in result.stdout


def test_doctor_lists_packages_that_would_shadow(tmp_path):
    """S002-41: packages in ~/.local are listed, with those that would shadow the image's."""
    folder = tmp_path / ".local/lib/python3.11/site-packages"
    for name, version in (("numpy", "1.0"), ("mine", "2.0"), ("Flash.Attn", "2.7")):
        add_package(folder, name, version)
    # left behind by an interrupted pip
    (folder / "~umpy-1.0.dist-info").mkdir()
    root = tmp_path / "installation"
    (root / "share/ebsif").mkdir(parents=True)
    record = {"image": {"file": "a.sif"}, "image_packages": ["numpy==2.0", "torch==2.0", "flash_attn==2.8"]}
    (root / "share/ebsif/lock.json").write_text(json.dumps(record))
    result = run("doctor", env={"PATH": str(tmp_path), "HOME": str(tmp_path), "CONTAINERROOT": str(root)})
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("note")]
    packages = "Flash.Attn 2.7, mine 2.0, numpy 1.0"
    assert f"{packages}; would shadow the image's Flash.Attn, numpy; modules ignore them" in line


def test_a_python_that_is_too_old_is_named(monkeypatch):
    """S000-16: if the host's Python is too old, the error names the version needed and where to find one."""
    with pytest.raises(SystemExit, match=r"Python 3.9 or newer is needed, this is 3.6 .*module load cray-python"):
        check_python((3, 6))
    check_python((3, 9))
    with monkeypatch.context() as patch, pytest.raises(SystemExit, match="this is 3.8"):
        patch.setattr(sys, "version_info", (3, 8, 20))
        main(["list"])
    # the old Python must be able to parse the file that prints the message: valid syntax for 3.6
    ast.parse((CHECKOUT / "generator/ebsif/cli.py").read_text(), feature_version=(3, 6))


def test_readable_sizes_and_numbers():
    """An image of 1 MB is not shown as 0.00 GB, nor one error as "1 errors"."""
    sizes = [format_size(number) for number in (4_200_000, 999_000_000, 12_345_000_000)]
    assert sizes == ["4.2 MB", "999.0 MB", "12.3 GB"]
    assert [output.format_count(number, "error") for number in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]


UNREADABLE = "ERROR: Failed to parse configuration options: "
INCLUDES = "Correct include-easyblocks (/site/generic/other.py), or the file there"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("ERROR: You seem to be running EasyBuild with root privileges.", "Run this as the user who installs software"),
        ("ERROR: Can't find path", "Install ebsif in the Python environment of that eb"),
        # F-03
        (f"{UNREADABLE}No files found using glob pattern '/site/*/*.py:/own/*.py'", INCLUDES),
        (
            f"{UNREADABLE}Failed to import easyblock easybuild.easyblocks.generic.other from /tmp/eb-1/included-"
            "easyblocks-1/easybuild/easyblocks/generic: No module named 'x'",
            INCLUDES,
        ),
    ],
)
def test_doctor_names_the_remedy_if_eb_fails(monkeypatch, said, remedy):
    """EasyBuild refuses to run as root before anything else, so advice to install ebsif elsewhere would be wrong."""
    monkeypatch.setattr(doctor.framework, "session", lambda: None)
    monkeypatch.setattr(doctor.framework, "INCLUDED", ["/site/generic/other.py"])
    answer = subprocess.CompletedProcess([], 1, stdout=f"{said}\n")
    monkeypatch.setattr(doctor.running, "run", lambda *_, **__: answer)
    (found,) = doctor.find_easyblocks()
    assert f"{said.rstrip('.')}. {remedy}" in found.text


def test_a_new_software_touches_data_only():
    """Neither packaging nor code names the directories of software or sites."""
    files = ("setup.py", "pyproject.toml", "MANIFEST.in")
    words = set(re.findall(r"\w+", " ".join((CHECKOUT / name).read_text() for name in files)))
    software = {path.name for path in (CHECKOUT / "easyconfigs").glob("?/*")}
    places = {path.parent.name for path in (CHECKOUT / "generator/ebsif/catalog/sites").glob("*/site.yaml")}
    assert software and places and not words & (software | places)


def test_listing_the_catalog_imports_little():
    """Importing takes most of the time of `ebsif list`: not EasyBuild's framework, nor what inspects installations."""
    command = [sys.executable, "-X", "importtime", EBSIF, "list", "--site", "lumi"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = set(re.findall(r"(\S+)$", listed.stderr, re.MULTILINE))
    assert "PyTorch/" in listed.stdout and "ebsif.catalog.records" in imported
    assert not imported & {"easybuild.tools", "ebsif.eb", "ebsif.installed", "jinja2", "rich", "urllib.request"}
