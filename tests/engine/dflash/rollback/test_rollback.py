"""Rollback on real models: what speculation decodes, what it holds, what it refuses."""

import numpy as np
import pytest

from engine.cache import PackedRotatingKVCache, make_caches
from engine.dflash.rollback import rollback_for
from engine.errors import BadInput, RollbackError
from engine.lm import cache as lm_cache
from engine.mx import mx, nn, tree
from tests.engine import architectures
from tests.engine import small_models as models

WINDOW, TOKENS = 16, 24


@pytest.fixture(scope="module")
def built():
    """Models by name, built once."""
    made = {}
    return lambda name: made.setdefault(name, getattr(models, name)())


def plain(model, caches, prompt, count):
    """Greedy tokens and logits, decoded one by one."""
    logits, token = [], int(model(prompt, cache=caches)[0, -1].argmax())
    tokens = [token]
    for _ in range(count):
        row = model(mx.array([[token]]), cache=caches)[0, -1]
        token = int(row.argmax())
        logits.append(np.array(row))
        tokens.append(token)
    return tokens, logits


def speculative(model, rollback, prompt, expected, block, rng):
    """Greedy tokens and logits by rounds, whose drafts are right up to a random place."""
    model = rollback.prepare(model)
    tokens = [int(rollback.advance(model, prompt)[0, -1].argmax())]
    logits = []
    while len(tokens) < len(expected):
        drafts = expected[len(tokens) : len(tokens) + block - 1]
        wrong = int(rng.integers(0, block))
        drafts = drafts[:wrong] + [(token + 1) % 128 for token in drafts[wrong:]]
        rows = rollback.forward(model, mx.array([tokens[-1:] + drafts]))[0]
        chosen = [int(x) for x in rows.argmax(axis=-1)]
        kept = 1
        while kept <= len(drafts) and drafts[kept - 1] == chosen[kept - 1]:
            kept += 1
        rollback.commit(kept)
        tokens += chosen[:kept]
        logits += list(np.array(rows[:kept]))
    rollback.settle(model)
    return tokens, logits


@pytest.mark.rows(6)
@pytest.mark.parametrize("prompt", [3, 40])
@pytest.mark.parametrize(
    ("name", "spec", "kind", "block"),
    [
        ("qwen3", "raw", "auto", 8),
        ("qwen3", "raw", "carry", 5),
        ("qwen3", "affine@4g64", "trim", 16),
        ("gemma3", "raw", "auto", 1),
        ("gemma3", "raw", "auto", 8),
        ("gemma3", "raw", "late", 16),
        ("gemma3", "raw", "carry", 8),
        ("gemma3", "affine@4g64", "auto", 4),
        ("gemma4", "raw", "auto", 7),
        ("gpt_oss", "raw", "auto", 12),
        ("qwen3_5", "raw", "auto", 8),
        ("qwen3_5", "raw", "carry", 4),
    ],
)
def test_tokens_and_logits_are_those_of_plain_decoding(built, name, spec, kind, block, prompt):
    model, prompt = built(name), models.tokens(prompt, seed=prompt)
    reference = make_caches(model, spec)
    expected, rows = plain(model, reference, prompt, TOKENS)
    caches = make_caches(model, spec)
    rollback = rollback_for(caches, kind)
    rng = np.random.default_rng(block)
    tokens, logits = speculative(model, rollback, prompt, expected, block, rng)
    assert tokens[: len(expected)] == expected
    for ours, theirs in zip(logits, rows, strict=False):
        assert np.abs(ours - theirs).max() < 2e-4


def _block_bytes(rollback):
    """Bytes of what late commit holds outside the caches."""
    return sum(x.nbytes for part in rollback.cache_rollbacks for x in getattr(part, "block", None) or ())


def test_bytes_past_the_window_are_those_of_plain_decoding(built):
    model, block = built("gemma3"), 8
    caches = make_caches(model, "raw")
    rollback = rollback_for(caches)
    rings = [cache for cache in caches if isinstance(cache, lm_cache.RotatingKVCache)]
    rollback.advance(model, models.tokens(40))
    rollback.advance(model, models.tokens(1))
    decoded = sum(ring.nbytes for ring in rings)
    token = decoded // WINDOW
    for i in range(30):
        rollback.forward(model, models.tokens(block, seed=i))
        assert sum(ring.nbytes for ring in rings) == decoded
        assert _block_bytes(rollback) == block * token
        rollback.commit(i % (block + 1))
        assert sum(ring.nbytes for ring in rings) == decoded
        assert _block_bytes(rollback) == 0


def test_a_round_of_one_token_goes_straight_into_the_ring(built):
    model = built("gemma3")
    caches, reference = make_caches(model, "raw"), make_caches(model, "raw")
    rollback = rollback_for(caches)
    for held in (caches, reference):
        model(models.tokens(40), cache=held)
    for seed, kept in enumerate([1, 0, 0, 1, 1, 0, 1]):
        token = models.tokens(1, seed=seed)
        ours = rollback.forward(model, token)
        assert _block_bytes(rollback) == 0
        rollback.commit(kept)
        if kept:
            assert mx.array_equal(ours, model(token, cache=reference))  # the same operations
    block = models.tokens(5, seed=9)
    ours = rollback.forward(model, block)
    for i in range(5):
        assert mx.abs(ours[:, i] - model(block[:, i : i + 1], cache=reference)[:, 0]).max() < 1e-4


def test_no_buffer_outlives_its_round():
    ring, ids = lm_cache.RotatingKVCache(64), np.random.default_rng(0)
    rollback = rollback_for([ring])

    def model(x, cache):
        keys = mx.array(ids.standard_normal((1, 2, x.shape[1], 64)).astype(np.float32))
        return cache[0].update_and_fetch(keys, keys)[0].sum(axis=1)

    live = []
    for kept in [8, 3, 5, 0, 8, 1] * 10:
        mx.eval(rollback.forward(model, mx.zeros((1, 8))))
        rollback.commit(kept)
        mx.eval(ring.keys, ring.values)
        live.append(mx.get_active_memory())
    assert max(live[-6:]) == max(live[-12:-6])
    assert max(live[-6:]) <= live[20] + ring.nbytes // 64 * 8


def test_a_settled_cache_goes_on_in_another_generation(built):
    model, prompt = built("gemma3"), models.tokens(30)
    kept = models.tokens(5, seed=1)
    caches, reference = make_caches(model, "raw"), make_caches(model, "raw")
    rollback = rollback_for(caches, "carry")
    for held in (caches, reference):
        model(prompt, cache=held)
    rollback.forward(model, mx.concatenate([kept, models.tokens(3, seed=2)], axis=1))
    rollback.commit(5)
    assert rollback.pending == 5
    assert caches[0].offset == 30
    rollback.forward(model, models.tokens(4, seed=3))  # a generator closed here
    rollback.settle(model)
    assert rollback.pending == 0
    model(kept, cache=reference)
    after = [model(models.tokens(1, seed=4), cache=held) for held in (caches, reference)]
    assert mx.abs(after[0] - after[1]).max() < 1e-4


def test_carrying_puts_a_ring_back_bit_for_bit(built):
    """A forward over one token writes into the ring's own arrays."""
    model, caches = built("gemma3"), make_caches(built("gemma3"), "raw")
    rollback = rollback_for(caches, "carry")
    rollback.advance(model, models.tokens(30))
    rollback.advance(model, models.tokens(1))
    before = [np.array(x) for x in caches[0].state[:2]]
    mx.eval(rollback.forward(model, models.tokens(1, seed=7)))
    assert not np.array_equal(before[0], np.array(caches[0].keys))
    rollback.abandon()
    assert all(np.array_equal(x, np.array(y)) for x, y in zip(before, caches[0].state[:2], strict=True))


def test_two_generations_share_one_recording_model(built):
    model, ids = built("qwen3_5"), models.tokens(6)
    pair = [make_caches(model, "raw") for _ in range(2)]
    rollbacks = [rollback_for(caches) for caches in pair]
    shared = rollbacks[0].prepare(model)
    first = rollbacks[0].forward(shared, ids)
    rollbacks[1].forward(shared, models.tokens(6, seed=9))
    rollbacks[0].commit(2)
    rollbacks[1].commit(0)
    again = rollbacks[1].forward(shared, ids)
    rollbacks[1].commit(2)
    assert mx.array_equal(first, again)
    for ours, other in zip(*pair, strict=True):
        states = [
            [x for _, x in tree.tree_flatten(c.state) if isinstance(x, mx.array)] for c in (ours, other)
        ]
        assert all(mx.array_equal(x, y) for x, y in zip(*states, strict=True))


def test_recording_leaves_the_model_as_it_was(built):
    model = built("qwen3_5")
    before = [(path, type(module)) for path, module in model.named_modules()]
    names = [path for path, _ in tree.tree_flatten(model.parameters())]
    clone = rollback_for(make_caches(model, "raw")).prepare(model)
    assert clone is not model
    assert [(path, type(module)) for path, module in model.named_modules()] == before
    assert [path for path, _ in tree.tree_flatten(clone.parameters())] == names
    assert built("qwen3") is rollback_for(make_caches(built("qwen3"), "raw")).prepare(built("qwen3"))


class _Unknown(lm_cache.KVCache):
    pass


@pytest.mark.parametrize(
    ("cache", "kind", "says", "fix"),
    [
        (lm_cache.KVCache, "fast", "no rollback 'fast'", "auto, late, trim, carry"),
        (_Unknown, "auto", "_Unknown", "mlx-lm's own loop"),
        (lm_cache.ConcatenateKVCache, "trim", "ConcatenateKVCache", "mlx-lm's own loop"),
        (lambda: lm_cache.BatchKVCache([0]), "auto", "BatchKVCache", "mlx-lm's own loop"),
        (lambda: lm_cache.RotatingKVCache(8), "trim", "once it wraps", "late"),
        (lambda: PackedRotatingKVCache(8), "trim", "once it wraps", "late"),
        (lambda: lm_cache.RotatingKVCache(8, keep=2), "carry", "keeps its first 2", "late"),
        (lambda: lm_cache.RotatingKVCache(4, keep=4), "auto", "no room", "larger ring"),
        (lambda: lm_cache.ArraysCache(2), "trim", "recurrent", "auto"),
        (lambda: lm_cache.ArraysCache(2, [1]), "auto", "padded", "one sequence"),
    ],
)
def test_what_cannot_be_taken_back_is_refused_ahead(cache, kind, says, fix):
    with pytest.raises(BadInput) as refused:
        rollback_for([cache()], kind)
    assert says in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize("trims", [lambda n: 0 * n, lambda n: n - 1])
@pytest.mark.parametrize("lies", [False, True])
def test_a_trim_that_did_less_raises(built, trims, lies, monkeypatch):
    model = built("qwen3")
    caches = make_caches(model, "raw")
    rollback = rollback_for(caches)
    real = lm_cache.KVCache.trim

    def trim(self, n):
        done = real(self, trims(n))
        return n if lies else done

    monkeypatch.setattr(lm_cache.KVCache, "trim", trim)
    rollback.forward(model, models.tokens(6))
    with pytest.raises(RollbackError, match="KVCache dropped"):
        rollback.commit(2)


def test_a_round_has_an_order(built):
    model = built("qwen3")
    caches = make_caches(model, "raw")
    rollback = rollback_for(caches)
    with pytest.raises(RollbackError, match="no round"):
        rollback.commit(0)
    rollback.forward(model, models.tokens(4))
    for again in (rollback.forward, rollback.advance):
        with pytest.raises(RollbackError, match="is open"):
            again(model, models.tokens(1))
    with pytest.raises(RollbackError, match="5 of 4"):
        rollback.commit(5)
    rollback.commit(4)
    rollback.abandon()
    assert _offsets(caches) == [4] * len(caches)


@pytest.mark.parametrize("kind", ["auto", "late", "carry"])
def test_a_layer_that_did_not_run_is_noticed(kind):
    caches = [lm_cache.KVCache(), lm_cache.RotatingKVCache(8)]

    def half(x, cache):
        keys = mx.zeros((1, 1, x.shape[1], 8))
        return cache[0].update_and_fetch(keys, keys)

    rollback = rollback_for(caches, kind)
    rollback.forward(half, models.tokens(3))
    with pytest.raises(RollbackError):
        rollback.commit(3)


def _offsets(caches):
    return [cache.offset for cache in caches]


@pytest.mark.parametrize("kind", ["auto", "late", "carry"])
def test_a_failed_commit_leaves_all_caches_where_the_round_began(kind):
    """The second layer is not run in the last round: the first one's cache must not keep it either."""
    caches = [lm_cache.KVCache(), lm_cache.RotatingKVCache(8)]

    def layers(count):
        def run(x, cache):
            keys = mx.ones((1, 1, x.shape[1], 8))
            return [held.update_and_fetch(keys, keys)[0] for held in cache[:count]]

        return run

    rollback = rollback_for(caches, kind)
    rollback.forward(layers(2), models.tokens(5))
    rollback.commit(5)
    rollback.forward(layers(1), models.tokens(3))
    with pytest.raises(RollbackError):
        rollback.commit(3)
    rollback.settle(layers(2))
    assert _offsets(caches) == [5, 5]
    rollback.forward(layers(2), models.tokens(2))
    rollback.commit(2)
    assert _offsets(caches) == [7, 7]


def test_a_state_that_cannot_be_recomputed_is_noticed_before_the_prompt_is_read():
    """One call of Baichuan writes a state and keys and values: it cannot run again, so tails are carried."""
    model = architectures.build("baichuan_m1")
    caches = make_caches(model, "raw")
    assert rollback_for(caches, "auto", model).name == "carry"
    rollback = rollback_for(caches, "auto")
    rollback.forward(rollback.prepare(model), models.tokens(4))
    with pytest.raises(RollbackError, match="together with other caches") as refused:
        rollback.commit(2)
    assert "carry" in refused.value.fix
    rollback.settle(model)
    assert [cache.caches[1].offset for cache in caches] == [0] * 4
    assert all(state is None for cache in caches for state in cache.caches[0].cache)


def test_the_module_that_touches_a_state_is_the_one_that_runs_again():
    """Griffin's block hands plain arrays to its inner modules, whose argument is called cache too."""
    model = architectures.build("recurrent_gemma")
    rollback = rollback_for(make_caches(model, "raw"), "auto", model)
    assert rollback.name == "late+recompute"
    rollback.forward(rollback.prepare(model), models.tokens(4))
    calls = [call for part in rollback.cache_rollbacks if part.name == "recompute" for call in part.calls]
    assert [type(call.run.__self__).__name__ for call in calls] == ["RecurrentBlock"] * 4


def test_what_a_model_stores_over_its_block_is_what_the_cache_gets():
    """DeepSeek V3.2 empties the values of its index as soon as they are stored."""
    cache = lm_cache.KVCache()
    rollback = rollback_for([cache], "late")

    def model(x, cache):
        keys = mx.ones((1, 1, x.shape[1], 8))
        cache[0].update_and_fetch(keys, keys)
        cache[0].values = mx.zeros_like(cache[0].keys)

    for rows, kept in ((3, 2), (4, 4)):
        rollback.forward(model, models.tokens(rows))
        rollback.commit(kept)
    assert cache.offset == 6
    keys, values = cache.keys_and_values()
    assert (keys.sum().item(), values.sum().item()) == (48, 0)


def test_a_model_that_was_not_prepared_is_noticed(built):
    model = built("qwen3_5")
    rollback = rollback_for(make_caches(model, "raw"))
    rollback.forward(model, models.tokens(3))
    with pytest.raises(RollbackError, match="did not hand over") as error:
        rollback.commit(3)
    assert "prepare" in error.value.fix


def test_caches_in_a_list_are_taken_back_each_by_its_kind():
    class Both(nn.Module):
        def __call__(self, x, cache):
            keys = mx.ones((1, 1, x.shape[1], 8))
            both = cache[0]
            return [both[0].update_and_fetch(keys, keys)[0], both[1].update_and_fetch(keys, keys)[0]]

    listed = lm_cache.CacheList(lm_cache.RotatingKVCache(4), lm_cache.KVCache())
    rollback = rollback_for([listed])
    assert rollback.name == "late+trim"
    for kept in (0, 3, 6):
        rollback.forward(Both(), models.tokens(6))
        rollback.commit(kept)
    assert [cache.offset for cache in listed.caches] == [9, 9]
    assert listed[0].keys.shape[2] == 4
