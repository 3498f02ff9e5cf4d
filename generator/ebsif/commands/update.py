"""Compare the catalogue of a site with the images that there are, and propose records for new ones.

It looks into the image directories of the profile and of the families, reads what releases say about their images
(NAME.md or NAME.sha256 with SHA256, NAME.json with packages), and asks the registries that the profile, the families or
the sources of records name for their tags; no image is fetched. Proposed records are shown as a diff; --write writes
them. It also names images that have moved, vanished or been replaced, and what links such as `latest` stand for. What
can't be read is named, and doesn't hide the rest. The exit status is 1 if anything differs.
"""

import json
import shlex

from ebsif import output
from ebsif.arguments import add_json
from ebsif.catalogue import writing
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.errors import FOUND, EbsifError
from ebsif.findings import NOTE
from ebsif.updating import places, tags
from ebsif.updating.comparison import Comparison

EXAMPLES = """\
  ebsif update --site lumi                                 # show what is new, moved or gone
  ebsif update --site lumi --catalogue ~/our-containers --write
"""


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser)
    parser.add_argument("--write", action="store_true", help="write the proposed records into the catalogue")
    add_json(parser)


def run(options):
    """Print what differs; return 1 if anything does, else 0."""
    settings = read_settings(options)
    profile = settings.site()
    documents = settings.documents(profile)
    comparison = Comparison(settings, profile, settings.containers(profile), documents, dry_run=not options.write)
    named = places.places_of(profile, documents)
    survey = places.survey(named, comparison.is_image)
    repositories = tags.repositories(comparison)
    if not (survey.looked_in or repositories):
        missing = ", ".join(place.template for place in named) or "the profile names none"
        raise EbsifError(f"there is nothing to compare with: no directory with images of {profile.name} can be read "
                         f"here ({missing})")
    comparison.compare(survey)
    tags.compare(comparison, repositories)
    changed = list(changes(comparison.entries, options.write))
    if options.json:
        print(json.dumps(data_of(comparison), indent=2))
    else:
        for path, before, after in changed:
            output.print_diff(path, before, after)
        for finding in comparison.findings:
            if finding.level != NOTE or not options.quiet:
                print(finding)
        print_next_step(comparison, options)
    differs = comparison.entries or any(finding.level != NOTE for finding in comparison.findings)
    return FOUND if differs else 0


def changes(entries, write):
    """Yield each file with new records, its text and its new text, after writing it if `write` is set."""
    by_path = {}
    for entry in entries:
        by_path.setdefault(entry.path, []).append(entry)
    for path, some in by_path.items():
        proposals, extended = [entry.proposal for entry in some], some[0].extended
        before, after = writing.with_records(proposals, path, extended)
        if write:
            writing.write(proposals, path, extended)
        yield path, before, after


def data_of(comparison):
    """Return records and findings (dict), for JSON."""
    records = [{"module": entry.container.module, "file": str(entry.path), "image": entry.container.file_name,
                "record": entry.proposal.values, "review": entry.proposal.reviews} for entry in comparison.entries]
    return {"records": records, "findings": [finding.data for finding in comparison.findings]}


def print_next_step(comparison, options):
    """Print what is left to do, unless --quiet."""
    number = len(comparison.entries)
    words = ["--site", comparison.profile.name, *comparison.settings.catalogue_options]
    if not (number or comparison.findings):
        output.hint(f"the catalogue of {comparison.profile.name} has all images")
    elif number and options.write:
        commands = " && ".join(shlex.join(["ebsif", *command, *words]) for command in (["render"], ["check", "--deep"]))
        output.hint(f"written: {output.format_count(number, 'record')}. Next: {commands}")
    elif number:
        output.hint(f"{output.format_count(number, 'new record')}; to write: "
                    f"{shlex.join(['ebsif', 'update', *words, '--write'])}")
