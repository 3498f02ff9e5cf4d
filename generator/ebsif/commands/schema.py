"""Print the JSON Schema of site.yaml, containers/*.yaml or config.yaml, for completion and checks in an editor."""

from ebsif.catalogue import schema

EXAMPLES = """\
  ebsif schema containers > containers.json
  # then make this the first line of a file in the catalogue:
  #   # yaml-language-server: $schema=containers.json
"""


def configure(parser):
    """Add the arguments."""
    parser.add_argument("name", choices=sorted(schema.MODELS), help="kind of file")


def run(options):
    """Print a schema; return 0."""
    print(schema.texts()[options.name], end="")
    return 0
