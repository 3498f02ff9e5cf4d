"""Check that this machine has everything that is needed to install container modules.

With an image, report what it can use of the site's high-speed network: MPI, libfabric, GPU plugin. This lists what is
present; only a benchmark shows how fast it is. The exit status is 1 if something is missing.
"""

import json
from pathlib import Path

from ebsif import output
from ebsif.arguments import add_json
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.errors import FOUND
from ebsif.findings import ERROR
from ebsif.installed import doctor

EXAMPLES = """\
  ebsif doctor                          # this machine
  ebsif doctor --site lumi              # also the image directories of a site
  ebsif doctor --site lumi image.sif    # what an image can use of the network
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("image", metavar="IMAGE", nargs="?", type=Path, help="a SIF file")
    add_settings_arguments(parser)
    add_json(parser)


def run(options):
    """Print the findings; return 1 if something is missing, else 0."""
    findings = examine_image(options) if options.image else [*doctor.examine(), *examine_site(options)]
    if options.json:
        print(json.dumps([finding.data for finding in findings], indent=2))
        return FOUND if any(finding.level == ERROR for finding in findings) else 0
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        status = "MISSING" if finding.level == ERROR else finding.level
        print(f"{status:8} {finding.subject:{width}}  {output.escape(finding.text)}")
    return FOUND if any(finding.level == ERROR for finding in findings) else 0


def examine_site(options):
    """Return the findings (list of Finding) on the site's catalogue and image directories, if a site is named."""
    if not (options.site or options.catalogue):
        return []
    settings = read_settings(options)
    profile = settings.site()
    return doctor.examine_site(profile, settings.containers(profile))


def examine_image(options):
    """Return the findings (list of Finding) on what an image can use of the site's network."""
    # not imported to check a machine, where a library may be missing
    from ebsif.image import inspection, network

    settings = read_settings(options)
    profile = settings.site()
    return network.examine(inspection.inspect(options.image, checksum=False), profile, settings.containers(profile))
