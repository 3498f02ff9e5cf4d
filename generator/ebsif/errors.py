"""Errors that users see as a message, without a traceback."""


class EbsifError(Exception):
    """An error that a user can cause; the message says what is wrong, where, and what to do."""


class UsageError(EbsifError):
    """The command line is incomplete or contradicts itself; the message says what to write."""
