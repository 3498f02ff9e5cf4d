"""Compute the SHA256 of an image, with progress."""

import hashlib
import sys
import time
from pathlib import Path

BLOCK = 4 * 1024 * 1024  # bytes


def sha256(path: Path) -> str:
    """Return the SHA256 of a file; show a progress bar at a terminal, or print lines to a log."""
    digest = hashlib.sha256()
    with path.open("rb") as image, Progress(path.stat().st_size) as progress:
        for block in iter(lambda: image.read(BLOCK), b""):
            digest.update(block)
            progress.advance(len(block))
    return digest.hexdigest()


class Progress:
    """
    Report how much of a file has been read, on standard error.

    Parameters
    ----------
    size : int
        Size of the file in bytes.
    """

    def __init__(self, size):
        """Begin at zero."""
        self.size, self.done, self.bar = size, 0, None
        self.reported = time.monotonic()

    def __enter__(self):
        """Show the bar; return this object."""
        if sys.stderr.isatty() and self.size > 20 * BLOCK:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(TextColumn("SHA256"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
                                console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=self.size)
        return self

    def advance(self, number):
        """Report that this many more bytes were read."""
        self.done += number
        if self.bar:
            self.bar.update(self.task, completed=self.done)
        elif time.monotonic() - self.reported > 10:
            self.reported = time.monotonic()
            print(f"SHA256: {self.done / 1e9:.1f} of {self.size / 1e9:.1f} GB", file=sys.stderr)

    def __exit__(self, *_):
        """Remove the bar."""
        if self.bar:
            self.bar.stop()
