"""
Run in the container by list-packages: list packages with their versions, and where they are.

With options, and for a Python that can't tell where packages are, run `pip list`.
"""
import importlib.util
import os
import re
import runpy
import signal
import sys

USER_SOFTWARE = '/user-software'


def run_pip():
    """Run `pip list` with the options of this program; end with a message if there is no pip."""
    if importlib.util.find_spec('pip'):
        sys.argv = ['pip', 'list'] + sys.argv[1:]
        runpy.run_module('pip', run_name='__main__', alter_sys=True)
    elif sys.argv[1:]:
        sys.exit("list-packages: the Python of this container has no pip, so its options can't be used: leave out %s"
                 % ' '.join(sys.argv[1:]))
    else:
        sys.exit("list-packages: the Python of this container can't list its packages: it has no pip, and is older "
                 "than 3.8 or incomplete")


def normal_name(name):
    """Return the normalized name of a package (PEP 503)."""
    # as in values.py: this is all that a Python in the container gets, which may have no pip
    return re.sub('[-_.]+', '-', name).lower()


def place_of(distribution):
    """Return where a package is, in words."""
    folder = str(distribution.locate_file(''))
    environment = os.environ.get('VIRTUAL_ENV', '')
    # as make-venv creates it; an image may be a virtual environment itself
    if not os.path.isdir(os.path.join(environment, 'host-bin')):
        environment = ''
    for start, words in ((USER_SOFTWARE, 'user software'), (environment, 'environment')):
        if start and (folder + '/').startswith(start + '/'):
            return words
    return 'image'


def packages(distributions):
    """Return name, version and place of packages; of several with a name, those that Python imports."""
    found = {}
    for distribution in distributions():
        try:
            metadata = distribution.metadata
        except Exception:  # without METADATA, from Python 3.14 on; or a file that is no text
            metadata = None
        if metadata and metadata.get('Name'):
            name = metadata['Name']
            found.setdefault(normal_name(name), (name, metadata.get('Version') or 'unknown', place_of(distribution)))
    return [found[name] for name in sorted(found)]


def print_table(rows):
    """Print rows in columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows[:1] + [['-' * width for width in widths]] + rows[1:]:
        print(' '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


# the reader may be head, which closes the pipe early
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
# like `python -m`: don't import modules from this directory
del sys.path[0]
try:
    from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild
except ImportError:
    distributions = None
if sys.argv[1:] or not distributions:
    run_pip()
else:
    print_table([('Package', 'Version', 'From')] + packages(distributions))
