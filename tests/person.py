"""Somebody who types what is in the scripts of tests/paths."""

import shlex

from parts import wheel_settings
from support import CHECKOUT

SCRIPTS = CHECKOUT / "tests/paths"

# The module that all tests share, and a newer version, which isn't installed.
CATALOG = """\
name: Example
families:
  example:
    homepage: https://example.org/
    file: example.sif
    python: 3.11
    init: conda-injected
    conda_env: pytorch
    venv: true
    venv_name: pytorch
    wrappers: WRAPPERS
containers:
  - {family: example, version: 1.0, suffix: -writable, components: {numpy: 2.4.6}}
  - {family: example, version: 2.0}
"""


# A line of a script: what follows is typed in a new login shell.
NEXT_DAY = "# the next day\n"

# What the profile of a site does: there are a modules tool, its modules, and the command ebsif.
PROFILE = """\
{init}
export PATH={venv}/bin:$PATH
module use {modules}
"""


class Person:
    """Somebody at a site, who types what is in scripts."""

    def __init__(self, site, wheels, installs_for_the_site=True, has_catalog=True):
        """Have EasyBuild configured to install for the site, or not at all, and perhaps a catalog of one's own."""
        self.site, self.wheels = site, wheels
        self.environment = {"EDITOR": "true"}
        if installs_for_the_site:
            for name, _, value in [option[2:].partition("=") for option in site.eb_options]:
                self.environment[f"EASYBUILD_{name.upper().replace('-', '_')}"] = value or "1"
        # /etc/profile may start Lmod
        init = site.tool.init if site.tool.name == "Lmod" else f"unset BASH_ENV ${{!LMOD_*}}\n{site.tool.init}"
        (site.home / ".bash_profile").write_text(PROFILE.format(init=init, venv=site.venv, modules=site.modules))
        if not has_catalog:
            return
        (site.home / ".config/ebsif").mkdir(parents=True)
        (site.home / ".config/ebsif/config.yaml").write_text(f"catalogs: [{site.prefix}/sites]\n")
        (site.prefix / "sites").mkdir()

    def catalogs_example(self, wrappers="[]"):
        """Have the module that all tests share, with these wrappers, in a catalog of one's own."""
        containers = self.site.prefix / "sites/local/containers"
        containers.mkdir(parents=True)
        (containers / "Example.yaml").write_text(CATALOG.replace("WRAPPERS", wrappers))

    def types(self, name):
        """Run a script, each day of it in a new login shell; return what it prints, both streams in order."""
        days = (SCRIPTS / f"{name}.sh").read_text().split(NEXT_DAY)
        said = "".join(self.in_shell(f"exec 2>&1\nset -eo pipefail\n{day}").stdout for day in days)
        assert "Traceback" not in said
        return said

    def run(self, *command, check=True):
        """Run a command in a new login shell; return the CompletedProcess."""
        return self.in_shell(shlex.join(map(str, command)), check)

    def in_shell(self, script, check=True):
        """Run a script in a new login shell; return the CompletedProcess."""
        more = {**self.environment, **wheel_settings(self.wheels)}
        return self.site.run(["bash", "--login", "-c", script], check, APPTAINER_BIND=self.wheels, **more)
