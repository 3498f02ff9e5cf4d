"""Which test tries each block of commands in the documentation, and whether the commands that it names exist."""

import ast
import re
import shlex
import sys

import pytest
from ebsif import cli
from support import CHECKOUT, CONTAINER_FILES, blocks, tracked

sys.path.insert(0, str(CHECKOUT / "docs"))

from manual import build, markdown, reference

# The tests that run the blocks of bash in a document: one for all of them, or one for each, in order. A block that
# can't run as it stands is marked in the document, in the line before it: <!-- not run: why; what runs the same -->
TRIED = {
    "docs/adopting.md": "test_selftest.py::test_with_a_scheduler",
    "README.md": "test_documentation.py::test_the_commands_of_the_readme",
    "docs/caches.md": "test_documentation.py::test_the_commands_for_running",
    "docs/catalog.md": "test_documentation.py::test_the_commands_of_the_catalog",
    "docs/debugging.md": [
        "test_debugging.py::test_an_exception_stops_in_pdb",
        "test_debugging.py::test_a_breakpoint_of_pdb_in_the_first_rank",
        "test_editors.py::test_debugging",
        "test_debugging.py::test_a_breakpoint_of_an_editor_in_one_rank",
        "test_debugging.py::test_ranks_that_hang_or_crash_say_where",
    ],
    "docs/editors.md": [
        "test_editors.py::test_the_interpreter_is_called_by_its_path",
        "test_editors.py::test_a_session_of_open_ondemand",
    ],
    "docs/for-administrators.md": "test_documentation.py::test_the_other_quick_starts",
    "docs/for-easybuild.md": "test_documentation.py::test_the_other_quick_starts",
    "docs/for-users.md": "test_documentation.py::test_the_quick_start_for_users",
    "docs/host-libraries.md": "test_host_libraries.py::test_what_an_image_would_get",
    "docs/images-in-place.md": "test_images_in_place.py::test_the_page_and_its_workflow",
    "docs/jupyter.md": [
        "test_notebooks.py::test_a_notebook_in_a_jupyter_of_the_host",
        "test_notebooks.py::test_the_same_notebook_in_jupyterlab_of_the_container",
    ],
    "docs/lumi/02-environment.md": "test_laif.py::guide",
    "docs/lumi/02-squashfs.md": "test_laif.py::guide",
    "docs/lumi/03-file-formats.md": "test_laif.py::guide",
    "docs/lumi/05-many-nodes.md": "test_laif.py::guide",
    "docs/lumi/10-inference.md": "test_laif.py::guide",
    "docs/lumi/for-lust.md": [
        "test_site_easybuild.py::test_an_older_easybuild_is_not_disturbed",
        "test_site_easybuild.py::test_the_switch_from_recipes_to_records",
        "test_layouts.py::test_installed_with_eb",
    ],
    "docs/new-site.md": "test_tutorial.py::test_the_tutorial_for_a_new_site",
    "docs/ranks.md": "test_host_libraries.py::test_memory_that_killed_ranks_leave",
    "docs/registries.md": "test_documentation.py::test_the_commands_of_the_readme",
    "docs/running.md": "test_documentation.py::test_the_commands_for_running",
    "docs/tracking.md": [
        "test_tracking.py::test_the_command_that_adds_them",
        "test_tracking.py::test_both_through_ssh",
    ],
    "docs/upgrading.md": "test_layouts.py::test_installed_with_eb",
    "docs/using.md": "test_documentation.py::test_the_commands_for_extending_by_hand",
}

# What begins a line of commands.
COMMAND = re.compile(
    r"^\s*(?:\$ )?(?:[A-Z_]+=\S* )*(?:ebsif|eb|module|singularity|apptainer|srun|sbatch|scancel|"
    r"salloc|pip|python3?|make|export|source|reframe|git|scripts/\S+) (?!\s)"
)
MARK = re.compile(r"<!-- not run: (.*) -->\n")


def documents():
    """Yield name and text of every document."""
    for path in tracked("*.md"):
        name = str(path.relative_to(CHECKOUT))
        if build.Manual.is_document(name):
            yield name, path.read_text(encoding="utf-8")


def fences():
    """Yield document, language, text and mark (or "") of every block in the documentation."""
    for name, text in documents():
        before = ""
        for token in markdown.PARSER.parse(text):
            if token.type == "fence":
                mark = MARK.fullmatch(before)
                yield name, token.info, token.content, mark[1] if mark else ""
            before = token.content


def test_every_block_of_commands_is_tried():
    """W-09: each block of bash is run by a test, or marked with the reason why it can't be run as it stands."""
    assert {name for name, language, _, mark in fences() if language == "bash" and not mark} == set(TRIED)
    for name, tests in TRIED.items():
        tests = [tests] if isinstance(tests, str) else tests
        if len(tests) > 1:
            assert len(tests) == len(blocks(name)), f"{name}: name the test of each block"
        for test in tests:
            file, _, function = test.partition("::")
            text = (CHECKOUT / "tests/integration" / file).read_text()
            # by its path, or by its name in a folder
            code = code_of(text, function)
            assert repr(name) in code or repr(name.split("/")[-1].removesuffix(".md")) in code, f"{test}: {name}"


def test_marks_give_their_reason():
    """W-09: a mark names a test (FILE or FILE::TEST) with the commands of ebsif in its block; marks are few."""
    marks = [fence for fence in fences() if fence[3]]
    assert 0 < len(marks) <= 25
    for name, language, text, mark in marks:
        assert language == "bash", (name, mark)
        assert re.match(r"\w+ .*; tests/", mark), (name, mark)
        tests = re.findall(r"(tests/[\w/.-]*\w)(?:::(\w+))?", mark)
        assert tests, (name, mark)
        texts = [((CHECKOUT / file).read_text(encoding="utf-8"), function) for file, function in tests]
        code = "".join(code_of(text, function) if function else text for text, function in texts)
        for words in ebsif_commands(text):
            assert re.search(rf"\bebsif {words[1]}\b|[\"']{words[1]}[\"']", code), (name, mark, words)


def code_of(text, function):
    """Return the code of a function, and of what it uses of its file, without comments; fails if there is none."""
    defined = {}
    for one in ast.parse(text).body:
        names = [node for target in getattr(one, "targets", []) for node in ast.walk(target)]
        names = [one.name] if hasattr(one, "name") else [node.id for node in names if isinstance(node, ast.Name)]
        defined.update(dict.fromkeys(names, one))
    wanted, used = [defined[function]], []
    while wanted:
        used.append(wanted.pop())
        # fixtures are arguments
        names = [getattr(node, "id", getattr(node, "arg", None)) for node in ast.walk(used[-1])]
        wanted += [one for one in dict.fromkeys(map(defined.get, names)) if one and one not in [*used, *wanted]]
    return "\n".join(map(ast.unparse, used))


def test_commands_are_in_blocks_of_bash():
    """W-09: no block of commands escapes these checks by having no language, or another one."""
    for name, language, text, _ in fences():
        if language in ("", "text", "sh", "console", "shell"):
            assert [line for line in text.splitlines() if COMMAND.match(line)] == [], name


# A command that deletes files, and what stands before it in its line.
DELETION = re.compile(r"^(.*?)\b(?:rm|rmdir|unlink|find .* -delete) ", re.MULTILINE)


def test_no_block_deletes_after_an_unchecked_command():
    """People paste whole blocks, so what deletes is the first command, or follows `&&`."""
    number = 0
    for name, language, text, _ in fences():
        if language == "bash":
            for found in DELETION.finditer(text):
                before = text[: found.start()] + found[1]
                assert not before.strip() or found[1].rstrip().endswith("&&"), (name, found[0])
                number += 1
    assert number >= 4


def test_no_message_advises_deleting_after_an_unchecked_command():
    """No message, template or help text tells people to delete after a command that may have failed."""
    for folder in ("generator/ebsif", "easyblocks"):
        for path in tracked(folder):
            if path.suffix in (".py", ".j2", ".lua", ".tcl"):
                text = SPLIT.sub("", path.read_text(encoding="utf-8"))
                assert not re.findall(r".*squashfs\s*(?:;|\\n|\n)\s*rm .*", text), path


def ebsif_commands(text):
    """Yield the words of each command of ebsif in a block of bash."""
    for line in text.replace("\\\n", " ").splitlines():
        for found in re.findall(r"(?:^|[|;&(] *|nodes=2 )(ebsif [a-z].*)", line):
            lexer = shlex.shlex(found, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
            yield words[: next((at for at, word in enumerate(words) if word[0] in "|;&)><"), None)]


def commands_of_ebsif():
    """Yield (document, words) of each command of ebsif in blocks of bash, and in the texts."""
    for name, language, text, _ in fences():
        if language == "bash":
            for words in ebsif_commands(text):
                yield name, words
    for name, text in documents():
        for span in re.findall(r"`(ebsif [a-z][^`]*)`", text):
            yield name, span.split()


@pytest.fixture(scope="module")
def known():
    """The options of each command."""
    return {name: set(reference.subparser(name)._option_string_actions) for name in cli.COMMANDS}


def test_commands_and_options_of_ebsif_exist(known):
    """W-09, W-03: blocks and texts name no command or option that ebsif doesn't have."""
    number = 0
    for name, words in commands_of_ebsif():
        words = words[: words.index("--")] if "--" in words else words
        assert words[1] in known, (name, words)
        options = {word.partition("=")[0].rstrip(".,;:") for word in words[2:] if word.startswith("-") and word != "-"}
        assert options <= known[words[1]], (name, words)
        number += 1
    assert number > 150


# The names of commands and run scripts begin with these words, and hardly anything else in the documents does, except
# for options.
OF_MODULES = re.compile(
    r"(?<!--)\b(?:(?:conda-python|container|extend|find|get|init-conda|list|make|remove|stage|start|unmake|with)-[\w-]+(?:\.py)?"
    r"|(?<=/runscripts/|\$RUNSCRIPTS/)[\w.-]+)"
)


def test_commands_and_run_scripts_of_modules_exist():
    """S002-72: documents name only commands, run scripts and variables that modules have."""
    known = {path.name for folder in ("bin", "runscripts") for path in (CONTAINER_FILES / folder).iterdir()}
    # which the installation writes
    known |= {"image-constraints.txt", "image-overrides.txt"}
    found = set()
    for name, text in documents():
        named = set(OF_MODULES.findall(text))
        assert named <= known, name
        assert set(re.findall(r"\w*CONTAINERROOT", text)) <= {"CONTAINERROOT"}, name
        found |= named
    assert len(found) > 10


# In the code, a message may be split over lines, each with its own quotes.
SPLIT = re.compile(r"""["']\s*(?:\.\.)?\s*f?["']""")


def test_messages_of_the_troubleshooting_page_exist():
    """W-09: each message that the page explains is one of ebsif, its modules or the tool that the row names."""
    code = ""
    for path in tracked("*"):
        if path.relative_to(CHECKOUT).parts[0] in ("easyblocks", "generator") and path.suffix != ".yaml":
            code += path.read_text(encoding="utf-8", errors="replace")
    code = " ".join(SPLIT.sub("", code).split())
    messages = re.findall(r"^\| `(.*?)`(?: [^|]*)?\|", (CHECKOUT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    # the rows of other programs begin with their name; two errors are those of Python and of the runtime
    others = {"ModuleNotFoundError", "unknown compression algorithm", "No space left on device"}
    for message in set(messages) - others:
        for part in message.split("..."):
            assert part.strip() in code, message
    assert len(messages) > 20


def test_nothing_tells_people_to_install_what_is_not_published():
    """N-06: ebsif is on no package index, so whoever registers the name there must reach nobody."""
    wrong = re.compile(r"pip3? install (?:-\S+ )*['\"]?ebsif\b(?!-)")
    for path in tracked("*.md", "*.yml", "*.yaml", "*.py", "*.j2", "*.sh"):
        if path.name != "test_command_blocks.py":
            assert not wrong.search(path.read_text()), path
