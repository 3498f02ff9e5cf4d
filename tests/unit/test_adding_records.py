"""`ebsif add`: values taken from file names, labels and packages; a record is written completely or not at all."""

import dataclasses
import hashlib
import io
import re
import shlex
import textwrap
from pathlib import Path
from unittest.mock import Mock

import pytest
from ebsif.catalog import reading, site, writing
from ebsif.catalog.guess import adding, template
from ebsif.catalog.proposal import AddingError, Proposal
from ebsif.catalog.records import CatalogFile
from ebsif.commands.add import ask
from ebsif.images import inspection

HEAD = """\
name: Tool
families:
  tool:
    homepage: https://example.org/
    file: tool-{version}.sif
    init: image
    wrappers: [tool, "tool{python}", other, conda-python-distributed]
    python: 3.12
containers:
  - family: tool
    version: 1.0
"""


def found(name="x.sif", packages=None, labels=None, init="image", **values):
    """Return an inspection of an image with that name."""
    python = None if init == "none" else inspection.Python("3.12.1", "/opt/x", "/opt/x", packages or {})
    path = f"/images/{name}"
    values = {"python": python, "init": init, "labels": labels or {}, **values}
    return inspection.Inspection(path=path, resolved=path, size=1, **values)


def known(families, *containers, name="Tool"):
    """Return a file of the catalog with these families and records."""
    return CatalogFile.model_validate({"name": name, "families": families, "containers": list(containers)})


@pytest.fixture(scope="module")
def multitorch():
    """The file with the images of the LUMI AI Factory."""
    (document,) = [one for one in reading.documents(site.SITES / "lumi") if one.name == "lumi-multitorch"]
    return document


LABEL = "org.opencontainers.image.version"
LABELED = f"from the label {LABEL}, but 1.0 in the file name"


@pytest.mark.parametrize(
    ("software", "name", "packages", "labels", "expected", "review"),
    [
        # from the file name alone, and never the version of something else in it
        ("Tool", "tool-1.2.sif", {}, {}, "1.2", "from the file name"),
        ("Tool", "python-3.11-rocm-6.2.4_tool_v1.2rc1+local.sif", {}, {}, "1.2rc1", "from the file name"),
        ("Tool", "2.5-tool-1.2.sif", {}, {}, "1.2", "from the file name, but 2.5 in the file name"),
        # the package that the software is named after
        ("PyTorch", "image.sif", {"torch": "2.10.0+cu124", "pytorch": "1"}, {}, "2.10.0", None),
        ("jax", "image-0.4.sif", {"jax": "0.5.0"}, {}, "0.5.0", "from the package jax, but 0.4 in the file name"),
        # labels come first, except the version of the operating system
        ("Tool", "tool.sif", {}, {LABEL: "v3.4.5"}, "3.4.5", None),
        ("Tool", "tool-1.0.sif", {"tool": "2.0"}, {LABEL: "2.0.1"}, "2.0.1", LABELED),
        ("Tool", "tool-1.0.sif", {}, {LABEL: "24.04"}, "1.0", "from the file name"),
        # suffixes that people add to a version
        ("Tool", "tool.sif", {}, {LABEL: "2.7.1 (x)"}, "2.7.1", f"the label {LABEL} is '2.7.1 (x)'"),
        ("Tool", "tool-1.0.sif", {}, {LABEL: "2.7.1x"}, "1.0", "from the file name"),
    ],
)
def test_version_from_labels_package_or_file_name(software, name, packages, labels, expected, review):
    """Labels come first, then the package, then the file name; a guess is marked for review."""
    image = found(name, packages, labels, system="Ubuntu 24.04.1 LTS")
    proposal = adding.propose(image, [], name=software)
    assert (proposal.values["version"], proposal.reviews.get("version")) == (expected, review)
    if software == "PyTorch":
        assert proposal.new_family["package"] == "torch"


def test_packages_that_the_image_lists():
    """R-11: what /.sbom.json lists becomes version and components, where the image's Python doesn't tell."""
    listed = {"pypi": {"Tool": "1.5", "fast_thing": "3.0"}, "deb": {"libfast": "1:2.1-0ubuntu1", "fast-thing": "1-1"}}
    components = {"libfast": "1", "fast-thing": "2", "no": "1"}
    record = {"family": "tool", "version": "1.0", "date": "1", "components": components}
    document = known({"tool": {"file": "tool-{date}.sif"}}, record)
    for packages, version in (({}, "3.0"), ({"fast-thing": "4.0"}, "4.0")):
        proposal = adding.propose(found("tool-2.sif", packages, listed=listed), [document])
        assert proposal.values["version"] == "1.5" and not proposal.reviews
        assert proposal.values["components"] == {"libfast": "2.1", "fast-thing": version}


def test_without_a_version_the_user_is_asked_for_one(multitorch):
    """L-01: an unknown version is an error in new families; known ones find it in the file name."""
    with pytest.raises(AddingError, match="nor name of tool.sif: add --version VERSION"):
        adding.propose(found("tool.sif", {}, {}), [], name="Tool")
    assert adding.propose(found("tool.sif"), [], name="Tool", version="1.5").values["version"] == "1.5"
    document = known({"tool": {"file": "tool-{version}.sif"}}, {"family": "tool", "version": "1.0"})
    # a version given on the command line does not become a component
    for version in (None, "1.5"):
        proposal = adding.propose(found("tool-1.5.sif", init="image"), [document], version=version)
        assert (proposal.values["version"], "components" in proposal.values) == ("1.5", False)
    name = "lumi-multitorch-full-u24r71f22m50t211-20260601_120000.sif"
    # torch's version in the form that the file name and the other records have
    for packages in ({}, {"torch": "2.11.0+rocm7.1"}):
        proposal = adding.propose(found(name, packages, init="venv-in-image"), [multitorch])
        assert (proposal.values["version"], proposal.reviews.get("version")) == ("2.11", None)
    # L-01: the next release with the same versions takes one line; the family's values are not repeated
    full = "lumi-multitorch-full-u24r70f21m50t210-20261201_120000.sif"
    for flavor, family in (("full", "oci-full"), ("torch", "oci")):
        proposal = adding.propose(found(full.replace("full", flavor), init="venv-in-image"), [multitorch])
        assert proposal.values == {"family": family, "version": "2.10", "date": "20261201_120000"}


def test_the_entry_point_decides_between_families(multitorch):
    """Among families with the same file names, the one with the image's entry point is chosen."""
    image = found("lumi-multitorch-full-u24r71f22m50t211-20260601_120000.sif", init="venv-in-image")
    for path, family in (("/opt/oci-entrypoint.sh", "rocm-7.2-full"), ("/.singularity.d/runscript", "rocm-7.0-full")):
        proposal = adding.propose(image, [multitorch], programs={path}.intersection)
        assert (proposal.family, "family" in proposal.reviews) == (family, False)
    proposal = adding.propose(image, [multitorch], programs=lambda _: set())
    assert "the entry point of that family" in proposal.reviews["family"]


def test_labels_of_new_software():
    """Labels provide description and homepage."""
    about = "org.opencontainers.image."
    labels = {f"{about}description": "A tool: 'fast'", f"{about}source": "https://x.org/"}
    proposal = adding.propose(found("tool-1.0.sif", labels=labels), [], name="Tool")
    assert proposal.new_family["description"] == "A tool: 'fast'"
    assert proposal.new_family["homepage"] == "https://x.org/"
    labels = {f"{about}description": "A {tool}"}
    proposal = adding.propose(found("tool-1.0.sif", labels=labels), [], name="Tool")
    assert proposal.new_family["description"] == "Tool in a container." and "description" in proposal.reviews
    # ignored, because it can't be written to a record, or is no link
    for url in (None, "https://x.org/\x1b]0;\nfamilies: {}", "javascript:alert()", "not yet"):
        labels = {f"{about}url": url} if url else {}
        text = writing.text_without_records(adding.propose(found("tool-1.0.sif", labels=labels), [], name="Tool"))
        assert "    homepage: https://apptainer.org/  # review: a placeholder" in text


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ({"missing": ["json", "venv", "ensurepip", "pip"]}, "the standard library lacks json, venv"),
        ({"version": "3.6.15"}, "its Python 3.6.15 is too old"),
        ({"missing": ["ensurepip", "pip"]}, "no ensurepip to install one"),
        ({"missing": ["ensurepip"]}, None),
    ],
)
def test_a_new_family_has_a_venv_only_where_one_can_be_made(python, reason):
    """There is no venv for an image whose Python can't create one, because the easyblock would refuse it."""
    image = found("tool-1.0.sif")
    image = dataclasses.replace(image, python=dataclasses.replace(image.python, **python))
    proposal = adding.propose(image, [], name="Tool")
    assert proposal.new_family["venv"] is (reason is None)
    assert (reason or "") in proposal.reviews.get("venv", "")
    assert f"    venv: {'false' if reason else 'true'}" in writing.text_without_records(proposal)


def answers(*given):
    """Return a function that gives these answers one after another, and the list of questions asked so far."""
    left, questions = list(given), []

    def ask(question, default):
        questions.append((question, default))
        return left.pop(0) or default

    return ask, questions


def test_a_user_is_asked_for_what_is_unknown():
    """Name and version are asked for at a terminal; confirmed values need no review."""
    ask, questions = answers("Tool", "1.5")
    proposal = adding.propose(found("thing.sif"), [], ask=ask)
    assert (proposal.name, proposal.values["version"], "version" in proposal.reviews) == ("Tool", "1.5", False)
    assert [question.split(" (")[0] for question, _ in questions] == ["Name of the software", "Version of Tool"]
    for answer, version in (("", "2.0"), ("3.0", "3.0")):
        ask, questions = answers(answer)
        proposal = adding.propose(found("tool-1.0.sif", {"tool": "2.0"}), [], name="Tool", ask=ask)
        assert (proposal.values["version"], proposal.reviews.get("version")) == (version, None)
        assert questions == [("Version of Tool (from the package tool, but 1.0 in the file name)", "2.0")]
    with pytest.raises(AddingError, match="version: '1 0' should contain letters"):
        adding.propose(found("tool.sif"), [], name="Tool", ask=lambda *_: "1 0")


def test_the_family_used_last_is_marked_if_none_matches():
    """Among families with similar file names the one used last is taken, and marked for review."""
    file = "tool-{version}.sif"
    families = {"one": {"file": file, "init": "conda-injected"}, "two": {"file": file, "init": "venv-in-image"}}
    records = [{"family": "one", "version": "1.0"}, {"family": "two", "version": "1.1"}]
    for name in ("tool-2.0.sif", "other-2.0.sif"):
        proposal = adding.propose(found(name), [known(families, *records)], name="Tool")
        assert (proposal.family, "family" in proposal.reviews) == ("two", True)


def test_images_of_nvidia_and_amd():
    """NVIDIA's has the version under which it is published; AMD's says how its Python is activated."""
    torch = "2.7.0a0+7c8ec84.nv25.3"
    more = {"release": "25.03", "system": "Ubuntu 24.04.2 LTS"}
    nvidia = found("pytorch_25.03-py3.sif", {"torch": torch}, {LABEL: "24.04"}, **more)
    nvidia.components["cuda"] = "12.8.1"
    first = adding.propose(nvidia, [], name="PyTorch")
    assert first.new_family["file"] == "pytorch_{version}-py3.sif" and "package" not in first.new_family
    assert first.values["version"] == "25.03" and not {"version", "file"} & set(first.reviews)
    assert first.values["components"] == {"cuda": "12.8.1", "torch": torch}
    record = {name: first.values[name] for name in ("family", "version", "components")}
    document = known({first.family: first.new_family}, record, name="PyTorch")
    following = adding.propose(found("pytorch_25.04-py3.sif", {"torch": "2.8.0a0+1"}, release="25.04"), [document])
    assert following.values == {"family": first.family, "version": "25.04", "components": {"torch": "2.8.0a0+1"}}
    assert not following.reviews
    name = "pytorch_rocm6.4.1_ubuntu24.04_py3.12_pytorch_release_2.6.0.sif"
    amd = adding.propose(found(name, {"torch": "2.6.0+rocm6.4.1"}, init="venv-in-image"), [document], name="PyTorch")
    assert (amd.values["version"], amd.values["init"]) == ("2.6.0", "venv-in-image")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tool-12.1.3-cuda12.1-2.1.sif", "tool-12.1.3-cuda12.1-{version}.sif"),
        ("tool-12.1.sif", "tool-12.1.sif"),
        ("tool2.1.sif", "tool{version}.sif"),
        ("tool-v2.1_x.sif", "tool-v{version}_x.sif"),
        ("tool.sif", "tool.sif"),
    ],
)
def test_a_version_within_another_number_stays(name, expected):
    """2.1 in 12.1.3 becomes no placeholder; a name without the version is marked for review."""
    proposal = adding.propose(found(name), [], name="Tool", version="2.1")
    assert proposal.new_family["file"] == expected
    assert ("file" in proposal.reviews) == (name == expected)
    assert ("# review: the name has no version" in writing.text_without_records(proposal)) == (name == expected)


@pytest.mark.parametrize("name", ["tool-{version}.sif", "tool\n.sif"])
def test_a_name_that_a_record_can_t_have(name):
    """An image with braces needs another name, because braces are placeholders in a record."""
    with pytest.raises(AddingError, match=r"can't be the name of an image in the catalog.* give the file another"):
        adding.propose(found(name), [], name="Tool", version="1.0")


def test_fields_are_read_from_names():
    """`add` and `import` read file names alike; a placeholder used twice must match the same value."""
    names = "tool-{version}-rocm-{rocm!dotless}{label}-{version}.sif"
    read = {"version": "1.2", "rocm": "6.24", "label": "a-b"}
    assert template.read_fields(names, "tool-1.2-rocm-624-a-b-1.2.sif") == read
    assert template.read_fields(names, "tool-1.2-rocm-624-1.3.sif") is None


# --- the command


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project with one file, a catalog of the user's own, and images whose content comes from a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    (project / "mine/containers").mkdir(parents=True)
    (project / "mine/site.yaml").write_text("name: mine\ndescription: x\n")
    (project / "mine/containers/Tool.yaml").write_text(HEAD)
    monkeypatch.setattr(site, "SITES", project)
    (tmp_path / "own").mkdir()

    def inspect(path, checksum=True):
        return found(path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    monkeypatch.setattr(inspection, "inspect", inspect)
    monkeypatch.setattr(inspection, "programs", lambda _, names: {"tool", "other"} & set(names))
    return tmp_path


def files(place):
    """Return all files of the catalog and the easyconfigs (dict of text)."""
    return {
        str(path.relative_to(place)): path.read_text()
        for folder in ("own", "ec", "project")
        for path in sorted((place / folder).rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def add(place, ebsif):
    """A function that adds an image, whose file is created if it is missing, and returns what is printed."""

    def run(name, *arguments, text="image", status=0):
        path = Path(name)
        if not path.exists() or text != "image":
            path.write_text(text)
        return ebsif("add", name, "--site", "mine", "--catalog", "own", "-o", "ec", *arguments, status=status)

    return run


def test_a_record_extends_the_file_of_the_project(place, add):
    """The user's file contains only the new record; a dry run shows everything that would be written."""
    before = files(place)
    shown = add("tool-2.0.sif", "--dry-run").out
    assert files(place) == before
    add("tool-2.0.sif")
    after = files(place)
    own = {"mine/containers/.ebsif.lock", ".ebsif-schemas/containers.json", ".ebsif-schemas/site.json"}
    new = set(after) - set(before) - {*(f"own/{name}" for name in own), "ec/.ebsif-render"}
    assert new == {"own/mine/containers/Tool.yaml", "ec/t/Tool/Tool-2.0.eb"}
    digest = hashlib.sha256(b"image").hexdigest()
    assert after["own/mine/containers/Tool.yaml"] == (
        "# yaml-language-server: $schema=../../.ebsif-schemas/containers.json\n"
        "name: Tool\nextends: true\ncontainers:\n  - family: tool\n    version: 2.0\n"
        f"    sha256: {digest}\n    size: 1\n"
        "    wrappers: [tool, other, conda-python-distributed]  # review: the image has no tool3.12, which the family "
        "has\n"
    )
    written = ""
    for name in sorted(new - {"ec/.ebsif-render"}, reverse=True):
        lines = after[name].splitlines()
        written += f"--- /dev/null\n+++ {name}\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    assert shown == written
    # the project's records stay, and a third record goes into the same file
    add("tool-3.0.sif")
    directories = (place / "own/mine", place / "project/mine")
    containers = reading.read(site.read("mine", [place / "project"]), *directories)
    assert [one.version for one in containers] == ["1.0", "2.0", "3.0"]


def own_file(place, name, text):
    """Write a file (bytes) of the user's own catalog; return its path."""
    path = place / f"own/mine/containers/{name}.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    return path


def test_a_list_that_is_not_indented(place, add):
    """A record gets the indentation of the others."""
    head, records = HEAD.split("containers:\n")
    own = own_file(place, "Tool", f"{head}containers:\n{textwrap.dedent(records)}")
    add("tool-2.0.sif")
    assert "\n- family: tool\n  version: 2.0\n  sha256: " in own.read_text()


@pytest.mark.parametrize(
    ("begin", "end"), [("containers:  # all of them\n", "\n"), ("containers: \n", "\n"), ("containers:\n", "\r\n")]
)
def test_forms_of_a_file(place, add, begin, end):
    """A comment or blank after `containers:`, and the line ends of the file, stay."""
    text = HEAD.replace("containers:\n", begin).replace("\n", end)
    own = own_file(place, "Tool", text)
    add("tool-2.0.sif")
    after = own.read_bytes().decode()
    assert after.startswith(text) and "version: 2.0" in after[len(text) :]
    assert after.count("\n") == after.count(end)


def test_a_file_without_records(tmp_path):
    """`containers: []` gets its first record."""
    path = tmp_path / "Tool.yaml"
    path.write_text("name: Tool\nfamilies:\n  tool: {homepage: https://example.org/}\ncontainers: []  # none yet\n")
    writing.write([Proposal("Tool", "tool", {"family": "tool", "version": "1.0", "file": "tool-1.0.sif"})], path)
    record = "  - family: tool\n    version: 1.0\n    file: tool-1.0.sif\n"
    assert path.read_text().endswith(f"containers:  # none yet\n{record}")


def test_a_family_whose_file_has_no_records():
    """The first image belongs to the family, as its name says."""
    document = known({"tool": {"file": "tool-{version}.sif", "homepage": "https://example.org"}})
    proposal = adding.propose(found("tool-1.0.sif"), [document])
    assert (proposal.family, proposal.new_family, proposal.values["version"]) == ("tool", None, "1.0")


def test_an_invalid_version(place, add):
    """The message names the field and shows the record, but no line of the file, which lacks it."""
    before = files(place)
    said = add("tool-2.0.sif", "--version", "2 0", status=3).err
    assert said.startswith("ebsif: the record would be invalid, so nothing was written: version: ")
    assert "    version: 2 0\n" in said
    assert files(place) == before


# a family whose file names are only a version
BARE = HEAD.replace("tool-{version}.sif", "'{version}.sif'").replace("name: Tool", "name: Bare")


@pytest.mark.parametrize("name", ["julia.sif", "latest.sif", "README_backup.sif"])
def test_names_without_a_version_match_no_family(place, add, name):
    """A family whose file names are only a version takes no other words for versions."""
    own_file(place, "Bare", BARE)
    # the name of the software is that of the file
    assert f"the version of {name.split('_')[0].removesuffix('.sif')} is in neither" in add(name, status=3).err
    add(f"tool-{name}", status=3)


@pytest.mark.parametrize(
    ("options", "review"),
    [((), "  # review: the file name has only a version: is it the same software?"), (("--name", "Bare"), "")],
)
def test_a_name_that_is_only_a_version_is_a_guess(place, add, options, review):
    """Other software may have such a file name as well; who has named the software isn't asked."""
    own = own_file(place, "Bare", BARE)
    add("2.0.sif", *options)
    assert f"  - family: tool{review}\n    version: 2.0\n" in own.read_text()


def test_add_keeps_what_a_person_has_written(place, add):
    """C-04: with an image that is new, or in the catalog already, what `ebsif render` keeps stays."""
    path = place / "ec/t/Tool/Tool-2.0.eb"
    path.parent.mkdir(parents=True)
    path.write_text("easyblock = 'ContainerInstall'\n")
    before = files(place)
    add("tool-2.0.sif", status=3)
    assert {name: text for name, text in files(place).items() if name in before} == before
    assert not (place / "own/mine/containers/Tool.yaml").exists()
    path.unlink()
    add("tool-2.0.sif")
    path.write_text(path.read_text() + "# mine\n")
    said = add("tool-2.0.sif", status=3).err
    assert path.read_text().endswith("\n# mine\n")
    remedy = "rename or remove it, or choose another directory with -o, and run this command again\n"
    assert said == f"ebsif: {path.relative_to(place)} was written or edited by a person: {remedy}"


def test_the_same_name_with_another_image(place, add):
    """With another SHA256 the status is 1, with what to do; with the same one it is in the catalog already."""
    add("tool-2.0.sif")
    before = files(place)
    assert "is in the catalog already: Tool/2.0, in own/mine/containers/Tool.yaml:5\n" in add("tool-2.0.sif").out
    said = add("tool-2.0.sif", text="another", status=1).err
    assert "is another image there: Tool/2.0 in own/mine/containers/Tool.yaml:5 has the SHA256 " in said
    assert "Give this one another name; or, " in said
    # all that has to be changed
    assert said.endswith(f":\n    sha256: {hashlib.sha256(b'another').hexdigest()}\n    size: 7\n\n")
    assert files(place) == before
    assert "tool-1.0.sif is in the catalog already: Tool/1.0, in " in (out := add("tool-1.0.sif").out)
    assert "; the record has no sha256, so the content was not compared" in out


@pytest.mark.parametrize(("option", "value"), [("--version", "2.0"), ("--name", "Other"), ("--family", "other")])
def test_options_for_a_known_image(place, add, option, value):
    """What is asked for and doesn't happen is an error; what the record has is no other wish."""
    add("tool-1.0.sif", "--version", "1.0", "--name", "Tool", "--family", "tool")
    before = files(place)
    said = add("tool-1.0.sif", option, value, status=3).err.replace(f"{place}/", "")
    assert files(place) == before
    assert f"the record of this image differs ({option} {value}), and was not changed: correct it in project/" in said


@pytest.mark.parametrize(
    ("typed", "default", "expected"),
    [(" 2.0 \n", None, "2.0"), ("\n", "1.0", "1.0"), ("\n", None, None), ("", "1.0", "1.0")],
)
def test_questions_at_a_terminal(monkeypatch, capsys, typed, default, expected):
    """Questions are asked only if standard input and standard error are both terminals."""
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert ask("Version\x1b of Tool", default) is None
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert ask("Version of Tool", default) is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert ask("Version\x1b of Tool", default) == expected
    assert capsys.readouterr().err == rf"Version\x1b of Tool{f' [{default}]' if default else ''}: "


@pytest.mark.usefixtures("eb_on_path")
def test_the_next_step_can_be_copied(place, add):
    """Paths with blanks are quoted; where eb looks anyway, it isn't told to."""
    (place / "my images").mkdir()
    (line,) = re.findall("install it with: (.*)", add("my images/tool-2.0.sif").err)
    assert shlex.split(line) == ["eb", "ec/t/Tool/Tool-2.0.eb", f"--sourcepath={place}/my images"]
    profile = place / "project/mine/site.yaml"
    profile.write_text(f"{profile.read_text()}images: {{directories: [{{path: '{place}/my images'}}]}}\n")
    assert "install it with: eb ec/t/Tool/Tool-2.0.eb\n" in add("my images/tool-2.0.sif").err


FAILURES = {
    "the easyconfig can't be written": ("tool-4.0.sif", [], "ebsif: the disk is full (make room, or choose another"),
    "interrupted": ("tool-4.0.sif", [], ""),
    "module": ("else-1.0.sif", ["--name", "Tool"], "which project/mine/containers/Tool"),
    "no version": ("tool.sif", ["--name", "Tool"], "add --version VERSION"),
    "no family": ("tool-4.0.sif", ["--family", "nothing"], "no family 'nothing'"),
    "profile": ("tool-4.0.sif", ["--version", "4/0"], "should contain letters, digits"),
    "not the image": ("tool-4.0.sif", ["--version", "5.0"], "the record would describe tool-5.0.sif"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("begun", [False, True])
def test_all_or_nothing(place, add, monkeypatch, failure, begun):
    """After any failure, catalog and easyconfigs are unchanged byte for byte."""
    if begun:
        add("tool-2.0.sif")
    before = files(place)
    (place / "ec").mkdir(exist_ok=True)
    status, (name, arguments, expected) = 3, FAILURES[failure]
    if failure == "the easyconfig can't be written":
        full = Mock(side_effect=OSError(28, "No space left on device"))
        monkeypatch.setattr("ebsif.render.rendering.files.replace", full)
    elif failure == "interrupted":
        monkeypatch.setattr("ebsif.render.rendering.files.replace", Mock(side_effect=KeyboardInterrupt))
        status = 130
    said = add(name, *arguments, status=status).err.replace(str(place) + "/", "")
    assert expected in said and "Traceback" not in said
    assert not re.search(r"/tmp/tmp\w+/", said)
    left = files(place)
    left.pop("own/mine/containers/.ebsif.lock", None)
    before.pop("own/mine/containers/.ebsif.lock", None)
    assert left == before
