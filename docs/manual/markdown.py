"""Markdown as HTML, with the anchors that GitHub gives to headings."""

import dataclasses
import re
from collections.abc import Callable, Iterator

import pygments
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound


def highlight(text: str, language: str, _: str = "") -> str:
    """Return code as HTML with a class for each kind of word; empty if the language has no such kinds."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return ""
    return pygments.highlight(text, lexer, HtmlFormatter(nowrap=True))


PARSER = MarkdownIt("commonmark", {"html": True, "highlight": highlight}).enable("table")
# texts from the code, in which <name> is no HTML
TEXTS = MarkdownIt("commonmark", {"html": False})
# Code in a line of text up to this length stays on one line: browsers would break it after a hyphen.
SHORT = 28


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading: its level (1 to 6), its text without markup, and its anchor."""

    level: int
    text: str
    anchor: str


@dataclasses.dataclass(frozen=True)
class Document:
    """A document as HTML, with its headings and the targets of its links and pictures as they are written."""

    html: str
    headings: list[Heading]
    links: list[str]

    @property
    def title(self) -> str:
        """The first heading."""
        return self.headings[0].text


def render(text: str, address: Callable[[str], str] = str) -> Document:
    """
    Render a document.

    Parameters
    ----------
    text
        The Markdown.
    address
        Returns the address on the page for the target of a link or picture in the document.
    """
    tokens = PARSER.parse(text)
    headings = list(with_anchors(tokens))
    links = []
    for token in inside(tokens):
        name = {"link_open": "href", "image": "src"}.get(token.type)
        if name:
            links.append(token.attrs[name])
            token.attrs[name] = address(token.attrs[name])
        if token.type == "html_block" and token.content.startswith("<!--"):
            token.content = ""
        if token.type == "code_inline" and len(token.content) <= SHORT:
            token.attrs["class"] = "short"
    html = PARSER.renderer.render(tokens, PARSER.options, {})
    # What is wider than a phone scrolls on its own, also by keyboard. Lines of diagrams, which are in no language, stay
    # whole.
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    return Document(html.replace("<pre><code>", '<pre class="plain"><code tabindex="0">'), headings, links)


def inside(tokens: list[Token]) -> Iterator[Token]:
    """Yield all tokens, those within lines included."""
    for token in tokens:
        yield token
        yield from token.children or ()


def with_anchors(tokens: list[Token]) -> Iterator[Heading]:
    """Give each heading its anchor; yield the headings."""
    used = {}
    for opening, content in zip(tokens, tokens[1:]):
        if opening.type == "heading_open":
            text = "".join(one.content for one in content.children if one.type in ("text", "code_inline"))
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = used[anchor] = used.get(anchor, -1) + 1
            anchor += f"-{number}" if number else ""
            opening.attrs["id"] = anchor
            yield Heading(int(opening.tag[1]), text, anchor)
