"""Random rounds, kept in part, over every cache and rollback, against an oracle that starts from scratch."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from engine.dflash.rollback import carry, choose, late
from engine.dflash.rollback import recurrent as recurrent_part
from engine.mx import mx
from tests.engine.dflash.rollback import rollback_world as world
from tests.properties import examples

STEPS, PACKED_STEPS = 750, 350  # a case; more than 10,000 in all


def growing(spec, *, views=False):
    return lambda rng: world.Kind(
        spec, (0, 0), window=rng.choice([None, int(rng.integers(2, 30))]), views=views
    )


def ring(spec, *, keep=True, views=False):
    def make(rng):
        sizes = [int(rng.choice([0, rng.integers(3, 20)], p=[0.2, 0.8])) for _ in range(2)]
        if keep and rng.random() < 0.5:
            return world.Kind(spec, sizes, int(rng.integers(1, 3)), views=views)
        narrow = int(rng.integers(2, min(filter(None, sizes), default=20) + 1))
        return world.Kind(spec, sizes, window=rng.choice([None, narrow]), views=views)

    return make


def recurrent(rng):
    return world.Kind("raw", (None, int(rng.choice([0, rng.integers(3, 20)]))))


CASES = {
    "raw": (growing("raw"), "auto"),
    "raw, late": (growing("raw"), "late"),
    "raw, carried": (growing("raw"), "carry"),
    "ring": (ring("raw"), "auto"),
    "ring, late": (ring("raw"), "late"),
    "ring, carried": (ring("raw", keep=False), "carry"),
    "mlx-quantized": (growing("affine@4g32"), "auto"),
    "mlx-quantized, carried": (growing("affine@4g32"), "carry"),
    "packed": (growing("e8v@2.25"), "auto"),
    "packed, late": (growing("e8v@2.25", views=True), "late"),
    "packed ring": (ring("e8v@2.25"), "auto"),
    "packed ring, views": (ring("e8v@2.25", views=True), "auto"),
    "packed ring, carried": (ring("e8v@2.25", keep=False), "carry"),
    "round trip": (ring("e8@q38"), "auto"),
    "recurrent": (recurrent, "auto"),
    "recurrent, carried": (recurrent, "carry"),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("case", CASES)
def test_random_rounds(case, monkeypatch):
    make, how = CASES[case]
    world.remember(monkeypatch)
    steps = PACKED_STEPS if "packed" in case else STEPS
    run(make, how, steps, list(CASES).index(case))


@pytest.mark.rows(1)
@pytest.mark.parametrize("case", ["packed, late", "packed ring", "packed ring, views", "round trip"])
def test_random_rounds_with_the_codec_itself(case):
    run(*CASES[case], 8, 1)


def keeps_one_less(patch):
    real = late.Late.commit
    patch.setattr(late.Late, "commit", lambda self, rows, kept: real(self, rows, max(kept - 1, 0)))


def keeps_one_more(patch):
    real = late.Late.commit
    patch.setattr(late.Late, "commit", lambda self, rows, kept: real(self, rows, min(kept + 1, rows)))


def takes_the_ring_for_a_row(patch):
    real = late.LateRing.positions
    patch.setattr(late.LateRing, "positions", lambda ring: np.arange(len(real(ring))))


def sees_past_the_window(patch):
    def make_mask(ring, n, **_):
        held = len(ring.positions())
        return mx.array(np.tri(n, held + n, held) > 0)

    patch.setattr(late.LateRing, "make_mask", make_mask)


def does_not_step_back(patch):
    real = late.LateRing.abandon

    def abandon(ring):
        slot = ring.inner.state[-1]
        real(ring)
        ring.inner.state = (*ring.inner.state[:-1], slot)

    patch.setattr(late.LateRing, "abandon", abandon)


def never_trims(patch):
    patch.setattr(choose.Trim, "commit", lambda *_: None)
    patch.setattr(choose.Trim, "abandon", lambda *_: None)


def puts_the_length_back_alone(patch):
    real = carry.Carry.abandon

    def abandon(part):
        keys, values, _, *rest = part.stand_in.state
        real(part)
        part.stand_in.state = keys, values, part.stand_in.offset, *rest

    patch.setattr(carry.Carry, "abandon", abandon)


def leaves_the_state_as_it_is(patch):
    patch.setattr(recurrent_part.Recompute, "abandon", lambda *_: None)


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (keeps_one_less, "ring"),
        (keeps_one_more, "ring"),
        (takes_the_ring_for_a_row, "ring"),
        (sees_past_the_window, "ring"),
        (does_not_step_back, "ring"),
        (never_trims, "raw"),
        (puts_the_length_back_alone, "ring, carried"),
        (leaves_the_state_as_it_is, "recurrent"),
    ],
)
def test_the_check_finds_a_broken_rollback(broken, case, monkeypatch):
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        run(*CASES[case], STEPS, 0)


class Machine(RuleBasedStateMachine):
    """The same operations, chosen by Hypothesis, which finds the shortest way to a failure."""

    ids = st.lists(st.integers(0, 63), min_size=1, max_size=16)

    @initialize(
        sizes=st.lists(st.sampled_from([None, 0, 3, 4, 8, 16]), min_size=1, max_size=3),
        keep=st.integers(0, 2),
        how=st.sampled_from(["auto", "late", "carry"]),
        prompt=ids,
    )
    def start(self, sizes, keep, how, prompt):
        self.state = world.World(world.Kind("raw", sizes, 0 if how == "carry" else keep), how)
        self.state.advance(prompt)

    @rule(ids=ids, kept=st.integers(0, 16))
    def round(self, ids, kept):
        self.state.round(ids, min(kept, len(ids)))

    @rule(ids=ids)
    def advance(self, ids):
        self.state.advance(ids)

    @rule(ids=ids, fail_at=st.sampled_from([None, 0, 1, 2]))
    def abandon(self, ids, fail_at):
        self.state.abandon(ids, fail_at)

    @rule()
    def save_and_load(self):
        self.state.save_and_load()

    @rule()
    def copy(self):
        self.state.copy()

    def teardown(self):
        if hasattr(self, "state"):
            self.state.check_state()


TestMachine = Machine.TestCase
TestMachine.settings = settings(examples(25), stateful_step_count=12)


def one_step(state, rng):
    size = 1 if rng.random() < 0.2 else int(rng.integers(1, 17))
    ids = rng.integers(0, 64, size).tolist()
    what = rng.choice(
        ["round", "one", "chunk", "abandon", "fail", "state", "copy", "check"],
        p=[0.62, 0.08, 0.04, 0.05, 0.05, 0.07, 0.03, 0.06],
    )
    if what == "round":
        state.round(ids, int(rng.choice([0, 1, len(ids), rng.integers(0, len(ids) + 1)])))
    elif what == "one":
        state.advance(ids[:1])
    elif what == "chunk":
        state.advance(ids)
    elif what in {"abandon", "fail"}:
        state.abandon(ids, None if what == "abandon" else int(rng.integers(0, 2)))
    elif what == "state":
        state.save_and_load()
    elif what == "copy":
        state.copy()
    else:
        state.check_state()


def run(make, how, steps, seed):
    rng = np.random.default_rng(seed)
    done = 0
    while done < steps:
        state = world.World(make(rng), how)
        if rng.random() < 0.9:
            n = int(rng.integers(1, 41))
            state.advance(rng.integers(0, 64, n).tolist())
        for _ in range(min(15, steps - done)):
            one_step(state, rng)
            done += 1
        state.check_state()
