"""Run programs that may hang: end them after a time limit or Ctrl-C, and kill everything they started."""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import IO, Optional, TypeVar, Union, cast

from easybuild.easyblocks.generic.container.values import format_size
from easybuild.easyblocks.generic.container.written import MOST_WRITTEN

from ebsif.errors import EbsifError

CHUNK = 65536
GRACE = 3  # seconds to end in an orderly way: srun ends its ranks, runtimes unmount images
ENDING = (signal.SIGTERM, signal.SIGHUP)

Item = TypeVar("Item")
Result = TypeVar("Result")

_running: set[subprocess.Popen[bytes]] = set()
_change = threading.Lock()
_ending = False


class NoAnswerError(EbsifError):
    """A program took longer than its limit; the message names it."""


class Ended(SystemExit):
    """A signal ends this process."""


def run(
    words: Sequence[Union[str, Path]],
    limit: float,
    text: Optional[str] = None,
    name: str = "",
    environment: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
) -> subprocess.CompletedProcess[str]:
    """
    Run a program in a session of its own, with a text as its input; return both outputs as text.

    After `limit` seconds, or if it prints more than a program of others should (MOST_WRITTEN), end it with all that it
    has started, and raise NoAnswerError, which calls it `name`.
    """
    with _change:
        stop_if_ending()
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
        _running.add(process)
    try:
        outputs = communicate(process, None if text is None else os.fsencode(text), limit)
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{name or ' '.join(map(str, words))} doesn't answer within {limit:g} seconds") from None
    except OverflowError:
        raise NoAnswerError(
            f"{name or ' '.join(map(str, words))} prints more than {format_size(MOST_WRITTEN)}"
        ) from None
    finally:
        if process.returncode is None:
            end([process])
        with _change:
            _running.discard(process)
    stop_if_ending()
    return subprocess.CompletedProcess(words, process.returncode, *map(os.fsdecode, outputs))


def communicate(process: subprocess.Popen[bytes], text: Optional[bytes], limit: float) -> list[bytes]:
    """
    Return what a program prints to standard output and error, after writing a text to its input.

    Raise TimeoutExpired after `limit` seconds, OverflowError if it prints more than MOST_WRITTEN bytes.
    """
    end, printed = time.monotonic() + limit, {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
            opened.enter_context(contextlib.closing(stream))
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_WRITE if stream is process.stdin else selectors.EVENT_READ)
        rest = memoryview(text or b"")
        while selector.get_map():
            left = end - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready and left <= 0:
                raise subprocess.TimeoutExpired(process.args, limit)
            for key, _ in ready:
                stream = cast("IO[bytes]", key.fileobj)
                if stream is process.stdin:
                    with contextlib.suppress(BrokenPipeError):
                        rest = rest[os.write(key.fd, rest[:CHUNK]) :] if rest else rest
                        if rest:
                            continue
                elif chunk := os.read(key.fd, CHUNK):
                    printed[stream] += chunk
                    if len(printed[stream]) > MOST_WRITTEN:
                        raise OverflowError
                    continue
                selector.unregister(stream)
                stream.close()
        process.wait(max(0, end - time.monotonic()))
    return [bytes(some) for some in printed.values()]


def stop_if_ending() -> None:
    """Raise KeyboardInterrupt if this process is about to end: for threads, which get no signals."""
    if _ending:
        raise KeyboardInterrupt


def in_threads(function: Callable[[Item], Result], items: Iterable[Item], number: int) -> list[Result]:
    """
    Call a function, which may run programs, with each item, in a number of threads; return the results in order.

    If there is an exception, or this process is interrupted (Ctrl-C, SIGTERM, SIGHUP), the programs that are running
    are ended, and no others are started: in sessions of their own, they get no signals from the terminal.
    """
    # one process, one command
    global _ending
    try:
        with ThreadPoolExecutor(number) as pool:
            try:
                futures = [pool.submit(function, item) for item in items]
                # with a limit: a signal that arrives just before Python begins to wait would not end the waiting
                while wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION).not_done:
                    for future in futures:
                        if future.done():
                            future.result()
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                with _change:
                    _ending = True
                    running = list(_running)
                end(running)
                raise
    finally:
        _ending = False


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process with an exception, as Ctrl-C does: unfinished files don't stay."""
    in_main = threading.current_thread() is threading.main_thread()
    # nohup ignores SIGHUP
    earlier = {
        number: signal.signal(number, interrupt)
        for number in ENDING
        if in_main and signal.getsignal(number) == signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def interrupt(number: int, _: object) -> None:
    """End this process, as a signal does, but after the programs that it has started."""
    raise Ended(128 + number)


@contextlib.contextmanager
def interruptible_once() -> Iterator[Callable[[], None]]:
    """
    Ignore further signals after the first one that interrupts: they would interrupt the cleaning up, too.

    Yield a function that lets signals interrupt. Call it when the program that has to be waited for runs: a signal that
    comes while it is being started is held back until then.
    """
    in_main = threading.current_thread() is threading.main_thread()
    handlers = {
        int(number): handler
        for number in (signal.SIGINT, *ENDING)
        if in_main and callable(handler := signal.getsignal(number))
    }
    held_back: list[tuple[int, Optional[FrameType]]] = []

    def hold_back(number: int, frame: Optional[FrameType]) -> None:
        held_back.append((number, frame))

    def interrupt_once(number: int, frame: Optional[FrameType]) -> None:
        for each in handlers:
            # not SIG_IGN, which programs would inherit
            signal.signal(each, lambda *_: None)
        handlers[number](number, frame)

    def admit() -> None:
        for number in handlers:
            signal.signal(number, interrupt_once)
        if held_back:
            interrupt_once(*held_back[0])

    for number in handlers:
        signal.signal(number, hold_back)
    try:
        yield admit
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def end(processes: Sequence[subprocess.Popen]) -> None:
    """End programs with everything in their process groups, those that don't end by themselves with SIGKILL."""
    left = list(processes)
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [process for process in left if send(process, number)]
        # what waits for a file system can't end
        until = time.monotonic() + GRACE
        while left and time.monotonic() < until:
            time.sleep(0.02)
            left = [process for process in left if send(process, 0)]


def send(process: subprocess.Popen, number: int) -> bool:
    """Send a signal to the process group of a program; return whether anything is left of it."""
    process.poll()
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True
