"""Check whether this machine has everything that is needed to install container modules.

With IMAGE, show what the image can use of the site's high-speed network: MPI, libfabric, GPU plugin. Only a benchmark
shows how fast that is.

With --installed, check whether installed modules still work on this machine: image, user software and binds are as they
were at installation; the module loads, its container starts, and Python imports the recorded packages; driver, network
and site fit what is in the container. In a Slurm job on several nodes, also check whether these can
communicate. Notes on modules are only printed with --verbose.

The exit status is 1 if there are errors, with --strict also for warnings.
"""

from argparse import ArgumentParser, Namespace

from ebsif.commands.options import (
    INSTALLATIONS,
    add_json,
    add_settings,
    add_strict,
    complete,
    complete_installed,
    names_of,
    offer,
    settings_of,
)
from ebsif.errors import UsageError
from ebsif.installed import doctor, names, places
from ebsif.report import output
from ebsif.report.findings import NOTE, OK, Finding, print_findings, print_json, status_of, summarize

EXAMPLES = """\
  ebsif doctor                          # this machine
  ebsif doctor --site lumi              # also the image directories of a site
  ebsif doctor --site lumi image.sif    # what an image can use of the network
  ebsif doctor --installed --site lumi  # do the installed modules still work?
  ebsif doctor --installed /appl/easybuild --verify
  ebsif doctor --installed mine         # one module
  salloc --nodes=2 ebsif doctor --installed    # also between two nodes
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    offer(
        complete,
        parser.add_argument("image", metavar="IMAGE", nargs="?", help="a SIF file, or the name of a container"),
    )
    offer(
        complete_installed,
        parser.add_argument("--installed", metavar="CONTAINER", nargs="*", help=f"check {INSTALLATIONS}"),
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="with --installed: also compare SHA256s (of images and user software, which takes time)",
    )
    add_settings(parser)
    add_strict(parser)
    add_json(parser)


def run(options: Namespace) -> int:
    """Print the findings; return 1 if something is missing, else 0."""
    if options.installed is not None:
        return check_installed(options)
    if options.verify:
        raise UsageError("--verify is for --installed")
    findings = examine_image(options) if options.image else examine_machine(options)
    if options.json:
        print_json(findings)
    else:
        print_findings(findings)
        summarize(output.format_count(len(findings), "check"), findings)
    return status_of(findings, options.strict)


def examine_machine(options: Namespace) -> list[Finding]:
    """Return the findings on the machine; if a site is chosen, also on its catalog and images."""
    settings = settings_of(options)
    if not settings.is_chosen:
        return doctor.examine([])
    profile = settings.site()
    return [
        *doctor.examine(profile.scheduler.install.modules),
        *doctor.examine_site(profile, settings.containers(profile)),
    ]


def examine_image(options: Namespace) -> list[Finding]:
    """Return the findings on what an image can use of the site's network."""
    # not imported to check a machine, where a library may be missing
    from ebsif.images import inspection
    from ebsif.installed.health import hardware

    image = names_of(options).image(options.image)
    settings = settings_of(options)
    profile = settings.site()
    return hardware.examine_image(inspection.inspect(image, checksum=False), profile, settings.containers(profile))


def check_installed(options: Namespace) -> int:
    """Check installed modules; return 1 if something is wrong, else 0."""
    if options.image:
        raise UsageError("--installed checks modules, not an image: list the modules after it")
    # imports EasyBuild
    from ebsif.installed.health import examination, nodes

    installations, findings = names.installations(names_of(options), options.installed)
    installations = places.with_module_files(installations)
    settings = settings_of(options)
    site = settings.site() if settings.is_chosen else None
    findings = [*findings, *examination.examine(installations, site, options.verify)]
    findings += nodes.examine(findings, installations)
    if options.json:
        print_json(findings)
    else:
        modules = {names.shown(installation) for installation in installations}
        print_findings(
            finding
            for finding in findings
            if output.is_verbose()
            or not (finding.level == OK or (finding.level == NOTE and finding.subject in modules))
        )
        number = output.format_count(len(installations), "module")
        summarize(f"{number} checked" if installations else "no modules found", findings, bool(installations))
    return status_of(findings, options.strict)
