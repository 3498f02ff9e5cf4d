"""
Describe a Python in an image and its packages, as a Python literal (python3-minimal lacks the module json).

'packages' are [name, version, directory] in the order of sys.path; 'missing' those of MODULES that can't be imported.
'compiled' are the names of packages with compiled parts, and 'needs' what packages require of others that are there:
[package, required package, versions, whether its version is one of them, whether those that it hides are, too]. Of
several of a name, the first counts.
"""
import importlib
import os
import re
import sys
import sysconfig

# required for venv, pip and our scripts; some Linux distributions have them in separate packages
MODULES = ('importlib.metadata', 'json', 'venv', 'ensurepip', 'pip')


def distributions_there():
    """
    Return name, metadata and distribution of the installed packages.

    Directories without a name, which broken installations leave behind, don't count.
    """
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
            found.append((name, metadata, distribution))
    return found


def normal_name(name):
    """Return the normalized name of a package (PEP 503)."""
    # as in values.py: this is all that a Python in the container gets, which may have no pip
    return re.sub('[-_.]+', '-', name).lower()


def is_compiled(distribution):
    """Return whether a package has shared objects; of one that doesn't list its files, those in its modules count."""
    listed = distribution.read_text('RECORD')
    if listed:
        return bool(re.search(r'\.so[.\d]*"?,', listed))
    modules = (distribution.read_text('top_level.txt') or '').split()
    for module in modules:
        place = str(distribution.locate_file(module))
        folder = os.path.dirname(place)
        files = [name for name in os.listdir(folder) if name.startswith(module + '.')] if os.path.isdir(folder) else []
        if any(name.endswith('.so') for _, _, names in os.walk(place) for name in names) or \
                any(name.endswith('.so') for name in files):
            return True
    # of what says nothing of itself, nobody knows
    return not modules


def relations(there):
    """Return which packages are compiled, and what packages require of each other (nothing without pip)."""
    first, versions = {}, {}
    for name, metadata, distribution in there:
        first.setdefault(normal_name(name), (name, metadata, distribution))
        versions.setdefault(normal_name(name), []).append(metadata.get('Version') or 'unknown')
    compiled = sorted(name for name in first if is_compiled(first[name][2]))
    try:
        requirements = importlib.import_module('pip._vendor.packaging.requirements')
    except ImportError:
        return compiled, []
    needs = []
    for name, metadata, distribution in first.values():
        for line in metadata.get_all('Requires-Dist') or distribution.requires or []:
            on = normal_name(re.match(r'[\w.-]*', line).group())
            # packages of Linux distributions may have any text there
            try:
                wanted = requirements.Requirement(line) if on in first else None
                if wanted and (not wanted.marker or wanted.marker.evaluate({'extra': ''})):
                    fits = [wanted.specifier.contains(found, prereleases=True) for found in versions[on]]
                    needs.append([name, on, str(wanted.specifier), fits[0], all(fits[1:])])
            except ValueError:
                continue
    return compiled, needs


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


def description():
    """Return the description."""
    missing = [name for name in MODULES if not is_module(name)]
    is_old = 'importlib.metadata' in missing
    there = [] if is_old else distributions_there()
    compiled, needs = relations(there)
    return {
        'version': '.'.join(str(number) for number in sys.version_info[:3]),
        'executable': sys.executable,
        'prefix': sys.prefix,
        'base_prefix': sys.base_prefix,
        'purelib': sysconfig.get_path('purelib'),
        'environment': {name: os.environ.get(name, '') for name in ('CONDA_PREFIX', 'VIRTUAL_ENV', 'PYTHONPATH')},
        'missing': missing,
        'packages': packages_before_38() if is_old else [
            [name, metadata.get('Version') or 'unknown', os.path.realpath(str(distribution.locate_file('')))]
            for name, metadata, distribution in there],
        'compiled': compiled,
        'needs': needs,
    }


if __name__ == '__main__':
    print(ascii(description()))
