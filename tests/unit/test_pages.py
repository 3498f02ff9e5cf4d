"""What the pages of `ebsif docs` say of a container: names, badges, packages of installations, changes."""

import html
import json
import re

import pytest
from easybuild.easyblocks.generic.container.record.lockfile import ImageRecord, Record
from ebsif.catalog import reading, site
from ebsif.catalog.packagenames import OTHER_NAMES
from ebsif.publish.pages import build, entry
from ebsif_command import run_ebsif

CONTAINERS = """\
name: PyTorch
families:
  base: {file: "a-{date}.sif", suffix: "-rocm-{rocm}-python-{python}{variant}-sif{label}-{date}", package: torch,
         venv: true, python: 3.11, description: Mine, homepage: https://pytorch.org/}
containers:
  - {family: base, version: 2.9, date: 20260101, components: {rocm: 6.4, vllm: 0.8.5+rocm624}}
  - {family: base, version: "2.10", date: 20260601_120000, keywords: [flash-attention],
     components: {rocm: 7.0, vllm: 0.9.dev3+gabc}, variant: debug, badges: {mpich: MPICH, python: null, vllm: VLLM}}
  - {family: base, version: "2.10", date: 20260701, components: {rocm: 7.0, mpich: 5.0}, label: other,
     badges: {mpich: MPICH}, variant: vllm-1, history: of <b>July</b>}
"""
OLD = "PyTorch/2.9-rocm-6.4-python-3.11-sif-20260101"
NEW = "PyTorch/2.10-rocm-7.0-python-3.11-debug-sif-20260601_120000"


@pytest.fixture
def catalog(tmp_path):
    """A directory with a site, mine, of three containers."""
    folder = tmp_path / "sites/mine"
    (folder / "containers").mkdir(parents=True)
    (folder / "site.yaml").write_text("name: mine\ndescription: Mine\n")
    (folder / "containers/PyTorch.yaml").write_text(CONTAINERS)
    return folder.parent


def read(catalog):
    """Return the containers of the site."""
    return reading.read(site.read("mine", [catalog]), catalog / "mine")


def page_of(containers, chosen, tmp_path):
    """Build the pages of some containers of a site; return the text of the page of one."""
    where = chosen.site
    build.build([(where, containers)], tmp_path / "pages")
    return (tmp_path / f"pages/{where.name}/{chosen.module}.html").read_text()


def lumi():
    """Return the containers of LUMI."""
    return reading.read(site.read("lumi"), site.SITES / "lumi")


def badges(page):
    """Return the version in each badge of a page, by its label."""
    return {one.label: one.version for one in page.badges}


def test_short_names_and_badges(catalog):
    """A short name tells containers apart; badges are data of site and family, with a default."""
    old, new, other = entry.pages(read(catalog))
    expected = ["PyTorch 2.9", "PyTorch 2.10 debug", "PyTorch 2.10 vllm-1 other"]
    assert [page.short_name for page in (old, new, other)] == expected
    assert [page.date for page in (old, new)] == ["2026-01-01", "2026-06-01"]
    assert badges(old) == {"torch": "2.9", "ROCm": "6.4", "Python": "3.11", "vLLM": "0.8.5"}
    assert badges(new) == {"torch": "2.10", "ROCm": "7.0", "VLLM": "0.9.dev3", "flash-attention": ""}
    assert [[one.label for one in badges] for badges in other.columns] == [["torch"], ["ROCm"], ["Python"], ["MPICH"]]
    (catalog / "mine/site.yaml").write_text("name: mine\ndescription: Mine\nbadges: {python: Py}\n")
    assert [[*badges(page)] for page in entry.pages(read(catalog))] == [["Py"], ["VLLM"], ["Py", "MPICH"]]
    # a family without suffix has the label as its suffix
    file = catalog / "mine/containers/PyTorch.yaml"
    file.write_text(re.sub(r"suffix: \S+ ", "", CONTAINERS))
    expected = ["PyTorch 2.9", "PyTorch 2.10", "PyTorch 2.10 other"]
    assert [page.short_name for page in entry.pages(read(catalog))] == expected


def test_changes_of_each_kind():
    """A full image follows full, torch follows torch; the first of a kind follows the newest one of another."""
    some = entry.pages([one for one in lumi() if one.name == "lumi-multitorch"])
    by_date = {(page.container.full_version.split("-")[-2], page.date): page for page in some}
    full, torch = by_date["full", "2026-05-13"], by_date["torch", "2026-05-13"]
    assert full.before.full_version == "2.10-rocm-7.0-full-20260415_130625"
    assert torch.before.full_version == "2.10-rocm-7.0-torch-20260415_130625"
    assert full.changes == torch.changes == []
    near = build.neighbors(some)
    for page, kind in ((full, "full"), (torch, "torch")):
        assert near[some.index(page)]["newest"] is by_date[kind, "2026-09-29"]
    assert near[some.index(by_date["full", "2026-09-29"])]["newest"] is None
    assert "plus" not in by_date["plus", "2026-05-13"].before.full_version


def test_a_container_without_python(tmp_path):
    """The page of a container without Python has no example of a training."""
    (one,) = [one for one in lumi() if one.module == "ccpe/25.09-noRocm-SP6-LUMI"]
    text = page_of([one], one, tmp_path)
    assert "singularity shell" in text and "train.py" not in text
    # its own name is in the heading, and its text of 2,500 characters is folded
    assert "<summary>Main components (1)</summary>" in text and "ROCm 6.4" not in text
    assert "<summary>Variables in the container (5)</summary>" in text


def test_an_archived_container(tmp_path):
    """The page of an archived container says how to load it, and has neither notebook nor job."""
    one = next(one for one in lumi() if one.name == "AlphaFold")
    text = page_of([one], one, tmp_path)
    assert f"<code>module load {one.module}\n</code>" in text
    assert "Notebook" not in text and "ebsif job" not in text and "ebsif extend" not in text


def test_the_sites_of_the_pages(catalog, tmp_path, monkeypatch, ebsif):
    """The chosen site alone, if there is one; all of them on request."""
    monkeypatch.setattr(build, "build", lambda *_: None)
    for names, options in (("mine", []), ("other", ["--site", "other"]), ("mine, other", ["--all-sites"])):
        monkeypatch.setattr(site, "SITES", tmp_path / "project")
        monkeypatch.setenv("EBSIF_SITE", "mine")
        (tmp_path / "project/other").mkdir(parents=True, exist_ok=True)
        (tmp_path / "project/other/site.yaml").write_text("name: other\ndescription: Other\n")
        said = ebsif("docs", "-o", str(tmp_path / "pages"), "--catalog", str(catalog), *options).err
        assert re.search(f"^building pages for \\d containers of {names} [.]", said)


def test_packages_of_installations(eb_prefix, catalog, tmp_path):
    """V-01: packages, differences, replaced ones are on the page; no path, no other image."""
    license_ = {"org.opencontainers.image.licenses": "BSD-3-Clause"}
    image = {"sha256": "0" * 64, "size": 4_000_000_000, "source": "/secret/place/a.sif", "labels": license_}
    old = {"file": "a-20260101.sif", **image, "signers": ["ABCDEF"]}
    eb_prefix.install(OLD, image=old, image_packages=["numpy==2.0", "torch==2.9.0"])
    packages = ["numpy==2.1", "torch==2.10.0", "<img/src=x/onerror=alert(1)>==1"]
    sympy = {"name": "sympy", "version": "1.12", "image": "1.14", "wanted": [], "affects": []}
    new = {"file": "a-20260601_120000.sif", **image, "signers": []}
    replaced = [{**sympy, "breaks": ["torch 2.10.0 needs sympy>=1.13"]}]
    eb_prefix.install(NEW, image=new, image_packages=packages, replaced=replaced)
    eb_prefix.install(read(catalog)[2].module, image={"file": "another.sif"})
    environment = {"MODULEPATH": eb_prefix.modules, "HOME": tmp_path, "PATH": "/usr/bin:/bin"}
    result = run_ebsif(["docs", "-o", "pages", "--site", "mine", "--catalog", catalog], tmp_path, environment)
    assert result.returncode == 0, result.stderr
    assert "with all packages of 2 installed modules\n" in result.stderr
    before, page, other = ((tmp_path / f"pages/mine/{one.module}.html").read_text() for one in read(catalog))
    for text in (
        'numpy</span> <span class="version">2.1<',
        "<li>numpy 2.0 → <b>2.1</b></li>",
        "<ins>+ &lt;img/src=x/onerror=alert(1)&gt; 1</ins>",
        "<dd>BSD-3-Clause</dd>",
        "4.0 GB",
        "0" * 64,
        "<dd>The image is not signed.</dd>",
        "sympy 1.12 instead of the image&#39;s 1.14; this breaks: torch 2.10.0 needs sympy&gt;=1.13.</p>",
        '<summary>User software (1)</summary>\n<ul class="packages">\n<li><span>einops</span>',
    ):
        assert text in page, text
    assert page.count("<li><span>torch</span>") == 1
    assert "<img" not in page
    assert "/secret" not in page
    assert "<dd>By the key ABCDEF, not verified.</dd>" in before
    assert "numpy" not in other
    index = (tmp_path / "pages/index.html").read_text()
    contents = [json.loads(html.unescape(text)) for text in re.findall('data-inside="(.*?)"', index)]
    assert sorted(one["numpy"] for one in contents if "numpy" in one) == ["2.0", "2.1"]


def test_what_is_unknown_is_left_out(catalog, tmp_path):
    """Without an installation, nothing is invented, and there are no rows without content."""
    text = page_of(read(catalog), read(catalog)[0], tmp_path)
    assert re.findall("<dt>(.*?)</dt>", text) == ["Homepage", "Image"]
    assert "This is the first container of PyTorch in the catalog." in text
    assert "The catalog lists only the main components." in text
    later = (tmp_path / "pages/mine" / f"{read(catalog)[2].module}.html").read_text()
    assert "of &lt;b&gt;July&lt;/b&gt;" in later
    # who comes by an old link sees the newer container at the top
    top = text.partition("<h2>")[0]
    assert "<p>Newest: <a" in top and ">PyTorch 2.10 vllm-1 other of 2026-07-01</a>" in top
    assert "<title>PyTorch 2.9 2026-01-01 – Containers on Mine</title>" in text and "Newest" not in later
    assert "<ins>+ mpich 5.0</ins>" in later


@pytest.mark.parametrize("fields", ["", "requirements: [einops], "])
def test_pip_only_where_it_can_install(catalog, tmp_path, fields):
    """User software of a record with requirements is packed, so its page doesn't have the commands with pip."""
    path = catalog / "mine/containers/PyTorch.yaml"
    path.write_text(path.read_text().replace("version: 2.9, ", f"version: 2.9, {fields}"))
    text = page_of(read(catalog), read(catalog)[0], tmp_path)
    assert "-r requirements.txt --name mine" in text
    assert ("pip install einops" in text) == (not fields)


@pytest.mark.parametrize(
    ("replacement", "advice"),
    [("JAX", "it fails. Use JAX instead."), ("PyTorch", "it fails. Use a newer PyTorch instead."), ("", "it fails.")],
)
def test_what_to_use_instead(catalog, tmp_path, replacement, advice):
    """An archived container recommends one thing: its replacement, else the newest of its own name, with a link."""
    archived = f"{{since: 2026-01-23, reason: it fails{', replacement: ' + replacement if replacement else ''}}}"
    path = catalog / "mine/containers/PyTorch.yaml"
    fields = f"version: 2.9, archived: {archived}, warnings: [old], "
    path.write_text(path.read_text().replace("version: 2.9, ", fields))
    text = page_of(read(catalog), read(catalog)[0], tmp_path)
    assert f": {advice}</p>" in text
    assert ("<p>Newest: <a" in text) == (replacement != "JAX")
    assert '<p class="note">Warning: old</p>' in text


@pytest.mark.parametrize(
    ("description", "name", "archived"),
    [("Mine, a machine", "Mine", True), ("a machine of Miners", "mine", False), ("Miners' machine", "mine", False)],
)
def test_the_first_page(catalog, tmp_path, description, name, archived):
    """W-01: the title has the name of the site as its description writes it; a line explains what a container is."""
    (catalog / "mine/site.yaml").write_text(f"name: mine\ndescription: {description}\nsupport: Ann, room 7\n")
    path = catalog / "mine/containers/PyTorch.yaml"
    path.write_text(path.read_text().replace("version: 2.9, ", f"version: 2.9, archived: {str(archived).lower()}, "))
    build.build([(site.read("mine", [catalog]), read(catalog))], tmp_path / "pages")
    text = (tmp_path / "pages/index.html").read_text()
    assert f"<h1>Containers on {name}</h1>" in text and f"<title>Containers on {name}</title>" in text
    # the site's support line is a default, which containers may replace
    assert "Ann, room 7" not in text and "<p>The page of each container says who supports it.</p>" in text
    assert "<code>module load NAME/VERSION</code>" in text
    assert (f'Archived containers of {name} (<span class="shown">1<' in text) == archived
    assert [path.name for path in (tmp_path / "pages/mine").iterdir()] == ["PyTorch"]


def test_which_one_to_take(catalog):
    """W-01: a row for each version and kind, earlier dates folded; a mark for the recommended one only."""
    path = catalog / "mine/containers/PyTorch.yaml"
    path.write_text(
        CONTAINERS
        + """\
  - {family: base, version: 2.9, date: 20260301, components: {rocm: 6.4, vllm: 0.8}}
  - {family: base, version: 2.9, date: 20260302, components: {rocm: 6.4}}
  - {family: base, version: 2.9, date: 20260401, components: {rocm: 6.3}}
  - {family: base, version: 2.9, date: 20260501, components: {rocm: 6.3}, archived: true}
"""
    )

    def rows():
        parts = build.grouped(entry.pages(read(catalog)))
        return [[[page.container.date for page in kind] for _, kinds in part for kind in kinds] for part in parts]

    # another ROCm, or no vLLM, is another kind
    current = [["20260701"], ["20260601_120000"], ["20260401"], ["20260302"], ["20260301", "20260101"]]
    assert rows() == [current, [["20260501"]]]
    # the newest one isn't necessarily the one to take
    assert not any(page.is_recommended for page in entry.pages(read(catalog)))
    path.write_text(path.read_text().replace("date: 20260101", "date: 20260101, default: true"))
    assert [page.container.date for page in entry.pages(read(catalog)) if page.is_recommended] == ["20260101"]
    # which is never folded
    assert rows()[0][-2:] == [["20260301"], ["20260101"]]


def test_what_the_filter_offers(catalog):
    """W-01: what some of a site's containers have, as the site writes it, and an example from the newest one."""
    path = catalog / "mine/containers/PyTorch.yaml"
    path.write_text(
        CONTAINERS
        + """\
  - {family: base, version: 2.8, date: 20250101, components: {rocm: 6.4}, keywords: [flash-attention, DeepSpeed]}
  - {family: base, version: 2.8, date: 20250102, components: {rocm: 6.4}, keywords: [DeepSpeed], archived: true}
"""
    )
    some = entry.pages(read(catalog))
    # all have torch, and only one that isn't archived has DeepSpeed
    assert build.suggestions(some) == ["flash-attention", "VLLM", "Python 3.11", "ROCm 7.0", "ROCm 6.4"]
    assert build.example(some) == ["torch 2.10", "rocm>=7.0"]
    assert build.aliases(some) == OTHER_NAMES


def test_notes_on_usage():
    """The notes of a site are text, with its indented lines as they are."""
    assert build.paragraphs("To start\nit:\n\n    run  a\n    eval  b\n\nAnd `x`.\n") == [
        (False, "To start\nit:"),
        (True, "run  a\neval  b"),
        (False, "And `x`."),
    ]
    assert build.paragraphs("") == []


def test_signature_and_source(catalog):
    """The page says what the verification found, and where the image was fetched."""
    container = read(catalog)[0]
    image = {"file": "a-20260101.sif", "source": "oras://host/a@sha256:1", "source_digest": "sha256:1"}
    record = Record(image=ImageRecord(**image, verified=["Ann <ann@example.org>"]))
    (page,) = entry.pages([container], {container.module: record})
    assert page.signature == "The image is signed by Ann <ann@example.org>."
    assert page.source == "oras://host/a@sha256:1"
    record.image.source_digest = None
    assert page.source is None
