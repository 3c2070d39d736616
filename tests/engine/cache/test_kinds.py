"""A codec and a cache kind that only this test knows: registering them is all that it takes."""

import re
from dataclasses import dataclass

import pytest

from bridge.reports import cache_spec
from engine.cache import make_caches
from engine.cache.codec_id import CodecId
from engine.cache.kinds import CLASSES, KINDS, CacheClass, CacheKind
from engine.codec.kinds import CODECS, make_codec
from engine.dflash import stream_generate
from engine.dflash.rollback import rollback_for
from engine.evals.liveness import counters
from engine.lm import cache as lm_cache
from engine.mx import mx
from engine.serve.prefix_cache import snapshots
from tests.engine import small_models as models


@dataclass(frozen=True)
class NegativeCodec:
    """Stores float32 vectors times -1: lossless, and nothing like them to whoever reads rows as values."""

    dim: int

    @property
    def row_bytes(self):
        return 4 * self.dim

    def encode(self, x):
        return (-x.astype(mx.float32)).view(mx.uint8)

    def decode(self, rows, dtype=mx.float32):
        return (-rows.view(mx.float32)).astype(dtype)

    decode_rotated = decode

    def rotate(self, x):
        return x.astype(mx.float32)

    def unrotate(self, y):
        return y


class Mirrored(lm_cache.KVCache):
    """Holds everything times -1."""

    def update_and_fetch(self, keys, values):
        keys, values = super().update_and_fetch(-keys, -values)
        return -keys, -values


@pytest.fixture(params=["negative", "k=negative,v=raw", "k=raw,v=negative", "mirrored"])
def spec(request, monkeypatch):
    for family in ("negative", "mirrored"):
        monkeypatch.setitem(cache_spec.FORMS, family, cache_spec.Form(re.compile(family), family))
    monkeypatch.setitem(CODECS, "negative", lambda _, dim, __: NegativeCodec(dim))
    monkeypatch.setitem(KINDS, "mirrored", CacheKind(lambda *_: Mirrored(), lambda _: Mirrored()))
    monkeypatch.setitem(CLASSES, Mirrored, CacheClass("growing"))
    monkeypatch.setitem(CODECS, "mirrored", CODECS["raw"])
    return request.param


def _answer(model, caches):
    steps = stream_generate(
        model, None, None, models.tokens(20)[0].tolist(), max_tokens=12, caches=caches, stop_tokens=()
    )
    return [token for step in steps for token in step.tokens]


def test_an_answer_is_that_of_the_raw_cache(spec):
    model = models.llama()
    assert _answer(model, make_caches(model, spec)) == _answer(model, make_caches(model, "raw"))


def test_what_was_taken_back_is_gone(spec):
    model = models.llama()
    caches, other = make_caches(model, spec), make_caches(model, spec)
    for held in (caches, other):
        model(models.tokens(9), cache=held)
    rollback = rollback_for(caches, model=model)
    rollback.forward(rollback.prepare(model), models.tokens(5, seed=3))
    rollback.commit(2)
    model(models.tokens(5, seed=3)[:, :2], cache=other)
    step = models.tokens(1, seed=4)
    assert [cache.offset for cache in caches] == [11, 11]
    assert mx.allclose(model(step, cache=caches), model(step, cache=other), atol=1e-4).item()


def test_a_snapshot_fills_a_fresh_cache(spec):
    model = models.llama()
    caches, fresh = make_caches(model, spec), make_caches(model, spec)
    model(models.tokens(16), cache=caches)
    for cache, empty in zip(caches, fresh, strict=True):
        path = [snapshots.take(cache, start, start + 8) for start in (0, 8)]
        snapshots.put(empty, path, 16)
    step = models.tokens(1, seed=4)
    assert mx.array_equal(model(step, cache=fresh), model(step, cache=caches)).item()


@pytest.mark.parametrize("text", ["raw", "e8v@4.25", "affine@4g64", "affine@3g32"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_rows_give_the_vectors_back(text, dtype):
    """Within the codec's error, whole or a token at a time, rotated or not."""
    x = mx.random.normal((2, 3, 5, 64), key=mx.random.key(0)).astype(dtype)
    codec = make_codec(cache_spec.parse(text), 64, str(dtype).removeprefix("mlx.core."))
    rows = codec.encode(x)
    back = codec.decode(rows)
    assert (rows.dtype, rows.shape) == (mx.uint8, (2, 3, 5, codec.row_bytes))
    error = mx.square(back - x.astype(mx.float32)).mean().item()
    assert error == 0 if text == "raw" else 0 < error < 0.05
    assert mx.array_equal(codec.decode(rows[:, 1:2, 3:4]), back[:, 1:2, 3:4]).item()
    assert mx.allclose(codec.unrotate(codec.decode_rotated(rows)), back, atol=1e-5).item()


@pytest.mark.parametrize("spec_text", ["e8v@3.25", "k=e8v@4.25,v=raw", "k=affine@4g32,v=e8v@2.25:best"])
def test_a_codec_id_is_read_as_it_was_written(spec_text):
    written = CodecId(spec_text, (64, 128), "bfloat16")
    again = CodecId.parse(str(written))
    assert (again.codecs, again.dtype, str(again)) == (written.codecs, "bfloat16", str(written))


@pytest.mark.parametrize("text", ["k=raw,v=e8v@4.25", "k=e8v@4.25,v=raw"])
def test_only_the_coded_side_counts_as_codes(text):
    model = models.llama()
    caches = make_caches(model, text)
    model(models.tokens(9), cache=caches)
    codes = [x for cache in caches for x in (cache.keys, cache.values) if x.shape[-1] < 4 * 64]
    counted = counters(caches)
    assert (counted["injected_positions"], counted["raw_positions"]) == (9 * len(caches), 0)
    assert counted["packed_bytes"] == sum(x.nbytes for x in codes)
