"""One forward for several sequences: each gets the logits, taps and caches that it would get alone."""

import pytest

from engine.cache import make_caches
from engine.dflash.batched_forward import BatchedForward
from engine.dflash.generation import Run
from engine.dflash.propose.adaptive import Fixed
from engine.dflash.propose.lookup import Lookup
from engine.dflash.propose.proposer import Proposer
from engine.dflash.rollback import rollback_for
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.stops import Stops
from engine.models import load
from engine.mx import mx
from tests.engine import small_models as random_models

SPECS = ("raw", "e8v@4.25:fast", "affine@4g64", "e8@q38")
LENGTHS = (20, 200, 131, 64)  # beyond the ring of 128, and within it
ROWS = (1, 8, 3, 1)


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def pair(request):
    return load(request.param, dtype="float32")


def begun(pair, spec, length, *, drafts):
    caches = make_caches(pair.target, spec)
    run = Run(
        pair.target,
        caches,
        rollback=rollback_for(caches, "auto", pair.target),
        proposer=Proposer(pair.draft, pair.target) if drafts else None,
        lookup=Lookup(),
        sampler=Sampler(Sampling()),
        stops=Stops(None, ()),
        policy=Fixed(),
        room=100,
        blocks=(8, 8),
    )
    for _ in run.reading([3 + i * 7 % 2000 for i in range(length)], 64):
        pass
    return run


@pytest.mark.long
def test_each_gets_what_it_would_get_alone(pair):
    joint = BatchedForward(pair.target, pair.draft.config.target_layer_ids)
    assert joint.refusal is None
    drafts = (True, False, True, False)
    given = [mx.array([[5 + 11 * i for i in range(rows)]]) for rows in ROWS]
    runs, same = (
        [begun(pair, *each, drafts=d) for *each, d in zip(SPECS, LENGTHS, drafts, strict=True)]
        for _ in range(2)
    )
    for _ in range(2):  # the second round stands on what the first left in the caches
        outputs = joint.forward(runs, given)
        for run, alone, tokens, (logits, taps) in zip(runs, same, given, outputs, strict=True):
            expected, own = alone.forward(tokens)
            assert mx.allclose(logits, expected, atol=2e-2)
            assert (logits.argmax(-1) == expected.argmax(-1)).all()
            assert (taps is None) == (own is None) == (run.proposer is None)
            if own is not None:
                assert mx.allclose(taps, own, atol=2e-2)
            kept = max(1, tokens.shape[1] - 2)
            for each, found in ((run, taps), (alone, own)):
                each.keep(kept, found)
            assert [cache.offset for cache in run.caches] == [cache.offset for cache in alone.caches]


def test_models_that_cannot_say_why():
    assert BatchedForward(random_models.qwen3()).refusal is None
    assert BatchedForward(random_models.gemma3()).refusal is None
    assert "more than keys and values" in BatchedForward(random_models.qwen3_5()).refusal
    assert BatchedForward(random_models.gemma2()).refusal


def test_refused_run_is_not_taken():
    model = random_models.qwen3()
    joint = BatchedForward(model)
    caches = make_caches(model, "raw")

    class Held:
        rollback = rollback_for(caches, "carry", model)

    assert not joint.takes(Held)
    Held.rollback = rollback_for(caches, "auto", model)
    assert joint.takes(Held)
