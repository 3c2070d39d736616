"""What adaptive decoding knows: how many drafts tend to be accepted, and what rounds cost."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from statistics import median

PLAIN = "none"


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
        reached, found = 1.0, [0.0]
        for i in range(most):
            reached *= beliefs[self._at(start + i)]
            found.append(found[-1] + reached)
        return found

    def _believe(self) -> list[float]:
        belief, found = self.prior, []
        for hits, tries in zip(self._hits, self._tries, strict=True):
            belief = (hits + self.weight * belief) / (tries + self.weight)
            found.append(belief)
            belief = 1 - (1 - belief) * self.misses
        return found

    def _at(self, position: int) -> int:
        return bisect_left(self._places, position)


class Nominal:
    """Costs in plain steps that depend on nothing measured, so that decisions can be repeated.

    The figures are those of a model of a few million parameters on a CPU: a twelfth of a step for each row more,
    two fifths for a draft.
    """

    row, draft = 0.08, 0.4

    def plain(self) -> float:
        """Return the cost of a plain step."""
        return 1.0

    def stale(self, rounds: int) -> bool:  # noqa: ARG002
        """Return whether plain steps have to be measured, this many rounds after the last."""
        return False

    def of(self, drafter: str, drafts: int) -> float:
        """Return the cost of a round."""
        return 1.0 + self.row * drafts + (self.draft if drafter == "dflash" else 0.0)

    def learn(self, drafter: str, drafts: int, seconds: float) -> None:
        """Ignore a measurement."""

    def settle(self) -> None:
        """A run of plain steps, if there was one, is over."""


class Measured(Nominal):
    """Costs as they were measured: the median of the last few rounds of each kind and size.

    A size that was not seen lies on the line between its neighbours; beyond them, and before anything was
    seen, the nominal proportions hold. Plain steps are measured by the run: each queues the next one's work, so what
    a single one takes may be two steps' work, or none.
    """

    last = 5
    warm, again = 8, 64  # rounds before plain steps are measured first, and at most until they are again

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], deque[float]] = {}
        self._usual: dict[str, dict[int, float]] = {}  # drafter -> drafts -> the median
        self._runs: deque[float] = deque(maxlen=self.last)  # of plain steps: seconds a step
        self._run, self._steps = 0.0, 0
        self._patience = self.warm

    def learn(self, drafter: str, drafts: int, seconds: float) -> None:
        """Record one measurement, of a round or of one plain step."""
        if drafter == PLAIN:
            self._run, self._steps = self._run + seconds, self._steps + 1
            return
        seen = self._seen.setdefault((drafter, drafts), deque(maxlen=self.last))
        seen.append(seconds)
        self._usual.setdefault(drafter, {})[drafts] = median(seen)

    def settle(self) -> None:
        """A run of plain steps, if there was one, is over."""
        if self._steps:
            self._runs.append(self._run / self._steps)
            self._run, self._steps = 0.0, 0
            self._patience = min(self.again, 4 * self._patience)  # the first is trusted less than the next

    def plain(self) -> float:
        """Return the seconds of a plain step; before a run of them has ended, what the rounds suggest."""
        if self._runs:
            return median(self._runs)
        rounds = [
            seconds / super(Measured, self).of(drafter, drafts)
            for drafter, usual in self._usual.items()
            for drafts, seconds in usual.items()
        ]
        return min(rounds, default=super().plain())

    def stale(self, rounds: int) -> bool:
        """Return whether plain steps have to be measured, this many rounds after the last."""
        return rounds >= self._patience

    def of(self, drafter: str, drafts: int) -> float:
        """Return the seconds of a round, or its nominal cost while nothing is known.

        A round contains a plain step's work, so where it seems cheaper the clock was disturbed.
        """
        return max(self.plain(), self._looked_up(drafter, drafts))

    def _looked_up(self, drafter: str, drafts: int) -> float:
        usual = self._usual.get(drafter, {})
        if drafts in usual:
            return usual[drafts]
        below = max((n for n in usual if n < drafts), default=None)
        above = min((n for n in usual if n > drafts), default=None)
        if below is not None and above is not None:
            part = (drafts - below) / (above - below)
            return usual[below] + (usual[above] - usual[below]) * part
        near = below if above is None else above
        if near is not None:
            return usual[near] * super().of(drafter, drafts) / super().of(drafter, near)
        return super().of(drafter, drafts) * self.plain()
