"""Somebody who types what is in the scripts of tests/paths."""

from parts import wheel_settings
from support import CHECKOUT

SCRIPTS = CHECKOUT / "tests/paths"

# The module that all tests share, and a newer version, which isn't installed.
CATALOGUE = """\
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


class Person:
    """
    Somebody with a site of their own, who types what is in scripts.

    Attributes
    ----------
    site
        The site.
    wheels
        Folder of the packages that pip finds.
    """

    def __init__(self, site, wheels):
        """Configure EasyBuild and ebsif as the person would, so that commands need no options for it."""
        self.site, self.wheels = site, wheels
        (site.home / ".config/ebsif").mkdir(parents=True)
        (site.home / ".config/ebsif/config.yaml").write_text(f"catalogues: [{site.prefix}/sites]\n")
        (site.prefix / "sites").mkdir()
        words = [option[2:].partition("=") for option in site.eb_options]
        self.environment = {"EDITOR": "true"}
        self.environment |= {f"EASYBUILD_{name.upper().replace('-', '_')}": value or "1" for name, _, value in words}

    def catalogues_example(self, wrappers="[]"):
        """Have the module that all tests share, with these wrappers, in a catalogue of one's own."""
        containers = self.site.prefix / "sites/local/containers"
        containers.mkdir(parents=True)
        (containers / "Example.yaml").write_text(CATALOGUE.replace("WRAPPERS", wrappers))

    def types(self, name):
        """Run a script; return what it prints on standard output and standard error, both in order."""
        script = f"exec 2>&1\nset -eo pipefail\n{self.site.tool.init}\n. {SCRIPTS / f'{name}.sh'}"
        said = self.run("bash", "--noprofile", "--norc", "-c", script).stdout
        assert "Traceback" not in said
        return said

    def run(self, *command, check=True):
        """Run a command; return the CompletedProcess."""
        return self.site.run(command, check, APPTAINER_BIND=self.wheels, **self.environment,
                             **wheel_settings(self.wheels))
