"""List known vulnerabilities of Python packages in installed modules: in the image, and in user software as it is now.

pip-audit, which must be installed, asks the Python package index. Without network access, name a copy of an advisory
database: the zip file that OSV publishes for the ecosystem PyPI.
The exit status is 1 if there are vulnerabilities, or if a module could not be audited.

For system and Conda packages, give the bill of materials (`ebsif lock MODULE --format sbom`) to another scanner.
"""

import json
import shlex
from pathlib import Path

from ebsif.commands.options import add_json
from ebsif.errors import FOUND, UsageError
from ebsif.installed import audit, current, names, places
from ebsif.installed.names import shown
from ebsif.report import output
from ebsif.report.findings import NOTE

EXAMPLES = """\
  ebsif audit                         # all installed modules
  ebsif audit mine                    # one module
  ebsif audit /appl/easybuild         # all modules in a prefix of EasyBuild
  ebsif audit --database all.zip      # without network access
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("modules", metavar="MODULE", nargs="*",
                        help=names.INSTALLED).completer = names.complete_installed
    parser.add_argument("--database", metavar="PATH", type=Path,
                        help="a copy of an advisory database: the file all.zip of OSV")
    parser.add_argument("--osv-url", metavar="URL",
                        help="let pip-audit ask this service, which has OSV's interface, for example a mirror")
    add_json(parser)


def run(options):
    """Print the vulnerabilities; return 1 if there are any, or if a module could not be audited, else 0."""
    if options.database and options.osv_url:
        raise UsageError("--database asks no service, so --osv-url has no effect: leave out one of them")
    records, named = {}, {}
    installations, problems = names.installations(options, options.modules)
    for one in problems:
        # what others don't let us read is nothing wrong, but may have modules
        if one.level != NOTE or places.is_gap(one):
            output.note(f"not audited: {one.path}: {one.message}")
    damages = [one.damage for one in installations if one.damage]
    for text in damages:
        output.note(f"not audited: {text}")
    for one in installations:
        if not one.damage:
            name = shown(one) if shown(one) not in records else f"{shown(one)} in {one.root}"
            records[name], named[name] = current.record_of(one), one
    pins = {audit.pin(name, version) for record in records.values()
            for name, version, _ in audit.python_packages(record)} - {None}
    unknown = []
    if options.database:
        advisories = audit.from_database(pins, options.database)
    else:
        advisories, unknown = audit.from_service(pins, options.osv_url) if pins else ({}, [])
    if pins and pins <= set(unknown):
        raise audit.AuditError("nothing was audited: the service knows none of the "
                               f"{output.format_count(len(pins), 'package')}. Name another one (--osv-url), or a "
                               "copy of an advisory database (--database)")
    found = list(audit.vulnerabilities(records, advisories))
    if unknown:
        output.note(f"the service doesn't know {output.format_count(len(unknown), 'package')}: "
                    + ", ".join(f"{name} {version}" for name, version in sorted(unknown)))
    if options.json:
        print(json.dumps([one.data for one in found], indent=2))
    else:
        print_found(found, named, pins)
    return FOUND if found or damages or any(one.level != NOTE for one in problems) else 0


def print_found(found, named, pins):
    """Print a paragraph for each module with vulnerabilities, and a summary; `named` are all installations (dict)."""
    before = None
    for one in found:
        if one.module != before:
            print(output.escape(one.module))
        before = one.module
        place = "image" if one.place == "image" else "user software"
        print(output.escape(f"  {one.package} {one.version} ({place}): {one.advisory}"))
        if one.advisory.summary:
            print(output.escape(f"    {one.advisory.summary}"))
    said = f"{output.format_count(len(named), 'module')} with {output.format_count(len(pins), 'package')}"
    affected = len({one.module for one in found})
    print(f"{said}: {output.format_count(len(found), 'finding').replace('0 findings', 'no known vulnerabilities')}"
          + (f" in {output.format_count(affected, 'module')}" if found else ""))
    for name, lines in audit.updates(found).items():
        module = name if name == shown(named[name]) else str(named[name].root)
        # that changes an extension; from another module it makes one
        more = [] if named[name].extension else ["--name", "updated"]
        output.hint("To update packages in user software: "
                    + shlex.join(["ebsif", "extend", module, "--add", *lines, *more, "--install"]))
    if any(one.place == "image" for one in found):
        output.hint("Packages in an image need a newer image: see `ebsif list`, then `ebsif upgrade` for extensions")
