"""List installed container modules, and what is wrong with them.

Each module (all, or those that are named) is listed with its size on disk; its image: whose it is, and whether it is
still the one that was installed (judged by size and time; --verify compares its SHA256); its user software: packed or
not, changed or not; the modules that use its image; and, if a site is chosen, how it differs from the catalogue of the
site.

The exit status is 1 if there are errors or warnings; notes don't count.
"""

import json

from easybuild.easyblocks.generic.container.lockfile import IMAGE_REFERENCE
from easybuild.easyblocks.generic.container.texts import format_size

from ebsif.catalogue import selection
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.commands.options import add_json
from ebsif.errors import FOUND, UsageError
from ebsif.installed import names, places, report
from ebsif.installed.names import shown
from ebsif.installed.versus import Catalogue
from ebsif.report import output
from ebsif.report.findings import ERROR, NOTE, WARNING

EXAMPLES = """\
  ebsif installed                            # EasyBuild's prefix and MODULEPATH
  ebsif installed /apps/containers --site lumi --verify
  ebsif installed mine                       # one module
  ebsif installed --has 'pillow<10.3'        # which modules have this package
  ebsif installed --json | jq '.installations[].module'
"""
# after the state of user software
CHANGED = {True: ", changed", False: "", None: " (whether it was changed is unknown)"}


def configure(parser):
    """Add the arguments."""
    parser.add_argument("modules", metavar="MODULE", nargs="*",
                        help=f"{names.INSTALLED}; or several directories, separated by colons as in MODULEPATH"
                        ).completer = names.complete_installed
    add_settings_arguments(parser)
    parser.add_argument("--verify", action="store_true", help="read images and user software, and compare their SHA256")
    parser.add_argument("--has", metavar="PACKAGE", action="append", default=[],
                        help="list only modules that have this package, such as 'pillow<10.3', in the image or in user "
                             "software as it is now (repeatable: all of them)")
    add_json(parser)


def run(options):
    """Print the installations; return 1 if something is wrong, else 0."""
    if options.has and options.verify:
        raise UsageError("--has lists packages, and --verify reads images: use one of them")
    wanted = [selection.parse_requirement(text) for text in options.has]
    found, problems = names.installations(options, options.modules)
    if wanted:
        return print_matches(*report.having(found, wanted), problems, options)
    catalogue = catalogue_of(options)
    made, total = report.reports(found, options.verify, catalogue)
    missing = catalogue.never_installed(found) if catalogue and places.is_search(options.modules) else []
    findings = [*(one for each in made for one in each.findings), *problems]
    if options.json:
        print(json.dumps({"installations": [one.data for one in made], "findings": [one.data for one in findings],
                          "size": total, "never_installed": missing}, indent=2))
        return status(findings)
    modules = [one.module for one in made]
    for one in made:
        print_report(one, is_ambiguous=modules.count(one.module) > 1)
    for one in problems:
        output.print_wrapped(one)
    if missing:
        output.print_wrapped(f"{'not installed there' if options.modules else 'never installed'}: {', '.join(missing)}")
    print(f"{output.format_count(len(made), 'installation')}, {format_size(total)} in all{counted(findings)}")
    return status(findings)


def status(findings):
    """Return the exit status: 1 if there are errors or warnings, else 0."""
    return FOUND if any(one.level != NOTE for one in findings) else 0


def counted(findings):
    """Return the numbers of errors, warnings and notes as the end of a sentence (str)."""
    numbers = [(sum(one.level == level for one in findings), level) for level in (ERROR, WARNING, NOTE)]
    return "".join(f", {output.format_count(*number)}" for number in numbers if number[0])


def print_matches(matches, unknown, problems, options):
    """Print the installations with the wanted packages; return 1 if others can't be searched, else 0."""
    findings = [*unknown, *problems]
    if options.json:
        print(json.dumps({"installations": [
            {"module": shown(one.installation), "root": str(one.installation.root),
             "has": [dict(zip(("package", "place", "version"), package)) for package in one.packages]}
            for one in matches], "findings": [one.data for one in findings]}, indent=2))
        return status(findings)
    for one in matches:
        print(shown(one.installation))
        output.print_wrapped(", ".join(f"{name} {version} ({place})" for name, place, version in one.packages), "  ")
    for one in findings:
        output.print_wrapped(one)
    print(f"{output.format_count(len(matches), 'module')} with {' and '.join(options.has)}{counted(findings)}")
    return status(findings)


def print_report(one, is_ambiguous):
    """Print what is known of an installation, with its directory if another one has the same module."""
    output.print_wrapped(f"{one.module}  {one.installation.root}" if is_ambiguous else one.module)
    texts = [format_size(one.size)]
    if one.image:
        size = f", {format_size(one.image.size)}" if one.image.size else ""
        texts.append(f"{whose(one.image)} ({one.image.state}{size})")
    if one.software:
        texts.append(f"user software {one.software.state}{CHANGED[one.software.is_changed]}")
    output.print_wrapped("; ".join(texts), "  ")
    if one.users:
        output.print_wrapped(f"its image is used by {', '.join(sorted(one.users))}", "  ")
    for finding in one.findings:
        output.print_wrapped(f"{finding.level}: {finding.text}", "  ")


def whose(image):
    """Return how to call an image (str): own, central, or that of another module."""
    if image.kind == IMAGE_REFERENCE:
        return f"image of {image.origin}" if image.origin else "shared image"
    return f"{image.kind} image"


def catalogue_of(options):
    """Return the catalogue to compare with (Catalogue), None if no site is chosen."""
    settings = read_settings(options)
    if not settings.is_chosen:
        output.note("no site is chosen (--site), so nothing is compared with a catalogue")
        return None
    profile = settings.site()
    return Catalogue(profile.name, settings.containers(profile), settings.output,
                     settings.options_for(profile.name))
