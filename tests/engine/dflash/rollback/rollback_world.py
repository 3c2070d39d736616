"""A model of lookups over real caches, and an oracle that recomputes its outputs from scratch.

Keys, values and queries are looked up by token and position, so they have the same bits whatever the forward
they are computed in, and what a cache holds can be compared exactly with what decoding one by one puts there.
The attention is the engine's, the masks are the caches'; the oracle is NumPy over the list of kept tokens.
"""

import contextlib
import copy
import functools

import numpy as np

from engine import cache as caches
from engine.attention import router
from engine.codec.classic import ClassicCodec
from engine.codec.voronoi import VoronoiCodec
from engine.dflash.rollback import rollback_for
from engine.lm import base
from engine.lm import cache as lm_cache
from engine.mx import mx, nn
from tests.engine import known

HEADS, DIM, BANK = 2, 32, 512
SCALE, DECAY = 0.5, 0.75
BANKS = np.random.default_rng(0).standard_normal((3, BANK, HEADS, DIM)).astype(np.float32)


class Attend(nn.Module):
    """One layer: attention over looked-up vectors, ``[1, L]`` to ``[1, L, HEADS * DIM]``."""

    def __init__(self, layer, window):
        super().__init__()
        self.layer, self.window = layer, window

    def vectors(self, ids, cache):
        found = looked_up(self.layer, ids, cache.offset + np.arange(len(ids)))
        return [mx.array(part.swapaxes(0, 1)[None]) for part in found]

    def __call__(self, x, cache):
        ids = np.array(x)[0]
        queries, keys, values = self.vectors(ids, cache)
        mask = base.create_attention_mask(x, cache, window_size=self.window)
        keys, values = cache.update_and_fetch(keys, values)
        out = router.scaled_dot_product_attention(queries, keys, values, cache, SCALE, mask)
        return out.swapaxes(1, 2).reshape(1, len(ids), -1)


class Scan(nn.Module):
    """One layer: a fading sum of looked-up vectors, its state in an ArraysCache."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def __call__(self, x, cache):
        ids = np.array(x)[0]
        _, _, values = looked_up(self.layer, ids, 0 * ids)
        state = mx.zeros((1, HEADS * DIM)) if cache[0] is None else cache[0]
        sums = mx.array(fading(len(ids))) @ mx.concatenate([state, mx.array(values.reshape(len(ids), -1))])
        cache[0] = sums[-1:]
        return sums[None]


class Toy(nn.Module):
    """Layers side by side; ``fail_at`` stops a forward ahead of a layer."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def __call__(self, x, cache, fail_at=None):
        outputs = []
        for i, (layer, held) in enumerate(zip(self.layers, cache, strict=True)):
            if i == fail_at:
                raise InterruptedError
            outputs.append(layer(x, cache=held))
        return mx.concatenate(outputs, axis=-1)


def looked_up(layer, ids, positions):
    """Return queries, keys and values, ``[3, tokens, HEADS, DIM]``."""
    return BANKS[:, (ids * 31 + positions * 17 + layer * 101) % BANK]


def fading(n):
    """Return ``[n, n + 1]``: the weights of the state and of n vectors in each of n sums."""
    power = np.arange(n)[:, None] - np.arange(-1, n)[None]
    return np.where(power >= 0, DECAY ** np.maximum(power, 0), 0).astype(np.float32)


@functools.cache
def stored(spec):
    """Return what the keys and values of the bank are after caches of ``spec`` have had them."""
    bank = mx.array(BANKS[1:])
    if spec.startswith("e8v"):
        bank = VoronoiCodec(DIM, 2.25, "fast").roundtrip(bank)
    elif spec.startswith("affine"):
        bank = mx.dequantize(*mx.quantize(bank, 32, 4), 32, 4)
    elif spec.startswith("e8@"):
        bank = ClassicCodec("e8", DIM, 38).roundtrip(bank)
    return np.array(bank)


class Kind:
    """A list of caches, one a layer, and what the oracle has to know of them.

    Args:
        spec: ``raw``, ``e8v@2.25``, ``affine@4g32`` or ``e8@q38``, of the caches that hold keys and values.
        sizes: a layer each: a ring's size, 0 for a growing cache, None for a recurrent state.
        keep: of the rings.
        window: of the mask, None or a number of tokens.
        views: whether packed caches hand out views.
    """

    def __init__(self, spec, sizes, keep=0, window=None, *, views=False):
        self.spec, self.sizes, self.keep, self.window, self.views = spec, sizes, keep, window, views
        self.stored = stored(spec)

    def caches(self, *, views=False):
        return [self._cache(size, views or self.views) for size in self.sizes]

    def _cache(self, size, views):
        if size is None:
            return lm_cache.ArraysCache(1)
        if self.spec.startswith("e8v"):
            if size:
                return caches.PackedRotatingKVCache(size, self.keep, "e8v@2.25:fast", views=views)
            return caches.PackedKVCache("e8v@2.25:fast", views=views)
        if self.spec.startswith("affine"):
            return lm_cache.QuantizedKVCache(group_size=32, bits=4)
        plain = lm_cache.RotatingKVCache(size, self.keep) if size else lm_cache.KVCache()
        if self.spec.startswith("e8@"):
            maker = caches.roundtrip.codec_maker(self.spec)
            return caches.KakeyaLatticeMLXCache(plain, maker, self.spec)
        return plain

    def model(self):
        sizes = enumerate(self.sizes)
        return Toy([Scan(i) if size is None else Attend(i, self.window) for i, size in sizes])

    def oracle(self, kept, ids):
        """Return the outputs ``[L, layers * HEADS * DIM]`` of ``ids`` behind the tokens ``kept``."""
        tokens = np.array([*kept, *ids])
        rows = np.arange(len(kept), len(tokens))
        parts = [self._layer(i, size, tokens, rows) for i, size in enumerate(self.sizes)]
        return np.concatenate(parts, axis=-1)

    def _layer(self, layer, size, tokens, rows):
        positions = np.arange(len(tokens))
        if size is None:
            values = looked_up(layer, tokens, 0 * positions)[2].reshape(len(tokens), -1)
            return (fading(len(tokens))[:, 1:] @ values)[rows]
        index = (tokens * 31 + positions * 17 + layer * 101) % BANK
        queries, (keys, values) = BANKS[0][index[rows]], self.stored[:, index]
        back = rows[:, None] - positions
        seen = back >= 0
        if size:
            seen &= (positions < self.keep) | (back < size - self.keep)
        if self.window and self.window < (size or np.inf):
            seen &= back < self.window
        scores = np.einsum("lhd,thd->hlt", queries, keys) * SCALE
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.einsum("hlt,thd->lhd", weights, values).reshape(len(rows), -1)


class World:
    """Caches under a rollback, the tokens they should hold, and everything that may be done to them.

    Every method that runs the model compares its outputs with the oracle's.
    """

    def __init__(self, kind, how="auto"):
        self.kind, self.how = kind, how
        self.caches, self.kept = kind.caches(), []
        self.plain = kind.caches(views=True)  # what decoding one by one would hold, up to ``self.decoded``
        self.decoded = 0
        self.stepped_back = False  # a ring may hold a rejected token in the slot that it writes next
        self.target = kind.model()
        self._bind()

    def _bind(self):
        self.rollback = rollback_for(self.caches, self.how)
        self.model = self.rollback.prepare(self.target)

    def advance(self, ids):
        output = self.rollback.advance(self.model, mx.array([ids]))
        if len(ids) == 1 or not self.kind.keep:  # in a chunk, mlx-lm's mask hides a ring's first tokens
            self._compare(output, ids)
        if len(ids) > 1:  # and a ring lies in another order after one: decode that alike
            self.decode()
            self._put(ids)
        self.kept += ids
        self.stepped_back = False

    def round(self, ids, kept):
        self._compare(self.rollback.forward(self.model, mx.array([ids])), ids)
        self.rollback.commit(kept)
        self.kept += ids[:kept]
        self.stepped_back = not kept and (len(ids) == 1 or self.stepped_back)

    def abandon(self, ids, fail_at=None):
        """Give up a round, after the forward or in the middle of it."""
        with contextlib.suppress(InterruptedError):
            self.rollback.forward(lambda x, cache: self.model(x, cache, fail_at), mx.array([ids]))
        self.rollback.abandon()
        self.stepped_back |= len(ids) == 1

    def save_and_load(self):
        self.settle()
        if any(cache.empty() for cache in self.caches):
            return
        views = [getattr(cache, "views", False) for cache in self.caches]
        self.caches = [type(cache).from_state(cache.state) for cache in self.caches]
        for cache, view in zip(self.caches, views, strict=True):
            if view:
                cache.views = True
        self._bind()

    def copy(self):
        """Go on with a copy, the original spoilt."""
        self.settle()
        mine = copy.deepcopy(self.caches)
        self.target(mx.array([[1, 2, 3]]), self.caches)
        self.caches = mine
        self._bind()

    def settle(self):
        self.rollback.settle(self.model)

    def decode(self):
        """Let the plain caches catch up, one by one."""
        for token in self.kept[self.decoded :]:
            self._put([token])

    def _put(self, ids):
        for layer, cache in zip(self.target.layers, self.plain, strict=True):
            if isinstance(layer, Attend):
                cache.update_and_fetch(*layer.vectors(np.array(ids), cache)[1:])
        self.decoded += len(ids)

    def check_state(self):
        """Compare every cache, bit for bit, with what decoding one by one would hold."""
        self.settle()
        self.decode()
        for ours, plain in zip(*map(_bare, (self.caches, self.plain)), strict=True):
            if isinstance(ours, lm_cache.ArraysCache):
                continue  # sums of another order
            assert ours.offset == plain.offset == len(self.kept)
            if isinstance(ours, lm_cache.RotatingKVCache) and (self.how == "carry" or self.stepped_back):
                continue  # carrying leaves another order, a step back another dead slot
            if not self.kept:
                continue  # a forward that was taken back has left empty slots
            for x, y in zip(_held(ours), _held(plain), strict=True):
                assert x.shape == y.shape
                assert np.array_equal(x, y)
            if isinstance(ours, lm_cache.RotatingKVCache):
                assert ours.state[-1] == plain.state[-1]  # the slot that is written next
                assert ours.nbytes == plain.nbytes

    def _compare(self, output, ids):
        expected = self.kind.oracle(self.kept, ids)
        assert output.shape == (1, *expected.shape)
        assert np.abs(np.array(output)[0] - expected).max() < 2e-4


def _bare(caches):
    return [getattr(cache, "inner", cache) for cache in caches]


def _held(cache):
    """Return the stored arrays, as far as they are in use."""
    if cache.keys is None:
        return []
    flat = [
        x for pair in (cache.keys, cache.values) for x in (pair if isinstance(pair, tuple | list) else [pair])
    ]
    return [np.array(x[:, :, : min(cache.offset, x.shape[2])]) for x in flat]


def remember(monkeypatch):
    """Let the codecs look the bank's vectors up."""
    vectors = BANKS[1:].reshape(-1, DIM)
    classic = known.look_up(vectors, stored("e8@q38").reshape(-1, DIM))
    known.remember(monkeypatch, VoronoiCodec(DIM, 2.25, "fast"), vectors)
    monkeypatch.setattr(ClassicCodec, "roundtrip", lambda _, x: classic(x))
