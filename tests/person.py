"""Somebody who types what is in the scripts of tests/paths."""

from parts import wheel_settings
from support import CHECKOUT

SCRIPTS = CHECKOUT / "tests/paths"


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
