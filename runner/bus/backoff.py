"""Back-off from failures, which are retried less and less often, and from rivals, which take the same requests."""

import time
from dataclasses import dataclass

FIRST_S = 0.5
LONGEST_S = 60.0
_MOST_DOUBLED = 20
# The most requests among which a runner picks.
WIDEST = 64
# A claim that succeeds narrows the choice by this share.
_NARROWS = 1 / 8


@dataclass(slots=True)
class Retry:
    """Counts the failures of one thing, and says when it may be retried."""

    failures: int = 0
    _due_at: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether a retry is due."""
        return time.monotonic() >= self._due_at

    def failed(self, longest_s: float | None = None, first_s: float | None = None) -> int:
        """Record a failure and return how many there were."""
        self.failures += 1
        pause = (FIRST_S if first_s is None else first_s) * 2.0 ** min(self.failures - 1, _MOST_DOUBLED)
        self._due_at = time.monotonic() + min(pause, LONGEST_S if longest_s is None else longest_s)
        return self.failures

    def succeeded(self) -> None:
        """Forget the failures."""
        self.failures, self._due_at = 0, 0.0


class Spread:
    """Spreads runners over the waiting requests, so that few of them claim the same one.

    A runner without rivals takes the first request in turn. After each claim that another runner won, it picks among
    twice as many of the first ones; after each claim of its own, among fewer.
    """

    def __init__(self) -> None:
        self._width = 1.0
        # How many claims other runners won.
        self.lost_claims = 0

    @property
    def width(self) -> int:
        """Among how many requests the runner picks."""
        return int(self._width)

    @property
    def has_rivals(self) -> bool:
        """Whether another runner has won a claim lately."""
        return self.width > 1

    def lose(self) -> None:
        """Record that another runner won a claim."""
        self.lost_claims += 1
        self._width = min(2 * self._width, WIDEST)

    def win(self) -> None:
        """Record that this runner won a claim."""
        self._width = max(1.0, self._width * (1 - _NARROWS))
