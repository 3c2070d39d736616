"""Which drafter proposes how many tokens in the next round, or none.

A round is worth its committed tokens a second: ``(1 + expected accepted) / cost``. What is expected comes from
what was accepted lately, the cost from what rounds took. Where no round is worth more than plain decoding,
plain decoding runs (pipelined, as fast as without a drafter) and is interrupted ever more seldom to try again.
"""

from dataclasses import dataclass
from typing import Protocol

from engine.dflash.estimates import PLAIN, Acceptance, Measured, Nominal

SIZES = (1, 2, 3, 5, 7, 11, 15)  # drafts a round; few sizes, since each has its own kernels and costs
LONG_MATCH = 8  # tokens that agree before a looked-up match counts as a long one
SAMPLE = 4  # plain steps to measure at once
GAIN = 1.05  # times as fast as plain decoding, or it is not worth it: less is within the noise
PROBE, PROBE_MOST = 16, 256  # plain tokens before speculation is tried again: four times as many each time
TRIES = 3  # rounds of a trial whose drafts are not all refused: one clock reading may be far off


@dataclass(frozen=True)
class Plan:
    """What to do next.

    Attributes:
        drafter: ``dflash``, ``lookup`` or ``none``.
        size: drafts to verify in one round; for ``none``, the most plain tokens before asking again.
    """

    drafter: str
    size: int


class Policy(Protocol):
    """Chooses plans, and learns from what came of them. It may be kept from one generation to the next."""

    def choose(self, room: int, block: int, match: int, *, model: bool) -> Plan:
        """Return the next plan.

        Args:
            room: tokens that may still be committed, at least 1.
            block: the most rows that the target is to verify at once.
            match: how many tokens agree with the looked-up match; 0 without one.
            model: whether there is a draft model.
        """

    def tempting(self, room: int, block: int, match: int) -> bool:
        """Return whether a match is worth leaving plain decoding for."""

    def learn(self, plan: Plan, match: int, accepted: int, seconds: float) -> None:
        """Take in what one round, or one plain step of a run, gave and took."""


class Fixed:
    """Always the whole block, of the drafter that had more accepted lately: decisions without a clock."""

    def __init__(self) -> None:
        self.accepted = _beliefs()

    def choose(self, room: int, block: int, match: int, *, model: bool) -> Plan:
        """See :class:`Policy`."""
        size = min(block, room) - 1
        kinds = ["dflash"] * model + ["lookup"] * bool(match)
        if size < 1 or not kinds:
            return Plan(PLAIN, room)
        return Plan(max(kinds, key=lambda kind: self.accepted[_arm(kind, match)].expected(size)), size)

    def tempting(self, room: int, block: int, match: int) -> bool:
        """See :class:`Policy`."""
        return match > 0 and min(block, room) > 1

    def learn(self, plan: Plan, match: int, accepted: int, seconds: float) -> None:  # noqa: ARG002
        """See :class:`Policy`."""
        if plan.drafter != PLAIN:
            self.accepted[_arm(plan.drafter, match)].learn(plan.size, accepted)


class Adaptive:
    """Whatever is worth most by the estimates; see the module.

    Args:
        costs: measured by default; :class:`Nominal` makes the same decisions every time.
    """

    def __init__(self, costs: Nominal | None = None) -> None:
        self.costs = Measured() if costs is None else costs
        self.accepted = _beliefs()
        self._rounds = 0  # with drafts, since the last plain step
        self._wait = self._due = PROBE
        self._trial = 0  # rounds left of the trial
        self._tries = 0
        self._tried: dict[str, int] = {}  # drafter -> the number of its last trial

    def choose(self, room: int, block: int, match: int, *, model: bool) -> Plan:
        """See :class:`Policy`."""
        best = self._best(room, block, match, model=model)
        if not best:
            return Plan(PLAIN, room)
        if self.costs.stale(self._rounds):
            return Plan(PLAIN, min(room, SAMPLE))
        plan = max(best, key=lambda plan: self._worth(plan, match))
        if self._pays(plan, match):
            return plan
        if self._trial == 0:
            if self._due > 0:
                return Plan(PLAIN, min(room, self._due))
            self._wait = self._due = min(4 * self._wait, PROBE_MOST)
            self._trial = TRIES
        return min(best, key=lambda plan: self._tried.get(plan.drafter, 0))

    def tempting(self, room: int, block: int, match: int) -> bool:
        """See :class:`Policy`."""
        return any(self._pays(plan, match) for plan in self._best(room, block, match, model=False))

    def learn(self, plan: Plan, match: int, accepted: int, seconds: float) -> None:
        """See :class:`Policy`."""
        if plan.drafter == PLAIN:
            self.costs.learn(PLAIN, 0, seconds)
            self._rounds = 0
            self._due -= 1
            return
        self.costs.learn(plan.drafter, plan.size, seconds)
        self.accepted[_arm(plan.drafter, match)].learn(plan.size, accepted)
        self._rounds += 1
        self._trial = max(0, self._trial - 1) if accepted else 0
        if self._trial == 0:
            self._tries += 1
            self._tried[plan.drafter] = self._tries
        if self._pays(plan, match):
            self._wait = self._due = PROBE

    def _best(self, room: int, block: int, match: int, *, model: bool) -> list[Plan]:
        """Return the best plan of each drafter that can propose now."""
        most = min(block, room) - 1
        sizes = [size for size in {*SIZES, block - 1} if 0 < size <= most]
        kinds = ["dflash"] * model + ["lookup"] * bool(match)
        return [
            max((Plan(kind, size) for size in sizes), key=lambda plan: self._worth(plan, match))
            for kind in kinds * bool(sizes)
        ]

    def _worth(self, plan: Plan, match: int) -> float:
        """Return the committed tokens a second that a round promises."""
        expected = self.accepted[_arm(plan.drafter, match)].expected(plan.size)
        return (1 + expected) / self.costs.of(plan.drafter, plan.size)

    def _pays(self, plan: Plan, match: int) -> bool:
        return self._worth(plan, match) * self.costs.plain() > GAIN


def _beliefs() -> dict[str, Acceptance]:
    return {"dflash": Acceptance(0.7), "lookup": Acceptance(0.5), "lookup, long": Acceptance(0.9)}


def _arm(kind: str, match: int) -> str:
    return "lookup, long" if kind == "lookup" and match >= LONG_MATCH else kind
