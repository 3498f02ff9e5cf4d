"""
Describe a Python in an image and its packages, as a Python literal (python3-minimal lacks the module json).

'packages' are [name, version, directory] in the order of sys.path; 'missing' those of MODULES that can't be imported.
"""
import os
import re
import sys
import sysconfig

# required for venv, pip and our scripts; some Linux distributions have them in separate packages
MODULES = ('importlib.metadata', 'json', 'venv', 'ensurepip', 'pip')


def packages():
    """Return the installed packages, except directories without a name that broken installations leave behind."""
    from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild

    found = []
    for distribution in distributions():
        try:
            metadata = distribution.metadata
        except Exception:  # no METADATA (MetadataNotFound in newer Pythons), or not a text file
            metadata = None
        # Python 3.14: None
        name = metadata and metadata.get('Name')
        if name:
            found.append([name, metadata.get('Version') or 'unknown',
                          os.path.realpath(str(distribution.locate_file('')))])
    return found


def packages_before_38():
    """Return the installed packages of a Python without importlib.metadata, from the names of their files."""
    found = []
    for folder in sys.path:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            package = re.match(r'(\w[\w.]*)-(\d[^-]*)(-py[\d.]+)?\.(dist|egg)-info$', name)
            if package:
                found.append([package.group(1), package.group(2), os.path.realpath(folder)])
    return found


def is_module(name):
    """Return whether a module can be imported; its own imports may be missing (python3-minimal)."""
    try:
        __import__(name)
    except ImportError:
        return False
    return True


missing = [name for name in MODULES if not is_module(name)]
print(ascii({
    'version': '.'.join(str(number) for number in sys.version_info[:3]),
    'executable': sys.executable,
    'prefix': sys.prefix,
    'base_prefix': sys.base_prefix,
    'purelib': sysconfig.get_path('purelib'),
    'environment': {name: os.environ.get(name, '') for name in ('CONDA_PREFIX', 'VIRTUAL_ENV', 'PYTHONPATH')},
    'missing': missing,
    'packages': packages_before_38() if 'importlib.metadata' in missing else packages(),
}))
