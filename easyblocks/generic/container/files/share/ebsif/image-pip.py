"""Give a new venv commands for pip; run by the Python of the image or, if the venv has a pip of its own, by the venv's.

`python -m pip` of the venv runs the image's pip, which it sees like all packages of the image, and which installs into
the venv. The image's commands pip run the image's Python, so the venv gets its own. The exit status is 1 if the image
has no pip that is complete and new enough, or lacks setuptools although ensurepip would install it.

Usage: python3 - VENV SCRIPT. SCRIPT is the text of the command pip.
"""
import csv
import os
import shlex
import sys
from importlib.util import find_spec

# the first pip with --report
OLDEST = (22, 2)
# the first Python whose ensurepip doesn't install setuptools
NO_SETUPTOOLS = (3, 12)
# pip's workaround for paths that are too long or have blanks; it needs no case distinction if it is always used
FIRST_LINES = "#!/bin/sh\n'''exec' %s \"$0\" \"$@\"\n' '''\n"


def is_usable():
    """Return whether the image has a pip that is complete and new enough."""
    try:
        from importlib.metadata import PackageNotFoundError, distribution  # novermin: runs in the image
    except ImportError:
        return False
    try:
        pip = distribution("pip")
        if sys.version_info < NO_SETUPTOOLS:
            distribution("setuptools")
    except PackageNotFoundError:
        return False
    version = tuple(int(part) for part in pip.version.split(".")[:2] if part.isdigit())
    # not pip.files, which leaves out missing files since Python 3.12
    rows = csv.reader((pip.read_text("RECORD") or "").splitlines())
    files = [row[0] for row in rows if row[0].startswith("pip/") and "__pycache__" not in row[0]]
    # Linux distributions remove the vendored packages (see pip/_vendor/__init__.py): then pip would use those that the
    # user installs
    vendored = [file for file in files if file.startswith("pip/_vendor/")]
    return version >= OLDEST and len(vendored) >= 50 and all(
        os.path.isfile(str(pip.locate_file(file))) for file in files)


def main(venv, script):
    """Write the commands."""
    if os.path.realpath(sys.prefix) == os.path.realpath(venv):
        if not find_spec("pip._internal.cli") or not find_spec("pip._internal.cli.main"):
            # before pip 19.3, which keeps its own commands
            return 0
    elif not is_usable():
        return 1
    for name in ("pip", "pip3", "pip%d.%d" % sys.version_info[:2]):
        path = os.path.join(venv, "bin", name)
        with open(path, "w") as command:
            command.write(FIRST_LINES % shlex.quote(os.path.join(venv, "bin", "python3")) + script)
        os.chmod(path, 0o755)
    return 0


sys.exit(main(*sys.argv[1:]))
