"""Add an image to the catalogue of a site: look at it, write its record, render its easyconfig.

The family is the one whose images are named like it. What neither the name nor the image says for sure is marked with
'review' in the record. An image that is in the catalogue already is left alone.
"""

import os
import sys
from pathlib import Path

from ebsif import adding, catalogue, easyconfig, inspection, output, rendering, settings, site
from ebsif.document import load, validate

EXAMPLES = """\
  ebsif add /appl/images/lumi-pytorch-rocm-6.4.4-....sif --site lumi --catalogue ~/our-containers
  ebsif add julia.sif --name Julia --dry-run
"""


def configure(parser):
    """Add the arguments."""
    settings.add_arguments(parser, output=True)
    parser.add_argument("image", metavar="IMAGE", type=Path, help="a SIF file")
    parser.add_argument("--name", help="name of the software, for the first image of its kind")
    parser.add_argument("--family", help="family of the catalogue")
    parser.add_argument("--moving", action="store_true", help="take it from a directory whose links move all the same")
    parser.add_argument("--dry-run", action="store_true", help="show the record, write nothing")


def run(options):
    """Add an image; return the exit status."""
    settled = settings.read(options)
    profile = settled.site()
    directories = site.directories_of(profile.name, settled.directories)
    files = catalogue.files(*directories)
    check_place(options.image, profile, options.moving)
    file_name = options.image.resolve().name
    known = [one for one in settled.containers(profile) if one.file_name == file_name]
    if known:
        print(f"{file_name} is in the catalogue already: {known[0].module}, in {known[0].path}")
        return finish(known[0], settled, options)
    found = inspection.inspect(options.image, checksum=not options.dry_run)
    documents = {path: validate(catalogue.Document, load(path), path) for path in files}
    proposal = adding.propose(found, list(documents.values()), options.name, options.family)
    if options.moving:
        proposal.values["moving"] = True
    if options.dry_run:
        if proposal.new_family:
            print(adding.beginning(proposal), end="")
        print(proposal.text, end="")
        return 0
    own = [directory for directory in settled.directories if directory != site.SITES]
    if not own:
        raise adding.AddingError("the catalogue of the project is not to be changed where it is installed: name one of "
                                 "your own, --catalogue DIRECTORY (in a clone of the project: generator/sites)")
    path = own[0] / profile.name / "containers" / f"{proposal.name}.yaml"
    source = next((one for one in files if one.name == path.name), None)
    adding.write(proposal, path, source)
    print(f"{path}:\n{proposal.text}", end="")
    container = next((one for one in catalogue.read_file(path, profile) if one.file_name == file_name), None)
    if not container:
        raise adding.AddingError(f"{path}: no record there gives the file name {file_name}: complete the last one by "
                                 "hand ('file')")
    return finish(container, settled, options)


def finish(container, settled, options):
    """Render the easyconfig, and say how to go on; return 0."""
    if options.dry_run:
        print(easyconfig.render(container), end="")
        return 0
    (rendered,) = rendering.render([container], settled.output)
    rendering.write(rendered)
    output.hint(f"{rendered.path}: {rendered.state}")
    output.hint(f"install it with: eb {rendered.path} --sourcepath={options.image.resolve().parent}")
    return 0


def check_place(image, profile, meant):
    """Say what a link stands for; raise AddingError for one in a directory whose links move, unless that is meant."""
    moving = {Path(os.path.realpath(Path(profile.images.root or "/") / one.path)) for one in profile.images.directories
              if one.stability == "moving"}
    if Path(os.path.realpath(image.absolute().parent)) in moving and not meant:
        raise adding.AddingError(f"{image} is in a directory whose links move, so it will be another image one day: "
                                 f"add the file it is now, {image.resolve()}, from a directory that stays, or say "
                                 "--moving")
    if image.is_symlink():
        print(f"ebsif: {image} is a link: the record is for {image.resolve()}", file=sys.stderr)
