"""LUMI's catalog compared with the known properties of its modules, see tests/data/lumi-containers.json."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from ebsif.catalog import reading, selection, site
from ebsif.check.sites import LONG
from ebsif.render import easyconfig, rendering
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from parts import TOOLS, wheel_settings
from support import CHECKOUT, Site, make_wheel, printed

FACTS = json.loads((CHECKOUT / "tests/data/lumi-containers.json").read_text())
LUMI = CHECKOUT / "generator/ebsif/catalog/sites/lumi"

# The spelling of packages in the facts.
PACKAGES = {"flashattention": "flash-attn", "pytorch": "torch"}
NO_PACKAGES = ("dockerhash", "date", "rocm_major_minor", "vllm_commit")


@pytest.fixture(scope="module")
def containers():
    """The catalog's containers by easyconfig name."""
    return {one.easyconfig_name: one for one in reading.read(site.read("lumi"), LUMI)}


class Modules:
    """The modules of all containers, made with eb --module-only."""

    def __init__(self, place, containers):
        self.site = Site(place, TOOLS["Lmod-Lua"](), Path(sys.prefix))
        paths = []
        for container in containers.values():
            rendered = rendering.render(container, place / "easyconfigs")
            rendering.write([rendered], place / "easyconfigs")
            paths.append(rendered.path)
        self.images = place / "images"
        (self.images / "easybuild-sif-images").mkdir(parents=True)
        for container in containers.values():
            (self.images / "easybuild-sif-images" / container.file_name).touch()
            # without it, loading fails
            scripts = self.root(container) / "share/ebsif"
            for path in (self.root(container) / "runscripts", scripts):
                path.mkdir(parents=True)
            (scripts / "set-environment.sh").touch()
        # nothing is installed, hence --force and no sanity check; the AI Factory's images are not below the root
        mine = [path for path in paths if "multitorch" not in path.name]
        options = ["--module-only", "--force", "--skip-sanity-check"]
        self.site.eb(*mine, *options, LUMI_CONTAINER_REPOSITORY_ROOT=self.images)

    def root(self, container):
        """Return a container's installation directory (Path)."""
        return self.site.root(container.module)

    def text(self, container):
        """Return the text of the module file, which is hidden if the container is archived."""
        hidden = "." if container.archived else ""
        return (self.site.modules / container.name / f"{hidden}{container.full_version}.lua").read_text()

    def environments(self, containers):
        """Return the environment after loading each container's module, with its image and user software present."""
        script = ""
        for number, container in enumerate(containers):
            if container.venv:
                (self.root(container) / "user-software").mkdir(parents=True, exist_ok=True)
            script += f"(module load {container.module} && env -0 >{number}) || echo {container.module} >>failed\n"
        self.site.bash(script, LUMI_CONTAINER_REPOSITORY_ROOT=self.images)
        assert not (self.site.work / "failed").exists(), (self.site.work / "failed").read_text()
        texts = [(self.site.work / str(number)).read_text() for number in range(len(containers))]
        return [dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry) for text in texts]


@pytest.fixture(scope="module")
def modules(tmp_path_factory, containers):
    """The modules of all containers."""
    return Modules(tmp_path_factory.mktemp("lumi"), containers)


def by_name(fact):
    """Return the name of a test."""
    return fact["easyconfig"][: -len(".eb")]


def test_all_containers_of_lumi_are_in_the_catalog(containers):
    """S002-51: 70 containers and the AI Factory's images: another framework needs data only."""
    assert len(FACTS) == 70
    assert {fact["easyconfig"] for fact in FACTS} <= set(containers)
    assert {one.name for one in containers.values()} - {fact["name"] for fact in FACTS} == {"lumi-multitorch"}


@pytest.mark.nightly
@pytest.mark.parametrize("fact", FACTS, ids=by_name)
def test_the_record(fact, containers):
    """Image, components, requirements and archived containers are those in the facts."""
    container = containers[fact["easyconfig"]]
    assert [container.file_name, *container.definition_files] == fact["sif"]
    assert bool(container.archived) == fact["archived"]
    assert bool(container.venv) == fact["user_software_venv"]
    assert container.requirements == fact["requirements"]
    assert set(fact["conflicts"]) <= set(container.site.conflicts)
    inside = container.versions
    inside.update(torch=inside.get("pytorch"), python_mm=container.python)
    for name, version in fact["components"].items():
        if name == "rocm" and "-noRocm-" in fact["versionsuffix"]:
            # the recipe has the version as a variable, but doesn't install it into this image
            assert name not in inside
        elif name not in NO_PACKAGES:
            key = PACKAGES.get(name.lower(), name if name == "python_mm" else canonicalize_name(name))
            assert inside[key] == version, name


@pytest.mark.nightly
def test_the_modules(containers, modules):
    """S001-04, S002-54, S002-15, S002-14 (in part), S002-55: variables, binds and scripts of each module."""
    of_facts = [containers[fact["easyconfig"]] for fact in FACTS]
    wrong = []
    for fact, container, environment in zip(FACTS, of_facts, modules.environments(of_facts)):
        for check, found in (
            (check_variables, environment),
            (check_binds, modules.text(container)),
            (check_scripts, modules.text(container)),
        ):
            try:
                check(fact, container, found, str(modules.root(container)))
            except AssertionError as error:
                wrong.append(f"{by_name(fact)}, {check.__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
def test_every_name_of_lumi_can_be_loaded(containers, modules):
    """
    L-11: the names of LUMI's 70 modules, with an alias if ours differs. `module avail` hides archived modules; loading
    them prints since when and why they are archived, and what to use instead.
    """
    names = {f"{fact['name']}/{fact['version']}{fact['versionsuffix']}" for fact in FACTS}
    # two pairs of LUMI's easyconfigs make the same module
    assert len(names) == 68
    ours = {one.module for one in containers.values() if one.name != "lumi-multitorch"}
    script = "".join(f'(module load {name} && test -n "$SIF") || echo {name}\n' for name in sorted(names | ours))
    result = modules.site.bash(script, LUMI_CONTAINER_REPOSITORY_ROOT=modules.images)
    assert result.stdout == ""
    listed = set(modules.site.bash("module -t avail 2>&1").stdout.split())
    archived = [one for one in containers.values() if one.archived]
    assert len(archived) == 43
    assert not listed & {one.module for one in archived}
    assert {one.module for one in containers.values() if not one.archived and one.name != "lumi-multitorch"} <= listed
    for one in archived:
        assert " ".join(one.archive_message.split()) in " ".join(result.stderr.split())
        # the replacement exists and is not archived itself
        replacement = one.archived.replacement
        assert not replacement or not selection.find_one(list(containers.values()), replacement).archived


def check_variables(fact, container, environment, root):
    """S001-04, S002-54: every variable has the same meaning; activation is injected as the image needs it."""
    assert environment["SIF"].endswith(f"/{container.file_name}")
    assert environment["RUNSCRIPTS"] == f"{root}/runscripts"
    # set when a container starts, or by the module
    words = [line.split(" ", 1) for line in Path(root, "share/ebsif/module.conf").read_text().splitlines()]
    at_start = dict(text.split("=", 1) for kind, text in words if kind == "start")
    for name, value in fact["module_vars"].items():
        wanted = value.replace("%(installdir)s", root)
        if name.startswith("SIF"):
            assert Path(environment[name]).name == Path(wanted).name
        elif name.startswith("SINGULARITYENV_"):
            bare = name[len("SINGULARITYENV_") :]
            found = at_start.get(bare) or environment[f"APPTAINERENV_{bare}"]
            assert bare in at_start or environment[name] == found
            if bare == "PREPEND_PATH":
                # plus the programs of a SquashFS file that a user mounts at /user-software
                paths = [path for path in found.split(":") if path != "/user-software/bin"]
                assert paths == [part for part in wanted.split(":") if part]
            elif bare.startswith("WITH_"):
                # nothing is left to do, but scripts that use it still work
                assert found == "true"
            elif bare == "PS1":
                # the facts have it as written in Lua, ours as the runtime reads it
                assert unescaped(found) == wanted.replace("\\\\", "\\")
            else:
                assert found == wanted, name
        elif name == "EXPORTCCPE":
            # ours has more names
            assert set(wanted.split(",")) <= set(environment[name].split(","))
        else:
            assert environment[name] == wanted, name


def unescaped(value):
    """Return a value as the runtime's shell evaluates it."""
    script = f'value="{value}"; printf %s "$value"'
    return printed(["bash", "-c", script])


def check_binds(fact, container, text, root):
    """S002-15, S002-14 (in part): every bind, and libjansson only for images without it."""
    if fact["binds"] is None:
        return
    settings = Path(root, "share/ebsif/module.conf").read_text()
    ours = set(re.findall(r"^bind(?:_default)? \??(/.+)$", settings, re.MULTILINE))
    wanted = {bind.split(":")[0] if len(set(bind.split(":"))) == 1 else bind for bind in fact["binds"]}
    assert ours == wanted - {"%(installdir)s/runscripts:/runscripts"}
    assert "\nbind ./runscripts:/runscripts\n" in settings


def check_scripts(fact, container, text, root):
    """S002-55: every command, run script and wrapper exists; the help has $WITH_CONDA in single quotes."""
    known = {f"bin/{name}" for name in easyconfig.wrappers(container) or []}
    # the help lists the commands; the easyblock adds run scripts for images with Python
    commands = re.search(r"The module has these commands:\n(.*?)\.\sRun any of", text, re.DOTALL)[1]
    known |= {f"bin/{name}" for name in re.findall(r"[\w-]+", commands)}
    known |= set(container.script_names)
    if container.init != "none":
        names = "conda-python-simple conda-python-distributed get-master init-conda-venv list-packages"
        known |= {f"runscripts/{name}" for name in names.split()}
    assert set(fact["scripts"]) | set(fact["wrapper_links"]) <= known
    if container.init == "conda-manual":
        assert "bash -c '$WITH_CONDA; python --version'" in text


# One container of each generation, with commands that start its Python. (Those of the AI Factory are installed in
# test_laif, ccpe in test_ccpe; jax, TensorFlow and mpi4py differ from these in names only.)
GENERATIONS = {
    "PyTorch/2.0.1-rocm-5.5.1-python-3.10-singularity-20231110": "singularity exec $SIF bash -c '$WITH_CONDA && "
    "python {0}' && singularity exec $SIF conda-python-simple {0}",
    "PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-exampleVenv-20240315": "singularity exec $SIF python {0} && "
    "start-shell -c 'python {0}'",
    "PyTorch/2.7.1-rocm-6.2.4-python-3.12-singularity-20250827": "python {0} && python3 {0} && singularity exec $SIF "
    "conda-python-distributed {0}",
    "AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-20231108": "singularity exec $SIF python-conda-simple {0}",
    "rocm/6.2.2-singularity-20241007": "start-shell -c '/opt/miniconda3/envs/pytorch/bin/python {0}'",
}


@pytest.mark.nightly
def test_one_of_each_generation(containers, tmp_path, base_image, small_image):
    """
    S002-51: installed from an image where LUMI has it, and used; only the software is a stand-in.

    L-12, F-11: the packages of one image are those of its record; Python never is, so eb is told to go on.
    """
    place = Site(tmp_path / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (place.work / "where.py").write_text(
        "import sys\ntry:\n    import torchmetrics\nexcept ImportError:\n    torchmetrics = None\n"
        "print('/envs/pytorch' in sys.prefix, sys.prefix, bool(torchmetrics))\n"
    )
    images, wheels = tmp_path / "images", tmp_path / "wheels"
    (images / "easybuild-sif-images").mkdir(parents=True)
    wheels.mkdir()
    make_wheel(wheels, "torchmetrics")
    make_wheel(wheels, "pytorch_lightning")
    chosen = [one for one in containers.values() if one.module in GENERATIONS]
    for one in chosen:
        image = small_image("lumi-2025") if "2.7.1" in one.module else base_image
        (images / "easybuild-sif-images" / one.file_name).symlink_to(image)
        for name in one.definition_files:
            (place.sources / name).write_text("FROM scratch\n")
    made = [rendering.render(one, tmp_path / "easyconfigs") for one in chosen]
    rendering.write(made, tmp_path / "easyconfigs")
    paths = [one.path for one in made]
    settings = {**wheel_settings(wheels), "LUMI_CONTAINER_REPOSITORY_ROOT": images}
    result = place.eb(*paths, "--ignore-test-failure", **settings)
    said = " ".join((result.stdout + result.stderr).split())
    refused = dict(re.findall(r"the image (lumi-\S+) has ([^?]*)\. Is it", said))
    assert set(refused) == {one.file_name for one in chosen if one.python}
    alone = {one.file_name for one in chosen if one.version == "2.7.1" or one.name == "AlphaFold"}
    pattern = re.compile(r"python 3\.11\.2, not python \S+")
    assert {name for name, text in refused.items() if pattern.fullmatch(text)} == alone
    script = "".join(
        f"echo '{name}:'; (module load {name} && {way.format('where.py')})\n" for name, way in GENERATIONS.items()
    )
    found = dict(part.split(":\n") for part in re.split(r"(?m)^(?=\w+/)", place.bash(script, **settings).stdout)[1:])
    newest = next(name for name in GENERATIONS if "2.7.1" in name)
    typed = f"module load {newest}\nsingularity exec $SIF sh -c 'cd \"$AITER_JIT_DIR/build\" && pwd'"
    aiter = place.bash(typed, **settings, SLURM_JOB_ID="7", SLURM_STEP_ID="2", EBSIF_NODE_LOCAL=place.work).stdout
    assert aiter == f"{place.work}/ebsif-{os.getuid()}/job-7/step-2/aiter/build\n"
    conda, venv = "True /opt/miniconda3/envs/pytorch False\n", "False /user-software/venv/pytorch {}\n"
    wanted = dict.fromkeys(GENERATIONS, conda * 2)
    for name in wanted:
        if name.startswith(("rocm", "AlphaFold")):
            wanted[name] = conda
        elif "exampleVenv" in name:
            wanted[name] = venv.format(True) * 2
        elif "2.7.1" in name:
            wanted[name] = venv.format(False) * 3
    assert found == wanted


def test_old_names_of_run_scripts_work(tmp_path, base_image):
    """S002-54: python-conda-simple, a former name, and the commands of another kind of container."""
    place = Site(tmp_path, TOOLS["Lmod-Lua"](), Path(sys.prefix))
    (place.sources / "example.sif").symlink_to(base_image)
    path = place.easyconfig(
        "easyblock = 'ContainerInstall'\nsources = ['example.sif']\n"
        "init = 'conda-manual'\nconda_env = 'pytorch'\nscript_names = {\n"
        "    'runscripts/python-conda-simple': 'runscripts/conda-python-simple', 'bin/my-exec': 'bin/container-exec',\n"
        "    'bin/my-shell': 'bin/start-shell', 'bin/my-run': 'bin/container-run',\n"
        "    'bin/my-singularity': 'bin/container-runtime'}\n"
    )
    place.eb(path)
    load = "module load Example/1.0\n"
    assert place.bash(load + "singularity exec $SIF python-conda-simple -c 'print(6 * 7)'").stdout == "42\n"
    assert place.bash(load + "my-exec python -c 'print(6 * 7)'").stdout == "42\n"
    assert place.bash(load + "my-shell -c 'echo $CONDA_DEFAULT_ENV'").stdout == "pytorch\n"
    # this image has no runscript
    assert "no runscript" in place.bash(load + "my-run", check=False).stdout
    assert place.bash(load + "my-singularity exec $SIF cat /runscripts/get-master").stdout.startswith("#!")
    assert place.bash(load + "my-exec", check=False).returncode == 64


def test_easyconfigs_and_catalog_are_short(containers):
    """
    Easyconfigs have at most 60 lines (120 with forty binds of their own), the catalog fewer than 1,500, and each
    record of a known family at most twelve.
    """
    for one in containers.values():
        assert len(easyconfig.render(one).splitlines()) <= (120 if one.name == "ccpe" else LONG)
    files = [LUMI / "site.yaml", *reading.files(LUMI)]
    assert sum(len(path.read_text().splitlines()) for path in files) < 1500
    for path in files[1:]:
        records = re.split(r"^  - ", path.read_text().split("\ncontainers:\n")[1], flags=re.MULTILINE)[1:]
        assert max(len(record.splitlines()) for record in records) <= 12, path


# What the recipes' texts say in two ways, or the catalog says otherwise: the beginning of the easyconfig's name, the
# field, the name, and why.
EXCEPTIONS = [
    ("PyTorch-2.2.2-rocm-5.6.1-python-3.10-vllm", "stated", "deepspeed", "0.14.0 by the variables of the recipe"),
    ("PyTorch-2.2.2-rocm-5.6.1-python-3.10-vllm", "stated", "xformers", "0.0.26 by the variables of the recipe"),
    ("PyTorch-2.6.0", "stated", "vllm", "0.7.2+rocm624 by the variables and checks of the recipe"),
    ("PyTorch-20240801", "stated", "torch", "the package's version, and the date that names the module"),
    ("PyTorch-20240918", "stated", "torch", "the package's version, and the date that names the module"),
    ("PyTorch-20240918", "stated", "transformers", "4.45.1 by the variables of the recipe"),
    ("PyTorch-20240918", "stated", "rocm", "6.2.1 by the variables of the recipe and the name of the image"),
    ("jax-0.4.28", "stated", "scipy", "1.15.2 by the variables and checks of the recipe"),
    ("jax-0.4.35", "stated", "jax", "0.4.35 names the module, and image_packages has the package's version"),
    ("jax-community-0.5.0", "stated", "jax", "the community's version names the module"),
    # copied from recipes of images that have them: neither their other texts nor their variables name these
    ("PyTorch-2.2.2-rocm-5.7.3", "keywords", "xformers", "not in the image"),
    ("PyTorch-2.3.1", "keywords", "xformers", "not in the image"),
    ("PyTorch-2024", "keywords", "DeepSpeed", "not in the image"),
    ("PyTorch-2024", "keywords", "xformers", "not in the image"),
    ("PyTorch-2.2.2", "links", "https://docs.vllm.ai/", "in two archived recipes only"),
    ("jax-", "links", "https://jax.readthedocs.io/en/latest/", "moved to docs.jax.dev"),
    ("mpi4py-", "links", "https://mpi4py.readthedocs.io/en/", "the same page, and the homepage"),
    ("mpi4py-", "links", "https://github.com/mpi4py/mpi4py", "linked from the homepage"),
    ("rocm-", "links", "https://docs.amd.com/", "moved to rocm.docs.amd.com"),
    # the recipes tell users to set these; the module sets the first one, and its help has the others
    ("PyTorch-2.7.1", "advised_env", "AITER_JIT_DIR", "a place for each job step, not for each rank"),
]


def test_nothing_of_the_recipes_is_lost(containers):
    """
    Versions, keywords, links and advice in the texts of LUMI's recipes are in the catalog.

    Facts of variables, binds, scripts and images are in the tests above. The data are those of the recipes' #DOC lines,
    descriptions, `whatis` and `docurls` (LUMI-EasyBuild-containers, commit af6fb1c).
    """
    texts = json.loads((CHECKOUT / "tests/data/lumi-texts.json").read_text())
    assert set(texts) == {fact["easyconfig"] for fact in FACTS}
    missing = {(name, *one) for name, facts in texts.items() for one in lost(facts, containers[name])}
    known = {
        one: [why for part, *field, why in EXCEPTIONS if one[0].startswith(part) and list(one[1:]) == field]
        for one in missing
    }
    assert [one for one, reasons in known.items() if not reasons] == []
    needed = {reason for reasons in known.values() for reason in reasons}
    assert {why for *_, why in EXCEPTIONS} == needed


def lost(facts, container):
    """Yield the field and the name of each fact that the catalog lacks, or has in another way."""
    inside = {**container.versions, **container.image_packages}
    for name, versions in facts.get("stated", {}).items():
        if versions != [inside.get(name)]:
            yield "stated", name
    # what `module keyword` searches: the easyblock adds the packages that it has checked
    checked = easyconfig.image_packages(container)
    description = " ".join([easyconfig.description(container), *checked]).lower()
    for word in facts.get("keywords", []):
        if word.lower() not in description and not selection.has_keyword(container, Requirement(word)):
            yield "keywords", word
    values = easyconfig.parameters(container)
    for link in facts.get("links", []):
        if not any(link in text for text in (values["homepage"], *values.get("docurls", []))):
            yield "links", link
    for name, value in facts.get("advised_env", {}).items():
        if f"{name}={value}" not in values.get("usage", ""):
            yield "advised_env", name


def test_aiter(containers):
    """The cache of AITER and the advice on its compilers, only in the image that has it."""
    having = [one for one in containers.values() if "AITER_JIT_DIR" in one.caches]
    assert [one.module for one in having] == ["PyTorch/2.7.1-rocm-6.2.4-python-3.12-singularity-20250827"]
    assert having == [one for one in containers.values() if selection.has_keyword(one, Requirement("aiter"))]
    values = easyconfig.parameters(having[0])
    assert values["cache_variables"] == {"AITER_JIT_DIR": "step/aiter"}
    assert "CC=clang CXX=clang++" in values["usage"]


def test_who_supports_what(containers):
    """S002-18: the support team, or the AI Factory, to whose images it sends people."""
    factory = {one.name for one in containers.values() if "AI Factory" in (one.support or "")}
    assert factory == {"lumi-multitorch"}
    values = [easyconfig.parameters(one)["support_level"] for one in containers.values() if one.name == "PyTorch"]
    assert len(set(values)) == 1 and "no updates: lumi-multitorch is recommended" in values[0]
