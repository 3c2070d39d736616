"""What adaptive decoding knows: how many drafts tend to be accepted, and what rounds cost."""

from collections import deque
from statistics import median

PLAIN = "none"


class Acceptance:
    """How likely the next draft is accepted once those before it were, by position, lately.

    Args:
        prior: what is believed before anything was seen.
        weight: how many observations that belief is worth; at later positions the one before is believed.
        memory: what an observation is worth after one more round.
    """

    def __init__(self, prior: float, weight: float = 1.0, memory: float = 0.97) -> None:
        self.prior, self.weight, self.memory = prior, weight, memory
        self._hits: list[float] = []
        self._tries: list[float] = []
        self._expected = [0.0]

    def learn(self, proposed: int, accepted: int) -> None:
        """Count one round: the first ``accepted`` of ``proposed`` drafts stayed, the next did not."""
        new = [0.0] * max(0, proposed - len(self._tries))
        self._hits = [self.memory * x for x in self._hits] + new
        self._tries = [self.memory * x for x in self._tries] + new
        for i in range(min(accepted + 1, proposed)):
            self._tries[i] += 1
            self._hits[i] += i < accepted
        self._expected = [0.0]

    def expected(self, drafts: int) -> float:
        """Return how many of this many drafts will be accepted, on average."""
        if drafts >= len(self._expected):
            self._expect(drafts)
        return self._expected[drafts]

    def _expect(self, most: int) -> None:
        belief, reached, self._expected = self.prior, 1.0, [0.0]
        for i in range(most):
            if i < len(self._tries):
                belief = (self._hits[i] + self.weight * belief) / (self._tries[i] + self.weight)
            reached *= belief
            self._expected.append(self._expected[-1] + reached)


class Nominal:
    """Costs in plain steps that depend on nothing measured, so that decisions can be repeated.

    The figures are those of a model of a few million parameters on a CPU: a tenth of a step for each row more,
    three fifths for a draft.
    """

    row, draft = 0.1, 0.6

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


class Measured(Nominal):
    """Costs as they were measured: the median of the last few rounds of each kind and size.

    A size that was not seen lies on the line between its neighbours; beyond them, and before anything was
    seen, the nominal proportions hold.
    """

    last = 5
    warm, again = 2, 64  # rounds before plain steps are measured first, and at most until they are again

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], deque[float]] = {}
        self._usual: dict[str, dict[int, float]] = {}  # drafter -> drafts -> the median
        self._patience, self._fresh = self.warm, False

    def learn(self, drafter: str, drafts: int, seconds: float) -> None:
        """Keep one measurement, of a round or of one plain step."""
        if drafter != PLAIN:
            self._fresh = False
        elif not self._fresh:  # a first measurement is trusted less than those after it
            self._fresh, self._patience = True, min(self.again, 4 * self._patience)
        seen = self._seen.setdefault((drafter, drafts), deque(maxlen=self.last))
        seen.append(seconds)
        self._usual.setdefault(drafter, {})[drafts] = median(seen)

    def plain(self) -> float:
        """Return the seconds of a plain step; before one was measured, what the rounds suggest."""
        if PLAIN in self._usual:
            return self._usual[PLAIN][0]
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
