##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
How Ctrl-C, SIGTERM and the end of a terminal stop eb: once, so that what it has begun can be undone.
"""
import signal
from contextlib import contextmanager
from types import FrameType
from typing import Iterator, Optional

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ignored_signals() -> Iterator[None]:
    """Context manager in which eb isn't interrupted: what it does here is done completely."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_once() -> Iterator[None]:
    """
    Context manager in which the first signal stops eb, and further ones are ignored until all is undone.

    The end of a terminal or a connection stops eb as SIGTERM does. nohup ignores that signal, which stays so.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handlers = dict(before)
    if handlers[signal.SIGHUP] == signal.SIG_DFL:
        handlers[signal.SIGHUP] = handlers[signal.SIGTERM]

    def stop(number: int, frame: Optional[FrameType]) -> None:
        for other in stopping:
            signal.signal(other, signal.SIG_IGN)
        # eb's own, which removes its locks
        stopping[signal.Signals(number)](number, frame)

    stopping = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in stopping:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in stopping:
            signal.signal(number, before[number])
