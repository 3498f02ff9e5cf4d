"""Import hand-written easyconfigs of containers into the catalog.

Prints a file for the catalog, with a family and records, or writes a file for each software with --output. The report
on standard error lists what the easyblock does anyway, what became data, which scripts ours replace, comments, and what
is left to you, with line numbers. EasyBuild's parser executes the easyconfigs, as eb does. The exit status is 0 if
everything was imported, 1 if something is left to you, 3 if one of the files is not the easyconfig of a container.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ebsif import files
from ebsif.commands.options import add_output, add_settings, settings_of
from ebsif.errors import FAILED, FOUND
from ebsif.migrate import catalogfile, recipe
from ebsif.migrate.easyconfigfile import ImportingError
from ebsif.migrate.imported import Imported
from ebsif.report import output

EXAMPLES = """\
  ebsif import --site lumi PyTorch-*.eb > PyTorch.yaml
  # a file for each software
  ebsif import --site lumi -o containers *.eb 2> report.txt
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser)
    add_output(parser, "write this file (.yaml), or in this directory <Name>.yaml for each software", metavar="PATH")
    parser.add_argument("easyconfigs", metavar="FILE", nargs="+", type=Path, help="an easyconfig")


def run(options: Namespace) -> int:
    """Print or write records, and report; return the exit status."""
    profile = settings_of(options).site()
    imported, failed = [], False
    for path in dict.fromkeys(options.easyconfigs):
        try:
            imported.append(recipe.read(path, profile))
        except ImportingError as error:
            output.error(error)
            failed = True
    names = sorted({result.name for result in imported})
    made = [catalogfile.File(name, [result for result in imported if result.name == name], profile) for name in names]
    to_file = options.output and options.output.suffix in (".yaml", ".yml") and not options.output.is_dir()
    if len(made) > 1 and (to_file or not options.output):
        raise ImportingError(
            "these are easyconfigs of several names, and the catalog has a file for each "
            f"({', '.join(names)}): choose a directory, -o DIRECTORY"
        )
    if options.output:
        texts = {options.output if to_file else options.output / f"{file.name}.yaml": file.text for file in made}
        files.write_new(texts, options.overwrite, shared=True)
        for path in texts:
            print(path)
    for file in made:
        if not options.output:
            print(file.text, end="")
        for result in file.imported:
            report(result)
    return FAILED if failed else FOUND if any(result.left for result in imported) else 0


def report(result: Imported) -> None:
    """Report on standard error what was imported from an easyconfig; with --quiet only what is left to the user."""
    output.note(f"{result.path}:")
    replaced, comments = (
        [f"{line}: {text}" for line, text in sorted(some)] for some in (result.replaced, result.comments)
    )
    for title, texts in (
        ("done by site or easyblock", result.recognized),
        ("became data", result.data),
        ("replaced by our scripts, by line; look whether yours do more", replaced),
        ("comments, by line; the record has the first ones", comments),
    ):
        if texts:
            output.note(f"  {title}:")
            for text in dict.fromkeys(texts):
                output.note(f"    {text}")
    for text in result.messages:
        output.error(f"left to you: {text}")
