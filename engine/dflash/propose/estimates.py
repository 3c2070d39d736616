"""What adaptive decoding knows: how many drafts tend to be accepted, and what rounds cost."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from statistics import median

PLAIN = "none"
BEND = 7  # drafts from which one more may cost less: many rows use a processor better than few
FEATURES = 4
MOMENTS = (
    FEATURES * (FEATURES + 1) // 2
)  # of the sums of least squares; those behind them contain what was measured


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


class Nominal:
    """Costs in plain steps that depend on nothing measured, so that decisions can be repeated.

    The figures are those of a model of a few million parameters on a CPU: a twelfth of a step for each row more,
    two fifths for a draft.
    """

    row, draft = 0.08, 0.4

    def stale(self, rounds: int) -> bool:  # noqa: ARG002
        """Return whether plain steps have to be measured, this many rounds after the last."""
        return False

    def of(self, drafter: str, drafts: int) -> float:
        """Return the cost of a round in plain steps."""
        return 1.0 + self.row * drafts + (self.draft if drafter == "dflash" else 0.0)

    def learn(self, drafter: str, drafts: int, seconds: float) -> None:
        """Ignore a measurement."""

    def settle(self) -> None:
        """A run of plain steps, if there was one, is over."""

    def begin(self) -> None:
        """A generation begins, perhaps over a context of another length."""


class Measured(Nominal):
    """Costs as they were measured: a line with a bend over the drafts of a round, and what a draft model adds to it.

    One line for all sizes forgets what a busy moment made of one of them, and says of each what the others took.
    What was measured counts in units of the present pace, so that a machine that slows down changes no decision.
    Nominal costs count as a few measurements, in the proportion that rounds have shown. Plain steps are measured by the
    run: each queues the next one's work, so what a single one takes may be two steps' work, or none.
    """

    last = 7  # measurements that tell the pace
    memory = 0.96  # what a measurement is worth after one more
    kept = 16.0  # what all are worth at most when the next generation begins
    far = 2.0  # times as much as expected, or as little, is all that one measurement can say
    warm, again = 8, 64  # rounds before plain steps are measured first, and at most until they are again
    trust = 0.3  # share of the way that a run of plain steps moves the unit; of the first ones more
    prior, weight = (("lookup", 0), ("lookup", BEND), ("dflash", BEND)), 0.5  # measurements each
    beyond = (
        0.0,
        0.0,
        8.0,
        0.0,
    )  # the difference of two rounds, which is nominal until something is known of it

    def __init__(self) -> None:
        self._paces: deque[float] = deque(maxlen=self.last)  # seconds a plain step
        self._sums = [0.0] * (MOMENTS + FEATURES)  # of rounds
        self._line: tuple[float, ...] = (1.0, self.row, self.row, self.draft)
        self._run, self._steps, self._runs = 0.0, 0, 0
        self._patience = self.warm
        self._dearer = (1.0, 1.0)  # sums for how many times the nominal cost beyond a plain step rounds have
        self._ones, self._beyond = (self._points(share) for share in (0.0, 1.0))

    def learn(self, drafter: str, drafts: int, seconds: float) -> None:
        """Record one measurement, of a round or of one plain step."""
        if drafter == PLAIN:
            self._run, self._steps = self._run + seconds, self._steps + 1
            return
        took = self._in_steps(seconds, self.of(drafter, drafts))
        new = _sums(_features(drafter, drafts), took, 1.0)
        self._sums = [self.memory * old + more for old, more in zip(self._sums, new, strict=True)]
        extra, (beyond, square) = super().of(drafter, drafts) - 1, self._dearer
        self._dearer = (self.memory * beyond + extra * (took - 1), self.memory * square + extra * extra)
        self._fit()

    def settle(self) -> None:
        """A run of plain steps, if there was one, is over."""
        if self._steps:
            self._runs += 1
            took = self._in_steps(self._run / self._steps, 1.0)
            self._correct(1 + max(self.trust, 1 / (1 + self._runs)) * (took - 1))
            self._run, self._steps = 0.0, 0
            self._patience = min(self.again, 4 * self._patience)  # the first is trusted less than the next

    def begin(self) -> None:
        """Let the measurements so far count for little: rounds over a longer context cost more plain steps."""
        self.settle()
        share = min(1.0, self.kept / max(self._sums[0], 1.0))
        self._sums = [share * old for old in self._sums]
        self._patience = min(self._patience, 4 * self.warm)

    def stale(self, rounds: int) -> bool:
        """Return whether plain steps have to be measured, this many rounds after the last."""
        return rounds >= self._patience

    def of(self, drafter: str, drafts: int) -> float:
        """Return the cost of a round in plain steps, at least one: a round contains a plain step's work."""
        return max(1.0, sum(a * b for a, b in zip(self._line, _features(drafter, drafts), strict=True)))

    def _points(self, share: float) -> list[float]:
        """Return the sums of the prior, with this share of the nominal costs beyond a plain step."""
        points = [
            _sums(_features(kind, n), 1 + share * (super(Measured, self).of(kind, n) - 1), self.weight)
            for kind, n in self.prior
        ]
        points.append(_sums(self.beyond, self.row * sum(self.beyond), self.weight))
        return [sum(column) for column in zip(*points, strict=True)]

    def _in_steps(self, seconds: float, expected: float) -> float:
        """Return what something took, in plain steps of the present pace, near to what was expected of it."""
        self._paces.append(seconds / expected)
        return min(max(seconds / median(self._paces), expected / self.far), expected * self.far)

    def _correct(self, unit: float) -> None:
        """State everything in plain steps again: one was found to take ``unit`` of them."""
        self._paces = deque((pace * unit for pace in self._paces), self.last)
        self._sums = [*self._sums[:MOMENTS], *(took / unit for took in self._sums[MOMENTS:])]
        self._fit()

    def _fit(self) -> None:
        """Fit the line by least squares."""
        times = max(0.0, self._dearer[0] / self._dearer[1])
        points = zip(self._ones, self._beyond, self._sums, strict=True)
        base, *more = _least_squares(
            [single + times * (beyond - single) + seconds for single, beyond, seconds in points]
        )
        self._line = (base, *(max(0.0, each) for each in more))


def _features(drafter: str, drafts: int) -> tuple[float, ...]:
    """Return what a round's cost is linear in: one, the drafts up to the bend and beyond it, and a draft model."""
    return 1.0, float(min(drafts, BEND)), float(max(drafts - BEND, 0)), float(drafter == "dflash")


def _sums(row: Sequence[float], took: float, weight: float) -> list[float]:
    """Return one measurement's part of the sums that least squares needs: moments, then what was measured."""
    moments = [a * b for i, a in enumerate(row) for b in row[i:]]
    return [weight * part for part in (*moments, *(took * a for a in row))]


def _least_squares(sums: Sequence[float]) -> list[float]:
    """Return the coefficients of the features with the smallest squared error, by Gaussian elimination."""
    size, moments = FEATURES, iter(sums)
    rows = [[0.0] * size + [took] for took in sums[MOMENTS:]]
    for i in range(size):
        for j in range(i, size):
            rows[i][j] = rows[j][i] = next(moments)
    for i in range(size):  # the prior makes every pivot positive
        for j in range(i + 1, size):
            share = rows[j][i] / rows[i][i]
            rows[j] = [low - share * high for low, high in zip(rows[j], rows[i], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - rest) / rows[i][i]
    return solution
