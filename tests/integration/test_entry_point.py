"""Images with an entry point that sets variables: every way to start a program has them, also in real Slurm ranks."""

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
RUNSCRIPT = '#!/bin/sh\nexec /opt/oci-entrypoint.sh "$@"\n'

NAMES = ("FI_HMEM_DISABLE_P2P", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_RANK")
SHOW = f"""
import json, os, sys
found = {{name: os.environ[name] for name in {NAMES!r} if name in os.environ}}
sys.stdout.write(json.dumps([int(os.environ.get("SLURM_PROCID", 0)), found]) + "\\n")
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
    """Modules of one image with an entry point and with a runscript."""
    site = Site(tmp_path_factory.mktemp("entered"), TOOLS["Lmod-Lua"](), Path(sys.prefix))
    image = site.sources / "example.sif"
    image.symlink_to(base_image)
    binds = []
    for name, text, target in (
        ("oci", ENTRY_POINT, "/opt/oci-entrypoint.sh"),
        ("run", RUNSCRIPT, "/.singularity.d/runscript"),
    ):
        path = write_program(site.prefix / f"{name}.sh", text)
        binds.append(f"{path}:{target}")
    text = (
        "easyblock = 'ContainerInstall'\nsources = ['example.sif']\n"
        f"image = 'central'\nimage_dirs = ['{site.sources}']\nbinds = {binds!r}\n"
        "init = 'conda-injected'\nconda_env = 'pytorch'\ngpu = 'rocm'\ngpu_visibility = 'all'\n"
        "wrappers = ['python', 'printf']\nscript_names = {'bin/my-exec': 'bin/container-exec'}\n"
    )
    paths = [
        site.easyconfig(text + f"entry_point = '{point}'\n", suffix=suffix)
        for suffix, point in (("-oci", "/opt/oci-entrypoint.sh"), ("-run", "/.singularity.d/runscript"))
    ]
    site.eb(*paths)
    (site.work / "show.py").write_text(SHOW)
    return site


def shown(site, suffix, script, **environment):
    """Return each rank's variables, in the order of ranks, for each line that a script prints."""
    module = f"Example/1.0{suffix}"
    prelude = f"read -r -a command < <(ebsif interpreter --command {module})\nmodule load {module} || exit 99\n"
    output = site.bash(prelude + script, **environment).stdout
    return [
        found
        for _, found in sorted(map(json.loads, re.findall(r"^\[.*\]$", output, re.MULTILINE)), key=lambda one: one[0])
    ]


@pytest.mark.parametrize("suffix", ["-oci", "-run"])
def test_every_way_has_the_entry_points_variables(entered, suffix):
    """lumi B11, L-03: `singularity run`, wrapper, start-shell, run scripts: the same variables, also the rank's."""
    rank = {"SLURM_NNODES": "1", "ROCR_USE_SLURM_LOCALID": "1", "SLURM_LOCALID": "5"}
    wanted = {"FI_HMEM_DISABLE_P2P": "1", "ROCR_VISIBLE_DEVICES": "5"}
    found = shown(entered, suffix, "\n".join(WAYS.values()), **rank)
    # a single rank is the only one of its node
    assert dict(zip(WAYS, found)) == {
        way: dict(wanted, LOCAL_RANK="0") if "distributed" in way else wanted for way in WAYS
    }
    # exec can't know more
    assert shown(entered, suffix, "singularity exec $SIF python show.py", **rank) == [{}]


def test_ranks_have_one_device_or_a_local_rank(entered, cluster):
    """lumi B11, lumi B12, L-03, L-04: two Slurm ranks: either entry point or run script chooses the device."""
    run = "srun -N1 -n2 singularity exec $SIF conda-python-distributed show.py"
    chosen = {"ROCR_USE_SLURM_LOCALID": "1"}
    p2p = {"FI_HMEM_DISABLE_P2P": "1"}

    def ranks(script, **environment):
        return shown(entered, "-oci", script, **cluster.environment, **environment)

    assert ranks(run) == [{**p2p, "LOCAL_RANK": "0"}, {**p2p, "LOCAL_RANK": "1"}]
    assert ranks(run, **chosen) == [{**p2p, "ROCR_VISIBLE_DEVICES": "0"}, {**p2p, "ROCR_VISIBLE_DEVICES": "1"}]
    # HIP counts the devices that ROCR leaves, from 0
    assert ranks(run, **chosen, MAP_HIP_TO_ROCR_VISIBLE_DEVICES="1") == [
        {**p2p, "ROCR_VISIBLE_DEVICES": str(rank), "HIP_VISIBLE_DEVICES": "0"} for rank in range(2)
    ]
    assert ranks("srun -N1 -n2 python show.py", **chosen) == ranks(
        "srun -N1 -n2 singularity run $SIF python show.py", **chosen
    )
    assert ranks("srun -N2 -n2 python show.py", **chosen) == [{"ROCR_VISIBLE_DEVICES": "0"}] * 2


@pytest.mark.parametrize("suffix", ["-oci", "-run"])
def test_exec_has_the_variables_that_do_not_depend_on_the_job(entered, suffix):
    """L-03: the module sets what the entry point always sets, but not what depends on a process or installation."""
    names = "QUIET SAID PLACE PROCESS TEXT"
    output = entered.bash(f"""
        module load Example/1.0{suffix} && singularity exec $SIF sh -c '
            for name in {names}; do echo "$name=$(printenv $name)"; done; echo $PATH'
    """).stdout.splitlines()
    assert output[:5] == ["QUIET=yes", "SAID=", "PLACE=", "PROCESS=", "TEXT="]
    assert not output[5].endswith("/extra")


def test_arguments_pass_through_the_entry_point(entered):
    """lumi B11, S002-24: arguments are unchanged, and so is the environment after unloading."""
    arguments = ["a  b", "$HOME `id`", "'\"\\", ""]
    script = 'module load Example/1.0-oci; set -- "$@"; printf \'[%s]\' "$@"; module unload Example; env'
    prelude = f"{entered.tool.init}\nmodule use {entered.modules}\nenable -n printf\n"
    result = entered.run(["bash", "--noprofile", "--norc", "-c", prelude + script, "bash", *arguments])
    assert result.stdout.startswith("".join(f"[{argument}]" for argument in arguments))
    assert "ENTRY_POINT" not in result.stdout


@pytest.mark.parametrize("line", ["echo no", 'eval "exec $*"'])
def test_an_entry_point_that_changes_arguments_is_refused(site, line):
    """lumi B11: entry points that ignore arguments, or let a shell read them as the runtime's for OCI images does."""
    path = write_program(site.prefix / "oci.sh", f"#!/bin/sh\n{line}\n")
    easyconfig = site.easyconfig(
        f"sources = ['example.sif']\nbinds = ['{path}:/opt/oci-entrypoint.sh']\ninit = 'conda-injected'\n"
        "conda_env = 'pytorch'\nentry_point = '/opt/oci-entrypoint.sh'\n"
    )
    result = site.eb(easyconfig, check=False)
    assert result.returncode != 0
    assert "does not run a given program with the same arguments" in " ".join((result.stdout + result.stderr).split())
