"""Letting a stretch of work finish before Ctrl-C is heard.

Python raises KeyboardInterrupt between any two instructions of the main thread, so also between two layers'
caches. Other threads never see it.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back for a block; a handler that is not Python's own is left alone.

    Yields:
        What raises KeyboardInterrupt if Ctrl-C came meanwhile.
    """
    signals: list[tuple[Any, ...]] = []

    def pass_on() -> None:
        if signals:
            signal.default_int_handler(*signals.pop())

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pass_on
        return
    signal.signal(signal.SIGINT, lambda *args: signals.append(args))
    try:
        yield pass_on
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def postponed() -> Iterator[None]:
    """Hold Ctrl-C back until the end of a block."""
    with deferred() as pass_on:
        yield
    pass_on()


def whole(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items, each made without interruption: Ctrl-C is heard when the item has been given out."""
    while True:
        with deferred() as pass_on:
            item = next(items, None)
        try:
            if item is None:
                return
            yield item
        finally:
            pass_on()
