"""List installed modules and report problems.

Each module is listed with its size on disk, its image, its user software, and the modules that use its image. The
image is compared with the record by size and time, with --verify also by SHA256. If a site is chosen, modules are
compared with its catalog. The exit status is 1 if there are errors, with --strict also for warnings.

With --has, list the modules that have a package; the exit status is 1 if none has it.

With --audit, list known vulnerabilities of Python packages in the image and in user software. pip-audit, which must be
installed, asks the Python package index. The exit status is 1 if there are vulnerabilities, or if a module could not be
audited. Without network access, and for system and Conda packages, give the bill of materials (`ebsif lock MODULE
--format sbom`) to another scanner, such as osv-scanner or grype.
"""

import itertools
import json
import shlex
from argparse import ArgumentParser, Namespace
from typing import Optional

from easybuild.easyblocks.generic.container.record.lockfile import IMAGE_REFERENCE
from easybuild.easyblocks.generic.container.values import format_size

from ebsif.catalog import selection
from ebsif.commands.options import add_installations, add_json, add_settings, add_strict, names_of, settings_of
from ebsif.errors import FOUND, EbsifError, UsageError
from ebsif.installed import audit, current, names, report, search
from ebsif.installed.imagestate import ImageState
from ebsif.installed.names import shown
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.report.findings import NOTE, Finding, print_findings, status_of, summarize

EXAMPLES = """\
  ebsif installed                            # EasyBuild's prefix and MODULEPATH
  ebsif installed /apps/containers --site lumi --verify
  ebsif installed mine                       # one module
  ebsif installed --has 'pillow<10.3'        # which modules have this package
  ebsif installed --json | jq '.installations[].module'
  ebsif installed --audit                    # known vulnerabilities
"""
# after the state of user software
CHANGED = {True: ", changed", False: "", None: " (whether it was changed is unknown)"}


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_installations(parser)
    add_settings(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--verify", action="store_true", help="compare the SHA256s of images and user software")
    what.add_argument(
        "--has",
        metavar="PACKAGE",
        action="append",
        default=[],
        help="list only modules that have this package, such as 'pillow<10.3', in the image or in user "
        "software as it is now (repeatable: all of them)",
    )
    what.add_argument("--audit", action="store_true", help="list known vulnerabilities of Python packages")
    parser.add_argument(
        "--osv-url",
        metavar="URL",
        help="with --audit: let pip-audit ask this service, which has OSV's interface, for example a mirror",
    )
    add_strict(parser)
    add_json(parser)


def run(options: Namespace) -> int:
    """Print the installations; return 1 if something is wrong, else 0."""
    if options.osv_url and not options.audit:
        raise UsageError("--osv-url is for --audit")
    wanted = [selection.parse_requirement(text) for text in options.has]
    installations, problems = names.installations(names_of(options), options.modules)
    if options.audit:
        return audit_installations(installations, problems, options)
    if wanted:
        matches, unknown = report.having(installations, wanted)
        return print_matches(matches, [*unknown, *problems], options)
    catalog = catalog_of(options)
    made, total = report.reports(installations, options.verify, catalog)
    missing = catalog.never_installed(installations) if catalog and search.is_search(options.modules) else []
    findings = [*(finding for each in made for finding in each.findings), *problems]
    if options.json:
        print(
            json.dumps(
                {
                    "installations": [each.data for each in made],
                    "findings": [finding.data for finding in findings],
                    "size": total,
                    "never_installed": missing,
                },
                indent=2,
            )
        )
        return status_of(findings, options.strict)
    modules = [each.module for each in made]
    for each in made:
        print_report(each, is_ambiguous=modules.count(each.module) > 1)
    print_findings(problems)
    if missing:
        output.print_wrapped(f"{'not installed there' if options.modules else 'never installed'}: {', '.join(missing)}")
    summarize(f"{output.format_count(len(made), 'installation')}, {format_size(total)} in all", findings, bool(made))
    return status_of(findings, options.strict)


def print_matches(matches: list[report.Match], findings: list[Finding], options: Namespace) -> int:
    """Print the installations with the wanted packages; return 1 if there are none, or others can't be searched."""
    if options.json:
        print(
            json.dumps(
                {
                    "installations": [
                        {
                            "module": shown(one.installation),
                            "root": str(one.installation.root),
                            "has": [dict(zip(("package", "place", "version"), package)) for package in one.packages],
                        }
                        for one in matches
                    ],
                    "findings": [finding.data for finding in findings],
                },
                indent=2,
            )
        )
    else:
        for one in matches:
            output.result(shown(one.installation))
            output.print_wrapped(
                ", ".join(f"{name} {version} ({place})" for name, place, version in one.packages), "  "
            )
        print_findings(findings)
        summarize(f"{output.format_count(len(matches), 'module')} with {' and '.join(options.has)}", findings, False)
    return status_of(findings, options.strict) if matches else FOUND


def audit_installations(installations: list[Installation], problems: list[Finding], options: Namespace) -> int:
    """Print known vulnerabilities; return 1 if there are any, or if a module could not be audited, else 0."""
    records, named = {}, {}
    # private directories of other accounts are not a problem, but may have modules
    missed = [
        f"{problem.path}: {problem.message}" for problem in problems if problem.level != NOTE or search.is_gap(problem)
    ]
    damages = [installation.damage for installation in installations if installation.damage]
    for text in missed + damages:
        output.note(f"not audited: {text}")
    for installation in installations:
        if not installation.damage:
            name = shown(installation)
            name = f"{name} in {installation.root}" if name in records else name
            records[name], named[name] = current.record_of(installation), installation
    pins = {
        pin
        for record in records.values()
        for name, version, _ in audit.python_packages(record)
        if (pin := audit.pin(name, version))
    }
    vulnerabilities = list(audit.vulnerabilities(records, advisories_for(pins, options.osv_url)))
    if options.json:
        print(json.dumps([vulnerability.data for vulnerability in vulnerabilities], indent=2))
    else:
        print_vulnerabilities(vulnerabilities)
        audited = f"{output.format_count(len(named), 'module')} with {output.format_count(len(pins), 'package')}"
        affected = output.format_count(len({vulnerability.module for vulnerability in vulnerabilities}), "module")
        output.hint(
            f"{audited}: "
            + (
                f"{output.format_count(len(vulnerabilities), 'finding')} in {affected}"
                if vulnerabilities
                else "no known vulnerabilities"
            )
        )
        print_updates(vulnerabilities, named)
    return FOUND if vulnerabilities or damages or any(problem.level != NOTE for problem in problems) else 0


def advisories_for(pins: set[audit.Pin], url: Optional[str]) -> dict[audit.Pin, list[audit.Advisory]]:
    """Return the advisories for packages, from pip-audit's service or the one at a URL."""
    advisories, unknown = audit.from_service(pins, url) if pins else ({}, [])
    if pins and pins <= set(unknown):
        raise EbsifError(
            f"no answer for any of the {output.format_count(len(pins), 'package')} (is the network "
            "reachable?): choose another service with --osv-url. " + audit.WITHOUT_NETWORK
        )
    if unknown:
        output.note(
            f"no answer from the service for {output.format_count(len(unknown), 'package')}: "
            + ", ".join(f"{name} {version}" for name, version in sorted(unknown))
        )
    return advisories


def print_vulnerabilities(vulnerabilities: list[audit.Vulnerability]) -> None:
    """Print a paragraph for each module with vulnerabilities."""
    for module, listed in itertools.groupby(vulnerabilities, lambda vulnerability: vulnerability.module):
        print(output.escape(module))
        for one in listed:
            place = "image" if one.place == "image" else "user software"
            output.print_line(f"{one.package} {one.version} ({place}): {one.advisory}", "  ")
            if one.advisory.summary:
                output.print_line(one.advisory.summary, "    ")


def print_updates(vulnerabilities: list[audit.Vulnerability], named: dict[str, Installation]) -> None:
    """Say how to update the packages of installations."""
    for name, lines in audit.updates(vulnerabilities).items():
        module = name if name == shown(named[name]) else str(named[name].root)
        # that changes an extension; from another module it makes one
        more = [] if named[name].extension else ["--name", "updated"]
        output.hint(
            "To update packages in user software: " + shlex.join(["ebsif", "extend", module, "--add", *lines, *more])
        )
    if any(one.place == "image" for one in vulnerabilities):
        output.hint("Packages in an image need a newer image: see `ebsif list`, then `ebsif upgrade` for extensions")


def print_report(one: report.Report, is_ambiguous: bool) -> None:
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
    print_findings(one.findings, heading=one.module)


def whose(image: ImageState) -> str:
    """Return how to call an image (str): own, central, or that of another module."""
    if image.kind == IMAGE_REFERENCE:
        return f"image of {image.origin}" if image.origin else "shared image"
    return f"{image.kind} image"


def catalog_of(options: Namespace) -> Optional[report.Catalog]:
    """Return the catalog to compare with (Catalog), None if no site is chosen."""
    settings = settings_of(options)
    if not settings.is_chosen:
        output.note("not compared with a catalog (use --site)")
        return None
    profile = settings.site()
    return report.Catalog(
        profile.name, settings.containers(profile), settings.output, settings.options_for(profile.name)
    )
