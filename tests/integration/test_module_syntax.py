"""Values in module files are the same after Lua or Tcl has read them."""

import subprocess

import pytest
from easybuild.easyblocks.generic.container.modulefile import SYNTAXES
from hypothesis import given, settings
from hypothesis import strategies as st

# every character except surrogates, which no file can contain, and NUL, which no environment variable can
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# a directory that occurs in the random texts, with a special character of either syntax
ROOT = "0$"
INTERPRETERS = {
    "Lua": (
        ["lua", "-"],
        f"local root = '{ROOT}'\nfunction setenv(name, value) io.write(value) end\nfunction mode() return 'load' end\n",
    ),
    "Tcl": (
        ["tclsh"],
        f"set root {{{ROOT}}}\n"
        "fconfigure stdout -translation binary -encoding utf-8\nfconfigure stdin -encoding utf-8\n"
        "proc setenv {name value} { puts -nonewline $value }\n"
        "proc module-info {what name} { return [string equal $name load] }\n",
    ),
    "Shell": (["bash", "/dev/stdin"], f"ebsif_root='{ROOT}'\nebsif_put() {{ printf %s \"$2\"; }}\n"),
}


def run(syntax, text):
    """Run statements of a module file in the real interpreter; setenv prints the value."""
    module = SYNTAXES[syntax](ROOT)
    functions = module.functions
    command, prelude = INTERPRETERS[syntax]
    if syntax == "Shell":
        # the file as it is installed
        prelude, text = "", module.whole(prelude + text)
    if syntax == "Tcl":  # tclsh would read a program from standard input in the locale's encoding
        command = ["tclsh", "-encoding", "utf-8", "/dev/stdin"]
    return subprocess.run(
        command, input=(prelude + functions + text).encode(), stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout.decode()


@pytest.mark.parametrize("syntax", INTERPRETERS)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS | st.from_regex(r"(0\$|[\$0.\"{}\\ ])+", fullmatch=True), min_size=1, max_size=20))
def test_every_text_survives_the_module_syntax(syntax, texts):
    """Quotes, backslashes, newlines, brackets, dollars and braces stay part of the value."""
    module = SYNTAXES[syntax](ROOT)
    # printed between values, within a condition because Tcl parses the body of `if` twice
    program = "".join(
        module.when(
            {"Lua": "true", "Tcl": "1", "Shell": "-n 1"}[syntax],
            module.setenv(f"X{n}", text) + module.setenv(f"Y{n}", "\n--next--\n"),
        )
        for n, text in enumerate(texts)
    )
    assert run(syntax, program) == "".join(text + "\n--next--\n" for text in texts)


@pytest.mark.parametrize("syntax", INTERPRETERS)
def test_a_variable_collects_values(syntax):
    """declare, assign and add build one value without duplicates, depending on conditions."""
    module = SYNTAXES[syntax](ROOT)
    program = (
        module.comment("a comment")
        + module.declare("binds", "a:b")
        + module.declare("more", "")
        + module.when(module.is_set("more"), module.add("binds", "wrong"), module.add("binds", "b"))
        + module.assign("more", "c")
        + module.when(module.is_set("more"), module.add("binds", "a:b") + module.add("binds", "a"))
        + module.setenv_from("X", "binds")
    )
    assert run(syntax, program) == "a:b,b,a"


@pytest.mark.parametrize("syntax", INTERPRETERS)
def test_messages_contain_values(syntax):
    """Text and variables form one message."""
    module = SYNTAXES[syntax](ROOT)
    program = module.declare("found", "a $ [b]") + module.fail_on_load("one ", "found", " and " + ROOT)
    said = {
        "Lua": "function LmodError(text) io.write(text) end\n",
        "Tcl": "proc error {text args} { puts -nonewline $text }\n",
        "Shell": "ebsif_refuse() { printf %s \"$1\"; }\n",
    }
    assert run(syntax, said[syntax] + program) == "one a $ [b] and " + ROOT


def test_looking_for_packages_executes_nothing_of_the_container():
    """T-12: `module spider` reads every module of a tree: it neither runs what is for loading nor looks into files."""
    module = SYNTAXES["Lua"](ROOT)
    listing = module.list_packages("/venv", ["image_packages"], {f"{ROOT}/file": 5, f"{ROOT}/other": 0})
    loading = module.unless_searched(module.functions + module.setenv("X", "loaded"))
    said = {}
    for mode in ("spider", "load"):
        for time in (5, 6):
            prelude = (
                f"local root = '{ROOT}'\nfunction mode() return '{mode}' end\n"
                "function setenv(_, value) io.write(value) end\nfunction isDir() io.write('looks ') end\n"
                f"lfs = {{attributes = function(path) return path == '{ROOT}/file' and {time} or nil end}}\n")
            said[mode, time] = subprocess.run(["lua", "-"], input=(prelude + loading + listing).encode(), check=True,
                                              capture_output=True, timeout=300).stdout.decode()
    assert said == {("spider", 5): "", ("spider", 6): "looks ", ("load", 5): "loaded", ("load", 6): "loaded"}


@pytest.mark.parametrize("bind, looks", [("", ""), ("/data", "looks")])
def test_unloading_only_restores_variables(bind, looks):
    """T-12: a Tcl module looks for nothing when it is unloaded, unless there may be binds of the person's to drop."""
    module = SYNTAXES["Tcl"](ROOT)
    text = module.functions + module.restore_on_unload(
        module.when("[puts -nonewline looks; expr 1]", module.setenv("X", "{value}\n")) + module.default_env("Y", "1")
        + module.setenv_from("X", "unknown") + module.put_both_from("_B", "unloading") + module.container_env("C", "1")
        + module.put_list("_D", ":", "a"))
    prelude = (
        f"set root {{{ROOT}}}\nproc setenv {{name value}} {{ puts -nonewline \" $name\" }}\n"
        "proc module-info {what name} { return [string equal $name unload] }\n")
    if bind:
        text = text.replace(" $unknown", " {}")
        prelude += f"set env(SINGULARITY_BIND) {bind}\n"
    said = subprocess.run(["tclsh"], input=(prelude + text).encode(), capture_output=True, check=True, timeout=300)
    both = "".join(f" SINGULARITY{name} APPTAINER{name}" for name in ("_B", "ENV_C", "_D"))
    assert said.stdout.decode() == f"{looks} X Y{both}" and not said.stderr
