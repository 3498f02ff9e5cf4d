"""Errors that users see as a message, without a traceback."""


# Exit statuses besides 0, the same for all commands.
FOUND, USAGE, FAILED = 1, 2, 3


class EbsifError(Exception):
    """An error that a user can cause; the message says what is wrong, where, and what to do."""

    status = FAILED


class UsageError(EbsifError):
    """The command line is incomplete or contradicts itself; the message says what to write."""

    status = USAGE
