"""The cost of rounds in plain steps: a line over the number of drafts, fitted to measurements by least squares."""

from collections.abc import Callable, Sequence

import numpy as np

from engine.dflash.kinds import DFLASH, KINDS

BEND = 7  # drafts after which each further one may cost less: many rows use a processor better than few
FEATURES = 4

Cost = Callable[[str, int], float]


class CostLine:
    """The cost as a line with a bend over the number of drafts, plus what drafting costs.

    That is a constant for whole blocks, and grows with each draft if drafts are computed in turn.

    With one line for all sizes, a busy moment distorts no single size for long, and each size profits from
    measurements of the others. Nominal costs count as a few measurements, scaled by what rounds have cost so far.
    """

    memory = 0.96  # the factor by which each new measurement reduces the weight of earlier ones
    prior = (("lookup", 0), ("lookup", BEND), (DFLASH, BEND))
    weight = 0.5  # measurements per point
    # The slope beyond the bend, as the difference of two rounds; nominal until it was measured.
    beyond = (0.0, 0.0, 8.0, 0.0)

    def __init__(self, nominal: Cost) -> None:
        self._nominal = nominal
        self._sums = np.zeros((FEATURES, FEATURES + 1))
        self._dearer = np.array(
            [0.02, 0.02]
        )  # sums for the ratio of measured to nominal costs, both less one plain step
        self._without, self._with = self._points(0.0), self._points(1.0)
        self._fit()

    def of(self, drafter: str, drafts: int) -> float:
        """Return the cost of a round in plain steps, at least one: a round contains a plain step's work."""
        return max(1.0, sum(a * b for a, b in zip(self._line, _features(drafter, drafts), strict=True)))

    def learn(self, drafter: str, drafts: int, took: float) -> None:
        """Add a measurement in plain steps."""
        self._sums = self.memory * self._sums + _sums(_features(drafter, drafts), took)
        extra = self._nominal(drafter, drafts) - 1
        self._dearer = self.memory * self._dearer + (extra * (took - 1), extra * extra)
        self._fit()

    def forget(self, most: float) -> None:
        """Let the measurements so far count as at most ``most`` measurements."""
        share = min(1.0, most / max(self._sums[0, 0], most))
        self._sums, self._dearer = share * self._sums, share * self._dearer

    def _points(self, share: float) -> np.ndarray:
        """Return the sums of the prior, with this share of the nominal costs beyond a plain step."""
        points = [(_features(kind, n), 1 + share * (self._nominal(kind, n) - 1)) for kind, n in self.prior]
        points.append((self.beyond, (self._nominal("lookup", 1) - 1) * sum(self.beyond)))
        sums: np.ndarray = np.sum([_sums(row, took) for row, took in points], axis=0)
        return self.weight * sums

    def _fit(self) -> None:
        times = max(0.0, self._dearer[0] / self._dearer[1])
        sums = self._without + times * (self._with - self._without) + self._sums
        base, *more = _solved(sums.tolist())
        self._line = (base, *(max(0.0, each) for each in more))


def _features(drafter: str, drafts: int) -> tuple[float, ...]:
    """Return the features of a round's cost: one, the drafts up to the bend and beyond it, and what drafting takes.

    One coefficient of drafting is enough, because a policy has one drafter.
    """
    drafting = KINDS[drafter].cost(drafts) if drafter in KINDS else 0.0
    return 1.0, float(min(drafts, BEND)), float(max(drafts - BEND, 0)), drafting


def _sums(row: Sequence[float], took: float) -> np.ndarray:
    """Return one measurement's part of the sums for least squares: moments, and at the end the measured cost."""
    return np.outer(row, (*row, took))


def _solved(rows: list[list[float]]) -> list[float]:
    """Return the coefficients with the smallest squared error, to the same bit on every machine."""
    for i in range(FEATURES):  # the prior makes every pivot positive
        for j in range(i + 1, FEATURES):
            share = rows[j][i] / rows[i][i]
            rows[j] = [low - share * high for low, high in zip(rows[j], rows[i], strict=True)]
    solution = [0.0] * FEATURES
    for i in reversed(range(FEATURES)):
        rest = sum(rows[i][j] * solution[j] for j in range(i + 1, FEATURES))
        solution[i] = (rows[i][-1] - rest) / rows[i][i]
    return solution
