"""Images with an entry point that sets variables: every way to start a program has them."""

import json
import re
import sys
from pathlib import Path

import pytest
from parts import TOOLS
from support import Site, write_program

# The entry point of the LUMI AI Factory's images since May 2026; the %runscript of older images does the same.
ENTRY_POINT = """\
#!/bin/sh
if [ "$SLURM_NNODES" = 1 ] && [ -z "$SLURM_GPUS_ON_NODE" ]; then
    export FI_HMEM_DISABLE_P2P=1
fi
if [ "$ROCR_USE_SLURM_LOCALID" = 1 ]; then
    export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID
fi
if [ "$MAP_HIP_TO_ROCR_VISIBLE_DEVICES" = 1 ]; then
    export HIP_VISIBLE_DEVICES=$ROCR_VISIBLE_DEVICES
fi
echo 'loading SAID=1' >&2
export QUIET=yes PATH=$PATH:/extra PLACE="$HOME/x" PROCESS=$$ TEXT='1
2'
exec "$@"
"""
# without one, the runtime doesn't run the image
RUNSCRIPT = '#!/bin/sh\nexec /opt/oci-entrypoint.sh "$@"\n'

NAMES = ("FI_HMEM_DISABLE_P2P", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_RANK")
SHOW = f"""
import json, os, sys
found = {{name: os.environ[name] for name in {NAMES!r} if name in os.environ}}
sys.stdout.write(json.dumps(found) + "\\n")
"""

# Each line starts show.py in the container.
WAYS = {
    "singularity run": "singularity run $SIF python show.py",
    "wrapper": "python show.py",
    "start-shell": "start-shell -c 'exec python show.py'",
    "container-exec": "my-exec python show.py",
    "conda-python-simple": "singularity exec $SIF conda-python-simple show.py",
    "conda-python-distributed": "singularity exec $SIF conda-python-distributed show.py",
    "ebsif interpreter --command": '"${command[@]}" python show.py',
}


@pytest.fixture(scope="module")
def entered(tmp_path_factory, base_image):
    """A module of an image with an entry point; test_laif has images with a runscript, too."""
    site = Site(tmp_path_factory.mktemp("entered"), TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (site.sources / "example.sif").symlink_to(base_image)
    binds = [f"{write_program(site.prefix / 'oci.sh', ENTRY_POINT)}:/opt/oci-entrypoint.sh"]
    binds.append(f"{write_program(site.prefix / 'run.sh', RUNSCRIPT)}:/.singularity.d/runscript")
    text = (
        "easyblock = 'ContainerInstall'\nsources = ['example.sif']\n"
        f"image = 'central'\nimage_dirs = ['{site.sources}']\nbinds = {binds!r}\n"
        "init = 'conda-injected'\nconda_env = 'pytorch'\ngpu = 'rocm'\ngpu_visibility = 'all'\n"
        "wrappers = ['python', 'printf']\nscript_names = {'bin/my-exec': 'bin/container-exec'}\n"
        "entry_point = '/opt/oci-entrypoint.sh'\n"
    )
    site.eb(site.easyconfig(text))
    (site.work / "show.py").write_text(SHOW)
    return site


def shown(site, script, **environment):
    """Return the variables that show.py has printed, for each line of a script."""
    prelude = "read -r -a command < <(ebsif interpreter --command Example/1.0)\nmodule load Example/1.0 || exit 99\n"
    output = site.bash(prelude + script, **environment).stdout
    return [json.loads(line) for line in re.findall(r"^{.*}$", output, re.MULTILINE)]


def test_every_way_has_the_entry_points_variables(entered):
    """L-03: `singularity run`, wrapper, start-shell, run scripts: the same variables, also the rank's."""
    rank = {"SLURM_NNODES": "1", "ROCR_USE_SLURM_LOCALID": "1", "SLURM_LOCALID": "5"}
    wanted = {"FI_HMEM_DISABLE_P2P": "1", "ROCR_VISIBLE_DEVICES": "5"}
    found = shown(entered, "\n".join(WAYS.values()), **rank)
    # a single rank is the only one of its node
    assert dict(zip(WAYS, found)) == {
        way: dict(wanted, LOCAL_RANK="0") if "distributed" in way else wanted for way in WAYS
    }
    # exec can't know more
    assert shown(entered, "singularity exec $SIF python show.py", **rank) == [{}]


def test_exec_has_the_variables_that_do_not_depend_on_the_job(entered):
    """L-03: the module sets what the entry point always sets, but not what depends on a process or installation."""
    names = "QUIET SAID PLACE PROCESS TEXT"
    output = entered.bash(f"""
        module load Example/1.0 && singularity exec $SIF sh -c '
            for name in {names}; do echo "$name=$(printenv $name)"; done; echo $PATH'
    """).stdout.splitlines()
    assert output[:5] == ["QUIET=yes", "SAID=", "PLACE=", "PROCESS=", "TEXT="]
    assert not output[5].endswith("/extra")


def test_arguments_pass_through_the_entry_point(entered):
    """S002-24: arguments are unchanged, and so is the environment after unloading."""
    arguments = ["a  b", "$HOME `id`", "'\"\\", ""]
    script = 'module load Example/1.0; set -- "$@"; printf \'[%s]\' "$@"; module unload Example; env'
    prelude = f"{entered.tool.init}\nmodule use {entered.modules}\nenable -n printf\n"
    result = entered.run(["bash", "--noprofile", "--norc", "-c", prelude + script, "bash", *arguments])
    assert result.stdout.startswith("".join(f"[{argument}]" for argument in arguments))
    assert "ENTRY_POINT" not in result.stdout


@pytest.mark.parametrize("line", ["echo no", 'eval "exec $*"'])
def test_an_entry_point_that_changes_arguments_is_refused(site, line):
    """Entry points that ignore arguments, or let a shell read them as the runtime's for OCI images does."""
    path = write_program(site.prefix / "oci.sh", f"#!/bin/sh\n{line}\n")
    easyconfig = site.easyconfig(
        f"sources = ['example.sif']\nbinds = ['{path}:/opt/oci-entrypoint.sh']\ninit = 'conda-injected'\n"
        "conda_env = 'pytorch'\nentry_point = '/opt/oci-entrypoint.sh'\n"
    )
    result = site.eb(easyconfig, check=False)
    assert result.returncode != 0
    assert "does not run a given program with the same arguments" in " ".join((result.stdout + result.stderr).split())
