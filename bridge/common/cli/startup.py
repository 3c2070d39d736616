"""Ends a program that is interrupted while it imports its modules: at once, and without a traceback.

It imports as little as possible, because ^C has a traceback until it is in place.
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself takes a millisecond to import
import gc
import os


class QuietInterrupt:
    """A block in which ^C ends this process with exit code 130. It has no effect in a thread, or if ^C is handled.

    Garbage is collected after it, because all that it imports stays.
    """

    def __enter__(self) -> None:
        self._collects = gc.isenabled()
        gc.disable()
        self._is_set = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler and _put(_end)

    def __exit__(self, *error: object) -> None:
        if self._collects:
            gc.enable()
        if self._is_set:
            _put(_signal.default_int_handler)


def _put(handler: object) -> bool:
    try:
        _signal.signal(_signal.SIGINT, handler)
    except ValueError:  # only the main thread may
        return False
    return True


def _end(_signum: int, _frame: object) -> None:
    os._exit(128 + _signal.SIGINT)
