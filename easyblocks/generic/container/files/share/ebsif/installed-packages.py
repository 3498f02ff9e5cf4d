"""
Run in an image: what this interpreter is and sees, as a Python literal (python3-minimal has no module json).

'packages' are [name, version, directory] in the order of sys.path, 'missing' those of MODULES that can't be imported.
"""
import os
import sys
import sysconfig

# what a venv, pip and the work on both need; distributions have some of them in packages of their own
MODULES = ('importlib.metadata', 'json', 'venv', 'ensurepip', 'pip')


def packages():
    """Return what is installed, as far as it says its name: a broken installation leaves directories behind."""
    from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild

    found = []
    for distribution in distributions():
        try:
            metadata = distribution.metadata
        except Exception:  # without METADATA: MetadataNotFound of newer Pythons; or a file that is no text
            metadata = None
        # Python 3.14: None
        name = metadata and metadata.get('Name')
        if name:
            found.append([name, metadata.get('Version') or 'unknown',
                          os.path.realpath(str(distribution.locate_file('')))])
    return found


def is_module(name):
    """Tell whether a module works; it may be there, and what it imports is not."""
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
    'packages': [] if 'importlib.metadata' in missing else packages(),
}))
