"""Delays Ctrl-C until a piece of work is finished.

Python raises KeyboardInterrupt between any two instructions of the main thread, so also between the updates of two
layers' caches. Other threads never get it.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Delay Ctrl-C during a block. A handler that is not Python's own is left alone.

    Yields:
        A function that raises KeyboardInterrupt if Ctrl-C came meanwhile.
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
    """Delay Ctrl-C until the end of a block."""
    with deferred() as pass_on:
        yield
    pass_on()


def whole(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items. Each is computed without interruption: Ctrl-C takes effect after the item was yielded."""
    while True:
        with deferred() as pass_on:
            item = next(items, None)
        try:
            if item is None:
                return
            yield item
        finally:
            pass_on()
