"""
Keep what a job runs, and how it ended, in a JSON file beside its log.

Usage: record-run.py FILE --nodes NODES [--program FILE] -- ARGUMENT OF ebsif job...
       record-run.py FILE --status STATUS

Batch scripts of `ebsif job` run this in the container: with --nodes before the ranks start, with --status when they
have ended. Standard input is the record of the installation (share/ebsif/lock.json). The file has the command that runs
the same again, that record (digest of the image, versions of all packages), the program with its digest, what the site
sets, the nodes, and the status. A job that is started again adds to its file.
"""
import hashlib
import json
import os
import shlex
import sys
import time

# what the module decides from, and the keys whose values begin with the names of variables that the site sets or unsets
SETTINGS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'share', 'ebsif', 'module.conf')
SITE_SETS = ('default', 'cache')
SITE_UNSETS = ('start_unset', 'rank_unset')
# other variables that decide how the program runs: with how many threads, and with the packages of which environment
DECIDES = ('OMP_NUM_THREADS', 'VIRTUAL_ENV')


def main(path, option, *values):
    """Begin the record of a run, or complete it."""
    if option == '--nodes':
        end = values.index('--')
        content = begin(path, values[0], dict(zip(values[1:end:2], values[2:end:2])), list(values[end + 1:]))
    else:
        content = read(path)
        content['runs'][-1].update(ended=now(), status=int(values[0]))
    write(path, content)


def begin(path, nodes, options, arguments):
    """Return the record of a run that starts (dict); if the job is started again, with its earlier starts."""
    lock = json.load(sys.stdin)
    runs = read(path)['runs'] if os.path.exists(path) else []
    return {
        'command': 'ebsif job ' + ' '.join(map(shlex.quote, arguments)),
        'directory': os.getcwd(),
        'program': program(options.get('--program')),
        'module': os.environ.get('EBSIF_LOADED_MODULE'),
        'image': {'path': os.environ['SIF'], 'sha256': lock['image'].get('sha256')},
        'environment': environment(),
        'runs': runs + [{'nodes': nodes, 'started': now(), 'ended': None, 'status': None}],
        'lock': lock,
    }


def program(path):
    """Return path and SHA256 of the program (dict), or None if it is no file."""
    if not path or not os.path.isfile(path):
        return None
    with open(path, 'rb') as file:
        return {'path': path, 'sha256': hashlib.sha256(file.read()).hexdigest()}


def environment():
    """Return what the site sets or unsets (dict; null: not set), and more that decides how the program runs."""
    found = {name: os.environ[name] for name in os.environ if name.startswith('EBSIF_') or name in DECIDES}
    if os.path.exists(SETTINGS):
        with open(SETTINGS) as lines:
            for line in lines:
                key, name = (line.split(' ') + [''])[:2]
                name = name.rstrip('\n')
                if key in SITE_UNSETS or (key in SITE_SETS and name in os.environ):
                    found[name] = os.environ.get(name)
    return found


def now():
    """Return the time in UTC (str)."""
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())


def read(path):
    """Return the content of a record (dict)."""
    with open(path) as file:
        return json.load(file)


def write(path, content):
    """Replace a file by a new one, which is no link that somebody else has put there."""
    new = '%s.%d.new' % (path, os.getpid())
    with open(new, 'x') as file:
        json.dump(content, file, indent=1)
        file.write('\n')
    os.rename(new, path)


if __name__ == '__main__':
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        sys.exit('record-run: %s: %s' % (sys.argv[1] if sys.argv[1:] else 'no file is named', error))
