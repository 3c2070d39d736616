"""The time that judging may take, for all reports of one run together."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

# The caller's ``attend`` is called at most once in this many seconds.
_ATTEND_S = 0.1
# Reading the clock takes as long as a step of a loop, so loops read it only every this many steps.
_STEPS = 64

T = TypeVar("T")


class TooLongError(Exception):
    """Judging took longer than allowed."""


class Deadline:
    """Ends the judging after ``most_s`` seconds; until then, it calls ``attend`` a few times a second.

    An exception from ``attend`` ends the judging too.
    """

    def __init__(self, most_s: float = math.inf, attend: Callable[[], None] | None = None) -> None:
        self._until = time.monotonic() + most_s
        self._attend = attend
        self._attended = -math.inf

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._until

    def check(self) -> None:
        """Call ``attend`` if it is due.

        Raises:
            TooLongError: the time is over.
        """
        now = time.monotonic()
        if now > self._until:
            raise TooLongError
        if self._attend and now - self._attended >= _ATTEND_S:
            self._attended = now
            self._attend()

    def through(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and check the deadline after every few of them."""
        for i, item in enumerate(items):
            if i % _STEPS == 0:
                self.check()
            yield item


class DeadlineList(list[T]):
    """A list whose loops check a deadline. So code that reads a whole report for each of many claims ends in time."""

    def __init__(self, items: Iterable[T], deadline: Deadline) -> None:
        super().__init__(items)
        self._deadline = deadline

    def __iter__(self) -> Iterator[T]:
        """Go through the items, checking the deadline."""
        return self._deadline.through(super().__iter__())
