"""An easyconfig in the style in use today, for comparison: shell commands for the easyblock MakeCp.

Written for this comparison after descriptions of such recipes: the image is copied to the build directory, then to
the installation directory; scripts are here-documents; the venv is made and filled in the container; mksquashfs runs
with its defaults for the compression, on one processor; the directory is removed.
"""

SCRIPT = """\
#!/bin/bash
if [ -z $SINGULARITY_CONTAINER ]; then
    echo "this works in the container only"; exit 1
fi
$WITH_CONDA
export MASTER_ADDR=$(/runscripts/get-master "$SLURM_NODELIST")
export MASTER_PORT=29500
export WORLD_SIZE=$SLURM_NPROCS
export RANK=$SLURM_PROCID
python "$@"
"""

WRAPPER = """\
#!/bin/bash
if [ -d /.singularity.d ]; then
    $(basename $0) "$@"
else
    if [ -z $SIF ] || [ ! -f $SIF ]; then
        echo "SIF not set" ; exit 0
    fi
    singularity exec $SIF $(basename $0) "$@"
fi
"""

MAKE = """\
#!/bin/bash
if [ -d /.singularity.d ]; then echo 'not in the container' ; exit 1 ; fi
cd {root}
if [ -f user-software.squashfs ]; then echo 'exists' ; exit 3 ; fi
mksquashfs user-software user-software.squashfs -no-progress -processors 1 |& grep -v warning
"""


def easyconfig(name, version, suffix, image, conda, requirements, binds):
    """
    Return the text of the recipe.

    Parameters
    ----------
    name, version, suffix, image : str
        Those of the container.
    conda : str
        The command that activates the Conda environment in the image.
    requirements : list of str
        Lines for pip; without any, no venv is filled and the directory stays.
    binds : str
        Binds for the files of this machine that pip needs.
    """
    activate = f"source {conda} ; " if conda else ""
    scripts = {
        "runscripts/conda-python-distributed": SCRIPT,
        "runscripts/conda-python-simple": SCRIPT,
        "runscripts/get-master": SCRIPT,
        "bin/start-shell": SCRIPT,
        "bin/list-packages": SCRIPT,
        "bin/make-squashfs": MAKE,
        "bin/unmake-squashfs": MAKE,
        "bin/python": WRAPPER,
    }
    commands = ["mkdir -p %(installdir)s/bin %(installdir)s/runscripts"]
    for path, text in scripts.items():
        commands.append(f"cat >%(installdir)s/{path} <<'EOF'\n{text}EOF\nchmod a+x %(installdir)s/{path}")
    run = f"singularity exec --bind {binds}%(installdir)s/user-software:/user-software %(installdir)s/{image} bash -c "
    commands += [
        "mkdir -p %(installdir)s/user-software/venv",
        f"{run}'{activate}python -m venv --system-site-packages /user-software/venv/{name.lower()}'",
    ]
    if requirements:
        lines = "\n".join(requirements)
        commands += [
            f"cat >%(installdir)s/user-software/venv/requirements.txt <<EOF\n{lines}\nEOF",
            f"{run}'{activate}source /user-software/venv/{name.lower()}/bin/activate ; "
            "pip install --no-cache-dir -r /user-software/venv/requirements.txt'".replace("--no-cache-dir ", ""),
            "cd %(installdir)s && mksquashfs user-software user-software.squashfs -no-progress -processors 1 "
            "|& grep -v warning",
            "rm -rf %(installdir)s/user-software",
        ]
    return "\n".join(
        [
            "easyblock = 'MakeCp'",
            f"name = {name!r}",
            f"version = {version!r}",
            f"versionsuffix = {suffix!r}",
            "homepage = 'https://example.org'",
            "description = 'A container.'",
            "toolchain = SYSTEM",
            f"sources = [{{'filename': {image!r}, 'extract_cmd': '/bin/cp -L %s .'}}]",
            "skipsteps = ['build']",
            f"files_to_copy = [([{image!r}], '.')]",
            f"postinstallcmds = {commands!r}",
            f"sanity_check_paths = {{'files': [{image!r}], 'dirs': ['runscripts']}}",
            f"modextravars = {{'SIF': '%(installdir)s/{image}', 'RUNSCRIPTS': '%(installdir)s/runscripts'}}",
            "moduleclass = 'devel'",
            "",
        ]
    )
