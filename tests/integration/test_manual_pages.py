"""The project's own pages in a real browser, built as `make docs` builds them."""

import os
import sys

import pytest
from contrast import check_contrast
from parts import focused
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from support import CHECKOUT, attempt

PHONE = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}


def build(folder):
    """Build the pages in a folder; return the completed process."""
    command = [sys.executable, "-m", "manual", "-o", folder]
    return attempt(command, env={**os.environ, "PYTHONPATH": str(CHECKOUT / "docs")})


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder of the pages."""
    folder = tmp_path_factory.mktemp("manual") / "pages"
    result = build(folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(f" pages; open {folder}/index.html\n")
    return folder


@pytest.mark.nightly
def test_every_page_on_a_phone(browser, pages):
    """W-02 for the manual: no page is wider than a phone, commands are read whole, there are no errors."""
    browser.get_log("browser")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        for path in pages.rglob("*.html"):
            browser.get(path.as_uri())
            assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE["width"], path
            broken = "return Array.from(document.images).filter(one => !one.naturalWidth).map(one => one.src)"
            assert browser.execute_script(broken) == [], path
            cut = (
                "return Array.from(document.querySelectorAll('pre .language-bash')).filter("
                "one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
            )
            assert browser.execute_script(cut) == [], path
            assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == [], path
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.nightly
def test_the_menu_leads_to_every_page(browser, pages):
    """The menu leads from the start page to a guide and to the reference, and marks the page."""
    browser.get((pages / "index.html").as_uri())
    for title in ("Quick start for users", "Commands", "Performance"):
        link = browser.execute_script(
            "return Array.from(document.querySelectorAll('.menu a')).find("
            "one => one.textContent === arguments[0] && one.offsetParent)",
            title,
        )
        browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", link)
        link.click()
        assert browser.execute_script("return document.querySelector('h1').textContent") == title
        assert browser.execute_script("return document.querySelector('.menu [aria-current]').textContent") == title


@pytest.mark.nightly
def test_the_keyboard(browser, pages):
    """W-02 for the manual: past the menu to a link in the text, and to its page; the focus is always seen."""
    browser.get((pages / "index.html").as_uri())
    assert focused(browser).text == "Skip to the content"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "content"
    for _ in range(50):
        link = focused(browser)
        assert link.find_elements(By.XPATH, "ancestor::main"), link.get_attribute("outerHTML")
        if link.text == "user":
            break
    link.send_keys(Keys.ENTER)
    assert browser.find_element(By.TAG_NAME, "h1").text == "Quick start for users"


@pytest.mark.nightly
def test_the_search(browser, pages):
    """Words lead to the sections that have them, with context; for a misspelled one, another."""
    browser.get((pages / "reference/commands/extend.html").as_uri())
    field = browser.find_element(By.CSS_SELECTOR, ".search-all input")
    # as on the pages of containers
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    assert browser.switch_to.active_element == field
    field.send_keys("virtual environment make-venv")
    links = WebDriverWait(browser, 30).until(lambda _: browser.find_elements(By.CSS_SELECTOR, ".search-all li a"))
    texts = [link.text for link in links]
    around = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".search-all li span")]
    assert len(texts) <= 10 and all("environment" in text for text in around[:2])
    assert "Using a container module: Your own virtual environment" in texts
    links[texts.index("Using a container module: Your own virtual environment")].click()
    assert browser.current_url.endswith("/using.html#your-own-virtual-environment")
    field = browser.find_element(By.CSS_SELECTOR, ".search-all input")
    field.send_keys("no-such-word")
    said = browser.find_element(By.CSS_SELECTOR, ".search-all output")
    WebDriverWait(browser, 30).until(lambda _: said.text == "No section has these words")
    field.clear()
    field.send_keys("apptaner exec")
    WebDriverWait(browser, 30).until(lambda _: "Did you mean" in said.text)
    said.find_element(By.TAG_NAME, "button").click()
    assert field.get_attribute("value") == "apptainer exec"
    assert browser.find_elements(By.CSS_SELECTOR, ".search-all li a")


@pytest.mark.nightly
def test_lines_of_prose(browser, pages):
    """A line of prose has about 75 characters, and head, text and foot are on one grid."""
    browser.get((pages / "using.html").as_uri())
    widths = browser.execute_script("""
        return Array.from(document.querySelectorAll("main > p")).map(one => {
            const style = getComputedStyle(one), canvas = document.createElement("canvas").getContext("2d");
            canvas.font = `${style.fontSize} ${style.fontFamily}`;
            return one.clientWidth / canvas.measureText(one.textContent).width * one.textContent.length;
        })""")
    assert widths and max(widths) <= 80
    left = lefts(browser)
    assert left[0] == left[1] and left[2] == left[3]


def lefts(browser):
    """Where the text of head, menu, page and foot begins, in pixels."""
    return [
        browser.execute_script(
            "const one = document.querySelector(arguments[0]);"
            "return one.getBoundingClientRect().left + parseFloat(getComputedStyle(one).paddingLeft)",
            name,
        )
        for name in (".top nav", ".menu", "main", "footer")
    ]


@pytest.mark.nightly
def test_one_grid_on_a_phone(browser, pages):
    """On a phone, head, search, text and foot begin at the same place."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        browser.get((pages / "using.html").as_uri())
        assert len(set(lefts(browser))) == 1
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.nightly
def test_without_javascript(browser, pages):
    """W-02 for the manual: all can be read, on a phone, too, the menu works, and nothing is there that doesn't."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((pages / "for-users.html").as_uri())
        assert "ebsif list --has torch" in browser.find_element(By.TAG_NAME, "main").text
        browser.find_element(By.LINK_TEXT, "Commands").click()
        assert browser.find_element(By.TAG_NAME, "h1").text == "Commands"
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE["width"]
        assert not [one for one in browser.find_elements(By.CSS_SELECTOR, "button, input") if one.is_displayed()]
        browser.find_element(By.CSS_SELECTOR, ".menu summary").click()
        browser.find_element(By.CSS_SELECTOR, ".menu details a[href$='jupyter.html']").click()
        assert browser.find_element(By.TAG_NAME, "h1").text == "Jupyter"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.nightly
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_contrast(browser, pages, dark):
    """W-02 for the manual: every text has a contrast of 4.5 or more, in the light and in the dark."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
    )
    try:
        for name in ("index", "for-users", "performance", "easyconfigs", "reference/parameters"):
            browser.get((pages / f"{name}.html").as_uri())
            assert check_contrast(browser, dark) > 25, name
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_directory_with_other_files(tmp_path):
    """W-09: the command ends with a message and status 1, and leaves the directory alone."""
    (tmp_path / "notes.txt").write_text("mine")
    result = build(tmp_path)
    assert result.returncode == 1
    assert result.stderr == (
        f"docs: {tmp_path} contains other files, which would be lost: choose another directory with -o\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
