"""Print version and place of packages: versions.py NAME..."""

import importlib
import sys

for name in sys.argv[1:]:
    module = importlib.import_module(name)
    print(name, module.__version__, module.__file__)
