"""Values of a module file: what comes out of Lua and Tcl is what went in."""

import subprocess

import pytest
from easybuild.easyblocks.generic.containermodule import ContainerModule
from hypothesis import given, settings
from hypothesis import strategies as st

# every character but surrogates (no file holds them) and NUL (no environment variable does)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# a root that turns up in random texts, with a character of the syntaxes
ROOT = "0$"
INTERPRETERS = {
    "Lua": (["lua", "-"], f"local root = '{ROOT}'\nfunction setenv(name, value) io.write(value) end\n"),
    "Tcl": (
        ["tclsh"],
        f"set root {{{ROOT}}}\n"
        "fconfigure stdout -translation binary -encoding utf-8\nfconfigure stdin -encoding utf-8\n"
        "proc setenv {name value} { puts -nonewline $value }\n",
    ),
}


def run(syntax, text, before=""):
    """Run statements of a module file in the real interpreter; setenv prints the value."""
    command, prelude = INTERPRETERS[syntax]
    if syntax == "Tcl":  # tclsh reads a program from standard input in the encoding of the locale
        command = ["tclsh", "-encoding", "utf-8", "/dev/stdin"]
    return subprocess.run(
        command, input=(prelude + before + text).encode(), stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout.decode()


@pytest.mark.parametrize("syntax", INTERPRETERS)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS | st.from_regex(r"(0\$|[\$0.\"{}\\ ])+", fullmatch=True), min_size=1, max_size=20))
def test_every_text_survives_the_module_syntax(syntax, texts):
    """Quotes, backslashes, newlines, brackets, dollars and braces are the value's, not the syntax's."""
    module = ContainerModule.for_syntax(syntax, ROOT)
    # a marker between them, in a condition, because the bodies of Tcl's `if` are read twice
    program = "".join(
        module.when(
            {"Lua": "true", "Tcl": "1"}[syntax], module.setenv("X", text) + module.setenv("X", "\n--next--\n")
        )
        for text in texts
    )
    assert run(syntax, program) == "".join(text + "\n--next--\n" for text in texts)


@pytest.mark.parametrize("syntax", INTERPRETERS)
def test_a_variable_collects_what_was_decided(syntax):
    """declare, assign, append and append_variable build one value; conditions choose."""
    module = ContainerModule.for_syntax(syntax, ROOT)
    program = (
        module.comment("a comment")
        + module.declare("binds", "a")
        + module.declare("more", "")
        + module.when(module.is_set("more"), module.append("binds", ",wrong"), module.append("binds", ",b"))
        + module.assign("more", ",c")
        + module.when(module.is_set("more"), module.append_variable("binds", "more"))
        + module.setenv_from("X", "binds")
    )
    assert run(syntax, program) == "a,b,c"


@pytest.mark.parametrize("syntax", INTERPRETERS)
@pytest.mark.parametrize("unloading", [True, False])
def test_statements_for_unloading_run_whatever_the_condition(syntax, unloading):
    """A conditional change of the environment is undone on unload also when the condition has become false."""
    module = ContainerModule.for_syntax(syntax, ROOT)
    mode = "unload" if unloading else "load"
    before = {
        "Lua": f'function mode() return "{mode}" end\n',
        "Tcl": f'proc module-info {{what name}} {{ return [string equal $name "{mode}"] }}\n',
    }[syntax]
    program = (
        module.declare("found", "")
        + module.when_or_unloading(module.is_set("found"), module.setenv("X", "value"))
    )
    assert run(syntax, program, before) == ("value" if unloading else "")


def test_an_unknown_syntax_is_an_error():
    """There are two."""
    with pytest.raises(KeyError):
        ContainerModule.for_syntax("JSON", ROOT)
