"""Check that this machine has what installing a container module needs. Exit status 1 if something is missing.

With an image: what of the network of the site it can use. It is told what is there; how fast it is, only a measurement
tells.
"""

from pathlib import Path

from ebsif import output
from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.installed import doctor

EXAMPLES = """\
  ebsif doctor                          is everything here that installing a container module needs?
  ebsif doctor --site lumi              and the catalogue of a site: are its directories of images here?
  ebsif doctor --site lumi image.sif    fabric provider, MPI and plugin of an image
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("image", metavar="IMAGE", nargs="?", type=Path, help="a SIF file")
    add_settings_arguments(parser)


def run(options):
    """Print what was found; return 1 if something is missing, else 0."""
    findings = examine_image(options) if options.image else [*doctor.examine(), *examine_site(options)]
    width = max(len(finding.part) for finding in findings)
    for finding in findings:
        status = "note" if finding.note else "ok" if finding.ok else "MISSING"
        print(f"{status:8} {finding.part:{width}}  {output.plain(finding.text)}")
    return 0 if all(finding.ok for finding in findings) else 1


def examine_site(options):
    """Return a Finding for each thing of the site that is named: what its catalogue has, and where its images are."""
    if not (options.site or options.catalogue):
        return []
    settings = read_settings(options)
    profile = settings.site()
    return doctor.examine_site(profile, settings.containers(profile))


def examine_image(options):
    """Return a Finding for each thing an image needs for the network of a site."""
    # not needed to check a machine, on which something may be missing
    from ebsif.image import inspection, network

    settings = read_settings(options)
    profile = settings.site()
    return network.examine(inspection.inspect(options.image, checksum=False), profile, settings.containers(profile))
