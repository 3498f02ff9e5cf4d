"""What the checks look at: a module with its environment, and what its container says."""

import json
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container.host import libraries, programs
from easybuild.easyblocks.generic.container.imageprograms import IMPORTS, read_program
from easybuild.easyblocks.generic.container.packages import gpu_label
from easybuild.easyblocks.generic.container.record.lockfile import Record
from easybuild.easyblocks.generic.container.values import bind_source, bind_target

from ebsif import processes
from ebsif.catalog.site import Site
from ebsif.errors import EbsifError
from ebsif.installed import imagestate, report, softwarestate
from ebsif.installed.health.machine import Machine
from ebsif.installed.places import Installation, shown
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding

PROGRAMS = Path(__file__).parent / "programs"
PROBE = Path(__file__).parents[2] / "images/probes/image.sh"
LONGEST = 300  # seconds for one container; importing torch from a busy file system takes one or two minutes


@dataclass
class Subject:
    """
    A module to check, on a machine of a site; `verify` compares the SHA256 of images and user software.

    The checks fill `environment` (with the module loaded), `image_facts` (what the probe found in the image: values by
    name, lists for libraries and plugins) and `python` (what Python found in the container; empty if it didn't run).
    """

    installation: Installation
    machine: Machine
    site: Optional[Site] = None
    verify: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    image_facts: dict[str, Any] = field(default_factory=dict)
    python: dict[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The name of the module."""
        return shown(self.installation)

    @property
    def load(self) -> str:
        """The command that loads the module."""
        return self.installation.load

    @property
    def record(self) -> Record:
        """The record of the installation."""
        return self.installation.record

    @property
    def easyconfig(self) -> str:
        """How messages name the easyconfig."""
        return self.installation.easyconfig.name if self.installation.easyconfig else "EASYCONFIG"

    @property
    def render_again(self) -> str:
        """What to do after a change of the site's profile, as the end of a sentence."""
        return f"write the easyconfig with `ebsif render`, and install it with `eb --rebuild {self.easyconfig}`"

    @property
    def rebuild(self) -> str:
        """The command that installs the module again."""
        return self.installation.rebuild

    @cached_property
    def host_files(self) -> dict[str, str]:
        """Libraries and programs that were found on the host at the installation: paths by those in the container."""
        binds = [*self.record.host_libraries.binds, *self.record.host_programs.binds]
        folders = (f"{libraries.FOLDER}/", f"{programs.FOLDER}/")
        paths = {bind_target(bind): bind_source(bind) for bind in binds}
        return {target: path for target, path in paths.items() if target.startswith(folders)}

    @cached_property
    def report(self) -> report.Report:
        """The report on the installation; an image with another time than recorded is compared by its SHA256."""
        quick = report.examine(self.installation, self.verify)
        is_touched = quick.image and quick.image.state == imagestate.TOUCHED
        return report.examine(self.installation, True) if is_touched else quick

    @cached_property
    def software(self) -> Optional[softwarestate.SoftwareState]:
        """The user software; None if there is none."""
        return self.report.software

    @cached_property
    def user_packages(self) -> dict[str, str]:
        """The packages in user software as it is now: versions by normalized name."""
        try:
            return softwarestate.packages(self.installation, self.software)
        except EbsifError:
            return {}

    @cached_property
    def image_packages(self) -> dict[str, str]:
        """The Python packages of the image: versions by normalized name."""
        return self.record.image_versions

    @property
    def torch(self) -> str:
        """The version of torch that programs import; empty if there is none."""
        return self.user_packages.get("torch") or self.image_packages.get("torch") or ""

    @property
    def gpu(self) -> Optional[str]:
        """The kind of GPU that the container is for: that of torch or the image, else of site or node; None: CPUs."""
        kind = gpu_label(self.torch)[0]
        if kind:
            return None if kind == "cpu" else kind
        return "rocm" if "rocm" in self.image_facts else self.expected_gpu

    @property
    def expected_gpu(self) -> Optional[str]:
        """The kind of GPU of the site, else of this node; None if there is none."""
        return self.site.gpu if self.site and self.site.gpu != "none" else self.machine.gpu

    @property
    def has_fabric(self) -> bool:
        """Whether containers are to use Slingshot: the site binds its library, or this node has it."""
        return self.machine.fabric or any("libcxi" in bind for bind in (self.site.bound if self.site else ()))

    def finding(self, level: str, text: str) -> Finding:
        """Return a Finding on this module."""
        return Finding(level, self.module, text)

    def error(self, text: str) -> Finding:
        """Return a Finding: the module doesn't work, or isn't what was installed."""
        return self.finding(ERROR, text)

    def warning(self, text: str) -> Finding:
        """Return a Finding: it works, but not as well as it could."""
        return self.finding(WARNING, text)

    def note(self, text: str) -> Finding:
        """Return a Finding on what is worth knowing."""
        return self.finding(NOTE, text)

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs a program in the container, as the module's wrappers do."""
        program = self.installation.root / "bin/container-exec"
        return (
            [str(program), *words]
            if program.exists()
            else [str(self.installation.root / "bin/start-shell"), "-c", 'exec "$0" "$@"', *words]
        )

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program in the container, with a text as input; return CompletedProcess."""
        return processes.run(
            self.command(*words), LONGEST, text, name="the container", environment=self.environment, cwd="/"
        )

    def read_image(self) -> subprocess.CompletedProcess[str]:
        """Start the container once and read the image; return the CompletedProcess."""
        script = "look() {\n" + PROBE.read_text(encoding="utf-8") + PYTHON_AFTER
        packages = {"image_packages": self.record.image_packages, "venv_packages": self.record.venv_packages}
        python = (read_program(IMPORTS), read_program("installed-packages.py"))
        result = self.run(
            "sh",
            "-c",
            script,
            "sh",
            json.dumps(packages),
            *python,
            text=(PROGRAMS / "inside.py").read_text(encoding="utf-8"),
        )
        for line in result.stdout.splitlines():
            name, tab, value = line.partition("\t")
            if name == "python" and tab:
                self.python = json.loads(value)
            elif name in ("network-plugin", "network-library", "host-library"):
                self.image_facts.setdefault(name, []).append(value)
            elif tab:
                self.image_facts[name] = value
        return result


# after image.sh, in the same container: say what the image's loader lacks for libraries of the host, without running
# code of these, and pass the plugins that image.sh has found to the program
PYTHON_AFTER = """
}
exec 3<&0
found=$(look </dev/null)
printf '%s\\n' "$found"
for library in /host-libraries/*.so*; do
    for loader in /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.*; do
        [ ! -e "$library" ] || [ ! -x "$loader" ] || LD_TRACE_LOADED_OBJECTS=1 "$loader" "$library" 2>&1
    done
done | sed -n "/not found/s/^[[:space:]]*/host-library	/p" | sort -u
python=$(command -v python || command -v python3)
[ -z "$python" ] || {
    request=$1 imports=$2 listing=$3
    set --
    while IFS='	' read -r kind path; do
        [ "$kind" != network-plugin ] || set -- "$@" "$path"
    done <<END
$found
END
    exec "$python" - "$request" "$imports" "$listing" "$@" <&3
}
"""
