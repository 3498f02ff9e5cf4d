"""The project's own pages, which `make docs` builds: they are complete, follow the code, and no link is dead."""

import ast
import html
import html.parser
import re
import sys
from urllib.parse import unquote, urlsplit

import pytest
from easybuild.easyblocks.generic.container.stages import PipStage
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from easybuild.framework.easyconfig.default import DEFAULT_CONFIG
from ebsif import cli
from ebsif.catalog import schema
from support import CHECKOUT, CONTAINER_FILES, tracked

sys.path.insert(0, str(CHECKOUT / "docs"))

from manual import build, markdown, reference, session


class Links(html.parser.HTMLParser):
    """The links of a page, what it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes["id"]} if "id" in attributes else set()
        if attributes.get("href"):
            (self.links if tag == "a" else self.loaded).append(attributes["href"])
        if attributes.get("src"):
            self.loaded.append(attributes["src"])


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder of the pages."""
    folder = tmp_path_factory.mktemp("manual") / "pages"
    build.build(folder)
    return folder


def documents():
    """The documents of the project."""
    return [path for path in tracked("*.md") if build.Manual.is_document(str(path.relative_to(CHECKOUT)))]


def check_external(link, page):
    """Check that an external link has the form of one."""
    parts = urlsplit(link)
    if parts.hostname == "localhost":
        return
    assert parts.scheme == "https", (page, link)
    assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?", parts.netloc), (page, link)
    assert not re.search(r"[\s<>\"]", link), (page, link)


def test_every_link_of_the_documents_leads_somewhere():
    """W-09: where people read the documents as they are: no link to a missing file or heading."""
    made = {path: markdown.render(path.read_text()) for path in documents()}
    anchors = {path: {heading.anchor for heading in document.headings} for path, document in made.items()}
    number = 0
    for path, document in made.items():
        for link in document.links:
            number += 1
            if "://" in link:
                check_external(link, path)
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), (path, link)
            assert not anchor or anchor in anchors[target], (path, link)
    assert number > 100


def test_every_link_of_the_pages_leads_somewhere(pages):
    """W-09: no dead link, missing anchor or file, and nothing that is loaded from elsewhere."""
    found = {path: Links(path.read_text(encoding="utf-8")) for path in pages.rglob("*.html")}
    number = 0
    for page, content in found.items():
        assert not [link for link in content.loaded if "://" in link], page
        for link in content.links + content.loaded:
            number += 1
            if "://" in link:
                check_external(link, page)
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (page.parent / file.split("?")[0]).resolve() if file else page
            assert target.is_file(), (page, link)
            assert not anchor or anchor in found[target].anchors, (page, link)
    assert number > 1000


def test_every_document_is_a_page_of_one_section(pages):
    """The menu of each page has each document once, the reference, and marks the page itself."""
    contents = build.Manual().contents()
    listed = [page.source for _, some in contents for page in some if page.source]
    assert sorted(listed) == sorted(str(path.relative_to(CHECKOUT)) for path in documents())
    assert {page.address for _, some in contents for page in some} >= {f"{name}.html" for name in reference.pages()}
    for _, some in contents:
        for page in some:
            text = (pages / page.address).read_text(encoding="utf-8")
            assert text.count("aria-current=") >= 1, page.address
            # after the text, the pages before and after it
            assert "<h1" in text.partition('<nav class="parts"')[0].partition("<main")[2], page.address
            assert text.partition('<nav class="beside"')[2].partition("</nav>")[0].count("<a href=") >= 1, page.address
    assert (pages / "docs/bench.json").read_bytes() == (CHECKOUT / "docs/bench.json").read_bytes()
    assert not list(pages.rglob("*.json.html"))


def test_links_to_nothing_stop_the_build(monkeypatch, tmp_path):
    """W-09: a document with a dead link is not published; the message names both."""
    real = build.Manual.address

    def address(self, link, name, page):
        return real(self, link.replace("docs/using.md", "docs/missing.md"), name, page)

    monkeypatch.setattr(build.Manual, "address", address)
    with pytest.raises(build.ManualError, match=re.escape("README.md links to docs/missing.md, which does not exist")):
        build.build(tmp_path / "pages")
    assert list(tmp_path.iterdir()) == []


def said_in(path):
    """Return the texts in a file of Python, without docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in documentation)
    return "\n".join(node.value for node in texts if isinstance(node.value, str))


def test_texts_repeat_the_noun():
    """In documents, help, reference and messages, no "that of" hides a noun, and no program "knows"."""
    texts = {path: path.read_text() for path in documents()}
    texts.update({name: reference.subparser(name).format_help() for name in cli.COMMANDS})
    for address, page in reference.pages().items():
        entries = [entry for section in page.sections for entry in section.entries]
        texts.update({(address, entry.name): entry.text for entry in entries})
    programs = [path for path in CONTAINER_FILES.glob("*/*") if path.parent.name in ("bin", "runscripts")]
    texts.update({path: path.read_text().partition("\n\n")[0] for path in programs if path.is_file()})
    code = [path for folder in ("generator", "easyblocks") for path in (CHECKOUT / folder).rglob("*.py")]
    texts.update({path: said_in(path) for path in code})
    for place, text in texts.items():
        assert re.findall(r"\b(?:that|those|the\s+one)\s+(?:of|who)\b|\bknows\b|\btakes?\s+away\b", text) == [], place


def names_on(address):
    """The names that a page of the reference describes, by section."""
    sections = reference.pages()[address].sections
    return {section.anchor: {entry.name for entry in section.entries} for section in sections}


def test_the_reference_has_everything(pages):
    """W-03: each parameter, field, command and option is there, with its text; each command with its examples."""
    described = names_on("reference/parameters")
    assert described["containerinstall"] | described["containervenv"] | {"requirements"} >= {
        name for name, (_, _, kind) in ContainerVenv.extra_options().items() if "easyblock" in str(kind)
    }
    assert described["stages"] == set(PipStage.PROPERTIES)
    assert names_on("reference/commands")[""] == {f"ebsif {name}" for name in cli.COMMANDS}
    for name in cli.COMMANDS:
        texts = names_on(f"reference/commands/{name}")["options"]
        options = re.findall(r"^  (?:-\w\b.*, )?(--[\w-]+)", reference.subparser(name).format_help(), re.MULTILINE)
        assert set(options) - {"--help"} == {text.split()[0] for text in re.findall("--.*", "\n".join(texts))}, name
    for name, model in schema.MODELS.items():
        address = {"containers": "reference/records"}.get(name, f"reference/{name}")
        assert names_on(address)[model.__name__.lower()] == set(schema.schema(model)["properties"])
    for page in reference.pages().values():
        for section in page.sections:
            assert section.text or section.usage or section.examples or section.entries, section.title
            assert [entry.name for entry in section.entries if not entry.text] == [], section.title
    text = html.unescape(re.sub("<[^>]*>", "", (pages / "reference/commands/extend.html").read_text(encoding="utf-8")))
    assert re.search(r"ebsif extend .*\[OPTION\.\.\.\]", text)
    assert "ebsif extend PyTorch" in text
    assert "--requirements FILE" in text


@pytest.mark.parametrize(
    ("pages", "minutes"),
    [
        ("for-users using jupyter running editors caches variables", 25),
        ("for-administrators new-site catalog inventory importing registries easyconfigs", 45),
        ("for-easybuild easyconfigs architecture developing upstream", 25),
    ],
)
def test_what_somebody_reads_first_is_short(pages, minutes):
    """README and pages for each group of readers are read in time, at 200 words a minute, without blocks of code."""
    texts = [(CHECKOUT / path).read_text() for path in ("README.md", *(f"docs/{name}.md" for name in pages.split()))]
    words = [len(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split()) for text in texts]
    assert sum(words) <= 200 * minutes


def test_easyconfigs_in_the_documents_have_known_parameters():
    """W-03: the pages on easyconfigs use only parameters of the easyblocks and EasyBuild, and properties of a stage."""
    known = {*DEFAULT_CONFIG, *ContainerVenv.extra_options(), "easyblock"}
    for name in ("easyconfigs", "registries"):
        text = (CHECKOUT / f"docs/{name}.md").read_text()
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            assert set(re.findall(r"^(\w+) = ", block, re.MULTILINE)) <= known
    text = (CHECKOUT / "docs/easyconfigs.md").read_text()
    stages = text.partition("## User software")[2].partition("### Credentials")[0]
    assert set(PipStage.PROPERTIES) - {"name", "requirements"} <= set(re.findall(r"`(\w+)`", stages))
    assert set(re.findall(r"^        '(\w+)': ", stages, re.MULTILINE)) <= set(PipStage.PROPERTIES)


def test_the_picture_of_the_terminal_shows_the_commands_of_the_readme():
    """The recorded session is that of the README: `scripts/record-session` draws it again."""
    picture = session.PICTURE.read_text(encoding="utf-8")
    text = " ".join(html.unescape(re.sub("<[^>]*>", " ", picture)).split())
    assert len(session.commands()) == 4
    for command in session.commands():
        assert f"$ {command}" in text
    assert "wrote job.sh" in text
    assert f"<title>{session.TITLE}</title>" in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
