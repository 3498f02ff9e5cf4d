"""Check whether this machine has everything that is needed to install container modules.

With IMAGE, show what the image can use of the site's high-speed network: MPI, libfabric, GPU plugin. Only a benchmark
shows how fast that is. The exit status is 1 if something is missing.

With --installed, check whether installed modules still work on this machine: image, user software and binds are as they
were at installation; the module loads, its container starts, and Python imports the recorded packages; driver, network
and site fit what is in the container. In a Slurm job on several nodes, also check whether these can
communicate. The exit status is 1 if there are errors or warnings. Notes on modules are only printed with --verbose.
"""

import json
from argparse import Namespace
from collections.abc import Sequence

from ebsif.catalogue.settings import add_settings_arguments, read_settings
from ebsif.commands.options import add_json
from ebsif.errors import FOUND, UsageError
from ebsif.installed import doctor, names, places
from ebsif.report import output
from ebsif.report.findings import ERROR, NOTE, WARNING, Finding

EXAMPLES = """\
  ebsif doctor                          # this machine
  ebsif doctor --site lumi              # also the image directories of a site
  ebsif doctor --site lumi image.sif    # what an image can use of the network
  ebsif doctor --installed --site lumi  # do the installed modules still work?
  ebsif doctor --installed /appl/easybuild --verify
  ebsif doctor --installed mine         # one module
  salloc --nodes=2 ebsif doctor --installed    # also between two nodes
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("image", metavar="IMAGE", nargs="?",
                        help="a SIF file, or the name of a container").completer = names.complete
    parser.add_argument("--installed", metavar="MODULE", nargs="*",
                        help=f"check modules: {names.INSTALLED}").completer = names.complete_installed
    parser.add_argument("--verify", action="store_true",
                        help="with --installed: also compare the SHA256 of images and user software, which takes time")
    add_settings_arguments(parser)
    add_json(parser)


def run(options: Namespace) -> int:
    """Print the findings; return 1 if something is missing, else 0."""
    if options.installed is not None:
        return check_installed(options)
    if options.verify:
        raise UsageError("--verify is for --installed")
    findings = examine_image(options) if options.image else examine_machine(options)
    if options.json:
        print(json.dumps([finding.data for finding in findings], indent=2))
        return FOUND if any(finding.level == ERROR for finding in findings) else 0
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        status = "MISSING" if finding.level == ERROR else finding.level
        print(f"{status:8} {finding.subject:{width}}  {output.escape(finding.text)}")
    return FOUND if any(finding.level == ERROR for finding in findings) else 0


def examine_machine(options: Namespace) -> list[Finding]:
    """Return the findings on the machine; if a site is chosen, also on its catalogue and images."""
    settings = read_settings(options)
    if not settings.is_chosen:
        return doctor.examine([])
    profile = settings.site()
    return [*doctor.examine(profile.scheduler.install.modules),
            *doctor.examine_site(profile, settings.containers(profile))]


def examine_image(options: Namespace) -> list[Finding]:
    """Return the findings on what an image can use of the site's network."""
    # not imported to check a machine, where a library may be missing
    from ebsif.images import inspection
    from ebsif.installed.health import hardware

    image = names.Names(options).image(options.image)
    settings = read_settings(options)
    profile = settings.site()
    return hardware.examine_image(inspection.inspect(image, checksum=False), profile, settings.containers(profile))


def check_installed(options: Namespace) -> int:
    """Check installed modules; return 1 if something is wrong, else 0."""
    if options.image:
        raise UsageError("--installed checks modules, not an image: name the modules after it")
    # imports EasyBuild
    from ebsif.installed.health import examination, nodes

    installations, findings = names.installations(options, options.installed)
    installations = places.with_module_files(installations)
    settings = read_settings(options)
    site = settings.site() if settings.is_chosen else None
    findings = [*findings, *examination.examine(installations, site, options.verify)]
    findings += nodes.examine(findings, installations)
    if options.json:
        print(json.dumps([finding.data for finding in findings], indent=2))
    else:
        print_findings(findings, installations)
    return FOUND if any(finding.level in (ERROR, WARNING) for finding in findings) else 0


def print_findings(findings: Sequence[Finding], installations: Sequence[places.Installation]) -> None:
    """Print findings by subject, and a summary; notes on modules and what is fine only with --verbose."""
    modules = {names.shown(one) for one in installations}
    printed = [one for one in findings if one.level in (ERROR, WARNING) or output.is_verbose() or
               (one.level == NOTE and one.subject not in modules)]
    for finding in printed:
        output.print_wrapped(f"{finding.level}: {finding.message}" + (f" ({finding.path})" if finding.path else ""))
    numbers = [(sum(one.level == level for one in findings), level) for level in (ERROR, WARNING)]
    told = [output.format_count(*number) for number in numbers if number[0]]
    checked = f"{output.format_count(len(installations), 'module')} checked" if installations else "no modules found"
    print(f"{checked}: {', '.join(told) or 'nothing is wrong'}")
