"""Decides which drafter proposes tokens in the next round, if any, and how many.

A round is worth its committed tokens a second: ``(1 + expected accepted) / cost``. What is expected comes from
what was accepted lately, the cost from what rounds took. Where no round is worth more than plain decoding,
plain decoding runs (pipelined, as fast as without a drafter) and is interrupted ever more seldom to try again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from engine.dflash.propose.estimates import PLAIN, Acceptance, Measured, Nominal

SIZES = (1, 2, 3, 5, 7, 11, 15)  # drafts a round; few sizes, since each has its own kernels and costs
SURE = 2  # tokens that have to agree before a match is used unasked
LENGTHS = (1, 2, 3, 5, 8, 16)  # of matches that are believed alike: up to each, and beyond
SAMPLE = 2  # plain steps to measure at once
GAIN = 1.05  # times as fast as plain decoding, or it is not worth it: less is within the noise
PROBE, PROBE_MOST = 16, 256  # plain tokens before speculation is tried again: four times as many each time
TRIES = 3  # rounds of a trial whose drafts are not all refused: one clock reading may be far off


@dataclass(frozen=True)
class RoundPlan:
    """What to do next.

    Attributes:
        drafter: ``dflash``, ``lookup`` or ``none``.
        size: drafts to verify in one round; for ``none``, the most plain tokens before asking again.
    """

    drafter: str
    size: int


class Policy(Protocol):
    """Chooses plans, and learns from their outcome. It may be kept from one generation to the next."""

    def begin(self) -> None:
        """A generation begins. What earlier ones taught is kept."""

    def choose(self, room: int, block: int, match: int, *, model: int) -> RoundPlan:
        """Return the next plan.

        Args:
            room: tokens that may still be committed, at least 1.
            block: the most rows that the target is to verify at once.
            match: how many tokens agree with the looked-up match; 0 without one.
            model: the most rows of a block of the draft model; 0 without one.
        """

    def tempting(self, room: int, block: int, match: int) -> bool:
        """Return whether a match is worth leaving plain decoding for."""

    def heed(self, met: Iterable[tuple[int, bool]]) -> None:
        """Record the lengths of matches and whether they predicted the next token of the answer, used or not."""

    def learn(self, plan: RoundPlan, match: int, accepted: int, seconds: float) -> None:
        """Record the outcome and the cost of one round, or of one plain step."""


class EstimatingPolicy:
    """Base of both policies: estimates how often each drafter is right."""

    def __init__(self) -> None:
        self.accepted = {
            "dflash": Acceptance(0.55),
            "lookup": Acceptance(0.4, misses=0.67, places=LENGTHS),
        }

    def begin(self) -> None:
        """See :class:``Policy``."""

    def heed(self, met: Iterable[tuple[int, bool]]) -> None:
        """See :class:``Policy``."""
        for length, right in met:
            self.accepted["lookup"].learn(1, int(right), length)

    def learn(self, plan: RoundPlan, match: int, accepted: int, seconds: float) -> None:  # noqa: ARG002
        """See :class:``Policy``. Lookup is left out: ``heed`` records how often its matches are right."""
        if plan.drafter == "dflash":
            self.accepted["dflash"].learn(plan.size, accepted)

    def expected(self, plan: RoundPlan, match: int) -> float:
        """Return how many drafts of a plan will be accepted, on average."""
        return self.accepted[plan.drafter].expected(plan.size, match if plan.drafter == "lookup" else 0)


class Fixed(EstimatingPolicy):
    """Always proposes the whole block, from the drafter that is right more often. Uses no clock."""

    def choose(self, room: int, block: int, match: int, *, model: int) -> RoundPlan:
        """See :class:``Policy``."""
        plans = _largest(room, block, match if match >= SURE else 0, model)
        return max(plans, key=lambda plan: self.expected(plan, match), default=RoundPlan(PLAIN, room))

    def tempting(self, room: int, block: int, match: int) -> bool:
        """See :class:``Policy``."""
        return match >= SURE and min(block, room) > 1


class Adaptive(EstimatingPolicy):
    """Chooses the plan with the highest estimated worth; see the module.

    Args:
        costs: measured by default; :class:``Nominal`` makes the same decisions every time.
    """

    def __init__(self, costs: Nominal | None = None) -> None:
        super().__init__()
        self.costs = Measured() if costs is None else costs
        self._rounds = 0  # with drafts, since the last plain step
        self._wait = self._due = PROBE
        self._trial = 0  # rounds left of the trial
        self._tries = 0
        self._tried: dict[str, int] = {}  # drafter -> the number of its last trial

    def begin(self) -> None:
        """See :class:``Policy``. What did not pay is tried again as early as in the first generation."""
        self.costs.begin()
        self._wait = self._due = PROBE
        self._trial = 0

    def choose(self, room: int, block: int, match: int, *, model: int) -> RoundPlan:
        """See :class:``Policy``."""
        self.costs.settle()
        best = self._best(room, block, match, model=model)
        if not best:
            return RoundPlan(PLAIN, room)
        if self.costs.stale(self._rounds):
            return RoundPlan(PLAIN, min(room, SAMPLE))
        plan = max(best, key=lambda plan: self._worth(plan, match))
        if self._pays(plan, match):
            return plan
        if self._trial == 0:
            if self._due > 0:
                return RoundPlan(PLAIN, min(room, self._due))
            self._wait = self._due = min(4 * self._wait, PROBE_MOST)
            self._trial = TRIES
        return min(best, key=lambda plan: self._tried.get(plan.drafter, 0))

    def tempting(self, room: int, block: int, match: int) -> bool:
        """See :class:``Policy``."""
        return any(self._pays(plan, match) for plan in self._best(room, block, match, model=0))

    def learn(self, plan: RoundPlan, match: int, accepted: int, seconds: float) -> None:
        """See :class:``Policy``."""
        super().learn(plan, match, accepted, seconds)
        if plan.drafter == PLAIN:
            self.costs.learn(PLAIN, 0, seconds)
            self._rounds = 0
            self._due -= 1
            return
        self.costs.learn(plan.drafter, plan.size, seconds)
        self._rounds += 1
        self._trial = max(0, self._trial - 1) if accepted else 0
        if self._trial == 0:
            self._tries += 1
            self._tried[plan.drafter] = self._tries
        if self._pays(plan, match):
            self._wait = self._due = PROBE

    def _best(self, room: int, block: int, match: int, *, model: int) -> list[RoundPlan]:
        """Return the best plan of each drafter that can propose now."""
        return [
            max(
                (RoundPlan(most.drafter, size) for size in {*SIZES, most.size} if size <= most.size),
                key=lambda plan: self._worth(plan, match),
            )
            for most in _largest(room, block, match, model)
        ]

    def _worth(self, plan: RoundPlan, match: int) -> float:
        """Return the expected number of committed tokens in the time of a plain step."""
        return (1 + self.expected(plan, match)) / self.costs.of(plan.drafter, plan.size)

    def _pays(self, plan: RoundPlan, match: int) -> bool:
        return self._worth(plan, match) > GAIN


def _largest(room: int, block: int, match: int, model: int) -> list[RoundPlan]:
    """Return the plan with the most drafts of each drafter that can propose now; see :meth:``Policy.choose``."""
    rows = {"dflash": min(model, block), "lookup": block if match else 0}
    most = {drafter: min(count, room) - 1 for drafter, count in rows.items()}
    return [RoundPlan(drafter, size) for drafter, size in most.items() if size > 0]
