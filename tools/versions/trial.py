"""What is tried with each version: installing a small container, using it, and the commands."""

import dataclasses
import subprocess
import traceback
from pathlib import Path

from parts import wheel_settings
from record import FAILS, STEPS, WORKS
from support import Site, make_wheel

EASYCONFIG = """\
sources = ['example.sif']
init = 'conda-injected'
conda_env = 'pytorch'
venv_name = 'pytorch'
wrappers = ['python']
requirements = ['hello']
"""
# Variables in which modules tools keep their state.
STATE = "^(_|LOADEDMODULES|_LMFILES_|__LMOD.*|_ModuleTable.*|__MODULES.*|LMOD_.*|SHLVL|OLDPWD)="


@dataclasses.dataclass
class Trial:
    """A combination of versions."""

    site: Site
    python: Path
    image: Path
    path: Path = None
    with_commands: bool = True

    def steps(self):
        """Do everything in turn until something fails; return the outcomes (dict), and the failure or None."""
        steps = [step for step in STEPS if step != "commands" or self.with_commands]
        done = dict.fromkeys(steps, FAILS)
        self.prepare()
        for step in steps:
            try:
                getattr(self, step)()
            except (AssertionError, subprocess.SubprocessError, OSError):
                return done, f"{step}: {traceback.format_exc()}"
            done[step] = WORKS
        return done, None

    def prepare(self):
        """Provide the image, a package and the easyconfig."""
        (self.site.sources / "example.sif").symlink_to(self.image)
        self.wheels = self.site.prefix / "wheels"
        self.wheels.mkdir()
        make_wheel(self.wheels, "hello")
        self.easyconfig = self.site.easyconfig(EASYCONFIG)

    @property
    def settings(self):
        """Variables of EasyBuild and ebsif (dict)."""
        words = [option[2:].partition("=") for option in self.site.eb_options]
        settings = {f"EASYBUILD_{name.upper().replace('-', '_')}": value or "1" for name, _, value in words}
        return settings | ({"PYTHONPATH": self.path} if self.path else {})

    def eb(self, *arguments):
        """Run eb; return what it prints."""
        said = self.site.run(
            [self.python, "-m", "easybuild.main", *arguments], **self.settings, **wheel_settings(self.wheels)
        ).stdout
        assert "== COMPLETED: Installation ended successfully" in said, said
        return said

    def bash(self, script):
        """Run a script in which the first failure is one of the whole script; return what it prints."""
        return self.site.bash(f"set -eo pipefail\n{script}", **self.settings).stdout

    def install(self):
        """Install the module."""
        self.eb(self.easyconfig)

    def rebuild(self):
        """Install it again, in place of the earlier one."""
        self.eb(self.easyconfig, "--rebuild")
        folder = self.site.prefix / "eb/software/Example"
        assert [path.name for path in folder.iterdir()] == ["1.0"], list(folder.iterdir())

    def load(self):
        """Load the module."""
        said = self.bash("module load Example/1.0\nprintenv SIF")
        assert said == f"{self.site.prefix}/eb/software/Example/1.0/example.sif\n", said

    def run(self):
        """Run Python in the container, by the runtime and by a wrapper, with the installed package."""
        code = "import hello, numpy; print(hello.__file__)"
        said = self.bash(f"module load Example\nsingularity exec $SIF python -c '{code}'\npython -c '{code}'")
        assert said == "/user-software/venv/pytorch/lib/python3.11/site-packages/hello.py\n" * 2, said

    def unload(self):
        """Unload the module, after which the environment is as before."""
        show = f"env | {{ grep -Ev '{STATE}' || true; }} | sort"
        said = self.bash(f"{show}\necho; module load Example\nmodule unload Example\n{show}")
        before, after = said.split("\n\n", 1)
        assert f"{before}\n" == after, said

    def search(self):
        """Find the module, with Lmod by the name of a package in it, and read its help."""
        lookup = "module spider hello/1.0" if self.site.tool.name == "Lmod" else "module avail Example"
        said = self.bash(f"{lookup} 2>&1; module help Example 2>&1")
        assert "Example/1.0" in said.split("Description")[0], said
        assert "A container of the tests." in said, said

    def commands(self):
        """Use ebsif: the included catalog, what is installed, and the loaded module."""
        ebsif = f"'{self.python if not self.path else self.site.venv / 'bin/python'}' -m ebsif.cli"
        said = self.bash(f"""
            {ebsif} list --site lumi PyTorch
            {ebsif} check --quiet
            {ebsif} render --site local -o easyconfigs
            {ebsif} installed
            module load Example
            {ebsif} lock
        """)
        assert "\nPyTorch/2.7.0-rocm" in said, said
        assert "Example/1.0" in said.split("PyTorch/")[-1], said
        assert '"hello==1.0"' in said, said
