"""Print the JSON Schema of a file that people write, for an editor: site.yaml, containers/*.yaml, config.yaml."""

from ebsif.catalogue import schema

EXAMPLES = """\
  ebsif schema containers > containers.json    then, in the first line of a file of the catalogue:
                                               # yaml-language-server: $schema=containers.json
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("name", choices=sorted(schema.MODELS), help="which file")


def run(options):
    """Print a schema; return 0."""
    print(schema.texts()[options.name], end="")
    return 0
