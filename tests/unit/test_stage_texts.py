"""Stages and diagnosis, as texts."""

import pytest
from easybuild.easyblocks.generic.containerdiagnosis import ContainerDiagnosis
from easybuild.easyblocks.generic.containerpackages import check_pip
from easybuild.easyblocks.generic.containerstage import ContainerStage
from easybuild.tools.build_log import EasyBuildError


def stage(**properties):
    """One stage."""
    (made,) = ContainerStage.from_parameter([properties])
    return made


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({"no_build_isolation": True}, ["--no-build-isolation"]),
        ({"no_deps": True}, ["--no-deps"]),
        ({"no_binary": ["mpi4py", "h5py"]}, ["--no-binary", "mpi4py,h5py"]),
        ({"index_url": "https://a/b"}, ["--index-url", "https://a/b"]),
        ({"extra_index_url": ["x", "y"]}, ["--extra-index-url", "x", "--extra-index-url", "y"]),
        ({"find_links": ["/a b"]}, ["--find-links", "/a b"]),
        ({"options": ["--pre", "--only-binary=:all:"]}, ["--pre", "--only-binary=:all:"]),
        ({}, []),
    ],
)
def test_properties_become_options_of_pip(properties, options):
    """Each property is one option, its value one word."""
    assert stage(**properties).pip_options == options


def test_the_recipe_for_mpi4py():
    """S003-04: mpi4py from source: MPICC=cc, --no-binary=mpi4py, --upgrade."""
    made = stage(requirements="mpi4py", env={"MPICC": "cc"}, no_binary=["mpi4py"], options=["--upgrade"])
    assert made.env == {"MPICC": "cc"}
    assert made.pip_options == ["--no-binary", "mpi4py", "--upgrade"]


def test_the_recipe_for_horovod():
    """S003-05: Horovod: its variables and options, byte for byte."""
    env = {
        "CC": "cc", "CXX": "CC", "FC": "ftn", "HOROVOD_CPU_OPERATIONS": "MPI", "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_TENSORFLOW": "0", "HOROVOD_WITH_PYTORCH": "1", "HOROVOD_WITH_MXNET": "0",
    }
    made = stage(
        requirements=["horovod[pytorch]==0.28.1"], env=env, no_build_isolation=True, options=["--no-cache-dir"]
    )
    assert made.requirements == "horovod[pytorch]==0.28.1\n"
    assert made.env == env
    assert made.pip_options == ["--no-build-isolation", "--no-cache-dir"]


def test_the_recipe_for_packages_beside_torch():
    """S003-08: no_deps and extra_index_url: torchaudio and torchvision can't bring a torch of their own."""
    made = stage(requirements="torchaudio\ntorchvision", no_deps=True, extra_index_url=["https://example.org/cpu"])
    assert made.pip_options == ["--no-deps", "--extra-index-url", "https://example.org/cpu"]


def test_the_flags_of_a_source_build_are_variables_of_a_stage():
    """S003-12: USE_DISTRIBUTED=1 and the like are the stage's env."""
    env = {"USE_DISTRIBUTED": "1", "USE_CUDA": "0", "USE_ROCM": "0", "USE_MKL": "1", "MKL_THREADING": "SEQ"}
    assert stage(requirements="torch", env=env).record["env"] == env


def test_the_order_is_that_of_the_list():
    """S000-21: the order of the stages is the order of installation."""
    stages = ContainerStage.from_parameter([{"name": name} for name in ("c", "a", "b")])
    assert [made.name for made in stages] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"requirement": "a"}], "stage 1: unknown property 'requirement', did you mean 'requirements'"),
        ([{}, {"env": {"A": 1}}], "stage 2: property 'env' should be a dictionary of texts"),
        ([{"env": {"A B": "1"}}], "'A B' can't be the name of an environment variable"),
        ([{"no_deps": "yes"}], "property 'no_deps' should be True or False"),
        ([{"options": "--pre"}], "property 'options' should be a list of texts"),
        ([{"verify": "true"}], "property 'verify' should be a list of commands"),
        ([{"name": "a"}, {"name": "a"}], "two stages are named 'a'"),
        ([{"name": "a"}, "b"], "should be a text or a list of texts"),
        (5, "should be a text or a list of texts"),
    ],
)
def test_wrong_stages_are_named(value, expected):
    """What is wrong, in which stage, and what is allowed."""
    with pytest.raises(EasyBuildError) as error:
        ContainerStage.from_parameter(value)
    assert expected in str(error.value)


def test_files_of_this_machine_are_found():
    """S003-09: paths in requirement lines and find_links have to be reachable in the container."""
    made = stage(
        requirements=[
            "/a/x.whl", "y @ file:///b/y.whl", "git+file:///c/z.git@main#egg=z", "-f /d/wheels", "q>=1 # /no/path",
            "--find-links=file:///e",
        ],
        find_links=["/f/g", "https://example.org/h"],
    )
    assert made.local_paths == ["/a/x.whl", "/b/y.whl", "/c/z.git", "/d/wheels", "/e", "/f/g"]


def test_the_pip_of_another_place_is_refused():
    """S000-14: a pip that is not the venv's would install elsewhere."""
    check_pip("pip 23.0.1 from /user-software/venv/x/lib/python3.11/site-packages/pip (python 3.11)")
    with pytest.raises(EasyBuildError, match="not in /user-software"):
        check_pip("pip 23.0.1 from /usr/lib/python3/dist-packages/pip (python 3.11)")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("ERROR: Cannot find command 'git' - do you have 'git' installed and in your PATH?", "git is missing"),
        ("WARNING: Retrying ... NewConnectionError: Failed to establish a new connection: [Errno 111]", "no network"),
        ("ERROR: HTTP error 403 while getting https://x\nERROR: 403 Client Error: Forbidden", "refuses (HTTP 403)"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota is used up"),
        ("ERROR: x-1.0-cp39-win32.whl is not a supported wheel on this platform.", "wheel x-1.0-cp39-win32.whl"),
        ("ERROR: No matching distribution found for nothing==1", "no index or folder"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate", "EBSIF_INSTALL_BIND"),
        ("something nobody has seen before", ""),
    ],
)
def test_what_pip_says_is_explained(output, expected):
    """S000-08 (git), and what else really happens: disk, quota, network, index, platform."""
    text = ContainerDiagnosis(output).text
    assert expected in text if expected else text == ""
