"""Random operations on the packed caches against a plain list of tokens.

Every token carries vectors made of its number, and the codec treats each vector by itself, so what a cache
holds can be compared exactly, and in order, with what each token's vectors become by themselves.
"""

import copy

import numpy as np
import pytest

from engine.cache.packed import PackedKVCache, PackedRotatingKVCache
from engine.codec.voronoi import VoronoiCodec
from engine.mx import mx
from tests.engine import known

HEADS, DIM = 2, 8
SEQUENCES = 10_000


@pytest.fixture(scope="module")
def alphabet():
    """256 vectors, and what the codec makes of each."""
    x = np.random.default_rng(0).standard_normal((256, DIM)).astype(np.float32)
    return x, np.array(VoronoiCodec(DIM, 2.25, "fast").roundtrip(mx.array(x)))


def _tokens(vectors, numbers):
    """Keys and values of tokens, [1, heads, tokens, dim]: other vectors for each head and each of the two."""
    spread = np.asarray(numbers)[None, :] + 37 * np.arange(2 * HEADS)[:, None]
    x = vectors[spread % len(vectors)].reshape(2, 1, HEADS, len(numbers), DIM)
    return mx.array(x[0]), mx.array(x[1])


def _check(found, alphabet, numbers):
    for ours, expected in zip(found, _tokens(alphabet[1], numbers), strict=True):
        assert np.array_equal(np.array(ours), np.array(expected))


class _Full:
    """What a growing cache should hold."""

    def __init__(self, rng):
        self.rng, self.held = rng, []

    def fresh(self):
        return PackedKVCache("e8v@2.25:fast")

    def add(self, numbers):
        self.held += numbers

    def trim(self, n):
        self.held = self.held[: max(len(self.held) - n, 0)]


class _Ring(_Full):
    """What a ring should hold: with one new token the last ``size``, with n the last ``size + n - 1``."""

    def __init__(self, rng):
        super().__init__(rng)
        self.size, self.keep = int(rng.integers(3, 9)), int(rng.integers(0, 2))
        self.total = 0

    def fresh(self):
        return PackedRotatingKVCache(self.size, self.keep, "e8v@2.25:fast")

    def add(self, numbers):
        self.total += len(numbers)
        room = self.size if len(numbers) == 1 else self.size + len(numbers) - 1
        held = self.held + numbers
        extra = max(len(held) - room, 0)
        self.held = held[: self.keep] + held[self.keep + extra :]

    def trim(self, n):
        super().trim(n)
        self.total = max(self.total - n, 0)


def _in_order(held, cache, found):
    """A ring hands its tokens out rotated; attention does not mind, the comparison does."""
    if isinstance(held, _Ring) and cache.offset >= cache.max_size:
        keep, at = cache.keep, cache.state[-1]  # the slot that is written next
        order = [*range(keep), *range(at, found[0].shape[2]), *range(keep, at)]
        return [x[:, :, mx.array(order)] for x in found]
    return found


def _one_sequence(rng, make, alphabet):
    held = make(rng)
    cache, count = held.fresh(), 0
    for _ in range(int(rng.integers(3, 8))):
        kind = rng.choice(["one", "some", "trim", "copy", "state"], p=[0.35, 0.3, 0.2, 0.07, 0.08])
        if kind in {"one", "some"}:
            n = 1 if kind == "one" else int(rng.integers(2, 7))
            numbers = list(range(count, count + n))
            count += n
            found = cache.update_and_fetch(*_tokens(alphabet[0], numbers))
            held.add(numbers)
            if rng.random() < 0.3:  # what comes out later depends on all that went in
                _check(_in_order(held, cache, found), alphabet, held.held)
        elif kind == "trim" and cache.is_trimmable() and held.held:
            n = int(rng.integers(0, len(held.held) + 2))
            assert cache.trim(n) == min(n, len(held.held))
            held.trim(n)
        elif kind == "copy":
            other = copy.deepcopy(cache)
            cache.update_and_fetch(*_tokens(alphabet[0], [count + 5]))
            cache = other
        elif kind == "state" and not cache.empty():
            cache = type(cache).from_state(cache.state)
    if held.held:
        _check(_in_order(held, cache, cache.keys_and_values()), alphabet, held.held)


@pytest.mark.rows(1)
@pytest.mark.parametrize("make", [_Full, _Ring])
@pytest.mark.parametrize("part", range(4))
def test_random_operations(make, part, alphabet, monkeypatch):
    known.remember(monkeypatch, VoronoiCodec(DIM, 2.25, "fast"), alphabet[0])
    rng = np.random.default_rng([part, make is _Ring])
    for _ in range(SEQUENCES // 8):
        _one_sequence(rng, make, alphabet)


@pytest.mark.rows(1)
@pytest.mark.parametrize("make", [_Full, _Ring])
def test_random_operations_with_the_codec_itself(make, alphabet):
    rng = np.random.default_rng([4, make is _Ring])
    for _ in range(25):
        _one_sequence(rng, make, alphabet)
