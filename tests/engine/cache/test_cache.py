import copy
import importlib
import re

import pytest

from engine import cache as caches
from engine.cache.packed import PackedKVCache, PackedRotatingKVCache
from engine.cache.roundtrip import KakeyaLatticeMLXCache, codec_maker
from engine.cache.spec import parse
from engine.cache.wrapping import wrap_caches
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import mx, nn
from tests.engine import architectures
from tests.engine import small_models as models

generate = importlib.import_module("mlx_lm.generate")  # the package's attribute is a function

SPEC = "e8v@4.25:fast"


def _held_raw(model, spec=SPEC):
    """The same values in mlx-lm's own caches: what goes in has been through the codec."""
    return wrap_caches(model, 0, lambda inner, _: KakeyaLatticeMLXCache(inner, codec_maker(spec), spec))


def _uncoded(model):
    return caches.make_caches(model, "raw")


def _logits(model, held, *lengths):
    ids = models.tokens(sum(lengths))
    out, at = [], 0
    for n in lengths:
        out.append(model(ids[:, at : at + n], cache=held))
        at += n
    return mx.concatenate(out, axis=1)


@pytest.mark.rows(5)
@pytest.mark.parametrize("lengths", [(40,), (33, 7), (1,) * 9, (20, 1, 1, 5, 1)])
@pytest.mark.parametrize("make", [models.llama, models.gemma2, models.gemma3])
def test_one_layer_packed_equals_the_same_values_raw(make, lengths):
    """The first layer's; a second one would see inputs that differ in their last bits."""
    model = make(layers=2)
    ours, plain = (
        [held[0], lm_cache.KVCache()] for held in (caches.make_caches(model, SPEC), _held_raw(model))
    )
    assert mx.abs(_logits(model, ours, *lengths) - _logits(model, plain, *lengths)).max().item() < 5e-5


@pytest.mark.rows(1)
@pytest.mark.parametrize("make", [models.llama, models.gemma3])
def test_stock_generation_gives_the_same_tokens(make):
    """Where two tokens are nearly tied the runs may part; a random model is full of ties.

    Tokens are tied if they differ by less than the codec itself changes the scores of the prompt's next token.
    """
    model, spec = make(), "e8v@6.25:fast"
    packed, plain = caches.make_caches(model, spec), _held_raw(model, spec)
    coded, raw = (
        _logits(model, held, 16, 16, 7, 1)[0, -1] for held in (_held_raw(model, spec), _uncoded(model))
    )
    error = mx.abs(coded - raw).max().item()
    runs = [
        generate.generate_step(
            models.tokens(40)[0], model, max_tokens=24, prompt_cache=held, prefill_step_size=16
        )
        for held in (packed, plain)
    ]
    for n, ((token, chances), (other, _)) in enumerate(zip(*runs, strict=True)):
        if token != other:
            assert n >= 8
            assert abs(chances[token] - chances[other]).item() < error
            break


@pytest.mark.rows(1)
@pytest.mark.parametrize("make", [models.gemma4, models.gpt_oss])
def test_other_layers_get_views_and_run(make):
    """Shared and unequal keys and values, sliding layers, sinks: as the same values in stock caches."""
    model = make()
    held = caches.make_caches(model, SPEC)
    assert all(c.views for c in held)
    ours, plain = (_logits(model, c, 40, 1, 1) for c in (held, _held_raw(model)))
    assert mx.abs(ours - plain).mean().item() < 0.01 * mx.abs(plain).mean().item()


def test_which_cache_holds_what():
    model = models.gemma3()
    kinds = [type(c).__name__ for c in caches.make_caches(model, SPEC)]
    assert kinds == ["PackedRotatingKVCache", "PackedKVCache"] * 2
    kinds = [type(c).__name__ for c in caches.make_caches(model, SPEC, boundary=1)]
    assert kinds == ["RotatingKVCache", "PackedKVCache", "PackedRotatingKVCache", "KVCache"]
    assert [type(c).__name__ for c in caches.make_caches(model, "affine@4g64")][:2] == [
        "RotatingKVCache",
        "QuantizedKVCache",
    ]
    assert not any(hasattr(c, "bits") for c in caches.make_caches(model, SPEC))
    assert all(
        type(c) in (lm_cache.KVCache, lm_cache.RotatingKVCache) for c in caches.make_caches(model, "raw")
    )
    assert {type(c).__name__ for c in caches.make_caches(model, SPEC, boundary=9)} == {
        "KVCache",
        "RotatingKVCache",
    }


def test_views_only_where_the_layer_can_take_them():
    assert all(c.views for c in caches.make_caches(models.llama(), SPEC))
    assert not any(c.views for c in caches.make_caches(models.gemma2(), SPEC))


def test_state_caches_are_left_alone():
    class Mixed:
        layers = (nn.Linear(2, 2),) * 3

        def make_cache(self):
            return [
                lm_cache.ArraysCache(2),
                lm_cache.KVCache(),
                lm_cache.CacheList(lm_cache.KVCache(), lm_cache.ArraysCache(1)),
            ]

    held = caches.make_caches(Mixed(), SPEC)
    assert type(held[0]) is lm_cache.ArraysCache
    assert type(held[1]) is PackedKVCache
    assert [type(c) for c in held[2].caches] == [PackedKVCache, lm_cache.ArraysCache]


def test_a_routed_model_runs_raw_caches_unchanged():
    model = models.llama()
    before = _logits(model, caches.make_caches(model, "raw"), 30)
    caches.make_caches(model, SPEC)
    assert mx.array_equal(before, _logits(model, caches.make_caches(model, "raw"), 30)).item()


def test_bytes_are_few():
    model = models.llama(head_dim=128)
    raw, packed = caches.make_caches(model, "raw"), caches.make_caches(model, SPEC)
    model.set_dtype(mx.bfloat16)
    for held in (raw, packed):
        _logits(model, held, 256)
    ratio = sum(c.nbytes for c in packed) / sum(c.nbytes for c in raw)
    assert ratio == 4.25 / 16
    assert sum(leaf.nbytes for c in packed for leaf in (c.keys, c.values)) == sum(c.nbytes for c in packed)


def test_unequal_and_unsupported_head_sizes():
    held = PackedKVCache()
    keys, values = held.update_and_fetch(mx.ones((1, 2, 3, 64)), mx.ones((1, 2, 3, 128)))
    assert (keys.shape, values.shape) == ((1, 2, 3, 64), (1, 2, 3, 128))
    with pytest.raises(BadInput, match="Hadamard"):
        PackedKVCache().update_and_fetch(mx.ones((1, 2, 3, 100)), mx.ones((1, 2, 3, 100)))
    with pytest.raises(BadInput, match="quantized again"):
        held.to_quantized()


def test_a_failing_codec_is_counted_and_surfaced():
    class Broken:
        def roundtrip(self, _):
            raise ZeroDivisionError("broken on purpose")

    held = KakeyaLatticeMLXCache(lm_cache.KVCache(), lambda _: Broken(), "e8@q4")
    with pytest.raises(ZeroDivisionError):
        held.update_and_fetch(mx.ones((1, 1, 2, 64)), mx.ones((1, 1, 2, 64)))
    assert (held.fired, held.skipped, held.failed, held.offset) == (0, 0, 1, 0)
    held.strict = False
    held.failed = 0
    with pytest.warns(RuntimeWarning, match="broken on purpose"):
        held.update_and_fetch(mx.ones((1, 1, 2, 64)), mx.ones((1, 1, 2, 64)))
    assert (held.failed, held.offset, held.last_error) == (1, 2, "broken on purpose")


def test_the_round_trip_cache_counts_and_delegates():
    model = models.llama()
    held = caches.make_kakeya_caches(model, "e8", 10, boundary=0)
    _logits(model, held, 9, 1)
    assert [(c.fired, c.skipped, c.failed, c.offset, c.size()) for c in held] == [(2, 0, 0, 10, 10)] * 2
    assert held[0].trim(3) == 3
    assert held[0].inner.offset == held[0].offset == 7
    odd = KakeyaLatticeMLXCache(lm_cache.KVCache(), codec_maker("e8@q10"), "e8@q10", strict=False)
    with pytest.warns(RuntimeWarning, match="no dim 96"):
        odd.update_and_fetch(mx.ones((1, 1, 2, 96)), mx.ones((1, 1, 2, 96)))
    assert (odd.fired, odd.skipped) == (0, 1)


@pytest.mark.parametrize(
    "codec_id",
    [
        "e8v;format=2;rate=4.25;dims=64,64;dtype=float32;effort=normal",
        "q9;format=1;rate=4.25;dims=64,64;dtype=float32;effort=normal",
        "e8v;format=1;rate=2.25;dims=64,64;dtype=float32;effort=normal",
        "e8v;format=1;rate=4.25;dims=128,128;dtype=float32;effort=normal",
        "e8v;format=1;rate=4.25;dims=64,64;dtype=int8;effort=normal",
        "e8v;format=1;rate=4.25;dims=64;dtype=float32;effort=normal",
        "nonsense",
    ],
)
def test_a_wrong_codec_id_is_refused(codec_id):
    held = PackedKVCache()
    held.update_and_fetch(mx.ones((1, 1, 4, 64)), mx.ones((1, 1, 4, 64)))
    state = held.state
    assert PackedKVCache.from_state(state).codec_id == held.codec_id == held.meta_state[0]
    with pytest.raises((BadInput, ValueError)):
        PackedKVCache.from_state((codec_id, *state[1:]))
    with pytest.raises(BadInput, match="this cache has"):
        held.state = (codec_id, *state[1:])
    with pytest.raises(BadInput, match="this cache has"):
        held.meta_state = (codec_id,)


def _members(model, packed=None):
    """Caches of three sequences of unequal lengths, the first ``packed`` layers' packed, and the same in one batch."""
    members = []
    for i, n in enumerate((5, 30, 18)):
        made, raw = caches.make_caches(model, SPEC), caches.make_caches(model, "raw")
        members.append(made if packed is None else [*made[:packed], *raw[packed:]])
        model(models.tokens(n, seed=i), cache=members[-1])
    batch = [layer[0].merge(list(layer)) for layer in zip(*copy.deepcopy(members), strict=True)]
    return members, batch


@pytest.mark.parametrize("make", [models.llama, models.gemma3])
def test_a_batch_answers_as_its_members(make):
    """The first layer's; a later one sees inputs that differ in their last bits, and its codec turns some of those
    differences into whole steps of the code, now here, now there, with each way to add."""
    model = make(layers=2)
    members, batch = _members(model, packed=1)
    steps = [models.tokens(1, seed=9 + i) for i in range(3)]
    together = model(mx.concatenate(steps), cache=batch)
    for i in range(3):
        assert mx.abs(together[i] - model(steps[i], cache=members[i])[0]).max().item() < 5e-5


def _same_tokens(one, other):
    """Whether two arrays hold the same bits for the last tokens, as many as both hold."""
    n = min(one.shape[2], other.shape[2])
    return mx.array_equal(one[:, :, -n:], other[:, :, -n:]).item()


@pytest.mark.parametrize("make", [models.llama, models.gemma3])
def test_a_batch_is_its_members(make):
    model = make()
    members, batch = _members(model)
    for i, member in enumerate(members):
        for layer, alone in zip(batch, member, strict=True):
            pairs = zip(layer.extract(i).keys_and_values(), alone.keys_and_values(), strict=True)
            assert all(_same_tokens(one.dense(), other.dense()) for one, other in pairs)
    steps = [models.tokens(1, seed=9 + i) for i in range(3)]
    model(mx.concatenate(steps), cache=batch)
    model(steps[1], cache=members[1])
    out = [layer.extract(1) for layer in batch]
    assert [type(c) for c in out] == [type(c) for c in members[1]]
    assert [c.offset for c in out] == [31] * len(out)
    for layer in batch:
        layer.filter(mx.array([0, 2]))
    more = [layer[0].merge(list(layer)) for layer in zip(members[1], strict=True)]
    for layer, extra in zip(batch, more, strict=True):
        layer.extend(extra)
    assert model(mx.concatenate(steps), cache=batch).shape[0] == 3


def test_empty_caches_merge():
    for fresh in (PackedKVCache, lambda: PackedRotatingKVCache(8)):
        batch = fresh().merge([fresh(), fresh()])
        keys, _ = batch.update_and_fetch(mx.ones((2, 1, 3, 64)), mx.ones((2, 1, 3, 64)))
        assert keys.shape == (2, 1, 3, 64)


def test_different_codecs_share_no_batch():
    one, other = PackedKVCache("e8v@4.25"), PackedKVCache("e8v@2.25")
    for held in (one, other):
        held.update_and_fetch(mx.ones((1, 1, 4, 64)), mx.ones((1, 1, 4, 64)))
    with pytest.raises(BadInput, match="share a batch"):
        one.merge([one, other])
    with pytest.raises(BadInput, match="share a batch"):
        one.merge([one]).extend(other.merge([other]))


@pytest.mark.parametrize(
    "text", ["", "e8v", "e8v@4", "e8v@7.25", "e8v@4.25:slow", "e8@q0", "e8@38", "affine@7g64", "RAW"]
)
def test_no_such_spec(text):
    with pytest.raises(BadInput, match="no cache spec"):
        parse(text)


def test_negative_boundary():
    with pytest.raises(BadInput, match="boundary"):
        caches.make_caches(models.llama(), SPEC, boundary=-1)


@pytest.mark.parametrize(
    ("name", "spec", "why"),
    [
        ("gpt_oss", "affine@4g32", "attention sinks"),
        ("gemma4", "affine@4g64", "as plain arrays only"),
        ("gemma2", "affine@4g64", "as plain arrays only"),
        ("narrow", "affine@4g64", "vectors of 48 values, which groups of 64 do not divide"),
        ("narrow", "e8@q38", "no dim 48"),
        ("no values", "affine@4g32", "vectors of 0 values"),
        ("no values", "e8v@4.25", "rotation of size 0"),
    ],
)
def test_a_cache_that_a_model_cannot_use_is_refused_when_it_is_made(name, spec, why):
    with pytest.raises(BadInput, match=f"cannot use the cache {re.escape(spec)}: ") as refused:
        caches.make_caches(_built(name), spec)
    assert why in refused.value.message
    assert refused.value.fix.startswith("caches that it can use: raw")
    assert spec not in refused.value.fix


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_an_affine_cache_stores_a_head_size_or_is_refused_in_our_words(bits, group):
    for dim in range(16, 257, 16):
        x = mx.random.normal((1, 1, 3, dim), key=mx.random.key(dim))
        cache = lm_cache.QuantizedKVCache(group, bits)
        if reason := _refusal(_Heads(dim), f"affine@{bits}g{group}"):
            assert f"it stores vectors of {dim} values, " in reason
            with pytest.raises(ValueError, match=r"quantize|broadcast"):
                cache.update_and_fetch(x, x)
        else:
            keys, _ = cache.update_and_fetch(x, x)
            error = mx.abs(mx.dequantize(*keys, group_size=group, bits=bits)[..., :3, :] - x).max()
            assert error.item() <= 2 * mx.abs(x).max().item() / (2**bits - 1)  # a step at most


def _refusal(model, spec):
    try:
        caches.make_caches(model, spec)
    except BadInput as refused:
        return refused.message
    return None


def _built(name):
    if name == "narrow":
        return models.llama(head_dim=48)
    return _NoValues() if name == "no values" else getattr(models, name)()


class _Heads(nn.Module):
    """A layer that stores zeros of a head size, and computes nothing."""

    def __init__(self, dim):
        super().__init__()
        self.layers = [nn.Linear(8, 8)]
        self.dim = dim

    def __call__(self, x, cache):
        keys = mx.zeros((1, 1, x.shape[1], self.dim))
        cache[0].update_and_fetch(keys, keys)
        return mx.zeros((1, x.shape[1], 8))


class _NoValues(nn.Module):
    """Attention whose values are in the keys, as in some latent attention: their width is 0."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 8)]

    def __call__(self, x, cache):
        keys = mx.zeros((1, 1, x.shape[1], 64))
        cache[0].update_and_fetch(keys, keys[..., :0])
        return mx.zeros((1, x.shape[1], 8))


def test_a_layer_that_works_on_keys_itself_gets_arrays():
    """PLaMo repeats keys for its heads before it attends: a packed view is nothing that MLX could repeat."""
    model = architectures.build("plamo")
    held = caches.make_caches(model, SPEC)
    assert not any(cache.views for cache in held)
    assert _logits(model, held, 5, 1).shape[-1] == architectures.VOCAB
    assert all(cache.views for cache in caches.make_caches(models.llama(), SPEC))
