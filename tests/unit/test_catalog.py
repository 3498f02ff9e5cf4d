"""The catalog: models, families, rendering, selection by components."""

import ast
import cProfile
import functools
import json
import multiprocessing
import re
import typing
from pathlib import Path

import pytest
import yaml
from easybuild.easyblocks.generic.container.literals import literals
from ebsif import files, filling
from ebsif.catalog import merge, reading, records, schema, selection, site, yamlerrors
from ebsif.catalog.container import CatalogError
from ebsif.check.easyconfigs import differences
from ebsif.check.sites import LONG, check
from ebsif.publish.pages import entry
from ebsif.render import easyconfig, rendering
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import CHECKOUT, examples

HEAD = """\
name: PyTorch
families:
  base:
    homepage: https://pytorch.org/
    file: lumi-{version}-{hash}.sif
    suffix: -rocm-{rocm}{variant}-singularity{label}-{date}
    components: {rocm: 6.0, numpy: 1.26.0}
    binds: {optional: [/a]}
    venv: true
  newer:
    extends: base
    components: {rocm: 6.2.4}
    binds: {optional: [/b]}
    wrappers: [python]
containers:
"""

RECORD = """\
  - family: newer
    version: 2.10
    date: 20250101
    hash: abc
"""


def dated(version, date, more=""):
    """Return a record of another version and date."""
    return RECORD.replace("2.10", version).replace("20250101", date).replace("abc", f"h{date}") + more


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a catalog with one file for a site."""

    def read(text, profile=None, name="PyTorch"):
        folder = tmp_path / "containers"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        return reading.read(profile or site.read("local"), tmp_path)

    return read


@pytest.mark.parametrize("path", sorted((CHECKOUT / "easyconfigs").rglob("*.eb")), ids=lambda path: path.name)
def test_easyconfigs_pass_the_rules_of_easybuild(path):
    """easybuild, upstream's suites: test_pr_python_packages, test_downloadable_or_instructions, and file names."""
    text = path.read_text()
    values = literals(text)
    # no packages in the home directory
    for line in text.splitlines():
        runs = re.search(r"\bpython\S* (?:-[a-z]+ )*(?:-c|-m|cc|\S+\.py) ", line)
        assert line.startswith("#") or not runs or re.search(r"\bpython\S* (?:-[a-z]+ )*-s ", line), line
    assert values.get("source_urls") or values["download_instructions"]
    assert path.stem == f"{values['name']}-{values['version']}{values['versionsuffix']}"
    folder = CHECKOUT / "easyconfigs" / ("__archive__" if values.get("hidden") else "")
    assert path.parent == folder / values["name"][0].lower() / values["name"]
    names = re.findall(r"^(\w+) *=", text, re.MULTILINE)
    assert len(names) == len(set(names))
    # also of those that are written by hand
    assert max(map(len, text.splitlines())) <= 120


def test_settings_of_the_site(read):
    """easybuild, upstream's suites: the site sets the image's location and the listed packages; records override."""
    lumi = site.read("lumi").model_copy(update={"listed_packages": "all"})
    (one,) = read(HEAD + RECORD, lumi)
    values = easyconfig.parameters(one)
    assert values["listed_packages"] == "all"
    # the directories stand there only
    assert values["download_instructions"] == "The image is on LUMI."
    assert values["image_dirs"] == ["easybuild-sif-images", "tested-containers", "sif-images"]
    (own,) = read(HEAD + RECORD + "    parameters: {download_instructions: Ask us.}\n", lumi)
    # a record's are at the same place
    (group,) = [group for group in easyconfig.parameter_groups(own) if "download_instructions" in group]
    assert (group["download_instructions"], "sources" in group) == ("Ask us.", True)
    (nowhere,) = read(HEAD + RECORD)
    assert not {"download_instructions", "listed_packages"} & easyconfig.parameters(nowhere).keys()


def test_what_the_description_says_of_the_image(read):
    """Each component once, in the family's words, in 'image_packages', or in a list with usual names."""
    record = (
        f"{HEAD}{RECORD}    description: 'PyTorch of {{flavor}}, for ROCm {{rocm!dotless}}.'\n"
        "    components: {flavor: mine, rocm: 6.2.4, torch: 2.10, numpy: null}\n"
    )
    (one,) = read(record)
    assert easyconfig.description(one) == "PyTorch of mine, for ROCm 624.\nIn the image: torch 2.10."
    (one,) = read(record.replace("numpy: null", "deepspeed: 0.15.1") + "    image_packages: {Torch: 2.10}\n")
    assert easyconfig.description(one).endswith("\nAlso in the image: numpy 1.26.0, DeepSpeed 0.15.1.")
    (one,) = read(f"{record}    keywords: [{'a' * 54}, {'b' * 52}]\n")
    assert max(map(len, easyconfig.render(one).splitlines())) <= 120


def test_a_record_contains_only_differences(read):
    """S002-51: family, parent families and site: tables are merged, the more specific value wins."""
    (one,) = read(HEAD + RECORD, site.read("lumi"))
    assert one.module == "PyTorch/2.10-rocm-6.2.4-singularity-20250101"
    assert one.file_name == "lumi-2.10-abc.sif"
    assert one.components == {"rocm": "6.2.4", "numpy": "1.26.0"}
    assert one.all_binds.optional[-2:] == ["/a", "/b"]
    assert one.all_binds.optional[0] == "/var/spool/slurmd"
    assert len(RECORD.splitlines()) <= 10


def test_a_record_without_what_it_would_inherit(read):
    """L-10: `not_inherited` removes whole fields, also the site's; null removes entries of tables."""
    lumi = site.read("lumi")
    (one,) = read(
        f"{HEAD}{RECORD}    not_inherited: [binds, network_env, conflicts]\n    conflicts: [mine]\n"
        "    binds: {optional: [/own]}\n    components: {rocm: null, torch: 2.10}\n    suffix: -x\n",
        lumi,
    )
    values = easyconfig.parameters(one)
    assert (values["binds"], values["conflicts"]) == (["?/own"], ["mine"])
    assert "network_env" not in values
    assert one.components == {"numpy": "1.26.0", "torch": "2.10"}


def test_statements_for_eval(read, tmp_path):
    """L-10: read from a file into one line without comments; EasyBuild leaves their variables alone."""
    (one,) = read(HEAD + RECORD + "    variables: {GO: {text: 'exec $HOME/go;'}, HERE: $HOME}\n")
    go = {"value": "exec $HOME/go;", "resolve_env_vars": False}
    assert easyconfig.parameters(one)["modextravars"] == {"GO": go, "HERE": "$HOME"}
    with pytest.raises(yamlerrors.DocumentError, match="can't read the file 'go.bash' in the directory 'files'"):
        read(HEAD + RECORD + "    container_env: {GO: {file: go.bash}}\n")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/go.bash").write_text("# a comment\nif true;\nthen\n    go '#1';\n\nfi;\n")
    (one,) = read(HEAD + RECORD + "    container_env: {GO: {file: go.bash}}\n")
    assert one.container_env["GO"] == "if true; then go '#1'; fi;"


def test_the_names_of_the_ai_factorys_images():
    """Image names have versions without dots, module names have them with dots."""
    lumi = site.read("lumi")
    containers = [one for one in reading.read(lumi, site.SITES / "lumi") if one.name == "lumi-multitorch"]
    ends = ("full-20260415_130625", "full-20260513_121430")
    one, newer = (one for one in containers if one.module_or_version.endswith(ends))
    assert one.file_name == "lumi-multitorch-full-u24r70f21m50t210-20260415_130625.sif"
    values = easyconfig.parameters(one)
    assert values["image_dirs"] == ["/appl/local/laifs/containers/lumi-multitorch-u24r70f21m50t210-20260415_130625"]
    assert values["init"] == "venv-in-image"
    assert values["conflicts"] == ["singularity-AI-bindings", "lumi-aif-singularity-bindings"]
    # L-03: where images of each generation set variables that depend on the rank
    assert values["entry_point"] == "/.singularity.d/runscript"
    assert "entry_point = '/opt/oci-entrypoint.sh'" in easyconfig.render(newer)


def test_an_unknown_version_lists_the_known_ones(read):
    """S004-11: names with and without v, full module names, easyconfig file names; errors list the known ones."""
    containers = read(HEAD + RECORD + RECORD.replace("2.10", "2.4.0"))
    full = "2.4.0-rocm-6.2.4-singularity-20250101"
    for wanted in ("PyTorch/2.4.0", "pytorch/v2.4.0", f"PyTorch/{full}", f"PyTorch-{full}.eb"):
        assert [one.version for one in selection.find(containers, wanted)] == ["2.4.0"], wanted
    assert len(selection.find(containers, "PyTorch")) == 2
    with pytest.raises(CatalogError, match=r"no version '9' of .*; known versions:\n  2.10-rocm.*\n  2.4.0-rocm"):
        selection.find(containers, "PyTorch/v9")
    with pytest.raises(CatalogError, match=r"'PyTrch' \(known: PyTorch\); did you mean PyTorch\?"):
        selection.find(containers, "PyTrch")
    with pytest.raises(CatalogError, match="there is no container '/a/PyTorch.eb'"):
        selection.find(containers, "/a/PyTorch.eb")
    assert len(selection.find(containers, "torch-2")) == 2


def test_choosing_by_what_is_inside(read):
    """Versions are compared as versions: 2.10 is newer than 2.9; an error shows how to write a requirement."""
    (one,) = read(HEAD + RECORD)
    fitting = ["rocm>=6.2", "numpy==1.26", "NumPy<2", "PyTorch>=2.9"]
    wanted = [*fitting, "rocm>=6.10", "Num_Py", "pytorch<2.9", "vllm"]
    assert [text for text in wanted if selection.satisfies(one, selection.parse_requirement(text))] == fitting
    with pytest.raises(CatalogError, match="such as vllm>=0.8"):
        selection.parse_requirement("vllm >>= 1")


def test_the_catalog_and_the_easyblocks_have_the_same_stages_and_kinds_of_activation():
    """The catalog accepts the same stage properties and kinds of activation as the easyblocks."""
    from easybuild.easyblocks.generic.container import sitevalues, stages

    assert list(records.Stage.model_fields) == list(stages.PipStage.PROPERTIES)
    kinds = typing.get_args(records.ContainerRecord.model_fields["init"].annotation)[0].__metadata__[0].words
    assert kinds == sitevalues.INIT_KINDS


# --- rendering

HOSTILE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1, max_size=40)
# quotes and backslashes, what programs replace, what has more than words
NASTY = ['"""', "'''", '"', "'", "\\", "\\n", "ends with \\", 'ends with "', "\\" * 200]
NASTY += ["%(name)s", "%%(version)s", "%", "100% of %(x)s", "$HOME `id`", "{{ 7 * 7 }}", "{% raw %}"]
NASTY += ["line\nbreak", "a\n\n  b", "\t", "#DOC", "]]", "ünïcode ☃ \U0001f600", "long words " * 30, "x" * 300]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(HOSTILE, st.sampled_from(NASTY)), min_size=1, max_size=3))
def test_every_string_survives(read, texts):
    """EasyBuild reads exactly the record's text: quotes, newlines, %, backslash, Unicode; none of it is executed."""
    (one,) = read(HEAD + RECORD)
    one = one.replace(usage="\n".join(texts), requirements=texts, masked_paths=dict.fromkeys(texts))
    one = one.replace(container_env={"A": texts[0]}, support=texts[-1])
    # the easyblock may reject what isn't valid
    assert not [text for text in differences(one, easyconfig.render(one)) if "does not read" in text]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("ab" * 200, ["ab" * 54, "ab" * 54, "ab" * 54, "ab" * 38]),
        (",".join(["NAME_OF_A_VARIABLE"] * 8), ["NAME_OF_A_VARIABLE," * 5, ",".join(["NAME_OF_A_VARIABLE"] * 3)]),
        ("x" * 90 + ' "https://example.org/page"', ["x" * 90 + " ", '"https://example.org/page"']),
        (
            "if test a; then echo b; fi; f() { c; }; for d in e; do g && h; done",
            ["if test a; then ", "echo b; ", "fi; ", "f() { c; }; ", "for d in e; do ", "g && h; ", "done"],
        ),
        (f"{'a' * 50} && {'b' * 30} || {'c' * 30} d", [f"{'a' * 50} && {'b' * 30} || ", f"{'c' * 30} d"]),
    ],
)
def test_long_texts_are_not_cut_within_words(text, parts):
    """Variables in a list and addresses stay whole; each shell command has its line."""
    code = easyconfig.in_parts(text, 0)
    assert [ast.literal_eval(line.strip()) for line in code.splitlines()[1:-1]] == parts
    assert ast.literal_eval(code) == text


def test_short_entries_stand_beside_each_other():
    """Flags and short values share lines, lists and long values don't; a script begins at its bracket."""
    stage = {"name": "kernels", "heavy": True, "requirements": ["flash-attn"], "env": {"A": "1", "B": "b" * 70}}
    stage.update(pre=[f"git clone {'u' * 90}\nmake"], modules=["gcc/12", "cuda/12"])
    code = f"""[
    {{
        'name': 'kernels', 'heavy': True,
        'requirements': ['flash-attn'],
        'env': {{'A': '1', 'B': '{"b" * 70}'}},
        'pre': [\"""git clone {"u" * 90}
make\"""],
        'modules': ['gcc/12', 'cuda/12'],
    }},
]"""
    assert easyconfig.literal([stage]) == code
    assert ast.literal_eval(code) == [stage]
    stage["env"]["B"] += "b" * 20
    assert f"            'A': '1',\n            'B': '{'b' * 90}',\n" in easyconfig.literal([stage])


LINE_ENDS = ("\r", "\n", "\x0b", "\x0c", "\x1e", "\x85", "\u2028", "\u2029", "\x00", "\x1b")


@pytest.mark.parametrize("end", LINE_ENDS, ids=ascii)
def test_no_line_break_inside_a_line(read, end):
    """Every character that any program treats as a line break is rejected, so text can't become code."""
    text = f"{HEAD}{RECORD}    doc: {json.dumps(f'a container{end}import os')}\n"
    with pytest.raises(yamlerrors.DocumentError, match="PyTorch.yaml:20: .*doc: should be one line, without control"):
        read(text)
    for prefix in (f"# DOC{end}x", "import os;"):
        with pytest.raises(ValueError, match="doc_prefix"):
            site.Site(name="a", description="b", doc_prefix=prefix)
    # a container that did not come through these checks
    (one,) = read(HEAD + RECORD, site.read("lumi"))
    profile = one.site.model_copy(update={"doc_prefix": "DOC"})
    lines = easyconfig.render(one.replace(doc=f"a{end}import os", site=profile)).splitlines()
    assert [line[0] for line in lines[:2]] == ["#", "#"]
    assert [line for line in lines if line][2].startswith("easyblock = ")


@pytest.mark.parametrize("suffix", ["/../../../../escaped", "-a/b", "-a b", "-{rocm}/{date}", "-\\u2028"])
def test_an_easyconfig_stays_in_its_directory(read, tmp_path, suffix):
    """A suffix is part of a file name: checked in the catalog and again where files are written."""
    with pytest.raises(yamlerrors.DocumentError, match="PyTorch.yaml:20: .*suffix: should contain letters, digits"):
        read(f'{HEAD}{RECORD}    suffix: "{suffix}"\n')
    (one,) = read(HEAD + RECORD)
    with pytest.raises(CatalogError, match="is not a valid name for an easyconfig"):
        rendering.render(one.replace(suffix=suffix), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", site.names())
def test_every_container_is_read_back_as_it_is(name):
    """Every container of every site, rendered and parsed with EasyBuild, equals its record."""
    profile = site.read(name)
    for one in reading.read(profile, site.SITES / name):
        text = easyconfig.render(one)
        assert list(differences(one, text)) == []
        # stages of a build from source, and forty binds of ccpe, need more lines
        is_long = merge.is_stages(one.requirements) or "binds" in one.not_inherited
        assert len(text.splitlines()) <= (120 if is_long else LONG)
        assert max(map(len, text.splitlines())) <= 120
        assert text == easyconfig.render(one)


def test_parameters_without_a_field(read):
    """Parameters without a field are written as they are; those with one are refused."""
    more = (
        "    warnings: [two]\n    parameters:\n      docurls: ['see https://example.org']\n      hidden: true\n"
        '      modluafooter: |\n        setenv("A", "%(installdir)s/{etc}")\n        -- \\ it\'s 100%\n'
    )
    head = HEAD.replace("    venv: true", "    venv: true\n    warnings: [one]\n    parameters: {whatis: [A tool]}", 1)
    (one,) = read(head + RECORD + more)
    text = easyconfig.render(one)
    assert "whatis = ['A tool']\ndocurls = ['see https://example.org']\nhidden = True\nmodluafooter = " in text
    assert '"%(installdir)s/{etc}"' in text
    assert "warnings = ['one', 'two']\n" in text
    assert list(differences(one, text)) == []
    # L-11: its own message doesn't replace the one that says why it is archived
    (one,) = read(head + RECORD + "    archived: true\n    parameters: {modloadmsg: and more}\n")
    values = literals(easyconfig.render(one))
    assert (values["hidden"], values["modloadmsg"]) == (True, f"{one.archive_message}\nand more")
    # a stated default is in the easyconfig, whatever the site has
    (one,) = read(head + RECORD + "    parameters: {wrappers_load: false}\n")
    assert "wrappers_load = False\n" in easyconfig.render(one)
    (one,) = read(head + RECORD + "    parameters: {nosuch: x}\n")
    (problem,) = differences(one, easyconfig.render(one))
    assert "has no parameter nosuch" in problem
    for name, expected in (("versionsuffix", "from suffix"), ("wrappers", "the field 'wrappers'"), ("A-b", "name")):
        with pytest.raises(yamlerrors.DocumentError, match=f"PyTorch.yaml:.*{expected}"):
            read(head + RECORD + f"    parameters: {{{name}: x}}\n")
    # EasyBuild would take the text for true, and hide the module
    for word in ("no", "False", "OFF"):
        with pytest.raises(yamlerrors.DocumentError, match=rf":23: .*hidden: should be true or false: '{word}"):
            read(head + RECORD + f"    parameters:\n      hidden: {word}\n")


def test_the_sites_file_of_binds(read, tmp_path):
    """S002-14: it counts if family and record have binds of their own, unless one names another file."""
    (tmp_path / "place").mkdir()
    profile = "name: place\ndescription: x\nbinds: {file: /etc/binds, optional: [/s]}\n"
    (tmp_path / "place/site.yaml").write_text(profile)
    place = site.read("place", [tmp_path])
    (one,) = read(f"{HEAD}{RECORD}    binds: {{optional: [/own]}}\n", place)
    assert (one.all_binds.file, one.all_binds.optional) == ("/etc/binds", ["/s", "/a", "/b", "/own"])
    (one,) = read(f"{HEAD}{RECORD}    binds: {{file: /other}}\n", place)
    assert one.all_binds.file == "/other"


def test_replacements_of_archived_containers():
    """What is named instead of an archived container exists, isn't archived, and fits the driver."""
    for name in site.names():
        containers = reading.read(site.read(name), site.SITES / name)
        for wanted in {one.archived.replacement for one in containers if one.archived and one.archived.replacement}:
            one = selection.find_one(containers, wanted)
            assert not one.archived, wanted
            assert easyconfig.driver_problem(one) is None, wanted


def test_nothing_of_lumi_in_other_profiles():
    """S001-21, S000-15: easyconfigs of one site contain no path or name of another; CUDA uses the same mechanism."""
    for name in site.names():
        if name != "lumi":
            for one in reading.read(site.read(name), site.SITES / name):
                assert not re.search("lumi|/appl/|/pfs|gpu = 'rocm'|NCCL_NET_GDR_LEVEL': '3'", easyconfig.render(one))


def test_programs_of_the_host(read):
    """K-03: those of the site, others of the record, or none; an extending site can take them away."""
    value = {"programs": ["srun", "?sacct"], "files": ["/etc/slurm"]}
    mine = site.Site(name="mine", description="x", host_programs=value)
    for more, expected in (
        ("", value),
        ("    host_programs: null\n", None),
        ("    host_programs: {programs: [/opt/bin/lfs]}\n", {"programs": ["/opt/bin/lfs"]}),
    ):
        (one,) = read(HEAD + RECORD + more, mine)
        assert literals(easyconfig.render(one)).get("host_programs") == expected
    assert merge.profiles({"host_programs": value}, {"host_programs": None}, True) == {}


def test_the_source_and_the_signature_of_an_image(read, tmp_path):
    """R-01, R-04: a record says where its image is, site, family or record who may sign it; each is a parameter."""
    digest = f"sha256:{'0' * 64}"
    (tmp_path / "images").mkdir()
    images = {"directories": [{"path": f"{tmp_path}/images"}]}
    keys = site.Site(name="mine", description="x", signature_keys=["/keys/site.asc"], images=images)
    text = f"{HEAD}{RECORD}    source: oras://registry.example/ai/x:1@{digest}\n    image: central\n"
    for more, expected in (
        ("", ["/keys/site.asc"]),
        ("    signature_keys: [/keys/vendor.asc]\n", ["/keys/vendor.asc"]),
        ("    signature_keys: []\n", None),
    ):
        (one,) = read(text + more, keys)
        values = literals(easyconfig.render(one))
        assert list(differences(one, easyconfig.render(one))) == []
        assert values.get("signature_keys") == expected
        assert values["image_source"] == f"oras://registry.example/ai/x:1@{digest}"
        # an image that can be fetched isn't missing
        findings = check([one], tmp_path / "none", keys, quick=True)
        assert not [finding for finding in findings if "is missing" in finding.text]
    # a tag can change
    with pytest.raises(yamlerrors.DocumentError, match="ai/x:1' has no digest, and a tag or file can change"):
        read(text.replace(f"@{digest}", ""), keys)


def test_wrappers_load_is_data_of_the_site(read):
    """J-04: with wrappers_load, the modules of a site with wrappers get it; without, no easyconfig mentions it."""
    (one,) = read(HEAD + RECORD)
    plain, wrapped = one.replace(wrappers=None), one.replace(wrappers=["python"])
    assert "wrappers_load" not in easyconfig.render(wrapped)
    loading = one.site.model_copy(update={"wrappers_load": True})
    assert "wrappers_load = True" in easyconfig.render(wrapped.replace(site=loading))
    assert "wrappers_load" not in easyconfig.render(plain.replace(site=loading))


def test_the_gpu_option_is_data_of_site_and_family(read):
    """L-07: LUMI's images contain all GPU libraries, as in LUMI's recipes; a family may override its site."""
    for one in reading.read(site.read("lumi"), site.SITES / "lumi"):
        assert "gpu_option = False" in easyconfig.render(one)
        # L-04: all devices and LOCAL_RANK as in the LUMI AI Guide, or one device and no LOCAL_RANK
        assert ("gpu_visibility = 'all'" in easyconfig.render(one)) == (one.name == "lumi-multitorch")
    for one in reading.read(site.read("derecho"), site.SITES / "derecho"):
        assert "gpu_option" not in easyconfig.render(one)
        assert "gpu_option = False" in easyconfig.render(one.replace(gpu_option=False))
    (one,) = read(HEAD + RECORD)
    assert "gpu_option" not in easyconfig.render(one.replace(gpu="none", gpu_option=False))


def test_the_network_and_the_driver_of_lumi():
    """S002-60, L-02, L-05: network variables come from the profile; the AI Factory's images remove them."""
    lumi = site.read("lumi")
    values = {"NCCL_SOCKET_IFNAME": "hsn", "NCCL_NET_GDR_LEVEL": "3"}
    expected = {"lumi-multitorch": dict.fromkeys(values), "PyTorch": values}
    for one in reading.read(lumi, site.SITES / "lumi"):
        found = easyconfig.parameters(one).get("network_env", {})
        if one.name in expected:
            assert {name: found[name] for name in values} == expected[one.name], one.module
    assert lumi.driver_rocm == ["6.1", "7.2"]


@pytest.mark.parametrize("table", ["network_env", "container_env"])
@pytest.mark.parametrize("place", ["family", "record"])
def test_variables_that_are_unset(read, table, place):
    """L-02: null in a family or record unsets what family and site set, and isn't just left out."""
    own = f"    {table}: {{NCCL_SOCKET_IFNAME: null, MINE: null}}\n"
    head = HEAD.replace("  newer:\n", f"    {table}: {{MINE: 1}}\n  newer:\n{own if place == 'family' else ''}")
    (one,) = read(f"{head}{RECORD}{own if place == 'record' else ''}", site.read("lumi"))
    found = easyconfig.parameters(one)[table]
    assert (found["NCCL_SOCKET_IFNAME"], found["MINE"]) == (None, None)


def test_the_recipe_of_archer2():
    """S003-21: the stages of the site's instructions in order, with its 24 packages (see test_stage_texts, too)."""
    (one,) = reading.read(site.read("archer2"), site.SITES / "archer2")
    stages = {stage.name: stage for stage in one.stages}
    in_order = "build tools, supporting packages, torch, torch packages, tensorboard, mpi4py, horovod"
    assert ", ".join(stages) == in_order
    names = ("supporting packages", "torch packages", "tensorboard")
    assert sum(len(stages[name].requirements) for name in names) == 24
    assert stages["build tools"].upgrade_pip
    assert [name for name, stage in stages.items() if stage.heavy] == ["torch", "horovod"]
    assert (one.version, one.components["torch-source"]) == ("1.13.1", "1.13.0a0")
    # as shown in the module's help
    assert "PyTorch 1.13.1 (source version 1.13.0a0)" in " ".join(easyconfig.description(one).split())


def test_the_recipe_of_derecho():
    """S004-12, S004-18: the stages of the site's recipe in order, with their modules, variables and options."""
    profile = site.read("derecho")
    older, newer = containers = reading.read(profile, site.SITES / "derecho")
    # S004-10: the version that the recipe builds by default
    assert selection.find_one(containers, "PyTorch") == older and older.version == "2.3.1"
    stages = {stage.name: stage for stage in older.stages}
    assert list(stages) == ["nccl", "build tools", "mpi4py", "torch"]
    for expected in json.loads((CHECKOUT / "tests/data/derecho-recipe.json").read_text()):
        stage = stages[expected["stage"]]
        assert set(expected["modules"]) <= set(stage.modules)
        assert expected["env"].items() <= stage.env.items()
        assert set(expected["words"]) <= set(" ".join(stage.pre).split())
    assert stages["torch"].patches == ["pytorch-2.3.1-01-cuda-aware-mpi.patch"]
    assert newer.stages[-1].patches == ["pytorch-2.4.0-01-cuda-aware-mpi.patch"]
    assert newer.stages[-1].env == stages["torch"].env
    assert "cudnn/9.2.0.82-12" in newer.stages[-1].modules
    values = easyconfig.parameters(newer)
    expected = json.loads((CHECKOUT / "tests/data/derecho-runtime.json").read_text())
    assert values["network_env"] == {**expected["set"], **dict.fromkeys(expected["unset"])}
    # --nv and GPU-aware MPI; the framework chooses the GPUs
    assert (values["gpu"], values["scheduler"]) == ("cuda", "pbs")
    assert "gpu_option" not in values
    assert "?/opt/cray" in values["binds"]
    assert values["gpu_mpi_library"].startswith("/opt/cray/")


def test_versions_that_are_checked_in_the_image(read):
    """L-12: the components that are Python packages, and the software itself if its record names the version."""
    more = "    package: torch\n    python_packages: [torch, Flash_Attn, vllm]"
    head = HEAD.replace("    venv: true", f"    venv: true\n{more}", 1)
    more = "    components: {rocm: 6.2.4, flash-attn: 2.7.3, deepspeed: 0.15.1}\n"
    (one,) = read(head + RECORD + more)
    assert easyconfig.image_packages(one) == {"torch": "2.10", "Flash_Attn": "2.7.3"}
    (one,) = read(head + RECORD + more + "    image_packages: {numpy: 1.26}\n    python_packages: [deepspeed]\n")
    assert "image_packages = {'deepspeed': '0.15.1', 'numpy': '1.26'}\n" in easyconfig.render(one)
    # F-11
    (one,) = read(head + RECORD + "    python: 3.12\n")
    assert "image_packages = {'python': '3.12', 'torch': '2.10'}\n" in easyconfig.render(one)
    (one,) = read(head.replace("    venv: true\n", "", 1) + RECORD)
    assert "image_packages = {'torch': '2.10'}\n" in easyconfig.render(one)


# --- writing


def test_only_what_changed_is_written(read, tmp_path):
    """A second run writes nothing; after a change to one record, one file."""
    output = tmp_path / "easyconfigs"
    more = RECORD.replace("2.10", "2.4.0")
    older = output / "p/PyTorch/PyTorch-2.4.0-rocm-6.2.4-singularity-20250101.eb"
    for one in (rendering.render(container, output) for container in read(HEAD + RECORD + more)):
        assert one.state == "new"
        rendering.write([one], output)
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.eb")}
    assert len(before) == 2
    changed = read(HEAD + RECORD + more + "    support: none\n")
    for one in (rendering.render(container, output) for container in changed):
        rendering.write([one], output)
    after = {path: path.stat().st_mtime_ns for path in output.rglob("*.eb")}
    assert [path for path in before if before[path] != after[path]] == [older]
    wanted = [rendering.place(one, output) for one in read(HEAD + RECORD)]
    assert rendering.left_over(wanted, output, site.read("local")) == [older]
    assert [path.name for path in output.rglob("*") if path.name.startswith(".")] == [".ebsif-render"]


def test_two_commands_that_render(read, tmp_path):
    """One command waits for the other, so that no file lacks its digest and counts as edited by a person."""
    containers = read(HEAD + RECORD + RECORD.replace("2.10", "2.4.0"))
    one, other = (rendering.render(container, tmp_path) for container in containers)
    process = multiprocessing.get_context("fork").Process(target=rendering.write, args=([other], tmp_path))
    with files.locked(tmp_path):
        process.start()
        process.join(0.5)
        assert process.is_alive() and not other.path.exists()
        rendering.write_easyconfigs([one], tmp_path)
    process.join()
    assert process.exitcode == 0
    digests = {str(path.relative_to(tmp_path)): filling.digest(path) for path in (one.path, other.path)}
    assert filling.read_digests(tmp_path / rendering.WRITTEN) == digests


def test_the_default_version(read, monkeypatch):
    """S004-10, H-01: without a version, the newest recommended one without suffix; a variable overrides it."""
    records = dated("2.9", "20250527") + dated("2.8", "20250601") + dated("2.8", "20250602", "    label: mine\n")
    records += dated("2.11", "20260101", "    archived: true\n")
    containers = read(HEAD + records)
    assert selection.find_one(containers, "pytorch").version == "2.9"
    assert selection.find_one(containers, "PyTorch/2.9").date == "20250527"
    monkeypatch.setenv("EBSIF_VERSION_PYTORCH", "v2.11")
    assert selection.find_one(containers, "PyTorch").date == "20260101"
    assert selection.find_one(containers, "PyTorch/2.9").date == "20250527"
    monkeypatch.setenv("EBSIF_VERSION_PYTORCH", "3.0")
    with pytest.raises(CatalogError, match="there is no version '3.0' of PyTorch; known versions:"):
        selection.find_one(containers, "PyTorch")


def test_the_previous_container_is_the_older_one(read):
    """History is ordered by date, whatever the versions; by version if there is no date."""
    records = dated("2.7.0", "20250527") + dated("20240801", "20241007") + dated("2.8.0", "20250601")
    pages = entry.pages(read(HEAD + records))
    assert [page.before and page.before.version for page in pages] == ["20240801", None, "2.7.0"]
    record = "  - {{family: base, version: {0}, hash: h{0}, suffix: -x}}\n"
    undated = record.format("2.10") + record.format("2.9")
    assert [page.before and page.before.version for page in entry.pages(read(HEAD + undated))] == ["2.9", None]


def test_many_records_take_linear_work(read):
    """Ten times as many records take about ten times as many function calls, not a hundred times."""

    def calls(number):
        text = HEAD + "".join(RECORD.replace("2.10", f"2.{index}") for index in range(number))
        profile = cProfile.Profile()
        count = profile.runcall(lambda: sum(bool(rendering.render(one, Path("/nowhere")).text) for one in read(text)))
        assert count == number
        return sum(one.callcount for one in profile.getstats())

    # caches are filled on first use
    calls(1)
    assert calls(400) < 10.5 * calls(40)


def test_the_schemas_are_those_of_the_models():
    """Schemas are up to date: `ebsif check --schema NAME > .../catalog/schemas/NAME.json` updates them."""
    for name, text in schema.texts().items():
        assert (schema.FOLDER / f"{name}.json").read_text() == text
        assert json.loads(text)["properties"]
    for path in site.SITES.rglob("containers/*.yaml"):
        target = re.match(r"# yaml-language-server: \$schema=(.*)", path.read_text())[1]
        assert (path.parent / target).resolve() == (schema.FOLDER / "containers.json").resolve()


@pytest.mark.parametrize("path", sorted(site.SITES.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_editors_find_nothing_wrong(path):
    """Editors read numbers in YAML as numbers and check with the schema: every file of the project passes."""
    name = "site" if path.name == "site.yaml" else "containers"
    content = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    errors = list(validator(name).iter_errors(content))
    assert not errors, errors[0].message
    if name == "site":
        # I-11: by which a profile takes away what it inherits, at any depth
        content.update(extends="lumi", binds=None, conflicts=None, scheduler={"partitions": {"small": None}})
        assert not list(validator(name).iter_errors(content))
    assert not validator(name).is_valid({**content, "nonsense": 1})


@functools.cache
def validator(name):
    """Return what checks a file with a schema."""
    # takes a second to import
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads((schema.FOLDER / f"{name}.json").read_text()))


# --- checking


def found(read, tmp_path, text, profile=None):
    """Return the findings in a catalog, apart from missing easyconfigs."""
    containers = read(text, profile)
    findings = check(containers, tmp_path / "none", profile or site.read("local"), quick=True)
    return [(one.level, one.line, one.text) for one in findings if "does not exist" not in one.text]


@pytest.mark.parametrize(
    ("lines", "level", "expected"),
    [
        ("requirements: [flash-attn==2.8.3]", "error", "flash-attn is built against torch, but builds of this stage"),
        ("requirements: [{requirements: [torch==2.0, apex==1], no_build_isolation: true}]", "error", "apex is built"),
        (
            "components: {setuptools: 80}\n    requirements: [{requirements: [apex==1], no_build_isolation: true}]",
            "warning",
            "builds without isolation, and neither the image nor an earlier stage has ninja, packaging, wheel. If",
        ),
        ("requirements: [rich]", "warning", "rich is not pinned (==)"),
        ("requirements: [rich==14.*]", "warning", "rich==14.* is not pinned (==)"),
        ("""requirements: ['rich>=14; python_version == "3.11"']""", "warning", "is not pinned (==)"),
        ("requirements: [torchvision==0.16+rocm6.1]", "warning", "is built for rocm 6.1, but the image has rocm 6.2.4"),
        ("requirements: [torchvision==0.16+cu124]", "error", "is built for cuda, but the site has rocm"),
        ("components: {rocm: 6.0rc1}\n    requirements: [bitsandbytes==1]", "error", "bitsandbytes needs ROCm 6.1"),
        ("components: {rocm: 6.0.3}\n    requirements: [bitsandbytes==1]", "error", "needs ROCm 6.1 or newer"),
        ("requirements: [{name: a, requirements: [a==1]}, {name: a, requirements: [b==1]}]", "error", "two stages are"),
        ("file: image.tar", "warning", "the image image.tar does not end in .sif"),
    ],
)
def test_findings(read, tmp_path, lines, level, expected):
    """S000-02, S000-20, S000-22: likely problems are reported before anything is installed."""
    findings = found(read, tmp_path, f"{HEAD}{RECORD}    {lines}\n", site.read("lumi"))
    # the line of the record, or of the value that EasyBuild names
    assert any(one[0] == level and expected in one[2] and one[1] in (16, 20) for one in findings), findings


def test_no_findings_in_a_good_record(read, tmp_path):
    """S000-02, S000-22: a correct record produces no finding, nor do wheels and what an earlier stage installs."""
    wheel = "flash-attn @ https://example.org/flash_attn-2.8-cp311-cp311-linux_x86_64.whl"
    tools = "{requirements: [setuptools==80, wheel==1, ninja==1, packaging==26]}"
    for stages in (
        f"""rich==14.0.0, torchmetrics==1.0, {wheel}, 'einops[a]>=0.7,==0.8 ; python_version > "3.8"'""",
        "{requirements: [flash-attn==2.8.3], options: ['--only-binary=:all:']}",
        f"{tools}, {{requirements: [apex==1], no_build_isolation: true}}",
    ):
        assert found(read, tmp_path, f"{HEAD}{RECORD}    requirements: [{stages}]\n", site.read("lumi")) == []


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("requirements: [x==1 --global-option=a]", "'--global-option' is deprecated since pip 24.2"),
        ("requirements: ['x==1 --config-settings=a=b']", "needs pip 23.1 or newer"),
        ("requirements: [x==1], options: ['--install-option=--y']", "was removed in pip 23.1"),
        ("requirements: ['x @ git+file:///a/b']", "this spelling of a git URL"),
    ],
)
def test_options_whose_meaning_depends_on_pips_version(read, tmp_path, properties, expected):
    """S000-07: a warning that says how to have another pip; none for a stage that upgrades it."""

    def texts(more):
        text = f"{HEAD}{RECORD}    requirements: [{{{properties}{more}}}]\n"
        return [(level, text) for level, _, text in found(read, tmp_path, text, site.read("lumi")) if expected in text]

    ((level, text),) = texts("")
    assert level == "warning" and text.endswith("install it in an earlier stage")
    assert texts(", upgrade_pip: true") == []


@pytest.mark.parametrize(
    ("first", "second", "line", "expected"),
    [
        # installing one would replace the other's module
        (None, None, 20, r"another container has the same name and suffix \(.*PyTorch.yaml:16\): give"),
        # the module that is installed last would have the alias, or the module itself hides it
        ("aliases: [latest]", "aliases: [new, Latest]", 21, "alias 'Latest' is also a name of PyTorch/2.10-"),
        ("aliases: []", "aliases: [{module}]", 21, "alias '{module}' is also a name of PyTorch/{module}"),
        # S004-10: the name without a version can stand for one container only
        ("default: true", "default: true", 21, "PyTorch.yaml:16, so 'PyTorch' is ambiguous"),
    ],
)
def test_names_that_two_records_have(read, tmp_path, first, second, line, expected):
    """S004-10: commands would take one of them without a word, or call the name ambiguous."""
    (one,) = read(HEAD + RECORD)
    records = RECORD + RECORD
    if first:
        records = f"{RECORD}    {first}\n{RECORD.replace('2.10', '2.4.0')}    {second}\n"
    records, expected = (text.replace("{module}", one.full_version) for text in (records, expected))
    ((level, at, text),) = found(read, tmp_path, HEAD + records)
    assert (level, at) == ("error", line) and re.search(expected, text)


def test_labels_in_a_family_without_a_suffix(read, tmp_path):
    """A label, which messages advise for a second module of an image, gives it another name there too."""
    head = re.sub("    suffix: .*\n", "", HEAD)
    assert found(read, tmp_path, f"{head}{RECORD}{RECORD}    label: mine\n") == []
    assert [one.versionsuffix for one in read(f"{head}{RECORD}{RECORD}    label: mine\n")] == ["", "-mine"]
    # where the suffix has no place for it, it changes nothing
    ((level, line, text),) = found(read, tmp_path, f"{HEAD}{RECORD}    label: mine\n    suffix: -x\n")
    assert (level, line) == ("warning", 16) and "'suffix' has no {label}" in text
    # but it may be a part of the image's name
    named = HEAD.replace("{hash}.sif", "{hash}{label}.sif")
    assert found(read, tmp_path, f"{named}{RECORD}    label: mine\n    suffix: -x\n") == []


def test_aliases_and_defaults_of_one_record(read, tmp_path):
    """S004-10: an own version, or another software's, is no alias of another record; one default is enough."""
    (one,) = read(HEAD + RECORD)
    assert found(read, tmp_path, f"{HEAD}{RECORD}    aliases: [{one.full_version}, x]\n") == []
    second = RECORD.replace("2.10", "2.11")
    assert found(read, tmp_path, f"{HEAD}{RECORD}{second}    default: true\n") == []
    assert selection.find_one(read(f"{HEAD}{RECORD}    default: true\n{second}"), "PyTorch").version == "2.10"
    # no command takes one with a label for the default
    labeled = f"{HEAD}{RECORD}    default: true\n{RECORD}    label: mine\n    default: true\n"
    assert found(read, tmp_path, labeled) == []
    assert selection.find_one(read(labeled), "PyTorch").label is None
    both = f"{HEAD}{RECORD}    label: a\n    default: true\n{RECORD}    label: b\n    default: true\n"
    assert len(found(read, tmp_path, both)) == 1


def test_nothing_is_rendered_yet(read, tmp_path):
    """A person who checks a catalog before the first `ebsif render` reads that once, not for each container."""
    containers = read(HEAD + "".join(f"{RECORD}    label: {label}\n" for label in "abcdef"))
    output = tmp_path / "out"
    (said,) = check(containers, output, site.read("local"), options=["--site", "local"])
    assert said.text == f"no container has an easyconfig in {output} yet: run ebsif render --site local"
    one, *others = [rendering.render(container, output) for container in containers]
    rendering.write([one], output)
    # nor if there is one already, which `ebsif add` wrote
    more = read(HEAD + "".join(f"{RECORD}    label: {label}\n" for label in "abcdefg"))
    (said,) = check(more, output, site.read("local"), options=["--site", "local"])
    assert said.text == f"6 of the 7 containers don't have an easyconfig in {output} yet: run ebsif render --site local"
    said = check(containers, output, site.read("local"), options=["--site", "local"])
    assert [one.text for one in said] == [f"{one.path} does not exist: run ebsif render --site local" for one in others]


def test_drift_is_found(read, tmp_path):
    """A missing easyconfig, a changed one and an obsolete one are reported."""
    output = tmp_path / "out"
    local = site.read("local")
    containers = read(HEAD + RECORD)

    def texts():
        return [one.text for one in check(containers, output, local, options=["--catalog", "a b"])]

    assert texts()[0].endswith("does not exist: run ebsif render --catalog 'a b'")
    (one,) = [rendering.render(container, output) for container in containers]
    rendering.write([one], output)
    assert texts() == []
    one.path.write_text(one.text.replace("2.10", "2.1"))
    assert "differs from the catalog" in texts()[0]
    one.path.write_text(one.text)
    other = one.path.with_name("PyTorch-1.eb")
    other.write_text(one.text)
    assert "is no longer in the catalog" in texts()[0]
    # an easyconfig of a user's own stays
    other.write_text("# mine\n")
    assert texts() == []


def test_images_that_can_be_reached(read, tmp_path):
    """S001-02, S002-17: no checksum: a warning; only behind a moving link: an error; a stable copy: nothing."""
    lumi = site.read("lumi")
    images = lumi.images.model_copy(update={"root": str(tmp_path / "images")})
    profile = lumi.model_copy(update={"images": images})
    for name in ("sif-images", "easybuild-sif-images"):
        (tmp_path / "images" / name).mkdir(parents=True)
    (tmp_path / "images/real.sif").touch()
    (tmp_path / "images/sif-images/lumi-2.10-abc.sif").symlink_to(tmp_path / "images/real.sif")
    findings = found(read, tmp_path, HEAD + RECORD, profile)
    assert [level for level, _, _ in findings] == ["warning", "error"]
    assert "no sha256" in findings[0][2]
    assert "only in a directory whose links move" in findings[1][2]
    assert "images/real.sif" in findings[1][2]
    meant = found(read, tmp_path, HEAD + RECORD + "    moving: true\n", profile)
    assert [level for level, _, _ in meant] == ["warning"]
    (tmp_path / "images/easybuild-sif-images/lumi-2.10-abc.sif").touch()
    assert [level for level, _, _ in found(read, tmp_path, HEAD + RECORD, profile)] == ["warning"]
    assert found(read, tmp_path, f"{HEAD}{RECORD}    sha256: {'0' * 64}\n", profile) == []


def test_a_rocm_that_the_driver_does_not_support(read, tmp_path):
    """S001-17: outside the driver's range: a finding and a warning at installation; inside: nothing."""
    profile = site.read("lumi").model_copy(update={"driver_rocm": ["5.6", "6.1"]})
    ((level, _, text),) = found(read, tmp_path, HEAD + RECORD, profile)
    assert level == "warning" and text.startswith("the GPU driver of LUMI supports ROCm 5.6 to 6.1; ROCm 6.2.4 of the")
    (one,) = read(HEAD + RECORD, profile)
    assert {"warnings": [text]}.items() <= easyconfig.parameter_groups(one)[-1].items()
    assert "\nwarnings = [" in easyconfig.render(one)
    profile = profile.model_copy(update={"driver_rocm": ["5.6", "6.2"]})
    assert found(read, tmp_path, HEAD + RECORD, profile) == []


def test_reasons_become_comments(read):
    """A reason stands above the parameter of its field or entry, that of a requirement too; no reason is lost."""
    why = "{/a: the image lacks it, venv: users add packages, suffix: 'as before: \\{', wrappers: not for long}"
    head = HEAD.replace("    venv: true\n", f"    venv: true\n    why: {why}\n")
    more = f"""\
    requirements: [torchmetrics==1.4, lightning]
    warnings: [it is old]
    why: {{torchmetrics: newer ones need another torch, wrappers: null, nowhere: of nothing, warnings: {"long " * 40}}}
"""
    (one,) = read(head + RECORD + more)
    lines = easyconfig.render(one).splitlines()

    def above(parameter):
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{parameter} = "))
        return lines[at - 1]

    assert above("binds") == "# /a: the image lacks it"
    assert above("easyblock") == "# users add packages"
    assert above("versionsuffix") == "# as before: \\{"
    assert above("requirements") == "# torchmetrics: newer ones need another torch"
    assert "# nowhere: of nothing" in lines[:3] and not any("not for long" in line for line in lines)
    assert above("sources") == "# SHA256 unknown: the record in the catalog has none"
    assert above("warnings").startswith("# long") and max(map(len, lines)) <= easyconfig.WIDTH
    assert not list(differences(one, easyconfig.render(one)))
    # those of the site are for easyconfigs that have the parameter
    why = {"gpu_option": "of the site", "binds": "of the site", "/a": "not this one"}
    profile = one.site.model_copy(update={"why": why})
    lines = easyconfig.render(one.replace(site=profile)).splitlines()
    assert not any("gpu_option" in line or "not this one" in line for line in lines)
    assert "# of the site" in lines[lines.index("# /a: the image lacks it") - 1 :][:3]
