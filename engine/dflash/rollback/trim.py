"""Rollback by trimming, for caches whose last entries can be dropped; checked each time."""

from typing import Any

from engine.dflash.rollback.rollback import check_growth
from engine.errors import RollbackError


class Trim:
    """Roll back a growing cache by its own ``trim``.

    Sound where the entries of a forward lie behind all others, and reading stops at ``offset``. A ring is
    not such a cache: once it wraps, the forward has overwritten what trimming would have to bring back.
    """

    name = "trim"

    def __init__(self, cache: Any) -> None:
        self.stand_in = cache
        self._before = 0

    def begin(self) -> None:
        """Record the length."""
        self._before = self.stand_in.offset

    def check(self, rows: int, keep: int) -> None:
        """See that the forward added ``rows`` entries (RollbackError)."""
        del keep
        check_growth(self.stand_in, self._before, rows)

    def commit(self, rows: int, keep: int) -> None:
        """Drop the last ``rows - kept`` entries.

        Raises:
            RollbackError: fewer were dropped than asked for; the cache is then not to be used any more.
        """
        if keep < rows:
            self._drop(rows - keep)

    def abandon(self) -> None:
        """Drop the rows that the forward pass added, if it added any."""
        if self.stand_in.offset != self._before:
            self._drop(self.stand_in.offset - self._before)

    def _drop(self, count: int) -> None:
        length = self.stand_in.offset
        dropped = self.stand_in.trim(count)
        if dropped != count or self.stand_in.offset != length - count:
            raise RollbackError(
                f"{type(self.stand_in).__name__} dropped {dropped} of {count} tokens "
                f"and holds {self.stand_in.offset} of {length}"
            )
