"""
Describe a Python in an image and its packages, as a Python literal (python3-minimal lacks the module json).

'packages' are [name, version, directory] in the order of sys.path; 'missing' are the MODULES that can't be imported.
With --packages-only, only the first of them is tried, because importing all takes a while.
"""
import os
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


def packages_on_disk():
    """Return the installed packages of a Python without importlib.metadata (before 3.8), from their files."""
    found = []
    for folder in sys.path:
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith('.egg-info') and os.path.isdir(path):
                path = os.path.join(path, 'PKG-INFO')
            elif name.endswith('.dist-info'):
                path = os.path.join(path, 'METADATA')
            elif not name.endswith('.egg-info'):
                continue
            fields = read_fields(path)
            if fields.get('Name'):
                found.append([fields['Name'], fields.get('Version') or 'unknown', os.path.realpath(folder)])
    return found


def read_fields(path):
    """Return the fields at the start of a file with metadata (dict), none if it can't be read."""
    fields = {}
    try:
        with open(path, encoding='utf-8', errors='replace') as lines:
            for line in lines:
                if not line.strip():
                    break
                name, _, value = line.partition(':')
                fields.setdefault(name, value.strip())
    except (IOError, OSError):
        pass
    return fields


def is_module(name):
    """Return whether a module can be imported; its own imports may be missing."""
    try:
        __import__(name)
    except ImportError:
        return False
    return True


tried = MODULES[:1] if sys.argv[1:] == ['--packages-only'] else MODULES
missing = [name for name in tried if not is_module(name)]
print(ascii({
    'version': '.'.join(str(number) for number in sys.version_info[:3]),
    'executable': sys.executable,
    'prefix': sys.prefix,
    'base_prefix': sys.base_prefix,
    'purelib': sysconfig.get_path('purelib'),
    'environment': {name: os.environ.get(name, '') for name in ('CONDA_PREFIX', 'VIRTUAL_ENV', 'PYTHONPATH')},
    'missing': missing,
    'packages': packages_on_disk() if 'importlib.metadata' in missing else packages(),
}))
