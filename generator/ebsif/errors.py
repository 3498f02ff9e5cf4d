"""What is told to a person as a message, without a traceback."""


class EbsifError(Exception):
    """Something a person can cause; the message says what is wrong, where, and what to do."""
