"""Write new records into a file of the catalog."""

import re
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from ebsif.catalog import reading, schema
from ebsif.catalog.container import Container
from ebsif.catalog.proposal import AddingError, Proposal
from ebsif.catalog.site import Site
from ebsif.catalog.yamlerrors import DocumentError
from ebsif.files import locked, make_directory, replace

# before the records of a file that has none
INDENTATION = "  "


def write(
    proposals: Sequence[Proposal],
    path: Path,
    extended: Sequence[Path] = (),
    complete: Optional[Callable[[], None]] = None,
) -> None:
    """Add records to a file, whose other text stays. Raise AddingError or DocumentError; nothing is written then."""
    make_directory(path.parent)
    with locked(path.parent):
        before, text = with_records(proposals, path, extended)
        # another process may have added the image in the meantime
        if text == (before or ""):
            return
        replace(path, text, shared=True)
        try:
            if complete:
                complete()
        except BaseException:
            if before is None:
                path.unlink()
            else:
                replace(path, before)
            raise
        schema.provide(catalog_of(path), is_new=before is None)


def with_records(proposals: Sequence[Proposal], path: Path, extended: Sequence[Path]) -> tuple[Optional[str], str]:
    """Return the text of a file without (None for a new file) and with records; see `write`."""
    before = path.read_bytes().decode() if path.is_file() else None
    # all lines of a file end alike, whatever system it comes from
    line_end = "\r\n" if "\r\n" in (before or "") else "\n"
    text = before.replace("\r\n", "\n") if before is not None else None
    for proposal in proposals:
        text = with_record(text, proposal, path, extended)
    return before, (text or "").replace("\n", line_end)


def with_record(before: Optional[str], proposal: Proposal, path: Path, extended: Sequence[Path]) -> str:
    """Return a text (None for a new file) with a record at its end, unchanged if that is there already."""
    start = before
    if start is None:
        line = schema.first_line(path, "containers", catalog_of(path))
        start = line + text_without_records(proposal, bool(extended))
    if start and not start.endswith("\n"):
        start += "\n"
    # the last record may have been removed
    start = re.sub(r"(?m)^containers: *\[\]( *(?:#.*)?\n\s*)\Z", r"containers:\1", start)
    records = re.search(r"^containers: *(?:#.*)?\n((?:[ #].*\n|- .*\n|\n)*)\Z", start, re.MULTILINE)
    if not records:
        raise AddingError(f"{path} does not end with its containers, so add this record by hand", proposal.text)
    first = re.search(r"^( *)- ", records.group(1), re.MULTILINE)
    text = start + textwrap.indent(textwrap.dedent(proposal.text), first.group(1) if first else INDENTATION)
    *others, added = parse(text, path, None, extended)
    same = [other for other in others if other.path == added.path and other.values == added.values]
    return before if same and before is not None else text


def parse(text: str, path: Path, site: Optional[Site], extended: Sequence[Path]) -> list[Container]:
    """Return the containers in a file with this text, beginning with those of extended files."""
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / path.name
        new.write_text(text, encoding="utf-8")
        try:
            containers = reading.read_file(new, site, *extended)
        except DocumentError as error:
            raise DocumentError(
                *(problem._replace(path=path if problem.path == new else problem.path) for problem in error.problems)
            ) from None
    return [container.replace(path=path) if container.path == new else container for container in containers]


def catalog_of(path: Path) -> Path:
    """Return the catalog in which a file with records is: CATALOG/SITE/containers/NAME.yaml."""
    return path.parents[2]


def text_without_records(proposal: Proposal, extends: bool = False) -> str:
    """Return the text of a new file without records."""
    return f"name: {proposal.name}\n" + "extends: true\n" * extends + proposal.head + "containers:\n"
