"""The recipes of ARCHER2 and Derecho in the catalog, with tiny packages in place of large ones."""

import sys
import tarfile
from pathlib import Path

import pytest
from ebsif.catalog import reading
from ebsif.catalog import site as site_of
from ebsif.render import easyconfig
from ebsif.render import rendering as render
from support import make_wheel, printed, record_of

DISTRIBUTED = """\
import sys, types
distributed = types.ModuleType("torch.distributed")
distributed.is_mpi_available = distributed.is_nccl_available = lambda: True
sys.modules["torch.distributed"] = distributed
__path__ = []


def main():
    print("torchrun")
"""

SUPPORTING = """
    iniconfig toml memory_profiler matplotlib pyqt5 graphviz nltk jupyter jupyterlab wandb gym pyspark scikit_learn
    scikit_image h5py
"""

CHECK_BUILD = """\
def main():
    print("    [X] PyTorch")
    print("    [X] MPI")
"""


# the build must get the stage's settings
BACKEND = """
import os, zipfile

def build_wheel(folder, *_):
    assert os.environ["MPICC"] == "cc", "MPICC"
    info = "{name}-{version}.dist-info"
    with zipfile.ZipFile(folder + "/{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.write("{name}/__init__.py")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return "{name}-{version}-py3-none-any.whl"
"""


def make_source(folder, name, version):
    """Write a source distribution of one module, which pip has to build."""
    tree = folder / f"{name}-{version}"
    (tree / name).mkdir(parents=True)
    (tree / name / "__init__.py").write_text("MPI = None\n")
    # it contains its own build backend: setuptools would be fetched from an index
    (tree / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (tree / "backend.py").write_text(BACKEND.format(name=name, version=version))
    (tree / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    with tarfile.open(folder / f"{tree.name}.tar.gz", "w:gz") as archive:
        archive.add(tree, tree.name)


@pytest.fixture
def packages(tmp_path):
    """A folder with the replacement packages."""
    folder = tmp_path / "packages"
    folder.mkdir()
    others = "cmake ninja pyyaml typing_extensions packaging tensorboard_plugin_wit tensorboard_pytorch"
    for name in f"{others} {SUPPORTING}".split():
        make_wheel(folder, name)
    # the package's version is that of the source, not that of the module
    make_wheel(folder, "torch", "1.13.0a0+git49444c3", module_text=DISTRIBUTED, scripts={"torchrun": "torch:main"})
    make_wheel(
        folder, "horovod", "0.28.1", requires=["torch"], module_text=CHECK_BUILD, scripts={"horovodrun": "horovod:main"}
    )
    for name in ("tensorboard", "tensorboard_plugin_profile"):
        make_wheel(folder, name, "2.11.2")
    # dependencies that would replace torch; no package here provides them
    needing = {"torchaudio": "0.13.1", "torchvision": "0.14.1", "torchtext": "0.14.1", "torchmetrics": "1.0.3"}
    for name, version in needing.items():
        make_wheel(folder, name, version, requires=["torch==9"])
    make_source(folder, "mpi4py", "4.0")
    return folder


def test_archer2_with_replacement_packages(site_with_modules, packages, tmp_path):
    """
    All stages of the recipe, in order, with their environment and checks; the record has the version of torch's source
    besides that of the module (S003-03, S003-04, S003-05, S003-07, S003-08, S003-21).
    """
    (container,) = reading.read(site_of.read("archer2"), site_of.SITES / "archer2")
    text = easyconfig.render(container)
    # only the source of PyTorch can't be fetched here
    text = text.replace("'torch @ git+https://github.com/pytorch/pytorch.git@v1.13.1'", "'torch==1.13.0a0+git49444c3'")
    text = text.replace("'python': '3.9'", "'python': '3.11'")
    text = text.replace(container.file_name, "example.sif").replace("['https://download.pytorch.org/whl/cpu']", "[]")
    # nor is the host's MPI here; the example image is activated by hand
    assert "host_libraries = {\n    'libraries': ['/opt/cray/pe/mpich/8.*" in text
    text = text.replace("'libraries': ['/opt/cray", "'libraries': ['?/opt/cray")
    text = text.replace("wrappers", "init = 'conda-injected'\nconda_env = 'pytorch'\nwrappers", 1)
    path = tmp_path / container.easyconfig_name
    path.write_text(text)
    place = site_with_modules
    place.eb(path, EBSIF_HEAVY_HERE="1", EBSIF_INSTALL_BIND=packages, PIP_FIND_LINKS=packages, PIP_NO_INDEX="1")
    lock = place.record(container.module)
    assert [stage["name"] for stage in lock["stages"]] == [stage.name for stage in container.stages]
    assert lock["module"]["version"] == "1.13.1"
    replaced = {"torch==1.13.0a0+git49444c3", "horovod==0.28.1", "tensorboard==2.11.2", "mpi4py==4.0"}
    assert {*replaced, "torchvision==0.14.1", "torchmetrics==1.0.3"} <= set(lock["venv_packages"])
    names = {line.split("==")[0] for line in lock["venv_packages"]}
    assert set(SUPPORTING.split()) <= names
    code = "import torch.distributed as d; print(d.is_mpi_available())"
    assert place.bash(f"module load {container.module}\nsingularity exec $SIF python -c '{code}'").stdout == "True\n"


@pytest.fixture
def site_with_modules(site):
    """A site with replacements for the modules that the recipe loads."""
    for name in ("PrgEnv-gnu", "cray-fftw", "mkl/2023.0.0", "cmake/3.21.3"):
        path = site.modules / f"{name}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('setenv("MKLROOT", "/opt/mkl")\n')
    return site


def test_derecho_is_one_job(tmp_path):
    """S003-02, S004-17: Derecho's heavy stages are installed by one job that loads the site's modules."""
    container, _ = reading.read(site_of.read("derecho"), site_of.SITES / "derecho")
    rendered = render.render(container, tmp_path)
    render.write([rendered], tmp_path)
    assert [stage.name for stage in container.stages if stage.heavy] == ["nccl", "torch"]
    ebsif = Path(sys.prefix) / "bin/ebsif"
    job = printed([ebsif, "job", "--install", rendered.path, "--site", "derecho", "--account", "A"])
    assert "#PBS -l select=1:ncpus=64\n" in job
    (load,) = [line for line in job.splitlines() if line.startswith("module load ")]
    assert " cray-mpich/8.1.27 " in load
    assert job.endswith(f"\neb {rendered.path}\n")


TEXT = "sources = ['example.sif']\ninit = 'conda-injected'\nconda_env = 'pytorch'\n"


def test_an_image_with_other_versions(site):
    """
    L-12, F-11: the image's versions are compared as a whole: 2.4.60 is not 2.4.6; a missing package is named.

    The same without user software. The record may omit the last number.
    """
    python = ["apptainer", "exec", site.sources / "example.sif", "/opt/miniconda3/envs/pytorch/bin/python"]
    version = site.run([*python, "-c", "import numpy; print(numpy.__version__)"]).stdout.strip()
    plain = f"easyblock = 'ContainerInstall'\n{TEXT}"
    wrong = {
        f"{TEXT}image_packages = {{'numpy': '{version}0', 'NoSuch': '1'}}\n": f"has no NoSuch, not NoSuch 1, numpy "
        f"{version}, not numpy {version}0. Is it the right image?",
        f"{plain}image_packages = {{'numpy': '{version}+rocm6.2'}}\n": f"has numpy {version}, not numpy "
        f"{version}+rocm6.2. Is it the right image?",
        # F-11
        f"{plain}image_packages = {{'python': '3.1'}}\n": "has python 3.11.2, not python 3.1. Is it the right",
    }
    texts = {f"wrong {number}": text for number, text in enumerate(wrong)}
    shorter = version.rpartition(".")[0]
    texts["right"] = f"{plain}image_packages = {{'NumPy': '{shorter}'}}\nwarnings = ['ROCm is too new']\n"
    *refused, installed = site.eb_each(texts).values()
    for result, expected in zip(refused, wrong.values()):
        assert result.returncode != 0
        said = " ".join(result.stdout.split())
        assert expected in said
        assert "'eb --ignore-test-failure'" in said
        assert "copying" not in said
    assert installed.returncode == 0, installed.stdout
    assert "Warning: ROCm is too new" in site.bash("module help Example/1.0 2>&1").stdout


def test_a_release_of_the_ai_factory(site, base_image, tmp_path):
    """
    L-01, L-12: eb finds the image where the record says; if told to continue, it installs another version.

    `module keyword flash-attention` finds it; its message is shown at load, its links are in the help.
    """
    (container,) = [
        one
        for one in reading.read(site_of.read("lumi"), site_of.SITES / "lumi")
        if one.module == "lumi-multitorch/2.10-rocm-7.0-full-20260807_115122"
    ]
    (place,) = [path for _, path in container.image_places]
    image = tmp_path / place.relative_to("/")
    image.parent.mkdir(parents=True)
    image.symlink_to(base_image)
    message = "This one is a preview."
    text = easyconfig.render(
        container.replace(
            parameters={**container.parameters, "modloadmsg": message},
            init="conda-injected",
            conda_env="pytorch",
            entry_point=None,
            wrappers=["python"],
            images=None,
        )
    )
    text = text.replace("-/appl/local/containers}'", f"-{image.parents[1]}}}'").replace(
        "image_dirs = ['easybuild-sif-images'", f"image_dirs = ['{image.parent.name}'"
    )
    path = tmp_path / container.easyconfig_name
    path.write_text(text)
    result = site.eb(path, "--ignore-test-failure")
    said = " ".join((result.stdout + result.stderr).split())
    assert "has python 3.11.2, not python 3.12, no torch, not torch 2.10" in said
    assert "nevertheless" not in said
    root = site.root(container.module)
    assert record_of(root)["image"]["source"] == str(image)
    assert container.module in site.bash("module keyword flash-attention 2>&1").stdout
    loaded = site.bash(f"module load {container.module} && module help {container.module} 2>&1")
    assert message in loaded.stdout + loaded.stderr
    assert "https://github.com/Lumi-supercomputer/LUMI-AI-Guide" in loaded.stdout
