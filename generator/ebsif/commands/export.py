"""Write the environment of a module as an RO-Crate, for the repository of a paper.

The crate is a directory with the lock, the bill of materials and the easyconfig of the module. Its metadata list the
packages, the image with its digest, and the license. With the lock, `ebsif extend --from-lock` makes the same module. A
module with a credential in its record or easyconfig is refused.
"""

from argparse import ArgumentParser, Namespace

from ebsif.commands.options import add_license, add_name, add_output, names_of
from ebsif.environments import crate, portable
from ebsif.report import output

EXAMPLES = """\
  ebsif export mine -o crate --license CC0-1.0
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "what to export", only_installed=True)
    add_output(parser, "directory to write to", required=True)
    add_license(parser)


def run(options: Namespace) -> int:
    """Write the crate; return 0."""
    found = portable.of(names_of(options).installation(options.module), options.license, with_user_software=False)
    crate.write(found, options.output, options.overwrite)
    if not found.license:
        output.note("the crate states no license, but repositories ask for one: --license CC0-1.0, for example")
    print(options.output / crate.METADATA)
    output.hint(f"in {options.output}: {', '.join(sorted(found.texts))}")
    return 0
