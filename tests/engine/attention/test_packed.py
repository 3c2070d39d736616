import numpy as np
import pytest

from engine import blas
from engine.attention import on_cpu
from engine.attention import packed as tiles
from engine.attention.packed import attend
from engine.attention.views import PackedView
from engine.codec.cpu import decoder
from engine.codec.voronoi import VoronoiCodec
from engine.mx import mx


def _views(rng, batch, heads, length, dim, value_dim=None):
    views = []
    for width in (dim, value_dim or dim):
        codec = VoronoiCodec(width, 4, "fast")
        x = mx.array(rng.standard_normal((batch, heads, length, width)).astype(np.float32))
        views.append(PackedView(codec.encode(x), codec, mx.float32))
    return views


def _plain(queries, keys, values, scale, mask=None, sinks=None, softcap=None):
    """Attention over decoded arrays in float64, row by row as it is defined."""
    q, k, v = (
        np.array(x if isinstance(x, mx.array) else x.dense(), dtype=np.float64)
        for x in (queries, keys, values)
    )
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, groups, axis=1) for x in (k, v))
    scores = np.einsum("bhrd,bhtd->bhrt", q, k) * scale
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    if isinstance(mask, str):
        rows, length = scores.shape[-2:]
        mask = np.arange(length - rows, length)[:, None] >= np.arange(length)
    if mask is not None:
        mask = np.array(mask)
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if sinks is not None:
        extra = np.broadcast_to(np.array(sinks)[None, :, None, None], (*scores.shape[:3], 1))
        scores = np.concatenate([scores, extra], axis=-1)
    top = np.maximum(scores.max(-1, keepdims=True), -1e300)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bhrt,bhtd->bhrd", weights[..., : k.shape[2]], v)


def _close(ours, plain):
    assert np.abs(np.array(ours.astype(mx.float32)) - plain).max() < 2e-5


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 16)
    monkeypatch.setattr(tiles, "ROWS", 24)
    monkeypatch.setattr(
        decoder, "COLUMNS", 16 * 2 * 8
    )  # of a few rows: 16 tokens of one sequence of two heads


def _sliding(rows, length, window):
    position = np.arange(length - rows, length)[:, None]
    seen = np.arange(length)[None]
    return (seen <= position) & (seen > position - window)


@pytest.mark.rows(16)
@pytest.mark.parametrize("rows", [1, 2, 7, 16, 33, 64])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kind", ["none", "causal", "sliding", "block", "random", "added"])
def test_every_mask(rows, groups, kind):
    rng = np.random.default_rng(rows)
    length = 70
    keys, values = _views(rng, 2, 2, length, 64)
    queries = mx.array(rng.standard_normal((2, 2 * groups, rows, 64)).astype(np.float32))
    mask = {
        "none": None,
        "causal": "causal",
        "sliding": _sliding(rows, length, 9),
        "block": (np.arange(length) >= length - rows)[None] | (np.arange(length) < 30)[None],
        "random": rng.random((2, 1, rows, length)) < 0.4,
        "added": rng.standard_normal((rows, length)).astype(np.float32),
    }[kind]
    given = mask if mask is None or isinstance(mask, str) else mx.array(mask)
    _close(attend(queries, keys, values, scale=0.3, mask=given), _plain(queries, keys, values, 0.3, mask))


def test_sinks_and_softcap():
    rng = np.random.default_rng(0)
    keys, values = _views(rng, 1, 2, 50, 64)
    queries = mx.array(rng.standard_normal((1, 6, 5, 64)).astype(np.float32)) * 3
    sinks = mx.array(rng.standard_normal(6).astype(np.float32))
    extra = {"mask": "causal", "sinks": sinks, "softcap": 2.0}
    _close(attend(queries, keys, values, scale=0.5, **extra), _plain(queries, keys, values, 0.5, **extra))


@pytest.mark.parametrize(("dim", "value_dim"), [(80, 80), (96, 64), (128, 112), (256, 256)])
def test_head_sizes(dim, value_dim):
    rng = np.random.default_rng(dim)
    keys, values = _views(rng, 1, 1, 40, dim, value_dim)
    queries = mx.array(rng.standard_normal((1, 2, 3, dim)).astype(np.float32))
    _close(
        attend(queries, keys, values, scale=0.2, mask="causal"), _plain(queries, keys, values, 0.2, "causal")
    )


def test_a_row_that_sees_nothing_gives_zeros():
    rng = np.random.default_rng(0)
    keys, values = _views(rng, 1, 1, 20, 64)
    queries = mx.ones((1, 1, 2, 64))
    mask = mx.array([[False] * 20, [True] * 20])
    out = attend(queries, keys, values, scale=1.0, mask=mask)
    assert mx.abs(out[:, :, 0]).max().item() == 0
    _close(out, _plain(queries, keys, values, 1.0, np.array(mask)))


def test_lowest_numbers_as_masks_are_masks():
    rng = np.random.default_rng(0)
    keys, values = _views(rng, 1, 1, 40, 64)
    queries = mx.array(rng.standard_normal((1, 1, 3, 64)).astype(np.float32))
    seen = rng.random((3, 40)) < 0.5
    for lowest in (-np.inf, np.finfo(np.float32).min, -1e9):
        added = mx.array(np.where(seen, 0, lowest).astype(np.float32))
        _close(attend(queries, keys, values, scale=1.0, mask=added), _plain(queries, keys, values, 1.0, seen))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_the_type_of_the_queries_is_kept(dtype):
    keys, values = _views(np.random.default_rng(0), 1, 1, 20, 64)
    assert attend(mx.ones((1, 2, 1, 64), dtype), keys, values, scale=1.0).dtype == dtype


def test_a_view_answers_as_an_array():
    keys, _ = _views(np.random.default_rng(0), 1, 2, 20, 64)
    dense = keys.dense()
    assert keys.shape == dense.shape
    assert keys.ndim == 4
    assert mx.array_equal(keys.swapaxes(-1, -2), dense.swapaxes(-1, -2))
    assert mx.array_equal(keys[..., 3:, :], dense[..., 3:, :])
    with pytest.raises(AttributeError):
        keys.nonsense  # noqa: B018


class _Counted:
    """A codec that counts the vectors it decodes."""

    def __init__(self, codec):
        self.codec, self.decoded = codec, 0

    def decode_rotated(self, rows):
        self.decoded += rows.shape[-2]
        return self.codec.decode_rotated(rows)

    def __getattr__(self, name):
        return getattr(self.codec, name)


def test_many_rows_decode_each_token_once():
    rng = np.random.default_rng(0)
    keys, values = _views(rng, 1, 2, 70, 64)
    keys.codec = counted = _Counted(keys.codec)
    queries = mx.array(rng.standard_normal((1, 4, 60, 64)).astype(np.float32))
    attend(queries, keys, values, scale=0.3, mask="causal")
    assert counted.decoded == 70


@pytest.mark.skipif(blas.threads() is None, reason="the number of threads cannot be set")
@pytest.mark.parametrize("mask", [None, "causal"])
def test_threads_change_no_bit_of_a_few_rows(mask):
    rng = np.random.default_rng(8)
    keys, values = _views(rng, 1, 2, 100, 64)
    queries = mx.array(rng.standard_normal((1, 6, 4, 64)).astype(np.float32))
    assert on_cpu.fits(queries, keys, values, mask)
    before = blas.threads()
    outs = []
    try:
        for threads in (1, 2, 3):
            blas.use_threads(threads)
            outs.append(np.array(attend(queries, keys, values, scale=0.125, mask=mask)))
    finally:
        blas.use_threads(before)
    assert all(np.array_equal(out, outs[0]) for out in outs)
    _close(mx.array(outs[0]), _plain(queries, keys, values, 0.125, mask))


def test_no_such_mask():
    keys, values = _views(np.random.default_rng(0), 1, 1, 4, 64)
    with pytest.raises(ValueError, match="diagonal"):
        attend(mx.ones((1, 1, 1, 64)), keys, values, scale=1.0, mask="diagonal")


@pytest.mark.parametrize("rows", [1, 32])
def test_memory_does_not_grow_with_the_cache(rows, monkeypatch):
    """What attention needs beyond the packed rows is a tile or two, however long they are."""
    monkeypatch.setattr(tiles, "TILE", 256)
    monkeypatch.setattr(tiles, "ROWS", 512)
    codec = VoronoiCodec(128, 4.25)
    peaks = []
    for length in (2048, 16384):
        packed = np.random.default_rng(0).integers(0, 256, (2, 1, 2, length, 68), dtype=np.uint8)
        packed[..., 1] = 0
        keys, values = (PackedView(mx.array(rows_of), codec, mx.bfloat16) for rows_of in packed)
        queries = mx.zeros((1, 4, rows, 128))
        mx.eval(queries, keys.rows, values.rows)
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        mx.eval(attend(queries, keys, values, scale=1.0))
        peaks.append(mx.get_peak_memory() - before)
    dense = 2 * 2 * 16384 * 128 * 2
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < dense / 3
