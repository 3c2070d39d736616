"""Estimates how many drafts will be accepted."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import mul


class Acceptance:
    """Recent probability, by position, that a draft is accepted if all drafts before it were.

    Args:
        prior: the first place's estimate before any observation. Each later place inherits the previous place's
            estimate, its miss rate scaled by ``misses``.
        misses: see ``prior``.
        places: which positions share a place: the last position of each; those beyond have one more.
    """

    weight = 2.0  # observations that an inherited estimate is worth
    memory = 0.97  # what an observation is worth after one more at its place

    def __init__(self, prior: float, *, misses: float = 1.0, places: Sequence[int] = range(16)) -> None:
        self.prior, self.misses, self._places = prior, misses, places
        self._hits = [0.0] * (len(self._places) + 1)
        self._tries = [0.0] * (len(self._places) + 1)
        self._expected: dict[int, list[float]] = {}  # cached expectations by start, for each number of drafts

    def learn(self, proposed: int, accepted: int, start: int = 0) -> None:
        """Count one round: the first ``accepted`` of ``proposed`` drafts were accepted, the next one was not."""
        for i in range(min(accepted + 1, proposed)):
            at = self._at(start + i)
            self._tries[at] = self.memory * self._tries[at] + 1
            self._hits[at] = self.memory * self._hits[at] + (i < accepted)
        self._expected = {}

    def expected(self, drafts: int, start: int = 0) -> float:
        """Return the expected number of accepted drafts among ``drafts``, the first of them at position ``start``."""
        known = self._expected.get(start, [])
        if drafts >= len(known):
            beliefs = self._beliefs()
            reached = accumulate((beliefs[self._at(start + i)] for i in range(drafts)), mul)
            known = self._expected[start] = [0.0, *accumulate(reached)]
        return known[drafts]

    def _beliefs(self) -> list[float]:
        belief, beliefs = self.prior, []
        for hits, tries in zip(self._hits, self._tries, strict=True):
            belief = (hits + self.weight * belief) / (tries + self.weight)
            beliefs.append(belief)
            belief = 1 - (1 - belief) * self.misses
        return beliefs

    def _at(self, position: int) -> int:
        return bisect_left(self._places, position)
