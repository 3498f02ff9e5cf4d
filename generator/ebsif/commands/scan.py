"""Compare the catalog with the available images, and propose records for new ones.

It looks into the image directories of the profile and of families, and asks registries for their tags. No image is
fetched. SHA256 and packages come from the files beside an image (NAME.md or NAME.sha256, NAME.json). Proposed records
are shown as a diff; --write writes them. Images that have moved, vanished or changed are reported, and so is the target
of links such as `latest`. The exit status is 1 if anything differs; with --write, if anything is left to do.
"""

import json
import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ebsif.catalog import writing
from ebsif.catalog.proposal import AddingError, Proposal
from ebsif.commands.options import add_json, add_settings, settings_of
from ebsif.errors import FOUND, EbsifError
from ebsif.report import output
from ebsif.report.findings import print_findings, status_of
from ebsif.scan import places, tags
from ebsif.scan.comparison import Comparison

EXAMPLES = """\
  ebsif scan --site lumi                                 # show what is new, moved or gone
  ebsif scan --site lumi --catalog ~/our-containers --write
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    parser.add_argument("--write", action="store_true", help="write the proposed records into the catalog")
    add_json(parser)


def run(options: Namespace) -> int:
    """Print what differs; return 1 if anything is left to do, else 0."""
    settings = settings_of(options)
    profile = settings.site()
    documents = settings.documents(profile)
    containers = settings.containers(profile, strict=True)
    comparison = Comparison(settings, profile, containers, documents)
    named = places.places_of(profile, documents)
    survey = places.survey(named, comparison.is_image)
    repositories = tags.repositories(comparison)
    if not (survey.looked_in or repositories):
        missing = ", ".join(place.template for place in named) or "the profile names none"
        raise EbsifError(
            f"there is nothing to compare with: no directory with images of {profile.name} can be read here "
            f"({missing}); name one in the profile (`images`), or add a single image with `ebsif add`"
        )
    comparison.compare(survey)
    tags.compare(comparison, repositories)
    changed = changes(comparison)
    if options.json:
        print(json.dumps(data_of(comparison), indent=2))
    else:
        for path, change in changed.items():
            output.print_diff(path, *change.texts)
        print_findings(comparison.findings)
    if options.write:
        for path, change in changed.items():
            writing.write(change.proposals, path, change.extended)
    if not options.json:
        print_next_step(comparison, options.write)
    left = changed and not options.write
    # a warning is a difference
    return FOUND if left else status_of(comparison.findings, strict=True)


@dataclass
class Change:
    """The changes of a file: new records, the files that it extends; its text before and after."""

    proposals: list[Proposal] = field(default_factory=list)
    extended: list[Path] = field(default_factory=list)
    texts: tuple[Optional[str], str] = ("", "")


def changes(comparison: Comparison) -> dict[Path, Change]:
    """Return the changes of the catalog by file; those that can't be written become findings."""
    found: dict[Path, Change] = {}
    for entry in comparison.entries:
        found.setdefault(entry.path, Change(extended=entry.extended)).proposals.append(entry.proposal)
    for path, change in list(found.items()):
        try:
            change.texts = writing.with_records(change.proposals, path, change.extended)
        except AddingError as error:
            # none of them can be written
            del found[path]
            text = "".join(proposal.text for proposal in change.proposals)
            comparison.say_unadded(AddingError(error.message, text), path=str(path))
    comparison.entries = [entry for entry in comparison.entries if entry.path in found]
    return found


def data_of(comparison: Comparison) -> dict[str, Any]:
    """Return records and findings, for JSON."""
    records = [
        {
            "module": entry.container.module,
            "file": str(entry.path),
            "image": entry.container.file_name,
            "record": entry.proposal.values,
            "review": entry.proposal.reviews,
        }
        for entry in comparison.entries
    ]
    return {"records": records, "findings": [finding.data for finding in comparison.findings]}


def print_next_step(comparison: Comparison, is_written: bool) -> None:
    """Print what is left to do, unless --quiet."""
    what = output.format_count(len(comparison.entries), "new record") if comparison.entries else ""
    words = comparison.settings.options_for(comparison.profile.name)
    if not (what or comparison.findings):
        output.hint(f"the catalog of {comparison.profile.name} has all images")
    elif what and is_written:
        steps = [["install", "--all"]] if comparison.settings.is_for_account else [["render"], ["check", "--deep"]]
        commands = " && ".join(shlex.join(["ebsif", *command, *words]) for command in steps)
        output.hint(f"written: {what}. Next: {commands}")
    elif what:
        output.hint(f"{what}; to write: {shlex.join(['ebsif', 'scan', *words, '--write'])}")
