"""Renders templates of Open OnDemand, as Open OnDemand does."""

import json

from support import printed

# the attributes of the form are methods, and `context` has them, too
RENDER = """\
context = OpenStruct.new(JSON.parse(ARGV[0]))
context.context = context
print ERB.new(STDIN.read, trim_mode: "-").result(context.instance_eval { binding })
"""


def render(path, **attributes):
    """Return a template with these attributes, rendered by Ruby."""
    return printed(
        ["ruby", "-rerb", "-rostruct", "-rjson", "-e", RENDER, json.dumps(attributes)], input=path.read_text()
    )
