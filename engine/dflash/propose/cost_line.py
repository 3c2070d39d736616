"""What rounds cost in plain steps: a line over the number of drafts, fitted to measurements by least squares."""

from collections.abc import Callable, Sequence

BEND = 7  # drafts from which one more may cost less: many rows use a processor better than few
FEATURES = 4
MOMENTS = FEATURES * (FEATURES + 1) // 2  # of the sums of least squares; behind them is what was measured

Cost = Callable[[str, int], float]


class CostLine:
    """A line with a bend over the drafts of a round, and what a draft model adds to it.

    One line for all sizes forgets what a busy moment made of one of them, and says of each what the others took.
    Nominal costs count as a few measurements, in the proportion that rounds have shown.

    Args:
        nominal: returns the nominal cost of a round, by drafter and number of drafts.
    """

    memory = 0.96  # what a measurement is worth after one more
    prior, weight = (("lookup", 0), ("lookup", BEND), ("dflash", BEND)), 0.5  # measurements each
    # The difference of two rounds beyond the bend, which is nominal until something is known of it.
    beyond = (0.0, 0.0, 8.0, 0.0)

    def __init__(self, nominal: Cost) -> None:
        self._nominal = nominal
        self._sums = [0.0] * (MOMENTS + FEATURES)
        self._dearer = (
            0.02,
            0.02,
        )  # sums for how many times the nominal cost beyond a plain step rounds have
        self._without, self._with = (self._points(share) for share in (0.0, 1.0))
        self._line: tuple[float, ...] = ()
        self._fit()

    def of(self, drafter: str, drafts: int) -> float:
        """Return the cost of a round in plain steps, at least one: a round contains a plain step's work."""
        return max(1.0, sum(a * b for a, b in zip(self._line, _features(drafter, drafts), strict=True)))

    def learn(self, drafter: str, drafts: int, took: float) -> None:
        """Add a measurement in plain steps."""
        new = _sums(_features(drafter, drafts), took, 1.0)
        self._sums = [self.memory * old + more for old, more in zip(self._sums, new, strict=True)]
        extra, (beyond, square) = self._nominal(drafter, drafts) - 1, self._dearer
        self._dearer = (self.memory * beyond + extra * (took - 1), self.memory * square + extra * extra)
        self._fit()

    def forget(self, most: float) -> None:
        """Let the measurements so far count as no more than so many."""
        share = min(1.0, most / max(self._sums[0], most))
        self._sums = [share * old for old in self._sums]
        self._dearer = (share * self._dearer[0], share * self._dearer[1])

    def _points(self, share: float) -> list[float]:
        """Return the sums of the prior, with this share of the nominal costs beyond a plain step."""
        points = [
            _sums(_features(kind, n), 1 + share * (self._nominal(kind, n) - 1), self.weight)
            for kind, n in self.prior
        ]
        row = self._nominal("lookup", 1) - 1
        points.append(_sums(self.beyond, row * sum(self.beyond), self.weight))
        return [sum(column) for column in zip(*points, strict=True)]

    def _fit(self) -> None:
        times = max(0.0, self._dearer[0] / self._dearer[1])
        points = zip(self._without, self._with, self._sums, strict=True)
        base, *more = _least_squares(
            [without + times * (nominal - without) + took for without, nominal, took in points]
        )
        self._line = (base, *(max(0.0, each) for each in more))


def _features(drafter: str, drafts: int) -> tuple[float, ...]:
    """Return the features of a round's cost: one, the drafts up to the bend and beyond it, and a draft model."""
    return 1.0, float(min(drafts, BEND)), float(max(drafts - BEND, 0)), float(drafter == "dflash")


def _sums(row: Sequence[float], took: float, weight: float) -> list[float]:
    """Return one measurement's part of the sums for least squares: moments, then the measured cost."""
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
