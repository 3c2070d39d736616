"""Letting a short stretch of work finish before Ctrl-C is heard."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def postponed() -> Iterator[None]:
    """Hold KeyboardInterrupt back until the end of the block.

    Python raises it between any two instructions of the main thread, so also between two layers' caches. Other
    threads never see it, and a handler that is not Python's own is left alone.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    heard: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *args: heard.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if heard:
            signal.default_int_handler(*heard[0])
