"""The adaptive policy in a simulated world, whose costs and drafts are known."""

import random

import pytest

from engine.dflash.kinds import KINDS
from engine.dflash.propose.acceptance import Acceptance
from engine.dflash.propose.adaptive import Adaptive, Fixed, RoundPlan
from engine.dflash.propose.costs import Measured, Nominal

PLAIN = 5e-3  # seconds a plain step takes in this world


class World:
    """Decodes tokens of which drafts are right with known probabilities, at known costs.

    Args:
        right: for each drafter, how likely the next draft is right.
        row: cost of one more row to verify, in plain steps.
        draft: cost of a draft, in plain steps: of a block, or of each draft of a chain.
        noise: relative spread of times.
        slow: share of times that are ten times as long.
    """

    def __init__(self, right, row=0.1, draft=0.6, noise=0.1, slow=0.02, seed=0):
        self.right, self.row, self.draft, self.noise, self.slow = right, row, draft, noise, slow
        self.rng = random.Random(seed)
        self.seconds = self.spent = 0.0
        self.plans = []

    def cost(self, plan):
        if plan.drafter == "none":
            return PLAIN
        if plan.drafter in IN_TURN:
            return PLAIN * (1 + (self.row + self.draft) * plan.size)
        return PLAIN * (1 + self.row * plan.size + (self.draft if plan.drafter == "dflash" else 0))

    def run(self, policy, tokens, block=16, match=0):
        kind, done = next((name for name in self.right if name in KINDS), None), 0
        while done < tokens:
            model = {"model": block, "kind": kind} if kind else {"model": 0}
            plan = policy.choose(tokens - done, block, match, **model)
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
        slow = 10 if self.rng.random() < self.slow else 1
        self._tell(policy, plan, match, accepted)
        policy.learn(plan, match, accepted, self.cost(plan) * slow * self.rng.gauss(1, self.noise))
        return accepted + 1

    def _tell(self, policy, plan, match, accepted):
        """A match foretells each committed token or not, whoever drafted it."""
        for i in range(accepted + 1 if match else 0):
            right = i < accepted if plan.drafter == "lookup" else self.rng.random() < self.right["lookup"]
            policy.observe_matches([(match, right)])


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
    assert 10 < len(tries) < 60
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
        assert policy.choose(1, 16, 9, model=16) == RoundPlan("none", 1)
        assert policy.choose(9, 1, 9, model=16) == RoundPlan("none", 9)
        assert policy.choose(9, 16, 0, model=0) == RoundPlan("none", 9)
        for room in range(2, 20):
            plan = policy.choose(room, 8, 20, model=8)
            assert plan.drafter != "none"
            assert 1 <= plan.size <= min(room, 8) - 1
    assert Fixed().choose(99, 16, 0, model=16) == RoundPlan("dflash", 15)


def test_a_match_interrupts_plain_decoding_only_where_it_pays():
    policy = Adaptive(Nominal())
    assert policy.wants_drafts(99, 16, 20)
    assert not policy.wants_drafts(99, 16, 0)
    assert not policy.wants_drafts(1, 16, 20)
    assert policy.wants_drafts(99, 16, 3)
    policy.observe_matches([(20, False)] * 20)
    assert not policy.wants_drafts(99, 16, 20)
    assert policy.wants_drafts(99, 16, 3)


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


def cost(drafter, drafts):
    """A row costs a fifth of a step, from the eighth draft on a twentieth; a draft model half of one."""
    return 1 + 0.2 * min(drafts, 7) + 0.05 * max(0, drafts - 7) + 0.5 * (drafter == "dflash")


def run_plain(costs, seconds, steps=2):
    """Let costs see plain steps, at least as many as they ask for."""
    for _ in range(steps):
        costs.learn("none", 0, seconds)
    while costs.measurements_due():
        costs.learn("none", 0, seconds)


def taught(costs, rounds, scale=1.0, times=40):
    """Let costs see rounds as they are in a certain world, and plain steps when they ask for them."""
    for _ in range(times):
        for drafter, drafts in rounds:
            run_plain(costs, scale, costs.measurements_due())
            costs.learn(drafter, drafts, scale * cost(drafter, drafts))
    return costs


BOTH = [("dflash", 3), ("dflash", 7), ("lookup", 2), ("lookup", 15)]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 50.0])
def test_costs_between_and_beyond_what_was_measured(scale):
    costs = Measured()
    assert costs.of("dflash", 3) == Nominal().of("dflash", 3)
    taught(costs, BOTH, scale)
    assert costs.of("dflash", 5) == pytest.approx(2.5, rel=0.1)
    assert costs.of("lookup", 7) == pytest.approx(2.4, rel=0.1)
    assert costs.of("lookup", 31) == pytest.approx(3.6, rel=0.1)


def test_a_machine_that_slows_down_changes_no_cost():
    costs = taught(Measured(), BOTH)
    before = costs.of("lookup", 7)
    taught(costs, BOTH, scale=4.0, times=1)
    assert costs.of("lookup", 7) == pytest.approx(before, rel=0.15)
    taught(costs, BOTH, scale=4.0, times=20)
    assert costs.of("lookup", 7) == pytest.approx(before, rel=0.05)


def test_a_busy_moment_changes_little_and_a_change_that_is_confirmed_counts():
    costs = taught(Measured(), [("lookup", 3), ("lookup", 15)])
    before = costs.of("lookup", 15)
    assert costs.learn("lookup", 15, 40.0) < 2 * before
    assert costs.learn("lookup", 15, cost("lookup", 15)) == pytest.approx(before, rel=0.1)
    assert costs.of("lookup", 15) < 1.3 * before
    counted = costs.learn("lookup", 15, 40.0) + costs.learn("lookup", 15, 40.0)
    assert counted == pytest.approx(80.0)
    assert costs.of("lookup", 15) > 15


def test_no_cost_stays_wrong_because_its_size_is_not_tried_again():
    costs = taught(Measured(), [("lookup", 3)])
    for _ in range(5):
        costs.learn("lookup", 15, 40.0)
    assert costs.of("lookup", 15) > 8
    assert taught(costs, [("lookup", 3)], times=200).of("lookup", 15) < 4


def test_a_round_costs_at_least_a_plain_step():
    costs = taught(Measured(), BOTH)
    for _ in range(100):
        costs.learn("dflash", 4, 1e-6)
    assert min(costs.of(*each) for each in BOTH) >= 1


def test_blocks_grow_with_what_was_measured():
    costs = Measured()
    run_plain(costs, 1.0)
    sizes = []
    for _ in range(4):
        sizes.append(costs.most("lookup"))
        costs.learn("lookup", sizes[-1], 1 + 0.1 * sizes[-1])
    assert sizes == [3, 7, 15, 31]
    assert costs.most("dflash") == 3


def test_plain_steps_are_measured_by_the_run():
    costs = taught(Measured(), BOTH)
    for seconds in [2.0, 1.0, 1.0, 0.0] * 20:  # the first waits for two, the last for none
        costs.learn("none", 0, seconds)
    assert costs.learn("lookup", 7, 2.4) == pytest.approx(2.4)


@pytest.mark.parametrize("pace", [0.5, 0.7, 1.0, 3.0])
def test_a_generation_measures_its_own_plain_steps_before_it_drafts(pace):
    costs = taught(Measured(), BOTH)
    costs.begin()
    steps = 0
    while costs.measurements_due():
        costs.learn("none", 0, pace)
        steps += 1
    assert 2 <= steps <= 6
    if pace in (0.5, 3.0):
        assert costs.learn("lookup", 7, 2.4 * pace) == pytest.approx(2.4, rel=0.01)


def test_a_round_that_is_cheaper_than_a_plain_step_asks_for_plain_steps():
    costs = taught(Measured(), BOTH)
    run_plain(costs, 1.0)
    assert not costs.measurements_due()
    costs.learn("lookup", 2, 0.5)
    assert costs.measurements_due()


IN_TURN = [name for name, kind in KINDS.items() if kind.turn is not None]
SLOPES, RIGHT, TOKENS = (0.02, 0.1, 0.3, 0.6, 1.0, 2.0), (0.0, 0.3, 0.6, 0.9), (8, 32, 128)


class Answers(World):
    """A world whose rounds of n drafts cost ``1 + row * n + draft`` steps, and which counts the dearest round."""

    dearest = 0.0

    def _round(self, policy, plan, match):
        self.dearest = max(self.dearest, self.cost(plan) / PLAIN)
        return super()._round(policy, plan, match)

    def answer(self, policy, tokens):
        """Return how many plain steps an answer took, and how many of them the bound allows."""
        policy.begin()
        self.spent = 0.0
        taken = self.run(policy, tokens, match=3 * ("lookup" in self.right)) * tokens
        return taken, 1.03 * tokens + 1 + self.dearest


def worlds(noise, slow=0.0):
    for drafter, draft in (("lookup", 0.0), ("dflash", 0.4), ("eagle3", 0.15)):
        for row in SLOPES:
            for right in RIGHT:
                yield Answers({drafter: right}, row=row, draft=draft, noise=noise, slow=slow, seed=1)


@pytest.mark.parametrize(("noise", "slack"), [(0.0, 0.0), (0.1, 1.0)])
@pytest.mark.parametrize("tokens", TOKENS)
def test_no_answer_takes_longer_than_the_bound(tokens, noise, slack):
    for world in worlds(noise):
        policy = Adaptive()
        for number in range(3):
            taken, allowed = world.answer(policy, tokens)
            assert taken <= allowed + slack, (world.right, world.row, number)


@pytest.mark.parametrize("slow", [0.0, 0.02])
def test_a_series_of_answers_takes_at_most_three_percent_longer(slow):
    for world in worlds(0.1, slow):
        policy, tokens = Adaptive(), 0
        taken = 0.0
        for _ in range(8):
            taken += world.answer(policy, 128)[0]
            tokens += 128
        assert taken <= 1.03 * tokens + 1 + world.dearest, (world.right, world.row)


def test_drafts_that_pay_are_used_from_the_first_answer():
    for drafter, draft, row, right, most in (
        ("lookup", 0.0, 0.02, 0.9, 0.3),
        ("lookup", 0.0, 0.08, 0.9, 0.4),
        ("dflash", 0.15, 0.08, 0.9, 0.45),
        ("dflash", 0.4, 0.2, 0.95, 0.6),
    ):
        shares = []
        for seed in range(8):
            world = Answers({drafter: right}, row=row, draft=draft, seed=seed)
            shares.append(world.answer(Adaptive(), 128)[0] / 128)
        assert sum(shares) / len(shares) < most, (drafter, row)


def test_the_length_of_a_chain_follows_its_cost_and_how_often_it_is_right():
    """A chain's drafts cost more with each token; a block's do not."""
    sizes = {}
    for drafter, draft, right in (
        ("eagle3", 0.02, 0.95), ("eagle3", 0.02, 0.5), ("eagle3", 0.3, 0.9), ("eagle3", 0.9, 0.9), ("mtp", 0.1, 0.9)
    ):  # fmt: skip
        world = World({drafter: right}, row=0.02, draft=draft, noise=0.02, slow=0.0)
        world.run(Adaptive(), 1500, block=8)
        used = [plan.size for plan in world.plans[len(world.plans) // 2 :] if plan.drafter == drafter]
        sizes[drafter, draft, right] = sum(used) / max(1, len(used)) if len(used) > 20 else 0
    assert sizes["eagle3", 0.02, 0.95] > 5 > sizes["eagle3", 0.02, 0.5] > 0.9
    assert sizes["eagle3", 0.02, 0.95] > sizes["eagle3", 0.3, 0.9] >= 1
    assert sizes["eagle3", 0.9, 0.9] <= 1
    assert sizes["mtp", 0.1, 0.9] > 1


def test_costs_of_chains_between_and_beyond_what_was_measured():
    costs = Measured()
    assert costs.of("eagle3", 2) == pytest.approx(Nominal().of("eagle3", 2))
    for _ in range(40):
        for drafter, drafts in (("eagle3", 2), ("eagle3", 5), ("lookup", 3), ("lookup", 7)):
            run_plain(costs, 1.0, costs.measurements_due())
            costs.learn(drafter, drafts, 1 + 0.1 * drafts + 0.2 * drafts * (drafter == "eagle3"))
    assert costs.of("eagle3", 4) == pytest.approx(2.2, rel=0.1)
    assert costs.of("lookup", 5) == pytest.approx(1.5, rel=0.1)


def test_a_policy_goes_on_with_what_it_learnt():
    first, policy = World({"dflash": 0.9}, draft=0.1), Adaptive()
    first.run(policy, 300)
    policy.begin()
    for _ in range(2):
        policy.learn(policy.choose(300, 16, 0, model=16), 0, 0, PLAIN)
    assert policy.choose(300, 16, 0, model=16).size >= 5
    hopeless, again = World({"dflash": 0.0}), Adaptive()
    hopeless.run(again, 300)
    again.begin()
    after = World({"dflash": 0.95})
    after.run(again, 100)
    assert sum(plan.drafter == "dflash" for plan in after.plans) > 3


def test_looked_up_drafts_may_be_longer_than_those_of_the_model():
    policy = Adaptive(Nominal())
    policy.observe_matches([(20, True)] * 50)
    assert policy.choose(99, 16, 20, model=8) == RoundPlan("lookup", 11)
    assert Fixed().choose(99, 16, 0, model=8) == RoundPlan("dflash", 7)
    assert policy.choose(99, 4, 0, model=8).size <= 3
