"""Restored sliding layers: full-attention layers keep everything, and a token sees as far back as in the model."""

import pytest

from bridge.reports.cache_spec import parse
from engine.cache.kinds import growing
from engine.errors import BadInput
from engine.evals.controls import noise
from engine.lm import cache as lm_cache
from engine.mx import mx
from engine.restore import Compressed, Exact, Noise, RestoredCache, restored_caches
from tests.engine import small_models as models

SINK, WINDOW, CHUNK, LENGTH = 1, 3, 3, 45
SLIDING = [models.gemma3, models.gemma4, models.gpt_oss]


def restored(model, source):
    return restored_caches(model, SINK, WINDOW, source, sliding=True)


@pytest.mark.rows(1)
@pytest.mark.parametrize("make", SLIDING)
def test_what_was_there_changes_nothing_and_all_else_does(make):
    model, tokens = make(), models.tokens(LENGTH)
    own = lm_cache.make_prompt_cache(model)
    plain = models.read(model, own, tokens, CHUNK)

    kept = restored(model, lambda _: Exact())
    assert mx.abs(models.read(model, kept, tokens, CHUNK) - plain).max().item() < 1e-4
    kinds = [type(cache) for cache in own]
    assert [isinstance(cache, RestoredCache) for cache in kept] == [
        k is lm_cache.RotatingKVCache for k in kinds
    ]
    assert [type(cache) for cache in kept if not isinstance(cache, RestoredCache)] == [
        kind for kind in kinds if kind is not lm_cache.RotatingKVCache
    ]
    for source in (lambda i: Noise(noise(i)), lambda _: None):
        assert mx.abs(models.read(model, restored(model, source), tokens, CHUNK) - plain).max().item() > 0.001


def test_codes_of_sliding_layers_come_back_near():
    model, tokens = models.gemma3(), models.tokens(LENGTH)
    plain = models.read(model, lm_cache.make_prompt_cache(model), tokens, CHUNK)
    for spec in ("e8v@6.25", "affine@8g64"):
        caches = restored(model, lambda _, s=spec: Compressed(growing(parse(s))))
        found = models.read(model, caches, tokens, CHUNK)
        assert mx.abs(found - plain).max().item() < 0.2 * mx.abs(plain).max().item()


def test_what_keeps_only_the_last_positions_cannot_hold_evicted_ones():
    with pytest.raises(BadInput, match="e8@q38 cannot hold what sliding layers evict"):
        growing(parse("e8@q38"))


def test_a_model_without_sliding_layers_is_refused():
    with pytest.raises(BadInput, match="no sliding layer"):
        restored(models.llama(), lambda _: None)


def test_a_window_that_holds_all_that_a_layer_sees_is_refused():
    with pytest.raises(BadInput, match="hold them all"):
        restored_caches(models.gemma3(), 4, 64, lambda _: None, sliding=True)


def test_a_cache_for_another_window_is_refused():
    with pytest.raises(
        BadInput, match="a sliding layer of 8 positions cannot be restored by a cache for all"
    ):
        RestoredCache(1, 3, None).make_mask(3, window_size=8)
