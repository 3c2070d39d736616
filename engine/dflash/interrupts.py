"""Letting a stretch of work finish before Ctrl-C is heard.

Python raises KeyboardInterrupt between any two instructions of the main thread, so also between two layers'
caches. Other threads never see it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")


class Heard:
    """Whether Ctrl-C came meanwhile."""

    def __init__(self) -> None:
        self._signals: list[tuple[Any, ...]] = []

    def note(self, *args: Any) -> None:
        """Take the signal in: a handler."""
        self._signals.append(args)

    def pass_on(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C came."""
        if self._signals:
            signal.default_int_handler(*self._signals.pop())


@contextmanager
def deferred() -> Iterator[Heard]:
    """Hold Ctrl-C back for a block; a handler that is not Python's own is left alone."""
    heard = Heard()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield heard
        return
    signal.signal(signal.SIGINT, heard.note)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def postponed() -> Iterator[None]:
    """Hold Ctrl-C back until the end of a block."""
    with deferred() as heard:
        yield
    heard.pass_on()


def whole(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items, each made without interruption: Ctrl-C is heard when the item has been given out."""
    while True:
        with deferred() as heard:
            item = next(items, None)
        if item is None:
            heard.pass_on()
            return
        try:
            yield item
        finally:
            heard.pass_on()
