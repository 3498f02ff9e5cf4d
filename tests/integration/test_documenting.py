"""`ebsif docs`, tested with a real browser."""

import json
from urllib.parse import unquote

import pytest
from ebsif import cli
from ebsif.catalog import reading, selection, site
from ebsif.publish.pages import build
from ebsif_command import run_ebsif
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

SITE = "name: mine\ndescription: a machine <b>of ours</b> `x`_ |y|\n"
HOSTILE = "<script>document.title='in'</script> `a`_ |b| {{ 7*7 }} *c* \\\\ .. raw:: html"
CONTAINERS = """\
name: Odd
families:
  odd: {homepage: https://example.org/, file: "odd-{version}.sif", suffix: "-{date}", init: none}
containers:
  - {family: odd, version: 1.9, date: 20240101, components: {thing: 1.9}, archived: true, history: HOSTILE}
  - family: odd
    version: 1.10
    date: 20250101
    components: {thing: 1.10}
    description: HOSTILE
    homepage: "javascript:document.title='in'"
    keywords: ['"><b id=in>']
    badges: {thing: "<b id=in>thing</b>"}
    usage: "</script><script>document.title='in'</script>\\u2028.. raw:: html\\n\\n   <script>alert(1)</script>"
"""


def docs(*arguments, status=0, cwd=None):
    """Run the command without the caller's settings."""
    result = run_ebsif(
        ["docs", "-o", *arguments],
        cwd,
        {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "SBATCH_ACCOUNT": "whoever_makes_them"},
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result


def some_of(containers):
    """Return the oldest containers with all components in all versions, and those with pages that tests read."""
    chosen, seen = [], set()
    for one in sorted(containers, key=lambda one: (one.date or "", one.full_version)):
        components = set(one.versions.items())
        read = one.module.startswith(("PyTorch/2.6.0-", "PyTorch/2.7.0-", "TensorFlow/2.11.1-", "Odd/"))
        if read or components - seen:
            chosen.append(one)
            seen |= components
    return chosen


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """
    The pages of all sites, and of a site whose texts try to be markup.

    Containers that add no version of a component are left out: each costs time in the browser.
    """
    folder = tmp_path_factory.mktemp("docs")
    mine = folder / "sites/mine/containers"
    mine.mkdir(parents=True)
    (mine.parent / "site.yaml").write_text(SITE)
    (mine / "Odd.yaml").write_text(CONTAINERS.replace("HOSTILE", json.dumps(HOSTILE)))
    real = build.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            build,
            "build",
            lambda sites, *rest: real([(profile, some_of(containers)) for profile, containers in sites], *rest),
        )
        patch.setenv("HOME", "/nonexistent")
        patch.setenv("SBATCH_ACCOUNT", "whoever_makes_them")
        assert cli.main(["docs", "-o", str(folder / "public"), "--catalog", str(folder / "sites")]) == 0
    return folder / "public"


def shown(browser):
    """Return the containers that the table shows, the folded earlier ones, too: (site, module)."""
    browser.execute_script(
        "document.querySelectorAll('.earlier[aria-expanded=false]:not([hidden])').forEach(one => one.click())"
    )
    rows = browser.execute_script(
        "return Array.from(document.querySelectorAll('#containers tbody tr'))."
        "filter(row => row.checkVisibility({visibilityProperty: true}))"
        ".map(row => [row.dataset.site, row.dataset.module])"
    )
    return {tuple(row) for row in rows}


def open_index(browser, pages, choice=""):
    """Reload the first page."""
    browser.get("about:blank")
    browser.get(f"{(pages / 'index.html').as_uri()}#{choice}")


@pytest.mark.nightly
def test_choosing_by_component_and_version(browser, pages):
    """The table shows the chosen containers; the address contains the choice, so the link can be shared."""
    open_index(browser, pages)
    everything = shown(browser)
    assert ("mine", "Odd/1.10-20250101") in everything
    assert ("mine", "Odd/1.9-20240101") not in everything
    Select(browser.find_element(By.ID, "site")).select_by_visible_text("mine")
    browser.find_element(By.CSS_SELECTOR, ".archive:not([hidden]) summary").click()
    assert {module for _, module in shown(browser)} == {"Odd/1.10-20250101", "Odd/1.9-20240101"}
    # compared as versions, not as text
    type_words(browser, "thing >= 1.10")
    assert shown(browser) == {("mine", "Odd/1.10-20250101")}
    assert browser.find_element(By.ID, "number").text.startswith("1 of ")
    type_words(browser, "thing>=1.10 rocm")
    assert shown(browser) == set()
    choice = browser.current_url.split("#")[1]
    open_index(browser, pages, choice.replace("+rocm", ""))
    assert shown(browser) == {("mine", "Odd/1.10-20250101")}


@pytest.mark.nightly
def test_what_a_site_offers(browser, pages):
    """W-01: a click on what people look for searches it, and another one takes it back; earlier ones are folded."""
    open_index(browser, pages, "site=lumi")
    everything = shown(browser)
    wanted = next(one for one in browser.find_elements(By.CLASS_NAME, "suggestion") if one.text == "vLLM")
    wanted.click()
    assert browser.find_element(By.ID, "words").get_attribute("value") == "vllm"
    assert wanted.get_attribute("aria-pressed") == "true"
    lumi = [one for one in some_of(settings_containers("lumi")) if not one.archived]
    having = selection.having(lumi, [selection.parse_requirement("vllm")])[0]
    assert shown(browser) == {("lumi", one.module) for one in having}
    wanted.click()
    assert shown(browser) == everything
    rows = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    (row, *earlier) = [one for one in rows if one.text.startswith("PyTorch\n2.6.0")]
    assert earlier
    row.find_element(By.CLASS_NAME, "earlier").click()
    assert not any(one.is_displayed() for one in earlier)
    assert row.find_element(By.CLASS_NAME, "earlier").text == f"{len(earlier)} earlier"


def type_words(browser, text):
    """Type a text into the filter, as the only one."""
    browser.find_element(By.ID, "words").send_keys(Keys.CONTROL + "a", Keys.NULL, text, Keys.ENTER)


def test_one_typed_word_answers(browser, pages):
    """W-01: `vllm` or `torch 2.7` shows the containers that have it; the address is shared, and back leads back."""
    lumi = [one for one in some_of(settings_containers("lumi")) if not one.archived]
    open_index(browser, pages, "site=lumi")
    everything = shown(browser)
    assert everything == {("lumi", one.module) for one in lumi}
    for text, wanted in {
        "vllm": "vllm",
        "torch 2.7": "torch==2.7.*",
        "torch==2.7.1": "torch==2.7.1",
        "rocm>=6.2": "rocm>=6.2",
        "pytorch-2.6": "pytorch==2.6.*",
        "transformers": "transformers",
        "flash-attention": "flash-attention",
        "python 3.10": "python==3.10",
    }.items():
        requirement = selection.parse_requirement(wanted)
        alias = selection.parse_requirement(wanted.replace("flash-attention", "flash-attn"))
        type_words(browser, text)
        expected = {
            ("lumi", one.module)
            for one in lumi
            if selection.has_keyword(one, requirement) or selection.satisfies(one, alias)
        }
        assert expected
        assert shown(browser) == expected, text
    # all of the words, those of descriptions too
    type_words(browser, "vllm AI Factory 2.10")
    assert {module.split("-rocm")[0] for _, module in shown(browser)} == {"lumi-multitorch/2.10"}
    found = shown(browser)
    assert len(found) < len(everything)
    address = browser.current_url
    type_words(browser, "nothing has this")
    # what a record doesn't have may be in the image
    assert browser.find_element(By.ID, "unknown").text.startswith("No container is known to have nothing, ")
    type_words(browser, "einops")
    assert browser.find_element(By.ID, "unknown").text == (
        "No container is known to have einops. The catalog lists only the main components. This adds a Python "
        "package to a container: ebsif extend CONTAINER --add PACKAGE"
    )
    browser.back()
    browser.back()
    WebDriverWait(browser, 300).until(lambda it: shown(it) == found)
    browser.get("about:blank")
    browser.get(address)
    assert shown(browser) == found
    assert browser.find_element(By.ID, "words").get_attribute("value") == "vllm AI Factory 2.10"
    # a text that isn't a version doesn't take long
    type_words(browser, f"vllm>={'1' * 40}x")
    assert shown(browser) == set()
    # a version that isn't recorded, and the package of a software in containers of another name
    for word, wanted in (("vllm>=0.8", "vllm>=0.8"), ("pytorch>=2.10", "pytorch>=2.10")):
        type_words(browser, word)
        sure, unsure = selection.having(lumi, [selection.parse_requirement(wanted)])
        assert shown(browser) == {("lumi", one.module) for one in sure}
        more = f"{len(unsure)} more have vllm, version not recorded" if unsure else ""
        assert browser.find_element(By.ID, "unsure").text == more and bool(more) == (word[0] == "v")
        if unsure:
            browser.find_element(By.ID, "unsure").click()
            assert shown(browser) > {("lumi", one.module) for one in sure + unsure}
    # what only archived containers have is shown at once
    type_words(browser, "rocm 5.4")
    assert shown(browser) <= {("lumi", one.module) for one in settings_containers("lumi") if one.archived}
    assert shown(browser)
    browser.find_element(By.ID, "clear").click()
    assert shown(browser) > everything


def settings_containers(name):
    """Return all containers of a site of the project."""
    return reading.read(site.read(name), site.SITES / name)


@pytest.mark.nightly
def test_newest_first_by_software(browser, pages):
    """W-01: each software has a table, its newest container in the first row; badges say what decides."""
    open_index(browser, pages, "site=lumi")
    groups = {}
    assert shown(browser)
    for row in browser.find_elements(By.CSS_SELECTOR, ".software:not([hidden]) tbody tr:not([hidden])"):
        if row.is_displayed():
            group = row.find_element(By.XPATH, "ancestor::section[1]/*[1]").text
            groups.setdefault(group, []).append(row)
    newest = sorted(some_of(settings_containers("lumi")), key=lambda one: one.date or "", reverse=True)
    current = {one.name for one in newest if not one.archived}
    assert list(groups) == [name for name in dict.fromkeys(one.name for one in newest) if name in current]
    assert len(groups) > 3
    dates = [row.find_element(By.CLASS_NAME, "date").text[:10] for row in groups["PyTorch"]]
    first = [
        row.find_element(By.CLASS_NAME, "date").text[:10]
        for row in groups["PyTorch"]
        if row.find_elements(By.XPATH, "self::*[not(preceding-sibling::tr)]")
    ]
    # H-01: in the order of `ebsif list`; earlier dates of a kind are folded
    ordered = iter([one.date for one in selection.newest_first(newest) if one.name == "PyTorch" and not one.archived])
    assert all(date.replace("-", "") in ordered for date in first) and len(first) < len(dates)
    texts = [" ".join(row.text.split()) for row in groups["PyTorch"]]
    assert (
        "PyTorch 2.7.0 2025-05-27 torch 2.7.0 ROCm 6.2.4 Python 3.12 vLLM 0.8.5 flash-attention 2.7.3 module load"
        in texts
    )


@pytest.mark.nightly
def test_the_table_agrees_with_list(browser, pages):
    """Each component in each version gives the same containers as `ebsif list --has`, with all of the catalog's."""
    profiles = [site.read(name) for name in site.names()]
    containers = [one for profile in profiles for one in some_of(settings_containers(profile.name))]
    # local parts of versions (+rocm624) count as versions of their own in the table
    conditions = {
        (name, version)
        for one in containers
        for name, version in one.versions.items()
        if version[0].isdigit() and "+" not in version
    }
    assert len(conditions) > 60
    open_index(browser, pages)
    for name, version in sorted(conditions):
        browser.execute_script("location.hash = arguments[0]", f"archived=yes&q={name}%3E%3D{version}")
        WebDriverWait(browser, 300).until(
            lambda it, name=name, version=version: (
                it.execute_script("return document.getElementById('words').value") == f"{name}>={version}"
            )
        )
        try:
            wanted = selection.parse_requirement(f"{name}>={version}")
        except selection.CatalogError:
            # not a version by the rules of Python packages
            continue
        expected = {(one.site.name, one.module) for one in selection.having(containers, [wanted])[0]}
        assert {row for row in shown(browser) if row[0] != "mine"} == expected, (name, version)


@pytest.mark.nightly
def test_a_page_has_everything(browser, pages):
    """S002-18 (in part): from the table to the page: contents, install, use, extend, job script, history, support."""
    open_index(browser, pages, "site=lumi&q=vllm+0.8.5")
    browser.find_element(By.CSS_SELECTOR, "#containers tr:not([hidden]) a").click()
    text = browser.find_element(By.TAG_NAME, "main").text
    module = "PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250527"
    for part in (
        "PyTorch 2.7.0 2025-05-27",
        module,
        "Support: best effort, by the LUMI User Support Team",
        "vllm\n0.8.5+rocm624",
        "eb PyTorch-2.7.0-rocm-6.2.4-python-3.12-singularity-20250527.eb",
        f"module load {module}",
        f"ebsif extend --site lumi {module} -r requirements.txt",
        "ebsif kernel install lab",
        f"ebsif job --site lumi {module} --nodes 2",
        "Since PyTorch 2.6.0 of 2025-04-10:",
        "transformers 4.51.1 → 4.52.3",
    ):
        assert part in text, part
    browser.find_element(By.XPATH, "//summary[.='Show the script']").click()
    text = browser.find_element(By.TAG_NAME, "main").text
    assert "#SBATCH --partition=standard-g" in text and "#SBATCH --account=your_account" in text
    assert "whoever_makes_them" not in browser.page_source
    # the previous version
    link = browser.find_element(By.PARTIAL_LINK_TEXT, "PyTorch 2.6.0")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "PyTorch 2.6.0 2025-04-10"


def test_every_link_leads_somewhere(pages):
    """No page links to a missing file, and nothing is loaded from other servers."""
    import html.parser

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            attributes = dict(attributes)
            for name in ("href", "src"):
                if attributes.get(name):
                    links.append((tag, attributes[name]))

    number = 0
    texts = {page: page.read_text(encoding="utf-8") for page in pages.rglob("*.html")}
    for page, text in texts.items():
        links = []
        Links().feed(text)
        for tag, link in links:
            if "://" in link:
                assert tag == "a", (page, link)
            else:
                path, _, part = unquote(link).partition("#")
                target = (page.parent / path).resolve() if path else page
                assert target.is_file(), (page, link)
                # other parts are filters
                assert not part or "=" in part or f'id="{part}"' in texts[target], (page, link)
                number += 1
    assert number > 350


def test_texts_are_no_markup(browser, pages):
    """Texts of catalog and site are shown literally: neither as HTML nor as a template."""
    # remaining from other tests
    browser.get_log("browser")
    for page in ("index.html", "mine/Odd/1.10-20250101.html", "mine/Odd/1.9-20240101.html"):
        browser.get((pages / page).as_uri())
        assert browser.title != "in"
        assert not browser.find_elements(By.CSS_SELECTOR, "#in, a[href^='javascript']")
        # and if one were, the browser would not run it
        browser.execute_script(
            "const one = document.createElement('script'); one.textContent = 'document.title = 1';"
            "document.body.append(one)"
        )
        assert browser.title != "1"
        assert "Content Security Policy" in browser.get_log("browser")[-1]["message"]
        text = browser.find_element(By.TAG_NAME, "main").text
        assert ("a machine <b>of ours</b> `x`_ |y|" if "index" in page else " ".join(HOSTILE.split())) in text


def test_files_of_persons_stay(tmp_path, pages):
    """C-04: what a person has put there or changed is neither overwritten nor removed without --overwrite."""
    other = tmp_path / "web"
    other.mkdir()
    (other / "index.html").write_text("ours")
    assert "contains files that `ebsif docs` has not written" in docs(other, status=3).stderr
    assert (other / "index.html").read_text() == "ours"
    assert "is not a directory" in docs(other / "index.html", status=3).stderr
    public = tmp_path / "public"
    docs(public, "--site", "local")
    (public / ".git").mkdir()
    for name in (".git/HEAD", ".htaccess"):
        (public / name).write_text("mine")
    (public / "index.html").write_text("edited")
    refused = docs(public, "--site", "local", status=3).stderr
    assert "that were changed since (index.html): choose another directory, or replace them with --overwrite" in refused
    assert (public / "index.html").read_text() == "edited"
    output = docs("public", "--site", "lumi", "--overwrite", cwd=tmp_path).stdout
    assert output == "public/index.html\n"
    assert "edited" not in (public / "index.html").read_text()
    # pages that are no longer made are gone
    assert not (public / "local").exists()
    assert (public / ".git/HEAD").read_text() == (public / ".htaccess").read_text() == "mine"
    docs(public, "--site", "lumi")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["public", "web"]
    assert "known: archer2" in docs(tmp_path / "x", "--site", "nowhere", status=3).stderr
