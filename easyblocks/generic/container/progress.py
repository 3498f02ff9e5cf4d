##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Shows how far downloads are, and what else takes long, in the output of eb.
"""
import threading
import time

from easybuild.easyblocks.generic.container.download import Download, DownloadError
from easybuild.easyblocks.generic.container.framework import EasyBuildExit
from easybuild.easyblocks.generic.container.texts import format_size
from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.output import PROGRESS_BAR_DOWNLOAD_ONE, show_progress_bars, start_progress_bar
from easybuild.tools.output import stop_progress_bar, update_progress_bar
from easybuild.tools.utilities import trace_msg

# Seconds between lines: with the pauses between looks, nothing is silent for more than five.
EVERY = 4.5


class Progress:
    """
    Shows how far something is: EasyBuild's progress bar where it shows those, else a line from time to time.

    As a context manager, it repeats the line also while nothing arrives.

    Attributes
    ----------
    what : str
        Name of the file.
    look : callable
        Returns how far it is (str).
    has_bar : bool
        Whether there is a bar.
    """

    def __init__(self, what, look=None):
        """Nothing is shown yet."""
        self.what = what
        self.look = look or (lambda: self.text)
        self.text = "waiting for the server"
        self.done = 0
        self.has_bar = False
        self.next = time.monotonic() + EVERY
        self.ended = threading.Event()
        self.looks = threading.Thread(target=self.repeat, daemon=True)

    def __enter__(self):
        """Return itself; the bar starts with the first bytes, when the size is known."""
        self.looks.start()
        return self

    def __exit__(self, *error):
        """Remove the bar."""
        self.ended.set()
        self.looks.join()
        if self.has_bar:
            stop_progress_bar(PROGRESS_BAR_DOWNLOAD_ONE)

    def reach(self, done, total):
        """Take how many bytes are there, and how many there will be, None if that is unknown (int)."""
        if not self.has_bar and show_progress_bars():
            self.has_bar = True
            start_progress_bar(PROGRESS_BAR_DOWNLOAD_ONE, total, label=self.what)
        if self.has_bar:
            update_progress_bar(PROGRESS_BAR_DOWNLOAD_ONE, progress_size=done - self.done)
        self.done = done
        self.text = format_size(done) + (' of %s' % format_size(total) if total else '')

    def repeat(self):
        """Write lines until the end; in a thread."""
        while not self.ended.wait(EVERY / 10):
            self.say(self.look())

    def say(self, text):
        """Write a line, unless there is a bar or the last line is recent."""
        if time.monotonic() >= self.next and not self.has_bar:
            trace_msg("%s: %s" % (self.what, text))
            self.next = time.monotonic() + EVERY


def download(name, open_at, path, size=None, can_go_on=True):
    """
    Download a file with progress.

    Parameters
    ----------
    name : str
        What to call the file.
    open_at, path, size, can_go_on
        See Download.

    Raises
    ------
    EasyBuildError
        See Download.run.
    """
    with Progress(name) as progress:
        try:
            Download(open_at, path, size, can_go_on).run(name, progress.reach, trace_msg)
        except DownloadError as err:
            raise EasyBuildError("%s", err, exit_code=EasyBuildExit.FAIL_DOWNLOAD)
