"""What all that read a part of an easyconfig share."""

import re

# EasyBuild fills this in while it installs.
INSTALLATION = "%(installdir)s"

# Binds that the module makes by itself.
OWN_BINDS = re.compile(re.escape(INSTALLATION) + r"/(runscripts:/runscripts|user-software)")


class Reader:
    """
    Reads a part of an easyconfig.

    Parameters
    ----------
    values : dict
        Parameters and variables of the easyconfig.
    found : Imported
        Takes the result.
    source : Source
        The text of the easyconfig, for line numbers.
    site : Site
        Its binds and variables are not repeated.
    """

    def __init__(self, values, found, source, site):
        """Keep the easyconfig; nothing is read yet."""
        self.values, self.found, self.source, self.site = values, found, source, site
        self.record = found.record


def shortened(value, length=160):
    """
    Return a value for a message (str): in one line, at most `length` characters, an ellipsis if there are more.

    Credentials are masked first: half a credential would not be recognised any more (G-09).
    """
    from easybuild.easyblocks.generic.container.credentials import Credentials

    text = " ".join(Credentials.masked(value).split())
    return text if len(text) <= length else f"{text[:length - 3].rstrip()}..."


def same_path_twice(bind):
    """Return a bind without a target that repeats its source (str)."""
    source, _, target = bind.partition(":")
    return source if target in ("", source) else bind
