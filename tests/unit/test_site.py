"""Site profiles, and the errors for malformed YAML files."""

import re

import pytest
from ebsif.catalog import reading, site, yamlerrors, yamlfile

WRONG = """\
name: bad
descriptin: x
gpu: rocmm
binds:
  required: /x
  optionl: [a]
scheduler:
  default_partition: b
  partitions:
    a: {tasks: x, cpu_masks: ["0xg"]}
network_env: {"A-B": 1, C: " x"}
"""


def messages(text, tmp_path):
    """Return the error messages about a profile's text, by line."""
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(yamlerrors.DocumentError) as error:
        yamlfile.validate(site.Site, yamlfile.load(path), path)
    return [line.removeprefix(str(path)) for line in str(error.value).splitlines()]


def test_errors_have_file_and_line(tmp_path):
    """File, line, field, problem, allowed values, a suggestion for misspelt keys; all errors at once."""
    found = messages(WRONG, tmp_path)
    for expected in (
        ":2: descriptin: unknown key, did you mean 'description'?",
        ":3: gpu: should be 'none', 'rocm' or 'cuda', found 'rocmm'",
        ":5: binds.required: should be a list, found '/x'",
        ":6: binds.optionl: unknown key, did you mean 'optional'?",
        ":10: scheduler.partitions.a.tasks: should be a whole number, found 'x'",
        ":10: scheduler.partitions.a.cpu_masks, entry 1: should be a mask in hexadecimal digits, such as 0xff",
        ":11: network_env.A-B: can't be the name of an environment variable",
        ":11: network_env.C: should be one line, without leading or trailing blanks",
    ):
        assert any(line.startswith(expected) for line in found), (expected, found)
    # the unknown key is the missing one
    assert not any("is missing" in line for line in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b: c", ":1: unexpected ':': put a value that contains ': ' in quotes"),
        ("a: 1\nb: 2\na: 3\n", ":3: duplicate key 'a'"),
        ("a: &x [1]\nb: *x\n", ":1: anchors and aliases (&, *) can't be used here"),
        ("a: !!python/object/apply:os.system ['true']\n", ":1: a value can't begin with '!': put it in quotes"),
        ("a: " + "[" * 5000, ""),
        ("a: \x01\n", ""),
        ("", ":1: the document: should be a table, found nothing"),
    ],
)
def test_malformed_documents(text, expected, tmp_path):
    """A file that isn't YAML or is more than data: an error, nothing executed, no traceback."""
    assert messages(text, tmp_path)[0].startswith(expected)


def test_scalars_are_kept_as_written(tmp_path):
    """2.10 stays 2.10 and a time stamp stays text: versions and suffixes are not numbers."""
    path = tmp_path / "a.yaml"
    path.write_text("a: 2.10\nb: 20260415_130625\nc: no\nd: true\ne: null\nf: 0x10\ng:\nh: ''\ni: 2024-01-01\n")
    written = {"a": "2.10", "b": "20260415_130625", "c": "no", "f": "0x10", "h": "", "i": "2024-01-01"}
    assert yamlfile.load(path) == {**written, "d": True, "e": None, "g": None}


def test_rccl_comes_from_the_image_and_the_provider_from_the_host():
    """S001-10: with a GPU and Slingshot the host's CXI library is bound, but no RCCL, NCCL or plugin."""
    lumi = site.read("lumi")
    assert (lumi.gpu, lumi.network_env["NCCL_SOCKET_IFNAME"]) == ("rocm", "hsn")
    binds = [*lumi.binds.required, *lumi.binds.optional]
    assert "/usr/lib64/libcxi.so.1" in binds
    assert not [bind for bind in binds if re.search("rccl|nccl|ofi|libfabric", bind)]


def test_a_site_without_gpus_has_no_gpu_settings(tmp_path):
    """S003-01: no bind, variable or option of ROCm or CUDA; a profile that has one is refused."""
    for name in ("archer2", "local"):
        profile = site.read(name)
        assert profile.gpu == "none"
        text = profile.model_dump_json(exclude_none=True)
        assert not re.search("rocm|cuda|nccl|gtl|/dev/kfd|nvidia", text, re.IGNORECASE)
    (line,) = messages("name: a\ndescription: a\ngpu_visibility: all\n", tmp_path)
    assert "gpu is none, so there should be no gpu_visibility" in line


BASE = """\
name: base
description: the machine
gpu: rocm
gpu_visibility: all
images: {root: /images, directories: [{path: a}]}
binds: {required: [/scratch], optional: [/opt/a]}
network_env: {A: 1, B: 2}
conflicts: [one]
scheduler:
  default_partition: p
  partitions: {p: {tasks: 8}, q: {tasks: 2}}
"""
OWN = """\
name: test
description: the test system
extends: base
gpu_visibility: null
binds: {optional: [/opt/b]}
network_env: {B: 3, C: null}
conflicts: [two]
scheduler:
  partitions: {p: {cpus_per_task: 4}, q: null}
"""


@pytest.fixture
def sites(tmp_path):
    """A function that writes profiles in two catalogs, by catalog and name, and returns these."""

    def write(**texts):
        for names, text in texts.items():
            catalog, name = names.split("_")
            folder = tmp_path / catalog / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "site.yaml").write_text(text)
        return tmp_path / "first", tmp_path / "second"

    return write


@pytest.mark.parametrize(
    ("texts", "place"),
    [
        (("scheduler:\n  partitions:\n    p: {tasks: 4, gpus: 4}", ""), ":5: scheduler.partitions.p.gpus: "),
        (("extends: base\ngpu: none", "gpu: cuda\nscheduler: {partitions: {p: {gpus: 4}}}"), ":4: gpu: "),
    ],
)
def test_a_site_without_gpus_has_no_partition_with_them(sites, texts, place):
    """S003-01: the profile is wrong, also if it inherits the partition; jobs and pages would stop later."""
    own, base = texts
    profiles = {
        "first_test": f"name: test\ndescription: x\n{own}\n",
        "second_base": f"name: base\ndescription: x\n{base}\n",
    }
    with pytest.raises(yamlerrors.DocumentError) as caught:
        site.read("test", sites(**profiles))
    remedy = "set gpu to their kind (rocm, cuda), or gpus to 0"
    problem = f"gpu is none, but the partition p has GPUs (gpus: 4): {remedy}"
    assert str(caught.value).endswith(f"test/site.yaml{place}{problem}")


def test_a_site_that_extends_another(sites):
    """I-11: it has only the difference: tables are merged, null takes away, binds are added, updates arrive."""
    directories = sites(first_test=OWN, second_base=BASE)
    found = site.read("test", directories)
    assert (found.name, found.gpu, found.gpu_visibility) == ("test", "rocm", None)
    assert found.images.root == "/images"
    assert found.binds == site.Binds(required=["/scratch"], optional=["/opt/a", "/opt/b"])
    assert (found.network_env, found.conflicts) == ({"A": "1", "B": "3", "C": None}, ["one", "two"])
    assert list(found.scheduler.partitions) == ["p"]
    assert (found.scheduler.partition(None)[1].tasks, found.scheduler.partition(None)[1].cpus_per_task) == (8, 4)
    sites(second_base=BASE.replace("A: 1", "A: 9"))
    assert site.read("test", directories).network_env["A"] == "9"
    sites(first_test=f"{OWN}not_inherited: [binds, conflicts, images]\n")
    found = site.read("test", directories)
    assert (found.binds.required, found.binds.optional, found.conflicts) == ([], ["/opt/b"], ["two"])
    assert found.images == site.Images()
    # by null, too, at any depth
    for lines, expected in (
        ("conflicts: null", (["/scratch"], ["/opt/a"], [])),
        ("binds: null", ([], [], ["one"])),
        ("binds:", ([], [], ["one"])),
        ("binds: {required: null, optional: [/b]}", ([], ["/opt/a", "/b"], ["one"])),
    ):
        sites(first_test=f"name: test\ndescription: x\nextends: base\n{lines}\n")
        found = site.read("test", directories)
        assert (found.binds.required, found.binds.optional, found.conflicts) == expected, lines


def test_a_site_of_the_same_name(sites):
    """I-11: it extends that of the next catalog, and a third one extends it."""
    directories = sites(
        first_base="name: base\ndescription: ours\nextends: base\nbinds: {required: [/own]}\n",
        second_base=BASE,
        first_third="name: third\ndescription: x\nextends: base\n",
    )
    for name in ("base", "third"):
        assert site.read(name, directories).binds.required == ["/scratch", "/own"]
    assert site.read("base", directories).description == "ours"


def test_containers_of_an_extended_site(sites):
    """I-11: its records belong to the site as well, unless they are left out; files of one's own extend its files."""
    directories = sites(first_test=OWN, second_base=BASE)
    record = "  - {{family: tool, version: {}}}\n"
    for directory, text in (
        (directories[1] / "base", "families: {tool: {file: x.sif, suffix: ''}}\ncontainers:\n" + record.format(1)),
        (directories[0] / "test", "extends: true\ncontainers:\n" + record.format(2)),
    ):
        (directory / "containers").mkdir()
        (directory / "containers/Tool.yaml").write_text(f"name: Tool\n{text}")
    profile = site.read("test", directories)
    found = reading.read(profile, *site.directories_of("test", directories))
    assert [one.module for one in found] == ["Tool/1", "Tool/2"]
    sites(first_test=f"{OWN}not_inherited: [containers]\n")
    assert site.directories_of("test", directories) == [directories[0] / "test"]


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [
        ({"first_test": OWN}, r"first/test/site.yaml:3: extends: there is no site 'base' \(known: none\)"),
        ({"first_test": OWN, "second_base": BASE + "extends: test\n"}, "second/base/site.yaml:12: .*extends itself"),
        ({"first_base": OWN.replace("test\n", "base\n", 1)}, "first/base/site.yaml:3: .*no .* has a site 'base'"),
        (
            {"first_test": OWN.replace("/opt/b", "opt/b"), "second_base": BASE},
            r"first/test/site.yaml:5: binds.optional, entry 1: should be source",
        ),
        ({"first_test": OWN, "second_base": BASE.replace("rocm", "rocmm")}, "second/base/site.yaml:3: gpu: should be "),
        (
            {"first_test": OWN + "not_inherited: [all]\n", "second_base": BASE},
            "first/test/site.yaml:10: not_inherited, entry 1: should be 'binds'",
        ),
    ],
)
def test_mistakes_in_sites_that_extend_others(sites, profiles, expected):
    """I-10, I-11: each with the file and the line where it is."""
    directories = sites(**profiles)
    with pytest.raises(yamlerrors.DocumentError, match=expected):
        site.read("base" if "first_base" in profiles else "test", directories)
