"""What this interpreter sees, as JSON: packages [[name, version, directory], ...] in sys.path order, PYTHONPATH."""
import json
import os
import sys

try:
    from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild
except ImportError:
    sys.exit("Python %d.%d is too old for this: 3.8 or newer is needed in the image" % sys.version_info[:2])

packages = []
for distribution in distributions():
    name = distribution.metadata['Name']
    if name:  # a directory left behind by a broken installation has none
        packages.append([name, distribution.version, os.path.realpath(str(distribution.locate_file('')))])
json.dump({'packages': packages, 'python_path': os.environ.get('PYTHONPATH', '')}, sys.stdout)
