"""Programs of the image see the user's packages, for each kind of image, user software and way to start them."""

import pytest
from parts import example_site, wheel_settings
from support import make_wheel

BYHAND = "requirements = ['byhand']\n"
KINDS = {
    # Python is in a venv of the image; files in its bin that are no programs can't have wrappers
    "Venv": "init = 'venv-in-image'\nvenv_name = 'mine'\nwrappers = ['all']\n"
    "requirements = [{'requirements': ['byhand'], "
    "'post': ['cd $VIRTUAL_ENV/bin && touch x.conf && mkdir data']}]\n",
    "Conda": "init = 'conda-injected'\nconda_env = 'pytorch'\nvenv_name = 'mine'\nwrappers = ['tell', 'tell-script']\n",
    "Manual": "init = 'conda-manual'\nconda_env = 'pytorch'\nvenv_name = 'mine'\nwrappers = ['tell', 'tell-script']\n"
    + BYHAND,
}
VENV = "/user-software/venv/mine"


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_image, wheels):
    """A site with a module of each kind; the build directory has a bracket in its path."""
    site = example_site(tmp_path_factory.mktemp("programs"), small_image("venv"))
    text = "sources = ['example.sif']\n"
    easyconfigs = [site.easyconfig(text + more, name=name) for name, more in KINDS.items()]
    build = site.prefix / "a [b] c"
    site.eb(f"--buildpath={build}", *easyconfigs, **wheel_settings(wheels))
    # this one is a directory, changed by hand
    script = f"module load Conda/1.0 && singularity exec $SIF pip install --no-index --find-links {wheels} byhand"
    site.bash(script, **wheel_settings(wheels))
    return site


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_of_the_image_runs_the_venvs_python(kind, place):
    """G-01: by exec, start-shell and wrapper, entry point and script, with child processes; S001-04."""
    output = place.bash(f"""
        module load {kind}/1.0 || exit
        for program in tell tell-script; do
            singularity exec $SIF $program && start-shell -c $program && $program || exit
        done
    """).stdout
    assert output.splitlines() == [" ".join([VENV] * 4)] * 6


def test_programs_of_other_pythons_are_unchanged(place):
    """G-01: a program of the system's Python is not one of the venv's."""
    for kind, folder in (("Venv", "/opt/venv"), ("Conda", "/opt/miniconda3/envs/pytorch")):
        output = place.bash(f"module load {kind}/1.0; singularity exec $SIF sh -c 'command -v tell-system'").stdout
        assert output == f"{folder}/bin/tell-system\n"


def test_wrappers_for_all_programs(place):
    """`wrappers = 'all'` includes programs of the image that run in the venv, but no files that aren't programs."""
    names = {path.name for path in (place.root("Venv/1.0") / "bin").iterdir()}
    assert {"tell", "tell-script", "python", "pip"} <= names
    assert not {"x.conf", "data", "tell-system", "activate"} & names


def test_a_users_own_user_software(place, tmp_path):
    """G-01: user software made from the module's has the programs, too, byte for byte."""
    output = place.bash(f"""
        export EBSIF_USER_SOFTWARE={tmp_path}
        module load Venv/1.0 && unmake-squashfs && module load Venv/1.0 && tell && singularity exec $SIF tell-script
    """).stdout
    assert output.splitlines() == [" ".join([VENV] * 4)] * 2


def test_an_environment_on_top_of_the_module(place, tmp_path):
    """G-01: make-venv: programs of the image and of user software run the environment's Python."""
    output = place.bash(f"""
        module load Venv/1.0 && cd {tmp_path} && make-venv 'my env' && source 'my env/bin/activate' || exit
        tell | cut -c-{len(str(tmp_path)) + 7}; tell-script | cut -c-{len(str(tmp_path)) + 7}
    """).stdout
    assert output.splitlines() == [f"{tmp_path}/my env"] * 2


def test_pip_replaces_and_removes_them(place, tmp_path):
    """G-01: installing a newer release by hand replaces the program; pip uninstalls it like its own."""
    make_wheel(
        tmp_path, "tell", version="2.0", module_text="def main():\n    print('newer')\n", scripts={"tell": "tell:main"}
    )
    output = place.bash(f"""
        export APPTAINERENV_PIP_CONSTRAINT= SINGULARITYENV_PIP_CONSTRAINT=  # on purpose
        module load Conda/1.0 && singularity exec $SIF pip install --quiet --no-index --find-links {tmp_path} -U tell
        tell; singularity exec $SIF pip uninstall --quiet --yes tell && singularity exec $SIF sh -c 'command -v tell'
        singularity exec $SIF python - <$CONTAINERROOT/share/ebsif/image-programs.py; tell
    """).stdout
    again = ["tell", " ".join([VENV] * 4)]
    assert output.splitlines() == ["newer", "/opt/miniconda3/envs/pytorch/bin/tell", *again]
