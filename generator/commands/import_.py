"""Import easyconfigs of the style in use today: print the records they become, and report what became of every part.

The report says what the family and the easyblock do anyway, what became data, and what was not understood and needs a
person. Nothing is dropped in silence: exit status 1 if anything was not understood.
"""

import sys
from pathlib import Path

from ebsif import adding, catalogue, importing, settings, site
from ebsif.document import load, validate

EXAMPLES = """\
  ebsif import --site lumi PyTorch-2.7.0-rocm-....eb         record on standard output, report on standard error
  ebsif import --site lumi *.eb > records.yaml 2> report.txt
"""


def configure(parser):
    """Add the arguments."""
    settings.add_arguments(parser)
    parser.add_argument("easyconfigs", metavar="FILE", nargs="+", type=Path, help="an easyconfig")


def run(options):
    """Print records and report; return 1 if anything was not understood, else 0."""
    settled = settings.read(options)
    profile = settled.site()
    files = catalogue.files(*site.directories_of(profile.name, settled.directories))
    documents = [validate(catalogue.Document, load(path), path) for path in files]
    understood = True
    for path in options.easyconfigs:
        found = importing.read(path, documents, profile)
        print(f"# {path.name}")
        if found.proposal.new_family:
            print(adding.beginning(found.proposal), end="")
        print(found.proposal.text, end="")
        report(found)
        understood = understood and not found.not_understood
    return 0 if understood else 1


def report(found):
    """Tell what became of an easyconfig, on standard error."""
    print(f"{found.path.name}:", file=sys.stderr)
    for title, texts in (("done by family, site or easyblock", found.recognised), ("became data", found.data),
                         ("NOT UNDERSTOOD, needs a person", found.not_understood)):
        if texts:
            print(f"  {title}:", file=sys.stderr)
            for text in dict.fromkeys(texts):
                print(f"    {text}", file=sys.stderr)
