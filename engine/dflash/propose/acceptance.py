"""How many drafts tend to be accepted."""

from bisect import bisect_left
from collections.abc import Sequence


class Acceptance:
    """Recent probability, by position, that a draft is accepted if all drafts before it were.

    Args:
        prior: what is believed of the first place before anything was seen. Of a later one the same is believed
            as of the one before, but for ``misses``.
        misses: the share of refusals that is left from one place to the next.
        weight: how many observations such a belief is worth.
        memory: what an observation is worth after one more at its place.
        places: which positions share a place: the last position of each; those beyond have one more. None: each
            of the first 16 has its own.
    """

    def __init__(
        self,
        prior: float,
        *,
        misses: float = 1.0,
        weight: float = 2.0,
        memory: float = 0.97,
        places: Sequence[int] | None = None,
    ) -> None:
        self.prior, self.misses, self.weight, self.memory = prior, misses, weight, memory
        self._places = range(16) if places is None else places
        self._hits = [0.0] * (len(self._places) + 1)
        self._tries = [0.0] * (len(self._places) + 1)
        self._expected: dict[int, list[float]] = {}
        self._beliefs: list[float] = []

    def learn(self, proposed: int, accepted: int, start: int = 0) -> None:
        """Count one round: the first ``accepted`` of ``proposed`` drafts stayed, the next did not."""
        for i in range(min(accepted + 1, proposed)):
            at = self._at(start + i)
            self._tries[at] = self.memory * self._tries[at] + 1
            self._hits[at] = self.memory * self._hits[at] + (i < accepted)
        self._expected, self._beliefs = {}, []

    def expected(self, drafts: int, start: int = 0) -> float:
        """Return how many of this many drafts will be accepted, on average, the first at position ``start``."""
        known = self._expected.setdefault(start, [0.0])
        if drafts >= len(known):
            known[:] = self._expect(drafts, start)
        return known[drafts]

    def _expect(self, most: int, start: int) -> list[float]:
        beliefs = self._beliefs = self._beliefs or self._believe()
        reached, expected = 1.0, [0.0]
        for i in range(most):
            reached *= beliefs[self._at(start + i)]
            expected.append(expected[-1] + reached)
        return expected

    def _believe(self) -> list[float]:
        belief, beliefs = self.prior, []
        for hits, tries in zip(self._hits, self._tries, strict=True):
            belief = (hits + self.weight * belief) / (tries + self.weight)
            beliefs.append(belief)
            belief = 1 - (1 - belief) * self.misses
        return beliefs

    def _at(self, position: int) -> int:
        return bisect_left(self._places, position)
