"""Build the pages: every document of the project, the files they link to, and the reference."""

import dataclasses
import fnmatch
import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from ebsif import version
from ebsif.publish.pages import layout
from markupsafe import Markup

from manual import markdown, reference

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
# Marks a directory that contains only our pages, so that the next run may replace it.
MARKER = ".ebsif-manual"
# Files that are linked as they are: pictures and data. Others get a page.
COPIED = (".png", ".svg", ".json", ".txt", ".ipynb")
# A heading on a page, and all markup.
HEADING = re.compile(r'<h[1-6](?: id="([^"]*)")?>(.*?)</h[1-6]>', re.DOTALL)
TAG = re.compile(r"<[^>]*>")
# The navigation at the top of each page.
LINKS = [
    ("Install", "install.html"),
    ("Users", "for-users.html"),
    ("Administrators", "for-administrators.html"),
    ("EasyBuild developers", "for-easybuild.html"),
    ("Decision makers", "adopting.html"),
    ("Reference", "reference/commands.html"),
    ("Troubleshooting", "troubleshooting.html"),
]


class ManualError(Exception):
    """The pages can't be built; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: its address below the first page, its title, its template with values, its headings, and its document."""

    address: str
    title: str
    template: str
    values: dict[str, Any]
    headings: Sequence[markdown.Heading] = ()
    source: str = ""

    @property
    def label(self) -> str:
        """The title in the menu: the start page has the title of the project."""
        return "Overview" if self.address == "index.html" else self.title


class Manual:
    """
    The pages of the project.

    Attributes
    ----------
    files
        Paths of the files that a clone has.
    linked
        Files and folders, no documents, that documents link to.
    """

    def __init__(self):
        """Find the documents."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
        self.files = sorted(name for name in names.split("\0") if name and (CHECKOUT / name).is_file())
        self.linked = set()

    def write(self, directory: Path) -> int:
        """Write all pages into an empty directory; return their number."""
        contents = self.contents()
        copied = {path for path in self.linked if PurePosixPath(path).suffix in COPIED}
        pages = [page for _, some in contents for page in some]
        beside = {
            page.address: (before, after) for before, page, after in zip([None, *pages], pages, [*pages[1:], None])
        }
        pages += [self.listing(path) for path in sorted(self.linked - copied)]
        for path in copied:
            copy(CHECKOUT / path, directory / path)
        for name in ("manual.css", "search.js"):
            copy(HERE / "templates" / name, directory / name)
        layout.copy_static(directory)
        for page in pages:
            layout.write(
                directory,
                page.address,
                page.template,
                packages=["manual"],
                title=page.title,
                brand="ebsif",
                links=LINKS,
                contents=contents,
                page=page,
                beside=beside.get(page.address, (None, None)),
                version=version(),
                **page.values,
            )
        found = [
            section
            for _, some in contents
            for page in some
            for section in sections(page, (directory / page.address).read_text(encoding="utf-8"))
        ]
        script = f"window.sections = {json.dumps(found, indent=0)};\n"
        (directory / "search-index.js").write_text(script, encoding="utf-8")
        return len(pages)

    def contents(self) -> list[tuple[str, list[Page]]]:
        """Return the sections of the site: the title and the pages of each."""
        made = {name: self.reference_page(f"{name}.html", page) for name, page in reference.pages().items()}
        made.update((name, self.document(name)) for name in self.files if self.is_document(name))
        sections = yaml.safe_load((HERE / "contents.yaml").read_text(encoding="utf-8"))
        exact = {pattern for patterns in sections.values() for pattern in patterns}
        found = {
            title: [
                name
                for pattern in patterns
                for name in made
                if name == pattern or (name not in exact and fnmatch.fnmatch(name, pattern))
            ]
            for title, patterns in sections.items()
        }
        # documents that nobody has put into the contents come last
        found[list(found)[-1]] += sorted(set(made).difference(*found.values()))
        return [(title, [made[name] for name in names]) for title, names in found.items()]

    @staticmethod
    def is_document(name: str) -> bool:
        """Return whether a file is a document of the project: Markdown in docs, or at the top."""
        return name.endswith(".md") and (name.startswith("docs/") or "/" not in name)

    def document(self, name: str) -> Page:
        """Return the page of a document."""
        page = address_of(name)
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        made = markdown.render(text, lambda link: self.address(link, name, page))
        if not made.headings:
            raise ManualError(f"{name} has no heading, so its page has no title: begin it with a line like '# Title'")
        title, end, rest = made.html.partition("</h1>")
        values = {"heading": Markup(title + end), "html": Markup(rest)}
        return Page(page, made.title, "document.html", values, made.headings, name)

    def address(self, link: str, name: str, page: str) -> str:
        """Return the address on a page for a link in a document; notes files that it links to."""
        path, hash_, anchor = link.partition("#")
        if "://" in link or not path:
            return link
        target = os.path.normpath(os.path.join(os.path.dirname(name), path))
        if not (CHECKOUT / target).exists() or target.startswith(".."):
            raise ManualError(f"{name} links to {link}, which does not exist")
        if not self.is_document(target):
            self.linked.add(target)
        return os.path.relpath(address_of(target), PurePosixPath(page).parent) + hash_ + anchor

    def reference_page(self, address: str, content: reference.Page) -> Page:
        """Return a page of the reference."""
        headings = [markdown.Heading(2, section.title, section.anchor) for section in content.sections if section.title]
        values = {"content": content, "inline": inline, "highlight": highlight}
        return Page(address, content.title, "reference.html", values, headings)

    def listing(self, path: str) -> Page:
        """Return the page that shows a file, or the files of a folder."""
        files = [name for name in self.files if name.startswith(f"{path}/")]
        text = "" if files else (CHECKOUT / path).read_text(encoding="utf-8")
        return Page(address_of(path), path, "file.html", {"files": files, "text": text})


def copy(source: Path, target: Path):
    """Copy a file, with the directories that it needs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def sections(page: Page, text: str) -> Iterator[dict[str, str]]:
    """Yield the sections of a page, from its HTML, for the search: with the text of each."""
    main = text.partition('<main id="content" tabindex="-1">')[2].partition('<nav class="beside"')[0]
    headings = list(HEADING.finditer(main))
    for heading, end in zip(headings, [*(one.start() for one in headings[1:]), len(main)]):
        yield {
            "title": page.title,
            "heading": plain(heading[2]),
            "text": plain(main[heading.end() : end]),
            "address": f"{page.address}#{heading[1]}" if heading[1] else page.address,
        }


def plain(text: str) -> str:
    """Return the text of HTML."""
    return " ".join(html.unescape(TAG.sub(" ", text)).split())


def inline(text: str) -> Markup:
    """Return a paragraph of Markdown or of a docstring as HTML."""
    return Markup(markdown.TEXTS.renderInline(text.replace("``", "`")))


def highlight(text: str, language: str) -> Markup:
    """Return code as HTML."""
    return Markup(markdown.highlight(text, language))


def address_of(name: str) -> str:
    """Return the address of a file of the project."""
    path = PurePosixPath(name)
    if path.suffix in COPIED:
        return name
    if path.suffix != ".md":
        return f"files/{name}.html"
    path = path.relative_to("docs") if path.parts[0] == "docs" else path
    return str(path.with_name("index.html") if path.stem == "README" else path.with_suffix(".html")).lower()


def build(directory: Path) -> int:
    """
    Build all pages in a directory, which is replaced as a whole when they are complete.

    Returns
    -------
    int
        The number of pages.

    Raises
    ------
    ManualError
        If a document links to nothing or has no heading, or the directory contains other files.
    """
    directory = directory.resolve()
    is_ours = directory.is_dir() and ((directory / MARKER).is_file() or not any(directory.iterdir()))
    if directory.exists() and not is_ours:
        raise ManualError(f"{directory} contains other files, which would be lost: choose another directory with -o")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as work:
        made = Path(work) / "made"
        made.mkdir(mode=0o755)
        number = Manual().write(made)
        (made / MARKER).write_text("Made by `make docs`, which replaces this directory as a whole.\n", encoding="utf-8")
        if directory.exists():
            directory.rename(Path(work) / "earlier")
        made.rename(directory)
    return number
