"""Measures what a cache stores: in half precision for a float32 model, counted array by array, and read back."""

from collections.abc import Iterator, Sequence
from typing import Any

from engine.attention.views import PackedView
from engine.cache.kinds import CLASSES
from engine.cache.protocol import Cache
from engine.cache.proxy import CacheProxy
from engine.cache.roundtrip import KakeyaLatticeMLXCache
from engine.codec import classic_store
from engine.codec.classic import ClassicCodec
from engine.evals.controls import ControlCache
from engine.live_bytes import layer_of, memory_of
from engine.mx import mx, tree

HOLDERS: tuple[Any, ...] = (
    *(cls for cls, known in CLASSES.items() if known.layout != "states"),
    *(KakeyaLatticeMLXCache, ControlCache),
)


class HalfCache(CacheProxy):
    """A cache proxy that stores float16 for a float32 model.

    On the CPU, half types compute slowly. But a float32 cache would make every codec look better than it is: an
    uncompressed one takes 32 bits per value, and mlx-lm's quantized one stores float32 scales.
    """

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Append keys and values in half precision; return all in the original type. Packed codes do not change."""
        wide = keys.dtype
        stored = self.inner.update_and_fetch(keys.astype(mx.float16), values.astype(mx.float16))
        widened: tuple[Any, Any] = tree.tree_map(
            lambda x: x.astype(wide) if isinstance(x, mx.array) and x.dtype == mx.float16 else x, stored
        )
        return widened


def in_half_precision(caches: Sequence[Cache]) -> list[Cache]:
    """Return caches that keep keys and values in half precision."""
    return [HalfCache(cache) if isinstance(cache, HOLDERS) else cache for cache in caches]


def stored(caches: Sequence[Cache], pairs: Sequence[Sequence[mx.array]]) -> dict[str, Any]:
    """Return the ``memory`` of a row: the arrays of codes and side information, without unused capacity.

    Each cache has been given the keys and values of its pair and nothing else. The published codec's cache keeps what
    came back in full, so its codes are packed here.
    """
    return memory_of(_layer(cache, pair) for cache, pair in zip(caches, pairs, strict=True))


def _layer(cache: Any, pair: Sequence[mx.array]) -> dict[str, Any]:
    inmost = [*_behind(cache)][-1]
    if codecs := classic(cache):
        packed = [classic_store.pack(codecs[x.shape[-1]], x) for x in pair]
        return layer_of("packed by engine.codec.classic_store", packed)
    sides = [x if isinstance(x, tuple | list) else (x,) for x in (inmost.keys, inmost.values)]
    return layer_of(type(inmost).__name__, [x[..., : cache.offset, :] for side in sides for x in side])


def classic(cache: Any) -> dict[int, ClassicCodec]:
    """Return the published codecs of a cache, by head size; empty for other caches."""
    codecs = next((part.codecs for part in _behind(cache) if isinstance(part, KakeyaLatticeMLXCache)), {})
    return {dim: codec for dim, codec in codecs.items() if isinstance(codec, ClassicCodec)}


def _behind(cache: Any) -> Iterator[Any]:
    """Yield a cache and, if it is a wrapper, the caches that it wraps."""
    yield cache
    while "inner" in vars(cache):
        cache = cache.inner
        yield cache


def read_back(cache: Any, keys: mx.array, values: mx.array) -> list[mx.array]:
    """Store keys and values, ``[1, heads, tokens, dim]``, in a fresh cache, and return what attention would read."""
    return [_dense(x, cache) for x in cache.update_and_fetch(keys, values)]


def _dense(x: Any, cache: Any) -> mx.array:
    if isinstance(x, PackedView):
        return x.dense().astype(mx.float32)
    if isinstance(x, tuple | list):
        codes, scales, biases = x
        wide = (scales.astype(mx.float32), biases.astype(mx.float32))
        return mx.dequantize(codes, *wide, group_size=cache.group_size, bits=cache.bits)
    dense: mx.array = x.astype(mx.float32)
    return dense
