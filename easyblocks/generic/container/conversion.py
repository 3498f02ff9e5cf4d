##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Let the container runtime convert an OCI layout, or an archive of Docker, to a SIF file.
"""
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile

from easybuild.easyblocks.generic.container.progress import Progress
from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.lockowner import GONE, owner_state, read_owner, this_process
from easybuild.easyblocks.generic.container.runtime import SHOWN_LINES, passed_variables
from easybuild.easyblocks.generic.container.runtimes import RUNTIME_PREFIXES
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import mkdir, remove_dir, write_file

# loaded before the fork, after which only one thread is left, and locks of others may be taken
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Conversion:
    """
    A conversion to a SIF file.

    Attributes
    ----------
    runtime : Runtime
    place : str
        Existing directory, in which each process has one of its own: another one may still use its own after eb was
        suspended and has lost its lock.
    folder : str
        That of this process, for the result and for what the runtime needs meanwhile.
    """

    def __init__(self, runtime, place):
        """Nothing is started yet."""
        self.runtime = runtime
        self.place = place
        self.folder = None

    def make_folder(self):
        """Create the directory of this process, and remove those of processes that are gone."""
        for folder in glob.glob(os.path.join(glob.escape(self.place), 'conversion-*')):
            owner = read_owner(os.path.join(folder, 'owner'))
            if owner and owner_state(owner) == GONE:
                # its runtime may still be ending
                shutil.rmtree(folder, ignore_errors=True)
        self.folder = tempfile.mkdtemp(prefix='conversion-', dir=self.place)
        write_file(os.path.join(self.folder, 'owner'), json.dumps(this_process()))
        mkdir(self.cache)

    @property
    def result(self):
        """Path of the SIF file (str)."""
        return os.path.join(self.folder, 'image.sif')

    @property
    def cache(self):
        """Path of the runtime's cache, which would keep a second copy of everything (str)."""
        return os.path.join(self.folder, 'cache')

    @property
    def environment(self):
        """Variables for the runtime (dict): no others of the caller, which may change what it makes."""
        variables = passed_variables(os.environ)
        if 'TMPDIR' in os.environ:
            variables['TMPDIR'] = os.environ['TMPDIR']
        variables.update((prefix + '_CACHEDIR', self.cache) for prefix in RUNTIME_PREFIXES)
        return variables

    def run(self, name, reference, hint=''):
        """
        Convert an image.

        Parameters
        ----------
        name : str
            What to call it.
        reference : str
            What the runtime calls it: oci:DIRECTORY or docker-archive:FILE.
        hint : str
            What to add to errors.

        Raises
        ------
        EasyBuildError
            With the end of what the runtime says.
        """
        self.make_folder()
        command = [self.runtime.path, 'build', '--force', self.result, reference]
        log = os.path.join(self.folder, 'output')
        with open(log, 'w') as output:
            process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True,
                                       preexec_fn=ending_with(os.getpid()))
        try:
            with Progress(name, lambda: "the container runtime converts it: %s" % ''.join(lines_of(log)[-1:])):
                process.wait()
        finally:
            end_group(process)
            said = lines_of(log)[-SHOWN_LINES:]
            remove_dir(self.folder if process.returncode else self.cache)
        if process.returncode != 0:
            raise EasyBuildError("The container runtime can't convert the image with `%s`:\n%s\nIt needs space in %s "
                                 "and for temporary files (APPTAINER_TMPDIR or `eb --tmpdir`).%s", ' '.join(command),
                                 '\n'.join('  ' + line for line in said), self.place, hint,
                                 exit_code=EasyBuildExit.FAIL_DOWNLOAD)


def ending_with(parent):
    """Return a function that lets the process which calls it end with its parent (int), however that ends."""
    def end_with_parent():
        # apptainer removes its temporary files then
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
    return end_with_parent


def lines_of(log):
    """Return the lines that the runtime has printed (list of str)."""
    # the last one may end in the middle of a character
    with open(log, encoding='utf-8', errors='replace') as text:
        return [line for line in text.read().splitlines() if line.strip()]


def end_group(process):
    """End a process and those that it started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
