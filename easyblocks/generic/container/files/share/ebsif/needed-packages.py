"""
Print the packages that requirements need, of those that this Python sees, as a Python literal.

The requirements are arguments, each a line without options. pip decides in the same way, with the same library.
"""
import sys
from importlib import import_module
from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild

# of the venv's pip; nothing else has it for certain
Requirement = import_module('pip._vendor.packaging.requirements').Requirement
canonicalize_name = import_module('pip._vendor.packaging.utils').canonicalize_name

INSTALLED = {}
for one in distributions():
    # Python imports the first one on sys.path
    INSTALLED.setdefault(canonicalize_name(one.metadata['Name'] or ''), one)

seen = set()
left = [(line, '') for line in sys.argv[1:]]
while left:
    text, extra = left.pop()
    requirement = Requirement(text)
    if requirement.marker and not requirement.marker.evaluate({'extra': extra}):
        continue
    name = canonicalize_name(requirement.name)
    for wanted in {''} | requirement.extras:
        if name in INSTALLED and (name, wanted) not in seen:
            seen.add((name, wanted))
            left += [(text, wanted) for text in INSTALLED[name].requires or []]
print(ascii(sorted({name for name, _ in seen})))
