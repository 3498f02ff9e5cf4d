"""
What a module decides when it is loaded: cases for all programs that decide it (H-02).

Each program gets the same installation, variables and files: container.lua and container.tcl in the modules tools,
container.sh, and what uses that: with-module, wrappers, and kernels. test_module_programs.py compares what they set
with the case, and with each other. In texts, {root} is the installation, and {here} a directory with the files of the
case.
"""

import dataclasses
from collections.abc import Mapping

USER_SOFTWARE = "EBSIF_MOUNTED_USER_SOFTWARE"
HAS_USER_SOFTWARE = "user_software :ro,image-src=\n"
REFUSED = "is not the full path of a directory that can be bound into a container."
BOTH = "has both user-software.squashfs and the directory user-software: the file is used"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is there, and what has to follow."""

    name: str
    # variables of the person
    variables: Mapping = dataclasses.field(default_factory=dict)
    # more lines of module.conf
    settings: str = ""
    # files below {here}; directories end with a slash
    files: tuple = ()
    # the installation is in this directory below {here}
    folder: str = "software"
    # some of the variables of the loaded module
    loaded: Mapping = dataclasses.field(default_factory=dict)
    # a part of the message
    said: str = ""
    # whether the module can't be loaded
    refused: bool = False


def own(name, path, *files, mounted="", said=""):
    """Return a case with a directory of the person's user software; without `mounted` it is refused."""
    loaded = {USER_SOFTWARE: mounted} if mounted else {}
    return Case(
        f"own user software: {name}",
        {"EBSIF_USER_SOFTWARE": path},
        HAS_USER_SOFTWARE,
        files,
        loaded=loaded,
        said=said or ("" if mounted else REFUSED),
        refused=not mounted,
    )


def named(name, folder):
    """Return a case with a directory whose name has characters that mean something elsewhere."""
    return own(name, f"{{here}}/{folder}", f"{folder}/user-software/", mounted=f"{{here}}/{folder}/user-software")


def odd(name, folder):
    """Return a case with a directory whose name can't be in a bind."""
    return own(name, f"{{here}}/{folder}", f"{folder}/user-software/")


def lists(name, apptainer, singularity, loaded):
    """Return a case with lists of the person's for each runtime, and what follows for both."""
    binds = {"APPTAINER_BINDPATH": apptainer, "SINGULARITY_BINDPATH": singularity}
    own = {variable: value for variable, value in binds.items() if value}
    return Case(f"lists: {name}", own, loaded=dict(zip(binds, loaded)))


BINDS = "{root}/share/ebsif/module.conf:/share/ebsif/module.conf:ro"
VALUES = (
    *("x", "\u00e9 \u4e2d", "a  b", 'it\'s "quoted"', "$HOME ${HOME} $(id) `id`", "{braces} [id] ;", "a\\b\\", "\\"),
    *("&", "100%", "a,b:c", "--", "]==]", "a\\nb", "\u2028"),
)
OWN = "{here}/own"
FILE_AND_DIRECTORY = ("own/user-software.squashfs", "own/user-software/")
CASES = [
    Case("nothing special", loaded={"SIF": "{root}/image.sif", "CONTAINERROOT": "{root}", USER_SOFTWARE: ""}),
    # which directories for user software
    own("a directory", OWN, "own/user-software/", mounted=f"{OWN}/user-software"),
    own("a file", OWN, "own/user-software.squashfs", mounted=f"{OWN}/user-software.squashfs"),
    own("both", OWN, *FILE_AND_DIRECTORY, mounted=f"{OWN}/user-software.squashfs", said=BOTH),
    own("empty, so that the module's is used", OWN, "own/", "software/user-software/", mounted="{root}/user-software"),
    own("another spelling", "{here}/././/own/.//", "own/user-software/", mounted=f"{OWN}/user-software"),
    named("blanks", "my own "),
    named("a comma and a colon", "a,b:c"),
    named("shell", "$(id)`id`;&*?[x]{{}}'\"\\x"),
    named("none of ASCII", "\u00e9\u3000,\u2028\u0085"),
    own("relative", "own", "own/user-software/"),
    own("missing", OWN),
    own("no directory", OWN, "own"),
    odd("a tab", "a\tb"),
    odd("a line break", "a\nb"),
    odd("a control character", "a\x7fb"),
    odd("another control character", "a\x1b[31mb"),
    odd("a blank after a comma", "a, b"),
    odd("a blank before a colon", "a :b"),
    # values that the module sets, and those that the person's replace
    *(
        Case(
            f"a value: {value!r}",
            settings=f"set OF_MODULE {value}\ndefault OF_SITE {value}\ndefault *ENV_OF_SITE {value}\n",
            loaded=dict.fromkeys(
                ("OF_MODULE", "OF_SITE", "APPTAINERENV_OF_SITE", "SINGULARITYENV_OF_SITE"),
                value.replace("{", "{{").replace("}", "}}"),
            ),
        )
        for value in VALUES
    ),
    Case(
        "a default that the person has set",
        {"OF_SITE": "m\u00efne", "SINGULARITYENV_OF_SITE": "m\u00efne"},
        settings="default OF_SITE x\ndefault *ENV_OF_SITE x\n",
        loaded={"OF_SITE": "m\u00efne", "SINGULARITYENV_OF_SITE": "m\u00efne"},
    ),
    # G-07: what the person has for either runtime
    lists("none", "", "", [BINDS, BINDS]),
    lists("of one", "/x:/y,/z", "", [f"/x:/y,/z,{BINDS}"] * 2),
    lists("of the other", "", "/x\\,y", [f"/x\\,y,{BINDS}"] * 2),
    lists("of both, which are the runtime's to judge", "/x", "/y,/x", [f"/x,{BINDS}", f"/y,/x,{BINDS}"]),
    # modules tools would run the second line as a command
    *(
        Case(f"a line break in {name}", {name: "/x\necho run"}, said=f"{name} has a line break", refused=True)
        for name in ("SINGULARITY_BINDPATH", "APPTAINER_BINDPATH", "SINGULARITYENV_PREPEND_PATH")
    ),
    Case(
        "search paths of the person",
        {"SINGULARITYENV_PREPEND_PATH": "/mine"},
        loaded=dict.fromkeys(("APPTAINERENV_PREPEND_PATH", "SINGULARITYENV_PREPEND_PATH"), "/mine:/runscripts"),
    ),
    # binds
    *(
        Case(
            f"a bind: {line!r}",
            settings=f"bind {line}\n",
            files=files,
            loaded=dict.fromkeys(("APPTAINER_BINDPATH", "SINGULARITY_BINDPATH"), f"{BINDS},{bind}" if bind else BINDS),
        )
        for line, files, bind in (
            ("./a b:/b:ro", ("software/a b",), "{root}/a b:/b:ro"),
            ("?./none", (), ""),
            ("  ? ./none", (), ""),
            ("?  ./x\\,y\\:z:/b ", ("software/x,y:z",), "{root}/x\\,y\\:z:/b"),
            ("# ./none", (), ""),
            ("?", (), ""),
            ("? # ./none", (), ""),
            ("./a\u00e9\\b", ("software/a\u00e9\\b",), "{root}/a\u00e9\\b"),
        )
    ),
    Case(
        "a bind that is needed",
        settings="bind ./none:/b\nbind_remedy Ask.\n",
        refused=True,
        said="/none, which doesn't exist on this node. Ask.",
    ),
    Case(
        "an image of the site",
        settings="image one.sif\nimage_root_variable SITE\nimage_root /none\n",
        variables={"SITE": "{here}/images"},
        files=("images/one.sif", "software/away/"),
        loaded={"SIF": "{root}/image.sif"},
    ),
    Case(
        "where something is", settings="where ./none A 1\nwhere user_software B 2\nwhere / C  3\n", loaded={"C": " 3"}
    ),
    # S003-14: wrappers and kernels leave it out
    Case(
        "variables of the host",
        {"PYTHONSTARTUP": "/none", "KEPT": "x"},
        "set EBSIF_UNSET PYTHONSTARTUP NONE\n",
        loaded={"PYTHONSTARTUP": "/none"},
    ),
    # PATH is compared between the programs
    Case(
        "a program that mounts images",
        settings="mounter true\nmounter no-such-program\n",
        loaded={"EBSIF_ADDED_PATH": "{root}/share/ebsif/mounters/true"},
    ),
    Case(
        "a prefix that isn't ASCII",
        folder="B\u00fcro",
        settings=HAS_USER_SOFTWARE,
        files=("B\u00fcro/user-software/",),
        loaded={USER_SOFTWARE: "{root}/user-software"},
    ),
    # & stands for what was found when bash replaces text
    Case(
        "an ampersand in the prefix",
        folder="R&D soft",
        settings="overlay /one.squashfs:ro\noverlay /two.squashfs:ro\nbind ./needed:/needed\n",
        files=("R&D soft/needed",),
        loaded={"APPTAINER_OVERLAY": "{root}/one.squashfs:ro,{root}/two.squashfs:ro"},
    ),
]
