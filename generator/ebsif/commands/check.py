"""Check the catalogue of a site and its easyconfigs.

Schemas, names that are there twice, easyconfigs that are not what the catalogue says, what EasyBuild and the easyblocks
refuse, names of files, images that can be reached, images in directories whose links move, requirements, guesses nobody
has looked at, the style check of EasyBuild. Exit status 1 if anything is wrong; warnings count with --strict only.
"""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

from ebsif import output
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.check.findings import ERROR, Finding, findings_of
from ebsif.check.sites import check_sites
from ebsif.errors import EbsifError

EXAMPLES = """\
  ebsif check --site lumi                      before a commit
  ebsif check --site lumi --images             are images still those of the catalogue?
  ebsif check --all-sites --format github      in a workflow, annotates the files
"""


def configure(parser):
    """Add the arguments."""
    add_settings_arguments(parser, output=True)
    parser.add_argument("--all-sites", action="store_true",
                        help="every site of the catalogues that are named, or of the project if none is")
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("--quick", action="store_true", help="without what takes EasyBuild: reading back, style")
    parser.add_argument("--images", action="store_true",
                        help="read all images that can be reached, and compare their SHA256; say which are missing")
    parser.add_argument("--format", choices=["text", "json", "github"], default="text", help="default: text")


def run(options):
    """Print what is wrong; return 1 if anything is."""
    findings, number = [], 0
    try:
        settings = read_settings(options)
        names = settings.own_site_names() if options.all_sites else [None]
        settings = with_installed_easyconfigs(settings)
        for one in check_sites(settings, names, deep=not options.quick, images=options.images):
            if isinstance(one, Finding):
                findings.append(one)
            else:
                number += 1
    except (EbsifError, OSError) as error:
        findings += findings_of(error)
    if options.format == "json":
        print(json.dumps([finding.data for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding.github if options.format == "github" else finding)
    errors = sum(finding.level == ERROR for finding in findings)
    if options.format == "text" and not options.quiet:
        counted = [output.counted(*one) for one in (
            (number, "container"), (errors, "error"), (len(findings) - errors, "warning"))]
        print("{}: {}, {}".format(*counted), file=sys.stderr)
    return 1 if errors or options.strict and findings else 0


def with_installed_easyconfigs(settings):
    """Return settings that have the easyconfigs that were installed with the project, where none are here."""
    if settings.is_place_named or settings.own_directories or settings.place.is_dir():
        return settings
    found = importlib.util.find_spec("easybuild.easyconfigs")
    places = [place for place in map(Path, (found and found.submodule_search_locations) or []) if place.is_dir()]
    if not places:
        return settings
    output.note(f"there is no directory {settings.place} here, so the easyconfigs that were installed are checked: "
                f"{places[0]}")
    return dataclasses.replace(settings, place=places[0])
