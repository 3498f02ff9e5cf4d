"""The programs that decide what a module sets do the same: in Lua, in Tcl with both modules tools, and in bash."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.modulefile import program
from module_cases import CASES
from parts import EACH_TOOL, TOOLS
from support import CONTAINER_FILES, Site, write_program

# Variables of the modules tools; what the shell sets.
OF_TOOLS = ("_Module", "__LMOD_", "LMOD", "LOADED", "_LM", "__MODULES", "MODULE", "_=", "BASH_FUNC", "SHLVL", "PWD")
# what wrappers and kernels add and leave out
OF_WRAPPERS = {"kind"}
SETTINGS = """module {module}
suffix CASE
image ./image.sif
image_remedy Ask somebody.
bind ./share/ebsif/module.conf:/share/ebsif/module.conf:ro
search_path /runscripts
"""


class Programs:
    """The cases, each in an installation with its module, for a modules tool and syntax."""

    def __init__(self, folder, tool):
        self.site = Site(folder, TOOLS[tool](), Path(sys.prefix))
        runtime = write_program(folder / "runtime/apptainer", '#!/bin/bash\nenv -0 >"$results/$kind"\n')
        self.script = f"""
            show() {{ env -0 >"$results/$1"; }}
            unset EBSIF_NODE_LOCAL
            export PATH={runtime.parent}:$PATH
        """

    def install(self, number, case):
        """Write installation, module and files of a case."""
        here, module = self.here(number), f"case{number}/1.0"
        root = here / case.folder
        (root / "share/ebsif").mkdir(parents=True)
        (root / "image.sif").touch()
        scripts = [f"share/ebsif/{name}" for name in ("container.sh", "common.bash", "run.bash")]
        for script in [*scripts, "bin/with-module", "interpreter/python"]:
            (root / script).parent.mkdir(exist_ok=True)
            shutil.copy(CONTAINER_FILES / script, root / script)
            (root / script).chmod(0o755)
        shutil.copy(CONTAINER_FILES / "share/ebsif/wrapper", root / "bin/tool")
        (root / "share/ebsif/module.conf").write_text(SETTINGS.format(module=module) + case.settings)
        for file in case.files:
            path = Path(self.filled(f"{{here}}/{file}", number, case))
            if file.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        syntax = self.site.tool.syntax
        start = f'local root = "{root}"\n' if syntax == "Lua" else f"#%Module\nset root {{{root}}}\n"
        path = self.site.modules / (module + (".lua" if syntax == "Lua" else ""))
        path.parent.mkdir(parents=True)
        path.write_text(start + program(syntax))

    def here(self, number):
        """Return the directory with the files of a case."""
        return self.site.prefix / f"here{number}"

    def filled(self, text, number, case):
        """Return a text of a case with its places."""
        here = self.here(number)
        return text.format(here=here, root=here / case.folder)

    def add(self, number, case):
        """Add the commands of a case to the script, which keep the environment before, between and after."""
        variables = {name: self.filled(value, number, case) for name, value in case.variables.items()}
        exports = "; ".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        root = shlex.quote(f"{self.here(number)}/{case.folder}")
        own = f"{root}/share/ebsif/container.sh"
        self.script += f"""
            (   {exports}
                cd {self.here(number)}
                show before{number}
                module load case{number}/1.0 2>"$results/said{number}"
                show loaded{number}
                [[ -z "${{SIF:-}}" ]] || kind=wrapped{number} {root}/bin/tool
                module unload case{number}/1.0 2>/dev/null
                show after{number}
                kind=kernel{number} {root}/interpreter/python -m ipykernel_launcher -f /tmp/x.json 2>/dev/null
                {root}/bin/with-module env -0 >"$results/with{number}" 2>/dev/null
            )
            (   {exports}
                cd {self.here(number)}
                source {own} load 2>"$results/said-sh{number}"
                show sourced{number}
                if ! source {own} check; then echo "${{SIF:+not what is asked for}}"
                elif [[ -n "${{SIF:-}}" ]]; then source {own} load 2>&1; fi
                source {own} unload
                show left{number}
            )
        """

    def run(self, results):
        """Run the script; its files are in the directory `results`."""
        return self.site.bash(self.script, results=results)


def shown(path):
    """Read an environment, without variables of modules tools."""
    text = path.read_bytes().decode(errors="surrogateescape") if path.exists() else ""
    entries = text.split("\0")
    found = dict(entry.split("=", 1) for entry in entries if entry and not entry.startswith(OF_TOOLS))
    if "EBSIF_SET" in found:
        found["EBSIF_SET"] = sorted(found["EBSIF_SET"].split())
    return found


@pytest.mark.parametrize("tool", EACH_TOOL)
def test_all_programs_decide_the_same(tool, tmp_path):
    """H-02: each case has the same result with and without the modules tool, and leaves nothing behind."""
    programs = Programs(tmp_path / "site", tool)
    results = tmp_path / "results"
    results.mkdir()
    for number, case in enumerate(CASES):
        programs.install(number, case)
        programs.add(number, case)
    assert programs.run(results).stdout.strip() == ""
    problems = []
    for number, case in enumerate(CASES):
        problems += [f"{case.name}: {problem}" for problem in compared(programs, results, number, case)]
    assert not problems, "\n".join(problems)


def compared(programs, results, number, case):
    """Yield what is different from the case, or between the programs."""
    found = {kind: shown(results / f"{kind}{number}") for kind in ("before", "loaded", "after", "sourced", "left")}
    wanted = {name: programs.filled(value, number, case) for name, value in case.loaded.items()}
    for kind, file in (("loaded", "said"), ("sourced", "said-sh")):
        said = " ".join((results / f"{file}{number}").read_text(errors="replace").split())
        if case.said not in said if case.said else said:
            yield f"{kind}: it says '{said}'"
        if ("SIF" in found[kind]) == case.refused:
            yield f"{kind}: loaded or refused"
        yield from different(kind, found[kind], {**found[kind], **wanted})
    yield from different("sourced", found["sourced"], found["loaded"])
    for kind in ("with", "kernel", "wrapped"):
        used = {} if case.refused else dict(found["loaded"])
        for name in used.get("EBSIF_UNSET", "").split() if kind != "with" else ():
            used.pop(name, None)
        yield from different(kind, without(shown(results / f"{kind}{number}")), without(used))
    yield from different("after unload", found["after"], found["before"])
    yield from different("after unload without a modules tool", found["left"], found["before"])


def without(variables):
    """Return variables without those that only wrappers and kernels have."""
    return {name: value for name, value in variables.items() if name not in OF_WRAPPERS}


def different(kind, found, wanted):
    """Yield the variables that are different."""
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            yield f"{kind}: {name}={found.get(name)!r}, not {wanted.get(name)!r}"
