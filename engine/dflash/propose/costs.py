"""The cost of a round, nominal or measured."""

import sys
from collections import deque
from statistics import median

from engine.dflash.kinds import KINDS
from engine.dflash.propose.cost_line import BEND, CostLine

PLAIN, LOOKUP = "none", "lookup"


class Nominal:
    """Costs in plain steps that do not depend on measurements, so that decisions can be repeated.

    The figures come from a model of a few million parameters on a CPU: each further row costs a twelfth of a step,
    and a draft two fifths.
    """

    row, draft = 0.08, 0.4

    def measurements_due(self) -> int:
        """Return how many plain steps have to be measured before the next round."""
        return 0

    def of(self, drafter: str, drafts: int) -> float:
        """Return the cost of a round in plain steps."""
        return (
            1.0 + self.row * drafts + (self.draft * KINDS[drafter].cost(drafts) if drafter in KINDS else 0.0)
        )

    def most(self, drafter: str) -> int:  # noqa: ARG002
        """Return the most drafts whose cost is known well enough to risk them."""
        return sys.maxsize

    def learn(self, drafter: str, drafts: int, seconds: float) -> float:  # noqa: ARG002
        """Record the time of a round or plain step; return the cost that counts, in plain steps."""
        return 1.0 if drafter == PLAIN else self.of(drafter, drafts)

    def begin(self) -> None:
        """Begin a generation, perhaps over a context of another length."""


class Pace:
    """The seconds of a plain step, measured in runs of several steps.

    Each plain step queues the next one's work, so what a single one takes may be two steps' work, or none.
    """

    sample = 2  # the least steps of a run
    agree = 1.25  # a run that differs from the median by more than this factor is measured again
    last = 3  # the median of this many runs counts

    def __init__(self) -> None:
        self.due = True  # whether a run has to be measured before the next round
        self._runs: deque[float] = deque(maxlen=self.last)
        self._seconds, self._steps, self._misfits = 0.0, 0, 0

    def learn(self, seconds: float) -> None:
        """Record one step."""
        self._seconds, self._steps = self._seconds + seconds, self._steps + 1

    def measurements_due(self) -> int:
        """Return how many steps have to be measured before the next round."""
        if self._steps >= self.sample:
            self.end_run()
        return self.sample - self._steps if self.due else 0

    def end_run(self) -> None:
        """Record the run, if there was one. A run that does not agree with earlier ones has to be repeated."""
        if not self._steps:
            return
        pace, usual = self._seconds / self._steps, self.seconds
        self._seconds, self._steps = 0.0, 0
        self._runs.append(pace)
        fits = usual is None or usual / self.agree < pace < usual * self.agree
        self._misfits = 0 if fits else self._misfits + 1
        if fits or self._misfits >= self.last:
            self.due, self._misfits = False, 0

    @property
    def seconds(self) -> float | None:
        """Seconds of a step; None before the first run."""
        return median(self._runs) if self._runs else None


class Measured(Nominal):
    """Measured costs.

    The unit is a plain step. A generation begins with a run of plain steps, because they cost more over a longer
    context. Another run follows after many rounds, and after a round with an unexpected cost.

    A round may be more expensive than expected only because the machine was busy for a moment. It counts only in part,
    until another round confirms its cost. The largest measured block bounds the size of the next ones.
    """

    again = 64  # the most rounds between two runs of plain steps
    carried_over = 16.0  # when a generation begins, all earlier measurements count as at most this many
    changed = 4.0  # the same when costs have changed
    first = 3  # the most drafts of the first round
    doubtful = 0.5  # a round is doubted only if it exceeds the expected cost by this many plain steps

    def __init__(self) -> None:
        self._pace, self._line = Pace(), CostLine(super().of)
        self._rounds = 0  # since the last run of plain steps
        # For each kind of round with an unconfirmed outlier: its drafts, its cost, and the part of the cost
        # that counts.
        self._doubts: dict[tuple[str, bool], tuple[int, float, float]] = {}
        self._largest: dict[str, int] = {}  # by drafter: the drafts of its largest round

    def measurements_due(self) -> int:
        """Return how many plain steps have to be measured before the next round."""
        return self._pace.measurements_due()

    def of(self, drafter: str, drafts: int) -> float:
        """Return the cost of a round in plain steps, at least one."""
        return self._line.of(drafter, drafts)

    def most(self, drafter: str) -> int:
        """Return the most drafts whose cost is known well enough to risk them."""
        if (drafter, False) in self._doubts:
            return 1
        return max(self.first, 2 * self._largest.get(drafter, 0) + 1)

    def begin(self) -> None:
        """Reduce the weight of the rounds so far, because costs depend on the context."""
        self._pace.end_run()
        self._pace.due = True
        self._line.forget(self.carried_over)

    def learn(self, drafter: str, drafts: int, seconds: float) -> float:
        """Record the time of a round or plain step; return the cost that counts, in plain steps."""
        if drafter == PLAIN:
            self._pace.learn(seconds)
            self._rounds = 0
            return 1.0
        self._pace.end_run()
        expected = self.of(drafter, drafts)
        unit = self._pace.seconds or seconds / expected
        self._rounds += 1
        if self._rounds >= self.again or seconds * Pace.agree < unit:  # no round is quicker than a plain step
            self._pace.due = True
        return self._judge(drafter, drafts, max(1.0, seconds / unit), expected)

    def _judge(self, drafter: str, drafts: int, took: float, expected: float) -> float:
        """Learn a round's cost, or doubt it; return the cost to count now, with what an earlier doubt held back."""
        kind, credible = (drafter, drafts > BEND), expected + max(self.doubtful, expected - 1)
        doubted = self._doubts.pop(kind, None)
        if took > credible and doubted is None:
            self._doubts[kind] = drafts, took, credible
            self._pace.due = True
            return credible
        rest = 0.0
        if doubted is not None:
            earlier, steps, counted = doubted
            if took > credible:
                self._line.forget(self.changed)
                rest = steps - counted
            self._enter(drafter, earlier, counted + rest)
        elif took < expected - max(self.doubtful, (expected - 1) / 2):
            self._line.forget(self.changed)  # a round is never cheap by chance
        self._enter(drafter, drafts, took)
        return took + rest

    def _enter(self, drafter: str, drafts: int, took: float) -> None:
        self._line.learn(drafter, drafts, took)
        self._largest[drafter] = max(drafts, self._largest.get(drafter, 0))
