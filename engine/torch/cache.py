"""KV caches for transformers that store packed codes.

Transformers' dynamic layers only move tokens along one axis (growing, windows, cropping, choosing rows of a batch) and
never read them. So each layer here is transformers' own with rows of bytes as tokens.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
)

from bridge.reports.cache_spec import CacheSpec
from engine.errors import BadInput
from engine.live_bytes import live_bytes
from engine.torch.codecs import Coder, rows_of, sides_of
from engine.torch.decoded import Decoded
from engine.torch.view import PackedView

DEFAULT = "e8v@4.25"
RAW = "raw"


class _Packed(DynamicLayer):
    """What the packed layers share: rows, uint8 ``[batch, heads, tokens, bytes]``, in ``keys`` and ``values``."""

    sides: tuple[CacheSpec, CacheSpec]
    coders: tuple[Coder, Coder]
    dims: tuple[int, int]
    room = 0  # the most bytes of decoded vectors to keep
    decoded: list[list[torch.Tensor]]  # these vectors
    kept: tuple[Decoded | None, Decoded | None] = (None, None)

    def lazy_initialization(self, *vectors: torch.Tensor, **states: Any) -> None:
        """Choose the codecs for the head sizes of the first keys and values; states are the layer's own."""
        super().lazy_initialization(*vectors, **states)
        if not vectors:
            return
        key_states, value_states = vectors
        self.dims = key_states.shape[-1], value_states.shape[-1]
        keys, values = (
            Coder(rows_of(side, dim), key_states.dtype)
            for side, dim in zip(self.sides, self.dims, strict=True)
        )
        self.coders = keys, values
        self.keys = self.values = torch.empty(0, dtype=torch.uint8, device=self.device)
        if self.room:
            self.decoded = [[], []]
            first, second = (Decoded(self.room // 2, arrays) for arrays in self.decoded)
            self.kept = first, second

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Append keys and values ``[batch, heads, tokens, dim]``; return views of all that attention reads."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.keys, self.values
        stored = super().update(*self._encoded(key_states, value_states), *args, **kwargs)
        self._follow(before)
        sides = zip(stored, self.coders, self.dims, self.kept, strict=True)
        return tuple(PackedView(rows, coder, dim, kept) for rows, coder, dim, kept in sides)

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens, and release their memory."""
        before = self.keys, self.values
        super().crop(tokens_to_remove)
        if self.keys is not before[0]:
            self.keys, self.values = self.keys.clone(), self.values.clone()
            self._follow(before)

    def _follow(self, before: tuple[torch.Tensor, torch.Tensor]) -> None:
        for kept, old, new in zip(self.kept, before, (self.keys, self.values), strict=True):
            if kept is not None:
                kept.follow(old, new)

    def _encoded(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        of_keys, of_values = self.coders
        if self.sides[0] == self.sides[1] and keys.shape == values.shape:
            # One call takes half the time of two if there are few tokens.
            first, second = of_keys.encode(torch.stack([keys, values]))
            return first, second
        return of_keys.encode(keys), of_values.encode(values)


class PackedLayer(_Packed):
    """A growing layer."""

    def __init__(self, layer: DynamicLayer, sides: tuple[CacheSpec, CacheSpec]) -> None:  # noqa: ARG002
        super().__init__()
        self.sides = sides


class PackedSlidingLayer(_Packed, DynamicSlidingWindowLayer):
    """A layer that keeps the last tokens only."""

    def __init__(self, layer: DynamicSlidingWindowLayer, sides: tuple[CacheSpec, CacheSpec]) -> None:
        DynamicSlidingWindowLayer.__init__(self, layer.sliding_window)
        self.sides = sides


class PackedHybridLayer(_Packed, LinearAttentionAndFullAttentionLayer):
    """A layer that keeps keys and values beside states, which stay as they are."""

    def __init__(
        self, layer: LinearAttentionAndFullAttentionLayer, sides: tuple[CacheSpec, CacheSpec]
    ) -> None:
        LinearAttentionAndFullAttentionLayer.__init__(self, layer.number_of_states)
        self.sides = sides


class PackedSlidingHybridLayer(_Packed, LinearAttentionAndSlidingWindowAttentionLayer):
    """The same, with the keys and values of the last tokens only."""

    def __init__(
        self, layer: LinearAttentionAndSlidingWindowAttentionLayer, sides: tuple[CacheSpec, CacheSpec]
    ) -> None:
        LinearAttentionAndSlidingWindowAttentionLayer.__init__(
            self, layer.sliding_window, layer.number_of_states
        )
        self.sides = sides


# The layers of transformers that can store codes. All others stay as they are.
PACKED: dict[type, Callable[[Any, tuple[CacheSpec, CacheSpec]], DynamicLayer]] = {
    DynamicLayer: PackedLayer,
    DynamicSlidingWindowLayer: PackedSlidingLayer,
    LinearAttentionAndFullAttentionLayer: PackedHybridLayer,
    LinearAttentionAndSlidingWindowAttentionLayer: PackedSlidingHybridLayer,
}


def kakeya_cache(model: Any, spec: str = DEFAULT, boundary: int = 0, decoded: int = 0) -> Cache:
    """Return a cache for one call of ``model.generate(..., cache=...)``, or for one sequence of forward passes.

    Args:
        model: a causal language model of transformers.
        spec: see ``bridge.reports.cache_spec``. Layers that keep no keys and values, such as state-space layers, stay
            the model's own.
        boundary: how many of the first and of the last key-value layers stay raw.
        decoded: the most bytes of decoded vectors, of the first tokens, that the growing layers keep together beside
            their codes. They save each step from decoding these tokens again, change no result, and count as bytes of
            the cache.

    Raises:
        BadInput: no such spec, a format of MLX's, a negative boundary or number of bytes, a model with an encoder, or
            head sizes that the codec does not have; or no layer of the model can store codes.
    """
    if boundary < 0:
        raise BadInput(f"boundary is {boundary}", "the number of layers left raw at either end, 0 or more")
    if decoded < 0:
        raise BadInput(f"decoded is {decoded}", "a number of bytes, 0 or more")
    if getattr(model.config, "is_encoder_decoder", False):
        raise BadInput("this model has an encoder", "take a causal language model")
    cache = DynamicCache(config=model.config)
    sides = sides_of(spec)
    if {side.family for side in sides} == {RAW}:
        return cache
    holders = [i for i, layer in enumerate(cache.layers) if type(layer) in PACKED]
    reason = None if holders else "none of its layers keeps keys and values that the codec can store"
    if not uses_caches(model):
        reason = f"{type(model).__name__} keeps what it has read in a form of its own"
    if reason is not None:
        raise BadInput(f"this model cannot use the cache {spec}: {reason}", "caches that it can use: raw")
    layers = model.config.get_text_config(decoder=True).per_layer_config
    for i in holders[boundary : len(holders) - boundary]:
        _check(layers[i], sides)
        cache.layers[i] = PACKED[type(cache.layers[i])](cache.layers[i], sides)
    growing = [layer for layer in cache.layers if isinstance(layer, PackedLayer | PackedHybridLayer)]
    for layer in growing:
        layer.room = decoded // len(growing)
    return cache


def uses_caches(model: Any) -> bool:
    """Return whether a model reads transformers' caches. A few older ones keep states of their own."""
    return bool(model._supports_default_dynamic_cache())  # noqa: SLF001 - as `generate` decides


def cache_bytes(cache: Cache) -> int:
    """Return the bytes of the arrays in a cache, counted as for MLX's caches."""
    return live_bytes(cache.layers)


def packed_layers(cache: Cache) -> int:
    """Return how many of a cache's layers store codes."""
    return sum(isinstance(layer, _Packed) for layer in cache.layers)


def _check(config: Any, sides: tuple[CacheSpec, CacheSpec]) -> None:
    """Refuse a layer whose head size the codec does not have, as far as its configuration names it."""
    dim: Any = getattr(config, "head_dim", None)
    if dim is None and hasattr(config, "num_attention_heads"):
        dim = config.hidden_size // config.num_attention_heads
    for side in sides if isinstance(dim, int) else ():
        rows_of(side, dim)
