"""The pages of `ebsif docs` on a phone, in the dark, by keyboard and without JavaScript, in a real browser."""

import base64
import os
import struct
import zlib
from pathlib import Path

import pytest
from contrast import check_contrast
from easybuild.easyblocks.generic.container.record.lockfile import Record
from ebsif.catalog import reading, site
from ebsif.publish.pages import build
from parts import focused
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.nightly
CONTAINER = "lumi/PyTorch/2.7.1-rocm-6.2.4-python-3.12-singularity-20250827.html"
ARCHIVED = "lumi/PyTorch/2.2.2-rocm-5.6.1-python-3.10-vllm-0.4.0.post1-singularity-20240617.html"
CCPE = "lumi/ccpe/25.09-noRocm-SP6-LUMI.html"
KINDS = ("index.html", CONTAINER, ARCHIVED, CCPE)

# What is wrong for those who don't see the page: names of controls and pictures, order of headings, one main.
NAMES = """
const wrong = [];
const text = (element) => (element.getAttribute("aria-label") || element.textContent).trim();
document.querySelectorAll("input, select").forEach((one) => {
  if (!one.labels.length || !text(one.labels[0])) wrong.push(`no label: ${one.outerHTML}`);
});
document.querySelectorAll("a, button, summary").forEach((one) => {
  if (!text(one)) wrong.push(`no name: ${one.outerHTML}`);
});
document.querySelectorAll("img").forEach((one) => { if (!one.alt) wrong.push(`no alt: ${one.outerHTML}`); });
document.querySelectorAll("svg").forEach((one) => {
  const title = document.getElementById(one.getAttribute("aria-labelledby"));
  if (one.getAttribute("aria-hidden") !== "true" && !(title && text(title))) wrong.push("svg without title");
});
document.querySelectorAll("table").forEach((one) => {
  if (!one.querySelector("thead th[scope=col]")) wrong.push("no header");
});
document.querySelectorAll("nav").forEach((one) => { if (!one.ariaLabel) wrong.push("nav without name"); });
const levels = Array.from(document.querySelectorAll("h1, h2, h3, h4"), (one) => Number(one.tagName[1]));
if (levels[0] !== 1 || levels.filter((one) => one === 1).length !== 1) wrong.push(`headings: ${levels}`);
levels.forEach((one, place) => { if (place && one > levels[place - 1] + 1) wrong.push(`headings: ${levels}`); });
const ids = Array.from(document.querySelectorAll("[id]"), (one) => one.id);
if (new Set(ids).size !== ids.length) wrong.push("an id twice");
if (document.documentElement.lang !== "en" || document.querySelectorAll("main").length !== 1) wrong.push("lang, main");
return wrong;
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of LUMI."""
    directory = tmp_path_factory.mktemp("lumi") / "pages"
    profile = site.read("lumi")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODULEPATH", "")
        build.build([(profile, reading.read(profile, site.SITES / "lumi"))], directory)
    return directory


@pytest.fixture
def look(browser, pages):
    """A function that opens a page with a width, light or dark; the browser is as before afterwards."""

    def look(page, width=1200, dark=False, choice="", height=800):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        browser.get("about:blank")
        browser.get(f"{(pages / page).as_uri()}{choice}")

    yield look
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone(browser, look):
    """W-02: no page scrolls sideways at 360 pixels; all rows have three lines at most, with a button to copy."""
    for page in KINDS:
        look(page, 360)
        assert browser.execute_script("return document.documentElement.scrollWidth") == 360, page
    look("index.html", 360, choice="#archived=yes")
    browser.execute_script("document.querySelectorAll('.earlier').forEach((one) => one.click())")
    rows = browser.execute_script(
        "return Array.from(document.querySelectorAll('#containers tbody tr'), (row) => [row.innerText,"
        "row.offsetHeight, row.scrollHeight, parseFloat(getComputedStyle(row).lineHeight),"
        "row.querySelector('.copy').offsetWidth])"
    )
    assert len(rows) > 80
    for text, height, content, line, button in rows:
        assert line < height < 4 * line and button > 60, text
        assert content <= height, f"cut: {text}"


def test_a_row_for_each_container(browser, look):
    """On a screen of 1280 pixels, a container has one line, and a command isn't broken."""
    look("index.html", 1280, choice="#archived=yes")
    browser.execute_script("document.querySelectorAll('.earlier').forEach((one) => one.click())")
    heights = browser.execute_script(
        "return Array.from(document.querySelectorAll('#containers tbody tr'), (row) => row.offsetHeight)"
    )
    assert len(heights) > 80
    assert max(heights) < 50
    # a long command can be read as a whole on a phone, below its button
    look(CONTAINER, 390)
    for block in browser.find_elements(By.CSS_SELECTOR, "#use > pre"):
        width, room = browser.execute_script(
            "return [arguments[0].firstChild.scrollWidth, arguments[0].firstChild.clientWidth]", block
        )
        assert width == room and block.find_element(By.CLASS_NAME, "copy").is_displayed()
        # where a line is broken, it isn't the next command
        assert "hanging each-line" in block.find_element(By.TAG_NAME, "code").value_of_css_property("text-indent")


def test_lines_of_prose(browser, look):
    """On a wide screen, a line of prose has at most 105 characters."""
    for page in KINDS:
        look(page, 1400)
        longest = browser.execute_script("""
            return Math.max(...Array.from(document.querySelectorAll("main > p, section > p"), (one) => {
                const style = getComputedStyle(one), canvas = document.createElement("canvas").getContext("2d");
                canvas.font = `${style.fontSize} ${style.fontFamily}`;
                return one.clientWidth / canvas.measureText(one.textContent).width * one.textContent.length;
            }))""")
        assert longest <= 105, page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_contrast(browser, look, dark):
    """W-02: every text has a contrast of 4.5 or more, in the light and in the dark; the dark page is dark."""
    for page in KINDS:
        look(page, dark=dark, choice="#q=vllm&archived=yes" if page == "index.html" else "")
        assert check_contrast(browser, dark) > 25, page


def test_names_and_headings(browser, look):
    """W-02: controls, pictures and tables have names, headings skip no level, and titles tell pages apart."""
    titles = set()
    for page in KINDS:
        look(page)
        assert browser.execute_script(NAMES) == [], page
        titles.add(browser.title)
    assert len(titles) == len(KINDS)


def test_words_that_no_container_has(browser, look):
    """
    A word that isn't known, perhaps mistyped, is never part of a command to copy.

    A similar name can be pressed, and who looks for CUDA at a site with AMD GPUs is told so.
    """

    def said(text):
        look("index.html", choice=f"#q={text}")
        return browser.find_element(By.ID, "unknown")

    unknown = said("pytroch")
    assert unknown.text == (
        "No container is known to have pytroch. Did you mean pytorch? The catalog lists only the "
        "main components. This adds a Python package to a container: "
        "ebsif extend CONTAINER --add PACKAGE"
    )
    unknown.find_element(By.TAG_NAME, "button").click()
    assert browser.find_element(By.ID, "words").get_attribute("value") == "pytorch"
    assert browser.find_element(By.ID, "number").text.startswith(("1", "2", "3"))
    assert said("cuda").text == "The GPUs of LUMI don't use CUDA: the containers have ROCm."
    assert said("rocm").text == ""
    strange = said("reqeusts-toolbelt-x").text
    assert "reqeusts" not in strange.partition("The catalog")[2] and "Did you mean" not in strange


def test_the_keyboard(browser, look):
    """W-02: from the address to the page of a container and its commands without a mouse; the focus is always seen."""
    look("index.html")
    assert focused(browser).text == "Skip to the content"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "content"
    browser.switch_to.active_element.send_keys("/")
    words = browser.switch_to.active_element
    assert words.get_attribute("id") == "words"
    words.send_keys("torch 2.7.1")
    passed = []
    while not passed or passed[-1] != "PyTorch 2.7.1":
        assert len(passed) < 20, passed
        passed.append(focused(browser).text.replace("\n", " "))
    assert {"vLLM", "Clear", "Copy link"} <= set(passed)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    WebDriverWait(browser, 300).until(lambda it: it.title.startswith("PyTorch 2.7.1"))
    empty_clipboard(browser)
    for _ in range(100):
        if "load and run" in (focused(browser).get_attribute("aria-label") or ""):
            break
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    WebDriverWait(browser, 300).until(lambda it: clipboard(it) == commands_of(CONTAINER))
    # the filter is still there
    browser.back()
    WebDriverWait(browser, 300).until(lambda it: it.find_elements(By.ID, "number"))
    current = [one for one in reading.read(site.read("lumi"), site.SITES / "lumi") if not one.archived]
    assert browser.find_element(By.ID, "number").text == f"1 of {len(current)} containers"


def empty_clipboard(browser):
    """Empty the clipboard, which the page may read and write from here on."""
    browser.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    browser.execute_async_script("navigator.clipboard.writeText('').then(arguments[0], arguments[0])")


def clipboard(browser):
    """Return the text in the clipboard."""
    return browser.execute_async_script("navigator.clipboard.readText().then(arguments[0], arguments[0])")


def commands_of(page):
    """Return the commands that load and run the module of a page."""
    return f"module load {page.removeprefix('lumi/').removesuffix('.html')}\npython train.py"


def test_copying(browser, look, pages):
    """The buttons copy a command without what surrounds it, also where there is no clipboard."""
    look(CONTAINER)
    empty_clipboard(browser)
    # the page says it for two seconds, which a busy machine may miss
    browser.execute_script("""
        window.said = [];
        document.querySelectorAll("#use .copy").forEach((button) => new MutationObserver(
          () => window.said.push(button.textContent)).observe(button, {childList: true}));""")
    load, *_, install = browser.find_elements(By.CSS_SELECTOR, "#use .copy")
    load.click()
    WebDriverWait(browser, 300).until(lambda it: clipboard(it) == commands_of(CONTAINER))
    browser.execute_script("navigator.clipboard.writeText = () => Promise.reject(); ")
    install.click()
    module = CONTAINER.removeprefix("lumi/").removesuffix(".html")
    WebDriverWait(browser, 300).until(lambda it: clipboard(it) == f"eb {module.replace('/', '-')}.eb")
    WebDriverWait(browser, 300).until(lambda it: it.execute_script("return window.said").count("Copied") == 2)


def test_searching_packages(browser, look, pages):
    """Packages are in groups, those of the system folded; many of them can be searched."""
    profile = site.read("lumi")
    module = CONTAINER.removeprefix("lumi/").removesuffix(".html")
    record = Record(
        image_packages=["vllm==0.10.1", "torch==2.7.1"],
        venv_packages=["einops==0.8"],
        system_packages={"Debian": [f"lib{number}==1.{number}" for number in range(20)]},
    )
    build.build(
        [(profile, [one for one in reading.read(profile, site.SITES / "lumi") if one.module == module])],
        pages / "installed",
        {module: record},
    )
    look(f"installed/{CONTAINER}")
    inside = browser.find_element(By.ID, "inside")
    groups = [one.text for one in inside.find_elements(By.TAG_NAME, "summary")]
    assert groups[1:] == ["Python packages (2)", "User software (1)", "System packages (20)"]
    assert "einops" in inside.text and "lib11" not in inside.text
    browser.find_element(By.CSS_SELECTOR, ".search input").send_keys("LIB11 1.11")
    assert [one.text for one in inside.find_elements(By.TAG_NAME, "li") if one.is_displayed()] == ["lib11\n1.11"]
    assert browser.find_element(By.CSS_SELECTOR, ".search output").text.startswith("1 of ")


def test_without_javascript(browser, look):
    """W-02: everything can be read, and nothing is there that needs JavaScript."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    look("index.html", choice="#q=vllm")
    assert not browser.find_element(By.ID, "filter").is_displayed()
    assert not browser.find_elements(By.CSS_SELECTOR, "button:not(#filter button)")
    assert not [one for one in browser.find_elements(By.TAG_NAME, "button") if one.is_displayed()]
    text = browser.find_element(By.ID, "containers").text
    # the earlier ones, too
    assert text.count("PyTorch\n2.6.0") == 3 and "jax\n0.4.28" in text
    browser.find_element(By.CSS_SELECTOR, ".archive summary").click()
    assert "AlphaFold\n69afc4d" in browser.find_element(By.ID, "containers").text
    browser.find_element(By.PARTIAL_LINK_TEXT, "2.7.1").click()
    text = browser.find_element(By.TAG_NAME, "main").text
    assert "ebsif extend" in text
    assert "vllm 0.8.5+rocm624 → 0.10.1+rocm624" in text
    assert not [one for one in browser.find_elements(By.CSS_SELECTOR, ".search") if one.is_displayed()]


def smaller(picture):
    """Return a PNG picture without what isn't needed, as small as zlib makes it (bytes)."""
    place, data, kept = 8, b"", {}
    while place < len(picture):
        (size,) = struct.unpack(">I", picture[place : place + 4])
        kind, content = picture[place + 4 : place + 8], picture[place + 8 : place + 8 + size]
        place += size + 12
        data, kept = (data + content, kept) if kind == b"IDAT" else (data, {**kept, kind: content})
    packer = zlib.compressobj(9, memLevel=9)
    parts = {b"IHDR": kept[b"IHDR"], b"IDAT": packer.compress(zlib.decompress(data)) + packer.flush(), b"IEND": b""}
    return picture[:8] + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts.items()
    )


def test_pictures(browser, look, tmp_path):
    """Pictures of the pages for the documentation; EBSIF_TEST_PICTURES names their directory."""
    pictures = Path(os.environ.get("EBSIF_TEST_PICTURES", tmp_path))
    views = {"pages": ("index.html", 1240, False, "#q=vllm", 760), "pages-phone": (CONTAINER, 360, True, "", 680)}
    for name, view in views.items():
        look(*view)
        taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        (pictures / f"{name}.png").write_bytes(smaller(base64.b64decode(taken)))
        assert 10_000 < (pictures / f"{name}.png").stat().st_size < 150_000
