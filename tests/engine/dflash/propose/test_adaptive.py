"""The adaptive policy in a simulated world, whose costs and drafts are known."""

import random

import pytest

from engine.dflash.propose.adaptive import PROBE_MOST, Adaptive, Fixed, Plan
from engine.dflash.propose.estimates import Acceptance, Measured, Nominal

PLAIN = 5e-3  # seconds a plain step takes in this world


class World:
    """Decodes tokens of which drafts are right with known probabilities, at known costs.

    Args:
        right: for each drafter, how likely the next draft is right.
        row: cost of one more row to verify, in plain steps.
        draft: cost of a draft, in plain steps.
        noise: relative spread of times; one time in fifty is ten times as long.
    """

    def __init__(self, right, row=0.1, draft=0.6, noise=0.1, seed=0):
        self.right, self.row, self.draft, self.noise = right, row, draft, noise
        self.rng = random.Random(seed)
        self.seconds = self.spent = 0.0
        self.plans = []

    def cost(self, plan):
        if plan.drafter == "none":
            return PLAIN
        return PLAIN * (1 + self.row * plan.size + (self.draft if plan.drafter == "dflash" else 0))

    def run(self, policy, tokens, block=16, match=0):
        model, done = "dflash" in self.right, 0
        while done < tokens:
            plan = policy.choose(tokens - done, block, match, model=model)
            self.plans.append(plan)
            for _ in range(plan.size if plan.drafter == "none" else 1):
                done += self._round(policy, plan, match)
        return self.spent / (done * PLAIN)

    def _round(self, policy, plan, match):
        accepted = 0
        while plan.drafter != "none" and accepted < plan.size:
            if self.rng.random() > self.right[plan.drafter]:
                break
            accepted += 1
        self.spent += self.cost(plan)
        slow = 10 if self.rng.random() < 0.02 else 1
        self._tell(policy, plan, match, accepted)
        policy.learn(plan, match, accepted, self.cost(plan) * slow * self.rng.gauss(1, self.noise))
        return accepted + 1

    def _tell(self, policy, plan, match, accepted):
        """A match foretells each committed token or not, whoever drafted it."""
        for i in range(accepted + 1 if match else 0):
            right = i < accepted if plan.drafter == "lookup" else self.rng.random() < self.right["lookup"]
            policy.heed([(match, right)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("right", "most"),
    [(0.0, 1.04), (0.2, 1.04), (0.4, 1.04), (0.6, 1.02), (0.8, 0.75), (0.9, 0.5), (0.97, 0.3)],
)
def test_never_slower_than_plain_decoding_and_faster_where_drafts_are_right(right, most, seed):
    assert World({"dflash": right}, seed=seed).run(Adaptive(), 1000) < most


def test_costly_verification_keeps_blocks_small():
    cheap, costly = World({"dflash": 0.8}, row=0.02), World({"dflash": 0.8}, row=0.35)
    assert cheap.run(Adaptive(), 2000) < costly.run(Adaptive(), 2000) < 1.04

    def usual(world):
        sizes = [plan.size for plan in world.plans[20:] if plan.drafter == "dflash"]
        return sorted(sizes)[len(sizes) // 2]

    assert usual(costly) <= 5 < usual(cheap)


def test_the_better_drafter_is_chosen():
    for right, chosen in (
        ({"dflash": 0.9, "lookup": 0.3}, "dflash"),
        ({"dflash": 0.3, "lookup": 0.9}, "lookup"),
    ):
        world = World(right)
        assert world.run(Adaptive(), 1000, match=20) < 0.6
        picked = [plan.drafter for plan in world.plans[20:]]
        assert picked.count(chosen) > 0.8 * len(picked)


def test_hopeless_drafts_are_tried_ever_more_seldom_but_not_given_up():
    world, policy = World({"dflash": 0.0}), Adaptive()
    world.run(policy, 3000)
    tries = [plan for plan in world.plans[10:] if plan.drafter != "none"]
    assert 3000 / PROBE_MOST / 2 < len(tries) < 40
    world.right, world.plans = {"dflash": 0.95}, []
    world.run(policy, 3000)
    assert sum(plan.drafter == "dflash" for plan in world.plans) > 100


@pytest.mark.parametrize("make", [lambda: Adaptive(Nominal()), Fixed])
def test_decisions_without_a_clock_can_be_repeated(make):
    def plans(noise):
        world = World({"dflash": 0.7, "lookup": 0.7}, noise=noise)
        world.rng = _Even(world.rng)
        world.run(make(), 500, match=9)
        return world.plans

    assert plans(0.0) == plans(5.0)


class _Even:
    """The same draws of right and wrong, whatever the noise."""

    def __init__(self, rng):
        self.random, self.gauss = rng.random, lambda mean, spread: mean + spread


def test_what_fits_into_the_room():
    for policy in (Adaptive(Nominal()), Fixed()):
        assert policy.choose(1, 16, 9, model=True) == Plan("none", 1)
        assert policy.choose(9, 1, 9, model=True) == Plan("none", 9)
        assert policy.choose(9, 16, 0, model=False) == Plan("none", 9)
        for room in range(2, 20):
            plan = policy.choose(room, 8, 20, model=True)
            assert plan.drafter != "none"
            assert 1 <= plan.size <= min(room, 8) - 1
    assert Fixed().choose(99, 16, 0, model=True) == Plan("dflash", 15)


def test_a_match_interrupts_plain_decoding_only_where_it_pays():
    policy = Adaptive(Nominal())
    assert policy.tempting(99, 16, 20)
    assert not policy.tempting(99, 16, 0)
    assert not policy.tempting(1, 16, 20)
    assert policy.tempting(99, 16, 3)
    policy.heed([(20, False)] * 20)
    assert not policy.tempting(99, 16, 20)
    assert policy.tempting(99, 16, 3)


def test_acceptance_is_learnt_by_position():
    belief = Acceptance(0.5)
    assert belief.expected(0) == 0
    assert belief.expected(2) == 0.75
    for _ in range(200):
        belief.learn(4, 2)
    assert belief.expected(2) == pytest.approx(2, abs=0.15)
    assert belief.expected(8) == pytest.approx(2, abs=0.3)
    assert belief.expected(1, 2) < 0.1


def test_a_longer_match_is_believed_more_and_neighbours_share_what_was_seen():
    belief = Acceptance(0.4, misses=0.5, places=(1, 2, 4))
    first, second, third, beyond = (belief.expected(1, length) for length in (1, 2, 3, 9))
    assert (first, second, third, beyond) == pytest.approx((0.4, 0.7, 0.85, 0.925))
    assert belief.expected(2, 1) == pytest.approx(first + first * second)
    for _ in range(50):
        belief.learn(1, 0, 4)
    assert belief.expected(1, 3) == belief.expected(1, 4) < 0.1
    assert belief.expected(1, 2) == pytest.approx(second)


def test_costs_between_and_beyond_what_was_measured():
    costs = Measured()
    assert (costs.plain(), costs.of("dflash", 3)) == (1.0, Nominal().of("dflash", 3))
    for drafts, seconds in ((4, 0.020), (8, 0.028)):
        costs.learn("dflash", drafts, seconds)
    costs.learn("none", 0, 0.010)
    costs.settle()
    assert costs.of("dflash", 6) == pytest.approx(0.024)
    assert costs.of("dflash", 16) > costs.of("dflash", 8)
    assert costs.plain() < costs.of("dflash", 1) < costs.of("dflash", 4)
    for _ in range(5):
        costs.learn("dflash", 4, 1e-6)
    assert costs.of("dflash", 4) == costs.plain()


def test_plain_steps_are_measured_by_the_run():
    costs = Measured()
    for seconds in (0.02, 0.01, 0.01, 0.0):  # the first waits for two forwards, the last for none
        costs.learn("none", 0, seconds)
    assert costs.plain() == 1.0
    costs.settle()
    costs.settle()
    assert costs.plain() == pytest.approx(0.01)
    costs.learn("none", 0, 0.5)  # of a run that goes on
    assert costs.plain() == pytest.approx(0.01)
    costs.settle()
    costs.learn("none", 0, 0.01)
    costs.settle()
    assert costs.plain() == pytest.approx(0.01)
