"""Decides which drafter proposes tokens in the next round, if any, and how many.

The worth of a round is its committed tokens per second: ``(1 + expected accepted) / cost``. The expectation comes from
recently accepted drafts, the cost from the times of rounds. If no round is worth more than plain decoding, plain
decoding runs, pipelined and as fast as without a drafter.

An account bounds the loss from wrong estimates. Its unit is a plain step. A round adds the tokens that it commits, and
subtracts its cost. While the account is negative, no round runs. It begins with one step and grows by ``SHARE``
of a step with each token. So an answer takes at most this share more time than plain decoding, one step and one round.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf

from engine.dflash.kinds import DFLASH, KINDS
from engine.dflash.propose.acceptance import Acceptance
from engine.dflash.propose.costs import LOOKUP, PLAIN, Measured, Nominal

SIZES = (1, 2, 3, 5, 7, 11, 15)  # drafts per round; few sizes, because each has its own kernels and costs
SURE = 2  # tokens that have to agree before a fixed policy uses a match
LENGTHS = (1, 2, 3, 5, 8, 16)  # upper bounds of the groups of match lengths that share an estimate
GAIN = 1.05  # a round pays if it is at least this many times as fast as plain decoding: less may be noise
SHARE = 0.03  # of a plain step per token: the loss that rounds may cause
TRIALS = 0.01  # the same for trials, which are expected to lose and show whether drafts pay by now
CREDIT = 1.0  # plain steps that an answer's rounds may lose before it has tokens


@dataclass(frozen=True)
class RoundPlan:
    """What to do next."""

    drafter: str  # a kind of drafter, `lookup` or `none`
    size: int  # drafts to verify in one round; for `none`, the most plain tokens before asking again


class Policy:
    """Chooses plans, and learns how often each drafter is right. The next generation may use the same policy."""

    def __init__(self) -> None:
        self.accepted = {
            **{name: Acceptance(kind.prior) for name, kind in KINDS.items()},
            LOOKUP: Acceptance(0.4, misses=0.67, places=LENGTHS),
        }

    def begin(self) -> None:
        """Begin a generation. Estimates from earlier ones are kept."""

    def choose(self, room: int, block: int, match: int, *, model: int, kind: str = DFLASH) -> RoundPlan:
        """Return the next plan.

        Args:
            room: tokens that may still be committed, at least 1.
            block: the most rows that the target may verify at once.
            match: how many of the last tokens agree with the looked-up match; 0 without one.
            model: the most rows of a block of the draft model; 0 without one.
            kind: of the draft model.
        """
        raise NotImplementedError

    def wants_drafts(self, room: int, block: int, match: int) -> bool:
        """Return whether a match is worth leaving plain decoding for."""
        raise NotImplementedError

    def observe_matches(self, met: Iterable[tuple[int, bool]]) -> None:
        """Record for matches, used or not, their length and whether they predicted the answer's next token."""
        for length, right in met:
            self.accepted[LOOKUP].learn(1, int(right), length)

    def learn(self, plan: RoundPlan, match: int, accepted: int, seconds: float) -> None:  # noqa: ARG002
        """Record the outcome and cost of a round or plain step. Matches are recorded by ``observe_matches`` instead."""
        if plan.drafter in KINDS:
            self.accepted[plan.drafter].learn(plan.size, accepted)

    def expected(self, plan: RoundPlan, match: int) -> float:
        """Return how many drafts of a plan will be accepted, on average."""
        return self.accepted[plan.drafter].expected(plan.size, match if plan.drafter == LOOKUP else 0)


class Fixed(Policy):
    """Always proposes the whole block, from the drafter that is right more often. Uses no clock."""

    def choose(self, room: int, block: int, match: int, *, model: int, kind: str = DFLASH) -> RoundPlan:
        """See ``Policy``."""
        plans = _largest(room, block, match if match >= SURE else 0, model, kind)
        return max(plans, key=lambda plan: self.expected(plan, match), default=RoundPlan(PLAIN, room))

    def wants_drafts(self, room: int, block: int, match: int) -> bool:
        """See ``Policy``."""
        return match >= SURE and min(block, room) > 1


class Adaptive(Policy):
    """Chooses the plan with the highest estimated worth, and keeps the account; see the module.

    Args:
        costs: measured by default; ``Nominal`` makes the same decisions every time. The account then uses
            nominal costs, and sets no bound if real costs are higher.
    """

    def __init__(self, costs: Nominal | None = None) -> None:
        super().__init__()
        self.costs = Measured() if costs is None else costs
        self._credit = CREDIT
        self._trial_in = 0.0  # tokens until the next trial
        self._pace = 1.0  # tokens in the time of a plain step without a trial
        self._rounds = 0
        self._used: dict[str, int] = {}  # drafter -> the number of its last round

    def begin(self) -> None:
        """See ``Policy``. Of an earlier answer's balance, at most ``CREDIT`` steps, gained or lost, remain."""
        self.costs.begin()
        self._credit = max(-CREDIT, min(self._credit, CREDIT))

    def choose(self, room: int, block: int, match: int, *, model: int, kind: str = DFLASH) -> RoundPlan:
        """See ``Policy``."""
        best = self._best(room, block, match, model=model, kind=kind)
        if not best:
            return RoundPlan(PLAIN, room)
        if sample := self.costs.measurements_due():
            return RoundPlan(PLAIN, min(room, sample))
        paying = [plan for plan in best if self._pays(plan, match)]
        plan = max(
            paying,
            key=lambda plan: (plan.drafter not in self._used, self._worth(plan, match)),
            default=None,
        )
        others = [plan for plan in best if plan not in paying]
        trial = min(others, key=lambda plan: self._used.get(plan.drafter, 0), default=None)
        self._pace = self._worth(plan, match) if plan else 1.0
        wait = inf  # plain tokens until a plan that does not pay may be tried
        if trial:
            needed = min(CREDIT, self.costs.of(trial.drafter, trial.size) - 1)
            wait = max(self._trial_in, (needed - self._credit) / SHARE)
            if wait <= 0:
                return trial
        if plan:
            wait = -self._credit / SHARE
        if plan and wait < 0:
            return plan
        return RoundPlan(PLAIN, int(min(room, max(1, ceil(wait)))))

    def wants_drafts(self, room: int, block: int, match: int) -> bool:
        """See ``Policy``."""
        if self._credit <= 0 or self.costs.measurements_due():
            return False
        return any(self._pays(plan, match) for plan in self._best(room, block, match, model=0))

    def learn(self, plan: RoundPlan, match: int, accepted: int, seconds: float) -> None:
        """See ``Policy``."""
        trial = plan.drafter != PLAIN and not self._pays(plan, match)
        super().learn(plan, match, accepted, seconds)
        tokens, cost = accepted + 1, self.costs.learn(plan.drafter, plan.size, seconds)
        self._credit += tokens - cost + SHARE * tokens
        self._trial_in -= tokens
        if plan.drafter == PLAIN:
            return
        self._rounds += 1
        self._used[plan.drafter] = self._rounds
        if trial:
            self._trial_in = max(0.0, cost * self._pace - tokens) / TRIALS

    def _best(self, room: int, block: int, match: int, *, model: int, kind: str = DFLASH) -> list[RoundPlan]:
        """Return the best plan of each drafter that can propose now."""
        return [
            max(self._within_means(most), key=lambda plan: self._worth(plan, match))
            for most in _largest(room, block, match, model, kind)
        ]

    def _within_means(self, most: RoundPlan) -> list[RoundPlan]:
        """Return plans that lose no more than the credit if every draft is rejected. One draft is always allowed."""
        drafter, limit = most.drafter, min(most.size, self.costs.most(most.drafter))
        sizes = (size for size in {*SIZES, limit} if size <= limit)
        return [
            RoundPlan(drafter, size)
            for size in sizes
            if size == 1 or self.costs.of(drafter, size) - 1 <= self._credit
        ]

    def _worth(self, plan: RoundPlan, match: int) -> float:
        """Return the expected number of committed tokens in the time of a plain step."""
        return (1 + self.expected(plan, match)) / self.costs.of(plan.drafter, plan.size)

    def _pays(self, plan: RoundPlan, match: int) -> bool:
        return self._worth(plan, match) > GAIN


def _largest(room: int, block: int, match: int, model: int, kind: str) -> list[RoundPlan]:
    """Return the plan with the most drafts of each drafter that can propose now; see ``Policy.choose``."""
    rows = {kind: min(model, block), LOOKUP: block if match else 0}
    most = {drafter: min(count, room) - 1 for drafter, count in rows.items()}
    return [RoundPlan(drafter, size) for drafter, size in most.items() if size > 0]
