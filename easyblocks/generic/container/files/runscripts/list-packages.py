"""Run in the container by list-packages: run `pip list`, or list names and versions if there is no pip."""
import importlib.util
import runpy
import sys

# like `python -m`: don't import modules from this directory
del sys.path[0]
if importlib.util.find_spec('pip'):
    sys.argv = ['pip', 'list'] + sys.argv[1:]
    runpy.run_module('pip', run_name='__main__', alter_sys=True)
elif sys.argv[1:]:
    sys.exit("list-packages: the Python of this container has no pip, so its options can't be used: leave out %s"
             % ' '.join(sys.argv[1:]))
else:
    try:
        from importlib.metadata import distributions  # novermin: runs in the image, not with EasyBuild
    except ImportError as error:
        sys.exit("list-packages: the Python of this container can't list its packages: %s" % error)

    found = {}
    for distribution in distributions():
        try:
            metadata = distribution.metadata
        except Exception:  # without METADATA, from Python 3.14 on; or a file that is no text
            metadata = None
        if metadata and metadata.get('Name'):
            found.setdefault(metadata['Name'], metadata.get('Version') or 'unknown')
    width = max([len(name) for name in found] + [len('Package')])
    print('%-*s %s' % (width, 'Package', 'Version'))
    print('-' * width, '-' * len('Version'))
    for name in sorted(found, key=str.lower):
        print('%-*s %s' % (width, name, found[name]))
