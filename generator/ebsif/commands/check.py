"""Check the catalog of a site and its easyconfigs.

It validates the YAML, and looks for duplicate modules, easyconfigs that differ from the catalog, parameters that
EasyBuild or the easyblocks refuse, missing and replaced images, mistakes in requirements, guesses that nobody has
reviewed, and violations of EasyBuild's code style. Each finding has a file, a line and a remedy. The exit status is 1
if there are errors (with --strict, also for warnings).

Without --site, it checks all sites of your own catalog (--catalog, or in this directory). Without a catalog of
your own, it checks the site `local`, which comes with ebsif.

With --schema, print the JSON Schema of a kind of file instead, for completion and checks in an editor.
"""

import contextlib
import dataclasses
import importlib.util
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ebsif.catalog import schema
from ebsif.catalog.settings import Settings
from ebsif.catalog.yamlerrors import DocumentError
from ebsif.check.sites import check_sites
from ebsif.commands.options import add_all_sites, add_json, add_settings, add_strict, settings_of
from ebsif.errors import EbsifError
from ebsif.images import inspection
from ebsif.report import output
from ebsif.report.findings import Finding, findings_of, print_findings, print_json, status_of, summarize

EXAMPLES = """\
  ebsif check --site lumi
  ebsif check --site lumi --images             # also verify the images' SHA256
  ebsif check --site lumi --deep               # also look into the images
  ebsif check --all-sites --format github      # annotate files in a workflow
  ebsif check --schema containers > containers.json    # for files that no command of ebsif has begun
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser, easyconfigs=True)
    add_all_sites(parser, "check all sites of your own catalogs (without any: the sites that come with ebsif)")
    add_strict(parser)
    parser.add_argument("--quick", action="store_true", help="skip the checks that need EasyBuild (parameters, style)")
    parser.add_argument(
        "--images", action="store_true", help="verify the SHA256 of all accessible images, and report missing ones"
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="look into all accessible images, and compare them with their records: Python and its "
        "environment, versions, wrappers (takes a few seconds per image)",
    )
    how = parser.add_mutually_exclusive_group()
    add_json(how)
    how.add_argument(
        "--format",
        choices=["text", "github"],
        default="text",
        help="github: annotations for a workflow (default: text)",
    )
    how.add_argument(
        "--schema",
        metavar="NAME",
        choices=sorted(schema.MODELS),
        help="print the JSON Schema of a kind of file (%(choices)s)",
    )


def run(options: Namespace) -> int:
    """Print the findings; return 1 if there are errors, else 0."""
    if options.schema:
        print(schema.texts()[options.schema], end="")
        return 0
    findings, number = [], 0
    # that there is no such site is an error of the command line; what is wrong with it is a finding
    with contextlib.suppress(DocumentError, OSError):
        settings_of(options).site()
    try:
        if options.deep:
            # once, not for each image
            inspection.find_runtime()
        settings = with_catalog_here(settings_of(options))
        is_own = bool(settings.own_directories and not settings.site_name)
        names = settings.own_site_names() if options.all_sites or is_own else [None]
        settings = with_installed_easyconfigs(settings)
        for one in check_sites(settings, names, options.quick, options.images, options.deep):
            if isinstance(one, Finding):
                findings.append(one)
            else:
                number += 1
    except (EbsifError, OSError) as error:
        findings += findings_of(error)
    if options.json:
        print_json(findings)
    elif options.format == "github":
        for finding in findings:
            print(finding.github)
    else:
        print_findings(findings)
        summarize(output.format_count(number, "container"), findings, number > 0)
    return status_of(findings, options.strict)


def with_catalog_here(settings: Settings) -> Settings:
    """Return settings with the catalog in this directory, if there is one, and no site or catalog is chosen."""
    here = dataclasses.replace(settings, directories=(Path(), *settings.directories))
    if settings.is_chosen or not here.own_site_names():
        return settings
    output.note(f"checking the catalog in this directory: {', '.join(here.own_site_names())}")
    return here


def with_installed_easyconfigs(settings: Settings) -> Settings:
    """Return settings with the easyconfigs that were installed with the project if there are none here."""
    if settings.is_place_named or settings.own_directories or settings.place.is_dir():
        return settings
    found = importlib.util.find_spec("easybuild.easyconfigs")
    places = [place for place in map(Path, (found and found.submodule_search_locations) or []) if place.is_dir()]
    if not places:
        return settings
    output.note(f"there is no directory {settings.place} here; checking the installed easyconfigs in {places[0]}")
    return dataclasses.replace(settings, place=places[0])
