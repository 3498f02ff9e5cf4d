"""Import easyconfigs that install containers with shell commands into the catalogue.

Prints a file for the catalogue, with families and records, or writes a file for each software with --output. The report
on standard error lists what the family or the easyblock does anyway, what became data, and what is left to you, with
line numbers. EasyBuild's parser executes the easyconfigs, as eb does. The exit status is 0 if everything was imported,
1 if something is left to you, 3 if one of the files is not the easyconfig of a container.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ebsif import files
from ebsif.catalogue.settings import read_settings
from ebsif.commands.options import add_output, add_settings
from ebsif.errors import FAILED, FOUND
from ebsif.migrate import cataloguefile, recipe
from ebsif.migrate.easyconfigfile import ImportingError
from ebsif.report import output

EXAMPLES = """\
  ebsif import --site lumi PyTorch-*.eb > PyTorch.yaml
  ebsif import --site lumi PyTorch-*.eb -o PyTorch.yaml
  # a file for each software
  ebsif import --site lumi -o containers *.eb 2> report.txt
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_output(parser, "write this file (.yaml), or in this directory <Name>.yaml for each software", metavar="PATH",
               overwrite=False)
    parser.add_argument("easyconfigs", metavar="FILE", nargs="+", type=Path, help="an easyconfig")


def run(options: Namespace) -> int:
    """Print or write records, and report; return the exit status."""
    settings = read_settings(options)
    profile = settings.site()
    imported, trouble = [], False
    for path in dict.fromkeys(options.easyconfigs):
        try:
            imported.append(recipe.read(path, profile))
        except ImportingError as error:
            output.error(error)
            trouble = True
    recipe.report_same_module(imported)
    made = [cataloguefile.File(*one, profile) for one in by_name(imported, settings, profile)]
    to_file = options.output and options.output.suffix == ".yaml" and not options.output.is_dir()
    if len(made) > 1 and (to_file or not options.output):
        raise ImportingError("these are easyconfigs of several names, and the catalogue has a file for each "
                                    f"({', '.join(one.name for one in made)}): name a directory, -o DIRECTORY")
    if options.output:
        write({options.output if to_file else options.output / f"{one.name}.yaml": one.text for one in made})
    for one in made:
        if not options.output:
            print(one.text, end="")
        for found in one.imported:
            report(found)
    return FAILED if trouble else FOUND if any(found.left for found in imported) else 0


def by_name(imported, settings, profile):
    """Yield each name with its easyconfigs (list of Imported) and the file of the catalogue (CatalogueFile or None)."""
    known = {document.name: document for document in settings.documents(profile)}
    for name in sorted({one.name for one in imported}):
        yield name, [one for one in imported if one.name == name], known.get(name)


def write(paths):
    """Write files (dict of texts), or none if one of them exists with other content."""
    there = [str(path) for path, text in paths.items() if path.exists() and path.read_text(encoding="utf-8") != text]
    if there:
        raise ImportingError(f"{', '.join(there)} exists, so nothing was written: choose another --output")
    for path, text in paths.items():
        files.replace(path, text, shared=True)
        print(path)


def report(found):
    """Report on standard error what was imported from an easyconfig; with --quiet only what is left to the user."""
    output.note(f"{found.path}:")
    for title, texts in (("done by family, site or easyblock", found.recognized), ("became data", found.data)):
        if texts:
            output.note(f"  {title}:")
            for text in dict.fromkeys(texts):
                output.note(f"    {text}")
    for text in found.not_understood:
        output.error(f"left to you: {text}")
