"""The programming environment in a container: LUMI's record with a small image that has modules of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from parts import TOOLS, copy_from_image, part
from support import CHECKOUT, Site, write_program

EASYCONFIG = CHECKOUT / "easyconfigs/c/ccpe/ccpe-25.03-B-rocm-6.3-SP5-LUMI.eb"
MODULE = "ccpe/25.03-B-rocm-6.3-SP5-LUMI"

# The image's compiler prints its environment.
COMPILER = """\
#!/bin/sh
echo "cc of the image, $(command -v cc || echo not on PATH), compiler ${CRAY_CC_VERSION:-none}," \\
    "host ${HOST_PE:-gone}, modules ${LOADEDMODULES:-none}, mine ${MINE:-gone}, other ${OTHER:-gone}"
"""
CC = "/opt/cray/pe/cce/19.0.0/bin/cc"
CLEAN = "cc of the image, not on PATH, compiler none, host gone, modules none"
READY = f"cc of the image, {CC}, compiler 19.0.0, host gone, modules PrgEnv-cray/8.6.0"

PE = """\
setenv("CRAY_CC_VERSION", "19.0.0")
prepend_path("PATH", "/opt/cray/pe/cce/19.0.0/bin")
"""

# Written as in LUMI's documentation of ccpe.
JOB = f"""\
#!/bin/bash
if [ -z "$SWITCHTOCCPE" ]; then
    module load {MODULE} || exit
fi
eval $SWITCHTOCCPE
echo "batch [$1] [$2] $(test -d /.singularity.d && echo inside): $(cc)"
ccpe-srun -N 2 -n 2 singularity exec $SIFCCPE cc | sed "s/^/step: /"
echo "left: ${{SLURM_EXPORT_ENV:-nothing}}"
"""


def make_image(folder, small_image):
    """Build an image with a programming environment; the programs of this machine are bound into it."""
    root = copy_from_image(small_image("busybox"), folder / "root", "bin", "etc", ".singularity.d")
    for name in ("usr", "proc", "sys", "dev", "tmp", "var", "lib", "lib64"):
        (root / name).mkdir(parents=True)
    run = {"check": True, "timeout": 300, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    texts = {
        CC: COMPILER,
        "/opt/cray/pe/lmod/modulefiles/core/PrgEnv-cray/8.6.0.lua": PE,
        "/etc/cray-pe.d/cray-pe-configuration.sh": 'default_prgenv=cray\nmpaths="/opt/none"\n',
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "/etc/group": "root:x:0:\n",
        "/etc/bash.bashrc": "eval $INITCCPE\n",
        "/.singularity.d/runscript": '#!/bin/sh\nexec /usr/bin/bash "$@"\n',
    }
    for path, text in texts.items():
        write_program(root / path[1:], text)
    (root / "opt/cray/pe/lmod/lmod").symlink_to(Path(part("LMOD_CMD")).parent.parent)
    image = folder / "cpe-25.03-SP5.sif"
    subprocess.run(["apptainer", "--silent", "build", image, root], **run)


class Host:
    """A machine with its own modules on which ccpe is installed."""

    def __init__(self, folder, small_image):
        self.site = Site(folder, TOOLS["Lmod-Lua"](), Path(sys.prefix))
        make_image(self.site.sources, small_image)
        host = self.site.prefix / "host"
        (host / "host-pe").mkdir(parents=True)
        (host / "host-pe/1.0").write_text(
            "#%Module\nsetenv HOST_PE 1.0\nsetenv CRAY_CC_VERSION 17.0.1\nsetenv MINE kept\n"
            f"setenv OTHER {{of a module}}\nprepend-path MODULEPATH {self.site.modules}\n"
        )
        self.site.eb(EASYCONFIG)
        self.load = f"module unuse {self.site.modules}; module use {host}; module load host-pe {MODULE}\n"
        # bash, Lua, Lmod and Slurm of this machine replace those of the real image
        self.environment = dict.fromkeys(("SINGULARITY_BIND", "APPTAINER_BIND"), "/usr,/bin,/lib,/lib64")

    def bash(self, script, check=True, **environment):
        """Run a script with both modules loaded."""
        return self.site.bash(self.load + script, check, **self.environment, **environment)


@pytest.fixture(scope="module")
def host(tmp_path_factory, small_image):
    """The machine."""
    return Host(tmp_path_factory.mktemp("ccpe"), small_image)


def test_programs_run_in_the_containers_environment(host):
    """L-10: each `ccpe-*` sees the image's programs and modules, and none of the host's modules."""
    assert host.bash(f"ccpe-exec {CC}").stdout == f"{CLEAN}, mine gone, other gone\n"
    assert host.bash(f"ccpe-shell -c {CC}").stdout == f"{CLEAN}, mine gone, other gone\n"
    assert host.bash(f"ccpe-run -c {CC}").stdout == f"{CLEAN}, mine gone, other gone\n"
    assert host.bash(f"ccpe-singularity exec $SIF {CC}").stdout == f"{CLEAN}, mine gone, other gone\n"
    # the caller's shell is unchanged
    assert host.bash("ccpe-exec true; echo $HOST_PE; module -t list 2>&1 | grep -c /").stdout == "1.0\n2\n"
    # variables named there are passed on, also those that tell which modules are loaded
    kept = host.bash(f"export EXPORTCCPE=$EXPORTCCPE,MINE; ccpe-exec {CC}").stdout
    assert kept == f"{CLEAN}, mine kept, other gone\n"


def test_the_modules_of_the_container(host):
    """L-10: `eval $INITCCPE` and interactive shells provide the container's modules, scripts too."""
    assert host.bash("ccpe-exec bash -c 'eval $INITCCPE; cc'").stdout == f"{READY}, mine gone, other gone\n"
    assert host.bash("ccpe-run -i -c cc").stdout == f"{READY}, mine gone, other gone\n"
    script = "eval $INITCCPE; module load PrgEnv-cray; module -t list 2>&1; echo $CCPE_VERSION; type -t ccpe-srun"
    typed = f"ccpe-exec bash -c '{script}'"
    assert host.bash(typed).stdout.split() == ["PrgEnv-cray/8.6.0", MODULE.partition("/")[2], "function"]
    # a second time it changes nothing
    again = host.bash("ccpe-exec bash -c 'eval $INITCCPE; module unload PrgEnv-cray; eval $INITCCPE; cc || echo gone'")
    assert again.stdout == "gone\n"


def test_a_script_continues_in_the_container(host):
    """L-10: `eval $SWITCHTOCCPE` starts the script again inside, where it only provides the modules; without Slurm."""
    script = write_program(host.site.work / "switch.sh", '#!/bin/bash\neval $SWITCHTOCCPE\necho "[$1] $(cc)"\n')
    assert host.bash(f"{script} 'a  b'").stdout == f"[a  b] {READY}, mine gone, other gone\n"


def submit(host, cluster, name, options="", before=""):
    """Submit the job script, wait until it ends, return the output lines."""
    script, output = host.site.work / f"{name}.sh", host.site.work / f"{name}.out"
    script.write_text(JOB)
    typed = f"{before}sbatch --wait -N 2 --output={output} {options} {script} 'a  b' '$c'"
    host.bash(typed, check=False, **cluster.environment)
    return output.read_text().splitlines()


def expected(rest):
    """Return the job's expected output."""
    return [f"batch [a  b] [$c] inside: {READY}, {rest}", *[f"step: {READY}, {rest}"] * 2, "left: nothing"]


@pytest.mark.nightly
def test_a_job_continues_in_the_container(host, cluster):
    """L-10: after `eval $SWITCHTOCCPE` the script continues inside, with its arguments; its steps run on both nodes."""
    assert submit(host, cluster, "all") == expected("mine gone, other gone")
    # only variables named are passed; a shell in the container keeps its environment
    assert submit(host, cluster, "named", "--export=$EXPORTCCPE") == expected("mine gone, other gone")
    inside = submit(host, cluster, "inside", before="ccpe-exec bash -c 'eval $INITCCPE; export OTHER=here; \"$@\"' sh ")
    assert inside == expected("mine gone, other here")
