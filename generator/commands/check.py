"""Check the catalogue of a site and its easyconfigs.

Schemas, names that are there twice, easyconfigs that are not what the catalogue says, names of files, checksums of
images that can be reached, images in directories whose links move, requirements, the style check of EasyBuild. Exit
status 1 if anything is wrong; warnings count with --strict only.
"""

import json
import sys

from ebsif import checking, settings

EXAMPLES = """\
  ebsif check --site lumi                      before a commit
  ebsif check --all-sites --format github      in a workflow, annotates the files
"""


def configure(parser):
    """Add the arguments."""
    settings.add_arguments(parser, output=True)
    parser.add_argument("--all-sites", action="store_true", help="every site")
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("--quick", action="store_true", help="without what takes EasyBuild: reading back, style")
    parser.add_argument("--format", choices=["text", "json", "github"], default="text", help="default: text")


def run(options):
    """Print what is wrong; return 1 if anything is."""
    settled = settings.read(options)
    findings, number = [], 0
    for name in settled.site_names() if options.all_sites else [None]:
        profile = settled.site(name)
        containers = settled.containers(profile)
        number += len(containers)
        findings += checking.check(containers, settled.output, profile, deep=not options.quick)
    if options.format == "json":
        print(json.dumps([finding.data for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding.github if options.format == "github" else finding)
    errors = sum(finding.level == checking.ERROR for finding in findings)
    if options.format == "text" and not options.quiet:
        print(f"{number} containers: {errors} errors, {len(findings) - errors} warnings", file=sys.stderr)
    return 1 if errors or options.strict and findings else 0
